//! The command table: all commands, their arity, and where their keys are. Dispatch, COMMAND and its replies, and the
//! document about commands all use it.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

pub mod flag;
pub mod glob;
mod keys;
mod lookup;
pub mod reply;
mod slot;
mod table;

pub use keys::{KeyIndexes, keys, keys_of, lacks_keys};
pub use lookup::{Refusal, find, lookup, resolve};
pub use slot::{KeySlots, slot, slot_steps};
pub use table::{COMMANDS, Command};

/// The commands that clients may give.
pub fn public() -> impl Iterator<Item = &'static CommandSpec> + Clone {
    COMMANDS.iter().filter(|spec| !spec.is(flag::INTERNAL))
}

/// One command or subcommand.
#[derive(Debug)]
pub struct CommandSpec {
    /// The id that dispatch matches on. Subcommands have ids of their own.
    pub id: Command,
    /// The name in lower case. A subcommand's name includes its container: `config|get`.
    pub name: &'static str,
    /// Number of arguments, including the name. Negative: at least this many.
    pub arity: i16,
    /// Flags, as in [`flag`].
    pub flags: u32,
    /// Index of the first key; 0 if there are none.
    pub first_key: i8,
    /// Index of the last key. Negative: counted from the end.
    pub last_key: i8,
    /// Distance from one key to the next.
    pub step: i8,
    /// Index of the argument that may be a long value, which goes to its owner before the command runs; 0 if there is
    /// none.
    pub value_at: u8,
    /// What the command does with each key, one list of words for each key specification: `RW access update`.
    pub access: &'static [&'static str],
    /// Categories that do not follow from the flags: `keyspace`, `dangerous`.
    pub categories: &'static str,
    /// Hints for clients that talk to several nodes.
    pub tips: &'static str,
    /// The version of Redis that introduced it; for Paritas's own commands, the version of Paritas.
    pub since: &'static str,
    /// One of `string`, `generic`, `connection`, `server`, `cluster`, `transactions`.
    pub group: &'static str,
    /// A description in one line.
    pub summary: &'static str,
    /// Its subcommands; empty except for containers.
    pub subcommands: &'static [Self],
}

impl CommandSpec {
    /// Whether the command accepts `count` arguments, including its name.
    #[inline]
    pub fn arity_allows(&self, count: usize) -> bool {
        let arity = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { count >= arity } else { count == arity }
    }

    /// Whether it has this flag.
    #[inline]
    pub fn is(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Whether the command has keys.
    #[inline]
    pub fn has_keys(&self) -> bool {
        self.first_key > 0
    }

    /// The name without the container's name.
    pub fn last_name(&self) -> &'static str {
        self.name.split_once('|').map_or(self.name, |(_, last)| last)
    }
}

impl Command {
    /// Number of ids, for counters by command.
    pub const COUNT: usize = Self::ALL.len();

    /// Its row of the table.
    pub fn spec(self) -> &'static CommandSpec {
        lookup::spec(self)
    }
}
