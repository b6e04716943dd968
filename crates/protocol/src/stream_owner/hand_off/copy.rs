//! What the source of a hand-off sends: objects, and the bodies of large values (P10.8).
//!
//! A body takes long, so it is sent while the slots are still served. Bodies never change: what was sent stays valid
//! for an object as long as it has the same record. When the slots are frozen, only the object is sent, with its
//! record, and the bodies of the values that have changed meanwhile. If these are too long, the attempt is given up;
//! the destination keeps the bodies that it has for the next one.

use super::{Outgoing, STEP_BYTES, Stage};
use crate::context::Context;
use crate::interface::{Channel, Out};
use crate::mark::Mark;
use crate::rules::Fault;
use crate::stream_owner::{StreamOwner, body_bytes};
use paritas_base::configuration::{Configuration, Tenure};
use paritas_base::{ALL_DATABASES, Epoch, Time};
use paritas_store::Object;
use paritas_wire::peer::{Message, ObjectRecord, Objects};

/// Keys visited in one turn, about.
pub(super) const WALK_KEYS: usize = 1024;
/// Bytes of objects in a batch, about.
const BATCH_BYTES: usize = 128 << 10;
/// Bytes that an object counts for in `STEP_BYTES`, beside its key and value.
const OBJECT_BYTES: usize = 16;
/// Units in a piece of a body.
const PIECE_UNITS: usize = 8;
/// The most units of bodies that are sent while the slots are frozen: 1 MiB with the usual chunks.
const FROZEN_UNITS_MAX: u64 = 64;

impl StreamOwner {
    /// Adds up the bytes of each slot, and sets the last slot of this attempt. False: the walk is not complete yet.
    pub(super) fn weigh<O: Out>(&mut self, cx: &mut Context<'_, O>, source: &mut Outgoing) -> bool {
        let (first, weights) = (source.hand_off.first, &mut source.weights);
        let has_large = &mut source.has_large;
        let next = self.store.scan(&cx.shared.arena, source.cursor, WALK_KEYS, |object| {
            let slot = cx.shared.slots.slot(object.database(), object.key());
            let at = slot.checked_sub(first).map(usize::from);
            if let Some(weight) = at.and_then(|at| weights.get_mut(at)) {
                let body = object.record().map_or(0, body_bytes);
                *has_large |= object.record().is_some();
                *weight += (object.key().len() + object.len() + OBJECT_BYTES) as u64 + body;
            }
        });
        match next {
            Err(blocked) => {
                self.want(cx, blocked);
                source.wake_at = cx.after(cx.shared.parameters.retry);
                return false;
            }
            Ok(next) => source.cursor = next,
        }
        if source.cursor != 0 {
            return false;
        }
        let mut sum = 0;
        let fits = source.weights.iter().skip(1).take_while(|weight| {
            sum += **weight;
            sum + source.weights[0] <= STEP_BYTES
        });
        source.last = source.hand_off.first + fits.count() as u16;
        source.weights = Vec::new();
        true
    }

    /// Finds further keys of the slots. False: try again later.
    fn walk<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        source: &mut Outgoing,
        is_wanted: impl Fn(&Object<'_>) -> bool,
    ) -> bool {
        let (mut keys, now_ms) = (core::mem::take(&mut source.keys), cx.now.wall_ms);
        let next = self.store.scan(&cx.shared.arena, source.cursor, WALK_KEYS, |object| {
            // A client may have seen that an expired key is gone, so it must not appear at the destination.
            let over = object.expiry_ms().is_some_and(|at| at <= now_ms);
            let slot = cx.shared.slots.slot(object.database(), object.key());
            if !over && source.contains(slot) && is_wanted(object) {
                keys.push((object.database(), object.key().to_vec()));
            }
        });
        source.keys = keys;
        match next {
            Err(blocked) => {
                self.want(cx, blocked);
                source.wake_at = cx.after(cx.shared.parameters.retry);
                return false;
            }
            Ok(next) => (source.cursor, source.walked) = (next, next == 0),
        }
        source.give_up_at = cx.mono() + cx.shared.parameters.hand_off_timeout;
        true
    }

    /// Sends bodies while the slots are served. When none is left, freezes the slots.
    pub(super) fn send_bodies<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        source: &mut Outgoing,
        to: Tenure,
        epoch: Epoch,
    ) {
        let is_large = |object: &Object<'_>| object.record().is_some();
        if source.keys.is_empty() && !source.walked && !self.walk(cx, source, is_large) {
            return;
        }
        while !source.keys.is_empty() {
            if self.send_body(cx, configuration, source, to, epoch) {
                return;
            }
        }
        if source.walked {
            source.freeze(self.log.newest_seq());
        }
    }

    /// Sends the next piece of the body of the last key. False: there is none to send for this key, which is done.
    fn send_body<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        source: &mut Outgoing,
        to: Tenure,
        epoch: Epoch,
    ) -> bool {
        let Some(of) = source.keys.last() else {
            return false;
        };
        let hash = self.store.hash(of.0, &of.1);
        let record = match self.store.find(&cx.shared.arena, hash, &of.1) {
            Err(blocked) => {
                self.want(cx, blocked);
                source.wake_at = cx.after(cx.shared.parameters.retry);
                return true;
            }
            Ok(object) => object.and_then(|object| object.record().map(<[u8]>::to_vec)),
        };
        let Some(record) = record.filter(|record| source.bodies.get(of) != Some(record)) else {
            source.body = None;
            source.keys.pop();
            return false;
        };
        // Another body than before if the key was written meanwhile.
        if source.body.as_ref().is_none_or(|(of, _)| *of != record) {
            source.body = Some((record.clone(), 0));
        }
        let sent_bytes = source.body.as_ref().map_or(0, |(_, sent_bytes)| *sent_bytes);
        let piece_bytes = PIECE_UNITS * cx.shared.arena.chunk_bytes();
        let here = self.installed(configuration);
        match self.records.body_from(cx, &here, &record, sent_bytes as u64) {
            Ok(rest) => source.batch.extend_from_slice(rest.get(..piece_bytes).unwrap_or(rest)),
            Err(_) => {
                let moved_at = self.records.body_moved_at(&record).unwrap_or(Time(0));
                let until = moved_at + cx.shared.parameters.hand_off_timeout;
                source.give_up_at = source.give_up_at.max(until);
                source.wake_at = cx.after(cx.shared.parameters.retry);
                return true;
            }
        }
        source.is_piece = true;
        source.n += 1;
        source.in_flight = true;
        self.send_batch(cx, source, to, epoch);
        true
    }

    /// Sends a body while the slots are frozen: that of the last key, which has changed since they were served.
    fn send_changed<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        source: &mut Outgoing,
        record: &[u8],
        to: Tenure,
        epoch: Epoch,
    ) {
        if source.body.as_ref().is_none_or(|(of, _)| of != record) {
            source.frozen_units += body_bytes(record).div_ceil(cx.shared.arena.chunk_bytes() as u64);
            if source.frozen_units > FROZEN_UNITS_MAX {
                // The slots are thawed, and the next attempt begins with these bodies.
                cx.out.mark(Mark::BodiesChanged);
                source.give_up_at = cx.mono();
                source.wake_at = cx.mono();
                return;
            }
            cx.out.mark(Mark::BodySentFrozen);
        }
        self.send_body(cx, configuration, source, to, epoch);
    }

    /// Fills the next batch and sends it. When nothing is left to send, moves on to the proposal.
    pub(super) fn copy<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        source: &mut Outgoing,
        to: Tenure,
        epoch: Epoch,
    ) {
        if source.keys.is_empty() && !source.walked && !self.walk(cx, source, |_| true) {
            return;
        }
        let mut value = Vec::new();
        let mut changed = None;
        while source.batch.len() < BATCH_BYTES {
            let Some(of) = source.keys.last() else { break };
            let (database, key) = (of.0, &of.1);
            match self.store.find(&cx.shared.arena, self.store.hash(database, key), key) {
                Err(blocked) => {
                    self.want(cx, blocked);
                    source.wake_at = cx.after(cx.shared.parameters.retry);
                    return;
                }
                // Evicted or expired since the walk found it.
                Ok(None) => {}
                Ok(Some(object)) => {
                    let is_any = cx.rules().fault(Fault::BodyOfAnyRecord);
                    let there = source.bodies.get(of).map(Vec::as_slice);
                    let record = match object.record() {
                        None => &[],
                        Some(own) => match there.filter(|there| *there == own || is_any) {
                            Some(there) => there,
                            None => {
                                changed = Some(own.to_vec());
                                break;
                            }
                        },
                    };
                    value.clear();
                    object.copy_to(&mut value);
                    let object = ObjectRecord {
                        database,
                        key,
                        value: &value,
                        record,
                        expiry_ms: object.expiry_ms(),
                        flags: object.flags(),
                        marks: object.marks(),
                        hash_kind: object.is_hash(),
                    };
                    Objects::push(&mut source.batch, &object);
                    source.sent_keys[usize::from(database % ALL_DATABASES)] += 1;
                }
            }
            source.keys.pop();
        }
        if let Some(record) = changed.as_ref().filter(|_| source.batch.is_empty()) {
            self.send_changed(cx, configuration, source, record, to, epoch);
        } else if source.walked && source.keys.is_empty() && source.batch.is_empty() {
            source.stage = Stage::Propose;
            source.resend_at = cx.mono();
        } else if source.batch.len() >= BATCH_BYTES || source.walked || changed.is_some() {
            source.n += 1;
            source.in_flight = true;
            self.send_batch(cx, source, to, epoch);
        }
    }

    /// Sends a batch, or sends it again.
    pub(super) fn send_batch<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        source: &mut Outgoing,
        to: Tenure,
        epoch: Epoch,
    ) {
        // `n` = 0 asks whether the destination is ready. It is dropped if it arrives before the configuration that
        // names the hand-off, so it is repeated sooner.
        let p = &cx.shared.parameters;
        let timeout = if source.n == 0 { p.retry } else { p.resend };
        source.wake_at = cx.after(timeout).min(source.give_up_at);
        let (version, term, round, n) = (source.hand_off.version, self.tenure.term(), source.round, source.n);
        let piece = source.body.as_ref().filter(|_| source.is_piece);
        let (channel, message) = match piece {
            Some((record, offset)) => {
                let message = Message::ImportBody {
                    version,
                    term,
                    round,
                    n,
                    record,
                    offset: *offset as u64,
                    bytes: &source.batch,
                };
                (Channel::Bulk, message)
            }
            None => {
                let message = Message::Import {
                    version,
                    term,
                    round,
                    n,
                    objects: Objects::new(&source.batch),
                };
                (Channel::Main, message)
            }
        };
        cx.send(&to, channel, source.hand_off.to, epoch, &message);
    }
}
