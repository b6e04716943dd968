//! Numbers that the machines work with (P5b), and the rules that a test may break.

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
    /// Whether log nodes help to bring chunks back; CONFIG SET changes it.
    pub log_assist: LogAssist,
    /// Bytes of its own chunks that a node checks a second (P9.2); `None`: none.
    pub scrub_rate: Option<u64>,
    /// Between two passes over all of them.
    pub scrub_pause: Span,
    /// What goes when memory is full; CONFIG SET changes it.
    pub policy: Policy,
    /// What clients may make the driver hold; CONFIG SET changes it.
    pub client_limits: ClientLimits,
    /// Stripe ids asked for at a time (P8.2).
    pub credit_batch: u32,
    /// Keys that one step of KEYS and its like looks at, at each stream (P10.2b).
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
    pub hand_off_patience: Span,
    /// The rule that is broken on purpose.
    #[cfg(feature = "mutants")]
    pub mutant: Option<Mutant>,
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
            hand_off_patience: Span::from_ms(500),
            #[cfg(feature = "mutants")]
            mutant: None,
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

    /// Whether a rule is to be broken. Always false, and folded away, without the test feature.
    #[inline(always)]
    pub(crate) fn breaks(&self, mutant: Mutant) -> bool {
        #[cfg(feature = "mutants")]
        return self.mutant == Some(mutant);
        #[cfg(not(feature = "mutants"))]
        {
            let _ = mutant;
            false
        }
    }
}

/// A rule of docs/protocol.md left out, to show that the simulator sees it (docs/reliability.md).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // The comments name the rule.
pub enum Mutant {
    /// P3.7
    OwnerJudgesWhoIsAlive,
    /// P2.2, P3.3
    NoEpochFence,
    /// P5.4
    ServeBeforePush,
    /// P5.5
    NoLeaseWait,
    /// P4.1
    ReadDoesNotWaitForAck,
    /// P4.1
    ValueTakenAtRelease,
    /// P3.8
    RawDeltasNotKept,
    /// P5.7
    NoVersionMatch,
    /// P6.2
    NoBufferingWhileFilling,
    /// P3.3
    GapsAccepted,
    /// P3.10
    VoidTailKept,
    /// P3.10
    VoidTailDroppedWithoutUndo,
    /// P5.1
    SecondCutInOneTerm,
    /// P3.10 (m = 3)
    NewcomerKeepsNoRawDeltas,
    /// P5.5, P5.12a
    YieldedNotMatchedOnTerm,
    /// P5.12a
    OwnerYieldsWhenAsked,
    /// P5.5
    OneCertificateClearsAll,
    /// P5.5
    CertificateMatchedByNode,
    /// P6.3
    FetchWithoutTerm,
    /// P6.3
    ValidBeforeLogCaughtUp,
    /// P5.7a
    ReadParityWithoutTerm,
    /// P5.7a
    ReadParityWithoutRecv,
    /// P5.7d
    ParitiesNotCompared,
    /// P6.3
    VersionForAsOf,
    /// P5.5
    DirectoryBelowCut,
    /// P3.6, P8.2
    CreditNotAwaited,
    /// P6.6
    AllocWithoutUntouchedTest,
    /// P2.3
    TenureByNode,
    /// P3.7, P6.1
    AcksIgnoreFillingMembers,
    /// P4.2
    LeaseFromLiveMembersOnly,
    /// P8.4
    ExpiryWithoutDelta,
    /// I9: several changes of one command in several deltas.
    CommandCutInTwo,
    /// P5.3 (a < m)
    SealFromTooFew,
    /// P5.3
    CutWithoutTerm,
    /// P5.3
    UnionOfRings,
    /// P4.2 (a < m)
    LeasesFromTooFew,
    /// P3.8 (a < m)
    RingTrimmedAtAcked,
    /// P3.9 (a < m)
    SyncFromAcked,
    /// P3.10
    MatchByCut,
    /// P9.3, I14
    WrongChunkKept,
    /// P9.3
    MendedAtAnyVersion,
    /// P9.2
    ParityNotScrubbed,
    /// P2.4
    StashWithoutTerm,
    /// P6.7
    ParityStashWithoutTerm,
    /// P11.3
    LoggedParityAtAnyVersion,
    /// P5.10
    ChunkDroppedAfterAskingLive,
    /// P5.10
    ChunkDroppedWithUnackedDelta,
    /// P4.6
    ReadsNotConfirmed,
    /// P10.8
    SlotsServedWhileHandedOff,
    /// P10.8
    EarlierImportsKept,
    /// P10.8
    KeysByTwoMaps,
    /// P10.8, of the simulator's coordinator
    HandOffBetweenAnyTenures,
    /// P10.8
    KeysWithoutWholeMap,
    /// P8.3
    KeptChunksWritten,
    /// P10.14
    EpochForId,
}

impl Mutant {
    /// All of them, with the names by which a test asks for them.
    pub const ALL: [(&'static str, Self); 55] = [
        ("owner-judges-who-is-alive", Self::OwnerJudgesWhoIsAlive),
        ("no-epoch-fence", Self::NoEpochFence),
        ("serve-before-push", Self::ServeBeforePush),
        ("no-lease-wait", Self::NoLeaseWait),
        ("read-does-not-wait-for-ack", Self::ReadDoesNotWaitForAck),
        ("value-taken-at-release", Self::ValueTakenAtRelease),
        ("raw-deltas-not-kept", Self::RawDeltasNotKept),
        ("no-version-match", Self::NoVersionMatch),
        ("no-buffering-while-filling", Self::NoBufferingWhileFilling),
        ("gaps-accepted", Self::GapsAccepted),
        ("void-tail-kept", Self::VoidTailKept),
        ("void-tail-dropped-without-undo", Self::VoidTailDroppedWithoutUndo),
        ("second-cut-in-one-term", Self::SecondCutInOneTerm),
        ("newcomer-keeps-no-raw-deltas", Self::NewcomerKeepsNoRawDeltas),
        ("yielded-not-matched-on-term", Self::YieldedNotMatchedOnTerm),
        ("owner-yields-when-asked", Self::OwnerYieldsWhenAsked),
        ("one-certificate-clears-all", Self::OneCertificateClearsAll),
        ("certificate-matched-by-node", Self::CertificateMatchedByNode),
        ("fetch-without-term", Self::FetchWithoutTerm),
        ("valid-before-log-caught-up", Self::ValidBeforeLogCaughtUp),
        ("read-parity-without-term", Self::ReadParityWithoutTerm),
        ("read-parity-without-recv", Self::ReadParityWithoutRecv),
        ("parities-not-compared", Self::ParitiesNotCompared),
        ("version-for-as-of", Self::VersionForAsOf),
        ("directory-below-cut", Self::DirectoryBelowCut),
        ("credit-not-awaited", Self::CreditNotAwaited),
        ("alloc-without-untouched-test", Self::AllocWithoutUntouchedTest),
        ("tenure-by-node", Self::TenureByNode),
        ("acks-ignore-filling-members", Self::AcksIgnoreFillingMembers),
        ("lease-from-live-members-only", Self::LeaseFromLiveMembersOnly),
        ("expiry-without-delta", Self::ExpiryWithoutDelta),
        ("command-cut-in-two", Self::CommandCutInTwo),
        ("seal-from-too-few", Self::SealFromTooFew),
        ("cut-without-term", Self::CutWithoutTerm),
        ("union-of-rings", Self::UnionOfRings),
        ("leases-from-too-few", Self::LeasesFromTooFew),
        ("ring-trimmed-at-acked", Self::RingTrimmedAtAcked),
        ("sync-from-acked", Self::SyncFromAcked),
        ("match-by-cut", Self::MatchByCut),
        ("wrong-chunk-kept", Self::WrongChunkKept),
        ("mended-at-any-version", Self::MendedAtAnyVersion),
        ("parity-not-scrubbed", Self::ParityNotScrubbed),
        ("stash-without-term", Self::StashWithoutTerm),
        ("parity-stash-without-term", Self::ParityStashWithoutTerm),
        ("logged-parity-at-any-version", Self::LoggedParityAtAnyVersion),
        ("chunk-dropped-after-asking-live", Self::ChunkDroppedAfterAskingLive),
        ("chunk-dropped-with-unacked-delta", Self::ChunkDroppedWithUnackedDelta),
        ("reads-not-confirmed", Self::ReadsNotConfirmed),
        ("slots-served-while-handed-off", Self::SlotsServedWhileHandedOff),
        ("earlier-imports-kept", Self::EarlierImportsKept),
        ("keys-by-two-maps", Self::KeysByTwoMaps),
        ("hand-off-between-any-tenures", Self::HandOffBetweenAnyTenures),
        ("keys-without-whole-map", Self::KeysWithoutWholeMap),
        ("kept-chunks-written", Self::KeptChunksWritten),
        ("epoch-for-id", Self::EpochForId),
    ];
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
