//! A process's connection to the coordinator, as a state machine. The agent registers, sends heartbeats, forwards
//! requests of the shards and decisions of the coordinator, and reconnects after it has lost a coordinator. Without a
//! coordinator it keeps the last records, with which peers and leases continue (docs/formats/control.md).

mod driver;
mod proposals;
mod records;

use crate::fence::{DIAL_MAX, LINK_TIMEOUT, REDIAL_MAX};
use crate::message::{
    Opinions, Refusal, Registered, Registration, TO_AGENT_BYTES_MAX, TO_COORDINATOR_BYTES_MAX, Testimony, ToAgent,
    ToCoordinator, decode, encode,
};
use crate::mutant::{Broken, Mutant};
use crate::plan::{NODES_MAX, POSITIONS_MAX};
use crate::status::ShardProgress;
use paritas_base::configuration::{ClusterRecord, Configuration, NodeRecord};
use paritas_base::formats::Versions;
use paritas_base::{Clock, Epoch, Incarnation, ListId, NodeId, Prng, Span, Time};
use std::collections::{BTreeMap, BTreeSet};

pub use driver::{AgentEvent, AgentOut};
use proposals::Question;

/// Interval between two heartbeats (P5b).
pub const HEARTBEAT: Span = Span::from_ms(250);
const BACKOFF_MIN: Span = Span::from_ms(50);
/// Limit of the wait between two dials, without jitter. Jitter adds at most half of it.
const BACKOFF_MAX: Span = Span(REDIAL_MAX.0 / 3 * 2);
/// Limit of ended incarnations of one node that are certified.
pub const ENDS_MAX: usize = 64;
/// Limit of the bytes of configurations in one frame of a testimony. The first frame also has the cluster's record.
const TESTIMONY_BYTES: usize = 64 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Away { until: Time },
    Dialing { until: Time },
    Introduced { until: Time },
    Registered { nonce: u64, next_beat: Time, until: Time },
    Over,
}

/// The end of a process that is asked to end (P10.20).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Leaving {
    /// It asks for permission, and serves.
    Asks,
    /// It has the permission. It does not register again, and ends.
    May,
    /// Its shard has stopped.
    Stopped,
}

/// A process's agent.
#[derive(Debug)]
pub struct Agent {
    registration: Registration,
    coordinators: usize,
    /// The index of the coordinator that is dialed next.
    coordinator: usize,
    phase: Phase,
    backoff: Span,
    prng: Prng,
    cluster: Option<ClusterRecord>,
    /// A registration that is not confirmed yet. A process that has not served begins only when it is: until then its
    /// place may be another process's (P10.13).
    offer: Option<Registered>,
    nodes: BTreeMap<NodeId, NodeRecord>,
    /// The newest configuration of each list that the shard has.
    installed: BTreeMap<ListId, Configuration>,
    /// Newer configurations of which only epoch and id are known.
    heard: BTreeMap<ListId, (Epoch, u64)>,
    shards: BTreeMap<u16, ShardProgress>,
    silent: BTreeSet<(NodeId, Incarnation)>,
    /// Which peers the shard hears.
    opinions: Option<Opinions>,
    /// Earlier incarnations of this node that have certainly ended, until a coordinator has noted it.
    ends: Vec<Incarnation>,
    leaving: Option<Leaving>,
    /// What this process may speak.
    versions: Versions,
    /// Why a coordinator refused this process, since its last registration.
    refused: Option<Refusal>,
    questions: BTreeMap<u64, Question>,
    asked: u64,
    broken: Broken,
}

impl Agent {
    /// The agent of a process with this registration and number of coordinator addresses. The seed is for jitter.
    pub fn new(mut registration: Registration, coordinators: usize, seed: u64) -> Self {
        registration.coordinators = u8::try_from(coordinators).unwrap_or(u8::MAX);
        Self {
            registration,
            coordinators: coordinators.max(1),
            coordinator: 0,
            phase: Phase::Away { until: Time::default() },
            backoff: BACKOFF_MIN,
            prng: Prng::new(seed),
            cluster: None,
            offer: None,
            nodes: BTreeMap::new(),
            installed: BTreeMap::new(),
            heard: BTreeMap::new(),
            shards: BTreeMap::new(),
            silent: BTreeSet::new(),
            opinions: None,
            ends: Vec::new(),
            leaving: None,
            versions: Versions::OURS,
            refused: None,
            questions: BTreeMap::new(),
            asked: 0,
            broken: Broken::default(),
        }
    }

    /// Names earlier incarnations of this node that have certainly ended (P10.4). It says so to each coordinator before
    /// it registers, until one has noted it.
    pub fn certify(&mut self, ends: impl IntoIterator<Item = Incarnation>) {
        let own = self.registration.incarnation;
        self.ends
            .extend(ends.into_iter().filter(|end| *end != own).take(ENDS_MAX));
    }

    /// The process may speak these versions.
    pub fn speak(&mut self, versions: Versions) {
        self.versions = versions;
    }

    /// Disables a rule, to test that the simulator finds the fault.
    #[cfg(feature = "mutants")]
    pub fn break_rule(&mut self, mutant: Option<Mutant>) {
        self.broken.mutant = mutant;
    }

    /// Handles one event.
    pub fn on(&mut self, now: Clock, event: AgentEvent<'_>, out: &mut impl AgentOut) {
        let now = now.mono;
        if self.phase == Phase::Over {
            return;
        }
        match event {
            AgentEvent::Connected => self.introduce(now, out),
            AgentEvent::Disconnected => self.retreat(now),
            AgentEvent::Message(bytes) => self.on_message(now, bytes, out),
            AgentEvent::Proposal(proposal) => self.on_proposal(now, proposal, out),
            AgentEvent::Progress(progress) => {
                self.shards.insert(progress.shard, progress);
            }
            AgentEvent::Leave if self.leaving.is_none() => {
                self.leaving = Some(Leaving::Asks);
                if let Phase::Registered { nonce, .. } = self.phase {
                    send(out, &ToCoordinator::Leave { nonce });
                }
            }
            AgentEvent::Leave => {}
            AgentEvent::Stopped => {
                self.leaving = Some(Leaving::Stopped);
                if matches!(self.phase, Phase::Introduced { .. } | Phase::Registered { .. }) {
                    self.say_gone(out);
                }
            }
            AgentEvent::Timer => {}
        }
        self.on_time(now, out);
    }

    /// The time by which [`AgentEvent::Timer`] must be given.
    pub fn next_deadline(&self) -> Option<Time> {
        let phase = match self.phase {
            Phase::Away { until } | Phase::Dialing { until } | Phase::Introduced { until } => until,
            Phase::Registered { next_beat, until, .. } => next_beat.min(until),
            Phase::Over => return None,
        };
        self.questions.values().map(|q| q.until).chain([phase]).min()
    }

    /// Epoch and id of the newest configuration of a list that is installed.
    pub fn installed(&self, list: ListId) -> Option<(Epoch, u64)> {
        self.installed.get(&list).map(|own| (own.epoch, own.id))
    }

    /// Whether this process is registered at a coordinator.
    pub fn is_registered(&self) -> bool {
        matches!(self.phase, Phase::Registered { .. })
    }

    fn on_time(&mut self, now: Time, out: &mut impl AgentOut) {
        match self.phase {
            Phase::Away { until } if now >= until => {
                self.phase = Phase::Dialing { until: now + DIAL_MAX };
                out.dial(self.coordinator);
            }
            Phase::Dialing { until } | Phase::Introduced { until } | Phase::Registered { until, .. }
                if now >= until =>
            {
                out.hang_up();
                self.retreat(now);
            }
            Phase::Registered {
                nonce,
                next_beat,
                until,
            } if now >= next_beat => {
                self.phase = Phase::Registered {
                    nonce,
                    next_beat: now + HEARTBEAT,
                    until,
                };
                self.beat(nonce, out);
            }
            _ => {}
        }
        let late: Vec<u64> = self
            .questions
            .iter()
            .filter(|(_, q)| now >= q.until)
            .map(|(id, _)| *id)
            .collect();
        for question in late.into_iter().filter_map(|id| self.questions.remove(&id)) {
            question.give_up(self.refused.as_ref(), out);
        }
    }

    /// After the loss of a link: waits, longer each time, then tries the next coordinator.
    fn retreat(&mut self, now: Time) {
        self.offer = None;
        let jitter = Span(self.prng.below(self.backoff.0 / 2 + 1));
        self.phase = Phase::Away {
            until: now + self.backoff + jitter,
        };
        self.backoff = Span(self.backoff.0 * 2).min(BACKOFF_MAX);
        self.coordinator = (self.coordinator + 1) % self.coordinators;
    }

    fn introduce(&mut self, now: Time, out: &mut impl AgentOut) {
        self.offer = None;
        let node = self.registration.node;
        for incarnation in self.ends.iter().copied() {
            send(out, &ToCoordinator::Exited { node, incarnation });
        }
        if matches!(self.leaving, Some(Leaving::May | Leaving::Stopped)) {
            self.phase = Phase::Introduced { until: now + DIAL_MAX };
            if self.leaving == Some(Leaving::Stopped) {
                self.say_gone(out);
            }
            return;
        }
        let installed = self.installed.values();
        self.registration.installed = installed.map(|c| (c.list, c.epoch, c.id)).collect();
        let installed = &self.installed;
        self.heard
            .retain(|list, (epoch, _)| installed.get(list).is_none_or(|own| own.epoch < *epoch));
        self.registration.heard = self
            .heard
            .iter()
            .map(|(list, (epoch, id))| (*list, *epoch, *id))
            .collect();
        self.registration.incarnations = self.incarnations();
        let active = self.cluster.as_ref().map_or(0, |cluster| cluster.active_version);
        self.versions.say(active, &mut self.registration.more);
        self.phase = Phase::Introduced { until: now + DIAL_MAX };
        send(out, &ToCoordinator::Register(Box::new(self.registration.clone())));
    }

    /// Sends the testimony that a coordinator without a store needs.
    fn testify(&mut self, out: &mut impl AgentOut) {
        // The adoption writes only installed configurations, so ids that are only heard of are not in its history.
        self.heard.clear();
        let mut parts: Vec<Vec<Configuration>> = vec![Vec::new()];
        let mut bytes = 0;
        for configuration in self.installed.values() {
            let size = bytes_at_most(configuration);
            if bytes + size > TESTIMONY_BYTES {
                parts.push(Vec::new());
                bytes = 0;
            }
            bytes += size;
            parts.last_mut().unwrap_or(&mut Vec::new()).push(configuration.clone());
        }
        let last = parts.len() - 1;
        for (i, configurations) in parts.into_iter().enumerate() {
            let testimony = Testimony {
                cluster: self.cluster.clone().filter(|_| i == 0),
                incarnations: if i == 0 { self.incarnations() } else { Vec::new() },
                configurations,
                is_last: i == last,
            };
            send(out, &ToCoordinator::Testimony(Box::new(testimony)));
        }
    }

    fn incarnations(&self) -> Vec<(NodeId, Incarnation, u32)> {
        let nodes = self.nodes.values().take(NODES_MAX);
        nodes.map(|n| (n.id, n.incarnation, n.ordinal)).collect()
    }

    /// P10.20: after the shard's last write. Then no list waits for this process.
    fn say_gone(&self, out: &mut impl AgentOut) {
        let Registration { node, incarnation, .. } = self.registration;
        send(out, &ToCoordinator::Exited { node, incarnation });
    }

    fn on_may_leave(&mut self, refused: Option<&str>, out: &mut impl AgentOut) {
        if self.leaving != Some(Leaving::Asks) {
            return;
        }
        if let Some(why) = refused {
            return out.leave_waits(why);
        }
        self.leaving = Some(Leaving::May);
        if self.broken.is(Mutant::GoneBeforeTheShardStopped) {
            self.say_gone(out);
        }
        out.may_leave();
    }

    fn beat(&mut self, nonce: u64, out: &mut impl AgentOut) {
        let shards = self.shards.values().cloned().collect();
        let silent = core::mem::take(&mut self.silent)
            .into_iter()
            .take(crate::SILENT_MAX)
            .collect();
        // A process without configurations knows no peers, so that it cannot say whether it hears them.
        let opinions = self.opinions.clone().filter(|_| !self.installed.is_empty());
        let beat = ToCoordinator::Heartbeat {
            nonce,
            shards,
            silent,
            opinions,
        };
        send(out, &beat);
        // After the heartbeat, so that the coordinator has heard this process.
        if self.leaving == Some(Leaving::Asks) {
            send(out, &ToCoordinator::Leave { nonce });
        }
    }

    fn on_message(&mut self, now: Time, bytes: &[u8], out: &mut impl AgentOut) {
        let message = match decode::<ToAgent>(bytes, TO_AGENT_BYTES_MAX) {
            Ok(message) => message,
            Err(error) => {
                out.unread(error);
                out.hang_up();
                self.retreat(now);
                return;
            }
        };
        if let Phase::Registered { until, .. } = &mut self.phase {
            *until = now + LINK_TIMEOUT;
        }
        if self.cluster.is_none()
            && matches!(
                message,
                ToAgent::Configurations(_) | ToAgent::Nodes(_) | ToAgent::Cluster(_)
            )
        {
            // A coordinator must send the cluster's record first.
            if !self.add_to_offer(message) {
                out.hang_up();
                self.retreat(now);
            }
            return;
        }
        match message {
            ToAgent::Registered(registered) => self.on_registered(now, *registered, out),
            ToAgent::Refused(Refusal::RegisterAgain) => {
                // Register again only once: a second refusal may answer a heartbeat from before.
                if self.is_registered() {
                    self.introduce(now, out);
                }
            }
            ToAgent::Refused(refusal) => self.on_refused(now, &refusal, out),
            // Answers to operators, not to agents.
            ToAgent::Said { .. } => {}
            ToAgent::ExitNoted { node, incarnation } => self.on_exit_noted(node, incarnation, out),
            ToAgent::Ping { at_ns } => {
                if let Phase::Registered { nonce, .. } = self.phase {
                    send(out, &ToCoordinator::Pong { nonce, at_ns });
                }
            }
            ToAgent::MayLeave { refused } => self.on_may_leave(refused.as_deref(), out),
            ToAgent::Heard => {
                if let Some(offer) = self.offer.take() {
                    self.begin(now, offer, out);
                }
            }
            ToAgent::Cluster(cluster) => {
                if let Some(refusal) = self.refuses(&cluster) {
                    self.on_refused(now, &refusal, out);
                } else {
                    self.take_cluster(cluster, out);
                }
            }
            ToAgent::Configurations(configurations) => self.deliver(now, &configurations, out),
            ToAgent::Nodes(nodes) => self.deliver_nodes(nodes, out),
            ToAgent::StatusReport { n, status } => {
                if let Some(Question { conn, n, .. }) = self.questions.remove(&n) {
                    out.status(conn, n, Ok(&status));
                }
            }
            ToAgent::Ordered { n, refused } => {
                if let Some(Question { conn, n, .. }) = self.questions.remove(&n) {
                    out.duty_set(conn, n, refused.as_deref());
                }
            }
            ToAgent::Drain { list, position, tenure } => out.drain(list, position, tenure),
            ToAgent::Witness { batch, heads } => self.on_witness(batch, &heads, out),
        }
    }

    fn on_exit_noted(&mut self, node: NodeId, incarnation: Incarnation, out: &mut impl AgentOut) {
        if node != self.registration.node {
            return;
        }
        self.ends.retain(|end| *end != incarnation);
        if incarnation == self.registration.incarnation && self.leaving == Some(Leaving::Stopped) {
            self.phase = Phase::Over;
            out.hang_up();
        }
        out.exit_noted(incarnation);
    }

    /// P10.16: by these ids a coordinator detects that its store is older.
    fn on_witness(&mut self, batch: u64, heads: &[(ListId, Epoch, u64)], out: &mut impl AgentOut) {
        for (list, epoch, id) in heads.iter().take(POSITIONS_MAX) {
            let known = self.heard.get(list);
            if known.is_none_or(|(known, _)| known < epoch) {
                self.heard.insert(*list, (*epoch, *id));
            }
        }
        if self.is_registered() {
            send(out, &ToCoordinator::Witnessed { batch });
        }
    }

    /// A process that has served may hold data that no other process has, so it ends only when its incarnation is over:
    /// a coordinator with another cluster's store, or an old one, must not take the whole cluster with it. Until the
    /// right one is back, peers and leases go on.
    fn on_refused(&mut self, now: Time, refusal: &Refusal, out: &mut impl AgentOut) {
        if *refusal == Refusal::IncarnationEnded || (self.cluster.is_none() && refusal.is_final()) {
            self.phase = Phase::Over;
            out.hang_up();
            out.ended(refusal);
            return;
        }
        out.refused(refusal);
        self.refused = Some(refusal.clone());
        if *refusal == Refusal::Adopting {
            // The process stays and sends its testimony again later. It may know more by then.
            self.testify(out);
            self.backoff = BACKOFF_MIN;
            self.phase = Phase::Introduced {
                until: now + LINK_TIMEOUT,
            };
            return;
        }
        out.hang_up();
        self.retreat(now);
    }

    /// Repeats the nonce at once, since only that confirms the registration.
    fn on_registered(&mut self, now: Time, registered: Registered, out: &mut impl AgentOut) {
        let nonce = registered.nonce;
        if let Some(refusal) = self.refuses(&registered.cluster) {
            self.on_refused(now, &refusal, out);
            return;
        }
        self.heard.retain(|list, _| !registered.void.contains(list));
        self.backoff = BACKOFF_MIN;
        self.refused = None;
        self.phase = Phase::Registered {
            nonce,
            next_beat: now + HEARTBEAT,
            until: now + LINK_TIMEOUT,
        };
        self.beat(nonce, out);
        match self.cluster {
            None => self.offer = Some(registered),
            Some(_) => self.begin(now, registered, out),
        }
    }

    fn begin(&mut self, now: Time, registered: Registered, out: &mut impl AgentOut) {
        self.take_cluster(registered.cluster, out);
        self.deliver_nodes(registered.nodes, out);
        self.deliver(now, &registered.configurations, out);
    }
}

/// Upper bound of the encoded size of a configuration, in bytes.
fn bytes_at_most(configuration: &Configuration) -> usize {
    let Configuration {
        positions,
        gone,
        trail,
        slots,
        more,
        ..
    } = configuration;
    100 + more.bytes().len() + 20 * positions.len() + 13 * gone.len() + 10 * trail.len() + 8 * slots.ranges.len()
}

/// Encodes and sends a message. One that is too long is reported and dropped; the limits of a plan prevent that.
fn send(out: &mut impl AgentOut, message: &ToCoordinator) {
    match encode(message, TO_COORDINATOR_BYTES_MAX) {
        Ok(frame) => out.send(&frame),
        Err(error) => out.unsent(error),
    }
}

#[cfg(test)]
mod tests;
