//! A command that changes several keys of a stream is one delta: after its owner's death all of it is there, or nothing
//! (P1.3), even if the index grows in it.

use paritas_base::ListId;
use paritas_protocol::{Parameters, Port};
use paritas_testbed::{Client, Cluster};
use paritas_wire::peer::Message;

fn seq(cluster: &Cluster) -> u64 {
    let list = cluster.processes[0].node.replica().list(ListId(0)).unwrap();
    list.owners().next().expect("node 0 is an owner").seq()
}

/// Sends a command too long for one line.
fn send(cluster: &mut Cluster, client: Client, command: &str) -> String {
    let words: Vec<&str> = command.split(' ').collect();
    let mut bytes = format!("*{}\r\n", words.len());
    for word in words {
        bytes += &format!("${}\r\n{word}\r\n", word.len());
    }
    cluster.feed(client, bytes.as_bytes());
    cluster.pump();
    String::from_utf8(cluster.take(client)).unwrap()
}

/// What is left of `command` when only the first deltas that it makes have left its owner: how many of the keys exist.
fn survivors(cluster: &mut Cluster, client: Client, command: &str, keys: &[String], deltas: u64) -> usize {
    let last = seq(cluster) + deltas;
    cluster.tamper = Some(Box::new(move |_, _, _, message| match message {
        Message::Delta { seq, .. } if *seq > last => Some(Vec::new()),
        _ => None,
    }));
    let reply = send(cluster, client, command);
    assert!(!reply.starts_with('-'), "{reply}");
    cluster.kill(0);
    cluster.tamper = None;
    cluster.hand_over(0, 0, 3);
    cluster.advance(5_000);
    let client = cluster.connect(1, Port::Any);
    let mut found = 0;
    for some in keys.chunks(100) {
        let reply = cluster.ask(client, &format!("EXISTS {}", some.join(" ")));
        let count: usize = reply.trim().strip_prefix(':').expect(&reply).parse().unwrap();
        found += count;
    }
    found
}

/// `1+2` and a spare. One stream has all keys.
fn one_stream() -> (Cluster, Client) {
    let mut cluster = Cluster::coded(1, 2, 1, 1, Parameters::default());
    let client = cluster.connect(0, Port::Any);
    (cluster, client)
}

fn keys(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("k{n}")).collect()
}

fn mset(keys: &[String], value: &str) -> String {
    let pairs: Vec<String> = keys.iter().map(|key| format!("{key} {value}")).collect();
    format!("MSET {}", pairs.join(" "))
}

#[test]
fn an_mset_in_which_the_index_grows_is_not_cut_in_two() {
    // After `before` keys, the index grows by a step of the longest kind while the command is under way.
    for before in [0, 10_500, 13_000, 15_500] {
        for (count, value_bytes) in [(1_150, 105), (3_500, 1)] {
            let (mut cluster, client) = one_stream();
            for some in keys(before).chunks(1_000) {
                let other = mset(some, "old").replace(" k", " b");
                assert_eq!(send(&mut cluster, client, &other), "+OK\r\n");
            }
            let keys = keys(count);
            let command = mset(&keys, &"v".repeat(value_bytes));
            let found = survivors(&mut cluster, client, &command, &keys, 1);
            assert_eq!(found, count, "{before} keys before");
        }
    }
}

/// As many keys as one command may have, whose hashes lie close together, into an empty stream: before the first of
/// them, the index grows until they do not crowd in it, in deltas of its own.
#[test]
fn an_mset_before_which_the_index_grows_is_not_cut_in_two() {
    let (cluster, _) = one_stream();
    let list = cluster.processes[0].node.replica().list(ListId(0)).unwrap();
    let store = list.owners().next().expect("node 0 is an owner").store();
    let mut keys = keys(40_000);
    keys.sort_by_cached_key(|key| store.hash(0, key.as_bytes()));
    keys.truncate(3_500);
    let found = (1..=8).map(|deltas| {
        let (mut cluster, client) = one_stream();
        survivors(&mut cluster, client, &mset(&keys, "v"), &keys, deltas)
    });
    let found: Vec<usize> = found.collect();
    println!("{found:?}");
    assert!(found.iter().all(|count| [0, 3_500].contains(count)), "{found:?}");
    assert_eq!((found[0], found[7]), (0, 3_500));
}

#[test]
fn a_del_of_many_keys_is_not_cut_in_two() {
    let (mut cluster, client) = one_stream();
    let keys = keys(4_000);
    for some in keys.chunks(1_000) {
        assert_eq!(send(&mut cluster, client, &mset(some, "value")), "+OK\r\n");
    }
    let found = survivors(&mut cluster, client, &format!("DEL {}", keys.join(" ")), &keys, 1);
    assert_eq!(found, 0);
}

#[test]
fn more_keys_than_one_delta_takes_are_refused_before_any_change() {
    let (mut cluster, client) = one_stream();
    let keys: Vec<String> = (0..4_100).map(|n| format!("{{t}}{n}")).collect();
    let before = seq(&cluster);
    let reply = send(&mut cluster, client, &mset(&keys, "v"));
    assert_eq!(
        reply,
        "-ERR too many keys for one slot in one command: \
         keys and values and 64 bytes for each key are over 262144 bytes\r\n"
    );
    assert_eq!((seq(&cluster), &*cluster.ask(client, "DBSIZE")), (before, ":0\r\n"));
}

#[test]
fn an_mset_of_small_keys_needs_no_more_memory_than_they_take() {
    // 3 MiB: 192 chunks. The keys take 10 chunks and 3 index pages.
    let mut cluster = Cluster::with(1, 3 << 20, Parameters::default());
    let client = cluster.connect(0, Port::Any);
    let keys: Vec<String> = (0..3_000).map(|n| format!("{{t}}{n}")).collect();
    assert_eq!(send(&mut cluster, client, &mset(&keys, "v")), "+OK\r\n");
    assert_eq!(cluster.ask(client, "DBSIZE"), ":3000\r\n");
}

/// Its parts are in order, and wait for a window in that order: the last value of a key given twice stays.
#[test]
fn a_command_over_slots_may_be_larger_than_a_delta() {
    let (mut cluster, client) = one_stream();
    cluster.advance(5_000);
    let value = "v".repeat(30_000);
    let command = format!(
        "MSET twice first {} twice last",
        mset(&keys(70), &value).replacen("MSET ", "", 1)
    );
    let at_once = send(&mut cluster, client, &command);
    cluster.advance(1_000);
    let later = String::from_utf8(cluster.take(client)).unwrap();
    assert_eq!(at_once + &later, "+OK\r\n");
    assert_eq!(cluster.ask(client, "DBSIZE"), ":71\r\n");
    assert_eq!(cluster.ask(client, "GET twice"), "$4\r\nlast\r\n");
    assert_eq!(cluster.ask(client, "STRLEN k69"), ":30000\r\n");

    let small = keys(9_000);
    let at_once = send(&mut cluster, client, &mset(&small, "v"));
    cluster.advance(1_000);
    let later = String::from_utf8(cluster.take(client)).unwrap();
    assert_eq!(at_once + &later, "+OK\r\n");
    let at_once = send(&mut cluster, client, &format!("DEL {}", small.join(" ")));
    cluster.advance(1_000);
    let later = String::from_utf8(cluster.take(client)).unwrap();
    assert_eq!(at_once + &later, ":9000\r\n");
}
