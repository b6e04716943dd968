//! Values that come ahead of their command (P14.13). A long value is never held whole: its bytes go to the parts as
//! they arrive, and the command that follows names it by its ticket.

use super::upload::{Made, class_of_new};
use super::{Installed, Origin, Records, StreamOwner, Ticket};
use crate::context::Context;
use crate::interface::{Channel, Out};
use crate::stream_owner::space::evict;
use crate::stream_owner::{Admission, LARGE_VALUE_BYTES_MAX, Phase, Stop, WriteRefusal};
use paritas_base::configuration::Configuration;
use paritas_base::{Incarnation, NodeId, Span, Time};
use paritas_large::{Class, Record};
use paritas_wire::peer::{Message, StageState};
use std::sync::Arc;

/// The most values that come at a time to one stream. Each has at most a window in memory, beside its parts.
const STAGED_MAX: usize = 256;

/// One value.
#[derive(Debug)]
pub(super) struct Staged {
    key: Box<[u8]>,
    /// That which the command gives it.
    class: Option<Class>,
    value_bytes: u64,
    /// The first bytes of the value that are in parts, or in the tail.
    taken: u64,
    /// The bytes behind them that are here.
    queue: Vec<u8>,
    tail: Vec<u8>,
    /// Bytes of keys that were evicted for it.
    evicted_bytes: u64,
    /// Why the command will be refused.
    failed: Option<WriteRefusal>,
    /// When its command ran last. It runs again within a lease, if it has not been lost.
    ran_at: Option<Time>,
    /// The node that sends it; `None`: a client of this node.
    from: Option<(NodeId, Incarnation)>,
    /// What that node was told last.
    told: (u64, StageState),
    /// When its sender was heard last.
    wanted_at: Time,
}

impl Staged {
    pub(super) fn held_bytes(&self) -> usize {
        self.key.len() + self.queue.capacity() + self.tail.capacity()
    }

    fn state(&self, now: Time, lease: Span) -> StageState {
        let is_running = self.ran_at.is_some_and(|at| now < at + Span(2 * lease.0));
        match self.failed {
            Some(WriteRefusal::NoMemory) => StageState::NoMemory,
            Some(_) => StageState::Over,
            None if is_running => StageState::Running,
            None => StageState::Open,
        }
    }
}

/// How far a value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StagedSoFar {
    /// Its first bytes that are taken.
    pub taken: u64,
    /// Whether more are wanted.
    pub state: StageState,
}

impl Records {
    /// How far a value is. One that is unknown is over.
    fn staged_so_far<O: Out>(&self, cx: &Context<'_, O>, ticket: Ticket) -> StagedSoFar {
        let (now, lease) = (cx.mono(), cx.shared.parameters.lease);
        let staged = self.staged.get(&ticket);
        StagedSoFar {
            taken: staged.map_or(0, |staged| staged.taken),
            state: staged.map_or(StageState::Over, |staged| staged.state(now, lease)),
        }
    }

    /// The value is not wanted any more, or its command has ended.
    pub(in crate::stream_owner) fn unstage(&mut self, ticket: Ticket) {
        let is_by_client = self.by_client.remove(&ticket).is_some();
        if self.staged.remove(&ticket).is_some() || is_by_client {
            self.end_staged(ticket, false);
            // The value that the command has made of it.
            self.end_upload(ticket, false);
        }
    }

    /// Whether a value came ahead of this command.
    pub(in crate::stream_owner) fn is_staged(&self, ticket: Ticket) -> bool {
        self.staged.contains_key(&ticket) || self.is_by_client(ticket)
    }

    fn begin_staged<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        here: &Installed<'_>,
        ticket: Ticket,
    ) -> Result<(), WriteRefusal> {
        let Some(staged) = self.staged.get(&ticket) else {
            return Ok(());
        };
        let value_bytes = staged.value_bytes;
        let made = Made {
            basis: &[],
            class: class_of_new(cx, staged.class, &staged.key, value_bytes),
            same_as: None,
            is_all_body: false,
        };
        let record = self.stage_groups(cx, here, &made, value_bytes);
        let record = record.ok_or(WriteRefusal::TooLarge)?;
        let begun = self.begin_upload(cx, here, Origin::Staged(ticket), &[], record);
        match begun {
            Err(Stop::Refused(refusal)) => Err(refusal),
            Ok(()) | Err(Stop::Wait) => Ok(()),
        }
    }

    /// The object of a staged value was put into the store (`is_named`), or the value is given up.
    pub(in crate::stream_owner) fn end_staged(&mut self, ticket: Ticket, is_named: bool) {
        self.end_upload_of(Origin::Staged(ticket), is_named);
        self.end_upload_of(Origin::ByClient(ticket), is_named);
    }

    fn fail_staged(&mut self, ticket: Ticket, refusal: WriteRefusal) {
        self.end_staged(ticket, false);
        if let Some(staged) = self.staged.get_mut(&ticket) {
            staged.failed = Some(refusal);
            (staged.queue, staged.tail) = (Vec::new(), Vec::new());
            self.woken.progress = true;
        }
    }
}

impl StreamOwner {
    /// A value of `value_bytes` bytes begins to come, or its sender still wants to send it. `class`: that which its
    /// command gives it. `taken`: the bytes that the sender knows to be taken. If they are not here, the value was
    /// given up meanwhile.
    pub fn stage<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        ticket: Ticket,
        from: Option<(NodeId, Incarnation)>,
        (key, class): (&[u8], Option<Class>),
        (value_bytes, taken): (u64, u64),
    ) {
        let count = self.records.staged.len();
        let now = cx.mono();
        let staged = self.records.staged.entry(ticket).or_insert_with(|| {
            let failed = if value_bytes > LARGE_VALUE_BYTES_MAX as u64 {
                Some(WriteRefusal::ValueTooLong {
                    bytes: value_bytes as usize,
                    bytes_max: LARGE_VALUE_BYTES_MAX,
                })
            } else {
                (count >= STAGED_MAX).then_some(WriteRefusal::NoMemory)
            };
            Staged {
                key: key.into(),
                class,
                value_bytes,
                taken: 0,
                queue: Vec::new(),
                tail: Vec::new(),
                evicted_bytes: 0,
                failed,
                ran_at: None,
                from,
                told: (0, StageState::Open),
                wanted_at: now,
            }
        });
        staged.wanted_at = now;
        if staged.taken < taken {
            self.records.fail_staged(ticket, WriteRefusal::NotStaged);
        }
        self.feed(cx, configuration, ticket, &[]);
    }

    /// Takes bytes of a value, from `at` on. Of those from a client of this node it takes only what can be sent on now.
    pub fn stage_bytes<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        ticket: Ticket,
        at: u64,
        bytes: &[u8],
    ) -> StagedSoFar {
        self.feed(cx, configuration, ticket, &[]);
        if let Some(staged) = self.records.staged.get_mut(&ticket) {
            staged.wanted_at = cx.now.mono;
            let here = staged.taken + staged.queue.len() as u64;
            // What came before is sent again after a loss.
            let fresh = here.checked_sub(at).and_then(|known| bytes.get(known as usize..));
            let fresh = fresh.filter(|fresh| here + fresh.len() as u64 <= staged.value_bytes);
            let (fresh, is_remote) = (fresh.unwrap_or_default(), staged.from.is_some());
            let taken = match staged.queue.is_empty() {
                true => self.feed(cx, configuration, ticket, fresh),
                false => 0,
            };
            let rest = fresh.get(taken..).unwrap_or_default();
            if let Some(staged) = self.records.staged.get_mut(&ticket)
                && is_remote
                && staged.failed.is_none()
                && (staged.queue.len() + rest.len()) as u64 <= 2 * cx.shared.parameters.piece_bytes
            {
                staged.queue.extend_from_slice(rest);
            }
        }
        self.records.staged_so_far(cx, ticket)
    }

    /// The value is not wanted any more, or its command has ended.
    pub fn unstage(&mut self, ticket: Ticket) {
        self.records.unstage(ticket);
    }

    /// Sends on what has come, and then some of `fresh`. Returns how much of that.
    fn feed<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        ticket: Ticket,
        fresh: &[u8],
    ) -> usize {
        let Some(staged) = self.records.staged.get_mut(&ticket) else {
            return 0;
        };
        let mut queue = core::mem::take(&mut staged.queue);
        let sent = self.send_on(cx, configuration, ticket, &queue);
        queue.drain(..sent);
        let is_all = queue.is_empty();
        if let Some(staged) = self.records.staged.get_mut(&ticket) {
            staged.queue = queue;
        }
        match is_all && !fresh.is_empty() {
            true => self.send_on(cx, configuration, ticket, fresh),
            false => 0,
        }
    }

    /// Sends on some of the next bytes of a value. Returns how many.
    fn send_on<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        ticket: Ticket,
        bytes: &[u8],
    ) -> usize {
        let (of, here) = (Origin::Staged(ticket), self.installed(configuration));
        let Some(staged) = self
            .records
            .staged
            .get(&ticket)
            .filter(|staged| staged.failed.is_none())
        else {
            return 0;
        };
        let (value_bytes, before) = (staged.value_bytes, staged.taken);
        if !self.records.uploads.contains_key(&of) {
            let begun = match before {
                0 => self.records.begin_staged(cx, &here, ticket),
                // Its bytes are gone.
                _ => Err(WriteRefusal::NotStaged),
            };
            if let Err(refusal) = begun {
                self.records.fail_staged(ticket, refusal);
                return 0;
            }
        }
        let result = self.records.send_value(cx, &here, of, before, bytes);
        let uploading = self.records.uploads.get(&of);
        let in_parts = uploading.map(|uploading| (uploading.sent_bytes, uploading.staged().body_bytes));
        match (result, in_parts) {
            (Err(Stop::Refused(WriteRefusal::NoMemory)), _)
                if before == 0 && self.evicts_for(cx, configuration, ticket, value_bytes) =>
            {
                self.wake.progress = true;
                self.records.resend_at = cx.mono();
                0
            }
            (Err(Stop::Refused(refusal)), _) => {
                self.records.fail_staged(ticket, refusal);
                0
            }
            // It has lost too many parts. If nothing was sent, it is begun again.
            (_, None) => {
                if before > 0 {
                    self.records.fail_staged(ticket, WriteRefusal::NotStaged);
                }
                0
            }
            (_, Some((sent_bytes, body_bytes))) => {
                let Some(staged) = self.records.staged.get_mut(&ticket) else {
                    return 0;
                };
                let mut taken = (before.max(sent_bytes) - before) as usize;
                if before + taken as u64 >= body_bytes {
                    let tail = bytes.get(taken..).unwrap_or_default();
                    staged.tail.extend_from_slice(tail);
                    taken += tail.len();
                }
                staged.taken = before + taken as u64;
                taken
            }
        }
    }

    /// A holder has no memory for a part: some keys are evicted, as for a value that comes with its command.
    fn evicts_for<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        ticket: Ticket,
        value_bytes: u64,
    ) -> bool {
        let chunk_bytes = cx.shared.arena.chunk_bytes() as u64;
        let staged = self.records.staged.get_mut(&ticket);
        let Some(staged) = staged.filter(|staged| staged.evicted_bytes < value_bytes) else {
            return false;
        };
        staged.evicted_bytes += chunk_bytes;
        self.store.policy().evicts()
            && self.admit_write(cx) == Admission::Admitted
            && evict(cx, configuration, self, chunk_bytes)
    }

    /// The record and the tail of a value that has come whole, once an object may name it.
    ///
    /// # Errors
    /// [`Stop::Wait`] until every holder has its part. A refusal if the value has not come whole.
    pub(in crate::stream_owner) fn sealed_staged<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        ticket: Ticket,
    ) -> Result<(Arc<Record>, Vec<u8>), Stop> {
        if self.records.is_by_client(ticket) {
            let here = self.installed(configuration);
            return self.records.sealed_by_client(cx, &here, ticket);
        }
        self.feed(cx, configuration, ticket, &[]);
        let staged = self.records.staged.get_mut(&ticket);
        let staged = staged.ok_or(Stop::Refused(WriteRefusal::NotStaged))?;
        staged.wanted_at = cx.now.mono;
        staged.ran_at = Some(cx.now.mono);
        if let Some(refusal) = staged.failed {
            return Err(Stop::Refused(refusal));
        }
        if staged.taken < staged.value_bytes {
            return Err(Stop::Refused(WriteRefusal::NotStaged));
        }
        let (taken, tail) = (staged.taken, staged.tail.clone());
        let here = self.installed(configuration);
        match self.records.send_value(cx, &here, Origin::Staged(ticket), taken, &[]) {
            Ok(sealed) => Ok((sealed, tail)),
            Err(Stop::Wait) if !self.records.uploads.contains_key(&Origin::Staged(ticket)) => {
                Err(Stop::Refused(WriteRefusal::NotStaged))
            }
            Err(stop) => Err(stop),
        }
    }

    /// Parts of a staged value have moved on: the rest is sent on, and its sender is told. `again`: the sender has
    /// asked, so it is answered even if nothing is new.
    pub(super) fn go_on_staged<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        ticket: Ticket,
        again: bool,
    ) {
        self.feed(cx, configuration, ticket, &[]);
        let Some(staged) = self.records.staged.get_mut(&ticket) else {
            return;
        };
        let Some((node, incarnation)) = staged.from else { return };
        let state = (staged.taken, staged.state(cx.mono(), cx.shared.parameters.lease));
        let is_whole = staged.taken == staged.value_bytes;
        let has_window = staged.taken - staged.told.0 >= cx.shared.parameters.piece_bytes / 2;
        let is_due = has_window || is_whole || state.1 != staged.told.1;
        if again || (state != staged.told && is_due) {
            staged.told = state;
            let message = Message::Staged {
                conn: ticket.conn,
                n: ticket.n,
                taken: state.0,
                state: state.1,
            };
            let epoch = configuration.epoch;
            cx.send_to(node, incarnation, Channel::Main, self.stream, epoch, &message);
        }
    }

    /// A message of a peer about a value that comes ahead of its command.
    pub(crate) fn on_stage<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        from: (NodeId, Incarnation),
        message: &Message<'_>,
    ) {
        let ticket_of = |conn, n| Ticket {
            node: from.0,
            incarnation: from.1,
            conn,
            n,
        };
        match *message {
            Message::Stage {
                conn,
                n,
                value_bytes,
                taken,
                key,
                class,
            } => {
                let ticket = ticket_of(conn, n);
                if self.phase != Phase::Serve {
                    let (taken, state) = (0, StageState::NotOwner);
                    let answer = Message::Staged { conn, n, taken, state };
                    cx.send_to(from.0, from.1, Channel::Main, self.stream, configuration.epoch, &answer);
                    return;
                }
                let class = str::from_utf8(class).ok().and_then(|class| class.parse().ok());
                let bytes = (value_bytes, taken);
                self.stage(cx, configuration, ticket, Some(from), (key, class), bytes);
                self.go_on_staged(cx, configuration, ticket, true);
            }
            Message::StageBytes { conn, n, at, bytes } => {
                let ticket = ticket_of(conn, n);
                self.stage_bytes(cx, configuration, ticket, at, bytes);
                if self.records.staged.contains_key(&ticket) {
                    return self.go_on_staged(cx, configuration, ticket, false);
                }
                let (taken, state) = (0, StageState::Over);
                let answer = Message::Staged { conn, n, taken, state };
                cx.send_to(from.0, from.1, Channel::Main, self.stream, configuration.epoch, &answer);
            }
            Message::GiveUp { conn, n } => {
                let ticket = ticket_of(conn, n);
                self.unstage(ticket);
                self.records.end_pin(ticket);
            }
            _ => {}
        }
    }

    /// Forgets values whose sender has gone.
    pub(super) fn tend_staged<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        forgotten: Span,
    ) {
        let now = cx.mono();
        let all: Vec<(Ticket, bool)> = self
            .records
            .staged
            .iter()
            .map(|(ticket, staged)| (*ticket, now > staged.wanted_at + forgotten))
            .collect();
        for (ticket, is_over) in all {
            match is_over {
                true => self.unstage(ticket),
                false => self.go_on_staged(cx, configuration, ticket, false),
            }
        }
    }
}
