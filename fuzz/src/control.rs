//! Messages between coordinators and agents, and the contents of a coordinator's store.
//!
//! A script is a sequence of steps: a byte that selects the event, and, for a message, its body. Lengths, versions and
//! CRCs are always right.

use crate::script::{Script, push_piece};
use paritas_base::configuration::{ClusterRecord, Configuration, Duty, NodeRecord, NodeRole, NodeState, Tenure};
use paritas_base::hash_slots::{SlotOrder, SlotTarget};
use paritas_base::{Clock, ClusterId, ConnId, Epoch, Incarnation, ListId, NodeId, Position, StreamId, Time};
use paritas_control::message::{
    Refusal, Registered, Registration, TO_AGENT_BYTES_MAX, TO_COORDINATOR_BYTES_MAX, ToAgent, ToCoordinator, decode,
    encode,
};
use paritas_control::rights::Speaker;
use paritas_control::status::{HaltedRole, ShardProgress, Status};
use paritas_control::store::{Change, Expected, MemoryStore, Store, StoreError};
use paritas_control::{
    Agent, AgentEvent, AgentOut, ClusterPlan, Coordinator, CoordinatorEvent, CoordinatorOut, Note, check_transition,
};
use paritas_frontend::Node;
use paritas_protocol::{Event, Identity, LinkId, Parameters, Proposal};
use paritas_testbed::Cluster;
use std::collections::BTreeMap;

const STEPS_MAX: usize = 200;
const SECOND_NS: u64 = 1_000_000_000;

fn clock(ns: u64) -> Clock {
    Clock {
        mono: Time(SECOND_NS + ns),
        wall_ms: 1_700_000_000_000 + ns / 1_000_000,
    }
}

fn plan() -> ClusterPlan {
    ClusterPlan::simple(ClusterId(7), 2, 1, 3, 1)
}

fn registration(node: u16, incarnation: u64) -> Registration {
    Registration {
        cluster: Some(ClusterId(7)),
        node: NodeId(node),
        incarnation: Incarnation(incarnation),
        domain: None,
        role: NodeRole::Member,
        pid: 100,
        supervised: true,
        client_address: "h:1".into(),
        cluster_address: "h:2".into(),
        peer_address: "h:3".into(),
        coordinators: 1,
        installed: Vec::new(),
        heard: Vec::new(),
        incarnations: Vec::new(),
        more: Default::default(),
    }
}

/// A frame with this body.
fn frame(version: u8, body: &[u8]) -> Vec<u8> {
    // As `message::encode` does: length and CRC, followed by the version and the body.
    struct Raw<'a>(&'a [u8]);
    impl serde::Serialize for Raw<'_> {
        fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            use serde::ser::SerializeTuple;
            let mut tuple = to.serialize_tuple(self.0.len())?;
            for byte in self.0 {
                tuple.serialize_element(byte)?;
            }
            tuple.end()
        }
    }
    let mut frame = encode(&Raw(body), usize::MAX).unwrap_or_default();
    if version != paritas_control::message::MESSAGE_VERSION {
        frame[8] = version;
    }
    frame
}

/// The body of a message's frame.
fn body(message: &impl serde::Serialize) -> Vec<u8> {
    encode(message, TO_AGENT_BYTES_MAX)
        .map(|frame| frame[9..].to_vec())
        .unwrap_or_default()
}

/// The output of a coordinator.
#[derive(Default)]
struct Sent {
    /// The nonce last sent on each link.
    nonces: BTreeMap<LinkId, u64>,
    closed: Vec<LinkId>,
    lists: BTreeMap<ListId, Configuration>,
    /// Whether every step of a list's history is checked.
    strict: bool,
}

impl CoordinatorOut for Sent {
    fn send(&mut self, link: LinkId, bytes: &[u8]) {
        let message: ToAgent = decode(bytes, TO_AGENT_BYTES_MAX).expect("a coordinator's message must be readable");
        match message {
            ToAgent::Registered(registered) => {
                self.nonces.insert(link, registered.nonce);
            }
            ToAgent::Configurations(lists) if self.strict => {
                for new in lists {
                    let old = self.lists.get(&new.list);
                    if old != Some(&new) {
                        check_transition(old, &new).expect("I11");
                        self.lists.insert(new.list, new);
                    }
                }
            }
            _ => {}
        }
    }

    fn close(&mut self, link: LinkId) {
        self.closed.push(link);
    }

    fn note(&mut self, _note: Note) {}
}

/// Somebody who may say this.
fn speaker(message: &ToCoordinator) -> Speaker {
    match message {
        ToCoordinator::Register(registration) => Speaker::Node(registration.node, registration.incarnation),
        ToCoordinator::Supervise { .. } | ToCoordinator::Exited { .. } => Speaker::Supervisor,
        ToCoordinator::SetDuty { .. } | ToCoordinator::MoveSlots { .. } => Speaker::Operator,
        ToCoordinator::Order { .. } | ToCoordinator::Status { .. } => Speaker::Operator,
        _ => Speaker::Node(NodeId(0), Incarnation(1)),
    }
}

/// A coordinator, and the other ends of its links.
struct Talk {
    coordinator: Coordinator<MemoryStore>,
    out: Sent,
    now_ns: u64,
    links: u64,
}

impl Talk {
    fn on(&mut self, event: CoordinatorEvent<'_>) {
        self.coordinator.on(clock(self.now_ns), event, &mut self.out);
    }

    fn connect(&mut self) -> LinkId {
        self.links += 1;
        let link = LinkId(self.links);
        self.on(CoordinatorEvent::Connected { link });
        link
    }

    fn say(&mut self, link: LinkId, message: &ToCoordinator) {
        if let Ok(bytes) = encode(message, TO_COORDINATOR_BYTES_MAX) {
            let by = speaker(message);
            self.on(CoordinatorEvent::Message {
                link,
                by,
                bytes: &bytes,
            });
        }
    }

    fn beat(&mut self, link: LinkId, shards: Vec<ShardProgress>) {
        let nonce = self.out.nonces.get(&link).copied().unwrap_or(0);
        let silent = Vec::new();
        self.say(
            link,
            &ToCoordinator::Heartbeat {
                nonce,
                shards,
                silent,
                opinions: None,
            },
        );
    }

    /// Registers the planned nodes on links 1 to 4. Each link is also that of a supervisor.
    fn begin(&mut self) {
        for node in 0..4 {
            let link = self.connect();
            self.say(
                link,
                &ToCoordinator::Register(Box::new(registration(node, u64::from(node) + 1))),
            );
            self.beat(link, Vec::new());
        }
    }

    fn pass(&mut self, ns: u64) {
        self.now_ns += ns;
        self.on(CoordinatorEvent::Timer);
        let due = self
            .coordinator
            .next_deadline()
            .is_none_or(|at| at > clock(self.now_ns).mono);
        assert!(due || ns > 0, "a timer must not be due again at once");
    }

    fn step(&mut self, script: &mut Script<'_>) {
        let kind = script.byte();
        let link = LinkId(u64::from(kind >> 4) + 1);
        match kind & 15 {
            0 => drop(self.connect()),
            1 => self.on(CoordinatorEvent::Disconnected { link }),
            2 => self.pass(u64::from(script.byte()) * 10_000_000),
            3 => self.beat(link, Vec::new()),
            4 => (1..=4).for_each(|n| self.beat(LinkId(n), Vec::new())),
            5 => self.coordinator.store_mut().fail_commits(u32::from(script.byte() & 3)),
            6 => self.coordinator.store_mut().lose_answers(u32::from(script.byte() & 1)),
            7 => {
                // A heartbeat for this link, with arbitrary other fields.
                let said = script.piece();
                let Ok((mut message, [])) = postcard::take_from_bytes::<ToCoordinator>(said) else {
                    return;
                };
                if let ToCoordinator::Heartbeat { nonce, .. } = &mut message {
                    *nonce = self.out.nonces.get(&link).copied().unwrap_or(0);
                }
                self.say(link, &message);
            }
            8 => {
                let bytes = script.piece();
                let by = Speaker::Guest;
                self.on(CoordinatorEvent::Message { link, by, bytes });
            }
            9 => {
                let bytes = frame(script.byte(), script.piece());
                let by = Speaker::Operator;
                self.on(CoordinatorEvent::Message {
                    link,
                    by,
                    bytes: &bytes,
                });
            }
            _ => {
                let bytes = frame(1, script.piece());
                let by = Speaker::Operator;
                self.on(CoordinatorEvent::Message {
                    link,
                    by,
                    bytes: &bytes,
                });
            }
        }
    }
}

fn new_coordinator() -> Coordinator<MemoryStore> {
    let mut store = MemoryStore::new();
    Coordinator::create(&mut store, &plan()).expect("the store is empty");
    Coordinator::open(store, &plan(), 1).expect("the cluster is new")
}

/// A coordinator with nodes, supervisors and strangers.
pub(crate) fn to_coordinator(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let coordinator = new_coordinator();
    let mut talk = Talk {
        coordinator,
        out: Sent {
            strict: true,
            ..Sent::default()
        },
        now_ns: 0,
        links: 0,
    };
    talk.begin();
    for _ in 0..STEPS_MAX {
        if script.is_over() {
            break;
        }
        talk.step(&mut script);
    }
    talk.coordinator.store_mut().fail_commits(0);
    talk.coordinator.store_mut().lose_answers(0);
    for _ in 0..4 {
        talk.pass(SECOND_NS / 4);
    }
    // Whatever was sent, the next coordinator on this store finds everything that was committed, and can read it.
    let lists: Vec<Configuration> = talk.coordinator.configurations().cloned().collect();
    let deposed = talk.coordinator.ending().is_some();
    let store = talk.coordinator.into_store();
    let again = Coordinator::open(store, &plan(), 2).expect("the store must be readable");
    assert!(
        deposed || again.configurations().eq(lists.iter()),
        "committed configurations are missing"
    );
}

/// A store whose records were overwritten. It must be refused, or served without a panic.
pub(crate) fn records(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let coordinator = new_coordinator();
    let mut talk = Talk {
        coordinator,
        out: Sent::default(),
        now_ns: 0,
        links: 0,
    };
    talk.begin();
    let mut store = talk.coordinator.into_store();
    let before = store.list("").expect("memory");
    for _ in 0..1 + script.below(3) {
        let (key, value) = &before[script.below(before.len())];
        let key = if script.below(16) == 0 {
            format!("list/{:05}", script.byte())
        } else {
            key.clone()
        };
        let mut value = value.clone();
        if script.flag() {
            // Changes some bytes of the record.
            for _ in 0..1 + script.below(3) {
                let at = script.below(value.len());
                value[at] = script.byte();
            }
        } else {
            value.truncate(1);
            value.extend_from_slice(script.bytes(400));
        }
        let expected = Expected {
            key: key.clone(),
            value: store.get(&key).expect("memory"),
        };
        let value = Some(value);
        store.commit(&expected, &[Change { key, value }]).expect("memory");
    }
    let damaged = store.list("").expect("memory");
    let mut kept = store.clone();
    match Coordinator::open(store, &plan(), 2) {
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert!(Coordinator::open(&mut Watched(&mut kept), &plan(), 2).is_err());
            assert_eq!(kept.list("").expect("memory"), damaged, "a refused store was changed");
        }
        Ok(coordinator) => {
            let mut talk = Talk {
                coordinator,
                out: Sent::default(),
                now_ns: 0,
                links: 0,
            };
            talk.begin();
            for _ in 0..40 {
                if script.is_over() {
                    break;
                }
                talk.step(&mut script);
            }
            for _ in 0..3 {
                talk.pass(SECOND_NS);
            }
        }
    }
}

/// A store that outlives the coordinator that opens it.
struct Watched<'a>(&'a mut MemoryStore);

impl Store for &mut Watched<'_> {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.0.get(key)
    }
    fn list(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.0.list(prefix)
    }
    fn commit(&mut self, expected: &Expected, changes: &[Change]) -> Result<(), StoreError> {
        self.0.commit(expected, changes)
    }
}

/// The process of an agent, with a node made as in `node`.
#[derive(Default)]
struct Process {
    node: Option<Node>,
    out: paritas_testbed::Outbox,
    now_ns: u64,
    sent: usize,
    ended: bool,
}

impl AgentOut for Process {
    fn duty_set(&mut self, _conn: ConnId, _n: u64, _refused: Option<&str>) {}
    fn drain(&mut self, _list: ListId, _position: Position, _tenure: Tenure) {}
    fn dial(&mut self, coordinator: usize) {
        assert_eq!(coordinator, 0);
    }
    fn hang_up(&mut self) {}
    fn send(&mut self, bytes: &[u8]) {
        let _: ToCoordinator = decode(bytes, TO_COORDINATOR_BYTES_MAX).expect("an agent's message must be readable");
        self.sent += 1;
    }
    fn cluster(&mut self, cluster: &ClusterRecord) {
        assert!(self.node.is_none(), "the cluster was reported twice");
        let identity = Identity {
            node: NodeId(0),
            incarnation: Incarnation(1),
            cluster: cluster.clone(),
            seed: 1,
            maxmemory_bytes: 2 << 20,
        };
        self.node = Some(Node::new(identity, Parameters::default()));
    }
    fn nodes(&mut self, nodes: &[NodeRecord]) {
        let node = self.node.as_mut().expect("the cluster must be reported first");
        node.on(clock(self.now_ns), Event::Nodes(nodes), &mut self.out);
    }
    fn configuration(&mut self, configuration: &Configuration) {
        let node = self.node.as_mut().expect("the cluster must be reported first");
        node.on(clock(self.now_ns), Event::Configuration(configuration), &mut self.out);
        node.on(clock(self.now_ns), Event::TurnEnd, &mut self.out);
    }
    fn status(&mut self, _conn: ConnId, _n: u64, _status: Result<&Status, &str>) {}
    fn refused(&mut self, refusal: &Refusal) {
        assert!(!refusal.to_string().is_empty());
    }
    fn ended(&mut self, refusal: &Refusal) {
        assert!(!refusal.to_string().is_empty());
        self.ended = true;
    }
}

/// An agent with a coordinator that sends anything.
pub(crate) fn to_agent(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let mut agent = Agent::new(registration(0, 1), 1, 1);
    let mut process = Process {
        out: paritas_testbed::Outbox::default(),
        ..Process::default()
    };
    process.out.halts = Some(Vec::new());
    agent.on(clock(0), AgentEvent::Timer, &mut process);
    agent.on(clock(0), AgentEvent::Connected, &mut process);
    for _ in 0..STEPS_MAX {
        if script.is_over() || process.ended {
            break;
        }
        let now = clock(process.now_ns);
        match script.byte() & 15 {
            0 => agent.on(now, AgentEvent::Disconnected, &mut process),
            1 => agent.on(now, AgentEvent::Connected, &mut process),
            2 => {
                process.now_ns += u64::from(script.byte()) * 10_000_000;
                agent.on(clock(process.now_ns), AgentEvent::Timer, &mut process);
            }
            3 => {
                let (conn, n) = (ConnId(1), u64::from(script.byte()));
                agent.on(now, AgentEvent::Proposal(Proposal::Ask { conn, n }), &mut process);
            }
            4 => {
                let bytes = script.piece();
                agent.on(now, AgentEvent::Message(bytes), &mut process);
            }
            5 => {
                let node = process.node.as_mut();
                if let Some(node) = node {
                    node.on(now, Event::Timer, &mut process.out);
                    node.on(now, Event::TurnEnd, &mut process.out);
                    let _ = node.figures();
                }
            }
            _ => {
                let bytes = frame(1, script.piece());
                agent.on(now, AgentEvent::Message(&bytes), &mut process);
            }
        }
    }
    let halts = process.out.halts.take().unwrap_or_default();
    assert!(halts.is_empty(), "the coordinator made a role halt: {halts:?}");
}

fn progress() -> ShardProgress {
    ShardProgress {
        turns: 7,
        by_kind: vec![("data".into(), 1 << 20)],
        rebuild_total_bytes: 100,
        halted: vec![HaltedRole::new(ListId(0), Position(1), "I4".into())],
        ..ShardProgress::default()
    }
}

pub(crate) fn coordinator_seeds() -> Vec<Vec<u8>> {
    let tenure = paritas_testbed::tenure(0, 1);
    let (node, incarnation) = (NodeId(1), Incarnation(2));
    let stream = StreamId {
        list: ListId(2),
        x: Position(0),
    };
    let duty = |node: u16, duty| ToCoordinator::SetDuty {
        n: 6,
        node: NodeId(node),
        duty,
    };
    let messages = [
        ToCoordinator::Register(Box::new(registration(2, 9))),
        ToCoordinator::Register(Box::new(Registration {
            cluster: None,
            domain: Some("rack".into()),
            coordinators: 1,
            installed: vec![(ListId(0), Epoch(1), 5), (ListId(1), Epoch(9), 6)],
            ..registration(9, 9)
        })),
        ToCoordinator::Heartbeat {
            nonce: 1,
            shards: vec![progress()],
            silent: vec![(node, incarnation)],
            opinions: None,
        },
        ToCoordinator::AskLive {
            list: ListId(0),
            position: Position(0),
            tenure,
        },
        ToCoordinator::GetConfiguration {
            list: ListId(0),
            installed: None,
        },
        ToCoordinator::GetConfiguration {
            list: ListId(0),
            installed: Some((Epoch(1), 5)),
        },
        ToCoordinator::Status { n: 5 },
        ToCoordinator::Supervise { node, incarnation },
        ToCoordinator::Exited { node, incarnation },
        ToCoordinator::Leave { nonce: 1 },
        ToCoordinator::Pong { nonce: 1, at_ns: 9 },
        ToCoordinator::Drained {
            list: ListId(0),
            position: Position(0),
            tenure,
        },
        duty(1, Duty::Draining),
        duty(2, Duty::Shunned),
        ToCoordinator::MoveSlots {
            n: 7,
            order: SlotOrder::Move {
                first: 0,
                last: 700,
                to: SlotTarget::StreamId(stream),
            },
        },
        ToCoordinator::MoveSlots {
            n: 8,
            order: SlotOrder::GiveUp,
        },
        ToCoordinator::HandOff {
            version: 1,
            last: Some(63),
            from: tenure,
            to: paritas_testbed::tenure(2, 1),
        },
    ];
    let say = |kind: u8, message: &ToCoordinator| {
        let mut step = vec![kind];
        push_piece(&mut step, &body(message));
        step
    };
    let mut seeds: Vec<Vec<u8>> = messages.iter().map(|message| say(10, message)).collect();
    // One node ends and comes back, others fall silent; and a role halts.
    let [
        _,
        _,
        heartbeat,
        _,
        _,
        _,
        status,
        supervise,
        exited,
        _,
        _,
        drained,
        drain,
        shun,
        slots,
        give_up,
        hand_off,
    ] = &messages;
    let incarnation = ToCoordinator::Register(Box::new(registration(1, 50)));
    seeds.push(
        [
            say(10, supervise),
            say(10, exited),
            vec![2, 60, 4, 2, 60, 4],
            say(26, &incarnation),
            vec![19, 4, 2, 60],
        ]
        .concat(),
    );
    seeds.push(
        [
            vec![4, 2, 30],
            say(7, heartbeat),
            vec![4, 2, 50, 4, 2, 50, 4],
            say(10, status),
        ]
        .concat(),
    );
    seeds.push(
        [
            vec![5, 2, 4, 2, 120, 3, 19, 35, 2, 120, 6, 1, 3, 19, 35, 2, 120, 2, 120],
            say(10, status),
        ]
        .concat(),
    );
    // Orders, and the nodes' answers, on the link of node 0, which owns what is handed off and drained.
    let alive = |at: Vec<u8>| [vec![4, 2, 30, 4], at, vec![4, 2, 30, 4, 2, 110, 4]].concat();
    seeds.push(alive(
        [say(10, slots), say(10, hand_off), say(10, status), say(26, give_up)].concat(),
    ));
    seeds.push(alive(
        [
            say(10, drain),
            vec![2, 20],
            say(10, drained),
            say(26, &duty(1, Duty::Returning)),
        ]
        .concat(),
    ));
    seeds.push(alive(
        [say(10, shun), say(10, slots), vec![5, 2, 2, 50], say(10, give_up)].concat(),
    ));
    seeds
}

pub(crate) fn agent_seeds() -> Vec<Vec<u8>> {
    let cluster = Cluster::coded_in(2 << 20, 2, 1, 3, 0, Parameters::default());
    let record = cluster.processes[0].node.replica().cluster().clone();
    let mut later = cluster.configurations.clone();
    for (at, configuration) in later.iter_mut().enumerate() {
        configuration.epoch = Epoch(2);
        configuration.positions[at] = None;
    }
    let nodes = vec![NodeRecord {
        id: NodeId(1),
        incarnation: Incarnation(2),
        ordinal: 1,
        domain: "1".into(),
        role: NodeRole::Member,
        state: NodeState::Up,
        pid: 3,
        client_address: "127.0.0.1:1".into(),
        cluster_address: "127.0.0.1:2".into(),
        peer_address: "127.0.0.1:3".into(),
        more: Default::default(),
    }];
    let registered = ToAgent::Registered(Box::new(Registered {
        nonce: 3,
        cluster: record,
        nodes: nodes.clone(),
        configurations: cluster.configurations.clone(),
        void: Vec::new(),
    }));
    let say = |message: &ToAgent| {
        let mut step = vec![6];
        push_piece(&mut step, &body(message));
        step
    };
    let rest = [
        ToAgent::Configurations(later),
        ToAgent::Nodes(nodes),
        ToAgent::Heard,
        ToAgent::Refused(Refusal::RegisterAgain),
        ToAgent::Refused(Refusal::WrongDomain { planned: "x".into() }),
        ToAgent::StatusReport {
            n: 1,
            status: Box::default(),
        },
        ToAgent::ExitNoted {
            node: NodeId(1),
            incarnation: Incarnation(2),
        },
        ToAgent::Drain {
            list: ListId(0),
            position: Position(0),
            tenure: paritas_testbed::tenure(0, 1),
        },
        ToAgent::Ordered {
            n: 1,
            refused: Some("no".into()),
        },
    ];
    let mut seeds = vec![say(&registered)];
    for message in &rest {
        seeds.push(say(message));
        seeds.push([say(&registered), vec![3, 1, 5, 2, 30], say(message), vec![5]].concat());
    }
    seeds
}

pub(crate) fn record_seeds() -> Vec<Vec<u8>> {
    crate::script::random(80, 120)
}
