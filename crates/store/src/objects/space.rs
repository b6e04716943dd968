//! The use of each data chunk, and its number of live bytes.
//!
//! All of this can be computed from index and chunks. It is not protected by parity, and is computed again after a
//! takeover.

use crate::Chunks;
use crate::chunks::grow_table;
use crate::object::Head;
use paritas_base::{ALL_DATABASES, Stripe, Version};

/// Most open chunks at a time.
pub(super) const OPEN_MAX: usize = 4;
/// Number of data chunks for each open one.
const CHUNKS_PER_OPEN: u32 = 256;

/// The use of a data chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Use {
    /// All zeros, without memory.
    Zeros,
    /// New objects are appended to it.
    Open,
    /// It has no space left, or too little to be useful.
    Closed,
    /// Nothing in it is live. New objects are written over its old bytes.
    Free,
    /// After a takeover: its number of live bytes is not yet known. It counts as full.
    Unknown,
    /// It is absent and nothing in it is live. It becomes free once it is resident.
    Dead,
}

/// A chunk's use and its number of live bytes, packed because there is one entry for every chunk.
#[derive(Clone, Copy, Debug)]
struct Info(u32);

impl Info {
    const LIVE_BITS: u32 = 24;

    fn new(used: Use, live: u32) -> Self {
        Self((used as u32) << Self::LIVE_BITS | live)
    }

    fn used(self) -> Use {
        const ALL: [Use; 6] = [Use::Zeros, Use::Open, Use::Closed, Use::Free, Use::Unknown, Use::Dead];
        ALL[(self.0 >> Self::LIVE_BITS) as usize]
    }

    fn live(self) -> u32 {
        self.0 & ((1 << Self::LIVE_BITS) - 1)
    }

    fn set_used(&mut self, used: Use) {
        *self = Self::new(used, self.live());
    }

    fn set_live(&mut self, live: u32) {
        *self = Self::new(self.used(), live);
    }
}

/// An open chunk. The next object is written at `offset`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Open {
    pub number: u32,
    pub offset: u32,
}

/// Dead bytes, and all bytes that ever died except those moved by compaction, at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    pub dead: u64,
    pub died: u64,
}

/// Keys of a database.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Keys {
    /// Their number. Expired keys that are not yet deleted are included.
    pub count: u64,
    /// The number of those with an expiry.
    pub expiring: u64,
}

/// What is counted of an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    pub database: u8,
    pub user_bytes: u64,
    pub expires: bool,
}

impl Counted {
    pub(super) fn of(head: &Head) -> Self {
        Self {
            database: head.database(),
            user_bytes: head.user_bytes(),
            expires: head.has_expiry(),
        }
    }
}

#[derive(Debug)]
pub(super) struct Space {
    chunk_bytes: u32,
    info: Vec<Info>,
    pub open: Vec<Open>,
    /// Numbers of the chunks in `Use::Free`, used last in, first out.
    pub free: Vec<u32>,
    /// Chunk numbers below `info.len()` in `Use::Zeros`.
    pub zeros: Vec<u32>,
    /// Live bytes of open and closed chunks.
    pub live_bytes: u64,
    /// Number of open and closed chunks.
    used_count: u32,
    unknown_count: u32,
    /// Bytes of live keys and values in open and closed chunks. `expiring` is the number of their objects with an
    /// expiry.
    pub user_bytes: u64,
    expiring: u64,
    /// The objects of each database, as above.
    by_database: [Keys; ALL_DATABASES as usize],
    /// The chunk that compaction is emptying, and the offset it has reached.
    pub victim: Option<(u32, u32)>,
    /// Counters when that chunk was chosen. `dead_floor` is the number of dead bytes at which compaction is tried
    /// again.
    pub before: Option<Before>,
    pub dead_floor: u64,
    /// Bytes that ever died, including those that compaction moved.
    pub died_bytes: u64,
    /// Where the search for chunks in `Use::Unknown` continues.
    pub recount_next: u32,
    /// Bytes of objects that compaction has moved.
    pub moved_bytes: u64,
}

impl Space {
    pub(super) fn new(chunk_bytes: usize) -> Self {
        Self {
            chunk_bytes: chunk_bytes as u32,
            info: Vec::new(),
            open: Vec::new(),
            free: Vec::new(),
            zeros: Vec::new(),
            live_bytes: 0,
            used_count: 0,
            unknown_count: 0,
            user_bytes: 0,
            expiring: 0,
            by_database: [Keys::default(); ALL_DATABASES as usize],
            victim: None,
            before: None,
            dead_floor: 0,
            died_bytes: 0,
            recount_next: 0,
            moved_bytes: 0,
        }
    }

    /// Sets up the table after a takeover, from the chunks that exist.
    pub(super) fn learn(&mut self, chunks: &Chunks) {
        *self = Self::new(self.chunk_bytes as usize);
        for number in 0..chunks.end(false) {
            let used = if chunks.version(Stripe::data(number)) == Version::ZERO {
                self.zeros.push(number);
                Use::Zeros
            } else {
                self.unknown_count += 1;
                Use::Unknown
            };
            self.info.push(Info::new(used, 0));
        }
        // Low numbers are used first.
        self.zeros.reverse();
    }

    /// One more than the highest number that was ever used.
    pub(super) fn end(&self) -> u32 {
        self.info.len() as u32
    }

    pub(super) fn used(&self, number: u32) -> Use {
        self.info.get(number as usize).map_or(Use::Zeros, |info| info.used())
    }

    /// Number of open chunks allowed. More than one only where they are a small part of all chunks.
    pub(super) fn open_max(&self) -> usize {
        ((self.used_count / CHUNKS_PER_OPEN) as usize).clamp(1, OPEN_MAX)
    }

    /// Records that a chunk has become resident.
    pub(super) fn installed(&mut self, number: u32, zeros: bool) {
        let Some(info) = self.info.get_mut(number as usize) else {
            return;
        };
        match info.used() {
            Use::Dead if !zeros => {
                info.set_used(Use::Free);
                self.free.push(number);
            }
            Use::Dead => {
                info.set_used(Use::Zeros);
                self.zeros.push(number);
            }
            Use::Unknown if zeros => {
                info.set_used(Use::Zeros);
                self.unknown_count -= 1;
                self.zeros.push(number);
            }
            _ => {}
        }
    }

    /// Records that a chunk is no longer resident. It counts as full and takes no more objects. Returns its number of
    /// live bytes, for [`recounted`](Self::recounted) once it is resident again.
    pub(super) fn set_aside(&mut self, number: u32) -> u32 {
        let live = match self.used(number) {
            Use::Free => {
                self.free.retain(|n| *n != number);
                self.info[number as usize].set_used(Use::Dead);
                return 0;
            }
            Use::Open | Use::Closed => self.info[number as usize].live(),
            Use::Zeros | Use::Unknown | Use::Dead => return 0,
        };
        self.open.retain(|open| open.number != number);
        if self.victim.is_some_and(|(victim, _)| victim == number) {
            self.victim = None;
        }
        self.info[number as usize] = Info::new(Use::Unknown, 0);
        self.live_bytes -= u64::from(live);
        self.used_count -= 1;
        self.unknown_count += 1;
        live
    }

    /// The `nth` number that a new chunk would get: free chunks first, then zeros, then new numbers.
    pub(super) fn fresh(&self, nth: usize) -> u32 {
        if let Some(at) = self.free.len().checked_sub(nth + 1) {
            return self.free[at];
        }
        let nth = nth - self.free.len();
        if let Some(at) = self.zeros.len().checked_sub(nth + 1) {
            return self.zeros[at];
        }
        self.end() + (nth - self.zeros.len()) as u32
    }

    /// Takes the number that `fresh(0)` returns.
    pub(super) fn take_fresh(&mut self) -> u32 {
        let number = match self.free.pop().or_else(|| self.zeros.pop()) {
            Some(number) => number,
            None => {
                let length = self.info.len() + 1;
                grow_table(&mut self.info, length);
                self.info.push(Info::new(Use::Zeros, 0));
                self.end() - 1
            }
        };
        self.info[number as usize] = Info::new(Use::Closed, 0);
        self.used_count += 1;
        number
    }

    /// Opens a chunk that was just taken. If too many are open, the fullest is closed.
    pub(super) fn open(&mut self, number: u32, offset: u32) {
        while self.open.len() >= self.open_max() {
            let Some(at) = self.fullest() else { break };
            self.close(at);
        }
        self.info[number as usize].set_used(Use::Open);
        self.open.push(Open { number, offset });
    }

    /// Records that an open chunk is used up to `offset`.
    pub(super) fn advance(&mut self, number: u32, offset: u32) {
        if let Some(open) = self.open.iter_mut().find(|open| open.number == number) {
            open.offset = offset;
        }
    }

    /// The open chunk with the least free space.
    pub(super) fn fullest(&self) -> Option<usize> {
        (0..self.open.len()).max_by_key(|at| self.open[*at].offset)
    }

    pub(super) fn close(&mut self, at: usize) {
        let number = self.open.swap_remove(at).number;
        self.info[number as usize].set_used(Use::Closed);
        self.free_if_empty(number);
    }

    /// Counts bytes of a chunk as live.
    pub(super) fn add_live(&mut self, number: u32, bytes: u32) {
        let info = &mut self.info[number as usize];
        info.set_live(info.live() + bytes);
        self.live_bytes += u64::from(bytes);
    }

    /// Counts bytes of a chunk as dead. A chunk without live bytes becomes free.
    pub(super) fn sub_live(&mut self, number: u32, bytes: u32) {
        if !self.is_counted(number) {
            return;
        }
        let info = &mut self.info[number as usize];
        debug_assert!(info.live() >= bytes, "chunk {number} has fewer live bytes than die");
        let bytes = bytes.min(info.live());
        info.set_live(info.live() - bytes);
        self.died_bytes += u64::from(bytes);
        self.live_bytes -= u64::from(bytes);
        self.free_if_empty(number);
    }

    fn free_if_empty(&mut self, number: u32) {
        let info = &mut self.info[number as usize];
        if info.used() != Use::Closed || info.live() != 0 {
            return;
        }
        info.set_used(Use::Free);
        self.used_count -= 1;
        self.free.push(number);
        if self.victim.is_some_and(|(victim, _)| victim == number) {
            self.victim = None;
        }
    }

    /// Whether a chunk's number of live bytes is known.
    pub(super) fn is_counted(&self, number: u32) -> bool {
        matches!(self.used(number), Use::Open | Use::Closed)
    }

    /// Counts an object whose first piece is in chunk `number`: as added if `there`, else as removed.
    pub(super) fn count_object(&mut self, number: u32, object: Counted, there: bool) {
        if !self.is_counted(number) {
            return;
        }
        let expires = u64::from(object.expires);
        let of = &mut self.by_database[usize::from(object.database % ALL_DATABASES)];
        if there {
            self.user_bytes += object.user_bytes;
            self.expiring += expires;
            (of.count, of.expiring) = (of.count + 1, of.expiring + expires);
        } else {
            self.user_bytes = self.user_bytes.saturating_sub(object.user_bytes);
            self.expiring = self.expiring.saturating_sub(expires);
            (of.count, of.expiring) = (of.count.saturating_sub(1), of.expiring.saturating_sub(expires));
        }
    }

    /// The objects of each database in chunks that are counted. A chunk that is set aside stays counted: nothing in it
    /// can change.
    pub(super) const fn by_database(&self) -> &[Keys; ALL_DATABASES as usize] {
        &self.by_database
    }

    /// Sets the number of live bytes that a recount found in an unknown chunk.
    pub(super) fn recounted(&mut self, number: u32, live: u32) {
        debug_assert_eq!(self.used(number), Use::Unknown);
        self.info[number as usize] = Info::new(Use::Closed, live);
        self.unknown_count -= 1;
        self.used_count += 1;
        self.live_bytes += u64::from(live);
        self.free_if_empty(number);
    }

    /// Records that a chunk was read to its end and nothing in it is live.
    pub(super) fn nothing_live(&mut self, number: u32) {
        if self.used(number) == Use::Closed {
            self.sub_live(number, self.info[number as usize].live());
        }
    }

    /// Counts all bytes as dead (FLUSHALL).
    pub(super) fn all_dead(&mut self, chunks: &Chunks) {
        self.open.clear();
        self.victim = None;
        for number in 0..self.end() {
            let info = &mut self.info[number as usize];
            info.set_live(0);
            match info.used() {
                Use::Zeros | Use::Free | Use::Dead => {}
                Use::Unknown if chunks.slot(Stripe::data(number)).is_err() => {
                    info.set_used(Use::Dead);
                }
                _ => {
                    info.set_used(Use::Free);
                    self.free.push(number);
                }
            }
        }
        (self.live_bytes, self.user_bytes, self.expiring) = (0, 0, 0);
        self.by_database = [Keys::default(); ALL_DATABASES as usize];
        (self.used_count, self.unknown_count) = (0, 0);
    }

    /// Counts bytes of a chunk as live after all ([`Self::all_dead`]). The chunk takes no more objects.
    pub(super) fn revive(&mut self, number: u32, bytes: u32) {
        if self.used(number) == Use::Free {
            self.free.retain(|n| *n != number);
            self.info[number as usize].set_used(Use::Closed);
            self.used_count += 1;
        }
        self.add_live(number, bytes);
    }

    /// Records that a free chunk was returned to the arena. It is zeros now.
    pub(super) fn freed(&mut self, number: u32) {
        debug_assert_eq!(self.used(number), Use::Free);
        self.free.retain(|n| *n != number);
        self.info[number as usize].set_used(Use::Zeros);
        self.zeros.push(number);
    }

    pub(super) fn expiring(&self) -> u64 {
        self.expiring
    }

    pub(super) fn unknown_count(&self) -> u32 {
        self.unknown_count
    }

    pub(super) fn used_count(&self) -> u32 {
        self.used_count
    }

    pub(super) fn open_bytes(&self) -> u64 {
        let rests = self.open.iter().map(|o| self.chunk_bytes - o.offset);
        rests.map(u64::from).sum()
    }

    /// Bytes in used chunks that no object can use until they are compacted.
    pub(super) fn dead_bytes(&self) -> u64 {
        let used = u64::from(self.used_count) * u64::from(self.chunk_bytes);
        used - self.live_bytes - self.open_bytes()
    }

    /// The closed chunk with the fewest live bytes, if emptying it gains at least `gain` bytes.
    pub(super) fn emptiest(&self, gain: u32) -> Option<u32> {
        let most = self.chunk_bytes.saturating_sub(gain);
        let closed = self
            .info
            .iter()
            .enumerate()
            .filter(|(_, info)| info.used() == Use::Closed && info.live() <= most);
        closed
            .min_by_key(|(_, info)| info.live())
            .map(|(number, _)| number as u32)
    }

    pub(super) fn table_bytes(&self) -> u64 {
        let bytes = self.info.capacity() * size_of::<Info>()
            + self.open.capacity() * size_of::<Open>()
            + (self.free.capacity() + self.zeros.capacity()) * size_of::<u32>();
        bytes as u64
    }
}
