//! Second processes with the id of a node that runs: started by mistake, from an old file of settings, say. They must
//! not be taken in while the node's own process may be heard (P10.13). One that is taken in serves, and the node's
//! first process may serve clients and peers on beside it, until it hears that it is over or the faults end.
//!
//! Agents have a *place*: the number of the node, or one after all nodes for each second process.

use super::Control;
use super::seats::{Seat, register};
use super::store::SharedStore;
use super::trouble::Trouble;
use crate::marks::Seen;
use crate::world::World;
use paritas_base::configuration::Configuration;
use paritas_base::formats::Versions;
use paritas_base::{Incarnation, NodeId, Prng, Span, Time};
use paritas_control::{Agent, AgentEvent, Coordinator};

/// Second processes of a run at most: they come after the nodes in the numbers that connections know.
const STRAYS_MAX: usize = 8;

/// One of them.
pub(super) struct Stray {
    incarnation: Incarnation,
    /// Its shard has begun: it counts as the node, and ends as any process does.
    has_begun: bool,
    /// When it ends, if it has not begun.
    ends_at: Time,
    /// The number of its node.
    node: usize,
}

impl World {
    /// In some runs second processes come again and again.
    pub(super) fn plan_second(&mut self) {
        // Numbers of their own: without this trouble the run is the same as ever.
        let mut random = Prng::new(self.schedule.now.0 ^ 0x0054_5749_4345_5f52);
        if !self.swarm.loses_decision && random.chance(200_000) {
            let every = Span::from_ms(random.between(500, 2_000));
            self.push_control(
                Span(random.below(every.0)),
                Control::Trouble(Trouble::RunTwice { every }),
            );
        }
    }

    /// A second process begins that lasts, and the node's first one stands still for long enough to lose its positions.
    pub(super) fn run_twice(&mut self, every: Span) {
        if self.schedule.healing {
            return;
        }
        let mut random = Prng::new(self.schedule.now.0 ^ 0x0054_5749_4345_5f53);
        let node = random.below(self.fleet.processes.len() as u64) as usize;
        if self.may_lose(node) {
            self.start_stray_of(node, Span::from_secs(30));
            self.pause(node, Span::from_ms(random.between(2_000, 6_000)), None);
        }
        let after = Span(random.below(2 * every.0));
        self.push_control(after, Control::Trouble(Trouble::RunTwice { every }));
    }

    /// A second process begins, beside one that lives.
    pub(super) fn start_stray(&mut self, lasts: Span) {
        let node = self.schedule.random.below(self.fleet.processes.len() as u64) as usize;
        self.start_stray_of(node, lasts);
    }

    pub(super) fn start_stray_of(&mut self, node: usize, lasts: Span) {
        let (incarnation, seed) = (
            Incarnation(self.schedule.random.next_u64()),
            self.schedule.random.next_u64(),
        );
        let ends_at = self.schedule.now + lasts;
        if self.fleet.processes[node].is_none() {
            return;
        }
        let version = self.may_speak(node, incarnation);
        let Some(governed) = self.governed.as_mut().filter(|g| g.strays.len() < STRAYS_MAX) else {
            return;
        };
        let coordinators = governed.hosts.len();
        let registration = register(&governed.plan, node, incarnation, coordinators, version);
        let mut agent = Agent::new(registration, coordinators, seed);
        agent.speak(Versions::up_to(version));
        #[cfg(feature = "mutants")]
        agent.break_rule(self.swarm.control_mutant);
        governed.strays.push(Stray {
            incarnation,
            has_begun: false,
            ends_at,
            node,
        });
        governed.seats.push(Seat::of_second(agent, incarnation));
        let at = self.fleet.processes.len() + governed.strays.len() - 1;
        self.schedule
            .log(|| format!("a second process of n{node} begins, incarnation {}", incarnation.0));
        self.oracle.marks.see(Seen::SecondProcess);
        self.agent_has(at, AgentEvent::Timer);
        // Numbers of their own: without this trouble the run is the same as ever.
        let mut random = Prng::new(self.schedule.now.0 ^ 0x0050_4155_5345);
        if random.chance(500_000) {
            self.pause(node, Span::from_ms(random.between(1_500, 6_000)), None);
        }
    }

    /// The node whose process has this place, be it a second one.
    pub(crate) fn node_at(&self, at: usize) -> NodeId {
        let second = at.checked_sub(self.fleet.processes.len());
        let stray = second.and_then(|n| self.governed.as_ref()?.strays.get(n));
        NodeId(stray.map_or(at, |stray| stray.node) as u16)
    }

    /// Second processes that count as their nodes by the records of a coordinator, and did not before.
    pub(super) fn newly_taken_in(&self, coordinator: &Coordinator<SharedStore>) -> Vec<(usize, Incarnation)> {
        let Some(governed) = self.governed.as_ref() else {
            return Vec::new();
        };
        let strays = governed.strays.iter().map(|stray| (stray.node, stray.incarnation));
        let is_recorded = |(node, incarnation): &(usize, Incarnation)| {
            let mut records = coordinator.nodes();
            records.any(|n| (usize::from(n.id.0), n.incarnation) == (*node, *incarnation))
        };
        let new = strays.filter(|(_, incarnation)| !governed.truth.has_taken_in(*incarnation));
        new.filter(is_recorded).collect()
    }

    /// Whether a process runs, of a node or a second one.
    pub(super) fn runs(&self, node: NodeId, incarnation: Incarnation) -> bool {
        let at = usize::from(node.0);
        self.fleet.runs(at, incarnation) || self.waits_for_place(self.place_of(at, incarnation))
    }

    /// Whether this is the place of a second process that runs and has no shard: it waits until it counts as the node.
    pub(super) fn waits_for_place(&self, place: usize) -> bool {
        let n = place.checked_sub(self.fleet.processes.len());
        let stray = n.and_then(|n| self.governed.as_ref()?.strays.get(n));
        stray.is_some_and(|stray| !stray.has_begun && self.schedule.now < stray.ends_at && !self.schedule.healing)
    }

    /// The place of a process of this node.
    pub(super) fn place_of(&self, at: usize, incarnation: Incarnation) -> usize {
        let mut strays = self.governed.iter().flat_map(|g| &g.strays);
        let second = strays.position(|stray| stray.incarnation == incarnation);
        second.map_or(at, |n| self.fleet.processes.len() + n)
    }

    /// Whether the node's supervised process runs, in the node's place or beside a second process.
    pub(crate) fn supervised_runs(&self, at: usize) -> bool {
        let seat = self.governed.as_ref().and_then(|g| g.seats.get(at));
        seat.is_some_and(|seat| seat.agent.is_some())
    }

    /// A second process has the place of its node, and begins. The first one may still run, and knows nothing of it.
    pub(super) fn begin_second(&mut self, place: usize) {
        let n = place - self.fleet.processes.len();
        let Some(stray) = self.governed.as_mut().and_then(|g| g.strays.get_mut(n)) else {
            return;
        };
        stray.has_begun = true;
        let (at, incarnation) = (stray.node, stray.incarnation);
        let process = self.make_process(at, incarnation);
        self.schedule
            .log(|| format!("the second process of n{at} begins to serve"));
        self.oracle.marks.see(Seen::SecondServes);
        if self.fleet.incarnation(at).is_some() {
            self.oracle.marks.see(Seen::TwoServe);
        }
        self.fleet.supersede(at, process);
    }

    /// A second process ends that has never begun.
    pub(super) fn end_waiting(&mut self, place: usize) {
        let (n, now) = (place - self.fleet.processes.len(), self.schedule.now);
        if let Some(stray) = self.governed.as_mut().and_then(|g| g.strays.get_mut(n)) {
            stray.ends_at = now;
        }
    }

    /// D1: a second process counts as the node now, by the same commit as these configurations. The first one's
    /// incarnation is over. So that one may hold nothing by then, unless it has ended.
    pub(super) fn see_taken_in(&mut self, node: usize, second: Incarnation, committed: &[Configuration]) {
        self.schedule
            .log(|| format!("a second process counts as n{node}: incarnation {}", second.0));
        self.oracle.marks.see(Seen::SecondTakenIn);
        if let Some(governed) = self.governed.as_mut() {
            governed.truth.take_in(second);
        }
        let Some(first) = self.fleet.processes[node].as_ref().map(|p| p.incarnation) else {
            return;
        };
        let before = |new: &Configuration| {
            let list = self.committed.configurations.get(usize::from(new.list.0));
            list.filter(|old| new.trail.first() == Some(&old.id))
        };
        let holds = |c: &Configuration| c.held_by(NodeId(node as u16), first).next().is_some();
        if committed.iter().filter_map(before).any(holds) {
            self.violate(format!(
                "D1: a second process of n{node} is taken in, and the first one lives and holds positions"
            ));
        }
    }
}
