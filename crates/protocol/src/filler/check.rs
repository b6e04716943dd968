//! The scrub of a parity chunk (PROTOCOL 9.2, 9.3): its data chunks are fetched as for a refill, while the stripe stays
//! valid; what they encode to must be what is here.

use super::Fetch;
use crate::context::Context;
use crate::interface::Out;
use crate::mark::Mark;
use crate::parameters::Mutant;
use crate::parity_member::ParityMember;
use crate::scrub::Step;
use paritas_base::configuration::{Configuration, PositionState};
use paritas_base::{Stripe, Time};

/// Rounds of questions after which a stripe is left for the next pass.
const TRIES_MAX: u32 = 8;

/// A stripe that is being compared.
#[derive(Debug)]
pub(super) struct Check {
    pub(super) stripe: Stripe,
    pub(super) fetch: Fetch,
    /// Not asked again before: an owner that is itself getting the chunk back needs a moment.
    again_at: Time,
    tries: u32,
}

impl super::Filler {
    /// Whether this stripe's deltas must be buffered although it is valid.
    #[inline]
    pub(crate) fn checks(&self, stripe: Stripe) -> bool {
        self.check.as_ref().is_some_and(|check| check.stripe == stripe)
    }
}

impl ParityMember {
    /// Goes on with the stripe that is being compared, or begins with the next one.
    pub(crate) fn scrub<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) -> Step {
        if let Some(check) = self.filler.check.take() {
            return self.go_on(cx, configuration, check);
        }
        let of_term = |x| configuration.tenure(x).map(|t| t.term());
        let known = |x| self.log(x).is_some_and(|log| log.known && Some(log.term) == of_term(x));
        let whole = configuration
            .positions
            .iter()
            .all(|p| p.as_ref().is_some_and(|a| a.state == PositionState::Live));
        let next = self.table.next_valid(self.filler.checked);
        let may = whole && configuration.data_positions().all(known);
        cx.shared.scrub.partial |= !may;
        let Some(stripe) = next.filter(|_| may) else {
            self.filler.checked = Stripe::index_page(0);
            return Step::Ended;
        };
        self.filler.checked = if stripe.is_index() {
            Stripe::index_page(stripe.number() + 1)
        } else {
            Stripe::data(stripe.number() + 1)
        };
        let fetch = Fetch::new(cx, configuration);
        self.ask_chunks(cx, configuration, stripe, &fetch);
        let (retry_at, again_at) = (fetch.retry_at, cx.after(cx.shared.parameters.retry));
        self.filler.check = Some(Check {
            stripe,
            fetch,
            again_at,
            tries: 0,
        });
        Step::Waits(retry_at)
    }

    fn go_on<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration, mut check: Check) -> Step {
        if self.is_complete(cx, &check.fetch) {
            self.compare(cx, check.stripe, check.fetch);
            return Step::Checked;
        }
        if check.tries > TRIES_MAX || check.fetch.is_overfull(cx.shared.arena.chunk_bytes()) {
            cx.shared.scrub.partial = true;
            return Step::Checked;
        }
        if check.fetch.retry_at.max(check.again_at) <= cx.mono() {
            check.tries += 1;
            check.again_at = cx.after(cx.shared.parameters.retry);
            check.fetch.retry_at = cx.after(cx.shared.parameters.resend);
            self.ask_chunks(cx, configuration, check.stripe, &check.fetch);
        }
        let due_at = check.fetch.retry_at.max(check.again_at);
        self.filler.check = Some(check);
        Step::Waits(due_at)
    }

    /// Data that has its owners' sums, as all that was taken does, outvotes the parity.
    fn compare<O: Out>(&mut self, cx: &mut Context<'_, O>, stripe: Stripe, fetch: Fetch) {
        let Some((values, bytes)) = self.encode(cx, stripe, fetch) else {
            return;
        };
        let (here, zeros) = (self.table.bytes(&cx.shared.arena, stripe), vec![0; bytes.len()]);
        let same = here.unwrap_or(&zeros) == bytes
            && (values.iter().enumerate()).all(|(x, (_, sum))| self.table.sum(stripe, x) == *sum);
        let versions_agree = self
            .table
            .versions(stripe)
            .eq(values.iter().map(|(version, _)| *version));
        cx.shared.scrub.partial |= !versions_agree;
        if same || !versions_agree || cx.breaks(Mutant::ParityNotScrubbed) {
            return;
        }
        cx.shared.scrub.bad += 1;
        if self.table.install(&mut cx.shared.arena, stripe, &values, &bytes) {
            cx.out.mark(Mark::ParityReplaced);
            cx.shared.scrub.repaired += 1;
        }
    }
}
