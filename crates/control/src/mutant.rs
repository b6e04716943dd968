//! Rules of this room that can be left out, to show that the simulator sees it (docs/reliability.md).

/// A rule left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // The comments name the rule.
pub enum Mutant {
    /// P10.10: every peer is taken to say that it does not hear a silent node.
    NoVotes,
    /// P10.11: silence counts from the coordinator's start.
    NoGrace,
    /// P10.11: any number of silent failure domains is removed at once.
    NoHold,
    /// P10.13: a new incarnation ends the present one at once.
    RunningAdmitted,
    /// P10.14: of two configurations the one with the higher epoch counts, whatever its history.
    EpochForId,
    /// P10.16: a coordinator decides although a node has what its store lacks.
    BehindCommits,
    /// P10.16: a coordinator decides before anybody has told what is installed.
    NoWitness,
    /// P10.16: a configuration leaves before anybody knows its id.
    ReleasedUnheard,
    /// P10.16: a node's record counts although a later one is known.
    OldLivesBack,
    /// P10.1: a commit does not check who has the store.
    LeaderNotCompared,
}

impl Mutant {
    /// All of them, with the names by which a test asks for them.
    pub const ALL: [(&'static str, Self); 10] = [
        ("no-votes", Self::NoVotes),
        ("no-grace", Self::NoGrace),
        ("no-hold", Self::NoHold),
        ("running-admitted", Self::RunningAdmitted),
        ("epoch-for-id", Self::EpochForId),
        ("behind-commits", Self::BehindCommits),
        ("no-witness", Self::NoWitness),
        ("released-unheard", Self::ReleasedUnheard),
        ("old-lives-back", Self::OldLivesBack),
        ("leader-not-compared", Self::LeaderNotCompared),
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
