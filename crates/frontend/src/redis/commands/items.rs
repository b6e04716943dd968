//! The commands of memcached: strings with flags. Their words are in `memcached/texts.rs`.

mod meta;

use super::strings::Text;
use super::{Operation, Seen, Stop};
use crate::memcached::texts;
use paritas_protocol::{LARGE_VALUE_BYTES_MAX, Out};
use paritas_store::Value;
use paritas_wire::memcached::{self, Get, How, Meta, RELATIVE_MAX, Request, Store, Verb};

/// The latest expiry, in ms since 1970 (docs/formats/object.md).
const EXPIRY_MS_MAX: u64 = (1 << 48) - 1;
/// Bytes of the longest number of 64 bits.
const NUMBER_BYTES_MAX: usize = 20;

/// The mark of an item that is out of date.
const STALE: u8 = 1;
/// The mark of an item that one client has been told to make anew.
const WON: u8 = 2;
/// The other bits of the marks are a number, which `cas` depends on: an item that is marked again has another one.
const STAMP_STEP: u8 = 4;
/// The number begins as the time in seconds modulo this prime. An item that is made again after its time to live then
/// seldom has the number of the one before: few times to live are a multiple of it.
const STAMPS: u64 = 61;

/// When an item expires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expiry {
    Never,
    /// In ms since 1970.
    At(u64),
    /// It has expired.
    Past,
}

/// The number by which `cas` knows an item: a hash of its value and flags, under the key of the cluster. So it needs no
/// byte, and is the same at every owner. To win changes nothing of it. `hash`: that of the value, or of the record and
/// the tail of a large one.
fn cas_of(hash: u64, flags: u32, marks: u8) -> u64 {
    let rest = u64::from(flags) | u64::from(marks & !WON) << 32;
    // Some clients keep it in a signed number.
    ((hash ^ rest.wrapping_mul(0x9e37_79b9_7f4a_7c15)) & CAS_MAX).max(1)
}

/// The largest of these numbers.
const CAS_MAX: u64 = i64::MAX as u64;

impl<'a, O: Out> Operation<'a, '_, O> {
    fn expiry(&self, exptime: i64) -> Expiry {
        let now_ms = self.access.now_ms();
        let at_ms = match exptime {
            0 => return Expiry::Never,
            ..0 => return Expiry::Past,
            1..=RELATIVE_MAX => now_ms + exptime as u64 * 1000,
            _ => exptime as u64 * 1000,
        };
        match at_ms {
            at_ms if at_ms <= now_ms => Expiry::Past,
            at_ms => Expiry::At(at_ms.min(EXPIRY_MS_MAX)),
        }
    }

    /// Ends the command with a line of this text.
    fn say(&mut self, text: &str) -> Result<(), Stop> {
        texts::line(self.reply, text);
        Ok(())
    }

    /// The number by which `cas` knows an item.
    fn cas_of(&self, item: &Text<'_>) -> u64 {
        let hash = match item.record.is_empty() {
            true => self.access.hash(&item.rest),
            false => self.access.hash(&[item.record.as_slice(), &item.rest].concat()),
        };
        let (flags, marks) = match &item.seen {
            Some(seen) => (seen.flags, seen.marks),
            None => (None, 0),
        };
        cas_of(hash, flags.unwrap_or(0), marks)
    }

    /// An item that is asked for, if it is there; and the end of the answer, if the line goes on to the last key.
    pub(crate) fn read_item(&mut self) -> Result<(), Stop> {
        let line = self.job.args.arg(2);
        if let Ok(get) = memcached::get(line) {
            return self.answer_item(&get);
        }
        match memcached::parse(line) {
            Ok(Request::Meta(meta)) => self.meta(&meta),
            Ok(_) => self.say("ERROR"),
            Err(refusal) => self.say(refusal.text()),
        }
    }

    fn answer_item(&mut self, get: &Get<'_>) -> Result<(), Stop> {
        let is_there = match get.has_cas {
            false => self.append_item()?,
            true => self.append_item_with_cas()?,
        };
        if let Some(exptime) = get.exptime.filter(|_| is_there) {
            self.expire_item(exptime)?;
        }
        if !get.keys.is_empty() {
            self.reply.extend_from_slice(b"END\r\n");
        }
        Ok(())
    }

    /// Appends the item. False if there is none.
    fn append_item(&mut self) -> Result<bool, Stop> {
        let key = self.job.args.arg(1);
        let found = self.look_string(1, |object, reply| match object {
            None => Ok(Some(false)),
            Some(object) if object.has_record() => Ok(None),
            Some(object) => {
                append_head(reply, key, object.flags().unwrap_or(0), object.len(), None);
                object.copy_to(reply);
                reply.extend_from_slice(b"\r\n");
                Ok(Some(true))
            }
        })?;
        match found {
            Some(is_there) => Ok(is_there),
            None => self.append_large_item(None),
        }
    }

    fn append_item_with_cas(&mut self) -> Result<bool, Stop> {
        let item = self.old_string(1)?;
        let cas = Some(self.cas_of(&item));
        let Some(seen) = &item.seen else { return Ok(false) };
        if !item.record.is_empty() {
            return self.append_large_item(cas);
        }
        append_head(
            self.reply,
            self.job.args.arg(1),
            seen.flags.unwrap_or(0),
            item.rest.len(),
            cas,
        );
        self.reply.extend_from_slice(&item.rest);
        self.reply.extend_from_slice(b"\r\n");
        Ok(true)
    }

    #[cold]
    fn append_large_item(&mut self, cas: Option<u64>) -> Result<bool, Stop> {
        let Some(large) = self.large_at(1)? else {
            return Ok(false);
        };
        let value_bytes = large.seen.bytes as u64;
        if value_bytes >= self.access.streamed_bytes_min() {
            return Err(self.refuse(|out| texts::line(out, texts::TOO_LARGE)));
        }
        self.note_read(1, &large, value_bytes);
        let Self { access, reply, job, .. } = self;
        let body = access.body(&large.record, 0..u64::MAX)?;
        append_head(
            reply,
            job.args.arg(1),
            large.seen.flags.unwrap_or(0),
            large.seen.bytes,
            cas,
        );
        reply.extend_from_slice(body);
        reply.extend_from_slice(&large.tail);
        reply.extend_from_slice(b"\r\n");
        Ok(true)
    }

    /// Sets the expiry of the item. False if there is none.
    fn expire_item(&mut self, exptime: i64) -> Result<bool, Stop> {
        match self.expiry(exptime) {
            Expiry::Never => self.set_expiry(1, None),
            Expiry::At(at_ms) => self.set_expiry(1, Some(at_ms)),
            Expiry::Past => self.remove(1),
        }
    }

    /// A line that changes an item, and brings no data.
    pub(crate) fn change_item(&mut self) -> Result<(), Stop> {
        let line = self.job.args.arg(2);
        if let Ok(get) = memcached::get(line) {
            return self.answer_item(&get);
        }
        match memcached::parse(line) {
            Ok(Request::Delete { .. }) => {
                let is_there = self.is_string()? && self.remove(1)?;
                self.say(if is_there { "DELETED" } else { "NOT_FOUND" })
            }
            Ok(Request::Touch { exptime, .. }) => {
                let is_there = self.is_string()? && self.expire_item(exptime)?;
                self.say(if is_there { "TOUCHED" } else { "NOT_FOUND" })
            }
            Ok(Request::Count { by, is_down, .. }) => self.count_item(by, is_down),
            // Its data are too long to be stored. An older value must not stay.
            Ok(Request::Store(_) | Request::Meta(Meta { verb: Verb::Set, .. })) => {
                self.remove(1)?;
                self.say(texts::TOO_LARGE)
            }
            Ok(Request::Meta(meta)) => self.meta(&meta),
            Ok(_) => self.say("ERROR"),
            Err(refusal) => self.say(refusal.text()),
        }
    }

    /// Whether the key has a string. Another type is an error.
    fn is_string(&mut self) -> Result<bool, Stop> {
        self.look_string(1, |object, _| Ok(object.is_some()))
    }

    fn count_item(&mut self, by: u64, is_down: bool) -> Result<(), Stop> {
        let item = self.old_string(1)?;
        let Some(seen) = &item.seen else {
            return self.say("NOT_FOUND");
        };
        let before = match item.record.is_empty() {
            true => memcached::counter(&item.rest),
            false => None,
        };
        let Some(before) = before else {
            return self.say(texts::NO_NUMBER);
        };
        let after = match is_down {
            true => before.saturating_sub(by),
            false => before.wrapping_add(by),
        };
        let mut digits = after.to_string();
        self.say(&digits)?;
        // A shorter number keeps the length, with spaces behind it.
        while digits.len() < item.rest.len() {
            digits.push(' ');
        }
        let value = Seen::with(Some(seen), digits.as_bytes());
        let marks = marks_of_count(seen, digits.len());
        self.put(1, Value { marks, ..value })
    }

    /// A line that brings data.
    pub(crate) fn store_item(&mut self) -> Result<(), Stop> {
        match memcached::parse(self.job.args.arg(2)) {
            Ok(Request::Store(store)) => {
                let stored = self.store(&store, false)?;
                self.say(stored.text())
            }
            Ok(Request::Meta(meta)) => self.meta_set(&meta),
            Ok(_) => self.say("ERROR"),
            Err(refusal) => self.say(refusal.text()),
        }
    }

    /// `takes_late`: data for an older item than the one that is there are stored as stale.
    fn store(&mut self, store: &Store<'_>, takes_late: bool) -> Result<Stored, Stop> {
        let value = self.job.args.arg(3);
        self.check_large_limits(1, value.len())?;
        // As in memcached: what may only be added has no number yet, and 0 is no number for what is extended.
        let is_compared = match store.how {
            How::Add => false,
            How::Append | How::Prepend => store.cas != Some(0),
            How::Set | How::Replace => true,
        };
        if let Some(cas) = store.cas.filter(|_| is_compared) {
            let item = self.old_string(1)?;
            let Some(seen) = &item.seen else {
                return Ok(match store.how {
                    How::Append | How::Prepend => Stored::Not,
                    _ => Stored::NotFound,
                });
            };
            if self.cas_of(&item) != cas {
                // A number that is not that of the item was that of an older one, or no item ever had it.
                let is_late =
                    takes_late && matches!(store.how, How::Set | How::Replace) && (1..=CAS_MAX).contains(&cas);
                if !is_late {
                    return Ok(Stored::Exists);
                }
                self.put_late_item(store, seen)?;
                return Ok(Stored::Done);
            }
        }
        let is_stored = match store.how {
            How::Set => true,
            How::Add => self.seen(1)?.is_none(),
            How::Replace => self.is_string()?,
            How::Append | How::Prepend => return self.extend_item(store.how),
        };
        if is_stored {
            self.put_item(store)?;
        }
        Ok(if is_stored { Stored::Done } else { Stored::Not })
    }

    fn put_item(&mut self, store: &Store<'_>) -> Result<(), Stop> {
        let expiry_ms = match self.expiry(store.exptime) {
            Expiry::Never => None,
            Expiry::At(at_ms) => Some(at_ms),
            Expiry::Past => return self.remove(1).map(|_| ()),
        };
        let value = Value {
            bytes: self.job.args.arg(3),
            expiry_ms,
            flags: Some(store.flags).filter(|flags| *flags != 0),
            ..Value::default()
        };
        self.put(1, value)
    }

    /// Puts data in the place of a newer item. They are stale, and who has won goes on.
    fn put_late_item(&mut self, store: &Store<'_>, newer: &Seen) -> Result<(), Stop> {
        let value = Value {
            bytes: self.job.args.arg(3),
            expiry_ms: newer.expiry_ms,
            flags: Some(store.flags).filter(|flags| *flags != 0),
            marks: self.stale_again(newer.marks) | newer.marks & WON,
            ..Value::default()
        };
        self.put(1, value)
    }

    /// The marks of an item that becomes stale, perhaps again. They differ from what it had.
    fn stale_again(&self, marks: u8) -> u8 {
        let stamp = match marks & STALE {
            0 => self.stamp(),
            _ => marks.wrapping_add(STAMP_STEP) & !(STALE | WON),
        };
        STALE | stamp
    }

    fn stamp(&self) -> u8 {
        (self.access.now_ms() / 1000 % STAMPS) as u8 * STAMP_STEP
    }

    /// Puts data behind or before what is there.
    fn extend_item(&mut self, how: How) -> Result<Stored, Stop> {
        let old = self.old_string(1)?;
        if old.seen.is_none() {
            return Ok(Stored::Not);
        }
        let more = self.long_argument(3)?;
        let length = old.length() + more.length();
        if length > LARGE_VALUE_BYTES_MAX {
            return Err(self.refuse(|out| texts::line(out, texts::TOO_LARGE)));
        }
        let [body, rest] = old.pieces(0..old.length());
        let [more_body, more_rest] = more.pieces(0..more.length());
        let pieces = match how {
            How::Prepend => [more_body, more_rest, body, rest],
            _ => [body, rest, more_body, more_rest],
        };
        self.put_changed(1, &old, &pieces, length)?;
        Ok(Stored::Done)
    }
}

/// How a store ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stored {
    Done,
    Not,
    Exists,
    NotFound,
}

impl Stored {
    fn text(self) -> &'static str {
        match self {
            Self::Done => "STORED",
            Self::Not => "NOT_STORED",
            Self::Exists => "EXISTS",
            Self::NotFound => "NOT_FOUND",
        }
    }

    /// The same for a meta command.
    fn short(self) -> &'static str {
        match self {
            Self::Done => "HD",
            Self::Not => "NS",
            Self::Exists => "EX",
            Self::NotFound => "NF",
        }
    }
}

/// The marks of an item that a count has changed. As in memcached, it is another item only if it is longer.
fn marks_of_count(before: &Seen, bytes: usize) -> u8 {
    if bytes <= before.bytes { before.marks } else { 0 }
}

/// Appends the line before the data of an item.
fn append_head(out: &mut Vec<u8>, key: &[u8], flags: u32, data_bytes: usize, cas: Option<u64>) {
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    out.push(b' ');
    append_number(out, flags.into());
    out.push(b' ');
    append_number(out, data_bytes as u64);
    if let Some(cas) = cas {
        out.push(b' ');
        append_number(out, cas);
    }
    out.extend_from_slice(b"\r\n");
}

fn append_number(out: &mut Vec<u8>, number: u64) {
    if number < 10 {
        return out.push(b'0' + number as u8);
    }
    let mut digits = [0; NUMBER_BYTES_MAX];
    let (mut at, mut rest) = (NUMBER_BYTES_MAX, number);
    while rest > 0 {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.extend_from_slice(&digits[at..]);
}
