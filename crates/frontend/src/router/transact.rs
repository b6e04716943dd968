//! Transactions at the client's node (P1.9, docs/transactions.md).
//!
//! Commands between MULTI and EXEC are kept here. EXEC gives those of one hash slot to the owner of its stream, as one
//! command: all of them happen, or none. On the any-key port a transaction may have several slots; each is a part of
//! its own, and the replies are put in the order of the commands.

use super::client::{Caller, Client};
use super::gather::{Gather, How, splits};
use super::{Dispatcher, Job, Ran, Turn, forward};
use crate::redis::connection::is_answered_at_once;
use crate::redis::parts;
use crate::redis::transactions::Transaction;
use paritas_base::{Map, StreamId};
use paritas_protocol::{Context, Lists, Out, Port, Transactions};
use paritas_wire::command::{self, Command, CommandSpec, flag};
use paritas_wire::resp::{ArgList, Args, Decoded, Limits, decode, encode, errors};

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
    /// The same: the next values of their arrays, for each key the part with its value.
    InOrder { parts: Vec<u32>, part_of: Vec<u32> },
}

impl Piece {
    /// Bytes of memory that it holds beside itself.
    pub(crate) fn held_bytes(&self) -> usize {
        let numbers = match self {
            Self::Here(reply) => return reply.capacity(),
            Self::One(_) => 0,
            Self::Sum(parts) | Self::AllOk(parts) => parts.capacity(),
            Self::InOrder { parts, part_of } => parts.capacity() + part_of.capacity(),
        };
        size_of::<Self>() + numbers * size_of::<u32>()
    }
}

/// A part of a transaction: its commands on one hash slot.
struct Part {
    stream: StreamId,
    key: Vec<u8>,
    commands: Vec<Vec<u8>>,
    writes: bool,
}

/// A transaction, split over hash slots.
#[derive(Default)]
struct Split {
    parts: Vec<Part>,
    part_of_slot: Map<u16, u32>,
    pieces: Vec<Piece>,
}

impl Dispatcher {
    /// Handles the commands of transactions, and keeps the commands of an open one. `None`: it is an ordinary command
    /// that may run.
    #[allow(clippy::too_many_arguments)] // One command's whole surroundings.
    #[cold]
    pub(crate) fn transact<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        lists: &mut Lists,
        client: &mut Client,
        turn: &mut Turn<'_>,
        spec: &'static CommandSpec,
        args: ArgList<'_>,
    ) -> Option<Ran> {
        if matches!(client.caller, Caller::Remote(..)) {
            return None;
        }
        if spec.is(flag::INTERNAL) {
            return Some(self.reply_now(cx, lists, client, turn, |out| errors::unknown_command(out, args)));
        }
        let is_open = client
            .transaction
            .as_ref()
            .is_some_and(|transaction| transaction.is_open());
        let error = match (spec.id, is_open) {
            (Command::Multi, true) => errors::MULTI_NESTED,
            (Command::Exec, false) => errors::EXEC_WITHOUT_MULTI,
            (Command::Discard, false) => errors::DISCARD_WITHOUT_MULTI,
            (Command::Watch, true) => errors::WATCH_INSIDE_MULTI,
            (Command::Multi, false) => {
                client.transaction.get_or_insert_default().begin();
                return Some(self.reply_now(cx, lists, client, turn, encode::ok));
            }
            // What an earlier WATCH has seen must be known first.
            (Command::Exec | Command::Discard | Command::Reset, _) | (Command::Unwatch, false)
                if client.awaits_watch() =>
            {
                client.stalled_since = None;
                return Some(Ran::Stalled);
            }
            (Command::Exec, true) => return Some(self.exec(cx, lists, client, turn, spec)),
            (Command::Discard, true) => {
                client.transaction = None;
                return Some(self.reply_now(cx, lists, client, turn, encode::ok));
            }
            (Command::Unwatch, false) => {
                if let Some(transaction) = &mut client.transaction {
                    transaction.unwatch();
                }
                return Some(self.reply_now(cx, lists, client, turn, encode::ok));
            }
            (Command::Watch, false) => return Some(self.watch(cx, lists, client, turn, args)),
            (Command::Reset, _) => {
                client.transaction = None;
                return None;
            }
            (Command::Quit, _) | (_, false) => return None,
            (_, true) => {
                let mut reply = Vec::new();
                self.enqueue(cx, lists, client, spec, args, &mut reply);
                return Some(self.reply_now(cx, lists, client, turn, |out| out.extend_from_slice(&reply)));
            }
        };
        Some(self.reply_now(cx, lists, client, turn, |out| encode::error(out, error)))
    }

    /// Keeps a command of an open transaction, or refuses it, and with it the transaction.
    fn enqueue<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        lists: &Lists,
        client: &mut Client,
        spec: &'static CommandSpec,
        args: ArgList<'_>,
        reply: &mut Vec<u8>,
    ) {
        let port = client.port;
        let Some(transaction) = &mut client.transaction else {
            return;
        };
        if spec.has_keys() && spec.id != Command::ParitasRedundancy {
            let mut slots = command::keys(spec, args.len()).map(|at| command::slot(args.arg(at)));
            let first = slots.next().unwrap_or_default();
            let is_one = slots.all(|slot| slot == first);
            let watched = transaction.watched_slot();
            let is_in_one = transaction.note_slot(first) && is_one;
            let may_split = port == Port::Any && splits(spec.id);
            if watched.is_some_and(|watched| watched != first || !is_one) || !(is_one || may_split) {
                encode::error(reply, errors::TRANSACTION_CROSSSLOT);
            } else if !is_in_one && port == Port::Cluster {
                encode::error(reply, errors::CROSSSLOT);
            } else if !is_in_one && cx.shared.parameters.transactions == Transactions::Strict {
                encode::error(reply, errors::TRANSACTION_STRICT);
            } else if port == Port::Cluster
                && let Some(address) = self.address_elsewhere(cx, lists, first)
            {
                client.dialect.redirect(reply, first, &address);
            }
        } else if !is_answered_at_once(spec.id) {
            errors::not_in_transaction(reply, spec.name);
        }
        if reply.is_empty() && !transaction.push(spec, args) {
            encode::error(reply, errors::TRANSACTION_TOO_LONG);
        }
        if reply.is_empty() {
            encode::simple(reply, "QUEUED");
        } else {
            transaction.break_up();
        }
    }

    /// The address of the owner of a slot, if another node owns it.
    fn address_elsewhere<O: Out>(&self, cx: &Context<'_, O>, lists: &Lists, slot: u16) -> Option<String> {
        let stream = cx.shared.slots.stream_of(slot);
        if lists.owner(stream).is_some() {
            return None;
        }
        let (owner, _) = forward::owner_at(lists, stream)?;
        let node = self.nodes.iter().find(|node| node.id == owner.node)?;
        Some(node.cluster_address.clone())
    }

    fn watch<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        lists: &mut Lists,
        client: &mut Client,
        turn: &mut Turn<'_>,
        args: ArgList<'_>,
    ) -> Ran {
        if client.detours > 0 {
            client.stalled_since = None;
            return Ran::Stalled;
        }
        let slot = command::slot(args.arg(1));
        let watched = client
            .transaction
            .as_ref()
            .and_then(|transaction| transaction.watched_slot());
        let mut slots = args.iter().skip(1).map(command::slot).chain(watched);
        if slots.any(|other| other != slot) {
            return self.reply_now(cx, lists, client, turn, |out| {
                encode::error(out, errors::TRANSACTION_CROSSSLOT);
            });
        }
        if client.port == Port::Cluster
            && let Some(address) = self.address_elsewhere(cx, lists, slot)
        {
            let dialect = client.dialect;
            return self.reply_now(cx, lists, client, turn, |out| dialect.redirect(out, slot, &address));
        }
        if is_unserved(cx, lists, args.arg(1)) {
            return self.stall(cx, lists, client, turn, Command::Watch.spec());
        }
        client.transaction.get_or_insert_default().begin_watch(slot);
        let spec = Command::KeyVersions.spec();
        let mut bytes = Vec::new();
        encode::array_header(&mut bytes, args.len());
        encode::bulk(&mut bytes, spec.name.as_bytes());
        args.iter().skip(1).for_each(|key| encode::bulk(&mut bytes, key));
        let keys = args.iter().skip(1).map(<[u8]>::to_vec).collect();
        let stream = cx.shared.slots.stream_of(slot);
        self.gather(
            cx,
            lists,
            client,
            turn,
            How::Versions(keys),
            vec![(spec, stream, bytes)],
        )
    }

    fn exec<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        lists: &mut Lists,
        client: &mut Client,
        turn: &mut Turn<'_>,
        spec: &'static CommandSpec,
    ) -> Ran {
        let Some(transaction) = client.transaction.take() else {
            return self.reply_now(cx, lists, client, turn, |out| {
                encode::error(out, errors::EXEC_WITHOUT_MULTI);
            });
        };
        let Some(queue) = transaction.queue().filter(|queue| !queue.is_broken()) else {
            return self.reply_now(cx, lists, client, turn, |out| encode::error(out, errors::EXECABORT));
        };
        if client.detours > 0 {
            client.stalled_since = None;
            client.transaction = Some(transaction);
            return Ran::Stalled;
        }
        let split = self.split_transaction(cx, client, &transaction);
        if split.parts.iter().any(|part| is_unserved(cx, lists, &part.key)) {
            let ran = self.stall(cx, lists, client, turn, spec);
            if ran == Ran::Stalled {
                client.transaction = Some(transaction);
            }
            return ran;
        }
        if queue.writes() {
            client.last_write_n = client.next_n;
        }
        // A command that is answered here has no part.
        let is_one_part = split.parts.len() == 1 && split.pieces.iter().all(|piece| matches!(piece, Piece::One(_)));
        if !is_one_part {
            queue
                .commands()
                .for_each(|(spec, _)| self.counters.count(spec.id, false));
            self.counters.count(spec.id, false);
            let watched = transaction.watched_key().map(|_| &transaction);
            let parts = split.parts.iter().enumerate();
            let parts = parts.map(|(at, part)| {
                let watched = watched.filter(|_| at == 0).map(Box::as_ref);
                (part.spec(), part.stream, part.to_command(watched))
            });
            let parts = parts.collect();
            return self.gather(cx, lists, client, turn, How::Transaction(split.pieces), parts);
        }
        let Some(part) = split.parts.first() else {
            return Ran::Done;
        };
        let bytes = part.to_command(Some(&transaction));
        let mut part_args = core::mem::take(&mut self.part_args);
        let ran = match decode(&bytes, &Limits::DEFAULT, &mut part_args) {
            Ok(Decoded::Complete { .. }) => {
                let job = Job {
                    spec: part.spec(),
                    args: part_args.list(&bytes),
                    dialect: client.dialect,
                    hash: None,
                    ticket: client.ticket(cx),
                    is_staged: false,
                };
                self.run_on(cx, lists, client, turn, &job, &bytes, part.stream)
            }
            // Its commands together are longer than one may be.
            _ => self.reply_now(cx, lists, client, turn, |out| {
                encode::error(out, errors::TRANSACTION_TOO_LONG);
            }),
        };
        self.part_args = part_args;
        if ran == Ran::Stalled {
            client.transaction = Some(transaction);
        } else {
            queue
                .commands()
                .for_each(|(spec, _)| self.counters.count(spec.id, false));
            self.counters.count(spec.id, false);
        }
        ran
    }

    /// Splits a transaction over the hash slots of its keys. Watched keys, if there are any, are in the first part.
    fn split_transaction<O: Out>(&self, cx: &Context<'_, O>, client: &mut Client, transaction: &Transaction) -> Split {
        let mut split = Split::default();
        if let Some(key) = transaction.watched_key() {
            split.part(cx, key);
        }
        let mut args = Args::new();
        for (spec, bytes) in transaction.queue().into_iter().flat_map(|queue| queue.commands()) {
            let Ok(Decoded::Complete { .. }) = decode(bytes, &Limits::DEFAULT, &mut args) else {
                continue;
            };
            let args = args.list(bytes);
            if !spec.has_keys() {
                let mut reply = Vec::new();
                client.answer_at_once(cx.now.wall_ms, spec, args, &mut reply);
                split.pieces.push(Piece::Here(reply));
                continue;
            }
            let first = command::keys(spec, args.len())
                .next()
                .map_or(&[][..], |at| args.arg(at));
            let slot = command::slot(first);
            let is_one = command::keys(spec, args.len()).all(|at| command::slot(args.arg(at)) == slot);
            // A command whose words are not whole is refused by the owner.
            let step = usize::from(spec.step.unsigned_abs()).max(1);
            let is_whole = (args.len() - 1).is_multiple_of(step);
            if is_one || !is_whole {
                let part = split.part(cx, first);
                split.add(part, bytes.to_vec(), spec);
                split.pieces.push(Piece::One(part));
            } else {
                split.add_over_slots(cx, spec, args, step);
            }
        }
        split
    }
}

/// Whether the slot of a key belongs to a stream of this node that does not serve it now (P10.8).
fn is_unserved<O: Out>(cx: &Context<'_, O>, lists: &Lists, key: &[u8]) -> bool {
    let place = cx.shared.slots.place(command::slot(key));
    !place.served && lists.owner(place.stream).is_some()
}

impl Part {
    fn spec(&self) -> &'static CommandSpec {
        match self.writes {
            true => Command::RunTransaction.spec(),
            false => Command::ReadTransaction.spec(),
        }
    }

    /// The command for its owner. `watched`: the transaction whose watched keys are in this part.
    fn to_command(&self, watched: Option<&Transaction>) -> Vec<u8> {
        let mut versions = Vec::new();
        match watched {
            Some(transaction) => transaction.append_watched(&mut versions),
            None => versions.extend_from_slice(encode::EMPTY_ARRAY),
        }
        let mut out =
            Vec::with_capacity(64 + versions.len() + self.commands.iter().map(|c| c.len() + 16).sum::<usize>());
        encode::array_header(&mut out, 3 + self.commands.len());
        encode::bulk(&mut out, self.spec().name.as_bytes());
        encode::bulk(&mut out, &self.key);
        encode::bulk(&mut out, &versions);
        self.commands.iter().for_each(|command| encode::bulk(&mut out, command));
        out
    }
}

impl Split {
    /// The part for a key.
    fn part<O: Out>(&mut self, cx: &Context<'_, O>, key: &[u8]) -> u32 {
        let slot = command::slot(key);
        let part = *self.part_of_slot.entry(slot).or_insert(self.parts.len() as u32);
        if part as usize == self.parts.len() {
            self.parts.push(Part {
                stream: cx.shared.slots.stream_of(slot),
                key: key.to_vec(),
                commands: Vec::new(),
                writes: false,
            });
        }
        part
    }

    fn add(&mut self, part: u32, command: Vec<u8>, spec: &CommandSpec) {
        if let Some(part) = self.parts.get_mut(part as usize) {
            part.commands.push(command);
            part.writes |= spec.is(flag::WRITE);
        }
    }

    /// Adds a command whose keys are in several slots to the parts of these slots.
    fn add_over_slots<O: Out>(
        &mut self,
        cx: &Context<'_, O>,
        spec: &'static CommandSpec,
        args: ArgList<'_>,
        step: usize,
    ) {
        // Its parts, and for each the arguments that are keys.
        let mut keys_by_part: Vec<(u32, Vec<usize>)> = Vec::new();
        let mut part_of = Vec::new();
        for at in command::keys(spec, args.len()) {
            let part = self.part(cx, args.arg(at));
            part_of.push(part);
            match keys_by_part.iter_mut().find(|(of, _)| *of == part) {
                Some((_, keys)) => keys.push(at),
                None => keys_by_part.push((part, vec![at])),
            }
        }
        let parts = keys_by_part.iter().map(|(part, _)| *part).collect();
        for (part, keys) in keys_by_part {
            let mut bytes = Vec::new();
            let words = keys.iter().flat_map(|at| *at..*at + step).map(|at| args.arg(at));
            let words: Vec<&[u8]> = core::iter::once(args.arg(0)).chain(words).collect();
            parts::append_words(&mut bytes, words.into_iter());
            self.add(part, bytes, spec);
        }
        self.pieces.push(match spec.id {
            Command::Mget => Piece::InOrder { parts, part_of },
            Command::Mset => Piece::AllOk(parts),
            _ => Piece::Sum(parts),
        });
    }
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
        let (of, part_of) = match piece {
            Piece::Here(reply) => {
                out.extend_from_slice(reply);
                continue;
            }
            Piece::One(part) => {
                out.extend_from_slice(next(part));
                continue;
            }
            Piece::Sum(of) | Piece::AllOk(of) => (of, None),
            Piece::InOrder { parts, part_of } => (parts, Some(part_of)),
        };
        let elements: Vec<&[u8]> = of.iter().map(&mut next).collect();
        if let Some(error) = elements.iter().find(|element| element.first() == Some(&b'-')) {
            out.extend_from_slice(error);
        } else if let Some(part_of) = part_of {
            let mut values: Vec<&[u8]> = elements.iter().map(|element| parts::head(element).1).collect();
            encode::array_header(out, part_of.len());
            for part in part_of {
                let at = of.iter().position(|of| of == part).unwrap_or_default();
                if let Some(rest) = values.get_mut(at) {
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

impl Client {
    /// Whether a WATCH is not answered yet.
    pub(crate) fn awaits_watch(&self) -> bool {
        let transaction = self.transaction.as_ref();
        transaction.is_some_and(|transaction| transaction.unanswered_watches > 0)
    }

    /// A command was refused before it could be kept: so is its transaction.
    pub(crate) fn break_transaction(&mut self) {
        if let Some(transaction) = &mut self.transaction {
            transaction.break_up();
        }
    }

    /// A WATCH is answered.
    pub(crate) fn end_watch(&mut self, gather: &Gather) {
        if let (Some(transaction), Some(versions)) = (&mut self.transaction, gather.versions()) {
            transaction.end_watch(versions.into_iter());
            if transaction.is_empty() {
                self.transaction = None;
            }
        }
    }
}
