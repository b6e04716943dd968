//! Agents and a real coordinator over links that the test may break.

use super::*;
use crate::store::MemoryStore;
use crate::{ClusterPlan, Coordinator, CoordinatorEvent, CoordinatorOut, Note};
use paritas_base::ClusterId;
use paritas_base::Epoch;
use paritas_base::configuration::{Duty, NodeRole, PositionState};
use paritas_protocol::LinkId;

#[derive(Default)]
struct Driver {
    dialed: Vec<usize>,
    hung_up: u32,
    sent: Vec<Vec<u8>>,
    clusters: Vec<ClusterRecord>,
    nodes: Vec<NodeRecord>,
    configurations: BTreeMap<ListId, Configuration>,
    delivered: u32,
    answers: Vec<(ConnId, u64, bool)>,
    duties: Vec<(ConnId, u64, Option<String>)>,
    drains: Vec<(ListId, Position, Tenure)>,
    refused: Vec<Refusal>,
    ended: Option<Refusal>,
    changed: Vec<ClusterRecord>,
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
struct Sent(Vec<(LinkId, Vec<u8>)>);

impl CoordinatorOut for Sent {
    fn send(&mut self, link: LinkId, bytes: &[u8]) {
        self.0.push((link, bytes.to_vec()));
    }
    fn close(&mut self, _link: LinkId) {}
    fn note(&mut self, _note: Note) {}
}

struct Process {
    agent: Agent,
    driver: Driver,
    link: Option<LinkId>,
}

struct Pair {
    coordinator: Coordinator<MemoryStore>,
    processes: Vec<Process>,
    /// Whether a dial succeeds and bytes arrive.
    reachable: bool,
    now: Time,
    links: u64,
}

fn registration(node: u16, incarnation: u64) -> Registration {
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
    }
}

fn process(node: u16, incarnation: u64) -> Process {
    Process {
        agent: Agent::new(registration(node, incarnation), 2, incarnation),
        driver: Driver::default(),
        link: None,
    }
}

impl Pair {
    /// A coordinator and as many processes as the plan has nodes, all just started.
    fn new() -> Self {
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

    fn clock(&self) -> Clock {
        Clock {
            mono: self.now,
            wall_ms: 0,
        }
    }

    fn agent(&mut self, i: usize, event: AgentEvent<'_>) {
        let clock = self.clock();
        let process = &mut self.processes[i];
        process.agent.on(clock, event, &mut process.driver);
        self.settle(i);
    }

    /// Does what the driver was asked to, until nobody asks for more.
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
                    self.coordinate(CoordinatorEvent::Message { link, bytes: &frame });
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

    fn coordinate(&mut self, event: CoordinatorEvent<'_>) {
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

    fn pass(&mut self, ms: u64) {
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

    /// The coordinator's process is replaced by another on the same store; links break.
    fn replace_coordinator(&mut self) {
        let plan = ClusterPlan::simple(ClusterId(3), 2, 1, 3, 0);
        let store = self.coordinator.store_mut().clone();
        self.coordinator = Coordinator::open(store, &plan, 77).unwrap();
    }
}

#[test]
fn agents_register_and_get_the_lists() {
    let mut pair = Pair::new();
    pair.pass(20);
    for process in &pair.processes {
        assert!(process.agent.is_registered());
        assert_eq!(process.driver.clusters.len(), 1);
        assert_eq!(process.driver.nodes.len(), 3);
        let lists: Vec<_> = process.driver.configurations.values().collect();
        assert!(pair.coordinator.configurations().eq(lists) && process.driver.delivered == 6);
    }
    pair.pass(10_000);
    assert!(
        pair.coordinator.configurations().all(|c| c.epoch == Epoch(1)),
        "heartbeats keep all as it is"
    );
    assert!(
        pair.processes.iter().all(|p| p.driver.delivered == 6),
        "each configuration is delivered once"
    );
}

#[test]
fn agents_keep_the_last_records_and_come_back_after_a_coordinator() {
    let mut pair = Pair::new();
    pair.pass(20);
    pair.reachable = false;
    pair.pass(10_000);
    for process in &pair.processes {
        assert!(!process.agent.is_registered());
        assert_eq!(process.driver.configurations.len(), 6);
        assert!(process.driver.ended.is_none());
    }
    pair.replace_coordinator();
    pair.reachable = true;
    pair.pass(4_000);
    assert!(
        pair.processes
            .iter()
            .all(|p| p.agent.is_registered() && p.driver.clusters.len() == 1)
    );
    // They have told which incarnations they know.
    assert!(
        pair.processes
            .iter()
            .all(|p| p.agent.registration.incarnations.len() == 3)
    );
    assert!(pair.coordinator.configurations().all(|c| c.epoch == Epoch(1)));
}

#[test]
fn a_coordinator_with_an_old_store_does_not_bring_back_incarnations_that_are_over() {
    let mut pair = Pair::new();
    pair.pass(20);
    // A node beyond the plan holds nothing: no list changes with its incarnations, so no node can tell that the store
    // is old.
    let known = |pair: &Pair| {
        let mut nodes = pair.processes[0].driver.nodes.iter();
        nodes.find(|n| n.id == NodeId(3)).map(|n| n.incarnation)
    };
    let mut copies = Vec::new();
    for incarnation in [300, 301] {
        pair.processes.truncate(3);
        pair.processes.push(process(3, incarnation));
        pair.pass(5_000);
        assert_eq!(known(&pair), Some(Incarnation(incarnation)));
        copies.push(pair.coordinator.store_mut().clone());
    }
    pair.processes.truncate(3);
    *pair.coordinator.store_mut() = copies.remove(0);
    pair.replace_coordinator();
    pair.pass(5_000);
    assert!(pair.processes[0].agent.is_registered());
    assert_eq!(known(&pair), Some(Incarnation(301)));
}

#[test]
fn an_agent_waits_longer_each_time_and_asks_every_coordinator() {
    let mut agent = Agent::new(registration(0, 1), 3, 9);
    let mut driver = Driver::default();
    let mut now = Time(5_000_000_000);
    let mut waits = Vec::new();
    agent.on(Clock { mono: now, wall_ms: 0 }, AgentEvent::Timer, &mut driver);
    for _ in 0..12 {
        agent.on(Clock { mono: now, wall_ms: 0 }, AgentEvent::Disconnected, &mut driver);
        let at = agent.next_deadline().unwrap();
        waits.push((at - now).as_ms());
        now = at;
        agent.on(Clock { mono: now, wall_ms: 0 }, AgentEvent::Timer, &mut driver);
    }
    assert_eq!(driver.dialed, [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0]);
    assert!(
        waits[0] <= 75 && waits.iter().all(|w| *w <= 750) && waits[11] >= 500,
        "{waits:?}"
    );
}

#[test]
fn a_coordinator_that_says_nothing_is_left() {
    let mut pair = Pair::new();
    pair.pass(20);
    // The link stays, but nothing comes through: another host may have the address by now.
    let link = pair.processes[0].link;
    pair.processes[0].link = None;
    pair.pass(2_500);
    assert!(pair.processes[0].link.is_some() && pair.processes[0].link != link);
    assert!(pair.processes[0].agent.is_registered());
}

#[test]
fn a_second_process_of_a_node_waits_until_the_first_is_silent_and_then_ends_it() {
    let mut pair = Pair::new();
    pair.pass(20);
    pair.processes.push(process(0, 555));
    pair.pass(3_000);
    assert_eq!(pair.processes[0].driver.ended, None);
    assert!(pair.processes[0].agent.is_registered() && !pair.processes[3].agent.is_registered());
    assert_eq!(pair.processes[3].driver.ended, None, "it asks again");
    // The first process stands still.
    let first = pair.processes.remove(0);
    pair.pass(2_500);
    assert!(pair.processes[2].agent.is_registered());
    pair.processes.push(first);
    pair.pass(1_000);
    assert_eq!(pair.processes[3].driver.ended, Some(Refusal::IncarnationEnded));
    assert_eq!(pair.processes[3].agent.next_deadline(), None, "it says nothing more");
    let old = Incarnation(100);
    assert!(
        pair.coordinator
            .configurations()
            .all(|c| c.held_by(NodeId(0), old).next().is_none())
    );
}

#[test]
fn what_shards_ask_reaches_the_coordinator() {
    let mut pair = Pair::new();
    pair.pass(20);
    pair.processes.remove(0);
    pair.pass(1_500);
    pair.processes.push(process(0, 555));
    pair.pass(20);
    let held = pair.coordinator.configurations().find_map(|c| {
        let (position, a) = c.held_by(NodeId(0), Incarnation(555)).next()?;
        Some((c.list, position, a.tenure))
    });
    let (list, position, tenure) = held.unwrap();
    pair.agent(2, AgentEvent::Proposal(Proposal::AskLive { list, position, tenure }));
    let state = |p: &Process, position: Position| p.driver.configurations[&list].at(position).map(|a| a.state);
    assert_eq!(state(&pair.processes[1], position), Some(PositionState::Live));
    pair.agent(2, AgentEvent::Proposal(Proposal::Ask { conn: ConnId(4), n: 9 }));
    assert_eq!(pair.processes[2].driver.answers, [(ConnId(4), 9, true)]);
    let (conn, n, node, duty) = (ConnId(4), 10, NodeId(77), Duty::Draining);
    pair.agent(2, AgentEvent::Proposal(Proposal::SetDuty { conn, n, node, duty }));
    let why = pair.processes[2].driver.duties[0].2.clone();
    assert!(why.unwrap().contains("n77 has not registered"));
}

#[test]
fn silent_peers_ride_on_the_next_heartbeat() {
    let mut pair = Pair::new();
    pair.pass(20);
    let (node, incarnation) = (NodeId(2), Incarnation(102));
    let clock = pair.clock();
    let process = &mut pair.processes[0];
    process.agent.on(
        clock,
        AgentEvent::Proposal(Proposal::ReportSilent { node, incarnation }),
        &mut process.driver,
    );
    let later = Clock {
        mono: clock.mono + HEARTBEAT,
        wall_ms: 0,
    };
    let named = |process: &mut Process, at: Clock| {
        process.driver.sent.clear();
        process.agent.on(at, AgentEvent::Timer, &mut process.driver);
        match decode(&process.driver.sent[0], TO_COORDINATOR_BYTES_MAX).unwrap() {
            ToCoordinator::Heartbeat { silent, .. } => silent,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(named(process, later), [(node, incarnation)]);
    let later = Clock {
        mono: later.mono + HEARTBEAT,
        wall_ms: 0,
    };
    assert_eq!(named(process, later), [], "once, unless it is reported again");
}

#[test]
fn a_question_without_a_coordinator_is_answered_so() {
    let mut pair = Pair::new();
    pair.agent(0, AgentEvent::Proposal(Proposal::Ask { conn: ConnId(1), n: 1 }));
    assert_eq!(pair.processes[0].driver.answers, [(ConnId(1), 1, false)]);
    pair.pass(20);
    pair.reachable = false;
    pair.agent(0, AgentEvent::Proposal(Proposal::Ask { conn: ConnId(1), n: 2 }));
    pair.pass(2_100);
    assert_eq!(
        pair.processes[0].driver.answers[1],
        (ConnId(1), 2, false),
        "within two seconds"
    );
}

#[test]
fn bytes_that_are_no_message_end_the_link_only() {
    let mut pair = Pair::new();
    pair.pass(20);
    pair.agent(0, AgentEvent::Message(&[9; 20]));
    assert!(!pair.processes[0].agent.is_registered());
    pair.pass(200);
    assert!(pair.processes[0].agent.is_registered());
    assert_eq!(pair.processes[0].driver.delivered, 6);
}

/// An agent that has introduced itself, and hears one message.
fn hears(messages: &[ToAgent]) -> Driver {
    let mut agent = Agent::new(registration(0, 7), 1, 1);
    let mut driver = Driver::default();
    let now = Clock::default();
    agent.on(now, AgentEvent::Timer, &mut driver);
    agent.on(now, AgentEvent::Connected, &mut driver);
    for message in messages {
        let bytes = encode(message, TO_AGENT_BYTES_MAX).unwrap();
        agent.on(now, AgentEvent::Message(&bytes), &mut driver);
    }
    driver
}

fn registered(change: impl FnOnce(&mut ClusterRecord)) -> ToAgent {
    let mut cluster = ClusterPlan::simple(ClusterId(3), 2, 1, 3, 0).record();
    change(&mut cluster);
    ToAgent::Registered(Box::new(Registered {
        nonce: 1,
        cluster,
        nodes: Vec::new(),
        configurations: Vec::new(),
        void: Vec::new(),
    }))
}

#[test]
fn nothing_is_delivered_before_the_cluster() {
    for message in [ToAgent::Nodes(Vec::new()), ToAgent::Configurations(Vec::new())] {
        let driver = hears(&[message]);
        assert_eq!(driver.hung_up, 1);
        assert!(driver.clusters.is_empty());
    }
}

#[test]
fn a_cluster_record_that_no_node_can_serve_ends_the_process_in_words() {
    let good = hears(&[registered(|_| {})]);
    assert!(good.ended.is_none() && good.clusters.len() == 1);
    type Change = fn(&mut ClusterRecord);
    let wrong: [(Change, &str); 8] = [
        (|c| c.format = 2, "format 2, this version knows 1"),
        (|c| c.data = 0, "has invalid values"),
        (|c| c.parity = 255, "has invalid values"),
        (|c| c.chunk_bytes = 0, "has invalid values"),
        (|c| c.chunk_bytes = 1 << 20, "has invalid values"),
        (|c| c.lease_ms = 0, "has invalid values"),
        (|c| c.slots.truncate(1), "has invalid values"),
        (|c| c.slots[0].1.x = Position(9), "has invalid values"),
    ];
    for (change, part) in wrong {
        let driver = hears(&[registered(change)]);
        let why = driver.ended.unwrap().to_string();
        assert!(why.contains(part), "{why}");
        assert!(driver.clusters.is_empty(), "no node is made of it");
    }
}

#[test]
fn a_process_that_serves_outlives_a_coordinator_that_is_not_its_own() {
    let here = ClusterId(4);
    let list = ListId(0);
    let foreign = [
        (registered(|c| c.id = ClusterId(4)), Refusal::WrongCluster { here }),
        (
            ToAgent::Refused(Refusal::WrongCluster { here }),
            Refusal::WrongCluster { here },
        ),
        (
            ToAgent::Refused(Refusal::StoreIsBehind { list }),
            Refusal::StoreIsBehind { list },
        ),
        (
            ToAgent::Refused(Refusal::Version { here: 2 }),
            Refusal::Version { here: 2 },
        ),
    ];
    for (message, refusal) in foreign {
        let driver = hears(&[registered(|_| {}), message]);
        assert_eq!(driver.ended, None);
        assert_eq!(driver.refused, [refusal]);
        assert_eq!((driver.hung_up, driver.clusters.len()), (1, 1), "asked again later");
    }
    // Its incarnation is over: it may be living elsewhere.
    let driver = hears(&[registered(|_| {}), ToAgent::Refused(Refusal::IncarnationEnded)]);
    assert_eq!(driver.ended, Some(Refusal::IncarnationEnded));
    // One that holds nothing is told, and ends.
    let driver = hears(&[ToAgent::Refused(Refusal::Version { here: 2 })]);
    assert_eq!(driver.ended, Some(Refusal::Version { here: 2 }));
}

/// Configurations of one list: the first, and as many after it.
fn history(count: usize) -> Vec<Configuration> {
    let mut pair = Pair::new();
    pair.pass(2_000);
    let mut all: Vec<Configuration> = pair.coordinator.configurations().take(1).cloned().collect();
    for _ in 0..count {
        let before = &all[all.len() - 1];
        let mut next = Configuration {
            epoch: Epoch(before.epoch.0 + 1),
            ..before.clone()
        };
        next.seal(Some(before));
        all.push(next);
    }
    all
}

fn told(configuration: &Configuration) -> ToAgent {
    ToAgent::Configurations(vec![configuration.clone()])
}

#[test]
fn a_configuration_is_delivered_only_behind_those_of_its_own_history() {
    let all = history(Configuration::TRAIL_MAX + 2);
    let mut foreign = Configuration {
        epoch: Epoch(all[1].epoch.0 + 1),
        lost: true,
        ..all[1].clone()
    };
    foreign.seal(Some(&all[1]));
    for (messages, delivered, refused) in [
        (vec![told(&all[0]), told(&all[1]), told(&all[2])], 3, false),
        (vec![told(&all[0]), told(&all[5])], 2, false),
        (vec![told(&all[5]), told(&all[1])], 1, false),
        (vec![told(&all[2]), told(&foreign)], 1, true),
        (vec![told(&foreign), told(&all[5])], 1, true),
    ] {
        let driver = hears(&[vec![registered(|_| {})], messages].concat());
        assert_eq!(driver.delivered, delivered);
        assert_eq!(driver.hung_up, u32::from(refused));
        assert_eq!(driver.refused.is_empty(), !refused, "{:?}", driver.refused);
    }
}

#[test]
fn a_longer_history_is_asked_for_where_the_trail_ends_too_soon() {
    let all = history(Configuration::TRAIL_MAX + 2);
    let (first, last) = (&all[0], &all[all.len() - 1]);
    let driver = hears(&[registered(|_| {}), told(first), told(last)]);
    assert_eq!((driver.delivered, driver.hung_up), (1, 0));
    let asked: ToCoordinator = decode(driver.sent.last().unwrap(), TO_COORDINATOR_BYTES_MAX).unwrap();
    let installed = Some((first.epoch, first.id));
    assert_eq!(
        asked,
        ToCoordinator::GetConfiguration {
            list: first.list,
            installed
        }
    );
    let mut long = last.clone();
    long.trail = all.iter().rev().skip(1).map(|c| c.id).collect();
    let driver = hears(&[registered(|_| {}), told(first), told(&long)]);
    assert_eq!((driver.delivered, driver.hung_up), (2, 0));
}

#[test]
fn why_a_coordinator_refuses_is_told_to_who_asks_for_the_status() {
    let mut agent = Agent::new(registration(0, 7), 1, 1);
    let mut driver = Driver::default();
    let now = Clock::default();
    let behind = ToAgent::Refused(Refusal::StoreIsBehind { list: ListId(0) });
    agent.on(now, AgentEvent::Timer, &mut driver);
    agent.on(now, AgentEvent::Connected, &mut driver);
    for message in [registered(|_| {}), behind] {
        let bytes = encode(&message, TO_AGENT_BYTES_MAX).unwrap();
        agent.on(now, AgentEvent::Message(&bytes), &mut driver);
    }
    let (node, duty) = (NodeId(1), Duty::Draining);
    let order = Proposal::SetDuty {
        conn: ConnId(1),
        n: 1,
        node,
        duty,
    };
    agent.on(now, AgentEvent::Proposal(order), &mut driver);
    let why = driver.duties[0].2.clone().unwrap();
    assert!(why.contains("not the cluster's newest"), "{why}");
}

/// The testimonies that were sent.
fn testimonies(driver: &Driver) -> Vec<Testimony> {
    let said = |frame: &Vec<u8>| match decode(frame, TO_COORDINATOR_BYTES_MAX).unwrap() {
        ToCoordinator::Testimony(testimony) => Some(*testimony),
        _ => None,
    };
    driver.sent.iter().filter_map(said).collect()
}

#[test]
fn a_coordinator_without_a_store_is_told_all_in_frames_that_it_takes() {
    let adopting = || ToAgent::Refused(Refusal::Adopting);
    // As many as a large cluster has, and each with all that is remembered of its history.
    let mut list = history(1)[0].clone();
    list.trail = vec![u64::MAX; Configuration::HISTORY_MAX];
    let lists: Vec<Configuration> = (0..200)
        .map(|n| Configuration {
            list: ListId(n),
            ..list.clone()
        })
        .collect();
    let driver = hears(&[registered(|_| {}), ToAgent::Configurations(lists.clone()), adopting()]);
    let told = testimonies(&driver);
    assert!(told.len() > 10 && driver.hung_up == 0, "{} frames", told.len());
    assert!(told[0].cluster.is_some() && told[1].cluster.is_none());
    let lasts: Vec<bool> = told.iter().map(|part| part.is_last).collect();
    assert_eq!(lasts.iter().filter(|last| **last).count(), 1);
    assert_eq!(lasts.last(), Some(&true));
    let all: Vec<Configuration> = told.into_iter().flat_map(|part| part.configurations).collect();
    assert_eq!(all, lists);
    // A process that knows nothing says so, and waits.
    let driver = hears(&[adopting()]);
    let empty = Testimony {
        cluster: None,
        incarnations: Vec::new(),
        configurations: vec![],
        is_last: true,
    };
    assert_eq!((testimonies(&driver), driver.ended), (vec![empty], None));
}

#[test]
fn a_changed_record_of_the_cluster_is_passed_on_and_another_cluster_s_is_not() {
    let ToAgent::Registered(known) = registered(|_| {}) else {
        unreachable!()
    };
    let changed = ClusterRecord {
        suspicion_ms: 2500,
        ..known.cluster.clone()
    };
    let driver = hears(&[registered(|_| {}), ToAgent::Cluster(changed.clone())]);
    assert_eq!((driver.changed, driver.hung_up), (vec![changed], 0));
    let other = ClusterRecord {
        id: ClusterId(99),
        ..known.cluster.clone()
    };
    let driver = hears(&[registered(|_| {}), ToAgent::Cluster(other)]);
    assert_eq!((driver.changed, driver.hung_up), (vec![], 1));
    let driver = hears(&[ToAgent::Cluster(known.cluster)]);
    assert_eq!((driver.changed, driver.hung_up), (vec![], 1), "nothing is known of it");
}
