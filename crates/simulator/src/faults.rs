//! Faults of processes and of paths between them. Faults of the coordinator are in `coordinator`, faults of single
//! frames in `network`.

use crate::client::ALL;
use crate::events::SimEvent;
use crate::linear::{Action, Operation, Outcome, WALL_SKEW};
use crate::marks::Seen;
use crate::world::World;
use paritas_base::configuration::{Configuration, Tenure};
use paritas_base::{ListId, NodeId, Position, Span, Time};
use paritas_protocol::LinkId;

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

impl World {
    pub(crate) fn kill(&mut self, at: usize) {
        let Some(process) = self.processes[at].take() else {
            return;
        };
        self.marks.add(&process.out.marks);
        self.counts.crashes += 1;
        let incarnation = self.records[at].incarnation;
        self.keep_disk(at, incarnation, process.disk);
        self.log(|| format!("n{at} crashes"));
        let held = |c: &Configuration| c.held_by(NodeId(at as u16), incarnation).count();
        let most = self.configurations.iter().map(held).max().unwrap_or(0);
        if most > 1 {
            self.marks.see(Seen::StandInLost);
        }
        if self.swarm.parity == 0 && most > 0 {
            // Its data is lost. In a history this is a flush at some time after now.
            self.flushes.push(Operation {
                place: None,
                begin: self.now,
                end: self.now,
                action: Action::Flush,
                outcome: Outcome::Unknown,
            });
        }
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
            if let Some((node, theirs, conn)) = self.clients[client].conn
                && usize::from(node.0) == at
                && theirs == incarnation
            {
                self.push(Span::from_us(300), SimEvent::ClientLost { client, conn });
            }
        }
        let certified = self.random.chance(self.swarm.certified);
        let detected = Span(self.random.between(1_000_000, 150_000_000));
        let restart = Span(self.random.between(1_000_000, 200_000_000));
        if self.governed.is_some() {
            self.end_seat(at, incarnation, certified, detected);
        } else if !self.keep_identity {
            self.push(
                detected,
                SimEvent::Detect {
                    at,
                    incarnation,
                    certified,
                },
            );
        }
        self.push(restart, SimEvent::Restart(at));
    }

    pub(crate) fn plan(&mut self, fault: Fault) {
        let mean = match fault {
            Fault::Crash => self.swarm.crash_every,
            Fault::Pause => self.swarm.pause_every,
            Fault::Partition => self.swarm.partition_every,
            Fault::Reset => self.swarm.reset_every,
            Fault::Suspect => self.swarm.suspect_every,
            Fault::Flip => self.swarm.flip_every,
            Fault::Move => self.swarm.move_every,
            Fault::HandOff => self.swarm.hand_off_every,
            Fault::WallClock => self.swarm.wall_clock_every,
        };
        if mean.0 > 0 {
            let after = Span(self.random.below(2 * mean.0));
            self.push(after, SimEvent::Fault(fault));
        }
    }

    pub(crate) fn strike(&mut self, fault: Fault) {
        let count = self.processes.len() as u64;
        match fault {
            Fault::Crash => {
                let at = self.random.below(count) as usize;
                if self.processes[at].is_some() && self.may_lose(at) {
                    self.kill(at);
                }
            }
            Fault::Pause => {
                let at = self.random.below(count) as usize;
                let pause = Span(self.random.below(4 * self.swarm.parameters.lease.0));
                let until = self.now + pause;
                let stopped_at = self.random.chance(400_000).then_some(self.now);
                if let Some(process) = self.processes[at].as_mut()
                    && !process.unflushed
                {
                    process.paused_until = process.paused_until.max(until);
                    process.stopped_at = stopped_at.filter(|_| !process.turn_open);
                    self.counts.pauses += 1;
                    self.log(|| format!("n{at} pauses for {} ms", pause.as_ms()));
                }
            }
            Fault::Partition if self.random.chance(300_000) => self.split(),
            Fault::Partition => {
                let (a, b) = (self.random.below(count) as usize, self.random.below(count) as usize);
                let until = self.now + Span(self.random.below(4 * self.swarm.parameters.lease.0));
                self.blocked.insert((a, b), until);
                if self.random.chance(600_000) {
                    self.blocked.insert((b, a), until);
                }
                self.log(|| format!("partition n{a} -> n{b} until {} ms", until.0 / 1_000_000));
            }
            Fault::Reset => {
                let mut links: Vec<LinkId> = self.links.keys().copied().collect();
                links.sort();
                if !links.is_empty() {
                    let link = *self.random.pick(&links);
                    self.log(|| format!("link {link:?} breaks"));
                    self.break_link(link);
                }
            }
            Fault::Suspect => self.suspect(),
            Fault::Flip => self.flip(),
            Fault::Move => self.plan_move(),
            Fault::HandOff => self.hand_off(),
            Fault::WallClock => {
                let at = self.random.below(count) as usize;
                let wall_ms = self.random.below(WALL_SKEW.as_ms() + 1);
                if let Some(process) = self.processes[at].as_mut() {
                    process.set_wall(wall_ms);
                    self.marks.see(Seen::WallClockSet);
                    self.log(|| format!("n{at} gets its wall clock set"));
                }
            }
        }
    }

    /// Cuts an owner and some other nodes off from the rest and from the coordinator, but not from clients. In most
    /// cases the owner is then replaced.
    fn split(&mut self) {
        let list = self.any_list();
        let x = Position(self.random.below(u64::from(self.swarm.data)) as u8);
        let Some(owner) = self.configuration(list).tenure(x).map(|t| usize::from(t.node.0)) else {
            return;
        };
        let mut side = vec![owner];
        for at in (0..self.processes.len()).filter(|at| *at != owner) {
            if self.random.chance(300_000) {
                side.push(at);
            }
        }
        let until = self.cut_off(side);
        for _ in 0..self.random.below(3) {
            let after = Span(self.random.below(2 * self.swarm.parameters.lease.0));
            self.push(after, SimEvent::Replace(list, x));
        }
        if self.random.chance(500_000) {
            // At about the time when the nodes are reachable again, before they learn what they missed.
            let after = Span(self.random.below(self.swarm.delay_max.0));
            self.push_at(until + after, SimEvent::Replace(list, x));
        }
    }

    /// While a position asks to become Live, an owner and other members are cut off and do not learn of it. They are
    /// replaced, the members first. The owner's successor can then ask only the new member about leases that it
    /// granted.
    pub(crate) fn split_beside(&mut self, list: ListId, asking: Position) {
        let x = Position(self.random.below(u64::from(self.swarm.data)) as u8);
        let node = |tenure: Tenure| usize::from(tenure.node.0);
        let configuration = self.configuration(list);
        let asks = configuration.tenure(asking).map(node);
        let Some(owner) = configuration.tenure(x).map(node).filter(|at| Some(*at) != asks) else {
            return;
        };
        self.marks.see(Seen::SplitBeside);
        let lease = self.swarm.parameters.lease.0;
        let mut side = vec![owner];
        let members: Vec<(Position, usize)> = self
            .configuration(list)
            .members()
            .map(|(position, a)| (position, node(a.tenure)))
            .collect();
        let mut after = 0;
        for (position, at) in members {
            if Some(at) != asks && at != owner && self.random.chance(700_000) {
                side.push(at);
                after += self.random.below(lease / 2);
                self.push(Span(after), SimEvent::Replace(list, position));
            }
        }
        self.cut_off(side);
        after += self.random.below(lease);
        self.push(Span(after), SimEvent::Replace(list, x));
    }

    /// Cuts these processes off from all others and from the coordinator. Returns the time at which this ends.
    fn cut_off(&mut self, side: Vec<usize>) -> Time {
        let until = self.now + Span(self.random.below(6 * self.swarm.parameters.lease.0));
        for a in 0..self.processes.len() {
            for b in (0..a).filter(|b| side.contains(&a) != side.contains(b)) {
                self.blocked.insert((a, b), until);
                self.blocked.insert((b, a), until);
            }
        }
        self.log(|| format!("{side:?} are cut off until {} ms", until.0 / 1_000_000));
        self.cut_off = (side, until);
        self.marks.see(Seen::Split);
        until
    }

    /// Whether the coordinator cannot reach a process.
    pub(crate) fn is_cut_off(&self, at: usize) -> bool {
        self.now < self.cut_off.1 && self.cut_off.0.contains(&at)
    }

    /// Ends all faults: all processes run, and all reach each other.
    pub(crate) fn heal(&mut self) {
        self.healing = true;
        self.log(|| "faults end".into());
        self.blocked.clear();
        self.cut_off.1 = self.now;
        self.heal_control();
        // Pauses end by themselves. Ending them early would let later events overtake those that wait for a stopped
        // process.
        for at in 0..self.processes.len() {
            if self.processes[at].is_none() {
                self.push(Span::from_ms(1), SimEvent::Restart(at));
            }
        }
        self.final_reads = self.history.keys().cloned().collect();
        if self.swarm.parameters.walk_keys < 1024 {
            self.final_reads.insert(0, ALL.to_owned());
        }
    }
}
