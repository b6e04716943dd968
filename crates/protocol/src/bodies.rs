//! Bodies of large values on their way to readers (P14.7), whole or in ranges. A body never changes, so all readers of
//! a range share it. They know neither keys nor objects: a record says where the parts of a body are.

use crate::context::Context;
use crate::interface::Out;
use crate::parts::{Answered, PositionParts, positions_in_memory};
use crate::stream_owner::{Installed, Stop};
use crate::unit_requests::UnitRequests;
use core::ops::Range;
use paritas_base::{Position, Span, StreamId, Time};
use paritas_large::{GroupId, Ledger, Part, Reader, Record, Request};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A node holds bodies for readers up to this part (1/8) of its memory, or up to 32 MiB if that is more: the longest
/// reply has 32 MiB. Further readers wait.
const HELD_PART: u64 = 8;
const HELD_BYTES_MIN: u64 = 32 << 20;

/// Bytes of units of this node that are read at the end of one turn.
const OWN_BYTES_MAX: u64 = 1 << 20;

/// The group of a body's data, and a range of the body in bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Name {
    group: GroupId,
    from: u64,
    to: u64,
}

/// One body, or a range of it, that is read.
#[derive(Debug)]
struct Body {
    record: Arc<Record>,
    reader: Reader,
    bytes: Vec<u8>,
    /// A command has read it.
    is_taken: bool,
    /// Too few holders have answered: all are asked again later.
    is_stuck: bool,
    /// When a command asked for it last, and when bytes came last.
    wanted_at: Time,
    moved_at: Time,
}

/// All ranges that are read or held.
#[derive(Debug, Default)]
pub(crate) struct Bodies {
    all: BTreeMap<Name, Body>,
    requests: UnitRequests<(Name, Request)>,
    /// Units that this node keeps itself, to be read at the end of the turn.
    own: VecDeque<(Name, Request)>,
}

/// What the answer to a request has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnUnit {
    /// Nobody here has asked.
    NotAsked,
    /// More is to come.
    Moved,
    /// A range of the body with this data group is whole.
    Whole(GroupId),
}

/// What [`Bodies::tend`] has found.
#[derive(Debug, Default)]
pub(crate) struct Tended {
    /// Data groups of which a range is whole.
    pub(crate) whole: Vec<GroupId>,
    /// Values of which too few parts were answered.
    pub(crate) stuck: Vec<Arc<Record>>,
}

impl Name {
    fn range_bytes(&self) -> u64 {
        self.to - self.from
    }
}

/// The window of a body that has the byte `at`: whole rows, about [`Parameters::piece_bytes`].
///
/// [`Parameters::piece_bytes`]: crate::Parameters::piece_bytes
pub(crate) fn window_of<O: Out>(cx: &Context<'_, O>, record: &Record, at: u64) -> Range<u64> {
    let unit_bytes = cx.shared.arena.chunk_bytes() as u64;
    let row_bytes = unit_bytes * u64::from(record.class.data());
    let rows = (cx.shared.parameters.piece_bytes / row_bytes).max(1);
    let from = at / (rows * row_bytes) * (rows * row_bytes);
    from..(from + rows * row_bytes).min(record.body_bytes)
}

impl Bodies {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.all.values().map(|body| body.bytes.capacity()).sum()
    }

    /// Whether a range is read, or here.
    pub(crate) fn has(&self, record: &Record, range: &Range<u64>) -> bool {
        self.all.contains_key(&name_of(record, range))
    }

    /// The bytes of a range that is read.
    ///
    /// # Errors
    /// [`Stop::Wait`] until all of them are here.
    pub(crate) fn get(&mut self, now: Time, record: &Record, range: &Range<u64>) -> Result<&[u8], Stop> {
        let body = self.all.get_mut(&name_of(record, range)).ok_or(Stop::Wait)?;
        body.wanted_at = now;
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
        ledger: &mut Ledger,
        record: &Record,
        range: &Range<u64>,
    ) {
        let name = name_of(record, range);
        if self.all.get(&name).is_some_and(|body| body.is_taken) {
            self.drop(cx, ledger, &name);
        }
    }

    /// When bytes of the body with this data group came last.
    pub(crate) fn moved_at(&self, group: GroupId) -> Option<Time> {
        let all = self.all.iter();
        all.filter(|(name, _)| name.group == group)
            .map(|(_, body)| body.moved_at)
            .max()
    }

    /// Begins to read a range, whose groups are pinned until it is dropped. [`Self::ask`] must follow.
    ///
    /// # Errors
    /// [`Stop::Wait`] if too many bytes are held, or the value cannot be read now.
    pub(crate) fn begin<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        here: &Installed<'_>,
        ledger: &mut Ledger,
        record: &Arc<Record>,
        range: &Range<u64>,
    ) -> Result<(), Stop> {
        let (now, name) = (cx.mono(), name_of(record, range));
        let held_max = HELD_BYTES_MIN.max(cx.shared.maxmemory_bytes / HELD_PART);
        let bytes = name.range_bytes();
        while cx.shared.bodies_bytes > 0 && cx.shared.bodies_bytes + bytes > held_max {
            let all = self.all.iter();
            let done = all.filter(|(_, body)| body.is_taken && body.wanted_at < now);
            let oldest = done.min_by_key(|(_, body)| body.wanted_at);
            let oldest = oldest.map(|(name, _)| name.clone()).ok_or(Stop::Wait)?;
            self.drop(cx, ledger, &oldest);
        }
        let positions = positions_in_memory(cx, here.configuration);
        let layout = record.layout(cx.shared.arena.chunk_bytes() as u32).ok_or(Stop::Wait)?;
        let placement = record.placement(positions).map_err(|_| Stop::Wait)?;
        let (list, x) = (here.stream.list, here.stream.x);
        let pinned = ledger.pin(record);
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
        let rank = |part: &Part| Some(u32::from(part.position != x.0));
        let body = Body {
            reader: Reader::new(layout, placement, name.from..name.to, rank),
            bytes: Vec::with_capacity(bytes as usize),
            record: record.clone(),
            is_taken: false,
            is_stuck: false,
            wanted_at: now,
            moved_at: now,
        };
        cx.shared.bodies_bytes += bytes;
        self.all.insert(name, body);
        Ok(())
    }

    fn drop<O: Out>(&mut self, cx: &mut Context<'_, O>, ledger: &mut Ledger, name: &Name) {
        if let Some(body) = self.all.remove(name) {
            cx.shared.bodies_bytes = cx.shared.bodies_bytes.saturating_sub(name.range_bytes());
            ledger.unpin(&body.record);
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

    /// Reads units that this node keeps, among its `parts` of the list, by a call and not by frames. Returns the data
    /// groups of which a range is whole.
    pub(crate) fn read_own<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        here: &Installed<'_>,
        parts: &mut [PositionParts],
    ) -> Vec<GroupId> {
        let (mut whole, mut left) = (Vec::new(), OWN_BYTES_MAX);
        let StreamId { x, .. } = here.stream;
        while left > 0
            && let Some((name, request)) = self.own.pop_front()
        {
            left = left.saturating_sub(u64::from(request.unit_bytes));
            let Some(body) = self.all.get(&name) else { continue };
            let part = body.record.name_of(&request.part);
            let me = (cx.shared.node, cx.shared.incarnation, 0);
            let mut held = parts.iter_mut();
            let found = held.find_map(|held| held.read(cx, x, part, request.unit, me));
            let bytes = match found {
                Some(Answered::Now(_, bytes)) => Some(bytes),
                _ => None,
            };
            if let OnUnit::Whole(group) = self.take_unit(cx, here, &(name, request), bytes) {
                whole.push(group);
            }
        }
        whole
    }

    /// The role ends.
    pub(crate) fn drop_all<O: Out>(&mut self, cx: &mut Context<'_, O>, ledger: &mut Ledger) {
        let all: Vec<Name> = self.all.keys().cloned().collect();
        for name in all {
            self.drop(cx, ledger, &name);
        }
    }

    /// Asks holders for what is wanted next of a range that has begun.
    pub(crate) fn ask<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        here: &Installed<'_>,
        record: &Record,
        range: &Range<u64>,
    ) {
        self.ask_units(cx, here, &name_of(record, range));
    }

    fn ask_units<O: Out>(&mut self, cx: &mut Context<'_, O>, here: &Installed<'_>, name: &Name) {
        let Self { all, requests, own } = self;
        let Some(body) = all.get_mut(name) else { return };
        loop {
            let request = match body.reader.next_request() {
                Ok(Some(request)) => request,
                Ok(None) => return,
                Err(_) => {
                    body.is_stuck = true;
                    return;
                }
            };
            let unit = (body.record.name_of(&request.part), request.unit);
            let holder = here.configuration.tenure(Position(request.part.position));
            let of = (name.clone(), request);
            // The disk of a log node answers later.
            let me = (cx.shared.node, cx.shared.incarnation);
            if holder.is_some_and(|holder| (holder.node, holder.incarnation) == me) && cx.shared.disk.is_none() {
                own.push_back(of);
                continue;
            }
            if let Err((_, request)) = requests.ask(cx, here.configuration, here.stream, holder, unit, of) {
                body.reader.on_unit(&request, None);
            }
        }
    }

    /// The answer to a request for a unit.
    pub(crate) fn on_unit<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        here: &Installed<'_>,
        id: u64,
        unit: Option<(u32, &[u8])>,
    ) -> OnUnit {
        match self.requests.on_unit(cx, id, unit) {
            Some((of, bytes)) => self.take_unit(cx, here, &of, bytes),
            None => OnUnit::NotAsked,
        }
    }

    fn take_unit<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        here: &Installed<'_>,
        (name, request): &(Name, Request),
        bytes: Option<Vec<u8>>,
    ) -> OnUnit {
        let Some(body) = self.all.get_mut(name) else {
            return OnUnit::Moved;
        };
        if bytes.is_some() {
            body.moved_at = cx.now.mono;
        }
        body.reader.on_unit(request, bytes);
        let Body { reader, bytes, .. } = body;
        while reader.take(|some| bytes.extend_from_slice(some)) {}
        if reader.is_done() {
            return OnUnit::Whole(name.group);
        }
        self.ask_units(cx, here, name);
        OnUnit::Moved
    }

    /// Asks others for what has not come, and drops bodies that nobody waits for.
    pub(crate) fn tend<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        here: &Installed<'_>,
        ledger: &mut Ledger,
        forgotten: Span,
    ) -> Tended {
        let (now, mut tended) = (cx.mono(), Tended::default());
        let all = self.all.iter();
        // Commands are run again as soon as their bodies are here.
        let taken = cx.shared.parameters.resend;
        let kept = |body: &Body| if body.is_taken { taken } else { forgotten };
        let over = all.filter(|(_, body)| now > body.wanted_at + kept(body));
        let over: Vec<Name> = over.map(|(name, _)| name.clone()).collect();
        for name in over {
            self.drop(cx, ledger, &name);
        }
        let late = self.requests.take_late(|request| {
            let (node, incarnation) = request.from;
            request.until <= now || here.configuration.held_by(node, incarnation).next().is_none()
        });
        for of in late {
            if let OnUnit::Whole(group) = self.take_unit(cx, here, &of, None) {
                tended.whole.push(group);
            }
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
            self.ask_units(cx, here, &name);
        }
        tended
    }
}

fn name_of(record: &Record, range: &Range<u64>) -> Name {
    Name {
        group: record.data_group,
        from: range.start,
        to: range.end,
    }
}
