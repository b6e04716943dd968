//! Chooses the nodes that a background rebuild asks for chunks and parities (LogECMem §5.3): nodes with memory, or log
//! nodes, which have little other work.
//!
//! Each node measures how fast the others answer: the time since the previous answer, or since the question if no other
//! was outstanding. It also counts the outstanding questions. It asks the nodes that will probably answer first.

use paritas_base::{Map, NodeId, Span, Time};
use std::collections::VecDeque;

/// After twice this number of answers, the sum of times and the count of a node are halved, so that older answers count
/// less.
const ANSWERS: u64 = 32;
/// The most unanswered questions remembered of each node.
const ASKED_MAX: usize = 1024;
/// Each time that another node is asked instead, the measured time of a node shrinks by this fraction (1/64). So a node
/// that was slow once is asked again later.
const FORGETS: u64 = 64;

/// The questions to one node, and its measured times.
#[derive(Default, Debug)]
struct Supplier {
    /// Questions without an answer, oldest first.
    asked: VecDeque<(u64, Time)>,
    /// When the last answer was received.
    answered_at: Time,
    /// The sum of the times of `answers` answers, in nanoseconds.
    took: u64,
    /// Number of answers in the sum.
    answers: u64,
}

impl Supplier {
    fn answer(&mut self, at: usize, now: Time, refused: Option<Span>) {
        let Some((_, asked_at)) = self.asked.remove(at) else {
            return;
        };
        self.took += refused.unwrap_or_else(|| now - asked_at.max(self.answered_at)).0;
        self.answers += 1;
        self.answered_at = now;
        if self.answers == 2 * ANSWERS {
            (self.took, self.answers) = (self.took / 2, ANSWERS);
        }
    }

    /// Counts questions that were not answered within `timeout` as answers that took `timeout`.
    fn give_up(&mut self, now: Time, timeout: Span) {
        while self.asked.front().is_some_and(|(_, at)| now - *at > timeout) {
            self.answer(0, now, Some(timeout));
        }
    }

    /// The expected time to the answer of one more question, in nanoseconds: at least 1 for each question before it. An
    /// answer takes at least as long as the oldest question has waited.
    fn expected(&self, now: Time) -> u64 {
        let waited = self
            .asked
            .front()
            .map_or(0, |(_, at)| (now - (*at).max(self.answered_at)).0);
        let each = (self.took / self.answers.max(1)).max(waited);
        each.max(1).saturating_mul(self.asked.len() as u64 + 1)
    }
}

/// The nodes that are asked for chunks and parities in the background.
#[derive(Default, Debug)]
pub(crate) struct Suppliers {
    nodes: Map<NodeId, Supplier>,
    /// Chunks rebuilt with a parity of a log node although memory had enough.
    pub(crate) assisted: u64,
}

impl Suppliers {
    /// The indexes of the `count` nodes that will probably answer first. Of equal nodes, the first in `nodes` is taken.
    pub(crate) fn choose(&mut self, nodes: &[NodeId], count: usize, now: Time, timeout: Span) -> Vec<usize> {
        let mut expected = Vec::with_capacity(nodes.len());
        for (at, node) in nodes.iter().enumerate() {
            let supplier = self.nodes.entry(*node).or_default();
            supplier.give_up(now, timeout);
            expected.push((supplier.expected(now), at));
        }
        expected.sort_unstable();
        let mut order = expected.into_iter().map(|(_, at)| at);
        let chosen = order.by_ref().take(count).collect();
        for node in order.filter_map(|at| nodes.get(at)) {
            if let Some(supplier) = self.nodes.get_mut(node) {
                supplier.took -= supplier.took.div_ceil(FORGETS);
            }
        }
        chosen
    }

    /// Records that this question was sent.
    pub(crate) fn asked(&mut self, node: NodeId, id: u64, now: Time, timeout: Span) {
        let supplier = self.nodes.entry(node).or_default();
        supplier.give_up(now, timeout);
        if supplier.asked.len() == ASKED_MAX {
            supplier.answer(0, now, None);
        }
        supplier.asked.push_back((id, now));
    }

    /// Records an answer, perhaps to one of these questions. A refusal counts as an answer that took `refused`, because
    /// it makes the answers to the other questions for the same chunk useless.
    pub(crate) fn answered(&mut self, node: NodeId, id: u64, now: Time, refused: Option<Span>) {
        if let Some(supplier) = self.nodes.get_mut(&node)
            && let Some(at) = supplier.asked.iter().position(|(asked, _)| *asked == id)
        {
            supplier.answer(at, now, refused);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: NodeId = NodeId(3);
    const LOG: NodeId = NodeId(7);
    const TIMEOUT: Span = Span::from_ms(200);

    /// How many of `questions` go to the log node if each node answers one question after another, in `memory_us` and
    /// `log_us` microseconds, and 32 are under way.
    fn share(suppliers: &mut Suppliers, from: u64, questions: u64, memory_us: u64, log_us: u64) -> u64 {
        let mut now = Time(from);
        // When each has answered all that it was asked, and what is to be answered when.
        let mut free = [now; 2];
        let mut due: Vec<(Time, NodeId, u64)> = Vec::new();
        let mut of_log = 0;
        for id in 0..questions {
            while due.len() == 32 {
                due.sort();
                let (at, node, id) = due.remove(0);
                now = at;
                suppliers.answered(node, id, now, None);
            }
            let at = suppliers.choose(&[MEMORY, LOG], 1, now, TIMEOUT)[0];
            let (node, us) = [(MEMORY, memory_us), (LOG, log_us)][at];
            suppliers.asked(node, id, now, TIMEOUT);
            of_log += at as u64;
            free[at] = free[at].max(now) + Span::from_us(us);
            due.push((free[at], node, id));
        }
        for (at, node, id) in due {
            suppliers.answered(node, id, at, None);
        }
        of_log
    }

    #[test]
    fn each_is_asked_for_as_much_as_it_gives() {
        for (memory_us, log_us, expected) in [(100, 100, 500), (300, 100, 750), (100, 300, 250), (100, 900, 100)] {
            let found = share(&mut Suppliers::default(), 1_000_000_000, 1_000, memory_us, log_us);
            assert!(found.abs_diff(expected) <= 60, "{memory_us} {log_us}: {found} of 1,000");
        }
    }

    #[test]
    fn who_was_slow_is_asked_again_now_and_then_and_more_once_it_is_fast() {
        let mut suppliers = Suppliers::default();
        let slow = share(&mut suppliers, 1_000_000_000, 2_000, 10, 20_000);
        assert!((1..=60).contains(&slow), "{slow}");
        let fast = share(&mut suppliers, 1 << 40, 2_000, 100, 100);
        assert!(fast > 600, "{fast}");
    }

    #[test]
    fn who_refuses_or_does_not_answer_is_not_asked_for_long() {
        for refused in [None, Some(TIMEOUT)] {
            let mut suppliers = Suppliers::default();
            let mut now = Time(1_000_000_000);
            let mut of_log = 0;
            for id in 0..1_000 {
                now = now + Span::from_ms(1);
                let at = suppliers.choose(&[MEMORY, LOG], 1, now, TIMEOUT)[0];
                let node = [MEMORY, LOG][at];
                suppliers.asked(node, id, now, TIMEOUT);
                of_log += at;
                if at == 0 {
                    suppliers.answered(MEMORY, id, now + Span::from_us(100), None);
                } else if refused.is_some() {
                    // At once, but with nothing.
                    suppliers.answered(LOG, id, now, refused);
                }
            }
            assert!((1..50).contains(&of_log), "{of_log}, {refused:?}");
        }
    }

    #[test]
    fn of_several_those_are_chosen_that_answer_first() {
        let mut suppliers = Suppliers::default();
        let nodes = [NodeId(1), NodeId(2), NodeId(3), NodeId(4)];
        let mut now = Time(1_000_000_000);
        for (id, node) in (0..40).flat_map(|id| nodes.map(|node| (id, node))) {
            suppliers.asked(node, id, now, TIMEOUT);
            now = now + Span::from_us(100 * u64::from(node.0 % 3));
            suppliers.answered(node, id, now, None);
        }
        // The third takes no time, the first and the fourth 100 us, the second 200.
        assert_eq!(suppliers.choose(&nodes, 2, now, TIMEOUT), [2, 0]);
        // Who was left out is better by a little.
        assert_eq!(suppliers.choose(&nodes, 4, now, TIMEOUT), [2, 3, 0, 1]);
    }
}
