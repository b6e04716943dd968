//! One stripe that is being fetched: the received chunks, and the deltas on the stripe since the fetch began.

use super::substitute::Substitute;
use crate::context::Context;
use crate::interface::Out;
use paritas_base::configuration::Configuration;
use paritas_base::{Position, Term, Time, Version};

#[derive(Debug)]
pub(super) struct Fetch {
    pub(super) id: u64,
    pub(super) replies: Vec<Option<Chunk>>,
    /// The parity of the received chunks; empty until one that is not all zeros was received.
    pub(super) parity: Vec<u8>,
    pub(super) buffer: Vec<Buffered>,
    pub(super) buffered_bytes: usize,
    pub(super) retry_at: Time,
    pub(super) asked_again: bool,
    /// The parity of a log node that replaces one of the chunks, if any.
    pub(super) substitute: Option<Substitute>,
}

#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) version: Version,
    pub(super) sum: u32,
    pub(super) as_of: u64,
    pub(super) term: Term,
}

#[derive(Debug)]
pub(super) struct Buffered {
    pub(super) x: Position,
    pub(super) version: Version,
    pub(super) free: bool,
    pub(super) base: Option<Version>,
    pub(super) offset: usize,
    pub(super) xor: Vec<u8>,
}

impl Fetch {
    pub(super) fn new<O: Out>(cx: &mut Context<'_, O>, configuration: &Configuration) -> Self {
        Self {
            retry_at: cx.after(cx.shared.parameters.resend),
            id: cx.next_request_id(),
            replies: configuration.data_positions().map(|_| None).collect(),
            parity: Vec::new(),
            buffer: Vec::new(),
            buffered_bytes: 0,
            asked_again: false,
            substitute: None,
        }
    }

    /// Whether the buffered deltas take more bytes than four chunks. It is then better to begin the fetch again.
    pub(super) fn is_overfull(&self, chunk_bytes: usize) -> bool {
        self.buffered_bytes > 4 * chunk_bytes
    }
}
