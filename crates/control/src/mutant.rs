//! Rules of this crate that a test can disable, to show that the simulator finds the fault (docs/reliability.md).

/// A disabled rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // The comments name the rule.
pub enum Mutant {
    /// P10.10: every peer counts as not hearing a silent node.
    NoVotes,
    /// P10.11: silence counts from the coordinator's start.
    NoGrace,
    /// P10.11: any number of silent failure domains is removed at once.
    NoHold,
    /// P10.13: a new incarnation ends the present one at once.
    RunningAdmitted,
    /// P10.13: a new incarnation ends a silent one, also where the lists cannot do without that one.
    SilentReplaced,
    /// P10.14: of two configurations the one with the higher epoch counts, even from another history.
    EpochForId,
    /// P10.16: a coordinator decides, and takes in new processes, although a node has a configuration that its store
    /// lacks.
    BehindCommits,
    /// P10.16: a coordinator decides before any node has reported its configurations.
    NoWitness,
    /// P10.16: a configuration is sent before any node knows its id.
    ReleasedUnheard,
    /// P10.16: a node's record counts although a later one is known.
    OldLivesBack,
    /// P10.18: a store is made anew without a silent process that holds positions or is its node's latest, if another
    /// one has its node's id.
    AdoptEarly,
    /// P10.1: a commit does not check that the store is as its coordinator left it.
    HeadNotCompared,
    /// P10.1: after a commit that was not confirmed, a store of the same opening is read, however old it is.
    ReloadOfAnyStore,
    /// P10.1: the number of an attempt that failed is used again.
    AttemptUsedAgain,
    /// P10.20: a process that may end says that it has, while its shard still serves.
    GoneBeforeTheShardStopped,
    /// P10.20: a process that may end, and has not ended yet, counts as one that stays.
    LeaverCounts,
    /// P10.10, P10.20: a heartbeat proves that its sender runs, however long it was on its way.
    LateFrameProves,
    /// P10.21: a version becomes active although a process that has not ended cannot speak it.
    ActivatedTooEarly,
}

impl Mutant {
    /// All of them, with the names by which a test asks for them.
    pub const ALL: [(&'static str, Self); 18] = [
        ("no-votes", Self::NoVotes),
        ("no-grace", Self::NoGrace),
        ("no-hold", Self::NoHold),
        ("running-admitted", Self::RunningAdmitted),
        ("silent-replaced", Self::SilentReplaced),
        ("epoch-for-id", Self::EpochForId),
        ("behind-commits", Self::BehindCommits),
        ("no-witness", Self::NoWitness),
        ("released-unheard", Self::ReleasedUnheard),
        ("old-lives-back", Self::OldLivesBack),
        ("adopt-early", Self::AdoptEarly),
        ("head-not-compared", Self::HeadNotCompared),
        ("reload-of-any-store", Self::ReloadOfAnyStore),
        ("attempt-used-again", Self::AttemptUsedAgain),
        ("gone-before-the-shard-stopped", Self::GoneBeforeTheShardStopped),
        ("leaver-counts", Self::LeaverCounts),
        ("late-frame-proves", Self::LateFrameProves),
        ("activated-too-early", Self::ActivatedTooEarly),
    ];
}

/// Which rule is left out of one machine. None ever is without the test feature.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Broken {
    #[cfg(feature = "mutants")]
    pub(crate) mutant: Option<Mutant>,
}

impl Broken {
    #[inline(always)]
    pub(crate) fn is(self, mutant: Mutant) -> bool {
        #[cfg(feature = "mutants")]
        return self.mutant == Some(mutant);
        #[cfg(not(feature = "mutants"))]
        {
            let _ = mutant;
            false
        }
    }
}
