//! Databases over several nodes. Replies of one node, as recorded from Redis, are in `redis-replies.txt`.

use crate::transactions::{ask, ask_all};
use paritas_protocol::{Parameters, Port};
use paritas_testbed::Cluster;
use paritas_wire::command;

/// `2+1` and a spare. Node 3 owns nothing.
fn start() -> Cluster {
    Cluster::coded_in(64 << 20, 2, 1, 1, 1, Parameters::default())
}

/// A key of the first stream, or of the second.
fn key(second: bool) -> String {
    let mut keys = (0..).map(|i| format!("key{i}"));
    keys.find(|key| (command::slot(key.as_bytes()) >= 8192) == second)
        .unwrap()
}

#[test]
fn equal_names_in_two_databases_are_two_keys_at_any_node_also_in_one_pipeline() {
    for node in [0, 1, 3] {
        for second in [false, true] {
            let (mut cluster, key) = (start(), key(second));
            let client = cluster.connect(node, Port::Any);
            let replies = ask_all(
                &mut cluster,
                client,
                &[
                    &["SET", &key, "zero"],
                    &["SELECT", "1"],
                    &["GET", &key],
                    &["SET", &key, "one"],
                    &["SELECT", "15"],
                    &["INCR", &key],
                    &["SELECT", "0"],
                    &["GET", &key],
                    &["SELECT", "1"],
                    &["GET", &key],
                    &["SELECT", "15"],
                    &["GET", &key],
                    &["DEL", &key],
                    &["SELECT", "0"],
                    &["GET", &key],
                ],
            );
            let expected = "+OK\r\n+OK\r\n$-1\r\n+OK\r\n+OK\r\n:1\r\n+OK\r\n$4\r\nzero\r\n+OK\r\n$3\r\none\r\n+OK\r\n\
                            $1\r\n1\r\n:1\r\n+OK\r\n$4\r\nzero\r\n";
            assert_eq!(replies, expected, "node {node}");
        }
    }
}

#[test]
fn the_cluster_port_has_databases_too_and_a_key_is_in_one_slot_in_all_of_them() {
    let (mut cluster, key) = (start(), key(true));
    let [here, there] = [1, 0].map(|node| cluster.connect(node, Port::Cluster));
    assert_eq!(
        ask_all(&mut cluster, here, &[&["SELECT", "7"], &["SET", &key, "seven"]]),
        "+OK\r\n+OK\r\n"
    );
    assert_eq!(ask(&mut cluster, here, &["GET", &key]), "$5\r\nseven\r\n");
    let replies = ask_all(&mut cluster, there, &[&["SELECT", "7"], &["GET", &key]]);
    assert!(replies.starts_with("+OK\r\n-MOVED "), "{replies}");
    let any = cluster.connect(3, Port::Any);
    assert_eq!(ask(&mut cluster, any, &["GET", &key]), "$-1\r\n");
}

#[test]
fn commands_of_many_keys_and_walks_are_about_one_database() {
    let mut cluster = start();
    let client = cluster.connect(3, Port::Any);
    let names: Vec<String> = (0..40).map(|i| format!("n{i}")).collect();
    for database in ["0", "3"] {
        ask(&mut cluster, client, &["SELECT", database]);
        let mut mset = vec!["MSET"];
        names.iter().for_each(|name| mset.extend([name.as_str(), database]));
        assert_eq!(ask(&mut cluster, client, &mset), "+OK\r\n");
    }
    let mut unlink = vec!["UNLINK"];
    unlink.extend(names.iter().take(10).map(String::as_str));
    assert_eq!(ask(&mut cluster, client, &unlink), ":10\r\n");
    let mget = ["MGET", "n0", "n1", "n20", "n21"];
    assert_eq!(
        ask(&mut cluster, client, &mget),
        "*4\r\n$-1\r\n$-1\r\n$1\r\n3\r\n$1\r\n3\r\n"
    );
    assert_eq!(ask(&mut cluster, client, &["DBSIZE"]), ":30\r\n");
    assert!(ask(&mut cluster, client, &["KEYS", "*"]).starts_with("*30\r\n"));
    let random = ask(&mut cluster, client, &["RANDOMKEY"]);
    assert!(
        names.iter().skip(10).any(|name| random.contains(name.as_str())),
        "{random}"
    );
    let info = ask(&mut cluster, client, &["INFO", "keyspace"]);
    assert!(
        info.contains("db0:keys=40,expires=0") && info.contains("db3:keys=30,expires=0"),
        "{info}"
    );
    assert!(ask(&mut cluster, client, &["CLIENT", "INFO"]).contains(" db=3 "));
    // Only this database is emptied, whether the stream has others or not.
    assert_eq!(ask(&mut cluster, client, &["FLUSHDB"]), "+OK\r\n");
    assert_eq!(ask(&mut cluster, client, &["DBSIZE"]), ":0\r\n");
    assert_eq!(ask(&mut cluster, client, &["RANDOMKEY"]), "$-1\r\n");
    ask(&mut cluster, client, &["SELECT", "0"]);
    assert_eq!(ask(&mut cluster, client, &["DBSIZE"]), ":40\r\n");
    assert_eq!(ask(&mut cluster, client, &["FLUSHDB"]), "+OK\r\n");
    assert_eq!(ask(&mut cluster, client, &["DBSIZE"]), ":0\r\n");
    let refused = ask(&mut cluster, client, &["SWAPDB", "0", "3"]);
    assert!(refused.starts_with("-ERR SWAPDB is not supported"), "{refused}");
}

#[test]
fn flushdb_of_many_keys_goes_in_steps_and_leaves_the_others() {
    let mut cluster = start();
    let client = cluster.connect(0, Port::Any);
    for database in ["0", "1"] {
        ask(&mut cluster, client, &["SELECT", database]);
        for part in 0..10 {
            let names: Vec<String> = (0..500).map(|i| format!("n{part}/{i}")).collect();
            let mut mset = vec!["MSET"];
            names.iter().for_each(|name| mset.extend([name.as_str(), "value"]));
            assert_eq!(ask(&mut cluster, client, &mset), "+OK\r\n");
        }
    }
    assert_eq!(ask(&mut cluster, client, &["FLUSHDB"]), "+OK\r\n");
    assert_eq!(ask(&mut cluster, client, &["DBSIZE"]), ":0\r\n");
    assert_eq!(ask(&mut cluster, client, &["KEYS", "*"]), "*0\r\n");
    ask(&mut cluster, client, &["SELECT", "0"]);
    assert_eq!(ask(&mut cluster, client, &["DBSIZE"]), ":5000\r\n");
}

#[test]
fn a_transaction_changes_its_database_in_the_midst_and_its_client_keeps_the_last() {
    for node in [0, 3] {
        let mut cluster = start();
        let client = cluster.connect(node, Port::Any);
        let (a, b) = (key(false), key(true));
        let replies = ask_all(
            &mut cluster,
            client,
            &[
                &["SET", &a, "a0"],
                &["MULTI"],
                &["SET", &b, "b0"],
                &["SELECT", "2"],
                &["SET", &a, "a2"],
                &["MSET", &b, "b2", &a, "a2b"],
                &["SELECT", "4"],
                &["MGET", &a, &b],
                &["SELECT", "2"],
                &["MGET", &a, &b],
                &["EXEC"],
                &["MGET", &a, &b],
                &["SELECT", "0"],
                &["MGET", &a, &b],
            ],
        );
        let expected = format!(
            "+OK\r\n+OK\r\n{}*8\r\n{ok}*2\r\n$-1\r\n$-1\r\n+OK\r\n{two}{two}+OK\r\n{zero}",
            "+QUEUED\r\n".repeat(8),
            ok = "+OK\r\n".repeat(5),
            two = "*2\r\n$3\r\na2b\r\n$2\r\nb2\r\n",
            zero = "*2\r\n$2\r\na0\r\n$2\r\nb0\r\n",
        );
        assert_eq!(replies, expected, "node {node}");
        // What comes behind an EXEC that does nothing is about the database before it.
        let other = cluster.connect(1, Port::Any);
        let watch: &[&[&str]] = &[&["WATCH", &a], &["SELECT", "2"], &["WATCH", &a], &["SELECT", "0"]];
        assert_eq!(ask_all(&mut cluster, client, watch), "+OK\r\n".repeat(4));
        ask_all(&mut cluster, other, &[&["SELECT", "2"], &["SET", &a, "changed"]]);
        let replies = ask_all(
            &mut cluster,
            client,
            &[&["MULTI"], &["SELECT", "5"], &["SET", &a, "x"], &["EXEC"], &["GET", &a]],
        );
        assert_eq!(
            replies, "+OK\r\n+QUEUED\r\n+QUEUED\r\n*-1\r\n$2\r\na0\r\n",
            "node {node}"
        );
    }
}

#[test]
fn large_values_are_copied_and_moved_between_databases() {
    let mut cluster = start();
    let client = cluster.connect(3, Port::Any);
    let large = "x".repeat(300_000);
    let longer = "y".repeat(2 << 20);
    for value in [&large, &longer] {
        for second in [false, true] {
            let key = key(second);
            let bulk = format!("${}\r\n{value}\r\n", value.len());
            assert_eq!(ask(&mut cluster, client, &["SET", &key, value]), "+OK\r\n");
            assert_eq!(ask(&mut cluster, client, &["COPY", &key, &key, "DB", "1"]), ":1\r\n");
            assert_eq!(ask(&mut cluster, client, &["MOVE", &key, "2"]), ":1\r\n");
            assert_eq!(ask(&mut cluster, client, &["EXISTS", &key]), ":0\r\n");
            for database in ["1", "2"] {
                ask(&mut cluster, client, &["SELECT", database]);
                assert_eq!(ask(&mut cluster, client, &["GET", &key]), bulk);
            }
            assert_eq!(
                ask(&mut cluster, client, &["APPEND", &key, "z"]),
                format!(":{}\r\n", value.len() + 1)
            );
            ask(&mut cluster, client, &["SELECT", "1"]);
            assert_eq!(ask(&mut cluster, client, &["GET", &key]), bulk);
            ask_all(
                &mut cluster,
                client,
                &[&["FLUSHDB"], &["SELECT", "2"], &["FLUSHDB"], &["SELECT", "0"]],
            );
        }
    }
}

#[test]
fn a_successor_has_the_keys_of_all_databases_and_counts_them() {
    let mut cluster = start();
    let client = cluster.connect(2, Port::Any);
    let names: Vec<String> = (0..60).map(|i| format!("n{i}")).collect();
    for database in [0, 1, 9] {
        ask(&mut cluster, client, &["SELECT", &database.to_string()]);
        for name in names.iter().take(60 - database) {
            assert_eq!(
                ask(&mut cluster, client, &["SET", name, &format!("{name} in {database}")]),
                "+OK\r\n"
            );
        }
    }
    cluster.kill(0);
    cluster.hand_over(0, 0, 3);
    cluster.advance(3000);
    for database in [0, 1, 9] {
        ask(&mut cluster, client, &["SELECT", &database.to_string()]);
        for (at, name) in names.iter().enumerate() {
            let value = format!("{name} in {database}");
            let expected = match at < 60 - database {
                true => format!("${}\r\n{value}\r\n", value.len()),
                false => "$-1\r\n".to_owned(),
            };
            assert_eq!(ask(&mut cluster, client, &["GET", name]), expected);
        }
        let expected = format!(":{}\r\n", 60 - database);
        assert_eq!(ask(&mut cluster, client, &["DBSIZE"]), expected);
    }
}

#[test]
fn what_is_sent_behind_flushdb_finds_an_empty_database_and_is_kept() {
    for node in [0, 3] {
        let mut cluster = start();
        let client = cluster.connect(node, Port::Any);
        for database in ["0", "1"] {
            ask(&mut cluster, client, &["SELECT", database]);
            for part in 0..6 {
                let names: Vec<String> = (0..500).map(|i| format!("n{part}/{i}")).collect();
                let mut mset = vec!["MSET"];
                names.iter().for_each(|name| mset.extend([name.as_str(), "value"]));
                assert_eq!(ask(&mut cluster, client, &mset), "+OK\r\n");
            }
        }
        let [one, other] = [false, true].map(key);
        let commands: [&[&str]; 6] = [
            &["FLUSHDB"],
            &["GET", "n5/499"],
            &["DBSIZE"],
            &["SET", &one, "new"],
            &["SET", &other, "new"],
            &["GET", &one],
        ];
        let replies = ask_all(&mut cluster, client, &commands);
        assert_eq!(
            replies, "+OK\r\n$-1\r\n:0\r\n+OK\r\n+OK\r\n$3\r\nnew\r\n",
            "node {node}"
        );
        assert_eq!(
            ask(&mut cluster, client, &["MGET", &one, &other]),
            "*2\r\n$3\r\nnew\r\n$3\r\nnew\r\n"
        );
        assert_eq!(ask(&mut cluster, client, &["DBSIZE"]), ":2\r\n");
    }
}

#[test]
fn a_select_counts_with_the_exec_that_has_it_and_not_with_the_one_before() {
    for node in [0, 3] {
        let mut cluster = start();
        let [client, writer] = [node, 1].map(|node| cluster.connect(node, Port::Any));
        let [one, other] = [false, true].map(key);
        for watched in [&one, &other] {
            ask(&mut cluster, client, &["WATCH", watched]);
            ask(&mut cluster, writer, &["INCR", watched]);
            let commands: [&[&str]; 9] = [
                &["MULTI"],
                &["PING"],
                &["SET", watched, "never"],
                &["EXEC"],
                &["MULTI"],
                &["SELECT", "5"],
                &["PING"],
                &["EXEC"],
                &["SET", "chosen", "5"],
            ];
            let replies = ask_all(&mut cluster, client, &commands);
            let expected =
                "+OK\r\n+QUEUED\r\n+QUEUED\r\n*-1\r\n+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n+PONG\r\n+OK\r\n";
            assert_eq!(replies, expected, "node {node}");
            assert_eq!(ask(&mut cluster, client, &["GET", "chosen"]), "$1\r\n5\r\n");
            assert_eq!(ask(&mut cluster, writer, &["GET", "chosen"]), "$-1\r\n");
            assert_eq!(
                ask_all(&mut cluster, client, &[&["DEL", "chosen"], &["SELECT", "0"]]),
                ":1\r\n+OK\r\n"
            );
        }
    }
}

#[test]
fn few_keys_beside_many_are_scanned_in_few_steps() {
    let mut cluster = start();
    let client = cluster.connect(0, Port::Any);
    for part in 0..20 {
        let names: Vec<String> = (0..500).map(|i| format!("n{part}/{i}")).collect();
        let mut mset = vec!["MSET"];
        names.iter().for_each(|name| mset.extend([name.as_str(), "value"]));
        assert_eq!(ask(&mut cluster, client, &mset), "+OK\r\n");
    }
    ask_all(&mut cluster, client, &[&["SELECT", "2"], &["SET", "only", "one"]]);
    let (mut cursor, mut steps, mut found) = ("0".to_owned(), 0, String::new());
    while steps == 0 || cursor != "0" {
        let reply = ask(&mut cluster, client, &["SCAN", &cursor]);
        cursor = reply.split("\r\n").nth(2).unwrap().to_owned();
        steps += 1;
        found += reply.split_once("\r\n").unwrap().1;
    }
    assert!(found.contains("only") && steps < 20, "{steps} steps");
}
