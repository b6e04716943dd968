//! Credit for hedged reads: what all clients together may read more than their readers ask for. A client alone cannot
//! tell a slow node from a slow store, and many that have just started would make a slow store slower.

use super::Steward;
use paritas_base::Time;

/// Most that is granted at once, after a time without grants.
const BYTES_MAX: u64 = 64 << 20;
/// Part of the rates of the nodes that are not slow: 1 / this many bytes a second are granted.
const RATE_PART: f64 = 10.0;

/// What may be granted now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Credit {
    bytes: u64,
    counted: Time,
}

impl Credit {
    pub(super) fn new(now: Time) -> Self {
        Self {
            bytes: BYTES_MAX,
            counted: now,
        }
    }

    /// Time has passed, in which nodes could have sent so many bytes a second.
    fn on_time(&mut self, now: Time, bytes_per_s: f64) {
        let seconds = (now - self.counted).as_ms() as f64 / 1000.0;
        self.counted = now;
        self.bytes = (self.bytes + (bytes_per_s / RATE_PART * seconds) as u64).min(BYTES_MAX);
    }
}

impl Steward {
    /// All or nothing: 0 unless the node is a straggler. While the store as a whole is slow, none is.
    pub(super) fn on_credit(&mut self, bytes: u64, node: &str) -> u64 {
        let is_slow = self.csac.stragglers().any(|slow| self.nodes.name(slow) == node);
        let granted = if is_slow && bytes <= self.credit.bytes {
            bytes
        } else {
            0
        };
        self.credit.bytes -= granted;
        self.counters.credit_bytes += granted;
        self.counters.credits_declined += u64::from(granted == 0);
        granted
    }

    pub(super) fn earn_credit(&mut self, now: Time) {
        let known = self.rates.known(now).into_iter();
        let slow: Vec<_> = self.csac.stragglers().collect();
        let fast = known.filter(|rate| !slow.contains(&rate.node));
        self.credit.on_time(now, fast.map(|rate| rate.bytes_per_s).sum());
    }
}
