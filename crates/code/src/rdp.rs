//! Row-diagonal parity (Corbett et al., FAST'04), the code that MemEC is measured with beside Reed-Solomon: two parity
//! chunks, and nothing but XOR. It is there to be compared; clusters use [`crate::Code`].
//!
//! With a prime `p`, chunks are cut into `p - 1` blocks, and stand side by side as the columns of an array: data at
//! `0..k`, then columns of zeros, the row parity at `p - 1`. Every row's XOR is zero. Block `i` of column `j` lies on
//! diagonal `(i + j) mod p`; the other parity has the XOR of each diagonal but the last, `p - 1`, which is not kept.

use crate::kernel::xor;
use core::fmt;
use core::ops::Range;

/// A code of `k` data chunks and the two parities.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rdp {
    data: usize,
    prime: usize,
}

/// What cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RdpError {
    /// `p` is not a prime above the number of data chunks, which is at least one.
    Prime,
    /// A chunk's length is no multiple of `p - 1`, or they differ.
    Length,
    /// Not one chunk for each position.
    Chunks,
    /// More than two are lost, one twice, or one that there is not.
    Lost,
}

impl fmt::Display for RdpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prime => "a prime above the number of data chunks is needed",
            Self::Length => "chunks of one length are needed, a multiple of the prime less one",
            Self::Chunks => "one chunk for each data position and two parities are needed",
            Self::Lost => "at most two positions can be lost",
        })
    }
}

impl core::error::Error for RdpError {}

impl Rdp {
    /// Chunk lengths must be multiples of `prime - 1`: 17 suits powers of two.
    pub fn new(data: u8, prime: u8) -> Result<Self, RdpError> {
        let is_prime = prime > 2 && (2..prime).all(|n| !prime.is_multiple_of(n));
        match is_prime && (1..prime).contains(&data) {
            true => Ok(Self {
                data: data.into(),
                prime: prime.into(),
            }),
            false => Err(RdpError::Prime),
        }
    }

    /// Both parities from all data, overwriting what is there.
    pub fn encode(&self, data: &[&[u8]], row: &mut [u8], diagonal: &mut [u8]) -> Result<(), RdpError> {
        if data.len() != self.data {
            return Err(RdpError::Chunks);
        }
        let block = self.block(row.len())?;
        if diagonal.len() != row.len() || data.iter().any(|chunk| chunk.len() != row.len()) {
            return Err(RdpError::Length);
        }
        row.copy_from_slice(data[0]);
        diagonal.fill(0);
        for chunk in &data[1..] {
            xor(chunk, row);
        }
        for (column, chunk) in data.iter().enumerate() {
            self.add_diagonals(column, chunk, diagonal, block);
        }
        self.add_diagonals(self.prime - 1, row, diagonal, block);
        Ok(())
    }

    /// Data chunk `column` has changed by `delta` from `offset` on, old XOR new: so do the parities.
    pub fn update(
        &self,
        column: usize,
        offset: usize,
        delta: &[u8],
        row: &mut [u8],
        diagonal: &mut [u8],
    ) -> Result<(), RdpError> {
        let block = self.block(row.len())?;
        if diagonal.len() != row.len() || offset + delta.len() > row.len() {
            return Err(RdpError::Length);
        }
        if column >= self.data {
            return Err(RdpError::Chunks);
        }
        xor(delta, &mut row[offset..offset + delta.len()]);
        let mut at = offset;
        while at < offset + delta.len() {
            let (i, within) = (at / block, at % block);
            let end = (offset + delta.len()).min((i + 1) * block);
            let piece = &delta[at - offset..end - offset];
            // The row parity has changed by the same, and lies on a diagonal too.
            for column in [column, self.prime - 1] {
                let d = (i + column) % self.prime;
                if d < self.prime - 1 {
                    xor(piece, &mut diagonal[d * block + within..][..piece.len()]);
                }
            }
            at = end;
        }
        Ok(())
    }

    /// Makes the chunks at up to two positions again from all others: data, then the row parity, then the diagonal one.
    pub fn decode(&self, chunks: &mut [&mut [u8]], lost: &[usize]) -> Result<(), RdpError> {
        if chunks.len() != self.data + 2 {
            return Err(RdpError::Chunks);
        }
        let len = chunks[0].len();
        let block = self.block(len)?;
        if chunks.iter().any(|chunk| chunk.len() != len) {
            return Err(RdpError::Length);
        }
        let (row, diagonal) = (self.data, self.data + 1);
        let known = lost.iter().all(|position| *position <= diagonal);
        if !known || lost.len() > 2 || (lost.len() == 2 && lost[0] == lost[1]) {
            return Err(RdpError::Lost);
        }
        let mut columns: Vec<usize> = lost.iter().copied().filter(|position| *position <= row).collect();
        columns.sort_unstable();
        match columns[..] {
            [] => {}
            [one] => self.decode_by_rows(chunks, one),
            [a, b, ..] => self.decode_two(chunks, a, b, block),
        }
        if lost.contains(&diagonal) {
            let (columns, last) = chunks.split_at_mut(diagonal);
            last[0].fill(0);
            for (position, chunk) in columns.iter().enumerate() {
                self.add_diagonals(self.column(position), chunk, last[0], block);
            }
        }
        Ok(())
    }

    fn block(&self, len: usize) -> Result<usize, RdpError> {
        let rows = self.prime - 1;
        match len.is_multiple_of(rows) {
            true => Ok(len / rows),
            false => Err(RdpError::Length),
        }
    }

    /// Of a position in memory, its column of the array.
    fn column(&self, position: usize) -> usize {
        if position == self.data {
            self.prime - 1
        } else {
            position
        }
    }

    /// A column's blocks meet the diagonals in two runs, around the one that is not kept.
    fn add_diagonals(&self, column: usize, chunk: &[u8], diagonal: &mut [u8], block: usize) {
        let upper = (self.prime - 1 - column) * block;
        xor(&chunk[..upper], &mut diagonal[column * block..]);
        if column > 1 {
            let lower = &chunk[upper + block..];
            xor(lower, &mut diagonal[..lower.len()]);
        }
    }

    /// One column: the XOR of all others.
    fn decode_by_rows(&self, chunks: &mut [&mut [u8]], lost: usize) {
        let (before, rest) = chunks.split_at_mut(lost);
        let Some((target, after)) = rest.split_first_mut() else {
            return;
        };
        target.fill(0);
        // All columns of the array, so not the diagonal parity.
        let after = &after[..self.data - lost];
        for chunk in before.iter().chain(after) {
            xor(chunk, target);
        }
    }

    /// Two columns: the sums of what is there are what the lost blocks of each row and each diagonal add up to; then
    /// from the diagonal that misses one column on, by rows and diagonals in turn.
    fn decode_two(&self, chunks: &mut [&mut [u8]], a: usize, b: usize, block: usize) {
        let p = self.prime;
        let len = chunks[0].len();
        let mut rows = vec![0; len];
        let mut diagonals = chunks[self.data + 1].to_vec();
        for position in (0..=self.data).filter(|position| *position != a && *position != b) {
            xor(chunks[position], &mut rows);
            self.add_diagonals(self.column(position), chunks[position], &mut diagonals, block);
        }
        let at = |i: usize| -> Range<usize> { i * block..(i + 1) * block };
        for (first, second) in [(a, b), (b, a)] {
            let (misses, meets) = (self.column(first), self.column(second));
            let mut d = (misses + p - 1) % p;
            // The diagonal that is not kept ends a chain, and the row that there is not.
            while d < p - 1 {
                let i = (d + p - meets) % p;
                if i == p - 1 {
                    break;
                }
                chunks[second][at(i)].copy_from_slice(&diagonals[at(d)]);
                let found = chunks[second][at(i)].to_vec();
                let other = &mut chunks[first][at(i)];
                other.copy_from_slice(&rows[at(i)]);
                xor(&found, other);
                let next = (i + misses) % p;
                if next < p - 1 {
                    xor(&chunks[first][at(i)], &mut diagonals[at(next)]);
                }
                d = next;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that differ from one another.
    fn bytes(seed: u64, count: usize) -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        (0..count)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 32) as u8
            })
            .collect()
    }

    fn stripe(rdp: &Rdp, len: usize) -> Vec<Vec<u8>> {
        let mut all: Vec<Vec<u8>> = (0..rdp.data as u64).map(|n| bytes(n + 1, len)).collect();
        let (mut row, mut diagonal) = (vec![1; len], vec![2; len]);
        let data: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
        rdp.encode(&data, &mut row, &mut diagonal).unwrap();
        all.extend([row, diagonal]);
        all
    }

    fn decoded(rdp: &Rdp, stripe: &[Vec<u8>], lost: &[usize]) -> Vec<Vec<u8>> {
        let mut chunks = stripe.to_vec();
        for position in lost {
            chunks[*position] = bytes(99, stripe[0].len());
        }
        let mut slices: Vec<&mut [u8]> = chunks.iter_mut().map(Vec::as_mut_slice).collect();
        rdp.decode(&mut slices, lost).unwrap();
        chunks
    }

    #[test]
    fn any_two_losses_are_made_good() {
        for (data, prime) in [
            (1, 3),
            (2, 3),
            (3, 5),
            (4, 5),
            (5, 7),
            (6, 7),
            (8, 11),
            (8, 17),
            (10, 11),
            (16, 17),
        ] {
            let rdp = Rdp::new(data, prime).unwrap();
            let stripe = stripe(&rdp, (usize::from(prime) - 1) * 6);
            for a in 0..stripe.len() {
                assert_eq!(decoded(&rdp, &stripe, &[a]), stripe, "({data}, {prime}): {a}");
                for b in (0..stripe.len()).filter(|b| *b != a) {
                    assert_eq!(
                        decoded(&rdp, &stripe, &[a, b]),
                        stripe,
                        "({data}, {prime}): {a} and {b}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_example_of_the_paper_has_its_sums() {
        // p = 5: diagonal 0 is D0[0], D1[4] which there is not, D2[3], D3[2] and the row parity's block 1.
        let rdp = Rdp::new(4, 5).unwrap();
        let all = stripe(&rdp, 4);
        let sums = (0..4).map(|i| all[..4].iter().fold(0, |sum, column| sum ^ column[i]));
        assert_eq!(all[4], sums.collect::<Vec<u8>>());
        assert_eq!(all[5][0], all[0][0] ^ all[2][3] ^ all[3][2] ^ all[4][1]);
        assert_eq!(all[5][3], all[0][3] ^ all[1][2] ^ all[2][1] ^ all[3][0]);
    }

    #[test]
    fn updates_are_what_encoding_anew_gives() {
        let rdp = Rdp::new(8, 17).unwrap();
        let mut stripe = stripe(&rdp, 16 * 10);
        for (column, offset, count) in [(0, 0, 160), (7, 13, 5), (3, 8, 64), (5, 159, 1), (1, 40, 0)] {
            let delta = bytes(column as u64 + 50, count);
            xor(&delta, &mut stripe[column][offset..offset + count]);
            let (data, parity) = stripe.split_at_mut(8);
            let [row, diagonal] = parity else {
                panic!("two parities")
            };
            rdp.update(column, offset, &delta, row, diagonal).unwrap();
            let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            let mut anew = [vec![0; 160], vec![0; 160]];
            let [first, second] = &mut anew;
            rdp.encode(&data, first, second).unwrap();
            assert_eq!(&anew, parity, "{column} {offset} {count}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert_eq!(Rdp::new(8, 15), Err(RdpError::Prime));
        assert_eq!(Rdp::new(11, 11), Err(RdpError::Prime));
        assert_eq!(Rdp::new(0, 5), Err(RdpError::Prime));
        let rdp = Rdp::new(2, 3).unwrap();
        let (mut row, mut diagonal) = ([0; 3], [0; 3]);
        assert_eq!(
            rdp.encode(&[&[0; 3], &[0; 3]], &mut row, &mut diagonal),
            Err(RdpError::Length)
        );
        assert_eq!(rdp.encode(&[&[0; 4]], &mut row, &mut diagonal), Err(RdpError::Chunks));
        let mut chunks = [[0_u8; 4]; 4];
        let mut slices: Vec<&mut [u8]> = chunks.iter_mut().map(|chunk| &mut chunk[..]).collect();
        assert_eq!(rdp.decode(&mut slices, &[0, 1, 2]), Err(RdpError::Lost));
        assert_eq!(rdp.decode(&mut slices, &[1, 1]), Err(RdpError::Lost));
        assert_eq!(rdp.decode(&mut slices, &[4]), Err(RdpError::Lost));
    }
}
