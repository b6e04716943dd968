//! INCR and similar commands.

use super::decimal::{Decimal, parse_decimal};
use super::{Operation, Seen, Stop};
use paritas_protocol::Out;
use paritas_wire::resp::{encode, errors, parse_integer};

/// Bytes of the longest decimal integer of 64 bits.
const INTEGER_BYTES_MAX: usize = 20;

impl<O: Out> Operation<'_, '_, O> {
    pub(crate) fn incrby(&mut self) -> Result<(), Stop> {
        let by = self.integer(2)?;
        self.increment(by)
    }

    pub(crate) fn decrby(&mut self) -> Result<(), Stop> {
        let by = self.integer(2)?;
        self.increment(by.checked_neg().ok_or(Stop::Error(errors::DECREMENT_OVERFLOW))?)
    }

    pub(crate) fn increment(&mut self, by: i64) -> Result<(), Stop> {
        let (seen, before) = self.look_string(1, |object, _| {
            let Some(object) = object else {
                return Ok((None, Some(0)));
            };
            let value = match object.whole() {
                _ if object.record().is_some() => None,
                Some(bytes) => parse_integer(bytes),
                None if object.len() <= INTEGER_BYTES_MAX => {
                    let mut bytes = Vec::with_capacity(INTEGER_BYTES_MAX);
                    object.copy_to(&mut bytes);
                    parse_integer(&bytes)
                }
                None => None,
            };
            Ok((Some(Seen::of(object)), value))
        })?;
        let before = before.ok_or(Stop::Error(errors::NOT_AN_INTEGER))?;
        let after = before.checked_add(by).ok_or(Stop::Error(errors::INCREMENT_OVERFLOW))?;
        // The stored value is the digits of the reply `:123\r\n`.
        encode::integer(self.reply, after);
        let mut digits = [0; INTEGER_BYTES_MAX];
        let written = self.reply.get(self.start + 1..self.reply.len() - 2).unwrap_or_default();
        let digits = match digits.get_mut(..written.len()) {
            Some(place) => {
                place.copy_from_slice(written);
                place
            }
            None => &mut [],
        };
        self.put(1, Seen::with(seen.as_ref(), digits))
    }

    pub(crate) fn incrbyfloat(&mut self) -> Result<(), Stop> {
        let old = self.string(1)?;
        let not_a_float = Stop::Error(errors::NOT_A_FLOAT);
        let before = match &old {
            Some((_, bytes)) => parse_decimal(bytes).ok_or(not_a_float)?,
            None => Decimal::ZERO,
        };
        let by = parse_decimal(self.job.args.arg(2)).ok_or(not_a_float)?;
        let after = before.plus(by).ok_or(Stop::Error(errors::INCREMENT_NOT_FINITE))?;
        let text = after.to_string();
        self.put(1, Seen::with(old.as_ref().map(|(seen, _)| seen), text.as_bytes()))?;
        encode::bulk(self.reply, text.as_bytes());
        Ok(())
    }
}
