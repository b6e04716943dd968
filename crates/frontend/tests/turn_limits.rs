//! Limits on one client: commands and reply bytes in one turn, and commands under way at other nodes. With them no
//! client delays the others, and no client makes a node hold many more reply bytes than the client reads.

use paritas_protocol::{Parameters, Port};
use paritas_testbed::Cluster;

/// The limits of the router (`frontend::router`).
const TURN_COMMANDS_MAX: usize = 1024;
const REPLY_BYTES_SOFT_MAX: usize = 1 << 20;

const VALUE_BYTES: usize = 60_000;

fn set(cluster: &mut Cluster, client: paritas_testbed::Client, key: &str) {
    let value = "v".repeat(VALUE_BYTES);
    let command = format!(
        "*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${VALUE_BYTES}\r\n{value}\r\n",
        key.len()
    );
    cluster.feed(client, command.as_bytes());
    cluster.pump();
    assert_eq!(cluster.take(client), b"+OK\r\n");
}

#[test]
fn a_giant_pipeline_has_its_share_of_a_turn_and_no_more() {
    let mut cluster = Cluster::new(1);
    let (greedy, modest) = (cluster.connect(0, Port::Any), cluster.connect(0, Port::Any));
    let count = 10 * TURN_COMMANDS_MAX + 7;
    cluster.feed(greedy, "PING\r\n".repeat(count).as_bytes());
    cluster.feed(modest, b"PING\r\n");
    cluster.turn(0);
    assert_eq!(cluster.take(modest), b"+PONG\r\n");
    assert_eq!(cluster.take(greedy), b"+PONG\r\n".repeat(TURN_COMMANDS_MAX));
    cluster.pump();
    assert_eq!(cluster.take(greedy), b"+PONG\r\n".repeat(count - TURN_COMMANDS_MAX));
}

#[test]
fn a_command_of_several_slots_is_refused_if_dividing_it_would_take_too_long() {
    let mut cluster = Cluster::new(2);
    let mut exists = |count: usize, key_bytes: usize| {
        let key = |n: usize| format!("${key_bytes}\r\n{n:0key_bytes$}\r\n");
        let keys: String = (0..count).map(key).collect();
        let command = format!("*{}\r\n$6\r\nEXISTS\r\n{keys}", count + 1);
        turns_for(&mut cluster, 2, command.as_bytes()).1
    };
    assert_eq!(exists(262_143, 8), ":0\r\n");
    assert_eq!(exists(2_060, 8_192), ":0\r\n");
    for refused in [exists(262_144, 8), exists(4_100, 8_192)] {
        assert!(
            refused.starts_with("-ERR more than 262143 keys and values"),
            "{refused}"
        );
    }
    assert_eq!(exists(1, 8), ":0\r\n");
}

#[test]
fn long_replies_are_made_a_megabyte_at_a_time() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0, Port::Any);
    set(&mut cluster, client, "k");
    let count = 200;
    cluster.feed(client, "GET k\r\n".repeat(count).as_bytes());
    let mut received = Vec::new();
    let mut turns = 0;
    while received.len() < count * VALUE_BYTES {
        cluster.turn(0);
        let part = cluster.take(client);
        assert!(
            part.len() < REPLY_BYTES_SOFT_MAX + 2 * VALUE_BYTES,
            "{} bytes",
            part.len()
        );
        received.extend(part);
        turns += 1;
        assert!(turns < 100, "it goes on");
    }
    let one = format!("${VALUE_BYTES}\r\n{}\r\n", "v".repeat(VALUE_BYTES));
    assert!(received == one.repeat(count).as_bytes());
}

/// A key that node 1 owns, where two nodes own half of the slots each.
fn key_of_the_other() -> String {
    let theirs = |key: &String| paritas_wire::command::slot(key.as_bytes()) >= 8192;
    (0..).map(|n| format!("k{n}")).find(theirs).unwrap()
}

#[test]
fn reads_of_one_client_at_other_nodes_are_limited() {
    let mut cluster = Cluster::new(2);
    let client = cluster.connect(0, Port::Any);
    let key = key_of_the_other();
    set(&mut cluster, client, &key);
    let count = 500;
    cluster.feed(client, format!("GET {key}\r\n").repeat(count).as_bytes());
    // Only node 0 runs, for enough turns to forward all that it may.
    for _ in 0..10 {
        cluster.turn(0);
    }
    let info = cluster.connect(0, Port::Any);
    let listed = cluster.ask(info, "CLIENT LIST ID 1");
    let under_way: usize = listed
        .split_once(" oll=")
        .and_then(|(_, rest)| rest.split(' ').next()?.parse().ok())
        .unwrap();
    assert!((1..=128).contains(&under_way), "{listed}");
    cluster.advance(500);
    let one = format!("${VALUE_BYTES}\r\n{}\r\n", "v".repeat(VALUE_BYTES));
    assert!(cluster.take(client) == one.repeat(count).as_bytes());
}

#[test]
fn replies_to_one_peer_are_made_a_few_megabytes_at_a_time() {
    const PEER_BYTES_SOFT_MAX: usize = 4 << 20;
    let mut cluster = Cluster::new(2);
    let clients: Vec<paritas_testbed::Client> = (0..20).map(|_| cluster.connect(0, Port::Any)).collect();
    let key = key_of_the_other();
    set(&mut cluster, clients[0], &key);
    let count = 120;
    for client in &clients {
        cluster.feed(*client, format!("GET {key}\r\n").repeat(count).as_bytes());
    }
    // Node 0 forwards all commands at once. Node 1 makes replies up to its limit of bytes on the way to one peer.
    cluster.turn(0);
    let made = cluster.frame_bytes(1);
    assert!(made > PEER_BYTES_SOFT_MAX / 2, "{made} bytes");
    assert!(made < PEER_BYTES_SOFT_MAX + 2 * VALUE_BYTES, "{made} bytes");
    let one = format!("${VALUE_BYTES}\r\n{}\r\n", "v".repeat(VALUE_BYTES));
    let expected = one.repeat(count);
    // Node 1 makes the remaining replies in later turns.
    cluster.advance(2000);
    for client in clients {
        assert!(cluster.take(client) == expected.as_bytes());
    }
}

#[test]
fn the_reply_of_a_short_command_is_made_piece_by_piece_if_it_is_long() {
    let key_of = |node: usize| {
        let mut keys = (0..).map(|n| format!("k{n}"));
        keys.find(|key| usize::from(paritas_wire::command::slot(key.as_bytes()) >= 8192) == node)
            .unwrap()
    };
    let mut cluster = Cluster::new(2);
    let client = cluster.connect(0, Port::Any);
    let (here, there) = (key_of(0), key_of(1));
    set(&mut cluster, client, &here);
    set(&mut cluster, client, &there);
    let ask = |cluster: &mut Cluster, keys: &[&str], times: usize| {
        let words = format!(" {}", keys.join(" "));
        cluster.feed(client, format!("MGET{}\r\n", words.repeat(times)).as_bytes());
        cluster.advance(1_000);
        String::from_utf8(cluster.take(client)).unwrap()
    };
    // All keys at this node; all at the other; half of them at each, where each part alone is within the limit of one
    // reply.
    for keys in [vec![&*here], vec![&*there], vec![&*here, &*there]] {
        for times in [250, 600] {
            let count = times * keys.len();
            let reply = ask(&mut cluster, &keys, times);
            let one = format!("${VALUE_BYTES}\r\n{}\r\n", "v".repeat(VALUE_BYTES));
            assert!(
                reply == format!("*{count}\r\n{}", one.repeat(count)),
                "{keys:?}, {times} times"
            );
        }
    }
}

#[test]
fn a_forwarded_mget_counts_for_each_of_its_keys() {
    let mut cluster = Cluster::new(2);
    let client = cluster.connect(0, Port::Any);
    let key = key_of_the_other();
    set(&mut cluster, client, &key);
    let mget = format!("MGET{}\r\n", format!(" {key}").repeat(100));
    cluster.feed(client, mget.repeat(20).as_bytes());
    for _ in 0..10 {
        cluster.turn(0);
    }
    let info = cluster.connect(0, Port::Any);
    let listed = cluster.ask(info, "CLIENT LIST ID 1");
    assert!(listed.contains(" oll=2 "), "{listed}");
    cluster.advance(500);
    let one = format!("${VALUE_BYTES}\r\n{}\r\n", "v".repeat(VALUE_BYTES));
    let all = format!("*100\r\n{}", one.repeat(100)).repeat(20);
    assert!(cluster.take(client) == all.as_bytes());
}

/// A key of node 0 or node 1, long enough that patterns take much work.
fn long_key(n: usize) -> String {
    format!("{}{n}", "a".repeat(8_000))
}

/// The turns of all nodes until a command is answered, and its reply. In each of them another client is answered too.
fn turns_for(cluster: &mut Cluster, nodes: usize, command: &[u8]) -> (usize, String) {
    let (client, other) = (cluster.connect(0, Port::Any), cluster.connect(0, Port::Any));
    cluster.feed(client, command);
    let (mut reply, mut turns) = (Vec::new(), 0);
    while reply.is_empty() {
        cluster.feed(other, b"PING\r\n");
        for at in 0..nodes {
            cluster.turn(at);
        }
        assert_eq!(cluster.take(other), b"+PONG\r\n");
        reply = cluster.take(client);
        turns += 1;
        assert!(turns < 3_000, "it does not end");
    }
    (turns, String::from_utf8(reply).unwrap())
}

/// P10.2b: what a pattern costs counts, not only the number of keys.
#[test]
fn a_pattern_that_is_much_work_has_its_share_of_a_turn_and_no_more() {
    let mut cluster = Cluster::new(2);
    let client = cluster.connect(0, Port::Any);
    for n in 0..200 {
        cluster.feed(client, format!("SET {} 1\r\n", long_key(n)).as_bytes());
        cluster.pump();
        assert_eq!(cluster.take(client), b"+OK\r\n");
    }
    let bulk = |pattern: &str| format!("*2\r\n$4\r\nKEYS\r\n${}\r\n{pattern}\r\n", pattern.len());
    // A third of a million steps for each key, of two million in a turn.
    let (turns, reply) = turns_for(&mut cluster, 2, bulk(&format!("*{}b*", "a".repeat(4_000))).as_bytes());
    assert_eq!(reply, "*0\r\n");
    assert!(turns > 10, "{turns} turns");
    // Once each of these took milliseconds a key.
    let (_, reply) = turns_for(&mut cluster, 2, bulk(&format!("*[{}]", "b".repeat(40_000))).as_bytes());
    assert_eq!(reply, "*0\r\n");
    let (_, reply) = turns_for(&mut cluster, 2, bulk(&format!("*{}7", "a".repeat(4_000))).as_bytes());
    assert_eq!(reply, format!("*1\r\n$8001\r\n{}\r\n", long_key(7)));
    // Reading this one takes as much as the key does, again and again.
    let (_, reply) = turns_for(
        &mut cluster,
        2,
        bulk(&format!("*{}*", "[!-z]".repeat(8_000))).as_bytes(),
    );
    assert!(reply.starts_with("*200\r\n"));
    let too_long = "a".repeat((64 << 10) + 1);
    let refused = "-ERR the pattern is longer than 65536 bytes: no key needs so long a one\r\n";
    assert_eq!(turns_for(&mut cluster, 2, bulk(&too_long).as_bytes()).1, refused);
    let scan = format!(
        "*4\r\n$4\r\nSCAN\r\n$1\r\n0\r\n$5\r\nMATCH\r\n${}\r\n{too_long}\r\n",
        too_long.len()
    );
    assert_eq!(turns_for(&mut cluster, 2, scan.as_bytes()).1, refused);
}

/// Many walks at once share the work of a turn, and all of them end.
#[test]
fn many_walks_at_once_share_a_turn_and_all_end() {
    let mut cluster = Cluster::new(2);
    let client = cluster.connect(0, Port::Any);
    for n in 0..12 {
        cluster.feed(client, format!("SET {} 1\r\n", long_key(n)).as_bytes());
        cluster.pump();
        assert_eq!(cluster.take(client), b"+OK\r\n");
    }
    let pattern = format!("*{}b*", "a".repeat(4_000));
    let keys = format!("*2\r\n$4\r\nKEYS\r\n${}\r\n{pattern}\r\n", pattern.len());
    let clients: Vec<_> = (0..24).map(|n| cluster.connect(n % 2, Port::Any)).collect();
    for client in &clients {
        cluster.feed(*client, keys.repeat(2).as_bytes());
    }
    cluster.pump();
    for client in clients {
        assert_eq!(cluster.take(client), b"*0\r\n".repeat(2));
    }
}

#[test]
fn a_command_with_very_many_keys_has_its_share_of_a_turn_and_no_more() {
    let mut cluster = Cluster::new(2);
    let client = cluster.connect(0, Port::Any);
    assert_eq!(cluster.ask(client, "MSET k7 1 k8 1 {k7}5 1"), "+OK\r\n");
    let command = |name: &str, keys: &[String]| {
        let mut text = format!("*{}\r\n${}\r\n{name}\r\n", keys.len() + 1, name.len());
        keys.iter()
            .for_each(|key| text += &format!("${}\r\n{key}\r\n", key.len()));
        text
    };
    let many: Vec<String> = (0..200_000).map(|n| format!("k{n}")).collect();
    let (turns, reply) = turns_for(&mut cluster, 2, command("EXISTS", &many).as_bytes());
    assert_eq!(reply, ":2\r\n");
    assert!(turns > 5, "{turns} turns");
    // Keys of one slot are looked up together, so there is a limit.
    let of_one_slot: Vec<String> = (0..65_535).map(|n| format!("{{k7}}{n}")).collect();
    assert_eq!(
        turns_for(&mut cluster, 2, command("EXISTS", &of_one_slot).as_bytes()).1,
        ":1\r\n"
    );
    let too_many: Vec<String> = (0..65_536).map(|n| format!("{{k7}}{n}")).collect();
    let refused = "-ERR more than 65535 keys of one slot in one command\r\n";
    assert_eq!(
        turns_for(&mut cluster, 2, command("EXISTS", &too_many).as_bytes()).1,
        refused
    );
}

#[test]
fn commands_about_the_node_have_their_share_of_a_turn_and_no_more() {
    let mut cluster = Cluster::new(1);
    let (greedy, modest) = (cluster.connect(0, Port::Any), cluster.connect(0, Port::Any));
    cluster.feed(greedy, "COMMAND DOCS get\r\n".repeat(1_000).as_bytes());
    let mut turns = 0;
    let mut received = 0;
    while received < 1_000 {
        cluster.feed(modest, b"PING\r\n");
        cluster.turn(0);
        assert_eq!(cluster.take(modest), b"+PONG\r\n");
        let reply = String::from_utf8(cluster.take(greedy)).unwrap();
        received += reply.matches("summary").count();
        turns += 1;
        assert!(turns < 100, "it does not end");
    }
    assert!(turns > 4, "{turns} turns");
    let names = "get ".repeat(1_025);
    let reply = cluster.ask(greedy, &format!("COMMAND INFO {names}"));
    assert_eq!(reply, "-ERR more than 1024 names\r\n");
}

/// Commands of this node's clients and of its peers take turns. Each of the greedy client's commands takes the budget
/// of a whole turn, and there are many more than turns.
#[test]
fn long_commands_of_one_client_keep_no_other_waiting() {
    const COMMANDS: usize = 1000;
    for (greedy_at, modest_at) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let parameters = Parameters {
            turn_steps: 5_000,
            ..Parameters::default()
        };
        let mut cluster = Cluster::with(2, 16 << 20, parameters);
        let (greedy, modest) = (
            cluster.connect(greedy_at, Port::Any),
            cluster.connect(modest_at, Port::Any),
        );
        // Slots below 8192 are node 0's.
        let mut keys = (0..).map(|n| format!("k{n}"));
        let key = keys
            .find(|key| paritas_wire::command::slot(key.as_bytes()) < 8192)
            .unwrap();
        set(&mut cluster, greedy, &key);
        let command = format!("EXISTS{}\r\n", format!(" {key}").repeat(100));
        cluster.feed(greedy, command.repeat(COMMANDS).as_bytes());
        cluster.turn(greedy_at);
        cluster.feed(modest, command.as_bytes());
        let mut answered = Vec::new();
        for _ in 0..20 {
            cluster.turn(0);
            cluster.turn(1);
            answered.extend(cluster.take(modest));
        }
        assert_eq!(answered, b":100\r\n", "greedy at {greedy_at}, modest at {modest_at}");
        let first = cluster.take(greedy).len();
        assert!(
            (1..b":100\r\n".len() * COMMANDS).contains(&first),
            "the greedy client has {first} bytes"
        );
        cluster.advance(100);
        assert_eq!(first + cluster.take(greedy).len(), b":100\r\n".len() * COMMANDS);
    }
}

/// The number of arguments alone takes more than the budget of a turn.
#[test]
fn a_command_that_reads_a_whole_value_runs_also_with_very_many_arguments() {
    let mut cluster = Cluster::new(1);
    let client = cluster.connect(0, Port::Any);
    let gets = 4096;
    let mut fields = vec!["BITFIELD", "{k}field"];
    fields.extend(["GET", "u8", "0"].repeat(gets));
    let keys: Vec<String> = (0..20_000).map(|n| format!("{{k}}{n}")).collect();
    let mut join = vec!["BITOP", "OR", "{k}joined"];
    join.extend(keys.iter().map(String::as_str));
    for (words, wanted) in [
        (fields, format!("*{gets}\r\n{}", ":0\r\n".repeat(gets))),
        (join, ":0\r\n".to_owned()),
    ] {
        let mut request = Vec::new();
        paritas_wire::resp::encode::request(&mut request, &words);
        cluster.feed(client, &request);
        cluster.pump();
        assert_eq!(String::from_utf8(cluster.take(client)).unwrap(), wanted, "{}", words[0]);
    }
}
