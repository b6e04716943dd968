//! Crate `store`: the memory of one shard. Everything works on a plain `&mut self`: no threads, no sockets, no codes.
//!
//! [`Arena`] hands out memory in units of one chunk, and its [`Budget`] decides to whom. [`Chunks`] holds one stream's
//! chunks at its owner; it is the only place where an owner's bytes change, and it records every change in a [`Delta`].
//! [`ObjectStore`] keeps objects and the index in these chunks.

mod arena;
mod budget;
mod chunks;
pub mod delta;
mod image;
mod index;
mod object;
mod objects;
mod policy;
mod stash;

pub use arena::{Arena, ChunkRef, HugeRange, Loan};
pub use budget::{Budget, Part, Purpose};
pub use chunks::{Chunks, Missing, Presence, grow_table};
pub use delta::Delta;
pub use image::Image;
pub use object::{KEY_BYTES_MAX, Object, RECORD_BYTES_MAX, VALUE_BYTES_MAX, Value};
pub use objects::{
    Blocked, CURSOR_BITS, DATABASE_BITS, Drawn, Gauges, Keys, Limits, ObjectStore, RecordEvent, Settings, database_of,
};
pub use policy::Policy;
pub use stash::{Old, Stash};
