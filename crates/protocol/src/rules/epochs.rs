//! Who may say what: epochs, tenures, incarnations, histories (P2, P3.3, P10.14).

use super::{Mutant, Rules};
use paritas_base::configuration::{Lineage, Tenure};
use paritas_base::{Epoch, Incarnation, NodeId, Term, Version};

impl Rules {
    /// P2.2: a message that was sent under an older epoch than the installed one is not acted on.
    pub(crate) fn is_stale(self, sent_under: Epoch, installed: Epoch) -> bool {
        sent_under < installed && !self.breaks(Mutant::NoEpochFence)
    }

    /// P2.5: a node speaks the version that is active, whatever it could.
    pub(crate) fn spoken(self, active: u16, highest: u16) -> u16 {
        match self.breaks(Mutant::SpeaksHighest) {
            true => highest,
            false => active,
        }
    }

    /// P3.3: a member acts only on what comes from the owner by the installed configuration.
    pub(crate) fn is_from_owner(self, owner: &Tenure, from: (NodeId, Incarnation)) -> bool {
        (owner.node, owner.incarnation) == from || self.breaks(Mutant::NoEpochFence)
    }

    /// P3.3: what a member acts on is of the term of its log.
    pub(crate) fn same_term(self, sent: Term, own: Term) -> bool {
        sent == own || self.breaks(Mutant::NoEpochFence)
    }

    /// P2.3: a role is kept iff its tenure is unchanged: node, incarnation, and the epoch since when.
    pub(crate) fn same_tenure(self, before: Tenure, now: Tenure) -> bool {
        let same_process = (before.node, before.incarnation) == (now.node, now.incarnation);
        before == now || (same_process && self.breaks(Mutant::TenureByNode))
    }

    /// P2.4: a stashed chunk is used only at exactly the wanted version, term included.
    pub(crate) fn stash_fits(self, stashed: Version, wanted: Version) -> bool {
        stashed == wanted || (stashed.seq() == wanted.seq() && self.breaks(Mutant::StashWithoutTerm))
    }

    /// P10.14: a configuration is installed only over one of the same history. `found` is how the two histories are
    /// related; the result is what the node acts on.
    pub(crate) fn lineage(self, found: Lineage) -> Lineage {
        if self.breaks(Mutant::EpochForId) {
            return Lineage::Follows;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenure_is_another_if_it_began_at_another_epoch() {
        let rules = Rules::default();
        let tenure = |node, incarnation, since| Tenure {
            node: NodeId(node),
            incarnation: Incarnation(incarnation),
            since: Epoch(since),
        };
        assert!(rules.same_tenure(tenure(1, 7, 3), tenure(1, 7, 3)));
        for other in [tenure(1, 7, 4), tenure(1, 8, 3), tenure(2, 7, 3)] {
            assert!(!rules.same_tenure(tenure(1, 7, 3), other));
        }
    }

    #[test]
    fn a_stashed_chunk_of_another_term_does_not_fit() {
        let version = |term, seq| Version::new(term, seq);
        assert!(Rules::default().stash_fits(version(2, 9), version(2, 9)));
        assert!(!Rules::default().stash_fits(version(1, 9), version(2, 9)));
        assert!(!Rules::default().stash_fits(version(2, 8), version(2, 9)));
    }
}
