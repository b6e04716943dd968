//! Messages of a proxy to nodes and their cost: messages, round trips and bytes are counted, and their time is
//! measured.

use super::missing;
use paritas_paritylog::Counters;
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

/// The key of a value on a node of memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Name {
    /// Object and version. The version is 0 with updates in place.
    Object(u32, u32),
    /// A parity chunk: stripe and index.
    Parity(u32, u8),
    /// A part of an object: object, number of the part, and one letter for the scheme.
    Part(u32, u8, char),
}

impl fmt::Display for Name {
    /// About twenty bytes, as in YCSB.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(object, 0) => write!(f, "user{object:016}"),
            Self::Object(object, version) => write!(f, "user{object:09}-{version:06}"),
            // As in ElasticMem's scheme 2: one byte for the block, one for the scheme.
            Self::Part(object, part, scheme) => match char::from_digit(u32::from(*part), 36) {
                Some(digit) => write!(f, "user{object:016}{digit}{scheme}"),
                None => write!(f, "user{object:016}{part}{scheme}"),
            },
            Self::Parity(stripe, index) => write!(f, "parity{stripe:010}-{index:03}"),
        }
    }
}

/// A message to one node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ask {
    /// Asks for a value.
    Get(Name),
    /// Stores a value.
    Set(Name, Vec<u8>),
    /// Stores a value without waiting for a reply.
    SetQuietly(Name, Vec<u8>),
    /// Deletes a value without waiting for a reply.
    Delete(Name),
    /// To a log node: stores its parity chunk of a stripe.
    PutParity(u32, Vec<u8>),
    /// To a log node: a change of a data chunk from an offset on. All log nodes get the same message (Property 1).
    Delta {
        /// The stripe.
        stripe: u32,
        /// The index of the data chunk, which determines the coefficient.
        index: u8,
        /// Offset of the change in the chunk.
        offset: u32,
        /// Old bytes XOR new bytes.
        xor: Vec<u8>,
    },
    /// To a log node: asks for its parity chunk, including all deltas.
    GetParity(u32),
}

impl Ask {
    /// Whether the proxy waits for a reply.
    pub fn is_answered(&self) -> bool {
        !matches!(self, Self::SetQuietly(..) | Self::Delete(_))
    }

    fn is_for_log(&self) -> bool {
        matches!(self, Self::PutParity(..) | Self::Delta { .. } | Self::GetParity(_))
    }

    fn payload_bytes(&self) -> usize {
        match self {
            Self::Set(_, bytes) | Self::SetQuietly(_, bytes) | Self::PutParity(_, bytes) => bytes.len(),
            Self::Delta { xor, .. } => xor.len(),
            Self::Get(_) | Self::Delete(_) | Self::GetParity(_) => 0,
        }
    }
}

/// A node at the other end of a connection.
pub trait Peer: fmt::Debug + Send {
    /// Sends a message.
    fn send(&mut self, ask: &Ask) -> io::Result<()>;
    /// Waits for the reply: the value asked for, if the message was a question and the value exists.
    fn receive(&mut self, ask: &Ask) -> io::Result<Option<Vec<u8>>>;
    /// Bytes of all values that it keeps in memory.
    fn stored_bytes(&mut self) -> io::Result<u64> {
        Ok(0)
    }
    /// For a log node: brings all data to its final place on disk. Returns the counts of its disk so far.
    fn settle(&mut self) -> io::Result<Counters> {
        Ok(Counters::default())
    }
    /// For a log node: from now on every access to its disk takes at least this time.
    fn set_access(&mut self, _: Duration) -> io::Result<()> {
        Ok(())
    }
}

/// The order in which the messages of one step are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// One after the other, as a memcached client does by default. Messages to log nodes are all sent at once.
    OneByOne,
    /// All messages of a step at once.
    AtOnce,
}

/// Counts of messages so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Messages, without their replies.
    pub messages: u64,
    /// Number of waits with [`Way::OneByOne`].
    pub one_by_one: u64,
    /// Number of waits with [`Way::AtOnce`].
    pub at_once: u64,
    /// Bytes of values and deltas in both directions.
    pub bytes: u64,
}

impl Counts {
    /// The difference to an earlier count.
    pub fn since(self, before: Self) -> Self {
        Self {
            messages: self.messages - before.messages,
            one_by_one: self.one_by_one - before.one_by_one,
            at_once: self.at_once - before.at_once,
            bytes: self.bytes - before.bytes,
        }
    }
}

/// All nodes: first the nodes of memory, then the log nodes.
#[derive(Debug)]
pub struct Network {
    peers: Vec<Box<dyn Peer>>,
    memory_nodes: usize,
    way: Way,
    /// Time of a message from one node to another, in one direction.
    hop: Duration,
    /// Rate of the proxy's link in bytes a second, if it is limited.
    rate: Option<f64>,
    counts: Counts,
    /// The duration of each wait, recorded while messages take time.
    waits: Vec<Duration>,
}

/// Waits longer than this many times the median count as that time, because the excess comes from other work on the
/// machine.
const LONGEST_WAIT: u32 = 3;

/// The sum of the waits without the excess caused by other work on the machine.
pub fn without_stalls(mut waits: Vec<Duration>) -> Duration {
    waits.sort_unstable();
    let longest = waits.get(waits.len() / 2).copied().unwrap_or_default() * LONGEST_WAIT;
    waits.into_iter().map(|wait| wait.min(longest)).sum()
}

impl Network {
    /// A network over connections, of which the first `memory_nodes` are to nodes of memory.
    pub fn new(peers: Vec<Box<dyn Peer>>, memory_nodes: usize, way: Way) -> Self {
        assert!(memory_nodes <= peers.len());
        Self {
            peers,
            memory_nodes,
            way,
            hop: Duration::ZERO,
            rate: None,
            counts: Counts::default(),
            waits: Vec::new(),
        }
    }

    /// From now on each message and each reply takes this time. The time is waited for here, once for each round trip,
    /// so that two cores can simulate a hundred nodes. Messages of one step wait at the same time.
    pub fn set_hop(&mut self, hop: Duration) {
        self.hop = hop;
    }

    /// From now on all bytes of values pass the proxy's link at this rate, in bytes a second. The time is waited for
    /// here, as that of a hop is.
    pub fn set_rate(&mut self, rate: f64) {
        self.rate = Some(rate);
    }

    /// Time that these bytes take on the proxy's link.
    fn link_time(&self, bytes: usize) -> Duration {
        self.rate
            .map_or(Duration::ZERO, |rate| Duration::from_secs_f64(bytes as f64 / rate))
    }

    /// Sets the order of messages from now on.
    pub fn set_way(&mut self, way: Way) {
        self.way = way;
    }

    /// Adds the duration of another wait.
    pub fn add_wait(&mut self, wait: Duration) {
        if !self.hop.is_zero() {
            self.waits.push(wait);
        }
    }

    /// The sum of all waits since the last call.
    pub fn take_waits(&mut self) -> Duration {
        without_stalls(core::mem::take(&mut self.waits))
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Number of nodes of memory.
    pub fn memory_nodes(&self) -> usize {
        self.memory_nodes
    }

    /// Number of log nodes.
    pub fn log_nodes(&self) -> usize {
        self.peers.len() - self.memory_nodes
    }

    /// The node number of the `n`-th log node.
    pub fn log_node(&self, n: usize) -> usize {
        self.memory_nodes + n
    }

    /// Takes a connection out, for separate use. A blank one takes its place.
    pub fn take(&mut self, node: usize) -> Box<dyn Peer> {
        core::mem::replace(&mut self.peers[node], Box::new(Blank))
    }

    /// Puts a connection back.
    pub fn put_back(&mut self, node: usize, peer: Box<dyn Peer>) {
        self.peers[node] = peer;
    }

    /// One step: messages that do not depend on each other's replies. The replies are in the order of the messages.
    pub fn ask(&mut self, asks: &[(usize, Ask)]) -> io::Result<Vec<Option<Vec<u8>>>> {
        let answered = |asks: &[(usize, Ask)], log: bool| {
            asks.iter()
                .filter(|(_, ask)| ask.is_answered() && ask.is_for_log() == log)
                .count() as u64
        };
        let (of_memory, of_logs) = (answered(asks, false), answered(asks, true));
        self.counts.messages += asks.len() as u64;
        self.counts.one_by_one += of_memory + of_logs.min(1);
        self.counts.at_once += (of_memory + of_logs).min(1);
        let replies = match self.way {
            Way::AtOnce => self.exchange(asks)?,
            Way::OneByOne => {
                let mut replies = Vec::with_capacity(asks.len());
                let logs = asks.iter().position(|(_, ask)| ask.is_for_log()).unwrap_or(asks.len());
                for n in 0..logs {
                    replies.append(&mut self.exchange(&asks[n..=n])?);
                }
                replies.append(&mut self.exchange(&asks[logs..])?);
                replies
            }
        };
        let out: usize = asks.iter().map(|(_, ask)| ask.payload_bytes()).sum();
        let back: usize = replies.iter().flatten().map(Vec::len).sum();
        self.counts.bytes += (out + back) as u64;
        Ok(replies)
    }

    /// As `ask`, for messages that must all return a value.
    pub fn ask_for_all(&mut self, asks: &[(usize, Ask)]) -> io::Result<Vec<Vec<u8>>> {
        let replies = self.ask(asks)?.into_iter().zip(asks);
        replies
            .map(|(reply, (node, ask))| reply.ok_or_else(|| missing(&format!("{ask:?} on node {node}"))))
            .collect()
    }

    fn exchange(&mut self, asks: &[(usize, Ask)]) -> io::Result<Vec<Option<Vec<u8>>>> {
        let waits = !self.hop.is_zero() && asks.iter().any(|(_, ask)| ask.is_answered());
        let began = waits.then(Instant::now);
        if waits {
            let out: usize = asks.iter().map(|(_, ask)| ask.payload_bytes()).sum();
            std::thread::sleep(self.hop * 2 + self.link_time(out));
        }
        for (node, ask) in asks {
            self.peers[*node].send(ask)?;
        }
        let mut replies = Vec::with_capacity(asks.len());
        for (node, ask) in asks {
            replies.push(if ask.is_answered() {
                self.peers[*node].receive(ask)?
            } else {
                None
            });
        }
        if waits && self.rate.is_some() {
            let back: usize = replies.iter().flatten().map(Vec::len).sum();
            std::thread::sleep(self.link_time(back));
        }
        self.waits.extend(began.map(|began| began.elapsed()));
        Ok(replies)
    }

    /// Bytes that all nodes of memory keep.
    pub fn stored_bytes(&mut self) -> io::Result<u64> {
        self.peers[..self.memory_nodes]
            .iter_mut()
            .map(|peer| peer.stored_bytes())
            .sum()
    }

    /// From now on every access to the log nodes' disks takes at least this time.
    pub fn set_access(&mut self, access: Duration) -> io::Result<()> {
        let mut logs = self.peers[self.memory_nodes..].iter_mut();
        logs.try_for_each(|peer| peer.set_access(access))
    }

    /// Brings the data of every log node to its final place. Returns the counts of their disks.
    pub fn settle(&mut self) -> io::Result<Vec<Counters>> {
        self.peers[self.memory_nodes..]
            .iter_mut()
            .map(|peer| peer.settle())
            .collect()
    }
}

/// A node that stores nothing and answers zeros, for runs in which only the counts matter.
#[derive(Debug, Default)]
pub struct Blank;

/// Bytes of a value in such runs.
pub const BLANK_BYTES: usize = 1;

impl Peer for Blank {
    fn send(&mut self, _: &Ask) -> io::Result<()> {
        Ok(())
    }

    fn receive(&mut self, ask: &Ask) -> io::Result<Option<Vec<u8>>> {
        Ok(matches!(ask, Ask::Get(_) | Ask::GetParity(_)).then(|| vec![0; BLANK_BYTES]))
    }
}
