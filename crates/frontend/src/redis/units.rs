//! PARITAS.UNITS: units of a part that this node keeps, for a client that reads them itself (P14.17). And PARITAS.PUT:
//! units of a part from a client that writes it itself (P14.18).

use super::connection::is_word;
use paritas_base::{ListId, Position, StreamId};
use paritas_protocol::large::{GroupId, PartName};
use paritas_protocol::{Capability, ClientCoding, Context, Lists, Out};
use paritas_wire::resp::{ArgList, encode, errors};

/// The most bytes of units in one reply.
const BYTES_MAX: usize = 512 << 10;
/// After this number of wrong capabilities a connection is closed (P14.19).
pub(crate) const WRONG_CAPABILITIES_MAX: u8 = 3;
/// Bytes that are copied in a step of a turn's budget, bytes that are compared too, and bytes that are taken: copied,
/// summed and folded.
const STEP_BYTES_COPIED: u64 = 4;
const STEP_BYTES_COMPARED: u64 = 2;
const STEP_BYTES_PUT: u64 = 1;

/// How it was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answered {
    /// With units, with their number, or with an error.
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

/// PARITAS.PUT list x group part unit capability bytes.
pub(crate) fn put<O: Out>(
    cx: &mut Context<'_, O>,
    lists: &mut Lists,
    out: &mut Vec<u8>,
    args: ArgList<'_>,
) -> Answered {
    if cx.shared.parameters.client_coding != ClientCoding::On {
        encode::error(out, errors::CLIENT_CODING_NOT_ON);
        return Answered::Known;
    }
    let given = match given(args, BYTES_MAX.max(cx.shared.arena.chunk_bytes())) {
        Ok(given) => given,
        Err(text) => {
            encode::error(out, &text);
            return Answered::Known;
        }
    };
    let Given { stream, name, .. } = given;
    let right = Capability::to_write(cx.shared.cluster.hash_key, stream, name.group.bits());
    if !right.is(given.capability) {
        encode::error(out, errors::WRONG_CAPABILITY);
        return Answered::WrongCapability;
    }
    match lists.put_units(cx, stream, name, given.unit, args.arg(7)) {
        Some(count) => encode::integer(out, count.into()),
        None => encode::error(out, errors::NOPART_TO_PUT),
    }
    Answered::Known
}

/// Steps of a turn's budget for units that were put.
pub(crate) fn put_steps(args: ArgList<'_>) -> u64 {
    args.arg(7).len() as u64 / STEP_BYTES_PUT
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

/// What is put, beside its bytes.
struct Given {
    stream: StreamId,
    name: PartName,
    unit: u32,
    capability: [u8; 8],
}

fn given(args: ArgList<'_>, bytes_max: usize) -> Result<Given, String> {
    let (stream, name) = named(args)?;
    let unit = number(args, 5, "unit", u32::MAX.into())? as u32;
    let capability = capability(args, 6, "PARITAS.STAGE")?;
    if args.arg(7).is_empty() || args.arg(7).len() > bytes_max {
        return Err(format!("ERR there must be 1 to {bytes_max} bytes of units"));
    }
    Ok(Given {
        stream,
        name,
        unit,
        capability,
    })
}

fn count_max(unit_bytes: usize) -> u32 {
    (BYTES_MAX / unit_bytes).max(1) as u32
}

fn asked(args: ArgList<'_>, count_max: u32) -> Result<Asked, String> {
    let is_known = args.len() == 8 || args.len() == 9 && is_word(args, 8, "check");
    if !is_known {
        return Err("ERR usage: PARITAS.UNITS list x group part first count capability [CHECK]".to_owned());
    }
    let (stream, name) = named(args)?;
    let first = number(args, 5, "first", u32::MAX.into())? as u32;
    let count = decimal(args.arg(6)).filter(|count| (1..=u64::from(count_max)).contains(count));
    let count = count.ok_or_else(|| format!("ERR count must be 1 to {count_max}: at most 512 KiB of units"))? as u32;
    if first.checked_add(count).is_none() {
        return Err("ERR first and count are together more than 4294967295: no part has so many units".to_owned());
    }
    Ok(Asked {
        stream,
        name,
        first,
        count,
        capability: capability(args, 7, "PARITAS.LOCATE")?,
        compares: args.len() == 9,
    })
}

/// Part and stream of a command: list x group part.
fn named(args: ArgList<'_>) -> Result<(StreamId, PartName), String> {
    let list = number(args, 1, "list", u16::MAX.into())? as u16;
    let x = number(args, 2, "x", u8::MAX.into())? as u8;
    let group = GroupId::from_bits(number(args, 3, "group", u64::MAX)?).ok_or("ERR group must be that of a record")?;
    let part = number(args, 4, "part", u8::MAX.into())? as u8;
    let stream = StreamId {
        list: ListId(list),
        x: Position(x),
    };
    Ok((stream, PartName { group, number: part }))
}

fn number(args: ArgList<'_>, at: usize, what: &str, most: u64) -> Result<u64, String> {
    let number = decimal(args.arg(at)).filter(|number| *number <= most);
    number.ok_or_else(|| format!("ERR {what} must be a number from 0 to {most}"))
}

fn capability(args: ArgList<'_>, at: usize, teller: &str) -> Result<[u8; 8], String> {
    let capability = args.arg(at).try_into();
    capability.map_err(|_| format!("ERR capability must be 8 bytes, as {teller} tells them"))
}

/// A number of digits alone.
fn decimal(text: &[u8]) -> Option<u64> {
    let is_digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let text = core::str::from_utf8(text).ok().filter(|_| is_digits)?;
    text.parse().ok()
}
