//! Numbers that the machines work with (P5b).

use crate::rules::Rules;
use core::fmt;
use core::str::FromStr;
use paritas_base::Span;
use paritas_store::Policy;

/// Limits on what clients can make a shard hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientLimits {
    /// Client connections.
    pub clients_max: usize,
    /// Bytes of one command that is not whole yet; past it the connection is closed.
    pub query_bytes_max: usize,
    /// Unwritten reply bytes of a client above which it is closed.
    pub reply_bytes_max: usize,
    /// What is held for all clients together; past it those that hold most are closed (P8.3).
    pub bytes_max: usize,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            clients_max: 10_000,
            query_bytes_max: 64 << 20,
            reply_bytes_max: 256 << 20,
            bytes_max: usize::MAX,
        }
    }
}

/// What lets an owner answer reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reads {
    /// Leases from its members (P4.2): nothing is sent, and clocks must run at rates within 1 % of each other.
    #[default]
    Leases,
    /// One round trip to as many members for the reads of a turn (P4.6): nothing is assumed of clocks.
    Confirmed,
}

impl Reads {
    /// Its name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Leases => "leases",
            Self::Confirmed => "confirmed",
        }
    }
}

impl fmt::Display for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Reads {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Leases, Self::Confirmed];
        let found = all.into_iter().find(|reads| reads.name() == text);
        found.ok_or_else(|| format!("{text:?} is neither leases nor confirmed"))
    }
}

/// Whether a node that brings back chunks in the background takes parities of log nodes where memory has enough, in
/// place of chunks or of parities in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogAssist {
    /// As often as of any other node.
    On,
    /// None while memory has enough.
    Off,
    /// Of whoever is likely to answer first, by what was measured.
    #[default]
    Auto,
}

impl LogAssist {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::On, Self::Off, Self::Auto];

    /// Its name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
            Self::Auto => "auto",
        }
    }
}

impl fmt::Display for LogAssist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for LogAssist {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|assist| assist.name() == text);
        found.ok_or_else(|| format!("{text:?} is neither on, off nor auto"))
    }
}

/// The parameters of a node. Defaults are those of production; the simulator draws its own.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// How long a lease lasts at its holder (L); its grantor keeps it a tenth longer.
    pub lease: Span,
    /// What lets it answer reads.
    pub reads: Reads,
    /// How often leases are asked for when nothing else flows.
    pub lease_renewal: Span,
    /// First wait before something unanswered is sent again. Links are TCP, so that in production only a link's end
    /// loses frames, and that is seen at once.
    pub resend: Span,
    /// Wait before something is asked again of a peer that could not give it yet.
    pub retry: Span,
    /// Longest wait before something unanswered is sent again.
    pub resend_max: Span,
    /// Idle time after which `stable` is sent alone.
    pub stable_flush: Span,
    /// A peer that owes an ack for so long is reported.
    pub silence_report: Span,
    /// How long an owner holds new deltas at most when a successor asks (P5.8).
    pub hold_max: Span,
    /// How long an owner that is asked to go begins no write, after it was asked last (P5.12).
    pub drain_max: Span,
    /// Data chunks of a stream that a stand-in does not drop for others while there is any memory (P5.10): the keys of
    /// any line of the index, or the two longest values, must come to be here all at once. So it may take more than
    /// writers.
    pub kept_chunks: u32,
    /// Mismatches after which a hold is asked for.
    pub mismatches_before_hold: u32,
    /// Chunks that a node brings back at a time at most in the background: all its roles together, of those asked for
    /// once; each role, of all.
    pub fetch_max: usize,
    /// Bytes a second that a node brings back at most in the background; `None`: as fast as clients leave room.
    pub rebuild_rate: Option<u64>,
    /// Whether log nodes help to bring chunks back. Clients can change it while the node runs.
    pub log_assist: LogAssist,
    /// Bytes of its own chunks that a node checks a second (P9.2); `None`: none.
    pub scrub_rate: Option<u64>,
    /// Between two passes over all of them.
    pub scrub_pause: Span,
    /// Which keys are evicted when memory is full. Clients can change it while the node runs.
    pub policy: Policy,
    /// Limits of the memory that clients may use in the driver. Clients can change it while the node runs.
    pub client_limits: ClientLimits,
    /// Stripe ids asked for at a time (P8.2).
    pub credit_batch: u32,
    /// Keys that one step of a walk over all keys looks at, in each stream (P10.2b).
    pub walk_keys: u32,
    /// Raw deltas above `stable` that a stream may have, in bytes (W).
    pub window_bytes: u64,
    /// Stable deltas kept for undoing, in bytes (H).
    pub history_bytes: u64,
    /// Stable deltas are dropped after so long.
    pub history: Span,
    /// Chunks of a lost position are kept for so long, if nobody needs the memory (P2.4); zero: not at all.
    pub stash: Span,
    /// How long what is to be written to the disk of a parity log waits for more, if little comes.
    pub log_flush: Span,
    /// Shortest wait before a dial is tried again.
    pub redial: Span,
    /// Longest.
    pub redial_max: Span,
    /// How long slots that are handed off may wait without progress before they are served again (P10.8).
    pub hand_off_timeout: Span,
    /// The rules of the protocol, of which a test may break one.
    pub rules: Rules,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            lease: Span::from_secs(2),
            reads: Reads::Leases,
            lease_renewal: Span::from_ms(250),
            resend: Span::from_ms(200),
            retry: Span::from_ms(20),
            resend_max: Span::from_secs(1),
            stable_flush: Span::from_ms(10),
            silence_report: Span::from_ms(500),
            hold_max: Span::from_ms(20),
            drain_max: Span::from_ms(500),
            kept_chunks: 32,
            mismatches_before_hold: 8,
            fetch_max: 32,
            rebuild_rate: None,
            log_assist: LogAssist::Auto,
            scrub_rate: None,
            scrub_pause: Span::from_secs(1),
            policy: Policy::NoEviction,
            client_limits: ClientLimits::default(),
            credit_batch: 64,
            walk_keys: 1024,
            window_bytes: 1 << 20,
            history_bytes: 1 << 20,
            history: Span::from_secs(1),
            stash: Span::from_secs(600),
            log_flush: Span::from_secs(1),
            redial: Span::from_ms(20),
            redial_max: Span::from_secs(1),
            hand_off_timeout: Span::from_ms(500),
            rules: Rules::default(),
        }
    }
}

/// A window of the smallest deltas is twice its bytes in a `Sync` or a `SealReply`, and each of those is one frame.
const SHARE_BYTES_MAX: u64 = 12 << 20;

impl Parameters {
    /// With the windows and histories that a node of so much memory can afford when it takes part in `streams`
    /// streams (P8.2): they share a 64th of the memory, and none has more than a quarter of that.
    pub fn for_memory(maxmemory_bytes: u64, streams: u64) -> Self {
        let pool_bytes = (maxmemory_bytes / 64).max(4 << 20);
        // An owner keeps a window and as much history; a member of a stream, a window.
        let most = SHARE_BYTES_MAX.min(pool_bytes / 4);
        let share_bytes = (pool_bytes / (2 * streams.max(1))).clamp(256 << 10, most);
        Self {
            window_bytes: share_bytes,
            history_bytes: share_bytes,
            // All of it in a day (P9.2).
            scrub_rate: Some((maxmemory_bytes / (24 * 3600)).max(1)),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paritas_wire::peer::FRAME_BYTES_MAX;

    #[test]
    fn a_window_of_whatever_deltas_fits_a_frame() {
        for streams in [1, 2, 4, 10, 24, 1000] {
            for gib in (0..12).map(|n| 1 << n) {
                let window_bytes = Parameters::for_memory(gib << 30, streams).window_bytes;
                let frame_bytes = 2 * window_bytes as usize + paritas_store::delta::COMMAND_DELTA_BYTES_MAX;
                assert!(
                    frame_bytes < FRAME_BYTES_MAX,
                    "{streams} streams in {gib} GiB: {frame_bytes}"
                );
            }
        }
    }
}
