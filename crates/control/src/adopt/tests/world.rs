//! An adoption, processes that report to it, and a clock.

use super::*;

pub(super) fn plan() -> ClusterPlan {
    ClusterPlan::simple(ClusterId(7), 2, 1, 4, 0)
}

pub(super) fn incarnation(node: u16) -> Incarnation {
    Incarnation(1000 + u64::from(node))
}

/// The lists at their first epoch, with all positions Live.
pub(super) fn first_lists() -> Vec<Configuration> {
    let plan = plan();
    let lists = plan.layout().lists;
    let held = |node: &NodeId| {
        let (incarnation, since) = (incarnation(node.0), Epoch(1));
        let tenure = Tenure {
            node: *node,
            incarnation,
            since,
        };
        let state = PositionState::Live;
        Some(Assignment { tenure, state })
    };
    let list = |(i, nodes): (usize, &Vec<NodeId>)| {
        let mut list = Configuration {
            list: ListId(i as u16),
            epoch: Epoch(1),
            born: Epoch(1),
            data: 2,
            parity: 1,
            ack_quorum: 1,
            positions: nodes.iter().map(held).collect(),
            gone: vec![],
            lost: false,
            slots: Default::default(),
            id: 0,
            trail: vec![],
            more: Default::default(),
        };
        list.seal(None);
        list
    };
    lists.iter().enumerate().map(list).collect()
}

pub(super) fn after(before: &Configuration, change: impl FnOnce(&mut Configuration)) -> Configuration {
    let mut next = before.clone();
    next.epoch = Epoch(before.epoch.0 + 1);
    change(&mut next);
    next.seal(Some(before));
    next
}

/// The next configuration of every list.
pub(super) fn next_lists(lists: &[Configuration], born: u32) -> Vec<Configuration> {
    lists.iter().map(|c| after(c, |c| c.born = Epoch(born))).collect()
}

#[derive(Default)]
pub(super) struct Sent(pub(super) Vec<ToAgent>);

impl CoordinatorOut for Sent {
    fn send(&mut self, _: LinkId, bytes: &[u8]) {
        self.0.push(decode(bytes, TO_AGENT_BYTES_MAX).unwrap());
    }
    fn close(&mut self, _: LinkId) {}
    fn note(&mut self, _: Note) {}
}

pub(super) struct World {
    pub(super) adoption: Adoption<MemoryStore>,
    pub(super) now: Time,
    links: u64,
}

pub(super) fn registration(node: u16, incarnation: Incarnation, cluster: Option<ClusterId>) -> Registration {
    Registration {
        cluster,
        node: NodeId(node),
        incarnation,
        domain: None,
        role: NodeRole::Member,
        pid: 100 + u32::from(node),
        supervised: false,
        client_address: format!("h:{node}"),
        cluster_address: format!("c:{node}"),
        peer_address: format!("p:{node}"),
        coordinators: 1,
        installed: vec![],
        heard: vec![],
        incarnations: vec![],
        more: Default::default(),
    }
}

impl World {
    pub(super) fn new(store: MemoryStore, without: &[u16]) -> Self {
        let asked = ClusterPlan {
            cluster: ClusterId(99),
            ..plan()
        };
        let adoption = Adoption::begin(store, &asked, without.iter().map(|node| NodeId(*node))).unwrap();
        let now = Time(1_000_000_000_000);
        Self {
            adoption,
            now,
            links: 0,
        }
    }

    pub(super) fn event(&mut self, event: CoordinatorEvent<'_>) -> Vec<ToAgent> {
        let mut sent = Sent::default();
        let now = Clock {
            mono: self.now,
            wall_ms: 0,
        };
        self.adoption.on(now, event, &mut sent);
        sent.0
    }

    pub(super) fn say(&mut self, link: LinkId, message: &ToCoordinator) -> Vec<ToAgent> {
        let bytes = encode(message, TO_COORDINATOR_BYTES_MAX).unwrap();
        let by = crate::rights::fitting(message);
        self.event(CoordinatorEvent::Message {
            link,
            by,
            bytes: &bytes,
        })
    }

    pub(super) fn tick(&mut self, ms: u64) {
        self.now = self.now + Span::from_ms(ms);
        self.event(CoordinatorEvent::Timer);
    }

    pub(super) fn register(
        &mut self,
        node: u16,
        incarnation: Incarnation,
        cluster: Option<ClusterId>,
    ) -> (LinkId, Vec<ToAgent>) {
        self.register_with(node, incarnation, cluster, |_| {})
    }

    pub(super) fn register_with(
        &mut self,
        node: u16,
        incarnation: Incarnation,
        cluster: Option<ClusterId>,
        change: impl FnOnce(&mut Registration),
    ) -> (LinkId, Vec<ToAgent>) {
        self.links += 1;
        let link = LinkId(self.links);
        self.event(CoordinatorEvent::Connected { link });
        let mut registration = registration(node, incarnation, cluster);
        change(&mut registration);
        let answer = self.say(link, &ToCoordinator::Register(Box::new(registration)));
        (link, answer)
    }

    /// A process that has served registers, and reports these lists.
    pub(super) fn report(&mut self, node: u16, lists: &[Configuration]) {
        self.report_as(node, incarnation(node), Some(plan().record()), lists);
    }

    pub(super) fn report_as(
        &mut self,
        node: u16,
        incarnation: Incarnation,
        cluster: Option<ClusterRecord>,
        lists: &[Configuration],
    ) {
        let (link, answer) = self.register(node, incarnation, cluster.as_ref().map(|c| c.id));
        assert_eq!(answer, [ToAgent::Refused(Refusal::Adopting)]);
        // One that has begun anew knows no other process.
        let latest = match lists.is_empty() {
            true => vec![],
            false => vec![(NodeId(3), Incarnation(1003), 7), (NodeId(2), Incarnation(1002), 7)],
        };
        // In two frames.
        let (first, second) = lists.split_at(lists.len() / 2);
        for (cluster, part, is_last) in [(cluster, first, false), (None, second, true)] {
            let configurations = part.to_vec();
            let testimony = Testimony {
                cluster,
                incarnations: latest.clone(),
                configurations,
                is_last,
            };
            self.say(link, &ToCoordinator::Testimony(Box::new(testimony)));
        }
    }

    pub(super) fn remarks(&self) -> String {
        match self.adoption.progress() {
            Progress::Waits(words) => words.join("; "),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn failure(&self) -> String {
        match self.adoption.progress() {
            Progress::Failed(why) => why.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// The coordinator that opens the adopted store, and the remarks of the adoption.
    pub(super) fn done(self) -> (Coordinator<MemoryStore>, String) {
        let Progress::Done(words) = self.adoption.progress() else {
            panic!("{:?}", self.adoption.progress());
        };
        let words = words.join("; ");
        (
            Coordinator::open(self.adoption.into_store(), &plan(), 1).unwrap(),
            words,
        )
    }
}
