//! How a node's memory is used, and how much of it chunks may have (P8.3).

use super::Replica;
use crate::disk_log::DiskLog;
use crate::lists::Role;
use crate::parameters::Parameters;
use crate::parts::PositionParts;
use crate::rules::Fault;
use paritas_base::{Span, Time};

/// The most chunks of a node, whatever its memory: their ids have 32 bits.
pub(super) const SLOTS_MAX: u64 = u32::MAX as u64 / 2;

/// The time between two counts of memory.
const ACCOUNT_EVERY: Span = Span::from_ms(100);
/// Windows of deltas count for at most this part (1/8) of the memory.
const WINDOWS_PART: u64 = 8;
/// Buffers count for at least this part (1/64) of the memory.
const BUFFERS_PART: u64 = 64;
/// Buffers of sockets count for at least this part (1/256) of the memory.
const SOCKETS_PART: u64 = 256;
/// What the process has beside its gauges counts for at most this part (1/16) of the memory: of a small memory, chunks
/// need most.
const PROCESS_PART: u64 = 16;
/// What it has had for a moment counts for at most this part (1/64).
const BURST_PART: u64 = 64;
/// What counts for a burst gets smaller by this part (1/64) each time the process is measured: to half in ten seconds.
pub(super) const BURST_DECAY: u64 = 64;

/// Counts of a node, for status and metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// Keys of the streams that it owns. Streams with absent index pages are left out.
    pub objects: u64,
    /// Bytes of keys and values of the streams that it owns.
    pub user_bytes: u64,
    /// Bytes of chunks with objects.
    pub data_bytes: u64,
    /// Bytes of index pages.
    pub index_bytes: u64,
    /// Bytes of parity chunks in memory.
    pub parity_bytes: u64,
    /// Bytes of chunks with parts of large values.
    pub part_bytes: u64,
    /// Bytes of raw deltas: unstable ones, and stable ones that are kept for undoing.
    pub ring_bytes: u64,
    /// Bytes of versions, sums and directories.
    pub table_bytes: u64,
    /// Bytes of bodies of large values that are read.
    pub bodies_bytes: u64,
    /// Bytes of buffers: of clients, of their commands and replies, and of work in progress.
    pub buffer_bytes: u64,
    /// Bytes of cached chunks of lost positions; they are dropped when memory is needed.
    pub stash_bytes: u64,
    /// Bytes that wait to be written to the disk of the parity log, and of the tables of that log.
    pub log_bytes: u64,
    /// Bytes of free chunks whose memory is not given back to the operating system.
    pub free_bytes: u64,
    /// Bytes of chunks still to be reconstructed or refilled.
    pub rebuild_todo_bytes: u64,
    /// Bytes of chunks reconstructed or refilled so far.
    pub rebuild_done_bytes: u64,
    /// Chunks checked for wrong bytes.
    pub scrub_checked: u64,
    /// Chunks found with wrong bytes.
    pub scrub_bad: u64,
    /// Chunks found with wrong bytes and repaired.
    pub scrub_repaired: u64,
    /// Passes in which every chunk was checked.
    pub scrub_passes: u64,
    /// How full the memory is.
    pub fill: Fill,
}

/// How full the memory of a node is, and what that has cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fill {
    /// The configured memory for everything, in bytes.
    pub limit_bytes: u64,
    /// Bytes of chunks in use.
    pub used_bytes: u64,
    /// Bytes of chunks that writers may fill.
    pub writable_bytes: u64,
    /// Writes that were refused because memory is short.
    pub refused_writes: u64,
    /// Keys that were evicted.
    pub evicted_keys: u64,
}

impl Replica {
    /// Counts. `front_bytes`: bytes that the front end uses.
    pub fn figures(&self, front_bytes: u64) -> Figures {
        let chunk = u64::from(self.shared.cluster.chunk_bytes);
        let mut f = Figures::default();
        // Those of a log node are on its disk.
        let lists = self.lists.iter().filter(|_| self.shared.disk.is_none());
        let parts = lists.flat_map(|list| &list.parts);
        f.part_bytes = parts.map(|parts| u64::from(parts.chunk_count())).sum::<u64>() * chunk;
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
                    f.bodies_bytes += owner.bodies_bytes();
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
        f.table_bytes += self.parts_table_bytes();
        f.bodies_bytes += self.shared.readers.held_bytes() + self.shared.spare_bodies.held_bytes();
        f.fill = Fill {
            limit_bytes: self.shared.maxmemory_bytes,
            used_bytes: u64::from(self.shared.arena.used()) * chunk,
            writable_bytes: u64::from(self.shared.arena.budget().limit()) * chunk,
            refused_writes: self.shared.refused_writes,
            evicted_keys: self.shared.evicted_keys,
        };
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
            .saturating_sub(f.data_bytes + f.index_bytes + f.parity_bytes + f.part_bytes + f.stash_bytes);
        f
    }

    fn parts_table_bytes(&self) -> u64 {
        let parts = self.lists.iter().flat_map(|list| &list.parts);
        parts.map(PositionParts::table_bytes).sum()
    }

    /// P8.3: sets the limit of chunks. Tables, rings and buffers use the same memory, so chunks may not have all of it;
    /// they have at least three quarters of what the process itself leaves. `front_bytes` counts bytes that the front
    /// end uses. Windows count as full: when a burst fills them, their memory must not be in use for chunks.
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
        let (mut tables, mut bodies, mut rings, mut windows, mut roles) = (0, 0, 0, 0, 0);
        for role in self.lists.roles() {
            match role {
                Role::Halted(_) => {}
                Role::Owner(owner) => {
                    roles += 1;
                    tables += owner.table_bytes();
                    bodies += owner.bodies_bytes();
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
        tables += self.parts_table_bytes();
        bodies += self.shared.readers.held_bytes() + self.shared.spare_bodies.held_bytes();
        let shared = &mut self.shared;
        shared.stashes.expire(&mut shared.arena, now);
        tables += shared.stashes.table_bytes();
        let log = shared.disk.as_ref().map_or(0, DiskLog::memory_bytes);
        let log_max = shared.disk.as_ref().map_or(0, DiskLog::memory_bytes_max);
        let buffers = shared.arena.buffer_bytes() + front_bytes();
        shared.buffers_bytes = buffers + shared.process.sockets_bytes;
        let all = shared.arena.resident_bytes() + tables + bodies + log + rings + shared.buffers_bytes;
        shared.memory_peak_bytes = shared.memory_peak_bytes.max(all);
        let rings = rings.max(windows.min(shared.maxmemory_bytes / WINDOWS_PART));
        let buffers = buffers.max(shared.maxmemory_bytes / BUFFERS_PART)
            + shared.process.sockets_bytes.max(shared.maxmemory_bytes / SOCKETS_PART);
        let process = shared.process.beside_bytes.min(shared.maxmemory_bytes / PROCESS_PART)
            + shared.burst_bytes.min(shared.maxmemory_bytes / BURST_PART);
        let most = shared.maxmemory_bytes - process;
        let least = most / 4 * 3;
        let left = most
            .saturating_sub(tables + bodies + log_max.max(log) + rings + buffers)
            .max(least);
        let slots = (left / u64::from(shared.cluster.chunk_bytes)).min(SLOTS_MAX) as u32;
        // A position that arrives when writers have filled the memory must be able to serve, with a few chunks at a
        // time.
        let slots = slots.min(match shared.parameters.rules.fault(Fault::HeadroomWritten) {
            true => shared.arena.slots_max(),
            false => shared.arena.budget().limit_max(),
        });
        shared.arena.set_limit(slots);
        // A stream evicts only its own keys, and granted parity stays granted. With eviction, the first streams must
        // not take the memory that later ones need.
        let share = match shared.parameters.policy.evicts() {
            true => slots / roles.max(1),
            false => u32::MAX,
        };
        for (_, owner) in self.lists.owners_mut() {
            owner.store.set_share(share);
        }
    }
}
