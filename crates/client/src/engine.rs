//! `Engine`: all operations of one client.

mod parts;
#[cfg(test)]
mod tests;

use crate::choice::{Choice, Way};
use crate::command::{Command, Kind};
use crate::connection::{Awaited, Connection, Phase};
use crate::interface::{Event, Failure, LinkId, OpId, Out, Outcome, Phases, Stats, SubmitError, text_of};
use crate::latency::Latency;
use crate::located::Located;
use crate::queue::Queue;
use crate::read::Read;
use crate::{Decode, Settings};
use paritas_base::{Span, Time};
use paritas_wire::resp::{Reply, Value, encode};
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
/// The time for which nodes are not asked where parts are, once one has refused to tell.
const LOCATES_AGAIN: Span = Span::from_secs(1);

#[derive(Debug)]
struct Op {
    command: Command,
    state: State,
    way: Way,
    /// Counts what was sent for it: replies to earlier attempts are not its reply.
    attempt: u32,
    located_count: u32,
    /// A node was asked because the parts could not be read.
    is_by_node: bool,
    /// A write was sent.
    is_sent: bool,
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
}

/// All operations of one client.
#[derive(Debug)]
pub struct Engine {
    settings: Settings,
    seeds: Vec<String>,
    /// The seed that commands go to.
    home: usize,
    dial_at: Time,
    connections: BTreeMap<LinkId, Connection>,
    ops: BTreeMap<OpId, Op>,
    queue: Queue,
    choice: Choice,
    latency: Latency,
    /// Bytes that may be asked for twice.
    hedge_bytes: u64,
    bytes: u64,
    /// Addresses of holders that took no connection: until when they are not asked, and how long that was.
    barred: BTreeMap<String, (Time, Span)>,
    /// Nodes do not tell where parts are until then: a node has refused to.
    locates_at: Time,
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
            choice: Choice::new(settings.seed),
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
        let way = match (self.settings.decode, &command.key) {
            _ if now < self.locates_at => Way::Server,
            (Decode::Auto, Some(key)) => self.choice.choose(now, key),
            (Decode::Client, _) => Way::Client,
            _ => Way::Server,
        };
        let op = Op {
            command,
            state: if may_begin { State::Waits(now) } else { State::Queued },
            way,
            attempt: 0,
            located_count: 0,
            is_by_node: false,
            is_sent: false,
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
            let at = match op.state {
                State::Waits(at) => at.max(self.dial_at),
                State::Asked(at, link) if op.command.kind == Kind::Get => self.silent_at(at, link),
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

    /// When a connection is closed, if nothing comes until then.
    fn closed_at(&self, connection: &Connection) -> Option<Time> {
        let is_open = connection.phase == Phase::Open;
        let patience = if is_open {
            self.settings.deadline
        } else {
            self.settings.retry
        };
        Some(connection.silent_since()? + patience)
    }

    /// When a node counts as silent that was asked at this time.
    fn silent_at(&self, asked_at: Time, link: LinkId) -> Time {
        let heard_at = self
            .connections
            .get(&link)
            .map_or(Time(0), |connection| connection.heard_at);
        asked_at.max(heard_at) + self.settings.retry
    }

    /// When an operation is given up, if nothing comes until then. One that waits for another begins later.
    fn given_up_at(&self, id: OpId, op: &Op) -> Time {
        let heard_at = |link: &LinkId| self.connections.get(link).map_or(Time(0), |it| it.heard_at);
        let moved_at = match &op.state {
            State::Queued | State::Held(_) => return Time(u64::MAX),
            State::Waits(_) => op.moved_at,
            State::Asked(_, link) => op.moved_at.max(heard_at(link)),
            // A holder that is silent is given up by itself.
            State::Reads(_) => {
                let links = self.connections.values().filter(|it| it.owes_to(id));
                op.moved_at.max(links.map(|it| it.heard_at).max().unwrap_or_default())
            }
        };
        moved_at + self.settings.deadline
    }

    fn on_connected(&mut self, now: Time, link: LinkId, out: &mut impl Out) {
        let Some(connection) = self.connections.get_mut(&link) else {
            return;
        };
        connection.heard_at = now;
        let Some((user, password)) = &self.settings.password else {
            return Self::open(connection, &mut self.barred, out);
        };
        let user = user.iter().map(String::as_bytes);
        let words: Vec<&[u8]> = core::iter::once(&b"AUTH"[..])
            .chain(user)
            .chain([password.as_bytes()])
            .collect();
        let mut bytes = Vec::new();
        encode::request(&mut bytes, &words);
        out.write(link, &bytes);
        connection.phase = Phase::Proving;
        connection.awaited.push_front(Awaited::Auth);
    }

    fn open(connection: &mut Connection, barred: &mut BTreeMap<String, (Time, Span)>, out: &mut impl Out) {
        connection.phase = Phase::Open;
        barred.remove(&connection.address);
        let unsent = core::mem::take(&mut connection.unsent);
        if !unsent.is_empty() {
            out.write(connection.link, &unsent);
        }
    }

    /// Commands go to the next seed from now on, if they go to this address. Whether they did.
    fn leave_home(&mut self, address: &str) -> bool {
        let is_home = self.seeds[self.home] == address;
        if is_home {
            self.home = (self.home + 1) % self.seeds.len();
        }
        is_home
    }

    /// `refused`: the node has refused the password, with this text.
    fn on_closed(&mut self, now: Time, link: LinkId, refused: Option<&str>, out: &mut impl Out) {
        let Some(connection) = self.connections.remove(&link) else {
            return;
        };
        if self.leave_home(&connection.address) {
            self.dial_at = now + AGAIN;
        }
        if connection.phase == Phase::Dialled {
            self.bar(now, &connection.address);
        }
        for awaited in connection.awaited {
            match awaited {
                Awaited::Auth | Awaited::Nothing => {}
                Awaited::Command { op, attempt } => {
                    let Some(it) = self.ops.get_mut(&op).filter(|it| it.attempt == attempt) else {
                        continue;
                    };
                    it.is_sent &= connection.phase == Phase::Open;
                    it.moved_at = it.moved_at.max(connection.heard_at);
                    match (it.is_sent, refused) {
                        (true, _) => self.end(now, op, Err(Failure::Uncertain), out),
                        (false, Some(text)) => self.end(now, op, Err(Failure::Refused(text.to_owned())), out),
                        (false, None) => it.state = State::Waits(now + AGAIN),
                    }
                }
                Awaited::Units(units) => self.on_units(now, units, None, out),
            }
        }
    }

    fn on_bytes(&mut self, now: Time, link: LinkId, bytes: &[u8], out: &mut impl Out) {
        let Some(connection) = self.connections.get_mut(&link) else {
            return;
        };
        connection.heard_at = now;
        // It is taken from the connection while its replies are read.
        let mut input = core::mem::take(&mut connection.input);
        let mut decoder = connection.decoder.clone();
        input.extend_from_slice(bytes);
        let mut used = 0;
        let (mut is_wrong, mut refused) = (false, None);
        while used < input.len() && !is_wrong {
            let rest = input.get(used..).unwrap_or_default();
            let (reply, length) = match decoder.decode(rest) {
                Ok(Some(found)) => found,
                Ok(None) => break,
                Err(_) => {
                    is_wrong = true;
                    break;
                }
            };
            used += length;
            let Some(connection) = self.connections.get_mut(&link) else {
                return;
            };
            let is_first = !core::mem::replace(&mut connection.has_answered, true);
            if is_first && matches!(&reply, Reply::Error(text) if text.starts_with(TOO_MANY_CONNECTIONS)) {
                // The node has not read anything, and closes the connection.
                connection.phase = Phase::Dialled;
                is_wrong = true;
                break;
            }
            match connection.awaited.pop_front() {
                Some(Awaited::Auth) => match &reply {
                    Reply::Error(text) => {
                        is_wrong = true;
                        refused = Some(text_of(text));
                    }
                    _ => Self::open(connection, &mut self.barred, out),
                },
                Some(Awaited::Command { op, attempt }) => self.on_reply(now, op, attempt, &reply, out),
                Some(Awaited::Units(units)) => {
                    let bytes = match &reply {
                        Reply::Bulk(bytes) => Some(*bytes),
                        _ => None,
                    };
                    if bytes.is_some() {
                        self.latency.add(now - units.at);
                    }
                    self.on_units(now, units, bytes, out);
                }
                Some(Awaited::Nothing) => {}
                None => is_wrong = true,
            }
        }
        let is_long = (input.len() - used) as u64 > self.settings.reply_bytes_max;
        if is_wrong || is_long {
            let long_for = self.connections.get(&link).and_then(|it| it.awaited.front().cloned());
            out.close(link);
            self.on_closed(now, link, refused.as_deref(), out);
            if let (true, Some(Awaited::Command { op, attempt })) = (is_long, long_for) {
                self.refuse_long_reply(now, op, attempt, out);
            }
            return;
        }
        if let Some(connection) = self.connections.get_mut(&link) {
            input.drain(..used);
            (connection.input, connection.decoder) = (input, decoder);
        }
    }

    /// The reply to an operation is longer than this client takes. Its connection is closed.
    fn refuse_long_reply(&mut self, now: Time, op: OpId, attempt: u32, out: &mut impl Out) {
        let it = self.ops.get(&op).filter(|it| it.attempt == attempt);
        if it.is_some_and(|it| it.command.kind == Kind::Get) {
            let bytes_max = self.settings.reply_bytes_max;
            let text = format!("the value is longer than reply_bytes_max, {bytes_max} B");
            self.end(now, op, Err(Failure::Refused(text)), out);
        }
    }

    fn on_reply(&mut self, now: Time, id: OpId, attempt: u32, reply: &Reply<'_>, out: &mut impl Out) {
        let Some(op) = self.ops.get_mut(&id).filter(|op| op.attempt == attempt) else {
            return;
        };
        let is_located = op.command.kind == Kind::Get && op.way == Way::Client;
        match reply {
            Reply::Error(text) if op.command.kind != Kind::Other && may_be_sent_again(text) => {
                op.is_sent = false;
                (op.state, op.moved_at) = (State::Waits(now + AGAIN), now);
            }
            // Some nodes do not know the command, or it is switched off.
            Reply::Error(text) if is_located && !text.starts_with(b"WRONGTYPE") && !text.starts_with(b"NO") => {
                self.locates_at = now + LOCATES_AGAIN;
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
        let address = self.seeds[self.home].clone();
        let is_there = self.connections.values().any(|it| it.address == address);
        if !is_there && self.dial_at > now {
            return;
        }
        let link = self.link_to(now, &address, out);
        let Some(op) = self.ops.get_mut(&id) else { return };
        op.attempt += 1;
        op.state = State::Asked(now, link);
        op.is_sent = op.command.kind != Kind::Get;
        let attempt = op.attempt;
        if op.written_at.is_none() {
            op.written_at = Some(out.clock());
        }
        let mut words = core::mem::take(&mut op.command.args);
        let is_located = op.command.kind == Kind::Get && op.way == Way::Client;
        let name = match words.first_mut().filter(|_| is_located) {
            Some(name) => core::mem::replace(name, b"PARITAS.LOCATE".to_vec()),
            None => Vec::new(),
        };
        self.send(now, link, &words, Awaited::Command { op: id, attempt }, out);
        if let Some(op) = self.ops.get_mut(&id) {
            if let Some(first) = words.first_mut().filter(|_| is_located) {
                *first = name;
            }
            op.command.args = words;
        }
    }

    fn send(&mut self, now: Time, link: LinkId, words: &[Vec<u8>], awaited: Awaited, out: &mut impl Out) {
        let Some(connection) = self.connections.get_mut(&link) else {
            return;
        };
        connection.await_reply(now, awaited);
        let mut bytes = Vec::new();
        encode::request(&mut bytes, words);
        match connection.phase {
            Phase::Open => out.write(link, &bytes),
            Phase::Dialled | Phase::Proving => connection.unsent.extend_from_slice(&bytes),
        }
    }

    /// The connection to an address, which is made if there is none.
    fn link_to(&mut self, now: Time, address: &str, out: &mut impl Out) -> LinkId {
        let mut connections = self.connections.values();
        if let Some(connection) = connections.find(|connection| connection.address == address) {
            return connection.link;
        }
        let link = LinkId(self.next_link);
        self.next_link += 1;
        self.connections.insert(link, Connection::new(now, link, address));
        out.dial(link, address);
        link
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
                let failure = if op.is_sent {
                    Failure::Uncertain
                } else {
                    Failure::Unreachable
                };
                self.end(now, id, Err(failure), out);
                continue;
            }
            match op.state {
                State::Asked(at, link) if op.command.kind == Kind::Get && now >= self.silent_at(at, link) => {
                    // The next node may have what this one does not answer.
                    let asked = self.connections.get(&link);
                    let (address, heard_at) = asked.map(|it| (it.address.clone(), it.heard_at)).unwrap_or_default();
                    self.leave_home(&address);
                    if let Some(op) = self.ops.get_mut(&id) {
                        (op.state, op.moved_at) = (State::Waits(now), op.moved_at.max(heard_at));
                    }
                    self.go_on(now, id, out);
                }
                State::Waits(_) => self.go_on(now, id, out),
                State::Queued | State::Asked(..) | State::Held(_) | State::Reads(_) => {}
            }
        }
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
        let is_choice = op.command.kind == Kind::Get && !op.is_by_node;
        if let (true, Ok(Value::Bulk(value)), Some(key)) = (is_choice, &result, &op.command.key) {
            let way = if is_decoded_here { Way::Client } else { Way::Server };
            self.choice.on_read(key, value.len() as u64, way, took);
        }
        let outcome = Outcome {
            result,
            phases,
            is_decoded_here,
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

/// Whether a refused command has not happened and may succeed soon.
fn may_be_sent_again(text: &[u8]) -> bool {
    [&b"TRYAGAIN"[..], b"CLUSTERDOWN", b"LOADING"]
        .iter()
        .any(|code| text.starts_with(code))
}
