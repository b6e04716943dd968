//! The thread that stands between a node's shard and the coordinator: registration, heartbeats, configurations in,
//! proposals out. It never waits for the shard, so that a busy shard is not taken for a dead one (PROTOCOL 10.2b).

use crate::Failure;
use crate::line::{Arrived, Line};
use crate::resolver::Resolver;
use paritas_base::configuration::{Configuration, NodeRecord};
use paritas_base::{ConnId, Incarnation, ListId, NodeId};
use paritas_control::SILENT_MAX;
use paritas_control::message::{
    Registered, Registration, TO_AGENT_BYTES_MAX, TO_COORDINATOR_BYTES_MAX, ToAgent, ToCoordinator, decode, encode,
};
use paritas_control::status::ShardProgress;
use paritas_io::{Mail, Mailbox, MailboxFull, Progress, Proposals};
use paritas_protocol::Proposal;
use std::collections::{BTreeMap, VecDeque};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// PROTOCOL 5b.
const HEARTBEAT: Duration = Duration::from_millis(250);
const REDIAL: Duration = Duration::from_millis(100);
const DIAL_PATIENCE: Duration = Duration::from_secs(1);
/// A coordinator that answers nothing for so long is dialed anew.
const SILENCE: Duration = Duration::from_secs(5);
/// A silent peer is named in heartbeats for so long after the last report.
const REPORT: Duration = Duration::from_secs(1);
/// Questions of clients that wait for an answer at most.
const QUESTIONS_MAX: usize = 1_024;

/// The agent's end of everything.
#[derive(Debug)]
pub(crate) struct Agent {
    happenings: Sender<Happening>,
    outcome: Receiver<Outcome>,
}

/// What a process learns from its agent.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Registered for the first time.
    Registered(Box<Registered>),
    /// The process cannot be part of the cluster.
    Refused(Failure),
}

#[derive(Debug)]
enum Happening {
    /// By the how many-th connection.
    Line(u64, Arrived),
    Proposal(Proposal),
    Shard(Mailbox, Progress),
}

impl Agent {
    /// Starts the thread, which registers as soon as a coordinator answers, and again whenever it must.
    pub(crate) fn start(registration: Registration, coordinators: Vec<String>) -> Result<Self, Failure> {
        let (happenings, inbox) = channel();
        let (outcome_in, outcome) = sync_channel(4);
        let runner = Runner {
            registration,
            coordinators,
            next_coordinator: 0,
            line: None,
            connection: 0,
            nonce: None,
            heard: Instant::now(),
            dial_at: Instant::now(),
            heartbeat_at: Instant::now(),
            shard: None,
            letters: VecDeque::new(),
            installed: BTreeMap::new(),
            nodes: BTreeMap::new(),
            silent: BTreeMap::new(),
            questions: BTreeMap::new(),
            last_question: 0,
            happenings: happenings.clone(),
            outcome: outcome_in,
        };
        spawn("agent", move || runner.run(&inbox))?;
        Ok(Self { happenings, outcome })
    }

    /// Waits for a coordinator that takes this process in, or refuses it for good.
    pub(crate) fn registered(&self, patience: Duration) -> Option<Outcome> {
        self.outcome.recv_timeout(patience).ok()
    }

    /// Joins the agent with its shard.
    pub(crate) fn attach(&self, mailbox: Mailbox, progress: Progress, proposals: Proposals) -> Result<(), Failure> {
        // The agent's thread ends only with the process.
        let _ = self.happenings.send(Happening::Shard(mailbox, progress));
        let happenings = self.happenings.clone();
        spawn("proposals", move || {
            while let Ok(proposal) = proposals.recv() {
                if happenings.send(Happening::Proposal(proposal)).is_err() {
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
    registration: Registration,
    coordinators: Vec<String>,
    next_coordinator: usize,
    line: Option<Line>,
    connection: u64,
    /// Of the newest `Registered`, on this connection.
    nonce: Option<u64>,
    heard: Instant,
    dial_at: Instant,
    heartbeat_at: Instant,
    shard: Option<Shard>,
    /// For a shard that is not there yet, or has not kept up.
    letters: VecDeque<Mail>,
    installed: BTreeMap<ListId, Configuration>,
    nodes: BTreeMap<NodeId, NodeRecord>,
    silent: BTreeMap<(NodeId, Incarnation), Instant>,
    /// By our number: who asked, and which question of theirs.
    questions: BTreeMap<u64, (ConnId, u64)>,
    last_question: u64,
    happenings: Sender<Happening>,
    outcome: SyncSender<Outcome>,
}

impl Runner {
    fn run(mut self, inbox: &Receiver<Happening>) {
        loop {
            let now = Instant::now();
            if self.line.is_some() && now.duration_since(self.heard) > SILENCE {
                self.hang_up();
            }
            if self.line.is_none() && now >= self.dial_at {
                self.dial();
            }
            if now >= self.heartbeat_at {
                self.heartbeat();
            }
            self.post_all();
            match inbox.recv_timeout(self.patience()) {
                Ok(Happening::Line(connection, arrived)) if connection == self.connection => match arrived {
                    Arrived::Frame(frame) => self.on_frame(&frame),
                    Arrived::Down => self.hang_up(),
                },
                Ok(Happening::Line(..)) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Happening::Proposal(proposal)) => self.on_proposal(proposal),
                Ok(Happening::Shard(mailbox, progress)) => match Resolver::start(mailbox.clone()) {
                    Ok(resolver) => {
                        self.shard = Some(Shard {
                            mailbox,
                            progress,
                            resolver,
                        });
                        self.tell_nodes();
                    }
                    Err(failure) => self.refuse(failure),
                },
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn patience(&self) -> Duration {
        let until = if self.line.is_none() {
            self.dial_at.min(self.heartbeat_at)
        } else {
            self.heartbeat_at
        };
        let wait = until.saturating_duration_since(Instant::now());
        if self.letters.is_empty() || self.shard.is_none() {
            wait
        } else {
            wait.min(Duration::from_millis(5))
        }
    }

    fn dial(&mut self) {
        self.dial_at = Instant::now() + REDIAL;
        let Some(address) = self
            .coordinators
            .get(self.next_coordinator % self.coordinators.len().max(1))
        else {
            return;
        };
        self.next_coordinator += 1;
        let Some(address) = address.to_socket_addrs().ok().and_then(|mut found| found.next()) else {
            tracing::warn!(%address, "no such coordinator");
            return;
        };
        let Ok(stream) = TcpStream::connect_timeout(&address, DIAL_PATIENCE) else {
            return;
        };
        self.connection += 1;
        let (connection, happenings) = (self.connection, self.happenings.clone());
        let tell = move |arrived| happenings.send(Happening::Line(connection, arrived)).is_ok();
        match Line::start(stream, TO_AGENT_BYTES_MAX, tell) {
            Ok(line) => {
                self.line = Some(line);
                self.heard = Instant::now();
                self.register();
            }
            Err(error) => tracing::warn!(%error, "connection to the coordinator"),
        }
    }

    fn hang_up(&mut self) {
        if self.line.take().is_some() {
            tracing::warn!("the coordinator's connection has ended");
        }
        self.nonce = None;
        // Their answers will not come; the clients may ask again.
        for (conn, n) in std::mem::take(&mut self.questions).into_values() {
            let text = "-ERR the coordinator does not answer".into();
            self.letters.push_back(Mail::Answer { conn, n, text });
        }
    }

    fn register(&mut self) {
        let mut registration = self.registration.clone();
        registration.installed = self.installed.values().map(|list| (list.list, list.epoch)).collect();
        self.nonce = None;
        self.send(&ToCoordinator::Register(Box::new(registration)));
    }

    fn heartbeat(&mut self) {
        let now = Instant::now();
        self.heartbeat_at = now + HEARTBEAT;
        self.silent.retain(|_, until| *until > now);
        let Some(nonce) = self.nonce else { return };
        let silent = self.silent.keys().copied().take(SILENT_MAX).collect();
        let shards = self.shard.iter().map(|shard| progress(&shard.progress)).collect();
        self.send(&ToCoordinator::Heartbeat { nonce, shards, silent });
    }

    fn send(&self, message: &ToCoordinator) {
        let Some(line) = &self.line else { return };
        match encode(message, TO_COORDINATOR_BYTES_MAX) {
            Ok(frame) => line.send(frame),
            Err(error) => tracing::error!(%error, "cannot tell the coordinator"),
        }
    }

    fn on_frame(&mut self, frame: &[u8]) {
        let message = match decode(frame, TO_AGENT_BYTES_MAX) {
            Ok(message) => message,
            Err(error) => {
                tracing::error!(%error, "from the coordinator");
                self.hang_up();
                return;
            }
        };
        self.heard = Instant::now();
        match message {
            ToAgent::Registered(registered) => self.on_registered(*registered),
            ToAgent::Refused(refusal) if refusal.is_final() => self.refuse(Failure(refusal.to_string())),
            ToAgent::Refused(refusal) => {
                tracing::warn!(%refusal, "registering again");
                self.register();
            }
            ToAgent::Heard => {}
            ToAgent::Configurations(lists) => lists.into_iter().for_each(|list| self.install(list)),
            ToAgent::Nodes(records) => {
                self.nodes.extend(records.into_iter().map(|record| (record.id, record)));
                self.tell_nodes();
            }
            ToAgent::StatusReport { n, status } => {
                if let Some((conn, n)) = self.questions.remove(&n) {
                    let text = serde_json::to_string(&status).unwrap_or_else(|error| format!("-ERR status: {error}"));
                    self.letters.push_back(Mail::Answer { conn, n, text });
                }
            }
        }
    }

    fn on_registered(&mut self, registered: Registered) {
        let first = self.registration.cluster.is_none();
        // From now on no other cluster will do.
        self.registration.cluster = Some(registered.cluster.id);
        self.nonce = Some(registered.nonce);
        // The answer counts once it is repeated: at once, since the cluster may wait for it.
        self.heartbeat();
        self.nodes
            .extend(registered.nodes.iter().map(|record| (record.id, record.clone())));
        for list in registered.configurations.clone() {
            self.install(list);
        }
        self.tell_nodes();
        if first {
            let _ = self.outcome.try_send(Outcome::Registered(Box::new(registered)));
        }
    }

    fn install(&mut self, list: Configuration) {
        let known = self
            .installed
            .get(&list.list)
            .is_some_and(|known| known.epoch > list.epoch);
        if !known {
            self.installed.insert(list.list, list.clone());
            self.letters.push_back(Mail::Configuration(list));
        }
    }

    fn tell_nodes(&self) {
        if let Some(shard) = &self.shard
            && !self.nodes.is_empty()
        {
            shard.resolver.post(self.nodes.values().cloned().collect());
        }
    }

    fn on_proposal(&mut self, proposal: Proposal) {
        match proposal {
            Proposal::AskLive { list, position, tenure } => {
                self.send(&ToCoordinator::AskLive { list, position, tenure });
            }
            Proposal::GetConfiguration { list } => self.send(&ToCoordinator::GetConfiguration { list }),
            Proposal::ReportSilent { node, incarnation } => {
                let new = self
                    .silent
                    .insert((node, incarnation), Instant::now() + REPORT)
                    .is_none();
                if new {
                    self.heartbeat();
                }
            }
            Proposal::Ask { conn, n } => {
                if self.nonce.is_none() || self.questions.len() >= QUESTIONS_MAX {
                    let text = "-ERR the coordinator does not answer".into();
                    self.letters.push_back(Mail::Answer { conn, n, text });
                    return;
                }
                self.last_question += 1;
                self.questions.insert(self.last_question, (conn, n));
                self.send(&ToCoordinator::Status { n: self.last_question });
            }
        }
    }

    fn post_all(&mut self) {
        let Some(shard) = &self.shard else { return };
        while let Some(letter) = self.letters.pop_front() {
            if let Err(MailboxFull(letter)) = shard.mailbox.post(letter) {
                self.letters.push_front(*letter);
                return;
            }
        }
    }

    fn refuse(&self, failure: Failure) {
        let _ = self.outcome.try_send(Outcome::Refused(failure));
    }
}

fn progress(progress: &Progress) -> ShardProgress {
    let gauges = progress.gauges();
    ShardProgress {
        shard: 0,
        turns: progress.turns(),
        objects: gauges.objects,
        user_bytes: gauges.user_bytes,
        memory_bytes: gauges.memory.iter().map(|(_, bytes)| bytes).sum(),
        by_kind: gauges
            .memory
            .iter()
            .map(|(kind, bytes)| ((*kind).to_owned(), *bytes))
            .collect(),
        rebuild_done_bytes: gauges.rebuild_done_bytes,
        rebuild_total_bytes: gauges.rebuild_total_bytes,
    }
}
