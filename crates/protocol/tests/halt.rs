//! A broken invariant ends one role of a node, loudly, and nothing else (P3.5).

use paritas_base::{ListId, Position};
use paritas_protocol::{Parameters, Port, Role};
use paritas_testbed::{Client, Cluster};
use paritas_wire::peer::{self, Header, Message};

/// Two lists of `2+2` on four nodes, and a fifth. List 0 has its parities on nodes 2 and 3, list 1 on nodes 3 and 0.
fn two_lists() -> Cluster {
    Cluster::coded(2, 2, 2, 1, Parameters::default())
}

fn frame(header: &Header, message: &Message<'_>) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    peer::encode(&mut bytes, header, message);
    Some(bytes)
}

/// A key of each stream: list 0's two, then list 1's.
fn keys() -> Vec<String> {
    let key_of = |part: u16| {
        let mut all = (0..).map(|n| format!("k{n}"));
        all.find(|key| paritas_wire::command::slot(key.as_bytes()) / 4096 == part)
            .unwrap()
    };
    (0..4).map(key_of).collect()
}

/// Where the first extent, which is of no more than 127 bytes, names the version before the delta.
fn base_at(extents: &[u8]) -> usize {
    let mut at = 1;
    // The chunk's number, the offset, and the length unless it is in the first byte.
    for _ in 0..if extents[0] >> 5 == 0 { 3 } else { 2 } {
        at += paritas_base::varint::read(&extents[at..]).unwrap().1;
    }
    at
}

fn set_all(cluster: &mut Cluster, client: Client, keys: &[String], value: &str) {
    for key in keys {
        assert_eq!(cluster.ask(client, &format!("SET {key} {value}")), "+OK\r\n");
    }
}

#[test]
fn a_member_whose_parity_does_not_fit_stops_acking_and_its_node_goes_on_in_other_lists() {
    let mut cluster = two_lists();
    let client = cluster.connect(1, Port::Any);
    let keys = keys();
    set_all(&mut cluster, client, &keys, "before");
    cluster.processes[2].out.halts = Some(Vec::new());
    // Deltas of list 0 reach node 2 with a base that its parity is not at, as if its memory were corrupt.
    cluster.tamper = Some(Box::new(|_, to, header, message| match message {
        Message::Delta {
            term,
            seq,
            sent,
            stable,
            extents,
        } if to == 2 && header.stream.list == ListId(0) => {
            let mut extents = extents.to_vec();
            let at = base_at(&extents);
            extents[at] ^= 0x55;
            let delta = Message::Delta {
                term: *term,
                seq: *seq,
                sent: *sent,
                stable: *stable,
                extents: &extents,
            };
            frame(header, &delta)
        }
        _ => None,
    }));
    assert_eq!(
        cluster.ask(client, &format!("SET {} after", keys[0])),
        "",
        "not acked by all"
    );
    assert_eq!(cluster.processes[2].out.halts.as_ref().unwrap().len(), 1, "said once");
    let halted: Vec<_> = cluster.processes[2].node.replica().halted().cloned().collect();
    assert_eq!(halted.len(), 1);
    assert_eq!((halted[0].list, halted[0].position), (ListId(0), Position(2)));
    assert!(halted[0].reason.contains("cannot fold"), "{}", halted[0].reason);

    // The other lists know nothing of it, node 2's part in list 1 among them.
    let other = cluster.connect(2, Port::Any);
    assert_eq!(cluster.ask(other, &format!("SET {} after", keys[2])), "+OK\r\n");
    assert_eq!(cluster.ask(other, &format!("GET {}", keys[3])), "$6\r\nbefore\r\n");

    // Replaced as if it had died: the write that waited is answered.
    cluster.hand_over(0, 2, 4);
    assert_eq!(cluster.take(client), b"+OK\r\n");
    assert_eq!(cluster.ask(client, &format!("GET {}", keys[0])), "$5\r\nafter\r\n");

    // Whatever a configuration says, this incarnation has no part in the list again.
    cluster.hand_over(0, 2, 2);
    let list = cluster.processes[2].node.replica().list(ListId(0)).unwrap();
    assert!(matches!(list.roles[..], [Role::Halted(_)]));
    assert_eq!(cluster.processes[2].out.halts.as_ref().unwrap().len(), 1);
}

#[test]
fn an_owner_that_halts_answers_uncertain_and_yields_so_that_its_successor_need_not_wait() {
    let mut cluster = two_lists();
    let client = cluster.connect(0, Port::Any);
    let strict = cluster.connect(0, Port::Cluster);
    let keys = keys();
    set_all(&mut cluster, client, &keys, "before");
    cluster.processes[0].out.halts = Some(Vec::new());
    // A member says it has what the owner never issued.
    cluster.tamper = Some(Box::new(|from, to, header, message| match message {
        Message::Ack { term, recv, lease_sent } if (from, to) == (2, 0) && header.stream.list == ListId(0) => {
            let ack = Message::Ack {
                term: *term,
                recv: recv + 1_000,
                lease_sent: *lease_sent,
            };
            frame(header, &ack)
        }
        _ => None,
    }));
    let reply = cluster.ask(client, &format!("SET {} after", keys[0]));
    assert!(reply.starts_with("-UNCERTAIN"), "{reply}");
    assert_eq!(cluster.processes[0].node.replica().halted().count(), 1);
    cluster.tamper = None;
    // Its parity position in list 1 still works, and it still forwards commands of its clients.
    assert_eq!(cluster.ask(client, &format!("SET {} after", keys[2])), "+OK\r\n");
    assert_eq!(cluster.ask(client, &format!("GET {}", keys[1])), "$6\r\nbefore\r\n");
    // It serves no key of the stream, and sends no redirection to itself: commands wait for the successor.
    assert_eq!(cluster.ask(client, &format!("GET {}", keys[0])), "");
    assert_eq!(cluster.ask(strict, &format!("GET {}", keys[0])), "");

    let before = cluster.now.mono;
    cluster.hand_over(0, 0, 4);
    cluster.advance(100);
    let waited = cluster.now.mono - before;
    assert!(waited < Parameters::default().lease, "no lease was waited out");
    let reply = String::from_utf8(cluster.take(client)).unwrap();
    assert!(["$5\r\nafter\r\n", "$6\r\nbefore\r\n"].contains(&&*reply), "{reply}");
    let reply = String::from_utf8(cluster.take(strict)).unwrap();
    assert!(reply.starts_with("-MOVED") && reply.contains(":7383"), "{reply}");
}

#[test]
fn a_member_that_would_undo_what_is_stable_stops_instead() {
    let mut cluster = two_lists();
    let client = cluster.connect(1, Port::Any);
    let keys = keys();
    for n in 0..20 {
        set_all(&mut cluster, client, &keys, &format!("value{n}"));
    }
    // What is stable is told at the latest when the stream is idle.
    cluster.advance(1_000);
    cluster.processes[3].out.halts = Some(Vec::new());
    // The next owner of list 0's first stream pushes an empty log, as if it had found none.
    cluster.tamper = Some(Box::new(|_, to, header, message| match message {
        Message::Sync { term, .. } if to == 3 && header.stream.list == ListId(0) && header.stream.x == Position(0) => {
            let none = Message::Sync {
                term: *term,
                base: 0,
                top: 0,
                deltas: peer::Deltas::new(&[]),
            };
            frame(header, &none)
        }
        _ => None,
    }));
    cluster.hand_over(0, 0, 4);
    cluster.advance(100);
    let halted: Vec<_> = cluster.processes[3].node.replica().halted().cloned().collect();
    assert_eq!(halted.len(), 1, "{halted:?}");
    assert_eq!((halted[0].list, halted[0].position), (ListId(0), Position(3)));
    assert!(halted[0].reason.contains("Sync would undo"), "{}", halted[0].reason);
}
