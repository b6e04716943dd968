//! AArch64 NEON: byte shuffles as on AVX2. Not built or tested so far, because no such machine was available.

use super::vector::{self, Vector, load_small, store_small};
use crate::field::NIBBLES;
use core::arch::aarch64::*;

/// 16 bytes, products looked up by low and high nibble.
#[derive(Clone, Copy)]
struct Neon16(uint8x16_t);

// SAFETY: every AArch64 target of the standard library has NEON; pointers are used as the trait says, and the tables
// are 32 bytes.
unsafe impl Vector for Neon16 {
    const BYTES: usize = 16;
    type Factor = (uint8x16_t, uint8x16_t);

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: as the trait says.
        unsafe { Self(vld1q_u8(from)) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: as the trait says.
        unsafe { vst1q_u8(to, self.0) }
    }

    #[inline(always)]
    unsafe fn mul_add_part(coefficient: u8, source: *const u8, target: *mut u8, len: usize) {
        // SAFETY: `len` is in `1..16`.
        unsafe {
            let s = Self(vreinterpretq_u8_p128(load_small(source, len)));
            let product = vreinterpretq_p128_u8(s.mul(Self::factor(coefficient)).0);
            store_small(load_small(target, len) ^ product, target, len);
        }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: as the trait says.
        unsafe { Self(veorq_u8(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn factor(coefficient: u8) -> Self::Factor {
        let table = NIBBLES[usize::from(coefficient)].0.as_ptr();
        // SAFETY: the table holds two times 16 bytes.
        unsafe { (vld1q_u8(table), vld1q_u8(table.add(16))) }
    }

    #[inline(always)]
    unsafe fn mul(self, (low, high): Self::Factor) -> Self {
        // SAFETY: as the trait says.
        unsafe {
            let low = vqtbl1q_u8(low, vandq_u8(self.0, vdupq_n_u8(15)));
            let high = vqtbl1q_u8(high, vshrq_n_u8::<4>(self.0));
            Self(veorq_u8(low, high))
        }
    }
}

/// `target ^= coefficient · source`; equal lengths.
pub(super) fn mul_add(coefficient: u8, source: &[u8], target: &mut [u8]) {
    let (from, to, len) = (source.as_ptr(), target.as_mut_ptr(), source.len());
    // SAFETY: NEON is always there, and the slices are of equal length and distinct.
    unsafe {
        if coefficient == 1 {
            vector::mul_add::<Neon16, true>(coefficient, from, to, len);
        } else {
            vector::mul_add::<Neon16, false>(coefficient, from, to, len);
        }
    }
}

/// `targets = rows × sources`.
///
/// # Safety
/// As [`vector::combine`].
pub(super) unsafe fn combine(rows: &[u8], sources: &[&[u8]], targets: &mut [&mut [u8]], len: usize) {
    // SAFETY: NEON is always there; the rest is the caller's word.
    unsafe { vector::combine::<Neon16, 2>(rows, sources, targets, len) }
}
