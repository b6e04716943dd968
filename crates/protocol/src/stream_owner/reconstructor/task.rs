//! The state of one absent chunk's reconstruction.

use super::at_once::AtOnce;
use paritas_base::{Position, Time, Version};

#[derive(Debug)]
pub(super) struct Task {
    pub(super) id: u64,
    /// The chunk is requested in one round trip. Of the fields below only `retry_at` is used then.
    pub(super) at_once: Option<AtOnce>,
    /// Only the donor is asked so far.
    pub(super) of_donor: bool,
    pub(super) parities: Vec<ParityCopy>,
    /// Members that were asked for their parity, and how many of them could not give it.
    pub(super) asked: Vec<Position>,
    pub(super) refused: usize,
    /// For each data position, the answer of its owner.
    pub(super) chunks: Vec<Option<Answer>>,
    pub(super) mismatches: u32,
    pub(super) retry_at: Time,
    /// More parities are needed than the configuration says, so all members are asked from now on.
    pub(super) ask_all: bool,
    /// A chunk decoded from these sources did not have its sum: one of them is wrong (P5.9).
    pub(super) suspect: bool,
}

impl Task {
    /// A task before any request.
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
    /// The owner was asked for this version and has not answered.
    Asked(Version),
    /// The owner cannot give the chunk.
    None,
    Here(Vec<u8>),
}
