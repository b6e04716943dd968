//! The engine against nodes: the machines of a cluster, without sockets.

mod world;
mod writes;

use paritas_base::Span;
use paritas_client::{Command, Decode, Encode, Event, Failure, OpId, Settings, SubmitError, Value};
use paritas_protocol::{Parameters, Port};
use world::{settings, start, start_of, value};

#[test]
fn values_of_each_length_and_class_are_read_from_their_parts() {
    let mut world = start(settings(Decode::Client));
    assert_eq!(world.read("none"), (None, false));
    for (n, bytes) in [5, 60_000, 70_000, 300_007, 3_000_000].into_iter().enumerate() {
        let key = format!("k{n}");
        world.set(&key, &value(n, bytes));
        assert_eq!(
            world.read(&key),
            (Some(value(n, bytes)), bytes > 64 << 10),
            "{bytes} bytes"
        );
    }
    for class in ["rep:3", "eor:3,4", "ec:3,2"] {
        let words = ["PARITAS.REDUNDANCY", "k3", class].map(|word| word.as_bytes().to_vec());
        let reply = world
            .run(Command::other(words.to_vec(), Some(b"k3".to_vec())).unwrap())
            .result;
        assert!(matches!(reply, Ok(Value::Simple(_))), "{class}: {reply:?}");
        assert_eq!(world.read("k3"), (Some(value(3, 300_007)), true), "{class}");
    }
    assert_eq!(world.stats().by_node, 0);
}

#[test]
fn two_holders_die_and_every_value_is_read() {
    let mut world = start(settings(Decode::Client));
    let keys: Vec<String> = (0..8).map(|n| format!("k{n}")).collect();
    for (n, key) in keys.iter().enumerate() {
        world.set(key, &value(n, 200_000 + n));
        assert!(world.read(key).1);
    }
    // They hold the parities: every key has its owner, and parts are at the two.
    world.cluster.kill(4);
    world.cluster.kill(5);
    for (n, key) in keys.iter().enumerate() {
        assert_eq!(world.read(key), (Some(value(n, 200_000 + n)), true));
    }
}

#[test]
fn a_holder_that_stops_is_replaced_and_asked_last() {
    let mut world = start(settings(Decode::Client));
    world.set("k", &value(1, 300_000));
    assert!(world.read("k").1);
    let ours: Vec<usize> = world.links.up.values().map(|client| client.at).collect();
    // Not the node that commands go to, nor the owner of the key.
    let owner = (0..6).find(|at| {
        let client = world.cluster.connect(*at, Port::Cluster);
        world.cluster.ask(client, "EXISTS k").starts_with(":1")
    });
    let holder = ours
        .iter()
        .find(|at| **at != 0 && Some(**at) != owner)
        .expect("other nodes have parts");
    world.stopped.insert(*holder);
    let began = world.cluster.now.mono;
    assert_eq!(world.read("k"), (Some(value(1, 300_000)), true));
    assert!(
        world.cluster.now.mono - began <= Span::from_ms(15),
        "late units were not replaced"
    );
    let replaced = world.stats().replaced;
    assert!(replaced > 0);
    assert_eq!(world.read("k"), (Some(value(1, 300_000)), true));
    assert_eq!(
        world.stats().replaced,
        replaced,
        "it was asked again although it owes units"
    );
    world.stopped.clear();
    assert_eq!(world.read("k"), (Some(value(1, 300_000)), true));
}

#[test]
fn commands_on_one_key_happen_in_the_order_of_their_submission() {
    let mut world = start(settings(Decode::Client));
    let ops: Vec<(usize, OpId, OpId)> = (0..6)
        .map(|n| {
            let set = world.submit(Command::set(b"k", value(n, 100_000 + n)));
            (n, set, world.submit(Command::get(b"k")))
        })
        .collect();
    for (n, set, get) in ops {
        assert!(world.wait(set).result.is_ok());
        assert_eq!(world.wait(get).result, Ok(Value::Bulk(value(n, 100_000 + n))));
    }
}

#[test]
fn a_value_that_is_overwritten_while_it_is_read_is_the_old_or_the_new_one() {
    let mut world = start(settings(Decode::Client));
    let writer = world.cluster.connect(3, Port::Any);
    for n in 0..30 {
        world.set("k", &value(n, 150_000));
        let get = world.submit(Command::get(b"k"));
        for _ in 0..n % 6 {
            world.step();
        }
        let new = String::from_utf8(vec![b'a' + (n % 26) as u8; 160_000]).unwrap();
        world.cluster.ask_words(writer, &["SET", "k", &new]);
        match world.wait(get).result {
            Ok(Value::Bulk(read)) => assert!(read == value(n, 150_000) || read == new.as_bytes(), "neither"),
            other => panic!("GET was answered {other:?}"),
        }
    }
}

#[test]
fn more_than_the_window_is_refused_as_busy() {
    let mut world = start(Settings {
        ops_max: 4,
        ..settings(Decode::Auto)
    });
    let ops: Vec<OpId> = (0..4)
        .map(|n| world.submit(Command::set(&[b'k', n], vec![n; 10])))
        .collect();
    let now = world.cluster.now.mono;
    let fifth = world.engine.submit(now, Command::get(b"k"), &mut world.links);
    assert_eq!(fifth, Err((SubmitError::Busy, Command::get(b"k"))));
    for op in ops {
        assert!(world.wait(op).result.is_ok());
    }
    // One that is longer than all that may be under way runs alone.
    let long = world.submit(Command::set(b"long", value(1, 9 << 20)));
    assert!(world.engine.submit(now, Command::get(b"k"), &mut world.links).is_err());
    assert!(world.wait(long).result.is_ok());
    assert_eq!(world.read("long").0, Some(value(1, 9 << 20)));
}

#[test]
fn a_write_whose_connection_ends_is_uncertain_and_a_read_goes_on_at_another_node() {
    let mut world = start(settings(Decode::Auto));
    world.set("k", b"before");
    world.stopped.insert(0);
    let set = world.submit(Command::set(b"other", b"value".to_vec()));
    let get = world.submit(Command::get(b"k"));
    world.step();
    let link = *world
        .links
        .up
        .iter()
        .find(|(_, client)| client.at == 0)
        .expect("it is connected")
        .0;
    world.links.up.remove(&link);
    let now = world.cluster.now.mono;
    world.engine.on(now, Event::Closed(link), &mut world.links);
    assert_eq!(world.wait(set).result, Err(Failure::Uncertain));
    assert_eq!(world.wait(get).result, Ok(Value::Bulk(b"before".to_vec())));
}

#[test]
fn without_any_node_an_operation_ends_at_its_deadline() {
    let mut world = start(settings(Decode::Auto));
    (0..6).for_each(|at| world.cluster.kill(at));
    let began = world.cluster.now.mono;
    assert_eq!(world.run(Command::get(b"k")).result, Err(Failure::Unreachable));
    assert_eq!(world.run(Command::set(b"k", vec![1])).result, Err(Failure::Unreachable));
    let took = world.cluster.now.mono - began;
    assert!(
        took >= Span::from_ms(20_000) && took <= Span::from_ms(20_200),
        "{took:?}"
    );
}

#[test]
fn reads_and_writes_go_to_the_owners_of_their_keys_and_follow_them() {
    let settings = Settings {
        encode: Encode::Server,
        ..settings(Decode::Server)
    };
    let mut world = start_of(settings, Parameters::default(), 1);
    let keys: Vec<String> = (0..24).map(|n| format!("k{n}")).collect();
    for round in 0..3 {
        for key in &keys {
            world.set(key, format!("{round}").as_bytes());
            assert_eq!(world.read(key).0, Some(format!("{round}").into_bytes()));
        }
    }
    // The node that all else goes to stands still: nobody needs it for the keys of others.
    let home = world.cluster.connect(0, Port::Cluster);
    let of_others = |key: &&String| world.cluster.ask(home, &format!("EXISTS {key}")).starts_with("-MOVED");
    let others: Vec<&String> = keys.iter().filter(of_others).collect();
    assert!(others.len() >= 4, "{others:?}");
    world.stopped.insert(0);
    let began = world.cluster.now.mono;
    for key in &others {
        world.set(key, b"3");
        assert_eq!(world.read(key).0, Some(b"3".to_vec()));
    }
    let took = world.cluster.now.mono - began;
    assert!(took <= Span::from_ms(20 * others.len() as u64), "{took:?}");
    world.stopped.clear();
    // An owner dies. A read behind a write sees it all the same.
    for key in &keys {
        world.set(key, b"old");
    }
    let ops: Vec<(OpId, OpId)> = keys
        .iter()
        .map(|key| {
            let set = world.submit(Command::set(key.as_bytes(), b"new".to_vec()));
            (set, world.submit(Command::get(key.as_bytes())))
        })
        .collect();
    world.step();
    world.cluster.kill(1);
    world.cluster.hand_over(0, 1, 6);
    let mut done = 0;
    for (set, get) in ops {
        let written = world.wait(set).result;
        let read = world.wait(get).result;
        let is_new = read == Ok(Value::Bulk(b"new".to_vec()));
        match written {
            Ok(_) => done += 1,
            Err(Failure::Uncertain) if read == Ok(Value::Bulk(b"old".to_vec())) => continue,
            Err(Failure::Uncertain) => {}
            other => panic!("SET was answered {other:?}"),
        }
        assert!(is_new, "GET was answered {read:?}");
    }
    assert!(done >= 4);
}
