//! Where memory is short: which owners that are not whole drop chunks for others, and when the background waits
//! (PROTOCOL 5.10, 10.5).

use super::Materialiser;
use crate::context::{Context, Shared};
use crate::interface::Out;
use crate::mark::Mark;
use crate::parameters::Mutant;
use crate::stream_owner::StreamOwner;
use paritas_base::configuration::{Configuration, PositionState};
use paritas_base::{Span, Stripe, Time};

/// Chunks dropped at most within this time, so that a command that needs more chunks than there is room for does not
/// keep a core busy until it is refused.
const DROPS_MAX: u32 = 16;
const DROPS_EVERY: Span = Span::from_ms(1);

impl Materialiser {
    /// Whether another chunk that a command waits for must wait, since so many were dropped for others just now.
    pub(super) fn drops_too_many(&mut self, now: Time) -> bool {
        if now - self.drops_since >= DROPS_EVERY {
            (self.drops_since, self.drops) = (now, 0);
        }
        self.drops >= DROPS_MAX
    }

    /// When the next chunk may be dropped, if so many were dropped that one must wait.
    pub(super) fn may_drop_again_at(&self) -> Time {
        self.drops_since + DROPS_EVERY
    }
}

impl StreamOwner {
    /// What this turn's configuration says: whether chunks are to be brought back, and whether they may be dropped for
    /// others, as long as nobody counts on their being here (5.10).
    pub(super) fn look_at_room<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        let x = self.stream().x;
        let me = configuration.at(x);
        self.materialiser.filling = me.is_some_and(|a| a.state == PositionState::Filling);
        self.materialiser.stands_in = configuration.is_stand_in(x);
        self.materialiser.is_doubled = configuration.may_lack_memory(x);
        self.materialiser.may_drop = self.materialiser.filling && !self.has_asked_live();
        let after_asking = self.materialiser.stands_in && cx.breaks(Mutant::ChunkDroppedAfterAskingLive);
        if after_asking && self.lacks_memory(cx.shared) {
            self.drop_chunk(cx);
        }
        // For another position of this node that is not whole either.
        let has_more = |count: u32| self.store.chunks().here_count() > count + 1;
        if cx.shared.room_wanted.is_some_and(has_more) && self.materialiser.may_drop && self.drop_chunk(cx) {
            cx.shared.room_wanted = None;
        }
    }

    /// Whether a chunk more is to take the place of another: a stand-in takes what writers may take, any other position
    /// all there is. Its memory was planned for, but a younger one may have it (10.5), or a stand-in of another list.
    fn lacks_memory(&self, shared: &Shared) -> bool {
        if self.materialiser.stands_in {
            !shared.arena.has_room(0)
        } else {
            !shared.arena.has(1)
        }
    }

    /// Whether the background is to bring nothing more back, beside so many chunks that are on their way. Where memory
    /// is too short for all that this node is to hold, it leaves some for what commands ask for: it may be index pages
    /// that it brings.
    pub(super) fn is_full(&self, shared: &Shared, under_way: usize) -> bool {
        if self.materialiser.stands_in {
            return !shared.arena.has_room(under_way);
        }
        let kept = shared.kept_chunks();
        let is_short = self.materialiser.is_doubled || !shared.arena.has(shared.arena.owed() + kept);
        let kept = if is_short { kept } else { 0 };
        self.materialiser.may_drop && !shared.arena.has((under_way + 1) as u32 + kept)
    }

    /// Whether so few data chunks are here that a command may need them all, and another can be had beside them.
    fn is_among_the_last(&self, shared: &Shared) -> bool {
        shared.arena.has(1) && self.store.chunks().held_counts().1 < shared.kept_chunks()
    }

    /// Before a chunk is installed: drops one for it, and two where more is in use than may be. Where few are here,
    /// positions beside it that have more are asked for one too.
    pub(super) fn make_room<O: Out>(&mut self, cx: &mut Context<'_, O>) {
        for _ in 0..2 {
            if self.materialiser.may_drop && self.lacks_memory(cx.shared) && !self.is_among_the_last(cx.shared) {
                let here = self.store.chunks().here_count();
                if here <= cx.shared.kept_chunks() / 2 {
                    cx.shared.room_wanted = Some(here);
                }
                self.drop_chunk(cx);
            }
        }
    }

    /// Gives up a chunk for another that is asked for: one that the members have as it is here, each in its turn. An
    /// index page only where they are most of the few that are here. False if there is none.
    fn drop_chunk<O: Out>(&mut self, cx: &mut Context<'_, O>) -> bool {
        let (index, data) = self.store.chunks().held_counts();
        let of_index = data < cx.shared.kept_chunks() && index > data;
        let unacked = cx.breaks(Mutant::ChunkDroppedWithUnackedDelta);
        let (term, acked) = (self.term(), self.acked());
        let from = self.materialiser.drop_next;
        let end = self.store.chunks().end(of_index);
        for number in (from.min(end)..end).chain(0..from.min(end)) {
            let stripe = if of_index {
                Stripe::index_page(number)
            } else {
                Stripe::data(number)
            };
            let version = self.store.chunks().version(stripe);
            let safe = version.term() < term || version.seq() <= acked;
            if (safe || unacked) && self.store.drop_chunk(&mut cx.shared.arena, stripe) {
                cx.out.mark(Mark::ChunkDropped);
                self.materialiser.drop_next = number + 1;
                self.materialiser.drops += 1;
                return true;
            }
        }
        false
    }
}
