//! The connections of agents and supervisors to the coordinator. They keep the order of frames, as TCP does: a frame
//! that a cut path holds up comes when the path is open again, or never, with its connection.

use super::Control;
use crate::events::SimEvent;
use crate::world::World;
use paritas_base::{Incarnation, Span, Time};
use paritas_control::rights::Speaker;
use paritas_protocol::LinkId;
use std::collections::BTreeMap;

/// One connection.
#[derive(Debug)]
struct Line {
    at: usize,
    /// Of which coordinator's process.
    host: usize,
    reign: u64,
    /// Of which agent; a supervisor's has none.
    agent: Option<Incarnation>,
    /// When the last frame to the coordinator, and from it, arrives.
    last: [Time; 2],
}

/// All of them.
#[derive(Default, Debug)]
pub(super) struct Lines {
    open: BTreeMap<LinkId, Line>,
    /// Whose agent each connection was, also those that have ended: what was sent by them may still come.
    agents: BTreeMap<LinkId, (usize, Incarnation)>,
    next: u64,
}

impl World {
    pub(super) fn push_control(&mut self, after: Span, what: Control) {
        self.schedule.push(after, SimEvent::Control(what));
    }

    pub(super) fn push_control_at(&mut self, at: Time, what: Control) {
        self.schedule.push_at(at, SimEvent::Control(what));
    }

    /// Opens a connection to a coordinator; its end may be noticed late. `None`: there is no answer.
    pub(super) fn open_line(&mut self, at: usize, agent: Option<Incarnation>, host: usize) -> Option<LinkId> {
        let cut = self.network.is_cut_off(self.schedule.now, at) || self.one_way(at).is_some();
        let governed = self.governed.as_mut().filter(|_| !cut)?;
        let reign = governed
            .hosts
            .get(host)
            .filter(|host| host.coordinator.is_some())?
            .reign;
        governed.lines.next += 1;
        let link = LinkId(governed.lines.next);
        let last = [Time(0); 2];
        let line = Line {
            at,
            host,
            reign,
            agent,
            last,
        };
        governed.lines.open.insert(link, line);
        if let Some(incarnation) = agent {
            governed.lines.agents.insert(link, (at, incarnation));
        }
        let arrives = self.arrival(link, 0)?;
        self.push_control_at(arrives, Control::Accepted { host, reign, link });
        Some(link)
    }

    /// When what is sent now arrives, after all before it.
    fn arrival(&mut self, link: LinkId, way: usize) -> Option<Time> {
        let delay = self.schedule.delay(&self.swarm);
        let at = self.governed.as_ref()?.lines.open.get(&link)?.at;
        let mut from = if self.network.is_cut_off(self.schedule.now, at) {
            self.network.cut_off_until()
        } else {
            self.schedule.now
        };
        if let Some((closed, until)) = self.one_way(at)
            && closed == way
        {
            from = from.max(until);
        }
        let line = self.governed.as_mut()?.lines.open.get_mut(&link)?;
        line.last[way] = (from + delay).max(line.last[way] + Span(1));
        Some(line.last[way])
    }

    pub(super) fn send_to_coordinator(&mut self, link: LinkId, bytes: Vec<u8>) {
        let Some(arrives) = self.arrival(link, 0) else { return };
        self.network.sent.add([self.schedule.now.0, link.0, 0], &bytes);
        let line = self.governed.as_ref().and_then(|g| g.lines.open.get(&link));
        if let Some(&Line {
            at, host, reign, agent, ..
        }) = line
        {
            let by = match agent {
                Some(incarnation) => Speaker::Node(self.node_at(at), incarnation),
                None => Speaker::Supervisor,
            };
            let what = Control::ToCoordinator {
                host,
                reign,
                link,
                by,
                bytes,
            };
            self.push_control_at(arrives, what);
        }
    }

    pub(super) fn send_to_agent(&mut self, link: LinkId, bytes: Vec<u8>) {
        let Some(arrives) = self.arrival(link, 1) else { return };
        self.network.sent.add([self.schedule.now.0, link.0, 1], &bytes);
        let line = self.governed.as_ref().and_then(|g| g.lines.open.get(&link));
        let Some((at, agent)) = line.map(|line| (line.at, line.agent)) else {
            return;
        };
        let what = match agent {
            Some(incarnation) => Control::ToAgent {
                at,
                incarnation,
                link,
                bytes,
            },
            None => Control::ToSupervisor { at, link, bytes },
        };
        self.push_control_at(arrives, what);
    }

    /// Ends a connection: each end hears of it after what was sent to it.
    pub(super) fn end_line(&mut self, link: LinkId) {
        let (to_coordinator, to_agent) = (self.arrival(link, 0), self.arrival(link, 1));
        let line = self.governed.as_mut().and_then(|g| g.lines.open.remove(&link));
        let (Some(line), Some(to_coordinator), Some(to_agent)) = (line, to_coordinator, to_agent) else {
            return;
        };
        let (host, reign) = (line.host, line.reign);
        self.push_control_at(to_coordinator, Control::CoordinatorDown { host, reign, link });
        match line.agent {
            Some(incarnation) => {
                let at = line.at;
                self.push_control_at(to_agent, Control::AgentDown { at, incarnation, link });
            }
            None => self.supervisor_is_down(line.at, link),
        }
    }

    /// A coordinator's process has ended. Agents hear of it soon, but for those whose path is closed, or if its whole
    /// machine is gone: then they find out by themselves.
    pub(super) fn end_lines_of(&mut self, host: usize, machine: bool) {
        let Some(lines) = self.lines() else { return };
        let of_host = lines.open.iter().filter(|(_, line)| line.host == host);
        let links: Vec<LinkId> = of_host.map(|(link, _)| *link).collect();
        for link in links {
            let arrives = self.arrival(link, 1);
            let line = self.lines().and_then(|lines| lines.open.remove(&link));
            let (Some(line), Some(arrives)) = (line, arrives) else {
                continue;
            };
            match line.agent {
                Some(incarnation) if !machine => {
                    let at = line.at;
                    self.push_control_at(arrives, Control::AgentDown { at, incarnation, link });
                }
                Some(_) => {}
                None => self.supervisor_is_down(line.at, link),
            }
        }
    }
}

impl Lines {
    pub(super) fn agent_of(&self, link: LinkId) -> Option<(usize, Incarnation)> {
        self.agents.get(&link).copied()
    }

    /// An id for a connection that never is.
    pub(super) fn fresh(&mut self) -> LinkId {
        self.next += 1;
        LinkId(self.next)
    }
}
