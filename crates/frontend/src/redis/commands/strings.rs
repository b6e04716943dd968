//! Strings.

mod mset;

use super::expiry::Unit;
use super::{LargeValue, Operation, Seen, Stop, length_of};
use core::ops::Range;
pub(crate) use mset::key_count_error;
use paritas_protocol::{LARGE_VALUE_BYTES_MAX, Out, Piece, body_bytes};
use paritas_store::{Object, Value};
use paritas_wire::resp::{Proto, encode, errors};
use std::borrow::Cow;

/// The options of SET and GETEX.
#[derive(Clone, Copy, Default, Debug)]
struct Options {
    if_absent: bool,
    if_present: bool,
    /// The argument that the old value must equal.
    if_equal: Option<usize>,
    get: bool,
    keep_expiry: bool,
    persist: bool,
    /// The unit of the expiry, and the index of the argument with the number.
    expiry: Option<(Unit, usize)>,
}

/// A string without its body: one that a command changes, or an argument.
#[derive(Default, Debug)]
pub(super) struct Text<'a> {
    /// `None`: it is an argument, or the key does not exist.
    pub(super) seen: Option<Seen>,
    /// Empty unless it is large.
    pub(super) record: Vec<u8>,
    pub(super) body_bytes: usize,
    /// All of it, or the tail of a large one.
    pub(super) rest: Cow<'a, [u8]>,
}

impl Text<'_> {
    pub(super) fn length(&self) -> usize {
        self.body_bytes + self.rest.len()
    }

    /// These bytes of it: those in the body, and those behind.
    pub(super) fn pieces(&self, range: Range<usize>) -> [Piece<'_>; 2] {
        let body = self.body_bytes;
        let rest = range.start.saturating_sub(body)..range.end.saturating_sub(body);
        let rest = self.rest.get(rest).unwrap_or_default();
        [
            Piece::Body(&self.record, range.start.min(body) as u64..range.end.min(body) as u64),
            Piece::Bytes(rest),
        ]
    }
}

fn append_value(reply: &mut Vec<u8>, object: &Object<'_>) {
    match object.whole() {
        Some(value) => encode::bulk(reply, value),
        None => {
            encode::bulk_header(reply, object.len());
            object.copy_to(reply);
            encode::bulk_end(reply);
        }
    }
}

pub(super) fn append_value_or_null(reply: &mut Vec<u8>, object: Option<&Object<'_>>, proto: Proto) {
    match object {
        Some(object) => append_value(reply, object),
        None => encode::null(reply, proto),
    }
}

/// The bytes that GETRANGE returns of a value of `length` bytes. Negative numbers count from the end.
fn range_of(start: i64, end: i64, length: usize) -> Range<usize> {
    let length = length as i64;
    let from_end = |index: i64| if index < 0 { (length + index).max(0) } else { index };
    let range = from_end(start)..from_end(end).saturating_add(1).min(length);
    if (start < 0 && end < 0 && start > end) || range.is_empty() {
        return 0..0;
    }
    range.start as usize..range.end as usize
}

impl<'a, O: Out> Operation<'a, '_, O> {
    /// Appends the value of the key in argument `at` to the reply.
    fn answer_value(&mut self, at: usize) -> Result<Option<Seen>, Stop> {
        let proto = self.proto();
        // Of commands that also write, Redis counts the lookup of the value that they answer.
        self.lookups.count = true;
        let found = self.look_string(at, |object, reply| {
            match object.and_then(LargeValue::of) {
                Some(large) => return Ok(Err(large)),
                None => append_value_or_null(reply, object, proto),
            }
            Ok(Ok(object.map(Seen::of)))
        })?;
        match found {
            Ok(seen) => Ok(seen),
            Err(large) => {
                self.append_large(at, &large)?;
                Ok(Some(large.seen))
            }
        }
    }

    #[inline]
    pub(crate) fn get(&mut self) -> Result<(), Stop> {
        let proto = self.proto();
        let is_large = self.look_string(1, |object, reply| {
            let is_large = object.is_some_and(Object::has_record);
            if !is_large {
                append_value_or_null(reply, object, proto);
            }
            Ok(is_large)
        })?;
        match is_large {
            true => self.append_large_at(1),
            false => Ok(()),
        }
    }

    pub(crate) fn mget(&mut self) -> Result<(), Stop> {
        let (proto, bytes_max) = (self.proto(), self.access.mget_bytes_max());
        encode::array_header(self.reply, self.count() - 1);
        let mut is_weighed = false;
        for at in 1..self.count() {
            let is_large = self.look(at, |object, reply| {
                let object = object.filter(|o| !o.is_hash());
                let is_large = object.is_some_and(Object::has_record);
                if !is_large {
                    append_value_or_null(reply, object, proto);
                }
                Ok(is_large)
            })?;
            // No body is read for a reply that will be refused.
            let mut reply_bytes = self.reply.len() - self.start;
            if is_large && !is_weighed {
                is_weighed = true;
                for rest in at..self.count() {
                    reply_bytes += self.look_again(rest, |object, _| Ok(object.map_or(0, length_of)))?;
                }
            }
            if reply_bytes > bytes_max {
                return Err(self.refuse(|out| errors::reply_too_large(out, bytes_max)));
            }
            if is_large {
                self.append_large_at(at)?;
            }
        }
        if self.reply.len() - self.start > bytes_max {
            return Err(self.refuse(|out| errors::reply_too_large(out, bytes_max)));
        }
        Ok(())
    }

    /// Parses the options from argument `first` on: those of SET if `sets`, else those of GETEX.
    fn options(&self, first: usize, sets: bool) -> Result<Options, Stop> {
        let mut options = Options::default();
        let mut at = first;
        while at < self.count() {
            let o = &mut options;
            let unit = Unit::ALL
                .iter()
                .find(|(_, word)| self.is_word(at, word))
                .map(|(u, _)| *u);
            let free = |unit: Unit| o.expiry.is_none_or(|(u, _)| u == unit);
            if sets && self.is_word(at, "nx") && !o.if_present && o.if_equal.is_none() {
                o.if_absent = true;
            } else if sets && self.is_word(at, "xx") && !o.if_absent && o.if_equal.is_none() {
                o.if_present = true;
            } else if sets
                && self.is_word(at, "ifeq")
                && !o.if_absent
                && !o.if_present
                && o.if_equal.is_none()
                && at + 1 < self.count()
            {
                at += 1;
                o.if_equal = Some(at);
            } else if sets && self.is_word(at, "get") {
                o.get = true;
            } else if sets && self.is_word(at, "keepttl") && o.expiry.is_none() {
                o.keep_expiry = true;
            } else if !sets && self.is_word(at, "persist") && o.expiry.is_none() {
                o.persist = true;
            } else if let Some(unit) = unit
                && free(unit)
                && !o.keep_expiry
                && !o.persist
                && at + 1 < self.count()
            {
                at += 1;
                o.expiry = Some((unit, at));
            } else {
                return Err(Stop::Error(errors::SYNTAX));
            }
            at += 1;
        }
        Ok(options)
    }

    /// SET of the key in argument `at`.
    pub(crate) fn set(&mut self, at: usize) -> Result<(), Stop> {
        if self.count() == at + 2 {
            // The common case does not read the key: its old value does not matter.
            self.put(at, Seen::with(None, self.job.args.arg(at + 1)))?;
            encode::ok(self.reply);
            return Ok(());
        }
        let options = self.options(at + 2, true)?;
        let expiry_ms = match options.expiry {
            Some((unit, number)) => Some(self.deadline(unit, number)?),
            None => None,
        };
        self.check_large_limits(at, self.job.args.arg(at + 1).len())?;
        let old = if options.get {
            self.answer_value(at)?
        } else if options.if_absent || options.if_present || options.keep_expiry {
            self.seen(at)?
        } else {
            None
        };
        let (old, differs) = match options.if_equal {
            Some(with) => {
                let (seen, is_equal) = self.compare(at, with)?;
                (seen, !is_equal)
            }
            None => (old, false),
        };
        if differs || (options.if_absent && old.is_some()) || (options.if_present && old.is_none()) {
            if !options.get {
                encode::null(self.reply, self.proto());
            }
            return Ok(());
        }
        let expiry_ms = if options.keep_expiry {
            old.and_then(|o| o.expiry_ms)
        } else {
            expiry_ms
        };
        self.put_until(at, self.job.args.arg(at + 1), expiry_ms)?;
        if !options.get {
            encode::ok(self.reply);
        }
        Ok(())
    }

    /// The string of the key in argument `at`, and whether it equals the argument `with`.
    fn compare(&mut self, at: usize, with: usize) -> Result<(Option<Seen>, bool), Stop> {
        self.admit()?;
        let text = self.old_string(at)?;
        let wanted = self.job.args.arg(with);
        let is_equal = text.seen.is_some() && text.length() == wanted.len() && self.whole(&text, 0)? == wanted;
        Ok((text.seen, is_equal))
    }

    /// Removes a key if it has this value.
    pub(crate) fn delifeq(&mut self) -> Result<(), Stop> {
        let (_, is_equal) = self.compare(1, 2)?;
        if is_equal {
            self.remove(1)?;
        }
        encode::integer(self.reply, i64::from(is_equal));
        Ok(())
    }

    /// Stores a value with this expiry, in ms since 1970. If that time has passed, the key is removed instead.
    fn put_until(&mut self, at: usize, bytes: &[u8], expiry_ms: Option<u64>) -> Result<(), Stop> {
        if expiry_ms.is_some_and(|expiry| expiry <= self.access.now_ms()) {
            self.check_large_limits(at, bytes.len())?;
            return self.remove(at).map(|_| ());
        }
        let value = Value {
            bytes,
            expiry_ms,
            ..Value::default()
        };
        self.put(at, value)
    }

    pub(crate) fn setnx(&mut self) -> Result<(), Stop> {
        self.check_large_limits(1, self.job.args.arg(2).len())?;
        let absent = self.seen(1)?.is_none();
        if absent {
            self.put(1, Seen::with(None, self.job.args.arg(2)))?;
        }
        encode::integer(self.reply, i64::from(absent));
        Ok(())
    }

    pub(crate) fn setex(&mut self, unit: Unit) -> Result<(), Stop> {
        let expiry_ms = self.deadline(unit, 2)?;
        self.put_until(1, self.job.args.arg(3), Some(expiry_ms))?;
        encode::ok(self.reply);
        Ok(())
    }

    pub(crate) fn getset(&mut self) -> Result<(), Stop> {
        self.check_large_limits(1, self.job.args.arg(2).len())?;
        self.answer_value(1)?;
        self.put(1, Seen::with(None, self.job.args.arg(2)))
    }

    pub(crate) fn getdel(&mut self) -> Result<(), Stop> {
        if self.answer_value(1)?.is_some() {
            self.remove(1)?;
        }
        Ok(())
    }

    pub(crate) fn getex(&mut self) -> Result<(), Stop> {
        let options = self.options(2, false)?;
        let Some(seen) = self.answer_value(1)? else {
            return Ok(());
        };
        match options.expiry {
            Some((unit, at)) => {
                let expiry_ms = self.deadline(unit, at)?;
                if expiry_ms <= self.access.now_ms() {
                    self.remove(1)?;
                } else {
                    self.set_expiry(1, Some(expiry_ms))?;
                }
            }
            None if options.persist && seen.expiry_ms.is_some() => {
                self.set_expiry(1, None)?;
            }
            None => {}
        }
        Ok(())
    }

    pub(crate) fn strlen(&mut self) -> Result<(), Stop> {
        self.look_string(1, |object, reply| {
            encode::integer(reply, object.map_or(0, |o| length_of(o) as i64));
            Ok(())
        })
    }

    pub(crate) fn getrange(&mut self) -> Result<(), Stop> {
        let (start, end) = (self.integer(2)?, self.integer(3)?);
        let mut bytes = Vec::new();
        let large = self.look_string(1, |object, reply| {
            let Some(object) = object else {
                reply.extend_from_slice(encode::EMPTY_BULK);
                return Ok(None);
            };
            if let Some(large) = LargeValue::of(object) {
                return Ok(Some(large));
            }
            let range = range_of(start, end, object.len());
            match object.whole() {
                Some(value) => encode::bulk(reply, value.get(range).unwrap_or_default()),
                None => {
                    object.copy_to(&mut bytes);
                    encode::bulk(reply, bytes.get(range).unwrap_or_default());
                }
            }
            Ok(None)
        })?;
        let Some(large) = large else { return Ok(()) };
        let body_bytes = large.seen.bytes - large.tail.len();
        let range = range_of(start, end, large.seen.bytes);
        self.note_read(1, &large, range.len() as u64);
        let in_body = range.start.min(body_bytes) as u64..range.end.min(body_bytes) as u64;
        if !in_body.is_empty() && self.is_read_by_client(range.len() as u64)? {
            return self.reply_long(&large, range.start as u64..range.end as u64);
        }
        let Self { access, reply, .. } = self;
        let body = access.body(&large.record, in_body)?;
        encode::bulk_header(reply, range.len());
        reply.extend_from_slice(body);
        let in_tail = range.start.saturating_sub(body_bytes)..range.end.saturating_sub(body_bytes);
        reply.extend_from_slice(large.tail.get(in_tail).unwrap_or_default());
        encode::bulk_end(reply);
        Ok(())
    }

    /// Refuses a string of `bytes` bytes, with the error of Redis, if it is longer than the store allows.
    fn check_length(&self, bytes: usize) -> Result<(), Stop> {
        if bytes > LARGE_VALUE_BYTES_MAX {
            return Err(Stop::Error(errors::STRING_TOO_LONG));
        }
        Ok(())
    }

    /// A string that the command changes, without its body.
    pub(super) fn old_string(&mut self, at: usize) -> Result<Text<'static>, Stop> {
        self.look_string(at, |object, _| {
            let Some(object) = object else {
                return Ok(Text::default());
            };
            let mut rest = Vec::with_capacity(object.len());
            object.copy_to(&mut rest);
            Ok(Text {
                seen: Some(Seen::of(object)),
                record: object.record().unwrap_or_default().to_vec(),
                body_bytes: length_of(object) - object.len(),
                rest: rest.into(),
            })
        })
    }

    /// The argument that may be a long value.
    pub(super) fn long_argument(&mut self, at: usize) -> Result<Text<'a>, Stop> {
        let args = self.job.args;
        if !self.job.is_staged {
            return Ok(Text {
                rest: args.arg(at).into(),
                ..Text::default()
            });
        }
        let (record, tail) = self.access.staged(self.job.ticket)?;
        Ok(Text {
            seen: None,
            body_bytes: body_bytes(&record) as usize,
            record,
            rest: tail.into(),
        })
    }

    /// Stores a string of `length` bytes that is made of these pieces of the old one and others.
    pub(super) fn put_changed(
        &mut self,
        at: usize,
        old: &Text<'_>,
        pieces: &[Piece<'_>],
        length: usize,
    ) -> Result<(), Stop> {
        let basis = [old.record.as_slice(), &old.rest].concat();
        self.put_made(at, old.seen.as_ref(), &basis, pieces, length)
    }

    /// Stores a string of `length` bytes that is made of these pieces. `like`: it has the expiry of this object.
    /// `basis`: what it is made from, since that may change before all parts of the new value are at their holders.
    pub(super) fn put_made(
        &mut self,
        at: usize,
        like: Option<&Seen>,
        basis: &[u8],
        pieces: &[Piece<'_>],
        length: usize,
    ) -> Result<(), Stop> {
        let is_in_parts = |piece: &Piece<'_>| matches!(piece, Piece::Body(_, range) if !range.is_empty());
        if length <= self.access.small_bytes_max() && !pieces.iter().any(is_in_parts) {
            let mut bytes = Vec::with_capacity(length);
            for piece in pieces {
                match piece {
                    Piece::Bytes(some) => bytes.extend_from_slice(some),
                    Piece::Zeros(count) => bytes.resize(bytes.len() + *count as usize, 0),
                    Piece::Body(..) => {}
                }
            }
            return self.put(at, Seen::with(like, &bytes));
        }
        let (key, hash) = (self.job.args.arg(at), self.hash_of(at));
        let like = Seen::with(like, &[]);
        Ok(self
            .access
            .put_pieces(self.job.ticket, basis, hash, key, pieces, like)?)
    }

    pub(crate) fn append(&mut self) -> Result<(), Stop> {
        let old = self.old_string(1)?;
        let more = self.long_argument(2)?;
        let length = old.length() + more.length();
        self.check_length(length)?;
        if old.seen.is_none() && self.job.is_staged {
            // Its parts are those of the argument.
            self.put(1, Value::default())?;
        } else if old.seen.is_none() || more.length() > 0 {
            let [body, rest] = old.pieces(0..old.length());
            let [more_body, more_rest] = more.pieces(0..more.length());
            self.put_changed(1, &old, &[body, rest, more_body, more_rest], length)?;
        }
        encode::integer(self.reply, length as i64);
        Ok(())
    }

    pub(crate) fn setrange(&mut self) -> Result<(), Stop> {
        let offset = usize::try_from(self.integer(2)?).map_err(|_| Stop::Error(errors::OFFSET_OUT_OF_RANGE))?;
        let old = self.old_string(1)?;
        let part = self.long_argument(3)?;
        let mut length = old.length();
        if part.length() > 0 {
            let end = offset.saturating_add(part.length());
            self.check_length(end)?;
            let gap = Piece::Zeros(offset.saturating_sub(length) as u64);
            let [body, rest] = old.pieces(0..offset.min(length));
            let [body_after, rest_after] = old.pieces(end.min(length)..length);
            length = length.max(end);
            let [part_body, part_rest] = part.pieces(0..part.length());
            let pieces = [body, rest, gap, part_body, part_rest, body_after, rest_after];
            self.put_changed(1, &old, &pieces, length)?;
        }
        encode::integer(self.reply, length as i64);
        Ok(())
    }
}
