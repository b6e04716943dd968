//! The request decoder: arrays of bulk strings, or inline commands. It borrows the input, can resume, and limits every
//! length.

use std::fmt;

use super::args::{Args, Range, Resume};
use super::inline;
use super::limits::Limits;
use super::number::parse_integer;

/// The result of decoding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decoded {
    /// The first `consumed` bytes are a complete command, or an empty one (see [`Args::len`]).
    Complete {
        /// Bytes of the command.
        consumed: usize,
    },
    /// The next argument is longer than [`Limits::whole_bytes_max`]. The arguments before it are decoded.
    Long {
        /// Where the line with its length begins.
        line: usize,
        /// Where its bytes begin; they are followed by CRLF.
        start: usize,
        /// Its length in bytes.
        bytes: usize,
    },
    /// The command is not yet complete.
    Incomplete {
        /// Number of bytes of input below which another call is useless.
        needed: usize,
    },
}

/// Why the input is not a command. The connection is closed after this text is sent. All texts but the last three are
/// those of Redis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProtocolError {
    /// The count after `*` is not a number or is above the limit.
    InvalidMultibulkLength,
    /// As above, before AUTH.
    UnauthenticatedMultibulkLength,
    /// The count line is too long.
    TooBigMultibulkCount,
    /// The length after `$` is not a number or is above the limit, or the argument does not end where the length says.
    InvalidBulkLength,
    /// As above, before AUTH.
    UnauthenticatedBulkLength,
    /// The length line is too long.
    TooBigBulkCount,
    /// An argument starts with another byte than `$`.
    ExpectedDollar(u8),
    /// An inline command is too long.
    TooBigInline,
    /// An inline command has unbalanced quotes.
    UnbalancedQuotes,
    /// An inline command contains a NUL byte.
    NulInInline,
    /// The whole command is above the limit.
    TooBigRequest,
    /// The input is an HTTP request: somebody made a browser connect here. Redis closes such a connection without a
    /// reply.
    Http,
}

impl ProtocolError {
    /// Appends the whole reply.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        super::encode::error(out, &self.to_string());
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ERR Protocol error: ")?;
        match self {
            Self::InvalidMultibulkLength => f.write_str("invalid multibulk length"),
            Self::UnauthenticatedMultibulkLength => f.write_str("unauthenticated multibulk length"),
            Self::TooBigMultibulkCount => f.write_str("too big mbulk count string"),
            Self::InvalidBulkLength => f.write_str("invalid bulk length"),
            Self::UnauthenticatedBulkLength => f.write_str("unauthenticated bulk length"),
            Self::TooBigBulkCount => f.write_str("too big bulk count string"),
            Self::ExpectedDollar(got) => {
                // Bytes that are not text would make the reply invalid UTF-8, which some clients decode eagerly.
                let got = if got.is_ascii_graphic() { char::from(*got) } else { ' ' };
                write!(f, "expected '$', got '{got}'")
            }
            Self::TooBigInline => f.write_str("too big inline request"),
            Self::UnbalancedQuotes => f.write_str("unbalanced quotes in request"),
            Self::NulInInline => f.write_str("NUL in inline request"),
            Self::TooBigRequest => f.write_str("too big request"),
            Self::Http => f.write_str("HTTP request"),
        }
    }
}

impl std::error::Error for ProtocolError {}

/// Decodes the first command of `input`. The result does not depend on how the bytes were split into pieces.
#[inline]
pub fn decode(input: &[u8], limits: &Limits, args: &mut Args) -> Result<Decoded, ProtocolError> {
    args.restart();
    match short_length(input, 0, b'*') {
        Some((count, next)) if (1..=limits.args_max).contains(&count) => bulks(input, limits, args, next, count),
        _ => decode_more(input, limits, args),
    }
}

/// Continues after `Incomplete`, where the last call with the same `args` stopped. `input` must begin with the same
/// bytes as then. The result is that of `decode`, but arguments that have already arrived are not parsed again.
pub fn decode_more(input: &[u8], limits: &Limits, args: &mut Args) -> Result<Decoded, ProtocolError> {
    if args.resume.remaining > 0 {
        return bulks(input, limits, args, args.resume.position, args.resume.remaining);
    }
    match input.first() {
        None => Ok(Decoded::Incomplete { needed: 1 }),
        Some(b'*') => match long_length(input, 1, limits, args) {
            Length::Number(count, next) => {
                if count > limits.args_max as i64 {
                    return Err(if limits.authenticated {
                        ProtocolError::InvalidMultibulkLength
                    } else {
                        ProtocolError::UnauthenticatedMultibulkLength
                    });
                }
                match usize::try_from(count) {
                    // `*0` and `*-1` are not commands and get no answer, as in Redis.
                    Ok(0) | Err(_) => Ok(Decoded::Complete { consumed: next }),
                    Ok(count) => bulks(input, limits, args, next, count),
                }
            }
            Length::Incomplete => Ok(Decoded::Incomplete {
                needed: input.len() + 1,
            }),
            Length::Invalid => Err(ProtocolError::InvalidMultibulkLength),
            Length::Endless => Err(ProtocolError::TooBigMultibulkCount),
        },
        Some(_) => inline::decode(input, limits, args),
    }
}

/// `count` bulk strings from `position` on.
#[inline]
fn bulks(
    input: &[u8],
    limits: &Limits,
    args: &mut Args,
    mut position: usize,
    mut count: usize,
) -> Result<Decoded, ProtocolError> {
    let request_bytes_max = limits.request_bytes_max.min(u32::MAX as usize);
    loop {
        let (bytes, start) = match short_length(input, position, b'$') {
            Some(found) => found,
            None => match input.get(position) {
                None => break,
                Some(b'$') => match long_length(input, position + 1, limits, args) {
                    Length::Number(bytes, next) => match usize::try_from(bytes) {
                        Ok(bytes) => (bytes, next),
                        Err(_) => return Err(ProtocolError::InvalidBulkLength),
                    },
                    Length::Incomplete => break,
                    Length::Invalid => return Err(ProtocolError::InvalidBulkLength),
                    Length::Endless => return Err(ProtocolError::TooBigBulkCount),
                },
                Some(&other) => return Err(ProtocolError::ExpectedDollar(other)),
            },
        };
        if bytes > limits.bulk_bytes_max {
            return Err(if limits.authenticated {
                ProtocolError::InvalidBulkLength
            } else {
                ProtocolError::UnauthenticatedBulkLength
            });
        }
        if bytes > limits.whole_bytes_max {
            args.resume = Resume::default();
            return Ok(Decoded::Long {
                line: position,
                start,
                bytes,
            });
        }
        // Neither addition overflows: both terms are lengths in memory, or limits far below it.
        let end = start.saturating_add(bytes);
        let next = end.saturating_add(2);
        if next > request_bytes_max {
            return Err(ProtocolError::TooBigRequest);
        }
        match input.get(end..next) {
            Some(b"\r\n") => {}
            // Redis does not check this. Accepting a wrong length would allow smuggled commands.
            Some(_) => return Err(ProtocolError::InvalidBulkLength),
            None => {
                args.resume = Resume {
                    position,
                    remaining: count,
                    scanned: 0,
                };
                return Ok(Decoded::Incomplete { needed: next });
            }
        }
        args.ranges.push(Range {
            start: start as u32,
            end: end as u32,
        });
        position = next;
        count -= 1;
        if count == 0 {
            return Ok(Decoded::Complete { consumed: next });
        }
    }
    args.resume.position = position;
    args.resume.remaining = count;
    Ok(Decoded::Incomplete {
        needed: input.len() + 1,
    })
}

/// The result of parsing a count or length line.
enum Length {
    /// The number, and the offset of the next line.
    Number(i64, usize),
    Incomplete,
    Invalid,
    Endless,
}

/// Parses the common form of a line at `at`: `kind`, one or two digits, CRLF. Returns the number and the offset of the
/// next line. Every other form, right or wrong, is left to [`long_length`].
#[inline(always)]
fn short_length(input: &[u8], at: usize, kind: u8) -> Option<(usize, usize)> {
    const ENDS_IN_CRLF: u32 = u32::from_le_bytes([0, 0, b'\r', b'\n']);
    const ENDS_IN_CR: u32 = u32::from_le_bytes([0, 0, 0, b'\r']);
    let kind = u32::from(kind);
    let line = u32::from_le_bytes(*input.get(at..)?.first_chunk::<4>()?);
    let first = (line >> 8 & 0xff).wrapping_sub(u32::from(b'0'));
    if line & 0xffff_00ff == ENDS_IN_CRLF | kind && first < 10 {
        return Some((first as usize, at + 4));
    }
    let second = (line >> 16 & 0xff).wrapping_sub(u32::from(b'0'));
    let two_digits = (1..10).contains(&first) && second < 10;
    if line & 0xff00_00ff == ENDS_IN_CR | kind && two_digits && input.get(at + 4) == Some(&b'\n') {
        return Some(((first * 10 + second) as usize, at + 5));
    }
    None
}

/// Parses the number at `at`, up to CRLF.
#[inline(never)]
fn long_length(input: &[u8], at: usize, limits: &Limits, args: &mut Args) -> Length {
    let rest = input.get(at..).unwrap_or_default();
    let window = rest.get(..rest.len().min(limits.inline_bytes_max)).unwrap_or_default();
    let known = args.resume.scanned.saturating_sub(at).min(window.len());
    let Some(found) = window.iter().skip(known).position(|&byte| byte == b'\r') else {
        args.resume.scanned = at + window.len();
        return if rest.len() > limits.inline_bytes_max {
            Length::Endless
        } else {
            Length::Incomplete
        };
    };
    let end = known + found;
    match rest.get(end + 1) {
        None => Length::Incomplete,
        Some(b'\n') => match rest.get(..end).and_then(parse_integer) {
            Some(number) => Length::Number(number, at + end + 2),
            None => Length::Invalid,
        },
        Some(_) => Length::Invalid,
    }
}

/// Finds the `nth` argument of a complete command without decoding the others. Used for hints only: for other input it
/// returns `None` or arbitrary bytes.
pub fn argument(command: &[u8], nth: usize) -> Option<&[u8]> {
    fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
        let end = bytes.iter().take(16).position(|byte| *byte == b'\r')?;
        Some((bytes.get(1..end)?, bytes.get(end + 2..)?))
    }
    let (_, mut rest) = line(command)?;
    for at in 0.. {
        let (length, bytes) = line(rest)?;
        let length = usize::try_from(parse_integer(length)?).ok()?;
        let argument = bytes.get(..length)?;
        if at == nth {
            return Some(argument);
        }
        rest = bytes.get(length + 2..)?;
    }
    None
}
