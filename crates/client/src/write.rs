//! `Write`: cuts and encodes a large value for its holders. It does no I/O.
//!
//! The rows of the body leave in steps. A step has the same rows of every part: one command for each holder.

use crate::place::number;
use crate::staged::Staged;
use paritas_large::{Content, Part, Writer};
use paritas_wire::resp::encode;

/// Bytes of one part in a step. A holder takes at most 512 KiB.
const STEP_BYTES: u32 = 128 << 10;
/// Steps of a value that are under way to one holder.
const STEPS_MAX: u32 = 4;

/// Units of a part on their way to its holder.
#[derive(Debug)]
pub(crate) struct Put {
    /// The number of the part, in the order of the placement.
    pub(crate) part: usize,
    /// The units of the part that the holder then has.
    pub(crate) end: u32,
    /// The whole command.
    pub(crate) bytes: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Write {
    staged: Staged,
    writer: Writer,
    /// The parts, and the units of each that its holder has.
    parts: Vec<(Part, u32)>,
    next_row: u32,
}

impl Write {
    pub(crate) fn new(staged: Staged) -> Self {
        let place = &staged.place;
        Self {
            writer: Writer::new(place.layout, place.placement),
            parts: place.placement.parts().map(|part| (part, 0)).collect(),
            next_row: 0,
            staged,
        }
    }

    pub(crate) fn staged(&self) -> &Staged {
        &self.staged
    }

    /// The address of the holder of each part.
    pub(crate) fn holders(&self) -> impl Iterator<Item = &str> {
        let holder = |(part, _): &(Part, u32)| self.staged.place.holder(part);
        // The reply was refused if one had none.
        self.parts.iter().map(move |part| holder(part).unwrap_or_default())
    }

    /// Whether there is a next step, and room for it in the window.
    pub(crate) fn may_step(&self) -> bool {
        let rows_max = STEPS_MAX * self.rows_of_step();
        self.next_row < self.rows() && self.next_row - self.taken() < rows_max
    }

    /// The next step of this value: a command for each part.
    pub(crate) fn step(&mut self, value: &[u8]) -> Vec<Put> {
        let (layout, first) = (self.staged.place.layout, self.next_row);
        let end = self.rows().min(first.saturating_add(self.rows_of_step()));
        let mut puts: Vec<Put> = (0..self.parts.len())
            .map(|part| self.begin_put(part, first, end))
            .collect();
        let data = u32::from(layout.data());
        let from = layout.unit_range(first * data).start as usize;
        let to = layout.unit_range(end * data - 1).end as usize;
        // The value is as long as the owner was told, and its body no longer than that.
        let mut body = value.get(from..to).unwrap_or_default();
        let mut missing = puts.len() * (end - first) as usize;
        while missing > 0 {
            let before = missing;
            let pushed = self.writer.push(body, |part, _, unit| {
                puts[part].bytes.extend_from_slice(unit);
                missing -= 1;
            });
            body = body.get(pushed..).unwrap_or_default();
            // The windows are those of this machine.
            (0..puts.len()).for_each(|part| self.writer.on_taken(part, u32::MAX));
            if missing == before {
                debug_assert!(false, "the rows of a step are whole");
                break;
            }
        }
        puts.iter_mut().for_each(|put| encode::bulk_end(&mut put.bytes));
        self.next_row = end;
        puts
    }

    /// A holder has this many units of a part, after it was sent those up to `end`. Returns whether it has taken all.
    #[must_use]
    pub(crate) fn on_taken(&mut self, part: usize, units: i64, end: u32) -> bool {
        let Some((_, taken)) = self.parts.get_mut(part).filter(|_| units >= i64::from(end)) else {
            return false;
        };
        *taken = end.max(*taken);
        true
    }

    /// Whether the holders have all units.
    pub(crate) fn is_done(&self) -> bool {
        self.taken() == self.rows()
    }

    /// The checks of the record, as bytes. They are final when it is done.
    pub(crate) fn checks(&self) -> Vec<u8> {
        self.writer
            .checks()
            .iter()
            .flat_map(|check| check.to_le_bytes())
            .collect()
    }

    /// Units of each part: parts are copies of a body that is not cut, or blocks.
    fn rows(&self) -> u32 {
        self.staged.place.layout.rows()
    }

    fn rows_of_step(&self) -> u32 {
        (STEP_BYTES / self.staged.place.layout.unit_bytes()).max(1)
    }

    /// Units that every holder has.
    fn taken(&self) -> u32 {
        self.parts.iter().map(|(_, taken)| *taken).min().unwrap_or_default()
    }

    /// A command without its units.
    fn begin_put(&self, part: usize, first: u32, end: u32) -> Put {
        let place = &self.staged.place;
        let (of, _) = &self.parts[part];
        debug_assert!(of.content != Content::Whole || place.layout.data() == 1);
        let sizes = (first..end).map(|unit| of.content.unit_bytes(&place.layout, unit) as usize);
        let units_bytes = sizes.sum();
        let name = place.name("PARITAS.PUT", of);
        let mut bytes = Vec::with_capacity(units_bytes + 256);
        encode::array_header(&mut bytes, name.len() + 3);
        name.iter().for_each(|word| encode::bulk(&mut bytes, word));
        encode::bulk(&mut bytes, &number(u64::from(first)));
        encode::bulk(&mut bytes, place.capability(of));
        encode::bulk_header(&mut bytes, units_bytes);
        Put { part, end, bytes }
    }
}

#[cfg(test)]
mod tests;
