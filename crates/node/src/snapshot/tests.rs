use super::cluster::Slots;
use super::rdb::{Entry, Item, Limits, RdbError, Reader, Writer, Wrong};
use super::{Count, LIMITS, batches, check};
use paritas_base::{ListId, Position};
use paritas_control::status::{SlotMove, SlotMoveState};
use std::fs::File;

fn entry(key: &[u8], value: &[u8], expiry_ms: Option<u64>) -> Entry {
    Entry {
        database: 0,
        key: key.into(),
        value: value.into(),
        expiry_ms,
    }
}

fn all(file: &[u8], limits: Limits) -> Result<Vec<Entry>, RdbError> {
    let mut reader = Reader::new(file, limits)?;
    let mut entries = Vec::new();
    while let Some(Item::Key(entry)) = reader.next_item()? {
        entries.push(entry);
    }
    Ok(entries)
}

/// What is restored of a file with these bytes as its contents, and what is passed over.
fn skipped(magic: &[u8], body: &[u8]) -> (Vec<Vec<u8>>, Vec<String>) {
    let file = [magic, body, &[0xFF], &[0; 8]].concat();
    let mut reader = Reader::new(&file[..], LIMITS).unwrap().skipping(true);
    let (mut keys, mut passed) = (Vec::new(), Vec::new());
    while let Some(item) = reader.next_item().unwrap() {
        match item {
            Item::Key(entry) => keys.push(entry.key),
            Item::Library(source) => keys.push(source),
            Item::PassedOver(what) => passed.push(what),
        }
    }
    (keys, passed)
}

/// A file of Redis 7 with these bytes as its contents, without a checksum.
fn around(body: &[u8]) -> Vec<u8> {
    [b"REDIS0011", body, &[0xFF], &[0; 8]].concat()
}

fn refused(body: &[u8]) -> String {
    all(&around(body), LIMITS).unwrap_err().to_string()
}

#[test]
fn what_is_written_is_read_again_and_damage_is_noticed() {
    let entries = [
        entry(b"", b"", None),
        entry(b"a", &[b'v'; 63], Some(1)),
        entry(b"b", &[b'v'; 64], None),
        entry(&[0xFF; 300], &[0; 16_383], Some(u64::MAX)),
        entry(b"c", &[7; 16_384], None),
        entry(b"d", &[7; 65_536], None),
    ];
    let mut writer = Writer::new(Vec::new(), &[]).unwrap();
    for entry in &entries {
        writer.push(entry).unwrap();
    }
    let file = writer.finish().unwrap();
    assert_eq!(all(&file, LIMITS).unwrap(), entries);
    for length in 0..file.len() {
        assert!(all(&file[..length], LIMITS).is_err(), "cut at {length}");
    }
    for at in (9..file.len()).step_by(97) {
        let mut damaged = file.clone();
        damaged[at] ^= 0x10;
        assert!(all(&damaged, LIMITS).is_err(), "changed at {at}");
    }
    let longer = [&file[..], b"x"].concat();
    assert!(all(&longer, LIMITS).is_err());
}

#[test]
fn libraries_of_functions_come_before_the_keys() {
    let libraries = [b"#!lua name=a\n".to_vec(), vec![b'x'; 1000]];
    let mut writer = Writer::new(Vec::new(), &libraries).unwrap();
    writer.push(&entry(b"key", b"value", None)).unwrap();
    let file = writer.finish().unwrap();
    assert!(file.starts_with(b"REDIS0010\xFA"));
    let body = [
        &b"\xF5\x0D#!lua name=a\n\xF5\x43\xE8"[..],
        &[b'x'; 1000],
        b"\xFE\x00\x00\x03key\x05value\xFF",
    ]
    .concat();
    assert_eq!(file[file.len() - 8 - body.len()..file.len() - 8], body[..]);
    let mut reader = Reader::new(&file[..], LIMITS).unwrap();
    for source in libraries {
        assert_eq!(reader.next_item().unwrap(), Some(Item::Library(source)));
    }
    let key = Item::Key(entry(b"key", b"value", None));
    assert_eq!(reader.next_item().unwrap(), Some(key));
    assert_eq!(reader.next_item().unwrap(), None);
}

/// Compared byte for byte, so that a change of the format is noticed. The checksum is Redis's CRC-64.
#[test]
fn the_bytes_are_those_of_the_drawing() {
    let mut writer = Writer::new(Vec::new(), &[]).unwrap();
    writer.push(&entry(b"key", b"value", Some(0x0102))).unwrap();
    let file = writer.finish().unwrap();
    let version = env!("CARGO_PKG_VERSION").as_bytes();
    let head = [
        b"REDIS0009\xFA\x0Bparitas-ver",
        &[version.len() as u8][..],
        version,
        b"\xFE\x00",
    ]
    .concat();
    let body = b"\xFC\x02\x01\0\0\0\0\0\0\x00\x03key\x05value\xFF";
    assert_eq!(file[..head.len()], head);
    assert_eq!(file[head.len()..file.len() - 8], body[..]);
    let crc = crc::Crc::<u64>::new(&crc::CRC_64_REDIS);
    assert_eq!(
        crc.checksum(b"123456789"),
        0xE9C6_D914_C4B8_D9CA,
        "the value in Redis's own test"
    );
    assert_eq!(
        file[file.len() - 8..],
        crc.checksum(&file[..file.len() - 8]).to_le_bytes()
    );
}

#[test]
fn the_forms_that_redis_writes_are_read() {
    let body = [
        &b"\xFA\x09redis-ver\x057.4.0"[..],
        b"\xFA\x0Aredis-bits\xC0\x40",
        b"\xFE\x00\xFB\x07\x01",
        b"\xF4\x01\x02\x00",
        // A record of a module: when to load, then 7, -1, a float, a double, a string, the end.
        b"\xF7\x81\0\0\0\0\0\0\x01\x02\x02\x01\x02\x07\x01\x81\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF",
        b"\x03\0\0\x80\x3F\x04\0\0\0\0\0\0\xF0\x3F\x05\x03abc\x00",
        b"\x00\x04tiny\xC0\xFF",
        b"\x00\x05small\xC1\x39\x30",
        b"\x00\x06medium\xC2\x15\xCD\x5B\x07",
        b"\xFC\x01\0\0\0\0\0\0\0\x00\x02ms\x01v",
        b"\xFD\x02\0\0\0\x00\x01s\x01v",
        b"\xF8\x05\x00\x04idle\x01v",
        b"\xF9\x07\x00\x04used\x01v",
        // Twenty times `a`, compressed: one literal, then 19 bytes copied from one byte before.
        b"\x00\x06packed\xC3\x05\x14\x00a\xE0\x0A\x00",
        b"\x00\x04long\x80\0\0\0\x02ab",
        b"\x00\x06longer\x81\0\0\0\0\0\0\0\x02ab",
    ]
    .concat();
    let found = all(&around(&body), LIMITS).unwrap();
    let expected = [
        entry(b"tiny", b"-1", None),
        entry(b"small", b"12345", None),
        entry(b"medium", b"123456789", None),
        entry(b"ms", b"v", Some(1)),
        entry(b"s", b"v", Some(2_000)),
        entry(b"idle", b"v", None),
        entry(b"used", b"v", None),
        entry(b"packed", &[b'a'; 20], None),
        entry(b"long", b"ab", None),
        entry(b"longer", b"ab", None),
    ];
    assert_eq!(found, expected);
    // Valkey's own name of the format, and a version without a checksum.
    assert_eq!(all(b"VALKEY080\xFE\x00\xFF\0\0\0\0\0\0\0\0", LIMITS).unwrap(), []);
    assert_eq!(
        all(b"REDIS0003\x00\x01k\x01v\xFF", LIMITS).unwrap(),
        [entry(b"k", b"v", None)]
    );
}

#[test]
fn keys_keep_their_database_and_those_of_one_come_together() {
    let of = |database, key: &[u8]| Entry {
        database,
        ..entry(key, b"v", None)
    };
    let entries = [of(0, b"a"), of(0, b"b"), of(3, b"a"), of(15, b"a"), of(15, b"c")];
    let mut writer = Writer::new(Vec::new(), &[]).unwrap();
    entries.iter().for_each(|entry| writer.push(entry).unwrap());
    let file = writer.finish().unwrap();
    assert_eq!(all(&file, LIMITS).unwrap(), entries);
    let chosen = file.windows(2).filter(|bytes| *bytes == b"\xFE\x03").count();
    assert_eq!(chosen, 1);
}

#[test]
fn what_cannot_be_kept_is_named() {
    assert!(refused(b"\x01\x05queue\x00").contains("queue is a list; only strings are supported here"));
    assert!(refused(b"\x04\x01h\x00").contains("h is a hash"));
    assert!(refused(b"\xFE\x10\x00\x01k\x01v").contains("keys of database 16; databases 0 to 15 exist here"));
    assert!(refused(b"\xF6\x01f\x03LUA\x00\x01s").contains("functions in the form of a preview of Redis 7"));
    let long = refused(b"\xF5\x80\x00\x02\x00\x01");
    assert!(
        long.contains("a library of functions has 131073 bytes, at most 131072 are allowed"),
        "{long}"
    );
    assert!(refused(b"\xF7\x01\x02\x02\x07").contains("data of a module in an unknown form, 7"));
    assert!(refused(b"\xF2").contains("operation 242"));
    assert!(refused(b"\x00\x01k\xC9").contains("unknown form"));
    assert!(refused(b"\x00\x01k\xC3\x02\x05\x20\x09").contains("cannot be unpacked"));
    let long = refused(b"\x00\x01k\x80\x7F\xFF\xFF\xFF");
    assert!(
        long.contains("the value of k has 2147483647 bytes, at most 536870912 are allowed"),
        "{long}"
    );
    let damaged = all(b"REDIS0009\xFF\x01\0\0\0\0\0\0\0", LIMITS).unwrap_err();
    assert!(matches!(damaged.what, Wrong::Sum), "{damaged}");
    for other in [
        &b""[..],
        b"REDIS",
        b"PK\x03\x04 a zip file",
        b"REDIS-009\xFF",
        b"VALKEYxyz\xFF",
    ] {
        assert!(matches!(all(other, LIMITS).unwrap_err().what, Wrong::Magic));
    }
}

/// Each is followed by a string: if a byte too many or too few were skipped, it would not be found.
#[test]
fn what_cannot_be_kept_is_passed_over_to_the_byte() {
    let cases: [(&[u8], &str); 23] = [
        (b"\x01\x01k\x02\x01a\xC0\x05", "k is a list"),
        (b"\x02\x01k\x01\x01a", "k is a set"),
        (b"\x03\x01k\x02\x01a\x031.5\x01b\xFE", "k is a sorted set"),
        (b"\x04\x01k\x01\x01a\x01b", "k is a hash"),
        (b"\x05\x01k\x01\x01a\0\0\0\0\0\0\xF0\x3F", "k is a sorted set"),
        (b"\x0A\x01k\x03xyz", "k is a list"),
        (b"\x0E\x01k\x02\x03xyz\x01z", "k is a list"),
        (b"\x12\x01k\x02\x02\x03xyz\x01\x01z", "k is a list"),
        (b"\x10\x01k\x03xyz", "k is a hash"),
        (b"\x16\x01k\x01\x05\x01a\x01b", "k is a hash"),
        (b"\x17\x01k\x03xyz", "k is a hash"),
        (b"\x18\x01k\0\0\0\0\0\0\0\0\x01\x05\x01a\x01b", "k is a hash"),
        (b"\x19\x01k\0\0\0\0\0\0\0\0\x03xyz", "k is a hash"),
        // One node, length 1, last id 5-0; a group with one pending entry and one consumer.
        (
            b"\x0F\x01s\x01\x10iiiiiiiiiiiiiiii\x02lp\x01\x05\x00\x01\x01g\x05\x00\x01iiiiiiiiiiiiiiiitttttttt\x01\
              \x01\x01ctttttttt\x01iiiiiiiiiiiiiiii",
            "s is a stream",
        ),
        (
            b"\x15\x01s\x01\x10iiiiiiiiiiiiiiii\x02lp\x01\x05\x00\x05\x00\x00\x00\x01\x01\x01g\x05\x00\x01\x00\x01\
              \x01ctttttttttttttttt\x00",
            "s is a stream",
        ),
        (
            b"\x07\x01k\x81\0\0\0\0\0\0\x01\x02\x02\x07\x05\x03abc\x00",
            "k is of a module",
        ),
        (b"\xFC\x01\0\0\0\0\0\0\0\x01\x01k\x01\x01a", "k is a list"),
        (
            b"\xF6\x01n\x03LUA\x01\x01d\x03abc",
            "functions in the form of a preview",
        ),
        (b"\xFE\x12\x00\x01k\x01v\xFE\x00", "k is in database 18"),
        (b"\xFE\x02\x04\x01k\x01\x01a\x01b\xFE\x00", "k is a hash"),
        // Lengths of 9,000 bytes below are put in by the test.
        (b"\x00LONG\x01v", "a key of 9000 bytes"),
        (b"\x02LONG\x01\x01a", "a key of 9000 bytes"),
        // Packed: 3 bytes in the file, and 600 MiB in memory.
        (
            b"\x00\x01k\xC3\x03\x80\x25\x80\0\0abc",
            "the value of k has 629145600 bytes",
        ),
    ];
    let long = [&b"\x80\0\0\x23\x28"[..], &[b'l'; 9000]].concat();
    for (body, says) in cases {
        let mut body = body.to_vec();
        if let Some(at) = body.windows(4).position(|part| part == b"LONG") {
            body.splice(at..at + 4, long.iter().copied());
        }
        body.extend_from_slice(b"\x00\x04next\x01v");
        let (keys, passed) = skipped(b"REDIS0011", &body);
        assert_eq!(keys, [b"next"], "{says}");
        assert!(passed.len() == 1 && passed[0].starts_with(says), "{says}: {passed:?}");
        let whole = all(&around(&body), LIMITS).unwrap_err().to_string();
        assert!(whole.contains("--skip"), "{whole}");
    }
    // Valkey's hash with fields that expire.
    let (keys, passed) = skipped(b"VALKEY080", b"\x16\x01k\x01\x01a\x01btttttttt\x00\x04next\x01v");
    assert_eq!((keys, passed.len()), (vec![b"next".to_vec()], 1));
    let unknown = [&b"REDIS0011"[..], b"\x77\x01k\x00\xFF"].concat();
    let unknown = Reader::new(&unknown[..], LIMITS).unwrap().skipping(true).next_item();
    assert!(unknown.unwrap_err().to_string().contains("cannot be passed over"));
}

#[test]
fn counts_read_as_people_do() {
    let mut count = Count::default();
    count.add(&entry(b"key", &[0; 2_045], None));
    assert_eq!(count.to_string(), "1 keys, 2.0 KB");
    (count.expired, count.kept) = (2, 3);
    assert_eq!(
        count.to_string(),
        "1 keys, 2.0 KB; 2 left out: expired; 3 left as they were"
    );
}

#[test]
fn a_file_is_checked_before_anything_is_set() {
    let path = std::env::temp_dir().join(format!("paritas-snapshot-{}", std::process::id()));
    for (expiry_ms, whole) in [(1, true), ((1 << 48) - 1, true), (1 << 48, false)] {
        let mut writer = Writer::new(Vec::new(), &[]).unwrap();
        writer.push(&entry(b"first", b"v", None)).unwrap();
        writer.push(&entry(b"late", b"v", Some(expiry_ms))).unwrap();
        std::fs::write(&path, writer.finish().unwrap()).unwrap();
        let checked = check(&File::open(&path).unwrap(), false, &mut |_| ()).map_err(|error| error.to_string());
        assert_eq!(checked.is_ok(), whole);
        assert!(whole || checked.unwrap_err().contains("late expires 281474976710656 ms"));
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn slots_that_moved_are_noticed() {
    let last = |first, state| {
        Slots::Known(Some(SlotMove {
            first,
            last: 9,
            list: ListId(0),
            position: Position(0),
            moved_slots: 0,
            total_slots: 9,
            state,
            reason: String::new(),
        }))
    };
    let done = last(1, SlotMoveState::Done);
    let none = Slots::Known(None);
    assert!(last(1, SlotMoveState::Moving).are_moving() && !done.are_moving() && !Slots::Unknown.are_moving());
    assert!(done.moved_since(&none) && last(2, SlotMoveState::Done).moved_since(&done));
    assert!(last(1, SlotMoveState::Moving).moved_since(&done));
    // A coordinator that has restarted knows of no move.
    assert!(!done.moved_since(&done) && !none.moved_since(&done) && !Slots::Unknown.moved_since(&done));
}

#[test]
fn keys_are_read_in_batches_of_bounded_bytes() {
    let keys: Vec<Vec<u8>> = (0..500).map(|n| vec![b'k'; n * 37 % 8_000]).collect();
    let parts: Vec<&[Vec<u8>]> = batches(&keys).collect();
    assert_eq!(parts.concat(), keys);
    let bytes = |part: &&[Vec<u8>]| part.iter().map(|key| 3 * key.len()).sum::<usize>();
    assert!(parts.iter().all(|part| part.len() == 1 || bytes(part) <= 64 << 10));
    assert!(parts.len() < 250 && batches(&[]).next().is_none());
}
