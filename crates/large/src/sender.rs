//! `Sender`: sends the units of one value to the parts that the owner of its stream has opened.
//!
//! It has the bytes, and knows neither keys nor configurations. The owner names the holder of each part that is open
//! ([`Opened`]). The sender decides which units leave, and which parts are *broken*: their holder is another one by
//! now, a unit was lost, or the part is not open there. It ends with the checks of the value, and with each part kept
//! or broken. What it says is no evidence that a part is kept: only the word of the present holder is
//! ([`crate::Acceptance`]).

use crate::{Holder, Part, PartName, PlacementError, Record, WriteFailed, Writer};
use paritas_base::PartState;
use std::sync::Arc;

/// What the owner says of a part before units are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opened {
    /// It is open at the holder with this tenure.
    At(u64),
    /// It is of a data group that stays: nothing is sent.
    Stays,
    /// It is not open: nothing is sent, and its holder makes it.
    No,
}

/// What the sender says of a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Units are under way, or answers are missing.
    Open,
    /// Its holder has all units. Nothing is sent to a part of a data group that stays: it counts as kept.
    Kept,
    /// Its holder is to make it.
    Broken,
}

/// A holder is asked how many units of a part it has. Question and answer use the link of the units, so that the
/// question follows those that were sent before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// The part.
    pub name: PartName,
    /// The position of its holder.
    pub position: u8,
    /// The number of the question, which the answer repeats.
    pub question: u32,
}

#[derive(Debug)]
struct Destination {
    part: Part,
    /// The holder that the owner has named.
    tenure: Option<u64>,
    /// The newest question how many units the holder has, and the units that had been sent before it. Fewer in the
    /// answer means that some were lost.
    asked: Option<(u32, u32)>,
}

/// Sends one value.
#[derive(Debug)]
pub struct Sender {
    record: Arc<Record>,
    writer: Writer,
    destinations: Vec<Destination>,
    /// Number of the newest question to a holder.
    question: u32,
}

impl Sender {
    /// Begins to send a value. `opened` has each part in the order of [`crate::Placement::parts`]. `question`: the
    /// newest question that holders were asked about these parts.
    ///
    /// # Errors
    /// The record cannot be placed at these positions, or cut into such units.
    pub fn new(
        record: Arc<Record>,
        positions: u8,
        unit_bytes: u32,
        opened: &[Opened],
        question: u32,
    ) -> Result<Self, PlacementError> {
        let (placement, layout) = (record.placement(positions)?, record.cut(unit_bytes)?);
        let mut writer = Writer::new(layout, placement);
        let opened = |at: usize| opened.get(at).copied().unwrap_or(Opened::No);
        for at in 0..placement.parts().count() {
            match opened(at) {
                Opened::At(_) => {}
                Opened::Stays => writer.on_there(at),
                Opened::No => writer.on_broken(at),
            }
        }
        let destination = |(at, part)| Destination {
            part,
            tenure: match opened(at) {
                Opened::At(tenure) => Some(tenure),
                Opened::Stays | Opened::No => None,
            },
            asked: None,
        };
        Ok(Self {
            destinations: placement.parts().enumerate().map(destination).collect(),
            record,
            writer,
            question,
        })
    }

    /// The record that the owner has staged.
    pub fn record(&self) -> &Arc<Record> {
        &self.record
    }

    /// Takes the next bytes of the body, and calls `send` with position, part, unit and bytes of each unit to be sent.
    /// Returns how many of the bytes it took.
    pub fn push(&mut self, bytes: &[u8], mut send: impl FnMut(u8, PartName, u32, &[u8])) -> usize {
        let (destinations, record) = (&self.destinations, &self.record);
        self.writer.push(bytes, |at, unit, bytes| {
            if let Some(Destination { part, .. }) = destinations.get(at) {
                send(part.position, record.name_of(part), unit, bytes);
            }
        })
    }

    /// Compares with the present holders, by position. What was sent to others is lost.
    pub fn on_holders(&mut self, holders: &[Option<Holder>]) {
        for (at, destination) in self.destinations.iter().enumerate() {
            let holder = holders.get(usize::from(destination.part.position)).copied().flatten();
            if destination.tenure.is_some() && destination.tenure != holder.map(|holder| holder.tenure) {
                self.writer.on_broken(at);
            }
        }
    }

    /// Asks the holders of parts that are neither kept nor broken how many units they have: units, or answers, may be
    /// lost.
    pub fn ask(&mut self, mut ask: impl FnMut(Ask)) {
        for (at, destination) in self.destinations.iter_mut().enumerate() {
            if self.writer.is_open(at) {
                self.question += 1;
                destination.asked = Some((self.question, self.writer.sent_units(at)));
                ask(Ask {
                    name: self.record.name_of(&destination.part),
                    position: destination.part.position,
                    question: self.question,
                });
            }
        }
    }

    /// What a holder says of a part. `question` is the number of the question that it answers, or 0. Holders that the
    /// owner has not named are ignored.
    pub fn on_answer(&mut self, tenure: u64, name: PartName, question: u32, state: PartState) {
        let is_it = |to: &Destination| to.tenure == Some(tenure) && self.record.name_of(&to.part) == name;
        // What is kept or broken stays so.
        let at = self.destinations.iter().position(is_it);
        let Some(at) = at.filter(|at| self.writer.is_open(*at)) else {
            return;
        };
        let asked = self.destinations[at].asked;
        let sent_before = asked.filter(|(asked, _)| *asked == question).map(|(_, sent)| sent);
        match state {
            PartState::Open(units) if sent_before.is_some_and(|sent| units < sent) => self.writer.on_broken(at),
            PartState::Open(units) | PartState::Taken(units) => self.writer.on_taken(at, units),
            PartState::Kept(check) => self.writer.on_kept(at, check),
            PartState::Making | PartState::Broken | PartState::NoRoom | PartState::Declined | PartState::Unknown => {
                self.writer.on_broken(at)
            }
        }
    }

    /// Whether all units were handed out: the checks are final.
    pub fn is_sent(&self) -> bool {
        self.writer.is_sent()
    }

    /// Whether each part is kept or broken, after the whole body.
    ///
    /// # Errors
    /// The parts that are not broken do not give back the value.
    pub fn is_done(&self) -> Result<bool, WriteFailed> {
        self.writer.is_done()
    }

    /// The checks of the value. They are final once [`Self::is_sent`].
    pub fn checks(&self) -> &[u32] {
        self.writer.checks()
    }

    /// What became of each part so far, in the order of [`crate::Placement::parts`].
    pub fn outcomes(&self) -> Vec<Outcome> {
        let outcome = |at| match (self.writer.is_open(at), self.writer.is_broken(at)) {
            (true, _) => Outcome::Open,
            (_, true) => Outcome::Broken,
            (false, false) => Outcome::Kept,
        };
        (0..self.destinations.len()).map(outcome).collect()
    }
}
