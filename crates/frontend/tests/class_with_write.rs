//! PARITAS.SET: a value and its class with one command.

use crate::long_values::{ask, request, value_of};
use paritas_protocol::{Parameters, Port};
use paritas_testbed::{Client, Cluster};
use paritas_wire::command;

/// One that comes with its command, and one that goes ahead of it.
const LENGTHS: [usize; 2] = [80_000, 1_300_007];

/// `2+2` and a spare, which is node 4. Node 0 owns the key.
fn start() -> (Cluster, String) {
    let parameters = Parameters {
        streamed_bytes_min: 100_000,
        piece_bytes: 64 << 10,
        hotness: Some("hot rep:3 cold ec:2,2 reads 1000".parse().unwrap()),
        class_rules: "ruled* rep:3".parse().unwrap(),
        ..Parameters::default()
    };
    let cluster = Cluster::coded_in(64 << 20, 2, 2, 1, 1, parameters);
    let mut keys = (0..).map(|i| format!("ruled{i}"));
    let key = keys.find(|key| command::slot(key.as_bytes()) < 8192).unwrap();
    (cluster, key)
}

fn class(cluster: &mut Cluster, client: Client, key: &str) -> String {
    let reply = ask(cluster, client, &["PARITAS.REDUNDANCY", key]);
    reply.split("\r\n").nth(1).unwrap_or_default().to_owned()
}

fn is(reply: &str, value: &str) -> bool {
    reply == format!("${}\r\n{value}\r\n", value.len())
}

/// Groups of parts that owners know.
fn groups(cluster: &Cluster) -> usize {
    let replicas = cluster.processes.iter().map(|process| process.node.replica());
    let owners = replicas.flat_map(|replica| replica.lists().flat_map(|list| list.owners()));
    owners.map(|owner| owner.ledger().alive_count()).sum()
}

#[test]
fn a_value_has_the_class_of_its_write_before_rules_and_settings() {
    for node in [0, 1, 4] {
        let (mut cluster, key) = start();
        let client = cluster.connect(node, Port::Any);
        for (seed, bytes) in LENGTHS.into_iter().enumerate() {
            let value = value_of(bytes, seed);
            for given in ["ec:2,1", "EOR:2,2", "none", "rep:4", "ec:2,2"] {
                let reply = ask(&mut cluster, client, &["PARITAS.SET", given, &key, &value]);
                assert_eq!(reply, "+OK\r\n", "{given}, {bytes} bytes at node {node}");
                assert_eq!(class(&mut cluster, client, &key), given.to_ascii_lowercase());
                let reply = ask(&mut cluster, client, &["GET", &key]);
                assert!(is(&reply, &value), "{given}, {bytes} bytes at node {node}");
            }
            // Without a class the rule counts.
            ask(&mut cluster, client, &["SET", &key, &value]);
            assert_eq!(
                class(&mut cluster, client, &key),
                "rep:3",
                "{bytes} bytes at node {node}"
            );
        }
    }
}

#[test]
fn options_are_those_of_set() {
    for bytes in LENGTHS {
        let (mut cluster, key) = start();
        let client = cluster.connect(1, Port::Any);
        let (first, second) = (value_of(bytes, 1), value_of(bytes, 2));
        let set = |cluster: &mut Cluster, class: &str, value: &str, options: &[&str]| {
            let words = [&["PARITAS.SET", class, &key, value], options].concat();
            ask(cluster, client, &words)
        };
        assert_eq!(set(&mut cluster, "none", &first, &["XX"]), "$-1\r\n");
        assert_eq!(set(&mut cluster, "ec:2,1", &first, &["NX", "EX", "100"]), "+OK\r\n");
        assert_eq!(set(&mut cluster, "none", &second, &["NX"]), "$-1\r\n");
        assert_eq!(class(&mut cluster, client, &key), "ec:2,1");
        let reply = set(&mut cluster, "rep:2", &second, &["XX", "GET", "KEEPTTL"]);
        assert!(is(&reply, &first), "{} bytes", reply.len());
        assert_eq!(class(&mut cluster, client, &key), "rep:2");
        let left = ask(&mut cluster, client, &["TTL", &key]);
        assert!(left == ":100\r\n" || left == ":99\r\n", "{left}");
        assert_eq!(set(&mut cluster, "none", &first, &["IFEQ", "other"]), "$-1\r\n");
        assert_eq!(class(&mut cluster, client, &key), "rep:2");
        assert_eq!(set(&mut cluster, "none", "short", &["PX", "50000"]), "+OK\r\n");
        assert_eq!(set(&mut cluster, "eor:3,2", &first, &["IFEQ", "short"]), "+OK\r\n");
        assert_eq!(class(&mut cluster, client, &key), "eor:3,2");
        assert_eq!(ask(&mut cluster, client, &["TTL", &key]), ":-1\r\n");
        assert!(set(&mut cluster, "none", &first, &["MAYBE"]).starts_with("-ERR syntax error"));
        assert_eq!(set(&mut cluster, "none", &first, &["PXAT", "1000"]), "+OK\r\n");
        assert_eq!(ask(&mut cluster, client, &["EXISTS", &key]), ":0\r\n");
        cluster.advance(20_000);
        assert_eq!(groups(&cluster), 0, "parts of values that were not stored");
    }
}

#[test]
fn a_short_value_lies_in_stripes_and_cannot_have_more_than_these() {
    let (mut cluster, key) = start();
    let client = cluster.connect(1, Port::Any);
    let short = value_of(65_536, 1);
    for class in ["none", "ec:2,1", "ec:2,2", "rep:3", "eor:3,2"] {
        assert_eq!(
            ask(&mut cluster, client, &["PARITAS.SET", class, &key, &short]),
            "+OK\r\n"
        );
        assert!(is(&ask(&mut cluster, client, &["GET", &key]), &short));
    }
    assert_eq!(class(&mut cluster, client, &key), "ec:2,2", "that of the scheme");
    for class in ["rep:4", "ec:1,3"] {
        let reply = ask(&mut cluster, client, &["PARITAS.SET", class, &key, "other"]);
        let says = format!("-ERR {class} survives 3 losses, but a value of at most 65536 bytes has the redundancy");
        assert!(reply.starts_with(&says), "{reply}");
    }
    assert!(is(&ask(&mut cluster, client, &["GET", &key]), &short));
}

#[test]
fn what_is_no_class_here_is_named_and_nothing_stays() {
    for (node, bytes) in [
        (0, LENGTHS[0]),
        (1, LENGTHS[0]),
        (0, LENGTHS[1]),
        (1, LENGTHS[1]),
        (1, 5),
    ] {
        let (mut cluster, key) = start();
        let client = cluster.connect(node, Port::Any);
        let value = value_of(bytes, 1);
        for (class, says) in [
            (
                "raid:5",
                "-ERR \"raid:5\" is not a redundancy class: expected none, rep:COPIES, ec:DATA,PARITY or eor:COPIES",
            ),
            ("", "-ERR \"\" is not a redundancy class"),
            (
                "ec:3,2",
                "-ERR ec:3,2 needs 5 nodes, and a stripe list of this cluster has 4",
            ),
            ("ec:2,0", "-ERR ec:2,0: without parity choose `none`"),
        ] {
            let reply = ask(&mut cluster, client, &["PARITAS.SET", class, &key, &value]);
            assert!(
                reply.starts_with(says),
                "{class}, {bytes} bytes at node {node}: {reply}"
            );
        }
        // The class comes first, so a key in its place is seen.
        let reply = ask(&mut cluster, client, &["PARITAS.SET", &key, "none", &value]);
        assert!(reply.contains("is not a redundancy class"), "{reply}");
        assert_eq!(ask(&mut cluster, client, &["EXISTS", &key, "none"]), ":0\r\n");
        cluster.advance(20_000);
        assert_eq!(groups(&cluster), 0);
    }
}

#[test]
fn in_transactions_and_scripts_it_is_refused_in_words() {
    let (mut cluster, key) = start();
    let client = cluster.connect(1, Port::Any);
    for value in ["short", &value_of(LENGTHS[0], 1)] {
        assert_eq!(ask(&mut cluster, client, &["MULTI"]), "+OK\r\n");
        let reply = ask(&mut cluster, client, &["PARITAS.SET", "none", &key, value]);
        assert!(reply.starts_with("-ERR") && reply.contains("paritas.set"), "{reply}");
        assert!(ask(&mut cluster, client, &["EXEC"]).starts_with("-EXECABORT"));
        let script = "return redis.call('PARITAS.SET', 'none', KEYS[1], ARGV[1])";
        let reply = ask(&mut cluster, client, &["EVAL", script, "1", &key, value]);
        assert!(reply.contains("not allowed from script"), "{reply}");
        assert_eq!(ask(&mut cluster, client, &["EXISTS", &key]), ":0\r\n");
    }
}

#[test]
fn clients_of_a_cluster_find_its_key() {
    let (mut cluster, key) = start();
    let client = cluster.connect(1, Port::Any);
    let keys = ask(
        &mut cluster,
        client,
        &["COMMAND", "GETKEYS", "PARITAS.SET", "none", &key, "v", "EX", "1"],
    );
    assert_eq!(keys, format!("*1\r\n${}\r\n{key}\r\n", key.len()));
    let strict = cluster.connect(1, Port::Cluster);
    for bytes in [5, LENGTHS[0], LENGTHS[1]] {
        let value = value_of(bytes, 1);
        cluster.feed(strict, &request(&["PARITAS.SET", "none", &key, &value]));
        cluster.advance(200);
        let reply = String::from_utf8(cluster.take(strict)).unwrap();
        let says = format!("-MOVED {} ", command::slot(key.as_bytes()));
        assert!(reply.starts_with(&says), "{bytes} bytes: {reply}");
    }
}

#[test]
fn values_above_large_from_are_large() {
    let parameters = Parameters {
        large_from: 16 << 10,
        ..Parameters::default()
    };
    // One data block of 16 KiB. Node 3 is a spare.
    let mut cluster = Cluster::coded_in(64 << 20, 1, 2, 1, 1, parameters);
    for node in [0, 3] {
        let client = cluster.connect(node, Port::Any);
        for (bytes, told) in [
            (16_384, "ec:1,2"),
            (16_385, "rep:2"),
            (65_536, "rep:2"),
            (70_000, "rep:2"),
        ] {
            let value = value_of(bytes, 1);
            assert_eq!(
                ask(&mut cluster, client, &["PARITAS.SET", "rep:2", "k", &value]),
                "+OK\r\n"
            );
            assert_eq!(class(&mut cluster, client, "k"), told, "{bytes} bytes");
            assert!(is(&ask(&mut cluster, client, &["GET", "k"]), &value), "{bytes} bytes");
        }
        let value = value_of(16_385, 1);
        let pairs = ["MSET", "{k}a", &value, "{k}b", "v", "{k}c", &value];
        assert_eq!(ask(&mut cluster, client, &pairs), "+OK\r\n");
        for transaction in [
            &["MULTI"][..],
            &["SET", "{k}d", &value],
            &["APPEND", "{k}b", &value],
            &["EXEC"],
        ] {
            assert!(!ask(&mut cluster, client, transaction).contains('-'), "{transaction:?}");
        }
        for key in ["{k}a", "{k}c", "{k}d", "{k}b"] {
            assert_eq!(
                ask(&mut cluster, client, &["PARITAS.REDUNDANCY", key, "rep:2"]),
                "+OK\r\n",
                "{key}"
            );
        }
        // What is in stripes stays there until it is written.
        assert_eq!(ask(&mut cluster, client, &["SET", "k", &value[1..]]), "+OK\r\n");
        assert_eq!(ask(&mut cluster, client, &["APPEND", "k", "!"]), ":16385\r\n");
        assert_eq!(class(&mut cluster, client, "k"), "ec:1,2");
        assert_eq!(
            ask(&mut cluster, client, &["PARITAS.REDUNDANCY", "k", "rep:2"]),
            "+OK\r\n"
        );
        assert!(is(
            &ask(&mut cluster, client, &["GET", "k"]),
            &format!("{}!", &value[1..])
        ));
        ask(&mut cluster, client, &["FLUSHALL"]);
    }
}

#[test]
fn the_setting_changes_while_values_are_there() {
    let mut cluster = Cluster::coded_in(64 << 20, 1, 2, 1, 1, Parameters::default());
    let client = cluster.connect(0, Port::Any);
    let value = value_of(20_000, 1);
    let set = |cluster: &mut Cluster, bytes: &str| ask(cluster, client, &["CONFIG", "SET", "large-from", bytes]);
    assert_eq!(ask(&mut cluster, client, &["SET", "stripes", &value]), "+OK\r\n");
    assert_eq!(set(&mut cluster, "16kb"), "+OK\r\n");
    assert_eq!(ask(&mut cluster, client, &["SET", "parts", &value]), "+OK\r\n");
    assert!(ask(&mut cluster, client, &["CONFIG", "GET", "large-from"]).contains("16384"));
    let few = set(&mut cluster, "16383");
    assert!(
        few.contains("at least 16384 are needed, not 16383: a large value should have a whole chunk"),
        "{few}"
    );
    let many = set(&mut cluster, "65537");
    assert!(
        many.contains("65537 bytes do not fit one object: at most 65536 are possible"),
        "{many}"
    );
    for bytes in ["16kb", "64kb"] {
        assert_eq!(set(&mut cluster, bytes), "+OK\r\n");
        for key in ["stripes", "parts"] {
            assert!(is(&ask(&mut cluster, client, &["GET", key]), &value), "{key}");
        }
        let told = ask(&mut cluster, client, &["PARITAS.REDUNDANCY", "stripes", "none"]);
        assert!(told.starts_with("-ERR the value is stored in stripes"), "{told}");
        assert_eq!(
            ask(&mut cluster, client, &["PARITAS.REDUNDANCY", "parts", "none"]),
            "+OK\r\n"
        );
    }
    // What is added to a body makes a body. SET follows the setting.
    for (key, told) in [("stripes", "-ERR the value is stored in stripes"), ("parts", "+OK")] {
        assert_eq!(ask(&mut cluster, client, &["APPEND", key, "!"]), ":20001\r\n");
        let reply = ask(&mut cluster, client, &["PARITAS.REDUNDANCY", key, "rep:2"]);
        assert!(reply.starts_with(told), "{key}: {reply}");
        assert!(
            is(&ask(&mut cluster, client, &["GET", key]), &format!("{value}!")),
            "{key}"
        );
    }
    assert_eq!(ask(&mut cluster, client, &["SET", "parts", &value]), "+OK\r\n");
    assert!(ask(&mut cluster, client, &["PARITAS.REDUNDANCY", "parts", "none"]).starts_with("-ERR the value is"));
}

/// More data blocks than the scheme has: such a value may be as short as a tail, or have a tail that is longer than the
/// longest value in stripes.
#[test]
fn a_tail_may_be_longer_than_values_in_stripes() {
    let parameters = Parameters {
        large_from: 16 << 10,
        ..Parameters::default()
    };
    let mut cluster = Cluster::coded_in(64 << 20, 1, 2, 1, 1, parameters);
    let client = cluster.connect(0, Port::Any);
    for bytes in [16_385, 32_767, 32_768, 60_000] {
        let value = value_of(bytes, bytes);
        assert_eq!(
            ask(&mut cluster, client, &["PARITAS.SET", "ec:2,1", "k", &value]),
            "+OK\r\n"
        );
        assert_eq!(
            ask(&mut cluster, client, &["COPY", "k", "{k}copy", "REPLACE"]),
            ":1\r\n"
        );
        for words in [
            &["MULTI"][..],
            &["EXPIRE", "k", "100"],
            &["COPY", "k", "{k}more", "REPLACE"],
            &["EXEC"],
        ] {
            assert!(!ask(&mut cluster, client, words).contains('-'), "{words:?}");
        }
        assert_eq!(ask(&mut cluster, client, &["RENAME", "k", "{k}last"]), "+OK\r\n");
        for key in ["{k}copy", "{k}more", "{k}last"] {
            assert_eq!(class(&mut cluster, client, key), "ec:2,1", "{key}, {bytes} bytes");
            assert!(
                is(&ask(&mut cluster, client, &["GET", key]), &value),
                "{key}, {bytes} bytes"
            );
        }
    }
    ask(&mut cluster, client, &["FLUSHALL"]);
    cluster.advance(20_000);
    assert_eq!(groups(&cluster), 0);
}
