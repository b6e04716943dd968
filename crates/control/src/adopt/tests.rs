mod ends;
mod world;

use super::*;
use crate::Coordinator;
use crate::message::{TO_AGENT_BYTES_MAX, encode};
use crate::plan::LostPolicy;
use crate::record::{RECORD_FORMAT, StoredNode};
use crate::store::{Change, Expected, MemoryStore};
use paritas_base::Epoch;
use paritas_base::configuration::{Assignment, NodeRole, PositionState, Tenure};
use paritas_base::formats::TOMORROW;
use paritas_base::hash_slots::HandOff;
use paritas_base::{Position, StreamId};
use world::{Sent, World, after, first_lists, incarnation, next_lists, plan, registration};

#[test]
fn the_store_gets_the_reported_configurations_with_the_next_epoch() {
    let mut world = World::new(MemoryStore::new(), &[]);
    let (old, new) = (first_lists(), next_lists(&first_lists(), 2));
    world.report(0, &old);
    let words = world.remarks();
    assert!(
        words.contains("waits for n1, n2, n3: ")
            && words.contains("for those of n1, n2, n3")
            && words.contains("--without"),
        "{words}"
    );
    assert!(
        words.contains("Without all of them lists 0, 1, 2, 3, 4, 5, 6, 7 would be lost"),
        "{words}"
    );
    world.report(1, &new);
    world.report(2, &new);
    world.tick(60_000);
    assert!(
        world.remarks().contains("waits for n3: "),
        "the wait must not end by time: {}",
        world.remarks()
    );
    world.report(3, &new);
    let (coordinator, words) = world.done();
    assert!(words.contains("lists are as n0, n1, n2, n3 have reported"), "{words}");
    assert_eq!(
        coordinator.cluster(),
        &plan().record(),
        "the cluster keeps its id and its hash key"
    );
    for (c, new) in coordinator.configurations().zip(&new) {
        assert_eq!((c.epoch, c.trail[0], c.trail[1]), (Epoch(3), new.id, new.trail[0]));
        assert_eq!(c.positions, new.positions, "no position changes its holder");
    }
    // Agents ignore a record of a node that is older than the one they know.
    let ordinals: Vec<u32> = coordinator.nodes().map(|n| n.ordinal).collect();
    assert_eq!(ordinals, [1, 1, 7, 7]);
    let nodes: Vec<_> = coordinator
        .nodes()
        .map(|n| (n.id, n.incarnation, n.peer_address.clone()))
        .collect();
    assert_eq!(nodes[3], (NodeId(3), incarnation(3), "p:3".into()));
}

#[test]
fn nodes_that_are_off_count_as_ended() {
    let mut world = World::new(MemoryStore::new(), &[3]);
    for node in 0..3 {
        world.report(node, &first_lists());
    }
    assert!(
        world.remarks().contains("if processes of n3 run all the same"),
        "{}",
        world.remarks()
    );
    world.tick(6_000);
    let words = world.remarks();
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
    let records = Records::open(coordinator.store_mut(), &plan(), 77, Versions::OURS).unwrap();
    let stored: &StoredNode = &records.nodes[&NodeId(3)];
    assert!(
        stored.is_over(incarnation(3)),
        "that incarnation may not register again"
    );
    assert_eq!(
        stored.end,
        crate::record::End::Attested,
        "its leases must still be awaited"
    );
}

/// Registers a process that has the first configurations.
fn register_at(coordinator: &mut Coordinator<MemoryStore>, now: Clock, node: u16) {
    let link = LinkId(100 + u64::from(node));
    coordinator.on(now, CoordinatorEvent::Connected { link }, &mut Sent::default());
    let mut say = |message: &ToCoordinator| {
        let bytes = encode(message, TO_COORDINATOR_BYTES_MAX).unwrap();
        let mut sent = Sent::default();
        let by = crate::rights::fitting(message);
        coordinator.on(
            now,
            CoordinatorEvent::Message {
                link,
                by,
                bytes: &bytes,
            },
            &mut sent,
        );
        sent.0
    };
    let registration = Registration {
        installed: first_lists().iter().map(|c| (c.list, c.epoch, c.id)).collect(),
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
fn lists_that_would_be_lost_are_reported_before_the_operator_confirms() {
    let mut world = World::new(MemoryStore::new(), &[2, 3]);
    for node in 0..2 {
        world.report(node, &first_lists());
    }
    world.tick(6_000);
    let words = world.remarks();
    assert!(words.contains("lists 1, 2, 5, 6 would be lost"), "{words}");
    assert!(world.adoption.store.list("").unwrap().is_empty());
    // The coordinator that opens the store comes to the same result.
    world.adoption.confirm();
    world.tick(300);
    let mut now = world.now;
    let (mut coordinator, _) = world.done();
    let clock = Clock { mono: now, wall_ms: 0 };
    for node in 0..2 {
        register_at(&mut coordinator, clock, node);
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
        world.report(node, &first_lists());
    }
    let (coordinator, _) = world.done();
    assert_eq!(coordinator.plan().lost_policy, LostPolicy::Stop);
}

/// A node that holds nothing by what is known, and that one process alone knows.
fn with_a_node_of_which_one_knows(without: &[u16]) -> World {
    let mut world = World::new(MemoryStore::new(), without);
    let (link, _) = world.register(0, incarnation(0), Some(ClusterId(7)));
    let testimony = Testimony {
        cluster: Some(plan().record()),
        incarnations: vec![(NodeId(5), incarnation(5), 3), (NodeId(6), incarnation(6), 1)],
        configurations: first_lists(),
        is_last: true,
    };
    world.say(link, &ToCoordinator::Testimony(Box::new(testimony)));
    for node in [1, 2, 3, 6] {
        world.report(node, &first_lists());
    }
    world
}

#[test]
fn a_node_known_only_from_reports_is_awaited_without_a_time_limit() {
    let mut world = with_a_node_of_which_one_knows(&[]);
    for _ in 0..100 {
        world.tick(60_000);
    }
    let words = world.remarks();
    assert!(
        words.contains("waits for n5: ") && words.contains("Without all of them no list would be lost"),
        "{words}"
    );
    assert!(world.adoption.store.list("").unwrap().is_empty(), "nothing is written");
    // It stood still. It alone knows the newest decision.
    world.report(5, &next_lists(&first_lists(), 1));
    let (coordinator, _) = world.done();
    assert!(coordinator.configurations().all(|c| c.epoch == Epoch(3)));
}

#[test]
fn what_only_a_node_that_holds_nothing_knew_is_given_up_by_the_operator_alone() {
    let mut world = with_a_node_of_which_one_knows(&[5]);
    world.tick(6_000);
    let words = world.remarks();
    assert!(
        words.contains("n5 counts as ended, and the 0 positions") && words.contains("a decision that only they know"),
        "{words}"
    );
    assert!(world.adoption.store.list("").unwrap().is_empty(), "nothing is written");
    world.adoption.confirm();
    world.tick(300);
    let (mut coordinator, words) = world.done();
    assert!(
        words.contains("what only silent processes of n5 knew is lost"),
        "{words}"
    );
    // If it runs after all, it is told that it is over: what it knows would stop the coordinator.
    let records = Records::open(coordinator.store_mut(), &plan(), 77, Versions::OURS).unwrap();
    let stored = &records.nodes[&NodeId(5)];
    assert!(stored.is_over(incarnation(5)));
    assert_eq!(stored.record.ordinal, 3);
}

#[test]
fn a_node_declared_off_that_registers_fails_the_adoption() {
    let mut world = World::new(MemoryStore::new(), &[3]);
    world.report(0, &first_lists());
    world.report(3, &first_lists());
    // A node that is awaited may know newer configurations.
    world.tick(60_000);
    assert!(world.remarks().contains("process 103") && world.remarks().contains("waits for n1, n2"));
    world.report(1, &first_lists());
    world.report(2, &first_lists());
    assert!(
        world.failure().contains("--without 3") && world.failure().contains("process 103"),
        "{}",
        world.failure()
    );
    assert!(
        world.adoption.into_store().list("").unwrap().is_empty(),
        "nothing is written"
    );
}

#[test]
fn two_different_histories_of_a_list_fail_the_adoption() {
    let (one, mut other) = (next_lists(&first_lists(), 1), next_lists(&first_lists(), 2));
    for ahead in [false, true] {
        let mut world = World::new(MemoryStore::new(), &[]);
        if ahead {
            other = next_lists(&other, 2);
        }
        world.report(0, &one);
        world.report(1, &other);
        let why = world.failure();
        assert!(
            why.contains("two histories of list 0") && why.contains("n0") && why.contains("n1"),
            "{why}"
        );
    }
}

#[test]
fn a_history_that_cannot_be_joined_is_reported() {
    let mut late = first_lists();
    for _ in 0..Configuration::TRAIL_MAX + 2 {
        late = next_lists(&late, 1);
    }
    let mut world = World::new(MemoryStore::new(), &[]);
    world.report(0, &first_lists());
    world.report(1, &late);
    // A node that is awaited may join the two.
    assert!(
        world.remarks().contains("n0 has epoch 1 of list") && world.remarks().contains("may know more"),
        "{}",
        world.remarks()
    );
    world.report(2, &late);
    world.report(3, &late);
    let why = world.failure();
    assert!(
        why.contains("Process 100 holds a position of that list") && why.contains("snapshot"),
        "{why}"
    );
    assert!(world.adoption.into_store().list("").unwrap().is_empty());
    // A report that is too old is ignored if its node holds no position of the list.
    let mut world = World::new(MemoryStore::new(), &[]);
    world.report_as(4, incarnation(4), Some(plan().record()), &first_lists());
    for node in 0..4 {
        world.report(node, &late);
    }
    let (coordinator, _) = world.done();
    assert!(
        coordinator
            .configurations()
            .all(|c| c.epoch.0 as usize == Configuration::TRAIL_MAX + 4)
    );
    // A report from between joins the two, whenever it comes.
    let mut between = first_lists();
    for _ in 0..8 {
        between = next_lists(&between, 1);
    }
    let mut world = World::new(MemoryStore::new(), &[]);
    for (node, lists) in [(0, &first_lists()), (1, &late), (3, &late), (2, &between)] {
        world.report(node, lists);
    }
    let (coordinator, _) = world.done();
    assert!(
        coordinator
            .configurations()
            .all(|c| c.epoch.0 as usize == Configuration::TRAIL_MAX + 4)
    );
}

#[test]
fn without_any_list_the_adoption_waits() {
    // A process that has begun anew may know the cluster, and none of its lists.
    for cluster in [None, Some(plan().record())] {
        let mut world = World::new(MemoryStore::new(), &[]);
        for node in 0..4 {
            world.report_as(node, Incarnation(5), cluster.clone(), &[]);
        }
        world.tick(60_000);
        let words = world.remarks();
        assert!(
            [
                "cannot reach this coordinator",
                "nothing is left",
                "--create",
                "snapshot"
            ]
            .iter()
            .all(|part| words.contains(part)),
            "{words}"
        );
        assert!(world.adoption.store.list("").unwrap().is_empty(), "nothing is written");
        // The way of the others to the coordinator is open again.
        for node in 0..4 {
            world.report(node, &first_lists());
        }
        world.done();
    }
}

/// P10.21: it was committed before one node was told.
#[test]
fn the_highest_active_version_that_a_node_knows_is_adopted() {
    let versions = Versions::up_to(TOMORROW);
    let mut world = World::new(MemoryStore::new(), &[]);
    world.adoption = Adoption::begin_as(MemoryStore::new(), &plan(), [], versions).unwrap();
    for node in 0..4 {
        let mut cluster = plan().record();
        cluster.active_version += u16::from(node == 2);
        world.report_as(node, incarnation(node), Some(cluster), &first_lists());
    }
    assert!(matches!(world.adoption.progress(), Progress::Done(_)));
    let opened = Coordinator::open_as(world.adoption.into_store(), &plan(), 1, versions).unwrap();
    assert_eq!(opened.cluster().active_version, TOMORROW);
}

/// P10.21: one node was told of it, and a program that cannot speak it must not make a store without it.
#[test]
fn a_program_below_the_active_version_adopts_nothing() {
    let mut world = World::new(MemoryStore::new(), &[]);
    for node in 0..3 {
        let mut cluster = plan().record();
        cluster.active_version += u16::from(node == 2);
        world.report_as(node, incarnation(node), Some(cluster), &first_lists());
    }
    let why = world.failure();
    assert!(
        why.contains("n2 knows that the cluster's active version is 9, and this paritas speaks 8 to 8"),
        "{why}"
    );
    assert!(world.adoption.into_store().list("").unwrap().is_empty());
}

#[test]
fn nodes_of_two_clusters_fail_the_adoption() {
    let mut world = World::new(MemoryStore::new(), &[]);
    world.report(0, &first_lists());
    let other = ClusterRecord {
        id: ClusterId(8),
        ..plan().record()
    };
    world.report_as(1, incarnation(1), Some(other), &first_lists());
    assert!(
        world.failure().contains("n0 is of cluster") && world.failure().contains("n1 of cluster"),
        "{}",
        world.failure()
    );
}

#[test]
fn settings_of_another_cluster_are_reported() {
    let asked = ClusterPlan {
        lease_ms: 3000,
        ..plan()
    };
    let adoption = Adoption::begin(MemoryStore::new(), &asked, []).unwrap();
    let mut world = World::new(MemoryStore::new(), &[]);
    world.adoption = adoption;
    world.report(0, &first_lists());
    assert!(world.failure().contains("another lease_ms"), "{}", world.failure());
}

/// A store with all nodes and the first configuration of every list.
fn older_store() -> MemoryStore {
    let mut world = World::new(MemoryStore::new(), &[]);
    for node in 0..4 {
        world.report(node, &first_lists());
    }
    world.adoption.into_store()
}

#[test]
fn an_older_store_is_updated_from_the_nodes() {
    let store = older_store();
    let stored: Vec<Configuration> = {
        let coordinator = Coordinator::open(store.clone(), &plan(), 1).unwrap();
        coordinator.configurations().cloned().collect()
    };
    let newest = next_lists(&next_lists(&stored, 1), 1);
    let mut world = World::new(store.clone(), &[]);
    // A process of another cluster is refused, and reported.
    let (_, answer) = world.register(9, Incarnation(1), Some(ClusterId(8)));
    assert_eq!(answer, [ToAgent::Refused(Refusal::WrongCluster { here: ClusterId(7) })]);
    world.report(0, &newest);
    assert!(
        world.remarks().contains("n9 is of cluster 0000000000000008"),
        "{}",
        world.remarks()
    );
    for node in 1..4 {
        world.report(node, &newest);
    }
    let (coordinator, _) = world.done();
    assert!(
        coordinator
            .configurations()
            .zip(&newest)
            .all(|(c, new)| c.epoch.0 == new.epoch.0 + 1)
    );
    // A store with another history.
    let mut world = World::new(store, &[]);
    let other: Vec<Configuration> = first_lists().iter().map(|c| after(c, |c| c.lost = true)).collect();
    world.report(0, &other);
    let why = world.failure();
    assert!(
        why.contains("the store has another history") && why.contains("Move the store's file away"),
        "{why}"
    );
    assert!(!why.contains("top the process"), "{why}");
}

#[test]
fn a_hand_off_in_progress_is_cancelled() {
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
    let lists: Vec<Configuration> = first_lists().iter().map(during).collect();
    let mut world = World::new(MemoryStore::new(), &[]);
    for node in 0..4 {
        world.report(node, &lists);
    }
    let (coordinator, _) = world.done();
    for c in coordinator.configurations() {
        let version = if [from, to].contains(&c.list.0) { 6 } else { 0 };
        assert_eq!((c.slots.version, c.slots.hand_off), (version, None));
        let plan = plan().record();
        assert_eq!(
            c.slots.held(c.list, &plan),
            first_lists()[usize::from(c.list.0)].slots.held(c.list, &plan)
        );
    }
}

#[test]
fn a_store_of_a_newer_version_is_refused_and_unchanged() {
    let mut store = older_store();
    let key = "node/00000".to_owned();
    let expected = Expected {
        key: key.clone(),
        value: store.get(&key).unwrap(),
    };
    let value = Some(vec![RECORD_FORMAT + 1, 1, 2]);
    store.commit(&expected, &[Change { key, value }]).unwrap();
    let before = store.list("").unwrap();
    let refused = Adoption::begin(store.clone(), &plan(), []).unwrap_err();
    assert!(matches!(refused, OpenError::NewerFormat { .. }), "{refused}");
    assert_eq!(store.list("").unwrap(), before);
}

#[test]
fn a_store_failure_is_reported_and_nothing_is_written() {
    let mut store = MemoryStore::new();
    store.fail_commits(1);
    let mut world = World::new(store, &[]);
    for node in 0..4 {
        world.report(node, &first_lists());
    }
    assert!(world.failure().contains("store failed"), "{}", world.failure());
    assert!(world.adoption.into_store().list("").unwrap().is_empty());
}

#[test]
fn invalid_registrations_and_configurations_are_not_adopted() {
    let mut world = World::new(MemoryStore::new(), &[]);
    let refused = |world: &mut World, change: fn(&mut Registration)| {
        let (_, answer) = world.register_with(3, incarnation(3), Some(ClusterId(7)), change);
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
    world.report(0, &first_lists());
    assert!(
        world
            .remarks()
            .contains("n3 is not taken in: n3 is not planned as a log node")
    );
    // Lists of another scheme, or with too many positions on one node, cannot belong to this cluster.
    let invalid = [
        after(&first_lists()[0], |c| c.ack_quorum = 0),
        after(&first_lists()[0], |c| c.positions = vec![c.positions[0]; 3]),
        after(&first_lists()[0], |c| {
            c.parity = 2;
            c.positions.push(None);
        }),
    ];
    for list in invalid {
        world.report(1, &[list]);
    }
    for node in 1..4 {
        world.report(node, &first_lists());
    }
    let (coordinator, _) = world.done();
    assert!(coordinator.configurations().all(|c| c.epoch == Epoch(2)));
}

#[test]
fn the_number_of_nodes_and_incarnations_is_limited() {
    let mut world = World::new(MemoryStore::new(), &[]);
    for node in 0..NODES_MAX as u16 {
        let (_, answer) = world.register(node, incarnation(node), None);
        assert_eq!(answer, [ToAgent::Refused(Refusal::Adopting)]);
    }
    let (_, answer) = world.register(NODES_MAX as u16, Incarnation(1), None);
    assert!(
        matches!(&answer[..], [ToAgent::Refused(Refusal::Limit(_))]),
        "{answer:?}"
    );
    // The number of incarnations is limited too, over all frames of a testimony.
    let (link, _) = world.register(0, incarnation(0), None);
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
