//! The scrub of a parity chunk (P9.2, P9.3): its data chunks are fetched as for a refill, while the stripe stays valid,
//! and encoded again. The result must equal the parity chunk here. A parity chunk that the disk has lost (P11.2) is
//! rebuilt in the same way.

use super::Fetch;
use crate::context::Context;
use crate::disk_log::Wanted;
use crate::interface::Out;
use crate::mark::Mark;
use crate::parity_member::ParityMember;
use crate::parity_member::table::State;
use crate::scrub::Step;
use paritas_base::configuration::Configuration;
use paritas_base::{Stripe, Time};

/// Rounds of questions after which a stripe is left for the next pass.
const TRIES_MAX: u32 = 8;

/// The stripe that is being checked.
#[derive(Debug)]
pub(super) struct Check {
    pub(super) stripe: Stripe,
    pub(super) fetch: Fetch,
    /// The owners are not asked again before this time: one that is itself reconstructing its chunk needs time.
    again_at: Time,
    tries: u32,
    /// Whether the parity chunk is being read from the disk.
    is_read: bool,
    /// Whether the parity chunk was compared.
    is_done: bool,
}

impl super::Refill {
    /// Whether this stripe's deltas must be buffered although it is valid.
    #[inline]
    pub(crate) fn checks(&self, stripe: Stripe) -> bool {
        self.check.as_ref().is_some_and(|check| check.stripe == stripe)
    }
}

impl ParityMember {
    /// Continues with the stripe that is being checked, or begins with the next one.
    pub(crate) fn scrub<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) -> Step {
        if let Some(check) = self.refill.check.take() {
            return self.go_on(cx, configuration, check);
        }
        let of_term = |x| configuration.tenure(x).map(|t| t.term());
        let known = |x| self.log(x).is_some_and(|log| log.known && Some(log.term) == of_term(x));
        let whole = configuration
            .positions
            .iter()
            .all(|p| p.as_ref().is_some_and(|a| a.state.is_live()));
        let lost = self.table.next_lost().filter(|_| !self.refill.filling);
        let next = lost.or_else(|| self.table.next_valid(self.refill.checked));
        let may = (whole || lost.is_some()) && configuration.data_positions().all(known);
        cx.shared.scrub.partial |= !may;
        let Some(stripe) = next.filter(|_| may) else {
            self.refill.checked = Stripe::index_page(0);
            return Step::Ended;
        };
        if lost.is_none() {
            self.refill.checked = if stripe.is_index() {
                Stripe::index_page(stripe.number() + 1)
            } else {
                Stripe::data(stripe.number() + 1)
            };
        }
        let fetch = Fetch::new(cx, configuration);
        self.ask_chunks(cx, configuration, stripe, &fetch);
        let (retry_at, again_at) = (fetch.retry_at, cx.after(cx.shared.parameters.retry));
        self.refill.check = Some(Check {
            stripe,
            fetch,
            again_at,
            tries: 0,
            is_read: false,
            is_done: false,
        });
        Step::Waits(retry_at)
    }

    fn go_on<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration, mut check: Check) -> Step {
        if check.is_done {
            return Step::Checked;
        }
        if self.is_complete(cx, &check.fetch) && !check.is_read {
            let stripe = check.stripe;
            if self.table.state(stripe) == State::Lost {
                self.repair(cx, stripe, &mut check.fetch);
                return Step::Checked;
            }
            let Some((key, disk)) = self.table.disk_key(stripe).zip(cx.shared.disk.as_mut()) else {
                let zeros = vec![0; cx.shared.arena.chunk_bytes()];
                let here = self.table.bytes(&cx.shared.arena, stripe).map(<[u8]>::to_vec);
                self.compare(cx, stripe, &mut check.fetch, &here.unwrap_or(zeros));
                return Step::Checked;
            };
            let list = self.list();
            check.is_read = disk.read(key, Wanted::Check { list, stripe });
            check.fetch.retry_at = cx.after(cx.shared.parameters.resend_max);
        }
        if check.tries > TRIES_MAX || check.fetch.is_overfull(cx.shared.arena.chunk_bytes()) {
            cx.shared.scrub.partial = true;
            return Step::Checked;
        }
        if check.fetch.retry_at.max(check.again_at) <= cx.mono() {
            // If the disk has not answered by now, it is asked again, and the owners for their current chunks.
            check.is_read = false;
            check.tries += 1;
            check.again_at = cx.after(cx.shared.parameters.retry);
            check.fetch.retry_at = cx.after(cx.shared.parameters.resend);
            self.ask_chunks(cx, configuration, check.stripe, &check.fetch);
        }
        let due_at = check.fetch.retry_at.max(check.again_at);
        self.refill.check = Some(check);
        Step::Waits(due_at)
    }

    /// Compares the parity chunk that was read from the disk. If the disk was asked twice, its second answer is
    /// ignored, because the check is then done.
    pub(crate) fn on_checked_read<O: Out>(&mut self, cx: &mut Context<'_, O>, stripe: Stripe, bytes: Option<&[u8]>) {
        let is_it = |check: &mut Check| check.stripe == stripe && check.is_read && !check.is_done;
        let Some(mut check) = self.refill.check.take_if(is_it) else {
            return;
        };
        if let Some(bytes) = bytes.filter(|_| self.is_complete(cx, &check.fetch)) {
            self.compare(cx, stripe, &mut check.fetch, bytes);
        } else {
            cx.shared.scrub.partial = true;
        }
        check.is_done = true;
        check.fetch.retry_at = cx.mono();
        cx.shared.scrub.next_at = cx.mono();
        self.refill.check = Some(check);
    }

    /// Installs the encoded parity in place of the chunk that the disk has lost.
    fn repair<O: Out>(&mut self, cx: &mut Context<'_, O>, stripe: Stripe, fetch: &mut Fetch) {
        let Some((values, bytes)) = self.encode(cx, stripe, fetch) else {
            return;
        };
        let agree = (self.table.versions(stripe)).eq(values.iter().map(|(version, _)| *version));
        if agree && self.table.install(cx.shared, stripe, &values, &bytes) {
            cx.out.mark(Mark::LoggedParityMended);
            cx.shared.scrub.repaired += 1;
        }
    }

    /// Compares the parity chunk `here` with the encoded data. If they differ, the parity is replaced: the data chunks
    /// were accepted only because their checksums are right.
    fn compare<O: Out>(&mut self, cx: &mut Context<'_, O>, stripe: Stripe, fetch: &mut Fetch, here: &[u8]) {
        let Some((values, bytes)) = self.encode(cx, stripe, fetch) else {
            return;
        };
        let same = here == bytes && (values.iter().enumerate()).all(|(x, (_, sum))| self.table.sum(stripe, x) == *sum);
        let versions_agree = self
            .table
            .versions(stripe)
            .eq(values.iter().map(|(version, _)| *version));
        cx.shared.scrub.partial |= !versions_agree;
        if !cx.rules().parity_is_wrong(same, versions_agree) {
            return;
        }
        cx.shared.scrub.bad += 1;
        if self.table.install(cx.shared, stripe, &values, &bytes) {
            cx.out.mark(Mark::ParityReplaced);
            cx.shared.scrub.repaired += 1;
        }
    }
}
