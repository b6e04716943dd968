//! Prefetching: the commands of a pipeline are decoded and their keys hashed before the first of them runs. Then the
//! memory that they will touch is prefetched, first the index, then the objects. A GET has two cache misses there, and
//! they are a large part of its cost.

use super::client::Client;
use super::intake::AHEAD_MAX;
use super::staging::is_value;
use super::{Dispatcher, Router};
use crate::redis::commands::copy_options;
use crate::redis::connection::database_number;
use core::ops::Range;
use paritas_base::StreamId;
use paritas_protocol::{Context, Lists, Out, SlotMap};
use paritas_store::Arena;
use paritas_wire::command::{self, Command, CommandSpec, Refusal};
use paritas_wire::peer::{self, Kind, Message};
use paritas_wire::resp::{ArgList, Args, Decoded, Limits, ProtocolError, argument, decode, decode_more};

/// The most frames whose keys are prefetched together.
const FORWARDS_AHEAD_MAX: usize = 16;

/// A command that was decoded ahead.
#[derive(Debug)]
pub(crate) struct Ahead {
    /// Its bytes in the input.
    pub(crate) range: Range<usize>,
    pub(crate) spec: Result<&'static CommandSpec, Refusal>,
    /// The database of the client when `place` was found.
    pub(crate) database: u8,
    pub(crate) place: Target,
}

/// A client's input, and where decoding begins in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input<'a> {
    pub(crate) input: &'a [u8],
    /// Offset of the next command in bytes.
    pub(crate) from: usize,
    /// The first command was decoded in part before; the first of `args` holds the decoder's state.
    pub(crate) resume: bool,
}

/// What follows the commands that were decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Following {
    /// More commands may.
    Unknown,
    /// The beginning of a command, or nothing.
    Incomplete,
    /// The beginning of a command with an argument that is too long to be held. The arguments before it are decoded.
    Long {
        /// Offset of the line with its length.
        line: usize,
        /// Offset of its first byte.
        start: usize,
        /// Its length in bytes.
        bytes: usize,
    },
}

/// Where a command runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// It names no key.
    Keyless,
    /// Its keys are in one slot. Holds the slot's stream, and the hash of the first key if this node owns the stream.
    One(StreamId, Option<u64>),
    /// Its keys are in several slots. Holds the stream, if all of them belong to the same one.
    Slots(Option<StreamId>),
    /// One of its slots belongs to a stream of this node that does not serve the slot now (P10.8). Holds the stream of
    /// the first key.
    Unserved(StreamId),
}

impl Dispatcher {
    /// Decodes the next commands and prefetches their keys; of a client that has not given the password, only the next
    /// one. Returns what follows them in the input.
    pub(crate) fn decode_ahead<O: Out>(
        &self,
        cx: &Context<'_, O>,
        lists: &Lists,
        source: Input<'_>,
        client: &Client,
        args: &mut [Args],
        ahead: &mut Vec<Ahead>,
    ) -> Result<Following, ProtocolError> {
        ahead.clear();
        let Input { input, from, resume } = source;
        let mut at = from;
        let mut end = Ok(Following::Unknown);
        let limits = Limits {
            whole_bytes_max: (cx.shared.parameters.streamed_bytes_min as usize).saturating_sub(1),
            ..Limits::DEFAULT
        };
        // Behind the command that gives the password other limits hold.
        let (limits, count_max) = match (client.authenticated, client.is_in_transaction()) {
            // A command that is kept is kept whole.
            (true, true) => (Limits::DEFAULT, AHEAD_MAX),
            (true, false) => (limits, AHEAD_MAX),
            (false, _) => (Limits::UNAUTHENTICATED, 1),
        };
        for args in args.iter_mut().take(count_max) {
            let rest = input.get(at..).unwrap_or_default();
            let decoded = if resume && at == from {
                decode_more(rest, &limits, args)
            } else {
                decode(rest, &limits, args)
            };
            let decoded = match decoded {
                // An argument that cannot be staged is decoded whole, up to the default limits.
                Ok(Decoded::Long { .. }) if !is_value(args.list(rest)) => decode(rest, &Limits::DEFAULT, args),
                decoded => decoded,
            };
            match decoded {
                Ok(Decoded::Complete { consumed }) => {
                    ahead.push(self.look_ahead(cx, lists, client.database, args.list(rest), at..at + consumed));
                    at += consumed;
                }
                Ok(Decoded::Incomplete { .. }) => {
                    end = Ok(Following::Incomplete);
                    break;
                }
                Ok(Decoded::Long { line, start, bytes }) => {
                    end = Ok(Following::Long {
                        line: at + line,
                        start: at + start,
                        bytes,
                    });
                    break;
                }
                Err(error) => {
                    end = Err(error);
                    break;
                }
            }
        }
        if ahead.len() > 1 {
            let here = || {
                ahead.iter().filter_map(|a| match a.place {
                    Target::One(stream, Some(hash)) => Some((lists.owner(stream)?.1.store(), hash)),
                    _ => None,
                })
            };
            here().for_each(|(store, hash)| store.prefetch_line(&cx.shared.arena, hash));
            here().for_each(|(store, hash)| store.prefetch_object(&cx.shared.arena, hash));
        }
        end
    }

    /// Finds the table entry and the target of one command of a client with this database.
    pub(crate) fn look_ahead<O: Out>(
        &self,
        cx: &Context<'_, O>,
        lists: &Lists,
        database: u8,
        args: ArgList<'_>,
        range: Range<usize>,
    ) -> Ahead {
        let spec = command::resolve(args);
        let place = match &spec {
            Ok(spec) => target_of(cx, lists, database, spec, args),
            Err(_) => Target::Keyless,
        };
        Ahead {
            range,
            spec,
            database,
            place,
        }
    }
}

impl Router {
    /// Prefetches the first keys of commands that peers forward, in two stages as above.
    pub(crate) fn look_ahead(&self, arena: &Arena, lists: &Lists, frames: &[&[u8]]) {
        let mut places = [None; FORWARDS_AHEAD_MAX];
        for (place, frame) in places.iter_mut().zip(frames) {
            if peer::kind_of(frame) == Some(Kind::Forward)
                && let Ok((header, Message::Forward { database, command, .. })) = peer::decode(frame)
                && let Some((_, owner)) = lists.owner(header.stream)
                && let Some(key) = argument(command, 1)
            {
                *place = Some((owner.store(), owner.store().hash(database, key)));
            }
        }
        let here = || places.iter().flatten();
        here().for_each(|(store, hash)| store.prefetch_line(arena, *hash));
        here().for_each(|(store, hash)| store.prefetch_object(arena, *hash));
    }
}

/// The slot of the key that MOVE or COPY makes in another database.
fn slot_in_other_database(slots: &SlotMap, database: u8, spec: &CommandSpec, args: ArgList<'_>) -> Option<u16> {
    let (other, key) = match spec.id {
        Command::Move => (database_number(args.arg(2)).ok()?, args.arg(1)),
        Command::Copy => (copy_options(args).ok()?.1?, args.arg(2)),
        _ => return None,
    };
    (other != database).then(|| slots.slot(other, key))
}

/// The slots of all keys of a command.
pub(crate) fn slots_of(
    slots: &SlotMap,
    database: u8,
    spec: &CommandSpec,
    args: ArgList<'_>,
) -> impl Iterator<Item = u16> {
    let keys = command::keys_of(spec, args).map(move |at| slots.slot(database, args.arg(at)));
    keys.chain(slot_in_other_database(slots, database, spec, args))
}

/// Where a command of a client with this database runs, if it has keys.
pub(crate) fn target_of<O: Out>(
    cx: &Context<'_, O>,
    lists: &Lists,
    database: u8,
    spec: &CommandSpec,
    args: ArgList<'_>,
) -> Target {
    match spec.has_keys() && !command::lacks_keys(spec, args) {
        true => place_of(cx, lists, database, spec, args),
        false => Target::Keyless,
    }
}

/// Where a command of a client with this database runs.
fn place_of<O: Out>(cx: &Context<'_, O>, lists: &Lists, database: u8, spec: &CommandSpec, args: ArgList<'_>) -> Target {
    let slots = &cx.shared.slots;
    let mut keys = command::keys(spec, args);
    let first = keys.next().map_or(&[][..], |at| args.arg(at));
    let slot = slots.slot(database, first);
    let place = slots.place(slot);
    let stream = place.stream;
    let (mut one_slot, mut one_stream) = (true, true);
    let mut unserved = !place.served && lists.owner(stream).is_some();
    let others = keys.map(|at| slots.slot(database, args.arg(at)));
    for other in others.chain(slot_in_other_database(slots, database, spec, args)) {
        if other != slot {
            one_slot = false;
            let place = slots.place(other);
            one_stream &= place.stream == stream;
            unserved |= !place.served && lists.owner(place.stream).is_some();
        }
    }
    if unserved {
        return Target::Unserved(stream);
    }
    if !one_slot {
        return Target::Slots(one_stream.then_some(stream));
    }
    Target::One(
        stream,
        lists
            .owner(stream)
            .map(|(_, owner)| owner.store().hash(database, first)),
    )
}
