//! What judges a run: what clients saw, what chunks must contain, which faults excuse what, and the verdict. The checks
//! are in `checks`.

use crate::client::{Crowds, LARGE, LIBRARY, Pending, in_database};
use crate::flips::Flip;
use crate::ghost::Ghost;
use crate::linear::{self, Action, OPERATIONS_MAX, Operation, Outcome};
use crate::marks::{Marks, Seen};
use crate::report::{Counts, Excuse};
use crate::schedule::Schedule;
use crate::swarm::Swarm;
use paritas_base::{Incarnation, Time, set};
use paritas_code::Code;
use std::collections::BTreeMap;

pub(crate) struct Oracle {
    pub(crate) history: BTreeMap<String, Vec<Operation>>,
    /// Operations that belong to the history of every key.
    pub(crate) flushes: Vec<Operation>,
    /// The expected contents of each list.
    pub(crate) ghosts: Vec<Ghost>,
    pub(crate) code: Code,
    /// The latest flip of a bit.
    pub(crate) flipped: Option<Flip>,
    /// For each incarnation, the number of its completed scrub passes when it was first seen to know all
    /// configurations; and the sum of their epochs at that time.
    pub(crate) passes: Vec<(Incarnation, u64, u64)>,
    /// The first broken invariant.
    pub(crate) violation: Option<String>,
    /// Violations that begin with this text are ignored.
    pub(crate) blind_to: Option<String>,
    /// What follows is not checked, for this reason.
    pub(crate) excused: Option<Excuse>,
    pub(crate) counts: Counts,
    pub(crate) marks: Marks,
}

impl Oracle {
    pub(crate) fn new(code: Code, lists: usize) -> Self {
        Self {
            history: BTreeMap::new(),
            flushes: Vec::new(),
            ghosts: (0..lists).map(|_| Ghost::new()).collect(),
            code,
            flipped: None,
            passes: Vec::new(),
            violation: None,
            blind_to: None,
            excused: None,
            counts: Counts::default(),
            marks: Marks::default(),
        }
    }

    /// Whether the run is judged to its end: it has broken no invariant, and nothing excuses it.
    pub(crate) fn is_open(&self) -> bool {
        self.violation.is_none() && self.excused.is_none()
    }

    pub(crate) fn violate(&mut self, schedule: &Schedule, what: String) {
        let unseen = self.blind_to.as_ref().is_some_and(|name| what.starts_with(name));
        if self.violation.is_none() && !unseen {
            schedule.log(|| format!("VIOLATION {what}"));
            self.violation = Some(what);
        }
    }

    // --- histories -----------------------------------------------------------------------------------------------

    /// Whether one more operation on the key can still be checked.
    pub(crate) fn has_room(&self, key: &str) -> bool {
        let most = OPERATIONS_MAX - 28;
        self.history.get(key).is_none_or(|h| h.len() < most)
    }

    pub(crate) fn record(&mut self, keys: &[String], operation: Operation) {
        if operation.action == Action::Flush {
            self.flushes.push(operation);
        }
        for key in keys {
            self.history.entry(key.clone()).or_default().push(operation);
        }
    }

    /// Records what an MGET of unrelated keys said of each: it is not atomic.
    pub(crate) fn record_each(&mut self, pending: &Pending, end: Time, outcomes: &[Outcome]) {
        for (key, outcome) in pending.keys.iter().zip(outcomes) {
            self.history.entry(key.clone()).or_default().push(Operation {
                place: Some(pending.place),
                begin: pending.begin,
                end,
                action: Action::GetEach,
                outcome: *outcome,
            });
        }
    }

    /// Records for each key of a database whether KEYS named it. KEYS is not atomic, but for a single key it is a read.
    pub(crate) fn record_list(
        &mut self,
        crowds: &Crowds,
        pending: &Pending,
        end: Time,
        names: &[String],
    ) -> Result<(), String> {
        self.marks.see(Seen::Listed);
        let mut seen = set();
        for name in names {
            if !seen.insert(name.as_str()) {
                return Err(format!("I9: KEYS names {name} twice"));
            }
        }
        let database = pending.keys.first().map_or(0, |all| in_database(all).1);
        let of_it = |key: &String| in_database(key).1 == database && key != LIBRARY;
        for (key, history) in self.history.iter_mut().filter(|(key, _)| of_it(key)) {
            // All keys of a group exist or none does.
            let first = crowds.keys(key).into_iter().next();
            let is_there = first.is_some_and(|first| seen.contains(first.as_str()));
            if history.len() < OPERATIONS_MAX - 8 {
                history.push(Operation {
                    // KEYS goes on beside the commands that follow it.
                    place: None,
                    begin: pending.begin,
                    end,
                    action: Action::List,
                    outcome: Outcome::Done(is_there.then_some(1)),
                });
            }
        }
        Ok(())
    }

    /// I9 and I13: the history of every key is linearizable.
    pub(crate) fn check_histories(&mut self, swarm: &Swarm) -> Result<(), String> {
        let mut unchecked = 0;
        for (key, history) in &self.history {
            let began = history.iter().map(|o| o.begin).min().unwrap_or_default();
            let later = |flush: &&Operation| flush.outcome == Outcome::Unknown || flush.end >= began;
            // FLUSHALL spares the library; a loss does not, which no client has asked for.
            let is_library = key == LIBRARY;
            let flushes = self.flushes.iter().filter(later);
            let flushes = flushes.filter(|flush| !is_library || flush.place.is_none());
            let history: Vec<Operation> = history.iter().chain(flushes).copied().collect();
            let may_be_lost = swarm.weak && key.starts_with(LARGE);
            match linear::is_linearizable(&history, may_be_lost || swarm.parameters.policy.evicts() && !is_library) {
                Some(true) => {}
                Some(false) => return Err(format!("I9: the history of {key} is not linearizable: {history:?}")),
                None => {
                    unchecked += 1;
                    self.marks.see(Seen::HistoryUnchecked);
                }
            }
        }
        self.counts.unchecked += unchecked;
        Ok(())
    }
}
