//! Transactions at the client's node (P1.9, docs/transactions.md).
//!
//! Commands between MULTI and EXEC are kept here. EXEC gives those of one hash slot to the owner of its stream, as one
//! command: all of them happen, or none. On the any-key port a transaction may have several slots. Each is a part of
//! its own, or together with others of its stream if they are few. The replies are put in the order of the commands.

use super::call::Call;
use super::client::{Caller, Client, Wait};
use super::gather::{Gather, How, splits};
use super::prefetch::slots_of;
use super::{Dispatcher, Job, Ran, forward};
use crate::dialect::Refusal;
use crate::redis::commands::{is_on_its_own, key_count_error};
use crate::redis::connection::{database_number, may_be_in_transaction};
use crate::redis::parts;
use crate::redis::transactions::{Place, Queue, Queued, Transaction, is_function_call};
use paritas_base::{Map, StreamId};
use paritas_protocol::{Context, KEY_STEPS, Lists, Out, Port, SlotMap, Transactions, WriteRefusal, fits_one_delta};
use paritas_wire::command::{self, Command, CommandSpec, flag};
use paritas_wire::resp::{ArgList, Args, Decoded, Limits, argument, decode, encode, errors, parse_integer};
use std::borrow::Cow;

/// Bytes of replies that a transaction makes here.
const HERE_BYTES_MAX: usize = 1 << 20;
/// The most words of a command that is split over slots, and bytes of a part.
const SPLIT_ARGS_MAX: usize = 1 << 16;
const PART_BYTES_MAX: usize = Limits::DEFAULT.whole_bytes_max;
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
struct Part<'q> {
    stream: StreamId,
    /// Its slots, and of each one key, which is of the database `from`.
    keys: Vec<(u16, Cow<'q, [u8]>)>,
    count: usize,
    commands: Cow<'q, [u8]>,
    writes: bool,
    /// The database with which it begins, and that of its last command.
    from: u8,
    database: u8,
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
struct Split {
    parts: Vec<Part<'static>>,
    part_of_slot: Map<u16, u32>,
    pieces: Vec<Piece>,
    here_bytes: usize,
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

impl Dispatcher {
    /// Handles the commands of transactions, and keeps the commands of an open one. `None`: it is an ordinary command
    /// that may run.
    #[cold]
    pub(crate) fn transact<O: Out>(&mut self, call: &mut Call<'_, '_, O>, job: &Job<'_>) -> Option<Ran> {
        let Job { spec, args, .. } = *job;
        if matches!(call.client.caller, Caller::Remote(..)) {
            return None;
        }
        if spec.is(flag::INTERNAL) {
            call.client.break_transaction();
            return Some(self.reply_now(call, |out| errors::unknown_command(out, args)));
        }
        let is_open = call
            .client
            .transaction
            .as_ref()
            .is_some_and(|transaction| transaction.is_open());
        let error = match (spec.id, is_open) {
            (Command::Multi, true) => errors::MULTI_NESTED,
            (Command::Exec, false) => errors::EXEC_WITHOUT_MULTI,
            (Command::Discard, false) => errors::DISCARD_WITHOUT_MULTI,
            (Command::Watch, true) => errors::WATCH_INSIDE_MULTI,
            (Command::Multi, false) => {
                let spare = core::mem::take(&mut self.spare_queue);
                let database = call.client.database;
                call.client.transaction.get_or_insert_default().begin(database, spare);
                return Some(self.reply_now(call, encode::ok));
            }
            // What an earlier WATCH has seen must be known first.
            (Command::Exec | Command::Discard | Command::Reset, _) | (Command::Unwatch, false)
                if call.client.awaits_watch() =>
            {
                call.client.stalled_since = None;
                return Some(Ran::Stalled);
            }
            (Command::Exec, true) => return Some(self.exec(call, spec)),
            (Command::Discard, true) => {
                call.client.end_transaction();
                return Some(self.reply_now(call, encode::ok));
            }
            (Command::Unwatch, false) => {
                call.client.end_transaction();
                return Some(self.reply_now(call, encode::ok));
            }
            (Command::Watch, false) => return Some(self.watch(call, args)),
            (Command::Reset, _) => {
                call.client.end_transaction();
                return None;
            }
            (_, false) if spec.is(flag::FUNCTION) => return Some(self.function(call, job)),
            (_, false) if spec.is(flag::SCRIPT) => return Some(self.script(call, job)),
            (Command::Quit, _) | (_, false) => return None,
            (_, true) => {
                let start = call.turn.bytes.len();
                self.enqueue(call, spec, args);
                self.push(call, start, Wait::Ready);
                return Some(Ran::Done);
            }
        };
        Some(self.reply_now(call, |out| encode::error(out, error)))
    }

    /// Keeps a command of an open transaction, or refuses it, and with it the transaction.
    fn enqueue<O: Out>(&mut self, call: &mut Call<'_, '_, O>, spec: &'static CommandSpec, args: ArgList<'_>) {
        // What a function call calls is known only when EXEC has come.
        let is_call = is_function_call(spec.id);
        if spec.is(flag::SCRIPT) && !is_call {
            return self.enqueue_script(call, spec, args);
        }
        let Call {
            cx,
            lists,
            client,
            turn,
        } = call;
        let reply = &mut turn.bytes;
        let (port, start) = (client.port, reply.len());
        let Some(transaction) = &mut client.transaction else {
            return;
        };
        let mut place = Place::Here;
        if args.len() > SPLIT_ARGS_MAX {
            encode::error(reply, errors::TOO_MANY_KEYS);
        } else if command::lacks_keys(spec, args) {
            encode::error(reply, key_count_error(args.arg(1)));
        } else if command::keys_of(spec, args).len() > 0 && !is_on_its_own(spec.id) {
            let mut slots = slots_of(&cx.shared.slots, transaction.database(client.database), spec, args);
            let first = slots.next().unwrap_or_default();
            let is_one = slots.all(|slot| slot == first);
            let watched = transaction.watched_slot();
            let is_in_one = transaction.note_slot(first) && is_one;
            let may_split = port == Port::Any && splits(spec.id);
            place = match is_one || !is_whole(spec, args) {
                true => Place::Slot(first),
                false => Place::Slots,
            };
            if watched.is_some_and(|watched| watched != first || !is_one) || !(is_one || may_split) {
                encode::error(reply, errors::TRANSACTION_CROSSSLOT);
            } else if !is_in_one && port == Port::Cluster {
                encode::error(reply, errors::CROSSSLOT);
            } else if !is_in_one && cx.shared.parameters.transactions == Transactions::Strict {
                encode::error(reply, errors::TRANSACTION_STRICT);
            } else if port == Port::Cluster
                && let Some(address) = self.address_elsewhere(cx, lists, first)
            {
                let key = command::keys_of(spec, args).next().map_or(&[][..], |at| args.arg(at));
                client.dialect.redirect(reply, key, &address);
            }
        } else if is_call && parse_integer(args.arg(2)) == Some(0) {
            encode::error(reply, errors::SCRIPT_WITHOUT_KEYS);
        } else if !is_call && !may_be_in_transaction(spec.id) {
            errors::not_in_transaction(reply, spec.name);
        }
        if reply.len() == start && !transaction.push(spec, place, args) {
            encode::error(reply, errors::TRANSACTION_TOO_LONG);
        }
        if spec.id == Command::Select
            && let Ok(database) = database_number(args.arg(1))
        {
            transaction.select(database);
        }
        if reply.len() == start {
            encode::simple(reply, "QUEUED");
        } else {
            transaction.break_up();
        }
    }

    /// Keeps a script of an open transaction, as the command between nodes that it becomes.
    fn enqueue_script<O: Out>(&mut self, call: &mut Call<'_, '_, O>, spec: &'static CommandSpec, args: ArgList<'_>) {
        let error = match self.scripts.call(spec, args) {
            Ok(called) if called.has_keys() => {
                let (mut bytes, mut args) = (Vec::new(), Args::new());
                called.append_command(None, &mut bytes);
                if let Ok(Decoded::Complete { .. }) = decode(&bytes, &Limits::DEFAULT, &mut args) {
                    return self.enqueue(call, called.spec(), args.list(&bytes));
                }
                errors::TRANSACTION_TOO_LONG.to_owned()
            }
            Ok(_) => errors::SCRIPT_WITHOUT_KEYS.to_owned(),
            Err(text) => text,
        };
        encode::error(&mut call.turn.bytes, &error);
        call.client.break_transaction();
    }

    /// The address of the owner of a slot, if another node owns it.
    pub(crate) fn address_elsewhere<O: Out>(&self, cx: &Context<'_, O>, lists: &Lists, slot: u16) -> Option<String> {
        let stream = cx.shared.slots.stream_of(slot);
        if lists.owner(stream).is_some() {
            return None;
        }
        let (owner, _) = forward::owner_at(lists, stream)?;
        let node = self.nodes.iter().find(|node| node.id == owner.node)?;
        Some(node.cluster_address.clone())
    }

    fn watch<O: Out>(&mut self, call: &mut Call<'_, '_, O>, args: ArgList<'_>) -> Ran {
        if call.client.is_behind_detours() || call.client.awaits_watch() {
            call.client.stalled_since = None;
            return Ran::Stalled;
        }
        let (port, database) = (call.client.port, call.client.database);
        let slot_of = |key: &[u8]| call.cx.shared.slots.slot(database, key);
        let slot = slot_of(args.arg(1));
        let transaction = call.client.transaction.get_or_insert_default();
        let mut refusal = Vec::new();
        let mut slots = args.iter().skip(1).map(slot_of).chain(transaction.watched_slot());
        if !transaction.may_watch(args.len() - 1) {
            encode::error(&mut refusal, errors::TOO_MANY_WATCHED);
        } else if slots.any(|other| other != slot) {
            encode::error(&mut refusal, errors::TRANSACTION_CROSSSLOT);
        } else if port == Port::Cluster
            && let Some(address) = self.address_elsewhere(call.cx, call.lists, slot)
        {
            call.client.dialect.redirect(&mut refusal, args.arg(1), &address);
        }
        if !refusal.is_empty() {
            if transaction.is_empty() {
                call.client.transaction = None;
            }
            return self.reply_now(call, |out| out.extend_from_slice(&refusal));
        }
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for key in args.iter().skip(1) {
            if !transaction.watches(database, key) && !keys.iter().any(|other| other == key) {
                keys.push(key.to_vec());
            }
        }
        if keys.is_empty() {
            // They are watched since before, which is stricter.
            return self.reply_now(call, encode::ok);
        }
        if is_unserved(call.cx, call.lists, slot) {
            return self.stall(call, Command::Watch.spec());
        }
        transaction.begin_watch(slot);
        let spec = Command::KeyVersions.spec();
        let mut bytes = Vec::new();
        let words: Vec<&[u8]> = core::iter::once(spec.name.as_bytes())
            .chain(keys.iter().map(Vec::as_slice))
            .collect();
        parts::append_words(&mut bytes, words.into_iter());
        let stream = call.cx.shared.slots.stream_of(slot);
        self.gather(call, How::Versions(keys), vec![(spec, stream, bytes)])
    }

    fn exec<O: Out>(&mut self, call: &mut Call<'_, '_, O>, spec: &'static CommandSpec) -> Ran {
        let may_run = call
            .client
            .transaction
            .as_ref()
            .is_some_and(|transaction| transaction.may_run());
        if !may_run {
            call.client.end_transaction();
            return self.reply_now(call, |out| encode::error(out, errors::EXECABORT));
        }
        if call.client.is_behind_detours() {
            return Ran::Stalled;
        }
        let calls = call.client.transaction.as_ref().is_some_and(|t| t.calls_functions());
        if calls && let Err(ran) = self.resolve_calls(call, spec) {
            if ran != Ran::Stalled {
                call.client.end_transaction();
            }
            return ran;
        }
        // It is split and copied, and again when it stalls.
        if !call.cx.shared.turn_budget.admits() {
            return Ran::Stalled;
        }
        let Some(mut transaction) = call.client.transaction.take() else {
            return Ran::Done;
        };
        let ran = self.exec_taken(call, spec, &transaction);
        let (count, bytes) = transaction
            .queue()
            .map_or((0, 0), |queue| (queue.commands.len(), queue.bytes.len()));
        let steps = count as u64 * KEY_STEPS / 2 + bytes as u64 / 4;
        call.cx.shared.turn_budget.spend(steps);
        if ran == Ran::Stalled {
            call.client.transaction = Some(transaction);
        } else if let Some(spare) = transaction.take_spare() {
            self.spare_queue = spare;
        }
        ran
    }

    /// Puts what they call in the place of the transaction's function calls. `Err`: EXEC stalls, or is refused.
    fn resolve_calls<O: Out>(&mut self, call: &mut Call<'_, '_, O>, spec: &'static CommandSpec) -> Result<(), Ran> {
        let functions = self.present_libraries(call, spec)?;
        let (port, mut args) = (call.client.port, Args::new());
        let resolve = |spec: &CommandSpec, bytes: &[u8], out: &mut Vec<u8>| {
            if decode(bytes, &Limits::DEFAULT, &mut args).is_err() {
                return None;
            }
            match Self::function_call(&functions, spec, args.list(bytes), port) {
                Ok(called) => {
                    called.append_command(None, out);
                    Some(called.spec())
                }
                Err(text) => {
                    encode::error(out, &text);
                    None
                }
            }
        };
        let fits = call
            .client
            .transaction
            .as_mut()
            .is_none_or(|t| t.resolve_calls(resolve));
        match fits {
            true => Ok(()),
            false => Err(self.reply_now(call, |out| {
                encode::error(out, errors::TRANSACTION_TOO_LONG);
            })),
        }
    }

    fn exec_taken<O: Out>(
        &mut self,
        call: &mut Call<'_, '_, O>,
        spec: &'static CommandSpec,
        transaction: &Transaction,
    ) -> Ran {
        let Some(queue) = transaction.queue() else {
            return Ran::Done;
        };
        if let Some(part) = Part::whole(call.cx, transaction, queue) {
            return self.exec_part(call, spec, transaction, &part);
        }
        let split = Split::of(call.cx, call.client, transaction, queue);
        let mut keys = split.parts.iter().flat_map(|part| &part.keys);
        if keys.any(|(slot, _)| is_unserved(call.cx, call.lists, *slot)) {
            return self.stall(call, spec);
        }
        if split.here_bytes > HERE_BYTES_MAX {
            return self.reply_now(call, |out| {
                encode::error(out, errors::TRANSACTION_REPLY_TOO_LONG);
            });
        }
        if split.parts.iter().any(|part| part.commands.len() > PART_BYTES_MAX) {
            let bytes_max = PART_BYTES_MAX;
            let refusal = Refusal::Write(WriteRefusal::CommandTooLarge { bytes_max });
            return self.reply_refusal(call, refusal);
        }
        if call.client.port == Port::Cluster
            && let Some((slot, key)) = split.parts.first().and_then(|part| part.keys.first())
            && let Some(address) = self.address_elsewhere(call.cx, call.lists, *slot)
        {
            let dialect = call.client.dialect;
            return self.reply_now(call, |out| dialect.redirect(out, key, &address));
        }
        if queue.writes() {
            call.client.last_write_n = call.client.next_n;
        }
        let watched = transaction.watched_key().map(|_| transaction);
        let parts = split.parts.iter().enumerate();
        let parts = parts.map(|(at, part)| {
            let bytes = part.to_command(Vec::new(), watched.filter(|_| at == 0));
            (part.spec(), (part.stream, part.from), bytes)
        });
        let parts = parts.collect();
        self.count_transaction(queue, spec);
        let how = How::Transaction {
            pieces: split.pieces,
            selects: queue.selects.then_some(queue.database),
        };
        let ran = self.gather_in(call, how, parts);
        if queue.selects {
            // Which database the commands behind it mean is known with its reply.
            call.client.await_newest();
        }
        ran
    }

    /// EXEC of a transaction of one slot.
    fn exec_part<O: Out>(
        &mut self,
        call: &mut Call<'_, '_, O>,
        spec: &'static CommandSpec,
        transaction: &Transaction,
        part: &Part<'_>,
    ) -> Ran {
        if part
            .keys
            .first()
            .is_some_and(|(slot, _)| is_unserved(call.cx, call.lists, *slot))
        {
            return self.stall(call, spec);
        }
        if part.commands.len() > PART_BYTES_MAX {
            let bytes_max = PART_BYTES_MAX;
            let refusal = Refusal::Write(WriteRefusal::CommandTooLarge { bytes_max });
            return self.reply_refusal(call, refusal);
        }
        if part.writes {
            call.client.last_write_n = call.client.next_n;
        }
        let bytes = part.to_command(self.spare.pop().unwrap_or_default(), Some(transaction));
        let mut part_args = core::mem::take(&mut self.part_args);
        let decoded = decode(&bytes, &Limits::DEFAULT, &mut part_args);
        debug_assert!(matches!(decoded, Ok(Decoded::Complete { .. })));
        let args = part_args.list(&bytes);
        let job = call.client.job(call.cx, part.spec(), args, &bytes);
        let ran = self.run_on(call, &job, part.stream);
        self.part_args = part_args;
        self.recycle(bytes);
        if ran != Ran::Stalled
            && let Some(queue) = transaction.queue()
        {
            self.count_transaction(queue, spec);
        }
        ran
    }

    /// Counts the commands of a transaction, and EXEC.
    fn count_transaction(&mut self, queue: &Queue, spec: &CommandSpec) {
        let ids = queue.commands.iter().map(|queued| queued.spec.id);
        ids.chain([spec.id]).for_each(|id| self.counters.count(id, false));
    }
}

/// Whether a slot belongs to a stream of this node that does not serve it now (P10.8).
pub(super) fn is_unserved<O: Out>(cx: &Context<'_, O>, lists: &Lists, slot: u16) -> bool {
    let place = cx.shared.slots.place(slot);
    !place.served && lists.owner(place.stream).is_some()
}

/// Whether each key of a command has its value. If not, the owner refuses it.
fn is_whole(spec: &CommandSpec, args: ArgList<'_>) -> bool {
    let step = usize::from(spec.step.unsigned_abs()).max(1);
    (args.len() - 1).is_multiple_of(step)
}

impl<'q> Part<'q> {
    /// The whole of a transaction, if it is in one slot.
    fn whole<O: Out>(cx: &Context<'_, O>, transaction: &'q Transaction, queue: &'q Queue) -> Option<Self> {
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

    fn spec(&self) -> &'static CommandSpec {
        match self.writes {
            true => Command::RunTransaction.spec(),
            false => Command::ReadTransaction.spec(),
        }
    }

    /// The command for its owner, in `out`, which is empty. `watched`: the transaction whose watched keys are in this
    /// part.
    fn to_command(&self, mut out: Vec<u8>, watched: Option<&Transaction>) -> Vec<u8> {
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
    fn of<O: Out>(cx: &Context<'_, O>, client: &mut Client, transaction: &Transaction, queue: &Queue) -> Self {
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

    /// Its transaction has ended, or nothing is watched any more.
    pub(crate) fn end_transaction(&mut self) {
        if let Some(transaction) = &mut self.transaction {
            transaction.clear();
            if transaction.is_empty() {
                self.transaction = None;
            }
        }
    }

    /// A WATCH is answered.
    pub(crate) fn end_watch(&mut self, gather: &Gather) {
        if let (Some(transaction), Some(versions)) = (&mut self.transaction, gather.versions()) {
            transaction.end_watch(versions);
            if transaction.is_empty() {
                self.transaction = None;
            }
        }
    }
}
