//! Duties of nodes (P5.12, P10.2a): orders of operators, whether they can be carried out, and their progress.

use super::{Coordinator, CoordinatorOut, send};
use crate::message::ToAgent;
use crate::record::StoredNode;
use crate::rules::Facts;
use crate::store::Store;
use paritas_base::configuration::{Configuration, Duty, NodeRole, NodeState, PositionState};
use paritas_base::{NodeId, Time};
use paritas_protocol::LinkId;
use std::collections::BTreeMap;

/// Limit of lists that have a position moved or rebuilt at the same time. It holds for moves that are not urgent; a
/// list that is rebuilt for another reason counts too.
const LISTS_MOVING_MAX: usize = 2;

/// An order that is not recorded yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct DutyOrder {
    pub(super) duty: Duty,
    /// The link that gets the answer.
    from: LinkId,
    /// The request's number, repeated in the answer.
    n: u64,
}

impl<S: Store> Coordinator<S> {
    /// True if a decision is needed. The order is answered after the commit.
    pub(super) fn on_set_duty(
        &mut self,
        link: LinkId,
        n: u64,
        node: NodeId,
        duty: Duty,
        out: &mut impl CoordinatorOut,
    ) -> bool {
        if let Some(why) = self.refuses_orders().or_else(|| self.refuses(node, duty)) {
            let refused = Some(why);
            send(out, link, &ToAgent::Ordered { n, refused });
            return false;
        }
        let order = DutyOrder { duty, from: link, n };
        if let Some(before) = self.orders.order_duty(node, order) {
            let refused = Some("a later order for that node has replaced it".into());
            send(out, before.from, &ToAgent::Ordered { n: before.n, refused });
        }
        true
    }

    /// Why a node cannot have this duty. `None`: it can.
    pub(super) fn refuses(&self, node: NodeId, duty: Duty) -> Option<String> {
        let plan = &self.records.plan;
        let Some(known) = self.records.nodes.get(&node) else {
            let ids: Vec<String> = self.records.nodes.keys().map(NodeId::to_string).collect();
            return Some(format!("{node} has not registered, only {}", ids.join(", ")));
        };
        if !duty.leaves() || known.duty.leaves() {
            return None;
        }
        let is_log = known.record.role == NodeRole::Log;
        let (needed, kind) = match (is_log, plan.logged) {
            (true, logged) => (logged.into(), "log nodes"),
            (false, 0) => (plan.width(), "nodes"),
            (false, _) => (plan.width_in_memory(), "nodes beside its log nodes"),
        };
        let scheme = plan.scheme();
        if plan.parity == 0 {
            return Some(format!(
                "scheme {scheme} has no parity: the data of a node is nowhere else, and cannot be moved"
            ));
        }
        let stays = |n: &&StoredNode| {
            let same = n.record.id != node && (n.record.role == NodeRole::Log) == is_log;
            same && n.record.state == NodeState::Up && !self.duty_of(n.record.id).leaves()
        };
        let left = self.records.nodes.values().filter(stays).count();
        if left < needed {
            return Some(format!(
                "too few {kind}: {scheme} needs {needed}, and without {node} there would be {left}"
            ));
        }
        let mut lists = self.records.lists.values();
        if plan.min_redundancy >= plan.parity && lists.any(|list| list.of_node(node).any(|(p, _)| !list.is_data(p))) {
            return Some(format!(
                "{scheme} with min_redundancy {} cannot move a parity position: writes would be refused until another \
                 node has refilled it. A scheme with more parity, such as {}+{}, can",
                plan.min_redundancy,
                plan.data,
                plan.min_redundancy + 1
            ));
        }
        None
    }

    /// The duty of a node, with the newest order applied.
    pub(super) fn duty_of(&self, node: NodeId) -> Duty {
        let stored = self.records.nodes.get(&node).map_or(Duty::Full, |n| n.duty);
        self.orders.duty_of(node).unwrap_or(stored)
    }

    /// Why the positions of a node that is to leave or to return do not move now, in words.
    pub(super) fn waits_for(&self, node: NodeId) -> String {
        let why = self.placement.waits_for(node);
        let returns = why.is_empty() && self.duty_of(node) == Duty::Returning;
        let mut lists = self.records.lists.values();
        match lists.find(|list| returns && list.lost && self.is_away_from(list, node)) {
            Some(list) => format!(
                "list {} is lost, and its positions do not move: see `paritas status`",
                list.list.0
            ),
            None => why,
        }
    }

    /// Whether the plan names the node in a list of which it holds no position.
    fn is_away_from(&self, list: &Configuration, node: NodeId) -> bool {
        let homes = self.placement.homes().get(usize::from(list.list.0));
        homes.is_some_and(|homes| homes.contains(&node)) && list.of_node(node).next().is_none()
    }

    /// A returning node has returned when it holds a position of every list in which the plan names it.
    pub(super) fn with_duties(
        &self,
        mut nodes: BTreeMap<NodeId, StoredNode>,
        changed: &[Configuration],
    ) -> BTreeMap<NodeId, StoredNode> {
        for (id, node) in nodes.iter_mut().filter(|(_, n)| n.duty == Duty::Returning) {
            let away = self.records.lists.values().any(|old| {
                let list = changed.iter().find(|c| c.list == old.list).unwrap_or(old);
                self.is_away_from(list, *id)
            });
            if !away {
                node.duty = Duty::Full;
            }
        }
        nodes
    }

    /// Lists of which a position may still be moved now.
    pub(super) fn moves_left(&self) -> usize {
        let filling = |list: &&Configuration| {
            let mut assignments = list.positions.iter().flatten();
            !list.lost && assignments.any(|a| a.state == PositionState::Filling)
        };
        LISTS_MOVING_MAX.saturating_sub(self.records.lists.values().filter(filling).count())
    }

    /// After a commit: answers orders, and asks owners to drain.
    pub(super) fn continue_moves(&mut self, now: Time, facts: Facts, out: &mut impl CoordinatorOut) {
        for DutyOrder { from, n, .. } in self.orders.take_duties() {
            send(out, from, &ToAgent::Ordered { n, refused: None });
        }
        self.placement.begin_drains(now, &facts.to_drain, facts.obstacles);
        for (list, position, tenure) in facts.to_drain {
            if let Some(presence) = self.registry.presence(tenure.node) {
                send(out, presence.link, &ToAgent::Drain { list, position, tenure });
            }
        }
    }
}
