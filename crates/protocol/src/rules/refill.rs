//! How a parity position is refilled (P6, P11.3).

use super::{Mutant, Rules};
use paritas_base::{Term, Version};

impl Rules {
    /// P6.3: buffered deltas after this seq are folded into the encoded parity. It is the owner's seq when it sent the
    /// chunk. The chunk's version cannot be used instead: a chunk that was freed long ago has version 0.
    pub(crate) fn folded_after(self, as_of: u64, version: Version) -> u64 {
        if self.breaks(Mutant::VersionForAsOf) {
            return version.seq();
        }
        as_of
    }

    /// P6.3: a data chunk may be encoded once the log here reaches `as_of`, and only if the log is of the term in
    /// which the owner sent the chunk.
    pub(crate) fn may_encode(self, log: (Option<Term>, u64), sent: (Term, u64)) -> bool {
        let ((log_term, recv), (term, as_of)) = (log, sent);
        (recv >= as_of || self.breaks(Mutant::ValidBeforeLogCaughtUp))
            && (log_term == Some(term) || self.breaks(Mutant::FetchWithoutTerm))
    }

    /// P6.7: whether an old parity chunk of the stash is valid: it must stand for exactly the versions of the owners.
    pub(crate) fn may_reuse(self, stashed: &[Version], owners: &[Version]) -> bool {
        let without_term = self.breaks(Mutant::ParityStashWithoutTerm);
        let same = |(a, b): (&Version, &Version)| a == b || (without_term && a.seq() == b.seq());
        stashed.iter().zip(owners).all(same)
    }

    /// P6.7, P11.3: the same for a parity chunk on the disk of a log node.
    pub(crate) fn may_reuse_on_disk(self, logged: &[Version], owners: &[Version]) -> bool {
        logged.len() == owners.len()
            && (self.may_reuse(logged, owners) || self.breaks(Mutant::LoggedParityAtAnyVersion))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(term: u32, seq: u64) -> Version {
        Version::new(term, seq)
    }

    #[test]
    fn a_chunk_is_encoded_once_the_log_of_its_term_has_caught_up() {
        let may = |log_term: Option<u32>, recv| Rules::default().may_encode((log_term, recv), (2, 10));
        assert!(may(Some(2), 10) && may(Some(2), 11));
        assert!(!may(Some(2), 9) && !may(Some(1), 11) && !may(Some(3), 11) && !may(None, 11));
    }

    #[test]
    fn old_parity_is_reused_only_at_exactly_the_versions_of_all_owners() {
        let rules = Rules::default();
        let owners = [version(2, 5), version(1, 6)];
        assert!(rules.may_reuse(&owners, &owners) && rules.may_reuse_on_disk(&owners, &owners));
        for other in [[version(1, 5), version(1, 6)], [version(2, 5), version(1, 7)]] {
            assert!(!rules.may_reuse(&other, &owners) && !rules.may_reuse_on_disk(&other, &owners));
        }
        assert!(
            !rules.may_reuse_on_disk(&owners[..1], &owners),
            "of another number of owners"
        );
    }
}
