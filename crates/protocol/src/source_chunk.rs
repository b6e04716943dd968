//! A data chunk in an answer of another node.

use paritas_base::Version;
use paritas_code::sum;

/// A chunk's bytes in a frame, with their version and sums.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceChunk<'a> {
    pub(crate) version: Version,
    /// The sum that the owner keeps.
    pub(crate) sum: u32,
    /// The sum of the bytes, if the check of the frame's CRC has computed it.
    pub(crate) found: Option<u32>,
    /// Empty: all zeros.
    pub(crate) bytes: &'a [u8],
}

impl SourceChunk<'_> {
    /// Whether the bytes have the sum that the owner keeps (P9.1). If not, the owner's memory is wrong.
    pub(crate) fn has_its_sum(&self) -> bool {
        self.found.unwrap_or_else(|| sum::of(self.bytes)) == self.sum
    }
}
