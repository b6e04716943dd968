//! What a proxy asks of nodes, and what that costs: messages, round trips and bytes are counted, then there is time.

use super::missing;
use paritas_paritylog::Counters;
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

/// What a node of memory keeps a value under.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Name {
    /// A version of an object; 0 where updates are in place.
    Object(u32, u32),
    /// A parity chunk: stripe, and which.
    Parity(u32, u8),
}

impl fmt::Display for Name {
    /// About twenty bytes, as YCSB's keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(object, 0) => write!(f, "user{object:016}"),
            Self::Object(object, version) => write!(f, "user{object:09}-{version:06}"),
            Self::Parity(stripe, index) => write!(f, "parity{stripe:010}-{index:03}"),
        }
    }
}

/// One message to one node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ask {
    /// A value.
    Get(Name),
    /// Keep it.
    Set(Name, Vec<u8>),
    /// Keep it; no reply is waited for.
    SetQuietly(Name, Vec<u8>),
    /// Forget it; no reply is waited for.
    Delete(Name),
    /// To a log node: its parity chunk of a stripe.
    PutParity(u32, Vec<u8>),
    /// To a log node: what changes of a data chunk, from an offset on. The same to all of them (Property 1).
    Delta {
        /// Of which stripe.
        stripe: u32,
        /// Which data chunk: it has the coefficient.
        index: u8,
        /// From there on.
        offset: u32,
        /// Old and new, XORed.
        xor: Vec<u8>,
    },
    /// To a log node: its parity chunk as it is now.
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
    /// Waits for its reply: what was asked for, if it was a question and is there.
    fn receive(&mut self, ask: &Ask) -> io::Result<Option<Vec<u8>>>;
    /// Bytes of all it keeps in memory.
    fn stored_bytes(&mut self) -> io::Result<u64> {
        Ok(0)
    }
    /// A log node: brings all it has to its place on disk; what its disk did so far.
    fn settle(&mut self) -> io::Result<Counters> {
        Ok(Counters::default())
    }
    /// A log node: from now on an access to its disk takes so long at least.
    fn set_access(&mut self, _: Duration) -> io::Result<()> {
        Ok(())
    }
}

/// In which order the messages of one step go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// One after the other, as a client of memcached's does unless it is told otherwise. What goes to log nodes goes to
    /// all of them at once.
    OneByOne,
    /// All of a step at once.
    AtOnce,
}

/// What was asked so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Messages, without their replies.
    pub messages: u64,
    /// Times that the proxy waited, if it asks [`Way::OneByOne`].
    pub one_by_one: u64,
    /// Times that it waited, if it asks [`Way::AtOnce`].
    pub at_once: u64,
    /// Bytes of values and deltas in both directions.
    pub bytes: u64,
}

impl Counts {
    /// What came since.
    pub fn since(self, before: Self) -> Self {
        Self {
            messages: self.messages - before.messages,
            one_by_one: self.one_by_one - before.one_by_one,
            at_once: self.at_once - before.at_once,
            bytes: self.bytes - before.bytes,
        }
    }
}

/// All nodes: first those of memory, then the log nodes.
#[derive(Debug)]
pub struct Network {
    peers: Vec<Box<dyn Peer>>,
    memory_nodes: usize,
    way: Way,
    /// From a node to another, once.
    hop: Duration,
    counts: Counts,
    /// How long each wait took, while messages take their time.
    waits: Vec<Duration>,
}

/// Waits longer than so many times the median count as that: more is what else the machine was doing.
const LONGEST_WAIT: u32 = 3;

/// The sum of waits, without what else the machine was doing.
pub fn without_stalls(mut waits: Vec<Duration>) -> Duration {
    waits.sort_unstable();
    let longest = waits.get(waits.len() / 2).copied().unwrap_or_default() * LONGEST_WAIT;
    waits.into_iter().map(|wait| wait.min(longest)).sum()
}

impl Network {
    /// Of connections, the first so many of them to nodes of memory.
    pub fn new(peers: Vec<Box<dyn Peer>>, memory_nodes: usize, way: Way) -> Self {
        assert!(memory_nodes <= peers.len());
        Self {
            peers,
            memory_nodes,
            way,
            hop: Duration::ZERO,
            counts: Counts::default(),
            waits: Vec::new(),
        }
    }

    /// From now on each message takes so long, and so does each reply. It is waited for here, once a round trip, so
    /// that two cores can carry a hundred nodes; messages of one step wait at the same time.
    pub fn set_hop(&mut self, hop: Duration) {
        self.hop = hop;
    }

    /// From now on.
    pub fn set_way(&mut self, way: Way) {
        self.way = way;
    }

    /// Something else was waited for.
    pub fn add_wait(&mut self, wait: Duration) {
        if !self.hop.is_zero() {
            self.waits.push(wait);
        }
    }

    /// All waits since it was asked last.
    pub fn take_waits(&mut self) -> Duration {
        without_stalls(core::mem::take(&mut self.waits))
    }

    /// So far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Nodes of memory.
    pub fn memory_nodes(&self) -> usize {
        self.memory_nodes
    }

    /// Log nodes.
    pub fn log_nodes(&self) -> usize {
        self.peers.len() - self.memory_nodes
    }

    /// The n-th log node.
    pub fn log_node(&self, n: usize) -> usize {
        self.memory_nodes + n
    }

    /// Takes a connection out, to be used apart: in its place is one that answers nothing.
    pub fn take(&mut self, node: usize) -> Box<dyn Peer> {
        core::mem::replace(&mut self.peers[node], Box::new(Blank))
    }

    /// Puts it back.
    pub fn put_back(&mut self, node: usize, peer: Box<dyn Peer>) {
        self.peers[node] = peer;
    }

    /// One step: messages that do not depend on one another's replies. The replies are in the messages' order.
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

    /// The same, where each must have a value.
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
            std::thread::sleep(self.hop * 2);
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

    /// From now on accesses to the log nodes' disks take so long at least.
    pub fn set_access(&mut self, access: Duration) -> io::Result<()> {
        let mut logs = self.peers[self.memory_nodes..].iter_mut();
        logs.try_for_each(|peer| peer.set_access(access))
    }

    /// Of every log node, once all is in its place: what its disk did so far.
    pub fn settle(&mut self) -> io::Result<Vec<Counters>> {
        self.peers[self.memory_nodes..]
            .iter_mut()
            .map(|peer| peer.settle())
            .collect()
    }
}

/// A node that keeps nothing and answers zeros: for runs of which only the counts matter.
#[derive(Debug, Default)]
pub struct Blank;

/// Bytes of values where only counts matter.
pub const BLANK_BYTES: usize = 1;

impl Peer for Blank {
    fn send(&mut self, _: &Ask) -> io::Result<()> {
        Ok(())
    }

    fn receive(&mut self, ask: &Ask) -> io::Result<Option<Vec<u8>>> {
        Ok(matches!(ask, Ask::Get(_) | Ask::GetParity(_)).then(|| vec![0; BLANK_BYTES]))
    }
}
