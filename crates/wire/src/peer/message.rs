//! What the frames say (PROTOCOL 2.5). Their bytes: `encode.rs` and `decode.rs`, drawn in `docs/formats/peer.md`.

use super::kind;
use super::parts::{Deltas, Leases, Objects, Versions};
use paritas_base::configuration::{Configuration, Tenure};
use paritas_base::{ClusterId, ConnId, Incarnation, NodeId, Stripe, Term, Time, Version};

/// The first frame of a link, from both ends (PROTOCOL 2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The sender's cluster.
    pub cluster: ClusterId,
    /// The sender.
    pub node: NodeId,
    /// Its life.
    pub incarnation: Incarnation,
    /// Whom it means to speak to.
    pub to_node: NodeId,
    /// In which life.
    pub to_incarnation: Incarnation,
    /// Whether the link is for chunk transfers.
    pub bulk: bool,
    /// The lowest protocol version it speaks.
    pub version_low: u16,
    /// The highest.
    pub version_high: u16,
    /// Feature bits; unknown ones are ignored.
    pub features: u64,
    /// Grows with every link this dialer makes to this node; the acceptor repeats it.
    pub session: u64,
}

/// What a member or owner says of a chunk it was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChunkStatus {
    /// It cannot give the wanted version.
    None,
    /// Here it is; empty bytes mean all zeros.
    Here,
}

/// What became of an import (PROTOCOL 10.8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImportStatus {
    /// Every member has it.
    Done,
    /// There is no room for it.
    NoRoom,
    /// The receiver knows nothing of this attempt: begin another.
    Unknown,
}

/// A parity chunk as one member has it (PROTOCOL 5.7a).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parity<'a> {
    /// How far the member's log of the asking stream reaches.
    pub recv: u64,
    /// The term of that log.
    pub term: Term,
    /// Version of each data chunk that the bytes stand for.
    pub versions: Versions<'a>,
    /// Sum of the asking stream's data chunk.
    pub sum: u32,
    /// The chunk; empty means all zeros.
    pub bytes: &'a [u8],
}

/// A message between nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // Fields carry the names that PROTOCOL gives them.
pub enum Message<'a> {
    Hello(Hello),
    /// One atomic batch of changes (1.3).
    Delta {
        term: Term,
        seq: u64,
        acked: u64,
        stable: u64,
        extents: &'a [u8],
    },
    /// Cumulative; `lease_sent` is the `sent` of the newest frame that a lease was granted for, or 0 (4.3).
    Ack {
        term: Term,
        recv: u64,
        lease_sent: Time,
    },
    /// `acked` and `stable` without a delta (3.8).
    Stable {
        term: Term,
        acked: u64,
        stable: u64,
    },
    /// Deltas `base+1 ..= top` and the term they now belong to (3.9).
    Sync {
        term: Term,
        base: u64,
        top: u64,
        deltas: Deltas<'a>,
    },
    SyncAck {
        term: Term,
        recv: u64,
    },
    /// All stripes of the stream with a non-zero version at `as_of` (6.6, 6.7), as in `Directory`.
    Alloc {
        term: Term,
        as_of: u64,
        entries: &'a [u8],
    },
    LeaseRequest {
        streams: Leases<'a>,
    },
    /// `sent` repeats that of the request.
    Lease {
        sent: Time,
        streams: Leases<'a>,
    },
    Seal,
    /// 5.2. `known` is false where the member has never heard of the stream.
    SealReply {
        known: bool,
        term: Term,
        recv: u64,
        leases: &'a [u8],
        deltas: Deltas<'a>,
    },
    YieldQuery {
        tenure: Tenure,
    },
    Yielded {
        tenure: Tenure,
    },
    ReadDirectory {
        term: Term,
        at_least: u64,
    },
    /// 5.5. Pairs of stripe and version.
    Directory {
        term: Term,
        complete_for: u64,
        entries: &'a [u8],
    },
    ReadParity {
        id: u64,
        stripe: Stripe,
    },
    /// `None`: the stripe is not valid here.
    ParityValue {
        id: u64,
        stripe: Stripe,
        parity: Option<Parity<'a>>,
    },
    /// `want` is `None` for the latest.
    ReadChunk {
        id: u64,
        stripe: Stripe,
        want: Option<Version>,
    },
    ChunkValue {
        id: u64,
        stripe: Stripe,
        status: ChunkStatus,
        version: Version,
        sum: u32,
        as_of: u64,
        term: Term,
        /// The sum that `bytes` have, where nobody need walk them to know it: their sender has just done so, their
        /// receiver learns it from the frame's CRC. It is not sent; `sum` is what their owner keeps.
        found: Option<u32>,
        bytes: &'a [u8],
    },
    /// Send no new delta on this chunk for a moment (5.8).
    Hold {
        stripe: Stripe,
    },
    /// Ask for stripe ids below these ends (8.2).
    CreditRequest {
        term: Term,
        data_end: u32,
        index_end: u32,
    },
    /// Granted so far, and the window.
    Credit {
        term: Term,
        data_end: u32,
        index_end: u32,
        window_bytes: u64,
    },
    GetConfiguration,
    /// The sender's configuration, which is newer.
    Stale {
        configuration: Box<Configuration>,
    },
    /// A client's command for a stream of the receiver (SEAMS §4).
    Forward {
        conn: ConnId,
        n: u64,
        resp3: bool,
        command: &'a [u8],
    },
    Reply {
        conn: ConnId,
        n: u64,
        bytes: &'a [u8],
    },
    /// Objects of slots that the sender hands off to the stream in the header (10.8). `term` and `round` say which
    /// attempt of which owner; `n` counts from 0, which has none and makes ready.
    Import {
        version: u64,
        term: Term,
        round: u32,
        n: u32,
        objects: Objects<'a>,
    },
    /// Import `n` of that attempt is safe at the sender, or why not. Of no list's epoch: it stays true.
    Imported {
        version: u64,
        term: Term,
        round: u32,
        n: u32,
        status: ImportStatus,
    },
}

impl Message<'_> {
    /// The number in the header.
    pub fn kind(&self) -> u8 {
        match self {
            Self::Hello(_) => kind::HELLO,
            Self::Delta { .. } => kind::DELTA,
            Self::Ack { .. } => kind::ACK,
            Self::Stable { .. } => kind::STABLE,
            Self::Sync { .. } => kind::SYNC,
            Self::SyncAck { .. } => kind::SYNC_ACK,
            Self::Alloc { .. } => kind::ALLOC,
            Self::LeaseRequest { .. } => kind::LEASE_REQUEST,
            Self::Lease { .. } => kind::LEASE,
            Self::Seal => kind::SEAL,
            Self::SealReply { .. } => kind::SEAL_REPLY,
            Self::YieldQuery { .. } => kind::YIELD_QUERY,
            Self::Yielded { .. } => kind::YIELDED,
            Self::ReadDirectory { .. } => kind::READ_DIRECTORY,
            Self::Directory { .. } => kind::DIRECTORY,
            Self::ReadParity { .. } => kind::READ_PARITY,
            Self::ParityValue { .. } => kind::PARITY_VALUE,
            Self::ReadChunk { .. } => kind::READ_CHUNK,
            Self::ChunkValue { .. } => kind::CHUNK_VALUE,
            Self::Hold { .. } => kind::HOLD,
            Self::CreditRequest { .. } => kind::CREDIT_REQUEST,
            Self::Credit { .. } => kind::CREDIT,
            Self::GetConfiguration => kind::GET_CONFIGURATION,
            Self::Stale { .. } => kind::STALE,
            Self::Forward { .. } => kind::FORWARD,
            Self::Reply { .. } => kind::REPLY,
            Self::Import { .. } => kind::IMPORT,
            Self::Imported { .. } => kind::IMPORTED,
        }
    }
}
