//! The byte ranges of a parity chunk that a delta changes, and the folding of deltas of one stripe (LogECMem §2.1,
//! Property 2).

use crate::record::EXTENT_BYTES;
use paritas_code::mul_add;

/// Two parts with at most this many zeros between them are merged: the zeros take no more bytes in a record than the
/// header of another part. So no record is longer than that of a whole chunk.
const NEAR_BYTES: usize = EXTENT_BYTES;

/// Byte ranges to XOR into a chunk, in the order of their offsets. No two overlap or are nearer than `NEAR_BYTES`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Extents {
    parts: Vec<(usize, Vec<u8>)>,
}

impl Extents {
    /// One extent that covers a whole chunk.
    pub fn whole(bytes: Vec<u8>) -> Self {
        Self {
            parts: vec![(0, bytes)],
        }
    }

    /// Adds one extent. Extents that overlap or are near are merged.
    pub fn fold(&mut self, offset: usize, xor: &[u8]) {
        self.fold_times(1, offset, xor);
    }

    /// As `fold`, with the bytes multiplied by a coefficient.
    pub fn fold_times(&mut self, coefficient: u8, offset: usize, xor: &[u8]) {
        if xor.is_empty() {
            return;
        }
        let end = offset + xor.len();
        // The parts that overlap or are near. The parts are in order, so these are consecutive.
        let first = self
            .parts
            .partition_point(|(at, bytes)| at + bytes.len() + NEAR_BYTES < offset);
        let behind = self.parts.partition_point(|(at, _)| *at <= end + NEAR_BYTES);
        if let Some((at, bytes)) = self.parts.get_mut(first).filter(|_| behind == first + 1)
            && *at <= offset
            && end <= *at + bytes.len()
        {
            let from = offset - *at;
            if let Some(bytes) = bytes.get_mut(from..from + xor.len()) {
                mul_add(coefficient, xor, bytes);
            }
            return;
        }
        let mut product = vec![0; xor.len()];
        mul_add(coefficient, xor, &mut product);
        let mut joined = (offset, product);
        for (at, bytes) in self.parts.drain(first..behind) {
            joined = union(joined, (at, bytes));
        }
        self.parts.insert(first, joined);
    }

    /// Adds all extents of another value.
    pub fn fold_all(&mut self, other: &Self) {
        for (offset, bytes) in &other.parts {
            self.fold(*offset, bytes);
        }
    }

    /// XORs all extents into a chunk. If one lies outside it, returns false and leaves the chunk unchanged.
    pub fn apply(&self, chunk: &mut [u8]) -> bool {
        if self.end() > chunk.len() {
            return false;
        }
        for (offset, bytes) in &self.parts {
            if let Some(part) = chunk.get_mut(*offset..offset + bytes.len()) {
                paritas_code::xor(bytes, part);
            }
        }
        true
    }

    /// The parts, as offset and bytes.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (usize, &[u8])> {
        self.parts.iter().map(|(offset, bytes)| (*offset, bytes.as_slice()))
    }

    /// The offset after the last byte.
    pub fn end(&self) -> usize {
        self.parts.last().map_or(0, |(offset, bytes)| offset + bytes.len())
    }

    /// Number of bytes in all parts.
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(|(_, bytes)| bytes.len()).sum()
    }
}

/// The union of two parts, with zeros in the gap between them.
fn union(a: (usize, Vec<u8>), b: (usize, Vec<u8>)) -> (usize, Vec<u8>) {
    let (mut first, second) = if a.0 <= b.0 { (a, b) } else { (b, a) };
    let from = second.0 - first.0;
    let end = (from + second.1.len()).max(first.1.len());
    first.1.resize(end, 0);
    if let Some(part) = first.1.get_mut(from..from + second.1.len()) {
        paritas_code::xor(&second.1, part);
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use paritas_base::Prng;

    #[test]
    fn folded_deltas_do_what_they_do_one_by_one() {
        for seed in 0..200 {
            let mut random = Prng::new(seed);
            let (mut one_by_one, mut folded) = (vec![0; 200], Extents::default());
            for _ in 0..random.below(12) {
                let offset = random.below(200) as usize;
                let length = random.below(200 - offset as u64 + 1) as usize;
                let xor: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
                paritas_code::xor(&xor, &mut one_by_one[offset..offset + length]);
                folded.fold(offset, &xor);
            }
            let mut chunk = vec![0; 200];
            assert!(folded.apply(&mut chunk));
            assert_eq!(chunk, one_by_one, "seed {seed}");
            let parts: Vec<(usize, usize)> = folded.iter().map(|(at, bytes)| (at, at + bytes.len())).collect();
            assert!(
                parts.windows(2).all(|pair| pair[0].1 + NEAR_BYTES < pair[1].0),
                "seed {seed}: {parts:?}"
            );
        }
    }

    #[test]
    fn what_lies_outside_changes_nothing() {
        let mut extents = Extents::default();
        extents.fold(0, &[1]);
        extents.fold(8, &[2, 3]);
        let mut chunk = [7; 9];
        assert!(!extents.apply(&mut chunk));
        assert_eq!(chunk, [7; 9]);
    }
}
