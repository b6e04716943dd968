//! The one interface between the machines and whatever drives them (ARCHITECTURE.md): events go in, bytes and requests
//! come out. `io` drives it over sockets and real time, `simulator` over a seeded network.
//!
//! Nothing here waits, reads a clock or draws a random number. A driver calls `Node::on` of the front end for
//! each event of a turn, then drains every buffer with one write each.

use crate::mark::Mark;
use crate::replica::Opinions;
use core::net::SocketAddr;
use paritas_base::configuration::{ClusterRecord, Configuration, Duty, NodeRecord, Tenure};
use paritas_base::hash_slots::SlotOrder;
use paritas_base::{ConnId, Epoch, Incarnation, ListId, NodeId, Position, Time};
use paritas_paritylog::{Io, IoId, Outcome};

/// A transport link between two nodes, named by the driver and never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u64);

/// Two links join each pair of nodes, so that chunk transfers never delay an ack (P2.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Channel {
    /// Deltas, acks, leases, small reads, forwarded commands.
    Main,
    /// Chunk transfers.
    Bulk,
}

/// Which of a node's two client ports a client came by (docs/commands.md).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Port {
    /// Every key is accepted: a command for another node's keys is forwarded to their owner.
    Any,
    /// Only keys of this node are accepted: a command for another node's keys is answered with the address of their
    /// owner.
    Cluster,
}

/// The addresses of both ends of a client's connection. A front end lists clients, and closes them, by address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends {
    /// The client's own.
    pub client: SocketAddr,
    /// The one it has connected to.
    pub server: SocketAddr,
}

/// What happens to a node.
#[derive(Debug)]
pub enum Event<'a> {
    /// `next_deadline` has passed, or the driver woke for no other reason.
    Timer,
    /// The driver has no more events for this turn and writes next. Acks and deltas of the turn leave now, one of
    /// each per stream, and replies whose conditions hold are released.
    TurnEnd,
    /// A link is up. `dialed` names whom this node called; `None` if it was called.
    LinkUp {
        /// The new link.
        link: LinkId,
        /// Whom this node dialed, and for what.
        dialed: Option<(NodeId, Channel)>,
    },
    /// A dial came to nothing.
    DialFailed {
        /// Whom.
        node: NodeId,
        /// For what.
        channel: Channel,
    },
    /// A link has ended. The driver says so once for every link it named, those that the machine closed too.
    LinkDown {
        /// Which.
        link: LinkId,
    },
    /// One whole frame, its length and CRC already checked by `wire::peer::split`.
    Frame {
        /// The link it came by.
        link: LinkId,
        /// The frame.
        bytes: &'a [u8],
    },
    /// The coordinator's newest view of a list.
    Configuration(&'a Configuration),
    /// The coordinator's newest view of all nodes.
    Nodes(&'a [NodeRecord]),
    /// The coordinator wants to give this position to another node: its owner is to finish what it has begun
    /// (P5.12), and to say so with [`Proposal::Drained`].
    Drain {
        /// The list.
        list: ListId,
        /// The position in it.
        position: Position,
        /// Whose it is.
        tenure: Tenure,
    },
    /// Silence of peers is told to the coordinator after this time from now on (P10.9).
    Suspicion {
        /// In ms.
        ms: u32,
    },
    /// A client has connected.
    ClientUp {
        /// Its connection.
        conn: ConnId,
        /// The port it came by.
        port: Port,
        /// Its addresses.
        ends: Ends,
    },
    /// Bytes a client sent that are not consumed yet, from the first one on. The driver gives the same bytes (and
    /// more) again until they are consumed: see [`ReplyBuf::consumed`] and [`ReplyBuf::stalled`].
    Client {
        /// Its connection.
        conn: ConnId,
        /// All input not yet consumed.
        bytes: &'a [u8],
    },
    /// A client has gone.
    ClientDown {
        /// Its connection.
        conn: ConnId,
    },
    /// The answer to a question that a client has asked by a [`Proposal`] with `conn` and `n`.
    Answer {
        /// Whom it is for.
        conn: ConnId,
        /// Which question.
        n: u64,
        /// The answer.
        answer: &'a Answer,
    },
    /// The disk has done what [`Out::disk`] asked for, or could not.
    Disk {
        /// Of the [`Io`].
        id: IoId,
        /// What was read; nothing of what was written.
        outcome: Outcome,
    },
}

/// What a machine asks of the coordinator, by way of the process's agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proposal {
    /// This position is whole: make it `Live` (P5.6, P6.5). Repeated until a configuration says so.
    AskLive {
        /// The list.
        list: ListId,
        /// The position in it.
        position: Position,
        /// Who asks; the change is void if the tenure is another by then.
        tenure: Tenure,
    },
    /// A peer owes acks for too long (P10.2).
    ReportSilent {
        /// The peer.
        node: NodeId,
        /// The incarnation that is silent.
        incarnation: Incarnation,
    },
    /// Which peers this node hears (P10.9): all of it, whenever something of it changes.
    Opinions(Opinions),
    /// Somebody has seen a newer configuration of this list, and its sender is gone (P2.2). Or the history of a
    /// newer one does not reach back to the installed one (P10.14).
    GetConfiguration {
        /// The list.
        list: ListId,
        /// Epoch and id of what is installed; the answer's history is to reach back to it.
        installed: Option<(Epoch, u64)>,
    },
    /// This configuration came from a peer, and is installed: the coordinator's must be in one history with it
    /// (P10.14), and a coordinator whose store is lost asks for it.
    Installed(Box<Configuration>),
    /// Every write of this position is acknowledged, and no other begins for a while: it may be given away (P5.12).
    Drained {
        /// The list.
        list: ListId,
        /// The position in it.
        position: Position,
        /// Who has drained; void if the tenure is another by then.
        tenure: Tenure,
    },
    /// The source of a hand-off of slots has brought them to their new owner (P10.8): the map may change. Or
    /// there is no room for them. Repeated until a configuration says what has become of it.
    HandOff {
        /// Which hand-off.
        version: u64,
        /// The last of its slots that is there; `None`: it is given up.
        last: Option<u16>,
        /// The source's tenure.
        from: Tenure,
        /// That of the owner that has taken them in; void if either is another by then.
        to: Tenure,
    },
    /// A client asks for the status of the cluster, which only the coordinator knows.
    Ask {
        /// The client.
        conn: ConnId,
        /// Which question; comes back in [`Event::Answer`].
        n: u64,
    },
    /// A client sets the duty of a node. The answer is [`Answer::Done`] or [`Answer::Refused`].
    SetDuty {
        /// The client.
        conn: ConnId,
        /// As in [`Proposal::Ask`].
        n: u64,
        /// Which node.
        node: NodeId,
        /// What is wanted of it.
        duty: Duty,
    },
    /// A client orders a move of hash slots. The answer is [`Answer::Done`] or [`Answer::Refused`].
    MoveSlots {
        /// The client.
        conn: ConnId,
        /// As in [`Proposal::Ask`].
        n: u64,
        /// Which, and where to.
        order: SlotOrder,
    },
    /// A client orders that settings changed while the node ran are written to its file. The answer is
    /// [`Answer::Done`] or [`Answer::Refused`].
    Rewrite {
        /// The client.
        conn: ConnId,
        /// As in [`Proposal::Ask`].
        n: u64,
        /// Keys of the file, and their values as it has them.
        settings: Vec<(&'static str, String)>,
    },
}

/// What the coordinator or the process answers to a client's question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// What was asked for is done.
    Done,
    /// A text.
    Text(String),
    /// It is not done, and why.
    Refused(String),
}

/// A broken invariant: the role of the node in that list must not go on (P3.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HaltReason(pub String);

/// Frames on their way to a peer. The machine appends whole frames; the driver writes and removes them.
#[derive(Default, Debug)]
pub struct FrameBuf {
    /// Whole frames, as they go on the wire.
    pub bytes: Vec<u8>,
    /// The earliest instant at which something in the bytes *appended this turn* stops being true. Tested by the
    /// driver with a fresh clock just before it writes; past it, this turn's bytes are dropped and the link is
    /// closed (P4.2). The driver clears it after the test.
    pub deadline: Option<Time>,
    /// Bytes of earlier turns that the link has not taken yet, for the machine to see; the driver keeps it.
    pub waiting: usize,
}

/// Replies on their way to a client.
///
/// The machine appends each reply when it executes the command and releases it when it may be seen: the driver
/// writes only the first `released` bytes, removes them, and subtracts their count from `released`.
#[derive(Default, Debug)]
pub struct ReplyBuf {
    /// Encoded replies in command order; those past `released` wait for acks or leases.
    pub bytes: Vec<u8>,
    /// How many of `bytes` may be written.
    pub released: usize,
    /// As in [`FrameBuf::deadline`], for the bytes released this turn.
    pub deadline: Option<Time>,
    /// Set by the machine while it handles [`Event::Client`]: how much of the input it is done with. The driver
    /// removes that much and sets it to 0.
    pub consumed: usize,
    /// The next command cannot start yet, or this client has had its share of the turn. The driver reads no more from
    /// it and sends no [`Event::Client`] until the machine clears it; then it sends one at once if any input is left.
    pub stalled: bool,
    /// Replies to commands that were taken are still to come, though nothing of them may be in `bytes` yet.
    pub owes: bool,
    /// Close the connection once the released bytes are written.
    pub close: bool,
    /// Bytes that the machine holds for the client beside these.
    pub elsewhere_bytes: usize,
    /// The client asked not to be closed when all clients together hold too much memory.
    pub no_evict: bool,
}

/// What a driver offers its machine. Every method returns at once.
pub trait Out {
    /// Where frames for a peer go; `None` while no session with it is bound on that channel.
    fn peer(&mut self, node: NodeId, channel: Channel) -> Option<&mut FrameBuf>;
    /// Where frames of a link go that is not bound yet (the handshake); `None` if the link has ended.
    fn link(&mut self, link: LinkId) -> Option<&mut FrameBuf>;
    /// Connect to a node's peer address. Answered by `LinkUp` or `DialFailed`.
    fn dial(&mut self, node: NodeId, channel: Channel);
    /// The handshake is done: frames for (node, channel) leave by this link. A link bound there before is closed
    /// first, and nothing more is read from it.
    fn bind(&mut self, link: LinkId, node: NodeId, channel: Channel);
    /// End a link at once, dropping what it has not read or written.
    fn close(&mut self, link: LinkId);
    /// A client's replies; `None` if it has gone.
    fn client(&mut self, conn: ConnId) -> Option<&mut ReplyBuf>;
    /// Ask the coordinator. May be lost; the machine repeats what it needs.
    fn propose(&mut self, proposal: Proposal);
    /// Read or write the disk of the node's log, in whatever order. Answered by [`Event::Disk`].
    fn disk(&mut self, io: Io);
    /// A broken invariant. The driver says so as loudly as it can. The role in question is over; the node's other
    /// roles go on, and [`Replica::halted`](crate::Replica::halted) names it from now on.
    fn halt(&mut self, reason: HaltReason);
    /// A rare situation has come about. Only the simulator counts them.
    #[inline(always)]
    fn mark(&mut self, _mark: Mark) {}
}

/// What a node is told once, before its first event.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Which node it is.
    pub node: NodeId,
    /// This incarnation.
    pub incarnation: Incarnation,
    /// The cluster, as registered.
    pub cluster: ClusterRecord,
    /// Seed for jitter.
    pub seed: u64,
    /// Bytes of memory for everything.
    pub maxmemory_bytes: u64,
}
