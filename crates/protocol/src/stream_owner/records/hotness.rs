//! Values that clients read often get another class than the others (P14.15), if the setting says so.

use super::{Origin, Records, StreamOwner, decode};
use crate::context::Context;
use crate::interface::Out;
use crate::mark::Mark;
use crate::rules::Fault;
use crate::stream_owner::Stop;
use crate::stream_owner::access::Access;
use crate::stream_owner::records::upload::{Made, Piece};
use paritas_base::configuration::Configuration;
use paritas_base::{HIDDEN_DATABASE, Span, Time};
use paritas_large::{Class, Heat, Hotness, Record, Wanted};
use paritas_store::{Object, Value};
use std::sync::Arc;

/// Keys that one step of the search for hot values looks at.
const SEARCHED_KEYS: usize = 256;
/// Time between two steps, and between the beginnings of two changes on a node: 0.1 s by default.
const STEP_RETRIES: u64 = 5;
/// A change that has not ended in this time is given up, in leases: 1 min by default.
const GIVEN_UP_LEASES: u64 = 30;
/// No value becomes hot when more of the node's chunks are used than these parts of all that writers may fill.
const GROW_MAX: (u64, u64) = (3, 4);
/// When more than these are used, hot values become cold.
const SHORT_MIN: (u64, u64) = (7, 8);

/// What an owner knows of the reads of its values.
#[derive(Default, Debug)]
pub(super) struct Temperature {
    /// The setting that `heat` is of.
    of: Option<Hotness>,
    heat: Heat,
    /// The value whose class changes.
    change: Option<Change>,
    /// Where the search for hot values goes on.
    cursor: u64,
    /// When it does.
    search_at: Time,
    /// When reads are halved next.
    halve_at: Time,
    /// When there is something to do next, if the setting is on.
    at: Time,
}

#[derive(Debug)]
struct Change {
    wanted: Wanted,
    /// The class that it gets.
    class: Class,
    /// What was read of it: record and tail of its object.
    record: Vec<u8>,
    tail: Vec<u8>,
    until: Time,
}

impl Temperature {
    pub(super) fn next_at(&self) -> Option<Time> {
        self.of.map(|_| self.at)
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.heat.held_bytes()
    }
}

/// The result of a step of a change.
enum Step {
    Waits,
    /// The object has the other class: its new record.
    Done(Arc<Record>),
    /// The key has another value now, or none.
    Overtaken,
    /// It can't be done now.
    Refused,
}

impl Records {
    /// Counts a read of a value, if its class depends on its reads.
    pub(in crate::stream_owner) fn note_read<O: Out>(
        &mut self,
        cx: &Context<'_, O>,
        (database, key): (u8, &[u8]),
        record: &[u8],
        tail_bytes: usize,
        read_bytes: u64,
    ) {
        let (Some(hotness), Some(record)) = (cx.shared.parameters.hotness, decode(record)) else {
            return;
        };
        let value_bytes = record.body_bytes + tail_bytes as u64;
        let class = record.class;
        // A class from a rule, or one that a client has chosen, has priority.
        let is_ruled = cx.shared.parameters.class_rules.class_of(key, value_bytes).is_some();
        if is_ruled || (class != hotness.hot && class != hotness.cold) {
            return;
        }
        let heat = &mut self.temperature.heat;
        let key = (database, key);
        heat.on_read(record.data_group, key, value_bytes, read_bytes, class == hotness.hot);
    }

    /// Parts of the value whose class changes have moved on.
    pub(super) fn hurry_change(&mut self, now: Time) {
        if self.temperature.change.is_some() {
            self.temperature.at = now;
            self.woken.progress = true;
        }
    }
}

impl StreamOwner {
    /// One step of work: halves reads, looks for hot values, and goes on with the change of a class.
    pub(super) fn tend_hotness<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        let setting = cx.shared.parameters.hotness;
        if self.records.temperature.of != setting {
            self.end_change(cx);
            self.records.temperature = Temperature {
                of: setting,
                halve_at: setting.map_or(Time(0), |hotness| cx.after(hotness.period)),
                ..Temperature::default()
            };
        }
        let now = cx.mono();
        let Some(hotness) = setting.filter(|_| now >= self.records.temperature.at) else {
            return;
        };
        let step = Span(STEP_RETRIES * cx.shared.parameters.retry.0);
        self.records.temperature.at = cx.after(step);
        if now >= self.records.temperature.halve_at {
            let records = &mut self.records;
            let ledger = &records.ledger;
            records.temperature.heat.halve(|group| ledger.is_named(group));
            records.temperature.halve_at = cx.after(hotness.period);
        }
        self.search_hot(cx, &hotness, step);
        if self.records.temperature.change.is_none() {
            self.begin_change(cx, &hotness, step);
        }
        self.go_on_change(cx, configuration);
    }

    /// Looks for values of the class of hot values of which nothing is known: those of an owner before, and those that
    /// came with their hash slots. One pass over all keys begins a period after the one before has ended.
    fn search_hot<O: Out>(&mut self, cx: &mut Context<'_, O>, hotness: &Hotness, step: Span) {
        let temperature = &mut self.records.temperature;
        if cx.now.mono < temperature.search_at {
            return;
        }
        let rules = &cx.shared.parameters.class_rules;
        let heat = &mut temperature.heat;
        let visit = |object: &Object<'_>| {
            let Some(record) = object.record().and_then(decode).filter(|r| r.class == hotness.hot) else {
                return;
            };
            let value_bytes = record.body_bytes + object.len() as u64;
            let is_hidden = object.database() == HIDDEN_DATABASE;
            if !is_hidden && rules.class_of(object.key(), value_bytes).is_none() {
                let key = (object.database(), object.key());
                heat.on_found_hot(hotness, record.data_group, key, value_bytes);
            }
        };
        let searched = self
            .store
            .scan(&cx.shared.arena, temperature.cursor, SEARCHED_KEYS, visit);
        // A chunk that is not here yet is on its way.
        let next = searched.unwrap_or(temperature.cursor);
        let is_end = next == 0 && searched.is_ok();
        temperature.cursor = next;
        temperature.search_at = cx.after(if is_end { hotness.period } else { step });
    }

    fn begin_change<O: Out>(&mut self, cx: &mut Context<'_, O>, hotness: &Hotness, step: Span) {
        let now = cx.mono();
        let is_taken = cx.shared.changing.is_some_and(|(_, until)| now < until);
        if is_taken || now < cx.shared.change_at || self.frozen().is_some() {
            return;
        }
        let budget = cx.shared.arena.budget();
        let (used, limit) = (u64::from(budget.used()), u64::from(budget.limit()));
        let exceeds = |(part, whole): (u64, u64)| used * whole > limit * part;
        let heat = &self.records.temperature.heat;
        let Some(wanted) = heat.wanted(hotness, !exceeds(GROW_MAX), exceeds(SHORT_MIN)) else {
            return;
        };
        let (from, class) = match wanted.to_hot {
            true => (hotness.cold, hotness.hot),
            false => (hotness.hot, hotness.cold),
        };
        // A client may have chosen another class, and rules may have changed.
        let found = self.object_of(cx, &wanted).filter(|(record, tail)| {
            let rules = &cx.shared.parameters.class_rules;
            let is_ruled = |bytes| rules.class_of(&wanted.key, bytes).is_some();
            decode(record).is_some_and(|old| old.class == from && !is_ruled(old.body_bytes + tail.len() as u64))
        });
        let Some((record, tail)) = found else {
            self.records.temperature.heat.on_gone(wanted.group);
            return;
        };
        let until = cx.after(Span(GIVEN_UP_LEASES * cx.shared.parameters.lease.0));
        cx.shared.change_at = cx.after(step);
        cx.shared.changing = Some((self.stream, until));
        self.records.temperature.change = Some(Change {
            wanted,
            class,
            record,
            tail,
            until,
        });
    }

    /// Record and tail of the object, if its key still has the value.
    fn object_of<O: Out>(&self, cx: &Context<'_, O>, wanted: &Wanted) -> Option<(Vec<u8>, Vec<u8>)> {
        let slot = cx.shared.slots.slot(wanted.database, &wanted.key);
        if self.has_foreign_keys() && !self.holds(slot) {
            return None;
        }
        let hash = self.store.hash(wanted.database, &wanted.key);
        let object = self.store.find(&cx.shared.arena, hash, &wanted.key).ok()??;
        let record = object.record()?.to_vec();
        let is_same = decode(&record).is_some_and(|record| record.data_group == wanted.group);
        let is_over = object.expiry_ms().is_some_and(|at| at <= cx.now.wall_ms);
        let mut tail = Vec::with_capacity(object.len());
        object.copy_to(&mut tail);
        (is_same && !is_over).then_some((record, tail))
    }

    fn go_on_change<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        let Some(change) = self.records.temperature.change.take() else {
            return;
        };
        let (group, to_hot) = (change.wanted.group, change.wanted.to_hot);
        match self.change_step(cx, configuration, &change) {
            Step::Waits if cx.mono() < change.until => {
                self.records.temperature.change = Some(change);
                return;
            }
            Step::Done(record) => {
                self.records.end_upload_of(Origin::Change, true);
                self.records
                    .temperature
                    .heat
                    .on_changed(group, record.data_group, to_hot);
                match to_hot {
                    true => cx.shared.to_hot_values += 1,
                    false => cx.shared.to_cold_values += 1,
                }
                let mark = if to_hot { Mark::BecameHot } else { Mark::BecameCold };
                cx.out.mark(mark);
            }
            Step::Overtaken => {
                cx.out.mark(Mark::ChangeOvertaken);
                self.records.temperature.heat.on_gone(group);
            }
            Step::Waits | Step::Refused => self.records.temperature.heat.on_refused(group),
        }
        self.end_change(cx);
    }

    fn change_step<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration, change: &Change) -> Step {
        let key = &change.wanted.key;
        if self.frozen().is_some() {
            return Step::Refused;
        }
        // P14.10: what is written must be what the key has now.
        let now = self.object_of(cx, &change.wanted);
        let now = now.filter(|(record, _)| *record == change.record);
        let (record, tail) = match now {
            Some(now) => now,
            None if cx.rules().fault(Fault::HotnessWithoutCompare) => (change.record.clone(), change.tail.clone()),
            None => return Step::Overtaken,
        };
        let Some(old) = decode(&record) else {
            return Step::Refused;
        };
        let basis = [&record[..], &tail].concat();
        let made = Made {
            basis: &basis,
            class: Some(change.class),
            same_as: Some(&old),
            is_all_body: false,
        };
        let pieces = [Piece::Body(&record, 0..old.body_bytes), Piece::Bytes(&tail)];
        let here = self.installed(configuration);
        let (sealed, tail) = match self.records.upload(cx, &here, Origin::Change, &made, &pieces) {
            Ok(sealed) => sealed,
            Err(Stop::Wait) => return Step::Waits,
            Err(Stop::Refused(_)) => return Step::Refused,
        };
        let hash = self.store.hash(change.wanted.database, key);
        let mut bytes = Vec::new();
        sealed.encode(&mut bytes);
        let found = self.store.find(&cx.shared.arena, hash, key);
        let (expiry_ms, flags, marks) = match found {
            Ok(Some(object)) => (object.expiry_ms(), object.flags(), object.marks()),
            _ => (None, None, 0),
        };
        let value = Value {
            bytes: &tail,
            expiry_ms,
            flags,
            marks,
            hash_kind: false,
            record: bytes.get(1..).unwrap_or_default(),
        };
        match Access::new(cx, configuration, self, change.wanted.database).put_by_owner(hash, key, value) {
            Ok(()) => Step::Done(sealed),
            Err(Stop::Wait) => Step::Waits,
            Err(Stop::Refused(_)) => Step::Refused,
        }
    }

    /// The change of a class has ended, or the role ends.
    pub(in crate::stream_owner) fn end_change<O: Out>(&mut self, cx: &mut Context<'_, O>) {
        self.records.temperature.change = None;
        self.records.end_upload_of(Origin::Change, false);
        if cx.shared.changing.is_some_and(|(stream, _)| stream == self.stream) {
            cx.shared.changing = None;
        }
    }
}
