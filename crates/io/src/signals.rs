//! Being asked to stop, as a flag that a loop looks at.

use std::sync::atomic::{AtomicBool, Ordering};

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(_: libc::c_int) {
    // A store to an atomic is all that is safe in a signal handler, and all that is needed.
    STOP.store(true, Ordering::SeqCst);
}

/// From now on SIGINT, SIGTERM and SIGHUP set a flag instead of ending the process.
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

/// Whether such a signal has come.
pub fn stop_requested() -> bool {
    STOP.load(Ordering::SeqCst)
}

/// Ends a process at once (SIGKILL). True if there was one.
pub fn kill(pid: u32) -> bool {
    // SAFETY: kill takes plain numbers and touches no memory of ours.
    #[allow(unsafe_code)]
    let outcome = unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
    outcome == 0
}
