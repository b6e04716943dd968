//! Computes the records that must change, commits them in one transaction, then sends them.

use super::{Coordinator, CoordinatorOut, Note, first_record, release, send};
use crate::fence::{Hold, Silence};
use crate::message::ToAgent;
use crate::record::{End, Standing, StoredNode};
use crate::rules::{self, Facts, NodeFacts};
use crate::store::{Store, StoreError};
use paritas_base::configuration::{Configuration, Duty, NodeRecord, NodeRole, NodeState};
use paritas_base::{ListId, NodeId, Position, Time, Version};
use std::collections::{BTreeMap, BTreeSet};

/// From this epoch on the operator is warned that a list runs out of epochs (P1.4).
const EPOCH_ALARM: u32 = Version::TERM_MAX - (1 << 10);

impl<S: Store> Coordinator<S> {
    /// Computes the records, commits those that changed, and sends them to all subscribed links.
    pub(super) fn decide(&mut self, now: Time, out: &mut impl CoordinatorOut) {
        if self.ending.is_some() {
            return;
        }
        if self.unsure {
            // Send what the store has before the next decision.
            if self.reread(now, out) {
                self.next_tick = now;
            }
            return;
        }
        self.forget_old(now);
        if self.obstacle().is_some() {
            self.placement.forget_requests();
            return;
        }
        if !self.learn_active(now, out) || self.ending.is_some() {
            self.placement.forget_requests();
            return;
        }
        let slow = self.slow_now(now);
        self.slow.note(now, slow);
        self.notice_links(now);
        let silence = self.judge_silence(now);
        if matches!(silence.hold, Some(Hold::Many { .. })) {
            self.suspicion.wait_for_others(now + self.records.plan.suspicion());
        }
        let mut nodes = self.next_nodes(now, &silence);
        self.judge_slow(now, &mut nodes);
        let mut facts = self.facts(now, &nodes, silence);
        let mut cut = Vec::new();
        let mut lists = self.next_lists(&mut facts, &mut cut);
        self.suspicion
            .note_wants(now, &facts.wants, self.records.plan.suspicion());
        if let Some(since) = self.suspicion.latest_want() {
            // Again and again: a peer's word proves only what was so before it was asked (P10.10).
            let again = Time(now.0.saturating_sub(self.records.plan.suspicion().0 / 4));
            self.ask_for_proofs(now, since.max(again), |_| true, out);
        }
        let slots = self.next_slots(&mut lists);
        for list in &mut lists {
            list.seal(self.records.lists.get(&list.list));
        }
        let nodes = self.with_roles(nodes, &facts);
        let nodes = self.with_duties(nodes, &lists);
        let changed: Vec<StoredNode> = nodes
            .into_values()
            .filter(|n| self.records.nodes.get(&n.record.id) != Some(n))
            .collect();
        if !changed.is_empty() || !lists.is_empty() || slots.is_some() {
            let holders = release::holders(&self.records.lists);
            let before: Vec<_> = lists.iter().map(|c| self.records.lists.get(&c.list).cloned()).collect();
            let known = |n: &StoredNode| {
                let record = &self.records.nodes.get(&n.record.id)?.record;
                Some((record.state, record.incarnation))
            };
            let duty = |n: &StoredNode| self.records.nodes.get(&n.record.id).map_or(Duty::Full, |n| n.duty);
            let duties: Vec<_> = changed.iter().map(duty).collect();
            let known: Vec<_> = changed.iter().map(known).collect();
            if let Err(error) = self.records.commit(&mut self.store, &changed, &lists, slots.as_ref()) {
                // Claims and certificates stay for the next decision. Nodes repeat their requests.
                self.placement.forget_requests();
                self.on_failed_commit(now, &error, out);
                let why = match error {
                    StoreError::Conflict => "an earlier change took effect late".to_owned(),
                    other => other.to_string(),
                };
                self.orders.refuse(&why, out);
                return;
            }
            for (node, known) in changed.iter().zip(known) {
                let record = &node.record;
                if let Some((NodeState::Up, incarnation)) = known
                    && (record.state == NodeState::Down || record.incarnation != incarnation)
                {
                    self.suspicion.count_failure(now, record.id);
                }
                if known.map(|(state, _)| state) != Some(record.state) {
                    out.note(Note::State {
                        node: record.id,
                        state: record.state,
                    });
                }
            }
            for (node, before) in changed.iter().zip(duties) {
                if node.duty != before {
                    let (node, duty) = (node.record.id, node.duty);
                    out.note(Note::Duty { node, duty });
                }
            }
            for (new, old) in lists.iter().zip(&before) {
                self.remember(now, old.as_ref(), new, out);
            }
            self.placement.on_commit(now, core::mem::take(&mut facts.vacated), cut);
            self.tell(&changed, Vec::new(), out);
            self.withhold(&lists, holders, out);
        }
        for (link, node, incarnation) in self.registry.clear_committed() {
            send(out, link, &ToAgent::ExitNoted { node, incarnation });
        }
        self.placement.forget_requests();
        if self.answer_slot_order(out) {
            // Start the next hand-off at once.
            self.next_tick = now;
        }
        self.orders.answer(&self.records, out);
        self.continue_moves(now, facts, out);
    }

    /// A commit was not confirmed. The store is read before the next decision; at once if it has answered that it is
    /// not as this coordinator left it.
    pub(super) fn on_failed_commit(&mut self, now: Time, error: &StoreError, out: &mut impl CoordinatorOut) {
        self.unsure = true;
        if *error == StoreError::Conflict {
            // An attempt that seemed to fail may have taken effect late. Then the next decision follows.
            self.next_tick = now;
            self.reread(now, out);
        } else {
            out.note(Note::StoreFailed(error.to_string()));
        }
    }

    /// Reads the store again after a commit whose outcome is unknown. True if the coordinator may go on.
    fn reread(&mut self, now: Time, out: &mut impl CoordinatorOut) -> bool {
        // P10.16: those from before the commit.
        let holders = release::holders(&self.records.lists);
        match self.records.reload(&self.store) {
            Ok(standing) => {
                if !self.may_go_on(standing, out) {
                    return false;
                }
                self.unsure = false;
                if standing == Standing::Unchanged {
                    return true;
                }
                self.leases.on_unknown_commit(now);
                // A commit has taken effect, and its changes were not sent. Send all records.
                let cluster = ToAgent::Cluster(self.records.cluster.clone());
                for link in self.registry.subscribed() {
                    send(out, link, &cluster);
                }
                let nodes: Vec<StoredNode> = self.records.nodes.values().cloned().collect();
                let lists: Vec<Configuration> = self.records.lists.values().cloned().collect();
                self.tell(&nodes, Vec::new(), out);
                self.withhold(&lists, holders, out);
                self.releases.note_found();
                true
            }
            Err(error) => {
                out.note(Note::StoreFailed(error.to_string()));
                false
            }
        }
    }

    fn forget_old(&mut self, now: Time) {
        self.suspicion.forget_old(now, self.records.plan.suspicion());
        self.placement.forget_old(now, &self.records.lists);
        self.leases
            .forget_old(now, self.records.plan.leases_end_after(), &self.releases);
    }

    /// The new record of every node. Roles and duties are set later.
    pub(super) fn next_nodes(&self, now: Time, silence: &Silence) -> BTreeMap<NodeId, StoredNode> {
        let mut nodes = self.records.nodes.clone();
        for (id, claim) in self.registry.claims() {
            let domain = self
                .planned_domain(*id)
                .map(str::to_owned)
                .or_else(|| claim.domain.clone());
            let domain = domain.unwrap_or_else(|| id.0.to_string());
            let fresh = first_record(claim, domain);
            let node = nodes.entry(*id).or_insert_with(|| fresh.clone());
            if node.record.incarnation != claim.incarnation {
                node.begin(claim.incarnation);
            }
            node.record = NodeRecord {
                ordinal: node.record.ordinal,
                ..fresh.record
            };
        }
        for (id, incarnation) in self.registry.ended() {
            if let Some(node) = nodes.get_mut(id) {
                node.certify(*incarnation);
            }
        }
        for (id, incarnation) in self.orders.attested() {
            // A node that is heard again has not ended, so the operator's order does not apply.
            if self.heard_ago(now, *id, *incarnation).is_none()
                && let Some(node) = nodes.get_mut(id)
            {
                node.attest(*incarnation);
            }
        }
        self.orders.apply_duties(&mut nodes);
        for node in nodes.values_mut() {
            // A node that its peers may still hear keeps its state: peers do not dial a node that is Down.
            let (id, incarnation) = (node.record.id, node.record.incarnation);
            let is_registered = self.registry.recorded(&node.record).is_some() && !node.has_ended();
            if let Some((known, count)) = self.registry.latest(id).filter(|_| is_registered) {
                // An old copy of the store has a smaller ordinal than the agents know, and agents ignore a record whose
                // ordinal is not larger than theirs.
                let ordinal = count.saturating_add(u32::from(known != incarnation));
                node.record.ordinal = node.record.ordinal.max(ordinal);
            }
            let holds = self
                .records
                .lists
                .values()
                .any(|c| c.held_by(id, incarnation).next().is_some());
            let is_down = silence.suspects.contains(&id) || (self.is_silent(now, node) && !holds);
            if self.is_available(now, node) {
                node.record.state = NodeState::Up;
            } else if node.has_ended() || is_down {
                node.record.state = NodeState::Down;
            }
        }
        nodes
    }

    pub(super) fn facts(&self, now: Time, nodes: &BTreeMap<NodeId, StoredNode>, silence: Silence) -> Facts {
        let awaited = nodes.values().filter(|n| self.is_awaited(now, n));
        let said = silence.said;
        let mut facts = Facts {
            logged: self.records.plan.logged.into(),
            min_redundancy: self.records.plan.min_redundancy.into(),
            lost_policy: self.records.plan.lost_policy,
            resets: self.orders.resets().clone(),
            recent: self.leases.removed().collect(),
            recent_is_partial: self
                .leases
                .is_partial(now, self.records.plan.leases_end_after(), &self.releases),
            halted: self
                .registry
                .presences()
                .iter()
                .flat_map(|(id, p)| p.halted().map(|role| (role.list, role.position, *id, p.incarnation)))
                .collect(),
            wanted: self.suspicion.wanted(now, self.records.plan.suspicion()),
            suspects: silence.suspects,
            isolated: silence.isolated,
            hold: silence.hold,
            may_be_whole: now < self.suspicion.settled_from(),
            awaited: awaited.map(|n| n.record.id).collect(),
            drained: self.placement.drained(now, self.records.plan.suspicion()),
            moves_left: self.moves_left(),
            ..self.placement.facts(now)
        };
        let seconds: BTreeSet<NodeId> = self.seconds(now).map(|(node, _)| node).collect();
        for (id, node) in nodes {
            let known = NodeFacts {
                incarnation: node.record.incarnation,
                domain: node.record.domain.clone(),
                available: self.is_available(now, node),
                leaves: self.leaves(node),
                silent: self.is_silent(now, node),
                proof: self.proof(&node.record, said.get(id)),
                ended: node.has_ended(),
                certified: node.end == End::Certified,
                waiting: self.suspicion.waits().contains_key(id),
                has_second: seconds.contains(id),
                past: node.past.clone(),
                flapping: self.suspicion.is_flapping(now, *id),
                duty: node.duty,
                load: 0,
                log: node.record.role == NodeRole::Log,
            };
            facts.nodes.insert(*id, known);
        }
        for held in self.records.lists.values().flat_map(|c| c.positions.iter().flatten()) {
            if let Some(node) = facts.nodes.get_mut(&held.tenure.node) {
                node.load += 1;
            }
        }
        facts.broken = self.suspicion.broken_links(&facts, self.records.plan.suspicion());
        facts
    }

    pub(super) fn next_lists(&self, facts: &mut Facts, cut: &mut Vec<(ListId, NodeId)>) -> Vec<Configuration> {
        if self.records.lists.is_empty() {
            let plan = &self.records.plan;
            let mut planned = plan.nodes.iter().chain(&plan.log_nodes);
            if !planned.all(|n| facts.nodes.get(&n.id).is_some_and(|f| f.available && !f.leaves)) {
                return Vec::new();
            }
            let lists = self.placement.homes().iter().enumerate();
            return lists
                .map(|(i, nodes)| rules::first(ListId(i as u16), nodes, &self.records.plan, facts))
                .collect();
        }
        let mut lists = Vec::new();
        for old in self.records.lists.values() {
            if let Some(next) = rules::next(old, facts) {
                cut.extend(next.cut.iter().map(|node| (old.list, *node)));
                lists.push(next.configuration);
            }
        }
        lists
    }

    /// Sets the roles. A node is a member while it holds a position. Before the lists exist, every planned node is a
    /// member. A log node keeps its role.
    fn with_roles(&self, mut nodes: BTreeMap<NodeId, StoredNode>, facts: &Facts) -> BTreeMap<NodeId, StoredNode> {
        let begun = facts.nodes.values().any(|n| n.load > 0);
        for (id, node) in nodes.iter_mut().filter(|(_, n)| n.record.role != NodeRole::Log) {
            let planned = !begun && self.records.plan.nodes.iter().any(|n| n.id == *id);
            let holds = facts.nodes.get(id).is_some_and(|n| n.load > 0);
            node.record.role = if planned || holds {
                NodeRole::Member
            } else {
                NodeRole::Spare
            };
        }
        nodes
    }

    /// Records a committed change for later decisions and for the operator.
    fn remember(&mut self, now: Time, old: Option<&Configuration>, new: &Configuration, out: &mut impl CoordinatorOut) {
        let list = new.list;
        let Some(old) = old else {
            if list == ListId(0) {
                // Every planned node has just registered, so there is no node to wait for.
                self.suspicion.on_first_lists(now);
                out.note(Note::Bootstrapped);
            }
            return;
        };
        for (i, (before, after)) in old.positions.iter().zip(&new.positions).enumerate() {
            let (before, after) = (before.map(|a| a.tenure), after.map(|a| a.tenure));
            if before == after {
                continue;
            }
            if let Some(t) = before.filter(|t| !new.is_gone(t.node, t.incarnation)) {
                self.leases.on_removed(now, list, t);
            }
            let (from, to) = (before.map(|t| t.node), after.map(|t| t.node));
            out.note(Note::Moved {
                list,
                position: Position(i as u8),
                from,
                to,
            });
        }
        if new.lost && !old.lost {
            out.note(Note::Lost { list });
        }
        if new.born != old.born {
            out.note(Note::Reset { list });
        }
        if new.epoch.0 >= EPOCH_ALARM {
            out.note(Note::EpochsRunOut { list });
        }
    }

    pub(super) fn tell(&self, nodes: &[StoredNode], lists: Vec<Configuration>, out: &mut impl CoordinatorOut) {
        let nodes = ToAgent::Nodes(nodes.iter().map(|n| n.record.clone()).collect());
        let lists = ToAgent::Configurations(lists);
        for link in self.registry.subscribed() {
            // Nodes first: a configuration may name a new node.
            if !matches!(&nodes, ToAgent::Nodes(changed) if changed.is_empty()) {
                send(out, link, &nodes);
            }
            if !matches!(&lists, ToAgent::Configurations(changed) if changed.is_empty()) {
                send(out, link, &lists);
            }
        }
    }
}
