//! Cached chunks of roles that a node lost (P2.4, P5.11). They are read-only, never shown to clients, and dropped when
//! their memory is needed. If a position comes back, chunks whose version is still wanted need not be rebuilt. Its
//! present owner may ask for single chunks.
//!
//! A chunk is used only at exactly the wanted version. `seq` alone is not enough: the last deltas of a lost owner may
//! be in no log, and its successor then uses their numbers again (H21).

use crate::context::Context;
use crate::interface::{Channel, Out};
use paritas_base::configuration::Configuration;
use paritas_base::{Incarnation, ListId, NodeId, Position, StreamId, Stripe, Time, Version};
use paritas_code::sum;
use paritas_store::{Arena, Old, Stash};
use paritas_wire::peer::{ChunkStatus, Message};

/// The stashes of a node, at most one a position.
#[derive(Debug, Default)]
pub(crate) struct Stashes {
    cached: Vec<Cached>,
}

/// The stash of one position.
#[derive(Debug)]
struct Cached {
    list: ListId,
    position: Position,
    /// When it is dropped: most of its versions are no longer wanted by then.
    until: Time,
    chunks: Stash,
}

impl Stashes {
    /// Caches the chunks of a position that this node has just lost, together with those cached when it lost the
    /// position before.
    pub(crate) fn keep(&mut self, arena: &mut Arena, list: ListId, position: Position, until: Time, chunks: Stash) {
        let at = |c: &Cached| (c.list, c.position) == (list, position);
        let chunks = match self.cached.iter().position(at) {
            Some(before) => chunks.with_older(self.cached.swap_remove(before).chunks, arena),
            None => chunks,
        };
        self.cached.push(Cached {
            list,
            position,
            until,
            chunks,
        });
    }

    /// The stash of a position.
    pub(crate) fn of(&self, list: ListId, position: Position) -> Option<&Stash> {
        let cached = self.cached.iter().find(|c| (c.list, c.position) == (list, position));
        cached.map(|c| &c.chunks)
    }

    /// The position is whole: its stash is not needed.
    pub(crate) fn drop_at(&mut self, arena: &mut Arena, list: ListId, position: Position) {
        self.drop_where(arena, |c| (c.list, c.position) == (list, position));
    }

    /// The list has begun again, or a role of it broke an invariant.
    pub(crate) fn drop_list(&mut self, arena: &mut Arena, list: ListId) {
        self.drop_where(arena, |c| c.list == list);
    }

    /// Drops the stashes whose time is over.
    pub(crate) fn expire(&mut self, arena: &mut Arena, now: Time) {
        self.drop_where(arena, |c| c.until <= now);
    }

    fn drop_where(&mut self, arena: &mut Arena, goes: impl Fn(&Cached) -> bool) {
        while let Some(at) = self.cached.iter().position(&goes) {
            self.cached.swap_remove(at).chunks.clear(arena);
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.cached.iter().map(|c| c.until).min()
    }

    /// Memory of its tables, in bytes. The chunks are in the arena.
    pub(crate) fn table_bytes(&self) -> u64 {
        self.cached.iter().map(|c| c.chunks.table_bytes()).sum()
    }

    /// All chunks, each with its former position.
    pub(crate) fn iter<'a>(&'a self, arena: &'a Arena) -> impl Iterator<Item = (ListId, Position, Old<'a>)> {
        let of = |c: &'a Cached| c.chunks.iter(arena).map(|old| (c.list, c.position, old));
        self.cached.iter().flat_map(of)
    }
}

impl<O: Out> Context<'_, O> {
    /// The sum and the bytes of a data chunk at exactly this version, if it is stashed and has its sum (P9.1).
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

    /// Answers the present owner of the position, which asks for a chunk at a version (P5.12).
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
