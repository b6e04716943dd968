//! The pieces that a value is put together from.

use core::ops::Range;

/// Bytes of a value.
#[derive(Clone, Debug)]
pub enum Piece<'v> {
    /// Bytes that the caller gives.
    Bytes(&'v [u8]),
    /// A range of the body of another value, that with this record.
    Body(&'v [u8], Range<u64>),
    /// This number of zeros.
    Zeros(u64),
}

impl Piece<'_> {
    /// Number of bytes.
    pub fn length(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Body(_, range) => range.end - range.start,
            Self::Zeros(count) => *count,
        }
    }
}

/// Zeros of a piece are written in runs of this length.
pub(super) static ZEROS: [u8; 4096] = [0; 4096];

/// The piece that has the byte `at` of a value, and the offset in it.
pub(super) fn piece_at<'p, 'v>(pieces: &'p [Piece<'v>], at: u64) -> Option<(&'p Piece<'v>, u64)> {
    let mut from = 0;
    for piece in pieces {
        let to = from + piece.length();
        if at < to {
            return Some((piece, at - from));
        }
        from = to;
    }
    None
}
