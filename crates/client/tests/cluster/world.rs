//! The machines of a cluster, and an engine with connections to them. There are no sockets.

use paritas_base::Time;
use paritas_client::{Command, Decode, Engine, Event, LinkId, OpId, Out, Outcome, Settings, Stats, Value};
use paritas_protocol::{Parameters, Port};
use paritas_testbed::{Client, Cluster};
use std::collections::{BTreeMap, BTreeSet};

/// The machines, and an engine with its connections.
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) engine: Engine,
    pub(crate) links: Links,
    pub(crate) stopped: BTreeSet<usize>,
}

#[derive(Default)]
pub(crate) struct Links {
    now: Time,
    dialled: Vec<(LinkId, String)>,
    written: Vec<(LinkId, Vec<u8>)>,
    pub(crate) up: BTreeMap<LinkId, Client>,
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

pub(crate) fn settings(decode: Decode) -> Settings {
    Settings {
        decode,
        ..Settings::default()
    }
}

/// `4+2` without spares.
pub(crate) fn start(settings: Settings) -> World {
    start_with(settings, Parameters::default())
}

pub(crate) fn start_with(settings: Settings, parameters: Parameters) -> World {
    start_of(settings, parameters, 0)
}

/// The same with spares.
pub(crate) fn start_of(settings: Settings, parameters: Parameters, spares: usize) -> World {
    let cluster = Cluster::coded_in(64 << 20, 4, 2, 1, spares, parameters);
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
    pub(crate) fn step(&mut self) {
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

    pub(crate) fn submit(&mut self, command: Command) -> OpId {
        self.links.now = self.cluster.now.mono;
        self.engine
            .submit(self.cluster.now.mono, command, &mut self.links)
            .expect("there is room")
    }

    pub(crate) fn wait(&mut self, op: OpId) -> Outcome {
        for _ in 0..20_000 {
            if let Some(outcome) = self.links.done.remove(&op) {
                return outcome;
            }
            self.step();
        }
        panic!("{op:?} has not ended");
    }

    pub(crate) fn run(&mut self, command: Command) -> Outcome {
        let op = self.submit(command);
        self.wait(op)
    }

    pub(crate) fn set(&mut self, key: &str, value: &[u8]) {
        let reply = self.run(Command::set(key.as_bytes(), value.to_vec())).result;
        assert_eq!(reply, Ok(Value::Simple("OK".into())));
    }

    pub(crate) fn read(&mut self, key: &str) -> (Option<Vec<u8>>, bool) {
        let outcome = self.run(Command::get(key.as_bytes()));
        match outcome.result {
            Ok(Value::Bulk(value)) => (Some(value), outcome.is_decoded_here),
            Ok(Value::Null) => (None, outcome.is_decoded_here),
            other => panic!("GET was answered {other:?}"),
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        self.engine.stats()
    }
}

pub(crate) fn value(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 7 + i / 1000 + seed) as u8).collect()
}
