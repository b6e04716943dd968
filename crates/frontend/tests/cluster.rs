//! Commands on nodes in one thread: one program, since each one compiles all of `protocol` and `frontend` anew.

mod commands;
mod commands_gather;
mod commands_page;
mod forwarded_waits;
mod refused_transactions;
mod stuck;
#[path = "../../protocol/tests/support/mod.rs"]
mod support;
mod turn_limits;
