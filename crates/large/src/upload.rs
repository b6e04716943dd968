//! `Upload`: one value on its way to the holders of its parts, at the owner of its stream.
//!
//! Its object may be put into the store when [`Upload::is_ready`]: every holder of the installed configuration has its
//! part, except holders that are not Live yet and have declined it. The parts that are kept must bear as many further
//! losses as a write of the stream must (P3.1), or as the value's class promises, if those are fewer. And all groups
//! must be staged still.

use crate::{Group, Part, PartName, Placement, PlacementError, Record, WriteFailed, Writer};
use paritas_base::PartState;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The holder of a position, by the installed configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder {
    /// A number for its tenure. Another holder, or the same node under another tenure, has another number.
    pub tenure: u64,
    /// Whether the position is Live.
    pub is_live: bool,
}

/// How far a part is at its present holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The holder has not answered.
    Asked,
    /// Units may be sent.
    Open,
    /// The holder is to make it once all others are sent.
    ToMake,
    /// The holder was told to make it.
    Making,
    Kept,
    Declined,
    /// It is part of a data group that stays: nothing is sent. Live holders have it.
    Stays,
}

#[derive(Debug)]
struct Target {
    part: Part,
    /// The holder that it was opened at.
    tenure: Option<u64>,
    state: State,
    /// The newest question how many units the holder has, and the units that had been sent before it. The question
    /// follows them on the same link: fewer in the answer means that some were lost.
    asked: Option<(u32, u32)>,
}

/// What to tell a holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tell {
    /// Open this part. The last number is that of the question, which the answer repeats.
    Open(PartName, u8, u32),
    /// Make this part; the record has its checks now.
    Make(PartName, u8),
}

/// Why an upload has failed. Nothing of it is visible, and its groups are to be given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UploadFailed {
    /// A holder has no memory for its part.
    NoRoom,
    /// A holder refuses the record: its configuration gives it no such part.
    Refused,
    /// Too many holders were lost while units were under way, or a data group that was to stay does not.
    Lost,
}

impl From<WriteFailed> for UploadFailed {
    fn from(WriteFailed: WriteFailed) -> Self {
        Self::Lost
    }
}

/// Writes one value.
#[derive(Debug)]
pub struct Upload {
    record: Arc<Record>,
    writer: Writer,
    targets: Vec<Target>,
    /// Number of the newest question to a holder.
    question: u32,
}

impl Upload {
    /// Begins to write a value whose groups have just been staged. `keeps_data`: its data group stays and is not
    /// written.
    pub fn new(record: Arc<Record>, positions: u8, unit_bytes: u32, keeps_data: bool) -> Result<Self, PlacementError> {
        let placement = record.placement(positions)?;
        let layout = record.layout(unit_bytes).ok_or(PlacementError::NoSuchPosition {
            first: record.first,
            logged: record.logged,
        })?;
        let stays = |part: &Part| keeps_data && part.group == Group::Data;
        let target = |part| Target {
            tenure: None,
            state: if stays(&part) { State::Stays } else { State::Asked },
            asked: None,
            part,
        };
        let mut writer = Writer::new(layout, placement);
        placement
            .parts()
            .enumerate()
            .filter(|(_, part)| stays(part))
            .for_each(|(at, _)| writer.on_there(at));
        Ok(Self {
            targets: placement.parts().map(target).collect(),
            writer,
            record,
            question: 0,
        })
    }

    /// The record; its checks are final once the upload is ready.
    pub fn record(&self) -> Record {
        Record {
            checks: self.writer.checks().to_vec(),
            ..(*self.record).clone()
        }
    }

    /// The position of a part with this name.
    pub fn position_of(&self, name: PartName) -> Option<u8> {
        let mut targets = self.targets.iter();
        let target = targets.find(|target| self.record.name_of(&target.part) == name)?;
        Some(target.part.position)
    }

    /// Groups and class, as they were staged.
    pub fn staged(&self) -> &Arc<Record> {
        &self.record
    }

    /// Compares with the holders of the installed configuration, by position, and calls `tell` for each part whose
    /// holder must be told something. `again`: also those that were told before and have not answered.
    pub fn tell(&mut self, holders: &[Option<Holder>], again: bool, mut tell: impl FnMut(Tell)) {
        let all_sent = self.writer.is_sent();
        for at in 0..self.targets.len() {
            let target = &mut self.targets[at];
            if target.state == State::Stays {
                continue;
            }
            let (position, name) = (target.part.position, self.record.name_of(&target.part));
            let Some(holder) = holders.get(usize::from(position)).copied().flatten() else {
                // Vacant. What was sent there is gone.
                if target.tenure.take().is_some() {
                    self.writer.on_broken(at);
                    target.state = State::ToMake;
                }
                continue;
            };
            let is_new = target.tenure.replace(holder.tenure) != Some(holder.tenure);
            if is_new && target.state != State::Asked {
                self.writer.on_broken(at);
                target.state = State::ToMake;
            }
            match target.state {
                State::Asked if is_new || again => {
                    self.question += 1;
                    tell(Tell::Open(name, position, self.question));
                }
                State::ToMake if all_sent => {
                    target.state = State::Making;
                    tell(Tell::Make(name, position));
                }
                State::Making if again => tell(Tell::Make(name, position)),
                // It may have memory by now. Without it, two holders could each wait for the other's part.
                State::Declined if again && all_sent => tell(Tell::Make(name, position)),
                // Units or its answers may be lost: it is asked what it has.
                State::Open if again => {
                    self.question += 1;
                    target.asked = Some((self.question, self.writer.sent_units(at)));
                    tell(Tell::Open(name, position, self.question));
                }
                _ => {}
            }
        }
    }

    /// What a holder says of a part. `question` is the number of the question that it answers, or 0. Former holders are
    /// ignored.
    pub fn on_answer(
        &mut self,
        tenure: u64,
        name: PartName,
        question: u32,
        state: PartState,
    ) -> Result<(), UploadFailed> {
        let Some(at) = self.find(tenure, name) else {
            return Ok(());
        };
        let target = &mut self.targets[at];
        match state {
            PartState::Open(units) => match (target.state, target.asked.filter(|(asked, _)| *asked == question)) {
                (State::Asked, _) => target.state = State::Open,
                (State::Open, Some((_, sent))) if units < sent => {
                    self.writer.on_broken(at);
                    target.state = State::ToMake;
                }
                (State::Open, _) => self.writer.on_taken(at, units),
                _ => {}
            },
            PartState::Kept(check) => self.on_kept(at, check),
            PartState::Making if target.state == State::Declined => target.state = State::Making,
            PartState::Making => {}
            PartState::Declined => {
                self.writer.on_broken(at);
                target.state = State::Declined;
            }
            PartState::Taken(units) => self.writer.on_taken(at, units),
            PartState::Broken => {
                self.writer.on_broken(at);
                target.state = State::ToMake;
            }
            PartState::NoRoom => return Err(UploadFailed::NoRoom),
            PartState::Unknown => return Err(UploadFailed::Refused),
        }
        Ok(())
    }

    /// The value's bytes may be sent: every holder that there is has answered.
    pub fn may_send(&self) -> bool {
        let answered = |target: &Target| target.tenure.is_none() || target.state != State::Asked;
        self.targets.iter().all(answered)
    }

    /// Takes the next bytes of the body, and calls `send` with position, part, unit and bytes of each unit to be sent.
    /// Returns how many of the bytes it took.
    pub fn push(&mut self, bytes: &[u8], mut send: impl FnMut(u8, PartName, u32, &[u8])) -> usize {
        for (at, target) in self.targets.iter_mut().enumerate() {
            // A holder that has not answered yet has missed units.
            if target.state == State::Asked {
                target.state = State::ToMake;
            }
            if !matches!(target.state, State::Open | State::Kept | State::Stays) {
                self.writer.on_broken(at);
            }
        }
        let (targets, record) = (&self.targets, &self.record);
        self.writer.push(bytes, |at, unit, bytes| {
            if let Some(Target {
                part,
                state: State::Open,
                ..
            }) = targets.get(at)
            {
                send(part.position, record.name_of(part), unit, bytes);
            }
        })
    }

    /// Whether all bytes were sent.
    pub fn is_sent(&self) -> bool {
        self.writer.is_sent()
    }

    /// Whether the object may be put into the store now. `redundancy`: how many further losses the kept parts must
    /// bear, if the class bears as many. `is_staging`: what the ledger says of the record now
    /// ([`crate::Ledger::is_staging`]).
    ///
    /// # Errors
    /// The value is to be given up. A data group that stays may die while the other group is written, or another
    /// object may name it. Without data no holder could make its part, so a value that waited for that would wait for
    /// ever, and so would the holders that are to become Live (P14.10).
    pub fn is_ready(&self, holders: &[Option<Holder>], redundancy: u8, is_staging: bool) -> Result<bool, UploadFailed> {
        if !is_staging {
            return Err(UploadFailed::Lost);
        }
        self.writer.is_done()?;
        if !self.writer.is_sent() {
            return Ok(false);
        }
        let holder = |part: &Part| holders.get(usize::from(part.position)).copied().flatten();
        let is_settled = |target: &Target| match (holder(&target.part), target.tenure) {
            (None, _) => true,
            // A holder that is not Live gets it by the owner's list, as the part of any object.
            _ if target.state == State::Stays => true,
            (Some(holder), tenure) => {
                tenure == Some(holder.tenure)
                    && (target.state == State::Kept || (target.state == State::Declined && !holder.is_live))
            }
        };
        if !self.targets.iter().all(is_settled) {
            return Ok(false);
        }
        let has = |part: &Part| {
            let state = self
                .targets
                .iter()
                .find(|target| target.part == *part)
                .map(|target| target.state);
            match (state, holder(part)) {
                (Some(State::Kept), Some(_)) => true,
                (Some(State::Stays), Some(holder)) => holder.is_live,
                _ => false,
            }
        };
        Ok(self.bears(redundancy.min(self.record.class.tolerance()), has))
    }

    /// Whether the value can be read from the parts that there are, after any `losses` further positions are lost.
    fn bears(&self, losses: u8, has: impl Fn(&Part) -> bool) -> bool {
        let placement = self.writer.placement();
        let positions: BTreeSet<u8> = placement.parts().map(|part| part.position).collect();
        let positions: Vec<u8> = positions.into_iter().collect();
        survives(&placement, &positions, losses, &mut BTreeSet::new(), &has)
    }

    fn find(&self, tenure: u64, name: PartName) -> Option<usize> {
        let is_it = |target: &Target| target.tenure == Some(tenure) && self.record.name_of(&target.part) == name;
        self.targets.iter().position(is_it)
    }

    fn on_kept(&mut self, at: usize, check: u32) {
        let target = &mut self.targets[at];
        // The check of a part is final once its last unit was sent. A made part is asked for only after all were.
        let is_sent = self.writer.is_sent() || self.writer.is_part_sent(at);
        if is_sent && self.writer.check_of(target.part.content) == check {
            self.writer.on_kept(at, check);
            target.state = State::Kept;
        } else if target.state == State::Open {
            self.writer.on_broken(at);
            target.state = State::ToMake;
        }
    }
}

/// Whether the value can be read whichever `losses` of these positions are lost, those in `lost` besides.
fn survives(
    placement: &Placement,
    positions: &[u8],
    losses: u8,
    lost: &mut BTreeSet<u8>,
    has: &impl Fn(&Part) -> bool,
) -> bool {
    if losses == 0 {
        return placement.is_readable(|part| !lost.contains(&part.position) && has(part));
    }
    positions.iter().enumerate().all(|(at, position)| {
        lost.insert(*position);
        let bears = survives(placement, &positions[at + 1..], losses - 1, lost, has);
        lost.remove(position);
        bears
    })
}
