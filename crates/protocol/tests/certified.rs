//! An incarnation whose end is certified uses no lease: its successor waits for none, and nor does the successor's
//! successor.

use paritas_base::configuration::{Assignment, Configuration, PositionState};
use paritas_protocol::{Parameters, Port};
use paritas_testbed::{Cluster, tenure};
use paritas_wire::command;

/// Position 0 passes to a node; the end of the incarnation that had it is certified, and no older one is named any
/// more.
fn succeed(cluster: &mut Cluster, node: usize) {
    let epoch = cluster.configurations[0].epoch.0 + 1;
    cluster.reconfigure(0, |c: &mut Configuration| {
        let dead = c.positions[0].map(|held| (held.tenure.node, held.tenure.incarnation));
        c.gone = dead.into_iter().collect();
        c.positions[0] = Some(Assignment {
            tenure: tenure(node, epoch),
            state: PositionState::Filling,
        });
    });
}

#[test]
fn two_certified_ends_within_a_lease_wait_for_no_lease() {
    let mut cluster = Cluster::coded(2, 1, 1, 2, Parameters::default());
    let client = cluster.connect(2, Port::Any);
    let key = (0..)
        .map(|i| format!("k{i}"))
        .find(|key| command::slot(key.as_bytes()) < 8192)
        .unwrap();
    assert_eq!(cluster.ask(client, &format!("SET {key} one")), "+OK\r\n");
    cluster.advance(300);
    for (dead, next) in [(0, 3), (3, 4)] {
        cluster.kill(dead);
        succeed(&mut cluster, next);
        cluster.feed(client, format!("GET {key}\r\n").as_bytes());
        cluster.pump();
        cluster.advance(100);
        assert_eq!(
            cluster.take(client),
            b"$3\r\none\r\n",
            "node {next} serves without a wait"
        );
        // It has asked for leases of its own.
        cluster.advance(300);
        cluster.reconfigure(0, |c| {
            if let Some(held) = &mut c.positions[0] {
                held.state = PositionState::Live;
            }
        });
    }
}
