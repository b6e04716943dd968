//! When an owner may answer (PROTOCOL 3.7, 4.2, 4.3): reads under leases, writes with enough members Live.

use super::{Phase, StreamOwner, nth_largest};
use crate::context::Context;
use crate::interface::Out;
use crate::parameters::{Mutant, Reads};
use paritas_base::configuration::{Configuration, Tenure};
use paritas_base::{Term, Time};

/// Whether reads may be answered (4.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadLease {
    /// No member, no lease needed (4.5).
    Unlimited,
    /// Until then.
    Until(Time),
    /// Not now.
    None,
}

impl StreamOwner {
    /// 4.2; or 4.6, for what was read at `read_at`.
    ///
    /// Who answers what was asked after that had not been sealed by a successor, and of all that a successor might seal
    /// one is among a quorum: at the time of the read nobody else served. That stays true, whatever clocks do. The
    /// question leaves with the turn of the read, so that `sent` is not before it.
    pub fn read_lease<O: Out>(&self, cx: &Context<'_, O>, configuration: &Configuration, read_at: Time) -> ReadLease {
        if self.members.is_empty() {
            return ReadLease::Unlimited;
        }
        if cx.shared.parameters.reads == Reads::Confirmed && !cx.breaks(Mutant::ReadsNotConfirmed) {
            let quorum = usize::from(configuration.ack_quorum).min(self.members.len());
            let confirmed = self.members.iter().filter(|m| m.started).map(|m| m.confirmed);
            return match nth_largest(confirmed, quorum) {
                Some(sent) if sent >= read_at => ReadLease::Unlimited,
                _ => ReadLease::None,
            };
        }
        let mut quorum = usize::from(configuration.ack_quorum).min(self.members.len());
        if cx.breaks(Mutant::LeasesFromTooFew) {
            quorum = (quorum - 1).max(1);
        }
        let live_only = cx.breaks(Mutant::LeaseFromLiveMembersOnly);
        let leases = self
            .members
            .iter()
            .filter(|m| m.started && (m.live || !live_only))
            .map(|m| m.lease_until);
        let reached = if live_only {
            leases.min()
        } else {
            nth_largest(leases, quorum)
        };
        match reached {
            Some(until) if until > cx.now.mono => ReadLease::Until(until),
            _ => ReadLease::None,
        }
    }

    /// Whether a write that is acked may be answered (3.7).
    pub fn may_answer_writes<O: Out>(&self, cx: &Context<'_, O>) -> bool {
        let wanted = usize::from(cx.shared.cluster.min_redundancy).min(usize::from(cx.shared.cluster.parity));
        self.members.iter().filter(|m| m.live).count() >= wanted
    }

    /// 4.3: a member's answer to a lease request that was sent at `sent` by this node's clock.
    pub(crate) fn on_lease<O: Out>(&mut self, cx: &Context<'_, O>, from: Tenure, term: Term, sent: Time) {
        if self.phase != Phase::Serve || term != self.term() {
            return;
        }
        if let Some(member) = self.members.iter_mut().find(|m| m.tenure == from)
            && sent <= cx.now.mono
        {
            member.lease_until = member.lease_until.max(sent + cx.shared.parameters.lease);
            member.confirmed = member.confirmed.max(sent);
            self.releasable = true;
        }
    }
}
