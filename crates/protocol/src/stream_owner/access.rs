//! Access of a command to the keys of a stream: it reads and changes them, and learns what its reply must wait for.
//!
//! A command reads everything it needs before it changes anything. So a command that must wait has changed nothing, and
//! can be run again from its start. Its changes are in one delta if it reserves space first ([`Access::reserve`]).

use super::draft::Draft;
use super::space::evict;
use super::{Admission, LARGE_VALUE_BYTES_MAX, Made, Piece, StreamOwner, Ticket, body_bytes};
use crate::context::Context;
use crate::interface::Out;
use crate::mark::Mark;
use crate::parameters::Reads;
use crate::parts::placement_of;
use crate::readers::ValueRange;
use crate::rules::{Fault, Rules};
use core::ops::Range;
use paritas_base::configuration::Configuration;
use paritas_base::{ALL_DATABASES, DATABASES, HIDDEN_DATABASE, Time, TurnBudget};
use paritas_large::{Class, Record};
use paritas_store::delta::COMMAND_DELTA_BYTES_MAX;
use paritas_store::{
    Arena, Blocked, Delta, Drawn, Image, Keys, Limits, Object, ObjectStore as Store, Policy, Value, database_of,
};
use paritas_wire::command::{KeySlots, slot, slot_steps};
use std::sync::Arc;

/// Steps of a turn's budget for a line of the index that is looked at.
const LINE_STEPS: u64 = 100;
/// Steps for a key that is looked at.
pub const KEY_STEPS: u64 = 300;
/// Steps for a key drawn at random.
const RANDOM_KEY_STEPS: u64 = 2000;
/// The most objects that one step of SCAN looks at when few are of its database. A larger COUNT raises it.
const LOOKED_AT_MAX: usize = 4096;

/// The key of all libraries of functions (docs/formats/functions.md): the only one that may be in the hidden database.
pub const FUNCTIONS_KEY: &[u8] = b"functions";

/// Why the owner of a stream refuses a change. Nothing of the command has happened, except after
/// [`Uncertain`](Self::Uncertain).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteRefusal {
    /// Memory is short here or at a parity member, and none can be freed.
    NoMemory,
    /// There are fewer Live parity members than the cluster's least redundancy (P3.1).
    TooFewMembers,
    /// Memory ran out between two changes of the command: it may have happened in part.
    Uncertain,
    /// The key is longer than the store allows.
    KeyTooLong {
        /// Its length in bytes.
        bytes: usize,
        /// The longest length in bytes.
        bytes_max: usize,
    },
    /// The value is longer than the store allows.
    ValueTooLong {
        /// Its length in bytes.
        bytes: usize,
        /// The longest length in bytes.
        bytes_max: usize,
    },
    /// The value was sent ahead of its command, and has not arrived whole: the owner has changed, or too many nodes
    /// were lost.
    NotStaged,
    /// The key changed again and again while a large value was made from what it had.
    Overtaken,
    /// The object is longer than the store allows.
    TooLarge,
    /// The keys and values of a command with several changes are longer than one delta may be.
    CommandTooLarge {
        /// The most bytes of keys and values.
        bytes_max: usize,
    },
    /// A command has too many changes for one delta.
    TooManyKeys {
        /// Bytes that each change counts for, beside its key and value.
        change_bytes: usize,
        /// The most bytes of keys, values and changes.
        bytes_max: usize,
    },
}

/// Why a command stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// It must wait. If it has changed nothing, it is run again from its start when something has changed.
    Wait,
    /// It ends with this refusal.
    Refused(WriteRefusal),
}

/// What the reply of a command must wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing: the reply says nothing about keys.
    None,
    /// The reply depends on keys that the command read.
    Read {
        /// The delta that must be acknowledged before a client may see the reply (P4.1).
        need: u64,
    },
    /// The reply reports a change that the command made.
    Write {
        /// The change's delta.
        seq: u64,
    },
}

/// A key that [`Access::random_key`] has chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RandomKey {
    /// Its bytes.
    pub key: Vec<u8>,
    /// Its expiry, in ms since 1970; `None` if it never expires.
    pub expiry_ms: Option<u64>,
}

/// One of several large values of a command, whose parts are all there.
#[derive(Clone, Debug)]
pub struct Uploaded {
    ticket: Ticket,
    at: u32,
    record: Arc<Record>,
}

/// One command while it runs on its stream. The owner is in the phase Serve.
pub struct Access<'a, 'c, O: Out> {
    pub(super) cx: &'a mut Context<'c, O>,
    pub(super) configuration: &'a Configuration,
    pub(super) owner: &'a mut StreamOwner,
    /// The database of the client.
    database: u8,
    /// The newest delta that changed a key which the command has read.
    need: u64,
    /// Whether the command has read keys.
    looked: bool,
    /// Whether writes are admitted. This is asked only once for each command, so that a full window does not stop a
    /// command between two changes.
    admitted: bool,
    /// Whether the stream has changed: by the command itself, or because expired keys were deleted.
    changed: bool,
    /// Whether the command's own changes have begun.
    pub(super) begun: bool,
    moved_at: Option<Time>,
    /// See [`Self::bodies_read`].
    bodies_read: Vec<(Vec<u8>, Range<u64>)>,
    /// Whether it makes several changes, all in one delta: no client may ever see some without the others (P1.3).
    pub(super) several: bool,
    /// The transaction of which it is a command: that reads and changes the draft.
    pub(super) draft: Option<&'a mut Draft>,
}

impl<'a, 'c, O: Out> Access<'a, 'c, O> {
    /// Access for one command of a client with this database. The owner must be in phase Serve.
    #[inline]
    pub fn new(
        cx: &'a mut Context<'c, O>,
        configuration: &'a Configuration,
        owner: &'a mut StreamOwner,
        database: u8,
    ) -> Self {
        Self {
            cx,
            configuration,
            owner,
            database,
            need: 0,
            looked: false,
            admitted: false,
            changed: false,
            begun: false,
            moved_at: None,
            bodies_read: Vec::new(),
            several: false,
            draft: None,
        }
    }

    /// Access for a command of a transaction.
    pub fn in_draft(
        cx: &'a mut Context<'c, O>,
        configuration: &'a Configuration,
        owner: &'a mut StreamOwner,
        database: u8,
        draft: &'a mut Draft,
    ) -> Self {
        Self {
            draft: Some(draft),
            ..Self::new(cx, configuration, owner, database)
        }
    }

    /// Whether it is for a command of a transaction.
    #[inline]
    pub const fn is_in_draft(&self) -> bool {
        self.draft.is_some()
    }

    /// What the reply depends on, as a draft keeps it.
    pub(super) const fn facts(&self) -> (u64, bool, bool, Option<Time>) {
        (self.need, self.looked, self.changed, self.moved_at)
    }

    /// The reply depends on what the commands of a transaction have read.
    pub fn depend_on(&mut self, draft: &Draft) {
        self.need = self.need.max(draft.need);
        self.looked |= draft.looked;
        self.changed |= draft.changed;
    }

    /// Ends the command, and returns what its reply waits for. If reads are confirmed, a read makes the owner ask for
    /// leases at this turn's end.
    #[inline]
    pub fn finish(self) -> Effect {
        if self.looked && self.cx.shared.parameters.reads == Reads::Confirmed {
            self.owner.wake.lease_wanted = true;
            self.cx.out.mark(Mark::ReadConfirmed);
        }
        let newest = self.owner.log.newest_seq();
        if self.begun {
            Effect::Write { seq: newest }
        } else if self.changed {
            // It has deleted an expired key and reports that the key is absent. If that delta is lost, no change that
            // the client asked for is lost, and the client may ask again.
            Effect::Read { need: newest }
        } else if self.looked {
            Effect::Read { need: self.need }
        } else {
            Effect::None
        }
    }

    /// Whether the command's own changes have begun: it cannot be run again.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    // --- surroundings --------------------------------------------------------------------------------------------

    /// The wall clock, in ms since 1970.
    pub fn now_ms(&self) -> u64 {
        self.cx.now.wall_ms
    }

    /// The rules of the protocol.
    pub fn rules(&self) -> Rules {
        self.cx.rules()
    }

    /// The configuration of the stream's list.
    pub fn configuration(&self) -> &Configuration {
        self.configuration
    }

    /// The longest keys and values that are stored.
    pub fn limits(&self) -> Limits {
        self.owner.store.limits()
    }

    /// Which keys are evicted for new ones.
    pub fn policy(&self) -> Policy {
        self.owner.store.policy()
    }

    /// The hash by which this store finds a key of the client's database.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.owner.store.hash(self.database, key)
    }

    /// The same in another database.
    pub fn hash_in(&self, database: u8, key: &[u8]) -> u64 {
        self.owner.store.hash(database, key)
    }

    /// The database of the client.
    pub const fn database(&self) -> u8 {
        self.database
    }

    // --- reading -------------------------------------------------------------------------------------------------

    /// Notes that the reply depends on this key (P4.1).
    #[inline]
    fn depends_on(&mut self, hash: u64) {
        self.looked = true;
        self.need = self.need.max(self.owner.log.need(hash));
    }

    /// Notes that the reply depends on the whole stream.
    fn depends_on_all(&mut self) {
        self.looked = true;
        self.need = self.owner.log.newest_seq();
    }

    /// Looks up a key and returns the result of `then` for the object. An expired key is deleted first (P8.4).
    /// `is_use`: the read counts as a use of the key for eviction.
    ///
    /// # Errors
    /// [`Stop::Wait`] while a needed chunk is absent. If an expired key is deleted, also the errors of `change`.
    #[inline]
    pub fn look<T>(
        &mut self,
        hash: u64,
        key: &[u8],
        is_use: bool,
        then: impl FnOnce(Option<&Object<'_>>) -> T,
    ) -> Result<T, Stop> {
        if let Some(draft) = self.draft.as_deref_mut() {
            let bytes = draft
                .find(hash, key)
                .map(|image| image.map_or(0, |image| image.value().bytes.len()));
            if let Some(bytes) = bytes {
                draft.on_read(bytes);
            }
            if let Some(image) = draft.find(hash, key) {
                let object = image.map(|image| image.object(&self.owner.store, &self.cx.shared.arena));
                return Ok(then(object.as_ref()));
            }
        }
        self.depends_on(hash);
        let now_ms = self.cx.now.wall_ms;
        let found = if is_use {
            self.owner.store.access(&self.cx.shared.arena, hash, key)
        } else {
            self.owner.store.find(&self.cx.shared.arena, hash, key)
        };
        match found {
            Err(blocked) => return Err(self.blocked(blocked)),
            Ok(Some(object)) if object.expiry_ms().is_some_and(|at| at <= now_ms) => {}
            Ok(found) => {
                if let Some(draft) = self.draft.as_deref_mut() {
                    draft.on_read(found.as_ref().map_or(0, Object::len));
                }
                return Ok(then(found.as_ref()));
            }
        }
        if self.cx.rules().fault(Fault::ExpiryWithoutDelta) {
            return Ok(then(None));
        }
        self.cx.out.mark(Mark::ExpiredOnAccess);
        self.end_expired(hash, key)?;
        Ok(then(None))
    }

    /// How often a key was used recently, as eviction counts it; `None` if the key does not exist.
    ///
    /// # Errors
    /// [`Stop::Wait`] while a chunk that is needed is absent.
    pub fn uses(&mut self, hash: u64, key: &[u8]) -> Result<Option<u8>, Stop> {
        let uses = self.owner.store.uses(&self.cx.shared.arena, hash, key);
        uses.map_err(|blocked| self.blocked(blocked))
    }

    /// Waits while hash slots are handed off: their keys may already be different at the new owner, and a key that
    /// expires here may have been copied there before (P10.8).
    ///
    /// # Errors
    /// [`Stop::Wait`] during a hand-off.
    pub fn await_slots(&self) -> Result<(), Stop> {
        match self.owner.frozen() {
            Some(_) => Err(Stop::Wait),
            None => Ok(()),
        }
    }

    /// Walks from a cursor over about `limit` keys of the stream, or until the turn's budget is spent, but over one
    /// line at least: a walk that has read its pattern goes on. `visit` sees those of the client's database, and
    /// adds the steps of its own work. Returns the next cursor, which is 0 at the end.
    ///
    /// # Errors
    /// [`Stop::Wait`] while a chunk that is needed is absent.
    pub fn scan(
        &mut self,
        cursor: u64,
        limit: usize,
        mut visit: impl FnMut(&Object<'_>, &mut u64),
    ) -> Result<u64, Stop> {
        let database = self.database;
        let counts = self.owner.store.keys();
        if counts.is_some_and(|counts| is_empty(&counts, database)) {
            return Ok(0);
        }
        let (owner, slots) = (&*self.owner, &self.cx.shared.slots);
        let has_foreign = owner.has_foreign_keys();
        let steps_max = self.cx.shared.turn_budget.left();
        let (mut steps, mut met, mut looked_at) = (0, 0, 0);
        let visited = owner.store.scan_lines(&self.cx.shared.arena, cursor, |objects| {
            steps += LINE_STEPS;
            for object in objects {
                steps += KEY_STEPS;
                if has_foreign {
                    steps += slot_steps(object.key());
                    if !owner.holds(slots.slot(object.database(), object.key())) {
                        continue;
                    }
                }
                if object.database() == database {
                    met += 1;
                    visit(object, &mut steps);
                }
            }
            looked_at += objects.len();
            met < limit && looked_at < limit.max(LOOKED_AT_MAX) && steps < steps_max
        });
        self.cx.shared.turn_budget.spend(steps);
        visited.map_err(|blocked| self.blocked(blocked))
    }

    /// What commands may still do in this turn.
    /// A transaction has a budget of its own, since it can't go on in a later turn.
    pub fn turn_budget(&mut self) -> &mut TurnBudget {
        match self.draft.as_deref_mut() {
            Some(draft) => &mut draft.budget,
            None => &mut self.cx.shared.turn_budget,
        }
    }

    /// The hash slots of keys.
    pub fn key_slots(&self) -> KeySlots {
        self.cx.shared.slots.keys().clone()
    }

    /// Notes that the reply depends on all keys. Must be called after the last change of a walk.
    pub fn saw_all(&mut self) {
        self.depends_on_all();
    }

    /// A key of the client's database chosen at random; `None` if there is none.
    ///
    /// # Errors
    /// [`Stop::Wait`] while a chunk that is needed is absent, and until a turn has some of its budget left.
    pub fn random_key(&mut self) -> Result<Option<RandomKey>, Stop> {
        if !self.cx.shared.turn_budget.admits() {
            return Err(Stop::Wait);
        }
        self.cx.shared.turn_budget.spend(RANDOM_KEY_STEPS);
        let random = self.cx.shared.prng.next_u64();
        self.depends_on_all();
        let owner = &*self.owner;
        if owner
            .store
            .keys()
            .is_some_and(|counts| is_empty(&counts, self.database))
        {
            return Ok(None);
        }
        let (database, has_foreign, slots) = (self.database, owner.has_foreign_keys(), &self.cx.shared.slots);
        let found = owner.store.random_key(&self.cx.shared.arena, random, |object| {
            object.database() == database && (!has_foreign || owner.holds(slots.slot(database, object.key())))
        });
        let object = match found {
            Ok(Drawn::Key(object)) => object,
            Ok(Drawn::None) => return Ok(None),
            Ok(Drawn::Later) => {
                self.cx.shared.turn_budget.yield_to_next();
                return Err(Stop::Wait);
            }
            Err(blocked) => return Err(self.blocked(blocked)),
        };
        Ok(Some(RandomKey {
            key: object.key().to_vec(),
            expiry_ms: object.expiry_ms(),
        }))
    }

    /// The number of keys of the stream, in the client's database.
    ///
    /// # Errors
    /// [`Stop::Wait`] after a takeover, until all keys are counted.
    pub fn count(&mut self) -> Result<u64, Stop> {
        let counts = self.owner.key_counts().ok_or(Stop::Wait)?;
        self.depends_on_all();
        Ok(counts.get(usize::from(self.database)).map_or(0, |keys| keys.count))
    }

    // --- changing ------------------------------------------------------------------------------------------------

    /// Stores a value under a key.
    ///
    /// # Errors
    /// A refusal for a key or value that is too long, and the errors of `change`.
    pub fn put(&mut self, hash: u64, key: &[u8], value: Value<'_>) -> Result<(), Stop> {
        self.check_limits(key.len(), value.bytes.len())?;
        if self.draft.is_some() {
            return self.put_in_draft(hash, key, &value);
        }
        self.put_value(hash, key, value)?;
        self.begun = true;
        Ok(())
    }

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
            class: self.cx.shared.parameters.class_of(key, value_bytes as u64),
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
    pub(super) fn upload_value(
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
            _ => self.cx.shared.parameters.class_of(key, bytes.len() as u64),
        };
        let here = self.owner.installed(self.configuration);
        let records = &mut self.owner.records;
        let record = records.upload_argument(self.cx, &here, (ticket, at), class, basis, bytes);
        self.sealed(ticket, total_bytes, record)
    }

    /// Stores the object of a draft. `record`: that of its value, if the value is large.
    pub(super) fn put_image(
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

    /// The same for a value that was sent ahead of its command ([`StreamOwner::stage`]). The bytes of `like` do not
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

    /// The command that has pinned a value is refused.
    pub fn unpin(&mut self, ticket: Ticket) {
        self.owner.records.unpin(ticket);
    }

    /// The longest reply to an MGET that is made whole, in bytes.
    pub fn mget_bytes_max(&self) -> usize {
        self.cx.shared.parameters.mget_bytes_max
    }

    /// Length in bytes from which a value is read and written in pieces.
    pub fn streamed_bytes_min(&self) -> u64 {
        self.cx.shared.parameters.streamed_bytes_min
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
    fn sealed<T>(&mut self, ticket: Ticket, value_bytes: usize, result: Result<T, Stop>) -> Result<T, Stop> {
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

    fn put_value(&mut self, hash: u64, key: &[u8], value: Value<'_>) -> Result<(), Stop> {
        self.change(hash, |store, arena, delta| store.put(arena, delta, hash, key, value))?;
        self.owner.log.note_put(hash);
        Ok(())
    }

    /// Stores an object for the owner itself.
    ///
    /// # Errors
    /// Those of `change`.
    pub(super) fn put_by_owner(&mut self, hash: u64, key: &[u8], value: Value<'_>) -> Result<(), Stop> {
        self.put_value(hash, key, value)
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
    fn note_move(&mut self, at: Option<Time>) {
        self.moved_at = self.moved_at.max(at);
    }

    /// When something of the large values that the command waits for was sent or received last.
    pub fn moved_at(&self) -> Option<Time> {
        self.moved_at
    }

    /// Removes a key. True if it existed.
    ///
    /// # Errors
    /// Those of `change`.
    pub fn remove(&mut self, hash: u64, key: &[u8]) -> Result<bool, Stop> {
        if self.draft.is_some() {
            return self.remove_in_draft(hash, key);
        }
        let removed = self.change(hash, |store, arena, delta| store.delete(arena, delta, hash, key))?;
        self.begun |= removed;
        Ok(removed)
    }

    /// Deletes an expired key. This does not count as a change of the command, which may still wait afterwards.
    ///
    /// # Errors
    /// Those of `change`.
    pub fn end_expired(&mut self, hash: u64, key: &[u8]) -> Result<(), Stop> {
        let ended = self.change(hash, |store, arena, delta| store.delete(arena, delta, hash, key))?;
        self.cx.shared.expired_keys += u64::from(ended);
        Ok(())
    }

    /// Counts lookups of a command that reads, by result.
    #[inline]
    pub fn count_lookups(&mut self, hits: u32, misses: u32) {
        self.cx.shared.keyspace_hits += u64::from(hits);
        self.cx.shared.keyspace_misses += u64::from(misses);
    }

    /// Counts a write that is refused because memory is short.
    pub fn count_refused_write(&mut self) {
        self.cx.shared.refused_writes += 1;
    }

    /// Sets the expiry of a key, in ms since 1970; `None`: it never expires. False if the key does not exist.
    ///
    /// # Errors
    /// Those of `change`.
    pub fn set_expiry(&mut self, hash: u64, key: &[u8], expiry_ms: Option<u64>) -> Result<bool, Stop> {
        if self.draft.is_some() {
            return self.set_expiry_in_draft(hash, key, expiry_ms);
        }
        let set = self.change(hash, |store, arena, delta| {
            store.set_expiry(arena, delta, hash, key, expiry_ms)
        })?;
        self.begun |= set;
        Ok(set)
    }

    /// Whether the stream is known to have no keys of other databases than the client's, but for the hidden one.
    pub fn has_only_its_database(&self) -> bool {
        let others = |counts: [Keys; ALL_DATABASES as usize]| {
            let mut others = (0..DATABASES).zip(counts).filter(|(of, _)| *of != self.database);
            others.all(|(_, keys)| keys.count == 0)
        };
        self.owner.store.keys().is_some_and(others)
    }

    /// Removes all keys of the stream in a separate delta, which sets whole pages to zero. It spares the key of the
    /// hidden database, unless that is left over from a hand-off of its slot.
    ///
    /// # Errors
    /// Those of `change`.
    pub fn flush(&mut self) -> Result<(), Stop> {
        self.admit()?;
        self.owner.close_delta(self.cx, self.configuration);
        let hidden = (self.hash_in(HIDDEN_DATABASE, FUNCTIONS_KEY), FUNCTIONS_KEY);
        let spared = self.owner.holds(slot(FUNCTIONS_KEY)).then_some(hidden);
        self.change(0, |store, arena, delta| store.flush(arena, delta, spared))?;
        if self.changed {
            self.owner.log.touch_all();
        }
        self.depends_on_all();
        self.begun = true;
        Ok(())
    }

    /// Closes the open delta, so that the next change is in another one.
    pub fn close_delta(&mut self) {
        self.owner.close_delta(self.cx, self.configuration);
    }

    /// Checks that the store allows a key and a value of these lengths, in bytes.
    ///
    /// # Errors
    /// The refusal for the key or value that is too long.
    pub fn check_limits(&self, key_bytes: usize, value_bytes: usize) -> Result<(), Stop> {
        let limits = self.owner.store.limits();
        if key_bytes > limits.key_bytes {
            return Err(Stop::Refused(WriteRefusal::KeyTooLong {
                bytes: key_bytes,
                bytes_max: limits.key_bytes,
            }));
        }
        if value_bytes > limits.value_bytes {
            return Err(Stop::Refused(WriteRefusal::ValueTooLong {
                bytes: value_bytes,
                bytes_max: limits.value_bytes,
            }));
        }
        Ok(())
    }

    /// As [`Self::check_limits`], for a value that may lie in parts.
    ///
    /// # Errors
    /// The refusal for the key or value that is too long.
    pub fn check_large_limits(&self, key_bytes: usize, value_bytes: usize) -> Result<(), Stop> {
        self.check_limits(key_bytes, 0)?;
        if value_bytes > LARGE_VALUE_BYTES_MAX {
            return Err(Stop::Refused(WriteRefusal::ValueTooLong {
                bytes: value_bytes,
                bytes_max: LARGE_VALUE_BYTES_MAX,
            }));
        }
        Ok(())
    }

    /// Checks that the stream accepts writes (P3.1).
    pub(super) fn admit(&mut self) -> Result<(), Stop> {
        if !self.admitted {
            match self.owner.admit_write(self.cx) {
                Admission::Admitted => self.admitted = true,
                Admission::Wait => return Err(Stop::Wait),
                Admission::TooFewMembers => return Err(Stop::Refused(WriteRefusal::TooFewMembers)),
            }
        }
        Ok(())
    }

    /// Runs one change of the store. If the delta is full, it is closed first. If space is short, tries to free some.
    ///
    /// # Errors
    /// [`Stop::Wait`] until the write is admitted, there is credit, or an absent chunk is here. A refusal if the list
    /// has too few members or no memory is left.
    #[inline]
    fn change<T>(
        &mut self,
        hash: u64,
        mut work: impl FnMut(&mut Store, &mut Arena, &mut Delta) -> Result<T, Blocked>,
    ) -> Result<T, Stop> {
        self.admit()?;
        // A change that has no effect, such as removing an absent key, depends on the delta that caused the present
        // state.
        self.depends_on(hash);
        for _ in 0..self.tries() {
            let before = self.owner.open_bytes();
            let (store, delta) = self.owner.delta();
            if self.several {
                delta.set_bytes_max(COMMAND_DELTA_BYTES_MAX);
            }
            let result = work(store, &mut self.cx.shared.arena, delta);
            if self.owner.open_bytes() > before {
                self.owner.log.touch(hash);
                self.changed = true;
            }
            match result {
                Ok(done) => return Ok(done),
                Err(Blocked::DeltaFull) if !(self.several && self.begun) => {
                    self.owner.close_delta(self.cx, self.configuration)
                }
                Err(blocked) => self.find_space(blocked)?,
            }
        }
        Err(Stop::Wait)
    }

    /// Why the command stops when its read or change is blocked. An absent chunk is requested.
    pub(super) fn blocked(&mut self, blocked: Blocked) -> Stop {
        match blocked {
            Blocked::Missing(stripe) => {
                self.owner.rebuild.reconstructor.want(self.cx.now.mono, stripe);
                Stop::Wait
            }
            Blocked::Credit { .. } if self.owner.credit_refused(self.cx) => Stop::Refused(WriteRefusal::NoMemory),
            Blocked::Directory | Blocked::Credit { .. } | Blocked::DeltaFull | Blocked::Crowded => Stop::Wait,
            // Memory can be freed by eviction once the absent chunks are here.
            Blocked::Memory if self.owner.store.policy().evicts() && self.owner.store.chunks().absent_count() > 0 => {
                Stop::Wait
            }
            Blocked::Memory => Stop::Refused(WriteRefusal::NoMemory),
            Blocked::TooLarge => Stop::Refused(WriteRefusal::TooLarge),
        }
    }
}

/// Why a key of a hand-off cannot be stored or removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// It must be tried again later.
    Wait,
    /// No memory is left.
    NoRoom,
    /// The body of a large value is not here: the source must begin another attempt.
    Unknown,
}

impl From<Stop> for Refused {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Wait | Stop::Refused(WriteRefusal::TooFewMembers) => Self::Wait,
            Stop::Refused(_) => Self::NoRoom,
        }
    }
}

/// Stores an object exactly as in the stream that hands its hash slot off (P10.8). No client asked for this change.
pub(super) fn take_in<O: Out>(
    cx: &mut Context<'_, O>,
    configuration: &Configuration,
    owner: &mut StreamOwner,
    (database, key): (u8, &[u8]),
    value: Value<'_>,
) -> Result<(), Refused> {
    let hash = owner.store.hash(database, key);
    let mut access = Access::new(cx, configuration, owner, database);
    Ok(access.put_by_owner(hash, key, value)?)
}

/// Removes a key whose hash slot now belongs to another stream (P10.8).
pub(super) fn give_up<O: Out>(
    cx: &mut Context<'_, O>,
    configuration: &Configuration,
    owner: &mut StreamOwner,
    (database, key): (u8, &[u8]),
) -> Result<bool, Refused> {
    let hash = owner.store.hash(database, key);
    let mut access = Access::new(cx, configuration, owner, database);
    Ok(access.change(hash, |store, arena, delta| store.delete(arena, delta, hash, key))?)
}

/// Whether this database has no key. Keys of hash slots that are being moved count.
fn is_empty(counts: &[Keys], database: u8) -> bool {
    counts.get(usize::from(database)).is_none_or(|keys| keys.count == 0)
}
