//! Governed runs: the coordinator that ships, on its real records in a store in memory, decides; each process has the
//! agent that ships, and they exchange the real control messages (P10). The other runs have the coordinator of
//! `coordinator`, which knows who lives.

mod latest;
mod leavers;
mod lines;
mod seats;
mod store;
mod strays;
mod trouble;
mod truth;
mod upgrade;
mod waits;

use crate::client;
use crate::ghost::Ghost;
use crate::swarm::Swarm;
use crate::world::World;
use lines::Lines;
use paritas_base::configuration::{Configuration, NodeRecord, Tenure};
use paritas_base::{Clock, ClusterId, Incarnation, ListId, Position, Prng, Span, Time};
use paritas_control::rights::Speaker;
use paritas_control::{Adoption, ClusterPlan, Coordinator, CoordinatorEvent, CoordinatorOut, Note, Progress};
use paritas_protocol::{LinkId, Proposal};
use seats::Seat;
use store::SharedStore;
use trouble::{Trouble, Troubles};

/// What happens between the coordinator, agents and supervisors.
#[derive(Debug)]
pub(crate) enum Control {
    /// The agent's deadline, or it is time to tell it how its shard is.
    AgentTimer {
        at: usize,
        incarnation: Incarnation,
        due: Time,
    },
    /// A dial has succeeded, or not.
    Dialed {
        at: usize,
        incarnation: Incarnation,
        link: LinkId,
        up: bool,
    },
    ToAgent {
        at: usize,
        incarnation: Incarnation,
        link: LinkId,
        bytes: Vec<u8>,
    },
    AgentDown {
        at: usize,
        incarnation: Incarnation,
        link: LinkId,
    },
    /// The shard asks its agent.
    Proposal {
        at: usize,
        incarnation: Incarnation,
        proposal: Box<Proposal>,
    },
    /// The agent tells its shard.
    AgentMessage {
        at: usize,
        incarnation: Incarnation,
        message: ControlMessage,
    },
    Accepted {
        host: usize,
        reign: u64,
        link: LinkId,
    },
    ToCoordinator {
        host: usize,
        reign: u64,
        link: LinkId,
        by: Speaker,
        bytes: Vec<u8>,
    },
    CoordinatorDown {
        host: usize,
        reign: u64,
        link: LinkId,
    },
    CoordinatorTimer {
        host: usize,
        reign: u64,
        due: Time,
    },
    Trouble(Trouble),
    Supervisor {
        at: usize,
    },
    ToSupervisor {
        at: usize,
        link: LinkId,
        bytes: Vec<u8>,
    },
    /// The shard of a process that may end has stopped.
    ShardStopped {
        at: usize,
        incarnation: Incarnation,
    },
    /// The supervisor has seen a process end.
    Exited {
        at: usize,
        incarnation: Incarnation,
    },
}

impl Control {
    /// The place and the incarnation of the process that this is for, if it is for the agent or the shard of one.
    pub(crate) fn agent(&self) -> Option<(usize, Incarnation)> {
        match self {
            Self::AgentTimer { at, incarnation, .. }
            | Self::Dialed { at, incarnation, .. }
            | Self::ToAgent { at, incarnation, .. }
            | Self::AgentDown { at, incarnation, .. }
            | Self::Proposal { at, incarnation, .. }
            | Self::AgentMessage { at, incarnation, .. }
            | Self::ShardStopped { at, incarnation } => Some((*at, *incarnation)),
            _ => None,
        }
    }
}

/// What an agent tells its shard.
#[derive(Clone, Debug)]
pub(crate) enum ControlMessage {
    Configuration(Box<Configuration>),
    Nodes(Vec<NodeRecord>),
    ActiveVersion(u16),
    Drain {
        list: ListId,
        position: Position,
        tenure: Tenure,
    },
}

/// What runs where a coordinator is.
enum Leader {
    Coordinator(Box<Coordinator<SharedStore>>),
    /// It makes a lost store anew from what the nodes know (P10.18).
    Adoption(Box<Adoption<SharedStore>>),
}

/// A machine on which a coordinator may run.
#[derive(Default)]
struct Host {
    coordinator: Option<Leader>,
    /// Counts the coordinators that ran here: what was meant for an earlier one is lost.
    reign: u64,
    timer_at: Option<Time>,
    /// The process does nothing until then.
    stopped_until: Time,
    /// When the coordinator opened the store.
    opened_at: Time,
    /// It has found lists there. Otherwise they begin under it, and then all their nodes have registered.
    found_lists: bool,
}

/// The coordinators of a run, and everybody who talks with them.
pub(crate) struct Governed {
    pub(crate) plan: ClusterPlan,
    store: SharedStore,
    hosts: Vec<Host>,
    seats: Vec<Seat>,
    strays: Vec<strays::Stray>,
    lines: Lines,
    truth: truth::Truth,
    troubles: Troubles,
    waits: waits::Waits,
    upgrade: upgrade::Upgrade,
}

/// What the coordinator asks its driver for.
#[derive(Default)]
struct Asked {
    frames: Vec<(LinkId, Vec<u8>)>,
    closed: Vec<LinkId>,
    notes: Vec<Note>,
}

impl CoordinatorOut for Asked {
    fn send(&mut self, link: LinkId, bytes: &[u8]) {
        self.frames.push((link, bytes.to_vec()));
    }
    fn close(&mut self, link: LinkId) {
        self.closed.push(link);
    }
    fn note(&mut self, note: Note) {
        self.notes.push(note);
    }
}

/// Bytes in a chunk: the fewest that a plan may have.
const CHUNK_BYTES: u32 = 4096;

/// Makes a run a governed one. The times of the control plane are those that ship, so all others are longer too.
pub(crate) fn govern(swarm: &mut Swarm, seed: u64) {
    let mut random = Prng::new(seed ^ 0x474f_5645_524e);
    let every = |random: &mut Prng, ms: u64| match random.chance(300_000) {
        true => Span(0),
        false => Span::from_ms(random.between(ms / 4, ms * 2)),
    };
    swarm.governed = true;
    swarm.chunk_bytes = CHUNK_BYTES;
    // A chunk for each data block, as nodes ask for.
    let least = usize::from(swarm.data) * CHUNK_BYTES as usize;
    swarm.parameters.large_from = swarm.parameters.large_from.max(least);
    swarm.maxmemory_bytes = 8 << 20;
    swarm.min_redundancy = swarm.min_redundancy.min(swarm.parity);
    swarm.parameters.lease = Span::from_ms(random.between(100, 500));
    swarm.parameters.lease_renewal = Span(swarm.parameters.lease.0 / random.between(2, 6));
    // Some long enough for a coordinator that waits out its grace and goes on.
    let long = random.chance(150_000);
    swarm.chaos = Span::from_ms(if long {
        random.between(8_000, 20_000)
    } else {
        random.between(2_000, 8_000)
    });
    swarm.clients = random.between(1, 3) as usize;
    swarm.keys = random.between(4, 24);
    swarm.crash_every = every(&mut random, 1_500);
    swarm.pause_every = every(&mut random, 1_500);
    swarm.partition_every = every(&mut random, 1_500);
    swarm.reset_every = every(&mut random, 1_000);
    // What the other coordinator does by itself, and what only it excuses.
    swarm.suspect_every = Span(0);
    swarm.move_every = Span(0);
    swarm.hand_off_every = Span(0);
    swarm.flip_every = Span(0);
    (swarm.split_at_ask, swarm.cut_at_reply) = (0, 0);
    (swarm.disk, swarm.disk_nodes, swarm.logged) = (None, 0, 0);
    // More members than positions of a list: its losses and those of the cluster are not the same.
    swarm.spares = random.below(4) as u16;
    swarm.beyond = random.below(u64::from(swarm.spares) + 1) as u16;
    let lists = plan(swarm, ClusterId(0), [0; 2], 500, 0).list_count();
    swarm.stripe_lists = lists as u16;
    swarm.parameters.kept_chunks = 4 * lists as u32;
    latest::draw(swarm, seed);
}

fn plan(swarm: &Swarm, id: ClusterId, hash_key: [u64; 2], suspicion_ms: u32, restart_wait_ms: u32) -> ClusterPlan {
    let members = u16::from(swarm.data) + u16::from(swarm.parity) + swarm.beyond;
    let mut plan = ClusterPlan::simple(id, swarm.data, swarm.parity, members, swarm.spares - swarm.beyond);
    plan.ack_quorum = swarm.ack_quorum;
    plan.chunk_bytes = swarm.chunk_bytes;
    plan.lease_ms = swarm.parameters.lease.as_ms() as u32;
    plan.suspicion_ms = suspicion_ms;
    plan.restart_wait_ms = restart_wait_ms;
    plan.min_redundancy = swarm.min_redundancy;
    plan.hash_key = hash_key;
    plan.with_one_slot(&swarm.one_slot())
}

impl World {
    /// Makes the cluster with `--create` and starts a coordinator on it; runs until all planned nodes are in.
    pub(crate) fn begin_governed(&mut self) {
        let (suspicion_ms, wait_ms) = (
            self.schedule.random.between(500, 1_000) as u32,
            self.schedule.random.below(500) as u32,
        );
        let plan = plan(
            &self.swarm,
            self.committed.cluster.id,
            self.committed.cluster.hash_key,
            suspicion_ms,
            wait_ms,
        );
        let mut store = SharedStore::default();
        if let Err(error) = Coordinator::create(&mut store, &plan) {
            return self.violate(format!("D0: no cluster is made: {error:?}"));
        }
        let troubles = Troubles::draw(&mut self.schedule.random, !self.swarm.loses_decision);
        let may_mix = !self.swarm.loses_decision && !self.swarm.one_version;
        self.oracle.ghosts = (0..plan.list_count()).map(|_| Ghost::new()).collect();
        self.governed = Some(Box::new(Governed {
            store,
            hosts: (0..troubles.host_count()).map(|_| Host::default()).collect(),
            seats: (0..self.fleet.processes.len()).map(|_| Seat::default()).collect(),
            strays: Vec::new(),
            lines: Lines::default(),
            truth: truth::Truth::default(),
            troubles,
            waits: waits::Waits::default(),
            upgrade: upgrade::Upgrade::draw(plan.hash_key[0], self.fleet.processes.len(), may_mix),
            plan,
        }));
        self.start_coordinator(0);
        for at in 0..self.fleet.processes.len() {
            self.start(at);
        }
        let deadline = self.schedule.now + Span::from_secs(60);
        while self.committed.configurations.is_empty() && self.oracle.violation.is_none() && self.step() {
            if self.schedule.now > deadline {
                self.violate("D0: the lists do not begin".into());
            }
        }
        self.oracle.counts.governed = 1;
        self.schedule.began = self.schedule.now;
        self.plan_trouble();
        self.plan_stop();
        self.plan_second();
        self.plan_decision();
        self.plan_upgrade();
    }

    /// What a node's record will say of where it is.
    fn address_of(at: usize) -> String {
        client::address(at)
    }

    pub(crate) fn happen_control(&mut self, what: Control) {
        // A stopped process has a stopped agent. One that waits for its place has nothing but an agent.
        let agent = what.agent().filter(|(place, _)| !self.waits_for_place(*place));
        if let Some((place, incarnation)) = agent {
            let at = usize::from(self.node_at(place).0);
            if self.fleet.alive(at, incarnation).is_none() {
                return;
            }
            if self.fleet.is_paused(at, self.schedule.now) {
                let until = self.fleet.resumes_at(at, self.schedule.now);
                return self.push_control_at(until, what);
            }
        }
        match what {
            Control::AgentTimer { at, due, .. } => self.on_agent_timer(at, due),
            Control::Dialed { at, link, up, .. } => self.on_dialed(at, link, up),
            Control::ToAgent { at, link, bytes, .. } => self.on_agent_frame(at, link, &bytes),
            Control::AgentDown { at, link, .. } => self.on_agent_down(at, link),
            Control::Proposal { at, proposal, .. } => self.on_agent_proposal(at, *proposal),
            Control::AgentMessage {
                at,
                incarnation,
                message,
            } => self.on_message(at, incarnation, message),
            Control::ShardStopped { at, incarnation } => self.on_shard_stopped(at, incarnation),
            Control::Supervisor { at } => self.on_supervisor_time(at),
            Control::ToSupervisor { at, link, bytes } => self.on_supervisor_frame(at, link, &bytes),
            Control::Exited { at, incarnation } => self.on_exited(at, incarnation),
            Control::Accepted { host, reign, .. }
            | Control::ToCoordinator { host, reign, .. }
            | Control::CoordinatorDown { host, reign, .. }
            | Control::CoordinatorTimer { host, reign, .. } => self.happen_at_host(host, reign, what),
            Control::Trouble(trouble) => self.on_trouble(trouble),
        }
    }

    /// Something for a coordinator. One that is stopped looks at it later.
    fn happen_at_host(&mut self, host: usize, reign: u64, what: Control) {
        let now = self.schedule.now;
        let found = self.governed.as_mut().and_then(|g| g.hosts.get_mut(host));
        let Some(place) = found.filter(|place| place.reign == reign) else {
            return;
        };
        if place.stopped_until > now {
            let until = place.stopped_until;
            return self.push_control_at(until, what);
        }
        match what {
            Control::Accepted { link, .. } => self.coordinator_has(host, CoordinatorEvent::Connected { link }),
            Control::ToCoordinator { link, by, bytes, .. } => {
                self.note_beat(link, host);
                self.coordinator_has(
                    host,
                    CoordinatorEvent::Message {
                        link,
                        by,
                        bytes: &bytes,
                    },
                );
            }
            Control::CoordinatorDown { link, .. } => {
                self.coordinator_has(host, CoordinatorEvent::Disconnected { link });
            }
            Control::CoordinatorTimer { due, .. } if place.timer_at == Some(due) => {
                place.timer_at = None;
                self.coordinator_has(host, CoordinatorEvent::Timer);
            }
            _ => {}
        }
    }

    /// One event for a coordinator.
    fn coordinator_has(&mut self, host: usize, event: CoordinatorEvent<'_>) {
        self.coordinator_does(host, |leader, clock, asked| match leader {
            Leader::Coordinator(coordinator) => coordinator.on(clock, event, asked),
            Leader::Adoption(adoption) => adoption.on(clock, event, asked),
        });
    }

    /// What a coordinator has committed is looked at before anybody hears of it.
    fn coordinator_does(&mut self, host: usize, what: impl FnOnce(&mut Leader, Clock, &mut Asked)) {
        let now = self.schedule.now;
        let found = self.governed.as_mut().and_then(|g| g.hosts.get_mut(host));
        let Some(mut coordinator) = found.and_then(|place| place.coordinator.take()) else {
            return;
        };
        let mut asked = Asked::default();
        let clock = Clock {
            mono: now,
            wall_ms: 1_000_000 + now.0 / 1_000_000,
        };
        let mut taken_in = Vec::new();
        let active_before = match &coordinator {
            Leader::Coordinator(coordinator) => coordinator.cluster().active_version,
            Leader::Adoption(_) => 0,
        };
        let not_new = match &coordinator {
            Leader::Coordinator(coordinator) => self.given_up_in(coordinator),
            Leader::Adoption(_) => Vec::new(),
        };
        what(&mut coordinator, clock, &mut asked);
        let (next, is_over, committed) = match &mut coordinator {
            Leader::Coordinator(coordinator) => {
                self.see_active(coordinator);
                self.see_fallen(active_before, coordinator);
                let mut committed = self.unseen(coordinator);
                committed.retain(|c| !not_new.contains(&c.id));
                taken_in = self.newly_taken_in(coordinator);
                (coordinator.next_deadline(), coordinator.ending().is_some(), committed)
            }
            Leader::Adoption(adoption) => {
                let progress = adoption.progress().clone();
                let is_over = !matches!(progress, Progress::Waits(_));
                if is_over {
                    self.see_adoption(host, progress);
                }
                (adoption.next_deadline(), is_over, Vec::new())
            }
        };
        for note in asked.notes {
            self.see_note(host, &note);
        }
        if let Some(place) = self.governed.as_mut().and_then(|g| g.hosts.get_mut(host)) {
            place.coordinator = Some(coordinator);
            let reign = place.reign;
            let due = next.map(|at| at.max(now + Span(1_000)));
            if let Some(due) = due.filter(|due| place.timer_at.is_none_or(|t| *due < t)) {
                place.timer_at = Some(due);
                self.push_control_at(due, Control::CoordinatorTimer { host, reign, due });
            }
        }
        for (node, second) in taken_in {
            self.see_taken_in(node, second, &committed);
        }
        self.see_all_committed(committed);
        for (link, bytes) in asked.frames {
            self.see_permission(link, &bytes);
            self.send_to_agent(link, bytes);
        }
        for link in asked.closed {
            self.end_line(link);
        }
        if is_over {
            self.end_coordinator(host, false);
        }
    }
}
