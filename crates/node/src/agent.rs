//! The thread between a node's shard and the coordinator. The agent of `control` decides what is said; this file has
//! its connection, clock and queues. The thread never waits for the shard, so that a busy shard is not mistaken for a
//! dead one (P10.2b).

mod counts;
mod shell;

use crate::Failure;
use crate::line::{self, Arrived, Line, Unknown};
use crate::resolver::Resolver;
use crate::rewrite;
use counts::{MemoryLog, SilencedLog, progress};
use paritas_base::configuration::{ClusterRecord, NodeRole};
use paritas_base::{Incarnation, Span};
use paritas_control::message::{Registration, TO_AGENT_BYTES_MAX};
use paritas_control::{Agent as Machine, AgentEvent, HEARTBEAT};
use paritas_io::door::Door;
use paritas_io::{Mail, Mailbox, MailboxFull, Progress, Proposals, clock};
use paritas_protocol::{Answer, LinkId, Proposal};
use shell::Shell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::thread;
use std::time::Duration;

const DIAL_TIMEOUT: Duration = Duration::from_secs(1);
/// Time in which a coordinator must prove who it is. The agent gives up earlier.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// Outcomes that wait for the process: an end of each incarnation in the state file, and some others.
const OUTCOMES_MAX: usize = 2 * paritas_control::ENDS_MAX;
/// Time after which messages that a busy shard did not accept are posted again.
const REPOST: Duration = Duration::from_millis(5);

/// The process's end of its agent.
#[derive(Debug)]
pub(crate) struct Agent {
    events: Sender<Event>,
    outcomes: Receiver<Outcome>,
}

/// What a process learns from its agent.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// A coordinator has accepted the registration. Reported once.
    Cluster(Box<ClusterRecord>),
    /// A coordinator has committed the end of this incarnation of the node.
    Noted(Incarnation),
    /// What a process that is to end waits for.
    LeaveWaits(String),
    /// The process may end: stop the shard, then tell the agent so.
    MayLeave,
    /// The process cannot join the cluster, or may no longer be part of it.
    Ended(Failure),
}

#[derive(Debug)]
enum Event {
    /// A coordinator has proven who it is, or has not.
    Called(LinkId, Result<TcpStream, Unknown>),
    Line(LinkId, Arrived),
    Proposal(Proposal),
    Message(Mail),
    Shard(Mailbox, Progress),
    Leave,
    Stopped,
}

/// Tells an agent of the end of its process.
#[derive(Clone, Debug)]
pub(crate) struct Farewell(Sender<Event>);

impl Farewell {
    /// The process is to end: the agent asks for permission.
    pub(crate) fn leave(&self) {
        let _ = self.0.send(Event::Leave);
    }

    /// The shard has written its last byte.
    pub(crate) fn stopped(&self) {
        let _ = self.0.send(Event::Stopped);
    }
}

impl Agent {
    /// Starts the thread. `ends`: earlier incarnations of the node that have certainly ended.
    pub(crate) fn start(
        registration: Registration,
        coordinators: Vec<String>,
        door: Door,
        seed: u64,
        ends: Vec<Incarnation>,
    ) -> Result<Self, Failure> {
        let (events, inbox) = channel();
        let (outcomes_in, outcomes) = sync_channel(OUTCOMES_MAX);
        let me = (registration.node, registration.incarnation);
        let is_log = registration.role == NodeRole::Log;
        let mut machine = Machine::new(registration, coordinators.len(), seed);
        machine.certify(ends);
        let runner = Runner {
            machine,
            shell: Shell {
                coordinators,
                dial: None,
                dialed: 0,
                line: None,
                link: LinkId(0),
                is_calling: false,
                nodes: None,
                messages: VecDeque::new(),
                refused: None,
                known: false,
                unknown: None,
                heard: false,
                said_silent: false,
                said_unread: false,
                me,
                is_log,
                held: BTreeMap::new(),
                outcomes: outcomes_in,
            },
            shard: None,
            events: events.clone(),
            door: Arc::new(door),
            alone: false,
        };
        spawn("agent", move || runner.run(&inbox))?;
        Ok(Self { events, outcomes })
    }

    /// Waits for the next outcome, at most for `timeout`.
    pub(crate) fn outcome(&self, timeout: Duration) -> Option<Outcome> {
        self.outcomes.recv_timeout(timeout).ok()
    }

    /// By which other threads tell the agent of the end of the process.
    pub(crate) fn farewell(&self) -> Farewell {
        Farewell(self.events.clone())
    }

    /// Connects the agent with the shard. `file` is the settings file of the process.
    pub(crate) fn attach(
        &self,
        mailbox: Mailbox,
        progress: Progress,
        proposals: Proposals,
        file: Option<PathBuf>,
    ) -> Result<(), Failure> {
        // The agent's thread ends only with the process.
        let _ = self.events.send(Event::Shard(mailbox, progress));
        let events = self.events.clone();
        spawn("proposals", move || {
            while let Ok(proposal) = proposals.recv() {
                // The file is written on this thread, because the agent must not wait for a disk.
                let event = match proposal {
                    Proposal::Rewrite { conn, n, settings } => {
                        let answer = match rewrite::rewrite(file.as_deref(), &settings) {
                            Ok(()) => Answer::Done,
                            Err(failure) => Answer::Refused(format!("Rewriting config file: {failure}")),
                        };
                        Event::Message(Mail::Answer { conn, n, answer })
                    }
                    other => Event::Proposal(other),
                };
                if events.send(event).is_err() {
                    return;
                }
            }
        })
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    match thread::Builder::new().name(name.into()).spawn(run) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure(format!("no thread for {name}: {error}"))),
    }
}

struct Shard {
    mailbox: Mailbox,
    progress: Progress,
    resolver: Resolver,
}

struct Runner {
    machine: Machine,
    shell: Shell,
    shard: Option<Shard>,
    events: Sender<Event>,
    /// What this process says of itself to a coordinator.
    door: Arc<Door>,
    /// Whether the last attempt reached no coordinator, and this was logged.
    alone: bool,
}

impl Runner {
    fn run(mut self, inbox: &Receiver<Event>) {
        let mut progress_at = clock::mono();
        let mut bad_chunks = 0;
        let mut memory = MemoryLog::default();
        let mut silenced = SilencedLog::default();
        loop {
            let now = clock::mono();
            if now >= progress_at {
                progress_at = now + Span(HEARTBEAT.0 / 2);
                if let Some(shard) = &self.shard {
                    let gauges = shard.progress.gauges();
                    silenced.note(now, gauges.silenced_errors);
                    let progress = progress(shard.progress.turns(), gauges);
                    if progress.scrub.bad_chunks > bad_chunks {
                        bad_chunks = progress.scrub.bad_chunks;
                        let repaired = progress.scrub.repaired_chunks;
                        tracing::error!(
                            bad_chunks,
                            repaired,
                            "chunks with wrong bytes: this machine's memory may be bad"
                        );
                    }
                    memory.note(now, &progress.fill, self.shell.positions());
                    self.machine
                        .on(clock::now(), AgentEvent::Progress(progress), &mut self.shell);
                }
            }
            if self.machine.next_deadline().is_some_and(|at| now >= at) {
                self.machine.on(clock::now(), AgentEvent::Timer, &mut self.shell);
            }
            if let Some(coordinator) = self.shell.dial.take() {
                self.dial(coordinator);
            }
            self.post_all();

            let next = self
                .machine
                .next_deadline()
                .map_or(progress_at, |at| at.min(progress_at));
            let mut wait = Duration::from_nanos((next - clock::mono()).0);
            if self.shard.is_some() && !self.shell.messages.is_empty() {
                wait = wait.min(REPOST);
            }
            let event = inbox.recv_timeout(wait);
            // The clock is read after the wait, so that an event does not seem earlier than it was.
            let now = clock::now();
            match event {
                Ok(Event::Called(link, called)) => {
                    // One that was given up is dropped, and so is its connection.
                    if link == self.shell.link && core::mem::take(&mut self.shell.is_calling) {
                        self.on_called(called);
                    }
                }
                Ok(Event::Line(link, arrived)) => {
                    // Frames of an older line are ignored.
                    if self.shell.line.is_some() && link == self.shell.link {
                        let event = match &arrived {
                            Arrived::Frame(frame) => {
                                self.shell.heard = true;
                                self.shell.said_silent = false;
                                AgentEvent::Message(frame)
                            }
                            Arrived::Down => {
                                self.shell.line = None;
                                AgentEvent::Disconnected
                            }
                        };
                        self.machine.on(now, event, &mut self.shell);
                    }
                }
                Ok(Event::Proposal(proposal)) => {
                    self.machine.on(now, AgentEvent::Proposal(proposal), &mut self.shell);
                }
                Ok(Event::Leave) => self.machine.on(now, AgentEvent::Leave, &mut self.shell),
                Ok(Event::Stopped) => self.machine.on(now, AgentEvent::Stopped, &mut self.shell),
                Ok(Event::Message(mail)) => self.shell.messages.push_back(mail),
                Ok(Event::Shard(mailbox, progress)) => match Resolver::start(mailbox.clone()) {
                    Ok(resolver) => {
                        self.shard = Some(Shard {
                            mailbox,
                            progress,
                            resolver,
                        })
                    }
                    Err(failure) => self.shell.end(failure),
                },
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn dial(&mut self, coordinator: usize) {
        if let Err(failure) = self.connect(coordinator) {
            self.not_up(&failure);
        }
    }

    fn not_up(&mut self, why: &dyn fmt::Display) {
        if !core::mem::replace(&mut self.alone, true) {
            tracing::warn!(%why, "no coordinator answers: the node keeps trying");
        }
        self.machine.on(clock::now(), AgentEvent::Disconnected, &mut self.shell);
    }

    /// Connects, and calls on a thread of its own: the coordinator may be stopped.
    fn connect(&mut self, coordinator: usize) -> Result<(), Failure> {
        let name = self.shell.coordinators.get(coordinator).cloned().unwrap_or_default();
        let failed = |error: io::Error| Failure(format!("coordinator {name}: {error}"));
        let addresses: Vec<_> = name.to_socket_addrs().map_err(failed)?.collect();
        let mut stream = first_that_answers(&addresses).map_err(failed)?;
        let link = LinkId(self.shell.link.0 + 1);
        self.shell.link = link;
        self.shell.dialed = coordinator;
        self.shell.is_calling = true;
        let (events, door) = (self.events.clone(), Arc::clone(&self.door));
        spawn("call", move || {
            let called = line::call(&mut stream, &door, link.0, CALL_TIMEOUT);
            // The agent's thread ends only with the process.
            let _ = events.send(Event::Called(link, called.map(|_| stream)));
        })
    }

    fn on_called(&mut self, called: Result<TcpStream, Unknown>) {
        let link = self.shell.link;
        let events = self.events.clone();
        let tell = move |arrived| events.send(Event::Line(link, arrived)).is_ok();
        let line = called.and_then(|stream| Ok(Line::start(stream, TO_AGENT_BYTES_MAX, tell)?));
        let name = self
            .shell
            .coordinators
            .get(self.shell.dialed)
            .cloned()
            .unwrap_or_default();
        match line {
            Ok(line) => {
                self.shell.unknown = None;
                if core::mem::take(&mut self.alone) {
                    tracing::info!("a coordinator answers again");
                }
                self.shell.line = Some(line);
                self.shell.heard = false;
                self.machine.on(clock::now(), AgentEvent::Connected, &mut self.shell);
            }
            Err(Unknown::Refused(reason)) => {
                self.shell.note_unknown(&name, reason);
                self.machine.on(clock::now(), AgentEvent::Disconnected, &mut self.shell);
            }
            Err(Unknown::Io(error)) => {
                self.shell.note_silent();
                self.not_up(&Failure(format!("coordinator {name}: {}", Unknown::Io(error))));
            }
        }
    }

    fn post_all(&mut self) {
        let Some(shard) = &self.shard else { return };
        if let Some(nodes) = self.shell.nodes.take() {
            shard.resolver.post(nodes);
        }
        while let Some(message) = self.shell.messages.pop_front() {
            if let Err(MailboxFull(message)) = shard.mailbox.post(message) {
                self.shell.messages.push_front(*message);
                return;
            }
        }
    }
}

/// Connects to the first address that accepts. A name such as `localhost` may also stand for `::1`, where no
/// process listens.
pub(crate) fn first_that_answers(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match TcpStream::connect_timeout(address, DIAL_TIMEOUT) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::answer;
    use paritas_base::NodeId;
    use paritas_control::message::MESSAGE_VERSION;
    use paritas_io::door::SharedSecrets;
    use paritas_wire::greeting::{Process, Role};
    use std::net::TcpListener;

    fn door(role: Role, version: u8) -> Door {
        let from = Process {
            node: NodeId(0),
            incarnation: Incarnation(1),
        };
        Door::new(role, from, version.into(), SharedSecrets::default())
    }

    #[test]
    fn a_coordinator_of_another_version_ends_a_node_that_has_not_served_and_names_both() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let coordinator = listener.local_addr().unwrap().to_string();
        let registration = Registration {
            cluster: None,
            node: NodeId(0),
            incarnation: Incarnation(1),
            domain: None,
            role: NodeRole::Member,
            pid: 1,
            supervised: false,
            client_address: "127.0.0.1:1".into(),
            cluster_address: "127.0.0.1:2".into(),
            peer_address: "127.0.0.1:3".into(),
            installed: Vec::new(),
            heard: Vec::new(),
            incarnations: Vec::new(),
            coordinators: 1,
            more: Default::default(),
        };
        let agent = Agent::start(
            registration,
            vec![coordinator],
            door(Role::Node, MESSAGE_VERSION),
            1,
            vec![],
        )
        .unwrap();
        let mut line = listener.accept().unwrap().0;
        let other = door(Role::Coordinator, MESSAGE_VERSION + 1);
        let heard = answer(&mut line, &other, true).unwrap_err();
        assert!(
            heard.to_string().contains(&format!("version {MESSAGE_VERSION} ")),
            "{heard}"
        );
        let Some(Outcome::Ended(Failure(why))) = agent.outcome(Duration::from_secs(20)) else {
            panic!("the node does not end");
        };
        let version = MESSAGE_VERSION + 1;
        assert!(why.contains(&format!("version {version} ")), "{why}");
    }

    #[test]
    fn every_address_of_a_name_is_tried() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap();
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(first_that_answers(&[gone, here]).unwrap().peer_addr().unwrap(), here);
        assert!(first_that_answers(&[gone]).is_err() && first_that_answers(&[]).is_err());
    }
}
