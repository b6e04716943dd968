//! Hash slots of a stream, and their hand-off to another stream: the part of the source (P10.8, H45). The part of the
//! destination is in `import`.
//!
//! The source controls the hand-off:
//! 1. It adds up the bytes of each slot, and takes as many slots as fit in one step.
//! 2. It asks the destination to get ready, and sends it the bodies of large values.
//! 3. It *freezes* the slots: commands for them wait. It waits until the writes that had begun are acknowledged.
//! 4. It sends the objects in batches, and bodies that have changed since. Each batch is answered when it is safe at
//!    the destination.
//! 5. It proposes the change of the slot map.
//!
//! Before the proposal it may *thaw* the slots at any time and serve them again. Another attempt has another `round`,
//! and the destination removes the objects of earlier attempts. After the proposal, only a configuration decides which
//! stream holds the slots. The coordinator accepts the proposal only from this tenure, for this hand-off, and for the
//! tenure that received the objects. So no message from before a crash, on either side, has an effect after it.

mod copy;

use super::access::give_up;
use super::import::Import;
use super::{Phase, StreamOwner};
use crate::context::Context;
use crate::interface::{Out, Proposal};
use crate::mark::Mark;
use copy::WALK_KEYS;
use paritas_base::configuration::{Configuration, Tenure};
use paritas_base::hash_slots::HandOff;
use paritas_base::{ALL_DATABASES, Epoch, HIDDEN_DATABASE, Time};
use paritas_store::{Blocked, Keys};
use paritas_wire::peer::ImportStatus;
use std::collections::BTreeMap;

/// Most bytes of objects, bodies included, of all slots that are frozen together. A single slot may have more.
const STEP_BYTES: u64 = 4 << 20;
/// The most attempts in a row without progress. Then the hand-off is given up.
const FAILURES_MAX: u32 = 8;

/// The state of an owner's hash slots.
#[derive(Debug, Default)]
pub(super) struct HandOffs {
    /// The ranges of slots that the stream holds, in order.
    held: Vec<(u16, u16)>,
    /// The epoch since which it holds exactly these, as far as this tenure knows.
    since: Epoch,
    /// The store may have keys of slots that the stream does not hold.
    pub(super) dirty: bool,
    /// Number of these keys in each database, about.
    pub(super) foreign: [u64; ALL_DATABASES as usize],
    purge_cursor: u64,
    purge_at: Time,
    round: u32,
    /// Number of attempts in a row without progress.
    failures: u32,
    /// The hand-off that was under way when this tenure began.
    inherited: Option<u64>,
    source: Option<Box<Outgoing>>,
    pub(super) import: Option<Box<Import>>,
}

/// The stage of an attempt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Stage {
    /// Adds up the bytes of each slot.
    Weigh,
    /// Waits until the destination is ready.
    Prepare,
    /// Sends the bodies of large values.
    Bodies,
    /// Frozen: waits for the acks of writes that had begun.
    Drain,
    /// Frozen: sends the objects.
    Copy,
    /// Frozen: the destination has all objects, and the slot map may change.
    Propose,
    /// Given up: the destination has no memory for the keys, or every attempt took too long.
    Refused,
}

#[derive(Debug)]
struct Outgoing {
    hand_off: HandOff,
    /// The tenure that receives the objects; `None`: not known yet.
    to: Option<Tenure>,
    round: u32,
    stage: Stage,
    /// The last slot of this attempt.
    last: u16,
    weights: Vec<u64>,
    cursor: u64,
    walked: bool,
    /// Keys that the walk has found and that are not in a batch yet, each with its database.
    keys: Vec<(u8, Vec<u8>)>,
    /// Some of the objects are large values.
    has_large: bool,
    /// Records of the large values whose bodies the destination has, by database and key.
    bodies: BTreeMap<(u8, Vec<u8>), Vec<u8>>,
    /// The body that is being sent: the record of its object, and the number of bytes that the destination has.
    body: Option<(Vec<u8>, usize)>,
    /// The batch is a piece of that body.
    is_piece: bool,
    /// Units of bodies that were sent while the slots are frozen.
    frozen_units: u64,
    /// Of each database.
    sent_keys: [u64; ALL_DATABASES as usize],
    n: u32,
    batch: Vec<u8>,
    in_flight: bool,
    drain: u64,
    wake_at: Time,
    resend_at: Time,
    give_up_at: Time,
}

impl Outgoing {
    fn new(hand_off: HandOff, to: Option<Tenure>, round: u32, now: Time) -> Self {
        Self {
            hand_off,
            to,
            round,
            stage: Stage::Weigh,
            last: hand_off.last,
            weights: vec![0; usize::from(hand_off.last - hand_off.first) + 1],
            cursor: 0,
            walked: false,
            keys: Vec::new(),
            has_large: false,
            bodies: BTreeMap::new(),
            body: None,
            is_piece: false,
            frozen_units: 0,
            sent_keys: [0; ALL_DATABASES as usize],
            n: 0,
            batch: Vec::new(),
            in_flight: false,
            drain: 0,
            wake_at: now,
            resend_at: now,
            give_up_at: Time(u64::MAX),
        }
    }

    fn is_frozen(&self) -> bool {
        matches!(self.stage, Stage::Drain | Stage::Copy | Stage::Propose)
    }

    /// From now on commands for the slots wait. `newest` is the newest delta of the stream.
    fn freeze(&mut self, newest: u64) {
        self.stage = Stage::Drain;
        self.drain = newest;
    }

    /// The destination has the batch. `is_kept`: it has the whole body of which the batch is a piece.
    fn on_done(&mut self, is_kept: bool) {
        self.in_flight = false;
        if core::mem::take(&mut self.is_piece)
            && let Some((record, sent_bytes)) = self.body.take()
        {
            if !is_kept {
                self.body = Some((record, sent_bytes + self.batch.len()));
            } else if let Some(of) = self.keys.last() {
                self.bodies.insert(of.clone(), record);
            }
        }
        self.batch.clear();
    }

    fn contains(&self, slot: u16) -> bool {
        (self.hand_off.first..=self.last).contains(&slot)
    }
}

impl HandOffs {
    /// What it waited for may be here.
    pub(super) fn hurry(&mut self, now: Time) {
        let waits =
            |source: &&mut Box<Outgoing>| !source.in_flight && matches!(source.stage, Stage::Bodies | Stage::Copy);
        if let Some(source) = self.source.as_mut().filter(waits) {
            source.wake_at = source.wake_at.min(now);
        }
        if let Some(import) = self.import.as_mut().filter(|import| import.is_taking()) {
            import.wake_at = import.wake_at.min(now);
        }
    }
}

impl StreamOwner {
    // --- slots held ----------------------------------------------------------------------------------------------

    /// Updates the slots that the stream holds, after a configuration was installed.
    pub(super) fn note_slots<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        let own = configuration.slots.held(configuration.list, &cx.shared.cluster);
        let own = own.iter().filter(|range| range.x == self.stream.x);
        let held: Vec<(u16, u16)> = own.map(|range| (range.first, range.last)).collect();
        let slots = &configuration.slots;
        let now = slots.hand_off;
        let mut import_is_over = false;
        let of = &mut self.hand_offs;
        if of.since == Epoch(0) {
            // An earlier tenure may have left keys of other slots here, unless no slot of the list ever moved.
            of.inherited = now.filter(|h| h.from == self.stream).map(|h| h.version);
            of.dirty = !configuration.is_born(&self.tenure) && (slots.version > 0 || now.is_some());
        } else {
            let before = core::mem::replace(&mut of.held, held.clone());
            let beyond = |these: &[(u16, u16)], those: &[(u16, u16)]| {
                let mut slots = these.iter().flat_map(|(first, last)| *first..=*last);
                before != held && slots.any(|slot| !contains(those, slot))
            };
            let (gained, lost) = (beyond(&held, &before), beyond(&before, &held));
            if let Some(source) = of.source.take_if(|source| now != Some(source.hand_off)) {
                of.failures = 0;
                cx.shared.slots.is_stale();
                self.wake.progress = true;
                if lost {
                    cx.out.mark(Mark::SlotsHandedOff);
                    if of.inherited == Some(source.hand_off.version) {
                        cx.out.mark(Mark::HandOffResumed);
                    }
                    let sent = source.sent_keys.iter();
                    of.foreign.iter_mut().zip(sent).for_each(|(all, sent)| *all += sent);
                }
            }
            if let Some(import) = of
                .import
                .take_if(|import| now.is_none_or(|h| h.version != import.version))
            {
                if gained && slots.version == import.version {
                    let came = import.keys.iter();
                    let foreign = of.foreign.iter_mut().zip(came);
                    foreign.for_each(|(all, came)| *all = all.saturating_sub(*came));
                } else {
                    // The hand-off was given up: the keys that were copied must be removed.
                    of.dirty = true;
                }
                import_is_over = true;
            }
            if lost {
                of.dirty = true;
                of.purge_cursor = 0;
            }
            if gained || lost {
                of.since = configuration.epoch;
            }
        }
        if of.since == Epoch(0) {
            of.since = configuration.epoch;
        }
        of.held = held;
        if import_is_over {
            self.records.end_imports();
        }
    }

    /// Whether the stream holds a slot.
    pub(crate) fn holds(&self, slot: u16) -> bool {
        contains(&self.hand_offs.held, slot)
    }

    /// Whether the store may have keys of slots that the stream does not hold. No client may see them.
    pub(crate) fn has_foreign_keys(&self) -> bool {
        self.hand_offs.dirty || self.hand_offs.import.is_some()
    }

    /// Number of keys of its slots; `None` after a takeover, until all are counted. The hidden one is left out as soon
    /// as those of each database are counted.
    pub fn key_count(&self) -> Option<u64> {
        let counts = self.key_counts();
        let hidden = counts.and_then(|counts| counts.get(usize::from(HIDDEN_DATABASE)).copied());
        let others = self.hand_offs.foreign.iter().sum::<u64>() + hidden.map_or(0, |keys| keys.count);
        Some(self.store.count()?.saturating_sub(others))
    }

    /// The same for each database; `None` after a takeover, until all chunks are here.
    pub fn key_counts(&self) -> Option<[Keys; ALL_DATABASES as usize]> {
        let mut counts = self.store.keys()?;
        let foreign = self.hand_offs.foreign.iter();
        counts
            .iter_mut()
            .zip(foreign)
            .for_each(|(keys, foreign)| keys.count = keys.count.saturating_sub(*foreign));
        Some(counts)
    }

    /// The first and the last of its own slots that it does not serve now because it hands them off.
    pub(crate) fn frozen(&self) -> Option<(u16, u16)> {
        let source = self.hand_offs.source.as_ref().filter(|source| source.is_frozen())?;
        Some((source.hand_off.first, source.last))
    }

    /// Whether keys are moving from this stream or to it. A command that removes all keys would miss some of them.
    pub fn is_handing_off(&self) -> bool {
        self.frozen().is_some() || self.hand_offs.import.is_some()
    }

    /// The epoch since which it holds exactly its current slots.
    pub fn slots_since(&self) -> Epoch {
        self.hand_offs.since
    }

    /// Whether no hand-off is under way here, and no keys of one are left to be removed.
    pub fn has_settled_slots(&self) -> bool {
        let of = &self.hand_offs;
        of.source.is_none() && of.import.is_none() && !of.dirty
    }

    /// Bytes of memory of hand-offs under way.
    pub(super) fn hand_off_bytes(&self) -> usize {
        let source = self.hand_offs.source.as_ref().map_or(0, |s| {
            let keys = s
                .keys
                .iter()
                .map(|(_, key)| key.capacity() + size_of::<(u8, Vec<u8>)>());
            let bodies = s.bodies.iter();
            let bodies = bodies.map(|((_, key), record)| key.capacity() + record.capacity());
            s.batch.capacity() + bodies.sum::<usize>() + s.weights.capacity() * size_of::<u64>() + keys.sum::<usize>()
        });
        source + self.hand_offs.import.as_ref().map_or(0, |i| i.held_bytes())
    }

    // --- work due ------------------------------------------------------------------------------------------------

    /// `None` if [`Self::hand_off_slots`] has nothing to do. Otherwise the hand-off of which this stream is the source,
    /// if there is one.
    pub(crate) fn slot_work(&self, configuration: &Configuration) -> Option<Option<HandOff>> {
        let own = configuration.slots.hand_off.filter(|h| h.from == self.stream);
        let of = &self.hand_offs;
        (own.is_some() || of.dirty || of.import.is_some()).then_some(own)
    }

    /// Continues hand-offs, imports and the removal of foreign keys. `to` is the owner of the destination stream and
    /// its epoch, if the configuration of that stream's list also names the hand-off.
    pub(crate) fn hand_off_slots<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        to: Option<(Tenure, Epoch)>,
    ) {
        if self.phase != Phase::Serve || !self.store.chunks().directory_known() {
            return;
        }
        if let Some(hand_off) = configuration.slots.hand_off.filter(|h| h.from == self.stream) {
            let before = self.frozen();
            self.drive(cx, configuration, hand_off, to);
            if before != self.frozen() {
                cx.shared.slots.is_stale();
                self.wake.progress = true;
            }
        }
        self.take_in(cx, configuration);
        if self.hand_offs.dirty && cx.mono() >= self.hand_offs.purge_at {
            let awaits = configuration.slots.hand_off.is_some_and(|h| h.to == self.stream);
            if self.hand_offs.import.is_none() && !awaits {
                self.purge(cx, configuration);
            }
            self.hand_offs.purge_at = cx.after(cx.shared.parameters.retry);
        }
    }

    pub(super) fn next_slot_work(&self) -> Time {
        let of = &self.hand_offs;
        let mut next = if of.dirty { of.purge_at } else { Time(u64::MAX) };
        if let Some(source) = &of.source {
            next = next.min(source.wake_at);
        }
        if let Some(import) = &of.import {
            next = next.min(import.wake_at);
        }
        next
    }

    /// Removes some keys of slots that the stream does not hold. True when none are left.
    pub(super) fn purge<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) -> bool {
        let mut keys = Vec::new();
        let cursor = self.hand_offs.purge_cursor;
        let held = &self.hand_offs.held;
        let next = self.store.scan(&cx.shared.arena, cursor, WALK_KEYS, |object| {
            if !contains(held, cx.shared.slots.slot(object.database(), object.key())) {
                keys.push((object.database(), object.key().to_vec()));
            }
        });
        let next = match next {
            Ok(next) => next,
            Err(blocked) => {
                self.want(cx, blocked);
                return false;
            }
        };
        for (database, key) in keys {
            match give_up(cx, configuration, self, (database, &key)) {
                Ok(gone) => {
                    let of = &mut self.hand_offs.foreign[usize::from(database % ALL_DATABASES)];
                    *of = of.saturating_sub(gone.into());
                }
                // The next call continues at the same key.
                Err(_) => return false,
            }
        }
        let of = &mut self.hand_offs;
        of.purge_cursor = next;
        if next == 0 {
            (of.dirty, of.foreign) = (false, [0; ALL_DATABASES as usize]);
        }
        next == 0
    }

    /// Makes `purge` begin again with the first key.
    pub(super) fn purge_again(&mut self) {
        self.hand_offs.purge_cursor = 0;
    }

    fn want<O: Out>(&mut self, cx: &Context<'_, O>, blocked: Blocked) {
        if let Blocked::Missing(stripe) = blocked {
            self.rebuild.reconstructor.want(cx.now.mono, stripe);
        }
    }

    // --- the source ----------------------------------------------------------------------------------------------

    fn drive<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        hand_off: HandOff,
        to: Option<(Tenure, Epoch)>,
    ) {
        let now = cx.mono();
        let Some(mut source) = self.hand_offs.source.take() else {
            // While the stream is rebuilt, every step would wait for chunks.
            if self.store.chunks().absent_count() == 0 && !self.lost {
                self.attempt(hand_off, to, now);
            }
            return;
        };
        let tenure = to.map(|(tenure, _)| tenure);
        // The tenure that received the objects is over, so a proposal for it would be refused: begin again.
        let void = tenure != source.to && (to.is_some() || source.stage < Stage::Propose);
        let stuck = source.stage < Stage::Propose && now >= source.give_up_at;
        if void || stuck {
            if source.is_frozen() {
                cx.out.mark(Mark::SlotsThawed);
            }
            self.attempt(hand_off, to, now);
            let of = &mut self.hand_offs;
            of.failures += u32::from(stuck);
            if stuck && let Some(source) = &mut of.source {
                // Wait before the next attempt, so that slots are not frozen repeatedly for a destination that does not
                // answer in time.
                source.wake_at = cx.after(cx.shared.parameters.hand_off_timeout);
                if of.failures >= FAILURES_MAX {
                    source.stage = Stage::Refused;
                }
            }
            return;
        }
        if let Some((to, epoch)) = to
            && (now >= source.wake_at || source.stage == Stage::Drain)
        {
            self.go_on(cx, configuration, &mut source, to, epoch);
        } else if to.is_none() {
            source.wake_at = cx.after(cx.shared.parameters.resend);
        }
        if matches!(source.stage, Stage::Propose | Stage::Refused) && now >= source.resend_at {
            source.resend_at = cx.after(cx.shared.parameters.resend);
            source.wake_at = source.resend_at;
            if let Some(to) = source.to {
                cx.propose(Proposal::HandOff {
                    version: hand_off.version,
                    last: (source.stage == Stage::Propose).then_some(source.last),
                    from: self.tenure,
                    to,
                });
            }
        }
        self.hand_offs.source = Some(source);
    }

    /// Begins another attempt. All slots are served until it freezes them.
    fn attempt(&mut self, hand_off: HandOff, to: Option<(Tenure, Epoch)>, now: Time) {
        self.hand_offs.round += 1;
        let to = to.map(|(tenure, _)| tenure);
        self.hand_offs.source = Some(Box::new(Outgoing::new(hand_off, to, self.hand_offs.round, now)));
    }

    fn go_on<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        source: &mut Outgoing,
        to: Tenure,
        epoch: Epoch,
    ) {
        let now = cx.mono();
        match source.stage {
            Stage::Weigh => {
                if self.weigh(cx, source) {
                    source.stage = Stage::Prepare;
                    source.in_flight = true;
                    self.send_batch(cx, source, to, epoch);
                }
            }
            Stage::Prepare => self.send_batch(cx, source, to, epoch),
            Stage::Bodies if source.in_flight => self.send_batch(cx, source, to, epoch),
            Stage::Bodies => self.send_bodies(cx, configuration, source, to, epoch),
            Stage::Drain => {
                if self.log.acked() >= source.drain {
                    source.stage = Stage::Copy;
                    (source.cursor, source.walked) = (0, false);
                    self.copy(cx, configuration, source, to, epoch);
                } else {
                    source.wake_at = source.give_up_at;
                }
            }
            Stage::Copy if source.in_flight => self.send_batch(cx, source, to, epoch),
            Stage::Copy => self.copy(cx, configuration, source, to, epoch),
            Stage::Propose | Stage::Refused => {
                source.wake_at = source.resend_at.max(now);
            }
        }
    }

    /// Handles the destination's answer to a batch, or to the question whether it is ready.
    #[allow(clippy::too_many_arguments)] // The fields of one frame.
    pub(crate) fn on_imported<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        from: (paritas_base::NodeId, paritas_base::Incarnation),
        version: u64,
        term: paritas_base::Term,
        round: u32,
        n: u32,
        status: ImportStatus,
    ) {
        let (now, newest) = (cx.mono(), self.log.newest_seq());
        let own_term = self.tenure.term();
        let Some(source) = &mut self.hand_offs.source else {
            return;
        };
        let sender = source.to.map(|to| (to.node, to.incarnation));
        let this = (source.hand_off.version, own_term, source.round, source.n);
        if (version, term, round, n) != this || sender != Some(from) || !source.in_flight {
            return;
        }
        source.wake_at = now;
        source.give_up_at = now + cx.shared.parameters.hand_off_timeout;
        match status {
            ImportStatus::Done | ImportStatus::Kept => {
                source.on_done(status == ImportStatus::Kept);
                if source.stage == Stage::Prepare && source.has_large {
                    source.stage = Stage::Bodies;
                    (source.cursor, source.walked) = (0, false);
                } else if source.stage == Stage::Prepare {
                    source.freeze(newest);
                    cx.shared.slots.is_stale();
                }
            }
            ImportStatus::NoRoom => {
                if source.is_frozen() {
                    cx.shared.slots.is_stale();
                    cx.out.mark(Mark::SlotsThawed);
                }
                source.stage = Stage::Refused;
                source.in_flight = false;
                source.resend_at = now;
                source.give_up_at = Time(u64::MAX);
                self.wake.progress = true;
            }
            // The destination does not know this attempt. Nothing was proposed, so the next turn begins another one.
            ImportStatus::Unknown => source.give_up_at = now,
        }
    }
}

/// Whether a slot is in one of these ranges, which are in order.
fn contains(ranges: &[(u16, u16)], slot: u16) -> bool {
    let at = ranges.partition_point(|(_, last)| *last < slot);
    ranges.get(at).is_some_and(|(first, _)| *first <= slot)
}
