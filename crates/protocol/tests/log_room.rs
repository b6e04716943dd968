//! Space on a log node's disk, which many lists share (P8.2, P11.1). Scheme `2+2/1` on nodes 0 to 3. Node 3 has the
//! disk. It has fewer chunks than all lists together ask for ahead of use.

use paritas_base::ListId;
use paritas_base::configuration::{Assignment, PositionState};
use paritas_protocol::paritylog::Layout;
use paritas_protocol::{Parameters, Port, Proposal};
use paritas_testbed::{Client, Cluster, tenure};
use std::collections::BTreeSet;

const LISTS: u16 = 40;
const KEYS: usize = 1_000;
const LOG_NODE: usize = 3;

fn value(n: usize) -> String {
    format!("{}{n}", "x".repeat(1_000))
}

fn filled() -> (Cluster, Client) {
    let mut cluster = Cluster::logged_lists(LISTS, (2, 2, 1), 0, Layout::Plm, Parameters::default());
    let client = cluster.connect(0, Port::Any);
    for n in 0..KEYS {
        cluster.feed(client, format!("SET key{n} {}\r\n", value(n)).as_bytes());
        cluster.advance(10);
    }
    cluster.advance(5_000);
    (cluster, client)
}

#[test]
fn lists_that_come_first_leave_room_for_all() {
    let (mut cluster, client) = filled();
    let replies = String::from_utf8(cluster.take(client)).unwrap();
    assert_eq!(replies, "+OK\r\n".repeat(KEYS));
}

#[test]
fn positions_that_begin_first_leave_the_others_what_they_refill() {
    let (mut cluster, client) = filled();
    cluster.take(client);
    for list in 0..LISTS {
        cluster.reconfigure(list.into(), |c| c.positions[LOG_NODE] = None);
    }
    cluster.disk(LOG_NODE).wipe();
    for list in 0..LISTS {
        cluster.reconfigure(list.into(), |c| {
            c.positions[LOG_NODE] = Some(Assignment {
                tenure: tenure(LOG_NODE, c.epoch.0),
                state: PositionState::Filling,
            });
        });
    }
    cluster.advance(2_000);
    let proposals = core::mem::take(&mut cluster.processes[LOG_NODE].out.proposals);
    let live = proposals.iter().filter_map(|proposal| match proposal {
        Proposal::AskLive { list, .. } => Some(list.0),
        _ => None,
    });
    assert_eq!(live.collect::<BTreeSet<u16>>(), (0..LISTS).collect());
    // No list lacks disk space for further writes.
    for n in 0..KEYS {
        cluster.feed(client, format!("SET more{n} {}\r\n", value(n)).as_bytes());
        cluster.advance(10);
    }
    cluster.advance(5_000);
    assert_eq!(cluster.take(client), "+OK\r\n".repeat(KEYS).into_bytes());
}

/// Writes new keys until one is refused: how many stripes the log node has then.
fn fill(slots: u32) -> usize {
    let mut cluster = Cluster::logged_in(slots, 1, (2, 2, 1), 0, Layout::Plm, Parameters::default());
    let client = cluster.connect(0, Port::Any);
    for n in 0.. {
        cluster.feed(client, format!("SET key{n} {}\r\n", "x".repeat(8_000)).as_bytes());
        let mut reply = Vec::new();
        for _ in 0..100 {
            cluster.advance(10);
            reply = cluster.take(client);
            if !reply.is_empty() {
                break;
            }
        }
        if reply.starts_with(b"-OOM") {
            break;
        }
        assert_eq!(reply, b"+OK\r\n", "key{n}");
    }
    let list = cluster.processes[LOG_NODE].node.replica().list(ListId(0)).unwrap();
    list.member().unwrap().valid_stripes().count()
}

#[test]
fn one_list_alone_can_have_what_is_not_kept_for_refills() {
    for slots in [100, 400, 1_100] {
        let stripes = fill(slots);
        let most = (slots - 4 - slots / 32) / 8 * 7;
        assert!(stripes as u32 * 5 > most * 4, "{stripes} of {most}");
    }
}

#[test]
fn a_list_that_is_large_beside_its_disk_grows_while_it_is_refilled() {
    let slow = Parameters {
        rebuild_rate: Some(256 << 10),
        ..Parameters::default()
    };
    let mut cluster = Cluster::logged_in(1_000, 1, (2, 2, 1), 0, Layout::Plm, slow);
    let client = cluster.connect(0, Port::Any);
    let set = |cluster: &mut Cluster, from: usize, count: usize| {
        for n in from..from + count {
            cluster.feed(client, format!("SET key{n} {}\r\n", "x".repeat(8_000)).as_bytes());
            cluster.advance(10);
        }
        cluster.advance(1_000);
        assert_eq!(cluster.take(client), "+OK\r\n".repeat(count).into_bytes());
    };
    cluster.reconfigure(0, |c| c.positions[LOG_NODE] = None);
    set(&mut cluster, 0, 800);
    cluster.hand_over(0, LOG_NODE as u8, LOG_NODE);
    let left = |cluster: &Cluster| cluster.processes[LOG_NODE].node.figures().rebuild_todo_bytes;
    set(&mut cluster, 800, 10);
    let before = left(&cluster);
    set(&mut cluster, 810, 100);
    let after = left(&cluster);
    assert!(before > 0 && after > 0, "while it is refilled: {before}, {after}");
}
