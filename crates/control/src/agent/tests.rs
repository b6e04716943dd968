//! Tests of agents with a real coordinator, over links that the test may break.

mod pair;

use super::*;
use crate::status::Status;
use crate::store::MemoryStore;
use crate::{ClusterPlan, Coordinator, CoordinatorEvent, CoordinatorOut, Note};
use pair::{Driver, Pair, Process, process, registration};
use paritas_base::configuration::{Duty, NodeRole, PositionState, Tenure};
use paritas_base::formats::TOMORROW;
use paritas_base::{ClusterId, ConnId, Epoch, Position};
use paritas_protocol::{LinkId, Proposal};

#[test]
fn agents_register_and_get_the_lists() {
    let mut pair = Pair::new();
    pair.pass(20);
    for process in &pair.processes {
        assert!(process.agent.is_registered());
        assert_eq!(process.driver.clusters.len(), 1);
        assert_eq!(process.driver.nodes.len(), 3);
        let lists: Vec<_> = process.driver.configurations.values().collect();
        assert!(pair.coordinator.configurations().eq(lists) && process.driver.delivered == 6);
    }
    pair.pass(10_000);
    assert!(
        pair.coordinator.configurations().all(|c| c.epoch == Epoch(1)),
        "heartbeats change no configuration"
    );
    assert!(
        pair.processes.iter().all(|p| p.driver.delivered == 6),
        "each configuration is delivered once"
    );
}

#[test]
fn agents_keep_the_last_records_and_reconnect() {
    let mut pair = Pair::new();
    pair.pass(20);
    pair.reachable = false;
    pair.pass(10_000);
    for process in &pair.processes {
        assert!(!process.agent.is_registered());
        assert_eq!(process.driver.configurations.len(), 6);
        assert!(process.driver.ended.is_none());
    }
    pair.replace_coordinator();
    pair.reachable = true;
    pair.pass(4_000);
    assert!(
        pair.processes
            .iter()
            .all(|p| p.agent.is_registered() && p.driver.clusters.len() == 1)
    );
    // Their registrations name the incarnations that they know.
    assert!(
        pair.processes
            .iter()
            .all(|p| p.agent.registration.incarnations.len() == 3)
    );
    assert!(pair.coordinator.configurations().all(|c| c.epoch == Epoch(1)));
}

#[test]
fn a_coordinator_with_an_old_store_does_not_restore_ended_incarnations() {
    let mut pair = Pair::new();
    pair.pass(20);
    // An unplanned node holds no position, so its incarnations change no list. So no node can detect that the store is
    // old.
    let known = |pair: &Pair| {
        let mut nodes = pair.processes[0].driver.nodes.iter();
        nodes.find(|n| n.id == NodeId(3)).map(|n| n.incarnation)
    };
    let mut copies = Vec::new();
    for incarnation in [300, 301] {
        pair.processes.truncate(3);
        pair.processes.push(process(3, incarnation));
        pair.pass(5_000);
        assert_eq!(known(&pair), Some(Incarnation(incarnation)));
        copies.push(pair.coordinator.store_mut().clone());
    }
    pair.processes.truncate(3);
    *pair.coordinator.store_mut() = copies.remove(0);
    pair.replace_coordinator();
    pair.pass(5_000);
    assert!(pair.processes[0].agent.is_registered());
    assert_eq!(known(&pair), Some(Incarnation(301)));
}

#[test]
fn an_agent_waits_longer_each_time_and_dials_every_coordinator() {
    let mut agent = Agent::new(registration(0, 1), 3, 9);
    let mut driver = Driver::default();
    let mut now = Time(5_000_000_000);
    let mut waits = Vec::new();
    agent.on(Clock { mono: now, wall_ms: 0 }, AgentEvent::Timer, &mut driver);
    for _ in 0..12 {
        agent.on(Clock { mono: now, wall_ms: 0 }, AgentEvent::Disconnected, &mut driver);
        let at = agent.next_deadline().unwrap();
        waits.push((at - now).as_ms());
        now = at;
        agent.on(Clock { mono: now, wall_ms: 0 }, AgentEvent::Timer, &mut driver);
    }
    assert_eq!(driver.dialed, [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0]);
    assert!(
        waits[0] <= 75 && waits.iter().all(|w| *w <= 750) && waits[11] >= 500,
        "{waits:?}"
    );
}

#[test]
fn an_agent_leaves_a_coordinator_that_sends_nothing() {
    let mut pair = Pair::new();
    pair.pass(20);
    // The link stays open, but nothing arrives: another host may have the address now.
    let link = pair.processes[0].link;
    pair.processes[0].link = None;
    pair.pass(2_500);
    assert!(pair.processes[0].link.is_some() && pair.processes[0].link != link);
    assert!(pair.processes[0].agent.is_registered());
}

#[test]
fn a_second_process_of_a_node_waits_until_the_first_is_silent_and_then_ends_it() {
    let mut pair = Pair::new();
    pair.pass(20);
    pair.processes.push(process(0, 555));
    pair.pass(3_000);
    assert_eq!(pair.processes[0].driver.ended, None);
    assert!(pair.processes[0].agent.is_registered() && !pair.processes[3].agent.is_registered());
    assert_eq!(pair.processes[3].driver.ended, None, "it registers again later");
    // The first process is paused. While a peer hears it, it is not replaced.
    let first = pair.processes.remove(0);
    pair.pass(2_500);
    assert!(!pair.processes[2].agent.is_registered());
    pair.do_not_hear(&[0, 1], 0, 100);
    pair.pass(2_500);
    assert!(pair.processes[2].agent.is_registered());
    pair.processes.push(first);
    pair.pass(1_000);
    assert_eq!(pair.processes[3].driver.ended, Some(Refusal::IncarnationEnded));
    assert_eq!(pair.processes[3].agent.next_deadline(), None, "it sends nothing more");
    let old = Incarnation(100);
    assert!(
        pair.coordinator
            .configurations()
            .all(|c| c.held_by(NodeId(0), old).next().is_none())
    );
}

#[test]
fn requests_of_shards_reach_the_coordinator() {
    let mut pair = Pair::new();
    pair.pass(20);
    pair.processes.remove(0);
    pair.do_not_hear(&[0, 1], 0, 100);
    pair.pass(2_500);
    pair.processes.push(process(0, 555));
    pair.pass(20);
    let held = pair.coordinator.configurations().find_map(|c| {
        let (position, a) = c.held_by(NodeId(0), Incarnation(555)).next()?;
        Some((c.list, position, a.tenure))
    });
    let (list, position, tenure) = held.unwrap();
    pair.agent(2, AgentEvent::Proposal(Proposal::AskLive { list, position, tenure }));
    let state = |p: &Process, position: Position| p.driver.configurations[&list].at(position).map(|a| a.state);
    assert_eq!(state(&pair.processes[1], position), Some(PositionState::Live));
    pair.agent(2, AgentEvent::Proposal(Proposal::Ask { conn: ConnId(4), n: 9 }));
    assert_eq!(pair.processes[2].driver.answers, [(ConnId(4), 9, true)]);
    let (conn, n, node, duty) = (ConnId(4), 10, NodeId(77), Duty::Draining);
    pair.agent(2, AgentEvent::Proposal(Proposal::SetDuty { conn, n, node, duty }));
    let why = pair.processes[2].driver.duties[0].2.clone();
    assert!(why.unwrap().contains("n77 has not registered"));
}

#[test]
fn silent_peers_are_reported_with_the_next_heartbeat() {
    let mut pair = Pair::new();
    pair.pass(20);
    let (node, incarnation) = (NodeId(2), Incarnation(102));
    let clock = pair.clock();
    let process = &mut pair.processes[0];
    process.agent.on(
        clock,
        AgentEvent::Proposal(Proposal::ReportSilent { node, incarnation }),
        &mut process.driver,
    );
    let later = Clock {
        mono: clock.mono + HEARTBEAT,
        wall_ms: 0,
    };
    let named = |process: &mut Process, at: Clock| {
        process.driver.sent.clear();
        process.agent.on(at, AgentEvent::Timer, &mut process.driver);
        match decode(&process.driver.sent[0], TO_COORDINATOR_BYTES_MAX).unwrap() {
            ToCoordinator::Heartbeat { silent, .. } => silent,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(named(process, later), [(node, incarnation)]);
    let later = Clock {
        mono: later.mono + HEARTBEAT,
        wall_ms: 0,
    };
    assert_eq!(
        named(process, later),
        [],
        "it is sent once, unless it is reported again"
    );
}

#[test]
fn a_request_without_a_coordinator_is_answered_with_an_error() {
    let mut pair = Pair::new();
    pair.agent(0, AgentEvent::Proposal(Proposal::Ask { conn: ConnId(1), n: 1 }));
    assert_eq!(pair.processes[0].driver.answers, [(ConnId(1), 1, false)]);
    pair.pass(20);
    pair.reachable = false;
    pair.agent(0, AgentEvent::Proposal(Proposal::Ask { conn: ConnId(1), n: 2 }));
    pair.pass(2_100);
    assert_eq!(
        pair.processes[0].driver.answers[1],
        (ConnId(1), 2, false),
        "it is answered within two seconds"
    );
}

#[test]
fn invalid_bytes_close_only_the_link() {
    let mut pair = Pair::new();
    pair.pass(20);
    pair.agent(0, AgentEvent::Message(&[9; 20]));
    assert!(!pair.processes[0].agent.is_registered());
    pair.pass(200);
    assert!(pair.processes[0].agent.is_registered());
    assert_eq!(pair.processes[0].driver.delivered, 6);
}

/// The driver of an agent that has sent its registration and received these messages. A heartbeat is answered after
/// each registration.
fn after_messages(messages: &[ToAgent]) -> Driver {
    let mut agent = Agent::new(registration(0, 7), 1, 1);
    let mut driver = Driver::default();
    let now = Clock::default();
    agent.on(now, AgentEvent::Timer, &mut driver);
    agent.on(now, AgentEvent::Connected, &mut driver);
    for message in messages {
        let bytes = encode(message, TO_AGENT_BYTES_MAX).unwrap();
        agent.on(now, AgentEvent::Message(&bytes), &mut driver);
        if matches!(message, ToAgent::Registered(_)) {
            let bytes = encode(&ToAgent::Heard, TO_AGENT_BYTES_MAX).unwrap();
            agent.on(now, AgentEvent::Message(&bytes), &mut driver);
        }
    }
    driver
}

/// Two processes of one node may both be offered its place. The one whose heartbeat is refused must not have begun.
#[test]
fn a_process_begins_only_when_a_heartbeat_has_confirmed_its_place() {
    let mut agent = Agent::new(registration(0, 7), 1, 1);
    let mut driver = Driver::default();
    let now = Clock::default();
    agent.on(now, AgentEvent::Timer, &mut driver);
    agent.on(now, AgentEvent::Connected, &mut driver);
    let mut hear = |message: &ToAgent| {
        let bytes = encode(message, TO_AGENT_BYTES_MAX).unwrap();
        agent.on(now, AgentEvent::Message(&bytes), &mut driver);
        (driver.clusters.len(), driver.changed.len())
    };
    assert_eq!(hear(&registered(|_| {})), (0, 0));
    let ToAgent::Registered(other) = registered(|c| c.suspicion_ms = 2500) else {
        unreachable!()
    };
    assert_eq!(hear(&ToAgent::Cluster(other.cluster)), (0, 0));
    assert_eq!(hear(&ToAgent::Nodes(Vec::new())), (0, 0));
    assert_eq!(
        hear(&ToAgent::Refused(Refusal::Running)),
        (0, 0),
        "it tries again later"
    );
    assert_eq!((driver.hung_up, driver.ended.clone()), (1, None));
    agent.on(
        Clock {
            mono: agent.next_deadline().unwrap(),
            wall_ms: 0,
        },
        AgentEvent::Timer,
        &mut driver,
    );
    agent.on(now, AgentEvent::Connected, &mut driver);
    for (message, clusters) in [(registered(|_| {}), 0), (ToAgent::Heard, 1), (ToAgent::Heard, 1)] {
        let bytes = encode(&message, TO_AGENT_BYTES_MAX).unwrap();
        agent.on(now, AgentEvent::Message(&bytes), &mut driver);
        assert_eq!(driver.clusters.len(), clusters);
    }
}

fn registered(change: impl FnOnce(&mut ClusterRecord)) -> ToAgent {
    let mut cluster = ClusterPlan::simple(ClusterId(3), 2, 1, 3, 0).record();
    change(&mut cluster);
    ToAgent::Registered(Box::new(Registered {
        nonce: 1,
        cluster,
        nodes: Vec::new(),
        configurations: Vec::new(),
        void: Vec::new(),
    }))
}

#[test]
fn nothing_is_delivered_before_the_cluster() {
    for message in [ToAgent::Nodes(Vec::new()), ToAgent::Configurations(Vec::new())] {
        let driver = after_messages(&[message]);
        assert_eq!(driver.hung_up, 1);
        assert!(driver.clusters.is_empty());
    }
}

#[test]
fn an_invalid_cluster_record_ends_the_process_with_a_reason() {
    let good = after_messages(&[registered(|_| {})]);
    assert!(good.ended.is_none() && good.clusters.len() == 1);
    type Change = fn(&mut ClusterRecord);
    let wrong: [(Change, &str); 9] = [
        (|c| c.active_version += 1, "speaks"),
        (|c| c.more.put(128, b"\x02"), "section 128"),
        (|c| c.data = 0, "has invalid values"),
        (|c| c.parity = 255, "has invalid values"),
        (|c| c.chunk_bytes = 0, "has invalid values"),
        (|c| c.chunk_bytes = 1 << 20, "has invalid values"),
        (|c| c.lease_ms = 0, "has invalid values"),
        (|c| c.slots.truncate(1), "has invalid values"),
        (|c| c.slots[0].1.x = Position(9), "has invalid values"),
    ];
    for (change, part) in wrong {
        let driver = after_messages(&[registered(change)]);
        let why = driver.ended.unwrap().to_string();
        assert!(why.contains(part), "{why}");
        assert!(driver.clusters.is_empty(), "no node must be created from it");
    }
}

/// P10.21: an old store does not take a version back, and the coordinator is told what the process knows.
#[test]
fn a_process_keeps_the_highest_active_version_that_it_knows() {
    let mut agent = Agent::new(registration(0, 7), 1, 1);
    agent.speak(Versions::up_to(TOMORROW));
    let (mut driver, now) = (Driver::default(), Clock::default());
    let known = |driver: &Driver| driver.changed.last().map(|cluster| cluster.active_version);
    agent.on(now, AgentEvent::Timer, &mut driver);
    agent.on(now, AgentEvent::Connected, &mut driver);
    let say = |message: ToAgent, agent: &mut Agent, driver: &mut Driver| {
        let bytes = encode(&message, TO_AGENT_BYTES_MAX).unwrap();
        agent.on(now, AgentEvent::Message(&bytes), driver);
    };
    let ToAgent::Registered(old) = registered(|_| {}) else {
        panic!("a registration");
    };
    say(ToAgent::Registered(old.clone()), &mut agent, &mut driver);
    say(ToAgent::Heard, &mut agent, &mut driver);
    let mut newer = old.cluster.clone();
    newer.active_version = TOMORROW;
    say(ToAgent::Cluster(newer), &mut agent, &mut driver);
    assert_eq!(known(&driver), Some(TOMORROW));
    let mut older = old.cluster.clone();
    older.suspicion_ms += 1;
    say(ToAgent::Cluster(older), &mut agent, &mut driver);
    assert_eq!(known(&driver), Some(TOMORROW));
    driver.sent.clear();
    agent.on(now, AgentEvent::Connected, &mut driver);
    let sent = driver
        .sent
        .iter()
        .map(|frame| decode(frame, TO_COORDINATOR_BYTES_MAX).unwrap());
    let said = sent.filter_map(|message| match message {
        ToCoordinator::Register(registration) => Some(Versions::said(&registration.more)),
        _ => None,
    });
    let said: Vec<_> = said.collect();
    assert_eq!(said, [(Versions::up_to(TOMORROW), TOMORROW)]);
}

#[test]
fn a_serving_process_does_not_end_when_a_wrong_coordinator_refuses_it() {
    let here = ClusterId(4);
    let list = ListId(0);
    let foreign = [
        (registered(|c| c.id = ClusterId(4)), Refusal::WrongCluster { here }),
        (
            ToAgent::Refused(Refusal::WrongCluster { here }),
            Refusal::WrongCluster { here },
        ),
        (
            ToAgent::Refused(Refusal::StoreIsBehind { list }),
            Refusal::StoreIsBehind { list },
        ),
        (
            ToAgent::Refused(Refusal::Version { here: 2 }),
            Refusal::Version { here: 2 },
        ),
    ];
    for (message, refusal) in foreign {
        let driver = after_messages(&[registered(|_| {}), message]);
        assert_eq!(driver.ended, None);
        assert_eq!(driver.refused, [refusal]);
        assert_eq!(
            (driver.hung_up, driver.clusters.len()),
            (1, 1),
            "the agent must try again later"
        );
    }
    // Its incarnation has ended: a later one may run elsewhere.
    let driver = after_messages(&[registered(|_| {}), ToAgent::Refused(Refusal::IncarnationEnded)]);
    assert_eq!(driver.ended, Some(Refusal::IncarnationEnded));
    // A process that holds no position ends.
    let driver = after_messages(&[ToAgent::Refused(Refusal::Version { here: 2 })]);
    assert_eq!(driver.ended, Some(Refusal::Version { here: 2 }));
}

/// Successive configurations of one list: the first, and `count` after it.
fn history(count: usize) -> Vec<Configuration> {
    let mut pair = Pair::new();
    pair.pass(2_000);
    let mut all: Vec<Configuration> = pair.coordinator.configurations().take(1).cloned().collect();
    for _ in 0..count {
        let before = &all[all.len() - 1];
        let mut next = Configuration {
            epoch: Epoch(before.epoch.0 + 1),
            ..before.clone()
        };
        next.seal(Some(before));
        all.push(next);
    }
    all
}

fn configuration(configuration: &Configuration) -> ToAgent {
    ToAgent::Configurations(vec![configuration.clone()])
}

#[test]
fn a_configuration_is_delivered_only_after_one_of_its_own_history() {
    let all = history(Configuration::TRAIL_MAX + 2);
    let mut foreign = Configuration {
        epoch: Epoch(all[1].epoch.0 + 1),
        lost: true,
        ..all[1].clone()
    };
    foreign.seal(Some(&all[1]));
    for (messages, delivered, refused) in [
        (
            vec![configuration(&all[0]), configuration(&all[1]), configuration(&all[2])],
            3,
            false,
        ),
        (vec![configuration(&all[0]), configuration(&all[5])], 2, false),
        (vec![configuration(&all[5]), configuration(&all[1])], 1, false),
        (vec![configuration(&all[2]), configuration(&foreign)], 1, true),
        (vec![configuration(&foreign), configuration(&all[5])], 1, true),
    ] {
        let driver = after_messages(&[vec![registered(|_| {})], messages].concat());
        assert_eq!(driver.delivered, delivered);
        assert_eq!(driver.hung_up, u32::from(refused));
        assert_eq!(driver.refused.is_empty(), !refused, "{:?}", driver.refused);
    }
}

#[test]
fn a_longer_history_is_requested_if_the_trail_is_too_short() {
    let all = history(Configuration::TRAIL_MAX + 2);
    let (first, last) = (&all[0], &all[all.len() - 1]);
    let driver = after_messages(&[registered(|_| {}), configuration(first), configuration(last)]);
    assert_eq!((driver.delivered, driver.hung_up), (1, 0));
    let asked: ToCoordinator = decode(driver.sent.last().unwrap(), TO_COORDINATOR_BYTES_MAX).unwrap();
    let installed = Some((first.epoch, first.id));
    assert_eq!(
        asked,
        ToCoordinator::GetConfiguration {
            list: first.list,
            installed
        }
    );
    let mut long = last.clone();
    long.trail = all.iter().rev().skip(1).map(|c| c.id).collect();
    let driver = after_messages(&[registered(|_| {}), configuration(first), configuration(&long)]);
    assert_eq!((driver.delivered, driver.hung_up), (2, 0));
}

#[test]
fn an_order_is_answered_with_the_reason_of_the_last_refusal() {
    let mut agent = Agent::new(registration(0, 7), 1, 1);
    let mut driver = Driver::default();
    let now = Clock::default();
    let behind = ToAgent::Refused(Refusal::StoreIsBehind { list: ListId(0) });
    agent.on(now, AgentEvent::Timer, &mut driver);
    agent.on(now, AgentEvent::Connected, &mut driver);
    for message in [registered(|_| {}), ToAgent::Heard, behind] {
        let bytes = encode(&message, TO_AGENT_BYTES_MAX).unwrap();
        agent.on(now, AgentEvent::Message(&bytes), &mut driver);
    }
    let (node, duty) = (NodeId(1), Duty::Draining);
    let order = Proposal::SetDuty {
        conn: ConnId(1),
        n: 1,
        node,
        duty,
    };
    agent.on(now, AgentEvent::Proposal(order), &mut driver);
    let why = driver.duties[0].2.clone().unwrap();
    assert!(why.contains("not the cluster's newest"), "{why}");
}

/// The testimonies that were sent.
fn testimonies(driver: &Driver) -> Vec<Testimony> {
    let said = |frame: &Vec<u8>| match decode(frame, TO_COORDINATOR_BYTES_MAX).unwrap() {
        ToCoordinator::Testimony(testimony) => Some(*testimony),
        _ => None,
    };
    driver.sent.iter().filter_map(said).collect()
}

#[test]
fn a_testimony_is_split_into_frames_within_the_limit() {
    let adopting = || ToAgent::Refused(Refusal::Adopting);
    // The number of lists of a large cluster, each with the longest history that is recorded.
    let mut list = history(1)[0].clone();
    list.trail = vec![u64::MAX; Configuration::HISTORY_MAX];
    let lists: Vec<Configuration> = (0..200)
        .map(|n| Configuration {
            list: ListId(n),
            ..list.clone()
        })
        .collect();
    let driver = after_messages(&[registered(|_| {}), ToAgent::Configurations(lists.clone()), adopting()]);
    let parts = testimonies(&driver);
    assert!(parts.len() > 10 && driver.hung_up == 0, "{} frames", parts.len());
    assert!(parts[0].cluster.is_some() && parts[1].cluster.is_none());
    let lasts: Vec<bool> = parts.iter().map(|part| part.is_last).collect();
    assert_eq!(lasts.iter().filter(|last| **last).count(), 1);
    assert_eq!(lasts.last(), Some(&true));
    let all: Vec<Configuration> = parts.into_iter().flat_map(|part| part.configurations).collect();
    assert_eq!(all, lists);
    // A process that knows nothing sends an empty testimony, and waits.
    let driver = after_messages(&[adopting()]);
    let empty = Testimony {
        cluster: None,
        incarnations: Vec::new(),
        configurations: vec![],
        is_last: true,
    };
    assert_eq!((testimonies(&driver), driver.ended), (vec![empty], None));
}

#[test]
fn a_changed_cluster_record_is_delivered_and_that_of_another_cluster_is_not() {
    let ToAgent::Registered(known) = registered(|_| {}) else {
        unreachable!()
    };
    let changed = ClusterRecord {
        suspicion_ms: 2500,
        ..known.cluster.clone()
    };
    let driver = after_messages(&[registered(|_| {}), ToAgent::Cluster(changed.clone())]);
    assert_eq!((driver.changed, driver.hung_up), (vec![changed], 0));
    let other = ClusterRecord {
        id: ClusterId(99),
        ..known.cluster.clone()
    };
    let driver = after_messages(&[registered(|_| {}), ToAgent::Cluster(other)]);
    assert_eq!((driver.changed, driver.hung_up), (vec![], 1));
    let driver = after_messages(&[ToAgent::Cluster(known.cluster)]);
    assert_eq!(
        (driver.changed, driver.hung_up),
        (vec![], 1),
        "a record before the registration must be refused"
    );
}
