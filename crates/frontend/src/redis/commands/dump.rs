//! DUMP and RESTORE of strings (docs/formats/dump.md).

use super::expiry::EXPIRY_MS_MAX;
use super::{Operation, Stop};
use paritas_base::Reader;
use paritas_protocol::Out;
use paritas_store::Value;
use paritas_wire::rdb;
use paritas_wire::resp::{encode, errors};

/// The longest value that is dumped or restored, in bytes: it is read and summed in one turn.
const DUMPED_BYTES_MAX: usize = 4 << 20;
/// Steps of a turn's budget for a byte that is read or written, and summed.
const BYTE_STEPS: u64 = 2;

/// The options of RESTORE.
#[derive(Clone, Copy, Default, Debug)]
struct Options {
    replaces: bool,
    is_absolute: bool,
}

impl<O: Out> Operation<'_, '_, O> {
    fn too_long(&mut self, bytes: usize) -> Stop {
        self.refuse(|out| errors::too_long_to_dump(out, bytes, DUMPED_BYTES_MAX))
    }

    pub(crate) fn dump(&mut self) -> Result<(), Stop> {
        let text = self.old_string(1)?;
        if text.seen.is_none() {
            encode::null(self.reply, self.proto());
            return Ok(());
        }
        if text.length() > DUMPED_BYTES_MAX {
            return Err(self.too_long(text.length()));
        }
        let value = self.whole(&text, 0)?;
        let mut payload = vec![rdb::STRING];
        rdb::push_value(&mut payload, &value);
        self.access.turn_budget().spend(value.len() as u64 * BYTE_STEPS);
        encode::bulk(self.reply, &rdb::seal(payload));
        Ok(())
    }

    fn restore_options(&mut self) -> Result<Options, Stop> {
        let mut options = Options::default();
        let (mut has_idle, mut has_uses) = (false, false);
        let mut at = 4;
        while at < self.count() {
            if self.is_word(at, "replace") {
                options.replaces = true;
            } else if self.is_word(at, "absttl") {
                options.is_absolute = true;
            } else if self.is_word(at, "idletime") && at + 1 < self.count() && !has_uses {
                at += 1;
                has_idle = true;
                if self.integer(at)? < 0 {
                    return Err(Stop::Error(errors::INVALID_IDLE_TIME));
                }
            } else if self.is_word(at, "freq") && at + 1 < self.count() && !has_idle {
                at += 1;
                has_uses = true;
                if !(0..=255).contains(&self.integer(at)?) {
                    return Err(Stop::Error(errors::INVALID_FREQ));
                }
            } else {
                return Err(Stop::Error(errors::SYNTAX));
            }
            at += 1;
        }
        Ok(options)
    }

    /// RESTORE. How a key was used before is not kept.
    pub(crate) fn restore(&mut self) -> Result<(), Stop> {
        let options = self.restore_options()?;
        let exists = self.seen(1)?.is_some();
        if exists && !options.replaces {
            return Err(Stop::Error(errors::BUSY_KEY));
        }
        let lasts = self.integer(2)?;
        if lasts < 0 {
            return Err(Stop::Error(errors::INVALID_TTL));
        }
        let payload = self.job.args.arg(3);
        self.access.turn_budget().spend(payload.len() as u64 * BYTE_STEPS);
        let body = rdb::open(payload).ok_or(Stop::Error(errors::BAD_PAYLOAD))?;
        let mut rest = Reader(body);
        match rest.u8() {
            Some(rdb::STRING) => {}
            Some(kind) if rdb::is_known(kind) => {
                let name = rdb::name_of(kind);
                return Err(self.refuse(|out| errors::not_a_string(out, &name)));
            }
            _ => return Err(Stop::Error(errors::BAD_DATA_FORMAT)),
        }
        let bytes_max = DUMPED_BYTES_MAX;
        if let Some(bytes) = rdb::length_of_string(rest).filter(|bytes| *bytes > bytes_max) {
            return Err(self.too_long(bytes));
        }
        let value = rdb::take_string(&mut rest, bytes_max).ok_or(Stop::Error(errors::BAD_DATA_FORMAT))?;
        self.access.turn_budget().spend(value.len() as u64 * BYTE_STEPS);
        let now_ms = self.access.now_ms();
        let expiry_ms = match (lasts as u64, options.is_absolute) {
            (0, _) => None,
            (at_ms, true) => Some(at_ms),
            (lasts_ms, false) => Some(now_ms.saturating_add(lasts_ms)),
        };
        if expiry_ms.is_some_and(|at_ms| at_ms > EXPIRY_MS_MAX as u64) {
            return Err(self.invalid_expire_time());
        }
        if expiry_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            // Its time is over. The key that it replaces goes.
            if exists {
                self.remove(1)?;
            }
        } else {
            let value = Value {
                bytes: &value,
                expiry_ms,
                ..Value::default()
            };
            self.check_large_limits(1, value.bytes.len())?;
            self.put(1, value)?;
        }
        encode::ok(self.reply);
        Ok(())
    }
}
