//! Commands on keys, run at the owner of their stream.
//!
//! A command reads everything it needs before it changes anything. So a command that must wait has changed nothing and
//! can be run again from its start.

mod bits;
pub(crate) mod by_client;
mod counters;
mod decimal;
mod dump;
mod expiry;
mod functions;
mod items;
mod keys;
mod keyspace;
mod lcs;
mod located;
mod redundancy;
mod script;
mod strings;
mod transaction;
mod values;

pub(crate) use keys::copy_options;
pub(crate) use keyspace::{is_flush_mode, slot_number};
pub(crate) use strings::key_count_error;

use crate::dialect::{Dialect, Refusal};
use crate::redis::scripts::Scripts;
use paritas_base::Time;
use paritas_base::configuration::{Configuration, NodeRecord};
use paritas_protocol::{Access, Context, Effect, KEY_STEPS, Out, StreamOwner, Ticket, ValueRange, WriteRefusal};
use paritas_wire::command::{Command, CommandSpec, flag};
use paritas_wire::peer::FRAME_BYTES_MAX;
use paritas_wire::resp::{ArgList, Proto, encode, errors, parse_integer};
use values::{LargeValue, Seen, length_of};

/// The longest reply of a command with many keys, in bytes. Without a limit, a short command (`MGET k k k …`) could
/// fill the memory with its reply. This length still fits in a frame to another node, beside the frame's other fields.
pub(crate) const REPLY_BYTES_MAX: usize = FRAME_BYTES_MAX - 256;

/// Commands with more arguments take from the budget of the turn.
const FEW_ARGS: usize = 64;
/// The most arguments of a command on one stream: all its keys are looked up in one turn. Pairs of MSET have a limit of
/// their own.
const ARGS_MAX: usize = 1 << 16;

/// The result of running a command.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Executed {
    /// It has run, and its reply is appended.
    Replied(Effect),
    /// It has run, and the node of its client reads the reply. Nothing is appended.
    Long(Effect, Box<ValueRange>),
    /// It cannot run yet. It has changed nothing and appended nothing. If it waits for a large value: when something of
    /// that was sent or received last.
    Stalled(Option<Time>),
}

/// Why a command stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stop {
    /// It must wait until the state of the stream changes.
    Wait,
    /// It ends with a refusal.
    Refused(Refusal),
    /// It ends with this error, in the form of Redis.
    Error(&'static str),
    /// A script needs more memory than a light one may have: all runs again.
    Heavier,
    /// It ends with an error that is already appended to the reply.
    Written,
}

impl From<paritas_protocol::Stop> for Stop {
    fn from(stop: paritas_protocol::Stop) -> Self {
        match stop {
            paritas_protocol::Stop::Wait => Self::Wait,
            paritas_protocol::Stop::Refused(refusal) => Self::Refused(Refusal::Write(refusal)),
        }
    }
}

/// A command to run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job<'a> {
    pub(crate) spec: &'static CommandSpec,
    pub(crate) args: ArgList<'a>,
    /// Its bytes, for another node. Empty if none but this one may run it.
    pub(crate) raw: &'a [u8],
    pub(crate) dialect: Dialect,
    /// The client's.
    pub(crate) database: u8,
    /// The hash of its first key, if it is known.
    pub(crate) hash: Option<u64>,
    /// Names the command while it waits and is run again.
    pub(crate) ticket: Ticket,
    /// Its value was sent ahead of it, and is empty here.
    pub(crate) is_staged: bool,
}

/// One command while it runs on its stream.
struct Operation<'a, 'c, O: Out> {
    access: Access<'a, 'c, O>,
    job: &'a Job<'a>,
    reply: &'a mut Vec<u8>,
    /// Offset in `reply` at which the reply of this command begins.
    start: usize,
    /// The node of the client reads the reply.
    long: Option<Box<ValueRange>>,
    /// Large values that it has read, if reads are counted.
    reads: Vec<ReadLarge>,
    lookups: Lookups,
    /// All nodes, for addresses. Not known in a transaction.
    nodes: &'a [NodeRecord],
    /// The budget of the turn has admitted it, and its many arguments may have left nothing of that.
    is_admitted: bool,
}

impl<'a, 'c, O: Out> Operation<'a, 'c, O> {
    #[inline]
    fn new(access: Access<'a, 'c, O>, job: &'a Job<'a>, reply: &'a mut Vec<u8>) -> Self {
        Self {
            access,
            job,
            start: reply.len(),
            reply,
            long: None,
            reads: Vec::new(),
            lookups: Lookups {
                count: job.spec.is(flag::READONLY),
                ..Lookups::default()
            },
            nodes: &[],
            is_admitted: false,
        }
    }
}

/// The lookups of a command.
#[derive(Clone, Copy, Default)]
struct Lookups {
    /// Whether they count for INFO: as in Redis, those of commands that read.
    count: bool,
    hits: u32,
    misses: u32,
}

/// What a command has read of a large value.
struct ReadLarge {
    /// The argument with its key.
    at: usize,
    record: Vec<u8>,
    tail_bytes: usize,
    bytes: u64,
}

/// Runs one command on keys of one stream. The owner must be in the phase Serve. `nodes`: all of the cluster.
pub(crate) fn execute<O: Out>(
    cx: &mut Context<'_, O>,
    configuration: &Configuration,
    owner: &mut StreamOwner,
    job: &Job<'_>,
    scripts: &mut Scripts,
    nodes: &[NodeRecord],
    reply: &mut Vec<u8>,
) -> Executed {
    if is_transaction(job.spec.id) {
        return transaction::execute(cx, configuration, owner, job, scripts, reply);
    }
    if job.spec.id == Command::ParitasCommit {
        return by_client::commit(cx, configuration, owner, job, scripts, nodes, reply);
    }
    let has_many_args = job.args.len() > FEW_ARGS;
    if has_many_args {
        if job.args.len() > ARGS_MAX && !sets_pairs(job.spec.id) {
            encode::error(reply, errors::TOO_MANY_KEYS);
            return Executed::Replied(Effect::None);
        }
        if !admit_many(cx, job.args.len()) {
            return Executed::Stalled(None);
        }
    }
    let access = Access::new(cx, configuration, owner, job.database);
    let mut operation = Operation {
        nodes,
        is_admitted: has_many_args,
        ..Operation::new(access, job, reply)
    };
    let result = operation.run();
    let is_plain = operation.long.is_none() && operation.reads.is_empty() && !job.is_staged;
    if result.is_ok() && is_plain && !sets_pairs(job.spec.id) {
        operation.count_lookups();
        return Executed::Replied(operation.access.finish());
    }
    end(operation, result)
}

/// Whether a command sets several keys to values.
pub(crate) fn sets_pairs(id: Command) -> bool {
    matches!(id, Command::Mset | Command::Msetnx | Command::Msetex)
}

/// Whether a command with a key can be in no transaction and no script. Some give a body a class of its own, which
/// drafts do not have; the others are about bodies of committed values, and about what a connection has staged.
pub(crate) fn is_on_its_own(id: Command) -> bool {
    matches!(
        id,
        Command::ParitasRedundancy
            | Command::ParitasSet
            | Command::ParitasLocate
            | Command::ParitasStage
            | Command::ParitasCommit
    )
}

/// Whether a command runs on a draft.
pub(crate) fn is_transaction(id: Command) -> bool {
    matches!(
        id,
        Command::RunTransaction
            | Command::ReadTransaction
            | Command::RunScript
            | Command::ReadScript
            | Command::ChangeFunctions
    )
}

/// Takes the work of a command with many keys from the budget of the turn. Returns whether it may run in this turn.
#[cold]
fn admit_many<O: Out>(cx: &mut Context<'_, O>, args_count: usize) -> bool {
    let budget = &mut cx.shared.turn_budget;
    let admits = budget.admits();
    if admits {
        budget.spend(args_count as u64 * KEY_STEPS);
    }
    admits
}

/// Ends a command that has failed or must wait, or that may have used large values.
fn end<O: Out>(mut operation: Operation<'_, '_, O>, result: Result<(), Stop>) -> Executed {
    let result = uncertain_if_begun(&operation.access, result);
    match result {
        Err(Stop::Wait) => {}
        Err(Stop::Refused(Refusal::Write(WriteRefusal::NoMemory))) => operation.access.count_refused_write(),
        _ => operation.count_lookups(),
    }
    let Operation {
        mut access,
        job,
        reply,
        start,
        long,
        reads,
        lookups: _,
        nodes: _,
        is_admitted: _,
    } = operation;
    if result.is_ok() {
        for read in &reads {
            let key = job.args.arg(read.at);
            access.note_read(access.hash(key), key, &read.record, read.tail_bytes, read.bytes);
        }
    }
    if job.is_staged && result != Err(Stop::Wait) {
        access.unstage(job.ticket);
    }
    if sets_pairs(job.spec.id) && result != Err(Stop::Wait) {
        access.end_arguments(job.ticket);
    }
    match long {
        Some(long) if result.is_ok() => {
            reply.truncate(start);
            return Executed::Long(access.finish(), long);
        }
        Some(_) => access.unpin(job.ticket),
        None => {}
    }
    let moved_at = access.moved_at();
    end_of(access, job.dialect, result, start, reply, moved_at)
}

/// A command that finds too little space before its first change must wait, or is refused. Space was reserved before
/// that. If it is missing all the same after the first change, part of the command has happened, so its result is
/// uncertain.
fn uncertain_if_begun<O: Out>(access: &Access<'_, '_, O>, result: Result<(), Stop>) -> Result<(), Stop> {
    let is_stuck = matches!(
        result,
        Err(Stop::Wait | Stop::Refused(Refusal::Write(WriteRefusal::NoMemory)))
    );
    if is_stuck && access.has_begun() {
        return Err(Stop::Refused(Refusal::Write(WriteRefusal::Uncertain)));
    }
    result
}

/// Appends what takes the place of the reply if the command has failed, and ends its access.
fn end_of<O: Out>(
    access: Access<'_, '_, O>,
    dialect: Dialect,
    result: Result<(), Stop>,
    start: usize,
    reply: &mut Vec<u8>,
    moved_at: Option<Time>,
) -> Executed {
    match result {
        Ok(()) | Err(Stop::Written) => {}
        Err(Stop::Refused(refusal)) => {
            reply.truncate(start);
            dialect.refuse(reply, refusal);
        }
        Err(Stop::Error(text)) => {
            reply.truncate(start);
            dialect.error(reply, text);
        }
        Err(Stop::Wait | Stop::Heavier) => {
            reply.truncate(start);
            return Executed::Stalled(moved_at);
        }
    }
    Executed::Replied(access.finish())
}

/// Whether reading a key counts as a use of it. As in Redis, commands that only ask about a key are no use.
#[inline]
fn is_use(id: Command) -> bool {
    !matches!(
        id,
        Command::Exists
            | Command::Type
            | Command::ObjectEncoding
            | Command::ObjectFreq
            | Command::ObjectIdletime
            | Command::ObjectRefcount
            | Command::MemoryUsage
            | Command::Ttl
            | Command::Pttl
            | Command::Expiretime
            | Command::Pexpiretime
    )
}

impl<O: Out> Operation<'_, '_, O> {
    fn run(&mut self) -> Result<(), Stop> {
        match self.job.spec.id {
            Command::Get => self.get(),
            Command::Set => self.set(1),
            Command::ParitasSet => self.set_with_class(),
            Command::Setnx => self.setnx(),
            Command::Setex => self.setex(expiry::Unit::Seconds),
            Command::Psetex => self.setex(expiry::Unit::Milliseconds),
            Command::Getset => self.getset(),
            Command::Getdel => self.getdel(),
            Command::Delifeq => self.delifeq(),
            Command::Getex => self.getex(),
            Command::Mget => self.mget(),
            Command::Mset => self.mset(),
            Command::Msetnx => self.msetnx(),
            Command::Msetex => self.msetex(),
            Command::Append => self.append(),
            Command::Strlen => self.strlen(),
            Command::Lcs => self.lcs(),
            Command::Getrange | Command::Substr => self.getrange(),
            Command::Setrange => self.setrange(),
            Command::Getbit => self.getbit(),
            Command::Setbit => self.setbit(),
            Command::Bitcount => self.bitcount(),
            Command::Bitpos => self.bitpos(),
            Command::Bitop => self.bitop(),
            Command::Bitfield => self.bitfield(false),
            Command::BitfieldRo => self.bitfield(true),
            Command::ParitasRedundancy => self.redundancy(),
            Command::ParitasLocate => self.locate(),
            Command::ParitasStage => self.stage(),
            Command::ReadItem => self.read_item(),
            Command::ChangeItem => self.change_item(),
            Command::StoreItem => self.store_item(),
            Command::KeyVersions => self.key_versions(),
            Command::ReadObject => self.read_object(),
            Command::WriteObject => self.write_object(),
            Command::RemoveObject => self.remove_object(),
            Command::Incr => self.increment(1),
            Command::Decr => self.increment(-1),
            Command::Incrby => self.incrby(),
            Command::Decrby => self.decrby(),
            Command::Incrbyfloat => self.incrbyfloat(),
            Command::Del | Command::Unlink => self.delete(),
            Command::Exists | Command::Touch => self.exists(),
            Command::Type => self.kind(),
            Command::Copy => self.copy(),
            Command::Move => self.move_key(),
            Command::Rename => self.rename(false),
            Command::Renamenx => self.rename(true),
            Command::ObjectEncoding => self.object_encoding(),
            Command::ObjectFreq => self.object_freq(),
            Command::ObjectIdletime => self.object_idletime(),
            Command::ObjectRefcount => self.object_refcount(),
            Command::MemoryUsage => self.memory_usage(),
            Command::Expire => self.expire(expiry::Unit::Seconds),
            Command::Pexpire => self.expire(expiry::Unit::Milliseconds),
            Command::Expireat => self.expire(expiry::Unit::UnixSeconds),
            Command::Pexpireat => self.expire(expiry::Unit::UnixMilliseconds),
            Command::Ttl => self.ttl(|at, now| at.saturating_sub(now).saturating_add(500) / 1000),
            Command::Pttl => self.ttl(|at, now| at.saturating_sub(now)),
            Command::Expiretime => self.ttl(|at, _| at.saturating_add(500) / 1000),
            Command::Pexpiretime => self.ttl(|at, _| at),
            Command::Persist => self.persist(),
            Command::Scan => self.scan(),
            Command::Randomkey => self.randomkey(),
            Command::Dbsize => self.dbsize(),
            Command::FlushStep => self.flush_step(),
            Command::ReadFunctions => self.read_functions(),
            Command::Dump => self.dump(),
            Command::Restore => self.restore(),
            _ => Err(Stop::Error("ERR this command does not run on a stream")),
        }
    }

    // --- arguments -----------------------------------------------------------------------------------------------

    fn count(&self) -> usize {
        self.job.args.len()
    }

    /// Whether an argument is this word, ignoring case. `word` is in lower case.
    fn is_word(&self, at: usize, word: &str) -> bool {
        self.job.args.arg(at).eq_ignore_ascii_case(word.as_bytes())
    }

    fn integer(&self, at: usize) -> Result<i64, Stop> {
        parse_integer(self.job.args.arg(at)).ok_or(Stop::Error(errors::NOT_AN_INTEGER))
    }

    /// The version of Redis' protocol that the client speaks.
    fn proto(&self) -> Proto {
        self.job.dialect.proto()
    }

    /// Ends the command with the error that `write` appends.
    fn refuse(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Stop {
        self.reply.truncate(self.start);
        write(self.reply);
        Stop::Written
    }
}
