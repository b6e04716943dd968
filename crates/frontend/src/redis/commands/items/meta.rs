//! Meta commands, and the marks of items: "stale", and "won" by the client that makes the item anew.

use super::{Expiry, Operation, STALE, Seen, Stop, Stored, Text, WON, append_number, marks_of_count};
use crate::memcached::texts;
use paritas_protocol::Out;
use paritas_store::Value;
use paritas_wire::memcached::{self, How, Meta, Mode, Store, Verb};

/// Stands for the time that an item without an expiry has left.
const NO_EXPIRY: u64 = u64::MAX;

impl<O: Out> Operation<'_, '_, O> {
    pub(super) fn meta(&mut self, meta: &Meta<'_>) -> Result<(), Stop> {
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
            told: b"",
        }
    }

    /// The seconds that an item has left until this expiry.
    fn left_s(&self, expiry: Expiry) -> u64 {
        match expiry {
            Expiry::Never => NO_EXPIRY,
            Expiry::At(at_ms) => left_s(Some(at_ms), self.access.now_ms()),
            Expiry::Past => 0,
        }
    }

    /// The usual case: the data are copied once, straight into the reply. False if it is another case.
    fn meta_get_plain(&mut self, meta: &Meta<'_>) -> Result<bool, Stop> {
        if !meta.has(b'v') || meta.has(b'c') || meta.exptime.is_some() || meta.recache.is_some() {
            return Ok(false);
        }
        let now_ms = self.access.now_ms();
        let lookups = self.lookups;
        let is_done = self.look(1, |object, reply| {
            let object = object.filter(|object| !object.has_record() && !object.is_hash() && object.marks() == 0);
            let Some(object) = object else { return Ok(false) };
            let about = About {
                flags: Some(object.flags().unwrap_or(0).into()),
                data_bytes: Some(object.len() as u64),
                cas: None,
                ttl_s: Some(left_s(object.expiry_ms(), now_ms)),
                told: b"",
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
        let mut item = self.old_string(1)?;
        let is_made = item.seen.is_none();
        if is_made {
            if meta.vivify.is_none() {
                return match meta.has(b'q') {
                    true => Ok(()),
                    false => self.end_meta(meta, "EN", &About::default()),
                };
            }
            item.seen = Some(Seen {
                bytes: 0,
                expiry_ms: None,
                flags: None,
                marks: self.stamp(),
                is_hash: false,
            });
        }
        let Some(seen) = item.seen else { return Ok(()) };
        let mut about = self.about(meta, &item);
        let (mut expiry, mut wins) = (None, is_made);
        let mut ttl_s = left_s(seen.expiry_ms, self.access.now_ms());
        // In the order of the flags, as in memcached: a `t` before the `T` tells the time before it.
        for (letter, _) in meta.tokens() {
            let exptime = match letter {
                b'T' => meta.exptime,
                b'N' if is_made => meta.vivify,
                b'R' if !is_made && seen.marks & WON == 0 => {
                    let recache = meta.recache.map(|recache| self.expiry(recache));
                    if let Some(at @ Expiry::At(_)) = recache {
                        wins |= ttl_s < self.left_s(at);
                    }
                    None
                }
                b't' => {
                    about.ttl_s = Some(ttl_s);
                    None
                }
                _ => None,
            };
            if let Some(exptime) = exptime {
                let at = self.expiry(exptime);
                ttl_s = self.left_s(at);
                expiry = Some(at);
            }
        }
        let is_stale = seen.marks & STALE != 0;
        wins |= is_stale && seen.marks & WON == 0;
        about.told = match (is_stale, wins, seen.marks & WON != 0) {
            (false, false, false) => b"",
            (false, false, true) => b" Z",
            (false, true, _) => b" W",
            (true, false, _) => b" Z X",
            (true, true, _) => b" X W",
        };
        match meta.has(b'v') {
            true => self.append_value(meta, &item, &about)?,
            false => {
                self.reply.extend_from_slice(b"HD");
                append_tokens(self.reply, meta, &about);
                self.reply.extend_from_slice(b"\r\n");
            }
        }
        let marks = seen.marks | if wins { WON } else { 0 };
        let expiry_ms = match expiry {
            Some(Expiry::Past) if is_made => return Ok(()),
            Some(Expiry::Past) => return self.remove(1).map(|_| ()),
            Some(Expiry::At(at_ms)) => Some(at_ms),
            Some(Expiry::Never) => None,
            None => seen.expiry_ms,
        };
        if is_made {
            let value = Value {
                expiry_ms,
                marks,
                ..Value::default()
            };
            return self.put(1, value);
        }
        if expiry.is_some() || wins {
            self.set_expiry_and_marks(1, expiry_ms, Some(marks))?;
        }
        Ok(())
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

    pub(super) fn meta_set(&mut self, meta: &Meta<'_>) -> Result<(), Stop> {
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
        let mut stored = self.store(&store, meta.has(b'I'))?;
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
                match &item.seen {
                    Some(seen) if meta.has(b'I') => self.mark_stale(meta, seen)?,
                    _ => drop(self.remove(1)?),
                }
                "HD"
            }
        };
        self.end_meta(meta, end, &About::default())
    }

    /// Marks an item, so that the next client that reads it is told to make it anew.
    fn mark_stale(&mut self, meta: &Meta<'_>, seen: &Seen) -> Result<(), Stop> {
        let expiry_ms = match meta.exptime.map(|exptime| self.expiry(exptime)) {
            None => seen.expiry_ms,
            Some(Expiry::Never) => None,
            Some(Expiry::At(at_ms)) => Some(at_ms),
            Some(Expiry::Past) => return self.remove(1).map(|_| ()),
        };
        let marks = self.stale_again(seen.marks);
        self.set_expiry_and_marks(1, expiry_ms, Some(marks)).map(|_| ())
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
        value.marks = item.seen.as_ref().map_or(0, |seen| marks_of_count(seen, padded.len()));
        match expiry {
            Some(Expiry::Past) => drop(self.remove(1)?),
            _ => self.put(1, value)?,
        }
        let seen = Seen {
            bytes: padded.len(),
            expiry_ms: value.expiry_ms,
            flags: value.flags,
            marks: value.marks,
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

/// What the flags of a meta command can tell of an item. `None`: there is none, or it was not asked for.
#[derive(Clone, Copy, Default, Debug)]
struct About {
    flags: Option<u64>,
    data_bytes: Option<u64>,
    cas: Option<u64>,
    /// [`NO_EXPIRY`] if it never expires.
    ttl_s: Option<u64>,
    /// What its marks say, in flags that no command asks for.
    told: &'static [u8],
}

/// Appends what the flags of a command ask for, in their order, and what the marks of the item say.
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
    out.extend_from_slice(about.told);
}

/// Seconds until an expiry, or [`NO_EXPIRY`].
fn left_s(expiry_ms: Option<u64>, now_ms: u64) -> u64 {
    expiry_ms.map_or(NO_EXPIRY, |at_ms| at_ms.saturating_sub(now_ms).div_ceil(1000))
}
