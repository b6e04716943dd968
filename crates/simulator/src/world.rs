//! The simulated world: processes, links between them, clients, and one queue of events in the order of time; the
//! beginning and the end of a run. The handling of events is in `events`.

use crate::client::{self, Client, Crowds};
use crate::digest::Digest;
use crate::disks::Disk;
use crate::driver::Process;
use crate::events::{Queued, SimEvent};
use crate::faults::Fault;
use crate::flips::Flip;
use crate::forks::Instant;
use crate::ghost::Ghost;
use crate::governed::Governed;
use crate::linear::Operation;
use crate::marks::{Marks, Seen};
use crate::network::Wire;
use crate::report::{Counts, Excuse, say};
use crate::swarm::Swarm;
use paritas_base::configuration::{
    Assignment, ClusterRecord, Configuration, NodeRecord, NodeRole, NodeState, PositionState, Tenure,
};
use paritas_base::{ClusterId, Epoch, Incarnation, ListId, Map, NodeId, Position, Prng, Span, StreamId, Time, map};
use paritas_code::{Code, Scheme};
use paritas_protocol::LinkId;
use siphasher::sip::SipHasher13;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// One run.
pub(crate) struct World {
    pub(crate) random: Prng,
    pub(crate) swarm: Swarm,
    pub(crate) now: Time,
    queue: BinaryHeap<Queued>,
    queued: u64,
    /// The memory of frames that have arrived, for the next ones.
    pub(crate) spare_frames: Vec<Vec<u8>>,
    pub(crate) processes: Vec<Option<Box<Process>>>,
    /// Disks of processes that do not run. `None` for nodes that are not log nodes.
    pub(crate) disks: Vec<Option<Disk>>,
    pub(crate) records: Vec<NodeRecord>,
    pub(crate) cluster: ClusterRecord,
    pub(crate) code: Code,
    pub(crate) links: Map<LinkId, Wire>,
    pub(crate) next_id: u64,
    pub(crate) blocked: Map<(usize, usize), Time>,
    /// Processes that are cut off from the coordinator, and until when.
    pub(crate) cut_off: (Vec<usize>, Time),
    /// The configuration of each stripe list, in their order.
    pub(crate) configurations: Vec<Configuration>,
    /// The ids of all configurations of each list, in order.
    pub(crate) ids: Vec<Vec<u64>>,
    /// The former holder of each position.
    pub(crate) previous: Map<(ListId, Position), NodeId>,
    pub(crate) clients: Vec<Client>,
    pub(crate) history: BTreeMap<String, Vec<Operation>>,
    /// Operations that belong to the history of every key.
    pub(crate) flushes: Vec<Operation>,
    /// The expected contents of each list.
    pub(crate) ghosts: Vec<Ghost>,
    pub(crate) next_value: i64,
    /// The number of the latest command of any client.
    pub(crate) next_command: u64,
    pub(crate) healing: bool,
    /// Keys that are still to be read once at the end.
    pub(crate) final_reads: Vec<String>,
    pub(crate) crowds: Crowds,
    /// The latest flip of a bit.
    pub(crate) flipped: Option<Flip>,
    /// For each incarnation, the number of its completed scrub passes when it was first seen to know all
    /// configurations; and the sum of their epochs at that time.
    pub(crate) passes: Vec<(Incarnation, u64, u64)>,
    pub(crate) violation: Option<String>,
    /// Violations that begin with this text are ignored.
    pub(crate) blind_to: Option<String>,
    pub(crate) counts: Counts,
    pub(crate) marks: Marks,
    trace: VecDeque<String>,
    /// Whether this is an exhaustive search: all checks after every turn, and until the end a coordinator that makes no
    /// position Live.
    pub(crate) exhaustive: bool,
    pub(crate) verbose: bool,
    hash: u64,
    /// Every frame and every reply that was sent, in order (`--digest`).
    pub(crate) sent: Digest,
    /// The mutant "restart keeps its identity" (P2.1, P10.4): a process restarts with its old incarnation.
    pub(crate) keep_identity: bool,
    /// The production coordinator and what surrounds it, in a governed run.
    pub(crate) governed: Option<Box<Governed>>,
    /// When clients and faults begin.
    pub(crate) began: Time,
    /// What follows is not checked, for this reason.
    pub(crate) excused: Option<Excuse>,
}

/// Number of lines of the trace that are kept.
const TRACE_MAX: usize = 200;
/// Most events of a run: a hundred times the usual number.
const EVENTS_MAX: u64 = 500_000;

impl World {
    /// The world of a seed.
    pub(crate) fn new(seed: u64, swarm: Swarm, verbose: bool, keep_identity: bool) -> Self {
        let mut random = Prng::new(seed ^ 0x5157_4f52_4c44);
        let width = usize::from(swarm.data + swarm.parity);
        let count = width + usize::from(swarm.spares);
        let Ok(scheme) = Scheme::new(swarm.data, swarm.parity) else {
            unreachable!("the swarm draws only valid schemes")
        };
        let streams = u32::from(swarm.stripe_lists) * u32::from(swarm.data);
        let step = u32::from(paritas_base::SLOT_COUNT) / streams;
        let slots = (0..streams)
            .map(|n| {
                let last = if n + 1 == streams {
                    paritas_base::SLOT_COUNT - 1
                } else {
                    ((n + 1) * step) as u16
                };
                let (list, x) = (n % u32::from(swarm.stripe_lists), n / u32::from(swarm.stripe_lists));
                (
                    last,
                    StreamId {
                        list: ListId(list as u16),
                        x: Position(x as u8),
                    },
                )
            })
            .collect();
        let cluster = ClusterRecord {
            id: ClusterId(random.next_u64()),
            format: 1,
            data: swarm.data,
            parity: swarm.parity,
            ack_quorum: swarm.ack_quorum,
            chunk_bytes: swarm.chunk_bytes,
            hash_key: [random.next_u64(), random.next_u64()],
            lease_ms: swarm.parameters.lease.as_ms() as u32,
            suspicion_ms: 100,
            min_redundancy: swarm.min_redundancy,
            slots,
            logged: swarm.logged,
        };
        let records: Vec<NodeRecord> = (0..count)
            .map(|i| NodeRecord {
                id: NodeId(i as u16),
                incarnation: Incarnation(random.next_u64()),
                ordinal: 1,
                domain: i.to_string(),
                role: NodeRole::Member,
                state: NodeState::Up,
                pid: 0,
                client_address: String::new(),
                cluster_address: client::address(i),
                peer_address: String::new(),
            })
            .collect();
        // Each list is shifted by one node against the one before, so that the holder of data of one list holds parity
        // of another.
        let position = |list: u16, i: usize| {
            let record = &records[(usize::from(list) + i) % count];
            let tenure = Tenure {
                node: record.id,
                incarnation: record.incarnation,
                since: Epoch(1),
            };
            Some(Assignment {
                tenure,
                state: PositionState::Born,
            })
        };
        let first = |list| {
            let mut first = Configuration {
                list: ListId(list),
                epoch: Epoch(1),
                born: Epoch(1),
                data: swarm.data,
                parity: swarm.parity,
                ack_quorum: swarm.ack_quorum,
                positions: (0..width).map(|i| position(list, i)).collect(),
                gone: Vec::new(),
                lost: false,
                slots: Default::default(),
                id: 0,
                trail: Vec::new(),
            };
            first.seal(None);
            first
        };
        let configurations: Vec<Configuration> = (0..swarm.stripe_lists).map(first).collect();
        let ghosts = (0..swarm.stripe_lists).map(|_| Ghost::new()).collect();
        let clients = (0..swarm.clients).map(|_| Client::new()).collect();
        let has_disk = |at: usize| swarm.disk.is_some() && swarm.disk_nodes >> at & 1 == 1;
        let disks = (0..count).map(|at| has_disk(at).then(Disk::default)).collect();
        let hasher = SipHasher13::new_with_keys(cluster.hash_key[0], cluster.hash_key[1]);
        let crowds = Crowds::new(swarm.crowds as usize, swarm.crowd_keys, |key| {
            hasher.hash(key.as_bytes())
        });
        let mut world = Self {
            random,
            swarm,
            now: Time(0),
            queue: BinaryHeap::new(),
            queued: 0,
            spare_frames: Vec::new(),
            processes: (0..count).map(|_| None).collect(),
            disks,
            records,
            cluster,
            code: Code::new(scheme),
            links: map(),
            next_id: 0,
            blocked: map(),
            cut_off: (Vec::new(), Time(0)),
            ids: configurations.iter().map(|c| vec![c.id]).collect(),
            configurations,
            previous: map(),
            clients,
            history: BTreeMap::new(),
            flushes: Vec::new(),
            ghosts,
            next_value: 0,
            next_command: 0,
            healing: false,
            final_reads: Vec::new(),
            crowds,
            flipped: None,
            passes: Vec::new(),
            violation: None,
            blind_to: None,
            counts: Counts::default(),
            marks: Marks::default(),
            trace: VecDeque::new(),
            exhaustive: false,
            verbose,
            hash: seed,
            sent: Digest::default(),
            keep_identity,
            governed: None,
            began: Time(0),
            excused: None,
        };
        if world.swarm.governed {
            (world.configurations, world.ids) = (Vec::new(), Vec::new());
            world.begin_governed();
        } else {
            for at in 0..count {
                world.start(at);
            }
        }
        for client in 0..world.clients.len() {
            world.push(Span::from_ms(5), SimEvent::ClientWakes(client));
        }
        if world.governed.is_none() {
            world.push(Span::from_ms(20), SimEvent::PushAll);
        }
        for fault in [
            Fault::Crash,
            Fault::Pause,
            Fault::Partition,
            Fault::Reset,
            Fault::Suspect,
            Fault::Flip,
            Fault::Move,
            Fault::HandOff,
            Fault::WallClock,
        ] {
            world.plan(fault);
        }
        world
    }

    // --- stripe lists --------------------------------------------------------------------------------------------

    pub(crate) fn lists(&self) -> impl Iterator<Item = ListId> + use<> {
        (0..self.configurations.len() as u16).map(ListId)
    }

    pub(crate) fn configuration(&self, list: ListId) -> &Configuration {
        &self.configurations[usize::from(list.0)]
    }

    /// A random list.
    pub(crate) fn any_list(&mut self) -> ListId {
        match self.configurations.len() {
            1 => ListId(0),
            count => ListId(self.random.below(count as u64) as u16),
        }
    }

    // --- queue and trace -----------------------------------------------------------------------------------------

    pub(crate) fn push(&mut self, after: Span, what: SimEvent) {
        self.push_at(self.now + after, what);
    }

    pub(crate) fn push_at(&mut self, at: Time, what: SimEvent) {
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
            say(&line);
            self.trace.push_back(line);
            if self.trace.len() > TRACE_MAX {
                self.trace.pop_front();
            }
        }
    }

    pub(crate) fn violate(&mut self, what: String) {
        let unseen = self.blind_to.as_ref().is_some_and(|name| what.starts_with(name));
        if self.violation.is_none() && !unseen {
            self.log(|| format!("VIOLATION {what}"));
            self.violation = Some(what);
        }
    }

    pub(crate) fn mix(&mut self, n: u64) {
        self.hash = (self.hash.rotate_left(5) ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// A digest of everything that happened. It is equal for two runs of one seed.
    pub(crate) fn digest(&self) -> u64 {
        self.hash ^ self.random.clone().next_u64()
    }

    /// The pending events, in the order in which they were planned.
    pub(crate) fn pending(&self) -> Vec<&Queued> {
        let mut pending: Vec<&Queued> = self.queue.iter().collect();
        pending.sort_by_key(|queued| queued.n);
        pending
    }

    /// Removes one pending event.
    pub(crate) fn take_pending(&mut self, n: u64) -> Option<SimEvent> {
        let mut queue = core::mem::take(&mut self.queue).into_vec();
        let at = queue.iter().position(|queued| queued.n == n);
        let taken = at.map(|at| queue.swap_remove(at).what);
        self.queue = queue.into();
        taken
    }

    /// Lets overdue events happen from now on.
    pub(crate) fn catch_up(&mut self) {
        let mut queue = core::mem::take(&mut self.queue).into_vec();
        for queued in &mut queue {
            queued.at = queued.at.max(self.now);
        }
        self.queue = queue.into();
    }

    // --- the run -------------------------------------------------------------------------------------------------

    /// Runs to the end. Returns the states at the given instants. The first broken invariant is in `violation`.
    pub(crate) fn run(&mut self, instants: &[Time]) -> Vec<Instant> {
        let chaos_end = self.began + self.swarm.chaos;
        let mut seen = Vec::new();
        while self.violation.is_none() && self.excused.is_none() && self.now < chaos_end && self.step() {
            while instants.get(seen.len()).is_some_and(|at| *at <= self.now) {
                seen.push(self.instant());
            }
        }
        self.heal();
        self.settle();
        seen
    }

    /// After the faults: runs until all is quiet. Returns the first broken invariant.
    pub(crate) fn settle(&mut self) -> Option<String> {
        let timeout = if self.governed.is_some() { 60 } else { 30 };
        let deadline = self.now + Span::from_secs(timeout);
        let (mut settled, mut outgrown) = (0, false);
        while self.violation.is_none() && self.excused.is_none() {
            if self.now > deadline {
                // Without parity, nothing may be written and no expired key may be read. If a data position lacks
                // memory, every key can still be read, except at a position for which Live ones have left none at all.
                // Listing keys needs all chunks of an index line at once.
                let unread = self.unanswered(true).is_some();
                outgrown = self.is_outgrown(false) && (!unread || self.swarm.min_redundancy > 0)
                    || self.is_outgrown(true) && (!unread || self.is_crowded_out());
                if outgrown {
                    self.marks.see(Seen::Outgrown);
                    break;
                }
                let why = self.unsettled().unwrap_or_default();
                self.log_status();
                self.violate(format!("L1: not quiescent {timeout} s after the last fault: {why}"));
                break;
            }
            if !self.step() {
                break;
            }
            // Quiescence is checked rarely, because the check walks over everything.
            if self.counts.events.is_multiple_of(64) {
                self.note_passes();
                settled = if self.unsettled().is_none() { settled + 1 } else { 0 };
                if settled > 3 {
                    break;
                }
            }
        }
        if self.violation.is_none() {
            let checked = if let Some(excuse) = self.excused {
                self.counts.excused[excuse as usize] += 1;
                self.check_until_now()
            } else if outgrown {
                self.counts.outgrown += 1;
                self.check_others()
            } else {
                self.check_final()
            };
            if let Err(what) = checked {
                self.violate(what);
            }
        }
        for process in self.processes.iter().flatten() {
            self.marks.add(&process.out.marks);
        }
        for process in self.processes.iter().flatten() {
            let figures = process.node.figures();
            self.counts.scrubbed += figures.scrub_checked;
            self.counts.scrubbed_bad += figures.scrub_bad;
        }
        if self.violation.is_none() && self.counts.scrubbed_bad > self.counts.flips {
            let (bad, flips) = (self.counts.scrubbed_bad, self.counts.flips);
            self.violate(format!(
                "9.2: {bad} chunks were found wrong, but only {flips} bits had flipped"
            ));
        }
        self.counts.bad_sums = self
            .processes
            .iter()
            .flatten()
            .map(|p| p.node.replica().bad_sums())
            .sum();
        self.violation.clone()
    }

    fn events_max(&self) -> u64 {
        let times = if self.swarm.governed { 20 } else { 1 };
        EVENTS_MAX * times * u64::from(self.swarm.stripe_lists)
    }

    pub(crate) fn step(&mut self) -> bool {
        let Some(Queued { at, n, what }) = self.queue.pop() else {
            return false;
        };
        self.now = at;
        if self.governed.is_some() {
            self.watch_waits();
        }
        self.counts.events += 1;
        if self.counts.events > self.events_max() {
            self.violate(format!("L1: {} events: more than a run may have", self.counts.events));
            return false;
        }
        self.mix(at.0 ^ n);
        self.happen(what);
        true
    }
}
