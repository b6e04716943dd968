//! Slots that move away and come back while commands are on their way: those of one connection keep their order.

use paritas_base::Position;
use paritas_base::hash_slots::SlotRange;
use paritas_protocol::{Channel, Event, Port};
use paritas_testbed::{Client, Cluster, following};
use paritas_wire::command;
use paritas_wire::peer::{self, Message};
use std::cell::RefCell;
use std::rc::Rc;

/// The first slot of node 1.
const SLOT: u16 = 8192;

/// A key of slot `SLOT`, and one of another slot of node 1.
fn keys() -> [String; 2] {
    let key = |is_it: fn(u16) -> bool| {
        let mut keys = (0..).map(|n| format!("k{n}"));
        keys.find(|key| is_it(command::slot(key.as_bytes()))).unwrap()
    };
    [key(|slot| slot == SLOT), key(|slot| slot > SLOT)]
}

/// `SLOT` moves to node 0, or back to node 1. The nodes `at` know it.
fn move_slot(cluster: &mut Cluster, version: u64, to: usize, at: &[usize]) {
    let middle = if to == 0 { SLOT } else { SLOT - 1 };
    for (list, first, last) in [(0, 0, middle), (1, middle + 1, 16383)] {
        let x = Position(0);
        let next = following(&cluster.configurations[list], |next| {
            (next.slots.version, next.slots.ranges) = (version, vec![SlotRange { first, last, x }]);
        });
        cluster.configurations[list] = next.clone();
        for node in at {
            cluster.event(*node, Event::Configuration(&next));
        }
    }
}

/// A client of node 0 sends a command, which is forwarded. Node 0 handles no answer.
fn send(cluster: &mut Cluster, client: Client, line: &str) {
    cluster.feed(client, line.as_bytes());
    cluster.turn(0);
}

fn answer(cluster: &mut Cluster, client: Client) -> String {
    cluster.pump();
    cluster.advance(500);
    String::from_utf8(cluster.take(client)).unwrap()
}

/// The owner refuses the first write, because the slot has moved. It has come back when the second one arrives
/// (simulator seed 83000891). With `knows` the node of the client learns all that before it gets the refusal.
#[test]
fn a_write_does_not_overtake_one_that_was_refused_before_its_slot_came_back() {
    for knows in [false, true] {
        for crowd in [0, 4_200] {
            let mut cluster = Cluster::new(2);
            let client = cluster.connect(0, Port::Any);
            let [key, other] = keys();
            move_slot(&mut cluster, 1, 0, &[1]);
            send(&mut cluster, client, &format!("SET {key} first GET\r\n"));
            let at: &[usize] = if knows { &[0, 1] } else { &[1] };
            move_slot(&mut cluster, 2, 1, at);
            // A node forgets idle clients of its peers when there are many.
            for _ in 0..crowd {
                let another = cluster.connect(0, Port::Any);
                cluster.feed(another, format!("GET {other}\r\n").as_bytes());
            }
            for _ in 0..10 {
                cluster.turn(0);
            }
            send(&mut cluster, client, &format!("SET {key} second GET\r\n"));
            let answer = answer(&mut cluster, client);
            assert_eq!(answer, "$-1\r\n$5\r\nfirst\r\n", "knows: {knows}, crowd: {crowd}");
        }
    }
}

/// Both writes come again. The slot moves away and comes back between them once more.
#[test]
fn a_write_that_comes_again_does_not_overtake_one_that_is_refused_again() {
    let mut cluster = Cluster::new(2);
    let client = cluster.connect(0, Port::Any);
    let [key, _] = keys();
    let frames = Rc::new(RefCell::new(Vec::new()));
    let held = Rc::clone(&frames);
    cluster.tamper = Some(Box::new(move |_, _, header, message| match message {
        // Node 0 never learns that the slot moves.
        Message::Stale { .. } => Some(Vec::new()),
        Message::Forward { command, .. } if command.windows(6).any(|word| word == b"second") => {
            let mut frame = Vec::new();
            peer::encode(&mut frame, header, message);
            held.borrow_mut().push(frame);
            Some(Vec::new())
        }
        _ => None,
    }));
    for round in 0..3 {
        move_slot(&mut cluster, 2 * round + 1, 0, &[1]);
        if round == 0 {
            let writes = format!("SET {key} first GET\r\nSET {key} second GET\r\n");
            send(&mut cluster, client, &writes);
        } else {
            cluster.now.mono.0 += 100_000_000;
            cluster.turn(0);
        }
        let link = cluster.link_between(0, 1, Channel::Main).unwrap();
        let second = frames.take();
        assert_eq!(second.len(), 1, "it is sent behind the first, round {round}");
        move_slot(&mut cluster, 2 * round + 2, 1, &[1]);
        cluster.hear(1, link, &second[0]);
        cluster.turn(1);
    }
    cluster.tamper = None;
    assert_eq!(answer(&mut cluster, client), "$-1\r\n$5\r\nfirst\r\n");
}

/// After a refusal, commands on other slots of the owner are answered.
#[test]
fn other_slots_of_an_owner_that_has_refused_a_command_are_served() {
    let mut cluster = Cluster::new(2);
    let client = cluster.connect(0, Port::Any);
    let [key, other] = keys();
    for (round, to) in [(1, 0), (2, 1), (3, 0)] {
        move_slot(&mut cluster, round, to, &[1]);
        send(
            &mut cluster,
            client,
            &format!("SET {key} {round}\r\nSET {other} {round}\r\n"),
        );
        // Node 0 learns it from node 1.
        assert_eq!(answer(&mut cluster, client), "+OK\r\n+OK\r\n", "round {round}");
        for key in [&key, &other] {
            send(&mut cluster, client, &format!("GET {key}\r\n"));
            assert_eq!(answer(&mut cluster, client), format!("$1\r\n{round}\r\n"));
        }
    }
}
