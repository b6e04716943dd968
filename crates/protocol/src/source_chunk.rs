//! A data chunk as another node gave it.

use paritas_base::Version;
use paritas_code::sum;

/// Bytes in a frame, and what their owner says of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceChunk<'a> {
    pub(crate) version: Version,
    /// The sum that the owner keeps.
    pub(crate) sum: u32,
    /// The one that the frame's CRC tells.
    pub(crate) found: Option<u32>,
    /// Empty: all zeros.
    pub(crate) bytes: &'a [u8],
}

impl SourceChunk<'_> {
    /// Whether the owner's memory is right (P9.1).
    pub(crate) fn has_its_sum(&self) -> bool {
        self.found.unwrap_or_else(|| sum::of(self.bytes)) == self.sum
    }
}
