//! The loop over real sockets, with a small machine.

mod clients;
mod machine;
mod peers;
