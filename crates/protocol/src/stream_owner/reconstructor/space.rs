//! Short memory: which owners that are not whole drop chunks so that others can be reconstructed, and when background
//! work waits (P5.10, P10.5).

use super::Reconstructor;
use crate::context::{Context, Shared};
use crate::interface::Out;
use crate::mark::Mark;
use crate::rules::Fault;
use crate::stream_owner::StreamOwner;
use paritas_base::configuration::{Configuration, PositionState};
use paritas_base::{Span, StreamId, Stripe, Time};
use paritas_store::{Presence, Purpose};
use std::collections::VecDeque;

/// The most chunks dropped within [`DROPS_EVERY`]. Without a limit, a command that needs more chunks than fit in memory
/// would keep a core busy until it is refused.
const DROPS_MAX: u32 = 16;
const DROPS_EVERY: Span = Span::from_ms(1);

/// If memory was short for a chunk, the chunk is requested again after this multiple of `Parameters::retry`.
pub(super) const SPACE_RETRIES: u64 = 4;

/// A position that is not whole has too few resident chunks for the commands on it. Other positions of its node that
/// are not whole and have more drop some of theirs (P5.10), until it has enough or `until` has passed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpaceWanted {
    by: StreamId,
    /// Number of resident chunks of the position.
    here: u32,
    until: Time,
}

impl Reconstructor {
    /// Memory of the list of resident chunks, in bytes.
    pub(crate) fn table_bytes(&self) -> usize {
        self.resident.capacity() * size_of::<Stripe>()
    }

    /// Whether [`DROPS_MAX`] is reached, so that no chunk may be dropped now for one that a command waits for.
    pub(super) fn drops_too_many(&mut self, now: Time) -> bool {
        if now - self.drops_since >= DROPS_EVERY {
            (self.drops_since, self.drops) = (now, 0);
        }
        self.drops >= DROPS_MAX
    }

    /// When the next chunk may be dropped, if [`DROPS_MAX`] is reached.
    pub(super) fn may_drop_again_at(&self) -> Time {
        self.drops_since + DROPS_EVERY
    }
}

impl StreamOwner {
    /// Takes over this turn's configuration: whether chunks must be reconstructed, and whether resident chunks may be
    /// dropped for others. They may be until the owner asks to become Live: from then on the coordinator relies on them
    /// (P5.10).
    pub(super) fn note_configuration<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        let x = self.stream().x;
        let me = configuration.at(x);
        self.rebuild.reconstructor.filling = me.is_some_and(|a| a.state == PositionState::Filling);
        self.rebuild.reconstructor.stands_in = configuration.is_stand_in(x);
        self.rebuild.reconstructor.is_doubled = configuration.may_lack_memory(x);
        self.rebuild.reconstructor.may_drop =
            self.rebuild.reconstructor.filling && !self.has_asked_live() && !configuration.lost;
        let others = configuration
            .positions
            .iter()
            .enumerate()
            .filter(|(i, _)| *i != x.index());
        let live = others.filter(|(_, a)| a.is_some_and(|a| a.state.is_live()));
        self.rebuild.reconstructor.may_give =
            self.rebuild.reconstructor.may_drop && live.count() >= usize::from(configuration.data);
        if !self.rebuild.reconstructor.filling && !self.rebuild.reconstructor.resident.is_empty() {
            self.rebuild.reconstructor.resident = VecDeque::new();
        }
        let after_asking = self.rebuild.reconstructor.stands_in && cx.rules().fault(Fault::DroppedAfterAskingLive);
        if after_asking && self.lacks_memory(cx.shared) {
            self.drop_chunk(cx);
        }
        if self.gives_space(cx) && cx.shared.arena.available(Purpose::Demand) == 0 {
            self.drop_chunk(cx);
        }
    }

    /// Asks other positions of this node that are not whole and have more resident chunks to drop one, because this
    /// position has too few.
    pub(super) fn want_space<O: Out>(&self, cx: &mut Context<'_, O>) {
        let (by, here, now) = (self.stream(), self.store.chunks().here_count(), cx.now.mono);
        let other = cx
            .shared
            .space_wanted
            .filter(|wanted| wanted.by != by && now < wanted.until);
        if other.is_none_or(|other| here < other.here) {
            let until = now + Span(2 * SPACE_RETRIES * cx.shared.parameters.retry.0);
            cx.shared.space_wanted = Some(SpaceWanted { by, here, until });
        }
    }

    /// Updates the request for space after one more chunk became resident.
    pub(super) fn note_space(&self, shared: &mut Shared) {
        let (here, enough) = (self.store.chunks().here_count(), shared.headroom() / 2);
        if let Some(wanted) = shared.space_wanted.as_mut().filter(|wanted| wanted.by == self.stream()) {
            wanted.here = here;
            if here > enough {
                shared.space_wanted = None;
            }
        }
    }

    /// Whether this position must drop a resident chunk for another position of this node.
    fn gives_space<O: Out>(&self, cx: &Context<'_, O>) -> bool {
        let here = self.store.chunks().here_count();
        let gives = |w: SpaceWanted| w.by != self.stream() && cx.now.mono < w.until && here > w.here + 1;
        self.rebuild.reconstructor.may_give && cx.shared.space_wanted.is_some_and(gives)
    }

    /// Whether another chunk can only be installed if one is dropped. A stand-in may use the memory that writers may
    /// use; any other position may use all memory. The memory of such a position was planned for, but a later position
    /// (P10.5) or a stand-in of another list may occupy it.
    fn lacks_memory(&self, shared: &Shared) -> bool {
        let purpose = match self.rebuild.reconstructor.stands_in {
            true => Purpose::StandIn,
            false => Purpose::Demand,
        };
        shared.arena.available(purpose) == 0
    }

    /// Whether background work must not reconstruct further chunks while `under_way` chunks are being reconstructed. If
    /// memory is too short for everything that this node should hold, background work leaves some of it for the chunks
    /// that commands need, because it may reconstruct index pages.
    pub(super) fn is_full(&self, shared: &Shared, under_way: usize) -> bool {
        let budget = shared.arena.budget();
        let needed = budget.backlog() + budget.headroom();
        let is_short = self.rebuild.reconstructor.is_doubled || budget.available(Purpose::Demand) < needed;
        let purpose = match is_short {
            _ if self.rebuild.reconstructor.stands_in => Purpose::StandIn,
            true => Purpose::Rebuild,
            false => Purpose::Demand,
        };
        let may_be_full = self.rebuild.reconstructor.stands_in || self.rebuild.reconstructor.may_drop;
        may_be_full && budget.available(purpose) as usize <= under_way
    }

    /// Whether a single command may need all resident data chunks, and memory is left for another one. They are then
    /// not dropped.
    fn is_among_the_last(&self, shared: &Shared) -> bool {
        shared.arena.available(Purpose::Demand) > 0 && self.store.chunks().held_counts().1 < shared.headroom()
    }

    /// Drops a chunk before another one is installed, if memory is short. Drops two if more memory is in use than
    /// allowed, or if one must be dropped for another position. If few chunks are resident, asks other positions to
    /// drop one.
    pub(super) fn make_space_for_chunk<O: Out>(&mut self, cx: &mut Context<'_, O>) {
        for step in 0..2 {
            let gives = step == 0 && self.gives_space(cx);
            let needs = || self.lacks_memory(cx.shared) && !self.is_among_the_last(cx.shared);
            if self.rebuild.reconstructor.may_drop && (gives || needs()) {
                if self.store.chunks().here_count() <= cx.shared.headroom() / 2 {
                    self.want_space(cx);
                }
                self.drop_chunk(cx);
            }
        }
    }

    /// Drops a resident chunk that the members hold at the same version. Of these it drops the one that has been
    /// resident longest, so that the chunks of a waiting command stay until it has run. It drops an index page only if
    /// few data chunks are resident. False if no chunk can be dropped.
    fn drop_chunk<O: Out>(&mut self, cx: &mut Context<'_, O>) -> bool {
        let few = self.store.chunks().held_counts().1 < cx.shared.headroom();
        let rules = cx.rules();
        let (term, acked) = (self.term(), self.acked());
        let mut left = self.rebuild.reconstructor.resident.len();
        let mut listed = false;
        while left > 0 || !listed {
            if left == 0 {
                // Chunks became resident in other ways too: a write created them.
                self.list_brought();
                (left, listed) = (self.rebuild.reconstructor.resident.len(), true);
                continue;
            }
            left -= 1;
            let Some(stripe) = self.rebuild.reconstructor.resident.pop_front() else {
                continue;
            };
            if self.store.chunks().presence(stripe) != Some(Presence::Here) {
                continue;
            }
            let version = self.store.chunks().version(stripe);
            let may_go = (few || !stripe.is_index()) && rules.may_drop(version, term, acked);
            if may_go && self.store.drop_chunk(&mut cx.shared.arena, stripe) {
                cx.out.mark(Mark::ChunkDropped);
                self.rebuild.reconstructor.drops += 1;
                return true;
            }
            self.rebuild.reconstructor.resident.push_back(stripe);
        }
        false
    }

    /// Lists every resident chunk: first those not reconstructed, then the others in their order.
    fn list_brought(&mut self) {
        let chunks = self.store.chunks();
        let mut known: Vec<Stripe> = self.rebuild.reconstructor.resident.iter().copied().collect();
        known.sort();
        let here = |stripe: &Stripe| chunks.presence(*stripe) == Some(Presence::Here);
        let others = chunks.stripes().map(|(stripe, _)| stripe);
        let others = others.filter(|stripe| here(stripe) && known.binary_search(stripe).is_err());
        self.rebuild.reconstructor.resident = others
            .chain(self.rebuild.reconstructor.resident.iter().copied())
            .collect();
    }
}
