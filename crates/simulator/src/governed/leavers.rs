//! Processes that are asked to end (P10.20), as by SIGTERM: they ask a coordinator for permission, serve until they
//! have it, and end when their shards have stopped.

use super::Control;
use super::trouble::Trouble;
use crate::marks::Seen;
use crate::report::Excuse;
use crate::world::World;
use paritas_base::configuration::Configuration;
use paritas_base::{Incarnation, NodeId, Position, Prng, Span, Time};
use paritas_control::message::{TO_AGENT_BYTES_MAX, ToAgent, decode};
use paritas_control::{AgentEvent, is_decodable};
use paritas_protocol::LinkId;
use std::collections::BTreeSet;

/// The frame of a permission is no longer than this.
const PERMISSION_BYTES_MAX: usize = 12;
/// A coordinator may go by what was true within this time, if the process had been asked to end: that a holder ran.
const RAN_WITHIN: Span = Span::from_ms(610);
/// A shard that is to stop does so within this time.
const STOPS_WITHIN: Span = Span::from_ms(300);

impl World {
    pub(super) fn plan_stop(&mut self) {
        // Numbers of their own: without this trouble the run is the same as ever.
        let mut random = Prng::new(self.schedule.now.0 ^ 0x5354_4f50);
        if self.swarm.loses_decision || random.chance(400_000) {
            return;
        }
        let every = Span::from_ms(random.between(300, 2_500));
        self.push_control(
            Span(random.below(2 * every.0)),
            Control::Trouble(Trouble::Stop { every }),
        );
    }

    /// A process is asked to end. There may be others that wait for permission.
    pub(super) fn ask_to_end(&mut self, every: Span) {
        if self.schedule.healing {
            return;
        }
        let mut random = Prng::new(self.schedule.now.0 ^ 0x454e_4400);
        let count = self.fleet.processes.len() as u64;
        let (at, other) = (random.below(count) as usize, random.below(count) as usize);
        if at != other && random.chance(300_000) {
            let lasts = Span::from_ms(random.between(300, 1_500));
            self.schedule
                .log(|| format!("what n{other} says to the coordinator comes {} ms later", lasts.as_ms()));
            self.close_one_way(1 << other, 0, self.schedule.now + lasts);
            let dies = Trouble::DieUnseen {
                victim: other,
                leaver: at,
            };
            self.push_control(Span(random.below(lasts.0)), Control::Trouble(dies));
        } else {
            self.ask(at);
        }
        self.push_control(
            Span(random.below(2 * every.0)),
            Control::Trouble(Trouble::Stop { every }),
        );
    }

    fn ask(&mut self, at: usize) {
        let now = self.schedule.now;
        let incarnation = self.fleet.incarnation(at);
        if incarnation.is_some()
            && let Some(seat) = self.seat(at).filter(|seat| seat.incarnation == incarnation)
        {
            seat.leaves_since = seat.leaves_since.or(Some(now));
            self.schedule.log(|| format!("n{at} is asked to end"));
            self.agent_has(at, AgentEvent::Leave);
        }
    }

    /// A process ends whose heartbeats are still on their way, and another one is asked to end just after.
    pub(super) fn die_unseen(&mut self, victim: usize, leaver: usize) {
        if self.schedule.healing {
            return;
        }
        if self.may_lose(victim) {
            self.kill(victim);
        }
        self.ask(leaver);
    }

    pub(super) fn obey_leaver(&mut self, at: usize, incarnation: Incarnation, waits: bool, may: bool) {
        if waits {
            self.oracle.marks.see(Seen::LeaveWaits);
        }
        if !may {
            return;
        }
        self.schedule.log(|| format!("n{at} may end"));
        self.oracle.marks.see(Seen::MayLeave);
        if let Some(seat) = self.seat(at) {
            seat.may_leave = true;
        }
        let mut random = Prng::new(self.schedule.now.0 ^ 0x5354_4f50_5045);
        let after = Span(random.below(STOPS_WITHIN.0));
        self.push_control(after, Control::ShardStopped { at, incarnation });
    }

    /// It ends in any case, also if the permission was wrong.
    pub(super) fn on_shard_stopped(&mut self, at: usize, incarnation: Incarnation) {
        let dead = BTreeSet::from([at]);
        // Another holder may have died between its last sign of life and the permission. A process that was superseded
        // holds nothing.
        let holds = self.fleet.records[at].incarnation == incarnation;
        if holds && self.swarm.parity > 0 && !self.bear_all(&dead) {
            self.oracle.excused = self.oracle.excused.or(Some(Excuse::Lost));
        }
        self.agent_has(at, AgentEvent::Stopped);
        self.schedule.log(|| format!("the shard of n{at} has stopped"));
        self.kill(at);
    }

    /// Processes that were asked to end, and run: any of them may end at any moment.
    pub(crate) fn leavers(&self) -> BTreeSet<usize> {
        let seats = self.governed.iter().flat_map(|g| &g.seats).enumerate();
        seats
            .filter(|(_, seat)| seat.leaves_since.is_some())
            .map(|(at, _)| at)
            .collect()
    }

    /// D10: a process is told that it may end only while no other position of its lists is missing. Each time that it
    /// is told.
    pub(super) fn see_permission(&mut self, link: LinkId, bytes: &[u8]) {
        let is_one = bytes.len() <= PERMISSION_BYTES_MAX
            && matches!(
                decode(bytes, TO_AGENT_BYTES_MAX),
                Ok(ToAgent::MayLeave { refused: None })
            );
        if !is_one || self.oracle.excused.is_some() || self.swarm.parity == 0 {
            return;
        }
        let Some((at, incarnation)) = self.process_of(link) else {
            return;
        };
        let lists = self.committed.configurations.iter();
        let harmed = lists.filter(|c| c.held_by(NodeId(at as u16), incarnation).next().is_some());
        let harmed = harmed.map(|c| {
            (
                c.list,
                self.missing_beside((at, incarnation), c),
                self.bears_end_of(at, c),
            )
        });
        let harmed: Vec<_> = harmed
            .filter(|(_, missing, bears)| !missing.is_empty() || !bears)
            .collect();
        if !harmed.is_empty() {
            self.violate(format!(
                "D10: n{at} is told that it may end; lists, what is missing there beside it, and whether it can be \
                 rebuilt without it: {harmed:?}"
            ));
        }
        if let Some(governed) = self.governed.as_mut() {
            governed.truth.permitted.insert((at, incarnation, link));
        }
    }

    /// The node's own process that a connection belongs to.
    fn process_of(&self, link: LinkId) -> Option<(usize, Incarnation)> {
        let (at, incarnation) = self.governed.as_ref()?.lines.agent_of(link)?;
        let is_its = self.governed.as_ref()?.seats.get(at)?.link == Some(link);
        (is_its && self.fleet.runs(at, incarnation)).then_some((at, incarnation))
    }

    /// Positions of others that a list cannot count on.
    fn missing_beside(&self, leaver: (usize, Incarnation), list: &Configuration) -> Vec<usize> {
        let now = self.schedule.now;
        let asked = self.governed.as_ref().and_then(|g| g.seats.get(leaver.0)?.leaves_since);
        let since = asked.unwrap_or(now).max(Time(now.0.saturating_sub(RAN_WITHIN.0)));
        let is_there = |i: &usize| {
            list.positions[*i].is_some_and(|held| {
                let (at, incarnation) = (usize::from(held.tenure.node.0), held.tenure.incarnation);
                (at, incarnation) == leaver || (held.state.is_live() && self.stays(at, incarnation, since))
            })
        };
        (0..list.positions.len()).filter(|i| !is_there(i)).collect()
    }

    /// Whether the list can be rebuilt without the positions of the process alone.
    fn bears_end_of(&self, leaver: usize, list: &Configuration) -> bool {
        let own: Vec<Position> = list
            .of_node(NodeId(leaver as u16))
            .map(|(position, _)| position)
            .collect();
        let data = own.iter().filter(|position| list.is_data(**position)).count();
        let (parity, quorum) = (self.swarm.parity.into(), self.swarm.ack_quorum.into());
        is_decodable(data, own.len() - data, parity, quorum)
    }

    fn stays(&self, at: usize, incarnation: Incarnation, since: Time) -> bool {
        let Some(governed) = self.governed.as_ref() else {
            return false;
        };
        // A permission that was lost with its connection has no effect.
        let seat = governed.seats.get(at);
        let may_come = |link: LinkId| seat.is_some_and(|seat| seat.may_leave || seat.link == Some(link));
        let mut told = governed.truth.permitted.iter();
        let may_end = told.any(|(of, its, link)| (*of, *its) == (at, incarnation) && may_come(*link));
        let runs = self.is_alive(NodeId(at as u16), incarnation)
            || governed.truth.ended_at(incarnation).is_some_and(|at| at >= since);
        runs && !may_end
    }
}
