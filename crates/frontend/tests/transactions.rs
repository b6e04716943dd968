//! Transactions: MULTI, EXEC, DISCARD, WATCH. Replies as recorded from Redis are in `redis-replies.txt`.

use paritas_protocol::{Parameters, Port, Transactions};
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

fn bulk(value: &str) -> String {
    format!("${}\r\n{value}\r\n", value.len())
}

/// Sends all commands at once, as a pipelining client does, and returns all replies.
pub(crate) fn ask_all(cluster: &mut Cluster, client: Client, commands: &[&[&str]]) -> String {
    let mut request = Vec::new();
    for words in commands {
        paritas_wire::resp::encode::request(&mut request, words);
    }
    cluster.feed(client, &request);
    cluster.advance(200);
    String::from_utf8(cluster.take(client)).unwrap()
}

pub(crate) fn ask(cluster: &mut Cluster, client: Client, words: &[&str]) -> String {
    ask_all(cluster, client, &[words])
}

/// The replies of a transaction of these commands.
fn transaction(cluster: &mut Cluster, client: Client, commands: &[&[&str]]) -> String {
    let mut all: Vec<&[&str]> = vec![&["MULTI"]];
    all.extend_from_slice(commands);
    all.push(&["EXEC"]);
    let replies = ask_all(cluster, client, &all);
    let queued = format!("+OK\r\n{}", "+QUEUED\r\n".repeat(commands.len()));
    let rest = replies.strip_prefix(&queued);
    rest.unwrap_or_else(|| panic!("not queued: {}", &replies[..replies.len().min(300)]))
        .to_owned()
}

/// Groups of parts that owners know.
fn groups(cluster: &Cluster) -> usize {
    let replicas = cluster.processes.iter().map(|process| process.node.replica());
    let owners = replicas.flat_map(|replica| replica.lists().flat_map(|list| list.owners()));
    owners.map(|owner| owner.ledger().alive_count()).sum()
}

#[test]
fn the_commands_of_one_slot_see_each_other_at_any_node() {
    for node in [0, 1, 3] {
        for second in [false, true] {
            let mut cluster = start();
            let client = cluster.connect(node, Port::Any);
            let tag = tag(second);
            let [a, b, c] = ["a", "b", "c"].map(|name| format!("{tag}{name}"));
            let replies = transaction(
                &mut cluster,
                client,
                &[
                    &["SET", &a, "1"],
                    &["INCR", &a],
                    &["MSET", &b, "x", &c, "y"],
                    &["MGET", &a, &b, &c],
                    &["DEL", &b, "NOTHERE"],
                    &["EXISTS", &a, &b, &c],
                    &["RENAME", &c, &b],
                    &["GET", &b],
                    &["GET", &c],
                    &["EXPIRE", &a, "100"],
                    &["TTL", &a],
                ],
            );
            let expected = "*11\r\n+OK\r\n:2\r\n+OK\r\n*3\r\n$1\r\n2\r\n$1\r\nx\r\n$1\r\ny\r\n\
                            :1\r\n:2\r\n+OK\r\n$1\r\ny\r\n$-1\r\n:1\r\n:100\r\n";
            assert_eq!(replies, expected, "node {node}, second {second}");
            let after = ask(&mut cluster, client, &["MGET", &a, &b, &c]);
            assert_eq!(after, "*3\r\n$1\r\n2\r\n$1\r\ny\r\n$-1\r\n");
        }
    }
}

#[test]
fn replies_over_several_slots_come_in_the_order_of_the_commands() {
    for node in [0, 1, 3] {
        let mut cluster = start();
        let client = cluster.connect(node, Port::Any);
        let keys: Vec<String> = (0..40).map(|n| format!("k{n}")).collect();
        let mut commands: Vec<Vec<&str>> = Vec::new();
        for key in &keys {
            commands.push(vec!["SET", key, key]);
        }
        commands.push(vec!["PING"]);
        for key in keys.iter().rev() {
            commands.push(vec!["GET", key]);
        }
        let mut words = vec!["MGET"];
        words.extend(keys.iter().map(String::as_str));
        commands.push(words.clone());
        words[0] = "DEL";
        commands.push(words.clone());
        words[0] = "EXISTS";
        commands.push(words);
        commands.push(vec!["INCR", &keys[0], "too many"]);
        let refs: Vec<&[&str]> = commands.iter().map(Vec::as_slice).collect();
        let (last, queued) = refs.split_last().unwrap();
        let replies = transaction(&mut cluster, client, queued);
        let mut expected = format!("*84\r\n{}+PONG\r\n", "+OK\r\n".repeat(40));
        keys.iter().rev().for_each(|key| expected.push_str(&bulk(key)));
        expected.push_str("*40\r\n");
        keys.iter().for_each(|key| expected.push_str(&bulk(key)));
        expected.push_str(":40\r\n:0\r\n");
        assert_eq!(replies, expected, "node {node}");
        let refused = ask_all(&mut cluster, client, &[&["MULTI"], last, &["EXEC"]]);
        assert!(refused.contains("-EXECABORT "), "{refused}");
    }
}

#[test]
fn another_clients_change_of_a_watched_key_stops_the_transaction() {
    for (watcher, writer) in [(0, 0), (0, 1), (1, 0), (3, 2), (2, 3)] {
        let mut cluster = start();
        let (one, other) = (cluster.connect(watcher, Port::Any), cluster.connect(writer, Port::Any));
        let tag = tag(true);
        let (a, b) = (format!("{tag}a"), format!("{tag}b"));
        let changes: [&[&str]; 5] = [
            &["SET", &a, "1"],
            &["SET", &a, "2"],
            &["INCR", &a],
            &["EXPIRE", &a, "100"],
            &["DEL", &a],
        ];
        for change in changes {
            assert_eq!(ask(&mut cluster, one, &["WATCH", &a, &b]), "+OK\r\n");
            ask(&mut cluster, other, change);
            let replies = transaction(&mut cluster, one, &[&["SET", &b, "done"]]);
            assert_eq!(replies, "*-1\r\n", "{change:?} at {writer}");
            assert_eq!(ask(&mut cluster, one, &["EXISTS", &b]), ":0\r\n");
        }
        // A change before WATCH is none, not even in the same turn; nor is one of the transaction's own client after
        // UNWATCH.
        let replies = ask_all(
            &mut cluster,
            one,
            &[
                &["SET", &a, "5"],
                &["WATCH", &a],
                &["MULTI"],
                &["INCR", &a],
                &["EXEC"],
                &["WATCH", &a],
                &["SET", &a, "7"],
                &["UNWATCH"],
                &["MULTI"],
                &["INCR", &a],
                &["EXEC"],
                &["WATCH", &a],
                &["SET", &a, "9"],
                &["MULTI"],
                &["INCR", &a],
                &["EXEC"],
                &["GET", &a],
            ],
        );
        let expected = "+OK\r\n+OK\r\n+OK\r\n+QUEUED\r\n*1\r\n:6\r\n\
                        +OK\r\n+OK\r\n+OK\r\n+OK\r\n+QUEUED\r\n*1\r\n:8\r\n\
                        +OK\r\n+OK\r\n+OK\r\n+QUEUED\r\n*-1\r\n$1\r\n9\r\n";
        assert_eq!(replies, expected, "watched at {watcher}");
    }
}

#[test]
fn a_change_in_the_same_turn_as_the_watch_stops_the_transaction() {
    let mut cluster = start();
    let (one, other) = (cluster.connect(0, Port::Any), cluster.connect(0, Port::Any));
    let key = format!("{}a", tag(false));
    let words = [vec!["SET", &key, "1"], vec!["WATCH", &key], vec!["SET", &key, "2"]];
    let [first, watch, second] = words.map(|words| {
        let mut bytes = Vec::new();
        paritas_wire::resp::encode::request(&mut bytes, &words);
        bytes
    });
    // The first SET and the WATCH are of one turn, and the second SET too.
    cluster.feed(other, &first);
    cluster.feed(one, &watch);
    cluster.feed(other, &second);
    cluster.advance(100);
    assert_eq!(cluster.take(one), b"+OK\r\n");
    assert_eq!(transaction(&mut cluster, one, &[&["INCR", &key]]), "*-1\r\n");
}

#[test]
fn keys_whose_time_is_over_stop_only_those_who_watch_them() {
    let mut cluster = start();
    let client = cluster.connect(3, Port::Any);
    let tag = tag(false);
    let (key, short) = (format!("{tag}key"), format!("{tag}short"));
    ask(&mut cluster, client, &["SET", &key, "1"]);
    for n in 0..50 {
        let other = format!("{tag}other{n}");
        ask_all(&mut cluster, client, &[&["SET", &other, "1", "PX", "300"]]);
    }
    assert_eq!(ask(&mut cluster, client, &["WATCH", &key]), "+OK\r\n");
    cluster.advance(20_000);
    assert_eq!(transaction(&mut cluster, client, &[&["INCR", &key]]), "*1\r\n:2\r\n");
    let replies = ask_all(
        &mut cluster,
        client,
        &[&["SET", &short, "1", "PX", "300"], &["WATCH", &short]],
    );
    assert_eq!(replies, "+OK\r\n+OK\r\n");
    cluster.advance(400);
    assert_eq!(transaction(&mut cluster, client, &[&["INCR", &key]]), "*-1\r\n");
}

#[test]
fn large_values_are_put_read_and_exchanged_in_a_transaction() {
    for node in [0, 1, 3] {
        let mut cluster = start();
        let client = cluster.connect(node, Port::Any);
        let tag = tag(false);
        let [a, b, t] = ["a", "b", "t"].map(|name| format!("{tag}{name}"));
        let (x, y) = (value(1, 100_000), value(2, 1_500_000));
        let replies = transaction(
            &mut cluster,
            client,
            &[
                &["SET", &a, &x],
                &["SET", &b, &y],
                &["SET", &t, &y],
                &["STRLEN", &b],
                &["GET", &b],
                &["DEL", &t],
                &["APPEND", &a, "tail"],
                &["GETRANGE", &a, "99998", "-1"],
            ],
        );
        let expected = format!(
            "*8\r\n+OK\r\n+OK\r\n+OK\r\n:1500000\r\n{}:1\r\n:100004\r\n{}",
            bulk(&y),
            bulk(&format!("{}tail", &x[99_998..]))
        );
        assert!(replies == expected, "node {node}: {} bytes", replies.len());
        cluster.advance(8_000);
        assert_eq!(groups(&cluster), 4, "two values at node {node}");
        // The records of the two keys change places in one delta.
        let replies = transaction(
            &mut cluster,
            client,
            &[&["RENAME", &a, &t], &["RENAME", &b, &a], &["RENAME", &t, &b]],
        );
        assert_eq!(replies, "*3\r\n+OK\r\n+OK\r\n+OK\r\n");
        assert!(ask(&mut cluster, client, &["GET", &a]) == bulk(&y));
        assert!(ask(&mut cluster, client, &["GET", &b]) == bulk(&format!("{x}tail")));
        let replies = transaction(
            &mut cluster,
            client,
            &[
                &["EXPIRE", &a, "100"],
                &["COPY", &b, &t],
                &["SETRANGE", &b, "0", "!!"],
                &["GET", &t],
            ],
        );
        let expected = format!("*4\r\n:1\r\n:1\r\n:100004\r\n{}", bulk(&format!("{x}tail")));
        assert!(replies == expected, "node {node}");
        cluster.advance(8_000);
        assert_eq!(groups(&cluster), 6);
        let replies = transaction(
            &mut cluster,
            client,
            &[&["DEL", &a], &["SET", &b, "small"], &["UNLINK", &t]],
        );
        assert_eq!(replies, "*3\r\n:1\r\n+OK\r\n:1\r\n");
        cluster.advance(8_000);
        assert_eq!(groups(&cluster), 0, "node {node}");
    }
}

#[test]
fn what_is_too_long_or_too_much_is_refused_before_anything_is_done() {
    for node in [0, 3] {
        let mut cluster = start();
        let client = cluster.connect(node, Port::Any);
        let tag = tag(false);
        // More than one delta takes.
        let keys: Vec<String> = (0..20).map(|n| format!("{tag}{n}")).collect();
        let text = value(0, 60_000);
        let commands: Vec<[&str; 3]> = keys.iter().map(|key| ["SET", key.as_str(), text.as_str()]).collect();
        let refs: Vec<&[&str]> = commands.iter().map(|words| words.as_slice()).collect();
        let reply = transaction(&mut cluster, client, &refs);
        assert!(reply.starts_with("-ERR command larger than "), "{reply}");
        // Large values together.
        let large = value(0, 6 << 20);
        let commands: Vec<[&str; 3]> = keys[..3]
            .iter()
            .map(|key| ["SET", key.as_str(), large.as_str()])
            .collect();
        let refs: Vec<&[&str]> = commands.iter().map(|words| words.as_slice()).collect();
        let reply = transaction(&mut cluster, client, &refs);
        assert!(reply.starts_with("-ERR command larger than 16777216 bytes"), "{reply}");
        // A value longer than is held.
        let long = value(0, (16 << 20) + 1);
        let replies = ask_all(
            &mut cluster,
            client,
            &[
                &["MULTI"],
                &["SET", &keys[0], "1"],
                &["SET", &keys[1], &long],
                &["EXEC"],
            ],
        );
        let expected = "+OK\r\n+QUEUED\r\n-ERR value of 16777217 bytes is over the limit of 16777216 bytes\r\n\
                        -EXECABORT Transaction discarded because of previous errors.\r\n";
        assert_eq!(replies, expected);
        // More work than a turn may do.
        let words: Vec<&str> = core::iter::once("EXISTS")
            .chain(core::iter::repeat_n(keys[0].as_str(), 9_000))
            .collect();
        let reply = transaction(&mut cluster, client, &[words.as_slice(); 10]);
        assert!(
            reply.starts_with("-ERR the commands of this transaction do more work"),
            "{reply}"
        );
        let mut exists = vec!["EXISTS"];
        exists.extend(keys.iter().map(String::as_str));
        assert_eq!(ask(&mut cluster, client, &exists), ":0\r\n", "node {node}");
        assert_eq!(groups(&cluster), 0);
    }
}

#[test]
fn keys_of_a_command_or_of_watch_in_other_slots_are_refused() {
    let mut cluster = start();
    let client = cluster.connect(0, Port::Any);
    let (here, there) = (format!("{}a", tag(false)), format!("{}a", tag(true)));
    let replies = ask_all(
        &mut cluster,
        client,
        &[&["MULTI"], &["RENAME", &here, &there], &["EXEC"]],
    );
    assert!(
        replies.contains("-CROSSSLOT ") && replies.contains("-EXECABORT "),
        "{replies}"
    );
    assert!(ask(&mut cluster, client, &["WATCH", &here, &there]).starts_with("-CROSSSLOT "));
    assert_eq!(ask(&mut cluster, client, &["WATCH", &here]), "+OK\r\n");
    assert!(ask(&mut cluster, client, &["WATCH", &there]).starts_with("-CROSSSLOT "));
    let replies = ask_all(&mut cluster, client, &[&["MULTI"], &["SET", &there, "1"], &["EXEC"]]);
    assert!(
        replies.contains("-CROSSSLOT ") && replies.contains("-EXECABORT "),
        "{replies}"
    );
    // EXEC ends the watch.
    assert_eq!(
        transaction(&mut cluster, client, &[&["SET", &there, "1"]]),
        "*1\r\n+OK\r\n"
    );
    for words in [["KEYS", "*"], ["FLUSHALL", "SYNC"], ["DBSIZE", ""], ["INFO", "server"]] {
        let words = words
            .iter()
            .filter(|word| !word.is_empty())
            .copied()
            .collect::<Vec<_>>();
        let replies = ask_all(&mut cluster, client, &[&["MULTI"], &words, &["EXEC"]]);
        assert!(replies.contains("cannot be in a transaction here"), "{replies}");
        assert!(replies.contains("-EXECABORT "), "{replies}");
    }
    for words in [
        ["PARITAS.EXEC", "*0\r\n", "0", "", "a"],
        ["PARITAS.VERSIONS", "a", "b", "c", "d"],
    ] {
        let reply = ask(&mut cluster, client, &words);
        assert!(reply.starts_with("-ERR unknown command"), "{reply}");
        let replies = ask_all(&mut cluster, client, &[&["MULTI"], &words, &["EXEC"]]);
        assert!(replies.contains("-EXECABORT "), "{replies}");
    }
}

#[test]
fn a_value_that_another_client_changes_meanwhile_is_sent_anew() {
    // A large value is made from another one, and moved. While its parts are on their way, that one changes.
    for node in [0, 3] {
        let mut cluster = start();
        let (one, other) = (cluster.connect(node, Port::Any), cluster.connect(0, Port::Any));
        let tag = tag(false);
        let (log, old) = (format!("{tag}log"), format!("{tag}old"));
        let text = value(1, 300_000);
        assert_eq!(ask(&mut cluster, one, &["SET", &log, &text]), "+OK\r\n");
        let mut request = Vec::new();
        for words in [
            &["MULTI"][..],
            &["APPEND", &log, "x"],
            &["RENAME", &log, &old],
            &["SET", &log, "new"],
            &["EXEC"],
        ] {
            paritas_wire::resp::encode::request(&mut request, words);
        }
        // No part arrives whole for a while.
        cluster.tamper = Some(Box::new(|_, _, _, message| {
            let is_unit = matches!(message, paritas_wire::peer::Message::PutUnit { .. });
            is_unit.then(Vec::new)
        }));
        cluster.feed(one, &request);
        cluster.advance(50);
        cluster.tamper = None;
        let mut append = Vec::new();
        paritas_wire::resp::encode::request(&mut append, &["SETRANGE", &log, "5", "CHANGED"]);
        cluster.feed(other, &append);
        cluster.advance(3_000);
        let changed = String::from_utf8(cluster.take(other)).unwrap();
        let replies = String::from_utf8(cluster.take(one)).unwrap();
        assert!(replies.ends_with("*3\r\n:300001\r\n+OK\r\n+OK\r\n"), "{replies}");
        let now = ask(&mut cluster, one, &["GET", &old]);
        let with_change = format!("{}CHANGED{}x", &text[..5], &text[12..]);
        let in_old = now == bulk(&with_change);
        // The other command came before the transaction, or after it, on the new value.
        let in_new = now == bulk(&format!("{text}x")) && ask(&mut cluster, one, &["GET", &log]).contains("CHANGED");
        assert!(in_old || in_new, "node {node}: {changed}");
    }
}

#[test]
fn what_a_transaction_makes_a_node_do_at_once_is_bounded() {
    let mut cluster = start();
    let client = cluster.connect(0, Port::Any);
    let tag = tag(false);
    let (large, small) = (format!("{tag}large"), format!("{tag}small"));
    // Copies of a large value that is not stored in the end.
    let text = value(1, 10 << 20);
    let (set, other) = (["SET", large.as_str(), text.as_str()], ["SET", small.as_str(), "x"]);
    let rename = ["RENAMENX", large.as_str(), small.as_str()];
    let mut commands: Vec<&[&str]> = vec![&set, &other];
    commands.extend(core::iter::repeat_n(rename.as_slice(), 3_000));
    let reply = transaction(&mut cluster, client, &commands);
    assert!(
        reply.starts_with("-ERR the commands of this transaction do more work"),
        "{reply}"
    );
    // Replies that are made at the client's node.
    let echo = value(2, 100_000);
    let commands = [["ECHO", echo.as_str()]; 20];
    let refs: Vec<&[&str]> = commands.iter().map(|words| words.as_slice()).collect();
    let reply = transaction(&mut cluster, client, &refs);
    assert!(reply.starts_with("-ERR the replies to PING"), "{reply}");
    // Watched keys, of which the same one counts once.
    for _ in 0..2_000 {
        assert_eq!(ask_all(&mut cluster, client, &[&["WATCH", &small, &small]]), "+OK\r\n");
    }
    let keys: Vec<String> = (0..1_025).map(|n| format!("{tag}{n}")).collect();
    let words: Vec<&str> = core::iter::once("WATCH")
        .chain(keys.iter().map(String::as_str))
        .collect();
    assert_eq!(
        ask(&mut cluster, client, &words),
        "-ERR more than 1024 watched keys\r\n"
    );
    assert_eq!(ask(&mut cluster, client, &["UNWATCH"]), "+OK\r\n");
    // More bytes for one slot than a frame between nodes has, beside a command that is answered here.
    let client = cluster.connect(3, Port::Any);
    let part = value(3, 9 << 20);
    let set = ["SET", large.as_str(), part.as_str()];
    let reply = transaction(&mut cluster, client, &[&["PING"], &set, &set, &set, &set]);
    assert!(reply.starts_with("-ERR command larger than "), "{reply}");
    assert_eq!(ask(&mut cluster, client, &["EXISTS", &large, &small]), ":0\r\n");
}

#[test]
fn strict_transactions_have_one_slot() {
    let parameters = Parameters {
        transactions: Transactions::Strict,
        ..Parameters::default()
    };
    let mut cluster = Cluster::coded_in(64 << 20, 2, 1, 1, 1, parameters);
    let client = cluster.connect(0, Port::Any);
    let (here, there) = (format!("{}a", tag(false)), format!("{}a", tag(true)));
    let commands: [&[&str]; 4] = [&["MULTI"], &["SET", &here, "1"], &["SET", &there, "1"], &["EXEC"]];
    let replies = ask_all(&mut cluster, client, &commands);
    assert!(replies.contains("-CROSSSLOT transactions = \"strict\""), "{replies}");
    assert!(replies.contains("-EXECABORT "), "{replies}");
    let commands: [&[&str]; 3] = [&["MULTI"], &["MSET", &here, "1", &there, "1"], &["EXEC"]];
    assert!(ask_all(&mut cluster, client, &commands).contains("-EXECABORT "));
    assert_eq!(
        transaction(&mut cluster, client, &[&["SET", &here, "1"]]),
        "*1\r\n+OK\r\n"
    );
    assert_eq!(ask(&mut cluster, client, &["EXISTS", &there]), ":0\r\n");
}

#[test]
fn on_the_cluster_port_a_transaction_is_one_slot_of_this_node() {
    let mut cluster = start();
    let client = cluster.connect(0, Port::Cluster);
    let (mine, other) = (format!("{}a", tag(false)), format!("{}a", tag(true)));
    assert_eq!(
        transaction(&mut cluster, client, &[&["SET", &mine, "1"]]),
        "*1\r\n+OK\r\n"
    );
    assert!(ask(&mut cluster, client, &["WATCH", &other]).starts_with("-MOVED "));
    assert_eq!(ask(&mut cluster, client, &["WATCH", &mine]), "+OK\r\n");
    assert_eq!(transaction(&mut cluster, client, &[&["INCR", &mine]]), "*1\r\n:2\r\n");
    let replies = ask_all(&mut cluster, client, &[&["MULTI"], &["SET", &other, "1"], &["EXEC"]]);
    assert!(
        replies.contains("-MOVED ") && replies.contains("-EXECABORT "),
        "{replies}"
    );
}

#[test]
fn one_refused_part_is_the_reply_of_its_own_commands_only() {
    let mut cluster = start();
    let client = cluster.connect(3, Port::Any);
    let (here, there) = (format!("{}a", tag(false)), format!("{}b", tag(true)));
    let text = value(0, 60_000);
    let mut commands: Vec<[&str; 3]> = vec![["SET", &here, "1"]];
    let keys: Vec<String> = (0..20).map(|n| format!("{}{n}", tag(true))).collect();
    commands.extend(keys.iter().map(|key| ["SET", key.as_str(), text.as_str()]));
    commands.push(["SET", &there, "1"]);
    commands.push(["APPEND", &here, "2"]);
    let refs: Vec<&[&str]> = commands.iter().map(|words| words.as_slice()).collect();
    let replies = transaction(&mut cluster, client, &refs);
    assert!(
        replies.starts_with("*23\r\n+OK\r\n-ERR command larger than "),
        "{replies}"
    );
    assert!(replies.ends_with(":2\r\n"), "{replies}");
    assert_eq!(replies.matches("-ERR command larger").count(), 21);
    assert_eq!(ask(&mut cluster, client, &["EXISTS", &there]), ":0\r\n");
}
