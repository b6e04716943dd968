//! What a SET costs on the wire between nodes, counted: objects of MemEC's experiment (keys of 24 B, values of 8 and
//! 32 B) at `8+2`, in turns of one SET, of 16 and of 1,000. `cargo test -p paritas-protocol --test cluster
//! bytes_of_a_set -- --nocapture` prints the figures.

use paritas_base::Version;
use paritas_protocol::{Parameters, Port};
use paritas_store::delta::extents;
use paritas_testbed::Cluster;
use paritas_wire::peer::{self, Message};
use std::cell::Cell;
use std::rc::Rc;

/// Keys that are there before the first is counted, so that the index has some pages.
const BEFORE: usize = 20_000;
/// A SET changes less than this in an index page; a growth step of the index rewrites whole pages.
const ENTRY_BYTES_MAX: usize = 64;

/// Bytes between nodes for each of `sets` SETs of new keys, `batch` of them in a turn: without and with those of pages
/// that are rewritten as the index grows, in either case.
fn bytes_of_a_set(batch: usize, sets: usize) -> [f64; 2] {
    let mut cluster = Cluster::coded_in(64 << 20, 8, 2, 1, 0, Parameters::default());
    // One stream of the eight has all keys, that of node 4.
    let client = cluster.connect(4, Port::Cluster);
    let set = |n: usize| {
        let (key, value) = (format!("{{1}}{n:021}"), "v".repeat([8, 32][n % 2]));
        format!(
            "*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n{value}\r\n",
            key.len(),
            value.len()
        )
    };
    let send = |cluster: &mut Cluster, numbers: core::ops::Range<usize>| {
        let count = numbers.len();
        let commands: String = numbers.map(set).collect();
        cluster.feed(client, commands.as_bytes());
        cluster.pump();
        assert!(
            cluster.take(client) == b"+OK\r\n".repeat(count),
            "a SET was not answered OK"
        );
    };
    for first in (0..BEFORE).step_by(500) {
        send(&mut cluster, first..first + 500);
    }
    let counted = Rc::new(Cell::new((0, 0)));
    let sums = Rc::clone(&counted);
    cluster.tamper = Some(Box::new(move |_, _, header, message| {
        let mut frame = Vec::new();
        peer::encode(&mut frame, header, message);
        let rewritten = match message {
            Message::Delta { extents: bytes, .. } => extents(Version::ZERO, bytes, 16 << 10)
                .flatten()
                .filter(|extent| extent.stripe.is_index() && extent.xor.len() > ENTRY_BYTES_MAX)
                .map(|extent| extent.xor.len())
                .sum(),
            _ => 0,
        };
        let (all, growth) = sums.get();
        sums.set((all + frame.len(), growth + rewritten));
        None
    }));
    for first in (BEFORE..BEFORE + sets).step_by(batch) {
        send(&mut cluster, first..first + batch);
    }
    let (all, growth) = counted.get();
    [all - growth, all].map(|bytes| bytes as f64 / sets as f64)
}

#[test]
fn a_set_costs_few_bytes_between_nodes() {
    let turns = [(1, 2_000), (16, 8_000), (1_000, 8_000)];
    let figures = turns.map(|(batch, sets)| bytes_of_a_set(batch, sets));
    println!("bytes between nodes of a SET, without and with growth of the index, in turns of 1, 16 and 1,000:");
    println!("{figures:.1?}");
    // MemEC's own SET, without headers of messages, acks and an index: 146 (docs/papers/memec.md).
    let most = [200.0, 138.0, 132.0];
    let is_few = figures.iter().zip(most).all(|([bytes, _], most)| *bytes <= most);
    assert!(is_few, "{figures:.1?} of at most {most:?}");
}
