//! Calls the method of a role that handles a message, after the epoch fence.

use crate::context::Context;
use crate::interface::{Channel, Out};
use crate::parity_member::ParityMember;
use crate::source_chunk::SourceChunk;
use crate::stream_owner::StreamOwner;
use paritas_base::configuration::{Configuration, Tenure};
use paritas_base::{Incarnation, NodeId};
use paritas_wire::peer::{ChunkStatus, Header, Message};

/// The tenure under which an incarnation is a parity member.
pub(super) fn tenure_of(configuration: &Configuration, node: NodeId, incarnation: Incarnation) -> Option<Tenure> {
    let (_, a) = configuration
        .members()
        .find(|(_, a)| a.tenure.node == node && a.tenure.incarnation == incarnation)?;
    Some(a.tenure)
}

pub(super) fn on_owner<O: Out>(
    cx: &mut Context<'_, O>,
    configuration: &Configuration,
    owner: &mut StreamOwner,
    from: (NodeId, Incarnation),
    header: &Header,
    message: &Message<'_>,
) {
    // Answers of sources carry the source's own position; everything else speaks of the stream itself.
    if let Message::ChunkValue {
        id,
        stripe,
        status,
        version,
        sum,
        found,
        bytes,
        ..
    } = *message
    {
        let source = SourceChunk {
            version,
            sum,
            found,
            bytes,
        };
        let value = (status == ChunkStatus::Here).then_some(source);
        if owner.stream() == header.stream {
            // A chunk of the owner's own stream comes from the position's former owner.
            return owner.on_donors_chunk(cx, configuration, from, id, stripe, value);
        }
        let holder = configuration.tenure(header.stream.x).map(|t| (t.node, t.incarnation));
        if holder == Some(from) {
            owner.on_source_chunk(cx, configuration, header.stream.x, id, stripe, value);
        }
        return;
    }
    if owner.stream() != header.stream {
        return;
    }
    match *message {
        Message::ReadChunk { id, stripe, want } => {
            return owner.on_read_chunk(cx, configuration, from, id, stripe, want);
        }
        Message::Hold { .. } => return owner.on_hold(cx),
        Message::Import {
            version,
            term,
            round,
            n,
            objects,
        } => return owner.on_import(cx, configuration, from, version, term, round, n, objects),
        Message::ImportBody {
            version,
            term,
            round,
            n,
            record,
            offset,
            bytes,
        } => {
            return owner.on_import_body(cx, configuration, from, version, term, round, n, record, offset, bytes);
        }
        _ => {}
    }
    let Some(member) = tenure_of(configuration, from.0, from.1) else {
        return;
    };
    match *message {
        Message::Ack { term, recv, lease_sent } => owner.on_ack(cx, configuration, member, term, recv, lease_sent),
        Message::SyncAck { term, recv } => owner.on_sync_ack(cx, configuration, member, term, recv),
        Message::SealReply {
            known,
            term,
            recv,
            leases,
            deltas,
            ..
        } => {
            owner.on_seal_reply(cx, member, known, term, recv, leases, deltas);
        }
        Message::Directory {
            term,
            complete_for,
            entries,
        } => {
            owner.on_directory(cx, configuration, member, term, complete_for, entries);
        }
        Message::ParityValue { id, stripe, parity } => {
            owner.on_parity_value(cx, configuration, member, id, stripe, parity);
        }
        Message::Credit {
            term,
            data_end,
            index_end,
            window_bytes,
        } => {
            owner.on_credit(cx, member, term, data_end, index_end, window_bytes);
        }
        Message::ReadDirectory { .. } => owner.on_read_alloc(cx, configuration, from),
        _ => {}
    }
}

pub(super) fn on_member<O: Out>(
    cx: &mut Context<'_, O>,
    configuration: &Configuration,
    member: &mut ParityMember,
    from: (NodeId, Incarnation),
    header: &Header,
    message: &Message<'_>,
) {
    let x = header.stream.x;
    // A member that refills may use the parity of another member.
    match *message {
        Message::ReadParity { id, stripe } if tenure_of(configuration, from.0, from.1).is_some() => {
            return member.on_read_parity(cx, configuration, (header.stream, from), id, stripe);
        }
        Message::ParityValue { id, stripe, parity } => {
            return member.on_substitute(cx, configuration, (from, x), (id, stripe), parity);
        }
        _ => {}
    }
    // A parity member acts on all other messages only if the stream's owner by this configuration sent them.
    let Some(owner) = configuration.tenure(x) else { return };
    if !cx.rules().is_from_owner(&owner, from) {
        return;
    }
    match *message {
        Message::Delta {
            term,
            seq,
            sent,
            stable,
            extents,
        } => {
            member.on_delta(cx, x, &owner, sent, term, seq, stable.number(seq), extents);
        }
        Message::Stable { term, stable } => {
            member.on_stable(cx, x, term, stable);
            member.give_back(x);
        }
        Message::Sync {
            term,
            base,
            top,
            deltas,
        } => {
            if member.on_sync(cx, x, &owner, term, base, top, deltas)
                && let Some(log) = member.log(x)
            {
                let reply = Message::SyncAck { term, recv: log.recv };
                cx.send(&owner, Channel::Main, header.stream, configuration.epoch, &reply);
            }
        }
        Message::Seal => member.on_seal(cx, configuration, header.stream),
        Message::Alloc { term, as_of, entries } => {
            member.on_alloc(cx, configuration, x, term, as_of, entries);
        }
        Message::ReadDirectory { term, at_least } => {
            member.on_read_directory(cx, configuration, header.stream, term, at_least);
        }
        Message::ReadParity { id, stripe } => {
            member.on_read_parity(cx, configuration, (header.stream, from), id, stripe);
        }
        Message::CreditRequest {
            term,
            data_end,
            index_end,
        } => {
            member.on_credit_request(cx, configuration, header.stream, term, data_end, index_end);
        }
        Message::ChunkValue {
            id,
            stripe,
            status,
            version,
            sum,
            as_of,
            term,
            found,
            bytes,
        } => {
            let source = SourceChunk {
                version,
                sum,
                found,
                bytes,
            };
            let value = (status == ChunkStatus::Here).then_some((source, as_of, term));
            let parity = member.parity();
            member.refill.on_chunk(cx, (x, parity), id, stripe, value);
        }
        _ => {}
    }
}
