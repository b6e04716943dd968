//! The loop over real sockets, with a machine small enough to see through.

mod clients;
mod machine;
mod peers;
