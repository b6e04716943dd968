//! The interface between a node and its driver (ARCHITECTURE.md): events go in, bytes and requests come out. `io`
//! drives it over sockets and real time, `simulator` over a seeded network.
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

/// Which of a node's client ports a client came by (docs/commands.md).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Port {
    /// Every key is accepted: a command for another node's keys is forwarded to their owner.
    Any,
    /// Only keys of this node are accepted: a command for another node's keys is answered with the address of their
    /// owner.
    Cluster,
    /// The protocol of memcached, with every key (docs/memcached.md).
    Memcached,
}

/// The addresses of both ends of a client's connection. A front end lists clients, and closes them, by address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends {
    /// The address of the client.
    pub client: SocketAddr,
    /// The address of the node.
    pub server: SocketAddr,
}

/// An event that a driver hands to a node.
#[derive(Debug)]
pub enum Event<'a> {
    /// `next_deadline` has passed, or the driver woke for no other reason.
    Timer,
    /// The driver has no more events for this turn and writes next. Acks and deltas of the turn leave now, one of
    /// each per stream, and replies whose conditions hold are released.
    TurnEnd,
    /// A link is up, and both ends have proven who they are (P2.9). `dialed`: the peer, if this node dialed; `None` if
    /// the peer did.
    LinkUp {
        /// The new link.
        link: LinkId,
        /// The process at the other end.
        from: (NodeId, Incarnation),
        /// The peer that this node dialed, and the channel.
        dialed: Option<(NodeId, Channel)>,
    },
    /// A dial failed.
    DialFailed {
        /// The peer that was dialed.
        node: NodeId,
        /// The channel that it was dialed for.
        channel: Channel,
    },
    /// A link has ended. The driver reports it once for every link, also if the node closed it.
    LinkDown {
        /// The link.
        link: LinkId,
    },
    /// One whole frame, its length and CRC already checked by `wire::peer::split`.
    Frame {
        /// The link that it was received by.
        link: LinkId,
        /// The frame.
        bytes: &'a [u8],
    },
    /// The coordinator's newest configuration of a list.
    Configuration(&'a Configuration),
    /// The coordinator's newest records of all nodes.
    Nodes(&'a [NodeRecord]),
    /// The coordinator wants to give this position to another node. Its owner must finish the writes that it has begun
    /// (P5.12), and report that with [`Proposal::Drained`].
    Drain {
        /// The list.
        list: ListId,
        /// The position in it.
        position: Position,
        /// The tenure that is asked.
        tenure: Tenure,
    },
    /// Changes the time after which silent peers are reported to the coordinator (P10.9).
    Suspicion {
        /// The time, in milliseconds.
        ms: u32,
    },
    /// This version of formats is active in the cluster's record (docs/formats/sections.md). It never falls.
    ActiveVersion(u16),
    /// A client has connected.
    ClientUp {
        /// Its connection.
        conn: ConnId,
        /// The port that it connected to.
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
        /// The client that asked.
        conn: ConnId,
        /// The number of the question.
        n: u64,
        /// The answer.
        answer: &'a Answer,
    },
    /// An I/O that [`Out::disk`] asked for has ended, or failed.
    Disk {
        /// The id of the [`Io`].
        id: IoId,
        /// The result: of a read, with the bytes.
        outcome: Outcome,
    },
}

/// What the driver measures of its process, a few times a second. All 0 where the system does not say.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct ProcessFigures {
    /// Bytes of the buffers of sockets.
    pub sockets_bytes: u64,
    /// Bytes of memory that the process has (VmRSS).
    pub resident_bytes: u64,
    /// The most that it had since it was measured before.
    pub peak_bytes: u64,
    /// Those of the resident ones that no gauge counts: code, stacks, and what the allocator keeps. They are part of
    /// the memory that the node may use (P8.3).
    pub beside_bytes: u64,
    /// Time of the processor in its own code, in microseconds.
    pub user_cpu_us: u64,
    /// Time of the processor in the system, in microseconds.
    pub system_cpu_us: u64,
    /// Connections of clients that were refused.
    pub refused_clients: u64,
}

/// A message of a node to the coordinator, or to its own process. The process's agent forwards it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proposal {
    /// This position is whole: make it `Live` (P5.6, P6.5). Repeated until a configuration says so.
    AskLive {
        /// The list.
        list: ListId,
        /// The position in it.
        position: Position,
        /// The tenure that asks. The change is void if the position has another tenure by then.
        tenure: Tenure,
    },
    /// A peer's acks are overdue (P10.2).
    ReportSilent {
        /// The peer.
        node: NodeId,
        /// The incarnation that is silent.
        incarnation: Incarnation,
    },
    /// The peers that this node hears (P10.9): the full list, whenever it changes.
    Opinions(Opinions),
    /// Asks for the newest configuration of this list. A peer knows a newer one and cannot be asked (P2.2), or the
    /// history of a newer one does not reach back to the installed one (P10.14).
    GetConfiguration {
        /// The list.
        list: ListId,
        /// Epoch and id of the installed configuration. The history in the answer must reach back to it.
        installed: Option<(Epoch, u64)>,
    },
    /// This configuration was received from a peer and installed. The coordinator's configurations must be in one
    /// history with it (P10.14), and a coordinator whose store is lost asks for it.
    Installed(Box<Configuration>),
    /// A peer has sent what only this version has. So that one is active, and a coordinator whose store is an old copy
    /// has to know it.
    ActiveVersion(u16),
    /// Every write of this position is acknowledged, and none begins for a limited time: the coordinator may give the
    /// position to another node (P5.12).
    Drained {
        /// The list.
        list: ListId,
        /// The position in it.
        position: Position,
        /// The tenure that has drained. The report is void if the position has another tenure by then.
        tenure: Tenure,
    },
    /// The source of a hand-off has copied the keys of its slots to their new owner, so that the slot map may change
    /// (P10.8). Or the new owner has no memory for them. Repeated until a configuration completes or ends the hand-off.
    HandOff {
        /// The version of the slot map that names the hand-off.
        version: u64,
        /// The last slot that was copied; `None`: the hand-off is given up.
        last: Option<u16>,
        /// The source's tenure.
        from: Tenure,
        /// The tenure of the new owner. The proposal is void if either tenure has changed by then.
        to: Tenure,
    },
    /// A client asks for the status of the cluster, which only the coordinator knows.
    Ask {
        /// The client.
        conn: ConnId,
        /// The number of the question. [`Event::Answer`] repeats it.
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
    /// A client orders that settings changed while the node ran are written to the settings file. The answer is
    /// [`Answer::Done`] or [`Answer::Refused`].
    Rewrite {
        /// The client.
        conn: ConnId,
        /// As in [`Proposal::Ask`].
        n: u64,
        /// Keys of the file, each with its value in the syntax of the file.
        settings: Vec<(&'static str, String)>,
    },
}

/// The answer of the coordinator, or of the process, to a client's question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The order was carried out.
    Done,
    /// A text.
    Text(String),
    /// The order was refused, for this reason.
    Refused(String),
}

/// A broken invariant. The role that broke it has ended (P3.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HaltReason(pub String);

/// Frames on their way to a peer. The machine appends whole frames; the driver writes and removes them.
#[derive(Default, Debug)]
pub struct FrameBuf {
    /// Whole frames, as they go on the wire.
    pub bytes: Vec<u8>,
    /// Deadline for sending the bytes *appended this turn*: something in them stops being true then (P4.2). The driver
    /// reads the clock just before it writes. If the deadline has passed, it drops this turn's bytes and closes the
    /// link. It clears the deadline after the test.
    pub deadline: Option<Time>,
    /// Bytes of earlier turns that the link has not taken yet. The driver sets it for the node to read.
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
    /// Released bytes that the connection has not taken yet, beside `bytes`. The driver sets it for the node to read.
    pub waiting: usize,
    /// Commands of the client are still without a complete reply, even if `bytes` is empty.
    pub owes: bool,
    /// Close the connection once the released bytes are written.
    pub close: bool,
    /// Memory that the node uses for the client beside this buffer, in bytes.
    pub elsewhere_bytes: usize,
    /// The client asked not to be closed when all clients together hold too much memory.
    pub no_evict: bool,
}

/// What a driver offers its node. Every method returns at once.
pub trait Out {
    /// The buffer for frames to a peer; `None` while no session with it is bound on that channel.
    fn peer(&mut self, node: NodeId, channel: Channel) -> Option<&mut FrameBuf>;
    /// The buffer for frames of a link that is not bound yet (the handshake); `None` if the link has ended.
    fn link(&mut self, link: LinkId) -> Option<&mut FrameBuf>;
    /// Connect to a node's peer address. Answered by `LinkUp` or `DialFailed`.
    fn dial(&mut self, node: NodeId, channel: Channel);
    /// The handshake is done: frames for (node, channel) leave by this link. A link bound there before is closed
    /// first, and nothing more is read from it.
    fn bind(&mut self, link: LinkId, node: NodeId, channel: Channel);
    /// End a link at once, dropping what it has not read or written.
    fn close(&mut self, link: LinkId);
    /// The same, of a link whose handshake is refused. The driver knows whom the log is to name.
    fn refuse(&mut self, link: LinkId, why: &'static str) {
        let _ = why;
        self.close(link);
    }
    /// A client's replies; `None` if it has gone.
    fn client(&mut self, conn: ConnId) -> Option<&mut ReplyBuf>;
    /// Send a proposal. It may be lost; the node repeats proposals that must arrive.
    fn propose(&mut self, proposal: Proposal);
    /// Read or write the disk of the node's log, in whatever order. Answered by [`Event::Disk`].
    fn disk(&mut self, io: Io);
    /// Report a broken invariant, as visibly as possible. The role has ended. The node's other roles go on, and
    /// [`Replica::halted`](crate::Replica::halted) names the ended role from now on.
    fn halt(&mut self, reason: HaltReason);
    /// A rare situation has occurred. Only the simulator counts them.
    #[inline(always)]
    fn mark(&mut self, _mark: Mark) {}
}

/// What a node must know before its first event.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The id of the node.
    pub node: NodeId,
    /// This incarnation.
    pub incarnation: Incarnation,
    /// The cluster, as registered.
    pub cluster: ClusterRecord,
    /// Seed for jitter.
    pub seed: u64,
    /// The memory for everything, in bytes.
    pub maxmemory_bytes: u64,
}
