//! Several positions of a list fail, at once or while one is being taken over, in each phase of that (P5, P6).

use paritas_base::configuration::PositionState;
use paritas_base::{ListId, Position};
use paritas_protocol::{Parameters, Port};
use paritas_testbed::{Client, Cluster};
use paritas_wire::peer::Kind;

const KEYS: usize = 60;
/// Longer than a dead owner's leases.
const LEASES_MS: u64 = 2_500;

/// What a successor waits for, from one phase of its takeover to the next: seal, push, directory, then chunks.
const AWAITED: [Kind; 5] = [
    Kind::SealReply,
    Kind::SyncAck,
    Kind::Directory,
    Kind::ParityValue,
    Kind::ChunkValue,
];

/// One list of `2+2` on nodes 0 to 3, six more that hold nothing, and a client of the last.
fn start() -> (Cluster, Client) {
    let mut cluster = Cluster::coded(2, 2, 1, 6, Parameters::default());
    let client = cluster.connect(9, Port::Any);
    set_all(&mut cluster, client, "first");
    cluster.advance(300);
    (cluster, client)
}

fn set_all(cluster: &mut Cluster, client: Client, value: &str) {
    for n in 0..KEYS {
        let reply = cluster.ask(client, &format!("SET key{n} {value}{n}"));
        assert_eq!(reply, "+OK\r\n", "key{n}");
    }
}

fn all_there(cluster: &mut Cluster, client: Client, value: &str) {
    for n in 0..KEYS {
        let expected = format!("{value}{n}");
        let reply = cluster.ask(client, &format!("GET key{n}"));
        assert_eq!(reply, format!("${}\r\n{expected}\r\n", expected.len()), "key{n}");
    }
}

/// Nothing of that kind reaches a node any more.
fn withhold(cluster: &mut Cluster, from_whom: usize, what: Kind) {
    cluster.tamper = Some(Box::new(move |_, to, _, message| {
        (to == from_whom && message.kind() == what).then(Vec::new)
    }));
}

fn whole(cluster: &Cluster, node: usize, x: u8) -> bool {
    let list = cluster.processes[node].node.replica().list(ListId(0)).unwrap();
    list.owner(Position(x)).is_some_and(|owner| owner.is_whole())
}

/// All that was acknowledged is there, is written anew, and once all are whole survives the loss of both owners.
fn recovers(cluster: &mut Cluster, client: Client, owners: [usize; 2], next: [usize; 2]) {
    cluster.advance(LEASES_MS);
    all_there(cluster, client, "first");
    cluster.advance(1_000);
    live(cluster);
    set_all(cluster, client, "second");
    for x in [0, 1] {
        assert!(whole(cluster, owners[x], x as u8), "position {x} at node {}", owners[x]);
    }
    owners.into_iter().for_each(|node| cluster.kill(node));
    cluster.hand_over(0, 0, next[0]);
    cluster.hand_over(0, 1, next[1]);
    cluster.advance(LEASES_MS);
    all_there(cluster, client, "second");
    cluster.advance(1_000);
    live(cluster);
    set_all(cluster, client, "third");
    all_there(cluster, client, "third");
}

fn live(cluster: &mut Cluster) {
    cluster.reconfigure(0, |c| {
        for a in c.positions.iter_mut().flatten() {
            a.state = PositionState::Live;
        }
    });
}

#[test]
fn both_owners_fail_at_once() {
    let (mut cluster, client) = start();
    cluster.kill(0);
    cluster.kill(1);
    cluster.hand_over(0, 0, 4);
    cluster.hand_over(0, 1, 5);
    recovers(&mut cluster, client, [4, 5], [6, 7]);
}

#[test]
fn an_owner_and_a_parity_fail_at_once() {
    let (mut cluster, client) = start();
    cluster.kill(0);
    cluster.kill(3);
    cluster.hand_over(0, 3, 5);
    cluster.hand_over(0, 0, 4);
    recovers(&mut cluster, client, [4, 1], [6, 7]);
}

#[test]
fn both_parities_fail_at_once() {
    let (mut cluster, client) = start();
    cluster.kill(2);
    cluster.kill(3);
    let reply = cluster.ask(client, "SET other value");
    assert_eq!(reply, "", "no member acknowledges it yet");
    cluster.hand_over(0, 2, 4);
    cluster.hand_over(0, 3, 5);
    cluster.advance(1_000);
    live(&mut cluster);
    assert_eq!(cluster.take(client), b"+OK\r\n", "the new ones do");
    recovers(&mut cluster, client, [0, 1], [6, 7]);
}

#[test]
fn a_successor_dies_in_each_phase_of_its_takeover() {
    for what in AWAITED {
        let (mut cluster, client) = start();
        cluster.kill(0);
        withhold(&mut cluster, 4, what);
        cluster.hand_over(0, 0, 4);
        cluster.advance(LEASES_MS);
        assert!(!whole(&cluster, 4, 0), "{what:?} is not waited for");
        cluster.kill(4);
        cluster.tamper = None;
        cluster.hand_over(0, 0, 5);
        recovers(&mut cluster, client, [5, 1], [6, 7]);
    }
}

#[test]
fn the_other_owner_fails_in_each_phase_of_a_takeover() {
    for what in AWAITED {
        let (mut cluster, client) = start();
        cluster.kill(0);
        withhold(&mut cluster, 4, what);
        cluster.hand_over(0, 0, 4);
        cluster.advance(LEASES_MS);
        cluster.kill(1);
        cluster.hand_over(0, 1, 5);
        cluster.advance(500);
        // Another owner is not whole either, so it asks the two parity nodes, and no owner for a data chunk.
        let waits = what != Kind::ChunkValue;
        assert_eq!(whole(&cluster, 4, 0), !waits, "{what:?}");
        cluster.tamper = None;
        recovers(&mut cluster, client, [4, 5], [6, 7]);
    }
}

#[test]
fn a_parity_fails_in_each_phase_of_a_takeover() {
    for what in AWAITED {
        for parity in [2, 3] {
            let (mut cluster, client) = start();
            cluster.kill(0);
            withhold(&mut cluster, 4, what);
            cluster.hand_over(0, 0, 4);
            cluster.advance(LEASES_MS);
            cluster.kill(parity);
            cluster.hand_over(0, parity as u8, 5);
            cluster.advance(500);
            assert!(!whole(&cluster, 4, 0), "{what:?} is not waited for");
            cluster.tamper = None;
            recovers(&mut cluster, client, [4, 1], [6, 7]);
        }
    }
}

#[test]
fn two_successors_die_one_after_the_other_with_their_pushes_half_done() {
    let (mut cluster, client) = start();
    cluster.kill(0);
    for (successor, reached) in [(4, 2), (5, 3)] {
        // Its log comes to one of the two parities only.
        cluster.tamper = Some(Box::new(move |from, to, _, message| {
            (from == successor && to != reached && message.kind() == Kind::Sync).then(Vec::new)
        }));
        cluster.hand_over(0, 0, successor);
        cluster.advance(500);
        cluster.kill(successor);
    }
    cluster.tamper = None;
    cluster.hand_over(0, 0, 8);
    recovers(&mut cluster, client, [8, 1], [6, 7]);
}

/// With one parity, on a node that owns a stream of the list too.
#[test]
fn a_lone_parity_on_a_stand_in_gives_an_owner_back() {
    let mut cluster = Cluster::coded(2, 1, 1, 2, Parameters::default());
    let client = cluster.connect(4, Port::Any);
    set_all(&mut cluster, client, "first");
    cluster.kill(2);
    cluster.hand_over(0, 2, 1);
    cluster.advance(1_000);
    live(&mut cluster);
    set_all(&mut cluster, client, "second");
    cluster.advance(300);
    cluster.kill(0);
    cluster.hand_over(0, 0, 3);
    cluster.advance(LEASES_MS);
    all_there(&mut cluster, client, "second");
    cluster.advance(1_000);
    live(&mut cluster);
    set_all(&mut cluster, client, "third");

    // The parity goes back to a node of its own; then the node that stood in may go too.
    cluster.hand_over(0, 2, 4);
    cluster.advance(1_000);
    live(&mut cluster);
    all_there(&mut cluster, client, "third");
    cluster.kill(1);
    let list = cluster.processes[4].node.replica().list(ListId(0)).unwrap();
    assert!(list.member().is_some(), "it has the parity alone");
    cluster.hand_over(0, 1, 4);
    cluster.advance(LEASES_MS);
    all_there(&mut cluster, client, "third");
}

/// With one parity, which dies with the stream that its node owns: two of three positions are gone, and nothing is made
/// up for them.
#[test]
fn a_lone_parity_that_dies_with_an_owner_takes_that_stream_with_it() {
    let mut cluster = Cluster::coded(2, 1, 1, 2, Parameters::default());
    let client = cluster.connect(4, Port::Any);
    set_all(&mut cluster, client, "first");
    cluster.kill(2);
    cluster.hand_over(0, 2, 1);
    cluster.advance(1_000);
    live(&mut cluster);
    cluster.kill(1);
    cluster.hand_over(0, 2, 3);
    cluster.hand_over(0, 1, 4);
    cluster.advance(10_000);
    for n in 0..KEYS / 4 {
        cluster.feed(client, format!("GET key{n}\r\n").as_bytes());
        let mut reply = String::new();
        for _ in 0..200 {
            cluster.advance(100);
            reply = String::from_utf8(cluster.take(client)).unwrap();
            if !reply.is_empty() {
                break;
            }
        }
        let lost = paritas_wire::command::slot(format!("key{n}").as_bytes()) >= 8192;
        let error = reply.starts_with("-TRYAGAIN") || reply.starts_with("-CLUSTERDOWN");
        let value = reply.ends_with(&format!("first{n}\r\n"));
        assert!(error || (value && !lost), "key{n}: {reply}");
    }
    let list = cluster.processes[4].node.replica().list(ListId(0)).unwrap();
    assert!(list.owner(Position(1)).is_none_or(|owner| !owner.is_whole()));
}

/// P3.1, P3.7, H50: with no redundancy node left nothing new is written, and nothing is said to be that was under way.
#[test]
fn without_live_redundancy_writes_are_refused_and_reads_go_on() {
    let mut cluster = Cluster::coded(2, 1, 1, 0, Parameters::default());
    let clients = [0, 1].map(|node| cluster.connect(node, Port::Any));
    for client in clients {
        for n in 0..8 {
            assert_eq!(cluster.ask(client, &format!("SET key{n} before")), "+OK\r\n");
        }
    }
    cluster.kill(2);
    // This write has reached no other node when the list loses its last redundancy.
    cluster.feed(clients[0], b"SET key0 under-way\r\n");
    cluster.advance(10);
    cluster.reconfigure(0, |c| c.positions[2] = None);
    cluster.advance(10_000);
    let reply = String::from_utf8(cluster.take(clients[0])).unwrap();
    assert!(reply.starts_with("-UNCERTAIN"), "{reply}");
    for n in 1..8 {
        let reply = cluster.ask(clients[1], &format!("SET key{n} after"));
        assert!(reply.starts_with("-NOREPLICAS"), "{reply}");
        assert_eq!(cluster.ask(clients[1], &format!("GET key{n}")), "$6\r\nbefore\r\n");
    }
}
