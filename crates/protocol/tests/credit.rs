//! A write that finds no stripe credit waits for it, and is refused only when it has waited long (PROTOCOL 8.2).

mod support;

use paritas_protocol::{Parameters, Port};
use paritas_wire::peer::{self, Message};
use support::{Client, Cluster};

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
