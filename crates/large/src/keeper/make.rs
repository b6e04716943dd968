//! A part that is computed from others: its holder is new, or has lost it, or its writer's units have not all arrived.
//!
//! A reader gives back the body, and a writer cuts it into parts again. Only the units of the wanted part are kept.

use crate::{Part, PartName, Placement, Reader, Record, Request, Writer};

/// A unit that is to be fetched from another position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fetch {
    /// The position that has it. It may be the keeper's own.
    pub position: u8,
    /// The name of the part.
    pub name: PartName,
    /// The unit.
    pub unit: u32,
    /// How many bytes of the wanted part it brings: several units may be read for one that is made.
    pub made_bytes: u32,
    request: Request,
    /// The number of the maker that asks.
    maker: u64,
}

/// The cheapest source of a part is another one with the same content. Other parts of the same position are sources
/// too: with `eor` a position has blocks of several replicas, and may have the only one of a block.
fn rank(other: &Part, wanted: Part) -> Option<u32> {
    (*other != wanted).then_some(u32::from(other.content != wanted.content))
}

#[derive(Debug)]
pub(super) struct Maker {
    record: Record,
    placement: Placement,
    /// A number of its own. A late answer to an earlier maker of the same part is not for this one.
    number: u64,
    /// Number of the part in the order of [`Placement::parts`].
    at: usize,
    reader: Reader,
    /// Memory for the rows that are read.
    read: Vec<u8>,
    writer: Writer,
    /// See [`Fetch::made_bytes`].
    made_bytes: u32,
    /// A command of a client waits for the part.
    pub(super) is_waited_for: bool,
    /// Too few sources had what was asked: it waits for [`Self::retry`].
    is_stuck: bool,
    /// Nothing has come since the last [`Self::retry`].
    is_idle: bool,
}

impl Maker {
    pub(super) fn new(record: &Record, part: Part, positions: u8, unit_bytes: u32, number: u64) -> Option<Self> {
        let placement = Placement::at(record.class, record.first, positions, record.logged).ok()?;
        let layout = record.layout(unit_bytes)?;
        let at = placement.parts().position(|other| other == part)?;
        let units = u64::from(part.content.units(&layout)) * u64::from(unit_bytes);
        Some(Self {
            made_bytes: units.div_ceil(u64::from(layout.units()).max(1)) as u32,
            is_waited_for: false,
            record: record.clone(),
            placement,
            number,
            at,
            reader: Reader::new(layout, placement, 0..layout.body_bytes(), |other| rank(other, part)),
            read: Vec::new(),
            writer: Writer::new(layout, placement),
            is_stuck: false,
            is_idle: false,
        })
    }

    pub(super) fn next_fetch(&mut self, has: impl Fn(u8) -> bool) -> Option<Fetch> {
        if self.is_stuck {
            return None;
        }
        for part in self.placement.parts().filter(|part| !has(part.position)) {
            self.reader.on_absent(&part);
        }
        let Ok(request) = self.reader.next_request() else {
            self.is_stuck = true;
            return None;
        };
        request.map(|request| Fetch {
            position: request.part.position,
            name: self.record.name_of(&request.part),
            unit: request.unit,
            made_bytes: self.made_bytes,
            request,
            maker: self.number,
        })
    }

    /// A unit has come, or `None` if its holder does not have it. `keep` is called with the next units of the part.
    pub(super) fn on_fetched(&mut self, fetch: &Fetch, bytes: Option<&[u8]>, mut keep: impl FnMut(&[u8])) {
        if fetch.maker != self.number {
            return;
        }
        self.is_idle &= bytes.is_none();
        let parts = self.placement.parts().count();
        let Self {
            reader,
            read,
            writer,
            at,
            ..
        } = self;
        read.resize(reader.begun_bytes(), 0);
        reader.on_unit(&fetch.request, bytes, read);
        while let Some(taken) = reader.take(read) {
            let mut rest = &read[..taken];
            while !rest.is_empty() {
                let taken = writer.push(rest, |part, _, bytes| {
                    if part == *at {
                        keep(bytes);
                    }
                });
                rest = &rest[taken..];
                // No unit of these parts is sent to a holder.
                for part in 0..parts {
                    writer.on_taken(part, u32::MAX);
                }
            }
            read.drain(..taken);
        }
    }

    pub(super) fn on_lost(&mut self, position: u8) {
        for part in self.placement.parts().filter(|part| part.position == position) {
            self.reader.on_absent(&part);
        }
    }

    /// Whether it reads the parts that this record names.
    pub(super) fn is_of(&self, record: &Record) -> bool {
        self.record.groups().eq(record.groups())
    }

    pub(super) fn is_stuck(&self) -> bool {
        self.is_stuck
    }

    /// Asks all sources that there are now, if nothing has come for a while.
    pub(super) fn retry(&mut self) {
        if self.is_stuck || self.is_idle {
            self.reader.ask_again();
        }
        (self.is_stuck, self.is_idle) = (false, true);
    }
}
