//! RENAME, RENAMENX and COPY of keys in different hash slots: in steps, on the any-key port.

use crate::long_values::{ask, request, value_of};
use paritas_base::Prng;
use paritas_protocol::{Parameters, Port};
use paritas_testbed::{Client, Cluster};
use paritas_wire::command;

/// A key of this name that node 0 or 1 of `2+1` owns.
fn key_of(node: usize, name: &str) -> String {
    let is_there = |key: &String| usize::from(command::slot(key.as_bytes()) >= 8192) == node;
    (0..).map(|i| format!("{name}{i}")).find(is_there).unwrap()
}

/// `2+1` and a spare: nodes 0 and 1 own the keys, node 3 owns nothing.
fn start() -> Cluster {
    let parameters = Parameters {
        streamed_bytes_min: 200_000,
        piece_bytes: 64 << 10,
        ..Parameters::default()
    };
    Cluster::coded_in(64 << 20, 2, 1, 1, 1, parameters)
}

#[test]
fn a_key_goes_to_another_owner_with_its_expiry_and_flags() {
    for node in [0, 1, 3] {
        let mut cluster = start();
        let client = cluster.connect(node, Port::Any);
        let lines = cluster.connect(node, Port::Memcached);
        let (old, new, free) = (key_of(0, "old"), key_of(1, "new"), key_of(1, "free"));
        let mut say = |words: &[&str]| ask(&mut cluster, client, words);
        assert_eq!(say(&["RENAME", &old, &new]), "-ERR no such key\r\n");
        assert_eq!(say(&["RENAMENX", &old, &new]), "-ERR no such key\r\n");
        assert_eq!(say(&["COPY", &old, &new]), ":0\r\n");
        assert_eq!(say(&["SET", &old, "a\r\nb", "EXAT", "33000000000"]), "+OK\r\n");
        assert_eq!(say(&["SET", &new, "taken"]), "+OK\r\n");
        assert_eq!(say(&["RENAMENX", &old, &new]), ":0\r\n");
        assert_eq!(say(&["COPY", &old, &new]), ":0\r\n");
        assert_eq!(say(&["MGET", &old, &new]), "*2\r\n$4\r\na\r\nb\r\n$5\r\ntaken\r\n");
        assert_eq!(say(&["COPY", &old, &new, "REPLACE"]), ":1\r\n");
        assert_eq!(say(&["MGET", &old, &new]), "*2\r\n$4\r\na\r\nb\r\n$4\r\na\r\nb\r\n");
        assert_eq!(say(&["COPY", &old, &new, "DB", "3"]), ":1\r\n");
        assert_eq!(say(&["COPY", &old, &new, "DB", "3"]), ":0\r\n");
        assert_eq!(
            say(&["COPY", &old, &new, "DB", "16"]),
            "-ERR DB index is out of range\r\n"
        );
        assert_eq!(say(&["COPY", &old, &new, "FOO"]), "-ERR syntax error\r\n");
        assert_eq!(say(&["RENAMENX", &old, &free]), ":1\r\n");
        assert_eq!(say(&["EXPIRETIME", &free]), ":33000000000\r\n");
        assert_eq!(say(&["RENAME", &free, &old]), "+OK\r\n");
        assert_eq!(say(&["EXISTS", &free, &old]), ":1\r\n");
        // In order with what comes behind it, also if a step is slower.
        for words in [&["RENAME", &old, &new][..], &["SET", &old, "next"], &["GET", &new]] {
            cluster.feed(client, &request(words));
        }
        assert_eq!(
            ask(&mut cluster, client, &["GET", &old]),
            "+OK\r\n+OK\r\n$4\r\na\r\nb\r\n$4\r\nnext\r\n"
        );
        cluster.feed(lines, format!("set {old} 77 0 3\r\nxyz\r\n").as_bytes());
        cluster.advance(200);
        assert_eq!(ask(&mut cluster, client, &["RENAME", &old, &new]), "+OK\r\n");
        cluster.take(lines);
        cluster.feed(lines, format!("get {new}\r\n").as_bytes());
        cluster.advance(200);
        assert_eq!(
            cluster.take(lines),
            format!("VALUE {new} 77 3\r\nxyz\r\nEND\r\n").into_bytes()
        );
    }
}

#[test]
fn a_value_in_parts_goes_too_and_one_that_is_read_in_pieces_is_refused() {
    for node in [0, 3] {
        let mut cluster = start();
        let client = cluster.connect(node, Port::Any);
        let (old, new) = (key_of(0, "old"), key_of(1, "new"));
        let (large, long) = (value_of(150_000, 1), value_of(200_000, 2));
        let mut say = |words: &[&str]| ask(&mut cluster, client, words);
        assert_eq!(say(&["SET", &old, &large]), "+OK\r\n");
        assert_eq!(say(&["RENAME", &old, &new]), "+OK\r\n");
        assert_eq!(say(&["GET", &new]), format!("$150000\r\n{large}\r\n"));
        assert_eq!(say(&["SET", &old, &long]), "+OK\r\n");
        let refused = say(&["RENAME", &old, &new]);
        assert!(
            refused.starts_with("-ERR value of 200000 bytes is over the limit of 199999 bytes"),
            "{refused}"
        );
        assert_eq!(
            say(&["STRLEN", &old]) + &say(&["STRLEN", &new]),
            ":200000\r\n:150000\r\n"
        );
    }
}

#[test]
fn where_redis_cluster_refuses_it_so_do_strict_port_transactions_and_scripts() {
    let mut cluster = start();
    let (old, new) = (key_of(0, "old"), key_of(1, "new"));
    let (client, strict) = (cluster.connect(0, Port::Any), cluster.connect(0, Port::Cluster));
    assert_eq!(ask(&mut cluster, client, &["SET", &old, "1"]), "+OK\r\n");
    for words in [
        &["RENAME", &old, &new],
        &["RENAMENX", &old, &new],
        &["COPY", &old, &new],
    ] {
        assert!(ask(&mut cluster, strict, words).starts_with("-CROSSSLOT "));
        assert_eq!(ask(&mut cluster, client, &["MULTI"]), "+OK\r\n");
        assert!(ask(&mut cluster, client, words).starts_with("-CROSSSLOT "));
        assert!(ask(&mut cluster, client, &["EXEC"]).starts_with("-EXECABORT "));
        let script = format!("return redis.call('{}', KEYS[1], KEYS[2])", words[0]);
        let refused = ask(&mut cluster, client, &["EVAL", &script, "2", &old, &new]);
        assert!(refused.starts_with("-CROSSSLOT "), "{refused}");
    }
    assert_eq!(ask(&mut cluster, client, &["GET", &old]), "$1\r\n1\r\n");
    // Nodes send the steps. Clients cannot.
    let unknown = ask(&mut cluster, client, &["PARITAS.REMOVE", &old, "1"]);
    assert!(unknown.starts_with("-ERR unknown command"), "{unknown}");
}

/// Clients rename one value to and fro, and do nothing else, while an owner dies. It may be there twice, but never not
/// at all.
#[test]
fn a_value_that_is_renamed_by_all_at_once_is_never_lost() {
    for seed in 1..=400 {
        let mut random = Prng::new(seed);
        let mut cluster = Cluster::coded_in(16 << 20, 2, 2, 1, 2, Parameters::default());
        let (here, there) = (key_of(0, "k"), key_of(1, "k"));
        // The last one is in the hash slot of the first.
        let names = [here.clone(), there, key_of(0, "l"), format!("{{{here}}}")];
        let clients: Vec<Client> = [0, 1, 2, 3, 5].map(|node| cluster.connect(node, Port::Any)).into();
        assert_eq!(ask(&mut cluster, clients[4], &["SET", &names[0], "token"]), "+OK\r\n");
        let kill_at = random.below(60);
        for step in 0..60 {
            for client in &clients[..4] {
                if random.chance(300_000) {
                    let mut name = || names[random.below(4) as usize].as_str();
                    let (old, new) = (name(), name());
                    let word = if step % 3 == 0 { "RENAMENX" } else { "RENAME" };
                    cluster.feed(*client, &request(&[word, old, new]));
                }
            }
            for _ in 0..random.below(8) {
                let at = random.below(6) as usize;
                if at > 0 || step <= kill_at {
                    cluster.turn(at);
                }
            }
            if step == kill_at {
                cluster.kill(0);
                cluster.hand_over(0, 0, 4);
            }
            if random.chance(100_000) {
                cluster.advance(10);
            }
        }
        cluster.advance(20_000);
        let found: Vec<String> = names
            .iter()
            .map(|name| ask(&mut cluster, clients[4], &["GET", name]))
            .collect();
        assert!(
            found.iter().any(|reply| reply == "$5\r\ntoken\r\n"),
            "seed {seed}: {found:?}"
        );
        assert!(
            found
                .iter()
                .all(|reply| reply == "$5\r\ntoken\r\n" || reply == "$-1\r\n"),
            "seed {seed}: {found:?}"
        );
    }
}

/// Who renames a key to claim it must know whether he has it.
#[test]
fn of_two_who_rename_one_key_one_has_it() {
    let mut both_began = 0;
    for seed in 1..=300 {
        let mut random = Prng::new(seed);
        let mut cluster = Cluster::coded_in(16 << 20, 2, 2, 1, 2, Parameters::default());
        let clients = [2, 3].map(|node| cluster.connect(node, Port::Any));
        let old = key_of(0, "job");
        assert_eq!(ask(&mut cluster, clients[0], &["SET", &old, "v"]), "+OK\r\n");
        for (client, name) in clients.iter().zip(["a", "b"]) {
            cluster.feed(*client, &request(&["RENAME", &old, &key_of(1, name)]));
            for _ in 0..random.below(30) {
                cluster.turn(random.below(6) as usize);
            }
        }
        cluster.advance(20_000);
        let replies = clients.map(|client| String::from_utf8(cluster.take(client)).unwrap());
        let done = replies.iter().filter(|reply| *reply == "+OK\r\n").count();
        let refused = replies
            .iter()
            .filter(|reply| reply.starts_with("-ERR no such key"))
            .count();
        assert_eq!((done, refused), (1, 1), "seed {seed}: {replies:?}");
        both_began += usize::from(replies.iter().any(|reply| reply.contains("after it was copied")));
        assert_eq!(ask(&mut cluster, clients[0], &["EXISTS", &old]), ":0\r\n");
    }
    assert!(both_began > 20, "{both_began}");
}

/// A SET of the value that the key has is relied on as any other.
#[test]
fn a_key_that_was_written_with_its_own_value_is_not_removed() {
    for turns in 0..60 {
        let mut cluster = Cluster::coded_in(16 << 20, 2, 2, 1, 2, Parameters::default());
        let [client, other, third] = [2, 0, 1].map(|node| cluster.connect(node, Port::Any));
        let (old, new) = (key_of(0, "old"), key_of(1, "new"));
        assert_eq!(ask(&mut cluster, client, &["SET", &old, "v"]), "+OK\r\n");
        cluster.feed(client, &request(&["RENAME", &old, &new]));
        for turn in 0..turns {
            cluster.turn([2, 0, 1, 3, 4, 5][turn % 6]);
        }
        cluster.feed(third, &request(&["DEL", &new]));
        for turn in 0..12 {
            cluster.turn([1, 3, 4][turn % 3]);
        }
        let deleted = cluster.take(third);
        cluster.feed(other, &request(&["SET", &old, "v"]));
        cluster.advance(20_000);
        assert_eq!(cluster.take(other), b"+OK\r\n", "{turns} turns");
        let there = ask(&mut cluster, client, &["EXISTS", &old, &new]);
        assert!(
            deleted.is_empty() || there.ends_with(":1\r\n") || there.ends_with(":2\r\n"),
            "{turns} turns: {there}"
        );
    }
}

/// The old key's owner dies when the new key is written.
#[test]
fn what_fails_between_the_steps_leaves_both_keys_and_says_so() {
    let mut seen = std::collections::BTreeSet::new();
    for turns in 0..40 {
        let mut cluster = Cluster::coded_in(16 << 20, 2, 2, 1, 2, Parameters::default());
        let client = cluster.connect(5, Port::Any);
        let (old, new) = (key_of(0, "old"), key_of(1, "new"));
        assert_eq!(ask(&mut cluster, client, &["SET", &old, "v"]), "+OK\r\n");
        cluster.feed(client, &request(&["RENAME", &old, &new]));
        for turn in 0..turns {
            cluster.turn([5, 0, 1, 2, 3, 4][turn % 6]);
        }
        cluster.kill(0);
        // Nobody takes the position over while the command waits.
        cluster.advance(20_000);
        let reply = String::from_utf8(cluster.take(client)).unwrap();
        cluster.hand_over(0, 0, 4);
        cluster.advance(5_000);
        let there = [&old, &new].map(|key| ask(&mut cluster, client, &["EXISTS", key]) == ":1\r\n");
        let word = reply.split(' ').next().unwrap().trim_end().to_owned();
        let expected = matches!(
            (word.as_str(), there),
            ("+OK", [false, true]) | ("-UNCERTAIN", [_, true]) | ("-TRYAGAIN", [true, _])
        );
        assert!(expected, "{turns} turns: {reply} {there:?}");
        seen.insert((word, there));
    }
    // It died at several places.
    assert!(seen.len() >= 3, "{seen:?}");
}
