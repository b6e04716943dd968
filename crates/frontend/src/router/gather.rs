//! Commands over several streams: a command is split into parts, and the replies of the parts are combined
//! (docs/commands.md).
//!
//! Each part runs as a command of its own on one stream, here or at the stream's owner. The parts together are not
//! atomic. If the keys of one stream are too many or too large for one delta, they become several parts, in order. A
//! command that looks at every key is a *walk*: it sends one SCAN after the other to each stream, because a turn must
//! be short (P10.2b).

mod rename;
mod walk;

use super::call::Call;
use super::client::{Caller, Wait};
use super::functions::Functions;
use super::one_by_one::OneByOne;
use super::replies::{Verdict, earliest};
use super::stuck::Stuck;
use super::transact::{self, Piece};
use super::{Dispatcher, Ran};
use crate::dialect::{Dialect, Refusal};
use crate::redis::commands::{self, Executed, Job, is_flush_mode, slot_number};
use crate::redis::connection::is_word;
use crate::redis::pairs::{LARGE_PAIRS_BYTES_MAX, Load};
use crate::redis::parts;
use crate::redis::refusals::{is_error, is_uncertain};
use crate::redis::transactions::Watched;
use paritas_base::{SLOT_COUNT, StreamId, Time};
use paritas_protocol::{Context, Lists, Out, Phase, Port};
use paritas_wire::command::glob::PATTERN_BYTES_MAX;
use paritas_wire::command::{self, Command, CommandSpec, flag};
use paritas_wire::peer::FRAME_BYTES_MAX;
use paritas_wire::resp::{self, ArgList, Args, Decoded, Limits, encode, errors, parse_integer};
use rename::{Rename, moves_key};
use std::sync::Arc;
use walk::{Find, Walk};

/// The most bytes of a SCAN beside its pattern.
const SCAN_REST_BYTES_MAX: usize = 4096;
/// Low bits of SCAN's cursor that hold the cursor within one stream. The bits above hold the stream's number. Some
/// clients keep a cursor in a floating-point number, which holds integers up to 2^53 only.
const CURSOR_BITS: u32 = paritas_store::CURSOR_BITS;
const _: () = assert!(
    (SLOT_COUNT as u64) << CURSOR_BITS <= 1 << 53,
    "a stream has at least one slot"
);

/// The most keys of a part: the turn in which it runs must be short (P10.2b).
const PART_KEYS_MAX: usize = 16_384;

/// A command over several streams.
#[derive(Debug)]
pub(crate) struct Gather {
    /// How the replies of the parts become one reply.
    how: How,
    dialect: Dialect,
    /// The database that it is about.
    database: u8,
    pub(crate) parts: Vec<Part>,
    /// Bytes of the replies received so far, and the most of an MGET.
    pub(crate) reply_bytes: usize,
    reply_bytes_max: usize,
}

/// The part of a gathered command that runs on one stream.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) reply: Vec<u8>,
    pub(crate) wait: Wait,
}

/// How the replies of the parts become one reply.
#[derive(Debug)]
pub(crate) enum How {
    /// The sum of the numbers.
    Sum,
    /// OK, if every part replied OK.
    AllOk,
    /// One, if every part replied so.
    AllOne,
    /// An array of values in the order of the command's keys.
    InOrder {
        /// For each key the index of the part with its value.
        part_of: Vec<u32>,
        /// The whole command, in case that the values are too long for one reply.
        command: Vec<u8>,
    },
    /// One of the replies that hold a value; `pick` is the random number that selects it.
    Any { pick: u64 },
    /// SCAN of stream number `stream`. At that stream's end, the cursor goes on to the stream numbered `next`.
    Cursor { stream: usize, next: Option<usize> },
    /// The keys that all steps of the walk have found.
    Walked(Walk),
    /// The replies of a transaction's commands, in their order. A refused part is the reply of its commands.
    Transaction {
        pieces: Vec<Piece>,
        /// The database of the connection if it is done.
        selects: Option<u8>,
    },
    /// The reply of the last of several steps, which the only part runs one after the other.
    Renamed(Box<Rename>),
    /// The reply of the only part.
    Only,
    /// The same: an answer to a question about the libraries of functions. This node has these.
    Functions(Arc<Functions>),
    /// OK, to a WATCH of these keys. The reply of the part is the array of their versions.
    Versions(Vec<Vec<u8>>),
}

/// The state of a gathered command that waits for replies.
#[derive(Default)]
pub(crate) struct Progress {
    /// The combined reply, once the client may see every part of it.
    pub(crate) reply: Option<Vec<u8>>,
    /// Deadline for sending what this turn read.
    pub(crate) deadline: Option<Time>,
    /// Commands to send next.
    pub(crate) steps: Vec<PartStep>,
    /// Bytes of replies that were freed.
    pub(crate) freed_bytes: usize,
}

/// A command that a part runs next.
pub(crate) struct PartStep {
    /// The index of the part.
    pub(crate) part: usize,
    pub(crate) spec: &'static CommandSpec,
    pub(crate) database: u8,
    pub(crate) stream: StreamId,
    pub(crate) command: Vec<u8>,
}

/// The most words of a command that is split: it is split in one turn, at about 0.1 us a word.
const SPLIT_ARGS_MAX: usize = 1 << 19;

/// Whether a command may be split into one part for each stream of its keys.
pub(crate) fn splits(id: Command) -> bool {
    matches!(
        id,
        Command::Mget | Command::Mset | Command::Del | Command::Unlink | Command::Exists | Command::Touch
    )
}

/// The same of a command with its arguments, outside of a transaction. A condition on all keys cannot be split.
fn may_split(spec: &CommandSpec, args: ArgList<'_>) -> bool {
    if spec.id != Command::Msetex {
        return splits(spec.id);
    }
    let options = 2 + 2 * command::keys(spec, args).len();
    let is_condition = |at: usize| is_word(args, at, "nx") || is_word(args, at, "xx");
    !(options..args.len()).any(is_condition)
}

/// Whether a command names no key but runs on streams.
pub(crate) fn runs_on_streams(id: Command) -> bool {
    matches!(
        id,
        Command::Keys
            | Command::Scan
            | Command::Randomkey
            | Command::Dbsize
            | Command::Flushall
            | Command::Flushdb
            | Command::FlushStep
            | Command::ClusterCountkeysinslot
            | Command::ClusterGetkeysinslot
    )
}

/// Whether a command removes all keys, or those of a database.
fn empties(id: Command) -> bool {
    matches!(id, Command::Flushall | Command::Flushdb | Command::FlushStep)
}

impl Dispatcher {
    /// Checks a peer's command on all keys of a stream, such as SCAN. Both nodes must mean the same keys (P10.8). If
    /// one of them has an older slot map, the command would miss keys that moved to the stream, or would visit keys
    /// that moved away twice.
    pub(crate) fn check_all_keys<O: Out>(
        &mut self,
        call: &mut Call<'_, '_, O>,
        spec: &'static CommandSpec,
    ) -> Option<Ran> {
        let (stream, epoch) = (call.client.remote.stream, call.client.remote.epoch);
        let (configuration, owner) = call.lists.owner(stream)?;
        let is_old = configuration.epoch < epoch;
        if let (true, Caller::Remote(node, _)) = (is_old, call.client.caller) {
            call.cx
                .ask_configuration((node, call.client.remote.incarnation), stream, epoch, epoch);
        }
        if is_old || empties(spec.id) && owner.is_handing_off() {
            return Some(self.stall(call, spec));
        }
        if epoch >= owner.slots_since() {
            return None;
        }
        let refusal = match spec.id {
            id if empties(id) => Refusal::SlotsMoving,
            Command::Scan => {
                self.tell(call.cx, call.lists, call.client, stream);
                Refusal::NotOwner
            }
            _ => return None,
        };
        Some(self.reply_refusal(call, refusal))
    }

    /// Runs a command whose keys are in several hash slots. `stream`: the stream of all these slots, if it is one.
    pub(crate) fn run_over_slots<O: Out>(
        &mut self,
        call: &mut Call<'_, '_, O>,
        job: &Job<'_>,
        stream: Option<StreamId>,
    ) -> Ran {
        let Job { spec, args, .. } = *job;
        // A part of a transaction may have several slots of the stream; it comes from a peer only.
        let refused = (call.client.port == Port::Cluster || !may_split(spec, args)) && !spec.is(flag::INTERNAL);
        let local = matches!(call.client.caller, Caller::Local(_));
        if local && moves_key(spec.id) && call.client.port == Port::Any {
            return self.rename(call, job);
        }
        match stream {
            // The command of a peer is a part already: it is never split again.
            Some(stream) if !refused && (!local || all_fits(call.cx, spec, args)) => self.run_on(call, job, stream),
            _ if !refused && local => self.split(call, job),
            _ => self.reply_refusal(call, Refusal::CrossSlot),
        }
    }

    fn split<O: Out>(&mut self, call: &mut Call<'_, '_, O>, job: &Job<'_>) -> Ran {
        let Job { spec, args, .. } = *job;
        if call.client.is_behind_detours() {
            return Ran::Stalled;
        }
        let step = usize::from(spec.step.unsigned_abs()).max(1);
        if !spec.is(flag::KEY_COUNT) && !(args.len() - 1).is_multiple_of(step) {
            let refusal = Refusal::WrongArity { name: spec.name };
            return self.reply_refusal(call, refusal);
        }
        if args.len() > SPLIT_ARGS_MAX {
            return self.reply_now(call, |out| encode::error(out, errors::TOO_MANY_ARGS));
        }
        // For each part its stream, and what it weighs. A key goes to the newest part of its stream if it still fits
        // there.
        let mut parts: Vec<(StreamId, Load)> = Vec::new();
        let small_max = small_max(call.cx);
        let mut newest: Vec<usize> = Vec::new();
        let mut part_of: Vec<u32> = Vec::with_capacity(args.len() / step);
        for at in command::keys(spec, args) {
            let stream = call.cx.shared.slots.stream_of_key(call.client.database, args.arg(at));
            let open = newest.iter_mut().find(|part| parts[**part].0 == stream);
            let part = match open {
                Some(part) if fits(call.cx, spec, parts[*part].1.and(args, at, step, small_max)) => *part,
                open => {
                    let part = parts.len();
                    parts.push((stream, Load::default()));
                    match open {
                        Some(before) => *before = part,
                        None => newest.push(part),
                    }
                    part
                }
            };
            parts[part].1 = parts[part].1.and(args, at, step, small_max);
            part_of.push(part as u32);
        }
        // Options behind the keys are those of each part.
        let is_counted = spec.is(flag::KEY_COUNT);
        let options = match is_counted {
            true => args.skip(2 + step * part_of.len()),
            false => args.skip(args.len()),
        };
        let mut commands: Vec<(StreamId, Vec<u8>)> = Vec::with_capacity(parts.len());
        for (stream, load) in parts {
            let mut bytes = self.spare.pop().unwrap_or_default();
            let others = 1 + usize::from(is_counted) + options.len();
            encode::array_header(&mut bytes, load.count * step + others);
            encode::bulk(&mut bytes, args.arg(0));
            if is_counted {
                encode::bulk_integer(&mut bytes, load.count as i64);
            }
            commands.push((stream, bytes));
        }
        for (at, part) in command::keys(spec, args).zip(&part_of) {
            (at..at + step).for_each(|at| encode::bulk(&mut commands[*part as usize].1, args.arg(at)));
        }
        for (_, bytes) in &mut commands {
            options.iter().for_each(|option| encode::bulk(bytes, option));
        }
        let how = match spec.id {
            Command::Mget => {
                let mut command = self.spare.pop().unwrap_or_default();
                command.extend_from_slice(job.raw);
                How::InOrder { part_of, command }
            }
            Command::Mset => How::AllOk,
            Command::Msetex => How::AllOne,
            _ => How::Sum,
        };
        let commands = commands.into_iter().map(|(stream, bytes)| (spec, stream, bytes));
        self.gather(call, how, commands.collect())
    }

    /// Runs a command over all streams: those of the cluster, or only those of this node on the strict port.
    pub(crate) fn run_over_streams<O: Out>(&mut self, call: &mut Call<'_, '_, O>, job: &Job<'_>) -> Ran {
        let Job { spec, args, .. } = *job;
        if call.client.is_behind_detours() {
            return Ran::Stalled;
        }
        let hands_off = |lists: &Lists| lists.iter().flat_map(|list| list.owners()).any(|o| o.is_handing_off());
        if empties(spec.id) && hands_off(call.lists) {
            return self.stall(call, spec);
        }
        let own_only = call.client.port == Port::Cluster;
        let in_scope = |lists: &Lists, stream: StreamId| !own_only || lists.owner(stream).is_some();
        let slots = call.cx.shared.cluster.slots.iter();
        let all: Vec<(usize, StreamId)> = slots
            .map(|(_, stream)| *stream)
            .enumerate()
            .filter(|(_, stream)| in_scope(call.lists, *stream))
            .collect();
        let how = match spec.id {
            Command::Dbsize => How::Sum,
            Command::Flushall | Command::Flushdb if !is_flush_mode(args) => {
                return self.reply_now(call, |out| encode::error(out, errors::SYNTAX));
            }
            Command::Flushall | Command::Flushdb => {
                let streams = all.into_iter().map(|(_, stream)| stream).collect();
                let options: &[&[u8]] = if spec.id == Command::Flushall { &[b"all"] } else { &[] };
                return self.walk(call, Find::Deleted, options, streams);
            }
            Command::Keys if args.arg(1).len() > PATTERN_BYTES_MAX => {
                return self.reply_refusal(call, Refusal::PatternTooLong);
            }
            Command::Keys => {
                let options = [b"MATCH", args.arg(1)];
                let streams = all.into_iter().map(|(_, stream)| stream).collect();
                return self.walk(call, Find::All, &options, streams);
            }
            // As for a walk (P10.8): by this node's slot map, some slot has no owner, and the only key may be in it.
            Command::Randomkey if !call.cx.shared.slots.is_whole() => return self.stall(call, spec),
            Command::Randomkey => How::Any {
                pick: call.cx.shared.prng.next_u64(),
            },
            Command::Scan => return self.scan(call, job, &all),
            _ => {
                let counts = spec.id == Command::ClusterCountkeysinslot;
                let most = parse_integer(args.arg(3)).map(usize::try_from);
                let find = match (slot_number(args.arg(2)), most) {
                    (None, _) => Err(Refusal::InvalidSlot),
                    (Some(slot), _) if counts => Ok((slot, Find::Count)),
                    (Some(slot), Some(Ok(most))) => Ok((slot, Find::UpTo(most))),
                    (_, Some(Err(_))) => Err(Refusal::InvalidKeyCount),
                    (_, None) => Err(Refusal::NotAnInteger),
                };
                let (slot, find) = match find {
                    Ok(found) => found,
                    Err(refusal) => return self.reply_refusal(call, refusal),
                };
                let stream = call.cx.shared.slots.stream_of(slot);
                if !in_scope(call.lists, stream) {
                    let nothing = if counts { encode::ZERO } else { encode::EMPTY_ARRAY };
                    return self.reply_now(call, |out| out.extend_from_slice(nothing));
                }
                let options: [&[u8]; 2] = [b"SLOT", args.arg(2)];
                return self.walk(call, find, &options, vec![stream]);
            }
        };
        // Sent as an array even if the client sent it inline: of an inline command, bytes behind the words may not have
        // arrived yet.
        let mut bytes = Vec::new();
        parts::append_command(&mut bytes, args);
        let parts = all
            .into_iter()
            .map(|(_, stream)| (spec, stream, bytes.clone()))
            .collect();
        self.gather(call, how, parts)
    }

    /// One step of SCAN, on the stream that the cursor names.
    fn scan<O: Out>(&mut self, call: &mut Call<'_, '_, O>, job: &Job<'_>, all: &[(usize, StreamId)]) -> Ran {
        let Job { spec, args, .. } = *job;
        let cursor = str::from_utf8(args.arg(1))
            .ok()
            .and_then(|text| text.parse::<u64>().ok());
        let Some(cursor) = cursor else {
            return self.reply_refusal(call, Refusal::InvalidCursor);
        };
        if args.span_bytes() > PATTERN_BYTES_MAX + SCAN_REST_BYTES_MAX {
            return self.reply_refusal(call, Refusal::PatternTooLong);
        }
        let (wanted, own) = ((cursor >> CURSOR_BITS) as usize, cursor & ((1 << CURSOR_BITS) - 1));
        let at = all.partition_point(|(number, _)| *number < wanted);
        let Some((number, stream)) = all.get(at).copied() else {
            return self.reply_now(call, |out| {
                parts::append_scanned(out, 0, encode::EMPTY_ARRAY);
            });
        };
        // If the stream of the cursor has left this scope since the last step, the scan goes on at the start of the
        // next stream.
        let own = if number == wanted { own } else { 0 };
        let mut bytes = Vec::new();
        encode::array_header(&mut bytes, args.len());
        encode::bulk(&mut bytes, args.arg(0));
        encode::bulk_integer(&mut bytes, own as i64);
        args.iter().skip(2).for_each(|arg| encode::bulk(&mut bytes, arg));
        let how = How::Cursor {
            stream: number,
            next: all.get(at + 1).map(|(number, _)| *number),
        };
        self.gather(call, how, vec![(spec, stream, bytes)])
    }

    /// Starts the parts of a command, each a command on one stream.
    pub(crate) fn gather<O: Out>(
        &mut self,
        call: &mut Call<'_, '_, O>,
        how: How,
        commands: Vec<(&'static CommandSpec, StreamId, Vec<u8>)>,
    ) -> Ran {
        let database = call.client.database;
        let commands = commands.into_iter();
        let commands = commands.map(|(spec, stream, command)| (spec, (stream, database), command));
        self.gather_in(call, how, commands.collect())
    }

    /// The same, each in its database.
    pub(crate) fn gather_in<O: Out>(
        &mut self,
        call: &mut Call<'_, '_, O>,
        how: How,
        commands: Vec<(&'static CommandSpec, (StreamId, u8), Vec<u8>)>,
    ) -> Ran {
        let start = call.turn.bytes.len();
        let mut gather = Gather {
            how,
            dialect: call.client.dialect,
            database: call.client.database,
            parts: Vec::with_capacity(commands.len()),
            reply_bytes: 0,
            reply_bytes_max: call.cx.shared.parameters.mget_bytes_max,
        };
        // Streams with a part that could not be sent yet: later parts for them must not overtake it.
        let mut waiting: Vec<StreamId> = Vec::new();
        for (at, (spec, (stream, database), command)) in commands.into_iter().enumerate() {
            let behind = waiting.contains(&stream);
            let part = self.start_part(call, spec, (stream, database), command, behind);
            if !behind && matches!(&part.wait, Wait::Forwarded(forwarded) if forwarded.target.is_none()) {
                waiting.push(stream);
            }
            gather.parts.push(part);
            call.client.forwarded_bytes += gather.add(at);
        }
        call.client.forwarded_bytes += gather.command_bytes();
        let wait = Wait::Gathered(Box::new(gather));
        self.push(call, start, wait);
        Ran::Done
    }

    fn start_part<O: Out>(
        &mut self,
        call: &mut Call<'_, '_, O>,
        spec: &'static CommandSpec,
        (stream, database): (StreamId, u8),
        command: Vec<u8>,
        behind: bool,
    ) -> Part {
        let mut reply = Vec::new();
        let is_refused = spec.is(flag::WRITE) && self.stuck.refuses_writes(call.cx, call.lists, stream);
        if !behind
            && !is_refused
            && let Some((configuration, owner)) = call.lists.owner_mut(stream)
            && owner.phase() == Phase::Serve
            && let Ok(Decoded::Complete { .. }) = resp::decode(&command, &Limits::DEFAULT, &mut self.part_args)
            // Large values are named by the number of their command while it waits. The parts of one command have one
            // number here, and numbers of their own when they are sent, also from this node to itself.
            && !(commands::sets_pairs(spec.id) && has_large(call.cx, spec, self.part_args.list(&command)))
            && !(commands::is_transaction(spec.id) && spec.is(flag::WRITE) && command.len() > small_max(call.cx))
        {
            self.stuck.serves(stream);
            let args = self.part_args.list(&command);
            let job = Job {
                database,
                ..call.client.job(call.cx, spec, args, &command)
            };
            let (scripts, nodes) = (&mut self.scripts, &self.nodes);
            let executed = commands::execute(call.cx, configuration, owner, &job, scripts, nodes, &mut reply);
            if let Executed::Replied(effect) = executed {
                let wait = Wait::of(effect, stream, owner.tenure().term(), call.cx.mono());
                self.recycle(command);
                return Part { reply, wait };
            }
            if matches!(spec.id, Command::RunTransaction | Command::ChangeFunctions) {
                // It runs again under a number of its own.
                owner.end_arguments(job.ticket);
            }
        }
        let to = (stream, database);
        let wait = self.forward(call, spec, to, command, behind);
        Part { reply, wait }
    }

    /// Starts the next steps of the command that is first in the reply queue of `client`.
    pub(crate) fn run_steps<O: Out>(&mut self, call: &mut Call<'_, '_, O>, steps: Vec<PartStep>) {
        for step in steps {
            let place = (step.stream, step.database);
            let next = self.forward(call, step.spec, place, step.command, false);
            if let Some(Wait::Gathered(gather)) = call.client.segments.front_mut().map(|head| &mut head.wait)
                && let Some(part) = gather.parts.get_mut(step.part)
            {
                part.wait = next;
            }
        }
    }
}

/// The longest value that one object takes, in bytes.
fn small_max<O: Out>(cx: &Context<'_, O>) -> usize {
    paritas_store::Limits::of(cx.shared.arena.chunk_bytes()).value_bytes
}

/// What all keys of a command weigh.
fn load_of<O: Out>(cx: &Context<'_, O>, spec: &CommandSpec, args: ArgList<'_>) -> Load {
    let (step, small_max) = (usize::from(spec.step.unsigned_abs()).max(1), small_max(cx));
    command::keys(spec, args).fold(Load::default(), |load, at| load.and(args, at, step, small_max))
}

/// Whether a value of MSET does not fit one object.
fn has_large<O: Out>(cx: &Context<'_, O>, spec: &CommandSpec, args: ArgList<'_>) -> bool {
    args.span_bytes() > small_max(cx) && load_of(cx, spec, args).has_large
}

/// Whether all keys of a command fit in one part.
fn all_fits<O: Out>(cx: &Context<'_, O>, spec: &CommandSpec, args: ArgList<'_>) -> bool {
    let (step, small_max) = (usize::from(spec.step.unsigned_abs()).max(1), small_max(cx));
    let at_most = Load::at_most(args, (args.len() - 1) / step, small_max);
    (!at_most.has_large && fits(cx, spec, at_most)) || fits(cx, spec, load_of(cx, spec, args))
}

/// Whether keys that weigh this much fit in one part.
fn fits<O: Out>(cx: &Context<'_, O>, spec: &CommandSpec, load: Load) -> bool {
    if load.count > PART_KEYS_MAX {
        return false;
    }
    if spec.is(flag::WRITE) {
        // A single pair cannot be split: its size is checked where it runs.
        let fits_way = !load.has_large || load.bytes <= LARGE_PAIRS_BYTES_MAX;
        let fits_delta = || paritas_protocol::fits_one_delta(&cx.shared.parameters, load.count, load.delta_bytes);
        load.count == 1 || (fits_way && fits_delta())
    } else {
        load.bytes <= FRAME_BYTES_MAX / 4
    }
}

impl Gather {
    /// The database of the connection once this EXEC is done, if it changes that.
    pub(crate) const fn selects(&self) -> Option<u8> {
        match self.how {
            How::Transaction { selects, .. } => selects,
            _ => None,
        }
    }

    /// What this node had when it asked for the libraries of functions, if this is such a question.
    pub(crate) const fn asks_functions(&self) -> Option<&Arc<Functions>> {
        match &self.how {
            How::Functions(known) => Some(known),
            _ => None,
        }
    }

    /// Counts the reply of part `at`, which has arrived, and returns its length in bytes. If the replies of an MGET
    /// together are too long for one reply, an error replaces this one.
    pub(crate) fn add(&mut self, at: usize) -> usize {
        let Some(part) = self.parts.get_mut(at) else { return 0 };
        // A part of a transaction may have written: its reply must not be replaced.
        let is_read = matches!(&part.wait, Wait::Forwarded(forwarded) if !forwarded.write);
        let is_bounded = match self.how {
            How::InOrder { .. } => true,
            How::Transaction { .. } => is_read,
            _ => false,
        };
        if is_bounded && self.reply_bytes + part.reply.len() > self.reply_bytes_max {
            part.reply = Vec::new();
            let bytes_max = self.reply_bytes_max;
            self.dialect
                .refuse(&mut part.reply, Refusal::ReplyTooLarge { bytes_max });
        }
        self.reply_bytes += part.reply.len();
        part.reply.len()
    }

    /// Bytes of the whole command, if it is kept. They are charged until the reply is released.
    pub(crate) fn command_bytes(&self) -> usize {
        match &self.how {
            How::InOrder { command, .. } => command.capacity(),
            How::Transaction { pieces, .. } => pieces.iter().map(Piece::held_bytes).sum(),
            How::Versions(keys) => keys.iter().map(Vec::capacity).sum(),
            _ => 0,
        }
    }

    /// The same command with its values read one by one, if it is an MGET.
    pub(crate) fn one_by_one(&self, args: &mut Args) -> Option<Box<OneByOne>> {
        match &self.how {
            How::InOrder { command, .. } => OneByOne::of_command(self.database, command, args),
            _ => None,
        }
    }

    /// The watched keys with their versions, if it is a WATCH; none if that was refused.
    pub(crate) fn versions(&self) -> Option<Vec<Watched>> {
        let How::Versions(keys) = &self.how else { return None };
        let reply = self.parts.first().map_or(&[][..], |part| part.reply.as_slice());
        let mut rest = match reply.first() {
            Some(b'*') => parts::head(reply).1,
            _ => return Some(Vec::new()),
        };
        let mut versions = Vec::with_capacity(keys.len());
        for key in keys {
            let (element, after) = rest.split_at(parts::element_bytes(rest));
            let version = parts::head(element).1.trim_ascii_end();
            versions.push(Watched {
                database: self.database,
                key: key.clone(),
                version: version.to_vec(),
            });
            rest = after;
        }
        Some(versions)
    }

    /// Bytes of memory that it occupies.
    pub(crate) fn held_bytes(&self) -> usize {
        let parts = self.parts.iter();
        let parts = parts.map(|part| size_of_val(part) + part.reply.capacity() + part.wait.held_bytes());
        let how = match &self.how {
            How::InOrder { part_of, command } => part_of.capacity() * size_of::<u32>() + command.capacity(),
            How::Walked(walk) => walk.held_bytes(),
            How::Renamed(rename) => rename.held_bytes(),
            How::Transaction { pieces, .. } => pieces.iter().map(Piece::held_bytes).sum(),
            How::Versions(keys) => keys.iter().map(Vec::capacity).sum(),
            _ => 0,
        };
        size_of::<Self>() + parts.sum::<usize>() + how
    }

    /// Checks which parts are complete, and returns the combined reply or the next steps.
    pub(crate) fn go_on<O: Out>(&mut self, cx: &Context<'_, O>, lists: &Lists, stuck: &mut Stuck) -> Progress {
        let mut progress = Progress::default();
        let mut whole = true;
        for (at, part) in self.parts.iter_mut().enumerate() {
            match stuck.judge(cx, lists, &part.wait) {
                Verdict::Hold => {
                    whole = false;
                    continue;
                }
                Verdict::Ready(until) => {
                    progress.deadline = earliest(progress.deadline, until);
                    // A step was valid while the command ran. It is not checked again later.
                    if until.is_none() || matches!(self.how, How::Walked(_) | How::Renamed(_)) {
                        part.wait = Wait::Ready;
                    }
                }
                Verdict::Instead(refusal) => {
                    part.reply.clear();
                    self.dialect.refuse(&mut part.reply, refusal);
                    part.wait = Wait::Ready;
                }
            }
            match &mut self.how {
                How::Walked(walk) => {
                    if let Some((stream, command)) = walk.take(at, &mut part.reply) {
                        progress.steps.push(PartStep {
                            part: at,
                            spec: walk.find.spec(),
                            database: self.database,
                            stream,
                            command,
                        });
                    }
                }
                How::Renamed(rename) => {
                    if let Some(next) = rename.take(self.dialect, &core::mem::take(&mut part.reply)) {
                        progress.steps.push(PartStep {
                            part: at,
                            spec: next.spec,
                            database: next.database,
                            stream: cx.shared.slots.stream_of_key(next.database, &next.key),
                            command: next.command,
                        });
                    }
                }
                _ => {}
            }
        }
        let kept_bytes = match &self.how {
            How::Walked(walk) => Some(walk.found.len()),
            How::Renamed(_) => Some(0),
            _ => None,
        };
        if let Some(kept_bytes) = kept_bytes {
            let held_bytes = kept_bytes + self.parts.iter().map(|part| part.reply.len()).sum::<usize>();
            progress.freed_bytes = self.reply_bytes.saturating_sub(held_bytes);
            self.reply_bytes -= progress.freed_bytes;
        }
        let mut reply = Vec::new();
        let errors = || self.parts.iter().map(|p| &p.reply).filter(|reply| is_error(reply));
        // If the result of one part is unknown, the client must learn that. Other errors only say that a part was
        // refused.
        let uncertain = errors().find(|reply| is_uncertain(reply));
        if let How::Transaction { .. } = self.how {
            // Each command has a reply of its own.
        } else if let Some(error) = uncertain.or_else(|| errors().next()) {
            reply.extend_from_slice(error);
        } else if let How::Walked(walk) = &self.how
            && let Some(refusal) = walk.refusal(cx)
        {
            self.dialect.refuse(&mut reply, refusal);
        }
        let enough = match &self.how {
            How::Walked(walk) => matches!(walk.find, Find::UpTo(most) if walk.count >= most),
            _ => {
                progress.deadline = progress.deadline.filter(|_| whole);
                false
            }
        };
        if enough || !reply.is_empty() {
            progress.steps.clear();
        }
        if whole && progress.steps.is_empty() {
            if reply.is_empty() {
                self.combine(&mut reply);
            }
            progress.reply = Some(reply);
        }
        progress
    }

    /// Appends the reply that combines the replies of all parts.
    fn combine(&self, out: &mut Vec<u8>) {
        let replies = || self.parts.iter().map(|part| part.reply.as_slice());
        match &self.how {
            How::AllOk => self.dialect.done(out),
            How::AllOne => self.dialect.number(out, 1),
            How::Sum => self
                .dialect
                .number(out, replies().map(|reply| parts::head(reply).0).sum()),
            How::Walked(walk) => walk.combine(self.dialect, out),
            How::Transaction { pieces, .. } => transact::combine(pieces, replies(), out),
            How::Versions(_) => self.dialect.done(out),
            How::Renamed(rename) => out.extend_from_slice(rename.reply()),
            How::Only | How::Functions(_) => out.extend_from_slice(replies().next().unwrap_or_default()),
            How::Any { pick } => {
                let some: Vec<&[u8]> = replies().filter(|reply| !parts::is_nothing(reply)).collect();
                match some.get(*pick as usize % some.len().max(1)) {
                    Some(reply) => out.extend_from_slice(reply),
                    None => self.dialect.nothing(out),
                }
            }
            How::InOrder { part_of, .. } => {
                self.dialect.values(out, part_of.len());
                let mut rests: Vec<&[u8]> = replies().map(|reply| parts::head(reply).1).collect();
                for part in part_of {
                    if let Some(rest) = rests.get_mut(*part as usize) {
                        let (element, after) = rest.split_at(parts::element_bytes(rest));
                        out.extend_from_slice(element);
                        *rest = after;
                    }
                }
            }
            How::Cursor { stream, next } => {
                let (own, keys) = parts::scanned(replies().next().unwrap_or_default());
                let cursor = match (own, next) {
                    (0, None) => 0,
                    (0, Some(next)) => (*next as u64) << CURSOR_BITS,
                    (own, _) => (*stream as u64) << CURSOR_BITS | own,
                };
                parts::append_scanned(out, cursor, keys);
            }
        }
    }
}

#[cfg(test)]
mod tests;
