//! The port of memcached. Replies are compared with those recorded from memcached 1.6.18 (`memcached-replies.txt`).

use crate::commands::unescape;
use paritas_protocol::Port;
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
