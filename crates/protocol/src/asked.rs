//! The nodes that were asked for a newer configuration, and when (P2.2). Of messages with a newer epoch only the first
//! causes a question. The answer makes the sender repeat all dropped messages: if each of them caused a question,
//! messages would multiply.

use paritas_base::{Epoch, ListId, Map, NodeId, Span, Time};

/// The most entries: peers choose the lists in their messages.
const ASKED_MAX: usize = 4096;

/// By list and node: the epoch that was heard of, and when it was asked for.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    last: Map<(ListId, NodeId), (Epoch, Time)>,
}

impl Asked {
    /// Whether to ask the node, which has sent this epoch, now: at once for each new epoch, and again after `wait`.
    pub(crate) fn is_due(&self, list: ListId, node: NodeId, epoch: Epoch, now: Time, wait: Span) -> bool {
        let last = self.last.get(&(list, node));
        last.is_none_or(|(before, at)| *before < epoch || now - *at >= wait)
    }

    /// The node was asked.
    pub(crate) fn note(&mut self, list: ListId, node: NodeId, epoch: Epoch, now: Time) {
        if self.last.len() >= ASKED_MAX {
            self.last.clear();
        }
        self.last.insert((list, node), (epoch, now));
    }

    /// A session with the node has begun: earlier questions may be lost.
    pub(crate) fn on_session_up(&mut self, node: NodeId) {
        self.last.retain(|(_, asked), _| *asked != node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_epoch_is_asked_for_at_once_and_again_later() {
        let mut asked = Asked::default();
        let ask = |asked: &mut Asked, node, epoch, ms| {
            let (list, node, epoch, now) = (ListId(1), NodeId(node), Epoch(epoch), Time(0) + Span::from_ms(ms));
            let due = asked.is_due(list, node, epoch, now, Span::from_ms(20));
            if due {
                asked.note(list, node, epoch, now);
            }
            due
        };
        assert!(ask(&mut asked, 1, 5, 100) && !ask(&mut asked, 1, 5, 100) && !ask(&mut asked, 1, 4, 119));
        assert!(ask(&mut asked, 2, 5, 100), "another may know it too");
        assert!(ask(&mut asked, 1, 6, 101) && !ask(&mut asked, 1, 5, 110) && ask(&mut asked, 1, 6, 121));
        asked.on_session_up(NodeId(1));
        assert!(ask(&mut asked, 1, 6, 122) && !ask(&mut asked, 2, 5, 119));
    }

    #[test]
    fn a_peer_cannot_make_it_grow() {
        let mut asked = Asked::default();
        for list in 0..=u16::MAX {
            asked.note(ListId(list), NodeId(1), Epoch(1), Time(0));
            assert!(asked.last.len() <= ASKED_MAX);
        }
    }
}
