//! x86-64 with AVX-512 and VPCLMULQDQ: 256 bytes in each step, in ascending order, which suits the hardware prefetcher.
//!
//! A register of 128 bits stands for the polynomial of its sixteen bytes. It is added to the bytes `d` bits further on
//! by two carry-less products, with x^(d + 64) and x^d modulo Castagnoli's polynomial (Gopal et al., "Fast CRC
//! Computation for Generic Polynomials Using PCLMULQDQ Instruction", 2009). The remainder of the last sixteen bytes is
//! that of the whole.

use super::tables::power_64;
use core::arch::x86_64::*;
use core::sync::atomic::{AtomicU8, Ordering};
use std::is_x86_feature_detected;

/// Length in bytes from which this is faster than the lanes of `crc32`.
pub(super) const FOLDS_FROM: usize = 1024;

const STEP_BYTES: usize = 256;

/// Whether this machine has the instructions; detected once.
#[inline(always)]
pub(super) fn available() -> bool {
    static FOUND: AtomicU8 = AtomicU8::new(0);
    match FOUND.load(Ordering::Relaxed) {
        0 => {
            let found = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("vpclmulqdq");
            FOUND.store(1 + u8::from(found), Ordering::Relaxed);
            found
        }
        n => n == 2,
    }
}

/// The two factors that move a register by `bits` bits. The product of two reflected numbers is their product times x,
/// so the exponents are one less.
const fn factors(bits: usize) -> [u64; 2] {
    [power_64(bits + 64 - 1), power_64(bits - 1)]
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl,vpclmulqdq")]
fn wide(factors: [u64; 2]) -> __m512i {
    let [low, high] = factors.map(u64::cast_signed);
    _mm512_set_epi64(high, low, high, low, high, low, high, low)
}

/// Moves `register` on and XORs it with the bytes there.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,vpclmulqdq")]
fn fold(register: __m512i, factors: __m512i, there: __m512i) -> __m512i {
    let low = _mm512_clmulepi64_epi128::<0x00>(register, factors);
    let high = _mm512_clmulepi64_epi128::<0x11>(register, factors);
    _mm512_ternarylogic_epi64::<0x96>(low, high, there)
}

/// Returns sixteen bytes with the same remainder as `bytes` after a register of `start`, and the bytes at the end that
/// were not processed. `None` if there are too few bytes.
#[target_feature(enable = "avx512f,avx512vl,vpclmulqdq")]
pub(super) fn fold_all(start: u32, bytes: &[u8]) -> Option<([u64; 2], &[u8])> {
    let (steps, rest) = bytes.as_chunks::<STEP_BYTES>();
    let (first, steps) = steps.split_first()?;
    let load = |step: &[u8; STEP_BYTES]| {
        let at = step.as_ptr();
        // SAFETY: four times 64 bytes lie in a step of 256; the loads need no alignment.
        unsafe {
            [
                _mm512_loadu_si512(at.cast()),
                _mm512_loadu_si512(at.add(64).cast()),
                _mm512_loadu_si512(at.add(128).cast()),
                _mm512_loadu_si512(at.add(192).cast()),
            ]
        }
    };
    let [mut a, mut b, mut c, mut d] = load(first);
    a = _mm512_xor_si512(a, _mm512_zextsi128_si512(_mm_cvtsi32_si128(start.cast_signed())));
    let by_step = wide(const { factors(8 * STEP_BYTES) });
    for step in steps {
        let [next_a, next_b, next_c, next_d] = load(step);
        a = fold(a, by_step, next_a);
        b = fold(b, by_step, next_b);
        c = fold(c, by_step, next_c);
        d = fold(d, by_step, next_d);
    }
    let by_512 = wide(const { factors(512) });
    let all = fold(fold(fold(a, by_512, b), by_512, c), by_512, d);
    let by_128 = _mm512_castsi512_si128(wide(const { factors(128) }));
    let narrow = |register, there| {
        let low = _mm_clmulepi64_si128::<0x00>(register, by_128);
        let high = _mm_clmulepi64_si128::<0x11>(register, by_128);
        _mm_xor_si128(_mm_xor_si128(low, high), there)
    };
    let first = _mm512_castsi512_si128(all);
    let second = narrow(first, _mm512_extracti32x4_epi32::<1>(all));
    let third = narrow(second, _mm512_extracti32x4_epi32::<2>(all));
    let last = narrow(third, _mm512_extracti32x4_epi32::<3>(all));
    let halves = [_mm_cvtsi128_si64(last), _mm_extract_epi64::<1>(last)].map(i64::cast_unsigned);
    Some((halves, rest))
}
