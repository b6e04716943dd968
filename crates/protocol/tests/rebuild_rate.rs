//! Rebuilding keeps to the rate that was set, and what clients wait for does not (SEAMS §5).

mod support;

use paritas_protocol::{Parameters, Port};
use support::{Client, Cluster};

const RATE: u64 = 1 << 20;
const KEYS: usize = 400;
/// The keys' values and index pages take some more than this on each of the two data positions.
const BYTES_MIN: u64 = 1 << 20;

/// `2+1` and a spare, with more than 2 MiB.
fn loaded() -> (Cluster, Client) {
    let parameters = Parameters {
        rebuild_rate: Some(RATE),
        ..Parameters::default()
    };
    let mut cluster = Cluster::coded(2, 1, 1, 1, parameters);
    let client = cluster.connect(1, Port::Any);
    for n in 0..KEYS {
        let value = format!("{n:0>6000}");
        assert_eq!(cluster.ask(client, &format!("SET key{n} {value}")), "+OK\r\n");
    }
    (cluster, client)
}

/// Milliseconds until node 3 has rebuilt everything, in which it was never ahead of its rate.
fn rebuilt_after_ms(cluster: &mut Cluster) -> u64 {
    for ms in (0..).step_by(10) {
        let figures = cluster.processes[3].node.figures();
        let allowed = RATE * (ms + 40) / 1_000 + (16 << 10);
        assert!(figures.rebuild_done_bytes <= allowed, "{figures:?} after {ms} ms");
        if figures.rebuild_done_bytes > BYTES_MIN && figures.rebuild_todo_bytes == 0 {
            return ms;
        }
        assert!(ms < 60_000, "{figures:?}");
        cluster.advance(10);
    }
    unreachable!()
}

#[test]
fn an_owner_comes_back_at_the_rate_and_serves_meanwhile() {
    let (mut cluster, client) = loaded();
    cluster.hand_over(0, 0, 3);
    cluster.advance(20);
    let todo = cluster.processes[3].node.figures().rebuild_todo_bytes;
    assert!(todo > BYTES_MIN, "{todo}");
    for n in (0..KEYS).step_by(40) {
        let reply = cluster.ask(client, &format!("GET key{n}"));
        assert!(
            reply.ends_with(&format!("{n:0>6000}\r\n")),
            "key{n} is answered at once"
        );
    }
    let done = cluster.processes[3].node.figures().rebuild_done_bytes;
    assert!(done < todo / 2, "{done} of {todo}");
}

#[test]
fn neither_an_owner_nor_a_parity_is_rebuilt_faster_than_the_rate() {
    for position in [0, 2] {
        let (mut cluster, _) = loaded();
        cluster.hand_over(0, position, 3);
        let ms = rebuilt_after_ms(&mut cluster);
        let done = cluster.processes[3].node.figures().rebuild_done_bytes;
        let expected = done * 1_000 / RATE;
        assert!(
            (expected * 8 / 10..expected * 15 / 10).contains(&ms),
            "position {position}: {done} bytes in {ms} ms"
        );
    }
}
