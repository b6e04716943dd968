//! Transactions at the client's node (P1.9, docs/transactions.md).
//!
//! Commands between MULTI and EXEC are kept here. EXEC gives those of one hash slot to the owner of its stream, as one
//! command: all of them happen, or none. On the any-key port a transaction may have several slots. Each is a part of
//! its own, or together with others of its stream if they are few. The replies are put in the order of the commands.

mod split;

use super::call::Call;
use super::client::{Caller, Client, Wait};
use super::gather::{Gather, How, splits};
use super::prefetch::slots_of;
use super::{Dispatcher, Ran, forward};
use crate::dialect::Refusal;
use crate::redis::commands::{Job, is_on_its_own, key_count_error};
use crate::redis::connection::{database_number, may_be_in_transaction};
use crate::redis::parts;
use crate::redis::transactions::{Place, Queue, Transaction, is_function_call};
use paritas_protocol::{Context, KEY_STEPS, Lists, Out, Port, Transactions, WriteRefusal};
use paritas_wire::command::{self, Command, CommandSpec, flag};
use paritas_wire::resp::{ArgList, Args, Decoded, Limits, decode, encode, errors, parse_integer};
use split::{HERE_BYTES_MAX, Part, Split};
pub(crate) use split::{Piece, combine};

/// The most words of a command that is split over slots, and bytes of a part.
const SPLIT_ARGS_MAX: usize = 1 << 16;
const PART_BYTES_MAX: usize = Limits::DEFAULT.whole_bytes_max;

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
