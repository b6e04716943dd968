//! The order in which cached files are evicted: least recently used, least frequently used, or ARC (Megiddo and Modha,
//! FAST'03), here with sizes: all lengths of lists are sums of blocks.

use crate::File;
use crate::choice::choice;
use paritas_base::{Map, map};
use std::collections::{BTreeMap, BTreeSet};

choice! {
    /// Which file is evicted (the paper's G_e).
    Eviction, "an eviction":
    /// The least recently used.
    Lru = "lru",
    /// The least frequently used. Accesses from before the file was cached count too.
    Lfu = "lfu",
    /// By recency and frequency, with a balance that adapts.
    Arc = "arc",
}

/// The cached files in the order of eviction.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    Sorted(Sorted),
    Arc(Arc),
}

/// The files that make room for one file, and ARC's balance after that.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) victims: Vec<File>,
    /// ARC's p; otherwise 0.
    recent_target: u64,
}

impl Order {
    pub(crate) fn new(eviction: Eviction, total_blocks: u64) -> Self {
        match eviction {
            Eviction::Lru => Self::Sorted(Sorted::new(false)),
            Eviction::Lfu => Self::Sorted(Sorted::new(true)),
            Eviction::Arc => Self::Arc(Arc::new(total_blocks)),
        }
    }

    /// A cached file is accessed for the `count`th time.
    pub(crate) fn on_access(&mut self, file: File, count: u64) {
        match self {
            Self::Sorted(sorted) => sorted.on_access(file, count),
            Self::Arc(arc) => arc.on_access(file),
        }
    }

    /// Halves the numbers of accesses.
    pub(crate) fn age(&mut self) {
        match self {
            Self::Sorted(sorted) => sorted.age(),
            // It goes by recency.
            Self::Arc(_) => {}
        }
    }

    /// Which files to evict so that `need` blocks become free for `file`, which takes `blocks`. `None` if the files
    /// for which `may_go` holds do not suffice.
    pub(crate) fn plan(&self, file: File, blocks: u64, need: u64, may_go: impl Fn(File) -> bool) -> Option<Plan> {
        match self {
            Self::Sorted(sorted) => sorted.plan(need, may_go),
            Self::Arc(arc) => arc.plan(file, blocks, need, may_go),
        }
    }

    /// Carries out a plan: the victims go, the file comes.
    pub(crate) fn replace(&mut self, plan: &Plan, file: File, blocks: u64, count: u64) {
        match self {
            Self::Sorted(sorted) => {
                for victim in &plan.victims {
                    sorted.remove(*victim);
                }
                sorted.insert(file, blocks, count);
            }
            Self::Arc(arc) => arc.replace(plan, file, blocks),
        }
    }

    /// The file gets other blocks than it was cached with.
    pub(crate) fn resize(&mut self, file: File, blocks: u64) {
        match self {
            Self::Sorted(sorted) => {
                if let Some(place) = sorted.places.get_mut(&file) {
                    place.blocks = blocks;
                }
            }
            Self::Arc(arc) => arc.resize(file, blocks),
        }
    }

    /// The file goes for another reason than eviction.
    pub(crate) fn remove(&mut self, file: File) {
        match self {
            Self::Sorted(sorted) => sorted.remove(file),
            Self::Arc(arc) => arc.forget(file),
        }
    }
}

/// LRU and LFU: files sorted by number of accesses (only LFU) and then by the last access.
#[derive(Clone, Debug)]
pub(crate) struct Sorted {
    by_frequency: bool,
    order: BTreeSet<(u64, u64, File)>,
    places: Map<File, Place>,
    next_stamp: u64,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    count: u64,
    stamp: u64,
    blocks: u64,
}

impl Sorted {
    fn new(by_frequency: bool) -> Self {
        Self {
            by_frequency,
            order: BTreeSet::new(),
            places: map(),
            next_stamp: 0,
        }
    }

    fn insert(&mut self, file: File, blocks: u64, count: u64) {
        self.remove(file);
        let count = if self.by_frequency { count } else { 0 };
        let stamp = self.next_stamp;
        self.next_stamp += 1;
        self.order.insert((count, stamp, file));
        self.places.insert(file, Place { count, stamp, blocks });
    }

    fn on_access(&mut self, file: File, count: u64) {
        if let Some(place) = self.places.get(&file).copied() {
            // The history may have forgotten a file that is still cached. Its count must not fall then.
            self.insert(file, place.blocks, count.max(place.count + 1));
        }
    }

    fn age(&mut self) {
        for (file, place) in &mut self.places {
            self.order.remove(&(place.count, place.stamp, *file));
            place.count /= 2;
            self.order.insert((place.count, place.stamp, *file));
        }
    }

    fn remove(&mut self, file: File) {
        if let Some(place) = self.places.remove(&file) {
            self.order.remove(&(place.count, place.stamp, file));
        }
    }

    fn plan(&self, need: u64, may_go: impl Fn(File) -> bool) -> Option<Plan> {
        let (mut victims, mut freed) = (Vec::new(), 0);
        let mut candidates = self.order.iter().map(|(_, _, file)| *file).filter(|file| may_go(*file));
        while freed < need {
            let victim = candidates.next()?;
            freed += self.places.get(&victim).map_or(0, |place| place.blocks);
            victims.push(victim);
        }
        Some(Plan {
            victims,
            recent_target: 0,
        })
    }
}

/// ARC's four lists. The ghosts (the paper's B1, B2) are files that were evicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum List {
    /// T1: accessed once since they came.
    Recent,
    /// T2: accessed more often.
    Frequent,
    /// B1: evicted from T1.
    RecentGhosts,
    /// B2: evicted from T2.
    FrequentGhosts,
}

#[derive(Clone, Debug)]
pub(crate) struct Arc {
    /// c: blocks of the cache.
    total: u64,
    /// p: blocks that T1 should have.
    recent_target: u64,
    /// Files of each list, the least recently used first.
    lists: [BTreeMap<u64, File>; 4],
    /// Blocks of each list.
    blocks: [u64; 4],
    places: Map<File, (List, u64, u64)>,
    next_stamp: u64,
}

impl Arc {
    fn new(total: u64) -> Self {
        Self {
            total,
            recent_target: 0,
            lists: Default::default(),
            blocks: [0; 4],
            places: map(),
            next_stamp: 0,
        }
    }

    fn blocks_of(&self, list: List) -> u64 {
        self.blocks[list as usize]
    }

    fn forget(&mut self, file: File) {
        if let Some((list, stamp, blocks)) = self.places.remove(&file) {
            self.lists[list as usize].remove(&stamp);
            self.blocks[list as usize] -= blocks;
        }
    }

    fn put(&mut self, file: File, list: List, blocks: u64) {
        self.forget(file);
        let stamp = self.next_stamp;
        self.next_stamp += 1;
        self.lists[list as usize].insert(stamp, file);
        self.blocks[list as usize] += blocks;
        self.places.insert(file, (list, stamp, blocks));
    }

    fn on_access(&mut self, file: File) {
        if let Some((List::Recent | List::Frequent, _, blocks)) = self.places.get(&file).copied() {
            self.put(file, List::Frequent, blocks);
        }
    }

    fn resize(&mut self, file: File, blocks: u64) {
        if let Some((list, _, old)) = self.places.get_mut(&file) {
            let list = *list as usize;
            self.blocks[list] = self.blocks[list] - *old + blocks;
            *old = blocks;
        }
    }

    /// p after a hit of a ghost.
    fn adapted(&self, file: File, blocks: u64) -> u64 {
        let (recent, frequent) = (self.blocks_of(List::RecentGhosts), self.blocks_of(List::FrequentGhosts));
        match self.places.get(&file) {
            Some((List::RecentGhosts, ..)) => {
                let step = (frequent / recent.max(1)).max(1).saturating_mul(blocks);
                self.recent_target.saturating_add(step).min(self.total)
            }
            Some((List::FrequentGhosts, ..)) => {
                let step = (recent / frequent.max(1)).max(1).saturating_mul(blocks);
                self.recent_target.saturating_sub(step)
            }
            _ => self.recent_target,
        }
    }

    fn plan(&self, file: File, blocks: u64, need: u64, may_go: impl Fn(File) -> bool) -> Option<Plan> {
        let recent_target = self.adapted(file, blocks);
        let was_frequent = matches!(self.places.get(&file), Some((List::FrequentGhosts, ..)));
        let candidates = |list: List| self.lists[list as usize].values().copied().filter(|file| may_go(*file));
        let (mut recent, mut frequent) = (
            candidates(List::Recent).peekable(),
            candidates(List::Frequent).peekable(),
        );
        let mut recent_blocks = self.blocks_of(List::Recent);
        let (mut victims, mut freed) = (Vec::new(), 0);
        while freed < need {
            // ARC's REPLACE.
            let above = recent_blocks > recent_target || (was_frequent && recent_blocks == recent_target);
            let from_recent = recent.peek().is_some() && (above || frequent.peek().is_none());
            let victim = if from_recent { recent.next() } else { frequent.next() }?;
            let size = self.places.get(&victim).map_or(0, |place| place.2);
            if from_recent {
                recent_blocks -= size;
            }
            freed += size;
            victims.push(victim);
        }
        Some(Plan { victims, recent_target })
    }

    fn replace(&mut self, plan: &Plan, file: File, blocks: u64) {
        self.recent_target = plan.recent_target;
        for victim in &plan.victims {
            match self.places.get(victim).copied() {
                Some((List::Recent, _, size)) => self.put(*victim, List::RecentGhosts, size),
                Some((_, _, size)) => self.put(*victim, List::FrequentGhosts, size),
                None => {}
            }
        }
        let list = match self.places.get(&file) {
            None => List::Recent,
            Some(_) => List::Frequent,
        };
        self.put(file, list, blocks);
        while self.blocks_of(List::Recent) + self.blocks_of(List::RecentGhosts) > self.total {
            if !self.drop_oldest(List::RecentGhosts) {
                break;
            }
        }
        while self.blocks.iter().sum::<u64>() > 2 * self.total {
            if !self.drop_oldest(List::FrequentGhosts) && !self.drop_oldest(List::RecentGhosts) {
                break;
            }
        }
    }

    fn drop_oldest(&mut self, list: List) -> bool {
        let oldest = self.lists[list as usize].first_key_value().map(|(_, file)| *file);
        oldest.map(|file| self.forget(file)).is_some()
    }
}
