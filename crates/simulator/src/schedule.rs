//! The schedule of a run: simulated time, the pending events in the order of time, and the only source of randomness.

use crate::events::SimEvent;
use crate::report::say;
use crate::swarm::Swarm;
use core::cmp::Reverse;
use paritas_base::{Prng, Span, Time};
use std::collections::BinaryHeap;

/// An event that is pending. They are numbered in the order in which they are planned.
pub(crate) struct Pending<'a> {
    pub(crate) n: u64,
    pub(crate) what: &'a SimEvent,
}

pub(crate) struct Schedule {
    pub(crate) now: Time,
    pub(crate) random: Prng,
    /// Time and number of every pending event, and its place in `events`. Of two events at the same time, the one
    /// planned first comes first. The events themselves are large, and the heap moves what is in it often.
    queue: BinaryHeap<Reverse<(Time, u64, usize)>>,
    events: Vec<Option<SimEvent>>,
    /// Places in `events` without an event.
    free: Vec<usize>,
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
            events: Vec::new(),
            free: Vec::new(),
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
        let place = self.free.pop().unwrap_or_else(|| {
            self.events.push(None);
            self.events.len() - 1
        });
        self.events[place] = Some(what);
        self.queue.push(Reverse((at.max(self.now), self.queued, place)));
    }

    /// Takes the next event, and sets the time to its time. Returns its number too.
    pub(crate) fn next(&mut self) -> Option<(u64, SimEvent)> {
        let Reverse((at, n, place)) = self.queue.pop()?;
        self.now = at;
        Some((n, self.take(place)?))
    }

    fn take(&mut self, place: usize) -> Option<SimEvent> {
        self.free.push(place);
        self.events[place].take()
    }

    /// The pending events, in the order in which they were planned.
    pub(crate) fn pending(&self) -> Vec<Pending<'_>> {
        let of = |Reverse((_, n, place)): &Reverse<(Time, u64, usize)>| {
            let what = self.events[*place].as_ref()?;
            Some(Pending { n: *n, what })
        };
        let mut pending: Vec<Pending<'_>> = self.queue.iter().filter_map(of).collect();
        pending.sort_by_key(|pending| pending.n);
        pending
    }

    /// Removes one pending event.
    pub(crate) fn take_pending(&mut self, n: u64) -> Option<SimEvent> {
        let mut queue = core::mem::take(&mut self.queue).into_vec();
        let at = queue.iter().position(|Reverse((_, number, _))| *number == n);
        let place = at.map(|at| queue.swap_remove(at).0.2);
        self.queue = queue.into();
        self.take(place?)
    }

    /// Lets overdue events happen from now on.
    pub(crate) fn catch_up(&mut self) {
        let mut queue = core::mem::take(&mut self.queue).into_vec();
        for Reverse((at, ..)) in &mut queue {
            *at = self.now.max(*at);
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
