//! Whether this store is the cluster's newest: which nodes have reported the configurations that they know (P10.16).
//! Until enough have, the coordinator decides nothing.

use super::trouble::names;
use super::{Coordinator, CoordinatorOut, Note, release};
use crate::fence;
use crate::message::Registration;
use crate::mutant::Mutant;
use crate::record::End;
use crate::store::Store;
use paritas_base::configuration::NodeState;
use paritas_base::{ListId, NodeId};
use std::collections::BTreeSet;

/// What nodes have reported of the configurations that they know. Not durable.
#[derive(Debug, Default)]
pub(super) struct Witnesses {
    /// Nodes that have registered with configurations of this store's history.
    known: BTreeSet<NodeId>,
    /// Refused nodes that know the id of a configuration which is not in this store's history.
    doubts: BTreeSet<NodeId>,
    /// A node has a configuration of this list that is not in the store's history. The coordinator decides nothing more
    /// (P10.16).
    behind: Option<(NodeId, ListId)>,
    /// Enough holders have reported their configurations, and none is ahead: this store has every configuration that
    /// any coordinator has sent. Stays true, since only this coordinator makes later configurations.
    is_complete: bool,
}

impl Witnesses {
    /// A node has registered with configurations of this store's history.
    pub(super) fn note_known(&mut self, node: NodeId) {
        self.known.insert(node);
    }

    /// A refused node knows the id of a configuration that is not in this store's history.
    pub(super) fn note_doubt(&mut self, node: NodeId) {
        self.doubts.insert(node);
    }

    /// The node asks to register and is not refused.
    pub(super) fn forget_doubt(&mut self, node: NodeId) {
        self.doubts.remove(&node);
    }

    /// A node that has a configuration which is not in this store's history, and its list.
    pub(super) fn behind(&self) -> Option<(NodeId, ListId)> {
        self.behind
    }

    pub(super) fn doubts(&self) -> &BTreeSet<NodeId> {
        &self.doubts
    }

    /// Whether this store has every configuration that any coordinator has sent.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    fn doubts_in_words(&self) -> String {
        if self.doubts.is_empty() {
            return String::new();
        }
        let doubts: Vec<NodeId> = self.doubts.iter().copied().collect();
        format!(
            ". {} know of decisions that are not in this store, so there was a newer store. If you have it, stop this \
             coordinator and put that store back; otherwise start `paritas coordinator --adopt`",
            names(&doubts)
        )
    }
}

/// How many holders must report their configurations to this coordinator, and how many have.
#[derive(Default)]
struct Quorum {
    /// Required number of holders. At least one holder in such a number knows the newest configuration that was sent.
    wanted: usize,
    /// Holders that have registered with a part of this store's history.
    known: usize,
    /// Holders of which no process has registered with this coordinator. Such a process may run, and may know a newer
    /// configuration. If every holder has registered, but too few of them know configurations: the nodes without
    /// positions that were up and have not registered.
    missing: Vec<NodeId>,
}

impl Quorum {
    fn is_awaited(&self) -> bool {
        self.known < self.wanted && !self.missing.is_empty()
    }
}

impl<S: Store> Coordinator<S> {
    /// Why this coordinator may not decide anything, in words (P10.16).
    pub(super) fn obstacle(&self) -> Option<String> {
        if let Some((node, list)) = self.stops_behind() {
            return Some(format!(
                "changes nothing: {node} has a configuration of list {} that is not in the history of this \
                 coordinator's store, so this store is not the cluster's newest. Stop this coordinator and put the \
                 newest store back; if there is none, start `paritas coordinator --adopt`. Meanwhile the nodes answer \
                 clients",
                list.0
            ));
        }
        let quorum = self.quorum();
        self.awaits(&quorum).then(|| {
            let Quorum { wanted, known, missing } = quorum;
            format!(
                "changes nothing until {wanted} of the nodes that hold positions have reported their configurations \
                 ({known} have; not yet {}), or a process of each of them, and of every other node that was up, has \
                 registered: only they know whether this store is the cluster's newest. Start the nodes that are down, \
                 also those that have ended. If machines are off for good, `paritas fence` with the numbers of their \
                 nodes shows what would be lost, and with --yes counts them as ended{}",
                names(&missing),
                self.witnesses.doubts_in_words()
            )
        })
    }

    /// P10.16: a node, and the list of which it has a configuration that this store lacks. Nothing is decided then.
    pub(super) fn stops_behind(&self) -> Option<(NodeId, ListId)> {
        self.witnesses.behind.filter(|_| !self.broken.is(Mutant::BehindCommits))
    }

    /// Whether the coordinator waits for nodes that have not registered. With the mutant `BehindCommits` it does not
    /// once a node is ahead.
    fn awaits(&self, quorum: &Quorum) -> bool {
        quorum.is_awaited() && self.witnesses.behind.is_none() && !self.broken.is(Mutant::NoWitness)
    }

    /// Once enough holders have reported, this store is known to be the newest. Only then nodes are told ids of it: a
    /// process without memory that had learned ids of an old store would count as one that knows its history.
    pub(super) fn notice_witnesses(&mut self, out: &mut impl CoordinatorOut) {
        if self.witnesses.is_complete || self.stops_behind().is_some() || self.awaits(&self.quorum()) {
            return;
        }
        self.witnesses.is_complete = true;
        for link in self.registry.subscribed() {
            self.send_withheld_ids(link, out);
        }
    }

    pub(super) fn refuses_orders(&self) -> Option<String> {
        self.obstacle().map(|why| format!("the coordinator {why}"))
    }

    /// Holders that this coordinator waits for before it decides anything.
    pub(super) fn missing_witnesses(&self) -> Vec<NodeId> {
        let quorum = self.quorum();
        if quorum.is_awaited() {
            quorum.missing
        } else {
            Vec::new()
        }
    }

    /// A holder counts until an operator attests that its machine is off. A holder that has ended since counts too: the
    /// previous coordinator may have counted it. A certified end does not excuse the node from registering: an old copy
    /// of the store does not know of a later process of the node, which may know a newer configuration.
    fn quorum(&self) -> Quorum {
        if self.witnesses.is_complete || self.records.lists.is_empty() {
            return Quorum::default();
        }
        let end = |id: &NodeId| self.records.nodes.get(id).map_or(End::Unknown, |n| n.end);
        let attested = |id: &NodeId| {
            let stored = self.records.nodes.get(id).map(|n| n.record.incarnation);
            let ordered = stored.is_some_and(|incarnation| self.orders.attested().contains(&(*id, incarnation)));
            let is_off = end(id) == End::Attested || ordered || self.orders.absent().contains(id);
            is_off && self.registry.presence(*id).is_none()
        };
        let holders = release::holders(&self.records.lists);
        let counted: Vec<NodeId> = holders.into_iter().filter(|id| !attested(id)).collect();
        if counted.is_empty() {
            return Quorum::default();
        }
        let release_quorum = fence::witnesses(counted.len(), self.records.plan.parity.into());
        let wanted = counted.len() + 1 - release_quorum;
        let known = counted.iter().filter(|id| self.witnesses.known.contains(id)).count();
        let is_missing = |id: &NodeId| self.registry.presence(*id).is_none();
        let mut missing: Vec<NodeId> = counted.into_iter().filter(is_missing).collect();
        if missing.is_empty() && known < wanted {
            // Every holder has registered, but too many with a new process that knows no configuration. A node without
            // positions in this store may hold some by a newer one. Its silence is no evidence of an end, so there is
            // no time limit.
            let others = self.records.nodes.values().map(|n| &n.record);
            let up = others.filter(|n| n.state == NodeState::Up).map(|n| n.id);
            missing = up.filter(|id| is_missing(id) && !attested(id)).collect();
        }
        Quorum { wanted, known, missing }
    }

    /// Lists for which a process knows the id of a configuration that is not in this store's history. Once enough
    /// holders have registered, it is certain that no coordinator has sent that configuration, and no node has it.
    pub(super) fn unknown_heard<'a>(&'a self, registration: &'a Registration) -> impl Iterator<Item = ListId> + 'a {
        let heard = registration.heard.iter();
        let unknown = heard.filter(|(list, epoch, id)| self.records.knows(*list, *epoch, *id) == Some(false));
        unknown.map(|(list, ..)| *list)
    }

    /// P10.16: a node has a configuration that this store lacks. Either the store is an old copy, or it is not this
    /// coordinator's any more. False if it is not, or if the store cannot be read.
    pub(super) fn notice_behind(&mut self, node: NodeId, list: ListId, out: &mut impl CoordinatorOut) -> bool {
        match self.records.standing(&self.store) {
            Ok(standing) => {
                if !self.may_go_on(standing, out) {
                    return false;
                }
            }
            Err(error) => {
                out.note(Note::StoreFailed(error.to_string()));
                return false;
            }
        }
        if self.witnesses.behind.is_none() {
            out.note(Note::Behind { node, list });
        }
        self.witnesses.behind = Some((node, list));
        true
    }
}
