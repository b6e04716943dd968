//! The rules of docs/protocol.md that a test may break. Each is a predicate or a small pure function.
//!
//! A *mutant* is a build in which one rule is broken on purpose, to show that the simulator notices. [`Rules`] knows
//! which rule that is. It is `Copy` and passed by value. Without the feature `mutants` it has no size, and every
//! function here is the rule as written.
//!
//! A mutant that cannot be told as the answer of a predicate changes what a machine does: it is a [`Fault`], and the
//! machine asks for it in one line.

mod chunks;
mod epochs;
mod hash_slots;
mod reads;
mod refill;
mod takeover;
mod writes;

pub use reads::TakenAgain;
pub(crate) use writes::Started;

/// The rules, of which a test may have broken one.
#[derive(Clone, Copy, Default, Debug)]
pub struct Rules {
    #[cfg(feature = "mutants")]
    broken: Option<Mutant>,
}

#[cfg(not(feature = "mutants"))]
const _: () = assert!(size_of::<Rules>() == 0);

/// Something that a machine does against a rule if a test asks for it. In each comment below, the first sentence is the
/// rule, and the second is what the machine does instead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// P1.3: the changes of a command are one delta. It closes the delta after each change.
    CommandCutInTwo,
    /// P1.9: a transaction does nothing if a watched key has changed. It does not look.
    WatchForgotten,
    /// P1.9: a watched key counts as changed after a takeover. Its version is the number of its newest delta alone.
    WatchWithoutTerm,
    /// P1.9: the reply to a transaction waits for the deltas that its commands have read. It does not.
    DraftForgetsReads,
    /// P1.9: a large value of a transaction is sent anew if it is another when the transaction runs again. The old one
    /// goes on.
    DraftWithoutBasis,
    /// P1.10: a command that was decoded before a SELECT ran has its place found again. It goes where its key lies in
    /// the database of before.
    PlaceBeforeSelect,
    /// P1.10: a forwarded command carries the database of its client. It runs in database 0.
    ForwardedWithoutDatabase,
    /// P1.10: objects of hash slots that are handed off carry their database. They come to database 0.
    ImportedWithoutDatabase,
    /// P1.10: a client has the database that its transaction has chosen only if that was done. It has it always.
    SelectedByGivenUp,
    /// P3.3: a member takes no delta across a gap. It takes it, and forgets its ring.
    GapAccepted,
    /// P3.10: a newcomer keeps the deltas of a `Sync` in its ring. It folds them and forgets them.
    NewcomerKeepsNoDeltas,
    /// P3.10: deltas that the owner does not have are undone. They are dropped, and the parity stays.
    DroppedWithoutUndo,
    /// P4.1: a reply has the value as it was read. It gets the value at the time of the release.
    ValueTakenAtRelease,
    /// P5.1: a tenure cuts once. A new epoch in Push or Wait makes the owner seal and cut again.
    SecondCut,
    /// P5.3: the cut is one member's ring. Deltas of other rings replace those of the same seq.
    UnionOfRings,
    /// P5.4: an owner stays in Push until the ack quorum has the cut. It goes on at once.
    ServeBeforePush,
    /// P5.10: no chunk is dropped after the owner has asked to become Live. A stand-in goes on dropping.
    DroppedAfterAskingLive,
    /// P5.12a: an owner does not yield what the installed configuration gives it. It yields when it is asked.
    OwnerYieldsWhenAsked,
    /// P5.13: the commands for a stream that does not serve wait together. Each of them waits for its own time.
    CommandsWaitInTurn,
    /// P6.2: deltas of a stripe that is being fetched are buffered. They are not.
    NotBuffered,
    /// P6.6: a stripe that a delta has touched is fetched. It is valid as zeros if no `Alloc` names it.
    TouchedNotFetched,
    /// P8.2: stripes are used within the members' credit. The owner uses as many as it likes.
    CreditNotAwaited,
    /// P8.4: an access after the expiry time deletes the entry. It answers nil, and leaves the entry.
    ExpiryWithoutDelta,
    /// P8.7: writers leave the headroom of memory free. They may fill all of it.
    HeadroomWritten,
    /// P10.8: commands wait while their slots are frozen for a hand-off. They are served.
    FrozenSlotsServed,
    /// P10.8: a body that was sent before the slots are frozen is used for an object with the same record. It is used
    /// for any object of the same key.
    BodyOfAnyRecord,
    /// P14.2: an object names a large value when every holder has its part. It does when all units were sent.
    PutBeforeKept,
    /// P14.18: COMMIT waits until each holder has said that it keeps its part. The word of the client counts.
    ClientsWordCounts,
    /// P14.18: the key of COMMIT is that of STAGE. It is any.
    CommitOfAnotherKey,
    /// P14.21: the groups of a long reply are pinned until it is read. They are not.
    LongReplyUnpinned,
    /// P14.21: the command of a reply whose value cannot be read is sent again only if it has changed nothing. A write
    /// is sent again too.
    WriteBegunAgain,
    /// P14.21: and only if nothing of its reply was sent. It is sent again in the middle of the reply.
    BegunAgainInReply,
    /// P14.6: a holder asks for inventories from time to time.
    InventoryAskedOnce,
    /// P14.6: an inventory names staged groups too. It does not.
    StagedUnlisted,
    /// P14.3: a group is alive while any object names it. The second object that names it is not counted.
    CopyNotCounted,
    /// P14.3: a group is alive until the delta that removed its last object is stable. It dies with the delta.
    FreedBeforeStable,
    /// P14.10: a change of class counts if its object has not changed since its value was read. It counts always.
    SwapWithoutCompare,
    /// P14.1: a value gets the class that its command gives it. It gets that of rules and settings.
    ClassOfWriteForgotten,
    /// P14.15: a change of class by reads counts if its object has not changed since. It counts always.
    HotnessWithoutCompare,
    /// P14.6: an owner answers with lists when it has seen every object. It answers at once.
    ListedBeforeLearnt,
    /// P14.9: a position asks to become Live when it has its parts of large values. It does not wait for them.
    LiveWithoutParts,
    /// P14.20: the fingerprints of parts that a client has written are compared. They are not.
    FingerprintNotCompared,
}

/// A rule that is broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mutant {
    /// What a machine does against a rule.
    Does(Fault),

    // Versions, epochs, tenures, histories.
    SpeaksHighest,
    NoEpochFence,
    TenureByNode,
    StashWithoutTerm,
    EpochForId,

    // Writes.
    OwnerJudgesWhoIsAlive,
    AcksIgnoreFillingMembers,
    RawDeltasNotKept,
    RingTrimmedAtAcked,
    SyncFromAcked,
    MatchByCut,
    VoidTailKept,

    // Reads.
    ReadDoesNotWaitForAck,
    LeasesFromTooFew,
    LeaseFromLiveMembersOnly,
    ReadsNotConfirmed,

    // Takeover.
    SealFromTooFew,
    CutWithoutTerm,
    NoLeaseWait,
    CertificateMatchedByNode,
    OneCertificateClearsAll,
    YieldedNotMatchedOnTerm,
    DirectoryBelowCut,

    // Chunks.
    NoVersionMatch,
    ParitiesNotCompared,
    ReadParityWithoutTerm,
    ReadParityWithoutRecv,
    MendedAtAnyVersion,
    ChunkDroppedWithUnackedDelta,
    WrongChunkKept,
    UnitsNotScrubbed,

    // Refill of parity.
    VersionForAsOf,
    ValidBeforeLogCaughtUp,
    FetchWithoutTerm,
    ParityStashWithoutTerm,
    LoggedParityAtAnyVersion,
    ParityNotScrubbed,

    // Hash slots.
    HandOffBetweenAnyTenures,
    EarlierImportsKept,
    KeysByTwoMaps,
    KeysWithoutWholeMap,
}

impl Rules {
    /// Whether a machine is to do this against the rule.
    #[inline(always)]
    pub fn fault(self, fault: Fault) -> bool {
        self.breaks(Mutant::Does(fault))
    }

    #[inline(always)]
    fn breaks(self, mutant: Mutant) -> bool {
        #[cfg(feature = "mutants")]
        return self.broken == Some(mutant);
        #[cfg(not(feature = "mutants"))]
        {
            let _ = mutant;
            false
        }
    }
}

#[cfg(feature = "mutants")]
impl Rules {
    /// With the rule broken that a test calls by this name. `None`: no mutant has the name.
    pub fn broken(name: &str) -> Option<Self> {
        let (_, mutant) = NAMES.iter().find(|(known, _)| *known == name)?;
        Some(Self { broken: Some(*mutant) })
    }

    /// The names of all mutants.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|(name, _)| *name)
    }
}

#[cfg(feature = "mutants")]
const NAMES: [(&str, Mutant); 83] = [
    ("owner-judges-who-is-alive", Mutant::OwnerJudgesWhoIsAlive),
    ("no-epoch-fence", Mutant::NoEpochFence),
    ("speaks-highest", Mutant::SpeaksHighest),
    ("serve-before-push", Mutant::Does(Fault::ServeBeforePush)),
    ("no-lease-wait", Mutant::NoLeaseWait),
    ("read-does-not-wait-for-ack", Mutant::ReadDoesNotWaitForAck),
    ("value-taken-at-release", Mutant::Does(Fault::ValueTakenAtRelease)),
    ("raw-deltas-not-kept", Mutant::RawDeltasNotKept),
    ("no-version-match", Mutant::NoVersionMatch),
    ("commands-wait-in-turn", Mutant::Does(Fault::CommandsWaitInTurn)),
    ("no-buffering-while-filling", Mutant::Does(Fault::NotBuffered)),
    ("gaps-accepted", Mutant::Does(Fault::GapAccepted)),
    ("void-tail-kept", Mutant::VoidTailKept),
    (
        "void-tail-dropped-without-undo",
        Mutant::Does(Fault::DroppedWithoutUndo),
    ),
    ("second-cut-in-one-term", Mutant::Does(Fault::SecondCut)),
    (
        "newcomer-keeps-no-raw-deltas",
        Mutant::Does(Fault::NewcomerKeepsNoDeltas),
    ),
    ("yielded-not-matched-on-term", Mutant::YieldedNotMatchedOnTerm),
    ("owner-yields-when-asked", Mutant::Does(Fault::OwnerYieldsWhenAsked)),
    ("one-certificate-clears-all", Mutant::OneCertificateClearsAll),
    ("certificate-matched-by-node", Mutant::CertificateMatchedByNode),
    ("fetch-without-term", Mutant::FetchWithoutTerm),
    ("valid-before-log-caught-up", Mutant::ValidBeforeLogCaughtUp),
    ("read-parity-without-term", Mutant::ReadParityWithoutTerm),
    ("read-parity-without-recv", Mutant::ReadParityWithoutRecv),
    ("parities-not-compared", Mutant::ParitiesNotCompared),
    ("version-for-as-of", Mutant::VersionForAsOf),
    ("directory-below-cut", Mutant::DirectoryBelowCut),
    ("credit-not-awaited", Mutant::Does(Fault::CreditNotAwaited)),
    ("alloc-without-untouched-test", Mutant::Does(Fault::TouchedNotFetched)),
    ("tenure-by-node", Mutant::TenureByNode),
    ("acks-ignore-filling-members", Mutant::AcksIgnoreFillingMembers),
    ("lease-from-live-members-only", Mutant::LeaseFromLiveMembersOnly),
    ("expiry-without-delta", Mutant::Does(Fault::ExpiryWithoutDelta)),
    ("command-cut-in-two", Mutant::Does(Fault::CommandCutInTwo)),
    ("watch-forgotten", Mutant::Does(Fault::WatchForgotten)),
    ("watch-without-term", Mutant::Does(Fault::WatchWithoutTerm)),
    ("draft-without-basis", Mutant::Does(Fault::DraftWithoutBasis)),
    ("draft-forgets-reads", Mutant::Does(Fault::DraftForgetsReads)),
    ("place-before-select", Mutant::Does(Fault::PlaceBeforeSelect)),
    (
        "forwarded-without-database",
        Mutant::Does(Fault::ForwardedWithoutDatabase),
    ),
    (
        "imported-without-database",
        Mutant::Does(Fault::ImportedWithoutDatabase),
    ),
    ("selected-by-given-up", Mutant::Does(Fault::SelectedByGivenUp)),
    ("seal-from-too-few", Mutant::SealFromTooFew),
    ("cut-without-term", Mutant::CutWithoutTerm),
    ("union-of-rings", Mutant::Does(Fault::UnionOfRings)),
    ("leases-from-too-few", Mutant::LeasesFromTooFew),
    ("ring-trimmed-at-acked", Mutant::RingTrimmedAtAcked),
    ("sync-from-acked", Mutant::SyncFromAcked),
    ("match-by-cut", Mutant::MatchByCut),
    ("wrong-chunk-kept", Mutant::WrongChunkKept),
    ("mended-at-any-version", Mutant::MendedAtAnyVersion),
    ("parity-not-scrubbed", Mutant::ParityNotScrubbed),
    ("units-not-scrubbed", Mutant::UnitsNotScrubbed),
    ("stash-without-term", Mutant::StashWithoutTerm),
    ("parity-stash-without-term", Mutant::ParityStashWithoutTerm),
    ("logged-parity-at-any-version", Mutant::LoggedParityAtAnyVersion),
    (
        "chunk-dropped-after-asking-live",
        Mutant::Does(Fault::DroppedAfterAskingLive),
    ),
    ("chunk-dropped-with-unacked-delta", Mutant::ChunkDroppedWithUnackedDelta),
    ("reads-not-confirmed", Mutant::ReadsNotConfirmed),
    ("slots-served-while-handed-off", Mutant::Does(Fault::FrozenSlotsServed)),
    ("earlier-imports-kept", Mutant::EarlierImportsKept),
    ("keys-by-two-maps", Mutant::KeysByTwoMaps),
    ("hand-off-between-any-tenures", Mutant::HandOffBetweenAnyTenures),
    ("keys-without-whole-map", Mutant::KeysWithoutWholeMap),
    ("kept-chunks-written", Mutant::Does(Fault::HeadroomWritten)),
    ("epoch-for-id", Mutant::EpochForId),
    ("put-before-kept", Mutant::Does(Fault::PutBeforeKept)),
    ("commit-of-another-key", Mutant::Does(Fault::CommitOfAnotherKey)),
    ("long-reply-unpinned", Mutant::Does(Fault::LongReplyUnpinned)),
    ("write-begun-again", Mutant::Does(Fault::WriteBegunAgain)),
    ("begun-again-in-reply", Mutant::Does(Fault::BegunAgainInReply)),
    ("inventory-asked-once", Mutant::Does(Fault::InventoryAskedOnce)),
    ("staged-unlisted", Mutant::Does(Fault::StagedUnlisted)),
    ("copy-not-counted", Mutant::Does(Fault::CopyNotCounted)),
    ("freed-before-stable", Mutant::Does(Fault::FreedBeforeStable)),
    ("swap-without-compare", Mutant::Does(Fault::SwapWithoutCompare)),
    (
        "class-of-the-write-forgotten",
        Mutant::Does(Fault::ClassOfWriteForgotten),
    ),
    ("hotness-without-compare", Mutant::Does(Fault::HotnessWithoutCompare)),
    ("body-of-any-record", Mutant::Does(Fault::BodyOfAnyRecord)),
    ("listed-before-learnt", Mutant::Does(Fault::ListedBeforeLearnt)),
    ("live-without-parts", Mutant::Does(Fault::LiveWithoutParts)),
    ("clients-word-counts", Mutant::Does(Fault::ClientsWordCounts)),
    ("fingerprint-not-compared", Mutant::Does(Fault::FingerprintNotCompared)),
];

/// The `n`-th largest, from 1 on; `None` if there are fewer. Members are few, and this runs for every ack: no list.
fn nth_largest<T: Ord + Copy>(values: impl Iterator<Item = T> + Clone, n: usize) -> Option<T> {
    let reached_by = |value: T| values.clone().filter(|other| *other >= value).count();
    values.clone().filter(|value| n > 0 && reached_by(*value) >= n).max()
}

#[cfg(test)]
mod tests {
    use super::nth_largest;

    #[test]
    fn the_nth_largest_counts_equal_values_and_wants_as_many() {
        let of = |values: &[u64], n| nth_largest(values.iter().copied(), n);
        assert_eq!(of(&[3, 9, 5], 1), Some(9));
        assert_eq!(of(&[3, 9, 5], 2), Some(5));
        assert_eq!(of(&[3, 9, 5], 3), Some(3));
        assert_eq!(of(&[4, 4], 2), Some(4));
        assert_eq!(of(&[3, 9, 5], 4), None);
        assert_eq!(of(&[3], 0), None);
        assert_eq!(of(&[], 1), None);
    }
}
