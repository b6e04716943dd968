//! The coordinator as a machine: messages and time go in; commits to the store, then messages, come out.
//!
//! An event only changes what is known (who registered, who is heard, which incarnation ended). Then
//! [`Coordinator::decide`] looks at all of it, works out every record that should be another, commits them in one
//! transaction, and sends them. So what one event changes is one transaction (P10.1), nothing is sent that is not
//! committed, and a commit that fails is simply worked out again.

pub(crate) mod admit;
mod decide;
mod duty;
mod listen;
mod orders;
mod presence;
mod release;
mod report;
mod slot_moves;
mod slow;
pub(crate) mod trouble;

use crate::fence::{self, Holder, Opinion, Silence};
use crate::message::{MessageError, Registration, Settings, TO_AGENT_BYTES_MAX, ToAgent, encode};
use crate::mutant::{Broken, Mutant};
use crate::plan::ClusterPlan;
use crate::record::{End, OpenError, Records, StoredNode};
use crate::status::HaltedRole;
use crate::store::Store;
use paritas_base::configuration::{ClusterRecord, Configuration, Duty, NodeRecord, NodeState, Tenure};
use paritas_base::{Clock, Incarnation, ListId, NodeId, Position, Prng, Span, Time};
use paritas_protocol::LinkId;
use presence::Presence;
pub(crate) use slot_moves::SlotTask;
use std::collections::{BTreeMap, BTreeSet};

/// Longest address, in bytes.
const ADDRESS_BYTES_MAX: usize = 255;
/// Silent peers that one heartbeat may name.
pub const SILENT_MAX: usize = 64;
/// A node that has stood for so long has a clean record again.
const FALLS_FORGOTTEN: Span = Span::from_secs(60);
/// How long a node that was fenced for a broken link is not named again in that list.
const AVOID_SPAN: Span = Span::from_secs(10);
/// How long a position may be Filling at a node that holds another one of the list before it goes to a free one.
const STUCK_SPAN: Span = Span::from_secs(30);

/// What happens to a coordinator.
#[derive(Debug)]
pub enum CoordinatorEvent<'a> {
    /// Somebody has connected.
    Connected {
        /// By this link, whose id is never used again.
        link: LinkId,
    },
    /// A link has ended.
    Disconnected {
        /// Which.
        link: LinkId,
    },
    /// One whole frame, as `message::split` found it.
    Message {
        /// The link it came by.
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
    /// Send what there is, then end the link.
    fn close(&mut self, link: LinkId);
    /// Something that people should know: log it, count it.
    fn note(&mut self, note: Note);
}

/// What people should know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Note {
    /// Every planned node has registered: the lists begin.
    Bootstrapped,
    /// A node's incarnation registered.
    Registered {
        /// The node.
        node: NodeId,
        /// Its incarnation.
        incarnation: Incarnation,
    },
    /// A node is heard again, or no more.
    State {
        /// The node.
        node: NodeId,
        /// How it is now.
        state: NodeState,
    },
    /// An incarnation was certified ended.
    Ended {
        /// The node.
        node: NodeId,
        /// Its incarnation.
        incarnation: Incarnation,
    },
    /// A role of a node broke an invariant and has stopped; another node takes its position (P3.5).
    Halted {
        /// The node.
        node: NodeId,
        /// Its role.
        role: HaltedRole,
    },
    /// A position changed hands.
    Moved {
        /// The list.
        list: ListId,
        /// The position.
        position: Position,
        /// Who had it.
        from: Option<NodeId>,
        /// Who has it now.
        to: Option<NodeId>,
    },
    /// Something else is wanted of a node (P5.12, P10.2a).
    Duty {
        /// The node.
        node: NodeId,
        /// What.
        duty: Duty,
    },
    /// A list lost more than its scheme covers (P10.6).
    Lost {
        /// The list.
        list: ListId,
    },
    /// An operator says that an incarnation has ended.
    Attested {
        /// The node.
        node: NodeId,
        /// Its incarnation.
        incarnation: Incarnation,
    },
    /// An operator has changed settings.
    Set(Settings),
    /// A list begins again empty: by policy, by order, or since it has no parity.
    Reset {
        /// The list.
        list: ListId,
    },
    /// A list nears the last epoch that the format has room for.
    EpochsRunOut {
        /// The list.
        list: ListId,
    },
    /// A certificate from a link that had not said it supervises that incarnation. It counts for nothing.
    Unvouched {
        /// The node.
        node: NodeId,
        /// The incarnation.
        incarnation: Incarnation,
    },
    /// A message that is none; its link is closed.
    BadMessage(MessageError),
    /// A message is too long, and was not sent.
    Unsent(MessageError),
    /// The store failed; what was decided is tried again.
    StoreFailed(String),
    /// Another coordinator has the store; this one does nothing any more.
    Deposed,
    /// A node has a configuration that is not in the history of the store: the store went back in time. Nothing is
    /// decided any more.
    Behind {
        /// The node.
        node: NodeId,
        /// The list.
        list: ListId,
    },
}

#[derive(Debug, Default)]
struct Link {
    /// A registration that has not repeated its nonce yet.
    pending: Option<(u64, Box<Registration>)>,
    /// The incarnation that registered by this link, and its nonce.
    node: Option<(NodeId, Incarnation, u64)>,
    /// Whether it was sent all records, and gets their changes.
    told: bool,
    /// The newest batch of configurations whose ids it knows.
    witnessed: u64,
    supervises: BTreeSet<(NodeId, Incarnation)>,
    /// It comes from the coordinator's own machine.
    is_local: bool,
}

#[derive(Clone, Copy, Debug)]
struct Report {
    since: Time,
    latest: Time,
}

/// How often a node fell of late: ended, or was silent (P10.7).
#[derive(Clone, Copy, Debug)]
struct Falls {
    count: u32,
    latest: Time,
}

impl Falls {
    /// After its third fall in a row a node is mistrusted for 2 s, and for twice as long after each further one. A row
    /// ends where it has stood for a minute.
    fn is_flapping(&self, now: Time) -> bool {
        let back_off_s = match self.count {
            0..3 => 0,
            count => (1 << (count - 2).min(6)).min(FALLS_FORGOTTEN.as_ms() / 1000),
        };
        now - self.latest < Span::from_secs(back_off_s)
    }

    fn is_forgotten(&self, now: Time) -> bool {
        now - self.latest >= FALLS_FORGOTTEN
    }
}

/// The coordinator of one cluster.
#[derive(Debug)]
pub struct Coordinator<S> {
    store: S,
    records: Records,
    homes: Vec<Vec<NodeId>>,
    per_domain_max: usize,
    links: BTreeMap<LinkId, Link>,
    presences: BTreeMap<NodeId, Presence>,
    /// Registrations that count and are not committed yet.
    claims: BTreeMap<NodeId, Registration>,
    /// Certificates that are not committed yet.
    ended: BTreeSet<(NodeId, Incarnation)>,
    /// Until when a node's next incarnation is waited for.
    waits: BTreeMap<NodeId, Time>,
    /// (reporter, silent peer).
    reports: BTreeMap<(NodeId, NodeId), Report>,
    avoided: BTreeMap<(ListId, NodeId), Time>,
    moves: duty::Moves,
    slot_orders: slot_moves::SlotOrders,
    orders: orders::Orders,
    slow: slow::SlowNodes,
    vacated: BTreeMap<(ListId, Position), NodeId>,
    recent: BTreeMap<(ListId, NodeId, Incarnation), Time>,
    /// Removals before this may not be in there.
    recent_from: Option<Time>,
    falls: BTreeMap<NodeId, Falls>,
    whole: Vec<(ListId, Position, Tenure)>,
    /// Since when positions are Filling at nodes that hold another one of the list.
    doubled: BTreeMap<(ListId, Position, Tenure), Time>,
    stand_in: bool,
    prng: Prng,
    /// Silence before this is not counted: this coordinator was not there to hear.
    quiet_from: Option<Time>,
    /// Until then nobody is removed for silence (P10.11).
    grace_until: Time,
    /// Too many failure domains were silent: until then nobody is removed for silence, since the rest of them may be
    /// heard in a moment.
    healed_from: Time,
    /// When each node asked to register last, in whatever incarnation: the coordinator can be reached from there.
    contacts: BTreeMap<NodeId, Time>,
    /// From then on this coordinator has been there for so long that every node that lives has registered.
    settled_from: Time,
    /// Configurations that are committed and wait to be sent.
    releases: release::Releases,
    /// The most coordinators that an agent knows: it dials them one after the other.
    addresses: u8,
    /// A node that has a configuration which is not in this store's history, and of which list: nothing is decided any
    /// more (P10.16).
    behind: Option<(NodeId, ListId)>,
    /// The latest incarnation of each node that any registered node knows, and how many lives that makes.
    incarnations: BTreeMap<NodeId, (Incarnation, u32)>,
    /// Nodes that know the id of a configuration which is not in this store's history, and have not been taken in.
    doubts: BTreeSet<NodeId>,
    /// Enough holders have told what they know: every configuration that has left a coordinator is in this store. Once
    /// true it stays true, since later configurations are of this coordinator.
    knows_all: bool,
    /// Nodes that have registered with configurations of this store's history.
    witnesses: BTreeSet<NodeId>,
    last_event: Time,
    next_tick: Time,
    /// The outcome of the last commit is unknown.
    unsure: bool,
    deposed: bool,
    broken: Broken,
}

impl<S: Store> Coordinator<S> {
    /// Writes a new cluster into an empty store. A coordinator never does so by itself: a store that was lost would
    /// become another, empty cluster (P10.16).
    ///
    /// # Errors
    /// If the plan cannot be, or the store fails or has a cluster already.
    pub fn create(store: &mut S, plan: &ClusterPlan) -> Result<(), OpenError> {
        Records::create(store, plan)
    }

    /// Goes on with the cluster that is in the store, and takes the store away from the coordinator that opened it
    /// before. The seed is for nonces and must differ from start to start.
    ///
    /// # Errors
    /// If the plan cannot be, or the store is empty, has another cluster or records that this version cannot read, or
    /// fails.
    pub fn open(mut store: S, plan: &ClusterPlan, seed: u64) -> Result<Self, OpenError> {
        let records = Records::open(&mut store, plan)?;
        let layout = records.plan.layout();
        let releases = release::Releases::new(&records.lists);
        Ok(Self {
            store,
            records,
            homes: layout.lists,
            per_domain_max: layout.per_domain_max,
            links: BTreeMap::new(),
            presences: BTreeMap::new(),
            claims: BTreeMap::new(),
            ended: BTreeSet::new(),
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
            falls: BTreeMap::new(),
            whole: Vec::new(),
            doubled: BTreeMap::new(),
            stand_in: true,
            prng: Prng::new(seed),
            quiet_from: None,
            grace_until: Time::default(),
            healed_from: Time::default(),
            contacts: BTreeMap::new(),
            settled_from: Time::default(),
            releases,
            addresses: 1,
            behind: None,
            incarnations: BTreeMap::new(),
            doubts: BTreeSet::new(),
            knows_all: false,
            witnesses: BTreeSet::new(),
            last_event: Time::default(),
            next_tick: Time::default(),
            unsure: false,
            deposed: false,
            broken: Broken::default(),
        })
    }

    /// Whether a member of a list may hold a second position of it where no other node is free (P10.5); it may
    /// unless told otherwise. Not of the plan: it may differ from start to start.
    pub fn set_stand_in(&mut self, may: bool) {
        self.stand_in = may;
    }

    /// Leaves a rule out.
    #[cfg(feature = "mutants")]
    pub fn break_rule(&mut self, mutant: Option<Mutant>) {
        self.broken.mutant = mutant;
        self.records.broken.mutant = mutant;
    }

    /// Says that a link comes from the coordinator's own machine. Only by such a link orders are taken that can lose
    /// data.
    pub fn set_local(&mut self, link: LinkId) {
        if let Some(link) = self.links.get_mut(&link) {
            link.is_local = true;
        }
    }

    /// Handles one event.
    pub fn on(&mut self, now: Clock, event: CoordinatorEvent<'_>, out: &mut impl CoordinatorOut) {
        let now = now.mono;
        self.notice_absence(now);
        let decide = match event {
            CoordinatorEvent::Connected { link } => {
                self.links.entry(link).or_default();
                false
            }
            CoordinatorEvent::Disconnected { link } => {
                // A connection that broke says nothing about the process: only silence and certificates count.
                self.links.remove(&link);
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

    /// When to call with [`CoordinatorEvent::Timer`] at the latest.
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
            .presences
            .iter()
            .filter_map(silence)
            .filter(|at| *at > self.last_event)
            .min();
        let times = [Some(self.next_tick), self.next_wait(), silence];
        times.into_iter().flatten().min()
    }

    /// The cluster.
    pub fn cluster(&self) -> &ClusterRecord {
        &self.records.cluster
    }

    /// The plan of the cluster, with what has been set since.
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

    /// Whether another coordinator has taken the store: this one answers nothing any more.
    pub fn is_deposed(&self) -> bool {
        self.deposed
    }

    /// Ends the coordinator and gives its store back, for the next one.
    pub fn into_store(self) -> S {
        self.store
    }

    /// The store, for tests that make it fail.
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    fn suspicion(&self) -> Span {
        Span::from_ms(self.records.plan.suspicion_ms.into())
    }

    /// By then the leases of an incarnation that is removed have ended, with time to spare.
    fn leases_end_after(&self) -> Span {
        Span::from_ms(u64::from(self.records.plan.lease_ms) * 5 / 2)
    }

    fn next_wait(&self) -> Option<Time> {
        self.waits.values().copied().min()
    }

    /// P10.7: whoever has just started has heard nobody, which says nothing about them. A coordinator that was
    /// stopped or starved for long is in the same place: what was sent meanwhile is still to be read.
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
            // Of lists that there are already another coordinator may have removed somebody just before.
            self.recent_from = (!self.records.lists.is_empty()).then_some(now);
        }
        let (begins, absent) = (self.quiet_from.is_none(), now - self.last_event);
        if begins || absent > Span(self.suspicion().0 / 2) {
            self.quiet_from = Some(now);
        }
        // Agents that heard nothing for that long have given the link up: it is as after a start.
        if (begins || absent > fence::PATIENCE) && !self.broken.is(Mutant::NoGrace) {
            self.settled_from = now + self.grace();
            self.begin_grace(now);
        }
        self.last_event = now;
    }

    fn begin_grace(&mut self, now: Time) {
        self.grace_until = now + self.grace();
    }

    fn grace(&self) -> Span {
        fence::grace(self.suspicion(), self.addresses)
    }

    /// P10.11: with too few nodes linked the coordinator may be the one that is cut off.
    fn notice_links(&mut self, now: Time) {
        if self.lacks_links(now).is_some() {
            self.begin_grace(now);
        }
    }

    /// If too few holders are linked: how many are wanted, and those that are not linked.
    fn lacks_links(&self, now: Time) -> Option<(usize, Vec<NodeId>)> {
        let holders = self.holders(now);
        let is_linked = |id: &NodeId| {
            let presence = self
                .presences
                .get(id)
                .filter(|p| p.incarnation == holders[id].incarnation);
            let linked = presence.is_some_and(|p| self.links.contains_key(&p.link));
            linked || self.contacts.get(id).is_some_and(|at| now - *at < fence::PATIENCE)
        };
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

    /// Whether a node has a configuration that names it and the other one.
    fn knows_peer(&self, node: NodeId, peer: NodeId, lacks: &BTreeSet<ListId>) -> bool {
        let mut known = self.records.lists.values().filter(|c| !lacks.contains(&c.list));
        known.any(|c| c.of_node(node).next().is_some() && c.of_node(peer).next().is_some())
    }

    /// P10.9 to P10.11.
    fn judge_silence(&self, now: Time) -> Silence {
        let opinion = |of: NodeId, about: NodeId, incarnation: Incarnation| {
            let presence = self.presences.get(&of);
            match presence {
                _ if self.broken.is(Mutant::NoVotes) => Opinion::Unheard,
                Some(presence) => match presence.opinion(about, incarnation) {
                    // It may not know that they are peers, so that it does not listen.
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

    /// Whether the coordinator still waits to hear of nodes that live (P10.11).
    fn is_in_grace(&self, now: Time) -> bool {
        now < self.grace_until && !self.records.lists.is_empty()
    }

    /// When an incarnation that was last well then, or never heard, counts as silent.
    fn silent_at(&self, presence: Option<&Presence>) -> Time {
        let from = self.quiet_from.unwrap_or_default();
        presence.map_or(from, |p| p.well_at().max(from)) + self.suspicion()
    }
}

/// Encodes and sends; what is too long for any agent to read is not sent, and the limits of a plan prevent it.
pub(crate) fn send(out: &mut impl CoordinatorOut, link: LinkId, message: &ToAgent) {
    match encode(message, TO_AGENT_BYTES_MAX) {
        Ok(frame) => out.send(link, &frame),
        Err(error) => out.note(Note::Unsent(error)),
    }
}

/// A node that registers for the first time.
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
