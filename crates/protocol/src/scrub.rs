//! How fast a node looks for wrong bytes in its memory (P9.2), and what it found. One role after the other: an
//! owner compares its chunks with their sums, a parity member its chunks with the data.

use crate::parameters::Parameters;
use paritas_base::{ListId, Position, Span, Time};

/// What may be caught up after a pause.
const BURST: Span = Span::from_ms(20);

/// What a role has done when it was asked to check one more chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// One chunk.
    Checked,
    /// One is being checked, and others are asked: look again when something comes, and then.
    Waits(Time),
    /// Nothing: its last chunk has been checked, or it is not a time for it.
    Ended,
}

/// What a scrub has counted, in chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScrubCounts {
    /// Checked.
    pub checked: u64,
    /// Found with wrong bytes.
    pub bad: u64,
    /// Found with wrong bytes, and replaced.
    pub repaired: u64,
    /// Times that every chunk was checked.
    pub passes: u64,
}

/// The scrub of one node.
#[derive(Debug)]
pub(crate) struct Scrub {
    /// The position whose turn it is.
    pub(crate) turn: (ListId, Position),
    /// One more chunk may be checked then.
    pub(crate) next_at: Time,
    /// A role waits for others' chunks.
    pub(crate) waits: bool,
    /// Chunks checked.
    pub(crate) checked: u64,
    /// Chunks whose bytes were wrong.
    pub(crate) bad: u64,
    /// Those of them that have been replaced.
    pub(crate) repaired: u64,
    /// Some chunk could not be checked in this pass.
    pub(crate) partial: bool,
    /// Times that all chunks were gone through, and each was checked.
    pub(crate) passes: u64,
    /// Chunks that the disk has lost are to be made again, whatever the rate.
    pub(crate) repairs: bool,
}

impl Default for Scrub {
    fn default() -> Self {
        Self {
            turn: Self::START,
            next_at: Time(0),
            waits: false,
            checked: 0,
            bad: 0,
            repaired: 0,
            partial: false,
            passes: 0,
            repairs: false,
        }
    }
}

impl Scrub {
    /// Where a pass begins.
    pub(crate) const START: (ListId, Position) = (ListId(0), Position(0));

    /// What it has counted.
    pub(crate) fn counts(&self) -> ScrubCounts {
        ScrubCounts {
            checked: self.checked,
            bad: self.bad,
            repaired: self.repaired,
            passes: self.passes,
        }
    }

    /// One more chunk was checked.
    pub(crate) fn spend(&mut self, parameters: &Parameters, now: Time, chunk_bytes: usize) {
        self.checked += 1;
        let rate = parameters.scrub_rate.unwrap_or(u64::MAX);
        let earliest = Time(now.0.saturating_sub(BURST.0));
        self.next_at = self.next_at.max(earliest) + Span(chunk_bytes as u64 * 1_000_000_000 / rate.max(1));
    }
}
