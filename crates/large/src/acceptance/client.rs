//! A value that a client cuts and codes itself (P14.18). Nobody but the client can send its units again, and nobody
//! knows that they are right before all parts are there. So every holder must keep its part: the first one that does
//! not, or that changes, ends the value, and no part is ever made.
//!
//! The holders tell checks and fingerprints. With the client's COMMIT come the checks that the parts must have. From
//! then on, holders that have not said that they keep their parts are asked: the client has had all its answers by
//! then, so a part that is still open lacks units.

use super::{Acceptance, Holder, State, Target, Tell, UploadFailed};
use crate::fingerprint::{Fingerprint, belong_together};
use crate::{Part, PlacementError, Record};
use paritas_base::PartState;
use std::sync::Arc;

/// What is kept for such a value.
#[derive(Debug)]
pub(super) struct ByClient {
    /// Number of the newest question when the checks came. Answers to this one and earlier ones may be older than the
    /// client's last unit.
    committed: u32,
    /// A holder has changed, or an answer has ended the value.
    failed: Option<UploadFailed>,
    compares: bool,
}

impl Acceptance {
    /// For a value whose groups have just been staged, and whose units a client sends to the holders.
    ///
    /// # Errors
    /// Those of [`Self::new`]. And clients write neither this class, nor values with parts on log nodes.
    pub fn of_client(record: Arc<Record>, positions: u8, unit_bytes: u32) -> Result<Self, PlacementError> {
        let (first, logged) = (record.first, record.logged);
        if !record.may_be_by_client() {
            return Err(PlacementError::NoSuchPosition { first, logged });
        }
        let mut acceptance = Self::new(record, positions, unit_bytes, false)?;
        acceptance.client = Some(ByClient {
            committed: 0,
            failed: None,
            compares: true,
        });
        Ok(acceptance)
    }

    /// Whether a client sends the units.
    pub fn is_of_client(&self) -> bool {
        self.client.is_some()
    }

    /// For a test that breaks P14.20: fingerprints are not compared.
    #[doc(hidden)]
    pub fn compare_no_fingerprints(&mut self) {
        if let Some(client) = &mut self.client {
            client.compares = false;
        }
    }

    /// The client says that all units were sent, and which checks the blocks have. What it says later changes nothing.
    ///
    /// # Errors
    /// The value is to be given up: a part has another check.
    pub fn on_commit(&mut self, checks: &[u32]) -> Result<(), UploadFailed> {
        let Some(client) = &mut self.client else {
            return Ok(());
        };
        if checks.len() != self.record.checks.len() {
            client.failed = Some(UploadFailed::NotAsNamed);
        } else if self.checks.is_none() {
            self.checks = Some(checks.to_vec());
            client.committed = self.question;
            for at in 0..self.targets.len() {
                self.compare_for_client(at);
            }
        }
        self.failed().map_or(Ok(()), Err)
    }

    /// Why the value that a client writes is to be given up, if it is.
    fn failed(&self) -> Option<UploadFailed> {
        self.client.as_ref()?.failed
    }

    /// See [`Self::tell`].
    pub(super) fn tell_for_client(&mut self, holders: &[Option<Holder>], again: bool, mut tell: impl FnMut(Tell)) {
        let is_committed = self.checks.is_some();
        let (Some(client), targets) = (&mut self.client, &mut self.targets) else {
            return;
        };
        for target in targets {
            let (position, name) = (target.part.position, self.record.name_of(&target.part));
            let holder = holders.get(usize::from(position)).copied().flatten();
            let (before, present) = (target.tenure, holder.map(|holder| holder.tenure));
            target.tenure = before.or(present);
            // The units at a former holder are gone, and the client does not send them again.
            if present.is_none() || present != target.tenure {
                client.failed.get_or_insert(UploadFailed::Lost);
                continue;
            }
            let must_ask = match target.state {
                State::Asked => before.is_none() || again || (is_committed && !target.is_said_kept),
                State::Open => is_committed && (again || !target.is_said_kept),
                _ => false,
            };
            if must_ask {
                target.is_said_kept = is_committed;
                self.question += 1;
                tell(Tell::Open(name, position, self.question));
            }
        }
    }

    /// See [`Self::on_answer`].
    pub(super) fn on_answer_for_client(
        &mut self,
        at: usize,
        question: u32,
        state: PartState,
        fingerprint: Option<&Fingerprint>,
    ) -> Result<(), UploadFailed> {
        let is_committed = self.checks.is_some();
        let (Some(client), Some(target)) = (&mut self.client, self.targets.get_mut(at)) else {
            return Ok(());
        };
        let failed = match state {
            // The question was asked when the client had had all its answers.
            PartState::Open(_) if is_committed && question > client.committed => Some(UploadFailed::NotAsNamed),
            PartState::Open(_) => {
                if target.state == State::Asked {
                    target.state = State::Open;
                }
                None
            }
            PartState::Taken(_) => None,
            // A kept part never changes, so the first word counts.
            PartState::Kept(_) if target.kept.is_some() => None,
            PartState::Kept(check) => {
                (target.kept, target.fingerprint) = (Some(check), fingerprint.copied().map(Box::new));
                target.state = State::Kept;
                // Nobody has sent it so.
                fingerprint.is_none().then_some(UploadFailed::NotAsNamed)
            }
            PartState::NoRoom => Some(UploadFailed::NoRoom),
            PartState::Broken => Some(UploadFailed::NotAsNamed),
            PartState::Unknown => Some(UploadFailed::Refused),
            PartState::Declined | PartState::Making => Some(UploadFailed::Lost),
        };
        client.failed = client.failed.or(failed);
        self.compare_for_client(at);
        self.failed().map_or(Ok(()), Err)
    }

    /// A part that is kept must have the check that the client has named.
    fn compare_for_client(&mut self, at: usize) {
        let (Some(client), Some(target)) = (&mut self.client, self.targets.get(at)) else {
            return;
        };
        if let (Some(checks), Some(kept)) = (&self.checks, target.kept)
            && checks.get(self.record.check_index(&target.part)) != Some(&kept)
        {
            client.failed.get_or_insert(UploadFailed::NotAsNamed);
        }
    }

    /// See [`Self::is_open`].
    pub(super) fn has_all_open(&self) -> bool {
        let is_open = |target: &Target| matches!(target.state, State::Open | State::Kept);
        self.targets.iter().all(is_open)
    }

    /// See [`Self::is_ready`]. All parts are there, so the value bears whatever its class bears.
    pub(super) fn is_ready_for_client(
        &self,
        client: &ByClient,
        holders: &[Option<Holder>],
        is_staging: bool,
    ) -> Result<bool, UploadFailed> {
        if let Some(failed) = client.failed {
            return Err(failed);
        }
        let holder = |part: &Part| holders.get(usize::from(part.position)).copied().flatten();
        let is_there = |target: &Target| {
            let present = holder(&target.part).map(|holder| holder.tenure);
            present.is_some() && (target.tenure.is_none() || target.tenure == present)
        };
        if !is_staging || !self.targets.iter().all(is_there) {
            return Err(UploadFailed::Lost);
        }
        if !self.is_sent() {
            return Ok(false);
        }
        let kept = |target: &Target| {
            target
                .fingerprint
                .as_deref()
                .copied()
                .filter(|_| target.state == State::Kept)
        };
        let Some(prints) = self.targets.iter().map(kept).collect::<Option<Vec<_>>>() else {
            return Ok(false);
        };
        if client.compares && !belong_together(self.record.class, &prints) {
            return Err(UploadFailed::Forged);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
