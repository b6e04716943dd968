//! What the shard counts: for the heartbeats to the coordinator, and for the log.

use crate::ByteCount;
use crate::status::TooMuch;
use paritas_base::{Span, Time};
use paritas_control::status::{FillStatus, HALTED_MAX, HaltedRole, LogStatus, ScrubStatus, ShardProgress};
use paritas_io::Gauges;

/// The log tells counts that have grown at once, then at most once in this time.
const COUNTS_LOG_EVERY: Span = Span::from_secs(60);

/// What of the memory the log has said last.
#[derive(Default)]
pub(super) struct MemoryLog {
    said: FillStatus,
    next_at: Time,
    /// Positions held when last looked, and when that they are too few was said.
    positions: usize,
    said_positions: usize,
}

impl MemoryLog {
    pub(super) fn note(&mut self, now: Time, fill: &FillStatus, positions: usize) {
        let refused = fill.refused_writes - self.said.refused_writes.min(fill.refused_writes);
        let evicted = fill.evicted_keys - self.said.evicted_keys.min(fill.evicted_keys);
        if now >= self.next_at && refused + evicted > 0 {
            (self.said, self.next_at) = (*fill, now + COUNTS_LOG_EVERY);
            let (limit, percent) = (ByteCount(fill.limit_bytes), fill.percent());
            if refused > 0 {
                tracing::warn!(
                    "{refused} writes were refused with -OOM; {percent} % of what writers may fill of this node's \
                     {limit} is used. If that is less than 100 %, nodes with parity are full. Delete keys, raise \
                     `memory` of the nodes, or set `maxmemory_policy`"
                );
            }
            if evicted > 0 {
                tracing::info!("{evicted} keys were evicted; {percent} % of what writers may fill of {limit} is used");
            }
        }
        // While the first configurations arrive, the number grows.
        let is_settled = positions == self.positions;
        self.positions = positions;
        if is_settled
            && self.said_positions != positions
            && let Some(most) = fill.unreachable_above(positions)
        {
            self.said_positions = positions;
            tracing::warn!("{}", TooMuch(fill, positions, most));
        }
    }
}

/// How many errors behind `noreply` the log has told.
#[derive(Default)]
pub(super) struct SilencedLog {
    said: u64,
    next_at: Time,
}

impl SilencedLog {
    pub(super) fn note(&mut self, now: Time, errors: u64) {
        let new = errors - self.said.min(errors);
        if new > 0 && now >= self.next_at {
            (self.said, self.next_at) = (errors, now + COUNTS_LOG_EVERY);
            tracing::warn!(
                "{new} commands of memcached clients failed, and the clients do not know: they sent `noreply`. \
                 Without it they are told why"
            );
        }
    }
}

pub(super) fn progress(turns: u64, gauges: Gauges) -> ShardProgress {
    let [checked_chunks, bad_chunks, repaired_chunks] = gauges.scrub;
    ShardProgress {
        shard: 0,
        turns,
        objects: gauges.objects,
        user_bytes: gauges.user_bytes,
        memory_bytes: gauges.memory.iter().map(|(_, bytes)| bytes).sum(),
        by_kind: gauges
            .memory
            .iter()
            .map(|(kind, bytes)| ((*kind).to_owned(), *bytes))
            .collect(),
        rebuild_done_bytes: gauges.rebuild_done_bytes,
        rebuild_total_bytes: gauges.rebuild_total_bytes,
        scrub: ScrubStatus {
            checked_chunks,
            bad_chunks,
            repaired_chunks,
        },
        ack_us: gauges.ack_us,
        fill: FillStatus {
            limit_bytes: gauges.fill.limit_bytes,
            used_bytes: gauges.fill.used_bytes,
            writable_bytes: gauges.fill.writable_bytes,
            refused_writes: gauges.fill.refused_writes,
            evicted_keys: gauges.fill.evicted_keys,
        },
        log: gauges
            .log_chunks
            .map(|(chunks, chunks_max)| LogStatus { chunks, chunks_max }),
        halted: gauges
            .halted
            .into_iter()
            .take(HALTED_MAX)
            .map(|role| HaltedRole::new(role.list, role.position, role.reason))
            .collect(),
    }
}
