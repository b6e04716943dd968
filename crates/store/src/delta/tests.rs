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
    assert_eq!(delta.bytes(), drawn());
    let read: Vec<Extent<'_>> = extents(delta.bytes(), 4096).map(Result::unwrap).collect();
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
        ]
    );
}

#[test]
fn an_extent_that_is_cut_or_leaves_its_chunk_ends_the_walk() {
    let whole = drawn();
    let (ends, chunk_bytes) = ([0, 19, 28, 46], 4096);
    for cut in 0..=whole.len() {
        let bad = extents(&whole[..cut], chunk_bytes).any(|extent| extent.is_err());
        assert_eq!(bad, !ends.contains(&cut), "cut at {cut}");
    }
    // The first extent ends at byte 294.
    assert!(extents(&whole, 293).next().unwrap().is_err());
    assert!(extents(&whole, 294).next().unwrap().is_ok());
    let mut invalid = whole.clone();
    invalid[2] = 0xff;
    assert!(
        extents(&invalid, chunk_bytes).next().unwrap().is_err(),
        "a stripe id with unknown flags was accepted"
    );
}
