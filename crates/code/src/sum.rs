//! The sum of a chunk (P9.1): 32 bits, linear over XOR, so that deltas can update it.
//!
//! It is the remainder of CRC32C without initial value and final XOR: the bytes as a polynomial over GF(2), modulo
//! Castagnoli's polynomial. An extent counts together with the zeros that follow it in its chunk: `crc · x^(8 · bytes
//! after it)`. Hence
//! - the sum of a chunk is the XOR of the sums of extents that cover it once,
//! - the sum after a delta is the sum before, XOR the sum of the delta's extents (old XOR new),
//! - zeros sum to 0.
//!
//! The same remainder with the usual initial value and final XOR is [`crc32c`], the checksum of frames.

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx512;
mod tables;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

use tables::{SHIFTS, SLICES, multiply};

/// The contribution of `bytes` at `offset` to the sum of a chunk of `chunk_bytes`.
///
/// # Panics
/// If the extent does not lie within the chunk, or the chunk is 4 GiB or more.
#[inline]
pub fn of_extent(chunk_bytes: usize, offset: usize, bytes: &[u8]) -> u32 {
    let after = chunk_bytes
        .checked_sub(offset)
        .and_then(|rest| rest.checked_sub(bytes.len()));
    let after = after
        .and_then(|after| u32::try_from(after).ok())
        .expect("an extent lies within its chunk");
    #[cfg(target_arch = "x86_64")]
    if x86::available() {
        // SAFETY: the features were found.
        return unsafe { x86::of_extent(after, bytes) };
    }
    shift(remainder(0, bytes), after)
}

/// The sum of a whole chunk.
#[inline]
pub fn of(chunk: &[u8]) -> u32 {
    of_extent(chunk.len(), 0, chunk)
}

/// CRC32C as in iSCSI, ext4 and SSE4.2.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_append(0, bytes)
}

/// The CRC32C of the bytes that `crc` covers, followed by `bytes`.
#[inline]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if x86::available() {
        // SAFETY: the features were found.
        return !unsafe { x86::remainder(!crc, bytes) };
    }
    !remainder(!crc, bytes)
}

/// The remainder of `bytes` after a register of `start`, processing eight bytes at a time.
fn remainder(start: u32, bytes: &[u8]) -> u32 {
    let mut r = start;
    let (eights, rest) = bytes.as_chunks::<8>();
    for eight in eights {
        let v = u64::from_le_bytes(*eight) ^ u64::from(r);
        r = SLICES
            .iter()
            .zip(v.to_be_bytes())
            .fold(0, |r, (slice, byte)| r ^ slice[usize::from(byte)]);
    }
    rest.iter()
        .fold(r, |r, &byte| (r >> 8) ^ SLICES[0][usize::from(r as u8 ^ byte)])
}

/// `r · x^(8·bytes)`: the remainder after that many zero bytes.
fn shift(mut r: u32, bytes: u32) -> u32 {
    for (level, digit) in SHIFTS.iter().zip(bytes.to_le_bytes()) {
        if digit > 0 {
            // The tables are made for the carry-less multiplier, whose product differs by x³³ (see `tables`).
            r = multiply(multiply(r, level[usize::from(digit)]), tables::X_33);
        }
    }
    r
}
