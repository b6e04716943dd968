//! When an owner may answer (P3.7, P4.2, P4.3): reads under leases, writes with enough members Live.

use super::{Phase, StreamOwner};
use crate::context::Context;
use crate::interface::Out;
use paritas_base::configuration::{Configuration, Tenure};
use paritas_base::{Term, Time};

/// Whether reads may be answered (P4.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadLease {
    /// No member, no lease needed (P4.5).
    Unlimited,
    /// Until then.
    Until(Time),
    /// Not now.
    None,
}

impl StreamOwner {
    /// P4.2; or P4.6, for what was read at `read_at`.
    ///
    /// P4.6: a member that answers a question sent after the read had not been sealed by a successor before the read. A
    /// successor must seal at least one member of each such quorum. So no other owner served at the time of the read,
    /// whatever the clocks do. The question leaves at the end of the turn of the read, so `sent` is not before it.
    pub fn read_lease<O: Out>(&self, cx: &Context<'_, O>, configuration: &Configuration, read_at: Time) -> ReadLease {
        if self.members.is_empty() {
            return ReadLease::Unlimited;
        }
        let (rules, started) = (cx.rules(), self.members.iter().filter(|m| m.started));
        let quorum = self.members.ack_quorum(configuration);
        if rules.are_confirmed(cx.shared.parameters.reads) {
            return match rules.confirmed_at(started.map(|m| m.confirmed), quorum) {
                Some(sent) if sent >= read_at => ReadLease::Unlimited,
                _ => ReadLease::None,
            };
        }
        match rules.leased_until(started.map(|m| (m.live, m.lease_until)), quorum) {
            Some(until) if until > cx.now.mono => ReadLease::Until(until),
            _ => ReadLease::None,
        }
    }

    /// Whether a write that is acked may be answered (P3.7).
    pub fn may_answer_writes<O: Out>(&self, cx: &Context<'_, O>) -> bool {
        let wanted = usize::from(cx.shared.cluster.min_redundancy).min(usize::from(cx.shared.cluster.parity));
        self.members.live_count() >= wanted
    }

    /// P4.3: a member's answer to a lease request that was sent at `sent` by this node's clock.
    pub(crate) fn on_lease<O: Out>(&mut self, cx: &mut Context<'_, O>, from: Tenure, term: Term, sent: Time) {
        if self.phase != Phase::Serve || term != self.term() {
            return;
        }
        if let Some(member) = self.members.find_mut(from)
            && sent <= cx.now.mono
        {
            member.lease_until = member.lease_until.max(sent + cx.shared.parameters.lease);
            member.confirmed = member.confirmed.max(sent);
            self.wake.releasable = true;
        }
        self.ensure_member(cx, from);
    }
}
