//! Planned moves (P5.12, P10.2a): a node is drained, shunned, and comes back.

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

/// Some steps of a cluster in which every owner drains when asked and every position is filled.
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
fn a_drained_node_gives_up_all_it_holds_a_few_lists_at_a_time() {
    let mut world = with_spares(4, 2, 6, 1);
    assert_eq!(world.set_duty(2, Duty::Draining), None);
    let mut steps = 0;
    while held_by(&world, 2) > 0 {
        for list in lists(&world) {
            assert!(survives(&list) >= 1, "the loss of one more node is survived: {list:?}");
        }
        let whole = |c: &Configuration| c.positions.iter().flatten().all(|a| a.state.is_live());
        let moving = lists(&world).iter().filter(|c| !whole(c)).count();
        assert!(moving <= 2, "{moving} lists at a time");
        world.drain();
        world.rebuild();
        world.pass(100);
        steps += 1;
        assert!(steps < 100, "it does not come to an end");
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
fn an_owner_is_asked_first_and_goes_unasked_if_it_does_not_answer() {
    let mut world = with_spares(4, 2, 6, 1);
    let list = list_where(&world, 0, 0);
    assert_eq!(world.set_duty(0, Duty::Draining), None);
    let tenure = world.list(list).tenure(Position(0)).unwrap();
    let (id, position) = (ListId(list), Position(0));
    world.rebuild();
    world.pass(300);
    let mut asked = false;
    // Lists take turns: until it is this one's, and the owner has been asked for less than the suspicion time.
    for _ in 0..40 {
        asked |= world.heard_by(0).contains(&ToAgent::Drain {
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
        "after a suspicion time it goes all the same"
    );
}

#[test]
fn what_has_drained_of_a_shunned_node_goes_in_one_commit() {
    let mut world = with_spares(4, 2, 6, 2);
    assert_eq!(world.set_duty(3, Duty::Shunned), None);
    let owned = || {
        lists(&world)
            .iter()
            .filter(|c| c.of_node(NodeId(3)).any(|(p, _)| p.0 < 4))
            .count()
    };
    assert_eq!(owned(), 4, "parity goes at once, owners are asked");
    world.drain();
    assert_eq!(held_by(&world, 3), 0);
    for list in lists(&world) {
        assert_eq!(list.epoch.0, 2, "one change a list");
    }
}

#[test]
fn two_shunned_nodes_leave_a_list_together_if_it_bears_that() {
    let mut world = with_spares(4, 2, 6, 2);
    assert_eq!(world.set_duty(0, Duty::Shunned), None);
    assert_eq!(world.set_duty(1, Duty::Shunned), None);
    world.drain();
    world.pass(1500);
    for list in lists(&world) {
        // 4+2 with both parities missing bears no missing data, but no write would be taken either.
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
    // Both stay named Live: their next incarnations are awaited.
    world.certify(node(0));
    world.certify(node(1));
    assert_eq!(world.set_duty(node(4), Duty::Shunned), None);
    assert_eq!(
        world.holder(0, 4),
        Some(node(4)),
        "two are lost, a third cannot be spared"
    );
    world.pass(100);
    assert!(
        lists(&world).iter().all(|c| !c.lost),
        "two have ended, and 4+2 covers that"
    );
    settle(&mut world);
    assert_eq!(held_by(&world, node(4)), 0, "then it goes");
    assert!(lists(&world).iter().all(|c| !c.lost));

    let mut world = with_spares(4, 2, 6, 4);
    (0..3).for_each(|p| world.kill(node(p)));
    world.pass(1500);
    let before = lists(&world);
    assert_eq!(world.set_duty(node(4), Duty::Shunned), None);
    world.drain();
    world.pass(1500);
    assert_eq!(lists(&world), before, "three may be behind a partition, and come back");
}

#[test]
fn a_drain_that_cannot_be_is_refused_and_says_why() {
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
    // The second of two, for which nobody is left.
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
        "the spare has got it all, the next incarnation nothing"
    );
    settle(&mut world);
    // But rather it than nobody.
    world.certify(3);
    world.pass(1000);
    assert_eq!(held_by(&world, 2), 6);
    world.restart(3);
    settle(&mut world);
    assert_eq!(held_by(&world, 2), 0, "and only until another comes");
}

#[test]
fn a_node_that_comes_back_gets_what_was_its_own() {
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
fn an_order_taken_back_leaves_the_rest_where_it_is() {
    let mut world = with_spares(4, 2, 6, 1);
    let before = homes(&world);
    assert_eq!(world.set_duty(2, Duty::Draining), None);
    world.drain();
    assert_eq!(world.set_duty(2, Duty::Returning), None);
    settle(&mut world);
    assert_eq!(homes(&world), before);
}

#[test]
fn a_list_that_is_not_whole_keeps_a_drained_node_and_failures_go_first() {
    let mut world = with_spares(4, 2, 6, 2);
    world.kill(4);
    world.pass(1500);
    assert_eq!(world.set_duty(2, Duty::Draining), None);
    world.drain();
    world.pass(300);
    assert_eq!(held_by(&world, 2), 6, "everything waits for what is being rebuilt");
    let waits = world.coordinator.status(world.now()).nodes[2].waits_for.clone();
    assert!(waits.contains("being rebuilt"), "{waits}");
    settle(&mut world);
    assert_eq!(held_by(&world, 2), 0);
}

#[test]
fn a_node_that_is_to_leave_gets_nothing_from_stand_ins() {
    let mut world = with_spares(4, 2, 6, 1);
    assert_eq!(world.set_duty(6, Duty::Draining), None);
    world.certify(1);
    world.pass(600);
    let mut stand_ins = lists(&world).into_iter().map(|c| c.has_stand_ins());
    assert!(!stand_ins.any(|s| s), "rather the leaving spare than a second position");
    assert_eq!(world.set_duty(6, Duty::Draining), None, "the same order again");
    settle(&mut world);
    assert_eq!(held_by(&world, 6), 6, "there is nobody else");
    let waits = world.coordinator.status(world.now()).nodes[6].waits_for.clone();
    assert!(waits.contains("no other node can take it"), "{waits}");
    world.restart(1);
    settle(&mut world);
    assert_eq!(held_by(&world, 6), 0);
}
