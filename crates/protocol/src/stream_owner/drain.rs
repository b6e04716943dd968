//! An owner that is asked to go (P5.12): it begins no write, and says when those begun are acknowledged.
//!
//! It does nothing else: it serves reads, and yields only what a configuration has taken from it (P5.12a). If none
//! comes, it goes on after a while. So nothing depends on this but that no client is told `UNCERTAIN`, and that the
//! successor finds every member, and the one it follows, at the same place.

use super::{Phase, StreamOwner};
use crate::context::Context;
use crate::interface::{Out, Proposal};
use crate::mark::Mark;
use paritas_base::configuration::Tenure;

impl StreamOwner {
    pub(crate) fn on_drain<O: Out>(&mut self, cx: &Context<'_, O>, tenure: Tenure) {
        if tenure == self.tenure && self.phase == Phase::Serve {
            self.drain_asked = true;
            self.hold_until = self.hold_until.max(cx.now.mono + cx.shared.parameters.drain_max);
        }
    }

    /// Once each time it is asked: the proposal may be lost, and the coordinator asks again.
    pub(super) fn tell_drained<O: Out>(&mut self, cx: &mut Context<'_, O>) {
        let drained = self.drain_asked && self.open_bytes() == 0 && self.acked == self.seq && self.is_whole();
        if drained && cx.mono() < self.hold_until {
            self.drain_asked = false;
            cx.out.mark(Mark::Drained);
            let (list, position, tenure) = (self.stream.list, self.stream.x, self.tenure);
            cx.propose(Proposal::Drained { list, position, tenure });
        }
    }
}
