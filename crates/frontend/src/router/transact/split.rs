//! A transaction is split into parts, one for the owner of each stream, and the replies of the parts are put together.

use super::super::client::Client;
use crate::redis::parts;
use crate::redis::transactions::{Place, Queue, Queued, Transaction};
use paritas_base::{Map, StreamId};
use paritas_protocol::{Context, Out, SlotMap, fits_one_delta};
use paritas_wire::command::{self, Command, CommandSpec, flag};
use paritas_wire::resp::{ArgList, Args, Limits, argument, decode, encode};
use std::borrow::Cow;

/// Bytes of replies that a transaction makes here.
pub(super) const HERE_BYTES_MAX: usize = 1 << 20;
/// The most commands of a part of several slots: the turn in which it runs must be short (P10.2b).
const TOGETHER_MAX: usize = 512;

/// How the reply of one command of a transaction is made of those of the parts. The replies of a part come in order.
#[derive(Debug)]
pub(crate) enum Piece {
    /// It is known already.
    Here(Vec<u8>),
    /// The next reply of this part.
    One(u32),
    /// The command is split over parts: the sum of their next replies.
    Sum(Vec<u32>),
    /// The same: OK.
    AllOk(Vec<u32>),
    /// The same: the next values of their arrays; for each key the place of its part among `parts`.
    InOrder { parts: Vec<u32>, place_of: Vec<u32> },
}

impl Piece {
    /// Bytes of memory that it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        let numbers = match self {
            Self::Here(reply) => return size_of::<Self>() + reply.capacity(),
            Self::One(_) => 0,
            Self::Sum(parts) | Self::AllOk(parts) => parts.capacity(),
            Self::InOrder { parts, place_of } => parts.capacity() + place_of.capacity(),
        };
        size_of::<Self>() + numbers * size_of::<u32>()
    }
}

/// A part of a transaction: its commands on some hash slots of one stream.
pub(super) struct Part<'q> {
    pub(super) stream: StreamId,
    /// Its slots, and of each one key, which is of the database `from`.
    pub(super) keys: Vec<(u16, Cow<'q, [u8]>)>,
    pub(super) count: usize,
    pub(super) commands: Cow<'q, [u8]>,
    pub(super) writes: bool,
    /// The database with which it begins, and that of its last command.
    pub(super) from: u8,
    pub(super) database: u8,
}

/// What the commands of a transaction on one slot weigh.
struct Weight {
    slot: u16,
    /// One of its keys, with its database.
    database: u8,
    key: Vec<u8>,
    count: usize,
    bytes: usize,
    /// It is known how little they change and answer.
    is_light: bool,
}

/// A transaction, split over hash slots.
#[derive(Default)]
pub(super) struct Split {
    pub(super) parts: Vec<Part<'static>>,
    pub(super) part_of_slot: Map<u16, u32>,
    pub(super) pieces: Vec<Piece>,
    pub(super) here_bytes: usize,
}

/// Whether a command changes and answers no more than its own words say. Others may change or read a long value.
fn is_light(spec: &CommandSpec, words: usize) -> bool {
    match spec.id {
        // With options it may answer the old value.
        Command::Set => words == 3,
        Command::Setnx
        | Command::Setex
        | Command::Psetex
        | Command::Mset
        | Command::Del
        | Command::Unlink
        | Command::Exists
        | Command::Touch
        | Command::Incr
        | Command::Decr
        | Command::Incrby
        | Command::Decrby
        | Command::Strlen
        | Command::Ttl
        | Command::Pttl
        | Command::Type => true,
        _ => false,
    }
}

impl<'q> Part<'q> {
    /// The whole of a transaction, if it is in one slot.
    pub(super) fn whole<O: Out>(cx: &Context<'_, O>, transaction: &'q Transaction, queue: &'q Queue) -> Option<Self> {
        let watched = transaction.watched_key();
        let first = queue.commands.first();
        let key = match first {
            Some(queued) => first_key(queued.spec, queue.bytes_of(queued)),
            // The part that has it begins in its database.
            None => watched.filter(|(database, _)| *database == queue.database)?.1,
        };
        let slot = match first {
            Some(_) => queue.only_slot()?,
            None => transaction.watched_slot()?,
        };
        Some(Self {
            stream: cx.shared.slots.stream_of(slot),
            keys: vec![(slot, key.into())],
            count: queue.commands.len(),
            commands: queue.bytes.as_slice().into(),
            writes: queue.writes(),
            from: queue.database,
            database: queue.database,
        })
    }

    pub(super) fn spec(&self) -> &'static CommandSpec {
        match self.writes {
            true => Command::RunTransaction.spec(),
            false => Command::ReadTransaction.spec(),
        }
    }

    /// The command for its owner, in `out`, which is empty. `watched`: the transaction whose watched keys are in this
    /// part.
    pub(super) fn to_command(&self, mut out: Vec<u8>, watched: Option<&Transaction>) -> Vec<u8> {
        let mut versions = Vec::new();
        match watched.filter(|transaction| transaction.watched_key().is_some()) {
            Some(transaction) => transaction.append_watched(&mut versions),
            None => versions.extend_from_slice(encode::EMPTY_ARRAY),
        }
        let keys_bytes: usize = self.keys.iter().map(|(_, key)| key.len() + 16).sum();
        out.reserve(96 + versions.len() + self.commands.len() + keys_bytes);
        encode::array_header(&mut out, 4 + self.keys.len());
        encode::bulk(&mut out, self.spec().name.as_bytes());
        encode::bulk(&mut out, &versions);
        encode::bulk_integer(&mut out, self.count as i64);
        encode::bulk(&mut out, &self.commands);
        self.keys.iter().for_each(|(_, key)| encode::bulk(&mut out, key));
        out
    }
}

impl Split {
    /// Splits a transaction over the hash slots of its keys. Watched keys, if there are any, are in the first part.
    pub(super) fn of<O: Out>(
        cx: &Context<'_, O>,
        client: &mut Client,
        transaction: &Transaction,
        queue: &Queue,
    ) -> Self {
        let mut split = Self::default();
        let watched = transaction.watched_key();
        let mut args = Args::new();
        let mut weights = Weights::new(&cx.shared.slots);
        if let Some((database, key)) = watched {
            weights.add((database, key), 0, 0, true);
        }
        for queued in &queue.commands {
            let bytes = queue.bytes_of(queued);
            if matches!(queued.place, Place::Here | Place::Known) || decode(bytes, &Limits::DEFAULT, &mut args).is_err()
            {
                continue;
            }
            let args = args.list(bytes);
            let is_light = is_light(queued.spec, args.len());
            match queued.place {
                Place::Slots => {
                    let step = usize::from(queued.spec.step.unsigned_abs()).max(1);
                    for at in command::keys(queued.spec, args) {
                        let words = (at..at + step).map(|at| args.arg(at).len() + 16);
                        weights.add((queued.database, args.arg(at)), 1, words.sum(), is_light);
                    }
                }
                _ => {
                    let first = command::keys(queued.spec, args).next();
                    let key = first.map_or(&[][..], |at| args.arg(at));
                    weights.add((queued.database, key), 1, bytes.len(), is_light);
                }
            }
        }
        split.make_parts(cx, weights.all);
        for queued in &queue.commands {
            split.add(cx, client, queued, queue.bytes_of(queued), &mut args);
        }
        split
    }

    /// Makes a part of each slot, or of several slots of a stream whose commands are few and light.
    fn make_parts<O: Out>(&mut self, cx: &Context<'_, O>, weights: Vec<Weight>) {
        // For each stream and database the part that may take more, with its weight.
        let mut open: Map<(StreamId, u8), (u32, usize, usize)> = Map::default();
        for Weight {
            slot,
            database,
            key,
            count,
            bytes,
            is_light,
        } in weights
        {
            let stream = cx.shared.slots.stream_of(slot);
            let fits = |count, bytes| count <= TOGETHER_MAX && fits_one_delta(&cx.shared.parameters, count, bytes);
            if let Some((at, with, of)) = open.get_mut(&(stream, database))
                && is_light
                && fits(*with + count, *of + bytes)
                && let Some(part) = self.parts.get_mut(*at as usize)
            {
                (*with, *of) = (*with + count, *of + bytes);
                part.keys.push((slot, key.into()));
                self.part_of_slot.insert(slot, *at);
                continue;
            }
            let at = self.parts.len() as u32;
            self.part_of_slot.insert(slot, at);
            self.parts.push(Part {
                stream,
                keys: vec![(slot, key.into())],
                count: 0,
                commands: Vec::with_capacity(bytes).into(),
                writes: false,
                from: database,
                database,
            });
            if is_light {
                open.insert((stream, database), (at, count, bytes));
            }
        }
    }

    fn add<O: Out>(
        &mut self,
        cx: &Context<'_, O>,
        client: &mut Client,
        queued: &Queued,
        bytes: &[u8],
        args: &mut Args,
    ) {
        let spec = queued.spec;
        match queued.place {
            Place::Slot(slot) => {
                let part = self.part_of_slot.get(&slot).copied().unwrap_or_default();
                self.add_to(part, queued, |out| out.extend_from_slice(bytes));
                self.pieces.push(Piece::One(part));
            }
            Place::Here => {
                let mut reply = Vec::new();
                if self.here_bytes <= HERE_BYTES_MAX && decode(bytes, &Limits::DEFAULT, args).is_ok() {
                    client.answer_at_once(cx.now.wall_ms, spec, args.list(bytes), &mut reply);
                }
                self.here_bytes += reply.len();
                self.pieces.push(Piece::Here(reply));
            }
            Place::Known => {
                self.here_bytes += bytes.len();
                self.pieces.push(Piece::Here(bytes.to_vec()));
            }
            Place::Slots => {
                if decode(bytes, &Limits::DEFAULT, args).is_ok() {
                    self.add_over_slots(&cx.shared.slots, queued, args.list(bytes));
                }
            }
        }
    }

    fn add_to(&mut self, part: u32, queued: &Queued, write: impl FnOnce(&mut Vec<u8>)) {
        if let Some(part) = self.parts.get_mut(part as usize) {
            part.count += 1;
            part.writes |= queued.spec.is(flag::WRITE);
            if part.database != queued.database {
                part.database = queued.database;
                let number = queued.database.to_string();
                let words = [Command::Select.spec().name.as_bytes(), number.as_bytes()];
                parts::append_words(part.commands.to_mut(), words.into_iter());
            }
            write(part.commands.to_mut());
        }
    }

    /// Adds a command whose keys are in several slots to the parts of these slots.
    fn add_over_slots(&mut self, slots: &SlotMap, queued: &Queued, args: ArgList<'_>) {
        let spec = queued.spec;
        let step = usize::from(spec.step.unsigned_abs()).max(1);
        // Its parts with the arguments that are their keys, and the place of each part there.
        let mut keys_by_part: Vec<(u32, Vec<usize>)> = Vec::new();
        let (mut place_of_part, mut place_of) = (Map::default(), Vec::new());
        for at in command::keys(spec, args) {
            let part = self
                .part_of_slot
                .get(&slots.slot(queued.database, args.arg(at)))
                .copied()
                .unwrap_or_default();
            let place = *place_of_part.entry(part).or_insert(keys_by_part.len() as u32);
            place_of.push(place);
            match keys_by_part.get_mut(place as usize) {
                Some((_, keys)) => keys.push(at),
                None => keys_by_part.push((part, vec![at])),
            }
        }
        let parts = keys_by_part.iter().map(|(part, _)| *part).collect();
        for (part, keys) in keys_by_part {
            let words = keys.iter().flat_map(|at| *at..*at + step).map(|at| args.arg(at));
            let words: Vec<&[u8]> = core::iter::once(args.arg(0)).chain(words).collect();
            self.add_to(part, queued, |out| parts::append_words(out, words.into_iter()));
        }
        self.pieces.push(match spec.id {
            Command::Mget => Piece::InOrder { parts, place_of },
            Command::Mset => Piece::AllOk(parts),
            _ => Piece::Sum(parts),
        });
    }
}

/// What the commands of each slot weigh, in the order in which the slots come.
struct Weights<'s> {
    slots: &'s SlotMap,
    all: Vec<Weight>,
    of_slot: Map<u16, usize>,
}

impl<'s> Weights<'s> {
    fn new(slots: &'s SlotMap) -> Self {
        Self {
            slots,
            all: Vec::new(),
            of_slot: Map::default(),
        }
    }

    fn add(&mut self, (database, key): (u8, &[u8]), count: usize, bytes: usize, is_light: bool) {
        let slot = self.slots.slot(database, key);
        let at = *self.of_slot.entry(slot).or_insert(self.all.len());
        if let Some(weight) = self.all.get_mut(at) {
            weight.count += count;
            weight.bytes += bytes;
            weight.is_light &= is_light;
        } else {
            self.all.push(Weight {
                slot,
                database,
                key: key.to_vec(),
                count,
                bytes,
                is_light,
            });
        }
    }
}

/// The first key of a command.
fn first_key<'q>(spec: &CommandSpec, bytes: &'q [u8]) -> &'q [u8] {
    let at = usize::from(spec.first_key.unsigned_abs()) + usize::from(spec.is(flag::KEY_COUNT));
    argument(bytes, at).unwrap_or_default()
}

/// Puts the replies of a transaction's commands in order. `replies`: those of the parts.
pub(crate) fn combine<'r>(pieces: &'r [Piece], replies: impl Iterator<Item = &'r [u8]> + Clone, out: &mut Vec<u8>) {
    // A watched key has changed, or nothing of the only part was done.
    let is_none = |reply: &[u8]| parts::is_nothing(reply) || reply.starts_with(b"*-1") || reply.starts_with(b"-");
    if let (Some(only), None) = (replies.clone().next(), replies.clone().nth(1))
        && is_none(only)
    {
        return out.extend_from_slice(only);
    }
    // The refusal of a part is the reply of each of its commands.
    let mut rests: Vec<(&[u8], bool)> = replies
        .map(|reply| match reply.first() {
            Some(b'*') => (parts::head(reply).1, false),
            _ => (reply, true),
        })
        .collect();
    let mut next = |part: &u32| {
        let Some((rest, is_refused)) = rests.get_mut(*part as usize) else {
            return &[][..];
        };
        if *is_refused {
            return *rest;
        }
        let (element, after) = rest.split_at(parts::reply_bytes(rest));
        *rest = after;
        element
    };
    encode::array_header(out, pieces.len());
    for piece in pieces {
        let (of, place_of) = match piece {
            Piece::Here(reply) => {
                out.extend_from_slice(reply);
                continue;
            }
            Piece::One(part) => {
                out.extend_from_slice(next(part));
                continue;
            }
            Piece::Sum(of) | Piece::AllOk(of) => (of, None),
            Piece::InOrder { parts, place_of } => (parts, Some(place_of)),
        };
        let elements: Vec<&[u8]> = of.iter().map(&mut next).collect();
        if let Some(error) = elements.iter().find(|element| element.first() == Some(&b'-')) {
            out.extend_from_slice(error);
        } else if let Some(place_of) = place_of {
            let mut values: Vec<&[u8]> = elements.iter().map(|element| parts::head(element).1).collect();
            encode::array_header(out, place_of.len());
            for place in place_of {
                if let Some(rest) = values.get_mut(*place as usize) {
                    let (value, after) = rest.split_at(parts::element_bytes(rest));
                    out.extend_from_slice(value);
                    *rest = after;
                }
            }
        } else if matches!(piece, Piece::AllOk(_)) {
            encode::ok(out);
        } else {
            encode::integer(out, elements.iter().map(|element| parts::head(element).0).sum());
        }
    }
}
