//! I9: the history of each key is linearizable (Wing and Gong's search with Lowe's memory of visited states).
//!
//! Values are integers, so that INCR works on what SET wrote. A write without an answer may have happened at any
//! time after it began, or never.

use paritas_base::{Set, Time, set};

/// What a client asked of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// GET.
    Get,
    /// SET.
    Set(i64),
    /// DEL.
    Delete,
    /// INCR.
    Increment,
}

/// What it was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// Nothing: it may have happened or not.
    Unknown,
    /// GET: the value; SET: done; DEL: 1 or 0 in `Some`; INCR: the new value.
    Done(Option<i64>),
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    /// When it was sent.
    pub(crate) begin: Time,
    /// When its answer came.
    pub(crate) end: Time,
    /// What was asked.
    pub(crate) action: Action,
    /// What came back.
    pub(crate) outcome: Outcome,
}

/// The most operations of one key that can be checked.
pub(crate) const OPERATIONS_MAX: usize = 128;
/// States looked at before the search is given up.
const VISITS_MAX: usize = 200_000;

/// Whether some order explains what every client saw. `None`: given up.
pub(crate) fn is_linearizable(history: &[Operation]) -> Option<bool> {
    let mut operations: Vec<Operation> = history
        .iter()
        .filter(|o| !(o.outcome == Outcome::Unknown && o.action == Action::Get))
        .copied()
        .collect();
    if operations.len() > OPERATIONS_MAX {
        return None;
    }
    operations.sort_by_key(|o| (o.begin, o.end));
    let mut search = Search {
        operations: &operations,
        seen: set(),
        visits: 0,
    };
    match search.go(0, None) {
        Found::Yes => Some(true),
        Found::No => Some(false),
        Found::GivenUp => None,
    }
}

struct Search<'a> {
    operations: &'a [Operation],
    seen: Set<(u64, u64, Option<i64>)>,
    visits: usize,
}

#[derive(PartialEq, Eq)]
enum Found {
    Yes,
    No,
    GivenUp,
}

impl Search<'_> {
    fn go(&mut self, done: u128, state: Option<i64>) -> Found {
        let left = |at: usize| done & (1 << at) == 0;
        let open: Vec<usize> = (0..self.operations.len()).filter(|at| left(*at)).collect();
        if open.iter().all(|at| self.operations[*at].outcome == Outcome::Unknown) {
            return Found::Yes;
        }
        if !self.seen.insert(((done >> 64) as u64, done as u64, state)) {
            return Found::No;
        }
        self.visits += 1;
        if self.visits > VISITS_MAX {
            return Found::GivenUp;
        }
        // Whatever comes next must have begun before every operation that is left has ended.
        let bound = open
            .iter()
            .map(|at| &self.operations[*at])
            .filter(|o| o.outcome != Outcome::Unknown)
            .map(|o| o.end)
            .min()
            .unwrap_or(Time(u64::MAX));
        for at in open {
            let operation = self.operations[at];
            if operation.begin > bound {
                break;
            }
            let Some(after) = apply(&operation, state) else {
                continue;
            };
            match self.go(done | (1 << at), after) {
                Found::No => {}
                found => return found,
            }
        }
        Found::No
    }
}

/// The state after an operation, or `None` if it cannot have answered so in this state.
fn apply(operation: &Operation, state: Option<i64>) -> Option<Option<i64>> {
    let expected = |value: Option<i64>| match operation.outcome {
        Outcome::Unknown => true,
        Outcome::Done(seen) => seen == value,
    };
    match operation.action {
        Action::Get => expected(state).then_some(state),
        Action::Set(value) => Some(Some(value)),
        Action::Delete => expected(Some(i64::from(state.is_some()))).then_some(None),
        Action::Increment => {
            let after = state.unwrap_or(0) + 1;
            expected(Some(after)).then_some(Some(after))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(begin: u64, end: u64, action: Action, outcome: Outcome) -> Operation {
        Operation {
            begin: Time(begin),
            end: Time(end),
            action,
            outcome,
        }
    }

    #[test]
    fn a_lost_write_is_seen() {
        let history = [
            op(0, 1, Action::Set(5), Outcome::Done(None)),
            op(2, 3, Action::Get, Outcome::Done(None)),
        ];
        assert_eq!(is_linearizable(&history), Some(false));
    }

    #[test]
    fn an_unanswered_write_may_or_may_not_have_happened() {
        for seen in [None, Some(5)] {
            let history = [
                op(0, 1, Action::Set(5), Outcome::Unknown),
                op(2, 3, Action::Get, Outcome::Done(seen)),
            ];
            assert_eq!(is_linearizable(&history), Some(true));
        }
        let flicker = [
            op(0, 1, Action::Set(5), Outcome::Unknown),
            op(2, 3, Action::Get, Outcome::Done(Some(5))),
            op(4, 5, Action::Get, Outcome::Done(None)),
        ];
        assert_eq!(is_linearizable(&flicker), Some(false));
    }

    #[test]
    fn concurrent_operations_may_go_either_way() {
        let history = [
            op(0, 10, Action::Increment, Outcome::Done(Some(2))),
            op(0, 10, Action::Increment, Outcome::Done(Some(1))),
            op(11, 12, Action::Delete, Outcome::Done(Some(1))),
        ];
        assert_eq!(is_linearizable(&history), Some(true));
    }
}
