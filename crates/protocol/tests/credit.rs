//! A write that finds no stripe credit waits for it, and is refused only when it has waited long (P8.2).

use paritas_base::configuration::PositionState;
use paritas_base::{Stripe, Version};
use paritas_protocol::{Parameters, Port, Proposal};
use paritas_testbed::{Client, Cluster};
use paritas_wire::peer::{self, Message};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

const KEYS: usize = 60;
const VALUE_BYTES: usize = 60_000;

/// `2+1`, just started, whose members have no more to grant; and more writes in one turn than there is credit for.
fn more_than_granted() -> (Cluster, Client) {
    let mut cluster = Cluster::coded(2, 1, 1, 0, Parameters::default());
    let client = cluster.connect(0, Port::Any);
    cluster.tamper = Some(Box::new(|_, _, header, message| match message {
        Message::Credit { term, window_bytes, .. } => {
            let nothing_more = Message::Credit {
                term: *term,
                data_end: 0,
                index_end: 0,
                window_bytes: *window_bytes,
            };
            let mut frame = Vec::new();
            peer::encode(&mut frame, header, &nothing_more);
            Some(frame)
        }
        _ => None,
    }));
    let value = "v".repeat(VALUE_BYTES);
    let mut commands = String::new();
    for n in 0..KEYS {
        let key = format!("{{a}}{n:02}");
        commands += &format!(
            "*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${VALUE_BYTES}\r\n{value}\r\n",
            key.len()
        );
    }
    cluster.feed(client, commands.as_bytes());
    cluster.pump();
    (cluster, client)
}

fn replies(cluster: &mut Cluster, client: Client) -> String {
    String::from_utf8(cluster.take(client)).unwrap()
}

#[test]
fn a_write_soon_after_the_start_waits_for_credit_too() {
    let (mut cluster, client) = more_than_granted();
    let at_once = replies(&mut cluster, client);
    assert!(!at_once.contains('-'), "{at_once}");
    assert!(at_once.len() < KEYS * 5, "there was credit for all");
    cluster.tamper = None;
    cluster.advance(1_000);
    let later = replies(&mut cluster, client);
    assert_eq!(at_once + &later, "+OK\r\n".repeat(KEYS));
}

#[test]
fn a_write_that_has_waited_long_for_credit_is_refused() {
    let (mut cluster, client) = more_than_granted();
    cluster.advance(2_000);
    let all = replies(&mut cluster, client);
    assert!(all.starts_with("+OK\r\n") && all.contains("-OOM "), "{all}");
}

/// A `2+2` list with `values` values, whose parity position 2 goes to the spare node. Credit requests of owner 1 to it
/// are lost; with `vacant`, owner 1's position is vacant. Returns what the new member grants owner 0.
fn granted_before_all_is_known(values: usize, vacant: bool) -> (Cluster, Client, u32) {
    let mut cluster = Cluster::coded(2, 2, 1, 1, Parameters::default());
    let client = cluster.connect(0, Port::Any);
    let value = "v".repeat(VALUE_BYTES);
    for n in 0..values {
        cluster.feed(client, format!("SET key{n} {value}\r\n").as_bytes());
        cluster.pump();
    }
    cluster.advance(2_000);
    assert_eq!(replies(&mut cluster, client), "+OK\r\n".repeat(values));
    let granted = Rc::new(Cell::new(0));
    let seen = granted.clone();
    cluster.tamper = Some(Box::new(move |from, to, header, message| match message {
        Message::CreditRequest { .. } | Message::Alloc { .. } if (from, to) == (1, 4) => Some(Vec::new()),
        Message::Credit { data_end, .. } if (from, to) == (4, 0) => {
            seen.set(seen.get().max(*data_end));
            let mut frame = Vec::new();
            peer::encode(&mut frame, header, message);
            Some(frame)
        }
        _ => None,
    }));
    if vacant {
        cluster.kill(1);
        cluster.reconfigure(0, |c| c.positions[1] = None);
    }
    cluster.hand_over(0, 2, 4);
    cluster.advance(100);
    let granted = granted.get();
    (cluster, client, granted)
}

/// What was there before a parity came, and it has not heard of yet, has the first call on its memory.
#[test]
fn a_new_parity_keeps_room_for_what_it_does_not_know_yet() {
    // 16 MiB a node, of which either stream has five to six.
    let (mut cluster, client, granted) = granted_before_all_is_known(200, false);
    assert_eq!(granted, 0, "owner 1 may need it all");
    cluster.tamper = None;
    cluster.advance(5_000);
    let proposals = &cluster.processes[4].out.proposals;
    assert!(
        proposals.iter().any(|p| matches!(p, Proposal::AskLive { .. })),
        "{proposals:?}"
    );
    cluster.reconfigure(0, |c| {
        if let Some(parity) = &mut c.positions[2] {
            parity.state = PositionState::Live;
        }
    });
    assert_eq!(cluster.ask(client, "SET more 1"), "+OK\r\n");
}

/// With free memory for much more than is asked for, a new member grants at once.
#[test]
fn a_new_parity_with_much_free_memory_grants_at_once() {
    let (.., granted) = granted_before_all_is_known(20, false);
    assert!(granted > 0);
}

/// A vacant position asks for no credit, maybe for a long time. Writes to the other positions go on (P16).
#[test]
fn a_new_parity_does_not_wait_for_a_position_that_nobody_holds() {
    let (mut cluster, client, granted) = granted_before_all_is_known(200, true);
    assert!(granted > 0);
    let value = "w".repeat(VALUE_BYTES);
    let here = |key: &String| paritas_wire::command::slot(key.as_bytes()) < 8192;
    for key in (0..).map(|n| format!("more{n}")).filter(here).take(20) {
        assert_eq!(cluster.ask(client, &format!("SET {key} {value}")), "+OK\r\n");
    }
}

/// No table grows by what a frame says: neither that of a parity that begins anew, nor of an owner that takes over.
#[test]
fn a_list_of_stripes_that_cannot_be_is_not_taken() {
    for position in [2, 1] {
        let mut cluster = Cluster::coded(2, 1, 1, 1, Parameters::default());
        let client = cluster.connect(0, Port::Any);
        for n in 0..100 {
            cluster.ask(client, &format!("SET key{n} {n}"));
        }
        let mut many = Vec::new();
        Message::push_directory_entry(&mut many, Stripe::data(Stripe::NUMBER_MAX), Version(1 << 44));
        let told = Rc::new(Cell::new(0));
        let count = told.clone();
        cluster.tamper = Some(Box::new(move |_, _, header, message| {
            let (mut told, entries) = (message.clone(), &many);
            match &mut told {
                Message::Alloc { entries: of, .. } | Message::Directory { entries: of, .. } => *of = entries,
                _ => return None,
            }
            count.set(count.get() + 1);
            let mut frame = Vec::new();
            peer::encode(&mut frame, header, &told);
            Some(frame)
        }));
        cluster.hand_over(0, position, 3);
        cluster.advance(3_000);
        assert!(told.get() > 0, "it has asked");
        let bytes = cluster.processes[3].node.figures().table_bytes;
        assert!(bytes < 100_000, "{bytes} bytes of tables at position {position}");
        cluster.tamper = None;
        cluster.advance(3_000);
        let proposals = &cluster.processes[3].out.proposals;
        assert!(
            proposals.iter().any(|p| matches!(p, Proposal::AskLive { .. })),
            "{proposals:?}"
        );
    }
}

/// P8.6: the chunks of deleted values are freed at all members too.
#[test]
fn a_parity_chunk_is_released_when_all_data_chunks_of_its_stripe_are_freed() {
    let mut cluster = Cluster::coded(2, 1, 1, 0, Parameters::default());
    let client = cluster.connect(0, Port::Any);
    let value = "v".repeat(VALUE_BYTES);
    for n in 0..KEYS {
        assert_eq!(cluster.ask(client, &format!("SET key{n} {value}")), "+OK\r\n");
    }
    let parity_chunks = |cluster: &Cluster| {
        let replica = cluster.processes[2].node.replica();
        cluster.processes[2].node.figures().parity_bytes / replica.arena().chunk_bytes() as u64
    };
    // Stripes of which an owner has a chunk that is not freed.
    let stripes_in_use = |cluster: &Cluster| {
        let lists = cluster.processes.iter().flat_map(|p| p.node.replica().lists());
        let owners = lists.flat_map(|list| list.owners());
        let used = owners.flat_map(|owner| owner.store().chunks().stripes());
        let used = used.filter(|(_, version)| *version != Version::ZERO);
        used.map(|(stripe, _)| stripe).collect::<BTreeSet<Stripe>>().len() as u64
    };
    let written = parity_chunks(&cluster);
    assert_eq!(written, stripes_in_use(&cluster));
    for n in 0..KEYS {
        assert_eq!(cluster.ask(client, &format!("DEL key{n}")), ":1\r\n");
    }
    cluster.advance(2_000);
    let deleted = parity_chunks(&cluster);
    assert_eq!(deleted, stripes_in_use(&cluster));
    assert!(deleted < written / 2, "{deleted} of {written} parity chunks are left");
}
