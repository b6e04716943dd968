//! What is known of one absent chunk while it is read back.

use super::at_once::AtOnce;
use paritas_base::{Position, Time, Version};

#[derive(Debug)]
pub(super) struct Task {
    pub(super) id: u64,
    /// Parity and sources are asked at the same time; then nothing below is used but `retry_at`.
    pub(super) at_once: Option<AtOnce>,
    /// Only the donor is asked so far.
    pub(super) of_donor: bool,
    pub(super) parities: Vec<ParityCopy>,
    /// Members that were asked for their parity, and how many of them could not give it.
    pub(super) asked: Vec<Position>,
    pub(super) refused: usize,
    /// Per data position: what its owner answered, and to which wish.
    pub(super) chunks: Vec<Option<Answer>>,
    pub(super) mismatches: u32,
    pub(super) retry_at: Time,
    /// More parities than the configuration suggests are needed: everybody is asked from now on.
    pub(super) ask_all: bool,
    /// A chunk decoded from these sources did not have its sum: one of them is wrong (P5.9).
    pub(super) suspect: bool,
}

impl Task {
    /// A task before anyone is asked.
    pub(super) fn new(id: u64, retry_at: Time) -> Self {
        Self {
            id,
            at_once: None,
            of_donor: false,
            parities: Vec::new(),
            asked: Vec::new(),
            refused: 0,
            chunks: Vec::new(),
            mismatches: 0,
            retry_at,
            ask_all: false,
            suspect: false,
        }
    }
}

#[derive(Debug)]
pub(super) struct ParityCopy {
    pub(super) position: Position,
    pub(super) versions: Vec<Version>,
    pub(super) sum: u32,
    pub(super) bytes: Vec<u8>,
}

#[derive(Debug)]
pub(super) enum Answer {
    /// It was asked for this version, and has not answered.
    Asked(Version),
    /// It cannot give it.
    None,
    Here(Vec<u8>),
}
