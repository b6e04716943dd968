//! CSAC, the configurable straggler-aware cache algorithm: Algorithm 1 of POCache (§3.3).
//!
//! The unit is a block. The cached parity never takes more than `total_blocks` of them. While there are stragglers, a
//! file's parity is cached exactly if a straggler holds a unit of the file; otherwise the admission decides.
//!
//! The paper's loop of evictions (lines 18 to 22) does not end if the file needs more than the whole cache, or if
//! nothing may be evicted. Here the file is then declined, and nothing is evicted.

use crate::choice::choice;
use crate::eviction::{Eviction, Order};
use crate::history::{History, Past};
use crate::{File, Node};
use paritas_base::{Map, Set, map, set};
use std::cmp::Reverse;

choice! {
    /// Which files are cached while there is no straggler (the paper's G_a). While there are stragglers, exactly the
    /// files with a unit on one are.
    Admission, "an admission":
    /// Each that is accessed: the paper's cache-upon-access.
    OnAccess = "on-access",
    /// Each that was accessed before. Files that are read once take no room.
    SecondAccess = "second-access",
    /// None: only stragglers bring files into the cache.
    Stragglers = "stragglers",
}

choice! {
    /// Which files PREFETCH expects to be read next, most likely first (the paper's prediction).
    Prediction, "a prediction":
    /// Those accessed last, as in the paper.
    Recency = "recency",
    /// Those accessed most often, and of equal ones those accessed last.
    Frequency = "frequency",
}

/// What to do at an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// The parity is cached.
    Cached,
    /// The reader should make the parity and cache it.
    ShouldCache,
    /// The reader should not.
    ShouldNotCache,
}

/// Why a file is not cached that should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decline {
    /// It needs more than the whole cache.
    TooLarge,
    /// What may be evicted is not enough.
    NothingEvictable,
}

/// The outcome of an access.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Update {
    /// Only the access was recorded.
    Recorded,
    /// The file is now cached instead of these.
    Cached {
        /// The paper's E.
        evicted: Vec<File>,
    },
    /// The file is not cached, and nothing was evicted.
    Declined(Decline),
}

/// Settings of the algorithm.
#[derive(Clone, Copy, Debug)]
pub struct CsacSettings {
    /// Blocks of the cache: the paper's T.
    pub total_blocks: u64,
    /// Which files are cached while there is no straggler.
    pub admission: Admission,
    /// Which file is evicted.
    pub eviction: Eviction,
    /// Which files are prefetched first.
    pub prediction: Prediction,
    /// Most files whose accesses are remembered.
    pub history_files_max: usize,
    /// Most nodes that these name together.
    pub history_nodes_max: usize,
}

impl CsacSettings {
    /// SAC of the paper's conference version: CSAC with cache-upon-access and LRU, and without prefetch, which is the
    /// caller's to ask for.
    pub fn sac(total_blocks: u64) -> Self {
        Self::new(total_blocks, Eviction::Lru)
    }

    /// Cache-upon-access with this eviction.
    pub fn new(total_blocks: u64, eviction: Eviction) -> Self {
        Self {
            total_blocks,
            admission: Admission::OnAccess,
            eviction,
            prediction: Prediction::Recency,
            history_files_max: 1 << 16,
            history_nodes_max: 1 << 22,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    blocks: u64,
    /// Must not be evicted.
    held: bool,
}

/// The state of the cache.
#[derive(Clone, Debug)]
pub struct Csac {
    settings: CsacSettings,
    /// The paper's A.
    available: u64,
    /// The paper's S.
    stragglers: Set<Node>,
    entries: Map<File, Entry>,
    order: Order,
    history: History,
}

impl Csac {
    /// An empty cache.
    pub fn new(settings: CsacSettings) -> Self {
        Self {
            settings,
            available: settings.total_blocks,
            stragglers: set(),
            entries: map(),
            order: Order::new(settings.eviction, settings.total_blocks),
            history: History::new(settings.history_files_max, settings.history_nodes_max),
        }
    }

    /// Replaces the list of stragglers. Returns whether it has a new one: then `prefetch` may be asked.
    pub fn set_stragglers(&mut self, stragglers: impl IntoIterator<Item = Node>) -> bool {
        let now: Set<Node> = stragglers.into_iter().collect();
        let is_new = now.iter().any(|node| !self.stragglers.contains(node));
        self.stragglers = now;
        is_new
    }

    /// Whether a straggler holds a unit of a file with these nodes.
    pub fn is_affected(&self, nodes: &[Node]) -> bool {
        !self.stragglers.is_empty() && nodes.iter().any(|node| self.stragglers.contains(node))
    }

    /// QUERY: what to do at an access to a file with units at these nodes.
    pub fn query(&self, file: File, nodes: &[Node]) -> Decision {
        if self.entries.contains_key(&file) {
            return Decision::Cached;
        }
        let admits = match self.settings.admission {
            Admission::OnAccess => true,
            Admission::SecondAccess => self.history.past(file).is_some(),
            Admission::Stragglers => false,
        };
        if admits && self.stragglers.is_empty() || self.is_affected(nodes) {
            Decision::ShouldCache
        } else {
            Decision::ShouldNotCache
        }
    }

    /// UPDATE: records the access, and makes room for a file of `blocks` that should be cached.
    pub fn update(&mut self, file: File, nodes: &[Node], blocks: u64, decision: Decision) -> Update {
        let count = self.history.record(file, nodes, blocks);
        if self.entries.contains_key(&file) {
            self.order.on_access(file, count);
            return Update::Recorded;
        }
        if decision != Decision::ShouldCache {
            return Update::Recorded;
        }
        self.admit(file, blocks, count)
    }

    /// Makes room for a file that PREFETCH named: as UPDATE, but nobody has accessed the file.
    pub fn update_prefetched(&mut self, file: File, blocks: u64) -> Update {
        if self.entries.contains_key(&file) {
            return Update::Recorded;
        }
        let count = self.history.past(file).map_or(0, |past| past.count);
        self.admit(file, blocks, count)
    }

    fn admit(&mut self, file: File, blocks: u64, count: u64) -> Update {
        if blocks > self.settings.total_blocks {
            return Update::Declined(Decline::TooLarge);
        }
        let need = blocks.saturating_sub(self.available);
        let may_go = |file: File| self.entries.get(&file).is_some_and(|entry| !entry.held);
        let Some(plan) = self.order.plan(file, blocks, need, may_go) else {
            return Update::Declined(Decline::NothingEvictable);
        };
        self.order.replace(&plan, file, blocks, count);
        for victim in &plan.victims {
            self.available += self.entries.remove(victim).map_or(0, |entry| entry.blocks);
        }
        self.take(file, blocks);
        Update::Cached { evicted: plan.victims }
    }

    /// Caches a file of `blocks` if there is room without evicting, as the write path does (§4.2). Returns whether
    /// there was.
    pub fn reserve(&mut self, file: File, blocks: u64) -> bool {
        if blocks > self.available || self.entries.contains_key(&file) {
            return false;
        }
        // Nothing is needed, so there is always a plan.
        if let Some(plan) = self.order.plan(file, blocks, 0, |_| false) {
            self.order.replace(&plan, file, blocks, 1);
        }
        self.take(file, blocks);
        true
    }

    fn take(&mut self, file: File, blocks: u64) {
        assert!(blocks <= self.available, "{blocks} blocks of {}", self.available);
        self.available -= blocks;
        self.entries.insert(file, Entry { blocks, held: false });
    }

    /// Forbids or allows that a cached file is evicted.
    pub fn hold(&mut self, file: File, held: bool) {
        if let Some(entry) = self.entries.get_mut(&file) {
            entry.held = held;
        }
    }

    /// Gives back what a file did not need of its reservation.
    pub fn shrink(&mut self, file: File, blocks: u64) {
        if let Some(entry) = self.entries.get_mut(&file)
            && blocks < entry.blocks
        {
            self.available += entry.blocks - blocks;
            entry.blocks = blocks;
            self.order.resize(file, blocks);
        }
    }

    /// Removes a file that must no longer be cached. Returns whether it was.
    pub fn remove(&mut self, file: File) -> bool {
        let Some(entry) = self.entries.remove(&file) else {
            return false;
        };
        self.available += entry.blocks;
        self.order.remove(file);
        true
    }

    /// Halves the numbers of accesses, so that files that were read often once do not stay for ever.
    pub fn age(&mut self) {
        self.history.age();
        self.order.age();
    }

    /// Forgets a file that no longer exists.
    pub fn forget(&mut self, file: File) {
        self.remove(file);
        self.order.remove(file);
        self.history.forget(file);
    }

    /// PREFETCH: the files whose parity should be cached now, in the order of the prediction, with together at most
    /// `theta_percent` of the cache. A file that does not fit is skipped.
    pub fn prefetch(&self, theta_percent: u8) -> Vec<File> {
        let most = self.settings.total_blocks / 100 * u64::from(theta_percent)
            + self.settings.total_blocks % 100 * u64::from(theta_percent) / 100;
        let recent = self.history.recent();
        let mut predicted: Vec<(File, &Past)> = recent
            .filter(|(file, past)| self.is_affected(&past.nodes) && !self.entries.contains_key(file))
            .collect();
        if self.settings.prediction == Prediction::Frequency {
            // Stable: of equal ones the last accessed stays first.
            predicted.sort_by_key(|(_, past)| Reverse(past.count));
        }
        let mut blocks = 0;
        predicted.retain(|(_, past)| {
            let fits = blocks + past.blocks <= most;
            blocks += if fits { past.blocks } else { 0 };
            fits
        });
        predicted.into_iter().map(|(file, _)| file).collect()
    }

    /// Whether PREFETCH would still name the file.
    pub fn is_worth_prefetching(&self, file: File) -> bool {
        let past = self.history.past(file);
        !self.entries.contains_key(&file) && past.is_some_and(|past| self.is_affected(&past.nodes))
    }

    /// Whether the file's blocks are in the cache or reserved.
    pub fn contains(&self, file: File) -> bool {
        self.entries.contains_key(&file)
    }

    /// Blocks in use.
    pub fn used_blocks(&self) -> u64 {
        self.settings.total_blocks - self.available
    }

    /// Blocks of the cache.
    pub fn total_blocks(&self) -> u64 {
        self.settings.total_blocks
    }

    /// The list of stragglers, in no order.
    pub fn stragglers(&self) -> impl Iterator<Item = Node> {
        self.stragglers.iter().copied()
    }
}

#[cfg(test)]
mod tests;
