//! The simulated world: processes, links between them, clients, and one queue of events in time order.

use crate::client::{self, Answer, Client, Pending};
use crate::driver::Process;
use crate::ghost::Ghost;
use crate::linear::{Action, Operation, Outcome};
use crate::swarm::Swarm;
use paritas_base::configuration::{
    Assignment, ClusterRecord, Configuration, NodeRecord, NodeRole, NodeState, PositionState, Tenure,
};
use paritas_base::{
    ClusterId, ConnId, Epoch, Incarnation, ListId, Map, NodeId, Position, Prng, Span, Stream, Time, map,
};
use paritas_code::{Code, Scheme};
use paritas_protocol::{Channel, Ends, Event, Identity, LinkId, List, Node, Port, Role};
use paritas_wire::peer;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// Something that will happen.
#[derive(Debug)]
pub(crate) enum Happening {
    Timer(usize, Incarnation),
    TurnEnd(usize, Incarnation),
    Flush(usize, Incarnation),
    LinkUp {
        link: LinkId,
        at: usize,
        dialed: Option<(NodeId, Channel)>,
    },
    DialFailed {
        at: usize,
        incarnation: Incarnation,
        node: NodeId,
        channel: Channel,
    },
    LinkDown {
        link: LinkId,
        at: usize,
    },
    Frame {
        link: LinkId,
        at: usize,
        bytes: Vec<u8>,
    },
    Push {
        at: usize,
        configuration: Configuration,
    },
    Nodes {
        at: usize,
    },
    ClientWakes(usize),
    ClientUp {
        conn: ConnId,
        client: usize,
    },
    ClientSends {
        client: usize,
        conn: ConnId,
        bytes: Vec<u8>,
    },
    ClientReads {
        client: usize,
        conn: ConnId,
        bytes: Vec<u8>,
    },
    ClientLost {
        client: usize,
        conn: ConnId,
    },
    Restart(usize),
    Detect {
        at: usize,
        incarnation: Incarnation,
        certified: bool,
    },
    Chaos(Chaos),
    Replace(Position),
    PushAll,
}

/// Faults.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Chaos {
    Crash,
    Pause,
    Partition,
    Reset,
    Suspect,
}

struct Queued {
    at: Time,
    n: u64,
    what: Happening,
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        self.n == other.n
    }
}
impl Eq for Queued {}
impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Queued {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.n).cmp(&(self.at, self.n))
    }
}

#[derive(Debug)]
struct Wire {
    ends: [(usize, Incarnation); 2],
    /// When the last frame towards each end arrives: frames keep their order unless they are let overtake.
    last: [Time; 2],
}

/// What happened in a run, for the report.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Events handled.
    pub(crate) events: u64,
    /// Replies that clients got.
    pub(crate) replies: u64,
    /// Errors among them.
    pub(crate) refused: u64,
    /// Writes that may or may not have happened.
    pub(crate) uncertain: u64,
    /// Processes killed.
    pub(crate) crashes: u64,
    /// Processes stopped for a while.
    pub(crate) pauses: u64,
    /// Live processes taken for dead.
    pub(crate) suspicions: u64,
    /// Configurations committed.
    pub(crate) commits: u64,
    /// Histories too hard to check.
    pub(crate) unchecked: u64,
    /// Chunks whose sum did not match after decoding.
    pub(crate) bad_sums: u64,
}

/// One run.
pub(crate) struct World {
    pub(crate) random: Prng,
    pub(crate) swarm: Swarm,
    pub(crate) now: Time,
    queue: BinaryHeap<Queued>,
    queued: u64,
    pub(crate) processes: Vec<Option<Process>>,
    pub(crate) records: Vec<NodeRecord>,
    cluster: ClusterRecord,
    pub(crate) code: Code,
    links: Map<LinkId, Wire>,
    next_id: u64,
    blocked: Map<(usize, usize), Time>,
    pub(crate) configuration: Configuration,
    /// Who held each position before its present holder.
    pub(crate) previous: Map<Position, NodeId>,
    pub(crate) clients: Vec<Client>,
    pub(crate) history: BTreeMap<String, Vec<Operation>>,
    pub(crate) ghost: Ghost,
    next_value: i64,
    pub(crate) healing: bool,
    /// Keys still to be read once at the end.
    final_reads: Vec<String>,
    pub(crate) violation: Option<String>,
    pub(crate) counts: Counts,
    trace: VecDeque<String>,
    pub(crate) verbose: bool,
    hash: u64,
    /// The mutant "restart keeps its identity" (PROTOCOL 2.1, 10.4): the process comes back under its old name.
    keep_identity: bool,
}

/// Lines of the trace that are kept.
const TRACE_MAX: usize = 200;
const LIST: ListId = ListId(0);

impl World {
    /// The world of a seed.
    pub(crate) fn new(seed: u64, swarm: Swarm, verbose: bool, keep_identity: bool) -> Self {
        let mut random = Prng::new(seed ^ 0x5157_4f52_4c44);
        let width = usize::from(swarm.data + swarm.parity);
        let count = width + usize::from(swarm.spares);
        let Ok(scheme) = Scheme::new(swarm.data, swarm.parity) else {
            unreachable!("the swarm draws small schemes")
        };
        let step = u32::from(paritas_base::SLOT_COUNT) / u32::from(swarm.data);
        let slots = (0..swarm.data)
            .map(|x| {
                let last = if x + 1 == swarm.data {
                    paritas_base::SLOT_COUNT - 1
                } else {
                    ((u32::from(x) + 1) * step) as u16
                };
                (
                    last,
                    Stream {
                        list: LIST,
                        x: Position(x),
                    },
                )
            })
            .collect();
        let cluster = ClusterRecord {
            id: ClusterId(random.next_u64()),
            format: 1,
            data: swarm.data,
            parity: swarm.parity,
            chunk_bytes: swarm.chunk_bytes,
            hash_key: [random.next_u64(), random.next_u64()],
            lease_ms: swarm.parameters.lease.as_ms() as u32,
            suspicion_ms: 100,
            min_redundancy: swarm.min_redundancy,
            slots,
        };
        let records: Vec<NodeRecord> = (0..count)
            .map(|i| NodeRecord {
                id: NodeId(i as u16),
                incarnation: Incarnation(random.next_u64()),
                domain: i.to_string(),
                role: NodeRole::Member,
                state: NodeState::Up,
                pid: 0,
                client_address: String::new(),
                cluster_address: String::new(),
                peer_address: String::new(),
            })
            .collect();
        let positions = (0..width)
            .map(|i| {
                let tenure = Tenure {
                    node: records[i].id,
                    incarnation: records[i].incarnation,
                    since: Epoch(1),
                };
                Some(Assignment {
                    tenure,
                    state: PositionState::Live,
                })
            })
            .collect();
        let configuration = Configuration {
            list: LIST,
            epoch: Epoch(1),
            born: Epoch(1),
            data: swarm.data,
            parity: swarm.parity,
            ack_quorum: swarm.parity,
            positions,
            gone: Vec::new(),
            lost: false,
        };
        let clients = (0..swarm.clients).map(|_| Client::default()).collect();
        let mut world = Self {
            random,
            swarm,
            now: Time(0),
            queue: BinaryHeap::new(),
            queued: 0,
            processes: (0..count).map(|_| None).collect(),
            records,
            cluster,
            code: Code::new(scheme),
            links: map(),
            next_id: 0,
            blocked: map(),
            configuration,
            previous: map(),
            clients,
            history: BTreeMap::new(),
            ghost: Ghost::new(),
            next_value: 0,
            healing: false,
            final_reads: Vec::new(),
            violation: None,
            counts: Counts::default(),
            trace: VecDeque::new(),
            verbose,
            hash: seed,
            keep_identity,
        };
        for at in 0..count {
            world.start(at);
        }
        for client in 0..world.clients.len() {
            world.push(Span::from_ms(5), Happening::ClientWakes(client));
        }
        world.push(Span::from_ms(20), Happening::PushAll);
        for chaos in [
            Chaos::Crash,
            Chaos::Pause,
            Chaos::Partition,
            Chaos::Reset,
            Chaos::Suspect,
        ] {
            world.plan(chaos);
        }
        world
    }

    // --- queue and trace -----------------------------------------------------------------------------------------

    pub(crate) fn push(&mut self, after: Span, what: Happening) {
        self.push_at(self.now + after, what);
    }

    fn push_at(&mut self, at: Time, what: Happening) {
        self.queued += 1;
        self.queue.push(Queued {
            at: at.max(self.now),
            n: self.queued,
            what,
        });
    }

    pub(crate) fn log(&mut self, line: impl FnOnce() -> String) {
        if self.verbose {
            let line = format!("{:>10.3} ms  {}", self.now.0 as f64 / 1e6, line());
            println!("{line}");
            self.trace.push_back(line);
            if self.trace.len() > TRACE_MAX {
                self.trace.pop_front();
            }
        }
    }

    pub(crate) fn violate(&mut self, what: String) {
        if self.violation.is_none() {
            self.log(|| format!("VIOLATION {what}"));
            self.violation = Some(what);
        }
    }

    fn mix(&mut self, n: u64) {
        self.hash = (self.hash.rotate_left(5) ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// A digest of everything that happened: equal for two runs of one seed.
    pub(crate) fn digest(&self) -> u64 {
        self.hash
    }

    // --- the run -------------------------------------------------------------------------------------------------

    /// Runs to the end; gives the first broken invariant.
    pub(crate) fn run(&mut self) -> Option<String> {
        let chaos_end = Time(self.swarm.chaos.0);
        while self.violation.is_none() && self.now < chaos_end && self.step() {}
        self.heal();
        let deadline = self.now + Span::from_secs(30);
        let mut settled = 0;
        while self.violation.is_none() {
            if self.now > deadline {
                let why = self.unsettled().unwrap_or_default();
                self.violate(format!("L1: not quiescent 30 s after the last fault: {why}"));
                break;
            }
            if !self.step() {
                break;
            }
            // Quiescence is looked at now and then: it is a walk over everything.
            if self.counts.events.is_multiple_of(64) {
                settled = if self.unsettled().is_none() { settled + 1 } else { 0 };
                if settled > 3 {
                    break;
                }
            }
        }
        if self.violation.is_none()
            && let Err(what) = self.check_final()
        {
            self.violate(what);
        }
        self.counts.bad_sums = self.processes.iter().flatten().map(|p| p.node.bad_sums()).sum();
        self.violation.clone()
    }

    fn step(&mut self) -> bool {
        let Some(Queued { at, n, what }) = self.queue.pop() else {
            return false;
        };
        self.now = at;
        self.counts.events += 1;
        self.mix(at.0 ^ n);
        self.happen(what);
        true
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Timer(at, incarnation) => {
                let now = self.now;
                let Some(process) = self.alive(at, incarnation).filter(|p| p.timer_at == Some(now)) else {
                    return;
                };
                process.timer_at = None;
                if process.paused_until > now {
                    let until = process.paused_until;
                    process.timer_at = Some(until);
                    self.push_at(until, Happening::Timer(at, incarnation));
                    return;
                }
                self.turn(at, incarnation, Event::Timer, || Happening::Timer(at, incarnation));
            }
            Happening::TurnEnd(at, incarnation) => {
                if self.alive(at, incarnation).is_some_and(|p| p.turn_open) {
                    if self.is_paused(at) {
                        let until = self.processes[at].as_ref().map_or(self.now, |p| p.paused_until);
                        self.push_at(until, Happening::TurnEnd(at, incarnation));
                    } else {
                        self.end_turn(at, incarnation);
                    }
                }
            }
            Happening::Flush(at, incarnation) => {
                if self.alive(at, incarnation).is_some() {
                    self.flush(at);
                }
            }
            Happening::LinkUp { link, at, dialed } => {
                let Some(incarnation) = self.end_of(link, at) else {
                    // It broke before this end had it: to a dialer that is a dial that failed.
                    if let (Some((node, channel)), Some(process)) = (dialed, self.processes[at].as_ref()) {
                        let incarnation = process.incarnation;
                        self.push(
                            Span(1),
                            Happening::DialFailed {
                                at,
                                incarnation,
                                node,
                                channel,
                            },
                        );
                    }
                    return;
                };
                if let Some(process) = self.alive(at, incarnation) {
                    process.out.links.entry(link).or_default();
                    self.turn(at, incarnation, Event::LinkUp { link, dialed }, || Happening::LinkUp {
                        link,
                        at,
                        dialed,
                    });
                }
            }
            Happening::DialFailed {
                at,
                incarnation,
                node,
                channel,
            } => {
                if self.alive(at, incarnation).is_some() {
                    let again = || Happening::DialFailed {
                        at,
                        incarnation,
                        node,
                        channel,
                    };
                    self.turn(at, incarnation, Event::DialFailed { node, channel }, again);
                }
            }
            Happening::LinkDown { link, at } => {
                let Some(process) = self.processes[at].as_mut() else {
                    return;
                };
                let incarnation = process.incarnation;
                process.out.forget(link);
                self.turn(at, incarnation, Event::LinkDown { link }, || Happening::LinkDown {
                    link,
                    at,
                });
            }
            Happening::Frame { link, at, bytes } => {
                let Some(incarnation) = self.end_of(link, at) else {
                    return;
                };
                if self
                    .alive(at, incarnation)
                    .is_some_and(|p| p.out.links.contains_key(&link))
                {
                    let copy = if self.is_paused(at) { bytes.clone() } else { Vec::new() };
                    let again = || Happening::Frame { link, at, bytes: copy };
                    self.turn(at, incarnation, Event::Frame { link, bytes: &bytes }, again);
                }
            }
            Happening::Push { at, configuration } => {
                let Some(incarnation) = self.processes[at].as_ref().map(|p| p.incarnation) else {
                    return;
                };
                let copy = configuration.clone();
                let again = || Happening::Push {
                    at,
                    configuration: copy,
                };
                self.turn(at, incarnation, Event::Configuration(&configuration), again);
            }
            Happening::Nodes { at } => {
                let Some(incarnation) = self.processes[at].as_ref().map(|p| p.incarnation) else {
                    return;
                };
                let records = self.records.clone();
                self.turn(at, incarnation, Event::Nodes(&records), || Happening::Nodes { at });
            }
            Happening::ClientWakes(client) => self.client_wakes(client),
            Happening::ClientUp { client, conn } => self.client_up(client, conn),
            Happening::ClientSends { client, conn, bytes } => self.client_sends(client, conn, bytes),
            Happening::ClientReads { client, conn, bytes } => self.client_reads(client, conn, &bytes),
            Happening::ClientLost { client, conn } => self.client_lost(client, conn),
            Happening::Restart(at) => self.start(at),
            Happening::Detect {
                at,
                incarnation,
                certified,
            } => self.detect(at, incarnation, certified),
            Happening::Chaos(chaos) => {
                if !self.healing {
                    self.strike(chaos);
                    self.plan(chaos);
                }
            }
            Happening::Replace(position) => {
                if !self.healing {
                    self.replace_again(position);
                }
            }
            Happening::PushAll => {
                // While faults go on, pushes are late and lost like anything else: nodes must tell each other.
                for at in 0..self.processes.len() {
                    if self.healing || !self.random.chance(500_000 + self.swarm.push_drop) {
                        let configuration = self.configuration.clone();
                        self.push(Span(0), Happening::Push { at, configuration });
                        self.push(Span(0), Happening::Nodes { at });
                    }
                }
                self.fill_vacancies();
                let wait = if self.healing { 50 } else { self.random.between(20, 300) };
                self.push(Span::from_ms(wait), Happening::PushAll);
            }
        }
    }

    fn alive(&mut self, at: usize, incarnation: Incarnation) -> Option<&mut Process> {
        self.processes[at].as_mut().filter(|p| p.incarnation == incarnation)
    }

    fn end_of(&self, link: LinkId, at: usize) -> Option<Incarnation> {
        self.links
            .get(&link)?
            .ends
            .iter()
            .find(|(i, _)| *i == at)
            .map(|(_, incarnation)| *incarnation)
    }

    fn is_paused(&self, at: usize) -> bool {
        self.processes[at].as_ref().is_some_and(|p| p.paused_until > self.now)
    }

    /// Gives a process one event, unless it is stopped: then the event waits.
    fn turn(&mut self, at: usize, incarnation: Incarnation, event: Event<'_>, again: impl FnOnce() -> Happening) {
        let now = self.now;
        let Some(process) = self.processes[at].as_mut().filter(|p| p.incarnation == incarnation) else {
            return;
        };
        if process.paused_until > now {
            let until = process.paused_until;
            self.push_at(until, again());
            return;
        }
        if self.verbose {
            let text = match &event {
                Event::Frame { bytes, .. } => peer::decode(bytes)
                    .map_or_else(|e| e.to_string(), |(h, m)| format!("{} e{} {m:?}", h.stream, h.epoch.0)),
                Event::Configuration(c) => describe(c),
                other => format!("{other:?}"),
            };
            self.log(|| format!("n{at} <- {}", text.chars().take(260).collect::<String>()));
        }
        let Some(process) = self.processes[at].as_mut() else {
            return;
        };
        let clock = process.clock(now);
        process.node.on(clock, event, &mut process.out);
        // A driver gives many events before it ends the turn and writes.
        if process.turn_open {
            return;
        }
        if !self.healing && self.random.chance(self.swarm.batch) {
            let wait = Span(self.random.below(400_000));
            if let Some(process) = self.processes[at].as_mut() {
                process.turn_open = true;
            }
            self.push(wait, Happening::TurnEnd(at, incarnation));
            return;
        }
        self.end_turn(at, incarnation);
    }

    fn end_turn(&mut self, at: usize, incarnation: Incarnation) {
        let now = self.now;
        let Some(process) = self.processes[at].as_mut() else {
            return;
        };
        process.turn_open = false;
        let clock = process.clock(now);
        process.node.on(clock, Event::TurnEnd, &mut process.out);
        self.feed_resumed(at);
        self.after_turn(at);
        let Some(process) = self.processes[at].as_mut() else {
            return;
        };
        // Between the machine's turn and the driver's writes the process may be stopped.
        if !self.healing && self.swarm.pause_every.0 > 0 && self.random.chance(2_000) {
            let pause = Span(self.random.below(3 * self.swarm.parameters.lease.0));
            process.paused_until = now + pause;
            process.unflushed = true;
            self.counts.pauses += 1;
            self.log(|| format!("n{at} pauses before writing for {} ms", pause.as_ms()));
            self.push(pause, Happening::Flush(at, incarnation));
        } else {
            self.flush(at);
        }
    }

    /// Clients whose stall is over have their input looked at again, in this turn or soon after.
    fn feed_resumed(&mut self, at: usize) {
        let now = self.now;
        for _ in 0..4 {
            let Some(process) = self.processes[at].as_mut() else {
                return;
            };
            let ready = process.ready_inputs();
            if ready.is_empty() {
                return;
            }
            let clock = process.clock(now);
            for conn in ready {
                let input = process.inputs.get(&conn).cloned().unwrap_or_default();
                process
                    .node
                    .on(clock, Event::Client { conn, bytes: &input }, &mut process.out);
                if let (Some(buffer), Some(input)) = (process.out.clients.get_mut(&conn), process.inputs.get_mut(&conn))
                {
                    input.drain(..core::mem::take(&mut buffer.consumed));
                }
            }
            process.node.on(clock, Event::TurnEnd, &mut process.out);
        }
        let Some(process) = self.processes[at].as_mut() else {
            return;
        };
        if !process.ready_inputs().is_empty() {
            let soon = now + Span::from_us(50);
            process.timer_at = Some(soon);
            let incarnation = process.incarnation;
            self.push_at(soon, Happening::Timer(at, incarnation));
        }
    }

    /// Writes what a process has ready, as the driver does: with a fresh look at the clock.
    fn flush(&mut self, at: usize) {
        let Some(mut process) = self.processes[at].take() else {
            return;
        };
        process.unflushed = false;
        let fresh = process.clock(self.now).mono;
        let mut links: Vec<LinkId> = process.out.links.keys().copied().collect();
        links.sort();
        for link in links {
            let Some(buffer) = process.out.links.get_mut(&link) else {
                continue;
            };
            let bytes = core::mem::take(&mut buffer.bytes);
            if buffer.deadline.take().is_some_and(|d| fresh >= d) {
                process.out.forget(link);
                self.break_link(link);
                continue;
            }
            self.send_frames(at, link, &bytes);
        }
        let mut conns: Vec<ConnId> = process.out.clients.keys().copied().collect();
        conns.sort();
        for conn in conns {
            let Some(buffer) = process.out.clients.get_mut(&conn) else {
                continue;
            };
            let client = self
                .clients
                .iter()
                .position(|c| c.conn.is_some_and(|(_, _, id)| id == conn));
            if buffer.deadline.take().is_some_and(|d| fresh >= d) || client.is_none() {
                process.out.clients.remove(&conn);
                process.inputs.remove(&conn);
                let clock = process.clock(self.now);
                process.node.on(clock, Event::ClientDown { conn }, &mut process.out);
                if let Some(client) = client {
                    self.push(Span::from_us(200), Happening::ClientLost { client, conn });
                }
                continue;
            }
            let released = core::mem::take(&mut buffer.released);
            let bytes: Vec<u8> = buffer.bytes.drain(..released).collect();
            let close = buffer.close;
            let Some(client) = client else { continue };
            let delay = self.delay();
            let arrives = (self.now + delay).max(self.clients[client].last + Span(1));
            self.clients[client].last = arrives;
            if !bytes.is_empty() {
                self.push_at(arrives, Happening::ClientReads { client, conn, bytes });
            }
            if close {
                self.push_at(arrives + Span(1), Happening::ClientLost { client, conn });
            }
        }
        for link in core::mem::take(&mut process.out.closed) {
            self.break_link(link);
        }
        for (node, channel) in core::mem::take(&mut process.out.dials) {
            self.dial(at, process.incarnation, node, channel);
        }
        for proposal in core::mem::take(&mut process.out.proposals) {
            self.on_proposal(at, proposal);
        }
        if let Some(reason) = process.out.halted.take() {
            self.violate(format!("n{at} halts: {reason}"));
        }
        if let Some(local) = process.node.next_deadline() {
            let due = process.true_time(local).max(self.now + Span(1_000));
            if process.timer_at.is_none_or(|t| due < t) {
                process.timer_at = Some(due);
                self.push_at(due, Happening::Timer(at, process.incarnation));
            }
        }
        self.processes[at] = Some(process);
    }

    // --- network -------------------------------------------------------------------------------------------------

    fn delay(&mut self) -> Span {
        let usual = Span(self.random.between(20_000, self.swarm.delay_max.0.max(20_001)));
        if !self.healing && self.random.chance(self.swarm.slow) {
            Span(usual.0 * self.random.between(2, 20))
        } else {
            usual
        }
    }

    fn is_blocked(&self, from: usize, to: usize) -> bool {
        self.blocked.get(&(from, to)).is_some_and(|until| *until > self.now)
    }

    fn dial(&mut self, at: usize, incarnation: Incarnation, node: NodeId, channel: Channel) {
        let to = usize::from(node.0);
        let delay = self.delay();
        let target = self.processes.get(to).and_then(Option::as_ref).map(|p| p.incarnation);
        let open = !self.is_blocked(at, to) && !self.is_blocked(to, at);
        match target.filter(|_| open) {
            Some(other) => {
                self.next_id += 1;
                let link = LinkId(self.next_id);
                self.links.insert(
                    link,
                    Wire {
                        ends: [(at, incarnation), (to, other)],
                        last: [Time(0); 2],
                    },
                );
                self.push(
                    delay,
                    Happening::LinkUp {
                        link,
                        at: to,
                        dialed: None,
                    },
                );
                self.push(
                    delay,
                    Happening::LinkUp {
                        link,
                        at,
                        dialed: Some((node, channel)),
                    },
                );
            }
            None => self.push(
                delay,
                Happening::DialFailed {
                    at,
                    incarnation,
                    node,
                    channel,
                },
            ),
        }
    }

    fn send_frames(&mut self, from: usize, link: LinkId, mut bytes: &[u8]) {
        while let Ok(Some(length)) = peer::split(bytes) {
            let (frame, rest) = bytes.split_at(length);
            bytes = rest;
            let Some(wire) = self.links.get(&link) else { return };
            let to_end = usize::from(wire.ends[0].0 == from);
            let (to, _) = wire.ends[to_end];
            // A handshake is lost only with its link, and a command is never repeated: TCP gives that much.
            let kind = frame.get(8).copied().unwrap_or_default();
            let hello = kind == peer::kind::HELLO;
            let once = hello || kind == peer::kind::FORWARD || kind == peer::kind::REPLY;
            let blocked = self.is_blocked(from, to);
            if blocked && hello {
                self.break_link(link);
                return;
            }
            if blocked || (!self.healing && !hello && self.random.chance(self.swarm.drop)) {
                self.log(|| format!("lost: n{from} -> n{to}, kind {kind}"));
                continue;
            }
            let copies = if !once && !self.healing && self.random.chance(self.swarm.duplicate) {
                2
            } else {
                1
            };
            for copy in 0..copies {
                let mut delay = self.delay();
                let mut overtakes = !once && !self.healing && self.random.chance(self.swarm.reorder);
                if copy > 0 && self.random.chance(300_000) {
                    // A copy out of the past: whatever it says may long be history.
                    delay = delay + Span(self.random.below(150_000_000));
                    overtakes = true;
                }
                let mut arrives = self.now + delay;
                if let Some(wire) = self.links.get_mut(&link)
                    && !overtakes
                {
                    arrives = arrives.max(wire.last[to_end] + Span(1));
                    wire.last[to_end] = arrives;
                }
                self.push_at(
                    arrives,
                    Happening::Frame {
                        link,
                        at: to,
                        bytes: frame.to_vec(),
                    },
                );
            }
        }
    }

    pub(crate) fn break_link(&mut self, link: LinkId) {
        let Some(wire) = self.links.remove(&link) else { return };
        for (at, incarnation) in wire.ends {
            if self.processes[at].as_ref().is_none_or(|p| p.incarnation == incarnation) {
                let delay = self.delay();
                self.push(delay, Happening::LinkDown { link, at });
            }
        }
    }

    // --- processes -----------------------------------------------------------------------------------------------

    fn start(&mut self, at: usize) {
        if self.processes[at].is_some() {
            return;
        }
        if self.now > Time(0) && !self.keep_identity {
            self.records[at].incarnation = Incarnation(self.random.next_u64());
        }
        self.records[at].state = NodeState::Up;
        let identity = Identity {
            node: self.records[at].id,
            incarnation: self.records[at].incarnation,
            cluster: self.cluster.clone(),
            seed: self.random.next_u64(),
            maxmemory_bytes: self.swarm.maxmemory_bytes,
        };
        let node = Node::new(identity, self.swarm.parameters.clone());
        let rate = 1_000_000 + self.random.between(0, 2 * self.swarm.drift_ppm) - self.swarm.drift_ppm;
        let offset = self.random.below(1 << 40);
        self.processes[at] = Some(Process::new(node, rate, offset));
        self.log(|| format!("n{at} starts"));
        for other in 0..self.processes.len() {
            let delay = self.delay();
            self.push(delay, Happening::Nodes { at: other });
        }
        let configuration = self.configuration.clone();
        let delay = self.delay();
        self.push(delay, Happening::Push { at, configuration });
    }

    pub(crate) fn kill(&mut self, at: usize) {
        if self.processes[at].take().is_none() {
            return;
        }
        self.counts.crashes += 1;
        let incarnation = self.records[at].incarnation;
        self.log(|| format!("n{at} crashes"));
        let mut links: Vec<LinkId> = self
            .links
            .iter()
            .filter(|(_, w)| w.ends.contains(&(at, incarnation)))
            .map(|(l, _)| *l)
            .collect();
        links.sort();
        for link in links {
            self.break_link(link);
        }
        for client in 0..self.clients.len() {
            if let Some((node, life, conn)) = self.clients[client].conn
                && usize::from(node.0) == at
                && life == incarnation
            {
                self.push(Span::from_us(300), Happening::ClientLost { client, conn });
            }
        }
        let certified = self.random.chance(self.swarm.certified);
        let detected = Span(self.random.between(1_000_000, 150_000_000));
        let restart = Span(self.random.between(1_000_000, 200_000_000));
        if !self.keep_identity {
            self.push(
                detected,
                Happening::Detect {
                    at,
                    incarnation,
                    certified,
                },
            );
        }
        self.push(restart, Happening::Restart(at));
    }

    fn plan(&mut self, chaos: Chaos) {
        let mean = match chaos {
            Chaos::Crash => self.swarm.crash_every,
            Chaos::Pause => self.swarm.pause_every,
            Chaos::Partition => self.swarm.partition_every,
            Chaos::Reset => self.swarm.reset_every,
            Chaos::Suspect => self.swarm.suspect_every,
        };
        if mean.0 > 0 {
            let after = Span(self.random.below(2 * mean.0));
            self.push(after, Happening::Chaos(chaos));
        }
    }

    fn strike(&mut self, chaos: Chaos) {
        let count = self.processes.len() as u64;
        match chaos {
            Chaos::Crash => {
                let at = self.random.below(count) as usize;
                if self.processes[at].is_some() && self.may_lose(at) {
                    self.kill(at);
                }
            }
            Chaos::Pause => {
                let at = self.random.below(count) as usize;
                let pause = Span(self.random.below(4 * self.swarm.parameters.lease.0));
                let until = self.now + pause;
                if let Some(process) = self.processes[at].as_mut()
                    && !process.unflushed
                {
                    process.paused_until = until;
                    self.counts.pauses += 1;
                    self.log(|| format!("n{at} pauses for {} ms", pause.as_ms()));
                }
            }
            Chaos::Partition => {
                let (a, b) = (self.random.below(count) as usize, self.random.below(count) as usize);
                let until = self.now + Span(self.random.below(4 * self.swarm.parameters.lease.0));
                self.blocked.insert((a, b), until);
                if self.random.chance(600_000) {
                    self.blocked.insert((b, a), until);
                }
                self.log(|| format!("partition n{a} -> n{b} until {} ms", until.0 / 1_000_000));
            }
            Chaos::Reset => {
                let mut links: Vec<LinkId> = self.links.keys().copied().collect();
                links.sort();
                if !links.is_empty() {
                    let link = *self.random.pick(&links);
                    self.log(|| format!("link {link:?} breaks"));
                    self.break_link(link);
                }
            }
            Chaos::Suspect => self.suspect(),
        }
    }

    /// The end of all faults: everyone runs, everyone reaches everyone.
    fn heal(&mut self) {
        self.healing = true;
        self.log(|| "faults end".into());
        self.blocked.clear();
        let now = self.now;
        for process in self.processes.iter_mut().flatten() {
            if !process.unflushed {
                process.paused_until = now;
            }
        }
        for at in 0..self.processes.len() {
            if self.processes[at].is_none() {
                self.push(Span::from_ms(1), Happening::Restart(at));
            }
        }
        self.final_reads = self.history.keys().cloned().collect();
    }

    // --- clients -------------------------------------------------------------------------------------------------

    fn client_wakes(&mut self, client: usize) {
        if self.clients[client].conn.is_none() {
            let alive: Vec<usize> = (0..self.processes.len())
                .filter(|i| self.processes[*i].is_some())
                .collect();
            if alive.is_empty() {
                self.push(Span::from_ms(5), Happening::ClientWakes(client));
                return;
            }
            let at = *self.random.pick(&alive);
            self.next_id += 1;
            let incarnation = self.records[at].incarnation;
            let conn = ConnId(self.next_id);
            self.clients[client].conn = Some((NodeId(at as u16), incarnation, conn));
            self.clients[client].received.clear();
            self.clients[client].up = false;
            let delay = self.delay();
            self.push(delay, Happening::ClientUp { client, conn });
            return;
        }
        if !self.clients[client].pending.is_empty() || !self.clients[client].up {
            return;
        }
        let Some((_, _, conn)) = self.clients[client].conn else {
            return;
        };
        let mut bytes = Vec::new();
        let count = self.random.between(1, self.swarm.pipeline_max);
        for _ in 0..count {
            let Some((key, action)) = self.next_command() else {
                break;
            };
            bytes.extend(client::encode(&key, action));
            self.clients[client].pending.push_back(Pending {
                key,
                action,
                begin: self.now,
            });
        }
        if !bytes.is_empty() {
            let delay = self.delay();
            self.push(delay, Happening::ClientSends { client, conn, bytes });
        } else if !self.healing || !self.final_reads.is_empty() {
            self.push(Span::from_ms(3), Happening::ClientWakes(client));
        }
    }

    fn next_command(&mut self) -> Option<(String, Action)> {
        if self.healing {
            return self.final_reads.pop().map(|key| (key, Action::Get));
        }
        if self.swarm.filler_keys > 0 && self.random.chance(300_000) {
            self.swarm.filler_keys -= 1;
            self.next_value += 1000;
            return Some((
                format!("filler:{}", self.swarm.filler_keys),
                Action::Set(self.next_value),
            ));
        }
        let key = format!("k{}", self.random.below(self.swarm.keys));
        if self
            .history
            .get(&key)
            .is_some_and(|h| h.len() >= crate::linear::OPERATIONS_MAX - 24)
        {
            return None;
        }
        let action = match self.random.below(10) {
            0..4 => Action::Get,
            4..7 => {
                self.next_value += 1000;
                Action::Set(self.next_value)
            }
            7..9 => Action::Increment,
            _ => Action::Delete,
        };
        Some((key, action))
    }

    fn client_up(&mut self, client: usize, conn: ConnId) {
        let Some((node, incarnation, current)) = self.clients[client].conn else {
            return;
        };
        if current != conn {
            return;
        }
        let at = usize::from(node.0);
        if self.is_paused(at) {
            let until = self.processes[at].as_ref().map_or(self.now, |p| p.paused_until);
            self.push_at(until, Happening::ClientUp { client, conn });
            return;
        }
        let Some(process) = self.alive(at, incarnation) else {
            self.client_lost(client, conn);
            return;
        };
        process.out.clients.insert(conn, Default::default());
        process.inputs.insert(conn, Vec::new());
        self.clients[client].up = true;
        let ends = Ends {
            client: ([0; 4], 0).into(),
            server: ([0; 4], 0).into(),
        };
        let port = Port::Any;
        self.turn(at, incarnation, Event::ClientUp { conn, port, ends }, || {
            Happening::ClientUp { client, conn }
        });
        self.push(Span(0), Happening::ClientWakes(client));
    }

    fn client_sends(&mut self, client: usize, conn: ConnId, bytes: Vec<u8>) {
        let Some((node, incarnation, current)) = self.clients[client].conn else {
            return;
        };
        if current != conn {
            return;
        }
        let at = usize::from(node.0);
        if self.is_paused(at) {
            let until = self.processes[at].as_ref().map_or(self.now, |p| p.paused_until);
            self.push_at(until, Happening::ClientSends { client, conn, bytes });
            return;
        }
        let Some(process) = self.alive(at, incarnation) else {
            return;
        };
        if let Some(input) = process.inputs.get_mut(&conn) {
            input.extend_from_slice(&bytes);
            // The input is looked at in this turn.
            self.turn(at, incarnation, Event::Timer, || Happening::ClientSends {
                client,
                conn,
                bytes,
            });
        }
    }

    fn client_reads(&mut self, client: usize, conn: ConnId, bytes: &[u8]) {
        if self.clients[client].conn.is_none_or(|(_, _, current)| current != conn) {
            return;
        }
        self.clients[client].received.extend_from_slice(bytes);
        loop {
            match client::take_answer(&mut self.clients[client].received) {
                Err(what) => return self.violate(format!("I14: {what}")),
                Ok(None) => break,
                Ok(Some(answer)) => {
                    let Some(pending) = self.clients[client].pending.pop_front() else {
                        return self.violate(format!("I14: a reply to nothing: {answer:?}"));
                    };
                    self.log(|| format!("client {client}: {} {:?} = {answer:?}", pending.key, pending.action));
                    self.record(&pending, answer);
                }
            }
        }
        if self.clients[client].pending.is_empty() {
            let think = Span(self.random.below(3_000_000));
            self.push(think, Happening::ClientWakes(client));
        }
    }

    fn record(&mut self, pending: &Pending, answer: Answer) {
        self.counts.replies += 1;
        self.mix(self.counts.replies);
        let outcome = match answer {
            Answer::Refused(text) => {
                let known = ["-TRYAGAIN", "-CLUSTERDOWN", "-NOREPLICAS", "-OOM"];
                if !known.iter().any(|k| text.starts_with(k)) {
                    self.violate(format!(
                        "I14: {} {:?} was refused with {text}",
                        pending.key, pending.action
                    ));
                }
                self.counts.refused += 1;
                if self.healing && matches!(pending.action, Action::Get) {
                    self.final_reads.push(pending.key.clone());
                }
                return;
            }
            Answer::Uncertain => {
                self.counts.uncertain += 1;
                Outcome::Unknown
            }
            Answer::Outcome(outcome) => outcome,
        };
        let operation = Operation {
            begin: pending.begin,
            end: self.now,
            action: pending.action,
            outcome,
        };
        self.history.entry(pending.key.clone()).or_default().push(operation);
    }

    fn client_lost(&mut self, client: usize, conn: ConnId) {
        if self.clients[client].conn.is_none_or(|(_, _, current)| current != conn) {
            return;
        }
        self.clients[client].conn = None;
        for pending in core::mem::take(&mut self.clients[client].pending) {
            if pending.action == Action::Get {
                if self.healing {
                    self.final_reads.push(pending.key);
                }
                continue;
            }
            self.record(&pending, Answer::Uncertain);
        }
        self.push(Span::from_ms(2), Happening::ClientWakes(client));
    }

    /// What is still going on, if anything (I12).
    fn unsettled(&self) -> Option<String> {
        if !self.final_reads.is_empty() {
            return Some(format!("{} keys are not read back", self.final_reads.len()));
        }
        if let Some(process) = self.processes.iter().flatten().find(|p| p.turn_open || p.unflushed) {
            return Some(format!("{} is in the middle of a turn", process.id));
        }
        for (i, client) in self.clients.iter().enumerate() {
            if let Some(pending) = client.pending.front() {
                return Some(format!("L2: client {i} waits for {pending:?}"));
            }
        }
        for (i, position) in self.configuration.positions.iter().enumerate() {
            let Some(a) = position else {
                return Some(format!("position {i} is vacant"));
            };
            if a.state != PositionState::Live {
                return Some(format!("position {i} is Filling at {}", a.tenure.node));
            }
            let at = usize::from(a.tenure.node.0);
            let list = self.processes[at].as_ref().and_then(|p| p.node.list(LIST));
            match list {
                Some(List { configuration, role }) if configuration.epoch == self.configuration.epoch => match role {
                    Role::Owner(owner) => {
                        if owner.seq() != owner.stable() {
                            return Some(format!(
                                "position {i} has seq {} and stable {}",
                                owner.seq(),
                                owner.stable()
                            ));
                        }
                        if !owner.is_whole() {
                            return Some(format!("position {i} is Live and not whole"));
                        }
                    }
                    Role::Member(member) => {
                        for x in self.configuration.data_positions() {
                            let held = member.log(x).map_or(0, |l| l.ring.bytes());
                            if held > 0 {
                                return Some(format!("position {i} holds {held} B of raw deltas of stream {}", x.0));
                            }
                        }
                    }
                    Role::None => return Some(format!("position {i} has no role")),
                },
                _ => return Some(format!("position {i} has not heard of the configuration")),
            }
        }
        None
    }
}

/// A configuration in a line.
pub(crate) fn describe(c: &Configuration) -> String {
    let positions: Vec<String> = c
        .positions
        .iter()
        .map(|p| match p {
            None => "-".into(),
            Some(a) => {
                let state = if a.state == PositionState::Live { "" } else { "?" };
                format!("{}@{}{state}", a.tenure.node, a.tenure.since.0)
            }
        })
        .collect();
    format!(
        "configuration {} [{}] gone {}",
        c.epoch.0,
        positions.join(" "),
        c.gone.len()
    )
}
