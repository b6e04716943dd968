//! Links between nodes: dialing, binding, incoming and outgoing frames.

use crate::backlog::Backlog;
use crate::door::Unproven;
use crate::id_table::IdTable;
use mio::net::TcpStream;
use paritas_base::configuration::NodeRecord;
use paritas_base::{Incarnation, Map, NodeId, Time, map};
use paritas_protocol::{Channel, FrameBuf};
use paritas_wire::greeting::{Called, Caller};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

const KEEP_BYTES: usize = 16 << 10;
/// Descriptors reserved for connections that have not proven who they are. There may be more while others are free.
const STRANGERS: usize = 16;

/// How far the greeting of a link is.
#[derive(Debug)]
pub(crate) enum GreetingState {
    /// There is no connection yet.
    Dialing,
    /// This end has called.
    Calling(Box<Caller>),
    /// This end waits for a call.
    Listening,
    /// This end has answered, and waits for the caller's proof.
    Answered(Box<Called>),
    /// Both ends have proven who they are.
    Done,
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) stream: TcpStream,
    /// The node that this side dialed; `None` if the other side dialed.
    pub(crate) dialed: Option<(NodeId, Channel)>,
    /// The other end's address. `None` while it is being dialed.
    pub(crate) address: Option<SocketAddr>,
    /// How far the greeting is.
    pub(crate) greeting: GreetingState,
    /// Whether both ends have proven who they are, and the machine was told that the link is up.
    pub(crate) up: bool,
    pub(crate) bound: Option<(NodeId, Channel)>,
    /// When the link was made. A link that stays unbound too long is closed.
    pub(crate) since: Time,
    pub(crate) out: FrameBuf,
    pub(crate) backlog: Backlog,
    /// The beginning of a frame that is not yet complete.
    pub(crate) input: Vec<u8>,
    pub(crate) readable: bool,
    pub(crate) ending: bool,
    pub(crate) blocked: bool,
    touched: bool,
    queued: bool,
}

impl Link {
    /// Writes once. Returns false if the link must end: the socket failed, or a deadline of this turn's frames has
    /// passed. `now` is the fresh clock of P4.2.
    pub(crate) fn flush(&mut self, now: Option<Time>) -> bool {
        let late = match (self.out.deadline.take(), now) {
            (Some(deadline), Some(now)) => now >= deadline,
            _ => false,
        };
        if late {
            self.out.bytes.clear();
        }
        let ready = self.out.bytes.len();
        if self.blocked {
            self.backlog.hold(&mut self.out.bytes, ready);
        } else if ready > 0 || !self.backlog.is_empty() {
            match self.backlog.write_once(&mut self.stream, &mut self.out.bytes, ready) {
                Ok(done) => self.blocked = !done,
                Err(_) => return false,
            }
        }
        self.out.waiting = self.backlog.len();
        !late
    }

    /// Whether something can be written.
    pub(crate) fn is_connected(&self) -> bool {
        !matches!(self.greeting, GreetingState::Dialing)
    }

    pub(crate) fn unwritten_bytes(&self) -> usize {
        self.out.bytes.len() + self.backlog.len()
    }

    /// Bytes of memory of the link and its buffers.
    pub(crate) fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.input.capacity() + self.out.bytes.capacity() + self.backlog.capacity()
    }

    /// Frees memory that only a burst needed. If the shard is idle, frees all of it.
    pub(crate) fn shrink(&mut self, busy: bool) {
        let keep_bytes = if busy { KEEP_BYTES } else { 0 };
        if self.input.is_empty() && self.input.capacity() > keep_bytes {
            self.input = Vec::new();
        }
        if self.out.bytes.is_empty() && self.out.bytes.capacity() > keep_bytes {
            self.out.bytes = Vec::new();
        }
        if self.backlog.is_empty() && self.backlog.capacity() > keep_bytes {
            self.backlog.shrink();
        }
    }
}

#[derive(Debug)]
pub(crate) struct Links {
    slots: IdTable<Link>,
    /// For each node number, the links bound to its two channels.
    bound: Vec<[Option<u64>; 2]>,
    addresses: Map<NodeId, SocketAddr>,
    /// The present incarnation of each peer, by the coordinator's records.
    incarnations: Map<NodeId, Incarnation>,
    ready: VecDeque<u64>,
    touched: Vec<u64>,
}

impl Links {
    pub(crate) fn new() -> Self {
        Self {
            slots: IdTable::new(),
            bound: Vec::new(),
            addresses: map(),
            incarnations: map(),
            ready: VecDeque::new(),
            touched: Vec::new(),
        }
    }

    pub(crate) fn learn(&mut self, peers: Vec<(NodeId, SocketAddr)>, records: &[NodeRecord]) {
        self.addresses = peers.into_iter().collect();
        self.incarnations = records.iter().map(|record| (record.id, record.incarnation)).collect();
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Number of connections that must be possible whatever clients do: each channel dialed from both ends, and
    /// connections that have not proven who they are.
    pub(crate) fn reserved(&self) -> usize {
        2 * 2 * self.addresses.len() + STRANGERS
    }

    pub(crate) fn knows_peers(&self) -> bool {
        !self.addresses.is_empty()
    }

    pub(crate) fn address(&self, node: NodeId) -> Option<SocketAddr> {
        self.addresses.get(&node).copied()
    }

    /// The present incarnation of a peer, if the records tell.
    pub(crate) fn incarnation(&self, node: NodeId) -> Option<Incarnation> {
        self.incarnations.get(&node).copied()
    }

    /// A connection that was accepted from an address, or that is being dialed.
    pub(crate) fn add(
        &mut self,
        mut stream: TcpStream,
        address: Option<SocketAddr>,
        dialed: Option<(NodeId, Channel)>,
        since: Time,
        register: impl FnOnce(&mut TcpStream, u64) -> io::Result<()>,
    ) -> Option<u64> {
        self.slots
            .insert_with(|id| {
                register(&mut stream, id)?;
                Ok::<_, io::Error>(Link {
                    stream,
                    dialed,
                    address,
                    greeting: if dialed.is_none() {
                        GreetingState::Listening
                    } else {
                        GreetingState::Dialing
                    },
                    up: false,
                    bound: None,
                    since,
                    out: FrameBuf::default(),
                    backlog: Backlog::default(),
                    input: Vec::new(),
                    readable: dialed.is_none(),
                    ending: false,
                    blocked: false,
                    touched: false,
                    queued: false,
                })
            })?
            .ok()
    }

    pub(crate) fn find(&mut self, id: u64) -> Option<&mut Link> {
        self.slots.find_mut(id)
    }

    pub(crate) fn is_up(&self, id: u64) -> bool {
        self.slots.find(id).is_some_and(|link| link.up)
    }

    /// The accepted connections whose other ends have not proven who they are, or have not said so in a `Hello`: where
    /// there is no secret, everybody can prove that.
    pub(crate) fn unproven(&self) -> Vec<Unproven<u64>> {
        let of = |id: u64| {
            let link = self
                .slots
                .find(id)
                .filter(|link| link.bound.is_none() && link.dialed.is_none())?;
            Some(Unproven {
                key: id,
                address: link.address.map(|address| address.ip())?,
                since: link.since,
            })
        };
        self.slots.ids().filter_map(of).collect()
    }

    pub(crate) fn is_dialing(&self, node: NodeId, channel: Channel) -> bool {
        self.slots.ids().any(|id| {
            self.slots
                .find(id)
                .is_some_and(|link| !link.up && link.dialed == Some((node, channel)))
        })
    }

    pub(crate) fn ids(&self) -> Vec<u64> {
        self.slots.ids().collect()
    }

    /// Removes a link, and its binding.
    pub(crate) fn remove(&mut self, id: u64) -> Option<Link> {
        let link = self.slots.remove(id)?;
        if let Some((node, channel)) = link.bound
            && let Some(pair) = self.bound.get_mut(usize::from(node.0))
            && pair[channel as usize] == Some(id)
        {
            pair[channel as usize] = None;
        }
        Some(link)
    }

    pub(crate) fn bound(&self, node: NodeId, channel: Channel) -> Option<u64> {
        self.bound.get(usize::from(node.0))?[channel as usize]
    }

    pub(crate) fn bind(&mut self, id: u64, node: NodeId, channel: Channel) {
        let Some(link) = self.slots.find_mut(id) else {
            return;
        };
        let before = link.bound.replace((node, channel));
        if let Some((node, channel)) = before {
            self.bound[usize::from(node.0)][channel as usize] = None;
        }
        let index = usize::from(node.0);
        if self.bound.len() <= index {
            self.bound.resize(index + 1, [None; 2]);
        }
        self.bound[index][channel as usize] = Some(id);
    }

    /// The outgoing frames of a link; the link is marked as changed.
    pub(crate) fn touch(&mut self, id: u64) -> Option<&mut FrameBuf> {
        let link = self.slots.find_mut(id)?;
        if !link.touched {
            link.touched = true;
            self.touched.push(id);
        }
        Some(&mut link.out)
    }

    pub(crate) fn take_touched(&mut self) -> Vec<u64> {
        let touched = std::mem::take(&mut self.touched);
        for id in &touched {
            if let Some(link) = self.slots.find_mut(*id) {
                link.touched = false;
            }
        }
        touched
    }

    pub(crate) fn give_back(&mut self, mut list: Vec<u64>) {
        if self.touched.is_empty() {
            list.clear();
            self.touched = list;
        }
    }

    pub(crate) fn enqueue(&mut self, id: u64) {
        if let Some(link) = self.slots.find_mut(id)
            && !link.queued
        {
            link.queued = true;
            self.ready.push_back(id);
        }
    }

    pub(crate) fn ready_len(&self) -> usize {
        self.ready.len()
    }

    pub(crate) fn next_ready(&mut self) -> Option<u64> {
        let id = self.ready.pop_front()?;
        if let Some(link) = self.slots.find_mut(id) {
            link.queued = false;
        }
        Some(id)
    }
}
