//! Replies, appended to a connection's buffer. Types that RESP2 lacks are written as Redis writes them there.

use super::Proto;
use super::number::{append_decimal, append_line};

/// `+OK`.
pub const OK: &[u8] = b"+OK\r\n";
/// `+PONG`.
pub const PONG: &[u8] = b"+PONG\r\n";
/// `:0`.
pub const ZERO: &[u8] = b":0\r\n";
/// `:1`.
pub const ONE: &[u8] = b":1\r\n";
/// An empty bulk string.
pub const EMPTY_BULK: &[u8] = b"$0\r\n\r\n";
/// An empty array.
pub const EMPTY_ARRAY: &[u8] = b"*0\r\n";

/// `+OK`.
#[inline]
pub fn ok(out: &mut Vec<u8>) {
    out.extend_from_slice(OK);
}

/// A short text of this server. It must contain no line end; one would be written as a space.
pub fn simple(out: &mut Vec<u8>, text: &str) {
    out.push(b'+');
    line(out, text.as_bytes());
}

/// An error: its prefix, a space, and text. Line ends, which may come from the client's own words, become spaces.
pub fn error(out: &mut Vec<u8>, text: &str) {
    out.push(b'-');
    line(out, text.as_bytes());
}

fn line(out: &mut Vec<u8>, text: &[u8]) {
    out.extend(
        text.iter()
            .map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }),
    );
    out.extend_from_slice(b"\r\n");
}

/// An integer.
#[inline]
pub fn integer(out: &mut Vec<u8>, value: i64) {
    append_line(out, b':', value);
}

/// A string of any bytes.
#[inline]
pub fn bulk(out: &mut Vec<u8>, value: &[u8]) {
    out.reserve(value.len() + 16);
    bulk_header(out, value.len());
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// The header of a bulk string. The caller appends exactly `bytes` bytes and then [`bulk_end`]. Used for values in
/// several pieces.
#[inline]
pub fn bulk_header(out: &mut Vec<u8>, bytes: usize) {
    append_line(out, b'$', bytes as i64);
}

/// The end of a bulk string.
#[inline]
pub fn bulk_end(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
}

/// An integer as a bulk string, as in replies to INCRBYFLOAT and CONFIG GET.
pub fn bulk_integer(out: &mut Vec<u8>, value: i64) {
    let digits = value.unsigned_abs().max(1).ilog10() as usize + 1;
    bulk_header(out, digits + usize::from(value < 0));
    append_decimal(out, value);
    bulk_end(out);
}

/// Null: no value.
#[inline]
pub fn null(out: &mut Vec<u8>, proto: Proto) {
    out.extend_from_slice(match proto {
        Proto::Resp2 => b"$-1\r\n",
        Proto::Resp3 => b"_\r\n",
    });
}

/// Null in place of an array.
pub fn null_array(out: &mut Vec<u8>, proto: Proto) {
    out.extend_from_slice(match proto {
        Proto::Resp2 => b"*-1\r\n",
        Proto::Resp3 => b"_\r\n",
    });
}

/// The header of an array. The caller appends `count` values.
#[inline]
pub fn array_header(out: &mut Vec<u8>, count: usize) {
    append_line(out, b'*', count as i64);
}

/// The header of a map. The caller appends `pairs` keys, each followed by its value. RESP2: an array of twice that
/// length.
pub fn map_header(out: &mut Vec<u8>, proto: Proto, pairs: usize) {
    match proto {
        Proto::Resp2 => append_line(out, b'*', pairs as i64 * 2),
        Proto::Resp3 => append_line(out, b'%', pairs as i64),
    }
}

/// The header of a set. The caller appends `count` values. RESP2: an array.
pub fn set_header(out: &mut Vec<u8>, proto: Proto, count: usize) {
    let kind = match proto {
        Proto::Resp2 => b'*',
        Proto::Resp3 => b'~',
    };
    append_line(out, kind, count as i64);
}

/// The header of a push message. The caller appends `count` values. RESP2: an array.
pub fn push_header(out: &mut Vec<u8>, proto: Proto, count: usize) {
    let kind = match proto {
        Proto::Resp2 => b'*',
        Proto::Resp3 => b'>',
    };
    append_line(out, kind, count as i64);
}

/// A floating-point number, in the fewest digits that give it back exactly. RESP2: a bulk string.
pub fn double(out: &mut Vec<u8>, proto: Proto, value: f64) {
    let text = if value.is_nan() {
        "nan".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "inf" } else { "-inf" }.to_owned()
    } else if value != 0.0 && !(1e-5..1e17).contains(&value.abs()) {
        format!("{value:e}")
    } else {
        value.to_string()
    };
    match proto {
        Proto::Resp2 => bulk(out, text.as_bytes()),
        Proto::Resp3 => {
            out.push(b',');
            line(out, text.as_bytes());
        }
    }
}

/// True or false. RESP2: 1 or 0.
pub fn boolean(out: &mut Vec<u8>, proto: Proto, value: bool) {
    out.extend_from_slice(match (proto, value) {
        (Proto::Resp2, true) => ONE,
        (Proto::Resp2, false) => ZERO,
        (Proto::Resp3, true) => b"#t\r\n",
        (Proto::Resp3, false) => b"#f\r\n",
    });
}

/// Text for people (INFO, CLIENT LIST, CLUSTER NODES). `format` is `txt` or `mkd`. RESP2: a bulk string.
pub fn verbatim(out: &mut Vec<u8>, proto: Proto, format: &[u8; 3], text: &[u8]) {
    match proto {
        Proto::Resp2 => bulk(out, text),
        Proto::Resp3 => {
            append_line(out, b'=', text.len() as i64 + 4);
            out.extend_from_slice(format);
            out.push(b':');
            out.extend_from_slice(text);
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// A whole request, for the project's own clients: an array of bulk strings.
pub fn request(out: &mut Vec<u8>, args: &[impl AsRef<[u8]>]) {
    array_header(out, args.len());
    for arg in args {
        bulk(out, arg.as_ref());
    }
}
