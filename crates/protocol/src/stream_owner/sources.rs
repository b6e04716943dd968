//! An owner's answers to owners and members that rebuild: its chunks at a version (P5.7b, P6.3), and the list of its
//! stripes (P6.6).

use super::{Phase, StreamOwner};
use crate::context::Context;
use crate::interface::{Channel, Out};
use crate::mark::Mark;
use paritas_base::configuration::Configuration;
use paritas_base::{Incarnation, NodeId, Stripe, Version};
use paritas_code::sum;
use paritas_store::delta::extents;
use paritas_wire::peer::{self, ChunkStatus, Header, Message};

impl StreamOwner {
    /// P5.7b, P6.3: a chunk at a version, or the latest.
    pub(crate) fn on_read_chunk<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        to: (NodeId, Incarnation),
        id: u64,
        stripe: Stripe,
        want: Option<Version>,
    ) {
        // The chunk must contain numbered deltas only, so the open one is closed.
        self.close_delta(cx, configuration);
        if self.phase == Phase::Serve && self.is_absent(stripe) {
            self.take_stashed(cx, stripe);
        }
        // Wrong bytes must not become part of what others hold (P9.1).
        let checked = match self.phase {
            Phase::Serve => self.checked(cx, stripe),
            _ => None,
        };
        if let Some(found) = checked
            && self.send_as_it_is(cx, configuration, to, (id, stripe, want), found)
        {
            return;
        }
        let found = checked.and_then(|_| self.chunk_at(cx, stripe, want));
        let found = found.or_else(|| {
            let want = want.filter(|w| *w != Version::ZERO)?;
            cx.stashed(self.stream, stripe, want)
                .map(|(sum, bytes)| (want, sum, bytes))
        });
        if found.is_none() && want.is_none() && self.phase == Phase::Serve {
            self.rebuild.reconstructor.want(cx.now.mono, stripe);
        }
        let (status, version, sum, bytes) = match &found {
            Some((version, sum, bytes)) => (ChunkStatus::Here, *version, *sum, bytes.as_slice()),
            None => (ChunkStatus::None, Version::ZERO, 0, &[][..]),
        };
        let (as_of, term) = (self.log.seq(), self.term());
        let value = Message::ChunkValue {
            id,
            stripe,
            status,
            version,
            sum,
            as_of,
            term,
            found: None,
            bytes,
        };
        cx.send_to(to.0, to.1, Channel::Bulk, self.stream, configuration.epoch, &value);
    }

    /// The chunk's bytes in memory, if it is here and no delta must be undone. Its sum was checked in the same event.
    fn send_as_it_is<O: Out>(
        &self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        to: (NodeId, Incarnation),
        (id, stripe, want): (u64, Stripe, Option<Version>),
        found: u32,
    ) -> bool {
        let chunks = self.store.chunks();
        let here = chunks.version(stripe);
        let version = want.unwrap_or(here);
        let Ok(slot) = chunks.slot(stripe) else { return false };
        if !cx.rules().source_fits(here, version) {
            return false;
        }
        let (stream, epoch) = (self.stream, configuration.epoch);
        let Some((frames, arena)) = cx.frames_to(to.0, to.1, Channel::Bulk) else {
            return true;
        };
        let value = Message::ChunkValue {
            id,
            stripe,
            status: ChunkStatus::Here,
            version,
            sum: chunks.sum(stripe),
            as_of: self.log.seq(),
            term: self.term(),
            found: Some(found),
            bytes: slot.map(|slot| arena.bytes(slot)).unwrap_or_default(),
        };
        peer::encode(frames, &Header { stream, epoch }, &value);
        true
    }

    /// The chunk's bytes at an older version, which the ring can still undo to; empty for zeros.
    fn chunk_at<O: Out>(
        &self,
        cx: &mut Context<'_, O>,
        stripe: Stripe,
        want: Option<Version>,
    ) -> Option<(Version, u32, Vec<u8>)> {
        let chunks = self.store.chunks();
        let bytes = chunks.bytes(&cx.shared.arena, stripe).ok()?;
        let (mut version, mut sum) = (chunks.version(stripe), chunks.sum(stripe));
        let want = want?;
        let mut copy = bytes.map(<[u8]>::to_vec);
        let chunk_bytes = cx.shared.arena.chunk_bytes();
        for record in self.log.ring().iter().rev() {
            if want != Version::ZERO && record.version() <= want {
                return None;
            }
            let mut touched = false;
            let all: Vec<_> = extents(record.version(), record.extents, chunk_bytes)
                .flatten()
                .filter(|e| e.stripe == stripe)
                .collect();
            for extent in all.iter().rev() {
                let copy = copy.get_or_insert_with(|| vec![0; chunk_bytes]);
                paritas_code::xor(extent.xor, &mut copy[extent.offset..extent.offset + extent.xor.len()]);
                sum ^= sum::of_extent(chunk_bytes, extent.offset, extent.xor);
                if let Some(base) = extent.base {
                    version = base;
                }
                touched = true;
            }
            if touched && version == want {
                cx.out.mark(Mark::Undone);
                return Some((version, sum, copy.unwrap_or_default()));
            }
        }
        None
    }

    /// P6.6, P6.7, for a member that fills: which stripes exist, and at what version.
    pub(crate) fn on_read_alloc<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        to: (NodeId, Incarnation),
    ) {
        self.close_delta(cx, configuration);
        if self.phase != Phase::Serve || !self.store.chunks().directory_known() {
            return;
        }
        let mut entries = Vec::new();
        for (stripe, version) in self.store.chunks().stripes() {
            if version != Version::ZERO {
                Message::push_directory_entry(&mut entries, stripe, version);
            }
        }
        let alloc = Message::Alloc {
            term: self.term(),
            as_of: self.log.seq(),
            entries: &entries,
        };
        cx.send_to(to.0, to.1, Channel::Bulk, self.stream, configuration.epoch, &alloc);
    }
}
