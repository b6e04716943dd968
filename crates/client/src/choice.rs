//! `Choice`: who decodes, for [`crate::Decode::Auto`]. It compares the mean times of both ways for each size.

use paritas_base::{Prng, Span, Time};
use paritas_code::crc32c;

/// Keys whose length is remembered.
const KEYS_MAX: usize = 4096;
/// One read in this number takes the other way.
const TRIAL_EVERY: u64 = 32;
/// Reads of each way before the ways are compared.
const READS_MIN: u32 = 4;
/// Failures after which a way rests, and for how long.
const FAILURES_MAX: u32 = 2;
const REST: Span = Span::from_secs(1);
/// Values from this length on (its binary logarithm) have parts.
const PARTS_LOG2: u8 = 16;

/// One of the two ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// A node gives the value.
    Server,
    /// The client reads its parts.
    Client,
}

#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    /// A moving mean.
    mean: Span,
    reads: u32,
    failures: u32,
    rests_until: Time,
}

#[derive(Debug)]
pub(crate) struct Choice {
    /// By the binary logarithm of the length, then by way.
    figures: [[Figures; 2]; 64],
    /// Sums of keys, and the logarithms of their lengths.
    keys: Vec<(u32, u8)>,
    prng: Prng,
    /// Time of all reads, and what trials have cost of it.
    spent: Span,
    tried: Span,
}

impl Choice {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            figures: [[Figures::default(); 2]; 64],
            keys: vec![(0, 0); KEYS_MAX],
            prng: Prng::new(seed),
            spent: Span(0),
            tried: Span(0),
        }
    }

    /// The way for a key.
    pub(crate) fn choose(&mut self, now: Time, key: &[u8]) -> Way {
        let sum = crc32c(key);
        let (of, log2) = self.keys[sum as usize % KEYS_MAX];
        // The reply that tells the place of a short value is the value.
        if of != sum || log2 < PARTS_LOG2 {
            return Way::Client;
        }
        let [server, client] = self.figures[usize::from(log2)];
        if client.rests_until > now {
            return Way::Server;
        }
        if server.rests_until > now || client.reads < READS_MIN {
            return Way::Client;
        }
        if server.reads < READS_MIN {
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

    /// A read of this length took this time.
    pub(crate) fn on_read(&mut self, key: &[u8], bytes: u64, way: Way, took: Span) {
        let log2 = bytes.max(1).ilog2() as u8;
        let sum = crc32c(key);
        self.keys[sum as usize % KEYS_MAX] = (sum, log2);
        if log2 < PARTS_LOG2 {
            return;
        }
        let figures = &mut self.figures[usize::from(log2)];
        let other = figures[usize::from(way == Way::Server)];
        let mine = &mut figures[usize::from(way == Way::Client)];
        self.spent = self.spent + took;
        let is_trial = other.reads >= READS_MIN && mine.mean > other.mean;
        if is_trial {
            self.tried = Span(self.tried.0 + took.0.saturating_sub(other.mean.0));
        }
        mine.failures = 0;
        mine.mean = match mine.reads {
            0 => took,
            // The first ones may have waited for connections.
            1..READS_MIN => mine.mean.min(took),
            // Trials are rare: each counts more.
            _ if is_trial => Span(mine.mean.0.midpoint(took.0)),
            _ => Span((mine.mean.0 * 7 + took.0) / 8),
        };
        mine.reads = mine.reads.saturating_add(1);
    }

    /// A read from parts has failed, and is done by a node.
    pub(crate) fn on_failure(&mut self, now: Time, bytes: u64) {
        let [_, client] = &mut self.figures[bytes.max(1).ilog2() as usize];
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
            let way = choice.choose(Time(0), b"key");
            let took = if way == Way::Server { times.0 } else { times.1 };
            choice.on_read(b"key", 1 << 20, way, Span(took));
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
            choice.on_read(b"key", 1 << 20, Way::Client, Span(20_000));
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
        assert_eq!(choice.choose(Time(6), b"key"), Way::Server);
        assert_eq!(choice.choose(Time(6), b"unknown"), Way::Client);
        assert_ne!(choice.choose(Time(5) + REST + Span(1), b"key"), Way::Server);
    }
}
