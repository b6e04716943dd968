//! `Ledger`: which groups of parts of one stream are alive, at the stream's owner.
//!
//! A group is *alive* while a writer stages it, while an object names it, while the delta that removed the last such
//! object is not acknowledged, and while a reader has pinned it. Otherwise it is *dead*, and stays dead: an id is never
//! used again. So the owner may tell a holder at any time, as often as it likes, which groups are dead.
//!
//! Holders ask for the list of all groups that are alive ([`Ledger::page`]). The list goes up to the newest id that the
//! owner has given out. A holder frees parts of groups up to there that are not in it, and makes those that it lacks.
//! After a takeover the new owner answers no list until it has seen every object ([`Ledger::on_learnt`]): until then it
//! does not know which groups of earlier owners are alive.

use crate::{Class, GroupId, Record};
use paritas_base::Term;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The groups of one stream, in one tenure of its owner.
#[derive(Debug)]
pub struct Ledger {
    term: Term,
    /// Groups given out in this term.
    issued: u64,
    /// The newest delta when every object of the stream had been reported; `None` before that.
    learnt_at: Option<u64>,
    /// No other holder has parts of the stream. Objects that were not seen may name groups of earlier owners, whose
    /// parts are all gone.
    only_lost_are_unseen: bool,
    /// Every delta up to here is acknowledged.
    acked: u64,
    groups: BTreeMap<GroupId, Entry>,
    /// Groups without an object, by the delta that removed the last one. Some may have an object again.
    dying: BTreeSet<(u64, GroupId)>,
    /// Groups that have died since [`Self::take_dead`].
    dead: Vec<GroupId>,
}

#[derive(Debug)]
struct Entry {
    record: Arc<Record>,
    /// A writer stages it.
    is_staging: bool,
    /// The record has its checks: an object has had it.
    is_sealed: bool,
    /// Objects whose record names it.
    objects: u32,
    /// The delta that removed the last of them.
    removed_at: Option<u64>,
    /// Readers that use it.
    pins: u32,
}

impl Entry {
    fn new(record: &Arc<Record>) -> Self {
        Self {
            record: record.clone(),
            is_staging: false,
            is_sealed: true,
            objects: 0,
            removed_at: None,
            pins: 0,
        }
    }

    fn is_alive(&self) -> bool {
        self.is_staging || self.objects > 0 || self.removed_at.is_some() || self.pins > 0
    }
}

/// A group that is alive, as holders are told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Alive {
    /// Its id.
    pub group: GroupId,
    /// The record that names it. While it is staged, the record has no checks yet (all are 0).
    pub record: Arc<Record>,
    /// No object has named it: holders that lack its parts are told separately to make them, or it was given up and is
    /// still read.
    pub is_staging: bool,
}

/// A page of the list of groups that are alive: those above `after`, up to `last`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// The term of the owner that answers.
    pub term: Term,
    /// The page begins behind this id; `None`: it is the first page.
    pub after: Option<GroupId>,
    /// The page ends here: with an id, or behind all ids of earlier terms (see [`GroupId::newest`]).
    pub last: GroupId,
    /// Whether it is the last page: the owner has given out no id above `last`.
    pub is_end: bool,
    /// The groups between that are alive, by id.
    pub alive: Vec<Alive>,
}

/// A record names a group that no writer has staged, or that is dead: a broken invariant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotAlive(pub GroupId);

impl core::fmt::Display for NotAlive {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "an object names group {:x}, which is dead or unknown", self.0.bits())
    }
}

impl core::error::Error for NotAlive {}

impl Ledger {
    /// The ledger of a new tenure with this term. `is_born`: the stream begins empty, so there is nothing to learn.
    pub fn new(term: Term, is_born: bool) -> Self {
        Self {
            term,
            issued: 0,
            learnt_at: is_born.then_some(0),
            only_lost_are_unseen: false,
            acked: 0,
            groups: BTreeMap::new(),
            dying: BTreeSet::new(),
            dead: Vec::new(),
        }
    }

    /// Begins to stage a value of this class: gives out ids for its groups. Returns the record, whose checks are 0.
    ///
    /// `None` if the term has no ids left.
    pub fn stage(&mut self, class: Class, first: u8, logged: u8, body_bytes: u64) -> Option<Arc<Record>> {
        let has_other = !matches!(class, Class::Rep { .. });
        let data_group = GroupId::new(self.term, self.issued + 1)?;
        let other_group = match has_other {
            true => Some(GroupId::new(self.term, self.issued + 2)?),
            false => None,
        };
        self.issued += 1 + u64::from(has_other);
        let record = Arc::new(Record {
            class,
            first,
            logged,
            body_bytes,
            data_group,
            other_group,
            checks: vec![0; Record::checks_of(class)],
        });
        for group in record.groups() {
            let entry = self.groups.entry(group).or_insert_with(|| Entry::new(&record));
            (entry.is_staging, entry.is_sealed) = (true, false);
        }
        Some(record)
    }

    /// Begins to stage another class for a value whose data group stays: gives out an id for the other group. Returns
    /// the record, whose checks are 0.
    ///
    /// `None` if the data group must not stay ([`Self::may_keep`]), or the term has no ids left.
    pub fn stage_beside(&mut self, old: &Record, class: Class, logged: u8) -> Option<Arc<Record>> {
        let other_group = GroupId::new(self.term, self.issued + 1)?;
        if !self.may_keep(old) || matches!(class, Class::Rep { .. }) || class.data() != old.class.data() {
            return None;
        }
        self.issued += 1;
        let record = Arc::new(Record {
            class,
            logged,
            other_group: Some(other_group),
            checks: vec![0; Record::checks_of(class)],
            ..old.clone()
        });
        let entry = self.groups.entry(other_group).or_insert_with(|| Entry::new(&record));
        (entry.is_staging, entry.is_sealed) = (true, false);
        Some(record)
    }

    /// Whether the data group of a record may stay when its object gets another class: one object names it, and it is
    /// known that no other does. The list names one record for each group, so two records of one group must not be
    /// named for longer than a swap takes.
    pub fn may_keep(&self, record: &Record) -> bool {
        let entry = self.groups.get(&record.data_group);
        self.has_learnt() && entry.is_some_and(|entry| entry.objects == 1)
    }

    /// Whether all groups of a staged value are still alive, so that an object may name them. A data group that stays
    /// must still be named by one object alone.
    pub fn is_staging(&self, record: &Record) -> bool {
        let staging = |group| self.groups.get(&group).is_some_and(|entry| entry.is_staging);
        let data = staging(record.data_group) || (record.other_group.is_some() && self.may_keep(record));
        data && record.other_group.is_none_or(staging)
    }

    /// Whether the data group of a staged value stays, so that only the other group is written.
    pub fn keeps_data(&self, record: &Record) -> bool {
        let is_staged = |entry: &Entry| entry.is_staging;
        !self.groups.get(&record.data_group).is_some_and(is_staged)
    }

    /// The staging of a value has ended: an object names it by now, or it is given up. In the second case its groups
    /// are dead.
    pub fn end_staging(&mut self, record: &Record) {
        for group in record.groups() {
            if let Some(entry) = self.groups.get_mut(&group) {
                entry.is_staging = false;
            }
            self.bury(group);
        }
    }

    /// An object with this record was put into the store, or found there after a takeover.
    pub fn on_named(&mut self, record: &Arc<Record>) -> Result<(), NotAlive> {
        for group in record.groups() {
            match self.groups.get_mut(&group) {
                Some(entry) => {
                    entry.objects += 1;
                    entry.removed_at = None;
                    entry.record = record.clone();
                    entry.is_sealed = true;
                }
                // A group of an earlier owner. Of its own groups, the owner knows all that are alive.
                None if group.term() < self.term && (self.learnt_at.is_none() || self.only_lost_are_unseen) => {
                    let entry = self.groups.entry(group).or_insert_with(|| Entry::new(record));
                    entry.objects = 1;
                }
                None => return Err(NotAlive(group)),
            }
        }
        Ok(())
    }

    /// An object with this record was removed by the delta with the number `seq`.
    pub fn on_unnamed(&mut self, record: &Record, seq: u64) -> Result<(), NotAlive> {
        for group in record.groups() {
            let entry = self.groups.get_mut(&group).filter(|entry| entry.objects > 0);
            let entry = entry.ok_or(NotAlive(group))?;
            entry.objects -= 1;
            if entry.objects == 0 {
                entry.removed_at = Some(seq);
                self.dying.insert((seq, group));
            }
        }
        Ok(())
    }

    /// The delta with the number `seq` removed every object of the stream.
    pub fn on_all_removed(&mut self, seq: u64) {
        for (group, entry) in self.groups.iter_mut().filter(|(_, entry)| entry.objects > 0) {
            (entry.objects, entry.removed_at) = (0, Some(seq));
            self.dying.insert((seq, *group));
        }
    }

    /// Every delta up to `acked` is stable (P3.8): every holder has it, so no later owner begins before it.
    pub fn on_acked(&mut self, acked: u64) {
        let was_settled = self.is_settled();
        self.acked = self.acked.max(acked);
        while let Some((seq, group)) = self.dying.first().copied().filter(|(seq, _)| *seq <= self.acked) {
            self.dying.pop_first();
            if let Some(entry) = self
                .groups
                .get_mut(&group)
                .filter(|entry| entry.removed_at == Some(seq))
            {
                entry.removed_at = None;
            }
            self.bury(group);
        }
        if self.is_settled() && !was_settled {
            self.bury_all();
        }
    }

    /// A reader begins to use the parts of a record that an object has. False if a group is dead.
    pub fn pin(&mut self, record: &Arc<Record>) -> bool {
        let unseen = self.learnt_at.is_none() || self.only_lost_are_unseen;
        let may_be_unknown = |group: GroupId| group.term() < self.term && unseen;
        if !record
            .groups()
            .all(|group| self.groups.contains_key(&group) || may_be_unknown(group))
        {
            return false;
        }
        for group in record.groups() {
            self.groups.entry(group).or_insert_with(|| Entry::new(record)).pins += 1;
        }
        true
    }

    /// A reader that had pinned a record has ended.
    pub fn unpin(&mut self, record: &Record) {
        for group in record.groups() {
            if let Some(entry) = self.groups.get_mut(&group) {
                entry.pins = entry.pins.saturating_sub(1);
            }
            self.bury(group);
        }
    }

    /// Every object of the stream has been reported, and `seq` is the newest delta. Lists can be answered once that
    /// delta is acknowledged: an object may have been removed before it was reported.
    pub fn on_learnt(&mut self, seq: u64) {
        if self.learnt_at.is_none() {
            self.learnt_at = Some(seq);
            self.bury_all();
        }
    }

    /// No other holder has parts of the stream, so no group of an earlier owner has any. Lists can be answered; objects
    /// that are reported later may name values that are lost.
    pub fn on_none_found(&mut self) {
        self.only_lost_are_unseen = self.learnt_at.is_none();
        self.on_learnt(0);
    }

    /// Every object has been reported, after [`Self::on_none_found`].
    pub fn on_all_seen(&mut self) {
        self.only_lost_are_unseen = false;
    }

    /// Whether [`Self::on_learnt`] or [`Self::on_none_found`] was called.
    pub fn has_learnt(&self) -> bool {
        self.learnt_at.is_some()
    }

    /// Whether it is known of every group of an earlier owner if it is alive.
    fn is_settled(&self) -> bool {
        self.learnt_at.is_some_and(|seq| seq <= self.acked)
    }

    /// A page of the list, of at most `groups_max` groups; `None` before everything is learnt.
    pub fn page(&self, after: Option<GroupId>, groups_max: usize) -> Option<Page> {
        if !self.is_settled() {
            return None;
        }
        let from = match after {
            Some(after) => core::ops::Bound::Excluded(after),
            None => core::ops::Bound::Unbounded,
        };
        let range = self.groups.range((from, core::ops::Bound::Unbounded));
        let mut alive: Vec<Alive> = range
            .filter(|(_, entry)| entry.is_alive())
            .take(groups_max.max(1) + 1)
            .map(|(group, entry)| Alive {
                group: *group,
                record: entry.record.clone(),
                is_staging: !entry.is_sealed,
            })
            .collect();
        let is_end = alive.len() <= groups_max.max(1);
        if !is_end {
            alive.pop();
        }
        let last = match alive.last() {
            Some(last) if !is_end => last.group,
            // Also if none was given out in this term: those of earlier terms are all known.
            _ => GroupId::newest(self.term, self.issued),
        };
        Some(Page {
            term: self.term,
            after,
            last,
            is_end,
            alive,
        })
    }

    /// Takes the groups that have died since the last call: holders may free their parts.
    pub fn take_dead(&mut self) -> Vec<GroupId> {
        core::mem::take(&mut self.dead)
    }

    /// Number of groups that may be alive: those that are, and before everything is learnt also those of earlier owners
    /// that are named by no object so far.
    pub fn alive_count(&self) -> usize {
        self.groups.len()
    }

    /// Records of the values that bear fewer than `losses` losses, as far as objects name them.
    pub fn weaker_than(&self, losses: u8) -> impl Iterator<Item = &Arc<Record>> {
        let named = self.groups.iter().filter(|(_, entry)| entry.objects > 0);
        let once = named.filter(|(group, entry)| entry.record.data_group == **group);
        once.map(|(_, entry)| &entry.record)
            .filter(move |record| record.class.tolerance() < losses)
    }

    /// Whether an object names a group.
    pub fn is_named(&self, group: GroupId) -> bool {
        self.groups.get(&group).is_some_and(|entry| entry.objects > 0)
    }

    /// Whether a group may be alive. False: it is dead, and its parts may be freed.
    pub fn is_alive(&self, group: GroupId) -> bool {
        self.groups.contains_key(&group)
    }

    /// Before everything is settled, another object may still turn out to name a group of an earlier owner.
    fn bury(&mut self, group: GroupId) {
        let is_known = group.term() == self.term || self.is_settled();
        if is_known && self.groups.get(&group).is_some_and(|entry| !entry.is_alive()) {
            self.groups.remove(&group);
            self.dead.push(group);
        }
    }

    fn bury_all(&mut self) {
        let over = |(group, entry): (&GroupId, &Entry)| (!entry.is_alive()).then_some(*group);
        let over: Vec<GroupId> = self.groups.iter().filter_map(over).collect();
        for group in over {
            self.bury(group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_was_given_up_while_it_is_read_is_listed_as_one_that_nobody_must_make() {
        let mut ledger = Ledger::new(1, true);
        let staged = ledger.stage(Class::Ec { data: 4, parity: 2 }, 0, 0, 1 << 20).unwrap();
        assert!(ledger.pin(&staged));
        ledger.end_staging(&staged);
        let page = ledger.page(None, 10).unwrap();
        assert_eq!(page.alive.len(), 2);
        assert!(page.alive.iter().all(|alive| alive.is_staging));
        ledger.unpin(&staged);
        assert!(ledger.page(None, 10).unwrap().alive.is_empty());
        assert_eq!(ledger.take_dead().len(), 2);
    }
}
