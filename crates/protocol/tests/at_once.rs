//! A chunk comes back in one round trip where nothing stands in the way, and in two where something does (P5.7).

use paritas_base::{ListId, Position, Span, Version};
use paritas_protocol::{Parameters, Port};
use paritas_testbed::{Client, Cluster};
use paritas_wire::peer::{self, ChunkStatus, Header, Message};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

const KEYS: usize = 300;

/// What was asked of owners: for the latest chunk, and for one at a version.
#[derive(Default)]
struct Asked {
    latest: usize,
    at_version: usize,
}

type Change = Box<dyn FnMut(usize, &Header, &Message<'_>) -> Option<Vec<u8>>>;

/// `3+2` and a spare that takes data position 0 from a node that is gone, under this change to what is sent; all keys
/// are right afterwards.
fn taken_over(mut change: Change) -> (Cluster, Asked) {
    let parameters = Parameters {
        stash: Span(0),
        ..Parameters::default()
    };
    let mut cluster = Cluster::coded(3, 2, 1, 1, parameters);
    let client = cluster.connect(1, Port::Any);
    for n in 0..KEYS {
        let value = format!("{n:0>900}");
        assert_eq!(cluster.ask(client, &format!("SET key{n} {value}")), "+OK\r\n");
    }
    let asked: Rc<RefCell<Asked>> = Rc::default();
    let seen = asked.clone();
    cluster.tamper = Some(Box::new(move |from, _, header, message| {
        match message {
            Message::ReadChunk { want: None, .. } => seen.borrow_mut().latest += 1,
            // Who held the position before is asked too.
            Message::ReadChunk { .. } if header.stream.x != Position(0) => seen.borrow_mut().at_version += 1,
            _ => {}
        }
        change(from, header, message)
    }));
    cluster.hand_over(0, 0, 5);
    cluster.advance(2_000);
    all_there(&mut cluster, client);
    cluster.tamper = None;
    let asked = asked.take();
    (cluster, asked)
}

fn all_there(cluster: &mut Cluster, client: Client) {
    for n in 0..KEYS {
        let reply = cluster.ask(client, &format!("GET key{n}"));
        assert_eq!(reply, format!("$900\r\n{n:0>900}\r\n"), "key{n}");
    }
    let list = cluster.processes[5].node.replica().list(ListId(0)).unwrap();
    let owner = list.owners().next().expect("node 5 is an owner");
    assert!(owner.is_whole(), "{} absent", owner.store().chunks().absent_count());
}

fn frame(header: &Header, message: &Message<'_>) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    peer::encode(&mut bytes, header, message);
    Some(bytes)
}

#[test]
fn chunks_that_nobody_writes_take_one_round_trip() {
    let (_, asked) = taken_over(Box::new(|_, _, _| None));
    assert!(asked.latest > 10, "{} asked for", asked.latest);
    assert_eq!(asked.at_version, 0);
}

/// The parity stands for a version that an owner has gone beyond, as it would while writes go on: it is asked again,
/// for that one.
#[test]
fn a_chunk_at_another_version_than_the_parity_stands_for_is_asked_for_again() {
    let mut latest = BTreeSet::new();
    let (cluster, asked) = taken_over(Box::new(move |from, header, message| match message {
        Message::ReadChunk { id, want: None, .. } if latest.len() < 5 => {
            latest.insert(*id);
            None
        }
        Message::ChunkValue {
            id,
            stripe,
            status: ChunkStatus::Here,
            version,
            sum,
            as_of,
            term,
            bytes,
            ..
        } if from == 1 && latest.contains(id) && !bytes.is_empty() => {
            // A later version, with other bytes: were it used, the chunk would be wrong.
            let mut later = bytes.to_vec();
            later[40] ^= 1;
            let mut plain = vec![0; later.len()];
            plain[40] = 1;
            let value = Message::ChunkValue {
                id: *id,
                stripe: *stripe,
                status: ChunkStatus::Here,
                version: Version::new(version.term(), version.seq() + 1),
                sum: sum ^ paritas_code::sum::of(&plain),
                as_of: *as_of,
                term: *term,
                found: None,
                bytes: &later,
            };
            frame(header, &value)
        }
        _ => None,
    }));
    assert!((1..20).contains(&asked.at_version), "{}", asked.at_version);
    assert_eq!(cluster.processes[5].node.replica().bad_sums(), 0, "no sum was wrong");
}

#[test]
fn an_owner_that_cannot_give_its_chunk_is_done_without() {
    let (_, asked) = taken_over(Box::new(|from, header, message| match message {
        Message::ChunkValue { id, stripe, .. } if from == 1 => {
            let none = Message::ChunkValue {
                id: *id,
                stripe: *stripe,
                status: ChunkStatus::None,
                version: Version::ZERO,
                sum: 0,
                as_of: 0,
                term: 0,
                found: None,
                bytes: &[],
            };
            frame(header, &none)
        }
        _ => None,
    }));
    assert!(asked.at_version > 0);
}

#[test]
fn a_parity_that_is_not_valid_is_done_without() {
    let (_, asked) = taken_over(Box::new(|from, header, message| match message {
        Message::ParityValue { id, stripe, .. } if from == 3 => {
            let none = Message::ParityValue {
                id: *id,
                stripe: *stripe,
                parity: None,
            };
            frame(header, &none)
        }
        _ => None,
    }));
    assert!(asked.at_version > 0);
}
