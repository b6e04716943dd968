//! A node that holds two positions of a list (P10.5): its roles talk to each other as they would over a link.

use paritas_base::configuration::PositionState;
use paritas_base::{ListId, Position};
use paritas_protocol::{Parameters, Port, Role};
use paritas_store::Purpose;
use paritas_testbed::{Client, Cluster};
use paritas_wire::peer::{self, Message};

/// One list of `2+2` on four nodes, and no other node; a client of node 3.
fn crowded() -> (Cluster, Client) {
    let mut cluster = Cluster::coded(2, 2, 1, 0, Parameters::default());
    let client = cluster.connect(3, Port::Any);
    (cluster, client)
}

const KEYS: usize = 200;

fn set_all(cluster: &mut Cluster, client: Client, value: &str) {
    for n in 0..KEYS {
        assert_eq!(
            cluster.ask(client, &format!("SET key{n} {value}{n}")),
            "+OK\r\n",
            "key{n}"
        );
    }
}

fn all_there(cluster: &mut Cluster, client: Client, value: &str) {
    for n in 0..KEYS {
        let expected = format!("{value}{n}");
        let reply = cluster.ask(client, &format!("GET key{n}"));
        assert_eq!(reply, format!("${}\r\n{expected}\r\n", expected.len()), "key{n}");
    }
    assert_eq!(cluster.ask(client, "DBSIZE"), format!(":{KEYS}\r\n"));
}

fn live(cluster: &mut Cluster) {
    cluster.reconfigure(0, |c| {
        for a in c.positions.iter_mut().flatten() {
            a.state = PositionState::Live;
        }
    });
}

fn positions(cluster: &Cluster, node: usize) -> Vec<u8> {
    let list = cluster.processes[node].node.replica().list(ListId(0)).unwrap();
    list.roles.iter().map(|role| role.position().0).collect()
}

fn whole(cluster: &Cluster, node: usize, x: u8) -> bool {
    let list = cluster.processes[node].node.replica().list(ListId(0)).unwrap();
    list.owner(Position(x)).is_some_and(|owner| owner.is_whole())
}

#[test]
fn a_parity_holder_stands_in_for_an_owner_and_a_second_loss_is_survived() {
    let (mut cluster, client) = crowded();
    set_all(&mut cluster, client, "before");
    cluster.kill(0);
    cluster.hand_over(0, 0, 2);
    // Until the dead owner's leases have run out.
    cluster.advance(3_000);
    assert_eq!(positions(&cluster, 2), [0, 2]);
    all_there(&mut cluster, client, "before");
    set_all(&mut cluster, client, "after");
    cluster.advance(1_000);
    assert!(whole(&cluster, 2, 0));
    live(&mut cluster);

    // The other owner too: the parity beside the stand-in is one of its sources.
    cluster.kill(1);
    cluster.hand_over(0, 1, 3);
    cluster.advance(3_000);
    assert_eq!(positions(&cluster, 3), [1, 3]);
    all_there(&mut cluster, client, "after");
    set_all(&mut cluster, client, "again");
    all_there(&mut cluster, client, "again");
}

/// Sets keys until there is no memory for another; how many.
fn fill(cluster: &mut Cluster, client: Client) -> usize {
    let value = "v".repeat(10_000);
    for count in 0.. {
        let mut reply = cluster.ask(client, &format!("SET key{count} {value}{count}"));
        if reply.is_empty() {
            cluster.advance(1_000);
            reply = String::from_utf8(cluster.take(client)).unwrap();
        }
        if reply != "+OK\r\n" {
            assert!(reply.starts_with("-OOM"), "{reply}");
            return count;
        }
    }
    unreachable!()
}

/// One of those keys is answered within a second.
fn get(cluster: &mut Cluster, client: Client, n: usize) {
    cluster.feed(client, format!("GET key{n}\r\n").as_bytes());
    let mut reply = String::new();
    for _ in 0..100 {
        cluster.advance(10);
        reply = String::from_utf8(cluster.take(client)).unwrap();
        if !reply.is_empty() {
            break;
        }
    }
    assert!(reply.ends_with(&format!("v{n}\r\n")), "key{n}: {reply}");
}

/// P5.10.
#[test]
fn a_stand_in_without_memory_for_all_chunks_serves_all_keys() {
    let mut cluster = Cluster::coded(2, 1, 1, 0, Parameters::default());
    let client = cluster.connect(2, Port::Any);
    let count = fill(&mut cluster, client);
    cluster.kill(0);
    cluster.hand_over(0, 0, 1);
    cluster.advance(5_000);
    assert!(!whole(&cluster, 1, 0), "there is no memory for that");
    for round in 0..2 {
        for n in (0..count).map(|n| (n * 7 + round) % count) {
            get(&mut cluster, client, n);
            let arena = cluster.processes[1].node.replica().arena();
            assert!(arena.resident_bytes() < 16 << 20);
        }
    }
    assert!(!cluster.processes[1].node.replica().arena().budget().is_over());
    // What is in place is written in place.
    let other = "w".repeat(10_000);
    for n in (0..count).step_by(50) {
        cluster.feed(client, format!("SET key{n} {other}{n}\r\n").as_bytes());
        cluster.advance(100);
        assert_eq!(cluster.take(client), b"+OK\r\n", "key{n}");
        cluster.feed(
            client,
            format!("GET key{}\r\nGET key{n}\r\n", (n + 1) % count).as_bytes(),
        );
        cluster.advance(200);
        let reply = String::from_utf8(cluster.take(client)).unwrap();
        assert!(reply.ends_with(&format!("w{n}\r\n")), "key{n}: {reply}");
    }
}

/// P5.10: where the younger of two positions is whole first, by what its node had set aside, the older one lacks
/// memory.
#[test]
fn an_older_position_without_memory_beside_a_whole_younger_one_serves_all_keys() {
    let mut cluster = Cluster::coded(2, 2, 1, 1, Parameters::default());
    let client = cluster.connect(3, Port::Any);
    let count = fill(&mut cluster, client);
    cluster.hand_over(0, 2, 4);
    cluster.advance(5_000);
    cluster.hand_over(0, 2, 2);
    cluster.advance(5_000);
    cluster.kill(0);
    cluster.hand_over(0, 0, 2);
    cluster.advance(5_000);
    assert_eq!(positions(&cluster, 2), [0, 2]);
    assert!(!whole(&cluster, 2, 0), "there is no memory for that");
    for n in (0..count).map(|n| n * 7 % count) {
        get(&mut cluster, client, n);
        assert!(cluster.processes[2].node.replica().arena().resident_bytes() < 16 << 20);
    }
}

/// P5.10: two chunks that drop each other would never be there together.
#[test]
fn a_stand_in_without_any_room_does_commands_that_need_many_chunks() {
    let mut cluster = Cluster::coded_in(64 << 20, 2, 1, 1, 0, Parameters::default());
    let client = cluster.connect(2, Port::Any);
    let full = cluster.connect(1, Port::Any);
    assert_eq!(cluster.ask(full, "CONFIG SET maxmemory 32mb"), "+OK\r\n");
    cluster.advance(1_000);
    let part = |key: &str| paritas_wire::command::slot(key.as_bytes()) / 8192;
    let tag = (0..).map(|n| format!("{{tag{n}}}")).find(|tag| part(tag) == 0).unwrap();
    // Each fills most of a chunk.
    let value = |n: usize| format!("{n:010000}");
    for n in 0..80 {
        assert_eq!(cluster.ask(client, &format!("SET {tag}{n} {}", value(n))), "+OK\r\n");
    }
    for n in (0..).filter(|n| part(&format!("key{n}")) == 1) {
        let mut reply = cluster.ask(client, &format!("SET key{n} {}", value(n)));
        if reply.is_empty() {
            cluster.advance(1_000);
            reply = String::from_utf8(cluster.take(client)).unwrap();
        }
        if reply != "+OK\r\n" {
            assert!(reply.starts_with("-OOM"), "{reply}");
            break;
        }
    }
    cluster.kill(0);
    cluster.hand_over(0, 0, 1);
    cluster.advance(5_000);
    assert!(!whole(&cluster, 1, 0), "there is no memory for that");
    let mut ask = |command: &str| {
        cluster.feed(client, format!("{command}\r\n").as_bytes());
        for _ in 0..600 {
            cluster.advance(10);
            let reply = String::from_utf8(cluster.take(client)).unwrap();
            if !reply.is_empty() {
                return reply;
            }
        }
        panic!("no answer to {command}");
    };
    let keys = |keys: std::ops::Range<usize>| keys.map(|n| format!(" {tag}{n}")).collect::<String>();
    let values: String = (0..8).map(|n| format!("$10000\r\n{}\r\n", value(n))).collect();
    let reply = ask(&format!("MGET{}", keys(0..8)));
    assert!(reply == format!("*8\r\n{values}"), "{}", &reply[..40]);
    assert_eq!(ask(&format!("DEL{}", keys(0..8))), ":8\r\n");
    assert_eq!(ask(&format!("EXISTS{}", keys(2..16))), ":8\r\n");
    // One that needs more chunks than there can be is refused, and others go on.
    let reply = ask(&format!("MGET{}", keys(8..80)));
    assert!(reply.starts_with("-TRYAGAIN"), "{}", &reply[..40]);
    let reply = ask(&format!("RENAME {tag}8 {tag}9"));
    assert!(reply.starts_with("-OOM"), "a write needs memory of its own: {reply}");
    for n in 8..80 {
        let reply = ask(&format!("GET {tag}{n}"));
        assert!(reply == format!("$10000\r\n{}\r\n", value(n)), "{n}: {}", &reply[..40]);
    }
    // A few chunks more than writers may have, and no more.
    let arena = cluster.processes[1].node.replica().arena();
    let bytes = u64::from(arena.used()) * arena.chunk_bytes() as u64;
    assert!(arena.budget().is_over() && bytes < 32 << 20, "{bytes}");
}

#[test]
fn an_owner_stands_in_for_a_parity_and_rebuilds_it_from_its_own_chunks_too() {
    let (mut cluster, client) = crowded();
    set_all(&mut cluster, client, "before");
    cluster.kill(2);
    cluster.hand_over(0, 2, 1);
    cluster.advance(1_000);
    assert_eq!(positions(&cluster, 1), [1, 2]);
    set_all(&mut cluster, client, "after");
    cluster.advance(1_000);
    live(&mut cluster);

    // Node 3 has the other parity: the stand-in's alone must give back what is lost next.
    cluster.kill(0);
    cluster.hand_over(0, 0, 3);
    cluster.advance(3_000);
    assert_eq!(positions(&cluster, 3), [0, 3]);
    all_there(&mut cluster, client, "after");
}

#[test]
fn one_node_owns_two_streams_and_gives_one_up_again() {
    let (mut cluster, client) = crowded();
    set_all(&mut cluster, client, "before");
    // Not dead, only removed: it yields.
    cluster.hand_over(0, 0, 1);
    cluster.advance(100);
    assert_eq!(positions(&cluster, 1), [0, 1]);
    all_there(&mut cluster, client, "before");
    set_all(&mut cluster, client, "after");
    let strict = cluster.connect(1, Port::Cluster);
    assert_eq!(
        cluster.ask(strict, "DBSIZE"),
        format!(":{KEYS}\r\n"),
        "both streams are its own"
    );
    live(&mut cluster);

    cluster.hand_over(0, 0, 0);
    cluster.advance(100);
    assert_eq!((positions(&cluster, 0), positions(&cluster, 1)), (vec![0], vec![1]));
    all_there(&mut cluster, client, "after");
    set_all(&mut cluster, client, "again");
    all_there(&mut cluster, client, "again");
}

#[test]
fn two_parities_or_three_positions_on_one_node_are_refused() {
    let (mut cluster, client) = crowded();
    let before = cluster.configurations[0].clone();
    cluster.hand_over(0, 2, 3);
    assert_eq!(positions(&cluster, 3), [3], "both parities");
    cluster.configurations[0] = before;
    cluster.reconfigure(0, |c| {
        for i in 0..2 {
            c.positions[i].as_mut().unwrap().tenure = paritas_testbed::tenure(2, 2);
        }
    });
    assert_eq!(positions(&cluster, 2), [2], "three positions");
    assert_eq!(cluster.ask(client, "SET key value"), "+OK\r\n");
}

#[test]
fn a_stand_in_whose_one_role_halts_goes_on_in_the_other() {
    let (mut cluster, client) = crowded();
    set_all(&mut cluster, client, "before");
    cluster.hand_over(0, 0, 2);
    cluster.advance(1_000);
    live(&mut cluster);
    cluster.processes[2].out.halts = Some(Vec::new());
    // The other parity says that it has more of the stand-in's stream than was issued.
    cluster.tamper = Some(Box::new(|from, to, header, message| match message {
        Message::Ack { term, recv, lease_sent } if (from, to) == (3, 2) && header.stream.x == Position(0) => {
            let ack = Message::Ack {
                term: *term,
                recv: recv + 1_000,
                lease_sent: *lease_sent,
            };
            let mut bytes = Vec::new();
            peer::encode(&mut bytes, header, &ack);
            Some(bytes)
        }
        _ => None,
    }));
    let key_of =
        |part: u16| (0..KEYS).find(|n| paritas_wire::command::slot(format!("key{n}").as_bytes()) / 8192 == part);
    let (first, second) = (key_of(0).unwrap(), key_of(1).unwrap());
    let reply = cluster.ask(client, &format!("SET key{first} after"));
    assert!(reply.starts_with("-UNCERTAIN"), "{reply}");
    cluster.tamper = None;
    let list = cluster.processes[2].node.replica().list(ListId(0)).unwrap();
    assert!(
        matches!(list.roles[..], [Role::Halted(_), Role::Member(_)]),
        "{:?}",
        list.roles
    );
    // Its parity still counts: writes of the other stream need its ack.
    assert_eq!(cluster.ask(client, &format!("SET key{second} after")), "+OK\r\n");

    // Its incarnation begins nothing in the list again.
    cluster.hand_over(0, 0, 1);
    cluster.advance(1_000);
    all_but(&mut cluster, client, &[first, second]);
    live(&mut cluster);
    cluster.hand_over(0, 1, 2);
    assert_eq!(positions(&cluster, 2), [0, 2]);
}

fn all_but(cluster: &mut Cluster, client: Client, changed: &[usize]) {
    for n in (0..KEYS).filter(|n| !changed.contains(n)) {
        let expected = format!("before{n}");
        let reply = cluster.ask(client, &format!("GET key{n}"));
        assert_eq!(reply, format!("${}\r\n{expected}\r\n", expected.len()), "key{n}");
    }
}

#[test]
fn stand_ins_without_memory_stop_at_the_limit_refuse_writes_and_lose_nothing() {
    const MEMORY_BYTES: u64 = 4 << 20;
    const COUNT: usize = 3_600;
    let mut cluster = Cluster::coded_in(MEMORY_BYTES, 2, 1, 3, 1, Parameters::for_memory(MEMORY_BYTES, 3));
    let client = cluster.connect(1, Port::Any);
    let value = |n: usize| format!("{n:01000}");
    for n in 0..COUNT {
        assert_eq!(
            cluster.ask(client, &format!("SET key{n} {}", value(n))),
            "+OK\r\n",
            "key{n}"
        );
    }
    // Node 0's data position in list 0, its parity in list 1, its data position in list 2: to nodes of those lists.
    cluster.kill(0);
    let away: [(usize, u8, usize); 3] = [(0, 0, 2), (1, 2, 1), (2, 1, 2)];
    for (list, position, node) in away {
        assert_eq!(
            cluster.configurations[list].tenure(Position(position)).unwrap().node.0,
            0
        );
        cluster.hand_over(list, position, node);
    }
    cluster.advance(6_000);
    let has_space = |cluster: &Cluster, node: usize| {
        cluster.processes[node]
            .node
            .replica()
            .arena()
            .available(Purpose::StandIn)
            > 0
    };
    assert!(!has_space(&cluster, 2), "all its memory is used");
    let over = |cluster: &Cluster, node: usize| cluster.processes[node].node.replica().arena().budget().is_over();
    assert!(!over(&cluster, 1) && !over(&cluster, 2), "and no more");
    assert!(
        !whole(&cluster, 2, 0) || !list_is_whole(&cluster, 2, 2, 1),
        "not all fits"
    );
    let replies: Vec<String> = (0..50)
        .map(|n| cluster.ask(client, &format!("SET new{n} {}", value(n))))
        .collect();
    // List 1 has only the parity that is not whole.
    let known = |reply: &&String| {
        ["+OK", "-OOM", "-NOREPLICAS"]
            .iter()
            .any(|begin| reply.starts_with(begin))
    };
    assert_eq!(replies.iter().filter(known).count(), replies.len(), "{replies:?}");
    assert!(replies.iter().any(|reply| reply.starts_with("-OOM")), "{replies:?}");
    let busy: u64 = (1..3)
        .map(|node| cluster.processes[node].node.figures().rebuild_done_bytes)
        .sum();
    cluster.advance(2_000);
    let later: u64 = (1..3)
        .map(|node| cluster.processes[node].node.figures().rebuild_done_bytes)
        .sum();
    assert_eq!(busy, later, "nothing goes on in the background");

    // A spare comes: all of it is there.
    for (list, position, _) in away {
        cluster.hand_over(list, position, 3);
    }
    cluster.advance(6_000);
    for n in 0..COUNT {
        let reply = cluster.ask(client, &format!("GET key{n}"));
        assert_eq!(reply, format!("$1000\r\n{}\r\n", value(n)), "key{n}");
    }
}

fn list_is_whole(cluster: &Cluster, node: usize, list: u16, x: u8) -> bool {
    let list = cluster.processes[node].node.replica().list(ListId(list)).unwrap();
    list.owner(Position(x)).is_some_and(|owner| owner.is_whole())
}

/// Nine lists of `2+1` on three nodes, most of whose keys are in the first position's slots, and a node besides that
/// has not nearly the memory for all of them.
struct Crowd {
    cluster: Cluster,
    client: Client,
    /// Of each list.
    keys: Vec<Vec<String>>,
}

const LISTS: usize = 9;
const SPARE: usize = 3;

impl Crowd {
    fn new(keys_of_list: usize) -> Self {
        let parameters = Parameters {
            credit_batch: 8,
            ..Parameters::default()
        };
        let mut cluster = Cluster::coded(2, 1, LISTS as u16, 1, parameters);
        let client = cluster.connect(1, Port::Any);
        let value = "v".repeat(10_000);
        // Streams have equal parts of the slots, in order.
        let part = |key: &str| usize::from(paritas_wire::command::slot(key.as_bytes())) * 2 * LISTS / 16_384;
        let mut keys = vec![Vec::new(); LISTS];
        for key in (0..).map(|n| format!("key{n}")) {
            let (list, x) = (part(&key) / 2, part(&key) % 2);
            if x == 0 && keys[list].len() < keys_of_list {
                assert_eq!(cluster.ask(client, &format!("SET {key} {value}")), "+OK\r\n");
                keys[list].push(key);
            } else if keys.iter().all(|keys| keys.len() == keys_of_list) {
                break;
            }
        }
        Self { cluster, client, keys }
    }

    fn get(&mut self, list: usize, n: usize) {
        let key = &self.keys[list][n];
        self.cluster.feed(self.client, format!("GET {key}\r\n").as_bytes());
        let reply = self.reply(1_000);
        assert_eq!(reply.len(), 10_010, "{list}: {}", String::from_utf8_lossy(&reply));
    }

    /// What comes within so long.
    fn reply(&mut self, ms: u64) -> Vec<u8> {
        for _ in 0..ms / 10 {
            self.cluster.advance(10);
            let reply = self.cluster.take(self.client);
            if !reply.is_empty() {
                return reply;
            }
        }
        Vec::new()
    }

    fn get_all(&mut self, list: usize) {
        for n in 0..self.keys[list].len() {
            self.get(list, n);
        }
    }

    fn is_whole(&self, list: usize) -> bool {
        let list = self.cluster.processes[SPARE]
            .node
            .replica()
            .list(ListId(list as u16))
            .unwrap();
        list.owner(Position(0)).unwrap().is_whole()
    }

    /// Chunks of a list that the node has here.
    fn here(&self, list: usize) -> u32 {
        let list = self.cluster.processes[SPARE]
            .node
            .replica()
            .list(ListId(list as u16))
            .unwrap();
        let gauges = list.owner(Position(0)).unwrap().store().gauges();
        gauges.data_chunks + gauges.index_chunks
    }

    /// The node gets the parity of all lists from this one on.
    fn give_parity(&mut self, from: usize) {
        for list in from..LISTS {
            self.cluster.hand_over(list, 2, SPARE);
            self.cluster.advance(5_000);
        }
    }

    /// The same, and has no more memory then than what it keeps.
    fn fill_with_parity(&mut self, from: usize) {
        self.give_parity(from);
        let left = self.cluster.processes[SPARE].node.figures().rebuild_todo_bytes;
        assert!(left > 0, "memory enough");
    }
}

/// P5.10.
#[test]
fn positions_of_several_lists_that_a_node_has_no_memory_for_serve_all_keys() {
    let mut crowd = Crowd::new(210);
    for list in 0..LISTS {
        crowd.cluster.hand_over(list, 0, SPARE);
        crowd.cluster.advance(5_000);
        crowd.get_all(list);
    }
    assert!(
        (0..LISTS).filter(|list| !crowd.is_whole(*list)).count() > 1,
        "memory enough"
    );
    for n in 0..210 {
        for list in 0..LISTS {
            crowd.get(list, n * 11 % 210);
        }
    }
}

/// P5.10, P8.3.
#[test]
fn a_data_position_serves_where_the_parity_of_other_lists_has_what_memory_there_is() {
    let mut crowd = Crowd::new(210);
    crowd.fill_with_parity(1);
    crowd.cluster.hand_over(0, 0, SPARE);
    crowd.cluster.advance(5_000);
    crowd.get_all(0);
}

/// P5.10: with as many index pages as chunks may be here, a page and the chunk that it leads to must not be dropped for
/// each other.
#[test]
fn a_position_with_many_index_pages_and_few_chunks_serves_and_lists_all_keys() {
    const SMALL: usize = 30_000;
    let mut crowd = Crowd::new(200);
    let small: Vec<String> = (0..)
        .map(|n| format!("small{n}"))
        .filter(|key| usize::from(paritas_wire::command::slot(key.as_bytes())) * 2 * LISTS / 16_384 == 0)
        .take(SMALL)
        .collect();
    for keys in small.chunks(100) {
        let sets: String = keys.iter().map(|key| format!("SET {key} v\r\n")).collect();
        crowd.cluster.feed(crowd.client, sets.as_bytes());
        crowd.cluster.pump();
        assert_eq!(crowd.cluster.take(crowd.client), b"+OK\r\n".repeat(keys.len()));
    }
    crowd.fill_with_parity(1);
    crowd.cluster.hand_over(0, 0, SPARE);
    crowd.cluster.advance(5_000);
    assert!(crowd.here(0) <= 32, "{}", crowd.here(0));
    crowd.keys[0] = small;
    for n in 0..400 {
        let key = crowd.keys[0][n * 7_919 % SMALL].clone();
        crowd.cluster.feed(crowd.client, format!("GET {key}\r\n").as_bytes());
        let reply = crowd.reply(1_000);
        assert_eq!(reply, b"$1\r\nv\r\n", "{key}");
    }
    crowd.cluster.feed(crowd.client, b"KEYS small*\r\n");
    let reply = crowd.reply(600_000);
    assert!(
        reply.starts_with(format!("*{SMALL}\r\n").as_bytes()),
        "{}",
        String::from_utf8_lossy(&reply[..reply.len().min(80)])
    );
}

/// P5.10, P10.6: of a list that has lost more than it bears, what is here is all that there will ever be.
#[test]
fn what_nobody_can_give_back_is_not_dropped_for_other_positions() {
    let mut crowd = Crowd::new(210);
    crowd.give_parity(2);
    crowd.cluster.hand_over(0, 0, SPARE);
    crowd.cluster.advance(5_000);
    crowd.get_all(0);
    let here = crowd.here(0);
    assert!(here > 16 && !crowd.is_whole(0), "{here}");
    crowd.cluster.reconfigure(0, |c| {
        c.positions[1..].fill(None);
        c.lost = true;
    });
    crowd.cluster.hand_over(1, 0, SPARE);
    crowd
        .cluster
        .feed(crowd.client, format!("GET {}\r\n", crowd.keys[1][0]).as_bytes());
    crowd.reply(1_000);
    assert_eq!(crowd.here(0), here);
}

/// P5.10: one that is asked for much must leave another what it needs.
#[test]
fn a_position_without_chunks_is_served_beside_one_that_has_all_and_needs_more() {
    let mut crowd = Crowd::new(210);
    crowd.give_parity(2);
    crowd.cluster.hand_over(1, 0, SPARE);
    crowd.cluster.advance(5_000);
    crowd.get_all(1);
    assert!(!crowd.is_whole(1));
    crowd.cluster.hand_over(0, 0, SPARE);
    crowd.cluster.advance(5_000);
    let busy = crowd.cluster.connect(2, Port::Any);
    for n in 0..50 {
        let key = crowd.keys[0][n * 17 % 210].clone();
        crowd.cluster.feed(crowd.client, format!("GET {key}\r\n").as_bytes());
        let mut reply = Vec::new();
        for step in 0..100 {
            let gets = (0..20).map(|i| format!("GET {}\r\n", crowd.keys[1][(n * 31 + step * 20 + i * 53) % 210]));
            crowd.cluster.feed(busy, gets.collect::<String>().as_bytes());
            crowd.cluster.advance(10);
            reply = crowd.cluster.take(crowd.client);
            if !reply.is_empty() {
                break;
            }
        }
        assert_eq!(reply.len(), 10_010, "{n}: {}", String::from_utf8_lossy(&reply));
    }
}
