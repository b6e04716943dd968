//! `Choice`: who decodes, or encodes, for [`crate::Decode::Auto`] and [`crate::Encode::Auto`]. It compares the mean
//! times of both ways for each size. [`Lengths`]: how long values are that will be read.

use paritas_base::{Prng, Span, Time};
use paritas_code::crc32c;

/// Keys whose length is remembered.
const KEYS_MAX: usize = 4096;
/// One operation in this number takes the other way.
const TRIAL_EVERY: u64 = 32;
/// Operations of each way before the ways are compared.
const COUNT_MIN: u32 = 4;
/// Failures after which a way rests, and for how long.
const FAILURES_MAX: u32 = 2;
const REST: Span = Span::from_secs(1);
/// Values from this length on (its binary logarithm) have parts.
const PARTS_LOG2: u8 = 16;

/// One of the two ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// A node gives or takes the value.
    Server,
    /// The client reads or writes its parts.
    Client,
}

/// The lengths of values that were read.
#[derive(Debug)]
pub(crate) struct Lengths {
    /// Sums of keys, and lengths of their values.
    keys: Vec<(u32, u64)>,
}

impl Lengths {
    pub(crate) fn new() -> Self {
        Self {
            keys: vec![(0, 0); KEYS_MAX],
        }
    }

    /// The length that the value of a key had, if it has parts.
    pub(crate) fn of(&self, key: &[u8]) -> Option<u64> {
        let sum = crc32c(key);
        let (of, bytes) = self.keys[sum as usize % KEYS_MAX];
        (of == sum && has_parts(bytes)).then_some(bytes)
    }

    pub(crate) fn remember(&mut self, key: &[u8], bytes: u64) {
        let sum = crc32c(key);
        self.keys[sum as usize % KEYS_MAX] = (sum, bytes);
    }
}

fn has_parts(bytes: u64) -> bool {
    log2(bytes) >= PARTS_LOG2
}

fn log2(bytes: u64) -> u8 {
    bytes.max(1).ilog2() as u8
}

#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    /// A moving mean.
    mean: Span,
    count: u32,
    failures: u32,
    rests_until: Time,
}

#[derive(Debug)]
pub(crate) struct Choice {
    /// By the binary logarithm of the length, then by way.
    figures: [[Figures; 2]; 64],
    prng: Prng,
    /// Time of all operations, and what trials have cost of it.
    spent: Span,
    tried: Span,
}

impl Choice {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            figures: [[Figures::default(); 2]; 64],
            prng: Prng::new(seed),
            spent: Span(0),
            tried: Span(0),
        }
    }

    /// The way for a value of this length.
    pub(crate) fn choose(&mut self, now: Time, bytes: u64) -> Way {
        let [server, client] = self.figures[usize::from(log2(bytes))];
        if client.rests_until > now {
            return Way::Server;
        }
        if server.rests_until > now || client.count < COUNT_MIN {
            return Way::Client;
        }
        if server.count < COUNT_MIN {
            return Way::Server;
        }
        let (better, other) = match server.mean < client.mean {
            true => (Way::Server, Way::Client),
            false => (Way::Client, Way::Server),
        };
        let is_affordable = self.tried.0 <= self.spent.0 / 20;
        match is_affordable && self.prng.below(TRIAL_EVERY) == 0 {
            true => other,
            false => better,
        }
    }

    /// An operation with a value of this length took this time.
    pub(crate) fn on_end(&mut self, bytes: u64, way: Way, took: Span) {
        if !has_parts(bytes) {
            return;
        }
        let figures = &mut self.figures[usize::from(log2(bytes))];
        let other = figures[usize::from(way == Way::Server)];
        let mine = &mut figures[usize::from(way == Way::Client)];
        self.spent = self.spent + took;
        let is_trial = other.count >= COUNT_MIN && mine.mean > other.mean;
        if is_trial {
            self.tried = Span(self.tried.0 + took.0.saturating_sub(other.mean.0));
        }
        mine.failures = 0;
        mine.mean = match mine.count {
            0 => took,
            // The first ones may have waited for connections.
            1..COUNT_MIN => mine.mean.min(took),
            // Trials are rare: each counts more.
            _ if is_trial => Span(mine.mean.0.midpoint(took.0)),
            _ => Span((mine.mean.0 * 7 + took.0) / 8),
        };
        mine.count = mine.count.saturating_add(1);
    }

    /// The client's way has failed, and a node does it.
    pub(crate) fn on_failure(&mut self, now: Time, bytes: u64) {
        let [_, client] = &mut self.figures[usize::from(log2(bytes))];
        client.failures += 1;
        if client.failures >= FAILURES_MAX {
            (client.failures, client.rests_until) = (0, now + REST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads with these times by server and client; their sum.
    fn run(choice: &mut Choice, reads: u32, times: (u64, u64)) -> u64 {
        let mut sum = 0;
        for _ in 0..reads {
            let way = choice.choose(Time(0), 1 << 20);
            let took = if way == Way::Server { times.0 } else { times.1 };
            choice.on_end(1 << 20, way, Span(took));
            sum += took;
        }
        sum
    }

    #[test]
    fn it_is_hardly_slower_than_the_better_way_and_follows_a_change() {
        for (server, client) in [(1_000, 3_000), (3_000, 1_000), (1_000, 1_050)] {
            let mut choice = Choice::new(7);
            run(&mut choice, 200, (server, client));
            let took = run(&mut choice, 1_000, (server, client));
            assert!(took <= 1_100 * server.min(client), "{took} for {server}, {client}");
            run(&mut choice, 3_000, (client, server));
            let took = run(&mut choice, 1_000, (client, server));
            assert!(
                took <= 1_100 * server.min(client),
                "after the change {took} for {server}, {client}"
            );
        }
    }

    #[test]
    fn a_way_whose_first_reads_waited_for_connections_is_chosen_if_it_is_faster() {
        let mut choice = Choice::new(7);
        for _ in 0..3 {
            choice.on_end(1 << 20, Way::Client, Span(20_000));
        }
        run(&mut choice, 200, (2_900, 2_000));
        let took = run(&mut choice, 1_000, (2_900, 2_000));
        assert!(took <= 1_100 * 2_000, "{took}");
    }

    #[test]
    fn a_way_that_failed_twice_rests() {
        let mut choice = Choice::new(7);
        run(&mut choice, 100, (3_000, 1_000));
        choice.on_failure(Time(5), 1 << 20);
        choice.on_failure(Time(5), 1 << 20);
        assert_eq!(choice.choose(Time(6), 1 << 20), Way::Server);
        assert_eq!(choice.choose(Time(6), 1 << 25), Way::Client, "other lengths do not");
        assert_ne!(choice.choose(Time(5) + REST + Span(1), 1 << 20), Way::Server);
    }

    #[test]
    fn lengths_are_those_of_values_with_parts() {
        let mut lengths = Lengths::new();
        assert_eq!(lengths.of(b"key"), None);
        lengths.remember(b"key", 1 << 20);
        assert_eq!((lengths.of(b"key"), lengths.of(b"other")), (Some(1 << 20), None));
        lengths.remember(b"key", 100);
        assert_eq!(lengths.of(b"key"), None);
    }
}
