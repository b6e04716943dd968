//! A test for each rule, over real messages, and a random walk.

mod history;
mod leave;
mod log_nodes;
mod lost;
mod moves;
mod orders;
mod random;
mod rules;
mod silence;
mod slot_moves;
mod slow;
mod stand_in;
mod upgrade;
mod world;

use super::*;
use crate::message::{MESSAGE_VERSION, Refusal, Registered, TO_COORDINATOR_BYTES_MAX, ToCoordinator, decode};
use crate::plan::LostPolicy;
use crate::status::{FillStatus, HaltedRole, LogStatus, ScrubStatus, ShardProgress};
use crate::status::{NodeCondition, PositionCondition, RoleStatus};
use crate::store::MemoryStore;
use paritas_base::configuration::{NodeRole, PositionState, Tenure};
use paritas_base::{ClusterId, Epoch, Incarnation, ListId, Position, Prng};
use std::collections::{BTreeMap, BTreeSet};
use world::{World, plan};

#[test]
fn lists_begin_only_when_every_planned_node_has_registered() {
    let mut world = World::new(plan(2, 1, 3, 1));
    world.start(0);
    world.start(1);
    world.start(3);
    assert_eq!(world.coordinator.configurations().count(), 0);
    world.start(2);
    assert_eq!(world.coordinator.configurations().count(), 6);
    for c in world.coordinator.configurations() {
        assert!(
            c.positions
                .iter()
                .flatten()
                .all(|a| c.is_born(&a.tenure) && a.state.is_live())
        );
        assert!(
            c.positions
                .iter()
                .flatten()
                .all(|a| a.tenure.incarnation == world.incarnation(a.tenure.node.0))
        );
    }
    assert!(world.notes.contains(&Note::Bootstrapped));
}

#[test]
fn a_registration_counts_only_when_its_nonce_is_repeated() {
    let mut world = World::started(plan(2, 1, 3, 1));
    let before: Vec<_> = world.coordinator.nodes().cloned().collect();
    // A process that ends before it has read the answer never repeats the nonce.
    let link = world.connect();
    let nonce = world.offer(link, 3, Incarnation(777)).unwrap().nonce;
    world.tick(100);
    world.say(
        link,
        &ToCoordinator::Heartbeat {
            nonce: nonce ^ 1,
            shards: vec![],
            silent: vec![],
            opinions: None,
        },
    );
    assert_eq!(world.received(link), [ToAgent::Refused(Refusal::RegisterAgain)]);
    assert!(world.coordinator.nodes().eq(&before));
    world.beat(0);
    assert_eq!(world.received_by(0), [ToAgent::Heard]);
}

#[test]
fn a_heartbeat_of_an_older_registration_counts_for_nothing() {
    let mut world = World::started(plan(2, 1, 3, 0));
    let old = world.nodes[&0].clone();
    world.register_again(0);
    world.say(
        old.link,
        &ToCoordinator::Heartbeat {
            nonce: old.nonce,
            shards: vec![],
            silent: vec![],
            opinions: None,
        },
    );
    assert_eq!(world.received(old.link), [ToAgent::Refused(Refusal::RegisterAgain)]);
}

#[test]
fn registering_the_same_incarnation_again_changes_no_list() {
    let mut world = World::started(plan(2, 1, 3, 0));
    let before: Vec<_> = world.coordinator.configurations().cloned().collect();
    world.register_again(1);
    assert!(world.coordinator.configurations().eq(&before));
}

#[test]
fn an_incarnation_that_was_replaced_may_not_register_or_beat() {
    let mut world = World::started(plan(2, 1, 3, 0));
    let old = world.nodes[&0].clone();
    world.restart(0);
    world.say(
        old.link,
        &ToCoordinator::Heartbeat {
            nonce: old.nonce,
            shards: vec![],
            silent: vec![],
            opinions: None,
        },
    );
    assert_eq!(
        world.received(old.link).pop(),
        Some(ToAgent::Refused(Refusal::IncarnationEnded))
    );
    let link = world.connect();
    assert_eq!(
        world.offer(link, 0, old.incarnation).unwrap_err(),
        Refusal::IncarnationEnded
    );
}

#[test]
fn an_invalid_registration_is_refused_with_the_reason() {
    let mut world = World::started(plan(2, 1, 3, 0));
    let link = world.connect();
    let refused = |world: &mut World, change: fn(&mut Registration)| {
        let mut registration = world::registration(0, Incarnation(999));
        change(&mut registration);
        world.say(link, &ToCoordinator::Register(Box::new(registration)));
        match world.received(link).pop() {
            Some(ToAgent::Refused(refusal)) => refusal,
            other => panic!("{other:?}"),
        }
    };
    let here = ClusterId(1);
    assert_eq!(
        refused(&mut world, |r| r.cluster = Some(ClusterId(2))),
        Refusal::WrongCluster { here }
    );
    assert!(matches!(
        refused(&mut world, |r| r.peer_address = "x".repeat(256)),
        Refusal::Limit(_)
    ));
    assert!(matches!(
        refused(&mut world, |r| r.domain = Some(String::new())),
        Refusal::Limit(_)
    ));
    assert_eq!(
        refused(&mut world, |r| r.domain = Some("rack 9".into())),
        Refusal::WrongDomain { planned: "0".into() }
    );
    let text = Refusal::WrongDomain { planned: "0".into() }.to_string();
    assert!(
        text.contains("set domain = \"0\"") && text.contains("leave domain out"),
        "{text}"
    );
    assert_eq!(refused(&mut world, |_| {}), Refusal::Running);
    let ahead = |r: &mut Registration| {
        r.node = NodeId(9);
        r.installed = vec![(ListId(0), Epoch(99), 1)];
    };
    assert_eq!(refused(&mut world, ahead), Refusal::StoreIsBehind { list: ListId(0) });
}

#[test]
fn invalid_bytes_close_the_link_and_change_nothing() {
    let mut world = World::started(plan(2, 1, 3, 0));
    let link = world.connect();
    world.event(CoordinatorEvent::Message {
        link,
        by: Speaker::Operator,
        bytes: &[1, 2, 3],
    });
    assert_eq!(world.closed, [link]);
    let link = world.connect();
    let mut frame = encode(&ToCoordinator::Status { n: 1 }, TO_COORDINATOR_BYTES_MAX).unwrap();
    frame[8] = 9;
    let crc = crc32c::crc32c(&frame[8..]);
    frame[4..8].copy_from_slice(&crc.to_le_bytes());
    world.event(CoordinatorEvent::Message {
        link,
        by: Speaker::Operator,
        bytes: &frame,
    });
    assert_eq!(
        world.received(link),
        [ToAgent::Refused(Refusal::Version { here: MESSAGE_VERSION })]
    );
}

#[test]
fn a_certificate_counts_only_from_the_announced_supervisor() {
    let mut world = World::started(plan(2, 1, 3, 0));
    let incarnation = world.incarnation(0);
    let stranger = world.connect();
    world.say(
        stranger,
        &ToCoordinator::Exited {
            node: NodeId(0),
            incarnation,
        },
    );
    world.say(
        stranger,
        &ToCoordinator::Supervise {
            node: NodeId(1),
            incarnation,
        },
    );
    world.say(
        stranger,
        &ToCoordinator::Exited {
            node: NodeId(0),
            incarnation,
        },
    );
    let note = Note::Unvouched {
        node: NodeId(0),
        incarnation,
    };
    assert_eq!(world.notes.iter().filter(|n| **n == note).count(), 2);
    assert!(world.coordinator.nodes().all(|n| n.state == NodeState::Up));
}

#[test]
fn only_committed_changes_are_sent() {
    let mut world = World::started(plan(2, 1, 3, 0));
    world.certify(0);
    world.received_by(1);
    world.coordinator.store_mut().fail_commits(1);
    let epoch = world.list(0).epoch;
    world.restart(0);
    assert_eq!(world.list(0).epoch, epoch);
    assert!(world.received_by(1).is_empty());
    assert!(world.notes.iter().any(|n| matches!(n, Note::StoreFailed(_))));
    world.tick(300);
    assert!(world.list(0).epoch > epoch, "the decision must be repeated");
    assert!(
        world
            .received_by(1)
            .iter()
            .any(|m| matches!(m, ToAgent::Configurations(_)))
    );
}

#[test]
fn a_commit_with_a_lost_answer_is_read_again_and_sent() {
    let mut world = World::started(plan(2, 1, 3, 0));
    world.certify(0);
    world.received_by(1);
    world.coordinator.store_mut().lose_answers(1);
    let epoch = world.list(0).epoch.0;
    world.restart(0);
    assert!(
        world.received_by(1).is_empty(),
        "the outcome of the commit is not known yet"
    );
    world.tick(250);
    assert_eq!(world.list(0).epoch.0, epoch + 1, "the commit took effect");
    let told = world.received_by(1);
    let told = told
        .iter()
        .any(|m| matches!(m, ToAgent::Configurations(c) if c.contains(&world.list(0))));
    assert!(told);
    world.tick(1000);
    assert_eq!(world.coordinator.ending(), None);
}

#[test]
fn a_deposed_coordinator_commits_and_answers_nothing() {
    let mut world = World::started(plan(2, 1, 3, 0));
    let mut store = world.coordinator.store_mut().clone();
    Coordinator::open(store.clone(), &world.plan, 5).unwrap();
    // The store in the state in which the other coordinator left it.
    std::mem::swap(world.coordinator.store_mut(), &mut store);
    let other = Coordinator::open(world.coordinator.store_mut().clone(), &world.plan, 6)
        .unwrap()
        .into_store();
    *world.coordinator.store_mut() = other;
    let epoch = world.list(0).epoch;
    world.certify(0);
    assert_eq!(world.coordinator.ending(), Some(Ending::Deposed));
    assert_eq!(world.list(0).epoch, epoch);
    world.beat(1);
    assert_eq!(world.received_by(1).pop(), Some(ToAgent::Refused(Refusal::Deposed)));
}

#[test]
fn a_restarted_coordinator_continues_with_the_stored_lists() {
    let mut world = World::started(plan(2, 1, 3, 0));
    let before: Vec<_> = world.coordinator.configurations().cloned().collect();
    world.reopen();
    assert!(world.coordinator.configurations().eq(&before));
    world.register_again(0);
    let answer = world.last_registered.clone().unwrap();
    assert_eq!(answer.configurations, [], "they are sent once enough nodes know them");
    world.register_again(1);
    for node in 0..2 {
        let heard = world.received_by(node);
        let told = heard.into_iter().find_map(|m| match m {
            ToAgent::Configurations(told) => Some(told),
            _ => None,
        });
        assert_eq!(told.as_ref(), Some(&before));
    }
    assert_eq!(answer.cluster, *world.coordinator.cluster());
}

#[test]
fn status_reports_nodes_lists_rebuild_and_memory() {
    let mut world = World::started(plan(2, 1, 3, 1));
    world.start(3);
    let shard = |turns: u64, done| ShardProgress {
        shard: 0,
        turns,
        objects: 10,
        user_bytes: 1000,
        memory_bytes: 5000,
        by_kind: vec![("data".into(), 3000), ("index".into(), 2000)],
        rebuild_done_bytes: done,
        rebuild_total_bytes: 4_000_000,
        scrub: ScrubStatus::default(),
        halted: vec![],
        ack_us: vec![],
        fill: FillStatus {
            limit_bytes: 8000,
            used_bytes: 3000,
            writable_bytes: 6000,
            refused_writes: 5,
            evicted_keys: 6,
        },
        log: Some(LogStatus {
            chunks: 3,
            chunks_max: 100,
        }),
    };
    world.beat_with(0, vec![shard(1, 0)]);
    world.tick(500);
    world.beat_with(0, vec![shard(2, 1_000_000)]);
    world.certify(2);
    let link = world.connect();
    world.say(link, &ToCoordinator::Status { n: 7 });
    let Some(ToAgent::StatusReport { n: 7, status }) = world.received(link).pop() else {
        panic!("no report")
    };
    assert_eq!(status.nodes.len(), 4);
    assert_eq!(
        status.nodes[0].log.map(|log| (log.chunks, log.chunks_max)),
        Some((3, 100))
    );
    assert_eq!(status.nodes[1].log, None);
    let fill = status.nodes[0].fill;
    assert_eq!(
        (fill.limit_bytes, fill.percent(), fill.refused_writes, fill.evicted_keys),
        (8000, 50, 5, 6)
    );
    assert_eq!(fill.unreachable_above(1), None);
    assert_eq!(
        (status.nodes[0].state, status.nodes[0].memory_bytes),
        (NodeCondition::Live, 5000)
    );
    assert_eq!((status.nodes[0].address.as_str(), status.nodes[0].pid), ("h:1000", 100));
    assert_eq!(status.nodes[1].peer_address, "h:3001");
    assert_eq!(status.nodes[2].state, NodeCondition::Down);
    assert_eq!(
        (status.nodes[3].state, status.nodes[3].role),
        (NodeCondition::Spare, RoleStatus::Spare)
    );
    assert_eq!(status.memory.by_kind["index"], 2000);
    assert_eq!((status.memory.objects, status.memory.user_bytes), (10, 1000));
    assert_eq!(
        (status.rebuild.done_bytes, status.rebuild.total_bytes),
        (1_000_000, 4_000_000)
    );
    assert_eq!(status.rebuild.bytes_per_second, 2_000_000);
    assert_eq!(status.rebuild.eta_seconds, Some(1));
    let list = &status.lists[0];
    assert_eq!(list.positions[0].state, PositionCondition::Live);
    assert_eq!(list.positions[2].state, PositionCondition::Down);
    assert!(list.reason.contains("silent"));
}

#[test]
fn an_unplanned_node_is_a_spare() {
    let mut world = World::started(plan(2, 1, 3, 0));
    world.start(17);
    let node = world.coordinator.nodes().find(|n| n.id == NodeId(17)).unwrap();
    assert_eq!((node.role, node.domain.as_str()), (NodeRole::Spare, "17"));
}

#[test]
fn the_newest_configuration_is_sent_on_request() {
    let mut world = World::started(plan(2, 1, 3, 0));
    world.say_as(
        1,
        &ToCoordinator::GetConfiguration {
            list: ListId(2),
            installed: None,
        },
    );
    assert_eq!(world.received_by(1), [ToAgent::Configurations(vec![world.list(2)])]);
    world.say_as(
        1,
        &ToCoordinator::GetConfiguration {
            list: ListId(99),
            installed: None,
        },
    );
    assert!(world.received_by(1).is_empty());
}

#[test]
fn the_store_of_a_coordinator_can_be_opened_by_another() {
    let world = World::started(plan(2, 1, 3, 0));
    let plan = world.plan.clone();
    let lists: Vec<_> = world.coordinator.configurations().cloned().collect();
    let store: MemoryStore = world.coordinator.into_store();
    let next = Coordinator::open(store, &plan, 2).unwrap();
    assert!(next.configurations().eq(&lists));
}
