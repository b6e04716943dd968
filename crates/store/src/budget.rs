//! Who may take a chunk: the one place where room is decided, for a shard's memory and for a log node's disk alike
//! (PROTOCOL 8.2, 8.3, 10.5).
//!
//! [`Budget::available`] is the only question. [`Budget::reserve`], [`Budget::unreserve`], [`Budget::take`] and
//! [`Budget::give`] are the only changes of what is held. All figures are chunks.

#[cfg(test)]
mod tests;

/// What a chunk is wanted for. Each purpose has its own limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A new chunk of an owner, growth of its index, an import, or a promise to a stream's owner.
    Write,
    /// Background work of a position that was not planned on this node.
    StandIn,
    /// Background work of a position that was planned on this node.
    Rebuild,
    /// A command or a peer waits for the chunk.
    Demand,
}

/// Where a chunk that is taken comes from, and where one that is given back goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// What nobody was promised.
    Free,
    /// What was promised by [`Budget::reserve`].
    Reserved,
}

/// The chunks of one memory or one disk: how many there are, and what they are used and promised for.
#[derive(Clone, Debug)]
pub struct Budget {
    on_disk: bool,
    /// Chunks that there are.
    capacity: u32,
    /// Chunks of them that writers may fill. The rest of a memory is for tables, rings and buffers.
    limit: u32,
    /// Chunks of the capacity that neither writers nor background work may take: data positions that are being rebuilt
    /// serve commands with them.
    headroom: u32,
    /// Chunks that hold something.
    used: u32,
    /// Chunks promised and not used.
    reserved: u32,
    /// Chunks still to be rebuilt that nothing is reserved for.
    backlog: u32,
}

/// One in so many chunks of a disk is not for writers: positions that began first on a node that was started again
/// leave it to those that still refill.
const DISK_REFILL_PART: u32 = 8;
/// Headroom is at most one in so many chunks.
const HEADROOM_PART: u32 = 4;

impl Budget {
    /// Of a memory of so many chunks, all of which writers may fill until [`Self::set_limit`] says otherwise.
    pub fn of_memory(capacity: u32) -> Self {
        Self {
            on_disk: false,
            capacity,
            limit: capacity,
            headroom: 0,
            used: 0,
            reserved: 0,
            backlog: 0,
        }
    }

    /// Of a disk of so many chunks, seven eighths of which writers may fill.
    pub fn of_disk(capacity: u32) -> Self {
        Self {
            on_disk: true,
            limit: capacity - capacity / DISK_REFILL_PART,
            ..Self::of_memory(capacity)
        }
    }

    /// Chunks that may still be taken for this purpose. Background work begins a chunk if they are more than are
    /// under way.
    #[inline]
    pub fn available(&self, purpose: Purpose) -> u32 {
        let spent = u64::from(self.used) + u64::from(self.reserved);
        let (most, spent) = match (purpose, self.on_disk) {
            (Purpose::Write, _) | (Purpose::StandIn, true) => (self.limit, spent + u64::from(self.backlog)),
            (Purpose::StandIn, false) => (self.limit, spent),
            (Purpose::Rebuild, false) => (self.capacity - self.headroom, spent),
            (Purpose::Demand, false) => (self.capacity, spent),
            // A refill begins whatever is promised: without it a list is a loss nearer to its own, and promises may
            // never be used.
            (Purpose::Rebuild, true) => (u32::MAX, 0),
            (Purpose::Demand, true) => (self.capacity, u64::from(self.used)),
        };
        u64::from(most).saturating_sub(spent) as u32
    }

    /// Whether more is used and reserved than writers may fill.
    pub fn is_over(&self) -> bool {
        u64::from(self.used) + u64::from(self.reserved) > u64::from(self.limit)
    }

    /// Promises `count` more chunks, of which `of_backlog` are to be rebuilt anyway and leave the backlog. False, and
    /// nothing done, if writers may not have the others.
    pub fn reserve(&mut self, count: u32, of_backlog: u32) -> bool {
        let of_backlog = count.min(of_backlog).min(self.backlog);
        let exists = self.on_disk || count <= self.available(Purpose::Demand);
        let fits = exists && count - of_backlog <= self.available(Purpose::Write);
        if fits {
            self.reserved += count;
            self.backlog -= of_backlog;
        }
        self.check();
        fits
    }

    /// Takes a promise back.
    pub fn unreserve(&mut self, count: u32) {
        assert!(count <= self.reserved, "{count} chunks unreserved of {self:?}");
        self.reserved -= count;
    }

    /// One chunk more is used. False, and nothing done, if there is none. What was promised is never refused, on a
    /// disk not even when refills have used all of it.
    #[inline]
    pub fn take(&mut self, from: Part) -> bool {
        let may = match from {
            Part::Free => self.available(Purpose::Demand) > 0,
            Part::Reserved => self.reserved > 0,
        };
        if may {
            self.used += 1;
            self.reserved -= u32::from(from == Part::Reserved);
        }
        self.check();
        may
    }

    /// `count` chunks are used no more. With [`Part::Reserved`] they stay promised.
    #[inline]
    pub fn give(&mut self, count: u32, to: Part) {
        assert!(count <= self.used, "{count} chunks given back of {self:?}");
        self.used -= count;
        if to == Part::Reserved {
            self.reserved += count;
        }
        self.check();
    }

    /// Sets how many chunks writers may fill.
    pub fn set_limit(&mut self, chunks: u32) {
        self.limit = chunks.min(self.capacity);
    }

    /// The highest limit that leaves the headroom to others.
    pub fn limit_max(&self) -> u32 {
        self.capacity - self.headroom
    }

    /// Sets how many chunks neither writers nor background work may take, at most a quarter of all.
    pub fn set_headroom(&mut self, chunks: u32) {
        self.headroom = chunks.min(self.capacity / HEADROOM_PART);
    }

    /// Sets how many chunks are still to be rebuilt that nothing is reserved for: writers may not have those.
    pub fn set_backlog(&mut self, chunks: u32) {
        self.backlog = chunks;
    }

    /// Chunks that there are.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Chunks that writers may fill.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Chunks that neither writers nor background work may take.
    pub fn headroom(&self) -> u32 {
        self.headroom
    }

    /// Chunks that hold something.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Chunks promised and not used.
    pub fn reserved(&self) -> u32 {
        self.reserved
    }

    /// Chunks still to be rebuilt that nothing is reserved for.
    pub fn backlog(&self) -> u32 {
        self.backlog
    }

    /// A disk alone may promise more than it has: a refill may use promises that may never be called in.
    #[inline]
    fn check(&self) {
        let spent = u64::from(self.used) + u64::from(self.reserved);
        assert!(
            self.on_disk || spent <= u64::from(self.capacity),
            "overcommitted: {self:?}"
        );
    }
}
