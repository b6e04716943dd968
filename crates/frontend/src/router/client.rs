//! A caller and its queue of replies.

use super::functions::{Asked, Restored};
use super::gather::Gather;
use super::long::Long;
use super::one_by_one::OneByOne;
use super::staging::Staging;
use crate::dialect::Dialect;
use crate::memcached::{Dialog, Shown};
use crate::redis::clients::Replies;
use crate::redis::commands::{Job, REPLY_BYTES_MAX};
use crate::redis::transactions::Transaction;
use paritas_base::configuration::Tenure;
use paritas_base::{ConnId, Epoch, Incarnation, ListId, NodeId, Position, StreamId, Term, Time};
use paritas_protocol::{Context, Ends, Lists, Out, PeerCommand, Port, ReplyBuf, TakenAgain, Ticket, ValueRange};
use paritas_wire::command::{Command, CommandSpec, flag};
use paritas_wire::resp::{ArgList, Args};
use std::collections::VecDeque;

/// Capacity, in segments, that an empty queue of a client keeps.
const PLACES_KEPT: usize = 64;

/// Who sends commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Caller {
    /// A client of this node.
    Local(ConnId),
    /// A client of another node, which forwards its commands.
    Remote(NodeId, ConnId),
}

/// What CLIENT LIST shows of a client.
#[derive(Debug, Default)]
pub(crate) struct About {
    pub(crate) id: u64,
    /// Known only for this node's clients.
    pub(crate) ends: Option<Ends>,
    pub(crate) name: Vec<u8>,
    pub(crate) library: Vec<u8>,
    pub(crate) library_version: Vec<u8>,
    pub(crate) last_command: &'static str,
    pub(crate) since: Time,
    pub(crate) active_at: Time,
    pub(crate) no_evict: bool,
    pub(crate) no_touch: bool,
}

/// One caller.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) caller: Caller,
    pub(crate) port: Port,
    pub(crate) dialect: Dialect,
    /// The database that its commands are about. A forwarded one brings its own.
    pub(crate) database: u8,
    /// The number of the command for whose reply all later ones wait.
    pub(crate) awaited: Option<u64>,
    pub(crate) about: Box<About>,
    /// It has given the password, or needs none.
    pub(crate) authenticated: bool,
    /// Wrong capabilities that it has shown (P14.19).
    pub(crate) wrong_capabilities: u8,
    pub(crate) segments: VecDeque<Segment>,
    /// The number of the next command; a forwarded one brings its own.
    pub(crate) next_n: u64,
    /// Bytes charged for its forwarded commands that are not answered ([`Forwarded::charge`]), and bytes of the answers
    /// that its gathered commands have so far.
    pub(crate) forwarded_bytes: usize,
    /// Part of `forwarded_bytes` charged for replies not yet received.
    expected_bytes: usize,
    /// Its unanswered forwarded commands that did not go straight to their owner. Until they are answered, no command
    /// of this client starts: it could overtake them.
    pub(crate) detours: usize,
    /// It has reached a limit of unanswered commands.
    pub(crate) full: bool,
    pub(crate) held: bool,
    pub(crate) stalled: bool,
    pub(crate) stalled_since: Option<Time>,
    /// Its next command waits for the end of CLIENT PAUSE.
    pub(crate) paused: bool,
    pub(crate) closing: bool,
    /// The decoded part of a long command, which is not decoded again with each packet.
    pub(crate) partial: Option<Box<Args>>,
    /// What its next command knows of the libraries of functions.
    pub(crate) functions: Option<Asked>,
    /// What its FUNCTION RESTORE has loaded so far.
    pub(crate) restored: Option<Box<Restored>>,
    /// The commands of its transaction, and the keys that it watches.
    pub(crate) transaction: Option<Box<Transaction>>,
    /// A command whose value is too long to be held.
    pub(crate) staging: Option<Box<Staging>>,
    /// Streams in which it may have staged values whose units it sends to the holders itself (P14.18).
    pub(crate) staged_in: Vec<StreamId>,
    /// Its replies that this node reads from parts or value by value, and that are not sent whole.
    pub(crate) long_replies: usize,
    /// What they count together ([`Client::has_many_long_replies`]).
    pub(crate) long_bytes: u64,
    /// The number of its latest write that has begun.
    pub(crate) last_write_n: u64,
    /// Its replies that are read value by value. Until they have ended, no command of this client starts.
    pub(crate) one_by_ones: usize,
    /// The longest of the values that such a reply has asked for last, in bytes.
    pub(crate) element_bytes: usize,
    /// Which replies it wants (CLIENT REPLY).
    pub(crate) replies: Replies,
    /// How much of the next reply it sees, and what else is known of a client of the port of memcached.
    pub(crate) dialog: Dialog,
    /// Used only for a client of a peer.
    pub(crate) remote: Remote,
}

/// What is known of a peer's client.
#[derive(Debug)]
pub(crate) struct Remote {
    /// The incarnation of the forwarding peer.
    pub(crate) incarnation: Incarnation,
    /// The stream and epoch of the current command: the peer took this node for the owner of the stream at the epoch.
    pub(crate) stream: StreamId,
    pub(crate) epoch: Epoch,
    /// The value of the current command was sent ahead of it.
    pub(crate) staged: bool,
    /// The newest configuration that the peer was sent because of this client's commands, and when.
    pub(crate) told: Option<(ListId, Epoch, Time)>,
    /// The latest command that was refused because of its slots, while the peer has not shown that it knows.
    pub(crate) refused: Option<Refused>,
    /// Replies that are not released yet. Those to a client of this node are in its reply buffer.
    pub(crate) replies: Vec<u8>,
    /// Commands that have not started.
    pub(crate) parked: VecDeque<PeerCommand<'static>>,
}

/// A command of a peer's client that was refused because its slots belong to another stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    /// Its number, or that of the last one that was refused because it would have overtaken it.
    pub(crate) n: u64,
    /// The version of the slot map when it was refused.
    pub(crate) map: u64,
    /// When the last one was refused.
    pub(crate) at: Time,
}

impl Remote {
    /// A longer buffer is given back once its replies are sent: there is one for each client of each peer.
    const KEPT_BYTES_MAX: usize = 1024;

    /// Keeps replies that wait, or an empty buffer for the next ones.
    pub(crate) fn keep(&mut self, replies: Vec<u8>) {
        let is_spare = replies.is_empty() && replies.capacity() > Self::KEPT_BYTES_MAX;
        self.replies = if is_spare { Vec::new() } else { replies };
    }
}

impl Client {
    pub(crate) fn new(caller: Caller, port: Port, id: u64, since: Time) -> Self {
        Self {
            caller,
            port,
            dialect: match port {
                Port::Memcached => Dialect::Memcached,
                Port::Any | Port::Cluster => Dialect::default(),
            },
            database: 0,
            awaited: None,
            about: Box::new(About {
                id,
                last_command: "NULL",
                since,
                active_at: since,
                ..About::default()
            }),
            authenticated: true,
            wrong_capabilities: 0,
            segments: VecDeque::new(),
            next_n: 0,
            forwarded_bytes: 0,
            expected_bytes: 0,
            detours: 0,
            full: false,
            held: false,
            stalled: false,
            stalled_since: None,
            paused: false,
            closing: false,
            partial: None,
            functions: None,
            restored: None,
            transaction: None,
            staging: None,
            staged_in: Vec::new(),
            long_replies: 0,
            long_bytes: 0,
            last_write_n: 0,
            one_by_ones: 0,
            element_bytes: 0,
            replies: Replies::default(),
            dialog: Dialog::default(),
            remote: Remote {
                incarnation: Incarnation(0),
                stream: StreamId {
                    list: ListId(0),
                    x: Position(0),
                },
                epoch: Epoch(0),
                staged: false,
                told: None,
                refused: None,
                replies: Vec::new(),
                parked: VecDeque::new(),
            },
        }
    }

    /// Names its next command at this node.
    pub(crate) fn ticket<O: Out>(&self, cx: &Context<'_, O>) -> Ticket {
        let (node, incarnation, conn) = match self.caller {
            Caller::Local(conn) => (cx.shared.node, cx.shared.incarnation, conn),
            Caller::Remote(node, conn) => (node, self.remote.incarnation, conn),
        };
        Ticket {
            node,
            incarnation,
            conn,
            n: self.command_n(),
        }
    }

    /// Gives up a value that it has staged as `n`.
    pub(crate) fn unstage<O: Out>(&mut self, cx: &Context<'_, O>, lists: &mut Lists, n: u64) {
        let ticket = Ticket { n, ..self.ticket(cx) };
        for stream in &self.staged_in {
            if let Some((_, owner)) = lists.owner_mut(*stream) {
                owner.unstage(ticket);
            }
        }
    }

    /// Gives up all values that it has staged (P14.18).
    pub(crate) fn give_up_staged<O: Out>(&mut self, cx: &Context<'_, O>, lists: &mut Lists) {
        let ticket = self.ticket(cx);
        for stream in core::mem::take(&mut self.staged_in) {
            if let Some((_, owner)) = lists.owner_mut(stream) {
                owner.end_by_client(ticket);
            }
        }
    }

    /// A command that it has sent, to be run now.
    #[inline]
    pub(crate) fn job<'j, O: Out>(
        &self,
        cx: &Context<'_, O>,
        spec: &'static CommandSpec,
        args: ArgList<'j>,
        raw: &'j [u8],
    ) -> Job<'j> {
        Job {
            spec,
            args,
            raw,
            dialect: self.dialect,
            database: self.database,
            hash: None,
            ticket: self.ticket(cx),
            is_staged: false,
        }
    }

    /// Whether earlier commands keep its next one from starting. Then its own timeout does not run.
    pub(crate) fn is_behind_detours(&mut self) -> bool {
        if self.detours > 0 {
            self.stalled_since = None;
        }
        self.detours > 0
    }

    /// The number of the command that runs now.
    pub(crate) fn command_n(&self) -> u64 {
        self.staging.as_ref().map_or(self.next_n, |staging| staging.n)
    }

    /// Whether the value of the command that runs now was sent ahead of it.
    pub(crate) fn is_staged(&self) -> bool {
        self.staging.is_some() || self.remote.staged
    }

    /// Ends the use of that number by a command.
    pub(crate) fn take_command_n(&mut self) -> u64 {
        match &self.staging {
            Some(staging) => staging.n,
            None => self.take_n(),
        }
    }

    pub(crate) fn take_n(&mut self) -> u64 {
        let n = self.next_n;
        self.next_n += 1;
        n
    }

    /// Whether its commands are kept until EXEC.
    pub(crate) fn is_in_transaction(&self) -> bool {
        self.transaction
            .as_ref()
            .is_some_and(|transaction| transaction.is_open())
    }

    /// Updates what the driver reads of this client.
    pub(crate) fn show(&mut self, buffer: &mut ReplyBuf) {
        buffer.owes = !self.segments.is_empty();
        if !buffer.owes {
            // Unused capacity must not count towards the limit at which the driver closes clients.
            self.segments.shrink_to(PLACES_KEPT);
        }
        buffer.close |= self.closing && !buffer.owes;
        buffer.elsewhere_bytes = self.forwarded_bytes.saturating_sub(self.expected_bytes) + self.queue_bytes();
        buffer.no_evict = self.about.no_evict;
    }

    /// Charges a command that is sent, or is to be sent.
    pub(crate) fn charge(&mut self, forwarded: &Forwarded) {
        self.forwarded_bytes += forwarded.charge();
        self.expected_bytes += forwarded.reply_bytes;
    }

    /// Ends its connection: none of its replies is sent any more.
    pub(crate) fn drop_replies(&mut self) {
        self.segments.clear();
        (self.detours, self.long_replies, self.one_by_ones) = (0, 0, 0);
        self.long_bytes = 0;
        self.awaited = None;
        (self.forwarded_bytes, self.expected_bytes) = (0, 0);
        self.closing = true;
    }

    /// No later command starts before the newest one has its reply.
    pub(crate) fn await_newest(&mut self) {
        self.awaited = self.segments.back().map(|newest| newest.n);
    }

    /// Takes back the charge of an answered command.
    pub(crate) fn discharge(&mut self, forwarded: &Forwarded) {
        self.forwarded_bytes = self.forwarded_bytes.saturating_sub(forwarded.charge());
        self.expected_bytes = self.expected_bytes.saturating_sub(forwarded.reply_bytes);
    }

    /// Bytes of the queue, and of the arguments of an incomplete command.
    fn queue_bytes(&self) -> usize {
        let partial = self.partial.as_ref();
        let partial = partial.map_or(0, |args| size_of::<Args>() + args.held_bytes());
        let staging = self.staging.as_ref().map_or(0, |staging| staging.held_bytes());
        let transaction = self.transaction.as_ref();
        let transaction = transaction.map_or(0, |transaction| transaction.held_bytes());
        let restored = self.restored.as_ref().map_or(0, |restored| restored.held_bytes());
        partial + staging + transaction + restored + self.segments.capacity() * size_of::<Segment>()
    }

    /// Bytes of memory that it holds outside of this struct.
    pub(crate) fn held_bytes(&self) -> usize {
        let about = &self.about;
        let names = about.name.capacity() + about.library.capacity() + about.library_version.capacity();
        let waits = self.segments.iter().map(|segment| {
            let long = segment.long.as_ref();
            let long = long.map_or(0, |long| size_of::<LongValue>() + long.value.tail.capacity());
            segment.wait.held_bytes() + long
        });
        let parked = self.remote.parked.iter().map(|parked| parked.bytes.len());
        size_of::<About>()
            + names
            + self.queue_bytes()
            + waits.sum::<usize>()
            + self.remote.replies.capacity()
            + self.remote.parked.capacity() * size_of::<PeerCommand<'_>>()
            + self.staged_in.capacity() * size_of::<StreamId>()
            + parked.sum::<usize>()
    }

    /// Whether nothing is lost when a peer's client is forgotten. A refused command counts if it was refused later than
    /// `since`.
    pub(crate) fn is_idle(&self, since: Time) -> bool {
        let is_done = self.remote.refused.is_none_or(|refused| refused.at < since);
        self.segments.is_empty() && self.remote.parked.is_empty() && is_done
    }

    /// Numbers and streams of its commands that other nodes may have run: those answered, and writes that were sent. A
    /// command over several streams has no stream here, and the number of its first part that waits for an owner.
    pub(crate) fn may_have_run(&self) -> Vec<(u64, Option<StreamId>)> {
        let of = |segment: &Segment| match &segment.wait {
            Wait::Forwarded(forwarded) if !forwarded.write || forwarded.target.is_none() => None,
            Wait::Forwarded(forwarded) => Some((forwarded.n, Some(forwarded.stream))),
            Wait::Gathered(gather) => {
                let mut parts = gather.parts.iter().filter_map(|part| match &part.wait {
                    Wait::Forwarded(forwarded) => Some(forwarded.n),
                    _ => None,
                });
                Some((parts.next().unwrap_or(segment.n), None))
            }
            _ => segment.answered.map(|stream| (segment.n, Some(stream))),
        };
        self.segments.iter().filter_map(of).collect()
    }

    /// Its unanswered forwarded commands, in order.
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

/// A reply that the node of the client reads.
#[derive(Debug)]
pub(crate) struct LongValue {
    pub(crate) value: ValueRange,
    /// The stream, and the first epoch of the tenure of the owner that has run the command.
    pub(crate) owner: (StreamId, Epoch),
}

/// One command's reply.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) n: u64,
    /// Its length in bytes. They follow those of the segments before it.
    pub(crate) length: usize,
    pub(crate) wait: Wait,
    pub(crate) taken_again: TakenAgain,
    /// Of a client of a peer: the peer reads the reply.
    pub(crate) long: Option<Box<LongValue>>,
    /// It is an element of the array that has begun. An error can't take its place.
    pub(crate) is_element: bool,
    /// The stream of another node that has answered it.
    pub(crate) answered: Option<StreamId>,
    /// How much of it a client of memcached sees.
    pub(crate) shown: Shown,
}

/// A command at another node, or on its way there.
#[derive(Debug)]
pub(crate) struct Forwarded {
    pub(crate) n: u64,
    pub(crate) stream: StreamId,
    /// The version of the slot map by which its keys belong to that stream.
    pub(crate) map: u64,
    /// The owner that it was sent to; `None` while it is still to be sent.
    pub(crate) target: Option<Tenure>,
    pub(crate) write: bool,
    /// The database that it is about.
    pub(crate) database: u8,
    pub(crate) command: Vec<u8>,
    /// Bytes charged for its reply.
    pub(crate) reply_bytes: usize,
    pub(crate) since: Time,
    /// See [`Client::detours`].
    pub(crate) detour: bool,
    /// Its value was sent ahead of it.
    pub(crate) ahead: Option<super::ahead::Ahead>,
}

/// Bytes charged for the reply of a forwarded read, and for each key of an MGET: half of the longest value. It bounds
/// the replies on their way to a client that does not read them to a few megabytes.
const REPLY_CHARGE_BYTES: usize = 32 << 10;

impl Forwarded {
    /// Bytes charged while it is not answered.
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
    /// The ack of the deltas that it read, and leases (P4.1, P4.2).
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
    /// An answer of the coordinator or the process.
    Answer { since: Time },
    /// The bytes of a large value, which this node reads.
    Long(Box<Long>),
    /// The values of an MGET, which are read one by one.
    OneByOne(Box<OneByOne>),
    /// It is never answered: an element of an array could not be read, and the connection ends.
    Broken,
}

impl Wait {
    pub(crate) fn held_bytes(&self) -> usize {
        match self {
            Self::Forwarded(forwarded) => forwarded.command.capacity(),
            Self::Gathered(gather) => gather.held_bytes(),
            Self::Long(long) => long.held_bytes(),
            Self::OneByOne(one_by_one) => one_by_one.held_bytes(),
            _ => 0,
        }
    }
}
