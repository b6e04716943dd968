//! The field GF(2⁸) modulo x⁸+x⁴+x³+x²+1 (0x11d, the polynomial of RAID-6, ISA-L and most storage codes), as tables
//! made at compile time. Products are needed in three forms: of two bytes ([`mul`]), of a byte with 16 low or high
//! nibbles (for byte shuffles), and as an 8×8 bit matrix (for GFNI).

/// x⁸+x⁴+x³+x²+1.
const POLYNOMIAL: u16 = 0x11d;

/// The product by shift and add. It is slow but simple; the tables are made from it.
const fn multiply(a: u8, b: u8) -> u8 {
    let mut product = 0u16;
    let mut shifted = a as u16;
    let mut bit = 0;
    while bit < 8 {
        if (b >> bit) & 1 == 1 {
            product ^= shifted;
        }
        shifted <<= 1;
        if shifted & 0x100 != 0 {
            shifted ^= POLYNOMIAL;
        }
        bit += 1;
    }
    product as u8
}

/// For each coefficient, its products with 0x00..=0x0f, followed by those with 0x00, 0x10 ..= 0xf0.
#[repr(align(32))]
pub(crate) struct Nibbles(pub(crate) [u8; 32]);

pub(crate) static NIBBLES: [Nibbles; 256] = {
    let mut table = [const { Nibbles([0; 32]) }; 256];
    let mut c = 0;
    while c < 256 {
        let mut n = 0;
        while n < 16 {
            table[c].0[n] = multiply(c as u8, n as u8);
            table[c].0[16 + n] = multiply(c as u8, (n as u8) << 4);
            n += 1;
        }
        c += 1;
    }
    table
};

/// For each coefficient, the multiplication by it as the bit matrix that `gf2p8affineqb` takes. Byte 7−i of the matrix
/// holds row i; its bit j says whether bit j of the factor contributes to bit i of the product.
pub(crate) static MATRICES: [u64; 256] = {
    let mut table = [0u64; 256];
    let mut c = 0;
    while c < 256 {
        let mut i = 0;
        while i < 8 {
            let mut row = 0u64;
            let mut j = 0;
            while j < 8 {
                if (multiply(c as u8, 1 << j) >> i) & 1 == 1 {
                    row |= 1 << j;
                }
                j += 1;
            }
            table[c] |= row << (8 * (7 - i));
            i += 1;
        }
        c += 1;
    }
    table
};

static INVERSES: [u8; 256] = {
    let mut table = [0u8; 256];
    // 2 generates the group, so stepping through the powers of 2 and of 1/2 together gives every pair of inverses once.
    let half = 0x8e;
    let (mut power, mut inverse) = (1u8, 1u8);
    let mut n = 0;
    while n < 255 {
        table[power as usize] = inverse;
        power = multiply(power, 2);
        inverse = multiply(inverse, half);
        n += 1;
    }
    table
};

/// The product of two bytes.
#[inline(always)]
pub(crate) fn mul(a: u8, b: u8) -> u8 {
    let t = &NIBBLES[usize::from(a)].0;
    t[usize::from(b & 15)] ^ t[16 + usize::from(b >> 4)]
}

/// The inverse of `a`; 0 for 0, which callers must not pass.
#[inline(always)]
pub(crate) fn inverse(a: u8) -> u8 {
    debug_assert_ne!(a, 0, "0 has no inverse");
    INVERSES[usize::from(a)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_agree_with_shift_and_add() {
        for a in 0..=255u8 {
            for b in 0..=255u8 {
                let product = multiply(a, b);
                assert_eq!(mul(a, b), product, "{a} * {b}");
                let mut by_matrix = 0;
                for i in 0..8 {
                    let row = (MATRICES[usize::from(a)] >> (8 * (7 - i))) as u8;
                    by_matrix |= (((row & b).count_ones() & 1) as u8) << i;
                }
                assert_eq!(by_matrix, product, "{a} * {b} by matrix");
            }
        }
    }

    #[test]
    fn inverses_multiply_to_one() {
        for a in 1..=255u8 {
            assert_eq!(mul(a, inverse(a)), 1, "{a}");
        }
    }
}
