//! `Connection`: one connection to a node, and what its next replies answer.

use crate::interface::{LinkId, OpId};
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
    /// `PARITAS.STAGE`.
    Stage(AskedStage),
    /// `PARITAS.PUT`.
    Put(SentPut),
    /// CLUSTER SLOTS.
    Owners,
    /// CLUSTER MYID.
    Name,
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

/// A value that an owner was asked to take in parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskedStage {
    pub(crate) op: OpId,
    pub(crate) attempt: u32,
    pub(crate) link: LinkId,
}

/// Units that were sent to a holder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentPut {
    pub(crate) op: OpId,
    pub(crate) attempt: u32,
    /// The number of the part, and the units of it that the holder then has.
    pub(crate) part: usize,
    pub(crate) end: u32,
    /// Bytes of the command.
    pub(crate) bytes: usize,
}

/// How far a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Dialled,
    /// AUTH was sent. Commands wait: a node that refuses it may do them all the same.
    Proving,
    Open,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) link: LinkId,
    pub(crate) address: String,
    pub(crate) phase: Phase,
    /// Commands that wait until it is open.
    pub(crate) unsent: Vec<Vec<u8>>,
    pub(crate) awaited: VecDeque<Awaited>,
    /// Since when something is awaited without a pause.
    waits_since: Time,
    /// When bytes came last, or were taken.
    pub(crate) heard_at: Time,
    /// A reply has come.
    pub(crate) has_answered: bool,
    /// It leads to the node that home has named: commands may be sent to it as to an owner.
    pub(crate) is_known: bool,
    pub(crate) input: Vec<u8>,
    pub(crate) decoder: ReplyDecoder,
}

impl Connection {
    pub(crate) fn new(now: Time, link: LinkId, address: &str) -> Self {
        Self {
            link,
            address: address.to_owned(),
            phase: Phase::Dialled,
            unsent: Vec::new(),
            awaited: VecDeque::new(),
            waits_since: now,
            heard_at: Time(0),
            has_answered: false,
            is_known: false,
            input: Vec::new(),
            decoder: ReplyDecoder::new(),
        }
    }

    /// One more reply is awaited.
    pub(crate) fn await_reply(&mut self, now: Time, awaited: Awaited) {
        if self.awaited.is_empty() {
            self.waits_since = now;
        }
        self.awaited.push_back(awaited);
    }

    /// Since when the node has been silent although something is awaited of it.
    pub(crate) fn silent_since(&self) -> Option<Time> {
        let waits = self.phase != Phase::Open || !self.awaited.is_empty();
        waits.then_some(self.waits_since.max(self.heard_at))
    }

    /// Whether it owes units that are late: its node is asked last.
    pub(crate) fn owes(&self) -> bool {
        self.units().any(|units| units.is_late)
    }

    /// Units that were sent to its holder and are not answered: the number of commands.
    pub(crate) fn puts(&self) -> usize {
        let is_put = |awaited: &&Awaited| matches!(awaited, Awaited::Put(_));
        self.awaited.iter().filter(is_put).count()
    }

    /// Whether it owes units to an operation.
    pub(crate) fn owes_to(&self, op: OpId) -> bool {
        self.units().any(|units| units.op == op)
    }

    fn units(&self) -> impl Iterator<Item = &AskedUnits> {
        self.awaited.iter().filter_map(|awaited| match awaited {
            Awaited::Units(units) => Some(units),
            _ => None,
        })
    }
}
