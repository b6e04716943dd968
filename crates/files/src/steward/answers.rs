//! What the machine answers, and what it asks of the cache store.

use crate::File;
use crate::geometry::Geometry;
use crate::record::Record;

/// Who asked. The driver's to choose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Asker(pub u64);

/// What a reader should do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Use the parity.
    Cached,
    /// Make the parity.
    ShouldCache,
    /// Neither.
    ShouldNotCache,
}

impl Answer {
    /// The word of the reply.
    pub fn word(self) -> &'static str {
        match self {
            Self::Cached => "cached",
            Self::ShouldCache => "should-cache",
            Self::ShouldNotCache => "should-not-cache",
        }
    }
}

/// A pin on an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Granted {
    /// 0 for none.
    pub pin: u64,
    /// `None` without a pin.
    pub token: Option<u64>,
    /// Parity rows of a stripe.
    pub m: u32,
    /// Bytes of a subblock.
    pub sub_bytes: u64,
}

impl Granted {
    /// Nothing.
    pub(super) fn none(m: u32, sub_bytes: u64) -> Self {
        Self {
            pin: 0,
            token: None,
            m,
            sub_bytes,
        }
    }
}

/// The answer to OPEN.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opened {
    /// What to do.
    pub answer: Answer,
    /// With what.
    pub grant: Granted,
    /// Stragglers, those of the file first.
    pub slow: Vec<String>,
}

/// A reply to a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// To OPEN.
    Opened(Opened),
    /// To PREFETCH and CHECK: a file, or none.
    Next(Option<File>),
    /// To ROOM: parity blocks, or 0.
    Room(u64, Granted),
    /// To RENEW: whether each pin is known.
    Renewed(Vec<bool>),
    /// To CREDIT: bytes, or 0.
    Credit(u64),
    /// OK.
    Done,
    /// To STATUS: JSON.
    Status(String),
    /// What is wrong, and what to do.
    Error(String),
}

/// What became of keys whose expiry was to be put off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refreshed {
    /// All are there.
    Whole,
    /// Some are gone.
    Missing,
    /// The store did not answer, or answered with an error.
    Away,
}

/// What the machine's driver does. The cache store must do it in the order in which it is asked.
pub trait Out {
    /// Sends a reply.
    fn reply(&mut self, asker: Asker, reply: Reply);
    /// Writes a file's record. Answered with `Stored`.
    fn store(&mut self, token: u64, file: File, record: &Record);
    /// Deletes the parity keys of a token, and then the file's record if `record` is set. Answered with `Erased`.
    fn erase(&mut self, token: u64, file: File, geometry: &Geometry, record: bool);
    /// Puts off the expiry of a token's parity keys and of the file's record. Answered with `Refreshed`.
    fn refresh(&mut self, token: u64, file: File, geometry: &Geometry);
}
