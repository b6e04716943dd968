//! x86-64: GFNI on 64-byte registers, GFNI on 32-byte registers, and byte shuffles (AVX2).
//!
//! GFNI's own multiplication uses another polynomial. Its affine instruction multiplies by any bit matrix, and
//! multiplication by a constant is such a matrix.

use super::vector::{self, Vector, load_small, store_small};
use crate::field::{MATRICES, NIBBLES};
use core::arch::x86_64::*;
use std::is_x86_feature_detected;

pub(super) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
}

pub(super) fn has_gfni256() -> bool {
    has_avx2() && is_x86_feature_detected!("avx") && is_x86_feature_detected!("gfni")
}

pub(super) fn has_gfni512() -> bool {
    has_gfni256()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
}

/// 64 bytes, with GFNI.
#[derive(Clone, Copy)]
struct Gfni64(__m512i);

// SAFETY: the intrinsics are those of AVX-512F, AVX-512BW and GFNI; pointers are used as the trait says, and a masked
// lane is neither read nor written.
unsafe impl Vector for Gfni64 {
    const BYTES: usize = 64;
    type Factor = __m512i;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: as the trait says.
        unsafe { Self(_mm512_loadu_si512(from.cast())) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: as the trait says.
        unsafe { _mm512_storeu_si512(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn mul_add_part(coefficient: u8, source: *const u8, target: *mut u8, len: usize) {
        // SAFETY: the mask has `len` bits, and `len` is in `1..64`.
        unsafe {
            let mask = u64::MAX >> (64 - len);
            let s = Self(_mm512_maskz_loadu_epi8(mask, source.cast()));
            let t = Self(_mm512_maskz_loadu_epi8(mask, target.cast()));
            let sum = t.xor(s.mul(Self::factor(coefficient)));
            _mm512_mask_storeu_epi8(target.cast(), mask, sum.0);
        }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: as the trait says.
        unsafe { Self(_mm512_xor_si512(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn factor(coefficient: u8) -> __m512i {
        // SAFETY: as the trait says.
        unsafe { _mm512_set1_epi64(MATRICES[usize::from(coefficient)].cast_signed()) }
    }

    #[inline(always)]
    unsafe fn mul(self, factor: __m512i) -> Self {
        // SAFETY: as the trait says.
        unsafe { Self(_mm512_gf2p8affine_epi64_epi8::<0>(self.0, factor)) }
    }
}

/// 32 bytes, with GFNI.
#[derive(Clone, Copy)]
struct Gfni32(__m256i);

// SAFETY: the intrinsics are those of AVX, AVX2 and GFNI; pointers are used as the trait says.
unsafe impl Vector for Gfni32 {
    const BYTES: usize = 32;
    type Factor = __m256i;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: as the trait says.
        unsafe { Self(_mm256_loadu_si256(from.cast())) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: as the trait says.
        unsafe { _mm256_storeu_si256(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn mul_add_part(coefficient: u8, source: *const u8, target: *mut u8, len: usize) {
        // SAFETY: as the trait says.
        unsafe { vector::mul_add::<Gfni16, false>(coefficient, source, target, len) }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: as the trait says.
        unsafe { Self(_mm256_xor_si256(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn factor(coefficient: u8) -> __m256i {
        // SAFETY: as the trait says.
        unsafe { _mm256_set1_epi64x(MATRICES[usize::from(coefficient)].cast_signed()) }
    }

    #[inline(always)]
    unsafe fn mul(self, factor: __m256i) -> Self {
        // SAFETY: as the trait says.
        unsafe { Self(_mm256_gf2p8affine_epi64_epi8::<0>(self.0, factor)) }
    }
}

/// 16 bytes, with GFNI. Used only for lengths too short for larger registers.
#[derive(Clone, Copy)]
struct Gfni16(__m128i);

// SAFETY: the intrinsics are those of SSE2, AVX and GFNI; pointers are used as the trait says.
unsafe impl Vector for Gfni16 {
    const BYTES: usize = 16;
    type Factor = __m128i;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: as the trait says.
        unsafe { Self(_mm_loadu_si128(from.cast())) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: as the trait says.
        unsafe { _mm_storeu_si128(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn mul_add_part(coefficient: u8, source: *const u8, target: *mut u8, len: usize) {
        // SAFETY: `len` is in `1..16`.
        unsafe {
            let s = Self(from_number(load_small(source, len)));
            let product = s.mul(Self::factor(coefficient));
            store_small(load_small(target, len) ^ to_number(product.0), target, len);
        }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: as the trait says.
        unsafe { Self(_mm_xor_si128(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn factor(coefficient: u8) -> __m128i {
        // SAFETY: as the trait says.
        unsafe { _mm_set1_epi64x(MATRICES[usize::from(coefficient)].cast_signed()) }
    }

    #[inline(always)]
    unsafe fn mul(self, factor: __m128i) -> Self {
        // SAFETY: as the trait says.
        unsafe { Self(_mm_gf2p8affine_epi64_epi8::<0>(self.0, factor)) }
    }
}

/// 32 bytes. Products are looked up by low and high nibble.
#[derive(Clone, Copy)]
struct Shuffle32(__m256i);

// SAFETY: the intrinsics are those of AVX and AVX2; pointers are used as the trait says, and the tables are 32 bytes.
unsafe impl Vector for Shuffle32 {
    const BYTES: usize = 32;
    type Factor = (__m256i, __m256i);

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: as the trait says.
        unsafe { Self(_mm256_loadu_si256(from.cast())) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: as the trait says.
        unsafe { _mm256_storeu_si256(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn mul_add_part(coefficient: u8, source: *const u8, target: *mut u8, len: usize) {
        // SAFETY: as the trait says.
        unsafe { vector::mul_add::<Shuffle16, false>(coefficient, source, target, len) }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: as the trait says.
        unsafe { Self(_mm256_xor_si256(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn factor(coefficient: u8) -> Self::Factor {
        let table = NIBBLES[usize::from(coefficient)].0.as_ptr();
        // SAFETY: the table holds two times 16 bytes.
        unsafe {
            let low = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.cast()));
            let high = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.add(16).cast()));
            (low, high)
        }
    }

    #[inline(always)]
    unsafe fn mul(self, (low, high): Self::Factor) -> Self {
        // SAFETY: as the trait says.
        unsafe {
            let nibble = _mm256_set1_epi8(15);
            let low = _mm256_shuffle_epi8(low, _mm256_and_si256(self.0, nibble));
            let high = _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi64::<4>(self.0), nibble));
            Self(_mm256_xor_si256(low, high))
        }
    }
}

/// 16 bytes, by nibbles. Used only for lengths too short for larger registers.
#[derive(Clone, Copy)]
struct Shuffle16(__m128i);

// SAFETY: the intrinsics are those of SSE2 and SSSE3, which AVX2 includes; pointers are used as the trait says, and
// the tables are 32 bytes.
unsafe impl Vector for Shuffle16 {
    const BYTES: usize = 16;
    type Factor = (__m128i, __m128i);

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: as the trait says.
        unsafe { Self(_mm_loadu_si128(from.cast())) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: as the trait says.
        unsafe { _mm_storeu_si128(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn mul_add_part(coefficient: u8, source: *const u8, target: *mut u8, len: usize) {
        // SAFETY: `len` is in `1..16`.
        unsafe {
            let s = Self(from_number(load_small(source, len)));
            let product = s.mul(Self::factor(coefficient));
            store_small(load_small(target, len) ^ to_number(product.0), target, len);
        }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: as the trait says.
        unsafe { Self(_mm_xor_si128(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn factor(coefficient: u8) -> Self::Factor {
        let table = NIBBLES[usize::from(coefficient)].0.as_ptr();
        // SAFETY: the table holds two times 16 bytes.
        unsafe { (_mm_loadu_si128(table.cast()), _mm_loadu_si128(table.add(16).cast())) }
    }

    #[inline(always)]
    unsafe fn mul(self, (low, high): Self::Factor) -> Self {
        // SAFETY: as the trait says.
        unsafe {
            let nibble = _mm_set1_epi8(15);
            let low = _mm_shuffle_epi8(low, _mm_and_si128(self.0, nibble));
            let high = _mm_shuffle_epi8(high, _mm_and_si128(_mm_srli_epi64::<4>(self.0), nibble));
            Self(_mm_xor_si128(low, high))
        }
    }
}

#[inline(always)]
fn from_number(n: u128) -> __m128i {
    // SAFETY: both are 16 bytes in which every bit pattern is valid.
    unsafe { core::mem::transmute(n) }
}

#[inline(always)]
fn to_number(v: __m128i) -> u128 {
    // SAFETY: both are 16 bytes in which every bit pattern is valid.
    unsafe { core::mem::transmute(v) }
}

/// `target ^= coefficient · source`; equal lengths.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,gfni")]
pub(super) fn mul_add_gfni512(coefficient: u8, source: &[u8], target: &mut [u8]) {
    // SAFETY: the features are enabled here, and the slices are of equal length and distinct.
    unsafe { vector::mul_add::<Gfni64, false>(coefficient, source.as_ptr(), target.as_mut_ptr(), source.len()) }
}

/// `target ^= coefficient · source`; equal lengths.
#[target_feature(enable = "avx2,gfni")]
pub(super) fn mul_add_gfni256(coefficient: u8, source: &[u8], target: &mut [u8]) {
    // SAFETY: the features are enabled here, and the slices are of equal length and distinct.
    unsafe { vector::mul_add::<Gfni32, false>(coefficient, source.as_ptr(), target.as_mut_ptr(), source.len()) }
}

/// `target ^= coefficient · source`; equal lengths.
#[target_feature(enable = "avx2")]
pub(super) fn mul_add_avx2(coefficient: u8, source: &[u8], target: &mut [u8]) {
    let (from, to, len) = (source.as_ptr(), target.as_mut_ptr(), source.len());
    // SAFETY: the features are enabled here, and the slices are of equal length and distinct.
    unsafe {
        if coefficient == 1 {
            vector::mul_add::<Shuffle32, true>(coefficient, from, to, len);
        } else {
            vector::mul_add::<Shuffle32, false>(coefficient, from, to, len);
        }
    }
}

/// `targets = rows × sources`.
///
/// # Safety
/// As [`vector::combine`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,gfni")]
pub(super) unsafe fn combine_gfni512(rows: &[u8], sources: &[&[u8]], targets: &mut [&mut [u8]], len: usize) {
    // SAFETY: the features are enabled here; the rest is the caller's word.
    unsafe { vector::combine::<Gfni64, 4>(rows, sources, targets, len) }
}

/// `targets = rows × sources`.
///
/// # Safety
/// As [`vector::combine`].
#[target_feature(enable = "avx2,gfni")]
pub(super) unsafe fn combine_gfni256(rows: &[u8], sources: &[&[u8]], targets: &mut [&mut [u8]], len: usize) {
    // SAFETY: the features are enabled here; the rest is the caller's word.
    unsafe { vector::combine::<Gfni32, 2>(rows, sources, targets, len) }
}

/// `targets = rows × sources`.
///
/// # Safety
/// As [`vector::combine`].
#[target_feature(enable = "avx2")]
pub(super) unsafe fn combine_avx2(rows: &[u8], sources: &[&[u8]], targets: &mut [&mut [u8]], len: usize) {
    // SAFETY: the features are enabled here; the rest is the caller's word.
    unsafe { vector::combine::<Shuffle32, 2>(rows, sources, targets, len) }
}
