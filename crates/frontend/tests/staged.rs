//! Large values whose parts a client encodes and sends to their holders itself (P14.18 to P14.20).

use paritas_protocol::large::{Part, Record, Writer};
use paritas_protocol::{ClientCoding, Parameters, Port};
use paritas_testbed::{Client, Cluster};
use paritas_wire::command;
use paritas_wire::peer::Message;
use paritas_wire::resp::Value;

/// Four rows of two units of 16 KiB, and a tail.
const BYTES: usize = 148_007;
const UNIT_BYTES: usize = 16 << 10;
const NODES: usize = 4;

/// What PARITAS.STAGE has answered.
#[derive(Clone, Debug)]
struct Staged {
    n: i64,
    list: i64,
    x: i64,
    record: Record,
    holders: Vec<Option<usize>>,
    capabilities: Vec<Vec<u8>>,
}

/// The units of one part.
type Units = Vec<Vec<u8>>;

/// A cluster, and a client of each node.
struct World {
    cluster: Cluster,
    clients: [Client; NODES],
    key: String,
}

fn value(seed: usize) -> Vec<u8> {
    (0..BYTES)
        .map(|i| b'a' + ((i * 7 + i / 1000 + seed) % 26) as u8)
        .collect()
}

/// `2+1` and a spare, which is node 3. Node 0 owns the key.
fn start() -> World {
    let parameters = Parameters {
        client_coding: ClientCoding::On,
        ..Parameters::default()
    };
    let mut cluster = Cluster::coded_in(64 << 20, 2, 1, 1, 1, parameters);
    let mut keys = (0..).map(|i| format!("k{i}"));
    let key = keys.find(|key| command::slot(key.as_bytes()) < 8192).unwrap();
    let clients = [0, 1, 2, 3].map(|node| cluster.connect(node, Port::Any));
    World { cluster, clients, key }
}

impl World {
    fn ask(&mut self, client: Client, words: &[impl AsRef<[u8]>]) -> Value {
        self.cluster.call(client, words)
    }

    fn send(&mut self, client: Client, words: &[impl AsRef<[u8]>]) -> Vec<u8> {
        self.cluster.call_bytes(client, words)
    }

    fn error(&mut self, client: Client, words: &[impl AsRef<[u8]>]) -> String {
        self.cluster.call_refused(client, words)
    }

    fn try_stage(&mut self, class: Option<&str>) -> Result<Staged, String> {
        let (key, bytes) = (self.key.clone(), BYTES.to_string());
        let mut words = vec!["PARITAS.STAGE", &key, &bytes];
        words.extend(class);
        let elements = match self.ask(self.clients[0], &words) {
            Value::Array(elements) => elements,
            Value::Error(text) => return Err(text),
            other => panic!("{other:?}"),
        };
        let [
            Value::Integer(1),
            Value::Integer(n),
            Value::Integer(list),
            Value::Integer(x),
            Value::Bulk(record),
            Value::Integer(positions),
            Value::Integer(unit_bytes),
            Value::Array(holders),
            Value::Bulk(capabilities),
        ] = &elements[..]
        else {
            panic!("{elements:?}");
        };
        assert_eq!(*unit_bytes, UNIT_BYTES as i64);
        assert_eq!(*positions, holders.len() as i64);
        let node_of = |holder: &Value| match holder {
            Value::Null => None,
            Value::Bulk(address) => {
                let port = core::str::from_utf8(address).unwrap().strip_prefix("127.0.0.1:");
                Some(port.unwrap().parse::<usize>().unwrap() - 7379)
            }
            other => panic!("{other:?}"),
        };
        let (record, _) = Record::decode(record).unwrap();
        Ok(Staged {
            n: *n,
            list: *list,
            x: *x,
            record,
            holders: holders.iter().map(node_of).collect(),
            capabilities: capabilities.chunks(8).map(<[u8]>::to_vec).collect(),
        })
    }

    fn stage(&mut self, class: &str) -> Staged {
        self.try_stage(Some(class)).unwrap()
    }

    /// Sends units of a part to its holder.
    fn put(&mut self, staged: &Staged, part: &Part, first: u32, units: &[Vec<u8>]) -> Value {
        let node = staged.holders[usize::from(part.position)].unwrap();
        let words = put_words(staged, part, first, &units.concat());
        self.ask(self.clients[node], &words)
    }

    /// Sends all parts. Each unit twice, so that a repetition is seen to change nothing.
    fn put_all(&mut self, staged: &Staged, parts: &[(Part, Units)]) {
        for (part, units) in parts {
            for (at, unit) in (0..).zip(units) {
                let here = Value::Integer(i64::from(at) + 1);
                assert_eq!(
                    self.put(staged, part, at, core::slice::from_ref(unit)),
                    here,
                    "{part:?}"
                );
                if at as usize + 1 < units.len() {
                    assert_eq!(
                        self.put(staged, part, at, core::slice::from_ref(unit)),
                        here,
                        "{part:?}"
                    );
                }
            }
        }
    }

    fn commit(&mut self, staged: &Staged, checks: &[u32], tail: &[u8], command: &[&str]) -> Value {
        let words = self.commit_words(staged, checks, tail, command);
        self.ask(self.clients[0], &words)
    }

    fn commit_words(&self, staged: &Staged, checks: &[u32], tail: &[u8], command: &[&str]) -> Vec<Vec<u8>> {
        let checks = checks.iter().flat_map(|check| check.to_le_bytes()).collect();
        let mut words = vec![
            b"PARITAS.COMMIT".to_vec(),
            staged.n.to_string().into_bytes(),
            checks,
            tail.to_vec(),
        ];
        words.extend(command.iter().map(|word| match *word {
            "KEY" => self.key.clone().into_bytes(),
            other => other.as_bytes().to_vec(),
        }));
        words
    }

    /// Writes a value so, and returns what COMMIT answers.
    fn write(&mut self, class: &str, bytes: &[u8], command: &[&str]) -> Value {
        let staged = self.stage(class);
        let (parts, checks, tail) = encoded(&staged, bytes);
        self.put_all(&staged, &parts);
        self.commit(&staged, &checks, &tail, command)
    }

    fn get(&mut self, node: usize) -> Value {
        let key = self.key.clone();
        self.ask(self.clients[node], &["GET", &key])
    }

    /// Nothing is left of what was staged: no group is alive that no object names.
    fn check_rest(&mut self) {
        self.cluster.advance(2_000);
        for node in 0..NODES {
            assert_eq!(self.cluster.staged_groups(node), 0, "groups staged at node {node}");
        }
    }
}

/// The words of PARITAS.PUT.
fn put_words(staged: &Staged, part: &Part, first: u32, bytes: &[u8]) -> Vec<Vec<u8>> {
    let name = staged.record.name_of(part);
    let capability = staged.record.groups().position(|other| other == name.group).unwrap();
    let numbers = [
        staged.list.to_string(),
        staged.x.to_string(),
        name.group.bits().to_string(),
        name.number.to_string(),
        first.to_string(),
    ];
    let mut words = vec![b"PARITAS.PUT".to_vec()];
    words.extend(numbers.map(String::into_bytes));
    words.extend([staged.capabilities[capability].clone(), bytes.to_vec()]);
    words
}

/// The units of all parts, the checks and the tail.
fn encoded(staged: &Staged, bytes: &[u8]) -> (Vec<(Part, Units)>, Vec<u32>, Vec<u8>) {
    let placement = staged.record.placement(staged.holders.len() as u8).unwrap();
    let mut writer = Writer::new(staged.record.layout(UNIT_BYTES as u32).unwrap(), placement);
    let mut parts: Vec<(Part, Units)> = placement.parts().map(|part| (part, Vec::new())).collect();
    let (body, tail) = bytes.split_at(staged.record.body_bytes as usize);
    let mut rest = body;
    while !writer.is_sent() {
        let mut sent = Vec::new();
        let taken = writer.push(rest, |at, unit, bytes| sent.push((at, unit, bytes.to_vec())));
        rest = &rest[taken..];
        for (at, unit, bytes) in sent {
            parts[at].1.push(bytes);
            writer.on_taken(at, unit + 1);
        }
    }
    (parts, writer.checks().to_vec(), tail.to_vec())
}

fn text(value: &Value) -> &str {
    match value {
        Value::Error(text) => text,
        other => panic!("no error: {other:?}"),
    }
}

fn ok() -> Value {
    Value::Simple("OK".into())
}

const SET: [&str; 3] = ["SET", "KEY", ""];

#[test]
fn a_value_whose_parts_a_client_has_sent_is_read_everywhere_and_after_each_loss() {
    for class in ["ec:2,1", "rep:2"] {
        for lost in 0..3 {
            let mut world = start();
            assert_eq!(world.write(class, &value(1), &SET), ok(), "{class}");
            for node in 0..NODES {
                assert!(world.get(node) == Value::Bulk(value(1)), "{class} at node {node}");
            }
            world.check_rest();
            world.cluster.kill(lost);
            world.cluster.hand_over(0, lost as u8, 3);
            world.cluster.advance(5_000);
            for node in (0..NODES).filter(|node| *node != lost) {
                assert!(
                    world.get(node) == Value::Bulk(value(1)),
                    "{class} without {lost} at node {node}"
                );
            }
        }
    }
}

#[test]
fn each_command_of_commit_answers_as_with_its_value() {
    let mut world = start();
    assert_eq!(
        world.write("ec:2,1", &value(1), &["SETNX", "KEY", ""]),
        Value::Integer(1)
    );
    assert_eq!(
        world.write("ec:2,1", &value(2), &["SETNX", "KEY", ""]),
        Value::Integer(0)
    );
    assert!(world.get(1) == Value::Bulk(value(1)));
    assert!(world.write("rep:2", &value(3), &["GETSET", "KEY", ""]) == Value::Bulk(value(1)));
    assert_eq!(world.write("ec:2,1", &value(4), &["SET", "KEY", "", "NX"]), Value::Null);
    assert_eq!(world.write("ec:2,1", &value(5), &["SETEX", "KEY", "1000", ""]), ok());
    let key = world.key.clone();
    let left = world.ask(world.clients[0], &["TTL", &key]);
    assert!(matches!(left, Value::Integer(990..=1000)), "{left:?}");
    assert_eq!(world.write("ec:2,1", &value(6), &["PSETEX", "KEY", "500000", ""]), ok());
    assert_eq!(world.write("ec:2,1", &value(7), &["SET", "KEY", "", "KEEPTTL"]), ok());
    assert!(world.get(2) == Value::Bulk(value(7)));
    let left = world.ask(world.clients[0], &["TTL", &key]);
    assert!(matches!(left, Value::Integer(490..=500)), "{left:?}");
    world.check_rest();
}

#[test]
fn an_overwritten_value_is_seen_until_commit() {
    let mut world = start();
    assert_eq!(world.write("ec:2,1", &value(1), &SET), ok());
    let staged = world.stage("ec:2,1");
    let (parts, checks, tail) = encoded(&staged, &value(2));
    world.put_all(&staged, &parts);
    assert!(world.get(1) == Value::Bulk(value(1)));
    assert_eq!(world.commit(&staged, &checks, &tail, &SET), ok());
    assert!(world.get(1) == Value::Bulk(value(2)));
    let again = world.commit(&staged, &checks, &tail, &SET);
    assert!(text(&again).starts_with("NOSTAGE nothing is staged"), "{again:?}");
    assert!(world.get(1) == Value::Bulk(value(2)));
}

/// The reason of a refusal of parts that have their checks.
const FORGED: &str = "the parts do not belong together";

/// What a client that errs or lies sends in place of the right parts, checks and tail.
type Lie = fn(&mut Vec<(Part, Units)>, &mut Vec<u32>, &mut Vec<u8>);

#[test]
fn a_lie_changes_nothing_but_its_own_refusal() {
    let lies: [(&str, &str, Lie); 8] = [
        ("ec:2,1", "a part", |_, checks, _| checks[0] ^= 1),
        ("ec:2,1", "a part", |_, checks, _| checks[2] ^= 1),
        ("ec:2,1", "checks", |_, checks, _| checks.truncate(2)),
        ("ec:2,1", "checks", |_, _, tail| tail.push(0)),
        ("ec:2,1", FORGED, |parts, checks, _| {
            parts[2].1[1][77] ^= 4;
            checks[2] = check_of(&parts[2].1);
        }),
        ("ec:2,1", FORGED, |parts, checks, _| {
            parts[0].1[0][5] ^= 255;
            checks[0] = check_of(&parts[0].1);
        }),
        // A part that lacks its last unit.
        ("ec:2,1", "a part", |parts, _, _| drop(parts[1].1.pop())),
        ("rep:2", "a part", |parts, _, _| parts[1].1[0][9] ^= 1),
    ];
    for (at, (class, expected, lie)) in lies.into_iter().enumerate() {
        let mut world = start();
        assert_eq!(world.write("ec:2,1", &value(1), &SET), ok());
        let staged = world.stage(class);
        let (mut parts, mut checks, mut tail) = encoded(&staged, &value(2));
        lie(&mut parts, &mut checks, &mut tail);
        world.put_all(&staged, &parts);
        let refused = world.commit(&staged, &checks, &tail, &SET);
        let text = text(&refused);
        assert!(text.starts_with(&format!("NOSTAGE {expected}")), "lie {at}: {text}");
        assert!(world.get(1) == Value::Bulk(value(1)), "lie {at}");
        world.check_rest();
        // It may try again and again only if it connects again and again.
        assert_eq!(
            world.cluster.is_closed(world.clients[0]),
            expected == FORGED,
            "lie {at}"
        );
        world.clients[0] = world.cluster.connect(0, Port::Any);
        assert_eq!(world.write("ec:2,1", &value(3), &SET), ok(), "after lie {at}");
    }
}

fn check_of(units: &Units) -> u32 {
    let sums = units
        .iter()
        .map(|unit| paritas_code::sum::of_extent(UNIT_BYTES, 0, unit));
    sums.fold(0, |check, sum| paritas_code::crc32c_append(check, &sum.to_le_bytes()))
}

#[test]
fn what_was_staged_ends_with_its_connection_and_by_unstage_and_reset_and_in_time() {
    let ends: [fn(&mut World, &Staged); 4] = [
        |world, staged| {
            let unstage = ["PARITAS.UNSTAGE".to_owned(), staged.n.to_string()];
            assert_eq!(world.ask(world.clients[0], &unstage), ok());
        },
        |world, _| {
            assert_eq!(world.ask(world.clients[0], &["RESET"]), Value::Simple("RESET".into()));
        },
        |world, _| {
            world.cluster.disconnect(world.clients[0]);
            world.clients[0] = world.cluster.connect(0, Port::Any);
        },
        |world, _| world.cluster.advance(14_000),
    ];
    for (at, end) in ends.into_iter().enumerate() {
        let mut world = start();
        let staged = world.stage("ec:2,1");
        let (parts, checks, tail) = encoded(&staged, &value(2));
        world.put_all(&staged, &parts);
        assert!(world.cluster.staged_groups(0) > 0);
        end(&mut world, &staged);
        world.check_rest();
        let refused = world.commit(&staged, &checks, &tail, &SET);
        assert!(
            text(&refused).starts_with("NOSTAGE nothing is staged"),
            "{at}: {refused:?}"
        );
        assert_eq!(world.get(1), Value::Null);
    }
}

#[test]
fn a_value_is_given_up_when_a_holder_changes() {
    for position in 0..3 {
        let mut world = start();
        let staged = world.stage("ec:2,1");
        let (parts, checks, tail) = encoded(&staged, &value(2));
        world.put_all(&staged, &parts);
        if position > 0 {
            world.cluster.kill(position);
        }
        world.cluster.hand_over(0, position as u8, 3);
        world.cluster.advance(3_000);
        let refused = world.commit(&staged, &checks, &tail, &SET);
        let is_moved = text(&refused).starts_with("MOVED ") && position == 0;
        assert!(is_moved || text(&refused).starts_with("NOSTAGE "), "{refused:?}");
        assert_eq!(world.get(3), Value::Null);
        world.check_rest();
    }
}

#[test]
fn staging_is_refused_in_words() {
    let mut world = start();
    let (key, owner) = (world.key.clone(), world.clients[0]);
    let small = world.error(owner, &["PARITAS.STAGE", &key, "65536"]);
    assert!(small.starts_with("ERR the value fits an object"), "{small}");
    let class = world.error(owner, &["PARITAS.STAGE", &key, "100000", "eor:2,2"]);
    assert!(class.starts_with("NOSTAGE only the classes"), "{class}");
    let wrong = world.error(owner, &["PARITAS.STAGE", &key, "100000", "ec:9,9"]);
    assert!(wrong.starts_with("ERR "), "{wrong}");
    let long = world.error(owner, &["PARITAS.STAGE", &key, "70000000"]);
    assert!(
        long.starts_with("NOSTAGE a connection may stage at most 64 MiB"),
        "{long}"
    );
    let number = world.error(owner, &["PARITAS.STAGE", &key, "-1"]);
    assert!(number.starts_with("ERR "), "{number}");
    let moved = world.error(world.clients[3], &["PARITAS.STAGE", &key, "100000"]);
    assert!(moved.starts_with("MOVED ") && moved.ends_with(":7379"), "{moved}");
    assert_eq!(world.ask(owner, &["MULTI"]), ok());
    let kept = world.error(owner, &["PARITAS.STAGE", &key, "100000"]);
    assert!(kept.starts_with("ERR "), "{kept}");
    world.error(owner, &["EXEC"]);
    let staged = world.stage("ec:2,1");
    for command in [
        &["GET", "KEY"][..],
        &["SET", "KEY", "value"],
        &["APPEND", "KEY", ""],
        &["SET", "KEY"],
    ] {
        let checks = vec![0; 3];
        let refused = world.commit(&staged, &checks, &[], command);
        assert!(text(&refused).starts_with("ERR "), "{refused:?}");
    }
    let other = world.commit(&staged, &[0; 3], &[], &["SET", "k-of-another", ""]);
    let is_refused = text(&other).starts_with("NOSTAGE ") || text(&other).starts_with("MOVED ");
    assert!(is_refused, "{other:?}");
    world.check_rest();
}

#[test]
fn nothing_is_staged_without_client_coding() {
    let mut world = start();
    let (key, owner) = (world.key.clone(), world.clients[0]);
    assert_eq!(world.ask(owner, &["CONFIG", "SET", "client-coding", "read"]), ok());
    let off = world.try_stage(None).unwrap_err();
    assert!(off.starts_with("ERR client_coding is not \"on\""), "{off}");
    let commit = ["PARITAS.COMMIT", "1", "", "", "SET", &key, ""];
    let off = world.error(owner, &commit);
    assert!(off.starts_with("ERR client_coding is not \"on\""), "{off}");
}

#[test]
fn what_is_refused_because_a_holder_is_silent_is_given_up() {
    for is_committed in [false, true] {
        let mut world = start();
        let drops = || -> paritas_testbed::Tamper {
            Box::new(|from, _, _, message| (from == 1 && matches!(message, Message::PartState { .. })).then(Vec::new))
        };
        let words = if is_committed {
            let staged = world.stage("ec:2,1");
            let (parts, checks, tail) = encoded(&staged, &value(2));
            world.cluster.tamper = Some(drops());
            world.put_all(&staged, &parts);
            world.commit_words(&staged, &checks, &tail, &SET)
        } else {
            world.cluster.tamper = Some(drops());
            let words = ["PARITAS.STAGE", &world.key, &BYTES.to_string()];
            words.map(|word| word.as_bytes().to_vec()).to_vec()
        };
        assert_eq!(world.send(world.clients[0], &words), b"", "it waits");
        world.cluster.advance(6_000);
        let reply = world.cluster.take(world.clients[0]);
        assert!(reply.starts_with(b"-"), "{}", String::from_utf8_lossy(&reply));
        assert_eq!(world.cluster.staged_groups(0), 0, "{is_committed}");
        world.cluster.tamper = None;
        assert_eq!(world.get(2), Value::Null);
    }
}

#[test]
fn commit_asks_the_holders_whose_word_was_lost() {
    let mut world = start();
    let staged = world.stage("ec:2,1");
    let (parts, checks, tail) = encoded(&staged, &value(2));
    world.cluster.tamper = Some(Box::new(|_, _, _, message| {
        matches!(message, Message::PartState { .. }).then(Vec::new)
    }));
    world.put_all(&staged, &parts);
    world.cluster.tamper = None;
    assert_eq!(world.commit(&staged, &checks, &tail, &SET), ok());
    assert!(world.get(2) == Value::Bulk(value(2)));
}
