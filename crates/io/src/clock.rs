//! The clocks of the operating system.

use paritas_base::{Clock, Time};
use std::time::{SystemTime, UNIX_EPOCH};

/// The present time.
pub fn now() -> Clock {
    Clock {
        mono: mono(),
        wall_ms: wall_ms(),
    }
}

/// Reads `CLOCK_BOOTTIME`, which counts suspend: a lease must not outlive a suspended machine (P0.3).
pub fn mono() -> Time {
    Time(read_ns(libc::CLOCK_BOOTTIME))
}

/// The time that this thread has worked, in nanoseconds.
pub fn thread_time_ns() -> u64 {
    read_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn read_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid, writable timespec for the whole call.
    #[allow(unsafe_code)]
    let outcome = unsafe { libc::clock_gettime(clock, &raw mut time) };
    // The call fails only if the kernel lacks the clock. Every Linux since 2.6.39 has both.
    assert_eq!(outcome, 0, "the kernel lacks clock {clock}");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Milliseconds since 1970.
pub fn wall_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}
