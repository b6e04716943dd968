//! One run of a script: what it gets, what it may use, who runs its commands, and how it ends.

use crate::source::Sha;
use paritas_wire::resp::Proto;

/// How much a script may do between two looks at the time.
///
/// An instruction of Lua may join two strings of megabytes. It costs a thousand times an ordinary one, and where the
/// result exists already, not even memory. So a script begins with little memory, which keeps its strings short, and
/// with few interruptions. If it needs more, all of it runs again, with many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weight {
    /// 1 MiB.
    Light,
    /// 16 MiB.
    Heavy,
}

impl Weight {
    pub(super) const fn memory_bytes(self) -> usize {
        match self {
            Self::Light => 1 << 20,
            Self::Heavy => 16 << 20,
        }
    }

    /// Instructions between two looks.
    pub(super) const fn instructions(self) -> u32 {
        match self {
            Self::Light => 200,
            Self::Heavy => 4,
        }
    }
}

/// What ends a script before its own end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// It has done as much work as a script may do.
    Work,
    /// It needs more memory than its weight has.
    Memory,
    /// Its reply is too long.
    Reply,
    /// Its host has ended it.
    ByHost,
}

/// What a script may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Memory, and how often it is interrupted.
    pub weight: Weight,
    /// Work in nanoseconds, as it is counted.
    pub work_ns: u64,
    /// When it ends at the latest, by the sandbox's clock, in nanoseconds.
    pub until_ns: u64,
}

/// What runs the commands of a script.
pub trait Host {
    /// Runs a command, which is an array of strings, and appends its reply in this version of Redis' protocol.
    ///
    /// # Errors
    /// [`Ended::ByHost`] if the script must end without a reply.
    fn call(&mut self, command: &[u8], proto: Proto, reply: &mut Vec<u8>) -> Result<(), Ended>;
}

/// A run of a script.
#[derive(Clone, Copy, Debug)]
pub struct Run<'r> {
    /// The name of the script.
    pub sha: &'r Sha,
    /// Its source, which is compiled if it is not known.
    pub source: &'r [u8],
    /// `KEYS`.
    pub keys: &'r [&'r [u8]],
    /// `ARGV`.
    pub args: &'r [&'r [u8]],
    /// The version of Redis' protocol of the reply.
    pub proto: Proto,
    /// What it may use.
    pub limits: Limits,
    /// Makes its random numbers.
    pub seed: u64,
    /// The source is a library, and this function of it is called. Then `keys` and `args` are its arguments.
    pub function: Option<&'r [u8]>,
}

/// What is called of a source.
#[derive(Clone, Copy, Debug)]
pub(super) enum Entry<'r> {
    /// It is a script.
    Script,
    /// It is a library: what does it register?
    Load,
    /// It is a library, and this function of it is called.
    Function(&'r [u8]),
}

/// A library could not be loaded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LoadError {
    /// The text of an error for the client.
    Refused(String),
    /// It was ended before its own end.
    Ended(Ended),
}

/// Runs no commands: a library finds none while it is loaded.
pub(super) struct NoCommands;

impl Host for NoCommands {
    fn call(&mut self, _: &[u8], _: Proto, _: &mut Vec<u8>) -> Result<(), Ended> {
        Err(Ended::ByHost)
    }
}

/// How a script has run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ran {
    /// Work that it has done, in nanoseconds as counted.
    pub work_ns: u64,
    /// What has ended it; `None`: its reply is appended.
    pub ended: Option<Ended>,
}
