//! Where memory is short: which owners that are not whole drop chunks for others, and when the background waits
//! (P5.10, P10.5).

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

/// The most chunks dropped within [`DROPS_EVERY`]. Otherwise a command that needs more chunks than memory takes would
/// keep a core busy until it is refused.
const DROPS_MAX: u32 = 16;
const DROPS_EVERY: Span = Span::from_ms(1);

/// Where memory was short for a chunk, it is asked for again after this multiple of `Parameters::retry`.
pub(super) const SPACE_RETRIES: u64 = 4;

/// A position that is not whole has too few chunks here for what is asked for: others of its node that are not whole
/// and have more give up theirs (P5.10), until it has what it needs or asks no more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpaceWanted {
    by: StreamId,
    /// Resident chunks of the position.
    here: u32,
    until: Time,
}

impl Reconstructor {
    /// Memory of the list of resident chunks, in bytes.
    pub(crate) fn table_bytes(&self) -> usize {
        self.resident.capacity() * size_of::<Stripe>()
    }

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
    /// others, as long as nobody counts on their being here (P5.10).
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

    /// Too few chunks are resident: another position of this node that is not whole and has more is to drop one.
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

    /// One more chunk is resident.
    pub(super) fn note_space(&self, shared: &mut Shared) {
        let (here, enough) = (self.store.chunks().here_count(), shared.headroom() / 2);
        if let Some(wanted) = shared.space_wanted.as_mut().filter(|wanted| wanted.by == self.stream()) {
            wanted.here = here;
            if here > enough {
                shared.space_wanted = None;
            }
        }
    }

    /// Whether a resident chunk is to be dropped for another position of this node.
    fn gives_space<O: Out>(&self, cx: &Context<'_, O>) -> bool {
        let here = self.store.chunks().here_count();
        let gives = |w: SpaceWanted| w.by != self.stream() && cx.now.mono < w.until && here > w.here + 1;
        self.rebuild.reconstructor.may_give && cx.shared.space_wanted.is_some_and(gives)
    }

    /// Whether a chunk more is to take the place of another: a stand-in takes what writers may take, any other position
    /// all there is. Its memory was planned for, but a younger one may have it (P10.5), or a stand-in of another list.
    fn lacks_memory(&self, shared: &Shared) -> bool {
        let purpose = match self.rebuild.reconstructor.stands_in {
            true => Purpose::StandIn,
            false => Purpose::Demand,
        };
        shared.arena.available(purpose) == 0
    }

    /// Whether the background is to bring nothing more back, beside so many chunks that are on their way. Where memory
    /// is too short for all that this node is to hold, it leaves some for what commands ask for: it may be index pages
    /// that it brings.
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

    /// Whether so few data chunks are here that a command may need them all, and another can be had beside them.
    fn is_among_the_last(&self, shared: &Shared) -> bool {
        shared.arena.available(Purpose::Demand) > 0 && self.store.chunks().held_counts().1 < shared.headroom()
    }

    /// Before a chunk is installed: drops one for it, and two where more is in use than may be, or where one more is to
    /// go to another position. Where few are here, others are asked for one.
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

    /// Gives up a chunk for another that is asked for: one that the members have as it is here, and of those the one
    /// that came first, so that all that a command needs stays until it has been done. An index page only where few
    /// data chunks are here. False if there is none.
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
