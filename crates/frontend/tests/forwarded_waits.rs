//! Forwarded commands: each may wait as long as a command of a client, even if earlier ones of its connection have
//! waited. A command without an answer ends.

use paritas_protocol::{Channel, Event, Parameters, Port};
use paritas_testbed::Cluster;
use paritas_wire::command;
use paritas_wire::peer::Message;

#[test]
fn a_second_full_window_makes_forwarded_writes_wait_like_the_first() {
    let parameters = Parameters {
        window_bytes: 8 << 10,
        ..Parameters::default()
    };
    let mut cluster = Cluster::coded(2, 1, 1, 1, parameters);
    // Node 0 owns the lower half of the slots, node 1 the upper half.
    let client = cluster.connect(1, Port::Any);
    let key = (0..)
        .map(|i| format!("k{i}"))
        .find(|key| command::slot(key.as_bytes()) < 8192)
        .unwrap();
    let value = "v".repeat(7_000);
    let line = format!("SET {key} {value}\r\nSET {key} {value}2\r\nSET {key} {value}\r\nSET {key} {value}2\r\n");
    for round in 0..2 {
        // Acks are 20 ms late.
        cluster.tamper = Some(Box::new(|_, _, _, message| {
            matches!(message, Message::Ack { .. }).then(Vec::new)
        }));
        cluster.feed(client, line.as_bytes());
        cluster.pump();
        cluster.advance(20);
        cluster.tamper = None;
        cluster.advance(1_000);
        let reply = String::from_utf8(cluster.take(client)).unwrap();
        assert_eq!(reply, "+OK\r\n".repeat(4), "round {round}");
        // Longer than the longest permitted wait.
        cluster.advance(10_000);
    }
}

/// The answer to one forwarded command is lost. Other commands of the node are answered all the time. This must not
/// delay the check for commands that have waited too long.
#[test]
fn a_forwarded_command_without_an_answer_ends_while_others_go_on() {
    let mut cluster = Cluster::coded(2, 1, 1, 1, Parameters::default());
    let client = cluster.connect(1, Port::Any);
    let other = cluster.connect(1, Port::Any);
    let key_of = |low: bool| {
        let mut keys = (0..).map(|i| format!("k{i}"));
        keys.find(|key| (command::slot(key.as_bytes()) < 8192) == low).unwrap()
    };
    let (theirs, own) = (key_of(true), key_of(false));
    cluster.tamper = Some(Box::new(|_, _, _, message| {
        matches!(message, Message::Reply { .. }).then(Vec::new)
    }));
    cluster.feed(client, format!("GET {theirs}\r\n").as_bytes());
    cluster.pump();
    cluster.tamper = None;
    let mut reply = Vec::new();
    let lease_ms = Parameters::default().lease.as_ms();
    for n in 0..4 * lease_ms {
        assert_eq!(cluster.ask(other, &format!("SET {own} {n}")), "+OK\r\n");
        cluster.advance(1);
        reply.extend(cluster.take(client));
    }
    let reply = String::from_utf8(reply).unwrap();
    assert!(reply.starts_with("-TRYAGAIN"), "{reply:?}");
}

/// After a long turn, the greeting of a peer's next link may be handled before the end of its previous link.
#[test]
fn what_was_forwarded_on_a_link_that_is_replaced_is_asked_again() {
    let mut cluster = Cluster::coded(2, 1, 1, 1, Parameters::default());
    let client = cluster.connect(1, Port::Any);
    let mut keys = (0..).map(|i| format!("k{i}"));
    let theirs = keys.find(|key| command::slot(key.as_bytes()) < 8192).unwrap();
    cluster.tamper = Some(Box::new(|_, _, _, message| {
        matches!(message, Message::Reply { .. }).then(Vec::new)
    }));
    cluster.feed(client, format!("GET {theirs}\r\n").as_bytes());
    cluster.pump();
    cluster.tamper = None;
    // Node 0 dialled the link. Only node 0 gets the event of its end, and it dials again.
    let link = cluster.link_between(0, 1, Channel::Main).unwrap();
    cluster.event(0, Event::LinkDown { link });
    cluster.pump();
    cluster.advance(100);
    let again = cluster.link_between(0, 1, Channel::Main).unwrap();
    assert!(again != link, "node 0 has not dialled again");
    assert_eq!(String::from_utf8(cluster.take(client)).unwrap(), "$-1\r\n");
}

/// A question to the coordinator or the disk is sent once and may be lost. After a time limit the client gets an error.
#[test]
fn a_question_that_nobody_answers_ends() {
    let mut cluster = Cluster::coded(2, 1, 1, 1, Parameters::default());
    let client = cluster.connect(1, Port::Any);
    cluster.feed(client, b"PARITAS.STATUS\r\nPING\r\n");
    cluster.pump();
    cluster.advance(9_000);
    assert_eq!(String::from_utf8(cluster.take(client)).unwrap(), "");
    cluster.advance(2_000);
    let replies = String::from_utf8(cluster.take(client)).unwrap();
    assert!(
        replies.starts_with("-ERR no answer") && replies.ends_with("\r\n+PONG\r\n"),
        "{replies:?}"
    );
}
