//! Faults of processes and of paths between them. Faults of the coordinator are in `coordinator`, faults of single
//! frames in `network`.

use crate::client::{ALL, elsewhere};
use crate::events::SimEvent;
use crate::linear::{Action, Operation, Outcome, WALL_SKEW};
use crate::marks::Seen;
use crate::schedule::Schedule;
use crate::swarm::Swarm;
use crate::world::World;
use paritas_base::configuration::{Configuration, Tenure};
use paritas_base::{ListId, NodeId, Position, Span, Time};
use paritas_wire::peer::{self, Kind};

/// The kinds of faults.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Crash,
    Pause,
    Partition,
    Reset,
    Suspect,
    Flip,
    Move,
    HandOff,
    WallClock,
}

impl Schedule {
    /// Plans the next fault of a kind.
    pub(crate) fn plan(&mut self, swarm: &Swarm, fault: Fault) {
        let mean = match fault {
            Fault::Crash => swarm.crash_every,
            Fault::Pause => swarm.pause_every,
            Fault::Partition => swarm.partition_every,
            Fault::Reset => swarm.reset_every,
            Fault::Suspect => swarm.suspect_every,
            Fault::Flip => swarm.flip_every,
            Fault::Move => swarm.move_every,
            Fault::HandOff => swarm.hand_off_every,
            Fault::WallClock => swarm.wall_clock_every,
        };
        if mean.0 > 0 {
            let after = Span(self.random.below(2 * mean.0));
            self.push(after, SimEvent::Fault(fault));
        }
    }
}

impl World {
    pub(crate) fn kill(&mut self, at: usize) {
        let Some(process) = self.fleet.processes[at].take() else {
            return;
        };
        self.oracle.marks.add(&process.out.marks);
        self.oracle.counts.crashes += 1;
        let incarnation = process.incarnation;
        self.fleet.keep_disk(&mut self.schedule, at, incarnation, process.disk);
        self.schedule.log(|| format!("n{at} crashes"));
        let held = |c: &Configuration| c.held_by(NodeId(at as u16), incarnation).count();
        let most = self.committed.configurations.iter().map(held).max().unwrap_or(0);
        if most > 1 {
            self.oracle.marks.see(Seen::StandInLost);
        }
        if self.swarm.parity == 0 && most > 0 {
            // Its data is lost. In a history this is a flush at some time after now.
            self.oracle.flushes.push(Operation {
                place: None,
                begin: self.schedule.now,
                end: self.schedule.now,
                action: Action::Flush,
                outcome: Outcome::Unknown,
            });
        }
        let end = (at, incarnation);
        self.network
            .break_links_of(&mut self.schedule, &self.swarm, &self.fleet, end);
        for client in 0..self.workload.clients.len() {
            if let Some((node, theirs, conn)) = self.workload.clients[client].conn
                && usize::from(node.0) == at
                && theirs == incarnation
            {
                self.schedule
                    .push(Span::from_us(300), SimEvent::ClientLost { client, conn });
            }
        }
        self.guests_lose(at, incarnation);
        let certified = self.schedule.random.chance(self.swarm.certified);
        let detected = Span(self.schedule.random.between(1_000_000, 150_000_000));
        let restart = Span(self.schedule.random.between(1_000_000, 200_000_000));
        if self.governed.is_some() {
            self.end_seat(at, incarnation, certified, detected);
        } else if !self.fleet.keep_identity {
            self.schedule.push(
                detected,
                SimEvent::Detect {
                    at,
                    incarnation,
                    certified,
                },
            );
        }
        self.schedule.push(restart, SimEvent::Restart(at));
    }

    pub(crate) fn strike(&mut self, fault: Fault) {
        let count = self.fleet.processes.len() as u64;
        match fault {
            Fault::Crash => {
                let at = self.schedule.random.below(count) as usize;
                if self.fleet.processes[at].is_some() && self.may_lose(at) {
                    self.kill(at);
                }
            }
            Fault::Pause => {
                let at = self.schedule.random.below(count) as usize;
                let pause = Span(self.schedule.random.below(4 * self.swarm.parameters.lease.0));
                let stopped_at = self.schedule.random.chance(400_000).then_some(self.schedule.now);
                self.pause(at, pause, stopped_at);
            }
            Fault::Partition if self.schedule.random.chance(300_000) => self.split(),
            Fault::Partition => {
                let (a, b) = (
                    self.schedule.random.below(count) as usize,
                    self.schedule.random.below(count) as usize,
                );
                let until = self.schedule.now + Span(self.schedule.random.below(4 * self.swarm.parameters.lease.0));
                self.network.block(a, b, until);
                if self.schedule.random.chance(600_000) {
                    self.network.block(b, a, until);
                }
                self.schedule
                    .log(|| format!("partition n{a} -> n{b} until {} ms", until.0 / 1_000_000));
            }
            Fault::Reset => {
                let links = self.network.links();
                if !links.is_empty() {
                    let link = *self.schedule.random.pick(&links);
                    self.schedule.log(|| format!("link {link:?} breaks"));
                    self.network
                        .break_link(&mut self.schedule, &self.swarm, &self.fleet, link);
                }
            }
            Fault::Suspect => self.suspect(),
            Fault::Flip => self.flip(),
            Fault::Move => self.plan_move(),
            Fault::HandOff => self.hand_off(),
            Fault::WallClock => {
                let at = self.schedule.random.below(count) as usize;
                let wall_ms = self.schedule.random.below(WALL_SKEW.as_ms() + 1);
                if let Some(process) = self.fleet.processes[at].as_mut() {
                    process.set_wall(wall_ms);
                    self.oracle.marks.see(Seen::WallClockSet);
                    self.schedule.log(|| format!("n{at} gets its wall clock set"));
                }
            }
        }
    }

    /// A process stands still. `stopped_at`: between its reading of the clock and its input.
    pub(crate) fn pause(&mut self, at: usize, pause: Span, stopped_at: Option<Time>) {
        let until = self.schedule.now + pause;
        if let Some(process) = self.fleet.processes[at].as_mut()
            && !process.unflushed
        {
            process.paused_until = process.paused_until.max(until);
            process.stopped_at = stopped_at.filter(|_| !process.turn_open);
            self.oracle.counts.pauses += 1;
            self.schedule.log(|| format!("n{at} pauses for {} ms", pause.as_ms()));
        }
    }

    /// Cuts an owner and some other nodes off from the rest and from the coordinator, but not from clients. In most
    /// cases the owner is then replaced.
    fn split(&mut self) {
        let list = self.committed.any_list(&mut self.schedule.random);
        let x = Position(self.schedule.random.below(u64::from(self.swarm.data)) as u8);
        let Some(owner) = self
            .committed
            .configuration(list)
            .tenure(x)
            .map(|t| usize::from(t.node.0))
        else {
            return;
        };
        let mut side = vec![owner];
        for at in (0..self.fleet.processes.len()).filter(|at| *at != owner) {
            if self.schedule.random.chance(300_000) {
                side.push(at);
            }
        }
        let until = self.cut_off(side);
        for _ in 0..self.schedule.random.below(3) {
            let after = Span(self.schedule.random.below(2 * self.swarm.parameters.lease.0));
            self.schedule.push(after, SimEvent::Replace(list, x));
        }
        if self.schedule.random.chance(500_000) {
            // At about the time when the nodes are reachable again, before they learn what they missed.
            let after = Span(self.schedule.random.below(self.swarm.delay_max.0));
            self.schedule.push_at(until + after, SimEvent::Replace(list, x));
        }
    }

    /// While a position asks to become Live, an owner and other members are cut off and do not learn of it. They are
    /// replaced, the members first. The owner's successor can then ask only the new member about leases that it
    /// granted.
    pub(crate) fn split_beside(&mut self, list: ListId, asking: Position) {
        let x = Position(self.schedule.random.below(u64::from(self.swarm.data)) as u8);
        let node = |tenure: Tenure| usize::from(tenure.node.0);
        let configuration = self.committed.configuration(list);
        let asks = configuration.tenure(asking).map(node);
        let Some(owner) = configuration.tenure(x).map(node).filter(|at| Some(*at) != asks) else {
            return;
        };
        self.oracle.marks.see(Seen::SplitBeside);
        let lease = self.swarm.parameters.lease.0;
        let mut side = vec![owner];
        let members: Vec<(Position, usize)> = self
            .committed
            .configuration(list)
            .members()
            .map(|(position, a)| (position, node(a.tenure)))
            .collect();
        let mut after = 0;
        for (position, at) in members {
            if Some(at) != asks && at != owner && self.schedule.random.chance(700_000) {
                side.push(at);
                after += self.schedule.random.below(lease / 2);
                self.schedule.push(Span(after), SimEvent::Replace(list, position));
            }
        }
        self.cut_off(side);
        after += self.schedule.random.below(lease);
        self.schedule.push(Span(after), SimEvent::Replace(list, x));
    }

    /// If the frame tells a node to read a large value for its client: soon no units of it come, and its owner is
    /// replaced. The node may then send the command again only if it has changed nothing, and nothing of the reply was
    /// sent (P14.21).
    pub(crate) fn cut_at_reply(&mut self, at: usize, frame: &[u8]) {
        let may = self.swarm.cut_at_reply > 0 && !self.schedule.healing;
        if !may || peer::kind_of(frame) != Some(Kind::ReplyBody) {
            return;
        }
        let Some((header, _)) = peer::decode(frame)
            .ok()
            .filter(|_| self.schedule.random.chance(self.swarm.cut_at_reply))
        else {
            return;
        };
        let lease = self.swarm.parameters.lease.0;
        // At once, or when some units have come.
        let after = match self.schedule.random.chance(500_000) {
            true => 0,
            false => self.schedule.random.below(4 * self.swarm.delay_max.0),
        };
        let lasts = Span(self.schedule.random.between(lease, 3 * lease));
        self.schedule.push(Span(after), SimEvent::Deafen(at, lasts));
        let after = Span(after + self.schedule.random.below(lease / 2));
        let stream = header.stream;
        self.schedule.push(after, SimEvent::Replace(stream.list, stream.x));
    }

    /// Frames of other nodes do not reach this one for a time. Its own reach them, and the coordinator reaches it.
    pub(crate) fn deafen(&mut self, at: usize, lasts: Span) {
        if self.schedule.healing {
            return;
        }
        let until = self.schedule.now + lasts;
        self.schedule
            .log(|| format!("no frames reach n{at} until {} ms", until.0 / 1_000_000));
        for other in (0..self.fleet.processes.len()).filter(|other| *other != at) {
            self.network.block(other, at, until);
        }
    }

    /// Cuts these processes off from all others and from the coordinator. Returns the time at which this ends.
    fn cut_off(&mut self, side: Vec<usize>) -> Time {
        let until = self.schedule.now + Span(self.schedule.random.below(6 * self.swarm.parameters.lease.0));
        self.schedule
            .log(|| format!("{side:?} are cut off until {} ms", until.0 / 1_000_000));
        self.network.cut_off(self.fleet.processes.len(), side, until);
        self.oracle.marks.see(Seen::Split);
        until
    }

    /// Ends all faults: all processes run, and all reach each other.
    pub(crate) fn heal(&mut self) {
        self.schedule.healing = true;
        self.schedule.log(|| "faults end".into());
        self.network.heal(self.schedule.now);
        self.heal_control();
        // Nobody runs a node twice any more. A process that was superseded would not always end by itself: a store that
        // was made anew does not know that it is over, so it is told to wait.
        while let Some((at, incarnation)) = self.fleet.superseded()
            && let Some(n) = self.fleet.bring_forward(at, incarnation)
        {
            self.kill(at);
            self.fleet.put_back(at, n);
        }
        // Pauses end by themselves. Ending them early would let later events overtake those that wait for a stopped
        // process.
        for at in 0..self.fleet.processes.len() {
            if self.fleet.processes[at].is_none() {
                self.schedule.push(Span::from_ms(1), SimEvent::Restart(at));
            }
        }
        self.workload.final_reads = self.oracle.history.keys().cloned().collect();
        if self.swarm.parameters.walk_keys < 1024 {
            let other = (self.swarm.elsewhere > 0).then(|| elsewhere(ALL));
            self.workload
                .final_reads
                .splice(0..0, [ALL.to_owned()].into_iter().chain(other));
        }
    }
}
