//! Decoding a chunk from sources of which some may be wrong (P9.3).

use paritas_base::Position;
use paritas_code::{Code, sum};

/// The most sets of sources that are tried if some are wrong. Only very wide schemes have more sets.
const SOURCE_SETS_MAX: usize = 64;

/// Decodes a chunk from the first `k` sources. If members did not report its sum, tries other sets of `k` sources
/// (P9.3). Returns the chunk and its sum, never a chunk whose sum was not reported.
pub(super) fn decode_checked(
    code: &Code,
    sources: &[(u8, &[u8])],
    wanted: Position,
    chunk_bytes: usize,
    reported: impl Fn(u32) -> bool,
) -> Option<(Vec<u8>, u32)> {
    let k = usize::from(code.scheme().data());
    let mut set: Vec<usize> = (0..k).collect();
    let mut bytes = vec![0; chunk_bytes];
    for _ in 0..SOURCE_SETS_MAX {
        let chosen: Option<Vec<(u8, &[u8])>> = set.iter().map(|at| sources.get(*at).copied()).collect();
        if code.decode(&chosen?, &[wanted.0], &mut [&mut bytes]).is_ok() {
            let sum = sum::of(&bytes);
            if reported(sum) {
                return Some((bytes, sum));
            }
        }
        if !next_set(&mut set, sources.len()) {
            return None;
        }
    }
    None
}

/// Changes `set` to the next set of the same size of numbers below `end`, in lexicographic order. False after the last.
fn next_set(set: &mut [usize], end: usize) -> bool {
    let size = set.len();
    let movable = |(at, number): &(usize, &usize)| **number + size - at < end;
    let Some(at) = set.iter().enumerate().rfind(movable).map(|(at, _)| at) else {
        return false;
    };
    let first = set[at] + 1;
    for (step, number) in set[at..].iter_mut().enumerate() {
        *number = first + step;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use paritas_code::{Scheme, mul_add};

    #[test]
    fn sets_come_once_each_and_in_order() {
        let mut set = vec![0, 1, 2];
        let mut seen = vec![set.clone()];
        while next_set(&mut set, 5) {
            seen.push(set.clone());
        }
        assert_eq!(seen.len(), 10);
        assert!(seen.is_sorted() && seen.iter().all(|s| s.is_sorted() && s[2] < 5));
    }

    /// A `3+3` stripe; chunk 0 is wanted from the others, of which those named are wrong by one byte each.
    fn wanted_with(wrong: &[usize]) -> Option<bool> {
        let code = Code::new(Scheme::new(3, 3).unwrap());
        let data: Vec<Vec<u8>> = (0..3u8)
            .map(|x| (0..64u8).map(|i| i.wrapping_mul(7) ^ (x * 31)).collect())
            .collect();
        let mut sources: Vec<(u8, Vec<u8>)> = vec![(1, data[1].clone()), (2, data[2].clone())];
        for parity in 0..3 {
            let mut bytes = vec![0; 64];
            for (x, chunk) in data.iter().enumerate() {
                mul_add(code.coefficient(x as u8, parity), chunk, &mut bytes);
            }
            sources.push((3 + parity, bytes));
        }
        for at in wrong {
            sources[*at].1[13 + *at] ^= 0x40;
        }
        let sources: Vec<(u8, &[u8])> = sources.iter().map(|(p, b)| (*p, b.as_slice())).collect();
        let right = sum::of(&data[0]);
        let found = decode_checked(&code, &sources, Position(0), 64, |sum| sum == right);
        found.map(|(bytes, _)| bytes == data[0])
    }

    #[test]
    fn a_chunk_comes_out_right_or_not_at_all_whichever_sources_are_wrong() {
        for wrong in 0..32usize {
            let wrong: Vec<usize> = (0..5).filter(|at| wrong >> at & 1 == 1).collect();
            // Three right sources of five are enough.
            let expected = (wrong.len() <= 2).then_some(true);
            assert_eq!(wanted_with(&wrong), expected, "{wrong:?}");
        }
    }
}
