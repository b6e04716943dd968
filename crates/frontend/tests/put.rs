//! Units that clients send to the holders of parts (P14.18, P14.19).

use paritas_base::configuration::Configuration;
use paritas_base::{ListId, PartState, Position, StreamId};
use paritas_code::{crc32c_append, sum};
use paritas_protocol::large::{Class, Fingerprint, FingerprintKey, Folding, GroupId, Part, PartName, Record};
use paritas_protocol::{Capability, ClientCoding, Parameters, Port};
use paritas_testbed::{Client, Cluster};
use paritas_wire::peer::{self, Header, Message};
use paritas_wire::resp::Value;
use std::cell::RefCell;
use std::rc::Rc;

const UNIT_BYTES: usize = 16 << 10;
/// Two rows of two units, and a short one of 576 bytes for each block. The second block ends with 90 zeros.
const BODY_BYTES: u64 = 4 * UNIT_BYTES as u64 + 576 + 486;
const STREAM: StreamId = StreamId {
    list: ListId(0),
    x: Position(0),
};

/// What the owner hears of parts: state, and fingerprint.
type Heard = Rc<RefCell<Vec<(PartState, Option<Fingerprint>)>>>;

/// Three nodes of `2+1`. Node 0 owns the stream.
struct World {
    cluster: Cluster,
    record: Record,
    heard: Heard,
}

fn start(client_coding: ClientCoding) -> World {
    let parameters = Parameters {
        client_coding,
        ..Parameters::default()
    };
    let mut cluster = Cluster::coded_in(64 << 20, 2, 1, 1, 0, parameters);
    let heard: Heard = Heard::default();
    let notes = heard.clone();
    cluster.tamper = Some(Box::new(move |_, to, _, message| match message {
        Message::PartState {
            state,
            fingerprint,
            question: 0,
            ..
        } if to == 0 => {
            let print = fingerprint.map(|bytes| Fingerprint(*bytes));
            notes.borrow_mut().push((*state, print));
            None
        }
        // The owner has not staged these groups.
        Message::FreeGroups { .. } => Some(Vec::new()),
        _ => None,
    }));
    // Groups of a term that no owner has reached: no inventory frees them.
    let group = |number| GroupId::new(900, number).unwrap();
    let record = Record {
        class: Class::Ec { data: 2, parity: 1 },
        first: 0,
        logged: 0,
        body_bytes: BODY_BYTES,
        data_group: group(1),
        other_group: Some(group(2)),
        checks: vec![0; 3],
    };
    World { cluster, record, heard }
}

fn block(part: &Part) -> Vec<Vec<u8>> {
    let seed = usize::from(part.position) + 1;
    let byte = |at: usize| 1 + ((at * 7 + at / 1000 + seed) % 251) as u8;
    let full = |row: usize| (0..UNIT_BYTES).map(|at| byte(at + row)).collect();
    let end = if part.position == 1 { 486 } else { 576 };
    let mut short: Vec<u8> = (0..end).map(byte).collect();
    short.resize(576, 0);
    vec![full(0), full(1), short]
}

impl World {
    fn configuration(&self) -> &Configuration {
        &self.cluster.configurations[0]
    }

    fn part(&self, position: u8) -> Part {
        let placement = self.record.placement(3).unwrap();
        placement.parts().find(|part| part.position == position).unwrap()
    }

    fn name(&self, position: u8) -> PartName {
        self.record.name_of(&self.part(position))
    }

    /// The owner opens the part at this position, which is the node's number too. Not that of the owner.
    fn open(&mut self, position: u8, by_client: bool) {
        let name = self.name(position);
        let mut record = Vec::new();
        self.record.encode(&mut record);
        let open = Message::OpenPart {
            term: self.configuration().tenure(STREAM.x).unwrap().term(),
            question: 7,
            name: peer::PartName {
                group: name.group.bits(),
                number: name.number,
            },
            record: &record,
            by_client,
        };
        let header = Header {
            stream: STREAM,
            epoch: self.configuration().epoch,
        };
        let mut frame = Vec::new();
        peer::encode(&mut frame, &header, &open);
        let (to, channel) = (usize::from(position), paritas_protocol::Channel::Bulk);
        let link = self.cluster.link_between(0, to, channel).unwrap();
        self.cluster.hear(to, link, &frame);
        self.cluster.pump();
    }

    fn client(&mut self, node: usize) -> Client {
        self.cluster.connect(node, Port::Any)
    }

    fn words(&self, position: u8, unit: u32, bytes: &[u8]) -> Vec<Vec<u8>> {
        let PartName { group, number } = self.name(position);
        let hash_key = self.cluster.processes[0].node.replica().view().0.cluster.hash_key;
        let capability = Capability::to_write(hash_key, STREAM, group.bits()).bytes();
        let numbers = [0, 0, group.bits(), number.into(), unit.into()].map(|n: u64| n.to_string().into_bytes());
        let mut words = vec![b"PARITAS.PUT".to_vec()];
        words.extend(numbers);
        words.extend([capability.to_vec(), bytes.to_vec()]);
        words
    }

    fn ask(&mut self, client: Client, words: &[impl AsRef<[u8]>]) -> Value {
        self.cluster.call(client, words)
    }

    fn error(&mut self, client: Client, words: &[impl AsRef<[u8]>]) -> String {
        self.cluster.call_refused(client, words)
    }

    fn put(&mut self, client: Client, position: u8, unit: u32, bytes: &[u8]) -> Value {
        let words = self.words(position, unit, bytes);
        self.ask(client, &words)
    }
}

#[test]
fn a_holder_takes_units_in_order_and_tells_the_owner_when_it_keeps_the_part() {
    let mut world = start(ClientCoding::On);
    world.open(1, true);
    let client = world.client(1);
    let units = block(&world.part(1));
    assert_eq!(
        world.put(client, 1, 1, &units[1]),
        Value::Integer(0),
        "not the next one"
    );
    assert_eq!(world.put(client, 1, 0, &units[0]), Value::Integer(1));
    assert_eq!(
        world.put(client, 1, 0, &units[..2].concat()),
        Value::Integer(2),
        "one is here already"
    );
    assert_eq!(
        world.heard.borrow().len(),
        0,
        "the owner needs no word about single units"
    );
    assert_eq!(world.put(client, 1, 2, &units[2]), Value::Integer(3));
    assert_eq!(world.put(client, 1, 2, &units[2]), Value::Integer(3));
    let hash_key = world.cluster.processes[0].node.replica().view().0.cluster.hash_key;
    let mut folding = Folding::new(FingerprintKey::new(hash_key, STREAM, world.record.data_group));
    let mut check = 0;
    for unit in &units {
        folding.push(unit);
        check = crc32c_append(check, &sum::of_extent(UNIT_BYTES, 0, unit).to_le_bytes());
    }
    let told = world.heard.borrow().clone();
    assert_eq!(told, [(PartState::Kept(check), Some(folding.fingerprint()))]);
    // What it keeps can be read.
    let name = world.name(1);
    let capability = Capability::to_read(hash_key, STREAM, name.group.bits()).bytes();
    let mut words: Vec<Vec<u8>> = vec![b"PARITAS.UNITS".to_vec()];
    let numbers = [0, 0, name.group.bits(), name.number.into(), 0, 3].map(|n: u64| n.to_string().into_bytes());
    words.extend(numbers);
    words.push(capability.to_vec());
    let Value::Bulk(read) = world.ask(client, &words) else {
        panic!("not kept");
    };
    assert!(read[12..] == units.concat());
}

#[test]
fn a_unit_that_cannot_be_of_a_value_breaks_the_part_and_the_owner_hears_it() {
    let mut world = start(ClientCoding::On);
    world.open(1, true);
    let client = world.client(1);
    let mut units = block(&world.part(1));
    *units[2].last_mut().unwrap() = 1;
    let all = world.words(1, 0, &units.concat());
    let error = world.error(client, &all);
    assert!(error.starts_with("NOPART "), "{error}");
    assert_eq!(*world.heard.borrow(), [(PartState::Broken, None)]);
    let again = world.words(1, 0, &units[0]);
    assert!(world.error(client, &again).starts_with("NOPART "));
    // A parity may have any bytes there.
    world.open(2, true);
    let client = world.client(2);
    let mut units = block(&world.part(2));
    *units[2].last_mut().unwrap() = 1;
    assert_eq!(world.put(client, 2, 0, &units.concat()), Value::Integer(3));
}

#[test]
fn what_was_not_opened_for_a_client_takes_nothing() {
    let mut world = start(ClientCoding::On);
    world.open(1, false);
    let unit = &block(&world.part(1))[0];
    for node in [0, 1, 2] {
        let client = world.client(node);
        let words = world.words(1, 0, unit);
        let error = world.error(client, &words);
        assert!(error.starts_with("NOPART "), "node {node}: {error}");
    }
    assert!(world.heard.borrow().is_empty());
}

#[test]
fn wrong_capabilities_to_read_and_to_write_count_together() {
    let mut world = start(ClientCoding::On);
    world.open(1, true);
    let client = world.client(1);
    let units = block(&world.part(1));
    let right = world.words(1, 0, &units[0]);
    let hash_key = world.cluster.processes[0].node.replica().view().0.cluster.hash_key;
    let group = world.name(1).group.bits();
    let mut to_read = right.clone();
    to_read[6] = Capability::to_read(hash_key, STREAM, group).bytes().to_vec();
    let mut of_the_other_group = right.clone();
    of_the_other_group[6] = world.words(2, 0, &units[0])[6].clone();
    // The right to write is none to read.
    let mut read_by_right_to_write = right.clone();
    read_by_right_to_write[0] = b"PARITAS.UNITS".to_vec();
    (read_by_right_to_write[6], read_by_right_to_write[7]) = (b"1".to_vec(), right[6].clone());
    for wrong in [&to_read, &of_the_other_group] {
        let error = world.error(client, wrong);
        assert!(error.starts_with("NOPERM "), "{error}");
        assert!(!world.cluster.is_closed(client));
    }
    assert_eq!(world.ask(client, &right), Value::Integer(1));
    let error = world.error(client, &read_by_right_to_write);
    assert!(error.starts_with("NOPERM "), "{error}");
    assert!(world.cluster.is_closed(client));
}

#[test]
fn it_is_refused_unless_it_is_switched_on() {
    for coding in [ClientCoding::Off, ClientCoding::Read] {
        let mut world = start(coding);
        world.open(1, true);
        let (client, units) = (world.client(1), block(&world.part(1)));
        let words = world.words(1, 0, &units[0]);
        let error = world.error(client, &words);
        assert!(error.starts_with("ERR client_coding is not \"on\""), "{error}");
        let on = world.ask(client, &["CONFIG", "SET", "client-coding", "on"]);
        assert_eq!(on, Value::Simple("OK".into()));
        assert_eq!(world.ask(client, &words), Value::Integer(1));
    }
}

#[test]
fn what_is_wrong_is_refused_in_words() {
    let mut world = start(ClientCoding::On);
    world.open(1, true);
    let (client, units) = (world.client(1), block(&world.part(1)));
    let right = world.words(1, 0, &units[0]);
    let too_long = "x".repeat((512 << 10) + 1);
    let wrong: [(usize, &str, &str); 9] = [
        (1, "x", "ERR list must be a number from 0 to 65535"),
        (2, "256", "ERR x must be a number from 0 to 255"),
        (3, "0", "ERR group must be that of a record"),
        (4, "+1", "ERR part must be a number from 0 to 255"),
        (5, "4294967296", "ERR unit must be a number from 0 to 4294967295"),
        (
            6,
            "1234567",
            "ERR capability must be 8 bytes, as PARITAS.STAGE tells them",
        ),
        (7, "", "ERR there must be 1 to 524288 bytes of units"),
        (7, &too_long, "ERR there must be 1 to 524288 bytes of units"),
        (7, "not a unit", "NOPART "),
    ];
    for (at, word, wanted) in wrong {
        let mut words = right.clone();
        words[at] = word.as_bytes().to_vec();
        let error = world.error(client, &words);
        assert!(error.starts_with(wanted), "{at}: {error}");
    }
    let error = world.error(client, &right[..7]);
    assert!(error.starts_with("ERR wrong number of arguments"), "{error}");
    assert!(!world.cluster.is_closed(client), "none of them was a wrong capability");
    world.ask(client, &["MULTI"]);
    let error = world.error(client, &right);
    assert!(error.contains("transaction"), "{error}");
    assert!(world.error(client, &["EXEC"]).starts_with("EXECABORT"));
    let script = "return redis.call('PARITAS.PUT', 0, 0, 1, 0, 0, '12345678', 'x')";
    let error = world.error(client, &["EVAL", script, "0"]);
    assert!(error.contains("not allowed from script"), "{error}");
    assert_eq!(world.ask(client, &right), Value::Integer(1), "the part is still open");
}
