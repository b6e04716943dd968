//! The expiry of keys.

use super::{Operation, Stop};
use paritas_protocol::Out;
use paritas_wire::resp::{encode, errors};

/// The latest expiry, in ms since 1970: an object stores it in 48 bits (docs/formats/object.md), up to the year 10889.
pub(super) const EXPIRY_MS_MAX: i64 = (1 << 48) - 1;

/// The unit and start of an expiry in a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    /// From now.
    Seconds,
    /// From now.
    Milliseconds,
    /// Since 1970.
    UnixSeconds,
    /// Since 1970.
    UnixMilliseconds,
}

impl Unit {
    /// All units with their options in SET and GETEX.
    pub(crate) const ALL: [(Self, &'static str); 4] = [
        (Self::Seconds, "ex"),
        (Self::Milliseconds, "px"),
        (Self::UnixSeconds, "exat"),
        (Self::UnixMilliseconds, "pxat"),
    ];

    /// The expiry in ms since 1970; `None` if it is out of range.
    fn absolute(self, value: i64, now_ms: u64) -> Option<i64> {
        let scaled = match self {
            Self::Seconds | Self::UnixSeconds => value.checked_mul(1000)?,
            Self::Milliseconds | Self::UnixMilliseconds => value,
        };
        let absolute = match self {
            Self::Seconds | Self::Milliseconds => scaled.checked_add(i64::try_from(now_ms).ok()?)?,
            Self::UnixSeconds | Self::UnixMilliseconds => scaled,
        };
        (absolute <= EXPIRY_MS_MAX).then_some(absolute)
    }
}

/// The conditions of EXPIRE.
#[derive(Clone, Copy, Default, Debug)]
struct Conditions {
    if_none: bool,
    if_any: bool,
    if_later: bool,
    if_sooner: bool,
}

impl<O: Out> Operation<'_, '_, O> {
    pub(super) fn invalid_expire_time(&mut self) -> Stop {
        let name = self.job.spec.name;
        self.refuse(|out| errors::invalid_expire_time(out, name))
    }

    /// The expiry in argument `at`, in ms since 1970, for commands that accept only positive numbers.
    pub(crate) fn deadline(&mut self, unit: Unit, at: usize) -> Result<u64, Stop> {
        let value = self.integer(at)?;
        let absolute = Some(value)
            .filter(|v| *v > 0)
            .and_then(|v| unit.absolute(v, self.access.now_ms()))
            .and_then(|ms| u64::try_from(ms).ok());
        absolute.ok_or_else(|| self.invalid_expire_time())
    }

    fn conditions(&mut self) -> Result<Conditions, Stop> {
        let mut conditions = Conditions::default();
        for at in 3..self.count() {
            let c = &mut conditions;
            let words = [
                ("nx", &mut c.if_none),
                ("xx", &mut c.if_any),
                ("gt", &mut c.if_later),
                ("lt", &mut c.if_sooner),
            ];
            let known = words.into_iter().find(|(word, _)| self.is_word(at, word));
            let Some((_, set)) = known else {
                let text = format!("ERR Unsupported option {}", errors::echoed(self.job.args.arg(at)));
                return Err(self.refuse(|out| encode::error(out, &text)));
            };
            *set = true;
        }
        let c = &conditions;
        if c.if_none && (c.if_any || c.if_later || c.if_sooner) {
            return Err(Stop::Error(errors::EXPIRE_NX_AND_OTHERS));
        }
        if c.if_later && c.if_sooner {
            return Err(Stop::Error(errors::EXPIRE_GT_AND_LT));
        }
        Ok(conditions)
    }

    pub(crate) fn expire(&mut self, unit: Unit) -> Result<(), Stop> {
        let conditions = self.conditions()?;
        let value = self.integer(2)?;
        let now_ms = self.access.now_ms();
        // A time before 1970 is past and no error. Only a number out of range is an error.
        let Some(expiry_ms) = unit.absolute(value, now_ms) else {
            return Err(self.invalid_expire_time());
        };
        let expiry_ms = u64::try_from(expiry_ms).unwrap_or(0);
        let Some(seen) = self.seen(1)? else {
            encode::integer(self.reply, 0);
            return Ok(());
        };
        let old = seen.expiry_ms;
        let met = (!conditions.if_none || old.is_none())
            && (!conditions.if_any || old.is_some())
            && (!conditions.if_later || old.is_some_and(|old| expiry_ms > old))
            && (!conditions.if_sooner || old.is_none_or(|old| expiry_ms < old));
        if met && expiry_ms <= now_ms {
            self.remove(1)?;
        } else if met {
            self.set_expiry(1, Some(expiry_ms))?;
        }
        encode::integer(self.reply, i64::from(met));
        Ok(())
    }

    /// TTL and similar commands. Replies -2 if the key does not exist, -1 if it has no expiry, else the result of
    /// `tell(expiry, now)`, both in ms since 1970.
    pub(crate) fn ttl(&mut self, tell: impl FnOnce(u64, u64) -> u64) -> Result<(), Stop> {
        let now_ms = self.access.now_ms();
        let answer = match self.seen(1)? {
            None => -2,
            Some(seen) => seen.expiry_ms.map_or(-1, |at| tell(at, now_ms) as i64),
        };
        encode::integer(self.reply, answer);
        Ok(())
    }

    pub(crate) fn persist(&mut self) -> Result<(), Stop> {
        let had = self.seen(1)?.is_some_and(|seen| seen.expiry_ms.is_some());
        if had {
            self.set_expiry(1, None)?;
        }
        encode::integer(self.reply, i64::from(had));
        Ok(())
    }
}
