//! The end of a turn, in phases. The driver writes next: deltas, acks and replies that are due leave now.
//!
//! Each phase relies on those before it. Only `retry` and `release` run commands; only `exchange` reads frames.

use crate::node::Node;
use paritas_base::Clock;
use paritas_protocol::Out;

/// Rounds of release in one turn. Each may run commands that come back to this node, and few do so twice.
const RELEASES_MAX: usize = 64;

/// How often the end of a turn has stopped at a round limit, for INFO.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Limits {
    /// Turns in which [`Node::exchange`] did.
    pub(crate) exchange_turns: u64,
    /// Turns in which [`Node::release`] did.
    pub(crate) release_turns: u64,
}

impl Node {
    /// All phases, in order.
    #[inline]
    pub(crate) fn end_turn(&mut self, now: Clock, out: &mut impl Out) {
        self.measure(now, out);
        self.move_slots(now, out);
        self.retry(now, out);
        self.replica.scrub(now, out);
        self.replica.unblock();
        self.exchange(now, out);
        self.release(now, out);
        debug_assert!(
            self.replica.has_no_open_delta(),
            "a delta is open after the release of replies"
        );
        self.replica.confirm(now, out);
        self.replica.dial(now, out);
        self.replica.flush_disk(now);
        self.replica.rest(now);
        self.begin_budget(now, out);
    }

    /// Phase 1. Before: the events of the turn were handled. After: memory limits and the pace of rebuilds are those of
    /// this turn.
    #[inline]
    fn measure(&mut self, now: Clock, out: &mut impl Out) {
        let Self { replica, router, .. } = self;
        replica.measure(now, || router.buffer_bytes(), out);
    }

    /// Phase 2. Before: owners know the newest configurations. After: hand-offs of hash slots have gone on, and
    /// commands are sent by the slot map that results.
    #[inline]
    fn move_slots(&mut self, now: Clock, out: &mut impl Out) {
        self.replica.move_slots(now, out);
        self.heed(now, out);
    }

    /// Phase 3. Before: owners that have made progress say so. After: every command that could go on has, no owner's
    /// progress is unseen, and streams with something to clean up have been housekept.
    #[inline]
    fn retry(&mut self, now: Clock, out: &mut impl Out) {
        let (mut cx, lists, router) = self.command_parts(now, out);
        router.retry_stalled(&mut cx, lists);
        self.replica.housekeep(now, out);
    }

    /// Phase 6. Before: what the turn has written is in open deltas. After: no delta is open, each is in the buffer of
    /// every parity member, or read by the member here; acks and lease requests of the turn are in buffers too. Frames
    /// between roles of this node are left only if the round limit was reached: they are read in the next turn.
    #[inline]
    fn exchange(&mut self, now: Clock, out: &mut impl Out) {
        let limited = self.replica.exchange(now, out);
        self.router.dispatcher.limits.exchange_turns += u64::from(limited);
        self.heed(now, out);
    }

    /// Phase 7. Before: acks and leases that came in this turn are known. After: every reply that may be seen is
    /// released, and no delta is open. A release may run a command that comes back to this node, whose delta leaves in
    /// this turn too.
    #[inline]
    fn release(&mut self, now: Clock, out: &mut impl Out) {
        for _ in 0..RELEASES_MAX {
            let (mut cx, lists, router) = self.command_parts(now, out);
            router.release(&mut cx, lists);
            if !self.replica.close_late_deltas(now, out) {
                return;
            }
        }
        self.router.dispatcher.limits.release_turns += 1;
    }

    /// The last phase. Before: the commands of this turn have run. After: those of the next turn have its whole budget.
    #[inline]
    fn begin_budget(&mut self, now: Clock, out: &mut impl Out) {
        if self.router.dispatcher.nobody_yields() {
            // The usual case, once in each turn.
            let (shared, _) = self.replica.parts();
            return shared.turn_budget.begin(shared.parameters.turn_steps, false);
        }
        let (mut cx, lists, router) = self.command_parts(now, out);
        router.begin_budget(&mut cx, lists);
    }
}
