//! Keys that lie in one hash slot together: those of database 1, and with the prefix "bull:".

use crate::transactions::{ask, ask_all};
use paritas_protocol::{Parameters, Port};
use paritas_testbed::Cluster;
use paritas_wire::command;

fn start() -> Cluster {
    let one_slot = "db:1,prefix:bull:".parse().unwrap();
    Cluster::with_one_slot(&one_slot, Parameters::default())
}

/// Keys of database 0 that nodes 0 and 1 own.
fn keys() -> [String; 2] {
    [false, true].map(|second| {
        let mut keys = (0..).map(|i| format!("key{i}"));
        keys.find(|key| (command::slot(key.as_bytes()) >= 8192) == second)
            .unwrap()
    })
}

#[test]
fn commands_transactions_and_scripts_reach_all_keys_of_such_a_database() {
    let [a, b] = keys();
    let script = "redis.call('SET', KEYS[2], redis.call('GET', KEYS[1])); return redis.call('GET', 'bull:x')";
    for node in [0, 1, 3] {
        let mut cluster = start();
        let client = cluster.connect(node, Port::Any);
        let mut say = |words: &[&str]| ask(&mut cluster, client, words);
        // In database 0 these keys are in two slots.
        assert!(say(&["MSETNX", &a, "1", &b, "2"]).starts_with("-CROSSSLOT"));
        assert!(say(&["EVAL", script, "2", &a, &b]).starts_with("-CROSSSLOT"));
        assert_eq!(say(&["SELECT", "1"]), "+OK\r\n");
        assert_eq!(say(&["MSETNX", &a, "1", &b, "2"]), ":1\r\n");
        assert_eq!(say(&["BITOP", "OR", &a, &a, &b]), ":1\r\n");
        assert_eq!(say(&["MGET", &a, &b]), "*2\r\n$1\r\n3\r\n$1\r\n2\r\n");
        assert_eq!(say(&["RENAME", &b, "c"]), "+OK\r\n");
        assert_eq!(say(&["COPY", "c", &b]), ":1\r\n");
        assert_eq!(say(&["EVAL", "return redis.call('DEL', 'c')", "1", &a]), ":1\r\n");
        assert_eq!(say(&["DBSIZE"]), ":2\r\n");
        let slot = format!(":{}\r\n", command::slot(b"db:1"));
        assert_eq!(say(&["CLUSTER", "KEYSLOT", &b]), slot);
        // A prefix counts in every database.
        let slot = format!(":{}\r\n", command::slot(b"bull:"));
        for database in ["1", "0", "2"] {
            assert_eq!(say(&["SELECT", database]), "+OK\r\n");
            assert_eq!(say(&["MSETNX", "bull:{1}", "1", "bull:{2}", "2"]), ":1\r\n");
            let found = say(&["CLUSTER", "KEYSLOT", "bull:{1}"]);
            assert_eq!(found == slot, database != "1", "{database}: the first rule counts");
        }
        let replies = ask_all(
            &mut cluster,
            client,
            &[
                &["SELECT", "1"],
                &["WATCH", &a, &b],
                &["MULTI"],
                &["INCR", &a],
                &["INCR", &b],
                &["EXEC"],
            ],
        );
        assert!(replies.ends_with("*2\r\n:4\r\n:3\r\n"), "node {node}: {replies}");
    }
}

#[test]
fn a_command_behind_select_in_one_pipeline_goes_where_its_key_lies() {
    let [a, b] = keys();
    for node in [0, 1, 3] {
        let mut cluster = start();
        let client = cluster.connect(node, Port::Any);
        let mut commands: Vec<&[&str]> = Vec::new();
        let sets = [
            ["SET", &a, "zero"],
            ["SET", &b, "zero"],
            ["SET", &a, "one"],
            ["SET", &b, "one"],
        ];
        commands.extend([&sets[0][..], &sets[1], &["SELECT", "1"], &sets[2], &sets[3]]);
        assert_eq!(ask_all(&mut cluster, client, &commands), "+OK\r\n".repeat(5));
        let get = ["MGET", &a, &b];
        let replies = ask_all(&mut cluster, client, &[&["SELECT", "0"], &get, &["SELECT", "1"], &get]);
        let both = |value: &str| format!("+OK\r\n*2\r\n{0}{0}", format!("${}\r\n{value}\r\n", value.len()));
        assert_eq!(replies, [both("zero"), both("one")].concat(), "node {node}");
        // Another node finds them in the same places.
        let other = cluster.connect((node + 1) % 3, Port::Any);
        assert!(
            ask_all(&mut cluster, other, &[&["SELECT", "1"], &get]).contains("one"),
            "node {node}"
        );
    }
}

#[test]
fn a_transaction_may_go_from_such_a_database_to_others() {
    let [a, b] = keys();
    for node in [0, 1, 3] {
        let mut cluster = start();
        let client = cluster.connect(node, Port::Any);
        let replies = ask_all(
            &mut cluster,
            client,
            &[
                &["MULTI"],
                &["SET", &a, "a0"],
                &["SET", &b, "b0"],
                &["SET", "bull:1", "zero"],
                &["SELECT", "1"],
                &["MSET", &a, "a1", &b, "b1", "bull:1", "one"],
                &["SELECT", "2"],
                &["SET", &a, "a2"],
                &["SET", "bull:1", "two"],
                &["EXEC"],
            ],
        );
        let ok = "+OK\r\n";
        assert!(
            replies.ends_with(&format!("*8\r\n{}", ok.repeat(8))),
            "node {node}: {replies}"
        );
        for (database, wanted) in [
            ("0", ["a0", "b0", "zero"]),
            ("1", ["a1", "b1", "one"]),
            ("2", ["a2", "", "two"]),
        ] {
            // From every node: each finds them where they lie.
            for other in [0, 1, 3] {
                let client = cluster.connect(other, Port::Any);
                ask(&mut cluster, client, &["SELECT", database]);
                for (key, value) in [&a, &b, "bull:1"].into_iter().zip(wanted) {
                    let found = ask(&mut cluster, client, &["GET", key]);
                    let value = format!("${}\r\n{value}\r\n", value.len());
                    let value = if value == "$0\r\n\r\n" {
                        "$-1\r\n".to_owned()
                    } else {
                        value
                    };
                    assert_eq!(found, value, "database {database}, {key}, node {other}");
                }
            }
        }
    }
}

#[test]
fn a_key_moves_between_a_database_in_one_slot_and_others() {
    for (at, key) in keys().into_iter().enumerate() {
        for node in [0, 1, 3] {
            let mut cluster = start();
            let client = cluster.connect(node, Port::Any);
            let mut say = |words: &[&str]| ask(&mut cluster, client, words);
            assert_eq!(say(&["MOVE", &key, "1"]), ":0\r\n");
            assert_eq!(say(&["SET", &key, "here", "EXAT", "33000000000"]), "+OK\r\n");
            assert_eq!(say(&["COPY", &key, &key, "DB", "1"]), ":1\r\n");
            assert_eq!(say(&["MOVE", &key, "1"]), ":0\r\n", "it is taken");
            assert_eq!(say(&["SELECT", "1"]), "+OK\r\n");
            assert_eq!(say(&["DEL", &key]), ":1\r\n");
            assert_eq!(say(&["SELECT", "0"]), "+OK\r\n");
            assert_eq!(say(&["MOVE", &key, "1"]), ":1\r\n");
            assert_eq!(say(&["EXISTS", &key]), ":0\r\n");
            assert_eq!(say(&["SELECT", "1"]), "+OK\r\n");
            assert_eq!(say(&["GET", &key]), "$4\r\nhere\r\n", "key {at}, node {node}");
            assert_eq!(say(&["EXPIRETIME", &key]), ":33000000000\r\n");
            assert_eq!(
                say(&["MOVE", &key, "1"]),
                "-ERR source and destination objects are the same\r\n"
            );
            assert_eq!(say(&["MOVE", &key, "16"]), "-ERR DB index is out of range\r\n");
            assert_eq!(say(&["MOVE", &key, "2"]), ":1\r\n");
            assert_eq!(say(&["SELECT", "2"]), "+OK\r\n");
            assert_eq!(say(&["GET", &key]), "$4\r\nhere\r\n");
            assert!(say(&["MULTI"]).starts_with("+OK"));
            assert!(
                say(&["MOVE", &key, "1"]).starts_with("-"),
                "over slots it is no part of a transaction"
            );
            assert!(say(&["EXEC"]).starts_with("-EXECABORT"));
        }
    }
}

#[test]
fn the_cluster_port_redirects_for_the_slot_that_the_client_knows() {
    let mut cluster = start();
    let owner = usize::from(command::slot(b"db:1") >= 8192);
    let [a, b] = keys();
    let others = [0, 1, 3].into_iter().filter(|node| *node != owner);
    for node in others {
        let client = cluster.connect(node, Port::Cluster);
        ask(&mut cluster, client, &["SELECT", "1"]);
        for words in [&["SET", &a, "1"][..], &["GET", &b], &["MSETNX", &a, "1", &b, "2"]] {
            let found = ask(&mut cluster, client, words);
            let slot = command::slot(words[1].as_bytes());
            let wanted = format!("-MOVED {slot} 127.0.0.1:{}\r\n", 7379 + owner);
            assert_eq!(found, wanted);
        }
    }
    let client = cluster.connect(owner, Port::Cluster);
    ask(&mut cluster, client, &["SELECT", "1"]);
    assert_eq!(ask(&mut cluster, client, &["MSETNX", &a, "1", &b, "2"]), ":1\r\n");
    assert_eq!(
        ask(&mut cluster, client, &["MGET", &a, &b]),
        "*2\r\n$1\r\n1\r\n$1\r\n2\r\n"
    );
}
