//! Room `wire`: bytes to typed commands, replies and messages, and back. Attackers reach it first: nothing here
//! panics on input, and every length has a limit.

pub mod command;
pub mod peer;
pub mod resp;
