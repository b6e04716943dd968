//! Drafts: what a transaction will change.
//!
//! The commands of a transaction run on a draft. They read the draft, then the stream, and change the draft alone. At
//! the end all changes are made in one delta (P1.3). A transaction that must wait throws its draft away, and runs again
//! from its start.

use super::access::{Access, KEY_STEPS, Stop, WriteRefusal};
use super::records::Ticket;
use super::{LARGE_VALUE_BYTES_MAX, Piece};
use crate::interface::Out;
use crate::rules::Fault;
use core::ops::Range;
use paritas_base::{Map, Time, TurnBudget};
use paritas_large::Record;
use paritas_store::{Image, RECORD_BYTES_MAX, Value, database_of};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most bytes of keys and values that a transaction may put, those that it puts again included.
const DRAFT_BYTES_MAX: usize = (16 << 20) + (128 << 10);
/// Steps of work that a transaction may do in its turn, about 40 ms: those of the longest command of many keys.
const DRAFT_STEPS_MAX: u64 = KEY_STEPS << 16;
/// Bytes of an object that cost a step to copy.
const BYTES_OF_STEP: u64 = 4;
/// Large values of one transaction that are on their way to their holders at a time.
const UPLOADS_AT_ONCE: usize = 4;

/// What becomes of a key.
#[derive(Debug)]
struct Change {
    hash: u64,
    /// The key, with the value that it gets.
    image: Image,
    is_removed: bool,
    /// Names the value among those of the transaction, also when it runs again.
    at: u32,
}

/// What a transaction will change, and what it has read.
#[derive(Debug)]
pub struct Draft {
    /// One for each key.
    changes: Vec<Change>,
    /// Changes by the hash of their key, of more than [`FEW`]. Of several keys with one hash, one is here.
    by_hash: Map<u64, u32>,
    pub(super) need: u64,
    pub(super) looked: bool,
    pub(super) changed: bool,
    pub(super) moved_at: Option<Time>,
    /// Records of the bodies that it has read, and which ranges.
    pub(super) bodies_read: Vec<(Vec<u8>, Range<u64>)>,
    pub(super) budget: TurnBudget,
    /// The number of the command that runs, and of values that it has put.
    command: u16,
    puts: u16,
    put_bytes: usize,
}

/// This number of changes is searched one by one.
const FEW: usize = 16;

impl Default for Draft {
    fn default() -> Self {
        Self {
            changes: Vec::with_capacity(FEW),
            by_hash: Map::default(),
            need: 0,
            looked: false,
            changed: false,
            moved_at: None,
            bodies_read: Vec::new(),
            budget: TurnBudget::new(DRAFT_STEPS_MAX),
            command: 0,
            puts: 0,
            put_bytes: 0,
        }
    }
}

impl Draft {
    /// The next command begins, with this number of words. Returns whether its work may still be done.
    pub fn begin_command(&mut self, words: usize) -> bool {
        (self.command, self.puts) = (self.command.wrapping_add(1), 0);
        self.budget.spend(words as u64 * KEY_STEPS);
        self.has_steps()
    }

    /// Whether the transaction may do more work.
    pub const fn has_steps(&self) -> bool {
        self.budget.left() > 0
    }

    /// Steps that it may still do.
    pub const fn steps_left(&self) -> u64 {
        self.budget.left()
    }

    /// Takes work that was done for it.
    pub const fn spend(&mut self, steps: u64) {
        self.budget.spend(steps);
    }

    /// Steps of work done so far.
    pub const fn steps(&self) -> u64 {
        DRAFT_STEPS_MAX - self.budget.left()
    }

    /// When something of the large values that it waits for was sent or received last.
    pub const fn moved_at(&self) -> Option<Time> {
        self.moved_at
    }

    /// The key's object as it will be: `None` if the draft does not change it, `Some(None)` if it will be absent.
    #[inline]
    pub(super) fn find(&self, hash: u64, key: &[u8]) -> Option<Option<&Image>> {
        let at = self.index_of(hash, key)?;
        let change = self.changes.get(at)?;
        Some((!change.is_removed).then_some(&change.image))
    }

    fn index_of(&self, hash: u64, key: &[u8]) -> Option<usize> {
        let is_it = |change: &Change| change.hash == hash && change.image.key() == key;
        if self.changes.len() > FEW {
            let at = *self.by_hash.get(&hash)? as usize;
            if self.changes.get(at).is_some_and(is_it) {
                return Some(at);
            }
        }
        self.changes.iter().position(is_it)
    }

    /// Takes the work of reading an object of this length.
    pub(super) const fn on_read(&mut self, bytes: usize) {
        self.budget.spend(bytes as u64 / BYTES_OF_STEP);
    }

    fn set(&mut self, change: Change) {
        match self.index_of(change.hash, change.image.key()) {
            Some(at) => {
                if let Some(place) = self.changes.get_mut(at) {
                    *place = change;
                }
            }
            None => {
                self.changes.push(change);
                let from = match self.changes.len() {
                    ..=FEW => return,
                    count if count == FEW + 1 => 0,
                    count => count - 1,
                };
                for (at, change) in self.changes.iter().enumerate().skip(from) {
                    self.by_hash.insert(change.hash, at as u32);
                }
            }
        }
    }

    fn put(&mut self, hash: u64, key: &[u8], value: &Value<'_>) -> Result<(), Stop> {
        self.put_bytes = self.put_bytes.saturating_add(key.len() + value.bytes.len());
        if self.put_bytes > DRAFT_BYTES_MAX {
            let bytes_max = DRAFT_BYTES_MAX;
            return Err(Stop::Refused(WriteRefusal::CommandTooLarge { bytes_max }));
        }
        self.on_read(value.bytes.len());
        self.puts = self.puts.wrapping_add(1);
        self.set(Change {
            hash,
            image: Image::new(database_of(hash), key, value),
            is_removed: false,
            at: u32::from(self.command) << 16 | u32::from(self.puts),
        });
        Ok(())
    }

    fn remove(&mut self, hash: u64, key: &[u8]) {
        self.set(Change {
            hash,
            image: Image::new(database_of(hash), key, &Value::default()),
            is_removed: true,
            at: 0,
        });
    }
}

impl<O: Out> Access<'_, '_, O> {
    /// Stores a value in the draft.
    #[cold]
    pub(super) fn put_in_draft(&mut self, hash: u64, key: &[u8], value: &Value<'_>) -> Result<(), Stop> {
        self.check_large_limits(key.len(), value.bytes.len())?;
        self.admit()?;
        match self.draft.as_deref_mut() {
            Some(draft) => draft.put(hash, key, value),
            None => Ok(()),
        }
    }

    /// Stores a value in the draft that is made of bodies of other ones and of other bytes.
    #[cold]
    pub(super) fn put_pieces_in_draft(
        &mut self,
        hash: u64,
        key: &[u8],
        pieces: &[Piece<'_>],
        like: Value<'_>,
    ) -> Result<(), Stop> {
        let value_bytes = pieces.iter().map(Piece::length).sum::<u64>();
        if value_bytes > DRAFT_BYTES_MAX as u64 {
            let (bytes, bytes_max) = (value_bytes as usize, DRAFT_BYTES_MAX.min(LARGE_VALUE_BYTES_MAX));
            return Err(Stop::Refused(WriteRefusal::ValueTooLong { bytes, bytes_max }));
        }
        self.admit()?;
        let mut bytes = Vec::with_capacity(value_bytes as usize);
        for piece in pieces {
            match piece {
                Piece::Bytes(some) => bytes.extend_from_slice(some),
                Piece::Zeros(count) => bytes.resize(bytes.len() + *count as usize, 0),
                Piece::Body(_, range) if range.is_empty() => {}
                Piece::Body(record, range) => bytes.extend_from_slice(self.body(record, range.clone())?),
            }
        }
        let value = Value { bytes: &bytes, ..like };
        match self.draft.as_deref_mut() {
            Some(draft) => draft.put(hash, key, &value),
            None => Ok(()),
        }
    }

    /// Removes a key in the draft. True if it existed.
    #[cold]
    pub(super) fn remove_in_draft(&mut self, hash: u64, key: &[u8]) -> Result<bool, Stop> {
        self.admit()?;
        let exists = self.look(hash, key, false, |object| object.is_some())?;
        if let Some(draft) = self.draft.as_deref_mut()
            && exists
        {
            draft.remove(hash, key);
        }
        Ok(exists)
    }

    /// Sets the expiry of a key in the draft. Its marks stay, or become `marks`. False if the key does not exist.
    #[cold]
    pub(super) fn set_expiry_in_draft(
        &mut self,
        hash: u64,
        key: &[u8],
        expiry_ms: Option<u64>,
        marks: Option<u8>,
    ) -> Result<bool, Stop> {
        self.admit()?;
        let (mut bytes, mut record) = (Vec::new(), Vec::new());
        let found = self.look(hash, key, false, |object| {
            let object = object?;
            object.copy_to(&mut bytes);
            record.extend_from_slice(object.record().unwrap_or_default());
            Some((object.flags(), object.marks(), object.is_hash()))
        })?;
        let Some((flags, old_marks, hash_kind)) = found else {
            return Ok(false);
        };
        let value = Value {
            bytes: &bytes,
            expiry_ms,
            flags,
            marks: marks.unwrap_or(old_marks),
            hash_kind,
            record: &record,
        };
        match self.draft.as_deref_mut() {
            Some(draft) => draft.put(hash, key, &value).map(|()| true),
            None => Ok(false),
        }
    }

    /// Ends a command of a transaction: what its reply depends on belongs to the draft now.
    pub fn end_in_draft(self) {
        let (need, looked, changed, moved_at) = self.facts();
        let forgets = self.rules().fault(Fault::DraftForgetsReads);
        if let Some(draft) = self.draft {
            if forgets {
                return;
            }
            draft.need = draft.need.max(need);
            draft.looked |= looked;
            draft.changed |= changed;
            draft.moved_at = draft.moved_at.max(moved_at);
        }
    }

    /// Makes all changes of a draft, in one delta. `ticket` names the transaction while it waits and runs again.
    ///
    /// # Errors
    /// [`Stop::Wait`] until there is space, and all parts of large values are at their holders. A refusal for a
    /// transaction that is too large, or where no memory is left. Nothing has been changed, unless
    /// [`Self::has_begun`].
    pub fn commit<'d>(&mut self, draft: &'d Draft, ticket: Ticket) -> Result<(), Stop> {
        if draft.changes.is_empty() {
            return Ok(());
        }
        self.admit()?;
        let uploaded = self.upload_values(draft, ticket)?;
        let delta_bytes = |change: &Change| {
            let value = change.image.value();
            let value_bytes = match uploaded.contains_key(&change.at) && !change.is_removed {
                true => RECORD_BYTES_MAX,
                false => value.bytes.len() + value.record.len(),
            };
            change.image.key().len() + value_bytes
        };
        let (count, bytes) = (draft.changes.len(), draft.changes.iter().map(delta_bytes).sum());
        let key = |change: &'d Change| (database_of(change.hash), change.image.key());
        let keys = draft.changes.iter().map(key);
        let puts = draft.changes.iter().filter(|change| !change.is_removed);
        let inserted: Vec<(u8, &[u8])> = puts.map(key).collect();
        self.reserve(count, bytes, keys, inserted.iter().copied())?;
        // Puts can fail for lack of space, so they come before removals.
        for removes in [false, true] {
            for change in draft.changes.iter().filter(|change| change.is_removed == removes) {
                let (hash, key) = (change.hash, change.image.key());
                if removes {
                    self.remove(hash, key)?;
                } else {
                    let record = uploaded.get(&change.at).map(Arc::as_ref);
                    self.put_image(hash, key, &change.image, record)?;
                    if record.is_some() {
                        self.owner.records.on_argument_named(ticket, change.at);
                    }
                }
                if self.rules().fault(Fault::CommandCutInTwo) {
                    self.close_delta();
                }
            }
        }
        Ok(())
    }

    /// Sends the values of a draft that are too long for one object to their holders, a few at a time. Returns their
    /// records by the number of the value.
    fn upload_values(&mut self, draft: &Draft, ticket: Ticket) -> Result<BTreeMap<u32, Arc<Record>>, Stop> {
        let small_max = self.small_bytes_max();
        if draft.put_bytes <= small_max {
            return Ok(BTreeMap::new());
        }
        let is_large = |change: &&Change| !change.is_removed && change.image.value().lacks_parts(small_max);
        let large: Vec<&Change> = draft.changes.iter().filter(is_large).collect();
        let total_bytes = large.iter().map(|change| change.image.value().bytes.len()).sum();
        let (mut records, mut waiting) = (BTreeMap::new(), 0);
        for Change { hash, image, at, .. } in large {
            let bytes = image.value().bytes;
            // The value may be made from another one, which may be another when the transaction runs again.
            let basis = [self.hash(bytes).to_le_bytes(), (bytes.len() as u64).to_le_bytes()].concat();
            let basis = match self.rules().fault(Fault::DraftWithoutBasis) {
                true => &[],
                false => basis.as_slice(),
            };
            match self.upload_value(
                ticket,
                *at,
                (database_of(*hash), image.key()),
                bytes,
                basis,
                total_bytes,
            ) {
                Ok(record) => drop(records.insert(*at, record)),
                Err(Stop::Wait) => waiting += 1,
                Err(stop) => return Err(stop),
            }
            if waiting == UPLOADS_AT_ONCE {
                break;
            }
        }
        match waiting {
            0 => Ok(records),
            _ => Err(Stop::Wait),
        }
    }

    /// The version of a key: another one after each write of it, also if it wrote what was there, and after each change
    /// of owner. Writes of other keys may change it too.
    ///
    /// # Errors
    /// Those of [`Self::look`].
    pub fn version(&mut self, hash: u64, key: &[u8]) -> Result<Vec<u8>, Stop> {
        // A key whose time is over is deleted first, which is a change.
        self.look(hash, key, false, |_| ())?;
        let (stream, term) = (self.owner.stream, self.owner.tenure.term());
        let term = if self.rules().fault(Fault::WatchWithoutTerm) {
            0
        } else {
            term
        };
        let writes = self.owner.log.writes(hash);
        Ok(format!("{}/{} {term} {writes}", stream.list.0, stream.x.0).into_bytes())
    }

    /// The version of a key to compare with later. No later change of the key is in the same delta as the latest one so
    /// far.
    ///
    /// # Errors
    /// Those of [`Self::look`].
    pub fn version_to_keep(&mut self, hash: u64, key: &[u8]) -> Result<Vec<u8>, Stop> {
        let version = self.version(hash, key)?;
        if self.owner.log.need(hash) == self.owner.log.next_seq() {
            self.close_delta();
        }
        Ok(version)
    }
}
