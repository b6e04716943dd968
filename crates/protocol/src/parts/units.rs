//! Units that a client reads from their holder (P14.17).

use super::{PositionParts, UnitRef, is_sound};
use crate::context::Context;
use crate::interface::Out;
use crate::lists::Lists;
use core::ops::Range;
use paritas_base::StreamId;
use paritas_large::{PartId, PartName};
use paritas_store::{Arena, ChunkRef};

/// Units of a part in memory, one after the other.
#[derive(Debug)]
pub struct StoredUnits {
    /// Where each is, its length in bytes, and its sum.
    units: Vec<(ChunkRef, u32, u32)>,
}

impl StoredUnits {
    /// Bytes of all sums and units.
    pub fn bytes(&self) -> usize {
        self.units.iter().map(|(_, length, _)| 4 + *length as usize).sum()
    }

    /// Appends the sums, as they are stored, and then the bytes of the units.
    pub fn append(&self, arena: &Arena, out: &mut Vec<u8>) {
        for (_, _, sum) in &self.units {
            out.extend_from_slice(&sum.to_le_bytes());
        }
        for (chunk, length, _) in &self.units {
            let bytes = arena.bytes(*chunk);
            out.extend_from_slice(bytes.get(..*length as usize).unwrap_or(bytes));
        }
    }
}

impl PositionParts {
    /// These units of a part. `None` if this position does not keep all of them in memory.
    fn stored_units(&self, unit_bytes: usize, id: &PartId, units: Range<u32>) -> Option<StoredUnits> {
        // A part that is not kept has no unit: the table is not made for a number of them that a client chooses.
        self.keeper.is_kept(id).then_some(())?;
        let mut stored = Vec::with_capacity(units.len());
        for unit in units {
            let (UnitRef::Memory(chunk), length, sum) = self.keeper.stored(unit_bytes as u32, id, unit)? else {
                return None;
            };
            stored.push((*chunk, length, sum));
        }
        Some(StoredUnits { units: stored })
    }

    /// Compares them with their sums. At the first wrong one its repair begins, and the answer is false (P14.12).
    fn compare_units<O: Out>(&mut self, cx: &mut Context<'_, O>, id: PartId, first: u32, stored: &StoredUnits) -> bool {
        let arena = &cx.shared.arena;
        let is_wrong = |(chunk, length, sum): &(ChunkRef, u32, u32)| {
            let bytes = arena.bytes(*chunk).get(..*length as usize);
            !bytes.is_some_and(|bytes| is_sound(arena.chunk_bytes(), *sum, bytes))
        };
        let Some(wrong) = stored.units.iter().position(is_wrong) else {
            return true;
        };
        self.check(cx, id, first + wrong as u32);
        false
    }
}

impl Lists {
    /// These units of a part of a stream, if this node keeps all of them in memory. Nothing is compared: that is left
    /// to who reads them.
    pub fn stored_units(
        &self,
        arena: &Arena,
        stream: StreamId,
        name: PartName,
        units: Range<u32>,
    ) -> Option<StoredUnits> {
        let id = PartId { x: stream.x, name };
        let mut parts = self.get(stream.list)?.parts.iter();
        parts.find_map(|parts| parts.stored_units(arena.chunk_bytes(), &id, units.clone()))
    }

    /// The same, if all of them have their sums.
    pub fn compared_units<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        stream: StreamId,
        name: PartName,
        units: Range<u32>,
    ) -> Option<StoredUnits> {
        let id = PartId { x: stream.x, name };
        let unit_bytes = cx.shared.arena.chunk_bytes();
        let mut parts = self.get_mut(stream.list)?.parts.iter_mut();
        parts.find_map(|parts| {
            let stored = parts.stored_units(unit_bytes, &id, units.clone())?;
            parts.compare_units(cx, id, units.start, &stored).then_some(stored)
        })
    }
}
