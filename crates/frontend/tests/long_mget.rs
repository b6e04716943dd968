//! An MGET whose values together are too long for one reply: they are read one by one (P14.16).

use crate::long_values::{ask, request, value_of};
use paritas_protocol::{Parameters, Port};
use paritas_testbed::Cluster;
use paritas_wire::command;
use paritas_wire::peer::Kind;

const MGET_BYTES_MAX: usize = 200_000;

/// `2+1` and a spare: nodes 0 and 1 own the keys, node 3 owns nothing. Returns two keys of node 0 and one of node 1.
fn start() -> (Cluster, [String; 3]) {
    let parameters = Parameters {
        streamed_bytes_min: 100_000,
        piece_bytes: 64 << 10,
        mget_bytes_max: MGET_BYTES_MAX,
        ..Parameters::default()
    };
    let cluster = Cluster::coded_in(64 << 20, 2, 1, 1, 1, parameters);
    let mut keys = (0..).map(|i| format!("k{i}"));
    let mut key_of = |node: usize| {
        let is_there = |key: &String| usize::from(command::slot(key.as_bytes()) >= 8192) == node;
        keys.find(is_there).unwrap()
    };
    let keys = [key_of(0), key_of(0), key_of(1)];
    (cluster, keys)
}

fn mget(keys: &[&str]) -> Vec<u8> {
    request(&[&["MGET"], keys].concat())
}

/// The reply of an MGET.
fn array(values: &[Option<&str>]) -> String {
    let elements = values.iter().map(|value| match value {
        Some(value) => format!("${}\r\n{value}\r\n", value.len()),
        None => "$-1\r\n".to_string(),
    });
    format!("*{}\r\n{}", values.len(), elements.collect::<String>())
}

/// Node 0 or 1 owns keys, node 3 none.
#[test]
fn values_that_are_too_long_together_come_in_order_whatever_their_owners() {
    for node in [0, 1, 3] {
        let (mut cluster, [here, also_here, there]) = start();
        let client = cluster.connect(node, Port::Any);
        // Read in pieces, whole, and from one object.
        let (long, large, small) = (value_of(150_000, 1), value_of(70_000, 2), value_of(40_000, 3));
        for (key, value) in [(&here, &long), (&also_here, &large), (&there, &small)] {
            assert_eq!(ask(&mut cluster, client, &["SET", key, value]), "+OK\r\n");
        }
        let (long, large, small) = (Some(&*long), Some(&*large), Some(&*small));
        // At one owner, and at both; each longer than one reply.
        let of_one = [long, large, None, large, long];
        let keys = [&*here, &also_here, "k-of-nobody{k0}", &also_here, &here];
        let of_both = [small, long, small, large, small, long, small, large];
        let keys_of_both = [&*there, &here, &there, &also_here, &there, &here, &there, &also_here];
        cluster.feed(client, &mget(&keys));
        cluster.feed(client, &mget(&keys_of_both));
        cluster.feed(client, &request(&["ECHO", "behind"]));
        cluster.advance(500);
        let reply = String::from_utf8(cluster.take(client)).unwrap();
        let wanted = format!("{}{}$6\r\nbehind\r\n", array(&of_one), array(&of_both));
        assert!(
            reply == wanted,
            "at node {node}: {} of {} bytes",
            reply.len(),
            wanted.len()
        );
    }
}

#[test]
fn many_small_values_come_too() {
    let (mut cluster, [here, _, there]) = start();
    let client = cluster.connect(3, Port::Any);
    let small = value_of(20_000, 1);
    for key in [&here, &there] {
        assert_eq!(ask(&mut cluster, client, &["SET", key, &small]), "+OK\r\n");
    }
    let keys: Vec<&str> = [&*here, &*there].repeat(20);
    cluster.feed(client, &mget(&keys));
    cluster.advance(500);
    let reply = String::from_utf8(cluster.take(client)).unwrap();
    assert!(reply == array(&vec![Some(&*small); 40]), "{} bytes", reply.len());
}

/// More than are asked for at a time, so that a write would come between them.
#[test]
fn an_mget_never_sees_a_write_that_the_same_client_sent_after_it() {
    for (node, write) in [(0, "DEL"), (3, "DEL"), (0, "SET"), (3, "SET"), (0, "MSET"), (3, "MSET")] {
        let (mut cluster, [here, also_here, there]) = start();
        let client = cluster.connect(node, Port::Any);
        let long = value_of(150_000, 1);
        for key in [&here, &also_here, &there] {
            assert_eq!(ask(&mut cluster, client, &["SET", key, &long]), "+OK\r\n");
        }
        let keys = [&*here, &there].repeat(6);
        let mut bytes = mget(&keys);
        bytes.extend(match write {
            "DEL" => request(&["DEL", &there]),
            "SET" => request(&["SET", &there, "new"]),
            _ => request(&["MSET", &there, "new", &here, "new"]),
        });
        bytes.extend(request(&["STRLEN", &there]));
        cluster.feed(client, &bytes);
        cluster.advance(1_000);
        let reply = String::from_utf8(cluster.take(client)).unwrap();
        let whole = array(&vec![Some(&*long); keys.len()]);
        let refused = format!(
            "-ERR the reply is larger than {MGET_BYTES_MAX} bytes: \
             ask for fewer keys, or send no write before it is answered\r\n"
        );
        let rest = if write == "DEL" {
            ":1\r\n:0\r\n"
        } else {
            "+OK\r\n:3\r\n"
        };
        // Both owners are asked, so the write may begin before they have answered.
        assert!(
            reply == whole + rest || reply == refused + rest,
            "{write} at node {node}: {} bytes, {}",
            reply.len(),
            &reply[..reply.len().min(100)]
        );
    }
}

#[test]
fn a_command_behind_an_mget_of_one_owner_waits_until_it_has_ended() {
    let (mut cluster, [here, also_here, _]) = start();
    let client = cluster.connect(0, Port::Any);
    let long = value_of(150_000, 1);
    for key in [&here, &also_here] {
        assert_eq!(ask(&mut cluster, client, &["SET", key, &long]), "+OK\r\n");
    }
    let mut bytes = mget(&[&*here, &also_here].repeat(5));
    bytes.extend(request(&["DEL", &also_here]));
    bytes.extend(request(&["HELLO", "3"]));
    let mut held_bytes = Vec::new();
    for _ in 0..3 {
        assert_eq!(ask(&mut cluster, client, &["SET", &also_here, &long]), "+OK\r\n");
        cluster.feed(client, &bytes);
        cluster.advance(1_000);
        let reply = String::from_utf8(cluster.take(client)).unwrap();
        let whole = array(&[Some(&*long); 10]) + ":1\r\n%";
        assert!(reply.starts_with(&whole), "{} bytes", reply.len());
        held_bytes.push(cluster.elsewhere_bytes(client));
    }
    assert_eq!(held_bytes, [held_bytes[0]; 3], "something stays behind each time");
}

#[test]
fn an_owner_that_does_not_answer_ends_the_connection_within_the_array() {
    let (mut cluster, [here, also_here, there]) = start();
    let client = cluster.connect(0, Port::Any);
    let long = value_of(150_000, 1);
    for key in [&here, &also_here, &there] {
        assert_eq!(ask(&mut cluster, client, &["SET", key, &long]), "+OK\r\n");
    }
    // The other owner is gone when the values before its own have been read; nobody takes its place.
    let mut pieces = 0;
    cluster.tamper = Some(Box::new(move |_, _, _, message| {
        pieces += usize::from(message.kind() == Kind::Forward);
        (message.kind() == Kind::Forward && pieces > 1).then(Vec::new)
    }));
    cluster.feed(client, &mget(&[&*here, &also_here, &here, &also_here, &there, &there]));
    cluster.advance(20_000);
    let reply = cluster.take(client);
    assert!(reply.starts_with(b"*6\r\n$150000\r\n"), "{} bytes", reply.len());
    assert!(reply.len() < 6 * 150_000 && !reply.contains(&b'-'));
    assert!(cluster.is_closed(client), "the client waits for ever");
}

#[test]
fn an_element_that_cannot_be_read_ends_the_connection() {
    let (mut cluster, [here, also_here, there]) = start();
    let client = cluster.connect(3, Port::Any);
    let long = value_of(150_000, 1);
    for key in [&here, &also_here, &there] {
        assert_eq!(ask(&mut cluster, client, &["SET", key, &long]), "+OK\r\n");
    }
    let mut pieces = 0;
    cluster.tamper = Some(Box::new(move |_, _, _, message| {
        pieces += usize::from(message.kind() == Kind::UnitValue);
        (message.kind() == Kind::UnitValue && pieces > 12).then(Vec::new)
    }));
    cluster.feed(client, &mget(&[&there, &here, &also_here, &there, &here]));
    cluster.advance(500);
    let begun = cluster.take(client);
    assert!(begun.starts_with(b"*5\r\n$150000\r\n"), "{} bytes", begun.len());
    cluster.advance(20_000);
    let rest = cluster.take(client);
    assert!(cluster.is_closed(client), "the client waits for the rest for ever");
    assert!(!rest.contains(&b'-'), "an error within an array");
    assert!(begun.len() + rest.len() < 5 * 150_000);
}
