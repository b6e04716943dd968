//! The machines of a run: the processes that run on them, their disks and their records.

use crate::disks::Disk;
use crate::driver::Process;
use paritas_base::configuration::{Configuration, NodeRecord};
use paritas_base::{Incarnation, NodeId, Position, Time};
use paritas_protocol::Event;

pub(crate) struct Fleet {
    pub(crate) processes: Vec<Option<Box<Process>>>,
    /// Disks of processes that do not run. `None` for nodes that are not log nodes.
    pub(crate) disks: Vec<Option<Disk>>,
    pub(crate) records: Vec<NodeRecord>,
    /// The mutant "restart keeps its identity" (P2.1, P10.4): a process restarts with its old incarnation.
    pub(crate) keep_identity: bool,
}

impl Fleet {
    /// Machines on which no process runs yet.
    pub(crate) fn new(records: Vec<NodeRecord>, disks: Vec<Option<Disk>>, keep_identity: bool) -> Self {
        Self {
            processes: records.iter().map(|_| None).collect(),
            disks,
            records,
            keep_identity,
        }
    }

    /// The process, if it is this incarnation.
    pub(crate) fn alive(&mut self, at: usize, incarnation: Incarnation) -> Option<&mut Process> {
        self.processes[at]
            .as_deref_mut()
            .filter(|p| p.incarnation == incarnation)
    }

    pub(crate) fn incarnation(&self, at: usize) -> Option<Incarnation> {
        self.processes.get(at)?.as_ref().map(|p| p.incarnation)
    }

    pub(crate) fn is_paused(&self, at: usize, now: Time) -> bool {
        self.processes[at].as_ref().is_some_and(|p| p.paused_until > now)
    }

    /// When a stopped process handles what waits for it. `now`, if no process runs there.
    pub(crate) fn resumes_at(&self, at: usize, now: Time) -> Time {
        self.processes[at].as_deref().map_or(now, Process::resumes_at)
    }

    /// Gives a process the input of its clients, under the clock that it read at `clock_read_at`. Returns false if
    /// there is none.
    pub(crate) fn feed(&mut self, at: usize, now: Time, clock_read_at: Time) -> bool {
        let Some(process) = self.processes[at].as_mut() else {
            return false;
        };
        let ready = process.ready_inputs();
        let clock = process.clock_of(clock_read_at, now);
        for conn in &ready {
            let input = process.inputs.get(conn).cloned().unwrap_or_default();
            let (conn, bytes) = (*conn, input.as_slice());
            process.on(clock, Event::Client { conn, bytes });
            if let (Some(buffer), Some(input)) = (process.out.clients.get_mut(&conn), process.inputs.get_mut(&conn)) {
                input.drain(..core::mem::take(&mut buffer.consumed));
            }
        }
        !ready.is_empty()
    }

    /// Processes that hold no position of the list.
    pub(crate) fn free(&self, configuration: &Configuration) -> Vec<usize> {
        (0..self.processes.len())
            .filter(|i| self.processes[*i].is_some() && configuration.of_node(NodeId(*i as u16)).next().is_none())
            .collect()
    }

    /// Processes that hold one position of the list and may also hold this one.
    pub(crate) fn stand_ins(&self, configuration: &Configuration, position: Position) -> Vec<usize> {
        let fits = |i: &usize| {
            let held: Vec<_> = configuration.of_node(NodeId(*i as u16)).collect();
            let [(held, a)] = held[..] else { return false };
            let process = self.processes[*i].as_ref();
            process.is_some_and(|p| p.incarnation == a.tenure.incarnation)
                && held != position
                && (configuration.is_data(held) || configuration.is_data(position))
        };
        (0..self.processes.len()).filter(fits).collect()
    }
}
