//! Commands on one node. Their replies are compared with those recorded from redis-server 7.0.15 (`redis-replies.txt`).
//! Commands that Redis does not have are tested too.

use paritas_protocol::{Parameters, Port};
use paritas_testbed::{Client, Cluster};

/// Text with `\r`, `\n` and `\xHH`, as the recording writes bytes.
pub(crate) fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.extend_from_slice(c.to_string().as_bytes());
            continue;
        }
        match chars.next() {
            Some('r') => out.push(b'\r'),
            Some('n') => out.push(b'\n'),
            Some('x') => {
                let digits: String = chars.by_ref().take(2).collect();
                out.push(u8::from_str_radix(&digits, 16).unwrap());
            }
            Some(other) => out.extend_from_slice(other.to_string().as_bytes()),
            None => {}
        }
    }
    out
}

/// `redis-replies.txt` has lines `> command` and `< reply`, and `~ command` for one without a reply. `= n` moves the
/// clock by n milliseconds. `#` begins a comment.
#[test]
fn replies_are_those_of_redis() {
    let mut cluster = Cluster::new(1);
    let mut client = cluster.connect(0, Port::Any);
    let mut command = "";
    let mut wrong = Vec::new();
    for line in include_str!("redis-replies.txt").lines() {
        if let Some(silent) = line.strip_prefix("~ ") {
            cluster.feed(client, format!("{silent}\r\n").as_bytes());
        } else if let Some(next) = line.strip_prefix("> ") {
            command = next;
            let mut bytes = next.as_bytes().to_vec();
            bytes.extend_from_slice(b"\r\n");
            cluster.feed(client, &bytes);
            cluster.pump();
        } else if let Some(expected) = line.strip_prefix("< ") {
            let expected = unescape(expected);
            let got = cluster.take(client);
            if got != expected {
                let [got, expected] = [&got, &expected].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
                wrong.push(format!("{command}\n  expected {expected:?}\n  got      {got:?}"));
            }
        } else if let Some(ms) = line.strip_prefix("= ") {
            cluster.advance(ms.parse().unwrap());
        } else if line == "? any" {
            cluster.take(client);
        } else if line == "- new connection" {
            client = cluster.connect(0, Port::Any);
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn values_over_the_limit_are_refused_and_change_nothing() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0, Port::Any);
    let mut ask = |args: &[&str]| {
        let mut request = Vec::new();
        paritas_wire::resp::encode::request(&mut request, args);
        cluster.feed(client, &request);
        cluster.pump();
        String::from_utf8(cluster.take(client)).unwrap()
    };
    assert_eq!(ask(&["SET", "k", "old"]), "+OK\r\n");
    let (large, long) = ("x".repeat((16 << 20) + 1), "k".repeat((8 << 10) + 1));
    // Such an argument is not held: only those that become a value of their own are taken as they come.
    let too_long = "-ERR value of 16777217 bytes is over the limit of 16777216 bytes\r\n";
    assert_eq!(ask(&["ECHO", &large]), too_long);
    assert_eq!(ask(&["MSET", "a", "1", "k", &large]), too_long);
    assert_eq!(
        ask(&["SET", &long, "1"]),
        "-ERR key of 8193 bytes is over the limit of 8192 bytes\r\n"
    );
    let longest = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n";
    assert_eq!(ask(&["SETRANGE", "k", "536870912", "x"]), longest);
    assert_eq!(ask(&["GET", &long]), "$-1\r\n");
    assert_eq!(ask(&["GET", "k"]), "$3\r\nold\r\n");
    assert_eq!(ask(&["EXISTS", "a"]), ":0\r\n");
    let whole = "y".repeat(64 << 10);
    assert_eq!(ask(&["SET", "k", &whole]), "+OK\r\n");
    assert_eq!(ask(&["GET", "k"]), format!("$65536\r\n{whole}\r\n"));
    assert_eq!(ask(&["GETRANGE", "k", "65530", "-1"]), "$6\r\nyyyyyy\r\n");
}

#[test]
fn out_of_memory_refuses_writes_loses_nothing_and_goes_on_reading() {
    let mut cluster = Cluster::with(1, 1 << 20, Parameters::default());
    let client = cluster.connect(0, Port::Any);
    let value = "v".repeat(1000);
    let mut stored = 0;
    loop {
        let answer = cluster.ask(client, &format!("SET key:{stored} {value}"));
        if answer != "+OK\r\n" {
            assert!(answer.starts_with("-OOM "), "{answer}");
            break;
        }
        stored += 1;
        assert!(stored < 10_000);
    }
    assert!(stored > 700, "{stored}");
    for n in 0..stored {
        assert_eq!(cluster.ask(client, &format!("STRLEN key:{n}")), ":1000\r\n");
    }
    assert_eq!(cluster.ask(client, "DEL key:0 key:1 key:2"), ":3\r\n");
    for n in 3..stored {
        assert_eq!(cluster.ask(client, &format!("DEL key:{n}")), ":1\r\n");
    }
    assert_eq!(cluster.ask(client, &format!("SET again {value}")), "+OK\r\n");
}

#[test]
fn expired_keys_go_away_by_themselves() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0, Port::Any);
    for n in 0..300 {
        assert_eq!(cluster.ask(client, &format!("SET key:{n} 1 PX 500")), "+OK\r\n");
    }
    assert_eq!(cluster.ask(client, "DBSIZE"), ":300\r\n");
    cluster.advance(20_000);
    assert_eq!(cluster.ask(client, "DBSIZE"), ":0\r\n");
}

#[test]
fn a_client_speaks_resp3_after_hello_3() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0, Port::Any);
    let hello = cluster.ask(client, "HELLO 3 SETNAME me");
    assert!(hello.starts_with("%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n"), "{hello}");
    assert_eq!(cluster.ask(client, "GET nothing"), "_\r\n");
    assert_eq!(cluster.ask(client, "CONFIG GET save"), "%1\r\n$4\r\nsave\r\n$0\r\n\r\n");
    assert!(
        cluster
            .ask(client, "INFO keyspace")
            .starts_with("=16\r\ntxt:# Keyspace"),
        "a verbatim string"
    );
    assert_eq!(cluster.ask(client, "RESET"), "+RESET\r\n");
    assert_eq!(cluster.ask(client, "GET nothing"), "$-1\r\n");
}

#[test]
fn clients_are_listed_and_ended() {
    let mut cluster = Cluster::new(1);
    let (one, two) = (cluster.connect(0, Port::Any), cluster.connect(0, Port::Any));
    assert_eq!(cluster.ask(two, "CLIENT SETNAME second"), "+OK\r\n");
    let listed = cluster.ask(one, "CLIENT LIST");
    assert_eq!(listed.matches("id=").count(), 2, "{listed}");
    assert!(listed.contains("name=second"));
    assert!(
        listed.contains(" addr=127.0.0.1:50002 laddr=127.0.0.1:6379 "),
        "{listed}"
    );
    let info = cluster.ask(one, "CLIENT INFO");
    assert!(
        info.contains("id=1 addr=127.0.0.1:50001 ") && info.contains(" db=0 ") && info.contains(" cmd=client|info "),
        "{info}"
    );
    let id = cluster.ask(two, "CLIENT ID");
    assert_eq!(id, ":2\r\n");
    assert_eq!(cluster.ask(one, "CLIENT KILL ID 2"), ":1\r\n");
    assert!(cluster.is_closed(two) && !cluster.is_closed(one));
    assert_eq!(cluster.ask(one, "CLIENT KILL 1.2.3.4:5"), "-ERR No such client\r\n");
    assert_eq!(cluster.ask(one, "CLIENT KILL TYPE normal SKIPME no"), ":2\r\n");
    assert!(cluster.is_closed(one));
}

#[test]
fn clients_are_ended_by_address() {
    let mut cluster = Cluster::new(1);
    let mut connect = || cluster.connect(0, Port::Any);
    let (one, two, three) = (connect(), connect(), connect());
    assert_eq!(cluster.ask(one, "CLIENT KILL ADDR 127.0.0.1:1"), ":0\r\n");
    assert_eq!(cluster.ask(one, "CLIENT KILL 127.0.0.1:50002"), "+OK\r\n");
    assert!(cluster.is_closed(two) && !cluster.is_closed(three));
    assert_eq!(
        cluster.ask(one, "CLIENT KILL ADDR 127.0.0.1:50003 LADDR 127.0.0.1:1"),
        ":0\r\n"
    );
    assert_eq!(
        cluster.ask(one, "CLIENT KILL ADDR 127.0.0.1:50003 LADDR 127.0.0.1:6379"),
        ":1\r\n"
    );
    assert!(cluster.is_closed(three) && !cluster.is_closed(one));
}

#[test]
fn info_has_its_sections_and_counts_commands() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0, Port::Any);
    cluster.ask(client, "SET a x");
    cluster.ask(client, "INCR a");
    let usual = cluster.ask(client, "INFO");
    for section in [
        "Server",
        "Clients",
        "Memory",
        "Stats",
        "Replication",
        "CPU",
        "Cluster",
        "Keyspace",
    ] {
        assert!(usual.contains(&format!("# {section}\r\n")), "{section}");
    }
    assert!(!usual.contains("# Commandstats"));
    assert!(usual.contains("db0:keys=1,expires=0"));
    let stats = cluster.ask(client, "INFO commandstats");
    assert!(stats.contains("cmdstat_set:calls=1,"), "{stats}");
    assert!(stats.contains("cmdstat_incr:calls=1,usec=0,usec_per_call=0.00,rejected_calls=0,failed_calls=1"));
    assert!(cluster.ask(client, "INFO everything").contains("# Commandstats"));
}

/// A number of INFO.
fn info(cluster: &mut Cluster, client: Client, name: &str) -> u64 {
    let text = cluster.ask(client, "INFO everything");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|number| number.trim().parse().ok())
        .unwrap_or_else(|| panic!("no {name} in {text}"))
}

#[test]
fn info_counts_what_reads_find_as_redis_does() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0, Port::Any);
    let large = "v".repeat(100_000);
    cluster.ask_words(client, &["SET", "large", &large]);
    // Command, and how many of its lookups Redis counts as found and as not found.
    let cases = [
        ("SET a 1", 0, 0),
        ("SET a 2 XX", 0, 0),
        ("SET a 3 GET", 1, 0),
        ("INCR a", 0, 0),
        ("APPEND b 1", 0, 0),
        ("GET a", 1, 0),
        ("GET large", 1, 0),
        ("GET c", 0, 1),
        ("MGET a b c large", 3, 1),
        ("EXISTS a a c", 2, 1),
        ("STRLEN a", 1, 0),
        ("TTL c", 0, 1),
        ("GETRANGE large 1 2", 1, 0),
        ("MEMORY USAGE a", 0, 0),
        ("DEL c", 0, 0),
        ("GETDEL b", 1, 0),
        ("GETEX b", 0, 1),
        ("GETSET d 1", 0, 1),
        ("DBSIZE", 0, 0),
    ];
    for (line, found, not_found) in cases {
        let counted =
            |cluster: &mut Cluster| ["keyspace_hits", "keyspace_misses"].map(|name| info(cluster, client, name));
        let before = counted(&mut cluster);
        cluster.ask(client, line);
        let after = counted(&mut cluster);
        assert_eq!(
            [after[0] - before[0], after[1] - before[1]],
            [found, not_found],
            "{line}"
        );
    }
}

#[test]
fn info_counts_expired_keys_once() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0, Port::Any);
    for n in 0..300 {
        assert_eq!(cluster.ask(client, &format!("SET key:{n} 1 PX 500")), "+OK\r\n");
    }
    assert_eq!(info(&mut cluster, client, "expired_keys"), 0);
    cluster.advance(501);
    assert_eq!(cluster.ask(client, "GET key:7"), "$-1\r\n");
    cluster.advance(20_000);
    assert_eq!(info(&mut cluster, client, "expired_keys"), 300);
}

#[test]
fn memory_usage_counts_the_class_of_a_large_value() {
    let mut cluster = Cluster::coded(4, 2, 1, 0, Parameters::default());
    let client = cluster.connect(0, Port::Any);
    let value = "v".repeat(4 << 20);
    cluster.ask_words(client, &["SET", "k", &value]);
    cluster.advance(1000);
    for (class, least) in [
        ("ec:4,2", 6 << 20),
        ("none", 4 << 20),
        ("rep:3", 12 << 20),
        ("eor:2,4", 8 << 20),
    ] {
        cluster.ask(client, &format!("PARITAS.REDUNDANCY k {class}"));
        cluster.advance(2000);
        cluster.take(client);
        let told = cluster.ask(client, "PARITAS.REDUNDANCY k");
        assert!(told.contains(class), "{class}: {told}");
        let reply = cluster.ask(client, "MEMORY USAGE k");
        let bytes: i64 = reply[1..].trim().parse().unwrap();
        assert!(
            (least - 4096..least + 4096).contains(&bytes),
            "{class}: {bytes} bytes, not about {least}"
        );
    }
}

#[test]
fn malformed_input_is_answered_and_the_connection_ends() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0, Port::Any);
    cluster.feed(client, b"PING\r\n*1\r\n$x\r\n");
    cluster.pump();
    assert_eq!(
        cluster.take(client),
        b"+PONG\r\n-ERR Protocol error: invalid bulk length\r\n"
    );
    assert!(cluster.is_closed(client));
}

#[test]
fn overwriting_with_other_sizes_is_compacted_in_time() {
    let mut cluster = Cluster::with(1, 2 << 20, Parameters::default());
    let client = cluster.connect(0, Port::Any);
    let mut random = paritas_base::Prng::new(1);
    for round in 0..40 {
        for key in 0..1000 {
            let value = "v".repeat(random.between(500, 1500) as usize);
            let answer = cluster.ask(client, &format!("SET key:{key} {value}"));
            assert_eq!(answer, "+OK\r\n", "round {round}, key {key}");
        }
    }
    assert_eq!(cluster.ask(client, "DBSIZE"), ":1000\r\n");
    for _ in 0..20 {
        assert_eq!(cluster.ask(client, "FLUSHALL"), "+OK\r\n");
        for key in 0..1000 {
            assert_eq!(
                cluster.ask(client, &format!("SET other:{key} {}", "v".repeat(1000))),
                "+OK\r\n"
            );
        }
    }
    assert_eq!(cluster.ask(client, "DBSIZE"), ":1000\r\n");
    assert_eq!(cluster.ask(client, "EXISTS key:1"), ":0\r\n");
}

#[test]
fn a_long_command_may_come_in_any_pieces() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0, Port::Any);
    let pairs: Vec<String> = (0..3000).flat_map(|n| [format!("{{t}}{n}"), n.to_string()]).collect();
    let mut args = vec!["MSET"];
    args.extend(pairs.iter().map(String::as_str));
    let mut request = Vec::new();
    paritas_wire::resp::encode::request(&mut request, &["PING"]);
    paritas_wire::resp::encode::request(&mut request, &args);
    paritas_wire::resp::encode::request(&mut request, &["GET", "{t}2999"]);
    for piece in request.chunks(777) {
        cluster.feed(client, piece);
        cluster.pump();
    }
    assert_eq!(cluster.take(client), b"+PONG\r\n+OK\r\n$4\r\n2999\r\n");
    assert_eq!(cluster.ask(client, "DBSIZE"), ":3000\r\n");
}

/// Replies as those of valkey-server 9.1.2.
#[test]
fn a_key_is_set_or_deleted_if_it_has_a_value() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0, Port::Any);
    let (null, syntax) = ("$-1\r\n", "-ERR syntax error\r\n");
    for (command, reply) in [
        ("SET k v IFEQ x", null),
        ("EXISTS k", ":0\r\n"),
        ("SET k v", "+OK\r\n"),
        ("SET k w IFEQ v", "+OK\r\n"),
        ("SET k w2 IFEQ v", null),
        ("SET k w IFEQ w GET", "$1\r\nw\r\n"),
        ("SET k z IFEQ v GET", "$1\r\nw\r\n"),
        ("GET k", "$1\r\nw\r\n"),
        ("SET k z NX IFEQ w", syntax),
        ("SET k z IFEQ w XX", syntax),
        ("SET k z IFEQ w IFEQ w", syntax),
        ("SET k z IFEQ", syntax),
        ("SET no z IFEQ w GET", null),
        ("SET k y IFEQ w EX 100", "+OK\r\n"),
        ("SET k x IFEQ y KEEPTTL", "+OK\r\n"),
        ("TTL k", ":100\r\n"),
        ("DELIFEQ k q", ":0\r\n"),
        ("DELIFEQ k xx", ":0\r\n"),
        ("DELIFEQ k x", ":1\r\n"),
        ("DELIFEQ k x", ":0\r\n"),
        ("DELIFEQ k", "-ERR wrong number of arguments for 'delifeq' command\r\n"),
    ] {
        assert_eq!(cluster.ask(client, command), reply, "{command}");
    }
}

#[test]
fn help_of_a_command_names_its_subcommands() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0, Port::Any);
    for container in [
        "CLIENT", "COMMAND", "CONFIG", "CLUSTER", "OBJECT", "MEMORY", "ACL", "MODULE", "SENTINEL",
    ] {
        let reply = cluster.ask(client, &format!("{container} help"));
        assert!(
            reply.starts_with('*') && reply.contains("+HELP: "),
            "{container}: {reply}"
        );
        assert!(reply.contains(&format!("+{container} <subcommand>")), "{reply}");
        let refused = cluster.ask(client, &format!("{container} help me"));
        assert!(refused.starts_with("-ERR unknown subcommand"), "{refused}");
    }
}

#[test]
fn clients_set_up_for_sentinel_find_this_node() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0, Port::Any);
    let address = cluster.ask(client, "SENTINEL get-master-addr-by-name any");
    assert!(address.starts_with("*2\r\n$"), "{address}");
    assert!(cluster.ask(client, "SENTINEL masters").contains("mymaster"));
    assert!(cluster.ask(client, "SENTINEL master orders").contains("orders"));
    for words in ["SENTINEL replicas x", "SENTINEL slaves x", "SENTINEL sentinels x"] {
        assert_eq!(cluster.ask(client, words), "*0\r\n");
    }
}

#[test]
fn notifications_and_replicas_are_refused_by_name() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0, Port::Any);
    let refused = cluster.ask(client, "CONFIG SET notify-keyspace-events KEA");
    assert!(
        refused.contains("keyspace notifications are not there yet"),
        "{refused}"
    );
    assert!(
        cluster
            .ask(client, "CLUSTER REPLICAS nobody")
            .starts_with("-ERR Unknown node nobody")
    );
    let me = cluster.ask(client, "CLUSTER MYSHARDID");
    assert_eq!(me, cluster.ask(client, "CLUSTER MYID"));
    let name = me.lines().nth(1).unwrap().to_owned();
    assert_eq!(cluster.ask(client, &format!("CLUSTER REPLICAS {name}")), "*0\r\n");
    assert_eq!(cluster.ask(client, "CLUSTER LINKS"), "*0\r\n");
}

#[test]
fn config_resetstat_sets_the_counters_to_zero() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0, Port::Any);
    cluster.ask(client, "GET nothing");
    assert_eq!(info(&mut cluster, client, "keyspace_misses"), 1);
    assert_eq!(cluster.ask(client, "CONFIG RESETSTAT"), "+OK\r\n");
    assert_eq!(info(&mut cluster, client, "keyspace_misses"), 0);
    let stats = cluster.ask(client, "INFO commandstats");
    assert!(!stats.contains("cmdstat_get"), "{stats}");
}

#[test]
fn lcs_reads_large_values_and_refuses_too_much_work() {
    let mut cluster = Cluster::coded_in(64 << 20, 2, 1, 1, 0, Parameters::default());
    // Node 2 owns no stream.
    let client = cluster.connect(2, Port::Any);
    let long = "abcdefghij".repeat(10_000);
    let set = |cluster: &mut Cluster, key: &str, value: &str| {
        cluster.ask_words(client, &["SET", key, value]);
        cluster.advance(200);
    };
    set(&mut cluster, "{l}long", &long);
    set(&mut cluster, "{l}short", &"jihgfedcba".repeat(60));
    set(&mut cluster, "{l}whole", &"x".repeat(1 << 20));
    set(&mut cluster, "{l}more", &"x".repeat((1 << 20) + 1));
    let mut ask = |line: &str| {
        let at_once = cluster.ask(client, line);
        cluster.advance(200);
        at_once + &String::from_utf8_lossy(&cluster.take(client))
    };
    assert_eq!(ask("LCS {l}long {l}short LEN"), ":600\r\n");
    assert_eq!(
        ask("LCS {l}short {l}long"),
        format!("$600\r\n{}\r\n", "jihgfedcba".repeat(60))
    );
    assert_eq!(ask("LCS {l}whole {l}none LEN"), ":0\r\n");
    for line in ["LCS {l}whole {l}long", "LCS {l}more {l}none", "LCS {l}long {l}long LEN"] {
        let refused = ask(line);
        assert!(
            refused.starts_with("-ERR the strings are too long for LCS here: "),
            "{refused}"
        );
    }
    assert!(ask("LCS {l}long {m}long").starts_with("-CROSSSLOT "));
}
