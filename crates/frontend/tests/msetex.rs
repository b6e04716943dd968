//! MSETEX (Redis 8.4): as MSET, with one expiry or a condition for all keys.

use crate::long_values::{ask, value_of};
use paritas_protocol::{Parameters, Port};
use paritas_testbed::{Client, Cluster};

#[test]
fn pairs_are_set_with_their_expiry_or_condition() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0, Port::Any);
    let steps = [
        ("MSETEX 2 {t}a 1 {t}b 2", ":1\r\n"),
        ("MGET {t}a {t}b", "*2\r\n$1\r\n1\r\n$1\r\n2\r\n"),
        ("TTL {t}a", ":-1\r\n"),
        ("MSETEX 2 {t}a 3 {t}b 4 EX 100", ":1\r\n"),
        ("TTL {t}a", ":100\r\n"),
        ("PERSIST {t}b", ":1\r\n"),
        ("MSETEX 2 {t}a 5 {t}b 6 KEEPTTL", ":1\r\n"),
        ("TTL {t}a", ":100\r\n"),
        ("TTL {t}b", ":-1\r\n"),
        ("MSETEX 1 {t}a 5", ":1\r\n"),
        ("TTL {t}a", ":-1\r\n"),
        ("MSETEX 2 {t}a x {t}c x NX PX 5000", ":0\r\n"),
        ("MSETEX 2 {t}a x {t}c x PX 5000 xx", ":0\r\n"),
        ("MGET {t}a {t}c", "*2\r\n$1\r\n5\r\n$-1\r\n"),
        ("MSETEX 2 {t}c 7 {t}d 8 NX PX 5000", ":1\r\n"),
        ("MSETEX 2 {t}c 9 {t}d 9 XX EXAT 33000000000", ":1\r\n"),
        ("EXPIRETIME {t}d", ":33000000000\r\n"),
        // That time is over.
        ("MSETEX 2 {t}c 1 {t}d 1 PXAT 1", ":1\r\n"),
        ("EXISTS {t}a {t}b {t}c {t}d", ":2\r\n"),
        // The last value of a key counts.
        ("MSETEX 3 {t}e 1 {t}e 2 {t}e EX EX 100", ":1\r\n"),
        ("GET {t}e", "$2\r\nEX\r\n"),
        (
            "MSETEX 1 {t}a",
            "-ERR wrong number of arguments for 'msetex' command\r\n",
        ),
        ("MSETEX x {t}a 1", "-ERR invalid numkeys value\r\n"),
        ("MSETEX 0 {t}a 1", "-ERR invalid numkeys value\r\n"),
        ("MSETEX 2147483648 {t}a 1", "-ERR invalid numkeys value\r\n"),
        ("MSETEX 2147483647 {t}a 1", "-ERR wrong number of key-value pairs\r\n"),
        ("MSETEX 2 {t}a 1 {t}b", "-ERR wrong number of key-value pairs\r\n"),
        ("MSETEX 1 {t}a 1 FOO", "-ERR syntax error\r\n"),
        ("MSETEX 1 {t}a 1 GET", "-ERR syntax error\r\n"),
        ("MSETEX 1 {t}a 1 IFEQ 5", "-ERR syntax error\r\n"),
        ("MSETEX 1 {t}a 1 NX XX", "-ERR syntax error\r\n"),
        ("MSETEX 1 {t}a 1 EX 1 PX 1", "-ERR syntax error\r\n"),
        ("MSETEX 1 {t}a 1 EX 1 KEEPTTL", "-ERR syntax error\r\n"),
        ("MSETEX 1 {t}a 1 EX", "-ERR syntax error\r\n"),
        (
            "MSETEX 1 {t}a 1 EX x",
            "-ERR value is not an integer or out of range\r\n",
        ),
        (
            "MSETEX 1 {t}a 1 EX 0",
            "-ERR invalid expire time in 'msetex' command\r\n",
        ),
        ("GET {t}a", "$1\r\n5\r\n"),
        ("COMMAND GETKEYS MSETEX 2 k 1 l 2 EX 5", "*2\r\n$1\r\nk\r\n$1\r\nl\r\n"),
        ("MULTI", "+OK\r\n"),
        ("MSETEX 1 {t}a multi EX 50", "+QUEUED\r\n"),
        ("GET {t}a", "+QUEUED\r\n"),
        ("EXEC", "*2\r\n:1\r\n$5\r\nmulti\r\n"),
        ("MULTI", "+OK\r\n"),
        ("MSETEX 2 {t}a 1", "-ERR wrong number of key-value pairs\r\n"),
        (
            "EXEC",
            "-EXECABORT Transaction discarded because of previous errors.\r\n",
        ),
        (
            "EVAL \"return redis.call('MSETEX', 1, KEYS[1], 'lua', 'EX', 60)\" 1 {t}a",
            ":1\r\n",
        ),
        (
            "EVAL \"return redis.pcall('MSETEX', 3, 'k', 'lua').err\" 0",
            "$35\r\nERR wrong number of key-value pairs\r\n",
        ),
        ("GET {t}a", "$3\r\nlua\r\n"),
        ("TTL {t}a", ":60\r\n"),
    ];
    for (command, reply) in steps {
        assert_eq!(cluster.ask(client, command), reply, "{command}");
    }
    let info = cluster.ask(client, "COMMAND INFO MSETEX");
    assert!(
        info.contains("+movablekeys\r\n") && info.contains("$6\r\nkeynum\r\n"),
        "{info}"
    );
}

/// Keys of both owners of `2+1`, and of several slots of each.
#[test]
fn over_several_slots_it_is_split_as_mset_and_a_condition_is_refused() {
    let parameters = Parameters {
        streamed_bytes_min: 400_000,
        ..Parameters::default()
    };
    let mut cluster = Cluster::coded_in(64 << 20, 2, 1, 1, 1, parameters);
    let large = value_of(150_000, 1);
    // Node 3 owns nothing.
    for node in [0, 3] {
        let client = cluster.connect(node, Port::Any);
        let keys: Vec<String> = (0..20).map(|i| format!("{node}k{i}")).collect();
        let mut words = vec!["MSETEX", "20"];
        for (at, key) in keys.iter().enumerate() {
            words.extend([key.as_str(), if at % 7 == 0 { large.as_str() } else { "small" }]);
        }
        let plain = words.clone();
        words.extend(["EX", "100"]);
        let get = |cluster: &mut Cluster, client: Client| {
            for (at, key) in keys.iter().enumerate() {
                let length = if at % 7 == 0 { 150_000 } else { 5 };
                assert_eq!(ask(cluster, client, &["STRLEN", key]), format!(":{length}\r\n"));
                // Each `ask` moves the clock a little.
                let left = ask(cluster, client, &["TTL", key]);
                let left: i64 = left.trim_start_matches(':').trim_end().parse().unwrap();
                assert!((80..=100).contains(&left), "{left}");
            }
        };
        assert_eq!(ask(&mut cluster, client, &words), ":1\r\n");
        get(&mut cluster, client);
        assert_eq!(
            ask(&mut cluster, client, &[&plain[..], &["KEEPTTL"]].concat()),
            ":1\r\n"
        );
        get(&mut cluster, client);
        let wrong = ask(&mut cluster, client, &[&plain[..], &["EX", "0"]].concat());
        assert_eq!(wrong, "-ERR invalid expire time in 'msetex' command\r\n");
        for option in ["NX", "XX"] {
            let refused = ask(&mut cluster, client, &[&plain[..], &[option]].concat());
            assert!(refused.starts_with("-CROSSSLOT "), "{refused}");
        }
        cluster.advance(100_000);
        assert_eq!(ask(&mut cluster, client, &["EXISTS", &keys[0], &keys[1]]), ":0\r\n");
    }
    let strict = cluster.connect(0, Port::Cluster);
    assert!(ask(&mut cluster, strict, &["MSETEX", "2", "a", "1", "b", "2"]).starts_with("-CROSSSLOT "));
    // It has no keys, so it is no other node's either.
    assert_eq!(
        ask(&mut cluster, strict, &["MSETEX", "0", "a", "1"]),
        "-ERR invalid numkeys value\r\n"
    );
}
