//! Machines of which one node lies: it sends frames that are well formed but false, in every role and phase.
//!
//! A false frame may come from a node that could send a true one (the owner, the member, the successor), from another
//! node of the cluster, or from a stranger that poses as a node. By P3.5 a role halts if parity contradicts its
//! own owner, or if an owner's own member says something impossible. No one else may cause a halt.

use crate::frames::{covered, sealed};
use crate::script::{Script, random};
use paritas_base::configuration::{Assignment, Configuration, PositionState, Tenure};
use paritas_base::hash_slots::{HandOff, SlotRange};
use paritas_base::{
    ClusterId, ConnId, Epoch, Incarnation, ListId, NodeId, Position, StreamId, Stripe, Time, Version, varint,
};
use paritas_protocol::{Channel, LinkId, PROTOCOL_VERSION, Parameters, Port, Proposal};
use paritas_testbed::{Client, Cluster, tenure};
use paritas_wire::peer::{
    self, Behind, ChunkStatus, Deltas, Header, Hello, ImportStatus, LeaseEntry, LeaseRecord, Leases, Message,
    ObjectRecord, Objects, Parity, Versions,
};

/// Memory of each node in bytes: little, so that it becomes full.
pub(crate) const NODE_BYTES: u64 = 2 << 20;
const STEPS_MAX: usize = 40;

struct Play<'a> {
    script: Script<'a>,
    cluster: Cluster,
    clients: Vec<Client>,
    strangers: Vec<(usize, LinkId)>,
    /// Whether a node that is believed has lied, or has announced another configuration.
    believed: bool,
    /// The version of the latest hand-off of slots.
    version: u64,
}

/// The lists of a hand-off, each once.
fn lists_of(what: &HandOff) -> Vec<usize> {
    let mut lists = vec![usize::from(what.from.list.0), usize::from(what.to.list.0)];
    lists.dedup();
    lists
}

pub(crate) fn lies(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let (data, parity) = script.pick(&[(1, 1), (2, 1), (2, 2), (1, 2)]);
    let lists = 1 + script.below(2) as u16;
    let cluster = Cluster::coded_in(NODE_BYTES, data, parity, lists, 2, Parameters::default());
    let mut play = Play {
        script,
        cluster,
        clients: Vec::new(),
        strangers: Vec::new(),
        believed: false,
        version: 0,
    };
    for process in &mut play.cluster.processes {
        process.out.halts = Some(Vec::new());
    }
    for at in 0..play.cluster.processes.len() {
        let client = play.cluster.connect(at, Port::Any);
        play.clients.push(client);
    }
    for _ in 0..STEPS_MAX {
        if play.script.is_over() {
            break;
        }
        play.step();
        play.make_live();
        play.check();
    }
    play.cluster.advance(300);
    play.make_live();
    play.check();
}

impl Play<'_> {
    fn nodes(&self) -> usize {
        self.cluster.processes.len()
    }

    fn step(&mut self) {
        match self.script.below(16) {
            0..=3 => self.command(),
            4 => self.move_slots(),
            5 => self.cluster.advance(1 + self.script.below(8) as u64 * 40),
            6 => self.hand_over(),
            7 => self.greet(),
            8 => {
                let at = self.script.below(self.nodes());
                // All nodes but one may die.
                if self.cluster.up_count() > 2 {
                    self.cluster.kill(at);
                }
            }
            9 => self.bend_next(),
            _ => self.lie(),
        }
    }

    fn command(&mut self) {
        let client = self.script.below(self.clients.len());
        let client = self.clients[client];
        let key = self.script.below(8);
        let line = match self.script.below(8) {
            0..=3 => format!("SET k{key} {}", "v".repeat(1 << self.script.below(13))),
            4 => format!("GET k{key}"),
            5 => format!("DEL k{key}"),
            6 => "FLUSHALL".to_owned(),
            _ => format!("MSET {{a}}{key} 1 {{b}}{key} 2"),
        };
        self.cluster.feed(client, format!("{line}\r\n").as_bytes());
        if self.script.below(4) > 0 {
            self.cluster.pump();
        }
        self.cluster.take(client);
    }

    /// The coordinator gives a position to another node, as after a failure.
    fn hand_over(&mut self) {
        let list = self.script.below(self.cluster.configurations.len());
        let configuration = &self.cluster.configurations[list];
        let (position, node) = (
            self.script.below(configuration.positions.len()),
            self.script.below(self.nodes()),
        );
        let held = configuration
            .positions
            .iter()
            .flatten()
            .any(|a| usize::from(a.tenure.node.0) == node);
        if !held {
            self.cluster.hand_over(list, position as u8, node);
        }
    }

    /// The coordinator begins a hand-off of slots, or cancels the one under way (P10.8).
    fn move_slots(&mut self) {
        let under_way = self.cluster.configurations.iter().find_map(|c| c.slots.hand_off);
        if let Some(what) = under_way {
            if self.script.flag() {
                self.change_slots(&what, None);
            }
            return;
        }
        let record = self.cluster.processes[0].node.replica().cluster().clone();
        let (list, other) = (
            self.script.below(self.cluster.configurations.len()),
            self.script.below(self.cluster.configurations.len()),
        );
        let source = &self.cluster.configurations[list];
        let data = self.cluster.configurations[other].data;
        let held = source.slots.held(source.list, &record);
        if held.is_empty() {
            return;
        }
        let range = self.script.pick(&held);
        let from = StreamId {
            list: ListId(list as u16),
            x: range.x,
        };
        let to = StreamId {
            list: ListId(other as u16),
            x: Position(self.script.below(data.into()) as u8),
        };
        if from == to {
            return;
        }
        let versions = self.cluster.configurations.iter().map(|c| c.slots.version);
        let what = HandOff {
            version: versions.max().unwrap_or(0).max(self.version) + 1,
            first: range.first,
            last: range.last,
            from,
            to,
        };
        self.version = what.version;
        for list in lists_of(&what) {
            self.cluster.reconfigure(list, |c| c.slots = c.slots.during(what));
        }
    }

    /// Ends a hand-off: its slots up to `last` are done, or it is cancelled.
    fn change_slots(&mut self, what: &HandOff, last: Option<u16>) {
        let record = self.cluster.processes[0].node.replica().cluster().clone();
        for list in lists_of(what) {
            self.cluster.reconfigure(list, |c| {
                c.slots = match last {
                    Some(last) => c.slots.after(c.list, &record, what, last),
                    None => c.slots.given_up(c.list, &record, what),
                };
            });
        }
    }

    /// Acts as the coordinator when a position is complete, or when slots have reached their destination.
    fn make_live(&mut self) {
        let proposals: Vec<Proposal> = self
            .cluster
            .processes
            .iter_mut()
            .flat_map(|process| core::mem::take(&mut process.out.proposals))
            .collect();
        for proposal in proposals {
            if let Proposal::HandOff {
                version,
                last,
                from,
                to,
            } = proposal
            {
                let under_way = self.cluster.configurations.iter().find_map(|c| c.slots.hand_off);
                let tenure =
                    |stream: StreamId| self.cluster.configurations[usize::from(stream.list.0)].tenure(stream.x);
                let agreed = |what: &HandOff| {
                    what.version == version && (tenure(what.from), tenure(what.to)) == (Some(from), Some(to))
                };
                if let Some(what) = under_way.filter(agreed) {
                    assert!(
                        last.is_none_or(|last| what.contains(last)),
                        "{last:?} is not in {what:?}"
                    );
                    self.change_slots(&what, last);
                }
                continue;
            }
            let Proposal::AskLive { list, position, tenure } = proposal else {
                continue;
            };
            let Some(configuration) = self.cluster.configurations.get(usize::from(list.0)) else {
                continue;
            };
            let asked = configuration.at(position);
            if asked.is_some_and(|a| a.tenure == tenure && a.state == PositionState::Filling) {
                self.cluster.reconfigure(usize::from(list.0), |c| {
                    c.positions[position.index()] = Some(Assignment {
                        tenure,
                        state: PositionState::Live,
                    });
                });
            }
        }
    }

    fn check(&mut self) {
        for process in &self.cluster.processes {
            let halts = process.out.halts.as_deref().unwrap_or_default();
            assert!(
                self.believed || halts.is_empty(),
                "a false frame made a role halt: {halts:?}"
            );
            for halt in halts {
                let known = ["I4: ", "I5: ", "I6: ", "P10.15: "]
                    .iter()
                    .any(|rule| halt.starts_with(rule));
                assert!(known, "a role halted without a rule: {halt}");
            }
            // Reads everything there is.
            let _ = (process.node.figures(), process.node.next_deadline());
        }
    }

    /// A stranger connects and poses as a node that may be expected.
    fn greet(&mut self) {
        let at = self.script.below(self.nodes());
        let node = self.script.below(self.nodes() + 1);
        let hello = Hello {
            cluster: ClusterId(self.script.number(7)),
            node: NodeId(node as u16),
            incarnation: Incarnation(self.script.number(node as u64 + 1)),
            to_node: NodeId(self.script.number(at as u64) as u16),
            to_incarnation: Incarnation(self.script.number(at as u64 + 1)),
            bulk: self.script.flag(),
            version_low: self.script.number(PROTOCOL_VERSION.into()) as u16,
            version_high: self.script.number(PROTOCOL_VERSION.into()) as u16,
            features: self.script.u64(),
            session: self.script.number(1 << 20),
        };
        // Who has the cluster's secret is believed to be any node; the machine is told the same.
        let link = self.cluster.stranger(at, (hello.node, hello.incarnation));
        self.strangers.push((at, link));
        // It replaces a link that is believed.
        self.believed = true;
        let mut frame = Vec::new();
        peer::encode(&mut frame, &Header::bare(), &Message::Hello { hello });
        self.cluster.hear(at, link, &frame);
    }

    /// Changes a byte or two of the next true frame, and makes its CRC match.
    fn bend_next(&mut self) {
        let kind = 10 + self.script.below(27) as u8;
        let (at, xor) = (self.script.u64() as usize, self.script.byte());
        let header_too = self.script.flag();
        self.believed = true;
        let mut left = 1;
        self.cluster.tamper = Some(Box::new(move |_, _, header, message| {
            if message.kind() as u8 != kind || left == 0 {
                return None;
            }
            left -= 1;
            let mut frame = Vec::new();
            peer::encode(&mut frame, header, message);
            let mut covered = covered(&frame).to_vec();
            // After the kind, or after list, x and epoch too, of a byte or two each.
            let from = if header_too { 1 } else { 4 };
            let place = from + at % (covered.len() - from).max(1);
            if let Some(byte) = covered.get_mut(place) {
                *byte ^= xor;
            }
            sealed(&covered)
        }));
    }

    /// Sends an invented frame.
    fn lie(&mut self) {
        let list = self.script.below(self.cluster.configurations.len());
        let configuration = self.cluster.configurations[list].clone();
        let stream = StreamId {
            list: ListId(self.script.number(list as u64) as u16),
            x: Position(self.script.below(configuration.positions.len() + 1) as u8),
        };
        let header = Header {
            stream,
            epoch: Epoch(self.script.number(configuration.epoch.0.into()) as u32),
        };
        let to = self.script.below(self.nodes());
        let way = if self.script.below(4) == 0 && !self.strangers.is_empty() {
            let (at, link) = self.script.pick(&self.strangers);
            Some((at, link, None))
        } else {
            let from = self.script.below(self.nodes());
            let channel = if self.script.below(4) == 0 {
                Channel::Bulk
            } else {
                Channel::Main
            };
            self.cluster
                .link_between(from, to, channel)
                .map(|link| (to, link, Some(from)))
        };
        let Some((to, link, from)) = way else { return };
        let holds = |from: usize| {
            self.cluster.configurations.iter().any(|c| {
                c.positions
                    .iter()
                    .flatten()
                    .any(|a| usize::from(a.tenure.node.0) == from)
            })
        };
        let mut told = Lies {
            script: &mut self.script,
            configuration: &configuration,
            cluster: &self.cluster,
            stream,
        };
        let mut frame = Vec::new();
        let kind = told.encode(&header, &mut frame);
        if from.is_none_or(holds) || kind == peer::Kind::Stale || kind == peer::Kind::Forward {
            self.believed = true;
        }
        self.cluster.hear(to, link, &frame);
        if self.script.below(3) > 0 {
            self.cluster.pump();
        }
    }
}

/// Makes false values that are close to true ones.
struct Lies<'l, 'a> {
    script: &'l mut Script<'a>,
    configuration: &'l Configuration,
    cluster: &'l Cluster,
    stream: StreamId,
}

impl Lies<'_, '_> {
    fn term(&mut self) -> u32 {
        let right = self.configuration.tenure(self.stream.x).map_or(1, |t| t.term());
        self.script.number(right.into()) as u32
    }

    /// A sequence number near one that the stream has reached.
    fn seq(&mut self) -> u64 {
        let reached = self.cluster.processes.iter().filter_map(|process| {
            let list = process.node.replica().list(self.stream.list)?;
            let owned = list.owner(self.stream.x).map(|owner| owner.stable());
            owned.max(list.member().and_then(|member| Some(member.log(self.stream.x)?.recv)))
        });
        let reached = reached.max().unwrap_or(0);
        self.script.number(reached)
    }

    fn time(&mut self) -> Time {
        Time(self.script.number(self.cluster.now.mono.0))
    }

    fn stripe(&mut self) -> Stripe {
        let number = match self.script.below(4) {
            0 => self.script.u64() as u32 & Stripe::NUMBER_MAX,
            1 => 1 << self.script.below(22),
            _ => self.script.below(6) as u32,
        };
        if self.script.flag() {
            Stripe::data(number)
        } else {
            Stripe::index_page(number)
        }
    }

    fn version(&mut self) -> Version {
        let (term, seq) = (self.term(), self.seq());
        Version((u64::from(term) << 44) | (seq & Version::SEQ_MAX))
    }

    fn tenure(&mut self) -> Tenure {
        let places = self.configuration.positions.len();
        let held = self.configuration.tenure(Position(self.script.below(places) as u8));
        let mut told = held.unwrap_or_else(|| tenure(0, 1));
        match self.script.below(4) {
            0 => told.since = Epoch(self.script.number(told.since.0.into()) as u32),
            1 => told.incarnation = Incarnation(self.script.number(told.incarnation.0)),
            2 => told.node = NodeId(self.script.number(told.node.0.into()) as u16),
            _ => {}
        }
        told
    }

    /// Bytes of a chunk, or of another length.
    fn chunk(&mut self) -> Vec<u8> {
        let fill = self.script.byte();
        match self.script.below(6) {
            0 => Vec::new(),
            1 => self.script.bytes(64).to_vec(),
            2 => vec![fill; (16 << 10) + 1],
            3 => vec![fill; (16 << 10) - 1],
            _ => {
                let mut bytes = vec![fill; 16 << 10];
                let head = self.script.bytes(64);
                bytes[..head.len()].copy_from_slice(head);
                bytes
            }
        }
    }

    fn extents(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..self.script.below(4) {
            // Index page, free, again, same chunk, next place; a short length.
            let (stripe, flags) = (self.stripe(), self.script.byte());
            bytes.push(flags & !1 | u8::from(stripe.is_index()));
            if flags & 8 == 0 {
                varint::push(&mut bytes, u64::from(stripe.number()));
            }
            if flags & 16 == 0 {
                varint::push(&mut bytes, self.script.number(100));
            }
            let mut length = usize::from(flags >> 5);
            if length == 0 {
                length = 8 + self.script.below(32);
                varint::push(&mut bytes, length as u64 - 8);
            }
            if flags & 4 == 0 {
                varint::push(&mut bytes, self.script.number(1));
            }
            bytes.resize(bytes.len() + length, self.script.byte());
        }
        if self.script.below(8) == 0 {
            bytes.extend_from_slice(self.script.bytes(16));
        }
        bytes
    }

    fn deltas(&mut self, first: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        for at in 0..self.script.below(4) as u64 {
            let (term, extents) = (self.term(), self.extents());
            let seq = if self.script.below(8) == 0 {
                self.seq()
            } else {
                first.wrapping_add(at)
            };
            Deltas::push(&mut bytes, term, seq, &extents);
        }
        bytes
    }

    fn configuration(&mut self) -> Configuration {
        let mut told = self.configuration.clone();
        told.epoch = Epoch(self.script.number(u64::from(told.epoch.0) + 1) as u32);
        match self.script.below(10) {
            0 => told.list = ListId(self.script.number(told.list.0.into()) as u16),
            1 => told.data = self.script.byte(),
            2 => told.parity = self.script.byte(),
            3 => told.ack_quorum = self.script.byte(),
            4 => drop(told.positions.pop()),
            5 => told.born = Epoch(self.script.number(told.born.0.into()) as u32),
            6 => told.gone.push((
                NodeId(self.script.below(6) as u16),
                Incarnation(self.script.below(7) as u64),
            )),
            7 => told.lost = true,
            8 => told.slots.hand_off = self.script.flag().then(|| self.hand_off()),
            9 => {
                told.slots.version = self.script.number(told.slots.version);
                for _ in 0..self.script.below(3) {
                    let (first, last) = (self.slot(), self.slot());
                    let x = Position(self.script.below(4) as u8);
                    told.slots.ranges.push(SlotRange { first, last, x });
                }
            }
            _ => {}
        }
        if self.script.below(8) > 0 {
            // The same history, whatever the epoch: each earlier id is that of the installed configuration.
            told.trail = vec![self.configuration.id; Configuration::TRAIL_MAX];
        } else {
            told.id = self.script.number(told.id);
        }
        if !told.positions.is_empty() {
            let at = self.script.below(told.positions.len());
            let state = match self.script.below(3) {
                0 => PositionState::Live,
                1 => PositionState::Filling,
                _ => PositionState::Born,
            };
            let tenure = self.tenure();
            told.positions[at] = (self.script.below(4) > 0).then_some(Assignment { tenure, state });
        }
        told
    }

    fn slot(&mut self) -> u16 {
        self.script.number(16_383) as u16
    }

    /// The hand-off under way, a similar one, or any.
    fn hand_off(&mut self) -> HandOff {
        let lists = &self.cluster.configurations;
        let mut told = lists.iter().find_map(|c| c.slots.hand_off).unwrap_or(HandOff {
            version: 1,
            first: 0,
            last: 100,
            from: self.stream,
            to: self.stream,
        });
        match self.script.below(6) {
            0 => told.version = self.script.number(told.version),
            1 => told.first = self.slot(),
            2 => told.last = self.slot(),
            3 => told.from = self.stream,
            4 => told.to = self.stream,
            _ => {}
        }
        told
    }

    fn objects(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..self.script.below(4) {
            let key = format!("k{}", self.script.below(8));
            let mut object = ObjectRecord {
                database: self.script.below(3) as u8,
                key: key.as_bytes(),
                value: self.script.bytes(40),
                record: self.script.bytes(3),
                expiry_ms: self.script.flag().then(|| self.script.u64()),
                flags: self.script.flag().then(|| self.script.u64() as u32),
                marks: 0,
                hash_kind: self.script.below(8) == 0,
            };
            // Without bytes of the script: the inputs that are kept mean the same as before.
            object.marks = object.flags.unwrap_or(0) as u8;
            Objects::push(&mut bytes, &object);
        }
        if self.script.below(8) == 0 {
            bytes.extend_from_slice(self.script.bytes(30));
        }
        bytes
    }

    /// Encodes any message of any kind. Returns the kind.
    fn encode(&mut self, header: &Header, frame: &mut Vec<u8>) -> peer::Kind {
        // All numbers from that of `Delta` on are in use.
        let kind = peer::Kind::new(10 + self.script.below(28) as u8).unwrap();
        let (term, seq, stripe) = (self.term(), self.seq(), self.stripe());
        // Requests are numbered from 1.
        let id = self.script.below(64) as u64;
        let mut parts = Vec::new();
        let (extents, mut leases, chunk) = match kind {
            peer::Kind::Delta => (self.extents(), Vec::new(), Vec::new()),
            peer::Kind::Import => (self.objects(), Vec::new(), Vec::new()),
            peer::Kind::Sync | peer::Kind::SealReply => (self.deltas(seq.wrapping_add(1)), Vec::new(), Vec::new()),
            peer::Kind::ParityValue | peer::Kind::ChunkValue => (Vec::new(), Vec::new(), self.chunk()),
            _ => Default::default(),
        };
        let message = match kind {
            peer::Kind::Delta => Message::Delta {
                term,
                seq,
                sent: self.time(),
                stable: Behind::new(self.seq(), seq),
                extents: &extents,
            },
            peer::Kind::Ack => Message::Ack {
                term,
                recv: seq,
                lease_sent: self.time(),
            },
            peer::Kind::Stable => Message::Stable {
                term,
                stable: self.seq(),
            },
            peer::Kind::Sync => Message::Sync {
                term,
                base: seq,
                top: self
                    .script
                    .number(seq.wrapping_add(Deltas::new(&extents).iter().count() as u64)),
                deltas: Deltas::new(&extents),
            },
            peer::Kind::SyncAck => Message::SyncAck { term, recv: seq },
            peer::Kind::Alloc => {
                for _ in 0..self.script.below(4) {
                    let (stripe, version) = (self.stripe(), self.version());
                    Message::push_directory_entry(&mut parts, stripe, version);
                }
                Message::Alloc {
                    term,
                    as_of: seq,
                    entries: &parts,
                }
            }
            peer::Kind::LeaseRequest | peer::Kind::Lease => {
                for _ in 0..self.script.below(3) {
                    let entry = LeaseEntry {
                        stream: self.stream,
                        epoch: Epoch(self.script.number(header.epoch.0.into()) as u32),
                        term: self.term(),
                        stable: self.seq(),
                    };
                    Leases::push(&mut parts, &entry);
                }
                let streams = Leases::new(&parts);
                if kind == peer::Kind::Lease {
                    Message::Lease {
                        sent: self.time(),
                        streams,
                    }
                } else {
                    Message::LeaseRequest {
                        sent: self.time(),
                        streams,
                    }
                }
            }
            peer::Kind::Seal => Message::Seal,
            peer::Kind::SealReply => {
                for _ in 0..self.script.below(3) {
                    let record = LeaseRecord {
                        holder: self.tenure(),
                        remaining_ns: self.script.number(2_200_000_000),
                    };
                    record.push(&mut leases);
                }
                Message::SealReply {
                    known: self.script.below(4) > 0,
                    term,
                    recv: self
                        .script
                        .number(seq.wrapping_add(Deltas::new(&extents).iter().count() as u64)),
                    leases: &leases,
                    deltas: Deltas::new(&extents),
                }
            }
            peer::Kind::YieldQuery => Message::YieldQuery { tenure: self.tenure() },
            peer::Kind::Yielded => Message::Yielded { tenure: self.tenure() },
            peer::Kind::ReadDirectory => Message::ReadDirectory { term, at_least: seq },
            peer::Kind::Directory => {
                for _ in 0..self.script.below(5) {
                    let (stripe, version) = (self.stripe(), self.version());
                    Message::push_directory_entry(&mut parts, stripe, version);
                }
                Message::Directory {
                    term,
                    complete_for: seq,
                    entries: &parts,
                }
            }
            peer::Kind::ReadParity => Message::ReadParity { id, stripe },
            peer::Kind::ParityValue => {
                for _ in 0..self.script.number(self.configuration.data.into()).min(8) {
                    Versions::push(&mut parts, self.version());
                }
                let parity = Parity {
                    recv: seq,
                    term,
                    versions: Versions::new(&parts),
                    sum: self.script.u64() as u32,
                    bytes: &chunk,
                };
                Message::ParityValue {
                    id,
                    stripe,
                    parity: (self.script.below(8) > 0).then_some(parity),
                }
            }
            peer::Kind::ReadChunk => Message::ReadChunk {
                id,
                stripe,
                want: self.script.flag().then(|| self.version()),
            },
            peer::Kind::ChunkValue => Message::ChunkValue {
                id,
                stripe,
                status: if self.script.below(8) > 0 {
                    ChunkStatus::Here
                } else {
                    ChunkStatus::None
                },
                version: self.version(),
                sum: self.script.u64() as u32,
                as_of: self.seq(),
                term,
                found: None,
                bytes: &chunk,
            },
            peer::Kind::Hold => Message::Hold { stripe },
            peer::Kind::CreditRequest => Message::CreditRequest {
                term,
                data_end: self.stripe().number(),
                index_end: self.stripe().number(),
            },
            peer::Kind::Credit => Message::Credit {
                term,
                data_end: self.stripe().number(),
                index_end: self.stripe().number(),
                window_bytes: self.script.number(1 << 20),
            },
            peer::Kind::GetConfiguration => Message::GetConfiguration {
                tomorrow: self.script.flag(),
            },
            peer::Kind::Stale => Message::Stale {
                configuration: Box::new(self.configuration()),
            },
            peer::Kind::Forward => Message::Forward {
                conn: ConnId(self.script.below(8) as u64),
                n: self.script.below(16) as u64,
                dialect: u8::from(self.script.flag()),
                database: self.script.below(3) as u8,
                command: self.script.pick(&[
                    &b"*3\r\n$3\r\nSET\r\n$2\r\nk1\r\n$1\r\nx\r\n"[..],
                    b"*2\r\n$3\r\nGET\r\n$2\r\nk1\r\n",
                    b"*1\r\n$6\r\nDBSIZE\r\n",
                    b"*1\r\n$8\r\nFLUSHALL\r\n",
                    b"*2\r\n$13\r\nPARITAS.FLUSH\r\n$1\r\n0\r\n",
                    b"*2\r\n$4\r\nSCAN\r\n$1\r\n0\r\n",
                    b"*2\r\n$6\r\nCLIENT\r\n$2\r\nID\r\n",
                    b"*1\r\n$4\r\nQUIT\r\n",
                    b"PING\r\n",
                    b"*3\r\n$3\r\nSET\r\n",
                    b"",
                ]),
            },
            peer::Kind::Reply => Message::Reply {
                conn: ConnId(self.script.below(8) as u64),
                n: self.script.below(16) as u64,
                bytes: self.script.pick(&[
                    &b"+OK\r\n"[..],
                    b"$5\r\nv",
                    b"*2\r\n:1\r\n",
                    b"",
                    b"-ERR x\r\n",
                    b":7\r\n",
                ]),
            },
            peer::Kind::Import => Message::Import {
                version: self.hand_off().version,
                term,
                round: self.script.number(1) as u32,
                n: self.script.below(4) as u32,
                objects: Objects::new(&extents),
            },
            peer::Kind::Imported => Message::Imported {
                version: self.hand_off().version,
                term,
                round: self.script.number(1) as u32,
                n: self.script.below(4) as u32,
                status: self
                    .script
                    .pick(&[ImportStatus::Done, ImportStatus::NoRoom, ImportStatus::Unknown]),
            },
            // A body of any bytes.
            _ => {
                let covered = self.script.bytes(80);
                frame.extend(sealed(covered).unwrap_or_else(|| sealed(&[kind as u8; 16]).unwrap_or_default()));
                return peer::Kind::Stale;
            }
        };
        peer::encode(frame, header, &message);
        kind
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    random(120, 600)
}
