//! Parts on the disk of a log node (P11.5): units are read on request, the disk may have lost some, and holders answer
//! writers no faster than the disk takes what they send.

use super::{PositionParts, Said, UnitRef, is_sound, send_state};
use crate::context::Context;
use crate::disk_log::{DiskLog, Wanted};
use crate::interface::Out;
use crate::mark::Mark;
use paritas_base::configuration::Configuration;
use paritas_base::{Incarnation, NodeId, StreamId};
use paritas_large::PartId;
use paritas_paritylog::Key;
use paritas_store::Arena;
use std::collections::BTreeSet;

/// What a holder answers to the question for a unit.
pub(crate) enum Answered {
    /// At once: its sum and its bytes.
    Now(u32, Vec<u8>),
    /// When the disk has read it.
    Later,
}

impl PositionParts {
    /// Begins to read a unit of the disk, for a peer or for the scrub. `Some(false)`: too many reads wait. `None`: the
    /// unit is not on the disk.
    pub(super) fn read_disk<O: Out>(
        &self,
        cx: &mut Context<'_, O>,
        id: PartId,
        unit: u32,
        to: Option<(NodeId, Incarnation, u64)>,
    ) -> Option<bool> {
        let (stored, ..) = self.keeper.stored(cx.shared.arena.chunk_bytes() as u32, &id, unit)?;
        let UnitRef::Disk(key) = *stored else { return None };
        let disk = cx.shared.disk.as_mut()?;
        Some(disk.read(key, Wanted::Unit { id, unit, to }))
    }

    /// Handles the end of a read. Returns sum and bytes if the unit is still stored under this key, and the bytes have
    /// its sum. A unit that cannot be read, or has other bytes, is lost.
    pub(crate) fn on_read<'b, O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        key: Key,
        (id, unit): (PartId, u32),
        bytes: Option<&'b [u8]>,
    ) -> Option<(u32, &'b [u8])> {
        let unit_bytes = cx.shared.arena.chunk_bytes();
        let (stored, length, sum) = self.keeper.stored(unit_bytes as u32, &id, unit)?;
        if *stored != UnitRef::Disk(key) {
            return None;
        }
        let bytes = bytes.and_then(|bytes| bytes.get(..length as usize));
        let bytes = bytes.filter(|bytes| is_sound(unit_bytes, sum, bytes));
        if bytes.is_none() {
            if let Some(stored) = self.keeper.unit_mut(&id, unit) {
                *stored = UnitRef::Lost;
            }
            if let Some(disk) = &mut cx.shared.disk {
                disk.log.remove(key);
            }
            cx.out.mark(Mark::UnitLostByDisk);
            self.check(cx, id, unit);
        }
        bytes.map(|bytes| (sum, bytes))
    }

    /// The disk has lost these units, of this position or of others. Kept parts are repaired (P14.12). Other parts are
    /// given up when all their units have come.
    pub(crate) fn lose_units<O: Out>(&mut self, cx: &mut Context<'_, O>, keys: &BTreeSet<Key>) {
        let mut lost = Vec::new();
        for (id, unit, stored) in self.keeper.units_mut() {
            if let UnitRef::Disk(key) = *stored
                && keys.contains(&key)
            {
                *stored = UnitRef::Lost;
                lost.push((id, unit));
            }
        }
        // The last one first: one repair of a part then replaces all of its units.
        for (id, unit) in lost.into_iter().rev() {
            cx.out.mark(Mark::UnitLostByDisk);
            self.check(cx, id, unit);
        }
    }

    /// Answers a writer: at once, or when the disk has caught up.
    pub(crate) fn answer_put<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        id: PartId,
        to: (NodeId, Incarnation),
        said: Said,
    ) {
        if cx.shared.disk.as_mut().is_some_and(DiskLog::holds_acks) {
            cx.out.mark(Mark::UnitAnswerHeld);
            self.held_answers.insert(id, (to, said));
        } else {
            // What is known of a part now is all that its writer needs.
            self.held_answers.remove(&id);
            send_taken(cx, configuration, id, to, &said);
        }
    }

    /// Sends the answers that were held back, if the disk has caught up.
    pub(super) fn send_held_answers<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        if self.held_answers.is_empty() || cx.shared.disk.as_mut().is_some_and(DiskLog::holds_acks) {
            return;
        }
        for (id, (to, said)) in core::mem::take(&mut self.held_answers) {
            send_taken(cx, configuration, id, to, &said);
        }
    }

    /// Whether a unit is kept here and is known to have wrong bytes, or none.
    pub fn is_wrong(&self, arena: &Arena, id: &PartId, unit: u32) -> bool {
        let stored = self.keeper.stored(arena.chunk_bytes() as u32, id, unit);
        stored.is_some_and(|(stored, length, sum)| match *stored {
            UnitRef::Memory(slot) => {
                let bytes = arena.bytes(slot).get(..length as usize);
                bytes.is_none_or(|bytes| !is_sound(arena.chunk_bytes(), sum, bytes))
            }
            UnitRef::Disk(_) => false,
            UnitRef::Lost => true,
        })
    }
}

fn send_taken<O: Out>(
    cx: &mut Context<'_, O>,
    configuration: &Configuration,
    id: PartId,
    to: (NodeId, Incarnation),
    said: &Said,
) {
    let list = configuration.list;
    send_state(cx, configuration, StreamId { list, x: id.x }, to, id.name, 0, said);
}
