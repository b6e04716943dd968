//! What the agent of `control` wants done: frames to the coordinator, messages to the shard, outcomes for the process.

use super::Outcome;
use crate::Failure;
use crate::line::Line;
use paritas_base::configuration::{ClusterRecord, Configuration, NodeRecord, Tenure};
use paritas_base::{ConnId, Incarnation, ListId, NodeId, Position};
use paritas_control::AgentOut;
use paritas_control::message::{MessageError, Refusal};
use paritas_control::status::Status;
use paritas_io::Mail;
use paritas_protocol::{Answer, LinkId};
use paritas_wire::greeting::Reason;
use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::SyncSender;

/// The agent's view of the outside: carries out what the machine asks for.
pub(super) struct Shell {
    pub(super) coordinators: Vec<String>,
    /// The coordinator to dial once the machine has returned.
    pub(super) dial: Option<usize>,
    /// The coordinator that was dialed last.
    pub(super) dialed: usize,
    pub(super) line: Option<Line>,
    /// The link of the latest line.
    pub(super) link: LinkId,
    /// Whether a call on that link is under way.
    pub(super) is_calling: bool,
    /// The latest node records, until they are passed on.
    pub(super) nodes: Option<Vec<NodeRecord>>,
    /// Messages for a shard that has not started yet or is behind.
    pub(super) messages: VecDeque<Mail>,
    /// Why the last coordinator refused this process, once logged.
    pub(super) refused: Option<Refusal>,
    /// Whether a coordinator has ever accepted this process.
    pub(super) known: bool,
    /// Why the last coordinator and this process do not know each other, once logged.
    pub(super) unknown: Option<Reason>,
    /// Whether a frame has arrived on this line.
    pub(super) heard: bool,
    /// Whether the log says that a coordinator is silent.
    pub(super) said_silent: bool,
    /// Whether the log says that a message of a coordinator cannot be read.
    pub(super) said_unread: bool,
    pub(super) me: (NodeId, Incarnation),
    /// Whether the parity of this node is on a disk.
    pub(super) is_log: bool,
    /// Number of positions that this process holds in each list.
    pub(super) held: BTreeMap<ListId, usize>,
    pub(super) outcomes: SyncSender<Outcome>,
}

impl Shell {
    /// Number of positions that this process holds in memory.
    pub(super) fn positions(&self) -> usize {
        if self.is_log { 0 } else { self.held.values().sum() }
    }

    /// A coordinator and this process do not know each other. A process that has not served need not try again.
    pub(super) fn note_unknown(&mut self, name: &str, reason: Reason) {
        let why = format!("coordinator {name}: {reason}");
        let is_final = matches!(reason, Reason::NoSecret | Reason::OtherSecret | Reason::Version(..));
        if self.unknown.replace(reason.clone()) != Some(reason) {
            tracing::error!("{why}");
        }
        if is_final && !self.known {
            self.end(Failure(why));
        }
    }

    pub(super) fn note_silent(&mut self) {
        if !core::mem::replace(&mut self.said_silent, true) {
            tracing::warn!(
                coordinators = ?self.coordinators,
                "a coordinator accepts connections but says nothing: the node keeps trying. Check whether it is \
                 stopped or busy, and whether the address is a coordinator's"
            );
        }
    }

    pub(super) fn end(&self, failure: Failure) {
        let _ = self.outcomes.try_send(Outcome::Ended(failure));
    }
}

impl AgentOut for Shell {
    fn dial(&mut self, coordinator: usize) {
        self.dial = Some(coordinator);
    }

    fn hang_up(&mut self) {
        if self.is_calling || (self.line.is_some() && !self.heard) {
            self.note_silent();
        }
        self.is_calling = false;
        self.dial = None;
        self.line = None;
    }

    fn send(&mut self, bytes: &[u8]) {
        if let Some(line) = &self.line {
            line.send(bytes.to_vec());
        }
    }

    fn cluster(&mut self, cluster: &ClusterRecord) {
        self.known = true;
        let _ = self.outcomes.try_send(Outcome::Cluster(Box::new(cluster.clone())));
    }

    fn cluster_changed(&mut self, cluster: &ClusterRecord) {
        tracing::info!(
            suspicion_ms = cluster.suspicion_ms,
            active_version = cluster.active_version,
            "the cluster's settings have changed"
        );
        self.messages.push_back(Mail::ActiveVersion(cluster.active_version));
        self.messages.push_back(Mail::Suspicion(cluster.suspicion_ms));
    }

    fn nodes(&mut self, nodes: &[NodeRecord]) {
        self.refused = None;
        self.said_unread = false;
        self.nodes = Some(nodes.to_vec());
    }

    fn configuration(&mut self, configuration: &Configuration) {
        let held = configuration.held_by(self.me.0, self.me.1).count();
        self.held.insert(configuration.list, held);
        self.messages.push_back(Mail::Configuration(configuration.clone()));
    }

    fn status(&mut self, conn: ConnId, n: u64, status: Result<&Status, &str>) {
        let coordinator_address = self.coordinators.get(self.dialed).cloned().unwrap_or_default();
        let status = status.map(|status| Status {
            coordinator_address,
            ..status.clone()
        });
        let answer = match status.map(|status| serde_json::to_string(&status)) {
            Ok(Ok(json)) => Answer::Text(json),
            Ok(Err(error)) => Answer::Refused(format!("the status cannot be written: {error}")),
            Err(why) => Answer::Refused(why.to_owned()),
        };
        self.messages.push_back(Mail::Answer { conn, n, answer });
    }

    fn duty_set(&mut self, conn: ConnId, n: u64, refused: Option<&str>) {
        let answer = refused.map_or(Answer::Done, |why| Answer::Refused(why.to_owned()));
        self.messages.push_back(Mail::Answer { conn, n, answer });
    }

    fn drain(&mut self, list: ListId, position: Position, tenure: Tenure) {
        self.messages.push_back(Mail::Drain { list, position, tenure });
    }

    fn unsent(&mut self, error: MessageError) {
        tracing::error!(%error, "a message to the coordinator is too long and was not sent");
    }

    fn unread(&mut self, error: MessageError) {
        // Logged once until a coordinator has registered this process.
        if !core::mem::replace(&mut self.said_unread, true) {
            let coordinator = self.coordinators.get(self.dialed);
            tracing::error!(
                ?coordinator,
                %error,
                "a message of the coordinator cannot be read: the node hangs up and dials again. Check that both run \
                 the same version"
            );
        }
    }

    fn refused(&mut self, refusal: &Refusal) {
        // Logged once for the same reason.
        if self.refused.as_ref() != Some(refusal) {
            tracing::error!(%refusal, "a coordinator refuses this node: the node keeps serving and asks again");
            self.refused = Some(refusal.clone());
        }
    }

    fn ended(&mut self, refusal: &Refusal) {
        self.end(Failure(refusal.to_string()));
    }

    fn exit_noted(&mut self, incarnation: Incarnation) {
        let _ = self.outcomes.try_send(Outcome::Noted(incarnation));
    }

    fn leave_waits(&mut self, why: &str) {
        let _ = self.outcomes.try_send(Outcome::LeaveWaits(why.to_owned()));
    }

    fn may_leave(&mut self) {
        let _ = self.outcomes.try_send(Outcome::MayLeave);
    }
}
