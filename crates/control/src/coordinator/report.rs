//! The status report.

use super::Coordinator;
use crate::check::survives;
use crate::plan::PlannedNode;
use crate::status::{
    FillStatus, ListStatus, NodeCondition, NodeStatus, PositionCondition, PositionStatus, RoleStatus, Status,
};
use crate::store::Store;
use paritas_base::configuration::{Assignment, Configuration, Duty, NodeRole, NodeState, PositionState};
use paritas_base::{NodeId, Position, Time};
use std::collections::BTreeSet;

impl<S: Store> Coordinator<S> {
    /// The state of the cluster as this coordinator knows it.
    pub fn status(&self, now: Time) -> Status {
        let mut status = Status {
            lists: self.records.lists.values().map(|c| self.list_status(now, c)).collect(),
            slots: self.slot_move(),
            ..Status::default()
        };
        let plan = &self.records.plan;
        let planned: BTreeSet<NodeId> = plan.all().map(|n| n.id).collect();
        let ids: BTreeSet<NodeId> = planned.iter().chain(self.records.nodes.keys()).copied().collect();
        status.nodes = ids.into_iter().map(|id| self.node_status(now, id)).collect();
        for (id, presence) in self.registry.presences() {
            if !self.records.nodes.get(id).is_some_and(|n| self.is_available(now, n)) {
                continue;
            }
            status.rebuild.bytes_per_second += presence.rebuild_rate();
            for shard in presence.progress() {
                let (rebuild, memory, scrub) = (&mut status.rebuild, &mut status.memory, &mut status.scrub);
                scrub.checked_chunks = scrub.checked_chunks.saturating_add(shard.scrub.checked_chunks);
                scrub.bad_chunks = scrub.bad_chunks.saturating_add(shard.scrub.bad_chunks);
                scrub.repaired_chunks = scrub.repaired_chunks.saturating_add(shard.scrub.repaired_chunks);
                rebuild.done_bytes = rebuild.done_bytes.saturating_add(shard.rebuild_done_bytes);
                rebuild.total_bytes = rebuild.total_bytes.saturating_add(shard.rebuild_total_bytes);
                memory.objects = memory.objects.saturating_add(shard.objects);
                memory.user_bytes = memory.user_bytes.saturating_add(shard.user_bytes);
                for (kind, bytes) in &shard.by_kind {
                    let sum = memory.by_kind.entry(kind.clone()).or_default();
                    *sum = sum.saturating_add(*bytes);
                }
            }
        }
        status.rebuild = status.rebuild.with_eta();
        (status.coordinator, status.trouble) = self.trouble(now);
        status
    }

    /// Whether a node is up. Just after the coordinator's start this is the stored state.
    fn is_up(&self, now: Time, node: NodeId) -> bool {
        let Some(stored) = self.records.nodes.get(&node) else {
            return false;
        };
        stored.record.state == NodeState::Up && !self.is_silent(now, stored)
    }

    fn node_status(&self, now: Time, id: NodeId) -> NodeStatus {
        let is_planned = |nodes: &[PlannedNode]| nodes.iter().any(|n| n.id == id);
        let Some(node) = self.records.nodes.get(&id).map(|n| &n.record) else {
            let role = if is_planned(&self.records.plan.nodes) {
                RoleStatus::Member
            } else if is_planned(&self.records.plan.log_nodes) {
                RoleStatus::Log
            } else {
                RoleStatus::Spare
            };
            return NodeStatus {
                id,
                pid: 0,
                address: String::new(),
                cluster_address: String::new(),
                peer_address: String::new(),
                role,
                state: NodeCondition::Down,
                memory_bytes: 0,
                fill: FillStatus::default(),
                log: None,
                flapping: false,
                halted: Vec::new(),
                duty: Duty::Full,
                positions: 0,
                waits_for: String::new(),
            };
        };
        let held = || {
            self.records
                .lists
                .values()
                .flat_map(|c| c.held_by(id, node.incarnation))
        };
        let state = if !self.is_up(now, id) {
            NodeCondition::Down
        } else if held().any(|(_, a)| a.state == PositionState::Filling) {
            NodeCondition::Filling
        } else if node.role == NodeRole::Spare || held().next().is_none() {
            NodeCondition::Spare
        } else {
            NodeCondition::Live
        };
        let presence = || self.registry.presence(id).into_iter();
        let memory = presence().flat_map(|p| p.progress());
        NodeStatus {
            id,
            pid: node.pid,
            address: node.client_address.clone(),
            cluster_address: node.cluster_address.clone(),
            peer_address: node.peer_address.clone(),
            role: match node.role {
                NodeRole::Member => RoleStatus::Member,
                NodeRole::Spare => RoleStatus::Spare,
                NodeRole::Log => RoleStatus::Log,
            },
            state,
            memory_bytes: memory.map(|p| p.memory_bytes).fold(0, u64::saturating_add),
            fill: presence()
                .flat_map(|p| p.progress())
                .map(|p| p.fill)
                .next()
                .unwrap_or_default(),
            log: presence().flat_map(|p| p.progress()).find_map(|p| p.log),
            flapping: self.suspicion.is_flapping(now, id),
            halted: presence().flat_map(|p| p.halted().cloned()).collect(),
            duty: self.duty_of(id),
            positions: held().count(),
            waits_for: self.waits_for(id),
        }
    }

    /// Logged positions that no log node holds.
    fn logged_in_memory(&self, list: &Configuration) -> Vec<String> {
        let role = |node: NodeId| self.records.nodes.get(&node).map(|n| n.record.role);
        let all = (0..list.positions.len() as u8).map(Position);
        all.filter(|p| self.records.cluster.is_logged(*p))
            .filter_map(|p| Some((p, list.tenure(p)?.node)))
            .filter(|(_, node)| role(*node) != Some(NodeRole::Log))
            .map(|(p, node)| format!("position {} at {node}", p.0))
            .collect()
    }

    fn list_status(&self, now: Time, list: &Configuration) -> ListStatus {
        let up = |held: &Assignment| {
            let node = self.records.nodes.get(&held.tenure.node).map(|n| &n.record);
            node.is_some_and(|n| n.incarnation == held.tenure.incarnation) && self.is_up(now, held.tenure.node)
        };
        let doubled = list.has_stand_ins();
        let condition = |i: usize, held: &Option<Assignment>| match held {
            None => PositionCondition::Vacant,
            Some(held) if !up(held) => PositionCondition::Down,
            Some(held) if held.state == PositionState::Filling => PositionCondition::Filling,
            Some(_) if doubled && list.is_stand_in(Position(i as u8)) => PositionCondition::StandIn,
            Some(_) => PositionCondition::Live,
        };
        let status = |(i, held): (usize, &Option<Assignment>)| PositionStatus {
            node: held.map(|held| held.tenure.node),
            state: condition(i, held),
        };
        let positions: Vec<PositionStatus> = list.positions.iter().enumerate().map(status).collect();
        let any = |state| positions.iter().any(|p| p.state == state);
        let mut reason = if list.lost {
            "lost: more positions crashed at once than the scheme covers. `paritas reset-list` begins it again empty"
        } else if any(PositionCondition::Vacant) {
            "a position waits for a node: none is free in another failure domain"
        } else if any(PositionCondition::Down) {
            "a node is silent: its position waits for that node or for a successor"
        } else if any(PositionCondition::Filling) {
            "rebuilding"
        } else {
            ""
        }
        .to_owned();
        let mut say = |what: String| {
            let more = if reason.is_empty() { "" } else { "; " };
            reason = format!("{reason}{more}{what}");
        };
        if list.positions.iter().flatten().any(|a| a.state == PositionState::Born) {
            say("begins empty: not all of its nodes have confirmed the start yet".into());
        }
        let in_memory = self.logged_in_memory(list);
        if !in_memory.is_empty() && !list.lost {
            say(format!(
                "held in memory until a log node is free: {}",
                in_memory.join(", ")
            ));
        }
        if let Some(stand_ins) = stand_ins(list).filter(|_| doubled && !list.lost) {
            say(stand_ins);
        }
        ListStatus {
            id: list.list,
            epoch: list.epoch.0,
            positions,
            lost: list.lost,
            reset: list.born.0 > 1,
            reason,
        }
    }
}

/// The stand-ins of a list, and how many losses it survives with them (P10.5).
fn stand_ins(list: &Configuration) -> Option<String> {
    let positions = (0..list.positions.len() as u8).map(Position);
    let named: Vec<String> = positions
        .filter(|p| list.is_stand_in(*p))
        .filter_map(|p| Some(format!("{} stands in at position {}", list.tenure(p)?.node, p.0)))
        .collect();
    let survives = match survives(list) {
        0 => "no further loss is survived".to_owned(),
        1 => "the loss of any 1 more node is survived".to_owned(),
        n => format!("the loss of any {n} more nodes is survived"),
    };
    (!named.is_empty()).then(|| format!("{}, until another node is free: {survives}", named.join(", ")))
}
