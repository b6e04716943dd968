//! The schedule of a run: simulated time, the pending events in the order of time, and the only source of randomness.

use crate::events::{Queued, SimEvent};
use crate::report::say;
use crate::swarm::Swarm;
use paritas_base::{Prng, Span, Time};
use std::collections::BinaryHeap;

pub(crate) struct Schedule {
    pub(crate) now: Time,
    pub(crate) random: Prng,
    queue: BinaryHeap<Queued>,
    queued: u64,
    /// When clients and faults begin.
    pub(crate) began: Time,
    /// The faults have ended.
    pub(crate) healing: bool,
    pub(crate) verbose: bool,
    hash: u64,
}

impl Schedule {
    pub(crate) fn new(seed: u64, verbose: bool) -> Self {
        Self {
            now: Time(0),
            random: Prng::new(seed ^ 0x5157_4f52_4c44),
            queue: BinaryHeap::new(),
            queued: 0,
            began: Time(0),
            healing: false,
            verbose,
            hash: seed,
        }
    }

    pub(crate) fn push(&mut self, after: Span, what: SimEvent) {
        self.push_at(self.now + after, what);
    }

    pub(crate) fn push_at(&mut self, at: Time, what: SimEvent) {
        self.queued += 1;
        self.queue.push(Queued {
            at: at.max(self.now),
            n: self.queued,
            what,
        });
    }

    /// Takes the next event, and sets the time to its time.
    pub(crate) fn next(&mut self) -> Option<Queued> {
        let next = self.queue.pop()?;
        self.now = next.at;
        Some(next)
    }

    /// The pending events, in the order in which they were planned.
    pub(crate) fn pending(&self) -> Vec<&Queued> {
        let mut pending: Vec<&Queued> = self.queue.iter().collect();
        pending.sort_by_key(|queued| queued.n);
        pending
    }

    /// Removes one pending event.
    pub(crate) fn take_pending(&mut self, n: u64) -> Option<SimEvent> {
        let mut queue = core::mem::take(&mut self.queue).into_vec();
        let at = queue.iter().position(|queued| queued.n == n);
        let taken = at.map(|at| queue.swap_remove(at).what);
        self.queue = queue.into();
        taken
    }

    /// Lets overdue events happen from now on.
    pub(crate) fn catch_up(&mut self) {
        let mut queue = core::mem::take(&mut self.queue).into_vec();
        for queued in &mut queue {
            queued.at = queued.at.max(self.now);
        }
        self.queue = queue.into();
    }

    /// How long a message is under way.
    pub(crate) fn delay(&mut self, swarm: &Swarm) -> Span {
        let usual = Span(self.random.between(20_000, swarm.delay_max.0.max(20_001)));
        if !self.healing && self.random.chance(swarm.slow) {
            Span(usual.0 * self.random.between(2, 20))
        } else {
            usual
        }
    }

    pub(crate) fn log(&self, line: impl FnOnce() -> String) {
        if self.verbose {
            say(&format!("{:>10.3} ms  {}", self.now.0 as f64 / 1e6, line()));
        }
    }

    pub(crate) fn mix(&mut self, n: u64) {
        self.hash = (self.hash.rotate_left(5) ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// A digest of everything that happened. It is equal for two runs of one seed.
    pub(crate) fn digest(&self) -> u64 {
        self.hash ^ self.random.clone().next_u64()
    }
}
