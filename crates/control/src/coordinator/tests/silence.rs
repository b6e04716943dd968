//! Tests of silent nodes and broken links (P10.2, P10.9 to P10.13).

use super::rules::{list_where, state};
use super::*;

#[test]
fn a_spare_replaces_a_silent_node() {
    let mut world = World::started(plan(4, 2, 6, 1));
    world.start(6);
    world.kill(2);
    world.pass(800);
    let list = list_where(&world, 2, 0);
    assert_eq!(world.holder(list, 0), Some(2));
    world.pass(800);
    assert_eq!(world.holder(list, 0), Some(6));
    assert!(world.list(list).gone.is_empty(), "silence is no certificate");
}

#[test]
fn a_silent_owner_keeps_its_position_while_no_other_node_is_free() {
    let mut world = World::started(plan(4, 2, 6, 0)).without_stand_ins();
    let (data, parity) = (list_where(&world, 2, 0), list_where(&world, 2, 5));
    let before = world.list(data).epoch;
    world.kill(2);
    world.pass(1600);
    assert_eq!(
        world.list(data).epoch,
        before,
        "a silent owner may still serve, and may return"
    );
    assert_eq!(world.holder(parity, 5), None, "writes of other owners continue");
    world.start(7);
    assert_eq!(world.holder(data, 0), Some(7));
    assert_eq!(world.holder(parity, 5), Some(7));
}

#[test]
fn all_silent_parities_are_removed_if_no_data_is_missing() {
    // P4.5: reads continue without them. With them, reads would wait for their leases.
    let mut world = World::started(plan(4, 2, 6, 0)).without_stand_ins();
    let list = list_where(&world, 4, 4);
    assert_eq!(world.holder(list, 5), Some(5));
    let owners: Vec<_> = (0..4).map(|x| world.list(list).tenure(Position(x))).collect();
    world.kill(4);
    world.kill(5);
    world.pass(1600);
    assert_eq!((world.holder(list, 4), world.holder(list, 5)), (None, None));
    assert!((0..4).all(|x| world.list(list).tenure(Position(x)) == owners[usize::from(x)]));
    // If data is missing too, a parity stays.
    let both = list_where(&world, 4, 3);
    assert_eq!((world.holder(both, 3), world.holder(both, 4)), (Some(4), None));
    assert!(state(&world, both, 5).is_some());
    world.beat(4);
    assert_eq!(
        state(&world, list, 4),
        Some(PositionState::Filling),
        "it returns with a new tenure"
    );
}

#[test]
fn a_silent_node_that_is_heard_again_in_time_keeps_its_positions() {
    let mut world = World::started(plan(4, 2, 6, 1));
    world.start(6);
    let before: Vec<_> = world.coordinator.configurations().cloned().collect();
    world.kill(2);
    world.pass(900);
    world.beat(2);
    world.nodes.get_mut(&2).unwrap().alive = true;
    world.pass(3000);
    assert!(world.coordinator.configurations().eq(&before));
}

#[test]
fn a_fenced_node_that_still_runs_gets_vacancies_as_a_new_tenure() {
    let mut world = World::started(plan(4, 2, 6, 0)).without_stand_ins();
    let list = list_where(&world, 2, 5);
    world.kill(2);
    world.pass(1600);
    assert_eq!(world.holder(list, 5), None);
    world.beat(2);
    let now = world.list(list);
    let held = now.at(Position(5)).unwrap();
    assert_eq!(
        (held.tenure.node, held.tenure.incarnation),
        (NodeId(2), world.incarnation(2)),
        "the incarnation is the same"
    );
    assert_eq!((held.tenure.since, held.state), (now.epoch, PositionState::Filling));
}

#[test]
fn too_many_silent_nodes_keep_their_positions() {
    let mut world = World::started(plan(4, 2, 6, 3));
    (6..9).for_each(|n| world.start(n));
    let before: Vec<_> = world.coordinator.configurations().cloned().collect();
    // One more than the scheme covers, all at once. This is more likely a partition than three failures.
    (1..4).for_each(|n| world.kill(n));
    world.pass(5000);
    assert_eq!(world.coordinator.configurations().cloned().collect::<Vec<_>>(), before);
    for node in 1..4 {
        world.beat(node);
        world.nodes.get_mut(&node).unwrap().alive = true;
    }
    world.pass(1000);
    assert!(world.coordinator.configurations().eq(&before));
}

#[test]
fn a_silent_third_node_is_not_fenced_after_two_real_failures() {
    // H23: after two crashes a suspicion must not cause the third loss.
    let mut world = World::started(plan(4, 2, 6, 0));
    world.restart(0);
    world.restart(1);
    let data = list_where(&world, 2, 2);
    let before = world.list(data).tenure(Position(2));
    world.kill(2);
    world.pass(3000);
    assert_eq!(world.list(data).tenure(Position(2)), before);
    assert!(world.coordinator.configurations().all(|c| !c.lost));
}

/// A cluster in which n2 has just died, a list of which it held position 0, and who holds the parity of that list.
fn with_a_dead_owner() -> (World, u16, u16) {
    let mut world = World::started(plan(4, 1, 8, 1));
    world.start(8);
    let list = list_where(&world, 2, 0);
    let parity = world.holder(list, 4).unwrap();
    world.kill(2);
    world.pass(800);
    (world, list, parity)
}

#[test]
fn a_holder_that_died_just_before_does_not_protect_a_removal() {
    let (mut world, list, parity) = with_a_dead_owner();
    let before = world.list(list);
    world.tick(450);
    // It dies just after its vote, before the others vote, and is not silent until long after that.
    world.beat(parity);
    world.kill(parity);
    world.pass(600);
    assert_eq!(world.list(list), before, "who protects the list is not known yet");
    world.certify(parity);
    world.pass(100);
    assert!(!world.list(list).lost);
    assert_eq!(world.list(list).tenure(Position(0)), before.tenure(Position(0)));
}

#[test]
fn nor_does_one_whose_heartbeat_was_held_up() {
    let (mut world, list, parity) = with_a_dead_owner();
    let before = world.list(list);
    world.kill(parity);
    world.pass(600);
    // It sent this one before it died.
    world.beat(parity);
    world.pass(200);
    assert_eq!(world.list(list), before, "who protects the list is not known yet");
}

#[test]
fn a_holder_that_only_its_peers_hear_protects_a_removal() {
    let mut world = World::started(plan(4, 1, 8, 1));
    world.start(8);
    let list = list_where(&world, 2, 0);
    let parity = world.holder(list, 4).unwrap();
    world.cut_off(parity);
    world.pass(500);
    world.kill(2);
    world.pass(1900);
    assert_eq!(
        world.holder(list, 0),
        Some(2),
        "its peers may have heard the other before this one died"
    );
    world.pass(1500);
    assert_eq!(world.holder(list, 0), Some(8));
    assert_eq!(world.holder(list, 4), Some(parity));
}

#[test]
fn a_blocked_removal_is_done_once_redundancy_is_restored() {
    let mut world = World::started(plan(4, 2, 6, 1)).without_stand_ins();
    world.restart(0);
    world.restart(1);
    world.kill(2);
    world.pass(1500);
    assert!(
        (0..6).any(|list| (0..6).any(|p| world.holder(list, p) == Some(2))),
        "the removal is blocked"
    );
    world.start(6);
    world.rebuild();
    world.pass(500);
    assert!((0..6).all(|list| (0..6).all(|p| world.holder(list, p) != Some(2))));
}

#[test]
fn without_parity_a_silent_node_keeps_its_position() {
    let mut world = World::started(plan(1, 0, 1, 1));
    world.start(1);
    let before = world.list(0);
    world.kill(0);
    world.pass(5000);
    assert_eq!(world.list(0), before, "its data may return");
}

#[test]
fn a_new_coordinator_fences_no_node_during_its_grace_time() {
    let mut world = World::started(plan(4, 2, 6, 1));
    world.start(6);
    world.pass(300);
    world.reopen();
    let before: Vec<_> = world.coordinator.configurations().cloned().collect();
    world.kill(2);
    // All nodes except the dead one register again, the last of them late.
    world.tick(2_000);
    for node in [0, 1, 3, 4, 5, 6] {
        world.register_again(node);
    }
    world.pass(4_800);
    assert!(world.coordinator.configurations().eq(&before));
    world.pass(1_000);
    assert!(
        !world.coordinator.configurations().eq(&before),
        "after the grace time it decides"
    );
}

#[test]
fn a_coordinator_that_was_paused_suspects_no_node() {
    let mut world = World::started(plan(4, 2, 6, 1));
    world.start(6);
    let before: Vec<_> = world.coordinator.configurations().cloned().collect();
    world.sleep(60_000);
    world.event(CoordinatorEvent::Timer);
    assert!(world.coordinator.nodes().all(|n| n.state == NodeState::Up));
    world.pass(2000);
    assert!(world.coordinator.configurations().eq(&before));
}

#[test]
fn a_dead_node_is_not_shown_up_after_a_pause_of_the_coordinator() {
    let mut world = World::started(plan(4, 2, 6, 1));
    world.start(6);
    let shown = |world: &World| {
        let status = world.coordinator.status(world.now());
        let node = status.nodes.into_iter().find(|n| n.id == NodeId(2)).unwrap();
        (node.state, node.positions)
    };
    world.kill(2);
    world.pass(3000);
    assert_eq!(shown(&world), (NodeCondition::Down, 0), "the spare has its positions");
    let before: Vec<_> = world.coordinator.configurations().cloned().collect();
    // The second pause begins before the silence has lasted for a suspicion time since the first.
    for _ in 0..2 {
        world.sleep(700);
        for _ in 0..8 {
            world.event(CoordinatorEvent::Timer);
            assert_eq!(shown(&world), (NodeCondition::Down, 0));
            let down = world.coordinator.nodes().filter(|n| n.state == NodeState::Down);
            assert_eq!(down.map(|n| n.id).collect::<Vec<_>>(), [NodeId(2)]);
            world.pass(100);
        }
    }
    assert!(world.coordinator.configurations().eq(&before));
    world.beat(2);
    assert_eq!(shown(&world), (NodeCondition::Spare, 0), "it is heard again");
}

#[test]
fn a_node_with_a_stuck_shard_counts_as_silent() {
    let mut world = World::started(plan(4, 2, 6, 1));
    world.start(6);
    let shards = |turns| {
        vec![ShardProgress {
            shard: 0,
            turns,
            ..ShardProgress::default()
        }]
    };
    for turn in 0..10 {
        world.pass(200);
        world.beat_with(2, shards(turn));
    }
    let list = list_where(&world, 2, 0);
    // Its peers receive no frames from it.
    world.kill(2);
    for _ in 0..8 {
        world.pass(200);
        world.beat_with(2, shards(9));
    }
    assert_eq!(world.holder(list, 0), Some(6));
}

#[test]
fn of_a_broken_link_the_node_that_most_peers_report_is_removed() {
    let mut world = World::started(plan(4, 2, 6, 1));
    world.start(6);
    for _ in 0..8 {
        world.pass(200);
        [0, 1, 3].into_iter().for_each(|from| world.report(from, 2));
        world.report(2, 0);
    }
    let to_itself = |n: &Note| matches!(n, Note::Moved { from, to, .. } if from == to);
    assert!(!world.notes.iter().any(to_itself));
    for list in 0..6 {
        let roles: Vec<bool> = [0, 1, 3]
            .map(|n| (4..6).any(|p| world.history[&ListId(list)][0].tenure(Position(p)).unwrap().node.0 == n))
            .to_vec();
        let was_parity = (4..6).any(|p| world.history[&ListId(list)][0].tenure(Position(p)).unwrap().node.0 == 2);
        let shares = roles.iter().any(|parity| *parity != was_parity);
        let named = (0..6).any(|p| world.holder(list, p) == Some(2));
        assert_eq!(named, !shares, "list {list}");
    }
}

#[test]
fn with_equal_reports_the_parity_end_of_a_broken_link_is_removed() {
    let mut world = World::started(plan(4, 2, 6, 0)).without_stand_ins();
    let list = list_where(&world, 2, 5);
    let owner = world.holder(list, 0).unwrap();
    for _ in 0..8 {
        world.pass(200);
        world.report(owner, 2);
        world.report(2, owner);
    }
    assert_eq!(world.holder(list, 5), None);
    assert_eq!(world.holder(list, 0), Some(owner));
    world.pass(5000);
    assert_eq!(
        world.holder(list, 5),
        None,
        "it must not get the position again at once"
    );
    world.pass(6000);
    assert_eq!(world.holder(list, 5), Some(2));
}

/// The peers of a process that has ended reported its links until it was removed.
#[test]
fn a_new_process_is_not_removed_for_the_links_of_the_one_before() {
    let mut world = World::started(plan(4, 2, 6, 0)).without_stand_ins();
    let list = list_where(&world, 2, 5);
    let owner = world.holder(list, 0).unwrap();
    world.kill(2);
    for _ in 0..12 {
        world.pass(200);
        world.report(owner, 2);
    }
    assert_eq!(world.holder(list, 5), None);
    world.start(2);
    world.rebuild();
    assert_eq!(world.holder(list, 5), Some(2));
    for _ in 0..10 {
        world.pass(100);
        assert_eq!(world.holder(list, 5), Some(2));
    }
}

/// Otherwise a short link failure between two running nodes, at the time when a third node fails, would cost the
/// redundancy that the loss of a fourth node needs.
#[test]
fn a_broken_link_waits_while_another_position_is_missing() {
    let mut world = World::started(plan(4, 2, 6, 0));
    let list = list_where(&world, 2, 5);
    let (owner, first, second) = (
        world.holder(list, 0).unwrap(),
        world.holder(list, 1).unwrap(),
        world.holder(list, 2).unwrap(),
    );
    let broken = |world: &mut World, times: u64| {
        for _ in 0..times {
            world.pass(200);
            world.report(owner, 2);
            world.report(2, owner);
        }
    };
    broken(&mut world, 4);
    world.certify(first);
    broken(&mut world, 6);
    assert_eq!(world.holder(list, 5), Some(2), "the removal waits");
    world.certify(second);
    assert!(!world.list(list).lost);
    broken(&mut world, 16);
    assert_eq!(
        world.holder(list, 5),
        Some(2),
        "the list could not be rebuilt without it"
    );

    let mut world = World::started(plan(4, 2, 6, 0));
    world.certify(first);
    broken(&mut world, 8);
    assert_eq!(world.holder(list, 5), Some(2));
    broken(&mut world, 16);
    assert_ne!(world.holder(list, 5), Some(2), "the link counts as permanently broken");
}

#[test]
fn a_holder_that_died_just_before_does_not_protect_a_removal_for_a_broken_link() {
    let mut deaths = 0;
    for step in 0..20 {
        let mut world = World::started(plan(4, 1, 8, 1));
        world.start(8);
        let list = list_where(&world, 2, 4);
        let (owner, other) = (world.holder(list, 0).unwrap(), world.holder(list, 1).unwrap());
        for at in 0..20 {
            if at == step && world.holder(list, 4) == Some(2) {
                deaths += 1;
                world.kill(other);
            }
            world.pass(100);
            world.report(owner, 2);
            world.report(2, owner);
        }
        if world.has_died(other) {
            world.certify(other);
            world.pass(100);
            assert!(!world.list(list).lost, "it died in step {step}");
        }
    }
    assert!((5..20).contains(&deaths), "{deaths} died before the removal");
}

#[test]
fn a_short_link_failure_changes_nothing() {
    let mut world = World::started(plan(4, 2, 6, 1));
    let before: Vec<_> = world.coordinator.configurations().cloned().collect();
    for _ in 0..4 {
        world.pass(200);
        world.report(0, 2);
    }
    world.pass(5000);
    assert!(world.coordinator.configurations().eq(&before));
}

#[test]
fn a_second_process_is_not_accepted_while_a_peer_hears_the_first() {
    let mut world = World::started(plan(4, 2, 6, 0));
    world.pass(5000);
    // Only the coordinator does not hear it; its peers do.
    world.cut_off(3);
    world.pass(5000);
    let link = world.connect();
    let second = world.offer(link, 3, Incarnation(99_000));
    assert!(matches!(second, Err(Refusal::Running)), "{second:?}");
    // It has ended: no peer hears it.
    world.kill(3);
    world.pass(5000);
    let link = world.connect();
    let second = world.offer(link, 3, Incarnation(99_000));
    assert!(second.is_ok(), "{second:?}");
}

#[test]
fn a_second_process_is_not_accepted_while_the_first_asks_to_register() {
    let mut world = World::started(plan(4, 2, 6, 0));
    world.pass(5000);
    let first = world.incarnation(3);
    // No peer hears it, and it is not registered.
    world.kill(3);
    world.pass(5000);
    let link = world.connect();
    assert!(world.offer(link, 3, first).is_ok());
    let link = world.connect();
    let second = world.offer(link, 3, Incarnation(99_000));
    assert!(matches!(second, Err(Refusal::Running)), "{second:?}");
    // It asks no more.
    world.pass(5000);
    let second = world.offer(link, 3, Incarnation(99_000));
    assert!(second.is_ok(), "{second:?}");
}

/// A second process of node 3 asks again and again, as an agent does. Returns whether it is taken in.
fn second_asks(world: &mut World, ms: u64) -> bool {
    for _ in 0..ms / 500 {
        world.pass(500);
        let link = world.connect();
        match world.offer(link, 3, Incarnation(99_000)) {
            Ok(_) => return true,
            Err(refusal) => assert_eq!(refusal, Refusal::Running),
        }
    }
    false
}

#[test]
fn a_second_process_does_not_turn_a_pause_into_a_loss() {
    let mut world = World::started(plan(4, 2, 6, 0));
    world.pass(5000);
    // Two nodes have ended, so the lists need the third one, which stands still.
    world.kill(3);
    world.certify(0);
    world.certify(1);
    let is_taken_in = second_asks(&mut world, 10_000);
    assert!(!is_taken_in, "the first one holds positions");
    assert!(world.coordinator.configurations().all(|list| !list.lost));
    let words = world.coordinator.status(world.now()).coordinator.join("\n");
    assert!(words.contains("`paritas fence 3`"), "{words}");
    let holds = |list: &Configuration| list.of_node(NodeId(3)).next().is_some();
    assert!(world.coordinator.configurations().any(holds));
}

#[test]
fn a_second_process_gets_the_place_when_the_lists_can_do_without_the_first() {
    for world in [
        World::started(plan(4, 2, 6, 0)),
        World::started(plan(4, 2, 6, 0)).without_stand_ins(),
    ] {
        let mut world = world;
        world.pass(5000);
        world.kill(3);
        assert!(second_asks(&mut world, 5000), "{:?}", world.list(0));
        // It has registered by a heartbeat, and holds positions again.
        world.nodes.remove(&3);
        world.restart(3);
        let holds = |list: &Configuration| list.of_node(NodeId(3)).next().is_some();
        assert!(world.coordinator.configurations().any(holds), "{:?}", world.list(0));
        assert!(world.coordinator.configurations().all(|list| !list.lost));
    }
}

/// One list needs the first process, so the second one may wait for an operator. The others must not wait with it.
#[test]
fn positions_go_to_free_nodes_while_a_second_process_waits() {
    let mut world = World::started(plan(2, 1, 8, 0));
    world.pass(5000);
    let holds = |list: &Configuration, node: u16| list.of_node(NodeId(node)).next().is_some();
    // Node 3 and the other one share a list, which has one parity.
    let shared = world.coordinator.configurations().find(|list| holds(list, 3)).cloned();
    let other = shared
        .unwrap()
        .positions
        .iter()
        .flatten()
        .find(|a| a.tenure.node != NodeId(3))
        .unwrap()
        .tenure
        .node;
    world.kill(3);
    world.kill(other.0);
    assert!(!second_asks(&mut world, 10_000), "a list needs the first one");
    assert!(
        world
            .coordinator
            .configurations()
            .any(|list| holds(list, 3) && holds(list, other.0))
    );
    for list in world.coordinator.configurations() {
        let needs_it = holds(list, 3) && holds(list, other.0);
        assert!(needs_it || list.positions.iter().all(Option::is_some), "{list:?}");
        assert!(needs_it || !holds(list, 3), "{list:?}");
    }
}

#[test]
fn a_second_process_that_asks_once_keeps_no_place_vacant() {
    let mut world = World::started(plan(4, 2, 6, 0));
    world.pass(5000);
    world.kill(3);
    let link = world.connect();
    world.pass(700);
    assert_eq!(world.offer(link, 3, Incarnation(99_000)), Err(Refusal::Running));
    world.pass(5000);
    let named = |list: &Configuration| {
        list.positions
            .iter()
            .all(|held| held.is_some_and(|a| a.tenure.node != NodeId(3)))
    };
    assert!(world.coordinator.configurations().all(named), "{:?}", world.list(0));
}
