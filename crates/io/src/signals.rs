//! Requests to stop, as a flag that a loop checks.

use std::sync::atomic::{AtomicBool, Ordering};

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(_: libc::c_int) {
    // A store to an atomic is safe in a signal handler.
    STOP.store(true, Ordering::SeqCst);
}

/// Makes SIGINT, SIGTERM and SIGHUP set a flag instead of ending the process.
pub fn watch_stop() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let handler: extern "C" fn(libc::c_int) = on_signal;
        // SAFETY: the handler only stores to an atomic, which is async-signal-safe.
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

/// Kills a process at once (SIGKILL). Returns true if it existed.
pub fn kill(pid: u32) -> bool {
    // SAFETY: kill takes plain numbers and touches no memory of ours.
    #[allow(unsafe_code)]
    let outcome = unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
    outcome == 0
}
