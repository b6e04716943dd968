//! A command whose value is too long to be held: the value goes to its owner as it comes (P14.13). When all of it has
//! gone there, the command runs without it.

use super::ahead::note_ahead;
use super::call::Call;
use super::client::{Caller, Client, Wait};
use super::long::UNSENT_BYTES_SOFT_MAX;
use super::stuck::{silent_since, wait_max};
use super::{Dispatcher, Ran, Router, forward, lists_tenure};
use crate::dialect::Refusal;
use paritas_base::configuration::Tenure;
use paritas_base::{ConnId, Epoch, NodeId, Span, StreamId, Time};
use paritas_protocol::{Channel, Class, Context, LARGE_VALUE_BYTES_MAX, Lists, Out, Phase, Port, Ticket, WriteRefusal};
use paritas_store::KEY_BYTES_MAX;
use paritas_wire::command::{self, Command};
use paritas_wire::peer::{Message, StageState};
use paritas_wire::resp::{ArgList, Args, Decoded, Limits, ProtocolError, decode};

/// The most bytes of the arguments behind the value.
const AFTER_BYTES_MAX: usize = 64 << 10;
/// No holder is asked for memory before this number of bytes of the value has come.
const FIRST_BYTES: usize = 32 << 10;
/// A client that sends fewer than `SLOW_BYTES` of a value in this time holds memory for nothing: its value is given up.
const SLOW_SPAN: Span = Span::from_secs(10);
const SLOW_BYTES: u64 = 640 << 10;

/// Whether the argument behind these may be a long value, which is sent ahead of its command.
pub(crate) fn is_value(args: ArgList<'_>) -> bool {
    command::lookup(args.arg(0)).is_some_and(|spec| usize::from(spec.value_at) == args.len())
}

/// The key of a command that may have a long value.
pub(super) fn key_of(args: ArgList<'_>) -> &[u8] {
    let spec = command::lookup(args.arg(0));
    args.arg(spec.map_or(1, |spec| usize::from(spec.first_key.unsigned_abs().max(1))))
}

/// The class that the command gives its value.
fn class_of(args: ArgList<'_>) -> Option<Class> {
    let spec = command::lookup(args.arg(0));
    spec.filter(|spec| spec.id == Command::ParitasSet)?;
    let class = str::from_utf8(args.arg(1)).ok()?;
    class.to_ascii_lowercase().parse().ok()
}

/// Where the bytes of the value go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Destination {
    /// It is not known yet.
    Unknown,
    /// The owner at this node.
    Local(Tenure),
    /// The owner at another node. It has been asked whether it takes them.
    Asked(Tenure, Epoch),
    /// The owner at another node, which takes them.
    Remote(Tenure, Epoch),
    /// They are thrown away: the command will be refused.
    Discard,
}

/// One command with its value.
#[derive(Debug)]
pub(crate) struct Staging {
    /// The number of the command.
    pub(crate) n: u64,
    /// The command up to the value, as the client sent it.
    head: Vec<u8>,
    key: Vec<u8>,
    /// That which the command gives the value. The command itself refuses what is none.
    class: Option<Class>,
    stream: StreamId,
    value_bytes: u64,
    /// Bytes of the value that the client has sent.
    at: u64,
    destination: Destination,
    /// Why the command is refused without being run.
    refusal: Option<Refusal>,
    /// The bytes just before `at` that the owner at another node has not reported as taken.
    untaken: Vec<u8>,
    /// When the client sent bytes last, or the owner took some.
    moved_at: Time,
    /// When bytes were sent to the owner a second time.
    resent_at: Time,
    /// When the owner was last told that the value still comes.
    told_at: Time,
    /// The owner that has said last that it does not serve the stream.
    refused_by: Option<Tenure>,
    /// The value of `at` when the speed was measured last, and that time.
    measured: (u64, Time),
}

impl Staging {
    pub(crate) fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.head.capacity() + self.key.capacity() + self.untaken.capacity()
    }

    fn taken(&self) -> u64 {
        self.at - self.untaken.len() as u64
    }

    /// Refuses the command here, because its stream has not served for the whole wait of commands (P5.13). The owner,
    /// if there is one, does not know when the wait began, and would begin a second wait.
    fn end_wait(&mut self) {
        self.destination = Destination::Discard;
        self.refusal.get_or_insert(Refusal::Unavailable);
    }

    pub(crate) fn value_bytes(&self) -> u64 {
        self.value_bytes
    }
}

/// What a command with a long value waits for, after a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Then {
    /// More input.
    Input,
    /// The owner.
    Stalled,
    /// Nothing: it has a segment.
    Done,
    /// The input is no command: the connection ends.
    Broken(ProtocolError),
    /// It has a segment, and the connection ends after it.
    Close,
}

impl Dispatcher {
    /// A command comes whose next argument is too long to be held: `args` are those before it, in `head`.
    pub(crate) fn begin_staging<O: Out>(
        &mut self,
        call: &mut Call<'_, '_, O>,
        args: ArgList<'_>,
        head: &[u8],
        value_bytes: usize,
    ) {
        let is_value = is_value(args);
        // What is kept for EXEC is kept whole.
        let is_kept = call.client.is_in_transaction();
        let bytes_max = match is_value && !is_kept {
            true => LARGE_VALUE_BYTES_MAX,
            false => Limits::DEFAULT.whole_bytes_max,
        };
        call.client.break_transaction();
        let key = key_of(args);
        let key_bytes = key.len();
        let refusal = if !is_value || is_kept || value_bytes > bytes_max {
            Some(WriteRefusal::ValueTooLong {
                bytes: value_bytes,
                bytes_max,
            })
        } else {
            (key_bytes > KEY_BYTES_MAX).then_some(WriteRefusal::KeyTooLong {
                bytes: key_bytes,
                bytes_max: KEY_BYTES_MAX,
            })
        };
        let is_refused = refusal.is_some();
        let stream = call.cx.shared.slots.stream_of_key(call.client.database, key);
        // A client of the strict port is told where the owner is.
        let is_elsewhere = call.client.port == Port::Cluster && call.lists.owner(stream).is_none();
        let now = call.cx.mono();
        let staging = Staging {
            n: call.client.take_n(),
            head: head.to_vec(),
            key: if is_refused { Vec::new() } else { key.to_vec() },
            class: class_of(args),
            stream,
            value_bytes: value_bytes as u64,
            at: 0,
            destination: if is_refused || is_elsewhere {
                Destination::Discard
            } else {
                Destination::Unknown
            },
            refusal: refusal.map(Refusal::Write),
            untaken: Vec::new(),
            moved_at: now,
            resent_at: now,
            told_at: Time(0),
            refused_by: None,
            measured: (0, now),
        };
        call.client.staging = Some(Box::new(staging));
        if let Caller::Local(conn) = call.client.caller {
            self.staging.push(conn);
        }
        self.check_at = self.check_at.min(now + call.cx.shared.parameters.lease_renewal);
    }

    /// Takes input of a command with a long value. Returns how much of it, and what it waits for.
    pub(crate) fn go_on_staging<O: Out>(&mut self, call: &mut Call<'_, '_, O>, input: &[u8]) -> (usize, Then) {
        let Some(mut staging) = call.client.staging.take() else {
            return (0, Then::Done);
        };
        let mut used = 0;
        let then = loop {
            let rest = input.get(used..).unwrap_or_default();
            let left = (staging.value_bytes - staging.at) as usize;
            if left == 0 {
                break None;
            }
            let rest = rest.get(..left).unwrap_or(rest);
            let is_begun = staging.at > 0 || staging.destination == Destination::Discard;
            if rest.is_empty() || (!is_begun && rest.len() < left.min(FIRST_BYTES)) {
                break Some(Then::Input);
            }
            match self.send_on(call.cx, call.lists, call.client, &mut staging, rest) {
                0 if staging.destination == Destination::Discard => {}
                0 => break Some(Then::Stalled),
                some => {
                    used += some;
                    staging.at += some as u64;
                    staging.moved_at = call.cx.mono();
                }
            }
        };
        let is_taken = staging.untaken.is_empty() || staging.destination == Destination::Discard;
        call.client.staging = Some(staging);
        match then {
            Some(then) => (used, then),
            None if !is_taken => (used, Then::Stalled),
            None => {
                let rest = input.get(used..).unwrap_or_default();
                let (more, then) = self.run_staged(call, rest);
                (used + more, then)
            }
        }
    }

    /// Sends on some bytes of the value. Returns how many. 0: it must wait, or the destination has changed.
    fn send_on<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        lists: &mut Lists,
        client: &Client,
        staging: &mut Staging,
        bytes: &[u8],
    ) -> usize {
        match staging.destination {
            Destination::Discard => bytes.len(),
            Destination::Unknown => {
                self.find_owner(cx, lists, client, staging);
                0
            }
            Destination::Asked(target, _) => {
                if lists_tenure(lists, staging.stream) != Some(target) {
                    staging.destination = Destination::Unknown;
                    self.retry_at = self.retry_at.min(cx.mono() + cx.shared.parameters.retry);
                }
                0
            }
            Destination::Local(tenure) => {
                let ticket = ticket_of(cx, client, staging.n);
                let owner = lists.owner_mut(staging.stream);
                let Some((configuration, owner)) = owner.filter(|(_, owner)| owner.tenure() == tenure) else {
                    staging.destination = Destination::Discard;
                    return 0;
                };
                let so_far = owner.stage_bytes(cx, configuration, ticket, staging.at, bytes);
                if so_far.state != StageState::Open {
                    if so_far.state == StageState::NoMemory {
                        staging.refusal = Some(Refusal::Write(WriteRefusal::NoMemory));
                        owner.unstage(ticket);
                    }
                    staging.destination = Destination::Discard;
                }
                so_far.taken.saturating_sub(staging.at) as usize
            }
            Destination::Remote(target, epoch) => {
                let piece_bytes = cx.shared.parameters.piece_bytes as usize;
                let room = (2 * piece_bytes).saturating_sub(staging.untaken.len());
                let count = bytes.len().min(room).min(piece_bytes.div_ceil(2));
                let is_full = !may_send_bytes(cx, &target);
                if is_full {
                    self.retry_at = self.retry_at.min(cx.mono() + forward::CONGESTED_RETRY);
                }
                let (Some(some), false, Caller::Local(conn)) = (bytes.get(..count), is_full, client.caller) else {
                    return 0;
                };
                let message = Message::StageBytes {
                    conn,
                    n: staging.n,
                    at: staging.at,
                    bytes: some,
                };
                if count > 0 {
                    cx.send(&target, Channel::Bulk, staging.stream, epoch, &message);
                    staging.untaken.extend_from_slice(some);
                }
                count
            }
        }
    }

    /// Finds the owner that takes the value.
    fn find_owner<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        lists: &mut Lists,
        client: &Client,
        staging: &mut Staging,
    ) {
        let now = cx.mono();
        staging.stream = cx.shared.slots.stream_of_key(client.database, &staging.key);
        let stream = staging.stream;
        if now > staging.moved_at + wait_max(cx) || self.is_refused(cx, lists, stream) {
            return self.end_wait(staging);
        }
        self.retry_at = self.retry_at.min(now + cx.shared.parameters.retry);
        if let Some((configuration, owner)) = lists.owner_mut(stream) {
            if owner.phase() == Phase::Serve {
                let ticket = ticket_of(cx, client, staging.n);
                let tenure = owner.tenure();
                let bytes = (staging.value_bytes, staging.at);
                owner.stage(cx, configuration, ticket, None, (&staging.key, staging.class), bytes);
                staging.destination = Destination::Local(tenure);
                return;
            }
            return self.wait_to_stage(cx, lists, staging);
        }
        let (Some((owner, epoch)), Caller::Local(conn)) = (forward::owner_at(lists, stream), client.caller) else {
            return self.wait_to_stage(cx, lists, staging);
        };
        // The owner may not serve yet, or not know that it is one: the value waits with all commands of the stream.
        if staging.refused_by == Some(owner) {
            if self.stuck.is_idle(stream, owner) {
                return self.end_wait(staging);
            }
            self.wait_to_stage(cx, lists, staging);
            if staging.destination == Destination::Discard {
                return;
            }
        }
        if now < staging.told_at + cx.shared.parameters.retry {
            return;
        }
        let is_self = (owner.node, owner.incarnation) == (cx.shared.node, cx.shared.incarnation);
        if !is_self && send_stage(cx, conn, staging, &owner, epoch) {
            staging.destination = Destination::Asked(owner, epoch);
            return;
        }
        self.wait_to_stage(cx, lists, staging);
    }

    /// The stream of a value does not serve: all commands for it wait together, once (P5.13).
    fn wait_to_stage<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &Lists, staging: &mut Staging) {
        let now = cx.mono();
        let end = self.wait_for(cx, lists, staging.stream, now) + wait_max(cx);
        if now >= end {
            self.end_wait(staging);
        } else {
            self.retry_at = self.retry_at.min(end);
        }
    }

    /// A value has waited as long as commands may. If its owner has answered that it does not serve, it is asked again
    /// for each further value, which does not wait (P5.13).
    fn end_wait(&mut self, staging: &mut Staging) {
        if let Some(owner) = staging.refused_by {
            self.stuck.note_idle(staging.stream, owner);
        }
        staging.end_wait();
    }

    /// The value has come: runs the command once its last arguments are here.
    fn run_staged<O: Out>(&mut self, call: &mut Call<'_, '_, O>, input: &[u8]) -> (usize, Then) {
        let Some(staging) = call.client.staging.as_ref() else {
            return (0, Then::Done);
        };
        match input.get(..2) {
            None => return (0, Then::Input),
            Some(b"\r\n") => {}
            Some(_) => return (0, Then::Broken(ProtocolError::InvalidBulkLength)),
        }
        // Input behind the command is not copied each time.
        let after = input.get(2..).unwrap_or_default();
        let after = after.get(..AFTER_BYTES_MAX).unwrap_or(after);
        let empty = b"$0\r\n\r\n";
        let before_bytes = staging.head.len() + empty.len();
        let raw = [&staging.head[..], empty, after].concat();
        let refusal = staging.refusal;
        let mut args = Args::new();
        let whole = match decode(&raw, &Limits::DEFAULT, &mut args) {
            Ok(Decoded::Complete { consumed }) => consumed,
            Ok(Decoded::Incomplete { .. }) if after.len() < AFTER_BYTES_MAX => return (0, Then::Input),
            Ok(_) => return (0, Then::Broken(ProtocolError::TooBigRequest)),
            Err(error) => return (0, Then::Broken(error)),
        };
        let command = raw.get(..whole).unwrap_or_default();
        let list = args.list(command);
        let ran = match refusal {
            Some(refusal) => {
                let is_full = refusal == Refusal::Write(WriteRefusal::NoMemory);
                call.cx.shared.refused_writes += u64::from(is_full);
                self.reply_refusal(call, refusal)
            }
            None => {
                let ahead = self.look_ahead(call.cx, call.lists, call.client.database, list, 0..whole);
                self.run(call, &ahead, list, command)
            }
        };
        let used = whole.saturating_sub(before_bytes) + 2;
        match ran {
            Ran::Stalled => return (0, Then::Stalled),
            Ran::Close => {
                call.client.staging = None;
                return (used, Then::Close);
            }
            Ran::Done | Ran::AboutClients => {}
        }
        let Some(mut staging) = call.client.staging.take() else {
            return (used, Then::Done);
        };
        let mut newest = call.client.segments.iter().rev();
        let is_sent = newest.any(|s| s.n == staging.n && matches!(s.wait, Wait::Forwarded(_)));
        if !is_sent {
            // It was answered here, perhaps without being run.
            give_up(call.cx, call.lists, call.client, &mut staging);
        }
        (used, Then::Done)
    }

    /// Ends a command with a long value that will not run: its owner forgets the bytes that it has taken.
    pub(crate) fn give_up_staging<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &mut Lists, client: &mut Client) {
        let Some(mut staging) = client.staging.take() else {
            return;
        };
        give_up(cx, lists, client, &mut staging);
    }
}

/// Tells the owner that the value is not wanted any more.
fn give_up<O: Out>(cx: &mut Context<'_, O>, lists: &mut Lists, client: &Client, staging: &mut Staging) {
    let ticket = ticket_of(cx, client, staging.n);
    match staging.destination {
        Destination::Local(tenure) => {
            let owner = lists.owner_mut(staging.stream);
            if let Some((_, owner)) = owner.filter(|(_, owner)| owner.tenure() == tenure) {
                owner.unstage(ticket);
            }
        }
        Destination::Asked(target, epoch) | Destination::Remote(target, epoch) => {
            let message = Message::GiveUp {
                conn: ticket.conn,
                n: staging.n,
            };
            cx.send(&target, Channel::Main, staging.stream, epoch, &message);
        }
        Destination::Unknown | Destination::Discard => {}
    }
    staging.destination = Destination::Discard;
    staging.untaken = Vec::new();
}

fn ticket_of<O: Out>(cx: &Context<'_, O>, client: &Client, n: u64) -> Ticket {
    Ticket { n, ..client.ticket(cx) }
}

/// Whether bytes of a value may be sent to a node now.
fn may_send_bytes<O: Out>(cx: &mut Context<'_, O>, to: &Tenure) -> bool {
    cx.reaches(to, Channel::Bulk) && !cx.is_backed_up(to.node, Channel::Bulk)
}

fn send_stage<O: Out>(cx: &mut Context<'_, O>, conn: ConnId, staging: &mut Staging, to: &Tenure, epoch: Epoch) -> bool {
    staging.told_at = cx.mono();
    let class = staging.class.map(|class| class.to_string()).unwrap_or_default();
    let message = Message::Stage {
        conn,
        n: staging.n,
        value_bytes: staging.value_bytes,
        taken: staging.taken(),
        key: &staging.key,
        class: class.as_bytes(),
    };
    cx.send(to, Channel::Main, staging.stream, epoch, &message)
}

impl Router {
    /// The owner at another node has taken some of a value.
    pub(crate) fn on_staged<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        from: NodeId,
        conn: ConnId,
        n: u64,
        taken: u64,
        state: StageState,
    ) {
        let Some(client) = self.clients.get_mut(&conn) else {
            return;
        };
        let Some(staging) = client.staging.as_mut().filter(|staging| staging.n == n) else {
            note_ahead(cx.mono(), client, from, n, state);
            return;
        };
        let (target, epoch) = match staging.destination {
            Destination::Asked(target, epoch) | Destination::Remote(target, epoch) => (target, epoch),
            Destination::Unknown | Destination::Local(_) | Destination::Discard => return,
        };
        if target.node != from {
            return;
        }
        self.dispatcher.wake |= state != StageState::NotOwner || staging.at > 0;
        match state {
            StageState::NotOwner if staging.at == 0 => {
                (staging.destination, staging.refused_by) = (Destination::Unknown, Some(target));
                self.dispatcher.retry_at = self.dispatcher.retry_at.min(cx.mono() + cx.shared.parameters.retry);
                return;
            }
            StageState::NotOwner | StageState::Over | StageState::NoMemory => {
                if state == StageState::NoMemory {
                    staging.refusal = Some(Refusal::Write(WriteRefusal::NoMemory));
                    let message = Message::GiveUp { conn, n };
                    cx.send(&target, Channel::Main, staging.stream, epoch, &message);
                }
                staging.destination = Destination::Discard;
                staging.untaken = Vec::new();
                return;
            }
            StageState::Open | StageState::Running => {
                self.dispatcher.stuck.serves(staging.stream);
                staging.destination = Destination::Remote(target, epoch);
            }
        }
        let fresh = taken.saturating_sub(staging.taken()).min(staging.untaken.len() as u64);
        if fresh > 0 {
            staging.untaken.drain(..fresh as usize);
            staging.moved_at = cx.mono();
        }
        if staging.untaken.is_empty() && staging.at == staging.value_bytes {
            // If the end of the command has not come, it waits for the client from now on.
            client.stalled_since = None;
        }
    }

    /// Keeps values that come known to their owners, sends again what was lost, and gives up what comes too slowly.
    pub(crate) fn tend_staging<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &mut Lists) {
        let clients = &mut self.clients;
        self.dispatcher.staging.sort();
        self.dispatcher.staging.dedup();
        self.dispatcher
            .staging
            .retain(|conn| clients.get(conn).is_some_and(|client| client.staging.is_some()));
        let (now, resend, renewal) = (
            cx.mono(),
            cx.shared.parameters.resend,
            cx.shared.parameters.lease_renewal,
        );
        for at in 0..self.dispatcher.staging.len() {
            let Some(conn) = self.dispatcher.staging.get(at).copied() else {
                break;
            };
            let Some(client) = self.clients.get_mut(&conn) else {
                continue;
            };
            let Some(mut staging) = client.staging.take() else {
                continue;
            };
            // What the client has sent waits in its input while it does not read its replies (P8.3).
            let is_unread = cx
                .out
                .client(conn)
                .is_some_and(|buffer| buffer.bytes.len() + buffer.waiting >= UNSENT_BYTES_SOFT_MAX);
            // It waits for an owner or a holder, and not for the client, also while it is about to be tried again.
            let waits = client.stalled_since.is_some();
            if waits || is_unread || staging.destination == Destination::Discard {
                staging.measured = (staging.at, now);
            } else if now > staging.measured.1 + SLOW_SPAN {
                if staging.at - staging.measured.0 < SLOW_BYTES {
                    staging.refusal = Some(Refusal::ValueTooSlow);
                    give_up(cx, lists, client, &mut staging);
                }
                staging.measured = (staging.at, now);
            }
            let is_whole = staging.at == staging.value_bytes && staging.untaken.is_empty();
            if waits
                && !is_whole
                && now > staging.moved_at + wait_max(cx)
                && staging.destination != Destination::Discard
            {
                // A holder, or the owner, does not answer.
                staging.refusal = Some(Refusal::Unavailable);
                give_up(cx, lists, client, &mut staging);
                self.dispatcher.wake = true;
            }
            match staging.destination {
                Destination::Unknown | Destination::Discard => {}
                Destination::Local(tenure) => {
                    let ticket = ticket_of(cx, client, staging.n);
                    let owner = lists.owner_mut(staging.stream);
                    match owner.filter(|(_, owner)| owner.tenure() == tenure) {
                        Some((configuration, owner)) => {
                            let bytes = (staging.value_bytes, staging.at);
                            owner.stage(cx, configuration, ticket, None, (&staging.key, staging.class), bytes);
                        }
                        None => {
                            staging.destination = Destination::Discard;
                            self.dispatcher.wake = true;
                        }
                    }
                }
                Destination::Asked(target, epoch) | Destination::Remote(target, epoch) => {
                    let since = silent_since(cx, &target, staging.moved_at);
                    if !cx.reaches(&target, Channel::Main) {
                        self.dispatcher.wait_for(cx, lists, staging.stream, now);
                    } else if waits && now - since >= renewal {
                        self.dispatcher.wait_for_owner(cx, lists, staging.stream, since);
                    }
                    if self.dispatcher.is_refused(cx, lists, staging.stream) {
                        give_up(cx, lists, client, &mut staging);
                        self.dispatcher.wake = true;
                    } else if lists_tenure(lists, staging.stream) != Some(target) {
                        staging.destination = if staging.at == 0 {
                            Destination::Unknown
                        } else {
                            Destination::Discard
                        };
                        self.dispatcher.wake = true;
                    } else {
                        let is_late = now > staging.moved_at.max(staging.resent_at) + resend;
                        if is_late || now > staging.told_at + renewal {
                            send_stage(cx, conn, &mut staging, &target, epoch);
                        }
                        if is_late && !staging.untaken.is_empty() && may_send_bytes(cx, &target) {
                            let message = Message::StageBytes {
                                conn,
                                n: staging.n,
                                at: staging.taken(),
                                bytes: &staging.untaken,
                            };
                            cx.send(&target, Channel::Bulk, staging.stream, epoch, &message);
                            staging.resent_at = now;
                        }
                    }
                }
            }
            client.staging = Some(staging);
        }
    }
}
