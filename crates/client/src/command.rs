//! `Command`: what an operation sends.

use crate::interface::text_of;
use core::fmt;

/// Commands that change their connection, or that have no reply or many. All operations share the connections.
const OF_CONNECTIONS: [&str; 20] = [
    "ASKING",
    "AUTH",
    "DISCARD",
    "EXEC",
    "HELLO",
    "MONITOR",
    "MULTI",
    "PSUBSCRIBE",
    "PSYNC",
    "PUNSUBSCRIBE",
    "QUIT",
    "RESET",
    "SELECT",
    "SSUBSCRIBE",
    "SUBSCRIBE",
    "SUNSUBSCRIBE",
    "SYNC",
    "UNSUBSCRIBE",
    "UNWATCH",
    "WATCH",
];

/// What the engine knows of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// GET of the key. It changes nothing, so it may be sent again.
    Get,
    /// SET of the key. If it is refused it has not happened.
    Set,
    /// If it is refused, a part of it may have happened.
    Other,
}

/// A command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Command {
    pub(crate) args: Vec<Vec<u8>>,
    /// Commands with the same key happen in the order of their submission.
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) kind: Kind,
}

/// A command that changes its connection: all operations of a client share the connections.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OfConnection(String);

impl fmt::Display for OfConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name) = self;
        write!(
            f,
            "{name} is about one connection, and all operations of this client share theirs: use a Redis client for it"
        )
    }
}

impl core::error::Error for OfConnection {}

impl Command {
    /// GET of a key.
    pub fn get(key: &[u8]) -> Self {
        Self {
            args: vec![b"GET".to_vec(), key.to_vec()],
            key: Some(key.to_vec()),
            kind: Kind::Get,
        }
    }

    /// SET of a key.
    pub fn set(key: &[u8], value: Vec<u8>) -> Self {
        Self {
            args: vec![b"SET".to_vec(), key.to_vec(), value],
            key: Some(key.to_vec()),
            kind: Kind::Set,
        }
    }

    /// Any command, its name first. `key`: it happens in order with other commands of this key.
    ///
    /// # Errors
    /// If the command changes its connection, as SELECT and MULTI do, or has no name.
    pub fn other(args: Vec<Vec<u8>>, key: Option<Vec<u8>>) -> Result<Self, OfConnection> {
        let word = |at: usize| args.get(at).map(|word| text_of(word).to_ascii_uppercase());
        let name = word(0).unwrap_or_else(|| "a command without a name".to_owned());
        let is_reply = name == "CLIENT" && word(1).is_some_and(|word| word == "REPLY" || word == "TRACKING");
        if args.is_empty() || is_reply || OF_CONNECTIONS.contains(&name.as_str()) {
            return Err(OfConnection(name));
        }
        let kind = Kind::Other;
        Ok(Self { args, key, kind })
    }

    /// The value that the command writes, if it is one whose value a client may encode.
    pub(crate) fn value(&self) -> Option<&[u8]> {
        self.args.get(self.value_at()?).map(Vec::as_slice)
    }

    /// The key that such a value is written to.
    pub(crate) fn written_key(&self) -> &[u8] {
        self.args.get(1).map(Vec::as_slice).unwrap_or_default()
    }

    /// The place of that word.
    pub(crate) fn value_at(&self) -> Option<usize> {
        let name = self.args.first()?;
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        let at = match self.args.len() {
            3 if is("SETNX") || is("GETSET") => 2,
            4 if is("SETEX") || is("PSETEX") => 3,
            3.. if is("SET") => 2,
            _ => return None,
        };
        Some(at)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.args.iter().map(|arg| arg.len() as u64).sum()
    }
}
