//! Strings.

use super::{Operation, Stop};
use crate::interface::Out;
use paritas_store::Value;
use paritas_wire::resp::{ArgList, encode, errors, parse_integer};

impl<O: Out> Operation<'_, '_, O> {
    pub(super) fn get(&mut self, args: ArgList<'_>) -> Result<(), Stop> {
        let key = args.arg(1);
        let hash = self.owner.store.hash(key);
        self.depends_on(hash);
        let found = match self.owner.store.find(&self.cx.shared.arena, hash, key) {
            Ok(found) => found,
            Err(blocked) => return Err(self.blocked(blocked)),
        };
        match found {
            Some(object) if object.expiry_ms().is_some_and(|at| self.cx.now.wall_ms >= at) => {
                self.remove(hash, key)?;
                encode::null(self.reply, self.proto);
            }
            Some(object) => match object.whole() {
                Some(value) => encode::bulk(self.reply, value),
                None => {
                    encode::bulk_header(self.reply, object.len());
                    object.copy_to(self.reply);
                    encode::bulk_end(self.reply);
                }
            },
            None => encode::null(self.reply, self.proto),
        }
        Ok(())
    }

    pub(super) fn set(&mut self, args: ArgList<'_>) -> Result<(), Stop> {
        let value = Value {
            bytes: args.arg(2),
            ..Value::default()
        };
        self.put(args.arg(1), value)?;
        encode::ok(self.reply);
        Ok(())
    }

    pub(super) fn delete(&mut self, args: ArgList<'_>) -> Result<(), Stop> {
        let mut count = 0;
        for at in 1..args.len() {
            let key = args.arg(at);
            let there = self.is_there(key)?;
            if there {
                let hash = self.owner.store.hash(key);
                self.remove(hash, key)?;
                count += 1;
            }
        }
        encode::integer(self.reply, count);
        Ok(())
    }

    pub(super) fn exists(&mut self, args: ArgList<'_>) -> Result<(), Stop> {
        let mut count = 0;
        for at in 1..args.len() {
            count += i64::from(self.is_there(args.arg(at))?);
        }
        encode::integer(self.reply, count);
        Ok(())
    }

    pub(super) fn increment(&mut self, args: ArgList<'_>, by: i64) -> Result<(), Stop> {
        let key = args.arg(1);
        let (before, expiry_ms) = match self.value(key)? {
            Some((value, expiry)) => (
                parse_integer(&value).ok_or(Stop::Error(errors::NOT_AN_INTEGER))?,
                expiry,
            ),
            None => (0, None),
        };
        let after = before.checked_add(by).ok_or(Stop::Error(errors::INCREMENT_OVERFLOW))?;
        let text = after.to_string();
        self.put(
            key,
            Value {
                bytes: text.as_bytes(),
                expiry_ms,
                ..Value::default()
            },
        )?;
        encode::integer(self.reply, after);
        Ok(())
    }
}
