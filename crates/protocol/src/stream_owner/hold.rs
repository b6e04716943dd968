//! Times without new deltas: for nodes that rebuild stripes (P5.8), and before this owner leaves (P5.12).
//!
//! An owner that is asked to leave begins no write, and reports when those begun are acknowledged. It still serves
//! reads, and yields only a position that a configuration has taken from it (P5.12a). If no configuration does, it
//! begins writes again after a time limit. Safety does not depend on this. Its use: no client gets `UNCERTAIN`, and the
//! successor finds every member and the earlier owner at the same delta.

use super::{Phase, StreamOwner};
use crate::context::Context;
use crate::interface::{Out, Proposal};
use crate::mark::Mark;
use paritas_base::Time;
use paritas_base::configuration::Tenure;

/// Whether writes are held back.
#[derive(Debug, Default)]
pub(super) struct Hold {
    /// No write begins before this time; 0: writes may begin.
    until: Time,
    /// The coordinator has asked this owner to leave, and the owner has not yet said that it is drained.
    drain_asked: bool,
}

impl Hold {
    fn extend(&mut self, until: Time) {
        self.until = self.until.max(until);
    }

    /// Whether no write may begin now.
    #[inline]
    pub(super) fn is_held(&self, now: Time) -> bool {
        now < self.until
    }

    pub(super) fn is_drain_asked(&self) -> bool {
        self.drain_asked
    }

    /// When writes may begin again; `None`: they may now.
    pub(super) fn ends_at(&self) -> Option<Time> {
        (self.until != Time(0)).then_some(self.until)
    }

    /// Ends the hold once its time is over. True if it ended now.
    pub(super) fn end(&mut self, now: Time) -> bool {
        let ends = self.ends_at().is_some_and(|until| now >= until);
        if ends {
            *self = Self::default();
        }
        ends
    }
}

impl StreamOwner {
    /// P5.8: a node that rebuilds a stripe asks to hold writes.
    pub(crate) fn on_hold<O: Out>(&mut self, cx: &mut Context<'_, O>) {
        cx.out.mark(Mark::Held);
        self.hold.extend(cx.mono() + cx.shared.parameters.hold_max);
    }

    pub(crate) fn on_drain<O: Out>(&mut self, cx: &Context<'_, O>, tenure: Tenure) {
        if tenure == self.tenure && self.phase == Phase::Serve {
            self.hold.drain_asked = true;
            self.hold.extend(cx.now.mono + cx.shared.parameters.drain_max);
        }
    }

    /// Reports once for each request. The proposal may be lost; the coordinator then asks again.
    pub(super) fn report_drained<O: Out>(&mut self, cx: &mut Context<'_, O>) {
        let log = &self.log;
        let drained = self.hold.drain_asked && log.open_bytes() == 0 && log.acked() == log.seq() && self.is_whole();
        if drained && self.hold.is_held(cx.mono()) {
            self.hold.drain_asked = false;
            cx.out.mark(Mark::Drained);
            let (list, position, tenure) = (self.stream.list, self.stream.x, self.tenure);
            cx.propose(Proposal::Drained { list, position, tenure });
        }
    }
}
