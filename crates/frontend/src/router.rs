//! Clients: where a command runs, in which order replies leave, and when they may be seen (docs/commands.md).
//!
//! A *caller* is a client of this node, or a client of a peer whose commands that peer forwards. Each caller has a
//! queue of segments, one a command: the reply's bytes are written when the command runs, and released when what it
//! waits for has come (an ack, a lease, another node's answer), in command order. A command that cannot start stalls
//! its caller: nothing of it has happened, and it is tried again when something has changed.

mod ahead;
pub(crate) mod call;
pub(crate) mod client;
pub(crate) mod counts;
mod forward;
mod functions;
pub(crate) mod gather;
pub(crate) mod intake;
mod long;
mod one_by_one;
mod pause;
pub(crate) mod prefetch;
pub(crate) mod questions;
mod remote;
mod replies;
mod resend;
mod run;
mod script;
pub(crate) mod staging;
mod stuck;
mod transact;

use crate::redis::info::Counters;
use crate::redis::scripts::Scripts;
use crate::redis::transactions::Queue;
use crate::turn::Limits;
use call::{Call, Turn};
use client::{Caller, Client, Wait};
use paritas_base::configuration::{NodeRecord, Tenure};
use paritas_base::{ConnId, ListId, Map, NodeId, StreamId, Term, Time};
use paritas_protocol::{Answer, Context, Effect, Ends, Lists, Out, Port};
use paritas_wire::resp::{Args, Password};
use pause::Pause;
use prefetch::Ahead;
use std::sync::Arc;
use stuck::{Stuck, wait_max};

/// Limits of one client: its unanswered commands, and the bytes charged for those at other nodes. At either limit,
/// nothing more is read from the client.
const SEGMENTS_MAX: usize = 16_384;
const FORWARDED_BYTES_MAX: usize = 4 << 20;

/// All callers of a node.
#[derive(Debug, Default)]
pub(crate) struct Router {
    pub(crate) clients: Map<ConnId, Client>,
    remotes: Map<(NodeId, ConnId), Client>,
    pub(crate) dispatcher: Dispatcher,
}

/// Runs commands for all callers, and holds the state that callers share.
#[derive(Debug, Default)]
pub(crate) struct Dispatcher {
    pub(crate) nodes: Vec<NodeRecord>,
    /// Arguments of the commands that are decoded ahead; in `part_args`, those of a part or of a peer's command.
    pub(crate) args: Vec<Args>,
    part_args: Args,
    ahead: Vec<Ahead>,
    /// Spare buffers for forwarded commands.
    pub(crate) spare: Vec<Vec<u8>>,
    /// The memory of the last transaction.
    spare_queue: Queue,
    /// Callers with unreleased replies.
    pub(crate) held: Vec<Caller>,
    /// Callers whose next command waits for something to happen.
    pub(crate) stalled: Vec<Caller>,
    /// Clients whose next command waits for the end of CLIENT PAUSE.
    pause: Pause,
    /// Callers whose next command waits for the budget of a turn. They are tried in each turn, the others only after
    /// progress: a command that waits for a chunk would take the whole budget each time.
    yielded: Vec<Yielded>,
    /// Whether the steps of this turn were reserved for peers' commands that wait.
    was_reserved: bool,
    /// Streams that do not serve.
    stuck: Stuck,
    /// Clients whose next command has a value that is too long to be held.
    staging: Vec<ConnId>,
    /// Clients with replies that this node reads.
    long: Vec<ConnId>,
    /// Clients that have used up their share of this turn.
    pub(crate) throttled: Vec<ConnId>,
    /// Bytes of peers' commands that have not started.
    pub(crate) parked_bytes: usize,
    /// When stalled callers are tried again even if nothing has changed: some may have reached their timeout.
    retry_at: Time,
    /// When callers with unreleased replies are checked for timeouts next.
    check_at: Time,
    /// Stalled callers may go on.
    wake: bool,
    /// Some unreleased reply may now be released.
    releasable: bool,
    /// Some forwarded command is still to be sent.
    resend_due: bool,
    /// Commands forwarded to this node itself, and replies to it.
    loopback: Vec<forward::Loopback>,
    next_client_id: u64,
    /// What clients of this node must give before other commands.
    pub(crate) password: Option<Password>,
    pub(crate) client_count: usize,
    pub(crate) counters: Counters,
    counts: counts::Counts,
    questions: questions::Questions,
    /// The libraries of functions, as their owner told them last.
    functions: Arc<functions::Functions>,
    /// Scripts that this node knows, and where they run.
    pub(crate) scripts: Scripts,
    /// How often the end of a turn has stopped at a round limit.
    pub(crate) limits: Limits,
    /// Errors that clients of memcached have not seen because of `noreply`.
    pub(crate) silenced: u64,
    /// Settings changed since the start, in the form of the node's file: key and value.
    pub(crate) changed: Vec<(&'static str, String)>,
}

/// A caller whose next command waits for the budget of a turn.
#[derive(Debug)]
struct Yielded {
    caller: Caller,
    /// It has run other commands in this turn. So those that have not are tried first.
    has_run: bool,
}

/// The result of running a caller's next command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ran {
    /// It has a segment.
    Done,
    /// It cannot start yet; nothing happened.
    Stalled,
    /// It has a segment, and the connection ends after it.
    Close,
    /// It needs all clients: [`Router::about_clients`] runs it.
    AboutClients,
}

impl Router {
    pub(crate) fn on_nodes<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &Lists, nodes: &[NodeRecord]) {
        self.dispatcher.nodes = nodes.to_vec();
        self.settle_lost_tenures(cx, lists, |_| true);
    }

    pub(crate) fn require(&mut self, password: Password) {
        self.dispatcher.password = Some(password);
    }

    pub(crate) fn on_client_up<O: Out>(&mut self, cx: &mut Context<'_, O>, conn: ConnId, port: Port, ends: Ends) {
        self.dispatcher.next_client_id += 1;
        self.dispatcher.counters.connections += 1;
        let mut client = Client::new(Caller::Local(conn), port, self.dispatcher.next_client_id, cx.mono());
        client.about.ends = Some(ends);
        client.authenticated = self.dispatcher.password.is_none();
        self.clients.insert(conn, client);
        self.dispatcher.client_count = self.clients.len();
    }

    pub(crate) fn on_client_down<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &mut Lists, conn: ConnId) {
        if let Some(mut client) = self.clients.remove(&conn) {
            self.dispatcher.give_up_staging(cx, lists, &mut client);
            client.give_up_staged(cx, lists);
            Self::drop_long(cx, lists, conn, &client);
        }
        self.dispatcher.client_count = self.clients.len();
        self.dispatcher.held.retain(|c| *c != Caller::Local(conn));
        self.dispatcher.forget_stalled(Caller::Local(conn));
        self.dispatcher.throttled.retain(|c| *c != conn);
        self.dispatcher.questions.forget(conn);
    }

    /// Tries stalled commands again, before the deltas of the turn are sent.
    pub(crate) fn retry_stalled<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &mut Lists) {
        let now = cx.mono();
        for conn in self.dispatcher.throttled.drain(..) {
            if let Some(buffer) = cx.out.client(conn) {
                buffer.stalled = false;
            }
        }
        self.go_on_after_pause(cx, lists);
        let mut progress = now >= self.dispatcher.retry_at || core::mem::take(&mut self.dispatcher.wake);
        for (_, owner) in lists.awake_owners_mut(now) {
            if owner.take_progress() {
                self.dispatcher.stuck.moves(owner.stream());
                progress = true;
            }
        }
        self.dispatcher.was_reserved = cx.shared.turn_budget.open();
        for yielded in core::mem::take(&mut self.dispatcher.yielded) {
            match yielded.caller {
                Caller::Remote(..) if cx.shared.turn_budget.left() > 0 => self.try_again(cx, lists, yielded.caller),
                _ => self.dispatcher.yielded.push(yielded),
            }
        }
        if progress && !self.dispatcher.stalled.is_empty() {
            self.dispatcher.retry_at = now + cx.shared.parameters.lease;
            for caller in core::mem::take(&mut self.dispatcher.stalled) {
                self.try_again(cx, lists, caller);
            }
        }
    }

    /// A caller's next command may start. A client's command runs in the next turn, a peer's at once.
    fn try_again<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &mut Lists, caller: Caller) {
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

    /// Begins the budget of the next turn. Clients' commands that wait for it run when that turn reads input, peers'
    /// after that. Who has run commands in this turn goes after those who have not. In every second turn, only peers'
    /// commands that wait may take from the budget before the others. So nobody keeps another from running.
    pub(crate) fn begin_budget<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &mut Lists) {
        let mut yielded = core::mem::take(&mut self.dispatcher.yielded);
        yielded.sort_by_key(|yielded| yielded.has_run);
        let sits_out = yielded.first().is_some_and(|first| !first.has_run);
        for Yielded { caller, has_run } in yielded {
            match caller {
                Caller::Local(_) if !(has_run && sits_out) => self.try_again(cx, lists, caller),
                _ => self.dispatcher.yielded.push(Yielded { caller, has_run: false }),
            }
        }
        let is_peer = |yielded: &Yielded| matches!(yielded.caller, Caller::Remote(..));
        let is_reserved = !self.dispatcher.was_reserved && self.dispatcher.yielded.iter().any(is_peer);
        cx.shared
            .turn_budget
            .begin(cx.shared.parameters.turn_steps, is_reserved);
    }

    /// Releases the replies that clients may see now.
    pub(crate) fn release<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &mut Lists) {
        let now = cx.mono();
        self.dispatcher.counters.start(now);
        self.run_loopback(cx, lists);
        self.answer_askers(cx, lists);
        // Releases do not delay the next check: on a busy node it would never run.
        let due = now >= self.dispatcher.check_at;
        if due {
            self.dispatcher.check_at = now + cx.shared.parameters.lease_renewal;
            self.tend_staging(cx, lists);
        }
        let mut releasable = core::mem::take(&mut self.dispatcher.releasable) || due;
        let mut late_progress = core::mem::take(&mut self.dispatcher.wake);
        for (_, owner) in lists.awake_owners_mut(now) {
            releasable |= owner.take_releasable();
            late_progress |= owner.has_progress();
        }
        if late_progress && !self.dispatcher.stalled.is_empty() {
            self.dispatcher.retry_at = now;
        }
        if releasable {
            for caller in core::mem::take(&mut self.dispatcher.held) {
                self.release_caller(cx, lists, caller, true);
            }
        }
        self.go_on_long(cx, lists);
        self.run_loopback(cx, lists);
        if due {
            self.dispatcher.look_at_stuck(cx, lists);
            let end = self.dispatcher.stuck.next_end(now, wait_max(cx));
            self.dispatcher.check_at = end.map_or(self.dispatcher.check_at, |end| end.min(self.dispatcher.check_at));
        }
    }

    /// `was_taken`: the caller is not in the list of callers with unreleased replies any more.
    fn release_caller<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &mut Lists, caller: Caller, was_taken: bool) {
        let (client, turn) = match caller {
            Caller::Local(conn) => {
                let Some(client) = self.clients.get_mut(&conn) else {
                    return;
                };
                let Some(buffer) = cx.out.client(conn) else { return };
                (client, Turn::take(buffer))
            }
            Caller::Remote(node, conn) => {
                let Some(client) = self.remotes.get_mut(&(node, conn)) else {
                    return;
                };
                let turn = Turn::of_remote(client);
                (client, turn)
            }
        };
        let mut call = Call {
            cx,
            lists,
            client,
            turn,
        };
        self.dispatcher.release_head(&mut call);
        let Call { cx, client, turn, .. } = call;
        match caller {
            Caller::Local(conn) => {
                if let Some(buffer) = cx.out.client(conn) {
                    turn.put(buffer);
                    client.show(buffer);
                }
            }
            Caller::Remote(..) => client.remote.keep(turn.bytes),
        }
        client.held &= !was_taken;
        let stalled = client.stalled;
        self.dispatcher.note(cx, client, stalled, false);
    }

    /// A configuration is new: stalled commands may run elsewhere, and commands forwarded to a lost owner are settled.
    pub(crate) fn on_configuration<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &mut Lists, list: ListId) {
        self.dispatcher.retry_at = cx.mono();
        self.dispatcher.check_at = cx.mono();
        self.settle_lost_tenures(cx, lists, |stream| stream.list == list);
    }

    /// Slots belong to another stream, or are served again: commands that waited for them may run there. A command that
    /// was forwarded to the former stream is answered before the client's next command starts.
    pub(crate) fn on_slots<O: Out>(&mut self, cx: &mut Context<'_, O>) {
        (self.dispatcher.retry_at, self.dispatcher.check_at) = (cx.mono(), cx.mono());
        let Dispatcher { part_args, .. } = &mut self.dispatcher;
        for client in self.clients.values_mut() {
            let mut detours = client.detours;
            for forwarded in client.forwards() {
                let there = forwarded.target.is_some() && !forwarded.detour;
                if there && forward::stream_now(cx, forwarded, part_args) != Some(forwarded.stream) {
                    forwarded.detour = true;
                    detours += 1;
                }
            }
            client.detours = detours;
        }
    }

    pub(crate) fn on_session_up(&mut self) {
        self.dispatcher.retry_at = Time(0);
        self.dispatcher.check_at = Time(0);
    }

    pub(crate) fn on_answer<O: Out>(&mut self, cx: &mut Context<'_, O>, conn: ConnId, n: u64, answer: &Answer) {
        let Some(client) = self.clients.get(&conn) else { return };
        let mut reply = Vec::new();
        client.dialect.answer(&mut reply, answer);
        self.fill(cx, conn, n, &reply);
    }

    /// Bytes of memory of callers and their unanswered commands. The driver counts the replies to this node's clients.
    pub(crate) fn buffer_bytes(&self) -> u64 {
        let tables = self.clients.capacity() * size_of::<(ConnId, Client)>()
            + self.remotes.capacity() * size_of::<((NodeId, ConnId), Client)>();
        let callers = self.clients.values().chain(self.remotes.values());
        let callers: usize = callers.map(Client::held_bytes).sum();
        (tables + callers + self.dispatcher.held_bytes()) as u64
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let retry = (!self.dispatcher.stalled.is_empty()).then_some(self.dispatcher.retry_at);
        let any_long = !self.dispatcher.staging.is_empty() || !self.dispatcher.long.is_empty();
        let checks = any_long || !self.dispatcher.held.is_empty() || !self.dispatcher.stuck.is_empty();
        let check = checks.then_some(self.dispatcher.check_at);
        let dispatcher = &self.dispatcher;
        let again =
            dispatcher.resend_due || dispatcher.wake || dispatcher.releasable || !dispatcher.loopback.is_empty();
        let again = again || !dispatcher.yielded.is_empty();
        let again = again.then_some(Time(0));
        let paused = dispatcher.pause.ends_at();
        [retry, check, again, paused, dispatcher.questions.next_end()]
            .into_iter()
            .flatten()
            .min()
    }
}

pub(crate) fn lists_tenure(lists: &Lists, stream: StreamId) -> Option<Tenure> {
    lists.get(stream.list)?.configuration.tenure(stream.x)
}

impl Wait {
    /// What a reply with this effect waits for.
    fn of(effect: Effect, stream: StreamId, term: Term, since: Time) -> Self {
        match effect {
            Effect::None => Self::Ready,
            Effect::Read { need } => Self::Read {
                stream,
                term,
                need,
                since,
            },
            Effect::Write { seq } => Self::Write {
                stream,
                term,
                seq,
                since,
            },
        }
    }
}

impl Dispatcher {
    fn held_bytes(&self) -> usize {
        let args = self.args.capacity() * size_of::<Args>();
        let args = args
            + self
                .args
                .iter()
                .chain([&self.part_args])
                .map(Args::held_bytes)
                .sum::<usize>();
        let spare = self.spare.capacity() * size_of::<Vec<u8>>();
        let spare = spare + self.spare.iter().map(Vec::capacity).sum::<usize>();
        let callers = (self.held.capacity() + self.stalled.capacity()) * size_of::<Caller>();
        let callers = callers + self.yielded.capacity() * size_of::<Yielded>();
        let loopback = self.loopback.capacity() * size_of::<forward::Loopback>();
        let loopback = loopback + self.loopback.iter().map(forward::Loopback::held_bytes).sum::<usize>();
        args + spare
            + callers
            + loopback
            + self.ahead.capacity() * size_of::<Ahead>()
            + self.stuck.held_bytes()
            + self.counts.held_bytes()
            + self.questions.held_bytes()
            + self.pause.held_bytes()
            + self.scripts.held_bytes()
            + self.functions.held_bytes()
    }

    /// Adds the caller to the lists of unreleased and waiting callers, if it belongs there. `has_run`: it has run other
    /// commands in this turn.
    pub(crate) fn note<O: Out>(&mut self, cx: &mut Context<'_, O>, client: &mut Client, stalled: bool, has_run: bool) {
        if !client.segments.is_empty() && !client.held {
            client.held = true;
            self.held.push(client.caller);
        }
        if stalled && !client.stalled {
            let (caller, now) = (client.caller, cx.mono());
            if client.paused {
                self.pause.hold(caller);
            } else if cx.shared.turn_budget.take_refused() {
                self.yielded.push(Yielded { caller, has_run });
            } else {
                self.stalled.push(caller);
            }
            client.stalled_since.get_or_insert(now);
        }
        client.stalled = stalled;
    }

    fn forget_stalled(&mut self, caller: Caller) {
        self.stalled.retain(|c| *c != caller);
        self.yielded.retain(|yielded| yielded.caller != caller);
        self.pause.forget(caller);
    }

    /// Whether no caller waits for the budget of a turn.
    pub(crate) const fn nobody_yields(&self) -> bool {
        self.yielded.is_empty()
    }

    /// Callers whose next command waits.
    pub(crate) fn stalled_count(&self) -> usize {
        self.stalled.len() + self.yielded.len() + self.pause.count()
    }
}
