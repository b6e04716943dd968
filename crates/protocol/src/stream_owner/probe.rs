//! The delay of each member's acks (P10.2a): for one delta at a time, the time until each member has it.
//!
//! The coordinator decides what follows from it. A member that does not answer at all is
//! reported otherwise (P10.2), and counts here as one that takes a second.

use super::members::Members;
use paritas_base::configuration::Tenure;
use paritas_base::{NodeId, Span, Time};

/// A probe ends after this time, answered or not.
const LATE: Span = Span::from_secs(1);
/// An older measurement is ignored.
const FRESH: Span = Span::from_secs(2);
/// A new measurement counts for one part in this many of the mean.
const PART: u64 = 4;

/// The delta that is followed now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    seq: u64,
    sent: Time,
}

/// The delay of a member's acks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Delay {
    /// The number of the newest probe that the member has answered.
    seq: u64,
    mean: Span,
    at: Time,
}

impl Delay {
    fn note(&mut self, now: Time, seq: u64, took: Span) {
        let known = self.at > Time(0);
        let mean = if known {
            (self.mean.0 * (PART - 1) + took.0) / PART
        } else {
            took.0
        };
        *self = Self {
            seq,
            mean: Span(mean),
            at: now,
        };
    }
}

impl Members {
    /// A delta has been sent to every member. It is followed if no other one is.
    pub(super) fn begin_probe(&mut self, now: Time, seq: u64) {
        let (members, current) = self.list_and_probe();
        if let Some(probe) = current.take_if(|p| now - p.sent > LATE) {
            for member in members.iter_mut().filter(|m| m.delay.seq < probe.seq) {
                member.delay.note(now, probe.seq, LATE);
            }
        }
        if current.is_none() && members.iter().all(|m| m.started) {
            *current = Some(Probe { seq, sent: now });
        }
    }

    /// That member has everything up to `recv`.
    pub(super) fn note_probe(&mut self, now: Time, from: Tenure, recv: u64) {
        let (members, current) = self.list_and_probe();
        let Some(probe) = current.filter(|p| recv >= p.seq) else {
            return;
        };
        let unanswered = members.iter_mut().find(|m| m.tenure == from && m.delay.seq < probe.seq);
        let Some(member) = unanswered else { return };
        member.delay.note(now, probe.seq, now - probe.sent);
        if members.iter().all(|m| m.delay.seq >= probe.seq) {
            *current = None;
        }
    }

    /// The delay of the acks of each member, as measured in the last two seconds.
    pub(super) fn ack_delays(&self, now: Time) -> impl Iterator<Item = (NodeId, Span)> {
        let fresh = move |d: &Delay| d.at > Time(0) && now - d.at <= FRESH;
        let members = self.iter().filter(move |m| fresh(&m.delay));
        members.map(|m| (m.tenure.node, m.delay.mean))
    }
}
