//! Bodies of large values of one stream on their way to readers (P14.7), whole or in ranges. A body never changes, so
//! all readers of a range share it. They know neither keys nor objects: a record says where the parts of a body are.
//! An owner reads some for its commands, and each node reads those of replies to its clients ([`crate::Readers`]).

use crate::context::Context;
use crate::interface::Out;
use crate::parts::{PositionParts, is_sound, positions_in_memory};
use crate::stream_owner::Stop;
use crate::unit_requests::UnitRequests;
use core::ops::Range;
use paritas_base::configuration::Configuration;
use paritas_base::{Position, Span, StreamId, Time};
use paritas_large::{GroupId, Ledger, Part, PartId, Reader, Record, Request};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A node holds bodies for readers up to this part (1/8) of its memory, or up to 32 MiB if that is more: the longest
/// reply has 32 MiB. Further readers wait.
const HELD_PART: u64 = 8;
const HELD_BYTES_MIN: u64 = 32 << 20;

/// Time that a value or a body is kept although no command asks for it, in leases. A command that waits is run at least
/// once a lease.
pub(crate) const FORGOTTEN_LEASES: u64 = 3;

/// The most memory of bodies that is kept for the next ones, in bytes and in pieces.
const SPARE_BYTES_MAX: usize = 1 << 20;
const SPARE_COUNT_MAX: usize = 8;

/// Bytes of units of this node that are read at the end of one turn.
const OWN_BYTES_MAX: u64 = 1 << 20;

/// The groups of a body, and a range of it in bytes. A body that has got another class may have its data group in
/// common with the one before.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Name {
    group: GroupId,
    other_group: Option<GroupId>,
    from: u64,
    to: u64,
}

/// One body, or a range of it, that is read.
#[derive(Debug)]
struct Body {
    record: Arc<Record>,
    reader: Reader,
    /// Memory for all bytes of the range.
    bytes: Vec<u8>,
    /// Bytes of the range that are here, from its beginning.
    here_bytes: usize,
    /// No unit of it was asked of another node.
    is_own: bool,
    /// A command has read it.
    is_taken: bool,
    /// That command waits for another body now, and will read this one again.
    is_kept: bool,
    /// Too few holders have answered: all are asked again later.
    is_stuck: bool,
    /// That was so since bytes came last.
    was_stuck: bool,
    /// When a command asked for it last, and when bytes came last.
    wanted_at: Time,
    moved_at: Time,
}

/// Keeps the groups of a body alive while it is read.
pub(crate) trait Pins {
    /// False if a group is dead.
    fn pin(&mut self, record: &Arc<Record>) -> bool;
    fn unpin(&mut self, record: &Record);
}

impl Pins for Ledger {
    fn pin(&mut self, record: &Arc<Record>) -> bool {
        Self::pin(self, record)
    }

    fn unpin(&mut self, record: &Record) {
        Self::unpin(self, record);
    }
}

/// All ranges that are read or held.
#[derive(Debug)]
pub(crate) struct Bodies {
    stream: StreamId,
    all: BTreeMap<Name, Body>,
    requests: UnitRequests<(Name, Request)>,
    /// Units that this node keeps itself, to be read at the end of the turn.
    own: VecDeque<(Name, Request)>,
}

/// Memory of bodies that are over. Fresh memory would cost a page fault for each page of each body.
#[derive(Debug, Default)]
pub(crate) struct SpareMemory {
    /// The oldest first.
    all: VecDeque<Vec<u8>>,
    held_bytes: usize,
}

/// What the answer to a request has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnUnit {
    /// Nobody here has asked.
    NotAsked,
    /// More is to come.
    Moved,
    /// A range is whole.
    Whole,
}

/// What [`Bodies::tend`] has found.
#[derive(Debug, Default)]
pub(crate) struct Tended {
    /// A range is whole.
    pub(crate) is_whole: bool,
    /// Values of which too few parts were answered.
    pub(crate) stuck: Vec<Arc<Record>>,
}

impl SpareMemory {
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes as u64
    }

    /// Memory for this number of bytes. Bytes of an earlier body may be in it.
    fn take(&mut self, bytes: usize) -> Vec<u8> {
        let fits = |spare: &Vec<u8>| (bytes..=2 * bytes).contains(&spare.capacity());
        let found = self.all.iter().rposition(fits);
        let Some(mut spare) = found.and_then(|at| self.all.remove(at)) else {
            return vec![0; bytes];
        };
        self.held_bytes -= spare.capacity();
        spare.resize(bytes, 0);
        spare
    }

    fn give(&mut self, spare: Vec<u8>) {
        self.held_bytes += spare.capacity();
        self.all.push_back(spare);
        while (self.held_bytes > SPARE_BYTES_MAX || self.all.len() > SPARE_COUNT_MAX)
            && let Some(oldest) = self.all.pop_front()
        {
            self.held_bytes -= oldest.capacity();
        }
    }
}

impl Body {
    /// Nobody waits for it.
    fn is_over(&self) -> bool {
        self.is_taken && !self.is_kept
    }
}

impl Name {
    fn range_bytes(&self) -> u64 {
        self.to - self.from
    }
}

/// Bytes of bodies that the node may hold for readers.
fn held_max<O: Out>(cx: &Context<'_, O>) -> u64 {
    HELD_BYTES_MIN.max(cx.shared.maxmemory_bytes / HELD_PART)
}

/// Whether bytes that are not needed now may be read: what is needed now has at least the other half.
pub(crate) fn has_room_ahead<O: Out>(cx: &Context<'_, O>, bytes: u64) -> bool {
    cx.shared.bodies_bytes + bytes <= held_max(cx) / 2
}

/// The window of a body that has the byte `at`: whole rows, about [`Parameters::piece_bytes`].
///
/// [`Parameters::piece_bytes`]: crate::Parameters::piece_bytes
pub(crate) fn window_of<O: Out>(cx: &Context<'_, O>, record: &Record, at: u64) -> Range<u64> {
    let unit_bytes = cx.shared.arena.chunk_bytes() as u64;
    let row_bytes = unit_bytes * u64::from(record.class.data());
    let rows = window_rows(cx, record);
    let from = at / (rows * row_bytes) * (rows * row_bytes);
    from..(from + rows * row_bytes).min(record.body_bytes)
}

/// Rows of a full window.
fn window_rows<O: Out>(cx: &Context<'_, O>, record: &Record) -> u64 {
    let row_bytes = cx.shared.arena.chunk_bytes() as u64 * u64::from(record.class.data());
    (cx.shared.parameters.piece_bytes / row_bytes).max(1)
}

impl Bodies {
    pub(crate) fn new(stream: StreamId) -> Self {
        Self {
            stream,
            all: BTreeMap::new(),
            requests: UnitRequests::default(),
            own: VecDeque::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.all.values().map(|body| body.bytes.capacity()).sum()
    }

    /// The bytes of a range, once they are here.
    ///
    /// # Errors
    /// [`Stop::Wait`] until all of them are.
    pub(crate) fn read<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        pins: &mut impl Pins,
        record: &Arc<Record>,
        range: Range<u64>,
    ) -> Result<&[u8], Stop> {
        let range = range.start..range.end.min(record.body_bytes);
        if range.is_empty() {
            return Ok(&[]);
        }
        let name = name_of(record, &range);
        if !self.all.contains_key(&name) {
            self.begin(cx, configuration, pins, record, &name)?;
            self.ask_units(cx, configuration, &name);
        }
        self.get(cx.mono(), &name)
    }

    /// A command that has read this range waits for another one: it will read all of them again. If each were dropped
    /// while it waits for the next, a command of several values would never end.
    pub(crate) fn keep(&mut self, record: &Record, range: &Range<u64>) {
        let range = range.start..range.end.min(record.body_bytes);
        if let Some(body) = self.all.get_mut(&name_of(record, &range)) {
            body.is_kept = true;
        }
    }

    /// The rest of the window that has the byte `at`, once it is here. The window behind it is asked for, if it
    /// begins before `until`.
    ///
    /// # Errors
    /// [`Stop::Wait`] until all bytes of the window are here.
    pub(crate) fn read_window<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        pins: &mut impl Pins,
        record: &Arc<Record>,
        at: u64,
        until: u64,
    ) -> Result<&[u8], Stop> {
        if at >= record.body_bytes {
            return Ok(&[]);
        }
        let window = window_of(cx, record, at);
        // It is begun before the next one: there may be room for one of them only.
        let _ = self.read(cx, configuration, pins, record, window.clone());
        if window.end < until.min(record.body_bytes) {
            let next = window_of(cx, record, window.end);
            // It only comes sooner: it is asked for again when it is needed.
            if has_room_ahead(cx, next.end - next.start) {
                let _ = self.read(cx, configuration, pins, record, next);
            }
        }
        let skipped = at.saturating_sub(window.start) as usize;
        let bytes = self.read(cx, configuration, pins, record, window)?;
        Ok(bytes.get(skipped..).unwrap_or_default())
    }

    fn get(&mut self, now: Time, name: &Name) -> Result<&[u8], Stop> {
        let body = self.all.get_mut(name).ok_or(Stop::Wait)?;
        (body.wanted_at, body.is_kept) = (now, false);
        body.is_taken |= body.reader.is_done();
        match body.is_taken {
            true => Ok(&body.bytes),
            false => Err(Stop::Wait),
        }
    }

    /// The bytes of a range that is here, to be given back by [`Self::give`].
    pub(crate) fn take(&mut self, record: &Record, range: &Range<u64>) -> Option<Vec<u8>> {
        let body = self.all.get_mut(&name_of(record, range))?;
        body.is_taken.then(|| core::mem::take(&mut body.bytes))
    }

    /// Ends [`Self::take`].
    pub(crate) fn give(&mut self, record: &Record, range: &Range<u64>, bytes: Vec<u8>) {
        if let Some(body) = self.all.get_mut(&name_of(record, range)) {
            body.bytes = bytes;
        }
    }

    /// A range that is needed no more.
    pub(crate) fn end<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        pins: &mut impl Pins,
        record: &Record,
        range: &Range<u64>,
    ) {
        let name = name_of(record, range);
        if self.all.get(&name).is_some_and(|body| body.is_taken) {
            self.drop(cx, pins, &name);
        }
    }

    /// Whether too few parts of a range have answered since bytes of it came last, and when they did.
    pub(crate) fn progress(&self, record: &Record, range: &Range<u64>) -> Option<(bool, Time)> {
        let body = self.all.get(&name_of(record, range))?;
        Some((body.was_stuck, body.moved_at))
    }

    /// When bytes of the body with this data group came last.
    pub(crate) fn moved_at(&self, group: GroupId) -> Option<Time> {
        let all = self.all.iter();
        all.filter(|(name, _)| name.group == group)
            .map(|(_, body)| body.moved_at)
            .max()
    }

    /// Begins to read a range, whose groups are pinned until it is dropped.
    ///
    /// # Errors
    /// [`Stop::Wait`] if too many bytes are held, or the value cannot be read now.
    fn begin<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        pins: &mut impl Pins,
        record: &Arc<Record>,
        name: &Name,
    ) -> Result<(), Stop> {
        let now = cx.mono();
        // Bytes of this node are read again as fast as they were kept for another reader: their memory serves this one,
        // while it is in the processor's cache.
        let is_spare = |body: &Body| body.is_own && body.is_over() && body.wanted_at < now;
        let spare = self.all.iter().find(|(_, body)| is_spare(body));
        if let Some(spare) = spare.map(|(name, _)| name.clone()) {
            self.drop(cx, pins, &spare);
        }
        let held_max = held_max(cx);
        let bytes = name.range_bytes();
        while cx.shared.bodies_bytes > 0 && cx.shared.bodies_bytes + bytes > held_max {
            let all = self.all.iter();
            let done = all.filter(|(_, body)| body.is_taken && body.wanted_at < now);
            let oldest = done.min_by_key(|(_, body)| body.wanted_at);
            let oldest = oldest.map(|(name, _)| name.clone()).ok_or(Stop::Wait)?;
            self.drop(cx, pins, &oldest);
        }
        let positions = positions_in_memory(cx, configuration);
        let layout = record.layout(cx.shared.arena.chunk_bytes() as u32).ok_or(Stop::Wait)?;
        let placement = record.placement(positions).map_err(|_| Stop::Wait)?;
        let (list, x) = (self.stream.list, self.stream.x);
        let pinned = pins.pin(record);
        let group = record.data_group;
        cx.ensure(list, x, pinned, || {
            format!(
                "P14.3: an object of {list:?} names group {:x}, which is dead",
                group.bits()
            )
        });
        if !pinned {
            return Err(Stop::Wait);
        }
        let me = (cx.shared.node, cx.shared.incarnation);
        let is_own = |part: &Part| {
            let holder = configuration.tenure(Position(part.position));
            holder.is_some_and(|holder| (holder.node, holder.incarnation) == me)
        };
        let rows = window_rows(cx, record);
        let rank = |part: &Part| Some(u32::from(!is_own(part)));
        let body = Body {
            reader: Reader::new(layout, placement, name.from..name.to, rank).with_rows(rows as usize),
            bytes: cx.shared.spare_bodies.take(bytes as usize),
            here_bytes: 0,
            is_own: true,
            record: record.clone(),
            is_taken: false,
            is_kept: false,
            is_stuck: false,
            was_stuck: false,
            wanted_at: now,
            moved_at: now,
        };
        cx.shared.bodies_bytes += bytes;
        self.all.insert(name.clone(), body);
        Ok(())
    }

    fn drop<O: Out>(&mut self, cx: &mut Context<'_, O>, pins: &mut impl Pins, name: &Name) {
        if let Some(body) = self.all.remove(name) {
            cx.shared.bodies_bytes = cx.shared.bodies_bytes.saturating_sub(name.range_bytes());
            pins.unpin(&body.record);
            cx.shared.spare_bodies.give(body.bytes);
            self.forget_requests(name);
        }
    }

    fn forget_requests(&mut self, name: &Name) {
        self.requests.forget(|(of, _)| of == name);
        self.own.retain(|(of, _)| of != name);
    }

    /// Whether units of this node are left to be read.
    pub(crate) fn has_own(&self) -> bool {
        !self.own.is_empty()
    }

    /// Reads units that this node keeps, among its `parts` of the list, by a call and not by frames. True if a range
    /// is whole.
    pub(crate) fn read_own<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        parts: &mut [PositionParts],
    ) -> bool {
        let (mut is_whole, mut left) = (false, OWN_BYTES_MAX);
        let StreamId { x, .. } = self.stream;
        while left > 0
            && let Some((name, request)) = self.own.pop_front()
        {
            left = left.saturating_sub(u64::from(request.unit_bytes));
            let Some(body) = self.all.get(&name) else { continue };
            let id = PartId {
                x,
                name: body.record.name_of(&request.part),
            };
            let (arena, unit) = (&cx.shared.arena, request.unit);
            let stored = parts.iter().find_map(|held| held.stored(arena, &id, unit));
            let bytes = stored.filter(|(sum, bytes)| is_sound(arena.chunk_bytes(), *sum, bytes));
            let is_lacking = bytes.is_none();
            self.put_unit(cx.now.mono, &(name.clone(), request), bytes.map(|(_, bytes)| bytes));
            if is_lacking {
                parts.iter_mut().for_each(|held| held.check(cx, id, unit));
            }
            // Once for all of its units that were asked for together.
            if self.own.front().is_none_or(|(next, _)| *next != name) {
                is_whole |= self.go_on(cx, configuration, &name) == OnUnit::Whole;
            }
        }
        is_whole
    }

    /// The role ends.
    pub(crate) fn drop_all<O: Out>(&mut self, cx: &mut Context<'_, O>, pins: &mut impl Pins) {
        let all: Vec<Name> = self.all.keys().cloned().collect();
        for name in all {
            self.drop(cx, pins, &name);
        }
    }

    /// Asks holders for what is wanted next of a range that has begun.
    fn ask_units<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration, name: &Name) {
        let Self {
            stream,
            all,
            requests,
            own,
        } = self;
        let Some(body) = all.get_mut(name) else { return };
        loop {
            let request = match body.reader.next_request() {
                Ok(Some(request)) => request,
                Ok(None) => return,
                Err(_) => {
                    (body.is_stuck, body.was_stuck) = (true, true);
                    return;
                }
            };
            let unit = (body.record.name_of(&request.part), request.unit);
            let holder = configuration.tenure(Position(request.part.position));
            let of = (name.clone(), request);
            // The disk of a log node answers later.
            let me = (cx.shared.node, cx.shared.incarnation);
            if holder.is_some_and(|holder| (holder.node, holder.incarnation) == me) && cx.shared.disk.is_none() {
                own.push_back(of);
                continue;
            }
            body.is_own = false;
            if let Err((_, request)) = requests.ask(cx, configuration, *stream, holder, unit, of) {
                body.reader.on_unit(&request, None, &mut body.bytes[body.here_bytes..]);
            }
        }
    }

    /// The answer to a request for a unit.
    pub(crate) fn on_unit<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        id: u64,
        unit: Option<(u32, &[u8])>,
    ) -> OnUnit {
        match self.requests.on_unit(cx, id, unit) {
            Some((of, bytes)) => {
                self.put_unit(cx.now.mono, &of, bytes);
                self.go_on(cx, configuration, &of.0)
            }
            None => OnUnit::NotAsked,
        }
    }

    /// A unit has come, or its holder does not have it.
    fn put_unit(&mut self, now: Time, (name, request): &(Name, Request), unit: Option<&[u8]>) {
        let Some(body) = self.all.get_mut(name) else { return };
        if unit.is_some() {
            (body.moved_at, body.was_stuck) = (now, false);
        }
        let Body {
            reader,
            bytes,
            here_bytes,
            ..
        } = body;
        reader.on_unit(request, unit, &mut bytes[*here_bytes..]);
        while let Some(taken) = reader.take(&mut bytes[*here_bytes..]) {
            *here_bytes += taken;
        }
    }

    /// Asks for more of a range, unless it is whole.
    fn go_on<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration, name: &Name) -> OnUnit {
        let is_whole = self.all.get(name).is_some_and(|body| body.reader.is_done());
        if is_whole {
            return OnUnit::Whole;
        }
        self.ask_units(cx, configuration, name);
        OnUnit::Moved
    }

    /// Asks others for what has not come, and drops bodies that nobody waits for.
    pub(crate) fn tend<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        pins: &mut impl Pins,
        forgotten: Span,
    ) -> Tended {
        let (now, mut tended) = (cx.mono(), Tended::default());
        let all = self.all.iter();
        // Commands are run again as soon as their bodies are here.
        let taken = cx.shared.parameters.resend;
        let kept = |body: &Body| if body.is_over() { taken } else { forgotten };
        let over = all.filter(|(_, body)| now > body.wanted_at + kept(body));
        let over: Vec<Name> = over.map(|(name, _)| name.clone()).collect();
        for name in over {
            self.drop(cx, pins, &name);
        }
        let late = self.requests.take_late(|(node, incarnation), until| {
            until <= now || configuration.held_by(node, incarnation).next().is_none()
        });
        for of in late {
            self.put_unit(now, &of, None);
            tended.is_whole |= self.go_on(cx, configuration, &of.0) == OnUnit::Whole;
        }
        let mut again = Vec::new();
        for (name, body) in self.all.iter_mut().filter(|(_, body)| body.is_stuck) {
            tended.stuck.push(body.record.clone());
            body.is_stuck = false;
            body.reader.ask_again();
            again.push(name.clone());
        }
        for name in again {
            self.forget_requests(&name);
            self.ask_units(cx, configuration, &name);
        }
        tended
    }
}

fn name_of(record: &Record, range: &Range<u64>) -> Name {
    Name {
        group: record.data_group,
        other_group: record.other_group,
        from: range.start,
        to: range.end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_serves_bodies_of_about_its_length_and_is_bounded() {
        let mut spare = SpareMemory::default();
        spare.give(vec![7; 1000]);
        assert_eq!(spare.take(400), [0; 400], "twice the length is the most");
        assert_eq!(spare.take(1001), [0; 1001]);
        assert_eq!((spare.take(600), spare.held_bytes()), (vec![7; 600], 0));
        for _ in 0..2 * SPARE_COUNT_MAX {
            spare.give(Vec::new());
            spare.give(vec![0; SPARE_BYTES_MAX / 4]);
            assert!(spare.all.len() <= SPARE_COUNT_MAX);
        }
        assert!(spare.held_bytes() <= SPARE_BYTES_MAX as u64);
        spare.give(vec![0; SPARE_BYTES_MAX + 1]);
        assert_eq!(spare.held_bytes(), 0);
    }
}
