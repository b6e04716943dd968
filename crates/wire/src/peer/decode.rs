//! Decodes the body of a frame. The bytes come from the network: a body that does not fit its kind exactly is refused.

use super::message::{ChunkStatus, Hello, ImportStatus, Message, Parity, PartState, StageState};
use super::parts::{
    AliveGroups, DIRECTORY_ENTRY_BYTES, Deltas, Groups, LeaseRecord, Leases, Objects, PartName, Versions,
};
use super::read::{clock, tenure};
use super::{BadFrame, FORWARD_DATABASE, dialect, kind};
use paritas_base::{ClusterId, ConnId, Incarnation, NodeId, Position, Stripe, Version};
use paritas_base::{DATABASES, Reader, sections};

impl<'a> Message<'a> {
    pub(super) fn decode(kind: u8, body: &'a [u8]) -> Result<Self, BadFrame> {
        let mut r = Reader(body);
        let Some(mut message) = Self::read(kind, &mut r) else {
            return Err(match kind {
                kind::IMPORT => unknown_object(body).map_or(BadFrame::Body(kind), BadFrame::Object),
                _ => BadFrame::Body(kind),
            });
        };
        if !r.0.is_empty() && !kind::takes_sections(kind) {
            return Err(BadFrame::Body(kind));
        }
        let strange = |bad| BadFrame::Section(kind, bad);
        let known: &[u8] = match kind {
            kind::FORWARD => &[FORWARD_DATABASE],
            _ => &[],
        };
        sections::check(r.0, known).map_err(strange)?;
        if let Self::Forward { database, .. } = &mut message
            && let Some(body) = sections::find(r.0, FORWARD_DATABASE)
        {
            *database = match body {
                [number @ 1..DATABASES] => *number,
                _ => return Err(BadFrame::Body(kind)),
            };
        }
        if let Self::Stale { configuration } = &message {
            configuration.more.check(&[]).map_err(strange)?;
        }
        Ok(message)
    }

    fn read(kind: u8, r: &mut Reader<'a>) -> Option<Self> {
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
            kind::DELTA => {
                let (term, seq, sent) = (r.varint_u32()?, r.varint()?, clock(r)?);
                Self::Delta {
                    term,
                    seq,
                    sent,
                    stable: seq.wrapping_sub(unzigzag(r.varint()?)),
                    extents: r.rest(),
                }
            }
            kind::ACK => Self::Ack {
                term: r.varint_u32()?,
                recv: r.varint()?,
                lease_sent: clock(r)?,
            },
            kind::STABLE => Self::Stable {
                term: r.varint_u32()?,
                stable: r.varint()?,
            },
            kind::SYNC => Self::Sync {
                term: r.varint_u32()?,
                base: r.varint()?,
                top: r.varint()?,
                deltas: Deltas::check(r.rest())?,
            },
            kind::SYNC_ACK => Self::SyncAck {
                term: r.varint_u32()?,
                recv: r.varint()?,
            },
            kind::ALLOC => Self::Alloc {
                term: r.u32()?,
                as_of: r.u64()?,
                entries: directory(r.rest())?,
            },
            kind::LEASE_REQUEST => Self::LeaseRequest {
                sent: clock(r)?,
                streams: Leases::check(r.rest())?,
            },
            kind::LEASE => Self::Lease {
                sent: clock(r)?,
                streams: Leases::check(r.rest())?,
            },
            kind::SEAL => Self::Seal,
            kind::SEAL_REPLY => {
                let (known, term, recv) = (flag(r.u8()?)?, r.varint_u32()?, r.varint()?);
                let count = usize::from(r.u16()?);
                let leases = r.bytes(count * LeaseRecord::BYTES)?;
                Self::SealReply {
                    known,
                    term,
                    recv,
                    leases,
                    deltas: Deltas::check(r.rest())?,
                }
            }
            kind::YIELD_QUERY => Self::YieldQuery { tenure: tenure(r)? },
            kind::YIELDED => Self::Yielded { tenure: tenure(r)? },
            kind::READ_DIRECTORY => Self::ReadDirectory {
                term: r.u32()?,
                at_least: r.u64()?,
            },
            kind::DIRECTORY => Self::Directory {
                term: r.u32()?,
                complete_for: r.u64()?,
                entries: directory(r.rest())?,
            },
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
                let (id, stripe, latest) = (r.u64()?, stripe(r.u32()?)?, flag(r.u8()?)?);
                let want = if latest { None } else { Some(Version(r.u64()?)) };
                Self::ReadChunk { id, stripe, want }
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
                found: None,
                bytes: r.rest(),
            },
            kind::HOLD => Self::Hold {
                stripe: stripe(r.u32()?)?,
            },
            kind::CREDIT_REQUEST => Self::CreditRequest {
                term: r.varint_u32()?,
                data_end: end(r.varint_u32()?)?,
                index_end: end(r.varint_u32()?)?,
            },
            kind::CREDIT => Self::Credit {
                term: r.varint_u32()?,
                data_end: end(r.varint_u32()?)?,
                index_end: end(r.varint_u32()?)?,
                window_bytes: r.varint()?,
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
                conn: ConnId(r.varint()?),
                n: r.varint()?,
                dialect: Some(r.u8()?).filter(|byte| dialect::is_known(*byte))?,
                database: 0,
                command: counted(r)?,
            },
            kind::REPLY => Self::Reply {
                conn: ConnId(r.varint()?),
                n: r.varint()?,
                bytes: r.rest(),
            },
            kind::IMPORT => Self::Import {
                version: r.varint()?,
                term: r.varint_u32()?,
                round: r.varint_u32()?,
                n: r.varint_u32()?,
                objects: Objects::check(r.rest())?,
            },
            kind::IMPORT_BODY => Self::ImportBody {
                version: r.varint()?,
                term: r.varint_u32()?,
                round: r.varint_u32()?,
                n: r.varint_u32()?,
                record: {
                    let length = usize::from(r.u8()?);
                    r.bytes(length)?
                },
                offset: r.varint()?,
                bytes: r.rest(),
            },
            kind::STAGE => Self::Stage {
                conn: ConnId(r.varint()?),
                n: r.varint()?,
                value_bytes: r.varint()?,
                taken: r.varint()?,
                key: counted(r)?,
            },
            kind::STAGE_BYTES => Self::StageBytes {
                conn: ConnId(r.varint()?),
                n: r.varint()?,
                at: r.varint()?,
                bytes: r.rest(),
            },
            kind::STAGED => Self::Staged {
                conn: ConnId(r.varint()?),
                n: r.varint()?,
                taken: r.varint()?,
                state: match r.u8()? {
                    0 => StageState::Open,
                    1 => StageState::Over,
                    2 => StageState::NotOwner,
                    3 => StageState::NoMemory,
                    4 => StageState::Running,
                    _ => return None,
                },
            },
            kind::LONG_REPLY => Self::LongReply {
                conn: ConnId(r.varint()?),
                n: r.varint()?,
                bytes: r.varint()?,
            },
            kind::READ_REPLY => Self::ReadReply {
                conn: ConnId(r.varint()?),
                n: r.varint()?,
                at: r.varint()?,
            },
            kind::REPLY_BYTES => {
                let (conn, n, at) = (ConnId(r.varint()?), r.varint()?, r.varint()?);
                let is_there = flag(r.u8()?)?;
                let bytes = is_there.then(|| r.rest());
                Self::ReplyBytes { conn, n, at, bytes }
            }
            kind::GIVE_UP => Self::GiveUp {
                conn: ConnId(r.varint()?),
                n: r.varint()?,
            },
            kind::IMPORTED => Self::Imported {
                version: r.varint()?,
                term: r.varint_u32()?,
                round: r.varint_u32()?,
                n: r.varint_u32()?,
                status: match r.u8()? {
                    0 => ImportStatus::Done,
                    1 => ImportStatus::NoRoom,
                    2 => ImportStatus::Unknown,
                    3 => ImportStatus::Kept,
                    _ => return None,
                },
            },
            kind::OPEN_PART => Self::OpenPart {
                term: r.u32()?,
                question: r.u32()?,
                name: PartName::read(r)?,
                record: record(r)?,
            },
            kind::MAKE_PART => Self::MakePart {
                name: PartName::read(r)?,
                record: record(r)?,
            },
            kind::PUT_UNIT => Self::PutUnit {
                name: PartName::read(r)?,
                unit: r.u32()?,
                bytes: r.rest(),
            },
            kind::PART_STATE => Self::PartState {
                name: PartName::read(r)?,
                question: r.u32()?,
                state: part_state(r.u8()?, r.u32()?)?,
            },
            kind::FREE_GROUPS => Self::FreeGroups {
                groups: Groups::check(r.rest())?,
            },
            kind::READ_GROUPS => Self::ReadGroups {
                position: Position(r.u8()?),
                tenure: tenure(r)?,
                after: Some(r.u64()?).filter(|after| *after > 0),
            },
            kind::ALIVE_GROUPS => Self::AliveGroups {
                term: r.u32()?,
                position: Position(r.u8()?),
                tenure: tenure(r)?,
                after: Some(r.u64()?).filter(|after| *after > 0),
                last: r.u64()?,
                is_end: flag(r.u8()?)?,
                groups: AliveGroups::check(r.rest())?,
            },
            kind::READ_UNIT => Self::ReadUnit {
                id: r.u64()?,
                name: PartName::read(r)?,
                unit: r.u32()?,
            },
            kind::UNIT_VALUE => Self::UnitValue {
                id: r.u64()?,
                unit: match flag(r.u8()?)? {
                    true => Some((r.u32()?, r.rest())),
                    false => None,
                },
            },
            kind::FIND_PARTS => Self::FindParts {
                position: Position(r.u8()?),
            },
            kind::FOUND_PARTS => Self::FoundParts {
                position: Position(r.u8()?),
                any: flag(r.u8()?)?,
            },
            _ => return None,
        };
        Some(message)
    }
}

/// Bits of the first object of an `Import` that this version does not know.
fn unknown_object(body: &[u8]) -> Option<u8> {
    let mut r = Reader(body);
    // Version, term, round, number.
    for _ in 0..4 {
        r.varint()?;
    }
    Objects::unknown_bits(r.0)
}

fn unzigzag(n: u64) -> u64 {
    (n >> 1) ^ (n & 1).wrapping_neg()
}

fn flag(byte: u8) -> Option<bool> {
    match byte {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn part_state(state: u8, number: u32) -> Option<PartState> {
    match (state, number) {
        (0, units) => Some(PartState::Open(units)),
        (1, units) => Some(PartState::Taken(units)),
        (2, check) => Some(PartState::Kept(check)),
        (3, 0) => Some(PartState::Making),
        (4, 0) => Some(PartState::Broken),
        (5, 0) => Some(PartState::NoRoom),
        (6, 0) => Some(PartState::Declined),
        (7, 0) => Some(PartState::Unknown),
        _ => None,
    }
}

/// Bytes after their number.
fn counted<'a>(r: &mut Reader<'a>) -> Option<&'a [u8]> {
    let length = r.varint_u32()? as usize;
    r.bytes(length)
}

/// A record begins with the number of bytes that follow.
fn record<'a>(r: &mut Reader<'a>) -> Option<&'a [u8]> {
    let length = usize::from(*r.0.first()?);
    r.bytes(1 + length)
}

fn stripe(bits: u32) -> Option<Stripe> {
    Some(Stripe(bits)).filter(|s| s.is_valid())
}

fn directory(entries: &[u8]) -> Option<&[u8]> {
    entries.len().is_multiple_of(DIRECTORY_ENTRY_BYTES).then_some(entries)
}

fn end(number: u32) -> Option<u32> {
    Some(number).filter(|n| *n <= Stripe::NUMBER_MAX)
}
