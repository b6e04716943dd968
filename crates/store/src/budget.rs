//! Decides who may take a chunk, of a shard's memory and of a log node's disk alike (P8.7, P8.8).
//!
//! [`Budget::available`] is the only admission test. Only [`Budget::reserve`], [`Budget::unreserve`],
//! [`Budget::take`] and [`Budget::give`] change what is used and reserved. All figures are chunks.

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

/// The part of a budget that a chunk is taken from or given back to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Chunks that are neither used nor reserved.
    Free,
    /// Chunks promised by [`Budget::reserve`].
    Reserved,
}

/// The chunks of one memory or of one disk: how many exist, are used and are reserved.
#[derive(Clone, Debug)]
pub struct Budget {
    on_disk: bool,
    /// Chunks that exist.
    capacity: u32,
    /// Chunks that writers may fill. The rest of a memory is for tables, rings and buffers.
    limit: u32,
    /// Chunks that neither writers nor background work may take. Data positions that are being rebuilt serve commands
    /// with them.
    headroom: u32,
    /// Chunks in use.
    used: u32,
    /// Chunks promised and not used.
    reserved: u32,
    /// Chunks still to be rebuilt and not reserved.
    backlog: u32,
}

/// Writers may not have this part of a disk, an eighth. It is for positions that still refill when others of a
/// restarted node serve already.
const DISK_REFILL_PART: u32 = 8;
/// Headroom is at most this part of the capacity, a quarter.
const HEADROOM_PART: u32 = 4;

impl Budget {
    /// The budget of a memory of `capacity` chunks. Writers may fill all of it until [`Self::set_limit`] is called.
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

    /// The budget of a disk of `capacity` chunks. Writers may fill seven eighths of it.
    pub fn of_disk(capacity: u32) -> Self {
        Self {
            on_disk: true,
            limit: capacity - capacity / DISK_REFILL_PART,
            ..Self::of_memory(capacity)
        }
    }

    /// Chunks that may still be taken for this purpose. Background work begins another chunk only if this exceeds the
    /// number of chunks in flight.
    #[inline]
    pub fn available(&self, purpose: Purpose) -> u32 {
        let spent = u64::from(self.used) + u64::from(self.reserved);
        let (most, spent) = match (purpose, self.on_disk) {
            (Purpose::Write, _) | (Purpose::StandIn, true) => (self.limit, spent + u64::from(self.backlog)),
            (Purpose::StandIn, false) => (self.limit, spent),
            (Purpose::Rebuild, false) => (self.capacity - self.headroom, spent),
            (Purpose::Demand, false) => (self.capacity, spent),
            // A refill on a disk always begins. Without it the list survives one loss less, and promises may never be
            // used.
            (Purpose::Rebuild, true) => (u32::MAX, 0),
            (Purpose::Demand, true) => (self.capacity, u64::from(self.used)),
        };
        u64::from(most).saturating_sub(spent) as u32
    }

    /// Chunks that are neither used nor promised, and that no rebuild needs.
    pub fn unclaimed(&self) -> u32 {
        let claimed = u64::from(self.used) + u64::from(self.reserved) + u64::from(self.backlog);
        u64::from(self.capacity).saturating_sub(claimed) as u32
    }

    /// Whether more is used and reserved than writers may fill.
    pub fn is_over(&self) -> bool {
        u64::from(self.used) + u64::from(self.reserved) > u64::from(self.limit)
    }

    /// Promises `count` more chunks. Up to `of_backlog` of them leave the backlog; writers must be allowed to have the
    /// others. False, and nothing done, if they are not.
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

    /// Uses one chunk more. False, and nothing done, if this part has none. A promised chunk is never refused, even if
    /// refills have used the whole disk.
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

    /// Gives back `count` used chunks. With [`Part::Reserved`] they stay promised.
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

    /// Sets how many chunks are still to be rebuilt and not reserved. Writers may not have them.
    pub fn set_backlog(&mut self, chunks: u32) {
        self.backlog = chunks;
    }

    /// Chunks that exist.
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

    /// Chunks in use.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Chunks promised and not used.
    pub fn reserved(&self) -> u32 {
        self.reserved
    }

    /// Chunks still to be rebuilt and not reserved.
    pub fn backlog(&self) -> u32 {
        self.backlog
    }

    /// A memory never promises more than it has. A disk may: a refill may use chunks that were promised to others.
    #[inline]
    fn check(&self) {
        let spent = u64::from(self.used) + u64::from(self.reserved);
        assert!(
            self.on_disk || spent <= u64::from(self.capacity),
            "overcommitted: {self:?}"
        );
    }
}
