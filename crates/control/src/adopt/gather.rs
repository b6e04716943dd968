//! Decides whether all testimonies are complete, and builds the records from them.

use super::chain::{Apart, Chain, Report, join};
use super::{Adoption, Progress};
use crate::coordinator::first_record;
use crate::plan::{ClusterPlan, LostPolicy, NODES_MAX};
use crate::record::{Adopted, End, OpenError, Records, StoredNode, StoredSlots};
use crate::store::{MemoryStore, Store};
use paritas_base::configuration::{ClusterRecord, Configuration, NodeRole, NodeState};
use paritas_base::{Epoch, Incarnation, ListId, NodeId, OneSlot, Time, Version, hash_slots};
use std::collections::{BTreeMap, BTreeSet};

pub(super) type Chains = BTreeMap<ListId, Chain>;

/// The result of one evaluation.
enum Found {
    /// Testimonies are missing.
    Waits(Vec<String>),
    All(Box<Adopted>, Vec<String>),
}

impl<S: Store> Adoption<S> {
    /// Evaluates the testimonies. If they are complete, writes the store.
    pub(super) fn look(&mut self, now: Time) -> Progress {
        let (adopted, words) = match self.work_out(now) {
            Err(why) => return Progress::Failed(why),
            Ok(Found::Waits(words)) => return Progress::Waits(words),
            Ok(Found::All(adopted, words)) => (adopted, words),
        };
        if let Err(error) = self.can_be_read(&adopted) {
            return Progress::Failed(format!(
                "the reports of the nodes make no store that can be read: {error}. Nothing is written"
            ));
        }
        match Records::adopt(self.found.as_ref(), &mut self.store, &adopted) {
            Ok(()) => Progress::Done(words),
            Err(error) => Progress::Failed(error.to_string()),
        }
    }

    /// Checks that a coordinator can open these records, by writing them to a store in memory and reading them again.
    fn can_be_read(&self, adopted: &Adopted) -> Result<(), OpenError> {
        let mut copy = MemoryStore::new();
        Records::adopt(None, &mut copy, adopted)?;
        Records::look(&copy, &self.plan, self.versions).map(drop)
    }

    /// P10.21: a version that a process knows to be active was committed, also if this process cannot read its records.
    fn can_speak(&self) -> Result<(), String> {
        let high = self.versions.high;
        match self.witnesses.iter().find(|(_, w)| w.active_version > high) {
            Some(((node, _), w)) => Err(format!(
                "{node} knows that the cluster's active version is {}, and this paritas speaks {}. Nothing is written. \
                 Use the paritas that the nodes run",
                w.active_version, self.versions
            )),
            None => Ok(()),
        }
    }

    fn work_out(&self, now: Time) -> Result<Found, String> {
        self.can_speak()?;
        let cluster = self.cluster()?;
        let plan = cluster.as_ref().map(|cluster| self.plan_of(cluster)).transpose()?;
        let chains = self.chains()?;
        let mut waits = self.waits(now, &chains)?;
        if let Some(apart) = self.apart(&chains) {
            if waits.is_empty() {
                return Err(self.cannot_be_joined(apart));
            }
            waits.push(format!("{}: those that are awaited may know more", apart.why));
        }
        let (Some(cluster), Some(plan), true) = (cluster, plan, waits.is_empty()) else {
            return Ok(Found::Waits(waits));
        };
        let mut adopted = Adopted {
            slots: self.slots(&chains),
            nodes: self.nodes(&plan, &chains),
            plan,
            cluster,
            lists: Vec::new(),
        };
        for chain in chains.values() {
            adopted.lists.push(next(chain, &adopted.cluster)?);
        }
        self.check_lists(&adopted)?;
        if adopted.nodes.len() > NODES_MAX {
            return Err(format!(
                "the reports of the nodes name {} nodes, and a cluster has at most {NODES_MAX}. Nothing is written",
                adopted.nodes.len()
            ));
        }
        if let Some(losses) = self.losses(&chains, &adopted).filter(|_| !self.confirmed) {
            return Ok(Found::Waits(losses));
        }
        let words = self.words(&chains, &adopted);
        Ok(Found::All(Box::new(adopted), words))
    }

    /// The cluster's record. All nodes must have the same one, except for times that may change, and for the active
    /// version: one that a node knows was committed, and does not fall.
    fn cluster(&self) -> Result<Option<ClusterRecord>, String> {
        let reported = self
            .complete()
            .filter_map(|((node, _), w)| Some((node.to_string(), w.cluster.as_ref()?)));
        let stored = self.found.iter().map(|found| ("the store".to_owned(), &found.cluster));
        let mut all: Option<(String, ClusterRecord)> = None;
        for (who, cluster) in stored.chain(reported) {
            let Some((first, known)) = &mut all else {
                all = Some((who, cluster.clone()));
                continue;
            };
            let suspicion_ms = known.suspicion_ms.max(cluster.suspicion_ms);
            let active_version = known.active_version.max(cluster.active_version);
            (known.suspicion_ms, known.active_version) = (cluster.suspicion_ms, cluster.active_version);
            if known != cluster {
                return Err(format!(
                    "{first} is of cluster {:016x}, and {who} of cluster {:016x}, or the two know different records of \
                     one. Nothing is written. Stop the processes that are not of this coordinator's cluster, or give \
                     them the address of theirs",
                    known.id.0, cluster.id.0
                ));
            }
            (known.suspicion_ms, known.active_version) = (suspicion_ms, active_version);
        }
        Ok(all.map(|(_, cluster)| cluster))
    }

    fn chains(&self) -> Result<Chains, String> {
        let mut reported: BTreeMap<ListId, Vec<Report<'_>>> = BTreeMap::new();
        if let Some(found) = &self.found {
            for (list, c) in &found.lists {
                reported.entry(*list).or_default().push((None, c, found.trail(*list)));
            }
        }
        for (incarnation, witness) in self.complete() {
            for (list, c) in &witness.lists {
                reported
                    .entry(*list)
                    .or_default()
                    .push((Some(*incarnation), c, &c.trail));
            }
        }
        let joined = reported
            .into_iter()
            .map(|(list, reported)| Ok((list, join(&reported)?)));
        let joined: Result<Vec<_>, String> = joined.collect();
        Ok(joined?
            .into_iter()
            .filter_map(|(list, chain)| Some((list, chain?)))
            .collect())
    }

    /// A report that cannot be compared with the others. One of a process that a coordinator has replaced does not
    /// count: the process held nothing by then (P10.13), and the list has gone on without it.
    fn apart<'a>(&self, chains: &'a Chains) -> Option<&'a Apart> {
        let counts = |apart: &&Apart| match apart.who {
            Some((node, incarnation)) => apart.holds_now || !self.has_a_successor(node, incarnation),
            None => true,
        };
        chains.values().flat_map(|chain| &chain.apart).find(counts)
    }

    fn cannot_be_joined(&self, apart: &Apart) -> String {
        let what = match apart.who.and_then(|process| self.witnesses.get(&process)) {
            None => "Move the store's file away: it is too old to be joined".to_owned(),
            Some(witness) => format!(
                "Process {} holds a position of that list, and may hold others. Take a snapshot before anything is \
                 stopped. If what it holds is to be given up, stop that process and start again; it comes back as a \
                 new one",
                witness.registration.pid
            ),
        };
        format!("{}. Nothing is written. {what}", apart.why)
    }

    /// The plan of this cluster. The settings must be those with which it was made.
    fn plan_of(&self, cluster: &ClusterRecord) -> Result<ClusterPlan, String> {
        let mut plan = self.found.as_ref().map_or(&self.plan, |found| &found.plan).clone();
        (plan.cluster, plan.hash_key, plan.suspicion_ms) = (cluster.id, cluster.hash_key, cluster.suspicion_ms);
        if self.found.is_none() {
            // The nodes do not know the policy. `Stop` is the one that loses no data.
            plan.lost_policy = LostPolicy::Stop;
        }
        let asked = ClusterRecord {
            active_version: cluster.active_version,
            ..plan.record()
        };
        let pairs = [
            (
                "scheme",
                (asked.data, asked.parity, asked.logged) == (cluster.data, cluster.parity, cluster.logged),
            ),
            ("ack_quorum", asked.ack_quorum == cluster.ack_quorum),
            ("chunk", asked.chunk_bytes == cluster.chunk_bytes),
            ("lease_ms", asked.lease_ms == cluster.lease_ms),
            ("min_redundancy", asked.min_redundancy == cluster.min_redundancy),
            ("one_slot", asked.more == cluster.more),
            ("nodes, log_nodes, domains or memory", asked == *cluster),
        ];
        match pairs.iter().find(|(_, same)| !same) {
            Some((key, _)) => Err(format!(
                "the nodes' cluster was made with another {key} than the settings say. Nothing is written. Set it to \
                 what it was: {}+{}, ack_quorum {}, chunk {}, lease_ms {}, min_redundancy {}, one_slot \"{}\", {} \
                 streams",
                cluster.data,
                cluster.parity,
                cluster.ack_quorum,
                cluster.chunk_bytes,
                cluster.lease_ms,
                cluster.min_redundancy,
                OneSlot::of(&cluster.more).unwrap_or_default(),
                cluster.slots.len()
            )),
            None => Ok(plan),
        }
    }

    /// The record of slot moves. A move in progress is given up.
    fn slots(&self, chains: &Chains) -> StoredSlots {
        let mut slots = self
            .found
            .as_ref()
            .map_or_else(StoredSlots::default, |found| found.slots.clone());
        let versions = chains.values().map(|chain| &chain.newest.slots);
        let newest = versions
            .map(|s| s.hand_off.map_or(0, |h| h.version).max(s.version))
            .max();
        slots.version = slots.version.max(newest.unwrap_or(0));
        slots.give_up("the coordinator's store was lost");
        slots
    }

    fn nodes(&self, plan: &ClusterPlan, chains: &Chains) -> Vec<StoredNode> {
        let held = holders(chains);
        let mut ids = self.named();
        ids.extend(self.complete().map(|((node, _), _)| *node));
        let node = |id| {
            self.node(
                plan,
                id,
                held.iter()
                    .filter(|(node, _)| *node == id)
                    .map(|(_, incarnation)| *incarnation)
                    .collect(),
            )
        };
        ids.into_iter().filter_map(node).collect()
    }

    /// The ordinal of an incarnation. It must be large enough that no process ignores the record as old (P10.16).
    fn ordinal(&self, id: NodeId, incarnation: Incarnation) -> u32 {
        let stored = self.found.as_ref().and_then(|found| found.nodes.get(&id));
        let stored = stored.map(|n| (n.record.incarnation, n.record.ordinal));
        let reported = self.complete().filter_map(|(_, w)| w.incarnations.get(&id).copied());
        let after = |(known, count): (Incarnation, u32)| count.saturating_add(u32::from(known != incarnation));
        stored.into_iter().chain(reported).map(after).max().unwrap_or(1)
    }

    /// A node's record: of the process that holds positions if it has reported, else of the latest one that a
    /// coordinator has accepted, else of another process of the node.
    fn node(&self, plan: &ClusterPlan, id: NodeId, held: Vec<Incarnation>) -> Option<StoredNode> {
        let stored = self.found.as_ref().and_then(|found| found.nodes.get(&id)).cloned();
        let holder = held.iter().find(|incarnation| self.has_reported(id, **incarnation));
        let witness = match holder {
            Some(incarnation) => self.witnesses.get(&(id, *incarnation)).map(|w| (*incarnation, w)),
            None => self.latest_witness_of(id).or_else(|| self.running_witness_of(id)),
        };
        let latest = self.latest_ones_of(id);
        let last_known = latest.last().or_else(|| held.last()).copied();
        let planned = plan.all().find(|n| n.id == id).map(|n| n.domain.clone());
        let fresh = witness.map(|(_, w)| {
            let domain = planned.clone().or_else(|| w.registration.domain.clone());
            first_record(&w.registration, domain.unwrap_or_else(|| id.0.to_string()))
        });
        let mut node = match (stored, &fresh) {
            (Some(stored), _) => stored,
            (None, Some(fresh)) => fresh.clone(),
            (None, None) => {
                let role = match plan.log_nodes.iter().any(|n| n.id == id) {
                    true => NodeRole::Log,
                    false => NodeRole::Member,
                };
                StoredNode::unknown(id, last_known?, planned.unwrap_or_else(|| id.0.to_string()), role)
            }
        };
        let present = witness.map(|(incarnation, _)| incarnation).or(last_known);
        if let Some(incarnation) = present.filter(|incarnation| *incarnation != node.record.incarnation) {
            node.begin(incarnation);
        }
        if let Some(fresh) = fresh {
            node.record = fresh.record;
        }
        node.record.ordinal = self.ordinal(id, node.record.incarnation);
        // A process that has lists was accepted once. It may still run.
        let replaced = self.complete().filter(|((of, incarnation), w)| {
            *of == id && !w.lists.is_empty() && !held.contains(incarnation) && self.has_a_successor(id, *incarnation)
        });
        let replaced: Vec<Incarnation> = replaced.map(|((_, incarnation), _)| *incarnation).collect();
        // One that has not reported has ended, or the operator says so.
        let silent = latest
            .into_iter()
            .filter(|incarnation| !self.has_reported(id, *incarnation));
        for incarnation in replaced.into_iter().chain(silent).chain(held) {
            if incarnation != node.record.incarnation && !node.is_over(incarnation) {
                node.past.push((incarnation, false));
            }
            if self.ended.contains(&(id, incarnation)) {
                node.certify(incarnation);
            }
        }
        if witness.is_none() {
            node.record.state = NodeState::Down;
            // Also of a process that has ended by the store: the operator says that no later one runs either, so the
            // next coordinator need not wait for it (P10.16).
            if self.without.contains(&id) {
                node.end = End::Attested;
            }
        }
        Some(node)
    }

    fn check_lists(&self, adopted: &Adopted) -> Result<(), String> {
        if adopted.lists.is_empty() {
            return Ok(());
        }
        let known: BTreeSet<ListId> = adopted.lists.iter().map(|(c, _)| c.list).collect();
        let planned: BTreeSet<ListId> = (0..adopted.plan.list_count() as u16).map(ListId).collect();
        if let Some(list) = planned.symmetric_difference(&known).next() {
            return Err(format!(
                "the cluster has {} lists by the settings, and {} by the reports of the nodes; list {} is in only one \
                 of them. Nothing is written. The settings must be those that the cluster was made with",
                planned.len(),
                known.len(),
                list.0
            ));
        }
        let held = adopted.lists.iter().flat_map(|(c, _)| {
            let held = c.slots.held(c.list, &adopted.cluster);
            held.into_iter().map(|range| (c.list, range))
        });
        hash_slots::check_whole(held).map_err(|why| {
            format!(
                "the reports of the nodes about slots that were being moved are inconsistent: {why}. Nothing is \
                 written. Start nodes that are down, or --create a new cluster and restore a snapshot"
            )
        })
    }
}

/// Processes that hold positions in the newest configurations.
pub(super) fn holders(chains: &Chains) -> BTreeSet<(NodeId, Incarnation)> {
    let held = chains
        .values()
        .flat_map(|chain| chain.newest.positions.iter().flatten());
    held.map(|a| (a.tenure.node, a.tenure.incarnation)).collect()
}

/// The next configuration of a list: the newest one without the slot moves that are given up. Its higher epoch lets a
/// coordinator with another store detect that its store is behind.
fn next(chain: &Chain, cluster: &ClusterRecord) -> Result<(Configuration, Vec<u64>), String> {
    let Chain { newest, trail, .. } = chain;
    if newest.epoch.0 >= Version::TERM_MAX {
        return Err(format!("list {} has no epoch left", newest.list.0));
    }
    let mut next = newest.clone();
    next.epoch = Epoch(newest.epoch.0 + 1);
    if let Some(what) = next.slots.hand_off {
        next.slots = next.slots.given_up(next.list, cluster, &what);
    }
    next.seal(Some(newest));
    let ids = core::iter::once(newest.id).chain(trail.iter().copied());
    let ids: Vec<u64> = ids.take(Configuration::HISTORY_MAX).collect();
    // The joined trail: that of the newest configuration may be shorter.
    next.trail = ids.iter().copied().take(Configuration::TRAIL_MAX).collect();
    Ok((next, ids))
}
