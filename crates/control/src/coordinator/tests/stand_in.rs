//! Tests of stand-ins (P10.5): nodes that hold a second position of a list while no other node is free.

use super::rules::{list_where, state};
use super::*;
use crate::check::survives;
use crate::plan::PlannedNode;
use paritas_base::configuration::Configuration;

/// The positions of a list that stand-ins hold, with their nodes.
fn stand_ins(list: &Configuration) -> Vec<(u8, u16)> {
    let positions = (0..list.positions.len() as u8).map(Position);
    positions
        .filter(|p| list.is_stand_in(*p))
        .map(|p| (p.0, list.tenure(p).unwrap().node.0))
        .collect()
}

fn lists(world: &World) -> Vec<Configuration> {
    world.coordinator.configurations().cloned().collect()
}

#[test]
fn after_the_restart_wait_members_stand_in_and_share_the_load() {
    let mut world = World::started(plan(4, 2, 6, 0));
    world.certify(2);
    world.pass(100);
    assert!(
        lists(&world).iter().all(|c| stand_ins(c).is_empty()),
        "its next incarnation is awaited"
    );
    world.pass(600);
    let mut load = BTreeMap::new();
    for list in lists(&world) {
        let found = stand_ins(&list);
        assert_eq!(found.len(), 1, "{list:?}");
        assert_ne!(found[0].1, 2);
        assert_eq!(state(&world, list.list.0, found[0].0), Some(PositionState::Filling));
        *load.entry(found[0].1).or_insert(0) += 1;
    }
    // Five nodes share the six positions of the ended node. Fewer nodes may take a parity.
    assert!(load.len() >= 4 && load.values().all(|n| *n <= 2), "{load:?}");
}

#[test]
fn leaving_and_flapping_nodes_stand_in_last() {
    let mut world = World::started(plan(4, 2, 6, 1));
    world.start(6);
    assert_eq!(world.set_duty(2, Duty::Draining), None);
    world.certify(3);
    world.pass(600);
    world.rebuild();
    world.certify(4);
    world.pass(600);
    for list in lists(&world) {
        let found = stand_ins(&list);
        assert!(
            found.len() == 1 && found[0].1 != 2,
            "a node that stays must be preferred: {list:?}"
        );
    }

    let mut world = World::started(plan(4, 2, 6, 0));
    for _ in 0..3 {
        world.certify(1);
        world.restart(1);
        world.rebuild();
    }
    world.certify(4);
    world.pass(600);
    assert!(world.coordinator.status(world.now()).nodes[1].flapping);
    for list in lists(&world) {
        let found = stand_ins(&list);
        assert!(
            found.len() == 1 && found[0].1 != 1,
            "a node that does not fail repeatedly must be preferred: {list:?}"
        );
    }
}

#[test]
fn a_silent_owner_s_position_goes_to_a_stand_in() {
    let mut world = World::started(plan(4, 2, 6, 0));
    let list = list_where(&world, 2, 0);
    world.kill(2);
    world.pass(1600);
    assert_eq!(stand_ins(&world.list(list)).len(), 1);
    assert_ne!(world.holder(list, 0), Some(2));
    assert!(world.list(list).gone.is_empty(), "silence is no certificate");
}

#[test]
fn a_node_that_returns_gets_its_filling_positions_back_at_once() {
    let mut world = World::started(plan(4, 2, 6, 0));
    let before: Vec<_> = (0..6)
        .map(|list| (0..6).map(|p| world.holder(list, p)).collect::<Vec<_>>())
        .collect();
    world.certify(2);
    world.pass(600);
    world.restart(2);
    let after: Vec<_> = (0..6)
        .map(|list| (0..6).map(|p| world.holder(list, p)).collect::<Vec<_>>())
        .collect();
    assert_eq!(after, before);
}

#[test]
fn complete_stand_ins_give_their_positions_back_one_at_a_time() {
    let mut world = World::started(plan(4, 2, 6, 0));
    world.certify(1);
    world.certify(2);
    world.pass(600);
    world.rebuild();
    world.pass(300);
    assert!(
        lists(&world)
            .iter()
            .all(|c| stand_ins(c).len() == 2 && c.positions.iter().flatten().count() == 6)
    );
    for list in lists(&world) {
        assert!(list.positions.iter().flatten().all(|a| a.state.is_live()));
        assert_eq!(
            survives(&list),
            1,
            "the loss of one node that holds two positions, but not of two such nodes"
        );
    }
    let status = world.coordinator.status(world.now());
    let (at, node) = stand_ins(&world.list(0))[0];
    assert_eq!(
        status.lists[0].positions[usize::from(at)].state,
        PositionCondition::StandIn
    );
    let reason = &status.lists[0].reason;
    assert!(
        reason.contains(&format!("n{node} stands in at position {at}")),
        "{reason}"
    );
    assert!(reason.contains("the loss of any 1 more node is survived"), "{reason}");

    world.start(1);
    world.start(2);
    for left in [1, 0] {
        world.pass(300);
        for list in lists(&world) {
            assert_eq!(stand_ins(&list).len(), left, "{list:?}");
            let filling = list
                .positions
                .iter()
                .flatten()
                .filter(|a| a.state == PositionState::Filling);
            assert_eq!(filling.count(), 1, "positions must move one at a time: {list:?}");
        }
        world.rebuild();
    }
    world.pass(300);
    assert!(lists(&world).iter().all(|c| survives(c) == 2));
    assert!(
        world
            .coordinator
            .status(world.now())
            .lists
            .iter()
            .all(|l| l.reason.is_empty())
    );
}

#[test]
fn a_new_spare_takes_the_positions_of_stand_ins() {
    let mut world = World::started(plan(4, 2, 6, 0));
    world.certify(2);
    world.pass(600);
    world.rebuild();
    world.pass(300);
    world.start(7);
    world.pass(300);
    for list in lists(&world) {
        assert!(stand_ins(&list).is_empty());
        assert_eq!(list.of_node(NodeId(7)).count(), 1);
    }
}

#[test]
fn the_older_position_of_a_stand_in_moves_too_if_it_stays_filling() {
    let mut world = World::started(plan(2, 2, 4, 0));
    // Its own position is being rebuilt when it becomes a stand-in.
    world.restart(0);
    world.certify(3);
    world.pass(600);
    let list = lists(&world)
        .into_iter()
        .find(|c| stand_ins(c)[0].1 == 0)
        .expect("it stands in for some list");
    let (younger, _) = stand_ins(&list)[0];
    let (older, _) = list.of_node(NodeId(0)).find(|(p, _)| p.0 != younger).unwrap();
    world.ask_live(list.list.0, younger);
    world.pass(300);
    assert_eq!(state(&world, list.list.0, older.0), Some(PositionState::Filling));
    // If the node has enough memory, its position is soon complete. If not, the position, and so the list, never is.
    world.start(7);
    world.pass(20_000);
    assert_eq!(world.holder(list.list.0, older.0), Some(0));
    world.pass(11_000);
    assert_eq!(world.holder(list.list.0, older.0), Some(7));
    assert_eq!(world.holder(list.list.0, younger), Some(0));
}

#[test]
fn a_stand_in_keeps_a_position_that_no_node_could_take_over() {
    let mut plan = plan(2, 2, 4, 0);
    plan.ack_quorum = 1;
    let mut world = World::started(plan);
    // A stand-in holds the owner's position, and one of two parities is silent. The stand-in must not be removed then.
    let list = list_where(&world, 3, 0);
    world.certify(3);
    world.pass(600);
    let held = world.holder(list, 0);
    let silent = (2..4).find_map(|p| world.holder(list, p).filter(|node| Some(*node) != held));
    world.kill(silent.expect("one parity is not held by the stand-in"));
    world.pass(3000);
    world.start(7);
    world.pass(3000);
    assert_eq!(world.holder(list, 0), held);
}

#[test]
fn a_stand_in_counts_twice_when_it_falls_silent() {
    let mut world = World::started(plan(4, 2, 6, 0));
    world.certify(1);
    world.certify(2);
    world.pass(600);
    world.rebuild();
    world.pass(300);
    // Two nodes hold two positions of a list each. Four positions may not be fenced.
    let list = lists(&world)
        .into_iter()
        .find(|c| stand_ins(c)[0].1 != stand_ins(c)[1].1)
        .expect("two nodes stand in for some list");
    let [(_, a), (_, b)] = stand_ins(&list)[..] else {
        unreachable!()
    };
    let before = list.positions.clone();
    world.kill(a);
    world.kill(b);
    world.pass(3000);
    assert_eq!(world.list(list.list.0).positions, before, "no position may be removed");
    assert!(!world.list(list.list.0).lost);
}

#[test]
fn with_one_parity_a_stand_in_is_better_than_a_vacancy() {
    let mut world = World::started(plan(2, 1, 3, 0));
    world.certify(0);
    world.pass(600);
    world.rebuild();
    world.pass(300);
    for list in lists(&world) {
        assert_eq!(stand_ins(&list).len(), 1);
        assert_eq!(survives(&list), 0, "the list does not survive the loss of the stand-in");
        let doubled = stand_ins(&list)[0].1;
        let single = list
            .positions
            .iter()
            .flatten()
            .find(|a| a.tenure.node.0 != doubled)
            .unwrap();
        assert!(
            list.of_node(single.tenure.node).count() == 1,
            "it survives the loss of the other node"
        );
    }
    // Writes need the only parity, so it cannot move. The node gives up its data position instead.
    world.start(0);
    world.pass(300);
    for list in lists(&world) {
        assert!(stand_ins(&list).is_empty(), "{list:?}");
        assert!(list.members().next().unwrap().1.state.is_live());
    }
}

#[test]
fn another_failure_domain_is_preferred_and_none_is_refused() {
    let mut plan = plan(2, 2, 4, 0);
    let racks = ["a", "b", "c", "d"];
    plan.nodes = (0..4)
        .map(|i| PlannedNode {
            id: NodeId(i),
            domain: racks[usize::from(i)].into(),
        })
        .collect();
    let mut world = World::started(plan);
    world.certify(0);
    world.pass(600);
    for list in lists(&world) {
        let (position, node) = stand_ins(&list)[0];
        let parity = |p: u8| p >= 2;
        let held = list
            .of_node(NodeId(node))
            .map(|(p, _)| parity(p.0))
            .filter(|p| *p)
            .count();
        assert!(held <= 1, "no two parities on one node: {position} of {list:?}");
    }
}

#[test]
fn without_stand_ins_the_position_stays_vacant() {
    let mut world = World::started(plan(4, 2, 6, 0)).without_stand_ins();
    world.certify(2);
    world.pass(600);
    assert!(
        lists(&world)
            .iter()
            .all(|c| stand_ins(c).is_empty() && c.positions.contains(&None))
    );
}

#[test]
fn without_parity_there_are_no_stand_ins() {
    let mut world = World::started(plan(2, 0, 2, 0));
    world.certify(0);
    world.pass(600);
    assert!(lists(&world).iter().all(|c| c.positions.contains(&None)));
}

#[test]
fn a_halted_role_ends_one_position_of_a_node_that_holds_two() {
    let mut world = World::started(plan(4, 2, 6, 0));
    world.certify(2);
    world.pass(600);
    world.rebuild();
    world.pass(300);
    let list = world.list(0);
    let (position, node) = stand_ins(&list)[0];
    let own = list.of_node(NodeId(node)).find(|(p, _)| p.0 != position).unwrap();
    let own = (own.0, own.1.tenure);
    world.halt(0, position);
    world.pass(300);
    assert_eq!(world.list(0).tenure(own.0), Some(own.1), "its own position stays");
    assert_ne!(
        world.holder(0, position),
        Some(node),
        "it must not get that position again"
    );
    assert!(!world.list(0).lost);
}
