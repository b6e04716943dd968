//! Parity that is made ahead of its readers, by workers: Algorithm 1's PREFETCH.

use super::entry::Entry;
use super::{Answer, Asker, Decline, Granted, M, Opened, Out, Reply, Steward, Update, Waiting};
use crate::Node;
use crate::request::Open;
use paritas_base::Time;

impl Steward {
    /// Names the next file, each once after a node has become a straggler. If the worker dies, the file's next reader
    /// makes the parity.
    pub(super) fn on_prefetch(&mut self, asker: Asker, out: &mut impl Out) {
        let mut next = None;
        while next.is_none()
            && let Some(file) = self.ahead.pop_front()
        {
            // Readers may have been faster, and stragglers may have recovered.
            next = self.csac.is_worth_prefetching(file).then_some(file);
            self.counters.prefetches_skipped += u64::from(next.is_none());
        }
        out.reply(asker, Reply::Next(next));
    }

    /// As OPEN of a file that is not cached, but nobody has accessed the file: no count and no history grows.
    pub(super) fn on_make(&mut self, now: Time, asker: Asker, open: &Open<'_>, out: &mut impl Out) {
        let nodes = self.numbers(open);
        let geometry = self.geometry(open);
        let blocks = geometry.cache_blocks(self.settings.block_bytes);
        // Parity that is there, or is being made, is left to those who use it.
        if !self.by_file.contains_key(&open.file) && self.csac.is_affected(&nodes) && self.may_grant(&geometry) {
            match self.csac.update_prefetched(open.file, blocks) {
                Update::Recorded => {}
                Update::Declined(Decline::TooLarge) => self.counters.too_large += 1,
                Update::Declined(Decline::NothingEvictable) => self.counters.nothing_evictable += 1,
                Update::Cached { evicted } => {
                    self.evict(now, evicted, out);
                    let entry = Entry::new(open.file, Some(open.version), geometry, blocks, open.path);
                    return self.grant(now, entry, Waiting::Make(asker, nodes), out);
                }
            }
        }
        self.counters.prefetches_declined += 1;
        out.reply(asker, Reply::Opened(self.making(&nodes, None)));
    }

    /// The answer to MAKE.
    pub(super) fn making(&self, nodes: &[Node], grant: Option<Granted>) -> Opened {
        Opened {
            answer: if grant.is_some() {
                Answer::ShouldCache
            } else {
                Answer::ShouldNotCache
            },
            grant: grant.unwrap_or_else(|| Granted::none(M, self.settings.sub_bytes)),
            slow: self.slow(nodes),
        }
    }
}
