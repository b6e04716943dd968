//! How an owner that took over becomes whole (P5.5, P5.6): the directory, every absent chunk, `AskLive`.

use super::members::Member;
use super::reconstructor::Reconstructor;
use super::repair::Repair;
use super::{Phase, StreamOwner};
use crate::context::Context;
use crate::interface::{Channel, Out, Proposal};

use paritas_base::configuration::{Configuration, PositionState, Tenure};
use paritas_base::{Stripe, Term, Time};
use paritas_store::{Chunks, Presence};
use paritas_wire::peer::Message;

/// What an owner does until all chunks of its stream are resident.
#[derive(Debug, Default)]
pub(super) struct Rebuild {
    /// Reconstructs absent chunks.
    pub(super) reconstructor: Reconstructor,
    /// Chunks with wrong bytes.
    pub(super) repair: Repair,
    /// When the directory is asked for next.
    pub(super) directory_at: Time,
    /// How often the directory was asked for.
    directory_tries: usize,
    /// When the coordinator is asked next to make the position Live.
    pub(super) ask_live_at: Time,
    /// The coordinator may count on this position being whole (P5.10).
    asked_live: bool,
}

impl Rebuild {
    /// For a tenure. One that began with the list is whole.
    pub(super) fn new(born: bool) -> Self {
        Self {
            asked_live: born,
            ..Self::default()
        }
    }

    /// Whether the position was whole once in this tenure, and the coordinator was asked to make it Live.
    pub(super) fn has_asked_live(&self) -> bool {
        self.asked_live
    }

    /// A session begins: requests that the previous one may have lost are sent again.
    pub(super) fn on_session_up(&mut self, now: Time) {
        self.directory_at = now;
        self.ask_live_at = now;
        self.reconstructor.restart(now);
    }

    /// When something is due, by the store.
    pub(super) fn next_at(&self, chunks: &Chunks) -> Time {
        if !chunks.directory_known() {
            return self.directory_at;
        }
        let next = self.reconstructor.next_at();
        if chunks.absent_count() == 0 && self.reconstructor.filling {
            return next.min(self.ask_live_at);
        }
        next
    }
}

impl StreamOwner {
    /// While Filling: the directory, then every absent chunk, then `AskLive` (P5.5, P5.6).
    pub(super) fn rebuild<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        parts_whole: bool,
    ) {
        let now = cx.mono();
        let me = configuration.at(self.stream.x).filter(|a| a.tenure == self.tenure);
        let filling = me.is_some_and(|a| a.state == PositionState::Filling);
        if !self.store.chunks().directory_known() {
            if now >= self.rebuild.directory_at {
                self.rebuild.directory_at = cx.after(cx.shared.parameters.retry);
                let message = Message::ReadDirectory {
                    term: self.term(),
                    at_least: self.log.cut(),
                };
                // Each time another member, so that one that cannot be reached does not stop the rebuild.
                self.rebuild.directory_tries += 1;
                let live: Vec<&Member> = self.members_by_use().filter(|m| m.live).collect();
                for member in live
                    .iter()
                    .cycle()
                    .skip(self.rebuild.directory_tries - 1)
                    .take(live.len())
                {
                    if cx.send(
                        &member.tenure,
                        Channel::Bulk,
                        self.stream,
                        configuration.epoch,
                        &message,
                    ) {
                        break;
                    }
                }
            }
            return;
        }
        self.reconstruct(cx, configuration);
        if filling && self.store.chunks().absent_count() == 0 && now >= self.rebuild.ask_live_at {
            self.rebuild.ask_live_at = cx.after(cx.shared.parameters.retry);
            // P14.9: parts of large values are still to be made.
            if !parts_whole {
                return;
            }
            self.rebuild.asked_live = true;
            let shared = &mut *cx.shared;
            shared
                .stashes
                .drop_at(&mut shared.arena, self.stream.list, self.stream.x);
            let (list, position, tenure) = (self.stream.list, self.stream.x, self.tenure);
            cx.propose(Proposal::AskLive { list, position, tenure });
        }
    }

    /// P5.5: which stripes exist.
    pub(crate) fn on_directory<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        from: Tenure,
        term: Term,
        complete_for: u64,
        entries: &[u8],
    ) {
        let live = self.members.iter().any(|m| m.tenure == from && m.live);
        let wanted = self.phase == Phase::Serve && term == self.term() && !self.store.chunks().directory_known();
        let complete = cx.rules().is_complete_for(complete_for, self.log.cut());
        let mut stripes = Message::directory_entries(entries).map(|(stripe, _)| stripe);
        if !wanted || !live || !complete || !stripes.all(|stripe| cx.shared.can_exist(stripe)) {
            return;
        }
        self.store
            .set_directory(&cx.shared.arena, Message::directory_entries(entries));
        self.rebuild.reconstructor.restart(cx.mono());
        self.wake.progress = true;
        self.rebuild(cx, configuration, false);
    }

    /// P14.9: the position has every part of large values that it must have.
    pub(crate) fn on_parts_whole(&mut self, now: Time) {
        self.rebuild.ask_live_at = now;
    }

    /// Whether all of the stream's chunks are here.
    pub fn is_whole(&self) -> bool {
        self.phase == Phase::Serve && self.store.chunks().directory_known() && self.store.chunks().absent_count() == 0
    }

    /// Whether a stripe's chunk must be reconstructed before it can be used.
    pub(crate) fn is_absent(&self, stripe: Stripe) -> bool {
        self.store.chunks().presence(stripe) == Some(Presence::Absent)
    }
}
