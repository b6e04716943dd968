//! From a new tenure to service (P5.1 to P5.5).

use super::{Mutant, Rules};
use paritas_base::configuration::{Configuration, Tenure};
use paritas_base::{Term, Time};

impl Rules {
    /// P5.3: the number of Live members that know the stream and must have answered `Seal`. Every ack quorum and every
    /// lease quorum contains at least one of them.
    pub(crate) fn seal_quorum(self, parity: u8, ack_quorum: u8) -> usize {
        let quorum = usize::from(parity - ack_quorum) + 1;
        if self.breaks(Mutant::SealFromTooFew) {
            return (quorum - 1).max(1);
        }
        quorum
    }

    /// P5.3: the log that becomes the cut: the one with the greatest (term, recv), and of equal ones the last.
    pub(crate) fn newest_log<T>(self, logs: impl Iterator<Item = (T, (Term, u64))>) -> Option<T> {
        let without_term = self.breaks(Mutant::CutWithoutTerm);
        let rank = |(_, (term, recv)): &(T, (Term, u64))| (if without_term { Term::default() } else { *term }, *recv);
        logs.max_by_key(rank).map(|(log, _)| log)
    }

    /// P5.5: whether the configuration certifies that the holder of a lease has ended. A certificate is for one
    /// incarnation of one node, and clears no other holder. `holders` are the holders of all leases for which the
    /// takeover waits; only a mutant uses them.
    pub(crate) fn is_certified(
        self,
        configuration: &Configuration,
        holder: &Tenure,
        mut holders: impl Iterator<Item = Tenure>,
    ) -> bool {
        let is_gone = |tenure: &Tenure| configuration.is_gone(tenure.node, tenure.incarnation);
        if self.breaks(Mutant::OneCertificateClearsAll) {
            return holders.any(|tenure| is_gone(&tenure));
        }
        if self.breaks(Mutant::CertificateMatchedByNode) {
            return configuration.gone.iter().any(|(node, _)| *node == holder.node);
        }
        is_gone(holder)
    }

    /// P5.5, P5.12a: whether the holder of a lease has said that it will never serve again under exactly that tenure.
    pub(crate) fn has_yielded(self, holder: &Tenure, yielded: &[Tenure]) -> bool {
        let by_process = self.breaks(Mutant::YieldedNotMatchedOnTerm);
        let same_process = |tenure: &Tenure| (tenure.node, tenure.incarnation) == (holder.node, holder.incarnation);
        yielded
            .iter()
            .any(|tenure| tenure == holder || (by_process && same_process(tenure)))
    }

    /// P5.5: whether the wait for a lease of another tenure is over: it has run out, or its holder is certified to have
    /// ended or has yielded.
    pub(crate) fn wait_is_over(self, now: Time, until: Time, certified: bool, yielded: bool) -> bool {
        now >= until || certified || yielded || self.breaks(Mutant::NoLeaseWait)
    }

    /// P5.5: whether a directory from a log that ends at `recv` is complete: the log must reach the cut.
    pub(crate) fn is_complete_for(self, recv: u64, cut: u64) -> bool {
        recv >= cut || self.breaks(Mutant::DirectoryBelowCut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paritas_base::{Epoch, Incarnation, ListId, NodeId};

    fn tenure(node: u16, incarnation: u64, since: u32) -> Tenure {
        Tenure {
            node: NodeId(node),
            incarnation: Incarnation(incarnation),
            since: Epoch(since),
        }
    }

    #[test]
    fn a_seal_quorum_meets_every_ack_quorum() {
        for parity in 1..=4 {
            for ack_quorum in 1..=parity {
                let together = Rules::default().seal_quorum(parity, ack_quorum) + usize::from(ack_quorum);
                assert_eq!(together, usize::from(parity) + 1);
            }
        }
    }

    #[test]
    fn the_cut_is_of_the_latest_term_and_then_the_longest() {
        let newest = |logs: &[(u32, u64)]| {
            let logs = logs.iter().enumerate();
            Rules::default().newest_log(logs.map(|(at, (term, recv))| (at, (*term, *recv))))
        };
        assert_eq!(newest(&[(2, 5), (1, 9), (2, 4)]), Some(0));
        assert_eq!(newest(&[(2, 5), (2, 7), (1, 9)]), Some(1));
        assert_eq!(newest(&[(2, 5), (2, 5)]), Some(1));
        assert_eq!(newest(&[]), None);
    }

    #[test]
    fn a_certificate_is_of_one_incarnation_and_clears_no_other_holder() {
        let configuration = Configuration {
            list: ListId(0),
            epoch: Epoch(9),
            born: Epoch(1),
            data: 1,
            parity: 1,
            ack_quorum: 1,
            positions: Vec::new(),
            gone: vec![(NodeId(1), Incarnation(7))],
            lost: false,
            slots: Default::default(),
            id: 0,
            trail: Vec::new(),
            more: Default::default(),
        };
        let holders = [tenure(1, 7, 3), tenure(1, 8, 4), tenure(2, 7, 5)];
        let certified = |holder: &Tenure| Rules::default().is_certified(&configuration, holder, holders.into_iter());
        assert_eq!(holders.each_ref().map(certified), [true, false, false]);
    }

    #[test]
    fn who_yields_one_tenure_may_hold_a_lease_of_another() {
        let yielded = [tenure(1, 7, 3)];
        assert!(Rules::default().has_yielded(&tenure(1, 7, 3), &yielded));
        assert!(!Rules::default().has_yielded(&tenure(1, 7, 4), &yielded));
        assert!(!Rules::default().has_yielded(&tenure(1, 8, 3), &yielded));
    }

    #[test]
    fn a_lease_is_waited_for_until_one_of_three_things_has_happened() {
        let over = |now, certified, yielded| Rules::default().wait_is_over(Time(now), Time(10), certified, yielded);
        assert!(!over(9, false, false));
        assert!(over(10, false, false) && over(9, true, false) && over(9, false, true));
    }
}
