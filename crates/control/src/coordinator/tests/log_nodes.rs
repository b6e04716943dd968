//! Tests of log nodes: which node holds a logged position, and which does while no log node is free (P10.5, P11).

use super::rules::{list_where, state};
use super::world::registration;
use super::*;
use paritas_base::hash_slots::{SlotOrder, SlotTarget};

/// `4+2/1` on nodes 0 to 4 and log node 5.
fn logged(log_nodes: u16, spares: u16) -> World {
    World::started(plan(4, 2, 5, spares).with_log_nodes(1, log_nodes))
}

/// The holder of the logged position of each list.
fn log_holders(world: &World) -> Vec<Option<u16>> {
    let lists = world.coordinator.configurations().count() as u16;
    (0..lists).map(|list| world.holder(list, 5)).collect()
}

fn all_at(world: &World, node: u16) -> bool {
    log_holders(world).iter().all(|holder| *holder == Some(node))
}

fn settle(world: &mut World) {
    for _ in 0..20 {
        world.drain();
        world.rebuild();
        world.pass(300);
    }
}

fn role(world: &World, node: u16) -> NodeRole {
    let mut nodes = world.coordinator.nodes();
    nodes.find(|n| n.id == NodeId(node)).unwrap().role
}

#[test]
fn lists_begin_when_the_log_nodes_have_registered_too() {
    let mut world = World::new(plan(4, 2, 5, 0).with_log_nodes(1, 1));
    (0..5).for_each(|node| world.start(node));
    assert_eq!(world.coordinator.configurations().count(), 0);
    world.start(5);
    assert!(world.coordinator.configurations().count() > 0 && all_at(&world, 5));
    assert_eq!((role(&world, 0), role(&world, 5)), (NodeRole::Member, NodeRole::Log));
    settle(&mut world);
    let status = world.coordinator.status(world.now());
    assert_eq!(status.nodes[5].role, RoleStatus::Log);
    assert!(status.lists.iter().all(|list| list.reason.is_empty()));
}

#[test]
fn a_log_node_that_restarts_takes_its_positions_again() {
    let mut world = logged(1, 1);
    world.start(6);
    world.certify(5);
    assert_eq!(
        world.holder(0, 5),
        None,
        "the parity must be vacant so that writes continue"
    );
    world.pass(100);
    assert_eq!(world.holder(0, 5), None, "its next incarnation is awaited");
    world.restart(5);
    assert!(all_at(&world, 5));
    assert_eq!(state(&world, 0, 5), Some(PositionState::Filling));
}

#[test]
fn an_unplanned_log_node_replaces_a_lost_one_before_a_node_in_memory_does() {
    let mut world = logged(1, 1);
    world.start(6);
    world.log_nodes.insert(9);
    world.start(9);
    assert_eq!(role(&world, 9), NodeRole::Log);
    world.kill(5);
    world.pass(3000);
    assert!(all_at(&world, 9), "{:?}", log_holders(&world));
}

#[test]
fn without_a_log_node_a_spare_holds_the_position_in_memory_until_one_is_back() {
    let mut world = logged(1, 1);
    world.start(6);
    world.certify(5);
    world.pass(600);
    assert!(all_at(&world, 6), "{:?}", log_holders(&world));
    world.rebuild();
    let status = world.coordinator.status(world.now());
    let reason = &status.lists[0].reason;
    assert_eq!(reason, "held in memory until a log node is free: position 5 at n6");
    world.restart(5);
    settle(&mut world);
    assert!(all_at(&world, 5));
    assert_eq!(state(&world, 0, 5), Some(PositionState::Live));
}

#[test]
fn without_a_spare_a_member_stands_in_for_a_log_node() {
    let mut world = logged(1, 0);
    world.certify(5);
    world.pass(600);
    assert!(log_holders(&world).iter().all(|holder| holder.is_some_and(|n| n < 5)));
    let list = world.list(0);
    assert!(list.is_stand_in(Position(5)));
    let other = list.of_node(NodeId(world.holder(0, 5).unwrap())).next().unwrap().0;
    assert!(
        list.is_data(other),
        "a second parity on the same node would be of no use"
    );
    settle(&mut world);
    // A spare registers: it takes the logged positions, and no member holds two positions.
    world.start(8);
    settle(&mut world);
    assert!(all_at(&world, 8), "{:?}", log_holders(&world));
    // A log node registers.
    world.log_nodes.insert(9);
    world.start(9);
    settle(&mut world);
    assert!(all_at(&world, 9), "{:?}", log_holders(&world));
}

#[test]
fn a_logged_position_that_is_filling_in_memory_moves_to_a_log_node_at_once() {
    let mut world = logged(1, 1);
    world.start(6);
    world.certify(5);
    world.pass(600);
    assert_eq!(state(&world, 0, 5), Some(PositionState::Filling));
    world.restart(5);
    world.pass(300);
    assert!(all_at(&world, 5));
}

#[test]
fn without_stand_ins_a_logged_position_waits_for_a_log_node() {
    let mut world = logged(1, 1).without_stand_ins();
    world.start(6);
    world.certify(5);
    world.pass(3000);
    assert!(log_holders(&world).iter().all(Option::is_none));
    world.restart(5);
    assert!(all_at(&world, 5));
}

#[test]
fn a_log_node_never_takes_a_data_position_or_the_parity_in_memory() {
    let mut world = logged(2, 0);
    let (data, parity) = (list_where(&world, 2, 0), list_where(&world, 2, 4));
    world.certify(2);
    world.pass(3000);
    // There are two log nodes, and each list needs only one.
    assert!(world.holder(data, 0).is_some_and(|n| n < 5));
    assert!(world.holder(parity, 4).is_some_and(|n| n < 5));
}

#[test]
fn a_log_node_is_drained_to_another_one_only() {
    let mut world = logged(1, 1);
    world.start(6);
    let why = world.set_duty(5, Duty::Draining).unwrap();
    assert_eq!(why, "too few log nodes: 4+2/1 needs 1, and without n5 there would be 0");
    let why = world.set_duty(0, Duty::Shunned);
    assert_eq!(why, None, "a spare is available for a member");
    assert_eq!(world.set_duty(0, Duty::Returning), None);
    settle(&mut world);
    let why = world.set_duty(1, Duty::Draining);
    assert_eq!(why, None);
    let why = world.set_duty(2, Duty::Draining).unwrap();
    assert!(
        why.starts_with("too few nodes beside its log nodes: 4+2/1 needs 5"),
        "{why}"
    );
    assert_eq!(world.set_duty(1, Duty::Returning), None);
    world.log_nodes.insert(9);
    world.start(9);
    assert_eq!(world.set_duty(5, Duty::Draining), None);
    settle(&mut world);
    assert!(all_at(&world, 9), "{:?}", log_holders(&world));
    // If the other log node fails, the status says why the first one cannot be drained.
    assert_eq!(world.set_duty(5, Duty::Returning), None);
    settle(&mut world);
    assert!(all_at(&world, 5), "the planned log node has its positions again");
    assert_eq!(world.set_duty(5, Duty::Draining), None);
    world.kill(9);
    world.pass(3000);
    let obstacle = &world.coordinator.status(world.now()).nodes[5].waits_for;
    assert!(obstacle.contains("no other log node"), "{obstacle}");
}

#[test]
fn a_member_with_a_logged_position_in_memory_can_be_drained() {
    let mut world = logged(1, 2);
    world.start(6);
    world.start(7);
    world.certify(5);
    world.pass(600);
    settle(&mut world);
    let holder = world.holder(0, 5).unwrap();
    assert!(holder == 6 || holder == 7);
    assert_eq!(world.set_duty(holder, Duty::Draining), None);
    settle(&mut world);
    assert_eq!(world.holder(0, 5), Some(13 - holder));
}

#[test]
fn slots_cannot_move_to_a_log_node() {
    let mut world = logged(1, 0);
    let order = SlotOrder::Move {
        first: 0,
        last: 10,
        to: SlotTarget::Node(NodeId(5)),
    };
    let why = world.order_slots(order).unwrap();
    assert_eq!(why, "n5 is a log node, which holds no data position");
}

#[test]
fn a_role_that_is_not_the_planned_one_is_refused_both_ways() {
    let mut world = World::new(plan(4, 2, 5, 1).with_log_nodes(1, 1));
    let refused = |world: &mut World, node| {
        let link = world.connect();
        world.offer(link, node, Incarnation(7)).unwrap_err().to_string()
    };
    world.log_nodes = [0, 6].into();
    let member = "n0 is not planned as a log node: leave log_dir (--log-dir) out of its settings";
    assert_eq!(refused(&mut world, 0), member);
    assert!(
        refused(&mut world, 6).contains("not planned as a log node"),
        "a spare is not planned as a log node"
    );
    let log = "n5 is planned as a log node: set log_dir (--log-dir) in its settings";
    assert_eq!(refused(&mut world, 5), log);
    let mut world = World::new(plan(4, 2, 6, 0));
    world.log_nodes = [9].into();
    assert!(refused(&mut world, 9).contains("4+2 logs no parity"));
}

#[test]
fn a_planned_member_cannot_register_as_a_spare() {
    let mut world = World::new(plan(2, 1, 3, 1));
    let answer = |world: &mut World, node| {
        let link = world.connect();
        let mut asks = registration(node, Incarnation(900));
        asks.role = NodeRole::Spare;
        world.say(link, &ToCoordinator::Register(Box::new(asks)));
        world.received(link).pop()
    };
    match answer(&mut world, 1) {
        Some(ToAgent::Refused(Refusal::WrongRole { why })) => {
            assert!(why.contains("leave spare (--spare) out"), "{why}")
        }
        other => panic!("{other:?}"),
    }
    for node in [3, 4] {
        let answer = answer(&mut world, node);
        assert!(matches!(answer, Some(ToAgent::Registered(_))), "n{node}: {answer:?}");
    }
}

#[test]
fn a_node_beyond_the_plan_may_change_its_role_with_its_incarnation() {
    let mut world = logged(1, 0);
    world.start(8);
    assert_eq!(role(&world, 8), NodeRole::Spare);
    world.certify(2);
    world.pass(600);
    assert_eq!(role(&world, 8), NodeRole::Member);
    world.rebuild();
    world.restart(2);
    world.certify(8);
    world.log_nodes.insert(8);
    world.restart(8);
    world.pass(600);
    assert_eq!(role(&world, 8), NodeRole::Log);
    world.reopen();
    assert_eq!(role(&world, 8), NodeRole::Log, "the role must be in the stored record");
}
