//! Room `protocol`: the redundancy protocol as machines without clock, entropy, threads or sockets.

mod interface;

pub use interface::{
    Channel, Event, FrameBuf, HaltReason, Identity, LinkId, Out, Port, Proposal, ReplyBuf,
};

use paritas_base::{Clock, Time};

/// One node: every role it holds, and the router before them.
#[derive(Debug)]
pub struct Node {
    identity: Identity,
}

impl Node {
    /// An empty node.
    pub fn new(identity: Identity) -> Self {
        Self { identity }
    }

    /// Handles one event.
    pub fn on(&mut self, _now: Clock, _event: Event<'_>, _out: &mut impl Out) {
        let _ = &self.identity;
    }

    /// When to call with [`Event::Timer`] at the latest.
    pub fn next_deadline(&self) -> Option<Time> {
        None
    }
}
