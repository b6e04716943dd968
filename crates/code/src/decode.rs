//! Decoding: any positions of a stripe from any `k` others.
//!
//! Only the parity equations that stand in for missing data are solved: with `e` data positions missing, an `e×e`
//! matrix is inverted, and each wanted position becomes one row over the `k` chunks that are there. With one missing
//! and parity 0 there, that row is all ones.

use crate::Code;
use crate::field::{inverse, mul};
use crate::kernel::{ROWS_MAX, combine};
use crate::{DATA_MAX, WIDTH_MAX};
use core::fmt;

/// Missing data positions up to which decoding allocates nothing.
const SMALL: usize = 8;

const K_MAX: usize = DATA_MAX as usize;

/// Why a stripe cannot be decoded as asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecodeError {
    /// Fewer chunks than the scheme has data positions.
    TooFew {
        /// Chunks given.
        present: usize,
        /// Chunks needed.
        needed: usize,
    },
    /// A position that the scheme does not have.
    NoSuchPosition {
        /// As given.
        position: u8,
    },
    /// A position given more than once.
    Repeated {
        /// As given.
        position: u8,
    },
    /// Chunks or outputs that are not all of one length.
    Lengths,
    /// Not one output for each wanted position.
    Outputs {
        /// Positions wanted.
        wanted: usize,
        /// Outputs given.
        outputs: usize,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFew { present, needed } => {
                write!(f, "{present} chunks of a stripe that needs {needed}")
            }
            Self::NoSuchPosition { position } => write!(f, "the scheme has no position {position}"),
            Self::Repeated { position } => write!(f, "position {position} is given twice"),
            Self::Lengths => write!(f, "the chunks differ in length"),
            Self::Outputs { wanted, outputs } => {
                write!(f, "{outputs} outputs for {wanted} wanted positions")
            }
        }
    }
}

impl core::error::Error for DecodeError {}

/// What is there and what takes the place of what is not.
struct Sources<'a> {
    /// Slot `i < k`: data chunk `i`, or the parity chunk that stands in for it.
    chunks: [&'a [u8]; K_MAX],
    /// The missing data positions; the first `missing_count` count.
    missing: [u8; K_MAX],
    /// The parity that stands in for each, by parity index.
    stand_ins: [u8; K_MAX],
    missing_count: usize,
}

impl Code {
    /// Computes the chunks (or equal ranges of them) of the `wanted` positions into `out`, in that order, from
    /// `present`: any `k` or more of the stripe's positions with their bytes, in any order. More than `k` are welcome:
    /// data is preferred, then the first parities. Wanting what is present copies it.
    ///
    /// On an error nothing is written.
    pub fn decode(
        &self,
        present: &[(u8, &[u8])],
        wanted: &[u8],
        out: &mut [&mut [u8]],
    ) -> Result<(), DecodeError> {
        let k = usize::from(self.scheme().data());
        if wanted.len() != out.len() {
            return Err(DecodeError::Outputs {
                wanted: wanted.len(),
                outputs: out.len(),
            });
        }
        if let Some(&position) = wanted.iter().find(|&&p| p >= self.scheme().width()) {
            return Err(DecodeError::NoSuchPosition { position });
        }
        let sources = self.choose(present)?;
        let len = sources.chunks[0].len();
        if present.iter().any(|(_, s)| s.len() != len) || out.iter().any(|o| o.len() != len) {
            return Err(DecodeError::Lengths);
        }
        let e = sources.missing_count;
        // Two squares: the matrix, which inverting uses up, and its inverse.
        let (mut small, mut large);
        let squares: &mut [u8] = if e <= SMALL {
            small = [0u8; 2 * SMALL * SMALL];
            &mut small[..2 * e * e]
        } else {
            large = vec![0u8; 2 * e * e];
            &mut large
        };
        let (matrix, inverted) = squares.split_at_mut(e * e);
        for (t, &parity) in sources.stand_ins[..e].iter().enumerate() {
            for (u, &data) in sources.missing[..e].iter().enumerate() {
                matrix[t * e + u] = self.row(parity)[usize::from(data)];
            }
        }
        invert(matrix, inverted, e);
        let mut rows = [0u8; ROWS_MAX * K_MAX];
        for (wanted, out) in wanted.chunks(ROWS_MAX).zip(out.chunks_mut(ROWS_MAX)) {
            let rows = &mut rows[..wanted.len() * k];
            for (row, &position) in rows.chunks_exact_mut(k).zip(wanted) {
                self.decode_row(position, &sources, inverted, row);
            }
            combine(rows, &sources.chunks[..k], out);
        }
        Ok(())
    }

    fn choose<'a>(&self, present: &[(u8, &'a [u8])]) -> Result<Sources<'a>, DecodeError> {
        let (k, width) = (
            usize::from(self.scheme().data()),
            usize::from(self.scheme().width()),
        );
        let mut at: [Option<&[u8]>; WIDTH_MAX as usize] = [None; WIDTH_MAX as usize];
        // Of the usual schemes only a few entries are looked at; the rest is not worth a pass.
        let at = &mut at[..width];
        for &(position, chunk) in present {
            let slot = at
                .get_mut(usize::from(position))
                .ok_or(DecodeError::NoSuchPosition { position })?;
            if slot.replace(chunk).is_some() {
                return Err(DecodeError::Repeated { position });
            }
        }
        if present.len() < k {
            return Err(DecodeError::TooFew {
                present: present.len(),
                needed: k,
            });
        }
        let mut sources = Sources {
            chunks: [&[]; K_MAX],
            missing: [0; K_MAX],
            stand_ins: [0; K_MAX],
            missing_count: 0,
        };
        let (data, parity) = at.split_at(k);
        let mut parities = (0u8..).zip(parity).filter_map(|(j, c)| Some((j, (*c)?)));
        for (i, chunk) in (0u8..).zip(data) {
            sources.chunks[usize::from(i)] = match chunk {
                Some(chunk) => chunk,
                None => {
                    // At least k distinct positions are present, so each missing data position has its parity.
                    let (j, chunk) = parities.next().ok_or(DecodeError::TooFew {
                        present: present.len(),
                        needed: k,
                    })?;
                    sources.missing[sources.missing_count] = i;
                    sources.stand_ins[sources.missing_count] = j;
                    sources.missing_count += 1;
                    chunk
                }
            };
        }
        Ok(sources)
    }

    /// The coefficients, over the `k` slots, that give the wanted position.
    ///
    /// Missing data is `inverted × (stand-ins − what present data puts into them)`; a parity is its own row over
    /// present and missing data. Both come down to weights on the stand-ins.
    fn decode_row(&self, position: u8, sources: &Sources<'_>, inverted: &[u8], row: &mut [u8]) {
        let k = self.scheme().data();
        let e = sources.missing_count;
        let (missing, stand_ins) = (&sources.missing[..e], &sources.stand_ins[..e]);
        let mut weights = [0u8; K_MAX];
        let weights = &mut weights[..e];
        if position >= k {
            let parity = self.row(position - k);
            row.copy_from_slice(parity);
            for (u, &data) in missing.iter().enumerate() {
                for (w, &x) in weights.iter_mut().zip(&inverted[u * e..][..e]) {
                    *w ^= mul(parity[usize::from(data)], x);
                }
            }
        } else {
            row.fill(0);
            match missing.iter().position(|&data| data == position) {
                Some(u) => weights.copy_from_slice(&inverted[u * e..][..e]),
                None => row[usize::from(position)] = 1,
            }
        }
        for (&w, &stand_in) in weights.iter().zip(stand_ins) {
            for (r, &c) in row.iter_mut().zip(self.row(stand_in)) {
                *r ^= mul(w, c);
            }
        }
        for (&w, &data) in weights.iter().zip(missing) {
            row[usize::from(data)] = w;
        }
    }
}

/// Gauss–Jordan; `matrix` is used up. A square part of a scaled Cauchy matrix is regular and all its square parts are,
/// so no pivot is ever zero and no rows are exchanged.
fn invert(matrix: &mut [u8], inverted: &mut [u8], e: usize) {
    for i in 0..e {
        inverted[i * e + i] = 1;
    }
    for pivot in 0..e {
        let p = matrix[pivot * e + pivot];
        assert_ne!(p, 0, "a square part of the code's matrix is singular");
        let scale = inverse(p);
        for c in 0..e {
            matrix[pivot * e + c] = mul(matrix[pivot * e + c], scale);
            inverted[pivot * e + c] = mul(inverted[pivot * e + c], scale);
        }
        for r in 0..e {
            let factor = matrix[r * e + pivot];
            if r == pivot || factor == 0 {
                continue;
            }
            for c in 0..e {
                matrix[r * e + c] ^= mul(factor, matrix[pivot * e + c]);
                inverted[r * e + c] ^= mul(factor, inverted[pivot * e + c]);
            }
        }
    }
}
