//! Numbers of one to ten bytes, seven bits each, the lowest first; all bytes but the last have their top bit set. Small
//! numbers are short. A number has one encoding: readers refuse a last byte of zero after others.

/// Most bytes of a number.
pub const BYTES_MAX: usize = 10;

/// Appends a number.
#[inline]
pub fn push(to: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        to.push(n as u8 | 0x80);
        n >>= 7;
    }
    to.push(n as u8);
}

/// The number of bytes that [`push`] appends.
#[inline]
pub fn bytes(n: u64) -> usize {
    (70 - (n | 1).leading_zeros() as usize) / 7
}

/// Reads a number: it, and how many bytes it has. `None`: it is cut, larger than 64 bits, or longer than it must be.
#[inline]
pub fn read(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    if first < 0x80 {
        return Some((u64::from(first), 1));
    }
    let mut n = u64::from(first & 0x7f);
    for (at, byte) in bytes.iter().enumerate().take(BYTES_MAX).skip(1) {
        let seven = u64::from(byte & 0x7f);
        let moved = seven << (7 * at);
        if moved >> (7 * at) != seven {
            return None;
        }
        n |= moved;
        if byte & 0x80 == 0 {
            return (*byte != 0).then_some((n, at + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_comes_back_and_has_one_encoding() {
        let powers = (0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1]);
        for n in powers.chain([u64::MAX - 1, u64::MAX]) {
            let mut encoded = Vec::new();
            push(&mut encoded, n);
            assert_eq!(encoded.len(), bytes(n), "{n}");
            assert_eq!(read(&encoded), Some((n, encoded.len())), "{n}");
            for cut in 0..encoded.len() {
                assert_eq!(read(&encoded[..cut]), None, "{n} cut at {cut}");
            }
            // The same number with a byte more.
            let last = encoded.len() - 1;
            encoded[last] |= 0x80;
            encoded.push(0);
            assert_eq!(read(&encoded), None, "{n} with a byte more");
        }
        // Larger than 64 bits, or without end.
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]), None);
        assert_eq!(read(&[0x80; 20]), None);
    }
}
