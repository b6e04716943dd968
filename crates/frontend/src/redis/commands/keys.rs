//! Commands on keys of any type.

use super::{Operation, Seen, Stop};
use crate::redis::connection::{database_number, is_word};
use paritas_protocol::{Out, body_bytes, class_of};
use paritas_store::Value;
use paritas_wire::resp::{ArgList, encode, errors, parse_integer};

/// The longest string, in bytes, that Redis stores inside its object. OBJECT ENCODING calls it `embstr`.
const EMBEDDED_BYTES_MAX: usize = 44;
/// Bytes of an object beside key and value: header and index entry (docs/formats/object.md).
const OBJECT_BYTES: usize = 3 + 8;
/// Bytes that an expiry adds.
const EXPIRY_BYTES: usize = 7;
/// Bytes that a database other than 0 adds, with the byte of the kind.
const DATABASE_BYTES: usize = 2;

/// A copy of an object, of any type.
struct CopiedObject {
    seen: Seen,
    /// The bytes in it: of a large value, its tail.
    bytes: Vec<u8>,
    /// The record of a large value; empty if the value is not large.
    record: Vec<u8>,
}

impl CopiedObject {
    fn value(&self) -> Value<'_> {
        Value {
            bytes: &self.bytes,
            expiry_ms: self.seen.expiry_ms,
            flags: self.seen.flags,
            marks: self.seen.marks,
            hash_kind: self.seen.is_hash,
            record: &self.record,
        }
    }
}

/// Flags and marks of memcached in one number, as READOBJECT answers it.
fn packed_flags(seen: &Seen) -> Option<i64> {
    let packed = i64::from(seen.flags.unwrap_or(0)) | i64::from(seen.marks) << 32;
    Some(packed).filter(|packed| *packed != 0)
}

/// The options of COPY: whether it replaces a key, and the database that it names.
///
/// # Errors
/// The text of the error for the client.
pub(crate) fn copy_options(args: ArgList<'_>) -> Result<(bool, Option<u8>), &'static str> {
    let (mut replaces, mut database, mut at) = (false, None, 3);
    while at < args.len() {
        if is_word(args, at, "replace") {
            replaces = true;
        } else if is_word(args, at, "db") && at + 1 < args.len() {
            at += 1;
            database = Some(database_number(args.arg(at))?);
        } else {
            return Err(errors::SYNTAX);
        }
        at += 1;
    }
    Ok((replaces, database))
}

impl<O: Out> Operation<'_, '_, O> {
    pub(crate) fn delete(&mut self) -> Result<(), Stop> {
        let mut bytes = 0;
        for at in 1..self.count() {
            if self.seen(at)?.is_some() {
                bytes += self.job.args.arg(at).len();
            }
        }
        if bytes > 0 {
            let (args, database) = (self.job.args, self.job.database);
            let keys = (1..args.len()).map(|at| (database, args.arg(at)));
            self.access.reserve(args.len() - 1, 0, keys, [].into_iter())?;
        }
        let mut count = 0;
        for at in 1..self.count() {
            count += i64::from(self.remove(at)?);
        }
        encode::integer(self.reply, count);
        Ok(())
    }

    pub(crate) fn exists(&mut self) -> Result<(), Stop> {
        let mut count = 0;
        for at in 1..self.count() {
            count += i64::from(self.seen(at)?.is_some());
        }
        encode::integer(self.reply, count);
        Ok(())
    }

    pub(crate) fn kind(&mut self) -> Result<(), Stop> {
        self.look(1, |object, reply| {
            let kind = match object {
                None => "none",
                Some(object) if object.is_hash() => "hash",
                Some(_) => "string",
            };
            encode::simple(reply, kind);
            Ok(())
        })
    }

    /// A copy of a key's object.
    fn object(&mut self, at: usize) -> Result<Option<CopiedObject>, Stop> {
        self.look(at, |object, _| {
            Ok(object.map(|object| {
                let mut bytes = Vec::with_capacity(object.len());
                object.copy_to(&mut bytes);
                CopiedObject {
                    seen: Seen::of(object),
                    bytes,
                    record: object.record().unwrap_or_default().to_vec(),
                }
            }))
        })
    }

    /// Stores it under the key in argument `at`. Of a large value, both objects name the same parts.
    fn put_object(&mut self, database: u8, at: usize, object: &CopiedObject) -> Result<(), Stop> {
        let hash = self.access.hash_in(database, self.job.args.arg(at));
        self.put_as(hash, at, object.value())
    }

    pub(crate) fn copy(&mut self) -> Result<(), Stop> {
        let (replace, database) = copy_options(self.job.args).map_err(Stop::Error)?;
        let database = database.unwrap_or(self.job.database);
        if self.job.args.arg(1) == self.job.args.arg(2) && database == self.job.database {
            return Err(Stop::Error(errors::SAME_OBJECT));
        }
        let source = self.object(1)?;
        let taken = self.seen_in(database, 2)?.is_some();
        let copied = match source {
            Some(object) if replace || !taken => {
                self.put_object(database, 2, &object)?;
                true
            }
            _ => false,
        };
        encode::integer(self.reply, i64::from(copied));
        Ok(())
    }

    /// MOVE: one delta, since both keys are in one hash slot.
    pub(crate) fn move_key(&mut self) -> Result<(), Stop> {
        let database = database_number(self.job.args.arg(2)).map_err(Stop::Error)?;
        if database == self.job.database {
            return Err(Stop::Error(errors::SAME_OBJECT));
        }
        let object = self.object(1)?;
        let moved = match object {
            Some(object) if self.seen_in(database, 1)?.is_none() => {
                let key = self.job.args.arg(1);
                let there = (database, key);
                let (keys, inserted) = ([(self.job.database, key), there].into_iter(), [there].into_iter());
                self.access.reserve(2, object.bytes.len() + key.len(), keys, inserted)?;
                // As in RENAME, the write comes before the removal.
                self.put_object(database, 1, &object)?;
                // False if the write made room by evicting it.
                self.remove(1)?;
                true
            }
            _ => false,
        };
        encode::integer(self.reply, i64::from(moved));
        Ok(())
    }

    /// RENAME, and RENAMENX if `only_if_free`: one delta.
    pub(crate) fn rename(&mut self, only_if_free: bool) -> Result<(), Stop> {
        let Some(object) = self.object(1)? else {
            return Err(Stop::Error(errors::NO_SUCH_KEY));
        };
        let taken = self.seen(2)?.is_some();
        let same = self.job.args.arg(1) == self.job.args.arg(2);
        let renames = !(same || only_if_free && taken);
        if renames {
            self.check_large_limits(2, object.bytes.len())?;
            let (old, new) = (self.job.args.arg(1), self.job.args.arg(2));
            let (old, new) = ((self.job.database, old), (self.job.database, new));
            let (keys, inserted) = ([old, new].into_iter(), [new].into_iter());
            self.access
                .reserve(2, object.bytes.len() + new.1.len(), keys, inserted)?;
            // The order matters: the write can fail for lack of space, so it comes before the removal.
            self.put_object(self.job.database, 2, &object)?;
            self.remove(1)?;
        }
        if only_if_free {
            encode::integer(self.reply, i64::from(renames));
        } else {
            encode::ok(self.reply);
        }
        Ok(())
    }

    /// Answers what a copy of the key needs: the array of its version, expiry, flags and value. The expiry is in ms
    /// since 1970; -1 if there is none. The flags are those of memcached, and above their 32 bits its marks; -1 if
    /// there is neither.
    pub(crate) fn read_object(&mut self) -> Result<(), Stop> {
        let (key, hash) = (self.job.args.arg(1), self.hash_of(1));
        let version = self.access.version_to_keep(hash, key)?;
        let text = self.old_string(1)?;
        let Some(seen) = text.seen else {
            encode::null(self.reply, self.proto());
            return Ok(());
        };
        let (bytes, bytes_max) = (text.length(), self.access.streamed_bytes_min() as usize - 1);
        if bytes > bytes_max {
            return Err(self.refuse(|out| errors::copy_too_large(out, bytes, bytes_max)));
        }
        let number = |number: Option<i64>| number.unwrap_or(-1).to_string();
        let Self { access, reply, .. } = self;
        let body = match text.record.is_empty() {
            true => &[],
            false => access.body(&text.record, 0..u64::MAX)?,
        };
        encode::array_header(reply, 4);
        encode::bulk(reply, &version);
        encode::bulk(reply, number(seen.expiry_ms.map(|at| at as i64)).as_bytes());
        encode::bulk(reply, number(packed_flags(&seen)).as_bytes());
        encode::bulk_header(reply, body.len() + text.rest.len());
        reply.extend_from_slice(body);
        reply.extend_from_slice(&text.rest);
        encode::bulk_end(reply);
        Ok(())
    }

    /// Writes such a copy under another key: `nx` only if that is free. Answers its version, or nothing.
    pub(crate) fn write_object(&mut self) -> Result<(), Stop> {
        let args = self.job.args;
        self.check_large_limits(1, args.arg(5).len())?;
        let is_there = self.seen(1)?.is_some();
        if self.is_word(2, "nx") && is_there {
            encode::null(self.reply, self.proto());
            return Ok(());
        }
        let (expiry, packed) = (self.integer(3)?, self.integer(4)?.max(0));
        let value = Value {
            bytes: args.arg(5),
            expiry_ms: u64::try_from(expiry).ok(),
            flags: Some(packed as u32).filter(|flags| *flags != 0),
            marks: (packed >> 32) as u8,
            ..Value::default()
        };
        if value
            .expiry_ms
            .is_some_and(|expiry_ms| expiry_ms <= self.access.now_ms())
        {
            // As SET does with a time that is over.
            self.remove(1)?;
        } else {
            self.put(1, value)?;
        }
        let (key, hash) = (args.arg(1), self.hash_of(1));
        let version = self.access.version_to_keep(hash, key)?;
        encode::bulk(self.reply, &version);
        Ok(())
    }

    /// Removes a key that has this version. Answers whether it has.
    pub(crate) fn remove_object(&mut self) -> Result<(), Stop> {
        let (key, hash) = (self.job.args.arg(1), self.hash_of(1));
        let is_same = self.access.version(hash, key)? == self.job.args.arg(2);
        let removed = is_same && self.remove(1)?;
        encode::integer(self.reply, i64::from(removed));
        Ok(())
    }

    pub(crate) fn object_encoding(&mut self) -> Result<(), Stop> {
        let proto = self.proto();
        self.look(2, |object, reply| {
            let encoding = match object {
                None => {
                    encode::null(reply, proto);
                    return Ok(());
                }
                Some(object) if object.is_hash() => "listpack",
                Some(object) if object.record().is_some() => "raw",
                Some(object) if object.whole().and_then(parse_integer).is_some() => "int",
                Some(object) if object.len() <= EMBEDDED_BYTES_MAX => "embstr",
                Some(_) => "raw",
            };
            encode::bulk(reply, encoding.as_bytes());
            Ok(())
        })
    }

    pub(crate) fn object_freq(&mut self) -> Result<(), Stop> {
        let lfu = self.access.policy().is_lfu();
        match self.seen(2)? {
            Some(_) if !lfu => Err(Stop::Error(errors::NO_LFU)),
            Some(_) => {
                let (key, hash) = (self.job.args.arg(2), self.hash_of(2));
                let uses = self.access.uses(hash, key)?;
                encode::integer(self.reply, uses.unwrap_or(0).into());
                Ok(())
            }
            None => {
                encode::null(self.reply, self.proto());
                Ok(())
            }
        }
    }

    /// Always 0: the time at which a key was last used is not stored.
    pub(crate) fn object_idletime(&mut self) -> Result<(), Stop> {
        let lfu = self.access.policy().is_lfu();
        match self.seen(2)? {
            Some(_) if lfu => return Err(Stop::Error(errors::NO_IDLE_TIME)),
            Some(_) => encode::integer(self.reply, 0),
            None => encode::null(self.reply, self.proto()),
        }
        Ok(())
    }

    /// Always 1: no two keys share a value.
    pub(crate) fn object_refcount(&mut self) -> Result<(), Stop> {
        match self.seen(2)? {
            Some(_) => encode::integer(self.reply, 1),
            None => encode::null(self.reply, self.proto()),
        }
        Ok(())
    }

    /// Bytes that a key takes on all nodes: its object, its index entry, and its share of the parity; of a large value
    /// also the parts of its body, by its class.
    pub(crate) fn memory_usage(&mut self) -> Result<(), Stop> {
        let options = self.count() - 3;
        if options > 0 {
            if options != 2 || !self.is_word(3, "samples") {
                return Err(Stop::Error(errors::SYNTAX));
            }
            if self.integer(4)? < 0 {
                return Err(Stop::Error(errors::SYNTAX));
            }
        }
        let (data, parity) = {
            let configuration = self.access.configuration();
            (configuration.data, configuration.parity)
        };
        let (key_bytes, proto) = (self.job.args.arg(2).len(), self.proto());
        // Redis does not count this lookup.
        self.lookups.count = false;
        self.look(2, |object, reply| {
            let Some(object) = object else {
                encode::null(reply, proto);
                return Ok(());
            };
            let expiry = if object.expiry_ms().is_some() { EXPIRY_BYTES } else { 0 };
            let elsewhere = if object.database() > 0 { DATABASE_BYTES } else { 0 };
            let mut bytes = key_bytes + object.len() + expiry + elsewhere + OBJECT_BYTES;
            let mut parts_bytes = 0;
            if let Some(record) = object.record() {
                // A damaged object may be repaired.
                let class = class_of(record).ok_or(Stop::Wait)?;
                bytes += record.len();
                parts_bytes = class.stored_bytes(body_bytes(record));
            }
            let nodes = usize::from(data) + usize::from(parity);
            let total = (bytes * nodes).div_ceil(usize::from(data.max(1))) as u64 + parts_bytes;
            encode::integer(reply, total as i64);
            Ok(())
        })
    }
}
