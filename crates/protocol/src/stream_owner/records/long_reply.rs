//! Replies that are one long value (P14.7). They are never held whole: the node of the client reads them in pieces. The
//! groups stay pinned meanwhile, so the value is the one that the command has seen.

use super::{Installed, Records, Ticket, decode};
use crate::bodies::window_of;
use crate::context::Context;
use crate::interface::{Channel, Out};
use crate::rules::Fault;
use crate::stream_owner::Stop;
use core::ops::Range;
use paritas_base::{ConnId, Incarnation, NodeId, Span, Time};
use paritas_large::{GroupId, Record};
use paritas_wire::peer::Message;
use std::sync::Arc;

/// The most long replies of one stream at a time. Each has a tail in memory, beside the windows of its body.
const LONG_REPLIES_MAX: usize = 1024;

/// Asks for no bytes, and says that the reply is still wanted.
pub const STILL_WANTED: u64 = u64::MAX;

/// One reply.
#[derive(Debug)]
pub(super) struct LongReply {
    record: Arc<Record>,
    tail: Vec<u8>,
    /// The bytes of the value that are the reply.
    range: Range<u64>,
    /// A node that waits for the bytes from an offset of the reply on.
    asked: Option<((NodeId, Incarnation), u64)>,
    /// When the reader was heard last.
    wanted_at: Time,
}

impl LongReply {
    pub(super) fn held_bytes(&self) -> usize {
        self.tail.capacity()
    }
}

impl Records {
    /// Begins a reply that is a range of a value. `record` and `tail` are those of its object. If the command is run
    /// again, the reply begins again.
    ///
    /// # Errors
    /// [`Stop::Wait`] while there are too many such replies, or if the object is damaged.
    pub(in crate::stream_owner) fn begin_long_reply<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        ticket: Ticket,
        record: &[u8],
        tail: &[u8],
        range: Range<u64>,
    ) -> Result<(), Stop> {
        self.end_long_reply(ticket);
        let record = decode(record).ok_or(Stop::Wait)?;
        let is_unpinned = cx.rules().fault(Fault::LongReplyUnpinned);
        let is_full = self.long_replies.len() >= LONG_REPLIES_MAX;
        if is_full || !(is_unpinned || self.ledger.pin(&record)) {
            return Err(Stop::Wait);
        }
        self.begin_work(cx);
        let reply = LongReply {
            record,
            tail: tail.into(),
            range,
            asked: None,
            wanted_at: cx.mono(),
        };
        self.long_replies.insert(ticket, reply);
        Ok(())
    }

    /// Bytes of a long reply from `at` on; `None` if there is no such reply.
    ///
    /// # Errors
    /// [`Stop::Wait`] until they are here.
    pub(in crate::stream_owner) fn read_long_reply<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        here: &Installed<'_>,
        ticket: Ticket,
        at: u64,
    ) -> Option<Result<&[u8], Stop>> {
        self.long_replies.get_mut(&ticket)?.wanted_at = cx.mono();
        if at == STILL_WANTED {
            return Some(Ok(&[]));
        }
        self.bytes_of_long_reply(cx, here, ticket, at)
    }

    /// The same for the owner itself: only its reader says that a reply is wanted. If the owner's own tries did, a
    /// reply whose reader has gone and whose value is lost would stay.
    fn bytes_of_long_reply<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        here: &Installed<'_>,
        ticket: Ticket,
        at: u64,
    ) -> Option<Result<&[u8], Stop>> {
        let reply = self.long_replies.get(&ticket)?;
        let (record, from) = (reply.record.clone(), reply.range.start.saturating_add(at));
        let most = reply.range.end.saturating_sub(from) as usize;
        if from >= record.body_bytes {
            let reply = self.long_replies.get(&ticket)?;
            let rest = reply
                .tail
                .get((from - record.body_bytes) as usize..)
                .unwrap_or_default();
            return Some(Ok(rest.get(..most).unwrap_or(rest)));
        }
        if at > 0 {
            let before = window_of(cx, &record, from - 1);
            if before.end <= from {
                self.bodies.end(cx, &mut self.ledger, &record, &before);
            }
        }
        Some(match self.window(cx, here, &record, from) {
            Ok(rest) => Ok(rest.get(..most).unwrap_or(rest)),
            Err(stop) => Err(stop),
        })
    }

    /// The reply was read to its end, or its client has gone.
    pub(in crate::stream_owner) fn end_long_reply(&mut self, ticket: Ticket) {
        if let Some(reply) = self.long_replies.remove(&ticket) {
            self.ledger.unpin(&reply.record);
        }
    }

    /// A peer asks for bytes of a long reply.
    pub(in crate::stream_owner) fn on_read_reply<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        here: &Installed<'_>,
        from: (NodeId, Incarnation),
        (conn, n): (ConnId, u64),
        at: u64,
    ) {
        let ticket = Ticket {
            node: from.0,
            incarnation: from.1,
            conn,
            n,
        };
        match self.long_replies.get_mut(&ticket) {
            None => tell_gone(cx, here, from, (conn, n), at),
            Some(reply) if at == STILL_WANTED => reply.wanted_at = cx.now.mono,
            Some(reply) => {
                (reply.asked, reply.wanted_at) = (Some((from, at)), cx.now.mono);
                self.answer_long_reply(cx, here, ticket);
            }
        }
    }

    fn answer_long_reply<O: Out>(&mut self, cx: &mut Context<'_, O>, here: &Installed<'_>, ticket: Ticket) {
        let reply = self.long_replies.get(&ticket);
        let Some((from, at)) = reply.and_then(|reply| reply.asked) else {
            return;
        };
        let (stream, epoch) = (here.stream, here.configuration.epoch);
        if cx.is_backed_up(from.0, Channel::Bulk) {
            // The timer answers, or another question.
            return;
        }
        // Copied, because the reply is changed below.
        let bytes = match self.bytes_of_long_reply(cx, here, ticket, at) {
            Some(Ok(bytes)) => bytes.to_vec(),
            None | Some(Err(_)) => return,
        };
        let message = Message::ReplyBytes {
            conn: ticket.conn,
            n: ticket.n,
            at,
            bytes: Some(&bytes),
        };
        cx.send_to(from.0, from.1, Channel::Bulk, stream, epoch, &message);
        if let Some(reply) = self.long_replies.get_mut(&ticket) {
            reply.asked = None;
        }
    }

    /// A window of this group is here: answers those that wait for it.
    pub(super) fn on_window<O: Out>(&mut self, cx: &mut Context<'_, O>, here: &Installed<'_>, of: GroupId) {
        let all = self.long_replies.iter();
        let waits = all.filter(|(_, reply)| reply.asked.is_some() && reply.record.data_group == of);
        let waits: Vec<Ticket> = waits.map(|(ticket, _)| *ticket).collect();
        for ticket in waits {
            self.answer_long_reply(cx, here, ticket);
        }
    }

    /// Answers what could not be answered before, and forgets replies whose reader has gone.
    pub(super) fn tend_long_replies<O: Out>(&mut self, cx: &mut Context<'_, O>, here: &Installed<'_>, forgotten: Span) {
        let now = cx.mono();
        let all = self.long_replies.iter();
        let all: Vec<(Ticket, bool)> = all
            .map(|(ticket, reply)| (*ticket, now > reply.wanted_at + forgotten))
            .collect();
        for (ticket, is_over) in all {
            match is_over {
                true => self.end_long_reply(ticket),
                false => self.answer_long_reply(cx, here, ticket),
            }
        }
    }
}

fn tell_gone<O: Out>(
    cx: &mut Context<'_, O>,
    here: &Installed<'_>,
    to: (NodeId, Incarnation),
    (conn, n): (ConnId, u64),
    at: u64,
) {
    let bytes = None;
    let message = Message::ReplyBytes { conn, n, at, bytes };
    cx.send_to(
        to.0,
        to.1,
        Channel::Bulk,
        here.stream,
        here.configuration.epoch,
        &message,
    );
}
