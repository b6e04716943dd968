//! Tests of the rules for ends, halted roles, successors and Live positions (P10.2 to P10.7).

use super::*;
use crate::plan::PlannedNode;

pub(super) fn state(world: &World, list: u16, position: u8) -> Option<PositionState> {
    world.list(list).at(Position(position)).map(|a| a.state)
}

/// A list of the world in which `node` has the position.
pub(super) fn list_where(world: &World, node: u16, position: u8) -> u16 {
    let lists = world.coordinator.configurations().count() as u16;
    (0..lists).find(|l| world.holder(*l, position) == Some(node)).unwrap()
}

#[test]
fn after_a_certificate_the_next_incarnation_succeeds_in_one_commit() {
    let mut world = World::started(plan(4, 2, 6, 1));
    world.start(6);
    let list = list_where(&world, 2, 0);
    let (old, before) = (world.incarnation(2), world.list(list).epoch.0);
    world.certify(2);
    assert_eq!(
        world.holder(list, 0),
        Some(2),
        "the data position must not be vacated first"
    );
    world.pass(40);
    world.restart(2);
    let now = world.list(list);
    assert_eq!(now.epoch.0, before + 1);
    let held = now.at(Position(0)).unwrap();
    assert_eq!(
        (held.tenure.node, held.tenure.incarnation),
        (NodeId(2), world.incarnation(2))
    );
    assert_eq!((held.tenure.since, held.state), (now.epoch, PositionState::Filling));
    assert!(now.is_gone(NodeId(2), old));
}

#[test]
fn after_a_certificate_a_parity_position_is_vacated_at_once_if_enough_remain() {
    let mut world = World::started(plan(4, 2, 6, 1));
    world.start(6);
    let list = list_where(&world, 2, 5);
    let old = world.incarnation(2);
    world.certify(2);
    assert_eq!(
        world.holder(list, 5),
        None,
        "the parity must be vacant so that writes continue"
    );
    assert!(world.list(list).is_gone(NodeId(2), old));
    world.restart(2);
    assert_eq!(
        world.holder(list, 5),
        Some(2),
        "the position is reserved for the next incarnation, not given to the spare"
    );
    assert_eq!(state(&world, list, 5), Some(PositionState::Filling));
}

#[test]
fn the_last_live_parity_keeps_its_position_while_its_next_incarnation_is_awaited() {
    let mut world = World::started(plan(2, 1, 3, 0));
    let list = list_where(&world, 0, 2);
    let before = world.list(list).epoch.0;
    world.certify(0);
    assert_eq!(
        world.list(list).epoch.0,
        before,
        "the holder stays, so that writes wait instead of being refused"
    );
    world.restart(0);
    assert_eq!(world.list(list).epoch.0, before + 1);
}

#[test]
fn after_the_restart_wait_a_spare_succeeds() {
    let mut world = World::started(plan(4, 2, 6, 1));
    world.start(6);
    world.certify(2);
    world.pass(600);
    for list in 0..6 {
        let nodes: Vec<_> = (0..6).map(|p| world.holder(list, p)).collect();
        assert!(nodes.contains(&Some(6)) && !nodes.contains(&Some(2)), "{nodes:?}");
    }
}

#[test]
fn after_the_restart_wait_and_without_a_spare_the_position_is_vacant_until_a_node_registers() {
    let mut world = World::started(plan(4, 2, 6, 0)).without_stand_ins();
    let list = list_where(&world, 2, 0);
    world.certify(2);
    world.pass(600);
    assert_eq!(world.holder(list, 0), None);
    let report = world.coordinator.status(world.now());
    assert!(report.lists[usize::from(list)].reason.contains("waits for a node"));
    world.restart(2);
    assert_eq!(world.holder(list, 0), Some(2));
}

#[test]
fn a_node_whose_positions_were_given_away_becomes_a_spare() {
    let mut world = World::started(plan(4, 2, 6, 1));
    world.start(6);
    world.certify(2);
    world.pass(600);
    world.restart(2);
    let role = |world: &World, id| world.coordinator.nodes().find(|n| n.id == NodeId(id)).unwrap().role;
    assert_eq!((role(&world, 2), role(&world, 6)), (NodeRole::Spare, NodeRole::Member));
    world.rebuild();
    world.certify(6);
    world.pass(600);
    assert_eq!(role(&world, 2), NodeRole::Member, "it replaces the next node that ends");
}

#[test]
fn a_halted_role_is_replaced_at_once_and_its_node_keeps_its_other_positions() {
    let mut world = World::started(plan(4, 2, 6, 1));
    world.start(6);
    let list = list_where(&world, 2, 0);
    let old = world.incarnation(2);
    world.halt(list, 0);
    assert_eq!(
        world.holder(list, 0),
        Some(6),
        "a halted role is replaced without a wait"
    );
    assert!(!world.list(list).is_gone(NodeId(2), old), "its process still runs");
    for position in 1..6 {
        let other = list_where(&world, 2, position);
        assert!(state(&world, other, position).is_some_and(PositionState::is_live));
    }
    let status = world.coordinator.status(world.now());
    let shown = &status.nodes.iter().find(|n| n.id == NodeId(2)).unwrap().halted;
    assert_eq!(
        (shown.len(), shown[0].list, &*shown[0].reason),
        (1, ListId(list), "I4: no fit")
    );
    assert!(
        world
            .notes
            .iter()
            .any(|n| matches!(n, Note::Halted { node: NodeId(2), .. }))
    );
}

#[test]
fn a_node_whose_role_halted_returns_to_that_list_only_in_another_incarnation() {
    let mut world = World::started(plan(4, 2, 6, 0)).without_stand_ins();
    let list = list_where(&world, 2, 0);
    world.halt(list, 0);
    assert_eq!(world.holder(list, 0), None, "no other node is free");
    world.pass(4_000);
    assert_eq!(world.holder(list, 0), None);
    // A new coordinator learns of the halted role from the first heartbeat.
    world.reopen();
    world.pass(4_000);
    assert_eq!(world.holder(list, 0), None);
    world.restart(2);
    assert_eq!(world.holder(list, 0), Some(2));
    assert_eq!(state(&world, list, 0), Some(PositionState::Filling));
}

#[test]
fn a_new_incarnation_removes_the_old_one_but_certifies_nothing() {
    let mut world = World::started(plan(4, 2, 6, 0));
    let (list, old) = (list_where(&world, 2, 0), world.incarnation(2));
    world.restart(2);
    let now = world.list(list);
    assert_eq!(now.at(Position(0)).unwrap().tenure.incarnation, world.incarnation(2));
    assert!(!now.is_gone(NodeId(2), old));
}

#[test]
fn a_certificate_that_arrives_after_the_removal_still_adds_to_gone() {
    let mut world = World::started(plan(4, 2, 6, 0));
    let (list, old) = (list_where(&world, 2, 0), world.incarnation(2));
    world.restart(2);
    let exited = ToCoordinator::Exited {
        node: NodeId(2),
        incarnation: old,
    };
    let supervisor = world.connect();
    world.say(
        supervisor,
        &ToCoordinator::Supervise {
            node: NodeId(2),
            incarnation: old,
        },
    );
    world.say(supervisor, &exited);
    assert!(world.list(list).is_gone(NodeId(2), old));
    assert_eq!(world.holder(list, 0), Some(2), "the new incarnation keeps the position");
    // Once every owner serves, no owner waits for the leases of that incarnation.
    world.rebuild();
    world.pass(6000);
    world.restart(3);
    assert!(!world.list(list).is_gone(NodeId(2), old));
}

#[test]
fn an_incarnation_that_holds_a_position_again_is_added_to_gone_only_when_it_is_removed() {
    // Found by the random walk: a node is fenced for silence, gets the position again in the same incarnation, and is
    // then certified.
    let mut world = World::started(plan(4, 2, 6, 1));
    world.start(6);
    let list = list_where(&world, 2, 0);
    world.kill(2);
    world.pass(1600);
    world.certify(6);
    world.pass(100);
    world.beat(2);
    world.pass(600);
    assert_eq!(world.holder(list, 0), Some(2), "the same incarnation holds it again");
    let incarnation = world.incarnation(2);
    world.certify(2);
    assert!(
        !world.list(list).is_gone(NodeId(2), incarnation),
        "the position is reserved for the next incarnation"
    );
    world.restart(2);
    assert!(world.list(list).is_gone(NodeId(2), incarnation));
}

#[test]
fn all_lists_of_one_event_change_in_one_transaction() {
    let mut world = World::started(plan(4, 2, 6, 0));
    world.certify(2);
    world.received_by(0);
    world.restart(2);
    let list_counts: Vec<usize> = world
        .received_by(0)
        .into_iter()
        .filter_map(|m| {
            if let ToAgent::Configurations(c) = m {
                Some(c.len())
            } else {
                None
            }
        })
        .collect();
    assert_eq!(list_counts, [6]);
}

#[test]
fn a_flapping_node_gets_a_position_only_if_no_other_node_is_free() {
    let mut world = World::started(plan(2, 1, 3, 1));
    world.start(3);
    for failures in 0..3 {
        let flapping = world.coordinator.status(world.now()).nodes[1].flapping;
        assert!(!flapping, "after {failures} failures");
        assert!(
            (0..3).all(|p| world.holder(0, p) != Some(3)),
            "its own next incarnation is preferred"
        );
        world.certify(1);
        if failures < 2 {
            world.restart(1);
            world.rebuild();
        }
    }
    assert!(world.coordinator.status(world.now()).nodes[1].flapping);
    world.pass(300);
    assert!(
        (0..3).any(|p| world.holder(0, p) == Some(3)),
        "its next incarnation is not awaited, so the spare has its position"
    );
    world.rebuild();
    // It may get a position if no other node is free.
    world.certify(0);
    world.pass(600);
    world.restart(1);
    assert!((0..3).any(|p| world.holder(0, p) == Some(1)));
    world.pass(5_000);
    assert!(
        !world.coordinator.status(world.now()).nodes[1].flapping,
        "it has run without a failure for some time"
    );
}

#[test]
fn two_crashes_at_once_are_both_replaced() {
    let mut world = World::started(plan(4, 2, 6, 0));
    world.certify(1);
    world.certify(4);
    world.pass(60);
    world.restart(4);
    world.restart(1);
    for c in world.coordinator.configurations() {
        assert!(!c.lost && c.positions.iter().all(Option::is_some));
        assert_eq!(
            c.positions
                .iter()
                .flatten()
                .filter(|a| a.state == PositionState::Filling)
                .count(),
            2
        );
    }
    world.rebuild();
    assert!(
        world
            .coordinator
            .configurations()
            .all(|c| c.positions.iter().flatten().all(|a| a.state.is_live()))
    );
    world.certify(0);
    world.certify(2);
    world.restart(0);
    world.restart(2);
    assert!(world.coordinator.configurations().all(|c| !c.lost));
}

#[test]
fn ask_live_is_a_compare_and_swap_on_the_tenure() {
    let mut world = World::started(plan(4, 2, 6, 0));
    world.restart(2);
    let list = list_where(&world, 2, 0);
    let old = world.list(list).tenure(Position(0)).unwrap();
    let ask = |tenure| ToCoordinator::AskLive {
        list: ListId(list),
        position: Position(0),
        tenure,
    };
    world.say_as(1, &ask(old));
    assert_eq!(
        state(&world, list, 0),
        Some(PositionState::Filling),
        "only the holder may ask"
    );
    world.restart(2);
    world.say_as(2, &ask(old));
    assert_eq!(
        state(&world, list, 0),
        Some(PositionState::Filling),
        "a request of an older tenure is ignored"
    );
    let epoch = world.list(list).epoch.0;
    world.ask_live(list, 0);
    assert_eq!(
        (state(&world, list, 0), world.list(list).epoch.0),
        (Some(PositionState::Live), epoch + 1)
    );
    world.ask_live(list, 0);
    assert_eq!(world.list(list).epoch.0, epoch + 1, "asking again changes nothing");
}

#[test]
fn ask_live_of_an_older_tenure_of_the_same_incarnation_is_void() {
    // H7: the position was removed and assigned again while the node was paused.
    let mut world = World::started(plan(4, 2, 6, 0));
    let list = list_where(&world, 2, 5);
    let old = world.list(list).tenure(Position(5)).unwrap();
    world.kill(2);
    world.pass(1600);
    world.beat(2);
    let new = world.list(list).tenure(Position(5)).unwrap();
    assert_eq!((old.node, old.incarnation), (new.node, new.incarnation));
    let ask = |tenure| ToCoordinator::AskLive {
        list: ListId(list),
        position: Position(5),
        tenure,
    };
    world.say_as(2, &ask(old));
    assert_eq!(state(&world, list, 5), Some(PositionState::Filling));
    world.say_as(2, &ask(new));
    assert_eq!(state(&world, list, 5), Some(PositionState::Live));
}

#[test]
fn a_successor_does_not_crowd_a_failure_domain() {
    let mut plan = plan(4, 2, 6, 0);
    let domain = |id: u16, name: &str| PlannedNode {
        id: NodeId(id),
        domain: name.into(),
    };
    plan.nodes = (0..6)
        .map(|id| domain(id, ["a", "b", "c"][usize::from(id) % 3]))
        .collect();
    plan.spares = vec![domain(6, "a"), domain(7, "c")];
    let mut world = World::started(plan);
    world.start(6);
    world.certify(2);
    world.pass(600);
    assert!(
        (0..6).all(|list| (0..6).all(|p| world.holder(list, p) != Some(6))),
        "domain a would hold three positions"
    );
    world.start(7);
    assert!((0..6).all(|list| (0..6).any(|p| world.holder(list, p) == Some(7))));
}

#[test]
fn the_loss_of_a_domain_of_m_nodes_loses_no_list() {
    let mut plan = plan(4, 2, 6, 0);
    for node in &mut plan.nodes {
        node.domain = ["a", "b", "c"][usize::from(node.id.0) / 2].into();
    }
    for first in [0, 2, 4] {
        let mut world = World::started(plan.clone());
        world.certify(first);
        world.certify(first + 1);
        assert!(world.coordinator.configurations().all(|c| !c.lost));
    }
}

#[test]
fn a_member_that_crashes_while_filling_costs_no_more_redundancy() {
    let mut world = World::started(plan(4, 2, 6, 0));
    for _ in 0..5 {
        world.certify(0);
        world.restart(0);
    }
    world.certify(1);
    world.restart(1);
    assert!(world.coordinator.configurations().all(|c| !c.lost));
}
