//! What the system says that this process uses.

use paritas_protocol::ProcessFigures;

/// Measures memory and time of the processor: a few system calls and a short file. What the system does not say is 0.
pub(crate) fn measure() -> ProcessFigures {
    let (user_cpu_us, system_cpu_us) = cpu_us();
    let [resident_bytes, peak_bytes] = resident_and_peak().unwrap_or_default();
    ProcessFigures {
        resident_bytes,
        peak_bytes,
        user_cpu_us,
        system_cpu_us,
        ..ProcessFigures::default()
    }
}

/// VmRSS, and VmHWM since the last call.
fn resident_and_peak() -> Option<[u64; 2]> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let bytes_of = |name: &str| -> Option<u64> {
        let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = rest.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kib << 10)
    };
    let (resident, peak) = (bytes_of("VmRSS:")?, bytes_of("VmHWM:")?);
    // "5" sets the peak back. Where that is not allowed, nobody knows when it was.
    let is_back = std::fs::write("/proc/self/clear_refs", "5").is_ok();
    Some([resident, if is_back { peak } else { resident }])
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
        drop(taken);
        let [freed, again] = [measure(), measure()];
        assert!(freed.peak_bytes >= freed.resident_bytes + (30 << 20), "{freed:?}");
        assert!(again.peak_bytes < again.resident_bytes + (4 << 20), "{again:?}");
    }
}
