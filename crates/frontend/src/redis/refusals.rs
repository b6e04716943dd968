//! The texts of refusals. Clients match their exact prefixes, so the texts must not change.

use crate::dialect::Refusal;
use crate::memcached::texts;
use crate::redis::commands::by_client;
use paritas_protocol::WriteRefusal;
use paritas_wire::resp::encode::error;
use paritas_wire::resp::errors;

/// Answer to a peer that forwarded a command for a stream which this node no longer owns.
const NOT_OWNER: &str = "MOVED this node no longer owns the stream";

/// Appends a refusal as an error reply.
pub(crate) fn append(out: &mut Vec<u8>, refusal: Refusal) {
    match refusal {
        Refusal::Write(refusal) => write(out, refusal),
        Refusal::Unavailable => error(out, errors::CLUSTERDOWN),
        Refusal::Takeover => error(out, errors::TRYAGAIN_TAKEOVER),
        Refusal::SlotsMoving => error(out, errors::TRYAGAIN),
        Refusal::NoOwner => error(out, errors::CLUSTERDOWN_SLOT),
        Refusal::NotOwner => error(out, NOT_OWNER),
        Refusal::ValueTooSlow => error(
            out,
            "ERR the value was not stored: it came more slowly than 64 KiB/s for 10 s, and holds memory meanwhile",
        ),
        Refusal::Uncertain => error(out, errors::UNCERTAIN),
        Refusal::NoAnswer => error(out, errors::NO_ANSWER),
        Refusal::CrossSlot => error(out, errors::CROSSSLOT),
        Refusal::WrongArity { name } => errors::wrong_arity(out, name),
        Refusal::ReplyTooLarge { bytes_max } => errors::reply_too_large(out, bytes_max),
        Refusal::ReplyNotForwarded => error(out, "ERR the reply is too large to be forwarded; ask its owner"),
        Refusal::Malformed => error(out, "ERR malformed forwarded command"),
        Refusal::InvalidCursor => error(out, errors::INVALID_CURSOR),
        Refusal::PatternTooLong => error(out, errors::PATTERN_TOO_LONG),
        Refusal::InvalidSlot => error(out, errors::INVALID_SLOT),
        Refusal::InvalidKeyCount => error(out, errors::INVALID_KEY_COUNT),
        Refusal::NotAnInteger => error(out, errors::NOT_AN_INTEGER),
    }
}

fn write(out: &mut Vec<u8>, refusal: WriteRefusal) {
    match refusal {
        WriteRefusal::NoMemory => error(out, errors::OOM),
        WriteRefusal::TooFewMembers => error(out, errors::NOREPLICAS),
        WriteRefusal::Uncertain => error(out, errors::UNCERTAIN),
        WriteRefusal::KeyTooLong { bytes, bytes_max } => errors::key_too_long(out, bytes, bytes_max),
        WriteRefusal::ValueTooLong { bytes, bytes_max } => errors::value_too_long(out, bytes, bytes_max),
        WriteRefusal::NotStaged => error(
            out,
            "TRYAGAIN the value was not stored: the nodes that hold it changed while it was sent",
        ),
        WriteRefusal::Overtaken => error(
            out,
            "TRYAGAIN the value was not stored: other commands changed the key again and again while it was made",
        ),
        WriteRefusal::NotByClient(why) => {
            let text = format!("NOSTAGE {}: nothing was stored. Use SET", by_client::reason(why));
            error(out, &text);
        }
        WriteRefusal::TooLarge => error(out, "ERR key or value is too long"),
        WriteRefusal::CommandTooLarge { bytes_max } => errors::command_too_large(out, bytes_max),
        WriteRefusal::TooManyKeys {
            change_bytes,
            bytes_max,
        } => {
            let text = format!(
                "ERR too many keys for one slot in one command: keys and values and {change_bytes} bytes for each key \
                 are over {bytes_max} bytes"
            );
            error(out, &text);
        }
    }
}

/// Appends a refusal of the coordinator or the process; `why` is its own text.
pub(crate) fn other(out: &mut Vec<u8>, why: &str) {
    error(out, &format!("ERR {why}"));
}

/// Appends where the owner of a hash slot is.
pub(crate) fn moved(out: &mut Vec<u8>, slot: u16, address: &str) {
    errors::moved(out, slot, address);
}

/// Whether an owner's answer is [`Refusal::NotOwner`].
pub(crate) fn is_not_owner(reply: &[u8]) -> bool {
    let text = reply.strip_prefix(b"-");
    text.is_some_and(|text| text.starts_with(NOT_OWNER.as_bytes()))
}

/// Whether a reply is an error.
#[inline]
pub(crate) fn is_error(reply: &[u8]) -> bool {
    match reply.first() {
        Some(b'-') => true,
        Some(b'A'..=b'Z') => texts::is_error(reply),
        _ => false,
    }
}

/// Whether a reply is [`Refusal::ReplyTooLarge`].
pub(crate) fn is_reply_too_large(reply: &[u8]) -> bool {
    let text = reply.strip_prefix(b"-");
    text.is_some_and(|text| text.starts_with(errors::REPLY_TOO_LARGE.as_bytes()))
}

/// Whether a reply says that a key has a value of another type.
pub(crate) fn is_wrong_type(reply: &[u8]) -> bool {
    reply.starts_with(b"-WRONGTYPE")
}

/// Whether a reply is [`Refusal::Uncertain`].
pub(crate) fn is_uncertain(reply: &[u8]) -> bool {
    reply.starts_with(b"-UNCERTAIN") || texts::is_uncertain(reply)
}
