//! What a node's memory is used for, and what is left of it for chunks (P8.3).

use super::Replica;
use crate::disk_log::DiskLog;
use crate::lists::Role;
use crate::parameters::Parameters;
use crate::rules::Fault;
use paritas_base::{Span, Time};

/// Chunks of parity and data that a node may hold at most, whatever its memory: ids are 32 bits.
pub(super) const SLOTS_MAX: u64 = u32::MAX as u64 / 2;

/// How often it is counted what chunks may not have.
const ACCOUNT_EVERY: Span = Span::from_ms(100);
/// The part of the memory that windows have at most, that buffers have at least, and that those of sockets have.
const WINDOWS_PART: u64 = 8;
const BUFFERS_PART: u64 = 64;
const SOCKETS_PART: u64 = 256;

/// What a node counts, for status and metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// Keys of the streams it owns; those whose index is not all here are left out.
    pub objects: u64,
    /// Bytes of their keys and values.
    pub user_bytes: u64,
    /// Chunks of objects.
    pub data_bytes: u64,
    /// Chunks of index.
    pub index_bytes: u64,
    /// Parity chunks.
    pub parity_bytes: u64,
    /// Raw deltas, unstable and kept for undoing.
    pub ring_bytes: u64,
    /// Versions, sums, directories.
    pub table_bytes: u64,
    /// Clients, their commands and replies under way, and room to work in.
    pub buffer_bytes: u64,
    /// Cached chunks of lost positions: dropped when memory is needed.
    pub stash_bytes: u64,
    /// What waits to be written to the disk of the parity log, and what is known of what lies there.
    pub log_bytes: u64,
    /// Free chunks that still hold memory.
    pub free_bytes: u64,
    /// Chunks still to be reconstructed or refilled.
    pub rebuild_todo_bytes: u64,
    /// Chunks reconstructed or refilled so far.
    pub rebuild_done_bytes: u64,
    /// Chunks checked for wrong bytes.
    pub scrub_checked: u64,
    /// Chunks found to be wrong.
    pub scrub_bad: u64,
    /// Those of them that are right again.
    pub scrub_repaired: u64,
    /// Times that all chunks were gone through, and each was checked.
    pub scrub_passes: u64,
}

impl Replica {
    /// Counts what it holds. `front_bytes`: what the front end holds.
    pub fn figures(&self, front_bytes: u64) -> Figures {
        let chunk = u64::from(self.shared.cluster.chunk_bytes);
        let mut f = Figures::default();
        for role in self.lists.roles() {
            match role {
                Role::Halted(_) => {}
                Role::Owner(owner) => {
                    let gauges = owner.store().gauges();
                    f.objects += owner.store().count().unwrap_or(0);
                    f.user_bytes += owner.store().user_bytes();
                    f.data_bytes += u64::from(gauges.data_chunks) * chunk;
                    f.index_bytes += u64::from(gauges.index_chunks) * chunk;
                    f.table_bytes += owner.table_bytes();
                    f.ring_bytes += owner.ring_bytes();
                    f.rebuild_todo_bytes += u64::from(owner.store().chunks().absent_count()) * chunk;
                    f.rebuild_done_bytes += u64::from(owner.reconstructor().done) * chunk;
                }
                Role::Member(member) => {
                    f.parity_bytes += u64::from(member.table.memory_slots()) * chunk;
                    f.table_bytes += member.table.table_bytes();
                    f.ring_bytes += member.logs().iter().map(|l| l.ring.held_bytes()).sum::<u64>();
                    f.rebuild_todo_bytes += u64::from(member.refill.left()) * chunk;
                    f.rebuild_done_bytes += u64::from(member.refill.done) * chunk;
                }
            }
        }
        let scrub = &self.shared.scrub;
        (f.scrub_checked, f.scrub_bad) = (scrub.checked, scrub.bad);
        (f.scrub_repaired, f.scrub_passes) = (scrub.repaired, scrub.passes);
        f.buffer_bytes = self.shared.arena.buffer_bytes() + front_bytes;
        f.stash_bytes = u64::from(self.shared.arena.lent_count()) * chunk;
        f.table_bytes += self.shared.stashes.table_bytes();
        f.log_bytes = self.shared.disk.as_ref().map_or(0, DiskLog::memory_bytes);
        f.free_bytes = self
            .shared
            .arena
            .resident_bytes()
            .saturating_sub(f.data_bytes + f.index_bytes + f.parity_bytes + f.stash_bytes);
        f
    }

    /// P8.3: what is not in chunks comes out of the same memory, so that chunks may not have all of it; they have three
    /// quarters. `front_bytes` counts what the front end holds. Windows count as full, or a burst would want what
    /// chunks have taken before.
    pub(super) fn account(&mut self, now: Time, front_bytes: impl FnOnce() -> u64) {
        if now < self.account_at {
            return;
        }
        self.account_at = now + ACCOUNT_EVERY;
        let Parameters {
            window_bytes,
            history_bytes,
            ..
        } = self.shared.parameters;
        let (mut tables, mut rings, mut windows, mut roles) = (0, 0, 0, 0);
        for role in self.lists.roles() {
            match role {
                Role::Halted(_) => {}
                Role::Owner(owner) => {
                    roles += 1;
                    tables += owner.table_bytes();
                    rings += owner.ring_bytes();
                    if !owner.members().is_empty() {
                        windows += window_bytes + history_bytes;
                    }
                }
                Role::Member(member) => {
                    roles += 1;
                    tables += member.table.table_bytes();
                    rings += member.logs().iter().map(|l| l.ring.held_bytes()).sum::<u64>();
                    windows += window_bytes * u64::from(self.shared.cluster.data);
                }
            }
        }
        let shared = &mut self.shared;
        shared.stashes.expire(&mut shared.arena, now);
        tables += shared.stashes.table_bytes();
        let log = shared.disk.as_ref().map_or(0, DiskLog::memory_bytes);
        let log_max = shared.disk.as_ref().map_or(0, DiskLog::memory_bytes_max);
        let buffers = shared.arena.buffer_bytes() + front_bytes();
        shared.buffers_bytes = buffers + shared.sockets_bytes;
        let all = shared.arena.resident_bytes() + tables + log + rings + shared.buffers_bytes;
        shared.memory_peak_bytes = shared.memory_peak_bytes.max(all);
        let rings = rings.max(windows.min(shared.maxmemory_bytes / WINDOWS_PART));
        let buffers = buffers.max(shared.maxmemory_bytes / BUFFERS_PART)
            + shared.sockets_bytes.max(shared.maxmemory_bytes / SOCKETS_PART);
        let least = shared.maxmemory_bytes / 4 * 3;
        let left = shared
            .maxmemory_bytes
            .saturating_sub(tables + log_max.max(log) + rings + buffers)
            .max(least);
        let slots = (left / u64::from(shared.cluster.chunk_bytes)).min(SLOTS_MAX) as u32;
        // A position that comes here when all is taken must be able to serve, a few chunks at a time.
        let slots = slots.min(match shared.parameters.rules.fault(Fault::HeadroomWritten) {
            true => shared.arena.slots_max(),
            false => shared.arena.budget().limit_max(),
        });
        shared.arena.set_limit(slots);
        // A stream evicts keys of its own only, and parity once granted stays granted: where keys are evicted, who came
        // first must not have what those that come later need.
        let share = match shared.parameters.policy.evicts() {
            true => slots / roles.max(1),
            false => u32::MAX,
        };
        for (_, owner) in self.lists.owners_mut() {
            owner.store.set_share(share);
        }
    }
}
