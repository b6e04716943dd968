//! The simulated world, the beginning and the end of a run. Its parts:
//!
//! |part|state|
//! |-|-|
//! |`schedule`|time, pending events, randomness|
//! |`network`|links, cuts of paths|
//! |`fleet`|processes, disks, the nodes' records|
//! |`committed`|what the coordinator has committed|
//! |`workload`|clients, and which commands they still give|
//! |`oracle`|what clients saw, what chunks must contain, the verdict|
//! |`governed`|in a governed run: coordinators, agents, supervisors|
//!
//! The handling of events is in `events`.

use crate::client::{self, Crowds};
use crate::committed::Committed;
use crate::disks::Disk;
use crate::events::SimEvent;
use crate::faults::Fault;
use crate::fleet::Fleet;
use crate::forks::Instant;
use crate::governed::Governed;
use crate::marks::Seen;
use crate::network::Network;
use crate::oracle::Oracle;
use crate::schedule::Schedule;
use crate::swarm::Swarm;
use crate::workload::Workload;
use paritas_base::configuration::{
    Assignment, ClusterRecord, Configuration, NodeRecord, NodeRole, NodeState, PositionState, Tenure,
};
use paritas_base::{ClusterId, Epoch, Incarnation, ListId, NodeId, Position, Sections, Span, StreamId, Time};
use paritas_code::{Code, Scheme};
use siphasher::sip::SipHasher13;

/// One run. A method of a part changes that part alone; what changes several parts is a method of the world.
pub(crate) struct World {
    pub(crate) swarm: Swarm,
    pub(crate) schedule: Schedule,
    pub(crate) network: Network,
    pub(crate) fleet: Fleet,
    pub(crate) committed: Committed,
    pub(crate) workload: Workload,
    pub(crate) oracle: Oracle,
    /// The production coordinator and what surrounds it, in a governed run.
    pub(crate) governed: Option<Box<Governed>>,
    /// Whether this is an exhaustive search: all checks after every turn, and until the end a coordinator that makes no
    /// position Live.
    pub(crate) exhaustive: bool,
}

/// Most events of a run: three hundred times the usual number. The scrub alone may make a million in 30 s.
const EVENTS_MAX: u64 = 1_500_000;

impl World {
    /// The world of a seed.
    pub(crate) fn new(seed: u64, swarm: Swarm, verbose: bool, keep_identity: bool) -> Self {
        let mut schedule = Schedule::new(seed, verbose);
        let random = &mut schedule.random;
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
        let mut one_slot = Sections::none();
        swarm.one_slot().put(&mut one_slot);
        let cluster = ClusterRecord {
            id: ClusterId(random.next_u64()),
            active_version: paritas_base::formats::HIGHEST,
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
            more: one_slot,
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
                more: Default::default(),
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
                more: Default::default(),
            };
            first.seal(None);
            first
        };
        let configurations: Vec<Configuration> = (0..swarm.stripe_lists).map(first).collect();
        let has_disk = |at: usize| swarm.disk.is_some() && swarm.disk_nodes >> at & 1 == 1;
        let disks = (0..count).map(|at| has_disk(at).then(Disk::default)).collect();
        let hasher = SipHasher13::new_with_keys(cluster.hash_key[0], cluster.hash_key[1]);
        let crowds = Crowds::new(swarm.crowds as usize, swarm.crowd_keys, |key| {
            hasher.hash(key.as_bytes())
        });
        let workload = Workload::new(&swarm, crowds);
        let mut world = Self {
            oracle: Oracle::new(Code::new(scheme), swarm.stripe_lists.into()),
            swarm,
            schedule,
            network: Network::new(),
            fleet: Fleet::new(records, disks, keep_identity),
            committed: Committed::new(cluster, configurations),
            workload,
            governed: None,
            exhaustive: false,
        };
        if world.swarm.governed {
            world.committed.clear();
            world.begin_governed();
        } else {
            for at in 0..count {
                world.start(at);
            }
        }
        for client in 0..world.workload.clients.len() {
            world.schedule.push(Span::from_ms(5), SimEvent::ClientWakes(client));
        }
        for guest in 0..world.workload.guests.len() {
            world.schedule.push(Span::from_ms(6), SimEvent::GuestWakes(guest));
        }
        if world.governed.is_none() {
            world.schedule.push(Span::from_ms(20), SimEvent::PushAll);
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
            world.schedule.plan(&world.swarm, fault);
        }
        world
    }

    pub(crate) fn violate(&mut self, what: String) {
        self.oracle.violate(&self.schedule, what);
    }

    /// Runs to the end. Returns the states at the given instants. The first broken invariant is in `violation`.
    pub(crate) fn run(&mut self, instants: &[Time]) -> Vec<Instant> {
        let chaos_end = self.schedule.began + self.swarm.chaos;
        let mut seen = Vec::new();
        while self.oracle.is_open() && self.schedule.now < chaos_end && self.step() {
            while instants.get(seen.len()).is_some_and(|at| *at <= self.schedule.now) {
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
        let deadline = self.schedule.now + Span::from_secs(timeout);
        let (mut settled, mut outgrown) = (0, false);
        while self.oracle.is_open() {
            if self.schedule.now > deadline {
                // Without parity, nothing may be written and no expired key may be read. If a data position lacks
                // memory, every key can still be read, except at a position for which Live ones have left none at all.
                // Listing keys needs all chunks of an index line at once.
                let unread = self.workload.unanswered(true).is_some();
                outgrown = self.is_outgrown(false) && (!unread || self.swarm.min_redundancy > 0)
                    || self.is_outgrown(true) && (!unread || self.is_crowded_out());
                if outgrown {
                    self.oracle.marks.see(Seen::Outgrown);
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
            if self.oracle.counts.events.is_multiple_of(64) {
                self.oracle.note_passes(&self.fleet, &self.committed);
                settled = if self.unsettled().is_none() { settled + 1 } else { 0 };
                if settled > 3 {
                    break;
                }
            }
        }
        if self.oracle.violation.is_none() {
            let checked = if let Some(excuse) = self.oracle.excused {
                self.oracle.counts.excused[excuse as usize] += 1;
                self.check_until_now()
            } else if outgrown {
                self.oracle.counts.outgrown += 1;
                self.check_others()
            } else {
                self.check_final()
            };
            if let Err(what) = checked {
                self.violate(what);
            }
        }
        for process in self.fleet.processes.iter().flatten() {
            self.oracle.marks.add(&process.out.marks);
        }
        for process in self.fleet.processes.iter().flatten() {
            let figures = process.node.figures();
            self.oracle.counts.scrubbed += figures.scrub_checked;
            self.oracle.counts.scrubbed_bad += figures.scrub_bad;
        }
        if self.oracle.violation.is_none() && self.oracle.counts.scrubbed_bad > self.oracle.counts.flips {
            let (bad, flips) = (self.oracle.counts.scrubbed_bad, self.oracle.counts.flips);
            self.violate(format!(
                "9.2: {bad} chunks were found wrong, but only {flips} bits had flipped"
            ));
        }
        self.oracle.counts.bad_sums = self
            .fleet
            .processes
            .iter()
            .flatten()
            .map(|p| p.node.replica().bad_sums())
            .sum();
        self.oracle.violation.clone()
    }

    fn events_max(&self) -> u64 {
        let times = if self.swarm.governed { 20 } else { 1 };
        EVENTS_MAX * times * u64::from(self.swarm.stripe_lists)
    }

    pub(crate) fn step(&mut self) -> bool {
        let Some((n, what)) = self.schedule.next() else {
            return false;
        };
        if self.governed.is_some() {
            self.watch_waits();
        }
        self.oracle.counts.events += 1;
        if self.oracle.counts.events > self.events_max() {
            let events = self.oracle.counts.events;
            self.violate(format!("L1: {events} events: more than a run may have"));
            return false;
        }
        self.schedule.mix(self.schedule.now.0 ^ n);
        self.happen(what);
        true
    }
}
