//! A caller and its queue of replies.

use crate::interface::Port;
use paritas_base::configuration::Tenure;
use paritas_base::{ConnId, Incarnation, NodeId, Stream, Term, Time};
use paritas_wire::resp::Proto;
use std::collections::VecDeque;

/// Whose commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Caller {
    /// A client of this node.
    Local(ConnId),
    /// A client of that node, which forwards.
    Remote(NodeId, ConnId),
}

/// One caller.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) caller: Caller,
    pub(super) port: Port,
    pub(super) proto: Proto,
    /// For people: CLIENT ID, CLIENT LIST.
    pub(super) id: u64,
    pub(super) name: Vec<u8>,
    pub(super) last_command: &'static str,
    pub(super) since: Time,
    /// Of the forwarding peer.
    pub(super) incarnation: Incarnation,
    pub(super) segments: VecDeque<Segment>,
    /// The number of the next command; a forwarded one brings its own.
    pub(super) next_n: u64,
    /// Replies to a peer's client until they may be seen. Those to a client of this node lie in its reply buffer.
    pub(super) replies: Vec<u8>,
    /// Commands of a peer's client that have not started.
    pub(super) parked: VecDeque<Parked>,
    pub(super) held: bool,
    pub(super) stalled: bool,
    pub(super) stalled_since: Option<Time>,
    pub(super) closing: bool,
}

impl Client {
    pub(super) fn new(caller: Caller, port: Port, id: u64, since: Time) -> Self {
        Self {
            caller,
            port,
            proto: Proto::Resp2,
            id,
            name: Vec::new(),
            last_command: "NULL",
            since,
            incarnation: Incarnation(0),
            segments: VecDeque::new(),
            next_n: 0,
            replies: Vec::new(),
            parked: VecDeque::new(),
            held: false,
            stalled: false,
            stalled_since: None,
            closing: false,
        }
    }

    pub(super) fn take_n(&mut self) -> u64 {
        let n = self.next_n;
        self.next_n += 1;
        n
    }
}

/// A forwarded command that waits here.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) n: u64,
    pub(super) proto: Proto,
    pub(super) command: Vec<u8>,
}

/// One command's reply.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) n: u64,
    /// Bytes of it, behind those of the segments before.
    pub(super) length: usize,
    pub(super) wait: Wait,
}

/// What a reply waits for.
#[derive(Debug)]
pub(super) enum Wait {
    /// Nothing.
    Ready,
    /// The ack of delta `seq` (3.7).
    Write {
        stream: Stream,
        term: Term,
        seq: u64,
        since: Time,
    },
    /// The ack of what it saw, and leases (4.1, 4.2).
    Read {
        stream: Stream,
        term: Term,
        need: u64,
        since: Time,
    },
    /// The owner's answer. `target` is `None` while it is not sent.
    Forwarded {
        stream: Stream,
        target: Option<Tenure>,
        write: bool,
        command: Vec<u8>,
        since: Time,
    },
    /// The answers of several owners.
    Gathered(Box<super::forward::Gather>),
    /// An answer from outside the machine.
    Answer,
}
