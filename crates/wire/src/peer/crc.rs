//! Computes a frame's CRC from the sum of the chunk at its end, and the sum from the CRC. So the sender and the
//! receiver each read a chunk once instead of twice.
//!
//! Both are remainders modulo Castagnoli's polynomial (P9.1). The sum is the plain remainder; the CRC starts
//! with all ones and inverts its result. So the register after prefix and chunk is the register after the prefix,
//! advanced by as many zero bytes as the chunk has, XOR the chunk's sum. All numbers are reflected: bit 31 is the
//! coefficient of x⁰.

/// x³² modulo the polynomial.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// `POWERS[n]` is x^(8·2ⁿ): multiplying by it advances a register by 2ⁿ bytes.
const POWERS: [u32; 32] = {
    let mut powers = [0; 32];
    // x⁸.
    let mut power = 1 << 23;
    let mut n = 0;
    while n < powers.len() {
        powers[n] = power;
        power = multiply(power, power);
        n += 1;
    }
    powers
};

/// `a · b`.
const fn multiply(a: u32, b: u32) -> u32 {
    let (mut product, mut shifted, mut bit) = (0, a, 0);
    while bit < 32 {
        // No branch: the bits of a remainder are unpredictable.
        product ^= shifted & (b << bit >> 31).wrapping_neg();
        shifted = (shifted >> 1) ^ (POLYNOMIAL & (shifted & 1).wrapping_neg());
        bit += 1;
    }
    product
}

/// The register after `bytes` more zero bytes.
fn moved(mut register: u32, mut bytes: u32) -> u32 {
    for power in POWERS {
        if bytes & 1 == 1 {
            register = multiply(register, power);
        }
        bytes >>= 1;
    }
    register
}

/// The CRC of a prefix and a chunk after it, from the prefix's CRC and the chunk's sum. The chunk has `bytes` bytes.
pub(super) fn with_chunk(prefix: u32, sum: u32, bytes: usize) -> u32 {
    !(moved(!prefix, bytes as u32) ^ sum)
}

/// The sum of the last `bytes` bytes, from the CRC of the whole and the CRC of the prefix before them.
pub(super) fn sum_of_chunk(whole: u32, prefix: u32, bytes: usize) -> u32 {
    moved(!prefix, bytes as u32) ^ !whole
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crc32c::crc32c;

    /// The plain remainder: the contribution of the initial ones is removed.
    pub(crate) fn sum(chunk: &[u8]) -> u32 {
        !crc32c(chunk) ^ !crc32c(&vec![0; chunk.len()])
    }

    #[test]
    fn a_crc_and_a_sum_tell_of_each_other_at_any_length() {
        for length in (0..70).chain([255, 256, 4_095, 4_096, 16_384, 65_536, 65_537]) {
            for before in [0, 1, 16, 53] {
                let bytes: Vec<u8> = (0..before + length).map(|n| (n * n / 7 + 3 * n) as u8).collect();
                let (prefix, chunk) = bytes.split_at(before);
                let (whole, prefix) = (crc32c(&bytes), crc32c(prefix));
                assert_eq!(with_chunk(prefix, sum(chunk), length), whole, "{before} + {length}");
                assert_eq!(sum_of_chunk(whole, prefix, length), sum(chunk), "{before} + {length}");
            }
        }
    }
}
