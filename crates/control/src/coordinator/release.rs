//! When a committed configuration leaves the coordinator (P10.16).
//!
//! A store that is lost may be replaced by an older copy. The coordinator that opens the copy must find that out before
//! it decides anything. So a configuration leaves only after enough holders know its id. They name that id when they
//! register, and a coordinator decides nothing before it has heard enough holders: at least one node is in both groups.

use super::{Coordinator, CoordinatorOut, send};
use crate::fence;
use crate::message::ToAgent;
use crate::mutant::Mutant;
use crate::store::Store;
use paritas_base::configuration::Configuration;
use paritas_base::{Epoch, ListId, NodeId, Time};
use paritas_protocol::LinkId;
use std::collections::{BTreeMap, BTreeSet};

/// The batch that holds the configurations which this coordinator found in its store.
const FOUND: u64 = 1;

/// Configurations that are committed and have not left yet.
#[derive(Debug)]
pub(super) struct Releases {
    /// The number of the newest batch of configurations.
    newest: u64,
    /// Stripe lists whose newest configuration has not left, and the number of its batch.
    withheld: BTreeMap<ListId, u64>,
    /// For each batch that has not left: the nodes that held a position before it was committed. Enough of them must
    /// know the batch, since a coordinator with the store of that time would ask them.
    holders: BTreeMap<u64, BTreeSet<NodeId>>,
}

impl Releases {
    /// For a coordinator that has just opened its store. It cannot tell what the one before has sent, so all lists are
    /// withheld.
    pub(super) fn new(lists: &BTreeMap<ListId, Configuration>) -> Self {
        let mut releases = Self {
            newest: 0,
            withheld: BTreeMap::new(),
            holders: BTreeMap::new(),
        };
        releases.withhold(lists.keys().copied(), holders(lists));
        releases
    }

    /// Gives the number of the batch.
    fn withhold(&mut self, lists: impl Iterator<Item = ListId>, holders: BTreeSet<NodeId>) -> u64 {
        self.newest += 1;
        let batch = self.newest;
        self.withheld.extend(lists.map(|list| (list, batch)));
        self.holders.insert(batch, holders);
        batch
    }

    /// Whether the newest configuration of the list has not left.
    pub(super) fn withholds(&self, list: ListId) -> bool {
        self.withheld.contains_key(&list)
    }

    /// Whether lists are withheld that this coordinator found in its store.
    pub(super) fn withholds_found(&self) -> bool {
        self.withheld.values().any(|batch| *batch == FOUND)
    }
}

impl<S: Store> Coordinator<S> {
    /// Configurations have been committed, when these nodes held positions: tell their ids to all, and send them once
    /// enough nodes know the ids.
    pub(super) fn withhold(
        &mut self,
        lists: &[Configuration],
        holders_before: BTreeSet<NodeId>,
        out: &mut impl CoordinatorOut,
    ) {
        if lists.is_empty() {
            return;
        }
        let batch = self.releases.withhold(lists.iter().map(|c| c.list), holders_before);
        let heads = lists.iter().map(|c| (c.list, c.epoch, c.id)).collect();
        let message = ToAgent::Witness { batch, heads };
        for (link, _) in self.links.iter().filter(|(_, state)| state.told) {
            send(out, *link, &message);
        }
    }

    /// A node has just been answered: tell it the ids of what it was not sent.
    pub(super) fn send_withheld_ids(&self, link: LinkId, out: &mut impl CoordinatorOut) {
        let withheld = self.records.lists.values().filter(|c| self.releases.withholds(c.list));
        let heads: Vec<(ListId, Epoch, u64)> = withheld.map(|c| (c.list, c.epoch, c.id)).collect();
        if !heads.is_empty() {
            let batch = self.releases.newest;
            send(out, link, &ToAgent::Witness { batch, heads });
        }
    }

    /// A node knows the ids of a batch, and of all before it.
    pub(super) fn on_witnessed(&mut self, link: LinkId, batch: u64) {
        if let Some(link) = self.links.get_mut(&link) {
            link.witnessed = link.witnessed.max(batch.min(self.releases.newest));
        }
    }

    /// Sends what enough nodes know the id of.
    pub(super) fn release(&mut self, now: Time, out: &mut impl CoordinatorOut) {
        if self.releases.withheld.is_empty() || self.deposed || self.obstacle().is_some() {
            return;
        }
        let is_known = |(batch, holders): &(&u64, &BTreeSet<NodeId>)| {
            let (wanted, known) = self.release_quorum(**batch, holders);
            known >= wanted || self.broken.is(Mutant::ReleasedUnheard)
        };
        let batches = self.releases.holders.iter();
        let Some(reached) = batches.take_while(is_known).map(|(batch, _)| *batch).last() else {
            return;
        };
        self.releases.holders.retain(|batch, _| *batch > reached);
        let leaves: Vec<ListId> = self
            .releases
            .withheld
            .iter()
            .filter(|(_, batch)| **batch <= reached)
            .map(|(list, _)| *list)
            .collect();
        // Nodes that were removed may have held leases until they heard of it.
        for ((list, ..), at) in &mut self.recent {
            if leaves.contains(list) {
                *at = now;
            }
        }
        if self.releases.withholds_found() {
            self.recent_from = self.recent_from.map(|_| now);
        }
        for presence in self.presences.values_mut() {
            presence.lacks.retain(|list| !leaves.contains(list));
        }
        self.releases.withheld.retain(|_, batch| *batch > reached);
        let lists = leaves.iter().filter_map(|list| self.records.lists.get(list).cloned());
        self.tell(&[], lists.collect(), out);
    }

    /// How many of these holders must know a batch before it leaves, and how many do.
    fn release_quorum(&self, batch: u64, holders: &BTreeSet<NodeId>) -> (usize, usize) {
        let incarnations = |id: &&NodeId| {
            let stored = self.records.nodes.get(id);
            let is_present = |incarnation| stored.is_some_and(|n| n.record.incarnation == incarnation);
            // A process that has registered since lives, whatever is stored of the one before.
            match self.presences.get(id).map(|p| p.incarnation) {
                Some(incarnation) if !is_present(incarnation) => !self.ended.contains(&(**id, incarnation)),
                _ => stored.is_some_and(|n| !n.has_ended() && !self.ended.contains(&(**id, n.record.incarnation))),
            }
        };
        let count = holders.iter().filter(incarnations).count();
        let wanted = match count {
            0 => 0,
            count => fence::witnesses(count, self.records.plan.parity.into()),
        };
        let knows = |id: &&NodeId| {
            let link = self.presences.get(id).and_then(|p| self.links.get(&p.link));
            link.is_some_and(|l| l.witnessed >= batch && l.node.is_some_and(|(node, ..)| node == **id))
        };
        (wanted, holders.iter().filter(knows).count())
    }

    /// If lists wait to be sent: which, and how many more of their holders must know of them.
    pub(super) fn waits_to_release(&self) -> Option<(Vec<ListId>, usize)> {
        let (batch, holders) = self.releases.holders.first_key_value()?;
        let (wanted, known) = self.release_quorum(*batch, holders);
        let lists = self.releases.withheld.keys().copied().collect();
        Some((lists, wanted.saturating_sub(known)))
    }
}

/// The nodes that hold a position in these configurations.
pub(super) fn holders(lists: &BTreeMap<ListId, Configuration>) -> BTreeSet<NodeId> {
    let held = lists.values().flat_map(|c| c.positions.iter().flatten());
    held.map(|a| a.tenure.node).collect()
}
