//! The port of memcached. Replies are compared with those recorded from memcached 1.6.18 (`memcached-replies.txt`).

use crate::commands::unescape;
use paritas_protocol::{Parameters, Port};
use paritas_testbed::{Client, Cluster};

fn ask(cluster: &mut Cluster, client: Client, bytes: &[u8]) -> Vec<u8> {
    cluster.feed(client, bytes);
    cluster.pump();
    cluster.take(client)
}

fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = bytes;
    while let Some(at) = rest.windows(from.len()).position(|window| window == from) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(to);
        rest = &rest[at + from.len()..];
    }
    out.extend_from_slice(rest);
    out
}

/// The number for `cas` in an answer, if it has one.
fn cas_of(reply: &[u8]) -> Option<Vec<u8>> {
    let text = String::from_utf8_lossy(reply).into_owned();
    let mut number = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["VALUE", _, _, _, cas] => Some((*cas).to_owned()),
            ["HD" | "VA", flags @ ..] => {
                let cas = flags.iter().find_map(|flag| flag.strip_prefix('c'));
                cas.filter(|cas| cas.parse::<u64>().is_ok()).map(str::to_owned)
            }
            _ => None,
        }
    });
    number.next_back().map(String::into_bytes)
}

/// As `redis-replies.txt`, but each command is a line, and perhaps a block of data, with escapes; see the recorder.
/// `nodes`: how many there are, so that keys are at other nodes too.
fn compare(nodes: usize) {
    let mut cluster = Cluster::new(nodes);
    let client = cluster.connect(0, Port::Memcached);
    let (key, mut cas) = ("k".repeat(250), Vec::new());
    let (mut command, mut got) = ("", Vec::new());
    let mut wrong = Vec::new();
    for line in include_str!("memcached-replies.txt").lines() {
        if let Some(next) = line.strip_prefix("> ") {
            command = next;
            let mut bytes = replaced(&unescape(next), b"{cas}", &cas);
            bytes = replaced(&bytes, b"{key}", key.as_bytes());
            bytes = replaced(&bytes, b"{long}", format!("{key}k").as_bytes());
            bytes.extend_from_slice(b"\r\n");
            got = ask(&mut cluster, client, &bytes);
        } else if let Some(expected) = line.strip_prefix("<") {
            let expected = expected.strip_prefix(" ").unwrap_or(expected);
            let expected = unescape(expected);
            if let Some(now) = cas_of(&got) {
                got = replaced(&got, &now, b"{cas}");
                cas = now;
            }
            let got = replaced(&got, key.as_bytes(), b"{key}");
            if got != expected {
                let [got, expected] = [&got, &expected].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
                wrong.push(format!("{command}\n  expected {expected:?}\n  got      {got:?}"));
            }
        } else if let Some(ms) = line.strip_prefix("= ") {
            cluster.advance(ms.parse().unwrap());
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Each number for `cas` in an answer becomes `{cas n}`: it is the one that was told as number n.
fn named(reply: &[u8], told: &mut Vec<Vec<u8>>) -> Vec<u8> {
    let Some(cas) = cas_of(reply) else {
        return reply.to_vec();
    };
    let known = told.iter().position(|known| *known == cas);
    let n = known.unwrap_or_else(|| {
        told.push(cas.clone());
        told.len() - 1
    });
    replaced(reply, &cas, format!("{{cas {n}}}").as_bytes())
}

/// Random commands about stale items, as the recorder made them. Its numbers for `cas` are others, but which of them
/// are the same is equal.
fn compare_random(nodes: usize) {
    let mut cluster = Cluster::new(nodes);
    let client = cluster.connect(0, Port::Memcached);
    let (mut told, mut command, mut got) = (Vec::<Vec<u8>>::new(), "", Vec::new());
    let mut wrong = Vec::new();
    for (at, line) in include_str!("memcached-random-replies.txt").lines().enumerate() {
        if let Some(next) = line.strip_prefix("> ") {
            command = next;
            let mut bytes = unescape(next);
            if let Some((_, rest)) = next.split_once("{cas ") {
                let n = rest.split_once('}').unwrap().0;
                let cas = told.get(n.parse::<usize>().unwrap()).cloned().unwrap_or_default();
                bytes = replaced(&bytes, format!("{{cas {n}}}").as_bytes(), &cas);
            }
            bytes.extend_from_slice(b"\r\n");
            got = named(&ask(&mut cluster, client, &bytes), &mut told);
        } else if let Some(expected) = line.strip_prefix("<") {
            let expected = unescape(expected.strip_prefix(" ").unwrap_or(expected));
            let [got, expected] = [&got, &expected].map(|bytes| String::from_utf8_lossy(bytes));
            if got != expected {
                let line = at + 1;
                wrong.push(format!(
                    "line {line}: {command}\n  expected {expected:?}\n  got      {got:?}"
                ));
            }
        } else if let Some(ms) = line.strip_prefix("= ") {
            cluster.advance(ms.parse().unwrap());
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(5)].join("\n")
    );
    assert!(told.len() > 300, "{}", told.len());
}

#[test]
fn replies_to_random_commands_about_stale_items_are_those_of_memcached() {
    compare_random(1);
}

#[test]
fn replies_about_stale_items_are_those_of_memcached_if_keys_are_at_other_nodes() {
    compare_random(6);
}

#[test]
fn replies_are_those_of_memcached() {
    compare(1);
}

#[test]
fn replies_are_those_of_memcached_if_keys_are_at_other_nodes() {
    compare(6);
}

/// memcached 1.6.18 takes the flag, but does not do so yet.
#[test]
fn an_item_is_made_by_an_append_that_says_so() {
    let mut cluster = Cluster::new(6);
    let client = cluster.connect(0, Port::Memcached);
    for mode in ["MA", "MP"] {
        for key in 0..20 {
            let name = format!("{mode}{key}");
            let mut set = |flags: &str, data: &str| {
                let line = format!("ms {name} {} {flags}\r\n{data}\r\n", data.len());
                String::from_utf8(ask(&mut cluster, client, line.as_bytes())).unwrap()
            };
            assert_eq!(set(mode, "0"), "NS\r\n");
            assert_eq!(set(&format!("{mode} N100 F7"), "1"), "HD\r\n");
            // The expiry and the flags are those of the item that was made.
            assert_eq!(set(&format!("{mode} N500 F9"), "2"), "HD\r\n");
            assert_eq!(
                set(&format!("{mode} Nx"), "3"),
                "CLIENT_ERROR bad token in command line format\r\n"
            );
            assert_eq!(set("ME N100", "4"), "NS\r\n");
            let data = if mode == "MA" { "12" } else { "21" };
            let got = ask(&mut cluster, client, format!("mg {name} t f v\r\n").as_bytes());
            assert_eq!(String::from_utf8(got).unwrap(), format!("VA 2 t100 f7\r\n{data}\r\n"));
        }
    }
}

/// The answer to a line, as text, once it is there. The line has only one, or all come together.
fn say(cluster: &mut Cluster, client: Client, line: &str) -> String {
    let mut answer = ask(cluster, client, format!("{line}\r\n").as_bytes());
    for _ in 0..500 {
        if !answer.is_empty() {
            break;
        }
        cluster.advance(10);
        answer = cluster.take(client);
    }
    String::from_utf8(answer).unwrap()
}

#[test]
fn a_stale_item_is_a_value_for_redis_and_a_write_of_redis_makes_it_fresh() {
    let mut cluster = Cluster::new(6);
    let lines = cluster.connect(0, Port::Memcached);
    let redis = cluster.connect(1, Port::Any);
    let writes = [
        "SET {k} 5",
        "GETSET {k} 5",
        "INCR {k}",
        "APPEND {k} 5",
        "SETRANGE {k} 1 5",
        "SETBIT {k} 1 1",
        "DEL {k}",
        "MSET {k} 5",
        "SET {k} 5 KEEPTTL",
    ];
    for (n, write) in writes.into_iter().enumerate() {
        let key = format!("k{n}");
        assert_eq!(say(&mut cluster, lines, &format!("ms {key} 2 F9\r\n12")), "HD\r\n");
        assert_eq!(say(&mut cluster, lines, &format!("md {key} I")), "HD\r\n");
        assert_eq!(say(&mut cluster, redis, &format!("GET {key}")), "$2\r\n12\r\n");
        assert_eq!(say(&mut cluster, redis, &format!("STRLEN {key}")), ":2\r\n");
        assert_eq!(say(&mut cluster, redis, &format!("TYPE {key}")), "+string\r\n");
        assert_eq!(say(&mut cluster, redis, &format!("EXPIRE {key} 100")), ":1\r\n");
        assert_eq!(say(&mut cluster, lines, &format!("mg {key} t f")), "HD t100 f9 X W\r\n");
        assert_eq!(say(&mut cluster, redis, &format!("PERSIST {key}")), ":1\r\n");
        let transaction = format!("MULTI\r\nEXPIRE {key} 50\r\nGET {key}\r\nEXEC");
        let reply = say(&mut cluster, redis, &transaction);
        assert_eq!(reply, "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:1\r\n$2\r\n12\r\n");
        assert_eq!(say(&mut cluster, lines, &format!("mg {key} t")), "HD t50 Z X\r\n");
        let reply = say(&mut cluster, redis, &write.replace("{k}", &key));
        assert!(!reply.starts_with('-'), "{write}: {reply}");
        let fresh = if write.starts_with("DEL") { "EN\r\n" } else { "HD\r\n" };
        assert_eq!(say(&mut cluster, lines, &format!("mg {key}")), fresh, "{write}");
    }
}

#[test]
fn marks_go_with_a_key_to_another_name_database_and_owner() {
    let mut cluster = Cluster::new(6);
    let lines = cluster.connect(0, Port::Memcached);
    let redis = cluster.connect(1, Port::Any);
    let copies = ["{old}copy", "elsewhere", "faraway"];
    for (n, flags) in ["", " F9"].into_iter().enumerate() {
        let old = format!("{{old}}{n}");
        say(&mut cluster, lines, &format!("ms {old} 2{flags}\r\nv1"));
        say(&mut cluster, lines, &format!("md {old} I"));
        let said_of_flags = if flags.is_empty() { "f0" } else { "f9" };
        for copy in copies {
            let copy = format!("{copy}{n}");
            let reply = say(&mut cluster, redis, &format!("COPY {old} {copy}"));
            assert_eq!(reply, ":1\r\n", "{copy}");
            let expected = format!("VA 2 {said_of_flags} t-1 X W\r\nv1\r\n");
            assert_eq!(
                say(&mut cluster, lines, &format!("mg {copy} f t v")),
                expected,
                "{copy}"
            );
            let renamed = format!("renamed-{copy}");
            assert_eq!(say(&mut cluster, redis, &format!("RENAME {copy} {renamed}")), "+OK\r\n");
            let reply = say(&mut cluster, lines, &format!("mg {renamed} f"));
            assert_eq!(reply, format!("HD {said_of_flags} Z X\r\n"));
        }
        assert_eq!(say(&mut cluster, redis, &format!("MOVE {old} 3")), ":1\r\n");
        assert_eq!(say(&mut cluster, lines, &format!("mg {old}")), "EN\r\n");
        say(&mut cluster, redis, &format!("SELECT 3\r\nMOVE {old} 0\r\nSELECT 0"));
        assert_eq!(say(&mut cluster, lines, &format!("mg {old} s")), "HD s2 X W\r\n");
    }
}

#[test]
fn large_items_have_marks_too() {
    for node in [0, 3] {
        let mut cluster = Cluster::coded_in(64 << 20, 2, 1, 1, 1, Parameters::default());
        let client = cluster.connect(node, Port::Memcached);
        let (old, new) = ("o".repeat(100_000), "n".repeat(150_000));
        for key in ["a", "b", "c", "d"] {
            let set = format!("ms {key} 100000 T100 F7 c\r\n{old}");
            let cas = say(&mut cluster, client, &set).trim()["HD c".len()..].to_owned();
            assert_eq!(say(&mut cluster, client, &format!("md {key} I")), "HD\r\n");
            let expected = format!("VA 100000 f7 X W\r\n{old}\r\n");
            assert_eq!(say(&mut cluster, client, &format!("mg {key} v f")), expected);
            let expected = format!("VA 100000 t50 Z X\r\n{old}\r\n");
            assert_eq!(say(&mut cluster, client, &format!("mg {key} v T50 t")), expected);
            let late = format!("ms {key} 150000 C{cas} I T9 F8\r\n{new}");
            assert_eq!(say(&mut cluster, client, &late), "HD\r\n");
            assert_eq!(say(&mut cluster, client, &format!("ms {key} 1 C{cas}\r\nx")), "EX\r\n");
            let expected = format!("VA 150000 t50 f8 Z X\r\n{new}\r\n");
            assert_eq!(say(&mut cluster, client, &format!("mg {key} v t f")), expected);
            let set = format!("ms {key} 100000\r\n{old}");
            assert_eq!(say(&mut cluster, client, &set), "HD\r\n");
            assert_eq!(say(&mut cluster, client, &format!("mg {key} s")), "HD s100000\r\n");
        }
    }
}

#[test]
fn marks_are_there_after_the_owner_is_lost_and_nobody_wins_twice() {
    let mut cluster = Cluster::coded_in(64 << 20, 2, 1, 1, 1, Parameters::default());
    let client = cluster.connect(3, Port::Memcached);
    for n in 0..20 {
        assert_eq!(say(&mut cluster, client, &format!("ms k{n} 2\r\nv1")), "HD\r\n");
        assert_eq!(say(&mut cluster, client, &format!("md k{n} I")), "HD\r\n");
        if n % 2 == 0 {
            assert_eq!(say(&mut cluster, client, &format!("mg k{n} v")), "VA 2 X W\r\nv1\r\n");
        }
    }
    cluster.kill(0);
    cluster.hand_over(0, 0, 3);
    cluster.advance(1000);
    for n in 0..20 {
        let first = if n % 2 == 0 { "Z X" } else { "X W" };
        for marks in [first, "Z X"] {
            let reply = say(&mut cluster, client, &format!("mg k{n} v"));
            assert_eq!(reply, format!("VA 2 {marks}\r\nv1\r\n"), "k{n}");
        }
    }
}

#[test]
fn figures_are_told_under_the_names_of_memcached() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0, Port::Memcached);
    ask(&mut cluster, client, b"set a 0 0 1\r\nx\r\nget a\r\nget b\r\n");
    let text = String::from_utf8(ask(&mut cluster, client, b"stats\r\n")).unwrap();
    for line in [
        "STAT get_hits 1\r\n",
        "STAT get_misses 1\r\n",
        "STAT curr_items 1\r\n",
        "STAT version 1.6.18\r\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
    assert!(text.ends_with("\r\nEND\r\n"));
    let text = String::from_utf8(ask(&mut cluster, client, b"stats settings\r\n")).unwrap();
    assert!(text.contains("STAT item_size_max 1048575\r\n"), "{text}");
}

#[test]
fn a_client_of_the_binary_protocol_is_told_in_that_protocol_to_use_another() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0, Port::Memcached);
    let mut version = [0; 24];
    version[..2].copy_from_slice(&[0x80, 0x0b]);
    version[12..16].copy_from_slice(b"mine");
    assert_eq!(ask(&mut cluster, client, &version[..10]), b"");
    let reply = ask(&mut cluster, client, &version[10..]);
    let (header, text) = reply.split_at(24);
    assert_eq!(&header[..8], [0x81, 0x0b, 0, 0, 0, 0, 0, 0x83], "not supported");
    assert_eq!(&header[12..16], b"mine");
    assert_eq!(header[8..12], (text.len() as u32).to_be_bytes());
    assert!(text.ends_with(b"set the client to its text or meta protocol"));
    assert!(cluster.is_closed(client));
}
