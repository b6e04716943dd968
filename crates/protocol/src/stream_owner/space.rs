//! Space for writes: it is reserved before a command of several changes, made by eviction and compaction if it is
//! short, and given back between commands.

use super::access::{Access, Stop, WriteRefusal};
use super::{Admission, Phase, StreamOwner};
use crate::context::Context;
use crate::interface::Out;
use crate::mark::Mark;
use crate::parameters::Parameters;
use paritas_base::configuration::Configuration;
use paritas_store::Blocked;
use paritas_store::delta::DELTA_BYTES_MAX;

/// Chunks that one step of housekeeping learns after a takeover.
const LEARN_CHUNKS: usize = 32;
/// Lines of the index that one step of active expiry reads.
const EXPIRY_LINES: u32 = 16;
/// Bytes of delta that one step of making space may take, and the most steps for one command.
const MAKE_SPACE_BYTES: usize = 64 << 10;
const MAKE_SPACE_STEPS: usize = 8;
/// How often a command makes space by evicting and compacting before others have their turn. Each time the objects of
/// about one chunk are evicted, and the longest value takes five chunks.
const EVICTIONS_MAX: usize = 256;
/// Bytes of a change in a delta beside key and value: headers of extents and of the object, the index entry.
const CHANGE_BYTES: usize = 192;
/// Bytes that each change of a command of many changes counts beside key and value, roughly its cost. A command that is
/// longer than a delta by this measure is refused, so that its one delta stays far below the limit.
const CHANGE_BYTES_MIN: usize = 64;

/// The most bytes of an object beside key and value: its header, and that of a further piece.
const OBJECT_BYTES: usize = 48;

/// How many bytes of keys and values a command of several changes on one stream may have: a quarter of the window
/// (docs/commands.md), and half of what a delta takes, since the index may grow in it too.
fn command_bytes_max(parameters: &Parameters) -> usize {
    let window = usize::try_from(parameters.window_bytes).unwrap_or(usize::MAX);
    (window / 4).min(DELTA_BYTES_MAX / 2)
}

/// Whether a command of `changes` changes on one stream, with `bytes` bytes of keys and values, fits one delta.
pub fn fits_one_delta(parameters: &Parameters, changes: usize, bytes: usize) -> bool {
    bytes <= command_bytes_max(parameters) && bytes + changes * CHANGE_BYTES_MIN <= DELTA_BYTES_MAX
}

/// One step of work between commands: deletes expired keys, compacts, gives memory back. It writes about `budget` bytes
/// of delta at most. True if it did something: there may be more to do.
pub(crate) fn housekeep<O: Out>(
    cx: &mut Context<'_, O>,
    configuration: &Configuration,
    owner: &mut StreamOwner,
    budget: usize,
) -> bool {
    if owner.phase() != Phase::Serve || !owner.store.chunks().directory_known() {
        return false;
    }
    // Learning writes nothing, so it waits for no member. Others may wait for it (P14.6).
    let mut learns = 0;
    while learns < LEARN_CHUNKS && owner.store.learn_one(&cx.shared.arena) == Ok(true) {
        learns += 1;
    }
    if learns > 0 {
        // All keys may be counted now.
        owner.wake.progress = true;
    }
    if learns == LEARN_CHUNKS {
        return true;
    }
    if owner.admit_write(cx) != Admission::Admitted {
        return false;
    }
    owner.store.set_time(cx.now.wall_ms);
    let ended = owner.expire_step(&mut cx.shared.arena, cx.now.wall_ms, EXPIRY_LINES);
    cx.shared.expired_keys += ended as u64;
    let expired = ended > 0;
    if expired {
        cx.out.mark(Mark::ExpiredInTime);
    }
    let (mut done, mut spent) = (expired, 0);
    let kept = loop {
        // Wrong bytes must not be copied (P9.1): each chunk is checked before it is emptied.
        if let Some(victim) = owner.store.next_victim(&cx.shared.arena) {
            // The deltas of this step may fill the window (P3.8): then the delta stays open, for the write that waits.
            if owner.admit_write(cx) != Admission::Admitted {
                return done;
            }
            owner.close_delta(cx, configuration);
            if owner.checked(cx, victim).is_none() {
                return done;
            }
        }
        let before = owner.open_bytes();
        let (store, delta) = owner.delta();
        let kept = store.housekeep(&mut cx.shared.arena, delta, budget - spent);
        let written = owner.open_bytes() - before;
        done |= kept == Ok(true);
        spent += written;
        if kept != Ok(true) || written == 0 || spent >= budget {
            break kept;
        }
    };
    if kept == Err(Blocked::DeltaFull) {
        owner.close_delta(cx, configuration);
    }
    // The limit for chunks has fallen and nothing is left to compact, so keys of this stream are evicted.
    let is_over = !done && kept == Ok(false) && cx.shared.arena.budget().is_over();
    let evicted = is_over && evict(cx, configuration, owner, budget as u64);
    done || evicted
}

/// Evicts keys of this stream until `bytes` bytes have died. False if there is nothing to evict.
pub(super) fn evict<O: Out>(
    cx: &mut Context<'_, O>,
    configuration: &Configuration,
    owner: &mut StreamOwner,
    bytes: u64,
) -> bool {
    // With a full delta nothing can be evicted, which would look like an empty stream.
    if owner.open_bytes() > DELTA_BYTES_MAX / 2 {
        owner.close_delta(cx, configuration);
    }
    let count = owner.evict(&mut cx.shared.arena, bytes);
    cx.shared.evicted_keys += u64::from(count);
    count > 0
}

/// The result of an attempt to make space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Space {
    /// There may be some now.
    Made,
    /// There is none to be made.
    None,
    /// Not now: the deltas that made space so far are not acknowledged.
    Wait,
    /// The command must begin anew.
    Later,
}

impl<O: Out> Access<'_, '_, O> {
    /// How often a change is tried, with space made in between.
    pub(super) fn tries(&self) -> usize {
        /// The first try, one after a full delta was closed, one after space was made, and one more.
        const TRIES: usize = 4;
        if self.owner.store.policy().evicts() {
            EVICTIONS_MAX
        } else {
            TRIES
        }
    }

    /// Compacts, and if that gains nothing evicts, for a command that finds no space.
    fn make_space(&mut self, blocked: Blocked) -> Space {
        if self.begun {
            return Space::None;
        }
        let absent = self.owner.store.chunks().absent_count();
        let mut made = false;
        for _ in 0..MAKE_SPACE_STEPS {
            if !housekeep(self.cx, self.configuration, self.owner, MAKE_SPACE_BYTES) {
                break;
            }
            made = true;
        }
        // What was moved is in a delta of its own: it must not make the command's delta too large.
        if made && self.owner.open_bytes() > DELTA_BYTES_MAX / 2 {
            self.owner.close_delta(self.cx, self.configuration);
        }
        // Housekeeping has found a wrong chunk and set it aside. The command may have read it, so the command begins
        // anew.
        if self.owner.store.chunks().absent_count() > absent {
            self.owner.wake.progress = true;
            return Space::Later;
        }
        if made {
            // It may be too little, and the window full before there is enough.
            self.owner.wake.progress = true;
            return Space::Made;
        }
        if !self.owner.store.policy().evicts() {
            return Space::None;
        }
        // The deltas that made space so far fill the window. The write waits for their acks, not for credit.
        if self.owner.admit_write(self.cx) != Admission::Admitted {
            return Space::Later;
        }
        // An evicted key is lost, so evict only if that frees what the write waits for.
        if matches!(blocked, Blocked::Credit { index } if !self.owner.eviction_helps(index)) {
            return Space::Wait;
        }
        let chunk = self.cx.shared.arena.chunk_bytes() as u64;
        if evict(self.cx, self.configuration, self.owner, chunk) {
            self.owner.wake.progress = true;
            Space::Made
        } else if self.owner.store.eviction_goes_on() {
            self.owner.wake.progress = true;
            Space::Wait
        } else {
            Space::None
        }
    }

    /// Makes sure of space for a command of `changes` changes with `bytes` bytes of keys and values, before the first
    /// of them. It is about `keys`, each with its database; those in `inserted` may be new.
    ///
    /// # Errors
    /// [`Stop::Wait`] until there is space; a refusal for a command that is too large, or where no memory is left.
    pub fn reserve<'k>(
        &mut self,
        changes: usize,
        bytes: usize,
        keys: impl Iterator<Item = (u8, &'k [u8])>,
        inserted: impl ExactSizeIterator<Item = (u8, &'k [u8])> + Clone,
    ) -> Result<(), Stop> {
        self.admit()?;
        if self.is_in_draft() {
            // The transaction reserves for all its commands together.
            return Ok(());
        }
        let bytes_max = command_bytes_max(&self.cx.shared.parameters);
        if changes > 1 && bytes > bytes_max {
            return Err(Stop::Refused(WriteRefusal::CommandTooLarge { bytes_max }));
        }
        if changes > 1 && !fits_one_delta(&self.cx.shared.parameters, changes, bytes) {
            return Err(Stop::Refused(WriteRefusal::TooManyKeys {
                change_bytes: CHANGE_BYTES_MIN,
                bytes_max: DELTA_BYTES_MAX,
            }));
        }
        self.several = changes > 1;
        let needed = bytes + changes * CHANGE_BYTES;
        if self.owner.open_bytes() + needed > DELTA_BYTES_MAX {
            self.owner.close_delta(self.cx, self.configuration);
        }
        if changes < 2 {
            return Ok(());
        }
        if bytes == 0 {
            return self.all_here(keys);
        }
        // Also for few bytes: the first change may fit and the second not, and a batch is atomic (I9).
        // Any two chunks in a row are more than half full.
        let chunk = self.cx.shared.arena.chunk_bytes();
        let chunks = u32::try_from(2 * (bytes + changes * OBJECT_BYTES) / chunk + 2).unwrap_or(u32::MAX);
        for _ in 0..self.tries() {
            let crowd = self.crowd(inserted.clone());
            let store = &mut self.owner.store;
            let pages = store.pages_for(changes);
            let Err(blocked) = crowd.and_then(|()| store.may_take(&self.cx.shared.arena, chunks, pages)) else {
                return self.all_here(keys);
            };
            self.find_space(blocked)?;
        }
        Err(Stop::Wait)
    }

    /// Checks that all chunks are here with which these keys must be compared, so that no later lookup has to wait.
    fn all_here<'k>(&mut self, keys: impl Iterator<Item = (u8, &'k [u8])>) -> Result<(), Stop> {
        for (database, key) in keys {
            let store = &mut self.owner.store;
            let here = store.may_compare(&self.cx.shared.arena, store.hash(database, key));
            here.map_err(|blocked| self.blocked(blocked))?;
        }
        Ok(())
    }

    /// Whether the index has space for those of these keys that are new. Asked only for many keys, which may crowd in
    /// few index pages.
    fn crowd<'k>(&self, inserted: impl ExactSizeIterator<Item = (u8, &'k [u8])>) -> Result<(), Blocked> {
        let store = &self.owner.store;
        if inserted.len() <= store.crowd_max() {
            return Ok(());
        }
        let arena = &self.cx.shared.arena;
        let mut hashes = Vec::with_capacity(inserted.len());
        for (database, key) in inserted {
            let hash = store.hash(database, key);
            if store.find(arena, hash, key)?.is_none() {
                hashes.push(hash);
            }
        }
        store.may_insert(arena, &mut hashes)
    }

    /// Makes space for a blocked write.
    ///
    /// # Errors
    /// [`Stop::Wait`] if there is none now, a refusal if there is none at all.
    pub(super) fn find_space(&mut self, blocked: Blocked) -> Result<(), Stop> {
        let space = match blocked {
            Blocked::Crowded => return self.grow_index(),
            Blocked::Memory | Blocked::Credit { .. } => self.make_space(blocked),
            _ => Space::None,
        };
        match space {
            Space::Made => Ok(()),
            Space::Later => Err(Stop::Wait),
            // A write without credit is left to `blocked`, which refuses it if it has lacked credit for long.
            Space::Wait if !matches!(blocked, Blocked::Credit { .. }) => Err(Stop::Wait),
            // No more credit is asked for, so there is nothing to wait for.
            Space::None if blocked == (Blocked::Credit { index: false }) && self.has_all_it_may() => {
                Err(Stop::Refused(WriteRefusal::NoMemory))
            }
            Space::Wait | Space::None => Err(self.blocked(blocked)),
        }
    }

    /// Whether neither credit nor a chunk to evict from will come: the stream has its share, and all chunks are here.
    fn has_all_it_may(&self) -> bool {
        let store = &self.owner.store;
        store.policy().evicts() && store.has_its_share() && store.chunks().absent_count() == 0
    }

    /// One step of growth of the index, for keys that crowd. Keys are evicted only for the space of the step itself.
    fn grow_index(&mut self) -> Result<(), Stop> {
        // A step is a write, and waits like a write.
        if self.begun || self.owner.admit_write(self.cx) != Admission::Admitted {
            return Err(Stop::Wait);
        }
        let was_open = self.owner.open_bytes() > 0;
        let (store, delta) = self.owner.delta();
        match store.grow_for_crowd(&mut self.cx.shared.arena, delta) {
            Ok(()) => {
                // Further steps may be needed, so the command is tried again at once.
                self.owner.wake.progress = true;
                Ok(())
            }
            Err(Blocked::DeltaFull) if was_open => {
                self.owner.close_delta(self.cx, self.configuration);
                Ok(())
            }
            Err(Blocked::DeltaFull | Blocked::Crowded) => Err(Stop::Refused(WriteRefusal::NoMemory)),
            Err(blocked) => self.find_space(blocked),
        }
    }
}
