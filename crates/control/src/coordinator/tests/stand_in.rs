//! Stand-ins (P10.5): a second position of a list for want of a free node.

use super::rules::{list_where, state};
use super::*;
use crate::check::survives;
use crate::plan::PlannedNode;
use paritas_base::configuration::Configuration;

/// Positions of a list held by nodes that hold another.
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
        "its next incarnation is waited for"
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
    // Six positions of the dead node for five others; a parity has fewer who may take it.
    assert!(load.len() >= 4 && load.values().all(|n| *n <= 2), "{load:?}");
}

#[test]
fn nodes_that_are_to_leave_or_keep_falling_stand_in_last() {
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
            "rather anybody who stays: {list:?}"
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
            "rather anybody who stands: {list:?}"
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
    assert!(world.list(list).gone.is_empty(), "silence certifies nothing");
}

#[test]
fn a_node_that_returns_gets_its_positions_again_at_once_where_they_are_not_whole() {
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
fn a_whole_stand_in_gives_its_position_back_when_all_else_is_live_one_at_a_time() {
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
        assert_eq!(survives(&list), 1, "the node that holds two, but no two of them");
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
            assert_eq!(filling.count(), 1, "one at a time: {list:?}");
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
fn a_spare_that_registers_takes_what_stand_ins_hold() {
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
fn the_older_position_of_a_node_is_taken_from_it_too_while_it_is_not_whole() {
    let mut world = World::started(plan(2, 2, 4, 0));
    // What it holds is to be brought back there, and then it stands in.
    world.restart(0);
    world.certify(3);
    world.pass(600);
    let list = lists(&world)
        .into_iter()
        .find(|c| stand_ins(c)[0].1 == 0)
        .expect("it takes its share");
    let (younger, _) = stand_ins(&list)[0];
    let (older, _) = list.of_node(NodeId(0)).find(|(p, _)| p.0 != younger).unwrap();
    world.ask_live(list.list.0, younger);
    world.pass(300);
    assert_eq!(state(&world, list.list.0, older.0), Some(PositionState::Filling));
    // It may have the memory, and then is soon whole. With none for both it never is, nor the list.
    world.start(7);
    world.pass(20_000);
    assert_eq!(world.holder(list.list.0, older.0), Some(0));
    world.pass(11_000);
    assert_eq!(world.holder(list.list.0, older.0), Some(7));
    assert_eq!(world.holder(list.list.0, younger), Some(0));
}

#[test]
fn nothing_is_taken_from_a_stand_in_that_nobody_could_take_over_from() {
    let mut plan = plan(2, 2, 4, 0);
    plan.ack_quorum = 1;
    let mut world = World::started(plan);
    // An owner's position is on a stand-in, and one of two parities is silent: it may not be removed with the other.
    let list = list_where(&world, 3, 0);
    world.certify(3);
    world.pass(600);
    let held = world.holder(list, 0);
    let silent = (2..4).find_map(|p| world.holder(list, p).filter(|node| Some(*node) != held));
    world.kill(silent.expect("they cannot both stand in"));
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
    // Two nodes that each hold two positions of a list: four may not be fenced.
    let list = lists(&world)
        .into_iter()
        .find(|c| stand_ins(c)[0].1 != stand_ins(c)[1].1)
        .expect("the load is shared");
    let [(_, a), (_, b)] = stand_ins(&list)[..] else {
        unreachable!()
    };
    let before = list.positions.clone();
    world.kill(a);
    world.kill(b);
    world.pass(3000);
    assert_eq!(
        world.list(list.list.0).positions,
        before,
        "they wait for each other's return"
    );
    assert!(!world.list(list.list.0).lost);
}

#[test]
fn with_one_parity_a_stand_in_is_still_better_than_nobody() {
    let mut world = World::started(plan(2, 1, 3, 0));
    world.certify(0);
    world.pass(600);
    world.rebuild();
    world.pass(300);
    for list in lists(&world) {
        assert_eq!(stand_ins(&list).len(), 1);
        assert_eq!(survives(&list), 0, "not the loss of whoever holds two");
        let doubled = stand_ins(&list)[0].1;
        let single = list
            .positions
            .iter()
            .flatten()
            .find(|a| a.tenure.node.0 != doubled)
            .unwrap();
        assert!(list.of_node(single.tenure.node).count() == 1, "but that of the other");
    }
    // Writes cannot do without the only parity while it moves: then the node gives up its data position instead.
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
fn the_setting_leaves_the_position_vacant() {
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
fn without_parity_nobody_stands_in() {
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
    assert_eq!(world.list(0).tenure(own.0), Some(own.1), "its own goes on");
    assert_ne!(world.holder(0, position), Some(node), "and it is not named there again");
    assert!(!world.list(0).lost);
}
