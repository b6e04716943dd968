//! Keys in the order of their hashes, as a client gets them from SCAN. The index grows for them, however small the
//! window is and however slow the acks are, and nothing is refused or evicted for it (docs/formats/index.md, "Growth").

use paritas_base::ListId;
use paritas_protocol::{Parameters, Policy, Port};
use paritas_testbed::{Client, Cluster};
use paritas_wire::peer::Message;

const MEMORY_BYTES: u64 = 64 << 20;

fn cluster(policy: Policy, credit_batch: u32) -> (Cluster, Client) {
    let parameters = Parameters {
        policy,
        credit_batch,
        window_bytes: 256 << 10,
        ..Parameters::default()
    };
    let mut cluster = Cluster::coded_in(MEMORY_BYTES, 2, 1, 1, 0, parameters);
    let client = cluster.connect(0, Port::Any);
    (cluster, client)
}

/// Of `of` keys of node 0's stream, the first `count` in the order of their hashes.
fn first_in_order(cluster: &Cluster, of: u32, count: usize) -> Vec<String> {
    let list = cluster.processes[0].node.replica().list(ListId(0)).unwrap();
    let store = list.owners().next().expect("node 0 is an owner").store();
    let mut keys: Vec<_> = (0..of).map(|n| format!("{{b}}{n}")).collect();
    keys.sort_by_cached_key(|key| store.hash(0, key.as_bytes()));
    keys.truncate(count);
    keys
}

fn command(words: &[&str]) -> String {
    let mut bytes = format!("*{}\r\n", words.len());
    for word in words {
        bytes += &format!("${}\r\n{word}\r\n", word.len());
    }
    bytes
}

/// Sends the whole pipeline at once, with late acks, and waits for `count` replies, all OK.
fn all_ok(cluster: &mut Cluster, client: Client, pipeline: &str, count: usize) {
    cluster.tamper = Some(Box::new(|_, _, _, message| {
        matches!(message, Message::Ack { .. }).then(Vec::new)
    }));
    cluster.feed(client, pipeline.as_bytes());
    cluster.pump();
    cluster.tamper = None;
    let mut replies = String::new();
    for _ in 0..2_000 {
        replies += &String::from_utf8(cluster.take(client)).unwrap();
        if replies.len() >= 5 * count {
            break;
        }
        cluster.advance(20);
    }
    assert!(
        replies == "+OK\r\n".repeat(count),
        "{} bytes of {}: {:.200}",
        replies.len(),
        5 * count,
        replies.trim_start_matches("+OK\r\n")
    );
}

fn evicted(cluster: &mut Cluster, client: Client) -> bool {
    !cluster.ask(client, "INFO everything").contains("evicted_keys:0\r\n")
}

#[test]
fn single_keys_in_the_order_of_their_hashes_are_all_taken() {
    for policy in [Policy::NoEviction, Policy::AllKeysLru] {
        let (mut cluster, client) = cluster(policy, 4);
        let keys = first_in_order(&cluster, 400_000, 12_000);
        let value = "v".repeat(1_000);
        for some in keys.chunks(1_000) {
            let pipeline: String = some.iter().map(|key| command(&["SET", key, &value])).collect();
            all_ok(&mut cluster, client, &pipeline, some.len());
        }
        assert_eq!(cluster.ask(client, "DBSIZE"), ":12000\r\n");
        assert!(!evicted(&mut cluster, client), "memory is free");
    }
}

#[test]
fn commands_of_many_keys_in_the_order_of_their_hashes_are_all_taken() {
    for policy in [Policy::NoEviction, Policy::AllKeysLru] {
        for (count, at_once) in [(3_500, 3_500), (12_000, 1_000), (12_000, 40)] {
            let (mut cluster, client) = cluster(policy, 4);
            let keys = first_in_order(&cluster, 200_000, count);
            for some in keys.chunks(at_once) {
                let mut words = vec!["MSET"];
                words.extend(some.iter().flat_map(|key| [key.as_str(), "v"]));
                all_ok(&mut cluster, client, &command(&words), 1);
            }
            assert_eq!(cluster.ask(client, "DBSIZE"), format!(":{count}\r\n"));
            assert!(!evicted(&mut cluster, client), "memory is free");
        }
    }
}

/// Keys that are there, or that a command names many times, are no crowd.
#[test]
fn the_index_does_not_grow_for_keys_that_are_not_new() {
    let (mut cluster, client) = cluster(Policy::NoEviction, 4);
    let pages = |cluster: &Cluster| {
        let list = cluster.processes[0].node.replica().list(ListId(0)).unwrap();
        list.owners().next().unwrap().store().page_count()
    };
    let words: Vec<&str> = ["MSET"].into_iter().chain(["k{b}", "v"].repeat(3_500)).collect();
    all_ok(&mut cluster, client, &command(&words), 1);
    assert_eq!((pages(&cluster), &*cluster.ask(client, "DBSIZE")), (1, ":1\r\n"));
    let keys: Vec<String> = (0..2_300).map(|n| format!("{{b}}{n}")).collect();
    let mut words = vec!["MSET"];
    words.extend(keys.iter().flat_map(|key| [key.as_str(), "v"]));
    all_ok(&mut cluster, client, &command(&words), 1);
    let before = pages(&cluster);
    all_ok(&mut cluster, client, &command(&words), 1);
    assert_eq!(pages(&cluster), before);
}
