use super::*;
use crate::field;
use paritas_base::Prng;

fn bytes(prng: &mut Prng, len: usize) -> Vec<u8> {
    (0..len).map(|_| prng.next_u64() as u8).collect()
}

/// Computed byte by byte, from the definition.
fn plain(coefficient: u8, source: &[u8], target: &[u8]) -> Vec<u8> {
    source
        .iter()
        .zip(target)
        .map(|(&s, &t)| t ^ field::mul(coefficient, s))
        .collect()
}

#[test]
fn mul_add_equals_the_definition_at_every_length_and_coefficient() {
    let mut prng = Prng::new(11);
    let (source, target) = (bytes(&mut prng, 400), bytes(&mut prng, 400));
    for level in available() {
        for coefficient in 0..=255u8 {
            for len in 0..=300 {
                // Odd alignments. All 64 of them occur over the lengths and coefficients.
                let (from, to) = (prng.below(64) as usize, prng.below(64) as usize);
                let mut out = target.clone();
                mul_add_at(level, coefficient, &source[from..from + len], &mut out[to..to + len]);
                let expected = plain(coefficient, &source[from..from + len], &target[to..to + len]);
                assert_eq!(
                    out[to..to + len],
                    expected,
                    "{level:?}, {coefficient}, {len} bytes, from {from} to {to}"
                );
                assert_eq!(out[..to], target[..to], "{level:?}: wrote before the target");
                assert_eq!(out[to + len..], target[to + len..], "{level:?}: wrote after the target");
            }
        }
    }
}

#[test]
fn mul_add_equals_the_definition_at_lengths_of_chunks() {
    let mut prng = Prng::new(12);
    let (source, target) = (bytes(&mut prng, 70_000), bytes(&mut prng, 70_000));
    for level in available() {
        for _ in 0..200 {
            let coefficient = prng.next_u64() as u8;
            let len = prng.below(66_000) as usize;
            let (from, to) = (prng.below(4000) as usize, prng.below(4000) as usize);
            let mut out = target.clone();
            mul_add_at(level, coefficient, &source[from..from + len], &mut out[to..to + len]);
            let expected = plain(coefficient, &source[from..from + len], &target[to..to + len]);
            assert!(
                out[to..to + len] == expected,
                "{level:?}, {coefficient}, {len} bytes, from {from} to {to}"
            );
            assert!(
                out[..to] == target[..to] && out[to + len..] == target[to + len..],
                "{level:?}: wrote outside"
            );
        }
    }
}

#[test]
fn combine_equals_the_definition() {
    let mut prng = Prng::new(13);
    let pool = bytes(&mut prng, 20_000);
    let lengths = (0..=300).chain([511, 512, 1000, 4096, 4097, 10_000]);
    for (len, level) in lengths.flat_map(|len| available().into_iter().map(move |level| (len, level))) {
        for row_count in 1..=ROWS_MAX {
            let k = prng.between(1, 9) as usize;
            let from: Vec<usize> = (0..k).map(|_| prng.below(9000) as usize).collect();
            let sources: Vec<&[u8]> = from.iter().map(|&at| &pool[at..at + len]).collect();
            let mut rows = bytes(&mut prng, row_count * k);
            // Half of the time the matrix of an encode, whose ones are handled separately.
            if prng.below(2) == 0 {
                rows[..k].fill(1);
                rows.iter_mut().step_by(k).for_each(|c| *c = 1);
            }
            // One output buffer with gaps, so that writes outside a target are detected.
            let stride = len + 67;
            let at = prng.below(60) as usize;
            let mut out = vec![0xa5u8; row_count * stride];
            let mut targets: Vec<&mut [u8]> = out
                .chunks_exact_mut(stride)
                .map(|piece| &mut piece[at..at + len])
                .collect();
            combine_at(level, &rows, &sources, &mut targets);
            for (row, piece) in rows.chunks_exact(k).zip(out.chunks_exact(stride)) {
                let expected = row
                    .iter()
                    .zip(&sources)
                    .fold(vec![0; len], |sum, (&c, source)| plain(c, source, &sum));
                assert!(
                    piece[at..at + len] == expected,
                    "{level:?}, {row_count} rows, k = {k}, {len} bytes"
                );
                assert!(
                    piece[..at].iter().chain(&piece[at + len..]).all(|&b| b == 0xa5),
                    "{level:?}: wrote outside"
                );
            }
        }
    }
}

#[test]
#[should_panic(expected = "differ in length")]
fn unequal_lengths_are_refused() {
    mul_add(3, &[1, 2, 3], &mut [0; 4]);
}
