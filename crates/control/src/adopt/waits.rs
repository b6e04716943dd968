//! Which nodes an adoption still waits for.

use super::gather::{Chains, holders};
use super::{Adoption, Witness};
use crate::coordinator::trouble::names;
use crate::mutant::Mutant;
use crate::store::Store;
use paritas_base::{ClusterId, Incarnation, NodeId, Span, Time};
use std::collections::BTreeSet;

impl<S: Store> Adoption<S> {
    /// What the adoption waits for, in words. Fails if no node knows a cluster, or if a node runs that the operator
    /// says is off.
    pub(super) fn waits(&self, now: Time, chains: &Chains) -> Result<Vec<String>, String> {
        let mut words = Vec::new();
        // A node that runs although the operator says that it is off gets time to register.
        let until = self.began.unwrap_or(now) + self.grace();
        if !self.without.is_empty() && now < until {
            let without: Vec<NodeId> = self.without.iter().copied().collect();
            words.push(format!(
                "waits {} ms more: if processes of {} run all the same and hold positions, they call by then",
                (until - now).as_ms(),
                names(&without)
            ));
        }
        let mut missing: BTreeSet<NodeId> = BTreeSet::new();
        let mut silent = Vec::new();
        let mut contradicted = None;
        for (node, incarnation) in holders(chains) {
            if self.has_reported(node, incarnation) {
                if self.without.contains(&node) {
                    contradicted = Some((node.0, self.witnesses[&(node, incarnation)].registration.pid));
                }
            } else if !self.without.contains(&node) {
                if self.witness_of(node).is_none() {
                    missing.insert(node);
                } else if !self.ended.contains(&(node, incarnation)) && !self.is_over(node, incarnation) {
                    silent.push((node, incarnation));
                }
            }
        }
        words.extend(self.waits_for_ends(now, until, &silent));
        // A node that an earlier configuration names may know a newer one than those that have reported.
        let reported = self.complete().flat_map(|(_, w)| w.lists.values());
        let named = reported.flat_map(|c| c.positions.iter().flatten().map(|a| a.tenure.node));
        missing.extend(named.filter(|node| self.is_missing(*node)));
        if chains.is_empty() {
            let planned = self.plan.nodes.iter().chain(&self.plan.log_nodes).map(|n| n.id);
            missing.extend(planned.filter(|id| self.witness_of(*id).is_none() && !self.without.contains(id)));
            if missing.is_empty() && now < until {
                // A new process of a node may have registered before the one that has served.
                words.push(format!(
                    "waits {} ms more: no process that has registered has a list, and others may still register",
                    (until - now).as_ms()
                ));
            } else if missing.is_empty() {
                return Err(format!(
                    "no process that has registered within {} ms has a list, and the store has none. Nothing is \
                     written. If a process with data runs that cannot reach this coordinator, mend that and start the \
                     adoption again: its data may be nowhere else. If none runs, nothing is left: make a new cluster \
                     with `paritas coordinator --create` and a new store, and `paritas restore` a snapshot",
                    self.grace().as_ms()
                ));
            }
        }
        let mut awaited = missing.clone();
        awaited.extend(silent.iter().map(|(node, _)| *node));
        words.extend(self.waits_for_names(now, &awaited));
        if !missing.is_empty() {
            let missing: Vec<NodeId> = missing.into_iter().collect();
            words.push(format!(
                "waits for {}: they have not reported, and their data may be nowhere else. Start the nodes that are \
                 down. If machines are off for good, see docs/operate.md, `The store is gone`",
                names(&missing)
            ));
        }
        // A process that has not reported may know newer configurations, in which the one that has registered holds
        // nothing.
        match contradicted {
            Some((node, pid)) if words.is_empty() => {
                return Err(format!(
                    "--without {node} says that its machine is off or its process has ended, and process {pid} has \
                     registered, which holds positions. Nothing is written. Start again without it"
                ));
            }
            Some((node, pid)) => words.push(format!(
                "process {pid} has registered as n{node}, which --without names, and holds positions by what has been \
                 reported: nothing will be written, unless a process that has not reported knows newer configurations"
            )),
            None => {}
        }
        // The adoption does not wait for refused nodes, but they may be the reason why another node is missing.
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

    /// Silent processes that hold positions and are not known to have ended. Another process of the node has
    /// registered, which is no evidence: the silent one may run, and be cut off from this coordinator alone. So there
    /// is no time limit, except if the former coordinator has already replaced it by the other one (P10.4).
    fn waits_for_ends(&self, now: Time, until: Time, silent: &[(NodeId, Incarnation)]) -> Vec<String> {
        let mut words = Vec::new();
        let mut unended: BTreeSet<NodeId> = BTreeSet::new();
        for (node, incarnation) in silent {
            if now < until {
                words.push(format!(
                    "waits {} ms more for the process of {node} that holds positions: another one has registered",
                    (until - now).as_ms()
                ));
            } else if !self.is_replaced(*node, *incarnation)
                && !self.broken.is(Mutant::AdoptEarly)
                && unended.insert(*node)
            {
                let pid = self.witness_of(*node).map_or(0, |(_, w)| w.registration.pid);
                words.push(format!(
                    "waits for the process of {node} that holds positions: process {pid} has registered with its id, \
                     but nobody has certified that the former one has ended, and its data may be nowhere else. If it \
                     runs, let it reach this coordinator, and stop process {pid}"
                ));
            }
        }
        if !unended.is_empty() {
            let unended: Vec<NodeId> = unended.into_iter().collect();
            words.push(format!(
                "for those of {} whose former processes have ended, start this coordinator again and add their \
                 numbers to --without, as docs/operate.md says in `The store is gone`",
                names(&unended)
            ));
        }
        words
    }

    /// A process that holds no position in the known configurations may know newer ones. It is awaited for a limited
    /// time, and then its absence is reported. `awaited`: nodes that are awaited for longer.
    fn waits_for_names(&self, now: Time, awaited: &BTreeSet<NodeId>) -> Option<String> {
        let until = self.began.unwrap_or(now) + Span(self.grace().0 * 2);
        let others: Vec<NodeId> = self.unheard().difference(awaited).copied().collect();
        (now < until && !others.is_empty()).then(|| {
            format!(
                "waits {} ms more for {}: their latest processes hold nothing by what is known, and may know of more",
                (until - now).as_ms(),
                names(&others)
            )
        })
    }

    /// Nodes that other nodes or the store know, that are not said to be off, and whose latest processes have not
    /// reported.
    pub(super) fn unheard(&self) -> BTreeSet<NodeId> {
        let reported = self.complete().flat_map(|(_, w)| w.incarnations.keys());
        let stored = self.found.iter().flat_map(|found| found.nodes.keys());
        let known = reported.chain(stored).copied();
        known
            .filter(|node| self.is_missing(*node) || self.lacks_latest(*node))
            .collect()
    }

    /// Another process of the node may have reported. It may have begun anew, and says nothing of what the latest one
    /// knows.
    fn lacks_latest(&self, node: NodeId) -> bool {
        let may_run = |incarnation: &Incarnation| {
            !self.has_reported(node, *incarnation)
                && !self.ended.contains(&(node, *incarnation))
                && !self.is_over(node, *incarnation)
        };
        !self.without.contains(&node) && self.latest_ones_of(node).iter().any(may_run)
    }

    /// No process of the node has reported, and the operator does not say that its machine is off. An end in the store
    /// excuses no node: an old copy does not know a later process of the node, which may know newer configurations.
    fn is_missing(&self, node: NodeId) -> bool {
        self.witness_of(node).is_none() && !self.without.contains(&node)
    }

    pub(super) fn has_reported(&self, node: NodeId, incarnation: Incarnation) -> bool {
        self.witnesses.get(&(node, incarnation)).is_some_and(|w| w.is_whole)
    }

    /// A process of the node whose testimony is complete.
    pub(super) fn witness_of(&self, node: NodeId) -> Option<(Incarnation, &Witness)> {
        let mut reported = self.complete();
        reported
            .find(|((of, _), _)| *of == node)
            .map(|((_, incarnation), w)| (*incarnation, w))
    }

    /// The latest process of the node that a coordinator has accepted, as far as the store and the processes that have
    /// reported know. Several if they differ about which one it is.
    fn latest_ones_of(&self, node: NodeId) -> BTreeSet<Incarnation> {
        let stored = self.found.as_ref().and_then(|found| found.nodes.get(&node));
        let stored = stored.map(|n| (n.record.incarnation, n.record.ordinal));
        let reported = self.complete().filter_map(|(_, w)| w.incarnations.get(&node).copied());
        let known: Vec<(Incarnation, u32)> = stored.into_iter().chain(reported).collect();
        let newest = known.iter().map(|(_, ordinal)| *ordinal).max();
        let latest = known.iter().filter(|(_, ordinal)| Some(*ordinal) == newest);
        latest.map(|(incarnation, _)| *incarnation).collect()
    }

    /// The same, if there is one alone.
    fn latest_of(&self, node: NodeId) -> Option<Incarnation> {
        let latest = self.latest_ones_of(node);
        latest.first().copied().filter(|_| latest.len() == 1)
    }

    /// The same, if it has reported itself.
    pub(super) fn latest_witness_of(&self, node: NodeId) -> Option<(Incarnation, &Witness)> {
        let incarnation = self.latest_of(node)?;
        let witness = self.witnesses.get(&(node, incarnation));
        Some((incarnation, witness.filter(|w| w.is_whole)?))
    }

    /// Whether a coordinator has accepted a later process of the node, and that one has reported.
    fn is_replaced(&self, node: NodeId, incarnation: Incarnation) -> bool {
        self.latest_witness_of(node)
            .is_some_and(|(latest, _)| latest != incarnation)
    }

    /// Whether a coordinator has accepted a later process of the node, of one that has served.
    pub(super) fn has_a_successor(&self, node: NodeId, incarnation: Incarnation) -> bool {
        self.latest_of(node).is_some_and(|latest| latest != incarnation)
    }

    /// Whether the store knows that this incarnation has ended.
    fn is_over(&self, node: NodeId, incarnation: Incarnation) -> bool {
        let stored = self.found.as_ref().and_then(|found| found.nodes.get(&node));
        stored.is_some_and(|n| n.is_over(incarnation))
    }
}
