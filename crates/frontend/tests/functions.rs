//! Functions over several nodes. Replies of one node, as recorded from Redis, are in `redis-replies.txt`.

use crate::transactions::{ask, ask_all};
use paritas_protocol::{Parameters, Port};
use paritas_testbed::{Client, Cluster};
use paritas_wire::command;
use paritas_wire::rdb;
use std::collections::BTreeSet;

/// `2+1` and a spare. Node 3 owns nothing; node 1 owns the libraries.
fn start() -> Cluster {
    Cluster::coded_in(64 << 20, 2, 1, 1, 1, Parameters::default())
}

/// A key of the first stream, or of the second.
fn key(second: bool) -> String {
    let mut keys = (0..).map(|i| format!("key{i}"));
    keys.find(|key| (command::slot(key.as_bytes()) >= 8192) == second)
        .unwrap()
}

/// A library whose function `tell` answers this, and whose function `add` appends it to a key.
fn library(name: &str, tells: &str) -> String {
    format!(
        "#!lua name={name}\nlocal text = '{tells}'\n\
         redis.register_function('tell', function() return text end)\n\
         redis.register_function('add', function(keys) return redis.call('append', keys[1], text) end)\n"
    )
}

fn load(cluster: &mut Cluster, client: Client, name: &str, tells: &str) {
    let reply = ask(cluster, client, &["FUNCTION", "LOAD", "REPLACE", &library(name, tells)]);
    assert_eq!(reply, format!("${}\r\n{name}\r\n", name.len()));
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

#[test]
fn a_library_is_the_same_at_all_nodes_and_ports_at_once() {
    let mut cluster = start();
    let clients: Vec<Client> = [(0, Port::Any), (1, Port::Any), (3, Port::Any), (2, Port::Cluster)]
        .map(|(node, port)| cluster.connect(node, port))
        .to_vec();
    for (turn, loader) in [0, 1, 2, 3, 0, 3].into_iter().enumerate() {
        let text = format!("text{turn}");
        load(&mut cluster, clients[loader], "lib", &text);
        for client in &clients {
            assert_eq!(ask(&mut cluster, *client, &["FCALL", "tell", "0"]), bulk(&text));
            let list = ask(&mut cluster, *client, &["FUNCTION", "LIST", "WITHCODE"]);
            assert!(list.contains(&text), "{list}");
        }
        for (node, second) in [(0, false), (0, true), (1, true), (3, false)] {
            let client = cluster.connect(node, Port::Any);
            let key = key(second);
            let replies = ask_all(
                &mut cluster,
                client,
                &[&["DEL", &key], &["FCALL", "add", "1", &key], &["GET", &key]],
            );
            assert!(
                replies.ends_with(&format!(":5\r\n{}", bulk(&text))),
                "node {node}: {replies}"
            );
        }
    }
    assert_eq!(ask(&mut cluster, clients[2], &["FUNCTION", "DELETE", "lib"]), "+OK\r\n");
    for client in &clients {
        assert_eq!(
            ask(&mut cluster, *client, &["FCALL", "tell", "0"]),
            "-ERR Function not found\r\n"
        );
    }
}

#[test]
fn replies_and_effects_of_a_pipeline_come_in_order() {
    for node in [0, 1, 3] {
        let mut cluster = start();
        let client = cluster.connect(node, Port::Any);
        let (one, other) = (key(false), key(true));
        let (a, b) = (library("lib", "a"), library("lib", "b"));
        let commands: [&[&str]; 11] = [
            &["SET", &one, "1"],
            &["FUNCTION", "LOAD", &a],
            &["FCALL", "add", "1", &one],
            &["GET", &one],
            &["FCALL", "add", "1", &other],
            &["FUNCTION", "LOAD", "REPLACE", &b],
            &["FCALL", "add", "1", &one],
            &["FCALL", "add", "1", &other],
            &["MGET", &one, &other],
            &["FUNCTION", "FLUSH"],
            &["FCALL", "tell", "0"],
        ];
        let replies = ask_all(&mut cluster, client, &commands);
        let expected = format!(
            "+OK\r\n{lib}:2\r\n{}:1\r\n{lib}:3\r\n:2\r\n*2\r\n{}{}+OK\r\n-ERR Function not found\r\n",
            bulk("1a"),
            bulk("1ab"),
            bulk("ab"),
            lib = bulk("lib"),
        );
        assert_eq!(replies, expected, "node {node}");
    }
}

#[test]
fn a_transaction_calls_what_is_there_when_exec_comes() {
    for node in [0, 1, 3] {
        let mut cluster = start();
        let [client, other] = [node, 2].map(|node| cluster.connect(node, Port::Any));
        load(&mut cluster, client, "lib", "old");
        let (one, two) = (key(false), key(true));
        for keys in [[&one, &one], [&one, &two]] {
            let commands: [&[&str]; 5] = [
                &["MULTI"],
                &["FCALL", "add", "1", keys[0]],
                &["FCALL", "added", "1", keys[1]],
                &["PING"],
                &["GET", keys[1]],
            ];
            ask_all(&mut cluster, client, &[&["DEL", keys[0]], &["SET", keys[1], "is "]]);
            assert_eq!(
                ask_all(&mut cluster, client, &commands),
                format!("+OK\r\n{}", "+QUEUED\r\n".repeat(4))
            );
            load(&mut cluster, other, "lib", "new");
            let replies = ask(&mut cluster, client, &["EXEC"]);
            let (length, value) = if keys[0] == keys[1] { (6, "is new") } else { (3, "is ") };
            let expected = format!("*4\r\n:{length}\r\n-ERR Function not found\r\n+PONG\r\n{}", bulk(value));
            assert_eq!(replies, expected, "node {node}");
            ask(&mut cluster, client, &["DEL", keys[0]]);
            load(&mut cluster, other, "lib", "old");
        }
    }
}

/// Loads libraries of about this length in bytes.
fn fill(cluster: &mut Cluster, client: Client, bytes: usize) {
    for part in 0..bytes / 100_000 {
        let text = "x".repeat(100_000);
        let source = format!(
            "#!lua name=fill{part}\n-- {text}\nredis.register_function('f{part}', function() return {part} end)"
        );
        assert_eq!(
            ask(cluster, client, &["FUNCTION", "LOAD", &source]),
            bulk(&format!("fill{part}"))
        );
    }
}

/// How many keys each reply to an MGET found.
fn found(replies: &str) -> Vec<usize> {
    let each = replies.split('*').skip(1);
    each.map(|reply| reply.matches("value").count()).collect()
}

#[test]
fn flushall_beside_libraries_is_atomic_also_when_their_owner_dies() {
    const KEYS: usize = 1100;
    let tag = key(true);
    let names: Vec<String> = (0..KEYS).map(|i| format!("{{{tag}}}{i}")).collect();
    let mut mset = vec!["MSET"];
    names.iter().for_each(|name| mset.extend([name.as_str(), "value"]));
    let mut mget = vec!["MGET"];
    mget.extend(names.iter().map(String::as_str));
    let mut read = Vec::new();
    paritas_wire::resp::encode::request(&mut read, &mget);
    for filling in [0, 300_000] {
        let (mut seen, mut left) = (BTreeSet::new(), BTreeSet::new());
        // After so many turns the owner dies. The last nodes come first, so that replies and deltas are on their way.
        for turns in 1..12 {
            let mut cluster = start();
            let [client, reader] = [0, 1].map(|node| cluster.connect(node, Port::Any));
            load(&mut cluster, client, "lib", "kept");
            fill(&mut cluster, client, filling);
            let before = ask(&mut cluster, client, &["FUNCTION", "LIST", "WITHCODE"]);
            assert_eq!(ask(&mut cluster, client, &mset), "+OK\r\n");
            cluster.feed(client, b"FLUSHALL\r\n");
            for turn in 0..turns {
                cluster.feed(reader, &read);
                cluster.turn(3 - turn % 4);
                seen.extend(found(&String::from_utf8(cluster.take(reader)).unwrap()));
            }
            let is_answered = cluster.take(client) == b"+OK\r\n";
            cluster.kill(1);
            cluster.hand_over(0, 1, 3);
            cluster.advance(3000);
            let client = cluster.connect(2, Port::Any);
            let after = found(&ask(&mut cluster, client, &mget));
            assert!(after == [0] || after == [KEYS] && !is_answered, "{turns}: {after:?}");
            left.extend(after);
            assert_eq!(ask(&mut cluster, client, &["FUNCTION", "LIST", "WITHCODE"]), before);
            assert_eq!(ask(&mut cluster, client, &["FCALL", "tell", "0"]), bulk("kept"));
            assert_eq!(ask(&mut cluster, client, &["FLUSHALL"]), "+OK\r\n");
            assert_eq!(ask(&mut cluster, client, &["DBSIZE"]), ":0\r\n");
            assert_eq!(ask(&mut cluster, client, &["FUNCTION", "LIST", "WITHCODE"]), before);
        }
        let both = BTreeSet::from([0, KEYS]);
        assert_eq!((&seen, &left), (&both, &both), "{filling} bytes of libraries");
    }
}

#[test]
fn libraries_outlive_their_owner_also_large_ones() {
    for filling in [0, 300_000] {
        let mut cluster = start();
        let client = cluster.connect(2, Port::Any);
        load(&mut cluster, client, "lib", "kept");
        fill(&mut cluster, client, filling);
        let names: Vec<String> = (0..600).map(|i| format!("n{i}")).collect();
        let mut mset = vec!["MSET"];
        names.iter().for_each(|name| mset.extend([name.as_str(), "value"]));
        let before = ask(&mut cluster, client, &["FUNCTION", "LIST", "WITHCODE"]);
        for _ in 0..2 {
            assert_eq!(ask(&mut cluster, client, &mset), "+OK\r\n");
            assert_eq!(ask(&mut cluster, client, &["FLUSHALL"]), "+OK\r\n");
            assert_eq!(ask(&mut cluster, client, &["DBSIZE"]), ":0\r\n");
            assert_eq!(ask(&mut cluster, client, &["KEYS", "*"]), "*0\r\n");
            assert_eq!(ask(&mut cluster, client, &["FCALL", "tell", "0"]), bulk("kept"));
            assert_eq!(ask(&mut cluster, client, &mset), "+OK\r\n");
            assert_eq!(ask(&mut cluster, client, &["FLUSHDB"]), "+OK\r\n");
            assert_eq!(ask(&mut cluster, client, &["DBSIZE"]), ":0\r\n");
        }
        cluster.kill(1);
        cluster.hand_over(0, 1, 3);
        cluster.advance(3000);
        for node in [0, 2, 3] {
            let client = cluster.connect(node, Port::Any);
            assert_eq!(ask(&mut cluster, client, &["FCALL", "tell", "0"]), bulk("kept"));
            assert_eq!(ask(&mut cluster, client, &["FUNCTION", "LIST", "WITHCODE"]), before);
        }
        assert_eq!(ask(&mut cluster, client, &mset), "+OK\r\n");
        assert_eq!(ask(&mut cluster, client, &["FLUSHALL"]), "+OK\r\n");
        assert_eq!(ask(&mut cluster, client, &["DBSIZE"]), ":0\r\n");
        load(&mut cluster, client, "lib", "another");
        assert_eq!(ask(&mut cluster, client, &["FCALL", "tell", "0"]), bulk("another"));
    }
}

#[test]
fn while_nobody_has_the_libraries_calls_are_refused_and_their_clients_go_on() {
    let mut cluster = start();
    let client = cluster.connect(0, Port::Any);
    load(&mut cluster, client, "lib", "x");
    let key = key(false);
    cluster.kill(1);
    let commands: [&[&str]; 7] = [
        &["FCALL", "add", "1", &key],
        &["SET", &key, "v"],
        &["MULTI"],
        &["FCALL", "add", "1", &key],
        &["EXEC"],
        &["GET", &key],
        &["FUNCTION", "FLUSH"],
    ];
    let mut request = Vec::new();
    for words in commands {
        paritas_wire::resp::encode::request(&mut request, words);
    }
    cluster.feed(client, &request);
    cluster.advance(20_000);
    let replies = String::from_utf8(cluster.take(client)).unwrap();
    let lines: Vec<&str> = replies.split("\r\n").collect();
    let is_refused = |at: usize| {
        ["-TRYAGAIN", "-CLUSTERDOWN"]
            .iter()
            .any(|start| lines[at].starts_with(start))
    };
    assert!(is_refused(0) && is_refused(4), "{replies}");
    assert_eq!(&lines[1..4], ["+OK", "+OK", "+QUEUED"]);
    assert_eq!(&lines[5..7], ["$1", "v"], "{replies}");
}

#[test]
fn clients_of_the_cluster_port_may_send_a_change_to_each_node() {
    let mut cluster = start();
    let clients: Vec<Client> = (0..3).map(|node| cluster.connect(node, Port::Cluster)).collect();
    let any = cluster.connect(0, Port::Any);
    let source = library("lib", "one");
    for client in &clients {
        assert_eq!(ask(&mut cluster, *client, &["FUNCTION", "LOAD", &source]), bulk("lib"));
    }
    let taken = "-ERR Library 'lib' already exists\r\n";
    assert_eq!(ask(&mut cluster, any, &["FUNCTION", "LOAD", &source]), taken);
    let other = library("lib", "two");
    assert_eq!(ask(&mut cluster, clients[1], &["FUNCTION", "LOAD", &other]), taken);
    let key = key(false);
    assert_eq!(ask(&mut cluster, clients[0], &["FCALL", "add", "1", &key]), ":3\r\n");
    let moved = ask(&mut cluster, clients[1], &["FCALL", "add", "1", &key]);
    assert!(moved.starts_with("-MOVED "), "{moved}");
    for client in &clients {
        assert_eq!(ask(&mut cluster, *client, &["FUNCTION", "DELETE", "lib"]), "+OK\r\n");
    }
    let gone = "-ERR Library not found\r\n";
    assert_eq!(ask(&mut cluster, any, &["FUNCTION", "DELETE", "lib"]), gone);
    let alone = "#!lua name=a\nredis.register_function{function_name='f', callback=function() return 1 end, \
                 flags={'no-cluster'}}";
    assert_eq!(ask(&mut cluster, any, &["FUNCTION", "LOAD", alone]), bulk("a"));
    assert_eq!(ask(&mut cluster, any, &["FCALL", "f", "0"]), ":1\r\n");
    let refused = ask(&mut cluster, clients[0], &["FCALL", "f", "0"]);
    assert_eq!(
        refused,
        "-ERR Can not run script on cluster, 'no-cluster' flag is set.\r\n"
    );
}

#[test]
fn libraries_that_are_too_long_or_too_much_work_are_refused_and_change_nothing() {
    let mut cluster = start();
    let client = cluster.connect(3, Port::Any);
    load(&mut cluster, client, "lib", "kept");
    let before = ask(&mut cluster, client, &["FUNCTION", "LIST", "WITHCODE"]);
    for (body, says) in [
        ("while true do end", "the library does more work while it is loaded"),
        (
            "local t = {} for i = 1, 10000000 do t[i] = {i} end",
            "more than 16 MiB of memory while it is loaded",
        ),
        (
            "local s = 'x' while true do s = s .. s end",
            "more than 16 MiB of memory while it is loaded",
        ),
    ] {
        let source = format!("#!lua name=bad\n{body}");
        let refused = ask(&mut cluster, client, &["FUNCTION", "LOAD", &source]);
        assert!(
            refused.starts_with("-ERR Error registering functions: ") && refused.contains(says),
            "{refused}"
        );
    }
    let long = format!("#!lua name=bad\n-- {}", "x".repeat(128 << 10));
    let refused = ask(&mut cluster, client, &["FUNCTION", "LOAD", &long]);
    assert!(refused.starts_with("-ERR a library may have 131072 bytes"), "{refused}");
    assert_eq!(ask(&mut cluster, client, &["FUNCTION", "LIST", "WITHCODE"]), before);
    // A function that does too much leaves nothing behind.
    let (key, source) = (
        key(true),
        "#!lua name=slow\nredis.register_function('slow', function(keys) redis.call('set', keys[1], 'x') while true do \
         end end)",
    );
    assert_eq!(ask(&mut cluster, client, &["FUNCTION", "LOAD", source]), bulk("slow"));
    let refused = ask(&mut cluster, client, &["FCALL", "slow", "1", &key]);
    assert!(refused.starts_with("-ERR the script does more work"), "{refused}");
    assert_eq!(ask(&mut cluster, client, &["GET", &key]), "$-1\r\n");
    // Eight of the longest are too long together.
    let mut last = String::new();
    for n in 0..9 {
        let source = format!("#!lua name=l{n}\nredis.register_function('f{n}', function() return {n} end)\n-- ");
        let source = source.clone() + &"x".repeat((128 << 10) - source.len());
        last = ask(&mut cluster, client, &["FUNCTION", "LOAD", &source]);
        if n < 7 {
            assert_eq!(last, bulk(&format!("l{n}")));
        }
    }
    assert!(
        last.starts_with("-ERR all libraries together may have 1048576 bytes"),
        "{last}"
    );
    assert_eq!(ask(&mut cluster, client, &["FCALL", "tell", "0"]), bulk("kept"));
    assert_eq!(ask(&mut cluster, client, &["FCALL", "f6", "0"]), ":6\r\n");
    // All of them are restored in several turns.
    let mut dump = ask_bytes(&mut cluster, client, &[b"FUNCTION", b"DUMP"]);
    let start = dump.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    dump.truncate(dump.len() - 2);
    let payload = &dump[start..];
    assert_eq!(ask(&mut cluster, client, &["FUNCTION", "FLUSH"]), "+OK\r\n");
    let restored = ask_bytes(&mut cluster, client, &[b"FUNCTION", b"RESTORE", payload]);
    assert_eq!(String::from_utf8_lossy(&restored), "+OK\r\n");
    assert_eq!(ask(&mut cluster, client, &["FCALL", "f6", "0"]), ":6\r\n");
    let again = ask_bytes(&mut cluster, client, &[b"FUNCTION", b"DUMP"]);
    assert_eq!(&again[start..again.len() - 2], payload);
}

#[test]
fn a_payload_of_libraries_that_are_too_long_or_too_many_is_refused_before_all_are_loaded() {
    let mut cluster = start();
    let client = cluster.connect(0, Port::Any);
    load(&mut cluster, client, "lib", "kept");
    let payload = |count: usize, source: &dyn Fn(usize) -> String| {
        let mut payload = Vec::new();
        for n in 0..count {
            payload.push(rdb::LIBRARY);
            rdb::push_string(&mut payload, source(n).as_bytes());
        }
        rdb::seal(payload)
    };
    let described = |n: usize| {
        format!(
            "#!lua name=l{n}\nredis.register_function{{function_name='f{n}', callback=function() end, \
             description=('x'):rep(300000)}}"
        )
    };
    let wide = |n: usize| {
        format!("#!lua name=l{n}\nfor i = 1, 3000 do redis.register_function('f{n}_' .. i, function() end) end")
    };
    let long = |n: usize| format!("#!lua name=l{n}\n-- {}", "x".repeat(100_000));
    for (payload, says) in [
        (
            payload(1000, &described),
            "all libraries together may have 1048576 bytes",
        ),
        (payload(1000, &wide), "with this they have"),
        (payload(11, &long), "a payload of libraries may have 1048576 bytes"),
        (payload(100_000, &|_| String::new()), "Missing library metadata"),
    ] {
        let words: [&[u8]; 4] = [b"FUNCTION", b"RESTORE", &payload, b"REPLACE"];
        let reply = String::from_utf8(ask_bytes(&mut cluster, client, &words)).unwrap();
        assert!(reply.starts_with("-ERR ") && reply.contains(says), "{says}: {reply}");
    }
    // Three of them have less than 1 MiB.
    let words: [&[u8]; 4] = [b"FUNCTION", b"RESTORE", &payload(3, &described), b"REPLACE"];
    assert_eq!(ask_bytes(&mut cluster, client, &words), b"+OK\r\n");
    assert!(ask(&mut cluster, client, &["FUNCTION", "LIST"]).len() > 900_000);
    assert_eq!(ask(&mut cluster, client, &["FCALL", "tell", "0"]), bulk("kept"));
}

fn ask_bytes(cluster: &mut Cluster, client: Client, words: &[&[u8]]) -> Vec<u8> {
    let mut request = Vec::new();
    paritas_wire::resp::encode::request(&mut request, words);
    cluster.feed(client, &request);
    cluster.advance(500);
    cluster.take(client)
}

#[test]
fn of_two_clients_that_load_at_once_both_libraries_are_there_or_one_is_refused() {
    let mut cluster = start();
    let clients = [0, 3].map(|node| cluster.connect(node, Port::Any));
    for (names, replies) in [(["a", "b"], 2), (["c", "c"], 1)] {
        for (client, name) in clients.into_iter().zip(names) {
            let source = format!("#!lua name={name}\nredis.register_function('of_{name}', function() return 1 end)");
            let mut request = Vec::new();
            paritas_wire::resp::encode::request(&mut request, &["FUNCTION", "LOAD", &source]);
            cluster.feed(client, &request);
        }
        cluster.advance(200);
        let told = clients.map(|client| String::from_utf8(cluster.take(client)).unwrap());
        assert_eq!(
            told.iter().filter(|reply| reply.starts_with('$')).count(),
            replies,
            "{told:?}"
        );
        let is_taken = |reply: &&String| reply.as_str() == "-ERR Library 'c' already exists\r\n";
        assert_eq!(told.iter().filter(is_taken).count(), 2 - replies, "{told:?}");
    }
    let stats = ask(&mut cluster, clients[0], &["FUNCTION", "STATS"]);
    assert!(stats.contains("libraries_count\r\n:3\r\n"), "{stats}");
}

/// The answer to a command, once it is there: a write that finds no memory waits for some.
fn answer(cluster: &mut Cluster, client: Client, words: &[&str]) -> String {
    let mut request = Vec::new();
    paritas_wire::resp::encode::request(&mut request, words);
    cluster.feed(client, &request);
    cluster.pump();
    for _ in 0..2_000 {
        let answer = cluster.take(client);
        if !answer.is_empty() {
            return String::from_utf8(answer).unwrap();
        }
        cluster.advance(10);
    }
    panic!("no answer to {}", words[0]);
}

/// Fills the stream of the libraries, with values that get shorter, until there is not even space for short ones.
fn fill_memory(cluster: &mut Cluster, client: Client) {
    let mut n = 0;
    for length in [60_000, 10_000, 1_000, 100, 10, 1] {
        let value = "v".repeat(length);
        let mut refused = 0;
        while refused < 20 {
            let reply = answer(cluster, client, &["SET", &format!("{{functions}}{n}"), &value]);
            n += 1;
            match reply.as_str() {
                "+OK\r\n" => {}
                error if error.starts_with("-OOM") => refused += 1,
                other => panic!("{other}"),
            }
            assert!(n < 200_000, "memory is never full");
        }
    }
}

#[test]
fn libraries_are_deleted_when_memory_is_full() {
    for text_bytes in [10, 3_000, 50_000] {
        let mut cluster = Cluster::coded_in(4 << 20, 2, 1, 1, 1, Parameters::default());
        let client = cluster.connect(0, Port::Any);
        let names = ["a", "b", "c", "d"];
        for name in names {
            let source = format!(
                "#!lua name={name}\n-- {}\nredis.register_function('f{name}', function() return 1 end)",
                "x".repeat(text_bytes / names.len())
            );
            let reply = answer(&mut cluster, client, &["FUNCTION", "LOAD", &source]);
            assert_eq!(reply, format!("$1\r\n{name}\r\n"));
        }
        fill_memory(&mut cluster, client);
        for (n, name) in names.iter().enumerate() {
            assert_eq!(answer(&mut cluster, client, &["FUNCTION", "DELETE", name]), "+OK\r\n");
            let listed = answer(&mut cluster, client, &["FUNCTION", "LIST"]);
            assert_eq!(listed.matches("library_name").count(), names.len() - 1 - n, "{listed}");
            let reply = answer(&mut cluster, client, &["FCALL", &format!("f{name}"), "0"]);
            assert_eq!(reply, "-ERR Function not found\r\n");
        }
    }
}

#[test]
fn all_libraries_are_deleted_at_once_when_memory_is_full() {
    let mut cluster = Cluster::coded_in(4 << 20, 2, 1, 1, 1, Parameters::default());
    let client = cluster.connect(0, Port::Any);
    for name in ["a", "b"] {
        let source = format!(
            "#!lua name={name}\n-- {}\nredis.register_function('f{name}', function() return 1 end)",
            "x".repeat(60_000)
        );
        let reply = answer(&mut cluster, client, &["FUNCTION", "LOAD", &source]);
        assert_eq!(reply, format!("$1\r\n{name}\r\n"));
    }
    fill_memory(&mut cluster, client);
    assert_eq!(answer(&mut cluster, client, &["FUNCTION", "FLUSH"]), "+OK\r\n");
    assert_eq!(answer(&mut cluster, client, &["FUNCTION", "LIST"]), "*0\r\n");
}
