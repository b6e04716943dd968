//! How the other threads of a process speak with a shard: bounded queues, and a waker.

use mio::Waker;
use paritas_base::configuration::{Configuration, NodeRecord, Tenure};
use paritas_base::{ConnId, ListId, NodeId, Position};
use paritas_protocol::{Answer, Halted, Proposal};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Letters that wait for a shard at most.
const MAIL_MAX: usize = 4_096;
/// Proposals that wait for the agent at most.
const PROPOSALS_MAX: usize = 4_096;

/// What other threads tell a shard.
#[derive(Debug)]
pub enum Mail {
    /// The coordinator's newest view of a list.
    Configuration(Configuration),
    /// The coordinator's newest view of all nodes, with the peer addresses that the sender could resolve: names are
    /// looked up on its thread, since a lookup blocks.
    Nodes {
        /// The records.
        records: Vec<NodeRecord>,
        /// Where to connect.
        peers: Vec<(NodeId, SocketAddr)>,
    },
    /// The coordinator asks the owner of a position to drain (PROTOCOL 5.12).
    Drain {
        /// The list.
        list: ListId,
        /// The position.
        position: Position,
        /// Whose it is.
        tenure: Tenure,
    },
    /// Silence of peers is told after this time from now on, in ms.
    Suspicion(u32),
    /// An answer to [`Proposal::Ask`].
    Answer {
        /// Who asked.
        conn: ConnId,
        /// Which question.
        n: u64,
        /// The answer.
        answer: Answer,
    },
    /// End the loop.
    Stop,
}

/// The shard has not kept up, or its thread has ended: the letter comes back.
#[derive(Debug)]
pub struct MailboxFull(pub Box<Mail>);

impl fmt::Display for MailboxFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the shard's mailbox is full or its thread has ended")
    }
}

impl std::error::Error for MailboxFull {}

/// Where other threads post letters for a shard.
#[derive(Clone, Debug)]
pub struct Mailbox {
    letters: SyncSender<Mail>,
    waker: Arc<Waker>,
}

impl Mailbox {
    /// Posts a letter and wakes the shard.
    pub fn post(&self, mail: Mail) -> Result<(), MailboxFull> {
        self.letters.try_send(mail).map_err(|error| match error {
            TrySendError::Full(mail) | TrySendError::Disconnected(mail) => MailboxFull(Box::new(mail)),
        })?;
        self.wake();
        Ok(())
    }

    /// Wakes the shard, for what has a queue of its own.
    pub fn wake(&self) {
        // A failed wake only delays the shard until its next timer.
        let _ = self.waker.wake();
    }
}

/// What a machine holds, in numbers.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Gauges {
    /// Objects that it owns.
    pub objects: u64,
    /// Bytes of their keys and values.
    pub user_bytes: u64,
    /// Memory by kind; together all there is.
    pub memory: Vec<(&'static str, u64)>,
    /// Bytes rebuilt of what was to rebuild.
    pub rebuild_done_bytes: u64,
    /// Bytes to rebuild, those done too.
    pub rebuild_total_bytes: u64,
    /// Chunks checked for wrong bytes, found wrong, put right again.
    pub scrub: [u64; 3],
    /// Roles that broke an invariant and have stopped.
    pub halted: Vec<Halted>,
    /// How late acks of each peer come, in microseconds.
    pub ack_us: Vec<(NodeId, u64)>,
    /// Of a log node: parity chunks on its disk, and how many there can be.
    pub log_chunks: Option<(u32, u32)>,
}

/// How far a shard has come, for heartbeats: a stuck one must be seen (PROTOCOL 10.2b).
#[derive(Clone, Default, Debug)]
pub struct Progress(Arc<Published>);

#[derive(Default, Debug)]
struct Published {
    turns: AtomicU64,
    gauges: Mutex<Gauges>,
}

impl Progress {
    /// Turns of the loop so far.
    pub fn turns(&self) -> u64 {
        self.0.turns.load(Ordering::Relaxed)
    }

    /// The machine's gauges of a moment ago.
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

/// What a shard asks of the coordinator, for the agent to carry.
pub type Proposals = Receiver<Proposal>;

/// The shard's ends of the queues.
#[derive(Debug)]
pub(crate) struct Desk {
    letters: Receiver<Mail>,
    proposals: SyncSender<Proposal>,
}

impl Desk {
    pub(crate) fn new(waker: Waker) -> (Self, Mailbox, Proposals) {
        let (letters_in, letters) = sync_channel(MAIL_MAX);
        let (proposals, proposals_out) = sync_channel(PROPOSALS_MAX);
        let mailbox = Mailbox {
            letters: letters_in,
            waker: Arc::new(waker),
        };
        (Self { letters, proposals }, mailbox, proposals_out)
    }

    pub(crate) fn next(&self) -> Option<Mail> {
        self.letters.try_recv().ok()
    }

    /// A proposal may be lost; the machine repeats what it needs.
    pub(crate) fn propose(&self, proposal: Proposal) {
        match self.proposals.try_send(proposal) {
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
    }
}

pub(crate) fn waker(poll: &mio::Poll, token: mio::Token) -> io::Result<Waker> {
    Waker::new(poll.registry(), token)
}
