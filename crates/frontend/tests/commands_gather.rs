//! Clusters of two or more nodes: forwarding, gathering of replies, the cluster port, the order of replies, the loss of
//! an owner.

use paritas_base::configuration::Configuration;
use paritas_base::hash_slots::{HandOff, SlotRange};
use paritas_base::{ListId, Position, StreamId};
use paritas_protocol::{Event, Port, Proposal};
use paritas_testbed::{Client, Cluster, configuration, following};
use paritas_wire::peer::Message;
use std::cell::Cell;
use std::rc::Rc;

/// Two nodes and a client of node 0. Node 0 owns hash slots 0 to 8191, node 1 the others.
fn two() -> (Cluster, Client) {
    let mut cluster = Cluster::new(2);
    let client = cluster.connect(0, Port::Any);
    (cluster, client)
}

/// The next configuration of a list: `node` owns it, and it begins again without data.
fn reset_to(before: &Configuration, node: usize) -> Configuration {
    let first = configuration(before.list.0, node, before.epoch.0 + 1, before.epoch.0 + 1);
    following(before, |next| {
        (next.born, next.positions) = (first.born, first.positions);
    })
}

fn owner(key: &str) -> usize {
    usize::from(paritas_wire::command::slot(key.as_bytes()) >= 8192)
}

/// `count` keys that `node` owns (0 or 1).
fn keys(node: usize, count: usize) -> Vec<String> {
    (0..)
        .map(|n| format!("k{n}"))
        .filter(|key| owner(key) == node)
        .take(count)
        .collect()
}

#[test]
fn any_node_answers_for_any_key() {
    let (mut cluster, client) = two();
    let (here, there) = (&keys(0, 1)[0], &keys(1, 1)[0]);
    for key in [here, there] {
        assert_eq!(cluster.ask(client, &format!("SET {key} of-{key}")), "+OK\r\n");
    }
    let other = cluster.connect(1, Port::Any);
    for key in [here, there] {
        let expected = format!("$5\r\nof-{key}\r\n");
        assert_eq!(cluster.ask(client, &format!("GET {key}")), expected);
        assert_eq!(cluster.ask(other, &format!("GET {key}")), expected);
    }
    let missing = &keys(1, 2)[1];
    assert_eq!(cluster.ask(client, &format!("GET {missing}")), "$-1\r\n");
    cluster.ask(client, "HELLO 3");
    assert_eq!(cluster.ask(client, &format!("GET {missing}")), "_\r\n");
}

#[test]
fn a_pipeline_over_nodes_is_answered_in_order() {
    let (mut cluster, client) = two();
    let (here, there) = (keys(0, 40), keys(1, 40));
    let mut input = String::new();
    let mut expected = String::new();
    for n in 0..40 {
        let (a, b) = (&here[n], &there[n]);
        input += &format!(
            "SET {a} {n}\r\nSET {b} {n}\r\nINCR {b}\r\nPING\r\nMGET {a} {b}\r\nINCR {a}\r\nDEL {a} {b} {a}\r\n"
        );
        let m = (n + 1).to_string();
        let n = n.to_string();
        expected += &format!(
            "+OK\r\n+OK\r\n:{m}\r\n+PONG\r\n*2\r\n${}\r\n{n}\r\n${}\r\n{m}\r\n:{m}\r\n:2\r\n",
            n.len(),
            m.len()
        );
    }
    cluster.feed(client, input.as_bytes());
    cluster.pump();
    assert_eq!(String::from_utf8(cluster.take(client)).unwrap(), expected);
}

#[test]
fn commands_over_streams_are_gathered() {
    let (mut cluster, client) = two();
    let (here, there) = (keys(0, 3), keys(1, 3));
    let pairs: Vec<String> = here.iter().chain(&there).map(|key| format!("{key} {key}")).collect();
    assert_eq!(cluster.ask(client, &format!("MSET {}", pairs.join(" "))), "+OK\r\n");
    assert_eq!(cluster.ask(client, "DBSIZE"), ":6\r\n");
    let (a, b) = (&here[0], &there[0]);
    assert_eq!(cluster.ask(client, &format!("EXISTS {a} {b} {a} nothing")), ":3\r\n");
    assert_eq!(cluster.ask(client, &format!("TOUCH {b} {a}")), ":2\r\n");
    assert_eq!(cluster.ask(client, &format!("UNLINK {b} {a}")), ":2\r\n");
    assert_eq!(
        cluster.ask(client, &format!("MGET {b} {} {}", there[1], here[1])),
        format!("*3\r\n$-1\r\n$2\r\n{}\r\n$2\r\n{}\r\n", there[1], here[1])
    );
    let listed = cluster.ask(client, "KEYS *");
    assert!(listed.starts_with("*4\r\n"), "{listed}");
    assert!(cluster.ask(client, "RANDOMKEY").starts_with("$2\r\nk"));
    assert_eq!(cluster.ask(client, "FLUSHALL ASYNC"), "+OK\r\n");
    assert_eq!(cluster.ask(client, "DBSIZE"), ":0\r\n");
    assert_eq!(cluster.ask(client, "RANDOMKEY"), "$-1\r\n");
    // A command that cannot be split by stream is refused unless its keys have one hash slot.
    for line in [
        format!("BITOP NOT {a} {b}"),
        format!("LCS {a} {b}"),
        format!("MSETNX {a} 1 {b} 2"),
    ] {
        assert!(cluster.ask(client, &line).starts_with("-CROSSSLOT "), "{line}");
    }
    let odd = cluster.ask(client, &format!("MSET {a} 1 {b}"));
    assert_eq!(odd, "-ERR wrong number of arguments for 'mset' command\r\n");
    assert_eq!(cluster.ask(client, "FLUSHALL NOW"), "-ERR syntax error\r\n");
}

#[test]
fn scan_walks_over_all_streams_and_ends() {
    let (mut cluster, client) = two();
    for n in 0..500 {
        cluster.feed(client, format!("SET key:{n} {n}\r\n").as_bytes());
    }
    cluster.pump();
    cluster.take(client);
    let (mut cursor, mut seen, mut steps) = ("0".to_owned(), Vec::new(), 0);
    loop {
        let reply = cluster.ask(client, &format!("SCAN {cursor} COUNT 20 MATCH key:*"));
        let mut lines = reply
            .split("\r\n")
            .filter(|l| !l.starts_with(['*', '$']) && !l.is_empty());
        cursor = lines.next().unwrap().to_owned();
        assert!(
            cursor.parse::<u64>().unwrap() < 1 << 53,
            "JavaScript's numbers are exact up to there"
        );
        seen.extend(lines.map(str::to_owned));
        steps += 1;
        assert!(steps < 200, "SCAN does not end");
        if cursor == "0" {
            break;
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 500);
    for (line, error) in [
        ("SCAN x", "-ERR invalid cursor\r\n"),
        ("SCAN 0 COUNT 0", "-ERR syntax error\r\n"),
        ("SCAN 0 COUNT x", "-ERR value is not an integer or out of range\r\n"),
        ("SCAN 0 NOPE 1", "-ERR syntax error\r\n"),
    ] {
        assert_eq!(cluster.ask(client, line), error, "{line}");
    }
    assert_eq!(
        cluster.ask(client, "SCAN 0 TYPE list COUNT 4000"),
        "*2\r\n$12\r\n549755813888\r\n*0\r\n"
    );
}

#[test]
fn the_strict_port_speaks_for_its_node_only() {
    let (mut cluster, _) = two();
    let strict = cluster.connect(0, Port::Cluster);
    let (here, there) = (keys(0, 2), keys(1, 2));
    assert_eq!(cluster.ask(strict, &format!("SET {} 1", here[0])), "+OK\r\n");
    let slot = paritas_wire::command::slot(there[0].as_bytes());
    let moved = format!("-MOVED {slot} 127.0.0.1:7380\r\n");
    assert_eq!(cluster.ask(strict, &format!("GET {}", there[0])), moved);
    let crossed = cluster.ask(strict, &format!("MGET {} {}", here[0], here[1]));
    assert_eq!(crossed, "-CROSSSLOT Keys in request don't hash to the same slot\r\n");
    let any = cluster.connect(0, Port::Any);
    assert_eq!(
        cluster.ask(any, &format!("MSET {} 1 {} 1", there[0], there[1])),
        "+OK\r\n"
    );
    assert_eq!(cluster.ask(strict, "DBSIZE"), ":1\r\n");
    assert_eq!(cluster.ask(any, "DBSIZE"), ":3\r\n");
    assert_eq!(cluster.ask(any, &format!("CLUSTER COUNTKEYSINSLOT {slot}")), ":1\r\n");
    assert_eq!(
        cluster.ask(any, &format!("CLUSTER GETKEYSINSLOT {slot} 10")),
        format!("*1\r\n$2\r\n{}\r\n", there[0])
    );
    assert_eq!(
        cluster.ask(strict, &format!("CLUSTER COUNTKEYSINSLOT {slot}")),
        ":0\r\n"
    );
    assert_eq!(
        cluster.ask(strict, &format!("CLUSTER GETKEYSINSLOT {slot} 10")),
        "*0\r\n"
    );
    assert_eq!(
        cluster.ask(strict, "CLUSTER COUNTKEYSINSLOT 16384"),
        "-ERR Invalid or out of range slot\r\n"
    );
    assert_eq!(cluster.ask(strict, "FLUSHALL"), "+OK\r\n");
    assert_eq!(cluster.ask(any, "DBSIZE"), ":2\r\n");
    let slots = cluster.ask(any, "CLUSTER SLOTS");
    assert!(
        slots.starts_with("*2\r\n*3\r\n:0\r\n:8191\r\n*4\r\n$9\r\n127.0.0.1\r\n:7379\r\n$40\r\n"),
        "{slots}"
    );
    let nodes = cluster.ask(any, "CLUSTER NODES");
    assert!(
        nodes.contains(" 127.0.0.1:7379@16379 myself,master - 0 0 1 connected 0-8191\n"),
        "{nodes}"
    );
    assert!(cluster.ask(any, "CLUSTER INFO").contains("cluster_state:ok\r\n"));
    assert!(cluster.ask(any, "CLUSTER SHARDS").contains("replication-offset"));
}

/// The numbers of `db0` in INFO keyspace: keys, and keys that expire. And the streams whose owner did not answer.
fn keyspace(reply: &str) -> (u64, u64, u64) {
    let number = |name: &str| {
        let after = reply.split_once(name).map_or("0", |(_, after)| after);
        let digits = after.split(|c: char| !c.is_ascii_digit()).next();
        digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
    };
    (number("keys="), number("expires="), number("silent_streams:"))
}

#[test]
fn info_has_the_keys_of_the_cluster_where_dbsize_has() {
    let (mut cluster, any) = two();
    for key in keys(0, 3).iter().chain(&keys(1, 4)) {
        assert_eq!(cluster.ask(any, &format!("SET {key} 1")), "+OK\r\n");
    }
    assert_eq!(cluster.ask(any, &format!("EXPIRE {} 100", keys(1, 1)[0])), ":1\r\n");
    let strict = cluster.connect(0, Port::Cluster);
    let other = cluster.connect(1, Port::Any);
    for (client, expected) in [(any, (7, 1, 0)), (other, (7, 1, 0)), (strict, (3, 0, 0))] {
        assert_eq!(keyspace(&cluster.ask(client, "INFO keyspace")), expected);
        assert_eq!(keyspace(&cluster.ask(client, "INFO")), expected);
    }
    // In its place among other commands, and as new as those before it.
    let more = &keys(1, 5)[4];
    cluster.feed(
        any,
        format!("PING\r\nSET {more} 1\r\nINFO keyspace\r\nPING\r\n").as_bytes(),
    );
    cluster.pump();
    let replies = String::from_utf8(cluster.take(any)).unwrap();
    assert!(
        replies.starts_with("+PONG\r\n+OK\r\n$") && replies.ends_with("\r\n+PONG\r\n"),
        "{replies}"
    );
    assert_eq!(keyspace(&replies), (8, 1, 0));
}

#[test]
fn info_answers_while_a_node_is_away_and_counts_its_keys_as_it_told_them_last() {
    let (mut cluster, client) = two();
    for key in keys(0, 2).iter().chain(&keys(1, 3)) {
        assert_eq!(cluster.ask(client, &format!("SET {key} 1")), "+OK\r\n");
    }
    assert_eq!(keyspace(&cluster.ask(client, "INFO keyspace")), (5, 0, 0));
    cluster.cut = true;
    cluster.feed(client, b"INFO keyspace\r\nPING\r\n");
    cluster.pump();
    assert_eq!(cluster.take(client), b"", "the other node may still answer");
    cluster.advance(250);
    let replies = String::from_utf8(cluster.take(client)).unwrap();
    assert!(replies.ends_with("+PONG\r\n"), "{replies}");
    assert_eq!(keyspace(&replies), (5, 0, 1));
    cluster.kill(1);
    assert_eq!(
        keyspace(&cluster.ask(client, "INFO keyspace")),
        (5, 0, 1),
        "at once: there is nobody to ask"
    );
}

#[test]
fn an_unanswered_write_is_uncertain_and_an_unanswered_read_is_asked_again() {
    let (mut cluster, client) = two();
    let there = &keys(1, 1)[0];
    let here = &keys(0, 1)[0];
    assert_eq!(cluster.ask(client, &format!("SET {there} 1")), "+OK\r\n");
    cluster.cut = true;
    let line = format!("INCR {there}\r\nGET {there}\r\nMSET {here} 1 {there} 2\r\nMGET {here} {there}\r\nPING\r\n");
    cluster.feed(client, line.as_bytes());
    cluster.pump();
    assert_eq!(cluster.take(client), b"");
    cluster.kill(1);
    let uncertain =
        "-UNCERTAIN The write may or may not have happened: its owner was lost before it was acknowledged\r\n";
    // GET is not asked again: it might see the MSET behind it. MSET's own part is uncertain too, and MGET is asked
    // again.
    let first = String::from_utf8(cluster.take(client)).unwrap();
    let get = first.strip_prefix(uncertain).unwrap();
    assert!(
        get.starts_with("-TRYAGAIN The owner of this key is being replaced"),
        "{first}"
    );
    assert!(get.ends_with(&format!("\r\n{uncertain}")), "{first}");
    // List 1 begins again without data, and node 0 owns it. The reads find no keys.
    cluster.cut = false;
    let taken = reset_to(&cluster.configurations[1], 0);
    cluster.configure(0, &taken);
    let rest = String::from_utf8(cluster.take(client)).unwrap();
    assert_eq!(rest, "*2\r\n$1\r\n1\r\n$-1\r\n+PONG\r\n");
    assert_eq!(cluster.ask(client, &format!("INCR {there}")), ":1\r\n");
}

#[test]
fn what_has_no_owner_waits_and_is_refused_after_two_leases_and_then_at_once() {
    let (mut cluster, client) = two();
    let there = &keys(1, 1)[0];
    cluster.kill(1);
    for (command, error) in [
        ("GET", "-TRYAGAIN The owner"),
        ("INCR", "-CLUSTERDOWN The cluster is down"),
    ] {
        let line = format!("{command} {there}\r\nPING\r\n");
        cluster.feed(client, line.as_bytes());
        cluster.pump();
        if command == "GET" {
            assert_eq!(cluster.take(client), b"");
            cluster.advance(8_000);
        }
        let answer = String::from_utf8(cluster.take(client)).unwrap();
        assert!(
            answer.starts_with(error) && answer.ends_with("\r\n+PONG\r\n"),
            "{answer}"
        );
    }
}

#[test]
fn a_command_that_finds_no_owner_goes_to_the_next_one_in_order() {
    let (mut cluster, client) = two();
    let there = &keys(1, 1)[0];
    // Node 0 has a newer configuration of list 1: node 1 is still the owner, with a later term. Node 1 lacks it.
    let newer = reset_to(&cluster.configurations[1], 1);
    cluster.configure(0, &newer);
    let line = format!("SET {there} 1\r\nINCR {there}\r\nGET {there}\r\n");
    cluster.feed(client, line.as_bytes());
    cluster.pump();
    // Node 1 requests the missing configuration, without a further event.
    assert_eq!(cluster.take(client), b"+OK\r\n:2\r\n$1\r\n2\r\n");
}

#[test]
fn a_command_too_large_for_one_slot_is_refused_before_anything_changes() {
    let (mut cluster, client) = two();
    let value = "x".repeat(60_000);
    let mset = |cluster: &mut Cluster, keys: &[String]| {
        let mut args = vec!["MSET"];
        keys.iter().for_each(|key| args.extend([key.as_str(), &value]));
        let mut request = Vec::new();
        paritas_wire::resp::encode::request(&mut request, &args);
        cluster.feed(client, &request);
        cluster.pump();
        String::from_utf8(cluster.take(client)).unwrap()
    };
    for node in 0..2 {
        let tag = &keys(node, 1)[0];
        let one_slot: Vec<String> = (0..3).map(|n| format!("{{{tag}}}{n}")).collect();
        assert_eq!(
            mset(&mut cluster, &one_slot),
            "-ERR command larger than 131072 bytes for one slot\r\n"
        );
    }
    assert_eq!(cluster.ask(client, "DBSIZE"), ":0\r\n");
    // With keys of several slots the command is split. Each part fits, at this node and at the other.
    let over_slots: Vec<String> = keys(0, 6).into_iter().chain(keys(1, 6)).collect();
    assert_eq!(mset(&mut cluster, &over_slots), "+OK\r\n");
    assert_eq!(cluster.ask(client, "DBSIZE"), ":12\r\n");
    assert_eq!(cluster.ask(client, &format!("DEL {}", over_slots.join(" "))), ":12\r\n");
}

#[test]
fn what_comes_back_unowned_runs_here_in_order() {
    let (mut cluster, client) = two();
    let there = &keys(1, 1)[0];
    let here = &keys(0, 1)[0];
    // Node 1 knows that node 0 owns list 1 now. Node 0 does not, and still forwards to node 1, which tells it.
    let newer = reset_to(&cluster.configurations[1], 0);
    cluster.configure(1, &newer);
    let line = format!(
        "SET {here} 7\r\nSET {there} 1\r\nINCR {there}\r\nGET {here}\r\nMGET {there} {here}\r\nGET {there}\r\nPING\r\n"
    );
    let told = Rc::new(Cell::new(0));
    let count = told.clone();
    cluster.tamper = Some(Box::new(move |from, _, _, message| {
        count.set(count.get() + i32::from(from == 1 && matches!(message, Message::Stale { .. })));
        None
    }));
    cluster.feed(client, line.as_bytes());
    cluster.pump();
    // Not once for each command.
    assert_eq!(told.get(), 1);
    cluster.advance(100);
    let answer = String::from_utf8(cluster.take(client)).unwrap();
    assert_eq!(
        answer,
        "+OK\r\n+OK\r\n:2\r\n$1\r\n7\r\n*2\r\n$1\r\n2\r\n$1\r\n7\r\n$1\r\n2\r\n+PONG\r\n"
    );
    assert_eq!(cluster.ask(client, &format!("INCR {there}")), ":3\r\n");
}

#[test]
fn many_unanswered_commands_hold_the_client_and_not_more() {
    let (mut cluster, client) = two();
    let there = &keys(1, 1)[0];
    cluster.ask(client, &format!("GET {there}"));
    cluster.cut = true;
    let mut input = format!("INCR {there}\r\n").repeat(20_000);
    input += "PING\r\n";
    cluster.feed(client, input.as_bytes());
    cluster.pump();
    assert_eq!(cluster.take(client), b"");
    cluster.cut = false;
    cluster.pump();
    cluster.advance(100);
    let answer = String::from_utf8(cluster.take(client)).unwrap();
    let expected: String = (1..=20_000).map(|n| format!(":{n}\r\n")).collect();
    assert!(answer == expected + "+PONG\r\n", "{} bytes", answer.len());
}

/// P8.3: a client is charged for the bytes that are held for it, not for the largest replies that may come.
#[test]
fn a_client_weighs_what_is_held_for_it() {
    let (mut cluster, client) = two();
    let there = keys(1, 500);
    let command = format!("MGET {}\r\n", there.join(" "));
    cluster.ask(client, &format!("GET {}", there[0]));
    cluster.cut = true;
    cluster.feed(client, command.as_bytes());
    cluster.pump();
    let bytes = cluster.elsewhere_bytes(client);
    assert!((command.len() - 2..2 * command.len()).contains(&bytes), "{bytes}");
    cluster.cut = false;
    cluster.advance(100);
    assert_eq!(cluster.take(client).len(), 6 + 500 * 5);
    assert!(cluster.elsewhere_bytes(client) < 1_000);
    // Partial replies that wait for the other node are charged too.
    let here = &keys(0, 1)[0];
    assert_eq!(
        cluster.ask(client, &format!("SET {here} {}", "v".repeat(50_000))),
        "+OK\r\n"
    );
    cluster.cut = true;
    cluster.feed(client, format!("MGET {here} {}\r\n", there[0]).as_bytes());
    cluster.pump();
    assert!((50_000..51_000).contains(&cluster.elsewhere_bytes(client)));
    cluster.cut = false;
    cluster.advance(100);
    assert!(cluster.take(client).ends_with(b"v\r\n$-1\r\n"));
    assert!(cluster.elsewhere_bytes(client) < 1_000);
    // Queue entries of later commands are charged too.
    cluster.cut = true;
    cluster.feed(
        client,
        format!("GET {}\r\n{}", there[0], "PING\r\n".repeat(1_000)).as_bytes(),
    );
    cluster.pump();
    let bytes = cluster.elsewhere_bytes(client);
    assert!((20_000..400_000).contains(&bytes), "{bytes}");
    cluster.cut = false;
    cluster.advance(100);
    assert_eq!(cluster.take(client).len(), 5 + 7 * 1_000);
    assert!(cluster.elsewhere_bytes(client) < 20_000);
}

/// No arguments of any command may crash a node or give a malformed reply.
#[test]
fn any_command_with_any_arguments_gets_one_reply() {
    use paritas_base::Prng;
    use paritas_wire::command::{Command, Command as C};
    use paritas_wire::resp::ReplyDecoder;
    const WORDS: [&str; 60] = [
        "k1",
        "k2",
        "k3",
        "{t}a",
        "{t}b",
        "",
        "0",
        "1",
        "-1",
        "10",
        "x",
        "1.5",
        "inf",
        "*",
        "EX",
        "PX",
        "EXAT",
        "PXAT",
        "NX",
        "XX",
        "GT",
        "LT",
        "GET",
        "KEEPTTL",
        "PERSIST",
        "MATCH",
        "COUNT",
        "TYPE",
        "REPLACE",
        "DB",
        "ASYNC",
        "SYNC",
        "9223372036854775807",
        "-9223372036854775808",
        "281474976710655",
        "65535",
        "65536",
        "4294967296",
        "ID",
        "ADDR",
        "SETNAME",
        "AUTH",
        "2",
        "3",
        "default",
        "lib-name",
        "on",
        "off",
        "all",
        "server",
        "save",
        "maxmemory",
        "string",
        "a\r\nb",
        "\0",
        "SAMPLES",
        "FILTERBY",
        "PATTERN",
        "[",
        "\\",
    ];
    for seed in 1..=40 {
        let mut random = Prng::new(seed);
        let mut cluster = Cluster::new(2);
        for _ in 0..300 {
            let port = if random.chance(300_000) {
                Port::Cluster
            } else {
                Port::Any
            };
            let client = cluster.connect(random.below(2) as usize, port);
            if random.chance(300_000) {
                cluster.ask(client, "HELLO 3");
            }
            let mut count = 0;
            let mut sent = Vec::new();
            for _ in 0..random.between(1, 8) {
                let spec = random.pick(Command::ALL).spec();
                if matches!(
                    spec.id,
                    C::Quit
                        | C::ClientKill
                        | C::ClientReply
                        | C::ClientPause
                        | C::ParitasStatus
                        | C::ParitasDuty
                        | C::ConfigRewrite
                ) {
                    continue;
                }
                let mut args: Vec<&str> = spec.name.split('|').collect();
                let wanted = usize::from(spec.arity.unsigned_abs());
                let more = if random.chance(500_000) { random.below(6) } else { 0 };
                while args.len() < wanted + more as usize {
                    args.push(WORDS[random.below(WORDS.len() as u64) as usize]);
                }
                paritas_wire::resp::encode::request(&mut sent, &args);
                count += 1;
            }
            cluster.feed(client, &sent);
            cluster.pump();
            let received = cluster.take(client);
            let mut rest = received.as_slice();
            let mut replies = 0;
            while !rest.is_empty() {
                let mut decoder = ReplyDecoder::default();
                let decoded = decoder.decode(rest);
                let Ok(Some((_, bytes))) = decoded else {
                    panic!(
                        "seed {seed}: {:?} to {:?}",
                        String::from_utf8_lossy(rest),
                        String::from_utf8_lossy(&sent)
                    );
                };
                rest = &rest[bytes..];
                replies += 1;
            }
            assert_eq!(replies, count, "seed {seed}: {:?}", String::from_utf8_lossy(&sent));
            if random.chance(100_000) {
                cluster.advance(1000);
            }
        }
    }
}

/// Sets `count` keys whose names begin with `prefix`.
fn set_many(cluster: &mut Cluster, client: Client, prefix: &str, count: usize) {
    for n in 0..count {
        cluster.feed(client, format!("SET {prefix}{n} {n}\r\n").as_bytes());
    }
    cluster.pump();
    assert_eq!(cluster.take(client), b"+OK\r\n".repeat(count));
}

/// The elements of a reply that is an array of strings, sorted.
fn words(reply: &str) -> Vec<String> {
    let mut words: Vec<String> = reply.split("\r\n").skip(2).step_by(2).map(str::to_owned).collect();
    words.sort();
    words
}

/// P10.2b: a walk over all keys is done in steps, so the length of a turn does not depend on the number of keys.
#[test]
fn all_keys_are_listed_in_steps_while_others_are_served() {
    let (mut cluster, client) = two();
    set_many(&mut cluster, client, "key:", 20_000);
    let others = [cluster.connect(0, Port::Any), cluster.connect(1, Port::Any)];
    cluster.feed(client, b"KEYS key:*\r\nPING\r\n");
    let (mut reply, mut turns) = (Vec::new(), 0);
    while reply.is_empty() {
        for other in others {
            cluster.feed(other, b"PING\r\n");
            cluster.turn(other.at);
            assert_eq!(cluster.take(other), b"+PONG\r\n");
        }
        reply = cluster.take(client);
        turns += 1;
        assert!(turns < 100, "it does not end");
    }
    assert!(turns >= 9, "{turns} turns for 10,000 keys a node");
    cluster.pump();
    reply.extend(cluster.take(client));
    let reply = String::from_utf8(reply).unwrap();
    let listed = reply.strip_suffix("+PONG\r\n").unwrap().to_owned();
    assert!(listed.starts_with("*20000\r\n"), "{}", &listed[..20]);
    let mut expected: Vec<String> = (0..20_000).map(|n| format!("key:{n}")).collect();
    expected.sort();
    assert_eq!(words(&listed), expected);
    assert_eq!(cluster.ask(client, "KEYS key:7"), "*1\r\n$5\r\nkey:7\r\n");
    assert_eq!(cluster.ask(client, "KEYS none"), "*0\r\n");
}

#[test]
fn keys_of_a_slot_are_found_among_all() {
    let (mut cluster, client) = two();
    set_many(&mut cluster, client, "key:", 5_000);
    // Each node owns at least one of these tags.
    for tag in ["a", "b", "c"] {
        set_many(&mut cluster, client, &format!("{{{tag}}}:"), 3_000);
        let slot = paritas_wire::command::slot(tag.as_bytes());
        let ask = |cluster: &mut Cluster, line: &str| cluster.ask(client, &line.replace("@", &slot.to_string()));
        let of_slot = |key: &String| paritas_wire::command::slot(key.as_bytes()) == slot;
        let mut expected: Vec<String> = (0..5_000).map(|n| format!("key:{n}")).filter(of_slot).collect();
        expected.extend((0..3_000).map(|n| format!("{{{tag}}}:{n}")));
        let count = format!(":{}\r\n", expected.len());
        assert_eq!(ask(&mut cluster, "CLUSTER COUNTKEYSINSLOT @"), count);
        expected.sort();
        assert_eq!(words(&ask(&mut cluster, "CLUSTER GETKEYSINSLOT @ 9999")), expected);
        let some = words(&ask(&mut cluster, "CLUSTER GETKEYSINSLOT @ 2999"));
        assert_eq!(some.len(), 2_999);
        assert!(some.iter().all(|key| expected.contains(key)));
        assert_eq!(ask(&mut cluster, "CLUSTER GETKEYSINSLOT @ 0"), "*0\r\n");
        for (count, error) in [
            ("-1", "-ERR Invalid number of keys\r\n"),
            ("x", "-ERR value is not an integer or out of range\r\n"),
        ] {
            assert_eq!(ask(&mut cluster, &format!("CLUSTER GETKEYSINSLOT @ {count}")), error);
        }
        // SCAN takes a slot as an option.
        let (mut cursor, mut seen) = ("0".to_owned(), Vec::new());
        loop {
            let reply = ask(&mut cluster, &format!("SCAN {cursor} SLOT @ COUNT 500"));
            let (head, keys) = reply.split_at(reply.find("\r\n*").unwrap() + 2);
            cursor = head.lines().nth(2).unwrap().to_owned();
            seen.extend(words(keys));
            if cursor == "0" {
                break;
            }
        }
        seen.sort();
        assert_eq!(seen, expected);
    }
    assert_eq!(
        cluster.ask(client, "SCAN 0 SLOT 16384"),
        "-ERR Invalid or out of range slot\r\n"
    );
}

/// The next configuration of a list, whose owner holds these slots.
fn holding(before: &Configuration, first: u16, last: u16) -> Configuration {
    following(before, |next| {
        let x = Position(0);
        let ranges = vec![SlotRange { first, last, x }];
        (next.slots.version, next.slots.ranges, next.slots.hand_off) = (1, ranges, None);
    })
}

/// P10.8: a key whose slot moves to another owner during the walk would be listed twice or not at all.
#[test]
fn a_walk_over_slots_that_move_is_refused() {
    let (mut cluster, client) = two();
    set_many(&mut cluster, client, "key:", 10_000);
    cluster.feed(client, b"KEYS *\r\n");
    for at in [0, 1, 0, 1] {
        cluster.turn(at);
    }
    assert_eq!(cluster.take(client), b"", "it is under way");
    // The last slot of node 0 moves to node 1.
    for (list, first, last) in [(0, 0, 8190), (1, 8191, 16383)] {
        let next = holding(&cluster.configurations[list], first, last);
        for at in [0, 1] {
            cluster.event(at, Event::Configuration(&next));
        }
        cluster.configurations[list] = next;
    }
    cluster.pump();
    let reply = String::from_utf8(cluster.take(client)).unwrap();
    assert_eq!(reply, "-TRYAGAIN Multiple keys request during rehashing of slot\r\n");
    let gone = (0..10_000).filter(|n| paritas_wire::command::slot(format!("key:{n}").as_bytes()) == 8191);
    let listed = cluster.ask(client, "KEYS *");
    assert_eq!(
        words(&listed).len(),
        10_000 - gone.count(),
        "what was not handed over is not there"
    );
}

/// Slots have moved, and the node that asks has an old configuration.
#[test]
fn a_step_by_an_old_map_is_asked_again_by_the_new_one() {
    let (mut cluster, client) = two();
    set_many(&mut cluster, client, "key:", 1_000);
    let next = holding(&cluster.configurations[1], 8191, 16383);
    cluster.configurations[1] = next.clone();
    cluster.configure(1, &next);
    // Node 1 refuses and sends node 0 the new configuration. By this one slots have moved, so the walk is refused.
    let reply = cluster.ask(client, "KEYS *");
    assert!(reply.is_empty() || reply.starts_with("-TRYAGAIN"), "{}", &reply[..20]);
    cluster.advance(20);
    let reply = reply + &String::from_utf8(cluster.take(client)).unwrap();
    assert!(reply.starts_with("-TRYAGAIN"), "{}", &reply[..20.min(reply.len())]);
    let listed = cluster.ask(client, "KEYS *");
    assert!(words(&listed).len() >= 999);
}

/// A walk waits while a slot is handed off, because the destination may already have changed its keys. A key that
/// expires at the source may have been copied before, and be alive at a destination whose clock is behind (simulator
/// seed 820622120).
#[test]
fn nobody_walks_over_slots_that_are_handed_off() {
    let (mut cluster, client) = two();
    let there = cluster.connect(1, Port::Any);
    set_many(&mut cluster, client, "key:", 100);
    let mortal = &keys(0, 1)[0];
    assert_eq!(cluster.ask(client, &format!("SET {mortal} v PX 50")), "+OK\r\n");
    let stream = |list| StreamId {
        list: ListId(list),
        x: Position(0),
    };
    let hand_off = HandOff {
        version: 1,
        first: 1,
        last: 8191,
        from: stream(0),
        to: stream(1),
    };
    for list in [0, 1] {
        let next = following(&cluster.configurations[list], |next| {
            next.slots.hand_off = Some(hand_off)
        });
        cluster.configurations[list] = next.clone();
        for at in [0, 1] {
            cluster.event(at, Event::Configuration(&next));
        }
    }
    let proposed = |cluster: &Cluster| {
        let proposals = cluster.processes[0].out.proposals.iter();
        proposals
            .clone()
            .any(|p| matches!(p, Proposal::HandOff { last: Some(8191), .. }))
    };
    for _ in 0..20 {
        cluster.advance(1);
    }
    assert!(proposed(&cluster), "all is there, and the map may change");
    cluster.advance(100);
    for client in [client, there] {
        cluster.feed(client, b"KEYS *\r\n");
    }
    cluster.advance(50);
    for client in [client, there] {
        assert_eq!(cluster.take(client), b"", "the walk must not show the key as expired");
    }
    // The clock of node 1 is 10 s behind.
    cluster.now.wall_ms -= 10_000;
    for (list, first, last) in [(0, 0, 0), (1, 1, 16383)] {
        let next = holding(&cluster.configurations[list], first, last);
        cluster.configurations[list] = next.clone();
        for at in [0, 1] {
            cluster.event(at, Event::Configuration(&next));
        }
    }
    for client in [client, there] {
        let mut reply = cluster.take(client);
        for _ in 0..100 {
            if !reply.is_empty() {
                break;
            }
            cluster.advance(10);
            reply = cluster.take(client);
        }
        let reply = String::from_utf8(reply).unwrap();
        let is_one = reply.starts_with("*101\r\n") || reply.starts_with("-TRYAGAIN");
        assert!(is_one, "{reply}");
        assert_eq!(words(&cluster.ask(client, "KEYS *")).len(), 101);
        assert_eq!(cluster.ask(client, &format!("GET {mortal}")), "$1\r\nv\r\n");
    }
}

/// Slots move between lists. The node that asks learns first of the source's new configuration.
#[test]
fn a_walk_waits_for_who_holds_slots_now() {
    let mut cluster = Cluster::new(3);
    let client = cluster.connect(0, Port::Any);
    set_many(&mut cluster, client, "key:", 1_000);
    // Node 1 keeps one slot and loses the others to node 2. Node 2 does not know it yet.
    let (first, last) = (5_461, 10_921);
    let losing = holding(&cluster.configurations[1], first, first);
    cluster.configurations[1] = losing.clone();
    cluster.configure(1, &losing);
    cluster.feed(client, b"KEYS *\r\n");
    cluster.advance(500);
    let reply = String::from_utf8(cluster.take(client)).unwrap();
    assert!(reply.starts_with("-TRYAGAIN"), "{}", &reply[..20.min(reply.len())]);
    assert_eq!(cluster.ask(client, "RANDOMKEY"), "", "somebody has those keys");
    cluster.advance(10_000);
    let reply = cluster.take(client);
    assert!(reply.starts_with(b"-TRYAGAIN"), "{}", String::from_utf8_lossy(&reply));
    cluster.feed(client, b"KEYS *\r\nCLUSTER COUNTKEYSINSLOT 10000\r\n");
    cluster.advance(50);
    assert_eq!(cluster.take(client), b"", "somebody has those keys");
    let gaining = holding(&cluster.configurations[2], first + 1, 16_383);
    cluster.configurations[2] = gaining.clone();
    for at in [0, 2, 1] {
        cluster.configure(at, &gaining);
    }
    cluster.advance(50);
    let reply = String::from_utf8(cluster.take(client)).unwrap();
    let moved = (0..1_000).filter(|n| {
        let slot = paritas_wire::command::slot(format!("key:{n}").as_bytes());
        (first + 1..=last).contains(&slot)
    });
    // This test moves slots without their keys, so those keys are gone.
    let left = 1_000 - moved.count();
    assert!(
        reply.starts_with(&format!("*{left}\r\n")),
        "{}",
        &reply[..20.min(reply.len())]
    );
    assert!(reply.ends_with("\r\n:0\r\n"));
}

/// An owner is replaced during the walk. The walk continues at its successor and misses no key.
#[test]
fn a_walk_goes_on_at_the_next_owner() {
    let mut cluster = Cluster::coded(1, 1, 2, 1, paritas_protocol::Parameters::default());
    let client = cluster.connect(0, Port::Any);
    set_many(&mut cluster, client, "key:", 6_000);
    cluster.feed(client, b"KEYS *\r\n");
    for at in [0, 1, 0, 1] {
        cluster.turn(at);
    }
    assert_eq!(cluster.take(client), b"", "it is under way");
    let owner = cluster.configurations[1].tenure(Position(0)).unwrap().node.0;
    assert_eq!(owner, 1);
    cluster.hand_over(1, 0, 2);
    let mut reply = cluster.take(client);
    for _ in 0..300 {
        if !reply.is_empty() {
            break;
        }
        cluster.advance(10);
        reply = cluster.take(client);
    }
    let reply = String::from_utf8(reply).unwrap();
    assert!(reply.starts_with("*6000\r\n"), "{}", &reply[..40.min(reply.len())]);
    let listed = words(&reply);
    assert!(listed.is_sorted() && listed.windows(2).all(|two| two[0] != two[1]));
}

/// P8.3: a walk that only counts keys keeps none of them, so the client is not charged for them.
#[test]
fn a_walk_that_counts_weighs_what_one_step_has() {
    let (mut cluster, client) = two();
    let there = keys(1, 1).remove(0);
    set_many(
        &mut cluster,
        client,
        &format!("{{{there}}}a-key-of-some-length:"),
        20_000,
    );
    let slot = paritas_wire::command::slot(there.as_bytes());
    cluster.feed(client, format!("CLUSTER COUNTKEYSINSLOT {slot}\r\n").as_bytes());
    let mut weights = Vec::new();
    let reply = loop {
        for at in [0, 1] {
            cluster.turn(at);
        }
        let reply = cluster.take(client);
        if !reply.is_empty() {
            break reply;
        }
        weights.push(cluster.elsewhere_bytes(client));
        assert!(weights.len() < 1_000);
    };
    assert_eq!(reply, b":20000\r\n");
    let most = weights.iter().max().unwrap();
    assert!(weights.len() > 10 && *most < 100_000, "{weights:?}");
}
