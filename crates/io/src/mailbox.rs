//! How the other threads of a process communicate with a shard: bounded queues, and a waker.

use mio::Waker;
use paritas_base::configuration::{Configuration, NodeRecord, Tenure};
use paritas_base::{ConnId, ListId, NodeId, Position};
use paritas_protocol::{Answer, Fill, Halted, Proposal};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Most messages that wait for a shard.
const MAIL_MAX: usize = 4_096;
/// Most proposals that wait for the agent.
const PROPOSALS_MAX: usize = 4_096;

/// A message from another thread to a shard.
#[derive(Debug)]
pub enum Mail {
    /// The coordinator's latest configuration of a list.
    Configuration(Configuration),
    /// The coordinator's latest records of all nodes, with the peer addresses that the sender could resolve. Names are
    /// resolved on the sender's thread, because a lookup blocks.
    Nodes {
        /// The records.
        records: Vec<NodeRecord>,
        /// The peer address of each node.
        peers: Vec<(NodeId, SocketAddr)>,
    },
    /// The coordinator asks the owner of a position to drain (P5.12).
    Drain {
        /// The list.
        list: ListId,
        /// The position.
        position: Position,
        /// The tenure that is asked to drain.
        tenure: Tenure,
    },
    /// Time without a message after which a peer is reported as silent, in ms.
    Suspicion(u32),
    /// The active version of formats.
    ActiveVersion(u16),
    /// An answer to [`Proposal::Ask`].
    Answer {
        /// The connection that asked.
        conn: ConnId,
        /// The number of the question.
        n: u64,
        /// The answer.
        answer: Answer,
    },
    /// Ends the loop.
    Stop,
}

/// The shard's mailbox is full, or its thread has ended. The message is returned.
#[derive(Debug)]
pub struct MailboxFull(pub Box<Mail>);

impl fmt::Display for MailboxFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the shard's mailbox is full or its thread has ended")
    }
}

impl std::error::Error for MailboxFull {}

/// Posts messages of other threads to a shard.
#[derive(Clone, Debug)]
pub struct Mailbox {
    messages: SyncSender<Mail>,
    waker: Arc<Waker>,
}

impl Mailbox {
    /// Posts a message and wakes the shard.
    pub fn post(&self, mail: Mail) -> Result<(), MailboxFull> {
        self.messages.try_send(mail).map_err(|error| match error {
            TrySendError::Full(mail) | TrySendError::Disconnected(mail) => MailboxFull(Box::new(mail)),
        })?;
        self.wake();
        Ok(())
    }

    /// Wakes the shard, for messages that come through another queue.
    pub fn wake(&self) {
        // If the wake fails, the shard is only delayed until its next timer.
        let _ = self.waker.wake();
    }
}

/// Gauges of a machine.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Gauges {
    /// Number of objects that it owns.
    pub objects: u64,
    /// Bytes of keys and values of these objects.
    pub user_bytes: u64,
    /// Bytes of memory by kind. The kinds add up to all memory.
    pub memory: Vec<(&'static str, u64)>,
    /// Bytes rebuilt so far.
    pub rebuild_done_bytes: u64,
    /// Bytes to be rebuilt in all, including those already rebuilt.
    pub rebuild_total_bytes: u64,
    /// Number of chunks checked by the scrub, found wrong, and repaired.
    pub scrub: [u64; 3],
    /// Roles that have halted because an invariant was broken.
    pub halted: Vec<Halted>,
    /// Delay of each peer's acks, in microseconds.
    pub ack_us: Vec<(NodeId, u64)>,
    /// Errors that clients of memcached have not seen because of `noreply`.
    pub silenced_errors: u64,
    /// How full the memory is.
    pub fill: Fill,
    /// Of a log node: number of parity chunks on its disk, and the most that fit.
    pub log_chunks: Option<(u32, u32)>,
}

/// The progress of a shard, for heartbeats: a shard that is stuck must be noticed (P10.2b).
#[derive(Clone, Default, Debug)]
pub struct Progress(Arc<Published>);

#[derive(Default, Debug)]
struct Published {
    turns: AtomicU64,
    gauges: Mutex<Gauges>,
}

impl Progress {
    /// Number of turns of the loop so far.
    pub fn turns(&self) -> u64 {
        self.0.turns.load(Ordering::Relaxed)
    }

    /// The machine's latest gauges.
    pub fn gauges(&self) -> Gauges {
        self.0.gauges.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn step(&self) {
        self.0.turns.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn publish(&self, gauges: Gauges) {
        *self.0.gauges.lock().unwrap_or_else(PoisonError::into_inner) = gauges;
    }
}

/// Proposals of a shard to the coordinator, which the agent forwards.
pub type Proposals = Receiver<Proposal>;

/// The shard's ends of the queues.
#[derive(Debug)]
pub(crate) struct AgentPort {
    messages: Receiver<Mail>,
    proposals: SyncSender<Proposal>,
}

impl AgentPort {
    pub(crate) fn new(waker: Waker) -> (Self, Mailbox, Proposals) {
        let (messages_in, messages) = sync_channel(MAIL_MAX);
        let (proposals, proposals_out) = sync_channel(PROPOSALS_MAX);
        let mailbox = Mailbox {
            messages: messages_in,
            waker: Arc::new(waker),
        };
        (Self { messages, proposals }, mailbox, proposals_out)
    }

    pub(crate) fn next(&self) -> Option<Mail> {
        self.messages.try_recv().ok()
    }

    /// Queues a proposal for the agent. It may be lost; the machine repeats a proposal that it still needs.
    pub(crate) fn propose(&self, proposal: Proposal) {
        match self.proposals.try_send(proposal) {
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
    }
}

pub(crate) fn waker(poll: &mio::Poll, token: mio::Token) -> io::Result<Waker> {
    Waker::new(poll.registry(), token)
}
