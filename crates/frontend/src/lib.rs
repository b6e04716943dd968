//! Crate `frontend`: clients and their commands, before the roles of a node.
//!
//! [`Node`] is the machine a driver calls. Its router runs each command on the owner of the keys, here or at another
//! node, and releases the reply when it may be seen. What a client reads is written by its dialect.

mod dialect;
mod memcached;
mod node;
mod redis;
mod router;
mod turn;

pub use node::Node;
/// The most bytes of the source of a library of functions.
pub const LIBRARY_BYTES_MAX: usize = paritas_script::SOURCE_BYTES_MAX;
