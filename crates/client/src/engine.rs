//! `Engine`: all operations of one client.

use crate::choice::{Choice, Way};
use crate::connection::{AskedUnits, Awaited, Connection, Phase};
use crate::latency::Latency;
use crate::located::Located;
use crate::queue::Queue;
use crate::read::{Answer, Ask, Read};
use crate::{Decode, Settings};
use core::fmt;
use paritas_base::{Span, Time};
use paritas_large::Part;
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

/// An operation of this client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OpId(pub u64);

/// A connection of this client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u64);

/// Commands that change their connection, or that have no reply or many. All operations share the connections.
const OF_CONNECTIONS: [&str; 20] = [
    "ASKING",
    "AUTH",
    "DISCARD",
    "EXEC",
    "HELLO",
    "MONITOR",
    "MULTI",
    "PSUBSCRIBE",
    "PSYNC",
    "PUNSUBSCRIBE",
    "QUIT",
    "RESET",
    "SELECT",
    "SSUBSCRIBE",
    "SUBSCRIBE",
    "SUNSUBSCRIBE",
    "SYNC",
    "UNSUBSCRIBE",
    "UNWATCH",
    "WATCH",
];

/// What the engine knows of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// GET of the key. It changes nothing, so it may be sent again.
    Get,
    /// SET of the key. If it is refused it has not happened.
    Set,
    /// If it is refused, a part of it may have happened.
    Other,
}

/// A command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Command {
    args: Vec<Vec<u8>>,
    /// Commands with the same key happen in the order of their submission.
    key: Option<Vec<u8>>,
    kind: Kind,
}

/// A command that changes its connection: all operations of a client share the connections.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OfConnection(String);

impl fmt::Display for OfConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name) = self;
        write!(
            f,
            "{name} is about one connection, and all operations of this client share theirs: use a Redis client for it"
        )
    }
}

impl core::error::Error for OfConnection {}

impl Command {
    /// GET of a key.
    pub fn get(key: &[u8]) -> Self {
        Self {
            args: vec![b"GET".to_vec(), key.to_vec()],
            key: Some(key.to_vec()),
            kind: Kind::Get,
        }
    }

    /// SET of a key.
    pub fn set(key: &[u8], value: Vec<u8>) -> Self {
        Self {
            args: vec![b"SET".to_vec(), key.to_vec(), value],
            key: Some(key.to_vec()),
            kind: Kind::Set,
        }
    }

    /// Any command, its name first. `key`: it happens in order with other commands of this key.
    ///
    /// # Errors
    /// If the command changes its connection, as SELECT and MULTI do, or has no name.
    pub fn other(args: Vec<Vec<u8>>, key: Option<Vec<u8>>) -> Result<Self, OfConnection> {
        let word = |at: usize| args.get(at).map(|word| text_of(word).to_ascii_uppercase());
        let name = word(0).unwrap_or_else(|| "a command without a name".to_owned());
        let is_reply = name == "CLIENT" && word(1).is_some_and(|word| word == "REPLY" || word == "TRACKING");
        if args.is_empty() || is_reply || OF_CONNECTIONS.contains(&name.as_str()) {
            return Err(OfConnection(name));
        }
        let kind = Kind::Other;
        Ok(Self { args, key, kind })
    }

    fn bytes(&self) -> u64 {
        self.args.iter().map(|arg| arg.len() as u64).sum()
    }
}

/// What happens to the engine.
#[derive(Debug)]
pub enum Event<'a> {
    /// A connection that was dialled is up.
    Connected(LinkId),
    /// A connection is down, or could not be made.
    Closed(LinkId),
    /// Bytes have come.
    Bytes(LinkId, &'a [u8]),
    /// The node's machine has taken bytes: it is not silent.
    Sent(LinkId),
    /// The time of [`Engine::next_at`] has come. The driver has told all bytes that have come until then.
    Timer,
}

/// What the engine asks its driver for.
pub trait Out {
    /// Connect to this address; then [`Event::Connected`] or [`Event::Closed`] follows.
    fn dial(&mut self, link: LinkId, address: &str);
    /// Send these bytes, behind those before.
    fn write(&mut self, link: LinkId, bytes: &[u8]);
    /// Close the connection. No event follows.
    fn close(&mut self, link: LinkId);
    /// An operation has ended.
    fn done(&mut self, op: OpId, outcome: Outcome);
    /// The present time, for figures alone.
    fn clock(&mut self) -> Time;
}

/// How an operation has ended.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// The reply.
    pub result: Result<Value, Failure>,
    /// Where the time went.
    pub phases: Phases,
    /// The value was put together by this client.
    pub is_decoded_here: bool,
}

impl Outcome {
    /// Of an operation that no engine has ended.
    pub fn failed(failure: Failure) -> Self {
        Self {
            result: Err(failure),
            phases: Phases::default(),
            is_decoded_here: false,
        }
    }
}

/// Where the time of an operation went (the fifth paper, §VI-B).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Phases {
    /// From the submission until the first command was given to a connection.
    pub request: Span,
    /// Sums and decoding.
    pub coding: Span,
    /// The rest.
    pub wait: Span,
}

/// Why an operation has no reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// A node has answered with this error. GET and SET have not happened; of another command a part may have.
    Refused(String),
    /// A connection ended after it was sent: it may have happened, or may happen yet.
    Uncertain,
    /// It has not happened: no node answered in time.
    Unreachable,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(text) => f.write_str(text),
            Self::Uncertain => f.write_str("the connection ended after the command was sent: it may have happened"),
            Self::Unreachable => f.write_str("no node answered in time; nothing has changed"),
        }
    }
}

impl core::error::Error for Failure {}

/// Why an operation is not begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubmitError {
    /// Too many are under way: wait for one.
    Busy,
}

impl fmt::Display for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("too many operations are under way: wait for one of them")
    }
}

impl core::error::Error for SubmitError {}

/// Counts since the beginning.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Values that were put together here.
    pub decoded_here: u64,
    /// Bytes of units that came.
    pub unit_bytes: u64,
    /// Units that were asked for because others were late, and their bytes.
    pub replaced: u64,
    /// Bytes of these.
    pub replaced_bytes: u64,
    /// Answers whose bytes were not those of their sums, or values that were not those of their records.
    pub wrong: u64,
    /// Values that were located again.
    pub located_again: u64,
    /// Values that a node was asked for, because their parts could not be read.
    pub by_node: u64,
}

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

    /// Operations under way.
    pub fn op_count(&self) -> usize {
        self.ops.len()
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

    /// The time after which units are late.
    fn late(&self) -> Span {
        self.settings.late_min.max(Span(4 * self.latency.median().0))
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

    /// `refused`: the node has refused the password, with this text.
    fn on_closed(&mut self, now: Time, link: LinkId, refused: Option<&str>, out: &mut impl Out) {
        let Some(connection) = self.connections.remove(&link) else {
            return;
        };
        if self.seeds[self.home] == connection.address {
            self.home = (self.home + 1) % self.seeds.len();
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

    /// An address takes no connection: nobody may route there. It is not asked for units for a while, and longer each
    /// time.
    fn bar(&mut self, now: Time, address: &str) {
        self.barred.retain(|_, (until, wait)| now < *until + *wait);
        let wait = self
            .barred
            .get(address)
            .map_or(BARRED.0, |(_, wait)| Span(2 * wait.0).min(BARRED.1));
        self.barred.insert(address.to_owned(), (now + wait, wait));
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

    /// A value is to be read from its parts.
    fn read(&mut self, now: Time, id: OpId, located: Located, out: &mut impl Out) {
        let Some(op) = self.ops.get_mut(&id) else { return };
        (op.state, op.moved_at) = (State::Held(Arc::new(located)), now);
        self.begin_held(now, out);
    }

    /// Begins to read the values for which there is room. One that is longer than all the room is read alone.
    fn begin_held(&mut self, now: Time, out: &mut impl Out) {
        loop {
            let is_any_read = self.ops.values().any(|op| matches!(op.state, State::Reads(_)));
            let held = self.ops.iter().find_map(|(id, op)| match &op.state {
                State::Held(located) => Some((*id, op.bytes, located.clone())),
                _ => None,
            });
            let Some((id, command_bytes, located)) = held else {
                return;
            };
            let bytes = self.bytes - command_bytes + located.value_bytes();
            if is_any_read && bytes > self.settings.bytes_max {
                return;
            }
            self.bytes = bytes;
            if let Some(op) = self.ops.get_mut(&id) {
                (op.bytes, op.moved_at) = (located.value_bytes(), now);
                op.state = State::Reads(Box::new(Read::new(located)));
            }
            self.ask_for_units(now, id, out);
        }
    }

    /// The value cannot be read from its parts, or not by this client: a node is asked for it.
    fn ask_node(&mut self, now: Time, id: OpId, out: &mut impl Out) {
        let Some(op) = self.ops.get_mut(&id) else { return };
        if op.located_count > 0 {
            self.choice.on_failure(now, op.bytes);
        }
        (op.way, op.is_by_node, op.state) = (Way::Server, true, State::Waits(now));
        self.stats.by_node += 1;
        self.go_on(now, id, out);
        self.begin_held(now, out);
    }

    fn ask_for_units(&mut self, now: Time, id: OpId, out: &mut impl Out) {
        loop {
            let Self {
                ops,
                connections,
                barred,
                ..
            } = self;
            let Some(op) = ops.get_mut(&id) else { return };
            let attempt = op.attempt;
            let State::Reads(read) = &mut op.state else { return };
            if read.is_done() {
                return self.finish(now, id, out);
            }
            let located = read.located().clone();
            let owes = |address: &str| {
                let mut connections = connections.values();
                connections.any(|connection| connection.address == address && connection.owes())
            };
            let is_barred = |address: &&str| barred.get(*address).is_some_and(|(until, _)| now < *until);
            let rank = |part: &Part| {
                let holder = located.holder(part).filter(|address| !is_barred(address))?;
                Some(u32::from(owes(holder)))
            };
            match read.next_ask(rank) {
                Ok(Some(ask)) => self.ask_holder(now, id, attempt, &located, ask, out),
                Ok(None) => return,
                Err(_) => return self.locate_again(now, id, out),
            }
        }
    }

    fn ask_holder(&mut self, now: Time, op: OpId, attempt: u32, located: &Located, ask: Ask, out: &mut impl Out) {
        let Some(address) = located.holder(&ask.part) else {
            return;
        };
        let link = self.link_to(now, address, out);
        let units = AskedUnits {
            op,
            attempt,
            ask,
            link,
            at: now,
            is_late: false,
            is_replaced: false,
        };
        let words = located.ask(&ask);
        self.send(now, link, &words, Awaited::Units(units), out);
    }

    fn on_units(&mut self, now: Time, units: AskedUnits, bytes: Option<&[u8]>, out: &mut impl Out) {
        let Some(op) = self.ops.get_mut(&units.op).filter(|op| op.attempt == units.attempt) else {
            return;
        };
        let State::Reads(read) = &mut op.state else { return };
        let before = out.clock();
        let answer = read.on_units(units.ask.id, bytes);
        op.coding = op.coding + (out.clock() - before);
        match answer {
            Answer::Sound => {
                op.moved_at = now;
                self.stats.unit_bytes += units.ask.bytes;
                let earned = units.ask.bytes * self.settings.hedge_per_mille / 1_000;
                self.hedge_bytes = (self.hedge_bytes + earned).min(HEDGE_BYTES.1);
            }
            Answer::Wrong => {
                self.stats.wrong += 1;
                // The holder compares them, and mends what is wrong (P14.12).
                let mut words = read.located().ask(&units.ask).to_vec();
                words.push(b"CHECK".to_vec());
                self.send(now, units.link, &words, Awaited::Nothing, out);
            }
            Answer::Absent | Answer::Late => {}
        }
        self.ask_for_units(now, units.op, out);
    }

    /// All bytes of a value are here.
    fn finish(&mut self, now: Time, id: OpId, out: &mut impl Out) {
        let Some(op) = self.ops.get_mut(&id) else { return };
        let State::Reads(read) = core::mem::replace(&mut op.state, State::Queued) else {
            return;
        };
        let before = out.clock();
        let value = read.finish();
        op.coding = op.coding + (out.clock() - before);
        match value {
            Ok(value) => {
                self.stats.decoded_here += 1;
                self.end_read(now, id, value, out);
            }
            Err(_) => {
                self.stats.wrong += 1;
                self.locate_again(now, id, out);
            }
        }
    }

    fn end_read(&mut self, now: Time, id: OpId, value: Vec<u8>, out: &mut impl Out) {
        self.end_with(now, id, Ok(Value::Bulk(value)), true, out);
    }

    /// The holders do not have the value any more: it has another one, or has moved.
    fn locate_again(&mut self, now: Time, id: OpId, out: &mut impl Out) {
        let Some(op) = self.ops.get_mut(&id) else { return };
        op.located_count += 1;
        if op.located_count >= LOCATED_MAX {
            return self.ask_node(now, id, out);
        }
        self.stats.located_again += 1;
        op.state = State::Waits(now);
        self.go_on(now, id, out);
        self.begin_held(now, out);
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
                    let heard_at = asked.map_or(Time(0), |it| it.heard_at);
                    if asked.map(|it| &it.address) == self.seeds.get(self.home) {
                        self.home = (self.home + 1) % self.seeds.len();
                    }
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

    /// Asks for other units in the place of late ones, as far as the budget goes, and gives up silent holders.
    fn on_late(&mut self, now: Time, out: &mut impl Out) {
        let (late, retry) = (self.late(), self.settings.retry);
        let mut found = Vec::new();
        for connection in self.connections.values_mut() {
            let heard_at = connection.heard_at;
            for awaited in &mut connection.awaited {
                let Awaited::Units(units) = awaited else { continue };
                let is_silent = now >= units.at.max(heard_at) + retry;
                if now < units.at + late && !is_silent || units.is_replaced {
                    continue;
                }
                units.is_late = true;
                let op = self.ops.get(&units.op).filter(|op| op.attempt == units.attempt);
                let is_read = op.is_some_and(|op| matches!(op.state, State::Reads(_)));
                if is_read && !is_silent {
                    if self.hedge_bytes < units.ask.bytes {
                        continue;
                    }
                    self.hedge_bytes -= units.ask.bytes;
                }
                units.is_replaced = true;
                if is_read {
                    found.push((*units, is_silent));
                }
            }
        }
        for (units, is_silent) in found {
            let op = self.ops.get_mut(&units.op).filter(|op| op.attempt == units.attempt);
            let Some(State::Reads(read)) = op.map(|op| &mut op.state) else {
                continue;
            };
            self.stats.replaced += 1;
            self.stats.replaced_bytes += units.ask.bytes;
            if is_silent {
                self.on_units(now, units, None, out);
            } else {
                read.on_late(units.ask.id);
                self.ask_for_units(now, units.op, out);
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

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests;
