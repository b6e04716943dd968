//! Who is still to tell something.

use super::gather::{Chains, holders};
use super::{Adoption, Witness};
use crate::coordinator::trouble::names;
use crate::store::Store;
use paritas_base::{ClusterId, Incarnation, NodeId, Span, Time};
use std::collections::BTreeSet;

impl<S: Store> Adoption<S> {
    /// Who is still to tell something, in words. Fails if nothing is left, or if who is off by the operator's word
    /// runs.
    pub(super) fn waits(&self, now: Time, chains: &Chains) -> Result<Vec<String>, String> {
        let mut words = Vec::new();
        // Who runs although the operator says that it is off gets the time to call.
        let until = self.began.unwrap_or(now) + self.grace();
        if !self.without.is_empty() && now < until {
            let without: Vec<NodeId> = self.without.iter().copied().collect();
            words.push(format!(
                "waits {} ms more: if processes of {} run all the same, they call by then",
                (until - now).as_ms(),
                names(&without)
            ));
        }
        let mut missing: BTreeSet<NodeId> = BTreeSet::new();
        for (node, incarnation) in holders(chains) {
            if self.has_told(node, incarnation) {
                if self.without.contains(&node) {
                    return Err(format!(
                        "--without {} says that its machine is off, and its process {} has called. Nothing is written. \
                         Start again without it",
                        node.0,
                        self.witnesses[&(node, incarnation)].registration.pid
                    ));
                }
            } else if !self.without.contains(&node) && !self.is_over(node, incarnation) {
                if self.witness_of(node).is_none() {
                    missing.insert(node);
                } else if now < until {
                    words.push(format!(
                        "waits {} ms more for the process of {node} that holds positions: another one has called, \
                         which counts as its successor then",
                        (until - now).as_ms()
                    ));
                }
            }
        }
        // Who was named earlier may know of more than those who have told of it.
        for tenure in self
            .told()
            .flat_map(|(_, w)| w.lists.values())
            .flat_map(|c| c.positions.iter().flatten())
        {
            let (node, incarnation) = (tenure.tenure.node, tenure.tenure.incarnation);
            if self.witness_of(node).is_none() && !self.without.contains(&node) && !self.is_over(node, incarnation) {
                missing.insert(node);
            }
        }
        if chains.is_empty() {
            let planned = self.plan.nodes.iter().chain(&self.plan.log_nodes).map(|n| n.id);
            missing.extend(planned.filter(|id| self.witness_of(*id).is_none() && !self.without.contains(id)));
            let nobody_knows = self.told().all(|(_, w)| w.cluster.is_none()) && self.found.is_none();
            if missing.is_empty() && nobody_knows && now < until {
                // A new process of a node may have called before the one that has served.
                words.push(format!(
                    "waits {} ms more: no process that has called knows of a cluster, and others may still call",
                    (until - now).as_ms()
                ));
            } else if missing.is_empty() && nobody_knows {
                return Err(
                    "no process knows of a cluster, and the store is empty: nothing is left. Make a new cluster \
                            with `paritas coordinator --create`, and `paritas restore` a snapshot"
                        .into(),
                );
            }
        }
        words.extend(self.waits_for_names(now, &missing));
        if !missing.is_empty() {
            let missing: Vec<NodeId> = missing.into_iter().collect();
            words.push(format!(
                "waits for {}: they have told nothing, and what they hold may be nowhere else. Start what is down. How \
                 to go on without machines that are off for good: docs/operate.md, `The store is gone`",
                names(&missing)
            ));
        }
        // They are not waited for, and may be why others are.
        if !words.is_empty() {
            let stranger = |(node, cluster): (&NodeId, &ClusterId)| {
                format!(
                    "{node} is of cluster {:016x}, and not of the one in this store",
                    cluster.0
                )
            };
            words.extend(self.strangers.iter().map(stranger));
            let refused = self
                .refused
                .iter()
                .map(|(node, why)| format!("{node} is not taken in: {why}"));
            words.extend(refused);
        }
        Ok(words)
    }

    /// Who holds nothing by what is known may know better. After so long it is done without, and that is said.
    fn waits_for_names(&self, now: Time, missing: &BTreeSet<NodeId>) -> Option<String> {
        let until = self.began.unwrap_or(now) + Span(self.grace().0 * 2);
        let others: Vec<NodeId> = self.unheard().difference(missing).copied().collect();
        (now < until && !others.is_empty()).then(|| {
            format!(
                "waits {} ms more for {}: they hold nothing by what is known, and may know of more",
                (until - now).as_ms(),
                names(&others)
            )
        })
    }

    /// Nodes that others or the store know, whose machines are not said to be off, and that have told nothing.
    pub(super) fn unheard(&self) -> BTreeSet<NodeId> {
        let told = self
            .told()
            .flat_map(|(_, w)| &w.incarnations)
            .map(|(node, (incarnation, _))| (*node, *incarnation));
        let stored = self.found.iter().flat_map(|found| found.nodes.values());
        let stored = stored.map(|n| (n.record.id, n.record.incarnation));
        let silent = told.chain(stored).filter(|(node, incarnation)| {
            self.witness_of(*node).is_none() && !self.without.contains(node) && !self.is_over(*node, *incarnation)
        });
        silent.map(|(node, _)| node).collect()
    }

    pub(super) fn has_told(&self, node: NodeId, incarnation: Incarnation) -> bool {
        self.witnesses.get(&(node, incarnation)).is_some_and(|w| w.is_whole)
    }

    /// A process of the node that has told what it knows.
    pub(super) fn witness_of(&self, node: NodeId) -> Option<(Incarnation, &Witness)> {
        let mut told = self.told();
        told.find(|((of, _), _)| *of == node)
            .map(|((_, incarnation), w)| (*incarnation, w))
    }

    /// The store knows that this incarnation has ended.
    fn is_over(&self, node: NodeId, incarnation: Incarnation) -> bool {
        let stored = self.found.as_ref().and_then(|found| found.nodes.get(&node));
        stored.is_some_and(|n| n.is_over(incarnation))
    }
}
