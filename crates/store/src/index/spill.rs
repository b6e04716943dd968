//! Spill pages: entries for which their own page had no free slot (docs/formats/index.md, "Spill pages").
//!
//! ```text
//! n × { u16 tag, u16 home line, u32 locator, u32 page }   then zeros
//! ```

/// Bytes of an entry.
pub(crate) const ENTRY_BYTES: usize = 12;

/// One spilled entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Spilled {
    pub page: u32,
    pub line: u32,
    pub tag: u16,
    pub locator: u32,
}

impl Spilled {
    /// Its bytes in the page.
    pub(crate) fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..2].copy_from_slice(&self.tag.to_le_bytes());
        bytes[2..4].copy_from_slice(&(self.line as u16).to_le_bytes());
        bytes[4..8].copy_from_slice(&self.locator.to_le_bytes());
        bytes[8..].copy_from_slice(&self.page.to_le_bytes());
        bytes
    }
}

/// The entries of a spill page.
pub(crate) fn entries(page: &[u8]) -> impl Iterator<Item = Spilled> + '_ {
    page.as_chunks::<ENTRY_BYTES>()
        .0
        .iter()
        .map(|e| Spilled {
            tag: u16::from_le_bytes([e[0], e[1]]),
            line: u32::from(u16::from_le_bytes([e[2], e[3]])),
            locator: u32::from_le_bytes([e[4], e[5], e[6], e[7]]),
            page: u32::from_le_bytes([e[8], e[9], e[10], e[11]]),
        })
        .take_while(|e| e.tag != 0)
}

/// Number of entries that fit in a page.
pub(crate) fn capacity(chunk_bytes: usize) -> usize {
    chunk_bytes / ENTRY_BYTES
}
