//! Streams that do not serve, as this node sees it, and since when; and streams that serve here in vain (P5.13).
//!
//! The timeout of all commands for such a stream starts at the same moment. So a connection waits once, whatever the
//! number of its commands for the stream, and its commands for other streams wait no longer than that.

use super::call::Call;
use super::client::Wait;
use super::forward::owner_at;
use super::replies::{Verdict, judge};
use super::{Dispatcher, Ran};
use crate::dialect::Refusal;
use crate::redis::commands::by_client::runs_at_owner_alone;
use paritas_base::configuration::{Configuration, Tenure};
use paritas_base::{ConnId, Epoch, Map, NodeId, Position, Span, StreamId, Term, Time};
use paritas_protocol::{Channel, Context, Fault, Lists, Out, Phase, ReadLease};
use paritas_wire::command::{CommandSpec, flag};
use paritas_wire::peer::{Message, dialect};

/// The connection id of the node's own questions. No client of this node has it.
pub(crate) const NO_CLIENT: ConnId = ConnId(u64::MAX);
const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

/// At most one entry for each stream.
#[derive(Debug, Default)]
pub(crate) struct Stuck {
    streams: Map<StreamId, Entry>,
    unanswered: Map<StreamId, Unanswered>,
    /// Streams of this node for which a command could not start for its whole wait, while chunks were absent. Their
    /// owners have made no progress since.
    blocked: Map<StreamId, Term>,
    /// Owners that run, and have refused to take a value for its whole wait, because they do not serve.
    idle: Map<StreamId, Tenure>,
}

/// A stream that this node serves, but whose members did not answer for the whole wait of a command: that command has
/// neither got the acks nor the leases that it needed. Until they come, later commands would wait in vain too.
#[derive(Clone, Copy, Debug)]
struct Unanswered {
    term: Term,
    /// The delta that the command waited for.
    need: u64,
    /// When it began to wait.
    since: Time,
}

/// What an owner still lacks of what such a command waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Lacking {
    acks: bool,
    leases: bool,
}

#[derive(Debug)]
struct Entry {
    since: Time,
    /// A command has waited for the stream since the last check that found its owner alive.
    waited: bool,
    /// The owner that has answered a PING since the last check. An earlier answer says nothing: it may stand still.
    alive: Option<Tenure>,
}

impl Entry {
    fn new(since: Time) -> Self {
        Self {
            since,
            waited: false,
            alive: None,
        }
    }
}

/// What this node can see of a stream without asking.
#[derive(Clone, Copy, Debug)]
enum Seen {
    /// Its owner is here, and serves.
    Serves,
    /// It has no owner, or its owner is this node and does not serve, or there is no session with its owner.
    Stuck,
    /// There is a session with its owner.
    Elsewhere(Tenure),
}

/// How long commands wait for a stream that does not serve. It must cover a takeover from a silent host, which takes
/// half a second more than the longer of lease and suspicion time. The latter is half a second or more.
pub(crate) fn wait_max<O: Out>(cx: &Context<'_, O>) -> Span {
    let suspicion = Span::from_ms(cx.shared.cluster.suspicion_ms.into());
    Span(2 * cx.shared.parameters.lease.0.max(suspicion.0))
}

impl Stuck {
    pub(crate) fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// The time since which the stream has not served; `None` if it serves as far as this node knows.
    pub(crate) fn since(&self, stream: StreamId) -> Option<Time> {
        if self.streams.is_empty() {
            return None;
        }
        Some(self.streams.get(&stream)?.since)
    }

    /// As above, for a command that still waits.
    pub(crate) fn waited_since(&mut self, stream: StreamId) -> Option<Time> {
        if self.streams.is_empty() {
            return None;
        }
        let entry = self.streams.get_mut(&stream)?;
        entry.waited = true;
        Some(entry.since)
    }

    /// Its owner has answered, or serves here.
    #[inline]
    pub(crate) fn serves(&mut self, stream: StreamId) {
        if !self.streams.is_empty() {
            self.streams.remove(&stream);
        }
        if !self.idle.is_empty() {
            self.idle.remove(&stream);
        }
    }

    /// A value has waited in vain for an owner that runs and does not serve: the next ones do not wait again.
    pub(crate) fn note_idle(&mut self, stream: StreamId, owner: Tenure) {
        self.idle.insert(stream, owner);
    }

    /// Whether a value has waited in vain for this owner.
    pub(crate) fn is_idle(&self, stream: StreamId, owner: Tenure) -> bool {
        !self.idle.is_empty() && self.idle.get(&stream) == Some(&owner)
    }

    /// When waits end next.
    pub(crate) fn next_end(&self, now: Time, wait_max: Span) -> Option<Time> {
        let ends = self.streams.values().map(|entry| entry.since + wait_max);
        ends.filter(|end| *end > now).min()
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.streams.capacity() * size_of::<(StreamId, Entry)>()
            + self.unanswered.capacity() * size_of::<(StreamId, Unanswered)>()
            + self.blocked.capacity() * size_of::<(StreamId, Term)>()
            + self.idle.capacity() * size_of::<(StreamId, Tenure)>()
    }

    /// Whether a reply may be seen. As [`judge`], but where a command has waited in vain for acks or leases, another
    /// one does not wait for them again.
    // As for `judge`: it runs for each reply, and each place that calls it needs a part of it.
    #[inline(always)]
    pub(crate) fn judge<O: Out>(&mut self, cx: &Context<'_, O>, lists: &Lists, wait: &Wait) -> Verdict {
        match judge(cx, lists, wait) {
            Verdict::Hold if !self.unanswered.is_empty() => self.judge_held(cx, lists, wait),
            Verdict::Instead(refusal) => {
                self.note_late(cx, lists, wait);
                Verdict::Instead(refusal)
            }
            verdict => verdict,
        }
    }

    #[cold]
    fn judge_held<O: Out>(&mut self, cx: &Context<'_, O>, lists: &Lists, wait: &Wait) -> Verdict {
        match *wait {
            Wait::Write { stream, seq, .. } => match self.lacking(cx, lists, stream) {
                Some((unanswered, Lacking { acks: true, .. })) if seq >= unanswered.need => {
                    Verdict::Instead(Refusal::Uncertain)
                }
                _ => Verdict::Hold,
            },
            Wait::Read { stream, need, .. } => match self.lacking(cx, lists, stream) {
                Some((unanswered, lacking)) if lacking.leases || lacking.acks && need >= unanswered.need => {
                    Verdict::Instead(Refusal::Takeover)
                }
                _ => Verdict::Hold,
            },
            _ => Verdict::Hold,
        }
    }

    /// A command has waited in vain.
    #[cold]
    fn note_late<O: Out>(&mut self, cx: &Context<'_, O>, lists: &Lists, wait: &Wait) {
        let (stream, term, need, since) = match *wait {
            Wait::Write {
                stream,
                term,
                seq,
                since,
            } => (stream, term, seq, since),
            Wait::Read {
                stream,
                term,
                need,
                since,
            } => (stream, term, need, since),
            _ => return,
        };
        // A read that was late for leases alone says nothing of acks: it must not hide a change that lacks them.
        let acked = lists.owner(stream).map_or(0, |(_, owner)| owner.acked());
        let replaces = |(known, lacking): (Unanswered, Lacking)| need > acked && (!lacking.acks || need < known.need);
        if self.lacking(cx, lists, stream).is_none_or(replaces) {
            self.unanswered.insert(stream, Unanswered { term, need, since });
            self.lacking(cx, lists, stream);
        }
    }

    /// What the owner here lacks since a command for the stream has waited in vain; `None` if nothing.
    fn lacking<O: Out>(
        &mut self,
        cx: &Context<'_, O>,
        lists: &Lists,
        stream: StreamId,
    ) -> Option<(Unanswered, Lacking)> {
        let unanswered = *self.unanswered.get(&stream)?;
        let lacking = match lists.owner(stream) {
            Some((configuration, owner)) if owner.tenure().term() == unanswered.term => Lacking {
                acks: owner.acked() < unanswered.need,
                leases: owner.read_lease(cx, configuration, unanswered.since) == ReadLease::None,
            },
            _ => Lacking {
                acks: false,
                leases: false,
            },
        };
        if lacking.acks || lacking.leases {
            Some((unanswered, lacking))
        } else {
            self.unanswered.remove(&stream);
            None
        }
    }

    /// The owner of a stream here has made progress: what commands wait for may be there.
    #[inline]
    pub(crate) fn moves(&mut self, stream: StreamId) {
        if !self.blocked.is_empty() {
            self.blocked.remove(&stream);
        }
    }

    /// Whether a write to a stream that is served here would wait for acks in vain. It has changed nothing yet.
    #[inline]
    pub(crate) fn refuses_writes<O: Out>(&mut self, cx: &Context<'_, O>, lists: &Lists, stream: StreamId) -> bool {
        !self.unanswered.is_empty() && self.lacking(cx, lists, stream).is_some_and(|(_, lacking)| lacking.acks)
    }
}

fn see<O: Out>(cx: &Context<'_, O>, lists: &Lists, stream: StreamId) -> Seen {
    if let Some((_, owner)) = lists.owner(stream) {
        return match owner.phase() {
            Phase::Serve => Seen::Serves,
            _ => Seen::Stuck,
        };
    }
    let me = (cx.shared.node, cx.shared.incarnation);
    match owner_at(lists, stream) {
        Some((owner, _)) if (owner.node, owner.incarnation) != me && cx.reaches(&owner, Channel::Main) => {
            Seen::Elsewhere(owner)
        }
        _ => Seen::Stuck,
    }
}

/// All streams that are not lost, also those of lists of which this node has no configuration yet.
fn streams<O: Out>(cx: &Context<'_, O>, lists: &Lists) -> impl Iterator<Item = StreamId> {
    let all = cx.shared.cluster.slots.iter().map(|(_, stream)| *stream);
    all.filter(|stream| {
        let list = lists.get(stream.list);
        !list.is_some_and(|list| is_lost(&list.configuration, stream.x))
    })
}

/// P10.6: this position will never be restored, not even by a node that took it over just before.
pub(crate) fn is_lost(configuration: &Configuration, x: Position) -> bool {
    configuration.lost && !configuration.at(x).is_some_and(|a| a.state.is_live())
}

/// When the latest frame of that incarnation came, or `since` if none has come after it.
pub(crate) fn silent_since<O: Out>(cx: &Context<'_, O>, owner: &Tenure, since: Time) -> Time {
    let heard = cx.shared.heard_at(owner.node, owner.incarnation);
    heard.unwrap_or_default().max(since)
}

impl Dispatcher {
    /// Whether commands for the stream are refused at once. An owner that answers still receives them: it knows itself
    /// whether it serves.
    pub(crate) fn is_refused<O: Out>(&self, cx: &Context<'_, O>, lists: &Lists, stream: StreamId) -> bool {
        if self.stuck.is_empty() {
            return false;
        }
        let Some(entry) = self.stuck.streams.get(&stream) else {
            return false;
        };
        cx.mono() >= entry.since + wait_max(cx)
            && match see(cx, lists, stream) {
                Seen::Serves => false,
                Seen::Stuck => true,
                Seen::Elsewhere(owner) => entry.alive != Some(owner),
            }
    }

    /// A command waits for a stream that does not serve. Returns the time since which the stream has not served; that
    /// is `since` if it was not known before.
    pub(crate) fn wait_for<O: Out>(
        &mut self,
        cx: &Context<'_, O>,
        lists: &Lists,
        stream: StreamId,
        since: Time,
    ) -> Time {
        let fresh = self.stuck.since(stream).is_none();
        let entry = self.stuck.streams.entry(stream).or_insert(Entry::new(since));
        entry.waited = true;
        let since = entry.since;
        if fresh {
            self.survey(cx, lists);
        }
        since
    }

    /// The owner of a stream has been silent since a command was sent to it. So all its streams count as stuck.
    pub(crate) fn wait_for_owner<O: Out>(&mut self, cx: &Context<'_, O>, lists: &Lists, stream: StreamId, since: Time) {
        let fresh = self.stuck.since(stream).is_none();
        self.wait_for(cx, lists, stream, since);
        let incarnation = |stream| owner_at(lists, stream).map(|(owner, _)| (owner.node, owner.incarnation));
        let silent = incarnation(stream);
        for other in streams(cx, lists).filter(|other| fresh && incarnation(*other) == silent) {
            self.stuck.streams.entry(other).or_insert(Entry::new(since));
        }
    }

    /// Notes all streams that do not serve now, though the commands for them may still be behind others.
    fn survey<O: Out>(&mut self, cx: &Context<'_, O>, lists: &Lists) {
        for stream in streams(cx, lists).filter(|stream| matches!(see(cx, lists, *stream), Seen::Stuck)) {
            self.stuck.streams.entry(stream).or_insert(Entry::new(cx.mono()));
        }
    }

    /// The command cannot start, because its stream does not serve. It is refused once the stream's timeout is over.
    pub(crate) fn stall_on<O: Out>(&mut self, call: &mut Call<'_, '_, O>, spec: &CommandSpec, stream: StreamId) -> Ran {
        let mut since = self.wait_for(call.cx, call.lists, stream, call.cx.mono());
        if call.cx.rules().fault(Fault::CommandsWaitInTurn) {
            since = *call.client.stalled_since.get_or_insert_with(|| call.cx.mono());
        }
        let end = since + wait_max(call.cx);
        if call.cx.mono() < end {
            self.retry_at = self.retry_at.min(end);
            return Ran::Stalled;
        }
        self.refuse(call, spec)
    }

    /// The command waits for an absent chunk of a stream that serves here. It is refused if it still cannot start after
    /// two leases; at once, if another one was refused for this and the owner has made no progress since.
    pub(crate) fn stall_here<O: Out>(
        &mut self,
        call: &mut Call<'_, '_, O>,
        spec: &CommandSpec,
        stream: StreamId,
        term: Term,
    ) -> Ran {
        if self.stuck.blocked.get(&stream) == Some(&term) {
            return self.refuse(call, spec);
        }
        let ran = self.stall(call, spec);
        if ran != Ran::Stalled {
            self.stuck.blocked.insert(stream, term);
        }
        ran
    }

    /// Refuses a command that has changed nothing. It is not tried again.
    pub(crate) fn refuse<O: Out>(&mut self, call: &mut Call<'_, '_, O>, spec: &CommandSpec) -> Ran {
        call.client.stalled_since = None;
        if runs_at_owner_alone(spec.id) {
            let n = call.client.command_n();
            call.client.unstage(call.cx, call.lists, n);
        }
        let refusal = if spec.is(flag::WRITE) {
            Refusal::Unavailable
        } else {
            Refusal::Takeover
        };
        self.reply_refusal(call, refusal)
    }

    /// Forgets streams that serve here, and sends a PING to the owners of others: where commands are refused at once,
    /// no command would show that the owner is back.
    pub(crate) fn look_at_stuck<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &Lists) {
        if self.stuck.is_empty() {
            return;
        }
        self.survey(cx, lists);
        let (now, wait_max) = (cx.mono(), wait_max(cx));
        let mut silent: Vec<(Tenure, StreamId)> = Vec::new();
        self.stuck
            .streams
            .retain(|stream, entry| match see(cx, lists, *stream) {
                Seen::Serves => false,
                Seen::Stuck => true,
                Seen::Elsewhere(owner) => {
                    let is_alive = entry.alive.take() == Some(owner);
                    if is_alive && !(core::mem::take(&mut entry.waited) && now < entry.since + wait_max) {
                        return false;
                    }
                    if !silent.iter().any(|(other, _)| other.node == owner.node) {
                        silent.push((owner, *stream));
                    }
                    true
                }
            });
        for (owner, stream) in silent {
            let ping = Message::Forward {
                database: 0,
                conn: NO_CLIENT,
                n: 0,
                dialect: dialect::RESP2,
                command: PING,
            };
            cx.send(&owner, Channel::Main, stream, Epoch(0), &ping);
        }
    }

    /// An owner has answered the PING. Commands for its streams are no longer refused at once. The timeout of commands
    /// that wait already stays as it was.
    pub(crate) fn on_pong<O: Out>(&mut self, cx: &Context<'_, O>, lists: &Lists, from: NodeId) {
        let (now, wait_max) = (cx.mono(), wait_max(cx));
        self.stuck
            .streams
            .retain(|stream, entry| match see(cx, lists, *stream) {
                Seen::Elsewhere(owner) if owner.node == from => {
                    entry.alive = Some(owner);
                    now < entry.since + wait_max
                }
                _ => true,
            });
    }
}
