//! The loops, written once for any vector register.
//!
//! Everything here is `inline(always)`. So it is compiled within the caller's `target_feature` function, and its
//! intrinsics become single instructions. Closures, and functions of the library that call them as `array::from_fn`
//! does, may be compiled on their own, without these features: each intrinsic is then a call. So there are none on the
//! way to an intrinsic.

use super::ROWS_MAX;

/// A vector register, and the multiplication for it.
///
/// # Safety
/// An implementation may use instructions that not every machine has. The caller of a method, or of a function of this
/// module, must ensure that they are available. `load` and `store` access `BYTES` bytes at the pointer; `mul_add_part`
/// accesses `len` bytes, where `len` is in `1..BYTES`.
pub(super) unsafe trait Vector: Copy {
    /// Bytes in a register.
    const BYTES: usize;
    /// A coefficient, prepared for many multiplications.
    type Factor: Copy;
    /// See the trait.
    unsafe fn load(from: *const u8) -> Self;
    /// See the trait.
    unsafe fn store(self, to: *mut u8);
    /// `target ^= coefficient · source` for fewer than `BYTES` bytes.
    unsafe fn mul_add_part(coefficient: u8, source: *const u8, target: *mut u8, len: usize);
    /// The XOR of two registers.
    unsafe fn xor(self, other: Self) -> Self;
    /// Prepares a coefficient.
    unsafe fn factor(coefficient: u8) -> Self::Factor;
    /// The product with a prepared coefficient.
    unsafe fn mul(self, factor: Self::Factor) -> Self;
}

/// Length in bytes from which aligning the target of [`mul_add`] pays.
const ALIGN_FROM: usize = 1024;

/// `target ^= coefficient · source`. With `ONE` the coefficient must be one, and nothing is multiplied.
///
/// If the length is not a multiple of the register, the last vector overlaps the one before. It is computed before the
/// first store, so that its bytes are right where the two overlap. Long targets also begin with such a vector, so that
/// the loads and stores of the loop are aligned.
///
/// # Safety
/// As [`Vector`]; `source` and `target` hold `len` bytes and do not overlap.
#[inline(always)]
pub(super) unsafe fn mul_add<V: Vector, const ONE: bool>(
    coefficient: u8,
    source: *const u8,
    target: *mut u8,
    len: usize,
) {
    // SAFETY: each access is at `at .. at + V::BYTES` with `at + V::BYTES <= len`, or handed on with its true length.
    unsafe {
        if len < V::BYTES {
            if len > 0 {
                V::mul_add_part(coefficient, source, target, len);
            }
            return;
        }
        let factor = V::factor(coefficient);
        let last = len - V::BYTES;
        let tail = sum_at::<V, ONE>(factor, source, target, last);
        let mut at = 0;
        let mut head = tail;
        if len >= ALIGN_FROM {
            head = sum_at::<V, ONE>(factor, source, target, 0);
            at = target.addr().wrapping_neg() % V::BYTES;
        }
        // Four vectors at a time: the compiler does not unroll across loads and stores that may overlap.
        while at + 4 * V::BYTES <= last {
            let mut sums = [tail; 4];
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = sum_at::<V, ONE>(factor, source, target, at + i * V::BYTES);
            }
            for (i, sum) in sums.iter().enumerate() {
                sum.store(target.add(at + i * V::BYTES));
            }
            at += 4 * V::BYTES;
        }
        while at < last {
            sum_at::<V, ONE>(factor, source, target, at).store(target.add(at));
            at += V::BYTES;
        }
        tail.store(target.add(last));
        if len >= ALIGN_FROM {
            head.store(target);
        }
    }
}

/// `target ^ factor · source` at one place. With `ONE` nothing is multiplied.
///
/// # Safety
/// As [`Vector`]; `source` and `target` hold `at + BYTES` bytes.
#[inline(always)]
unsafe fn sum_at<V: Vector, const ONE: bool>(factor: V::Factor, source: *const u8, target: *mut u8, at: usize) -> V {
    // SAFETY: as this function's own contract.
    unsafe {
        let v = V::load(source.add(at));
        V::load(target.add(at)).xor(if ONE { v } else { v.mul(factor) })
    }
}

/// `targets = rows × sources`, processing `W` registers of each target at a time.
///
/// # Safety
/// As [`Vector`]. Every source and target must have `len` bytes; there must be at least one source and at most
/// [`ROWS_MAX`] targets; `rows` must have `sources.len() * targets.len()` coefficients.
#[inline(always)]
pub(super) unsafe fn combine<V: Vector, const W: usize>(
    rows: &[u8],
    sources: &[&[u8]],
    targets: &mut [&mut [u8]],
    len: usize,
) {
    const { assert!(ROWS_MAX == 4, "the match below handles four rows") };
    let k = sources.len();
    // Scaled rows begin with a row and a column of ones. This saves half of the products in an encode of `k+2`.
    let ones = rows[..k].iter().all(|&c| c == 1) && rows.iter().step_by(k).all(|&c| c == 1);
    // SAFETY: as this function's own contract; the match gives each pass its number of rows.
    unsafe {
        if len < V::BYTES {
            return combine_part::<V>(rows, sources, targets, len);
        }
        match (targets, ones) {
            ([a], false) => pass::<V, 1, W, false>(rows, sources, [a.as_mut_ptr()], len),
            ([a], true) => pass::<V, 1, W, true>(rows, sources, [a.as_mut_ptr()], len),
            ([a, b], false) => pass::<V, 2, W, false>(rows, sources, [a, b].map(|t| t.as_mut_ptr()), len),
            ([a, b], true) => pass::<V, 2, W, true>(rows, sources, [a, b].map(|t| t.as_mut_ptr()), len),
            ([a, b, c], false) => pass::<V, 3, W, false>(rows, sources, [a, b, c].map(|t| t.as_mut_ptr()), len),
            ([a, b, c], true) => pass::<V, 3, W, true>(rows, sources, [a, b, c].map(|t| t.as_mut_ptr()), len),
            ([a, b, c, d], false) => pass::<V, 4, W, false>(rows, sources, [a, b, c, d].map(|t| t.as_mut_ptr()), len),
            ([a, b, c, d], true) => pass::<V, 4, W, true>(rows, sources, [a, b, c, d].map(|t| t.as_mut_ptr()), len),
            _ => {}
        }
    }
}

/// For less than a register: one source after the other.
///
/// # Safety
/// As [`combine`].
#[inline(always)]
unsafe fn combine_part<V: Vector>(rows: &[u8], sources: &[&[u8]], targets: &mut [&mut [u8]], len: usize) {
    for (row, target) in rows.chunks_exact(sources.len()).zip(targets) {
        target.fill(0);
        for (&coefficient, source) in row.iter().zip(sources) {
            if len > 0 {
                // SAFETY: `len` is in `1..BYTES` and every slice holds `len` bytes.
                unsafe { V::mul_add_part(coefficient, source.as_ptr(), target.as_mut_ptr(), len) };
            }
        }
    }
}

/// All columns for `P` rows: blocks of `W` registers, then single ones, then one that ends at the last byte. With
/// `ONES`, row 0 and column 0 must be ones.
///
/// # Safety
/// As [`combine`], with `len >= V::BYTES`.
#[inline(always)]
unsafe fn pass<V: Vector, const P: usize, const W: usize, const ONES: bool>(
    rows: &[u8],
    sources: &[&[u8]],
    targets: [*mut u8; P],
    len: usize,
) {
    // SAFETY: every block lies within `len` bytes. Blocks may overlap, since targets are never read.
    unsafe {
        let mut at = 0;
        while at + W * V::BYTES <= len {
            block::<V, P, W, ONES>(rows, sources, targets, at);
            at += W * V::BYTES;
        }
        while at + V::BYTES <= len {
            block::<V, P, 1, ONES>(rows, sources, targets, at);
            at += V::BYTES;
        }
        if at < len {
            block::<V, P, 1, ONES>(rows, sources, targets, len - V::BYTES);
        }
    }
}

/// One block of columns, accumulated in registers over all sources.
///
/// # Safety
/// As [`combine`], with `at + W * V::BYTES <= len`.
#[inline(always)]
unsafe fn block<V: Vector, const P: usize, const W: usize, const ONES: bool>(
    rows: &[u8],
    sources: &[&[u8]],
    targets: [*mut u8; P],
    at: usize,
) {
    let k = sources.len();
    // SAFETY: `rows` holds `P * k` coefficients, there is a first source, and every pointer stays in its slice.
    unsafe {
        let first = load::<V, W>(sources.get_unchecked(0).as_ptr().add(at));
        let mut sums = [first; P];
        for (p, sums) in sums.iter_mut().enumerate() {
            if !ONES {
                let factor = V::factor(*rows.get_unchecked(p * k));
                for sum in sums.iter_mut() {
                    *sum = sum.mul(factor);
                }
            }
        }
        for s in 1..k {
            let v = load::<V, W>(sources.get_unchecked(s).as_ptr().add(at));
            for (p, sums) in sums.iter_mut().enumerate() {
                let is_one = ONES && p == 0;
                let factor = V::factor(*rows.get_unchecked(p * k + s));
                for w in 0..W {
                    sums[w] = sums[w].xor(if is_one { v[w] } else { v[w].mul(factor) });
                }
            }
        }
        for (sums, target) in sums.iter().zip(targets) {
            for (w, sum) in sums.iter().enumerate() {
                sum.store(target.add(at + w * V::BYTES));
            }
        }
    }
}

/// Registers that follow one another.
///
/// # Safety
/// As [`Vector`]; `from` holds `W * BYTES` bytes.
#[inline(always)]
unsafe fn load<V: Vector, const W: usize>(from: *const u8) -> [V; W] {
    // SAFETY: as this function's own contract; `W` is at least one.
    unsafe {
        let mut vectors = [V::load(from); W];
        for (w, vector) in vectors.iter_mut().enumerate().skip(1) {
            *vector = V::load(from.add(w * V::BYTES));
        }
        vectors
    }
}

/// Loads 1 to 15 bytes as a little-endian number, with two loads that may overlap.
///
/// # Safety
/// `from` holds `len` bytes, `1 <= len <= 15`.
#[inline(always)]
pub(super) unsafe fn load_small(from: *const u8, len: usize) -> u128 {
    // SAFETY: each access lies within the `len` bytes.
    unsafe {
        if len >= 8 {
            let low = from.cast::<u64>().read_unaligned();
            let high = from.add(len - 8).cast::<u64>().read_unaligned();
            u128::from(low.to_le()) | (u128::from(high.to_le()) << (8 * (len - 8)))
        } else if len >= 4 {
            let low = from.cast::<u32>().read_unaligned();
            let high = from.add(len - 4).cast::<u32>().read_unaligned();
            u128::from(u64::from(low.to_le()) | (u64::from(high.to_le()) << (8 * (len - 4))))
        } else {
            let mut bits = u32::from(*from);
            bits |= u32::from(*from.add(len / 2)) << (8 * (len / 2));
            bits |= u32::from(*from.add(len - 1)) << (8 * (len - 1));
            u128::from(bits)
        }
    }
}

/// Stores what [`load_small`] loads.
///
/// # Safety
/// `to` holds `len` bytes, `1 <= len <= 15`.
#[inline(always)]
pub(super) unsafe fn store_small(value: u128, to: *mut u8, len: usize) {
    // SAFETY: each access lies within the `len` bytes.
    unsafe {
        if len >= 8 {
            to.cast::<u64>().write_unaligned((value as u64).to_le());
            to.add(len - 8)
                .cast::<u64>()
                .write_unaligned(((value >> (8 * (len - 8))) as u64).to_le());
        } else if len >= 4 {
            to.cast::<u32>().write_unaligned((value as u32).to_le());
            to.add(len - 4)
                .cast::<u32>()
                .write_unaligned(((value as u64 >> (8 * (len - 4))) as u32).to_le());
        } else {
            *to = value as u8;
            *to.add(len / 2) = (value as u32 >> (8 * (len / 2))) as u8;
            *to.add(len - 1) = (value as u32 >> (8 * (len - 1))) as u8;
        }
    }
}
