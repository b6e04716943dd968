//! Large values that clients read themselves from the holders of their parts (P14.17, P14.19).

use paritas_base::Position;
use paritas_code::sum;
use paritas_protocol::large::{Part, PartId, PartName, Reader, Record};
use paritas_protocol::{Parameters, Port};
use paritas_testbed::{Client, Cluster};
use paritas_wire::command;
use paritas_wire::peer::Kind;
use paritas_wire::resp::Value;

/// Three rows of two units of 16 KiB, a short one, and no tail.
const BYTES: usize = 148_007;
const UNIT_BYTES: usize = 16 << 10;
const NODES: usize = 4;

/// What PARITAS.LOCATE has answered.
#[derive(Debug)]
struct Located {
    list: i64,
    x: i64,
    record: Record,
    tail: Vec<u8>,
    /// By position in memory.
    holders: Vec<Option<usize>>,
    capabilities: Vec<Vec<u8>>,
}

/// A cluster, and a client of each node.
struct World {
    cluster: Cluster,
    clients: [Client; NODES],
    key: String,
}

/// `2+1` and a spare, which is node 3. Node 0 owns the key.
fn start_with(parameters: Parameters) -> World {
    let mut cluster = Cluster::coded_in(64 << 20, 2, 1, 1, 1, parameters);
    let mut keys = (0..).map(|i| format!("k{i}"));
    let key = keys.find(|key| command::slot(key.as_bytes()) < 8192).unwrap();
    let clients = [0, 1, 2, 3].map(|node| cluster.connect(node, Port::Any));
    World { cluster, clients, key }
}

fn value(seed: usize) -> String {
    let letters = (0..BYTES).map(|i| char::from(b'a' + ((i * 7 + i / 1000 + seed) % 26) as u8));
    letters.collect()
}

/// With a value of this class.
fn start(class: &str) -> World {
    let parameters = Parameters {
        class_rules: format!("* {class}").parse().unwrap(),
        ..Parameters::default()
    };
    let mut world = start_with(parameters);
    assert_eq!(world.set(&value(1)), Value::Simple("OK".into()));
    world
}

impl World {
    fn send(&mut self, client: Client, words: &[impl AsRef<[u8]>]) -> Vec<u8> {
        self.cluster.call_bytes(client, words)
    }

    fn ask(&mut self, client: Client, words: &[impl AsRef<[u8]>]) -> Value {
        self.cluster.call(client, words)
    }

    fn error(&mut self, client: Client, words: &[impl AsRef<[u8]>]) -> String {
        self.cluster.call_refused(client, words)
    }

    fn set(&mut self, value: &str) -> Value {
        let key = self.key.clone();
        self.ask(self.clients[0], &["SET", &key, value])
    }

    fn locate(&mut self, node: usize) -> Located {
        let key = self.key.clone();
        let Value::Array(elements) = self.ask(self.clients[node], &["PARITAS.LOCATE", &key]) else {
            panic!("not located");
        };
        let [
            Value::Integer(1),
            Value::Integer(list),
            Value::Integer(x),
            Value::Bulk(record),
            Value::Bulk(tail),
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
                let address = core::str::from_utf8(address).unwrap();
                let port = address.strip_prefix("127.0.0.1:").unwrap();
                Some(port.parse::<usize>().unwrap() - 7379)
            }
            other => panic!("{other:?}"),
        };
        let (record_read, used) = Record::decode(record).unwrap();
        assert_eq!(used, record.len());
        Located {
            list: *list,
            x: *x,
            record: record_read,
            tail: tail.clone(),
            holders: holders.iter().map(node_of).collect(),
            capabilities: capabilities.chunks(8).map(<[u8]>::to_vec).collect(),
        }
    }

    /// Sums and bytes of units of a part, or the error.
    fn units(
        &mut self,
        located: &Located,
        part: &Part,
        (first, count): (u32, u32),
        check: bool,
    ) -> Result<Vec<(u32, Vec<u8>)>, String> {
        let node = located.holders[usize::from(part.position)].unwrap();
        let words = words(located, part, (first, count), check);
        let bytes = match self.ask(self.clients[node], &words) {
            Value::Bulk(bytes) => bytes,
            Value::Error(text) => return Err(text),
            other => panic!("{other:?}"),
        };
        let layout = located.record.layout(UNIT_BYTES as u32).unwrap();
        let (sums, mut rest) = bytes.split_at(4 * count as usize);
        let mut units = Vec::new();
        for (unit, sum) in (first..).zip(sums.chunks(4)) {
            let (unit, after) = rest.split_at(part.content.unit_bytes(&layout, unit) as usize);
            units.push((u32::from_le_bytes(sum.try_into().unwrap()), unit.to_vec()));
            rest = after;
        }
        assert!(rest.is_empty(), "{} bytes too many", rest.len());
        Ok(units)
    }

    /// Reads the value as it was located, without parts at this position. An error of a holder ends it.
    fn read(&mut self, located: &Located, without: Option<u8>) -> Result<String, String> {
        let layout = located.record.layout(UNIT_BYTES as u32).unwrap();
        let placement = located.record.placement(located.holders.len() as u8).unwrap();
        let rank = |part: &Part| (Some(part.position) != without).then_some(0);
        let mut reader = Reader::new(layout, placement, 0..located.record.body_bytes, rank);
        let (mut bytes, mut done) = (vec![0; located.record.body_bytes as usize], 0);
        while !reader.is_done() {
            let request = reader.next_request().map_err(|failed| failed.to_string())?;
            if let Some(request) = request {
                let units = self.units(located, &request.part, (request.unit, 1), false)?;
                let (sum, unit) = units.into_iter().next().unwrap();
                assert!(sum::of_extent(UNIT_BYTES, 0, &unit) == sum, "bytes without their sum");
                reader.on_unit(&request, Some(&unit), &mut bytes[done..]);
            }
            while let Some(taken) = reader.take(&mut bytes[done..]) {
                done += taken;
            }
        }
        bytes.extend_from_slice(&located.tail);
        Ok(String::from_utf8(bytes).unwrap())
    }
}

/// The words of PARITAS.UNITS.
fn words(located: &Located, part: &Part, (first, count): (u32, u32), check: bool) -> Vec<Vec<u8>> {
    let PartName { group, number } = located.record.name_of(part);
    let capability = located.record.groups().position(|other| other == group).unwrap();
    let numbers = [
        located.list.to_string(),
        located.x.to_string(),
        group.bits().to_string(),
        number.to_string(),
        first.to_string(),
        count.to_string(),
    ];
    let mut words = vec![b"PARITAS.UNITS".to_vec()];
    words.extend(numbers.map(String::into_bytes));
    words.push(located.capabilities[capability].clone());
    words.extend(check.then(|| b"check".to_vec()));
    words
}

fn first_part(located: &Located) -> Part {
    let placement = located.record.placement(located.holders.len() as u8).unwrap();
    placement.parts().next().unwrap()
}

#[test]
fn a_client_reads_a_value_of_each_class_from_its_parts() {
    for (class, may_lose) in [("none", false), ("rep:2", true), ("ec:2,1", true), ("eor:2,2", true)] {
        let mut world = start(class);
        for node in [0, 1, 3] {
            let located = world.locate(node);
            assert_eq!(located.holders, [Some(0), Some(1), Some(2)]);
            assert_eq!(located.capabilities.len(), located.record.groups().count());
            assert!(
                world.read(&located, None).as_ref() == Ok(&value(1)),
                "{class} at node {node}"
            );
            for position in (0..3).filter(|_| may_lose) {
                let read = world.read(&located, Some(position));
                assert!(read.as_ref() == Ok(&value(1)), "{class} without position {position}");
            }
        }
    }
}

#[test]
fn units_in_one_reply_are_those_of_replies_of_one_each() {
    let mut world = start("ec:2,1");
    let located = world.locate(3);
    let placement = located.record.placement(3).unwrap();
    let layout = located.record.layout(UNIT_BYTES as u32).unwrap();
    for part in placement.parts() {
        let count = part.content.units(&layout);
        assert!(count > 2);
        let all = world.units(&located, &part, (0, count), false).unwrap();
        let checked = world.units(&located, &part, (0, count), true).unwrap();
        let each = (0..count).map(|unit| world.units(&located, &part, (unit, 1), false).unwrap());
        let each: Vec<_> = each.flatten().collect();
        assert!(all == each && checked == each, "{part:?}");
        let behind = world.units(&located, &part, (1, count), false).unwrap_err();
        assert!(behind.starts_with("NOPART "), "{behind}");
    }
}

#[test]
fn other_values_are_answered_as_by_get() {
    let mut world = start_with(Parameters::default());
    let key = world.key.clone();
    for hello in [None, Some("3")] {
        for node in 0..NODES {
            let client = world.clients[node];
            if let Some(version) = hello {
                world.send(client, &["HELLO", version]);
            }
            for small in [None, Some("short")] {
                if let Some(small) = small {
                    world.set(small);
                }
                let reply = world.send(client, &["PARITAS.LOCATE", &key]);
                assert_eq!(reply, world.send(client, &["GET", &key]), "{small:?} at node {node}");
            }
            world.send(client, &["DEL", &key]);
        }
    }
    let strict = world.cluster.connect(1, Port::Cluster);
    let moved = world.error(strict, &["PARITAS.LOCATE", &key]);
    assert!(moved.starts_with("MOVED ") && moved.ends_with(":7379"), "{moved}");
    assert_eq!(moved, world.error(strict, &["GET", &key]));
}

#[test]
fn a_value_that_is_overwritten_is_the_old_one_or_gone_and_never_mixed() {
    for is_told in [true, false] {
        let mut world = start("ec:2,1");
        let located = world.locate(3);
        if !is_told {
            world.cluster.tamper = Some(Box::new(|_, _, _, message| {
                (message.kind() == Kind::FreeGroups).then(Vec::new)
            }));
        }
        assert_eq!(world.set(&value(2)), Value::Simple("OK".into()));
        let read = world.read(&located, Some(0));
        match is_told {
            true => assert!(read.unwrap_err().starts_with("NOPART ")),
            false => assert!(read.as_ref() == Ok(&value(1)), "its parts are still there"),
        }
        let located = world.locate(3);
        assert!(world.read(&located, None).as_ref() == Ok(&value(2)));
    }
}

#[test]
fn a_position_without_a_holder_is_null() {
    let mut world = start("ec:2,1");
    world.cluster.kill(2);
    world
        .cluster
        .reconfigure(0, |configuration| configuration.positions[2] = None);
    let located = world.locate(1);
    assert_eq!(located.holders, [Some(0), Some(1), None]);
    assert!(world.read(&located, Some(2)).as_ref() == Ok(&value(1)));
}

#[test]
fn nothing_is_located_by_an_owner_without_leases() {
    let mut world = start("ec:2,1");
    world.cluster.cut = true;
    world.cluster.advance(5_000);
    let (client, key) = (world.clients[0], world.key.clone());
    assert_eq!(world.send(client, &["PARITAS.LOCATE", &key]), b"");
    world.cluster.cut = false;
    world.cluster.advance(1_000);
    assert!(world.cluster.take(client).starts_with(b"*9\r\n"));
}

#[test]
fn a_located_value_counts_as_read_whole() {
    let hotness = "hot eor:2,2 cold ec:2,1 reads 4 seconds 100".parse().unwrap();
    let mut world = start_with(Parameters {
        hotness: Some(hotness),
        ..Parameters::default()
    });
    let long = value(1).repeat(7);
    assert_eq!(world.set(&long), Value::Simple("OK".into()));
    for _ in 0..6 {
        world.locate(3);
    }
    world.cluster.advance(2_000);
    let (client, key) = (world.clients[3], world.key.clone());
    let class = world.ask(client, &["PARITAS.REDUNDANCY", &key]);
    assert_eq!(class, Value::Bulk(b"eor:2,2".to_vec()));
    let located = world.locate(3);
    assert!(world.read(&located, None).as_ref() == Ok(&long));
}

#[test]
fn the_third_wrong_capability_closes_the_connection() {
    let mut world = start("ec:2,1");
    let located = world.locate(0);
    let parts: Vec<Part> = located.record.placement(3).unwrap().parts().collect();
    let right = words(&located, &parts[0], (0, 1), false);
    let mut flipped = right.clone();
    flipped[7][0] ^= 1;
    let mut of_the_other_group = right.clone();
    of_the_other_group[7] = located.capabilities[1].clone();
    let mut of_another_stream = right.clone();
    of_another_stream[2] = b"1".to_vec();
    let client = world.clients[0];
    for wrong in [&flipped, &of_the_other_group] {
        let error = world.error(client, wrong);
        assert!(error.starts_with("NOPERM "), "{error}");
        assert!(matches!(world.ask(client, &right), Value::Bulk(_)));
        assert!(!world.cluster.is_closed(client));
    }
    let error = world.error(client, &of_another_stream);
    assert!(error.starts_with("NOPERM "), "{error}");
    assert!(world.cluster.is_closed(client));
    let client = world.cluster.connect(0, Port::Any);
    let Value::Bulk(info) = world.ask(client, &["INFO", "paritas"]) else {
        panic!("no INFO");
    };
    assert!(
        String::from_utf8(info)
            .unwrap()
            .contains("\r\nwrong_capabilities:3\r\n")
    );
}

#[test]
fn what_is_wrong_is_refused_in_words() {
    let mut world = start("none");
    let long = value(1).repeat(7);
    world.set(&long);
    let located = world.locate(0);
    let part = first_part(&located);
    let right = words(&located, &part, (0, 1), false);
    let client = world.clients[0];
    let wrong: [(usize, &str, &str); 16] = [
        (1, "x", "ERR list must be a number from 0 to 65535"),
        (1, "65536", "ERR list must be a number from 0 to 65535"),
        (2, "256", "ERR x must be a number from 0 to 255"),
        (2, "-1", "ERR x must be a number from 0 to 255"),
        (3, "", "ERR group must be a number from 0 to 18446744073709551615"),
        (
            3,
            "18446744073709551616",
            "ERR group must be a number from 0 to 18446744073709551615",
        ),
        (3, "0", "ERR group must be that of a record"),
        (4, "+1", "ERR part must be a number from 0 to 255"),
        (4, "256", "ERR part must be a number from 0 to 255"),
        (5, "4294967296", "ERR first must be a number from 0 to 4294967295"),
        (5, "4294967295", "ERR first and count are together more than 4294967295"),
        (6, "0", "ERR count must be 1 to 32"),
        (6, "33", "ERR count must be 1 to 32"),
        (6, "1.0", "ERR count must be 1 to 32"),
        (7, "1234567", "ERR capability must be 8 bytes"),
        (7, "123456789", "ERR capability must be 8 bytes"),
    ];
    for (at, word, wanted) in wrong {
        let mut words = right.clone();
        words[at] = word.as_bytes().to_vec();
        let error = world.error(client, &words);
        assert!(error.starts_with(wanted), "{word:?}: {error}");
    }
    for option in ["CHECKED", ""] {
        let mut words = right.clone();
        words.push(option.as_bytes().to_vec());
        let error = world.error(client, &words);
        assert!(error.starts_with("ERR usage: PARITAS.UNITS"), "{error}");
    }
    let error = world.error(client, &right[..7]);
    assert!(error.starts_with("ERR wrong number of arguments"), "{error}");
    let error = world.error(client, &["PARITAS.LOCATE", "a", "b"]);
    assert!(error.starts_with("ERR wrong number of arguments"), "{error}");
    assert!(!world.cluster.is_closed(client), "none of them was a wrong capability");
    let most = world.units(&located, &part, (0, 32), false).unwrap();
    let bytes: Vec<u8> = most.into_iter().flat_map(|(_, unit)| unit).collect();
    assert!(bytes == long.as_bytes()[..512 << 10]);
}

#[test]
fn what_this_node_does_not_keep_is_nopart() {
    let mut world = start("ec:2,1");
    let located = world.locate(0);
    let part = first_part(&located);
    // At another holder, and at a node that has no position.
    for node in [1, 3] {
        let error = world.error(world.clients[node], &words(&located, &part, (0, 1), false));
        assert!(error.starts_with("NOPART "), "node {node}: {error}");
    }
    let beyond = world.units(&located, &part, (1_000, 1), false).unwrap_err();
    assert!(beyond.starts_with("NOPART "), "{beyond}");
}

#[test]
fn a_wrong_unit_is_left_to_the_client_and_is_repaired_when_it_says_so() {
    let mut world = start("ec:2,1");
    let located = world.locate(0);
    let part = first_part(&located);
    let right = world.units(&located, &part, (0, 3), true).unwrap();
    let PartName { group, number } = located.record.name_of(&part);
    let id = PartId {
        x: Position(located.x as u8),
        name: PartName { group, number },
    };
    let node = located.holders[usize::from(part.position)].unwrap();
    let replica = world.cluster.processes[node].node.replica_mut();
    let at = (paritas_base::ListId(located.list as u16), Position(part.position));
    assert!(replica.flip_bit_of_unit(at, &id, 1, 77));
    let given = world.units(&located, &part, (0, 3), false).unwrap();
    assert_eq!(given[1].0, right[1].0, "the stored sum");
    assert!(given[1].1 != right[1].1 && given[0] == right[0] && given[2] == right[2]);
    let error = world.units(&located, &part, (0, 3), true).unwrap_err();
    assert!(error.starts_with("NOPART "), "{error}");
    world.cluster.advance(1_000);
    assert!(
        world.units(&located, &part, (0, 3), true).as_ref() == Ok(&right),
        "it was repaired"
    );
    let bad = world.cluster.processes[node].node.replica_mut().view().0.scrub_counts();
    assert_eq!((bad.bad, bad.repaired), (1, 1));
}

#[test]
fn it_can_be_switched_off() {
    let mut world = start("ec:2,1");
    let located = world.locate(0);
    let units = words(&located, &first_part(&located), (0, 1), false);
    let (client, key) = (world.clients[0], world.key.clone());
    let set = |to: &'static str| ["CONFIG", "SET", "client-coding", to];
    assert_eq!(world.ask(client, &set("off")), Value::Simple("OK".into()));
    for error in [
        world.error(client, &["PARITAS.LOCATE", &key]),
        world.error(world.clients[3], &["PARITAS.LOCATE", &key]),
        world.error(client, &units),
    ] {
        assert!(error.starts_with("ERR client_coding = \"off\""), "{error}");
    }
    let error = world.error(client, &set("write"));
    assert!(
        error.ends_with("must be one of the following: off, read, on"),
        "{error}"
    );
    assert_eq!(world.ask(client, &set("read")), Value::Simple("OK".into()));
    assert!(matches!(world.ask(client, &units), Value::Bulk(_)));
}

#[test]
fn neither_is_taken_in_transactions_and_scripts() {
    let mut world = start("ec:2,1");
    let located = world.locate(0);
    let units = words(&located, &first_part(&located), (0, 1), false);
    let (client, key) = (world.clients[0], world.key.clone());
    for words in [vec![b"PARITAS.LOCATE".to_vec(), key.clone().into_bytes()], units] {
        world.ask(client, &["MULTI"]);
        let error = world.error(client, &words);
        assert!(error.contains("transaction"), "{error}");
        assert!(world.error(client, &["EXEC"]).starts_with("EXECABORT"));
    }
    for call in [
        "'PARITAS.LOCATE', KEYS[1]",
        "'PARITAS.UNITS', 0, 0, 1, 0, 0, 1, '12345678'",
    ] {
        let script = format!("return redis.call({call})");
        let error = world.error(client, &["EVAL", &script, "1", &key]);
        assert!(error.contains("not allowed from script"), "{error}");
    }
}
