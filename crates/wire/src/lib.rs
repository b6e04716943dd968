//! Crate `wire`: converts bytes to typed commands, replies and messages, and back. The bytes may come from attackers:
//! no input can cause a panic, and every length has a limit.

pub mod command;
pub mod greeting;
pub mod memcached;
pub mod peer;
pub mod rdb;
pub mod resp;
