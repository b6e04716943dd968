//! Commands on all keys of one stream. The router asks every stream that a client's command means.

use super::{Operation, Stop};
use crate::interface::Out;
use paritas_store::Object;
use paritas_wire::command::{glob, slot};
use paritas_wire::resp::{encode, errors, parse_integer};

/// Expired keys met on a walk that are deleted at once. Others are shown as if they lived: nobody may see a key dead
/// before its deletion is safe (8.4).
const EXPIRED_MAX: usize = 256;
/// The most keys that one SCAN looks at, whatever its COUNT: a turn must be short (PROTOCOL 10.2b).
const SCAN_KEYS_MAX: usize = 4096;
/// What SCAN takes for COUNT if nothing is said, as Redis does.
const COUNT_DEFAULT: i64 = 10;

/// The options of SCAN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanOptions {
    pattern: Option<usize>,
    count: i64,
    kind: Option<usize>,
    slot: Option<u16>,
}

impl<O: Out> Operation<'_, '_, O> {
    /// Waits while slots are handed off: their keys may be others already at the new owner, and one that ends here
    /// may have gone there before (10.8).
    fn await_slots(&self) -> Result<(), Stop> {
        match self.owner.frozen() {
            Some(_) => Err(Stop::Stall),
            None => Ok(()),
        }
    }

    /// Walks from a cursor over about `limit` keys, and gives those that `test` passes, encoded, with their number
    /// and the next cursor.
    fn walk(
        &mut self,
        cursor: u64,
        limit: usize,
        mut test: impl FnMut(&Object<'_>) -> bool,
    ) -> Result<(Vec<u8>, usize, u64), Stop> {
        self.await_slots()?;
        let now_ms = self.cx.now.wall_ms;
        let (mut found, mut count) = (Vec::new(), 0);
        let mut expired: Vec<Vec<u8>> = Vec::new();
        let owner = &*self.owner;
        let foreign = |key: &[u8]| owner.has_foreign_keys() && !owner.holds(slot(key));
        let visited = owner.store.scan(&self.cx.shared.arena, cursor, limit, |object| {
            if foreign(object.key()) {
                return;
            }
            let over = object.expiry_ms().is_some_and(|at| at <= now_ms);
            if over && expired.len() < EXPIRED_MAX {
                expired.push(object.key().to_vec());
            } else if test(object) {
                encode::bulk(&mut found, object.key());
                count += 1;
            }
        });
        let next = visited.map_err(|blocked| self.blocked(blocked))?;
        for key in expired {
            let hash = self.owner.store.hash(&key);
            self.change(hash, |store, arena, delta| store.delete(arena, delta, hash, &key))?;
        }
        self.depends_on_all();
        Ok((found, count, next))
    }

    fn scan_options(&self) -> Result<ScanOptions, Stop> {
        let mut options = ScanOptions {
            pattern: None,
            count: COUNT_DEFAULT,
            kind: None,
            slot: None,
        };
        for at in (2..self.count()).step_by(2) {
            if at + 1 >= self.count() {
                return Err(Stop::Error(errors::SYNTAX));
            }
            if self.is_word(at, "match") {
                options.pattern = Some(at + 1);
            } else if self.is_word(at, "count") {
                options.count = self.integer(at + 1)?;
                if options.count < 1 {
                    return Err(Stop::Error(errors::SYNTAX));
                }
            } else if self.is_word(at, "type") {
                options.kind = Some(at + 1);
            } else if self.is_word(at, "slot") {
                let slot = slot_number(self.job.args.arg(at + 1));
                options.slot = Some(slot.ok_or(Stop::Error(errors::INVALID_SLOT))?);
            } else {
                return Err(Stop::Error(errors::SYNTAX));
            }
        }
        Ok(options)
    }

    /// The cursor here is the stream's own; the router adds which stream.
    pub(super) fn scan(&mut self) -> Result<(), Stop> {
        let cursor = str::from_utf8(self.job.args.arg(1))
            .ok()
            .and_then(|text| text.parse().ok());
        let cursor: u64 = cursor.ok_or(Stop::Error(errors::INVALID_CURSOR))?;
        let options = self.scan_options()?;
        let args = self.job.args;
        let pattern = options.pattern.map(|at| args.arg(at));
        let kind = options.kind.map(|at| args.arg(at));
        let limit = usize::try_from(options.count).unwrap_or(usize::MAX).min(SCAN_KEYS_MAX);
        let (found, count, next) = self.walk(cursor, limit, |object| {
            let name: &[u8] = if object.is_hash() { b"hash" } else { b"string" };
            options.slot.is_none_or(|wanted| slot(object.key()) == wanted)
                && kind.is_none_or(|kind| kind.eq_ignore_ascii_case(name))
                && pattern.is_none_or(|pattern| glob::matches(pattern, object.key()))
        })?;
        encode::array_header(self.reply, 2);
        let mut text = [0; 20];
        encode::bulk(self.reply, decimal(next, &mut text));
        encode::array_header(self.reply, count);
        self.reply.extend_from_slice(&found);
        Ok(())
    }

    pub(super) fn randomkey(&mut self) -> Result<(), Stop> {
        /// As Redis, where all keys may have expired.
        const TRIES: usize = 100;
        self.await_slots()?;
        let now_ms = self.cx.now.wall_ms;
        for attempt in 0..TRIES {
            let random = self.cx.shared.prng.next_u64();
            self.depends_on_all();
            let found = self.owner.store.random_key(&self.cx.shared.arena, random);
            let expired = match found {
                Err(blocked) => return Err(self.blocked(blocked)),
                Ok(None) => break,
                Ok(Some(object)) => {
                    if self.owner.has_foreign_keys() && !self.owner.holds(slot(object.key())) {
                        continue;
                    }
                    let over = object.expiry_ms().is_some_and(|at| at <= now_ms);
                    if !over || attempt + 1 == TRIES {
                        encode::bulk(self.reply, object.key());
                        return Ok(());
                    }
                    object.key().to_vec()
                }
            };
            let hash = self.owner.store.hash(&expired);
            self.change(hash, |store, arena, delta| store.delete(arena, delta, hash, &expired))?;
        }
        encode::null(self.reply, self.job.proto);
        Ok(())
    }

    /// Waits while the counts are not all here, after a takeover.
    pub(super) fn dbsize(&mut self) -> Result<(), Stop> {
        let count = self.owner.store.count().ok_or(Stop::Stall)?;
        self.depends_on_all();
        encode::integer(self.reply, count.saturating_sub(self.owner.foreign_keys()) as i64);
        Ok(())
    }

    pub(super) fn flush(&mut self) -> Result<(), Stop> {
        let mode = self.count() == 2 && (self.is_word(1, "async") || self.is_word(1, "sync"));
        if self.count() > 1 && !mode {
            return Err(Stop::Error(errors::SYNTAX));
        }
        self.admit()?;
        // It takes a delta of its own: whole pages become zeros.
        self.owner.close_delta(self.cx, self.configuration);
        self.change(0, |store, arena, delta| store.flush(arena, delta))?;
        if self.changed {
            self.owner.touch_all();
        }
        self.depends_on_all();
        self.begun = true;
        encode::ok(self.reply);
        Ok(())
    }
}

/// A slot that a client names.
pub(crate) fn slot_number(text: &[u8]) -> Option<u16> {
    let slot = parse_integer(text).and_then(|slot| u16::try_from(slot).ok());
    slot.filter(|slot| *slot < paritas_base::SLOT_COUNT)
}

/// Decimal text of a number.
pub(crate) fn decimal(mut number: u64, text: &mut [u8; 20]) -> &[u8] {
    let mut used = 0;
    for place in text.iter_mut().rev() {
        *place = b'0' + (number % 10) as u8;
        used += 1;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    text.get(text.len() - used..).unwrap_or_default()
}
