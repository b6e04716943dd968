use super::*;
use paritas_base::Prng;

fn bytes(prng: &mut Prng, len: usize) -> Vec<u8> {
    (0..len).map(|_| prng.next_u64() as u8).collect()
}

/// Computed bit by bit, from the definition.
fn plain(start: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(start, |r, &byte| {
        (0..8).fold(r ^ u32::from(byte), |r, _| {
            (r >> 1) ^ (if r & 1 == 1 { 0x82f6_3b78 } else { 0 })
        })
    })
}

#[test]
fn crc32c_check_values() {
    assert_eq!(crc32c(b""), 0);
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    // RFC 3720, B.4.
    assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
}

#[test]
fn every_length_equals_the_definition() {
    let mut prng = Prng::new(1);
    let data = bytes(&mut prng, 600);
    for len in 0..=300 {
        for at in [0, 1, 3, 7] {
            let part = &data[at..at + len];
            let start = prng.next_u64() as u32;
            assert_eq!(
                remainder(start, part),
                plain(start, part),
                "tables, {len} bytes at {at}"
            );
            assert_eq!(crc32c_append(!start, part), !plain(start, part), "{len} bytes at {at}");
            let after = prng.below(300) as usize;
            let mut padded = part.to_vec();
            padded.resize(len + after, 0);
            assert_eq!(
                shift(remainder(0, part), after as u32),
                plain(0, &padded),
                "tables, {len} + {after}"
            );
            assert_eq!(of_extent(len + after, 0, part), plain(0, &padded), "{len} + {after}");
        }
    }
}

#[test]
fn long_ones_equal_the_definition() {
    let mut prng = Prng::new(7);
    let data = bytes(&mut prng, 9000);
    for len in (1000..1300).chain([2047, 2048, 2049, 4096, 8191, 8192, 8999]) {
        let at = prng.below((9001 - len) as u64) as usize;
        let (start, part) = (prng.next_u64() as u32, &data[at..at + len]);
        assert_eq!(crc32c_append(!start, part), !plain(start, part), "{len} bytes at {at}");
        assert_eq!(of(part), plain(0, part), "{len} bytes at {at}");
    }
}

#[test]
fn appending_equals_the_whole() {
    let mut prng = Prng::new(2);
    let data = bytes(&mut prng, 5000);
    for _ in 0..500 {
        let cut = prng.below(5001) as usize;
        assert_eq!(
            crc32c_append(crc32c(&data[..cut]), &data[cut..]),
            crc32c(&data),
            "cut at {cut}"
        );
    }
}

#[test]
fn far_shifts_agree() {
    let mut prng = Prng::new(3);
    for _ in 0..2000 {
        let after = (prng.next_u64() as u32) >> prng.below(32);
        let bytes = prng.next_u64().to_le_bytes();
        let expected = shift(remainder(0, &bytes), after);
        assert_eq!(of_extent(after as usize + 8, 0, &bytes), expected, "{after} after");
    }
}

#[test]
fn a_chunk_is_the_xor_of_its_extents() {
    let mut prng = Prng::new(4);
    for chunk_bytes in [64, 1000, 4096, 16_384, 65_536, 200_000] {
        let chunk = bytes(&mut prng, chunk_bytes);
        assert_eq!(of(&chunk), plain(0, &chunk));
        for _ in 0..20 {
            let (mut sum, mut at) = (0, 0);
            while at < chunk_bytes {
                let len = (1 + prng.below(chunk_bytes as u64 / 3) as usize).min(chunk_bytes - at);
                sum ^= of_extent(chunk_bytes, at, &chunk[at..at + len]);
                at += len;
            }
            assert_eq!(sum, of(&chunk), "{chunk_bytes} bytes");
        }
    }
}

#[test]
fn deltas_update_the_sum() {
    let mut prng = Prng::new(5);
    let mut chunk = vec![0; 16_384];
    let mut sum = of(&chunk);
    assert_eq!(sum, 0, "zeros sum to 0");
    for _ in 0..300 {
        let at = prng.below(16_384) as usize;
        let len = prng.below((16_384 - at) as u64 + 1).min(500) as usize;
        let delta = bytes(&mut prng, len);
        crate::xor(&delta, &mut chunk[at..at + len]);
        sum ^= of_extent(16_384, at, &delta);
        assert_eq!(sum, of(&chunk));
    }
}

#[test]
#[should_panic(expected = "an extent lies within its chunk")]
fn an_extent_past_the_end_is_refused() {
    of_extent(64, 60, &[0; 5]);
}
