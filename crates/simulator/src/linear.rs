//! I9 and I13: the history of each key is linearizable (the search of Wing and Gong, with Lowe's memory of visited
//! states), and an expired key stays dead until it is written again.
//!
//! Values are integers, so that INCR works on what SET wrote. A write without an answer may have happened at any
//! time after it began, or never.

use paritas_base::{Set, Span, Time, set};

/// Largest difference between the wall clocks of two nodes, and a little for rounding to milliseconds. A key may be
/// found dead or alive by this much too early or too late.
pub(crate) const WALL_SKEW: Span = Span::from_ms(40);
const WALL_SLACK: Span = Span::from_ms(42);

/// An operation of a client on a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// GET, or MGET of a group of keys.
    Get,
    /// SET or MSET.
    Set(i64),
    /// SET with PX.
    SetFor(i64, Span),
    /// SET with GET: it answers with the value before it.
    Exchange(i64),
    /// GETDEL: it answers with the value before it.
    Take,
    /// APPEND: the value is then [`appended`].
    Append(i64),
    /// DEL.
    Delete,
    /// INCR.
    Increment,
    /// FLUSHALL.
    Flush,
    /// KEYS: whether the key exists.
    List,
    /// MGET of keys that have nothing to do with each other: for each key it is a GET of its own.
    GetEach,
    /// PARITAS.REDUNDANCY with the n-th class: the value stays. It is in no history.
    Class(u8),
}

impl Action {
    /// The number of the value that it writes, if it writes one.
    pub(crate) fn number(self) -> Option<i64> {
        match self {
            Self::Set(n) | Self::SetFor(n, _) | Self::Exchange(n) => Some(n),
            _ => None,
        }
    }
}

/// What a key counts as once this number was appended to its value.
pub(crate) fn appended(value: Option<i64>, n: i64) -> i64 {
    value.unwrap_or(-1).wrapping_mul(31).wrapping_add(n)
}

/// The result that the client received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// None: the operation may or may not have been done.
    Unknown,
    /// GET, GETDEL, SET with GET: the value. SET: done. APPEND: any number. DEL: the number of keys removed, 1 or 0.
    /// INCR: the new value. KEYS: 1 if the key exists.
    Done(Option<i64>),
}

/// One operation on a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    /// When it was sent.
    pub(crate) begin: Time,
    /// When its reply came.
    pub(crate) end: Time,
    /// What was asked.
    pub(crate) action: Action,
    /// What was answered.
    pub(crate) outcome: Outcome,
    /// The connection, and the number of the command on it: commands of one connection happen in their order. `None`:
    /// it has no place in such an order.
    pub(crate) place: Option<(u64, u64)>,
}

/// Most operations on one key that can be checked.
pub(crate) const OPERATIONS_MAX: usize = 128;
/// Number of states after which the search is given up.
const VISITS_MAX: usize = 200_000;

/// Whether some order of operations explains what every client saw. If nodes evict, a key may disappear at any time.
/// `None`: the search was given up.
pub(crate) fn is_linearizable(history: &[Operation], evicts: bool) -> Option<bool> {
    let mut operations: Vec<Operation> = history
        .iter()
        .filter(|o| {
            !(o.outcome == Outcome::Unknown && matches!(o.action, Action::Get | Action::GetEach | Action::List))
        })
        .copied()
        .collect();
    if operations.len() > OPERATIONS_MAX {
        return None;
    }
    operations.sort_by_key(|o| (o.begin, o.end));
    let after = |later: &Operation| {
        let is_before = |o: &Operation| match (o.place, later.place) {
            (Some((conn, n)), Some((other, m))) => conn == other && n < m && o.outcome != Outcome::Unknown,
            _ => false,
        };
        // Values that are read one by one may be newer than what a read behind them has seen (P14.16).
        let is_before = |o: &Operation| {
            let may_be_later = o.action == Action::GetEach && matches!(later.action, Action::Get | Action::GetEach);
            is_before(o) && !may_be_later
        };
        let one = |(at, o): (usize, &Operation)| u128::from(is_before(o)) << at;
        operations.iter().enumerate().map(one).fold(0, |all, bit| all | bit)
    };
    let after: Vec<u128> = operations.iter().map(after).collect();
    let mask = |wanted: fn(&Operation) -> bool| {
        let one = |(at, o): (usize, &Operation)| u128::from(wanted(o)) << at;
        operations.iter().enumerate().map(one).fold(0, |all, bit| all | bit)
    };
    let mut search = Search {
        operations: &operations,
        after: &after,
        all: mask(|_| true),
        known: mask(|o| o.outcome != Outcome::Unknown),
        evicts,
        seen: set(),
        visits: 0,
    };
    match search.go(0, State::default()) {
        Found::Yes => Some(true),
        Found::No => Some(false),
        Found::GivenUp => None,
    }
}

struct Search<'a> {
    operations: &'a [Operation],
    /// For each operation those that must come before it.
    after: &'a [u128],
    /// All operations as bits; `known` are those whose outcome is known.
    all: u128,
    known: u128,
    evicts: bool,
    seen: Set<(u64, u64, State)>,
    visits: usize,
}

/// Indexes of the set bits, lowest first.
fn bits(mut of: u128) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let at = (of != 0).then(|| of.trailing_zeros() as usize)?;
        of &= of - 1;
        Some(at)
    })
}

/// Those of the operations that have begun by the bound, and that no remaining one must come before.
fn next(operations: &[Operation], after: &[u128], done: u128, bound: Time, of: u128) -> impl Iterator<Item = usize> {
    let begun = bits(of).take_while(move |at| operations[*at].begin <= bound);
    begun.filter(move |at| after[*at] & !done == 0)
}

#[derive(PartialEq, Eq)]
enum Found {
    Yes,
    No,
    GivenUp,
}

impl Search<'_> {
    fn go(&mut self, mut done: u128, state: State) -> Found {
        let (operations, after) = (self.operations, self.after);
        // A read that can have its result now may come first: whatever follows has the same results. The same holds for
        // a DEL or a GETDEL of a missing key. It does not hold for a write that changes nothing here, because another
        // order may need that write later.
        let is_idle = |search: &Self, at: &usize| {
            let operation = &operations[*at];
            let reads = match operation.action {
                Action::Get | Action::GetEach | Action::List => true,
                Action::Delete => operation.outcome == Outcome::Done(Some(0)),
                Action::Take => operation.outcome == Outcome::Done(None),
                _ => false,
            };
            let stays = |found| found == Some(state);
            reads && stays(search.before(operation, state)[0]) && stays(apply(*at, operation, state))
        };
        let bound = loop {
            let open = self.all & !done;
            if open & self.known == 0 {
                return Found::Yes;
            }
            // The next operation must have begun before every remaining operation with a known outcome has ended.
            // Operations are in the order of their beginnings: once one begins later than the bound, no later one
            // lowers it.
            let mut bound = Time(u64::MAX);
            for at in bits(open & self.known) {
                if operations[at].begin > bound {
                    break;
                }
                bound = bound.min(operations[at].end);
            }
            let idle = next(operations, after, done, bound, open & self.known).find(|at| is_idle(self, at));
            match idle {
                Some(at) => done |= 1 << at,
                None => break bound,
            }
        };
        // Only states with a choice are remembered and counted: most operations are reads, which leave none.
        if !self.seen.insert(((done >> 64) as u64, done as u64, state)) {
            return Found::No;
        }
        self.visits += 1;
        if self.visits > VISITS_MAX {
            return Found::GivenUp;
        }
        let open = self.all & !done;
        let next = |of: u128| next(operations, after, done, bound, of);
        // Operations without an answer are tried last: most are not needed to explain the others.
        for at in next(open & self.known).chain(next(open & !self.known)) {
            let operation = operations[at];
            for before in self.before(&operation, state).into_iter().flatten() {
                let Some(after) = apply(at, &operation, before) else {
                    continue;
                };
                match self.go(done | (1 << at), after) {
                    Found::No => {}
                    found => return found,
                }
            }
        }
        Found::No
    }
}

/// The state of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
struct State {
    value: Option<i64>,
    /// The operation that set its expiry.
    ends_by: Option<u8>,
}

impl Search<'_> {
    /// The states that an operation may find: the key, if it may not have expired yet; and no key, if it may have
    /// expired or been evicted.
    fn before(&self, operation: &Operation, state: State) -> [Option<State>; 2] {
        let end = state.ends_by.map(|at| self.operations[usize::from(at)]);
        let Some((set, Action::SetFor(_, lasts))) = end.map(|o| (o, o.action)) else {
            return [Some(state), self.evicts.then(State::default)];
        };
        let known = |o: &Operation| o.outcome != Outcome::Unknown;
        let may_live = !known(&set) || operation.begin <= set.end + lasts + WALL_SLACK;
        let may_be_over = !known(operation) || operation.end + WALL_SLACK >= set.begin + lasts;
        [
            may_live.then_some(state),
            (may_be_over || self.evicts).then(State::default),
        ]
    }
}

/// The state after an operation; `None` if it cannot have had its outcome in this state.
fn apply(at: usize, operation: &Operation, state: State) -> Option<State> {
    let expected = |value: Option<i64>| match operation.outcome {
        Outcome::Unknown => true,
        Outcome::Done(seen) => seen == value,
    };
    let with = |value| State { value, ends_by: None };
    match operation.action {
        Action::Get | Action::GetEach => expected(state.value).then_some(state),
        Action::List => expected(state.value.map(|_| 1)).then_some(state),
        Action::Set(value) => Some(with(Some(value))),
        Action::SetFor(value, _) => Some(State {
            value: Some(value),
            ends_by: Some(at as u8),
        }),
        Action::Exchange(value) => expected(state.value).then_some(with(Some(value))),
        Action::Take => expected(state.value).then_some(with(None)),
        Action::Append(n) => Some(State {
            value: Some(appended(state.value, n)),
            ..state
        }),
        Action::Delete => expected(Some(i64::from(state.value.is_some()))).then_some(with(None)),
        Action::Increment => {
            let value = Some(state.value.unwrap_or(0) + 1);
            expected(value).then_some(State { value, ..state })
        }
        Action::Flush => Some(with(None)),
        Action::Class(_) => Some(state),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(begin: u64, end: u64, action: Action, outcome: Outcome) -> Operation {
        Operation {
            place: None,
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
        assert_eq!(is_linearizable(&history, false), Some(false));
    }

    #[test]
    fn commands_of_one_connection_happen_in_their_order() {
        let of = |place, n| Operation {
            place: Some((place, n)),
            ..op(0, 9, Action::Get, Outcome::Done(Some(5)))
        };
        let set = |place, n| Operation {
            action: Action::Set(5),
            outcome: Outcome::Done(None),
            ..of(place, n)
        };
        // All overlap. A read sees no write that its connection sent after it.
        assert_eq!(is_linearizable(&[of(1, 1), set(1, 2)], false), Some(false));
        assert_eq!(is_linearizable(&[set(1, 1), of(1, 2)], false), Some(true));
        assert_eq!(is_linearizable(&[of(1, 1), set(2, 2)], false), Some(true));
    }

    #[test]
    fn a_listed_key_is_there() {
        let set = op(0, 1, Action::Set(5), Outcome::Done(None));
        let list = |at, seen| op(at, at + 1, Action::List, Outcome::Done(seen));
        assert_eq!(is_linearizable(&[set, list(2, Some(1))], false), Some(true));
        assert_eq!(is_linearizable(&[set, list(2, None)], false), Some(false));
        let gone = op(3, 4, Action::Delete, Outcome::Done(Some(1)));
        assert_eq!(is_linearizable(&[set, gone, list(5, Some(1))], false), Some(false));
    }

    #[test]
    fn a_write_that_answers_with_the_value_before_it_happens_once() {
        let set = op(0, 1, Action::Set(5), Outcome::Done(None));
        let get = |seen| op(4, 5, Action::Get, Outcome::Done(seen));
        let then = |action, answered, seen| {
            let second = op(2, 3, action, Outcome::Done(answered));
            is_linearizable(&[set, second, get(seen)], false)
        };
        assert_eq!(then(Action::Take, Some(5), None), Some(true));
        assert_eq!(then(Action::Take, Some(5), Some(5)), Some(false));
        assert_eq!(then(Action::Take, None, None), Some(false), "done twice");
        assert_eq!(then(Action::Exchange(6), Some(5), Some(6)), Some(true));
        assert_eq!(then(Action::Exchange(6), Some(6), Some(6)), Some(false), "done twice");
        assert_eq!(then(Action::Exchange(6), None, Some(6)), Some(false));
    }

    #[test]
    fn an_evicted_key_is_gone_and_stays_gone() {
        let set = op(0, 1, Action::Set(5), Outcome::Done(None));
        let get = |at, seen| op(at, at + 1, Action::Get, Outcome::Done(seen));
        assert_eq!(is_linearizable(&[set, get(2, None)], true), Some(true));
        assert_eq!(
            is_linearizable(&[set, get(2, None), get(4, Some(5))], true),
            Some(false)
        );
        assert_eq!(is_linearizable(&[set, get(2, Some(4))], true), Some(false));
    }

    #[test]
    fn an_unanswered_write_may_or_may_not_have_happened() {
        for seen in [None, Some(5)] {
            let history = [
                op(0, 1, Action::Set(5), Outcome::Unknown),
                op(2, 3, Action::Get, Outcome::Done(seen)),
            ];
            assert_eq!(is_linearizable(&history, false), Some(true));
        }
        let flicker = [
            op(0, 1, Action::Set(5), Outcome::Unknown),
            op(2, 3, Action::Get, Outcome::Done(Some(5))),
            op(4, 5, Action::Get, Outcome::Done(None)),
        ];
        assert_eq!(is_linearizable(&flicker, false), Some(false));
    }

    #[test]
    fn concurrent_operations_may_go_either_way() {
        let history = [
            op(0, 10, Action::Increment, Outcome::Done(Some(2))),
            op(0, 10, Action::Increment, Outcome::Done(Some(1))),
            op(11, 12, Action::Delete, Outcome::Done(Some(1))),
        ];
        assert_eq!(is_linearizable(&history, false), Some(true));
    }

    #[test]
    fn a_key_seen_dead_is_never_seen_alive_again() {
        let ms = |n: u64| Span::from_ms(n).0;
        let set = op(0, 1, Action::SetFor(5, Span::from_ms(100)), Outcome::Done(None));
        let get = |at, seen| op(ms(at), ms(at) + 1, Action::Get, Outcome::Done(seen));
        let check = |gets: &[Operation]| is_linearizable(&[&[set], gets].concat(), false);
        assert_eq!(check(&[get(90, Some(5)), get(110, None)]), Some(true));
        assert_eq!(check(&[get(110, None), get(111, Some(5))]), Some(false));
        assert_eq!(check(&[get(10, None)]), Some(false), "too early");
        assert_eq!(check(&[get(300, Some(5))]), Some(false), "too late");
    }

    #[test]
    fn after_a_flush_nothing_is_left() {
        let history = [
            op(0, 1, Action::Set(5), Outcome::Done(None)),
            op(2, 3, Action::Flush, Outcome::Done(None)),
            op(4, 5, Action::Get, Outcome::Done(Some(5))),
        ];
        assert_eq!(is_linearizable(&history, false), Some(false));
    }
}
