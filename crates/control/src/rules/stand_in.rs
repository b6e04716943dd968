//! Stand-ins (P10.5): a member of a list holds a second position of it while no other node is free. A node may hold a
//! logged position in memory while no log node is free.

use super::Change;
use crate::fence::Cause;
use paritas_base::{NodeId, Position};

impl Change<'_> {
    /// The best stand-in for a position that has no holder which answers: a member of the list.
    ///
    /// The loss of the stand-in loses both positions. That is not worse than a vacancy, which is one lost position
    /// already, and the loss of any other node does less harm. So a stand-in is chosen wherever no other node is free,
    /// in any failure domain. A failure domain that may hold another position of the list is preferred, then the node
    /// with the fewest positions. Nodes that are to leave or fail repeatedly come last. Without parity there is no
    /// stand-in: the position could not move away later without losing its data.
    ///
    /// A logged position goes to a node without a position of the list, if there is one. A log node is never a
    /// stand-in: it has no memory for a data position, and two parities of a list on one log node are of no use.
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

    /// A position of a stand-in moves to a node without a position of the list as soon as one is free. A logged
    /// position that is held in memory moves to a log node. Each move is an ordinary takeover, and each list has one at
    /// a time.
    ///
    /// A stand-in that is Filling moves at once: it holds no redundancy, and may lack the memory to complete. The older
    /// position of its node moves too once it has been Filling for long. A takeover must find enough members to ask. A
    /// Live position moves when the whole list is Live and answers, if P10.3 allows it; a parity moves only if writes
    /// continue without it. If they would not, the other position of that node moves instead.
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
            // A node that fails repeatedly would take the position and lose it again each time.
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
