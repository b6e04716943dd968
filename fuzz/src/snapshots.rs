//! Snapshot files.

use paritas_node::snapshot::LIMITS;
use paritas_node::snapshot::rdb::{Entry, Item, RdbError, Reader, Writer};

/// Parses bytes as keys. They must be valid, or give an error with its position. Keys that were read must survive
/// writing and reading. A reader that passes over what cannot be stored meets at least the same keys.
pub(crate) fn files(bytes: &[u8]) {
    let (mut entries, mut more) = (Vec::new(), Vec::new());
    let ended = [read(bytes, false, &mut entries), read(bytes, true, &mut more)];
    for error in ended.iter().filter_map(|ended| ended.as_ref().err()) {
        assert!(error.offset <= bytes.len() as u64 && !error.to_string().is_empty());
    }
    assert!(more.starts_with(&entries) && (ended[0].is_err() || more == entries));
    let mut writer = Writer::new(Vec::new(), &[]).expect("memory takes all");
    for entry in &entries {
        writer.push(entry).expect("memory takes all");
    }
    let written = writer.finish().expect("memory takes all");
    let mut again = Vec::new();
    read(&written, false, &mut again).expect("what was written must be readable");
    assert_eq!(again, entries);
}

fn read(bytes: &[u8], skips: bool, entries: &mut Vec<Entry>) -> Result<(), RdbError> {
    // Most bytes that the keys of one input may take together.
    const HELD_BYTES_MAX: usize = 16 << 10;
    let mut reader = Reader::new(bytes, LIMITS)?.skipping(skips);
    let mut held = 0;
    while let Some(item) = reader.next_item()? {
        let Item::Key(entry) = item else { continue };
        assert!(entry.key.len() <= LIMITS.key_bytes_max && entry.value.len() <= LIMITS.value_bytes_max);
        held += entry.key.len() + entry.value.len();
        if held <= HELD_BYTES_MAX && entries.len() < 64 {
            entries.push(entry);
        }
    }
    Ok(())
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let around = |version: &[u8], body: &[u8]| [version, body, &[0xFF], &[0; 8]].concat();
    let bodies: [&[u8]; 12] = [
        b"\xFA\x09redis-ver\x057.4.0\xFE\x00\xFB\x01\x01\xFC\0\0\0\0\0\0\0\x01\x00\x03key\x05value",
        b"\xFD\x02\0\0\0\x00\x01s\xC0\xFF\xF8\x05\x00\x01i\xC1\x39\x30\xF9\x07\x00\x01f\xC2\x15\xCD\x5B\x07",
        b"\x00\x06packed\xC3\x05\x14\x00a\xE0\x0A\x00",
        b"\x00\x04long\x80\0\0\0\x02ab\x00\x06longer\x81\0\0\0\0\0\0\0\x02ab\x00\x40\x02ab\x00",
        b"\xF4\x01\x02\x00\xFE\x01",
        b"\x01\x05queue\x00",
        b"\x0F\x01s\x01\x01i\x02lp\x01\x05\x00\x01\x01g\x05\x00\x00\x01\x01ctttttttt\x00\x00\x01k\x01v",
        b"\x03\x01z\x02\x01a\x031.5\x01b\xFE\x16\x01h\x01\x05\x01a\x01b\x07\x01m\x05\x02\x07\x00\x00\x01k\x01v",
        b"\xF5\x01f",
        b"\xF7\x01",
        b"\x00\x01k\x80\x7F\xFF\xFF\xFF",
        b"",
    ];
    let versions: [&[u8]; 3] = [b"REDIS0011", b"VALKEY080", b"REDIS0003"];
    versions
        .iter()
        .flat_map(|version| bodies.iter().map(|body| around(version, body)))
        .collect()
}
