//! How an owner finds chunks whose bytes are wrong, and has them replaced (PROTOCOL 9.2, 9.3): a chunk that does not
//! have its sum is set aside, and comes back as any absent chunk does, from the other positions.

use super::{Phase, StreamOwner};
use crate::context::Context;
use crate::interface::Out;
use crate::scrub::Step;
use paritas_base::configuration::Configuration;
use paritas_base::{Span, Stripe, Time};
use paritas_code::sum;

/// Chunks found wrong at a time; with more, something else is wrong, and the next pass finds them again.
const SUSPECTS_MAX: usize = 64;
/// A hold is asked for again after so many times its length: where acks do not come, clients must not wait for it.
const HOLD_EVERY: u64 = 10;

/// The scrub of one stream.
#[derive(Debug, Default)]
pub(crate) struct Mend {
    /// Where the pass goes on.
    next: Option<Stripe>,
    /// Chunks that are wrong and cannot be set aside yet.
    suspects: Vec<Stripe>,
    /// Deltas are held for them again then.
    hold_at: Time,
    /// Chunks set aside.
    aside: Vec<Stripe>,
}

impl StreamOwner {
    /// Checks the next chunk that is here.
    pub(crate) fn scrub<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) -> Step {
        if self.phase != Phase::Serve {
            return Step::Ended;
        }
        // Sums are those of the deltas that are closed.
        self.close_delta(cx, configuration);
        let from = self.mend.next.unwrap_or_else(|| Stripe::index_page(0));
        let Some(stripe) = self.store.chunks().next_here(from) else {
            self.mend.next = None;
            return Step::Ended;
        };
        self.mend.next = Some(if stripe.is_index() {
            Stripe::index_page(stripe.number() + 1)
        } else {
            Stripe::data(stripe.number() + 1)
        });
        self.has_its_sum(cx, stripe);
        Step::Checked
    }

    /// Whether a chunk, if it is here, has its sum. The delta must be closed.
    pub(crate) fn has_its_sum<O: Out>(&mut self, cx: &mut Context<'_, O>, stripe: Stripe) -> bool {
        let chunks = self.store.chunks();
        let Ok(Some(bytes)) = chunks.bytes(&cx.shared.arena, stripe) else {
            return true;
        };
        if sum::of(bytes) == chunks.sum(stripe) {
            return true;
        }
        if !self.mend.suspects.contains(&stripe) && self.mend.suspects.len() < SUSPECTS_MAX {
            cx.shared.scrub.bad += 1;
            self.mend.suspects.push(stripe);
            self.set_aside_suspects(cx);
        }
        false
    }

    /// Sets aside what is wrong, as soon as all that was changed in it is safe elsewhere (5.10).
    pub(super) fn set_aside_suspects<O: Out>(&mut self, cx: &mut Context<'_, O>) {
        for stripe in core::mem::take(&mut self.mend.suspects) {
            let version = self.store.chunks().version(stripe);
            if version.term() == self.term() && version.seq() > self.acked {
                if cx.mono() >= self.mend.hold_at {
                    // A chunk that is always written would never be safe.
                    self.mend.hold_at = cx.mono() + Span(HOLD_EVERY * cx.shared.parameters.hold_max.0);
                    self.on_hold(cx);
                }
                self.mend.suspects.push(stripe);
            } else if self.store.set_aside(stripe) {
                self.mend.aside.push(stripe);
                self.materialiser.want(cx.mono(), stripe);
            }
        }
    }

    /// A chunk is back.
    pub(crate) fn mended<O: Out>(&mut self, cx: &mut Context<'_, O>, stripe: Stripe) {
        let before = self.mend.aside.len();
        self.mend.aside.retain(|s| *s != stripe);
        cx.shared.scrub.repaired += (before - self.mend.aside.len()) as u64;
    }
}
