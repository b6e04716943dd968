//! DUMP and RESTORE. Replies as recorded from Redis are in `redis-replies.txt`.

use crate::transactions::ask;
use paritas_protocol::{Parameters, Port};
use paritas_testbed::{Client, Cluster};
use paritas_wire::rdb;

fn ask_bytes(cluster: &mut Cluster, client: Client, words: &[&[u8]]) -> Vec<u8> {
    let mut request = Vec::new();
    paritas_wire::resp::encode::request(&mut request, words);
    cluster.feed(client, &request);
    cluster.advance(1000);
    cluster.take(client)
}

/// The string in a reply.
fn bulk(reply: &[u8]) -> &[u8] {
    let start = reply.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    &reply[start..reply.len() - 2]
}

#[test]
fn values_of_all_lengths_are_dumped_and_restored_at_any_node() {
    let mut cluster = Cluster::coded_in(64 << 20, 2, 1, 1, 1, Parameters::default());
    let clients = [0, 1, 3].map(|node| cluster.connect(node, Port::Any));
    for (nth, length) in [0, 1, 1000, 65_536, 70_000, 1 << 20, 4 << 20].into_iter().enumerate() {
        let value: Vec<u8> = (0..length).map(|i| (i * 7 + i / 999) as u8).collect();
        let (from, to) = (clients[nth % 3], clients[(nth + 1) % 3]);
        for (key, copy) in [(&b"{a}"[..], &b"{a}2"[..]), (b"{b}", b"{c}")] {
            assert_eq!(ask_bytes(&mut cluster, from, &[b"SET", key, &value]), b"+OK\r\n");
            let dumped = ask_bytes(&mut cluster, from, &[b"DUMP", key]);
            let payload = bulk(&dumped).to_vec();
            let restore = [b"RESTORE", copy, b"0", &payload, b"REPLACE"];
            assert_eq!(ask_bytes(&mut cluster, to, &restore), b"+OK\r\n", "{length}");
            let got = ask_bytes(&mut cluster, to, &[b"GET", copy]);
            assert!(bulk(&got) == value, "{length}");
            assert_eq!(ask_bytes(&mut cluster, to, &[b"DEL", copy]), b":1\r\n");
        }
    }
    let long = vec![b'x'; (4 << 20) + 1];
    assert_eq!(
        ask_bytes(&mut cluster, clients[0], &[b"SET", b"long", &long]),
        b"+OK\r\n"
    );
    let too_long = "-ERR a value of 4194305 bytes cannot be dumped or restored, at most 4194304 are allowed\r\n";
    assert_eq!(ask(&mut cluster, clients[0], &["DUMP", "long"]), too_long);
    let mut payload = vec![rdb::STRING];
    rdb::push_string(&mut payload, &long);
    let payload = rdb::seal(payload);
    let refused = ask_bytes(&mut cluster, clients[2], &[b"RESTORE", b"other", b"0", &payload]);
    assert_eq!(String::from_utf8_lossy(&refused), too_long);
}

#[test]
fn other_types_are_refused_by_name_and_change_nothing() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0, Port::Any);
    assert_eq!(ask(&mut cluster, client, &["SET", "k", "old"]), "+OK\r\n");
    for (kind, name) in [
        (18, "a list"),
        (20, "a set"),
        (17, "a sorted set"),
        (16, "a hash"),
        (21, "a stream"),
    ] {
        let payload = rdb::seal(vec![kind, 1, 1, b'x']);
        let refused = ask_bytes(&mut cluster, client, &[b"RESTORE", b"k", b"0", &payload, b"REPLACE"]);
        let expected = format!("-ERR the payload is {name}; only strings are supported here\r\n");
        assert_eq!(String::from_utf8_lossy(&refused), expected);
    }
    assert_eq!(ask(&mut cluster, client, &["GET", "k"]), "$3\r\nold\r\n");
}
