//! Work on streams between commands: deletes expired keys, compacts, gives memory back.

use super::Replica;
use crate::context::Context;
use crate::interface::Out;
use crate::stream_owner::housekeep;
use paritas_base::{Clock, Span, Time};

/// The time to the next step of housekeeping while there is work.
const HOUSEKEEP_BUSY: Span = Span::from_ms(2);
/// The same while there is no work.
const HOUSEKEEP_IDLE: Span = Span::from_ms(100);
/// Bytes of delta that housekeeping may write for one stream in a turn, beside as many as the turn's commands wrote.
const HOUSEKEEP_BYTES: usize = 4 << 10;
/// The most bytes of delta that housekeeping writes for one stream in a turn.
const HOUSEKEEP_BYTES_MAX: usize = 64 << 10;

impl Replica {
    /// One step of work on every stream that needs it: after a turn with writes, and by timer. Before: the commands of
    /// the turn have run.
    #[inline]
    pub fn housekeep(&mut self, now: Clock, out: &mut impl Out) {
        let mut cx = Context {
            now,
            out,
            shared: &mut self.shared,
        };
        let due = self.housekeep_at != Time(0) && now.mono >= self.housekeep_at;
        let (mut more, mut owns) = (false, false);
        if due {
            self.lists.wake();
        }
        for (configuration, owner) in self.lists.awake_owners_mut(now.mono) {
            let written = owner.open_bytes();
            owns |= owner.store().page_count() > 0 || owner.store().chunks().here_count() > 0;
            if due || written > 0 {
                let budget = (HOUSEKEEP_BYTES + written).min(HOUSEKEEP_BYTES_MAX);
                let unfinished = housekeep(&mut cx, configuration, owner, budget);
                if !unfinished {
                    owner.forget_wanted();
                }
                more |= unfinished;
            }
        }
        if more {
            self.housekeep_at = now.mono + HOUSEKEEP_BUSY;
        } else if owns && (due || self.housekeep_at == Time(0)) {
            self.housekeep_at = now.mono + HOUSEKEEP_IDLE;
        } else if due {
            self.housekeep_at = Time(0);
        }
    }
}
