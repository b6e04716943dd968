//! Reads input bytes as choices. At the end of the input every choice is the first one, so that a script ends without
//! an error.

use arbitrary::Unstructured;

/// The rest of a script.
#[derive(Debug)]
pub(crate) struct Script<'a>(Unstructured<'a>);

impl<'a> Script<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(Unstructured::new(bytes))
    }

    /// Whether nothing is left.
    pub(crate) fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// A number below `count`.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        self.0.int_in_range(0..=count.max(1) - 1).unwrap_or(0)
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.below(2) == 1
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.0.arbitrary().unwrap_or(0)
    }

    /// Any number.
    pub(crate) fn u64(&mut self) -> u64 {
        self.0.arbitrary().unwrap_or(0)
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// An interesting number: near the right one, at a limit, or any.
    pub(crate) fn number(&mut self, right: u64) -> u64 {
        match self.below(12) {
            0..=4 => right,
            5 => right.wrapping_add(1),
            6 => right.wrapping_sub(1),
            7 => 0,
            8 => right.wrapping_add(u64::from(self.byte())),
            9 => u64::MAX - u64::from(self.byte()),
            10 => 1 << self.below(64),
            _ => self.u64(),
        }
    }

    /// At most `bytes_max` bytes.
    pub(crate) fn bytes(&mut self, bytes_max: usize) -> &'a [u8] {
        let wanted = self.below(bytes_max + 1).min(self.0.len());
        self.0.bytes(wanted).unwrap_or_default()
    }

    /// The next piece: its length in two bytes, followed by its bytes. Used for bodies of messages.
    pub(crate) fn piece(&mut self) -> &'a [u8] {
        let length = usize::from(u16::from_le_bytes([self.byte(), self.byte()])).min(self.0.len());
        self.0.bytes(length).unwrap_or_default()
    }
}

/// Appends a piece for [`Script::piece`] to read.
pub(crate) fn push_piece(to: &mut Vec<u8>, piece: &[u8]) {
    to.extend_from_slice(&(piece.len() as u16).to_le_bytes());
    to.extend_from_slice(piece);
}

/// Random scripts, as seeds where no known sample is useful.
pub(crate) fn random(count: u64, bytes: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|seed| {
            let mut prng = paritas_base::Prng::new(seed);
            (0..bytes).map(|_| prng.next_u64() as u8).collect()
        })
        .collect()
}
