//! What a node keeps of a position that it lost (P2.4, P5.7f, P5.11, P5.12, P6.7). In most tests no chunk can be
//! decoded, so that whatever comes back came out of a stash.

use paritas_base::configuration::{Assignment, Configuration, PositionState};
use paritas_base::{ListId, Position, Span};
use paritas_protocol::{Parameters, Port};
use paritas_testbed::{Client, Cluster};
use paritas_wire::peer::{self, ChunkStatus, Message};
use std::cell::Cell;
use std::rc::Rc;

const KEYS: usize = 300;
const VALUE_BYTES: usize = 1000;

/// `2+1` on nodes 0 to 2, and a spare, with keys; the client's is node 2, which has the parity.
fn filled(parameters: Parameters) -> (Cluster, Client) {
    let mut cluster = Cluster::coded(2, 1, 1, 1, parameters);
    let client = cluster.connect(2, Port::Any);
    for n in 0..KEYS {
        let value = "x".repeat(VALUE_BYTES);
        assert_eq!(cluster.ask(client, &format!("SET key{n} {value}{n}")), "+OK\r\n");
    }
    (cluster, client)
}

/// Keys of the position that can be read, and those that cannot.
fn read(cluster: &mut Cluster, client: Client) -> (usize, usize) {
    let (mut there, mut missing) = (0, 0);
    for n in 0..KEYS {
        cluster.feed(client, format!("GET key{n}\r\n").as_bytes());
        cluster.advance(20);
        let reply = String::from_utf8(cluster.take(client)).unwrap();
        if reply.ends_with(&format!("x{n}\r\n")) {
            there += 1;
        } else {
            assert!(reply.is_empty() || reply.starts_with("-TRYAGAIN"), "key{n}: {reply}");
            missing += 1;
        }
    }
    (there, missing)
}

fn stash_bytes(cluster: &Cluster, node: usize) -> u64 {
    cluster.processes[node].node.figures().stash_bytes
}

fn absent(cluster: &Cluster, node: usize) -> Option<u32> {
    let list = cluster.processes[node].node.replica().list(ListId(0))?;
    Some(list.owner(Position(0))?.store().chunks().absent_count())
}

/// No chunk of position 0 can be decoded any more: neither data nor parity is told to anybody.
fn nothing_is_decoded(cluster: &mut Cluster) {
    cluster.tamper = Some(Box::new(|_, _, header, message| match message {
        Message::ParityValue { id, stripe, .. } => {
            let mut bytes = Vec::new();
            let none = Message::ParityValue {
                id: *id,
                stripe: *stripe,
                parity: None,
            };
            peer::encode(&mut bytes, header, &none);
            Some(bytes)
        }
        _ => None,
    }));
}

#[test]
fn a_position_that_comes_back_finds_its_chunks() {
    let (mut cluster, client) = filled(Parameters::default());
    cluster.hand_over(0, 0, 3);
    cluster.advance(1_000);
    assert_eq!(absent(&cluster, 3), Some(0));
    let kept = stash_bytes(&cluster, 0);
    assert!(kept > 9 * 16_384, "{kept}");
    nothing_is_decoded(&mut cluster);
    cluster.hand_over(0, 0, 0);
    cluster.advance(1_000);
    assert_eq!(absent(&cluster, 0), Some(0));
    assert_eq!(stash_bytes(&cluster, 0), 0, "it is the chunks now");
    assert_eq!(read(&mut cluster, client), (KEYS, 0));
}

#[test]
fn what_was_written_meanwhile_is_not_taken_from_the_stash() {
    let (mut cluster, client) = filled(Parameters::default());
    cluster.hand_over(0, 0, 3);
    cluster.advance(1_000);
    for n in (0..KEYS).step_by(10) {
        let value = "y".repeat(VALUE_BYTES);
        assert_eq!(cluster.ask(client, &format!("SET key{n} {value}{n}")), "+OK\r\n");
    }
    cluster.hand_over(0, 0, 0);
    cluster.advance(1_000);
    cluster.hand_over(0, 0, 3);
    cluster.advance(1_000);
    for n in 0..KEYS {
        let value = if n % 10 == 0 { "y" } else { "x" }.repeat(VALUE_BYTES);
        let reply = cluster.ask(client, &format!("GET key{n}"));
        assert!(reply.ends_with(&format!("{value}{n}\r\n")), "key{n}: {reply}");
    }
}

#[test]
fn the_successor_reads_from_who_had_the_position_before() {
    let (mut cluster, client) = filled(Parameters::default());
    nothing_is_decoded(&mut cluster);
    cluster.hand_over(0, 0, 3);
    cluster.advance(1_000);
    assert_eq!(absent(&cluster, 3), Some(0));
    assert_eq!(read(&mut cluster, client), (KEYS, 0));
}

#[test]
fn a_donor_with_wrong_bytes_or_none_is_done_without() {
    for gone in [false, true] {
        let (mut cluster, client) = filled(Parameters::default());
        let mut tampered = 0;
        cluster.tamper = Some(Box::new(move |from, _, header, message| match message {
            Message::ChunkValue {
                id,
                stripe,
                status: ChunkStatus::Here,
                version,
                sum,
                bytes,
                ..
            } if from == 0 => {
                tampered += 1;
                assert!(tampered < 200, "it is asked for ever");
                let mut changed = bytes.to_vec();
                changed[77] ^= 4;
                let value = Message::ChunkValue {
                    id: *id,
                    stripe: *stripe,
                    status: ChunkStatus::Here,
                    version: *version,
                    sum: *sum,
                    as_of: 0,
                    term: 0,
                    found: None,
                    bytes: &changed,
                };
                let mut frame = Vec::new();
                if !gone {
                    peer::encode(&mut frame, header, &value);
                }
                Some(frame)
            }
            _ => None,
        }));
        cluster.hand_over(0, 0, 3);
        cluster.advance(2_000);
        assert_eq!(absent(&cluster, 3), Some(0));
        assert_eq!(read(&mut cluster, client), (KEYS, 0));
    }
}

/// A parity position goes to the spare and comes back after a few writes; gives the data chunks that were read for it.
fn parity_comes_back(parameters: Parameters) -> (Cluster, Client, u32) {
    let mut cluster = Cluster::coded(2, 1, 1, 1, parameters);
    let client = cluster.connect(1, Port::Any);
    for n in 0..KEYS {
        let value = "x".repeat(VALUE_BYTES);
        assert_eq!(cluster.ask(client, &format!("SET key{n} {value}{n}")), "+OK\r\n");
    }
    let live = |c: &mut Configuration| {
        for a in c.positions.iter_mut().flatten() {
            a.state = PositionState::Live;
        }
    };
    cluster.hand_over(0, 2, 3);
    cluster.advance(1_000);
    cluster.reconfigure(0, live);
    for n in 0..3 {
        assert_eq!(cluster.ask(client, &format!("SET key{n} short{n}")), "+OK\r\n");
    }
    let read = Rc::new(Cell::new(0));
    let counter = Rc::clone(&read);
    cluster.tamper = Some(Box::new(move |_, to, _, message| {
        if let (2, Message::ChunkValue { .. }) = (to, message) {
            counter.set(counter.get() + 1);
        }
        None
    }));
    cluster.hand_over(0, 2, 2);
    cluster.advance(1_000);
    assert_eq!(cluster.processes[2].node.figures().rebuild_todo_bytes, 0);
    cluster.reconfigure(0, live);
    (cluster, client, read.get())
}

#[test]
fn a_parity_that_comes_back_is_refilled_where_data_has_changed() {
    let none = Parameters {
        stash: Span(0),
        ..Parameters::default()
    };
    let (_, _, all) = parity_comes_back(none);
    let (mut cluster, client, some) = parity_comes_back(Parameters::default());
    assert!(all >= 20 && some < all / 3, "{some} instead of {all}");
    assert!(some > 0, "three keys have changed");
    assert_eq!(stash_bytes(&cluster, 2), 0);
    // What is decoded from it is right.
    cluster.kill(0);
    cluster.hand_over(0, 0, 3);
    cluster.advance(5_000);
    for n in 0..KEYS {
        let value = if n < 3 { "short".into() } else { "x".repeat(VALUE_BYTES) };
        let reply = cluster.ask(client, &format!("GET key{n}"));
        assert!(reply.ends_with(&format!("{value}{n}\r\n")), "key{n}: {reply}");
    }
}

/// Writes until there is no memory left.
fn fill_up(cluster: &mut Cluster, client: Client) {
    for n in 0..1_000 {
        let mut reply = cluster.ask(client, &format!("SET more{n} {}", "z".repeat(60_000)));
        if reply.is_empty() {
            // It waits for credit, for a while.
            cluster.advance(1_000);
            reply = String::from_utf8(cluster.take(client)).unwrap();
        }
        if reply.starts_with("-OOM") {
            return;
        }
        assert!(reply.starts_with("+OK"), "{reply}");
    }
    panic!("it is never full");
}

#[test]
fn a_stash_gives_way_when_its_memory_is_needed() {
    let (mut cluster, client) = filled(Parameters::default());
    fill_up(&mut cluster, client);
    cluster.hand_over(0, 0, 3);
    cluster.advance(5_000);
    assert_eq!(absent(&cluster, 3), Some(0));
    let kept = stash_bytes(&cluster, 0);
    assert!(kept > 10 << 20, "{kept}");
    assert_eq!(
        cluster.processes[0].node.replica().arena().used(),
        0,
        "writers may have all of it"
    );
    // It gets the parity, which takes as much.
    cluster.reconfigure(0, |c| {
        let state = PositionState::Filling;
        let tenure = paritas_testbed::tenure(0, c.epoch.0);
        c.positions[2] = Some(Assignment { tenure, state });
    });
    for _ in 0..500 {
        cluster.advance(10);
        let arena = cluster.processes[0].node.replica().arena();
        assert!(arena.resident_bytes() < 16 << 20, "{}", arena.resident_bytes());
    }
    let figures = cluster.processes[0].node.figures();
    assert_eq!(figures.rebuild_todo_bytes, 0);
    assert!(
        figures.parity_bytes > 10 << 20 && figures.stash_bytes < 4 << 20,
        "{figures:?}"
    );
}

#[test]
fn a_stash_goes_when_its_time_is_over() {
    let parameters = Parameters {
        stash: Span::from_ms(5_000),
        ..Parameters::default()
    };
    let (mut cluster, _) = filled(parameters);
    cluster.hand_over(0, 0, 3);
    cluster.advance(4_000);
    assert!(stash_bytes(&cluster, 0) > 0);
    cluster.advance(2_000);
    assert_eq!(stash_bytes(&cluster, 0), 0);
}
