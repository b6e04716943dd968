//! Redundancy by hotness (P14.15): what is read often gets another class, within bounds, and gets it back.

use paritas_protocol::{Parameters, Port};
use paritas_testbed::{Client, Cluster};
use paritas_wire::command;
use paritas_wire::peer::Message;
use std::cell::Cell;
use std::rc::Rc;

const BYTES: usize = 1_000_000;

/// `2+1` and a spare. Node 0 owns the keys.
fn start(setting: &str) -> Cluster {
    let parameters = Parameters {
        hotness: Some(setting.parse().unwrap()),
        ..Parameters::default()
    };
    Cluster::coded_in(64 << 20, 2, 1, 1, 1, parameters)
}

fn keys() -> impl Iterator<Item = String> {
    let all = (0..).map(|i| format!("k{i}"));
    all.filter(|key| command::slot(key.as_bytes()) < 8192)
}

fn ask(cluster: &mut Cluster, client: Client, words: &[&str]) -> String {
    let mut request = Vec::new();
    paritas_wire::resp::encode::request(&mut request, words);
    cluster.feed(client, &request);
    cluster.advance(20);
    String::from_utf8(cluster.take(client)).unwrap()
}

fn set(cluster: &mut Cluster, client: Client, key: &str) {
    let value = key.repeat(BYTES / key.len());
    assert_eq!(ask(cluster, client, &["SET", key, &value]), "+OK\r\n");
}

fn read(cluster: &mut Cluster, client: Client, key: &str, times: usize) {
    let value = key.repeat(BYTES / key.len());
    for _ in 0..times {
        let reply = ask(cluster, client, &["GET", key]);
        assert!(
            reply == format!("${}\r\n{value}\r\n", value.len()),
            "{key}: {} bytes",
            reply.len()
        );
    }
}

fn class(cluster: &mut Cluster, client: Client, key: &str) -> String {
    let reply = ask(cluster, client, &["PARITAS.REDUNDANCY", key]);
    reply.split("\r\n").nth(1).unwrap_or_default().to_owned()
}

/// Values that became hot, and cold, by what node 0 has counted.
fn counted(cluster: &mut Cluster, client: Client) -> (u64, u64) {
    let info = ask(cluster, client, &["INFO", "paritas"]);
    let number = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().parse().unwrap()
    };
    (number("to_hot_values:"), number("to_cold_values:"))
}

#[test]
fn a_value_that_is_read_often_becomes_hot_and_one_that_is_not_read_becomes_cold() {
    let mut cluster = start("hot eor:2,2 cold ec:2,1 reads 4 seconds 10");
    let client = cluster.connect(0, Port::Any);
    let keys: Vec<String> = keys().take(20).collect();
    keys.iter().for_each(|key| set(&mut cluster, client, key));
    // A client that reads all keys changes nothing.
    keys.iter().for_each(|key| read(&mut cluster, client, key, 2));
    cluster.advance(1_000);
    assert_eq!(counted(&mut cluster, client), (0, 0));
    read(&mut cluster, client, &keys[3], 6);
    cluster.advance(2_000);
    assert_eq!(class(&mut cluster, client, &keys[3]), "eor:2,2");
    assert_eq!(counted(&mut cluster, client), (1, 0));
    read(&mut cluster, client, &keys[3], 1);
    cluster.advance(50_000);
    for key in &keys {
        assert_eq!(class(&mut cluster, client, key), "ec:2,1", "{key}");
        read(&mut cluster, client, key, 1);
    }
    assert_eq!(counted(&mut cluster, client), (1, 1));
}

#[test]
fn rules_and_classes_that_clients_have_chosen_stay() {
    let mut cluster = start("hot eor:2,2 cold ec:2,1 reads 2");
    let client = cluster.connect(0, Port::Any);
    let keys: Vec<String> = keys().take(3).collect();
    let rules = format!("{} rep:2", keys[0]);
    assert_eq!(
        ask(&mut cluster, client, &["CONFIG", "SET", "redundancy-rules", &rules]),
        "+OK\r\n"
    );
    keys.iter().for_each(|key| set(&mut cluster, client, key));
    assert_eq!(
        ask(&mut cluster, client, &["PARITAS.REDUNDANCY", &keys[1], "none"]),
        "+OK\r\n"
    );
    keys.iter().for_each(|key| read(&mut cluster, client, key, 9));
    cluster.advance(2_000);
    let classes = [0, 1, 2].map(|at: usize| class(&mut cluster, client, &keys[at]));
    assert_eq!(classes, ["rep:2", "none", "eor:2,2"]);
}

#[test]
fn a_new_owner_finds_hot_values_and_lets_them_become_cold() {
    let mut cluster = start("hot eor:2,2 cold ec:2,1 reads 2 seconds 10");
    let client = cluster.connect(1, Port::Any);
    let key = keys().next().unwrap();
    set(&mut cluster, client, &key);
    read(&mut cluster, client, &key, 9);
    cluster.advance(2_000);
    assert_eq!(class(&mut cluster, client, &key), "eor:2,2");
    cluster.kill(0);
    cluster.hand_over(0, 0, 3);
    cluster.advance(3_000);
    assert_eq!(class(&mut cluster, client, &key), "eor:2,2");
    read(&mut cluster, client, &key, 1);
    cluster.advance(40_000);
    assert_eq!(class(&mut cluster, client, &key), "ec:2,1");
    read(&mut cluster, client, &key, 1);
}

#[test]
fn with_little_memory_hot_values_go_back_and_none_becomes_hot() {
    let mut cluster = start("hot eor:2,2 cold ec:2,1 reads 2 seconds 1000");
    let client = cluster.connect(0, Port::Any);
    let mut keys = keys();
    let some: Vec<String> = keys.by_ref().take(4).collect();
    for key in &some {
        set(&mut cluster, client, key);
        read(&mut cluster, client, key, 4);
    }
    cluster.advance(2_000);
    assert_eq!(counted(&mut cluster, client), (4, 0));
    let is_short = |cluster: &Cluster| {
        let budget = cluster.processes[0].node.replica().arena().budget();
        u64::from(budget.used()) * 8 > u64::from(budget.limit()) * 7
    };
    let mut count = 0;
    while !is_short(&cluster) && counted(&mut cluster, client).1 == 0 {
        set(&mut cluster, client, &keys.next().unwrap());
        count += 1;
        assert!(count < 200, "the memory is not full after {count} values");
    }
    cluster.advance(2_000);
    let (hot, cold) = counted(&mut cluster, client);
    assert!(hot == 4 && cold >= 1, "{hot} became hot, {cold} cold");
    let other = keys.next().unwrap();
    set(&mut cluster, client, &other);
    read(&mut cluster, client, &other, 20);
    cluster.advance(2_000);
    assert_eq!(class(&mut cluster, client, &other), "ec:2,1");
    assert_eq!(counted(&mut cluster, client).0, 4);
}

/// Bytes of units that move between nodes.
fn count_units(cluster: &mut Cluster) -> Rc<Cell<usize>> {
    let moved = Rc::new(Cell::new(0));
    let counter = moved.clone();
    cluster.tamper = Some(Box::new(move |_, _, _, message| {
        let bytes = match message {
            Message::PutUnit { bytes, .. } => bytes.len(),
            Message::UnitValue {
                unit: Some((_, bytes)), ..
            } => bytes.len(),
            _ => 0,
        };
        counter.set(counter.get() + bytes);
        None
    }));
    moved
}

/// ElasticMem, Table 1, between nodes: the value was never `eor`.
#[test]
fn a_cold_value_becomes_hot_by_its_copies_alone() {
    const MIB: usize = 1 << 20;
    // (k, m, r), and quarters of S: of ec_to_eor, of eor_to_ec, and of a read of the cold value. With hotness, without.
    for ((data, parity, copies), with, without) in
        [((4, 1, 2), [4, 0, 4], [7, 0, 3]), ((4, 2, 3), [8, 1, 4], [11, 1, 3])]
    {
        for (has_hotness, wanted) in [(true, with), (false, without)] {
            let (hot, cold) = (format!("eor:{copies},{data}"), format!("ec:{data},{parity}"));
            let setting = format!("hot {hot} cold {cold} reads 1000000");
            let parameters = Parameters {
                hotness: has_hotness.then(|| setting.parse().unwrap()),
                ..Parameters::default()
            };
            let mut cluster = Cluster::coded_in(64 << 20, data, parity, 1, 1, parameters);
            let client = cluster.connect(0, Port::Any);
            let key = (0..)
                .map(|i| format!("k{i}"))
                .find(|key| command::slot(key.as_bytes()) < 4096)
                .unwrap();
            let value = "value".repeat(MIB / 5 + 1);
            for first in [
                &["SET", &key, &value[..MIB]][..],
                &["PARITAS.SET", &cold, &key, &value[..MIB]],
            ] {
                assert_eq!(ask(&mut cluster, client, first), "+OK\r\n");
                let moved = count_units(&mut cluster);
                let mut quarters = |words: &[&str]| {
                    // A body that was read is kept for a while.
                    cluster.advance(5_000);
                    let before = moved.get();
                    let reply = ask(&mut cluster, client, words);
                    assert!(!reply.starts_with('-'), "{reply}");
                    (moved.get() - before) as f64 / (MIB / 4) as f64
                };
                let read = quarters(&["GET", &key]);
                let to_eor = quarters(&["PARITAS.REDUNDANCY", &key, &hot]);
                let to_ec = quarters(&["PARITAS.REDUNDANCY", &key, &cold]);
                assert_eq!([to_eor, to_ec, read], wanted.map(f64::from), "{setting}: {has_hotness}");
                // Then it was eor, whatever it was before.
                assert_eq!(quarters(&["PARITAS.REDUNDANCY", &key, &hot]), f64::from(with[0]));
                assert_eq!(class(&mut cluster, client, &key), hot);
            }
        }
    }
}

#[test]
fn a_cold_value_with_parity_at_its_owner_outlives_each_pair_of_nodes() {
    for (first, second) in (0..4).flat_map(|first| (first + 1..4).map(move |second| (first, second))) {
        for is_hot in [false, true] {
            let parameters = Parameters {
                hotness: Some("hot eor:3,2 cold ec:2,2 reads 1000000".parse().unwrap()),
                ..Parameters::default()
            };
            let mut cluster = Cluster::coded_in(64 << 20, 2, 2, 1, 2, parameters);
            let client = cluster.connect(4, Port::Any);
            let key = keys().next().unwrap();
            set(&mut cluster, client, &key);
            if is_hot {
                ask(&mut cluster, client, &["PARITAS.REDUNDANCY", &key, "eor:3,2"]);
            }
            cluster.kill(first);
            cluster.kill(second);
            for (lost, spare) in [(first, 4), (second, 5)] {
                cluster.hand_over(0, lost as u8, spare);
            }
            cluster.advance(5_000);
            read(&mut cluster, client, &key, 1);
            let wanted = if is_hot { "eor:3,2" } else { "ec:2,2" };
            assert_eq!(class(&mut cluster, client, &key), wanted, "{first} and {second}");
        }
    }
}
