//! What files of Redis and its DUMP have in common: strings, their compression, and the footer (docs/formats/dump.md).

use crate::resp::parse_integer;
use crc::{CRC_64_REDIS, Crc, Table};
use paritas_base::Reader;

/// CRC-64 with Redis' polynomial.
pub static SUM: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// The type of a string.
pub const STRING: u8 = 0;
/// A library of functions: a string, its source.
pub const LIBRARY: u8 = 0xF5;
/// The same in the form of the first previews of Redis 7.
pub const OLD_LIBRARY: u8 = 0xF6;

/// The version that a payload names: that of Redis 7.0. Redis refuses payloads of versions after its own.
const VERSION: u16 = 10;
/// The newest version whose strings and libraries are known to be the same: that of Valkey 9.
const VERSION_MAX: u16 = 80;
/// Bytes of a payload's end: version and sum.
pub const FOOTER_BYTES: usize = 10;

/// A payload of DUMP or of FUNCTION DUMP, with its footer: version and sum.
pub fn seal(mut payload: Vec<u8>) -> Vec<u8> {
    payload.extend_from_slice(&VERSION.to_le_bytes());
    let sum = SUM.checksum(&payload);
    payload.extend_from_slice(&sum.to_le_bytes());
    payload
}

/// A payload without its footer. `None`: its version is not known, or its sum is wrong.
pub fn open(sealed: &[u8]) -> Option<&[u8]> {
    let body = sealed.get(..sealed.len().checked_sub(FOOTER_BYTES)?)?;
    let mut footer = Reader(sealed.get(body.len()..)?);
    let (version, sum) = (footer.u16()?, footer.u64()?);
    let summed = sealed.get(..body.len() + 2)?;
    (version <= VERSION_MAX && SUM.checksum(summed) == sum).then_some(body)
}

/// Appends a library of functions.
pub fn push_library(to: &mut Vec<u8>, source: &[u8]) {
    to.push(LIBRARY);
    push_string(to, source);
}

/// Appends a string.
pub fn push_string(to: &mut Vec<u8>, bytes: &[u8]) {
    push_length(to, bytes.len());
    to.extend_from_slice(bytes);
}

/// Appends the length of a string, which its bytes must follow.
pub fn push_length(to: &mut Vec<u8>, length: usize) {
    match length {
        length @ 0..64 => to.push(length as u8),
        length @ 64..16_384 => to.extend_from_slice(&[0x40 | (length >> 8) as u8, length as u8]),
        length => match u32::try_from(length) {
            Ok(length) => {
                to.push(0x80);
                to.extend_from_slice(&length.to_be_bytes());
            }
            Err(_) => {
                to.push(0x81);
                to.extend_from_slice(&(length as u64).to_be_bytes());
            }
        },
    }
}

/// Appends a value as Redis does: as an integer, if it is one of 32 bits. It is not compressed.
pub fn push_value(to: &mut Vec<u8>, bytes: &[u8]) {
    let number = parse_integer(bytes).and_then(|number| i32::try_from(number).ok());
    let Some(number) = number else {
        return push_string(to, bytes);
    };
    if let Ok(number) = i8::try_from(number) {
        to.extend_from_slice(&[0xC0, number as u8]);
    } else if let Ok(number) = i16::try_from(number) {
        to.push(0xC1);
        to.extend_from_slice(&number.to_le_bytes());
    } else {
        to.push(0xC2);
        to.extend_from_slice(&number.to_le_bytes());
    }
}

/// The length that the string at the front says it has. `None`: it does not say so, or is an integer.
pub fn length_of_string(mut from: Reader<'_>) -> Option<usize> {
    match from.u8()? {
        0xC3 => {
            take_length(&mut from)?;
            take_length(&mut from)
        }
        first => length_after(first, &mut from),
    }
}

/// Whether this is the type of a value.
pub const fn is_known(kind: u8) -> bool {
    matches!(kind, 0..=7 | 9..=25)
}

/// What a value of this type is.
pub fn name_of(kind: u8) -> String {
    match kind {
        0 => "a string".into(),
        6 | 7 => "of a module".into(),
        1 | 10 | 14 | 18 => "a list".into(),
        2 | 11 | 20 => "a set".into(),
        3 | 5 | 12 | 17 => "a sorted set".into(),
        4 | 9 | 13 | 16 | 22..=25 => "a hash".into(),
        15 | 19 | 21 => "a stream".into(),
        _ => format!("of type {kind}"),
    }
}

/// Takes a string of at most `bytes_max` bytes from the front: bytes, an integer, or compressed. `None`: there is no
/// such string.
pub fn take_string(from: &mut Reader<'_>, bytes_max: usize) -> Option<Vec<u8>> {
    let first = from.u8()?;
    let length = match first {
        0xC0 => return Some(i8::from_le_bytes(from.array()?).to_string().into_bytes()),
        0xC1 => return Some(i16::from_le_bytes(from.array()?).to_string().into_bytes()),
        0xC2 => return Some(i32::from_le_bytes(from.array()?).to_string().into_bytes()),
        0xC3 => {
            let (packed, length) = (take_length(from)?, take_length(from)?);
            if length > bytes_max {
                return None;
            }
            return unpack(from.bytes(packed)?, length);
        }
        _ => length_after(first, from)?,
    };
    (length <= bytes_max).then(|| from.bytes(length).map(<[u8]>::to_vec))?
}

fn take_length(from: &mut Reader<'_>) -> Option<usize> {
    let first = from.u8()?;
    length_after(first, from)
}

fn length_after(first: u8, from: &mut Reader<'_>) -> Option<usize> {
    let low = usize::from(first & 0x3F);
    match first {
        0..0x40 => Some(low),
        0x40..0x80 => Some(low << 8 | usize::from(from.u8()?)),
        0x80 => usize::try_from(u32::from_be_bytes(from.array()?)).ok(),
        0x81 => usize::try_from(u64::from_be_bytes(from.array()?)).ok(),
        _ => None,
    }
}

/// Bytes of memory that are taken before they are filled.
const AT_ONCE_BYTES: usize = 64 << 10;

/// Decompresses LZF, which Redis uses for long strings: literal bytes, and copies of earlier output.
pub fn unpack(input: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(length.min(AT_ONCE_BYTES));
    let mut rest = input.iter().copied();
    while let Some(control) = rest.next() {
        if control < 32 {
            let run = usize::from(control) + 1;
            out.extend(rest.by_ref().take(run));
        } else {
            let mut copied = usize::from(control >> 5);
            if copied == 7 {
                copied += usize::from(rest.next()?);
            }
            let back = (usize::from(control & 31) << 8 | usize::from(rest.next()?)) + 1;
            let from = out.len().checked_sub(back)?;
            if out.len() + copied + 2 > length {
                return None;
            }
            // The copy may overlap with its own output.
            for at in from..from + copied + 2 {
                out.push(*out.get(at)?);
            }
        }
        if out.len() > length {
            return None;
        }
    }
    (out.len() == length).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `FUNCTION DUMP` of redis-server 7.0.15, with one library.
    const DUMPED: &[u8] =
        b"\xf5@B#!lua name=a\nredis.register_function(\"f\", function() return 1 end)\n\0u?R\xbb6h\xcd\xd0";
    const SOURCE: &[u8] = b"#!lua name=a\nredis.register_function(\"f\", function() return 1 end)";

    #[test]
    fn a_payload_of_redis_is_read_and_written_byte_for_byte() {
        let mut payload = Vec::new();
        push_library(&mut payload, SOURCE);
        assert_eq!(seal(payload), DUMPED);
        let mut body = Reader(open(DUMPED).unwrap());
        assert_eq!(body.u8(), Some(LIBRARY));
        assert_eq!(take_string(&mut body, 1 << 20).as_deref(), Some(SOURCE));
        assert_eq!(body.rest(), b"");
        // `FUNCTION DUMP` without libraries, and DUMP of a key with the value `v`.
        assert_eq!(open(b"\n\0]\x9b\\@\x0f\x7f\xa2\xda"), Some(&b""[..]));
        assert_eq!(open(b"\0\x01v\n\0\x91\x08\xce\xb2\x198\x8a\xce"), Some(&b"\0\x01v"[..]));
    }

    #[test]
    fn a_payload_that_was_changed_or_is_of_a_later_version_is_refused() {
        for at in 0..DUMPED.len() {
            let mut changed = DUMPED.to_vec();
            changed[at] ^= 1;
            assert_eq!(open(&changed), None, "byte {at}");
            assert_eq!(open(&DUMPED[..at]), None, "{at} bytes");
        }
        let mut later = vec![STRING, 0, 81, 0];
        later.extend_from_slice(&SUM.checksum(&later).to_le_bytes());
        assert_eq!(open(&later), None);
    }

    #[test]
    fn strings_of_all_forms_are_read() {
        for length in [0, 1, 63, 64, 16_383, 16_384, 70_000] {
            let bytes = vec![7; length];
            let mut encoded = Vec::new();
            push_string(&mut encoded, &bytes);
            assert_eq!(take_string(&mut Reader(&encoded), length), Some(bytes), "{length}");
            assert_eq!(
                take_string(&mut Reader(&encoded[..encoded.len() - 1]), length.max(1)),
                None
            );
            if length > 0 {
                assert_eq!(take_string(&mut Reader(&encoded), length - 1), None, "{length}");
            }
        }
        let read = |bytes: &[u8]| take_string(&mut Reader(bytes), 100);
        assert_eq!(read(&[0xC0, 0xFF]).as_deref(), Some(&b"-1"[..]));
        assert_eq!(read(&[0xC1, 0, 1]).as_deref(), Some(&b"256"[..]));
        assert_eq!(read(&[0xC2, 0, 0, 1, 0]).as_deref(), Some(&b"65536"[..]));
        // One byte, and a copy of it that overlaps: 20 times `a`.
        let packed = [0xC3, 5, 20, 0, b'a', 0xE0, 10, 0];
        assert_eq!(read(&packed), Some(vec![b'a'; 20]));
        for text in [
            "0",
            "-1",
            "127",
            "128",
            "-129",
            "32767",
            "-32769",
            "2147483647",
            "2147483648",
            "01",
            "x",
            "",
        ] {
            let mut encoded = Vec::new();
            push_value(&mut encoded, text.as_bytes());
            assert_eq!(read(&encoded).as_deref(), Some(text.as_bytes()), "{text}");
            let length = length_of_string(Reader(&encoded));
            assert!(
                length == Some(text.len()) || length.is_none() && encoded[0] >= 0xC0,
                "{text}"
            );
        }
        assert_eq!(length_of_string(Reader(&packed)), Some(20));
        for wrong in [
            &[0xC3, 5, 19, 0, b'a', 0xE0, 10, 0][..],
            &[0xC4],
            &[0x82],
            &[],
            &[0xC3, 5, 101],
        ] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }
}
