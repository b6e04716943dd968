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
    waited: bool,
}

impl TurnBudget {
    /// The budget of a first turn.
    pub const fn new(steps: u64) -> Self {
        Self {
            left: steps,
            waited: false,
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
        self.waited |= self.left == 0;
        self.left > 0
    }

    /// A command goes on in the next turn: it has found that its work takes longer than this one may.
    pub const fn yield_to_next(&mut self) {
        (self.left, self.waited) = (0, true);
    }

    /// Begins the next turn, with this number of steps. Returns whether a command waits for it.
    pub const fn begin(&mut self, steps: u64) -> bool {
        let waited = self.waited;
        *self = Self::new(steps);
        waited
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
        assert!(!budget.begin(100), "nobody has waited");
        budget.spend(100);
        assert!(!budget.admits());
        assert!(budget.begin(100));
        assert!(budget.admits() && budget.left() == 100);
    }
}
