//! Encodes the body of a frame.

use super::FORWARD_DATABASE;
use super::message::{ChunkStatus, ImportStatus, Message, PartState, StageState};
use super::parts::LeaseRecord;
use super::read::Write;
use paritas_base::sections;

/// A difference of either sign: small if it is near zero.
fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ ((difference as i64) >> 63) as u64
}

impl Message<'_> {
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
                sent,
                stable,
                extents,
            } => {
                to.varint(u64::from(*term));
                to.varint(*seq);
                to.clock(*sent);
                // Both ways: a delta that is sent again may be stable already.
                to.varint(zigzag(seq.wrapping_sub(*stable)));
                to.extend_from_slice(extents);
            }
            Self::Ack { term, recv, lease_sent } => {
                to.varint(u64::from(*term));
                to.varint(*recv);
                to.clock(*lease_sent);
            }
            Self::Stable { term, stable } => {
                to.varint(u64::from(*term));
                to.varint(*stable);
            }
            Self::Sync {
                term,
                base,
                top,
                deltas,
            } => {
                to.varint(u64::from(*term));
                to.varint(*base);
                to.varint(*top);
                to.extend_from_slice(deltas.0);
            }
            Self::SyncAck { term, recv } => {
                to.varint(u64::from(*term));
                to.varint(*recv);
            }
            Self::Alloc { term, as_of, entries } => {
                to.u32(*term);
                to.u64(*as_of);
                to.extend_from_slice(entries);
            }
            Self::LeaseRequest { sent, streams } => {
                to.clock(*sent);
                to.extend_from_slice(streams.0);
            }
            Self::Lease { sent, streams } => {
                to.clock(*sent);
                to.extend_from_slice(streams.0);
            }
            Self::Seal | Self::GetConfiguration => {}
            Self::SealReply {
                known,
                term,
                recv,
                leases,
                deltas,
            } => {
                to.u8(u8::from(*known));
                to.varint(u64::from(*term));
                to.varint(*recv);
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
                want.iter().for_each(|version| to.u64(version.0));
            }
            Self::ChunkValue {
                id,
                stripe,
                status,
                version,
                sum,
                as_of,
                term,
                found: _,
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
                to.varint(u64::from(*term));
                to.varint(u64::from(*data_end));
                to.varint(u64::from(*index_end));
            }
            Self::Credit {
                term,
                data_end,
                index_end,
                window_bytes,
            } => {
                to.varint(u64::from(*term));
                to.varint(u64::from(*data_end));
                to.varint(u64::from(*index_end));
                to.varint(*window_bytes);
            }
            Self::Stale { configuration } => {
                // Cannot fail: a Configuration has no part that postcard refuses.
                if let Ok(bytes) = postcard::to_allocvec(configuration.as_ref()) {
                    to.extend_from_slice(&bytes);
                }
            }
            Self::Forward {
                conn,
                n,
                dialect,
                database,
                command,
            } => {
                to.varint(conn.0);
                to.varint(*n);
                to.u8(*dialect);
                to.varint(command.len() as u64);
                to.extend_from_slice(command);
                if *database > 0 {
                    sections::push(to, (FORWARD_DATABASE, &[*database]));
                }
            }
            Self::Reply { conn, n, bytes } => {
                to.varint(conn.0);
                to.varint(*n);
                to.extend_from_slice(bytes);
            }
            Self::Import {
                version,
                term,
                round,
                n,
                objects,
            } => {
                to.varint(*version);
                to.varint(u64::from(*term));
                to.varint(u64::from(*round));
                to.varint(u64::from(*n));
                to.extend_from_slice(objects.0);
            }
            Self::ImportBody {
                version,
                term,
                round,
                n,
                record,
                offset,
                bytes,
            } => {
                to.varint(*version);
                to.varint(u64::from(*term));
                to.varint(u64::from(*round));
                to.varint(u64::from(*n));
                to.u8(record.len() as u8);
                to.extend_from_slice(record);
                to.varint(*offset);
                to.extend_from_slice(bytes);
            }
            Self::Stage {
                conn,
                n,
                value_bytes,
                taken,
                key,
            } => {
                to.varint(conn.0);
                to.varint(*n);
                to.varint(*value_bytes);
                to.varint(*taken);
                to.varint(key.len() as u64);
                to.extend_from_slice(key);
            }
            Self::StageBytes { conn, n, at, bytes } => {
                to.varint(conn.0);
                to.varint(*n);
                to.varint(*at);
                to.extend_from_slice(bytes);
            }
            Self::Staged { conn, n, taken, state } => {
                to.varint(conn.0);
                to.varint(*n);
                to.varint(*taken);
                to.u8(match state {
                    StageState::Open => 0,
                    StageState::Over => 1,
                    StageState::NotOwner => 2,
                    StageState::NoMemory => 3,
                    StageState::Running => 4,
                });
            }
            Self::LongReply { conn, n, bytes } => {
                to.varint(conn.0);
                to.varint(*n);
                to.varint(*bytes);
            }
            Self::ReadReply { conn, n, at } => {
                to.varint(conn.0);
                to.varint(*n);
                to.varint(*at);
            }
            Self::ReplyBytes { conn, n, at, bytes } => {
                to.varint(conn.0);
                to.varint(*n);
                to.varint(*at);
                to.u8(u8::from(bytes.is_some()));
                to.extend_from_slice(bytes.unwrap_or_default());
            }
            Self::GiveUp { conn, n } => {
                to.varint(conn.0);
                to.varint(*n);
            }
            Self::Imported {
                version,
                term,
                round,
                n,
                status,
            } => {
                to.varint(*version);
                to.varint(u64::from(*term));
                to.varint(u64::from(*round));
                to.varint(u64::from(*n));
                to.u8(match status {
                    ImportStatus::Done => 0,
                    ImportStatus::NoRoom => 1,
                    ImportStatus::Unknown => 2,
                    ImportStatus::Kept => 3,
                });
            }
            Self::OpenPart {
                term,
                question,
                name,
                record,
            } => {
                to.u32(*term);
                to.u32(*question);
                name.encode(to);
                to.extend_from_slice(record);
            }
            Self::MakePart { name, record } => {
                name.encode(to);
                to.extend_from_slice(record);
            }
            Self::PutUnit { name, unit, bytes } => {
                name.encode(to);
                to.u32(*unit);
                to.extend_from_slice(bytes);
            }
            Self::PartState { name, question, state } => {
                name.encode(to);
                to.u32(*question);
                let (state, number) = match state {
                    PartState::Open(units) => (0, *units),
                    PartState::Taken(units) => (1, *units),
                    PartState::Kept(check) => (2, *check),
                    PartState::Making => (3, 0),
                    PartState::Broken => (4, 0),
                    PartState::NoRoom => (5, 0),
                    PartState::Declined => (6, 0),
                    PartState::Unknown => (7, 0),
                };
                to.u8(state);
                to.u32(number);
            }
            Self::FreeGroups { groups } => to.extend_from_slice(groups.0),
            Self::ReadGroups {
                position,
                tenure,
                after,
            } => {
                to.u8(position.0);
                to.tenure(tenure);
                to.u64(after.unwrap_or_default());
            }
            Self::AliveGroups {
                term,
                position,
                tenure,
                after,
                last,
                is_end,
                groups,
            } => {
                to.u32(*term);
                to.u8(position.0);
                to.tenure(tenure);
                to.u64(after.unwrap_or_default());
                to.u64(*last);
                to.u8(u8::from(*is_end));
                to.extend_from_slice(groups.0);
            }
            Self::ReadUnit { id, name, unit } => {
                to.u64(*id);
                name.encode(to);
                to.u32(*unit);
            }
            Self::UnitValue { id, unit } => {
                to.u64(*id);
                to.u8(u8::from(unit.is_some()));
                if let Some((sum, bytes)) = unit {
                    to.u32(*sum);
                    to.extend_from_slice(bytes);
                }
            }
            Self::FindParts { position } => to.u8(position.0),
            Self::FoundParts { position, any } => {
                to.u8(position.0);
                to.u8(u8::from(*any));
            }
        }
    }
}
