//! A large value on its way to its holders (P14.2). The bytes stay with the client's command: each time it is run
//! again, it sends what may be sent.

mod piece;
mod uploading;

use super::{Installed, Origin, Records, Ticket, holders, number_of};
use crate::bodies::window_of;
use crate::context::Context;
use crate::interface::{Channel, Out};
use crate::parts::{placement_of, positions_in_memory};
use crate::rules::Fault;
use crate::stream_owner::{Stop, WriteRefusal};
use paritas_base::{Incarnation, NodeId, PartState, Position, Span, Time};
use paritas_code::Scheme;
use paritas_large::{Acceptance, Class, Fingerprint, Layout, PartName, Record, Transition, UploadFailed};
use paritas_wire::peer::Message;
pub use piece::Piece;
use piece::{ZEROS, piece_at};
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
pub(in crate::stream_owner) use uploading::Uploading;

/// The longest value in bytes.
pub const LARGE_VALUE_BYTES_MAX: usize = 512 << 20;

/// Units of a part that are taken before the command that sends them runs again: half of those that may be under way.
const TAKEN_PER_RUN: u32 = paritas_large::UNTAKEN_MAX / 2;

/// How often a value is begun again if the key that it is made from changes meanwhile. Then it is refused.
const OVERTAKEN_MAX: u32 = 16;

/// The class of a new large value: that which its command gives it, else the one that rules and settings give. `None`:
/// that of the scheme.
pub(in crate::stream_owner) fn class_of_new<O: Out>(
    cx: &Context<'_, O>,
    given: Option<Class>,
    key: &[u8],
    value_bytes: u64,
) -> Option<Class> {
    let given = given.filter(|_| !cx.rules().fault(Fault::ClassOfWriteForgotten));
    given.or_else(|| cx.shared.parameters.class_of(key, value_bytes))
}

/// The position from which the parts of a new value are placed: that of the stream. A cold value that is coded, and of
/// which hot ones are `eor` of as many data blocks, has its data blocks where `eor` has them: they stay when it becomes
/// hot (P14.15).
pub(super) fn place_of<O: Out>(cx: &Context<'_, O>, here: &Installed<'_>, class: Class) -> Position {
    let x = here.stream.x;
    let hotness = cx.shared.parameters.hotness.filter(|hotness| hotness.cold == class);
    match (hotness.map(|hotness| hotness.hot), class) {
        (Some(hot @ Class::Eor { data, .. }), Class::Ec { data: same, .. }) if data == same => {
            let hot = placement_of(cx, here.configuration, hot, x);
            hot.map_or(x, |hot| Position(hot.first()))
        }
        _ => x,
    }
}

/// How a large value is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made<'a> {
    /// What the command has made the value from. If that is another one than before, the value is sent from its
    /// beginning.
    pub(crate) basis: &'a [u8],
    /// The class that it gets; `None`: that of the scheme.
    pub(crate) class: Option<Class>,
    /// The record of an object with the same bytes: its data group stays if the new class cuts them alike.
    pub(crate) same_as: Option<&'a Record>,
    /// All of the value lies in the body: the object has no tail.
    pub(crate) is_all_body: bool,
}

/// What a command makes a value from, and how often that has changed.
#[derive(Debug)]
pub(in crate::stream_owner) struct Overtaken {
    basis_hash: u64,
    count: u32,
    wanted_at: Time,
}

impl Records {
    /// Sends what may be sent of a value that has begun. `bytes` are those from `offset` on, or some of them. Returns
    /// its record when an object may name it.
    ///
    /// # Errors
    /// [`Stop::Wait`] until every holder has its part. A refusal if a holder has no memory for it.
    pub(super) fn send_value<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        here: &Installed<'_>,
        of: Origin,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Arc<Record>, Stop> {
        let now = cx.mono();
        let redundancy = cx.shared.cluster.min_redundancy.min(cx.shared.cluster.parity);
        let holders = holders(here.configuration);
        let Some(uploading) = self.uploads.get_mut(&of) else {
            return Err(Stop::Wait);
        };
        uploading.wanted_at = now;
        let upload_bytes = uploading.staged().body_bytes;
        let in_body = upload_bytes.saturating_sub(offset).min(bytes.len() as u64) as usize;
        let bytes = bytes.get(..in_body).unwrap_or_default();
        uploading.tell(cx, here, &holders, false);
        let before = uploading.sent_bytes;
        // If the last row is short, units without bytes may remain to be sent after the last byte.
        let rest_of = |at: usize, sent: u64| match bytes.get(at..).filter(|rest| !rest.is_empty()) {
            None if sent == upload_bytes => Some(&[][..]),
            rest => rest,
        };
        while !uploading.is_sent()
            && let Some(at) = uploading.sent_bytes.checked_sub(offset)
            && let Some(rest) = rest_of(at as usize, uploading.sent_bytes)
        {
            let taken = uploading.push(cx, here, rest);
            uploading.sent_bytes += taken as u64;
            if taken == 0 {
                break;
            }
        }
        if uploading.is_sent() {
            uploading.tell(cx, here, &holders, false);
        }
        if uploading.sent_bytes > before {
            uploading.moved_at = Some(now);
        }
        if uploading.is_sent() && cx.rules().fault(Fault::PutBeforeKept) {
            return Ok(Arc::new(uploading.acceptance.record()));
        }
        let is_staging = self.ledger.is_staging(uploading.staged());
        let failed = match uploading.is_ready(&holders, redundancy, is_staging) {
            Ok(true) => return Ok(Arc::new(uploading.acceptance.record())),
            Ok(false) => return Err(Stop::Wait),
            Err(failed) => failed,
        };
        self.end_upload_of(of, false);
        match failed {
            UploadFailed::NoRoom => Err(Stop::Refused(WriteRefusal::NoMemory)),
            // It is begun again when the command runs next.
            UploadFailed::Refused | UploadFailed::NotAsNamed | UploadFailed::Forged | UploadFailed::Lost => {
                Err(Stop::Wait)
            }
        }
    }

    /// Begins to send a value whose groups are staged.
    pub(super) fn begin_upload<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        here: &Installed<'_>,
        of: Origin,
        basis: &[u8],
        record: Arc<Record>,
    ) -> Result<(), Stop> {
        let (positions, unit_bytes) = cut_of(cx, here);
        let acceptance = match of {
            Origin::ByClient(_) => Acceptance::of_client(record.clone(), positions, unit_bytes),
            _ => Acceptance::new(record.clone(), positions, unit_bytes, self.ledger.keeps_data(&record)),
        };
        let Ok(mut acceptance) = acceptance else {
            self.ledger.end_staging(&record);
            return Err(Stop::Refused(WriteRefusal::TooLarge));
        };
        if cx.rules().fault(Fault::FingerprintNotCompared) {
            acceptance.compare_no_fingerprints();
        }
        let now = cx.mono();
        let uploading = Uploading {
            acceptance,
            sender: None,
            basis: basis.into(),
            sent_bytes: 0,
            wanted_at: now,
            moved_at: None,
            failed: None,
        };
        self.begin_work(cx);
        self.uploads.insert(of, uploading);
        Ok(())
    }

    /// Chooses class and positions of a value, and gives out ids for its groups. `None` if it cannot have parts.
    pub(super) fn stage_groups<O: Out>(
        &mut self,
        cx: &Context<'_, O>,
        here: &Installed<'_>,
        made: &Made<'_>,
        value_bytes: u64,
    ) -> Option<Arc<Record>> {
        let ((positions, unit_bytes), logged) = (cut_of(cx, here), cx.shared.cluster.logged);
        let class = made.class.or_else(|| default_class(cx, here, value_bytes))?;
        let layout = match made.is_all_body {
            true => Layout::of_body(value_bytes, class.data(), unit_bytes)?,
            false => Layout::of_value(value_bytes, class.data(), unit_bytes)?.0,
        };
        let x = place_of(cx, here, class);
        let ledger = &mut self.ledger;
        let placement = match made.same_as {
            None => placement_of(cx, here.configuration, class, x).ok()?,
            Some(old) => {
                let before = (old.placement(positions).ok()?, old.layout(unit_bytes)?);
                let is_shared = !ledger.may_keep(old);
                let (from, to) = ((&before.0, &before.1), &layout);
                let places = (positions, logged);
                let transition = Transition::new(*from.0, class, x.0, places, (from.1, to), is_shared).ok()?;
                if transition.keeps_data {
                    return ledger.stage_beside(old, class, transition.to.logged());
                }
                transition.to
            }
        };
        ledger.stage(class, placement.first(), placement.logged(), layout.body_bytes())
    }

    /// Writes the value of an object again, in another class. Returns the new record, and the new tail.
    ///
    /// # Errors
    /// Those of [`Self::upload_pieces`].
    pub(in crate::stream_owner) fn upload_again<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        here: &Installed<'_>,
        ticket: Ticket,
        class: Class,
        record: &[u8],
        tail: &[u8],
    ) -> Result<(Arc<Record>, Vec<u8>), Stop> {
        let old = super::decode(record).ok_or(Stop::Wait)?;
        let basis = [record, tail].concat();
        let made = Made {
            basis: &basis,
            class: Some(class),
            same_as: Some(&old),
            is_all_body: false,
        };
        let pieces = [Piece::Body(record, 0..old.body_bytes), Piece::Bytes(tail)];
        self.upload_pieces(cx, here, ticket, &made, &pieces)
    }

    /// Sends what may be sent of one of several values of a command. Returns the record when an object may name it.
    ///
    /// # Errors
    /// Those of [`Self::upload_pieces`].
    pub(in crate::stream_owner) fn upload_argument<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        here: &Installed<'_>,
        (ticket, at): (Ticket, u32),
        class: Option<Class>,
        basis: &[u8],
        bytes: &[u8],
    ) -> Result<Arc<Record>, Stop> {
        let made = Made {
            basis,
            class,
            same_as: None,
            // The objects of all values are in one delta: they must be short.
            is_all_body: true,
        };
        let of = Origin::Argument(ticket, at);
        let sealed = self.upload(cx, here, of, &made, &[Piece::Bytes(bytes)]);
        sealed.map(|(record, _)| record)
    }

    /// The object of one of several values of a command was put into the store.
    pub(in crate::stream_owner) fn on_argument_named(&mut self, ticket: Ticket, at: u32) {
        self.end_upload_of(Origin::Argument(ticket, at), true);
    }

    /// A command of several values has ended: those that no object names are given up.
    pub(in crate::stream_owner) fn end_arguments(&mut self, ticket: Ticket) {
        for of in self.arguments_of(ticket) {
            self.end_upload_of(of, false);
        }
        let is_its_own = |of: &Origin| matches!(of, Origin::Argument(ended, _) if *ended == ticket);
        self.overtaken.retain(|of, _| !is_its_own(of));
    }

    fn arguments_of(&self, ticket: Ticket) -> Vec<Origin> {
        let all = Origin::Argument(ticket, 0)..=Origin::Argument(ticket, u32::MAX);
        self.uploads.range(all).map(|(of, _)| *of).collect()
    }

    /// Sends what may be sent of a value that is made of bodies of other ones, and of other bytes. The bodies are read
    /// in windows. Returns the record when an object may name it, and the tail of the value.
    ///
    /// # Errors
    /// [`Stop::Wait`] until every holder has its part. A refusal if a holder has no memory for it.
    pub(in crate::stream_owner) fn upload_pieces<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        here: &Installed<'_>,
        ticket: Ticket,
        made: &Made<'_>,
        pieces: &[Piece<'_>],
    ) -> Result<(Arc<Record>, Vec<u8>), Stop> {
        self.upload(cx, here, Origin::Command(ticket), made, pieces)
    }

    pub(super) fn upload<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        here: &Installed<'_>,
        of: Origin,
        made: &Made<'_>,
        pieces: &[Piece<'_>],
    ) -> Result<(Arc<Record>, Vec<u8>), Stop> {
        // A key that the value is made from has changed since.
        let uploading = self.uploads.get(&of);
        let is_of_another = uploading.is_some_and(|uploading| *uploading.basis != *made.basis);
        if is_of_another && !cx.rules().fault(Fault::SwapWithoutCompare) {
            self.end_upload_of(of, false);
        }
        if matches!(of, Origin::Command(_) | Origin::Argument(..)) && self.is_overtaken(cx.mono(), of, made.basis) {
            self.end_upload_of(of, false);
            return Err(Stop::Refused(WriteRefusal::Overtaken));
        }
        let value_bytes = pieces.iter().map(Piece::length).sum();
        if !self.uploads.contains_key(&of) {
            let staged = self.stage_groups(cx, here, made, value_bytes);
            let record = staged.ok_or(Stop::Refused(WriteRefusal::TooLarge))?;
            self.begin_upload(cx, here, of, made.basis, record)?;
        }
        let sealed = loop {
            let Some(uploading) = self.uploads.get(&of) else {
                return Err(Stop::Wait);
            };
            let (at, body_bytes) = (uploading.sent_bytes, uploading.staged().body_bytes);
            let piece = piece_at(pieces, at).filter(|_| at < body_bytes);
            let sent = match piece {
                None => self.send_value(cx, here, of, at, &[]),
                Some(piece) => self.with_piece(cx, here, piece, |records, cx, bytes| {
                    records.send_value(cx, here, of, at, bytes)
                })?,
            };
            match sent {
                Ok(sealed) => break sealed,
                Err(stop) => {
                    let uploading = self.uploads.get(&of);
                    if stop != Stop::Wait || uploading.is_none_or(|uploading| uploading.sent_bytes == at) {
                        return Err(stop);
                    }
                }
            }
        };
        let mut tail = Vec::new();
        let mut at = sealed.body_bytes;
        while let Some(piece) = piece_at(pieces, at) {
            at += self.with_piece(cx, here, piece, |_, _, bytes| {
                tail.extend_from_slice(bytes);
                bytes.len() as u64
            })?;
        }
        Ok((sealed, tail))
    }

    /// Whether what a command makes its value from has changed so often that the command is refused.
    fn is_overtaken(&mut self, now: Time, of: Origin, basis: &[u8]) -> bool {
        if basis.is_empty() {
            return false;
        }
        let mut hasher = DefaultHasher::new();
        hasher.write(basis);
        let basis_hash = hasher.finish();
        let overtaken = self.overtaken.entry(of).or_insert(Overtaken {
            basis_hash,
            count: 0,
            wanted_at: now,
        });
        if overtaken.basis_hash != basis_hash {
            overtaken.basis_hash = basis_hash;
            overtaken.count += 1;
        }
        overtaken.wanted_at = now;
        overtaken.count > OVERTAKEN_MAX
    }

    /// Calls `then` with bytes of a piece from an offset on: with all, or with some. At least one is there.
    ///
    /// # Errors
    /// [`Stop::Wait`] while the bytes of a body are not here.
    fn with_piece<O: Out, T>(
        &mut self,
        cx: &mut Context<'_, O>,
        here: &Installed<'_>,
        (piece, offset): (&Piece<'_>, u64),
        then: impl FnOnce(&mut Self, &mut Context<'_, O>, &[u8]) -> T,
    ) -> Result<T, Stop> {
        let rest_bytes = piece.length() - offset;
        let (at, of) = match piece {
            Piece::Body(record, range) => (range.start + offset, super::decode(record).ok_or(Stop::Wait)?),
            Piece::Bytes(bytes) => {
                let rest = bytes.get(offset as usize..).unwrap_or_default();
                return Ok(then(self, cx, rest));
            }
            Piece::Zeros(_) => {
                let zeros = ZEROS.get(..rest_bytes.min(ZEROS.len() as u64) as usize);
                return Ok(then(self, cx, zeros.unwrap_or_default()));
            }
        };
        self.window(cx, here, &of, at)?;
        let window = window_of(cx, &of, at);
        // Taken for the time of the call, because the upload changes other records.
        let bytes = self.bodies.take(&of, &window).ok_or(Stop::Wait)?;
        let rest = bytes.get((at - window.start) as usize..).unwrap_or_default();
        let some = rest.get(..rest_bytes.min(rest.len() as u64) as usize);
        let result = then(self, cx, some.unwrap_or_default());
        self.bodies.give(&of, &window, bytes);
        Ok(result)
    }

    /// When something of a value was sent or answered last.
    pub(in crate::stream_owner) fn upload_moved_at(&self, ticket: Ticket) -> Option<Time> {
        let whole = [
            Origin::Command(ticket),
            Origin::Staged(ticket),
            Origin::ByClient(ticket),
        ];
        let all = whole.into_iter().chain(self.arguments_of(ticket));
        all.filter_map(|of| self.uploads.get(&of)?.moved_at).max()
    }

    /// The object of a value was put into the store (`is_named`), or the value is given up.
    pub(in crate::stream_owner) fn end_upload(&mut self, ticket: Ticket, is_named: bool) {
        self.overtaken.remove(&Origin::Command(ticket));
        self.end_upload_of(Origin::Command(ticket), is_named);
    }

    pub(super) fn end_upload_of(&mut self, of: Origin, is_named: bool) {
        if let Some(uploading) = self.uploads.remove(&of) {
            let staged = uploading.staged();
            if is_named {
                self.named.push(staged.clone());
            } else {
                self.ledger.end_staging(staged);
            }
        }
    }

    /// P14.2: how far a part is at its holder. Returns the value ahead of its command that may go on.
    pub(in crate::stream_owner) fn on_part_state<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        here: &Installed<'_>,
        from: (NodeId, Incarnation),
        name: PartName,
        question: u32,
        (state, fingerprint): (PartState, Option<&Fingerprint>),
    ) -> Option<Ticket> {
        let has_group = |uploading: &Uploading| uploading.staged().groups().any(|group| group == name.group);
        let mut uploads = self.uploads.iter_mut();
        let Some((of, uploading)) = uploads.find(|(_, uploading)| has_group(uploading)) else {
            self.answer_dead(cx, here, from, name, state);
            return None;
        };
        let position = uploading.acceptance.position_of(name);
        let holder = position.and_then(|at| here.configuration.tenure(Position(at)));
        let holder = holder.filter(|holder| (holder.node, holder.incarnation) == from)?;
        // Other answers only repeat what is known. If they counted, a value that never completes would never be
        // refused.
        if matches!(state, PartState::Taken(_) | PartState::Kept(_)) {
            uploading.moved_at = Some(cx.now.mono);
        }
        uploading.on_answer(number_of(&holder), name, question, state, fingerprint);
        // The command need not run for each unit.
        let must_run = !matches!(state, PartState::Taken(units) if units % TAKEN_PER_RUN != 0);
        match *of {
            Origin::Staged(ticket) => {
                self.woken.progress |= must_run;
                return must_run.then_some(ticket);
            }
            Origin::Command(_) | Origin::Argument(..) | Origin::ByClient(_) => self.woken.progress |= must_run,
            Origin::Change => self.hurry_change(cx.now.mono),
            Origin::Import(_) => self.woken.hand_off |= must_run,
        }
        None
    }

    /// Asks holders again. Gives up values whose client has gone, and those whose data group was to stay and does not
    /// (P14.10).
    pub(super) fn tend_uploads<O: Out>(&mut self, cx: &mut Context<'_, O>, here: &Installed<'_>, forgotten: Span) {
        let now = cx.mono();
        self.overtaken
            .retain(|_, overtaken| now <= overtaken.wanted_at + forgotten);
        let (uploads, ledger) = (self.uploads.iter(), &self.ledger);
        // Values of a hand-off end with it.
        let is_over = |of: &Origin, uploading: &Uploading| {
            let is_forgotten = !matches!(of, Origin::Import(_)) && now > uploading.wanted_at + forgotten;
            is_forgotten || !ledger.is_staging(uploading.staged())
        };
        let over: Vec<Origin> = uploads
            .filter_map(|(of, uploading)| is_over(of, uploading).then_some(*of))
            .collect();
        for of in over {
            self.end_upload_of(of, false);
        }
        let holders = holders(here.configuration);
        for uploading in self.uploads.values_mut() {
            uploading.tell(cx, here, &holders, true);
        }
    }
}

/// The class of a value for which none was chosen.
fn default_class<O: Out>(cx: &Context<'_, O>, here: &Installed<'_>, value_bytes: u64) -> Option<Class> {
    let unit_bytes = cx.shared.arena.chunk_bytes() as u32;
    let scheme = Scheme::new(here.configuration.data, here.configuration.parity).ok()?;
    Class::of_scheme(scheme, value_bytes, unit_bytes)
}

/// Positions in memory, and bytes of a unit.
fn cut_of<O: Out>(cx: &Context<'_, O>, here: &Installed<'_>) -> (u8, u32) {
    let unit_bytes = cx.shared.arena.chunk_bytes() as u32;
    (positions_in_memory(cx, here.configuration), unit_bytes)
}

/// Sends a message about parts to the holder of a position.
fn send_to<O: Out>(cx: &mut Context<'_, O>, here: &Installed<'_>, position: u8, message: &Message<'_>) {
    if let Some(holder) = here.configuration.tenure(Position(position)) {
        cx.send(&holder, Channel::Bulk, here.stream, here.configuration.epoch, message);
    }
}
