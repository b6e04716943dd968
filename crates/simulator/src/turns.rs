//! A process's turns: events go into its machine, and its output is written, as in the driver of `io`.

use crate::coordinator::describe;
use crate::driver::Process;
use crate::events::SimEvent;
use crate::linear::WALL_SKEW;
use crate::world::World;
use paritas_base::configuration::{ClusterRecord, NodeState};
use paritas_base::{ConnId, Incarnation, Span, Time, formats};
use paritas_frontend::Node;
use paritas_protocol::{Event, Identity, Parameters};
use paritas_wire::peer;

impl World {
    pub(crate) fn start(&mut self, at: usize) {
        if self.fleet.processes[at].is_some() || self.supervised_runs(at) {
            return;
        }
        if self.schedule.now > Time(0) && !self.fleet.keep_identity {
            self.fleet.records[at].incarnation = Incarnation(self.schedule.random.next_u64());
        }
        self.fleet.records[at].state = NodeState::Up;
        let mut process = self.make_process(at, self.fleet.records[at].incarnation);
        if let (Some(disk), Some(settings)) = (self.fleet.disks[at].take(), self.swarm.disk) {
            let clock = process.clock(self.schedule.now);
            let log = disk.open(settings, process.incarnation);
            process.node.replica_mut().set_log(log, clock.mono);
            process.disk = Some(disk);
        }
        self.fleet.processes[at] = Some(process);
        self.schedule.log(|| format!("n{at} starts"));
        if self.governed.is_some() {
            return self.start_seat(at);
        }
        for other in 0..self.fleet.processes.len() {
            let delay = self.schedule.delay(&self.swarm);
            self.schedule.push(delay, SimEvent::Nodes { at: other });
        }
        for list in self.committed.lists() {
            let configuration = Box::new(self.committed.configuration(list).clone());
            let delay = self.schedule.delay(&self.swarm);
            self.schedule.push(delay, SimEvent::Push { at, configuration });
        }
    }

    /// A process of a node, with clocks of its own.
    pub(crate) fn make_process(&mut self, at: usize, incarnation: Incarnation) -> Box<Process> {
        let identity = Identity {
            node: self.fleet.records[at].id,
            incarnation,
            // Its agent tells it of a newer version.
            cluster: ClusterRecord {
                active_version: formats::HIGHEST,
                ..self.committed.cluster.clone()
            },
            seed: self.schedule.random.next_u64(),
            maxmemory_bytes: self.swarm.maxmemory_bytes,
        };
        let parameters = Parameters {
            version_max: self.may_speak(at, incarnation),
            large_from: match self.swarm.differs && at % 2 == 1 {
                true => usize::MAX,
                false => self.swarm.parameters.large_from,
            },
            ..self.swarm.parameters.clone()
        };
        let node = Node::new(identity, parameters);
        let rate = 1_000_000 + self.schedule.random.between(0, 2 * self.swarm.drift_ppm) - self.swarm.drift_ppm;
        let offset = self.schedule.random.below(1 << 40);
        let wall_ms = self.schedule.random.below(WALL_SKEW.as_ms() + 1);
        // Boxed: it is moved in every turn (`flush`), and a node is large.
        Box::new(Process::new(node, rate, offset, wall_ms))
    }

    /// Gives a process one event. If the process is stopped, the event waits.
    pub(crate) fn turn(
        &mut self,
        at: usize,
        incarnation: Incarnation,
        event: Event<'_>,
        again: impl FnOnce() -> SimEvent,
    ) {
        let now = self.schedule.now;
        let Some(process) = self.fleet.processes[at]
            .as_mut()
            .filter(|p| p.incarnation == incarnation)
        else {
            return;
        };
        if process.paused_until > now {
            let until = process.resumes_at();
            self.schedule.push_at(until, again());
            return;
        }
        if self.schedule.verbose {
            let text = match &event {
                Event::Frame { bytes, .. } => peer::decode(bytes)
                    .map_or_else(|e| e.to_string(), |(h, m)| format!("{} e{} {m:?}", h.stream, h.epoch.0)),
                Event::Configuration(c) => describe(c),
                other => format!("{other:?}"),
            };
            self.schedule
                .log(|| format!("n{at} <- {}", text.chars().take(400).collect::<String>()));
        }
        let Some(process) = self.fleet.processes[at].as_mut() else {
            return;
        };
        let clock = process.clock(now);
        process.ran_at = now;
        process.on(clock, event);
        // A driver gives many events before it ends the turn and writes.
        if process.turn_open {
            return;
        }
        if !self.schedule.healing && self.schedule.random.chance(self.swarm.batch) {
            let wait = Span(self.schedule.random.below(400_000));
            if let Some(process) = self.fleet.processes[at].as_mut() {
                process.turn_open = true;
            }
            self.schedule.push(wait, SimEvent::TurnEnd(at, incarnation));
            return;
        }
        self.end_turn(at, incarnation);
    }

    pub(crate) fn end_turn(&mut self, at: usize, incarnation: Incarnation) {
        let now = self.schedule.now;
        let Some(process) = self.fleet.processes[at].as_mut() else {
            return;
        };
        process.turn_open = false;
        let clock = process.clock(now);
        process.on(clock, Event::TurnEnd);
        self.oracle.forget_flip(&self.fleet, at);
        self.feed_resumed(at);
        self.after_turn(at);
        let Some(process) = self.fleet.processes[at].as_mut() else {
            return;
        };
        // The process may be stopped between the machine's turn and the driver's writes.
        if !self.schedule.healing && self.swarm.pause_every.0 > 0 && self.schedule.random.chance(2_000) {
            let pause = Span(self.schedule.random.below(3 * self.swarm.parameters.lease.0));
            (process.paused_until, process.stopped_at) = (now + pause, None);
            process.unflushed = true;
            self.oracle.counts.pauses += 1;
            self.schedule
                .log(|| format!("n{at} pauses before writing for {} ms", pause.as_ms()));
            self.schedule.push(pause, SimEvent::Flush(at, incarnation));
        } else {
            self.flush(at);
        }
    }

    /// Processes the input of clients whose stall has ended, in this turn or soon after.
    fn feed_resumed(&mut self, at: usize) {
        let now = self.schedule.now;
        for _ in 0..4 {
            if !self.fleet.feed(at, now, now) {
                return;
            }
            if let Some(process) = self.fleet.processes[at].as_mut() {
                process.on(process.clock(now), Event::TurnEnd);
            }
        }
        let Some(process) = self.fleet.processes[at].as_mut() else {
            return;
        };
        if !process.ready_inputs().is_empty() {
            let soon = now + Span::from_us(50);
            process.timer_at = Some(soon);
            let incarnation = process.incarnation;
            self.schedule.push_at(soon, SimEvent::Timer(at, incarnation));
        }
    }

    /// Writes a process's output as the driver does, after reading its clock again.
    pub(crate) fn flush(&mut self, at: usize) {
        let Some(mut process) = self.fleet.processes[at].take() else {
            return;
        };
        process.unflushed = false;
        let fresh = process.clock(self.schedule.now).mono;
        let links = process.out.take_ready_links();
        for link in &links {
            let link = *link;
            let Some(buffer) = process.out.ready(link) else {
                continue;
            };
            let mut bytes = core::mem::take(&mut buffer.bytes);
            if buffer.deadline.take().is_some_and(|d| fresh >= d) {
                process.out.forget(link);
                self.schedule
                    .log(|| format!("n{at}: output for {link:?} is past its deadline"));
                self.network
                    .break_link(&mut self.schedule, &self.swarm, &self.fleet, link);
                continue;
            }
            self.network
                .send_frames(&mut self.schedule, &self.swarm, &self.fleet, at, link, &bytes);
            bytes.clear();
            buffer.bytes = bytes;
        }
        if let Some(kind) = self.network.too_new.take() {
            self.violate(format!("D13: n{at} sends {kind:?}, and its version is not active"));
        }
        process.out.recycle(links);
        let conns: Vec<ConnId> = process.out.clients.keys().copied().collect();
        for conn in conns {
            let Some(buffer) = process.out.clients.get_mut(&conn) else {
                continue;
            };
            let client = self
                .workload
                .clients
                .iter()
                .position(|c| c.conn.is_some_and(|(_, _, id)| id == conn));
            let guest = self.workload.guest_of(conn);
            let is_unknown = client.is_none() && guest.is_none();
            if buffer.deadline.take().is_some_and(|d| fresh >= d) || is_unknown {
                process.out.clients.remove(&conn);
                process.inputs.remove(&conn);
                let clock = process.clock(self.schedule.now);
                process.on(clock, Event::ClientDown { conn });
                if let Some(client) = client {
                    self.schedule
                        .push(Span::from_us(200), SimEvent::ClientLost { client, conn });
                }
                if let Some((guest, link)) = guest {
                    self.schedule
                        .push(Span::from_us(200), SimEvent::GuestLost { guest, link });
                }
                continue;
            }
            if buffer.released == 0 && !buffer.close {
                continue;
            }
            let released = core::mem::take(&mut buffer.released);
            let bytes: Vec<u8> = buffer.bytes.drain(..released).collect();
            let close = buffer.close;
            if let Some((guest, link)) = guest {
                self.workload
                    .reply_to_guest(&mut self.schedule, &self.swarm, (guest, link), bytes, close);
                continue;
            }
            let Some(client) = client else { continue };
            let delay = self.schedule.delay(&self.swarm);
            let arrives = (self.schedule.now + delay).max(self.workload.clients[client].last + Span(1));
            self.workload.clients[client].last = arrives;
            if !bytes.is_empty() {
                self.network.sent.add([self.schedule.now.0, at as u64, conn.0], &bytes);
                self.schedule
                    .log(|| format!("n{at} -> {conn:?} {:?}", String::from_utf8_lossy(&bytes)));
                self.schedule
                    .push_at(arrives, SimEvent::ClientReads { client, conn, bytes });
            }
            if close {
                self.schedule
                    .push_at(arrives + Span(1), SimEvent::ClientLost { client, conn });
            }
        }
        for link in core::mem::take(&mut process.out.closed) {
            self.network
                .break_link(&mut self.schedule, &self.swarm, &self.fleet, link);
        }
        for (node, channel) in core::mem::take(&mut process.out.dials) {
            let target = self.fleet.incarnation(usize::from(node.0));
            let from = (at, process.incarnation);
            self.network
                .dial(&mut self.schedule, &self.swarm, from, (node, target), channel);
        }
        for proposal in core::mem::take(&mut process.out.proposals) {
            if self.governed.is_some() {
                self.propose_to_agent(at, process.incarnation, proposal);
            } else {
                self.on_proposal(at, proposal);
            }
        }
        if let Some(reason) = process.out.halted.take() {
            self.violate(format!("n{at} halts: {reason}"));
        }
        if let Some(local) = process.node.next_deadline() {
            let due = process.true_time(local).max(self.schedule.now + Span(1_000));
            if process.timer_at.is_none_or(|t| due < t) {
                process.timer_at = Some(due);
                self.schedule.push_at(due, SimEvent::Timer(at, process.incarnation));
            }
        }
        self.fleet.processes[at] = Some(process);
        self.fleet.begin_disk_work(&mut self.schedule, &self.swarm, at);
    }
}
