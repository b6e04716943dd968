//! Large values that the node of the client reads, because their owner is at another node (P14.21).

use paritas_protocol::{Parameters, Port};
use paritas_testbed::{Client, Cluster};
use paritas_wire::command;
use paritas_wire::peer::{Kind, Message};
use std::cell::RefCell;
use std::rc::Rc;

const BYTES: usize = 300_007;

/// `2+1` and a spare. Node 0 owns the key, node 1 the other half of the keys, node 2 has the parity.
fn start() -> (Cluster, String) {
    let cluster = Cluster::coded_in(64 << 20, 2, 1, 1, 1, Parameters::default());
    let mut keys = (0..).map(|i| format!("k{i}"));
    let key = keys.find(|key| command::slot(key.as_bytes()) < 8192).unwrap();
    (cluster, key)
}

fn value(seed: usize) -> String {
    let letters = (0..BYTES).map(|i| char::from(b'a' + ((i * 7 + i / 1000 + seed) % 26) as u8));
    letters.collect()
}

fn request(words: &[&str]) -> Vec<u8> {
    let mut request = Vec::new();
    paritas_wire::resp::encode::request(&mut request, words);
    request
}

fn take(cluster: &mut Cluster, client: Client) -> String {
    String::from_utf8(cluster.take(client)).unwrap()
}

fn ask(cluster: &mut Cluster, client: Client, words: &[&str]) -> String {
    cluster.feed(client, &request(words));
    cluster.advance(200);
    take(cluster, client)
}

fn bulk(value: &str) -> String {
    format!("${}\r\n{value}\r\n", value.len())
}

/// The same with a client at this node, and a value.
fn start_with_value(node: usize) -> (Cluster, String, Client) {
    let (mut cluster, key) = start();
    let client = cluster.connect(node, Port::Any);
    assert_eq!(ask(&mut cluster, client, &["SET", &key, &value(1)]), "+OK\r\n");
    (cluster, key, client)
}

/// Units are lost on their way to a node.
fn lose_units_to(cluster: &mut Cluster, node: usize) {
    cluster.tamper = Some(Box::new(move |_, to, _, message| {
        (to == node && message.kind() == Kind::UnitValue).then(Vec::new)
    }));
}

#[test]
fn the_bytes_of_a_value_move_once_and_not_by_its_owner() {
    for (node, most) in [(3, BYTES + 20_000), (1, BYTES / 2 + 20_000)] {
        let (mut cluster, key, client) = start_with_value(node);
        let moved = Rc::new(RefCell::new([0usize; 4]));
        let seen = Rc::clone(&moved);
        cluster.tamper = Some(Box::new(move |_, to, _, message| {
            seen.borrow_mut()[to] += match message {
                Message::UnitValue { unit, .. } => unit.map_or(0, |(_, bytes)| bytes.len()),
                Message::Reply { bytes, .. } => bytes.len(),
                Message::ReplyBody { record, tail, .. } => record.len() + tail.len(),
                _ => 0,
            };
            None
        }));
        assert!(
            ask(&mut cluster, client, &["GET", &key]) == bulk(&value(1)),
            "at node {node}"
        );
        let moved = *moved.borrow();
        assert!(moved[node] <= most, "{} bytes to node {node}", moved[node]);
        assert_eq!(
            moved.iter().sum::<usize>(),
            moved[node],
            "bytes to others than the client's node"
        );
    }
}

#[test]
fn ranges_and_commands_that_write_answer_with_the_same_bytes() {
    let (mut cluster, key, client) = start_with_value(3);
    for (from, to) in [
        (0, 0),
        (5, 100_000),
        (262_140, 262_150),
        (299_990, 300_006),
        (123_456, 299_000),
    ] {
        let range = ask(
            &mut cluster,
            client,
            &["GETRANGE", &key, &from.to_string(), &to.to_string()],
        );
        assert!(range == bulk(&value(1)[from..=to]), "{from} to {to}");
    }
    assert!(ask(&mut cluster, client, &["GETSET", &key, &value(2)]) == bulk(&value(1)));
    assert!(ask(&mut cluster, client, &["SET", &key, "short", "GET"]) == bulk(&value(2)));
    assert_eq!(ask(&mut cluster, client, &["SET", &key, &value(3)]), "+OK\r\n");
    assert!(ask(&mut cluster, client, &["GETDEL", &key]) == bulk(&value(3)));
    assert_eq!(ask(&mut cluster, client, &["GET", &key]), "$-1\r\n");
    cluster.advance(8_000);
    let replicas = cluster.processes.iter().map(|process| process.node.replica());
    let owners = replicas.flat_map(|replica| replica.lists().flat_map(|list| list.owners()));
    assert_eq!(
        owners.map(|owner| owner.ledger().alive_count()).sum::<usize>(),
        0,
        "pins are left"
    );
}

#[test]
fn replies_of_a_pipeline_come_in_order() {
    let (mut cluster, key) = start();
    let client = cluster.connect(3, Port::Any);
    let mut bytes = Vec::new();
    for seed in 0..20 {
        bytes.extend(request(&["SET", &key, &value(seed)]));
        bytes.extend(request(&["GET", &key]));
        bytes.extend(request(&["STRLEN", &key]));
    }
    cluster.feed(client, &bytes);
    let mut reply = String::new();
    for _ in 0..40 {
        cluster.advance(100);
        reply += &take(&mut cluster, client);
    }
    let wanted: Vec<String> = (0..20)
        .map(|seed| format!("+OK\r\n{}:{BYTES}\r\n", bulk(&value(seed))))
        .collect();
    assert!(reply == wanted.concat(), "{} bytes", reply.len());
}

#[test]
fn a_reader_gets_the_value_that_its_command_has_seen() {
    let (mut cluster, key) = start();
    let [reader, writer] = [3, 1].map(|node| cluster.connect(node, Port::Any));
    assert_eq!(ask(&mut cluster, writer, &["SET", &key, &value(1)]), "+OK\r\n");
    lose_units_to(&mut cluster, 3);
    assert_eq!(ask(&mut cluster, reader, &["GET", &key]), "");
    assert_eq!(ask(&mut cluster, writer, &["SET", &key, &value(2)]), "+OK\r\n");
    cluster.tamper = None;
    cluster.advance(500);
    assert!(
        take(&mut cluster, reader) == bulk(&value(1)),
        "the old value was pinned"
    );
    assert!(ask(&mut cluster, reader, &["GET", &key]) == bulk(&value(2)));
}

#[test]
fn a_read_goes_on_when_its_owner_dies() {
    let (mut cluster, key, client) = start_with_value(3);
    lose_units_to(&mut cluster, 3);
    assert_eq!(ask(&mut cluster, client, &["GET", &key]), "");
    cluster.kill(0);
    cluster.tamper = None;
    cluster.advance(500);
    assert!(
        take(&mut cluster, client) == bulk(&value(1)),
        "two of three parts are left"
    );
}

/// The owner of a value dies while no unit of it comes to node 1, and another node takes over. Returns the reply to a
/// command of a client at node 1, and how often it was forwarded.
fn lose_owner_in_reply(command: &str) -> (String, usize) {
    let (mut cluster, key) = start();
    let [reader, writer] = [1, 2].map(|node| cluster.connect(node, Port::Any));
    assert_eq!(ask(&mut cluster, writer, &["SET", &key, &value(1)]), "+OK\r\n");
    let forwards = Rc::new(RefCell::new(0));
    let seen = Rc::clone(&forwards);
    cluster.tamper = Some(Box::new(move |from, to, _, message| {
        *seen.borrow_mut() += usize::from(from == 1 && message.kind() == Kind::Forward);
        (to == 1 && message.kind() == Kind::UnitValue).then(Vec::new)
    }));
    assert_eq!(ask(&mut cluster, reader, &[command, &key]), "");
    cluster.kill(0);
    cluster.hand_over(0, 0, 3);
    let mut reply = String::new();
    for _ in 0..100 {
        cluster.advance(100);
        reply += &take(&mut cluster, reader);
    }
    assert!(!cluster.is_closed(reader), "nothing of the reply was sent");
    let forwards = *forwards.borrow();
    (reply, forwards)
}

#[test]
fn a_read_whose_owner_is_gone_is_begun_again_and_a_write_is_not() {
    let (reply, forwards) = lose_owner_in_reply("GET");
    // It cannot be read from the new owner's parts either, and that owner has pinned it.
    assert!(
        reply.starts_with("-TRYAGAIN") && forwards == 2,
        "{forwards} times: {} bytes",
        reply.len()
    );
    let (reply, forwards) = lose_owner_in_reply("GETDEL");
    assert!(
        reply.starts_with("-UNCERTAIN") && forwards == 1,
        "{forwards} times: {} bytes",
        reply.len()
    );
}

#[test]
fn a_read_is_not_begun_again_behind_a_later_command_of_its_client() {
    let (mut cluster, key, client) = start_with_value(3);
    lose_units_to(&mut cluster, 3);
    assert_eq!(ask(&mut cluster, client, &["GET", &key]), "");
    cluster.kill(0);
    cluster.hand_over(0, 0, 3);
    let mut reply = ask(&mut cluster, client, &["SET", &key, "later"]);
    for _ in 0..100 {
        cluster.advance(100);
        reply += &take(&mut cluster, client);
    }
    assert!(
        reply.starts_with("-TRYAGAIN") && reply.ends_with("\r\n+OK\r\n"),
        "{reply}"
    );
}

#[test]
fn a_short_value_that_cannot_be_read_is_refused_and_the_connection_goes_on() {
    let (mut cluster, key, client) = start_with_value(3);
    lose_units_to(&mut cluster, 3);
    cluster.feed(client, &request(&["GET", &key]));
    cluster.advance(20_000);
    let reply = take(&mut cluster, client);
    assert!(reply.starts_with("-TRYAGAIN"), "{reply}");
    cluster.tamper = None;
    assert!(ask(&mut cluster, client, &["GET", &key]) == bulk(&value(1)));
}

/// P5.13: the second does not begin to wait when the first is refused.
#[test]
fn values_of_a_pipeline_that_cannot_be_read_are_refused_together() {
    let (mut cluster, key, client) = start_with_value(3);
    lose_units_to(&mut cluster, 3);
    let get = request(&["GET", &key]);
    cluster.feed(client, &get.repeat(3));
    cluster.advance(3_900);
    assert_eq!(take(&mut cluster, client), "");
    cluster.advance(600);
    let reply = take(&mut cluster, client);
    assert_eq!(reply.matches("-TRYAGAIN").count(), 3, "{reply}");
}
