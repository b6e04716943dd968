//! Which chunks may be used together, kept and dropped (P5.7 to P5.10, P9).

use super::{Mutant, Rules};
use paritas_base::{Term, Version};

impl Rules {
    /// P5.7a: a parity chunk may be used if its member's log is of the owner's term and reaches the cut.
    pub(crate) fn parity_fits(self, (term, recv): (Term, u64), (own, cut): (Term, u64)) -> bool {
        (term == own || self.breaks(Mutant::ReadParityWithoutTerm))
            && (recv >= cut || self.breaks(Mutant::ReadParityWithoutRecv))
    }

    /// P5.7a, P9.3: a chunk that this term has changed is reconstructed at exactly the version that it has here.
    pub(crate) fn repair_fits(self, here: Version, term: Term, parity_has: Option<Version>) -> bool {
        here.term() < term || parity_has == Some(here) || self.breaks(Mutant::MendedAtAnyVersion)
    }

    /// P5.7c: a data chunk is used with a parity only at exactly the version that the parity stands for.
    pub(crate) fn source_fits(self, source: Version, stood_for: Version) -> bool {
        source == stood_for || self.breaks(Mutant::NoVersionMatch)
    }

    /// P5.7d: parities are used together only if they stand for the same versions of all chunks.
    pub(crate) fn parities_fit(self, one: impl Iterator<Item = Version>, other: impl Iterator<Item = Version>) -> bool {
        self.breaks(Mutant::NoVersionMatch) || self.breaks(Mutant::ParitiesNotCompared) || one.eq(other)
    }

    /// P5.9: a reconstructed chunk is used only if it has a sum that members tell of it.
    pub(crate) fn is_reported_sum(self, found: u32, mut reported: impl Iterator<Item = u32>) -> bool {
        reported.any(|reported| reported == found)
            || self.breaks(Mutant::NoVersionMatch)
            || self.breaks(Mutant::ParitiesNotCompared)
    }

    /// P6.3: a chunk that comes out of a log node's parity is used only if all other chunks have the versions of that
    /// parity. `None`: no parity came.
    pub(crate) fn substitute_fits(
        self,
        stood_for: Option<impl Iterator<Item = Version>>,
        come: impl Iterator<Item = Version>,
    ) -> bool {
        stood_for.is_some_and(|stood_for| stood_for.eq(come)) || self.breaks(Mutant::NoVersionMatch)
    }

    /// P9.1: a chunk of another owner is used only if it has its sum.
    pub(crate) fn may_use(self, has_its_sum: bool) -> bool {
        has_its_sum || self.breaks(Mutant::NoVersionMatch)
    }

    /// P9.3: a chunk that does not have its sum is set aside.
    pub(crate) fn is_right(self, found: u32, kept: u32) -> bool {
        found == kept || self.breaks(Mutant::WrongChunkKept)
    }

    /// P14.12: each unit of a large value that is kept is compared with its sum.
    pub(crate) fn compares_units(self) -> bool {
        !self.breaks(Mutant::UnitsNotScrubbed)
    }

    /// P9.2: parity is wrong if it is not what the data encodes to at the very versions that it stands for.
    pub(crate) fn parity_is_wrong(self, same: bool, of_same_versions: bool) -> bool {
        !same && of_same_versions && !self.breaks(Mutant::ParityNotScrubbed)
    }

    /// P5.10: no chunk is dropped that has a delta of this term above `acked`: members may not have it.
    pub(crate) fn may_drop(self, version: Version, term: Term, acked: u64) -> bool {
        version.term() < term || version.seq() <= acked || self.breaks(Mutant::ChunkDroppedWithUnackedDelta)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(term: u32, seq: u64) -> Version {
        Version::new(term, seq)
    }

    #[test]
    fn a_parity_of_another_term_or_from_before_the_cut_does_not_fit() {
        let fits = |term, recv| Rules::default().parity_fits((term, recv), (2, 10));
        assert!(fits(2, 10) && fits(2, 11));
        assert!(!fits(1, 11) && !fits(3, 11) && !fits(2, 9));
    }

    #[test]
    fn a_chunk_changed_in_this_term_is_repaired_at_its_own_version_alone() {
        let fits = |here, parity_has| Rules::default().repair_fits(here, 2, parity_has);
        assert!(fits(version(2, 5), Some(version(2, 5))));
        assert!(!fits(version(2, 5), Some(version(2, 4))) && !fits(version(2, 5), None));
        assert!(
            fits(version(1, 5), Some(version(1, 9))),
            "the cut may be past what a chunk of before says"
        );
    }

    #[test]
    fn parities_are_compared_over_all_positions() {
        let fit = |one: &[Version], other: &[Version]| {
            Rules::default().parities_fit(one.iter().copied(), other.iter().copied())
        };
        assert!(fit(&[version(1, 5), version(1, 6)], &[version(1, 5), version(1, 6)]));
        assert!(!fit(&[version(1, 5), version(1, 6)], &[version(1, 5), version(2, 6)]));
        assert!(!fit(&[version(1, 5)], &[version(1, 5), version(1, 6)]));
    }

    #[test]
    fn a_sum_that_no_member_reported_is_wrong() {
        assert!(Rules::default().is_reported_sum(7, [8, 7].into_iter()));
        assert!(!Rules::default().is_reported_sum(7, [8].into_iter()));
        assert!(!Rules::default().is_reported_sum(7, [].into_iter()));
    }

    #[test]
    fn nothing_is_lent_without_a_parity_or_at_other_versions() {
        let fits = |stood_for: Option<Vec<Version>>| {
            Rules::default().substitute_fits(stood_for.map(Vec::into_iter), [version(1, 5)].into_iter())
        };
        assert!(fits(Some(vec![version(1, 5)])));
        assert!(!fits(Some(vec![version(1, 4)])) && !fits(None));
    }

    #[test]
    fn a_chunk_with_an_unacked_delta_of_this_term_stays() {
        let may_drop = |version| Rules::default().may_drop(version, 2, 10);
        assert!(may_drop(version(2, 10)) && may_drop(version(1, 99)));
        assert!(!may_drop(version(2, 11)));
    }
}
