//! Which of several stewards leads a mount: the one whose name is in the lease's key.
//!
//! A steward that does not lead asks to set the key if there is none. One that leads puts off the key's expiry, which
//! harms nobody if the key is another's by now, and then reads whose it is. It leads until some time before the key may
//! expire, counted from when it asked. The cache store needs no scripts for that.

use paritas_base::{Span, Time};

/// Life of the key.
pub const LEASE: Span = Span::from_secs(5);
/// How often a steward asks.
pub const ASK_EVERY: Span = Span::from_secs(1);
/// A leader stops this long before the key may expire: for clocks with other rates, and for what is on its way.
const MARGIN: Span = Span::from_ms(500);

/// What a steward knows about the lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    /// Its own name: address and incarnation.
    me: String,
    state: State,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    /// Nobody is known to lead.
    Nobody,
    /// Another steward leads.
    Other(String),
    /// This one does, until then.
    Mine(Time),
}

/// What an answer of the cache store changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Nothing.
    Same,
    /// This steward leads from now on: it must read the records first.
    Won,
    /// It leads no longer.
    Lost,
}

impl Lease {
    /// Nobody leads yet. `me` must differ between processes; its part before a space is the address for clients.
    pub fn new(me: String) -> Self {
        Self {
            me,
            state: State::Nobody,
        }
    }

    /// The name for the key.
    pub fn me(&self) -> &str {
        &self.me
    }

    /// Whether this steward leads now.
    pub fn leads(&self, now: Time) -> bool {
        matches!(self.state, State::Mine(until) if now < until)
    }

    /// The address of the steward that leads instead.
    pub fn other(&self) -> Option<&str> {
        match &self.state {
            State::Other(name) => Some(name.split(' ').next().unwrap_or_default()),
            _ => None,
        }
    }

    /// The store answered what was asked at `asked`: whose the key is. `None`: the store did not answer. If it answered
    /// that there is no key, [`Self::on_no_key`] is called instead.
    pub fn on_answer(&mut self, now: Time, asked: Time, owner: Option<&str>) -> Change {
        let led = matches!(self.state, State::Mine(_));
        let still_led = self.leads(now);
        match owner {
            Some(owner) if owner == self.me => {
                let until = Time((asked + LEASE).0.saturating_sub(MARGIN.0));
                self.state = State::Mine(until);
                // After a gap another steward may have led, and ended.
                if still_led { Change::Same } else { Change::Won }
            }
            Some(owner) => {
                self.state = State::Other(owner.to_owned());
                if led { Change::Lost } else { Change::Same }
            }
            None => {
                if still_led {
                    return Change::Same;
                }
                self.state = State::Nobody;
                if led { Change::Lost } else { Change::Same }
            }
        }
    }

    /// There is no key: what was in the store may be gone.
    pub fn on_no_key(&mut self) -> Change {
        let led = matches!(self.state, State::Mine(_));
        self.state = State::Nobody;
        if led { Change::Lost } else { Change::Same }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(tenths: u64) -> Time {
        Time(100 * SECOND + tenths * SECOND / 10)
    }

    #[test]
    fn a_steward_leads_until_shortly_before_the_key_expires() {
        let mut lease = Lease::new("h:1 a".to_owned());
        assert!(!lease.leads(at(0)));
        assert_eq!(lease.on_answer(at(1), at(0), Some("h:1 a")), Change::Won);
        assert!(lease.leads(at(44)) && !lease.leads(at(45)), "counted from the question");
        assert_eq!(lease.on_answer(at(20), at(10), Some("h:1 a")), Change::Same);
        assert!(lease.leads(at(54)));
        // No answer for a while, then the key is still its own: another may have led meanwhile.
        assert_eq!(lease.on_answer(at(56), at(55), Some("h:1 a")), Change::Won);
    }

    #[test]
    fn a_spare_knows_who_leads_and_takes_over() {
        let mut lease = Lease::new("h:2 b".to_owned());
        assert_eq!(lease.on_answer(at(0), at(0), Some("h:1 a")), Change::Same);
        assert_eq!(lease.other(), Some("h:1"));
        assert_eq!(lease.on_answer(at(90), at(90), Some("h:2 b")), Change::Won);
        assert_eq!(lease.other(), None);
        assert_eq!(lease.on_answer(at(95), at(95), Some("h:1 c")), Change::Lost);
        assert!(!lease.leads(at(95)));
    }

    #[test]
    fn a_store_that_is_away_ends_the_lease_only_in_its_time() {
        let mut lease = Lease::new("h:1 a".to_owned());
        lease.on_answer(at(0), at(0), Some("h:1 a"));
        assert_eq!(lease.on_answer(at(30), at(10), None), Change::Same);
        assert!(lease.leads(at(44)));
        assert_eq!(lease.on_answer(at(46), at(30), None), Change::Lost);
        assert_eq!(lease.on_answer(at(47), at(40), None), Change::Same);
    }

    #[test]
    fn a_key_that_is_gone_ends_the_lease_at_once() {
        let mut lease = Lease::new("h:1 a".to_owned());
        lease.on_answer(at(0), at(0), Some("h:1 a"));
        assert_eq!(lease.on_no_key(), Change::Lost);
        assert!(!lease.leads(at(1)));
        assert_eq!(lease.on_no_key(), Change::Same);
    }
}
