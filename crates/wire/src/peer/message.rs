//! Contents of the frames (P2.5). Their bytes: `encode.rs` and `decode.rs`, described in
//! `docs/formats/peer.md`.

use super::kind;
use super::parts::{AliveGroups, Deltas, Groups, Leases, Objects, PartName, Versions};
use paritas_base::configuration::{Configuration, Tenure};
use paritas_base::{ClusterId, ConnId, Incarnation, NodeId, Position, Stripe, Term, Time, Version};

/// The first frame on a link, sent by both ends (P2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The sender's cluster.
    pub cluster: ClusterId,
    /// The sender's node id.
    pub node: NodeId,
    /// The sender's incarnation.
    pub incarnation: Incarnation,
    /// The node that the sender wants to reach.
    pub to_node: NodeId,
    /// The incarnation that the sender wants to reach.
    pub to_incarnation: Incarnation,
    /// Whether the link is for bulk transfers of chunks.
    pub bulk: bool,
    /// The lowest protocol version that the sender speaks.
    pub version_low: u16,
    /// The highest protocol version that the sender speaks.
    pub version_high: u16,
    /// Feature bits. Unknown ones are ignored.
    pub features: u64,
    /// Number of the link. It grows with every link that this dialer makes to this node; the acceptor repeats it.
    pub session: u64,
}

/// Whether a node has the chunk that it was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChunkStatus {
    /// It does not have the wanted version.
    None,
    /// It has it. Empty bytes mean a chunk of zeros.
    Here,
}

/// How far a value is that is sent ahead of its command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StageState {
    /// Further bytes are wanted.
    Open,
    /// No more bytes are wanted: the command will tell why.
    Over,
    /// The receiver does not own the stream, or not yet: nothing of the value was taken.
    NotOwner,
    /// No more bytes are wanted: a holder has no memory for its part.
    NoMemory,
    /// The whole value is here, and so is its command.
    Running,
}

/// The result of an import (P10.8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImportStatus {
    /// Every member has acknowledged it.
    Done,
    /// The receiver has no memory for it.
    NoRoom,
    /// The receiver does not know this attempt, or not a value of it: the sender must begin another.
    Unknown,
    /// The whole body is there already.
    Kept,
}

/// How far a part of a large value is at its holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartState {
    /// It is open and has this many units.
    Open(u32),
    /// It has taken one more unit, and has this many.
    Taken(u32),
    /// It is whole. This is its check.
    Kept(u32),
    /// It is being made.
    Making,
    /// The holder gave it up: there was no memory for a unit.
    Broken,
    /// There is no memory for it.
    NoRoom,
    /// There is no memory for it, and the holder is not Live yet: the value does without it for now.
    Declined,
    /// The holder's position has no such part.
    Unknown,
}

/// A parity chunk as held by one member (P5.7a).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parity<'a> {
    /// Highest sequence number in the member's log of the asking stream.
    pub recv: u64,
    /// The term of that log.
    pub term: Term,
    /// The version of each data chunk that the bytes stand for.
    pub versions: Versions<'a>,
    /// Sum of the asking stream's data chunk at its version.
    pub sum: u32,
    /// The bytes of the chunk. Empty means all zeros.
    pub bytes: &'a [u8],
}

/// A message between nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // Fields have the names used in docs/protocol.md.
pub enum Message<'a> {
    Hello(Hello),
    /// One atomic batch of changes (P1.3). `sent` is the sender's monotonic clock; leases are counted from it (P4.3).
    Delta {
        term: Term,
        seq: u64,
        sent: Time,
        stable: u64,
        extents: &'a [u8],
    },
    /// Acknowledges all deltas up to a number. `lease_sent` is the `sent` of the newest `Delta` for which a lease was
    /// granted, or 0 (P4.3).
    Ack {
        term: Term,
        recv: u64,
        lease_sent: Time,
    },
    /// `stable` of a stream, sent without a delta (P3.8).
    Stable {
        term: Term,
        stable: u64,
    },
    /// The deltas `base+1 ..= top`, and the term that they belong to from now on (P3.9).
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
    /// All stripes of the stream with a non-zero version at `as_of` (P6.6, P6.7), encoded as in `Directory`.
    Alloc {
        term: Term,
        as_of: u64,
        entries: &'a [u8],
    },
    LeaseRequest {
        sent: Time,
        streams: Leases<'a>,
    },
    /// Grants leases. `sent` repeats that of the request.
    Lease {
        sent: Time,
        streams: Leases<'a>,
    },
    Seal,
    /// Answers `Seal` (P5.2). `known` is false if the member knows nothing of the stream.
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
    /// The stripes of a stream, as pairs of stripe and version (P5.5).
    Directory {
        term: Term,
        complete_for: u64,
        entries: &'a [u8],
    },
    ReadParity {
        id: u64,
        stripe: Stripe,
    },
    /// Answers a request for a parity chunk. `None`: the stripe is not valid at this member.
    ParityValue {
        id: u64,
        stripe: Stripe,
        parity: Option<Parity<'a>>,
    },
    /// Asks for a data chunk. `want` is its version, or `None` for the latest.
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
        /// The sum of `bytes` as found, if it is known without reading them: their sender has just computed it, and
        /// their receiver derives it from the frame's CRC. It is not sent. `sum` is the one that their owner keeps.
        found: Option<u32>,
        bytes: &'a [u8],
    },
    /// Asks the owner to send no new delta on this chunk for a short time (P5.8).
    Hold {
        stripe: Stripe,
    },
    /// Asks for credit: stripe numbers below these ends (P8.2).
    CreditRequest {
        term: Term,
        data_end: u32,
        index_end: u32,
    },
    /// The credit granted so far, and the window in bytes.
    Credit {
        term: Term,
        data_end: u32,
        index_end: u32,
        window_bytes: u64,
    },
    GetConfiguration,
    /// The sender's configuration, which is newer than the receiver's.
    Stale {
        configuration: Box<Configuration>,
    },
    /// A client's command for a stream that the receiver owns (docs/commands.md).
    Forward {
        conn: ConnId,
        n: u64,
        /// One of [`super::dialect`].
        dialect: u8,
        /// That of the client: 0 to 15.
        database: u8,
        command: &'a [u8],
    },
    Reply {
        conn: ConnId,
        n: u64,
        bytes: &'a [u8],
    },
    /// Objects of hash slots that the sender hands off to the stream in the header (P10.8). `term` and `round` identify
    /// the attempt and its owner. `n` counts the imports of an attempt from 0; number 0 carries no objects and prepares
    /// the receiver.
    Import {
        version: u64,
        term: Term,
        round: u32,
        n: u32,
        objects: Objects<'a>,
    },
    /// As import `n` of that attempt, a piece of the body of a large value, which begins at `offset`. `record` is that
    /// of its object at the sender, without the length byte.
    ImportBody {
        version: u64,
        term: Term,
        round: u32,
        n: u32,
        record: &'a [u8],
        offset: u64,
        bytes: &'a [u8],
    },
    /// A client's command comes with a value of `value_bytes` bytes for `key`, which is sent ahead of it. Also asks how
    /// much of it is there. `conn` and `n` are those that the command will have. `taken`: the bytes of which the sender
    /// knows that they were taken.
    Stage {
        conn: ConnId,
        n: u64,
        value_bytes: u64,
        taken: u64,
        key: &'a [u8],
    },
    /// Bytes of that value, from `at` on.
    StageBytes {
        conn: ConnId,
        n: u64,
        at: u64,
        bytes: &'a [u8],
    },
    /// The first `taken` bytes of that value are taken.
    Staged {
        conn: ConnId,
        n: u64,
        taken: u64,
        state: StageState,
    },
    /// Takes the place of a `Reply` that is one value of `bytes` bytes, which the receiver reads in pieces.
    LongReply {
        conn: ConnId,
        n: u64,
        bytes: u64,
    },
    /// Asks for bytes of that value, from `at` on.
    ReadReply {
        conn: ConnId,
        n: u64,
        at: u64,
    },
    /// Bytes of that value, from `at` on; `None`: they can't be read any more.
    ReplyBytes {
        conn: ConnId,
        n: u64,
        at: u64,
        bytes: Option<&'a [u8]>,
    },
    /// The client of a `Stage` or a `LongReply` has gone.
    GiveUp {
        conn: ConnId,
        n: u64,
    },
    /// The result of import `n` of that attempt. It does not depend on the epoch of a list: it stays valid.
    Imported {
        version: u64,
        term: Term,
        round: u32,
        n: u32,
        status: ImportStatus,
    },
    /// Opens a part of a large value for its writer, or asks how far it is.
    OpenPart {
        term: Term,
        /// The number of the question, which the answer repeats.
        question: u32,
        name: PartName,
        /// Its record, encoded; without checks.
        record: &'a [u8],
    },
    /// Asks the holder to make a part from the others.
    MakePart {
        name: PartName,
        record: &'a [u8],
    },
    /// The next unit of an open part.
    PutUnit {
        name: PartName,
        unit: u32,
        bytes: &'a [u8],
    },
    PartState {
        name: PartName,
        /// The number of the question that it answers; 0: of none.
        question: u32,
        state: PartState,
    },
    /// Groups of parts that are dead.
    FreeGroups {
        groups: Groups<'a>,
    },
    /// Asks for the groups of the stream that are alive, those above `after`.
    ReadGroups {
        position: Position,
        tenure: Tenure,
        after: Option<u64>,
    },
    /// A page of them: those above `after`, up to `last`. `term` is the owner's; `tenure` repeats that of the question.
    AliveGroups {
        term: Term,
        position: Position,
        tenure: Tenure,
        after: Option<u64>,
        last: u64,
        is_end: bool,
        groups: AliveGroups<'a>,
    },
    /// Asks for a unit of a part that is kept.
    ReadUnit {
        id: u64,
        name: PartName,
        unit: u32,
    },
    /// Answers it: sum and bytes of the unit, if the part is kept here.
    UnitValue {
        id: u64,
        unit: Option<(u32, &'a [u8])>,
    },
    /// Asks whether the receiver has parts of large values of the stream. `position` is that of the sender.
    FindParts {
        position: Position,
    },
    /// Answers it. `position` repeats that of the question.
    FoundParts {
        position: Position,
        any: bool,
    },
}

impl Message<'_> {
    /// The kind's number in the header.
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
            Self::OpenPart { .. } => kind::OPEN_PART,
            Self::MakePart { .. } => kind::MAKE_PART,
            Self::PutUnit { .. } => kind::PUT_UNIT,
            Self::PartState { .. } => kind::PART_STATE,
            Self::FreeGroups { .. } => kind::FREE_GROUPS,
            Self::ReadGroups { .. } => kind::READ_GROUPS,
            Self::AliveGroups { .. } => kind::ALIVE_GROUPS,
            Self::ReadUnit { .. } => kind::READ_UNIT,
            Self::UnitValue { .. } => kind::UNIT_VALUE,
            Self::FindParts { .. } => kind::FIND_PARTS,
            Self::FoundParts { .. } => kind::FOUND_PARTS,
            Self::ImportBody { .. } => kind::IMPORT_BODY,
            Self::Stage { .. } => kind::STAGE,
            Self::StageBytes { .. } => kind::STAGE_BYTES,
            Self::Staged { .. } => kind::STAGED,
            Self::LongReply { .. } => kind::LONG_REPLY,
            Self::ReadReply { .. } => kind::READ_REPLY,
            Self::ReplyBytes { .. } => kind::REPLY_BYTES,
            Self::GiveUp { .. } => kind::GIVE_UP,
        }
    }
}
