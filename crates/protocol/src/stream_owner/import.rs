//! Hash slots that come from another stream: the part of the destination (P10.8).
//!
//! The objects are stored by ordinary deltas of this stream. No client sees them until a configuration says that this
//! stream holds their slots. Only the hand-off that the installed configuration names is accepted, only the newest
//! attempt of its newest owner, and its batches only in order. So a frame that arrives late has no effect.

use super::access::{Refused, take_in};
use super::records::{Imported, Taken};
use super::{Phase, StreamOwner};
use crate::context::Context;
use crate::interface::{Channel, Out};
use crate::mark::Mark;
use crate::rules::Fault;
use paritas_base::configuration::Configuration;
use paritas_base::{ALL_DATABASES, Incarnation, NodeId, StreamId, Term, Time};
use paritas_store::Value;
use paritas_wire::peer::{ImportStatus, Message, Objects};

/// Bytes of objects stored in one turn, about. The import must not delay this stream's own clients.
const TURN_BYTES: usize = 32 << 10;

/// The current attempt of a source.
#[derive(Debug)]
pub(super) struct Import {
    pub(super) version: u64,
    term: Term,
    round: u32,
    /// The node that gets the answers.
    from: (NodeId, Incarnation),
    stream: StreamId,
    /// Number of the current batch, from 1; 0: old keys of the slots are being removed first.
    n: u32,
    /// The bytes of the current batch, and the number of them that are stored.
    batch: Vec<u8>,
    taken: usize,
    /// The batch is a piece of a body: the record of its object at the source, and the piece's offset.
    body: Option<(Box<[u8]>, u64)>,
    /// The answer to the batch, once it is stored.
    status: ImportStatus,
    /// Large values of which pieces have come.
    imported: Imported,
    /// The delta that must be acknowledged before the batch is answered; `None` while the batch is being stored.
    seq: Option<u64>,
    /// Whether the source has sent the batch, or sent it again, since the last answer.
    asked: bool,
    /// Number of keys of each database that did not exist here before.
    pub(super) keys: [u64; ALL_DATABASES as usize],
    pub(super) wake_at: Time,
}

impl Import {
    /// Whether the current batch is not stored yet.
    pub(super) fn is_taking(&self) -> bool {
        self.seq.is_none()
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.batch.capacity() + self.imported.held_bytes()
    }
}

impl StreamOwner {
    /// Handles a batch of a source. With `n` = 0 the source asks whether this stream is ready for the first batch.
    #[allow(clippy::too_many_arguments)] // The fields of one frame.
    pub(crate) fn on_import<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        from: (NodeId, Incarnation),
        version: u64,
        term: Term,
        round: u32,
        n: u32,
        objects: Objects<'_>,
    ) {
        self.on_import_batch(
            cx,
            configuration,
            from,
            (version, term, round, n),
            None,
            objects.bytes(),
        );
    }

    /// Handles a piece of the body of a large value. `record`: that of its object at the source.
    #[allow(clippy::too_many_arguments)] // The fields of one frame.
    pub(crate) fn on_import_body<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        from: (NodeId, Incarnation),
        version: u64,
        term: Term,
        round: u32,
        n: u32,
        record: &[u8],
        offset: u64,
        bytes: &[u8],
    ) {
        if n > 0 {
            let body = Some((record, offset));
            self.on_import_batch(cx, configuration, from, (version, term, round, n), body, bytes);
        }
    }

    fn on_import_batch<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        from: (NodeId, Incarnation),
        (version, term, round, n): (u64, Term, u32, u32),
        body: Option<(&[u8], u64)>,
        bytes: &[u8],
    ) {
        let named = configuration.slots.hand_off.filter(|h| h.to == self.stream);
        if self.phase != Phase::Serve || !self.store.chunks().directory_known() {
            return;
        }
        let Some(hand_off) = named.filter(|h| h.version == version) else {
            cx.out.mark(Mark::ImportRefused);
            return;
        };
        let known = self.hand_offs.import.as_ref().map(|i| (i.term, i.round));
        if known.is_some_and(|known| (term, round) < known) {
            cx.out.mark(Mark::ImportRefused);
            return;
        }
        if known != Some((term, round)) {
            if n != 0 {
                self.answer_import(
                    cx,
                    from,
                    hand_off.from,
                    (version, term, round, n),
                    ImportStatus::Unknown,
                );
                return;
            }
            // The keys of an earlier attempt may be outdated, so they are removed first.
            self.hand_offs.dirty |= cx.rules().removes_leftovers(known.is_some());
            self.purge_again();
            let mut imported = Imported::default();
            if let Some(import) = self.hand_offs.import.take().filter(|i| i.version == version) {
                imported = import.imported;
                self.records.keep_imported(&mut imported, import.round);
            }
            self.hand_offs.import = Some(Box::new(Import {
                version,
                term,
                round,
                from,
                stream: hand_off.from,
                n: 0,
                batch: Vec::new(),
                taken: 0,
                body: None,
                status: ImportStatus::Done,
                imported,
                seq: None,
                asked: true,
                keys: [0; ALL_DATABASES as usize],
                wake_at: cx.mono(),
            }));
            return;
        }
        let Some(import) = &mut self.hand_offs.import else {
            return;
        };
        if n == import.n {
            import.asked = true;
            import.from = from;
        } else if n == import.n + 1 && import.seq.is_some() && !import.asked {
            import.n = n;
            import.batch.clear();
            import.batch.extend_from_slice(bytes);
            import.body = body.map(|(record, offset)| (record.into(), offset));
            import.status = ImportStatus::Done;
            (import.taken, import.seq, import.asked) = (0, None, true);
        }
        import.wake_at = cx.mono();
    }

    fn answer_import<O: Out>(
        &self,
        cx: &mut Context<'_, O>,
        to: (NodeId, Incarnation),
        stream: StreamId,
        (version, term, round, n): (u64, Term, u32, u32),
        status: ImportStatus,
    ) {
        let message = Message::Imported {
            version,
            term,
            round,
            n,
            status,
        };
        cx.send_to(to.0, to.1, Channel::Main, stream, self.tenure.since, &message);
    }

    /// Stores more of the current batch, and answers it once its objects are safe.
    pub(super) fn take_in<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        let Some(mut import) = self.hand_offs.import.take() else {
            return;
        };
        if import.seq.is_none() && cx.mono() >= import.wake_at {
            import.wake_at = cx.mono();
            let done = if import.n == 0 {
                // No old key of these slots may be left here.
                let done = !self.hand_offs.dirty || self.purge(cx, configuration);
                if done { Ok(true) } else { Err(Refused::Wait) }
            } else if import.body.is_some() {
                self.take_in_piece(cx, configuration, &mut import)
            } else {
                self.take_in_batch(cx, configuration, &mut import)
            };
            match done {
                Ok(true) => import.seq = Some(self.log.newest_seq()),
                Ok(false) => {}
                Err(Refused::Wait) => import.wake_at = cx.after(cx.shared.parameters.retry),
                Err(refused) => {
                    let this = (import.version, import.term, import.round, import.n);
                    let status = match refused {
                        Refused::Unknown => ImportStatus::Unknown,
                        _ => ImportStatus::NoRoom,
                    };
                    if status == ImportStatus::NoRoom {
                        cx.out.mark(Mark::ImportWithoutMemory);
                    }
                    self.answer_import(cx, import.from, import.stream, this, status);
                    import.wake_at = cx.after(cx.shared.parameters.resend);
                }
            }
        }
        if import.seq.is_some_and(|seq| self.log.acked() >= seq) && import.asked {
            import.asked = false;
            let this = (import.version, import.term, import.round, import.n);
            self.answer_import(cx, import.from, import.stream, this, import.status);
        }
        if import.seq.is_some() {
            import.wake_at = Time(u64::MAX);
        }
        self.hand_offs.import = Some(import);
    }

    /// Takes more of a piece of a body. True if all of it is taken.
    fn take_in_piece<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        import: &mut Import,
    ) -> Result<bool, Refused> {
        let Some((record, offset)) = &import.body else {
            return Err(Refused::Unknown);
        };
        let piece = (*offset, import.batch.as_slice());
        let here = self.installed(configuration);
        let (imported, round) = (&mut import.imported, import.round);
        let taken = self.records.take_in_body(cx, &here, imported, round, record, piece)?;
        import.status = match taken {
            Taken::Piece => ImportStatus::Done,
            Taken::Whole => ImportStatus::Kept,
        };
        Ok(true)
    }

    /// Stores objects of the current batch, up to the limit of a turn. True if the whole batch is stored.
    fn take_in_batch<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        import: &mut Import,
    ) -> Result<bool, Refused> {
        let until = import.taken + TURN_BYTES;
        let rest = import.batch.get(import.taken..).unwrap_or_default();
        let mut rest = Objects::new(rest);
        while let Some((object, after)) = rest.split_first() {
            let mut record = Vec::new();
            if !object.record.is_empty() {
                let (here, imported) = (self.installed(configuration), &mut import.imported);
                let own = self.records.imported_record(cx, &here, imported, object.record)?;
                own.encode(&mut record);
            }
            let value = Value {
                bytes: object.value,
                expiry_ms: object.expiry_ms,
                flags: object.flags,
                marks: object.marks,
                hash_kind: object.hash_kind,
                record: record.get(1..).unwrap_or_default(),
            };
            let before = self.store.count().unwrap_or(0);
            let database = match cx.rules().fault(Fault::ImportedWithoutDatabase) {
                true => 0,
                false => object.database,
            };
            take_in(cx, configuration, self, (database, object.key), value)?;
            if !object.record.is_empty() {
                self.records.on_imported_named(&mut import.imported, object.record);
                cx.out.mark(Mark::LargeValueImported);
            }
            let new = self.store.count().unwrap_or(0).saturating_sub(before);
            let of = usize::from(object.database % ALL_DATABASES);
            self.hand_offs.foreign[of] += new;
            import.keys[of] += new;
            rest = after;
            import.taken = import.batch.len() - rest.bytes().len();
            if import.taken >= until {
                break;
            }
        }
        Ok(import.taken >= import.batch.len())
    }
}
