//! The commands of memcached: strings with flags. Their words are in `memcached/texts.rs`.

use super::strings::Text;
use super::{Operation, Seen, Stop};
use crate::memcached::texts;
use paritas_protocol::{LARGE_VALUE_BYTES_MAX, Out};
use paritas_store::Value;
use paritas_wire::memcached::{self, Get, How, Meta, Mode, RELATIVE_MAX, Request, Store, Verb};

/// The latest expiry, in ms since 1970 (docs/formats/object.md).
const EXPIRY_MS_MAX: u64 = (1 << 48) - 1;
/// Stands for the time that an item without an expiry has left.
const NO_EXPIRY: u64 = u64::MAX;
/// Bytes of the longest number of 64 bits.
const NUMBER_BYTES_MAX: usize = 20;

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
/// byte, and is the same at every owner. `value`: of a large one, the record and the tail.
fn cas_of(hash: u64, flags: u32) -> u64 {
    // Some clients keep it in a signed number.
    ((hash ^ u64::from(flags).wrapping_mul(0x9e37_79b9_7f4a_7c15)) & i64::MAX as u64).max(1)
}

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
        let flags = item.seen.as_ref().and_then(|seen| seen.flags);
        cas_of(hash, flags.unwrap_or(0))
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
        self.put(1, Seen::with(Some(seen), digits.as_bytes()))
    }

    /// A line that brings data.
    pub(crate) fn store_item(&mut self) -> Result<(), Stop> {
        match memcached::parse(self.job.args.arg(2)) {
            Ok(Request::Store(store)) => {
                let stored = self.store(&store)?;
                self.say(stored.text())
            }
            Ok(Request::Meta(meta)) => self.meta_set(&meta),
            Ok(_) => self.say("ERROR"),
            Err(refusal) => self.say(refusal.text()),
        }
    }

    fn store(&mut self, store: &Store<'_>) -> Result<Stored, Stop> {
        let value = self.job.args.arg(3);
        self.check_large_limits(1, value.len())?;
        if let Some(cas) = store.cas {
            let item = self.old_string(1)?;
            if item.seen.is_none() {
                return Ok(Stored::NotFound);
            }
            if self.cas_of(&item) != cas {
                return Ok(Stored::Exists);
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

    // --- meta commands -------------------------------------------------------------------------------------------

    fn meta(&mut self, meta: &Meta<'_>) -> Result<(), Stop> {
        match meta.verb {
            Verb::Get => self.meta_get(meta),
            Verb::Delete => self.meta_delete(meta),
            Verb::Count => self.meta_count(meta),
            Verb::Debug => self.meta_debug(),
            Verb::Set => self.say("ERROR"),
        }
    }

    /// Ends a meta command. `about`: what its flags can tell of the item. Under `q`, the usual end is not told.
    fn end_meta(&mut self, meta: &Meta<'_>, end: &str, about: &About) -> Result<(), Stop> {
        if meta.has(b'q') && end == "HD" {
            return Ok(());
        }
        self.reply.extend_from_slice(end.as_bytes());
        append_tokens(self.reply, meta, about);
        self.reply.extend_from_slice(b"\r\n");
        Ok(())
    }

    /// What an answer may tell of an item.
    fn about(&self, meta: &Meta<'_>, item: &Text<'_>) -> About {
        let Some(seen) = &item.seen else {
            return About::default();
        };
        About {
            flags: Some(seen.flags.unwrap_or(0).into()),
            data_bytes: Some(item.length() as u64),
            cas: meta.has(b'c').then(|| self.cas_of(item)),
            ttl_s: Some(left_s(seen.expiry_ms, self.access.now_ms())),
        }
    }

    /// Changes the expiry of an item as a flag `T` says, and what is known of it.
    fn retime(&mut self, exptime: i64, about: &mut About) -> Result<(), Stop> {
        let now_ms = self.access.now_ms();
        self.expire_item(exptime)?;
        about.ttl_s = Some(match self.expiry(exptime) {
            Expiry::Never => NO_EXPIRY,
            Expiry::At(at_ms) => at_ms.saturating_sub(now_ms).div_ceil(1000),
            Expiry::Past => 0,
        });
        Ok(())
    }

    /// The usual case: the data are copied once, straight into the reply. False if it is another case.
    fn meta_get_plain(&mut self, meta: &Meta<'_>) -> Result<bool, Stop> {
        if !meta.has(b'v') || meta.has(b'c') || meta.exptime.is_some() {
            return Ok(false);
        }
        let now_ms = self.access.now_ms();
        let lookups = self.lookups;
        let is_done = self.look(1, |object, reply| {
            let object = object.filter(|object| !object.has_record() && !object.is_hash());
            let Some(object) = object else { return Ok(false) };
            let about = About {
                flags: Some(object.flags().unwrap_or(0).into()),
                data_bytes: Some(object.len() as u64),
                cas: None,
                ttl_s: Some(left_s(object.expiry_ms(), now_ms)),
            };
            reply.extend_from_slice(b"VA ");
            append_number(reply, object.len() as u64);
            append_tokens(reply, meta, &about);
            reply.extend_from_slice(b"\r\n");
            object.copy_to(reply);
            reply.extend_from_slice(b"\r\n");
            Ok(true)
        })?;
        if !is_done {
            // It is looked up again.
            self.lookups = lookups;
        }
        Ok(is_done)
    }

    fn meta_get(&mut self, meta: &Meta<'_>) -> Result<(), Stop> {
        if self.meta_get_plain(meta)? {
            return Ok(());
        }
        let item = self.old_string(1)?;
        if item.seen.is_none() {
            return match meta.has(b'q') {
                true => Ok(()),
                false => self.end_meta(meta, "EN", &About::default()),
            };
        }
        let mut about = self.about(meta, &item);
        if let Some(exptime) = meta.exptime {
            let before = about.ttl_s;
            self.retime(exptime, &mut about)?;
            // A `t` before the `T` tells the time before it.
            let first = meta.tokens().find(|(letter, _)| matches!(letter, b't' | b'T'));
            if first.is_some_and(|(letter, _)| letter == b't') {
                about.ttl_s = before;
            }
        }
        if !meta.has(b'v') {
            self.reply.extend_from_slice(b"HD");
            append_tokens(self.reply, meta, &about);
            self.reply.extend_from_slice(b"\r\n");
            return Ok(());
        }
        self.append_value(meta, &item, &about)
    }

    /// Appends an answer with the data of the item.
    fn append_value(&mut self, meta: &Meta<'_>, item: &Text<'_>, about: &About) -> Result<(), Stop> {
        if item.length() as u64 >= self.access.streamed_bytes_min() {
            return Err(self.refuse(|out| texts::line(out, texts::TOO_LARGE)));
        }
        self.reply.extend_from_slice(b"VA ");
        append_number(self.reply, item.length() as u64);
        append_tokens(self.reply, meta, about);
        self.reply.extend_from_slice(b"\r\n");
        if !item.record.is_empty() {
            let Self { access, reply, .. } = self;
            reply.extend_from_slice(access.body(&item.record, 0..u64::MAX)?);
        }
        self.reply.extend_from_slice(&item.rest);
        self.reply.extend_from_slice(b"\r\n");
        Ok(())
    }

    fn meta_set(&mut self, meta: &Meta<'_>) -> Result<(), Stop> {
        let store = Store {
            how: match meta.mode {
                Mode::Usual | Mode::Down => How::Set,
                Mode::Add => How::Add,
                Mode::Replace => How::Replace,
                Mode::Append => How::Append,
                Mode::Prepend => How::Prepend,
            },
            key: self.job.args.arg(1),
            flags: meta.flags,
            exptime: meta.exptime.unwrap_or(0),
            data_bytes: meta.data_bytes,
            cas: meta.cas,
        };
        let mut stored = self.store(&store)?;
        let is_made = stored == Stored::Not && matches!(meta.mode, Mode::Append | Mode::Prepend);
        if let Some(exptime) = meta.vivify.filter(|_| is_made) {
            self.put_item(&Store { exptime, ..store })?;
            stored = Stored::Done;
        }
        let mut about = About::default();
        if meta.has(b'c') {
            about.cas = match stored {
                Stored::Done => {
                    let item = self.old_string(1)?;
                    Some(self.cas_of(&item))
                }
                _ => Some(0),
            };
        }
        self.end_meta(meta, stored.short(), &about)
    }

    fn meta_delete(&mut self, meta: &Meta<'_>) -> Result<(), Stop> {
        let item = self.old_string(1)?;
        let end = match meta.cas {
            _ if item.seen.is_none() => "NF",
            Some(cas) if self.cas_of(&item) != cas => "EX",
            _ => {
                self.remove(1)?;
                "HD"
            }
        };
        self.end_meta(meta, end, &About::default())
    }

    fn meta_count(&mut self, meta: &Meta<'_>) -> Result<(), Stop> {
        let mut item = self.old_string(1)?;
        let mut exptime = meta.exptime;
        let digits = match (&item.seen, meta.vivify) {
            (None, None) => return self.end_meta(meta, "NF", &About::default()),
            (None, vivify) => {
                exptime = vivify;
                meta.initial.to_string()
            }
            (Some(_), _) if meta.cas.is_some_and(|cas| self.cas_of(&item) != cas) => {
                return self.end_meta(meta, "EX", &About::default());
            }
            (Some(_), _) => {
                let before = Some(&item).filter(|item| item.record.is_empty());
                let Some(before) = before.and_then(|item| memcached::counter(&item.rest)) else {
                    return self.say(texts::NO_NUMBER);
                };
                match meta.mode {
                    Mode::Down => before.saturating_sub(meta.by),
                    _ => before.wrapping_add(meta.by),
                }
                .to_string()
            }
        };
        let mut value = Seen::with(item.seen.as_ref(), &[]);
        let expiry = exptime.map(|exptime| self.expiry(exptime));
        value.expiry_ms = match expiry {
            None => value.expiry_ms,
            Some(Expiry::At(at_ms)) => Some(at_ms),
            Some(Expiry::Never | Expiry::Past) => None,
        };
        // A shorter number keeps the length, with spaces behind it.
        let mut padded = digits.clone();
        while padded.len() < item.rest.len() {
            padded.push(' ');
        }
        value.bytes = padded.as_bytes();
        match expiry {
            Some(Expiry::Past) => drop(self.remove(1)?),
            _ => self.put(1, value)?,
        }
        let seen = Seen {
            bytes: padded.len(),
            expiry_ms: value.expiry_ms,
            flags: value.flags,
            is_hash: false,
        };
        item = Text {
            seen: Some(seen),
            rest: padded.into_bytes().into(),
            ..Text::default()
        };
        let about = self.about(meta, &item);
        match meta.has(b'v') && !meta.has(b'q') {
            true => {
                self.reply.extend_from_slice(b"VA ");
                append_number(self.reply, digits.len() as u64);
                append_tokens(self.reply, meta, &about);
                self.reply.extend_from_slice(b"\r\n");
                self.say(&digits)
            }
            false => self.end_meta(meta, "HD", &about),
        }
    }

    /// What is known of an item, for people.
    fn meta_debug(&mut self) -> Result<(), Stop> {
        let item = self.old_string(1)?;
        let Some(seen) = &item.seen else { return self.say("EN") };
        let now_ms = self.access.now_ms();
        let exp = match seen.expiry_ms {
            None => "-1".to_owned(),
            Some(at_ms) => at_ms.saturating_sub(now_ms).div_ceil(1000).to_string(),
        };
        let (cas, key) = (self.cas_of(&item), self.job.args.arg(1));
        let bytes = key.len() + item.length();
        self.reply.extend_from_slice(b"ME ");
        self.reply.extend_from_slice(key);
        self.say(&format!(" exp={exp} la=0 cas={cas} fetch=no cls=1 size={bytes}"))
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

/// What the flags of a meta command can tell of an item. `None`: there is none, or it was not asked for.
#[derive(Clone, Copy, Default, Debug)]
struct About {
    flags: Option<u64>,
    data_bytes: Option<u64>,
    cas: Option<u64>,
    /// [`NO_EXPIRY`] if it never expires.
    ttl_s: Option<u64>,
}

/// Appends what the flags of a command ask for, in their order.
fn append_tokens(out: &mut Vec<u8>, meta: &Meta<'_>, about: &About) {
    for (letter, token) in meta.tokens() {
        let (text, number): (&[u8], _) = match letter {
            b'k' => (meta.key, None),
            b'O' => (token, None),
            b't' if about.ttl_s == Some(NO_EXPIRY) => (b"-1", None),
            b't' => (&[], about.ttl_s),
            b'c' => (&[], about.cas),
            b'f' => (&[], about.flags),
            b's' => (&[], about.data_bytes),
            // No item knows when it was read.
            b'h' | b'l' => (&[], about.flags.map(|_| 0)),
            _ => continue,
        };
        if text.is_empty() && number.is_none() && letter != b'O' {
            continue;
        }
        out.extend_from_slice(&[b' ', letter]);
        out.extend_from_slice(text);
        if let Some(number) = number {
            append_number(out, number);
        }
        if letter == b'k' && meta.has(b'b') {
            out.extend_from_slice(b" b");
        }
    }
}

/// Seconds until an expiry, or [`NO_EXPIRY`].
fn left_s(expiry_ms: Option<u64>, now_ms: u64) -> u64 {
    expiry_ms.map_or(NO_EXPIRY, |at_ms| at_ms.saturating_sub(now_ms).div_ceil(1000))
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
