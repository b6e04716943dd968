//! What happens to the engine, what it asks its driver for, and how operations end.

use core::fmt;
use paritas_base::{Span, Time};
use paritas_wire::resp::Value;

/// An operation of this client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OpId(pub u64);

/// A connection of this client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u64);

/// What happens to the engine.
#[derive(Debug)]
pub enum Event<'a> {
    /// A connection that was dialled is up.
    Connected(LinkId),
    /// A connection is down, or could not be made.
    Closed(LinkId),
    /// Bytes have come.
    Bytes(LinkId, &'a [u8]),
    /// The node's machine has taken bytes: it is not silent.
    Sent(LinkId),
    /// The time of [`crate::Engine::next_at`] has come. The driver has told all bytes that have come until then.
    Timer,
}

/// What the engine asks its driver for.
pub trait Out {
    /// Connect to this address; then [`Event::Connected`] or [`Event::Closed`] follows.
    fn dial(&mut self, link: LinkId, address: &str);
    /// Send these bytes, behind those before.
    fn write(&mut self, link: LinkId, bytes: &[u8]);
    /// As [`Self::write`], of bytes that nobody else needs.
    fn write_owned(&mut self, link: LinkId, bytes: Vec<u8>) {
        self.write(link, &bytes);
    }
    /// Close the connection. No event follows.
    fn close(&mut self, link: LinkId);
    /// An operation has ended.
    fn done(&mut self, op: OpId, outcome: Outcome);
    /// The present time, for figures alone.
    fn clock(&mut self) -> Time;
}

/// How an operation has ended.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// The reply.
    pub result: Result<Value, Failure>,
    /// Where the time went.
    pub phases: Phases,
    /// The value was put together by this client.
    pub is_decoded_here: bool,
    /// The value was encoded by this client.
    pub is_encoded_here: bool,
}

impl Outcome {
    /// Of an operation that no engine has ended.
    pub fn failed(failure: Failure) -> Self {
        Self {
            result: Err(failure),
            phases: Phases::default(),
            is_decoded_here: false,
            is_encoded_here: false,
        }
    }
}

/// Where the time of an operation went (the fifth paper, §VI-B).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Phases {
    /// From the submission until the first command was given to a connection.
    pub request: Span,
    /// Sums, encoding and decoding.
    pub coding: Span,
    /// The rest.
    pub wait: Span,
}

/// Why an operation has no reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// A node has answered with this error. GET and SET have not happened; of another command a part may have.
    Refused(String),
    /// A connection ended after it was sent: it may have happened, or may happen yet.
    Uncertain,
    /// It has not happened: no node answered in time.
    Unreachable,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(text) => f.write_str(text),
            Self::Uncertain => f.write_str("the connection ended after the command was sent: it may have happened"),
            Self::Unreachable => f.write_str("no node answered in time; nothing has changed"),
        }
    }
}

impl core::error::Error for Failure {}

/// Why an operation is not begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubmitError {
    /// Too many are under way: wait for one.
    Busy,
}

impl fmt::Display for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("too many operations are under way: wait for one of them")
    }
}

impl core::error::Error for SubmitError {}

/// Counts since the beginning.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Values that were put together here.
    pub decoded_here: u64,
    /// Bytes of units that came.
    pub unit_bytes: u64,
    /// Units that were asked for because others were late, and their bytes.
    pub replaced: u64,
    /// Bytes of these.
    pub replaced_bytes: u64,
    /// Answers whose bytes were not those of their sums, or values that were not those of their records.
    pub wrong: u64,
    /// Values that were located again.
    pub located_again: u64,
    /// Values that a node was asked for, because their parts could not be read.
    pub by_node: u64,
    /// Values that were encoded here.
    pub encoded_here: u64,
    /// Bytes of commands with units that holders have taken.
    pub put_bytes: u64,
    /// Values that a node encoded, because their parts could not be written.
    pub encoded_by_node: u64,
}

pub(crate) fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
