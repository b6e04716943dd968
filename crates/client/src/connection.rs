//! `Connection`: one connection to a node, and what its next replies answer.

use crate::engine::{LinkId, OpId};
use crate::read::Ask;
use paritas_base::Time;
use paritas_wire::resp::ReplyDecoder;
use std::collections::VecDeque;

/// What a reply answers.
#[derive(Clone, Debug)]
pub(crate) enum Awaited {
    /// AUTH.
    Auth,
    /// A command of an operation, in this attempt.
    Command { op: OpId, attempt: u32 },
    /// Units of a value.
    Units(AskedUnits),
    /// Nobody waits for it.
    Nothing,
}

/// Units that were asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskedUnits {
    pub(crate) op: OpId,
    pub(crate) attempt: u32,
    pub(crate) ask: Ask,
    pub(crate) link: LinkId,
    pub(crate) at: Time,
    /// They are late.
    pub(crate) is_late: bool,
    /// Something else was asked for in their place.
    pub(crate) is_replaced: bool,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) link: LinkId,
    pub(crate) address: String,
    pub(crate) is_up: bool,
    /// Commands that wait until it is up.
    pub(crate) unsent: Vec<u8>,
    pub(crate) awaited: VecDeque<Awaited>,
    pub(crate) input: Vec<u8>,
    pub(crate) decoder: ReplyDecoder,
}

impl Connection {
    pub(crate) fn new(link: LinkId, address: &str) -> Self {
        Self {
            link,
            address: address.to_owned(),
            is_up: false,
            unsent: Vec::new(),
            awaited: VecDeque::new(),
            input: Vec::new(),
            decoder: ReplyDecoder::new(),
        }
    }

    /// Whether it owes units that are late: its node is asked last.
    pub(crate) fn owes(&self) -> bool {
        let mut awaited = self.awaited.iter();
        awaited.any(|awaited| matches!(awaited, Awaited::Units(units) if units.is_late))
    }
}
