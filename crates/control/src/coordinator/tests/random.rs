//! A random walk: nodes end with and without certificates, become silent, return and complete their positions. The
//! coordinator ends too. Every commit is checked against I11 and P10.3 (in `World::event`). After every step no
//! decision may be outstanding.

use super::world::TestNode;
use super::*;
use paritas_base::configuration::Configuration;
use paritas_base::hash_slots::{SlotOrder, SlotTarget};

#[derive(Default)]
struct Marks {
    lost: u32,
    reset: u32,
    commits: u32,
    moves: u32,
    vacant: u32,
    halted: u32,
    stand_ins: u32,
    stand_ins_whole: u32,
    duties: u32,
    slot_orders: u32,
    slots_moved: u32,
    logged_in_memory: u32,
}

/// Asserts, some time after the last event, that no position is vacant while a node is free, and that no ended
/// incarnation holds one.
fn assert_nothing_undone(world: &World) {
    for c in world.coordinator.configurations() {
        let named = |id: u16| c.positions.iter().flatten().any(|a| a.tenure.node.0 == id);
        let halted = |n: &TestNode| n.halted.iter().any(|role| role.list == c.list);
        let logged = |i: usize| world.coordinator.cluster().is_logged(Position(i as u8));
        let is_log = |id: &u16| world.log_nodes.contains(id);
        for i in (0..c.positions.len()).filter(|i| c.positions[*i].is_none() && !c.lost) {
            let fits = |id: &u16| is_log(id) == logged(i) || (logged(i) && world.stand_in);
            let mut nodes = world.nodes.iter();
            let free = nodes.find(|(id, n)| n.alive && !named(**id) && !halted(n) && fits(id));
            assert_eq!(
                free.map(|(id, _)| id),
                None,
                "position {i} is vacant while this node is free: {c:?}"
            );
        }
        // No position may be vacant while a member could stand in.
        if world.stand_in && c.parity > 0 && !c.lost {
            for i in (0..c.positions.len()).filter(|i| c.positions[*i].is_none()) {
                let may = world.nodes.iter().find(|(id, n)| {
                    let mut with = c.clone();
                    with.positions[i] = c.positions.iter().flatten().find(|a| a.tenure.node.0 == **id).copied();
                    n.alive && !is_log(id) && !halted(n) && with.positions[i].is_some() && with.is_within_limits()
                });
                assert_eq!(
                    may.map(|(id, _)| id),
                    None,
                    "position {i} is vacant while this node could stand in: {c:?}"
                );
            }
        }
        for (i, held) in c
            .positions
            .iter()
            .enumerate()
            .filter_map(|(i, held)| Some((i, held.as_ref()?)))
        {
            let node = &world.coordinator.records.nodes[&held.tenure.node];
            assert!(!node.is_over(held.tenure.incarnation), "{c:?}");
            let test = &world.nodes[&held.tenure.node.0];
            let halted = test
                .halted
                .iter()
                .any(|role| (role.list, role.position.index()) == (c.list, i));
            assert!(
                !halted || test.incarnation != held.tenure.incarnation || !test.alive,
                "{c:?}"
            );
        }
    }
}

fn stand_ins(c: &Configuration) -> impl Iterator<Item = Position> {
    (0..c.positions.len() as u8).map(Position).filter(|p| c.is_stand_in(*p))
}

/// Logged positions that are held in memory.
fn in_memory_of_logged<'a>(world: &'a World, c: &'a Configuration) -> impl Iterator<Item = Position> + 'a {
    let logged = |p: &Position| world.coordinator.cluster().is_logged(*p);
    let in_memory = |p: &Position| c.tenure(*p).is_some_and(|t| !world.log_nodes.contains(&t.node.0));
    let all = (0..c.positions.len() as u8).map(Position);
    all.filter(logged).filter(in_memory)
}

fn walk(seed: u64, marks: &mut Marks) {
    let mut prng = Prng::new(seed);
    let (data, parity) = *prng.pick(&[(4, 2), (2, 1), (1, 2), (3, 3), (1, 0), (2, 0), (1, 1), (2, 2)]);
    let logged = if prng.chance(400_000) {
        prng.below(u64::from(parity).max(1)) as u8
    } else {
        0
    };
    let width = u64::from(data + parity);
    let in_memory = width - u64::from(logged);
    let members = prng.between(in_memory, 2 * in_memory) as u16;
    let log_nodes = u16::from(logged) + if logged > 0 { prng.below(3) as u16 } else { 0 };
    let count = members + log_nodes;
    let spares = prng.below(3) as u16;
    let mut plan = plan(data, parity, members, spares).with_log_nodes(logged, log_nodes);
    plan.min_redundancy = prng.below(u64::from(parity) + 1) as u8;
    plan.ack_quorum = prng.between(u64::from(parity.min(1)), u64::from(parity)) as u8;
    if prng.chance(500_000) {
        plan.lost_policy = LostPolicy::Reset;
    }
    let min_redundancy = plan.min_redundancy;
    let resets = plan.lost_policy == LostPolicy::Reset;
    let mut world = World::started(plan);
    if prng.chance(250_000) {
        world = world.without_stand_ins();
    }
    (count..count + spares).for_each(|node| world.start(node));
    let rash = prng.chance(300_000);
    for _ in 0..60 {
        let node = prng.below(u64::from(count + spares)) as u16;
        let alive = world.nodes[&node].alive;
        let down = world.nodes.values().filter(|n| !n.alive).count();
        // Most walks lose no more nodes than the scheme covers. The rash ones do not limit the losses.
        let may_kill = rash || down < usize::from(parity);
        match prng.below(17) {
            0 | 1 if alive && may_kill => world.certify(node),
            2 | 3 if alive && may_kill => world.kill(node),
            4 | 5 if !alive => world.restart(node),
            6 if alive && (rash || parity > 1) => world.restart(node),
            // The node was only silent: the same incarnation is heard again.
            7 if !alive && !world.is_over(node) => {
                world.nodes.get_mut(&node).unwrap().alive = true;
                world.beat_or_register(node);
            }
            8 | 9 => world.rebuild(),
            10 if prng.chance(200_000) => {
                world.reopen();
                let alive: Vec<u16> = world.nodes.iter().filter(|(_, n)| n.alive).map(|(id, _)| *id).collect();
                alive.into_iter().for_each(|node| world.register_again(node));
            }
            10 => world.coordinator.store_mut().fail_commits(prng.below(3) as u32),
            11 if (rash || down == 0) && parity > 1 && prng.chance(300_000) => {
                world.halt(prng.below(u64::from(count)) as u16, prng.below(width) as u8);
                marks.halted += 1;
            }
            11 => world.coordinator.store_mut().lose_answers(prng.below(2) as u32),
            12 => {
                let duty = *prng.pick(&[Duty::Draining, Duty::Shunned, Duty::Returning]);
                marks.duties += u32::from(world.try_duty(node, duty));
            }
            13 => world.drain(),
            14 => {
                let (first, length) = (prng.below(16_384) as u16, prng.below(300) as u16);
                let order = SlotOrder::Move {
                    first,
                    last: first.saturating_add(length).min(16_383),
                    to: SlotTarget::Node(NodeId(node)),
                };
                let order = if prng.chance(100_000) { SlotOrder::GiveUp } else { order };
                marks.slot_orders += u32::from(world.order_slots(order).is_none());
            }
            15 | 16 => {
                for _ in 0..prng.between(1, 4) {
                    let refuses = prng.chance(50_000);
                    world.offer_slots((!refuses).then(|| prng.between(1, 64) as u16));
                    world.pass(1);
                }
            }
            _ => {}
        }
        let pause = prng.between(1, 900);
        let settles = pause >= 800;
        if settles {
            world.coordinator.store_mut().fail_commits(0);
            world.coordinator.store_mut().lose_answers(0);
        }
        world.pass(pause);
        // A coordinator that has just started waits for holders that may still register.
        if settles
            && world.now() >= world.coordinator.suspicion.settled_from()
            && world.coordinator.obstacle().is_none()
        {
            assert_nothing_undone(&world);
        }
    }
    // All ended nodes, and those with a halted role, restart. Then every position has a holder, and becomes Live.
    world.coordinator.store_mut().fail_commits(0);
    world.coordinator.store_mut().lose_answers(0);
    let away: Vec<u16> = world
        .nodes
        .iter()
        .filter(|(_, n)| !n.alive || !n.halted.is_empty())
        .map(|(id, _)| *id)
        .collect();
    away.into_iter().for_each(|node| world.restart(node));
    // First the coordinator must learn the outcome of an earlier commit, and whether its store is the newest.
    while world.now() < world.coordinator.suspicion.settled_from() {
        world.pass(300);
    }
    world.pass(300);
    (0..count + spares).for_each(|node| assert!(world.try_duty(node, Duty::Returning)));
    // Wait until all earlier leases have ended: only then may a lost list begin again, if the policy is reset.
    world.pass(6000);
    // A position of a stand-in moves only when all other positions are Live.
    for _ in 0..60 {
        world.drain();
        world.rebuild();
        world.pass(300);
    }
    if world.coordinator.configurations().all(|c| !c.lost) && min_redundancy < parity {
        let stored = world.coordinator.records.nodes.values();
        for node in stored {
            assert_eq!(node.duty, Duty::Full, "every node has its planned positions: {node:?}");
        }
    }
    for c in world.coordinator.configurations() {
        let whole = c.positions.iter().all(|a| a.is_some_and(|a| a.state.is_live()));
        assert!(
            whole || (c.lost && !resets),
            "{c:?}\n{:?}",
            world.coordinator.records.nodes
        );
        // All nodes are available, so there is no need for stand-ins. But if writes need every parity, a logged
        // position stays in memory.
        let doubled = stand_ins(c).next();
        let stays = logged > 0 && min_redundancy == parity;
        assert!(doubled.is_none() || c.lost || stays, "{doubled:?} of {c:?}");
        let misplaced = |c: &Configuration| in_memory_of_logged(&world, c).next();
        let moves = min_redundancy < parity && !c.lost && c.born.0 == 1;
        assert_eq!(
            misplaced(c).filter(|_| moves),
            None,
            "held in memory while a log node is free: {c:?}"
        );
        marks.lost += u32::from(c.lost);
        marks.reset += u32::from(c.born.0 > 1 && parity > 0);
    }
    marks.commits += world.history.values().map(|h| h.len() as u32).sum::<u32>();
    marks.moves += world.notes.iter().filter(|n| matches!(n, Note::Moved { .. })).count() as u32;
    for c in world.history.values().flatten() {
        marks.stand_ins += stand_ins(c).count() as u32;
        marks.logged_in_memory += in_memory_of_logged(&world, c).count() as u32;
        let live = |p: &Position| c.at(*p).is_some_and(|a| a.state.is_live());
        marks.stand_ins_whole += stand_ins(c).filter(live).count() as u32;
    }
    for (before, after) in world.history.values().flat_map(|h| h.iter().zip(h.iter().skip(1))) {
        let moved = before.slots.version < after.slots.version && before.slots.ranges != after.slots.ranges;
        marks.slots_moved += u32::from(moved);
    }
    marks.vacant += world
        .history
        .values()
        .flatten()
        .filter(|c| c.positions.contains(&None))
        .count() as u32;
}

#[test]
fn random_starts_and_failures_keep_the_invariants() {
    let seed = 0x7061_7269;
    let mut marks = Marks::default();
    for round in 0..400 {
        let walk = std::panic::AssertUnwindSafe(|| walk(seed + round, &mut marks));
        if let Err(why) = std::panic::catch_unwind(walk) {
            eprintln!("SEED={:#x}", seed + round);
            std::panic::resume_unwind(why);
        }
    }
    assert!(
        marks.lost > 0 && marks.reset > 0 && marks.moves > 1000 && marks.vacant > 100 && marks.halted > 50,
        "the walk reaches too few cases"
    );
    assert!(
        marks.stand_ins > 1000 && marks.stand_ins_whole > 100,
        "{} stand-ins, {} whole",
        marks.stand_ins,
        marks.stand_ins_whole
    );
    assert!(
        marks.slot_orders > 300 && marks.slots_moved > 300,
        "{} orders, {} moves of slots",
        marks.slot_orders,
        marks.slots_moved
    );
    assert!(marks.duties > 500, "{} orders", marks.duties);
    let logged = marks.logged_in_memory;
    assert!(logged > 100, "{logged} logged positions in memory");
    eprintln!(
        "seeds {seed:#x}..+400: {} commits, {} moves, {} lost lists",
        marks.commits, marks.moves, marks.lost
    );
}
