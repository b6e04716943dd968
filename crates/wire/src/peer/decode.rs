//! Decodes the body of a frame. The bytes come from the network: a body that does not fit its kind exactly is refused.

use super::message::{ChunkStatus, Hello, ImportStatus, Message, Parity};
use super::parts::{DIRECTORY_ENTRY_BYTES, Deltas, LeaseRecord, Leases, Objects, Versions};
use super::read::tenure;
use super::{BadFrame, dialect, kind};
use paritas_base::Reader;
use paritas_base::{ClusterId, ConnId, Incarnation, NodeId, Stripe, Time, Version};

impl<'a> Message<'a> {
    pub(super) fn decode(kind: u8, body: &'a [u8]) -> Result<Self, BadFrame> {
        if !kind::is_known(kind) {
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
                entries: directory(r.rest())?,
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
                found: None,
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
                dialect: Some(r.u8()?).filter(|byte| dialect::is_known(*byte))?,
                command: r.rest(),
            },
            kind::REPLY => Self::Reply {
                conn: ConnId(r.u64()?),
                n: r.u64()?,
                bytes: r.rest(),
            },
            kind::IMPORT => Self::Import {
                version: r.u64()?,
                term: r.u32()?,
                round: r.u32()?,
                n: r.u32()?,
                objects: Objects::check(r.rest())?,
            },
            kind::IMPORTED => Self::Imported {
                version: r.u64()?,
                term: r.u32()?,
                round: r.u32()?,
                n: r.u32()?,
                status: match r.u8()? {
                    0 => ImportStatus::Done,
                    1 => ImportStatus::NoRoom,
                    2 => ImportStatus::Unknown,
                    _ => return None,
                },
            },
            _ => return None,
        };
        r.end(message)
    }
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

fn directory(entries: &[u8]) -> Option<&[u8]> {
    entries.len().is_multiple_of(DIRECTORY_ENTRY_BYTES).then_some(entries)
}

fn end(number: u32) -> Option<u32> {
    Some(number).filter(|n| *n <= Stripe::NUMBER_MAX)
}
