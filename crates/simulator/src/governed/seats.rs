//! A seat for each node: the agent of its process, and the supervisor that starts the process, announces each
//! incarnation before it begins, and certifies its end (P10.4).

use super::lines::Lines;
use super::upgrade::add_section;
use super::{Control, ControlMessage};
use crate::marks::Seen;
use crate::world::World;
use paritas_base::configuration::{ClusterRecord, Configuration, NodeRecord, NodeRole, Tenure};
use paritas_base::formats::{self, Versions};
use paritas_base::{Clock, ConnId, Epoch, Incarnation, ListId, NodeId, Position, Prng, Sections, Span, Time};
use paritas_control::message::{
    Refusal, Registration, TO_AGENT_BYTES_MAX, TO_COORDINATOR_BYTES_MAX, ToAgent, ToCoordinator, decode, encode,
};
use paritas_control::status::{ShardProgress, Status};
use paritas_control::{Agent, AgentEvent, AgentOut, ClusterPlan, ENDS_MAX, HEARTBEAT};
use paritas_protocol::{Event, LinkId, Proposal};
use std::collections::BTreeMap;

/// How long a supervisor waits before it connects again, or says again what is not noted.
const SUPERVISOR_WAIT: Span = Span::from_ms(100);
/// A proposal of a shard reaches its agent within this time.
const LETTER_MAX: Span = Span::from_us(500);

/// What belongs to one node.
#[derive(Default)]
pub(super) struct Seat {
    pub(super) agent: Option<Agent>,
    pub(super) link: Option<LinkId>,
    timer_at: Option<Time>,
    progress_at: Time,
    turns: u64,
    /// The supervisor's connection.
    supervisor: Option<LinkId>,
    /// Which coordinator the supervisor dials next.
    supervisor_dials: usize,
    /// The incarnation that runs.
    pub(super) incarnation: Option<Incarnation>,
    /// Lives that have certainly ended, until the coordinator has noted it.
    ends: Vec<Incarnation>,
    /// What the state file of the node says: incarnations that its next process may certify.
    former: Vec<Incarnation>,
    /// When the process was first asked to end.
    pub(super) leaves_since: Option<Time>,
    /// It has been told that it may.
    pub(super) may_leave: bool,
    /// The ordinal of each node's latest incarnation that the process was told.
    told: BTreeMap<NodeId, u32>,
}

/// What an agent asks its driver for.
#[derive(Default)]
struct Asked {
    /// The number of a coordinator.
    dial: Option<usize>,
    hang_up: bool,
    frames: Vec<Vec<u8>>,
    /// The process has its place: its shard may begin.
    has_place: bool,
    messages: Vec<ControlMessage>,
    refused: Option<Refusal>,
    ended: Option<Refusal>,
    noted: Vec<Incarnation>,
    leave_waits: bool,
    may_leave: bool,
}

impl AgentOut for Asked {
    fn dial(&mut self, coordinator: usize) {
        self.dial = Some(coordinator);
    }
    fn hang_up(&mut self) {
        self.hang_up = true;
        self.dial = None;
    }
    fn send(&mut self, bytes: &[u8]) {
        self.frames.push(bytes.to_vec());
    }
    fn cluster(&mut self, cluster: &ClusterRecord) {
        self.has_place = true;
        self.cluster_changed(cluster);
    }
    fn cluster_changed(&mut self, cluster: &ClusterRecord) {
        // Nothing else of it changes here, and a process begins with the version of its build.
        if cluster.active_version > formats::HIGHEST {
            self.messages
                .push(ControlMessage::ActiveVersion(cluster.active_version));
        }
    }
    fn nodes(&mut self, nodes: &[NodeRecord]) {
        self.messages.push(ControlMessage::Nodes(nodes.to_vec()));
    }
    fn configuration(&mut self, configuration: &Configuration) {
        self.messages
            .push(ControlMessage::Configuration(Box::new(configuration.clone())));
    }
    // No client asks.
    fn status(&mut self, _: ConnId, _: u64, _: Result<&Status, &str>) {}
    fn duty_set(&mut self, _: ConnId, _: u64, _: Option<&str>) {}
    fn drain(&mut self, list: ListId, position: Position, tenure: Tenure) {
        self.messages.push(ControlMessage::Drain { list, position, tenure });
    }
    fn refused(&mut self, refusal: &Refusal) {
        self.refused = Some(refusal.clone());
    }
    fn ended(&mut self, refusal: &Refusal) {
        self.ended = Some(refusal.clone());
    }
    fn exit_noted(&mut self, incarnation: Incarnation) {
        self.noted.push(incarnation);
    }
    fn leave_waits(&mut self, _: &str) {
        self.leave_waits = true;
    }
    fn may_leave(&mut self) {
        self.may_leave = true;
    }
}

impl World {
    pub(super) fn seat(&mut self, at: usize) -> Option<&mut Seat> {
        self.governed.as_mut()?.seats.get_mut(at)
    }

    /// What the processes of a node have of a list: each its agent or its shard.
    pub(super) fn installed(&self, at: usize, list: ListId) -> impl Iterator<Item = (Epoch, u64)> {
        let places = self.fleet.of_node(at).map(move |p| self.place_of(at, p.incarnation));
        let seats = places.filter_map(|place| self.governed.as_ref()?.seats.get(place));
        seats.filter_map(move |seat| seat.agent.as_ref()?.installed(list))
    }

    pub(super) fn lines(&mut self) -> Option<&mut Lines> {
        Some(&mut self.governed.as_mut()?.lines)
    }

    /// A process has begun: its supervisor has said so before, if it could, and its agent begins.
    pub(crate) fn start_seat(&mut self, at: usize) {
        let incarnation = self.fleet.records[at].incarnation;
        let version = self.may_speak(at, incarnation);
        let Some(governed) = self.governed.as_ref() else { return };
        let coordinators = governed.hosts.len();
        let registration = register(&governed.plan, at, incarnation, coordinators, version);
        let seed = self.schedule.random.next_u64();
        let mut agent = Agent::new(registration, coordinators, seed);
        agent.speak(Versions::up_to(version));
        // At times the file is lost.
        let is_kept = Prng::new(seed ^ 0x0046_494c_4500).chance(600_000);
        if let Some(seat) = self.seat(at) {
            if !is_kept {
                seat.former.clear();
            }
            agent.certify(seat.former.iter().copied());
        }
        #[cfg(feature = "mutants")]
        agent.break_rule(self.swarm.control_mutant);
        let now = self.schedule.now;
        let Some(seat) = self.seat(at) else { return };
        seat.incarnation = Some(incarnation);
        seat.agent = Some(agent);
        (seat.link, seat.timer_at, seat.progress_at) = (None, None, now);
        seat.told.clear();
        (seat.leaves_since, seat.may_leave) = (None, false);
        self.tell_as_supervisor(at, &supervise(at, incarnation));
        if self.seat(at).is_some_and(|seat| seat.supervisor.is_none()) {
            self.on_supervisor_time(at);
        }
        self.agent_has(at, AgentEvent::Timer);
    }

    /// A process is over. Where it is certified, its supervisor notices after a while.
    pub(crate) fn end_seat(&mut self, at: usize, incarnation: Incarnation, certified: bool, noticed: Span) {
        let now = self.schedule.now;
        if let Some(governed) = self.governed.as_mut() {
            governed.truth.note_end(now, incarnation);
        }
        let place = self.place_of(at, incarnation);
        let Some(seat) = self.seat(place) else { return };
        seat.agent = None;
        seat.incarnation = None;
        (seat.leaves_since, seat.may_leave) = (None, false);
        if seat.former.len() < ENDS_MAX {
            seat.former.push(incarnation);
        }
        if let Some(link) = seat.link.take() {
            self.end_line(link);
        }
        // A second process has no supervisor.
        let certified = certified && place == at;
        if certified {
            // A supervisor may itself be slow to notice.
            let late = !self.schedule.healing && self.schedule.random.chance(100_000);
            let noticed = Span(if late {
                self.schedule.random.below(6_000_000_000)
            } else {
                noticed.0
            });
            self.push_control(noticed, Control::Exited { at, incarnation });
        }
    }

    // --- the supervisor ------------------------------------------------------------------------------------------

    pub(super) fn on_exited(&mut self, at: usize, incarnation: Incarnation) {
        let Some(seat) = self.seat(at) else { return };
        seat.ends.push(incarnation);
        self.tell_as_supervisor(at, &exited(at, incarnation));
    }

    /// Without a connection it makes one, and says all that it knows.
    pub(super) fn on_supervisor_time(&mut self, at: usize) {
        if self.seat(at).is_none_or(|seat| seat.supervisor.is_some()) {
            return;
        }
        let hosts = self.governed.as_ref().map_or(1, |g| g.hosts.len());
        let host = self.seat(at).map_or(0, |seat| {
            seat.supervisor_dials += 1;
            seat.supervisor_dials % hosts
        });
        let Some(link) = self.open_line(at, None, host) else {
            return self.push_control(SUPERVISOR_WAIT, Control::Supervisor { at });
        };
        let Some(seat) = self.seat(at) else { return };
        seat.supervisor = Some(link);
        let (ends, incarnation) = (seat.ends.clone(), seat.incarnation);
        for incarnation in ends {
            self.tell_as_supervisor(at, &supervise(at, incarnation));
            self.tell_as_supervisor(at, &exited(at, incarnation));
        }
        if let Some(incarnation) = incarnation {
            self.tell_as_supervisor(at, &supervise(at, incarnation));
        }
    }

    pub(super) fn on_supervisor_frame(&mut self, at: usize, link: LinkId, bytes: &[u8]) {
        let Some(seat) = self.seat(at).filter(|seat| seat.supervisor == Some(link)) else {
            return;
        };
        if let Ok(ToAgent::ExitNoted { incarnation, .. }) = decode(bytes, TO_AGENT_BYTES_MAX) {
            seat.ends.retain(|end| *end != incarnation);
        }
    }

    pub(super) fn supervisor_is_down(&mut self, at: usize, link: LinkId) {
        if let Some(seat) = self.seat(at).filter(|seat| seat.supervisor == Some(link)) {
            seat.supervisor = None;
            self.push_control(SUPERVISOR_WAIT, Control::Supervisor { at });
        }
    }

    fn tell_as_supervisor(&mut self, at: usize, message: &ToCoordinator) {
        let link = self.seat(at).and_then(|seat| seat.supervisor);
        if let (Some(link), Ok(frame)) = (link, encode(message, TO_COORDINATOR_BYTES_MAX)) {
            self.send_to_coordinator(link, frame);
        }
    }

    // --- the agent -----------------------------------------------------------------------------------------------

    pub(super) fn on_agent_timer(&mut self, at: usize, due: Time) {
        if let Some(seat) = self.seat(at).filter(|seat| seat.timer_at == Some(due)) {
            seat.timer_at = None;
            self.agent_has(at, AgentEvent::Timer);
        }
    }

    pub(super) fn on_dialed(&mut self, at: usize, link: LinkId, up: bool) {
        let Some(seat) = self.seat(at).filter(|seat| seat.link == Some(link)) else {
            return;
        };
        if !up {
            seat.link = None;
        }
        let event = if up {
            AgentEvent::Connected
        } else {
            AgentEvent::Disconnected
        };
        self.agent_has(at, event);
    }

    pub(super) fn on_agent_frame(&mut self, at: usize, link: LinkId, bytes: &[u8]) {
        if self.seat(at).is_some_and(|seat| seat.link == Some(link)) {
            self.agent_has(at, AgentEvent::Message(bytes));
        }
    }

    pub(super) fn on_agent_down(&mut self, at: usize, link: LinkId) {
        if let Some(seat) = self.seat(at).filter(|seat| seat.link == Some(link)) {
            seat.link = None;
            self.agent_has(at, AgentEvent::Disconnected);
        }
    }

    pub(super) fn on_agent_proposal(&mut self, at: usize, proposal: Proposal) {
        self.agent_has(at, AgentEvent::Proposal(proposal));
    }

    pub(super) fn on_message(&mut self, at: usize, incarnation: Incarnation, message: ControlMessage) {
        let copy = message.clone();
        let again = || {
            let what = Control::AgentMessage {
                at,
                incarnation,
                message: copy,
            };
            crate::events::SimEvent::Control(what)
        };
        match &message {
            ControlMessage::Configuration(c) => self.turn(at, incarnation, Event::Configuration(c), again),
            ControlMessage::Nodes(nodes) => self.turn(at, incarnation, Event::Nodes(nodes), again),
            ControlMessage::ActiveVersion(version) => {
                self.turn(at, incarnation, Event::ActiveVersion(*version), again);
            }
            ControlMessage::Drain { list, position, tenure } => {
                let (list, position, tenure) = (*list, *position, *tenure);
                self.turn(at, incarnation, Event::Drain { list, position, tenure }, again);
            }
        }
    }

    /// One event for the agent of a process that runs, as the thread of `node` gives it. `place`: of its node, or of a
    /// second process.
    pub(super) fn agent_has(&mut self, place: usize, event: AgentEvent<'_>) {
        let now = self.schedule.now;
        let Some(incarnation) = self.seat(place).and_then(|seat| seat.incarnation) else {
            return;
        };
        let at = usize::from(self.node_at(place).0);
        let waits = self.waits_for_place(place);
        let clock = match self.fleet.alive(at, incarnation) {
            Some(process) => process.clock(now),
            None if waits => Clock {
                mono: now,
                wall_ms: 1_000_000 + now.0 / 1_000_000,
            },
            None => return,
        };
        let Some(mut agent) = self.seat(place).and_then(|seat| seat.agent.take()) else {
            return;
        };
        let mut asked = Asked::default();
        if let Some(seat) = self.seat(place).filter(|seat| !waits && now >= seat.progress_at) {
            seat.progress_at = now + Span(HEARTBEAT.0 / 2);
            // A process that handles this event turns.
            seat.turns += 1;
            let progress = ShardProgress {
                turns: seat.turns,
                ..ShardProgress::default()
            };
            agent.on(clock, AgentEvent::Progress(progress), &mut asked);
        }
        agent.on(clock, event, &mut asked);
        let deadline = agent.next_deadline();
        let process = self.fleet.alive(at, incarnation);
        let due = deadline.map(|local| process.map_or(local, |p| p.true_time(local)));
        let Some(seat) = self.seat(place) else { return };
        seat.agent = Some(agent);
        let progress_at = (!waits).then_some(seat.progress_at);
        let Some(due) = due.into_iter().chain(progress_at).min() else {
            return self.obey_agent(place, incarnation, asked);
        };
        let due = due.max(now + Span(1_000));
        if seat.timer_at.is_none_or(|t| due < t) {
            seat.timer_at = Some(due);
            let at = place;
            self.push_control_at(due, Control::AgentTimer { at, incarnation, due });
        }
        self.obey_agent(place, incarnation, asked);
    }

    fn obey_agent(&mut self, place: usize, incarnation: Incarnation, asked: Asked) {
        let at = usize::from(self.node_at(place).0);
        if let Some(refusal) = asked.refused {
            self.schedule.log(|| format!("n{at} is refused: {refusal:?}"));
            self.see_refusal(place, incarnation, &refusal);
        }
        // What is sent before a hang-up may still arrive.
        let link = self.seat(place).and_then(|seat| seat.link);
        for frame in asked.frames {
            if let Some(link) = link {
                self.send_to_coordinator(link, frame);
            }
        }
        if asked.hang_up
            && let Some(link) = self.seat(place).and_then(|seat| seat.link.take())
        {
            self.end_line(link);
        }
        if asked.has_place && self.waits_for_place(place) {
            self.begin_second(place);
        }
        for message in asked.messages {
            self.check_told(place, &message);
            self.check_sections(&message);
            let what = Control::AgentMessage {
                at,
                incarnation,
                message,
            };
            self.push_control(Span(0), what);
        }
        if let Some(host) = asked.dial {
            let link = self.dial_coordinator(place, incarnation, host);
            if let Some(seat) = self.seat(place) {
                seat.link = link;
            }
        }
        self.obey_leaver(place, incarnation, asked.leave_waits, asked.may_leave);
        if let Some(seat) = self.seat(place) {
            let before = seat.former.len();
            seat.former.retain(|end| !asked.noted.contains(end));
            if seat.former.len() < before {
                self.oracle.marks.see(Seen::EndByNext);
            }
        }
        if let Some(refusal) = asked.ended {
            self.schedule.log(|| format!("n{at} ends: {refusal:?}"));
            self.see_refusal(place, incarnation, &refusal);
            if self.waits_for_place(place) {
                return self.end_waiting(place);
            }
            self.check_may_end(at, incarnation);
            self.kill(at);
        }
    }

    /// D8: a process that knows an incarnation of a node is not told of an earlier one.
    fn check_told(&mut self, place: usize, message: &ControlMessage) {
        let (ControlMessage::Nodes(nodes), Some(seat)) = (message, self.seat(place)) else {
            return;
        };
        let mut earlier = None;
        for node in nodes {
            let told = seat.told.entry(node.id).or_default();
            if node.ordinal < *told {
                earlier = Some(node.id);
            }
            *told = node.ordinal.max(*told);
        }
        if let Some(id) = earlier {
            self.violate(format!(
                "D8: {} is told of an earlier incarnation of {id} than it knows",
                self.node_at(place)
            ));
        }
    }

    /// Gives the connection to be, whether or not somebody answers.
    pub(super) fn dial_coordinator(&mut self, at: usize, incarnation: Incarnation, host: usize) -> Option<LinkId> {
        let delay = self.schedule.delay(&self.swarm);
        let opened = self.open_line(at, Some(incarnation), host);
        let link = opened.or_else(|| self.lines().map(Lines::fresh))?;
        let up = opened.is_some();
        // Out of a cut nothing comes back: the agent gives up by itself.
        if up || !(self.network.is_cut_off(self.schedule.now, at) || self.one_way(at).is_some()) {
            self.push_control(
                delay,
                Control::Dialed {
                    at,
                    incarnation,
                    link,
                    up,
                },
            );
        }
        Some(link)
    }

    /// What a shard asks of its agent.
    pub(crate) fn propose_to_agent(&mut self, at: usize, incarnation: Incarnation, proposal: Proposal) {
        let after = Span(self.schedule.random.below(LETTER_MAX.0));
        let (at, proposal) = (self.place_of(at, incarnation), Box::new(proposal));
        self.push_control(
            after,
            Control::Proposal {
                at,
                incarnation,
                proposal,
            },
        );
    }
}

impl Seat {
    /// The seat of a second process: nobody supervises it.
    pub(super) fn of_second(agent: Agent, incarnation: Incarnation) -> Self {
        Self {
            agent: Some(agent),
            incarnation: Some(incarnation),
            ..Self::default()
        }
    }
}

/// The number by which an operator knows a process.
pub(super) fn pid_of(incarnation: Incarnation) -> u32 {
    incarnation.0 as u32
}

/// What a process says of itself.
pub(super) fn register(
    plan: &ClusterPlan,
    at: usize,
    incarnation: Incarnation,
    coordinators: usize,
    version: u16,
) -> Registration {
    let mut more = Sections::none();
    add_section(version, incarnation, &mut more);
    let role = if at < plan.nodes.len() {
        NodeRole::Member
    } else {
        NodeRole::Spare
    };
    Registration {
        cluster: None,
        node: NodeId(at as u16),
        incarnation,
        domain: None,
        role,
        pid: pid_of(incarnation),
        supervised: true,
        client_address: String::new(),
        cluster_address: World::address_of(at),
        peer_address: String::new(),
        coordinators: coordinators as u8,
        installed: Vec::new(),
        heard: Vec::new(),
        incarnations: Vec::new(),
        more,
    }
}

fn supervise(at: usize, incarnation: Incarnation) -> ToCoordinator {
    let node = NodeId(at as u16);
    ToCoordinator::Supervise { node, incarnation }
}

fn exited(at: usize, incarnation: Incarnation) -> ToCoordinator {
    let node = NodeId(at as u16);
    ToCoordinator::Exited { node, incarnation }
}
