//! The engine against nodes: the machines of a cluster, without sockets.

use paritas_base::{Span, Time};
use paritas_client::{
    Command, Decode, Engine, Event, Failure, LinkId, OpId, Out, Outcome, Settings, Stats, SubmitError, Value,
};
use paritas_protocol::{Parameters, Port};
use paritas_testbed::{Client, Cluster};
use std::collections::{BTreeMap, BTreeSet};

/// The machines, and an engine with its connections.
struct World {
    cluster: Cluster,
    engine: Engine,
    links: Links,
    stopped: BTreeSet<usize>,
}

#[derive(Default)]
struct Links {
    now: Time,
    dialled: Vec<(LinkId, String)>,
    written: Vec<(LinkId, Vec<u8>)>,
    up: BTreeMap<LinkId, Client>,
    done: BTreeMap<OpId, Outcome>,
}

impl Out for Links {
    fn dial(&mut self, link: LinkId, address: &str) {
        self.dialled.push((link, address.to_owned()));
    }
    fn write(&mut self, link: LinkId, bytes: &[u8]) {
        self.written.push((link, bytes.to_vec()));
    }
    fn close(&mut self, link: LinkId) {
        self.up.remove(&link);
    }
    fn done(&mut self, op: OpId, outcome: Outcome) {
        self.done.insert(op, outcome);
    }
    fn clock(&mut self) -> Time {
        self.now
    }
}

fn settings(decode: Decode) -> Settings {
    Settings {
        decode,
        ..Settings::default()
    }
}

/// `4+2` without spares.
fn start(settings: Settings) -> World {
    let cluster = Cluster::coded_in(64 << 20, 4, 2, 1, 0, Parameters::default());
    let seeds = (0..6).map(|at| format!("127.0.0.1:{}", 6379 + at)).collect();
    World {
        cluster,
        engine: Engine::new(seeds, settings),
        links: Links::default(),
        stopped: BTreeSet::new(),
    }
}

impl World {
    /// A millisecond passes.
    fn step(&mut self) {
        let now = self.cluster.now.mono;
        self.links.now = now;
        for (link, address) in core::mem::take(&mut self.links.dialled) {
            let port: usize = address.rsplit_once(':').unwrap().1.parse().unwrap();
            let (at, port) = if port >= 7379 {
                (port - 7379, Port::Cluster)
            } else {
                (port - 6379, Port::Any)
            };
            if self.cluster.is_up(at) {
                let client = self.cluster.connect(at, port);
                self.links.up.insert(link, client);
                self.engine.on(now, Event::Connected(link), &mut self.links);
            } else {
                self.engine.on(now, Event::Closed(link), &mut self.links);
            }
        }
        let (now_sent, later) = core::mem::take(&mut self.links.written)
            .into_iter()
            .partition(|(link, _)| self.links.up.get(link).is_some_and(|to| !self.stopped.contains(&to.at)));
        self.links.written = later;
        let now_sent: Vec<(LinkId, Vec<u8>)> = now_sent;
        for (link, bytes) in now_sent {
            self.cluster.feed(self.links.up[&link], &bytes);
        }
        self.cluster.advance(1);
        let up: Vec<(LinkId, Client)> = self.links.up.iter().map(|(link, client)| (*link, *client)).collect();
        for (link, client) in up {
            let is_up = self.cluster.is_up(client.at) && !self.cluster.is_closed(client);
            let bytes = if is_up { self.cluster.take(client) } else { Vec::new() };
            if !bytes.is_empty() {
                self.engine.on(now, Event::Bytes(link, &bytes), &mut self.links);
            }
            if !is_up {
                self.links.up.remove(&link);
                self.engine.on(now, Event::Closed(link), &mut self.links);
            }
        }
        self.engine.on(self.cluster.now.mono, Event::Timer, &mut self.links);
    }

    fn submit(&mut self, command: Command) -> OpId {
        self.links.now = self.cluster.now.mono;
        self.engine
            .submit(self.cluster.now.mono, command, &mut self.links)
            .expect("there is room")
    }

    fn wait(&mut self, op: OpId) -> Outcome {
        for _ in 0..20_000 {
            if let Some(outcome) = self.links.done.remove(&op) {
                return outcome;
            }
            self.step();
        }
        panic!("{op:?} has not ended");
    }

    fn run(&mut self, command: Command) -> Outcome {
        let op = self.submit(command);
        self.wait(op)
    }

    fn set(&mut self, key: &str, value: &[u8]) {
        let reply = self.run(Command::set(key.as_bytes(), value.to_vec())).result;
        assert_eq!(reply, Ok(Value::Simple("OK".into())));
    }

    fn read(&mut self, key: &str) -> (Option<Vec<u8>>, bool) {
        let outcome = self.run(Command::get(key.as_bytes()));
        match outcome.result {
            Ok(Value::Bulk(value)) => (Some(value), outcome.is_decoded_here),
            Ok(Value::Null) => (None, outcome.is_decoded_here),
            other => panic!("GET was answered {other:?}"),
        }
    }

    fn stats(&self) -> Stats {
        self.engine.stats()
    }
}

fn value(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 7 + i / 1000 + seed) as u8).collect()
}

#[test]
fn values_of_each_length_and_class_are_read_from_their_parts() {
    let mut world = start(settings(Decode::Client));
    assert_eq!(world.read("none"), (None, false));
    for (n, bytes) in [5, 60_000, 70_000, 300_007, 3_000_000].into_iter().enumerate() {
        let key = format!("k{n}");
        world.set(&key, &value(n, bytes));
        assert_eq!(
            world.read(&key),
            (Some(value(n, bytes)), bytes > 64 << 10),
            "{bytes} bytes"
        );
    }
    for class in ["rep:3", "eor:3,4", "ec:3,2"] {
        let words = ["PARITAS.REDUNDANCY", "k3", class].map(|word| word.as_bytes().to_vec());
        let reply = world
            .run(Command::other(words.to_vec(), Some(b"k3".to_vec())).unwrap())
            .result;
        assert!(matches!(reply, Ok(Value::Simple(_))), "{class}: {reply:?}");
        assert_eq!(world.read("k3"), (Some(value(3, 300_007)), true), "{class}");
    }
    assert_eq!(world.stats().by_node, 0);
}

#[test]
fn two_holders_die_and_every_value_is_read() {
    let mut world = start(settings(Decode::Client));
    let keys: Vec<String> = (0..8).map(|n| format!("k{n}")).collect();
    for (n, key) in keys.iter().enumerate() {
        world.set(key, &value(n, 200_000 + n));
        assert!(world.read(key).1);
    }
    // They hold the parities: every key has its owner, and parts are at the two.
    world.cluster.kill(4);
    world.cluster.kill(5);
    for (n, key) in keys.iter().enumerate() {
        assert_eq!(world.read(key), (Some(value(n, 200_000 + n)), true));
    }
}

#[test]
fn a_holder_that_stops_is_replaced_and_asked_last() {
    let mut world = start(settings(Decode::Client));
    world.set("k", &value(1, 300_000));
    assert!(world.read("k").1);
    let ours: Vec<usize> = world.links.up.values().map(|client| client.at).collect();
    // Not the node that commands go to, nor the owner of the key.
    let owner = (0..6).find(|at| {
        let client = world.cluster.connect(*at, Port::Cluster);
        world.cluster.ask(client, "EXISTS k").starts_with(":1")
    });
    let holder = ours
        .iter()
        .find(|at| **at != 0 && Some(**at) != owner)
        .expect("other nodes have parts");
    world.stopped.insert(*holder);
    let began = world.cluster.now.mono;
    assert_eq!(world.read("k"), (Some(value(1, 300_000)), true));
    assert!(
        world.cluster.now.mono - began <= Span::from_ms(15),
        "late units were not replaced"
    );
    let replaced = world.stats().replaced;
    assert!(replaced > 0);
    assert_eq!(world.read("k"), (Some(value(1, 300_000)), true));
    assert_eq!(
        world.stats().replaced,
        replaced,
        "it was asked again although it owes units"
    );
    world.stopped.clear();
    assert_eq!(world.read("k"), (Some(value(1, 300_000)), true));
}

#[test]
fn commands_on_one_key_happen_in_the_order_of_their_submission() {
    let mut world = start(settings(Decode::Client));
    let ops: Vec<(usize, OpId, OpId)> = (0..6)
        .map(|n| {
            let set = world.submit(Command::set(b"k", value(n, 100_000 + n)));
            (n, set, world.submit(Command::get(b"k")))
        })
        .collect();
    for (n, set, get) in ops {
        assert!(world.wait(set).result.is_ok());
        assert_eq!(world.wait(get).result, Ok(Value::Bulk(value(n, 100_000 + n))));
    }
}

#[test]
fn a_value_that_is_overwritten_while_it_is_read_is_the_old_or_the_new_one() {
    let mut world = start(settings(Decode::Client));
    let writer = world.cluster.connect(3, Port::Any);
    for n in 0..30 {
        world.set("k", &value(n, 150_000));
        let get = world.submit(Command::get(b"k"));
        for _ in 0..n % 6 {
            world.step();
        }
        let new = String::from_utf8(vec![b'a' + (n % 26) as u8; 160_000]).unwrap();
        world.cluster.ask_words(writer, &["SET", "k", &new]);
        match world.wait(get).result {
            Ok(Value::Bulk(read)) => assert!(read == value(n, 150_000) || read == new.as_bytes(), "neither"),
            other => panic!("GET was answered {other:?}"),
        }
    }
}

#[test]
fn more_than_the_window_is_refused_as_busy() {
    let mut world = start(Settings {
        ops_max: 4,
        ..settings(Decode::Auto)
    });
    let ops: Vec<OpId> = (0..4)
        .map(|n| world.submit(Command::set(&[b'k', n], vec![n; 10])))
        .collect();
    let now = world.cluster.now.mono;
    let fifth = world.engine.submit(now, Command::get(b"k"), &mut world.links);
    assert_eq!(fifth, Err((SubmitError::Busy, Command::get(b"k"))));
    for op in ops {
        assert!(world.wait(op).result.is_ok());
    }
    // One that is longer than all that may be under way runs alone.
    let long = world.submit(Command::set(b"long", value(1, 9 << 20)));
    assert!(world.engine.submit(now, Command::get(b"k"), &mut world.links).is_err());
    assert!(world.wait(long).result.is_ok());
    assert_eq!(world.read("long").0, Some(value(1, 9 << 20)));
}

#[test]
fn a_write_whose_connection_ends_is_uncertain_and_a_read_goes_on_at_another_node() {
    let mut world = start(settings(Decode::Auto));
    world.set("k", b"before");
    world.stopped.insert(0);
    let set = world.submit(Command::set(b"other", b"value".to_vec()));
    let get = world.submit(Command::get(b"k"));
    world.step();
    let link = *world
        .links
        .up
        .iter()
        .find(|(_, client)| client.at == 0)
        .expect("it is connected")
        .0;
    world.links.up.remove(&link);
    let now = world.cluster.now.mono;
    world.engine.on(now, Event::Closed(link), &mut world.links);
    assert_eq!(world.wait(set).result, Err(Failure::Uncertain));
    assert_eq!(world.wait(get).result, Ok(Value::Bulk(b"before".to_vec())));
}

#[test]
fn without_any_node_an_operation_ends_at_its_deadline() {
    let mut world = start(settings(Decode::Auto));
    (0..6).for_each(|at| world.cluster.kill(at));
    let began = world.cluster.now.mono;
    assert_eq!(world.run(Command::get(b"k")).result, Err(Failure::Unreachable));
    assert_eq!(world.run(Command::set(b"k", vec![1])).result, Err(Failure::Unreachable));
    let took = world.cluster.now.mono - began;
    assert!(
        took >= Span::from_ms(20_000) && took <= Span::from_ms(20_200),
        "{took:?}"
    );
}
