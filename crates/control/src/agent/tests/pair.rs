//! A coordinator and processes whose agents are connected to it, and a clock.

use super::*;
use crate::rights::Speaker;

#[derive(Default)]
pub(super) struct Driver {
    pub(super) dialed: Vec<usize>,
    pub(super) hung_up: u32,
    pub(super) sent: Vec<Vec<u8>>,
    pub(super) clusters: Vec<ClusterRecord>,
    pub(super) nodes: Vec<NodeRecord>,
    pub(super) configurations: BTreeMap<ListId, Configuration>,
    pub(super) delivered: u32,
    pub(super) answers: Vec<(ConnId, u64, bool)>,
    pub(super) duties: Vec<(ConnId, u64, Option<String>)>,
    pub(super) drains: Vec<(ListId, Position, Tenure)>,
    pub(super) refused: Vec<Refusal>,
    pub(super) ended: Option<Refusal>,
    pub(super) changed: Vec<ClusterRecord>,
}

impl AgentOut for Driver {
    fn dial(&mut self, coordinator: usize) {
        self.dialed.push(coordinator);
    }
    fn hang_up(&mut self) {
        self.hung_up += 1;
    }
    fn send(&mut self, bytes: &[u8]) {
        self.sent.push(bytes.to_vec());
    }
    fn cluster(&mut self, cluster: &ClusterRecord) {
        self.clusters.push(cluster.clone());
    }
    fn cluster_changed(&mut self, cluster: &ClusterRecord) {
        self.changed.push(cluster.clone());
    }
    fn nodes(&mut self, nodes: &[NodeRecord]) {
        self.nodes = nodes.to_vec();
    }
    fn configuration(&mut self, configuration: &Configuration) {
        assert!(!self.clusters.is_empty(), "the cluster comes first");
        self.delivered += 1;
        self.configurations.insert(configuration.list, configuration.clone());
    }
    fn status(&mut self, conn: ConnId, n: u64, status: Result<&Status, &str>) {
        self.answers.push((conn, n, status.is_ok()));
    }
    fn duty_set(&mut self, conn: ConnId, n: u64, refused: Option<&str>) {
        self.duties.push((conn, n, refused.map(str::to_owned)));
    }
    fn drain(&mut self, list: ListId, position: Position, tenure: Tenure) {
        self.drains.push((list, position, tenure));
    }
    fn refused(&mut self, refusal: &Refusal) {
        self.refused.push(refusal.clone());
    }
    fn ended(&mut self, refusal: &Refusal) {
        self.ended = Some(refusal.clone());
    }
}

#[derive(Default)]
pub(super) struct Sent(Vec<(LinkId, Vec<u8>)>);

impl CoordinatorOut for Sent {
    fn send(&mut self, link: LinkId, bytes: &[u8]) {
        self.0.push((link, bytes.to_vec()));
    }
    fn close(&mut self, _link: LinkId) {}
    fn note(&mut self, _note: Note) {}
}

pub(super) struct Process {
    pub(super) agent: Agent,
    pub(super) driver: Driver,
    pub(super) link: Option<LinkId>,
}

pub(super) struct Pair {
    pub(super) coordinator: Coordinator<MemoryStore>,
    pub(super) processes: Vec<Process>,
    /// Whether a dial succeeds and bytes arrive.
    pub(super) reachable: bool,
    pub(super) now: Time,
    pub(super) links: u64,
}

pub(super) fn registration(node: u16, incarnation: u64) -> Registration {
    Registration {
        cluster: None,
        node: NodeId(node),
        incarnation: Incarnation(incarnation),
        domain: None,
        role: NodeRole::Member,
        pid: 1,
        supervised: false,
        client_address: "h:1".into(),
        cluster_address: "h:2".into(),
        peer_address: "h:3".into(),
        coordinators: 1,
        installed: vec![],
        heard: vec![],
        incarnations: vec![],
        more: Default::default(),
    }
}

pub(super) fn process(node: u16, incarnation: u64) -> Process {
    Process {
        agent: Agent::new(registration(node, incarnation), 2, incarnation),
        driver: Driver::default(),
        link: None,
    }
}

impl Pair {
    /// A coordinator and one process for each node of the plan, all just started.
    pub(super) fn new() -> Self {
        let plan = ClusterPlan::simple(ClusterId(3), 2, 1, 3, 0);
        let mut store = MemoryStore::new();
        Coordinator::create(&mut store, &plan).unwrap();
        let coordinator = Coordinator::open(store, &plan, 1).unwrap();
        let processes = (0..3).map(|n| process(n, 100 + u64::from(n))).collect();
        Self {
            coordinator,
            processes,
            reachable: true,
            now: Time(1_000_000_000),
            links: 0,
        }
    }

    pub(super) fn clock(&self) -> Clock {
        Clock {
            mono: self.now,
            wall_ms: 0,
        }
    }

    pub(super) fn agent(&mut self, i: usize, event: AgentEvent<'_>) {
        let clock = self.clock();
        let process = &mut self.processes[i];
        process.agent.on(clock, event, &mut process.driver);
        self.settle(i);
    }

    /// Does what the agent has requested of its driver, until there are no more requests.
    fn settle(&mut self, i: usize) {
        loop {
            let driver = &mut self.processes[i].driver;
            let (dialed, hung_up) = (
                core::mem::take(&mut driver.dialed),
                core::mem::take(&mut driver.hung_up),
            );
            let sent = core::mem::take(&mut driver.sent);
            if dialed.is_empty() && hung_up == 0 && sent.is_empty() {
                return;
            }
            for frame in sent {
                if let Some(link) = self.processes[i].link.filter(|_| self.reachable) {
                    let registration = &self.processes[i].agent.registration;
                    let by = Speaker::Node(registration.node, registration.incarnation);
                    self.coordinate(CoordinatorEvent::Message {
                        link,
                        by,
                        bytes: &frame,
                    });
                }
            }
            if let Some(link) = self.processes[i].link.take_if(|_| hung_up > 0) {
                self.coordinate(CoordinatorEvent::Disconnected { link });
            }
            for _ in dialed {
                if self.reachable {
                    self.links += 1;
                    let link = LinkId(self.links);
                    self.processes[i].link = Some(link);
                    self.coordinate(CoordinatorEvent::Connected { link });
                    self.agent(i, AgentEvent::Connected);
                } else {
                    self.agent(i, AgentEvent::Disconnected);
                }
            }
        }
    }

    pub(super) fn coordinate(&mut self, event: CoordinatorEvent<'_>) {
        let mut sent = Sent::default();
        let clock = self.clock();
        self.coordinator.on(clock, event, &mut sent);
        for (link, frame) in sent.0 {
            let to = self.processes.iter().position(|p| p.link == Some(link));
            if let Some(i) = to.filter(|_| self.reachable) {
                self.agent(i, AgentEvent::Message(&frame));
            }
        }
    }

    pub(super) fn pass(&mut self, ms: u64) {
        for _ in 0..ms / 10 {
            self.now = self.now + Span::from_ms(10);
            for i in 0..self.processes.len() {
                if self.processes[i].agent.next_deadline().is_some_and(|at| self.now >= at) {
                    self.agent(i, AgentEvent::Timer);
                }
            }
            if self.coordinator.next_deadline().is_some_and(|at| self.now >= at) {
                self.coordinate(CoordinatorEvent::Timer);
            }
        }
    }

    /// The shards of these processes do not hear another process.
    pub(super) fn do_not_hear(&mut self, processes: &[usize], node: u16, incarnation: u64) {
        for i in processes {
            let unheard = vec![(NodeId(node), Incarnation(incarnation))];
            let unsure = Vec::new();
            let opinions = paritas_protocol::Opinions { unheard, unsure };
            self.agent(*i, AgentEvent::Proposal(Proposal::Opinions(opinions)));
        }
    }

    /// The coordinator's process is replaced by another on the same store; links break.
    pub(super) fn replace_coordinator(&mut self) {
        let plan = ClusterPlan::simple(ClusterId(3), 2, 1, 3, 0);
        let store = self.coordinator.store_mut().clone();
        self.coordinator = Coordinator::open(store, &plan, 77).unwrap();
    }
}
