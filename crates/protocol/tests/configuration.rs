//! Which configurations a node takes.

mod support;

use paritas_base::ListId;
use paritas_base::configuration::Assignment;
use paritas_protocol::Parameters;
use support::Cluster;

#[test]
fn a_configuration_is_taken_by_all_nodes_or_by_none() {
    let mut cluster = Cluster::coded(2, 2, 1, 1, Parameters::default());
    let before = cluster.configurations[0].clone();
    // The life at position 2 gets position 3 too. Only it could have seen that as wrong: the others would send it what
    // it cannot take, and be asked for it again, for ever.
    cluster.reconfigure(0, |c| {
        let held = c.positions[2].unwrap();
        c.positions[3] = Some(Assignment { ..held });
    });
    for process in &cluster.processes {
        let installed = &process.node.list(ListId(0)).unwrap().configuration;
        assert_eq!(*installed, before, "{}", process.node.id());
    }
    cluster.advance(500);
}
