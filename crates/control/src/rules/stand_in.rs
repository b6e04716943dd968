//! Stand-ins (P10.5): members of a list that hold a second position of it while no other node is free, and
//! whoever holds a logged position in memory while no log node is.

use super::Change;
use crate::fence::Cause;
use paritas_base::{NodeId, Position};

impl Change<'_> {
    /// A member of the list for a position that would otherwise be held by nobody who answers.
    ///
    /// It counts twice: with that node both positions are lost. That is never worse than a vacancy, which is one lost
    /// position already, and better for the loss of every other node. So it is taken wherever there is nobody else, in
    /// any failure domain; one that has room for another position of the list is preferred, then who holds least.
    /// Last come those that are to leave, or keep falling. Without parity there is none: nothing could move back later
    /// without being lost.
    ///
    /// A logged position goes to a node that holds nothing of the list, if there is one. A log node never stands in: it
    /// has a disk and no memory for a data position, and a second parity of a list is for nobody.
    pub(super) fn stand_in(&self, i: usize) -> Option<NodeId> {
        if !self.fence.facts.stand_in || self.next().parity == 0 {
            return None;
        }
        if let Some(node) = self.substitute(i) {
            return Some(node);
        }
        let mut best = None;
        for (node, facts) in self.fence.facts.nodes.iter().filter(|(_, facts)| !facts.log) {
            let mut held = self.next().of_node(*node).filter(|(p, _)| p.index() != i);
            let member = held
                .next()
                .is_some_and(|(_, a)| a.tenure.incarnation == facts.incarnation);
            if !member || !self.may_take(i, *node, facts) || !self.next().may_hold(*node, Position(i as u8)) {
                continue;
            }
            let crowded = self.in_domain(i, &facts.domain) + 1 > self.fence.facts.per_domain_max;
            let rank = (
                facts.duty.leaves(),
                facts.flapping,
                crowded,
                self.parity_beside(i, &facts.domain),
                facts.load,
                *node,
            );
            if best.is_none_or(|b| rank < b) {
                best = Some(rank);
            }
        }
        best.map(|(.., node)| node)
    }

    /// What a stand-in holds goes to a node that holds nothing of the list, as soon as there is one, and a logged
    /// position that is held in memory to a log node: by an ordinary takeover, one a list at a time.
    ///
    /// A stand-in that is still Filling goes at once: it has nothing to lose, and may never be whole there for want of
    /// memory. So does the older position of its node once it has been Filling for long. Who takes over must find
    /// enough members to ask. A Live one goes once all of the list is Live and answers, if P10.3 allows for it; a
    /// parity only if writes can do without it. Where they cannot, the node gives up its other position instead.
    pub(super) fn relieve(&mut self) {
        let all = 0..self.next().positions.len();
        let misplaced = |i: &usize| self.is_misplaced(*i);
        if self.next().parity == 0 || !(self.next().has_stand_ins() || all.clone().any(|i| misplaced(&i))) {
            return;
        }
        let is_stand_in = |i: &usize| self.next().is_stand_in(Position(*i as u8)) || misplaced(i);
        let doubled = |i: &usize| {
            let node = self.fence.tenure(*i).map(|t| t.node);
            node.is_some_and(|node| self.next().of_node(node).count() > 1)
        };
        let quiet = self.is_quiet();
        let may_go = |i: usize| quiet && self.writes_go_on_without(i) && self.fence.decodable_without(|o| o == i);
        let mut best = None;
        for i in all.filter(|i| doubled(i) || misplaced(i)) {
            let filling = !self.fence.is_live(i) && (is_stand_in(&i) || self.is_stuck(i)) && self.can_be_sealed(i);
            if !filling && !may_go(i) {
                continue;
            }
            let substitute = || self.staying_substitute(i).filter(|_| doubled(&i));
            // Who keeps falling would take it again and again.
            let stands = |node: &NodeId| is_stand_in(&i) || self.fence.facts.node(*node).is_some_and(|n| !n.flapping);
            let Some(node) = self.staying_candidate(i).or_else(substitute).filter(stands) else {
                continue;
            };
            let rank = (!filling, !is_stand_in(&i), self.home(i) != Some(node), i, node);
            if best.is_none_or(|b| rank < b) {
                best = Some(rank);
            }
        }
        if let Some((.., i, node)) = best
            && let Some(permit) = self.fence.remove(i, Cause::Planned)
        {
            self.fence.assign(permit, node);
        }
    }

    /// Whether the position has been Filling for long at a node that holds another.
    fn is_stuck(&self, i: usize) -> bool {
        let key = |tenure| (self.next().list, Position(i as u8), tenure);
        self.fence
            .tenure(i)
            .is_some_and(|tenure| self.fence.facts.stuck.contains(&key(tenure)))
    }

    /// Whether a takeover would find the Live members that it must ask (P5.3).
    fn can_be_sealed(&self, i: usize) -> bool {
        let wanted = usize::from(self.next().parity - self.next().ack_quorum) + 1;
        self.fence.is_parity(i) || self.parities_beside(i, &[]) >= wanted
    }
}
