//! Hash slots that move, and commands over all keys (P10.8).

use super::{Mutant, Rules};

impl Rules {
    /// P10.8: the coordinator accepts a change of the slot map only between the two tenures that agreed on it.
    pub fn may_hand_off(self, between_same_tenures: bool) -> bool {
        between_same_tenures || self.breaks(Mutant::HandOffBetweenAnyTenures)
    }

    /// P10.8: the destination begins an attempt by removing what an earlier one has left.
    pub(crate) fn removes_leftovers(self, had_an_attempt: bool) -> bool {
        had_an_attempt && !self.breaks(Mutant::EarlierImportsKept)
    }

    /// P10.8: a command over all keys fails if the slot map changed during it.
    pub fn same_map(self, begun_by: u64, now: u64) -> bool {
        begun_by == now || self.breaks(Mutant::KeysByTwoMaps)
    }

    /// P10.8: a command over all keys waits while no stream holds some slots, by the configurations known here.
    pub fn may_list_keys(self, map_is_whole: bool) -> bool {
        map_is_whole || self.breaks(Mutant::KeysWithoutWholeMap)
    }
}
