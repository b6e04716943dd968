//! The work that commands may do in one turn.

/// The work that commands may still do in this turn, in *steps*. A step is about a nanosecond on a common machine.
/// Steps are counted, not timed, so that a run can be replayed (P10.2b).
///
/// Only work that is not bounded by the size of a command is counted: walks over keys, patterns, commands with many
/// keys. A command that finds nothing left waits for the next turn. It may overdraw the rest by what it does between
/// two looks at the budget, so it looks often.
#[derive(Clone, Debug)]
pub struct TurnBudget {
    left: u64,
    /// Steps that nobody may take until [`Self::open`].
    reserved: u64,
    refused: bool,
}

impl TurnBudget {
    /// The budget of a first turn.
    pub const fn new(steps: u64) -> Self {
        Self {
            left: steps,
            reserved: 0,
            refused: false,
        }
    }

    /// Steps that are left.
    pub const fn left(&self) -> u64 {
        self.left
    }

    /// Takes work that was done.
    pub const fn spend(&mut self, steps: u64) {
        self.left = self.left.saturating_sub(steps);
    }

    /// Whether a command may begin such work. If not, the command must wait for the next turn.
    pub const fn admits(&mut self) -> bool {
        self.refused |= self.left == 0;
        self.left > 0
    }

    /// A command goes on in the next turn: it has found that its work takes longer than this one may.
    pub const fn yield_to_next(&mut self) {
        (self.left, self.refused) = (0, true);
    }

    /// Whether a command was told to wait for the next turn since this was last asked.
    pub const fn take_refused(&mut self) -> bool {
        core::mem::replace(&mut self.refused, false)
    }

    /// Begins the next turn, with this number of steps. If they are reserved, nobody may take them until
    /// [`Self::open`].
    pub const fn begin(&mut self, steps: u64, is_reserved: bool) {
        *self = Self::new(steps);
        if is_reserved {
            (self.left, self.reserved) = (0, steps);
        }
    }

    /// Gives free what was reserved. Returns whether anything was.
    pub const fn open(&mut self) -> bool {
        let reserved = core::mem::replace(&mut self.reserved, 0);
        self.left += reserved;
        reserved > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_nothing_left_waits_for_the_next_turn() {
        let mut budget = TurnBudget::new(100);
        assert!(budget.admits());
        budget.spend(99);
        assert!(budget.admits());
        budget.spend(500);
        assert!(!budget.take_refused(), "nobody has waited");
        assert!(!budget.admits());
        assert!(budget.take_refused() && !budget.take_refused());
        budget.begin(100, false);
        assert!(budget.admits() && budget.left() == 100 && !budget.open());
    }

    #[test]
    fn reserved_steps_are_nobodys_until_they_are_opened() {
        let mut budget = TurnBudget::new(100);
        budget.begin(100, true);
        assert!(!budget.admits());
        assert!(budget.open() && !budget.open());
        assert!(budget.admits() && budget.left() == 100);
    }
}
