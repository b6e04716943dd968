//! Handlers of messages: how each one changes the coordinator's view of the cluster.

use super::admit::{admits, static_refusal};
use super::slot_moves::Offer;
use super::{Coordinator, CoordinatorOut, Note, SILENT_MAX, send};
use crate::message::{
    MESSAGE_VERSION, MessageError, Refusal, Registered, Registration, TO_COORDINATOR_BYTES_MAX, ToAgent, ToCoordinator,
    decode,
};
use crate::mutant::Mutant;
use crate::plan::NODES_MAX;
use crate::rights::Speaker;
use crate::status::{HaltedRole, ShardProgress};
use crate::store::Store;
use paritas_base::configuration::{Configuration, NodeState, PositionState};
use paritas_base::{Epoch, Incarnation, ListId, NodeId, Span, Time};
use paritas_protocol::LinkId;

/// Time for which proofs that processes run are collected before a decision.
const PROOFS_TOGETHER: Span = Span::from_ms(10);

impl<S: Store> Coordinator<S> {
    /// True if a decision is needed.
    pub(super) fn on_message(
        &mut self,
        now: Time,
        link: LinkId,
        by: Speaker,
        bytes: &[u8],
        out: &mut impl CoordinatorOut,
    ) -> bool {
        if !self.registry.is_connected(link) {
            return false;
        }
        let message = match decode::<ToCoordinator>(bytes, TO_COORDINATOR_BYTES_MAX) {
            Ok(message) => message,
            Err(error) => {
                if matches!(error, MessageError::Version(_)) {
                    send(out, link, &ToAgent::Refused(Refusal::Version { here: MESSAGE_VERSION }));
                }
                out.note(Note::BadMessage(error));
                self.registry.disconnect(link);
                out.close(link);
                return false;
            }
        };
        if !admits(link, by, &message, out) {
            return false;
        }
        if self.ending.is_some() {
            send(out, link, &ToAgent::Refused(Refusal::Deposed));
            return false;
        }
        match message {
            ToCoordinator::Register(registration) => {
                self.on_register(now, link, registration, out);
                false
            }
            ToCoordinator::Heartbeat {
                nonce,
                shards,
                silent,
                opinions,
            } => {
                let decide = self.on_heartbeat(now, link, nonce, shards, &silent, out);
                self.registry.vote(link, nonce, opinions) || decide
            }
            ToCoordinator::AskLive { list, position, tenure } => {
                let own = self.registry.is_holder(link, &tenure);
                if own {
                    self.placement.ask_live((list, position, tenure));
                }
                // A position that begins empty serves already. Its request waits for the next tick, so that one
                // configuration answers many of them.
                let held = self.records.lists.get(&list).and_then(|c| c.at(position));
                own && held.is_some_and(|a| a.state != PositionState::Born)
            }
            ToCoordinator::GetConfiguration { list, installed } => {
                let since = installed.map_or(Epoch(0), |(epoch, _)| epoch);
                let found = self.records.list_since(list, since);
                if let Some(found) = found.filter(|_| !self.releases.withholds(list)) {
                    send(out, link, &ToAgent::Configurations(vec![found]));
                }
                false
            }
            ToCoordinator::Status { n } => {
                let status = Box::new(self.status(now));
                send(out, link, &ToAgent::StatusReport { n, status });
                false
            }
            ToCoordinator::Supervise { node, incarnation } => {
                self.registry.on_supervise(link, node, incarnation);
                false
            }
            ToCoordinator::HandOff {
                version,
                last,
                from,
                to,
            } => {
                let offer = Offer {
                    version,
                    last,
                    from,
                    to,
                };
                self.on_offer(link, offer)
            }
            ToCoordinator::MoveSlots { n, order } => self.on_slot_order(link, n, order, out),
            ToCoordinator::Exited { node, incarnation } => self.on_exited(now, link, by, node, incarnation, out),
            ToCoordinator::Leave { nonce } => {
                self.on_leave(now, link, nonce, out);
                false
            }
            ToCoordinator::Pong { nonce, at_ns } => {
                let of = self.registry.registered(link, nonce);
                if let Some(presence) = of.and_then(|(node, _)| self.registry.presence_on(link, node)) {
                    let is_new = presence.prove(Time(at_ns));
                    if is_new && self.suspicion.is_any_wanted(now, self.records.plan.suspicion()) {
                        // A removal may wait for it (P10.10), and for those of others, which come now too.
                        self.next_tick = self.next_tick.min(now + PROOFS_TOGETHER);
                    }
                }
                false
            }
            ToCoordinator::Drained { list, position, tenure } => {
                let own = self.registry.is_holder(link, &tenure);
                own && self.placement.note_drained((list, position, tenure))
            }
            ToCoordinator::SetDuty { n, node, duty } => self.on_set_duty(link, n, node, duty, out),
            ToCoordinator::Witnessed { batch } => {
                self.on_witnessed(link, batch);
                false
            }
            // Only a coordinator without a store uses testimonies.
            ToCoordinator::Testimony(_) => false,
            ToCoordinator::Order { n, order, confirmed } => self.on_order(now, link, n, &order, confirmed, out),
        }
    }

    /// The registration takes effect only when a heartbeat confirms it: see `on_heartbeat`.
    fn on_register(&mut self, now: Time, link: LinkId, registration: Box<Registration>, out: &mut impl CoordinatorOut) {
        if self.records.nodes.contains_key(&registration.node) {
            self.registry.note_contact(now, registration.node);
        }
        if self.present(registration.node) == Some(registration.incarnation) {
            self.registry
                .note_asked(now, registration.node, registration.incarnation);
        }
        if let Some(refusal) = self.refusal(now, &registration) {
            if refusal == Refusal::Running {
                self.registry
                    .note_second(now, registration.node, registration.incarnation);
            }
            let mut installed = registration.installed.iter();
            let is_heard_only = self.unknown_heard(&registration).next().is_some()
                && !installed.any(|(list, epoch, id)| self.records.knows(*list, *epoch, *id) == Some(false));
            if is_heard_only {
                self.witnesses.note_doubt(registration.node);
            }
            if let Refusal::StoreIsBehind { list } = refusal
                && !is_heard_only
                && !self.notice_behind(registration.node, list, out)
            {
                return;
            }
            send(out, link, &ToAgent::Refused(refusal));
            return;
        }
        let since = |list: ListId| {
            let installed = registration.installed.iter().find(|(of, ..)| *of == list);
            installed.map_or(Epoch(0), |(_, epoch, _)| *epoch)
        };
        let released = self
            .records
            .lists
            .keys()
            .filter(|list| !self.releases.withholds(**list));
        let configurations = released.filter_map(|list| {
            // A process without a configuration needs no history.
            match since(*list) {
                Epoch(0) => self.records.lists.get(list).cloned(),
                epoch => self.records.list_since(*list, epoch),
            }
        });
        let configurations = configurations.collect();
        let void = self.unknown_heard(&registration).collect();
        self.witnesses.forget_doubt(registration.node);
        let Some(nonce) = self.registry.begin(link, registration) else {
            return;
        };
        let registered = Registered {
            nonce,
            cluster: self.records.cluster.clone(),
            nodes: self.records.nodes.values().map(|n| n.record.clone()).collect(),
            configurations,
            void,
        };
        send(out, link, &ToAgent::Registered(Box::new(registered)));
        self.send_withheld_ids(link, out);
    }

    fn refusal(&self, now: Time, registration: &Registration) -> Option<Refusal> {
        let cluster = self.records.cluster.id;
        if registration.cluster.is_some_and(|expected| expected != cluster) {
            return Some(Refusal::WrongCluster { here: cluster });
        }
        // Before all else that it could mend: it would try again for ever.
        let known = self.records.nodes.get(&registration.node);
        if known.is_some_and(|known| known.is_over(registration.incarnation)) {
            return Some(Refusal::IncarnationEnded);
        }
        if let Some(refusal) = static_refusal(&self.records.plan, registration) {
            return Some(refusal);
        }
        if let Some(why) = self.cannot_speak(registration) {
            return Some(Refusal::Limit(why));
        }
        let planned = self.planned_domain(registration.node);
        let count = self.records.nodes.len() + self.registry.claims().len();
        if known.is_none() && planned.is_none() && count >= NODES_MAX {
            return Some(Refusal::Limit(format!("a cluster has at most {NODES_MAX} nodes")));
        }
        if self.is_running(now, registration.node, registration.incarnation) {
            return Some(Refusal::Running);
        }
        let is_fresh = registration.installed.is_empty() && !self.records.lists.is_empty();
        if let Some((_, list)) = self.stops_behind().filter(|_| is_fresh) {
            return Some(Refusal::StoreIsBehind { list });
        }
        let unknown = self.unknown_heard(registration).next();
        if let Some(list) = unknown.filter(|_| !self.witnesses.is_complete()) {
            return Some(Refusal::StoreIsBehind { list });
        }
        let (node, incarnation) = (registration.node, registration.incarnation);
        let mut installed = registration.installed.iter();
        installed.find_map(|(list, epoch, id)| match self.records.knows(*list, *epoch, *id) {
            Some(true) => None,
            Some(false) => Some(Refusal::StoreIsBehind { list: *list }),
            // It missed more changes than the history has, and it holds no position any more.
            None if !self.holds_anything(node, incarnation) => Some(Refusal::IncarnationEnded),
            // It still holds a position. It may go on, but it is not registered: its epoch cannot be checked against
            // the history.
            None => Some(Refusal::Limit(format!(
                "this process has epoch {} of list {}, which is older than the coordinator's history, and it holds \
                 positions: it goes on, but cannot register. `paritas status` shows its positions. Restart it when \
                 the lists can be rebuilt without it",
                epoch.0, list.0
            ))),
        })
    }

    fn holds_anything(&self, node: NodeId, incarnation: Incarnation) -> bool {
        let mut lists = self.records.lists.values();
        lists.any(|c| c.held_by(node, incarnation).next().is_some())
    }

    /// The time since an incarnation last asked to register, if it is expected to ask again: its agent dials all
    /// coordinators in turn.
    pub(super) fn asked_ago(&self, now: Time, node: NodeId, incarnation: Incarnation) -> Option<Span> {
        let ago = now - self.registry.asked_at(node, incarnation)?;
        (ago + self.records.plan.suspicion() < self.grace()).then_some(ago)
    }

    /// The node's present incarnation: the one whose registration waits for a commit, else the stored one.
    fn present(&self, node: NodeId) -> Option<Incarnation> {
        let claimed = self.registry.claims().get(&node).map(|c| c.incarnation);
        claimed.or_else(|| self.records.nodes.get(&node).map(|n| n.record.incarnation))
    }

    /// P10.13: whether another incarnation of the node may still run. It counts as ended if that is certified. It also
    /// does if it is silent, no peer hears it, and the coordinator has run long enough to hear it. While it holds
    /// positions its silence is no end: only the fence takes these from it, where the lists can do without it.
    fn is_running(&self, now: Time, node: NodeId, incarnation: Incarnation) -> bool {
        if self.broken.is(Mutant::RunningAdmitted) {
            return false;
        }
        let stored = self.records.nodes.get(&node);
        let Some(present) = self.present(node).filter(|present| *present != incarnation) else {
            return false;
        };
        let ended = stored.is_some_and(|n| n.record.incarnation == present && n.has_ended());
        if ended || self.registry.ended().contains(&(node, present)) {
            return false;
        }
        let presence = self.registry.presence_of(node, present);
        // From `settled_from` on, every running holder has registered and is heard. Before the store is known to be the
        // newest, a process that holds nothing by it may be the only one that knows a newer configuration (P10.16).
        let may_not_judge = now < self.suspicion.settled_from() || !self.witnesses.is_complete();
        let is_early = may_not_judge && !self.records.lists.is_empty();
        let holds = self.holds_anything(node, present) && !self.broken.is(Mutant::SilentReplaced);
        holds
            || is_early
            || presence.is_some_and(|p| now - p.heard_at() < self.records.plan.suspicion())
            || self.asked_ago(now, node, present).is_some()
            || self.judge_silence(now).isolated.contains(&node)
    }

    pub(super) fn planned_domain(&self, node: NodeId) -> Option<&str> {
        let mut planned = self.records.plan.all();
        planned.find(|n| n.id == node).map(|n| n.domain.as_str())
    }

    /// The first heartbeat that repeats the nonce confirms the registration: its sender has read the answer, so it
    /// runs. A registration that an ended process left in its connection has no effect (P10.4).
    fn on_heartbeat(
        &mut self,
        now: Time,
        link: LinkId,
        nonce: u64,
        shards: Vec<ShardProgress>,
        silent: &[(NodeId, Incarnation)],
        out: &mut impl CoordinatorOut,
    ) -> bool {
        let mut decide = false;
        if let Some(registration) = self.registry.take_pending(link, nonce) {
            if let Some(refusal) = self.refusal(now, &registration) {
                send(out, link, &ToAgent::Refused(refusal));
                return false;
            }
            self.confirm(now, link, nonce, *registration, out);
            decide = true;
        }
        let Some((node, incarnation)) = self.registry.registered(link, nonce) else {
            send(out, link, &ToAgent::Refused(Refusal::RegisterAgain));
            return false;
        };
        let over = self.records.nodes.get(&node).is_some_and(|n| n.is_over(incarnation))
            || self.registry.ended().contains(&(node, incarnation));
        let Some(presence) = self.registry.presence_on(link, node).filter(|_| !over) else {
            let refusal = if over {
                Refusal::IncarnationEnded
            } else {
                Refusal::RegisterAgain
            };
            send(out, link, &ToAgent::Refused(refusal));
            return decide;
        };
        let known: Vec<HaltedRole> = presence.halted().cloned().collect();
        presence.hear(now, shards);
        let halted: Vec<HaltedRole> = presence
            .halted()
            .filter(|role| !known.contains(role))
            .cloned()
            .collect();
        for (peer, peer_incarnation) in silent.iter().take(SILENT_MAX) {
            if self
                .records
                .nodes
                .get(peer)
                .is_some_and(|n| n.record.incarnation == *peer_incarnation)
            {
                self.suspicion.report(now, node, *peer);
            }
        }
        decide |= !halted.is_empty();
        for role in halted {
            out.note(Note::Halted { node, role });
        }
        send(out, link, &ToAgent::Heard);
        let down = self
            .records
            .nodes
            .get(&node)
            .is_some_and(|n| n.record.state == NodeState::Down);
        // A removal may wait for this heartbeat (P10.10).
        decide || down || self.suspicion.is_any_wanted(now, self.records.plan.suspicion())
    }

    /// The process runs, and its registration takes effect.
    fn confirm(
        &mut self,
        now: Time,
        link: LinkId,
        nonce: u64,
        registration: Registration,
        out: &mut impl CoordinatorOut,
    ) {
        let (node, incarnation) = (registration.node, registration.incarnation);
        out.note(Note::Registered { node, incarnation });
        let before = self.records.nodes.get(&node).map(|known| known.record.incarnation);
        if before != Some(incarnation) {
            self.suspicion.forget_reports(node);
        }
        let has = |c: &Configuration| registration.installed.contains(&(c.list, c.epoch, c.id));
        let lists = self.records.lists.values();
        let lacks = lists.filter(|c| self.releases.withholds(c.list) && !has(c));
        let lacks = lacks.map(|c| c.list).collect();
        if !registration.installed.is_empty() || !registration.heard.is_empty() {
            self.witnesses.note_known(node);
        }
        self.registry.confirm(now, link, nonce, registration, lacks);
        self.suspicion.end_wait(node);
    }

    /// P10.4: a supervisor certifies the end of a process that it has announced. A process of a node certifies the ends
    /// of earlier ones that were taken in, or may be: of others nothing has to be known.
    fn on_exited(
        &mut self,
        now: Time,
        link: LinkId,
        by: Speaker,
        node: NodeId,
        incarnation: Incarnation,
        out: &mut impl CoordinatorOut,
    ) -> bool {
        let is_of_node = matches!(by, Speaker::Node(..));
        if !is_of_node && !self.registry.take_supervised(link, node, incarnation) {
            out.note(Note::Unvouched { node, incarnation });
            return false;
        }
        self.registry.answer_later(link, node, incarnation);
        let newest = self.registry.claims().get(&node).map(|c| c.incarnation);
        let stored = self.records.nodes.get(&node);
        let is_known = stored.is_some_and(|n| n.record.incarnation == incarnation || n.is_over(incarnation));
        if is_of_node && !is_known && !self.registry.is_offered(node, incarnation) {
            return true;
        }
        let is_present = newest.or_else(|| stored.map(|n| n.record.incarnation)) == Some(incarnation);
        let had_ended = stored.is_some_and(|n| n.record.incarnation == incarnation && n.has_ended());
        // A node that never registered has no record.
        let is_news = (stored.is_none() && newest.is_none()) || self.registry.note_ended(node, incarnation);
        if is_news {
            out.note(Note::Ended { node, incarnation });
        }
        // Not again when it is said again: others wait meanwhile.
        if is_news && is_present && !had_ended {
            self.suspicion
                .wait_for_next(node, now + self.records.plan.restart_wait());
        }
        true
    }
}
