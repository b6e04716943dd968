//! What a command may do with the keys of a stream: look at them, change them, and learn what its reply waits for.
//!
//! A command looks at everything it needs before it changes anything. So one that must wait has changed nothing, and
//! can be run again from its start. What it changes is one delta if it says so beforehand ([`Access::reserve`]).

use super::{Admission, StreamOwner};
use crate::context::Context;
use crate::interface::Out;
use crate::mark::Mark;
use crate::parameters::Reads;
use crate::rules::{Fault, Rules};
use paritas_base::configuration::Configuration;
use paritas_store::delta::COMMAND_DELTA_BYTES_MAX;
use paritas_store::{Arena, Blocked, Delta, Limits, Object, ObjectStore as Store, Policy, Value};
use paritas_wire::command::slot;

/// Why the owner of a stream refuses a change. Nothing of the command has happened, except after
/// [`Uncertain`](Self::Uncertain).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteRefusal {
    /// Memory is short here or at a parity member, and none can be made.
    NoMemory,
    /// Fewer Live parity members than the cluster's least redundancy (P3.1).
    TooFewMembers,
    /// Memory ran out between two changes of the command: it may have happened in part.
    Uncertain,
    /// The key is longer than the store takes.
    KeyTooLong {
        /// Its length in bytes.
        bytes: usize,
        /// The longest length in bytes.
        bytes_max: usize,
    },
    /// The value is longer than the store takes.
    ValueTooLong {
        /// Its length in bytes.
        bytes: usize,
        /// The longest length in bytes.
        bytes_max: usize,
    },
    /// The store takes no object of this length.
    TooLarge,
    /// Keys and values of a command of several changes are longer than one delta may be.
    CommandTooLarge {
        /// The most bytes of keys and values.
        bytes_max: usize,
    },
    /// A command has too many changes for one delta.
    TooManyKeys {
        /// What each change counts for, in bytes, beside its key and value.
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
    /// It ends, with this refusal.
    Refused(WriteRefusal),
}

/// What the reply of a command must wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing: it says nothing about keys.
    None,
    /// It tells what it saw.
    Read {
        /// The delta that must be acknowledged before anyone may see it (P4.1).
        need: u64,
    },
    /// It tells of a change that it made.
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
    /// When it ends, in ms since 1970.
    pub expiry_ms: Option<u64>,
    /// It is in a hash slot that is another stream's (P10.8): no client may see it here.
    pub is_foreign: bool,
}

/// One command at work on its stream, whose owner serves.
pub struct Access<'a, 'c, O: Out> {
    pub(super) cx: &'a mut Context<'c, O>,
    pub(super) configuration: &'a Configuration,
    pub(super) owner: &'a mut StreamOwner,
    /// The newest delta on what it has looked at.
    need: u64,
    /// It has looked at keys.
    looked: bool,
    /// Writes are admitted: asked once a command, so that no command is cut in two by a full window.
    admitted: bool,
    /// Something has changed: by the command itself, or by the end of expired keys.
    changed: bool,
    /// The command's own changes have begun.
    pub(super) begun: bool,
    /// It makes several changes, all in one delta: nobody may ever see some without the others (P1.3).
    pub(super) several: bool,
}

impl<'a, 'c, O: Out> Access<'a, 'c, O> {
    /// Access for one command. The owner must be in phase Serve.
    #[inline]
    pub fn new(cx: &'a mut Context<'c, O>, configuration: &'a Configuration, owner: &'a mut StreamOwner) -> Self {
        Self {
            cx,
            configuration,
            owner,
            need: 0,
            looked: false,
            admitted: false,
            changed: false,
            begun: false,
            several: false,
        }
    }

    /// The command has ended: what its reply waits for. A read under confirmed leases asks for them at this turn's end.
    #[inline]
    pub fn finish(self) -> Effect {
        if self.looked && self.cx.shared.parameters.reads == Reads::Confirmed {
            self.owner.lease_wanted = true;
            self.cx.out.mark(Mark::ReadConfirmed);
        }
        let newest = self.owner.newest_seq();
        if self.begun {
            Effect::Write { seq: newest }
        } else if self.changed {
            // It has ended an expired key and tells that the key is absent. If that delta is lost, nothing has happened
            // that the client asked for: it may ask again.
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

    /// The hash by which this store finds a key.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.owner.store.hash(key)
    }

    // --- looking -------------------------------------------------------------------------------------------------

    /// Notes that the reply depends on this key (P4.1).
    #[inline]
    fn depends_on(&mut self, hash: u64) {
        self.looked = true;
        self.need = self.need.max(self.owner.need(hash));
    }

    /// Notes that the reply depends on the whole stream.
    fn depends_on_all(&mut self) {
        self.looked = true;
        self.need = self.owner.newest_seq();
    }

    /// Looks up a key; one that has expired is deleted first (P8.4). Gives what `then` makes of the object. `is_use`:
    /// the look counts for eviction.
    ///
    /// # Errors
    /// [`Stop::Wait`] while a chunk that is needed is absent, and what `change` says where an expired key is
    /// deleted.
    #[inline]
    pub fn look<T>(
        &mut self,
        hash: u64,
        key: &[u8],
        is_use: bool,
        then: impl FnOnce(Option<&Object<'_>>) -> T,
    ) -> Result<T, Stop> {
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
            Ok(found) => return Ok(then(found.as_ref())),
        }
        if self.cx.rules().fault(Fault::ExpiryWithoutDelta) {
            return Ok(then(None));
        }
        self.cx.out.mark(Mark::ExpiredOnAccess);
        self.end_expired(hash, key)?;
        Ok(then(None))
    }

    /// How often a key was used lately, as eviction counts it; `None` without the key.
    ///
    /// # Errors
    /// [`Stop::Wait`] while a chunk that is needed is absent.
    pub fn uses(&mut self, hash: u64, key: &[u8]) -> Result<Option<u8>, Stop> {
        let uses = self.owner.store.uses(&self.cx.shared.arena, hash, key);
        uses.map_err(|blocked| self.blocked(blocked))
    }

    /// Waits while hash slots are handed off: their keys may be others already at the new owner, and one that expires
    /// here may have gone there before (P10.8).
    ///
    /// # Errors
    /// [`Stop::Wait`] while it does.
    pub fn await_slots(&self) -> Result<(), Stop> {
        match self.owner.frozen() {
            Some(_) => Err(Stop::Wait),
            None => Ok(()),
        }
    }

    /// Walks from a cursor over about `limit` keys of the stream; gives the cursor to go on from, 0 at the end.
    ///
    /// # Errors
    /// [`Stop::Wait`] while a chunk that is needed is absent.
    pub fn scan(&mut self, cursor: u64, limit: usize, mut visit: impl FnMut(&Object<'_>)) -> Result<u64, Stop> {
        let owner = &*self.owner;
        let foreign = |key: &[u8]| owner.has_foreign_keys() && !owner.holds(slot(key));
        let visited = owner.store.scan(&self.cx.shared.arena, cursor, limit, |object| {
            if !foreign(object.key()) {
                visit(object);
            }
        });
        visited.map_err(|blocked| self.blocked(blocked))
    }

    /// The reply depends on all keys: called after the last change of a walk.
    pub fn saw_all(&mut self) {
        self.depends_on_all();
    }

    /// A key chosen at random; `None` if there is none.
    ///
    /// # Errors
    /// [`Stop::Wait`] while a chunk that is needed is absent.
    pub fn random_key(&mut self) -> Result<Option<RandomKey>, Stop> {
        let random = self.cx.shared.prng.next_u64();
        self.depends_on_all();
        let owner = &*self.owner;
        let found = owner.store.random_key(&self.cx.shared.arena, random);
        let chosen = found.map(|object| {
            object.map(|object| RandomKey {
                key: object.key().to_vec(),
                expiry_ms: object.expiry_ms(),
                is_foreign: owner.has_foreign_keys() && !owner.holds(slot(object.key())),
            })
        });
        chosen.map_err(|blocked| self.blocked(blocked))
    }

    /// How many keys the stream has.
    ///
    /// # Errors
    /// [`Stop::Wait`] while the counts are not all here, after a takeover.
    pub fn count(&mut self) -> Result<u64, Stop> {
        let count = self.owner.store.count().ok_or(Stop::Wait)?;
        self.depends_on_all();
        Ok(count.saturating_sub(self.owner.foreign_keys()))
    }

    // --- changing ------------------------------------------------------------------------------------------------

    /// Stores a value under a key.
    ///
    /// # Errors
    /// A refusal for a key or value that is too long, and what `change` says.
    pub fn put(&mut self, hash: u64, key: &[u8], value: Value<'_>) -> Result<(), Stop> {
        self.check_limits(key.len(), value.bytes.len())?;
        self.change(hash, |store, arena, delta| store.put(arena, delta, hash, key, value))?;
        self.begun = true;
        Ok(())
    }

    /// Removes a key: true if there was one.
    ///
    /// # Errors
    /// As `change`.
    pub fn remove(&mut self, hash: u64, key: &[u8]) -> Result<bool, Stop> {
        let removed = self.change(hash, |store, arena, delta| store.delete(arena, delta, hash, key))?;
        self.begun |= removed;
        Ok(removed)
    }

    /// Deletes a key that has expired: no doing of the command, which may still wait afterwards.
    ///
    /// # Errors
    /// As `change`.
    pub fn end_expired(&mut self, hash: u64, key: &[u8]) -> Result<(), Stop> {
        self.change(hash, |store, arena, delta| store.delete(arena, delta, hash, key))?;
        Ok(())
    }

    /// Sets when a key ends, in ms since 1970; `None`: never. False without the key.
    ///
    /// # Errors
    /// As `change`.
    pub fn set_expiry(&mut self, hash: u64, key: &[u8], expiry_ms: Option<u64>) -> Result<bool, Stop> {
        let set = self.change(hash, |store, arena, delta| {
            store.set_expiry(arena, delta, hash, key, expiry_ms)
        })?;
        self.begun |= set;
        Ok(set)
    }

    /// Removes all keys of the stream, in a delta of its own: whole pages become zeros.
    ///
    /// # Errors
    /// As `change`.
    pub fn flush(&mut self) -> Result<(), Stop> {
        self.admit()?;
        self.owner.close_delta(self.cx, self.configuration);
        self.change(0, |store, arena, delta| store.flush(arena, delta))?;
        if self.changed {
            self.owner.touch_all();
        }
        self.depends_on_all();
        self.begun = true;
        Ok(())
    }

    /// Ends the open delta, so that what follows is in another: for tests that break the rule that several changes are
    /// one delta.
    pub fn close_delta(&mut self) {
        self.owner.close_delta(self.cx, self.configuration);
    }

    /// Whether the store takes a key and a value of these lengths, in bytes.
    ///
    /// # Errors
    /// The refusal for the one that is too long.
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

    /// Whether the stream takes writes (P3.1).
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

    /// Runs one change of the store. A full delta is closed first; where space is short, some is made.
    ///
    /// # Errors [`Stop::Wait`] until the write is admitted, there is credit, or a chunk is here. A refusal where the
    /// list has too few members or no memory is left.
    #[inline]
    fn change<T>(
        &mut self,
        hash: u64,
        mut work: impl FnMut(&mut Store, &mut Arena, &mut Delta) -> Result<T, Blocked>,
    ) -> Result<T, Stop> {
        self.admit()?;
        // A change that changes nothing must wait for what made it so.
        self.depends_on(hash);
        for _ in 0..self.tries() {
            let before = self.owner.open_bytes();
            let (store, delta) = self.owner.delta();
            if self.several {
                delta.set_bytes_max(COMMAND_DELTA_BYTES_MAX);
            }
            let result = work(store, &mut self.cx.shared.arena, delta);
            if self.owner.open_bytes() > before {
                self.owner.touch(hash);
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

    /// What stops a command whose change or look is blocked so. A chunk that is absent is asked for.
    pub(super) fn blocked(&mut self, blocked: Blocked) -> Stop {
        match blocked {
            Blocked::Missing(stripe) => {
                self.owner.reconstructor.want(self.cx.now.mono, stripe);
                Stop::Wait
            }
            Blocked::Credit { .. } if self.owner.credit_refused(self.cx) => Stop::Refused(WriteRefusal::NoMemory),
            Blocked::Directory | Blocked::Credit { .. } | Blocked::DeltaFull | Blocked::Crowded => Stop::Wait,
            // What may be evicted may not be here yet.
            Blocked::Memory if self.owner.store.policy().evicts() && self.owner.store.chunks().absent_count() > 0 => {
                Stop::Wait
            }
            Blocked::Memory => Stop::Refused(WriteRefusal::NoMemory),
            Blocked::TooLarge => Stop::Refused(WriteRefusal::TooLarge),
        }
    }
}

/// Why a key that is handed off is not changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// Not now.
    Wait,
    /// There is no memory for it.
    NoRoom,
}

impl From<Stop> for Refused {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Wait | Stop::Refused(WriteRefusal::TooFewMembers) => Self::Wait,
            Stop::Refused(_) => Self::NoRoom,
        }
    }
}

/// Stores an object as it was in the stream that hands its hash slot off (P10.8): a change that no client asked for.
pub(super) fn take_in<O: Out>(
    cx: &mut Context<'_, O>,
    configuration: &Configuration,
    owner: &mut StreamOwner,
    key: &[u8],
    value: Value<'_>,
) -> Result<(), Refused> {
    let hash = owner.store.hash(key);
    let mut access = Access::new(cx, configuration, owner);
    access.change(hash, |store, arena, delta| store.put(arena, delta, hash, key, value))?;
    Ok(())
}

/// Removes a key whose hash slot is another stream's now (P10.8).
pub(super) fn give_up<O: Out>(
    cx: &mut Context<'_, O>,
    configuration: &Configuration,
    owner: &mut StreamOwner,
    key: &[u8],
) -> Result<bool, Refused> {
    let hash = owner.store.hash(key);
    let mut access = Access::new(cx, configuration, owner);
    Ok(access.change(hash, |store, arena, delta| store.delete(arena, delta, hash, key))?)
}
