//! Row-diagonal parity (Corbett et al., FAST'04), which MemEC measures beside Reed-Solomon: two parity chunks, computed
//! with XOR only. It exists for comparison; clusters use [`crate::Code`].
//!
//! With a prime `p`, each chunk is divided into `p - 1` blocks. The chunks are the columns of an array: data at `0..k`,
//! then columns of zeros, then the row parity at `p - 1`. The XOR of every row is zero. Block `i` of column `j` is on
//! diagonal `(i + j) mod p`. The other parity has the XOR of each diagonal except the last one, `p - 1`, which is not
//! stored.

use crate::kernel::xor;
use core::fmt;
use core::ops::Range;

/// A code of `k` data chunks and the two parities.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rdp {
    data: usize,
    prime: usize,
}

/// Why parameters are refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RdpError {
    /// `p` is not a prime above the number of data chunks, or there are no data chunks.
    Prime,
    /// A chunk's length is not a multiple of `p - 1`, or the lengths differ.
    Length,
    /// The number of chunks is not the number of positions.
    Chunks,
    /// More than two positions are lost, one is given twice, or one does not exist.
    Lost,
}

impl fmt::Display for RdpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prime => "a prime above the number of data chunks is needed",
            Self::Length => "all chunks need the same length, a multiple of the prime minus one",
            Self::Chunks => "one chunk for each data position and two parities are needed",
            Self::Lost => "at most two positions can be lost",
        })
    }
}

impl core::error::Error for RdpError {}

impl Rdp {
    /// A code for `data` chunks. Chunk lengths must be multiples of `prime - 1`; 17 suits powers of two.
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

    /// Computes both parities from all data, overwriting them.
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

    /// Updates the parities for a change of data chunk `column`: `delta` is old XOR new, from `offset` on.
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
            // The row parity changes by the same bytes, and is itself on a diagonal.
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

    /// Computes the chunks at up to two positions from all others. The order is data, row parity, diagonal parity.
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

    /// The column of the array for a position in memory.
    fn column(&self, position: usize) -> usize {
        if position == self.data {
            self.prime - 1
        } else {
            position
        }
    }

    /// Adds a column to the diagonals. Its blocks are on consecutive diagonals in two runs, before and after the one
    /// that is not stored.
    fn add_diagonals(&self, column: usize, chunk: &[u8], diagonal: &mut [u8], block: usize) {
        let upper = (self.prime - 1 - column) * block;
        xor(&chunk[..upper], &mut diagonal[column * block..]);
        if column > 1 {
            let lower = &chunk[upper + block..];
            xor(lower, &mut diagonal[..lower.len()]);
        }
    }

    /// Computes one column as the XOR of all others.
    fn decode_by_rows(&self, chunks: &mut [&mut [u8]], lost: usize) {
        let (before, rest) = chunks.split_at_mut(lost);
        let Some((target, after)) = rest.split_first_mut() else {
            return;
        };
        target.fill(0);
        // All columns of the array, which exclude the diagonal parity.
        let after = &after[..self.data - lost];
        for chunk in before.iter().chain(after) {
            xor(chunk, target);
        }
    }

    /// Computes two columns. First the sums of the present blocks give the sum of the lost blocks of each row and each
    /// diagonal. Then rows and diagonals are solved in turn, beginning with the diagonal that one lost column does not
    /// meet.
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
            // A chain ends at the diagonal that is not stored, or at the row that does not exist.
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

    /// Random bytes from a seed.
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
        // p = 5: diagonal 0 is D0[0], D1[4], which does not exist, D2[3], D3[2] and block 1 of the row parity.
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
                panic!("not two parities")
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
