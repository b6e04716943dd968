//! How an owner finds chunks whose bytes are wrong, and replaces them (P9.2, P9.3). A chunk that does not have its sum
//! is *set aside* at once: it is absent then, so it is neither read nor written (I14), and is reconstructed from the
//! other positions. Members may not have its last deltas yet, so the owner waits for parity of exactly the chunk's
//! version.

use super::{Phase, StreamOwner};
use crate::context::Context;
use crate::interface::Out;
use crate::mark::Mark;
use crate::scrub::Step;
use paritas_base::Stripe;
use paritas_base::configuration::Configuration;
use paritas_code::sum;

/// The scrub of one stream.
#[derive(Debug, Default)]
pub(super) struct Repair {
    /// The next chunk to check. `None`: at the first one.
    next: Option<Stripe>,
    /// Chunks set aside.
    aside: Vec<Stripe>,
}

impl StreamOwner {
    /// Checks the next chunk that is here.
    pub(crate) fn scrub<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) -> Step {
        if self.phase != Phase::Serve {
            cx.shared.scrub.partial = true;
            return Step::Ended;
        }
        // The kept sums include only closed deltas.
        self.close_delta(cx, configuration);
        let from = self.rebuild.repair.next.unwrap_or_else(|| Stripe::index_page(0));
        let Some(stripe) = self.store.chunks().next_here(from) else {
            self.rebuild.repair.next = None;
            return Step::Ended;
        };
        self.rebuild.repair.next = Some(if stripe.is_index() {
            Stripe::index_page(stripe.number() + 1)
        } else {
            Stripe::data(stripe.number() + 1)
        });
        self.checked(cx, stripe);
        Step::Checked
    }

    /// The sum of a chunk's bytes, 0 without bytes. `None` if it differs from the kept sum: then the chunk has been set
    /// aside. The delta must be closed.
    pub(crate) fn checked<O: Out>(&mut self, cx: &mut Context<'_, O>, stripe: Stripe) -> Option<u32> {
        let chunks = self.store.chunks();
        let Ok(Some(bytes)) = chunks.bytes(&cx.shared.arena, stripe) else {
            return Some(0);
        };
        let found = sum::of(bytes);
        if cx.rules().is_right(found, chunks.sum(stripe)) {
            return Some(found);
        }
        cx.shared.scrub.bad += 1;
        let version = chunks.version(stripe);
        cx.out
            .mark(if version.term() == self.term() && version.seq() > self.log.acked() {
                Mark::SetAsideUnacked
            } else {
                Mark::SetAside
            });
        if self.store.set_aside(stripe) {
            self.rebuild.repair.aside.push(stripe);
            self.rebuild.reconstructor.want(cx.mono(), stripe);
        }
        None
    }

    /// A chunk has been reconstructed. If it was set aside, it is repaired.
    pub(crate) fn repaired<O: Out>(&mut self, cx: &mut Context<'_, O>, stripe: Stripe) {
        let before = self.rebuild.repair.aside.len();
        self.rebuild.repair.aside.retain(|s| *s != stripe);
        cx.shared.scrub.repaired += (before - self.rebuild.repair.aside.len()) as u64;
    }
}
