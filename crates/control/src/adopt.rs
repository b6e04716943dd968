//! A coordinator whose store was lost, or is an old copy, asks the nodes for what was in it (P10.18).
//!
//! Every node tells the cluster's record and the newest configuration that it has of each list. Whoever acknowledged a
//! write had its configuration installed, so what counts is known to a process that holds a position, as long as one of
//! those incarnations. It is waited for every node that any testimony names, unless an operator says that its machine
//! is off.

mod chain;
mod gather;
mod losses;
mod waits;

use crate::coordinator::admit::static_refusal;
use crate::coordinator::{CoordinatorEvent, CoordinatorOut, Note, send};
use crate::fence;
use crate::message::{
    MessageError, Refusal, Registration, TO_COORDINATOR_BYTES_MAX, Testimony, ToAgent, ToCoordinator, decode,
};
use crate::plan::{ClusterPlan, NODES_MAX, POSITIONS_MAX, check_record};
use crate::record::{OpenError, Records};
use crate::status::Status;
use crate::store::Store;
use paritas_base::configuration::{ClusterRecord, Configuration};
use paritas_base::{Clock, ClusterId, Incarnation, ListId, NodeId, Span, Time};
use paritas_protocol::LinkId;
use std::collections::{BTreeMap, BTreeSet};

/// How often it is looked at again without an event.
const LOOK_EVERY: Span = Span::from_ms(250);

/// How far a coordinator without a store is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Progress {
    /// It waits for these, a sentence each.
    Waits(Vec<String>),
    /// All is in the store. What people should know, a sentence each.
    Done(Vec<String>),
    /// It cannot be done, and the store is as it was.
    Failed(String),
}

/// What one process has told.
#[derive(Clone, Debug)]
struct Witness {
    registration: Registration,
    cluster: Option<ClusterRecord>,
    lists: BTreeMap<ListId, Configuration>,
    /// The latest incarnation of each node, and how many lives that makes.
    incarnations: BTreeMap<NodeId, (Incarnation, u32)>,
    /// It has told all.
    is_whole: bool,
}

/// Gathers what the nodes know, then writes it.
#[derive(Debug)]
pub struct Adoption<S> {
    store: S,
    found: Option<Records>,
    plan: ClusterPlan,
    /// Nodes whose machines are off, as the operator says.
    without: BTreeSet<NodeId>,
    /// The operator has seen what that loses.
    confirmed: bool,
    /// Whose link it is, once it has registered.
    links: BTreeMap<LinkId, Option<(NodeId, Incarnation)>>,
    witnesses: BTreeMap<(NodeId, Incarnation), Witness>,
    /// Nodes of another cluster that have called.
    strangers: BTreeMap<NodeId, ClusterId>,
    /// Nodes that have called and cannot be of this cluster by its plan, and why.
    refused: BTreeMap<NodeId, Refusal>,
    began: Option<Time>,
    look_at: Time,
    progress: Progress,
}

impl<S: Store> Adoption<S> {
    /// Begins with a store that is empty, or has an older state of the same cluster. `plan` is what the settings say,
    /// as when the cluster was made.
    ///
    /// # Errors
    /// If the plan cannot be, or the store fails, has another cluster's plan or records that this version cannot read.
    pub fn begin(store: S, plan: &ClusterPlan, without: impl IntoIterator<Item = NodeId>) -> Result<Self, OpenError> {
        let found = Records::look(&store, plan)?;
        Ok(Self {
            store,
            found,
            plan: plan.clone(),
            without: without.into_iter().collect(),
            confirmed: false,
            links: BTreeMap::new(),
            witnesses: BTreeMap::new(),
            strangers: BTreeMap::new(),
            refused: BTreeMap::new(),
            began: None,
            look_at: Time::default(),
            progress: Progress::Waits(vec!["waits for the nodes to call".into()]),
        })
    }

    /// What the ends of the nodes that are off lose may be lost. Until then it is said, and nothing is written.
    pub fn confirm(&mut self) {
        self.confirmed = true;
    }

    /// How far it is.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The store, for the coordinator that goes on with it.
    pub fn into_store(self) -> S {
        self.store
    }

    /// When to call with [`CoordinatorEvent::Timer`] at the latest.
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
                self.links.insert(link, None);
                false
            }
            CoordinatorEvent::Disconnected { link } => {
                self.links.remove(&link);
                false
            }
            CoordinatorEvent::Message { link, bytes } => self.on_message(link, bytes, out),
            CoordinatorEvent::Timer => false,
        };
        if is_news || now >= self.look_at {
            self.look_at = now + LOOK_EVERY;
            self.progress = self.look(now);
        }
    }

    fn on_message(&mut self, link: LinkId, bytes: &[u8], out: &mut impl CoordinatorOut) -> bool {
        let message = match decode::<ToCoordinator>(bytes, TO_COORDINATOR_BYTES_MAX) {
            Ok(message) => message,
            Err(error) => {
                out.note(Note::BadMessage(error));
                self.links.remove(&link);
                out.close(link);
                return false;
            }
        };
        let refused = || "the coordinator's store was lost or old, and it is being made anew: no orders yet".to_owned();
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
            // Supervisors repeat certificates until they are noted.
            _ => false,
        }
    }

    /// What is answered: who is asked for a testimony is refused with `Adopting`.
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
        if incarnations >= LIVES_MAX && is_new {
            return Refusal::Limit(format!(
                "more than {LIVES_MAX} processes with the id {node} have called"
            ));
        }
        if incarnations == 0 && stored.is_none() && self.known().len() >= NODES_MAX {
            return Refusal::Limit(format!("a cluster has at most {NODES_MAX} nodes"));
        }
        self.links.insert(link, Some((node, incarnation)));
        let witness = Witness {
            registration,
            cluster: None,
            lists: BTreeMap::new(),
            incarnations: BTreeMap::new(),
            is_whole: false,
        };
        // What it has told before counts until it has told all again.
        self.witnesses.entry((node, incarnation)).or_insert(witness);
        Refusal::Adopting
    }

    fn on_testimony(&mut self, link: LinkId, testimony: Testimony, out: &mut impl CoordinatorOut) -> bool {
        let Some(Some(key)) = self.links.get(&link) else {
            return false;
        };
        let Some(witness) = self.witnesses.get_mut(key) else {
            return false;
        };
        if let Some(cluster) = testimony.cluster.filter(|c| check_record(c).is_ok()) {
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

    /// Nodes that are in the store or have called.
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

    /// Processes that have told all they know.
    fn told(&self) -> impl Iterator<Item = (&(NodeId, Incarnation), &Witness)> {
        self.witnesses.iter().filter(|(_, w)| w.is_whole)
    }

    /// For how long another process of a node may still call (P10.13).
    fn grace(&self) -> Span {
        let addresses = self.told().map(|(_, w)| w.registration.coordinators).max().unwrap_or(1);
        let suspicion = self.told().find_map(|(_, w)| Some(w.cluster.as_ref()?.suspicion_ms));
        let suspicion = Span::from_ms(suspicion.unwrap_or(self.plan.suspicion_ms).into());
        fence::grace(suspicion, addresses.min(ADDRESSES_MAX))
    }
}

/// Whether a configuration can be one of this cluster.
fn fits(c: &Configuration, cluster: &ClusterRecord) -> bool {
    let scheme = (c.data, c.parity, c.ack_quorum) == (cluster.data, cluster.parity, cluster.ack_quorum);
    scheme && c.is_well_formed() && c.is_within_limits()
}

/// Processes with one node's id that are listened to.
const LIVES_MAX: usize = 16;
/// Most coordinators that an agent may know.
const ADDRESSES_MAX: u8 = 8;

#[cfg(test)]
mod tests;
