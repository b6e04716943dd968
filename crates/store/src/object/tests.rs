//! Golden bytes of objects, and parsing of damaged bytes.

use super::*;

fn encoded(key: &[u8], value: &Value<'_>, further: &[(u32, usize)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.encode_head(key, further.iter().copied(), &mut bytes);
    assert_eq!(bytes.len(), value.head_bytes(key.len(), further.len()));
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
    assert_eq!(encoded(b"k", &plain(&[0; 63]), &[]), b"\x01\x7fk");
    assert_eq!(encoded(b"k", &plain(&[0; 64]), &[]), b"\x01\x81\x01k");
    assert_eq!(encoded(b"k", &plain(&[0; 65536]), &[]), b"\x01\x81\x80\x08k");
    assert_eq!(encoded(b"", &plain(b""), &[]), b"\xff\x00\x00\x01");
    assert_eq!(encoded(&[7; 254], &plain(b""), &[])[..4], [255, 254, 0, 1]);
    let all = Value {
        bytes: &[0; 300],
        expiry_ms: Some(0x0605_0403_0201),
        flags: Some(0x0d0c_0b0a),
        hash_kind: true,
    };
    assert_eq!(
        encoded(b"k", &all, &[(0x1122_3344, 256)]),
        b"\x01\xd8\x04\x0f\x01\x02\x03\x04\x05\x06\x0a\x0b\x0c\x0dk\x01\x44\x33\x22\x11\xff\x00"
    );
    let mut piece = Vec::new();
    encode_piece_head(0x0102_0304_0506_0708, 258, &mut piece);
    assert_eq!(piece, b"\xfe\x01\x01\x01\x02\x03\x04\x05");
}

#[test]
fn damaged_bytes_are_refused_and_never_read_beyond_the_chunk() {
    let seed = 1;
    println!("seed {seed}");
    let mut prng = paritas_base::Prng::new(seed);
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
        }
    }
}
