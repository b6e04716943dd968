//! `Reader`: gives back bytes of a body from its parts, in order.
//!
//! It does no I/O. The host sends its requests and gives it the units that come, and memory for the body: a unit is
//! copied to its place there when it comes. Whole copies and data blocks are read directly; if those that have a unit
//! are gone, its row is decoded from any k others. It holds only units that may be needed to decode a row and are not
//! wholly wanted.

use crate::{BLOCKS_MAX, Content, Layout, Part, Placement};
use core::fmt;
use core::ops::Range;
use paritas_code::{Code, Scheme};
use std::collections::VecDeque;

/// Rows that are read at once, unless the host says otherwise.
const ROWS_MAX: usize = 2;

/// Reads a range of one body.
#[derive(Debug)]
pub struct Reader {
    layout: Layout,
    code: Option<Code>,
    /// All parts, the preferred ones first, and whether they may be asked.
    sources: Vec<(Part, bool)>,
    /// What is left to be taken.
    range: Range<u64>,
    /// Units of the body that are wanted and belong to no row below.
    units: Range<u32>,
    rows: VecDeque<Row>,
    rows_max: usize,
}

/// A row that is being read.
#[derive(Debug)]
struct Row {
    number: u32,
    /// Data blocks that are wanted.
    wanted: Range<usize>,
    /// Units of data blocks, then of parity blocks.
    units: Vec<Unit>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Unit {
    Absent,
    /// Requested from this source.
    Asked(usize),
    /// All of its bytes are at their place in the host's memory.
    Placed,
    /// Not all of its bytes are wanted.
    There(Vec<u8>),
}

/// One unit to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The part.
    pub part: Part,
    /// The number of the unit in that part.
    pub unit: u32,
    /// Its length in bytes.
    pub unit_bytes: u32,
    row: u32,
    block: usize,
}

/// Fewer parts are left than it takes to give back the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadFailed;

impl fmt::Display for ReadFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("too few parts of the value can be read")
    }
}

impl core::error::Error for ReadFailed {}

impl Reader {
    /// Reads `range` of a body. Parts for which `rank` is `None` are not there; of the others, those of lower rank are
    /// asked first, and with equal ranks whole copies before data and data before parity.
    pub fn new(
        layout: Layout,
        placement: Placement,
        range: Range<u64>,
        mut rank: impl FnMut(&Part) -> Option<u32>,
    ) -> Self {
        let class = placement.class();
        let mut ranked: Vec<(u32, Content, Part)> = placement
            .parts()
            .filter_map(|part| rank(&part).map(|rank| (rank, part.content, part)))
            .collect();
        ranked.sort_by_key(|(rank, content, part)| (*rank, *content, part.group, part.number));
        let units = layout.units_of(range.clone());
        Self {
            layout,
            code: Scheme::new(class.data(), class.parity())
                .ok()
                .filter(|_| class.parity() > 0)
                .map(Code::new),
            sources: ranked.into_iter().map(|(_, _, part)| (part, true)).collect(),
            range: range.start..range.end.min(layout.body_bytes()),
            units,
            rows: VecDeque::new(),
            rows_max: ROWS_MAX,
        }
    }

    /// Reads this number of rows at once: fewer messages, as the units of one holder come together.
    pub fn with_rows(mut self, rows_max: usize) -> Self {
        self.rows_max = rows_max.max(ROWS_MAX);
        self
    }

    /// The next unit to ask for, or `None` if it waits for answers, for [`Self::take`], or has all.
    pub fn next_request(&mut self) -> Result<Option<Request>, ReadFailed> {
        for at in 0..self.rows.len() {
            if let Some(request) = self.next_of_row(at)? {
                return Ok(Some(request));
            }
        }
        while self.rows.len() < self.rows_max && !self.units.is_empty() {
            self.begin_row();
            if let Some(request) = self.next_of_row(self.rows.len() - 1)? {
                return Ok(Some(request));
            }
        }
        Ok(None)
    }

    /// The bytes that lie between those that were taken and the end of the rows that are being read: the host's memory
    /// has at least so many.
    pub fn begun_bytes(&self) -> usize {
        let end = self.rows.back().map(|row| row.end(&self.layout, &self.range));
        end.map_or(0, |end| (end - self.range.start) as usize)
    }

    /// The answer to a request: the unit's bytes, whose sum the host has checked, or `None` if the holder does not have
    /// them. After `None`, or bytes of another length, the part is asked no more.
    ///
    /// `into`: memory of the host for the bytes of the range, from the first one that was not taken.
    pub fn on_unit(&mut self, request: &Request, bytes: Option<&[u8]>, into: &mut [u8]) {
        let bytes = bytes.filter(|bytes| bytes.len() == request.unit_bytes as usize);
        if bytes.is_none() {
            self.on_absent(&request.part);
        }
        let Self {
            layout,
            sources,
            range,
            rows,
            ..
        } = self;
        let Some(row) = rows.iter_mut().find(|row| row.number == request.row) else {
            return;
        };
        if matches!(row.units[request.block], Unit::Asked(source) if sources[source].0 == request.part) {
            row.units[request.block] = match bytes {
                Some(bytes) if row.wanted.contains(&request.block) => {
                    let place = Place::of(layout, range, row.number, request.block);
                    match place.put(bytes, into) {
                        true => Unit::Placed,
                        false => Unit::There(bytes.to_vec()),
                    }
                }
                Some(bytes) => Unit::There(bytes.to_vec()),
                None => Unit::Absent,
            };
        }
    }

    /// A part can't be read any more: its holder is gone. What was asked of it is asked of others.
    pub fn on_absent(&mut self, part: &Part) {
        let Some(at) = self.sources.iter().position(|(source, _)| source == part) else {
            return;
        };
        self.sources[at].1 = false;
        for unit in self.rows.iter_mut().flat_map(|row| &mut row.units) {
            if *unit == Unit::Asked(at) {
                *unit = Unit::Absent;
            }
        }
    }

    /// Answers may have been lost: asks again for all units that have not come, and also parts that were not there.
    pub fn ask_again(&mut self) {
        for (_, may_ask) in &mut self.sources {
            *may_ask = true;
        }
        for unit in self.rows.iter_mut().flat_map(|row| &mut row.units) {
            if matches!(unit, Unit::Asked(_)) {
                *unit = Unit::Absent;
            }
        }
    }

    /// The number of the next bytes of the range that are all in the host's memory, if a row is whole. `into`: as for
    /// [`Self::on_unit`]; the next call gets it without these bytes.
    pub fn take(&mut self, into: &mut [u8]) -> Option<usize> {
        let Self {
            layout, code, range, ..
        } = self;
        let row = self.rows.front_mut()?;
        let lacks = row.units[row.wanted.clone()].iter().any(|unit| !unit.is_there());
        if lacks && !decode(row, layout, range, code.as_ref(), into) {
            return None;
        }
        let end = row.end(layout, range);
        let taken = (end - range.start) as usize;
        range.start = end;
        self.rows.pop_front();
        Some(taken)
    }

    /// Whether all bytes have been taken.
    pub fn is_done(&self) -> bool {
        self.rows.is_empty() && self.units.is_empty()
    }

    fn begin_row(&mut self) {
        let data = u32::from(self.layout.data());
        let number = self.units.start / data;
        let end = self.units.end.min((number + 1) * data);
        let wanted = (self.units.start % data) as usize..(end - number * data) as usize;
        self.units.start = end;
        let blocks = data as usize + self.code.as_ref().map_or(0, |code| usize::from(code.scheme().parity()));
        self.rows.push_back(Row {
            number,
            wanted,
            units: vec![Unit::Absent; blocks],
        });
    }

    fn next_of_row(&mut self, at: usize) -> Result<Option<Request>, ReadFailed> {
        let data = usize::from(self.layout.data());
        let row = &self.rows[at];
        // What is wanted and can be read directly.
        let mut must_decode = false;
        for block in row.wanted.clone().filter(|block| row.units[*block] == Unit::Absent) {
            match self.source_of(block) {
                Some(source) => return Ok(Some(self.ask(at, block, source))),
                None => must_decode = true,
            }
        }
        let coming = row.units.iter().filter(|unit| **unit != Unit::Absent).count();
        if !must_decode || coming >= data {
            return Ok(None);
        }
        // Any k units of the row decode it. Data first: each is one unit fewer to compute.
        let absent = |block: &usize| row.units[*block] == Unit::Absent;
        let more = (0..row.units.len())
            .filter(absent)
            .find_map(|block| self.source_of(block).map(|source| (block, source)));
        match more {
            Some((block, source)) => Ok(Some(self.ask(at, block, source))),
            None => Err(ReadFailed),
        }
    }

    /// The preferred source that has the units of this block: a data block, or a parity block after those.
    fn source_of(&self, block: usize) -> Option<usize> {
        let data = usize::from(self.layout.data());
        self.sources.iter().position(|(part, may_be_asked)| {
            let has = match part.content {
                Content::Whole => block < data,
                Content::Block(i) => usize::from(i) == block,
                Content::Parity(j) => data + usize::from(j) == block,
            };
            *may_be_asked && has
        })
    }

    fn ask(&mut self, at: usize, block: usize, source: usize) -> Request {
        let row = &mut self.rows[at];
        row.units[block] = Unit::Asked(source);
        let part = self.sources[source].0;
        let unit = match part.content {
            Content::Whole => row.number * u32::from(self.layout.data()) + block as u32,
            Content::Block(_) | Content::Parity(_) => row.number,
        };
        Request {
            part,
            unit,
            unit_bytes: self.layout.row_unit_bytes(row.number),
            row: row.number,
            block,
        }
    }
}

impl Row {
    /// The end of its wanted bytes in the body.
    fn end(&self, layout: &Layout, range: &Range<u64>) -> u64 {
        let behind = self.number * u32::from(layout.data()) + self.wanted.end as u32;
        layout.unit_range(behind - 1).end.min(range.end)
    }
}

impl Unit {
    fn is_there(&self) -> bool {
        matches!(self, Self::There(_) | Self::Placed)
    }
}

/// Where the wanted bytes of a unit belong.
struct Place {
    /// In the unit.
    from: Range<usize>,
    /// In the host's memory.
    to: Range<usize>,
}

impl Place {
    fn of(layout: &Layout, range: &Range<u64>, row: u32, block: usize) -> Self {
        let at = layout.unit_range(row * u32::from(layout.data()) + block as u32);
        let start = at.start.clamp(range.start, range.end);
        let end = at.end.clamp(start, range.end);
        let within = |base: u64| (start - base) as usize..(end - base) as usize;
        Self {
            from: within(at.start.min(start)),
            to: within(range.start),
        }
    }

    /// Copies what is wanted of a unit. Returns whether that is all of it.
    fn put(&self, unit: &[u8], into: &mut [u8]) -> bool {
        into[self.to.clone()].copy_from_slice(&unit[self.from.clone()]);
        self.from.len() == unit.len()
    }
}

/// Decodes the wanted units of a row that are absent. Returns false if fewer than k units are there.
fn decode(row: &mut Row, layout: &Layout, range: &Range<u64>, code: Option<&Code>, into: &mut [u8]) -> bool {
    let Some(code) = code else { return false };
    let data = usize::from(layout.data());
    let present: Vec<(u8, &[u8])> = (0u8..)
        .zip(&row.units)
        .filter_map(|(position, unit)| match unit {
            Unit::There(bytes) => Some((position, bytes.as_slice())),
            Unit::Placed => {
                let place = Place::of(layout, range, row.number, usize::from(position));
                Some((position, &into[place.to]))
            }
            Unit::Absent | Unit::Asked(_) => None,
        })
        .collect();
    if present.len() < data {
        return false;
    }
    let length = present[0].1.len();
    let missing: Vec<u8> = row
        .wanted
        .clone()
        .filter(|i| !row.units[*i].is_there())
        .map(|i| i as u8)
        .collect();
    debug_assert!(missing.len() <= usize::from(BLOCKS_MAX));
    let mut decoded = vec![vec![0; length]; missing.len()];
    let mut out: Vec<&mut [u8]> = decoded.iter_mut().map(Vec::as_mut_slice).collect();
    if code.decode(&present, &missing, &mut out).is_err() {
        return false;
    }
    for (i, bytes) in missing.into_iter().zip(decoded) {
        Place::of(layout, range, row.number, usize::from(i)).put(&bytes, into);
    }
    true
}
