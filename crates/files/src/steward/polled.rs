//! What the store's nodes tell of themselves when the process asks them.

use super::Steward;
use crate::rates::Counters;
use paritas_base::Time;
use serde_json::{Value, json};

/// Answers of one round of questions.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Polled {
    /// The result of the request for the list of nodes. `None`: it was not requested in this round.
    pub list: Option<Listed>,
    /// What nodes have counted.
    pub counters: Vec<(String, Counters)>,
    /// Number of nodes that were asked and did not tell.
    pub failures: u64,
    /// Why one node does not tell, in this round or since an earlier one.
    pub failure: Option<String>,
}

/// The result of the last request for the list of nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Listed {
    /// Number of nodes in it.
    Nodes(usize),
    /// Why there is none.
    Failed(String),
}

/// What became of asking so far.
#[derive(Clone, Default, Debug)]
pub(super) struct Polls {
    nodes: usize,
    lists: u64,
    lists_failed: u64,
    list_error: Option<String>,
    answers: u64,
    failures: u64,
    failure: Option<String>,
    /// Intervals between two answers of a node that said something about its rate.
    intervals: u64,
    last_answer: Option<Time>,
}

impl Steward {
    pub(super) fn on_polled(&mut self, now: Time, polled: &Polled) {
        let polls = self.polls.get_or_insert_default();
        match &polled.list {
            Some(Listed::Nodes(count)) => {
                polls.lists += 1;
                polls.nodes = *count;
                polls.list_error = None;
            }
            Some(Listed::Failed(why)) => {
                polls.lists_failed += 1;
                polls.list_error = Some(why.clone());
            }
            None => {}
        }
        for (name, counters) in &polled.counters {
            polls.answers += 1;
            polls.last_answer = Some(now);
            if let Some(node) = self.nodes.number(name) {
                polls.intervals += u64::from(self.rates.on_counters(now, node, *counters));
            }
        }
        polls.failures += polled.failures;
        polls.failure.clone_from(&polled.failure);
    }
}

impl Polls {
    pub(super) fn figures(&self, now: Time) -> Value {
        json!({
            "nodes": self.nodes,
            "lists": self.lists,
            "lists_failed": self.lists_failed,
            "list_error": self.list_error,
            "answers": self.answers,
            "failures": self.failures,
            "failure": self.failure,
            "intervals": self.intervals,
            "last_answer_ms": self.last_answer.map(|at| (now - at).as_ms()),
        })
    }
}
