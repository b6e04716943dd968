//! `Engine`: all operations of one client.

use crate::choice::{Choice, Way};
use crate::connection::{AskedUnits, Awaited, Connection};
use crate::latency::Latency;
use crate::located::Located;
use crate::queue::Queue;
use crate::read::{Answer, Ask, Read};
use crate::{Decode, Settings};
use core::fmt;
use paritas_base::{Span, Time};
use paritas_wire::resp::{Reply, Value, encode};
use std::collections::BTreeMap;

/// The wait before a node is asked or dialled again.
const AGAIN: Span = Span::from_ms(20);
/// Bytes that may be asked for twice before anything was read, and the most that are saved up.
const HEDGE_BYTES: (u64, u64) = (1 << 20, 8 << 20);
/// Times that a value is located before a node is asked for it.
const LOCATED_MAX: u32 = 2;
/// Bytes that a reply may have beside the value.
const REPLY_BYTES_MORE: u64 = 1 << 20;

/// An operation of this client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OpId(pub u64);

/// A connection of this client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u64);

/// A command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Command {
    args: Vec<Vec<u8>>,
    /// Commands with the same key happen in the order of their submission.
    key: Option<Vec<u8>>,
    /// It changes nothing, so it may be sent again.
    is_read: bool,
    /// It is GET of the key.
    is_get: bool,
}

impl Command {
    /// GET of a key.
    pub fn get(key: &[u8]) -> Self {
        Self {
            args: vec![b"GET".to_vec(), key.to_vec()],
            key: Some(key.to_vec()),
            is_read: true,
            is_get: true,
        }
    }

    /// SET of a key.
    pub fn set(key: &[u8], value: Vec<u8>) -> Self {
        Self {
            args: vec![b"SET".to_vec(), key.to_vec(), value],
            key: Some(key.to_vec()),
            is_read: false,
            is_get: false,
        }
    }

    /// Any command, its name first. `key`: it happens in order with other commands of this key.
    pub fn other(args: Vec<Vec<u8>>, key: Option<Vec<u8>>) -> Self {
        Self {
            args,
            key,
            is_read: false,
            is_get: false,
        }
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
    /// The time of [`Engine::next_at`] has come.
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

/// Where the time of an operation went (the fifth paper, §VI-B).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Phases {
    /// From the submission until the first command was written.
    pub request: Span,
    /// Sums and decoding.
    pub coding: Span,
    /// The rest.
    pub wait: Span,
}

/// Why an operation has no reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// A node has refused it with this text; it has not happened.
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
    /// A write was sent.
    is_sent: bool,
    /// Bytes that it counts among those under way.
    bytes: u64,
    submitted_at: Time,
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
            settings,
            seeds,
            home: 0,
            dial_at: Time(0),
            connections: BTreeMap::new(),
            ops: BTreeMap::new(),
            queue: Queue::new(),
            latency: Latency::default(),
            hedge_bytes: HEDGE_BYTES.0,
            bytes: 0,
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
            Some(key) => self.queue.enter(key, id, command.is_read),
            None => true,
        };
        let way = match (self.settings.decode, &command.key) {
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
            is_sent: false,
            bytes,
            submitted_at: now,
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
            Event::Connected(link) => self.on_connected(link, out),
            Event::Closed(link) => self.on_closed(now, link, out),
            Event::Bytes(link, bytes) => self.on_bytes(now, link, bytes, out),
            Event::Timer => {}
        }
        self.on_time(now, out);
    }

    /// When [`Event::Timer`] is due.
    pub fn next_at(&self) -> Option<Time> {
        let late = self.late();
        let of_op = self.ops.values().map(|op| {
            let at = match op.state {
                State::Waits(at) => at.max(self.dial_at),
                State::Asked(at, _) if op.command.is_read => at + self.settings.retry,
                _ => Time(u64::MAX),
            };
            at.min(op.submitted_at + self.settings.deadline)
        });
        let awaited = self.connections.values().flat_map(|connection| &connection.awaited);
        let of_units = awaited.filter_map(|awaited| match awaited {
            Awaited::Units(units) if !units.is_late => Some(units.at + late),
            Awaited::Units(units) if !units.is_replaced => Some(units.at + self.settings.retry),
            _ => None,
        });
        of_op.chain(of_units).min()
    }

    /// The time after which units are late.
    fn late(&self) -> Span {
        self.settings.late_min.max(Span(4 * self.latency.median().0))
    }

    fn on_connected(&mut self, link: LinkId, out: &mut impl Out) {
        let Some(connection) = self.connections.get_mut(&link) else {
            return;
        };
        connection.is_up = true;
        if let Some((user, password)) = &self.settings.password {
            let user = user.iter().map(String::as_bytes);
            let words: Vec<&[u8]> = core::iter::once(&b"AUTH"[..])
                .chain(user)
                .chain([password.as_bytes()])
                .collect();
            let mut bytes = Vec::new();
            encode::request(&mut bytes, &words);
            out.write(link, &bytes);
            connection.awaited.push_front(Awaited::Auth);
        }
        let unsent = core::mem::take(&mut connection.unsent);
        if !unsent.is_empty() {
            out.write(link, &unsent);
        }
    }

    fn on_closed(&mut self, now: Time, link: LinkId, out: &mut impl Out) {
        let Some(connection) = self.connections.remove(&link) else {
            return;
        };
        if self.seeds[self.home] == connection.address {
            self.home = (self.home + 1) % self.seeds.len();
            self.dial_at = now + AGAIN;
        }
        for awaited in connection.awaited {
            match awaited {
                Awaited::Auth | Awaited::Nothing => {}
                Awaited::Command { op, attempt } => {
                    let Some(it) = self.ops.get_mut(&op).filter(|it| it.attempt == attempt) else {
                        continue;
                    };
                    if !connection.is_up {
                        it.is_sent = false;
                    }
                    match it.is_sent {
                        true => self.end(now, op, Err(Failure::Uncertain), out),
                        false => it.state = State::Waits(now + AGAIN),
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
        // It is taken from the connection while its replies are read.
        let mut input = core::mem::take(&mut connection.input);
        let mut decoder = connection.decoder.clone();
        input.extend_from_slice(bytes);
        let mut used = 0;
        let mut is_wrong = input.len() as u64 > self.settings.value_bytes_max + REPLY_BYTES_MORE;
        while !is_wrong && used < input.len() {
            let rest = input.get(used..).unwrap_or_default();
            let (reply, length) = match decoder.decode(rest) {
                Ok(Some(found)) => found,
                Ok(None) => break,
                Err(_) => {
                    is_wrong = true;
                    break;
                }
            };
            let awaited = self.connections.get_mut(&link).and_then(|it| it.awaited.pop_front());
            match awaited {
                Some(Awaited::Auth) => {
                    if let Reply::Error(text) = &reply {
                        self.refuse_all(now, &text_of(text), out);
                        is_wrong = true;
                    }
                }
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
            used += length;
        }
        if is_wrong {
            out.close(link);
            return self.on_closed(now, link, out);
        }
        if let Some(connection) = self.connections.get_mut(&link) {
            input.drain(..used);
            (connection.input, connection.decoder) = (input, decoder);
        }
    }

    fn on_reply(&mut self, now: Time, id: OpId, attempt: u32, reply: &Reply<'_>, out: &mut impl Out) {
        let Some(op) = self.ops.get_mut(&id).filter(|op| op.attempt == attempt) else {
            return;
        };
        let is_located = op.command.is_get && op.way == Way::Client;
        match reply {
            Reply::Error(text) if may_be_sent_again(text) => {
                op.is_sent = false;
                op.state = State::Waits(now + AGAIN);
            }
            // Some nodes do not know the command, or it is switched off.
            Reply::Error(text) if is_located && !text.starts_with(b"WRONGTYPE") && !text.starts_with(b"NO") => {
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

    /// Begins to read a value from its parts.
    fn read(&mut self, now: Time, id: OpId, located: Located, out: &mut impl Out) {
        if let Some(op) = self.ops.get_mut(&id) {
            let bytes = located.value_bytes();
            self.bytes = self.bytes - op.bytes + bytes;
            op.bytes = bytes;
            op.state = State::Reads(Box::new(Read::new(located)));
            self.ask_for_units(now, id, out);
        }
    }

    /// The value cannot be read from its parts, or not by this client: a node is asked for it.
    fn ask_node(&mut self, now: Time, id: OpId, out: &mut impl Out) {
        if let Some(op) = self.ops.get_mut(&id) {
            op.way = Way::Server;
            op.state = State::Waits(now);
            self.stats.by_node += 1;
            self.choice.on_failure(now, op.bytes);
            self.go_on(now, id, out);
        }
    }

    fn ask_for_units(&mut self, now: Time, id: OpId, out: &mut impl Out) {
        loop {
            let Some(op) = self.ops.get_mut(&id) else { return };
            let attempt = op.attempt;
            let State::Reads(read) = &mut op.state else { return };
            if read.is_done() {
                return self.finish(now, id, out);
            }
            let holders: Vec<(String, bool)> = {
                let placement = read.located().placement;
                let owes = |address: &str| {
                    let mut connections = self.connections.values();
                    connections.any(|connection| connection.address == address && connection.owes())
                };
                let holders = placement.parts().filter_map(|part| read.located().holder(&part));
                holders.map(|address| (address.to_owned(), owes(address))).collect()
            };
            let located = read.located().clone();
            let rank = |part: &paritas_large::Part| {
                let address = located.holder(part)?;
                let owes = holders.iter().any(|(holder, owes)| *owes && holder == address);
                Some(u32::from(owes))
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
        let link = self.link_to(address, out);
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
        self.send(link, &words, Awaited::Units(units), out);
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
                self.stats.unit_bytes += units.ask.bytes;
                let earned = units.ask.bytes * self.settings.hedge_per_mille / 1_000;
                self.hedge_bytes = (self.hedge_bytes + earned).min(HEDGE_BYTES.1);
            }
            Answer::Wrong => {
                self.stats.wrong += 1;
                // The holder compares them, and mends what is wrong (P14.12).
                let mut words = read.located().ask(&units.ask).to_vec();
                words.push(b"CHECK".to_vec());
                self.send(units.link, &words, Awaited::Nothing, out);
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
        let link = self.link_to(&address, out);
        let Some(op) = self.ops.get_mut(&id) else { return };
        op.attempt += 1;
        op.state = State::Asked(now, link);
        op.is_sent = !op.command.is_read;
        let attempt = op.attempt;
        if op.written_at.is_none() {
            op.written_at = Some(out.clock());
        }
        let mut words = core::mem::take(&mut op.command.args);
        let is_located = op.command.is_get && op.way == Way::Client;
        let name = match words.first_mut().filter(|_| is_located) {
            Some(name) => core::mem::replace(name, b"PARITAS.LOCATE".to_vec()),
            None => Vec::new(),
        };
        self.send(link, &words, Awaited::Command { op: id, attempt }, out);
        if let Some(op) = self.ops.get_mut(&id) {
            if let Some(first) = words.first_mut().filter(|_| is_located) {
                *first = name;
            }
            op.command.args = words;
        }
    }

    fn send(&mut self, link: LinkId, words: &[Vec<u8>], awaited: Awaited, out: &mut impl Out) {
        let Some(connection) = self.connections.get_mut(&link) else {
            return;
        };
        connection.awaited.push_back(awaited);
        let mut bytes = Vec::new();
        encode::request(&mut bytes, words);
        match connection.is_up {
            true => out.write(link, &bytes),
            false => connection.unsent.extend_from_slice(&bytes),
        }
    }

    /// The connection to an address, which is made if there is none.
    fn link_to(&mut self, address: &str, out: &mut impl Out) -> LinkId {
        let mut connections = self.connections.values();
        if let Some(connection) = connections.find(|connection| connection.address == address) {
            return connection.link;
        }
        let link = LinkId(self.next_link);
        self.next_link += 1;
        self.connections.insert(link, Connection::new(link, address));
        out.dial(link, address);
        link
    }

    fn on_time(&mut self, now: Time, out: &mut impl Out) {
        self.on_late(now, out);
        let ids: Vec<OpId> = self.ops.keys().copied().collect();
        for id in ids {
            let Some(op) = self.ops.get_mut(&id) else { continue };
            if now >= op.submitted_at + self.settings.deadline {
                let failure = if op.is_sent {
                    Failure::Uncertain
                } else {
                    Failure::Unreachable
                };
                self.end(now, id, Err(failure), out);
                continue;
            }
            match op.state {
                State::Asked(at, link) if op.command.is_read && now >= at + self.settings.retry => {
                    // The next node may have what this one does not answer.
                    op.state = State::Waits(now);
                    let asked = self.connections.get(&link).map(|it| it.address.clone());
                    if asked.as_ref() == self.seeds.get(self.home) {
                        self.home = (self.home + 1) % self.seeds.len();
                    }
                    self.go_on(now, id, out);
                }
                State::Waits(_) => self.go_on(now, id, out),
                State::Queued | State::Asked(..) | State::Reads(_) => {}
            }
        }
    }

    /// Asks for other units in the place of late ones, as far as the budget goes.
    fn on_late(&mut self, now: Time, out: &mut impl Out) {
        let (late, given_up) = (self.late(), self.settings.retry);
        let mut replaced = Vec::new();
        for connection in self.connections.values_mut() {
            for awaited in &mut connection.awaited {
                let Awaited::Units(units) = awaited else { continue };
                if now < units.at + late || units.is_replaced {
                    continue;
                }
                units.is_late = true;
                let is_given_up = now >= units.at + given_up;
                if is_given_up || self.hedge_bytes >= units.ask.bytes {
                    if !is_given_up {
                        self.hedge_bytes -= units.ask.bytes;
                    }
                    units.is_replaced = true;
                    replaced.push(*units);
                }
            }
        }
        for units in replaced {
            let Some(op) = self.ops.get_mut(&units.op).filter(|op| op.attempt == units.attempt) else {
                continue;
            };
            let State::Reads(read) = &mut op.state else { continue };
            read.on_late(units.ask.id);
            self.stats.replaced += 1;
            self.stats.replaced_bytes += units.ask.bytes;
            self.ask_for_units(now, units.op, out);
        }
    }

    fn refuse_all(&mut self, now: Time, text: &str, out: &mut impl Out) {
        let ids: Vec<OpId> = self.ops.keys().copied().collect();
        for id in ids {
            self.end(now, id, Err(Failure::Refused(text.to_owned())), out);
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
        if let (true, Ok(Value::Bulk(value)), Some(key)) = (op.command.is_get, &result, &op.command.key) {
            let way = if is_decoded_here { Way::Client } else { Way::Server };
            self.choice.on_read(key, value.len() as u64, way, took);
        }
        let outcome = Outcome {
            result,
            phases,
            is_decoded_here,
        };
        out.done(id, outcome);
        let Some(key) = &op.command.key else { return };
        for next in self.queue.leave(key, id) {
            if let Some(op) = self.ops.get_mut(&next) {
                op.state = State::Waits(now);
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
