//! Properties of a code: any `k` positions give the rest, however they are given, and wrong arguments are refused.

mod support;

use paritas_base::Prng;
use paritas_code::{DecodeError, mul_add};
use support::{bytes, code, slices, slices_mut, stripe};

/// Decodes every position from the present ones and compares the result.
fn check(code: &paritas_code::Code, stripe: &[Vec<u8>], present: &[u8], name: &str) {
    let given: Vec<(u8, &[u8])> = present
        .iter()
        .map(|&p| (p, stripe[usize::from(p)].as_slice()))
        .collect();
    let wanted: Vec<u8> = (0..code.scheme().width()).collect();
    let mut out = vec![vec![0x77; stripe[0].len()]; wanted.len()];
    code.decode(&given, &wanted, &mut slices_mut(&mut out))
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(out == stripe, "{name}: wrong bytes from {present:?}");
}

#[test]
fn first_row_and_column_are_ones_and_schemes_agree() {
    let widest = code(128, 127);
    for (k, m) in [(1, 4), (4, 2), (8, 3), (128, 127), (64, 64)] {
        let code = code(k, m);
        for i in 0..k {
            for j in 0..m {
                let c = code.coefficient(i, j);
                assert_ne!(c, 0);
                assert!((i > 0 && j > 0) || c == 1, "coefficient({i}, {j}) = {c}");
                assert_eq!(
                    c,
                    widest.coefficient(i, j),
                    "{k}+{m} differs from 128+127 at ({i}, {j})"
                );
            }
        }
    }
}

#[test]
fn any_k_positions_give_the_rest_exhaustively() {
    let mut prng = Prng::new(31);
    let mut subsets = 0;
    for n in 1..=10u8 {
        for k in 1..=n {
            let code = code(k, n - k);
            let stripe = stripe(&code, &mut prng, 24);
            for chosen in (0u32..1 << n).filter(|chosen| chosen.count_ones() == u32::from(k)) {
                let present: Vec<u8> = (0..n).filter(|p| chosen >> p & 1 == 1).collect();
                check(&code, &stripe, &present, &format!("{k}+{}", n - k));
                subsets += 1;
            }
        }
    }
    assert_eq!(
        subsets,
        (1..=10).map(|n| (1 << n) - 1).sum::<u32>(),
        "not every subset was tested once"
    );
}

#[test]
fn any_k_positions_give_the_rest_sampled() {
    let seed = 32;
    let mut prng = Prng::new(seed);
    for (k, m, rounds) in [
        (128, 4, 150),
        (128, 127, 4),
        (64, 64, 10),
        (17, 3, 200),
        (100, 2, 50),
        (12, 12, 200),
    ] {
        let code = code(k, m);
        let stripe = stripe(&code, &mut prng, 40);
        for _ in 0..rounds {
            let mut positions: Vec<u8> = (0..k + m).collect();
            for i in (1..positions.len()).rev() {
                positions.swap(i, prng.below(i as u64 + 1) as usize);
            }
            // Sometimes more than `k`, and always in random order.
            let spare = prng.below(u64::from(m) + 1).min(prng.below(3)) as usize;
            check(
                &code,
                &stripe,
                &positions[..usize::from(k) + spare],
                &format!("{k}+{m}, seed {seed}"),
            );
        }
        // The worst case: as much parity as possible in place of data.
        let first = m.min(k);
        check(
            &code,
            &stripe,
            &(first..k + first).collect::<Vec<_>>(),
            &format!("{k}+{m}, all parity"),
        );
    }
}

#[test]
fn lengths_of_chunks_and_of_ranges() {
    let seed = 33;
    let mut prng = Prng::new(seed);
    for len in [0, 1, 63, 64, 65, 255, 257, 4096, 16_384, 65_537] {
        for (k, m) in [(4, 2), (8, 2), (3, 6)] {
            let code = code(k, m);
            let stripe = stripe(&code, &mut prng, len);
            let lost = [prng.below(u64::from(k + m)) as u8, prng.below(u64::from(k + m)) as u8];
            let present: Vec<u8> = (0..k + m).filter(|p| !lost.contains(p)).collect();
            check(&code, &stripe, &present, &format!("{k}+{m}, {len} bytes, seed {seed}"));
        }
    }
}

#[test]
fn sources_one_by_one_in_any_order_equal_encode() {
    let mut prng = Prng::new(34);
    for (k, m) in [(4, 2), (1, 3), (9, 5), (6, 0)] {
        for len in [1, 100, 4096, 4097, 16_384] {
            let code = code(k, m);
            let stripe = stripe(&code, &mut prng, len);
            let (data, expected) = stripe.split_at(usize::from(k));
            let mut parity = vec![vec![0; len]; usize::from(m)];
            for i in (0..k).rev() {
                code.encode_from(i, &data[usize::from(i)], &mut slices_mut(&mut parity));
            }
            assert!(parity == expected, "{k}+{m}, {len} bytes");
        }
    }
}

#[test]
fn a_chunk_is_the_weighted_sum_of_any_k_others() {
    let seed = 36;
    let mut prng = Prng::new(seed);
    for (k, m) in [(4, 2), (1, 3), (9, 5), (6, 3), (40, 3), (20, 12)] {
        let code = code(k, m);
        let stripe = stripe(&code, &mut prng, 300);
        for _ in 0..60 {
            let mut sources: Vec<u8> = (0..k + m).collect();
            let wanted = sources.swap_remove(prng.below(u64::from(k + m)) as usize);
            while sources.len() > usize::from(k) {
                sources.swap_remove(prng.below(sources.len() as u64) as usize);
            }
            let weights = code.weights(&sources, wanted).unwrap();
            let mut found = vec![0; 300];
            for &source in &sources {
                let weight = weights[usize::from(source)];
                assert_ne!(
                    weight, 0,
                    "{k}+{m}, {wanted} of {sources:?}: each source must have a weight"
                );
                mul_add(weight, &stripe[usize::from(source)], &mut found);
            }
            assert!(
                found == stripe[usize::from(wanted)],
                "{k}+{m}, {wanted} of {sources:?}, seed {seed}"
            );
            let others = weights.iter().filter(|weight| **weight != 0).count();
            assert_eq!(others, usize::from(k), "a position that is not a source has a weight");
        }
        let error = code.weights(&[0], k + m).unwrap_err();
        assert_eq!(error, DecodeError::NoSuchPosition { position: k + m });
        let few: Vec<u8> = (1..k).collect();
        assert!(matches!(code.weights(&few, 0), Err(DecodeError::TooFew { .. })));
    }
}

#[test]
fn deltas_keep_the_parity_equation() {
    let seed = 35;
    let mut prng = Prng::new(seed);
    let (code, len) = (code(4, 2), 4096);
    let mut stripe = stripe(&code, &mut prng, len);
    for _ in 0..300 {
        let at = prng.below(len as u64) as usize;
        let delta_len = prng.below((len - at) as u64 + 1).min(300) as usize;
        let delta = bytes(&mut prng, delta_len);
        let i = prng.below(4) as u8;
        let range = at..at + delta.len();
        mul_add(1, &delta, &mut stripe[usize::from(i)][range.clone()]);
        for j in 0..2 {
            mul_add(
                code.coefficient(i, j),
                &delta,
                &mut stripe[4 + usize::from(j)][range.clone()],
            );
        }
    }
    let mut parity = vec![vec![0; len]; 2];
    code.encode(&slices(&stripe[..4]), &mut slices_mut(&mut parity));
    assert!(parity == stripe[4..], "seed {seed}");
}

#[test]
fn one_data_position_is_replication() {
    let mut prng = Prng::new(36);
    let stripe = stripe(&code(1, 2), &mut prng, 100);
    assert!(stripe.iter().all(|chunk| *chunk == stripe[0]));
}

#[test]
fn wrong_asking_is_refused_by_name() {
    let mut prng = Prng::new(37);
    let code = code(4, 2);
    let stripe = stripe(&code, &mut prng, 8);
    let ask = |present: &[(u8, &[u8])], wanted: &[u8], lens: &[usize]| {
        let mut out: Vec<Vec<u8>> = lens.iter().map(|&len| vec![9; len]).collect();
        let answer = code.decode(present, wanted, &mut slices_mut(&mut out));
        assert!(
            answer.is_ok() || out.iter().flatten().all(|&b| b == 9),
            "output was written although decoding failed"
        );
        answer
    };
    let at = |p: u8| (p, stripe[usize::from(p)].as_slice());
    assert_eq!(ask(&[at(0), at(1), at(2), at(5)], &[3], &[8]), Ok(()));
    assert_eq!(
        ask(&[at(0), at(1), at(2)], &[3], &[8]),
        Err(DecodeError::TooFew { present: 3, needed: 4 })
    );
    assert_eq!(ask(&[], &[3], &[8]), Err(DecodeError::TooFew { present: 0, needed: 4 }));
    let twice = [at(0), at(1), at(1), at(2)];
    assert_eq!(ask(&twice, &[3], &[8]), Err(DecodeError::Repeated { position: 1 }));
    let outside = [at(0), at(1), at(2), (6, &stripe[0][..])];
    assert_eq!(
        ask(&outside, &[3], &[8]),
        Err(DecodeError::NoSuchPosition { position: 6 })
    );
    let whole = [at(0), at(1), at(2), at(4)];
    assert_eq!(
        ask(&whole, &[255], &[8]),
        Err(DecodeError::NoSuchPosition { position: 255 })
    );
    assert_eq!(ask(&whole, &[3], &[7]), Err(DecodeError::Lengths));
    assert_eq!(
        ask(&[at(0), at(1), at(2), (4, &[1, 2])], &[3], &[8]),
        Err(DecodeError::Lengths)
    );
    assert_eq!(
        ask(&whole, &[3, 5], &[8]),
        Err(DecodeError::Outputs { wanted: 2, outputs: 1 })
    );
    assert_eq!(ask(&whole, &[], &[]), Ok(()));
}
