//! Golden bytes of objects, and parsing of damaged bytes.

use super::*;

fn encoded(key: &[u8], value: &Value<'_>, further: &[(u32, usize)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.encode_head(0, key, further.iter().copied(), &mut bytes);
    assert_eq!(bytes.len(), value.head_bytes(0, key.len(), further.len()));
    bytes
}

fn encoded_in(database: u8, key: &[u8], value: &Value<'_>, further: &[(u32, usize)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.encode_head(database, key, further.iter().copied(), &mut bytes);
    assert_eq!(bytes.len(), value.head_bytes(database, key.len(), further.len()));
    bytes
}

/// The examples of docs/formats/object.md.
#[test]
fn golden_bytes() {
    let plain = |bytes| Value {
        bytes,
        ..Value::default()
    };
    assert_eq!(encoded(b"key", &plain(b"value"), &[]), b"\x03\x0bkey");
    assert_eq!(encoded_in(5, b"key", &plain(b"value"), &[]), b"\x03\x0a\x80\x50key");
    assert_eq!(encoded(b"k", &plain(&[0; 63]), &[]), b"\x01\x7fk");
    assert_eq!(encoded(b"k", &plain(&[0; 64]), &[]), b"\x01\x81\x01k");
    assert_eq!(encoded(b"k", &plain(&[0; 65536]), &[]), b"\x01\x81\x80\x08k");
    assert_eq!(encoded(b"", &plain(b""), &[]), b"\xff\x00\x00\x01");
    assert_eq!(encoded(&[7; 254], &plain(b""), &[])[..4], [255, 254, 0, 1]);
    let all = Value {
        bytes: &[0; 300],
        expiry_ms: Some(0x0605_0403_0201),
        flags: Some(0x0d0c_0b0a),
        marks: 0,
        hash_kind: true,
        record: &[],
    };
    assert_eq!(
        encoded(b"k", &all, &[(0x1122_3344, 256)]),
        b"\x01\xd8\x04\x0f\x01\x02\x03\x04\x05\x06\x0a\x0b\x0c\x0dk\x01\x44\x33\x22\x11\xff\x00"
    );
    let with_record = |bytes, record| Value {
        bytes,
        record,
        ..Value::default()
    };
    assert_eq!(
        encoded(b"key", &with_record(b"tail", b"rec"), &[]),
        b"\x03\x08\x10\x03reckey"
    );
    let longest = encoded(b"k", &with_record(b"", &[9; RECORD_BYTES_MAX]), &[]);
    assert_eq!((&longest[..4], longest.len()), (&[1, 0, 16, 255][..], 4 + 255 + 1));
    let mut piece = Vec::new();
    encode_piece_head(0x0102_0304_0506_0708, 258, &mut piece);
    assert_eq!(piece, b"\xfe\x01\x01\x01\x02\x03\x04\x05");
}

/// The page's example has all optional fields.
#[test]
fn the_example_of_the_page_is_what_is_written_and_read() {
    let value = Value {
        bytes: &[7; 300],
        expiry_ms: Some(0x0605_0403_0201),
        flags: Some(0x0d0c_0b0a),
        marks: 0x13,
        hash_kind: true,
        record: b"rec",
    };
    let mut bytes = encoded(b"k", &value, &[(0x1122_3344, 256)]);
    let page = include_str!("../../../../docs/formats/object.md");
    let example = page.split("```text\n").nth(1).and_then(|rest| rest.split("```").next());
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let words: Vec<&str> = example.expect("the page has an example").split_whitespace().collect();
    assert_eq!(hex, words);

    let start = 5;
    bytes.extend_from_slice(&value.bytes[..44]);
    bytes.splice(0..0, [0xee; 5]);
    let head = parse_object(&bytes, start).unwrap();
    for (chunk, head) in [(&bytes[..], head), (&bytes[start..], head.shifted(start as u32))] {
        assert_eq!(head.key(chunk), b"k");
        assert_eq!(head.record(chunk), Some(&b"rec"[..]));
        assert_eq!(
            (head.expiry_ms(chunk), head.flags(chunk), head.marks(chunk)),
            (value.expiry_ms, value.flags, value.marks)
        );
        assert!(head.is_hash());
        assert_eq!(head.pieces(chunk).collect::<Vec<_>>(), [(0x1122_3344, 256)]);
        assert_eq!(head.body(chunk), &value.bytes[..44]);
        assert_eq!(head.end as usize, chunk.len());
    }
}

#[test]
fn a_record_of_no_bytes_or_beyond_the_chunk_is_damage() {
    let value = Value {
        record: &[5; 40],
        ..Value::default()
    };
    let bytes = encoded(b"key", &value, &[]);
    assert_eq!(parse_object(&bytes, 0).unwrap().record(&bytes), Some(&[5; 40][..]));
    for cut in 0..bytes.len() {
        assert_eq!(parse_object(&bytes[..cut], 0), None, "{cut} bytes");
    }
    let mut none = bytes.clone();
    none[3] = 0;
    assert_eq!(parse_object(&none, 0), None);
    let mut unknown_bit = bytes.clone();
    // Kept for invisible objects.
    unknown_bit[2] = bytes[2] | 32;
    assert_eq!(parse_object(&unknown_bit, 0), None);
}

#[test]
fn marks_are_a_byte_that_is_not_zero() {
    let value = Value {
        marks: 5,
        ..Value::default()
    };
    let mut bytes = encoded(b"key", &value, &[]);
    assert_eq!(bytes, b"\x03\x00\x40\x05key");
    assert_eq!(parse_object(&bytes, 0).unwrap().marks(&bytes), 5);
    for cut in 0..bytes.len() {
        assert_eq!(parse_object(&bytes[..cut], 0), None, "{cut} bytes");
    }
    bytes[3] = 0;
    assert_eq!(parse_object(&bytes, 0), None);
}

#[test]
fn an_object_of_another_database_has_one_byte_for_it_and_an_unknown_type_is_damage() {
    let value = Value {
        bytes: b"value",
        expiry_ms: Some(7),
        flags: Some(9),
        record: b"rec",
        ..Value::default()
    };
    for database in 1..=16 {
        let mut bytes = encoded_in(database, b"key", &value, &[]);
        assert_eq!(bytes.len(), encoded(b"key", &value, &[]).len() + 1);
        bytes.extend_from_slice(b"value");
        let head = parse_object(&bytes, 0).unwrap();
        assert_eq!((head.database(), head.key(&bytes)), (database, &b"key"[..]));
        assert_eq!((head.expiry_ms(&bytes), head.flags(&bytes)), (Some(7), Some(9)));
        assert_eq!(
            (head.record(&bytes), head.body(&bytes)),
            (Some(&b"rec"[..]), &b"value"[..])
        );
        // The byte behind the kind.
        let second = if database < 16 { database << 4 } else { 15 };
        assert_eq!(bytes[3], second);
        for wrong in [0, second ^ 1, 14, second | 0x1f] {
            bytes[3] = wrong;
            assert_eq!(parse_object(&bytes, 0), None, "{wrong}");
        }
    }
}

#[test]
fn damaged_bytes_are_refused_and_never_read_beyond_the_chunk() {
    let seed = 1;
    println!("seed {seed}");
    let mut prng = paritas_base::Prng::new(seed);
    let mut records = 0;
    for _ in 0..100_000 {
        let mut chunk = [0; 256];
        let used = prng.below(256) as usize;
        chunk[..used].fill_with(|| (prng.next_u64() >> prng.below(64)) as u8);
        let at = prng.below(256) as usize;
        if let Some(Item::Object(head)) = parse(&chunk, at) {
            let pieces: usize = head.pieces(&chunk).map(|(_, length)| length).sum();
            let body = head.body(&chunk).len();
            assert_eq!(body + pieces, head.value_length as usize);
            let _ = (head.key(&chunk), head.expiry_ms(&chunk), head.flags(&chunk));
            if let Some(record) = head.record(&chunk) {
                assert!((1..=RECORD_BYTES_MAX).contains(&record.len()));
                records += 1;
            }
        }
    }
    assert!(records > 100, "{records}");
}
