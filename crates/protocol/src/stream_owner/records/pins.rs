//! Values that a command has answered with and that the node of its client reads (P14.7, P14.21). The groups stay
//! pinned meanwhile, so the value is the one that the command has seen.

use super::{Records, Ticket, decode};
use crate::context::Context;
use crate::interface::Out;
use crate::rules::Fault;
use crate::stream_owner::Stop;
use paritas_base::{Span, Time};
use paritas_large::Record;
use std::sync::Arc;

/// The most values of one stream that are pinned for readers.
const PINS_MAX: usize = 1024;

/// One value.
#[derive(Debug)]
pub(super) struct Pinned {
    record: Arc<Record>,
    /// When the reader was heard last.
    wanted_at: Time,
}

impl Records {
    /// Pins the value with this record for the node of a client. If the command is run again, this begins again.
    ///
    /// # Errors
    /// [`Stop::Wait`] while too many are pinned, or if the object is damaged.
    pub(in crate::stream_owner) fn pin<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        ticket: Ticket,
        record: &[u8],
    ) -> Result<Arc<Record>, Stop> {
        self.unpin(ticket);
        let record = decode(record).ok_or(Stop::Wait)?;
        let is_unpinned = cx.rules().fault(Fault::LongReplyUnpinned);
        if self.pins.len() >= PINS_MAX || !(is_unpinned || self.ledger.pin(&record)) {
            return Err(Stop::Wait);
        }
        self.begin_work(cx);
        // The answer may wait for acks and leases for two leases, before the reader can say anything.
        let pinned = Pinned {
            record: record.clone(),
            wanted_at: cx.mono() + Span(2 * cx.shared.parameters.lease.0),
        };
        self.pins.insert(ticket, pinned);
        Ok(record)
    }

    /// The reader still wants it. `is_stuck`: too few parts have answered it. A part may be wrong although no holder is
    /// lost.
    pub(in crate::stream_owner) fn keep_pinned(&mut self, now: Time, parity: u8, ticket: Ticket, is_stuck: bool) {
        let Some(pinned) = self.pins.get_mut(&ticket) else {
            return;
        };
        pinned.wanted_at = now;
        if is_stuck && pinned.record.class.tolerance() < parity {
            self.losses.suspect(&pinned.record, now);
        }
    }

    /// It was read to its end, or nobody reads it any more.
    pub(in crate::stream_owner) fn unpin(&mut self, ticket: Ticket) {
        if let Some(pinned) = self.pins.remove(&ticket) {
            self.ledger.unpin(&pinned.record);
        }
    }

    /// The same from a reader. Commands may wait for the place.
    pub(in crate::stream_owner) fn end_pin(&mut self, ticket: Ticket) {
        self.woken.progress |= self.pins.len() >= PINS_MAX;
        self.unpin(ticket);
    }

    pub(in crate::stream_owner) fn pinned(&self) -> impl Iterator<Item = &Arc<Record>> {
        self.pins.values().map(|pinned| &pinned.record)
    }

    /// Forgets those whose reader has gone.
    pub(super) fn tend_pins(&mut self, now: Time, forgotten: Span) {
        let over = self
            .pins
            .iter()
            .filter(|(_, pinned)| now > pinned.wanted_at + forgotten);
        let over: Vec<Ticket> = over.map(|(ticket, _)| *ticket).collect();
        over.into_iter().for_each(|ticket| self.end_pin(ticket));
    }
}
