//! Rebuilding keeps to the rate that was set, and what clients wait for does not (P6.8); without a rate it never
//! pauses, and what cannot be rebuilt does not keep the rest from it.

use paritas_base::{ListId, Stripe};
use paritas_protocol::{Parameters, Port};
use paritas_testbed::{Client, Cluster};
use paritas_wire::peer::Message;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

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
    loaded_with(1, KEYS, parameters)
}

fn loaded_with(lists: u16, keys: usize, parameters: Parameters) -> (Cluster, Client) {
    let mut cluster = Cluster::coded(2, 1, lists, 1, parameters);
    let client = cluster.connect(1, Port::Any);
    for n in 0..keys {
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

/// What commands asked for meanwhile was more than the rate allows, and is made up for no longer.
#[test]
fn a_rate_that_is_set_anew_holds_from_then_on() {
    let parameters = Parameters {
        rebuild_rate: Some(10_000),
        ..Parameters::default()
    };
    let (mut cluster, client) = loaded_with(1, KEYS, parameters);
    cluster.hand_over(0, 0, 3);
    cluster.advance(20);
    for n in 0..KEYS / 4 {
        cluster.ask(client, &format!("GET key{n}"));
    }
    let operator = cluster.connect(3, Port::Any);
    assert_eq!(cluster.ask(operator, "CONFIG SET rebuild-rate 0"), "+OK\r\n");
    cluster.advance(1_000);
    let figures = cluster.processes[3].node.figures();
    assert!(
        figures.rebuild_todo_bytes == 0 && figures.rebuild_done_bytes > BYTES_MIN,
        "{figures:?}"
    );
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

/// Another owner of list 0 does not answer requests for its chunks, and P10.3 forbids to remove it. So node 3 cannot
/// rebuild its position in list 0. It rebuilds its position in list 1 all the same.
#[test]
fn a_list_that_cannot_be_rebuilt_does_not_keep_another_from_it() {
    for stuck in [0, 2] {
        let parameters = Parameters::default();
        let fetch_max = parameters.fetch_max;
        let (mut cluster, _) = loaded_with(2, 2 * KEYS, parameters);
        let asked: Rc<RefCell<BTreeSet<Stripe>>> = Rc::default();
        let seen = asked.clone();
        cluster.tamper = Some(Box::new(move |_, _, header, message| {
            match message {
                Message::ReadChunk { stripe, .. } if header.stream.list == ListId(0) => {
                    seen.borrow_mut().insert(*stripe);
                }
                Message::ChunkValue { .. } if header.stream.list == ListId(0) => return Some(Vec::new()),
                _ => {}
            }
            None
        }));
        cluster.hand_over(0, stuck, 3);
        cluster.advance(1_000);
        assert_eq!(
            asked.borrow().len(),
            fetch_max,
            "the limit of the list, with more to reconstruct"
        );
        cluster.hand_over(1, 0, 3);
        cluster.advance(1_000);
        let list = cluster.processes[3].node.replica().list(ListId(1)).unwrap();
        let owner = list.owners().next().expect("node 3 is an owner");
        assert!(owner.is_whole(), "{} absent", owner.store().chunks().absent_count());
        assert_eq!(asked.borrow().len(), fetch_max);
    }
}

/// The driver here turns a node only when a frame has arrived or its deadline is reached. Links take no time, so the
/// clock moves only if a node waits for a timer.
#[test]
fn rebuilding_never_waits_for_a_timer_while_answers_come() {
    for position in [2, 0] {
        let (mut cluster, _) = loaded_with(1, 1_000, Parameters::default());
        let woken = Rc::new(RefCell::new([true; 4]));
        // The new configuration reaches all, and nothing is sent yet.
        cluster.cut = true;
        cluster.hand_over(0, position, 3);
        cluster.cut = false;
        let wakes = woken.clone();
        cluster.tamper = Some(Box::new(move |_, to, _, _| {
            wakes.borrow_mut()[to] = true;
            None
        }));
        let mut began = None;
        loop {
            let now = cluster.now.mono;
            let mut turned = false;
            for at in 0..4 {
                let due = cluster.processes[at].node.next_deadline().is_some_and(|t| t <= now);
                if core::mem::take(&mut woken.borrow_mut()[at]) || due {
                    cluster.turn(at);
                    turned = true;
                }
            }
            let figures = cluster.processes[3].node.figures();
            if figures.rebuild_done_bytes > 0 && began.is_none() {
                began = Some(now);
            }
            if figures.rebuild_done_bytes > BYTES_MIN && figures.rebuild_todo_bytes == 0 {
                break;
            }
            if !turned {
                let deadlines = cluster.processes.iter().filter_map(|p| p.node.next_deadline());
                cluster.now.mono = deadlines.min().unwrap();
            }
        }
        assert_eq!(began, Some(cluster.now.mono), "position {position}: it paused");
    }
}

/// Parts of large values are made at the rate too (P14.8).
#[test]
fn parts_of_large_values_are_made_no_faster_than_the_rate() {
    let parameters = Parameters {
        rebuild_rate: Some(RATE),
        ..Parameters::default()
    };
    let mut cluster = Cluster::coded(2, 1, 1, 1, parameters);
    let client = cluster.connect(1, Port::Any);
    let value = "x".repeat(1 << 20);
    for n in 0..4 {
        assert_eq!(
            cluster.ask_words(client, &["SET", &format!("key{n}"), &value]),
            "+OK\r\n"
        );
    }
    let part_bytes = |cluster: &Cluster, at: usize| cluster.processes[at].node.figures().part_bytes;
    let whole = part_bytes(&cluster, 2);
    assert!(whole > RATE, "{whole}");
    cluster.hand_over(0, 2, 3);
    for ms in (0..).step_by(10) {
        let made = part_bytes(&cluster, 3);
        // Those that were asked for together come together.
        let allowed = RATE * (ms + 40) / 1_000 + (320 << 10);
        assert!(made <= allowed, "{made} bytes after {ms} ms");
        if made == whole {
            break;
        }
        assert!(ms < 20_000, "{made} of {whole} bytes");
        cluster.advance(10);
    }
}

/// A part that is broken while it is written is made at once, whatever the rate is: its command waits.
#[test]
fn a_part_for_which_a_command_waits_is_made_without_regard_to_the_rate() {
    let parameters = Parameters {
        rebuild_rate: Some(10_000),
        ..Parameters::default()
    };
    let mut cluster = Cluster::coded(2, 2, 1, 1, parameters);
    let client = cluster.connect(1, Port::Any);
    let value = "x".repeat(1 << 20);
    for n in 0..2 {
        assert_eq!(
            cluster.ask_words(client, &["SET", &format!("key{n}"), &value]),
            "+OK\r\n"
        );
    }
    let part_bytes = |cluster: &Cluster, at: usize| cluster.processes[at].node.figures().part_bytes;
    let whole = part_bytes(&cluster, 2);
    cluster.hand_over(0, 3, 4);
    cluster.advance(500);
    let (mut is_lost, asked) = (false, Rc::new(RefCell::new(0)));
    let makes = asked.clone();
    cluster.tamper = Some(Box::new(move |_, to, _, message| {
        *makes.borrow_mut() += usize::from(to == 4 && matches!(message, Message::MakePart { .. }));
        let is_first = to == 4 && matches!(message, Message::PutUnit { .. }) && !is_lost;
        is_lost |= is_first;
        is_first.then(Vec::new)
    }));
    let mut reply = cluster.ask_words(client, &["SET", "another", &value]);
    for _ in 0..300 {
        if !reply.is_empty() {
            break;
        }
        cluster.advance(10);
        reply = String::from_utf8(cluster.take(client)).unwrap();
    }
    assert_eq!(reply, "+OK\r\n");
    assert!(*asked.borrow() > 0, "the part was made");
    let made = part_bytes(&cluster, 4);
    assert!(
        made >= whole / 2 && made < whole,
        "the others are made at the rate: {made} of {whole}"
    );
}
