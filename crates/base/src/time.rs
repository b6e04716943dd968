//! Time as a value: the crates below `io` receive the time as an argument.

use core::ops::{Add, Sub};

/// A monotonic instant in nanoseconds. It is read from `CLOCK_BOOTTIME`, so that time in suspend counts. Only
/// differences have a meaning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(pub u64);

/// A duration in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Span(pub u64);

/// The present time: `mono` for every decision, `wall_ms` for the expiry of keys alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Clock {
    /// Monotonic time.
    pub mono: Time,
    /// Wall clock: milliseconds since 1970.
    pub wall_ms: u64,
}

impl Span {
    /// A span of `n` microseconds.
    pub const fn from_us(n: u64) -> Self {
        Self(n * 1_000)
    }
    /// A span of `n` milliseconds.
    pub const fn from_ms(n: u64) -> Self {
        Self(n * 1_000_000)
    }
    /// A span of `n` seconds.
    pub const fn from_secs(n: u64) -> Self {
        Self(n * 1_000_000_000)
    }
    /// In whole microseconds.
    pub const fn as_us(self) -> u64 {
        self.0 / 1_000
    }
    /// In whole milliseconds.
    pub const fn as_ms(self) -> u64 {
        self.0 / 1_000_000
    }
}

impl Add<Span> for Time {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Add for Span {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Time {
    type Output = Span;
    /// Zero if `earlier` is later than `self`.
    fn sub(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}
