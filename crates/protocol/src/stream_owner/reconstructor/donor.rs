//! Chunks from the node that held the position before, while that node lives (P5.12).

use super::task::Task;
use crate::context::Context;
use crate::interface::{Channel, Out};
use crate::mark::Mark;
use crate::source_chunk::SourceChunk;
use crate::stream_owner::StreamOwner;
use paritas_base::configuration::{Configuration, Tenure};
use paritas_base::{Incarnation, NodeId, Stripe};
use paritas_wire::peer::Message;

#[derive(Debug)]
pub(super) struct Donor {
    pub(super) tenure: Tenure,
    /// Chunks that it lacked, less those that it gave; never below 0.
    pub(super) misses: u32,
}

/// The most chunks a donor may lack, above those that it has given. After that it is not asked: its memory was reused.
const DONOR_MISSES_MAX: u32 = 8;

impl StreamOwner {
    /// Asks the donor for a chunk at the wanted version. This transfers one chunk instead of `k`.
    pub(super) fn ask_donor<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        stripe: Stripe,
    ) -> bool {
        let me = (cx.shared.node, cx.shared.incarnation);
        let Some(donor) = self.rebuild.reconstructor.donor.as_ref().map(|d| d.tenure) else {
            return false;
        };
        let (id, want) = (cx.next_request_id(), self.store.chunks().version(stripe));
        let message = Message::ReadChunk {
            id,
            stripe,
            want: Some(want),
        };
        let other = (donor.node, donor.incarnation) != me;
        if !other || !cx.send(&donor, Channel::Bulk, self.stream(), configuration.epoch, &message) {
            return false;
        }
        let retry_at = cx.after(cx.shared.parameters.resend);
        let task = Task {
            of_donor: true,
            ..Task::new(id, retry_at)
        };
        self.rebuild.reconstructor.insert(stripe, task);
        true
    }

    /// The donor's answer. A chunk that the donor lacks, or whose sum is wrong, is decoded.
    pub(crate) fn on_donors_chunk<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        from: (NodeId, Incarnation),
        id: u64,
        stripe: Stripe,
        value: Option<SourceChunk<'_>>,
    ) {
        let asked = self
            .rebuild
            .reconstructor
            .tasks
            .get(&stripe)
            .is_some_and(|t| t.id == id && t.of_donor);
        let Some(donor) = self.rebuild.reconstructor.donor.as_mut().filter(|_| asked) else {
            return;
        };
        if (donor.tenure.node, donor.tenure.incarnation) != from {
            return;
        }
        let (want, chunk_bytes) = (self.store.chunks().version(stripe), cx.shared.arena.chunk_bytes());
        let right = |source: &SourceChunk<'_>| {
            source.version == want && source.bytes.len() == chunk_bytes && source.has_its_sum()
        };
        if let Some(source) = value.filter(right) {
            donor.misses = donor.misses.saturating_sub(1);
            cx.out.mark(Mark::DonorUsed);
            self.install(cx, stripe, source.version, source.sum, source.bytes);
            return;
        }
        donor.misses += 1;
        if donor.misses > DONOR_MISSES_MAX {
            self.rebuild.reconstructor.donor = None;
        }
        self.rebuild.reconstructor.tasks.remove(&stripe);
        if !self.ask_at_once(cx, configuration, stripe, false) {
            self.ask_parities(cx, configuration, stripe, 0, false);
        }
    }
}
