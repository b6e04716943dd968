//! Second processes with the id of a node that runs: started by mistake, from an old file of settings, say. Only their
//! agents are there. They must not be taken in while the node's own process may be heard (P10.13).

use super::seats::{Asked, register};
use super::store::SharedStore;
use super::{Control, ControlMessage};
use crate::marks::Seen;
use crate::world::World;
use paritas_base::configuration::Configuration;
use paritas_base::{Clock, Incarnation, NodeId, Prng, Span, Time};
use paritas_control::{Agent, AgentEvent, Coordinator};
use paritas_protocol::LinkId;

/// Second processes of a run at most: they come after the nodes in the numbers that connections know.
const STRAYS_MAX: usize = 4;

/// One of them.
pub(super) struct Stray {
    incarnation: Incarnation,
    agent: Agent,
    link: Option<LinkId>,
    timer_at: Option<Time>,
    ends_at: Time,
    /// The number of its node.
    node: usize,
}

impl World {
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
        let Some(governed) = self.governed.as_mut().filter(|g| g.strays.len() < STRAYS_MAX) else {
            return;
        };
        let coordinators = governed.hosts.len();
        let registration = register(&governed.plan, node, incarnation, coordinators);
        let agent = Agent::new(registration, coordinators, seed);
        #[cfg(feature = "mutants")]
        let agent = {
            let mut agent = agent;
            agent.break_rule(self.swarm.control_mutant);
            agent
        };
        governed.strays.push(Stray {
            incarnation,
            agent,
            link: None,
            timer_at: None,
            ends_at,
            node,
        });
        let at = self.fleet.processes.len() + governed.strays.len() - 1;
        self.schedule
            .log(|| format!("a second process of n{node} begins, incarnation {}", incarnation.0));
        self.oracle.marks.see(Seen::SecondProcess);
        self.stray_has(at, AgentEvent::Timer);
        // Numbers of their own: without this trouble the run is the same as ever.
        let mut random = Prng::new(self.schedule.now.0 ^ 0x0050_4155_5345);
        if random.chance(500_000) {
            self.pause(node, Span::from_ms(random.between(1_500, 6_000)), None);
        }
    }

    /// The node whose process has this place, be it a second one.
    pub(super) fn node_at(&self, at: usize) -> NodeId {
        let second = at.checked_sub(self.fleet.processes.len());
        let stray = second.and_then(|n| self.governed.as_ref()?.strays.get(n));
        NodeId(stray.map_or(at, |stray| stray.node) as u16)
    }

    /// Whether a second process of this node runs.
    pub(super) fn runs_twice(&self, node: usize) -> bool {
        let mut strays = self.governed.iter().flat_map(|g| &g.strays);
        strays.any(|stray| stray.node == node && self.schedule.now < stray.ends_at)
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
        let process = self.fleet.processes[usize::from(node.0)].as_ref();
        let mut strays = self.governed.iter().flat_map(|g| &g.strays);
        process.is_some_and(|p| p.incarnation == incarnation)
            || strays.any(|stray| stray.incarnation == incarnation && self.runs_twice(stray.node))
    }

    fn stray(&mut self, at: usize) -> Option<&mut Stray> {
        let n = at.checked_sub(self.fleet.processes.len())?;
        let (now, healing) = (self.schedule.now, self.schedule.healing);
        let stray = self.governed.as_mut()?.strays.get_mut(n)?;
        (now < stray.ends_at && !healing).then_some(stray)
    }

    /// What happens to its agent.
    pub(super) fn happen_to_stray(&mut self, at: usize, what: &Control) {
        let Some(stray) = self.stray(at) else { return };
        let link_is = |link: &LinkId| stray.link == Some(*link);
        match what {
            Control::AgentTimer { due, .. } if stray.timer_at == Some(*due) => {
                stray.timer_at = None;
                self.stray_has(at, AgentEvent::Timer);
            }
            Control::Dialed { link, up, .. } if link_is(link) => {
                if *up {
                    self.stray_has(at, AgentEvent::Connected);
                } else {
                    stray.link = None;
                    self.stray_has(at, AgentEvent::Disconnected);
                }
            }
            Control::ToAgent { link, bytes, .. } if link_is(link) => self.stray_has(at, AgentEvent::Message(bytes)),
            Control::AgentDown { link, .. } if link_is(link) => {
                stray.link = None;
                self.stray_has(at, AgentEvent::Disconnected);
            }
            _ => {}
        }
    }

    fn stray_has(&mut self, at: usize, event: AgentEvent<'_>) {
        let now = self.schedule.now;
        let clock = Clock {
            mono: now,
            wall_ms: 1_000_000 + now.0 / 1_000_000,
        };
        let Some(stray) = self.stray(at) else { return };
        let mut asked = Asked::default();
        stray.agent.on(clock, event, &mut asked);
        let (incarnation, link) = (stray.incarnation, stray.link);
        let due = stray.agent.next_deadline().map(|due| due.max(now + Span(1_000)));
        if let Some(due) = due.filter(|due| stray.timer_at.is_none_or(|t| *due < t)) {
            stray.timer_at = Some(due);
            self.push_control_at(due, Control::AgentTimer { at, incarnation, due });
        }
        for frame in asked.frames {
            if let Some(link) = link {
                self.send_to_coordinator(link, frame);
            }
        }
        if asked.hang_up
            && let Some(link) = self.stray(at).and_then(|stray| stray.link.take())
        {
            self.end_line(link);
        }
        if let Some(host) = asked.dial {
            let link = self.dial_coordinator(at, incarnation, host);
            if let Some(stray) = self.stray(at) {
                stray.link = link;
            }
        }
        if asked.ended.is_some()
            && let Some(stray) = self.stray(at)
        {
            stray.ends_at = now;
        }
        // It installs nothing: no shard is there to do so.
        drop::<Vec<ControlMessage>>(asked.messages);
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
