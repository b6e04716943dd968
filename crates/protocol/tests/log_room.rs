//! Room on a log node's disk, which many lists share (PROTOCOL 8.2, 11.1). Scheme `2+2/1` on nodes 0 to 3, of which
//! node 3 has the disk; its chunks are fewer than what all lists ask for ahead of use.

mod support;

use paritas_base::configuration::{Assignment, PositionState};
use paritas_protocol::paritylog::Layout;
use paritas_protocol::{Parameters, Port, Proposal};
use std::collections::BTreeSet;
use support::{Client, Cluster, tenure};

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
    // And none of them lacks room to go on.
    for n in 0..KEYS {
        cluster.feed(client, format!("SET more{n} {}\r\n", value(n)).as_bytes());
        cluster.advance(10);
    }
    cluster.advance(5_000);
    assert_eq!(cluster.take(client), "+OK\r\n".repeat(KEYS).into_bytes());
}
