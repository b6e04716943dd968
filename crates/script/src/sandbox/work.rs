//! The work, the memory and the time that a script may still use.

use super::{Ended, Limits};
use core::cell::Cell;
use core::fmt;
use mlua::{Error, Result};

/// Nanoseconds of an instruction of Lua, about.
const INSTRUCTION_NS: u64 = 10;
/// Memory of a string beside its bytes, and of its place in a table.
const WORD_BYTES: usize = 48;
/// Work after which the clock is looked at.
const LOOK_NS: u64 = 5000;
/// The longest reply in bytes, while it is made.
const REPLY_BYTES_MAX: usize = 33 << 20;

/// The work that a script may still do. All that runs for it takes from this.
pub(crate) struct Work {
    pub(super) clock: fn() -> u64,
    pub(super) until_ns: Cell<u64>,
    pub(super) left_ns: Cell<u64>,
    /// Work since the last look at the clock.
    pub(super) unlooked_ns: Cell<u64>,
    pub(super) memory_max: Cell<usize>,
    pub(super) ended: Cell<Option<Ended>>,
}

impl Work {
    pub(super) fn begin(&self, limits: &Limits) {
        self.until_ns.set(limits.until_ns);
        self.left_ns.set(limits.work_ns);
        self.memory_max.set(limits.weight.memory_bytes());
        self.ended.set(None);
    }

    /// Takes work that was done, or is about to be done.
    pub(crate) fn take(&self, ns: u64) -> core::result::Result<(), Ended> {
        if let Some(ended) = self.ended.get() {
            return Err(ended);
        }
        let left = self.left_ns.get();
        self.left_ns.set(left.saturating_sub(ns));
        if left <= ns {
            self.ended.set(Some(Ended::Work));
            return Err(Ended::Work);
        }
        let unlooked = self.unlooked_ns.get().saturating_add(ns);
        self.unlooked_ns.set(unlooked);
        if unlooked >= LOOK_NS { self.look() } else { Ok(()) }
    }

    /// Looks at the clock.
    pub(super) fn look(&self) -> core::result::Result<(), Ended> {
        self.unlooked_ns.set(0);
        if (self.clock)() > self.until_ns.get() {
            self.ended.set(Some(Ended::Work));
            return Err(Ended::Work);
        }
        Ok(())
    }

    /// Checks the length of what a function makes outside of Lua's memory.
    pub(crate) fn check_length(&self, bytes: usize) -> Result<()> {
        match bytes > self.memory_max.get() {
            true => Err(self.end_for_memory()),
            false => Ok(()),
        }
    }

    /// Checks the words that a script is given.
    pub(super) fn check_words(&self, words: &[&[u8]]) -> core::result::Result<(), Ended> {
        let bytes = words.iter().map(|word| word.len() + WORD_BYTES).sum::<usize>();
        if bytes > self.memory_max.get() {
            self.ended.set(Some(Ended::Memory));
            return Err(Ended::Memory);
        }
        Ok(())
    }

    /// Checks the length of a reply while it is made.
    pub(crate) fn check_reply(&self, bytes: usize) -> core::result::Result<(), Ended> {
        if bytes > REPLY_BYTES_MAX {
            self.ended.set(Some(Ended::Reply));
            return Err(Ended::Reply);
        }
        Ok(())
    }

    /// The same, for functions that Lua calls.
    pub(crate) fn spend(&self, ns: u64) -> Result<()> {
        self.take(ns).map_err(|_| self.end_error())
    }

    /// Instructions of Lua have run.
    pub(super) fn on_instructions(&self, count: u32) -> Result<()> {
        self.spend(u64::from(count) * INSTRUCTION_NS)?;
        self.look().map_err(|_| self.end_error())
    }

    pub(super) fn end_for_memory(&self) -> Error {
        self.ended.set(self.ended.get().or(Some(Ended::Memory)));
        self.end_error()
    }

    /// What Lua raises to end the script.
    pub(crate) fn end_error(&self) -> Error {
        Error::external(End)
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work")
            .field("ended", &self.ended.get())
            .finish_non_exhaustive()
    }
}

/// The end of a script, as an error of Lua.
#[derive(Debug)]
pub(super) struct End;

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the script has ended")
    }
}

impl core::error::Error for End {}
