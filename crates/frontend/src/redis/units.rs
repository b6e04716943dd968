//! PARITAS.UNITS: units of a part that this node keeps, for a client that reads them itself (P14.17).

use super::connection::is_word;
use paritas_base::{ListId, Position, StreamId};
use paritas_protocol::large::{GroupId, PartName};
use paritas_protocol::{Capability, ClientCoding, Context, Lists, Out};
use paritas_wire::resp::{ArgList, encode, errors};

/// The most bytes of units in one reply.
const BYTES_MAX: usize = 512 << 10;
/// After this number of wrong capabilities a connection is closed (P14.19).
pub(crate) const WRONG_CAPABILITIES_MAX: u8 = 3;
/// Bytes that are copied in a step of a turn's budget, and bytes that are compared too.
const STEP_BYTES_COPIED: u64 = 4;
const STEP_BYTES_COMPARED: u64 = 2;

/// How it was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answered {
    /// With units, or an error.
    Known,
    /// The capability is not that of the group.
    WrongCapability,
}

/// What is asked for.
struct Asked {
    stream: StreamId,
    name: PartName,
    first: u32,
    count: u32,
    capability: [u8; 8],
    compares: bool,
}

/// PARITAS.UNITS list x group part first count capability [CHECK].
pub(crate) fn units<O: Out>(
    cx: &mut Context<'_, O>,
    lists: &mut Lists,
    out: &mut Vec<u8>,
    args: ArgList<'_>,
) -> Answered {
    if cx.shared.parameters.client_coding == ClientCoding::Off {
        encode::error(out, errors::CLIENT_CODING_OFF);
        return Answered::Known;
    }
    let asked = match asked(args, count_max(cx.shared.arena.chunk_bytes())) {
        Ok(asked) => asked,
        Err(text) => {
            encode::error(out, &text);
            return Answered::Known;
        }
    };
    let Asked { stream, name, .. } = asked;
    let right = Capability::to_read(cx.shared.cluster.hash_key, stream, name.group.bits());
    if !right.is(asked.capability) {
        encode::error(out, errors::WRONG_CAPABILITY);
        return Answered::WrongCapability;
    }
    let units = asked.first..asked.first + asked.count;
    let stored = match asked.compares {
        true => lists.compared_units(cx, stream, name, units),
        false => lists.stored_units(&cx.shared.arena, stream, name, units),
    };
    let Some(stored) = stored else {
        encode::error(out, errors::NOPART);
        return Answered::Known;
    };
    let bytes = stored.bytes();
    // Its growth would copy the units once more.
    out.reserve(bytes + 16);
    encode::bulk_header(out, bytes);
    stored.append(&cx.shared.arena, out);
    encode::bulk_end(out);
    Answered::Known
}

/// Steps of a turn's budget for a reply of this number of bytes.
pub(crate) fn steps(args: ArgList<'_>, reply_bytes: usize) -> u64 {
    let is_compared = args.len() > 8;
    reply_bytes as u64
        / match is_compared {
            true => STEP_BYTES_COMPARED,
            false => STEP_BYTES_COPIED,
        }
}

fn count_max(unit_bytes: usize) -> u32 {
    (BYTES_MAX / unit_bytes).max(1) as u32
}

fn asked(args: ArgList<'_>, count_max: u32) -> Result<Asked, String> {
    let is_known = args.len() == 8 || args.len() == 9 && is_word(args, 8, "check");
    if !is_known {
        return Err("ERR usage: PARITAS.UNITS list x group part first count capability [CHECK]".to_owned());
    }
    let number = |at: usize, what: &str, most: u64| {
        let number = decimal(args.arg(at)).filter(|number| *number <= most);
        number.ok_or_else(|| format!("ERR {what} must be a number from 0 to {most}"))
    };
    let list = number(1, "list", u16::MAX.into())? as u16;
    let x = number(2, "x", u8::MAX.into())? as u8;
    let group = GroupId::from_bits(number(3, "group", u64::MAX)?).ok_or("ERR group must be that of a record")?;
    let part = number(4, "part", u8::MAX.into())? as u8;
    let first = number(5, "first", u32::MAX.into())? as u32;
    let count = decimal(args.arg(6)).filter(|count| (1..=u64::from(count_max)).contains(count));
    let count = count.ok_or_else(|| format!("ERR count must be 1 to {count_max}: at most 512 KiB of units"))? as u32;
    if first.checked_add(count).is_none() {
        return Err("ERR first and count are together more than 4294967295: no part has so many units".to_owned());
    }
    let capability = args.arg(7).try_into();
    let capability = capability.map_err(|_| "ERR capability must be 8 bytes, as PARITAS.LOCATE tells them")?;
    Ok(Asked {
        stream: StreamId {
            list: ListId(list),
            x: Position(x),
        },
        name: PartName { group, number: part },
        first,
        count,
        capability,
        compares: args.len() == 9,
    })
}

/// A number of digits alone.
fn decimal(text: &[u8]) -> Option<u64> {
    let is_digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let text = core::str::from_utf8(text).ok().filter(|_| is_digits)?;
    text.parse().ok()
}
