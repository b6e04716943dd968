//! x86-64 with SSE4.2 (`crc32`) and PCLMULQDQ.

use super::avx512;
use super::tables::SHIFTS;
use core::arch::x86_64::*;
use core::sync::atomic::{AtomicU8, Ordering};
use std::is_x86_feature_detected;

/// Length in bytes from which three lanes are faster than one. `crc32` takes three cycles, but one can start in each
/// cycle.
const LANES_FROM: usize = 72;

/// Whether this machine has both instructions; detected once.
#[inline(always)]
pub(super) fn available() -> bool {
    static FOUND: AtomicU8 = AtomicU8::new(0);
    match FOUND.load(Ordering::Relaxed) {
        0 => {
            let found = is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("pclmulqdq");
            FOUND.store(1 + u8::from(found), Ordering::Relaxed);
            found
        }
        n => n == 2,
    }
}

/// The remainder of `bytes` followed by `after` zero bytes.
#[target_feature(enable = "sse4.2,pclmulqdq")]
pub(super) fn of_extent(after: u32, bytes: &[u8]) -> u32 {
    // The factor is looked up first: it does not depend on the bytes, so it is ready when the remainder is.
    if after == 0 {
        return remainder(0, bytes);
    }
    let factor = factor(after);
    multiply(remainder(0, bytes), factor)
}

/// The remainder of `bytes` after a register of `start`.
#[target_feature(enable = "sse4.2,pclmulqdq")]
pub(super) fn remainder(start: u32, bytes: &[u8]) -> u32 {
    if bytes.len() >= avx512::FOLDS_FROM && avx512::available() {
        // SAFETY: the features were found.
        if let Some(([low, high], rest)) = unsafe { avx512::fold_all(start, bytes) } {
            let r = _mm_crc32_u64(_mm_crc32_u64(0, low), high);
            return in_lanes(r as u32, rest);
        }
    }
    in_lanes(start, bytes)
}

#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn in_lanes(start: u32, bytes: &[u8]) -> u32 {
    let mut r = u64::from(start);
    let mut rest = bytes;
    if bytes.len() >= LANES_FROM {
        let lane = bytes.len() / 24 * 8;
        let (a, tail) = bytes.split_at(lane);
        let (b, tail) = tail.split_at(lane);
        let (c, tail) = tail.split_at(lane);
        let (mut r_b, mut r_c) = (0, 0);
        let eights = |lane| <[u8]>::as_chunks::<8>(lane).0.iter();
        for ((a, b), c) in eights(a).zip(eights(b)).zip(eights(c)) {
            r = _mm_crc32_u64(r, u64::from_le_bytes(*a));
            r_b = _mm_crc32_u64(r_b, u64::from_le_bytes(*b));
            r_c = _mm_crc32_u64(r_c, u64::from_le_bytes(*c));
        }
        // Lanes are much shorter than 4 GiB: no frame and no chunk has that size.
        let one = factor(lane as u32);
        let both = multiply(r as u32, one) ^ r_b as u32;
        r = u64::from(multiply(both, one)) ^ r_c;
        rest = tail;
    }
    let (eights, rest) = rest.as_chunks::<8>();
    for eight in eights {
        r = _mm_crc32_u64(r, u64::from_le_bytes(*eight));
    }
    let mut r = r as u32;
    let mut rest = rest;
    if let Some((four, after)) = rest.split_first_chunk::<4>() {
        r = _mm_crc32_u32(r, u32::from_le_bytes(*four));
        rest = after;
    }
    if let Some((two, after)) = rest.split_first_chunk::<2>() {
        r = _mm_crc32_u16(r, u16::from_le_bytes(*two));
        rest = after;
    }
    if let Some(&one) = rest.first() {
        r = _mm_crc32_u8(r, one);
    }
    r
}

/// x^(8·bytes − 33), for [`multiply`].
#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn factor(bytes: u32) -> u32 {
    let [n0, n1, n2, n3] = bytes.to_le_bytes().map(usize::from);
    let mut factor = SHIFTS[0][n0];
    if bytes >= 1 << 8 {
        factor = multiply(factor, SHIFTS[1][n1]);
    }
    if bytes >= 1 << 16 {
        factor = multiply(multiply(factor, SHIFTS[2][n2]), SHIFTS[3][n3]);
    }
    factor
}

/// `a · b · x³³`: see [`SHIFTS`].
#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn multiply(a: u32, b: u32) -> u32 {
    let product = _mm_clmulepi64_si128::<0>(_mm_cvtsi32_si128(a.cast_signed()), _mm_cvtsi32_si128(b.cast_signed()));
    _mm_crc32_u64(0, _mm_cvtsi128_si64(product).cast_unsigned()) as u32
}
