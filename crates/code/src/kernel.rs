//! The inner loops `target ^= c·source` and `targets = matrix × sources`, in every form that a machine may run.
//!
//! `vector` has each loop once, over a small trait. `x86` and `neon` implement the trait for each instruction set.
//! `scalar` is the reference, written independently. [`Level`] names the forms; the best one is detected once.

#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU8, Ordering};

#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
#[cfg(test)]
mod tests;
#[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), allow(dead_code))]
mod vector;
#[cfg(target_arch = "x86_64")]
mod x86;

/// The form of the kernels to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Level {
    Scalar = 1,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Gfni256,
    #[cfg(target_arch = "x86_64")]
    Gfni512,
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Self::Gfni256 => "gfni+avx2",
            #[cfg(target_arch = "x86_64")]
            Self::Gfni512 => "gfni+avx512",
            #[cfg(target_arch = "aarch64")]
            Self::Neon => "neon",
        }
    }
}

/// All forms that this machine can run, slowest first.
fn available() -> Vec<Level> {
    let mut levels = vec![Level::Scalar];
    #[cfg(target_arch = "x86_64")]
    {
        if x86::has_avx2() {
            levels.push(Level::Avx2);
        }
        if x86::has_gfni256() {
            levels.push(Level::Gfni256);
        }
        if x86::has_gfni512() {
            levels.push(Level::Gfni512);
        }
    }
    #[cfg(target_arch = "aarch64")]
    levels.push(Level::Neon);
    levels
}

/// The form in use as a number; 0 before the first detection.
static BEST: AtomicU8 = AtomicU8::new(0);

/// The best form. Reading a byte and a well-predicted branch are cheaper than a call through a pointer.
#[inline(always)]
fn level() -> Level {
    match BEST.load(Ordering::Relaxed) {
        0 => {
            let best = detect();
            BEST.store(best as u8, Ordering::Relaxed);
            best
        }
        #[cfg(target_arch = "x86_64")]
        n if n == Level::Gfni512 as u8 => Level::Gfni512,
        #[cfg(target_arch = "x86_64")]
        n if n == Level::Gfni256 as u8 => Level::Gfni256,
        #[cfg(target_arch = "x86_64")]
        n if n == Level::Avx2 as u8 => Level::Avx2,
        #[cfg(target_arch = "aarch64")]
        n if n == Level::Neon as u8 => Level::Neon,
        _ => Level::Scalar,
    }
}

#[cold]
fn detect() -> Level {
    available().pop().unwrap_or(Level::Scalar)
}

/// The name of the kernels in use, for start-up logs and benchmark tables.
pub fn kernel_name() -> &'static str {
    level().name()
}

/// Makes all threads use the named kernels from now on, for benchmarks that compare them. Returns false and does
/// nothing if this machine does not have them. All kernels give the same bytes.
#[doc(hidden)]
pub fn use_kernel(name: &str) -> bool {
    let found = available().into_iter().find(|level| level.name() == name);
    if let Some(level) = found {
        BEST.store(level as u8, Ordering::Relaxed);
    }
    found.is_some()
}

/// `target ^= coefficient · source`, byte by byte, at any length and alignment. A parity position folds one extent of a
/// delta this way.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub fn mul_add(coefficient: u8, source: &[u8], target: &mut [u8]) {
    assert_eq!(source.len(), target.len(), "source and target differ in length");
    if coefficient != 0 {
        mul_add_at(level(), coefficient, source, target);
    }
}

/// `target ^= source`.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub fn xor(source: &[u8], target: &mut [u8]) {
    mul_add(1, source, target);
}

/// As `mul_add`, with the given kernels. The lengths must be equal.
#[inline(always)]
fn mul_add_at(level: Level, coefficient: u8, source: &[u8], target: &mut [u8]) {
    debug_assert_eq!(source.len(), target.len());
    match level {
        Level::Scalar => scalar::mul_add(coefficient, source, target),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `level` comes from `available`, which asked the machine for the features.
        Level::Avx2 => unsafe { x86::mul_add_avx2(coefficient, source, target) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `level` comes from `available`, which asked the machine for the features.
        Level::Gfni256 => unsafe { x86::mul_add_gfni256(coefficient, source, target) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `level` comes from `available`, which asked the machine for the features.
        Level::Gfni512 => unsafe { x86::mul_add_gfni512(coefficient, source, target) },
        #[cfg(target_arch = "aarch64")]
        Level::Neon => neon::mul_add(coefficient, source, target),
    }
}

/// Most rows that one pass over the sources computes: as many accumulators as fit in registers.
pub(crate) const ROWS_MAX: usize = 4;

/// `targets[r] = Σ_s rows[r · sources.len() + s] · sources[s]`, overwriting the targets. At most four rows, so that
/// one pass reads each source once.
///
/// # Panics
/// If lengths differ, there are more than `ROWS_MAX` targets, or there are too few coefficients.
pub fn combine(rows: &[u8], sources: &[&[u8]], targets: &mut [&mut [u8]]) {
    combine_at(level(), rows, sources, targets);
}

fn combine_at(level: Level, rows: &[u8], sources: &[&[u8]], targets: &mut [&mut [u8]]) {
    assert!(targets.len() <= ROWS_MAX, "too many rows for one pass");
    assert_eq!(
        rows.len(),
        sources.len() * targets.len(),
        "there must be one coefficient for each source and target"
    );
    let Some(len) = targets.first().map(|t| t.len()) else {
        return;
    };
    assert!(targets.iter().all(|t| t.len() == len), "targets differ in length");
    assert!(
        sources.iter().all(|s| s.len() == len),
        "sources and targets differ in length"
    );
    assert!(!sources.is_empty(), "there are no sources to combine");
    match level {
        Level::Scalar => scalar::combine(rows, sources, targets),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as in `mul_add_at`; the lengths and counts were checked above.
        Level::Avx2 => unsafe { x86::combine_avx2(rows, sources, targets, len) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as in `mul_add_at`; the lengths and counts were checked above.
        Level::Gfni256 => unsafe { x86::combine_gfni256(rows, sources, targets, len) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as in `mul_add_at`; the lengths and counts were checked above.
        Level::Gfni512 => unsafe { x86::combine_gfni512(rows, sources, targets, len) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: the lengths and counts were checked above.
        Level::Neon => unsafe { neon::combine(rows, sources, targets, len) },
    }
}
