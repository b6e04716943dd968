//! Remainders modulo Castagnoli's polynomial and tables of them, made at compile time.
//!
//! All numbers are reflected, as in the CRC32 instruction: bit 31 of a `u32` is the coefficient of x⁰.

/// x³² modulo the polynomial, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// x⁰.
const ONE: u32 = 1 << 31;

/// `r · x`.
const fn times_x(r: u32) -> u32 {
    (r >> 1) ^ (if r & 1 == 1 { POLYNOMIAL } else { 0 })
}

/// `r / x`. The polynomial has a constant term, so bit 31 shows whether it was added.
const fn over_x(r: u32) -> u32 {
    if r & ONE != 0 {
        ((r ^ POLYNOMIAL) << 1) | 1
    } else {
        r << 1
    }
}

/// `a · b`, computed bit by bit.
pub(super) const fn multiply(a: u32, b: u32) -> u32 {
    let (mut product, mut shifted) = (0, a);
    let mut bit = 0;
    while bit < 32 {
        if b & (ONE >> bit) != 0 {
            product ^= shifted;
        }
        shifted = times_x(shifted);
        bit += 1;
    }
    product
}

/// x³³: the entries of [`SHIFTS`] lack this factor.
pub(super) const X_33: u32 = {
    let (mut r, mut n) = (ONE, 0);
    while n < 33 {
        r = times_x(r);
        n += 1;
    }
    r
};

/// A power of x as a reflected 64-bit number, for carry-less products of 64 bits.
pub(super) const fn power_64(exponent: usize) -> u64 {
    let (mut r, mut n) = (ONE, 0);
    while n < exponent {
        r = times_x(r);
        n += 1;
    }
    (r as u64) << 32
}

/// `SHIFTS[level][n]` is x^(8 · n · 256^level − 33). A shift by any `u32` of bytes is a product of four entries; chunks
/// need two.
///
/// The exponent is 33 less for two reasons. A carry-less product of two reflected 32-bit numbers, read as a reflected
/// 64-bit number, is the product times x. And the CRC32 instruction reduces 64 bits times x³².
pub(super) static SHIFTS: [[u32; 256]; 4] = {
    let mut table = [[0; 256]; 4];
    let mut less_33 = ONE;
    let mut n = 0;
    while n < 33 {
        less_33 = over_x(less_33);
        n += 1;
    }
    // x^(8 · 256^level).
    let mut step = ONE >> 8;
    let mut level = 0;
    while level < 4 {
        let mut power = ONE;
        let mut n = 0;
        while n < 256 {
            table[level][n] = multiply(power, less_33);
            power = multiply(power, step);
            n += 1;
        }
        step = power;
        level += 1;
    }
    table
};

/// `SLICES[n][byte]`: the remainder of a byte and `n` zero bytes after it.
pub(super) static SLICES: [[u32; 256]; 8] = {
    let mut table = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut r = byte as u32;
        let mut n = 0;
        while n < 8 {
            let mut bit = 0;
            while bit < 8 {
                r = times_x(r);
                bit += 1;
            }
            table[n][byte] = r;
            n += 1;
        }
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dividing_undoes_multiplying() {
        let mut r = 0x1234_5678;
        for _ in 0..1000 {
            assert_eq!(over_x(times_x(r)), r);
            r = times_x(r).wrapping_mul(3) | 1;
        }
    }

    #[test]
    fn shifts_are_powers() {
        let mut power = ONE;
        for n in 0..600usize {
            let low = multiply(SHIFTS[0][n % 256], X_33);
            let high = multiply(SHIFTS[1][n / 256], X_33);
            assert_eq!(multiply(low, high), power, "{n}");
            for _ in 0..8 {
                power = times_x(power);
            }
        }
    }
}
