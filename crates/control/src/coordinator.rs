//! The coordinator as a state machine. Its inputs are messages and time. Its outputs are commits to the store, and
//! then messages.
//!
//! An event only updates the coordinator's view of the cluster: which nodes registered, which are heard, which
//! incarnations ended. Then [`Coordinator::decide`] computes every record that must change, commits the changes in one
//! transaction, and sends them. So the changes of one event are one transaction (P10.1), and only committed records are
//! sent. After a failed commit the next decision computes the changes again.
//!
//! Beside the records the state has these parts. Each is private to its file, and only its methods change it.
//!
//! |part|state|
//! |-|-|
//! |`registry`|the processes that have registered, their links, certificates|
//! |`witnesses`|what nodes have reported of configurations that this store may lack|
//! |`release`|configurations that are committed and not sent yet|
//! |`suspicion`|which nodes are silent, suspect, flapping, or expected again|
//! |`leases`|removed incarnations whose leases may still be valid|
//! |`slow`|slow nodes|
//! |`placement`|the plan's layout, moves in progress, nodes that a list avoids|
//! |`orders`|orders of operators that are not carried out yet|
//!
//! `listen` handles messages and `decide` makes decisions. What needs several parts at once is a method of
//! [`Coordinator`].

pub(crate) mod admit;
mod decide;
mod duty;
mod leases;
mod leave;
mod listen;
mod note;
mod orders;
mod placement;
mod presence;
mod registry;
mod release;
mod report;
mod slot_moves;
mod slow;
mod suspicion;
pub(crate) mod trouble;
mod upgrade;
mod witnesses;

use crate::message::{Registration, TO_AGENT_BYTES_MAX, ToAgent, encode};
use crate::mutant::Broken;
use crate::plan::ClusterPlan;
use crate::record::{End, OpenError, Records, Standing, StoredNode};
use crate::rights::Speaker;
use crate::store::Store;
use core::fmt;
use leases::Leases;
pub use note::Note;
use orders::Orders;
use paritas_base::configuration::{ClusterRecord, Configuration, Duty, NodeRecord, NodeState};
use paritas_base::formats::Versions;
use paritas_base::{Clock, NodeId, Sections, Span, Time};
use paritas_protocol::LinkId;
use placement::Placement;
use presence::Presence;
use registry::Registry;
use release::Releases;
pub(crate) use slot_moves::SlotTask;
use slow::SlowNodes;
use suspicion::Suspicion;
use witnesses::Witnesses;

/// Longest address, in bytes.
const ADDRESS_BYTES_MAX: usize = 255;
/// Silent peers that one heartbeat may name.
pub const SILENT_MAX: usize = 64;

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
        /// Who is at its other end.
        by: Speaker,
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

/// Why a running coordinator must stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// Another coordinator has opened the store.
    Deposed,
    /// An older store, or none, is in the place of the one that it wrote.
    StoreWentBack,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deposed => "another coordinator has taken over the store",
            Self::StoreWentBack => {
                "the store went back: it lacks what this coordinator has committed. Put the newest store back, or \
                 start a coordinator and look at `paritas status`: it says what it waits for, and what can be done"
            }
        })
    }
}

/// The coordinator of one cluster.
#[derive(Debug)]
pub struct Coordinator<S> {
    store: S,
    records: Records,
    /// The outcome of the last commit is unknown.
    unsure: bool,
    /// Why it stops, if it does.
    ending: Option<Ending>,
    registry: Registry,
    witnesses: Witnesses,
    releases: Releases,
    leases: Leases,
    suspicion: Suspicion,
    slow: SlowNodes,
    placement: Placement,
    orders: Orders,
    next_tick: Time,
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
    pub fn open(store: S, plan: &ClusterPlan, seed: u64) -> Result<Self, OpenError> {
        Self::open_as(store, plan, seed, Versions::OURS)
    }

    /// As [`Self::open`], in a process that may speak these versions.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_as(mut store: S, plan: &ClusterPlan, seed: u64, versions: Versions) -> Result<Self, OpenError> {
        let records = Records::open(&mut store, plan, seed, versions)?;
        let layout = records.plan.layout();
        let releases = Releases::new(&records.lists);
        Ok(Self {
            store,
            records,
            unsure: false,
            ending: None,
            registry: Registry::new(seed),
            witnesses: Witnesses::default(),
            releases,
            leases: Leases::default(),
            suspicion: Suspicion::default(),
            slow: SlowNodes::default(),
            placement: Placement::new(layout),
            orders: Orders::default(),
            next_tick: Time::default(),
            broken: Broken::default(),
        })
    }

    /// Sets whether a member of a list may hold a second position of it where no other node is free (P10.5). The
    /// default is true. The setting is not part of the plan, so it may change at every start.
    pub fn set_stand_in(&mut self, may: bool) {
        self.placement.set_stand_in(may);
    }

    /// Disables a rule, to test that the simulator finds the fault.
    #[cfg(feature = "mutants")]
    pub fn break_rule(&mut self, mutant: Option<crate::mutant::Mutant>) {
        self.broken.mutant = mutant;
        self.records.broken.mutant = mutant;
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
                self.orders.withdraw_of(link);
                self.notice_links(now);
                false
            }
            CoordinatorEvent::Message { link, by, bytes } => self.on_message(now, link, by, bytes, out),
            CoordinatorEvent::Timer => false,
        };
        self.notice_witnesses(out);
        if decide || now >= self.next_tick || self.suspicion.next_wait().is_some_and(|at| now >= at) {
            self.next_tick = now + Span(self.records.plan.suspicion().0 / 4);
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
            .filter(|at| *at > self.suspicion.last_event())
            .min();
        let times = [Some(self.next_tick), self.suspicion.next_wait(), silence];
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

    /// Why it must stop, if it must. It decides nothing more and refuses all messages.
    pub fn ending(&self) -> Option<Ending> {
        self.ending
    }

    /// Stops if the store is not as this coordinator left it. Returns whether it may go on.
    fn may_go_on(&mut self, standing: Standing, out: &mut impl CoordinatorOut) -> bool {
        let (ending, note) = match standing {
            Standing::Unchanged | Standing::Landed => return true,
            Standing::Deposed => (Ending::Deposed, Note::Deposed),
            Standing::WentBack => (Ending::StoreWentBack, Note::StoreWentBack),
        };
        self.ending = Some(ending);
        out.note(note);
        self.orders.refuse(&ending.to_string(), out);
        false
    }

    /// Ends the coordinator and returns its store.
    pub fn into_store(self) -> S {
        self.store
    }

    /// The store, so that a test can make it fail.
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
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
        more: registration.more.clone(),
    };
    StoredNode {
        record,
        end: End::Unknown,
        past: Vec::new(),
        duty: Duty::Full,
        more: Sections::none(),
    }
}

#[cfg(test)]
mod tests;
