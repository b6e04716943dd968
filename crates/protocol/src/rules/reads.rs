//! When a read may be answered (P4).

use super::{Mutant, Rules, nth_largest};
use crate::parameters::Reads;
use paritas_base::Time;

impl Rules {
    /// P4.1: a read is answered once `acked` has reached the last delta on its key.
    pub fn may_see(self, acked: u64, need: u64) -> bool {
        acked >= need || self.breaks(Mutant::ReadDoesNotWaitForAck)
    }

    /// P4.2: reads may leave until the `quorum`-th latest of the leases that started members have granted, each with
    /// whether the member is Live: Filling ones count. `None`: fewer than the quorum have started.
    pub(crate) fn leased_until(
        self,
        leases: impl Iterator<Item = (bool, Time)> + Clone,
        quorum: usize,
    ) -> Option<Time> {
        if self.breaks(Mutant::LeaseFromLiveMembersOnly) {
            return leases.filter(|(live, _)| *live).map(|(_, until)| until).min();
        }
        let quorum = if self.breaks(Mutant::LeasesFromTooFew) {
            (quorum - 1).max(1)
        } else {
            quorum
        };
        nth_largest(leases.map(|(_, until)| until), quorum)
    }

    /// P4.6: whether reads wait until members confirm that they know no later owner.
    pub(crate) fn are_confirmed(self, reads: Reads) -> bool {
        reads == Reads::Confirmed && !self.breaks(Mutant::ReadsNotConfirmed)
    }

    /// P4.6: a read is answered when this time is not before it: the `quorum`-th latest time at which members were
    /// asked what they have confirmed since. `None`: fewer than the quorum have started.
    pub(crate) fn confirmed_at(self, asked: impl Iterator<Item = Time> + Clone, quorum: usize) -> Option<Time> {
        nth_largest(asked, quorum)
    }
}

/// The key of a waiting reply whose value is looked up again, for [`Fault::ValueTakenAtRelease`](super::Fault). In
/// builds without mutants there is none.
#[derive(Clone, Default, Debug)]
pub struct TakenAgain {
    #[cfg(feature = "mutants")]
    key: Option<Vec<u8>>,
}

impl TakenAgain {
    /// Remembers a key, if there are mutants.
    #[inline]
    pub fn remember(&mut self, key: &[u8]) {
        #[cfg(feature = "mutants")]
        {
            self.key = Some(key.to_vec());
        }
        let _ = key;
    }

    /// The key that was remembered.
    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        #[cfg(feature = "mutants")]
        return self.key.as_deref();
        #[cfg(not(feature = "mutants"))]
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_of_filling_members_count_and_as_many_as_the_quorum_are_wanted() {
        let leases = [(true, Time(30)), (false, Time(20)), (true, Time(10))];
        let until = |quorum| Rules::default().leased_until(leases.into_iter(), quorum);
        assert_eq!(until(1), Some(Time(30)));
        assert_eq!(until(2), Some(Time(20)));
        assert_eq!(until(4), None);
    }
}
