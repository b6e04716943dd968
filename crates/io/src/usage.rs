//! What the system says that this process uses.

use paritas_protocol::ProcessFigures;

/// Measures memory and time of the processor: two system calls and a short file. `None` becomes 0.
pub(crate) fn measure() -> ProcessFigures {
    let (user_cpu_us, system_cpu_us) = cpu_us();
    ProcessFigures {
        resident_bytes: resident_bytes().unwrap_or(0),
        user_cpu_us,
        system_cpu_us,
        ..ProcessFigures::default()
    }
}

/// VmRSS. The second number of `/proc/self/statm` is the same in pages.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    // SAFETY: the call takes and returns a number.
    #[allow(unsafe_code)]
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Some(pages * u64::try_from(page_bytes).ok()?)
}

/// Time in its own code and in the system, in microseconds, of all threads.
#[allow(unsafe_code)]
fn cpu_us() -> (u64, u64) {
    let us = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    // SAFETY: a `rusage` of zeros is valid, and it is writable for the whole call.
    let (outcome, usage) = unsafe {
        let mut usage: libc::rusage = core::mem::zeroed();
        (libc::getrusage(libc::RUSAGE_SELF, &raw mut usage), usage)
    };
    match outcome {
        0 => (us(usage.ru_utime), us(usage.ru_stime)),
        _ => (0, 0),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn memory_is_what_the_system_shows_and_time_passes() {
        let before = measure();
        let mut taken = vec![0_u8; 32 << 20];
        taken.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        while measure().user_cpu_us + measure().system_cpu_us == before.user_cpu_us + before.system_cpu_us {
            std::hint::black_box(&mut taken);
        }
        let after = measure().resident_bytes;
        assert!(after >= before.resident_bytes + (30 << 20), "{before:?}, then {after}");
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        let shown_kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert!(after.abs_diff(shown_kib << 10) < 4 << 20, "{after}, and {line}");
    }
}
