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

pub(crate) use keys::copy_options;
pub(crate) use keyspace::{is_flush_mode, slot_number};
pub(crate) use strings::key_count_error;

use crate::dialect::{Dialect, Refusal};
use crate::redis::scripts::Scripts;
use paritas_base::Time;
use paritas_base::configuration::{Configuration, NodeRecord};
use paritas_protocol::{
    Access, Context, Effect, KEY_STEPS, Out, StreamOwner, Ticket, ValueRange, WriteRefusal, body_bytes,
};
use paritas_store::{Object, Value};
use paritas_wire::command::{Command, CommandSpec, flag};
use paritas_wire::peer::FRAME_BYTES_MAX;
use paritas_wire::resp::{ArgList, Proto, encode, errors, parse_integer};

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
    if job.args.len() > FEW_ARGS {
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

/// Whether a command with a key can be in no transaction and no script. One writes a body anew, step by step; the
/// others are about bodies of committed values, and about what a connection has staged.
pub(crate) fn is_on_its_own(id: Command) -> bool {
    matches!(
        id,
        Command::ParitasRedundancy | Command::ParitasLocate | Command::ParitasStage | Command::ParitasCommit
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

/// Facts about an existing object that a command needs when it changes the object.
#[derive(Clone, Copy, Debug)]
struct Seen {
    bytes: usize,
    expiry_ms: Option<u64>,
    flags: Option<u32>,
    is_hash: bool,
}

/// Length of an object's value in bytes, with its body if it is large.
#[inline]
fn length_of(object: &Object<'_>) -> usize {
    object.len() + object.record().map_or(0, body_bytes) as usize
}

/// What a command needs of a large value to read it.
#[derive(Clone, Debug)]
struct LargeValue {
    seen: Seen,
    record: Vec<u8>,
    tail: Vec<u8>,
}

impl LargeValue {
    /// That of an object; `None` if all of its value is in the object.
    #[inline]
    fn of(object: &Object<'_>) -> Option<Self> {
        object.record().map(|record| Self::with(object, record))
    }

    #[cold]
    fn with(object: &Object<'_>, record: &[u8]) -> Self {
        let mut tail = Vec::with_capacity(object.len());
        object.copy_to(&mut tail);
        Self {
            seen: Seen::of(object),
            record: record.to_vec(),
            tail,
        }
    }
}

impl Seen {
    #[inline]
    fn of(object: &Object<'_>) -> Self {
        Self {
            bytes: length_of(object),
            expiry_ms: object.expiry_ms(),
            flags: object.flags(),
            is_hash: object.is_hash(),
        }
    }

    /// A string value of these bytes, with the expiry and flags of the object seen before, if any.
    fn with<'v>(seen: Option<&Self>, bytes: &'v [u8]) -> Value<'v> {
        Value {
            bytes,
            expiry_ms: seen.and_then(|s| s.expiry_ms),
            flags: seen.and_then(|s| s.flags),
            hash_kind: false,
            record: &[],
        }
    }
}

impl<O: Out> Operation<'_, '_, O> {
    fn run(&mut self) -> Result<(), Stop> {
        match self.job.spec.id {
            Command::Get => self.get(),
            Command::Set => self.set(),
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

    /// The hash of the key in argument `at`.
    fn hash_of(&self, at: usize) -> u64 {
        match self.job.hash {
            Some(hash) if at == usize::from(self.job.spec.first_key.unsigned_abs()) => hash,
            _ => self.access.hash(self.job.args.arg(at)),
        }
    }

    // --- looking -------------------------------------------------------------------------------------------------

    /// Looks up the key in argument `at` and returns the result of `then` for the object. `then` may append to the
    /// reply.
    #[inline]
    fn look<T>(
        &mut self,
        at: usize,
        then: impl FnOnce(Option<&Object<'_>>, &mut Vec<u8>) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        let (key, hash) = (self.job.args.arg(at), self.hash_of(at));
        let is_use = is_use(self.job.spec.id);
        let Self {
            access, reply, lookups, ..
        } = self;
        access.look(hash, key, is_use, |object| {
            *if object.is_some() {
                &mut lookups.hits
            } else {
                &mut lookups.misses
            } += 1;
            then(object, reply)
        })?
    }

    /// The same for a key that was looked up before: the lookup does not count again.
    #[inline]
    fn look_again<T>(
        &mut self,
        at: usize,
        then: impl FnOnce(Option<&Object<'_>>, &mut Vec<u8>) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        let before = self.lookups;
        let found = self.look(at, then);
        self.lookups = before;
        found
    }

    #[inline]
    fn count_lookups(&mut self) {
        let Lookups { count, hits, misses } = self.lookups;
        if count {
            self.access.count_lookups(hits, misses);
        }
    }

    /// The same for commands on strings: any other object is an error.
    #[inline]
    fn look_string<T>(
        &mut self,
        at: usize,
        then: impl FnOnce(Option<&Object<'_>>, &mut Vec<u8>) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        self.look(at, |object, reply| match object {
            Some(object) if object.is_hash() => Err(Stop::Error(errors::WRONG_TYPE)),
            object => then(object, reply),
        })
    }

    /// What is needed to read the large value of the key in argument `at`.
    #[cold]
    fn large_at(&mut self, at: usize) -> Result<Option<LargeValue>, Stop> {
        self.look_again(at, |object, _| Ok(object.and_then(LargeValue::of)))
    }

    /// What the key in argument `at` has in another database.
    fn seen_in(&mut self, database: u8, at: usize) -> Result<Option<Seen>, Stop> {
        let key = self.job.args.arg(at);
        let hash = self.access.hash_in(database, key);
        Ok(self.access.look(hash, key, true, |object| object.map(Seen::of))?)
    }

    fn seen(&mut self, at: usize) -> Result<Option<Seen>, Stop> {
        self.look(at, |object, _| Ok(object.map(Seen::of)))
    }

    /// A copy of a string.
    fn string(&mut self, at: usize) -> Result<Option<(Seen, Vec<u8>)>, Stop> {
        let found = self.look_string(at, |object, _| {
            let Some(object) = object else { return Ok(None) };
            if let Some(large) = LargeValue::of(object) {
                return Ok(Some(Err(large)));
            }
            let mut bytes = Vec::with_capacity(object.len());
            object.copy_to(&mut bytes);
            Ok(Some(Ok((Seen::of(object), bytes))))
        })?;
        match found {
            None => Ok(None),
            Some(Ok(here)) => Ok(Some(here)),
            Some(Err(_)) => Err(Stop::Error(errors::NOT_A_FLOAT)),
        }
    }

    /// Appends the large value of the key in argument `at` to the reply.
    fn append_large_at(&mut self, at: usize) -> Result<(), Stop> {
        match self.large_at(at)? {
            Some(large) => self.append_large(at, &large),
            None => {
                encode::null(self.reply, self.proto());
                Ok(())
            }
        }
    }

    /// Appends a large value to the reply, once its body is here, or leaves it to the node of the client to read it.
    fn append_large(&mut self, at: usize, large: &LargeValue) -> Result<(), Stop> {
        let value_bytes = large.seen.bytes as u64;
        self.note_read(at, large, value_bytes);
        // MGET has weighed its values before.
        if self.job.spec.id != Command::Mget && self.is_read_by_client(value_bytes)? {
            return self.reply_long(large, 0..value_bytes);
        }
        let Self { access, reply, .. } = self;
        let body = access.body(&large.record, 0..u64::MAX)?;
        encode::bulk_header(reply, body.len() + large.tail.len());
        reply.extend_from_slice(body);
        reply.extend_from_slice(&large.tail);
        encode::bulk_end(reply);
        Ok(())
    }

    /// The command reads these bytes of the large value of the key in argument `at`. It counts when it has ended.
    fn note_read(&mut self, at: usize, large: &LargeValue, bytes: u64) {
        if self.access.counts_reads() {
            self.reads.push(ReadLarge {
                at,
                record: large.record.clone(),
                tail_bytes: large.tail.len(),
                bytes,
            });
        }
    }

    /// Whether the node of the client reads a reply of this number of bytes, of which some are in the body of a large
    /// value. It does if it is another node, or the reply is long. In a transaction it never does, so that the reply
    /// must not be too long.
    fn is_read_by_client(&mut self, bytes: u64) -> Result<bool, Stop> {
        if !self.access.is_in_draft() {
            return Ok(bytes >= self.access.streamed_bytes_min() || !self.access.is_own(self.job.ticket));
        }
        let bytes_max = self.access.mget_bytes_max();
        match bytes > bytes_max as u64 {
            true => Err(self.refuse(|out| errors::reply_too_large(out, bytes_max))),
            false => Ok(false),
        }
    }

    /// Makes these bytes of a large value the reply, which the node of the client reads.
    fn reply_long(&mut self, large: &LargeValue, range: core::ops::Range<u64>) -> Result<(), Stop> {
        let pinned = self.access.pin(self.job.ticket, &large.record, &large.tail, range)?;
        self.long = Some(Box::new(pinned));
        Ok(())
    }

    // --- changing ------------------------------------------------------------------------------------------------

    /// Stores a value under the key in argument `at`.
    fn put(&mut self, at: usize, value: Value<'_>) -> Result<(), Stop> {
        self.put_as(self.hash_of(at), at, value)
    }

    /// The same under this hash, which may be that of another database.
    fn put_as(&mut self, hash: u64, at: usize, value: Value<'_>) -> Result<(), Stop> {
        let key = self.job.args.arg(at);
        if self.job.is_staged {
            return Ok(self.access.put_staged(self.job.ticket, hash, key, value)?);
        }
        if value.bytes.len() > self.access.limits().value_bytes {
            return Ok(self.access.put_large(self.job.ticket, hash, key, value)?);
        }
        Ok(self.access.put(hash, key, value)?)
    }

    /// Removes the key in argument `at`. True if it existed.
    fn remove(&mut self, at: usize) -> Result<bool, Stop> {
        let (key, hash) = (self.job.args.arg(at), self.hash_of(at));
        Ok(self.access.remove(hash, key)?)
    }

    /// Sets the expiry of the key in argument `at`, in ms since 1970; `None`: it never expires. False if the key does
    /// not exist.
    fn set_expiry(&mut self, at: usize, expiry_ms: Option<u64>) -> Result<bool, Stop> {
        let (key, hash) = (self.job.args.arg(at), self.hash_of(at));
        Ok(self.access.set_expiry(hash, key, expiry_ms)?)
    }

    /// Refuses the key in argument `at`, or a value of `value_bytes` bytes, if it is too long.
    fn check_large_limits(&self, at: usize, value_bytes: usize) -> Result<(), Stop> {
        let key_bytes = self.job.args.arg(at).len();
        Ok(self.access.check_large_limits(key_bytes, value_bytes)?)
    }
}
