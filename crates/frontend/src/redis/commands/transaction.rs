//! The commands of a transaction on hash slots of one stream, at the owner. They run on a draft, which is then
//! committed: all of them happen, or none.
//!
//! ```text
//! PARITAS.EXEC versions count commands key [key …]
//! ```
//! `versions` is an array of databases, keys and the versions that WATCH saw; nothing is done if one differs.
//! `commands` are `count` commands behind each other. Before each there may be a `SELECT`, which has no reply and does
//! not count: the commands behind it are about that database. `versions` and each command are arrays of strings, as a
//! client sends them. `key` is one of the keys of each slot. The reply is the array of the commands' replies.

use super::{Executed, Job, Operation, ReadLarge, Stop, admit_many, end_of};
use crate::dialect::Refusal;
use crate::redis::connection::database_number;
use crate::redis::scripts::Scripts;
use paritas_base::configuration::Configuration;
use paritas_protocol::{Access, Context, Draft, Fault, Out, StreamOwner, WriteRefusal};
use paritas_script::Weight;
use paritas_wire::command::{self, Command, CommandSpec, flag};
use paritas_wire::resp::{ArgList, Args, Decoded, Limits, decode, encode, errors, parse_integer};

/// How the commands have run.
enum Ran {
    All,
    /// A watched key has changed: none has run.
    Aborted,
}

/// What its commands have read, for the counts of reads.
#[derive(Default)]
struct Reads {
    hits: u32,
    misses: u32,
    /// Keys of large values, each with its hash.
    large: Vec<(u64, Vec<u8>, ReadLarge)>,
}

/// A transaction, or a script or a change of the libraries of functions, while it runs on a draft.
pub(super) struct OnDraft<'a, 'c, O: Out> {
    pub(super) cx: &'a mut Context<'c, O>,
    configuration: &'a Configuration,
    owner: &'a mut StreamOwner,
    pub(super) draft: Draft,
    reads: Reads,
}

/// Runs a transaction, or a script or a change of the libraries of functions, which are transactions. The owner must be
/// in the phase Serve.
pub(super) fn execute<O: Out>(
    cx: &mut Context<'_, O>,
    configuration: &Configuration,
    owner: &mut StreamOwner,
    job: &Job<'_>,
    scripts: &mut Scripts,
    reply: &mut Vec<u8>,
) -> Executed {
    if !admit_many(cx, 1) {
        return Executed::Stalled(None);
    }
    // Asked once: a transaction of several scripts would find the garbage of its first ones each time it runs.
    if !scripts.begin() {
        cx.shared.turn_budget.yield_to_next();
        return Executed::Stalled(None);
    }
    let start = reply.len();
    scripts.weight = Weight::Light;
    let (draft, reads, ran) = loop {
        let mut on_draft = OnDraft {
            cx: &mut *cx,
            configuration,
            owner: &mut *owner,
            draft: Draft::default(),
            reads: Reads::default(),
        };
        let ran = on_draft.run_all(job, scripts, reply);
        let OnDraft { draft, reads, .. } = on_draft;
        cx.shared.turn_budget.spend(draft.steps());
        if !matches!(ran, Err(Stop::Heavier)) {
            break (draft, reads, ran);
        }
        scripts.weight = Weight::Heavy;
        reply.truncate(start);
    };
    let is_too_slow = !draft.has_steps();
    let mut access = Access::new(cx, configuration, owner, job.database);
    access.depend_on(&draft);
    let result = match ran {
        Ok(Ran::All) => access.commit(&draft, job.ticket).map_err(Stop::from),
        Ok(Ran::Aborted) => {
            reply.truncate(start);
            encode::null_array(reply, job.dialect.proto());
            Ok(())
        }
        // It would find no more steps in the next turn.
        Err(Stop::Wait) if is_too_slow => Err(Stop::Error(errors::TRANSACTION_TOO_SLOW)),
        Err(stop) => Err(stop),
    };
    let result = super::uncertain_if_begun(&access, result);
    match result {
        Err(Stop::Wait) => {}
        Err(Stop::Refused(Refusal::Write(WriteRefusal::NoMemory))) => access.count_refused_write(),
        _ => access.count_lookups(reads.hits, reads.misses),
    }
    if result.is_ok() {
        for (hash, key, read) in &reads.large {
            access.note_read(*hash, key, &read.record, read.tail_bytes, read.bytes);
        }
    }
    if result != Err(Stop::Wait) {
        access.end_arguments(job.ticket);
    }
    let waits_since = access.moved_at().max(draft.moved_at());
    end_of(access, job.dialect, result, start, reply, waits_since)
}

impl<'c, O: Out> OnDraft<'_, 'c, O> {
    /// What reads and writes through the draft. To be ended with `end_in_draft`.
    pub(super) fn access(&mut self, database: u8) -> Access<'_, 'c, O> {
        Access::in_draft(self.cx, self.configuration, self.owner, database, &mut self.draft)
    }

    /// Runs the commands on a draft, and appends the array of their replies.
    fn run_all(&mut self, job: &Job<'_>, scripts: &mut Scripts, reply: &mut Vec<u8>) -> Result<Ran, Stop> {
        if matches!(job.spec.id, Command::RunScript | Command::ReadScript) {
            if self.owner.store().chunks().absent_count() > 0 {
                self.ask_for_keys(job.database, job.spec, job.args)?;
            }
            self.run_script(job, scripts, reply)?;
            return Ok(Ran::All);
        }
        if job.spec.id == Command::ChangeFunctions {
            self.change_functions(job, reply)?;
            return Ok(Ran::All);
        }
        let mut args = Args::new();
        if self.is_changed(job.args.arg(1), &mut args)? {
            return Ok(Ran::Aborted);
        }
        let start = reply.len();
        let count = parse_integer(job.args.arg(2)).and_then(|count| usize::try_from(count).ok());
        let (mut left, mut rest) = (count.unwrap_or_default(), job.args.arg(3));
        if self.owner.store().chunks().absent_count() > 0 {
            self.ask_for_all(job.database, rest, &mut args)?;
        }
        let mut database = job.database;
        encode::array_header(reply, left);
        while left > 0 {
            let bytes = rest;
            let Ok(Decoded::Complete { consumed }) = decode(bytes, &Limits::DEFAULT, &mut args) else {
                return Err(Stop::Refused(Refusal::Malformed));
            };
            rest = bytes.get(consumed..).unwrap_or_default();
            let args = args.list(bytes);
            if let Some(chosen) = chosen_database(args) {
                database = chosen;
                continue;
            }
            left -= 1;
            let spec = command::resolve(args).ok().filter(|spec| spec.has_keys());
            let is_script = |spec: &CommandSpec| matches!(spec.id, Command::RunScript | Command::ReadScript);
            let Some(spec) = spec.filter(|spec| !spec.is(flag::INTERNAL) || is_script(spec)) else {
                return Err(Stop::Refused(Refusal::Malformed));
            };
            if !self.draft.begin_command(args.len()) {
                return Err(Stop::Error(errors::TRANSACTION_TOO_SLOW));
            }
            let one = Job {
                spec,
                args,
                database,
                raw: &[],
                hash: None,
                is_staged: false,
                ..*job
            };
            match is_script(spec) {
                true => self.run_script(&one, scripts, reply)?,
                false => self.run_command(&one, reply)?,
            }
            let bytes_max = self.cx.shared.parameters.mget_bytes_max;
            if reply.len() - start > bytes_max {
                return Err(Stop::Refused(Refusal::ReplyTooLarge { bytes_max }));
            }
        }
        Ok(Ran::All)
    }

    /// Asks for the chunks of all keys that are absent after a takeover. Else the transaction would run anew for each
    /// of them.
    fn ask_for_all(&mut self, mut database: u8, commands: &[u8], args: &mut Args) -> Result<(), Stop> {
        let (mut rest, mut result) = (commands, Ok(()));
        while let Ok(Decoded::Complete { consumed }) = decode(rest, &Limits::DEFAULT, args) {
            let list = args.list(rest);
            if let Some(chosen) = chosen_database(list) {
                database = chosen;
            } else if let Ok(spec) = command::resolve(list) {
                result = self.ask_for_keys(database, spec, list).and(result);
            }
            rest = rest.get(consumed..).unwrap_or_default();
            if rest.is_empty() {
                break;
            }
        }
        result
    }

    /// Asks for the chunks of a command's keys.
    fn ask_for_keys(&mut self, database: u8, spec: &CommandSpec, args: ArgList<'_>) -> Result<(), Stop> {
        let mut access = Access::new(self.cx, self.configuration, self.owner, database);
        let mut result = Ok(());
        for at in command::keys(spec, args) {
            let hash = access.hash(args.arg(at));
            if let Err(stop) = access.look(hash, args.arg(at), false, |_| ()) {
                result = Err(stop.into());
            }
        }
        result
    }

    /// Runs one command on the draft, and appends its reply. An error of the command alone is its reply.
    pub(super) fn run_command(&mut self, job: &Job<'_>, reply: &mut Vec<u8>) -> Result<(), Stop> {
        let start = reply.len();
        let mut operation = Operation::new(self.access(job.database), job, reply);
        let result = operation.run();
        let Operation {
            access,
            reads: large,
            lookups,
            ..
        } = operation;
        access.end_in_draft();
        if lookups.count {
            self.reads.hits += lookups.hits;
            self.reads.misses += lookups.misses;
        }
        let database = job.database;
        let keyed = large.into_iter().map(|read| {
            let key = job.args.arg(read.at);
            (self.owner.store().hash(database, key), key.to_vec(), read)
        });
        self.reads.large.extend(keyed);
        match result {
            Ok(()) | Err(Stop::Written) => Ok(()),
            Err(Stop::Error(text)) => {
                reply.truncate(start);
                encode::error(reply, text);
                Ok(())
            }
            Err(Stop::Refused(refusal)) if is_of_command(refusal) => {
                reply.truncate(start);
                job.dialect.refuse(reply, refusal);
                Ok(())
            }
            Err(stop) => Err(stop),
        }
    }

    /// Whether a watched key has changed. `versions`: an array of databases, keys and the versions that WATCH saw.
    fn is_changed(&mut self, versions: &[u8], args: &mut Args) -> Result<bool, Stop> {
        let Ok(Decoded::Complete { .. }) = decode(versions, &Limits::DEFAULT, args) else {
            return Err(Stop::Refused(Refusal::Malformed));
        };
        let versions = args.list(versions);
        if !self.draft.begin_command(versions.len()) {
            return Err(Stop::Error(errors::TRANSACTION_TOO_SLOW));
        }
        let mut access = self.access(0);
        let mut is_changed = false;
        let mut at = 0;
        while at + 2 < versions.len() && !access.rules().fault(Fault::WatchForgotten) {
            let (key, seen) = (versions.arg(at + 1), versions.arg(at + 2));
            let Ok(database) = database_number(versions.arg(at)) else {
                access.end_in_draft();
                return Err(Stop::Refused(Refusal::Malformed));
            };
            let hash = access.hash_in(database, key);
            match access.version(hash, key) {
                Ok(now) => is_changed |= now != seen,
                Err(stop) => {
                    access.end_in_draft();
                    return Err(stop.into());
                }
            }
            at += 3;
        }
        access.end_in_draft();
        Ok(is_changed)
    }
}

/// The database that a SELECT chooses.
fn chosen_database(args: ArgList<'_>) -> Option<u8> {
    let spec = command::resolve(args).ok().filter(|spec| spec.id == Command::Select);
    spec.and_then(|_| database_number(args.arg(1)).ok())
}

/// Whether a refusal is about the command's own words. Others are about the whole transaction.
fn is_of_command(refusal: Refusal) -> bool {
    matches!(
        refusal,
        Refusal::Write(WriteRefusal::KeyTooLong { .. } | WriteRefusal::ValueTooLong { .. })
    )
}

impl<O: Out> Operation<'_, '_, O> {
    /// Answers the versions of keys, for WATCH.
    pub(crate) fn key_versions(&mut self) -> Result<(), Stop> {
        encode::array_header(self.reply, self.count() - 1);
        for at in 1..self.count() {
            let (key, hash) = (self.job.args.arg(at), self.hash_of(at));
            let version = self.access.version_to_keep(hash, key)?;
            encode::bulk(self.reply, &version);
        }
        Ok(())
    }
}
