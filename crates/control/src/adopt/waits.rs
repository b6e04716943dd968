//! Which nodes an adoption waits for (P10.18).

use super::gather::{Chains, holders};
use super::{Adoption, Witness};
use crate::coordinator::trouble::{lists, names};
use crate::mutant::Mutant;
use crate::store::Store;
use paritas_base::{ClusterId, Incarnation, NodeId, Time};
use std::collections::{BTreeMap, BTreeSet};

/// Nodes of which a process may know more than all that has been told, each with the process ids of those of its
/// processes that have told what they know.
pub(super) type Awaited = BTreeMap<NodeId, Vec<u32>>;

impl<S: Store> Adoption<S> {
    /// What the adoption waits for, in words. Fails if a process runs that the operator calls ended.
    pub(super) fn waits(&self, now: Time, chains: &Chains) -> Result<Vec<String>, String> {
        let mut words = Vec::new();
        // What the operator says counts after the time in which every process that runs has registered.
        let until = self.began.unwrap_or(now) + self.grace();
        if !self.without.is_empty() && now < until {
            let without: Vec<NodeId> = self.without.iter().copied().collect();
            words.push(format!(
                "waits {} ms more: if processes of {} run all the same and hold positions, they call by then",
                (until - now).as_ms(),
                names(&without)
            ));
        }
        let mut awaited = self.awaited(chains);
        awaited.retain(|node, _| !self.without.contains(node));
        words.extend(self.waits_in_words(chains, &awaited));
        if chains.is_empty() && words.is_empty() {
            words.push(
                "waits for a process that has a list: no process that has registered has one, and the store has none. \
                 If a process with data runs that cannot reach this coordinator, mend that: its data may be nowhere \
                 else. If none runs, nothing is left: make a new cluster with `paritas coordinator --create` and a new \
                 store, and `paritas restore` a snapshot"
                    .into(),
            );
        }
        // A process that has not reported may know newer configurations, in which the one that has registered holds
        // nothing.
        match self.contradicted(chains) {
            Some((node, pid)) if words.is_empty() => {
                return Err(format!(
                    "--without {} says that its machine is off or its process has ended, and process {pid} has \
                     registered, which holds positions. Nothing is written. Start again without it",
                    node.0
                ));
            }
            Some((node, pid)) => words.push(format!(
                "process {pid} has registered as {node}, which --without names, and holds positions by what has been \
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

    /// All nodes that are awaited if the operator says nothing. There is no time limit: a silent process may run, be
    /// cut off from this coordinator alone, and have the only bytes, or alone know a decision (H65).
    ///
    /// An end excuses no node: its next process may know newer configurations.
    pub(super) fn awaited(&self, chains: &Chains) -> Awaited {
        let mut awaited = Awaited::new();
        let holders = holders(chains);
        for node in self.named() {
            let told: Vec<u32> = self.told_of(node).map(|(_, w)| w.registration.pid).collect();
            let held = holders.range((node, Incarnation(0))..=(node, Incarnation(u64::MAX)));
            let mut processes = self.latest_ones_of(node);
            processes.extend(held.map(|(_, incarnation)| *incarnation));
            let is_silent = |incarnation: &Incarnation| {
                !self.has_reported(node, *incarnation)
                    && !self.has_ended(node, *incarnation)
                    && !self.broken.is(Mutant::AdoptEarly)
            };
            if told.is_empty() || processes.iter().any(is_silent) {
                awaited.insert(node, told);
            }
        }
        awaited
    }

    fn waits_in_words(&self, chains: &Chains, awaited: &Awaited) -> Vec<String> {
        let mut words = Vec::new();
        let missing: Vec<NodeId> = awaited
            .iter()
            .filter(|(_, told)| told.is_empty())
            .map(|(node, _)| *node)
            .collect();
        if !missing.is_empty() {
            words.push(format!(
                "waits for {}: they have not reported, and their data or what they know may be nowhere else. Start the \
                 nodes that are down",
                names(&missing)
            ));
        }
        for (node, told) in awaited.iter().filter(|(_, told)| !told.is_empty()) {
            let pids: Vec<String> = told.iter().map(u32::to_string).collect();
            words.push(format!(
                "waits for a silent process of {node}: process {} has registered with its id, but nobody has certified \
                 that the silent one has ended, and its data or what it knows may be nowhere else. If it runs, let it \
                 reach this coordinator",
                pids.join(" and ")
            ));
        }
        if !awaited.is_empty() {
            let awaited: Vec<NodeId> = awaited.keys().copied().collect();
            let lost = self.lost_without(chains, &awaited);
            let lost = match lost.is_empty() {
                true => "no list would be lost as far as is known".to_owned(),
                false => format!("lists {} would be lost", lists(&lost)),
            };
            words.push(format!(
                "for those of {} whose machines are off for good, or whose silent processes have ended, start this \
                 coordinator again and add their numbers to --without, as docs/operate.md says in `The store is gone`. \
                 Without all of them {lost}. A decision that only they know would not be found, and what was written \
                 under it would be lost",
                names(&awaited)
            ));
        }
        words
    }

    /// A process that holds positions, and whose node the operator calls ended. Not one that has a successor: then he
    /// may speak of that one.
    fn contradicted(&self, chains: &Chains) -> Option<(NodeId, u32)> {
        let mut holders = holders(chains).into_iter();
        holders.find_map(|(node, incarnation)| {
            let witness = self.witnesses.get(&(node, incarnation)).filter(|w| w.is_whole)?;
            let is_meant = self.without.contains(&node) && !self.has_a_successor(node, incarnation);
            is_meant.then_some((node, witness.registration.pid))
        })
    }

    /// Nodes that the plan, the store or any process that has reported names.
    pub(super) fn named(&self) -> BTreeSet<NodeId> {
        let stored = self.found.iter();
        let lists = self.complete().flat_map(|(_, w)| w.lists.values());
        let lists = lists.chain(stored.clone().flat_map(|found| found.lists.values()));
        let held = lists.flat_map(|c| c.positions.iter().flatten().map(|a| a.tenure.node));
        let known = self.complete().flat_map(|(_, w)| w.incarnations.keys().copied());
        let planned = self.plan.nodes.iter().chain(&self.plan.log_nodes).map(|n| n.id);
        let stored = stored.flat_map(|found| found.nodes.keys().copied());
        planned.chain(stored).chain(known).chain(held).collect()
    }

    pub(super) fn has_reported(&self, node: NodeId, incarnation: Incarnation) -> bool {
        self.witnesses.get(&(node, incarnation)).is_some_and(|w| w.is_whole)
    }

    /// The processes of the node whose testimony is complete.
    pub(super) fn told_of(&self, node: NodeId) -> impl Iterator<Item = (Incarnation, &Witness)> {
        let of_node = self
            .witnesses
            .range((node, Incarnation(0))..=(node, Incarnation(u64::MAX)));
        of_node
            .filter(|(_, w)| w.is_whole)
            .map(|((_, incarnation), w)| (*incarnation, w))
    }

    /// One of them: one that is connected, if there is one.
    pub(super) fn running_witness_of(&self, node: NodeId) -> Option<(Incarnation, &Witness)> {
        let is_connected = |incarnation| {
            self.links
                .values()
                .any(|link| link.process == Some((node, incarnation)))
        };
        self.told_of(node)
            .max_by_key(|(incarnation, _)| is_connected(*incarnation))
    }

    /// The latest process of the node that a coordinator has accepted, as far as the store and the processes that have
    /// reported know. Several if they differ about which one it is.
    pub(super) fn latest_ones_of(&self, node: NodeId) -> BTreeSet<Incarnation> {
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

    /// Whether a coordinator has accepted a later process of the node, of one that has served. So this one had ended or
    /// held nothing (P10.13).
    pub(super) fn has_a_successor(&self, node: NodeId, incarnation: Incarnation) -> bool {
        self.latest_of(node).is_some_and(|latest| latest != incarnation)
    }

    /// Whether the end of this process is known: it is certified, the store knows of it, or the process has a
    /// successor.
    fn has_ended(&self, node: NodeId, incarnation: Incarnation) -> bool {
        let stored = self.found.as_ref().and_then(|found| found.nodes.get(&node));
        self.ended.contains(&(node, incarnation))
            || stored.is_some_and(|n| n.is_over(incarnation))
            || self.has_a_successor(node, incarnation)
    }
}
