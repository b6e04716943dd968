//! Which configurations a node takes.

use paritas_base::ListId;
use paritas_base::configuration::Assignment;
use paritas_protocol::{Parameters, Port};
use paritas_testbed::{Cluster, following};
use paritas_wire::peer::Message;
use std::cell::Cell;
use std::rc::Rc;

#[test]
fn a_configuration_is_taken_by_all_nodes_or_by_none() {
    let mut cluster = Cluster::coded(2, 2, 1, 1, Parameters::default());
    let before = cluster.configurations[0].clone();
    // The incarnation at position 2 gets position 3 too. Only it could have seen that as wrong: the others would send
    // it what it cannot take, and be asked for it again, for ever.
    cluster.reconfigure(0, |c| {
        let held = c.positions[2].unwrap();
        c.positions[3] = Some(Assignment { ..held });
    });
    for process in &cluster.processes {
        let installed = &process.node.replica().list(ListId(0)).unwrap().configuration;
        assert_eq!(*installed, before, "{}", process.node.replica().id());
    }
    cluster.advance(500);
}

/// Messages of a newer epoch are on their way to a member, and the answer that would let it read them is late: they are
/// asked about once, not each, or they would multiply.
#[test]
fn messages_that_are_too_new_do_not_multiply() {
    let mut cluster = Cluster::coded(2, 1, 1, 0, Parameters::default());
    let client = cluster.connect(0, Port::Any);
    assert_eq!(cluster.ask(client, "SET a{b} v"), "+OK\r\n");
    let asked = Rc::new(Cell::new(0));
    let count = Rc::clone(&asked);
    cluster.tamper = Some(Box::new(move |_, _, _, message| match message {
        Message::GetConfiguration { .. } => {
            count.set(count.get() + 1);
            None
        }
        Message::Stale { .. } => Some(Vec::new()),
        _ => None,
    }));
    // Node 0 alone knows the newer epoch.
    let newer = following(
        &cluster.processes[0]
            .node
            .replica()
            .list(ListId(0))
            .unwrap()
            .configuration,
        |_| (),
    );
    cluster.configure(0, &newer);
    let commands: String = (0..50).map(|n| format!("SET {n}{{b}} v\r\n")).collect();
    for command in commands.split_inclusive('\n') {
        cluster.feed(client, command.as_bytes());
        cluster.turn(0);
    }
    cluster.pump();
    assert!((1..=4).contains(&asked.get()), "asked {} times", asked.get());
    cluster.tamper = None;
    cluster.advance(1_000);
    assert_eq!(String::from_utf8(cluster.take(client)).unwrap(), "+OK\r\n".repeat(50));
}
