//! Redundancy by hotness (P14.15): what is read often gets another class, within bounds, and gets it back.

use paritas_protocol::{Parameters, Port};
use paritas_testbed::{Client, Cluster};
use paritas_wire::command;

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
