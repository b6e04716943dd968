//! Pins: who uses which entry, and until when.

use paritas_base::{Map, Prng, Time, map};
use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug)]
struct Pin {
    token: u64,
    until: Time,
    writer: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Pins {
    pins: Map<u64, Pin>,
    ends: BTreeSet<(Time, u64)>,
    count_max: usize,
}

impl Pins {
    pub(super) fn new(count_max: usize) -> Self {
        Self {
            pins: map(),
            ends: BTreeSet::new(),
            count_max,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.pins.len() >= self.count_max
    }

    pub(super) fn count(&self) -> usize {
        self.pins.len()
    }

    /// A new pin; `None` if there are too many.
    pub(super) fn add(&mut self, random: &mut Prng, token: u64, until: Time, writer: bool) -> Option<u64> {
        if self.is_full() {
            return None;
        }
        // 53 bits: clients in every language can hold the number. A steward that restarts draws others.
        let mut pin = random.next_u64() >> 11;
        while pin == 0 || self.pins.contains_key(&pin) {
            pin = random.next_u64() >> 11;
        }
        self.pins.insert(pin, Pin { token, until, writer });
        self.ends.insert((until, pin));
        Some(pin)
    }

    pub(super) fn token(&self, pin: u64) -> Option<u64> {
        self.pins.get(&pin).map(|pin| pin.token)
    }

    pub(super) fn is_writer(&self, pin: u64) -> bool {
        self.pins.get(&pin).is_some_and(|pin| pin.writer)
    }

    /// Returns whether the pin is known.
    pub(super) fn renew(&mut self, pin: u64, until: Time) -> bool {
        let Some(found) = self.pins.get_mut(&pin) else {
            return false;
        };
        self.ends.remove(&(found.until, pin));
        found.until = until;
        self.ends.insert((until, pin));
        true
    }

    /// Ends a pin. Returns its token.
    pub(super) fn remove(&mut self, pin: u64) -> Option<u64> {
        let found = self.pins.remove(&pin)?;
        self.ends.remove(&(found.until, pin));
        Some(found.token)
    }

    /// A pin whose time is over.
    pub(super) fn ended(&self, now: Time) -> Option<u64> {
        let (until, pin) = self.ends.first()?;
        (*until <= now).then_some(*pin)
    }
}
