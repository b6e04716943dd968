//! Rebuilds the store of a coordinator from what the nodes know, if the store was lost or is an old copy (P10.18).
//!
//! Every node reports the cluster's record and the newest configuration that it has of each list, as its testimony. A
//! node that acknowledged a write had installed the configuration of that write. So a process that holds a position
//! knows the configuration that matters, as long as one such process runs. The adoption waits without a time limit for
//! every node that the settings, the store or any testimony names, and for its processes that hold positions or are its
//! latest ones, until they have told what they know, or their end is known, or an operator says that they have ended.

mod chain;
mod gather;
mod losses;
mod waits;

use crate::coordinator::admit::{admits, static_refusal};
use crate::coordinator::{CoordinatorEvent, CoordinatorOut, Note, send};
use crate::fence;
use crate::message::{
    MessageError, Refusal, Registration, TO_COORDINATOR_BYTES_MAX, Testimony, ToAgent, ToCoordinator, decode,
};
use crate::mutant::Broken;
use crate::plan::{ClusterPlan, NODES_MAX, POSITIONS_MAX, check_record};
use crate::record::{OpenError, Records};
use crate::rights::Speaker;
use crate::status::Status;
use crate::store::Store;
use paritas_base::configuration::{ClusterRecord, Configuration};
use paritas_base::formats::Versions;
use paritas_base::{Clock, ClusterId, Incarnation, ListId, NodeId, Span, Time};
use paritas_protocol::LinkId;
use std::collections::{BTreeMap, BTreeSet};

/// Interval between evaluations without an event.
const LOOK_EVERY: Span = Span::from_ms(250);

/// The progress of an adoption.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Progress {
    /// It waits. One sentence for each reason.
    Waits(Vec<String>),
    /// The store is written. One sentence for each fact that the operator should know.
    Done(Vec<String>),
    /// It has failed, and the store is unchanged.
    Failed(String),
}

/// What one process has reported.
#[derive(Clone, Debug)]
struct Witness {
    registration: Registration,
    cluster: Option<ClusterRecord>,
    /// The highest version that it knows to be active.
    active_version: u16,
    lists: BTreeMap<ListId, Configuration>,
    /// The latest incarnation of each node, and its ordinal.
    incarnations: BTreeMap<NodeId, (Incarnation, u32)>,
    /// All frames of its testimony have arrived.
    is_whole: bool,
}

/// What is known of a link.
#[derive(Clone, Debug, Default)]
struct Link {
    /// The process that has registered on it.
    process: Option<(NodeId, Incarnation)>,
    /// Processes whose end its supervisor may certify (P10.4).
    supervises: BTreeSet<(NodeId, Incarnation)>,
}

/// Collects the testimonies of the nodes, then writes the store.
#[derive(Debug)]
pub struct Adoption<S> {
    store: S,
    found: Option<Records>,
    /// What this process may speak.
    versions: Versions,
    plan: ClusterPlan,
    /// Nodes whose machines are off or whose former processes have ended, as the operator says.
    without: BTreeSet<NodeId>,
    /// The operator has confirmed the losses.
    confirmed: bool,
    links: BTreeMap<LinkId, Link>,
    witnesses: BTreeMap<(NodeId, Incarnation), Witness>,
    /// Processes whose end is certified.
    ended: BTreeSet<(NodeId, Incarnation)>,
    /// Nodes of another cluster that tried to register.
    strangers: BTreeMap<NodeId, ClusterId>,
    /// Nodes that tried to register and contradict the plan, and why.
    refused: BTreeMap<NodeId, Refusal>,
    broken: Broken,
    began: Option<Time>,
    look_at: Time,
    progress: Progress,
}

impl<S: Store> Adoption<S> {
    /// Begins with a store that is empty or has an older state of the same cluster. `plan` is made from the settings,
    /// which must be those with which the cluster was made.
    ///
    /// # Errors
    /// If the plan is invalid, or the store fails, has the plan of another cluster, or has records that this version
    /// cannot read.
    pub fn begin(store: S, plan: &ClusterPlan, without: impl IntoIterator<Item = NodeId>) -> Result<Self, OpenError> {
        Self::begin_as(store, plan, without, Versions::OURS)
    }

    /// As [`Self::begin`], in a process that may speak these versions.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn begin_as(
        store: S,
        plan: &ClusterPlan,
        without: impl IntoIterator<Item = NodeId>,
        versions: Versions,
    ) -> Result<Self, OpenError> {
        let found = Records::look(&store, plan, versions)?;
        Ok(Self {
            store,
            found,
            versions,
            plan: plan.clone(),
            without: without.into_iter().collect(),
            confirmed: false,
            links: BTreeMap::new(),
            witnesses: BTreeMap::new(),
            ended: BTreeSet::new(),
            strangers: BTreeMap::new(),
            refused: BTreeMap::new(),
            broken: Broken::default(),
            began: None,
            look_at: Time::default(),
            progress: Progress::Waits(vec!["waits for the nodes to call".into()]),
        })
    }

    /// Accepts the losses that follow from the ends that the operator attests. Without this the losses are only
    /// reported, and nothing is written.
    pub fn confirm(&mut self) {
        self.confirmed = true;
    }

    /// Disables a rule, to test that the simulator finds the fault.
    #[cfg(feature = "mutants")]
    pub fn break_rule(&mut self, mutant: Option<crate::mutant::Mutant>) {
        self.broken.mutant = mutant;
    }

    /// The progress.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Returns the store, for the coordinator that opens it next.
    pub fn into_store(self) -> S {
        self.store
    }

    /// The time by which [`CoordinatorEvent::Timer`] must be given.
    pub fn next_deadline(&self) -> Option<Time> {
        Some(self.look_at)
    }

    /// Handles one event.
    pub fn on(&mut self, now: Clock, event: CoordinatorEvent<'_>, out: &mut impl CoordinatorOut) {
        let now = now.mono;
        self.began.get_or_insert(now);
        if !matches!(self.progress, Progress::Waits(_)) {
            return;
        }
        let is_news = match event {
            CoordinatorEvent::Connected { link } => {
                self.links.insert(link, Link::default());
                false
            }
            CoordinatorEvent::Disconnected { link } => {
                self.links.remove(&link);
                false
            }
            CoordinatorEvent::Message { link, by, bytes } => self.on_message(link, by, bytes, out),
            CoordinatorEvent::Timer => false,
        };
        if is_news || now >= self.look_at {
            self.look_at = now + LOOK_EVERY;
            self.progress = self.look(now);
        }
    }

    fn on_message(&mut self, link: LinkId, by: Speaker, bytes: &[u8], out: &mut impl CoordinatorOut) -> bool {
        let message = match decode::<ToCoordinator>(bytes, TO_COORDINATOR_BYTES_MAX) {
            Ok(message) => message,
            Err(error) => {
                out.note(Note::BadMessage(error));
                self.links.remove(&link);
                out.close(link);
                return false;
            }
        };
        if !admits(link, by, &message, out) {
            return false;
        }
        let refused =
            || "the coordinator's store was lost or old and is being rebuilt: orders are not accepted yet".to_owned();
        match message {
            ToCoordinator::Register(registration) => {
                let refusal = self.on_register(link, *registration);
                send(out, link, &ToAgent::Refused(refusal));
                true
            }
            ToCoordinator::Testimony(testimony) => self.on_testimony(link, *testimony, out),
            ToCoordinator::Status { n } => {
                let status = Box::new(self.status());
                send(out, link, &ToAgent::StatusReport { n, status });
                false
            }
            ToCoordinator::Order { n, .. } => {
                let answer = Err(refused());
                send(out, link, &ToAgent::Said { n, answer });
                false
            }
            ToCoordinator::SetDuty { n, .. } | ToCoordinator::MoveSlots { n, .. } => {
                let refused = Some(refused());
                send(out, link, &ToAgent::Ordered { n, refused });
                false
            }
            ToCoordinator::Supervise { node, incarnation } => {
                let supervises = self.links.get_mut(&link).map(|l| &mut l.supervises);
                if let Some(incarnations) = supervises.filter(|incarnations| incarnations.len() < NODES_MAX) {
                    incarnations.insert((node, incarnation));
                }
                false
            }
            ToCoordinator::Exited { node, incarnation } => self.on_exited(link, by, node, incarnation),
            _ => false,
        }
    }

    /// The answer. `Adopting` asks the process for its testimony.
    fn on_register(&mut self, link: LinkId, registration: Registration) -> Refusal {
        let (node, incarnation) = (registration.node, registration.incarnation);
        let plan = self.found.as_ref().map_or(&self.plan, |found| &found.plan);
        if let Some(found) = &self.found {
            let here = found.cluster.id;
            if let Some(other) = registration.cluster.filter(|id| *id != here) {
                if self.strangers.len() < NODES_MAX {
                    self.strangers.insert(node, other);
                }
                return Refusal::WrongCluster { here };
            }
        }
        if let Some(refusal) = static_refusal(plan, &registration) {
            if self.refused.len() < NODES_MAX {
                self.refused.insert(node, refusal.clone());
            }
            return refusal;
        }
        self.refused.remove(&node);
        let stored = self.found.as_ref().and_then(|found| found.nodes.get(&node));
        if stored.is_some_and(|n| n.is_over(incarnation)) {
            return Refusal::IncarnationEnded;
        }
        let is_new = !self.witnesses.contains_key(&(node, incarnation));
        let incarnations = self.witnesses.keys().filter(|(of, _)| *of == node).count();
        if incarnations >= INCARNATIONS_MAX && is_new {
            return Refusal::Limit(format!(
                "more than {INCARNATIONS_MAX} processes with the id {node} have registered"
            ));
        }
        if incarnations == 0 && stored.is_none() && self.known().len() >= NODES_MAX {
            return Refusal::Limit(format!("a cluster has at most {NODES_MAX} nodes"));
        }
        self.links.entry(link).or_default().process = Some((node, incarnation));
        let witness = Witness {
            active_version: Versions::said(&registration.more).1,
            registration,
            cluster: None,
            lists: BTreeMap::new(),
            incarnations: BTreeMap::new(),
            is_whole: false,
        };
        // Its earlier testimony counts until the new one is complete.
        let active_version = witness.active_version;
        let witness = self.witnesses.entry((node, incarnation)).or_insert(witness);
        witness.active_version = witness.active_version.max(active_version);
        Refusal::Adopting
    }

    /// The certificate is not acknowledged, so it is said again: the store is not written yet. It counts only for the
    /// incarnation that a testimony or the store names as a holder.
    fn on_exited(&mut self, link: LinkId, by: Speaker, node: NodeId, incarnation: Incarnation) -> bool {
        let link = self.links.get_mut(&link);
        // `rights` has seen that it is the node's own process.
        let is_vouched =
            matches!(by, Speaker::Node(..)) || link.is_some_and(|l| l.supervises.remove(&(node, incarnation)));
        is_vouched && self.ended.len() < ENDS_MAX && self.ended.insert((node, incarnation))
    }

    fn on_testimony(&mut self, link: LinkId, testimony: Testimony, out: &mut impl CoordinatorOut) -> bool {
        let process = self.links.get(&link).and_then(|l| l.process);
        let Some(witness) = process.and_then(|key| self.witnesses.get_mut(&key)) else {
            return false;
        };
        let active_version = testimony.cluster.as_ref().map_or(0, |c| c.active_version);
        witness.active_version = witness.active_version.max(active_version);
        if let Some(cluster) = testimony.cluster.filter(|c| check_record(c, self.versions).is_ok()) {
            witness.cluster = Some(cluster);
        }
        for (node, incarnation, count) in testimony.incarnations {
            if witness.incarnations.len() < NODES_MAX || witness.incarnations.contains_key(&node) {
                witness.incarnations.insert(node, (incarnation, count));
            }
        }
        for configuration in testimony.configurations {
            let known = witness.lists.get(&configuration.list);
            let is_newer = known.is_none_or(|known| known.epoch < configuration.epoch);
            let has_room = known.is_some() || witness.lists.len() < POSITIONS_MAX;
            let fits = witness.cluster.as_ref().is_some_and(|c| fits(&configuration, c));
            if !fits || !has_room {
                out.note(Note::BadMessage(MessageError::Contents));
            } else if is_newer {
                witness.lists.insert(configuration.list, configuration);
            }
        }
        witness.is_whole |= testimony.is_last;
        testimony.is_last
    }

    /// Nodes that are in the store or have registered.
    fn known(&self) -> BTreeSet<NodeId> {
        let stored = self.found.iter().flat_map(|found| found.nodes.keys());
        stored
            .chain(self.witnesses.keys().map(|(node, _)| node))
            .copied()
            .collect()
    }

    fn status(&self) -> Status {
        let coordinator = match &self.progress {
            Progress::Waits(words) | Progress::Done(words) => words.clone(),
            Progress::Failed(why) => vec![why.clone()],
        };
        Status {
            coordinator,
            ..Status::default()
        }
    }

    /// Processes whose testimony is complete.
    fn complete(&self) -> impl Iterator<Item = (&(NodeId, Incarnation), &Witness)> {
        self.witnesses.iter().filter(|(_, w)| w.is_whole)
    }

    /// The time in which every process that runs registers (P10.11).
    fn grace(&self) -> Span {
        let addresses = self
            .complete()
            .map(|(_, w)| w.registration.coordinators)
            .max()
            .unwrap_or(1);
        let suspicion = self
            .complete()
            .find_map(|(_, w)| Some(w.cluster.as_ref()?.suspicion_ms));
        let suspicion = Span::from_ms(suspicion.unwrap_or(self.plan.suspicion_ms).into());
        fence::grace(suspicion, addresses.min(ADDRESSES_MAX))
    }
}

/// Whether a configuration fits the cluster's scheme and limits.
fn fits(c: &Configuration, cluster: &ClusterRecord) -> bool {
    let scheme = (c.data, c.parity, c.ack_quorum) == (cluster.data, cluster.parity, cluster.ack_quorum);
    scheme && c.is_well_formed() && c.is_within_limits()
}

/// Limit of processes with the same node id.
const INCARNATIONS_MAX: usize = 16;
/// Limit of certified ends that are kept.
const ENDS_MAX: usize = NODES_MAX * INCARNATIONS_MAX;
/// Limit of coordinator addresses that an agent may know.
const ADDRESSES_MAX: u8 = 8;

#[cfg(test)]
mod tests;
