//! Processes that are asked to end (P10.20), and ends that processes of the same node certify (P10.4).

use super::world::{World, plan};
use super::*;

impl World {
    /// A node asks whether it may end. What it has to wait for.
    fn ask_to_leave(&mut self, node: u16) -> Option<String> {
        drop(self.received_by(node));
        let nonce = self.nodes[&node].nonce;
        self.say_as(node, &ToCoordinator::Leave { nonce });
        match self.received_by(node).pop() {
            Some(ToAgent::MayLeave { refused }) => refused,
            other => panic!("{other:?}"),
        }
    }

    /// It asks with each heartbeat.
    fn leave(&mut self, node: u16) -> Option<String> {
        drop(self.ask_to_leave(node));
        self.pass(200);
        self.ask_to_leave(node)
    }

    /// The process says that it has ended, or that one before it has.
    fn say_ended(&mut self, node: u16, by: Incarnation, ended: Incarnation) -> Vec<ToAgent> {
        let link = self.connect();
        let exited = ToCoordinator::Exited {
            node: NodeId(node),
            incarnation: ended,
        };
        self.say_by(link, Speaker::Node(NodeId(node), by), &exited);
        self.received(link)
    }

    fn noted(node: u16, incarnation: Incarnation) -> ToAgent {
        let node = NodeId(node);
        ToAgent::ExitNoted { node, incarnation }
    }
}

#[test]
fn a_node_of_a_whole_cluster_may_end_once_all_others_have_proven_that_they_run() {
    let mut world = World::started(plan(2, 1, 3, 0));
    world.rebuild();
    let why = world.ask_to_leave(0).expect("nobody was heard after the question");
    assert!(why.contains("has not proven yet that it runs"), "{why}");
    world.pass(200);
    assert_eq!(world.ask_to_leave(0), None);
    assert!(world.notes.contains(&Note::MayLeave { node: NodeId(0) }));
}

#[test]
fn a_node_that_the_lists_need_may_not_end_until_they_are_whole_again() {
    let mut world = World::started(plan(2, 1, 3, 0)).without_stand_ins();
    world.rebuild();
    world.certify(1);
    world.pass(200);
    let why = world.leave(0).expect("n1 has ended");
    assert!(why.contains("list 0 is not whole"), "{why}");
    world.restart(1);
    world.pass(200);
    world.leave(0).expect("n1 has no data yet");
    world.rebuild();
    assert_eq!(world.leave(0), None);
}

#[test]
fn a_holder_that_died_just_before_the_question_is_not_counted_on() {
    let mut world = World::started(plan(2, 1, 3, 0));
    world.rebuild();
    world.pass(200);
    world.kill(1);
    world.leave(0).expect("n1 is not silent yet, and has not been heard");
    // Nor if it dies while the node waits for another reason.
    let mut world = World::started(plan(2, 1, 3, 0)).without_stand_ins();
    world.rebuild();
    world.certify(2);
    for _ in 0..10 {
        world.pass(200);
        world.ask_to_leave(0).expect("n2 has ended");
    }
    world.restart(2);
    world.rebuild();
    world.kill(1);
    world
        .ask_to_leave(0)
        .expect("n1 was heard only before the lists were whole");
    world.pass(200);
    world
        .ask_to_leave(0)
        .expect("n1 was heard only before the lists were whole");
}

#[test]
fn a_heartbeat_that_the_network_held_up_does_not_prove_that_its_sender_runs() {
    let mut world = World::started(plan(2, 1, 3, 0));
    world.rebuild();
    world.kill(1);
    world.ask_to_leave(0).expect("nobody has proven that it runs");
    world.pass(200);
    world.beat(1);
    let why = world.ask_to_leave(0).expect("n1 died before the question");
    assert!(why.contains("n1 has not proven"), "{why}");
}

#[test]
fn a_node_that_may_end_counts_as_missing_for_the_next_one_until_it_has_ended_and_is_back() {
    let mut world = World::started(plan(2, 1, 3, 0));
    world.rebuild();
    assert_eq!(world.leave(0), None);
    let why = world.leave(1).expect("n0 may end at any moment");
    assert!(why.contains("at n0"), "{why}");
    // What was said is not taken back, and each question is worked out anew.
    assert_eq!(world.leave(0), None);
    world.kill(2);
    world.pass(1_200);
    world.leave(0).expect("n2 is silent by now");
    world.leave(1).expect("n0 may have heard the first answer");
}

#[test]
fn with_two_parities_too_a_node_waits_until_the_one_before_is_rebuilt() {
    let mut world = World::started(plan(2, 2, 4, 0)).without_stand_ins();
    world.rebuild();
    assert_eq!(world.leave(0), None);
    let why = world.leave(1).expect("n0 may end at any moment");
    assert!(why.contains("at n0"), "{why}");
    world.certify(0);
    world.restart(0);
    world.leave(1).expect("n0 has no data yet");
    world.rebuild();
    assert_eq!(world.leave(1), None);
}

/// A cluster `2+1` with a spare. One of its nodes may end at any moment.
fn with_a_leaver() -> World {
    let mut plan = plan(2, 1, 3, 1);
    plan.min_redundancy = 0;
    let mut world = World::started(plan);
    world.start(3);
    world.rebuild();
    assert_eq!(world.leave(0), None);
    world
}

fn holders_of(world: &World) -> Vec<Option<u16>> {
    (0..3).map(|position| world.holder(0, position)).collect()
}

#[test]
fn a_silent_node_keeps_its_positions_while_another_may_end() {
    let mut world = with_a_leaver();
    let before = holders_of(&world);
    world.kill(1);
    world.pass(5_000);
    assert_eq!(holders_of(&world), before, "without both the list cannot be rebuilt");
    // The other has ended, and does not come back within `restart_wait_ms`.
    world.certify(0);
    world.pass(1_000);
    let replaced = |holder: &Option<u16>| if *holder == Some(0) { Some(3) } else { *holder };
    assert_eq!(holders_of(&world), before.iter().map(replaced).collect::<Vec<_>>());
}

#[test]
fn no_position_is_moved_by_plan_while_another_may_end() {
    let mut world = with_a_leaver();
    let before = holders_of(&world);
    assert_eq!(world.set_duty(1, Duty::Shunned), None);
    world.drain();
    world.pass(2_000);
    world.drain();
    world.pass(2_000);
    assert_eq!(holders_of(&world), before);
}

#[test]
fn without_parity_a_node_need_not_wait() {
    let mut world = World::started(plan(2, 0, 2, 0));
    assert_eq!(world.ask_to_leave(0), None);
}

#[test]
fn a_coordinator_that_another_has_replaced_permits_nothing() {
    let mut world = World::started(plan(2, 1, 3, 0));
    world.rebuild();
    world.ask_to_leave(0);
    world.pass(200);
    let mut store = world.coordinator.store_mut().clone();
    let next = Coordinator::open(store.clone(), &world.plan, 9).unwrap();
    store = next.into_store();
    *world.coordinator.store_mut() = store;
    let why = world.ask_to_leave(0).unwrap();
    assert!(why.contains("another coordinator has replaced it"), "{why}");
}

#[test]
fn the_next_process_of_a_node_certifies_the_end_of_the_one_before_and_takes_its_place_at_once() {
    let mut world = World::started(plan(2, 1, 3, 0));
    world.rebuild();
    let before = world.incarnation(0);
    world.kill(0);
    let next = Incarnation(77);
    assert_eq!(world.say_ended(0, next, before), [World::noted(0, before)]);
    assert!(world.is_over(0));
    let link = world.connect();
    let offered = world.offer(link, 0, next).expect("the end of the one before is known");
    assert!(
        offered
            .configurations
            .iter()
            .all(|c| c.held_by(NodeId(0), next).next().is_none())
    );
}

#[test]
fn the_end_of_a_process_that_nobody_knows_proves_nothing() {
    let mut world = World::started(plan(2, 1, 3, 0));
    let epoch = world.list(0).epoch;
    for unknown in 500..600 {
        let ended = Incarnation(unknown);
        assert_eq!(world.say_ended(0, Incarnation(77), ended), [World::noted(0, ended)]);
    }
    assert!(!world.is_over(0) && world.list(0).epoch == epoch);
    assert!(!world.notes.iter().any(|note| matches!(note, Note::Ended { .. })));
}

#[test]
fn an_end_is_noted_when_it_is_committed_and_not_before() {
    let mut world = World::started(plan(2, 1, 3, 0));
    world.rebuild();
    let before = world.incarnation(0);
    world.kill(0);
    world.coordinator.store_mut().fail_commits(1);
    let link = world.connect();
    let exited = ToCoordinator::Exited {
        node: NodeId(0),
        incarnation: before,
    };
    let by = Speaker::Node(NodeId(0), Incarnation(77));
    world.say_by(link, by, &exited);
    assert!(
        world.received(link).is_empty(),
        "a coordinator that ends now has forgotten it"
    );
    world.pass(1_000);
    assert_eq!(world.received(link), [World::noted(0, before)]);
}
