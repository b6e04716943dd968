//! The rate at which a node rebuilds in the background (P6.8). Clients have priority.
//!
//! Owners and parity members ask here before they begin one more chunk. A chunk that a command waits for is begun at
//! once, and counted.

use crate::parameters::Parameters;
use paritas_base::{Span, Time};

/// After a turn longer than this, in which clients waited, the background gives way.
const TURN_MAX: Span = Span::from_ms(1);
/// The longest time for which it gives way. A busy node must rebuild too.
const WAY_MAX: Span = Span::from_ms(20);
/// After a pause, at most this much time is caught up.
const BURST: Span = Span::from_ms(20);

/// The pace of all rebuilding on one node.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Chunks under way: those counted at the turn's end, and those begun since. Chunks that were asked for again are
    /// left out: one list that cannot be rebuilt must not stop the others.
    under_way: usize,
    /// When the next chunk may begin by the configured rate.
    next_at: Time,
    turn_began: Option<Time>,
    /// Until when the background gives way.
    way_until: Time,
    /// The background begins nothing in this turn.
    gives_way: bool,
    /// The limit of chunks was reached: no chunk begins until at most `resume_at` are under way.
    is_full: bool,
    /// The number of chunks under way at which chunks may begin again.
    resume_at: usize,
}

impl Pace {
    /// An event happens. The first one begins a turn.
    pub(crate) fn happens(&mut self, now: Time) {
        self.turn_began.get_or_insert(now);
    }

    /// The work of the turn is done, and `under_way` chunks are under way.
    pub(crate) fn turn_ends(&mut self, now: Time, under_way: usize) {
        self.under_way = under_way;
        self.is_full &= under_way > self.resume_at;
        // The background gives way in the turns after a long one, and then goes on even if turns are long: a node whose
        // turns are all long must rebuild too.
        self.gives_way = now < self.way_until;
        let took = now - self.turn_began.take().unwrap_or(now);
        if took > TURN_MAX && !self.gives_way {
            self.way_until = now + took.min(WAY_MAX);
        }
    }

    /// Chunks under way, of all roles.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way
    }

    /// Whether one more chunk may begin in the background.
    pub(crate) fn allows(&self, parameters: &Parameters, now: Time) -> bool {
        !self.gives_way && !self.is_full && self.under_way < parameters.fetch_max && now >= self.next_at
    }

    /// The rebuild of a chunk of this length begins.
    pub(crate) fn begins(&mut self, parameters: &Parameters, now: Time, chunk_bytes: usize) {
        self.under_way += 1;
        // Chunks begin in groups of half the limit, while the other half is under way. Questions that are sent
        // together, and answered together, cost fewer writes and wakes.
        self.is_full |= self.under_way >= parameters.fetch_max;
        self.resume_at = parameters.fetch_max / 2;
        self.charges(parameters, now, chunk_bytes);
    }

    /// Counts these bytes for the configured rate.
    pub(crate) fn charges(&mut self, parameters: &Parameters, now: Time, bytes: usize) {
        if let Some(rate) = parameters.rebuild_rate {
            let earliest = Time(now.0.saturating_sub(BURST.0));
            let cost = bytes as u64 * 1_000_000_000 / rate.max(1);
            self.next_at = self.next_at.max(earliest) + Span(cost);
        }
    }

    /// Whether a unit of a part may be asked for in the background (P14.8). Units are no chunks under way: parts that
    /// cannot be made must not keep chunks from being rebuilt.
    pub(crate) fn allows_unit(&self, now: Time) -> bool {
        !self.gives_way && now >= self.next_at
    }

    /// The configured rate has changed: the next chunk does not wait by the former one.
    pub(crate) fn set_anew(&mut self) {
        self.next_at = Time(0);
    }

    /// The latest time for a role that was refused to ask again. A role that waits for other chunks to finish asks
    /// again in the turn in which they do.
    pub(crate) fn ask_at(&self, now: Time) -> Time {
        if self.gives_way {
            self.way_until.max(self.next_at)
        } else if now < self.next_at {
            self.next_at
        } else {
            Time(u64::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Time {
        Time(1_000_000_000 + us * 1_000)
    }

    #[test]
    fn the_rate_is_kept_over_time_and_nothing_is_saved_up() {
        let parameters = Parameters {
            rebuild_rate: Some(16 << 20),
            ..Parameters::default()
        };
        let mut pace = Pace::default();
        let mut begun = 0;
        // A second of turns of 100 µs, after a long silence.
        for turn in 0..10_000 {
            let now = at(turn * 100);
            pace.happens(now);
            pace.turn_ends(now, 0);
            while pace.allows(&parameters, now) {
                pace.begins(&parameters, now, 16 << 10);
                begun += 1;
            }
        }
        // 1,024 chunks of 16 KiB a second, and 20 ms more at the start.
        assert!((1_020..=1_050).contains(&begun), "{begun}");
    }

    #[test]
    fn no_more_are_under_way_than_the_limit() {
        let parameters = Parameters::default();
        let mut pace = Pace::default();
        pace.turn_ends(at(0), parameters.fetch_max - 2);
        pace.begins(&parameters, at(0), 16 << 10);
        assert!(pace.allows(&parameters, at(0)));
        pace.begins(&parameters, at(0), 16 << 10);
        assert!(!pace.allows(&parameters, at(0)));
        assert_eq!(pace.ask_at(at(0)), Time(u64::MAX), "asked again when one is done");
        pace.turn_ends(at(1), parameters.fetch_max / 2 + 1);
        assert!(!pace.allows(&parameters, at(1)), "the next begin together");
        pace.turn_ends(at(2), parameters.fetch_max / 2);
        for left in (0..parameters.fetch_max / 2).rev() {
            assert!(pace.allows(&parameters, at(2)));
            pace.begins(&parameters, at(2), 16 << 10);
            assert_eq!(pace.allows(&parameters, at(2)), left > 0);
        }
    }

    #[test]
    fn after_a_long_turn_the_background_gives_way_for_as_long_and_then_goes_on() {
        let parameters = Parameters::default();
        let mut pace = Pace::default();
        let mut turn = |from: u64, to: u64| {
            pace.happens(at(from));
            pace.happens(at((from + to) / 2));
            pace.turn_ends(at(to), 0);
            (pace.allows(&parameters, at(to)), pace.ask_at(at(to)))
        };
        assert!(turn(0, 900).0, "short enough");
        assert!(turn(1_000, 4_000).0, "it is the next turns that are longer without it");
        assert_eq!(turn(4_100, 4_200), (false, at(7_000)));
        assert!(turn(7_000, 7_100).0);
        // However long all turns are, it goes on now and then.
        let long = (0..100).filter(|n| turn(10_000 + n * 50_000, 59_000 + n * 50_000).0);
        assert!(long.count() >= 50);
    }
}
