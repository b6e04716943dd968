//! Crate `client-io`: [`Client`], the engine of crate `client` on sockets and a thread of its own.
//!
//! ```no_run
//! use paritas_client_io::{Client, Command, Settings};
//!
//! let client = Client::connect(vec!["127.0.0.1:6379".into()], Settings::default())?;
//! client.set(b"key", vec![7; 1 << 20])?;
//! let under_way = client.submit(Command::get(b"key"));
//! // Something else is done meanwhile.
//! let outcome = client.wait(under_way);
//! println!("{:?} {:?}", outcome.result.is_ok(), outcome.phases);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod driver;
mod links;

pub use driver::{Client, Ticket, Waited};
pub use paritas_base::Span;
pub use paritas_client::{
    Command, Decode, Encode, Failure, OfConnection, Outcome, Phases, Settings, Stats, SubmitError, Value,
};
