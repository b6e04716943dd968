//! The scripts that a node knows, and the sandbox in which it runs them (docs/scripts.md).

use crate::redis::connection::{append_time, database_number};
use crate::redis::functions::{Libraries, Library};
use core::fmt;
use paritas_base::Map;
use paritas_script::{
    Ended, FLAG_NO_WRITES, FUNCTION_NO_CLUSTER, FUNCTION_NO_WRITES, Function, Host, Limits, LoadError, Ran, Run,
    SHA_BYTES, SOURCE_BYTES_MAX, Sandbox, Sha, Weight,
};
use paritas_script::{header, library_header, sha_of};
use paritas_wire::command::{self, Command, CommandSpec, flag};
use paritas_wire::resp::{ArgList, Proto, encode, errors, parse_integer};
use std::sync::Arc;

/// Sources that a node keeps. Those of SCRIPT LOAD are dropped last.
const SOURCES_BYTES_MAX: usize = 16 << 20;
const SOURCES_MAX: usize = 4096;
/// The longest time that the scripts of one transaction work, by the clock of their thread. Their work is counted too,
/// so that this ends only scripts whose work is counted too low.
const TIME_NS: u64 = 40_000_000;
/// Work of a library while it is loaded, in nanoseconds as it is counted.
const LOAD_NS: u64 = 20_000_000;

/// The scripts of a node.
pub(crate) struct Scripts {
    sandbox: Option<Sandbox>,
    /// The time that this thread has worked, in nanoseconds.
    pub(crate) clock: fn() -> u64,
    /// How much the scripts of the transaction that runs may use.
    pub(crate) weight: Weight,
    /// When they end at the latest.
    until_ns: u64,
    sources: Map<Sha, Source>,
    sources_bytes: usize,
    uses: u64,
}

#[derive(Debug)]
struct Source {
    text: Arc<[u8]>,
    is_loaded: bool,
    last_use: u64,
}

impl Default for Scripts {
    fn default() -> Self {
        Self {
            sandbox: None,
            clock: || 0,
            weight: Weight::Light,
            until_ns: u64::MAX,
            sources: Map::default(),
            sources_bytes: 0,
            uses: 0,
        }
    }
}

impl fmt::Debug for Scripts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripts")
            .field("sources", &self.sources.len())
            .finish_non_exhaustive()
    }
}

/// A client's EVAL, EVALSHA, FCALL, or their forms that only read.
#[derive(Debug)]
pub(crate) struct ScriptCall<'c> {
    sha: Sha,
    source: Arc<[u8]>,
    /// The function that is called; then the source is that of its library.
    function: Option<Vec<u8>>,
    reads: bool,
    keys_count: usize,
    args: ArgList<'c>,
}

impl Scripts {
    /// What a client's command calls.
    ///
    /// # Errors
    /// The text of an error for the client.
    pub(crate) fn call<'c>(&mut self, spec: &CommandSpec, args: ArgList<'c>) -> Result<ScriptCall<'c>, String> {
        let keys_count = parse_integer(args.arg(2)).ok_or(errors::NOT_AN_INTEGER)?;
        let keys_count = usize::try_from(keys_count).map_err(|_| errors::NEGATIVE_KEYS)?;
        if keys_count > args.len() - 3 {
            return Err(errors::TOO_MANY_SCRIPT_KEYS.to_owned());
        }
        let word = args.arg(1);
        let (sha, source) = match spec.id {
            Command::Eval | Command::EvalRo => {
                let sha = sha_of(word);
                (sha, self.keep(sha, word, false)?)
            }
            _ => {
                let sha = Sha::try_from(word.to_ascii_lowercase().as_slice()).map_err(|_| errors::NOSCRIPT)?;
                (sha, self.source(&sha).ok_or(errors::NOSCRIPT)?)
            }
        };
        let (flags, _) = header(&source)?;
        Ok(ScriptCall {
            sha,
            source,
            function: None,
            reads: spec.is(flag::READONLY) || flags & FLAG_NO_WRITES != 0,
            keys_count,
            args,
        })
    }

    /// What a client's FCALL or FCALL_RO calls.
    ///
    /// # Errors
    /// The text of an error for the client.
    pub(crate) fn function_call<'c>(
        libraries: &Libraries,
        spec: &CommandSpec,
        args: ArgList<'c>,
        is_cluster: bool,
    ) -> Result<ScriptCall<'c>, String> {
        let (library, function) = libraries.find(args.arg(1)).ok_or(errors::NO_FUNCTION)?;
        let keys_count = parse_integer(args.arg(2)).ok_or(errors::BAD_NUMBER_OF_KEYS)?;
        let keys_count = usize::try_from(keys_count).map_err(|_| errors::NEGATIVE_KEYS)?;
        if keys_count > args.len() - 3 {
            return Err(errors::TOO_MANY_SCRIPT_KEYS.to_owned());
        }
        let is = |flag: u8| function.flags & flag != 0;
        if spec.is(flag::READONLY) && !is(FUNCTION_NO_WRITES) {
            return Err(errors::FUNCTION_MAY_WRITE.to_owned());
        }
        if is_cluster && is(FUNCTION_NO_CLUSTER) {
            return Err(errors::FUNCTION_NOT_ON_CLUSTER.to_owned());
        }
        Ok(ScriptCall {
            sha: library.sha,
            source: Arc::clone(&library.source),
            function: Some(function.name.clone()),
            reads: is(FUNCTION_NO_WRITES),
            keys_count,
            args,
        })
    }

    /// Loads a library: what does it register? Returns the work, and the library or the text of an error.
    pub(crate) fn load_library(&mut self, source: &[u8], seed: u64) -> (u64, Result<Library, String>) {
        if source.len() > SOURCE_BYTES_MAX {
            let bytes = source.len();
            let text = format!("ERR a library may have {SOURCE_BYTES_MAX} bytes, this one has {bytes}");
            return (0, Err(text));
        }
        let sha = sha_of(source);
        let name = match library_header(source) {
            Ok((name, _)) => name,
            Err(text) => return (0, Err(text)),
        };
        let (mut work_ns, until_ns) = (0, self.until_ns);
        let sandbox = match self.sandbox() {
            Ok(sandbox) => sandbox,
            Err(text) => return (0, Err(text)),
        };
        let mut loaded = Err(LoadError::Ended(Ended::Memory));
        for weight in [Weight::Light, Weight::Heavy] {
            let limits = Limits {
                weight,
                work_ns: LOAD_NS,
                until_ns,
            };
            let (spent_ns, result) = sandbox.load(&sha, source, limits, seed);
            work_ns += spent_ns;
            loaded = result;
            if !matches!(loaded, Err(LoadError::Ended(Ended::Memory))) {
                break;
            }
        }
        let loaded: Result<Vec<Function>, String> = loaded.map_err(|error| match error {
            LoadError::Refused(text) => text,
            LoadError::Ended(Ended::Memory) => errors::LIBRARY_TOO_LARGE.to_owned(),
            LoadError::Ended(_) => errors::LIBRARY_TOO_SLOW.to_owned(),
        });
        (work_ns, loaded.map(|functions| Library::new(name, source, functions)))
    }

    fn source(&mut self, sha: &Sha) -> Option<Arc<[u8]>> {
        self.uses += 1;
        let source = self.sources.get_mut(sha)?;
        source.last_use = self.uses;
        Some(Arc::clone(&source.text))
    }

    fn keep(&mut self, sha: Sha, text: &[u8], is_loaded: bool) -> Result<Arc<[u8]>, String> {
        if let Some(source) = self.source(&sha) {
            if let Some(kept) = self.sources.get_mut(&sha) {
                kept.is_loaded |= is_loaded;
            }
            return Ok(source);
        }
        if text.len() > SOURCE_BYTES_MAX {
            let bytes = text.len();
            return Err(format!(
                "ERR a script may have {SOURCE_BYTES_MAX} bytes, this one has {bytes}"
            ));
        }
        while self.sources.len() >= SOURCES_MAX || self.sources_bytes + text.len() > SOURCES_BYTES_MAX {
            let oldest = self
                .sources
                .iter()
                .min_by_key(|(_, source)| (source.is_loaded, source.last_use));
            let Some(oldest) = oldest.map(|(sha, _)| *sha) else {
                break;
            };
            let dropped = self.sources.remove(&oldest);
            self.sources_bytes -= dropped.map_or(0, |source| source.text.len());
        }
        let source = Source {
            text: text.into(),
            is_loaded,
            last_use: self.uses,
        };
        let text = Arc::clone(&source.text);
        self.sources_bytes += text.len();
        self.sources.insert(sha, source);
        Ok(text)
    }

    /// SCRIPT LOAD.
    pub(crate) fn load(&mut self, text: &[u8], out: &mut Vec<u8>) {
        let sha = sha_of(text);
        let checked = match self.sandbox() {
            Ok(sandbox) => sandbox.check(&sha, text),
            Err(error) => Err(error),
        };
        match checked.and_then(|()| self.keep(sha, text, true)) {
            Ok(_) => encode::bulk(out, &sha),
            Err(error) => encode::error(out, &error),
        }
    }

    /// SCRIPT EXISTS.
    pub(crate) fn exist(&self, args: ArgList<'_>, out: &mut Vec<u8>) {
        encode::array_header(out, args.len() - 2);
        for word in args.iter().skip(2) {
            let sha = Sha::try_from(word.to_ascii_lowercase().as_slice());
            let is_known = sha.is_ok_and(|sha| self.sources.contains_key(&sha));
            encode::integer(out, i64::from(is_known));
        }
    }

    /// SCRIPT FLUSH.
    pub(crate) fn flush(&mut self, args: ArgList<'_>, out: &mut Vec<u8>) {
        let is_option = |word: &[u8]| word.eq_ignore_ascii_case(b"sync") || word.eq_ignore_ascii_case(b"async");
        match args.get(2) {
            Some(word) if !is_option(word) || args.len() > 3 => encode::error(out, errors::SCRIPT_FLUSH_OPTIONS),
            _ => {
                self.sources = Map::default();
                self.sources_bytes = 0;
                self.sandbox = None;
                encode::ok(out);
            }
        }
    }

    fn sandbox(&mut self) -> Result<&mut Sandbox, String> {
        if self.sandbox.is_none() {
            let made = Sandbox::new(self.clock);
            self.sandbox = Some(made.map_err(|why| format!("ERR no sandbox for scripts could be made: {why}"))?);
        }
        self.sandbox.as_mut().ok_or_else(String::new)
    }

    /// Begins a transaction. False: its scripts cannot run in this turn.
    pub(crate) fn begin(&mut self) -> bool {
        if self.sandbox.as_mut().is_some_and(|sandbox| !sandbox.is_ready()) {
            return false;
        }
        // Also if there is no sandbox yet: the time that it takes to make one counts.
        self.until_ns = (self.clock)().saturating_add(TIME_NS);
        true
    }

    /// Runs a script: what it may do, and what makes its random numbers.
    pub(crate) fn run(
        &mut self,
        script: &Script<'_>,
        proto: Proto,
        (work_ns, seed): (u64, u64),
        host: &mut dyn Host,
        out: &mut Vec<u8>,
    ) -> Ran {
        let limits = Limits {
            weight: self.weight,
            work_ns,
            until_ns: self.until_ns,
        };
        let sandbox = match self.sandbox() {
            Ok(sandbox) => sandbox,
            Err(text) => {
                encode::error(out, &text);
                return Ran {
                    work_ns: 0,
                    ended: None,
                };
            }
        };
        let run = Run {
            sha: &script.sha,
            source: script.source,
            keys: &script.keys,
            args: &script.args,
            proto,
            limits,
            seed,
            function: script.function,
        };
        sandbox.run(&run, host, out)
    }

    /// Bytes of memory that they hold.
    pub(crate) fn held_bytes(&self) -> usize {
        let sources = self.sources_bytes + self.sources.capacity() * size_of::<(Sha, Source)>();
        sources + self.sandbox.as_ref().map_or(0, Sandbox::held_bytes)
    }
}

/// The error for a script that was ended. `None`: its host has ended it.
pub(crate) const fn why_ended(ended: Ended) -> Option<&'static str> {
    match ended {
        Ended::Work => Some(errors::SCRIPT_TOO_SLOW),
        Ended::Memory => Some(errors::SCRIPT_TOO_LARGE),
        Ended::Reply => Some(errors::SCRIPT_REPLY_TOO_LONG),
        Ended::ByHost => None,
    }
}

/// A script to run.
#[derive(Debug)]
pub(crate) struct Script<'s> {
    sha: Sha,
    source: &'s [u8],
    /// The source is a library, and this function of it is called.
    function: Option<&'s [u8]>,
    keys: Vec<&'s [u8]>,
    args: Vec<&'s [u8]>,
}

impl<'s> Script<'s> {
    /// That of a command between nodes. `args_of`: its `ARGV`, decoded.
    ///
    /// ```text
    /// PARITAS.EVAL sha[function] source keys_count args key [key …]
    /// ```
    /// `args` is an array of strings. Without keys, `key` is the one that the script has asked for first.
    pub(crate) fn of_command(command: ArgList<'s>, args: ArgList<'s>) -> Option<Self> {
        let keys_count = usize::try_from(parse_integer(command.arg(3))?).ok()?;
        let (sha, function) = command.arg(1).split_first_chunk::<SHA_BYTES>()?;
        (keys_count <= command.len() - 5).then(|| Self {
            sha: *sha,
            source: command.arg(2),
            function: (!function.is_empty()).then_some(function),
            keys: command.iter().skip(5).take(keys_count).collect(),
            args: args.iter().collect(),
        })
    }
}

impl<'c> ScriptCall<'c> {
    pub(crate) fn keys(&self) -> impl Iterator<Item = &'c [u8]> {
        self.args.iter().skip(3).take(self.keys_count)
    }

    pub(crate) fn has_keys(&self) -> bool {
        self.keys_count > 0
    }

    fn args(&self) -> impl ExactSizeIterator<Item = &'c [u8]> {
        self.args.iter().skip(3 + self.keys_count)
    }

    /// The command between nodes that it becomes.
    pub(crate) fn spec(&self) -> &'static CommandSpec {
        match self.reads {
            true => Command::ReadScript.spec(),
            false => Command::RunScript.spec(),
        }
    }

    /// Appends that command. `key`: the one that a script without keys has asked for.
    pub(crate) fn append_command(&self, key: Option<&[u8]>, out: &mut Vec<u8>) {
        let mut args = Vec::new();
        encode::array_header(&mut args, self.args().len());
        self.args().for_each(|arg| encode::bulk(&mut args, arg));
        encode::array_header(out, 5 + self.keys_count + usize::from(key.is_some()));
        encode::bulk(out, self.spec().name.as_bytes());
        match &self.function {
            None => encode::bulk(out, &self.sha),
            Some(name) => encode::bulk(out, &[&self.sha, name.as_slice()].concat()),
        }
        encode::bulk(out, &self.source);
        encode::bulk_integer(out, self.keys_count as i64);
        encode::bulk(out, &args);
        self.keys().chain(key).for_each(|key| encode::bulk(out, key));
    }

    /// The script, to run it here.
    pub(crate) fn script(&self) -> Script<'_> {
        Script {
            sha: self.sha,
            source: &self.source,
            function: self.function.as_deref(),
            keys: self.keys().collect(),
            args: self.args().collect(),
        }
    }
}

/// The row of a command that a script gives.
///
/// # Errors
/// The text of the error for the script.
pub(crate) fn resolve(args: ArgList<'_>) -> Result<&'static CommandSpec, &'static str> {
    match command::resolve(args) {
        Ok(spec) if !spec.is(flag::INTERNAL) => Ok(spec),
        Err(command::Refusal::WrongArity(_)) => Err(errors::WRONG_ARITY_IN_SCRIPT),
        _ => Err(errors::UNKNOWN_IN_SCRIPT),
    }
}

/// Answers a command that needs no key, for a script. False: scripts cannot give it.
pub(crate) fn answer_without_key(spec: &CommandSpec, args: ArgList<'_>, wall_ms: u64, out: &mut Vec<u8>) -> bool {
    match spec.id {
        Command::Ping if args.len() == 1 => encode::simple(out, "PONG"),
        Command::Ping if args.len() == 2 => encode::bulk(out, args.arg(1)),
        Command::Ping => encode::error(out, errors::WRONG_ARITY_IN_SCRIPT),
        Command::Echo => encode::bulk(out, args.arg(1)),
        Command::Select => match database_number(args.arg(1)) {
            Ok(_) => encode::ok(out),
            Err(error) => encode::error(out, error),
        },
        Command::Time => append_time(out, wall_ms),
        _ => return false,
    }
    true
}

#[cfg(test)]
mod tests;
