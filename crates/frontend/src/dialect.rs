//! Replies behind a dialect: the router decides what to answer, as a typed [`Refusal`] or a value, and the dialect of
//! the client turns that into bytes. The texts of Redis are in `redis/refusals.rs`.

use crate::memcached::texts;
use crate::redis::refusals;
use paritas_protocol::{Answer, WriteRefusal};
use paritas_wire::command;
use paritas_wire::peer::dialect;
use paritas_wire::resp::{Proto, encode};

/// Why a command is refused, or why its result is unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// The owner of the stream refuses the change.
    Write(WriteRefusal),
    /// The stream of a write is not served. Nothing has happened.
    Unavailable,
    /// The stream of a read is not served. Ask again.
    Takeover,
    /// Hash slots moved to another stream while the command ran. It has no result; ask again.
    SlotsMoving,
    /// No stream owns the hash slot.
    NoOwner,
    /// To a forwarding peer: this node no longer owns the stream, and has done nothing.
    NotOwner,
    /// A long value came so slowly that it was given up.
    ValueTooSlow,
    /// A write may or may not have happened: its owner was lost before it was acknowledged.
    Uncertain,
    /// The coordinator or the process has not answered within 10 s.
    NoAnswer,
    /// The keys of the command are in several hash slots, and it must not be split.
    CrossSlot,
    /// The command has another number of words than its table entry allows.
    WrongArity {
        /// The command, as the table has it.
        name: &'static str,
    },
    /// The reply is longer than `bytes_max` bytes.
    ReplyTooLarge {
        /// The longest reply in bytes.
        bytes_max: usize,
    },
    /// The reply does not fit the frame to the node that forwarded.
    ReplyNotForwarded,
    /// A peer has forwarded bytes that are not a command.
    Malformed,
    /// The cursor of a scan is no number.
    InvalidCursor,
    /// The pattern of a walk over keys is longer than one may be.
    PatternTooLong,
    /// No hash slot has this number.
    InvalidSlot,
    /// A number of keys is negative.
    InvalidKeyCount,
    /// An argument is no integer of 64 bits.
    NotAnInteger,
}

/// The protocol that a client speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Dialect {
    /// Redis, until HELLO says otherwise.
    #[default]
    Resp2,
    /// Redis, after `HELLO 3`.
    Resp3,
    /// memcached, as text.
    Memcached,
}

impl Dialect {
    /// Its byte in a frame between nodes.
    pub(crate) fn to_byte(self) -> u8 {
        match self {
            Self::Resp2 => dialect::RESP2,
            Self::Resp3 => dialect::RESP3,
            Self::Memcached => dialect::MEMCACHED,
        }
    }

    /// The dialect with this byte in a frame between nodes. The decoder of frames refuses other bytes.
    pub(crate) fn from_byte(byte: u8) -> Self {
        match byte & !dialect::STAGED {
            dialect::RESP3 => Self::Resp3,
            dialect::MEMCACHED => Self::Memcached,
            _ => Self::Resp2,
        }
    }

    /// For the encoder of Redis' replies.
    pub(crate) fn proto(self) -> Proto {
        match self {
            Self::Resp2 | Self::Memcached => Proto::Resp2,
            Self::Resp3 => Proto::Resp3,
        }
    }

    /// Appends a refusal.
    pub(crate) fn refuse(self, out: &mut Vec<u8>, refusal: Refusal) {
        match self {
            Self::Resp2 | Self::Resp3 => refusals::append(out, refusal),
            Self::Memcached => texts::append(out, refusal),
        }
    }

    /// Appends an error, which is given in the form of Redis.
    pub(crate) fn error(self, out: &mut Vec<u8>, text: &str) {
        match self {
            Self::Resp2 | Self::Resp3 => encode::error(out, text),
            Self::Memcached => texts::error(out, text),
        }
    }

    /// Appends where the owner of a key is: `address` is `host:port` of its strict port. The slot is the one by which
    /// the client looks for the node, also where a rule gives the key another.
    pub(crate) fn redirect(self, out: &mut Vec<u8>, key: &[u8], address: &str) {
        let slot = command::slot(key);
        match self {
            Self::Resp2 | Self::Resp3 | Self::Memcached => refusals::moved(out, slot, address),
        }
    }

    /// Appends that something is done.
    pub(crate) fn done(self, out: &mut Vec<u8>) {
        match self {
            Self::Resp2 | Self::Resp3 => encode::ok(out),
            Self::Memcached => out.extend_from_slice(b"OK\r\n"),
        }
    }

    /// Appends a number.
    pub(crate) fn number(self, out: &mut Vec<u8>, number: i64) {
        encode::integer(out, number);
    }

    /// Appends that there is no value.
    pub(crate) fn nothing(self, out: &mut Vec<u8>) {
        encode::null(out, self.proto());
    }

    /// Appends a value.
    pub(crate) fn value(self, out: &mut Vec<u8>, value: &[u8]) {
        encode::bulk(out, value);
    }

    /// Appends the head of a reply of `count` values, which follow.
    pub(crate) fn values(self, out: &mut Vec<u8>, count: usize) {
        encode::array_header(out, count);
    }

    /// Appends an answer of the coordinator or the process.
    pub(crate) fn answer(self, out: &mut Vec<u8>, answer: &Answer) {
        match answer {
            Answer::Done => self.done(out),
            Answer::Text(text) => encode::bulk(out, text.as_bytes()),
            Answer::Refused(why) => refusals::other(out, why),
        }
    }
}
