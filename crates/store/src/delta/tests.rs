use super::*;

/// The extents of the example `Delta` in `docs/formats/peer-golden.md`, starting with the line of its first extent.
fn drawn() -> Vec<u8> {
    let page = include_str!("../../../../docs/formats/peer-golden.md");
    let (_, rest) = page.split_once("\n10 Delta\n").unwrap();
    let (delta, _) = rest.split_once("\n\n").unwrap();
    let lines = delta.lines().skip_while(|line| !line.contains("extent:"));
    let digits: String = lines.filter_map(|line| line.split_whitespace().next()).collect();
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
        .collect()
}

#[test]
fn golden_bytes_of_extents() {
    let mut delta = Delta::new(Version::new(1, 3), Vec::new());
    let (data, index) = (Stripe::data(5), Stripe::index_page(6));
    delta
        .extent(data, false, Some(Version::new(1, 2)), 291, 3)
        .copy_from_slice(&[0xa1, 0xa2, 0xa3]);
    delta.extent(data, false, None, 512, 1).copy_from_slice(&[0xb1]);
    delta
        .extent(index, true, Some(Version::new(1, 1)), 0, 2)
        .copy_from_slice(&[0xc1, 0xc2]);
    let long = [0xd1, 0xd2, 0xd3, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8, 0xd9];
    delta.extent(data, false, None, 513, 9).copy_from_slice(&long);
    assert_eq!(delta.bytes(), drawn());
    let read: Vec<Extent<'_>> = extents(delta.version(), delta.bytes(), 4096)
        .map(Result::unwrap)
        .collect();
    let extent = |stripe, free, base, offset, xor| Extent {
        stripe,
        free,
        base,
        offset,
        xor,
    };
    assert_eq!(
        read,
        [
            extent(data, false, Some(Version::new(1, 2)), 291, &[0xa1, 0xa2, 0xa3][..]),
            extent(data, false, None, 512, &[0xb1]),
            extent(index, true, Some(Version::new(1, 1)), 0, &[0xc1, 0xc2]),
            extent(data, false, None, 513, &long),
        ]
    );
}

#[test]
fn an_extent_that_is_cut_or_leaves_its_chunk_ends_the_walk() {
    let whole = drawn();
    let (ends, chunk_bytes) = ([0, 8, 12, 18, 29], 4096);
    let read =
        |bytes: &[u8], chunk_bytes| extents(Version::new(1, 3), bytes, chunk_bytes).any(|extent| extent.is_err());
    for cut in 0..=whole.len() {
        assert_eq!(read(&whole[..cut], chunk_bytes), !ends.contains(&cut), "cut at {cut}");
    }
    // The first extent ends at byte 294.
    assert!(read(&whole[..8], 293));
    assert!(!read(&whole[..8], 294));
    // A number above the largest; an offset or a length whose sum has more than 32 bits.
    let far = [0xff, 0xff, 0xff, 0xff, 0x0f];
    assert!(
        read(&[0x24, 0x80, 0x80, 0x80, 2, 0, 1], chunk_bytes),
        "an impossible stripe was accepted"
    );
    assert!(read(&[&[0x24, 5], &far[..], &[1]].concat(), chunk_bytes));
    assert!(read(&[&[0x04, 5], &far[..], &far[..], &[1]].concat(), chunk_bytes));
    // What an extent leaves out must have been said by one of its kind before it.
    for head in [0x2c, 0x34, 0x3c, 0x2d] {
        assert!(read(&[&[head], &[0u8; 20][..]].concat(), chunk_bytes), "{head:x}");
    }
    assert!(
        read(&[0x24, 5, 0, 1, 0x3d, 1], chunk_bytes),
        "an index page follows no data chunk"
    );
    assert!(!read(&[0x24, 5, 0, 1, 0x3c, 1], chunk_bytes));
    assert!(
        read(&[0x24, 5, 0, 1, 0x34, 6, 1], chunk_bytes),
        "another chunk has another offset"
    );
}

#[test]
fn any_extents_come_back_and_need_no_more_bytes_than_their_limit() {
    let mut prng = paritas_base::Prng::new(7);
    for _ in 0..2_000 {
        let version = Version::new(1 + prng.below(3) as u32 * 400_000, 1 + prng.below(Version::SEQ_MAX));
        let mut delta = Delta::new(version, Vec::new());
        let mut given = Vec::new();
        for _ in 0..1 + prng.below(8) {
            let number = prng.below(3) as u32 * 2_000_000;
            let stripe = [Stripe::data(number), Stripe::index_page(number)][prng.below(2) as usize];
            let base = [
                None,
                Some(Version::ZERO),
                Some(Version::new(1, 1 + prng.below(1 << 30))),
                Some(Version(version.0 - 1)),
                Some(Version(prng.next_u64())),
            ][prng.below(5) as usize]
                .filter(|base| *base != version);
            let offset = prng.below(65_000) as usize;
            let length_max = *prng.pick(&[7, 500]);
            let length = 1 + prng.below(length_max) as usize;
            let (free, before) = (prng.below(5) == 0, delta.bytes().len());
            delta
                .extent(stripe, free, base, offset, length)
                .fill(prng.below(256) as u8);
            assert!(delta.bytes().len() - before <= length + EXTENT_HEAD_BYTES_MAX);
            given.push((stripe, free, base, offset, length));
        }
        let read: Vec<_> = extents(version, delta.bytes(), 1 << 16)
            .map(Result::unwrap)
            .map(|e| (e.stripe, e.free, e.base, e.offset, e.xor.len()))
            .collect();
        assert_eq!(read, given);
    }
}
