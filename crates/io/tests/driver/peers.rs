use crate::machine::{Client, Running, Seen, door};
use paritas_base::{ConnId, Incarnation, NodeId, Span};
use paritas_io::{Limits, Mail};
use paritas_protocol::LinkId;
use paritas_wire::greeting::{Process, Reason, Role, Secrets};
use paritas_wire::peer::{Header, Message, dialect, encode};
use std::io::Write;
use std::net::SocketAddr;

pub(crate) fn forward(to: &mut Vec<u8>, n: u64, command: &[u8]) {
    let message = Message::Forward {
        conn: ConnId(1),
        n,
        dialect: dialect::RESP2,
        database: 0,
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
    let mut peer = Client::peer(shard.peer);
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
        let mut peer = Client::peer(shard.peer);
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
        handshake: Span::from_ms(1),
        ..Limits::default()
    };
    let shard = Running::start(limits);
    let mut peer = Client::peer(shard.peer);
    let link = link_up(&shard);
    assert_eq!(peer.rest(), b"");
    shard.seen(|seen| (seen == Seen::LinkDown(link)).then_some(()));
}

/// What follows a greeting that was not taken must be nothing, and the machine must not hear of the link.
fn nothing_happened(shard: &Running, mut stranger: Client) {
    let mut frame = Vec::new();
    forward(&mut frame, 1, b"GET secret");
    // The other end may have closed already.
    let _ = stranger.0.write_all(&frame);
    assert_eq!(stranger.rest(), b"");
    let up = shard.seen_within(std::time::Duration::from_millis(20), |seen| {
        matches!(seen, Seen::LinkUp(..) | Seen::Frame(..)).then_some(seen)
    });
    assert_eq!(up, None);
}

#[test]
fn a_stranger_is_not_heard_whatever_it_knows() {
    let shard = Running::start(Limits::default());
    let fitting = || door().greeting(door().from, 0, 1).unwrap();
    let mut other = door();
    other.secrets = paritas_io::door::SharedSecrets::default();
    let nobody = other.clone();
    other.secrets.replace(Secrets::of_file(&[b'g'; 64]).unwrap());

    let mut stranger = Client::to(shard.peer);
    assert_eq!(stranger.call(&fitting(), &other), Err(Reason::OtherSecret), "a guess");
    nothing_happened(&shard, stranger);
    nobody.secrets.replace(Secrets::default());
    let mut stranger = Client::to(shard.peer);
    assert_eq!(stranger.call(&fitting(), &nobody), Err(Reason::NoSecret));
    nothing_happened(&shard, stranger);

    // It has the id of the secret, or a whole greeting of somebody else, but not the secret.
    let mut first = Client::to(shard.peer);
    let proof = first.call(&fitting(), &door()).unwrap();
    let mut stranger = Client::to(shard.peer);
    let _ = stranger.call(&fitting(), &door()).unwrap();
    stranger.0.write_all(&proof).unwrap();
    nothing_happened(&shard, stranger);

    // A frame without a greeting, and between greeting and proof.
    nothing_happened(&shard, Client::to(shard.peer));
    let mut stranger = Client::to(shard.peer);
    let _ = stranger.call(&fitting(), &door()).unwrap();
    nothing_happened(&shard, stranger);

    first.0.write_all(&proof).unwrap();
    shard.seen(|seen| matches!(seen, Seen::LinkUp(_, false)).then_some(()));
}

#[test]
fn a_call_for_another_process_or_of_a_later_version_is_refused_with_the_reason() {
    let shard = Running::start(Limits::default());
    let fitting = || door().greeting(door().from, 0, 1).unwrap();
    let call = |change: &dyn Fn(&mut paritas_wire::greeting::Greeting)| {
        let mut greeting = fitting();
        change(&mut greeting);
        Client::to(shard.peer).call(&greeting, &door()).map(drop)
    };
    let process = |node, incarnation| Process {
        node: NodeId(node),
        incarnation: Incarnation(incarnation),
    };
    assert_eq!(call(&|greeting| greeting.to = process(3, 20)), Err(Reason::Process));
    assert_eq!(call(&|greeting| greeting.to = process(2, 19)), Err(Reason::Process));
    assert_eq!(call(&|greeting| greeting.role = Role::Operator), Err(Reason::Role));
    assert_eq!(call(&|greeting| greeting.channel = 2), Err(Reason::Role));
    let later = |greeting: &mut paritas_wire::greeting::Greeting| (greeting.low, greeting.high) = (2, 3);
    assert_eq!(call(&later), Err(Reason::Version(1, 1)));
    assert_eq!(call(&|greeting| greeting.to = process(2, 0)), Ok(()));
}

#[test]
fn connections_that_say_nothing_leave_room_for_those_that_prove_who_they_are() {
    let shard = Running::start(Limits::default());
    let mut held: Vec<Client> = (0..80).map(|_| Client::to(shard.peer)).collect();
    for _ in 0..3 {
        let _peer = Client::peer(shard.peer);
        shard.seen(|seen| matches!(seen, Seen::LinkUp(_, false)).then_some(()));
    }
    // The oldest has given way.
    assert_eq!(held.remove(0).rest(), b"");
}

#[test]
fn a_connection_that_does_not_prove_who_it_is_ends() {
    let limits = Limits {
        handshake: Span::from_ms(1),
        ..Limits::default()
    };
    let shard = Running::start(limits);
    let silent = Client::to(shard.peer);
    let mut slow = Client::to(shard.peer);
    slow.send("\u{0}");
    nothing_happened(&shard, silent);
    assert_eq!(slow.rest(), b"");
}
