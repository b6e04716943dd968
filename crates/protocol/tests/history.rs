//! Configurations are one history, and roles begin empty only where the coordinator says so (P10.14, P10.15).

use paritas_base::configuration::{Assignment, Configuration, PositionState};
use paritas_base::{Epoch, ListId, Position};
use paritas_protocol::{Parameters, Port, Proposal};
use paritas_testbed::{Cluster, following, tenure};

const LIST: ListId = ListId(0);

/// Scheme 2+1 on three nodes, and a fourth.
fn cluster() -> Cluster {
    Cluster::coded(2, 1, 1, 1, Parameters::default())
}

fn installed(cluster: &Cluster, at: usize) -> Configuration {
    cluster.processes[at]
        .node
        .replica()
        .list(LIST)
        .unwrap()
        .configuration
        .clone()
}

/// As a coordinator with an older store would decide: one epoch after the first.
fn other_branch(cluster: &Cluster) -> Configuration {
    following(&cluster.configurations[0], |c| c.positions[1] = None)
}

#[test]
fn a_configuration_of_another_history_is_not_installed_whatever_its_epoch() {
    let mut cluster = cluster();
    let mut foreign = other_branch(&cluster);
    cluster.hand_over(0, 0, 3);
    let own = installed(&cluster, 1);
    assert_eq!(own.epoch, foreign.epoch);
    for _ in 0..5 {
        foreign = following(&foreign, |_| ());
        cluster.configure(1, &foreign);
        assert_eq!(installed(&cluster, 1), own, "by epoch it would be newer");
    }
    let next = following(&own, |_| ());
    cluster.configure(1, &next);
    assert_eq!(installed(&cluster, 1), next, "its own history goes on");
}

#[test]
fn a_gap_that_the_trail_does_not_reach_over_is_asked_about() {
    let mut cluster = cluster();
    let own = installed(&cluster, 1);
    let mut ids = vec![own.id];
    let mut late = own.clone();
    for _ in 0..Configuration::TRAIL_MAX + 3 {
        late = following(&late, |_| ());
        ids.push(late.id);
    }
    cluster.processes[1].out.proposals.clear();
    cluster.configure(1, &late);
    assert_eq!(installed(&cluster, 1), own);
    let asked = Proposal::GetConfiguration {
        list: LIST,
        installed: Some((own.epoch, own.id)),
    };
    assert!(cluster.processes[1].out.proposals.contains(&asked));
    // The coordinator's answer.
    late.trail = ids.iter().rev().skip(1).copied().collect();
    cluster.configure(1, &late);
    assert_eq!(installed(&cluster, 1), late);
}

#[test]
fn what_came_from_a_peer_is_told_to_the_coordinator() {
    let mut cluster = cluster();
    let client = cluster.connect(0, Port::Any);
    let next = following(&cluster.configurations[0], |_| ());
    cluster.configure(2, &next);
    cluster.processes[0].out.proposals.clear();
    for n in 0..20 {
        cluster.ask(client, &format!("SET key:{n} v"));
    }
    cluster.advance(100);
    assert_eq!(installed(&cluster, 0), next);
    let is_told =
        |p: &Proposal| matches!(p, Proposal::Installed(told) if (told.epoch, told.id) == (next.epoch, next.id));
    assert!(cluster.processes[0].out.proposals.iter().any(is_told));
}

#[test]
fn a_role_begins_empty_only_as_born() {
    let mut cluster = cluster();
    cluster.processes[3].out.halts = Some(Vec::new());
    // Node 3 is named as if it had told that it is whole, and it never had the role.
    cluster.reconfigure(0, |c| {
        let (tenure, state) = (tenure(3, 2), PositionState::Live);
        c.positions[0] = Some(Assignment { tenure, state });
    });
    let halted: Vec<_> = cluster.processes[3].node.replica().halted().cloned().collect();
    assert_eq!(halted.len(), 1);
    assert_eq!((halted[0].list, halted[0].position), (LIST, Position(0)));
    assert!(halted[0].reason.contains("Live"), "{}", halted[0].reason);
    let client = cluster.connect(1, Port::Any);
    let key = (0..)
        .map(|n| format!("k{n}"))
        .find(|k| paritas_wire::command::slot(k.as_bytes()) < 8_192)
        .unwrap();
    let reply = cluster.ask(client, &format!("GET {key}"));
    assert_ne!(reply, "$-1\r\n", "no node may answer that the key does not exist");
}

#[test]
fn a_holder_says_that_it_has_begun_until_it_is_live() {
    let mut cluster = cluster();
    let asks = |cluster: &mut Cluster, at: usize| {
        cluster.processes[at].out.proposals.clear();
        cluster.advance(600);
        let mut proposals = cluster.processes[at].out.proposals.iter();
        proposals.any(|p| matches!(p, Proposal::AskLive { position, .. } if position.index() == at))
    };
    for at in 0..3 {
        assert!(asks(&mut cluster, at), "node {at}");
    }
    cluster.reconfigure(0, |c| {
        for held in c.positions.iter_mut().flatten() {
            held.state = PositionState::Live;
        }
    });
    for at in 0..3 {
        assert!(!asks(&mut cluster, at), "node {at}");
        assert_eq!(
            cluster.processes[at].node.replica().halted().count(),
            0,
            "it has the role"
        );
    }
    assert_eq!(installed(&cluster, 0).epoch, Epoch(2));
}
