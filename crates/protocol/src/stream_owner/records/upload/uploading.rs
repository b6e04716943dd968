//! One value on its way: the machine that sends its units, and the one that knows what its holders have taken.

use super::{cut_of, send_to};
use crate::context::Context;
use crate::interface::Out;
use crate::parts::to_wire;
use crate::stream_owner::records::{Installed, holders};
use paritas_base::{PartState, Time};
use paritas_large::{Acceptance, Fingerprint, Holder, Ledger, PartName, Record, Sender, Tell, UploadFailed};
use paritas_wire::peer::Message;
use std::sync::Arc;

/// One value.
#[derive(Debug)]
pub(in crate::stream_owner) struct Uploading {
    pub(super) acceptance: Acceptance,
    /// From the moment on when all parts are open. `None` too if a client sends the units to the holders.
    pub(super) sender: Option<Sender>,
    /// What the command has made the value from.
    pub(super) basis: Box<[u8]>,
    /// Bytes of the body that were sent.
    pub(in crate::stream_owner::records) sent_bytes: u64,
    /// When its command ran last, and when units were sent or taken last. A value that is begun again and again does
    /// not move.
    pub(super) wanted_at: Time,
    pub(super) moved_at: Option<Time>,
    pub(super) failed: Option<UploadFailed>,
}

impl Uploading {
    /// The record as it was staged, without checks.
    pub(in crate::stream_owner::records) fn staged(&self) -> &Arc<Record> {
        self.acceptance.staged()
    }

    /// The record, with the checks that are known.
    pub(in crate::stream_owner::records) fn sealed(&self) -> Record {
        self.acceptance.record()
    }

    /// Whether every holder has opened its part.
    pub(in crate::stream_owner::records) fn is_open(&self) -> bool {
        self.acceptance.is_open()
    }

    /// It is still wanted.
    pub(in crate::stream_owner::records) fn want(&mut self, now: Time) {
        self.wanted_at = now;
    }

    /// The client that has sent the units says that each holder has its part, and which checks the value has.
    pub(in crate::stream_owner::records) fn commit<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        here: &Installed<'_>,
        checks: &[u32],
    ) {
        self.moved_at = Some(cx.now.mono);
        let failed = self.acceptance.on_commit(checks).err();
        self.failed = self.failed.or(failed);
        self.tell(cx, here, &holders(here.configuration), true);
    }

    /// Whether an object may name it now.
    ///
    /// # Errors
    /// No object may ever name it.
    pub(in crate::stream_owner::records) fn is_acceptable<O: Out>(
        &self,
        cx: &Context<'_, O>,
        here: &Installed<'_>,
        ledger: &Ledger,
    ) -> Result<bool, UploadFailed> {
        let redundancy = cx.shared.cluster.min_redundancy.min(cx.shared.cluster.parity);
        let is_staging = ledger.is_staging(self.staged());
        self.is_ready(&holders(here.configuration), redundancy, is_staging)
    }

    /// Whether all units were sent.
    pub(in crate::stream_owner::records) fn is_sent(&self) -> bool {
        self.acceptance.is_sent()
    }

    /// The sender, once units may be sent.
    fn begin_sending<O: Out>(&mut self, cx: &Context<'_, O>, here: &Installed<'_>) -> Option<&mut Sender> {
        if self.sender.is_none() && self.acceptance.is_open() {
            let (opened, question) = self.acceptance.begin();
            let (positions, unit_bytes) = cut_of(cx, here);
            self.sender = Sender::new(self.staged().clone(), positions, unit_bytes, &opened, question).ok();
        }
        self.sender.as_mut()
    }

    /// Sends units of the next bytes. Returns how many bytes were taken.
    pub(super) fn push<O: Out>(&mut self, cx: &mut Context<'_, O>, here: &Installed<'_>, bytes: &[u8]) -> usize {
        let Some(sender) = self.begin_sending(cx, here) else {
            return 0;
        };
        let taken = sender.push(bytes, |position, name, unit, bytes| {
            let name = to_wire(name);
            send_to(cx, here, position, &Message::PutUnit { name, unit, bytes });
        });
        self.note_sent();
        taken
    }

    /// What a holder says of a part.
    pub(super) fn on_answer(
        &mut self,
        tenure: u64,
        name: PartName,
        question: u32,
        state: PartState,
        fingerprint: Option<&Fingerprint>,
    ) {
        if let Some(sender) = &mut self.sender {
            sender.on_answer(tenure, name, question, state);
        }
        let told = self.acceptance.on_answer(tenure, name, question, state, fingerprint);
        if let Err(failed) = told {
            self.failed = Some(failed);
        }
        self.note_sent();
    }

    /// The sender's word reaches the owner.
    fn note_sent(&mut self) {
        if let Some(sender) = self.sender.as_ref().filter(|sender| sender.is_sent()) {
            self.acceptance.on_sent(sender.checks(), &sender.outcomes());
        }
    }

    /// Whether an object may name it.
    pub(super) fn is_ready(
        &self,
        holders: &[Option<Holder>],
        redundancy: u8,
        is_staging: bool,
    ) -> Result<bool, UploadFailed> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        if let Some(sender) = &self.sender {
            sender.is_done()?;
        }
        self.acceptance.is_ready(holders, redundancy, is_staging)
    }

    /// Tells holders what they must be told.
    pub(in crate::stream_owner::records) fn tell<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        here: &Installed<'_>,
        holders: &[Option<Holder>],
        again: bool,
    ) {
        if let Some(sender) = &mut self.sender {
            sender.on_holders(holders);
        }
        self.note_sent();
        let mut told = Vec::new();
        self.acceptance.tell(holders, again, |what| told.push(what));
        // The holder that is asked how many units it has is asked to open the part again.
        if let Some(sender) = self.sender.as_mut().filter(|_| again) {
            sender.ask(|ask| told.push(Tell::Open(ask.name, ask.position, ask.question)));
        }
        if told.is_empty() {
            return;
        }
        told.sort_by_key(|what| match what {
            Tell::Open(name, ..) | Tell::Make(name, _) => *name,
        });
        let (mut staged, mut sealed) = (Vec::new(), Vec::new());
        self.staged().encode(&mut staged);
        self.acceptance.record().encode(&mut sealed);
        for what in told {
            let (position, message) = match what {
                Tell::Open(name, position, question) => {
                    let (name, record) = (to_wire(name), staged.as_slice());
                    let message = Message::OpenPart {
                        term: here.term,
                        question,
                        name,
                        record,
                        by_client: self.acceptance.is_of_client(),
                    };
                    (position, message)
                }
                Tell::Make(name, position) => {
                    let (name, record) = (to_wire(name), sealed.as_slice());
                    (position, Message::MakePart { name, record })
                }
            };
            send_to(cx, here, position, &message);
        }
    }
}
