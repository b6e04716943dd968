//! CLIENT REPLY, CLIENT PAUSE, CLIENT TRACKING and the age that CLIENT KILL asks for. `redis-replies.txt` has more.

use crate::long_values::{ask, request, value_of};
use paritas_protocol::{Event, Parameters, Port};
use paritas_testbed::{Client, Cluster};
use paritas_wire::command;

/// A key of the stream that this node of `2+1` owns.
fn key_of(node: usize) -> String {
    let is_there = |key: &String| usize::from(command::slot(key.as_bytes()) >= 8192) == node;
    (0..).map(|i| format!("k{i}")).find(is_there).unwrap()
}

/// `2+1` and a spare: nodes 0 and 1 own the keys, node 3 owns nothing.
fn start() -> Cluster {
    let parameters = Parameters {
        streamed_bytes_min: 100_000,
        piece_bytes: 64 << 10,
        mget_bytes_max: 200_000,
        ..Parameters::default()
    };
    Cluster::coded_in(64 << 20, 2, 1, 1, 1, parameters)
}

fn say(cluster: &mut Cluster, client: Client, words: &[&str]) {
    cluster.feed(client, &request(words));
}

/// Node 0 owns the first key, node 1 the second.
#[test]
fn replies_that_a_client_does_not_want_never_come_whatever_node_writes_them() {
    for (node, hello) in [(0, "2"), (3, "3")] {
        let mut cluster = start();
        let client = cluster.connect(node, Port::Any);
        let (here, there) = (key_of(0), key_of(1));
        let (long, large) = (value_of(150_000, 1), value_of(70_000, 2));
        assert!(!ask(&mut cluster, client, &["HELLO", hello]).starts_with('-'));
        let silent: &[&[&str]] = &[
            &["CLIENT", "REPLY", "OFF"],
            &["SET", &here, &long],
            &["SET", &there, &large],
            &["GET", &here],
            &["GET", &there],
            &["GET"],
            // Longer than one reply, at one owner and at both.
            &["MGET", &here, &here],
            &["MGET", &there, &here, &there],
            &["DEL", "nothing", &here, &there],
            &["SET", &here, &long, "GET"],
            &["GETDEL", &here],
            &["KEYS", "*"],
            &["INFO"],
            &["CLIENT", "LIST"],
            &["CLIENT", "REPLY", "SKIP"],
            &["PARITAS.NOTHING"],
            // One slot, and both.
            &["MULTI"],
            &["SET", &here, "1"],
            &["EXEC"],
            &["MULTI"],
            &["SET", &here, "2"],
            &["SET", &there, "3"],
            &["SELECT", "1"],
            &["EXEC"],
            &["SET", &there, "in database 1"],
        ];
        silent.iter().for_each(|words| say(&mut cluster, client, words));
        assert_eq!(
            ask(&mut cluster, client, &["CLIENT", "REPLY", "ON"]),
            "+OK\r\n",
            "{node}"
        );
        assert_eq!(ask(&mut cluster, client, &["GET", &there]), "$13\r\nin database 1\r\n");
        assert_eq!(ask(&mut cluster, client, &["SELECT", "0"]), "+OK\r\n");
        assert_eq!(
            ask(&mut cluster, client, &["MGET", &here, &there]),
            "*2\r\n$1\r\n2\r\n$1\r\n3\r\n"
        );
        // The next one only, even if another node writes it later than the one behind it is written here.
        say(&mut cluster, client, &["SET", &here, &long]);
        say(&mut cluster, client, &["CLIENT", "REPLY", "SKIP"]);
        say(&mut cluster, client, &["GET", &here]);
        say(&mut cluster, client, &["PING"]);
        say(&mut cluster, client, &["GET", &there]);
        assert_eq!(
            ask(&mut cluster, client, &["PING", "x"]),
            "+OK\r\n+PONG\r\n$1\r\n3\r\n$1\r\nx\r\n"
        );
    }
}

#[test]
fn a_choice_of_replies_is_refused_between_multi_and_exec() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0, Port::Any);
    assert_eq!(cluster.ask(client, "MULTI"), "+OK\r\n");
    let refused = cluster.ask(client, "CLIENT REPLY OFF");
    assert!(
        refused.starts_with("-ERR 'client|reply' cannot be in a transaction"),
        "{refused}"
    );
    assert!(cluster.ask(client, "EXEC").starts_with("-EXECABORT"));
    assert_eq!(cluster.ask(client, "PING"), "+PONG\r\n");
}

#[test]
fn a_pause_of_writes_holds_them_and_lets_reads_through_until_it_ends() {
    let mut cluster = start();
    let (asks, writes, reads) = (
        cluster.connect(0, Port::Any),
        cluster.connect(0, Port::Any),
        cluster.connect(0, Port::Any),
    );
    let elsewhere = cluster.connect(3, Port::Any);
    let lines = cluster.connect(0, Port::Memcached);
    let (here, there) = (key_of(0), key_of(1));
    assert_eq!(ask(&mut cluster, reads, &["SET", &here, "0"]), "+OK\r\n");
    assert_eq!(cluster.ask(asks, "CLIENT PAUSE 5000 WRITE"), "+OK\r\n");
    assert_eq!(ask(&mut cluster, writes, &["GET", &here]), "$1\r\n0\r\n");
    for words in [
        &["INCR", &here][..],
        &["INCR", &there],
        &["GET", &here],
        &["MULTI"],
        &["INCR", &here],
        &["EXEC"],
    ] {
        say(&mut cluster, writes, words);
    }
    cluster.feed(lines, format!("incr {here} 5\r\nget {here}\r\n").as_bytes());
    assert_eq!(ask(&mut cluster, writes, &["EVAL", "return 1", "1", &here]), "");
    assert_eq!(ask(&mut cluster, reads, &["GET", &here]), "$1\r\n0\r\n");
    assert_eq!(ask(&mut cluster, reads, &["EVAL_RO", "return 1", "1", &here]), ":1\r\n");
    let listed = cluster.ask(reads, "CLIENT LIST");
    assert_eq!(listed.matches("flags=b ").count(), 2, "{listed}");
    assert!(cluster.ask(reads, "INFO clients").contains("blocked_clients:2\r\n"));
    // The client of another node, whose command comes here.
    assert_eq!(ask(&mut cluster, elsewhere, &["SET", &here, "10"]), "+OK\r\n");
    // A shorter and weaker one changes nothing.
    assert_eq!(cluster.ask(asks, "CLIENT PAUSE 1 WRITE"), "+OK\r\n");
    cluster.advance(3000);
    assert_eq!([cluster.take(writes), cluster.take(lines)], [b"", b""]);
    cluster.advance(2000);
    let both = String::from_utf8(cluster.take(lines)).unwrap();
    let all = String::from_utf8(cluster.take(writes)).unwrap();
    assert_eq!(both.split("\r\n").next().map(str::len), Some(2), "{both}");
    assert!(all.starts_with(':') && all.ends_with(":1\r\n"), "{all}");
    assert_eq!(ask(&mut cluster, reads, &["GET", &here]), "$2\r\n17\r\n");
    assert_eq!(ask(&mut cluster, reads, &["GET", &there]), "$1\r\n1\r\n");
}

#[test]
fn a_pause_of_all_holds_every_command_but_those_that_end_it() {
    let mut cluster = start();
    let (asks, other) = (cluster.connect(0, Port::Any), cluster.connect(0, Port::Cluster));
    let lines = cluster.connect(0, Port::Memcached);
    let long = value_of(150_000, 1);
    let here = key_of(0);
    assert_eq!(ask(&mut cluster, other, &["SET", &here, &long]), "+OK\r\n");
    // A command that has begun ends, and its reply comes.
    say(&mut cluster, other, &["GET", &here]);
    let whole = request(&["SET", &here, &long]);
    cluster.feed(other, &whole[..100_000]);
    cluster.turn(0);
    assert_eq!(
        cluster.ask(asks, "CLIENT PAUSE 9223372036854775807"),
        "-ERR timeout is out of range\r\n"
    );
    assert_eq!(cluster.ask(asks, "CLIENT PAUSE 600000"), "+OK\r\n");
    cluster.feed(other, &whole[100_000..]);
    cluster.advance(200);
    let got = String::from_utf8(cluster.take(other)).unwrap();
    assert_eq!(got, format!("$150000\r\n{long}\r\n+OK\r\n"));
    assert_eq!(ask(&mut cluster, other, &["PING"]), "");
    // A value that is too long to be held does not begin.
    cluster.feed(other, &whole);
    cluster.feed(lines, b"get nothing\r\n");
    let gone = cluster.connect(0, Port::Any);
    cluster.feed(gone, b"PING\r\n");
    cluster.advance(20_000);
    assert_eq!(
        [cluster.take(other), cluster.take(lines), cluster.take(gone)],
        [b"", b"", b""]
    );
    cluster.event(0, Event::ClientDown { conn: gone.conn });
    assert!(ask(&mut cluster, asks, &["HELLO"]).starts_with('*'));
    assert_eq!(cluster.ask(asks, "CLIENT UNPAUSE"), "+OK\r\n");
    cluster.advance(200);
    assert_eq!(String::from_utf8(cluster.take(other)).unwrap(), "+PONG\r\n+OK\r\n");
    assert_eq!(cluster.take(lines), b"END\r\n");
}

#[test]
fn clients_are_ended_by_their_age() {
    let mut cluster = Cluster::new(1);
    let (asks, old) = (cluster.connect(0, Port::Any), cluster.connect(0, Port::Any));
    cluster.advance(10_000);
    let young = cluster.connect(0, Port::Any);
    assert_eq!(cluster.ask(asks, "CLIENT KILL MAXAGE 11"), ":0\r\n");
    assert_eq!(cluster.ask(asks, "CLIENT KILL MAXAGE 10"), ":1\r\n");
    assert!(cluster.is_closed(old) && !cluster.is_closed(young) && !cluster.is_closed(asks));
    cluster.event(0, Event::ClientDown { conn: old.conn });
    assert_eq!(cluster.ask(asks, "CLIENT KILL MAXAGE 1 SKIPME no"), ":1\r\n");
    assert!(cluster.is_closed(asks) && !cluster.is_closed(young));
    for (age, error) in [
        ("x", "-ERR maxage is not an integer or out of range\r\n"),
        ("0", "-ERR maxage should be greater than 0\r\n"),
    ] {
        assert_eq!(cluster.ask(young, &format!("CLIENT KILL MAXAGE {age}")), error);
    }
}

#[test]
fn a_client_that_asks_for_tracking_is_told_why_not() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0, Port::Any);
    let refused = cluster.ask(client, "CLIENT TRACKING ON OPTIN");
    assert!(
        refused.starts_with("-ERR CLIENT TRACKING ON is not supported: "),
        "{refused}"
    );
    cluster.ask(client, "HELLO 3");
    let info = cluster.ask(client, "CLIENT TRACKINGINFO");
    assert!(info.starts_with("%3\r\n$5\r\nflags\r\n~1\r\n$3\r\noff\r\n"), "{info}");
}
