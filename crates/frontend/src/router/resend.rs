//! Forwarded commands whose owner has changed or no longer answers: they are refused, or sent again.

use super::client::{Caller, Forwarded};
use super::forward::{CONGESTED_RETRY, Loopback, is_congested, owner_at, stream_now};
use super::replies::earliest;
use super::stuck::{silent_since, wait_max};
use super::{Dispatcher, Router, lists_tenure};
use crate::dialect::Refusal;
use paritas_base::configuration::{NodeState, Tenure};
use paritas_base::{ConnId, Incarnation, NodeId, StreamId};
use paritas_protocol::{Channel, Context, Lists, Out, Parameters, PeerCommand};
use paritas_wire::peer::Message;
use paritas_wire::peer::dialect::STAGED;

/// Whether a command that comes later at the client may have run on the stream of this one.
fn is_overtaken(ran: &[(u64, Option<StreamId>)], read: &Forwarded) -> bool {
    let mut later = ran.iter().filter(|(n, _)| *n > read.n);
    later.any(|(_, stream)| stream.is_none_or(|stream| stream == read.stream))
}

/// Whether the node to which a command was forwarded will still answer it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// The tenure goes on: the command stays with its owner.
    Kept,
    /// The tenure is over, but its node is up: it will answer whether it has run the command.
    Over,
    /// No node will answer.
    Lost,
}

impl Router {
    /// A peer or the link to it is gone: it will not answer the commands forwarded to it.
    pub(crate) fn on_session_down<O: Out>(&mut self, cx: &mut Context<'_, O>, node: NodeId, incarnation: Incarnation) {
        let theirs = |target: Tenure| target.node == node && target.incarnation == incarnation;
        self.settle_forwarded(cx, |_, target| if theirs(target) { Fate::Lost } else { Fate::Kept });
        let gone: Vec<(NodeId, ConnId)> = self.remotes.keys().filter(|(from, _)| *from == node).copied().collect();
        for key in gone {
            self.forget_remote(key);
        }
    }

    /// Settles the commands that were forwarded under a tenure that is over, for the streams that `of` accepts. Called
    /// when configurations or node records have changed.
    pub(crate) fn settle_lost_tenures<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        lists: &Lists,
        of: impl Fn(StreamId) -> bool,
    ) {
        let nodes = core::mem::take(&mut self.dispatcher.nodes);
        let answers = |t: Tenure| {
            let mut up = nodes.iter().filter(|n| n.state == NodeState::Up);
            up.any(|n| (n.id, n.incarnation) == (t.node, t.incarnation))
        };
        self.settle_forwarded(cx, |stream, target| {
            if !of(stream) || lists_tenure(lists, stream) == Some(target) {
                Fate::Kept
            } else if answers(target) {
                Fate::Over
            } else {
                Fate::Lost
            }
        });
        self.dispatcher.nodes = nodes;
    }

    /// Settles forwarded commands according to `fate`. An unanswered read is sent again. An unanswered write is refused
    /// as uncertain and never sent twice (P3.12), unless its owner can still say whether it has begun.
    pub(crate) fn settle_forwarded<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        fate: impl Fn(StreamId, Tenure) -> Fate,
    ) {
        let mut refused = Vec::new();
        for (conn, client) in &mut self.clients {
            let mut detours = client.detours;
            let ran = client.may_have_run();
            for forwarded in client.forwards() {
                let Some(target) = forwarded.target else { continue };
                match fate(forwarded.stream, target) {
                    Fate::Kept => {}
                    // A later command of the client may have run on this stream. If this read were sent again, it would
                    // run after that command. So the former owner must say whether the read has run.
                    Fate::Over if forwarded.write || is_overtaken(&ran, forwarded) => {
                        Dispatcher::go_behind(&mut detours, forwarded);
                    }
                    Fate::Lost if forwarded.write => refused.push((*conn, forwarded.n, Refusal::Uncertain)),
                    Fate::Lost if is_overtaken(&ran, forwarded) => {
                        refused.push((*conn, forwarded.n, Refusal::Takeover));
                    }
                    Fate::Over | Fate::Lost => {
                        Dispatcher::detour(&mut detours, forwarded);
                        self.dispatcher.resend_due = true;
                    }
                }
            }
            client.detours = detours;
        }
        refused.sort_by_key(|(conn, n, _)| (*conn, *n));
        for (conn, n, refusal) in refused {
            self.fill_refusal(cx, conn, n, refusal);
        }
    }

    /// Sends forwarded commands again that are not at any owner. Refuses those that were not answered in time.
    pub(crate) fn resend_forwarded<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &Lists) {
        self.dispatcher.resend_due = false;
        let (now, wait_max) = (cx.mono(), wait_max(cx));
        let Parameters {
            lease, lease_renewal, ..
        } = cx.shared.parameters;
        let me = (cx.shared.node, cx.shared.incarnation);
        let mut given_up = Vec::new();
        let mut conns: Vec<ConnId> = self
            .dispatcher
            .held
            .iter()
            .filter_map(|c| if let Caller::Local(conn) = c { Some(*conn) } else { None })
            .collect();
        conns.sort();
        for conn in conns {
            let Some(client) = self.clients.get_mut(&conn) else {
                continue;
            };
            let plain = client.dialect.to_byte();
            // A later command must not overtake one for the same stream that is still waiting to be sent.
            let mut blocked: Vec<StreamId> = Vec::new();
            // Owners that still make a value of a long argument, and then run what the client has sent behind it.
            let mut working: Vec<Tenure> = Vec::new();
            for forwarded in client.forwards() {
                let uncertain = forwarded.write && forwarded.target.is_some();
                // A live owner may itself refuse the command after `wait_max`. Its refusal must come first: it can say
                // of a write that nothing has happened, which this node cannot know.
                let own_end = forwarded.since + wait_max + lease;
                if let Some((owner, epoch)) = owner_at(lists, forwarded.stream)
                    && forwarded.target == Some(owner)
                    && self.dispatcher.may_work_on(cx, conn, epoch, forwarded)
                {
                    working.push(owner);
                }
                let is_working = forwarded.target.is_some_and(|target| working.contains(&target));
                let end = match self.dispatcher.stuck.waited_since(forwarded.stream) {
                    Some(since) if uncertain => own_end.min(since + wait_max + lease),
                    Some(since) => own_end.min(since + wait_max),
                    None => own_end,
                };
                // There is no timeout while the owner works on a long value. The owner refuses the command if it makes
                // no progress.
                if now >= end && !is_working {
                    let refusal = if uncertain {
                        Refusal::Uncertain
                    } else {
                        Refusal::Takeover
                    };
                    given_up.push((conn, forwarded.n, refusal));
                    continue;
                }
                if let Some(target) = forwarded.target {
                    let (stream, since) = (forwarded.stream, silent_since(cx, &target, forwarded.since));
                    if lists_tenure(lists, stream) != Some(target) {
                        blocked.push(stream);
                    } else if now - since >= lease_renewal && (target.node, target.incarnation) != me {
                        self.dispatcher.wait_for_owner(cx, lists, stream, since);
                    }
                    // If its slots have moved, it may come back and be sent to their new stream. Later commands must
                    // not overtake it there.
                    if forwarded.detour
                        && let Some(stream) = stream_now(cx, forwarded, &mut self.dispatcher.part_args)
                    {
                        blocked.push(stream);
                    }
                    continue;
                }
                if blocked.contains(&forwarded.stream) {
                    continue;
                }
                let Some(stream) = stream_now(cx, forwarded, &mut self.dispatcher.part_args) else {
                    given_up.push((conn, forwarded.n, Refusal::SlotsMoving));
                    continue;
                };
                (forwarded.stream, forwarded.map) = (stream, cx.shared.slots.version());
                if blocked.contains(&stream) {
                    continue;
                }
                let (n, database, command) = (forwarded.n, forwarded.database, &forwarded.command);
                let dialect = if forwarded.ahead.is_some() {
                    plain | STAGED
                } else {
                    plain
                };
                let Some((owner, epoch)) = owner_at(lists, stream) else {
                    self.dispatcher.wait_for(cx, lists, stream, now);
                    blocked.push(stream);
                    continue;
                };
                let sent = if (owner.node, owner.incarnation) == (cx.shared.node, cx.shared.incarnation) {
                    self.dispatcher.loopback.push(Loopback::Forward {
                        conn,
                        command: PeerCommand {
                            n,
                            dialect,
                            database,
                            stream,
                            epoch,
                            bytes: command.clone().into(),
                        },
                    });
                    true
                } else if is_congested(cx, owner.node, command.len()) {
                    blocked.push(stream);
                    self.dispatcher.check_at = self.dispatcher.check_at.min(now + CONGESTED_RETRY);
                    continue;
                } else {
                    let message = Message::Forward {
                        conn,
                        n,
                        dialect,
                        database,
                        command,
                    };
                    cx.send(&owner, Channel::Main, stream, epoch, &message)
                };
                if sent {
                    forwarded.target = Some(owner);
                } else {
                    self.dispatcher.wait_for(cx, lists, stream, now);
                    blocked.push(stream);
                }
            }
        }
        for (conn, n, refusal) in given_up {
            self.fill_refusal(cx, conn, n, refusal);
        }
    }

    /// Handles the commands and replies that this node sent to itself.
    pub(crate) fn run_loopback<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &mut Lists) {
        if self.dispatcher.resend_due || cx.mono() >= self.dispatcher.check_at {
            self.resend_forwarded(cx, lists);
        }
        for item in core::mem::take(&mut self.dispatcher.loopback) {
            let me = (cx.shared.node, cx.shared.incarnation);
            match item {
                Loopback::Forward { conn, command } => {
                    self.on_forward(cx, lists, me, conn, command);
                    // Without another pass, the delta of this command would wait for the next event.
                    self.dispatcher.wake = true;
                }
                Loopback::ReplyBody(reply) => self.on_reply_body(cx, lists, *reply),
                Loopback::Reply {
                    conn,
                    n,
                    bytes,
                    deadline,
                } => {
                    self.on_reply(cx, lists, me.0, conn, n, &bytes);
                    if let Some(buffer) = cx.out.client(conn) {
                        buffer.deadline = earliest(buffer.deadline, deadline);
                    }
                }
            }
        }
    }
}
