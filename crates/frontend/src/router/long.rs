//! Replies that are one long value: they go to the client piece by piece, as fast as it reads them (P14.7).

use super::client::{Caller, Client, Segment, Wait};
use super::replies::{Verdict, earliest};
use super::stuck::{Stuck, wait_max};
use super::{Dispatcher, Router, lists_tenure};
use crate::dialect::Refusal;
use crate::memcached::Shown;
use paritas_base::configuration::Tenure;
use paritas_base::{ConnId, Epoch, NodeId, Span, StreamId, Time};
use paritas_protocol::{Channel, Context, Lists, LongReply, Mark, Out, ReplyBuf, STILL_WANTED, Ticket};
use paritas_wire::peer::Message;
use paritas_wire::resp::encode;

/// While more than this number of bytes waits to be sent to a client, no further piece is read for it.
pub(crate) const UNSENT_BYTES_SOFT_MAX: usize = 1 << 20;
/// The most long replies of a client that are not sent. Each is pinned at its owner.
pub(crate) const LONG_REPLIES_MAX: usize = 4;
/// The waits before a client that did not read is looked at again.
pub(crate) const LOOK_MIN: Span = Span::from_ms(1);
pub(crate) const LOOK_MAX: Span = Span::from_ms(64);

/// Where the value is read.
#[derive(Debug)]
enum Source {
    /// The owner at this node. The client may see the reply when what it waits for has come.
    Local(Tenure, Box<Wait>),
    /// The owner at another node.
    Remote {
        target: Tenure,
        epoch: Epoch,
        /// When it was asked for the bytes at [`Long::at`].
        asked_at: Option<Time>,
        /// The bytes that it has sent and the client's buffer does not have.
        piece: Vec<u8>,
    },
}

/// One reply.
#[derive(Debug)]
pub(crate) struct Long {
    /// The number of the command at the owner.
    n: u64,
    stream: StreamId,
    source: Source,
    bytes: u64,
    /// Bytes that are in the client's buffer, or sent.
    at: u64,
    /// The head of the reply is in the client's buffer, or sent.
    has_head: bool,
    is_done: bool,
    /// The value can't be read any more.
    is_gone: bool,
    /// The command may have changed something.
    is_write: bool,
    /// Since when the owner owes the next bytes.
    waits_since: Option<Time>,
    /// When the owner was last told that the reply is still wanted.
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
        source: Source,
        bytes: u64,
        is_write: bool,
    ) -> Box<Self> {
        Box::new(Self {
            n,
            stream,
            source,
            bytes,
            at: 0,
            has_head: false,
            is_done: false,
            is_gone: false,
            is_write,
            waits_since: None,
            wanted_at: cx.mono(),
            look: LOOK_MIN,
            look_at: Time(0),
        })
    }

    /// A reply that is read at the owner at this node.
    pub(crate) fn local<O: Out>(
        cx: &Context<'_, O>,
        n: u64,
        stream: StreamId,
        tenure: Tenure,
        first: Wait,
        bytes: u64,
    ) -> Box<Self> {
        let is_write = matches!(first, Wait::Write { .. });
        Self::new(cx, n, stream, Source::Local(tenure, Box::new(first)), bytes, is_write)
    }

    pub(crate) fn is_done(&self) -> bool {
        self.is_done
    }

    pub(crate) fn held_bytes(&self) -> usize {
        let piece = match &self.source {
            Source::Remote { piece, .. } => piece.capacity(),
            Source::Local(..) => 0,
        };
        size_of::<Self>() + piece
    }

    fn is_from(&self, node: NodeId) -> bool {
        matches!(&self.source, Source::Remote { target, .. } if target.node == node)
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
        self.long_replies >= LONG_REPLIES_MAX
    }
}

impl Dispatcher {
    /// A client has a long reply from now on.
    pub(crate) fn note_long(&mut self, client: &mut Client) {
        client.long_replies += 1;
        if let Caller::Local(conn) = client.caller {
            self.long.push(conn);
        }
    }
}

impl Router {
    /// The answer to a forwarded command is one long value.
    pub(crate) fn on_long_reply<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &Lists, reply: &LongReply) {
        let LongReply {
            from,
            owner: (stream, since),
            conn,
            n,
            bytes,
        } = *reply;
        let give_up = |cx: &mut Context<'_, O>| {
            let message = Message::GiveUp { conn, n };
            cx.send_to(from.0, from.1, Channel::Main, stream, since, &message);
        };
        let Some(client) = self.clients.get_mut(&conn) else {
            return give_up(cx);
        };
        let mut segments = client.segments.iter_mut();
        let is_owner = |target: Tenure| (target.node, target.incarnation) == from && target.since == since;
        let is_it = |segment: &&mut Segment| match &segment.wait {
            Wait::Forwarded(f) => f.n == n && f.stream == stream && f.target.is_some_and(is_owner),
            _ => false,
        };
        let Some(segment) = segments.find(is_it) else {
            return give_up(cx);
        };
        segment.answered = Some(stream);
        let wait = &mut segment.wait;
        let Wait::Forwarded(forwarded) = core::mem::replace(wait, Wait::Ready) else {
            return;
        };
        if let Some(target) = forwarded.target {
            let epoch = lists
                .get(forwarded.stream.list)
                .map_or(target.since, |list| list.configuration.epoch);
            let is_self = (target.node, target.incarnation) == (cx.shared.node, cx.shared.incarnation);
            let source = match is_self {
                true => Source::Local(target, Box::new(Wait::Ready)),
                false => Source::Remote {
                    target,
                    epoch,
                    asked_at: None,
                    piece: Vec::new(),
                },
            };
            *wait = Wait::Long(Long::new(cx, n, forwarded.stream, source, bytes, forwarded.write));
        }
        self.dispatcher.stuck.serves(forwarded.stream);
        self.dispatcher.forget(client, forwarded);
        client.element_bytes = usize::MAX;
        self.dispatcher.note_long(client);
        self.dispatcher.releasable = true;
    }

    /// Bytes of a long reply from its owner; `None`: it can't be read any more.
    pub(crate) fn on_reply_bytes(&mut self, from: NodeId, conn: ConnId, n: u64, at: u64, bytes: Option<&[u8]>) {
        let Some(client) = self.clients.get_mut(&conn) else {
            return;
        };
        let mut long = client
            .segments
            .iter_mut()
            .filter_map(|segment| match &mut segment.wait {
                Wait::Long(long) => Some(long),
                _ => None,
            });
        let Some(long) = long.find(|long| long.n == n && long.is_from(from)) else {
            return;
        };
        let Some(bytes) = bytes else {
            long.is_gone = true;
            return;
        };
        if let Source::Remote { asked_at, piece, .. } = &mut long.source
            && at == long.at
            && piece.is_empty()
            && asked_at.is_some()
        {
            piece.extend_from_slice(bytes);
            *asked_at = None;
        }
    }

    /// The node or the link to it is gone: replies that are read there end.
    pub(crate) fn lose_long_replies(&mut self, node: NodeId) {
        for conn in &self.dispatcher.long {
            let Some(client) = self.clients.get_mut(conn) else {
                continue;
            };
            for segment in &mut client.segments {
                if let Wait::Long(long) = &mut segment.wait {
                    long.is_gone |= long.is_from(node);
                }
            }
        }
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
            long.wanted_at = now;
            match &long.source {
                Source::Local(tenure, _) => {
                    if let Some((configuration, owner)) = lists.owner_mut(long.stream)
                        && owner.tenure() == *tenure
                    {
                        let ticket = Ticket { n: long.n, ..local };
                        let _ = owner.read_long_reply(cx, configuration, ticket, STILL_WANTED);
                    }
                }
                Source::Remote { target, epoch, .. } => {
                    let (n, at) = (long.n, STILL_WANTED);
                    let message = Message::ReadReply { conn, n, at };
                    cx.send(target, Channel::Main, long.stream, *epoch, &message);
                }
            }
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
                end(cx, lists, conn, ticket, long);
                head.wait = Wait::Ready;
                client.long_replies -= 1;
                return true;
            }
            match step(cx, lists, &mut self.dispatcher.stuck, conn, ticket, long) {
                Step::Moved => {
                    long.look = LOOK_MIN;
                    long.waits_since = None;
                }
                waits @ (Step::Waits | Step::Full) => {
                    match waits {
                        Step::Full => long.waits_since = None,
                        _ if now > *long.waits_since.get_or_insert(now) + wait_max(cx) => long.is_gone = true,
                        _ => {}
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
                    client.long_replies -= 1;
                    cx.out.mark(Mark::LongReplyRead);
                    end(cx, lists, conn, ticket, long);
                    return true;
                }
                Step::Refused(refusal) if !is_element => {
                    end(cx, lists, conn, ticket, long);
                    client.long_replies -= 1;
                    let mut reply = Vec::new();
                    client.dialect.refuse(&mut reply, refusal);
                    let buffer = cx.out.client(conn);
                    if let (Some(buffer), Some(segment)) = (buffer, client.segments.front_mut()) {
                        segment.length = reply.len();
                        segment.wait = Wait::Ready;
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
    lists: &mut Lists,
    stuck: &mut Stuck,
    conn: ConnId,
    ticket: Ticket,
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
    let now = cx.mono();
    let mut deadline = None;
    let fresh = match &mut long.source {
        Source::Local(tenure, first) => {
            if lists_tenure(lists, long.stream) != Some(*tenure) {
                return gone;
            }
            // The head may leave only when the reply may be seen; what follows never changes.
            if !long.has_head {
                match stuck.judge(cx, lists, first) {
                    Verdict::Hold => return Step::Waits,
                    Verdict::Instead(refusal) => return Step::Refused(refusal),
                    Verdict::Ready(until) => deadline = until,
                }
            }
            let Some((configuration, owner)) = lists.owner_mut(long.stream) else {
                return gone;
            };
            match owner.read_long_reply(cx, configuration, ticket, long.at) {
                None => return gone,
                Some(Err(_)) => return Step::Waits,
                Some(Ok(bytes)) => bytes,
            }
        }
        Source::Remote {
            target,
            epoch,
            asked_at,
            piece,
        } => {
            if piece.is_empty() {
                let is_due = asked_at.is_none_or(|at| now > at + cx.shared.parameters.resend);
                if is_due {
                    let (n, at) = (long.n, long.at);
                    let message = Message::ReadReply { conn, n, at };
                    cx.send(target, Channel::Main, long.stream, *epoch, &message);
                    (*asked_at, long.wanted_at) = (Some(now), now);
                }
                return Step::Waits;
            }
            piece.as_slice()
        }
    };
    let Some(buffer) = cx.out.client(conn) else {
        return Step::Waits;
    };
    let rest = long.bytes - long.at;
    let fresh = fresh.get(..rest as usize).unwrap_or(fresh);
    if fresh.is_empty() && rest > 0 {
        return gone;
    }
    let is_end = fresh.len() as u64 == rest;
    let mut around = (Vec::new(), Vec::new());
    if !long.has_head {
        encode::bulk_header(&mut around.0, long.bytes as usize);
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
    if let Source::Remote { piece, .. } = &mut long.source {
        piece.clear();
    }
    if is_end { Step::Done } else { Step::Moved }
}

/// Tells the owner that a reply is not read any more.
fn end<O: Out>(cx: &mut Context<'_, O>, lists: &mut Lists, conn: ConnId, ticket: Ticket, long: &Long) {
    match &long.source {
        Source::Local(tenure, _) => {
            let owner = lists.owner_mut(long.stream);
            if let Some((_, owner)) = owner.filter(|(_, owner)| owner.tenure() == *tenure) {
                owner.end_long_reply(ticket);
            }
        }
        Source::Remote { target, epoch, .. } => {
            let message = Message::GiveUp { conn, n: long.n };
            cx.send(target, Channel::Main, long.stream, *epoch, &message);
        }
    }
}
