//! Questions of this node to all others for a client's command: INFO wants numbers of keys, SCRIPT LOAD and SCRIPT
//! FLUSH are to happen at every node.
//!
//! Such commands must be answered when a node is away. So they wait for a short time only.

use super::client::Client;
use super::forward::is_congested;
use super::{Dispatcher, Router};
use crate::redis::connection::SLOW_BYTE_STEPS;
use crate::redis::info::Sections;
use crate::redis::parts;
use paritas_base::{ConnId, Epoch, Incarnation, ListId, NodeId, Position, StreamId, Time};
use paritas_protocol::{Channel, Context, Lists, Out};
use paritas_wire::peer::{Message, dialect};
use paritas_wire::resp::ArgList;

/// The connection ids of these questions. No client of this node has them, and the node's PINGs have another: a
/// question may wait for its turn, and a PING behind it would not show that the other node is alive.
pub(crate) const NO_CLIENT_COUNTS: ConnId = ConnId(u64::MAX - 1);
pub(crate) const NO_CLIENT_SCRIPTS: ConnId = ConnId(u64::MAX - 2);

/// Clients' commands that wait for the answers of other nodes.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    /// The number of the latest question.
    asked: u64,
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    conn: ConnId,
    n: u64,
    what: What,
    asked: u64,
    /// Nodes that have not answered.
    silent: Vec<NodeId>,
    until: Time,
}

/// What is replied in the end.
#[derive(Debug)]
pub(crate) enum What {
    /// These sections of INFO.
    Info(Sections),
    /// This, to a command of scripts.
    Reply(Vec<u8>),
}

impl Questions {
    /// When the next wait ends at the latest. One that has all answers only waits for the next turn.
    pub(crate) fn next_end(&self) -> Option<Time> {
        let end = |waiting: &Waiting| match waiting.silent.is_empty() {
            true => Time(0),
            false => waiting.until,
        };
        self.waiting.iter().map(end).min()
    }

    pub(crate) fn forget(&mut self, conn: ConnId) {
        self.waiting.retain(|waiting| waiting.conn != conn);
    }

    /// A node has answered.
    pub(crate) fn on_answer(&mut self, from: NodeId, asked: u64) {
        for waiting in self.waiting.iter_mut().filter(|waiting| waiting.asked == asked) {
            waiting.silent.retain(|node| *node != from);
        }
    }

    pub(crate) fn held_bytes(&self) -> usize {
        let each = self.waiting.iter().map(|waiting| match &waiting.what {
            What::Info(_) => waiting.silent.capacity() * size_of::<NodeId>(),
            What::Reply(reply) => waiting.silent.capacity() * size_of::<NodeId>() + reply.capacity(),
        });
        self.waiting.capacity() * size_of::<Waiting>() + each.sum::<usize>()
    }
}

impl Dispatcher {
    /// Asks these nodes, for command `n` of a client. Returns `what` if there is nobody to ask.
    pub(crate) fn ask_nodes<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        nodes: &[(NodeId, Incarnation)],
        (kind, question): (ConnId, &[u8]),
        (conn, n): (ConnId, u64),
        what: What,
    ) -> Option<What> {
        self.questions.asked += 1;
        let asked = self.questions.asked;
        let me = (cx.shared.node, cx.shared.incarnation);
        // It is about no stream.
        let stream = StreamId {
            list: ListId(0),
            x: Position(0),
        };
        let question_bytes = question.len();
        let mut silent = Vec::new();
        for (node, incarnation) in nodes.iter().filter(|node| **node != me) {
            let question = Message::Forward {
                database: 0,
                conn: kind,
                n: asked,
                dialect: dialect::RESP2,
                command: question,
            };
            if !silent.contains(node)
                && !is_congested(cx, *node, question_bytes)
                && cx.send_to(*node, *incarnation, Channel::Main, stream, Epoch(0), &question)
            {
                silent.push(*node);
            }
        }
        if silent.is_empty() {
            return Some(what);
        }
        self.questions.waiting.push(Waiting {
            conn,
            n,
            what,
            asked,
            silent,
            until: cx.mono() + cx.shared.parameters.resend,
        });
        None
    }
}

impl Dispatcher {
    /// Gives a command that has run here to all other nodes. Returns its reply if there is nobody to wait for.
    pub(crate) fn tell_nodes<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        asker: (ConnId, u64),
        args: ArgList<'_>,
        reply: Vec<u8>,
    ) -> Option<Vec<u8>> {
        let nodes: Vec<_> = self.nodes.iter().map(|node| (node.id, node.incarnation)).collect();
        let mut command = Vec::new();
        parts::append_command(&mut command, args);
        match self.ask_nodes(cx, &nodes, (NO_CLIENT_SCRIPTS, &command), asker, What::Reply(reply)) {
            Some(What::Reply(reply)) => Some(reply),
            _ => None,
        }
    }
}

impl Router {
    /// Answers each command that has all answers, or has waited for long enough.
    pub(crate) fn answer_askers<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &Lists) {
        if self.dispatcher.questions.waiting.is_empty() {
            return;
        }
        let now = cx.mono();
        let all = core::mem::take(&mut self.dispatcher.questions.waiting);
        let (due, rest): (Vec<_>, _) = all.into_iter().partition(|w| w.silent.is_empty() || now >= w.until);
        self.dispatcher.questions.waiting = rest;
        for waiting in due {
            if cx.shared.turn_budget.left() == 0 {
                // The next turn makes its reply.
                self.dispatcher.questions.waiting.push(waiting);
                continue;
            }
            let Waiting {
                conn, n, what, silent, ..
            } = waiting;
            let sections = match what {
                What::Reply(reply) => {
                    self.fill(cx, conn, n, &reply);
                    continue;
                }
                What::Info(sections) => sections,
            };
            let answer = |client: &Client| {
                let mut reply = Vec::new();
                self.dispatcher
                    .append_info(cx, lists, client, sections, &silent, &mut reply);
                reply
            };
            if let Some(reply) = self.clients.get(&conn).map(answer) {
                cx.shared.turn_budget.spend(SLOW_BYTE_STEPS * reply.len() as u64);
                self.fill(cx, conn, n, &reply);
            }
        }
    }
}
