//! A process that holds positions is silent, and another process with its node's id has registered.

use super::*;

const FORMER: u16 = 3;
/// The other process of that node.
const OTHER: Incarnation = Incarnation(5);

/// Three nodes have reported, and of the fourth only the other process.
fn with_the_other_process(without: &[u16]) -> World {
    let mut world = World::new(MemoryStore::new(), without);
    for node in 0..FORMER {
        world.report(node, &first_lists());
    }
    world.report_as(FORMER, OTHER, None, &[]);
    world
}

/// A supervisor's link, with or without the announcement that must come before a certificate (P10.4).
fn certify(world: &mut World, link: u64, node: u16, is_announced: bool) {
    let (link, node, incarnation) = (LinkId(link), NodeId(node), incarnation(node));
    world.event(CoordinatorEvent::Connected { link });
    if is_announced {
        world.say(link, &ToCoordinator::Supervise { node, incarnation });
    }
    let answer = world.say(link, &ToCoordinator::Exited { node, incarnation });
    assert_eq!(
        answer,
        [],
        "it is not noted before the store is written: it must be repeated to the coordinator"
    );
}

/// The stored record of that node.
fn stored(coordinator: &mut Coordinator<MemoryStore>) -> StoredNode {
    let records = Records::open(coordinator.store_mut(), &plan(), 77, Versions::OURS).unwrap();
    records.nodes[&NodeId(FORMER)].clone()
}

#[test]
fn a_silent_process_that_holds_positions_is_awaited_without_a_time_limit() {
    let mut world = with_the_other_process(&[]);
    for _ in 0..100 {
        world.tick(60_000);
    }
    let words = world.remarks();
    assert!(
        words.contains("waits for a silent process of n3: process 103 has registered"),
        "{words}"
    );
    assert!(
        words.contains("nobody has certified") && words.contains("for those of n3") && words.contains("--without"),
        "{words}"
    );
    assert!(world.adoption.store.list("").unwrap().is_empty(), "nothing is written");
    // Its way to the coordinator is open again.
    world.report(FORMER, &first_lists());
    let (mut coordinator, _) = world.done();
    for (c, before) in coordinator.configurations().zip(first_lists()) {
        assert_eq!(c.positions, before.positions, "no position changes its holder");
    }
    let stored = stored(&mut coordinator);
    assert_eq!(stored.record.incarnation, incarnation(FORMER));
    assert!(!stored.is_over(incarnation(FORMER)));
}

#[test]
fn after_a_certified_end_the_other_process_succeeds_at_once() {
    let mut world = with_the_other_process(&[]);
    certify(&mut world, 50, FORMER, false);
    world.tick(60_000);
    assert!(
        world.remarks().contains("nobody has certified"),
        "a certificate counts only after its announcement on the same link: {}",
        world.remarks()
    );
    let mut world = with_the_other_process(&[]);
    certify(&mut world, 51, FORMER, true);
    let (mut coordinator, words) = world.done();
    assert!(words.contains("n3 run as new processes"), "{words}");
    let stored = stored(&mut coordinator);
    assert_eq!(stored.record.incarnation, OTHER);
    assert!(
        stored.past.contains(&(incarnation(FORMER), true)),
        "its leases need not be waited for: {:?}",
        stored.past
    );
}

#[test]
fn a_node_whose_process_has_certainly_ended_is_still_awaited() {
    let mut world = World::new(MemoryStore::new(), &[]);
    for node in 0..FORMER {
        world.report(node, &first_lists());
    }
    certify(&mut world, 50, FORMER, true);
    world.tick(60_000);
    assert!(world.remarks().contains("waits for n3: "), "{}", world.remarks());
    world.report_as(FORMER, OTHER, None, &[]);
    world.done();
}

#[test]
fn an_operator_may_say_that_the_former_process_has_ended() {
    let mut world = with_the_other_process(&[FORMER]);
    world.tick(6_000);
    let words = world.remarks();
    assert!(
        words.contains("the silent process of n3 counts as ended") && words.contains("no list is lost"),
        "{words}"
    );
    assert!(
        world.adoption.store.list("").unwrap().is_empty(),
        "what it loses is said first"
    );
    world.adoption.confirm();
    world.tick(300);
    let (mut coordinator, _) = world.done();
    let stored = stored(&mut coordinator);
    assert_eq!(stored.record.incarnation, OTHER);
    assert!(
        stored.past.contains(&(incarnation(FORMER), false)),
        "its leases must still be awaited: {:?}",
        stored.past
    );
}

#[test]
fn an_operator_who_is_wrong_about_the_former_process_is_told_so() {
    let mut world = with_the_other_process(&[FORMER]);
    world.adoption.confirm();
    world.tick(1_000);
    world.report(FORMER, &first_lists());
    world.tick(60_000);
    let why = world.failure();
    assert!(why.contains("--without 3") && why.contains("process 103"), "{why}");
    assert!(world.adoption.store.list("").unwrap().is_empty(), "nothing is written");
}

#[test]
fn the_operator_is_not_contradicted_by_a_process_that_has_lost_its_positions() {
    // The successor of this process has ended. It registers before any node that knows the newer configurations.
    let mut world = World::new(MemoryStore::new(), &[FORMER]);
    world.adoption.confirm();
    world.report(FORMER, &first_lists());
    assert!(
        world.remarks().contains("nothing will be written"),
        "{}",
        world.remarks()
    );
    world.tick(60_000);
    assert!(world.remarks().contains("waits for n0, n1, n2"), "{}", world.remarks());
    let newer: Vec<Configuration> = first_lists().iter().map(|c| after(c, replace)).collect();
    for node in 0..FORMER {
        world.report(node, &newer);
    }
    let (coordinator, _) = world.done();
    assert_eq!(coordinator.configurations().next().unwrap().epoch, Epoch(3));
}

/// A node that holds nothing by the first configurations.
const SPARE: u16 = 5;

/// The other nodes have reported, and know the spare.
fn report_with_a_spare(world: &mut World) {
    let (link, _) = world.register(0, incarnation(0), Some(ClusterId(7)));
    let testimony = Testimony {
        cluster: Some(plan().record()),
        incarnations: vec![(NodeId(SPARE), incarnation(SPARE), 1)],
        configurations: first_lists(),
        is_last: true,
    };
    world.say(link, &ToCoordinator::Testimony(Box::new(testimony)));
    for node in 1..=FORMER {
        world.report(node, &first_lists());
    }
}

/// The spare has the positions of another node.
fn held_by_the_spare() -> Vec<Configuration> {
    let moved = |c: &mut Configuration| {
        let since = c.epoch;
        let held = c.positions.iter_mut().flatten();
        for a in held.filter(|a| a.tenure.node == NodeId(FORMER)) {
            (a.tenure.node, a.tenure.incarnation) = (NodeId(SPARE), incarnation(SPARE));
            (a.tenure.since, a.state) = (since, PositionState::Filling);
        }
    };
    first_lists().iter().map(|c| after(c, moved)).collect()
}

/// Seed 160000098: the latest process stood still, and the other one had begun anew.
#[test]
fn another_process_of_a_node_does_not_stand_for_the_latest_one_that_may_know_more() {
    let spare_runs_twice = |without: &[u16]| {
        let mut world = World::new(MemoryStore::new(), without);
        report_with_a_spare(&mut world);
        world.report_as(SPARE, OTHER, None, &[]);
        world
    };
    let mut world = spare_runs_twice(&[]);
    for _ in 0..100 {
        world.tick(60_000);
    }
    let words = world.remarks();
    assert!(words.contains("waits for a silent process of n5"), "{words}");
    assert!(world.adoption.store.list("").unwrap().is_empty(), "nothing is written");
    world.report(SPARE, &held_by_the_spare());
    let (coordinator, _) = world.done();
    assert!(coordinator.configurations().all(|c| c.epoch == Epoch(3)));
    let spare = coordinator.nodes().find(|n| n.id == NodeId(SPARE)).unwrap();
    assert_eq!(spare.incarnation, incarnation(SPARE));

    // It does not come, and the operator says that it has ended.
    let mut world = spare_runs_twice(&[SPARE]);
    world.tick(6_000);
    let words = world.remarks();
    assert!(words.contains("the silent process of n5 counts as ended"), "{words}");
    world.adoption.confirm();
    world.tick(300);
    let (mut coordinator, words) = world.done();
    assert!(
        words.contains("what only silent processes of n5 knew is lost"),
        "{words}"
    );
    let records = Records::open(coordinator.store_mut(), &plan(), 77, Versions::OURS).unwrap();
    let spare = &records.nodes[&NodeId(SPARE)];
    // Agents ignore a record of the node that is older than the one they know.
    assert_eq!((spare.record.incarnation, spare.record.ordinal), (OTHER, 2));
    assert!(spare.is_over(incarnation(SPARE)));

    // Its end is certified.
    let mut world = spare_runs_twice(&[]);
    certify(&mut world, 51, SPARE, true);
    world.done();
}

#[test]
fn the_operator_may_speak_of_the_successor_of_a_process_that_has_reported() {
    // The former coordinator had accepted another process of n3, by a decision that nobody else knows.
    let mut world = World::new(MemoryStore::new(), &[FORMER]);
    world.adoption.confirm();
    let (link, _) = world.register(0, incarnation(0), Some(ClusterId(7)));
    let testimony = Testimony {
        cluster: Some(plan().record()),
        incarnations: vec![(NodeId(FORMER), OTHER, 9)],
        configurations: first_lists(),
        is_last: true,
    };
    world.say(link, &ToCoordinator::Testimony(Box::new(testimony)));
    for node in 1..=FORMER {
        world.report(node, &first_lists());
    }
    world.tick(6_000);
    let (mut coordinator, _) = world.done();
    let stored = stored(&mut coordinator);
    assert_eq!(stored.record.incarnation, incarnation(FORMER));
    assert!(stored.is_over(OTHER) && !stored.is_over(incarnation(FORMER)));
}

#[test]
fn the_operator_is_not_contradicted_while_a_node_is_awaited_that_may_know_more() {
    let mut world = World::new(MemoryStore::new(), &[FORMER]);
    world.adoption.confirm();
    report_with_a_spare(&mut world);
    world.tick(6_000);
    let words = world.remarks();
    assert!(
        words.contains("waits for n5: ") && words.contains("process 103"),
        "{words}"
    );
    // The spare has the positions, and it alone knows.
    world.report(SPARE, &held_by_the_spare());
    let (coordinator, _) = world.done();
    assert_eq!(coordinator.configurations().next().unwrap().epoch, Epoch(3));
}

/// The other process has taken the place of the former one.
fn replace(c: &mut Configuration) {
    let (since, id) = (c.epoch, NodeId(FORMER));
    for a in c.positions.iter_mut().flatten().filter(|a| a.tenure.node == id) {
        (a.tenure.incarnation, a.tenure.since) = (OTHER, since);
        a.state = PositionState::Filling;
    }
}

#[test]
fn a_process_that_the_former_coordinator_has_replaced_is_not_awaited() {
    let mut world = World::new(MemoryStore::new(), &[]);
    let (link, _) = world.register(0, incarnation(0), Some(ClusterId(7)));
    // The configurations are older than this record.
    let testimony = Testimony {
        cluster: Some(plan().record()),
        incarnations: vec![(NodeId(FORMER), OTHER, 9)],
        configurations: first_lists(),
        is_last: true,
    };
    world.say(link, &ToCoordinator::Testimony(Box::new(testimony)));
    for node in 1..FORMER {
        world.report(node, &first_lists());
    }
    // Neither the latest process, nor known to any coordinator, with a lower number than the latest.
    world.report_as(FORMER, Incarnation(4), None, &[]);
    world.tick(60_000);
    assert!(world.remarks().contains("nobody has certified"), "{}", world.remarks());
    world.report_as(FORMER, OTHER, None, &[]);
    let (mut coordinator, _) = world.done();
    let stored = stored(&mut coordinator);
    assert_eq!(stored.record.incarnation, OTHER);
    assert!(stored.is_over(incarnation(FORMER)));
}

/// The former process stood still while it was replaced, and for long after that. So nobody can tell whether what it
/// has is of the same history.
#[test]
fn a_replaced_process_with_an_old_configuration_does_not_fail_the_adoption() {
    let mut newest: Vec<Configuration> = first_lists().iter().map(|c| after(c, replace)).collect();
    for _ in 0..Configuration::TRAIL_MAX + 2 {
        newest = next_lists(&newest, 1);
    }
    for is_known in [true, false] {
        let mut world = World::new(MemoryStore::new(), &[]);
        world.report(FORMER, &first_lists());
        world.report(0, &newest);
        assert!(
            world.remarks().contains("n3 has epoch 1 of list"),
            "{}",
            world.remarks()
        );
        let (link, _) = world.register(FORMER, OTHER, Some(ClusterId(7)));
        let testimony = Testimony {
            cluster: Some(plan().record()),
            incarnations: if is_known {
                vec![(NodeId(FORMER), OTHER, 9)]
            } else {
                vec![]
            },
            configurations: newest.clone(),
            is_last: true,
        };
        world.say(link, &ToCoordinator::Testimony(Box::new(testimony)));
        for node in 1..FORMER {
            world.report(node, &newest);
        }
        if !is_known {
            assert!(
                world.failure().contains("Process 103 holds a position"),
                "{}",
                world.failure()
            );
            continue;
        }
        let (mut coordinator, _) = world.done();
        for (c, newest) in coordinator.configurations().zip(&newest) {
            assert_eq!((c.trail[0], &c.positions), (newest.id, &newest.positions));
        }
        let stored = stored(&mut coordinator);
        assert_eq!(stored.record.incarnation, OTHER);
        assert!(stored.is_over(incarnation(FORMER)), "it is told that it is over");
    }
}

/// A store with all nodes, in which the process of that node has ended with a certificate.
fn store_with_an_end() -> MemoryStore {
    let mut store = older_store();
    let mut records = Records::open(&mut store, &plan(), 77, Versions::OURS).unwrap();
    let mut node = records.nodes[&NodeId(FORMER)].clone();
    node.certify(incarnation(FORMER));
    node.record.state = paritas_base::configuration::NodeState::Down;
    records.commit(&mut store, &[node], &[], None).unwrap();
    store
}

/// The lists in a store.
fn lists_in(store: &MemoryStore) -> Vec<Configuration> {
    let coordinator = Coordinator::open(store.clone(), &plan(), 1).unwrap();
    coordinator.configurations().cloned().collect()
}

#[test]
fn an_end_in_an_old_store_excuses_no_node_from_reporting() {
    let store = store_with_an_end();
    let stored = lists_in(&store);
    let mut world = World::new(store.clone(), &[]);
    for node in 0..FORMER {
        world.report(node, &stored);
    }
    for _ in 0..100 {
        world.tick(60_000);
    }
    assert!(world.remarks().contains("waits for n3: "), "{}", world.remarks());
    assert_eq!(lists_in(&world.adoption.store), stored, "nothing is written");
    // After the copy was made, the next process of the node got the positions, and the others have ended since.
    let held_by_next = |c: &Configuration| {
        after(c, |c| {
            for held in c
                .positions
                .iter_mut()
                .flatten()
                .filter(|a| a.tenure.node == NodeId(FORMER))
            {
                (held.tenure.incarnation, held.tenure.since) = (OTHER, c.epoch);
            }
        })
    };
    let newest: Vec<Configuration> = stored.iter().map(held_by_next).collect();
    world.report_as(FORMER, OTHER, Some(plan().record()), &newest);
    let (coordinator, _) = world.done();
    for (c, newest) in coordinator.configurations().zip(&newest) {
        assert_eq!((c.trail[0], &c.positions), (newest.id, &newest.positions));
    }
}

#[test]
fn a_node_that_holds_nothing_and_has_ended_in_an_old_store_is_awaited() {
    let mut store = store_with_an_end();
    let mut records = Records::open(&mut store, &plan(), 77, Versions::OURS).unwrap();
    let mut lists = next_lists(&lists_in(&store), 1);
    for c in &mut lists {
        for held in c
            .positions
            .iter_mut()
            .filter(|a| a.is_some_and(|a| a.tenure.node == NodeId(FORMER)))
        {
            *held = None;
        }
        c.seal(Some(&records.lists[&c.list]));
    }
    records.commit(&mut store, &[], &lists, None).unwrap();
    let mut world = World::new(store, &[]);
    for node in 0..FORMER {
        world.report(node, &lists);
    }
    world.tick(60_000);
    assert!(world.remarks().contains("waits for n3: "), "{}", world.remarks());
    world.report_as(FORMER, OTHER, None, &[]);
    world.done();
}

#[test]
fn an_operator_excuses_a_node_that_has_ended_in_an_old_store() {
    let store = store_with_an_end();
    let stored = lists_in(&store);
    let mut world = World::new(store, &[FORMER]);
    for node in 0..FORMER {
        world.report(node, &stored);
    }
    world.tick(6_000);
    let words = world.remarks();
    assert!(words.contains("n3 counts as ended"), "{words}");
    world.adoption.confirm();
    world.tick(300);
    let (mut coordinator, _) = world.done();
    let end = self::stored(&mut coordinator).end;
    assert_eq!(
        end,
        crate::record::End::Attested,
        "the next coordinator does not wait for it either"
    );
}
