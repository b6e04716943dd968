//! Whom this node has asked for a newer configuration, and when (PROTOCOL 2.2). Of messages that are too new only the
//! first asks: the answer makes its sender send again all that was dropped, and if each asked, messages on their way
//! would multiply.

use paritas_base::{Epoch, ListId, Map, NodeId, Span, Time};

/// A peer chooses the lists that it speaks of.
const ASKED_MAX: usize = 4096;

/// By list and node: the epoch that was heard of, and when it was asked for.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    last: Map<(ListId, NodeId), (Epoch, Time)>,
}

impl Asked {
    /// Whether to ask that node now, which speaks of this epoch: for each epoch at once, and again after `wait`.
    pub(crate) fn is_due(&mut self, list: ListId, node: NodeId, epoch: Epoch, now: Time, wait: Span) -> bool {
        if let Some((before, at)) = self.last.get(&(list, node))
            && *before >= epoch
            && now - *at < wait
        {
            return false;
        }
        if self.last.len() >= ASKED_MAX {
            self.last.clear();
        }
        self.last.insert((list, node), (epoch, now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_epoch_is_asked_for_at_once_and_again_later() {
        let mut asked = Asked::default();
        let mut ask = |node, epoch, ms| {
            let now = Time(0) + Span::from_ms(ms);
            asked.is_due(ListId(1), NodeId(node), Epoch(epoch), now, Span::from_ms(20))
        };
        assert!(ask(1, 5, 100) && !ask(1, 5, 100) && !ask(1, 4, 119));
        assert!(ask(2, 5, 100), "another may know it too");
        assert!(ask(1, 6, 101) && !ask(1, 5, 110) && ask(1, 6, 121));
    }

    #[test]
    fn a_peer_cannot_make_it_grow() {
        let mut asked = Asked::default();
        for list in 0..=u16::MAX {
            assert!(asked.is_due(ListId(list), NodeId(1), Epoch(1), Time(0), Span(1)));
            assert!(asked.last.len() <= ASKED_MAX);
        }
    }
}
