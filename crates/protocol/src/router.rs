//! Clients: where a command runs, in which order replies leave, and when they may be seen (SEAMS §4).
//!
//! A *caller* is a client of this node, or a client of a peer whose commands that peer forwards. Each caller has a
//! queue of segments, one a command: the reply's bytes are written when the command runs, and released when what it
//! waits for has come (an ack, a lease, another node's answer), in command order. A command that cannot start stalls
//! its caller: nothing of it has happened, and it is tried again when something has changed.

mod caller;
mod connection;
mod forward;

use crate::commands::{self, Effect, Executed};
use crate::context::Context;
use crate::interface::{Out, Port};
use crate::lists::Lists;
use crate::parameters::Mutant;
use crate::stream_owner::{Phase, ReadLease};
use caller::{Caller, Client, Parked, Segment, Wait};
use paritas_base::configuration::NodeRecord;
use paritas_base::{ConnId, Incarnation, ListId, Map, NodeId, Span, Stream, Time};
use paritas_wire::command::{self, CommandSpec, flag};
use paritas_wire::resp::{self, ArgList, Args, Decoded, Limits, encode, errors};

/// All callers of a node.
#[derive(Debug, Default)]
pub(crate) struct Router {
    clients: Map<ConnId, Client>,
    remotes: Map<(NodeId, ConnId), Client>,
    desk: Desk,
}

/// What all callers share.
#[derive(Debug, Default)]
struct Desk {
    nodes: Vec<NodeRecord>,
    args: Args,
    /// Callers with unreleased replies.
    held: Vec<Caller>,
    /// Callers whose next command cannot start.
    stalled: Vec<Caller>,
    /// Look at stalled callers even if nothing has changed: some may have waited too long, or a change came late.
    retry_at: Time,
    /// Look at held callers for time-outs.
    check_at: Time,
    /// Commands forwarded to this node itself, and replies to it.
    loopback: Vec<forward::Loopback>,
    next_client_id: u64,
}

/// What became of a caller's next command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ran {
    /// It has a segment.
    Done,
    /// It cannot start yet; nothing happened.
    Stalled,
    /// It has a segment, and the connection ends after it.
    Close,
}

/// A caller's replies while one event is handled.
struct Turn<'a> {
    bytes: &'a mut Vec<u8>,
    /// Bytes at the front that may be seen.
    released: usize,
    deadline: Option<Time>,
}

impl Router {
    pub(crate) fn on_nodes(&mut self, nodes: &[NodeRecord]) {
        self.desk.nodes = nodes.to_vec();
    }

    pub(crate) fn on_client_up<O: Out>(&mut self, cx: &mut Context<'_, O>, conn: ConnId, port: Port) {
        self.desk.next_client_id += 1;
        let client = Client::new(Caller::Local(conn), port, self.desk.next_client_id, cx.mono());
        self.clients.insert(conn, client);
    }

    pub(crate) fn on_client_down(&mut self, conn: ConnId) {
        self.clients.remove(&conn);
        self.desk.held.retain(|c| *c != Caller::Local(conn));
        self.desk.stalled.retain(|c| *c != Caller::Local(conn));
    }

    /// Runs as many of a client's commands as can run now.
    pub(crate) fn on_client<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &mut Lists, conn: ConnId, input: &[u8]) {
        let Some(client) = self.clients.get_mut(&conn) else {
            return;
        };
        let Some(buffer) = cx.out.client(conn) else { return };
        let mut bytes = core::mem::take(&mut buffer.bytes);
        let mut turn = Turn {
            bytes: &mut bytes,
            released: buffer.released,
            deadline: buffer.deadline,
        };
        let mut args = core::mem::take(&mut self.desk.args);
        let (mut consumed, mut stalled, mut close) = (0, false, false);
        while !close {
            let rest = input.get(consumed..).unwrap_or_default();
            match resp::decode(rest, &Limits::DEFAULT, &mut args) {
                Ok(Decoded::Incomplete { .. }) => break,
                Ok(Decoded::Complete { consumed: length }) => {
                    let raw = rest.get(..length).unwrap_or_default();
                    let list = args.list(rest);
                    let ran = if list.is_empty() {
                        Ran::Done
                    } else {
                        self.desk.run(cx, lists, client, &mut turn, list, raw)
                    };
                    match ran {
                        Ran::Done => {}
                        Ran::Close => close = true,
                        Ran::Stalled => {
                            stalled = true;
                            break;
                        }
                    }
                    consumed += length;
                }
                Err(error) => {
                    let start = turn.bytes.len();
                    error.append_to(turn.bytes);
                    self.desk.push(cx, lists, client, &mut turn, start, Wait::Ready);
                    consumed = input.len();
                    close = true;
                }
            }
        }
        self.desk.args = args;
        let Turn { released, deadline, .. } = turn;
        if let Some(buffer) = cx.out.client(conn) {
            buffer.bytes = bytes;
            (buffer.released, buffer.deadline) = (released, deadline);
            buffer.consumed += consumed;
            buffer.stalled = stalled;
            client.closing |= close;
            buffer.close |= client.closing && client.segments.is_empty();
        }
        self.desk.note(client, stalled, cx.mono());
    }

    /// Something may have changed for callers that are stalled.
    pub(crate) fn retry_stalled<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &mut Lists) {
        let now = cx.mono();
        let mut progress = now >= self.desk.retry_at;
        for list in lists.iter_mut() {
            if let crate::lists::Role::Owner(owner) = &mut list.role {
                progress |= core::mem::take(&mut owner.progress);
            }
        }
        if !progress || self.desk.stalled.is_empty() {
            return;
        }
        self.desk.retry_at = now + cx.shared.parameters.lease;
        for caller in core::mem::take(&mut self.desk.stalled) {
            match caller {
                Caller::Local(conn) => {
                    if let Some(client) = self.clients.get_mut(&conn) {
                        client.stalled = false;
                    }
                    if let Some(buffer) = cx.out.client(conn) {
                        buffer.stalled = false;
                    }
                }
                Caller::Remote(node, conn) => self.run_parked(cx, lists, (node, conn)),
            }
        }
    }

    /// Releases what may be seen now.
    pub(crate) fn release<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &mut Lists) {
        let now = cx.mono();
        self.run_loopback(cx, lists);
        let mut releasable = now >= self.desk.check_at;
        let mut late_progress = false;
        for list in lists.iter_mut() {
            if let crate::lists::Role::Owner(owner) = &mut list.role {
                releasable |= core::mem::take(&mut owner.releasable);
                late_progress |= owner.progress;
            }
        }
        if late_progress && !self.desk.stalled.is_empty() {
            self.desk.retry_at = now;
        }
        if releasable {
            self.desk.check_at = now + cx.shared.parameters.lease_renewal;
            for caller in core::mem::take(&mut self.desk.held) {
                self.release_caller(cx, lists, caller);
            }
        }
        self.run_loopback(cx, lists);
    }

    fn release_caller<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &Lists, caller: Caller) {
        match caller {
            Caller::Local(conn) => {
                let Some(client) = self.clients.get_mut(&conn) else {
                    return;
                };
                let Some(buffer) = cx.out.client(conn) else { return };
                let mut bytes = core::mem::take(&mut buffer.bytes);
                let mut turn = Turn {
                    bytes: &mut bytes,
                    released: buffer.released,
                    deadline: buffer.deadline,
                };
                self.desk.release_head(cx, lists, client, &mut turn);
                let Turn { released, deadline, .. } = turn;
                if let Some(buffer) = cx.out.client(conn) {
                    buffer.bytes = bytes;
                    (buffer.released, buffer.deadline) = (released, deadline);
                    buffer.close |= client.closing && client.segments.is_empty();
                }
                client.held = false;
                let stalled = client.stalled;
                self.desk.note(client, stalled, cx.mono());
            }
            Caller::Remote(node, conn) => {
                let Some(client) = self.remotes.get_mut(&(node, conn)) else {
                    return;
                };
                let mut bytes = core::mem::take(&mut client.replies);
                let mut turn = Turn {
                    bytes: &mut bytes,
                    released: 0,
                    deadline: None,
                };
                self.desk.release_head(cx, lists, client, &mut turn);
                client.replies = bytes;
                client.held = false;
                let stalled = client.stalled;
                self.desk.note(client, stalled, cx.mono());
                self.forget_idle((node, conn));
            }
        }
    }

    fn forget_idle(&mut self, key: (NodeId, ConnId)) {
        if self
            .remotes
            .get(&key)
            .is_some_and(|c| c.segments.is_empty() && c.parked.is_empty())
        {
            self.remotes.remove(&key);
        }
    }

    /// A configuration is new: what was stalled may go elsewhere, what was forwarded to a lost owner is settled.
    pub(crate) fn on_configuration<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &mut Lists, list: ListId) {
        self.desk.retry_at = cx.mono();
        self.desk.check_at = cx.mono();
        self.settle_forwarded(cx, lists, |stream, target| {
            stream.list == list && lists_tenure(lists, stream) != Some(target)
        });
    }

    pub(crate) fn on_session_up(&mut self) {
        self.desk.retry_at = Time(0);
        self.desk.check_at = Time(0);
    }

    pub(crate) fn on_answer<O: Out>(&mut self, cx: &mut Context<'_, O>, conn: ConnId, n: u64, text: &str) {
        let mut reply = Vec::new();
        match text.strip_prefix('-') {
            Some(error) => encode::error(&mut reply, error),
            None => encode::bulk(&mut reply, text.as_bytes()),
        }
        self.fill(cx, conn, n, &reply);
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let retry = (!self.desk.stalled.is_empty()).then_some(self.desk.retry_at);
        let check = (!self.desk.held.is_empty()).then_some(self.desk.check_at);
        let loopback = (!self.desk.loopback.is_empty()).then_some(Time(0));
        [retry, check, loopback].into_iter().flatten().min()
    }
}

fn lists_tenure(lists: &Lists, stream: Stream) -> Option<paritas_base::configuration::Tenure> {
    lists.get(stream.list)?.configuration.tenure(stream.x)
}

impl Desk {
    /// Lists the caller where its state says.
    fn note(&mut self, client: &mut Client, stalled: bool, now: Time) {
        if !client.segments.is_empty() && !client.held {
            client.held = true;
            self.held.push(client.caller);
        }
        if stalled && !client.stalled {
            self.stalled.push(client.caller);
            client.stalled_since.get_or_insert(now);
        }
        if !stalled && !client.stalled {
            client.stalled_since = None;
        }
        client.stalled = stalled;
    }

    /// Runs one command of a caller.
    fn run<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        lists: &mut Lists,
        client: &mut Client,
        turn: &mut Turn<'_>,
        args: ArgList<'_>,
        raw: &[u8],
    ) -> Ran {
        let start = turn.bytes.len();
        let spec = match command::resolve(args) {
            Ok(spec) => spec,
            Err(refusal) => {
                refusal.append_to(turn.bytes, args);
                self.push(cx, lists, client, turn, start, Wait::Ready);
                return Ran::Done;
            }
        };
        client.last_command = spec.name;
        if !spec.has_keys() {
            return self.run_keyless(cx, lists, client, turn, spec, args);
        }
        match self.stream_of(cx, spec, args) {
            Ok(stream) => self.run_on(cx, lists, client, turn, spec, args, raw, stream),
            Err(()) => {
                encode::error(turn.bytes, errors::CROSSSLOT);
                self.push(cx, lists, client, turn, start, Wait::Ready);
                Ran::Done
            }
        }
    }

    /// The one stream of a command's keys.
    fn stream_of<O: Out>(&self, cx: &Context<'_, O>, spec: &CommandSpec, args: ArgList<'_>) -> Result<Stream, ()> {
        let mut slots = command::keys(spec, args.len()).map(|i| command::slot(args.arg(i)));
        let first = slots.next().ok_or(())?;
        slots
            .all(|slot| slot == first)
            .then(|| cx.shared.cluster.stream_of(first))
            .ok_or(())
    }

    /// Runs a command on the stream of its keys, here or at its owner.
    #[allow(clippy::too_many_arguments)] // One command's whole surroundings.
    fn run_on<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        lists: &mut Lists,
        client: &mut Client,
        turn: &mut Turn<'_>,
        spec: &'static CommandSpec,
        args: ArgList<'_>,
        raw: &[u8],
        stream: Stream,
    ) -> Ran {
        let start = turn.bytes.len();
        let Some((configuration, owner)) = lists.owner_mut(stream) else {
            return self.run_elsewhere(cx, lists, client, turn, spec, args, raw, stream);
        };
        if owner.phase() != Phase::Serve {
            return self.stall(cx, lists, client, turn, spec);
        }
        let job = commands::Job {
            spec,
            args,
            proto: client.proto,
            hash: None,
        };
        let executed = commands::execute(cx, configuration, owner, job, turn.bytes);
        let since = cx.mono();
        let wait = match executed {
            Executed::Stalled => {
                turn.bytes.truncate(start);
                return self.stall(cx, lists, client, turn, spec);
            }
            Executed::Replied(Effect::None) => Wait::Ready,
            Executed::Replied(Effect::Read { need }) => Wait::Read {
                stream,
                term: owner.tenure().term(),
                need,
                since,
            },
            Executed::Replied(Effect::Write { seq }) => Wait::Write {
                stream,
                term: owner.tenure().term(),
                seq,
                since,
            },
        };
        self.push(cx, lists, client, turn, start, wait);
        Ran::Done
    }

    /// The command cannot start. Past the time a takeover may last, it is refused.
    fn stall<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        lists: &Lists,
        client: &mut Client,
        turn: &mut Turn<'_>,
        spec: &CommandSpec,
    ) -> Ran {
        let waited = client
            .stalled_since
            .is_some_and(|since| cx.mono() - since > Span(2 * cx.shared.parameters.lease.0));
        if !waited {
            return Ran::Stalled;
        }
        client.stalled_since = None;
        let start = turn.bytes.len();
        let text = if spec.is(flag::WRITE) {
            errors::CLUSTERDOWN
        } else {
            errors::TRYAGAIN_TAKEOVER
        };
        encode::error(turn.bytes, text);
        self.push(cx, lists, client, turn, start, Wait::Ready);
        Ran::Done
    }

    /// Adds the segment of a command whose reply begins at `start`, and releases it at once if nothing stands before
    /// it and nothing is to be waited for.
    fn push<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        lists: &Lists,
        client: &mut Client,
        turn: &mut Turn<'_>,
        start: usize,
        wait: Wait,
    ) {
        let n = client.take_n();
        let length = turn.bytes.len() - start;
        let first = client.segments.is_empty();
        client.segments.push_back(Segment { n, length, wait });
        if first {
            self.release_head(cx, lists, client, turn);
        }
    }

    /// Releases segments from the front as far as they may be seen.
    fn release_head<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        lists: &Lists,
        client: &mut Client,
        turn: &mut Turn<'_>,
    ) {
        while let Some(head) = client.segments.front() {
            let verdict = judge(cx, lists, &head.wait);
            let mut length = head.length;
            let deadline = match verdict {
                Verdict::Hold => return,
                Verdict::Ready(deadline) => deadline,
                Verdict::Instead(text) => {
                    let mut error = Vec::new();
                    encode::error(&mut error, text);
                    turn.bytes
                        .splice(turn.released..turn.released + length, error.iter().copied());
                    length = error.len();
                    None
                }
            };
            let n = head.n;
            client.segments.pop_front();
            match client.caller {
                Caller::Local(_) => {
                    turn.released += length;
                    turn.deadline = earliest(turn.deadline, deadline);
                }
                Caller::Remote(node, conn) => {
                    self.answer(
                        cx,
                        (node, client.incarnation),
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

fn earliest(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Whether a reply may be seen.
enum Verdict {
    Hold,
    /// Until then, for a read under leases.
    Ready(Option<Time>),
    /// No longer: this error stands in its place.
    Instead(&'static str),
}

fn judge<O: Out>(cx: &Context<'_, O>, lists: &Lists, wait: &Wait) -> Verdict {
    let timeout = Span(2 * cx.shared.parameters.lease.0);
    let late = |since: Time| cx.now.mono - since > timeout;
    match wait {
        Wait::Ready => Verdict::Ready(None),
        Wait::Forwarded { .. } | Wait::Gathered(_) | Wait::Answer => Verdict::Hold,
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
                    Verdict::Instead(errors::UNCERTAIN)
                } else {
                    Verdict::Hold
                }
            }
            _ => Verdict::Instead(errors::UNCERTAIN),
        },
        Wait::Read {
            stream,
            term,
            need,
            since,
        } => match lists.owner(*stream) {
            Some((configuration, owner)) if owner.tenure().term() == *term => {
                let safe = owner.acked() >= *need || cx.shared.parameters.breaks(Mutant::ReadDoesNotWaitForAck);
                match owner.read_lease(cx, configuration) {
                    ReadLease::Unlimited if safe => Verdict::Ready(None),
                    ReadLease::Until(deadline) if safe => Verdict::Ready(Some(deadline)),
                    _ if late(*since) => Verdict::Instead(errors::TRYAGAIN_TAKEOVER),
                    _ => Verdict::Hold,
                }
            }
            _ => Verdict::Instead(errors::TRYAGAIN_TAKEOVER),
        },
    }
}

impl Router {
    /// Runs the commands of a peer's client that wait here, in order, until one cannot start.
    fn run_parked<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &mut Lists, key: (NodeId, ConnId)) {
        let Some(client) = self.remotes.get_mut(&key) else {
            return;
        };
        client.stalled = false;
        let mut bytes = core::mem::take(&mut client.replies);
        let mut args = core::mem::take(&mut self.desk.args);
        let mut stalled = false;
        while let Some(parked) = client.parked.pop_front() {
            let Parked { n, proto, command } = &parked;
            (client.next_n, client.proto) = (*n, *proto);
            let mut turn = Turn {
                bytes: &mut bytes,
                released: 0,
                deadline: None,
            };
            let start = turn.bytes.len();
            let ran = match resp::decode(command, &Limits::DEFAULT, &mut args) {
                Ok(Decoded::Complete { .. }) if !args.is_empty() => {
                    let list = args.list(command);
                    self.desk.run(cx, lists, client, &mut turn, list, command)
                }
                _ => {
                    encode::error(turn.bytes, "ERR malformed forwarded command");
                    self.desk.push(cx, lists, client, &mut turn, start, Wait::Ready);
                    Ran::Done
                }
            };
            if ran == Ran::Stalled {
                client.parked.push_front(parked);
                stalled = true;
                break;
            }
        }
        client.replies = bytes;
        self.desk.args = args;
        self.desk.note(client, stalled, cx.mono());
        self.forget_idle(key);
    }

    /// A peer forwards a client's command (SEAMS §4).
    #[allow(clippy::too_many_arguments)] // The fields of one frame.
    pub(crate) fn on_forward<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        lists: &mut Lists,
        from: (NodeId, Incarnation),
        conn: ConnId,
        n: u64,
        resp3: bool,
        command: &[u8],
    ) {
        let key = (from.0, conn);
        let now = cx.mono();
        let client = self.remotes.entry(key).or_insert_with(|| {
            let mut client = Client::new(Caller::Remote(from.0, conn), Port::Any, 0, now);
            client.incarnation = from.1;
            client
        });
        if client.incarnation != from.1 {
            // Connection ids begin anew with each life of the peer: what the last one asked is nobody's now.
            *client = Client::new(Caller::Remote(from.0, conn), Port::Any, 0, now);
            client.incarnation = from.1;
        }
        let proto = if resp3 { resp::Proto::Resp3 } else { resp::Proto::Resp2 };
        client.parked.push_back(Parked {
            n,
            proto,
            command: command.to_vec(),
        });
        if !client.stalled {
            self.run_parked(cx, lists, key);
        }
    }
}
