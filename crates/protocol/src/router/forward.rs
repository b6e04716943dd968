//! Commands for a stream of another node, and the way of their answers (SEAMS §4, "Forwarding").

use super::caller::{Caller, Client, Segment, Wait};
use super::{Desk, Ran, Router, Turn, earliest, lists_tenure};
use crate::context::Context;
use crate::interface::{Channel, Out, Port};
use crate::lists::Lists;
use paritas_base::configuration::Tenure;
use paritas_base::{ConnId, Epoch, Incarnation, NodeId, Span, Stream, Time};
use paritas_wire::command::{self, CommandSpec, flag};
use paritas_wire::peer::Message;
use paritas_wire::resp::{ArgList, Proto, encode, errors};

/// A command or reply from this node to itself: a stream may have moved here after its command was queued.
#[derive(Debug)]
pub(super) enum Loopback {
    Forward {
        conn: ConnId,
        n: u64,
        resp3: bool,
        command: Vec<u8>,
    },
    Reply {
        conn: ConnId,
        n: u64,
        bytes: Vec<u8>,
        deadline: Option<Time>,
    },
}

/// A command over several streams: its parts and how their answers become one.
#[derive(Debug)]
pub(super) struct Gather {}

/// What an owner that is none any more answers to the node that forwarded: nothing was done, ask the next one.
const NOT_OWNER: &str = "MOVED this node no longer owns the stream";

impl Desk {
    /// The command's stream is another node's: forwarded, or the client is told where to go.
    #[allow(clippy::too_many_arguments)] // One command's whole surroundings.
    pub(super) fn run_elsewhere<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        lists: &mut Lists,
        client: &mut Client,
        turn: &mut Turn<'_>,
        spec: &'static CommandSpec,
        args: ArgList<'_>,
        raw: &[u8],
        stream: Stream,
    ) -> Ran {
        let start = turn.bytes.len();
        if let Caller::Remote(..) = client.caller {
            encode::error(turn.bytes, NOT_OWNER);
            self.push(cx, lists, client, turn, start, Wait::Ready);
            return Ran::Done;
        }
        let owner = lists_tenure(lists, stream);
        if client.port == Port::Cluster {
            let address = owner
                .and_then(|o| self.nodes.iter().find(|n| n.id == o.node))
                .map(|n| &n.cluster_address);
            let slot = command::keys(spec, args.len())
                .next()
                .map_or(0, |i| command::slot(args.arg(i)));
            match address {
                Some(address) => errors::moved(turn.bytes, slot, address),
                None => encode::error(turn.bytes, errors::CLUSTERDOWN_SLOT),
            }
            self.push(cx, lists, client, turn, start, Wait::Ready);
            return Ran::Done;
        }
        let Some(owner) = owner else {
            return self.stall(cx, lists, client, turn, spec);
        };
        let n = client.next_n;
        if !send_forward(cx, client.caller, client.proto, &owner, stream, n, raw) {
            return self.stall(cx, lists, client, turn, spec);
        }
        let (write, command, since) = (spec.is(flag::WRITE), raw.to_vec(), cx.mono());
        self.push(
            cx,
            lists,
            client,
            turn,
            start,
            Wait::Forwarded {
                stream,
                target: Some(owner),
                write,
                command,
                since,
            },
        );
        Ran::Done
    }

    /// A reply to a peer's client may be seen: it leaves for that peer.
    pub(super) fn answer<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        to: (NodeId, Incarnation),
        conn: ConnId,
        n: u64,
        bytes: &[u8],
        deadline: Option<Time>,
    ) {
        if to == (cx.shared.node, cx.shared.incarnation) {
            self.loopback.push(Loopback::Reply {
                conn,
                n,
                bytes: bytes.to_vec(),
                deadline,
            });
            return;
        }
        let stream = Stream {
            list: paritas_base::ListId(0),
            x: paritas_base::Position(0),
        };
        let message = Message::Reply { conn, n, bytes };
        if cx.send_to(to.0, to.1, Channel::Main, stream, Epoch(0), &message)
            && let Some(buffer) = cx.out.peer(to.0, Channel::Main)
        {
            buffer.deadline = earliest(buffer.deadline, deadline);
        }
    }
}

fn send_forward<O: Out>(
    cx: &mut Context<'_, O>,
    caller: Caller,
    proto: Proto,
    owner: &Tenure,
    stream: Stream,
    n: u64,
    command: &[u8],
) -> bool {
    let Caller::Local(conn) = caller else { return false };
    let message = Message::Forward {
        conn,
        n,
        resp3: proto == Proto::Resp3,
        command,
    };
    cx.send(owner, Channel::Main, stream, Epoch(0), &message)
}

impl Router {
    /// An owner's answer to a forwarded command.
    pub(crate) fn on_reply<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        _lists: &mut Lists,
        from: NodeId,
        conn: ConnId,
        n: u64,
        bytes: &[u8],
    ) {
        let Some(client) = self.clients.get_mut(&conn) else {
            return;
        };
        let Some(segment) = client.segments.iter_mut().find(|s| s.n == n) else {
            return;
        };
        let Wait::Forwarded { target, .. } = &mut segment.wait else {
            return;
        };
        if target.map(|t| t.node) != Some(from) {
            return;
        }
        let moved = bytes
            .strip_prefix(b"-")
            .is_some_and(|text| text.starts_with(NOT_OWNER.as_bytes()));
        if moved {
            // Nothing was done: it goes to the next owner when that is known.
            *target = None;
            self.desk.check_at = cx.mono() + Span(cx.shared.parameters.resend.0 / 8);
            return;
        }
        self.fill(cx, conn, n, bytes);
    }

    /// Puts the bytes of a reply that was waited for in their place.
    pub(super) fn fill<O: Out>(&mut self, cx: &mut Context<'_, O>, conn: ConnId, n: u64, bytes: &[u8]) {
        let Some(client) = self.clients.get_mut(&conn) else {
            return;
        };
        let Some(buffer) = cx.out.client(conn) else { return };
        let mut at = buffer.released;
        let mut found = false;
        for segment in &mut client.segments {
            if segment.n == n {
                segment.wait = Wait::Ready;
                segment.length = bytes.len();
                found = true;
                break;
            }
            at += segment.length;
        }
        if !found {
            return;
        }
        if at == buffer.bytes.len() {
            buffer.bytes.extend_from_slice(bytes);
        } else {
            buffer.bytes.splice(at..at, bytes.iter().copied());
        }
        // What is ready at the front needs no look at the lists.
        while let Some(Segment {
            wait: Wait::Ready,
            length,
            ..
        }) = client.segments.front()
        {
            buffer.released += length;
            client.segments.pop_front();
        }
        buffer.close |= client.closing && client.segments.is_empty();
        if !client.segments.is_empty() {
            self.desk.check_at = self.desk.check_at.min(cx.now.mono);
        }
    }

    /// A peer is gone, or its link: what was forwarded to it will not be answered.
    pub(crate) fn on_session_down<O: Out>(&mut self, cx: &mut Context<'_, O>, node: NodeId, incarnation: Incarnation) {
        self.settle_forwarded(cx, &Lists::default(), |_, target| {
            target.node == node && target.incarnation == incarnation
        });
        let mut gone: Vec<(NodeId, ConnId)> = self.remotes.keys().filter(|(from, _)| *from == node).copied().collect();
        gone.sort();
        for key in gone {
            self.remotes.remove(&key);
        }
        self.desk
            .held
            .retain(|c| !matches!(c, Caller::Remote(from, _) if *from == node));
        self.desk
            .stalled
            .retain(|c| !matches!(c, Caller::Remote(from, _) if *from == node));
    }

    /// Commands forwarded to owners that `lost` names: an unanswered read is asked again, an unanswered write is
    /// uncertain, and never sent twice (3.12).
    pub(super) fn settle_forwarded<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        _lists: &Lists,
        lost: impl Fn(Stream, Tenure) -> bool,
    ) {
        let mut uncertain = Vec::new();
        for (conn, client) in &mut self.clients {
            for segment in &mut client.segments {
                if let Wait::Forwarded {
                    stream, target, write, ..
                } = &mut segment.wait
                    && let Some(tenure) = *target
                    && lost(*stream, tenure)
                {
                    if *write {
                        uncertain.push((*conn, segment.n));
                    } else {
                        *target = None;
                    }
                }
            }
        }
        uncertain.sort();
        let mut error = Vec::new();
        encode::error(&mut error, errors::UNCERTAIN);
        for (conn, n) in uncertain {
            self.fill(cx, conn, n, &error);
        }
        self.desk.check_at = cx.mono();
    }

    /// Forwarded commands that are not with any owner go out again; those without an answer for too long are given up.
    pub(super) fn resend_forwarded<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &Lists) {
        let timeout = Span(3 * cx.shared.parameters.lease.0);
        let now = cx.mono();
        let mut given_up = Vec::new();
        let mut conns: Vec<ConnId> = self
            .desk
            .held
            .iter()
            .filter_map(|c| if let Caller::Local(conn) = c { Some(*conn) } else { None })
            .collect();
        conns.sort();
        for conn in conns {
            let Some(client) = self.clients.get_mut(&conn) else {
                continue;
            };
            let (caller, proto) = (client.caller, client.proto);
            // A later command must not overtake one for the same stream that is still waiting to be sent.
            let mut blocked: Vec<Stream> = Vec::new();
            for segment in &mut client.segments {
                let Wait::Forwarded {
                    stream,
                    target,
                    write,
                    command,
                    since,
                } = &mut segment.wait
                else {
                    continue;
                };
                if now - *since > timeout {
                    given_up.push((conn, segment.n, *write && target.is_some()));
                    continue;
                }
                if target.is_some() || blocked.contains(stream) {
                    continue;
                }
                let Some(owner) = lists_tenure(lists, *stream) else {
                    blocked.push(*stream);
                    continue;
                };
                let resp3 = proto == Proto::Resp3;
                if (owner.node, owner.incarnation) == (cx.shared.node, cx.shared.incarnation) {
                    let command = command.clone();
                    self.desk.loopback.push(Loopback::Forward {
                        conn,
                        n: segment.n,
                        resp3,
                        command,
                    });
                    *target = Some(owner);
                } else if send_forward(cx, caller, proto, &owner, *stream, segment.n, command) {
                    *target = Some(owner);
                } else {
                    blocked.push(*stream);
                }
            }
        }
        for (conn, n, uncertain) in given_up {
            let mut error = Vec::new();
            encode::error(
                &mut error,
                if uncertain {
                    errors::UNCERTAIN
                } else {
                    errors::TRYAGAIN_TAKEOVER
                },
            );
            self.fill(cx, conn, n, &error);
        }
    }

    /// Runs what this node sent to itself.
    pub(super) fn run_loopback<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &mut Lists) {
        if cx.mono() >= self.desk.check_at {
            self.resend_forwarded(cx, lists);
        }
        for item in core::mem::take(&mut self.desk.loopback) {
            let me = (cx.shared.node, cx.shared.incarnation);
            match item {
                Loopback::Forward {
                    conn,
                    n,
                    resp3,
                    command,
                } => {
                    self.on_forward(cx, lists, me, conn, n, resp3, &command);
                }
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
