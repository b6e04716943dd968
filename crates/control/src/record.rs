//! The coordinator's records in the store (`docs/formats/control.md`), and their copy in memory. A commit changes the
//! store first, then the copy.

mod error;

use crate::coordinator::SlotTask;
use crate::mutant::{Broken, Mutant};
use crate::plan::{ClusterPlan, PlannedNode, check_record};
use crate::store::{Change, Expected, Store, StoreError};
use paritas_base::configuration::{ClusterRecord, Configuration, Duty, NodeRecord, NodeRole, NodeState};
use paritas_base::formats::Versions;
use paritas_base::one_slot;
use paritas_base::{Epoch, Incarnation, ListId, NodeId, Sections};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub use error::OpenError;

/// The first byte of every record: the version since which records are as they are. It rises only when one of them
/// changes.
pub const RECORD_FORMAT: u8 = 8;
const CLUSTER_KEY: &str = "cluster";
const PLAN_KEY: &str = "plan";
const HEAD_KEY: &str = "head";
const SLOTS_KEY: &str = "slots";
const NODE_PREFIX: &str = "node/";
const LIST_PREFIX: &str = "list/";
const TRAIL_PREFIX: &str = "trail/";
/// Limit of earlier incarnations of a node that are recorded, so that their late messages are recognized.
const PAST_MAX: usize = 16;

/// The record that every transaction compares and writes. So a transaction changes only a store that is as its
/// coordinator left it, and nothing can be taken for that store (P10.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Head {
    /// How often a coordinator has opened the store.
    openings: u64,
    /// A random number of that opening.
    reign: u64,
    /// The number of the transaction within the opening. No number is used for two attempts: one that fails may take
    /// effect later.
    attempt: u64,
}

/// What a coordinator finds in its store after a commit that was not confirmed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// What it committed last: no other attempt has taken effect.
    Unchanged,
    /// An attempt of its own that was not confirmed: it goes on with that.
    Landed,
    /// Another coordinator has opened the store.
    Deposed,
    /// An older state: what was committed since is not in it.
    WentBack,
}

/// Whether an incarnation has ended, and by which evidence. Written as one byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) enum End {
    /// It is not known to have ended.
    #[default]
    Unknown,
    /// Its supervisor has waited for the process and certified the end.
    Certified,
    /// An operator attested the end, which may be an error. So its leases do not count as ended (P5.5): the process
    /// could still run.
    Attested,
}

/// A node in the store: its record and what is known of its incarnations.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct StoredNode {
    pub(crate) record: NodeRecord,
    /// Whether the present incarnation has ended.
    pub(crate) end: End,
    /// Earlier incarnations, oldest first, and whether their end is certified.
    pub(crate) past: Vec<(Incarnation, bool)>,
    /// Its duty, which holds for all its incarnations.
    pub(crate) duty: Duty,
    /// What a later version has added.
    pub(crate) more: Sections,
}

impl StoredNode {
    /// The record of a node of which only an incarnation that held a position is known.
    pub(crate) fn unknown(id: NodeId, incarnation: Incarnation, domain: String, role: NodeRole) -> Self {
        Self {
            record: NodeRecord {
                id,
                incarnation,
                ordinal: 1,
                domain,
                role,
                state: NodeState::Down,
                pid: 0,
                client_address: String::new(),
                cluster_address: String::new(),
                peer_address: String::new(),
                more: Sections::none(),
            },
            end: End::Unknown,
            past: Vec::new(),
            duty: Duty::Full,
            more: Sections::none(),
        }
    }

    /// Makes `incarnation` the present one.
    pub(crate) fn begin(&mut self, incarnation: Incarnation) {
        self.past.push((self.record.incarnation, self.end == End::Certified));
        self.past.drain(..self.past.len().saturating_sub(PAST_MAX));
        self.record.incarnation = incarnation;
        self.record.ordinal = self.record.ordinal.saturating_add(1);
        // What the process before has said.
        self.record.more = Sections::none();
        self.end = End::Unknown;
    }

    /// Whether the present incarnation has ended, certified or attested.
    pub(crate) fn has_ended(&self) -> bool {
        self.end != End::Unknown
    }

    /// Records that an operator attests the end of `incarnation`.
    pub(crate) fn attest(&mut self, incarnation: Incarnation) {
        if self.record.incarnation == incarnation && !self.has_ended() {
            self.end = End::Attested;
        }
    }

    /// Records that the end of `incarnation` is certified, even if it never registered.
    pub(crate) fn certify(&mut self, incarnation: Incarnation) {
        if self.record.incarnation == incarnation {
            self.end = End::Certified;
        } else if let Some(past) = self.past.iter_mut().find(|(past, _)| *past == incarnation) {
            past.1 = true;
        } else {
            self.past.push((incarnation, true));
            self.past.drain(..self.past.len().saturating_sub(PAST_MAX));
        }
    }

    /// Whether `incarnation` may not register again.
    pub(crate) fn is_over(&self, incarnation: Incarnation) -> bool {
        self.past.iter().any(|(past, _)| *past == incarnation)
            || (self.has_ended() && self.record.incarnation == incarnation)
    }
}

/// The record of slot moves (P10.8).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct StoredSlots {
    /// The version of the newest hand-off.
    pub(crate) version: u64,
    /// The present task.
    pub(crate) task: Option<SlotTask>,
    /// The newest task, and why it was given up. Empty if it was not.
    pub(crate) latest: Option<SlotTask>,
    pub(crate) reason: String,
    /// What a later version has added.
    pub(crate) more: Sections,
}

impl StoredSlots {
    /// Ends the task. Slots that have moved stay where they are.
    pub(crate) fn give_up(&mut self, why: &str) {
        if self.task.take().is_some() {
            self.reason = why.into();
        }
    }
}

/// The records that an adoption has built from the reports of the nodes.
#[derive(Clone, Debug)]
pub(crate) struct Adopted {
    pub(crate) plan: ClusterPlan,
    pub(crate) cluster: ClusterRecord,
    pub(crate) nodes: Vec<StoredNode>,
    /// The configurations, each with the ids of the epochs before, latest first.
    pub(crate) lists: Vec<(Configuration, Vec<u64>)>,
    pub(crate) slots: StoredSlots,
}

/// All records.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    pub(crate) plan: ClusterPlan,
    pub(crate) cluster: ClusterRecord,
    pub(crate) nodes: BTreeMap<NodeId, StoredNode>,
    pub(crate) lists: BTreeMap<ListId, Configuration>,
    pub(crate) slots: StoredSlots,
    /// Ids of earlier epochs of each list, the latest first.
    trails: BTreeMap<ListId, Vec<u64>>,
    /// As in the store.
    head: Head,
    /// The number of the latest attempt to commit.
    attempts: u64,
    /// The number of the latest attempt that can take effect no more: the head that it expected is gone.
    void: u64,
    /// What this process may speak.
    pub(crate) versions: Versions,
    pub(crate) broken: Broken,
}

impl Records {
    /// Writes a new cluster into an empty store.
    pub(crate) fn create<S: Store>(store: &mut S, plan: &ClusterPlan) -> Result<(), OpenError> {
        plan.check_new().map_err(OpenError::Plan)?;
        if Self::load(store, Versions::OURS)?.is_some() {
            return Err(OpenError::Exists);
        }
        let changes = [
            put(HEAD_KEY.into(), &Head::default()),
            put(CLUSTER_KEY.into(), &plan.record()),
            put(PLAN_KEY.into(), plan),
        ];
        store.commit(&expected(None), &changes)?;
        Ok(())
    }

    /// Takes over the store of a cluster. `reign` is random.
    pub(crate) fn open<S: Store>(
        store: &mut S,
        plan: &ClusterPlan,
        reign: u64,
        versions: Versions,
    ) -> Result<Self, OpenError> {
        plan.check().map_err(OpenError::Plan)?;
        let mut records = Self::load(store, versions)?.ok_or(OpenError::NoCluster)?;
        check_same(&records.plan, plan)?;
        let head = Head {
            openings: records.head.openings.saturating_add(1),
            reign,
            attempt: 0,
        };
        store.commit(&expected(Some(&records.head)), &[put(HEAD_KEY.into(), &head)])?;
        records.head = head;
        Ok(records)
    }

    /// The records of a store that may be empty, for an adoption.
    pub(crate) fn look<S: Store>(store: &S, plan: &ClusterPlan, versions: Versions) -> Result<Option<Self>, OpenError> {
        plan.check().map_err(OpenError::Plan)?;
        let found = Self::load(store, versions)?;
        if let Some(records) = &found {
            check_same(&records.plan, plan)?;
        }
        Ok(found)
    }

    /// Writes the records of an adoption over those of the store, in one transaction.
    pub(crate) fn adopt<S: Store>(found: Option<&Self>, store: &mut S, adopted: &Adopted) -> Result<(), StoreError> {
        let head = found.map(|found| found.head);
        let next = Head {
            openings: head.map_or(0, |head| head.openings).saturating_add(1),
            ..Head::default()
        };
        let mut changes = vec![
            put(HEAD_KEY.into(), &next),
            put(CLUSTER_KEY.into(), &adopted.cluster),
            put(PLAN_KEY.into(), &adopted.plan),
            put(SLOTS_KEY.into(), &adopted.slots),
        ];
        changes.extend(adopted.nodes.iter().map(|n| put(node_key(n.record.id), n)));
        for (list, trail) in &adopted.lists {
            changes.push(put(list_key(list.list), list));
            changes.push(put(trail_key(list.list), trail));
        }
        store.commit(&expected(head.as_ref()), &changes)
    }

    /// Ids of the epochs before the present one of a list, the latest first.
    pub(crate) fn trail(&self, list: ListId) -> &[u64] {
        self.trails.get(&list).map_or(&[], Vec::as_slice)
    }

    fn load<S: Store>(store: &S, versions: Versions) -> Result<Option<Self>, OpenError> {
        let entries = store.list("")?;
        if entries.is_empty() {
            return Ok(None);
        }
        // Check all formats first, so that a newer format is not reported as damage.
        for (key, value) in &entries {
            match value.first() {
                Some(found) if *found > RECORD_FORMAT => {
                    return Err(OpenError::NewerFormat {
                        key: key.clone(),
                        found: (*found).into(),
                        known: RECORD_FORMAT.into(),
                    });
                }
                Some(&RECORD_FORMAT) => {}
                Some(found @ 1..RECORD_FORMAT) => {
                    return Err(OpenError::OlderFormat {
                        key: key.clone(),
                        found: *found,
                    });
                }
                _ => return Err(OpenError::Damaged { key: key.clone() }),
            }
            let several = [NODE_PREFIX, LIST_PREFIX, TRAIL_PREFIX];
            let is_known = [CLUSTER_KEY, PLAN_KEY, HEAD_KEY, SLOTS_KEY].contains(&key.as_str())
                || several.iter().any(|prefix| key.starts_with(prefix));
            if !is_known {
                return Err(OpenError::UnknownRecord { key: key.clone() });
            }
        }
        let values: BTreeMap<String, Vec<u8>> = entries.into_iter().collect();
        let mut records = Self {
            plan: read(&values, PLAN_KEY)?,
            cluster: read(&values, CLUSTER_KEY)?,
            nodes: BTreeMap::new(),
            lists: BTreeMap::new(),
            // This record exists only after the first move of slots.
            slots: if values.contains_key(SLOTS_KEY) {
                read(&values, SLOTS_KEY)?
            } else {
                StoredSlots::default()
            },
            trails: BTreeMap::new(),
            head: read(&values, HEAD_KEY)?,
            attempts: 0,
            void: 0,
            versions,
            broken: Broken::default(),
        };
        records.check_fixed()?;
        for key in values.keys() {
            if key.starts_with(NODE_PREFIX) {
                let node: StoredNode = read(&values, key)?;
                if *key != node_key(node.record.id) {
                    return Err(OpenError::Damaged { key: key.clone() });
                }
                known(key, &node.more, &[])?;
                known(key, &node.record.more, &[])?;
                records.nodes.insert(node.record.id, node);
            } else if key.starts_with(LIST_PREFIX) {
                let list: Configuration = read(&values, key)?;
                let scheme = (list.data, list.parity) == (records.plan.data, records.plan.parity);
                if *key != list_key(list.list) || !scheme || !list.is_well_formed() {
                    return Err(OpenError::Damaged { key: key.clone() });
                }
                known(key, &list.more, &[])?;
                let trail: Vec<u64> = read(&values, &trail_key(list.list))?;
                if !trail.starts_with(&list.trail) {
                    return Err(OpenError::Damaged {
                        key: trail_key(list.list),
                    });
                }
                records.trails.insert(list.list, trail);
                records.lists.insert(list.list, list);
            }
        }
        Ok(Some(records))
    }

    /// Checks the records that are written once, so that damaged ones are not used.
    fn check_fixed(&self) -> Result<(), OpenError> {
        let damaged = |key: &str| OpenError::Damaged { key: key.into() };
        let (plan, cluster) = (&self.plan, &self.cluster);
        if cluster.active_version > self.versions.high {
            return Err(OpenError::NewerFormat {
                key: CLUSTER_KEY.into(),
                found: cluster.active_version,
                known: self.versions.high,
            });
        }
        known(CLUSTER_KEY, &cluster.more, &[one_slot::SECTION])?;
        known(PLAN_KEY, &plan.more, &[one_slot::SECTION])?;
        known(SLOTS_KEY, &self.slots.more, &[])?;
        plan.check().map_err(|_| damaged(PLAN_KEY))?;
        let scheme = (cluster.data, cluster.parity, cluster.logged) == (plan.data, plan.parity, plan.logged);
        if !scheme || cluster.chunk_bytes != plan.chunk_bytes || check_record(cluster, self.versions).is_err() {
            return Err(damaged(CLUSTER_KEY));
        }
        Ok(())
    }

    /// Whose the store is now, by its head.
    pub(crate) fn standing<S: Store>(&self, store: &S) -> Result<Standing, OpenError> {
        let Some(value) = store.get(HEAD_KEY)? else {
            return Ok(Standing::WentBack);
        };
        Ok(self.standing_by(read_one(HEAD_KEY, &value)?))
    }

    fn standing_by(&self, found: Head) -> Standing {
        let mine = self.head;
        let is_mine = (found.openings, found.reign) == (mine.openings, mine.reign);
        let has_landed = found.attempt > self.void && found.attempt <= self.attempts;
        match is_mine {
            true if found == mine => Standing::Unchanged,
            true if has_landed || self.broken.is(Mutant::ReloadOfAnyStore) => Standing::Landed,
            false if found.openings >= mine.openings => Standing::Deposed,
            _ => Standing::WentBack,
        }
    }

    /// Reads all records again after a commit that was not confirmed, if the store is this coordinator's. A store that
    /// went back is never read into a running coordinator: it would go on from decisions that count no more.
    pub(crate) fn reload<S: Store>(&mut self, store: &S) -> Result<Standing, OpenError> {
        let Some(found) = Self::load(store, self.versions)? else {
            return Ok(Standing::WentBack);
        };
        let standing = self.standing_by(found.head);
        if standing == Standing::Landed {
            // The other attempts expected the head of before, as this one did.
            let (broken, attempts) = (self.broken, self.attempts);
            *self = Self {
                broken,
                attempts,
                void: attempts,
                ..found
            };
        }
        Ok(standing)
    }

    /// Commits nodes and lists in one transaction, then updates the copy in memory.
    pub(crate) fn commit<S: Store>(
        &mut self,
        store: &mut S,
        nodes: &[StoredNode],
        lists: &[Configuration],
        slots: Option<&StoredSlots>,
    ) -> Result<(), StoreError> {
        let trails: Vec<(ListId, Vec<u64>)> = lists.iter().map(|c| (c.list, self.trail_before(c))).collect();
        let mut changes = Vec::new();
        changes.extend(nodes.iter().map(|n| put(node_key(n.record.id), n)));
        changes.extend(lists.iter().map(|c| put(list_key(c.list), c)));
        changes.extend(trails.iter().map(|(list, trail)| put(trail_key(*list), trail)));
        changes.extend(slots.map(|s| put(SLOTS_KEY.into(), s)));
        self.transact(store, changes)?;
        self.nodes.extend(nodes.iter().map(|n| (n.record.id, n.clone())));
        self.lists.extend(lists.iter().map(|c| (c.list, c.clone())));
        self.trails.extend(trails);
        if let Some(slots) = slots {
            self.slots = slots.clone();
        }
        Ok(())
    }

    /// Commits changed settings, alone.
    pub(crate) fn commit_settings<S: Store>(
        &mut self,
        store: &mut S,
        plan: ClusterPlan,
        cluster: ClusterRecord,
    ) -> Result<(), StoreError> {
        self.transact(
            store,
            vec![put(PLAN_KEY.into(), &plan), put(CLUSTER_KEY.into(), &cluster)],
        )?;
        (self.plan, self.cluster) = (plan, cluster);
        Ok(())
    }

    /// Makes these changes in a store that is as this coordinator left it.
    fn transact<S: Store>(&mut self, store: &mut S, mut changes: Vec<Change>) -> Result<(), StoreError> {
        self.attempts = match self.broken.is(Mutant::AttemptUsedAgain) {
            true => self.head.attempt + 1,
            false => self.attempts + 1,
        };
        let next = Head {
            attempt: self.attempts,
            ..self.head
        };
        let mut expected = expected(Some(&self.head));
        if self.broken.is(Mutant::HeadNotCompared) {
            expected.value = store.get(HEAD_KEY)?;
        }
        changes.push(put(HEAD_KEY.into(), &next));
        store.commit(&expected, &changes)?;
        (self.head, self.void) = (next, self.attempts);
        Ok(())
    }

    /// The ids before a configuration that follows the present one of its list.
    fn trail_before(&self, next: &Configuration) -> Vec<u64> {
        let earlier = self.trails.get(&next.list).into_iter().flatten().copied();
        let latest = self.lists.get(&next.list).map(|now| now.id);
        latest
            .into_iter()
            .chain(earlier)
            .take(Configuration::HISTORY_MAX)
            .collect()
    }

    /// The newest configuration of a list, with a trail that reaches back to that epoch if it is known so far.
    pub(crate) fn list_since(&self, list: ListId, epoch: Epoch) -> Option<Configuration> {
        let mut found = self.lists.get(&list)?.clone();
        let wanted = found.epoch.0.saturating_sub(epoch.0) as usize;
        if wanted > found.trail.len() {
            let trail = self.trails.get(&list).into_iter().flatten();
            found.trail = trail.copied().take(wanted).collect();
        }
        Some(found)
    }

    /// Whether a node's configuration is in the history of its list here. `None`: it is from before what is known.
    pub(crate) fn knows(&self, list: ListId, epoch: Epoch, id: u64) -> Option<bool> {
        if self.broken.is(Mutant::EpochForId) {
            return Some(true);
        }
        let Some(now) = self.lists.get(&list) else {
            return Some(false);
        };
        match now.epoch.0.checked_sub(epoch.0) {
            None => Some(false),
            Some(0) => Some(now.id == id),
            Some(back) => {
                let found = self.trails.get(&list)?.get(back as usize - 1)?;
                Some(*found == id)
            }
        }
    }
}

/// The condition of every transaction: the head of the store.
fn expected(head: Option<&Head>) -> Expected {
    Expected {
        key: HEAD_KEY.into(),
        value: head.map(encode),
    }
}

fn put(key: String, value: &impl Serialize) -> Change {
    Change {
        key,
        value: Some(encode(value)),
    }
}

fn node_key(node: NodeId) -> String {
    format!("{NODE_PREFIX}{:05}", node.0)
}

fn list_key(list: ListId) -> String {
    format!("{LIST_PREFIX}{:05}", list.0)
}

fn trail_key(list: ListId) -> String {
    format!("{TRAIL_PREFIX}{:05}", list.0)
}

fn encode(value: &impl Serialize) -> Vec<u8> {
    // Plain data into a growing vector: postcard fails only on sequences of unknown length, and there are none.
    postcard::to_extend(value, vec![RECORD_FORMAT]).expect("plain data")
}

fn read<T: DeserializeOwned>(values: &BTreeMap<String, Vec<u8>>, key: &str) -> Result<T, OpenError> {
    let value = values.get(key).ok_or_else(|| OpenError::Damaged { key: key.into() })?;
    read_one(key, value)
}

fn read_one<T: DeserializeOwned>(key: &str, value: &[u8]) -> Result<T, OpenError> {
    let damaged = || OpenError::Damaged { key: key.into() };
    let (_, bytes) = value.split_first().ok_or_else(damaged)?;
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        _ => Err(damaged()),
    }
}

/// Refuses a record with a section that must not be left out and is not among those that it may have.
fn known(key: &str, more: &Sections, tags: &[u8]) -> Result<(), OpenError> {
    more.check(tags)
        .map_err(|bad| OpenError::Section { key: key.into(), bad })
}

/// Checks that the settings are those of the cluster in the store. Its id and hash key are random, and `paritas set`
/// may have changed some settings, so these are not compared.
fn check_same(stored: &ClusterPlan, asked: &ClusterPlan) -> Result<(), OpenError> {
    let settings = |p: &ClusterPlan| {
        [
            ("scheme", p.scheme()),
            ("ack_quorum", p.ack_quorum.to_string()),
            ("nodes", p.nodes.len().to_string()),
            ("log_nodes", p.log_nodes.len().to_string()),
            ("spares", p.spares.len().to_string()),
            ("chunk", p.chunk_bytes.to_string()),
            ("memory", p.node_bytes.to_string()),
            ("lease_ms", p.lease_ms.to_string()),
            ("restart_wait_ms", p.restart_wait_ms.to_string()),
            ("min_redundancy", p.min_redundancy.to_string()),
            ("one_slot", p.one_slot().to_string()),
        ]
    };
    // One for each node: the first that differs is reported.
    let domain = |n: &PlannedNode| ("domains", format!("`{}` for {}", n.domain, n.id));
    let domains = stored.all().map(domain).zip(asked.all().map(domain));
    let mut pairs = settings(stored).into_iter().zip(settings(asked)).chain(domains);
    match pairs.find(|(stored, asked)| stored != asked) {
        Some(((key, stored), (_, asked))) => Err(OpenError::OtherPlan { key, stored, asked }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
