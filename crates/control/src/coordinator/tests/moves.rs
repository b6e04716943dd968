//! Tests of planned moves (P5.12, P10.2a): a node is drained, is shunned, and returns.

use super::rules::list_where;
use super::*;
use crate::check::survives;
use paritas_base::configuration::Configuration;

fn lists(world: &World) -> Vec<Configuration> {
    world.coordinator.configurations().cloned().collect()
}

fn held_by(world: &World, node: u16) -> usize {
    lists(world).iter().map(|c| c.of_node(NodeId(node)).count()).sum()
}

fn homes(world: &World) -> Vec<Vec<Option<u16>>> {
    let width = world.plan.width() as u8;
    let of_list = |list| (0..width).map(|p| world.holder(list, p)).collect();
    (0..lists(world).len() as u16).map(of_list).collect()
}

/// Lets time pass in a cluster in which every owner drains on request and every position becomes Live.
fn settle(world: &mut World) {
    for _ in 0..20 {
        world.drain();
        world.rebuild();
        world.pass(300);
    }
}

fn with_spares(data: u8, parity: u8, nodes: u16, spares: u16) -> World {
    let mut world = World::started(plan(data, parity, nodes, spares));
    (nodes..nodes + spares).for_each(|node| world.start(node));
    world
}

#[test]
fn a_draining_node_gives_up_all_positions_a_few_lists_at_a_time() {
    let mut world = with_spares(4, 2, 6, 1);
    assert_eq!(world.set_duty(2, Duty::Draining), None);
    let mut steps = 0;
    while held_by(&world, 2) > 0 {
        for list in lists(&world) {
            assert!(survives(&list) >= 1, "the loss of one more node is survived: {list:?}");
        }
        let whole = |c: &Configuration| c.positions.iter().flatten().all(|a| a.state.is_live());
        let moving = lists(&world).iter().filter(|c| !whole(c)).count();
        assert!(moving <= 2, "{moving} lists move at the same time");
        world.drain();
        world.rebuild();
        world.pass(100);
        steps += 1;
        assert!(steps < 100, "the drain does not end");
    }
    assert!(lists(&world).iter().all(|c| c.of_node(NodeId(6)).count() == 1));
    let status = world.coordinator.status(world.now());
    let node = &status.nodes[2];
    assert_eq!(
        (node.duty, node.positions, node.state),
        (Duty::Draining, 0, NodeCondition::Spare)
    );
    assert_eq!(node.waits_for, "");
}

#[test]
fn an_owner_is_asked_to_drain_and_is_moved_later_even_without_an_answer() {
    let mut world = with_spares(4, 2, 6, 1);
    let list = list_where(&world, 0, 0);
    assert_eq!(world.set_duty(0, Duty::Draining), None);
    let tenure = world.list(list).tenure(Position(0)).unwrap();
    let (id, position) = (ListId(list), Position(0));
    world.rebuild();
    world.pass(300);
    let mut asked = false;
    // Lists move one after the other. Wait until this list moves; its owner is asked for at most the suspicion time.
    for _ in 0..40 {
        asked |= world.received_by(0).contains(&ToAgent::Drain {
            list: id,
            position,
            tenure,
        });
        if world.holder(list, 0) != Some(0) {
            break;
        }
        world.rebuild();
        world.pass(100);
    }
    assert!(asked);
    assert_eq!(
        world.holder(list, 0),
        Some(6),
        "after the suspicion time the position moves without an answer"
    );
}

#[test]
fn drained_positions_of_a_shunned_node_move_in_one_commit() {
    let mut world = with_spares(4, 2, 6, 2);
    assert_eq!(world.set_duty(3, Duty::Shunned), None);
    let owned = || {
        lists(&world)
            .iter()
            .filter(|c| c.of_node(NodeId(3)).any(|(p, _)| p.0 < 4))
            .count()
    };
    assert_eq!(owned(), 4, "parities move at once, owners are asked to drain");
    world.drain();
    assert_eq!(held_by(&world, 3), 0);
    for list in lists(&world) {
        assert_eq!(list.epoch.0, 2, "each list changes once");
    }
}

#[test]
fn two_shunned_nodes_leave_a_list_together_if_its_redundancy_allows() {
    let mut world = with_spares(4, 2, 6, 2);
    assert_eq!(world.set_duty(0, Duty::Shunned), None);
    assert_eq!(world.set_duty(1, Duty::Shunned), None);
    world.drain();
    world.pass(1500);
    for list in lists(&world) {
        // With both parities missing, 4+2 survives no missing data, and would refuse writes.
        let both = [0, 1].map(|node| list.of_node(NodeId(node)).count());
        assert!(
            both == [0, 0] || list.members().any(|(_, a)| a.tenure.node.0 < 2),
            "{list:?}"
        );
    }
    settle(&mut world);
    assert_eq!((held_by(&world, 0), held_by(&world, 1)), (0, 0));
}

#[test]
fn a_shunned_node_stays_while_as_many_as_the_scheme_covers_have_ended_or_are_silent() {
    let mut world = with_spares(4, 2, 6, 3);
    let before = world.list(0);
    let node = |p: u8| before.tenure(Position(p)).unwrap().node.0;
    // Both keep their Live positions: their next incarnations are awaited.
    world.certify(node(0));
    world.certify(node(1));
    assert_eq!(world.set_duty(node(4), Duty::Shunned), None);
    assert_eq!(
        world.holder(0, 4),
        Some(node(4)),
        "two positions are lost, so a third may not move"
    );
    world.pass(100);
    assert!(
        lists(&world).iter().all(|c| !c.lost),
        "two nodes have ended, which 4+2 survives"
    );
    settle(&mut world);
    assert_eq!(held_by(&world, node(4)), 0, "after the rebuild its positions move");
    assert!(lists(&world).iter().all(|c| !c.lost));

    let mut world = with_spares(4, 2, 6, 4);
    (0..3).for_each(|p| world.kill(node(p)));
    world.pass(1500);
    let before = lists(&world);
    assert_eq!(world.set_duty(node(4), Duty::Shunned), None);
    world.drain();
    world.pass(1500);
    assert_eq!(
        lists(&world),
        before,
        "three silent nodes may be behind a partition, and may return"
    );
}

#[test]
fn an_impossible_drain_is_refused_with_the_reason() {
    let mut world = World::started(plan(4, 2, 6, 0));
    assert!(
        world
            .set_duty(9, Duty::Draining)
            .unwrap()
            .contains("n9 has not registered")
    );
    let why = world.set_duty(1, Duty::Draining).unwrap();
    assert_eq!(why, "too few nodes: 4+2 needs 6, and without n1 there would be 5");
    let mut world = with_spares(2, 0, 2, 1);
    assert!(world.set_duty(1, Duty::Shunned).unwrap().contains("nowhere else"));
    let mut world = with_spares(2, 1, 3, 1);
    assert!(world.set_duty(1, Duty::Draining).unwrap().contains("min_redundancy 1"));
    // After the first drain there is no free node for a second one.
    let mut world = with_spares(4, 2, 6, 1);
    assert_eq!(world.set_duty(1, Duty::Draining), None);
    assert!(world.set_duty(2, Duty::Draining).unwrap().contains("too few nodes"));
    assert_eq!(world.set_duty(1, Duty::Returning), None);
    assert_eq!(world.set_duty(2, Duty::Draining), None);
}

#[test]
fn an_order_survives_the_coordinator_and_the_node_s_own_end() {
    let mut world = with_spares(4, 2, 6, 1);
    assert_eq!(world.set_duty(2, Duty::Draining), None);
    world.reopen();
    (0..7).for_each(|node| world.register_again(node));
    world.certify(2);
    world.pass(100);
    world.restart(2);
    world.pass(100);
    assert_eq!(
        held_by(&world, 2),
        0,
        "the spare has all positions, the next incarnation none"
    );
    settle(&mut world);
    // A leaving node is better than a vacancy.
    world.certify(3);
    world.pass(1000);
    assert_eq!(held_by(&world, 2), 6);
    world.restart(3);
    settle(&mut world);
    assert_eq!(held_by(&world, 2), 0, "it keeps them only until another node registers");
}

#[test]
fn a_returning_node_gets_its_planned_positions() {
    let mut world = with_spares(4, 2, 8, 0);
    let before = homes(&world);
    assert_eq!(world.set_duty(5, Duty::Shunned), None);
    settle(&mut world);
    assert_eq!(held_by(&world, 5), 0);
    assert_eq!(world.set_duty(5, Duty::Returning), None);
    settle(&mut world);
    assert_eq!(homes(&world), before);
    assert_eq!(world.coordinator.status(world.now()).nodes[5].duty, Duty::Full);
    let duties = |d| {
        world.notes.contains(&Note::Duty {
            node: NodeId(5),
            duty: d,
        })
    };
    assert!(duties(Duty::Shunned) && duties(Duty::Returning) && duties(Duty::Full));
}

#[test]
fn a_cancelled_drain_restores_the_planned_positions() {
    let mut world = with_spares(4, 2, 6, 1);
    let before = homes(&world);
    assert_eq!(world.set_duty(2, Duty::Draining), None);
    world.drain();
    assert_eq!(world.set_duty(2, Duty::Returning), None);
    settle(&mut world);
    assert_eq!(homes(&world), before);
}

#[test]
fn a_drain_waits_while_a_list_is_being_rebuilt() {
    let mut world = with_spares(4, 2, 6, 2);
    world.kill(4);
    world.pass(1500);
    assert_eq!(world.set_duty(2, Duty::Draining), None);
    world.drain();
    world.pass(300);
    assert_eq!(held_by(&world, 2), 6, "all moves wait for the rebuild");
    let waits = world.coordinator.status(world.now()).nodes[2].waits_for.clone();
    assert!(waits.contains("being rebuilt"), "{waits}");
    settle(&mut world);
    assert_eq!(held_by(&world, 2), 0);
}

#[test]
fn a_node_that_returns_says_what_it_waits_for() {
    let waits = |world: &World| world.coordinator.status(world.now()).nodes[2].waits_for.clone();
    let shunned = || {
        let mut world = with_spares(4, 2, 6, 2);
        assert_eq!(world.set_duty(2, Duty::Shunned), None);
        settle(&mut world);
        assert_eq!(held_by(&world, 2), 0);
        world
    };
    let returns = |world: &mut World| {
        assert_eq!(world.set_duty(2, Duty::Returning), None);
        world.pass(300);
        waits(world)
    };
    let mut world = shunned();
    world.certify(2);
    let why = returns(&mut world);
    assert!(why.contains("its process has ended: start it"), "{why}");
    world.restart(2);
    settle(&mut world);
    assert_eq!((held_by(&world, 2), waits(&world)), (6, String::new()));

    let mut world = shunned();
    for _ in 0..3 {
        world.certify(2);
        world.restart(2);
    }
    let why = returns(&mut world);
    assert!(why.contains("n2 has failed several times just now"), "{why}");
    world.pass(60_000);
    settle(&mut world);
    assert_eq!((held_by(&world, 2), waits(&world)), (6, String::new()));

    let mut world = shunned();
    world.certify(4);
    world.pass(1500);
    let why = returns(&mut world);
    assert!(why.contains("lost or being rebuilt"), "{why}");
    settle(&mut world);
    assert_eq!((held_by(&world, 2), waits(&world)), (6, String::new()));

    let mut world = shunned();
    for node in [0, 1, 3] {
        world.certify(node);
    }
    world.pass(1500);
    let why = returns(&mut world);
    assert!(why.contains("is lost"), "{why}");
}

#[test]
fn a_leaving_spare_is_preferred_to_a_stand_in() {
    let mut world = with_spares(4, 2, 6, 1);
    assert_eq!(world.set_duty(6, Duty::Draining), None);
    world.certify(1);
    world.pass(600);
    let mut stand_ins = lists(&world).into_iter().map(|c| c.has_stand_ins());
    assert!(
        !stand_ins.any(|s| s),
        "the leaving spare must be preferred to a stand-in"
    );
    assert_eq!(
        world.set_duty(6, Duty::Draining),
        None,
        "the same order may be repeated"
    );
    settle(&mut world);
    assert_eq!(held_by(&world, 6), 6, "no other node is free");
    let waits = world.coordinator.status(world.now()).nodes[6].waits_for.clone();
    assert!(waits.contains("no other node can take it"), "{waits}");
    world.restart(1);
    settle(&mut world);
    assert_eq!(held_by(&world, 6), 0);
}
