//! A walk over all keys of some streams: one SCAN after the other at each stream. KEYS and the commands on one hash
//! slot use it. FLUSHDB and FLUSHALL are such walks, too: their steps delete.

use super::How;
use crate::dialect::{Dialect, Refusal};
use crate::redis::parts;
use crate::redis::refusals::is_error;
use crate::router::call::Call;
use crate::router::{Dispatcher, Ran};
use paritas_base::StreamId;
use paritas_protocol::{Context, Out};
use paritas_wire::command::{Command, CommandSpec};

/// A walk over all keys of its streams.
#[derive(Debug)]
pub(crate) struct Walk {
    pub(crate) find: Find,
    /// The arguments of a step after the cursor.
    options: Vec<Vec<u8>>,
    /// The stream of each part.
    streams: Vec<StreamId>,
    /// The version of the slot map when the walk began. If the map changes, the walk is refused: it may have met a key
    /// that moved twice, or not at all.
    map: u64,
    /// The keys found so far, encoded one after the other, and their number.
    pub(crate) found: Vec<u8>,
    pub(crate) count: usize,
}

/// Which of the keys found a walk replies with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Find {
    All,
    /// None: it deletes them.
    Deleted,
    /// Only their number.
    Count,
    /// At most this number of keys.
    UpTo(usize),
}

impl Dispatcher {
    /// Starts a walk at each of these streams.
    pub(crate) fn walk<O: Out>(
        &mut self,
        call: &mut Call<'_, '_, O>,
        find: Find,
        options: &[&[u8]],
        streams: Vec<StreamId>,
    ) -> Ran {
        // By this node's slot map, some slot has no owner. Its keys still exist somewhere, and would be missed (P10.8).
        if !call.cx.rules().may_list_keys(call.cx.shared.slots.is_whole()) {
            return self.stall(call, find.spec());
        }
        let mut options: Vec<Vec<u8>> = options.iter().map(|word| word.to_vec()).collect();
        let step_keys = call.cx.shared.parameters.walk_keys;
        if find != Find::Deleted {
            options.extend([b"COUNT".to_vec(), step_keys.to_string().into_bytes()]);
        }
        let walk = Walk {
            find,
            options,
            map: call.cx.shared.slots.version(),
            found: Vec::new(),
            count: 0,
            streams,
        };
        let scan = find.spec();
        let steps = walk
            .streams
            .iter()
            .map(|stream| (scan, *stream, walk.step(0)))
            .collect();
        let ran = self.gather(call, How::Walked(walk), steps);
        if find == Find::Deleted {
            // Its later steps would delete what commands behind it write.
            call.client.await_newest();
        }
        ran
    }
}

impl Find {
    /// The command of each step.
    pub(crate) fn spec(self) -> &'static CommandSpec {
        match self {
            Self::Deleted => Command::FlushStep.spec(),
            _ => Command::Scan.spec(),
        }
    }
}

impl Walk {
    pub(crate) fn held_bytes(&self) -> usize {
        let options = self.options.iter().map(|word| size_of_val(word) + word.capacity());
        self.found.capacity() + size_of_val(self.streams.as_slice()) + options.sum::<usize>()
    }

    /// The command that goes on at `cursor`.
    fn step(&self, cursor: u64) -> Vec<u8> {
        let cursor = cursor.to_string();
        let mut words = vec![self.find.spec().name.as_bytes(), cursor.as_bytes()];
        words.extend(self.options.iter().map(Vec::as_slice));
        let mut bytes = Vec::new();
        parts::append_words(&mut bytes, words.into_iter());
        bytes
    }

    /// Takes the keys that part `at` has found. Returns the part's next step, or `None` if the part is at its end.
    pub(crate) fn take(&mut self, at: usize, reply: &mut Vec<u8>) -> Option<(StreamId, Vec<u8>)> {
        if is_error(reply) {
            return None;
        }
        let (cursor, keys) = parts::scanned(reply);
        let (count, keys) = parts::head(keys);
        self.count = self.count.saturating_add(usize::try_from(count).unwrap_or(0));
        if self.find != Find::Count {
            self.found.extend_from_slice(keys);
        }
        *reply = Vec::new();
        let stream = *self.streams.get(at).filter(|_| cursor != 0)?;
        Some((stream, self.step(cursor)))
    }

    /// Why the walk must be refused, if it must.
    pub(crate) fn refusal<O: Out>(&self, cx: &Context<'_, O>) -> Option<Refusal> {
        let bytes_max = cx.shared.parameters.client_limits.reply_bytes_max;
        if !cx.rules().same_map(self.map, cx.shared.slots.version()) {
            Some(Refusal::SlotsMoving)
        } else if self.found.len() > bytes_max {
            Some(Refusal::ReplyTooLarge { bytes_max })
        } else {
            None
        }
    }

    /// Appends the reply made of the keys that all steps have found.
    pub(crate) fn combine(&self, dialect: Dialect, out: &mut Vec<u8>) {
        match self.find {
            Find::Count => dialect.number(out, self.count as i64),
            Find::Deleted => dialect.done(out),
            Find::All => {
                dialect.values(out, self.count);
                out.extend_from_slice(&self.found);
            }
            Find::UpTo(most) => {
                let (mut count, mut rest) = (0, self.found.as_slice());
                while count < most && !rest.is_empty() {
                    rest = rest.get(parts::element_bytes(rest).max(1)..).unwrap_or_default();
                    count += 1;
                }
                dialect.values(out, count);
                out.extend_from_slice(self.found.strip_suffix(rest).unwrap_or_default());
            }
        }
    }
}
