//! Writes in parts, against nodes in memory: what goes wrong before the command runs is done by a node, once.

use crate::fake::{Fault, What, World};
use crate::{Command, Encode, Failure, Settings, SubmitError, Value};
use paritas_base::Span;

fn settings(encode: Encode) -> Settings {
    Settings {
        encode,
        ..Settings::default()
    }
}

fn start() -> World {
    World::new(settings(Encode::Client))
}

fn value(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 7 + i / 1000 + seed) as u8).collect()
}

fn ok() -> Result<Value, Failure> {
    Ok(Value::Simple("OK".into()))
}

fn fault(command: &'static str, after: usize, what: What) -> Fault {
    Fault { command, after, what }
}

#[test]
fn values_of_each_class_and_length_are_written_to_their_parts() {
    let mut world = start();
    for class in ["ec:4,2", "rep:1", "rep:3", "ec:3,4", "ec:2,1"] {
        world.nodes.class = class.parse().expect("a class");
        for bytes in [65_537, 65_536 + 16_384, 100_001, 262_144, 300_007, 3_000_000, 9 << 20] {
            let written = value(bytes, bytes);
            let outcome = world.run(&[b"SET", b"k", &written]);
            assert_eq!(
                (outcome.result, outcome.is_encoded_here),
                (ok(), true),
                "{class}, {bytes}"
            );
            assert_eq!(world.value("k"), Some(Value::Bulk(written)), "{class}, {bytes}");
        }
    }
    assert_eq!(
        (world.count("SET"), world.count("PARITAS.COMMIT"), world.nodes.left()),
        (0, 35, 0)
    );
    assert_eq!(world.count("PARITAS.STAGE"), 36, "the owner of the key is remembered");
    let stats = world.engine.stats();
    assert_eq!((stats.encoded_here, stats.encoded_by_node), (35, 0));
    assert!(stats.put_bytes > 35 * 65_536, "{stats:?}");
}

#[test]
fn all_commands_with_one_value_are_written_so_and_short_values_are_not() {
    let mut world = start();
    let long = value(1, 70_000);
    for words in [
        &[&b"set"[..], b"k", &long, b"EX", b"100"][..],
        &[b"SETEX", b"k", b"100", &long],
        &[b"PSETEX", b"k", b"100000", &long],
        &[b"SETNX", b"other", &long],
        &[b"GETSET", b"k", &long],
    ] {
        let outcome = world.run(words);
        assert!(outcome.result.is_ok() && outcome.is_encoded_here, "{outcome:?}");
    }
    assert_eq!(world.run(&[b"SETNX", b"k", &long]).result, Ok(Value::Integer(0)));
    assert_eq!(
        world.run(&[b"GETSET", b"k", &value(2, 80_000)]).result,
        Ok(Value::Bulk(long))
    );
    let staged = world.count("PARITAS.STAGE");
    let outcome = world.run(&[b"SET", b"k", &value(3, 65_536)]);
    assert_eq!((outcome.result, outcome.is_encoded_here), (ok(), false));
    assert_eq!((world.count("PARITAS.STAGE"), world.count("SET")), (staged, 1));
}

#[test]
fn without_the_setting_nothing_is_staged() {
    let mut world = World::new(settings(Encode::Server));
    let outcome = world.run(&[b"SET", b"k", &value(1, 100_000)]);
    assert_eq!((outcome.result, outcome.is_encoded_here), (ok(), false));
    assert_eq!((world.readers("SET"), world.count("PARITAS.STAGE")), (vec!["n0:1"], 0));
    let longest = Settings {
        value_bytes_max: 70_000,
        ..settings(Encode::Client)
    };
    let mut world = World::new(longest);
    assert!(!world.run(&[b"SET", b"k", &value(1, 70_001)]).is_encoded_here);
    assert!(world.run(&[b"SET", b"k", &value(1, 70_000)]).is_encoded_here);
}

#[test]
fn whatever_fails_before_the_command_is_sent_is_done_by_a_node_once() {
    let error = |text| What::Answers(text);
    let cases = [
        fault("PARITAS.STAGE", 1, error("-NOSTAGE parts on log nodes\r\n")),
        fault("PARITAS.STAGE", 0, error("-OOM no memory\r\n")),
        fault("PARITAS.STAGE", 1, error("-TRYAGAIN later\r\n")),
        fault("PARITAS.STAGE", 1, error("-MOVED 7\r\n")),
        fault("PARITAS.STAGE", 1, error("-MOVED 7 host:port\r\n")),
        fault("PARITAS.STAGE", 1, error("+OK\r\n")),
        fault("PARITAS.STAGE", 1, error("*0\r\n")),
        fault("PARITAS.STAGE", 0, What::Closes),
        fault("PARITAS.STAGE", 1, What::Closes),
        fault("PARITAS.STAGE", 1, What::ClosesBehind),
        fault("PARITAS.STAGE", 0, What::Stops),
        fault("PARITAS.STAGE", 1, What::Stops),
        fault("PARITAS.PUT", 0, error("-NOPART not open\r\n")),
        fault("PARITAS.PUT", 17, error("-NOPART not open\r\n")),
        fault("PARITAS.PUT", 3, error("-NOPERM wrong capability\r\n")),
        fault("PARITAS.PUT", 9, error(":3\r\n")),
        fault("PARITAS.PUT", 0, What::Closes),
        fault("PARITAS.PUT", 20, What::Closes),
        fault("PARITAS.PUT", 5, What::ClosesBehind),
        fault("PARITAS.PUT", 12, What::ClosesOwner),
        fault("PARITAS.PUT", 0, What::Stops),
        fault("PARITAS.PUT", 30, What::Stops),
        fault("PARITAS.COMMIT", 0, error("-NOSTAGE a part is not kept\r\n")),
        fault("PARITAS.COMMIT", 0, error("-MOVED 7 n4:2\r\n")),
        fault("PARITAS.COMMIT", 0, error("-TRYAGAIN later\r\n")),
        fault("PARITAS.COMMIT", 0, error("-CLUSTERDOWN no owner\r\n")),
    ];
    for case in cases {
        let mut world = start();
        world.nodes.faults.push(case.clone());
        let written = value(5, 3_000_000);
        let outcome = world.run(&[b"SET", b"k", &written]);
        assert_eq!((outcome.result, outcome.is_encoded_here), (ok(), false), "{case:?}");
        assert_eq!(world.value("k"), Some(Value::Bulk(written)), "{case:?}");
        // One that does not own the key names the owner.
        let done = world.readers("SET").into_iter().filter(|at| *at != "n4:2").count();
        assert_eq!(done, 1, "{case:?}");
        assert!(world.nodes.faults.is_empty(), "{case:?} has not come");
        let stats = world.engine.stats();
        assert_eq!((stats.encoded_here, stats.encoded_by_node), (0, 1), "{case:?}");
        // The owner is told, if it can be.
        let is_told = case.what != What::Stops && !matches!(case.command, "PARITAS.COMMIT");
        (0..5).for_each(|_| world.step());
        assert!(
            !is_told || world.nodes.left() == 0,
            "{case:?}: the value is still staged"
        );
    }
}

#[test]
fn what_this_client_cannot_write_is_given_up_and_done_by_a_node() {
    let changes: [fn(&mut World); 4] = [
        |world| world.nodes.version = 2,
        |world| world.nodes.vacant = Some(4),
        |world| world.nodes.class = "eor:2,3".parse().expect("a class"),
        |world| {
            world.down.insert("n5:2".to_owned());
        },
    ];
    for (nth, change) in changes.into_iter().enumerate() {
        let mut world = start();
        change(&mut world);
        let outcome = world.run(&[b"SET", b"k", &value(1, 200_000)]);
        assert_eq!((outcome.result, outcome.is_encoded_here), (ok(), false), "change {nth}");
        (0..5).for_each(|_| world.step());
        assert_eq!(
            (world.count("PARITAS.UNSTAGE"), world.count("SET"), world.nodes.left()),
            (1, 1, 0),
            "change {nth}"
        );
    }
}

#[test]
fn a_holder_that_takes_no_connection_is_not_tried_by_the_next_write() {
    let mut world = start();
    world.down.insert("n5:2".to_owned());
    world.run(&[b"SET", b"k", &value(1, 200_000)]);
    let puts = world.count("PARITAS.PUT");
    let began = world.now();
    assert!(!world.run(&[b"SET", b"k", &value(2, 200_000)]).is_encoded_here);
    assert_eq!(world.count("PARITAS.PUT"), puts, "nothing is sent to the others either");
    assert!(world.now() - began <= Span::from_ms(8));
    world.down.clear();
    (0..1_100).for_each(|_| world.step());
    assert!(world.run(&[b"SET", b"k", &value(3, 200_000)]).is_encoded_here);
}

#[test]
fn nodes_that_take_no_parts_are_not_asked_each_time() {
    for encode in [Encode::Client, Encode::Auto] {
        let mut world = World::new(settings(encode));
        let off = "-ERR client_coding is not \"on\"\r\n";
        world.nodes.faults.push(fault("PARITAS.STAGE", 0, What::Answers(off)));
        for n in 0..5 {
            let outcome = world.run(&[b"SET", b"k", &value(n, 100_000)]);
            assert_eq!((outcome.result, outcome.is_encoded_here), (ok(), false));
        }
        assert_eq!((world.count("PARITAS.STAGE"), world.count("SET")), (1, 5));
        (0..1_000).for_each(|_| world.step());
        assert!(world.run(&[b"SET", b"k", &value(9, 100_000)]).is_encoded_here);
    }
}

#[test]
fn a_key_that_is_refused_says_nothing_of_others() {
    let mut world = start();
    let long = "-ERR key of 9000 bytes is too long\r\n";
    world.nodes.faults.push(fault("PARITAS.STAGE", 0, What::Answers(long)));
    let outcome = world.run(&[b"SET", b"k", &value(1, 100_000)]);
    assert!(!outcome.is_encoded_here);
    assert!(world.run(&[b"SET", b"j", &value(2, 100_000)]).is_encoded_here);
}

#[test]
fn a_moved_owner_is_found_and_one_that_nobody_names_is_not() {
    let mut world = start();
    world.run(&[b"SET", b"k", &value(1, 100_000)]);
    assert_eq!(
        world.readers("PARITAS.STAGE"),
        ["n0:1", "n3:2"],
        "MOVED names the owner"
    );
    world.nodes.owner = 5;
    let staged = world.count("PARITAS.STAGE");
    assert!(world.run(&[b"SET", b"k", &value(2, 100_000)]).is_encoded_here);
    assert_eq!(
        world.count("PARITAS.STAGE"),
        staged + 2,
        "the old owner names the new one"
    );
    assert!(world.run(&[b"SET", b"k", &value(2, 100_000)]).is_encoded_here);
    assert_eq!(world.count("PARITAS.STAGE"), staged + 3);
    // Each names another one.
    for to in [
        "-MOVED 7 n1:2\r\n",
        "-MOVED 7 n2:2\r\n",
        "-MOVED 7 n1:2\r\n",
        "-MOVED 7 n2:2\r\n",
    ] {
        world.nodes.faults.push(fault("PARITAS.STAGE", 0, What::Answers(to)));
    }
    assert!(!world.run(&[b"SET", b"k", &value(3, 100_000)]).is_encoded_here);
    assert_eq!((world.count("PARITAS.STAGE"), world.count("SET")), (staged + 7, 1));
}

#[test]
fn an_owner_whose_connection_has_ended_is_dialled_again() {
    let mut world = start();
    world.run(&[b"SET", b"k", &value(1, 100_000)]);
    for address in ["n3:2", "n4:2"] {
        for link in world.links_to(address) {
            world.close(link);
        }
        let outcome = world.run(&[b"SET", b"k", &value(2, 100_000)]);
        assert!(outcome.result == ok() && outcome.is_encoded_here);
        assert_eq!(world.links_to(address).len(), 1, "{address}");
    }
    assert_eq!(world.count("SET"), 0);
}

#[test]
fn a_command_whose_answer_is_lost_is_uncertain() {
    for (what, is_written) in [(What::Closes, false), (What::ClosesBehind, true)] {
        let mut world = start();
        world.nodes.faults.push(fault("PARITAS.COMMIT", 0, what));
        let outcome = world.run(&[b"SET", b"k", &value(1, 100_000)]);
        assert_eq!(
            (outcome.result, outcome.is_encoded_here),
            (Err(Failure::Uncertain), false)
        );
        assert_eq!((world.count("SET"), world.value("k").is_some()), (0, is_written));
    }
    let mut world = start();
    world.nodes.faults.push(fault("PARITAS.COMMIT", 0, What::Stops));
    let began = world.now();
    let outcome = world.run(&[b"SET", b"k", &value(1, 100_000)]);
    assert_eq!(outcome.result, Err(Failure::Uncertain));
    assert!(
        world.now() - began >= Span::from_ms(10_000),
        "it has its whole deadline"
    );
    let mut world = start();
    let uncertain = What::Answers("-UNCERTAIN the owner has changed\r\n");
    world.nodes.faults.push(fault("PARITAS.COMMIT", 0, uncertain));
    assert_eq!(
        world.run(&[b"SET", b"k", &value(1, 100_000)]).result,
        Err(Failure::Uncertain)
    );
    assert_eq!(world.count("SET"), 0);
}

#[test]
fn a_command_that_is_refused_for_its_own_sake_is_not_sent_again() {
    let mut world = start();
    let refusal = What::Answers("-NOREPLICAS too few nodes\r\n");
    world.nodes.faults.push(fault("PARITAS.COMMIT", 0, refusal));
    let refused = Err(Failure::Refused("NOREPLICAS too few nodes".into()));
    assert_eq!(world.run(&[b"SET", b"k", &value(1, 100_000)]).result, refused);
    assert_eq!((world.count("SET"), world.value("k")), (0, None));
}

#[test]
fn what_is_submitted_for_a_key_happens_in_that_order() {
    let mut world = start();
    for stops in [false, true] {
        if stops {
            // The first write falls back; the others wait behind it.
            world.nodes.faults.push(fault("PARITAS.PUT", 0, What::Stops));
        }
        let ops: Vec<_> = (0..6)
            .map(|n| {
                let bytes = if n % 3 == 2 { 100 } else { 70_000 + n };
                let set = world.begin(&[b"SET", b"k", &value(n, bytes)]);
                (value(n, bytes), set, world.begin(&[b"GET", b"k"]))
            })
            .collect();
        for (written, set, get) in ops {
            assert_eq!(world.wait(set).result, ok());
            assert_eq!(world.wait(get).result, Ok(Value::Bulk(written)));
        }
    }
}

#[test]
fn a_holder_is_waited_for_no_longer_than_the_deadline() {
    let mut world = World::new(Settings {
        retry: Span::from_ms(60_000),
        ..settings(Encode::Client)
    });
    world.nodes.stopped.insert("n4:2".to_owned());
    let outcome = world.run(&[b"SET", b"k", &value(1, 100_000)]);
    assert_eq!((outcome.result, outcome.is_encoded_here), (ok(), false));
    assert!(
        world.now() <= paritas_base::Time(0) + Span::from_ms(10_100),
        "{:?}",
        world.now()
    );
    (0..5).for_each(|_| world.step());
    assert_eq!((world.nodes.left(), world.count("SET")), (0, 1));
}

#[test]
fn a_password_that_is_refused_refuses_the_write() {
    let mut world = World::new(Settings {
        password: Some((None, "secret".into())),
        ..settings(Encode::Client)
    });
    assert!(world.run(&[b"SET", b"k", &value(1, 100_000)]).is_encoded_here);
    let mut world = World::new(Settings {
        password: Some((None, "wrong".into())),
        ..settings(Encode::Client)
    });
    world
        .nodes
        .faults
        .push(fault("AUTH", 0, What::Answers("-WRONGPASS no\r\n")));
    let refused = Err(Failure::Refused("WRONGPASS no".into()));
    assert_eq!(world.run(&[b"SET", b"k", &value(1, 100_000)]).result, refused);
    assert_eq!((world.count("PARITAS.STAGE"), world.count("SET")), (0, 0));
}

#[test]
fn a_late_reply_to_stage_gives_the_value_up() {
    let mut world = start();
    world.nodes.stopped.insert("n3:2".to_owned());
    let outcome = world.run(&[b"SET", b"k", &value(1, 100_000)]);
    assert_eq!((outcome.result, outcome.is_encoded_here), (ok(), false));
    assert!(
        world.now() >= paritas_base::Time(0) + Span::from_ms(1_000),
        "it waits for `retry`"
    );
    world.nodes.stopped.clear();
    (0..10).for_each(|_| world.step());
    assert_eq!(
        (
            world.count("PARITAS.STAGE"),
            world.count("PARITAS.UNSTAGE"),
            world.nodes.left()
        ),
        (2, 1, 0)
    );
}

#[test]
fn a_holder_has_a_bounded_number_of_commands_and_long_values_run_alone() {
    let mut world = start();
    let ops: Vec<_> = (0..16)
        .map(|n| {
            (
                n,
                world.begin(&[b"SET", format!("k{n}").as_bytes(), &value(n, 500_000)]),
            )
        })
        .collect();
    assert_eq!(
        world.submit(Command::set(b"more", value(1, 500_000))),
        Err(SubmitError::Busy)
    );
    world.nodes.stopped.insert("n4:2".to_owned());
    (0..20).for_each(|_| world.step());
    world.nodes.stopped.clear();
    let before = world.nodes.log.len();
    world.step();
    let at_once = world.nodes.log[before..].iter().filter(|(at, _)| at == "n4:2").count();
    assert!(
        (1..=super::PUTS_MAX).contains(&at_once),
        "{at_once} commands were under way to one holder"
    );
    for (n, op) in ops {
        let outcome = world.wait(op);
        assert!(outcome.result == ok() && outcome.is_encoded_here);
        assert_eq!(world.value(&format!("k{n}")), Some(Value::Bulk(value(n, 500_000))));
    }
    let long = world.begin(&[b"SET", b"long", &value(1, 20 << 20)]);
    assert_eq!(world.submit(Command::get(b"k")), Err(SubmitError::Busy));
    assert!(!world.is_done(long));
    assert!(world.wait(long).is_encoded_here);
    assert_eq!(world.run(&[b"GET", b"k1"]).result, Ok(Value::Bulk(value(1, 500_000))));
}

#[test]
fn who_waits_behind_a_silent_holder_does_not_wait_longer_than_it() {
    let mut world = start();
    world.run(&[b"SET", b"k", &value(1, 100_000)]);
    world.nodes.stopped.insert("n4:2".to_owned());
    let ops: Vec<_> = (0..8)
        .map(|n| world.begin(&[b"SET", format!("k{n}").as_bytes(), &value(n, 900_000)]))
        .collect();
    let began = world.now();
    for op in ops {
        let outcome = world.wait(op);
        assert_eq!((outcome.result, outcome.is_encoded_here), (ok(), false));
    }
    assert!(world.now() - began <= Span::from_ms(1_100), "{:?}", world.now() - began);
}

#[test]
fn auto_takes_the_faster_way_for_each_length() {
    let mut world = World::new(settings(Encode::Auto));
    // Here a node answers SET in 2 ms. Parts take three turns.
    for n in 0..200 {
        assert_eq!(world.run(&[b"SET", b"k", &value(n, 100_000)]).result, ok());
    }
    let encoded = world.engine.stats().encoded_here;
    assert!((4..20).contains(&encoded), "{encoded} of 200 were encoded here");
    assert_eq!(world.count("SET") + world.count("PARITAS.COMMIT"), 200);
}
