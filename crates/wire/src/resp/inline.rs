//! Inline commands, as typed into telnet. Quoting is that of Redis.

use super::args::{Args, Range};
use super::decode::{Decoded, ProtocolError};
use super::limits::Limits;

/// Decodes one line.
#[inline(never)]
pub(super) fn decode(input: &[u8], limits: &Limits, args: &mut Args) -> Result<Decoded, ProtocolError> {
    // The line end may come just after the longest line.
    let window = input
        .get(..input.len().min(limits.inline_bytes_max + 1))
        .unwrap_or_default();
    let known = args.resume.scanned.min(window.len());
    let Some(found) = window.iter().skip(known).position(|&byte| byte == b'\n') else {
        args.resume.scanned = window.len();
        return if input.len() > limits.inline_bytes_max {
            Err(ProtocolError::TooBigInline)
        } else {
            Ok(Decoded::Incomplete {
                needed: input.len() + 1,
            })
        };
    };
    let end = known + found;
    let line = input.get(..end).unwrap_or_default();
    args.scratch.clear();
    args.is_inline = true;
    split(line.strip_suffix(b"\r").unwrap_or(line), args)?;
    let name = args.ranges.first().and_then(|r| args.scratch.get(..r.end as usize));
    if name.is_some_and(|n| n.eq_ignore_ascii_case(b"post") || n.eq_ignore_ascii_case(b"host:")) {
        return Err(ProtocolError::Http);
    }
    Ok(Decoded::Complete { consumed: end + 1 })
}

/// The state of the parser within an argument.
#[derive(Clone, Copy, PartialEq, Eq)]
enum In {
    Plain,
    Double,
    Single,
}

/// Splits a line into arguments. Blanks separate, quotes join, and within double quotes a backslash escapes.
fn split(line: &[u8], args: &mut Args) -> Result<(), ProtocolError> {
    // Redis does not find the end of such a line, because C strings end at NUL. It is refused.
    if line.contains(&0) {
        return Err(ProtocolError::NulInInline);
    }
    let mut rest = line;
    loop {
        while let [b' ' | b'\t'..=b'\r', tail @ ..] = rest {
            rest = tail;
        }
        if rest.is_empty() {
            return Ok(());
        }
        let start = args.scratch.len() as u32;
        rest = one(rest, &mut args.scratch)?;
        args.ranges.push(Range {
            start,
            end: args.scratch.len() as u32,
        });
    }
}

/// Appends one argument. Returns the rest of the line.
fn one<'a>(mut rest: &'a [u8], out: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    let mut state = In::Plain;
    loop {
        let (byte, tail) = match (state, rest) {
            (In::Plain, [] | [b' ' | b'\n' | b'\r' | b'\t', ..]) => return Ok(rest),
            (_, []) => return Err(ProtocolError::UnbalancedQuotes),
            (In::Plain, [b'"', tail @ ..]) => {
                (state, rest) = (In::Double, tail);
                continue;
            }
            (In::Plain, [b'\'', tail @ ..]) => {
                (state, rest) = (In::Single, tail);
                continue;
            }
            // A closing quote ends the argument; only a blank may follow it.
            (In::Double, [b'"', tail @ ..]) | (In::Single, [b'\'', tail @ ..]) => {
                return match tail {
                    [] | [b' ' | b'\t'..=b'\r', ..] => Ok(tail),
                    _ => Err(ProtocolError::UnbalancedQuotes),
                };
            }
            (In::Double, [b'\\', b'x', high, low, tail @ ..])
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                (hex(*high) << 4 | hex(*low), tail)
            }
            (In::Double, [b'\\', escaped, tail @ ..]) => (unescape(*escaped), tail),
            (In::Single, [b'\\', b'\'', tail @ ..]) => (b'\'', tail),
            (_, [byte, tail @ ..]) => (*byte, tail),
        };
        out.push(byte);
        rest = tail;
    }
}

fn unescape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}
