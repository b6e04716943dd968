//! RESP2 and RESP3: requests in, replies out, and the reverse for our own clients. `docs/formats/resp.md` says what
//! is accepted, the limits, and where we differ from Redis.
//!
//! Clients reach this room first: nothing here panics, and nothing allocates more than a limit allows.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod args;
mod decode;
pub mod encode;
pub mod errors;
mod inline;
mod limits;
mod number;
mod reply;

pub use args::{ArgList, Args};
pub use decode::{Decoded, ProtocolError, argument, decode, decode_more};
pub use limits::Limits;
pub use number::parse_integer;
pub use reply::{Reply, ReplyDecoder, ReplyError, Value};

/// Which protocol a connection speaks; RESP2 until HELLO says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Proto {
    /// What every client speaks at first.
    #[default]
    Resp2,
    /// After `HELLO 3`: maps, sets, doubles, nulls and pushes have types of their own.
    Resp3,
}
