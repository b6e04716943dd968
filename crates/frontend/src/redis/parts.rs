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

/// Bytes of the reply that these bytes begin with, of any type, with all that is in it.
pub(crate) fn reply_bytes(replies: &[u8]) -> usize {
    let (mut at, mut left) = (0, 1usize);
    while left > 0 && at < replies.len() {
        left -= 1;
        let reply = replies.get(at..).unwrap_or_default();
        let (number, rest) = head(reply);
        let line = reply.len() - rest.len();
        let number = usize::try_from(number).unwrap_or(0);
        at += match reply.first() {
            Some(b'$' | b'=' | b'!') => element_bytes(reply),
            Some(b'*' | b'~' | b'>') => {
                left = left.saturating_add(number);
                line
            }
            Some(b'%') => {
                left = left.saturating_add(number.saturating_mul(2));
                line
            }
            _ => line,
        };
    }
    at.min(replies.len())
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

#[cfg(test)]
mod tests {
    use super::reply_bytes;

    #[test]
    fn a_reply_ends_behind_all_that_is_in_it() {
        let replies: [&[u8]; 12] = [
            b"+OK\r\n",
            b"-ERR no\r\n",
            b":12\r\n",
            b"$-1\r\n",
            b"_\r\n",
            b"*-1\r\n",
            b"$0\r\n\r\n",
            b"$5\r\na\r\nbc\r\n",
            b"*0\r\n",
            b"*2\r\n*1\r\n:1\r\n$1\r\nx\r\n",
            b"%1\r\n$1\r\na\r\n~1\r\n:1\r\n",
            b"=5\r\ntxt:x\r\n",
        ];
        for reply in replies {
            let all = [reply, b":99\r\n"].concat();
            assert_eq!(reply_bytes(&all), reply.len(), "{}", String::from_utf8_lossy(reply));
        }
        assert_eq!(reply_bytes(b""), 0);
        assert_eq!(reply_bytes(b"$9\r\nabc"), 7, "what is cut off ends with the bytes");
    }
}
