//! Long commands for another node: how many bytes of them wait for a link, and at their owner.

use paritas_protocol::{Parameters, Port};
use paritas_testbed::{Client, Cluster};
use paritas_wire::command;
use paritas_wire::peer::Kind;

/// `2+1` and a spare, with so much memory a node. Node 0 owns the lower half of the slots.
fn start(memory_bytes: u64) -> (Cluster, Vec<String>) {
    // Arguments come with their commands.
    let parameters = Parameters {
        streamed_bytes_min: 16 << 20,
        ..Parameters::default()
    };
    let cluster = Cluster::coded_in(memory_bytes, 2, 1, 1, 1, parameters);
    let keys = (0..).map(|i| format!("k{i}"));
    let keys = keys
        .filter(|key| command::slot(key.as_bytes()) < 8192)
        .take(20)
        .collect();
    (cluster, keys)
}

fn feed(cluster: &mut Cluster, client: Client, words: &[&str]) {
    let mut request = Vec::new();
    paritas_wire::resp::encode::request(&mut request, words);
    cluster.feed(client, &request);
}

fn replies(cluster: &mut Cluster, clients: &[Client]) -> Vec<String> {
    let take = |client: &Client| String::from_utf8_lossy(&cluster.take(*client)).into_owned();
    clients.iter().map(take).collect()
}

#[test]
fn one_long_command_waits_for_a_link_and_others_with_their_clients() {
    const BYTES: usize = 1 << 20;
    let (mut cluster, keys) = start(256 << 20);
    let clients: Vec<Client> = keys.iter().map(|_| cluster.connect(3, Port::Any)).collect();
    let value = "v".repeat(BYTES);
    cluster.cut = true;
    for (client, key) in clients.iter().zip(&keys) {
        feed(&mut cluster, *client, &["APPEND", key, &value]);
    }
    let short = cluster.connect(3, Port::Any);
    cluster.turn(3);
    let other = format!("{{{}}}:other", keys[0]);
    feed(&mut cluster, short, &["SET", &other, "short"]);
    cluster.turn(3);
    let waiting = cluster.frame_bytes(3);
    assert!(
        (BYTES..2 * BYTES).contains(&waiting),
        "{waiting} bytes wait for the link"
    );
    cluster.cut = false;
    cluster.pump();
    assert_eq!(
        replies(&mut cluster, &[short]),
        ["+OK\r\n"],
        "a short command is sent at once"
    );
    cluster.advance(1_000);
    let done = format!(":{BYTES}\r\n");
    assert_eq!(replies(&mut cluster, &clients), vec![done; clients.len()]);
}

/// All commands wait at their owner: a holder does not answer.
fn refused(memory_bytes: u64, value_bytes: usize) -> usize {
    let (mut cluster, keys) = start(memory_bytes);
    let clients: Vec<Client> = keys.iter().map(|_| cluster.connect(3, Port::Any)).collect();
    let value = "v".repeat(value_bytes);
    cluster.tamper = Some(Box::new(|_, _, _, message| {
        (message.kind() == Kind::OpenPart).then(Vec::new)
    }));
    for (client, key) in clients.iter().zip(&keys) {
        feed(&mut cluster, *client, &["APPEND", key, &value]);
    }
    cluster.advance(200);
    let refused = replies(&mut cluster, &clients);
    refused.iter().filter(|reply| reply.starts_with("-CLUSTERDOWN")).count()
}

#[test]
fn commands_that_wait_at_their_owner_have_a_part_of_its_memory() {
    const BYTES: usize = 6 << 20;
    // 20 commands are 120 MiB. An eighth of the memory, and at least 32 MiB.
    assert_eq!(refused(1 << 30, BYTES), 0);
    assert_eq!(refused(64 << 20, BYTES), 15);
}
