//! Tests of coordinators whose store is an old copy: they must not decide by it (P10.14 to P10.16).

use super::*;

/// A copy of the present store.
fn copy(world: &mut World) -> MemoryStore {
    world.coordinator.store_mut().clone()
}

/// Ends the coordinator and starts the next one with another store.
fn reopen_with(world: &mut World, store: MemoryStore) {
    *world.coordinator.store_mut() = store;
    begin_history(world);
    world.reopen();
}

/// Makes the present configurations of the store the ones that later commits are checked against.
fn begin_history(world: &mut World) {
    let store = copy(world);
    let now = Coordinator::open(store, &world.plan, 0).unwrap();
    world.history = now.configurations().map(|c| (c.list, vec![c.clone()])).collect();
}

fn is_behind(world: &World) -> bool {
    let status = world.coordinator.status(world.now());
    status
        .coordinator
        .iter()
        .any(|remark| remark.contains("not the cluster's newest"))
}

#[test]
fn a_coordinator_with_an_old_store_changes_nothing_and_reports_it() {
    let mut world = World::started(plan(4, 2, 12, 0));
    let old = copy(&mut world);
    world.certify(3);
    world.pass(5000);
    world.rebuild();
    world.pass(300);
    reopen_with(&mut world, old);
    let before: Vec<_> = world.coordinator.configurations().cloned().collect();
    let notes = world.notes.len();
    // A new process registers first: it knows no configuration.
    let link = world.connect();
    world.certify(5);
    world.offer(link, 5, Incarnation(99_000)).unwrap();
    for node in [0, 1, 2] {
        let link = world.connect();
        let refused = world.offer(link, node, world.incarnation(node));
        assert!(matches!(refused, Err(Refusal::StoreIsBehind { .. })), "{refused:?}");
    }
    let is_told = |n: &Note| matches!(n, Note::Behind { node: NodeId(0), .. });
    assert_eq!(world.notes[notes..].iter().filter(|n| is_told(n)).count(), 1);
    assert!(is_behind(&world));
    // Neither time nor ends nor new incarnations change anything now.
    world.certify(6);
    world.tick(60_000);
    let link = world.connect();
    let fresh = world.offer(link, 6, Incarnation(99_001));
    assert!(matches!(fresh, Err(Refusal::StoreIsBehind { .. })), "{fresh:?}");
    let refused = world.set_duty(7, Duty::Draining).unwrap();
    assert!(refused.contains("changes nothing"), "{refused}");
    assert!(world.coordinator.configurations().eq(&before));
}

#[test]
fn another_history_of_the_same_length_is_detected() {
    let mut world = World::started(plan(4, 2, 12, 0));
    let old = copy(&mut world);
    world.certify(3);
    world.pass(5000);
    let newest: Vec<_> = world.coordinator.configurations().cloned().collect();
    // The old store, with other changes, at least the same number.
    reopen_with(&mut world, old);
    for _ in 0..4 {
        let otherwise = |c: &Configuration| {
            let mut next = c.clone();
            next.epoch = Epoch(c.epoch.0 + 1);
            next.lost = !c.lost;
            next.seal(Some(c));
            next
        };
        let lists: Vec<_> = world.coordinator.configurations().map(otherwise).collect();
        let Coordinator { store, records, .. } = &mut world.coordinator;
        records.commit(store, &[], &lists, None).unwrap();
    }
    begin_history(&mut world);
    let branched = world.coordinator.configurations().any(|c| {
        let same = newest.iter().find(|n| n.list == c.list).unwrap();
        c.epoch >= same.epoch && c.id != same.id
    });
    assert!(branched, "the test needs a second history");
    let link = world.connect();
    let refused = world.offer(link, 10, world.incarnation(10));
    assert!(matches!(refused, Err(Refusal::StoreIsBehind { .. })), "{refused:?}");
}

#[test]
fn a_new_coordinator_decides_nothing_until_enough_nodes_have_reported() {
    let mut world = World::started(plan(4, 2, 12, 0));
    world.reopen();
    let before: Vec<_> = world.coordinator.configurations().cloned().collect();
    world.certify(11);
    // 12 nodes hold positions. At least 7 of them have received the latest decision.
    for node in 0..5 {
        world.register_again(node);
        world.tick(100);
        assert!(world.coordinator.configurations().eq(&before), "after {node}");
    }
    let status = world.coordinator.status(world.now());
    assert!(
        status.coordinator.iter().any(|r| r.contains("6 of the nodes")),
        "{:?}",
        status.coordinator
    );
    world.register_again(5);
    world.tick(100);
    assert!(
        !world.coordinator.configurations().eq(&before),
        "the certified end must be acted on"
    );
}

#[test]
fn an_empty_position_becomes_live_when_its_holder_confirms_it() {
    let mut world = World::started(plan(2, 1, 3, 0));
    let born = world.list(0);
    assert!(born.positions.iter().flatten().all(|a| a.state == PositionState::Born));
    for position in 0..3 {
        world.ask_live(0, position);
        assert_eq!(world.list(0), born, "confirmations are collected into one commit");
    }
    world.pass(300);
    let now = world.list(0);
    assert!(now.positions.iter().flatten().all(|a| a.state == PositionState::Live));
    assert_eq!(now.epoch, Epoch(born.epoch.0 + 1));
}

#[test]
fn a_node_that_missed_more_changes_than_are_recorded_ends_if_it_holds_no_position() {
    let mut world = World::started(plan(2, 1, 3, 0));
    let first = world.list(0);
    let mut lists = vec![first.clone()];
    for epoch in 2..=Configuration::HISTORY_MAX as u32 + 2 {
        let mut next = first.clone();
        (next.epoch, next.lost) = (Epoch(epoch), epoch % 2 == 0);
        next.seal(lists.last());
        lists = vec![next];
        let Coordinator { store, records, .. } = &mut world.coordinator;
        records.commit(store, &[], &lists, None).unwrap();
    }
    let mut registration = world::registration(0, world.incarnation(0));
    registration.installed = vec![(first.list, first.epoch, first.id)];
    begin_history(&mut world);
    let link = world.connect();
    let message = ToCoordinator::Register(Box::new(registration));
    world.say(link, &message);
    // Its data may exist nowhere else, in this list or in others.
    let refused = world.received(link);
    let [ToAgent::Refused(Refusal::Limit(why))] = &refused[..] else {
        panic!("{refused:?}");
    };
    assert!(why.contains("it goes on") && why.contains("list 0"), "{why}");
    let without = |c: &Configuration| {
        let mut next = c.clone();
        next.epoch = Epoch(c.epoch.0 + 1);
        for held in &mut next.positions {
            *held = held.filter(|a| a.tenure.node != NodeId(0));
        }
        next.seal(Some(c));
        next
    };
    let lists: Vec<_> = world.coordinator.configurations().map(without).collect();
    let Coordinator { store, records, .. } = &mut world.coordinator;
    records.commit(store, &[], &lists, None).unwrap();
    begin_history(&mut world);
    world.say(link, &message);
    assert_eq!(world.received(link), [ToAgent::Refused(Refusal::IncarnationEnded)]);
}

#[test]
fn a_deposed_coordinator_does_not_report_an_old_store() {
    let mut world = World::started(plan(4, 2, 12, 0));
    let old = copy(&mut world);
    world.certify(3);
    world.pass(5000);
    // The first coordinator still runs with its old records, on the store that the later one has opened and changed.
    let newest = copy(&mut world);
    let mut first = Coordinator::open(old, &world.plan, 7).unwrap();
    std::mem::swap(&mut world.coordinator, &mut first);
    let known = world.coordinator.configurations();
    world.history = known.map(|c| (c.list, vec![c.clone()])).collect();
    *world.coordinator.store_mut() = Coordinator::open(newest, &world.plan, 8).unwrap().into_store();
    let link = world.connect();
    let message = ToCoordinator::Register(Box::new(Registration {
        installed: world.nodes[&0]
            .installed
            .iter()
            .map(|(list, (epoch, id))| (*list, *epoch, *id))
            .collect(),
        ..world::registration(0, world.incarnation(0))
    }));
    world.say(link, &message);
    assert_eq!(world.coordinator.ending(), Some(Ending::Deposed));
    assert!(world.notes.contains(&Note::Deposed) && !is_behind(&world));
}

#[test]
fn ordinals_continue_from_those_that_the_nodes_know() {
    let mut world = World::started(plan(2, 1, 4, 0));
    let ordinal = |world: &World, node: u16| world.coordinator.records.nodes[&NodeId(node)].record.ordinal;
    let register = |world: &mut World, node: u16, incarnations: Vec<(NodeId, Incarnation, u32)>| {
        let link = world.connect();
        let mut registration = world::registration(node, world.incarnation(node));
        registration.incarnations = incarnations;
        world.say(link, &ToCoordinator::Register(Box::new(registration)));
        let Some(ToAgent::Registered(registered)) = world.received(link).pop() else {
            panic!("not registered");
        };
        let beat = ToCoordinator::Heartbeat {
            nonce: registered.nonce,
            shards: vec![],
            silent: vec![],
            opinions: None,
        };
        let known = world.nodes.get_mut(&node).unwrap();
        (known.link, known.nonce) = (link, registered.nonce);
        world.say(link, &beat);
    };
    // An earlier incarnation of a node, the present one of a node, and an incarnation of a node that has ended.
    world.kill(3);
    world.certify(3);
    let incarnations = vec![
        (NodeId(0), Incarnation(5), 7),
        (NodeId(1), world.incarnation(1), 7),
        (NodeId(3), Incarnation(6), 7),
    ];
    register(&mut world, 2, incarnations);
    world.pass(300);
    let ordinals: Vec<u32> = (0..4).map(|node| ordinal(&world, node)).collect();
    assert_eq!(ordinals, [8, 7, 1, 1]);
    world.start(3);
    assert_eq!(ordinal(&world, 3), 8);
    world.pass(1000);
    assert_eq!(ordinal(&world, 0), 8, "the ordinal must be raised only once");
}

#[test]
fn a_configuration_is_sent_once_enough_holders_know_its_id() {
    // One of six holders has ended. Of the other five, three must know the id: five less two parities.
    let mut world = World::started(plan(4, 2, 6, 1));
    world.start(6);
    world.pass(300);
    world.slow_witnesses = (0..7).collect();
    let old = copy(&mut world);
    world.certify(0);
    world.pass(1500);
    let committed = world.list(0);
    assert!(committed.epoch > Epoch(1));
    let installed = |world: &World, node: u16| world.nodes[&node].installed[&ListId(0)];
    assert_eq!(installed(&world, 1).0, Epoch(1), "it must not be sent yet");
    let status = world.coordinator.status(world.now());
    assert!(status.trouble.withheld > 0);
    let says = |words: &[String]| words.iter().any(|w| w.contains("sends them once 3 more of the nodes"));
    assert!(says(&status.coordinator), "{:?}", status.coordinator);
    // A spare is no holder, so its knowledge does not count.
    world.slow_witnesses = (1..6).collect();
    world.register_again(6);
    world.register_again(1);
    assert_eq!(installed(&world, 1).0, Epoch(1));
    world.slow_witnesses = [4, 5].into();
    for node in [1, 2] {
        world.register_again(node);
        assert_eq!(installed(&world, node).0, Epoch(1), "n{node}");
    }
    world.register_again(3);
    assert_eq!(
        installed(&world, 5),
        (committed.epoch, committed.id),
        "it must be sent to all"
    );
    assert_eq!(world.coordinator.status(world.now()).trouble.withheld, 0);
    // The store is replaced by a copy from before that change. The three nodes that knew it first are enough to
    // detect it.
    let mut behind = world;
    let first: Vec<_> = behind
        .history
        .values()
        .map(|h| (h[0].list, (h[0].epoch, h[0].id)))
        .collect();
    for node in behind.nodes.values_mut() {
        node.installed = first.iter().copied().collect();
    }
    reopen_with(&mut behind, old);
    let link = behind.connect();
    let refused = behind.offer(link, 2, behind.incarnation(2));
    assert!(matches!(refused, Err(Refusal::StoreIsBehind { .. })), "{refused:?}");
}

#[test]
fn a_coordinator_waits_for_silent_holders_until_an_operator_fences_them() {
    let mut world = World::started(plan(1, 1, 2, 1));
    world.start(2);
    world.reopen();
    let before: Vec<_> = world.coordinator.configurations().cloned().collect();
    world.kill(0);
    world.register_again(1);
    world.register_again(2);
    world.pass(60_000);
    assert!(world.coordinator.configurations().eq(&before));
    let waits = world.coordinator.status(world.now());
    assert_eq!(waits.trouble.witnesses_missing, [NodeId(0)]);
    assert!(waits.coordinator[0].contains("not yet n0"), "{:?}", waits.coordinator);
    let link = world.connect();
    let order = crate::message::Order::Fence { nodes: vec![NodeId(0)] };
    let confirmed = true;
    world.say(link, &ToCoordinator::Order { n: 7, order, confirmed });
    world.pass(3000);
    assert!(
        world
            .coordinator
            .configurations()
            .all(|c| !c.lost && c.of_node(NodeId(0)).next().is_none())
    );
}

#[test]
fn a_new_coordinator_marks_no_list_lost_before_a_filling_holder_could_report_that_it_is_complete() {
    for says in [true, false] {
        let mut world = World::started(plan(2, 1, 3, 1));
        world.start(3);
        let list = (0..3).find(|list| world.holder(*list, 0) == Some(0)).unwrap();
        world.certify(0);
        world.pass(1500);
        assert_eq!(world.holder(list, 0), Some(3));
        // The coordinator ends. It may have received that n3 is complete, and not have sent the result to any node.
        world.reopen();
        (1..4).for_each(|node| world.register_again(node));
        world.certify(1);
        world.pass(1500);
        assert!(!world.list(list).lost);
        if says {
            world.ask_live(list, 0);
        }
        world.pass(8000);
        assert_eq!(world.list(list).lost, !says);
    }
}

#[test]
fn a_decision_known_only_by_id_is_doubted_until_enough_holders_have_reported() {
    let mut world = World::started(plan(4, 2, 6, 0));
    let old = copy(&mut world);
    // One holder knows the id of a decision that was never sent, and the store is replaced by a copy from before it.
    world.slow_witnesses = (0..5).collect();
    world.certify(0);
    world.pass(1500);
    let heard = world.nodes[&5].heard[&ListId(0)];
    assert!(heard.0 > Epoch(1));
    reopen_with(&mut world, old);
    let mut registration = world::registration(5, world.incarnation(5));
    registration.installed = world.nodes[&5]
        .installed
        .iter()
        .map(|(l, (e, id))| (*l, *e, *id))
        .collect();
    registration.heard = vec![(ListId(0), heard.0, heard.1)];
    let message = ToCoordinator::Register(Box::new(registration));
    let link = world.connect();
    world.say(link, &message);
    let refused = world.received(link);
    assert!(
        matches!(refused[..], [ToAgent::Refused(Refusal::StoreIsBehind { .. })]),
        "{refused:?}"
    );
    let says = |world: &World| world.coordinator.status(world.now()).coordinator.join("; ");
    assert!(says(&world).contains("n5 know of decisions"), "{}", says(&world));
    assert_eq!(world.coordinator.status(world.now()).trouble.doubts, [NodeId(5)]);
    assert!(!is_behind(&world), "the newest store may not have that decision either");
    // Three of six holders do not know the id. So the decision was not sent, since four would know it.
    for node in [1, 2, 3] {
        let known = world.nodes.get_mut(&node).unwrap();
        known.heard.clear();
        world.register_again(node);
    }
    world.say(link, &message);
    let Some(ToAgent::Registered(registered)) = world.received(link).into_iter().find(|m| *m != ToAgent::Heard) else {
        panic!("not registered");
    };
    assert_eq!(registered.void, [ListId(0)]);
    assert!(!says(&world).contains("n5 know of decisions"));
    assert_eq!(world.coordinator.status(world.now()).trouble.doubts, []);
}

#[test]
fn a_coordinator_that_has_heard_enough_holders_continues_when_other_nodes_take_their_positions() {
    let mut world = World::started(plan(2, 2, 4, 1));
    world.reopen();
    for node in 0..3 {
        world.register_again(node);
    }
    // Its peers hear it, so it keeps its positions.
    world.cut_off(3);
    // A spare without history takes over from a node that had reported.
    world.start(4);
    world.certify(0);
    for _ in 0..40 {
        world.pass(300);
        assert_eq!(world.coordinator.obstacle(), None);
    }
    let held_by = |world: &World, node: u16| {
        let mut lists = world.coordinator.configurations();
        lists.any(|c| c.of_node(NodeId(node)).next().is_some())
    };
    assert!(held_by(&world, 4) && !held_by(&world, 0));
}

/// The operator's order `fence`. The answer says whether it is done, and what would be lost.
fn fence(world: &mut World, nodes: &[u16], confirmed: bool) -> Result<(bool, Vec<String>), String> {
    let link = world.connect();
    let nodes = nodes.iter().copied().map(NodeId).collect();
    let order = crate::message::Order::Fence { nodes };
    world.say(link, &ToCoordinator::Order { n: 7, order, confirmed });
    match world.received(link).pop() {
        Some(ToAgent::Said { answer, .. }) => answer,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_certified_end_in_an_old_store_does_not_excuse_the_node_from_registering() {
    for is_fenced in [false, true] {
        let mut world = World::started(plan(1, 1, 2, 0));
        world.certify(1);
        // By this copy the process has ended. It does not know the next one, which has a newer configuration.
        let old = copy(&mut world);
        world.start(1);
        world.pass(300);
        reopen_with(&mut world, old);
        let before: Vec<_> = world.coordinator.configurations().cloned().collect();
        assert!(world.nodes[&1].installed[&ListId(0)].0 > before[0].epoch);
        world.certify(0);
        world.tick(60_000);
        assert!(world.coordinator.configurations().eq(&before));
        let trouble = world.coordinator.status(world.now()).trouble;
        assert!(trouble.witnesses_missing.contains(&NodeId(1)), "{trouble:?}");
        if is_fenced {
            let would = fence(&mut world, &[0, 1], false).unwrap();
            assert!(
                !would.0 && would.1.iter().any(|line| line.contains("n1 is not waited for")),
                "{would:?}"
            );
            assert!(world.coordinator.obstacle().is_some(), "it is not confirmed");
            assert!(fence(&mut world, &[0, 1], true).unwrap().0);
            assert_eq!(world.coordinator.obstacle(), None);
        } else {
            let link = world.connect();
            let refused = world.offer(link, 1, world.incarnation(1));
            assert!(matches!(refused, Err(Refusal::StoreIsBehind { .. })), "{refused:?}");
            assert!(is_behind(&world));
        }
    }
}

#[test]
fn a_node_that_holds_nothing_is_heard_before_processes_without_memory_decide() {
    for comes in [true, false] {
        let mut world = World::started(plan(1, 0, 1, 1));
        world.start(1);
        let old = copy(&mut world);
        world.ask_live(0, 0);
        world.pass(300);
        reopen_with(&mut world, old);
        let before: Vec<_> = world.coordinator.configurations().cloned().collect();
        assert!(world.nodes[&1].installed[&ListId(0)].0 > before[0].epoch);
        // The only holder has ended, and its next process knows nothing.
        world.certify(0);
        world.start(0);
        world.tick(300);
        assert!(world.coordinator.configurations().eq(&before));
        // Nor does what this coordinator tells it make it one that knows.
        world.register_again(0);
        world.tick(300);
        assert!(world.coordinator.configurations().eq(&before));
        if comes {
            let link = world.connect();
            let refused = world.offer(link, 1, world.incarnation(1));
            assert!(matches!(refused, Err(Refusal::StoreIsBehind { .. })), "{refused:?}");
            world.tick(60_000);
            assert!(world.coordinator.configurations().eq(&before));
        } else {
            // It is silent, and may have what was decided after the copy was made.
            world.kill(1);
            let other = Incarnation(1 << 40);
            for _ in 0..10 {
                world.pass(60_000);
                assert!(world.coordinator.configurations().eq(&before), "there is no time limit");
                // Another process of the node knows nothing of it.
                let link = world.connect();
                assert_eq!(world.offer(link, 1, other).unwrap_err(), Refusal::Running);
            }
            let trouble = world.coordinator.status(world.now()).trouble;
            assert_eq!(trouble.witnesses_missing, [NodeId(1)]);
            assert!(fence(&mut world, &[1], true).unwrap().0);
            world.pass(60_000);
            assert!(
                !world.coordinator.configurations().eq(&before),
                "an operator excuses it"
            );
        }
    }
}
