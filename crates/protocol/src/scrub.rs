//! The rate at which a node checks its memory for wrong bytes (P9.2), and counts of the result. Roles are checked one
//! after the other. An owner compares its chunks with their sums; a parity member compares its chunks with the data.
//! Then the parts of large values at the position are compared with their sums (P14.12).

use crate::parameters::Parameters;
use paritas_base::{ListId, Position, Span, Time};

/// After a pause, at most this much time is caught up.
const BURST: Span = Span::from_ms(20);

/// The result of asking a role to check one more chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// It has checked one chunk.
    Checked,
    /// It is checking a chunk, and waits for answers of others. It is asked again when one arrives, and at this time.
    Waits(Time),
    /// It has no chunk to check: all are checked, or its state does not allow a check.
    Ended,
}

/// Counts of a scrub.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScrubCounts {
    /// Chunks checked.
    pub checked: u64,
    /// Chunks found with wrong bytes.
    pub bad: u64,
    /// Chunks found with wrong bytes and replaced.
    pub repaired: u64,
    /// Passes in which every chunk was checked.
    pub passes: u64,
}

/// The scrub of one node.
#[derive(Debug)]
pub(crate) struct Scrub {
    /// The position that is checked now.
    pub(crate) turn: (ListId, Position),
    /// Its chunks have been checked, and its parts of large values are checked now.
    pub(crate) of_parts: bool,
    /// When the next chunk may be checked.
    pub(crate) next_at: Time,
    /// A role waits for chunks of other nodes.
    pub(crate) waits: bool,
    /// Chunks checked.
    pub(crate) checked: u64,
    /// Chunks found with wrong bytes.
    pub(crate) bad: u64,
    /// Chunks found with wrong bytes and replaced.
    pub(crate) repaired: u64,
    /// This pass has left out a chunk that could not be checked.
    pub(crate) partial: bool,
    /// Passes in which every chunk was checked.
    pub(crate) passes: u64,
    /// Chunks that the disk has lost must be made again, also if the scrub is off.
    pub(crate) repairs: bool,
}

impl Default for Scrub {
    fn default() -> Self {
        Self {
            turn: Self::START,
            of_parts: false,
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

    /// Its counts.
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
