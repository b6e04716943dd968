//! GET and SET go to owners, against nodes in memory: who is asked, and what an owner costs that is gone.

use crate::fake::{Fault, What, World};
use crate::{Decode, Encode, Failure, OpId, Settings, Value};
use paritas_base::Span;

fn settings() -> Settings {
    Settings {
        decode: Decode::Server,
        encode: Encode::Server,
        ..Settings::default()
    }
}

/// An engine that has a connection to the owner.
fn start() -> World {
    let mut world = World::new(settings());
    for n in 0..3 {
        assert_eq!(set(&mut world, "k", &format!("{n}")), ok());
    }
    assert_eq!(world.readers("SET"), ["n0:1", "n0:1", "n3:2"]);
    world.nodes.log.clear();
    world
}

fn ok() -> Result<Value, Failure> {
    Ok(Value::Simple("OK".into()))
}

fn bulk(text: &str) -> Result<Value, Failure> {
    Ok(Value::Bulk(text.as_bytes().to_vec()))
}

fn set(world: &mut World, key: &str, value: &str) -> Result<Value, Failure> {
    world.run(&[b"SET", key.as_bytes(), value.as_bytes()]).result
}

fn begin_get(world: &mut World, key: &str) -> OpId {
    world.begin(&[b"GET", key.as_bytes()])
}

fn get(world: &mut World, key: &str) -> Result<Value, Failure> {
    let op = begin_get(world, key);
    world.wait(op).result
}

fn pass(world: &mut World, ms: u64) {
    (0..ms).for_each(|_| world.step());
}

/// Writes and reads until then, every 10 ms. None takes longer than 10 ms.
fn use_it_for(world: &mut World, ms: u64) {
    let until = world.now() + Span::from_ms(ms);
    while world.now() < until {
        let began = world.now();
        let value = format!("{began:?}");
        assert_eq!(set(world, "k", &value), ok());
        assert_eq!(get(world, "k"), bulk(&value));
        let took = world.now() - began;
        assert!(took <= Span::from_ms(10), "{took:?} at {began:?}");
        pass(world, 10);
    }
}

#[test]
fn reads_and_writes_go_to_the_owner_and_all_else_home() {
    let mut world = start();
    assert_eq!(get(&mut world, "k"), bulk("2"));
    assert_eq!(set(&mut world, "other", "v"), ok());
    assert_eq!(world.run(&[b"SETNX", b"other", b"w"]).result, Ok(Value::Integer(0)));
    assert_eq!(world.readers("GET"), ["n3:2"]);
    assert_eq!(world.readers("SET"), ["n3:2"]);
    assert_eq!(world.readers("SETNX"), ["n0:1"]);
    pass(&mut world, 10_000);
    assert_eq!((get(&mut world, "k"), world.count("CLUSTER SLOTS")), (bulk("2"), 0));
    let mut world = World::new(Settings {
        decode: Decode::Client,
        ..settings()
    });
    (0..3).for_each(|_| assert_eq!(get(&mut world, "k"), Ok(Value::Null)));
    assert_eq!(world.readers("PARITAS.LOCATE"), ["n0:1", "n0:1", "n3:2"]);
}

#[test]
fn many_commands_at_once_ask_for_one_map() {
    let mut world = World::new(settings());
    let ops: Vec<OpId> = (0..30).map(|n| begin_get(&mut world, &format!("k{n}"))).collect();
    ops.into_iter()
        .for_each(|op| assert_eq!(world.wait(op).result, Ok(Value::Null)));
    assert_eq!((world.count("CLUSTER SLOTS"), world.count("GET")), (1, 30));
}

#[test]
fn an_owner_that_has_moved_names_the_new_one_once_for_a_slot() {
    let mut world = start();
    world.nodes.owner = 5;
    world.nodes.named = Some(3);
    use_it_for(&mut world, 5_000);
    let asked = |world: &World, at: &str| world.nodes.log.iter().filter(|(node, _)| node == at).count();
    assert_eq!(asked(&world, "n3:2"), 1, "the map is stale for five seconds");
    assert!(asked(&world, "n5:2") > 500);
    // It owns them again.
    (world.nodes.owner, world.nodes.named) = (3, None);
    use_it_for(&mut world, 70_000);
    world.nodes.log.clear();
    use_it_for(&mut world, 100);
    assert_eq!(asked(&world, "n3:2"), world.nodes.log.len());
}

#[test]
fn a_slot_with_keys_of_two_owners_costs_two_detours_a_minute() {
    let mut world = start();
    world.nodes.ruled = Some(5);
    let began = world.now();
    while world.now() - began < Span::from_secs(50) {
        // They have one hash tag: as clients of Redis Cluster count, one slot.
        assert_eq!(set(&mut world, "{k}", "v"), ok());
        assert_eq!(get(&mut world, "ruled{k}"), Ok(Value::Null));
        pass(&mut world, 10);
    }
    let of_others = |(at, name): &&(String, String)| match name.as_str() {
        "SET" => at != "n3:2" && at.ends_with(":2"),
        "GET" => at != "n5:2" && at.ends_with(":2"),
        _ => false,
    };
    let detours = world.nodes.log.iter().filter(of_others).count();
    assert_eq!(detours, 2);
    assert!(world.count("CLUSTER SLOTS") <= 7, "{}", world.count("CLUSTER SLOTS"));
}

#[test]
fn nodes_that_name_each_other_end_at_home() {
    let mut world = start();
    world.nodes.astray = [("n3:2", "n4:2"), ("n4:2", "n3:2")].into();
    use_it_for(&mut world, 3_000);
    let strayed = world.nodes.log.iter().filter(|(at, _)| at.ends_with(":2")).count();
    assert!(strayed <= 4, "{strayed}");
    // Nobody takes it.
    let mut world = World::new(settings());
    world.nodes.astray = [("n0:1", "n4:2"), ("n4:2", "n0:1")].into();
    let refused = get(&mut world, "k");
    assert!(
        matches!(&refused, Err(Failure::Refused(text)) if text.starts_with("MOVED")),
        "{refused:?}"
    );
    assert!(world.count("GET") <= 6, "{}", world.count("GET"));
}

#[test]
fn a_moved_that_names_no_address_ends_at_home() {
    let mut world = start();
    for text in [
        "-MOVED \r\n",
        "-MOVED 7\r\n",
        "-MOVED 7 n4\r\n",
        "-MOVED 7 :2\r\n",
        "-MOVED 7 n4:0 x\r\n",
    ] {
        let moved = Fault {
            command: "SET",
            after: 0,
            what: What::Answers(text),
        };
        world.nodes.faults.push(moved);
        assert_eq!(set(&mut world, "k", text), ok());
        assert_eq!(get(&mut world, "k"), bulk(text));
        assert!(world.nodes.faults.is_empty());
    }
    assert_eq!(world.readers("SET")[..2], ["n3:2", "n0:1"]);
}

#[test]
fn a_read_behind_a_write_sees_it_although_the_owner_has_moved_between() {
    let mut world = start();
    for n in 0..20 {
        let value = format!("v{n}");
        let write = world.begin(&[b"SET", b"k", value.as_bytes()]);
        let read = begin_get(&mut world, "k");
        pass(&mut world, n % 5);
        world.nodes.owner = 3 + (n % 3) as u8;
        assert_eq!(world.wait(write).result, ok());
        assert_eq!(world.wait(read).result, bulk(&value));
        pass(&mut world, 700 * (n % 2));
    }
    let log: Vec<&str> = world.nodes.log.iter().map(|(_, name)| name.as_str()).collect();
    let last = |name: &str| log.iter().rposition(|it| *it == name);
    assert!(
        last("SET") < last("GET"),
        "the last write is done before its read is asked"
    );
}

#[test]
fn an_owner_whose_connection_ends_is_as_a_node_that_ends() {
    let mut world = start();
    for what in [What::Closes, What::ClosesBehind] {
        world.nodes.faults.push(Fault {
            command: "SET",
            after: 0,
            what,
        });
        let write = world.begin(&[b"SET", b"k", b"v"]);
        let read = begin_get(&mut world, "other");
        let began = world.now();
        assert_eq!(world.wait(write).result, Err(Failure::Uncertain));
        assert_eq!(world.wait(read).result, Ok(Value::Null));
        assert!(
            world.now() - began <= Span::from_ms(5),
            "a read is asked elsewhere at once"
        );
        use_it_for(&mut world, 3_000);
        assert_eq!(world.links_to("n3:2").len(), 1, "it is the owner again");
        world.nodes.log.clear();
    }
}

#[test]
fn an_owner_that_takes_no_connection_costs_no_command_any_time() {
    let mut world = World::new(settings());
    world.down.insert("n3:2".to_owned());
    use_it_for(&mut world, 20_000);
    assert_eq!(
        world.count("SET"),
        world.readers("SET").iter().filter(|at| **at == "n0:1").count()
    );
    let dials = world.dials("n3:2");
    assert!((3..=5).contains(&dials), "{dials} in 20 s");
    let asked = world.count("CLUSTER SLOTS");
    assert!((3..=20).contains(&asked), "at most once a second: {asked}");
    // It takes them again.
    world.down.clear();
    use_it_for(&mut world, 40_000);
    world.nodes.log.clear();
    use_it_for(&mut world, 100);
    assert!(world.readers("SET").iter().all(|at| *at == "n3:2"));
}

#[test]
fn an_owner_that_dies_costs_no_command_but_those_that_it_had() {
    let mut world = start();
    world.down.insert("n3:2".to_owned());
    let link = world.links_to("n3:2")[0];
    world.close(link);
    // Home names it until another node has its keys.
    use_it_for(&mut world, 4_000);
    world.nodes.owner = 5;
    use_it_for(&mut world, 3_000);
    world.nodes.log.clear();
    use_it_for(&mut world, 100);
    assert!(world.readers("SET").iter().all(|at| *at == "n5:2"));
}

#[test]
fn a_silent_owner_costs_one_retry_in_all() {
    let mut world = start();
    world.nodes.stopped.insert("n3:2".to_owned());
    let began = world.now();
    let write = world.begin(&[b"SET", b"written", b"v"]);
    let mut reads = Vec::new();
    for n in 0..9 {
        reads.push(begin_get(&mut world, &format!("k{n}")));
        pass(&mut world, 100);
    }
    for read in reads {
        assert_eq!(world.wait(read).result, Ok(Value::Null));
    }
    let took = world.now() - began;
    assert!(took >= Span::from_ms(1_000) && took <= Span::from_ms(1_010), "{took:?}");
    // The map of home still names it.
    use_it_for(&mut world, 8_000);
    assert!(world.count("CLUSTER SLOTS") >= 1);
    assert_eq!(world.wait(write).result, Err(Failure::Uncertain));
    assert!(
        world.now() - began >= Span::from_ms(10_000),
        "it has its whole deadline"
    );
    world.nodes.stopped.clear();
    use_it_for(&mut world, 20_000);
    world.nodes.log.clear();
    use_it_for(&mut world, 100);
    assert!(world.readers("SET").iter().all(|at| *at == "n3:2"));
}

#[test]
fn writes_alone_find_out_that_their_owner_is_silent() {
    let mut world = start();
    world.nodes.stopped.insert("n3:2".to_owned());
    let lost = world.begin(&[b"SET", b"lost", b"v"]);
    pass(&mut world, 1_001);
    let began = world.now();
    assert_eq!(set(&mut world, "k", "v"), ok());
    assert!(world.now() - began <= Span::from_ms(10));
    assert_eq!(world.wait(lost).result, Err(Failure::Uncertain));
}

#[test]
fn nodes_that_tell_no_map_are_served_as_before_and_asked_less_and_less() {
    let long = format!("${}\r\n{}", 9 << 20, "x".repeat(5 << 20)).leak();
    for text in ["-ERR unknown command\r\n", "+OK\r\n", "*1\r\n*0\r\n", "-NOPERM no\r\n"] {
        let mut world = World::new(settings());
        for _ in 0..20 {
            world.nodes.faults.push(Fault {
                command: "CLUSTER SLOTS",
                after: 0,
                what: What::Answers(text),
            });
        }
        use_it_for(&mut world, 61_000);
        assert_eq!(world.count("CLUSTER SLOTS"), 5, "{text}: at 0, 2, 6, 14 and 30 s");
        assert!(world.nodes.log.iter().all(|(at, _)| at == "n0:1"));
    }
    let mut world = World::new(settings());
    world.nodes.faults.push(Fault {
        command: "CLUSTER SLOTS",
        after: 0,
        what: What::Answers(long),
    });
    assert_eq!(set(&mut world, "k", "v"), ok());
    pass(&mut world, 100);
    assert!(
        world.links_to("n0:1").is_empty(),
        "a map that is too long ends its connection"
    );
    use_it_for(&mut world, 50_000);
    assert_eq!(world.count("CLUSTER SLOTS"), 1);
}

#[test]
fn an_owner_that_refuses_the_password_refuses_no_command() {
    let mut world = World::new(Settings {
        password: Some((None, "secret".into())),
        ..settings()
    });
    for _ in 0..100 {
        world.nodes.faults.push(Fault {
            command: "AUTH",
            after: 1,
            what: What::Answers("-WRONGPASS no\r\n"),
        });
    }
    use_it_for(&mut world, 10_000);
    assert!((3..=5).contains(&world.dials("n3:2")), "{}", world.dials("n3:2"));
}

#[test]
fn a_node_of_another_cluster_at_the_address_of_an_owner_gets_no_command() {
    for text in ["$2\r\nn9\r\n", "-NOPERM no\r\n", ":1\r\n"] {
        let mut world = World::new(settings());
        for _ in 0..100 {
            world.nodes.faults.push(Fault {
                command: "CLUSTER MYID",
                after: 0,
                what: What::Answers(text),
            });
        }
        use_it_for(&mut world, 10_000);
        assert!(world.readers("SET").iter().all(|at| *at == "n0:1"));
        assert!(world.readers("GET").iter().all(|at| *at == "n0:1"));
        assert!((3..=5).contains(&world.count("CLUSTER MYID")), "{text}");
    }
}

#[test]
fn something_that_takes_connections_and_ends_them_costs_no_write() {
    let mut world = World::new(settings());
    for _ in 0..100 {
        world.nodes.faults.push(Fault {
            command: "CLUSTER MYID",
            after: 0,
            what: What::Closes,
        });
    }
    use_it_for(&mut world, 10_000);
    assert!((3..=5).contains(&world.dials("n3:2")), "{}", world.dials("n3:2"));
}
