//! How a command looks at the values of its keys, and changes them: short ones in objects, and large ones with bodies.

use super::{Lookups, Operation, ReadLarge, Stop, is_use};
use paritas_protocol::{Out, body_bytes};
use paritas_store::{Object, Value};
use paritas_wire::command::Command;
use paritas_wire::resp::{encode, errors};

/// Facts about an existing object that a command needs when it changes the object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) bytes: usize,
    pub(super) expiry_ms: Option<u64>,
    pub(super) flags: Option<u32>,
    /// Marks of memcached's protocol.
    pub(super) marks: u8,
    pub(super) is_hash: bool,
}

/// Length of an object's value in bytes, with its body if it is large.
#[inline]
pub(super) fn length_of(object: &Object<'_>) -> usize {
    object.len() + object.record().map_or(0, body_bytes) as usize
}

/// What a command needs of a large value to read it.
#[derive(Clone, Debug)]
pub(super) struct LargeValue {
    pub(super) seen: Seen,
    pub(super) record: Vec<u8>,
    pub(super) tail: Vec<u8>,
}

impl LargeValue {
    /// That of an object; `None` if all of its value is in the object.
    #[inline]
    pub(super) fn of(object: &Object<'_>) -> Option<Self> {
        object.record().map(|record| Self::with(object, record))
    }

    #[cold]
    pub(super) fn with(object: &Object<'_>, record: &[u8]) -> Self {
        let mut tail = Vec::with_capacity(object.len());
        object.copy_to(&mut tail);
        Self {
            seen: Seen::of(object),
            record: record.to_vec(),
            tail,
        }
    }
}

impl Seen {
    #[inline]
    pub(super) fn of(object: &Object<'_>) -> Self {
        Self {
            bytes: length_of(object),
            expiry_ms: object.expiry_ms(),
            flags: object.flags(),
            marks: object.marks(),
            is_hash: object.is_hash(),
        }
    }

    /// A string value of these bytes, with the expiry and flags of the object seen before, if any. It has no marks:
    /// they are about the value of before.
    pub(super) fn with<'v>(seen: Option<&Self>, bytes: &'v [u8]) -> Value<'v> {
        Value {
            bytes,
            expiry_ms: seen.and_then(|s| s.expiry_ms),
            flags: seen.and_then(|s| s.flags),
            marks: 0,
            hash_kind: false,
            record: &[],
        }
    }
}

impl<O: Out> Operation<'_, '_, O> {
    /// The hash of the key in argument `at`.
    pub(super) fn hash_of(&self, at: usize) -> u64 {
        match self.job.hash {
            Some(hash) if at == usize::from(self.job.spec.first_key.unsigned_abs()) => hash,
            _ => self.access.hash(self.job.args.arg(at)),
        }
    }

    // --- looking -------------------------------------------------------------------------------------------------

    /// Looks up the key in argument `at` and returns the result of `then` for the object. `then` may append to the
    /// reply.
    #[inline]
    pub(super) fn look<T>(
        &mut self,
        at: usize,
        then: impl FnOnce(Option<&Object<'_>>, &mut Vec<u8>) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        let (key, hash) = (self.job.args.arg(at), self.hash_of(at));
        let is_use = is_use(self.job.spec.id);
        let Self {
            access, reply, lookups, ..
        } = self;
        access.look(hash, key, is_use, |object| {
            *if object.is_some() {
                &mut lookups.hits
            } else {
                &mut lookups.misses
            } += 1;
            then(object, reply)
        })?
    }

    /// The same for a key that was looked up before: the lookup does not count again.
    #[inline]
    pub(super) fn look_again<T>(
        &mut self,
        at: usize,
        then: impl FnOnce(Option<&Object<'_>>, &mut Vec<u8>) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        let before = self.lookups;
        let found = self.look(at, then);
        self.lookups = before;
        found
    }

    #[inline]
    pub(super) fn count_lookups(&mut self) {
        let Lookups { count, hits, misses } = self.lookups;
        if count {
            self.access.count_lookups(hits, misses);
        }
    }

    /// The same for commands on strings: any other object is an error.
    #[inline]
    pub(super) fn look_string<T>(
        &mut self,
        at: usize,
        then: impl FnOnce(Option<&Object<'_>>, &mut Vec<u8>) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        self.look(at, |object, reply| match object {
            Some(object) if object.is_hash() => Err(Stop::Error(errors::WRONG_TYPE)),
            object => then(object, reply),
        })
    }

    /// What is needed to read the large value of the key in argument `at`.
    #[cold]
    pub(super) fn large_at(&mut self, at: usize) -> Result<Option<LargeValue>, Stop> {
        self.look_again(at, |object, _| Ok(object.and_then(LargeValue::of)))
    }

    /// What the key in argument `at` has in another database.
    pub(super) fn seen_in(&mut self, database: u8, at: usize) -> Result<Option<Seen>, Stop> {
        let key = self.job.args.arg(at);
        let hash = self.access.hash_in(database, key);
        Ok(self.access.look(hash, key, true, |object| object.map(Seen::of))?)
    }

    pub(super) fn seen(&mut self, at: usize) -> Result<Option<Seen>, Stop> {
        self.look(at, |object, _| Ok(object.map(Seen::of)))
    }

    /// A copy of a string.
    pub(super) fn string(&mut self, at: usize) -> Result<Option<(Seen, Vec<u8>)>, Stop> {
        let found = self.look_string(at, |object, _| {
            let Some(object) = object else { return Ok(None) };
            if let Some(large) = LargeValue::of(object) {
                return Ok(Some(Err(large)));
            }
            let mut bytes = Vec::with_capacity(object.len());
            object.copy_to(&mut bytes);
            Ok(Some(Ok((Seen::of(object), bytes))))
        })?;
        match found {
            None => Ok(None),
            Some(Ok(here)) => Ok(Some(here)),
            Some(Err(_)) => Err(Stop::Error(errors::NOT_A_FLOAT)),
        }
    }

    /// Appends the large value of the key in argument `at` to the reply.
    pub(super) fn append_large_at(&mut self, at: usize) -> Result<(), Stop> {
        match self.large_at(at)? {
            Some(large) => self.append_large(at, &large),
            None => {
                encode::null(self.reply, self.proto());
                Ok(())
            }
        }
    }

    /// Appends a large value to the reply, once its body is here, or leaves it to the node of the client to read it.
    pub(super) fn append_large(&mut self, at: usize, large: &LargeValue) -> Result<(), Stop> {
        let value_bytes = large.seen.bytes as u64;
        self.note_read(at, large, value_bytes);
        // MGET has weighed its values before.
        if self.job.spec.id != Command::Mget && self.is_read_by_client(value_bytes)? {
            return self.reply_long(large, 0..value_bytes);
        }
        let Self { access, reply, .. } = self;
        let body = access.body(&large.record, 0..u64::MAX)?;
        encode::bulk_header(reply, body.len() + large.tail.len());
        reply.extend_from_slice(body);
        reply.extend_from_slice(&large.tail);
        encode::bulk_end(reply);
        Ok(())
    }

    /// The command reads these bytes of the large value of the key in argument `at`. It counts when it has ended.
    pub(super) fn note_read(&mut self, at: usize, large: &LargeValue, bytes: u64) {
        if self.access.counts_reads() {
            self.reads.push(ReadLarge {
                at,
                record: large.record.clone(),
                tail_bytes: large.tail.len(),
                bytes,
            });
        }
    }

    /// Whether the node of the client reads a reply of this number of bytes, of which some are in the body of a large
    /// value. It does if it is another node, or the reply is long. In a transaction it never does, so that the reply
    /// must not be too long.
    pub(super) fn is_read_by_client(&mut self, bytes: u64) -> Result<bool, Stop> {
        if !self.access.is_in_draft() {
            return Ok(bytes >= self.access.streamed_bytes_min() || !self.access.is_own(self.job.ticket));
        }
        let bytes_max = self.access.mget_bytes_max();
        match bytes > bytes_max as u64 {
            true => Err(self.refuse(|out| errors::reply_too_large(out, bytes_max))),
            false => Ok(false),
        }
    }

    /// Makes these bytes of a large value the reply, which the node of the client reads.
    pub(super) fn reply_long(&mut self, large: &LargeValue, range: core::ops::Range<u64>) -> Result<(), Stop> {
        let pinned = self.access.pin(self.job.ticket, &large.record, &large.tail, range)?;
        self.long = Some(Box::new(pinned));
        Ok(())
    }

    // --- changing ------------------------------------------------------------------------------------------------

    /// Stores a value under the key in argument `at`.
    pub(super) fn put(&mut self, at: usize, value: Value<'_>) -> Result<(), Stop> {
        self.put_as(self.hash_of(at), at, value)
    }

    /// The same under this hash, which may be that of another database.
    pub(super) fn put_as(&mut self, hash: u64, at: usize, value: Value<'_>) -> Result<(), Stop> {
        let key = self.job.args.arg(at);
        if self.job.is_staged {
            return Ok(self.access.put_staged(self.job.ticket, hash, key, value)?);
        }
        if value.lacks_parts(self.access.small_bytes_max()) {
            return Ok(self.access.put_large(self.job.ticket, hash, key, value)?);
        }
        Ok(self.access.put(hash, key, value)?)
    }

    /// Removes the key in argument `at`. True if it existed.
    pub(super) fn remove(&mut self, at: usize) -> Result<bool, Stop> {
        let (key, hash) = (self.job.args.arg(at), self.hash_of(at));
        Ok(self.access.remove(hash, key)?)
    }

    /// Sets the expiry of the key in argument `at`, in ms since 1970; `None`: it never expires. False if the key does
    /// not exist.
    pub(super) fn set_expiry(&mut self, at: usize, expiry_ms: Option<u64>) -> Result<bool, Stop> {
        self.set_expiry_and_marks(at, expiry_ms, None)
    }

    /// The same, and its marks if there are some to set.
    pub(super) fn set_expiry_and_marks(
        &mut self,
        at: usize,
        expiry_ms: Option<u64>,
        marks: Option<u8>,
    ) -> Result<bool, Stop> {
        let (key, hash) = (self.job.args.arg(at), self.hash_of(at));
        Ok(self.access.set_expiry(hash, key, expiry_ms, marks)?)
    }

    /// Refuses the key in argument `at`, or a value of `value_bytes` bytes, if it is too long.
    pub(super) fn check_large_limits(&self, at: usize, value_bytes: usize) -> Result<(), Stop> {
        let key_bytes = self.job.args.arg(at).len();
        Ok(self.access.check_large_limits(key_bytes, value_bytes)?)
    }
}
