//! The coordinator as a state machine. Its inputs are messages and time. Its outputs are commits to the store, and
//! then messages.
//!
//! An event only updates the coordinator's view of the cluster: which nodes registered, which are heard, which
//! incarnations ended. Then [`Coordinator::decide`] computes every record that must change, commits the changes in one
//! transaction, and sends them. So the changes of one event are one transaction (P10.1), and only committed records are
//! sent. After a failed commit the next decision computes the changes again.

pub(crate) mod admit;
mod decide;
mod duty;
mod listen;
mod note;
mod orders;
mod presence;
mod registry;
mod release;
mod report;
mod slot_moves;
mod slow;
pub(crate) mod trouble;
mod witnesses;

use crate::fence::{self, Holder, Opinion, Silence};
use crate::message::{Registration, TO_AGENT_BYTES_MAX, ToAgent, encode};
use crate::mutant::{Broken, Mutant};
use crate::plan::ClusterPlan;
use crate::record::{End, OpenError, Records, StoredNode};
use crate::store::Store;
pub use note::Note;
use paritas_base::configuration::{ClusterRecord, Configuration, Duty, NodeRecord, NodeState, Tenure};
use paritas_base::{Clock, Incarnation, ListId, NodeId, Position, Prng, Span, Time};
use paritas_protocol::LinkId;
use presence::Presence;
use registry::Registry;
pub(crate) use slot_moves::SlotTask;
use std::collections::{BTreeMap, BTreeSet};
use witnesses::Witnesses;

/// Longest address, in bytes.
const ADDRESS_BYTES_MAX: usize = 255;
/// Silent peers that one heartbeat may name.
pub const SILENT_MAX: usize = 64;
/// A node's failures are forgotten after this time without another failure.
const FAILURES_FORGOTTEN: Span = Span::from_secs(60);
/// After a node was fenced for a broken link, it gets no position of that list for this time.
const AVOID_SPAN: Span = Span::from_secs(10);
/// A node that holds two positions of a list may fill one of them for this time. Then the position goes to a free node.
const STUCK_SPAN: Span = Span::from_secs(30);

/// What happens to a coordinator.
#[derive(Debug)]
pub enum CoordinatorEvent<'a> {
    /// A peer has connected.
    Connected {
        /// The new link. Its id is never used again.
        link: LinkId,
    },
    /// A link has ended.
    Disconnected {
        /// The link.
        link: LinkId,
    },
    /// One whole frame, as `message::split` found it.
    Message {
        /// The link on which it arrived.
        link: LinkId,
        /// The frame.
        bytes: &'a [u8],
    },
    /// `next_deadline` has passed.
    Timer,
}

/// What a driver offers its coordinator.
pub trait CoordinatorOut {
    /// Send a whole frame.
    fn send(&mut self, link: LinkId, bytes: &[u8]);
    /// Send what is queued, then close the link.
    fn close(&mut self, link: LinkId);
    /// An event for the operator: log and count it.
    fn note(&mut self, note: Note);
}

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

/// The coordinator of one cluster.
#[derive(Debug)]
pub struct Coordinator<S> {
    store: S,
    records: Records,
    /// For each list the planned node of every position.
    homes: Vec<Vec<NodeId>>,
    /// Positions of one list that one failure domain may hold.
    per_domain_max: usize,
    registry: Registry,
    /// Nodes that ended, and the time until which their positions wait for the next incarnation.
    waits: BTreeMap<NodeId, Time>,
    /// Reports of silent peers, by reporter and peer.
    reports: BTreeMap<(NodeId, NodeId), Report>,
    /// Nodes that get no position of a list until the given time, since a broken link was found there.
    avoided: BTreeMap<(ListId, NodeId), Time>,
    moves: duty::Moves,
    slot_orders: slot_moves::SlotOrders,
    orders: orders::Orders,
    slow: slow::SlowNodes,
    /// The last holder of each vacant position.
    vacated: BTreeMap<(ListId, Position), NodeId>,
    /// Incarnations removed from a list without a certificate, and when. Their leases may still be valid.
    recent: BTreeMap<(ListId, NodeId, Incarnation), Time>,
    /// `recent` lacks removals before this time: an earlier coordinator made them.
    recent_from: Option<Time>,
    failures: BTreeMap<NodeId, Failures>,
    /// Positions whose holders have asked to become Live since the last decision.
    whole: Vec<(ListId, Position, Tenure)>,
    /// Positions that are Filling at a node with a second position of the list, and since when.
    doubled: BTreeMap<(ListId, Position, Tenure), Time>,
    /// A member of a list may hold a second position of it (P10.5).
    stand_in: bool,
    /// Silence before this time does not count: this coordinator could not hear anything.
    quiet_from: Option<Time>,
    /// No node is removed for silence before this time (P10.11).
    grace_until: Time,
    /// No node is removed for silence before this time, since too many failure domains were silent together. When some
    /// of them are heard again, the others may follow soon.
    healed_from: Time,
    /// Suspects, and since when each is one without a break.
    suspected: BTreeMap<NodeId, (Incarnation, Time)>,
    /// From this time on every running node has had time to register with this coordinator.
    settled_from: Time,
    /// Configurations that are committed but not sent yet.
    releases: release::Releases,
    witnesses: Witnesses,
    last_event: Time,
    next_tick: Time,
    /// The outcome of the last commit is unknown.
    unsure: bool,
    /// Another coordinator has opened the store.
    deposed: bool,
    broken: Broken,
}

impl<S: Store> Coordinator<S> {
    /// Writes a new cluster into an empty store. A coordinator does not do this by itself: after the loss of a store it
    /// would make another, empty cluster (P10.16).
    ///
    /// # Errors
    /// If the plan is invalid, the store fails, or the store has a cluster already.
    pub fn create(store: &mut S, plan: &ClusterPlan) -> Result<(), OpenError> {
        Records::create(store, plan)
    }

    /// Opens the store of an existing cluster. The coordinator that had opened it before cannot commit any more. The
    /// seed is for nonces and must be different at every start.
    ///
    /// # Errors
    /// If the plan is invalid, or if the store fails, is empty, has another cluster, or has records that this version
    /// cannot read.
    pub fn open(mut store: S, plan: &ClusterPlan, seed: u64) -> Result<Self, OpenError> {
        let records = Records::open(&mut store, plan)?;
        let layout = records.plan.layout();
        let releases = release::Releases::new(&records.lists);
        Ok(Self {
            store,
            records,
            homes: layout.lists,
            per_domain_max: layout.per_domain_max,
            registry: Registry::new(seed),
            waits: BTreeMap::new(),
            reports: BTreeMap::new(),
            avoided: BTreeMap::new(),
            moves: duty::Moves::default(),
            slot_orders: slot_moves::SlotOrders::default(),
            orders: orders::Orders::default(),
            slow: slow::SlowNodes::default(),
            vacated: BTreeMap::new(),
            recent: BTreeMap::new(),
            recent_from: None,
            failures: BTreeMap::new(),
            whole: Vec::new(),
            doubled: BTreeMap::new(),
            stand_in: true,
            quiet_from: None,
            grace_until: Time::default(),
            healed_from: Time::default(),
            settled_from: Time::default(),
            releases,
            suspected: BTreeMap::new(),
            witnesses: Witnesses::default(),
            last_event: Time::default(),
            next_tick: Time::default(),
            unsure: false,
            deposed: false,
            broken: Broken::default(),
        })
    }

    /// Sets whether a member of a list may hold a second position of it where no other node is free (P10.5). The
    /// default is true. The setting is not part of the plan, so it may change at every start.
    pub fn set_stand_in(&mut self, may: bool) {
        self.stand_in = may;
    }

    /// Disables a rule, to test that the simulator finds the fault.
    #[cfg(feature = "mutants")]
    pub fn break_rule(&mut self, mutant: Option<Mutant>) {
        self.broken.mutant = mutant;
        self.records.broken.mutant = mutant;
    }

    /// Marks a link as one from the coordinator's own machine. Orders that can lose data are accepted only there.
    pub fn set_local(&mut self, link: LinkId) {
        self.registry.set_local(link);
    }

    /// Handles one event.
    pub fn on(&mut self, now: Clock, event: CoordinatorEvent<'_>, out: &mut impl CoordinatorOut) {
        let now = now.mono;
        self.notice_absence(now);
        let decide = match event {
            CoordinatorEvent::Connected { link } => {
                self.registry.connect(link);
                false
            }
            CoordinatorEvent::Disconnected { link } => {
                // A broken connection does not mean that the process ended: only silence and certificates count.
                self.registry.disconnect(link);
                self.withdraw_orders(link);
                self.notice_links(now);
                false
            }
            CoordinatorEvent::Message { link, bytes } => self.on_message(now, link, bytes, out),
            CoordinatorEvent::Timer => false,
        };
        self.notice_witnesses();
        if decide || now >= self.next_tick || self.next_wait().is_some_and(|at| now >= at) {
            self.next_tick = now + Span(self.suspicion().0 / 4);
            self.decide(now, out);
        }
        self.release(now, out);
    }

    /// The time by which [`CoordinatorEvent::Timer`] must be given.
    pub fn next_deadline(&self) -> Option<Time> {
        let silence = |(id, presence): (&NodeId, &Presence)| {
            let up = self
                .records
                .nodes
                .get(id)
                .is_some_and(|n| n.record.state == NodeState::Up);
            up.then(|| self.silent_at(Some(presence)))
        };
        let silence = self
            .registry
            .presences()
            .iter()
            .filter_map(silence)
            .filter(|at| *at > self.last_event)
            .min();
        let times = [Some(self.next_tick), self.next_wait(), silence];
        times.into_iter().flatten().min()
    }

    /// The cluster's record.
    pub fn cluster(&self) -> &ClusterRecord {
        &self.records.cluster
    }

    /// The plan of the cluster, with later changes of settings.
    pub fn plan(&self) -> &ClusterPlan {
        &self.records.plan
    }

    /// Every list's committed configuration.
    pub fn configurations(&self) -> impl Iterator<Item = &Configuration> {
        self.records.lists.values()
    }

    /// Every node's committed record.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeRecord> {
        self.records.nodes.values().map(|n| &n.record)
    }

    /// Whether another coordinator has opened the store. This one refuses all messages.
    pub fn is_deposed(&self) -> bool {
        self.deposed
    }

    /// Ends the coordinator and returns its store.
    pub fn into_store(self) -> S {
        self.store
    }

    /// The store, so that a test can make it fail.
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    fn suspicion(&self) -> Span {
        Span::from_ms(self.records.plan.suspicion_ms.into())
    }

    /// The time after which all leases of a removed incarnation have ended, with a margin.
    fn leases_end_after(&self) -> Span {
        Span::from_ms(u64::from(self.records.plan.lease_ms) * 5 / 2)
    }

    fn next_wait(&self) -> Option<Time> {
        self.waits.values().copied().min()
    }

    /// P10.7: a coordinator that has just started has heard no node, so silence before its start does not count. The
    /// same holds after a long pause of the process: messages that arrived meanwhile are not read yet.
    fn notice_absence(&mut self, now: Time) {
        if self.quiet_from.is_none() {
            let wait = now + Span::from_ms(self.records.plan.restart_wait_ms.into());
            let ended = self
                .records
                .nodes
                .values()
                .filter(|n| n.has_ended())
                .map(|n| n.record.id);
            self.waits = ended.map(|id| (id, wait)).collect();
            // An earlier coordinator may have removed an incarnation from an existing list just before.
            self.recent_from = (!self.records.lists.is_empty()).then_some(now);
        }
        let (begins, absent) = (self.quiet_from.is_none(), now - self.last_event);
        if begins || absent > Span(self.suspicion().0 / 2) {
            self.quiet_from = Some(now);
        }
        // Agents close a link that is silent for that long, so they must register again as after a start.
        if (begins || absent > fence::LINK_TIMEOUT) && !self.broken.is(Mutant::NoGrace) {
            self.settled_from = now + self.grace();
            self.begin_grace(now);
        }
        self.last_event = now;
    }

    fn begin_grace(&mut self, now: Time) {
        self.grace_until = now + self.grace();
    }

    fn grace(&self) -> Span {
        fence::grace(self.suspicion(), self.registry.addresses())
    }

    /// P10.11: if too few nodes are linked, the coordinator itself may be cut off.
    fn notice_links(&mut self, now: Time) {
        if self.lacks_links(now).is_some() {
            self.begin_grace(now);
        }
    }

    /// If too few holders are linked: the required number, and the holders that are not linked.
    fn lacks_links(&self, now: Time) -> Option<(usize, Vec<NodeId>)> {
        let holders = self.holders(now);
        let is_linked = |id: &NodeId| self.registry.is_linked(now, *id, holders[id].incarnation);
        let away: Vec<NodeId> = holders.keys().filter(|id| !is_linked(id)).copied().collect();
        let wanted = fence::witnesses(holders.len(), self.records.plan.parity.into());
        let lacks = holders.len() - away.len() < wanted && !holders.is_empty();
        lacks.then_some((wanted, away))
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
    fn judge_silence(&self, now: Time) -> Silence {
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
        let grace_until = self.is_in_grace(now).then_some(self.grace_until);
        let grace_until = grace_until.or_else(|| (now < self.healed_from).then_some(self.healed_from));
        let mut parity = self.records.plan.parity.into();
        if self.broken.is(Mutant::NoHold) {
            parity = usize::MAX;
        }
        Silence::judge(
            &self.holders(now),
            self.records.lists.values(),
            grace_until,
            parity,
            opinion,
        )
    }

    /// Whether the coordinator still waits for running nodes to register (P10.11).
    fn is_in_grace(&self, now: Time) -> bool {
        now < self.grace_until && !self.records.lists.is_empty()
    }

    /// The time from which this incarnation counts as silent. `None`: it has not registered.
    fn silent_at(&self, presence: Option<&Presence>) -> Time {
        let from = self.quiet_from.unwrap_or_default();
        presence.map_or(from, |p| p.well_at().max(from)) + self.suspicion()
    }
}

/// Encodes and sends a message. One that is longer than agents accept is reported and dropped; the limits of a plan
/// prevent that.
pub(crate) fn send(out: &mut impl CoordinatorOut, link: LinkId, message: &ToAgent) {
    match encode(message, TO_AGENT_BYTES_MAX) {
        Ok(frame) => out.send(link, &frame),
        Err(error) => out.note(Note::Unsent(error)),
    }
}

/// The record of a node that registers for the first time.
pub(crate) fn first_record(registration: &Registration, domain: String) -> StoredNode {
    let record = NodeRecord {
        id: registration.node,
        incarnation: registration.incarnation,
        ordinal: 1,
        domain,
        role: registration.role,
        state: NodeState::Up,
        pid: registration.pid,
        client_address: registration.client_address.clone(),
        cluster_address: registration.cluster_address.clone(),
        peer_address: registration.peer_address.clone(),
    };
    StoredNode {
        record,
        end: End::Unknown,
        past: Vec::new(),
        duty: Duty::Full,
    }
}

#[cfg(test)]
mod tests;
