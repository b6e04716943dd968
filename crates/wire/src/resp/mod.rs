//! RESP2 and RESP3: decodes requests and encodes replies, and the reverse for the project's own clients.
//! `docs/formats/resp.md` says what is accepted, the limits, and the differences to Redis.
//!
//! Input comes from clients: nothing here panics, and nothing allocates more than a limit allows.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod args;
mod decode;
pub mod encode;
pub mod errors;
mod inline;
mod limits;
mod number;
mod password;
mod reply;

pub use args::{ArgList, Args};
pub use decode::{Decoded, ProtocolError, argument, decode, decode_more};
pub use limits::Limits;
pub use number::parse_integer;
pub use password::{Password, USER};
pub use reply::{Reply, ReplyDecoder, ReplyError, Value};

/// The protocol version of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Proto {
    /// The version of a new connection.
    #[default]
    Resp2,
    /// The version after `HELLO 3`, with types for maps, sets, doubles, nulls and push messages.
    Resp3,
}
