//! Numbers of keys of the whole cluster, for INFO on the any-key port.
//!
//! INFO must answer when a node is away, so it does not ask the streams as DBSIZE does. It asks each node that owns
//! some, and waits for a short time. A stream whose owner has not answered by then counts as it did last.

use super::Dispatcher;
use super::forward::owner_at;
use super::questions::{NO_CLIENT_COUNTS, What};
use crate::redis::info::Sections;
use crate::redis::parts;
use paritas_base::{ConnId, DATABASES, Incarnation, ListId, Map, NodeId, Position, StreamId};
use paritas_protocol::{Channel, Context, Lists, Out};
use paritas_store::Keys;
use paritas_wire::resp::encode;

/// The question to another node.
const QUESTION: &[u8] = b"*2\r\n$4\r\nINFO\r\n$8\r\nkeyspace\r\n";
/// Numbers of the answer for each stream: list, position, and of each database keys and keys that expire.
const NUMBERS: usize = 2 + 2 * DATABASES as usize;

/// What is known of the streams of other nodes.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// As last told by their owners. At most one entry for each stream.
    known: Map<StreamId, Count>,
}

/// Keys of some streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Count {
    /// Of each database.
    pub(crate) keys: [Keys; DATABASES as usize],
    /// Streams whose owner has not answered.
    pub(crate) silent_streams: u64,
}

impl Count {
    pub(crate) fn add(&mut self, keys: &[Keys; DATABASES as usize]) {
        for (all, keys) in self.keys.iter_mut().zip(keys) {
            all.count = all.count.saturating_add(keys.count);
            all.expiring = all.expiring.saturating_add(keys.expiring);
        }
    }
}

impl Counts {
    pub(crate) fn held_bytes(&self) -> usize {
        self.known.capacity() * size_of::<(StreamId, Count)>()
    }
}

/// Keys of a stream that this node owns; `None` while not all are counted.
fn own_count(lists: &Lists, stream: StreamId) -> Option<Count> {
    let (_, owner) = lists.owner(stream)?;
    Some(Count {
        keys: *owner.key_counts()?.first_chunk()?,
        silent_streams: 0,
    })
}

/// Keys of the streams that this node owns.
pub(crate) fn count_own(lists: &Lists) -> Count {
    let mut all = Count::default();
    for owner in lists.iter().flat_map(|list| list.owners()) {
        match own_count(lists, owner.stream()) {
            Some(count) => all.add(&count.keys),
            None => all.silent_streams += 1,
        }
    }
    all
}

/// Answers the question of another node.
pub(crate) fn append_own(lists: &Lists, out: &mut Vec<u8>) {
    let streams = lists.iter().flat_map(|list| list.owners()).map(|owner| owner.stream());
    let counted: Vec<_> = streams.filter_map(|s| Some((s, own_count(lists, s)?))).collect();
    encode::array_header(out, NUMBERS * counted.len());
    for (stream, count) in counted {
        let of_keys = count.keys.iter().flat_map(|keys| [keys.count, keys.expiring]);
        let numbers = [u64::from(stream.list.0), u64::from(stream.x.0)]
            .into_iter()
            .chain(of_keys);
        numbers.for_each(|number| encode::integer(out, number as i64));
    }
}

impl Dispatcher {
    /// Asks the owners of all streams, for command `n` of a client. False if there is nobody to ask.
    pub(crate) fn ask_counts<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        lists: &Lists,
        asker: (ConnId, u64),
        sections: Sections,
    ) -> bool {
        let streams = cx.shared.cluster.slots.iter().map(|(_, stream)| *stream);
        let owners = streams.filter_map(|stream| owner_at(lists, stream));
        let owners: Vec<(NodeId, Incarnation)> = owners.map(|(owner, _)| (owner.node, owner.incarnation)).collect();
        let question = (NO_CLIENT_COUNTS, QUESTION);
        self.ask_nodes(cx, &owners, question, asker, What::Info(sections))
            .is_none()
    }

    /// Takes the answer of a node to a question.
    pub(crate) fn on_counts(&mut self, lists: &Lists, from: NodeId, answer: &[u8]) {
        let (length, mut rest) = parts::head(answer);
        for _ in 0..usize::try_from(length).unwrap_or(0) / NUMBERS {
            let mut numbers = [0; NUMBERS];
            for number in &mut numbers {
                (*number, rest) = parts::head(rest);
            }
            let [list, x, of_keys @ ..] = numbers.map(|number| u64::try_from(number).unwrap_or(0));
            let mut keys = [Keys::default(); DATABASES as usize];
            for (keys, [count, expiring]) in keys.iter_mut().zip(of_keys.as_chunks().0) {
                (keys.count, keys.expiring) = (*count, *expiring);
            }
            let stream = StreamId {
                list: ListId(list as u16),
                x: Position(x as u8),
            };
            // A node may still take itself for the owner of a stream that it has lost.
            if owner_at(lists, stream).is_some_and(|(owner, _)| owner.node == from) {
                let silent_streams = 0;
                let count = Count { keys, silent_streams };
                self.counts.known.insert(stream, count);
            }
            if rest.is_empty() {
                break;
            }
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
            all.add(&count.keys);
            let answers = |(owner, _)| cx.reaches(&owner, Channel::Main) && !silent.contains(&owner.node);
            let is_told =
                own.is_some() || lists.owner(*stream).is_none() && owner_at(lists, *stream).is_some_and(answers);
            all.silent_streams += u64::from(!is_told);
        }
        all
    }
}
