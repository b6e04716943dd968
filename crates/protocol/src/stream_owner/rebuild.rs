//! How an owner that took over becomes whole (P5.5, P5.6): the directory, every absent chunk, `AskLive`.

use super::{Member, Phase, StreamOwner};
use crate::context::Context;
use crate::interface::{Channel, Out, Proposal};
use paritas_base::Stripe;
use paritas_base::Term;
use paritas_base::configuration::{Configuration, PositionState, Tenure};
use paritas_store::Presence;
use paritas_wire::peer::Message;

impl StreamOwner {
    /// While Filling: the directory, then every absent chunk, then `AskLive` (P5.5, P5.6).
    pub(super) fn rebuild<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        let now = cx.mono();
        let me = configuration.at(self.stream.x).filter(|a| a.tenure == self.tenure);
        let filling = me.is_some_and(|a| a.state == PositionState::Filling);
        if !self.store.chunks().directory_known() {
            if now >= self.directory_at {
                self.directory_at = cx.after(cx.shared.parameters.retry);
                let message = Message::ReadDirectory {
                    term: self.term(),
                    at_least: self.cut,
                };
                // Another one each time: one that cannot be reached must not be all that is asked.
                self.directory_tries += 1;
                let live: Vec<&Member> = self.members_by_use().filter(|m| m.live).collect();
                for member in live.iter().cycle().skip(self.directory_tries - 1).take(live.len()) {
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
        if filling && self.store.chunks().absent_count() == 0 && now >= self.ask_live_at {
            self.ask_live_at = cx.after(cx.shared.parameters.retry);
            self.asked_live = true;
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
        let complete = cx.rules().is_complete_for(complete_for, self.cut);
        let mut stripes = Message::directory_entries(entries).map(|(stripe, _)| stripe);
        if !wanted || !live || !complete || !stripes.all(|stripe| cx.shared.can_exist(stripe)) {
            return;
        }
        self.store
            .set_directory(&cx.shared.arena, Message::directory_entries(entries));
        self.reconstructor.restart(cx.mono());
        self.progress = true;
        self.rebuild(cx, configuration);
    }

    /// Whether all of the stream's chunks are here.
    pub fn is_whole(&self) -> bool {
        self.phase == Phase::Serve && self.store.chunks().directory_known() && self.store.chunks().absent_count() == 0
    }

    /// Whether a stripe's chunk must be read back before it can be used.
    pub(crate) fn is_absent(&self, stripe: Stripe) -> bool {
        self.store.chunks().presence(stripe) == Some(Presence::Absent)
    }
}
