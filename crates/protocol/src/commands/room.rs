//! Room for writes: making sure of it before a command of several changes, making some where it is short, and the
//! house kept between commands.

use super::{Operation, Stop};
use crate::context::Context;
use crate::interface::Out;
use crate::mark::Mark;
use crate::parameters::Parameters;
use crate::stream_owner::{Admission, Phase, StreamOwner};
use paritas_base::configuration::Configuration;
use paritas_store::delta::DELTA_BYTES_MAX;
use paritas_store::{Arena, Blocked};
use paritas_wire::resp::errors;

/// Lines of the index that active expiry looks at in one go.
const EXPIRY_LINES: u32 = 16;
/// Bytes of delta that making room may take in one go, and how often it goes on for one command.
const MAKE_ROOM_BYTES: usize = 64 << 10;
const MAKE_ROOM_STEPS: usize = 8;
/// What a change costs in a delta beside key and value: heads of extents, of the object, the index entry.
const CHANGE_BYTES: usize = 192;
/// What a change of many counts for beside key and value: about what it costs. Past a delta's length by this measure a
/// command is refused, so that its one delta stays far below the most that one may have.
const CHANGE_BYTES_MIN: usize = 64;

/// The answer to a command that changes too many keys of one stream to be one delta.
const TOO_MANY_KEYS: &str =
    "ERR too many keys for one slot in one command: keys and values and 64 bytes for each key are over 262144 bytes";
const _: () = assert!(CHANGE_BYTES_MIN == 64 && DELTA_BYTES_MAX == 262_144);
/// What an object takes beside key and value, at most: its header, and a further piece's.
const OBJECT_BYTES: usize = 48;

/// How large a command of several changes on one stream may be: a quarter of the window (SEAMS §4), and half of what
/// a delta takes, since the index may grow in it too.
pub(crate) fn command_bytes_max(parameters: &Parameters) -> usize {
    let window = usize::try_from(parameters.window_bytes).unwrap_or(usize::MAX);
    (window / 4).min(DELTA_BYTES_MAX / 2)
}

/// Whether a command of several changes on one stream, with so many bytes of keys and values, fits one delta.
pub(crate) fn fits_one_delta(parameters: &Parameters, changes: usize, bytes: usize) -> bool {
    bytes <= command_bytes_max(parameters) && bytes + changes * CHANGE_BYTES_MIN <= DELTA_BYTES_MAX
}

/// A bit of work behind the commands: expired keys, compaction, memory to give back. At most about `budget` bytes of
/// delta. True if it did something: there may be more.
pub(crate) fn housekeep<O: Out>(
    cx: &mut Context<'_, O>,
    configuration: &Configuration,
    owner: &mut StreamOwner,
    budget: usize,
) -> bool {
    if owner.phase() != Phase::Serve
        || !owner.store.chunks().directory_known()
        || owner.admit_write(cx) != Admission::Admitted
    {
        return false;
    }
    // Wrong bytes must not be copied (9.1).
    if let Some(victim) = owner.store.next_victim(&cx.shared.arena) {
        owner.close_delta(cx, configuration);
        if !owner.has_its_sum(cx, victim) {
            return false;
        }
    }
    let (store, delta) = owner.delta();
    let arena = &mut cx.shared.arena;
    let expired = store.expire_step(arena, delta, cx.now.wall_ms, EXPIRY_LINES) > 0;
    let kept = store.housekeep(arena, delta, budget);
    if expired {
        cx.out.mark(Mark::ExpiredInTime);
        // Which keys is not said; a read that finds one gone must wait for this delta (8.4).
        owner.touch_all();
    }
    if kept == Err(Blocked::DeltaFull) {
        owner.close_delta(cx, configuration);
    }
    expired || kept == Ok(true)
}

impl<O: Out> Operation<'_, '_, O> {
    /// Compacts for a command that finds no room. False if that gained nothing.
    pub(super) fn make_room(&mut self) -> bool {
        if self.begun {
            return false;
        }
        let mut made = false;
        for _ in 0..MAKE_ROOM_STEPS {
            if !housekeep(self.cx, self.configuration, self.owner, MAKE_ROOM_BYTES) {
                break;
            }
            made = true;
        }
        // What was moved is in a delta of its own: it must not make the command's delta too large.
        if made && self.owner.open_bytes() > DELTA_BYTES_MAX / 2 {
            self.owner.close_delta(self.cx, self.configuration);
        }
        made
    }

    /// Makes sure of room for a command of `changes` changes with so many bytes of keys and values, before the
    /// first of them.
    pub(super) fn reserve(&mut self, changes: usize, bytes: usize) -> Result<(), Stop> {
        self.admit()?;
        let bytes_max = command_bytes_max(&self.cx.shared.parameters);
        if changes > 1 && bytes > bytes_max {
            return Err(self.refuse(|out| errors::command_too_large(out, bytes_max)));
        }
        if changes > 1 && !fits_one_delta(&self.cx.shared.parameters, changes, bytes) {
            return Err(Stop::Error(TOO_MANY_KEYS));
        }
        self.several = changes > 1;
        let needed = bytes + changes * CHANGE_BYTES;
        if self.owner.open_bytes() + needed > DELTA_BYTES_MAX {
            self.owner.close_delta(self.cx, self.configuration);
        }
        if changes < 2 || bytes == 0 {
            return Ok(());
        }
        // However few the bytes: the first change may fit where the second does not (I9, batches are atomic).
        // Any two chunks in a row are more than half full.
        let chunk = self.cx.shared.arena.chunk_bytes();
        let chunks = u32::try_from(2 * (bytes + changes * OBJECT_BYTES) / chunk + 2).unwrap_or(u32::MAX);
        let pages = self.owner.store.pages_for(changes);
        let may_take = |owner: &mut StreamOwner, arena: &Arena| owner.store.may_take(arena, chunks, pages);
        match may_take(self.owner, &self.cx.shared.arena) {
            Err(Blocked::Memory | Blocked::Credit { .. }) if self.make_room() => {
                may_take(self.owner, &self.cx.shared.arena).map_err(|blocked| self.blocked(blocked))
            }
            result => result.map_err(|blocked| self.blocked(blocked)),
        }
    }
}
