//! Bodies of large values on their way to readers (P14.7), whole or in ranges. A body never changes, so all readers of
//! a range share it.

use super::{StreamOwner, decode};
use crate::context::Context;
use crate::interface::{Channel, Out};
use crate::parts::{is_sound, positions_in_memory, to_wire};
use crate::stream_owner::Stop;
use core::ops::Range;
use paritas_base::configuration::Configuration;
use paritas_base::{Incarnation, NodeId, Position, Span, Time};
use paritas_large::{GroupId, Part, Reader, Record, Request};
use paritas_wire::peer::Message;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A node holds bodies for readers up to this part (1/8) of its memory, or up to 32 MiB if that is more: the longest
/// reply has 32 MiB. Further readers wait.
const HELD_PART: u64 = 8;
const HELD_BYTES_MIN: u64 = 32 << 20;

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
pub(super) struct Bodies {
    all: BTreeMap<Name, Body>,
    /// Units that were asked for, by the number of the request.
    requests: BTreeMap<u64, Requested>,
}

impl Bodies {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.all.values().map(|body| body.bytes.capacity()).sum()
    }
}

#[derive(Debug)]
struct Requested {
    of: Name,
    request: Request,
    from: (NodeId, Incarnation),
    until: Time,
}

impl Body {
    /// Bytes that it has, or will have.
    fn bytes_max(name: &Name) -> u64 {
        name.to - name.from
    }
}

impl StreamOwner {
    /// The bytes of a range of a body, once they are here. `record` is that of an object, without its length byte.
    ///
    /// # Errors
    /// [`Stop::Wait`] until all bytes are here.
    pub(crate) fn body<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        record: &[u8],
        range: Range<u64>,
    ) -> Result<&[u8], Stop> {
        // A damaged object may be repaired.
        let record = decode(record).ok_or(Stop::Wait)?;
        self.body_of(cx, configuration, &record, range)
    }

    /// The same for a record that is decoded.
    pub(super) fn body_of<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        record: &Arc<Record>,
        range: Range<u64>,
    ) -> Result<&[u8], Stop> {
        let range = range.start..range.end.min(record.body_bytes);
        if range.is_empty() {
            return Ok(&[]);
        }
        let name = name_of(record, &range);
        if !self.large.bodies.all.contains_key(&name) {
            self.begin_body(cx, configuration, record.clone(), &name)?;
        }
        let now = cx.mono();
        let body = self.large.bodies.all.get_mut(&name).ok_or(Stop::Wait)?;
        body.wanted_at = now;
        body.is_taken |= body.reader.is_done();
        match body.is_taken {
            true => Ok(&body.bytes),
            false => Err(Stop::Wait),
        }
    }

    /// The window of a body that has the byte `at`: whole rows, about [`Parameters::piece_bytes`].
    ///
    /// [`Parameters::piece_bytes`]: crate::Parameters::piece_bytes
    pub(super) fn window_of<O: Out>(cx: &Context<'_, O>, record: &Record, at: u64) -> Range<u64> {
        let unit_bytes = cx.shared.arena.chunk_bytes() as u64;
        let row_bytes = unit_bytes * u64::from(record.class.data());
        let rows = (cx.shared.parameters.piece_bytes / row_bytes).max(1);
        let from = at / (rows * row_bytes) * (rows * row_bytes);
        from..(from + rows * row_bytes).min(record.body_bytes)
    }

    /// The rest of the window that has the byte `at`, once it is here. The window behind it is asked for.
    ///
    /// # Errors
    /// [`Stop::Wait`] until all bytes of the window are here.
    pub(super) fn window<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        record: &Arc<Record>,
        at: u64,
    ) -> Result<&[u8], Stop> {
        if at >= record.body_bytes {
            return Ok(&[]);
        }
        let window = Self::window_of(cx, record, at);
        if window.end < record.body_bytes {
            let next = Self::window_of(cx, record, window.end);
            // It only comes sooner: it is asked for again when it is needed.
            let _ = self.body_of(cx, configuration, record, next);
        }
        let skipped = at.saturating_sub(window.start) as usize;
        let bytes = self.body_of(cx, configuration, record, window)?;
        Ok(bytes.get(skipped..).unwrap_or_default())
    }

    /// The same for a record that is not decoded.
    ///
    /// # Errors
    /// As for [`Self::window`].
    pub(in crate::stream_owner) fn body_from<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        record: &[u8],
        at: u64,
    ) -> Result<&[u8], Stop> {
        let record = decode(record).ok_or(Stop::Wait)?;
        self.window(cx, configuration, &record, at)
    }

    /// The bytes of a range that is here, to be given back by [`Self::give_body`].
    pub(super) fn take_body(&mut self, record: &Record, range: &Range<u64>) -> Option<Vec<u8>> {
        let body = self.large.bodies.all.get_mut(&name_of(record, range))?;
        body.is_taken.then(|| core::mem::take(&mut body.bytes))
    }

    /// Ends [`Self::take_body`].
    pub(super) fn give_body(&mut self, record: &Record, range: &Range<u64>, bytes: Vec<u8>) {
        if let Some(body) = self.large.bodies.all.get_mut(&name_of(record, range)) {
            body.bytes = bytes;
        }
    }

    /// A range that is needed no more.
    pub(super) fn end_body<O: Out>(&mut self, cx: &mut Context<'_, O>, record: &Record, range: &Range<u64>) {
        let name = name_of(record, range);
        if self.large.bodies.all.get(&name).is_some_and(|body| body.is_taken) {
            self.drop_body(cx, &name);
        }
    }

    /// When bytes of a body came last.
    pub(crate) fn body_moved_at(&self, record: &[u8]) -> Option<Time> {
        let group = decode(record)?.data_group;
        let all = self.large.bodies.all.iter();
        all.filter(|(name, _)| name.group == group)
            .map(|(_, body)| body.moved_at)
            .max()
    }

    fn begin_body<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        record: Arc<Record>,
        name: &Name,
    ) -> Result<(), Stop> {
        let now = cx.mono();
        let held_max = HELD_BYTES_MIN.max(cx.shared.maxmemory_bytes / HELD_PART);
        let bytes = Body::bytes_max(name);
        while cx.shared.bodies_bytes > 0 && cx.shared.bodies_bytes + bytes > held_max {
            let all = self.large.bodies.all.iter();
            let done = all.filter(|(_, body)| body.is_taken && body.wanted_at < now);
            let oldest = done.min_by_key(|(_, body)| body.wanted_at);
            let oldest = oldest.map(|(name, _)| name.clone()).ok_or(Stop::Wait)?;
            self.drop_body(cx, &oldest);
        }
        let positions = positions_in_memory(cx, configuration);
        let layout = record.layout(cx.shared.arena.chunk_bytes() as u32).ok_or(Stop::Wait)?;
        let placement = record.placement(positions).map_err(|_| Stop::Wait)?;
        let (list, x) = (self.stream.list, self.stream.x);
        let pinned = self.large.ledger.pin(&record);
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
            record,
            is_taken: false,
            is_stuck: false,
            wanted_at: now,
            moved_at: now,
        };
        self.begin_work(cx);
        cx.shared.bodies_bytes += bytes;
        self.large.bodies.all.insert(name.clone(), body);
        self.ask_units(cx, configuration, name);
        Ok(())
    }

    fn drop_body<O: Out>(&mut self, cx: &mut Context<'_, O>, name: &Name) {
        if let Some(body) = self.large.bodies.all.remove(name) {
            cx.shared.bodies_bytes = cx.shared.bodies_bytes.saturating_sub(Body::bytes_max(name));
            self.large.ledger.unpin(&body.record);
            self.large.bodies.requests.retain(|_, requested| requested.of != *name);
        }
    }

    /// The role ends.
    pub(crate) fn drop_bodies<O: Out>(&mut self, cx: &mut Context<'_, O>) {
        let all: Vec<Name> = self.large.bodies.all.keys().cloned().collect();
        for name in all {
            self.drop_body(cx, &name);
        }
    }

    /// Asks holders for what the reader wants next.
    fn ask_units<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration, name: &Name) {
        let Bodies { all, requests } = &mut self.large.bodies;
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
            let id = cx.next_request_id();
            let message = Message::ReadUnit {
                id,
                name: to_wire(body.record.name_of(&request.part)),
                unit: request.unit,
            };
            let holder = configuration.tenure(Position(request.part.position));
            let sent = holder.filter(|from| cx.send(from, Channel::Bulk, self.stream, configuration.epoch, &message));
            match sent {
                Some(from) => {
                    let requested = Requested {
                        of: name.clone(),
                        request,
                        from: (from.node, from.incarnation),
                        until: cx.after(cx.shared.parameters.resend),
                    };
                    requests.insert(id, requested);
                }
                None => body.reader.on_unit(&request, None),
            }
        }
    }

    /// The answer to a request for a unit. False if this owner did not ask.
    pub(crate) fn on_body_unit<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        id: u64,
        unit: Option<(u32, &[u8])>,
    ) -> bool {
        if self.on_asked_part(cx, id, unit.is_some()) {
            return true;
        }
        let Some(requested) = self.large.bodies.requests.remove(&id) else {
            return false;
        };
        let chunk_bytes = cx.shared.arena.chunk_bytes();
        let bytes = unit.filter(|(sum, bytes)| is_sound(chunk_bytes, *sum, bytes));
        let bytes = bytes.map(|(_, bytes)| bytes.to_vec());
        self.take_unit(cx, configuration, &requested, bytes);
        true
    }

    fn take_unit<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        requested: &Requested,
        bytes: Option<Vec<u8>>,
    ) {
        let Some(body) = self.large.bodies.all.get_mut(&requested.of) else {
            return;
        };
        if bytes.is_some() {
            body.moved_at = cx.now.mono;
        }
        body.reader.on_unit(&requested.request, bytes);
        let Body { reader, bytes, .. } = body;
        while reader.take(|some| bytes.extend_from_slice(some)) {}
        if reader.is_done() {
            self.wake.progress = true;
            self.hand_offs.hurry(cx.now.mono);
            self.hurry_change(cx.now.mono);
            self.on_window(cx, configuration, requested.of.group);
        } else {
            self.ask_units(cx, configuration, &requested.of);
        }
    }

    /// Asks others for what has not come, and drops bodies that nobody waits for.
    pub(super) fn tend_bodies<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        forgotten: Span,
    ) {
        let now = cx.mono();
        let all = self.large.bodies.all.iter();
        // Commands are run again as soon as their bodies are here.
        let taken = cx.shared.parameters.resend;
        let kept = |body: &Body| if body.is_taken { taken } else { forgotten };
        let over = all.filter(|(_, body)| now > body.wanted_at + kept(body));
        let over: Vec<Name> = over.map(|(name, _)| name.clone()).collect();
        for name in over {
            self.drop_body(cx, &name);
        }
        let is_late = |requested: &Requested| {
            let (node, incarnation) = requested.from;
            requested.until <= now || configuration.held_by(node, incarnation).next().is_none()
        };
        let late = self
            .large
            .bodies
            .requests
            .iter()
            .filter(|(_, requested)| is_late(requested));
        let late: Vec<u64> = late.map(|(id, _)| *id).collect();
        for id in late {
            if let Some(requested) = self.large.bodies.requests.remove(&id) {
                self.take_unit(cx, configuration, &requested, None);
            }
        }
        let stuck = self.large.bodies.all.iter_mut().filter(|(_, body)| body.is_stuck);
        let mut again = Vec::new();
        for (name, body) in stuck {
            // A unit may be wrong although no holder is lost.
            if body.record.class.tolerance() < configuration.parity {
                self.large.losses.suspect(&body.record, now);
            }
            body.is_stuck = false;
            body.reader.ask_again();
            again.push(name.clone());
        }
        for name in again {
            self.large.bodies.requests.retain(|_, requested| requested.of != name);
            self.ask_units(cx, configuration, &name);
        }
    }
}

fn name_of(record: &Record, range: &Range<u64>) -> Name {
    Name {
        group: record.data_group,
        from: range.start,
        to: range.end,
    }
}
