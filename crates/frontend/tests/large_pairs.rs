//! MSET and MSETNX with values in parts (P14.14): all pairs of a stream at once, or none.

use paritas_protocol::{Parameters, Port};
use paritas_testbed::{Client, Cluster};
use paritas_wire::command;

/// `2+1` and a spare. Node 3 owns nothing.
fn start() -> Cluster {
    Cluster::coded_in(64 << 20, 2, 1, 1, 1, Parameters::default())
}

/// A tag whose hash slot belongs to the first stream, or to the second.
fn tag(second: bool) -> String {
    let mut tags = (0..).map(|i| format!("{{t{i}}}"));
    tags.find(|tag| (command::slot(tag.as_bytes()) >= 8192) == second)
        .unwrap()
}

fn value(seed: usize, bytes: usize) -> String {
    let byte = |i| char::from(b'a' + ((i * 7 + i / 1000 + seed) % 26) as u8);
    (0..bytes).map(byte).collect()
}

fn ask(cluster: &mut Cluster, client: Client, words: &[&str]) -> String {
    let mut request = Vec::new();
    paritas_wire::resp::encode::request(&mut request, words);
    cluster.feed(client, &request);
    cluster.advance(200);
    String::from_utf8(cluster.take(client)).unwrap()
}

/// Groups of parts that owners know.
fn groups(cluster: &Cluster) -> usize {
    let replicas = cluster.processes.iter().map(|process| process.node.replica());
    let owners = replicas.flat_map(|replica| replica.lists().flat_map(|list| list.owners()));
    owners.map(|owner| owner.ledger().alive_count()).sum()
}

fn bulk(value: &str) -> String {
    format!("${}\r\n{value}\r\n", value.len())
}

#[test]
fn pairs_with_values_of_all_lengths_are_stored_by_one_command() {
    for node in [0, 3] {
        let mut cluster = start();
        let client = cluster.connect(node, Port::Any);
        let tag = tag(false);
        let keys: Vec<String> = (0..6).map(|i| format!("{tag}{i}")).collect();
        let lengths = [100, 70_000, 300_000, 131_072, 65_536, 1_400_000];
        let values: Vec<String> = lengths.iter().enumerate().map(|(i, n)| value(i, *n)).collect();
        let mut words = vec!["MSET"];
        keys.iter()
            .zip(&values)
            .for_each(|(key, value)| words.extend([key.as_str(), value]));
        // The last one counts.
        words.extend([keys[1].as_str(), &values[2]]);
        assert_eq!(ask(&mut cluster, client, &words), "+OK\r\n", "at node {node}");
        for (i, key) in keys.iter().enumerate() {
            let wanted = if i == 1 { &values[2] } else { &values[i] };
            assert!(
                ask(&mut cluster, client, &["GET", key]) == bulk(wanted),
                "{key} at node {node}"
            );
        }
        // The value that was overwritten in the same command is gone.
        cluster.advance(8_000);
        assert_eq!(groups(&cluster), 8, "at node {node}");
        let mut delete = vec!["DEL"];
        delete.extend(keys.iter().map(String::as_str));
        assert_eq!(ask(&mut cluster, client, &delete), ":6\r\n");
        cluster.advance(8_000);
        assert_eq!(groups(&cluster), 0, "at node {node}");
    }
}

#[test]
fn pairs_of_several_streams_are_stored_and_take_no_names_of_each_other() {
    for node in [0, 1, 3] {
        let mut cluster = start();
        let client = cluster.connect(node, Port::Any);
        // More than one part of each stream: 300 keys with 300 bytes each, and large values between them.
        let keys: Vec<String> = (0..1200).map(|i| format!("{}{i}", tag(i % 2 == 0))).collect();
        let values: Vec<String> = (0..1200)
            .map(|i| value(i, if i % 40 < 2 { 70_000 + i } else { 300 }))
            .collect();
        let mut words = vec!["MSET"];
        keys.iter()
            .zip(&values)
            .for_each(|(key, value)| words.extend([key.as_str(), value]));
        assert_eq!(ask(&mut cluster, client, &words), "+OK\r\n", "at node {node}");
        for (key, value) in keys.iter().zip(&values) {
            let mut request = Vec::new();
            paritas_wire::resp::encode::request(&mut request, &["GET", key]);
            cluster.feed(client, &request);
            cluster.advance(5);
            let reply = String::from_utf8(cluster.take(client)).unwrap();
            assert!(reply == bulk(value), "{key} at node {node}: {} bytes", reply.len());
        }
    }
}

#[test]
fn msetnx_writes_all_or_nothing_and_leaves_no_parts() {
    let mut cluster = start();
    let client = cluster.connect(3, Port::Any);
    let (a, b) = (format!("{}a", tag(true)), format!("{}b", tag(true)));
    let large = value(1, 100_000);
    assert_eq!(ask(&mut cluster, client, &["MSETNX", &a, &large, &b, &large]), ":1\r\n");
    assert!(ask(&mut cluster, client, &["GET", &b]) == bulk(&large));
    assert_eq!(ask(&mut cluster, client, &["DEL", &a]), ":1\r\n");
    assert_eq!(ask(&mut cluster, client, &["MSETNX", &a, &large, &b, "x"]), ":0\r\n");
    assert_eq!(ask(&mut cluster, client, &["EXISTS", &a]), ":0\r\n");
    cluster.advance(8_000);
    assert_eq!(groups(&cluster), 2);
}

#[test]
fn what_is_too_long_together_is_refused_before_anything_is_sent() {
    let mut cluster = start();
    let client = cluster.connect(0, Port::Any);
    let tag = tag(false);
    let keys: Vec<String> = (0..3).map(|i| format!("{tag}{i}")).collect();
    let large = "x".repeat(6 << 20);
    let words = ["MSET", &keys[0], &large, &keys[1], &large, &keys[2], &large];
    let reply = ask(&mut cluster, client, &words);
    assert!(reply.starts_with("-ERR command larger than 16908288 bytes"), "{reply}");
    assert_eq!(groups(&cluster), 0);
    assert_eq!(ask(&mut cluster, client, &["EXISTS", &keys[0]]), ":0\r\n");
}

#[test]
fn nothing_is_visible_until_the_last_value_has_its_parts_and_nothing_stays_if_the_client_goes() {
    let mut cluster = start();
    let client = cluster.connect(0, Port::Any);
    let other = cluster.connect(0, Port::Any);
    let (a, b) = (format!("{}a", tag(false)), format!("{}b", tag(false)));
    // Of the second value, no unit arrives.
    let long = value(2, 400_000);
    cluster.tamper = Some(Box::new(|_, _, _, message| {
        let is_late = matches!(message, paritas_wire::peer::Message::PutUnit { name, .. } if name.group & 0xfff > 2);
        is_late.then(Vec::new)
    }));
    let mut request = Vec::new();
    paritas_wire::resp::encode::request(&mut request, &["MSET", &a, &value(1, 100_000), &b, &long]);
    cluster.feed(client, &request);
    cluster.advance(500);
    assert!(
        cluster.take(client).is_empty(),
        "the command waits for the second value"
    );
    // The second one may just be begun again.
    assert!(groups(&cluster) >= 2, "the first value has its parts");
    assert_eq!(ask(&mut cluster, other, &["EXISTS", &a, &b]), ":0\r\n");
    cluster.event(0, paritas_protocol::Event::ClientDown { conn: client.conn });
    cluster.tamper = None;
    cluster.advance(8_000);
    assert_eq!(ask(&mut cluster, other, &["EXISTS", &a, &b]), ":0\r\n");
    assert_eq!(groups(&cluster), 0, "parts of a command that never ran");
}
