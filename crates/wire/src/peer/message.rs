//! What the frames say (PROTOCOL 2.5). Sequences are borrowed from the frame and walked on demand.

use super::BadFrame;
use super::read::{Reader, Write};
use paritas_base::configuration::{Configuration, Tenure};
use paritas_base::{ClusterId, ConnId, Epoch, Incarnation, ListId, NodeId, Stream, Stripe, Term, Time, Version};

/// The kinds, as they stand in a frame's header. A number is never used for something else.
#[allow(missing_docs)]
pub mod kind {
    pub const HELLO: u8 = 1;
    pub const DELTA: u8 = 10;
    pub const ACK: u8 = 11;
    pub const STABLE: u8 = 12;
    pub const SYNC: u8 = 13;
    pub const SYNC_ACK: u8 = 14;
    pub const ALLOC: u8 = 15;
    pub const LEASE_REQUEST: u8 = 16;
    pub const LEASE: u8 = 17;
    pub const SEAL: u8 = 18;
    pub const SEAL_REPLY: u8 = 19;
    pub const YIELD_QUERY: u8 = 20;
    pub const YIELDED: u8 = 21;
    pub const READ_DIRECTORY: u8 = 22;
    pub const DIRECTORY: u8 = 23;
    pub const READ_PARITY: u8 = 24;
    pub const PARITY_VALUE: u8 = 25;
    pub const READ_CHUNK: u8 = 26;
    pub const CHUNK_VALUE: u8 = 27;
    pub const HOLD: u8 = 28;
    pub const CREDIT_REQUEST: u8 = 29;
    pub const CREDIT: u8 = 30;
    pub const GET_CONFIGURATION: u8 = 31;
    pub const STALE: u8 = 32;
    pub const FORWARD: u8 = 33;
    pub const REPLY: u8 = 34;
}

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
    /// All stripes of the stream with a non-zero version at `as_of` (6.6).
    Alloc {
        term: Term,
        as_of: u64,
        stripes: Stripes<'a>,
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
        credit_data: u32,
        credit_index: u32,
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
}

impl<'a> Message<'a> {
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
        }
    }

    pub(super) fn decode(kind: u8, body: &'a [u8]) -> Result<Self, BadFrame> {
        if !is_known(kind) {
            return Err(BadFrame::Kind(kind));
        }
        Self::read(kind, Reader(body)).ok_or(BadFrame::Body(kind))
    }

    fn read(kind: u8, mut r: Reader<'a>) -> Option<Self> {
        let r = &mut r;
        let message = match kind {
            kind::HELLO => Self::Hello(Hello {
                cluster: ClusterId(r.u64()?),
                node: NodeId(r.u16()?),
                incarnation: Incarnation(r.u64()?),
                to_node: NodeId(r.u16()?),
                to_incarnation: Incarnation(r.u64()?),
                bulk: flag(r.u8()?)?,
                version_low: r.u16()?,
                version_high: r.u16()?,
                features: r.u64()?,
                session: r.u64()?,
            }),
            kind::DELTA => Self::Delta {
                term: r.u32()?,
                seq: r.u64()?,
                acked: r.u64()?,
                stable: r.u64()?,
                extents: r.rest(),
            },
            kind::ACK => Self::Ack {
                term: r.u32()?,
                recv: r.u64()?,
                lease_sent: Time(r.u64()?),
            },
            kind::STABLE => Self::Stable {
                term: r.u32()?,
                acked: r.u64()?,
                stable: r.u64()?,
            },
            kind::SYNC => Self::Sync {
                term: r.u32()?,
                base: r.u64()?,
                top: r.u64()?,
                deltas: Deltas::check(r.rest())?,
            },
            kind::SYNC_ACK => Self::SyncAck {
                term: r.u32()?,
                recv: r.u64()?,
            },
            kind::ALLOC => Self::Alloc {
                term: r.u32()?,
                as_of: r.u64()?,
                stripes: Stripes::check(r.rest())?,
            },
            kind::LEASE_REQUEST => Self::LeaseRequest {
                streams: Leases::check(r.rest())?,
            },
            kind::LEASE => Self::Lease {
                sent: Time(r.u64()?),
                streams: Leases::check(r.rest())?,
            },
            kind::SEAL => Self::Seal,
            kind::SEAL_REPLY => {
                let (known, term, recv) = (flag(r.u8()?)?, r.u32()?, r.u64()?);
                let (credit_data, credit_index) = (r.u32()?, r.u32()?);
                let count = usize::from(r.u16()?);
                let leases = r.bytes(count * LeaseRecord::BYTES)?;
                Self::SealReply {
                    known,
                    term,
                    recv,
                    credit_data,
                    credit_index,
                    leases,
                    deltas: Deltas::check(r.rest())?,
                }
            }
            kind::YIELD_QUERY => Self::YieldQuery { tenure: r.tenure()? },
            kind::YIELDED => Self::Yielded { tenure: r.tenure()? },
            kind::READ_DIRECTORY => Self::ReadDirectory {
                term: r.u32()?,
                at_least: r.u64()?,
            },
            kind::DIRECTORY => {
                let (term, complete_for, entries) = (r.u32()?, r.u64()?, r.rest());
                entries.len().is_multiple_of(12).then_some(())?;
                Self::Directory {
                    term,
                    complete_for,
                    entries,
                }
            }
            kind::READ_PARITY => Self::ReadParity {
                id: r.u64()?,
                stripe: stripe(r.u32()?)?,
            },
            kind::PARITY_VALUE => {
                let (id, stripe) = (r.u64()?, stripe(r.u32()?)?);
                let parity = if flag(r.u8()?)? {
                    let (recv, term, sum, count) = (r.u64()?, r.u32()?, r.u32()?, usize::from(r.u8()?));
                    let versions = Versions(r.bytes(count * 8)?);
                    Some(Parity {
                        recv,
                        term,
                        versions,
                        sum,
                        bytes: r.rest(),
                    })
                } else {
                    None
                };
                Self::ParityValue { id, stripe, parity }
            }
            kind::READ_CHUNK => {
                let (id, stripe, latest, version) = (r.u64()?, stripe(r.u32()?)?, flag(r.u8()?)?, Version(r.u64()?));
                Self::ReadChunk {
                    id,
                    stripe,
                    want: (!latest).then_some(version),
                }
            }
            kind::CHUNK_VALUE => Self::ChunkValue {
                id: r.u64()?,
                stripe: stripe(r.u32()?)?,
                status: if flag(r.u8()?)? {
                    ChunkStatus::Here
                } else {
                    ChunkStatus::None
                },
                version: Version(r.u64()?),
                sum: r.u32()?,
                as_of: r.u64()?,
                term: r.u32()?,
                bytes: r.rest(),
            },
            kind::HOLD => Self::Hold {
                stripe: stripe(r.u32()?)?,
            },
            kind::CREDIT_REQUEST => Self::CreditRequest {
                term: r.u32()?,
                data_end: end(r.u32()?)?,
                index_end: end(r.u32()?)?,
            },
            kind::CREDIT => Self::Credit {
                term: r.u32()?,
                data_end: end(r.u32()?)?,
                index_end: end(r.u32()?)?,
                window_bytes: r.u64()?,
            },
            kind::GET_CONFIGURATION => Self::GetConfiguration,
            kind::STALE => {
                let (configuration, rest) = postcard::take_from_bytes(r.rest()).ok()?;
                rest.is_empty().then_some(())?;
                Self::Stale {
                    configuration: Box::new(configuration),
                }
            }
            kind::FORWARD => Self::Forward {
                conn: ConnId(r.u64()?),
                n: r.u64()?,
                resp3: flag(r.u8()?)?,
                command: r.rest(),
            },
            kind::REPLY => Self::Reply {
                conn: ConnId(r.u64()?),
                n: r.u64()?,
                bytes: r.rest(),
            },
            _ => return None,
        };
        r.end(message)
    }

    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        match self {
            Self::Hello(h) => {
                to.u64(h.cluster.0);
                to.u16(h.node.0);
                to.u64(h.incarnation.0);
                to.u16(h.to_node.0);
                to.u64(h.to_incarnation.0);
                to.u8(u8::from(h.bulk));
                to.u16(h.version_low);
                to.u16(h.version_high);
                to.u64(h.features);
                to.u64(h.session);
            }
            Self::Delta {
                term,
                seq,
                acked,
                stable,
                extents,
            } => {
                to.u32(*term);
                to.u64(*seq);
                to.u64(*acked);
                to.u64(*stable);
                to.extend_from_slice(extents);
            }
            Self::Ack { term, recv, lease_sent } => {
                to.u32(*term);
                to.u64(*recv);
                to.u64(lease_sent.0);
            }
            Self::Stable { term, acked, stable } => {
                to.u32(*term);
                to.u64(*acked);
                to.u64(*stable);
            }
            Self::Sync {
                term,
                base,
                top,
                deltas,
            } => {
                to.u32(*term);
                to.u64(*base);
                to.u64(*top);
                to.extend_from_slice(deltas.0);
            }
            Self::SyncAck { term, recv } => {
                to.u32(*term);
                to.u64(*recv);
            }
            Self::Alloc { term, as_of, stripes } => {
                to.u32(*term);
                to.u64(*as_of);
                to.extend_from_slice(stripes.0);
            }
            Self::LeaseRequest { streams } => to.extend_from_slice(streams.0),
            Self::Lease { sent, streams } => {
                to.u64(sent.0);
                to.extend_from_slice(streams.0);
            }
            Self::Seal | Self::GetConfiguration => {}
            Self::SealReply {
                known,
                term,
                recv,
                credit_data,
                credit_index,
                leases,
                deltas,
            } => {
                to.u8(u8::from(*known));
                to.u32(*term);
                to.u64(*recv);
                to.u32(*credit_data);
                to.u32(*credit_index);
                to.u16((leases.len() / LeaseRecord::BYTES) as u16);
                to.extend_from_slice(leases);
                to.extend_from_slice(deltas.0);
            }
            Self::YieldQuery { tenure } | Self::Yielded { tenure } => to.tenure(tenure),
            Self::ReadDirectory { term, at_least } => {
                to.u32(*term);
                to.u64(*at_least);
            }
            Self::Directory {
                term,
                complete_for,
                entries,
            } => {
                to.u32(*term);
                to.u64(*complete_for);
                to.extend_from_slice(entries);
            }
            Self::ReadParity { id, stripe } => {
                to.u64(*id);
                to.u32(stripe.0);
            }
            Self::ParityValue { id, stripe, parity } => {
                to.u64(*id);
                to.u32(stripe.0);
                to.u8(u8::from(parity.is_some()));
                if let Some(p) = parity {
                    to.u64(p.recv);
                    to.u32(p.term);
                    to.u32(p.sum);
                    to.u8((p.versions.0.len() / 8) as u8);
                    to.extend_from_slice(p.versions.0);
                    to.extend_from_slice(p.bytes);
                }
            }
            Self::ReadChunk { id, stripe, want } => {
                to.u64(*id);
                to.u32(stripe.0);
                to.u8(u8::from(want.is_none()));
                to.u64(want.unwrap_or_default().0);
            }
            Self::ChunkValue {
                id,
                stripe,
                status,
                version,
                sum,
                as_of,
                term,
                bytes,
            } => {
                to.u64(*id);
                to.u32(stripe.0);
                to.u8(u8::from(*status == ChunkStatus::Here));
                to.u64(version.0);
                to.u32(*sum);
                to.u64(*as_of);
                to.u32(*term);
                to.extend_from_slice(bytes);
            }
            Self::Hold { stripe } => to.u32(stripe.0),
            Self::CreditRequest {
                term,
                data_end,
                index_end,
            } => {
                to.u32(*term);
                to.u32(*data_end);
                to.u32(*index_end);
            }
            Self::Credit {
                term,
                data_end,
                index_end,
                window_bytes,
            } => {
                to.u32(*term);
                to.u32(*data_end);
                to.u32(*index_end);
                to.u64(*window_bytes);
            }
            Self::Stale { configuration } => {
                // A Configuration has no part that postcard can refuse.
                if let Ok(bytes) = postcard::to_allocvec(configuration.as_ref()) {
                    to.extend_from_slice(&bytes);
                }
            }
            Self::Forward {
                conn,
                n,
                resp3,
                command,
            } => {
                to.u64(conn.0);
                to.u64(*n);
                to.u8(u8::from(*resp3));
                to.extend_from_slice(command);
            }
            Self::Reply { conn, n, bytes } => {
                to.u64(conn.0);
                to.u64(*n);
                to.extend_from_slice(bytes);
            }
        }
    }
}

fn is_known(kind: u8) -> bool {
    kind == kind::HELLO || (kind::DELTA..=kind::REPLY).contains(&kind)
}

fn flag(byte: u8) -> Option<bool> {
    match byte {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn stripe(bits: u32) -> Option<Stripe> {
    Some(Stripe(bits)).filter(|s| s.is_valid())
}

fn end(number: u32) -> Option<u32> {
    Some(number).filter(|n| *n <= Stripe::NUMBER_MAX)
}

/// One delta of a [`Deltas`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeltaRecord<'a> {
    /// The term it was issued in.
    pub term: Term,
    /// Its place in the stream.
    pub seq: u64,
    /// Its extents, encoded.
    pub extents: &'a [u8],
}

/// A run of deltas: `u32 length, u32 term, u64 seq, extents` each. Its framing was checked, its extents were not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deltas<'a>(&'a [u8]);

impl<'a> Deltas<'a> {
    /// None.
    pub const EMPTY: Self = Self(&[]);

    /// Over bytes that [`Self::push`] made.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Appends one to bytes being built.
    pub fn push(to: &mut Vec<u8>, term: Term, seq: u64, extents: &[u8]) {
        to.u32(extents.len() as u32);
        to.u32(term);
        to.u64(seq);
        to.extend_from_slice(extents);
    }

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = DeltaRecord<'a>> + use<'a> {
        let mut r = Reader(self.0);
        core::iter::from_fn(move || Self::next(&mut r))
    }

    fn next(r: &mut Reader<'a>) -> Option<DeltaRecord<'a>> {
        let (length, term, seq) = (r.u32()? as usize, r.u32()?, r.u64()?);
        Some(DeltaRecord {
            term,
            seq,
            extents: r.bytes(length)?,
        })
    }

    fn check(bytes: &'a [u8]) -> Option<Self> {
        let mut r = Reader(bytes);
        while !r.0.is_empty() {
            Self::next(&mut r)?;
        }
        Some(Self(bytes))
    }
}

/// A set of stripes, four bytes each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stripes<'a>(&'a [u8]);

impl<'a> Stripes<'a> {
    /// Over bytes that [`Self::push`] made.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
    /// Appends one to bytes being built.
    pub fn push(to: &mut Vec<u8>, stripe: Stripe) {
        to.u32(stripe.0);
    }
    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = Stripe> + use<'a> {
        self.0.as_chunks::<4>().0.iter().map(|b| Stripe(u32::from_le_bytes(*b)))
    }
    fn check(bytes: &'a [u8]) -> Option<Self> {
        let all = Self(bytes);
        (bytes.len().is_multiple_of(4) && all.iter().all(Stripe::is_valid)).then_some(all)
    }
}

/// A list of versions, eight bytes each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Versions<'a>(&'a [u8]);

impl<'a> Versions<'a> {
    /// Over bytes that [`Self::push`] made.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
    /// Appends one to bytes being built.
    pub fn push(to: &mut Vec<u8>, version: Version) {
        to.u64(version.0);
    }
    /// How many.
    pub fn count(&self) -> usize {
        self.0.len() / 8
    }
    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = Version> + use<'a> {
        self.0
            .as_chunks::<8>()
            .0
            .iter()
            .map(|b| Version(u64::from_le_bytes(*b)))
    }
}

/// A stream for which a lease is asked or granted, with the fence that both sides check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseEntry {
    /// The stream.
    pub stream: Stream,
    /// The configuration it stands in.
    pub epoch: Epoch,
    /// Its owner's term.
    pub term: Term,
    /// How far the stream is stable, so that a `Stable` that was lost is made good while nothing else flows.
    pub stable: u64,
}

/// Many [`LeaseEntry`]: `u16 list, u8 x, u8 0, u32 epoch, u32 term, u64 stable` each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leases<'a>(&'a [u8]);

impl<'a> Leases<'a> {
    const BYTES: usize = 20;

    /// Over bytes that [`Self::push`] made.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
    /// Appends one to bytes being built.
    pub fn push(to: &mut Vec<u8>, entry: &LeaseEntry) {
        to.u16(entry.stream.list.0);
        to.u8(entry.stream.x.0);
        to.u8(0);
        to.u32(entry.epoch.0);
        to.u32(entry.term);
        to.u64(entry.stable);
    }
    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = LeaseEntry> + use<'a> {
        let mut r = Reader(self.0);
        core::iter::from_fn(move || {
            let (list, x, _) = (r.u16()?, r.u8()?, r.u8()?);
            let stream = Stream {
                list: ListId(list),
                x: paritas_base::Position(x),
            };
            Some(LeaseEntry {
                stream,
                epoch: Epoch(r.u32()?),
                term: r.u32()?,
                stable: r.u64()?,
            })
        })
    }
    fn check(bytes: &'a [u8]) -> Option<Self> {
        bytes.len().is_multiple_of(Self::BYTES).then_some(Self(bytes))
    }
}

/// A lease that a member has granted and that has not run out (5.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseRecord {
    /// Its holder.
    pub holder: Tenure,
    /// How long it may still be used, in ns.
    pub remaining_ns: u64,
}

impl LeaseRecord {
    pub(super) const BYTES: usize = 22;

    /// Appends one to bytes being built.
    pub fn push(&self, to: &mut Vec<u8>) {
        to.tenure(&self.holder);
        to.u64(self.remaining_ns);
    }

    /// Reads what [`Self::push`] made, one after the other.
    pub fn read(bytes: &[u8]) -> impl Iterator<Item = Self> + use<'_> {
        let mut r = Reader(bytes);
        core::iter::from_fn(move || {
            Some(Self {
                holder: r.tenure()?,
                remaining_ns: r.u64()?,
            })
        })
    }
}

/// Reads and writes the entries of a [`Message::Directory`].
impl Message<'_> {
    /// Appends one entry to bytes being built.
    pub fn push_directory_entry(to: &mut Vec<u8>, stripe: Stripe, version: Version) {
        to.u32(stripe.0);
        to.u64(version.0);
    }

    /// The entries whose stripe may exist.
    pub fn directory_entries(bytes: &[u8]) -> impl Iterator<Item = (Stripe, Version)> + use<'_> {
        let mut r = Reader(bytes);
        core::iter::from_fn(move || Some((Stripe(r.u32()?), Version(r.u64()?)))).filter(|(s, _)| s.is_valid())
    }
}
