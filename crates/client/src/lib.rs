//! Crate `client`: a client that reads large values from the nodes that keep their parts, and decodes them itself
//! (online erasure coding, "client-side decode"; protocol rules P14.17 and P14.19).
//!
//! [`Engine`] is a state machine without I/O. Its driver gives it events with the time, and does what it asks for by
//! [`Out`]. The simulator drives the same engine.
//!
//! - A read asks the node for the place of the value (`PARITAS.LOCATE`). A small value is the answer itself. Of a large
//!   one, the engine asks the holders for their units (`PARITAS.UNITS`), all at once, and puts the value together.
//! - A unit that is late is replaced by another part, within a budget of bytes ([`Settings::hedge_per_mille`]).
//! - Every other command goes to a node as it is.
//! - What is submitted for one key happens in the order of submission.

mod choice;
mod command;
mod connection;
mod engine;
mod interface;
mod latency;
mod located;
mod queue;
mod read;
mod settings;

pub use command::{Command, OfConnection};
pub use engine::Engine;
pub use interface::{Event, Failure, LinkId, OpId, Out, Outcome, Phases, Stats, SubmitError};
pub use paritas_wire::resp::Value;
pub use settings::{Decode, Settings};
