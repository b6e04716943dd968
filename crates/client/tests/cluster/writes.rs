//! Values that the engine encodes, at nodes that let it.

use crate::world::{World, start_with, value};
use paritas_client::{Command, Decode, Encode, Failure, OpId, Settings, Value};
use paritas_protocol::{ClientCoding, Parameters, Port};

fn start() -> World {
    let settings = Settings {
        decode: Decode::Client,
        encode: Encode::Client,
        ..Settings::default()
    };
    let parameters = Parameters {
        client_coding: ClientCoding::On,
        ..Parameters::default()
    };
    start_with(settings, parameters)
}

/// Writes a value; whether it was encoded here.
fn write(world: &mut World, key: &str, value: &[u8]) -> bool {
    let outcome = world.run(Command::set(key.as_bytes(), value.to_vec()));
    assert_eq!(outcome.result, Ok(Value::Simple("OK".into())));
    outcome.is_encoded_here
}

fn run(world: &mut World, words: &[&[u8]]) -> (Result<Value, Failure>, bool) {
    let words: Vec<Vec<u8>> = words.iter().map(|word| word.to_vec()).collect();
    let key = words.get(1).cloned();
    let outcome = world.run(Command::other(words, key).unwrap());
    (outcome.result, outcome.is_encoded_here)
}

#[test]
fn values_of_each_length_are_written_to_their_parts_and_read_by_any_node() {
    let mut world = start();
    for (n, bytes) in [65_536, 65_537, 100_001, 262_144, 300_007, 1 << 20, 5_000_000]
        .into_iter()
        .enumerate()
    {
        let key = format!("k{n}");
        assert_eq!(
            write(&mut world, &key, &value(n, bytes)),
            bytes > 64 << 10,
            "{bytes} bytes"
        );
        assert_eq!(world.read(&key).0, Some(value(n, bytes)), "{bytes} bytes");
        let client = world.cluster.connect(n % 6, Port::Any);
        world.cluster.feed(client, format!("GET {key}\r\n").as_bytes());
        world.cluster.advance(50);
        let reply = world.cluster.take(client);
        assert!(
            reply.ends_with(&[&value(n, bytes)[..], b"\r\n"].concat()),
            "{bytes} bytes at another node"
        );
    }
    let stats = world.stats();
    assert_eq!((stats.encoded_here, stats.encoded_by_node), (6, 0));
}

#[test]
fn each_command_with_a_value_keeps_its_meaning() {
    let mut world = start();
    let (first, second) = (value(1, 200_000), value(2, 300_000));
    let ok = || Ok(Value::Simple("OK".into()));
    let k = b"k";
    assert_eq!(run(&mut world, &[b"SET", k, &first, b"XX"]), (Ok(Value::Null), true));
    assert_eq!(run(&mut world, &[b"SETNX", k, &first]), (Ok(Value::Integer(1)), true));
    assert_eq!(run(&mut world, &[b"SETNX", k, &second]), (Ok(Value::Integer(0)), true));
    assert_eq!(
        run(&mut world, &[b"GETSET", k, &second]),
        (Ok(Value::Bulk(first.clone())), true)
    );
    assert_eq!(
        run(&mut world, &[b"SET", k, &first, b"GET"]),
        (Ok(Value::Bulk(second.clone())), true)
    );
    assert_eq!(run(&mut world, &[b"SETEX", k, b"1000", &second]), (ok(), true));
    assert_eq!(run(&mut world, &[b"TTL", k]).0, Ok(Value::Integer(1_000)));
    assert_eq!(run(&mut world, &[b"PSETEX", k, b"2000000", &first]), (ok(), true));
    assert_eq!(run(&mut world, &[b"TTL", k]).0, Ok(Value::Integer(2_000)));
    for wrong in [
        &[&b"SETEX"[..], k, b"0", &second][..],
        &[b"SET", k, &second, b"EX", b"soon"],
    ] {
        let refused = run(&mut world, wrong);
        assert!(matches!(refused, (Err(Failure::Refused(_)), false)), "{refused:?}");
    }
    assert_eq!(world.read("k").0, Some(first));
    assert_eq!(world.stats().encoded_by_node, 0);
}

#[test]
fn parities_give_the_value_when_two_nodes_die() {
    let mut world = start();
    let keys: Vec<String> = (0..16).map(|n| format!("k{n}")).collect();
    for (n, key) in keys.iter().enumerate() {
        assert!(write(&mut world, key, &value(n, 150_000 + 40_000 * n)));
    }
    // They own no keys, and keep data of some values and parities of others.
    world.cluster.kill(4);
    world.cluster.kill(5);
    for (n, key) in keys.iter().enumerate() {
        assert_eq!(world.read(key), (Some(value(n, 150_000 + 40_000 * n)), true));
    }
}

#[test]
fn writes_of_one_key_happen_in_their_order_and_nothing_stays_staged() {
    let mut world = start();
    let ops: Vec<(usize, OpId, OpId)> = (0..12)
        .map(|n| {
            let bytes = if n % 4 == 3 { 50 } else { 70_000 + n };
            let set = world.submit(Command::set(b"k", value(n, bytes)));
            (n, set, world.submit(Command::get(b"k")))
        })
        .collect();
    for (n, set, get) in ops {
        let bytes = if n % 4 == 3 { 50 } else { 70_000 + n };
        assert!(world.wait(set).result.is_ok());
        assert_eq!(world.wait(get).result, Ok(Value::Bulk(value(n, bytes))));
    }
    assert_eq!(world.stats().encoded_by_node, 0);
}

#[test]
fn a_holder_that_dies_or_stops_while_a_value_is_written_costs_no_write() {
    for how in ["dies", "stops"] {
        for at in 0..6 {
            let mut world = start();
            assert!(write(&mut world, "k", &value(0, 100_000)));
            let owner = (0..6).find(|at| {
                let client = world.cluster.connect(*at, Port::Cluster);
                world.cluster.ask(client, "EXISTS k").starts_with(":1")
            });
            // The node that commands go to, and the owner: their writes may be uncertain.
            if at == 0 || Some(at) == owner {
                continue;
            }
            let op = world.submit(Command::set(b"k", value(1, 3_000_000)));
            (0..6).for_each(|_| world.step());
            if how == "dies" {
                world.cluster.kill(at);
            } else {
                world.stopped.insert(at);
            }
            let outcome = world.wait(op);
            assert_eq!(outcome.result, Ok(Value::Simple("OK".into())), "{at} {how}");
            world.stopped.clear();
            assert_eq!(world.read("k").0, Some(value(1, 3_000_000)), "{at} {how}");
        }
    }
}

#[test]
fn nodes_that_only_let_clients_read_get_the_whole_value() {
    let settings = Settings {
        encode: Encode::Client,
        ..Settings::default()
    };
    let mut world = start_with(settings, Parameters::default());
    for n in 0..3 {
        assert!(!write(&mut world, "k", &value(n, 200_000)));
        assert_eq!(world.read("k").0, Some(value(n, 200_000)));
    }
    assert_eq!(world.stats().encoded_by_node, 1, "it does not ask each time");
}
