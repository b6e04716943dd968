//! Scripts at the client's node, and at other nodes. Replies as recorded from Redis are in `redis-replies.txt`.

use paritas_protocol::{Parameters, Port};
use paritas_testbed::{Client, Cluster};

/// `2+1` and a spare. Node 3 owns nothing.
fn start() -> Cluster {
    Cluster::coded_in(64 << 20, 2, 1, 1, 1, Parameters::default())
}

fn ask(cluster: &mut Cluster, client: Client, words: &[&str]) -> String {
    let mut request = Vec::new();
    paritas_wire::resp::encode::request(&mut request, words);
    cluster.feed(client, &request);
    cluster.pump();
    String::from_utf8(cluster.take(client)).unwrap()
}

/// Of `return 7`.
const SHA: &str = "59b6ab2fbe0ee4b25733de0f62e6cda4899ef8e9";
const LOAD: &[&str] = &["SCRIPT", "LOAD", "return 7"];
const LOADED: &str = "$40\r\n59b6ab2fbe0ee4b25733de0f62e6cda4899ef8e9\r\n";
const CALL: &[&str] = &["EVALSHA", SHA, "0"];
const UNKNOWN: &str = "-NOSCRIPT No matching script. Please use EVAL.\r\n";

#[test]
fn a_loaded_script_is_at_all_nodes_and_a_flushed_one_at_none() {
    let mut cluster = start();
    let clients: Vec<Client> = [(0, Port::Any), (1, Port::Any), (2, Port::Cluster), (3, Port::Any)]
        .map(|(node, port)| cluster.connect(node, port))
        .to_vec();
    for (loader, flusher) in [(0, 3), (3, 1)] {
        for client in &clients {
            assert_eq!(ask(&mut cluster, *client, CALL), UNKNOWN);
        }
        assert_eq!(ask(&mut cluster, clients[loader], LOAD), LOADED);
        for client in &clients {
            assert_eq!(ask(&mut cluster, *client, CALL), ":7\r\n");
            assert_eq!(ask(&mut cluster, *client, &["SCRIPT", "EXISTS", SHA]), "*1\r\n:1\r\n");
        }
        assert_eq!(ask(&mut cluster, clients[flusher], &["SCRIPT", "FLUSH"]), "+OK\r\n");
    }
    for client in &clients {
        assert_eq!(ask(&mut cluster, *client, CALL), UNKNOWN);
    }
    // What is refused is refused at once, and goes nowhere.
    let refused = ask(&mut cluster, clients[0], &["SCRIPT", "LOAD", "return ("]);
    assert!(refused.starts_with("-ERR Error compiling script"), "{refused}");
}

#[test]
fn replies_come_in_order_behind_a_script_that_is_loaded() {
    let mut cluster = start();
    let client = cluster.connect(3, Port::Any);
    cluster.feed(
        client,
        format!("PING\r\nSCRIPT LOAD \"return 7\"\r\nEVALSHA {SHA} 0\r\nSCRIPT FLUSH\r\nEVALSHA {SHA} 0\r\n")
            .as_bytes(),
    );
    cluster.pump();
    let replies = String::from_utf8(cluster.take(client)).unwrap();
    assert_eq!(replies, format!("+PONG\r\n{LOADED}:7\r\n+OK\r\n{UNKNOWN}"));
}

#[test]
fn the_cluster_port_loads_scripts_at_its_node_alone() {
    let mut cluster = start();
    let (one, other) = (cluster.connect(0, Port::Cluster), cluster.connect(1, Port::Any));
    assert_eq!(ask(&mut cluster, one, LOAD), LOADED);
    assert_eq!(ask(&mut cluster, one, CALL), ":7\r\n");
    assert_eq!(ask(&mut cluster, other, CALL), UNKNOWN);
}

#[test]
fn a_script_is_loaded_also_while_nodes_are_away() {
    let mut cluster = start();
    let client = cluster.connect(0, Port::Any);
    cluster.cut = true;
    assert_eq!(ask(&mut cluster, client, LOAD), "", "the other nodes may still answer");
    cluster.advance(250);
    assert_eq!(cluster.take(client), LOADED.as_bytes());
    (1..4).for_each(|node| cluster.kill(node));
    assert_eq!(ask(&mut cluster, client, LOAD), LOADED, "there is nobody to wait for");
}
