//! `Engine`: all operations of one client.

mod links;
mod owners;
mod parts;
#[cfg(test)]
mod tests;
mod write;

use crate::choice::{Choice, Lengths, Way};
use crate::command::{Command, Kind};
use crate::connection::{Awaited, Connection, Phase};
use crate::interface::{Event, Failure, LinkId, OpId, Out, Outcome, Phases, Stats, SubmitError, text_of};
use crate::latency::Latency;
use crate::located::Located;
use crate::owners::Owners;
use crate::queue::Queue;
use crate::read::Read;
use crate::{Decode, Encode, Settings};
use paritas_base::{Span, Time};
use paritas_wire::resp::{Reply, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The wait before a node is asked or dialled again.
const AGAIN: Span = Span::from_ms(20);
/// The time for which an address that took no connection is not asked for units: the first time, and at most.
const BARRED: (Span, Span) = (Span::from_secs(1), Span::from_secs(60));
/// What a node says that takes no further connection.
const TOO_MANY_CONNECTIONS: &[u8] = b"ERR max number of clients";
/// Bytes that may be asked for twice before anything was read, and the most that are saved up.
const HEDGE_BYTES: (u64, u64) = (1 << 20, 8 << 20);
/// Times that a value is located before a node is asked for it.
const LOCATED_MAX: u32 = 2;
/// Nodes that are asked for a key or its owner, one after the other, because each names another one.
const MOVES_MAX: u32 = 3;
/// The time for which nodes are not asked where parts are, or are to be, once one has refused to tell.
const AGAIN_WITHOUT: Span = Span::from_secs(1);

#[derive(Debug)]
struct Op {
    command: Command,
    state: State,
    way: Way,
    /// Counts what was sent for it: replies to earlier attempts are not its reply.
    attempt: u32,
    located_count: u32,
    /// Times that a node has named another one as the owner of its key.
    moves: u32,
    /// A node was asked because the parts could not be read.
    is_by_node: bool,
    /// A write was sent.
    is_sent: bool,
    /// The number under which its value was staged, and the connection that knows it: its COMMIT is not answered.
    committed: Option<(LinkId, i64)>,
    /// Bytes that it counts among those under way: of its command, then of the value that it reads.
    bytes: u64,
    submitted_at: Time,
    /// When it began, or got on.
    moved_at: Time,
    written_at: Option<Time>,
    coding: Span,
}

#[derive(Debug)]
enum State {
    /// Behind others of its key.
    Queued,
    /// It is sent at this time.
    Waits(Time),
    /// It was sent at this time.
    Asked(Time, LinkId),
    /// It waits until there is room for its value.
    Held(Arc<Located>),
    /// Its value is read from its parts.
    Reads(Box<Read>),
    /// An owner was asked at this time where the parts of its value are to be, after so many others.
    Stages(Time, LinkId, u32),
    /// Its value is written to its parts.
    Writes(Box<write::Writing>),
}

impl Op {
    /// The reply tells where the parts of the value are.
    fn is_located(&self) -> bool {
        self.command.kind == Kind::Get && self.way == Way::Client
    }

    /// The value is encoded by this client.
    fn is_encoded_here(&self) -> bool {
        self.command.kind != Kind::Get && self.way == Way::Client
    }
}

/// All operations of one client.
#[derive(Debug)]
pub struct Engine {
    settings: Settings,
    seeds: Vec<String>,
    /// The seed that commands go to whose owner is not known.
    home: usize,
    dial_at: Time,
    connections: BTreeMap<LinkId, Connection>,
    ops: BTreeMap<OpId, Op>,
    queue: Queue,
    lengths: Lengths,
    /// Which way reads go.
    choice: Choice,
    /// Which way writes go.
    writes: Choice,
    latency: Latency,
    /// Bytes that may be asked for twice.
    hedge_bytes: u64,
    bytes: u64,
    /// Addresses of holders that took no connection: until when they are not asked, and how long that was.
    barred: BTreeMap<String, (Time, Span)>,
    /// Nodes do not tell where parts are until then: a node has refused to.
    locates_at: Time,
    /// Nor do they take values in parts until then.
    stages_at: Time,
    owners: Owners,
    next_op: u64,
    next_link: u64,
    stats: Stats,
}

impl Engine {
    /// A client of the cluster whose nodes have these addresses, `host:port`. One is enough.
    ///
    /// # Panics
    /// If there is no address.
    pub fn new(seeds: Vec<String>, settings: Settings) -> Self {
        assert!(!seeds.is_empty(), "a client needs the address of a node");
        Self {
            lengths: Lengths::new(),
            choice: Choice::new(settings.seed),
            writes: Choice::new(settings.seed),
            // Clients begin at different nodes.
            home: (settings.seed % seeds.len() as u64) as usize,
            settings,
            seeds,
            dial_at: Time(0),
            connections: BTreeMap::new(),
            ops: BTreeMap::new(),
            queue: Queue::new(),
            latency: Latency::default(),
            hedge_bytes: HEDGE_BYTES.0,
            bytes: 0,
            barred: BTreeMap::new(),
            locates_at: Time(0),
            stages_at: Time(0),
            owners: Owners::new(),
            next_op: 0,
            next_link: 0,
            stats: Stats::default(),
        }
    }

    /// Counts since the beginning.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Begins an operation.
    ///
    /// # Errors
    /// [`SubmitError::Busy`] if too many are under way, and the command.
    pub fn submit(&mut self, now: Time, command: Command, out: &mut impl Out) -> Result<OpId, (SubmitError, Command)> {
        let bytes = command.bytes();
        let is_full = self.ops.len() >= self.settings.ops_max || self.bytes + bytes > self.settings.bytes_max;
        if is_full && !self.ops.is_empty() {
            return Err((SubmitError::Busy, command));
        }
        let id = OpId(self.next_op);
        self.next_op += 1;
        let may_begin = match &command.key {
            Some(key) => self.queue.enter(key, id, command.kind == Kind::Get),
            None => true,
        };
        let way = self.way_of(now, &command);
        let op = Op {
            command,
            state: if may_begin { State::Waits(now) } else { State::Queued },
            way,
            attempt: 0,
            located_count: 0,
            moves: 0,
            is_by_node: false,
            is_sent: false,
            committed: None,
            bytes,
            submitted_at: now,
            moved_at: now,
            written_at: None,
            coding: Span(0),
        };
        self.bytes += bytes;
        self.ops.insert(id, op);
        self.go_on(now, id, out);
        Ok(id)
    }

    fn way_of(&mut self, now: Time, command: &Command) -> Way {
        let Settings { decode, encode, .. } = self.settings;
        let value = command.value().map(|value| value.len() as u64);
        let lengths = self.settings.encode_bytes_min..=self.settings.value_bytes_max;
        let value = value.filter(|bytes| lengths.contains(bytes));
        match (command.kind, value) {
            (Kind::Get, _) if decode == Decode::Server || now < self.locates_at => Way::Server,
            (Kind::Get, _) => match command.key.as_ref().and_then(|key| self.lengths.of(key)) {
                Some(bytes) if decode == Decode::Auto => self.choice.choose(now, bytes),
                // The reply that tells the place of a short value is the value.
                _ => Way::Client,
            },
            (_, Some(_)) if encode == Encode::Server || now < self.stages_at => Way::Server,
            (_, Some(bytes)) if encode == Encode::Auto => self.writes.choose(now, bytes),
            (_, Some(_)) => Way::Client,
            (_, None) => Way::Server,
        }
    }

    /// Handles one event.
    pub fn on(&mut self, now: Time, event: Event<'_>, out: &mut impl Out) {
        match event {
            Event::Connected(link) => self.on_connected(now, link, out),
            Event::Closed(link) => self.on_closed(now, link, None, out),
            Event::Bytes(link, bytes) => self.on_bytes(now, link, bytes, out),
            Event::Sent(link) => {
                if let Some(connection) = self.connections.get_mut(&link) {
                    connection.heard_at = now;
                }
            }
            // Nothing else judges silence: other nodes may have answered what was not told yet.
            Event::Timer => self.on_time(now, out),
        }
    }

    /// When [`Event::Timer`] is due.
    pub fn next_at(&self) -> Option<Time> {
        let late = self.late();
        let of_op = self.ops.iter().map(|(id, op)| {
            let at = match &op.state {
                State::Waits(at) => (*at).max(self.dial_at),
                State::Asked(at, link) if op.command.kind == Kind::Get => self.silent_at(*at, *link),
                State::Stages(at, link, _) => self.silent_at(*at, *link),
                State::Writes(writing) => self.holder_silent_at(writing),
                _ => Time(u64::MAX),
            };
            at.min(self.given_up_at(*id, op))
        });
        let of_link = self.connections.values().flat_map(|connection| {
            let awaited = connection.awaited.iter();
            awaited.filter_map(|awaited| match awaited {
                Awaited::Units(units) if !units.is_late => Some(units.at + late),
                Awaited::Units(units) if !units.is_replaced => Some(self.silent_at(units.at, connection.link)),
                _ => None,
            })
        });
        let of_silence = self.connections.values().filter_map(|it| self.closed_at(it));
        of_op.chain(of_link).chain(of_silence).min()
    }

    /// When an operation is given up, if nothing comes until then. One that waits for another begins later.
    fn given_up_at(&self, id: OpId, op: &Op) -> Time {
        let heard_at = |link: &LinkId| self.connections.get(link).map_or(Time(0), |it| it.heard_at);
        let moved_at = match &op.state {
            // Holders that are silent are given up by themselves: then a node encodes the value.
            State::Queued | State::Held(_) | State::Writes(_) => return Time(u64::MAX),
            State::Waits(_) => op.moved_at,
            State::Asked(_, link) | State::Stages(_, link, _) => op.moved_at.max(heard_at(link)),
            // A holder that is silent is given up by itself.
            State::Reads(_) => {
                let links = self.connections.values().filter(|it| it.owes_to(id));
                op.moved_at.max(links.map(|it| it.heard_at).max().unwrap_or_default())
            }
        };
        moved_at + self.settings.deadline
    }

    fn on_reply(&mut self, now: Time, id: OpId, attempt: u32, reply: &Reply<'_>, out: &mut impl Out) {
        let Some(op) = self.ops.get_mut(&id).filter(|op| op.attempt == attempt) else {
            return;
        };
        let is_located = op.is_located();
        if let Reply::Error(text) = reply
            && let State::Asked(_, link) = op.state
            && (op.command.kind != Kind::Other || op.is_encoded_here())
        {
            let key = op.command.written_key().to_vec();
            self.on_moved(link, &key, text);
        }
        let Some(op) = self.ops.get_mut(&id) else { return };
        match reply {
            Reply::Error(text) if op.is_encoded_here() && has_not_happened(text) => self.write_by_node(now, id, out),
            Reply::Error(text) if op.command.kind != Kind::Other && is_moved(text) && op.moves < MOVES_MAX => {
                // It has not happened.
                (op.moves, op.is_sent) = (op.moves + 1, false);
                (op.state, op.moved_at) = (State::Waits(now), now);
                self.go_on(now, id, out);
            }
            Reply::Error(text) if op.command.kind != Kind::Other && may_be_sent_again(text) => {
                op.is_sent = false;
                (op.state, op.moved_at) = (State::Waits(now + AGAIN), now);
            }
            // Some nodes do not know the command, or it is switched off.
            Reply::Error(text) if is_located && !text.starts_with(b"WRONGTYPE") && !text.starts_with(b"NO") => {
                self.locates_at = now + AGAIN_WITHOUT;
                self.ask_node(now, id, out);
            }
            Reply::Error(text) if text.starts_with(b"UNCERTAIN") => self.end(now, id, Err(Failure::Uncertain), out),
            Reply::Error(text) => self.end(now, id, Err(Failure::Refused(text_of(text))), out),
            Reply::Array(items) if is_located => match Located::of_reply(items, self.settings.value_bytes_max) {
                Some(located) => self.read(now, id, located, out),
                None => self.ask_node(now, id, out),
            },
            reply => self.end(now, id, Ok(reply.to_value()), out),
        }
    }

    /// Sends an operation whose turn has come.
    fn go_on(&mut self, now: Time, id: OpId, out: &mut impl Out) {
        let Some(op) = self.ops.get(&id) else { return };
        let State::Waits(at) = op.state else { return };
        if at > now {
            return;
        }
        if op.is_encoded_here() {
            return self.stage(now, id, out);
        }
        let owner = self.owner_link(now, id, out);
        if owner.is_none() && !self.may_go_home(now) {
            return;
        }
        let link = owner.unwrap_or_else(|| {
            let address = self.seeds[self.home].clone();
            self.link_to(now, &address, out)
        });
        let Some(op) = self.ops.get_mut(&id) else { return };
        op.attempt += 1;
        op.state = State::Asked(now, link);
        op.is_sent = op.command.kind != Kind::Get;
        let attempt = op.attempt;
        if op.written_at.is_none() {
            op.written_at = Some(out.clock());
        }
        let is_located = op.is_located();
        let mut words = core::mem::take(&mut op.command.args);
        let name = match words.first_mut().filter(|_| is_located) {
            Some(name) => core::mem::replace(name, b"PARITAS.LOCATE".to_vec()),
            None => Vec::new(),
        };
        self.send(now, link, &words, Awaited::Command { op: id, attempt }, out);
        if let Some(op) = self.ops.get_mut(&id) {
            if let Some(first) = words.first_mut().filter(|_| is_located) {
                *first = name;
            }
            let is_by_key = op.command.kind != Kind::Other;
            op.command.args = words;
            if is_by_key && owner.is_none() {
                self.ask_for_owners(now, link, out);
            }
        }
    }

    fn on_time(&mut self, now: Time, out: &mut impl Out) {
        let all = self.connections.values();
        let silent = all.filter(|connection| self.closed_at(connection).is_some_and(|at| at <= now));
        let silent: Vec<LinkId> = silent.map(|connection| connection.link).collect();
        for link in silent {
            out.close(link);
            self.on_closed(now, link, None, out);
        }
        self.on_late(now, out);
        let ids: Vec<OpId> = self.ops.keys().copied().collect();
        for id in ids {
            let Some(op) = self.ops.get(&id) else { continue };
            if now >= self.given_up_at(id, op) {
                self.give_up(now, id, out);
                continue;
            }
            match &op.state {
                State::Asked(at, link) if op.command.kind == Kind::Get && now >= self.silent_at(*at, *link) => {
                    self.ask_elsewhere(now, *link, out);
                }
                State::Waits(_) => self.go_on(now, id, out),
                State::Stages(at, link, _) if now >= self.silent_at(*at, *link) => {
                    // The whole value must not wait at that node, too.
                    self.leave_silent(now, *link);
                    self.write_by_node(now, id, out);
                }
                State::Writes(writing) if now >= self.holder_silent_at(writing) => self.write_by_node(now, id, out),
                State::Queued | State::Asked(..) | State::Held(_) | State::Reads(_) => {}
                State::Stages(..) | State::Writes(_) => {}
            }
        }
    }

    /// Ends an operation that nobody has answered in time.
    fn give_up(&mut self, now: Time, id: OpId, out: &mut impl Out) {
        let Some(op) = self.ops.get(&id) else { return };
        let is_open = |link: &LinkId| self.connections.get(link).is_none_or(|it| it.phase == Phase::Open);
        if let State::Asked(_, link) = op.state
            && !is_open(&link)
        {
            // The command waits for the connection. It must not be sent later.
            out.close(link);
            self.on_closed(now, link, None, out);
        }
        let is_sent = self.ops.get(&id).is_some_and(|op| op.is_sent);
        let failure = if is_sent {
            Failure::Uncertain
        } else {
            Failure::Unreachable
        };
        self.end(now, id, Err(failure), out);
    }

    fn end(&mut self, now: Time, id: OpId, result: Result<Value, Failure>, out: &mut impl Out) {
        self.end_with(now, id, result, false, out);
    }

    fn end_with(
        &mut self,
        now: Time,
        id: OpId,
        result: Result<Value, Failure>,
        is_decoded_here: bool,
        out: &mut impl Out,
    ) {
        let Some(op) = self.ops.remove(&id) else { return };
        self.bytes -= op.bytes;
        let took = out.clock() - op.submitted_at;
        let request = op.written_at.map_or(Span(0), |at| at - op.submitted_at);
        let phases = Phases {
            request,
            coding: op.coding,
            wait: Span(took.0.saturating_sub(request.0 + op.coding.0)),
        };
        let is_encoded_here = result.is_ok() && op.is_encoded_here();
        self.stats.encoded_here += u64::from(is_encoded_here);
        match (&result, op.command.value()) {
            _ if op.is_by_node => {}
            (Ok(Value::Bulk(value)), _) if op.command.kind == Kind::Get => {
                let way = if is_decoded_here { Way::Client } else { Way::Server };
                let bytes = value.len() as u64;
                let key = op.command.key.as_deref().unwrap_or_default();
                self.lengths.remember(key, bytes);
                self.choice.on_end(bytes, way, took);
            }
            (Ok(_), Some(value)) if value.len() as u64 >= self.settings.encode_bytes_min => {
                self.writes.on_end(value.len() as u64, op.way, took)
            }
            _ => {}
        }
        let outcome = Outcome {
            result,
            phases,
            is_decoded_here,
            is_encoded_here,
        };
        out.done(id, outcome);
        self.begin_held(now, out);
        let Some(key) = &op.command.key else { return };
        for next in self.queue.leave(key, id) {
            if let Some(op) = self.ops.get_mut(&next) {
                (op.state, op.moved_at) = (State::Waits(now), now);
                self.go_on(now, next, out);
            }
        }
    }
}

/// Whether the command of a value in parts has not happened.
fn has_not_happened(text: &[u8]) -> bool {
    text.starts_with(b"NOSTAGE") || is_moved(text) || may_be_sent_again(text)
}

/// Whether a node has refused a command because another one owns the key: it has not happened.
fn is_moved(text: &[u8]) -> bool {
    text.starts_with(b"MOVED ")
}

/// Whether a refused command has not happened and may succeed soon.
fn may_be_sent_again(text: &[u8]) -> bool {
    [&b"TRYAGAIN"[..], b"CLUSTERDOWN", b"LOADING"]
        .iter()
        .any(|code| text.starts_with(code))
}
