//! Tests of lost lists: when a list is marked lost, and when it begins again empty (P10.6).

use super::rules::list_where;
use super::*;
use crate::message::Order;

#[test]
fn more_halted_roles_than_the_scheme_covers_are_a_lost_list() {
    let mut world = World::started(plan(4, 2, 6, 3));
    (6..9).for_each(|node| world.start(node));
    for position in 0..3 {
        world.halt(0, position);
    }
    assert!(world.list(0).lost);
}

#[test]
fn crashes_beyond_the_scheme_mark_the_list_lost_and_keep_the_survivors() {
    let mut world = World::started(plan(4, 2, 6, 1));
    world.start(6);
    let before = world.list(0);
    (0..3).for_each(|n| world.certify(n));
    let now = world.list(0);
    assert!(now.lost && world.notes.contains(&Note::Lost { list: ListId(0) }));
    for position in 0..6 {
        let held = before.tenure(Position(position)).unwrap();
        let left = now.tenure(Position(position));
        assert_eq!(left, (held.node.0 > 2).then_some(held));
    }
    world.pass(2000);
    (0..3).for_each(|n| world.restart(n));
    assert_eq!(
        world.list(0).positions,
        now.positions,
        "with the policy stop the list does not change"
    );
}

#[test]
fn by_policy_a_lost_list_begins_again_empty_once_every_position_has_a_node() {
    let mut plan = plan(4, 2, 6, 0);
    plan.lost_policy = LostPolicy::Reset;
    let mut world = World::started(plan);
    (0..3).for_each(|n| world.certify(n));
    assert!(world.list(0).lost, "three nodes cannot hold six positions");
    (0..2).for_each(|n| world.restart(n));
    world.pass(600);
    assert!(world.list(0).lost);
    let before = world.list(0);
    world.restart(2);
    let now = world.list(0);
    assert!(!now.lost && now.born == now.epoch && now.epoch > before.epoch);
    for held in &now.positions {
        let held = held.expect("every position has a node");
        assert_eq!((held.tenure.since, held.state), (now.born, PositionState::Born));
    }
    assert!(world.notes.contains(&Note::Reset { list: ListId(0) }));
    assert!(world.coordinator.status(world.now()).lists[0].reset);
}

#[test]
fn a_lost_list_does_not_begin_again_while_an_earlier_owner_may_still_serve() {
    let mut plan = plan(1, 1, 2, 0);
    plan.lost_policy = LostPolicy::Reset;
    let mut world = World::started(plan);
    let list = list_where(&world, 0, 0);
    // The end of the owner's incarnation is not certified: its lease may still be in force.
    world.attest(&[0, 1]);
    (0..2).for_each(|node| world.start(node));
    assert!(world.list(list).lost);
    world.pass(2_000);
    assert!(world.list(list).lost);
    world.pass(4_000);
    assert!(!world.list(list).lost);
}

/// Asserts that all lists are lost, and begin again only when leases have ended, although every position has a node
/// before that.
fn assert_waits_for_leases(world: &mut World) {
    let lost = |world: &World| world.coordinator.configurations().filter(|c| c.lost).count();
    let lists = world.coordinator.configurations().count();
    assert_eq!(lost(world), lists, "an earlier owner may still serve");
    world.pass(2_000);
    assert_eq!(lost(world), lists, "its lease may still be in force");
    world.pass(4_000);
    assert_eq!(lost(world), 0);
}

fn with_reset_policy(data: u8, parity: u8, nodes: u16, spares: u16) -> World {
    let mut plan = plan(data, parity, nodes, spares);
    plan.lost_policy = LostPolicy::Reset;
    World::started(plan)
}

#[test]
fn a_lost_list_waits_for_an_owner_that_is_only_silent() {
    let mut world = with_reset_policy(2, 1, 3, 3);
    world.certify(0);
    world.certify(1);
    world.kill(2);
    world.pass(1_500);
    (3..6).for_each(|node| world.start(node));
    // Only the silent node could know of a decision that the store does not have.
    world.pass(8_000);
    let lost = |c: &&Configuration| !c.lost;
    assert_eq!(world.coordinator.configurations().find(lost), None);
    let link = world.connect();
    let order = Order::Fence { nodes: vec![NodeId(2)] };
    let confirmed = true;
    world.say(link, &ToCoordinator::Order { n: 7, order, confirmed });
    assert_waits_for_leases(&mut world);
}

#[test]
fn a_lost_list_waits_for_owners_that_the_same_commit_removes() {
    let mut world = with_reset_policy(2, 1, 3, 1);
    world.start(3);
    world.certify(0);
    world.attest(&[1]);
    world.start(1);
    assert_waits_for_leases(&mut world);
}

#[test]
fn a_lost_list_waits_for_owners_that_the_previous_coordinator_removed() {
    let mut world = with_reset_policy(1, 1, 2, 0);
    world.attest(&[0, 1]);
    (0..2).for_each(|node| world.start(node));
    world.reopen();
    (0..2).for_each(|node| world.register_again(node));
    world.pass(200);
    assert_waits_for_leases(&mut world);
}

#[test]
fn a_lost_list_waits_for_owners_removed_by_a_commit_whose_outcome_was_unknown() {
    let mut world = with_reset_policy(2, 1, 3, 1);
    world.start(3);
    world.certify(0);
    world.kill(1);
    world.pass(3_000);
    world.coordinator.store_mut().lose_answers(1);
    world.attest(&[1]);
    world.start(1);
    world.pass(600);
    assert_waits_for_leases(&mut world);
}

#[test]
fn a_lost_list_does_not_wait_for_owners_whose_ends_are_certified() {
    let mut world = with_reset_policy(2, 1, 3, 1);
    world.start(3);
    world.certify(0);
    world.certify(1);
    world.restart(1);
    assert!(world.coordinator.configurations().all(|c| !c.lost && c.born == c.epoch));

    // The same if the certificates arrive after the removal.
    let mut world = with_reset_policy(1, 1, 2, 0);
    let incarnations = [0, 1].map(|node| (NodeId(node), world.incarnation(node)));
    world.attest(&[0, 1]);
    (0..2).for_each(|node| world.start(node));
    assert!(world.coordinator.configurations().all(|c| c.lost));
    for (node, incarnation) in incarnations {
        world.say(world.supervisor, &ToCoordinator::Exited { node, incarnation });
    }
    assert!(world.coordinator.configurations().all(|c| !c.lost));
}

#[test]
fn data_and_all_parity_crashed_is_lost_even_within_m() {
    let mut world = World::started(plan(2, 2, 4, 0));
    let list = world.list(0);
    let node = |p| list.tenure(Position(p)).unwrap().node.0;
    world.certify(node(2));
    world.certify(node(3));
    assert!(!world.list(0).lost, "no data is missing");
    world.rebuild();
    let other = world.list(0);
    assert!(!other.lost);
    world.certify(node(0));
    assert!(world.list(0).lost);
}

#[test]
fn without_parity_a_dead_owner_s_stream_begins_again_empty() {
    let mut world = World::started(plan(1, 0, 2, 0));
    world.certify(1);
    let list = list_where(&world, 1, 0);
    world.restart(1);
    let now = world.list(list);
    let held = now.at(Position(0)).unwrap();
    assert_eq!(
        (held.state, now.born, held.tenure.since),
        (PositionState::Born, now.epoch, now.epoch)
    );
    assert!(now.is_born(&held.tenure) && !now.lost);
    assert!(world.notes.contains(&Note::Reset { list: ListId(list) }));
}

#[test]
fn without_parity_other_positions_keep_their_tenures() {
    let mut world = World::started(plan(3, 0, 3, 0));
    let before = world.list(0);
    world.restart(0);
    let now = world.list(0);
    for position in 0..3 {
        let same = now.tenure(Position(position)) == before.tenure(Position(position));
        assert_eq!(same, before.tenure(Position(position)).unwrap().node != NodeId(0));
    }
}
