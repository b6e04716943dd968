//! A log node: a parity member whose chunks are on a disk (P11). Scheme `2+2/1` on nodes 0 to 3, of which
//! node 3 has the disk, and a spare.

use paritas_base::configuration::{Assignment, PositionState};
use paritas_base::{ListId, NodeId, Position};
use paritas_protocol::paritylog::Layout;
use paritas_protocol::{Parameters, Port};
use paritas_testbed::{Client, Cluster, tenure};
use paritas_wire::peer::Message;
use std::cell::Cell;
use std::rc::Rc;

const KEYS: usize = 200;
const VALUE_BYTES: usize = 1000;
const LOG_NODE: usize = 3;

fn value(n: usize, round: usize) -> String {
    format!("{}{n}-{round}", "x".repeat(VALUE_BYTES))
}

fn write(cluster: &mut Cluster, client: Client, round: usize) {
    for n in 0..KEYS {
        let reply = cluster.ask(client, &format!("SET key{n} {}", value(n, round)));
        assert_eq!(reply, "+OK\r\n");
    }
}

/// With every key written twice, so that there are deltas.
fn filled(layout: Layout) -> (Cluster, Client) {
    let mut cluster = Cluster::logged(2, 2, 1, 1, layout, Parameters::default());
    let client = cluster.connect(1, Port::Any);
    for round in 0..2 {
        write(&mut cluster, client, round);
    }
    (cluster, client)
}

fn all_are(cluster: &mut Cluster, client: Client, round: usize) {
    for n in 0..KEYS {
        cluster.feed(client, format!("GET key{n}\r\n").as_bytes());
        cluster.advance(20);
        let reply = String::from_utf8(cluster.take(client)).unwrap();
        assert!(reply.ends_with(&format!("{}\r\n", value(n, round))), "key{n}: {reply}");
    }
}

#[test]
fn its_parity_takes_no_memory() {
    let (cluster, _) = filled(Layout::Plm);
    let figures = |at: usize| cluster.processes[at].node.figures();
    assert!(figures(2).parity_bytes >= 200 * 1000 / 2, "{:?}", figures(2));
    assert_eq!(figures(LOG_NODE).parity_bytes, 0);
    assert!(figures(LOG_NODE).log_bytes < figures(2).parity_bytes);
}

#[test]
fn with_an_owner_and_the_parity_in_memory_lost_the_disk_gives_everything_back() {
    for layout in [Layout::Pl, Layout::Plr, Layout::PlrM, Layout::Plm] {
        let (mut cluster, client) = filled(layout);
        cluster.kill(0);
        cluster.kill(2);
        cluster.reconfigure(0, |c| {
            c.positions[2] = None;
            c.gone = vec![
                (NodeId(0), tenure(0, 1).incarnation),
                (NodeId(2), tenure(2, 1).incarnation),
            ];
        });
        cluster.hand_over(0, 0, 4);
        cluster.advance(3_000);
        all_are(&mut cluster, client, 1);
        write(&mut cluster, client, 2);
        all_are(&mut cluster, client, 2);
    }
}

#[test]
fn writers_wait_while_its_disk_is_behind_and_go_on_when_it_is_not() {
    let (mut cluster, client) = filled(Layout::Plm);
    cluster.disk(LOG_NODE).held = true;
    let mut waiting = None;
    for n in 0..4 * KEYS {
        let reply = cluster.ask(client, &format!("SET other{n} {}", value(n, 0)));
        if reply.is_empty() {
            waiting = Some(n);
            break;
        }
        assert_eq!(reply, "+OK\r\n");
    }
    // Some 256 KiB may wait: nothing is dropped for want of memory.
    assert!(waiting.is_some_and(|n| n > 100), "{waiting:?}");
    cluster.advance(500);
    assert!(cluster.take(client).is_empty());
    assert_eq!(cluster.ask(client, "PING"), "", "replies keep their order");
    cluster.disk(LOG_NODE).held = false;
    cluster.advance(500);
    assert_eq!(cluster.take(client), b"+OK\r\n+PONG\r\n");
    all_are(&mut cluster, client, 1);
}

#[test]
fn a_position_that_comes_back_uses_what_is_on_its_disk() {
    let (mut cluster, client) = filled(Layout::Plm);
    cluster.reconfigure(0, |c| c.positions[3] = None);
    // One chunk changes meanwhile.
    let changed = cluster.ask(client, &format!("SET key7 {}", value(7, 2)));
    assert_eq!(changed, "+OK\r\n");
    let asked = Rc::new(Cell::new(0));
    let count = Rc::clone(&asked);
    cluster.tamper = Some(Box::new(move |from, _, _, message| {
        let fetches = from == LOG_NODE && matches!(message, Message::ReadChunk { .. });
        count.set(count.get() + usize::from(fetches));
        None
    }));
    cluster.reconfigure(0, |c| {
        c.positions[3] = Some(Assignment {
            tenure: tenure(LOG_NODE, c.epoch.0),
            state: PositionState::Filling,
        });
    });
    cluster.advance(1_000);
    let list = cluster.processes[LOG_NODE].node.replica().list(ListId(0)).unwrap();
    let stripes = list.member().unwrap().valid_stripes().count();
    // Two questions a stripe: its data chunk and the page of the index, if that changed too.
    assert!(
        stripes >= 8 && (1..=4).contains(&asked.get()),
        "{stripes} stripes, {}",
        asked.get()
    );
}

#[test]
fn a_disk_that_fails_ends_its_roles_and_no_write() {
    let (mut cluster, client) = filled(Layout::Plm);
    cluster.processes[LOG_NODE].out.halts = Some(Vec::new());
    cluster.disk(LOG_NODE).broken = true;
    for n in 0..KEYS {
        cluster.feed(client, format!("SET key{n} {}\r\n", value(n, 2)).as_bytes());
    }
    cluster.advance(3_000);
    let halted: Vec<Position> = cluster.processes[LOG_NODE]
        .node
        .replica()
        .halted()
        .map(|h| h.position)
        .collect();
    assert_eq!(halted, [Position(3)]);
    // The coordinator leaves the position vacant.
    cluster.reconfigure(0, |c| c.positions[3] = None);
    cluster.advance(1_000);
    assert_eq!(cluster.take(client), b"+OK\r\n".repeat(KEYS));
    all_are(&mut cluster, client, 2);
}
