//! How the other threads of a process speak with a shard: bounded queues, and a waker.

use mio::Waker;
use paritas_base::configuration::{Configuration, NodeRecord};
use paritas_base::{ConnId, NodeId};
use paritas_protocol::Proposal;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

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
    /// An answer to [`Proposal::Ask`].
    Answer {
        /// Who asked.
        conn: ConnId,
        /// Which question.
        n: u64,
        /// The reply.
        text: String,
    },
    /// End the loop.
    Stop,
}

/// The shard has not kept up; the letter was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MailboxFull;

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
        self.letters.try_send(mail).map_err(|_| MailboxFull)?;
        // A failed wake only delays the letter until the shard's next timer.
        let _ = self.waker.wake();
        Ok(())
    }
}

/// How far a shard's loop has come, for heartbeats: a stuck shard must be seen (PROTOCOL 10.2b).
#[derive(Clone, Default, Debug)]
pub struct Progress(Arc<AtomicU64>);

impl Progress {
    /// Turns of the loop so far.
    pub fn turns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn step(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
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
