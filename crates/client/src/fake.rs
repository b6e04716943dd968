//! What tests need of nodes that take values in parts: they keep units, and encode what they got once more.

use crate::interface::{Event, LinkId, OpId, Out, Outcome};
use crate::{Command, Engine, Settings, SubmitError, Value};
use paritas_base::{Span, Time};
use paritas_large::{Class, GroupId, Layout, Part, Placement, Record, Writer};
use paritas_wire::resp::encode;
use std::collections::{BTreeMap, BTreeSet};

/// Nodes. Each has one position of the list in memory.
const NODES: u8 = 7;
/// The stream that all keys are in.
const X: u8 = 2;
const UNIT_BYTES: u32 = 16 << 10;

/// The first command of some bytes, and its length. `None` if it is not whole.
pub(crate) fn words_of(bytes: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    let mut at = 0;
    let number = |at: &mut usize| {
        let length = bytes.get(*at..)?.windows(2).position(|two| two == b"\r\n")?;
        let line = bytes.get(*at + 1..*at + length)?;
        *at += length + 2;
        std::str::from_utf8(line).ok()?.parse::<usize>().ok()
    };
    let count = number(&mut at)?;
    let mut words = Vec::new();
    for _ in 0..count {
        let length = number(&mut at)?;
        words.push(bytes.get(at..at + length)?.to_vec());
        at += length + 2;
    }
    (at <= bytes.len()).then_some((words, at))
}

/// The bytes of each part of a body, and the checks of its record.
pub(crate) fn encoded(layout: Layout, placement: Placement, body: &[u8]) -> (Vec<Vec<u8>>, Vec<u8>) {
    let mut writer = Writer::new(layout, placement);
    let mut parts = vec![Vec::new(); placement.parts().count()];
    let mut from = 0;
    while !writer.is_sent() {
        from += writer.push(&body[from..], |part, _, unit| parts[part].extend_from_slice(unit));
        (0..parts.len()).for_each(|part| writer.on_taken(part, u32::MAX));
    }
    let checks = writer.checks().iter().flat_map(|check| check.to_le_bytes());
    (parts, checks.collect())
}

/// What goes wrong, and when: at the first command with this name that is not before `after` others of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fault {
    pub(crate) command: &'static str,
    pub(crate) after: usize,
    pub(crate) what: What,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum What {
    /// It is answered with these bytes, and not done.
    Answers(&'static str),
    /// It is not done, and its connection ends.
    Closes,
    /// It is done, and its connection ends.
    ClosesBehind,
    /// It is not done, and the connection of the owner ends.
    ClosesOwner,
    /// The node reads nothing from then on.
    Stops,
}

/// A value that is staged.
struct Staged {
    link: LinkId,
    key: Vec<u8>,
    bytes: u64,
    record: Record,
}

/// Nodes in memory. `n3:2` owns all keys, under the name for clients that know owners: others there name it.
pub(crate) struct Nodes {
    pub(crate) class: Class,
    /// What the reply to STAGE says otherwise than a node would.
    pub(crate) version: i64,
    pub(crate) vacant: Option<u8>,
    pub(crate) owner: u8,
    /// The owner that CLUSTER SLOTS names, if it is another one.
    pub(crate) named: Option<u8>,
    /// The owner of keys that begin with `ruled`, if it is another one.
    pub(crate) ruled: Option<u8>,
    /// Nodes that send each GET and SET to another one.
    pub(crate) astray: BTreeMap<&'static str, &'static str>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) stopped: BTreeSet<String>,
    pub(crate) values: BTreeMap<Vec<u8>, Vec<u8>>,
    /// All commands that were read: node, name and key.
    pub(crate) log: Vec<(String, String)>,
    staged: BTreeMap<i64, Staged>,
    /// Units by group and number of the part, and how many.
    parts: BTreeMap<(u64, u8), (u32, Vec<u8>)>,
    next: u64,
}

impl Nodes {
    fn new() -> Self {
        Self {
            class: "ec:4,2".parse().expect("a class"),
            version: 1,
            vacant: None,
            owner: 3,
            named: None,
            ruled: None,
            astray: BTreeMap::new(),
            faults: Vec::new(),
            stopped: BTreeSet::new(),
            values: BTreeMap::new(),
            log: Vec::new(),
            staged: BTreeMap::new(),
            parts: BTreeMap::new(),
            next: 1,
        }
    }

    /// All slots have one owner.
    fn slots(&self, reply: &mut Vec<u8>) {
        let host = format!("n{}", self.named.unwrap_or(self.owner));
        encode::array_header(reply, 1);
        encode::array_header(reply, 3);
        encode::integer(reply, 0);
        encode::integer(reply, 16_383);
        encode::array_header(reply, 3);
        encode::bulk(reply, host.as_bytes());
        encode::integer(reply, 2);
        encode::bulk(reply, host.as_bytes());
    }

    fn owner_address(&self) -> String {
        format!("n{}:2", self.owner)
    }

    /// What a node answers.
    fn run(&mut self, address: &str, link: LinkId, words: &[Vec<u8>]) -> Vec<u8> {
        let word =
            |at: usize| String::from_utf8_lossy(words.get(at).map(Vec::as_slice).unwrap_or_default()).into_owned();
        let mut reply = Vec::new();
        let owner = match self.ruled {
            Some(ruled) if word(1).starts_with("ruled") => format!("n{ruled}:2"),
            _ => self.owner_address(),
        };
        let is_owner = owner[..3] == address[..3];
        match word(0).as_str() {
            "CLUSTER" if word(1) == "MYID" => encode::bulk(&mut reply, &address.as_bytes()[..2]),
            "CLUSTER" => self.slots(&mut reply),
            "GET" | "SET" | "PARITAS.LOCATE" if self.astray.contains_key(address) => {
                encode::error(&mut reply, &format!("MOVED 7 {}", self.astray[address]));
            }
            "GET" | "SET" | "PARITAS.LOCATE" if address.ends_with(":2") && !is_owner => {
                encode::error(&mut reply, &format!("MOVED 7 {owner}"));
            }
            "PARITAS.STAGE" if !is_owner => {
                encode::error(&mut reply, &format!("MOVED 7 {owner}"));
            }
            "PARITAS.STAGE" => self.stage(link, &words[1], word(2).parse().expect("a length"), &mut reply),
            "PARITAS.PUT" => self.put(address, words, &mut reply),
            "PARITAS.COMMIT" => self.commit(link, words, &mut reply),
            "PARITAS.UNSTAGE" => {
                self.staged.remove(&word(1).parse().expect("a number"));
                encode::ok(&mut reply);
            }
            "AUTH" => encode::ok(&mut reply),
            // A value in parts is not located here: it is answered as a short one.
            "GET" | "PARITAS.LOCATE" => match self.values.get(&words[1]) {
                Some(value) => encode::bulk(&mut reply, value),
                None => reply.extend_from_slice(b"$-1\r\n"),
            },
            _ => self.write(words, &mut reply),
        }
        reply
    }

    /// A command that writes a value.
    fn write(&mut self, words: &[Vec<u8>], reply: &mut Vec<u8>) {
        let (key, last) = (words[1].clone(), words[words.len() - 1].clone());
        match words[0].to_ascii_uppercase().as_slice() {
            b"SET" => {
                self.values.insert(key, words[2].clone());
                encode::ok(reply);
            }
            b"SETEX" | b"PSETEX" => {
                self.values.insert(key, last);
                encode::ok(reply);
            }
            b"SETNX" => {
                encode::integer(reply, i64::from(!self.values.contains_key(&key)));
                self.values.entry(key).or_insert(last);
            }
            b"GETSET" => encode::bulk(reply, &self.values.insert(key, last).unwrap_or_default()),
            other => panic!("{other:?} is not known here"),
        }
    }

    fn stage(&mut self, link: LinkId, key: &[u8], bytes: u64, reply: &mut Vec<u8>) {
        let class = self.class;
        let (layout, _) = Layout::of_value(bytes, class.data(), UNIT_BYTES).expect("it is long enough");
        let placement = Placement::new(class, X, NODES, 0).expect("there are enough nodes");
        let mut group = || {
            self.next += 1;
            GroupId::new(1, self.next).expect("an id")
        };
        let record = Record {
            class,
            first: placement.first(),
            logged: 0,
            body_bytes: layout.body_bytes(),
            data_group: group(),
            other_group: (!matches!(class, Class::Rep { .. })).then(&mut group),
            checks: vec![0; Record::checks_of(class)],
        };
        for part in placement.parts() {
            let name = (record.group_of(&part).bits(), part.number);
            self.parts.insert(name, (0, Vec::new()));
        }
        let number = self.next as i64;
        encode::array_header(reply, 9);
        encode::integer(reply, self.version);
        encode::integer(reply, number);
        encode::integer(reply, 0);
        encode::integer(reply, X.into());
        let mut encoded = Vec::new();
        record.encode(&mut encoded);
        encode::bulk(reply, &encoded);
        encode::integer(reply, NODES.into());
        encode::integer(reply, UNIT_BYTES.into());
        encode::array_header(reply, NODES.into());
        for at in 0..NODES {
            match self.vacant == Some(at) {
                true => reply.extend_from_slice(b"$-1\r\n"),
                false => encode::bulk(reply, format!("n{at}:2").as_bytes()),
            }
        }
        let capabilities: Vec<u8> = record.groups().flat_map(|group| group.bits().to_be_bytes()).collect();
        encode::bulk(reply, &capabilities);
        let key = key.to_vec();
        self.staged.insert(
            number,
            Staged {
                link,
                key,
                bytes,
                record,
            },
        );
    }

    fn placed(record: &Record) -> (Layout, Placement) {
        let layout = record.layout(UNIT_BYTES).expect("a layout");
        (layout, record.placement(NODES).expect("there are enough nodes"))
    }

    /// The value and the part with a name.
    fn part_of(&self, group: u64, number: u8) -> Option<(&Staged, Part)> {
        let of = |staged: &Staged| {
            let (_, placement) = Self::placed(&staged.record);
            placement
                .parts()
                .find(|part| staged.record.group_of(part).bits() == group && part.number == number)
        };
        self.staged.values().find_map(|staged| Some((staged, of(staged)?)))
    }

    fn put(&mut self, address: &str, words: &[Vec<u8>], reply: &mut Vec<u8>) {
        let number = |at: usize| String::from_utf8_lossy(&words[at]).parse::<u64>().expect("a number");
        let (group, part, first) = (number(3), number(4) as u8, number(5) as u32);
        assert_eq!((number(1), number(2), words.len()), (0, X.into(), 8));
        assert_eq!(words[6], group.to_be_bytes(), "the capability of the group");
        let Some((staged, of)) = self.part_of(group, part) else {
            return encode::error(reply, "NOPART nothing is open here");
        };
        assert_eq!(
            address,
            format!("n{}:2", of.position),
            "it goes to the holder of the part"
        );
        let (layout, _) = Self::placed(&staged.record);
        let (mut unit, mut bytes) = (first, 0);
        while bytes < words[7].len() {
            bytes += of.content.unit_bytes(&layout, unit) as usize;
            unit += 1;
        }
        assert!(
            bytes == words[7].len() && bytes > 0 && bytes <= 512 << 10,
            "whole units"
        );
        let (count, kept) = self.parts.get_mut(&(group, part)).expect("it is open");
        if first == *count {
            kept.extend_from_slice(&words[7]);
            *count = unit;
        }
        encode::integer(reply, i64::from(*count));
    }

    fn commit(&mut self, link: LinkId, words: &[Vec<u8>], reply: &mut Vec<u8>) {
        let number = String::from_utf8_lossy(&words[1]).parse::<i64>().expect("a number");
        let staged = self.staged.remove(&number).filter(|staged| staged.link == link);
        let Some(staged) = staged else {
            return encode::error(reply, "NOSTAGE nothing is staged here");
        };
        let (tail, mut command) = (&words[3], words[4..].to_vec());
        let (layout, placement) = Self::placed(&staged.record);
        let parts = placement.parts().map(|part| {
            let (count, bytes) = &self.parts[&(staged.record.group_of(&part).bits(), part.number)];
            assert_eq!(*count, part.content.units(&layout), "{part:?} is not whole");
            bytes.clone()
        });
        let parts: Vec<Vec<u8>> = parts.collect();
        let mut body = Vec::new();
        for unit in 0..layout.units() {
            let range = layout.unit_range(unit);
            let data = usize::from(layout.data());
            let (block, at) = match staged.record.class {
                Class::Rep { .. } => (0, range.start as usize),
                _ => (unit as usize % data, unit as usize / data * UNIT_BYTES as usize),
            };
            body.extend_from_slice(&parts[block][at..][..(range.end - range.start) as usize]);
        }
        let (wanted, checks) = encoded(layout, placement, &body);
        assert!(
            parts == wanted && checks == words[2],
            "parts and checks belong together"
        );
        assert_eq!((body.len() + tail.len()) as u64, staged.bytes);
        let at = command.iter().position(Vec::is_empty).expect("a place for the value");
        assert_eq!(command[1], staged.key);
        command[at] = [body, tail.clone()].concat();
        self.write(&command, reply);
    }

    /// Values that nobody has committed or given up.
    pub(crate) fn left(&self) -> usize {
        self.staged.len()
    }
}

/// What the engine has asked for.
#[derive(Default)]
struct Links {
    now: Time,
    dialled: Vec<LinkId>,
    addresses: BTreeMap<LinkId, String>,
    up: BTreeSet<LinkId>,
    written: BTreeMap<LinkId, Vec<u8>>,
    done: BTreeMap<OpId, Outcome>,
}

impl Out for Links {
    fn dial(&mut self, link: LinkId, address: &str) {
        self.dialled.push(link);
        self.addresses.insert(link, address.to_owned());
    }
    fn write(&mut self, link: LinkId, bytes: &[u8]) {
        assert!(self.up.contains(&link), "nothing is written to a link that is not up");
        self.written.entry(link).or_default().extend_from_slice(bytes);
    }
    fn close(&mut self, link: LinkId) {
        self.up.remove(&link);
        self.written.remove(&link);
    }
    fn done(&mut self, op: OpId, outcome: Outcome) {
        assert!(self.done.insert(op, outcome).is_none(), "{op:?} ends twice");
    }
    fn clock(&mut self) -> Time {
        self.now
    }
}

/// An engine and its nodes. Bytes take a millisecond each way.
pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) nodes: Nodes,
    /// Nodes that take no connection.
    pub(crate) down: BTreeSet<String>,
    links: Links,
    replies: Vec<(LinkId, Vec<u8>)>,
}

impl World {
    pub(crate) fn new(settings: Settings) -> Self {
        let seeds = (0..NODES).map(|at| format!("n{at}:1")).collect();
        Self {
            engine: Engine::new(seeds, settings),
            nodes: Nodes::new(),
            down: BTreeSet::new(),
            links: Links::default(),
            replies: Vec::new(),
        }
    }

    pub(crate) fn now(&self) -> Time {
        self.links.now
    }

    pub(crate) fn submit(&mut self, command: Command) -> Result<OpId, SubmitError> {
        let submitted = self.engine.submit(self.links.now, command, &mut self.links);
        submitted.map_err(|(error, _)| error)
    }

    pub(crate) fn begin(&mut self, words: &[&[u8]]) -> OpId {
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.to_vec()).collect();
        let command = match (words[0].as_slice(), words.len()) {
            (b"GET", 2) => Command::get(&words[1]),
            (b"SET", 3) => Command::set(&words[1], words[2].clone()),
            _ => Command::other(words.clone(), Some(words[1].clone())).expect("it is not about its connection"),
        };
        self.submit(command).expect("there is room")
    }

    /// A millisecond passes.
    pub(crate) fn step(&mut self) {
        self.links.now = self.links.now + Span::from_ms(1);
        let now = self.links.now;
        for (link, bytes) in core::mem::take(&mut self.replies) {
            if self.links.up.contains(&link) {
                self.engine.on(now, Event::Bytes(link, &bytes), &mut self.links);
            }
        }
        for link in core::mem::take(&mut self.links.dialled) {
            if self.down.contains(&self.links.addresses[&link]) {
                self.engine.on(now, Event::Closed(link), &mut self.links);
            } else {
                self.links.up.insert(link);
                self.engine.on(now, Event::Connected(link), &mut self.links);
            }
        }
        let links: Vec<LinkId> = self.links.written.keys().copied().collect();
        for link in links {
            self.serve(link);
        }
        self.engine.on(now, Event::Timer, &mut self.links);
        assert!(self.engine.next_at().is_none_or(|at| at > now), "its time stands still");
    }

    /// A node reads what has come on a link.
    fn serve(&mut self, link: LinkId) {
        let address = self.links.addresses[&link].clone();
        while self.links.up.contains(&link) && !self.nodes.stopped.contains(&address) {
            let Some(input) = self.links.written.get_mut(&link) else {
                return;
            };
            let Some((words, length)) = words_of(input) else { return };
            input.drain(..length);
            let mut name = String::from_utf8_lossy(&words[0]).to_ascii_uppercase();
            if name == "CLUSTER" {
                name = String::from_utf8_lossy(&words.join(&b' ')).into_owned();
            }
            self.nodes.log.push((address.clone(), name.clone()));
            let before = self.nodes.log.iter().filter(|(_, it)| *it == name).count() - 1;
            let is_due = |fault: &Fault| fault.command == name && before >= fault.after;
            let fault = self.nodes.faults.iter().position(is_due);
            match fault.map(|at| self.nodes.faults.remove(at).what) {
                None => self.reply(&address, link, &words),
                Some(What::Answers(text)) => self.replies.push((link, text.as_bytes().to_vec())),
                Some(What::Closes) => self.close(link),
                Some(What::ClosesBehind) => {
                    self.reply(&address, link, &words);
                    self.close(link);
                }
                Some(What::ClosesOwner) => {
                    let owner = self.nodes.owner_address();
                    let mut links = self.links.addresses.iter();
                    let owner = links.find(|(link, address)| **address == owner && self.links.up.contains(link));
                    let owner = *owner.expect("the owner was asked").0;
                    self.close(owner);
                }
                Some(What::Stops) => {
                    self.nodes.stopped.insert(address);
                    return;
                }
            }
        }
    }

    fn reply(&mut self, address: &str, link: LinkId, words: &[Vec<u8>]) {
        let reply = self.nodes.run(address, link, words);
        self.replies.push((link, reply));
    }

    /// A connection ends. Values that were staged on it are given up.
    pub(crate) fn close(&mut self, link: LinkId) {
        self.links.close(link);
        self.nodes.staged.retain(|_, staged| staged.link != link);
        self.engine.on(self.links.now, Event::Closed(link), &mut self.links);
    }

    pub(crate) fn wait(&mut self, op: OpId) -> Outcome {
        for _ in 0..30_000 {
            if let Some(outcome) = self.links.done.remove(&op) {
                return outcome;
            }
            self.step();
        }
        panic!("{op:?} has not ended");
    }

    pub(crate) fn run(&mut self, words: &[&[u8]]) -> Outcome {
        let op = self.begin(words);
        self.wait(op)
    }

    pub(crate) fn is_done(&self, op: OpId) -> bool {
        self.links.done.contains_key(&op)
    }

    /// How often a command was read by nodes.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.nodes.log.iter().filter(|(_, it)| it == name).count()
    }

    /// Nodes that have read a command, in this order.
    pub(crate) fn readers(&self, name: &str) -> Vec<&str> {
        let log = self.nodes.log.iter();
        log.filter(|(_, it)| it == name).map(|(at, _)| at.as_str()).collect()
    }

    /// How often an address was dialled.
    pub(crate) fn dials(&self, address: &str) -> usize {
        self.links.addresses.values().filter(|it| *it == address).count()
    }

    /// Connections that are up.
    pub(crate) fn links_to(&self, address: &str) -> Vec<LinkId> {
        let links = self.links.addresses.iter();
        links
            .filter(|(link, it)| *it == address && self.links.up.contains(link))
            .map(|(link, _)| *link)
            .collect()
    }

    pub(crate) fn value(&self, key: &str) -> Option<Value> {
        self.nodes.values.get(key.as_bytes()).cloned().map(Value::Bulk)
    }
}
