//! Duties of nodes (P5.12, P10.2a): orders of operators, whether they can be carried out, and their progress.

use super::{Coordinator, CoordinatorOut, send};
use crate::message::ToAgent;
use crate::record::StoredNode;
use crate::rules::{Facts, Obstacle};
use crate::store::Store;
use paritas_base::configuration::{Configuration, Duty, NodeRole, NodeState, PositionState, Tenure};
use paritas_base::{ListId, NodeId, Position, Time};
use paritas_protocol::LinkId;
use std::collections::{BTreeMap, BTreeSet};

/// Limit of lists that have a position moved or rebuilt at the same time. It holds for moves that are not urgent; a
/// list that is rebuilt for another reason counts too.
const LISTS_MOVING_MAX: usize = 2;

type Seat = (ListId, Position, Tenure);

/// An order that is not recorded yet.
#[derive(Clone, Copy, Debug)]
struct Order {
    duty: Duty,
    /// The link that gets the answer.
    from: LinkId,
    /// The request's number, repeated in the answer.
    n: u64,
}

/// An owner that was asked to drain.
#[derive(Clone, Copy, Debug)]
struct Drain {
    since: Time,
    done: bool,
}

/// Moves in progress. Not durable: a new coordinator asks the owners to drain again.
#[derive(Clone, Debug, Default)]
pub(super) struct Moves {
    orders: BTreeMap<NodeId, Order>,
    drains: BTreeMap<Seat, Drain>,
    /// For each node that is to leave, one position that cannot be moved now, and why.
    obstacles: BTreeMap<NodeId, (ListId, Position, Obstacle)>,
}

impl Moves {
    /// Records that the position has drained. True if it was not known.
    pub(super) fn note_drained(&mut self, seat: Seat) -> bool {
        let drain = self.drains.get_mut(&seat).filter(|drain| !drain.done);
        drain.map(|drain| drain.done = true).is_some()
    }
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
        let order = Order { duty, from: link, n };
        if let Some(before) = self.moves.orders.insert(node, order) {
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
        self.moves.orders.get(&node).map_or(stored, |order| order.duty)
    }

    pub(super) fn apply_orders(&self, nodes: &mut BTreeMap<NodeId, StoredNode>) {
        for (id, order) in &self.moves.orders {
            if let Some(node) = nodes.get_mut(id) {
                node.duty = order.duty;
            }
        }
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
                let homes = self.homes.get(usize::from(list.list.0));
                homes.is_some_and(|homes| homes.contains(id)) && list.of_node(*id).next().is_none()
            });
            if !away {
                node.duty = Duty::Full;
            }
        }
        nodes
    }

    /// Positions that may be moved: all owners that were asked to drain have done so, or one suspicion time has passed.
    /// All together, so that the positions of one node move in one commit.
    pub(super) fn drained(&self, now: Time) -> BTreeSet<Seat> {
        let drains = &self.moves.drains;
        let over = |drain: &Drain| drain.done || now - drain.since >= self.records.plan.suspicion();
        if drains.values().all(over) {
            drains.keys().copied().collect()
        } else {
            BTreeSet::new()
        }
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
        for order in core::mem::take(&mut self.moves.orders).into_values() {
            send(
                out,
                order.from,
                &ToAgent::Ordered {
                    n: order.n,
                    refused: None,
                },
            );
        }
        self.moves.obstacles = facts.obstacles;
        self.moves.drains.retain(|seat, _| facts.to_drain.contains(seat));
        for seat in facts.to_drain {
            let drain = Drain {
                since: now,
                done: false,
            };
            self.moves.drains.entry(seat).or_insert(drain);
            let (list, position, tenure) = seat;
            if let Some(presence) = self.registry.presence(tenure.node) {
                send(out, presence.link, &ToAgent::Drain { list, position, tenure });
            }
        }
    }

    /// Why a node that is to leave still has positions, in words. Empty if nothing prevents the moves.
    pub(super) fn waits_for(&self, node: NodeId) -> String {
        let obstacle = self.moves.obstacles.get(&node);
        obstacle.map_or(String::new(), |(list, position, why)| {
            format!("position {} of list {}: {why}", position.0, list.0)
        })
    }
}
