use super::*;
use paritas_wire::resp::{ReplyDecoder, encode};

fn at(seconds: u64) -> Time {
    Time(0) + Span::from_secs(seconds)
}

/// A reply to CLUSTER SLOTS with these ranges.
fn map(ranges: &[(i64, i64, &str, i64)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode::array_header(&mut bytes, ranges.len());
    for (first, last, host, port) in ranges {
        encode::array_header(&mut bytes, 3);
        encode::integer(&mut bytes, *first);
        encode::integer(&mut bytes, *last);
        encode::array_header(&mut bytes, 4);
        encode::bulk(&mut bytes, host.as_bytes());
        encode::integer(&mut bytes, *port);
        let is_long = *host == "long-name";
        encode::bulk(&mut bytes, &vec![b'0'; if is_long { ID_BYTES_MAX + 1 } else { 40 }]);
        encode::array_header(&mut bytes, 0);
    }
    bytes
}

fn tell(owners: &mut Owners, now: Time, reply: &[u8]) {
    let (reply, used) = ReplyDecoder::new().decode(reply).expect("a reply").expect("all of it");
    assert!(used > 0);
    owners.on_map(now, &reply);
}

fn told() -> Owners {
    let mut owners = Owners::new();
    tell(&mut owners, at(1), &map(&[(0, 99, "a", 1), (100, 16_383, "b", 2)]));
    owners
}

#[test]
fn each_slot_of_a_map_has_its_owner() {
    let owners = told();
    let of = [0, 99, 100, 16_383].map(|slot| owners.of(slot));
    assert_eq!(of, [Some("a:1"), Some("a:1"), Some("b:2"), Some("b:2")]);
    assert_eq!(owners.of(16_384), None);
    let mut owners = told();
    tell(&mut owners, at(2), &map(&[(5, 5, "::1", 7)]));
    assert_eq!((owners.of(4), owners.of(5)), (None, Some("[::1]:7")));
}

#[test]
fn what_is_not_a_map_changes_nothing() {
    let long = "x".repeat(NAME_BYTES_MAX);
    let many = vec![(0, 16_383, "c", 3); 16_384];
    let mut wrong: Vec<Vec<u8>> = [
        "-ERR unknown command\r\n",
        "$-1\r\n",
        ":7\r\n",
        "+OK\r\n",
        "*1\r\n:7\r\n",
        "*1\r\n*0\r\n",
        "*1\r\n*2\r\n:0\r\n:9\r\n",
        "*1\r\n*3\r\n:0\r\n:9\r\n*0\r\n",
        "*1\r\n*3\r\n:0\r\n:9\r\n*2\r\n$-1\r\n:7\r\n",
        "*1\r\n*3\r\n:0\r\n:9\r\n*2\r\n$1\r\n\u{1}\r\n$1\r\n7\r\n",
        "*1\r\n*3\r\n:0\r\n:9\r\n*2\r\n$1\r\nc\r\n:7\r\n",
        "*1\r\n*3\r\n:0\r\n:9\r\n*3\r\n$1\r\nc\r\n:7\r\n$-1\r\n",
        "*1\r\n*3\r\n$1\r\n0\r\n:9\r\n*2\r\n$1\r\nc\r\n:7\r\n",
    ]
    .iter()
    .map(|text| text.as_bytes().to_vec())
    .collect();
    wrong.push(b"*1\r\n*3\r\n:0\r\n:9\r\n*2\r\n$1\r\n\xff\r\n:7\r\n".to_vec());
    for ranges in [
        &[(-1, 9, "c", 3)][..],
        &[(9, 8, "c", 3)],
        &[(0, 16_384, "c", 3)],
        &[(0, i64::MAX, "c", 3)],
        &[(i64::MIN, i64::MAX, "c", 3)],
        &[(0, 9, "", 3)],
        &[(0, 9, "c", 0)],
        &[(0, 9, "c", -1)],
        &[(0, 9, "c", 65_536)],
        &[(0, 9, &long, 3)],
        &[(0, 9, "long-name", 3)],
        // One of them is right.
        &[(0, 9, "c", 3), (10, 9, "c", 3)],
        // Slots with two owners.
        &[(0, 16_383, "c", 3), (0, 0, "c", 3)],
        &many,
    ] {
        wrong.push(map(ranges));
    }
    for reply in wrong {
        let mut owners = told();
        tell(&mut owners, at(2), &reply);
        let shown = String::from_utf8_lossy(&reply[..reply.len().min(80)]).into_owned();
        assert_eq!((owners.of(0), owners.of(100)), (Some("a:1"), Some("b:2")), "{shown}");
    }
}

#[test]
fn a_bounded_number_of_addresses_is_remembered() {
    let mut owners = told();
    for round in 0..3 {
        let hosts: Vec<String> = (0..16_384).map(|slot| format!("h{round}-{slot}")).collect();
        let ranges: Vec<_> = (0..)
            .zip(&hosts)
            .map(|(slot, host)| (slot, slot, host.as_str(), 1))
            .collect();
        let reply = map(&ranges);
        assert!(reply.len() < MAP_BYTES_MAX);
        tell(&mut owners, at(2 + round), &reply);
        assert_eq!(owners.of(3), Some(format!("h{round}-3:1").as_str()));
        assert!(owners.names.len() <= NAMES_MAX);
        assert_eq!(owners.of(16_383), None);
    }
    for n in 0..3_000 {
        owners.on_moved(9_000, "x:1", Some(&format!("m{n}:1")));
        owners.forget(&format!("m{n}:1"));
        assert!(owners.names.len() <= NAMES_MAX);
    }
}

#[test]
fn a_slot_is_learned_once_and_then_its_commands_go_home() {
    let mut owners = told();
    owners.on_moved(7, "a:1", Some("c:3"));
    assert_eq!((owners.of(7), owners.of(8)), (Some("c:3"), Some("a:1")));
    // Another command was on its way.
    owners.on_moved(7, "a:1", Some("d:4"));
    assert_eq!(owners.of(7), Some("c:3"));
    // A fresh map that names the old one again: a rule gives some key another slot.
    tell(&mut owners, at(2), &map(&[(0, 99, "a", 1), (100, 16_383, "b", 2)]));
    assert_eq!(owners.of(7), Some("c:3"));
    owners.on_moved(7, "c:3", Some("a:1"));
    assert_eq!(owners.of(7), None);
    owners.on_moved(7, "home:1", Some("c:3"));
    assert_eq!(owners.of(7), None);
    tell(&mut owners, at(3), &map(&[(0, 99, "a", 1), (100, 16_383, "b", 2)]));
    assert_eq!(owners.of(7), None);
    // A map that names another one, or a minute, begins anew.
    tell(&mut owners, at(4), &map(&[(0, 99, "d", 4), (100, 16_383, "b", 2)]));
    assert_eq!(owners.of(7), Some("d:4"));
    owners.on_moved(7, "d:4", None);
    assert_eq!(owners.of(7), None);
    tell(&mut owners, at(70), &map(&[(0, 99, "d", 4), (100, 16_383, "b", 2)]));
    assert_eq!(owners.of(7), Some("d:4"));
}

#[test]
fn a_node_that_names_nobody_for_a_slot_teaches_nothing() {
    let mut owners = Owners::new();
    owners.on_moved(7, "home:1", None);
    owners.on_moved(7, "home:1", Some("c:3"));
    assert_eq!(owners.of(7), Some("c:3"));
}

#[test]
fn an_owner_that_is_forgotten_has_no_slots_until_a_map_names_it() {
    let mut owners = told();
    owners.on_moved(100, "b:2", Some("a:1"));
    assert!(owners.forget("a:1"));
    assert_eq!(
        (owners.of(7), owners.of(100), owners.of(101)),
        (None, Some("b:2"), Some("b:2"))
    );
    assert!(!owners.forget("a:1"), "it owns nothing");
    assert!(!owners.forget("z:1"));
    tell(&mut owners, at(2), &map(&[(0, 99, "a", 1)]));
    assert_eq!(owners.of(7), Some("a:1"));
}

#[test]
fn the_map_is_asked_for_at_most_once_a_second_and_less_often_if_it_tells_nothing_new() {
    let mut owners = Owners::new();
    let ms = |ms: u64| Time(0) + Span::from_ms(ms);
    let asked = |owners: &mut Owners, from: u64, to: u64| (from..to).filter(|at| owners.may_ask(ms(*at))).count();
    assert_eq!(asked(&mut owners, 0, 120_000), 6, "at 0, 2, 6, 14, 30 and 62 s");
    owners.on_moved(7, "home:1", Some("c:3"));
    assert_eq!(asked(&mut owners, 120_000, 120_010), 1, "there is something new");
    owners.forget("c:3");
    assert_eq!(asked(&mut owners, 120_010, 121_000), 0);
    assert_eq!(asked(&mut owners, 121_000, 121_001), 1);
}
