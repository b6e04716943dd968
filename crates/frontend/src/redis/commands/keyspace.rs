//! Commands on all keys of one stream. The router runs them at every stream that a client's command covers.

use super::{Operation, Stop};
use crate::redis::parts::append_scanned;
use paritas_protocol::Out;
use paritas_store::Object;
use paritas_wire::command::glob::{Case, Pattern};
use paritas_wire::command::slot_steps;
use paritas_wire::resp::{ArgList, encode, errors, parse_integer};

/// The most expired keys that one step of a walk deletes. Further ones are shown as if they had not expired: a client
/// must not see that a key is gone before its deletion is safe (P8.4).
const EXPIRED_MAX: usize = 256;
/// Steps of a turn's budget for each of them.
const EXPIRED_STEPS: u64 = 3000;
/// The most keys that one SCAN visits, even if its COUNT is larger: a turn must be short (P10.2b).
const SCAN_KEYS_MAX: usize = 4096;
/// The most keys that one step of FLUSHDB visits.
const FLUSHED_MAX: usize = 512;
/// COUNT of a SCAN without this option, as in Redis.
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
    /// Walks from a cursor over about `limit` keys, or until the turn's budget is spent. Returns the keys that pass
    /// `test`, encoded, their number, and the next cursor. `test` adds its steps.
    fn walk(
        &mut self,
        cursor: u64,
        limit: usize,
        mut test: impl FnMut(&Object<'_>, &mut u64) -> bool,
    ) -> Result<(Vec<u8>, usize, u64), Stop> {
        self.access.await_slots()?;
        let now_ms = self.access.now_ms();
        let (mut found, mut count) = (Vec::new(), 0);
        let mut expired: Vec<Vec<u8>> = Vec::new();
        let next = self.access.scan(cursor, limit, |object, steps| {
            let over = object.expiry_ms().is_some_and(|at| at <= now_ms);
            if over && expired.len() < EXPIRED_MAX {
                expired.push(object.key().to_vec());
            } else if test(object, steps) {
                // So a step finds no more keys than a frame takes.
                *steps += object.key().len() as u64 / 4;
                encode::bulk(&mut found, object.key());
                count += 1;
            }
        })?;
        self.access.turn_budget().spend(expired.len() as u64 * EXPIRED_STEPS);
        for key in expired {
            self.access.end_expired(self.access.hash(&key), &key)?;
        }
        self.access.saw_all();
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

    /// SCAN of this stream. Its cursor is valid within the stream; the router adds the stream's number.
    pub(crate) fn scan(&mut self) -> Result<(), Stop> {
        let cursor = str::from_utf8(self.job.args.arg(1))
            .ok()
            .and_then(|text| text.parse().ok());
        let cursor: u64 = cursor.ok_or(Stop::Error(errors::INVALID_CURSOR))?;
        let options = self.scan_options()?;
        let args = self.job.args;
        let (budget, mut steps) = (self.access.turn_budget(), 0);
        if !budget.admits() {
            return Err(Stop::Wait);
        }
        let mut pattern = match options
            .pattern
            .map(|at| Pattern::new(args.arg(at), Case::Matters, &mut steps))
        {
            Some(None) => return Err(Stop::Error(errors::PATTERN_TOO_LONG)),
            pattern => pattern.flatten(),
        };
        budget.spend(steps);
        let kind = options.kind.map(|at| args.arg(at));
        let limit = usize::try_from(options.count).unwrap_or(usize::MAX).min(SCAN_KEYS_MAX);
        let of_slot = options.slot.map(|wanted| (wanted, self.access.key_slots()));
        let (found, count, next) = self.walk(cursor, limit, |object, steps| {
            let name: &[u8] = if object.is_hash() { b"hash" } else { b"string" };
            let of_slot = of_slot.as_ref().is_none_or(|(wanted, slots)| {
                *steps += slot_steps(object.key());
                slots.slot(object.database(), object.key()) == *wanted
            });
            let of_kind = || kind.is_none_or(|kind| kind.eq_ignore_ascii_case(name));
            of_slot
                && of_kind()
                && pattern
                    .as_mut()
                    .is_none_or(|pattern| pattern.matches(object.key(), steps))
        })?;
        encode::array_header(self.reply, 2);
        let mut text = [0; 20];
        encode::bulk(self.reply, decimal(next, &mut text));
        encode::array_header(self.reply, count);
        self.reply.extend_from_slice(&found);
        Ok(())
    }

    pub(crate) fn randomkey(&mut self) -> Result<(), Stop> {
        /// Keys tried before an expired one is returned, as in Redis: all keys may have expired.
        const TRIES: usize = 100;
        self.access.await_slots()?;
        let now_ms = self.access.now_ms();
        for attempt in 0..TRIES {
            let Some(chosen) = self.access.random_key()? else {
                break;
            };
            let over = chosen.expiry_ms.is_some_and(|at| at <= now_ms);
            if !over || attempt + 1 == TRIES {
                encode::bulk(self.reply, &chosen.key);
                return Ok(());
            }
            self.access.end_expired(self.access.hash(&chosen.key), &chosen.key)?;
        }
        encode::null(self.reply, self.proto());
        Ok(())
    }

    /// DBSIZE of this stream. After a takeover it waits until all counts are known.
    pub(crate) fn dbsize(&mut self) -> Result<(), Stop> {
        let count = self.access.count()?;
        encode::integer(self.reply, count as i64);
        Ok(())
    }

    /// FLUSHALL at this stream, or one step of FLUSHDB: deletes the keys of the client's database among the next ones
    /// from a cursor on. Answers where the next step goes on: one more than a cursor of the stream, or 0 at the end. If
    /// the stream has no keys of other databases, the first step deletes all.
    pub(crate) fn flush_step(&mut self) -> Result<(), Stop> {
        let cursor = str::from_utf8(self.job.args.arg(1)).ok();
        let cursor: Option<u64> = cursor.and_then(|text| text.parse().ok());
        let cursor = cursor.ok_or(Stop::Error(errors::INVALID_CURSOR))?.saturating_sub(1);
        let is_all = self.count() > 2;
        if is_all || cursor == 0 && self.access.has_only_its_database() {
            self.access.flush()?;
            append_scanned(self.reply, 0, encode::EMPTY_ARRAY);
            return Ok(());
        }
        self.access.await_slots()?;
        if !self.access.turn_budget().admits() {
            return Err(Stop::Wait);
        }
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let next = self.access.scan(cursor, FLUSHED_MAX, |object, steps| {
            *steps += EXPIRED_STEPS;
            keys.push(object.key().to_vec());
        })?;
        let mut goes_on_at = if next == 0 { 0 } else { next + 1 };
        for key in keys {
            match self.access.remove(self.access.hash(&key), &key) {
                Ok(_) => {}
                // The next step finds the others at the same place.
                Err(paritas_protocol::Stop::Wait) if self.access.has_begun() => {
                    goes_on_at = cursor + 1;
                    break;
                }
                Err(stop) => return Err(stop.into()),
            }
        }
        self.access.saw_all();
        append_scanned(self.reply, goes_on_at, encode::EMPTY_ARRAY);
        Ok(())
    }
}

/// Whether the arguments of FLUSHALL and FLUSHDB are known.
pub(crate) fn is_flush_mode(args: ArgList<'_>) -> bool {
    let is_mode = |word: &[u8]| word.eq_ignore_ascii_case(b"async") || word.eq_ignore_ascii_case(b"sync");
    args.len() == 1 || args.len() == 2 && is_mode(args.arg(1))
}

/// Parses the number of a hash slot.
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
