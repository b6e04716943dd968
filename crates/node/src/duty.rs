//! Takes a node out of service and back: the order, and its progress (P5.12, P10.2a).

use crate::Failure;
use crate::connection::Login;
use crate::status::{command, watch};
use paritas_base::NodeId;
pub use paritas_base::configuration::Duty;
use paritas_control::status::{ListStatus, NodeStatus, PositionCondition, Status};
use std::cell::RefCell;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// The wait for an order ends after this time without any progress. A node that fails repeatedly waits for a minute.
const PATIENCE: Duration = Duration::from_secs(120);

/// A node's number as an operator writes it: `3`, or `n3` as in `paritas status`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeNumber(pub NodeId);

impl FromStr for NodeNumber {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_prefix('n').unwrap_or(text).parse();
        let number =
            number.map_err(|_| format!("`{text}` is not a node: use its number in `paritas status`, as 3 or n3"))?;
        Ok(Self(NodeId(number)))
    }
}

/// An order about a node.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// The node.
    pub node: NodeNumber,
    /// The duty that it gets.
    pub duty: Duty,
    /// Whether progress is printed as JSON.
    pub json: bool,
}

impl Order {
    /// Gives the order to the coordinator, by way of any node.
    ///
    /// # Errors
    /// If it is refused; the text says why.
    pub fn give(&self, whom: &Login, timeout: Duration) -> Result<(), Failure> {
        let number = self.node.0.0.to_string();
        let word = match self.duty {
            Duty::Draining => "drain",
            Duty::Shunned | Duty::Slow => "shun",
            Duty::Full | Duty::Returning => "serve",
        };
        command(whom, &["PARITAS.DUTY", &number, word], timeout).map(drop)
    }

    /// Prints the progress until the order is done.
    ///
    /// # Errors
    /// If no node answers, another order was given meanwhile, or there is no progress for two minutes.
    pub fn watch(&self, whom: &Login, timeout: Duration) -> Result<(), Failure> {
        let progress = RefCell::new(Progress::default());
        watch(whom, timeout, |status| {
            let (line, done) = self.progress(status)?;
            let stalled = progress.borrow_mut().is_stalled(status, Instant::now());
            let end = match (done, stalled) {
                (true, _) => Some(Ok(())),
                (false, true) => Some(Err(self.stalled(status))),
                (false, false) => None,
            };
            Ok((line, end))
        })
    }

    fn stalled(&self, status: &Status) -> Failure {
        let node = status.nodes.iter().find(|n| n.id == self.node.0);
        let why = node.map_or("", |n| n.waits_for.as_str());
        let why = if why.is_empty() {
            "`paritas status` may say why"
        } else {
            why
        };
        Failure(format!(
            "nothing has moved for {} s: {why}. The order stands, and goes on when it can. Give it again to wait for \
             it",
            PATIENCE.as_secs()
        ))
    }

    /// The progress as a line of text, and whether the order is done.
    fn progress(&self, status: &Status) -> Result<(String, bool), Failure> {
        let id = self.node.0;
        let node = status.nodes.iter().find(|n| n.id == id);
        let node = node.ok_or_else(|| Failure(format!("{id} is unknown to the coordinator")))?;
        if node.duty.leaves() != self.duty.leaves() {
            return Err(Failure(format!("another order for {id} was given meanwhile")));
        }
        let done = if self.duty.leaves() {
            node.positions == 0
        } else {
            node.duty == Duty::Full
        };
        Ok((if self.json { json(node) } else { text(node) }, done))
    }
}

/// What has moved last.
#[derive(Default)]
struct Progress {
    seen: Option<Seen>,
}

/// What moves while an order is carried out, and since when it is as it is.
struct Seen {
    /// For each list its epoch, and how many of its positions are Live.
    lists: Vec<(u32, usize)>,
    rebuilt_bytes: u64,
    since: Instant,
}

impl Progress {
    /// Whether no list has changed and nothing was rebuilt for a long time.
    fn is_stalled(&mut self, status: &Status, now: Instant) -> bool {
        let live = |list: &ListStatus| {
            let positions = list.positions.iter();
            positions.filter(|p| p.state == PositionCondition::Live).count()
        };
        let lists: Vec<(u32, usize)> = status.lists.iter().map(|list| (list.epoch, live(list))).collect();
        let rebuilt_bytes = status.rebuild.done_bytes;
        match &self.seen {
            Some(seen) if seen.lists == lists && seen.rebuilt_bytes == rebuilt_bytes => {
                now.duration_since(seen.since) >= PATIENCE
            }
            _ => {
                self.seen = Some(Seen {
                    lists,
                    rebuilt_bytes,
                    since: now,
                });
                false
            }
        }
    }
}

fn json(node: &NodeStatus) -> String {
    serde_json::json!({
        "node": node.id,
        "duty": node.duty,
        "positions": node.positions,
        "waits_for": node.waits_for,
    })
    .to_string()
}

fn text(node: &NodeStatus) -> String {
    let waits = match node.waits_for.as_str() {
        "" => String::new(),
        why => format!("; it waits: {why}"),
    };
    match (node.duty.leaves(), node.positions) {
        (true, 0) => format!("{} holds nothing: it may be stopped", node.id),
        (true, left) => format!("{} still holds {left} positions{waits}", node.id),
        (false, held) if node.duty == Duty::Full => format!("{} holds {held} positions", node.id),
        (false, held) => format!("{} holds {held} positions, and more will come back{waits}", node.id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_a_number() {
        assert_eq!("n12".parse(), Ok(NodeNumber(NodeId(12))));
        assert_eq!("0".parse(), Ok(NodeNumber(NodeId(0))));
        for wrong in ["", "n", "-1", "65536", "nn1", "h:1"] {
            assert!(
                wrong.parse::<NodeNumber>().unwrap_err().contains("is not a node"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_wait_without_progress_ends() {
        let mut progress = Progress::default();
        let (began, mut status) = (Instant::now(), Status::default());
        let at = |s| began + Duration::from_secs(s);
        assert!(!progress.is_stalled(&status, at(0)));
        assert!(!progress.is_stalled(&status, at(119)));
        status.rebuild.done_bytes = 1;
        assert!(!progress.is_stalled(&status, at(120)), "something was rebuilt");
        assert!(!progress.is_stalled(&status, at(239)));
        assert!(progress.is_stalled(&status, at(240)));
    }
}
