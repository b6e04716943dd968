//! When replies are released: in command order, each when its condition holds.

use super::Dispatcher;
use super::call::Call;
use super::client::{Caller, LongValue, Segment, Wait};
use crate::dialect::{Dialect, Refusal};
use crate::memcached::Shown;
use crate::redis::refusals::{is_error, is_reply_too_large};
use paritas_base::{Span, Time};
use paritas_protocol::{Context, Fault, Lists, Out, ReadLease, TakenAgain};
use std::sync::Arc;

/// Timeout of an answer of the coordinator or the process. It covers the replacement of a coordinator.
const ANSWER_MAX: Span = Span::from_secs(10);

impl Dispatcher {
    /// Adds the segment of a command whose reply begins at `start`. It is released at once if it is the first and its
    /// condition holds.
    pub(crate) fn push<O: Out>(&mut self, call: &mut Call<'_, '_, O>, start: usize, wait: Wait) {
        self.push_segment(call, start, wait, None);
    }

    /// The same for a reply that the node of the client may read. Then nothing of it is in the buffer.
    pub(crate) fn push_segment<O: Out>(
        &mut self,
        call: &mut Call<'_, '_, O>,
        start: usize,
        wait: Wait,
        long: Option<Box<LongValue>>,
    ) {
        let n = call.client.take_command_n();
        let length = call.turn.bytes.len() - start;
        let first = call.client.segments.is_empty();
        call.client.segments.push_back(Segment {
            n,
            length,
            wait,
            taken_again: TakenAgain::default(),
            long,
            is_element: false,
            answered: None,
            shown: call.client.dialog.shown,
        });
        if first {
            self.release_head(call);
        }
    }

    /// Releases segments from the front as far as they may be seen.
    pub(crate) fn release_head<O: Out>(&mut self, call: &mut Call<'_, '_, O>) {
        let Call {
            cx,
            lists,
            client,
            turn,
        } = &mut *call;
        while let Some(head) = client.segments.front_mut() {
            let n = head.n;
            let mut length = head.length;
            let (mut instead, mut asked) = (None, None);
            let deadline = if let Wait::Gathered(gather) = &mut head.wait {
                let progress = gather.go_on(cx, lists, &mut self.stuck);
                client.forwarded_bytes -= progress.freed_bytes.min(client.forwarded_bytes);
                if progress.reply.is_none() {
                    // The next step uses what this one has read although no reply leaves yet. So the deadline of its
                    // lease applies to this turn (P4.2).
                    turn.deadline = earliest(turn.deadline, progress.deadline);
                    return self.run_steps(call, progress.steps);
                }
                if progress.reply.as_deref().is_some_and(is_reply_too_large)
                    && let Some(one_by_one) = gather.one_by_one(&mut self.part_args)
                    && client.last_write_n <= n
                    && head.shown == Shown::All
                    && matches!(client.caller, Caller::Local(_))
                {
                    let freed_bytes = gather.reply_bytes + gather.command_bytes();
                    let held_bytes = one_by_one.held_bytes();
                    head.wait = Wait::OneByOne(one_by_one);
                    client.forwarded_bytes -= freed_bytes.min(client.forwarded_bytes);
                    return self.note_one_by_one(client, held_bytes);
                }
                instead = progress.reply;
                // A question has no reply of its own: the command behind it runs now.
                asked = gather.asks_functions().map(|known| {
                    let answer = instead.replace(Vec::new()).unwrap_or_default();
                    (Arc::clone(known), answer, progress.deadline)
                });
                progress.deadline
            } else {
                match self.stuck.judge(cx, lists, &head.wait) {
                    Verdict::Hold => return,
                    Verdict::Ready(deadline) => {
                        if let Some(key) = head.taken_again.key() {
                            let of = (client.database, key);
                            instead = value_now(cx, lists, client.dialect, &head.wait, of);
                        }
                        deadline
                    }
                    Verdict::Instead(refusal) => {
                        client.dialect.refuse(instead.insert(Vec::new()), refusal);
                        None
                    }
                }
            };
            let mut is_done = false;
            if head.shown != Shown::All || matches!(head.wait, Wait::Gathered(_)) {
                let written = turn.bytes.get(turn.released..turn.released + length);
                let reply = instead.as_deref().or(written).unwrap_or_default();
                is_done = reply.starts_with(b"*") && !reply.starts_with(b"*-1");
                // An operator is told only what a client of memcached does not see.
                let is_memcached = client.dialect == Dialect::Memcached;
                let is_silenced = is_error(reply) && is_memcached && head.shown == Shown::Nothing;
                let is_error = is_error(reply);
                if client.dialog.hides(head.shown, is_error) {
                    self.silenced += u64::from(is_silenced);
                    instead = Some(Vec::new());
                }
            }
            if let Some(reply) = instead {
                let place = turn.released..turn.released + length;
                length = reply.len();
                turn.bytes.splice(place, reply);
            }
            let long = head.long.take().filter(|_| length == 0);
            if let Some(Wait::Gathered(gather)) = client.segments.pop_front().map(|head| head.wait) {
                let freed_bytes = gather.reply_bytes + gather.command_bytes();
                client.forwarded_bytes -= freed_bytes.min(client.forwarded_bytes);
                if client.awaits_watch() {
                    client.end_watch(&gather);
                    self.wake = true;
                }
                if let Some(database) = gather.selects()
                    && (is_done || cx.rules().fault(Fault::SelectedByGivenUp))
                {
                    client.database = database;
                }
            }
            if let Some((known, answer, until)) = asked {
                self.learn_functions(cx, client, &known, answer, until);
            }
            if client.awaited.take_if(|awaited| *awaited == n).is_some() {
                self.wake = true;
            }
            self.wake |= client.full;
            match client.caller {
                Caller::Local(_) => {
                    turn.released += length;
                    turn.deadline = earliest(turn.deadline, deadline);
                }
                Caller::Remote(node, conn) if let Some(long) = long => {
                    self.answer_long(cx, (node, client.remote.incarnation), conn, n, *long, deadline);
                }
                Caller::Remote(node, conn) => {
                    self.answer(
                        cx,
                        (node, client.remote.incarnation),
                        conn,
                        n,
                        turn.bytes.get(..length).unwrap_or_default(),
                        deadline,
                    );
                    turn.bytes.drain(..length);
                }
            }
        }
    }
}

/// [`Fault::ValueTakenAtRelease`](paritas_protocol::Fault::ValueTakenAtRelease): the value as it is now, under the
/// `need` of the one that was read.
fn value_now<O: Out>(
    cx: &Context<'_, O>,
    lists: &Lists,
    dialect: Dialect,
    wait: &Wait,
    (database, key): (u8, &[u8]),
) -> Option<Vec<u8>> {
    let Wait::Read { stream, .. } = wait else { return None };
    let (_, owner) = lists.owner(*stream)?;
    let object = owner
        .store()
        .find(&cx.shared.arena, owner.store().hash(database, key), key)
        .ok()?;
    let mut reply = Vec::new();
    match object {
        Some(object) => {
            let mut value = Vec::new();
            object.copy_to(&mut value);
            dialect.value(&mut reply, &value);
        }
        None => dialect.nothing(&mut reply),
    }
    Some(reply)
}

pub(crate) fn earliest(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Whether a reply may be seen.
pub(crate) enum Verdict {
    Hold,
    /// It may be sent; a read under leases only until this deadline.
    Ready(Option<Time>),
    /// It may never be sent: this refusal takes its place.
    Instead(Refusal),
}

// It runs for each reply, and each place that calls it needs a part of it.
#[inline(always)]
pub(crate) fn judge<O: Out>(cx: &Context<'_, O>, lists: &Lists, wait: &Wait) -> Verdict {
    let timeout = Span(2 * cx.shared.parameters.lease.0);
    let late = |since: Time| cx.now.mono - since > timeout;
    match wait {
        Wait::Ready => Verdict::Ready(None),
        Wait::Forwarded(_) | Wait::Gathered(_) => Verdict::Hold,
        Wait::Long(long) if long.is_done() => Verdict::Ready(None),
        Wait::Long(_) | Wait::OneByOne(_) | Wait::Broken => Verdict::Hold,
        // The question may have been lost: its queue is bounded.
        Wait::Answer { since } if cx.mono() - *since > ANSWER_MAX => Verdict::Instead(Refusal::NoAnswer),
        Wait::Answer { .. } => Verdict::Hold,
        Wait::Write {
            stream,
            term,
            seq,
            since,
        } => match lists.owner(*stream) {
            Some((_, owner)) if owner.tenure().term() == *term => {
                if owner.acked() >= *seq && owner.may_answer_writes(cx) {
                    Verdict::Ready(None)
                } else if late(*since) {
                    Verdict::Instead(Refusal::Uncertain)
                } else {
                    Verdict::Hold
                }
            }
            _ => Verdict::Instead(Refusal::Uncertain),
        },
        Wait::Read {
            stream,
            term,
            need,
            since,
        } => match lists.owner(*stream) {
            Some((configuration, owner)) if owner.tenure().term() == *term => {
                let safe = cx.rules().may_see(owner.acked(), *need);
                match owner.read_lease(cx, configuration, *since) {
                    ReadLease::Unlimited if safe => Verdict::Ready(None),
                    ReadLease::Until(deadline) if safe => Verdict::Ready(Some(deadline)),
                    _ if late(*since) => Verdict::Instead(Refusal::Takeover),
                    _ => Verdict::Hold,
                }
            }
            _ => Verdict::Instead(Refusal::Takeover),
        },
    }
}
