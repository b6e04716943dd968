//! What a node says of peers that it does not hear (P10.9).

use paritas_base::{NodeId, Time};
use paritas_protocol::{Opinions, Parameters, Proposal};
use paritas_testbed::Cluster;

/// Scheme 2+1 on three nodes: node 2 holds the parity, and the owners exchange frames with it only.
fn cluster() -> Cluster {
    let mut cluster = Cluster::coded(2, 1, 1, 0, Parameters::default());
    cluster.advance(2_000);
    cluster
}

fn opinions(cluster: &Cluster, at: usize) -> Opinions {
    cluster.processes[at].node.replica().opinions(cluster.now.mono)
}

fn nodes(named: &[(NodeId, paritas_base::Incarnation)]) -> Vec<u16> {
    named.iter().map(|(node, _)| node.0).collect()
}

#[test]
fn a_peer_is_unheard_after_the_suspicion_time_and_the_coordinator_is_told() {
    let mut cluster = cluster();
    assert_eq!(opinions(&cluster, 2), Opinions::default(), "all peers are heard");
    cluster.kill(0);
    cluster.advance(700);
    assert_eq!(nodes(&opinions(&cluster, 2).unheard), []);
    cluster.processes[2].out.proposals.clear();
    cluster.advance(700);
    assert_eq!(nodes(&opinions(&cluster, 2).unheard), [0]);
    let told = cluster.processes[2].out.proposals.iter().any(|said| match said {
        Proposal::Opinions(opinions) => nodes(&opinions.unheard) == [0],
        _ => false,
    });
    assert!(told);
    assert_eq!(opinions(&cluster, 1), Opinions::default(), "owners exchange no frames");
}

#[test]
fn an_idle_cluster_hears_all_its_peers() {
    let mut cluster = cluster();
    for _ in 0..50 {
        cluster.advance(100);
        for at in 0..3 {
            assert_eq!(opinions(&cluster, at), Opinions::default(), "node {at}");
        }
    }
}

#[test]
fn a_node_that_stood_still_is_unsure_for_a_suspicion_time() {
    let mut cluster = cluster();
    // No node has an event for longer than half of it.
    cluster.now.mono = Time(cluster.now.mono.0 + 600_000_000);
    assert_eq!(nodes(&opinions(&cluster, 2).unsure), [0, 1]);
    cluster.advance(500);
    assert_eq!(
        nodes(&opinions(&cluster, 2).unsure),
        [0, 1],
        "frames may still be unread"
    );
    cluster.advance(700);
    assert_eq!(opinions(&cluster, 2), Opinions::default());
}
