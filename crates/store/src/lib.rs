//! Room `store`: one shard's memory. Plain `&mut self`; no threads, no sockets, no codes.
//!
//! [`Arena`] gives out chunk-sized slots, and its [`Budget`] says to whom. [`Chunks`] is one stream's chunks as their owner holds them, and the only
//! place where an owner's bytes change: every change lands in a [`Delta`] as well. [`Stream`] keeps objects and index
//! in them.

mod arena;
mod budget;
mod chunks;
pub mod delta;
mod index;
mod object;
mod policy;
mod stash;
mod stream;

pub use arena::{Arena, HugeRange, Loan, Slot};
pub use budget::{Budget, Part, Purpose};
pub use chunks::{Chunks, Missing, Presence, grow_table};
pub use delta::Delta;
pub use object::{KEY_BYTES_MAX, Object, VALUE_BYTES_MAX, Value};
pub use policy::Policy;
pub use stash::{Old, Stash};
pub use stream::{Blocked, Gauges, Limits, Settings, Stream};
