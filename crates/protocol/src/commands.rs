//! What the commands on keys do, at the owner of their stream.
//!
//! A command looks at everything it needs before it changes anything, so that one that must wait has changed nothing
//! and can be run again from its start.

mod counters;
mod decimal;
mod expiry;
mod keys;
mod keyspace;
mod room;
mod strings;
mod transfer;

pub(crate) use keyspace::slot_number;
pub(crate) use room::{fits_one_delta, housekeep};
pub(crate) use transfer::{Refused, give_up, take_in};

use crate::context::Context;
use crate::interface::Out;
use crate::mark::Mark;
use crate::parameters::{Mutant, Reads};
use crate::stream_owner::{Admission, StreamOwner};
use paritas_base::configuration::Configuration;
use paritas_store::delta::COMMAND_DELTA_BYTES_MAX;
use paritas_store::{Arena, Blocked, Delta, Object, Stream as Store, Value};
use paritas_wire::command::{Command, CommandSpec};
use paritas_wire::peer::FRAME_BYTES_MAX;
use paritas_wire::resp::{ArgList, Proto, encode, errors, parse_integer};

/// The longest reply that commands of many keys make, so that a short one (`MGET k k k …`) does not fill the memory: as
/// long as one that is forwarded may be, with room in its frame for the rest.
pub(crate) const REPLY_BYTES_MAX: usize = FRAME_BYTES_MAX - 256;

/// What a reply that was written must wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    /// Nothing: it says nothing about keys.
    None,
    /// It tells what it saw.
    Read {
        /// The delta that must be acknowledged before anyone may see it (4.1).
        need: u64,
    },
    /// It tells of a change.
    Write {
        /// The change's delta.
        seq: u64,
    },
}

/// What became of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Executed {
    /// The reply is written.
    Replied(Effect),
    /// It cannot run yet. Nothing has changed, and nothing it wrote counts.
    Stalled,
}

/// Why a command stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stop {
    /// Until something changes.
    Stall,
    /// For good, with this error.
    Error(&'static str),
    /// For good; the error is written.
    Refused,
}

/// A command to run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job<'a> {
    pub(crate) spec: &'static CommandSpec,
    pub(crate) args: ArgList<'a>,
    pub(crate) proto: Proto,
    /// The hash of its first key, if somebody has worked it out.
    pub(crate) hash: Option<u64>,
}

/// One command at work on its stream.
struct Operation<'a, 'c, O: Out> {
    cx: &'a mut Context<'c, O>,
    configuration: &'a Configuration,
    owner: &'a mut StreamOwner,
    job: Job<'a>,
    reply: &'a mut Vec<u8>,
    /// Where in `reply` its own begins.
    start: usize,
    need: u64,
    /// It has looked at keys.
    looked: bool,
    /// Writes are admitted: asked once a command, so that no command is cut in two by a full window.
    admitted: bool,
    /// Something has changed: the command's own doing, or the end of expired keys.
    changed: bool,
    /// The command's own changes have begun.
    begun: bool,
    /// It makes several changes, all in one delta: nobody may ever see some without the others (PROTOCOL 1.3).
    several: bool,
}

/// Runs one command on keys of one stream. The owner serves.
pub(crate) fn execute<O: Out>(
    cx: &mut Context<'_, O>,
    configuration: &Configuration,
    owner: &mut StreamOwner,
    job: Job<'_>,
    reply: &mut Vec<u8>,
) -> Executed {
    let start = reply.len();
    let mut operation = Operation {
        cx,
        configuration,
        owner,
        job,
        reply,
        start,
        need: 0,
        looked: false,
        admitted: false,
        changed: false,
        begun: false,
        several: false,
    };
    let mut result = operation.run();
    let stuck = matches!(result, Err(Stop::Stall | Stop::Error(errors::OOM)));
    if stuck && operation.begun {
        // Room was made sure of before; if it is gone all the same, this is what may be said.
        result = Err(Stop::Error(errors::UNCERTAIN));
    }
    let Operation {
        cx,
        owner,
        reply,
        need,
        looked,
        changed,
        ..
    } = operation;
    match result {
        Ok(()) | Err(Stop::Refused) => {}
        Err(Stop::Error(text)) => {
            reply.truncate(start);
            encode::error(reply, text);
        }
        Err(Stop::Stall) => {
            reply.truncate(start);
            return Executed::Stalled;
        }
    }
    if looked && cx.shared.parameters.reads == Reads::Confirmed {
        // The question goes out at the end of this turn.
        owner.lease_wanted = true;
        cx.out.mark(Mark::ReadConfirmed);
    }
    Executed::Replied(if changed {
        Effect::Write { seq: newest(owner) }
    } else if looked {
        Effect::Read { need }
    } else {
        Effect::None
    })
}

/// Whether looking at a key is a use of it, as Redis has it: not where only something about it is asked.
#[inline]
fn is_use(id: Command) -> bool {
    !matches!(
        id,
        Command::Exists
            | Command::Type
            | Command::ObjectEncoding
            | Command::ObjectFreq
            | Command::ObjectIdletime
            | Command::MemoryUsage
            | Command::Ttl
            | Command::Pttl
            | Command::Expiretime
            | Command::Pexpiretime
    )
}

/// The newest delta, the open one among them.
fn newest(owner: &StreamOwner) -> u64 {
    if owner.open_bytes() > 0 {
        owner.next_seq()
    } else {
        owner.seq()
    }
}

/// What a command needs to know of an object that it goes on to change.
#[derive(Clone, Copy, Debug)]
struct Seen {
    bytes: usize,
    expiry_ms: Option<u64>,
    flags: Option<u32>,
    is_hash: bool,
}

impl Seen {
    fn of(object: &Object<'_>) -> Self {
        Self {
            bytes: object.len(),
            expiry_ms: object.expiry_ms(),
            flags: object.flags(),
            is_hash: object.is_hash(),
        }
    }

    /// Other bytes under the same expiry.
    fn with<'v>(seen: Option<&Self>, bytes: &'v [u8]) -> Value<'v> {
        Value {
            bytes,
            expiry_ms: seen.and_then(|s| s.expiry_ms),
            flags: seen.and_then(|s| s.flags),
            hash_kind: false,
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
            Command::Getex => self.getex(),
            Command::Mget => self.mget(),
            Command::Mset => self.mset(),
            Command::Msetnx => self.msetnx(),
            Command::Append => self.append(),
            Command::Strlen => self.strlen(),
            Command::Getrange => self.getrange(),
            Command::Setrange => self.setrange(),
            Command::Incr => self.increment(1),
            Command::Decr => self.increment(-1),
            Command::Incrby => self.incrby(),
            Command::Decrby => self.decrby(),
            Command::Incrbyfloat => self.incrbyfloat(),
            Command::Del | Command::Unlink => self.delete(),
            Command::Exists | Command::Touch => self.exists(),
            Command::Type => self.kind(),
            Command::Copy => self.copy(),
            Command::Rename => self.rename(false),
            Command::Renamenx => self.rename(true),
            Command::ObjectEncoding => self.object_encoding(),
            Command::ObjectFreq => self.object_freq(),
            Command::ObjectIdletime => self.object_idletime(),
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
            Command::Flushall | Command::Flushdb => self.flush(),
            _ => Err(Stop::Error("ERR this command does not run on a stream")),
        }
    }

    // --- arguments -----------------------------------------------------------------------------------------------

    fn count(&self) -> usize {
        self.job.args.len()
    }

    /// Whether an argument is this word, in either case. `word` is in lower case.
    fn is_word(&self, at: usize, word: &str) -> bool {
        self.job.args.arg(at).eq_ignore_ascii_case(word.as_bytes())
    }

    fn integer(&self, at: usize) -> Result<i64, Stop> {
        parse_integer(self.job.args.arg(at)).ok_or(Stop::Error(errors::NOT_AN_INTEGER))
    }

    /// Ends with an error that `write` writes.
    fn refuse(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Stop {
        self.reply.truncate(self.start);
        write(self.reply);
        Stop::Refused
    }

    /// The hash of the key in argument `at`.
    fn hash_of(&self, at: usize) -> u64 {
        match self.job.hash {
            Some(hash) if at == usize::from(self.job.spec.first_key.unsigned_abs()) => hash,
            _ => self.owner.store.hash(self.job.args.arg(at)),
        }
    }

    // --- looking -------------------------------------------------------------------------------------------------

    /// Notes that the reply depends on this key (4.1).
    fn depends_on(&mut self, hash: u64) {
        self.looked = true;
        self.need = self.need.max(self.owner.need(hash));
    }

    /// Notes that the reply depends on the whole stream.
    fn depends_on_all(&mut self) {
        self.looked = true;
        self.need = newest(self.owner);
    }

    /// Looks up the key in argument `at`; one whose time is over is deleted first (8.4). Gives what `then` makes of
    /// what is there; it may write to the reply.
    #[inline]
    fn look<T>(
        &mut self,
        at: usize,
        then: impl FnOnce(Option<&Object<'_>>, &mut Vec<u8>) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        let key = self.job.args.arg(at);
        let hash = self.hash_of(at);
        self.depends_on(hash);
        let now_ms = self.cx.now.wall_ms;
        let found = if is_use(self.job.spec.id) {
            self.owner.store.access(&self.cx.shared.arena, hash, key)
        } else {
            self.owner.store.find(&self.cx.shared.arena, hash, key)
        };
        match found {
            Err(blocked) => return Err(self.blocked(blocked)),
            Ok(Some(object)) if object.expiry_ms().is_some_and(|at| at <= now_ms) => {}
            Ok(found) => return then(found.as_ref(), self.reply),
        }
        if self.cx.breaks(Mutant::ExpiryWithoutDelta) {
            return then(None, self.reply);
        }
        self.cx.out.mark(Mark::ExpiredOnAccess);
        self.change(hash, |store, arena, delta| store.delete(arena, delta, hash, key))?;
        then(None, self.reply)
    }

    /// As above, where strings only will do.
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

    fn seen(&mut self, at: usize) -> Result<Option<Seen>, Stop> {
        self.look(at, |object, _| Ok(object.map(Seen::of)))
    }

    /// A copy of a string.
    fn string(&mut self, at: usize) -> Result<Option<(Seen, Vec<u8>)>, Stop> {
        self.look_string(at, |object, _| {
            Ok(object.map(|object| {
                let mut bytes = Vec::with_capacity(object.len());
                object.copy_to(&mut bytes);
                (Seen::of(object), bytes)
            }))
        })
    }

    // --- changing ------------------------------------------------------------------------------------------------

    /// Stores a value under the key in argument `at`.
    fn put(&mut self, at: usize, value: Value<'_>) -> Result<(), Stop> {
        self.check_limits(at, value.bytes.len())?;
        let (key, hash) = (self.job.args.arg(at), self.hash_of(at));
        self.change(hash, |store, arena, delta| store.put(arena, delta, hash, key, value))?;
        self.begun = true;
        Ok(())
    }

    /// Removes the key in argument `at`: true if there was one.
    fn remove(&mut self, at: usize) -> Result<bool, Stop> {
        let (key, hash) = (self.job.args.arg(at), self.hash_of(at));
        let removed = self.change(hash, |store, arena, delta| store.delete(arena, delta, hash, key))?;
        self.begun |= removed;
        Ok(removed)
    }

    fn set_expiry(&mut self, at: usize, expiry_ms: Option<u64>) -> Result<bool, Stop> {
        let (key, hash) = (self.job.args.arg(at), self.hash_of(at));
        let set = self.change(hash, |store, arena, delta| {
            store.set_expiry(arena, delta, hash, key, expiry_ms)
        })?;
        self.begun |= set;
        Ok(set)
    }

    /// Refuses a key or value that the store does not take.
    fn check_limits(&mut self, at: usize, value_bytes: usize) -> Result<(), Stop> {
        let limits = self.owner.store.limits();
        let key_bytes = self.job.args.arg(at).len();
        if key_bytes > limits.key_bytes {
            return Err(self.refuse(|out| errors::key_too_long(out, key_bytes, limits.key_bytes)));
        }
        if value_bytes > limits.value_bytes {
            return Err(self.refuse(|out| errors::value_too_long(out, value_bytes, limits.value_bytes)));
        }
        Ok(())
    }

    /// Whether the stream takes writes (3.1).
    fn admit(&mut self) -> Result<(), Stop> {
        if !self.admitted {
            match self.owner.admit_write(self.cx) {
                Admission::Admitted => self.admitted = true,
                Admission::Wait => return Err(Stop::Stall),
                Admission::TooFewMembers => return Err(Stop::Error(errors::NOREPLICAS)),
            }
        }
        Ok(())
    }

    /// Runs one change of the store. A full delta is closed first; where room is short, some is made.
    fn change<T>(
        &mut self,
        hash: u64,
        mut work: impl FnMut(&mut Store, &mut Arena, &mut Delta) -> Result<T, Blocked>,
    ) -> Result<T, Stop> {
        self.admit()?;
        // A change that changes nothing must wait for what made it so.
        self.depends_on(hash);
        for _ in 0..self.tries() {
            let before = self.owner.open_bytes();
            let (store, delta) = self.owner.delta();
            if self.several {
                delta.set_bytes_max(COMMAND_DELTA_BYTES_MAX);
            }
            let result = work(store, &mut self.cx.shared.arena, delta);
            if self.owner.open_bytes() > before {
                self.owner.touch(hash);
                self.changed = true;
            }
            match result {
                Ok(done) => return Ok(done),
                Err(Blocked::DeltaFull) if !(self.several && self.begun) => {
                    self.owner.close_delta(self.cx, self.configuration)
                }
                Err(blocked) => self.find_room(blocked)?,
            }
        }
        Err(Stop::Stall)
    }

    fn blocked(&mut self, blocked: Blocked) -> Stop {
        match blocked {
            Blocked::Missing(stripe) => {
                self.owner.materialiser.want(self.cx.now.mono, stripe);
                Stop::Stall
            }
            Blocked::Credit { .. } if self.owner.credit_refused(self.cx) => Stop::Error(errors::OOM),
            Blocked::Directory | Blocked::Credit { .. } | Blocked::DeltaFull | Blocked::Crowded => Stop::Stall,
            // What may be evicted may not be here yet.
            Blocked::Memory if self.owner.store.policy().evicts() && self.owner.store.chunks().absent_count() > 0 => {
                Stop::Stall
            }
            Blocked::Memory => Stop::Error(errors::OOM),
            Blocked::TooLarge => Stop::Error("ERR key or value is too long"),
        }
    }
}
