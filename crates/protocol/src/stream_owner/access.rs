//! Access of a command to the keys of a stream: it reads and changes them, and learns what its reply must wait for.
//!
//! A command reads everything it needs before it changes anything. So a command that must wait has changed nothing, and
//! can be run again from its start. Its changes are in one delta if it reserves space first ([`Access::reserve`]).

mod change;
mod large;
mod located;

use super::draft::Draft;
use super::{StreamOwner, Ticket};
use crate::context::Context;
use crate::interface::Out;
use crate::mark::Mark;
use crate::parameters::Reads;
use crate::rules::{Fault, Rules};
pub(super) use change::{Refused, give_up, take_in};
use core::ops::Range;
pub use located::Located;
use paritas_base::configuration::Configuration;
use paritas_base::{ALL_DATABASES, DATABASES, Time, TurnBudget};
use paritas_large::{Class, Record};
use paritas_store::{Blocked, Drawn, Keys, Limits, Object, Policy};
use paritas_wire::command::{KeySlots, slot_steps};
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
    /// A client that sends the units of its value to the holders itself must use SET (P14.18).
    NotByClient(NotByClient),
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

/// Why a client cannot send the units of a value to the holders itself (P14.18).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotByClient {
    /// More bytes than a connection may have staged.
    TooLong,
    /// More values than may be staged in a stream.
    TooMany,
    /// The class is not `ec` or `rep`, or has parts on log nodes.
    Class,
    /// A position has no holder, or its holder has changed, or has not opened its part.
    Holders,
    /// Nothing is staged under this number.
    Unknown,
    /// The key of COMMIT is another one than that of STAGE.
    OtherKey,
    /// The checks, or the tail, are not as long as those of the value.
    Lengths,
    /// A part lacks units, or has another check than the client has named.
    Parts,
    /// The parts have the checks that the client has named, and do not belong together (P14.20).
    Forged,
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
    /// That which the command gives its large value.
    class: Option<Class>,
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
            class: None,
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

    /// The longest value in bytes that lies in stripes with others. A longer one is large (P14).
    pub fn small_bytes_max(&self) -> usize {
        self.cx.shared.small_bytes_max()
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

    /// Counts lookups of a command that reads, by result.
    #[inline]
    pub fn count_lookups(&mut self, hits: u32, misses: u32) {
        self.cx.shared.keyspace_hits += u64::from(hits);
        self.cx.shared.keyspace_misses += u64::from(misses);
    }

    /// Whether the stream is known to have no keys of other databases than the client's, but for the hidden one.
    pub fn has_only_its_database(&self) -> bool {
        let others = |counts: [Keys; ALL_DATABASES as usize]| {
            let mut others = (0..DATABASES).zip(counts).filter(|(of, _)| *of != self.database);
            others.all(|(_, keys)| keys.count == 0)
        };
        self.owner.store.keys().is_some_and(others)
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

/// Whether this database has no key. Keys of hash slots that are being moved count.
fn is_empty(counts: &[Keys], database: u8) -> bool {
    counts.get(usize::from(database)).is_none_or(|keys| keys.count == 0)
}
