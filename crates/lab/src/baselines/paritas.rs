//! Paritas for comparison: a coordinator and nodes as processes, relays between the nodes, and a client that knows the
//! owner of each key.

use crate::processes::{self, Children, free_ports};
use crate::relay::{self, Traffic};
use crate::stage::Directory;
use paritas_base::{Map, map};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const START_TIME_MAX: Duration = Duration::from_secs(60);
/// Length of a lease. As in `paritas dev`, it is meant for machines with more processes than cores.
const LEASE: Duration = Duration::from_secs(4);
const REPLY_TIME_MAX: Duration = Duration::from_secs(10);
const CLUSTER_PORT: u16 = 1000;
const PEER_PORT: u16 = 10_000;
/// Address of the nodes. The next one is that of the relays in front of them.
const HERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const RELAYED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// The kind of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// The program.
    pub binary: &'a Path,
    /// Numbers of data and parity positions.
    pub scheme: &'a str,
    /// Number of nodes with memory.
    pub nodes: u16,
    /// Number of log nodes.
    pub log_nodes: u16,
    /// Number of spares.
    pub spares: u16,
    /// Time of a message from one node to another.
    pub hop: Duration,
    /// If set, relays between the nodes count messages of at least this many bytes. Without relays, the cluster is for
    /// measuring times.
    pub count_from: Option<usize>,
    /// The node whose messages can be delayed. They go to the nodes that dial it, which have lower numbers.
    pub slow: Option<u16>,
    /// Length of a lease. Nodes renew leases at most sixteen times as often.
    pub lease: Duration,
    /// Memory of a node, in MiB.
    pub megabytes: u32,
}

impl<'a> Setup<'a> {
    /// A cluster for measuring times, on `nodes` nodes.
    pub fn new(binary: &'a Path, scheme: &'a str, nodes: u16) -> Self {
        Self {
            binary,
            scheme,
            nodes,
            log_nodes: 0,
            spares: 0,
            hop: Duration::ZERO,
            count_from: None,
            slow: None,
            lease: LEASE,
            megabytes: 64,
        }
    }
}

/// A cluster of processes. They end when this is dropped.
#[derive(Debug)]
pub struct Paritas {
    children: Children,
    clients: Map<u16, BufReader<TcpStream>>,
    first: u16,
    nodes: u16,
    spares: u16,
    hop: Duration,
    owners: Map<u32, u16>,
    traffic: Arc<Traffic>,
    is_slow: Arc<AtomicBool>,
    before: (u64, u64),
    waits: Vec<Duration>,
    directory: Directory,
}

impl Paritas {
    /// Starts a cluster, and waits until it accepts writes.
    pub fn start(setup: Setup<'_>) -> io::Result<Self> {
        let directory = Directory::new()?;
        let (nodes, binary) = (setup.nodes, setup.binary);
        let in_memory = nodes + setup.spares;
        let all = in_memory + setup.log_nodes;
        let offsets = [(HERE, 0), (HERE, CLUSTER_PORT), (HERE, PEER_PORT), (RELAYED, PEER_PORT)];
        let first = free_ports(all + 1, &offsets)?;
        let coordinator = first + all;
        let write = |name: &str, text: String| std::fs::write(directory.path().join(name), text);
        let log_nodes = match setup.log_nodes {
            0 => String::new(),
            count => format!("log_nodes = {count}\n"),
        };
        write(
            "coordinator.toml",
            format!(
                "listen = \"{HERE}:{coordinator}\"\nstore = \"coordinator.store\"\nscheme = \"{}\"\nmemory = \
                 \"{}mb\"\nnodes = {nodes}\nspares = {}\n{}lease_ms = {}\nsuspicion_ms = {}\n",
                setup.scheme,
                setup.megabytes,
                setup.spares,
                log_nodes,
                setup.lease.as_millis(),
                setup.lease.as_millis() * 3 / 4
            ),
        )?;
        let mut started = Self {
            children: Children::default(),
            clients: map(),
            first,
            nodes,
            spares: setup.spares,
            hop: setup.hop,
            owners: map(),
            traffic: Arc::default(),
            is_slow: Arc::default(),
            before: (0, 0),
            waits: Vec::new(),
            directory,
        };
        let arguments = ["coordinator", "--config", "coordinator.toml"];
        let create = ["coordinator", "--config", "coordinator.toml", "--create"];
        Children::complete(binary, &create, started.directory.path())?;
        started.children.start(binary, arguments, started.directory.path())?;
        for node in 0..all {
            let is_relayed = setup.count_from.is_some() || setup.slow == Some(node);
            let host = if is_relayed { RELAYED } else { HERE };
            let port = first + node;
            let (listen, target) = ((RELAYED, port + PEER_PORT).into(), (HERE, port + PEER_PORT).into());
            if let Some(bytes) = setup.count_from {
                relay::start(listen, target, bytes, Arc::clone(&started.traffic))?;
            } else if is_relayed {
                relay::start_slow(listen, target, Arc::clone(&started.is_slow))?;
            }
            let name = format!("node-{node}.toml");
            let text = format!(
                "id = {node}\nport = {port}\nmemory = \"{}mb\"\ncoordinator = [\"{HERE}:{coordinator}\"]\nbind = \
                 \"{HERE}\"\nhost = \"{host}\"\n{}",
                setup.megabytes,
                if node >= in_memory {
                    format!("log_dir = \"log-{node}\"\nlog_size = \"256mb\"\n")
                } else {
                    format!("spare = {}\n", node >= nodes)
                }
            );
            std::fs::write(started.directory.path().join(&name), text)?;
            let arguments = ["node", "--config", &name];
            started.children.start(binary, arguments, started.directory.path())?;
        }
        started.set_in_time(0, b"ready")?;
        Ok(started)
    }

    /// As [`Paritas::set`], but retries while some owners do not serve yet.
    pub fn set_in_time(&mut self, object: u32, value: &[u8]) -> io::Result<()> {
        let deadline = Instant::now() + START_TIME_MAX;
        while let Err(error) = self.set(object, value) {
            if Instant::now() > deadline {
                return Err(error);
            }
            self.clients.clear();
            self.owners.clear();
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Sets a value at its owner. This takes two round trips one after the other: from the client to the owner, and
    /// from there to all parity nodes at once. The time of these four hops is waited for here, as in
    /// [`super::network::Network`].
    pub fn set(&mut self, object: u32, value: &[u8]) -> io::Result<()> {
        loop {
            let known = self.owners.get(&object).copied();
            let began = Instant::now();
            if known.is_some() && !self.hop.is_zero() {
                std::thread::sleep(self.hop * 4);
            }
            let reply = self.ask(known.unwrap_or(self.first + CLUSTER_PORT), object, value)?;
            if known.is_some() {
                self.waits.push(began.elapsed());
            }
            if reply == "+OK" {
                return Ok(());
            }
            let moved = reply.strip_prefix("-MOVED ").and_then(|rest| rest.rsplit(':').next());
            let Some(port) = moved.and_then(|port| port.parse().ok()) else {
                return Err(io::Error::other(format!("paritas says {reply:?}")));
            };
            self.owners.insert(object, port);
        }
    }

    fn ask(&mut self, port: u16, object: u32, value: &[u8]) -> io::Result<String> {
        if !self.clients.contains_key(&port) {
            let stream = TcpStream::connect((HERE, port))?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(REPLY_TIME_MAX))?;
            self.clients.insert(port, BufReader::new(stream));
        }
        let client = self.clients.get_mut(&port).ok_or(io::ErrorKind::NotConnected)?;
        let mut message = format!("*3\r\n$3\r\nSET\r\n$20\r\nuser{object:016}\r\n${}\r\n", value.len()).into_bytes();
        message.extend_from_slice(value);
        message.extend_from_slice(b"\r\n");
        client.get_mut().write_all(&message)?;
        let mut line = String::new();
        client.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    /// Begins counting waits and traffic.
    pub fn mark(&mut self) {
        self.waits.clear();
        self.before = self.so_far();
    }

    /// The waits since [`Paritas::mark`].
    pub fn take_waits(&mut self) -> Vec<Duration> {
        core::mem::take(&mut self.waits)
    }

    /// Bytes, and messages with a value, that nodes have sent each other since [`Paritas::mark`].
    pub fn traffic(&self) -> (u64, u64) {
        let (bytes, large) = self.so_far();
        (bytes - self.before.0, large - self.before.1)
    }

    /// Ports for clients of any key.
    pub fn any_ports(&self) -> RangeInclusive<u16> {
        self.first..=self.first + self.nodes + self.spares - 1
    }

    /// Ports for clients that ask the owner of a key.
    pub fn cluster_ports(&self) -> RangeInclusive<u16> {
        let first = self.first + CLUSTER_PORT;
        first..=first + self.nodes - 1
    }

    /// Makes the slow node slow, or normal again.
    pub fn set_slow(&self, is_slow: bool) {
        self.is_slow.store(is_slow, Ordering::Relaxed);
    }

    /// CPU time of all its processes so far.
    pub fn cpu(&self) -> io::Result<Duration> {
        self.children.cpu()
    }

    /// Data that nodes have sent each other so far, as counted by the system. It works without relays, which would need
    /// too many threads for many nodes.
    pub fn sent(&self) -> io::Result<processes::Sent> {
        let first = self.first + PEER_PORT;
        processes::sent(first..=first + self.nodes - 1)
    }

    fn so_far(&self) -> (u64, u64) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (of(&self.traffic.bytes), of(&self.traffic.large))
    }
}
