//! The way of a write, at the owner and at its members (P3).

use super::{Fault, Mutant, Rules, nth_largest};

/// What an owner knows of a member that has started (P3.7).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started {
    /// Live, not Filling.
    pub(crate) live: bool,
    /// The lease from it is in force.
    pub(crate) leased: bool,
    /// Its log reaches at least this seq.
    pub(crate) matched: u64,
}

impl Rules {
    /// P3.3: a member takes the delta that follows its log, and those that it has already. It takes none across a
    /// gap.
    pub(crate) fn follows(self, seq: u64, recv: u64) -> bool {
        seq <= recv + 1 || self.fault(Fault::GapAccepted)
    }

    /// P3.7: `acked` is the `quorum`-th largest seq that a started member has. Filling members count, and silent
    /// ones: the owner does not judge who is alive. `None`: fewer than the quorum have started.
    pub(crate) fn acked(self, started: impl Iterator<Item = Started> + Clone, quorum: usize) -> Option<u64> {
        if self.breaks(Mutant::OwnerJudgesWhoIsAlive) {
            return started
                .filter(|member| member.leased)
                .map(|member| member.matched)
                .min();
        }
        if self.breaks(Mutant::AcksIgnoreFillingMembers) {
            return started.filter(|member| member.live).map(|member| member.matched).min();
        }
        nth_largest(started.map(|member| member.matched), quorum)
    }

    /// P3.8: the owner keeps every delta after this seq. It is `stable`.
    pub(crate) fn kept_from(self, stable: u64, acked: u64, seq: u64) -> u64 {
        if self.breaks(Mutant::RawDeltasNotKept) {
            return seq;
        }
        if self.breaks(Mutant::RingTrimmedAtAcked) {
            return acked;
        }
        stable
    }

    /// P3.8: a member keeps every delta after this seq. It is the owner's `stable`, but at most where the member's
    /// log ends.
    pub(crate) fn kept_from_at_member(self, stable: u64, recv: u64) -> u64 {
        if self.breaks(Mutant::RawDeltasNotKept) {
            return recv;
        }
        stable.min(recv)
    }

    /// P3.9: a `Sync` has every delta after this seq. It is `stable`.
    pub(crate) fn sync_base(self, stable: u64, acked: u64) -> u64 {
        if self.breaks(Mutant::SyncFromAcked) {
            return acked;
        }
        stable
    }

    /// P3.10: the last seq at which a member's log, which reaches `recv`, and a `Sync`, which reaches `top`, have a
    /// delta of the same term. Up to that seq they have the same deltas. They agree up to `floor`, where one of them
    /// begins.
    pub(crate) fn agreed(self, recv: u64, top: u64, floor: u64, same_term: impl Fn(u64) -> bool) -> u64 {
        let mut agreed = recv.min(top);
        while agreed > floor && !same_term(agreed) && !self.breaks(Mutant::MatchByCut) {
            agreed -= 1;
        }
        agreed
    }

    /// P3.10: a member undoes every delta of its log after this seq. It is the last one at which log and `Sync`
    /// agree.
    pub(crate) fn undone_after(self, agreed: u64, recv: u64) -> u64 {
        if self.breaks(Mutant::VoidTailKept) {
            return recv;
        }
        agreed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(matched: &[u64]) -> impl Iterator<Item = Started> + Clone {
        matched.iter().map(|matched| Started {
            live: matched % 2 == 0,
            leased: false,
            matched: *matched,
        })
    }

    #[test]
    fn a_delta_is_taken_if_no_gap_is_before_it() {
        let taken = |seq| Rules::default().follows(seq, 7);
        assert_eq!([6, 7, 8, 9].map(taken), [true, true, true, false]);
    }

    #[test]
    fn filling_and_silent_members_count_towards_acked() {
        let rules = Rules::default();
        assert_eq!(rules.acked(started(&[4, 9, 7]), 3), Some(4));
        assert_eq!(rules.acked(started(&[4, 9, 7]), 2), Some(7));
        assert_eq!(rules.acked(started(&[4, 9]), 3), None);
    }

    #[test]
    fn a_member_keeps_what_is_not_stable_and_no_more_than_it_has() {
        let rules = Rules::default();
        assert_eq!(rules.kept_from(3, 5, 8), 3);
        assert_eq!(rules.kept_from_at_member(3, 8), 3);
        assert_eq!(rules.kept_from_at_member(9, 8), 8);
    }

    #[test]
    fn logs_agree_up_to_the_last_delta_of_the_same_term() {
        // By seq, from 1 on.
        let agreed = |ours: &[u32], theirs: &[u32], floor| {
            let same = |seq| ours.get(seq as usize - 1) == theirs.get(seq as usize - 1);
            Rules::default().agreed(ours.len() as u64, theirs.len() as u64, floor, same)
        };
        assert_eq!(agreed(&[1, 1, 1], &[1, 1, 1, 1], 0), 3);
        assert_eq!(agreed(&[1, 1, 2, 2], &[1, 1, 1], 0), 2);
        assert_eq!(agreed(&[2, 2], &[1, 1], 0), 0);
        assert_eq!(
            agreed(&[2, 2, 2], &[1, 1, 1], 2),
            2,
            "what is below the floor is not looked at"
        );
    }
}
