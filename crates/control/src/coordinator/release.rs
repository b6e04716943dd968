//! When the coordinator sends a committed configuration (P10.16).
//!
//! A lost store may be replaced by an older copy. The coordinator that opens the copy must detect this before it
//! decides anything. So a configuration is sent only after enough holders have confirmed its id. They name that id when
//! they register, and a coordinator decides nothing before enough holders have registered. At least one node is in both
//! groups.

use super::{Coordinator, CoordinatorOut, send};
use crate::fence;
use crate::message::ToAgent;
use crate::mutant::Mutant;
use crate::store::Store;
use paritas_base::configuration::Configuration;
use paritas_base::{Epoch, ListId, NodeId, Time};
use paritas_protocol::LinkId;
use std::collections::{BTreeMap, BTreeSet};

/// Configurations that are committed and not sent yet.
#[derive(Debug)]
pub(super) struct Releases {
    /// The number of the newest batch of configurations.
    newest: u64,
    /// The newest batch that was read from the store, when this coordinator opened it or after a commit whose outcome
    /// was unknown. Whom such a batch has removed is not known.
    found: u64,
    /// Stripe lists whose newest configuration is not sent yet, and the number of its batch.
    withheld: BTreeMap<ListId, u64>,
    /// For each batch that is not sent yet: the nodes that held a position before it was committed. Enough of them must
    /// know the batch, since a coordinator with the store of that time would ask them.
    holders: BTreeMap<u64, BTreeSet<NodeId>>,
}

impl Releases {
    /// For a coordinator that has just opened its store. It does not know which configurations the previous coordinator
    /// has sent, so it withholds all lists.
    pub(super) fn new(lists: &BTreeMap<ListId, Configuration>) -> Self {
        let mut releases = Self {
            newest: 0,
            found: 0,
            withheld: BTreeMap::new(),
            holders: BTreeMap::new(),
        };
        releases.found = releases.withhold(lists.keys().copied(), holders(lists));
        releases
    }

    /// Makes a batch of these lists and returns its number.
    fn withhold(&mut self, lists: impl Iterator<Item = ListId>, holders: BTreeSet<NodeId>) -> u64 {
        self.newest += 1;
        let batch = self.newest;
        self.withheld.extend(lists.map(|list| (list, batch)));
        self.holders.insert(batch, holders);
        batch
    }

    /// Whether the newest configuration of the list is not sent yet.
    pub(super) fn withholds(&self, list: ListId) -> bool {
        self.withheld.contains_key(&list)
    }

    /// The newest batch was read from the store.
    pub(super) const fn note_found(&mut self) {
        self.found = self.newest;
    }

    /// Whether a configuration that was read from the store is still withheld.
    pub(super) fn withholds_found(&self) -> bool {
        self.withheld.values().any(|batch| *batch <= self.found)
    }
}

impl<S: Store> Coordinator<S> {
    /// Withholds configurations that have been committed: sends their ids to all nodes now, and the configurations once
    /// enough of the holders from before the commit know the ids.
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
        for link in self.registry.subscribed() {
            send(out, link, &message);
        }
    }

    /// Sends the ids of all withheld configurations, if this store is known to be the newest: to a node that has just
    /// registered, or to all nodes once that is known.
    pub(super) fn send_withheld_ids(&self, link: LinkId, out: &mut impl CoordinatorOut) {
        if !self.witnesses.is_complete() {
            return;
        }
        let withheld = self.records.lists.values().filter(|c| self.releases.withholds(c.list));
        let heads: Vec<(ListId, Epoch, u64)> = withheld.map(|c| (c.list, c.epoch, c.id)).collect();
        if !heads.is_empty() {
            let batch = self.releases.newest;
            send(out, link, &ToAgent::Witness { batch, heads });
        }
    }

    /// A node knows the ids of a batch and of all earlier batches.
    pub(super) fn on_witnessed(&mut self, link: LinkId, batch: u64) {
        self.registry.note_witnessed(link, batch.min(self.releases.newest));
    }

    /// Sends the configurations whose ids enough nodes know.
    pub(super) fn release(&mut self, now: Time, out: &mut impl CoordinatorOut) {
        if self.releases.withheld.is_empty() || self.ending.is_some() || self.obstacle().is_some() {
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
        // A removed node may have held leases until it received the configuration.
        self.leases.on_sent(now, &leaves, self.releases.withholds_found());
        self.registry.note_sent(&leaves);
        self.releases.withheld.retain(|_, batch| *batch > reached);
        let lists = leaves.iter().filter_map(|list| self.records.lists.get(list).cloned());
        self.tell(&[], lists.collect(), out);
    }

    /// How many of these holders must know a batch before it is sent, and how many know it.
    fn release_quorum(&self, batch: u64, holders: &BTreeSet<NodeId>) -> (usize, usize) {
        let incarnations = |id: &&NodeId| {
            let stored = self.records.nodes.get(id);
            let is_present = |incarnation| stored.is_some_and(|n| n.record.incarnation == incarnation);
            // A newer process that has registered runs, even if the store says that the previous one ended.
            match self.registry.presence(**id).map(|p| p.incarnation) {
                Some(incarnation) if !is_present(incarnation) => !self.registry.ended().contains(&(**id, incarnation)),
                _ => stored
                    .is_some_and(|n| !n.has_ended() && !self.registry.ended().contains(&(**id, n.record.incarnation))),
            }
        };
        let count = holders.iter().filter(incarnations).count();
        let wanted = match count {
            0 => 0,
            count => fence::witnesses(count, self.records.plan.parity.into()),
        };
        let knows = |id: &&NodeId| self.registry.has_witnessed(**id, batch);
        (wanted, holders.iter().filter(knows).count())
    }

    /// If configurations are withheld: their lists, and how many more holders must know the first batch.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_from_the_store_again_counts_as_found_until_it_is_sent() {
        let list = |n| std::iter::once(ListId(n));
        let mut releases = Releases::new(&BTreeMap::new());
        releases.withhold(list(3), BTreeSet::new());
        assert!(!releases.withholds_found(), "this coordinator has decided it");
        releases.withhold(list(3), BTreeSet::new());
        releases.note_found();
        assert!(releases.withholds_found());
        releases.withhold(list(4), BTreeSet::new());
        assert!(releases.withholds_found());
        releases.withheld.remove(&ListId(3));
        assert!(!releases.withholds_found());
    }
}
