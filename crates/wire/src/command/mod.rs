//! The command table: what there is, how many arguments it takes, where its keys are. Dispatch, COMMAND, its replies
//! and the page of commands in the docs all come from it.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

pub mod flag;
pub mod glob;
mod keys;
mod lookup;
pub mod reply;
mod slot;
mod table;

pub use keys::{KeyIndexes, keys};
pub use lookup::{Refusal, find, lookup, resolve};
pub use slot::slot;
pub use table::{COMMANDS, Command};

/// One command or subcommand.
#[derive(Debug)]
pub struct CommandSpec {
    /// What dispatch matches on. Subcommands have ids of their own.
    pub id: Command,
    /// Lower case; of a subcommand with its container: `config|get`.
    pub name: &'static str,
    /// Arguments, the name included; negative: at least so many.
    pub arity: i16,
    /// Of [`flag`].
    pub flags: u32,
    /// Index of the first key; 0 if there are none.
    pub first_key: i8,
    /// Index of the last key; negative: from the end.
    pub last_key: i8,
    /// From one key to the next.
    pub step: i8,
    /// What is done to each key, a word list a key specification: `RW access update`.
    pub access: &'static [&'static str],
    /// Categories that do not follow from the flags: `keyspace`, `dangerous`.
    pub categories: &'static str,
    /// Hints for clients that talk to several nodes.
    pub tips: &'static str,
    /// The version of Redis that brought it; of our own commands, of Paritas.
    pub since: &'static str,
    /// `string`, `generic`, `connection`, `server`, `cluster`.
    pub group: &'static str,
    /// One line.
    pub summary: &'static str,
    /// Empty but for containers.
    pub subcommands: &'static [Self],
}

impl CommandSpec {
    /// Whether a command of so many arguments, its name included, may run.
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

    /// Whether it names keys.
    #[inline]
    pub fn has_keys(&self) -> bool {
        self.first_key > 0
    }

    /// The name that follows the container's; the whole name of a command.
    pub fn last_name(&self) -> &'static str {
        self.name.split_once('|').map_or(self.name, |(_, last)| last)
    }
}

impl Command {
    /// How many ids there are: for counters by command.
    pub const COUNT: usize = Self::ALL.len();

    /// Its line of the table.
    pub fn spec(self) -> &'static CommandSpec {
        lookup::spec(self)
    }
}
