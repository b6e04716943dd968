//! The log of one stream at a parity member.

use crate::ring::Ring;
use paritas_base::configuration::Tenure;
use paritas_base::{Span, Stripe, Term, Time, Version};

/// One stream's log at a member.
#[derive(Debug)]
pub struct Log {
    /// Whether this member has the stream's log, by a `Sync` of this or an earlier owner (P3.10).
    pub known: bool,
    /// The owner's term that the log belongs to.
    pub term: Term,
    /// All deltas up to here are in the log or folded.
    pub recv: u64,
    /// No delta up to here can be undone any more.
    pub stable: u64,
    /// Raw deltas above `stable`.
    pub ring: Ring,
    pub(super) leases: Vec<Lease>,
    /// Ends of the data and index stripes that its owner was told are granted (P8.2).
    pub(super) granted: (u32, u32),
    /// The term and the ends of a request that was not granted in full.
    pub(super) wish: Option<(Term, (u32, u32))>,
    /// An ack leaves with the turn.
    pub(super) ack_due: bool,
    /// The last delta that was acknowledged: below `recv` while the disk is behind (P11.2).
    pub(super) acked: u64,
    /// The time, by the owner's clock, at which it sent the delta whose ack renews the lease; 0: none.
    pub(super) lease_due: Time,
    /// P6.6, P6.7: the stripes of the owner, if it has listed them.
    pub(crate) alloc: Option<Alloc>,
}

/// The stripes of an owner, as it listed them.
#[derive(Debug)]
pub(crate) struct Alloc {
    pub(crate) term: Term,
    pub(crate) as_of: u64,
    /// In the order of stripes.
    pub(crate) entries: Vec<(Stripe, Version)>,
}

/// A lease that was given to an owner (P4.3).
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) holder: Tenure,
    pub(super) until: Time,
}

impl Log {
    pub(super) fn new(known: bool, term: Term) -> Self {
        Self {
            known,
            term,
            recv: 0,
            stable: 0,
            ring: Ring::default(),
            leases: Vec::new(),
            granted: (0, 0),
            wish: None,
            ack_due: false,
            acked: 0,
            lease_due: Time(0),
            alloc: None,
        }
    }

    /// The term in which delta `seq` was issued, if it is still in the ring.
    pub(super) fn term_at(&self, seq: u64) -> Option<Term> {
        self.ring.get(seq).map(|r| r.term)
    }

    /// Whether the ring has every delta after `stable`, up to `recv`.
    #[inline]
    pub(super) fn is_sound(&self) -> bool {
        match self.ring.first() {
            Some(first) => first <= self.stable + 1 && self.ring.newest() == self.recv,
            None => self.stable == self.recv,
        }
    }

    /// Gives a lease: it never shortens one that still runs, nor ends another tenure's (P4.3). The tenth more than L
    /// guards against clocks that run at different rates.
    pub(super) fn give_lease(&mut self, now: Time, lease: Span, holder: Tenure) {
        let until = now + Span(lease.0 + lease.0 / 10);
        match self.leases.iter_mut().find(|l| l.holder == holder) {
            Some(lease) => lease.until = lease.until.max(until),
            None => {
                self.leases.retain(|l| l.until > now);
                self.leases.push(Lease { holder, until });
            }
        }
    }
}
