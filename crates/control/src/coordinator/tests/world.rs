//! A coordinator, nodes that only register and send heartbeats, and a clock. Every committed configuration is checked
//! against I11.

mod checks;

use super::*;
use crate::check_transition;
use crate::message::{Opinions, Order, split};
use paritas_base::Epoch;
use paritas_base::formats::TOMORROW;

pub(super) fn plan(data: u8, parity: u8, nodes: u16, spares: u16) -> ClusterPlan {
    ClusterPlan::simple(ClusterId(1), data, parity, nodes, spares)
}

pub(super) fn registration(node: u16, incarnation: Incarnation) -> Registration {
    Registration {
        cluster: Some(ClusterId(1)),
        node: NodeId(node),
        incarnation,
        domain: None,
        role: NodeRole::Member,
        pid: 100 + u32::from(node),
        supervised: true,
        client_address: format!("h:{}", 1000 + node),
        cluster_address: format!("h:{}", 2000 + node),
        peer_address: format!("h:{}", 3000 + node),
        coordinators: 1,
        installed: vec![],
        heard: vec![],
        incarnations: vec![],
        more: Default::default(),
    }
}

#[derive(Clone, Debug)]
pub(super) struct TestNode {
    pub(super) incarnation: Incarnation,
    pub(super) link: LinkId,
    pub(super) nonce: u64,
    pub(super) alive: bool,
    /// Roles of this incarnation that have halted.
    pub(super) halted: Vec<HaltedRole>,
    /// The newest configurations that it has received.
    pub(super) installed: BTreeMap<ListId, (Epoch, u64)>,
    /// Configurations of which it knows only epoch and id.
    pub(super) heard: BTreeMap<ListId, (Epoch, u64)>,
}

impl TestNode {
    fn install(&mut self, configurations: &[Configuration]) {
        let received = configurations.iter().map(|c| (c.list, (c.epoch, c.id)));
        self.installed.extend(received);
    }
}

#[derive(Default)]
struct Sent {
    frames: BTreeMap<LinkId, Vec<ToAgent>>,
    closed: Vec<LinkId>,
    notes: Vec<Note>,
}

impl CoordinatorOut for Sent {
    fn send(&mut self, link: LinkId, bytes: &[u8]) {
        assert_eq!(split(bytes, TO_AGENT_BYTES_MAX), Ok(Some(bytes.len())));
        self.frames
            .entry(link)
            .or_default()
            .push(decode(bytes, TO_AGENT_BYTES_MAX).unwrap());
    }
    fn close(&mut self, link: LinkId) {
        self.closed.push(link);
    }
    fn note(&mut self, note: Note) {
        self.notes.push(note);
    }
}

pub(super) struct World {
    pub(super) plan: ClusterPlan,
    pub(super) stand_in: bool,
    pub(super) slow_removal: Option<Span>,
    /// Nodes that register as log nodes.
    pub(super) log_nodes: BTreeSet<u16>,
    pub(super) coordinator: Coordinator<MemoryStore>,
    pub(super) nodes: BTreeMap<u16, TestNode>,
    pub(super) notes: Vec<Note>,
    pub(super) closed: Vec<LinkId>,
    pub(super) last_registered: Option<Registered>,
    /// All committed configurations, by list.
    pub(super) history: BTreeMap<ListId, Vec<Configuration>>,
    inbox: BTreeMap<LinkId, Vec<ToAgent>>,
    pub(super) supervisor: LinkId,
    /// Silent incarnations, and since when. Their peers do not hear them either.
    silent_since: BTreeMap<(NodeId, Incarnation), Time>,
    /// The ids that were sent to processes that have asked to register.
    told: BTreeMap<LinkId, BTreeMap<ListId, (Epoch, u64)>>,
    /// Nodes that do not answer `ToAgent::Witness`.
    pub(super) slow_witnesses: BTreeSet<u16>,
    /// Nodes that their peers hear and the coordinator does not.
    cut_off: BTreeSet<u16>,
    /// What coordinators that are opened may speak.
    pub(super) versions: Versions,
    /// Nodes whose processes may speak the version of tomorrow, and the version that they know to be active.
    pub(super) newer: BTreeMap<u16, u16>,
    now: Time,
    next: u64,
}

impl World {
    pub(super) fn new(plan: ClusterPlan) -> Self {
        let mut store = MemoryStore::new();
        Coordinator::create(&mut store, &plan).unwrap();
        let coordinator = Coordinator::open(store, &plan, 1).unwrap();
        let mut world = Self {
            log_nodes: plan.log_nodes.iter().map(|n| n.id.0).collect(),
            plan,
            stand_in: true,
            slow_removal: None,
            coordinator,
            nodes: BTreeMap::new(),
            notes: vec![],
            closed: vec![],
            last_registered: None,
            history: BTreeMap::new(),
            inbox: BTreeMap::new(),
            supervisor: LinkId(0),
            silent_since: BTreeMap::new(),
            told: BTreeMap::new(),
            slow_witnesses: BTreeSet::new(),
            cut_off: BTreeSet::new(),
            versions: Versions::OURS,
            newer: BTreeMap::new(),
            now: Time(1_000_000_000_000),
            next: 1,
        };
        world.supervisor = world.connect();
        world
    }

    /// A cluster with all planned nodes registered, without the spares.
    pub(super) fn started(plan: ClusterPlan) -> Self {
        let count = (plan.nodes.len() + plan.log_nodes.len()) as u16;
        let mut world = Self::new(plan);
        (0..count).for_each(|node| world.start(node));
        (0..count).for_each(|node| drop(world.received_by(node)));
        assert!(world.coordinator.configurations().count() > 0);
        world
    }

    /// Applies the setting `stand_in = false`.
    pub(super) fn without_stand_ins(mut self) -> Self {
        self.stand_in = false;
        self.coordinator.set_stand_in(false);
        self
    }

    pub(super) fn event(&mut self, event: CoordinatorEvent<'_>) {
        for (id, node) in &self.nodes {
            let key = (NodeId(*id), node.incarnation);
            if node.alive || self.cut_off.contains(id) {
                self.silent_since.remove(&key);
            } else {
                self.silent_since.entry(key).or_insert(self.now);
            }
        }
        let mut sent = Sent::default();
        self.coordinator.on(
            Clock {
                mono: self.now,
                wall_ms: 0,
            },
            event,
            &mut sent,
        );
        self.notes.extend(sent.notes);
        self.closed.extend(sent.closed);
        let mut witnessed = vec![];
        let mut proofs = vec![];
        for (link, mut messages) in sent.frames {
            let of_link = |(_, n): &(&u16, &mut TestNode)| n.link == link;
            let mut node = self.nodes.iter_mut().find(of_link);
            for message in &messages {
                let ToAgent::Witness { batch, heads } = message else {
                    continue;
                };
                let heads = heads.iter().map(|(list, epoch, id)| (*list, (*epoch, *id)));
                match node.as_mut() {
                    Some((_, node)) if node.alive => node.heard.extend(heads),
                    Some(_) => {}
                    None => self.told.entry(link).or_default().extend(heads),
                }
                let answers = |(id, n): &(&u16, &mut TestNode)| n.alive && !self.slow_witnesses.contains(id);
                if node.as_ref().is_none_or(answers) {
                    witnessed.push((link, *batch));
                }
            }
            for message in &messages {
                if let ToAgent::Ping { at_ns } = message
                    && let Some((_, node)) = node.as_ref().filter(|(_, n)| n.alive)
                {
                    let (nonce, at_ns) = (node.nonce, *at_ns);
                    proofs.push((link, ToCoordinator::Pong { nonce, at_ns }));
                }
            }
            messages.retain(|m| !matches!(m, ToAgent::Witness { .. } | ToAgent::Ping { .. }));
            for message in &messages {
                if let ToAgent::Configurations(received) = message
                    && let Some(node) = self.nodes.values_mut().find(|n| n.alive && n.link == link)
                {
                    node.install(received);
                }
            }
            self.inbox.entry(link).or_default().extend(messages);
        }
        let committed: Vec<Configuration> = self.coordinator.configurations().cloned().collect();
        for new in committed {
            let history = self.history.entry(new.list).or_default();
            if history.last() != Some(&new) {
                check_transition(history.last(), &new).unwrap_or_else(|e| panic!("{e}\n{:?}\n{new:?}", history.last()));
                history.push(new);
            }
        }
        self.assert_data_in_memory();
        self.assert_rebuildable();
        for (link, batch) in witnessed {
            self.say(link, &ToCoordinator::Witnessed { batch });
        }
        for (link, pong) in proofs {
            self.say(link, &pong);
        }
        let cluster = self.coordinator.cluster();
        let held = self.coordinator.configurations().flat_map(|c| {
            let held = c.slots.held(c.list, cluster);
            held.into_iter().map(|range| (c.list, range))
        });
        if self.coordinator.configurations().next().is_some() {
            paritas_base::hash_slots::check_whole(held).unwrap();
        }
    }

    pub(super) fn connect(&mut self) -> LinkId {
        let link = LinkId(self.fresh());
        self.event(CoordinatorEvent::Connected { link });
        link
    }

    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(super) fn say(&mut self, link: LinkId, message: &ToCoordinator) {
        self.say_by(link, crate::rights::fitting(message), message);
    }

    pub(super) fn say_by(&mut self, link: LinkId, by: Speaker, message: &ToCoordinator) {
        let bytes = encode(message, TO_COORDINATOR_BYTES_MAX).unwrap();
        self.event(CoordinatorEvent::Message {
            link,
            by,
            bytes: &bytes,
        });
    }

    pub(super) fn say_as(&mut self, node: u16, message: &ToCoordinator) {
        self.say(self.nodes[&node].link, message);
    }

    pub(super) fn received(&mut self, link: LinkId) -> Vec<ToAgent> {
        self.inbox.remove(&link).unwrap_or_default()
    }

    pub(super) fn received_by(&mut self, node: u16) -> Vec<ToAgent> {
        self.received(self.nodes[&node].link)
    }

    /// Registers, but does not send the heartbeat that confirms it.
    pub(super) fn offer(&mut self, link: LinkId, node: u16, incarnation: Incarnation) -> Result<Registered, Refusal> {
        let mut registration = registration(node, incarnation);
        let before = self.nodes.get(&node).filter(|n| n.incarnation == incarnation);
        let installed = before.into_iter().flat_map(|n| &n.installed);
        registration.installed = installed.map(|(list, (epoch, id))| (*list, *epoch, *id)).collect();
        let heard = before.into_iter().flat_map(|n| &n.heard);
        registration.heard = heard.map(|(list, (epoch, id))| (*list, *epoch, *id)).collect();
        if self.log_nodes.contains(&node) {
            registration.role = NodeRole::Log;
        }
        if let Some(active) = self.newer.get(&node) {
            Versions::up_to(TOMORROW).say(*active, &mut registration.more);
        }
        self.say(link, &ToCoordinator::Register(Box::new(registration)));
        match self.received(link).pop() {
            Some(ToAgent::Registered(registered)) => Ok(*registered),
            Some(ToAgent::Refused(refusal)) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    /// Starts a new incarnation with a supervisor.
    pub(super) fn start(&mut self, node: u16) {
        let incarnation = Incarnation(self.fresh());
        let supervise = ToCoordinator::Supervise {
            node: NodeId(node),
            incarnation,
        };
        self.say(self.supervisor, &supervise);
        self.register(node, incarnation);
    }

    fn register(&mut self, node: u16, incarnation: Incarnation) {
        let link = self.connect();
        let mut offered = self.offer(link, node, incarnation);
        // An agent registers again until the older incarnation is known to have ended.
        for _ in 0..100 {
            if offered != Err(Refusal::Running) {
                break;
            }
            self.kill(node);
            self.pass(100);
            offered = self.offer(link, node, incarnation);
        }
        if offered == Err(Refusal::Running) {
            // Too few nodes are linked for a decision by silence, so the end is certified.
            self.certify(node);
            offered = self.offer(link, node, incarnation);
        }
        let registered = offered.unwrap();
        let nonce = registered.nonce;
        let configurations = registered.configurations.clone();
        self.last_registered = Some(registered);
        let before = self.nodes.remove(&node).filter(|n| n.incarnation == incarnation);
        let mut fresh = TestNode {
            incarnation,
            link,
            nonce,
            alive: true,
            halted: before.as_ref().map_or_else(Vec::new, |n| n.halted.clone()),
            heard: before.as_ref().map_or_else(BTreeMap::new, |n| n.heard.clone()),
            installed: before.map_or_else(BTreeMap::new, |n| n.installed),
        };
        fresh.heard.extend(self.told.remove(&link).unwrap_or_default());
        fresh.install(&configurations);
        self.nodes.insert(node, fresh);
        self.beat(node);
        let received = self.inbox.entry(link).or_default();
        received.retain(|m| *m != ToAgent::Heard);
    }

    pub(super) fn register_again(&mut self, node: u16) {
        self.register(node, self.incarnation(node));
    }

    /// Starts another incarnation. The end of the old one is not certified.
    pub(super) fn restart(&mut self, node: u16) {
        self.start(node);
    }

    pub(super) fn has_died(&self, node: u16) -> bool {
        self.nodes.get(&node).is_some_and(|n| !n.alive)
    }

    /// Kills the process. Its end is not certified.
    pub(super) fn kill(&mut self, node: u16) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.alive = false;
        }
        self.cut_off.remove(&node);
    }

    /// Kills the processes. An operator, and no supervisor, says that they have ended.
    pub(super) fn attest(&mut self, nodes: &[u16]) {
        nodes.iter().for_each(|node| self.kill(*node));
        self.pass(3_000);
        let link = self.connect();
        let nodes = nodes.iter().map(|node| NodeId(*node)).collect();
        let order = Order::Fence { nodes };
        let confirmed = true;
        self.say(link, &ToCoordinator::Order { n: 7, order, confirmed });
    }

    /// The process runs, but the coordinator does not hear it any more.
    pub(super) fn cut_off(&mut self, node: u16) {
        self.kill(node);
        self.cut_off.insert(node);
    }

    /// Kills the process, and its supervisor certifies the end.
    pub(super) fn certify(&mut self, node: u16) {
        self.kill(node);
        let exited = ToCoordinator::Exited {
            node: NodeId(node),
            incarnation: self.incarnation(node),
        };
        self.say(self.supervisor, &exited);
    }

    pub(super) fn incarnation(&self, node: u16) -> Incarnation {
        self.nodes[&node].incarnation
    }

    pub(super) fn beat(&mut self, node: u16) {
        let halted = self.nodes[&node].halted.clone();
        let suspicion = Span::from_ms(self.plan.suspicion_ms.into());
        let is_unheard = |since: &Time| self.now - *since >= suspicion;
        let unheard = self.silent_since.iter().filter(|(_, since)| is_unheard(since));
        let opinions = Some(Opinions {
            unheard: unheard.map(|(incarnation, _)| *incarnation).collect(),
            unsure: vec![],
        });
        let turns = self.fresh();
        let has_halted = !halted.is_empty();
        let progress = ShardProgress {
            turns,
            halted,
            ..ShardProgress::default()
        };
        let beat = ToCoordinator::Heartbeat {
            nonce: self.nodes[&node].nonce,
            shards: has_halted.then_some(progress).into_iter().collect(),
            silent: vec![],
            opinions,
        };
        self.say_as(node, &beat);
    }

    /// The role of the position's holder breaks an invariant.
    pub(super) fn halt(&mut self, list: u16, position: u8) {
        if let Some(node) = self.holder(list, position)
            && let Some(known) = self.nodes.get_mut(&node).filter(|n| n.alive)
        {
            let role = HaltedRole::new(ListId(list), Position(position), "I4: no fit".into());
            known.halted.push(role);
            self.beat_or_register(node);
        }
    }

    pub(super) fn beat_with(&mut self, node: u16, shards: Vec<ShardProgress>) {
        let nonce = self.nodes[&node].nonce;
        self.say_as(
            node,
            &ToCoordinator::Heartbeat {
                nonce,
                shards,
                silent: vec![],
                opinions: None,
            },
        );
    }

    pub(super) fn report(&mut self, from: u16, about: u16) {
        let nonce = self.nodes[&from].nonce;
        let silent = vec![(NodeId(about), self.incarnation(about))];
        self.say_as(
            from,
            &ToCoordinator::Heartbeat {
                nonce,
                shards: vec![],
                silent,
                opinions: None,
            },
        );
    }

    pub(super) fn ask_live(&mut self, list: u16, position: u8) {
        let tenure = self.list(list).tenure(Position(position)).unwrap();
        self.say_as(
            tenure.node.0,
            &ToCoordinator::AskLive {
                list: ListId(list),
                position: Position(position),
                tenure,
            },
        );
    }

    /// Time passes without messages.
    pub(super) fn tick(&mut self, ms: u64) {
        let end = self.now + Span::from_ms(ms);
        while let Some(at) = self.coordinator.next_deadline().filter(|at| *at < end) {
            self.now = self.now.max(at) + Span(1);
            self.event(CoordinatorEvent::Timer);
        }
        self.now = end;
        self.event(CoordinatorEvent::Timer);
    }

    /// Time passes, and all running nodes send heartbeats.
    pub(super) fn pass(&mut self, ms: u64) {
        let mut left = ms;
        while left > 0 {
            let step = left.min(200);
            self.tick(step);
            left -= step;
            let running = self.nodes.iter().filter(|(_, n)| n.alive);
            let running: Vec<u16> = running.map(|(id, _)| *id).collect();
            running.into_iter().for_each(|node| self.beat_or_register(node));
        }
    }

    /// Sends a heartbeat, and registers again if the coordinator asks for it, as an agent does.
    pub(super) fn beat_or_register(&mut self, node: u16) {
        let link = self.nodes[&node].link;
        if !self.coordinator.registry.is_connected(link) {
            return self.register_again(node);
        }
        self.beat(node);
        let last = self.inbox.get(&link).and_then(|inbox| inbox.last());
        if last == Some(&ToAgent::Refused(Refusal::RegisterAgain)) {
            self.register_again(node);
        }
    }

    pub(super) fn list(&self, list: u16) -> Configuration {
        self.coordinator
            .configurations()
            .find(|c| c.list == ListId(list))
            .unwrap()
            .clone()
    }

    pub(super) fn holder(&self, list: u16, position: u8) -> Option<u16> {
        self.list(list).tenure(Position(position)).map(|t| t.node.0)
    }

    /// All positions of running nodes become Live.
    pub(super) fn rebuild(&mut self) {
        let filling: Vec<(u16, u8)> = self
            .coordinator
            .configurations()
            .flat_map(|c| {
                let positions = c.positions.iter().enumerate();
                let filling = positions.filter(|(_, a)| a.is_some_and(|a| a.state != PositionState::Live));
                filling.map(|(i, _)| (c.list.0, i as u8)).collect::<Vec<_>>()
            })
            .collect();
        for (list, position) in filling {
            let holder = self.holder(list, position).map(|node| &self.nodes[&node]);
            let tenure = self.list(list).tenure(Position(position));
            if holder.is_some_and(|h| h.alive && Some(h.incarnation) == tenure.map(|t| t.incarnation)) {
                self.ask_live(list, position);
            }
        }
    }

    /// Ends the coordinator and opens the next one on its store. All links close.
    pub(super) fn reopen(&mut self) {
        let seed = self.fresh();
        let mut store = self.coordinator.store_mut().clone();
        store.fail_commits(0);
        store.lose_answers(0);
        self.coordinator = Coordinator::open_as(store, &self.plan, seed, self.versions).unwrap();
        self.coordinator.set_stand_in(self.stand_in);
        self.coordinator.set_slow_removal(self.slow_removal);
        self.supervisor = self.connect();
        let incarnations: Vec<_> = self.nodes.iter().map(|(id, n)| (NodeId(*id), n.incarnation)).collect();
        for (node, incarnation) in incarnations {
            self.say(self.supervisor, &ToCoordinator::Supervise { node, incarnation });
        }
    }

    /// The coordinator is paused for this time.
    pub(super) fn sleep(&mut self, ms: u64) {
        self.now = self.now + Span::from_ms(ms);
    }

    /// Whether the node's present incarnation has ended.
    pub(super) fn is_over(&self, node: u16) -> bool {
        let incarnation = self.incarnation(node);
        let stored = self
            .coordinator
            .records
            .nodes
            .get(&NodeId(node))
            .is_some_and(|n| n.is_over(incarnation));
        stored || self.coordinator.registry.ended().contains(&(NodeId(node), incarnation))
    }

    /// Gives an operator's order. Returns why it is refused.
    pub(super) fn set_duty(&mut self, node: u16, duty: Duty) -> Option<String> {
        match self.order(node, duty) {
            Some(ToAgent::Ordered { n: 5, refused }) => refused,
            other => panic!("{other:?}"),
        }
    }

    /// The same when the store may fail. Returns whether the order was accepted.
    pub(super) fn try_duty(&mut self, node: u16, duty: Duty) -> bool {
        matches!(self.order(node, duty), Some(ToAgent::Ordered { refused: None, .. }))
    }

    fn order(&mut self, node: u16, duty: Duty) -> Option<ToAgent> {
        let link = self.connect();
        let order = ToCoordinator::SetDuty {
            n: 5,
            node: NodeId(node),
            duty,
        };
        self.say(link, &order);
        self.received(link).pop()
    }

    /// All owners that were asked to drain report that they have.
    pub(super) fn drain(&mut self) {
        let alive = self.nodes.values().filter(|n| n.alive).map(|n| n.link);
        let links: Vec<LinkId> = alive.collect();
        for link in links {
            for message in self.inbox.get(&link).cloned().unwrap_or_default() {
                if let ToAgent::Drain { list, position, tenure } = message {
                    self.say(link, &ToCoordinator::Drained { list, position, tenure });
                }
            }
            self.inbox
                .entry(link)
                .or_default()
                .retain(|m| !matches!(m, ToAgent::Drain { .. }));
        }
    }

    pub(super) fn now(&self) -> Time {
        self.now
    }
}
