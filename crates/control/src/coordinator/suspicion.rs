//! Which nodes are silent, suspect, expected again or flapping, and when silence counts (P10.7, P10.10 to P10.13).
//! `fence` decides what follows from it.

use super::Coordinator;
use super::presence::Presence;
use crate::fence::{self, Holder, Opinion, Silence};
use crate::mutant::Mutant;
use crate::record::StoredNode;
use crate::rules::{BrokenLink, Facts, Removal};
use crate::store::Store;
use paritas_base::configuration::{NodeRecord, NodeState};
use paritas_base::{Incarnation, ListId, NodeId, Span, Time};
use std::collections::{BTreeMap, BTreeSet};

/// A node's failures are forgotten after this time without another failure.
const FAILURES_FORGOTTEN: Span = Span::from_secs(60);
/// A link that has been broken for this number of suspicion times counts as permanently broken.
const LASTING_SUSPICIONS: u64 = 4;
/// Every holder that runs is proven within this time and two suspicion times.
const PROOFS_MAX: Span = Span::from_secs(1);

/// One node's report that it does not hear a peer.
#[derive(Clone, Copy, Debug)]
struct Report {
    since: Time,
    latest: Time,
}

/// Recent failures of a node: it ended, or was silent (P10.7).
#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    latest: Time,
}

impl Failures {
    /// After its third failure in a row a node counts as flapping for 2 s, and for twice as long after each further
    /// failure, up to 60 s. A minute without a failure ends the row.
    fn is_flapping(&self, now: Time) -> bool {
        let back_off_s = match self.count {
            0..3 => 0,
            count => (1 << (count - 2).min(6)).min(FAILURES_FORGOTTEN.as_ms() / 1000),
        };
        now - self.latest < Span::from_secs(back_off_s)
    }

    fn is_forgotten(&self, now: Time) -> bool {
        now - self.latest >= FAILURES_FORGOTTEN
    }
}

/// A removal that waits for proofs that the other holders run.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    /// Since when it is wanted without a break.
    first: Time,
    /// Proofs must be newer than this.
    since: Time,
}

/// What this coordinator heard and did not hear. Not durable.
#[derive(Debug, Default)]
pub(super) struct Suspicion {
    /// Reports of silent peers, by reporter and peer.
    reports: BTreeMap<(NodeId, NodeId), Report>,
    /// Removals that wait for proofs that the other holders run, and since when (P10.10).
    wanted: BTreeMap<Removal, Wanted>,
    failures: BTreeMap<NodeId, Failures>,
    /// Nodes that ended, and the time until which their positions wait for the next incarnation.
    waits: BTreeMap<NodeId, Time>,
    /// Silence before this time does not count: this coordinator could not hear anything.
    quiet_from: Option<Time>,
    /// No node is removed for silence before this time (P10.11).
    grace_until: Time,
    /// No node is removed for silence before this time, since too many failure domains were silent together. When some
    /// of them are heard again, the others may follow soon.
    healed_from: Time,
    /// From this time on every running node has had time to register with this coordinator.
    settled_from: Time,
    last_event: Time,
}

impl Suspicion {
    // --- when silence counts -------------------------------------------------------------------------------------

    /// Whether the coordinator has handled an event.
    fn has_begun(&self) -> bool {
        self.quiet_from.is_some()
    }

    /// `grace`: for how long nodes may need to register again after a start or a pause.
    fn on_event(&mut self, now: Time, suspicion: Span, grace: Option<Span>) {
        let (begins, absent) = (!self.has_begun(), now - self.last_event);
        if begins || self.stood_still(now, suspicion) {
            self.quiet_from = Some(now);
        }
        // Agents close a link that is silent for that long, so they must register again as after a start.
        if let Some(grace) = grace.filter(|_| begins || absent > fence::LINK_TIMEOUT) {
            self.settled_from = now + grace;
            self.begin_grace(now, grace);
        }
        self.last_event = now;
    }

    pub(super) fn last_event(&self) -> Time {
        self.last_event
    }

    /// Whether the coordinator had no events for so long that silence of that time does not count.
    fn stood_still(&self, now: Time, suspicion: Span) -> bool {
        now - self.last_event > Span(suspicion.0 / 2)
    }

    fn begin_grace(&mut self, now: Time, grace: Span) {
        self.grace_until = now + grace;
    }

    /// The lists have their first configurations: every planned node has just registered, so there is no node to wait
    /// for.
    pub(super) fn on_first_lists(&mut self, now: Time) {
        (self.grace_until, self.settled_from) = (now, now);
    }

    /// Too many failure domains are silent together. When some of them are heard again, the others may follow soon.
    pub(super) fn wait_for_others(&mut self, until: Time) {
        self.healed_from = until;
    }

    /// Whether the coordinator still waits for running nodes to register (P10.11).
    fn is_in_grace(&self, now: Time, has_lists: bool) -> bool {
        now < self.grace_until && has_lists
    }

    /// If no node is removed for silence now: the end of that wait.
    fn waits_until(&self, now: Time, has_lists: bool) -> Option<Time> {
        let grace_until = self.is_in_grace(now, has_lists).then_some(self.grace_until);
        grace_until.or_else(|| (now < self.healed_from).then_some(self.healed_from))
    }

    /// From this time on every running node has had time to register with this coordinator.
    pub(super) fn settled_from(&self) -> Time {
        self.settled_from
    }

    /// The time from which this incarnation counts as silent. `None`: it has not registered.
    fn silent_at(&self, presence: Option<&Presence>, suspicion: Span) -> Time {
        let from = self.quiet_from.unwrap_or_default();
        match presence {
            Some(presence) if presence.stays_silent() => presence.well_at() + suspicion,
            Some(presence) => presence.well_at().max(from) + suspicion,
            None => from + suspicion,
        }
    }

    pub(super) fn forget_old(&mut self, now: Time, suspicion: Span) {
        self.waits.retain(|_, until| now < *until);
        self.reports.retain(|_, report| now - report.latest <= suspicion);
        self.failures.retain(|_, failures| !failures.is_forgotten(now));
    }

    // --- removals ------------------------------------------------------------------------------------------------

    /// A decision wants these removals.
    pub(super) fn note_wants(&mut self, now: Time, wants: &BTreeSet<Removal>, suspicion: Span) {
        let fresh = self.wanted(now, suspicion);
        let before = core::mem::take(&mut self.wanted);
        let noted = |removal: &Removal| Wanted {
            first: before.get(removal).map_or(now, |wanted| wanted.first),
            since: fresh.get(removal).copied().unwrap_or(now),
        };
        self.wanted = wants.iter().map(|removal| (*removal, noted(removal))).collect();
    }

    /// Removals that wait, and the time that proofs must be newer than. One that has waited for very long is left out:
    /// it waits from now on, since the other holders may have died meanwhile.
    pub(super) fn wanted(&self, now: Time, suspicion: Span) -> BTreeMap<Removal, Time> {
        let proofs_max = Span(2 * suspicion.0) + PROOFS_MAX;
        let fresh = self.wanted.iter().filter(|(_, wanted)| now - wanted.since < proofs_max);
        fresh.map(|(removal, wanted)| (*removal, wanted.since)).collect()
    }

    /// The time that all proofs must be newer than.
    pub(super) fn latest_want(&self) -> Option<Time> {
        self.wanted.values().map(|wanted| wanted.since).max()
    }

    /// Whether a removal has been wanted for less than `within`.
    pub(super) fn is_any_wanted(&self, now: Time, within: Span) -> bool {
        self.wanted.values().any(|wanted| now - wanted.first < within)
    }

    // --- ended nodes ---------------------------------------------------------------------------------------------

    /// The node's positions wait for its next incarnation.
    pub(super) fn wait_for_next(&mut self, node: NodeId, until: Time) {
        self.waits.insert(node, until);
    }

    /// The next incarnation has registered.
    pub(super) fn end_wait(&mut self, node: NodeId) {
        self.waits.remove(&node);
    }

    /// Nodes that ended, and the time until which their positions wait for the next incarnation.
    pub(super) fn waits(&self) -> &BTreeMap<NodeId, Time> {
        &self.waits
    }

    pub(super) fn next_wait(&self) -> Option<Time> {
        self.waits.values().copied().min()
    }

    pub(super) fn count_failure(&mut self, now: Time, node: NodeId) {
        let before = self.failures.get(&node).map_or(0, |failures| failures.count);
        let count = before.saturating_add(1);
        self.failures.insert(node, Failures { count, latest: now });
    }

    /// P10.7: whether the node has failed repeatedly in the recent past.
    pub(super) fn is_flapping(&self, now: Time, node: NodeId) -> bool {
        self.failures
            .get(&node)
            .is_some_and(|failures| failures.is_flapping(now))
    }

    // --- broken links --------------------------------------------------------------------------------------------

    /// A node reports that it does not hear a peer.
    pub(super) fn report(&mut self, now: Time, from: NodeId, about: NodeId) {
        let report = self.reports.entry((from, about)).or_insert(Report {
            since: now,
            latest: now,
        });
        report.latest = now;
    }

    /// Another process of the node begins. What was said of the links of the one before does not count for it.
    pub(super) fn forget_reports(&mut self, node: NodeId) {
        self.reports.retain(|(from, about), _| *from != node && *about != node);
    }

    /// Links that available nodes have reported as broken for a whole suspicion time. A shorter pause, such as that of
    /// a process that waits for a processor, does not justify a rebuild.
    pub(super) fn broken_links(&self, facts: &Facts, suspicion: Span) -> Vec<BrokenLink> {
        let heard = |node: &NodeId| facts.nodes.get(node).is_some_and(|n| n.available);
        let reported: Vec<(NodeId, NodeId)> = self
            .reports
            .iter()
            .filter(|((from, about), report)| report.latest - report.since >= suspicion && heard(from) && heard(about))
            .map(|(pair, _)| *pair)
            .collect();
        let lasts = |pair: &(NodeId, NodeId)| {
            let report = self.reports.get(pair);
            report.is_some_and(|r| r.latest - r.since >= Span(suspicion.0 * LASTING_SUSPICIONS))
        };
        let count = |node: NodeId| reported.iter().filter(|(_, about)| *about == node).count();
        let pairs: BTreeSet<(NodeId, NodeId)> = reported.iter().map(|(a, b)| (*a.min(b), *a.max(b))).collect();
        pairs
            .into_iter()
            .map(|(a, b)| BrokenLink {
                a,
                a_reports: count(a),
                b,
                b_reports: count(b),
                lasting: lasts(&(a, b)) || lasts(&(b, a)),
            })
            .collect()
    }
}

impl<S: Store> Coordinator<S> {
    /// P10.7: a coordinator that has just started has heard no node, so silence before its start does not count. The
    /// same holds after a long pause of the process: messages that arrived meanwhile are not read yet. A process that
    /// was silent before the pause stays silent until it is heard.
    pub(super) fn notice_absence(&mut self, now: Time) {
        let plan = &self.records.plan;
        if !self.suspicion.has_begun() {
            let ended = self.records.nodes.values().filter(|n| n.has_ended());
            let wait = now + plan.restart_wait();
            self.suspicion.waits = ended.map(|n| (n.record.id, wait)).collect();
            self.leases.begin(now, !self.records.lists.is_empty());
        }
        let suspicion = plan.suspicion();
        let (last, before) = (self.suspicion.last_event(), &self.suspicion);
        if before.has_begun() && before.stood_still(now, suspicion) {
            let was_silent = |p: &&mut Presence| last >= before.silent_at(Some(p), suspicion);
            let presences = self.registry.presences_mut().map(|(_, presence)| presence);
            let silent = presences.filter(was_silent);
            silent.for_each(|presence| presence.note_silent(last));
        }
        let grace = (!self.broken.is(Mutant::NoGrace)).then(|| self.grace());
        self.suspicion.on_event(now, suspicion, grace);
    }

    pub(super) fn grace(&self) -> Span {
        fence::grace(self.records.plan.suspicion(), self.registry.addresses())
    }

    /// P10.11: if too few nodes are linked, the coordinator itself may be cut off.
    pub(super) fn notice_links(&mut self, now: Time) {
        if self.lacks_links(now).is_some() {
            self.suspicion.begin_grace(now, self.grace());
        }
    }

    /// If too few holders are linked: the required number, and the holders that are not linked.
    pub(super) fn lacks_links(&self, now: Time) -> Option<(usize, Vec<NodeId>)> {
        let holders = self.holders(now);
        let is_linked = |id: &NodeId| self.registry.is_linked(now, *id, holders[id].incarnation);
        let away: Vec<NodeId> = holders.keys().filter(|id| !is_linked(id)).copied().collect();
        let wanted = fence::witnesses(holders.len(), self.records.plan.parity.into());
        let lacks = holders.len() - away.len() < wanted && !holders.is_empty();
        lacks.then_some((wanted, away))
    }

    /// P10.13: nodes of which a process waits for the place of another one, and that process. It asks again and again.
    pub(super) fn seconds(&self, now: Time) -> impl Iterator<Item = (NodeId, Incarnation)> {
        self.registry.seconds(now, fence::LINK_TIMEOUT)
    }

    /// Nodes that hold a position in their present incarnation, which is not known to have ended.
    fn holders(&self, now: Time) -> BTreeMap<NodeId, Holder> {
        let mut holders = BTreeMap::new();
        let held = self.records.lists.values().flat_map(|c| c.positions.iter().flatten());
        for tenure in held.map(|a| a.tenure) {
            let node = self.records.nodes.get(&tenure.node);
            let Some(node) = node.filter(|n| n.record.incarnation == tenure.incarnation && !n.has_ended()) else {
                continue;
            };
            holders.entry(tenure.node).or_insert_with(|| Holder {
                incarnation: tenure.incarnation,
                domain: node.record.domain.clone(),
                available: self.is_available(now, node),
                silent: self.is_silent(now, node),
            });
        }
        holders
    }

    /// Whether a node has a configuration by which the two are peers: one holds data, the other parity.
    fn knows_peer(&self, node: NodeId, peer: NodeId, lacks: &BTreeSet<ListId>) -> bool {
        let mut known = self.records.lists.values().filter(|c| !lacks.contains(&c.list));
        known.any(|c| {
            let holds = |node, is_data| c.of_node(node).any(|(position, _)| c.is_data(position) == is_data);
            (holds(node, true) && holds(peer, false)) || (holds(node, false) && holds(peer, true))
        })
    }

    /// Decides which silent nodes may be removed (P10.9 to P10.11).
    pub(super) fn judge_silence(&self, now: Time) -> Silence {
        let opinion = |of: NodeId, about: NodeId, incarnation: Incarnation| {
            let presence = self.registry.presence(of);
            match presence {
                _ if self.broken.is(Mutant::NoVotes) => Opinion::Unheard,
                Some(presence) => match presence.opinion(about, incarnation) {
                    // The node may not know that they are peers, so it does not check whether it hears the other.
                    Opinion::Hears if !self.knows_peer(of, about, &presence.lacks) => Opinion::Unsure,
                    opinion => opinion,
                },
                None => Opinion::Unsure,
            }
        };
        let mut parity = self.records.plan.parity.into();
        if self.broken.is(Mutant::NoHold) {
            parity = usize::MAX;
        }
        Silence::judge(
            &self.holders(now),
            self.records.lists.values(),
            self.suspicion.waits_until(now, !self.records.lists.is_empty()),
            parity,
            opinion,
        )
    }

    /// The time from which this incarnation counts as silent. `None`: it has not registered.
    pub(super) fn silent_at(&self, presence: Option<&Presence>) -> Time {
        self.suspicion.silent_at(presence, self.records.plan.suspicion())
    }

    /// Whether the node is registered with this coordinator, heard, and not ended.
    pub(super) fn is_available(&self, now: Time, node: &StoredNode) -> bool {
        let presence = self.registry.recorded(&node.record);
        presence.is_some() && !node.has_ended() && now < self.silent_at(presence)
    }

    /// Whether the coordinator does not hear the node, and no longer waits for it to register.
    pub(super) fn is_silent(&self, now: Time, node: &StoredNode) -> bool {
        let presence = self.registry.recorded(&node.record);
        now >= self.silent_at(presence) && !self.suspicion.is_in_grace(now, !self.records.lists.is_empty())
    }

    /// Whether a node was up when this coordinator started, and may still register (P10.12).
    pub(super) fn is_awaited(&self, now: Time, node: &StoredNode) -> bool {
        let may_come = node.record.state == NodeState::Up && !node.has_ended() && now < self.suspicion.settled_from();
        may_come && !self.is_available(now, node)
    }

    /// A time after which the incarnation certainly ran. A peer that hears a silent node has had a frame of it within a
    /// suspicion time before its look, and looks each quarter of one. One more quarter is for a look that was late.
    pub(super) fn proof(&self, record: &NodeRecord, said: Option<&Vec<(NodeId, Opinion)>>) -> Option<Time> {
        let any_frame = self.broken.is(Mutant::LateFrameProves);
        let own = self.registry.recorded(record).map(|p| p.proven_at(any_frame));
        let hears = said.into_iter().flatten().filter(|(_, said)| *said == Opinion::Hears);
        let reported = hears.filter_map(|(peer, _)| Some(self.registry.presence(*peer)?.reported_after(any_frame)));
        let by_peers = reported
            .map(|at| Time(at.0.saturating_sub(self.records.plan.suspicion().0 * 3 / 2)))
            .max();
        own.max(by_peers)
    }
}
