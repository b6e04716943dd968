//! `Code`: the matrix of a scheme, and encoding with it.
//!
//! The coefficients of data position `i` in parity position `j` form a Cauchy matrix `1 / (x_j + y_i)` with `x_j = 255
//! ^ j` and `y_i = i`. Its columns and rows are scaled so that row 0 and column 0 are ones:
//!
//! `c(i, j) = f(i)·f(j) / (f(i ^ j)·f(0))` with `f(t) = 255 ^ t`.
//!
//! Every square submatrix of a Cauchy matrix is regular, and scaling preserves this. So any `k` positions give back the
//! rest (MDS). Parity 0 is the XOR of the data, and with one data position every parity is a copy. A coefficient does
//! not depend on the scheme, so all schemes agree on the positions that they share.

use crate::field::{inverse, mul};
use crate::kernel::{ROWS_MAX, combine, mul_add};
use crate::{DATA_MAX, Scheme};

/// Bytes of each chunk that are coded before the next ones, where the sources are read more than once. The tile is then
/// still in the first-level cache when it is read again.
const TILE_BYTES: usize = 4096;

/// Encodes and decodes stripes of one scheme.
#[derive(Clone, Debug)]
pub struct Code {
    scheme: Scheme,
    /// The coefficients, row by row: those of parity `j` are at `j·k .. (j+1)·k`.
    matrix: Box<[u8]>,
}

/// The coefficient given in the module's description. Positions that a [`Scheme`] allows never have `i ^ j = 255`.
fn scaled_cauchy(i: u8, j: u8) -> u8 {
    let f = |t: u8| 255 ^ t;
    mul(mul(f(i), f(j)), inverse(mul(f(i ^ j), f(0))))
}

impl Code {
    /// The code of a scheme.
    pub fn new(scheme: Scheme) -> Self {
        let matrix = (0..scheme.parity())
            .flat_map(|j| (0..scheme.data()).map(move |i| scaled_cauchy(i, j)))
            .collect();
        Self { scheme, matrix }
    }

    /// The scheme.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The coefficient of data position `data_index` in parity position `k + parity_index`. It is 1 if either index is
    /// 0.
    ///
    /// # Panics
    /// If the scheme has no such position.
    #[inline]
    pub fn coefficient(&self, data_index: u8, parity_index: u8) -> u8 {
        assert!(data_index < self.scheme.data(), "the scheme has no such data position");
        self.row(parity_index)[usize::from(data_index)]
    }

    /// All coefficients of a parity position.
    #[inline]
    pub(crate) fn row(&self, parity_index: u8) -> &[u8] {
        let k = usize::from(self.scheme.data());
        &self.matrix[usize::from(parity_index) * k..][..k]
    }

    /// Computes all parity chunks (or ranges) from all data chunks, overwriting the parity.
    ///
    /// # Panics
    /// If the counts are not the scheme's, or the lengths are not all equal.
    pub fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        assert_eq!(
            data.len(),
            usize::from(self.scheme.data()),
            "there must be one slice for each data position"
        );
        assert_eq!(
            parity.len(),
            usize::from(self.scheme.parity()),
            "there must be one slice for each parity position"
        );
        combine_all(&self.matrix, data, parity);
    }

    /// Adds one data chunk (or range) to all parity chunks. Starting with zeros, adding all sources in any order gives
    /// the result of [`Code::encode`].
    ///
    /// # Panics
    /// If there is no such data position, the parity count is not the scheme's, or the lengths are not all equal.
    pub fn encode_from(&self, data_index: u8, source: &[u8], parity: &mut [&mut [u8]]) {
        assert_eq!(
            parity.len(),
            usize::from(self.scheme.parity()),
            "there must be one slice for each parity position"
        );
        for (start, piece) in (0..).step_by(TILE_BYTES).zip(source.chunks(TILE_BYTES)) {
            for (j, target) in (0..self.scheme.parity()).zip(&mut *parity) {
                assert_eq!(target.len(), source.len(), "source and parity differ in length");
                mul_add(
                    self.coefficient(data_index, j),
                    piece,
                    &mut target[start..start + piece.len()],
                );
            }
        }
    }
}

/// `targets = rows × sources` for any number of rows.
fn combine_all(rows: &[u8], sources: &[&[u8]], targets: &mut [&mut [u8]]) {
    let k = sources.len();
    if targets.len() <= ROWS_MAX {
        return combine(rows, sources, targets);
    }
    let len = targets[0].len();
    assert!(
        sources.iter().all(|s| s.len() == len),
        "sources and targets differ in length"
    );
    assert!(targets.iter().all(|t| t.len() == len), "targets differ in length");
    // The sources of one tile share the cache.
    let tile = (8 * TILE_BYTES / k).next_multiple_of(256);
    let mut part: [&[u8]; DATA_MAX as usize] = [&[]; DATA_MAX as usize];
    let part = &mut part[..k];
    for start in (0..len).step_by(tile) {
        let range = start..len.min(start + tile);
        for (p, s) in part.iter_mut().zip(sources) {
            *p = &s[range.clone()];
        }
        for (rows, group) in rows.chunks(ROWS_MAX * k).zip(targets.chunks_mut(ROWS_MAX)) {
            let mut empty = [&mut [][..], &mut [], &mut [], &mut []];
            let group_part = &mut empty[..group.len()];
            for (p, t) in group_part.iter_mut().zip(group) {
                *p = &mut t[range.clone()];
            }
            combine(rows, part, group_part);
        }
    }
}
