//! D9: what clients wait for while a stream does not serve (P5.13). The commands of a connection wait together, once.
//! After that, commands for the stream are refused at once.
//!
//! An observer looks at all processes every 20 ms. A stream is *quiet* for a node from the latest of three times on:
//! when a running process last served the stream, when the node got a configuration with another tenure of the owner,
//! and when the node's process was last stopped. A command for a quiet stream must be answered within the time that
//! P5.13 allows. If the owner is another process, that time begins when the owner last ran, because it may have
//! answered a PING then. Clients of a process that was superseded are not looked at.

use crate::client::{LIBRARY, Pending, in_database};
use crate::driver::Process;
use crate::linear::Action;
use crate::marks::Seen;
use crate::world::World;
use paritas_base::configuration::{ClusterRecord, Tenure};
use paritas_base::{ConnId, Incarnation, NodeId, Span, StreamId, Time};
use paritas_protocol::{Phase, Port, Role};

/// Time between two looks.
const LOOK_EVERY: Span = Span::from_ms(20);
/// Between an event and what a client sees of it, beside the delays of frames: looks, turns, timers.
const SLACK: Span = Span::from_ms(150);
/// How many times its usual longest delay a slow frame may take, on two ways.
const SLOW_MAX: u64 = 2 * 20;

/// What the observer remembers.
#[derive(Default)]
pub(super) struct Waits {
    look_at: Time,
    /// When each stream was served last, in the order of `World::stream_index`.
    served: Vec<Time>,
    nodes: Vec<View>,
    heads: Vec<Head>,
}

/// What a node can know.
#[derive(Clone, Default)]
struct View {
    incarnation: Option<Incarnation>,
    /// The process did not run until then.
    stood_still: Time,
    owners: Vec<Owner>,
    /// To each process.
    paths: Vec<Path>,
}

/// The way between two processes.
#[derive(Clone, Copy, Default)]
struct Path {
    /// Frames of one of the two do not arrive.
    is_cut: bool,
    /// When the latest cut began, or ended if it is over.
    changed: Time,
}

/// The owner of a stream by a node's configuration.
#[derive(Clone, Copy, Default)]
struct Owner {
    tenure: Option<Tenure>,
    since: Time,
    /// Until then it was another process that runs, and so may have answered a PING.
    elsewhere: Time,
    /// When such a process handled an event last. It may have answered a PING then.
    answered: Time,
    /// When a client of the node was told that the stream does not serve.
    refused: Option<Time>,
}

/// A client's oldest command.
#[derive(Clone, Copy, Default)]
struct Head {
    conn: Option<ConnId>,
    /// It waits since then, or since it was sent if that was later.
    start: Time,
}

impl World {
    /// The number of a stream among all of the run.
    fn stream_index(&self, stream: StreamId) -> usize {
        usize::from(stream.list.0) * usize::from(self.swarm.data) + usize::from(stream.x.0)
    }

    /// The stream of a command, if it is for one stream alone.
    fn stream_of(&self, pending: &Pending) -> Option<StreamId> {
        let [name] = pending.keys.as_slice() else { return None };
        // A call of a function is for two streams, one after the other.
        if matches!(pending.action, Action::Flush | Action::List) || name == LIBRARY {
            return None;
        }
        let key = self.workload.crowds.keys(name).into_iter().next()?;
        stream_at(&self.committed.cluster, self.swarm.slot_of(in_database(name).1, &key))
    }

    /// The longest wait that P5.13 allows. A command that was sent to an owner waits one lease longer than others. It
    /// is not known which were.
    fn wait_max(&self) -> Span {
        let lease = self.swarm.parameters.lease.0;
        let suspicion = Span::from_ms(self.committed.cluster.suspicion_ms.into()).0;
        self.at_most(Span(2 * lease.max(suspicion) + lease))
    }

    /// How long a process may take for a time by its clock, which may be slow.
    fn at_most(&self, by_clock: Span) -> Span {
        Span(by_clock.0 * 1_000_000 / (1_000_000 - self.swarm.drift_ppm))
    }

    fn wait_slack(&self) -> Span {
        let lag = self.swarm.lag.map_or(0, |(_, by)| 2 * by.0);
        let renewal = self.swarm.parameters.lease_renewal.0;
        Span(SLACK.0 + renewal + lag + SLOW_MAX * self.swarm.delay_max.0)
    }

    /// Looks at all processes and clients, if it is time to. No event is planned for it: a run is the same without.
    pub(crate) fn watch_waits(&mut self) {
        let now = self.schedule.now;
        let Some(governed) = self.governed.as_mut().filter(|g| g.waits.look_at <= now) else {
            return;
        };
        let mut waits = core::mem::take(&mut governed.waits);
        waits.look_at = now + LOOK_EVERY;
        waits.served.resize(
            self.committed.configurations.len() * usize::from(self.swarm.data),
            Time(0),
        );
        waits.nodes.resize(self.fleet.processes.len(), View::default());
        waits.heads.resize(self.workload.clients.len(), Head::default());
        self.look_at_processes(&mut waits);
        let late = (0..self.workload.clients.len()).find_map(|client| self.late_command(&waits, client));
        if let Some(governed) = self.governed.as_mut() {
            governed.waits = waits;
        }
        if let Some(what) = late {
            self.violate(what);
        }
    }

    fn look_at_processes(&self, waits: &mut Waits) {
        let now = self.schedule.now;
        for (at, process) in self.fleet.processes.iter().enumerate() {
            let view = &mut waits.nodes[at];
            let Some(process) = process.as_deref() else {
                view.incarnation = None;
                continue;
            };
            if view.incarnation != Some(process.incarnation) {
                *view = View {
                    incarnation: Some(process.incarnation),
                    stood_still: now,
                    owners: vec![Owner::default(); waits.served.len()],
                    paths: Vec::new(),
                };
            }
            view.owners.resize(waits.served.len(), Owner::default());
            view.paths.resize(self.fleet.processes.len(), Path::default());
            for (other, path) in view.paths.iter_mut().enumerate() {
                let is_cut = self.network.is_blocked(now, at, other) || self.network.is_blocked(now, other, at);
                if path.is_cut != is_cut {
                    *path = Path { is_cut, changed: now };
                }
            }
            let is_stopped = self.fleet.is_paused(at, self.schedule.now);
            if is_stopped {
                view.stood_still = now;
            }
            for list in process.node.replica().lists() {
                let id = list.configuration.list;
                for x in list.configuration.data_positions() {
                    let owner = &mut view.owners[self.stream_index(StreamId { list: id, x })];
                    let tenure = list.configuration.tenure(x);
                    if owner.tenure != tenure {
                        (owner.tenure, owner.since, owner.refused) = (tenure, now, None);
                    }
                    if let Some(other) = tenure.and_then(|t| self.elsewhere(t, at)) {
                        owner.elsewhere = now;
                        owner.answered = owner.answered.max(other.ran_at);
                    }
                }
            }
        }
        let awake = self.fleet.all().filter(|process| process.paused_until <= now);
        for list in awake.flat_map(|process| process.node.replica().lists()) {
            let owners = list.roles.iter().filter_map(|role| match role {
                Role::Owner(owner) if owner.phase() == Phase::Serve => Some(owner.stream()),
                _ => None,
            });
            for stream in owners {
                waits.served[self.stream_index(stream)] = now;
            }
        }
    }

    /// The process of a tenure if it runs, also beside a second one of its node, and is not of the node at `at`.
    fn elsewhere(&self, tenure: Tenure, at: usize) -> Option<&Process> {
        let other = usize::from(tenure.node.0);
        self.fleet.process(other, tenure.incarnation).filter(|_| other != at)
    }

    /// The time from which a node counts the owner of a stream as not answering: when the owner's process ran last. An
    /// owner that runs without a break refuses commands itself, once they reach it. For it the time is the end of its
    /// last stop, or the latest change of the path to it, if that is later: until the path was cut, it may have
    /// answered a PING.
    fn unanswered_since(&self, waits: &Waits, node: NodeId, owner: &Owner) -> Time {
        let tenure = owner
            .tenure
            .filter(|t| self.elsewhere(*t, usize::from(node.0)).is_some());
        let at = tenure
            .map(|t| usize::from(t.node.0))
            .filter(|at| !self.fleet.is_paused(*at, self.schedule.now));
        let since = at.and_then(|at| {
            let path = waits.nodes.get(usize::from(node.0))?.paths.get(at)?;
            Some(waits.nodes.get(at)?.stood_still.max(path.changed))
        });
        since.unwrap_or(owner.answered)
    }

    /// D9: a client's oldest command that should have been answered.
    fn late_command(&self, waits: &Waits, client: usize) -> Option<String> {
        let now = self.schedule.now;
        let (node, incarnation, conn) = self.workload.clients[client]
            .conn
            .filter(|_| self.workload.clients[client].up)?;
        let pending = self.workload.clients[client].pending.front()?;
        let stream = self.stream_of(pending)?;
        let view = waits.nodes.get(usize::from(node.0))?;
        let owner = view.owners.get(self.stream_index(stream))?;
        if view.incarnation != Some(incarnation) {
            return None;
        }
        let head = waits.heads[client];
        let head = if head.conn == Some(conn) { head } else { Head::default() };
        let start = head.start.max(pending.sent);
        let quiet = waits.quiet_since(node, self.stream_index(stream))?;
        let slack = self.wait_slack();
        let what = |limit: &str| {
            format!(
                "D9: {:?} of {:?} waits at {node} since {} ms, {limit}; stream {stream} is quiet since {} ms",
                pending.action,
                pending.keys,
                start.0 / 1_000_000,
                quiet.0 / 1_000_000
            )
        };
        let unanswered = self.unanswered_since(waits, node, owner);
        if now > start.max(quiet).max(unanswered) + self.wait_max() + slack {
            return Some(what("longer than any command may"));
        }
        let known = owner.refused.filter(|at| *at > quiet.max(owner.elsewhere) + slack)?;
        // A command that an owner was sent may wait one lease longer (P5.13): its reply may be lost. It was sent before
        // the refusal, or after it to an owner that runs: that one may have answered a PING.
        let runs = owner
            .tenure
            .is_some_and(|t| self.elsewhere(t, usize::from(node.0)).is_some());
        let lease = if start > known && !runs {
            Span(0)
        } else {
            self.at_most(self.swarm.parameters.lease)
        };
        (now > start.max(known) + lease + slack).then(|| what("and another was refused before"))
    }

    /// A client has got the reply to a command. The next one of its connection has waited since then; since earlier if
    /// this node could see all the time that it is for a stream that does not serve.
    pub(crate) fn note_reply(&mut self, client: usize, pending: &Pending, is_refused: bool) {
        let now = self.schedule.now;
        let Some((node, incarnation, conn)) = self.workload.clients[client].conn.filter(|_| self.governed.is_some())
        else {
            return;
        };
        let (stream, next) = (self.stream_of(pending), self.workload.clients[client].pending.front());
        let next = next.and_then(|next| self.stream_of(next));
        let index = stream.map(|stream| self.stream_index(stream));
        let next_index = next.map(|stream| self.stream_index(stream));
        let (slack, any_port) = (self.wait_slack(), self.workload.clients[client].port == Port::Any);
        let Some(waits) = self.governed.as_mut().map(|g| &mut g.waits) else {
            return;
        };
        let Some(head) = waits.heads.get(client).copied() else {
            return;
        };
        let view = waits.nodes.get(usize::from(node.0));
        if view.is_none_or(|view| view.incarnation != Some(incarnation)) {
            // What another process of the node told its clients says nothing of the one that is looked at.
            waits.heads[client] = Head {
                conn: Some(conn),
                start: now,
            };
            return;
        }
        let head = if head.conn == Some(conn) { head } else { Head::default() };
        let quiet = index.and_then(|index| waits.quiet_since(node, index));
        let view = waits.nodes.get_mut(usize::from(node.0));
        let mut is_known = false;
        if let Some((view, index)) = view.zip(index)
            && let Some(owner) = view.owners.get_mut(index)
            && is_refused
        {
            is_known = quiet.is_some_and(|quiet| {
                let refused = owner.refused;
                refused.is_some_and(|at| at > quiet.max(owner.elsewhere) + slack && pending.begin > at)
            });
            // A command that was sent before may be refused for another reason: its owner may have refused it long ago,
            // or have ended with it. On the other port, the same words may be about an owner that the configuration
            // does not name.
            let began = quiet.map(|quiet| quiet.max(owner.elsewhere));
            let counts = any_port && began.is_some_and(|began| pending.begin > began + slack);
            let is_old = owner.refused.is_none_or(|at| began.is_none_or(|began| at <= began));
            if counts && is_old {
                owner.refused = Some(now);
            }
        }
        // Since when the two wait together. For the stream of an owner at another node, not before its process ended:
        // until then the node could not see that the owner does not serve.
        let together = next_index.and_then(|next| {
            if Some(next) == index {
                return Some(Time(0));
            }
            let owner = waits.nodes.get(usize::from(node.0))?.owners.get(next)?;
            let is_seen = owner.elsewhere + slack < now && quiet.is_some_and(|quiet| quiet + slack < now);
            is_seen.then_some(owner.elsewhere)
        });
        waits.heads[client] = Head {
            conn: Some(conn),
            start: together.map_or(now, |since| head.start.max(pending.begin).max(since)),
        };
        if is_known {
            self.oracle.marks.see(Seen::RefusedAtOnce);
        }
    }
}

impl Waits {
    /// Since when a stream is quiet for a node.
    fn quiet_since(&self, node: NodeId, stream: usize) -> Option<Time> {
        let view = self.nodes.get(usize::from(node.0))?;
        let owner = view.owners.get(stream)?;
        Some(
            self.served
                .get(stream)?
                .max(&owner.since)
                .max(&view.stood_still)
                .to_owned(),
        )
    }
}

/// The stream to which a hash slot belongs. No slot moves in a governed run.
fn stream_at(cluster: &ClusterRecord, slot: u16) -> Option<StreamId> {
    let at = cluster.slots.partition_point(|(last, _)| *last < slot);
    cluster.slots.get(at).map(|(_, stream)| *stream)
}
