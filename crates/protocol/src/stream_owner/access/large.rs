//! Large values of a command (P14): their bodies lie in parts. A command that needs bytes or parts which are not there
//! waits, and is run again.

use super::{Access, Stop, Uploaded, WriteRefusal};
use crate::interface::Out;
use crate::mark::Mark;
use crate::parts::placement_of;
use crate::readers::ValueRange;
use crate::stream_owner::space::evict;
use crate::stream_owner::{Made, Piece, Ticket, body_bytes, class_of_new};
use core::ops::Range;
use paritas_base::{HIDDEN_DATABASE, Time};
use paritas_large::{Class, Record};
use paritas_store::{Image, Value, database_of};
use std::sync::Arc;

impl<O: Out> Access<'_, '_, O> {
    /// Stores a value that is too long for one object: its body lies in parts at the positions of the list (P14.2).
    /// `ticket` names the command, which is run again with the same value until the parts are there.
    ///
    /// # Errors
    /// [`Stop::Wait`] until every holder has its part. A refusal for a key or value that is too long, or if a holder
    /// has no memory for its part, and the errors of `change`.
    pub fn put_large(&mut self, ticket: Ticket, hash: u64, key: &[u8], value: Value<'_>) -> Result<(), Stop> {
        if self.draft.is_some() {
            return self.put_in_draft(hash, key, &value);
        }
        let pieces = [Piece::Bytes(value.bytes)];
        self.put_pieces(ticket, &[], hash, key, &pieces, value)
    }

    /// The same for a value that is made of bodies of other ones and of other bytes. `basis`: what the command has made
    /// the value from. If that is another one than before, the value is sent from its beginning. The bytes of `like` do
    /// not count.
    ///
    /// # Errors
    /// Those of [`Self::put_large`].
    pub fn put_pieces(
        &mut self,
        ticket: Ticket,
        basis: &[u8],
        hash: u64,
        key: &[u8],
        pieces: &[Piece<'_>],
        like: Value<'_>,
    ) -> Result<(), Stop> {
        let value_bytes = pieces.iter().map(Piece::length).sum::<u64>() as usize;
        self.check_large_limits(key.len(), value_bytes)?;
        if self.draft.is_some() {
            return self.put_pieces_in_draft(hash, key, pieces, like);
        }
        self.admit()?;
        let made = Made {
            basis,
            class: class_of_new(self.cx, self.class, key, value_bytes as u64),
            same_as: None,
            is_all_body: false,
        };
        let here = self.owner.installed(self.configuration);
        let records = &mut self.owner.records;
        let sealed = records.upload_pieces(self.cx, &here, ticket, &made, pieces);
        for piece in pieces {
            if let Piece::Body(record, _) = piece {
                self.note_move(self.owner.records.body_moved_at(record));
            }
        }
        let (sealed, tail) = self.sealed(ticket, value_bytes, sealed)?;
        self.put_sealed(ticket, hash, key, &sealed, Value { bytes: &tail, ..like })?;
        if self.owner.records.is_staged(ticket) {
            self.cx.out.mark(Mark::MadeOfStaged);
        }
        Ok(())
    }

    /// Sends one of several large values of a command, that in argument `at`, to its holders. No object names it yet.
    /// `total_bytes`: the length of all of them.
    ///
    /// # Errors
    /// Those of [`Self::put_large`].
    pub fn upload_argument(
        &mut self,
        ticket: Ticket,
        at: usize,
        key: &[u8],
        bytes: &[u8],
        total_bytes: usize,
    ) -> Result<Uploaded, Stop> {
        self.check_large_limits(key.len(), bytes.len())?;
        self.admit()?;
        let at = at as u32;
        let record = self.upload_value(ticket, at, (self.database, key), bytes, &[], total_bytes)?;
        Ok(Uploaded { ticket, at, record })
    }

    /// Sends one of several large values of a command to its holders. `basis`: as for [`Self::put_pieces`]. Rules for
    /// keys of clients are not about hidden ones: those have the redundancy of the scheme.
    pub(in crate::stream_owner) fn upload_value(
        &mut self,
        ticket: Ticket,
        at: u32,
        (database, key): (u8, &[u8]),
        bytes: &[u8],
        basis: &[u8],
        total_bytes: usize,
    ) -> Result<Arc<Record>, Stop> {
        let class = match database {
            HIDDEN_DATABASE => None,
            _ => class_of_new(self.cx, None, key, bytes.len() as u64),
        };
        let here = self.owner.installed(self.configuration);
        let records = &mut self.owner.records;
        let record = records.upload_argument(self.cx, &here, (ticket, at), class, basis, bytes);
        self.sealed(ticket, total_bytes, record)
    }

    /// Stores the object of such a value. It must be called in the turn in which [`Self::upload_argument`] has returned
    /// the value.
    ///
    /// # Errors
    /// Those of `change`.
    pub fn put_uploaded(
        &mut self,
        uploaded: &Uploaded,
        hash: u64,
        key: &[u8],
        expiry_ms: Option<u64>,
    ) -> Result<(), Stop> {
        let like = Value {
            expiry_ms,
            ..Value::default()
        };
        self.put_object(hash, key, &uploaded.record, like)?;
        self.owner.records.on_argument_named(uploaded.ticket, uploaded.at);
        self.cx.out.mark(Mark::SeveralLargeValues);
        Ok(())
    }

    /// A command of several large values has ended: what no object names is given up.
    pub fn end_arguments(&mut self, ticket: Ticket) {
        self.owner.records.end_arguments(ticket);
    }

    /// The same for a value that was sent ahead of its command (`StreamOwner::stage`). The bytes of `like` do not
    /// count.
    ///
    /// # Errors
    /// Those of [`Self::put_large`]. A refusal if the value has not come whole.
    pub fn put_staged(&mut self, ticket: Ticket, hash: u64, key: &[u8], like: Value<'_>) -> Result<(), Stop> {
        self.check_limits(key.len(), 0)?;
        let (sealed, tail) = self.sealed_staged(ticket)?;
        self.put_object(hash, key, &sealed, Value { bytes: &tail, ..like })?;
        self.owner.records.end_staged(ticket, true);
        self.cx.out.mark(Mark::ValueStaged);
        Ok(())
    }

    /// A value that was sent ahead of its command, for a command that makes another one of it: the record of its body,
    /// and its tail.
    ///
    /// # Errors
    /// Those of [`Self::put_staged`].
    pub fn staged(&mut self, ticket: Ticket) -> Result<(Vec<u8>, Vec<u8>), Stop> {
        let (sealed, tail) = self.sealed_staged(ticket)?;
        let mut record = Vec::new();
        sealed.encode(&mut record);
        record.remove(0);
        Ok((record, tail))
    }

    fn sealed_staged(&mut self, ticket: Ticket) -> Result<(Arc<Record>, Vec<u8>), Stop> {
        self.note_move(self.owner.records.upload_moved_at(ticket));
        self.admit()?;
        let sealed = self.owner.sealed_staged(self.cx, self.configuration, ticket);
        if sealed == Err(Stop::Refused(WriteRefusal::NotStaged)) {
            self.cx.out.mark(Mark::ValueNotStaged);
        }
        sealed
    }

    /// The command of a staged value has ended: what no object names is given up.
    pub fn unstage(&mut self, ticket: Ticket) {
        self.owner.records.unstage(ticket);
    }

    /// Stores the object of a draft. `record`: that of its value, if the value is large.
    pub(in crate::stream_owner) fn put_image(
        &mut self,
        hash: u64,
        key: &[u8],
        image: &Image,
        record: Option<&Record>,
    ) -> Result<(), Stop> {
        let value = image.value();
        if let Some(record) = record {
            return self.put_object(hash, key, record, Value { bytes: &[], ..value });
        }
        self.put_value(hash, key, value)?;
        self.begun = true;
        Ok(())
    }

    /// Gives the value of an object another class (P14.10). `record` and `tail` are those of the object, in which
    /// nothing else changes. If the key has another record before the new parts are there, the command begins again.
    ///
    /// # Errors
    /// [`Stop::Wait`] until every holder has its part, and the errors of [`Self::put_large`].
    pub fn change_class(
        &mut self,
        ticket: Ticket,
        hash: u64,
        key: &[u8],
        class: Class,
        record: &[u8],
        tail: Value<'_>,
    ) -> Result<(), Stop> {
        self.admit()?;
        let value_bytes = body_bytes(record) as usize + tail.bytes.len();
        let here = self.owner.installed(self.configuration);
        let records = &mut self.owner.records;
        let changed = records.upload_again(self.cx, &here, ticket, class, record, tail.bytes);
        self.note_move(self.owner.records.body_moved_at(record));
        let (sealed, bytes) = self.sealed(ticket, value_bytes, changed)?;
        self.put_sealed(ticket, hash, key, &sealed, Value { bytes: &bytes, ..tail })
    }

    /// The large value that the command writes gets this class.
    pub fn give_class(&mut self, class: Class) {
        self.class = Some(class);
    }

    /// The redundancy of objects, which lie in stripes.
    pub fn scheme(&self) -> Class {
        match (self.configuration.data, self.configuration.parity) {
            (_, 0) => Class::Rep { copies: 1 },
            (data, parity) => Class::Ec { data, parity },
        }
    }

    /// Whether a large value of this stream may have a class. An error says why not.
    ///
    /// # Errors
    /// What is wrong, and what would do.
    pub fn check_class(&self, class: Class) -> Result<(), String> {
        let placement = placement_of(self.cx, self.configuration, class, self.owner.stream.x);
        placement.map(|_| ()).map_err(|error| error.to_string())
    }

    /// The result of an upload, once the command knows when it moved last and keys were evicted for it.
    pub(super) fn sealed<T>(&mut self, ticket: Ticket, value_bytes: usize, result: Result<T, Stop>) -> Result<T, Stop> {
        self.note_move(self.owner.records.upload_moved_at(ticket));
        result.map_err(|stop| self.evict_for_parts(ticket, value_bytes, stop))
    }

    /// Stores the object of a value whose parts are all there. `tail`: the object, without the record.
    fn put_sealed(
        &mut self,
        ticket: Ticket,
        hash: u64,
        key: &[u8],
        sealed: &Record,
        tail: Value<'_>,
    ) -> Result<(), Stop> {
        self.put_object(hash, key, sealed, tail)?;
        self.owner.records.end_upload(ticket, true);
        Ok(())
    }

    fn put_object(&mut self, hash: u64, key: &[u8], sealed: &Record, tail: Value<'_>) -> Result<(), Stop> {
        let mut record = Vec::new();
        sealed.encode(&mut record);
        let value = Value {
            record: record.get(1..).unwrap_or_default(),
            ..tail
        };
        self.put_value(hash, key, value)?;
        self.begun = true;
        Ok(())
    }

    /// A holder has no memory for a part. Keys of this stream have their parts at the same holders: some are evicted,
    /// and the value is begun again. Not more than the value's own length is evicted for it.
    fn evict_for_parts(&mut self, ticket: Ticket, value_bytes: usize, stop: Stop) -> Stop {
        let is_full = stop == Stop::Refused(WriteRefusal::NoMemory);
        if !is_full || !self.owner.store.policy().evicts() {
            return stop;
        }
        let chunk_bytes = self.cx.shared.arena.chunk_bytes() as u64;
        let may_evict = self
            .owner
            .records
            .may_evict_for(ticket, chunk_bytes, value_bytes as u64);
        if may_evict && evict(self.cx, self.configuration, self.owner, chunk_bytes) {
            self.owner.wake.progress = true;
            return Stop::Wait;
        }
        stop
    }

    /// Length in bytes from which a value is read and written in pieces.
    pub fn streamed_bytes_min(&self) -> u64 {
        self.cx.shared.parameters.streamed_bytes_min
    }

    /// The longest reply to an MGET that is made whole, in bytes.
    pub fn mget_bytes_max(&self) -> usize {
        self.cx.shared.parameters.mget_bytes_max
    }

    /// Whether the client of this command is at this node.
    pub fn is_own(&self, ticket: Ticket) -> bool {
        (ticket.node, ticket.incarnation) == (self.cx.shared.node, self.cx.shared.incarnation)
    }

    /// Pins a large value, of which this range is the reply: the node of the client reads it (P14.21). `record` and
    /// `tail` are those of its object.
    ///
    /// # Errors
    /// [`Stop::Wait`] while too many are pinned.
    pub fn pin(&mut self, ticket: Ticket, record: &[u8], tail: &[u8], range: Range<u64>) -> Result<ValueRange, Stop> {
        let record = self.owner.records.pin(self.cx, ticket, record)?;
        let needs_tail = range.end > record.body_bytes;
        let tail = if needs_tail { tail.to_vec() } else { Vec::new() };
        Ok(ValueRange { record, tail, range })
    }

    /// The command that has pinned a value is refused.
    pub fn unpin(&mut self, ticket: Ticket) {
        self.owner.records.unpin(ticket);
    }

    /// The body of a large value, or a range of it. `record` is that of its object.
    ///
    /// # Errors
    /// [`Stop::Wait`] until all of the range is here.
    pub fn body(&mut self, record: &[u8], range: Range<u64>) -> Result<&[u8], Stop> {
        let here = self.owner.installed(self.configuration);
        if let Err(stop) = self.owner.records.body(self.cx, &here, record, range.clone()) {
            self.note_move(self.owner.records.body_moved_at(record));
            for (record, range) in core::mem::take(self.bodies_read()) {
                self.owner.records.keep_body(&record, &range);
            }
            return Err(stop);
        }
        self.bodies_read().push((record.to_vec(), range.clone()));
        let here = self.owner.installed(self.configuration);
        self.owner.records.body(self.cx, &here, record, range)
    }

    /// Bodies that the command, or its transaction, has read.
    fn bodies_read(&mut self) -> &mut Vec<(Vec<u8>, Range<u64>)> {
        match self.draft.as_deref_mut() {
            Some(draft) => &mut draft.bodies_read,
            None => &mut self.bodies_read,
        }
    }

    /// Whether reads of large values are counted (P14.15).
    pub fn counts_reads(&self) -> bool {
        self.cx.shared.parameters.hotness.is_some()
    }

    /// The command has read `read_bytes` bytes of a large value, and is done. `record`, `tail_bytes`: of its object.
    pub fn note_read(&mut self, hash: u64, key: &[u8], record: &[u8], tail_bytes: usize, read_bytes: u64) {
        self.owner
            .records
            .note_read(self.cx, (database_of(hash), key), record, tail_bytes, read_bytes);
    }

    /// A command that waits for a large value has moved on.
    pub(super) fn note_move(&mut self, at: Option<Time>) {
        self.moved_at = self.moved_at.max(at);
    }

    /// When something of the large values that the command waits for was sent or received last.
    pub fn moved_at(&self) -> Option<Time> {
        self.moved_at
    }
}
