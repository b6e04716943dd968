//! When a read may be answered (P4).

use super::{Mutant, Rules, nth_largest};
use crate::parameters::Reads;
use paritas_base::Time;

impl Rules {
    /// P4.1: a read is answered once `acked` has reached the last delta on its key.
    pub fn may_see(self, acked: u64, need: u64) -> bool {
        acked >= need || self.breaks(Mutant::ReadDoesNotWaitForAck)
    }

    /// P4.2: reads may leave until the `quorum`-th latest lease of a started member ends. Filling members count as
    /// Live ones do; the flag says which a member is. `None`: fewer than the quorum have started.
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

    /// P4.6: whether reads wait for an answer of the members in place of a lease.
    pub(crate) fn are_confirmed(self, reads: Reads) -> bool {
        reads == Reads::Confirmed && !self.breaks(Mutant::ReadsNotConfirmed)
    }

    /// P4.6: reads up to this time are confirmed. Each started member has confirmed what it was asked at some time;
    /// it is the `quorum`-th latest of these times. `None`: fewer than the quorum have started.
    pub(crate) fn confirmed_at(self, asked: impl Iterator<Item = Time> + Clone, quorum: usize) -> Option<Time> {
        nth_largest(asked, quorum)
    }
}

/// The key of a waiting reply whose value is looked up again, for the fault `ValueTakenAtRelease`. In builds without
/// mutants it is always empty.
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
