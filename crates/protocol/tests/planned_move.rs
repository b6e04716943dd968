//! An owner that is asked to leave (P5.12): it completes its writes and reports that. No waiting client gets an error.

use paritas_base::configuration::PositionState;
use paritas_base::{ListId, Position};
use paritas_protocol::{Event, Parameters, Port, Proposal};
use paritas_testbed::{Client, Cluster};
use paritas_wire::peer::Message;

/// One list of `1+1` on nodes 0 and 1, node 2 free; clients of nodes 0 and 1.
fn cluster() -> (Cluster, Client, Client) {
    let mut cluster = Cluster::coded(1, 1, 1, 1, Parameters::default());
    let (at_owner, at_peer) = (cluster.connect(0, Port::Any), cluster.connect(1, Port::Any));
    assert_eq!(cluster.ask(at_owner, "SET key before"), "+OK\r\n");
    (cluster, at_owner, at_peer)
}

fn ask_to_drain(cluster: &mut Cluster) {
    let list = ListId(0);
    let position = Position(0);
    let tenure = cluster.processes[0]
        .node
        .replica()
        .list(list)
        .unwrap()
        .configuration
        .tenure(position)
        .unwrap();
    cluster.event(0, Event::Drain { list, position, tenure });
    cluster.pump();
}

fn drained(cluster: &mut Cluster) -> usize {
    let proposals = core::mem::take(&mut cluster.processes[0].out.proposals);
    proposals
        .iter()
        .filter(|p| matches!(p, Proposal::Drained { .. }))
        .count()
}

fn text(cluster: &mut Cluster, client: Client) -> String {
    String::from_utf8(cluster.take(client)).unwrap()
}

#[test]
fn it_says_so_only_once_all_is_acknowledged_and_begins_no_write_meanwhile() {
    let (mut cluster, client, _) = cluster();
    // Acks do not come.
    cluster.tamper = Some(Box::new(|_, _, _, message| {
        matches!(message, Message::Ack { .. }).then(Vec::new)
    }));
    cluster.feed(client, b"SET key under-way\r\n");
    cluster.pump();
    ask_to_drain(&mut cluster);
    assert_eq!(drained(&mut cluster), 0, "a write is under way");
    cluster.feed(client, b"SET key waits\r\n");
    cluster.tamper = None;
    cluster.advance(300);
    assert_eq!(drained(&mut cluster), 1);
    assert_eq!(text(&mut cluster, client), "+OK\r\n", "only what was under way");
    // Reads of what is acknowledged go on, at another connection since replies keep their order.
    let reader = cluster.connect(0, Port::Any);
    assert_eq!(cluster.ask(reader, "GET key"), "$9\r\nunder-way\r\n");
    // The position is not given to another node, so the owner goes on.
    cluster.advance(600);
    assert_eq!(text(&mut cluster, client), "+OK\r\n");
    assert_eq!(cluster.ask(reader, "GET key"), "$5\r\nwaits\r\n");
    assert_eq!(drained(&mut cluster), 0);
}

#[test]
fn who_waits_at_an_owner_that_goes_is_served_by_the_next_and_told_no_error() {
    let (mut cluster, at_owner, at_peer) = cluster();
    ask_to_drain(&mut cluster);
    assert_eq!(drained(&mut cluster), 1);
    // One waits in its connection, the others have been forwarded, and wait at the owner.
    cluster.feed(at_owner, b"INCR n\r\n");
    cluster.feed(at_peer, b"INCR n\r\nSET key after\r\nGET key\r\nINCR n\r\n");
    cluster.pump();
    assert_eq!(text(&mut cluster, at_owner) + &text(&mut cluster, at_peer), "");
    cluster.hand_over(0, 0, 2);
    cluster.advance(200);
    let (one, others) = (text(&mut cluster, at_owner), text(&mut cluster, at_peer));
    let sum: Vec<&str> = one
        .lines()
        .chain(others.lines().filter(|l| l.starts_with(':')))
        .collect();
    assert_eq!(sum.len(), 3, "{one:?} {others:?}");
    let last = others.lines().last().unwrap();
    assert!(
        last == ":3" || (last == ":2" && one == ":3\r\n"),
        "each INCR once: {one:?} {others:?}"
    );
    assert!(others.contains("+OK\r\n$5\r\nafter\r\n"), "in order: {others:?}");
    let owner = cluster.processes[2]
        .node
        .replica()
        .list(ListId(0))
        .unwrap()
        .owner(Position(0))
        .unwrap();
    assert_eq!(owner.tenure().node.0, 2);
    // A Yielded has come: no lease was waited for.
    cluster.reconfigure(0, |c| {
        for a in c.positions.iter_mut().flatten() {
            a.state = PositionState::Live;
        }
    });
    assert_eq!(cluster.ask(at_peer, "GET n"), "$1\r\n3\r\n");
}
