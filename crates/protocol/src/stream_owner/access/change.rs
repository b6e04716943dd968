//! Changes of keys by a command, and by a hand-off of hash slots.

use super::{Access, FUNCTIONS_KEY, Stop, WriteRefusal};
use crate::context::Context;
use crate::interface::Out;
use crate::stream_owner::{Admission, LARGE_VALUE_BYTES_MAX, StreamOwner};
use paritas_base::HIDDEN_DATABASE;
use paritas_base::configuration::Configuration;
use paritas_store::delta::COMMAND_DELTA_BYTES_MAX;
use paritas_store::{Arena, Blocked, Delta, ObjectStore as Store, Value};

impl<O: Out> Access<'_, '_, O> {
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

    pub(super) fn put_value(&mut self, hash: u64, key: &[u8], value: Value<'_>) -> Result<(), Stop> {
        self.change(hash, |store, arena, delta| store.put(arena, delta, hash, key, value))?;
        self.owner.log.note_put(hash);
        Ok(())
    }

    /// Stores an object for the owner itself.
    ///
    /// # Errors
    /// Those of `change`.
    pub(in crate::stream_owner) fn put_by_owner(
        &mut self,
        hash: u64,
        key: &[u8],
        value: Value<'_>,
    ) -> Result<(), Stop> {
        self.put_value(hash, key, value)
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

    /// Sets the expiry of a key, in ms since 1970; `None`: it never expires. Its marks stay, or become `marks`. False
    /// if the key does not exist.
    ///
    /// # Errors
    /// Those of `change`.
    pub fn set_expiry(
        &mut self,
        hash: u64,
        key: &[u8],
        expiry_ms: Option<u64>,
        marks: Option<u8>,
    ) -> Result<bool, Stop> {
        if self.draft.is_some() {
            return self.set_expiry_in_draft(hash, key, expiry_ms, marks);
        }
        let set = self.change(hash, |store, arena, delta| {
            store.set_expiry(arena, delta, hash, key, expiry_ms, marks)
        })?;
        self.begun |= set;
        Ok(set)
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
        let slot = self.cx.shared.slots.slot(HIDDEN_DATABASE, FUNCTIONS_KEY);
        let spared = self.owner.holds(slot).then_some(hidden);
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

    /// Counts a write that is refused because memory is short.
    pub fn count_refused_write(&mut self) {
        self.cx.shared.refused_writes += 1;
    }

    /// Checks that the stream accepts writes (P3.1).
    pub(in crate::stream_owner) fn admit(&mut self) -> Result<(), Stop> {
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
pub(in crate::stream_owner) fn take_in<O: Out>(
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
pub(in crate::stream_owner) fn give_up<O: Out>(
    cx: &mut Context<'_, O>,
    configuration: &Configuration,
    owner: &mut StreamOwner,
    (database, key): (u8, &[u8]),
) -> Result<bool, Refused> {
    let hash = owner.store.hash(database, key);
    let mut access = Access::new(cx, configuration, owner, database);
    Ok(access.change(hash, |store, arena, delta| store.delete(arena, delta, hash, key))?)
}
