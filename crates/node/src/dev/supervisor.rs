//! The loop of `dev`: it starts processes, certifies their ends, and starts them again.

use super::children::{self, Child, Exit, Who};
use super::view::View;
use super::{DevSettings, Plan, Ports};
use crate::connection::Login;
use crate::line::{self, Arrived, Line, Unknown};
use crate::{Failure, secret, status};
use paritas_base::{Incarnation, NodeId, SLOT_COUNT};
use paritas_control::message::{
    MESSAGE_VERSION, TO_AGENT_BYTES_MAX, TO_COORDINATOR_BYTES_MAX, ToAgent, ToCoordinator, decode, encode,
};
use paritas_control::status::Status;
use paritas_io::door::{Door, SharedSecrets};
use paritas_io::{entropy, signals};
use paritas_wire::command::slot;
use paritas_wire::greeting::{Process, Role};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait of the loop for an event.
const TICK: Duration = Duration::from_millis(20);
/// A process that ends sooner after its start has failed early: it is started again only after a wait.
const WELL: Duration = Duration::from_secs(2);
/// The first and the longest of these waits. Each early end in a row doubles the wait.
const WAIT_MIN: Duration = Duration::from_millis(100);
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Time in which the coordinator must prove who it is.
const CALL_TIMEOUT: Duration = Duration::from_secs(1);
/// Time that the start of the cluster may take.
const START: Duration = Duration::from_secs(60);
/// Time that processes have to end by themselves before they are killed.
const FAREWELL: Duration = Duration::from_secs(2);
/// Most ends of incarnations that wait for the coordinator's confirmation.
const ENDS_MAX: usize = 256;
/// The same defaults as in a cluster without `dev`. They do no harm on a busy machine, because peers vote before a
/// silent node is replaced.
const SUSPICION_MS: u32 = 1_000;
const LEASE_MS: u32 = 2_000;
/// In a wide scheme each node asks nearly all others for leases. So leases get longer with the square of the number of
/// nodes, in milliseconds a pair: a machine with a hundred nodes needs time for other work too.
const LEASE_MS_PER_PAIR: u32 = 3;

/// Runs a cluster until Ctrl-C.
pub fn run(settings: &DevSettings) -> Result<(), Failure> {
    let plan = Plan::new(settings)?;
    let ports = Ports::reserve(&plan)?;
    let dir = Dir::make(plan.dir.as_deref())?;
    signals::watch_stop();
    let mut view = View::new();
    view.plan(&plan, &dir.path);
    let (events, inbox) = channel();
    let mut supervisor = Supervisor {
        started: Instant::now(),
        coordinator: None,
        nodes: (0..plan.count()).map(|_| Slot::default()).collect(),
        failures: 0,
        restarts: Vec::new(),
        ready: false,
        ends: Vec::new(),
        link: None,
        calls: 0,
        is_calling: false,
        secrets: SharedSecrets::default(),
        plan,
        ports,
        dir: dir.path.clone(),
        view,
        events,
    };
    let outcome = supervisor.start(&inbox).and_then(|()| supervisor.watch(&inbox));
    supervisor.end(&inbox);
    outcome
}

/// The directory of a cluster. A temporary one is removed at the end.
struct Dir {
    path: PathBuf,
    temporary: bool,
}

impl Dir {
    fn make(given: Option<&Path>) -> Result<Self, Failure> {
        let path = given.map_or_else(
            || std::env::temp_dir().join(format!("paritas-{}", std::process::id())),
            Path::to_path_buf,
        );
        let failed = |error: std::io::Error| Failure(format!("{}: {error}", path.display()));
        std::fs::create_dir_all(&path).map_err(failed)?;
        let dir = Self {
            path: path.clone(),
            temporary: given.is_none(),
        };
        // Each start makes a new cluster: the nodes of an earlier one have ended, and their data is lost.
        match std::fs::remove_file(store_path(&path)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(dir),
        }
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        if self.temporary {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

fn store_path(dir: &Path) -> PathBuf {
    dir.join("coordinator.redb")
}

fn secret_path(dir: &Path) -> PathBuf {
    dir.join("secret")
}

enum Event {
    Exit(Exit),
    /// The coordinator has proven who it is, or does not answer.
    Called(u64, Result<TcpStream, Unknown>),
    Link(u64, Arrived),
    /// A status from the watcher, and whether every owner serves.
    Seen(Box<Status>, bool),
}

#[derive(Default)]
struct Slot {
    child: Option<Child>,
    incarnation: Option<Incarnation>,
    failures: u32,
}

struct Supervisor {
    started: Instant,
    plan: Plan,
    ports: Ports,
    dir: PathBuf,
    view: View,
    coordinator: Option<Child>,
    nodes: Vec<Slot>,
    /// Number of early ends of the coordinator in a row.
    failures: u32,
    /// Processes to start again, and when.
    restarts: Vec<(Instant, Who)>,
    /// Whether all keys were served at some time. From then on the cluster may hold data.
    ready: bool,
    /// Incarnations that have certainly ended, until the coordinator confirms that it has noted the end.
    ends: Vec<(NodeId, Incarnation)>,
    link: Option<Line>,
    /// Number of calls of the coordinator; the last one's is the link's.
    calls: u64,
    is_calling: bool,
    secrets: SharedSecrets,
    events: Sender<Event>,
}

impl Supervisor {
    fn start(&mut self, inbox: &Receiver<Event>) -> Result<(), Failure> {
        let create = [self.coordinator_arguments(), vec!["--create".into()]].concat();
        children::complete(Who::Coordinator, &create, &self.dir)?;
        let secrets = secret::read(&secret_path(&self.dir)).map_err(Failure)?;
        self.secrets.replace(secrets);
        self.start_process(Who::Coordinator)?;
        let until = Instant::now() + START;
        while self.link.is_none() {
            self.connect();
            if let Ok(event) = inbox.recv_timeout(TICK) {
                match event {
                    Event::Called(call, called) => self.on_called(call, called),
                    Event::Exit(exit) => self.on_exit(&exit)?,
                    Event::Link(..) | Event::Seen(..) => {}
                }
            }
            if signals::stop_requested() {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(self.not_up(Who::Coordinator));
            }
        }
        for node in 0..self.plan.count() {
            self.start_process(Who::Node(node))?;
        }
        let pids = self.pids();
        let coordinator = self.coordinator.as_ref().map_or(0, |child| child.pid);
        self.view.nodes(&self.plan, &self.ports, &pids, coordinator);
        self.start_watcher()
    }

    fn watch(&mut self, inbox: &Receiver<Event>) -> Result<(), Failure> {
        let started = self.started;
        while !signals::stop_requested() {
            match inbox.recv_timeout(TICK) {
                Ok(Event::Exit(exit)) => self.on_exit(&exit)?,
                Ok(Event::Called(call, called)) => self.on_called(call, called),
                Ok(Event::Link(call, Arrived::Down)) if call == self.calls => self.link = None,
                Ok(Event::Link(_, Arrived::Down)) => {}
                Ok(Event::Link(_, Arrived::Frame(frame))) => {
                    if let Ok(ToAgent::ExitNoted { node, incarnation }) = decode(&frame, TO_AGENT_BYTES_MAX) {
                        self.ends.retain(|end| *end != (node, incarnation));
                    }
                }
                Ok(Event::Seen(status, serving)) => {
                    if !self.ready && serving {
                        self.ready = true;
                        let pids = self.pids();
                        self.view.ready(&self.plan, &pids, started.elapsed());
                    }
                    if self.ready {
                        self.view.status(&status);
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            if !self.ready && started.elapsed() > START {
                return Err(Failure(format!(
                    "the cluster was not ready within {} s; see the logs in {}",
                    START.as_secs(),
                    self.dir.display()
                )));
            }
            if self.link.is_none() {
                self.connect();
            }
            self.start_due()?;
        }
        Ok(())
    }

    /// Handles the end of a process: first certifies it, then starts the next process.
    fn on_exit(&mut self, exit: &Exit) -> Result<(), Failure> {
        let Some((child, failures)) = self.take(exit.pid) else {
            return Ok(());
        };
        let who = child.who;
        self.certify(who);
        if !self.ready && exit.status.code().is_some() {
            return Err(self.not_up(who));
        }
        let wait = if child.started.elapsed() >= WELL {
            self.note_failures(who, 0);
            Duration::ZERO
        } else {
            self.note_failures(who, failures + 1);
            wait_after(failures)
        };
        let said = match exit.status.code() {
            Some(code) if code != 0 => format!(" ({})", children::last_log_line(&self.dir, who)),
            _ => String::new(),
        };
        self.view.line(&format!(
            "{who} (pid {}) has ended with {}{said}; starting it again",
            exit.pid,
            exit.reason()
        ));
        self.restarts.push((Instant::now() + wait, who));
        self.start_due()
    }

    /// Reports to the coordinator that the current incarnation of a node has ended, or never started.
    fn certify(&mut self, who: Who) {
        if let Who::Node(node) = who
            && let Some(incarnation) = self.nodes[usize::from(node)].incarnation.take()
        {
            let node = NodeId(node);
            if self.ends.len() == ENDS_MAX {
                self.ends.remove(0);
            }
            self.ends.push((node, incarnation));
            self.tell(&ToCoordinator::Exited { node, incarnation });
        }
    }

    /// Starts the processes that are due. Once the cluster may hold data, a process that cannot be started is no reason
    /// to end the others.
    fn start_due(&mut self) -> Result<(), Failure> {
        let now = Instant::now();
        while let Some(at) = self.restarts.iter().position(|(due, _)| *due <= now) {
            let (_, who) = self.restarts.swap_remove(at);
            match self.start_process(who) {
                Err(failure) if self.ready => {
                    self.certify(who);
                    let failures = self.failures_of(who).max(1);
                    self.note_failures(who, failures + 1);
                    let wait = wait_after(failures);
                    self.view
                        .line(&format!("{failure}; trying again in {:.1} s", wait.as_secs_f32()));
                    self.restarts.push((now + wait, who));
                }
                outcome => outcome?,
            }
        }
        Ok(())
    }

    fn start_process(&mut self, who: Who) -> Result<(), Failure> {
        let arguments = match who {
            Who::Coordinator => self.coordinator_arguments(),
            Who::Node(node) => {
                let incarnation =
                    Incarnation(entropy::random_u64().map_err(|error| Failure(format!("no random numbers: {error}")))?);
                self.nodes[usize::from(node)].incarnation = Some(incarnation);
                // Before the process runs: only this supervisor may certify this incarnation's end (P10.4).
                self.tell(&ToCoordinator::Supervise {
                    node: NodeId(node),
                    incarnation,
                });
                self.node_arguments(node, incarnation)
            }
        };
        let events = self.events.clone();
        let child = children::start(who, &arguments, &self.dir, move |exit| {
            let _ = events.send(Event::Exit(exit));
        })?;
        match who {
            Who::Coordinator => self.coordinator = Some(child),
            Who::Node(node) => self.nodes[usize::from(node)].child = Some(child),
        }
        Ok(())
    }

    fn coordinator_arguments(&self) -> Vec<String> {
        let plan = &self.plan;
        let mut arguments = vec!["coordinator".into(), "--supervised".into()];
        let mut set = |key: &str, value: String| arguments.extend([format!("--{key}"), value]);
        set("listen", self.ports.coordinator().to_string());
        set("store", store_path(&self.dir).display().to_string());
        set("secret-file", secret_path(&self.dir).display().to_string());
        set("scheme", plan.scheme.to_string());
        set("ack-quorum", plan.ack_quorum.to_string());
        set("lost-policy", plan.lost_policy.to_string());
        set("one-slot", plan.one_slot.to_string());
        set("slow-removal-ms", plan.slow_removal_ms.to_string());
        set("nodes", plan.members.to_string());
        set("log-nodes", plan.log_nodes.to_string());
        set("spares", plan.spares.to_string());
        set("memory", plan.memory.0.to_string());
        set("chunk", plan.chunk.0.to_string());
        let longer = (LEASE_MS_PER_PAIR * u32::from(plan.count()).pow(2) / LEASE_MS).max(1);
        set("lease-ms", (LEASE_MS * longer).to_string());
        set("suspicion-ms", (SUSPICION_MS * longer).to_string());
        arguments
    }

    fn node_arguments(&self, node: u16, incarnation: Incarnation) -> Vec<String> {
        let plan = &self.plan;
        let mut arguments = vec!["node".into(), "--supervised".into()];
        let mut set = |key: &str, value: String| arguments.extend([format!("--{key}"), value]);
        set("incarnation", incarnation.to_string());
        set("id", node.to_string());
        set("port", plan.any_address(node).port().to_string());
        set("cluster-port", plan.cluster_address(node).port().to_string());
        set("memcached-port", plan.memcached_address(node).port().to_string());
        set("peer-port", self.ports.peer(node).port().to_string());
        set("memory", plan.memory.0.to_string());
        set("maxmemory-policy", plan.policy.to_string());
        set("reads", plan.reads.to_string());
        set("log-assist", plan.log_assist.to_string());
        set("redundancy-rules", plan.class_rules.to_string());
        set("redundancy-hotness", plan.hotness.to_string());
        set("client-coding", plan.client_coding.to_string());
        set("coordinator", self.ports.coordinator().to_string());
        set("secret-file", secret_path(&self.dir).display().to_string());
        if plan.is_log_node(node) {
            set("log-dir", self.log_dir(node).display().to_string());
            set("log-size", plan.log_size.0.to_string());
        } else {
            set("spare", plan.is_spare(node).to_string());
        }
        if let Some(file) = &plan.password_file {
            set("password-file", file.display().to_string());
        }
        let numbers = [
            ("scrub-rate", plan.scrub_rate),
            ("rebuild-rate", plan.rebuild_rate),
            ("large-from", plan.large_from),
        ];
        for (name, number) in numbers {
            if let Some(number) = number {
                set(name, number.0.to_string());
            }
        }
        arguments
    }

    /// Directory for the parity of a log node. By default it is in the directory of the process logs, and is removed
    /// with it if that is temporary.
    fn log_dir(&self, node: u16) -> PathBuf {
        let given = self.plan.log_dir.as_ref().unwrap_or(&self.dir);
        given.join(format!("parity-{node}"))
    }

    /// Calls the coordinator on a thread of its own: it may be stopped, and ends of processes must be seen meanwhile.
    fn connect(&mut self) {
        if self.is_calling {
            return;
        }
        let Ok(mut stream) = TcpStream::connect_timeout(&self.ports.coordinator(), TICK * 5) else {
            return;
        };
        self.calls += 1;
        let (call, events) = (self.calls, self.events.clone());
        let version = MESSAGE_VERSION.into();
        let door = Door::new(Role::Supervisor, Process::NONE, version, self.secrets.clone());
        let run = move || {
            let called = line::call(&mut stream, &door, call, CALL_TIMEOUT);
            let _ = events.send(Event::Called(call, called.map(|_| stream)));
        };
        self.is_calling = thread::Builder::new().name("call".into()).spawn(run).is_ok();
    }

    /// Reports everything again: the coordinator may be a new process, and may have missed messages.
    fn on_called(&mut self, call: u64, called: Result<TcpStream, Unknown>) {
        self.is_calling = false;
        let events = self.events.clone();
        let tell = move |arrived| events.send(Event::Link(call, arrived)).is_ok();
        let line = called.and_then(|stream| Ok(Line::start(stream, TO_AGENT_BYTES_MAX, tell)?));
        let line = match line {
            Ok(line) => line,
            Err(Unknown::Refused(reason)) => return self.view.line(&format!("the coordinator: {reason}")),
            // The next tick tries again.
            Err(Unknown::Io(_)) => return,
        };
        self.link = Some(line);
        for (node, incarnation) in self.ends.clone() {
            self.tell(&ToCoordinator::Supervise { node, incarnation });
            self.tell(&ToCoordinator::Exited { node, incarnation });
        }
        let running = (0_u16..)
            .zip(&self.nodes)
            .filter_map(|(node, slot)| Some((NodeId(node), slot.incarnation?)));
        for (node, incarnation) in running {
            self.tell(&ToCoordinator::Supervise { node, incarnation });
        }
    }

    /// Sends a message if there is a link. Otherwise `connect` reports everything later.
    fn tell(&self, message: &ToCoordinator) {
        if let Some(link) = &self.link
            // A certificate is a few bytes, far below the limit.
            && let Ok(frame) = encode(message, TO_COORDINATOR_BYTES_MAX)
        {
            link.send(frame);
        }
    }

    /// Asks for the cluster's status on a thread of its own: a slow answer must not delay a certificate.
    fn start_watcher(&self) -> Result<(), Failure> {
        /// Longest wait for one answer.
        const STATUS_TIMEOUT: Duration = Duration::from_secs(1);
        /// Time between two questions once all owners serve.
        const STATUS_INTERVAL: Duration = Duration::from_secs(1);
        let password = self.plan.password()?;
        let login = |node| Login {
            node: self.plan.any_address(node),
            password: password.clone(),
        };
        let nodes: Vec<Login> = (0..self.plan.count()).map(login).collect();
        let events = self.events.clone();
        let data = usize::from(self.plan.scheme.data());
        let watch = move || {
            let mut serving = false;
            loop {
                let seen = nodes
                    .iter()
                    .find_map(|node| Some((node, status::ask(node, STATUS_TIMEOUT).ok()?)));
                if let Some((node, status)) = seen {
                    serving = serving
                        || (status::is_whole(&status)
                            && every_owner_serves(node, status.lists.len() * data, STATUS_TIMEOUT));
                    if events.send(Event::Seen(Box::new(status), serving)).is_err() {
                        return;
                    }
                }
                thread::sleep(if serving { STATUS_INTERVAL } else { TICK });
            }
        };
        match thread::Builder::new().name("watch".into()).spawn(watch) {
            Ok(_) => Ok(()),
            Err(error) => Err(Failure(format!("no thread for the view: {error}"))),
        }
    }

    /// Removes the process with this pid. Returns it, and the number of its early ends in a row.
    fn take(&mut self, pid: u32) -> Option<(Child, u32)> {
        if let Some(child) = self.coordinator.take_if(|child| child.pid == pid) {
            return Some((child, self.failures));
        }
        self.nodes
            .iter_mut()
            .find_map(|slot| Some((slot.child.take_if(|child| child.pid == pid)?, slot.failures)))
    }

    fn failures_of(&self, who: Who) -> u32 {
        match who {
            Who::Coordinator => self.failures,
            Who::Node(node) => self.nodes[usize::from(node)].failures,
        }
    }

    fn note_failures(&mut self, who: Who, failures: u32) {
        match who {
            Who::Coordinator => self.failures = failures,
            Who::Node(node) => self.nodes[usize::from(node)].failures = failures,
        }
    }

    fn pids(&self) -> Vec<u32> {
        self.nodes
            .iter()
            .map(|slot| slot.child.as_ref().map_or(0, |child| child.pid))
            .collect()
    }

    fn not_up(&self, who: Who) -> Failure {
        Failure(format!(
            "{who} could not be started:\n{}",
            children::log_tail(&self.dir, who)
        ))
    }

    /// Ends every process. Those that do not end in time are killed.
    fn end(&mut self, inbox: &Receiver<Event>) {
        self.view.line("ending all processes");
        let mut left: Vec<u32> = self.pids().into_iter().filter(|pid| *pid != 0).collect();
        for slot in &mut self.nodes {
            slot.child = None;
        }
        left.extend(self.coordinator.take().map(|child| child.pid));
        let until = Instant::now() + FAREWELL;
        let mut killed = false;
        while !left.is_empty() {
            match inbox.recv_timeout(TICK) {
                Ok(Event::Exit(exit)) => left.retain(|pid| *pid != exit.pid),
                Ok(_) | Err(_) if Instant::now() < until => {}
                Ok(_) | Err(_) if killed => return,
                Ok(_) | Err(_) => {
                    children::kill_all(left.iter());
                    killed = true;
                    // One more round, to collect the ends of the killed processes.
                    thread::sleep(TICK);
                }
            }
        }
    }
}

/// Time before a process is started again after this number of early ends or failed starts in a row.
fn wait_after(failures: u32) -> Duration {
    match failures.checked_sub(1) {
        None => Duration::ZERO,
        Some(doublings) => WAIT_MIN.saturating_mul(2_u32.saturating_pow(doublings)).min(WAIT_MAX),
    }
}

/// Whether one node answers for a key of every stream.
fn every_owner_serves(node: &Login, streams: usize, timeout: Duration) -> bool {
    let keys = one_key_each(streams);
    keys.iter()
        .all(|key| status::command(node, &["GET", key], timeout).is_ok())
}

/// A key for each stream of a new cluster: its streams have equal shares of the slots (docs/formats/control.md).
fn one_key_each(streams: usize) -> Vec<String> {
    let mut keys = vec![None; streams];
    let mut left = streams;
    for n in 0_u64.. {
        if left == 0 {
            break;
        }
        let key = format!("paritas:{n}");
        let share = usize::from(slot(key.as_bytes())) * streams / usize::from(SLOT_COUNT);
        if keys[share].is_none() {
            keys[share] = Some(key);
            left -= 1;
        }
    }
    keys.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_their_limit() {
        let waits: Vec<u128> = [0, 1, 2, 3, 6, 7, u32::MAX].map(|n| wait_after(n).as_millis()).into();
        assert_eq!(waits, [0, 100, 200, 400, 3200, 5000, 5000]);
    }

    #[test]
    fn the_probe_has_a_key_for_every_stream() {
        for streams in [0, 1, 24, 48, 1000] {
            let keys = one_key_each(streams);
            let mut shares: Vec<usize> = keys
                .iter()
                .map(|key| usize::from(slot(key.as_bytes())) * streams / usize::from(SLOT_COUNT))
                .collect();
            shares.sort_unstable();
            assert_eq!(shares, (0..streams).collect::<Vec<_>>());
        }
    }
}
