//! Messages about parts of large values: to the positions that hold them, and to the owners that write and read them
//! (P14).

use crate::context::Context;
use crate::disk_log::DiskLog;
use crate::interface::{Channel, Out};
use crate::lists::{List, Role};
use crate::parts::{Answered, PositionParts, from_wire, record_of, send_state};
use crate::stream_owner::StreamOwner;
use paritas_base::configuration::Configuration;
use paritas_base::{Incarnation, NodeId, PartState, Position, StreamId};
use paritas_large::{Fingerprint, PartId, PartName};
use paritas_wire::peer::{Header, Message};

/// The position of this node that has a part of this record, by its number and group.
fn holder_of<'l, O: Out>(
    cx: &Context<'_, O>,
    list: &'l mut List,
    record: &paritas_large::Record,
    name: PartName,
) -> Option<(&'l Configuration, &'l mut PositionParts)> {
    let positions = crate::parts::positions_in_memory(cx, &list.configuration);
    let placement = record.placement(positions).ok()?;
    let part = placement.parts().find(|part| record.name_of(part) == name)?;
    let List {
        configuration, parts, ..
    } = list;
    let held = parts
        .iter_mut()
        .find(|held| held.position() == Position(part.position))?;
    Some((configuration, held))
}

/// Whether the disk of this node is behind. Then it answers no questions about parts (P11.5); they are asked again.
fn is_behind<O: Out>(cx: &mut Context<'_, O>) -> bool {
    cx.shared.disk.as_mut().is_some_and(DiskLog::holds_acks)
}

/// A message that counts only under the installed epoch. False if it is none about parts.
pub(super) fn on_fenced<O: Out>(
    cx: &mut Context<'_, O>,
    list: &mut List,
    from: (NodeId, Incarnation),
    header: &Header,
    message: &Message<'_>,
) -> bool {
    let stream = header.stream;
    let owner = list.configuration.tenure(stream.x);
    let owner = owner.filter(|owner| (owner.node, owner.incarnation) == from);
    match *message {
        Message::OpenPart {
            term,
            question,
            name,
            by_client,
            record,
        } => {
            let (Some(owner), Some(name), Some(record)) = (owner, from_wire(name), record_of(record)) else {
                return true;
            };
            if owner.term() != term || is_behind(cx) {
                return true;
            }
            let said = match holder_of(cx, list, &record, name) {
                Some((_, held)) => held.on_open(cx, stream.x, term, name, &record, by_client),
                None => PartState::Unknown.into(),
            };
            send_state(cx, &list.configuration, stream, from, name, question, &said);
        }
        Message::MakePart { name, record } => {
            let (Some(_), Some(name), Some(record)) = (owner, from_wire(name), record_of(record)) else {
                return true;
            };
            if is_behind(cx) {
                return true;
            }
            let state = match holder_of(cx, list, &record, name) {
                Some((_, held)) => held.on_make(cx, stream.x, name, &record),
                None => PartState::Unknown,
            };
            send_state(cx, &list.configuration, stream, from, name, 0, &state.into());
        }
        Message::PartState {
            name,
            question,
            state,
            fingerprint,
        } => {
            if let (Some(name), Some((configuration, owner))) = (from_wire(name), owner_of(list, stream)) {
                let fingerprint = fingerprint.map(|bytes| Fingerprint(*bytes));
                owner.on_part_state(cx, configuration, from, name, question, (state, fingerprint.as_ref()));
            }
        }
        Message::ReadGroups {
            position,
            tenure,
            after,
        } => {
            if let Some((configuration, owner)) = owner_of(list, stream) {
                owner.on_read_groups(cx, configuration, from, position, tenure, after);
            }
        }
        Message::AliveGroups {
            term,
            position,
            tenure,
            after,
            last,
            is_end,
            groups,
        } => {
            if owner.is_some_and(|owner| owner.term() == term) {
                for held in &mut list.parts {
                    held.on_page(cx, stream.x, term, (position, tenure), after, last, is_end, groups);
                }
            }
        }
        Message::FindParts { position } => {
            let any = list.parts.iter().any(|held| held.has_parts_of(stream.x));
            let found = Message::FoundParts { position, any };
            cx.send_to(from.0, from.1, Channel::Main, stream, list.configuration.epoch, &found);
        }
        Message::FoundParts { position, any } => {
            let List {
                configuration, parts, ..
            } = list;
            if let Some(held) = parts.iter_mut().find(|held| held.position() == position) {
                held.on_found(configuration, stream.x, from.0, any);
            }
        }
        _ => return false,
    }
    true
}

/// A message of an older epoch. It counts for nothing but this: a holder that speaks of a dead group is told so
/// (P14.5). Its parts may have come behind the news that the group is dead, and it asks nobody about them.
pub(super) fn on_stale<O: Out>(
    cx: &mut Context<'_, O>,
    list: &mut List,
    from: (NodeId, Incarnation),
    header: &Header,
    message: &Message<'_>,
) {
    if let Message::PartState { name, state, .. } = *message
        && let (Some(name), Some((configuration, owner))) = (from_wire(name), owner_of(list, header.stream))
    {
        owner.answer_dead(cx, configuration, from, name, state);
    }
}

/// A message that counts under every epoch: what it speaks of never changes, or it names a part that is open.
pub(super) fn on_unfenced<O: Out>(
    cx: &mut Context<'_, O>,
    list: Option<&mut List>,
    from: (NodeId, Incarnation),
    header: &Header,
    message: &Message<'_>,
) {
    let (stream, Some(list)) = (header.stream, list) else {
        return;
    };
    match *message {
        Message::PutUnit { name, unit, bytes } => {
            let Some(name) = from_wire(name) else { return };
            for at in 0..list.parts.len() {
                let Some(state) = list.parts[at].on_put(cx, stream.x, name, unit, bytes) else {
                    continue;
                };
                let id = PartId { x: stream.x, name };
                list.parts[at].answer_put(cx, &list.configuration, id, from, state.into());
            }
        }
        Message::FreeGroups { groups } => {
            for held in &mut list.parts {
                held.on_free(cx, stream.x, groups);
            }
        }
        Message::ReadUnit { id, name, unit } => {
            let epoch = list.configuration.epoch;
            let (under, asked_by) = (Header { stream, epoch }, (from.0, from.1, id));
            let is_sent = from_wire(name).is_some_and(|name| {
                let unit = (PartId { x: stream.x, name }, unit);
                let mut parts = list.parts.iter();
                parts.any(|held| held.send_stored(cx, &under, asked_by, unit))
            });
            if is_sent {
                return;
            }
            let found = from_wire(name).and_then(|name| {
                let mut parts = list.parts.iter_mut();
                parts.find_map(|held| held.read(cx, stream.x, name, unit, (from.0, from.1, id)))
            });
            let found = match found {
                Some(Answered::Now(sum, bytes)) => Some((sum, bytes)),
                Some(Answered::Later) => return,
                None => None,
            };
            let unit = found.as_ref().map(|(sum, bytes)| (*sum, bytes.as_slice()));
            let message = Message::UnitValue { id, unit };
            cx.send_to(
                from.0,
                from.1,
                Channel::Bulk,
                stream,
                list.configuration.epoch,
                &message,
            );
        }
        Message::UnitValue { id, unit } => {
            let List {
                configuration,
                roles,
                parts,
            } = list;
            if parts.iter_mut().any(|held| held.on_unit(cx, configuration, id, unit)) {
                return;
            }
            for role in roles {
                if let Role::Owner(owner) = role
                    && owner.on_body_unit(cx, configuration, id, unit)
                {
                    return;
                }
            }
            let mut readers = core::mem::take(&mut cx.shared.readers);
            readers.on_unit(cx, configuration, stream, id, unit);
            cx.shared.readers = readers;
        }
        _ => {}
    }
}

fn owner_of(list: &mut List, stream: StreamId) -> Option<(&Configuration, &mut StreamOwner)> {
    let List {
        configuration, roles, ..
    } = list;
    roles.iter_mut().find_map(|role| match role {
        Role::Owner(owner) if owner.stream() == stream => Some((&*configuration, &mut **owner)),
        _ => None,
    })
}
