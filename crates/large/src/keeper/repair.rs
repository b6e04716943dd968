//! Units whose bytes are no longer those that were stored (P14.12). Each unit that is kept is compared with its sum,
//! one after the other. If a part has a wrong unit, the body is read from other parts, and the wrong units are
//! replaced. The other units of the part are given to readers meanwhile.

use super::make::{Fetch, Maker};
use super::{Held, Keeper, PartId, State, Stored, Units, sum_of};
use crate::Record;
use core::ops::Bound;
use std::sync::Arc;

/// The repair of one part.
#[derive(Debug)]
pub(super) struct Repair {
    pub(super) maker: Maker,
    /// The next unit that the maker gives.
    next: u32,
    /// The last unit that is known to be wrong. Behind it nothing is to be repaired.
    pub(super) wrong: u32,
}

/// The unit that is checked next.
#[derive(Debug, Default)]
pub(super) struct Scrub {
    at: Option<(PartId, u32)>,
}

impl<U: core::fmt::Debug> Keeper<U> {
    /// The next unit to check. `None`: each has been given, and the next call begins again. Parts that are being
    /// repaired are left out.
    pub fn next_to_check(&mut self) -> Option<(PartId, u32)> {
        let from = self.scrub.at.take();
        let lower = from.map_or(Bound::Unbounded, |(id, _)| Bound::Included(id));
        let mut later = self.parts.range((lower, Bound::Unbounded));
        let (id, unit) = later.find_map(|(id, held)| {
            let unit = from.filter(|(at, _)| at == id).map_or(0, |(_, unit)| unit);
            let is_there = matches!(held.state, State::Kept) && (unit as usize) < held.units.len();
            is_there.then_some((*id, unit))
        })?;
        self.scrub.at = Some((id, unit + 1));
        Some((id, unit))
    }

    /// Whether a unit of a part that is kept has its sum. If not, the repair of the part begins. What is being repaired
    /// already is not looked at.
    pub fn check<M: Units<Unit = U>>(&mut self, memory: &M, id: PartId, unit: u32) -> bool {
        let unit_bytes = memory.unit_bytes();
        let held = self.parts.get(&id).filter(|held| matches!(held.state, State::Kept));
        let (Some(held), Some((stored, length, sum))) = (held, self.stored(unit_bytes, &id, unit)) else {
            return true;
        };
        let is_right = memory.stored(stored, length).has(sum, unit_bytes);
        if !is_right {
            let record = held.record.clone();
            self.repair(unit_bytes, id, &record, unit);
        }
        is_right
    }

    /// Begins the repair of a part up to this unit, from the parts that this record names.
    pub(super) fn repair(&mut self, unit_bytes: u32, id: PartId, record: &Arc<Record>, wrong: u32) {
        let Some(held) = self.parts.get_mut(&id) else { return };
        self.makers += 1;
        if let Some(maker) = Maker::new(record, held.part, self.positions, unit_bytes, self.makers) {
            held.state = State::Wrong(Box::new(Repair { maker, next: 0, wrong }));
            self.unfinished.insert(id);
        }
    }

    /// The answer to a fetch for a part that is being repaired.
    pub(super) fn on_made_again<M: Units<Unit = U>>(
        &mut self,
        memory: &mut M,
        id: PartId,
        fetch: &Fetch,
        bytes: Option<&[u8]>,
    ) {
        let Some(held) = self.parts.get_mut(&id) else { return };
        let Held { units, sums, state, .. } = held;
        let State::Wrong(repair) = state else { return };
        let Repair { maker, next, wrong } = &mut **repair;
        let (unit_bytes, mut replaced) = (memory.unit_bytes(), 0);
        maker.on_fetched(fetch, bytes, |made| {
            let at = *next as usize;
            *next += 1;
            let (Some(unit), Some(sum)) = (units.get_mut(at), sums.get(at)) else {
                return;
            };
            let is_wrong = !memory.stored(unit, made.len() as u32).has(*sum, unit_bytes);
            // Bytes with another sum are not believed: the next scrub finds the unit again.
            if is_wrong && sum_of(made, unit_bytes) == *sum {
                memory.overwrite(unit, made);
                replaced += 1;
            }
        });
        if *next > *wrong {
            // Others may have been lost meanwhile.
            let is_lost = |(_, unit): &(u32, &U)| memory.stored(unit, 0) == Stored::Lost;
            let lost = (0..).zip(&*units).filter(is_lost).map(|(unit, _)| unit).last();
            *state = State::Kept;
            self.unfinished.remove(&id);
            match lost {
                Some(lost) => {
                    let record = held.record.clone();
                    self.repair(unit_bytes, id, &record, lost);
                }
                None => self.begin_owed(memory),
            }
        }
        self.repaired += replaced;
    }

    /// Whether a part is kept, and no unit of it is known to be wrong and cannot be made again now.
    pub fn is_sound(&self, id: &PartId) -> bool {
        self.parts.get(id).is_some_and(|held| match &held.state {
            State::Kept => true,
            State::Wrong(repair) => !repair.maker.is_stuck(),
            State::Open(..) | State::Making(_) => false,
        })
    }

    /// The units of all parts, kept or not, for a host that looks for those that its disk has lost.
    pub fn units_mut(&mut self) -> impl Iterator<Item = (PartId, u32, &mut U)> {
        let parts = self.parts.iter_mut();
        parts.flat_map(|(id, held)| (0..).zip(&mut held.units).map(|(unit, stored)| (*id, unit, stored)))
    }

    /// A unit of a part, kept or not, for a host whose disk has lost it.
    pub fn unit_mut(&mut self, id: &PartId, unit: u32) -> Option<&mut U> {
        self.parts.get_mut(id)?.units.get_mut(unit as usize)
    }

    /// A unit that is kept: its memory, its length in bytes, and its sum.
    pub fn stored(&self, unit_bytes: u32, id: &PartId, unit: u32) -> Option<(&U, u32, u32)> {
        let held = self.parts.get(id).filter(|held| held.is_kept())?;
        let length = held.length_of(unit, unit_bytes)?;
        Some((held.units.get(unit as usize)?, length, *held.sums.get(unit as usize)?))
    }

    /// All units that are kept.
    pub fn kept_units(&self) -> impl Iterator<Item = (PartId, u32)> + '_ {
        let kept = self.parts.iter().filter(|(_, held)| held.is_kept());
        kept.flat_map(|(id, held)| (0..held.units.len() as u32).map(|unit| (*id, unit)))
    }

    /// The record with which a part came.
    pub fn record_of(&self, id: &PartId) -> Option<&Arc<Record>> {
        self.parts.get(id).map(|held| &held.record)
    }

    /// Units that had wrong bytes and were replaced.
    pub fn repaired(&self) -> u64 {
        self.repaired
    }
}
