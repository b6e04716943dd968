//! Numbers of keys of the whole cluster, for INFO on the any-key port.
//!
//! INFO must answer when a node is away, so it does not ask the streams as DBSIZE does. It asks each node that owns
//! some, and waits for a short time. A stream whose owner has not answered by then counts as it did last.

use super::client::Client;
use super::forward::owner_at;
use super::{Dispatcher, Router};
use crate::redis::connection::SLOW_BYTE_STEPS;
use crate::redis::info::Sections;
use crate::redis::parts;
use paritas_base::{ConnId, Epoch, ListId, Map, NodeId, Position, StreamId, Time};
use paritas_protocol::{Channel, Context, Lists, Out};
use paritas_wire::peer::{Message, dialect};
use paritas_wire::resp::encode;

/// The connection id of these questions. No client of this node has it, and the node's PINGs have another: a question
/// may wait for its turn, and a PING behind it would not show that the other node is alive.
pub(crate) const NO_CLIENT_COUNTS: ConnId = ConnId(u64::MAX - 1);
/// The question to another node.
const QUESTION: &[u8] = b"*2\r\n$4\r\nINFO\r\n$8\r\nkeyspace\r\n";
/// Numbers of the answer for each stream: list, position, keys, keys that expire.
const NUMBERS: usize = 4;

/// What is known of the streams of other nodes, and who waits to know more.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// As last told by their owners. At most one entry for each stream.
    known: Map<StreamId, Count>,
    /// The number of the latest question.
    asked: u64,
    waiting: Vec<Waiting>,
}

/// Keys of some streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Count {
    pub(crate) keys: u64,
    pub(crate) expiring: u64,
    /// Streams whose owner has not answered.
    pub(crate) silent_streams: u64,
}

/// A client's INFO that waits for the answers of other nodes.
#[derive(Debug)]
struct Waiting {
    conn: ConnId,
    n: u64,
    sections: Sections,
    asked: u64,
    /// Nodes that have not answered.
    silent: Vec<NodeId>,
    until: Time,
}

impl Counts {
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

    pub(crate) fn held_bytes(&self) -> usize {
        let silent = self.waiting.iter().map(|waiting| waiting.silent.capacity());
        self.known.capacity() * size_of::<(StreamId, Count)>()
            + self.waiting.capacity() * size_of::<Waiting>()
            + silent.sum::<usize>() * size_of::<NodeId>()
    }
}

/// Keys of a stream that this node owns; `None` while not all are counted.
fn own_count(lists: &Lists, stream: StreamId) -> Option<Count> {
    let (_, owner) = lists.owner(stream)?;
    Some(Count {
        keys: owner.key_count()?,
        expiring: owner.store().gauges().expiring,
        silent_streams: 0,
    })
}

/// Answers the question of another node.
pub(crate) fn append_own(lists: &Lists, out: &mut Vec<u8>) {
    let streams = lists.iter().flat_map(|list| list.owners()).map(|owner| owner.stream());
    let counted: Vec<_> = streams.filter_map(|s| Some((s, own_count(lists, s)?))).collect();
    encode::array_header(out, NUMBERS * counted.len());
    for (stream, count) in counted {
        let numbers = [
            u64::from(stream.list.0),
            u64::from(stream.x.0),
            count.keys,
            count.expiring,
        ];
        numbers.iter().for_each(|number| encode::integer(out, *number as i64));
    }
}

impl Dispatcher {
    /// Asks the owners of all streams, for command `n` of a client. False if there is nobody to ask.
    pub(crate) fn ask_counts<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        lists: &Lists,
        (conn, n): (ConnId, u64),
        sections: Sections,
    ) -> bool {
        self.counts.asked += 1;
        let me = (cx.shared.node, cx.shared.incarnation);
        let all: Vec<StreamId> = cx.shared.cluster.slots.iter().map(|(_, stream)| *stream).collect();
        let mut silent = Vec::new();
        for stream in all {
            let Some((owner, _)) = owner_at(lists, stream) else {
                continue;
            };
            if (owner.node, owner.incarnation) == me || silent.contains(&owner.node) {
                continue;
            }
            let question = Message::Forward {
                conn: NO_CLIENT_COUNTS,
                n: self.counts.asked,
                dialect: dialect::RESP2,
                command: QUESTION,
            };
            if cx.send(&owner, Channel::Main, stream, Epoch(0), &question) {
                silent.push(owner.node);
            }
        }
        let asks = !silent.is_empty();
        if asks {
            self.counts.waiting.push(Waiting {
                conn,
                n,
                sections,
                asked: self.counts.asked,
                silent,
                until: cx.mono() + cx.shared.parameters.resend,
            });
        }
        asks
    }

    /// Takes the answer of a node to a question.
    pub(crate) fn on_counts(&mut self, lists: &Lists, from: NodeId, asked: u64, answer: &[u8]) {
        let (length, mut rest) = parts::head(answer);
        for _ in 0..usize::try_from(length).unwrap_or(0) / NUMBERS {
            let mut numbers = [0; NUMBERS];
            for number in &mut numbers {
                (*number, rest) = parts::head(rest);
            }
            let [list, x, keys, expiring] = numbers.map(|number| u64::try_from(number).unwrap_or(0));
            let stream = StreamId {
                list: ListId(list as u16),
                x: Position(x as u8),
            };
            // A node may still take itself for the owner of a stream that it has lost.
            if owner_at(lists, stream).is_some_and(|(owner, _)| owner.node == from) {
                let count = Count {
                    keys,
                    expiring,
                    silent_streams: 0,
                };
                self.counts.known.insert(stream, count);
            }
            if rest.is_empty() {
                break;
            }
        }
        for waiting in self.counts.waiting.iter_mut().filter(|waiting| waiting.asked == asked) {
            waiting.silent.retain(|node| *node != from);
        }
    }

    /// Keys of all streams. `silent`: nodes that have not answered.
    pub(crate) fn count_all<O: Out>(&self, cx: &Context<'_, O>, lists: &Lists, silent: &[NodeId]) -> Count {
        let mut all = Count::default();
        for (_, stream) in &cx.shared.cluster.slots {
            let own = own_count(lists, *stream);
            let count = own
                .or_else(|| self.counts.known.get(stream).copied())
                .unwrap_or_default();
            all.keys = all.keys.saturating_add(count.keys);
            all.expiring = all.expiring.saturating_add(count.expiring);
            let answers = |(owner, _)| cx.reaches(&owner, Channel::Main) && !silent.contains(&owner.node);
            let is_told =
                own.is_some() || lists.owner(*stream).is_none() && owner_at(lists, *stream).is_some_and(answers);
            all.silent_streams += u64::from(!is_told);
        }
        all
    }
}

impl Router {
    /// Answers each INFO that has all answers, or has waited for long enough.
    pub(crate) fn answer_infos<O: Out>(&mut self, cx: &mut Context<'_, O>, lists: &Lists) {
        if self.dispatcher.counts.waiting.is_empty() {
            return;
        }
        let now = cx.mono();
        let all = core::mem::take(&mut self.dispatcher.counts.waiting);
        let (due, rest): (Vec<_>, _) = all.into_iter().partition(|w| w.silent.is_empty() || now >= w.until);
        self.dispatcher.counts.waiting = rest;
        for waiting in due {
            if cx.shared.turn_budget.left() == 0 {
                // The next turn makes its reply.
                self.dispatcher.counts.waiting.push(waiting);
                continue;
            }
            let Waiting {
                conn,
                n,
                sections,
                silent,
                ..
            } = waiting;
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
