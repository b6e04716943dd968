//! Commands for a stream of another node, and their replies (docs/commands.md).
//!
//! Order: commands sent directly to an owner arrive in order. A command that cannot be sent at once, or that comes back
//! because the receiver is no longer the owner, is a *detour*: its client starts no new command until it is answered.
//! Every forwarded command carries the epoch at which its sender knew the owner. An owner of a later term refuses it.
//! When slots have moved, an owner that has refused one command refuses those sent behind it too (`check_direction`).
//! So of two commands on their way, the second never overtakes the first.

use super::ahead::Ahead;
use super::call::Call;
use super::client::{Caller, Client, Forwarded, LongValue, Segment, Wait};
use super::one_by_one::OneByOne;
use super::prefetch::slots_of;
use super::questions::{NO_CLIENT_COUNTS, NO_CLIENT_SCRIPTS};
use super::replies::earliest;
use super::stuck::{NO_CLIENT, is_lost};
use super::{Dispatcher, Ran, Router, lists_tenure};
use crate::dialect::{Dialect, Refusal};
use crate::memcached::Shown;
use crate::redis::commands::by_client::runs_at_owner_alone;
use crate::redis::commands::{Job, REPLY_BYTES_MAX};
use crate::redis::parts::word_count;
use crate::redis::refusals::{is_error, is_not_owner, is_reply_too_large, is_wrong_type};
use paritas_base::configuration::Tenure;
use paritas_base::{ConnId, Epoch, Incarnation, ListId, NodeId, Position, Span, StreamId, Time};
use paritas_protocol::{Channel, Context, Fault, Lists, Out, PeerCommand, Port, ReplyBody, WriteRefusal};
use paritas_wire::command::{self, Command, CommandSpec, flag};
use paritas_wire::peer::{FRAME_BYTES_MAX, Message, dialect};
use paritas_wire::resp::{self, Args, Decoded, Limits};

/// A command or reply from this node to itself: a stream may have moved here after its command was queued.
#[derive(Debug)]
pub(crate) enum Loopback {
    Forward {
        conn: ConnId,
        command: PeerCommand<'static>,
    },
    Reply {
        conn: ConnId,
        n: u64,
        bytes: Vec<u8>,
        deadline: Option<Time>,
    },
    ReplyBody(Box<ReplyBody>),
}

impl Loopback {
    pub(crate) fn held_bytes(&self) -> usize {
        match self {
            Self::Forward { command, .. } => command.bytes.len(),
            Self::Reply { bytes, .. } => bytes.capacity(),
            Self::ReplyBody(reply) => size_of::<ReplyBody>() + reply.value.tail.capacity(),
        }
    }
}

/// Bytes of a frame reserved for everything other than the command or reply.
const FRAME_REST_BYTES: usize = 256;
/// The most spare buffers kept for forwarded commands, and the largest capacity in bytes of one that is kept.
const SPARE_MAX: usize = 256;
const SPARE_BYTES_MAX: usize = 4 << 10;

/// From this number of bytes on a command is long. That with a value in one object is shorter.
const LONG_COMMAND_BYTES: usize = 128 << 10;
/// Time until such a command is tried again.
pub(crate) const CONGESTED_RETRY: Span = Span::from_ms(1);

/// Whether a command of `bytes` bytes must wait until the link to a peer has sent others.
pub(crate) fn is_congested<O: Out>(cx: &mut Context<'_, O>, to: NodeId, bytes: usize) -> bool {
    bytes >= LONG_COMMAND_BYTES && cx.is_backed_up(to, Channel::Main)
}

impl Dispatcher {
    /// Runs a command whose stream belongs to another node: forwards it, or redirects the client on the strict port.
    pub(crate) fn run_elsewhere<O: Out>(&mut self, call: &mut Call<'_, '_, O>, job: &Job<'_>, stream: StreamId) -> Ran {
        let Job { spec, args, .. } = *job;
        if call.client.port == Port::Cluster || runs_at_owner_alone(spec.id) {
            let owner = lists_tenure(call.lists, stream);
            let me = (call.cx.shared.node, call.cx.shared.incarnation);
            if owner.is_some_and(|o| (o.node, o.incarnation) == me) {
                // The role has halted, and its successor is not named yet.
                return self.stall_on(call, spec, stream);
            }
            let key = command::keys(spec, args).next().map_or(&[][..], |at| args.arg(at));
            let node = owner.and_then(|o| self.nodes.iter().position(|n| n.id == o.node));
            return match node {
                Some(at) => {
                    let start = call.turn.bytes.len();
                    if let Some(node) = self.nodes.get(at) {
                        call.client
                            .dialect
                            .redirect(&mut call.turn.bytes, key, &node.cluster_address);
                    }
                    self.push(call, start, Wait::Ready);
                    Ran::Done
                }
                None => self.reply_refusal(call, Refusal::NoOwner),
            };
        }
        if job.raw.len() + FRAME_REST_BYTES > FRAME_BYTES_MAX {
            let bytes_max = FRAME_BYTES_MAX - FRAME_REST_BYTES;
            let refusal = Refusal::Write(WriteRefusal::CommandTooLarge { bytes_max });
            return self.reply_refusal(call, refusal);
        }
        let list = call.lists.get(stream.list);
        if list.is_some_and(|list| is_lost(&list.configuration, stream.x)) {
            // Waiting would not help: the position will not be restored.
            return self.reply_refusal(call, Refusal::NoOwner);
        }
        // A command that cannot be sent now stays in the client's input, so that it keeps its place.
        let Some((owner, epoch)) = owner_at(call.lists, stream) else {
            return self.stall_on(call, spec, stream);
        };
        let n = call.client.command_n();
        if self.is_refused(call.cx, call.lists, stream) {
            return self.stall_on(call, spec, stream);
        }
        if is_congested(call.cx, owner.node, job.raw.len()) {
            self.retry_at = self.retry_at.min(call.cx.mono() + CONGESTED_RETRY);
            return Ran::Stalled;
        }
        if !send_forward(
            call.cx,
            call.client,
            &owner,
            stream,
            epoch,
            (n, call.client.database),
            job.raw,
        ) {
            return self.stall_on(call, spec, stream);
        }
        let mut command = self.spare.pop().unwrap_or_default();
        command.extend_from_slice(job.raw);
        let forwarded = Forwarded {
            n,
            stream,
            map: call.cx.shared.slots.version(),
            target: Some(owner),
            write: spec.is(flag::WRITE),
            database: call.client.database,
            command,
            reply_bytes: Forwarded::reply_charge(spec, args.len()),
            since: call.cx.mono(),
            detour: false,
            ahead: call.client.staging.as_ref().map(|staging| Ahead {
                value_bytes: staging.value_bytes(),
                running_at: Some(call.cx.mono()),
                asked_at: call.cx.mono(),
            }),
        };
        call.client.charge(&forwarded);
        let start = call.turn.bytes.len();
        self.push(call, start, Wait::Forwarded(forwarded));
        Ran::Done
    }

    /// Sends a part of a gathered command to its owner. If it cannot be sent now, or an earlier part for its stream
    /// could not (`behind`), it becomes a detour and is sent later.
    pub(crate) fn forward<O: Out>(
        &mut self,
        call: &mut Call<'_, '_, O>,
        spec: &CommandSpec,
        (stream, database): (StreamId, u8),
        command: Vec<u8>,
        behind: bool,
    ) -> Wait {
        let n = call.client.take_n();
        let reply_bytes = Forwarded::reply_charge(spec, word_count(&command));
        let me = (call.cx.shared.node, call.cx.shared.incarnation);
        let target = owner_at(call.lists, stream).filter(|(owner, epoch)| {
            !behind
                && !self.is_refused(call.cx, call.lists, stream)
                && (owner.node, owner.incarnation) != me
                && !is_congested(call.cx, owner.node, command.len())
                && send_forward(call.cx, call.client, owner, stream, *epoch, (n, database), &command)
        });
        let mut forwarded = Forwarded {
            n,
            stream,
            map: call.cx.shared.slots.version(),
            target: target.map(|(owner, _)| owner),
            write: spec.is(flag::WRITE),
            database,
            command,
            reply_bytes,
            since: call.cx.mono(),
            detour: false,
            ahead: None,
        };
        call.client.charge(&forwarded);
        if forwarded.target.is_none() {
            Self::detour(&mut call.client.detours, &mut forwarded);
            self.resend_due = true;
        }
        Wait::Forwarded(forwarded)
    }

    /// Makes a command a detour that is still to be sent.
    pub(crate) fn detour(detours: &mut usize, forwarded: &mut Forwarded) {
        forwarded.target = None;
        Self::go_behind(detours, forwarded);
    }

    /// Marks a command as a detour: its client starts no new command before it is answered.
    pub(crate) fn go_behind(detours: &mut usize, forwarded: &mut Forwarded) {
        if !core::mem::replace(&mut forwarded.detour, true) {
            *detours += 1;
        }
    }

    /// Releases the charge and the buffer of a forwarded command that is answered.
    pub(crate) fn forget(&mut self, client: &mut Client, mut forwarded: Forwarded) {
        self.end_forwarded(client, &mut forwarded);
        self.recycle(forwarded.command);
    }

    /// Releases the charge of a forwarded command that is answered.
    pub(crate) fn end_forwarded(&mut self, client: &mut Client, forwarded: &mut Forwarded) {
        client.discharge(forwarded);
        if core::mem::take(&mut forwarded.detour) {
            client.detours -= 1;
            self.resend_due |= client.detours > 0;
            self.wake = true;
        }
    }

    pub(crate) fn recycle(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < SPARE_MAX && buffer.capacity() <= SPARE_BYTES_MAX {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    /// Sends a reply that a peer's client may see to that peer.
    pub(crate) fn answer<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        to: (NodeId, Incarnation),
        conn: ConnId,
        n: u64,
        bytes: &[u8],
        deadline: Option<Time>,
    ) {
        if to == (cx.shared.node, cx.shared.incarnation) {
            self.loopback.push(Loopback::Reply {
                conn,
                n,
                bytes: bytes.to_vec(),
                deadline,
            });
            return;
        }
        let mut refusal = Vec::new();
        let bytes = if bytes.len() > REPLY_BYTES_MAX {
            Dialect::default().refuse(&mut refusal, Refusal::ReplyNotForwarded);
            &refusal
        } else {
            bytes
        };
        let stream = StreamId {
            list: ListId(0),
            x: Position(0),
        };
        let message = Message::Reply { conn, n, bytes };
        if cx.send_to(to.0, to.1, Channel::Main, stream, Epoch(0), &message)
            && let Some(buffer) = cx.out.peer(to.0, Channel::Main)
        {
            buffer.deadline = earliest(buffer.deadline, deadline);
        }
    }
}

impl Dispatcher {
    /// Tells a peer where it reads the reply of its client.
    pub(crate) fn answer_long<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        to: (NodeId, Incarnation),
        conn: ConnId,
        n: u64,
        long: LongValue,
        deadline: Option<Time>,
    ) {
        let LongValue { value, owner } = long;
        if to == (cx.shared.node, cx.shared.incarnation) {
            let reply = ReplyBody {
                from: to,
                owner,
                conn,
                n,
                value,
            };
            self.loopback.push(Loopback::ReplyBody(Box::new(reply)));
            return;
        }
        let mut record = Vec::new();
        value.record.encode(&mut record);
        let message = Message::ReplyBody {
            conn,
            n,
            from: value.range.start,
            to: value.range.end,
            record: &record,
            tail: &value.tail,
        };
        if cx.send_to(to.0, to.1, Channel::Main, owner.0, owner.1, &message)
            && let Some(buffer) = cx.out.peer(to.0, Channel::Main)
        {
            buffer.deadline = earliest(buffer.deadline, deadline);
        }
    }
}

/// The stream of a forwarded command by the current slot map. `None`: its keys now belong to several streams, or it
/// reads all keys of a stream and some of them have moved to another stream, so that it would visit them twice or not
/// at all.
pub(crate) fn stream_now<O: Out>(cx: &Context<'_, O>, forwarded: &Forwarded, args: &mut Args) -> Option<StreamId> {
    let slots = &cx.shared.slots;
    if forwarded.map == slots.version() {
        return Some(forwarded.stream);
    }
    let Ok(Decoded::Complete { .. }) = resp::decode(&forwarded.command, &Limits::DEFAULT, args) else {
        return None;
    };
    let args = args.list(&forwarded.command);
    let spec = command::resolve(args).ok()?;
    if !spec.has_keys() {
        let any = matches!(spec.id, Command::Dbsize | Command::Randomkey | Command::Scan);
        return any.then_some(forwarded.stream);
    }
    let mut streams = slots_of(slots, forwarded.database, spec, args).map(|slot| slots.stream_of(slot));
    let first = streams.next()?;
    streams.all(|stream| stream == first).then_some(first)
}

/// The tenure that owns a stream, and the epoch of the configuration that says so.
pub(crate) fn owner_at(lists: &Lists, stream: StreamId) -> Option<(Tenure, Epoch)> {
    let configuration = &lists.get(stream.list)?.configuration;
    Some((configuration.tenure(stream.x)?, configuration.epoch))
}

fn send_forward<O: Out>(
    cx: &mut Context<'_, O>,
    client: &Client,
    owner: &Tenure,
    stream: StreamId,
    epoch: Epoch,
    (n, database): (u64, u8),
    command: &[u8],
) -> bool {
    let Caller::Local(conn) = client.caller else {
        return false;
    };
    if (owner.node, owner.incarnation) == (cx.shared.node, cx.shared.incarnation) {
        // The role here has halted, and no successor is named yet: sending the command to this node would loop.
        return false;
    }
    let staged = match client.staging.as_ref().is_some_and(|staging| staging.n == n) {
        true => dialect::STAGED,
        false => 0,
    };
    let message = Message::Forward {
        conn,
        n,
        dialect: client.dialect.to_byte() | staged,
        database: match cx.rules().fault(Fault::ForwardedWithoutDatabase) {
            true => 0,
            false => database,
        },
        command,
    };
    cx.send(owner, Channel::Main, stream, epoch, &message)
}

impl Router {
    /// Handles an owner's reply to a forwarded command.
    pub(crate) fn on_reply<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        lists: &mut Lists,
        from: NodeId,
        conn: ConnId,
        n: u64,
        bytes: &[u8],
    ) {
        if conn == NO_CLIENT_COUNTS {
            self.dispatcher.on_counts(lists, from, bytes);
        }
        let is_answer = conn == NO_CLIENT_COUNTS || conn == NO_CLIENT_SCRIPTS;
        if is_answer {
            self.dispatcher.questions.on_answer(from, n);
        }
        if is_answer || conn == NO_CLIENT {
            return self.dispatcher.on_pong(cx, lists, from);
        }
        let Some(client) = self.clients.get_mut(&conn) else {
            return;
        };
        let mut detours = client.detours;
        let Some(forwarded) = client.forwards().find(|f| f.n == n) else {
            return;
        };
        if forwarded.target.map(|t| t.node) != Some(from) {
            return;
        }
        if is_not_owner(bytes) {
            // The command has changed nothing: it is sent to the next owner once that is known.
            let stream = forwarded.stream;
            if lists_tenure(lists, stream) == forwarded.target {
                self.dispatcher.wait_for(cx, lists, stream, cx.mono());
            } else {
                self.dispatcher.resend_due = true;
            }
            Dispatcher::detour(&mut detours, forwarded);
            client.detours = detours;
            self.dispatcher.check_at = self
                .dispatcher
                .check_at
                .min(cx.mono() + Span(cx.shared.parameters.resend.0 / 8));
            return;
        }
        // A reply of another node shows that its stream serves. A reply of this node to itself may be the refusal of a
        // stream that does not serve. If the stream serves here, that was noted when the command ran.
        if from != cx.shared.node {
            self.dispatcher.stuck.serves(forwarded.stream);
        }
        self.fill(cx, conn, n, bytes);
    }

    /// Inserts the bytes of an awaited reply at their place in the client's reply buffer.
    pub(crate) fn fill<O: Out>(&mut self, cx: &mut Context<'_, O>, conn: ConnId, n: u64, bytes: &[u8]) {
        let Some(client) = self.clients.get_mut(&conn) else {
            return;
        };
        let Some(buffer) = cx.out.client(conn) else { return };
        let mut at = buffer.released;
        let mut answered = None;
        let (dialect, last_write_n) = (client.dialect, client.last_write_n);
        let (is_too_large, mut element_bytes) = (is_reply_too_large(bytes), 0);
        let (mut bytes, mut nothing, mut one_by_one_bytes) = (bytes, Vec::new(), None);
        let (mut answered_at, mut gathered_bytes) = (None, 0);
        let mut found = None;
        for segment in &mut client.segments {
            match &mut segment.wait {
                Wait::Answer { .. } if segment.n == n => {
                    segment.wait = Wait::Ready;
                    found = Some(segment);
                }
                Wait::Forwarded(forwarded) if forwarded.n == n => {
                    if let Wait::Forwarded(forwarded) = core::mem::replace(&mut segment.wait, Wait::Ready) {
                        if is_too_large
                            && last_write_n <= segment.n
                            && segment.shown == Shown::All
                            && let args = &mut self.dispatcher.part_args
                            && let Some(one_by_one) = OneByOne::of_command(forwarded.database, &forwarded.command, args)
                        {
                            one_by_one_bytes = Some(one_by_one.held_bytes());
                            (segment.wait, bytes) = (Wait::OneByOne(one_by_one), &[]);
                        }
                        segment.answered = Some(forwarded.stream);
                        answered = Some(forwarded);
                    }
                    if segment.is_element {
                        element_bytes = bytes.len();
                    }
                    if segment.is_element && is_wrong_type(bytes) {
                        dialect.nothing(&mut nothing);
                        bytes = &nothing;
                    } else if segment.is_element && is_error(bytes) {
                        (segment.wait, bytes) = (Wait::Broken, &[]);
                    }
                    found = Some(segment);
                }
                Wait::Gathered(gather) => {
                    for (at_part, part) in gather.parts.iter_mut().enumerate() {
                        if matches!(&part.wait, Wait::Forwarded(f) if f.n == n) {
                            part.reply.extend_from_slice(bytes);
                            answered_at = Some(at_part);
                            if let Wait::Forwarded(forwarded) = core::mem::replace(&mut part.wait, Wait::Ready) {
                                answered = Some(forwarded);
                            }
                        }
                    }
                    if let Some(part) = answered_at {
                        gathered_bytes = gather.add(part);
                        self.dispatcher.releasable = true;
                        break;
                    }
                    at += segment.length;
                    continue;
                }
                _ => {
                    at += segment.length;
                    continue;
                }
            }
            break;
        }
        if let Some(segment) = found {
            segment.length = bytes.len();
            if at == buffer.bytes.len() {
                buffer.bytes.extend_from_slice(bytes);
            } else {
                buffer.bytes.splice(at..at, bytes.iter().copied());
            }
        }
        // Segments at the front that are ready are released here: that needs no stripe lists.
        while let Some(Segment {
            wait: Wait::Ready,
            shown: Shown::All,
            length,
            ..
        }) = client.segments.front()
        {
            buffer.released += length;
            client.segments.pop_front();
        }
        client.element_bytes = client.element_bytes.max(element_bytes);
        client.forwarded_bytes += gathered_bytes;
        if let Some(held_bytes) = one_by_one_bytes {
            self.dispatcher.note_one_by_one(client, held_bytes);
        }
        if let Some(forwarded) = answered {
            self.dispatcher.forget(client, forwarded);
        }
        client.show(buffer);
        self.dispatcher.releasable |= !client.segments.is_empty();
        self.dispatcher.wake |= client.full;
    }

    /// Inserts a refusal in place of an awaited reply.
    pub(crate) fn fill_refusal<O: Out>(&mut self, cx: &mut Context<'_, O>, conn: ConnId, n: u64, refusal: Refusal) {
        let Some(client) = self.clients.get(&conn) else { return };
        let mut reply = Vec::new();
        client.dialect.refuse(&mut reply, refusal);
        self.fill(cx, conn, n, &reply);
    }
}
