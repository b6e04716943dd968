//! Values that this node reads for its clients: the owner has answered with a record, and pins the groups (P14.7,
//! P14.21).

use crate::bodies::{Bodies, FORGOTTEN_LEASES, OnUnit, Pins, has_room_ahead, window_of};
use crate::context::Context;
use crate::interface::Out;
use crate::lists::{List, Lists};
use crate::parameters::Parameters;
use crate::parts::record_of;
use crate::stream_owner::Stop;
use core::ops::Range;
use paritas_base::configuration::Configuration;
use paritas_base::{Span, StreamId, Time};
use paritas_large::Record;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of a large value that are a reply: a range of its body and tail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ValueRange {
    /// It names the body.
    pub record: Arc<Record>,
    /// The end of the value, which is in no part.
    pub tail: Vec<u8>,
    /// In bytes of the value.
    pub range: Range<u64>,
}

impl ValueRange {
    /// From a frame. `None` if the record is none, or the value does not have the range.
    pub fn decode(record: &[u8], tail: &[u8], range: Range<u64>) -> Option<Self> {
        let record = record_of(record)?;
        let is_there = range.start < range.end && range.end <= record.body_bytes + tail.len() as u64;
        let tail = tail.to_vec();
        is_there.then_some(Self { record, tail, range })
    }

    /// The length of the reply in bytes.
    pub fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// The owner has pinned what is read here.
struct PinnedByOwner;

impl Pins for PinnedByOwner {
    fn pin(&mut self, _: &Arc<Record>) -> bool {
        true
    }

    fn unpin(&mut self, _: &Record) {}
}

/// All ranges that clients of this node read, by stream.
#[derive(Debug, Default)]
pub struct Readers {
    streams: BTreeMap<StreamId, Bodies>,
    /// When unanswered questions are repeated.
    resend_at: Time,
}

impl Readers {
    /// Whether nothing is read or held.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        self.streams.values().map(|bodies| bodies.held_bytes() as u64).sum()
    }

    pub(crate) fn next_at(&self) -> Option<Time> {
        match self.streams.values().any(Bodies::has_own) {
            true => Some(Time(0)),
            false => (!self.is_empty()).then_some(self.resend_at),
        }
    }

    /// Of the bytes that [`Self::next`] waits for: whether too few parts have answered since bytes came last, and when
    /// these came.
    pub fn progress<O: Out>(
        &self,
        cx: &Context<'_, O>,
        stream: StreamId,
        value: &ValueRange,
        at: u64,
    ) -> (bool, Option<Time>) {
        let ValueRange { record, range, .. } = value;
        let awaited = match is_read_whole(cx, value) {
            true => range.start..range.end.min(record.body_bytes),
            false => window_of(cx, record, range.start + at),
        };
        let bodies = self.streams.get(&stream);
        let progress = bodies.and_then(|bodies| bodies.progress(record, &awaited));
        progress.map_or((false, None), |(is_stuck, moved_at)| (is_stuck, Some(moved_at)))
    }

    /// Begins to read a short value, whose reply leaves behind others: these have room before it.
    pub fn begin<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &Lists, stream: StreamId, value: &ValueRange) {
        if is_read_whole(cx, value) && has_room_ahead(cx, value.bytes()) {
            let _ = self.next(cx, lists, stream, value, 0);
        }
    }

    /// The next bytes of a value from `at` on, which counts from the beginning of its range. Those of the body of a
    /// value shorter than [`Parameters::streamed_bytes_min`] come all at once.
    ///
    /// [`Parameters::streamed_bytes_min`]: crate::Parameters::streamed_bytes_min
    ///
    /// # Errors
    /// [`Stop::Wait`] until they are here.
    pub fn next<'r, O: Out>(
        &'r mut self,
        cx: &mut Context<'_, O>,
        lists: &Lists,
        stream: StreamId,
        value: &'r ValueRange,
        at: u64,
    ) -> Result<&'r [u8], Stop> {
        let ValueRange { record, tail, range } = value;
        let from = range.start + at;
        let bytes = match from.checked_sub(record.body_bytes) {
            Some(in_tail) => tail.get(in_tail as usize..).unwrap_or_default(),
            None => self.next_of_body(cx, lists, stream, value, from)?,
        };
        let left = range.end.saturating_sub(from) as usize;
        Ok(bytes.get(..left).unwrap_or(bytes))
    }

    /// A long value was read to its end: its last window goes as those before it.
    pub fn end<O: Out>(&mut self, cx: &mut Context<'_, O>, stream: StreamId, value: &ValueRange) {
        let ValueRange { record, range, .. } = value;
        let body_end = range.end.min(record.body_bytes);
        if let Some(bodies) = self.streams.get_mut(&stream)
            && range.start < body_end
            && !is_read_whole(cx, value)
        {
            let last = window_of(cx, record, body_end - 1);
            bodies.end(cx, &mut PinnedByOwner, record, &last);
        }
    }

    fn next_of_body<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        lists: &Lists,
        stream: StreamId,
        value: &ValueRange,
        from: u64,
    ) -> Result<&[u8], Stop> {
        if self.is_empty() {
            self.resend_at = cx.after(cx.shared.parameters.resend);
        }
        let configuration = &lists.get(stream.list).ok_or(Stop::Wait)?.configuration;
        let bodies = self.streams.entry(stream).or_insert_with(|| Bodies::new(stream));
        let ValueRange { record, range, .. } = value;
        if is_read_whole(cx, value) {
            return bodies.read(cx, configuration, &mut PinnedByOwner, record, range.clone());
        }
        if from > range.start {
            let before = window_of(cx, record, from - 1);
            if before.end <= from {
                bodies.end(cx, &mut PinnedByOwner, record, &before);
            }
        }
        bodies.read_window(cx, configuration, &mut PinnedByOwner, record, from, range.end)
    }

    /// The answer to a question for a unit of this stream. False if it was not asked here.
    pub(crate) fn on_unit<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        stream: StreamId,
        id: u64,
        unit: Option<(u32, &[u8])>,
    ) -> bool {
        let bodies = self.streams.get_mut(&stream);
        bodies.is_some_and(|bodies| bodies.on_unit(cx, configuration, id, unit) != OnUnit::NotAsked)
    }

    /// Reads what this node keeps itself, asks others for what has not come, and drops what nobody waits for.
    pub(crate) fn on_turn_end<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &mut Lists) {
        for (stream, bodies) in self.streams.iter_mut().filter(|(_, bodies)| bodies.has_own()) {
            if let Some(List {
                configuration, parts, ..
            }) = lists.get_mut(stream.list)
            {
                bodies.read_own(cx, configuration, parts);
            }
        }
        if self.is_empty() || cx.mono() < self.resend_at {
            return;
        }
        let Parameters { resend, lease, .. } = cx.shared.parameters;
        self.resend_at = cx.after(resend);
        for (stream, bodies) in &mut self.streams {
            if let Some(list) = lists.get(stream.list) {
                let forgotten = Span(FORGOTTEN_LEASES * lease.0);
                bodies.tend(cx, &list.configuration, &mut PinnedByOwner, forgotten);
            }
        }
        self.streams.retain(|_, bodies| !bodies.is_empty());
    }
}

/// Whether a value is short enough to be whole before its first byte leaves: if it cannot be read, it is refused and
/// the connection goes on.
fn is_read_whole<O: Out>(cx: &Context<'_, O>, value: &ValueRange) -> bool {
    value.bytes() < cx.shared.parameters.streamed_bytes_min
}
