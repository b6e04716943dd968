//! Replies as read by the project's own clients: simulator, benchmarks, tests and command line. RESP2 and RESP3.

use std::fmt;

use super::number::parse_integer;

/// Deepest nesting that is read. COMMAND INFO needs 7.
const DEPTH_MAX: usize = 32;
/// Most bytes in the line of a simple string or a number.
const LINE_BYTES_MAX: usize = 64 << 10;

/// One reply, borrowed from the input.
#[derive(Clone, PartialEq, Debug)]
pub enum Reply<'a> {
    /// `+OK`.
    Simple(&'a [u8]),
    /// `-ERR …`, or RESP3's error with any bytes.
    Error(&'a [u8]),
    /// `:1`.
    Integer(i64),
    /// A string of any bytes.
    Bulk(&'a [u8]),
    /// No value, in any of the three encodings.
    Null,
    /// Values in order.
    Array(Vec<Self>),
    /// Pairs of key and value, in order.
    Map(Vec<(Self, Self)>),
    /// Values without an order.
    Set(Vec<Self>),
    /// A push message.
    Push(Vec<Self>),
    /// A floating-point number.
    Double(f64),
    /// True or false.
    Boolean(bool),
    /// An integer of any size, as decimal digits.
    BigNumber(&'a [u8]),
    /// Text for people, without its format prefix.
    Verbatim(&'a [u8]),
}

impl<'a> Reply<'a> {
    /// The bytes of a reply that is one string; else `None`.
    pub fn bytes(&self) -> Option<&'a [u8]> {
        match self {
            Self::Simple(b) | Self::Bulk(b) | Self::Verbatim(b) | Self::BigNumber(b) => Some(b),
            _ => None,
        }
    }

    /// A copy that owns its bytes.
    pub fn to_value(&self) -> Value {
        let all = |items: &[Self]| items.iter().map(Self::to_value).collect();
        match self {
            Self::Simple(b) => Value::Simple(text(b)),
            Self::Error(b) => Value::Error(text(b)),
            Self::Integer(n) => Value::Integer(*n),
            Self::Bulk(b) | Self::Verbatim(b) | Self::BigNumber(b) => Value::Bulk(b.to_vec()),
            Self::Null => Value::Null,
            Self::Array(items) | Self::Set(items) => Value::Array(all(items)),
            Self::Push(items) => Value::Push(all(items)),
            Self::Map(pairs) => Value::Map(pairs.iter().map(|(k, v)| (k.to_value(), v.to_value())).collect()),
            Self::Double(d) => Value::Double(*d),
            Self::Boolean(b) => Value::Boolean(*b),
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A reply that owns its bytes. Kinds that callers do not distinguish are merged.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// `+OK`.
    Simple(String),
    /// `-ERR …`.
    Error(String),
    /// `:1`.
    Integer(i64),
    /// A string of any bytes.
    Bulk(Vec<u8>),
    /// No value.
    Null,
    /// Values of an array or a set.
    Array(Vec<Self>),
    /// Pairs of key and value, in order.
    Map(Vec<(Self, Self)>),
    /// A push message.
    Push(Vec<Self>),
    /// A floating-point number.
    Double(f64),
    /// True or false.
    Boolean(bool),
}

/// The input is not a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyError {
    /// Offset in the input where the error was found.
    pub position: usize,
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a RESP reply at byte {}", self.position)
    }
}

impl std::error::Error for ReplyError {}

/// Finds the end of each reply of a connection. It remembers how far it has read, so that a reply in many pieces is
/// scanned once.
#[derive(Clone, Debug)]
pub struct ReplyDecoder {
    position: usize,
    /// Number of values that must still end before the reply ends.
    pending: u64,
}

impl Default for ReplyDecoder {
    fn default() -> Self {
        Self::new()
    }
}

impl ReplyDecoder {
    /// A decoder at the start of a reply.
    pub fn new() -> Self {
        Self {
            position: 0,
            pending: 1,
        }
    }

    /// The first reply of `input` and its length in bytes, or `None` if it is not yet complete. In that case call again
    /// with the same bytes and more. After a reply, remove that many bytes before the next call.
    pub fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Option<(Reply<'a>, usize)>, ReplyError> {
        while self.pending > 0 {
            let Some((head, next)) = head(input, self.position)? else {
                return Ok(None);
            };
            // Saturating: a count that no input could fill just never completes.
            self.pending = match head {
                Head::Scalar(_) => self.pending - 1,
                Head::Items(_, n) => (self.pending - 1).saturating_add(n as u64),
                Head::Pairs(n) => (self.pending - 1).saturating_add((n as u64).saturating_mul(2)),
                Head::Attribute(n) => self.pending.saturating_add((n as u64).saturating_mul(2)),
            };
            self.position = next;
        }
        *self = Self::new();
        let (reply, consumed) = build(input, 0, DEPTH_MAX)?;
        Ok(Some((reply, consumed)))
    }
}

/// The result of parsing one line, with the bytes that it announces.
enum Head<'a> {
    Scalar(Reply<'a>),
    Items(u8, usize),
    Pairs(usize),
    Attribute(usize),
}

/// Parses the line at `at`. Returns its content and the offset after it.
fn head(input: &[u8], at: usize) -> Result<Option<(Head<'_>, usize)>, ReplyError> {
    let wrong = ReplyError { position: at };
    let Some((kind, rest)) = input.get(at..).and_then(<[u8]>::split_first) else {
        return Ok(None);
    };
    let window = rest.get(..rest.len().min(LINE_BYTES_MAX)).unwrap_or_default();
    let Some(end) = window.iter().position(|&byte| byte == b'\r') else {
        return if rest.len() > LINE_BYTES_MAX {
            Err(wrong)
        } else {
            Ok(None)
        };
    };
    match rest.get(end + 1) {
        None => return Ok(None),
        Some(b'\n') => {}
        Some(_) => return Err(wrong),
    }
    let line = rest.get(..end).unwrap_or_default();
    let next = at + 1 + end + 2;
    let count = || parse_integer(line).and_then(|n| usize::try_from(n).ok()).ok_or(wrong);
    let head = match kind {
        b'+' => Head::Scalar(Reply::Simple(line)),
        b'-' => Head::Scalar(Reply::Error(line)),
        b':' => Head::Scalar(Reply::Integer(parse_integer(line).ok_or(wrong)?)),
        b'_' => Head::Scalar(Reply::Null),
        b'$' | b'*' if line == b"-1" => Head::Scalar(Reply::Null),
        b'#' if line == b"t" => Head::Scalar(Reply::Boolean(true)),
        b'#' if line == b"f" => Head::Scalar(Reply::Boolean(false)),
        b',' => {
            let number = std::str::from_utf8(line).ok().and_then(|text| text.parse().ok());
            Head::Scalar(Reply::Double(number.ok_or(wrong)?))
        }
        b'(' => Head::Scalar(Reply::BigNumber(line)),
        b'$' | b'!' | b'=' => {
            let end = next.checked_add(count()?).ok_or(wrong)?;
            let after = end.checked_add(2).ok_or(wrong)?;
            let Some(tail) = input.get(end..after) else {
                return Ok(None);
            };
            if tail != b"\r\n" {
                return Err(wrong);
            }
            let bytes = input.get(next..end).unwrap_or_default();
            let scalar = match kind {
                b'$' => Reply::Bulk(bytes),
                b'!' => Reply::Error(bytes),
                _ => Reply::Verbatim(bytes.get(4..).ok_or(wrong)?),
            };
            return Ok(Some((Head::Scalar(scalar), after)));
        }
        b'*' | b'~' | b'>' => Head::Items(*kind, count()?),
        b'%' => Head::Pairs(count()?),
        b'|' => Head::Attribute(count()?),
        _ => return Err(wrong),
    };
    Ok(Some((head, next)))
}

/// Builds a reply that is known to be complete.
fn build(input: &[u8], at: usize, depth: usize) -> Result<(Reply<'_>, usize), ReplyError> {
    let wrong = ReplyError { position: at };
    let Some(depth) = depth.checked_sub(1) else {
        return Err(wrong);
    };
    let (head, mut position) = head(input, at)?.ok_or(wrong)?;
    let items = |count: usize, position: &mut usize| {
        // Each value takes at least three bytes, so a large count cannot make this allocate more than the input
        // justifies.
        let mut items = Vec::with_capacity(count.min((input.len() - at) / 3));
        for _ in 0..count {
            let (item, next) = build(input, *position, depth)?;
            *position = next;
            items.push(item);
        }
        Ok(items)
    };
    let reply = match head {
        Head::Scalar(reply) => reply,
        Head::Items(b'~', count) => Reply::Set(items(count, &mut position)?),
        Head::Items(b'>', count) => Reply::Push(items(count, &mut position)?),
        Head::Items(_, count) => Reply::Array(items(count, &mut position)?),
        Head::Pairs(count) => {
            let mut flat = items(count * 2, &mut position)?.into_iter();
            let mut pairs = Vec::with_capacity(count);
            while let (Some(key), Some(value)) = (flat.next(), flat.next()) {
                pairs.push((key, value));
            }
            Reply::Map(pairs)
        }
        Head::Attribute(count) => {
            items(count * 2, &mut position)?;
            return build(input, position, depth);
        }
    };
    Ok((reply, position))
}
