//! Room `store`: one shard's memory. Plain `&mut self`; no threads, no sockets, no codes.
//!
//! [`Arena`] gives out chunk-sized slots. [`Chunks`] is one stream's chunks as their owner holds them, and the only
//! place where an owner's bytes change: every change lands in a [`Delta`] as well. Objects and index stand on it.

mod arena;
mod chunks;
pub mod delta;

pub use arena::{Arena, Slot};
pub use chunks::{Chunks, Missing, Presence};
pub use delta::Delta;
