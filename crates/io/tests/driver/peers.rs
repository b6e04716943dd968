use crate::machine::{Client, Running, Seen};
use paritas_base::{ConnId, NodeId};
use paritas_io::{Limits, Mail};
use paritas_protocol::LinkId;
use paritas_wire::peer::{Header, Message, dialect, encode};
use std::io::Write;
use std::net::SocketAddr;

pub(crate) fn forward(to: &mut Vec<u8>, n: u64, command: &[u8]) {
    let message = Message::Forward {
        conn: ConnId(1),
        n,
        dialect: dialect::RESP2,
        command,
    };
    encode(to, &Header::bare(), &message);
}

pub(crate) fn learn(shard: &Running, peers: &[(u16, SocketAddr)]) {
    let peers = peers.iter().map(|(node, at)| (NodeId(*node), *at)).collect();
    shard
        .mailbox
        .post(Mail::Nodes {
            records: Vec::new(),
            peers,
        })
        .unwrap();
}

fn link_up(shard: &Running) -> LinkId {
    shard.seen(|seen| match seen {
        Seen::LinkUp(link, _) => Some(link),
        _ => None,
    })
}

/// `from` dials `to` as node 2 and binds the link. Returns the link at both sides.
fn join(from: &Running, to: &Running) -> (LinkId, LinkId) {
    learn(from, &[(2, to.peer)]);
    let mut client = from.client();
    client.send("DIAL 2\n");
    client.expect("dialing\n");
    (link_up(from), link_up(to))
}

#[test]
fn frames_arrive_whole_and_in_order() {
    const COUNT: u64 = 20_000;
    let (first, second) = (Running::start(Limits::default()), Running::start(Limits::default()));
    let (_, link) = join(&first, &second);
    let mut client = first.client();
    client.send(&format!("SEND 3 1\nSEND 2 {COUNT}\n"));
    client.expect("nobody\nsent\n");
    for n in 0..COUNT {
        let (from, bytes) = second.seen(|seen| match seen {
            Seen::Frame(link, bytes) => Some((link, bytes)),
            _ => None,
        });
        let mut expected = Vec::new();
        forward(&mut expected, n, &[7; 1000]);
        assert!(from == link && bytes == expected, "frame {n}");
    }
}

#[test]
fn a_bad_frame_ends_the_link_but_not_the_frames_before_it() {
    let shard = Running::start(Limits::default());
    let mut peer = Client::to(shard.peer);
    let link = link_up(&shard);
    let mut bytes = Vec::new();
    forward(&mut bytes, 1, b"good");
    let good = bytes.len();
    forward(&mut bytes, 2, b"bad");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    forward(&mut bytes, 3, b"never looked at");
    peer.0.write_all(&bytes).unwrap();
    let frame = shard.seen(|seen| match seen {
        Seen::Frame(_, bytes) => Some(bytes),
        _ => None,
    });
    assert_eq!(frame, bytes[..good]);
    assert_eq!(peer.rest(), b"");
    shard.seen(|seen| match seen {
        Seen::Frame(..) => panic!("a frame after a bad one was handled"),
        seen => (seen == Seen::LinkDown(link)).then_some(()),
    });
}

#[test]
fn a_frame_of_impossible_length_ends_the_link() {
    let shard = Running::start(Limits::default());
    for length in [0_u32, 23, u32::MAX] {
        let mut peer = Client::to(shard.peer);
        let link = link_up(&shard);
        peer.0.write_all(&length.to_le_bytes()).unwrap();
        shard.seen(|seen| (seen == Seen::LinkDown(link)).then_some(()));
    }
}

#[test]
fn ends_are_told_at_both_sides() {
    let (first, second) = (Running::start(Limits::default()), Running::start(Limits::default()));
    let (here, there) = join(&first, &second);
    let mut client = second.client();
    client.send(&format!("CLOSE {}\n", there.0));
    client.expect("closing\n");
    first.seen(|seen| (seen == Seen::LinkDown(here)).then_some(()));
    second.seen(|seen| (seen == Seen::LinkDown(there)).then_some(()));
    let mut client = first.client();
    client.send("SEND 2 1\n");
    client.expect("nobody\n");
}

#[test]
fn a_newer_link_takes_the_place_of_the_older() {
    let (first, second) = (Running::start(Limits::default()), Running::start(Limits::default()));
    let (old, _) = join(&first, &second);
    let (_, new) = join(&first, &second);
    first.seen(|seen| (seen == Seen::LinkDown(old)).then_some(()));
    let mut client = first.client();
    client.send("SEND 2 1\n");
    client.expect("sent\n");
    let link = second.seen(|seen| match seen {
        Seen::Frame(link, _) => Some(link),
        _ => None,
    });
    assert_eq!(link, new);
}

#[test]
fn a_dial_to_nobody_fails() {
    let shard = Running::start(Limits::default());
    // Bound and dropped: nothing listens on this port.
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    learn(&shard, &[(2, free)]);
    let mut client = shard.client();
    for node in [2_u16, 9] {
        client.send(&format!("DIAL {node}\n"));
        client.expect("dialing\n");
        shard.seen(|seen| (seen == Seen::DialFailed(NodeId(node))).then_some(()));
    }
}

#[test]
fn frames_past_their_deadline_end_the_link_instead() {
    let (first, second) = (Running::start(Limits::default()), Running::start(Limits::default()));
    let (here, there) = join(&first, &second);
    let mut client = first.client();
    client.send("SEND 2 1 late\n");
    client.expect("sent\n");
    first.seen(|seen| (seen == Seen::LinkDown(here)).then_some(()));
    second.seen(|seen| match seen {
        Seen::Frame(..) => panic!("a frame left after its deadline"),
        seen => (seen == Seen::LinkDown(there)).then_some(()),
    });
}

#[test]
fn a_link_that_nobody_binds_is_ended() {
    let limits = Limits {
        handshake: paritas_base::Span::from_ms(1),
        ..Limits::default()
    };
    let shard = Running::start(limits);
    let mut peer = Client::to(shard.peer);
    let link = link_up(&shard);
    assert_eq!(peer.rest(), b"");
    shard.seen(|seen| (seen == Seen::LinkDown(link)).then_some(()));
}
