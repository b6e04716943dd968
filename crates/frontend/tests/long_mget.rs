//! An MGET whose values together are too long for one reply: they are read one by one (P14.16).

use crate::support::{Client, Cluster};
use paritas_protocol::{Parameters, Port};
use paritas_wire::command;
use paritas_wire::peer::kind;

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

fn value(bytes: usize, seed: usize) -> String {
    (0..bytes)
        .map(|i| char::from(b'a' + ((i * 7 + i / 1000 + seed) % 26) as u8))
        .collect()
}

fn request(words: &[&str]) -> Vec<u8> {
    let mut request = Vec::new();
    paritas_wire::resp::encode::request(&mut request, words);
    request
}

fn ask(cluster: &mut Cluster, client: Client, words: &[&str]) -> String {
    cluster.feed(client, &request(words));
    cluster.advance(200);
    String::from_utf8(cluster.take(client)).unwrap()
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
        let (long, large, small) = (value(150_000, 1), value(70_000, 2), value(40_000, 3));
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
    let small = value(20_000, 1);
    for key in [&here, &there] {
        assert_eq!(ask(&mut cluster, client, &["SET", key, &small]), "+OK\r\n");
    }
    let keys: Vec<&str> = [&*here, &*there].repeat(20);
    cluster.feed(client, &mget(&keys));
    cluster.advance(500);
    let reply = String::from_utf8(cluster.take(client)).unwrap();
    assert!(reply == array(&vec![Some(&*small); 40]), "{} bytes", reply.len());
}

#[test]
fn an_mget_never_sees_a_write_that_the_same_client_sent_after_it() {
    for node in [0, 3] {
        let (mut cluster, [here, also_here, _]) = start();
        let client = cluster.connect(node, Port::Any);
        let (first, second) = (value(150_000, 1), value(90_000, 2));
        for key in [&here, &also_here] {
            assert_eq!(ask(&mut cluster, client, &["SET", key, &first]), "+OK\r\n");
        }
        let mut bytes = mget(&[&here, &also_here]);
        bytes.extend(request(&["SET", &also_here, &second]));
        bytes.extend(request(&["STRLEN", &also_here]));
        cluster.feed(client, &bytes);
        cluster.advance(500);
        let reply = String::from_utf8(cluster.take(client)).unwrap();
        let whole = array(&[Some(&first), Some(&first)]);
        let refused = format!(
            "-ERR the reply is larger than {MGET_BYTES_MAX} bytes: ask for fewer keys, or send no write before it is answered\r\n"
        );
        // At the owner the write waits. Elsewhere it may have been sent before the owner of the MGET has answered.
        let rest = "+OK\r\n:90000\r\n";
        assert!(
            reply == whole + rest || node == 3 && reply == refused + rest,
            "at node {node}: {} bytes, {}",
            reply.len(),
            &reply[..reply.len().min(100)]
        );
    }
}

#[test]
fn an_element_that_cannot_be_read_ends_the_connection() {
    let (mut cluster, [here, also_here, there]) = start();
    let client = cluster.connect(3, Port::Any);
    let long = value(150_000, 1);
    for key in [&here, &also_here, &there] {
        assert_eq!(ask(&mut cluster, client, &["SET", key, &long]), "+OK\r\n");
    }
    let mut pieces = 0;
    cluster.tamper = Some(Box::new(move |_, _, _, message| {
        pieces += usize::from(message.kind() == kind::REPLY_BYTES);
        (message.kind() == kind::REPLY_BYTES && pieces > 4).then(Vec::new)
    }));
    cluster.feed(client, &mget(&[&there, &here, &also_here, &there, &here]));
    cluster.advance(500);
    let begun = cluster.take(client);
    assert!(begun.starts_with(b"*5\r\n$150000\r\n"), "{} bytes", begun.len());
    cluster.kill(0);
    cluster.advance(200);
    let rest = cluster.take(client);
    assert!(cluster.is_closed(client), "the client waits for the rest for ever");
    assert!(!rest.contains(&b'-'), "an error within an array");
    assert!(begun.len() + rest.len() < 5 * 150_000);
}
