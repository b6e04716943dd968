//! Decoding: computes any positions of a stripe from any `k` others.
//!
//! Only the parity equations that replace missing data are solved: with `e` data positions missing, an `e×e` matrix is
//! inverted, and each wanted position becomes one row over the `k` chunks used. If one is missing and parity 0 is
//! present, that row is all ones.

use crate::Code;
use crate::DATA_MAX;
use crate::field::{inverse, mul};
use crate::kernel::{ROWS_MAX, combine, mul_add};
use core::fmt;

/// Number of missing data positions up to which decoding allocates no memory.
const SMALL: usize = 8;

/// Number of data positions up to which decoding uses small tables: clearing large ones takes longer than decoding 4
/// KiB.
const K_SMALL: usize = 16;
const K_MAX: usize = DATA_MAX as usize;

/// Why a stripe cannot be decoded as requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecodeError {
    /// There are fewer chunks than the scheme has data positions.
    TooFew {
        /// Chunks given.
        present: usize,
        /// Chunks needed.
        needed: usize,
    },
    /// The scheme does not have this position.
    NoSuchPosition {
        /// The position.
        position: u8,
    },
    /// A position was given more than once.
    Repeated {
        /// The position.
        position: u8,
    },
    /// Chunks and outputs do not all have the same length.
    Lengths,
    /// The number of outputs is not the number of wanted positions.
    Outputs {
        /// Number of positions wanted.
        wanted: usize,
        /// Number of outputs given.
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

/// The chunks used for decoding, for up to `N` data positions: data, and parity in place of missing data.
struct Sources<'a, const N: usize> {
    /// Entry `i < k`: data chunk `i`, or the parity chunk used in its place.
    chunks: [&'a [u8]; N],
    /// The missing data positions. The first `missing_count` entries are valid.
    missing: [u8; N],
    /// For each missing position, the index of the parity used in its place.
    stand_ins: [u8; N],
    missing_count: usize,
}

impl<const N: usize> Sources<'_, N> {
    fn none() -> Self {
        Self {
            chunks: [&[][..]; N],
            missing: [0; N],
            stand_ins: [0; N],
            missing_count: 0,
        }
    }
}

impl Code {
    /// Computes the chunks (or equal ranges of them) of the `wanted` positions into `out`, in that order. `present` has
    /// any `k` or more of the stripe's positions with their bytes, in any order. Of more than `k`, data is preferred,
    /// then the first parities. A wanted position that is present is copied.
    ///
    /// On an error nothing is written.
    pub fn decode(&self, present: &[(u8, &[u8])], wanted: &[u8], out: &mut [&mut [u8]]) -> Result<(), DecodeError> {
        if wanted.len() != out.len() {
            return Err(DecodeError::Outputs {
                wanted: wanted.len(),
                outputs: out.len(),
            });
        }
        if let Some(&position) = wanted.iter().find(|&&p| p >= self.scheme().width()) {
            return Err(DecodeError::NoSuchPosition { position });
        }
        if usize::from(self.scheme().data()) <= K_SMALL {
            self.decode_by::<K_SMALL>(present, wanted, out)
        } else {
            self.decode_by::<K_MAX>(present, wanted, out)
        }
    }

    fn decode_by<const N: usize>(
        &self,
        present: &[(u8, &[u8])],
        wanted: &[u8],
        out: &mut [&mut [u8]],
    ) -> Result<(), DecodeError> {
        let k = usize::from(self.scheme().data());
        let mut sources = Sources::<N>::none();
        self.choose(present, &mut sources)?;
        let len = sources.chunks[0].len();
        if present.iter().any(|(_, s)| s.len() != len) || out.iter().any(|o| o.len() != len) {
            return Err(DecodeError::Lengths);
        }
        let (mut small, mut large) = ([0u8; 2 * SMALL * SMALL], Vec::new());
        let system = self.solve(&sources, &mut small, &mut large);
        let mut rows = [[0u8; N]; ROWS_MAX];
        let rows = rows.as_flattened_mut();
        for (wanted, out) in wanted.chunks(ROWS_MAX).zip(out.chunks_mut(ROWS_MAX)) {
            let rows = &mut rows[..wanted.len() * k];
            for (row, &position) in rows.chunks_exact_mut(k).zip(wanted) {
                self.decode_row(position, &sources, system, row);
            }
            combine(rows, &sources.chunks[..k], out);
        }
        Ok(())
    }

    /// The weights of all positions in the sum that gives data or parity position `wanted`. They are 0 for positions
    /// that are not among `sources`, which must be at least `k`. The choice of sources is that of [`Code::decode`];
    /// this is for sources that arrive one by one.
    pub fn weights(&self, sources: &[u8], wanted: u8) -> Result<Vec<u8>, DecodeError> {
        if wanted >= self.scheme().width() {
            return Err(DecodeError::NoSuchPosition { position: wanted });
        }
        if usize::from(self.scheme().data()) <= K_SMALL {
            self.weights_by::<K_SMALL>(sources, wanted)
        } else {
            self.weights_by::<K_MAX>(sources, wanted)
        }
    }

    fn weights_by<const N: usize>(&self, positions: &[u8], wanted: u8) -> Result<Vec<u8>, DecodeError> {
        let k = self.scheme().data();
        let mut sources = Sources::<N>::none();
        let present: Vec<(u8, &[u8])> = positions.iter().map(|position| (*position, &[][..])).collect();
        self.choose(&present, &mut sources)?;
        let (mut small, mut large) = ([0u8; 2 * SMALL * SMALL], Vec::new());
        let system = self.solve(&sources, &mut small, &mut large);
        let mut weights = vec![0; usize::from(self.scheme().width())];
        let (row, of_parities) = weights.split_at_mut(usize::from(k));
        self.decode_row(wanted, &sources, system, row);
        let missing = &sources.missing[..sources.missing_count];
        for (&data, &parity) in missing.iter().zip(&sources.stand_ins) {
            of_parities[usize::from(parity)] = core::mem::take(&mut row[usize::from(data)]);
        }
        Ok(weights)
    }

    /// Inverts the matrix of the parities used over the missing data. The inverse is in the right half of each row.
    fn solve<'s, const N: usize>(
        &self,
        sources: &Sources<'_, N>,
        small: &'s mut [u8; 2 * SMALL * SMALL],
        large: &'s mut Vec<u8>,
    ) -> &'s mut [u8] {
        let e = sources.missing_count;
        let system = if e <= SMALL {
            &mut small[..2 * e * e]
        } else {
            large.resize(2 * e * e, 0);
            large.as_mut_slice()
        };
        for (t, &parity) in sources.stand_ins[..e].iter().enumerate() {
            let row = &mut system[2 * e * t..][..2 * e];
            for (c, &data) in row.iter_mut().zip(&sources.missing[..e]) {
                *c = self.row(parity)[usize::from(data)];
            }
            row[e + t] = 1;
        }
        invert(system, e);
        system
    }

    /// Fills `sources`, which must be empty.
    #[inline(always)]
    fn choose<'a, const N: usize>(
        &self,
        present: &[(u8, &'a [u8])],
        sources: &mut Sources<'a, N>,
    ) -> Result<(), DecodeError> {
        let (k, width) = (self.scheme().data(), self.scheme().width());
        // One bit for each position.
        let mut seen = [0u64; 4];
        let bit = |position: u8| (usize::from(position / 64), 1u64 << (position % 64));
        for &(position, chunk) in present {
            if position >= width {
                return Err(DecodeError::NoSuchPosition { position });
            }
            let (word, mask) = bit(position);
            if seen[word] & mask != 0 {
                return Err(DecodeError::Repeated { position });
            }
            seen[word] |= mask;
            if position < k {
                sources.chunks[usize::from(position)] = chunk;
            }
        }
        let too_few = DecodeError::TooFew {
            present: present.len(),
            needed: usize::from(k),
        };
        if present.len() < usize::from(k) {
            return Err(too_few);
        }
        let is_seen = |position: u8| {
            let (word, mask) = bit(position);
            seen[word] & mask != 0
        };
        let mut parities = (k..width).filter(|&p| is_seen(p));
        for i in (0..k).filter(|&i| !is_seen(i)) {
            // At least `k` distinct positions are present, so there is a parity for each missing data position.
            let position = parities.next().ok_or(too_few)?;
            let (_, chunk) = present.iter().find(|(p, _)| *p == position).ok_or(too_few)?;
            sources.chunks[usize::from(i)] = chunk;
            sources.missing[sources.missing_count] = i;
            sources.stand_ins[sources.missing_count] = position - k;
            sources.missing_count += 1;
        }
        Ok(())
    }

    /// The coefficients over the `k` chunks used that give the wanted position.
    ///
    /// Missing data is `inverse × (parities used − what present data contributes to them)`. A parity is its own row
    /// over present and missing data. Both reduce to weights on the parities used. `system` has the inverse on its
    /// right.
    fn decode_row<const N: usize>(&self, position: u8, sources: &Sources<'_, N>, system: &[u8], row: &mut [u8]) {
        let k = self.scheme().data();
        let e = sources.missing_count;
        let (missing, stand_ins) = (&sources.missing[..e], &sources.stand_ins[..e]);
        let inverse_row = |u: usize| &system[2 * e * u + e..][..e];
        let mut weights = [0u8; N];
        let weights = &mut weights[..e];
        if position >= k {
            let parity = self.row(position - k);
            row.copy_from_slice(parity);
            for (u, &data) in missing.iter().enumerate() {
                add_row(parity[usize::from(data)], inverse_row(u), weights);
            }
        } else {
            row.fill(0);
            match missing.iter().position(|&data| data == position) {
                Some(u) => weights.copy_from_slice(inverse_row(u)),
                None => row[usize::from(position)] = 1,
            }
        }
        for (&w, &stand_in) in weights.iter().zip(stand_ins) {
            add_row(w, self.row(stand_in), row);
        }
        for (&w, &data) in weights.iter().zip(missing) {
            row[usize::from(data)] = w;
        }
    }
}

/// Gauss–Jordan elimination over `e` rows of `2e`: the matrix beside the identity, which becomes the inverse. All
/// square submatrices of a scaled Cauchy matrix are regular, so no pivot is ever zero and no rows are exchanged.
fn invert(rows: &mut [u8], e: usize) {
    let width = 2 * e;
    for pivot in 0..e {
        let (above, rest) = rows.split_at_mut(pivot * width);
        let (row, below) = rest.split_at_mut(width);
        assert_ne!(row[pivot], 0, "a square submatrix of the code's matrix is singular");
        let scale = inverse(row[pivot]);
        if scale != 1 {
            row.iter_mut().for_each(|c| *c = mul(*c, scale));
        }
        for other in above.chunks_exact_mut(width).chain(below.chunks_exact_mut(width)) {
            add_row(other[pivot], row, other);
        }
    }
}

/// [`mul_add`] for rows of coefficients. Usual rows have a few bytes that are read one by one soon afterwards; a load
/// from the middle of a vector store would have to wait for the store.
#[inline(always)]
fn add_row(coefficient: u8, source: &[u8], target: &mut [u8]) {
    if target.len() > K_SMALL {
        return mul_add(coefficient, source, target);
    }
    for (t, &s) in target.iter_mut().zip(source) {
        *t ^= mul(coefficient, s);
    }
}
