//! Runs every target with its seeds and all kept inputs, so that bugs found once stay fixed.

use paritas_fuzz::{Corpus, TARGETS};
use std::time::{Duration, Instant};

/// Longest time for one input, on a busy machine. Each input takes less than a hundredth of it.
const TIMEOUT: Duration = Duration::from_secs(20);

#[test]
fn every_kept_input_runs_clean() {
    for target in TARGETS {
        let began = Instant::now();
        let kept = Corpus::load(&Corpus::path(target)).unwrap().inputs;
        assert!(!kept.is_empty(), "{}: no input is kept", target.name);
        let count = kept.len();
        let (mut largest, mut peak) = (0, 0);
        for input in kept.into_iter().chain(target.seeds()) {
            let start = Instant::now();
            let seen = std::panic::catch_unwind(|| target.run(&input))
                .unwrap_or_else(|_| panic!("{}: on {}", target.name, input.escape_ascii()));
            assert!(
                start.elapsed() < TIMEOUT,
                "{}: on {}",
                target.name,
                input.escape_ascii()
            );
            largest = seen.largest_bytes.max(largest);
            peak = seen.peak_bytes.max(peak);
        }
        let took = began.elapsed().as_secs_f32();
        let name = target.name;
        println!("{name}: {count} kept inputs, largest allocation {largest} B, peak {peak} B, {took:.1} s");
    }
}
