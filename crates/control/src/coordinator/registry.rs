//! Which processes have registered, by which links, and what they have reported about processes. Not durable.

use super::presence::Presence;
use crate::fence;
use crate::message::{Opinions, Registration};
use crate::plan::NODES_MAX;
use paritas_base::configuration::{NodeRecord, Tenure};
use paritas_base::{Incarnation, ListId, NodeId, Prng, Span, Time};
use paritas_protocol::LinkId;
use std::collections::{BTreeMap, BTreeSet};

/// Limit of certificates that wait for their commit.
const UNANSWERED_MAX: usize = 4 * NODES_MAX;
/// Limit of coordinator addresses that an agent may know.
const ADDRESSES_MAX: u8 = 8;

#[derive(Debug, Default)]
struct Link {
    /// A registration whose nonce no heartbeat has repeated yet, and that nonce.
    pending: Option<(u64, Box<Registration>)>,
    /// The incarnation that registered by this link, and its nonce.
    node: Option<(NodeId, Incarnation, u64)>,
    /// The link was sent all records and is sent every later change.
    subscribed: bool,
    /// The newest batch of configurations whose ids the peer has confirmed.
    witnessed: u64,
    /// Incarnations whose end the peer may certify.
    supervises: BTreeSet<(NodeId, Incarnation)>,
}

/// A process that asks whether it may end (P10.20).
#[derive(Clone, Copy, Debug)]
struct Leaver {
    incarnation: Incarnation,
    /// On which it asks.
    link: LinkId,
    /// Since when it could go if all others ran: their proofs have to be newer.
    since: Time,
    /// It was permitted on this link, and may have ended. That is not taken back: the answer may be on its way.
    may: bool,
}

/// The registered processes and their links.
#[derive(Debug)]
pub(super) struct Registry {
    links: BTreeMap<LinkId, Link>,
    /// The registered incarnation of each node.
    presences: BTreeMap<NodeId, Presence>,
    /// Confirmed registrations that are not committed yet.
    claims: BTreeMap<NodeId, Registration>,
    /// Certificates that are not committed yet.
    ended: BTreeSet<(NodeId, Incarnation)>,
    /// Certificates that are answered once they are committed.
    unanswered: BTreeSet<(LinkId, NodeId, Incarnation)>,
    /// Processes that ask whether they may end.
    leavers: BTreeMap<NodeId, Leaver>,
    /// When each node last asked to register, in any incarnation. It can reach the coordinator.
    contacts: BTreeMap<NodeId, Time>,
    /// The incarnation of each node that last asked to register while it was the present one, and when: it may run,
    /// although it is not registered.
    asked: BTreeMap<NodeId, (Incarnation, Time)>,
    /// The process of each node that last asked to register and has to wait for another one (P10.13), and when.
    seconds: BTreeMap<NodeId, (Incarnation, Time)>,
    /// The latest incarnation of each node that any registered node knows, and its ordinal.
    incarnations: BTreeMap<NodeId, (Incarnation, u32)>,
    /// The largest number of coordinator addresses that any agent knows. An agent dials them one after the other.
    addresses: u8,
    nonces: Prng,
}

impl Registry {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            links: BTreeMap::new(),
            presences: BTreeMap::new(),
            claims: BTreeMap::new(),
            ended: BTreeSet::new(),
            unanswered: BTreeSet::new(),
            leavers: BTreeMap::new(),
            contacts: BTreeMap::new(),
            asked: BTreeMap::new(),
            seconds: BTreeMap::new(),
            incarnations: BTreeMap::new(),
            addresses: 1,
            nonces: Prng::new(seed),
        }
    }

    // --- links ---------------------------------------------------------------------------------------------------

    pub(super) fn connect(&mut self, link: LinkId) {
        self.links.entry(link).or_default();
    }

    pub(super) fn disconnect(&mut self, link: LinkId) {
        self.links.remove(&link);
        self.unanswered.retain(|(of, ..)| *of != link);
    }

    pub(super) fn is_connected(&self, link: LinkId) -> bool {
        self.links.contains_key(&link)
    }

    /// Links that are sent every change of the records.
    pub(super) fn subscribed(&self) -> impl Iterator<Item = LinkId> {
        self.links.iter().filter(|(_, l)| l.subscribed).map(|(link, _)| *link)
    }

    /// Whether the link's process is the holder in this tenure.
    pub(super) fn is_holder(&self, link: LinkId, tenure: &Tenure) -> bool {
        let asker = self.links.get(&link).and_then(|l| l.node);
        asker.is_some_and(|(node, incarnation, _)| (node, incarnation) == (tenure.node, tenure.incarnation))
    }

    // --- registration --------------------------------------------------------------------------------------------

    /// A node asks to register.
    pub(super) fn note_contact(&mut self, now: Time, node: NodeId) {
        self.contacts.insert(node, now);
    }

    /// The present incarnation of a node asks to register.
    pub(super) fn note_asked(&mut self, now: Time, node: NodeId, incarnation: Incarnation) {
        self.asked.insert(node, (incarnation, now));
    }

    /// When an incarnation of a node last asked to register.
    pub(super) fn asked_at(&self, node: NodeId, incarnation: Incarnation) -> Option<Time> {
        let asked = self.asked.get(&node);
        asked.filter(|(of, _)| *of == incarnation).map(|(_, at)| *at)
    }

    /// A process asks for the place of a node that another process may have.
    pub(super) fn note_second(&mut self, now: Time, node: NodeId, incarnation: Incarnation) {
        self.seconds.insert(node, (incarnation, now));
    }

    /// Nodes of which a process waits for the place of another one, and that process. It has asked within this time.
    pub(super) fn seconds(&self, now: Time, within: Span) -> impl Iterator<Item = (NodeId, Incarnation)> {
        let waiting = self.seconds.iter().filter(move |(_, (_, at))| now - *at < within);
        waiting.map(|(node, (incarnation, _))| (*node, *incarnation))
    }

    /// Keeps a registration until a heartbeat repeats the returned nonce. `None`: the link has ended.
    pub(super) fn begin(&mut self, link: LinkId, registration: Box<Registration>) -> Option<u64> {
        let nonce = self.nonces.next_u64();
        let state = self.links.get_mut(&link)?;
        state.pending = Some((nonce, registration));
        state.node = None;
        state.witnessed = 0;
        state.subscribed = true;
        Some(nonce)
    }

    /// The registration that this nonce confirms.
    pub(super) fn take_pending(&mut self, link: LinkId, nonce: u64) -> Option<Box<Registration>> {
        let pending = &mut self.links.get_mut(&link)?.pending;
        pending
            .take_if(|(of, _)| *of == nonce)
            .map(|(_, registration)| registration)
    }

    /// The process runs and has registered. It did not have the newest configuration of the lists that it `lacks`.
    pub(super) fn confirm(
        &mut self,
        now: Time,
        link: LinkId,
        nonce: u64,
        registration: Registration,
        lacks: BTreeSet<ListId>,
    ) {
        let (node, incarnation) = (registration.node, registration.incarnation);
        self.seconds.remove(&node);
        if let Some(state) = self.links.get_mut(&link) {
            state.node = Some((node, incarnation, nonce));
        }
        self.addresses = self.addresses.max(registration.coordinators.min(ADDRESSES_MAX));
        let mut presence = Presence::new(now, incarnation, link);
        presence.lacks = lacks;
        if let Some(before) = self.presences.insert(node, presence)
            && let Some(older) = self.links.get_mut(&before.link).filter(|_| before.link != link)
        {
            older.subscribed = false;
        }
        self.learn_incarnations(&registration.incarnations);
        self.claims.insert(node, registration);
    }

    fn learn_incarnations(&mut self, reported: &[(NodeId, Incarnation, u32)]) {
        for (node, incarnation, count) in reported.iter().take(NODES_MAX).copied() {
            let known = self.incarnations.get(&node);
            let has_room = known.is_some() || self.incarnations.len() < NODES_MAX;
            if has_room && known.is_none_or(|(_, known)| *known < count) {
                self.incarnations.insert(node, (incarnation, count));
            }
        }
    }

    /// The process that has registered by this link with this nonce.
    pub(super) fn registered(&self, link: LinkId, nonce: u64) -> Option<(NodeId, Incarnation)> {
        let (node, incarnation, known) = self.links.get(&link)?.node?;
        (known == nonce).then_some((node, incarnation))
    }

    /// Confirmed registrations that are not committed yet.
    pub(super) fn claims(&self) -> &BTreeMap<NodeId, Registration> {
        &self.claims
    }

    /// These processes are not taken in. Their next heartbeat is answered that they must register again.
    pub(super) fn drop_claims(&mut self, is_dropped: impl Fn(&Registration) -> bool) {
        let (links, presences) = (&mut self.links, &mut self.presences);
        self.claims.retain(|node, claim| {
            if !is_dropped(claim) {
                return true;
            }
            let presence = presences.get(node).filter(|p| p.incarnation == claim.incarnation);
            if let Some(link) = presence.and_then(|presence| links.get_mut(&presence.link)) {
                (link.node, link.subscribed) = (None, false);
            }
            if presence.is_some() {
                presences.remove(node);
            }
            false
        });
    }

    /// The latest incarnation of the node that any registered node knows, and its ordinal.
    pub(super) fn latest(&self, node: NodeId) -> Option<(Incarnation, u32)> {
        self.incarnations.get(&node).copied()
    }

    /// The largest number of coordinator addresses that any agent knows.
    pub(super) fn addresses(&self) -> u8 {
        self.addresses
    }

    /// After a commit of all claims and certificates. Returns the certificates to answer, with their links.
    pub(super) fn clear_committed(&mut self) -> BTreeSet<(LinkId, NodeId, Incarnation)> {
        self.claims.clear();
        self.ended.clear();
        core::mem::take(&mut self.unanswered)
    }

    // --- presences -----------------------------------------------------------------------------------------------

    /// All registered processes.
    pub(super) fn presences(&self) -> &BTreeMap<NodeId, Presence> {
        &self.presences
    }

    /// The node's registered process.
    pub(super) fn presence(&self, node: NodeId) -> Option<&Presence> {
        self.presences.get(&node)
    }

    /// The node's registered process, if it is this incarnation.
    pub(super) fn presence_of(&self, node: NodeId, incarnation: Incarnation) -> Option<&Presence> {
        self.presences.get(&node).filter(|p| p.incarnation == incarnation)
    }

    /// The node's registered process, if it is the incarnation of its record.
    pub(super) fn recorded(&self, record: &NodeRecord) -> Option<&Presence> {
        self.presence_of(record.id, record.incarnation)
    }

    /// The node's registered process, if it has registered by this link.
    pub(super) fn presence_on(&mut self, link: LinkId, node: NodeId) -> Option<&mut Presence> {
        self.presences.get_mut(&node).filter(|p| p.link == link)
    }

    /// All registered processes, to be changed.
    pub(super) fn presences_mut(&mut self) -> impl Iterator<Item = (&NodeId, &mut Presence)> {
        self.presences.iter_mut()
    }

    /// A process reports which peers it hears. True if the report has changed.
    pub(super) fn vote(&mut self, link: LinkId, nonce: u64, opinions: Option<Opinions>) -> bool {
        let registered = self.registered(link, nonce);
        let presence = registered.and_then(|(node, _)| self.presence_on(link, node));
        match (presence, opinions) {
            (Some(presence), Some(opinions)) => presence.vote(opinions),
            _ => false,
        }
    }

    /// Whether the incarnation is linked, or its node has just asked to register.
    pub(super) fn is_linked(&self, now: Time, node: NodeId, incarnation: Incarnation) -> bool {
        let presence = self.presence_of(node, incarnation);
        let linked = presence.is_some_and(|p| self.links.contains_key(&p.link));
        let contact = self.contacts.get(&node);
        linked || contact.is_some_and(|at| now - *at < fence::LINK_TIMEOUT)
    }

    // --- certificates --------------------------------------------------------------------------------------------

    /// The link's supervisor announces a process whose end it may certify.
    pub(super) fn on_supervise(&mut self, link: LinkId, node: NodeId, incarnation: Incarnation) {
        let supervises = self.links.get_mut(&link).map(|l| &mut l.supervises);
        if let Some(incarnations) = supervises.filter(|incarnations| incarnations.len() < NODES_MAX) {
            incarnations.insert((node, incarnation));
        }
    }

    /// Whether the link's supervisor had announced this process. It counts once.
    pub(super) fn take_supervised(&mut self, link: LinkId, node: NodeId, incarnation: Incarnation) -> bool {
        let link = self.links.get_mut(&link);
        link.is_some_and(|l| l.supervises.remove(&(node, incarnation)))
    }

    /// True if it was not known yet.
    pub(super) fn note_ended(&mut self, node: NodeId, incarnation: Incarnation) -> bool {
        self.ended.insert((node, incarnation))
    }

    /// A certificate is answered by this link once it is committed. Beyond the limit it is not: it is said again.
    pub(super) fn answer_later(&mut self, link: LinkId, node: NodeId, incarnation: Incarnation) {
        if self.unanswered.len() < UNANSWERED_MAX {
            self.unanswered.insert((link, node, incarnation));
        }
    }

    /// Whether this process may still be taken in: a heartbeat of it may be on its way.
    pub(super) fn is_offered(&self, node: NodeId, incarnation: Incarnation) -> bool {
        let is = |of: &Registration| (of.node, of.incarnation) == (node, incarnation);
        let mut pending = self.links.values().filter_map(|l| l.pending.as_ref());
        self.claims.values().any(is) || pending.any(|(_, registration)| is(registration))
    }

    /// Certificates that are not committed yet.
    pub(super) fn ended(&self) -> &BTreeSet<(NodeId, Incarnation)> {
        &self.ended
    }

    // --- processes that are to end -------------------------------------------------------------------------------

    /// A process asks whether it may end. Returns since when nothing but proofs is in its way, at most for `within`. A
    /// process that was permitted registers no more. So if it asks on another link, the permission was lost with the
    /// one before, and has no effect.
    pub(super) fn ask_to_leave(
        &mut self,
        now: Time,
        link: LinkId,
        (node, incarnation): (NodeId, Incarnation),
        within: Span,
    ) -> Time {
        let fresh = Leaver {
            incarnation,
            link,
            since: now,
            may: false,
        };
        let leaver = self.leavers.entry(node).or_insert(fresh);
        if (leaver.incarnation, leaver.link) != (incarnation, link) {
            *leaver = fresh;
        }
        if now - leaver.since > within {
            leaver.since = now;
        }
        leaver.since
    }

    /// Something else is in the way of a process that asks.
    pub(super) fn ask_anew(&mut self, now: Time, node: NodeId) {
        if let Some(leaver) = self.leavers.get_mut(&node) {
            leaver.since = now;
        }
    }

    /// The process that asks may end.
    pub(super) fn let_leave(&mut self, node: NodeId) {
        if let Some(leaver) = self.leavers.get_mut(&node) {
            leaver.may = true;
        }
    }

    /// Whether the process was told that it may end.
    pub(super) fn may_leave(&self, node: NodeId, incarnation: Incarnation) -> bool {
        let leaver = self.leavers.get(&node).filter(|l| l.incarnation == incarnation);
        leaver.is_some_and(|l| l.may)
    }

    // --- released configurations ---------------------------------------------------------------------------------

    /// The link's peer knows the ids of a batch and of all earlier batches.
    pub(super) fn note_witnessed(&mut self, link: LinkId, batch: u64) {
        if let Some(link) = self.links.get_mut(&link) {
            link.witnessed = link.witnessed.max(batch);
        }
    }

    /// Whether the node's registered process knows the ids of a batch.
    pub(super) fn has_witnessed(&self, node: NodeId, batch: u64) -> bool {
        let link = self.presences.get(&node).and_then(|p| self.links.get(&p.link));
        link.is_some_and(|l| l.witnessed >= batch && l.node.is_some_and(|(of, ..)| of == node))
    }

    /// The newest configurations of these lists are sent to all.
    pub(super) fn note_sent(&mut self, lists: &[ListId]) {
        for presence in self.presences.values_mut() {
            presence.lacks.retain(|list| !lists.contains(list));
        }
    }
}
