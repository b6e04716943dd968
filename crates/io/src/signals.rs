//! Requests to stop, as flags that a loop checks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static STOP: AtomicBool = AtomicBool::new(false);
/// When the first SIGTERM or SIGINT arrived, in ms. 0: none has.
static FIRST_MS: AtomicU64 = AtomicU64::new(0);
static AGAIN: AtomicBool = AtomicBool::new(false);

/// A second signal counts from then on: a terminal, or a tool that stops a service, may send several at once.
const AGAIN_AFTER_MS: u64 = 200;

// All that it does is safe in a signal handler: stores to atomics, and `clock_gettime`.
extern "C" fn on_signal(signal: libc::c_int) {
    STOP.store(true, Ordering::SeqCst);
    // systemd may send SIGHUP right after SIGTERM, and a terminal that is closed sends it alone.
    if signal == libc::SIGHUP {
        return;
    }
    let now = now_ms();
    let first = FIRST_MS.compare_exchange(0, now, Ordering::SeqCst, Ordering::SeqCst);
    if first.is_err_and(|first| now.saturating_sub(first) >= AGAIN_AFTER_MS) {
        AGAIN.store(true, Ordering::SeqCst);
    }
}

/// Monotonic, and never 0.
fn now_ms() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer.
    #[allow(unsafe_code)]
    unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time);
    }
    time.tv_sec as u64 * 1_000 + time.tv_nsec as u64 / 1_000_000 + 1
}

/// Makes SIGINT, SIGTERM and SIGHUP set a flag instead of ending the process.
pub fn watch_stop() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let handler: extern "C" fn(libc::c_int) = on_signal;
        // SAFETY: the handler calls only what is async-signal-safe.
        #[allow(unsafe_code)]
        unsafe {
            libc::signal(signal, handler as libc::sighandler_t);
        }
    }
}

/// Whether one of these signals has arrived.
pub fn stop_requested() -> bool {
    STOP.load(Ordering::SeqCst)
}

/// Whether SIGTERM or SIGINT has arrived again, some time after the first.
pub fn stop_demanded() -> bool {
    AGAIN.load(Ordering::SeqCst)
}

/// Kills a process at once (SIGKILL). Returns true if it existed.
pub fn kill(pid: u32) -> bool {
    // SAFETY: kill takes plain numbers and touches no memory of ours.
    #[allow(unsafe_code)]
    let outcome = unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
    outcome == 0
}
