//! Tests of the removal of slow nodes (P10.2a): they are removed without an order, and do not return too soon.

use super::*;

/// A cluster that removes nodes whose acks take longer than 20 ms.
fn watching(nodes: u16, spares: u16) -> World {
    let mut world = World::started(plan(4, 2, nodes, spares));
    (nodes..nodes + spares).for_each(|node| world.start(node));
    world.slow_removal = Some(Span::from_ms(20));
    world.coordinator.set_slow_removal(world.slow_removal);
    world
}

/// Lets this number of seconds pass. `delay` gives the ack delay of a node in a second, in microseconds. Nodes without
/// positions send no acks. Owners drain on request, and moved positions become Live.
fn pass(world: &mut World, seconds: u64, delay: impl Fn(u64, u16) -> u64) {
    for second in 0..seconds {
        for _ in 0..4 {
            world.tick(250);
            let ids: Vec<u16> = world.nodes.keys().copied().collect();
            let held = |node: u16| {
                world
                    .coordinator
                    .configurations()
                    .any(|c| c.of_node(NodeId(node)).next().is_some())
            };
            let delays: Vec<(NodeId, u64)> = ids
                .iter()
                .filter(|node| held(**node))
                .map(|node| (NodeId(*node), delay(second, *node)))
                .collect();
            for node in &ids {
                let shard = ShardProgress {
                    turns: world.now().0,
                    ack_us: delays.iter().copied().filter(|(peer, _)| peer.0 != *node).collect(),
                    ..ShardProgress::default()
                };
                world.beat_with(*node, vec![shard]);
            }
            world.drain();
            world.rebuild();
        }
    }
}

fn duty(world: &World, node: u16) -> Duty {
    world.coordinator.records.nodes[&NodeId(node)].duty
}

fn moves(world: &World) -> usize {
    world.notes.iter().filter(|n| matches!(n, Note::Moved { .. })).count()
}

/// 30 ms for one node, 1 ms for all others.
fn slow(which: u16) -> impl Fn(u64, u16) -> u64 {
    move |_, node| if node == which { 30_000 } else { 1_000 }
}

#[test]
fn a_slow_node_is_removed_and_tried_again_later() {
    let mut world = watching(6, 1);
    let before: Vec<_> = (0..6).map(|list| world.list(list).positions).collect();
    pass(&mut world, 4, slow(3));
    assert_eq!(
        (duty(&world, 3), moves(&world)),
        (Duty::Full, 0),
        "the node must not be removed at once"
    );
    pass(&mut world, 3, slow(3));
    assert_eq!(duty(&world, 3), Duty::Slow);
    let held = |world: &World| {
        world
            .coordinator
            .configurations()
            .filter(|c| c.of_node(NodeId(3)).count() > 0)
            .count()
    };
    assert_eq!(held(&world), 0);
    assert_eq!(world.coordinator.status(world.now()).nodes[3].duty, Duty::Slow);
    pass(&mut world, 70, |_, _| 1_000);
    assert_eq!(duty(&world, 3), Duty::Full, "the node has recovered");
    for (list, positions) in before.iter().enumerate() {
        let now = world.list(list as u16);
        let nodes = |p: &[Option<paritas_base::configuration::Assignment>]| -> Vec<_> {
            p.iter().flatten().map(|a| a.tenure.node).collect()
        };
        assert_eq!(nodes(&now.positions), nodes(positions));
    }
}

#[test]
fn a_node_that_stays_slow_is_moved_less_and_less_often() {
    let mut world = watching(6, 1);
    pass(&mut world, 1000, slow(3));
    // The node is removed after 5 s, then for 1, 2, 4 and 8 minutes. Each time six positions leave and six return.
    let out = world
        .notes
        .iter()
        .filter(|n| matches!(n, Note::Duty { duty: Duty::Slow, .. }))
        .count();
    assert!((3..=5).contains(&out), "{out} times");
    assert!(moves(&world) <= out * 12, "{} moves", moves(&world));
}

#[test]
fn no_node_is_removed_for_short_delays_in_a_slow_cluster_or_without_the_setting() {
    // Slow for two of every four seconds.
    let mut world = watching(6, 1);
    pass(&mut world, 120, |second, node| {
        if node == 3 && second % 4 < 2 { 80_000 } else { 1_000 }
    });
    assert_eq!(moves(&world), 0, "delays are short");
    let mut world = watching(6, 1);
    pass(&mut world, 60, |_, node| if node == 3 { 60_000 } else { 25_000 });
    assert_eq!(moves(&world), 0, "all nodes are slow, one a little more");
    let mut world = watching(6, 1);
    pass(&mut world, 60, |_, node| if node == 3 { 15_000 } else { 200 });
    assert_eq!(
        moves(&world),
        0,
        "one node is much slower than others, but below the limit"
    );
    let mut world = watching(6, 1);
    world.coordinator.set_slow_removal(None);
    pass(&mut world, 60, slow(3));
    assert_eq!(moves(&world), 0, "the setting is off");
    let mut world = watching(6, 0);
    pass(&mut world, 60, slow(3));
    assert_eq!(
        (moves(&world), duty(&world, 3)),
        (0, Duty::Full),
        "no other node is free"
    );
}

#[test]
fn of_two_slow_nodes_one_is_removed_at_a_time() {
    let mut world = watching(6, 2);
    pass(
        &mut world,
        50,
        |_, node| if node == 3 || node == 4 { 30_000 } else { 1_000 },
    );
    let slow = [3, 4].map(|node| duty(&world, node) == Duty::Slow);
    assert!(slow[0] != slow[1], "{slow:?}");
}

#[test]
fn a_restarted_coordinator_lets_a_slow_node_return_after_the_wait() {
    let mut world = watching(6, 1);
    pass(&mut world, 8, slow(3));
    assert_eq!(duty(&world, 3), Duty::Slow);
    world.reopen();
    (0..7).for_each(|node| world.register_again(node));
    pass(&mut world, 30, |_, _| 1_000);
    assert_eq!(duty(&world, 3), Duty::Slow);
    pass(&mut world, 45, |_, _| 1_000);
    assert_eq!(duty(&world, 3), Duty::Full);
}
