//! Wrong bytes in some node's memory: what is decoded from them never reaches a client, and other sources are tried
//! (P5.9, P9.3).

use paritas_base::configuration::PositionState;
use paritas_base::{ListId, Span};
use paritas_protocol::{Parameters, Port, Proposal};
use paritas_testbed::{Client, Cluster, Tamper};
use paritas_wire::peer::{self, ChunkStatus, Header, Message, Parity};

const KEYS: usize = 40;

fn frame(header: &Header, message: &Message<'_>) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    peer::encode(&mut bytes, header, message);
    Some(bytes)
}

/// Every parity chunk that node `wrong` gives has one wrong byte; its frame is whole, so no CRC tells.
fn wrong_parity(wrong: usize) -> Tamper {
    Box::new(move |from, _, header, message| match message {
        Message::ParityValue {
            id,
            stripe,
            parity: Some(parity),
        } if from == wrong && !parity.bytes.is_empty() => {
            let mut bytes = parity.bytes.to_vec();
            bytes[100] ^= 1;
            let parity = Some(Parity {
                bytes: &bytes,
                ..*parity
            });
            let (id, stripe) = (*id, *stripe);
            frame(header, &Message::ParityValue { id, stripe, parity })
        }
        _ => None,
    })
}

/// As above, of each data chunk; the sum is the one its owner keeps.
fn wrong_data(wrong: usize) -> Tamper {
    Box::new(move |from, _, header, message| match message {
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
        } if from == wrong && !bytes.is_empty() => {
            let mut changed = bytes.to_vec();
            changed[100] ^= 1;
            let value = Message::ChunkValue {
                id: *id,
                stripe: *stripe,
                status: ChunkStatus::Here,
                version: *version,
                sum: *sum,
                as_of: *as_of,
                term: *term,
                found: None,
                bytes: &changed,
            };
            frame(header, &value)
        }
        _ => None,
    })
}

/// `2+2` and a spare, with keys; then data position 0 goes to the spare, under this tampering.
fn taken_over(tamper: Tamper) -> (Cluster, Client) {
    // Nothing of it comes from its holder before.
    let parameters = Parameters {
        stash: Span(0),
        ..Parameters::default()
    };
    let mut cluster = Cluster::coded(2, 2, 1, 1, parameters);
    let client = cluster.connect(1, Port::Any);
    for n in 0..KEYS {
        assert_eq!(cluster.ask(client, &format!("SET key{n} value{n}")), "+OK\r\n");
    }
    cluster.tamper = Some(tamper);
    cluster.hand_over(0, 0, 4);
    cluster.advance(100);
    (cluster, client)
}

fn all_there(cluster: &mut Cluster, client: Client) {
    for n in 0..KEYS {
        let expected = format!("value{n}");
        let reply = cluster.ask(client, &format!("GET key{n}"));
        assert_eq!(reply, format!("${}\r\n{expected}\r\n", expected.len()), "key{n}");
    }
    let list = cluster.processes[4].node.replica().list(ListId(0)).unwrap();
    let owner = list.owners().next().expect("node 4 is an owner");
    assert!(owner.is_whole());
    assert!(cluster.processes[4].node.replica().bad_sums() > 0, "nothing was wrong");
}

#[test]
fn a_chunk_is_decoded_from_the_other_parity_if_the_first_is_wrong() {
    // The members are asked in order, and one is enough at first.
    let (mut cluster, client) = taken_over(wrong_parity(2));
    all_there(&mut cluster, client);
}

#[test]
fn a_data_chunk_without_its_sum_is_left_out() {
    let (mut cluster, client) = taken_over(wrong_data(1));
    all_there(&mut cluster, client);
}

#[test]
fn without_a_right_source_nothing_is_answered() {
    let (mut first, mut second) = (wrong_parity(2), wrong_parity(3));
    let (mut cluster, client) = taken_over(Box::new(move |from, to, header, message| {
        first(from, to, header, message).or_else(|| second(from, to, header, message))
    }));
    let mut refused = 0;
    for n in 0..KEYS {
        let client = cluster.connect(1, Port::Any);
        let mut reply = cluster.ask(client, &format!("GET key{n}"));
        if reply.is_empty() {
            cluster.advance(7_000);
            reply = String::from_utf8(cluster.take(client)).unwrap();
        }
        let value = format!("value{n}");
        if reply.starts_with("-TRYAGAIN") {
            refused += 1;
        } else {
            assert_eq!(reply, format!("${}\r\n{value}\r\n", value.len()));
        }
        if refused > 2 {
            break;
        }
    }
    assert!(refused > 2, "the keys of the lost stream");
    let _ = client;
}

/// A parity that is filled from a wrong chunk would be wrong itself, and be seen only when it is needed.
#[test]
fn a_parity_is_not_filled_from_a_chunk_without_its_sum() {
    let mut cluster = Cluster::coded(2, 2, 1, 2, Parameters::default());
    let client = cluster.connect(1, Port::Any);
    for n in 0..KEYS {
        assert_eq!(cluster.ask(client, &format!("SET key{n} value{n}")), "+OK\r\n");
    }
    let asks_live = |cluster: &Cluster| {
        let proposals = &cluster.processes[4].out.proposals;
        proposals.iter().any(|p| matches!(p, Proposal::AskLive { .. }))
    };
    cluster.tamper = Some(wrong_data(1));
    cluster.hand_over(0, 2, 4);
    cluster.advance(1_000);
    assert!(cluster.processes[4].node.replica().bad_sums() > 0, "nothing was wrong");
    assert!(!asks_live(&cluster), "a parity made of wrong bytes");
    // Its owner's chunks are right again: they are asked for once more.
    cluster.tamper = None;
    cluster.advance(1_000);
    assert!(asks_live(&cluster), "it waits for ever");
    cluster.reconfigure(0, |c| {
        if let Some(assignment) = &mut c.positions[2] {
            assignment.state = PositionState::Live;
        }
    });
    // Of the two parities only the new one is left to decode from.
    cluster.kill(0);
    cluster.kill(3);
    cluster.reconfigure(0, |c| c.positions[3] = None);
    cluster.hand_over(0, 0, 5);
    cluster.advance(6_000);
    let client = cluster.connect(1, Port::Any);
    for n in 0..KEYS {
        let expected = format!("value{n}");
        let reply = cluster.ask(client, &format!("GET key{n}"));
        assert_eq!(reply, format!("${}\r\n{expected}\r\n", expected.len()), "key{n}");
    }
}
