//! `Read`: puts a large value together from the units of its parts. It does no I/O.
//!
//! The rows of the body are read in windows. Of a window each data block, or any k blocks, or a whole copy, is enough.
//! All of a window is asked for at once.

use crate::located::Located;
use core::ops::Range;
use paritas_code::{Code, Scheme, crc32c_append, sum};
use paritas_large::{Content, Group, Part};
use std::sync::Arc;

/// Bytes of one part that are asked for at once. A node gives at most 512 KiB.
const ASK_BYTES: u32 = 256 << 10;
/// Windows of one value that are read at once.
const WINDOWS_MAX: usize = 4;

/// Units of a part that were asked for. Unique within its value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct FetchId(u32);

/// What to ask a holder for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ask {
    pub(crate) id: FetchId,
    pub(crate) part: Part,
    /// The first unit of the part, and their count.
    pub(crate) first: u32,
    pub(crate) count: u32,
    /// Bytes of these units.
    pub(crate) bytes: u64,
}

/// What an answer was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Sound,
    /// The holder does not have the units.
    Absent,
    /// The bytes are not those of their sums.
    Wrong,
    /// It is not needed any more.
    Late,
}

/// Too few parts are left, or the value is not that of its record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReadFailed;

#[derive(Debug)]
pub(crate) struct Read {
    located: Arc<Located>,
    code: Option<Code>,
    /// The parts, and whether each may still be asked.
    sources: Vec<(Part, bool)>,
    value: Vec<u8>,
    /// The sums of the units of each data block.
    sums: Vec<Vec<u32>>,
    next_row: u32,
    windows: Vec<Window>,
    next_fetch: u32,
}

#[derive(Debug)]
struct Window {
    rows: Range<u32>,
    /// Data blocks, then parity blocks: what has come.
    blocks: Vec<Option<Block>>,
    fetches: Vec<Fetch>,
}

/// The units of one block in a window, one behind the other.
#[derive(Debug)]
struct Block {
    bytes: Vec<u8>,
    sums: Vec<u32>,
}

#[derive(Debug)]
struct Fetch {
    id: FetchId,
    source: usize,
    /// Nothing else was asked for in its place.
    counts: bool,
}

impl Read {
    pub(crate) fn new(located: Arc<Located>) -> Self {
        let class = located.place.placement.class();
        let scheme = Scheme::new(class.data(), class.parity());
        let rows = located.place.layout.rows() as usize;
        Self {
            code: scheme.ok().filter(|_| class.parity() > 0).map(Code::new),
            sources: located.place.placement.parts().map(|part| (part, true)).collect(),
            value: vec![0; located.value_bytes() as usize],
            sums: vec![vec![0; rows]; usize::from(class.data())],
            next_row: 0,
            windows: Vec::new(),
            next_fetch: 0,
            located,
        }
    }

    pub(crate) fn located(&self) -> &Arc<Located> {
        &self.located
    }

    /// The next units to ask for; `None` if it waits for answers. Of the parts that `rank` knows, those of lower rank
    /// are preferred.
    ///
    /// # Errors
    /// If too few parts are left.
    pub(crate) fn next_ask(&mut self, rank: impl Fn(&Part) -> Option<u32>) -> Result<Option<Ask>, ReadFailed> {
        for at in 0..self.windows.len() {
            if let Some(ask) = self.ask_in(at, &rank)? {
                return Ok(Some(ask));
            }
        }
        if self.windows.len() < WINDOWS_MAX && self.next_row < self.located.place.layout.rows() {
            self.begin_window();
            return self.ask_in(self.windows.len() - 1, &rank);
        }
        Ok(None)
    }

    /// The units are late: others may be asked for in their place.
    pub(crate) fn on_late(&mut self, id: FetchId) {
        let mut fetches = self.windows.iter_mut().flat_map(|window| &mut window.fetches);
        if let Some(fetch) = fetches.find(|fetch| fetch.id == id) {
            fetch.counts = false;
        }
    }

    /// The answer to an [`Ask`]: sums, then units. `None` if the holder does not have them, or is gone.
    pub(crate) fn on_units(&mut self, id: FetchId, answer: Option<&[u8]>) -> Answer {
        let asked = |window: &Window| window.fetches.iter().position(|fetch| fetch.id == id);
        let found = self.windows.iter().enumerate();
        let Some((at, place)) = found.filter_map(|(at, window)| Some((at, asked(window)?))).next() else {
            return Answer::Late;
        };
        let window = &mut self.windows[at];
        let source = window.fetches.swap_remove(place).source;
        let (part, may_be_asked) = &mut self.sources[source];
        let Some(answer) = answer else {
            *may_be_asked = false;
            return Answer::Absent;
        };
        let layout = &self.located.place.layout;
        let data = usize::from(layout.data());
        let Some(mut blocks) = cut(layout, part.content, &window.rows, answer) else {
            *may_be_asked = false;
            return Answer::Wrong;
        };
        match part.content {
            Content::Whole => {
                for (place, block) in window.blocks.iter_mut().zip(blocks) {
                    *place = Some(block);
                }
            }
            Content::Block(i) => window.blocks[usize::from(i)] = blocks.pop(),
            Content::Parity(j) => window.blocks[data + usize::from(j)] = blocks.pop(),
        }
        if window.blocks.iter().flatten().count() >= data {
            let window = self.windows.remove(at);
            self.finish_window(window);
        }
        Answer::Sound
    }

    pub(crate) fn is_done(&self) -> bool {
        self.windows.is_empty() && self.next_row == self.located.place.layout.rows()
    }

    /// The value.
    ///
    /// # Errors
    /// If its blocks do not have the checks of the record.
    pub(crate) fn finish(mut self) -> Result<Vec<u8>, ReadFailed> {
        for (i, sums) in (0u8..).zip(&self.sums) {
            let check = sums
                .iter()
                .fold(0, |check, sum| crc32c_append(check, &sum.to_le_bytes()));
            let block = Part {
                group: Group::Data,
                number: i,
                content: Content::Block(i),
                position: 0,
            };
            if check != self.located.place.record.check_of(&block) {
                return Err(ReadFailed);
            }
        }
        let body_bytes = self.located.place.record.body_bytes as usize;
        self.value[body_bytes..].copy_from_slice(&self.located.tail);
        Ok(self.value)
    }

    fn begin_window(&mut self) {
        let (layout, class) = (&self.located.place.layout, self.located.place.placement.class());
        let has_whole = self.sources.iter().any(|(part, _)| part.content == Content::Whole);
        let units_a_row = if has_whole { u32::from(layout.data()) } else { 1 };
        let rows = (ASK_BYTES / (layout.unit_bytes() * units_a_row)).max(1);
        let end = self.next_row.saturating_add(rows).min(layout.rows());
        let blocks = usize::from(class.data()) + usize::from(class.parity());
        self.windows.push(Window {
            rows: self.next_row..end,
            blocks: (0..blocks).map(|_| None).collect(),
            fetches: Vec::new(),
        });
        self.next_row = end;
    }

    fn ask_in(&mut self, at: usize, rank: impl Fn(&Part) -> Option<u32>) -> Result<Option<Ask>, ReadFailed> {
        let layout = &self.located.place.layout;
        let data = usize::from(layout.data());
        let window = &self.windows[at];
        let index = |content: Content| match content {
            Content::Block(i) => Some(usize::from(i)),
            Content::Parity(j) => Some(data + usize::from(j)),
            Content::Whole => None,
        };
        let counted = window.fetches.iter().filter(|fetch| fetch.counts);
        let coming: Vec<Content> = counted.map(|fetch| self.sources[fetch.source].0.content).collect();
        let will_be = |block: usize| {
            let is_coming = coming.iter().any(|content| index(*content) == Some(block));
            is_coming || window.blocks.get(block).is_some_and(Option::is_some)
        };
        let count = (0..window.blocks.len()).filter(|block| will_be(*block)).count();
        if count >= data || coming.contains(&Content::Whole) {
            return Ok(None);
        }
        let mut candidates: Vec<(u32, u8, usize, usize)> = Vec::new();
        for (source, (part, may_be_asked)) in self.sources.iter().enumerate() {
            let was_asked = window.fetches.iter().any(|fetch| fetch.source == source);
            let adds = index(part.content).is_none_or(|block| !will_be(block));
            if let Some(rank) = rank(part).filter(|_| *may_be_asked && !was_asked && adds) {
                let kind = match part.content {
                    Content::Block(_) => 0,
                    Content::Parity(_) => 1,
                    Content::Whole => 2,
                };
                // Windows take copies in turn.
                let turn = (source + window.rows.start as usize / window.rows.len()) % self.sources.len();
                candidates.push((rank, kind, if kind == 1 { source } else { turn }, source));
            }
        }
        let Some((.., source)) = candidates.into_iter().min() else {
            // Late units may still come.
            return if window.fetches.is_empty() {
                Err(ReadFailed)
            } else {
                Ok(None)
            };
        };
        let part = self.sources[source].0;
        let units = match part.content {
            Content::Whole => window.rows.start * data as u32..window.rows.end * data as u32,
            Content::Block(_) | Content::Parity(_) => window.rows.clone(),
        };
        let bytes = units
            .clone()
            .map(|unit| u64::from(part.content.unit_bytes(layout, unit)))
            .sum();
        let id = FetchId(self.next_fetch);
        self.next_fetch += 1;
        self.windows[at].fetches.push(Fetch {
            id,
            source,
            counts: true,
        });
        Ok(Some(Ask {
            id,
            part,
            first: units.start,
            count: units.len() as u32,
            bytes,
        }))
    }

    fn finish_window(&mut self, mut window: Window) {
        let layout = &self.located.place.layout;
        let (data, unit_bytes) = (usize::from(layout.data()), layout.unit_bytes() as usize);
        let missing: Vec<u8> = (0..data)
            .filter(|i| window.blocks[*i].is_none())
            .map(|i| i as u8)
            .collect();
        if let Some(code) = self.code.as_ref().filter(|_| !missing.is_empty()) {
            let blocks = (0u8..).zip(&window.blocks);
            let present: Vec<(u8, &[u8])> = blocks
                .filter_map(|(at, block)| Some((at, block.as_ref()?.bytes.as_slice())))
                .collect();
            let length = present.first().map_or(0, |(_, bytes)| bytes.len());
            let mut decoded = vec![vec![0; length]; missing.len()];
            let mut out: Vec<&mut [u8]> = decoded.iter_mut().map(Vec::as_mut_slice).collect();
            // It has k blocks of one length, and the code's scheme is that of the class.
            let done = code.decode(&present, &missing, &mut out);
            debug_assert!(done.is_ok(), "k blocks decode: {done:?}");
            for (i, bytes) in missing.into_iter().zip(decoded) {
                let sums = bytes
                    .chunks(unit_bytes)
                    .map(|unit| sum::of_extent(unit_bytes, 0, unit))
                    .collect();
                window.blocks[usize::from(i)] = Some(Block { bytes, sums });
            }
        }
        for (i, block) in window.blocks.iter().take(data).enumerate() {
            let Some(block) = block else { continue };
            let units = block.bytes.chunks(unit_bytes).zip(&block.sums);
            for (row, (unit, sum)) in window.rows.clone().zip(units) {
                self.sums[i][row as usize] = *sum;
                let range = layout.unit_range(row * data as u32 + i as u32);
                let length = (range.end - range.start) as usize;
                self.value[range.start as usize..range.end as usize].copy_from_slice(&unit[..length]);
            }
        }
    }
}

/// Cuts an answer into blocks: of a whole copy all data blocks, else one. `None` if it has another length, or a unit is
/// not that of its sum.
fn cut(layout: &paritas_large::Layout, content: Content, rows: &Range<u32>, answer: &[u8]) -> Option<Vec<Block>> {
    let blocks = if content == Content::Whole {
        usize::from(layout.data())
    } else {
        1
    };
    let count = rows.len() * blocks;
    let (sums, mut units) = answer.split_at_checked(4 * count)?;
    let mut sums = sums.as_chunks::<4>().0.iter().map(|sum| u32::from_le_bytes(*sum));
    let mut cut: Vec<Block> = (0..blocks)
        .map(|_| Block {
            bytes: Vec::with_capacity(rows.len() * layout.unit_bytes() as usize),
            sums: Vec::with_capacity(rows.len()),
        })
        .collect();
    for row in rows.clone() {
        for block in &mut cut {
            let (unit, rest) = units.split_at_checked(layout.row_unit_bytes(row) as usize)?;
            let sum = sums.next()?;
            if sum::of_extent(layout.unit_bytes() as usize, 0, unit) != sum {
                return None;
            }
            block.bytes.extend_from_slice(unit);
            block.sums.push(sum);
            units = rest;
        }
    }
    units.is_empty().then_some(cut)
}

#[cfg(test)]
mod tests;
