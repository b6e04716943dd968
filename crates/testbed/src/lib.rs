//! A cluster of nodes in one thread. The test passes frames and client bytes between them and moves the clock.
//!
//! A crate of its own, so that `protocol` and `frontend` are compiled with it once, and not again in each test program.

mod build;
mod clients;
mod disk;
mod shape;

pub use clients::Client;
pub use disk::Disk;
use paritas_base::configuration::{Assignment, ClusterRecord, Configuration, NodeRecord, PositionState, Tenure};
use paritas_base::{Clock, ConnId, Epoch, Incarnation, ListId, Map, NodeId};
pub use paritas_frontend::Node;
use paritas_protocol::paritylog::Io;
use paritas_protocol::{Channel, Event, FrameBuf, HaltReason, Identity, LinkId, Out, Parameters, Proposal, ReplyBuf};
use paritas_wire::peer::{self, Header, Message};

/// What a node wants to send.
#[derive(Default)]
pub struct Outbox {
    links: Map<LinkId, FrameBuf>,
    bound: Map<(NodeId, Channel), LinkId>,
    clients: Map<ConnId, ReplyBuf>,
    dials: Vec<(NodeId, Channel)>,
    /// What its owners have proposed to the coordinator.
    pub proposals: Vec<Proposal>,
    ios: Vec<Io>,
    /// Broken invariants, where a test expects them.
    pub halts: Option<Vec<String>>,
}

impl Out for Outbox {
    fn peer(&mut self, node: NodeId, channel: Channel) -> Option<&mut FrameBuf> {
        self.links.get_mut(self.bound.get(&(node, channel))?)
    }
    fn link(&mut self, link: LinkId) -> Option<&mut FrameBuf> {
        self.links.get_mut(&link)
    }
    fn dial(&mut self, node: NodeId, channel: Channel) {
        self.dials.push((node, channel));
    }
    fn bind(&mut self, link: LinkId, node: NodeId, channel: Channel) {
        self.bound.insert((node, channel), link);
    }
    fn close(&mut self, link: LinkId) {
        self.links.remove(&link);
        self.bound.retain(|_, l| *l != link);
    }
    fn client(&mut self, conn: ConnId) -> Option<&mut ReplyBuf> {
        self.clients.get_mut(&conn)
    }
    fn propose(&mut self, proposal: Proposal) {
        self.proposals.push(proposal);
    }
    fn disk(&mut self, io: Io) {
        self.ios.push(io);
    }

    fn halt(&mut self, reason: HaltReason) {
        match &mut self.halts {
            Some(halts) => halts.push(reason.0),
            None => panic!("halted: {}", reason.0),
        }
    }
}

/// A node, and what a driver has of it.
pub struct Process {
    /// The machines of this node: router, owners, parity members.
    pub node: Node,
    /// What these want to send.
    pub out: Outbox,
    inputs: Map<ConnId, Vec<u8>>,
    outputs: Map<ConnId, Vec<u8>>,
    /// Clients whose connections the node has closed.
    pub closed: Vec<ConnId>,
    /// Of a log node.
    disk: Option<Disk>,
    up: bool,
}

/// Looks at a frame on its way from one node to another, and may put another in its place, or nothing: no bytes.
pub type Tamper = Box<dyn FnMut(usize, usize, &Header, &Message<'_>) -> Option<Vec<u8>>>;

/// Nodes, by default with scheme `1+0`: node i owns list i, and with it the i-th part of the slots.
pub struct Cluster {
    /// The nodes, by their numbers.
    pub processes: Vec<Process>,
    /// The clock of all nodes.
    pub now: Clock,
    /// The newest configuration of each list.
    pub configurations: Vec<Configuration>,
    /// Frames between nodes stay where they are.
    pub cut: bool,
    /// Sees each frame.
    pub tamper: Option<Tamper>,
    record: ClusterRecord,
    records: Vec<NodeRecord>,
    ends: Map<LinkId, (usize, usize)>,
    next_link: u64,
    next_conn: u64,
}

/// The wall clock at the start, in milliseconds.
pub const START_MS: u64 = 1_700_000_000_000;

/// The tenure of the first process of a node since an epoch.
pub fn tenure(node: usize, since: u32) -> Tenure {
    Tenure {
        node: NodeId(node as u16),
        incarnation: Incarnation(node as u64 + 1),
        since: Epoch(since),
    }
}

/// The configuration of a list with scheme `1+0`.
pub fn configuration(list: u16, owner: usize, epoch: u32, since: u32) -> Configuration {
    let mut configuration = Configuration {
        list: ListId(list),
        epoch: Epoch(epoch),
        born: Epoch(since),
        data: 1,
        parity: 0,
        ack_quorum: 0,
        positions: vec![Some(Assignment {
            tenure: tenure(owner, since),
            state: PositionState::Born,
        })],
        gone: Vec::new(),
        lost: false,
        slots: Default::default(),
        id: 0,
        trail: Vec::new(),
        more: Default::default(),
    };
    configuration.seal(None);
    configuration
}

/// The configuration that follows `before`, changed so.
pub fn following(before: &Configuration, change: impl FnOnce(&mut Configuration)) -> Configuration {
    let mut next = before.clone();
    next.epoch.0 += 1;
    change(&mut next);
    next.seal(Some(before));
    next
}

impl Cluster {
    /// An event happens at a node, if it is up.
    pub fn event(&mut self, at: usize, event: Event<'_>) {
        let process = &mut self.processes[at];
        if process.up {
            process.node.on(self.now, event, &mut process.out);
        }
    }

    /// A new configuration reaches a node.
    pub fn configure(&mut self, at: usize, configuration: &Configuration) {
        self.event(at, Event::Configuration(configuration));
        self.pump();
    }

    /// Moves the clock, in steps, so that timers fire on the way.
    pub fn advance(&mut self, ms: u64) {
        for _ in 0..ms.div_ceil(10) {
            let step = 10.min(ms);
            self.now.mono.0 += step * 1_000_000;
            self.now.wall_ms += step;
            self.pump();
        }
    }

    /// A node dies, and its links with it.
    pub fn kill(&mut self, at: usize) {
        self.processes[at].up = false;
        let gone: Vec<LinkId> = self
            .ends
            .iter()
            .filter(|(_, (a, b))| *a == at || *b == at)
            .map(|(l, _)| *l)
            .collect();
        for link in gone {
            let Some((a, b)) = self.ends.remove(&link) else {
                continue;
            };
            for end in [a, b] {
                self.processes[end].out.close(link);
                self.event(end, Event::LinkDown { link });
            }
        }
        self.pump();
    }

    /// Whether a node was not killed.
    pub fn is_up(&self, at: usize) -> bool {
        self.processes[at].up
    }

    /// A killed node runs again, as a new process that has no configuration.
    pub fn begin_anew(&mut self, at: usize) {
        let identity = Identity {
            node: NodeId(at as u16),
            incarnation: Incarnation(1_000 + at as u64),
            cluster: self.record.clone(),
            seed: 0,
            maxmemory_bytes: 16 << 20,
        };
        let process = &mut self.processes[at];
        process.node = Node::new(identity, Parameters::default());
        (process.out, process.up) = (Outbox::default(), true);
    }

    /// Every node gets a list's next configuration, in which a position is another node's, Filling.
    pub fn hand_over(&mut self, list: usize, position: u8, node: usize) {
        let epoch = self.configurations[list].epoch.0 + 1;
        self.reconfigure(list, |c| {
            c.positions[usize::from(position)] = Some(Assignment {
                tenure: tenure(node, epoch),
                state: PositionState::Filling,
            });
        });
    }

    /// Every node gets a list's next configuration, changed so.
    pub fn reconfigure(&mut self, list: usize, change: impl FnOnce(&mut Configuration)) {
        let next = following(&self.configurations[list], change);
        self.configurations[list] = next.clone();
        for at in 0..self.processes.len() {
            self.event(at, Event::Configuration(&next));
        }
        self.pump();
    }

    /// Runs turns until nothing moves.
    pub fn pump(&mut self) {
        for _ in 0..10_000 {
            let mut moved = false;
            for at in 0..self.processes.len() {
                if self.processes[at].up {
                    moved |= self.turn(at);
                }
            }
            if !moved {
                return;
            }
        }
        panic!("the cluster does not come to rest");
    }

    /// One turn of one node. Whether anything happened.
    pub fn turn(&mut self, at: usize) -> bool {
        let mut moved = false;
        let due = self.processes[at]
            .node
            .next_deadline()
            .is_some_and(|t| t <= self.now.mono);
        if due {
            self.event(at, Event::Timer);
        }
        let mut conns: Vec<ConnId> = self.processes[at].inputs.keys().copied().collect();
        conns.sort();
        for conn in conns {
            let input = self.processes[at].inputs[&conn].clone();
            if input.is_empty() || self.processes[at].out.clients[&conn].stalled {
                continue;
            }
            self.event(at, Event::Client { conn, bytes: &input });
            let process = &mut self.processes[at];
            let buffer = process.out.clients.get_mut(&conn).unwrap();
            let consumed = core::mem::take(&mut buffer.consumed);
            process.inputs.get_mut(&conn).unwrap().drain(..consumed);
            moved |= consumed > 0;
        }
        let process = &mut self.processes[at];
        if let Some(disk) = &mut process.disk {
            disk.waiting.append(&mut process.out.ios);
            while let Some((id, outcome)) = self.processes[at].disk.as_mut().and_then(Disk::next_done) {
                self.event(at, Event::Disk { id, outcome });
                moved = true;
            }
        }
        let stalled = |process: &Process| process.out.clients.values().filter(|client| client.stalled).count();
        let stalled_before = stalled(&self.processes[at]);
        self.event(at, Event::TurnEnd);
        // A driver gives the rest of the input at once.
        moved |= stalled(&self.processes[at]) < stalled_before;
        moved |= !self.processes[at].out.ios.is_empty();
        for (node, channel) in core::mem::take(&mut self.processes[at].out.dials) {
            self.dial(at, usize::from(node.0), channel);
            moved = true;
        }
        let process = &mut self.processes[at];
        for (conn, buffer) in &mut process.out.clients {
            assert!(buffer.released <= buffer.bytes.len());
            let bytes: Vec<u8> = buffer.bytes.drain(..buffer.released).collect();
            buffer.released = 0;
            moved |= !bytes.is_empty();
            process.outputs.get_mut(conn).unwrap().extend(bytes);
            if buffer.close && !process.closed.contains(conn) {
                process.closed.push(*conn);
            }
        }
        // A driver comes back at once for what is due already.
        moved |= process.node.next_deadline().is_some_and(|t| t <= self.now.mono);
        if self.cut {
            return moved;
        }
        let mut links: Vec<LinkId> = process.out.links.keys().copied().collect();
        links.sort();
        for link in links {
            let Some(frames) = self.processes[at].out.links.get_mut(&link) else {
                continue;
            };
            let bytes = core::mem::take(&mut frames.bytes);
            let Some((a, b)) = self.ends.get(&link).copied() else {
                continue;
            };
            let other = if a == at { b } else { a };
            let mut rest = bytes.as_slice();
            while let Some(length) = peer::split(rest).unwrap() {
                let (frame, after) = rest.split_at(length);
                let (header, message) = peer::decode(frame).unwrap();
                let instead = self.tamper.as_mut().and_then(|t| t(at, other, &header, &message));
                let bytes = instead.as_deref().unwrap_or(frame);
                if !bytes.is_empty() {
                    self.event(other, Event::Frame { link, bytes });
                }
                rest = after;
                moved = true;
            }
        }
        moved
    }

    fn dial(&mut self, from: usize, to: usize, channel: Channel) {
        if !self.processes[to].up || self.cut {
            let node = NodeId(to as u16);
            self.event(from, Event::DialFailed { node, channel });
            return;
        }
        self.next_link += 1;
        let link = LinkId(self.next_link);
        self.ends.insert(link, (from, to));
        for end in [from, to] {
            self.processes[end].out.links.insert(link, FrameBuf::default());
        }
        let dialed = Some((NodeId(to as u16), channel));
        let [from_caller, from_called] =
            [from, to].map(|end| (NodeId(end as u16), self.processes[end].node.replica().incarnation()));
        self.event(
            from,
            Event::LinkUp {
                link,
                from: from_called,
                dialed,
            },
        );
        self.event(
            to,
            Event::LinkUp {
                link,
                from: from_caller,
                dialed: None,
            },
        );
    }

    /// A log node's disk.
    pub fn disk(&mut self, at: usize) -> &mut Disk {
        self.processes[at].disk.as_mut().unwrap()
    }

    /// How many processes live.
    pub fn up_count(&self) -> usize {
        self.processes.iter().filter(|process| process.up).count()
    }

    /// A link from an unknown peer. Frames that the node sends on it are lost.
    pub fn stranger(&mut self, at: usize, from: (NodeId, Incarnation)) -> LinkId {
        self.next_link += 1;
        let link = LinkId(self.next_link);
        self.processes[at].out.links.insert(link, FrameBuf::default());
        self.event(
            at,
            Event::LinkUp {
                link,
                from,
                dialed: None,
            },
        );
        link
    }

    /// The link by which one node hears another, if there is one.
    pub fn link_between(&self, from: usize, to: usize, channel: Channel) -> Option<LinkId> {
        let bound = &self.processes[to].out.bound;
        bound.get(&(NodeId(from as u16), channel)).copied()
    }

    /// A node hears a frame by a link that has not ended.
    pub fn hear(&mut self, at: usize, link: LinkId, frame: &[u8]) {
        if self.processes[at].out.links.contains_key(&link) {
            self.event(at, Event::Frame { link, bytes: frame });
        }
    }

    /// Bytes of the heap that are this driver's, and not the machines'.
    pub fn driver_bytes(&self) -> usize {
        let held = |process: &Process| -> usize {
            let out = &process.out;
            let strings = process.inputs.values().chain(process.outputs.values());
            let strings = strings.chain(out.links.values().map(|link| &link.bytes));
            let strings = strings.chain(out.clients.values().map(|client| &client.bytes));
            let tables = out.clients.capacity() * size_of::<(ConnId, ReplyBuf)>();
            let strings_kept = process.inputs.capacity() + process.outputs.capacity();
            strings.map(Vec::capacity).sum::<usize>() + tables + strings_kept * size_of::<(ConnId, Vec<u8>)>()
        };
        self.processes.iter().map(held).sum()
    }

    /// Groups of parts that are alive at the owners of a node, and that no object names.
    pub fn staged_groups(&self, at: usize) -> usize {
        let lists = self.processes[at].node.replica().lists();
        let owners = lists.flat_map(|list| list.owners());
        let unnamed = owners.map(|owner| {
            let page = owner.ledger().page(None, usize::MAX - 1);
            let alive = page.into_iter().flat_map(|page| page.alive);
            alive.filter(|alive| !owner.ledger().is_named(alive.group)).count()
        });
        unnamed.sum()
    }

    /// Bytes of frames that a node has made and not sent.
    pub fn frame_bytes(&self, at: usize) -> usize {
        let links = self.processes[at].out.links.values();
        links.map(|link| link.bytes.len()).sum()
    }
}
