//! Crate `client`: a client that reads large values from the nodes that keep their parts, and decodes them itself, and
//! that encodes those that it writes (online erasure coding, "client-side decode" and "client-side encode"; protocol
//! rules P14.17 to P14.20).
//!
//! [`Engine`] is a state machine without I/O. Its driver gives it events with the time, and does what it asks for by
//! [`Out`]. The simulator drives the same engine.
//!
//! - A read asks the node for the place of the value (`PARITAS.LOCATE`). A small value is the answer itself. Of a large
//!   one, the engine asks the holders for their units (`PARITAS.UNITS`), all at once, and puts the value together.
//! - A unit that is late is replaced by another part, within a budget of bytes ([`Settings::hedge_per_mille`]).
//! - A write of a large value asks the owner where its parts are to be (`PARITAS.STAGE`), sends them to their holders
//!   (`PARITAS.PUT`), and has the owner run the command (`PARITAS.COMMIT`). If that fails before the last step, the
//!   command is sent with its value, and a node encodes it.
//! - Every other command goes to a node as it is. A GET or SET goes to the owner of its key, if that is known.
//! - What is submitted for one key happens in the order of submission.

mod choice;
mod command;
mod connection;
mod engine;
#[cfg(test)]
mod fake;
mod interface;
mod latency;
mod located;
mod owners;
mod place;
mod queue;
mod read;
mod settings;
mod staged;
mod write;

pub use command::{Command, OfConnection};
pub use engine::Engine;
pub use interface::{Event, Failure, LinkId, OpId, Out, Outcome, Phases, Stats, SubmitError};
pub use paritas_wire::resp::Value;
pub use settings::{Decode, Encode, Settings};
