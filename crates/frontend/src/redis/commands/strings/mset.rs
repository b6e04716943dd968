//! MSET, MSETNX and MSETEX: pairs of a key and a value, which are stored together.

use crate::dialect::Refusal;
use crate::redis::commands::{Operation, Seen, Stop};
use crate::redis::pairs::{LARGE_PAIRS_BYTES_MAX, Load};
use paritas_protocol::{Fault, Out, Uploaded, WriteRefusal};
use paritas_store::{Object, Value};
use paritas_wire::command::{self, KeyIndexes, flag};
use paritas_wire::resp::{encode, errors, parse_integer};

/// When the keys of MSETEX expire.
#[derive(Clone, Copy, Debug)]
enum PairsExpiry {
    Never,
    /// In ms since 1970.
    At(u64),
    /// Each as before.
    Kept,
}

/// Why a number of keys is none of a command.
pub(crate) fn key_count_error(text: &[u8]) -> &'static str {
    match parse_integer(text).is_some_and(|count| (1..=i64::from(i32::MAX)).contains(&count)) {
        true => errors::PAIR_COUNT,
        false => errors::KEY_COUNT,
    }
}

/// Large values of one MSET or MSETNX that are on their way to their holders at a time.
const UPLOADS_AT_ONCE: usize = 4;

impl<O: Out> Operation<'_, '_, O> {
    /// Reads the keys that MSET or MSETNX will change, and reserves space for the change. Returns the number of keys
    /// that exist.
    fn prepare_pairs(&mut self) -> Result<usize, Stop> {
        if !self.job.spec.is(flag::KEY_COUNT) && self.count().is_multiple_of(2) {
            let name = self.job.spec.name;
            return Err(self.refuse(|out| errors::wrong_arity(out, name)));
        }
        let mut there = 0;
        for at in self.pairs() {
            self.check_large_limits(at, self.job.args.arg(at + 1).len())?;
            there += usize::from(self.seen(at)?.is_some());
        }
        let args = self.job.args;
        let load = Load::of_pairs(args, self.pairs(), self.access.small_bytes_max());
        if load.has_large && load.count > 1 && load.bytes > LARGE_PAIRS_BYTES_MAX {
            let bytes_max = LARGE_PAIRS_BYTES_MAX;
            let refusal = WriteRefusal::CommandTooLarge { bytes_max };
            return Err(Stop::Refused(Refusal::Write(refusal)));
        }
        let database = self.job.database;
        let keys = self.pairs().map(|at| (database, args.arg(at)));
        self.access.reserve(load.count, load.delta_bytes, keys.clone(), keys)?;
        Ok(there)
    }

    /// The arguments that are the keys of pairs. Behind each is its value.
    fn pairs(&self) -> KeyIndexes {
        command::keys(self.job.spec, self.job.args)
    }

    /// Stores all pairs: in one delta, once the parts of all large values are at their holders.
    fn put_pairs(&mut self, expiry: PairsExpiry) -> Result<(), Stop> {
        let mut kept = Vec::new();
        let expiry_ms = match expiry {
            PairsExpiry::At(expiry_ms) if expiry_ms <= self.access.now_ms() => {
                for at in self.pairs() {
                    self.remove(at)?;
                }
                return Ok(());
            }
            PairsExpiry::At(expiry_ms) => Some(expiry_ms),
            PairsExpiry::Never => None,
            PairsExpiry::Kept => {
                for at in self.pairs() {
                    kept.push(self.look_again(at, |object, _| Ok(object.and_then(Object::expiry_ms)))?);
                }
                None
            }
        };
        let mut kept = kept.into_iter();
        let mut large = self.upload_pairs()?.into_iter().peekable();
        for at in self.pairs() {
            let expiry_ms = kept.next().unwrap_or(expiry_ms);
            match large.next_if(|(of, _)| *of == at) {
                Some((_, uploaded)) => {
                    let (key, hash) = (self.job.args.arg(at), self.hash_of(at));
                    self.access.put_uploaded(&uploaded, hash, key, expiry_ms)?;
                }
                None => {
                    let value = Value {
                        expiry_ms,
                        ..Seen::with(None, self.job.args.arg(at + 1))
                    };
                    self.put(at, value)?;
                }
            }
            if self.access.rules().fault(Fault::CommandCutInTwo) {
                self.access.close_delta();
            }
        }
        Ok(())
    }

    /// Sends the large values of MSET or MSETNX to their holders, a few at a time. Returns them with the numbers of
    /// their keys' arguments.
    fn upload_pairs(&mut self) -> Result<Vec<(usize, Uploaded)>, Stop> {
        let mut uploaded = Vec::new();
        let small_max = self.access.small_bytes_max();
        if self.job.args.span_bytes() <= small_max || self.access.is_in_draft() {
            return Ok(Vec::new());
        }
        let large = |at: &usize| self.job.args.arg(at + 1).len() > small_max;
        let large: Vec<usize> = self.pairs().filter(large).collect();
        let total_bytes = large.iter().map(|at| self.job.args.arg(at + 1).len()).sum();
        let mut waiting = 0;
        for at in large {
            let (key, value) = (self.job.args.arg(at), self.job.args.arg(at + 1));
            match self
                .access
                .upload_argument(self.job.ticket, at, key, value, total_bytes)
            {
                Ok(value) => uploaded.push((at, value)),
                Err(paritas_protocol::Stop::Wait) => waiting += 1,
                Err(stop) => return Err(stop.into()),
            }
            if waiting == UPLOADS_AT_ONCE {
                break;
            }
        }
        match waiting {
            0 => Ok(uploaded),
            _ => Err(Stop::Wait),
        }
    }

    pub(crate) fn mset(&mut self) -> Result<(), Stop> {
        self.prepare_pairs()?;
        self.put_pairs(PairsExpiry::Never)?;
        encode::ok(self.reply);
        Ok(())
    }

    pub(crate) fn msetnx(&mut self) -> Result<(), Stop> {
        let free = self.prepare_pairs()? == 0;
        if free {
            self.put_pairs(PairsExpiry::Never)?;
        }
        encode::integer(self.reply, i64::from(free));
        Ok(())
    }

    /// MSETEX numkeys key value … [NX | XX] [EX … | KEEPTTL].
    pub(crate) fn msetex(&mut self) -> Result<(), Stop> {
        let count = self.pairs().len();
        if count == 0 {
            return Err(Stop::Error(key_count_error(self.job.args.arg(1))));
        }
        let options = self.options(2 + 2 * count, true)?;
        if options.get || options.if_equal.is_some() {
            return Err(Stop::Error(errors::SYNTAX));
        }
        let expiry = match options.expiry {
            Some((unit, at)) => PairsExpiry::At(self.deadline(unit, at)?),
            None if options.keep_expiry => PairsExpiry::Kept,
            None => PairsExpiry::Never,
        };
        let there = self.prepare_pairs()?;
        let is_met = (!options.if_absent || there == 0) && (!options.if_present || there == count);
        if is_met {
            self.put_pairs(expiry)?;
        }
        encode::integer(self.reply, i64::from(is_met));
        Ok(())
    }
}
