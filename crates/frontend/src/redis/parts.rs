//! Commands and replies between the nodes of a cluster. The parts of a command over several streams are commands of
//! Redis. This module takes their replies apart, so that they can be combined.

use paritas_wire::resp::encode::{array_header, bulk};
use paritas_wire::resp::{ArgList, parse_integer};

/// Appends a command as an array of its words.
pub(crate) fn append_command(out: &mut Vec<u8>, args: ArgList<'_>) {
    array_header(out, args.len());
    args.iter().for_each(|arg| bulk(out, arg));
}

/// Appends a command of these words.
pub(crate) fn append_words<'w>(out: &mut Vec<u8>, words: impl ExactSizeIterator<Item = &'w [u8]>) {
    array_header(out, words.len());
    words.for_each(|word| bulk(out, word));
}

/// The number of words of a command that is an array.
pub(crate) fn word_count(command: &[u8]) -> usize {
    usize::try_from(head(command).0).unwrap_or(0)
}

/// The number in a reply's first line, and the bytes after that line.
pub(crate) fn head(reply: &[u8]) -> (i64, &[u8]) {
    let end = reply
        .iter()
        .position(|byte| *byte == b'\n')
        .map_or(reply.len(), |at| at + 1);
    let (line, rest) = reply.split_at(end);
    let number = line.get(1..).and_then(|text| parse_integer(text.trim_ascii_end()));
    (number.unwrap_or(0), rest)
}

/// Whether a reply says that there is no value.
pub(crate) fn is_nothing(reply: &[u8]) -> bool {
    matches!(reply, [b'_', ..] | [b'$', b'-', ..])
}

/// Bytes of the string, or of the missing value, that a reply begins with.
pub(crate) fn element_bytes(reply: &[u8]) -> usize {
    let (length, rest) = head(reply);
    let line = reply.len() - rest.len();
    let body = if is_nothing(reply) {
        0
    } else {
        usize::try_from(length).map_or(0, |length| length + 2)
    };
    (line + body).min(reply.len())
}

/// The cursor of a SCAN's reply, and its array of keys.
pub(crate) fn scanned(reply: &[u8]) -> (u64, &[u8]) {
    let rest = head(reply).1;
    let (cursor, keys) = rest.split_at(element_bytes(rest));
    let cursor = parse_integer(head(cursor).1.trim_ascii_end()).unwrap_or(0) as u64;
    (cursor, keys)
}

/// Appends the reply of a SCAN: `keys` is an array of them, as [`scanned`] gives it.
pub(crate) fn append_scanned(out: &mut Vec<u8>, cursor: u64, keys: &[u8]) {
    array_header(out, 2);
    bulk(out, cursor.to_string().as_bytes());
    out.extend_from_slice(keys);
}
