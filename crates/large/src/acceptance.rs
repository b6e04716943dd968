//! `Acceptance`: when the object of one value may name its parts, at the owner of its stream.
//!
//! The owner opens the parts. A [`crate::Sender`] sends the units, and says at its end which checks the value has and
//! which parts are broken: these the owner has made. The object may be put into the store when
//! [`Acceptance::is_ready`]: every holder of the installed configuration has its part, except holders that are not Live
//! yet and have declined it. The parts that are kept must bear as many further losses as a write of the stream must
//! (P3.1), or as the value's class promises, if those are fewer. And all groups must be staged still.
//!
//! A value that a client writes itself has no sender, and stricter rules: `client`.

mod client;

use crate::fingerprint::Fingerprint;
use crate::{Group, Opened, Outcome, Part, PartName, Placement, PlacementError, Record, WriteFailed};
use client::ByClient;
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
    /// The check of the part that this holder keeps. It may come before the sender has said which one is right.
    kept: Option<u32>,
    /// The sender says that this holder keeps it.
    is_said_kept: bool,
    /// The fingerprint of the part that this holder keeps, if a client has written it.
    fingerprint: Option<Box<Fingerprint>>,
}

/// What to tell a holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tell {
    /// Open this part. The last number is that of the question, which the answer repeats.
    Open(PartName, u8, u32),
    /// Make this part; the record has its checks now.
    Make(PartName, u8),
}

/// Why a value is given up. Nothing of it is visible, and its groups are to be given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UploadFailed {
    /// A holder has no memory for its part.
    NoRoom,
    /// A holder refuses the record: its configuration gives it no such part.
    Refused,
    /// A client has sent parts that lack units, or have other checks than it has named.
    NotAsNamed,
    /// A client has sent parts with the checks that it has named, and they do not belong together.
    Forged,
    /// Too many holders were lost while units were under way, or a data group that was to stay does not.
    Lost,
}

impl From<WriteFailed> for UploadFailed {
    fn from(WriteFailed: WriteFailed) -> Self {
        Self::Lost
    }
}

/// Accepts one value.
#[derive(Debug)]
pub struct Acceptance {
    record: Arc<Record>,
    placement: Placement,
    targets: Vec<Target>,
    /// The sender has begun: a part that is not open by then is made.
    has_begun: bool,
    /// What the sender has said at its end.
    checks: Option<Vec<u32>>,
    /// Number of the newest question to a holder.
    question: u32,
    /// What is kept for a value that a client writes itself.
    client: Option<ByClient>,
}

impl Acceptance {
    /// For a value whose groups have just been staged. `keeps_data`: its data group stays and is not written.
    ///
    /// # Errors
    /// The record cannot be placed at these positions, or cut into such units.
    pub fn new(record: Arc<Record>, positions: u8, unit_bytes: u32, keeps_data: bool) -> Result<Self, PlacementError> {
        let placement = record.placement(positions)?;
        record.cut(unit_bytes)?;
        let target = |part: Part| Target {
            tenure: None,
            state: match keeps_data && part.group == Group::Data {
                true => State::Stays,
                false => State::Asked,
            },
            kept: None,
            is_said_kept: false,
            fingerprint: None,
            part,
        };
        Ok(Self {
            targets: placement.parts().map(target).collect(),
            placement,
            record,
            has_begun: false,
            checks: None,
            question: 0,
            client: None,
        })
    }

    /// The record. Its checks are 0 until the sender has said them.
    pub fn record(&self) -> Record {
        let mut record = (*self.record).clone();
        if let Some(checks) = &self.checks {
            record.checks.clone_from(checks);
        }
        record
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
        if self.client.is_some() {
            return self.tell_for_client(holders, again, tell);
        }
        let all_sent = self.checks.is_some();
        for target in self.targets.iter_mut().filter(|target| target.state != State::Stays) {
            let (position, name) = (target.part.position, self.record.name_of(&target.part));
            let holder = holders.get(usize::from(position)).copied().flatten();
            let before = target.tenure;
            target.tenure = holder.map(|holder| holder.tenure);
            let is_new = target.tenure != before;
            if is_new {
                (target.kept, target.is_said_kept) = (None, false);
            }
            // What was sent to the former holder is gone. One that was asked before may be the first.
            if is_new && (target.state != State::Asked || holder.is_none()) {
                target.state = State::ToMake;
            }
            if holder.is_none() {
                continue;
            }
            match target.state {
                State::Asked if is_new || again => {
                    self.question += 1;
                    tell(Tell::Open(name, position, self.question));
                }
                // Once the sender has begun, it asks. But its word is not enough: the answer to it may be lost here.
                State::Open if again && (!self.has_begun || target.is_said_kept) => {
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
                _ => {}
            }
        }
    }

    /// What a holder says of a part. Former holders are ignored. `question`: the number of the question that it
    /// answers, or 0. `fingerprint`: that of a part that is kept and was opened for a client.
    ///
    /// # Errors
    /// The value is to be given up.
    pub fn on_answer(
        &mut self,
        tenure: u64,
        name: PartName,
        question: u32,
        state: PartState,
        fingerprint: Option<&Fingerprint>,
    ) -> Result<(), UploadFailed> {
        let is_it = |target: &Target| target.tenure == Some(tenure) && self.record.name_of(&target.part) == name;
        let Some(at) = self.targets.iter().position(is_it) else {
            return Ok(());
        };
        if self.client.is_some() {
            return self.on_answer_for_client(at, question, state, fingerprint);
        }
        let target = &mut self.targets[at];
        match state {
            PartState::Open(_) if target.state == State::Asked => target.state = State::Open,
            // It is not there, or this answer is older than the sender's word: then it is there when it is to be made.
            PartState::Open(_) if target.is_said_kept && target.state == State::Open => target.state = State::ToMake,
            PartState::Making if target.state == State::Declined => target.state = State::Making,
            PartState::Open(_) | PartState::Making | PartState::Taken(_) => {}
            PartState::Kept(check) => {
                target.kept = Some(check);
                self.compare(at);
            }
            PartState::Declined => target.state = State::Declined,
            PartState::Broken => target.state = State::ToMake,
            PartState::NoRoom => return Err(UploadFailed::NoRoom),
            PartState::Unknown => return Err(UploadFailed::Refused),
        }
        Ok(())
    }

    /// Whether every holder that there is has answered, so that units may be sent.
    pub fn is_open(&self) -> bool {
        // A client needs every holder.
        if self.client.is_some() {
            return self.has_all_open();
        }
        let answered = |target: &Target| target.tenure.is_none() || target.state != State::Asked;
        self.targets.iter().all(answered)
    }

    /// The sender begins. Returns where each part is open, and the number of the newest question about them. What has
    /// not been opened is made.
    pub fn begin(&mut self) -> (Vec<Opened>, u32) {
        self.has_begun = true;
        let opened = |target: &mut Target| match (target.state, target.tenure) {
            (State::Open, Some(tenure)) => Opened::At(tenure),
            (State::Stays, _) => Opened::Stays,
            (State::Asked, _) => {
                target.state = State::ToMake;
                Opened::No
            }
            _ => Opened::No,
        };
        (self.targets.iter_mut().map(opened).collect(), self.question)
    }

    /// The sender says that all units were sent: the checks of the value, and what became of each part. It may say so
    /// again when it knows of further ones.
    pub fn on_sent(&mut self, checks: &[u32], outcomes: &[Outcome]) {
        if checks.len() != self.record.checks.len() {
            return;
        }
        self.checks = Some(checks.to_vec());
        for at in 0..self.targets.len() {
            self.compare(at);
            let target = &mut self.targets[at];
            let outcome = outcomes.get(at).copied().unwrap_or(Outcome::Broken);
            match (target.state, outcome) {
                (State::Open, Outcome::Broken) => target.state = State::ToMake,
                (State::Open, Outcome::Kept) => target.is_said_kept = true,
                _ => {}
            }
        }
    }

    /// Whether the sender has said so.
    pub fn is_sent(&self) -> bool {
        self.checks.is_some()
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
        if let Some(client) = &self.client {
            return self.is_ready_for_client(client, holders, is_staging);
        }
        let may_come = |target: &Target| !matches!(target.state, State::ToMake | State::Making | State::Declined);
        let is_readable = self
            .placement
            .is_readable(|part| self.target(part).is_some_and(may_come));
        if !is_staging || !is_readable {
            return Err(UploadFailed::Lost);
        }
        if !self.is_sent() {
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
        let has = |part: &Part| match (self.target(part).map(|target| target.state), holder(part)) {
            (Some(State::Kept), Some(_)) => true,
            (Some(State::Stays), Some(holder)) => holder.is_live,
            _ => false,
        };
        Ok(self.bears(redundancy.min(self.record.class.tolerance()), has))
    }

    fn target(&self, part: &Part) -> Option<&Target> {
        self.targets.iter().find(|target| target.part == *part)
    }

    /// Whether the value can be read from the parts that there are, after any `losses` further positions are lost.
    fn bears(&self, losses: u8, has: impl Fn(&Part) -> bool) -> bool {
        let positions: BTreeSet<u8> = self.placement.parts().map(|part| part.position).collect();
        let positions: Vec<u8> = positions.into_iter().collect();
        survives(&self.placement, &positions, losses, &mut BTreeSet::new(), &has)
    }

    /// A part is kept if its holder has it with the check of the sender.
    fn compare(&mut self, at: usize) {
        let target = &mut self.targets[at];
        let (Some(checks), Some(kept)) = (&self.checks, target.kept) else {
            return;
        };
        let is_it = checks.get(self.record.check_index(&target.part)) == Some(&kept);
        match target.state {
            State::Stays => {}
            _ if is_it => target.state = State::Kept,
            State::Open => target.state = State::ToMake,
            _ => {}
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
