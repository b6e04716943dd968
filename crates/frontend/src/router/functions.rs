//! Functions at the client's node (docs/scripts.md).
//!
//! The libraries are a value with an owner. So a command about them is two steps. In the first this node asks that
//! owner whether the libraries that it has are still the present ones. The question is sent after the command has come:
//! what is answered is no older than the command. The command stalls meanwhile, as one does behind WATCH; then it runs.
//! EXEC asks in the same way, and not the commands before it: the libraries may change between these and EXEC.

use super::call::Call;
use super::client::Client;
use super::gather::How;
use super::transact::is_unserved;
use super::{Dispatcher, Ran};
use crate::redis::commands::Job;
use crate::redis::connection::{SLOW_BYTE_STEPS, is_word};
use crate::redis::functions::{Change, LIBRARIES_BYTES_MAX, Libraries, Library, Policy, taken};
use crate::redis::parts;
use crate::redis::refusals::is_error;
use crate::redis::scripts::{ScriptCall, Scripts};
use paritas_base::{HIDDEN_DATABASE, Reader, Time};
use paritas_protocol::{Context, FUNCTIONS_KEY, Out, Port};
use paritas_script::FUNCTION_FLAGS;
use paritas_wire::command::glob::{Case, PATTERN_BYTES_MAX, Pattern};
use paritas_wire::command::{Command, CommandSpec, flag};
use paritas_wire::rdb;
use paritas_wire::resp::{ArgList, Args, Decoded, Limits, Proto, decode, encode, errors};
use std::sync::Arc;

/// Steps of work for a byte of a payload, whose sum is checked.
const SUMMED_BYTE_STEPS: u64 = 1;

/// All libraries, as an owner has told them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Functions {
    /// What the owner compares with its own.
    version: Vec<u8>,
    libraries: Libraries,
}

impl Functions {
    /// Those of an owner's answer to a question that named `known`. `Err`: the reply to the client in their place.
    /// `newest`: those of the answer before. Many clients may learn of the same ones at once, and they are read once.
    fn of_answer(
        known: &Arc<Self>,
        newest: &Arc<Self>,
        answer: Vec<u8>,
        args: &mut Args,
    ) -> Result<Arc<Self>, Vec<u8>> {
        if answer == encode::OK {
            return Ok(Arc::clone(known));
        }
        if !answer.starts_with(b"*") {
            return Err(answer);
        }
        let mut read = || {
            let Ok(Decoded::Complete { .. }) = decode(&answer, &Limits::DEFAULT, args) else {
                return None;
            };
            let args = args.list(&answer);
            let version = args.get(0)?;
            if version == newest.version {
                return Some(Arc::clone(newest));
            }
            let version = version.to_vec();
            let libraries = Libraries::decode(args.get(1)?)?;
            Some(Arc::new(Self { version, libraries }))
        };
        read().ok_or_else(|| {
            let mut reply = Vec::new();
            encode::error(&mut reply, errors::UNREADABLE_LIBRARIES);
            reply
        })
    }

    /// Bytes of memory that they hold, about.
    pub(crate) fn held_bytes(&self) -> usize {
        self.libraries.held_bytes() + self.version.capacity()
    }
}

/// What FUNCTION RESTORE has loaded so far. Each turn loads some.
#[derive(Debug, Default)]
pub(crate) struct Restored {
    libraries: Libraries,
    /// Bytes of the payload that they were.
    read_bytes: usize,
}

impl Restored {
    pub(crate) fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.libraries.held_bytes()
    }
}

/// What a client's next command knows of the libraries.
#[derive(Debug)]
pub(crate) enum Asked {
    /// Their owner has not answered yet.
    Waiting,
    /// They were these after the command had come. It must be used before this time: the lease under which it was read
    /// ends then (P4.2).
    Known(Arc<Functions>, Option<Time>),
    /// The question was refused with this reply.
    Refused(Vec<u8>),
}

impl Client {
    /// Its command about functions has run.
    pub(crate) fn forget_functions(&mut self) {
        self.functions = None;
        self.restored = None;
    }
}

impl Dispatcher {
    /// The libraries as they were after the client's next command had come. `Err`: it stalls until they are known, or
    /// has been refused.
    pub(crate) fn present_libraries<O: Out>(
        &mut self,
        call: &mut Call<'_, '_, O>,
        spec: &CommandSpec,
    ) -> Result<Arc<Functions>, Ran> {
        match &call.client.functions {
            Some(Asked::Known(functions, until)) if until.is_none_or(|until| call.cx.mono() <= until) => {
                return Ok(Arc::clone(functions));
            }
            Some(Asked::Refused(reply)) => {
                let reply = reply.clone();
                return Err(self.reply_now(call, |out| out.extend_from_slice(&reply)));
            }
            Some(Asked::Waiting) => {
                call.client.stalled_since = None;
                return Err(Ran::Stalled);
            }
            Some(Asked::Known(..)) | None => {}
        }
        self.await_owner(call, spec)?;
        let question = Command::ReadFunctions.spec();
        let known = Arc::clone(&self.functions);
        let mut bytes = Vec::new();
        let words = [question.name.as_bytes(), FUNCTIONS_KEY, &known.version];
        parts::append_words(&mut bytes, words.into_iter());
        let stream = call.cx.shared.slots.stream_of_key(HIDDEN_DATABASE, FUNCTIONS_KEY);
        let part = vec![(question, (stream, HIDDEN_DATABASE), bytes)];
        call.client.functions = Some(Asked::Waiting);
        call.client.stalled_since = None;
        self.gather_in(call, How::Functions(known), part);
        Err(Ran::Stalled)
    }

    /// Whether a client's command can be sent to the owner of the libraries now. `Err`: it stalls, or is refused.
    fn await_owner<O: Out>(&mut self, call: &mut Call<'_, '_, O>, spec: &CommandSpec) -> Result<(), Ran> {
        if call.client.is_behind_detours() {
            return Err(Ran::Stalled);
        }
        match is_unserved(
            call.cx,
            call.lists,
            call.cx.shared.slots.slot(HIDDEN_DATABASE, FUNCTIONS_KEY),
        ) {
            true => Err(self.stall(call, spec)),
            false => Ok(()),
        }
    }

    /// The owner of the libraries has answered a client's question.
    pub(crate) fn learn_functions<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        client: &mut Client,
        known: &Arc<Functions>,
        answer: Vec<u8>,
        until: Option<Time>,
    ) {
        let newest = Arc::clone(&self.functions);
        let asked = match Functions::of_answer(known, &newest, answer, &mut self.part_args) {
            Ok(functions) => {
                if !Arc::ptr_eq(&functions, &newest) && !Arc::ptr_eq(&functions, known) {
                    cx.shared.turn_budget.spend(functions.libraries.steps());
                    self.functions = Arc::clone(&functions);
                }
                Asked::Known(functions, until)
            }
            Err(reply) => Asked::Refused(reply),
        };
        client.functions = Some(asked);
        client.stalled_since = None;
        self.wake = true;
    }

    /// Runs FUNCTION and its subcommands.
    pub(crate) fn function<O: Out>(&mut self, call: &mut Call<'_, '_, O>, job: &Job<'_>) -> Ran {
        let start = call.turn.bytes.len();
        let ran = match self.function_asked(call, job) {
            Ok(ran) => ran,
            Err(error) => self.reply_now(call, |out| encode::error(out, &error)),
        };
        if ran != Ran::Stalled {
            self.counters
                .count(job.spec.id, call.turn.bytes.get(start..).is_some_and(is_error));
        }
        ran
    }

    fn function_asked<O: Out>(&mut self, call: &mut Call<'_, '_, O>, job: &Job<'_>) -> Result<Ran, String> {
        let Job { spec, args, .. } = *job;
        // Before any library is loaded, which takes long.
        if spec.is(flag::WRITE)
            && let Err(ran) = self.await_owner(call, spec)
        {
            return Ok(ran);
        }
        // Clients of Redis Cluster send a change to each node. Here the first one has made it.
        let is_cluster = call.client.port == Port::Cluster;
        let change = match spec.id {
            Command::FunctionFlush => {
                if args.len() > 3 {
                    return Err(errors::unknown_or_wrong("FLUSH", "FUNCTION"));
                }
                if args.len() == 3 && !is_word(args, 2, "sync") && !is_word(args, 2, "async") {
                    return Err(errors::FUNCTION_FLUSH_OPTIONS.to_owned());
                }
                return self.change_functions(call, &Change::flush(), encode::OK);
            }
            Command::FunctionDelete => Change::Delete(args.arg(2).to_vec(), !is_cluster),
            Command::FunctionRestore => {
                let append = Policy::Append {
                    is_load: false,
                    keeps_same: is_cluster,
                };
                let policy = match args.len() {
                    3 => append,
                    4 if is_word(args, 3, "append") => append,
                    4 if is_word(args, 3, "replace") => Policy::Replace,
                    4 if is_word(args, 3, "flush") => Policy::Flush,
                    4 => return Err(errors::RESTORE_POLICY.to_owned()),
                    _ => return Err(errors::unknown_or_wrong("RESTORE", "FUNCTION")),
                };
                match self.restored(call.cx, call.client, args.arg(2))? {
                    Some(libraries) => Change::Put(policy, libraries),
                    None => return Ok(Ran::Stalled),
                }
            }
            Command::FunctionLoad => {
                let mut replaces = false;
                for at in 2..args.len() - 1 {
                    if !is_word(args, at, "replace") {
                        let word = String::from_utf8_lossy(args.arg(at));
                        return Err(format!("ERR Unknown option given: {word}"));
                    }
                    replaces = true;
                }
                let source = args.arg(args.len() - 1);
                let Some(library) = self.loaded(call.cx, source) else {
                    return Ok(Ran::Stalled);
                };
                let (library, mut libraries, mut reply) = (library?, Libraries::default(), Vec::new());
                encode::bulk(&mut reply, &library.name);
                libraries.insert(library)?;
                let policy = match replaces {
                    true => Policy::Replace,
                    false => Policy::Append {
                        is_load: true,
                        keeps_same: is_cluster,
                    },
                };
                let change = Change::Put(policy, libraries);
                return self.change_functions(call, &change, &reply);
            }
            _ => return self.tell_functions(call, job),
        };
        self.change_functions(call, &change, encode::OK)
    }

    /// Loads a library. `None`: not in this turn.
    fn loaded<O: Out>(&mut self, cx: &mut Context<'_, O>, source: &[u8]) -> Option<Result<Library, String>> {
        if !cx.shared.turn_budget.admits() {
            return None;
        }
        if !self.scripts.begin() {
            cx.shared.turn_budget.yield_to_next();
            return None;
        }
        let seed = cx.shared.prng.next_u64();
        let (work_ns, loaded) = self.scripts.load_library(source, seed);
        cx.shared.turn_budget.spend(work_ns);
        Some(loaded)
    }

    /// The libraries of a payload. `None`: they are not all loaded yet. Each turn loads some.
    fn restored<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        client: &mut Client,
        payload: &[u8],
    ) -> Result<Option<Libraries>, String> {
        // In the value they have more bytes than in a payload, which may be compressed.
        if payload.len() > LIBRARIES_BYTES_MAX {
            let bytes = payload.len();
            return Err(format!(
                "ERR a payload of libraries may have {LIBRARIES_BYTES_MAX} bytes, this one has {bytes}"
            ));
        }
        if client.restored.is_none() {
            if !cx.shared.turn_budget.admits() {
                return Ok(None);
            }
            cx.shared.turn_budget.spend(payload.len() as u64 * SUMMED_BYTE_STEPS);
            rdb::open(payload).ok_or(errors::BAD_PAYLOAD)?;
        }
        let restored = client.restored.get_or_insert_default();
        let body = payload
            .get(..payload.len().saturating_sub(rdb::FOOTER_BYTES))
            .unwrap_or_default();
        while let Some(rest) = body.get(restored.read_bytes..)
            && !rest.is_empty()
        {
            if !cx.shared.turn_budget.admits() {
                return Ok(None);
            }
            let mut rest = Reader(rest);
            match rest.u8() {
                Some(rdb::LIBRARY) => {}
                _ => return Err(errors::NOT_A_FUNCTION.to_owned()),
            }
            let source = rdb::take_string(&mut rest, LIBRARIES_BYTES_MAX).ok_or(errors::BAD_LIBRARY_PAYLOAD)?;
            let Some(library) = self.loaded(cx, &source) else {
                return Ok(None);
            };
            let library = library?;
            if restored.libraries.get(&library.name).is_some() {
                return Err(taken(&library.name, true));
            }
            restored.libraries.insert(library)?;
            // Before the next one is loaded: a short source may register long texts.
            restored.libraries.check_limits()?;
            restored.read_bytes = body.len() - rest.0.len();
        }
        Ok(client.restored.take().map(|restored| restored.libraries))
    }

    /// Gives a change to the owner of the libraries.
    fn change_functions<O: Out>(
        &mut self,
        call: &mut Call<'_, '_, O>,
        change: &Change,
        reply: &[u8],
    ) -> Result<Ran, String> {
        let (how, what) = change.to_words()?;
        let spec = Command::ChangeFunctions.spec();
        let mut bytes = Vec::new();
        let words = [spec.name.as_bytes(), FUNCTIONS_KEY, how, &what, reply];
        parts::append_words(&mut bytes, words.into_iter());
        let stream = call.cx.shared.slots.stream_of_key(HIDDEN_DATABASE, FUNCTIONS_KEY);
        call.client.last_write_n = call.client.next_n;
        let part = vec![(spec, (stream, HIDDEN_DATABASE), bytes)];
        Ok(self.gather_in(call, How::Only, part))
    }

    /// Answers a command that only reads the libraries.
    fn tell_functions<O: Out>(&mut self, call: &mut Call<'_, '_, O>, job: &Job<'_>) -> Result<Ran, String> {
        let Job { spec, args, .. } = *job;
        let listing = match spec.id {
            Command::FunctionList => Some(Listing::of(args)?),
            _ => None,
        };
        if !call.cx.shared.turn_budget.admits() {
            return Ok(Ran::Stalled);
        }
        let functions = match self.present_libraries(call, spec) {
            Ok(functions) => functions,
            Err(ran) => return Ok(ran),
        };
        let libraries = &functions.libraries;
        let (proto, mut reply, mut steps) = (call.client.dialect.proto(), Vec::new(), 0);
        match (spec.id, listing) {
            (_, Some(listing)) => listing.append(libraries, proto, &mut steps, &mut reply)?,
            (Command::FunctionDump, _) => {
                let mut payload = Vec::new();
                for library in libraries.iter() {
                    rdb::push_library(&mut payload, &library.source);
                }
                encode::bulk(&mut reply, &rdb::seal(payload));
            }
            _ => {
                encode::map_header(&mut reply, proto, 2);
                encode::bulk(&mut reply, b"running_script");
                encode::null(&mut reply, proto);
                encode::bulk(&mut reply, b"engines");
                encode::map_header(&mut reply, proto, 1);
                encode::bulk(&mut reply, b"LUA");
                encode::map_header(&mut reply, proto, 2);
                encode::bulk(&mut reply, b"libraries_count");
                encode::integer(&mut reply, libraries.iter().len() as i64);
                encode::bulk(&mut reply, b"functions_count");
                encode::integer(&mut reply, libraries.function_count() as i64);
            }
        }
        call.cx
            .shared
            .turn_budget
            .spend(steps + SLOW_BYTE_STEPS * reply.len() as u64);
        Ok(self.reply_now(call, |out| out.extend_from_slice(&reply)))
    }

    /// What FCALL calls, and EXEC for each of its FCALLs.
    pub(crate) fn function_call<'c>(
        functions: &Functions,
        spec: &CommandSpec,
        args: ArgList<'c>,
        port: Port,
    ) -> Result<ScriptCall<'c>, String> {
        Scripts::function_call(&functions.libraries, spec, args, port == Port::Cluster)
    }
}

/// FUNCTION LIST.
struct Listing<'a> {
    pattern: Option<&'a [u8]>,
    has_code: bool,
}

impl<'a> Listing<'a> {
    fn of(args: ArgList<'a>) -> Result<Self, String> {
        let mut listing = Self {
            pattern: None,
            has_code: false,
        };
        let mut at = 2;
        while at < args.len() {
            if !listing.has_code && is_word(args, at, "withcode") {
                listing.has_code = true;
            } else if listing.pattern.is_none() && is_word(args, at, "libraryname") {
                at += 1;
                listing.pattern = Some(args.get(at).ok_or(errors::NO_LIBRARY_PATTERN)?);
            } else {
                let word = String::from_utf8_lossy(args.arg(at));
                return Err(format!("ERR Unknown argument {word}"));
            }
            at += 1;
        }
        Ok(listing)
    }

    fn append(&self, libraries: &Libraries, proto: Proto, steps: &mut u64, reply: &mut Vec<u8>) -> Result<(), String> {
        let mut pattern = match self.pattern {
            None => None,
            Some(text) if text.len() > PATTERN_BYTES_MAX => return Err(errors::PATTERN_TOO_LONG.to_owned()),
            Some(text) => Some(Pattern::new(text, Case::Ignored, steps).ok_or(errors::PATTERN_TOO_LONG)?),
        };
        let mut is_meant = |name: &[u8]| pattern.as_mut().is_none_or(|pattern| pattern.matches(name, steps));
        let meant: Vec<_> = libraries.iter().filter(|library| is_meant(&library.name)).collect();
        encode::array_header(reply, meant.len());
        for library in meant {
            encode::map_header(reply, proto, 3 + usize::from(self.has_code));
            encode::bulk(reply, b"library_name");
            encode::bulk(reply, &library.name);
            encode::bulk(reply, b"engine");
            encode::bulk(reply, b"LUA");
            encode::bulk(reply, b"functions");
            encode::array_header(reply, library.functions.len());
            for function in &library.functions {
                encode::map_header(reply, proto, 3);
                encode::bulk(reply, b"name");
                encode::bulk(reply, &function.name);
                encode::bulk(reply, b"description");
                match &function.description {
                    Some(text) => encode::bulk(reply, text),
                    None => encode::null(reply, proto),
                }
                encode::bulk(reply, b"flags");
                let has = |bit: &usize| function.flags >> bit & 1 == 1;
                let flags = || {
                    (0..FUNCTION_FLAGS.len())
                        .filter(has)
                        .filter_map(|bit| FUNCTION_FLAGS.get(bit))
                };
                encode::set_header(reply, proto, flags().count());
                flags().for_each(|flag| encode::simple(reply, flag));
            }
            if self.has_code {
                encode::bulk(reply, b"library_code");
                encode::bulk(reply, &library.source);
            }
        }
        Ok(())
    }
}
