//! Tests of an operator's orders: the answer says which data would be lost. Without confirmation nothing is done
//! (P10.17).

use super::world::registration;
use super::*;
use crate::message::{Order, Settings};
use crate::plan::LostPolicy;
use crate::status::Verdict;

/// Gives an order. Returns whether it is done, with remarks, or why it is refused.
fn give(world: &mut World, order: Order, confirmed: bool) -> Result<(bool, Vec<String>), String> {
    let link = world.connect();
    world.say(link, &ToCoordinator::Order { n: 7, order, confirmed });
    match world.received(link).pop() {
        Some(ToAgent::Said { n: 7, answer }) => answer,
        other => panic!("{other:?}"),
    }
}

fn fence(nodes: &[u16]) -> Order {
    let nodes = nodes.iter().map(|node| NodeId(*node)).collect();
    Order::Fence { nodes }
}

fn configurations(world: &World) -> Vec<Configuration> {
    world.coordinator.configurations().cloned().collect()
}

fn lost(world: &World) -> Vec<ListId> {
    world.coordinator.status(world.now()).trouble.lost
}

/// Kills and certifies three nodes, so that list 0 is lost.
fn lose(world: &mut World) {
    for node in 0..3 {
        world.certify(node);
    }
    world.pass(300);
    assert!(lost(world).contains(&ListId(0)));
}

#[test]
fn a_stranger_gives_no_order_and_ends_no_process() {
    let mut world = World::started(plan(2, 1, 4, 0));
    world.kill(3);
    world.pass(5000);
    let link = world.connect();
    for confirmed in [false, true] {
        let order = fence(&[3]);
        world.say_by(link, Speaker::Guest, &ToCoordinator::Order { n: 7, order, confirmed });
        let answer = world.received(link).pop();
        let Some(ToAgent::Said { answer: Err(why), .. }) = answer else {
            panic!("{answer:?}");
        };
        assert!(why.contains("own machine") && why.contains("--secret-file"), "{why}");
    }
    let node = NodeId(1);
    let duty = Duty::Draining;
    world.say_by(link, Speaker::Guest, &ToCoordinator::SetDuty { n: 8, node, duty });
    let answer = world.received(link).pop();
    assert!(
        matches!(answer, Some(ToAgent::Ordered { n: 8, refused: Some(_) })),
        "{answer:?}"
    );
    assert!(!world.coordinator.records.nodes[&NodeId(3)].has_ended());

    // What ended three nodes that lived: each of these by somebody else than a supervisor, or a process of the node.
    let incarnation = world.coordinator.records.nodes[&node].record.incarnation;
    for by in [
        Speaker::Guest,
        Speaker::Operator,
        Speaker::Node(NodeId(2), Incarnation(9)),
        Speaker::Node(node, Incarnation(9)),
    ] {
        let is_of_node = matches!(by, Speaker::Node(of, _) if of == node);
        let ended = (!is_of_node).then_some(ToCoordinator::Exited { node, incarnation });
        for message in ended
            .into_iter()
            .chain([ToCoordinator::Supervise { node, incarnation }])
        {
            let link = world.connect();
            world.say_by(link, by, &message);
            assert_eq!(world.received(link), [], "{by}: {message:?}");
            assert_eq!(world.closed.pop(), Some(link), "{by}: {message:?}");
        }
    }
    world.pass(5000);
    assert!(!world.coordinator.records.nodes[&node].has_ended());
}

#[test]
fn a_process_registers_as_nobody_but_itself() {
    let mut world = World::started(plan(2, 1, 4, 0));
    let link = world.connect();
    let other = Speaker::Node(NodeId(0), Incarnation(77));
    let message = ToCoordinator::Register(Box::new(registration(3, Incarnation(77))));
    world.say_by(link, other, &message);
    assert_eq!((world.received(link), world.closed.pop()), (vec![], Some(link)));
}

#[test]
fn lost_lists_begin_again_only_after_a_confirmed_order() {
    let mut world = World::started(plan(2, 1, 3, 0));
    let none = give(&mut world, Order::ResetLists { lists: vec![] }, true);
    assert!(none.unwrap_err().contains("no list is lost"));
    lose(&mut world);
    (0..3).for_each(|node| world.start(node));
    world.pass(20_000);
    let before = configurations(&world);
    assert!(before.iter().all(|c| c.lost));
    let (done, words) = give(&mut world, Order::ResetLists { lists: vec![] }, false).unwrap();
    assert!(
        !done && words[0].contains("list 0: of its 2 data positions"),
        "{words:?}"
    );
    world.pass(20_000);
    assert_eq!(configurations(&world), before, "the order was not confirmed");
    let lists = vec![ListId(0)];
    let (done, _) = give(&mut world, Order::ResetLists { lists }, true).unwrap();
    world.pass(1000);
    assert!(
        done && !world.list(0).lost && world.list(1).lost,
        "only the list that was named begins again"
    );
    let list = world.list(0);
    assert_eq!(list.born, list.epoch);
    assert!(list.positions.iter().flatten().all(|a| a.state == PositionState::Born));
    // An order is done once. A list that is lost again stays lost.
    assert!(world.coordinator.orders.resets().is_empty());
    let wrong = give(&mut world, Order::ResetLists { lists: vec![ListId(0)] }, true).unwrap_err();
    assert!(wrong.contains("list 0 is not lost"), "{wrong}");
}

#[test]
fn a_reset_waits_for_a_node_for_each_position_and_reports_it() {
    let mut world = World::started(plan(2, 1, 3, 0)).without_stand_ins();
    lose(&mut world);
    (0..2).for_each(|node| world.start(node));
    world.pass(20_000);
    give(&mut world, Order::ResetLists { lists: vec![] }, true).unwrap();
    world.pass(5000);
    assert!(world.list(0).lost, "there is no node for one position");
    let words = world.coordinator.status(world.now()).coordinator.join("; ");
    assert!(words.contains("as ordered"), "{words}");
    world.start(2);
    world.pass(1000);
    assert!(lost(&world).is_empty(), "{:?}", lost(&world));
}

#[test]
fn a_node_counts_as_ended_once_an_operator_attests_it() {
    // Two of four nodes are silent, which is too many to decide by silence.
    let mut world = World::started(plan(2, 2, 4, 0));
    world.kill(2);
    world.kill(3);
    world.tick(5000);
    world.pass(20_000);
    let incarnation = world.incarnation(3);
    let before = configurations(&world);
    let (done, words) = give(&mut world, fence(&[3]), false).unwrap();
    assert!(
        !done && words.iter().any(|line| line.contains("no list is lost")),
        "{words:?}"
    );
    assert_eq!(configurations(&world), before, "the order was not confirmed");
    assert!(!world.coordinator.records.nodes[&NodeId(3)].has_ended());
    let (done, _) = give(&mut world, fence(&[3]), true).unwrap();
    assert!(done);
    for list in world.coordinator.configurations() {
        assert!(list.held_by(NodeId(3), incarnation).next().is_none(), "{list:?}");
        // P5.5: the next owner must wait for its leases.
        assert!(!list.is_gone(NodeId(3), incarnation), "{list:?}");
    }
    assert!(world.is_over(3), "that incarnation may not register again");
    world.start(3);
    world.pass(1000);
    assert!(!world.is_over(3), "the next incarnation may register");
}

#[test]
fn a_node_that_runs_is_not_fenced() {
    let mut world = World::started(plan(2, 1, 4, 0));
    world.pass(1000);
    let refused = give(&mut world, fence(&[3]), true).unwrap_err();
    assert!(refused.contains("n3 runs") && refused.contains("drain 3"), "{refused}");
    let unknown = give(&mut world, fence(&[9]), true).unwrap_err();
    assert!(unknown.contains("never registered"), "{unknown}");
    world.kill(3);
    world.pass(2000);
    let mixed = give(&mut world, fence(&[3, 2]), true).unwrap_err();
    assert!(mixed.contains("n2 runs"), "{mixed}");
    assert!(
        !world.coordinator.records.nodes[&NodeId(3)].has_ended(),
        "either all nodes of an order are fenced or none"
    );
}

#[test]
fn a_fence_reports_lost_lists_before_it_is_confirmed() {
    let mut world = World::started(plan(2, 1, 3, 0)).without_stand_ins();
    world.kill(1);
    world.kill(2);
    world.pass(20_000);
    assert!(lost(&world).is_empty(), "silence alone loses no list");
    let (_, words) = give(&mut world, fence(&[1, 2]), false).unwrap();
    assert!(words.iter().any(|line| line.contains("would be lost")), "{words:?}");
    assert!(lost(&world).is_empty());
    give(&mut world, fence(&[1, 2]), true).unwrap();
    assert!(!lost(&world).is_empty());
}

#[test]
fn an_attested_end_becomes_certified_by_its_supervisor() {
    let mut world = World::started(plan(2, 1, 4, 0));
    world.kill(3);
    let incarnation = world.incarnation(3);
    world.pass(2000);
    give(&mut world, fence(&[3]), true).unwrap();
    world.certify(3);
    assert_eq!(world.coordinator.records.nodes[&NodeId(3)].end, End::Certified);
    assert!(
        world
            .coordinator
            .configurations()
            .any(|c| c.is_gone(NodeId(3), incarnation))
    );
}

#[test]
fn a_fresh_coordinator_accepts_no_fence_before_every_running_process_has_registered() {
    let mut world = World::started(plan(4, 2, 12, 0));
    world.kill(10);
    world.reopen();
    for node in 0..10 {
        world.register_again(node);
    }
    world.pass(1500);
    let early = give(&mut world, fence(&[10]), true).unwrap_err();
    assert!(
        early.contains("may run: wait") && early.contains("registers by then"),
        "{early}"
    );
    world.pass(6000);
    // Silence while the coordinator was paused does not count.
    world.sleep(600);
    let early = give(&mut world, fence(&[10]), true).unwrap_err();
    assert!(early.contains("may run: wait"), "{early}");
    world.pass(6000);
    let (done, _) = give(&mut world, fence(&[10]), true).unwrap();
    assert!(done);
}

#[test]
fn a_node_that_its_peers_hear_is_not_fenced() {
    let mut world = World::started(plan(4, 2, 6, 0)).without_stand_ins();
    world.pass(300);
    world.cut_off(3);
    world.pass(10_000);
    let refused = give(&mut world, fence(&[3]), true).unwrap_err();
    assert!(
        refused.contains("runs: its peers") && refused.contains("hear it"),
        "{refused}"
    );
}

#[test]
fn a_fence_whose_commit_failed_is_not_done_later() {
    let mut world = World::started(plan(2, 1, 4, 0));
    world.kill(3);
    world.pass(3000);
    world.coordinator.store_mut().fail_commits(1);
    let failed = give(&mut world, fence(&[3]), true).unwrap_err();
    assert!(failed.contains("not done, the store failed"), "{failed}");
    assert!(world.coordinator.orders.attested().is_empty());
    world.pass(3000);
    assert!(!world.coordinator.records.nodes[&NodeId(3)].has_ended());
    world.register_again(3);
    world.pass(1000);
    assert!(!world.is_over(3));
}

#[test]
fn an_order_is_withdrawn_when_its_link_closes() {
    let mut world = World::started(plan(2, 1, 4, 0));
    world.kill(3);
    world.pass(3000);
    // The outcome of a commit is unknown. The order waits until the store has been read again.
    world.coordinator.unsure = true;
    world.slow_witnesses = (0..4).collect();
    let link = world.connect();
    let order = |order| ToCoordinator::Order {
        n: 7,
        order,
        confirmed: true,
    };
    world.say(link, &order(fence(&[3])));
    assert!(!world.coordinator.orders.attested().is_empty());
    world.event(CoordinatorEvent::Disconnected { link });
    world.pass(1000);
    assert!(!world.coordinator.records.nodes[&NodeId(3)].has_ended());
}

#[test]
fn an_incarnation_that_is_heard_before_the_commit_has_not_ended() {
    let mut world = World::started(plan(2, 1, 4, 0));
    world.kill(3);
    world.pass(3000);
    world.coordinator.unsure = true;
    world.slow_witnesses = (0..4).collect();
    let link = world.connect();
    let order = fence(&[3]);
    let confirmed = true;
    world.say(link, &ToCoordinator::Order { n: 7, order, confirmed });
    world.coordinator.next_tick = world.now() + Span::from_secs(10);
    world.register_again(3);
    world.pass(1000);
    let Some(ToAgent::Said { answer: Err(why), .. }) = world.received(link).pop() else {
        panic!("not refused");
    };
    assert!(why.contains("heard meanwhile"), "{why}");
    assert!(!world.is_over(3));
}

#[test]
fn settings_are_sent_after_a_commit_with_a_lost_answer() {
    let mut world = World::started(plan(2, 1, 4, 0));
    world.coordinator.store_mut().lose_answers(1);
    let order = Order::Set(Settings {
        suspicion_ms: Some(2500),
        lost_policy: None,
    });
    let unknown = give(&mut world, order, true).unwrap_err();
    assert!(unknown.contains("not known"), "{unknown}");
    (0..4).for_each(|node| drop(world.received_by(node)));
    world.pass(1000);
    for node in 0..4 {
        let told = world.received_by(node);
        let cluster = |m: &ToAgent| matches!(m, ToAgent::Cluster(c) if c.suspicion_ms == 2500);
        assert!(told.iter().any(cluster), "{told:?}");
    }
}

#[test]
fn settings_change_at_once_and_persist() {
    let mut world = World::started(plan(2, 1, 4, 0));
    let set = |suspicion_ms, lost_policy| {
        Order::Set(Settings {
            suspicion_ms,
            lost_policy,
        })
    };
    let (_, words) = give(&mut world, set(None, None), false).unwrap();
    assert_eq!(words[..2], ["suspicion_ms=1000", "lost_policy=stop"]);
    assert!(words[2].contains("4000 ms"), "twice the lease: {words:?}");
    for (ms, says) in [(0, "more than 0"), (300, "at least 500"), (3_600_000, "at most 600000")] {
        let refused = give(&mut world, set(Some(ms), None), true).unwrap_err();
        assert!(
            refused.contains(says) && refused.contains("Nothing is changed"),
            "{refused}"
        );
    }
    assert_eq!(world.coordinator.cluster().suspicion_ms, 1000);
    (0..4).for_each(|node| drop(world.received_by(node)));
    let (done, words) = give(&mut world, set(Some(2500), Some(LostPolicy::Reset)), false).unwrap();
    assert!(done, "the change loses no data, so it needs no confirmation");
    assert_eq!(words[..2], ["suspicion_ms=2500", "lost_policy=reset"]);
    assert!(words[2].contains("5000 ms"), "{words:?}");
    for node in 0..4 {
        let told = world.received_by(node);
        let cluster = |m: &ToAgent| matches!(m, ToAgent::Cluster(c) if c.suspicion_ms == 2500);
        assert!(told.iter().any(cluster), "{told:?}");
    }
    // The plan of the next start has the settings with which the cluster was made.
    world.reopen();
    assert_eq!(world.coordinator.cluster().suspicion_ms, 2500);
    assert_eq!(world.coordinator.plan().lost_policy, LostPolicy::Reset);
}

#[test]
fn the_policy_reset_needs_confirmation_while_lists_are_lost() {
    let mut world = World::started(plan(2, 1, 3, 0));
    lose(&mut world);
    (0..3).for_each(|node| world.start(node));
    world.pass(20_000);
    let reset = || {
        Order::Set(Settings {
            lost_policy: Some(LostPolicy::Reset),
            ..Settings::default()
        })
    };
    let (done, words) = give(&mut world, reset(), false).unwrap();
    assert!(!done && words[0].contains("list 0"), "{words:?}");
    world.pass(5000);
    assert!(!lost(&world).is_empty());
    give(&mut world, reset(), true).unwrap();
    world.pass(1000);
    assert!(lost(&world).is_empty());
}

#[test]
fn status_reports_which_peers_hear_a_silent_node_and_what_to_do() {
    let mut world = World::started(plan(4, 2, 6, 0)).without_stand_ins();
    world.pass(300);
    world.kill(3);
    world.pass(10_000);
    let status = world.coordinator.status(world.now());
    let silent = &status.trouble.silent[0];
    assert_eq!((silent.node, silent.verdict), (NodeId(3), Verdict::Suspect));
    assert!(silent.heard_by.is_empty() && silent.unheard_by.len() == 5, "{silent:?}");
    let words = status.coordinator.join("; ");
    assert!(
        words.contains("paritas fence 3") && words.contains("does not hear n3"),
        "{words}"
    );
}
