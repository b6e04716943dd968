//! A caller and its queue of replies.

use super::gather::Gather;
use crate::dialect::Dialect;
use crate::redis::commands::REPLY_BYTES_MAX;
use paritas_base::configuration::Tenure;
use paritas_base::{ConnId, Epoch, Incarnation, ListId, NodeId, Position, StreamId, Term, Time};
use paritas_protocol::{Ends, Port, ReplyBuf, TakenAgain};
use paritas_wire::command::{Command, CommandSpec, flag};
use paritas_wire::resp::Args;
use std::collections::VecDeque;

/// Places in a client's queue that stay when it is empty.
const PLACES_KEPT: usize = 64;

/// Whose commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Caller {
    /// A client of this node.
    Local(ConnId),
    /// A client of that node, which forwards.
    Remote(NodeId, ConnId),
}

/// What a client has said of itself, and what CLIENT LIST says of it.
#[derive(Debug, Default)]
pub(crate) struct About {
    pub(crate) id: u64,
    /// Known of this node's clients.
    pub(crate) ends: Option<Ends>,
    pub(crate) name: Vec<u8>,
    pub(crate) library: Vec<u8>,
    pub(crate) library_version: Vec<u8>,
    pub(crate) last_command: &'static str,
    pub(crate) since: Time,
    pub(crate) active_at: Time,
    pub(crate) no_evict: bool,
    pub(crate) no_touch: bool,
    /// A `MULTI` of this client was refused, and neither `EXEC` nor `DISCARD` has come.
    pub(crate) transaction_refused: bool,
}

/// One caller.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) caller: Caller,
    pub(crate) port: Port,
    pub(crate) dialect: Dialect,
    pub(crate) about: Box<About>,
    pub(crate) segments: VecDeque<Segment>,
    /// The number of the next command; a forwarded one brings its own.
    pub(crate) next_n: u64,
    /// What its commands forwarded and not answered are charged with ([`Forwarded::charge`]), and the answers that
    /// gathered ones have so far.
    pub(crate) forwarded_bytes: usize,
    /// Part of `forwarded_bytes` charged for replies not yet received.
    expected_bytes: usize,
    /// Forwarded commands that did not go straight to their owner and are not answered. Until they are, no command
    /// of this client starts: it might overtake them.
    pub(crate) detours: usize,
    /// It has as many unanswered commands as it may.
    pub(crate) full: bool,
    pub(crate) held: bool,
    pub(crate) stalled: bool,
    pub(crate) stalled_since: Option<Time>,
    pub(crate) closing: bool,
    /// How far its next command, a long one, has been read: it is not read again with each packet.
    pub(crate) partial: Option<Box<Args>>,
    /// Of a peer's client.
    pub(crate) remote: Remote,
}

/// What is known of a peer's client.
#[derive(Debug)]
pub(crate) struct Remote {
    /// Of the forwarding peer.
    pub(crate) incarnation: Incarnation,
    /// Whom the peer took this node for when it sent the command at hand: the owner of this stream, at this epoch.
    pub(crate) stream: StreamId,
    pub(crate) epoch: Epoch,
    /// Replies until they may be seen. Those to a client of this node lie in its reply buffer.
    pub(crate) replies: Vec<u8>,
    /// Commands that have not started.
    pub(crate) parked: VecDeque<Parked>,
}

impl Client {
    pub(crate) fn new(caller: Caller, port: Port, id: u64, since: Time) -> Self {
        Self {
            caller,
            port,
            dialect: Dialect::default(),
            about: Box::new(About {
                id,
                last_command: "NULL",
                since,
                active_at: since,
                ..About::default()
            }),
            segments: VecDeque::new(),
            next_n: 0,
            forwarded_bytes: 0,
            expected_bytes: 0,
            detours: 0,
            full: false,
            held: false,
            stalled: false,
            stalled_since: None,
            closing: false,
            partial: None,
            remote: Remote {
                incarnation: Incarnation(0),
                stream: StreamId {
                    list: ListId(0),
                    x: Position(0),
                },
                epoch: Epoch(0),
                replies: Vec::new(),
                parked: VecDeque::new(),
            },
        }
    }

    pub(crate) fn take_n(&mut self) -> u64 {
        let n = self.next_n;
        self.next_n += 1;
        n
    }

    /// What the driver is to know of it.
    pub(crate) fn show(&mut self, buffer: &mut ReplyBuf) {
        buffer.owes = !self.segments.is_empty();
        if !buffer.owes {
            // No client is ended for places that nobody waits at.
            self.segments.shrink_to(PLACES_KEPT);
        }
        buffer.close |= self.closing && !buffer.owes;
        buffer.elsewhere_bytes = self.forwarded_bytes.saturating_sub(self.expected_bytes) + self.queue_bytes();
        buffer.no_evict = self.about.no_evict;
    }

    /// A command is on its way, or is to be.
    pub(crate) fn charge(&mut self, forwarded: &Forwarded) {
        self.forwarded_bytes += forwarded.charge();
        self.expected_bytes += forwarded.reply_bytes;
    }

    /// It is answered.
    pub(crate) fn discharge(&mut self, forwarded: &Forwarded) {
        self.forwarded_bytes = self.forwarded_bytes.saturating_sub(forwarded.charge());
        self.expected_bytes = self.expected_bytes.saturating_sub(forwarded.reply_bytes);
    }

    /// Of what waits: the places in the queue, and the arguments of a command that is not whole.
    fn queue_bytes(&self) -> usize {
        let partial = self.partial.as_ref();
        let partial = partial.map_or(0, |args| size_of::<Args>() + args.held_bytes());
        partial + self.segments.capacity() * size_of::<Segment>()
    }

    /// Memory that it holds beside itself.
    pub(crate) fn held_bytes(&self) -> usize {
        let about = &self.about;
        let names = about.name.capacity() + about.library.capacity() + about.library_version.capacity();
        let waits = self.segments.iter().map(|segment| segment.wait.held_bytes());
        let parked = self.remote.parked.iter().map(|parked| parked.command.capacity());
        size_of::<About>()
            + names
            + self.queue_bytes()
            + waits.sum::<usize>()
            + self.remote.replies.capacity()
            + self.remote.parked.capacity() * size_of::<Parked>()
            + parked.sum::<usize>()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.segments.is_empty() && self.remote.parked.is_empty()
    }

    /// Every forwarded command that is not answered, in order.
    pub(crate) fn forwards(&mut self) -> impl Iterator<Item = &mut Forwarded> {
        self.segments.iter_mut().flat_map(|segment| {
            let (one, several) = match &mut segment.wait {
                Wait::Forwarded(forwarded) => (Some(forwarded), None),
                Wait::Gathered(gather) => (None, Some(gather.parts.iter_mut())),
                _ => (None, None),
            };
            let parts = several.into_iter().flatten().filter_map(|part| match &mut part.wait {
                Wait::Forwarded(forwarded) => Some(forwarded),
                _ => None,
            });
            one.into_iter().chain(parts)
        })
    }
}

/// A forwarded command that waits here.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) n: u64,
    pub(crate) dialect: Dialect,
    pub(crate) stream: StreamId,
    pub(crate) epoch: Epoch,
    pub(crate) command: Vec<u8>,
}

/// One command's reply.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) n: u64,
    /// Bytes of it, behind those of the segments before.
    pub(crate) length: usize,
    pub(crate) wait: Wait,
    pub(crate) taken_again: TakenAgain,
}

/// A command at another node, or on its way there.
#[derive(Debug)]
pub(crate) struct Forwarded {
    pub(crate) n: u64,
    pub(crate) stream: StreamId,
    /// By which version of the slot map its keys are of that stream.
    pub(crate) map: u64,
    /// Who has it; `None` while it is to be sent.
    pub(crate) target: Option<Tenure>,
    pub(crate) write: bool,
    pub(crate) command: Vec<u8>,
    /// What it is charged with for its reply.
    pub(crate) reply_bytes: usize,
    pub(crate) since: Time,
    /// See [`Client::detours`].
    pub(crate) detour: bool,
}

/// What a forwarded read is charged with for its reply, MGET for each key: half of the longest value, so that replies
/// on their way to a client that does not read them are few megabytes.
const REPLY_CHARGE_BYTES: usize = 32 << 10;

impl Forwarded {
    /// Bytes that it counts for while it is not answered.
    fn charge(&self) -> usize {
        self.command.len() + self.reply_bytes
    }

    /// Bytes that a command of `words` words is charged with for its reply.
    pub(crate) fn reply_charge(spec: &CommandSpec, words: usize) -> usize {
        if spec.is(flag::WRITE) {
            0
        } else if spec.id == Command::Mget {
            (words.saturating_sub(1) * REPLY_CHARGE_BYTES).min(REPLY_BYTES_MAX)
        } else {
            REPLY_CHARGE_BYTES
        }
    }
}

/// What a reply waits for.
#[derive(Debug)]
pub(crate) enum Wait {
    /// Nothing.
    Ready,
    /// The ack of delta `seq` (P3.7).
    Write {
        stream: StreamId,
        term: Term,
        seq: u64,
        since: Time,
    },
    /// The ack of what it saw, and leases (P4.1, P4.2).
    Read {
        stream: StreamId,
        term: Term,
        need: u64,
        since: Time,
    },
    /// The owner's answer.
    Forwarded(Forwarded),
    /// The answers of several owners.
    Gathered(Box<Gather>),
    /// An answer from outside the machine.
    Answer { since: Time },
}

impl Wait {
    pub(crate) fn held_bytes(&self) -> usize {
        match self {
            Self::Forwarded(forwarded) => forwarded.command.capacity(),
            Self::Gathered(gather) => gather.held_bytes(),
            _ => 0,
        }
    }
}
