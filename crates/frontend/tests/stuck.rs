//! Commands for a stream that does not serve (P5.13). All commands of a connection wait together, once. After that
//! wait, later ones are refused at once until the stream serves.

use paritas_protocol::{Event, Parameters, Port};
use paritas_testbed::{Client, Cluster};
use paritas_wire::command;
use paritas_wire::peer::Message;

/// How long a command waits, in milliseconds: twice the lease, since that exceeds twice the suspicion time here.
const WAIT_MS: u64 = 4_000;
const TRYAGAIN: &str = "-TRYAGAIN The owner of this key is being replaced\r\n";
const CLUSTERDOWN: &str = "-CLUSTERDOWN The cluster is down\r\n";

/// A key in the `part`-th of `parts` equal parts of the slots.
fn key_in(part: u16, parts: u16) -> String {
    let mut keys = (0..).map(|i| format!("k{i}"));
    keys.find(|key| command::slot(key.as_bytes()) / (16384 / parts) == part)
        .unwrap()
}

/// The client's replies once `ms` milliseconds have passed.
fn replies_after(cluster: &mut Cluster, client: Client, ms: u64) -> String {
    cluster.pump();
    cluster.advance(ms);
    String::from_utf8(cluster.take(client)).unwrap()
}

/// A cluster, a client of node 1, and two keys that have a value: node 0 owns `theirs`, node 1 owns `own`. Node 2 is
/// the parity node, node 3 a spare.
fn coded() -> (Cluster, Client, String, String) {
    let mut cluster = Cluster::coded(2, 1, 1, 1, Parameters::default());
    let client = cluster.connect(1, Port::Any);
    let (theirs, own) = (key_in(0, 2), key_in(1, 2));
    assert_eq!(cluster.ask(client, &format!("SET {theirs} 1")), "+OK\r\n");
    assert_eq!(cluster.ask(client, &format!("SET {own} 2")), "+OK\r\n");
    (cluster, client, theirs, own)
}

/// Loses all frames that a node sends.
fn silence(cluster: &mut Cluster, node: usize) {
    cluster.tamper = Some(Box::new(move |from, _, _, _| (from == node).then(Vec::new)));
}

#[test]
fn several_commands_for_a_dead_owner_wait_once_and_then_not_at_all() {
    let (mut cluster, client, theirs, own) = coded();
    cluster.kill(0);
    let line = format!("GET {theirs}\r\nSET {theirs} 3\r\nGET {theirs}\r\nMGET {own} {theirs}\r\nGET {own}\r\n");
    let replies = format!("{TRYAGAIN}{CLUSTERDOWN}{TRYAGAIN}{TRYAGAIN}$1\r\n2\r\n");
    cluster.feed(client, line.as_bytes());
    assert_eq!(replies_after(&mut cluster, client, WAIT_MS - 10), "");
    assert_eq!(replies_after(&mut cluster, client, 20), replies);
    for _ in 0..3 {
        cluster.feed(client, line.as_bytes());
        assert_eq!(replies_after(&mut cluster, client, 0), replies);
        cluster.advance(1_000);
    }
    // The refused write was not executed.
    cluster.hand_over(0, 0, 3);
    assert_eq!(cluster.ask(client, &format!("GET {theirs}")), "$1\r\n1\r\n");
}

#[test]
fn commands_for_a_silent_owner_are_refused_at_once_until_it_is_heard() {
    let (mut cluster, client, theirs, own) = coded();
    silence(&mut cluster, 0);
    let line = format!("GET {theirs}\r\nGET {theirs}\r\nGET {own}\r\n");
    cluster.feed(client, line.as_bytes());
    assert_eq!(replies_after(&mut cluster, client, WAIT_MS - 10), "");
    let replies = format!("{TRYAGAIN}{TRYAGAIN}$1\r\n2\r\n");
    assert_eq!(replies_after(&mut cluster, client, 20), replies);
    for _ in 0..3 {
        cluster.feed(client, line.as_bytes());
        assert_eq!(replies_after(&mut cluster, client, 0), replies);
        cluster.advance(1_000);
    }
    // Node 1 finds out by itself, without a command, that node 0 answers again.
    cluster.tamper = None;
    cluster.advance(500);
    cluster.feed(client, line.as_bytes());
    assert_eq!(
        replies_after(&mut cluster, client, 0),
        "$1\r\n1\r\n$1\r\n1\r\n$1\r\n2\r\n"
    );
}

#[test]
fn a_write_that_a_silent_owner_may_have_done_is_uncertain_and_a_later_one_is_refused() {
    let (mut cluster, client, theirs, own) = coded();
    // Node 0 executes the write, but all frames that it sends are lost.
    silence(&mut cluster, 0);
    cluster.feed(client, format!("SET {theirs} 3\r\nGET {own}\r\n").as_bytes());
    let lease_ms = Parameters::default().lease.as_ms();
    assert_eq!(replies_after(&mut cluster, client, WAIT_MS + lease_ms - 10), "");
    let replies = replies_after(&mut cluster, client, 300);
    assert!(
        replies.starts_with("-UNCERTAIN") && replies.ends_with("\r\n$1\r\n2\r\n"),
        "{replies:?}"
    );
    cluster.feed(client, format!("SET {theirs} 4\r\n").as_bytes());
    assert_eq!(replies_after(&mut cluster, client, 0), CLUSTERDOWN);
    cluster.tamper = None;
    cluster.advance(500);
    assert_eq!(cluster.ask(client, &format!("GET {theirs}")), "$1\r\n3\r\n");
}

#[test]
fn a_read_that_ends_an_expired_key_is_never_uncertain() {
    let (mut cluster, client, _, own) = coded();
    assert_eq!(cluster.ask(client, &format!("SET {own} 2 PX 500")), "+OK\r\n");
    // The acks of the parity node are lost, so the deletion of the expired key is never acknowledged.
    silence(&mut cluster, 2);
    cluster.now.wall_ms += 1_000;
    cluster.feed(client, format!("GET {own}\r\nDEL {own}\r\nINCR {own}\r\n").as_bytes());
    let replies = replies_after(&mut cluster, client, WAIT_MS + 2_000);
    let lines: Vec<&str> = replies.lines().collect();
    assert_eq!(lines.len(), 3, "{replies:?}");
    // The key had expired, so DEL changed nothing. INCR made a change.
    assert!(
        lines[0].starts_with("-TRYAGAIN") && lines[1].starts_with("-TRYAGAIN"),
        "{replies:?}"
    );
    assert!(lines[2].starts_with("-UNCERTAIN"), "{replies:?}");
}

/// The owner serves, but no parity node answers it.
#[test]
fn commands_that_wait_for_acks_in_vain_wait_once() {
    let (mut cluster, client, _, own) = coded();
    let other = (0..)
        .map(|n| format!("o{n}"))
        .find(|key| command::slot(key.as_bytes()) >= 8192)
        .unwrap();
    silence(&mut cluster, 2);
    cluster.feed(client, format!("SET {own} 3\r\n").as_bytes());
    assert_eq!(replies_after(&mut cluster, client, WAIT_MS - 10), "");
    let reply = replies_after(&mut cluster, client, 300);
    assert!(reply.starts_with("-UNCERTAIN"), "{reply:?}");
    // No lease is left either, so no key can be read.
    let line = format!("GET {own}\r\nSET {other} 4\r\nGET {other}\r\nMSET {own} 5 {other} 5\r\nINCR {own}\r\n");
    for there in [client, cluster.connect(0, Port::Any)] {
        cluster.feed(there, line.as_bytes());
        let replies = replies_after(&mut cluster, there, 0);
        assert_eq!(
            replies,
            [TRYAGAIN, CLUSTERDOWN, TRYAGAIN, CLUSTERDOWN, CLUSTERDOWN].concat()
        );
    }
    cluster.tamper = None;
    cluster.advance(1_000);
    assert_eq!(cluster.ask(client, &format!("GET {own}")), "$1\r\n3\r\n");
    assert_eq!(cluster.ask(client, &format!("SET {other} 6")), "+OK\r\n");
    assert_eq!(cluster.ask(client, &format!("GET {other}")), "$1\r\n6\r\n");
}

#[test]
fn writes_wait_once_also_if_a_read_has_waited_for_leases_before() {
    let (mut cluster, client, _, own) = coded();
    silence(&mut cluster, 2);
    // The leases end, and nothing is unacknowledged.
    cluster.advance(WAIT_MS);
    cluster.feed(client, format!("GET {own}\r\n").as_bytes());
    assert_eq!(replies_after(&mut cluster, client, WAIT_MS + 300), TRYAGAIN);
    cluster.feed(client, format!("SET {own} 3\r\n").as_bytes());
    let reply = replies_after(&mut cluster, client, WAIT_MS + 300);
    assert!(reply.starts_with("-UNCERTAIN"), "{reply:?}");
    cluster.feed(client, format!("SET {own} 4\r\nGET {own}\r\n").as_bytes());
    assert_eq!(replies_after(&mut cluster, client, 0), [CLUSTERDOWN, TRYAGAIN].concat());
}

/// The acks of the parity node are late once. What comes behind it is answered.
#[test]
fn acks_that_come_after_all_end_the_refusals() {
    let (mut cluster, client, _, own) = coded();
    silence(&mut cluster, 2);
    cluster.feed(client, format!("SET {own} 3\r\n").as_bytes());
    let reply = replies_after(&mut cluster, client, WAIT_MS + 300);
    assert!(reply.starts_with("-UNCERTAIN"), "{reply:?}");
    cluster.tamper = None;
    cluster.advance(1_000);
    // The next failure starts a new wait.
    silence(&mut cluster, 2);
    cluster.feed(client, format!("SET {own} 4\r\nGET {own}\r\n").as_bytes());
    assert_eq!(replies_after(&mut cluster, client, WAIT_MS - 10), "");
    let replies = replies_after(&mut cluster, client, 300);
    assert!(
        replies.starts_with("-UNCERTAIN") && replies.ends_with(TRYAGAIN),
        "{replies:?}"
    );
}

/// The new owner serves, but a chunk cannot be reconstructed while node 1 is silent.
#[test]
fn commands_for_a_chunk_that_cannot_be_reconstructed_wait_once() {
    let (mut cluster, client, theirs, _) = coded();
    silence(&mut cluster, 1);
    cluster.kill(0);
    cluster.hand_over(0, 0, 3);
    let there = cluster.connect(3, Port::Any);
    let line = format!("GET {theirs}\r\nSET {theirs} 3\r\n");
    cluster.feed(there, line.as_bytes());
    assert_eq!(replies_after(&mut cluster, there, WAIT_MS - 10), "");
    assert_eq!(
        replies_after(&mut cluster, there, 300),
        [TRYAGAIN, CLUSTERDOWN].concat()
    );
    for _ in 0..3 {
        cluster.feed(there, line.as_bytes());
        assert_eq!(replies_after(&mut cluster, there, 0), [TRYAGAIN, CLUSTERDOWN].concat());
        cluster.advance(1_000);
    }
    cluster.tamper = None;
    cluster.advance(1_500);
    assert_eq!(cluster.ask(there, &format!("GET {theirs}")), "$1\r\n1\r\n");
    assert_eq!(cluster.ask(client, &format!("GET {theirs}")), "$1\r\n1\r\n");
}

#[test]
fn commands_for_several_dead_owners_wait_together() {
    let mut cluster = Cluster::new(4);
    let client = cluster.connect(0, Port::Any);
    let keys: Vec<String> = (0..4).map(|part| key_in(part, 4)).collect();
    cluster.ask(client, &format!("SET {} 1", keys[0]));
    for node in 1..4 {
        cluster.kill(node);
    }
    let line: String = [1, 0, 2, 0, 3, 0]
        .map(|part: usize| format!("GET {}\r\n", keys[part]))
        .concat();
    cluster.feed(client, line.as_bytes());
    assert_eq!(replies_after(&mut cluster, client, WAIT_MS - 10), "");
    assert_eq!(
        replies_after(&mut cluster, client, 20),
        format!("{TRYAGAIN}$1\r\n1\r\n").repeat(3)
    );
}

/// The coordinator is away, so this node knows of no list. It knows all streams from the cluster's record.
#[test]
fn commands_at_a_node_without_a_configuration_wait_together() {
    let mut cluster = Cluster::coded(2, 1, 2, 1, Parameters::default());
    cluster.kill(3);
    cluster.begin_anew(3);
    let client = cluster.connect(3, Port::Any);
    let line: String = (0..4).map(|part| format!("GET {}\r\n", key_in(part, 4))).collect();
    cluster.feed(client, line.as_bytes());
    assert_eq!(replies_after(&mut cluster, client, WAIT_MS - 10), "");
    assert_eq!(replies_after(&mut cluster, client, 20), TRYAGAIN.repeat(4));
    cluster.feed(client, line.as_bytes());
    assert_eq!(replies_after(&mut cluster, client, 0), TRYAGAIN.repeat(4));
}

/// A successor that cannot read the log refuses commands of all clients, also those that other nodes forward.
#[test]
fn a_takeover_that_is_stuck_makes_commands_wait_once_wherever_they_come_from() {
    let (mut cluster, client, theirs, own) = coded();
    silence(&mut cluster, 2);
    cluster.kill(0);
    cluster.hand_over(0, 0, 3);
    let there = cluster.connect(3, Port::Any);
    let reads = format!("GET {theirs}\r\n").repeat(4);
    cluster.feed(client, format!("{reads}SET {theirs} 3\r\nECHO 2\r\n").as_bytes());
    cluster.feed(there, format!("{reads}SET {theirs} 3\r\nECHO 2\r\n").as_bytes());
    assert_eq!(replies_after(&mut cluster, client, WAIT_MS - 10), "");
    cluster.advance(20);
    for client in [client, there] {
        let replies = replies_after(&mut cluster, client, 0);
        assert_eq!(
            replies,
            format!("{}{CLUSTERDOWN}$1\r\n2\r\n", TRYAGAIN.repeat(4)),
            "{client:?}"
        );
    }
    for client in [client, there, client, there] {
        cluster.feed(client, reads.as_bytes());
        assert_eq!(replies_after(&mut cluster, client, 0), TRYAGAIN.repeat(4), "{client:?}");
    }
    cluster.tamper = None;
    cluster.advance(3_000);
    for client in [client, there] {
        assert_eq!(cluster.ask(client, &format!("GET {theirs}")), "$1\r\n1\r\n");
        assert_eq!(cluster.ask(client, &format!("GET {own}")), "$1\r\n2\r\n");
    }
}

/// That the successor answered once, before it was silent, does not let later commands wait for it anew.
#[test]
fn a_successor_that_ran_and_then_fell_silent_makes_commands_wait_once() {
    let (mut cluster, client, theirs, _) = coded();
    silence(&mut cluster, 2);
    cluster.kill(0);
    cluster.feed(client, format!("GET {theirs}\r\n").as_bytes());
    assert_eq!(replies_after(&mut cluster, client, 100), "");
    cluster.hand_over(0, 0, 3);
    assert_eq!(replies_after(&mut cluster, client, 1_000), "");
    cluster.tamper = Some(Box::new(|from, _, _, _| (from >= 2).then(Vec::new)));
    assert_eq!(replies_after(&mut cluster, client, WAIT_MS - 1_100 - 10), "");
    assert_eq!(replies_after(&mut cluster, client, 20), TRYAGAIN);
    for _ in 0..3 {
        cluster.feed(client, format!("GET {theirs}\r\nSET {theirs} 3\r\n").as_bytes());
        let replies = replies_after(&mut cluster, client, 0);
        assert_eq!(replies, [TRYAGAIN, CLUSTERDOWN].concat());
        cluster.advance(1_000);
    }
    cluster.tamper = None;
    cluster.advance(3_000);
    assert_eq!(cluster.ask(client, &format!("GET {theirs}")), "$1\r\n1\r\n");
}

#[test]
fn a_takeover_within_the_time_that_one_may_take_is_waited_for() {
    let (mut cluster, client, theirs, _) = coded();
    cluster.kill(0);
    let line = format!("GET {theirs}\r\n").repeat(4);
    cluster.feed(client, line.as_bytes());
    assert_eq!(replies_after(&mut cluster, client, WAIT_MS - 500), "");
    cluster.hand_over(0, 0, 3);
    assert_eq!(replies_after(&mut cluster, client, 100), "$1\r\n1\r\n".repeat(4));
    // The next failure starts a new wait.
    cluster.kill(3);
    cluster.feed(client, line.as_bytes());
    assert_eq!(replies_after(&mut cluster, client, WAIT_MS - 10), "");
    assert_eq!(replies_after(&mut cluster, client, 20), TRYAGAIN.repeat(4));
}

/// After a wait for one stream of a silent node, commands for its other streams are refused too. When the node is heard
/// again, all its streams are served.
#[test]
fn all_streams_of_a_silent_owner_are_refused_once_one_has_been_waited_for() {
    let mut cluster = Cluster::coded(2, 1, 6, 3, Parameters::default());
    let client = cluster.connect(5, Port::Any);
    // List n has two streams and is on three of the six nodes. `owner` below tells which node owns a stream.
    let keys: Vec<String> = (0..12).map(|part| key_in(part, 12)).collect();
    for key in &keys {
        assert_eq!(cluster.ask(client, &format!("SET {key} 1")), "+OK\r\n");
    }
    silence(&mut cluster, 0);
    let owned: Vec<&String> = {
        let owner = |part: usize| (part % 2 + part / 2) % 3;
        (0..12)
            .filter(|part| owner(*part) == 0)
            .map(|part| &keys[part])
            .collect()
    };
    assert_eq!(owned.len(), 4);
    cluster.feed(client, format!("GET {}\r\n", owned[0]).as_bytes());
    assert_eq!(replies_after(&mut cluster, client, WAIT_MS + 10), TRYAGAIN);
    for key in &owned {
        assert_eq!(cluster.ask(client, &format!("GET {key}")), TRYAGAIN);
        assert_eq!(cluster.ask(client, &format!("SET {key} 2")), CLUSTERDOWN);
    }
    cluster.tamper = None;
    cluster.advance(300);
    for key in &owned {
        assert_eq!(cluster.ask(client, &format!("GET {key}")), "$1\r\n1\r\n");
    }
}

/// The only client that waited has disconnected, so no reply shows that the owner is heard again.
#[test]
fn a_pause_of_an_owner_has_nothing_refused_later() {
    let (mut cluster, client, theirs, _) = coded();
    let gone = cluster.connect(1, Port::Any);
    silence(&mut cluster, 0);
    cluster.feed(gone, format!("GET {theirs}\r\n").as_bytes());
    cluster.pump();
    cluster.advance(600);
    cluster.event(1, Event::ClientDown { conn: gone.conn });
    cluster.tamper = None;
    cluster.advance(WAIT_MS - 610);
    // This command arrives just before the wait would end, and runs in the first turn that might refuse it.
    cluster.feed(client, format!("GET {theirs}\r\n").as_bytes());
    cluster.advance(10);
    assert_eq!(replies_after(&mut cluster, client, 0), "$1\r\n1\r\n");
}

/// One lost reply of an owner does not make other commands for it wait or be refused.
#[test]
fn a_command_that_is_slow_at_a_live_owner_has_no_other_refused() {
    let (mut cluster, client, theirs, _) = coded();
    let other = cluster.connect(1, Port::Any);
    let mut first = true;
    cluster.tamper = Some(Box::new(move |from, _, _, message| {
        let lost = from == 0 && matches!(message, Message::Reply { .. }) && core::mem::take(&mut first);
        lost.then(Vec::new)
    }));
    cluster.feed(client, format!("GET {theirs}\r\n").as_bytes());
    for _ in 0..2 * WAIT_MS / 100 {
        cluster.advance(100);
        assert_eq!(cluster.ask(other, &format!("GET {theirs}")), "$1\r\n1\r\n");
    }
    assert_eq!(replies_after(&mut cluster, client, 0), TRYAGAIN);
}
