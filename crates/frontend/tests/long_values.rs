//! Long values: sent ahead of their command as they come, and read in pieces (P14.7, P14.13).

use paritas_protocol::{Parameters, Port};
use paritas_testbed::{Client, Cluster};
use paritas_wire::command;
use paritas_wire::peer::{Kind, Message};

/// Long enough to be staged here: a few pieces, and not a whole number of rows.
const BYTES: usize = 1_300_007;

/// `2+1` and a spare. Node 0 owns the key; node 3 owns nothing.
fn start() -> (Cluster, String) {
    let parameters = Parameters {
        streamed_bytes_min: 100_000,
        piece_bytes: 64 << 10,
        ..Parameters::default()
    };
    let cluster = Cluster::coded_in(64 << 20, 2, 1, 1, 1, parameters);
    let mut keys = (0..).map(|i| format!("k{i}"));
    let key = keys.find(|key| command::slot(key.as_bytes()) < 8192).unwrap();
    (cluster, key)
}

/// A value of this length.
pub(crate) fn value_of(bytes: usize, seed: usize) -> String {
    (0..bytes)
        .map(|i| char::from(b'a' + ((i * 7 + i / 1000 + seed) % 26) as u8))
        .collect()
}

fn value(seed: usize) -> String {
    value_of(BYTES, seed)
}

pub(crate) fn request(words: &[&str]) -> Vec<u8> {
    let mut request = Vec::new();
    paritas_wire::resp::encode::request(&mut request, words);
    request
}

pub(crate) fn ask(cluster: &mut Cluster, client: Client, words: &[&str]) -> String {
    cluster.feed(client, &request(words));
    cluster.advance(200);
    String::from_utf8(cluster.take(client)).unwrap()
}

/// Groups of parts that owners know.
fn groups(cluster: &Cluster) -> usize {
    let replicas = cluster.processes.iter().map(|process| process.node.replica());
    let owners = replicas.flat_map(|replica| replica.lists().flat_map(|list| list.owners()));
    owners.map(|owner| owner.ledger().alive_count()).sum()
}

fn is(reply: &str, value: &str) -> bool {
    reply == format!("${}\r\n{value}\r\n", value.len())
}

#[test]
fn a_long_value_that_comes_in_pieces_is_stored_whole_and_commands_keep_their_order() {
    for node in [0, 3] {
        let (mut cluster, key) = start();
        let client = cluster.connect(node, Port::Any);
        let (first, second) = (value(1), value(2));
        let mut bytes = request(&["SET", &key, "short"]);
        bytes.extend(request(&["SET", &key, &first, "GET", "EX", "100"]));
        bytes.extend(request(&["GET", &key]));
        bytes.extend(request(&["GETSET", &key, &second]));
        bytes.extend(request(&["TTL", &key]));
        bytes.extend(request(&["GET", &key]));
        for some in bytes.chunks(70_001) {
            cluster.feed(client, some);
            cluster.advance(1);
        }
        cluster.advance(300);
        let reply = String::from_utf8(cluster.take(client)).unwrap();
        let long = |value: &str| format!("${}\r\n{value}\r\n", value.len());
        let wanted = format!("+OK\r\n$5\r\nshort\r\n{0}{0}:-1\r\n{1}", long(&first), long(&second));
        assert!(
            reply == wanted,
            "at node {node}: {} of {} bytes",
            reply.len(),
            wanted.len()
        );
        let middle = ask(&mut cluster, client, &["GETRANGE", &key, "100000", "900000"]);
        assert!(is(&middle, &second[100_000..=900_000]), "at node {node}: a range");
        assert_eq!(ask(&mut cluster, client, &["DEL", &key]), ":1\r\n");
        // A window that was read ahead is kept for three leases.
        cluster.advance(8_000);
        assert_eq!(groups(&cluster), 0, "at node {node}");
    }
}

#[test]
fn a_condition_that_fails_leaves_the_old_value_and_nothing_of_the_new_one() {
    for node in [0, 3] {
        let (mut cluster, key) = start();
        let client = cluster.connect(node, Port::Any);
        assert_eq!(ask(&mut cluster, client, &["SET", &key, "old"]), "+OK\r\n");
        assert_eq!(ask(&mut cluster, client, &["SET", &key, &value(1), "NX"]), "$-1\r\n");
        assert_eq!(ask(&mut cluster, client, &["SETNX", &key, &value(1)]), ":0\r\n");
        let syntax = ask(&mut cluster, client, &["SET", &key, &value(1), "NOPE"]);
        assert_eq!(syntax, "-ERR syntax error\r\n");
        assert_eq!(ask(&mut cluster, client, &["GET", &key]), "$3\r\nold\r\n");
        cluster.advance(1_000);
        assert_eq!(groups(&cluster), 0, "at node {node}");
    }
}

/// Feeds a request in pieces, so that its argument goes ahead of it. Returns the reply.
fn ask_in_pieces(cluster: &mut Cluster, client: Client, words: &[&str]) -> String {
    for some in request(words).chunks(70_001) {
        cluster.feed(client, some);
        cluster.advance(1);
    }
    cluster.advance(500);
    String::from_utf8(cluster.take(client)).unwrap()
}

/// Loses the units of values that begin after the next one, except each `kept`-th of them.
fn lose_later_units(cluster: &mut Cluster, kept: usize) {
    let (mut groups, mut count) = (Vec::new(), 0);
    cluster.tamper = Some(Box::new(move |_, _, _, message| match message {
        Message::OpenPart { name, .. } => {
            if !groups.contains(&name.group) {
                groups.push(name.group);
            }
            None
        }
        // The first two are those of the argument.
        Message::PutUnit { name, .. } if groups.iter().skip(2).any(|group| *group == name.group) => {
            count += 1;
            (count % kept != 0).then(Vec::new)
        }
        _ => None,
    }));
}

#[test]
fn append_and_setrange_with_a_long_argument_change_the_value_as_with_a_short_one() {
    for node in [0, 3] {
        let (mut cluster, key) = start();
        let client = cluster.connect(node, Port::Any);
        let mut expected = String::new();
        for (step, offset) in [None, None, Some(3), Some(2 * BYTES - 100), None, Some(9 * BYTES)]
            .into_iter()
            .enumerate()
        {
            let part = value_of(BYTES - step, step);
            let at: usize = offset.unwrap_or(expected.len());
            expected.extend(core::iter::repeat_n('\0', at.saturating_sub(expected.len())));
            let replaced = at..(at + part.len()).min(expected.len());
            expected.replace_range(replaced, &part);
            let text = at.to_string();
            let words = match offset {
                None => vec!["APPEND", &key, &part],
                Some(_) => vec!["SETRANGE", &key, &text, &part],
            };
            let reply = ask_in_pieces(&mut cluster, client, &words);
            assert_eq!(reply, format!(":{}\r\n", expected.len()), "at node {node}, step {step}");
            let stored = ask(&mut cluster, client, &["GET", &key]);
            assert!(is(&stored, &expected), "at node {node}, after step {step}");
        }
        // A short value becomes a long one.
        assert_eq!(
            ask(&mut cluster, client, &["SET", &key, "short", "EX", "1000"]),
            "+OK\r\n"
        );
        let part = value(7);
        let reply = ask_in_pieces(&mut cluster, client, &["APPEND", &key, &part]);
        assert_eq!(reply, format!(":{}\r\n", 5 + BYTES));
        assert!(is(&ask(&mut cluster, client, &["GET", &key]), &format!("short{part}")));
        let left = ask(&mut cluster, client, &["TTL", &key]);
        assert!(left.starts_with(":99"), "{left}");
        // The offset alone makes zeros of a value that was not there.
        assert_eq!(ask(&mut cluster, client, &["DEL", &key]), ":1\r\n");
        let reply = ask_in_pieces(&mut cluster, client, &["SETRANGE", &key, "2", &part]);
        assert_eq!(reply, format!(":{}\r\n", 2 + BYTES));
        assert!(is(&ask(&mut cluster, client, &["GET", &key]), &format!("\0\0{part}")));
        assert_eq!(ask(&mut cluster, client, &["DEL", &key]), ":1\r\n");
        cluster.advance(8_000);
        assert_eq!(groups(&cluster), 0, "at node {node}");
    }
}

#[test]
fn a_long_argument_of_append_is_added_to_the_value_that_the_key_has_when_the_command_ends() {
    let (mut cluster, key) = start();
    let [client, other] = [0, 1].map(|node| cluster.connect(node, Port::Any));
    assert_eq!(ask(&mut cluster, client, &["SET", &key, &value(1)]), "+OK\r\n");
    let part = value(2);
    // The argument is there, and no unit of the changed value is taken any more.
    lose_later_units(&mut cluster, usize::MAX);
    cluster.feed(client, &request(&["APPEND", &key, &part]));
    cluster.advance(300);
    assert_eq!(
        cluster.take(client),
        b"",
        "the changed value was stored without its units"
    );
    cluster.tamper = None;
    assert_eq!(ask(&mut cluster, other, &["SET", &key, "new"]), "+OK\r\n");
    cluster.advance(2_000);
    let reply = String::from_utf8(cluster.take(client)).unwrap();
    assert_eq!(reply, format!(":{}\r\n", 3 + BYTES));
    assert!(is(&ask(&mut cluster, client, &["GET", &key]), &format!("new{part}")));
}

#[test]
fn a_value_that_is_made_slowly_of_a_long_argument_has_no_timeout() {
    for node in [0, 3] {
        let (mut cluster, key) = start();
        let client = cluster.connect(node, Port::Any);
        assert_eq!(ask(&mut cluster, client, &["SET", &key, &value(1)]), "+OK\r\n");
        let part = value(2);
        let mut words = request(&["APPEND", &key, &part]);
        words.extend(request(&["STRLEN", &key]));
        // Most units of the changed value are lost at first: each costs the time until it is sent again.
        lose_later_units(&mut cluster, 25);
        cluster.feed(client, &words);
        cluster.advance(9_000);
        let early = String::from_utf8(cluster.take(client)).unwrap();
        assert_eq!(early, "", "at node {node}: it was not slow, or not waited for");
        cluster.tamper = None;
        cluster.advance(3_000);
        let reply = String::from_utf8(cluster.take(client)).unwrap();
        let length = 2 * BYTES;
        assert_eq!(reply, format!(":{length}\r\n:{length}\r\n"), "at node {node}");
    }
}

#[test]
fn a_command_whose_key_changes_again_and_again_is_refused() {
    let (mut cluster, key) = start();
    let [client, other] = [0, 1].map(|node| cluster.connect(node, Port::Any));
    assert_eq!(ask(&mut cluster, client, &["SET", &key, "0"]), "+OK\r\n");
    lose_later_units(&mut cluster, 25);
    cluster.feed(client, &request(&["APPEND", &key, &value(2)]));
    cluster.advance(300);
    let mut reply = String::new();
    for n in 0..60 {
        assert_eq!(ask(&mut cluster, other, &["SET", &key, &n.to_string()]), "+OK\r\n");
        // The command runs again at least once a lease.
        cluster.advance(2_000);
        reply = String::from_utf8(cluster.take(client)).unwrap();
        if !reply.is_empty() {
            break;
        }
    }
    assert!(
        reply.starts_with("-TRYAGAIN the value was not stored: other commands"),
        "{reply}"
    );
    cluster.tamper = None;
    assert!(ask(&mut cluster, client, &["STRLEN", &key]).starts_with(':'));
    cluster.advance(8_000);
    assert_eq!(groups(&cluster), 0);
}

#[test]
fn a_long_argument_of_a_refused_command_leaves_nothing() {
    for node in [0, 3] {
        let (mut cluster, key) = start();
        let client = cluster.connect(node, Port::Any);
        for (offset, error) in [
            ("-1", "-ERR offset is out of range"),
            ("x", "-ERR value is not an integer"),
            ("536870912", "-ERR string exceeds maximum allowed size"),
        ] {
            let reply = ask_in_pieces(&mut cluster, client, &["SETRANGE", &key, offset, &value(1)]);
            assert!(reply.starts_with(error), "at node {node}: {reply}");
        }
        assert_eq!(ask(&mut cluster, client, &["GET", &key]), "$-1\r\n");
        cluster.advance(8_000);
        assert_eq!(groups(&cluster), 0, "at node {node}");
    }
}

#[test]
fn a_client_that_goes_within_a_value_leaves_nothing() {
    for node in [0, 3] {
        let (mut cluster, key) = start();
        let client = cluster.connect(node, Port::Any);
        let bytes = request(&["SET", &key, &value(1)]);
        cluster.feed(client, &bytes[..BYTES / 2]);
        cluster.advance(100);
        assert!(groups(&cluster) > 0, "at node {node}: the value has not begun");
        cluster.event(node, paritas_protocol::Event::ClientDown { conn: client.conn });
        cluster.advance(1_000);
        assert_eq!(groups(&cluster), 0, "at node {node}");
    }
}

#[test]
fn a_client_that_is_too_slow_gets_an_error_and_holds_nothing() {
    let (mut cluster, key) = start();
    let client = cluster.connect(3, Port::Any);
    let bytes = request(&["SET", &key, &value(1)]);
    let mut at = 0;
    for _ in 0..24 {
        cluster.feed(client, &bytes[at..at + 1_000]);
        at += 1_000;
        cluster.advance(1_000);
    }
    assert_eq!(groups(&cluster), 0, "the value still holds memory");
    cluster.feed(client, &bytes[at..]);
    cluster.advance(100);
    let reply = String::from_utf8(cluster.take(client)).unwrap();
    assert!(
        reply.starts_with("-ERR the value was not stored: it came more slowly"),
        "{reply}"
    );
    assert_eq!(ask(&mut cluster, client, &["GET", &key]), "$-1\r\n");
}

#[test]
fn a_value_that_its_owner_has_lost_is_refused_and_never_stored_empty() {
    let (mut cluster, key) = start();
    let client = cluster.connect(3, Port::Any);
    assert_eq!(ask(&mut cluster, client, &["SET", &key, "old"]), "+OK\r\n");
    // The owner never learns that the client still sends, and forgets the value.
    let bytes = request(&["SET", &key, &value(1)]);
    cluster.feed(client, &bytes[..BYTES / 2]);
    cluster.advance(100);
    cluster.tamper = Some(Box::new(|_, _, _, message| {
        matches!(message.kind(), Kind::Stage | Kind::StageBytes).then(Vec::new)
    }));
    cluster.advance(9_000);
    assert_eq!(groups(&cluster), 0, "the owner still waits");
    cluster.tamper = None;
    cluster.feed(client, &bytes[BYTES / 2..]);
    cluster.advance(1_000);
    let reply = String::from_utf8(cluster.take(client)).unwrap();
    assert!(reply.starts_with("-TRYAGAIN the value was not stored"), "{reply}");
    assert_eq!(ask(&mut cluster, client, &["GET", &key]), "$3\r\nold\r\n");
}

/// Sets the key and begins to read it: after some units all are lost. Returns the number of bytes that have come.
fn begin_get(cluster: &mut Cluster, client: Client, key: &str) -> usize {
    assert_eq!(ask(cluster, client, &["SET", key, &value(1)]), "+OK\r\n");
    let mut units = 0;
    cluster.tamper = Some(Box::new(move |_, _, _, message| {
        units += usize::from(message.kind() == Kind::UnitValue);
        (message.kind() == Kind::UnitValue && units > 10).then(Vec::new)
    }));
    cluster.feed(client, &request(&["GET", key]));
    cluster.advance(500);
    let begun = cluster.take(client).len();
    assert!((1..BYTES).contains(&begun), "{begun} bytes");
    begun
}

#[test]
fn a_long_reply_that_cannot_be_completed_ends_the_connection() {
    let (mut cluster, key) = start();
    let client = cluster.connect(3, Port::Any);
    begin_get(&mut cluster, client, &key);
    cluster.advance(20_000);
    assert!(cluster.is_closed(client), "the client waits for the rest for ever");
}

#[test]
fn a_reply_that_has_begun_is_never_begun_again() {
    let (mut cluster, key) = start();
    let client = cluster.connect(1, Port::Any);
    let begun = begin_get(&mut cluster, client, &key);
    cluster.kill(0);
    cluster.hand_over(0, 0, 3);
    cluster.advance(20_000);
    let rest = cluster.take(client);
    assert!(
        begun + rest.len() < BYTES && !rest.contains(&b'$'),
        "{} bytes more",
        rest.len()
    );
    assert!(cluster.is_closed(client), "half of a reply was not ended");
}

/// Replies behind a long one leave only when it has ended.
#[test]
fn a_long_reply_is_not_held_up_by_the_replies_behind_it() {
    for node in [0, 3] {
        let (mut cluster, key) = start();
        let client = cluster.connect(node, Port::Any);
        let mut keys = (0..).map(|i| format!("other{i}"));
        let other = keys.find(|key| command::slot(key.as_bytes()) < 8192).unwrap();
        let (long, short) = (value(1), value_of(60_000, 2));
        for (key, value) in [(&key, &long), (&other, &short)] {
            assert_eq!(ask(&mut cluster, client, &["SET", key, value]), "+OK\r\n");
        }
        // More than a megabyte together.
        let mut bytes = request(&["GET", &key]);
        bytes.extend(request(&["GET", &other]).repeat(30));
        cluster.feed(client, &bytes);
        cluster.advance(2_000);
        let reply = String::from_utf8(cluster.take(client)).unwrap();
        let bulk = |value: &str| format!("${}\r\n{value}\r\n", value.len());
        let wanted = bulk(&long) + &bulk(&short).repeat(30);
        assert!(
            reply == wanted,
            "at node {node}: {} of {} bytes",
            reply.len(),
            wanted.len()
        );
    }
}
