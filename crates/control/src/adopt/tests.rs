use super::*;
use crate::Coordinator;
use crate::message::{TO_AGENT_BYTES_MAX, encode};
use crate::plan::LostPolicy;
use crate::record::{RECORD_FORMAT, StoredNode};
use crate::store::{Action, Change, MemoryStore};
use paritas_base::Epoch;
use paritas_base::configuration::{Assignment, NodeRole, PositionState, Tenure};
use paritas_base::hash_slots::HandOff;
use paritas_base::{Position, StreamId};

fn plan() -> ClusterPlan {
    ClusterPlan::simple(ClusterId(7), 2, 1, 4, 0)
}

fn incarnation(node: u16) -> Incarnation {
    Incarnation(1000 + u64::from(node))
}

/// The lists as they begin, with everybody Live.
fn begun() -> Vec<Configuration> {
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
        };
        list.seal(None);
        list
    };
    lists.iter().enumerate().map(list).collect()
}

fn after(before: &Configuration, change: impl FnOnce(&mut Configuration)) -> Configuration {
    let mut next = before.clone();
    next.epoch = Epoch(before.epoch.0 + 1);
    change(&mut next);
    next.seal(Some(before));
    next
}

/// All lists one epoch on.
fn moved_on(lists: &[Configuration], born: u32) -> Vec<Configuration> {
    lists.iter().map(|c| after(c, |c| c.born = Epoch(born))).collect()
}

#[derive(Default)]
struct Sent(Vec<ToAgent>);

impl CoordinatorOut for Sent {
    fn send(&mut self, _: LinkId, bytes: &[u8]) {
        self.0.push(decode(bytes, TO_AGENT_BYTES_MAX).unwrap());
    }
    fn close(&mut self, _: LinkId) {}
    fn note(&mut self, _: Note) {}
}

struct World {
    adoption: Adoption<MemoryStore>,
    now: Time,
    links: u64,
}

fn registration(node: u16, incarnation: Incarnation, cluster: Option<ClusterId>) -> Registration {
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
    }
}

impl World {
    fn new(store: MemoryStore, without: &[u16]) -> Self {
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

    fn event(&mut self, event: CoordinatorEvent<'_>) -> Vec<ToAgent> {
        let mut sent = Sent::default();
        let now = Clock {
            mono: self.now,
            wall_ms: 0,
        };
        self.adoption.on(now, event, &mut sent);
        sent.0
    }

    fn say(&mut self, link: LinkId, message: &ToCoordinator) -> Vec<ToAgent> {
        let bytes = encode(message, TO_COORDINATOR_BYTES_MAX).unwrap();
        self.event(CoordinatorEvent::Message { link, bytes: &bytes })
    }

    fn tick(&mut self, ms: u64) {
        self.now = self.now + Span::from_ms(ms);
        self.event(CoordinatorEvent::Timer);
    }

    fn call(&mut self, node: u16, incarnation: Incarnation, cluster: Option<ClusterId>) -> (LinkId, Vec<ToAgent>) {
        self.call_with(node, incarnation, cluster, |_| {})
    }

    fn call_with(
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

    /// A process that has served calls, and tells these.
    fn tell(&mut self, node: u16, lists: &[Configuration]) {
        self.tell_as(node, incarnation(node), Some(plan().record()), lists);
    }

    fn tell_as(
        &mut self,
        node: u16,
        incarnation: Incarnation,
        cluster: Option<ClusterRecord>,
        lists: &[Configuration],
    ) {
        let (link, answer) = self.call(node, incarnation, cluster.as_ref().map(|c| c.id));
        assert_eq!(answer, [ToAgent::Refused(Refusal::Adopting)]);
        // In two parts.
        let (one, other) = lists.split_at(lists.len() / 2);
        for (cluster, part, is_last) in [(cluster, one, false), (None, other, true)] {
            let configurations = part.to_vec();
            let testimony = Testimony {
                cluster,
                incarnations: vec![(NodeId(3), Incarnation(1003), 7), (NodeId(2), Incarnation(5), 7)],
                configurations,
                is_last,
            };
            self.say(link, &ToCoordinator::Testimony(Box::new(testimony)));
        }
    }

    fn waits(&self) -> String {
        match self.adoption.progress() {
            Progress::Waits(words) => words.join("; "),
            other => panic!("{other:?}"),
        }
    }

    fn fails(&self) -> String {
        match self.adoption.progress() {
            Progress::Failed(why) => why.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// The coordinator that goes on, and what was said.
    fn done(self) -> (Coordinator<MemoryStore>, String) {
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

#[test]
fn what_the_nodes_tell_is_in_the_store_one_epoch_on() {
    let mut world = World::new(MemoryStore::new(), &[]);
    let (old, new) = (begun(), moved_on(&begun(), 2));
    world.tell(0, &old);
    assert!(world.waits().contains("waits for n1, n2, n3") && !world.waits().contains("--without"));
    world.tell(1, &new);
    world.tell(2, &new);
    world.tick(60_000);
    assert!(
        world.waits().contains("waits for n3: "),
        "time is no proof: {}",
        world.waits()
    );
    world.tell(3, &new);
    let (coordinator, words) = world.done();
    assert!(words.contains("lists are as n0, n1, n2, n3 have reported"), "{words}");
    assert_eq!(
        coordinator.cluster(),
        &plan().record(),
        "the cluster keeps its id and its hash key"
    );
    for (c, new) in coordinator.configurations().zip(&new) {
        assert_eq!((c.epoch, c.trail[0], c.trail[1]), (Epoch(3), new.id, new.trail[0]));
        assert_eq!(c.positions, new.positions, "nobody loses anything");
    }
    // Agents take no older record of a node than what they know: n2's present incarnation comes after the one that is
    // known.
    let ordinals: Vec<u32> = coordinator.nodes().map(|n| n.ordinal).collect();
    assert_eq!(ordinals, [1, 1, 8, 7]);
    let nodes: Vec<_> = coordinator
        .nodes()
        .map(|n| (n.id, n.incarnation, n.peer_address.clone()))
        .collect();
    assert_eq!(nodes[3], (NodeId(3), incarnation(3), "p:3".into()));
}

#[test]
fn machines_that_are_off_are_done_without_and_count_as_ended() {
    let mut world = World::new(MemoryStore::new(), &[3]);
    for node in 0..3 {
        world.tell(node, &begun());
    }
    assert!(
        world.waits().contains("if processes of n3 run all the same"),
        "{}",
        world.waits()
    );
    world.tick(6_000);
    let words = world.waits();
    assert!(
        words.contains("n3 counts as ended") && words.contains("no list is lost") && words.contains("--yes"),
        "{words}"
    );
    world.adoption.confirm();
    world.tick(300);
    let (mut coordinator, words) = world.done();
    assert!(words.contains("the processes of n3 count as ended"), "{words}");
    assert!(
        words.contains("lost_policy is stop") && words.contains("drains and shuns are forgotten"),
        "{words}"
    );
    let records = Records::open(coordinator.store_mut(), &plan()).unwrap();
    let stored: &StoredNode = &records.nodes[&NodeId(3)];
    assert!(stored.is_over(incarnation(3)), "it may not come back");
    assert_eq!(
        stored.end,
        crate::record::End::Attested,
        "and its leases are waited for"
    );
}

/// A process that has these lists, as they begin, is taken in.
fn register(coordinator: &mut Coordinator<MemoryStore>, now: Clock, node: u16) {
    let link = LinkId(100 + u64::from(node));
    coordinator.on(now, CoordinatorEvent::Connected { link }, &mut Sent::default());
    let mut say = |message: &ToCoordinator| {
        let bytes = encode(message, TO_COORDINATOR_BYTES_MAX).unwrap();
        let mut sent = Sent::default();
        coordinator.on(now, CoordinatorEvent::Message { link, bytes: &bytes }, &mut sent);
        sent.0
    };
    let registration = Registration {
        installed: begun().iter().map(|c| (c.list, c.epoch, c.id)).collect(),
        ..registration(node, incarnation(node), Some(ClusterId(7)))
    };
    let answer = say(&ToCoordinator::Register(Box::new(registration)));
    let Some(ToAgent::Registered(registered)) = answer.first() else {
        panic!("{answer:?}");
    };
    say(&ToCoordinator::Heartbeat {
        nonce: registered.nonce,
        shards: vec![],
        silent: vec![],
        opinions: None,
    });
}

#[test]
fn lists_that_ends_would_lose_are_named_before_they_are_believed() {
    let mut world = World::new(MemoryStore::new(), &[2, 3]);
    for node in 0..2 {
        world.tell(node, &begun());
    }
    world.tick(6_000);
    let words = world.waits();
    assert!(words.contains("lists 1, 2, 5, 6 would be lost"), "{words}");
    assert!(world.adoption.store.list("").unwrap().is_empty());
    // The coordinator that goes on finds the same.
    world.adoption.confirm();
    world.tick(300);
    let mut now = world.now;
    let (mut coordinator, _) = world.done();
    let clock = Clock { mono: now, wall_ms: 0 };
    for node in 0..2 {
        register(&mut coordinator, clock, node);
    }
    for _ in 0..40 {
        now = now + Span::from_ms(400);
        let clock = Clock { mono: now, wall_ms: 0 };
        coordinator.on(clock, CoordinatorEvent::Timer, &mut Sent::default());
    }
    let lost = coordinator.configurations().filter(|c| c.lost).map(|c| c.list.0);
    assert_eq!(lost.collect::<Vec<_>>(), [1, 2, 5, 6]);
}

#[test]
fn a_policy_that_empties_lists_is_not_taken_from_the_settings() {
    let mut asked = plan();
    asked.lost_policy = LostPolicy::Reset;
    let mut world = World::new(MemoryStore::new(), &[]);
    world.adoption = Adoption::begin(MemoryStore::new(), &asked, []).unwrap();
    for node in 0..4 {
        world.tell(node, &begun());
    }
    let (coordinator, _) = world.done();
    assert_eq!(coordinator.plan().lost_policy, LostPolicy::Stop);
}

#[test]
fn who_is_only_known_by_name_is_waited_for_a_while() {
    let mut world = World::new(MemoryStore::new(), &[]);
    let (link, _) = world.call(0, incarnation(0), Some(ClusterId(7)));
    let testimony = Testimony {
        cluster: Some(plan().record()),
        incarnations: vec![(NodeId(5), incarnation(5), 1), (NodeId(6), incarnation(6), 1)],
        configurations: begun(),
        is_last: true,
    };
    world.say(link, &ToCoordinator::Testimony(Box::new(testimony)));
    for node in [1, 2, 3, 6] {
        world.tell(node, &begun());
    }
    world.tick(6_000);
    assert!(world.waits().contains("ms more for n5: "), "{}", world.waits());
    world.tick(6_000);
    let (_, words) = world.done();
    assert!(words.contains("n5 have not reported, and hold no position"), "{words}");
}

#[test]
fn a_machine_that_is_said_to_be_off_and_calls_ends_it() {
    let mut world = World::new(MemoryStore::new(), &[3]);
    world.tell(0, &begun());
    world.tell(3, &begun());
    assert!(
        world.fails().contains("--without 3") && world.fails().contains("process 103"),
        "{}",
        world.fails()
    );
    assert!(
        world.adoption.into_store().list("").unwrap().is_empty(),
        "nothing is written"
    );
}

#[test]
fn two_histories_are_not_adopted() {
    let (one, mut other) = (moved_on(&begun(), 1), moved_on(&begun(), 2));
    for ahead in [false, true] {
        let mut world = World::new(MemoryStore::new(), &[]);
        if ahead {
            other = moved_on(&other, 2);
        }
        world.tell(0, &one);
        world.tell(1, &other);
        let why = world.fails();
        assert!(
            why.contains("two histories of list 0") && why.contains("n0") && why.contains("n1"),
            "{why}"
        );
    }
}

#[test]
fn a_history_that_nobody_can_join_is_named() {
    let mut late = begun();
    for _ in 0..Configuration::TRAIL_MAX + 2 {
        late = moved_on(&late, 1);
    }
    let mut world = World::new(MemoryStore::new(), &[]);
    world.tell(0, &begun());
    world.tell(1, &late);
    assert!(
        world.fails().contains("holds a position of that list") && world.fails().contains("snapshot"),
        "{}",
        world.fails()
    );
    // Who holds nothing of the list keeps nobody from it.
    let mut world = World::new(MemoryStore::new(), &[]);
    world.tell_as(4, incarnation(4), Some(plan().record()), &begun());
    for node in 0..4 {
        world.tell(node, &late);
    }
    let (coordinator, _) = world.done();
    assert!(
        coordinator
            .configurations()
            .all(|c| c.epoch.0 as usize == Configuration::TRAIL_MAX + 4)
    );
    // Somebody in between joins them.
    let mut between = begun();
    for _ in 0..8 {
        between = moved_on(&between, 1);
    }
    let mut world = World::new(MemoryStore::new(), &[]);
    world.tell(2, &between);
    for node in [0, 1, 3] {
        world.tell(node, if node == 0 { &between } else { &late });
    }
    let (coordinator, _) = world.done();
    assert!(
        coordinator
            .configurations()
            .all(|c| c.epoch.0 as usize == Configuration::TRAIL_MAX + 4)
    );
}

#[test]
fn the_next_process_of_a_node_counts_once_the_former_one_could_have_called() {
    let mut world = World::new(MemoryStore::new(), &[]);
    for node in 0..3 {
        world.tell(node, &begun());
    }
    let fresh = Incarnation(5);
    world.tell_as(3, fresh, None, &[]);
    assert!(
        world.waits().contains("the process of n3 that holds positions"),
        "{}",
        world.waits()
    );
    world.tick(4_000);
    world.waits();
    world.tick(2_000);
    let (mut coordinator, words) = world.done();
    assert!(words.contains("n3 run as new processes"), "{words}");
    let records = Records::open(coordinator.store_mut(), &plan()).unwrap();
    let stored = &records.nodes[&NodeId(3)];
    assert_eq!(
        (stored.record.incarnation, stored.is_over(incarnation(3))),
        (fresh, true)
    );
}

#[test]
fn where_no_process_knows_anything_there_is_nothing_to_adopt() {
    let mut world = World::new(MemoryStore::new(), &[]);
    for node in 0..4 {
        world.tell_as(node, Incarnation(5), None, &[]);
    }
    assert!(world.waits().contains("others may still call"), "{}", world.waits());
    world.tick(6_000);
    assert!(
        world.fails().contains("--create") && world.fails().contains("snapshot"),
        "{}",
        world.fails()
    );
}

#[test]
fn nodes_of_two_clusters_are_not_one() {
    let mut world = World::new(MemoryStore::new(), &[]);
    world.tell(0, &begun());
    let other = ClusterRecord {
        id: ClusterId(8),
        ..plan().record()
    };
    world.tell_as(1, incarnation(1), Some(other), &begun());
    assert!(
        world.fails().contains("n0 is of cluster") && world.fails().contains("n1 of cluster"),
        "{}",
        world.fails()
    );
}

#[test]
fn settings_of_another_cluster_are_named() {
    let asked = ClusterPlan {
        lease_ms: 3000,
        ..plan()
    };
    let adoption = Adoption::begin(MemoryStore::new(), &asked, []).unwrap();
    let mut world = World::new(MemoryStore::new(), &[]);
    world.adoption = adoption;
    for node in 0..4 {
        world.tell(node, &begun());
    }
    assert!(world.fails().contains("another lease_ms"), "{}", world.fails());
}

/// A store as it was at the beginning: with all nodes and lists.
fn older_store() -> MemoryStore {
    let mut world = World::new(MemoryStore::new(), &[]);
    for node in 0..4 {
        world.tell(node, &begun());
    }
    world.adoption.into_store()
}

#[test]
fn an_older_store_is_brought_up_to_what_the_nodes_have() {
    let store = older_store();
    let stored: Vec<Configuration> = {
        let coordinator = Coordinator::open(store.clone(), &plan(), 1).unwrap();
        coordinator.configurations().cloned().collect()
    };
    let newest = moved_on(&moved_on(&stored, 1), 1);
    let mut world = World::new(store.clone(), &[]);
    // A process of another cluster is told so, and named.
    let (_, answer) = world.call(9, Incarnation(1), Some(ClusterId(8)));
    assert_eq!(answer, [ToAgent::Refused(Refusal::WrongCluster { here: ClusterId(7) })]);
    world.tell(0, &newest);
    assert!(
        world.waits().contains("n9 is of cluster 0000000000000008"),
        "{}",
        world.waits()
    );
    for node in 1..4 {
        world.tell(node, &newest);
    }
    let (coordinator, _) = world.done();
    assert!(
        coordinator
            .configurations()
            .zip(&newest)
            .all(|(c, new)| c.epoch.0 == new.epoch.0 + 1)
    );
    // A store whose history is another one.
    let mut world = World::new(store, &[]);
    let other: Vec<Configuration> = begun().iter().map(|c| after(c, |c| c.lost = true)).collect();
    world.tell(0, &other);
    let why = world.fails();
    assert!(
        why.contains("the store has another history") && why.contains("Move the store's file away"),
        "{why}"
    );
    assert!(!why.contains("top the process"), "{why}");
}

#[test]
fn slots_on_their_way_stay_where_they_are() {
    let (from, to) = (0, 1);
    let what = HandOff {
        version: 6,
        first: 0,
        last: 3,
        from: StreamId {
            list: ListId(from),
            x: Position(0),
        },
        to: StreamId {
            list: ListId(to),
            x: Position(0),
        },
    };
    let during = |c: &Configuration| {
        after(c, |c| {
            if [from, to].contains(&c.list.0) {
                c.slots = c.slots.during(what);
            } else {
                c.born = Epoch(2);
            }
        })
    };
    let lists: Vec<Configuration> = begun().iter().map(during).collect();
    let mut world = World::new(MemoryStore::new(), &[]);
    for node in 0..4 {
        world.tell(node, &lists);
    }
    let (coordinator, _) = world.done();
    for c in coordinator.configurations() {
        let version = if [from, to].contains(&c.list.0) { 6 } else { 0 };
        assert_eq!((c.slots.version, c.slots.hand_off), (version, None));
        let plan = plan().record();
        assert_eq!(
            c.slots.held(c.list, &plan),
            begun()[usize::from(c.list.0)].slots.held(c.list, &plan)
        );
    }
}

#[test]
fn a_store_of_a_newer_version_is_not_adopted_and_stays_as_it_is() {
    let mut store = older_store();
    let key = "node/00000".to_owned();
    let expect = store.get(&key).unwrap().map(|e| e.revision);
    let newer = Action::Put(vec![RECORD_FORMAT + 1, 1, 2]);
    let change = Change {
        key,
        expect,
        action: newer,
    };
    store.commit(&[change]).unwrap();
    let before = store.list("").unwrap();
    let refused = Adoption::begin(store.clone(), &plan(), []).unwrap_err();
    assert!(matches!(refused, OpenError::NewerFormat { .. }), "{refused}");
    assert_eq!(store.list("").unwrap(), before);
}

#[test]
fn a_store_that_fails_is_said_and_tried_again_by_whoever_starts_it_again() {
    let mut store = MemoryStore::new();
    store.fail_commits(1);
    let mut world = World::new(store, &[]);
    for node in 0..4 {
        world.tell(node, &begun());
    }
    assert!(world.fails().contains("store failed"), "{}", world.fails());
    assert!(world.adoption.into_store().list("").unwrap().is_empty());
}

#[test]
fn what_no_coordinator_would_take_in_is_not_adopted() {
    let mut world = World::new(MemoryStore::new(), &[]);
    let refused = |world: &mut World, change: fn(&mut Registration)| {
        let (_, answer) = world.call_with(3, incarnation(3), Some(ClusterId(7)), change);
        match &answer[..] {
            [ToAgent::Refused(refusal)] => refusal.clone(),
            other => panic!("{other:?}"),
        }
    };
    let long = refused(&mut world, |r| r.client_address = "h".repeat(256));
    assert!(matches!(long, Refusal::Limit(_)), "{long:?}");
    let domain = refused(&mut world, |r| r.domain = Some(String::new()));
    assert!(matches!(domain, Refusal::Limit(_)), "{domain:?}");
    let role = refused(&mut world, |r| r.role = NodeRole::Log);
    assert!(matches!(role, Refusal::WrongRole { .. }), "{role:?}");
    world.tell(0, &begun());
    assert!(
        world
            .waits()
            .contains("n3 is not taken in: n3 is not planned as a log node")
    );
    // Lists of another scheme, or with more of them on one node than may be, are none of this cluster.
    let strange = [
        after(&begun()[0], |c| c.ack_quorum = 0),
        after(&begun()[0], |c| c.positions = vec![c.positions[0]; 3]),
        after(&begun()[0], |c| {
            c.parity = 2;
            c.positions.push(None);
        }),
    ];
    for strange in strange {
        world.tell(1, &[strange]);
    }
    for node in 1..4 {
        world.tell(node, &begun());
    }
    let (coordinator, _) = world.done();
    assert!(coordinator.configurations().all(|c| c.epoch == Epoch(2)));
}

#[test]
fn no_more_nodes_are_listened_to_than_a_cluster_has() {
    let mut world = World::new(MemoryStore::new(), &[]);
    for node in 0..NODES_MAX as u16 {
        let (_, answer) = world.call(node, incarnation(node), None);
        assert_eq!(answer, [ToAgent::Refused(Refusal::Adopting)]);
    }
    let (_, answer) = world.call(NODES_MAX as u16, Incarnation(1), None);
    assert!(
        matches!(&answer[..], [ToAgent::Refused(Refusal::Limit(_))]),
        "{answer:?}"
    );
    // Incarnations, too, told in however many parts.
    let (link, _) = world.call(0, incarnation(0), None);
    for part in 0..3 {
        let incarnations = (0..NODES_MAX as u16).map(|i| (NodeId(part * 1024 + i), Incarnation(1), 1));
        let testimony = Testimony {
            cluster: None,
            incarnations: incarnations.collect(),
            configurations: vec![],
            is_last: false,
        };
        world.say(link, &ToCoordinator::Testimony(Box::new(testimony)));
    }
    let witness = &world.adoption.witnesses[&(NodeId(0), incarnation(0))];
    assert_eq!(witness.incarnations.len(), NODES_MAX);
}
