//! Integers in the decimal form of Redis.

/// Parses a decimal integer as strictly as Redis: no spaces, no `+`, no leading zero, no `-0`.
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    // Nineteen digits always fit in 64 unsigned bits.
    let mut magnitude = 0u64;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        magnitude = magnitude * 10 + u64::from(digit - b'0');
    }
    if negative {
        0i64.checked_sub_unsigned(magnitude)
    } else {
        i64::try_from(magnitude).ok()
    }
}

/// Bytes of the longest decimal text of a 64-bit number: `-9223372036854775808`, `18446744073709551615`.
pub(super) const DECIMAL_BYTES_MAX: usize = 20;

/// Appends `prefix`, `number` and CRLF at once: the header of most replies.
#[inline]
pub(super) fn append_line(out: &mut Vec<u8>, prefix: u8, number: i64) {
    match u8::try_from(number) {
        Ok(n @ 0..=9) => return out.extend_from_slice(&[prefix, b'0' + n, b'\r', b'\n']),
        Ok(n @ 10..=99) => {
            let line = [prefix, b'0' + n / 10, b'0' + n % 10, b'\r', b'\n'];
            return out.extend_from_slice(&line);
        }
        _ => {}
    }
    let mut line = [0u8; 1 + DECIMAL_BYTES_MAX + 2];
    let mut left = number.unsigned_abs();
    let mut used = 2;
    let mut put = |byte: u8| {
        used += 1;
        if let Some(place) = line.len().checked_sub(used).and_then(|at| line.get_mut(at)) {
            *place = byte;
        }
    };
    loop {
        put(b'0' + (left % 10) as u8);
        left /= 10;
        if left == 0 {
            break;
        }
    }
    if number < 0 {
        put(b'-');
    }
    put(prefix);
    let [.., cr, lf] = &mut line;
    (*cr, *lf) = (b'\r', b'\n');
    out.extend_from_slice(line.split_at(line.len() - used).1);
}

/// Appends the decimal text of an integer.
pub(super) fn append_decimal(out: &mut Vec<u8>, number: i64) {
    let mut digits = [0u8; DECIMAL_BYTES_MAX];
    let mut left = number.unsigned_abs();
    let mut used = 0;
    for place in digits.iter_mut().rev() {
        *place = b'0' + (left % 10) as u8;
        used += 1;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    if number < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(digits.split_at(DECIMAL_BYTES_MAX - used).1);
}
