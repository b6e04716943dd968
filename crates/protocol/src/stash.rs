//! What a node keeps of roles that it lost (P2.4, P5.11): their chunks, read-only and never shown to clients,
//! for as long as nobody needs the memory. Should a position come back, what is still wanted need not be rebuilt; and
//! whoever has it now may ask for single chunks.
//!
//! A chunk is used only at exactly the version that is wanted. `seq` alone would not do: a lost owner's last deltas may
//! be in nobody's log, and its successor then uses their numbers again (H21).

use crate::context::Context;
use crate::interface::{Channel, Out};
use paritas_base::configuration::Configuration;
use paritas_base::{Incarnation, ListId, NodeId, Position, StreamId, Stripe, Time, Version};
use paritas_code::sum;
use paritas_store::{Arena, Old, Stash};
use paritas_wire::peer::{ChunkStatus, Message};

/// The stashes of a node.
#[derive(Debug, Default)]
pub(crate) struct Stashes {
    kept: Vec<Kept>,
}

#[derive(Debug)]
struct Kept {
    list: ListId,
    position: Position,
    /// It is dropped then: by that time most of it is of versions that nobody wants.
    until: Time,
    chunks: Stash,
}

impl Stashes {
    /// Keeps the chunks of a position that this node has just lost, with what it still has of an earlier time.
    pub(crate) fn keep(&mut self, arena: &mut Arena, list: ListId, position: Position, until: Time, chunks: Stash) {
        let at = |k: &Kept| (k.list, k.position) == (list, position);
        let chunks = match self.kept.iter().position(at) {
            Some(before) => chunks.with_older(self.kept.swap_remove(before).chunks, arena),
            None => chunks,
        };
        self.kept.push(Kept {
            list,
            position,
            until,
            chunks,
        });
    }

    pub(crate) fn of(&self, list: ListId, position: Position) -> Option<&Stash> {
        let kept = self.kept.iter().find(|k| (k.list, k.position) == (list, position));
        kept.map(|k| &k.chunks)
    }

    /// The position is whole without it.
    pub(crate) fn drop_at(&mut self, arena: &mut Arena, list: ListId, position: Position) {
        self.drop_where(arena, |k| (k.list, k.position) == (list, position));
    }

    /// The list has begun again, or is not to be trusted.
    pub(crate) fn drop_list(&mut self, arena: &mut Arena, list: ListId) {
        self.drop_where(arena, |k| k.list == list);
    }

    /// Drops what has been kept long enough.
    pub(crate) fn expire(&mut self, arena: &mut Arena, now: Time) {
        self.drop_where(arena, |k| k.until <= now);
    }

    fn drop_where(&mut self, arena: &mut Arena, goes: impl Fn(&Kept) -> bool) {
        while let Some(at) = self.kept.iter().position(&goes) {
            self.kept.swap_remove(at).chunks.clear(arena);
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.kept.iter().map(|k| k.until).min()
    }

    /// Bytes of its tables; the chunks are in the arena.
    pub(crate) fn table_bytes(&self) -> u64 {
        self.kept.iter().map(|k| k.chunks.table_bytes()).sum()
    }

    /// All chunks, with the position they were of.
    pub(crate) fn iter<'a>(&'a self, arena: &'a Arena) -> impl Iterator<Item = (ListId, Position, Old<'a>)> {
        let of = |k: &'a Kept| k.chunks.iter(arena).map(|old| (k.list, k.position, old));
        self.kept.iter().flat_map(of)
    }
}

impl<O: Out> Context<'_, O> {
    /// A data chunk at exactly this version, if it is stashed and has its sum (P9.1): the sum and the bytes.
    pub(crate) fn stashed(&mut self, stream: StreamId, stripe: Stripe, want: Version) -> Option<(u32, Vec<u8>)> {
        let rules = self.rules();
        let shared = &mut *self.shared;
        let stash = shared.stashes.of(stream.list, stream.x)?;
        let old = stash.get(&shared.arena, stripe)?;
        let (&[version], &[sum]) = (old.versions, old.sums) else {
            return None;
        };
        if !rules.stash_fits(version, want) {
            return None;
        }
        let bytes = old.bytes.to_vec();
        if sum::of(&bytes) != sum {
            stash.forget(&mut shared.arena, stripe);
            shared.bad_sums += 1;
            return None;
        }
        Some((sum, bytes))
    }

    /// Somebody else has the position now, and asks for a chunk at a version (P5.12).
    pub(crate) fn answer_from_stash(
        &mut self,
        configuration: &Configuration,
        stream: StreamId,
        to: (NodeId, Incarnation),
        (id, stripe, want): (u64, Stripe, Version),
    ) {
        let found = self.stashed(stream, stripe, want);
        let (status, version, sum, bytes) = match &found {
            Some((sum, bytes)) => (ChunkStatus::Here, want, *sum, bytes.as_slice()),
            None => (ChunkStatus::None, Version::ZERO, 0, &[][..]),
        };
        let value = Message::ChunkValue {
            id,
            stripe,
            status,
            version,
            sum,
            as_of: 0,
            term: 0,
            found: None,
            bytes,
        };
        self.send_to(to.0, to.1, Channel::Bulk, stream, configuration.epoch, &value);
    }
}
