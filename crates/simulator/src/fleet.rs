//! The machines of a run: the processes that run on them, their disks and their records.

use crate::disks::Disk;
use crate::driver::Process;
use paritas_base::configuration::{Configuration, NodeRecord};
use paritas_base::{Incarnation, NodeId, Position, Time};
use paritas_protocol::Event;

pub(crate) struct Fleet {
    /// The process of each node. If a node runs several, it is the one that counts as the node by the coordinator's
    /// records. [`Fleet::bring_forward`] exchanges it while another one handles an event.
    pub(crate) processes: Vec<Option<Box<Process>>>,
    /// Processes that were superseded by a second one of their node, and still run. `None` only while one of them is
    /// in the node's place and no other process of the node runs.
    beside: Vec<(NodeId, Option<Box<Process>>)>,
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
            beside: Vec::new(),
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

    /// Another process takes the place of the node's. The one before runs on.
    pub(crate) fn supersede(&mut self, at: usize, process: Box<Process>) {
        self.records[at].incarnation = process.incarnation;
        if let Some(former) = self.processes[at].replace(process) {
            self.beside.push((NodeId(at as u16), Some(former)));
        }
    }

    /// Puts a process that was superseded into its node's place, so that it can handle an event. Returns the number
    /// for [`Fleet::put_back`]. `None`: no such process was superseded, and nothing is changed.
    pub(crate) fn bring_forward(&mut self, at: usize, incarnation: Incarnation) -> Option<usize> {
        let is_it = |(_, process): &(NodeId, Option<Box<Process>>)| {
            process.as_ref().is_some_and(|p| p.incarnation == incarnation)
        };
        let n = self.beside.iter().position(is_it)?;
        core::mem::swap(&mut self.processes[at], &mut self.beside[n].1);
        Some(n)
    }

    /// The reverse of [`Fleet::bring_forward`]. The process may have ended meanwhile.
    pub(crate) fn put_back(&mut self, at: usize, n: usize) {
        core::mem::swap(&mut self.processes[at], &mut self.beside[n].1);
        if self.beside[n].1.is_none() {
            self.beside.remove(n);
        }
    }

    /// A process that runs and was superseded, and its node.
    pub(crate) fn superseded(&self) -> Option<(usize, Incarnation)> {
        let (node, process) = self.beside.first()?;
        Some((usize::from(node.0), process.as_ref()?.incarnation))
    }

    /// All processes that run.
    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut Process> {
        let beside = self.beside.iter_mut().filter_map(|(_, process)| process.as_deref_mut());
        self.processes.iter_mut().flatten().map(Box::as_mut).chain(beside)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Process> {
        let beside = self.beside.iter().filter_map(|(_, process)| process.as_deref());
        self.processes.iter().flatten().map(Box::as_ref).chain(beside)
    }

    /// All processes of a node that run: the one in its place, and those beside.
    pub(crate) fn of_node(&self, at: usize) -> impl Iterator<Item = &Process> {
        let of_it = self.beside.iter().filter(move |(node, _)| usize::from(node.0) == at);
        let beside = of_it.filter_map(|(_, process)| process.as_deref());
        self.processes
            .get(at)
            .and_then(Option::as_deref)
            .into_iter()
            .chain(beside)
    }

    /// This process, if it runs, in its node's place or beside.
    pub(crate) fn process(&self, at: usize, incarnation: Incarnation) -> Option<&Process> {
        self.of_node(at).find(|p| p.incarnation == incarnation)
    }

    pub(crate) fn runs(&self, at: usize, incarnation: Incarnation) -> bool {
        self.process(at, incarnation).is_some()
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
