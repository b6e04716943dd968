//! Replies that are a range of a large value. This node reads the value from its parts, and gives it to the client as
//! fast as the client reads it (P14.7, P14.21). The owner has pinned the parts.

use super::client::{Caller, Client, Forwarded, Segment, Wait};
use super::replies::{Verdict, earliest};
use super::stuck::{Stuck, wait_max};
use super::{Dispatcher, Router, lists_tenure};
use crate::dialect::Refusal;
use crate::memcached::Shown;
use paritas_base::configuration::Tenure;
use paritas_base::{ConnId, Epoch, Span, StreamId, Time};
use paritas_protocol::{Channel, Context, Fault, Lists, Mark, Out, Readers, ReplyBody, ReplyBuf, Ticket, ValueRange};
use paritas_wire::peer::Message;
use paritas_wire::resp::encode;

/// While more than this number of bytes waits to be sent to a client, no further bytes are read for it.
pub(crate) const UNSENT_BYTES_SOFT_MAX: usize = 1 << 20;
/// The most long replies of a client that are not sent, or as many bytes of shorter ones. Each is pinned at its owner.
pub(crate) const LONG_REPLIES_MAX: usize = 4;
/// Bytes that such a reply counts at least and at most. There may be more short ones than long ones.
const REPLY_BYTES_COUNTED: (u64, u64) = (64 << 10, 1 << 20);
/// The waits before a client that did not read is looked at again.
pub(crate) const LOOK_MIN: Span = Span::from_ms(1);
pub(crate) const LOOK_MAX: Span = Span::from_ms(64);

fn counted(bytes: u64) -> u64 {
    bytes.clamp(REPLY_BYTES_COUNTED.0, REPLY_BYTES_COUNTED.1)
}

/// The owner that has pinned the value.
#[derive(Debug)]
enum Owner {
    /// This node. The client may see the reply when what it waits for has come.
    Here(Tenure, Box<Wait>),
    /// Another node. If the value cannot be read, a command that reads may be sent again.
    Elsewhere {
        tenure: Tenure,
        command: Option<Box<Forwarded>>,
    },
}

/// One reply.
#[derive(Debug)]
pub(crate) struct Long {
    /// The number of the command at the owner.
    n: u64,
    stream: StreamId,
    owner: Owner,
    value: ValueRange,
    /// Bytes that are in the client's buffer, or sent.
    at: u64,
    /// The head of the reply is in the client's buffer, or sent.
    has_head: bool,
    is_done: bool,
    /// The value can't be read any more.
    is_gone: bool,
    /// The command may have changed something.
    is_write: bool,
    /// Too few parts answer.
    is_stuck: bool,
    /// When the owner's answer came.
    answered_at: Time,
    /// Since when the next bytes are missing.
    waits_since: Option<Time>,
    /// When the owner was last told that the value is still wanted.
    wanted_at: Time,
    /// The wait before the next look at a client that does not read, and the time of that look.
    look: Span,
    look_at: Time,
}

impl Long {
    fn new<O: Out>(
        cx: &Context<'_, O>,
        n: u64,
        stream: StreamId,
        owner: Owner,
        value: ValueRange,
        is_write: bool,
    ) -> Box<Self> {
        Box::new(Self {
            n,
            stream,
            owner,
            value,
            at: 0,
            has_head: false,
            is_done: false,
            is_gone: false,
            is_write,
            is_stuck: false,
            answered_at: cx.mono(),
            waits_since: None,
            wanted_at: cx.mono(),
            look: LOOK_MIN,
            look_at: Time(0),
        })
    }

    /// A reply whose owner is at this node.
    pub(crate) fn local<O: Out>(
        cx: &Context<'_, O>,
        n: u64,
        stream: StreamId,
        tenure: Tenure,
        first: Wait,
        value: ValueRange,
    ) -> Box<Self> {
        let is_write = matches!(first, Wait::Write { .. });
        Self::new(cx, n, stream, Owner::Here(tenure, Box::new(first)), value, is_write)
    }

    pub(crate) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Its length in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.value.bytes()
    }

    pub(crate) fn held_bytes(&self) -> usize {
        let command = match &self.owner {
            Owner::Elsewhere {
                command: Some(command), ..
            } => size_of::<Forwarded>() + command.command.capacity(),
            Owner::Elsewhere { command: None, .. } => 0,
            Owner::Here(..) => size_of::<Wait>(),
        };
        size_of::<Self>() + self.value.tail.capacity() + command
    }

    fn tenure(&self) -> Tenure {
        match &self.owner {
            Owner::Here(tenure, _) | Owner::Elsewhere { tenure, .. } => *tenure,
        }
    }
}

/// The result of a step.
enum Step {
    /// Bytes were added.
    Moved,
    /// The next bytes are not here.
    Waits,
    /// The client does not read.
    Full,
    Done,
    /// The reply is refused.
    Refused(Refusal),
    /// The reply can't be completed.
    Cut,
}

impl Client {
    /// Whether it has as many long replies as it may have.
    pub(crate) fn has_many_long_replies(&self) -> bool {
        self.long_bytes >= LONG_REPLIES_MAX as u64 * REPLY_BYTES_COUNTED.1
    }

    /// A long reply of this number of bytes has ended.
    pub(crate) fn end_long(&mut self, bytes: u64) {
        self.long_replies -= 1;
        self.long_bytes -= counted(bytes);
    }

    /// Whether no command behind its first reply was sent to an owner, or has run.
    fn has_run_nothing_behind_first(&self) -> bool {
        let mut behind = self.segments.iter().skip(1);
        behind.all(|segment| matches!(&segment.wait, Wait::Forwarded(forwarded) if forwarded.target.is_none()))
    }
}

impl Dispatcher {
    /// A client has a long reply from now on.
    pub(crate) fn note_long(&mut self, client: &mut Client, bytes: u64) {
        client.long_replies += 1;
        client.long_bytes += counted(bytes);
        if let Caller::Local(conn) = client.caller {
            self.long.push(conn);
        }
    }
}

impl Router {
    /// The answer to a forwarded command is a range of a large value.
    pub(crate) fn on_reply_body<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &Lists, reply: ReplyBody) {
        let ReplyBody {
            from,
            owner: (stream, since),
            conn,
            n,
            value,
        } = reply;
        let give_up = |cx: &mut Context<'_, O>| {
            let message = Message::GiveUp { conn, n };
            cx.send_to(from.0, from.1, Channel::Main, stream, since, &message);
        };
        let Some(client) = self.clients.get_mut(&conn) else {
            return give_up(cx);
        };
        let mut segments = client.segments.iter_mut().enumerate();
        let is_owner = |target: Tenure| (target.node, target.incarnation) == from && target.since == since;
        let is_it = |(_, segment): &(usize, &mut Segment)| match &segment.wait {
            Wait::Forwarded(f) => f.n == n && f.stream == stream && f.target.is_some_and(is_owner),
            _ => false,
        };
        let Some((place, segment)) = segments.find(is_it) else {
            return give_up(cx);
        };
        segment.answered = Some(stream);
        let Wait::Forwarded(mut forwarded) = core::mem::replace(&mut segment.wait, Wait::Ready) else {
            return;
        };
        let Some(tenure) = forwarded.target else { return };
        let bytes = value.bytes();
        client.element_bytes = client.element_bytes.max(bytes as usize);
        self.dispatcher.stuck.serves(stream);
        self.dispatcher.end_forwarded(client, &mut forwarded);
        if place > 0 {
            let mut readers = core::mem::take(&mut cx.shared.readers);
            readers.begin(cx, lists, stream, &value);
            cx.shared.readers = readers;
        }
        let is_write = forwarded.write;
        let command = match is_write && !cx.rules().fault(Fault::WriteBegunAgain) {
            true => {
                self.dispatcher.recycle(forwarded.command);
                None
            }
            false => Some(Box::new(forwarded)),
        };
        let owner = Owner::Elsewhere { tenure, command };
        if let Some(segment) = client.segments.get_mut(place) {
            segment.wait = Wait::Long(Long::new(cx, n, stream, owner, value, is_write));
        }
        self.dispatcher.note_long(client, bytes);
        self.dispatcher.releasable = true;
    }

    /// Goes on with all long replies.
    pub(crate) fn go_on_long<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &mut Lists) {
        if self.dispatcher.long.is_empty() {
            return;
        }
        let mut conns = core::mem::take(&mut self.dispatcher.long);
        conns.sort();
        conns.dedup();
        conns.retain(|conn| {
            self.keep_long(cx, lists, *conn);
            while self.send_long(cx, lists, *conn) || self.go_on_one_by_one(cx, lists, *conn) {
                self.release_caller(cx, lists, Caller::Local(*conn), false);
            }
            self.clients.get(conn).is_some_and(|client| client.long_replies > 0)
        });
        conns.append(&mut self.dispatcher.long);
        self.dispatcher.long = conns;
    }

    /// Tells owners that the long replies of a client are still wanted.
    fn keep_long<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &mut Lists, conn: ConnId) {
        let now = cx.mono();
        let Some(client) = self.clients.get_mut(&conn) else {
            return;
        };
        let local = client.ticket(cx);
        for segment in &mut client.segments {
            let Wait::Long(long) = &mut segment.wait else { continue };
            if now < long.wanted_at + cx.shared.parameters.lease {
                continue;
            }
            let is_stuck = long.is_stuck;
            tell_wanted(cx, lists, local, long, is_stuck);
        }
        self.dispatcher.check_at = self.dispatcher.check_at.min(now + cx.shared.parameters.lease);
    }

    /// Puts what is here of the first reply of a client into its buffer, if that is long. True if the reply has ended,
    /// and others may follow.
    fn send_long<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &mut Lists, conn: ConnId) -> bool {
        let now = cx.mono();
        loop {
            let Some(client) = self.clients.get_mut(&conn) else {
                return false;
            };
            let ticket = client.ticket(cx);
            let Some(head) = client.segments.front_mut() else {
                return false;
            };
            let is_element = head.is_element;
            let is_hidden = head.shown == Shown::Nothing;
            let Wait::Long(long) = &mut head.wait else {
                return false;
            };
            if long.is_done {
                return false;
            }
            let ticket = Ticket { n: long.n, ..ticket };
            if is_hidden {
                // Nobody reads it.
                let bytes = long.bytes();
                end(cx, lists, conn, ticket, long);
                head.wait = Wait::Ready;
                client.end_long(bytes);
                return true;
            }
            let mut readers = core::mem::take(&mut cx.shared.readers);
            let done = step(cx, lists, &mut self.dispatcher.stuck, &mut readers, conn, long);
            let (is_stuck, moved_at) = match done {
                Step::Waits => readers.progress(cx, long.stream, &long.value, long.at),
                Step::Done => {
                    readers.end(cx, long.stream, &long.value);
                    (false, None)
                }
                _ => (false, None),
            };
            cx.shared.readers = readers;
            let was_stuck = core::mem::replace(&mut long.is_stuck, is_stuck);
            if is_stuck && !was_stuck {
                tell_wanted(cx, lists, ticket, long, true);
            }
            match done {
                Step::Moved => {
                    long.look = LOOK_MIN;
                    long.waits_since = None;
                }
                waits @ (Step::Waits | Step::Full) => {
                    match waits {
                        Step::Full => long.waits_since = None,
                        _ => {
                            // Its bytes may have been missing while others were waited for: all wait once (P5.13).
                            let missing_at = moved_at.filter(|_| !long.has_head);
                            let began = missing_at.map_or(now, |at| at.max(long.answered_at));
                            let since = long.waits_since.get_or_insert(began);
                            *since = moved_at.map_or(*since, |at| at.max(*since));
                            long.is_gone |= now > *since + wait_max(cx);
                            if is_stuck && may_begin_again(cx, lists, long) {
                                self.begin_again(cx, conn);
                                return false;
                            }
                        }
                    }
                    if long.look_at <= now {
                        long.look_at = now + long.look;
                        long.look = Span((long.look.0 * 2).min(LOOK_MAX.0));
                    }
                    self.dispatcher.check_at = self.dispatcher.check_at.min(long.look_at);
                    return false;
                }
                Step::Done => {
                    long.is_done = true;
                    cx.out.mark(Mark::LongReplyRead);
                    end(cx, lists, conn, ticket, long);
                    let bytes = long.bytes();
                    client.end_long(bytes);
                    return true;
                }
                Step::Refused(refusal) if !is_element => {
                    end(cx, lists, conn, ticket, long);
                    let bytes = long.bytes();
                    client.end_long(bytes);
                    let mut reply = Vec::new();
                    client.dialect.refuse(&mut reply, refusal);
                    if let Some(segment) = client.segments.front_mut() {
                        (segment.wait, segment.length) = (Wait::Ready, 0);
                    }
                    let buffer = cx.out.client(conn);
                    if let (Some(buffer), Some(segment)) = (buffer, client.segments.front_mut()) {
                        segment.length = reply.len();
                        buffer.bytes.splice(buffer.released..buffer.released, reply);
                    }
                    return true;
                }
                Step::Cut | Step::Refused(_) => {
                    self.cut(cx, lists, conn);
                    return false;
                }
            }
        }
    }

    /// Sends the command of a client's first reply again, unless it would run behind a later command of the client: its
    /// value cannot be read, and the owner that has pinned it is gone.
    fn begin_again<O: Out>(&mut self, cx: &mut Context<'_, O>, conn: ConnId) {
        let Some(client) = self.clients.get_mut(&conn) else {
            return;
        };
        let has_run_nothing_more = client.has_run_nothing_behind_first();
        let Some(head) = client.segments.front_mut() else {
            return;
        };
        // The elements of one array need not be of one moment (P14.16).
        if !head.is_element && !has_run_nothing_more {
            return;
        }
        let Wait::Long(long) = &mut head.wait else { return };
        let bytes = long.bytes();
        let Owner::Elsewhere { command, .. } = &mut long.owner else {
            return;
        };
        let Some(command) = command.take() else { return };
        let mut forwarded = *command;
        forwarded.since = cx.mono();
        Dispatcher::detour(&mut client.detours, &mut forwarded);
        client.charge(&forwarded);
        client.end_long(bytes);
        if let Some(head) = client.segments.front_mut() {
            (head.wait, head.answered) = (Wait::Forwarded(forwarded), None);
        }
        self.dispatcher.resend_due = true;
        cx.out.mark(Mark::ReadBegunAgain);
    }

    /// Ends the connection of a client: nothing may follow half of a reply.
    pub(crate) fn cut<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &mut Lists, conn: ConnId) {
        cx.out.mark(Mark::LongReplyCut);
        let Some(client) = self.clients.get_mut(&conn) else {
            return;
        };
        Self::drop_long(cx, lists, conn, client);
        client.drop_replies();
        if let Some(buffer) = cx.out.client(conn) {
            buffer.bytes.truncate(buffer.released);
            client.show(buffer);
        }
    }

    /// A client has gone: its long replies are not wanted any more.
    pub(crate) fn drop_long<O: Out>(cx: &mut Context<'_, O>, lists: &mut Lists, conn: ConnId, client: &Client) {
        let ticket = client.ticket(cx);
        for segment in &client.segments {
            if let Wait::Long(long) = &segment.wait {
                end(cx, lists, conn, Ticket { n: long.n, ..ticket }, long);
            }
        }
    }
}

/// Bytes that wait to be sent to a client. Those of its later replies do not count: they leave only behind the reply
/// that is read now.
pub(crate) fn unsent_bytes(buffer: &ReplyBuf) -> usize {
    buffer.released + buffer.waiting
}

/// Adds the next bytes of a reply to the buffer of its client.
fn step<O: Out>(
    cx: &mut Context<'_, O>,
    lists: &Lists,
    stuck: &mut Stuck,
    readers: &mut Readers,
    conn: ConnId,
    long: &mut Long,
) -> Step {
    // A write was done, or may have been.
    let gone = match (long.has_head, long.is_write) {
        (true, _) => Step::Cut,
        (false, true) => Step::Refused(Refusal::Uncertain),
        (false, false) => Step::Refused(Refusal::Takeover),
    };
    if long.is_gone {
        return gone;
    }
    let Some(buffer) = cx.out.client(conn) else {
        return Step::Waits;
    };
    if unsent_bytes(buffer) > UNSENT_BYTES_SOFT_MAX {
        return Step::Full;
    }
    let mut deadline = None;
    // The head may leave only when the reply may be seen; what follows never changes.
    if let Owner::Here(tenure, first) = &long.owner
        && !long.has_head
    {
        if lists_tenure(lists, long.stream) != Some(*tenure) {
            return gone;
        }
        match stuck.judge(cx, lists, first) {
            Verdict::Hold => return Step::Waits,
            Verdict::Instead(refusal) => return Step::Refused(refusal),
            Verdict::Ready(until) => deadline = until,
        }
    }
    let Ok(fresh) = readers.next(cx, lists, long.stream, &long.value, long.at) else {
        return Step::Waits;
    };
    if lists_tenure(lists, long.stream) != Some(long.tenure()) {
        cx.out.mark(Mark::ReadUnderAnotherOwner);
    }
    let Some(buffer) = cx.out.client(conn) else {
        return Step::Waits;
    };
    let rest = long.bytes() - long.at;
    if fresh.is_empty() && rest > 0 {
        return gone;
    }
    let is_end = fresh.len() as u64 == rest;
    let mut around = (Vec::new(), Vec::new());
    if !long.has_head {
        encode::bulk_header(&mut around.0, long.bytes() as usize);
    }
    if is_end {
        encode::bulk_end(&mut around.1);
    }
    for bytes in [&around.0[..], fresh, &around.1[..]] {
        let at = buffer.released;
        if at == buffer.bytes.len() {
            buffer.bytes.extend_from_slice(bytes);
        } else {
            buffer.bytes.splice(at..at, bytes.iter().copied());
        }
        buffer.released += bytes.len();
    }
    buffer.deadline = earliest(buffer.deadline, deadline);
    long.at += fresh.len() as u64;
    long.has_head = true;
    if is_end { Step::Done } else { Step::Moved }
}

/// Whether a command whose value cannot be read may be sent again. It may if it has changed nothing (the commands of
/// writes are not kept), nothing of its reply was sent, and the pin has gone with the owner: an owner that has it would
/// answer the same again.
fn may_begin_again<O: Out>(cx: &Context<'_, O>, lists: &Lists, long: &Long) -> bool {
    let is_pinned = lists_tenure(lists, long.stream) == Some(long.tenure());
    let has_head = long.has_head && !cx.rules().fault(Fault::BegunAgainInReply);
    let is_kept = matches!(long.owner, Owner::Elsewhere { command: Some(_), .. });
    is_kept && !is_pinned && !has_head
}

/// Tells the owner that the value is still wanted.
fn tell_wanted<O: Out>(cx: &mut Context<'_, O>, lists: &mut Lists, client: Ticket, long: &mut Long, is_stuck: bool) {
    let now = cx.mono();
    long.wanted_at = now;
    let ticket = Ticket { n: long.n, ..client };
    match &long.owner {
        Owner::Here(tenure, _) => {
            let owner = lists.owner_mut(long.stream);
            if let Some((configuration, owner)) = owner.filter(|(_, owner)| owner.tenure() == *tenure) {
                owner.keep_pinned(now, configuration, ticket, is_stuck);
            }
        }
        Owner::Elsewhere { tenure, .. } => {
            let Ticket { conn, n, .. } = ticket;
            let message = Message::Wanted { conn, n, is_stuck };
            let epoch = installed_epoch(lists, long.stream, tenure);
            cx.send(tenure, Channel::Main, long.stream, epoch, &message);
        }
    }
}

/// Tells the owner that the value is not read any more.
fn end<O: Out>(cx: &mut Context<'_, O>, lists: &mut Lists, conn: ConnId, ticket: Ticket, long: &Long) {
    match &long.owner {
        Owner::Here(tenure, _) => {
            let owner = lists.owner_mut(long.stream);
            if let Some((_, owner)) = owner.filter(|(_, owner)| owner.tenure() == *tenure) {
                owner.end_pin(ticket);
            }
        }
        Owner::Elsewhere { tenure, .. } => {
            let message = Message::GiveUp { conn, n: long.n };
            cx.send(tenure, Channel::Main, long.stream, tenure.since, &message);
        }
    }
}

fn installed_epoch(lists: &Lists, stream: StreamId, tenure: &Tenure) -> Epoch {
    let list = lists.get(stream.list);
    list.map_or(tenure.since, |list| list.configuration.epoch)
}
