//! One sandbox: the state of Lua, its limits, and how a script runs in it.

mod compile;
mod errors;
mod redis;
mod run;
#[cfg(test)]
mod tests;
mod work;

use crate::library::{
    self, BAD_NAME, FUNCTION_FLAGS, FUNCTIONS_MAX, REGISTERED_BYTES_MAX, is_library_name, library_header,
};
use crate::numbers::Random;
use crate::source::{SOURCE_BYTES_MAX, Sha, header};
use crate::values::{append_line, append_reply};
use crate::{json, msgpack, numbers, packed, strings};
use compile::{compile, syntax_text};
use core::cell::{Cell, RefCell};
use core::fmt;
pub(crate) use errors::problem;
use errors::{at_error, caught};
use mlua::{Error, Function, HookTriggers, Lua, LuaOptions, MultiValue, Result, StdLib, Table, Value, VmState};
use paritas_base::Map;
use paritas_wire::resp::{Proto, encode};
use redis::{call, redis_table};
pub use run::{Ended, Host, Limits, LoadError, Ran, Run, Weight};
use run::{Entry, NoCommands};
use std::rc::Rc;
pub(crate) use work::Work;

/// Nanoseconds of a byte that is compiled, about.
const COMPILED_BYTE_NS: u64 = 50;
/// Nanoseconds, about, for a function that a library has registered, beside one for each byte of its texts.
const REGISTERED_NS: u64 = 500;
/// Compiled scripts that are kept, and bytes of their sources.
const COMPILED_MAX: usize = 512;
const COMPILED_BYTES_MAX: usize = 2 << 20;
/// The longest name of a chunk in an error, in bytes.
const NAME_BYTES_MAX: usize = 60;
/// Slots that are there from the start. Each argument of a function of ours takes one, of at most 8,000: the prelude
/// gives it fewer arguments than these.
const SLOTS: usize = 7800;
/// Garbage of earlier scripts, in bytes, with which a script may begin.
const GARBAGE_BYTES_MAX: usize = 12 << 20;
/// Garbage from which on some is collected after a script, and the most of one step. A kilobyte takes about 10 us. All
/// that is no garbage is walked through for it, so there should be more garbage than that.
const GARBAGE_STEP_BYTES: usize = 512 << 10;
const GARBAGE_STEP_KILOBYTES_MAX: usize = 256;
/// The name of the prelude's source.
const PRELUDE: &str = "=prelude";

/// A sandbox for scripts. It keeps compiled ones.
pub struct Sandbox {
    lua: Lua,
    work: Rc<Work>,
    random: Rc<Random>,
    /// What the prelude is made of, with `call`, which is another function in each run.
    natives: Table,
    /// Globals of scripts, without the protection.
    globals: Table,
    script_globals: Table,
    run: Function,
    /// The same for libraries of functions.
    library_globals: Table,
    run_library: Function,
    /// Functions by their numbers in `compiled`.
    functions: Table,
    compiled: Map<Sha, Compiled>,
    compiled_bytes: usize,
    free_numbers: Vec<usize>,
    clock: u64,
    /// The weight for which instructions are counted.
    hooked: Option<Weight>,
    /// The version of Redis' protocol that the script has asked for.
    is_resp3: Rc<Cell<bool>>,
    /// Bytes that are used when there is no garbage, about; and those made since the last collection.
    live_bytes: usize,
    garbage_bytes: usize,
    command: Vec<u8>,
    reply: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Compiled {
    number: usize,
    last_run: u64,
    bytes: usize,
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let compiled = self.compiled.len();
        f.debug_struct("Sandbox")
            .field("compiled", &compiled)
            .finish_non_exhaustive()
    }
}

impl Sandbox {
    /// A new sandbox. `clock` gives the time that this thread has worked, in nanoseconds. It ends scripts whose work is
    /// counted too low; a driver that replays runs gives one that stands still.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn new(clock: fn() -> u64) -> core::result::Result<Self, String> {
        Self::make(clock).map_err(|error| error.to_string())
    }

    fn make(clock: fn() -> u64) -> Result<Self> {
        let options = LuaOptions::new().catch_rust_panics(false);
        let lua = Lua::new_with(StdLib::STRING | StdLib::TABLE | StdLib::MATH, options)?;
        // Scripts leave their garbage to us, so that their memory bounds all that they have ever made.
        lua.gc_stop();
        let work = Rc::new(Work {
            clock,
            until_ns: Cell::new(u64::MAX),
            left_ns: Cell::new(u64::MAX),
            unlooked_ns: Cell::new(0),
            memory_max: Cell::new(usize::MAX),
            ended: Cell::new(None),
        });
        let random = Rc::new(Random::default());
        let is_resp3 = Rc::new(Cell::new(false));
        let natives = lua.create_table()?;
        strings::add(&lua, &work, &natives)?;
        natives.raw_set("bit", numbers::bit(&lua)?)?;
        natives.raw_set("random", numbers::random(&lua, &random)?)?;
        natives.raw_set("randomseed", numbers::randomseed(&lua, &random)?)?;
        natives.raw_set("cjson", json::library(&lua, &work)?)?;
        natives.raw_set("cmsgpack", msgpack::library(&lua, &work)?)?;
        natives.raw_set("struct", packed::library(&lua, &work)?)?;
        let of = Rc::clone(&work);
        natives.raw_set(
            "caught",
            lua.create_function(move |lua, value: Value| caught(lua, &of, value))?,
        )?;
        let of = Rc::clone(&work);
        natives.raw_set(
            "at_error",
            lua.create_function(move |lua, value: Value| at_error(lua, &of, value))?,
        )?;
        let used = |lua: &Lua, ()| Ok(lua.used_memory() as f64 / 1024.0);
        natives.raw_set("used_kilobytes", lua.create_function(used)?)?;
        let is_name = |_: &Lua, name: mlua::String| Ok(is_library_name(&name.as_bytes()));
        natives.raw_set("is_library_name", lua.create_function(is_name)?)?;
        natives.raw_set("FUNCTIONS_MAX", FUNCTIONS_MAX)?;
        natives.raw_set("REGISTERED_BYTES_MAX", REGISTERED_BYTES_MAX)?;
        natives.raw_set("BAD_NAME", BAD_NAME.strip_prefix("ERR ").unwrap_or(BAD_NAME))?;
        let flag = |_: &Lua, name: mlua::String| {
            let name = name.as_bytes();
            let mut flags = FUNCTION_FLAGS.iter();
            Ok(flags.position(|flag| name.eq_ignore_ascii_case(flag.as_bytes())))
        };
        natives.raw_set("function_flag", lua.create_function(flag)?)?;
        let redis = redis_table(&lua, &work, &is_resp3)?;
        let globals = lua.create_table()?;
        natives.raw_set("redis", redis)?;
        natives.raw_set("globals", &globals)?;
        // It is set once what it makes has its globals.
        let environment: Rc<RefCell<Option<Table>>> = Rc::default();
        let (of, in_it) = (Rc::clone(&work), Rc::clone(&environment));
        let loadstring = move |lua: &Lua, (source, name): (mlua::String, mlua::String)| {
            let source = source.as_bytes();
            of.spend(source.len() as u64 * COMPILED_BYTE_NS)?;
            let globals = in_it.borrow().clone().ok_or_else(|| of.end_error())?;
            match compile(lua, &source, &name.to_string_lossy(), &globals) {
                Ok(function) => Ok((Some(function), None)),
                Err(Error::MemoryError(_)) => Err(of.end_for_memory()),
                Err(error) => Ok((None, Some(syntax_text(&error)))),
            }
        };
        natives.raw_set("loadstring", lua.create_function(loadstring)?)?;
        let prelude = lua.load(include_str!("prelude.lua")).set_name(PRELUDE);
        let made: (Table, Function, Table, Function) = prelude.call(&natives)?;
        let (script_globals, run, library_globals, run_library) = made;
        *environment.borrow_mut() = Some(script_globals.clone());
        grow_slots(&lua)?;
        let functions = lua.create_table()?;
        lua.gc_collect()?;
        lua.gc_stop();
        let live_bytes = lua.used_memory();
        Ok(Self {
            lua,
            work,
            random,
            natives,
            globals,
            script_globals,
            run,
            library_globals,
            run_library,
            functions,
            compiled: Map::default(),
            compiled_bytes: 0,
            free_numbers: Vec::new(),
            clock: 0,
            hooked: None,
            is_resp3,
            live_bytes,
            garbage_bytes: 0,
            command: Vec::new(),
            reply: Vec::new(),
        })
    }

    /// Whether a script may begin. If not, so much of earlier scripts' garbage is left that a part of it was collected
    /// instead: ask again in another turn.
    pub fn is_ready(&mut self) -> bool {
        if self.garbage_bytes <= GARBAGE_BYTES_MAX {
            return true;
        }
        self.collect(GARBAGE_STEP_KILOBYTES_MAX);
        false
    }

    fn collect(&mut self, kilobytes: usize) {
        let has_ended = self.lua.gc_step_kbytes(kilobytes as i32);
        self.lua.gc_stop();
        let used = self.lua.used_memory();
        if has_ended.unwrap_or(true) {
            self.live_bytes = used;
        }
        self.garbage_bytes = used.saturating_sub(self.live_bytes);
    }

    /// Bytes of memory that it holds.
    pub fn held_bytes(&self) -> usize {
        self.lua.used_memory() + self.command.capacity() + self.reply.capacity()
    }

    /// Whether a source can be compiled.
    ///
    /// # Errors
    /// The text of an error for the client.
    pub fn check(&mut self, sha: &Sha, source: &[u8]) -> core::result::Result<(), String> {
        let used = self.lua.used_memory();
        let checked = self.function(sha, source, Entry::Script).map(drop);
        self.note_garbage(used);
        checked
    }

    /// Collects garbage if much has been made since this number of bytes was in use.
    fn note_garbage(&mut self, used_before: usize) {
        self.garbage_bytes += self.lua.used_memory().saturating_sub(used_before);
        if self.garbage_bytes >= GARBAGE_STEP_BYTES {
            self.collect((self.garbage_bytes >> 12).min(GARBAGE_STEP_KILOBYTES_MAX));
        }
    }

    fn function(&mut self, sha: &Sha, source: &[u8], entry: Entry<'_>) -> core::result::Result<Function, String> {
        self.clock += 1;
        let clock = self.clock;
        if let Some(compiled) = self.compiled.get_mut(sha) {
            compiled.last_run = clock;
            let function = self.functions.raw_get(compiled.number);
            return function.map_err(|error| error.to_string());
        }
        if source.len() > SOURCE_BYTES_MAX {
            return Err(format!(
                "ERR a script may have {SOURCE_BYTES_MAX} bytes, this one has {}",
                source.len()
            ));
        }
        let (skipped, name, globals, problem) = match entry {
            Entry::Script => (
                header(source)?.1,
                "@user_script",
                &self.script_globals,
                "script (new function)",
            ),
            Entry::Load | Entry::Function(_) => (
                library_header(source)?.1,
                "@user_function",
                &self.library_globals,
                "function",
            ),
        };
        let source = source.get(skipped..).unwrap_or_default();
        let function = compile(&self.lua, source, name, globals);
        let function = function.map_err(|error| format!("ERR Error compiling {problem}: {}", syntax_text(&error)))?;
        while self.compiled.len() >= COMPILED_MAX || self.compiled_bytes + source.len() > COMPILED_BYTES_MAX {
            let oldest = self.compiled.iter().min_by_key(|(_, compiled)| compiled.last_run);
            let Some((oldest, Compiled { number, bytes, .. })) = oldest.map(|(sha, compiled)| (*sha, *compiled)) else {
                break;
            };
            self.compiled.remove(&oldest);
            self.compiled_bytes -= bytes;
            self.free_numbers.push(number);
            self.functions
                .raw_set(number, Value::Nil)
                .map_err(|error| error.to_string())?;
        }
        let number = self.free_numbers.pop().unwrap_or(self.compiled.len() + 1);
        self.functions
            .raw_set(number, &function)
            .map_err(|error| error.to_string())?;
        let bytes = source.len();
        self.compiled_bytes += bytes;
        let compiled = Compiled {
            number,
            last_run: clock,
            bytes,
        };
        self.compiled.insert(*sha, compiled);
        Ok(function)
    }

    /// Runs a script, or a function of a library, and appends its reply. If it is ended before that, nothing is
    /// appended.
    pub fn run(&mut self, run: &Run<'_>, host: &mut dyn Host, out: &mut Vec<u8>) -> Ran {
        let start = out.len();
        let (entry, name) = match run.function {
            Some(name) => (Entry::Function(name), name),
            None => (Entry::Script, &run.sha[..]),
        };
        let (work_ns, result) = self.measured(run, entry, host, |sandbox, is_ok, value| match is_ok {
            true => append_reply(&sandbox.work, &value, run.proto, sandbox.is_resp3.get(), out),
            false => sandbox.append_error(name, &value, out),
        });
        let ended = match result {
            Ok(()) => None,
            Err(LoadError::Refused(text)) => {
                encode::error(out, &text);
                None
            }
            Err(LoadError::Ended(ended)) => {
                out.truncate(start);
                Some(ended)
            }
        };
        Ran { work_ns, ended }
    }

    /// Loads a library, and returns its functions in the order in which it registers them, and the work.
    pub fn load(
        &mut self,
        sha: &Sha,
        source: &[u8],
        limits: Limits,
        seed: u64,
    ) -> (u64, core::result::Result<Vec<library::Function>, LoadError>) {
        let run = Run {
            sha,
            source,
            keys: &[],
            args: &[],
            proto: Proto::Resp2,
            limits,
            seed,
            function: None,
        };
        let (work_ns, result) = self.measured(&run, Entry::Load, &mut NoCommands, |_, is_ok, value| {
            let refused = match (is_ok, &value) {
                (true, value) => return Ok(registered(value)),
                (false, Value::Table(table)) => text_in(table, "err").unwrap_or_default(),
                // Lua's own text when no memory is left, which no handler sees.
                (false, _) => return Err(Ended::Memory),
            };
            let text = String::from_utf8_lossy(&refused).into_owned();
            Ok(Err(format!("ERR Error registering functions: {text}")))
        });
        let found = result.and_then(|found| found.map_err(LoadError::Refused));
        let copied_ns = found.as_ref().map_or(0, |functions| {
            let bytes = |of: &library::Function| of.name.len() + of.description.as_ref().map_or(0, Vec::len);
            functions.len() as u64 * REGISTERED_NS + functions.iter().map(bytes).sum::<usize>() as u64
        });
        (work_ns + copied_ns, found)
    }

    /// Calls a source, and returns its work, and what `then` makes of its result or error.
    fn measured<T>(
        &mut self,
        run: &Run<'_>,
        entry: Entry<'_>,
        host: &mut dyn Host,
        then: impl FnOnce(&Self, bool, Value) -> core::result::Result<T, Ended>,
    ) -> (u64, core::result::Result<T, LoadError>) {
        let is_known = self.compiled.contains_key(run.sha);
        let used_before = self.lua.used_memory();
        let mut work_ns = match is_known {
            true => 0,
            false => run.source.len() as u64 * COMPILED_BYTE_NS,
        };
        let function = match self.function(run.sha, run.source, entry) {
            Ok(function) => function,
            Err(text) => {
                self.note_garbage(used_before);
                return (work_ns, Err(LoadError::Refused(text)));
            }
        };
        let used = self.lua.used_memory();
        self.work.begin(&run.limits);
        self.random.begin(run.seed);
        self.is_resp3.set(false);
        let result = self.call_limited(run, entry, &function, used, host);
        let result = result.and_then(|(is_ok, value)| then(self, is_ok, value));
        self.note_garbage(used_before);
        work_ns += run.limits.work_ns - self.work.left_ns.get();
        (work_ns, result.map_err(LoadError::Ended))
    }

    /// Calls a compiled source. Returns whether it has ended well, and its result or the error.
    fn call_limited(
        &mut self,
        run: &Run<'_>,
        entry: Entry<'_>,
        function: &Function,
        used_bytes: usize,
        host: &mut dyn Host,
    ) -> core::result::Result<(bool, Value), Ended> {
        let work = Rc::clone(&self.work);
        // An error that no script has raised: no memory for what the sandbox itself makes.
        let ended = |_: Error| work.ended.get().unwrap_or(Ended::Memory);
        let weight = run.limits.weight;
        if self.hooked != Some(weight) {
            let (of, count) = (Rc::clone(&self.work), weight.instructions());
            let hook = move |_: &Lua, _: &mlua::Debug<'_>| of.on_instructions(count).map(|()| VmState::Continue);
            // Of all threads: coroutines begin with the hook of the thread that makes them.
            self.lua.remove_global_hook();
            let triggers = HookTriggers::new().every_nth_instruction(count);
            self.lua.set_global_hook(triggers, hook).map_err(ended)?;
            self.hooked = Some(weight);
        }
        // What the sandbox itself makes comes before the limit of memory: under it each step of it is a protected call,
        // which costs more than the step. So it is measured first.
        let memory_bytes = weight.memory_bytes();
        for words in [run.keys, run.args] {
            self.work.check_words(words)?;
        }
        let given = [self.words(run.keys)?, self.words(run.args)?];
        // What another script was given is not seen by a function.
        for (name, table) in ["KEYS", "ARGV"].into_iter().zip(&given) {
            let seen = match entry {
                Entry::Script => Value::Table(table.clone()),
                Entry::Load | Entry::Function(_) => Value::Nil,
            };
            self.globals.raw_set(name, seen).map_err(ended)?;
        }
        let [keys, args] = given;
        let name = match entry {
            Entry::Function(name) => Some(self.lua.create_string(name.to_ascii_lowercase()).map_err(ended)?),
            Entry::Script | Entry::Load => None,
        };
        let (work, is_resp3) = (Rc::clone(&self.work), Rc::clone(&self.is_resp3));
        let (command, reply) = (&mut self.command, &mut self.reply);
        let (natives, runner, library_runner) = (&self.natives, &self.run, &self.run_library);
        let result = self.lua.scope(|scope| {
            let call = scope.create_function_mut(move |lua, args: MultiValue| {
                let proto = if is_resp3.get() { Proto::Resp3 } else { Proto::Resp2 };
                call(lua, &work, host, args, proto, command, reply)
            })?;
            natives.raw_set("call", call)?;
            self.lua.set_memory_limit(used_bytes + memory_bytes)?;
            let result: Result<(bool, Value)> = match entry {
                Entry::Script => runner.call(function),
                Entry::Load | Entry::Function(_) => library_runner.call((function, name, keys, args)),
            };
            self.lua.set_memory_limit(0)?;
            result
        });
        if let Some(ended) = self.work.ended.get() {
            return Err(ended);
        }
        result.map_err(ended)
    }

    /// A table of what a script is given.
    fn words(&self, words: &[&[u8]]) -> core::result::Result<Table, Ended> {
        let ended = |_: Error| self.work.ended.get().unwrap_or(Ended::Memory);
        let table = self.lua.create_table_with_capacity(words.len(), 0).map_err(ended)?;
        for word in words {
            self.work.take(300 + word.len() as u64 / 4)?;
            let word = self.lua.create_string(word).map_err(ended)?;
            table.raw_push(word).map_err(ended)?;
        }
        Ok(table)
    }

    /// Appends the error that a script or function of this name has ended with.
    fn append_error(&self, name: &[u8], value: &Value, out: &mut Vec<u8>) -> core::result::Result<(), Ended> {
        // Else it is Lua's own text when no memory is left, which no handler sees.
        let Value::Table(table) = value else {
            return Err(Ended::Memory);
        };
        let mut line = text_in(table, "err").unwrap_or_else(|| b"ERR unknown error".to_vec());
        if let (Some(source), Ok(number)) = (text_in(table, "source"), table.raw_get::<f64>("line")) {
            line.extend_from_slice(b" script: ");
            line.extend_from_slice(name);
            line.extend_from_slice(b", on ");
            line.extend_from_slice(&source);
            line.extend_from_slice(format!(":{number}.").as_bytes());
        }
        self.work.take(line.len() as u64)?;
        append_line(b'-', &line, out);
        Ok(())
    }
}

/// Holds many values at once, so that the stack of those that functions hold is large from the start. It could not grow
/// when a script has used up its memory.
fn grow_slots(lua: &Lua) -> Result<()> {
    // The empty string exists once in Lua: only the slots are made.
    let held: Result<Vec<mlua::String>> = (0..SLOTS).map(|_| lua.create_string("")).collect();
    held.map(drop)
}

/// A text in a table that the prelude has made.
fn text_in(table: &Table, name: &str) -> Option<Vec<u8>> {
    match table.raw_get::<Value>(name) {
        Ok(Value::String(text)) => Some(text.as_bytes().to_vec()),
        _ => None,
    }
}

/// What a library has registered.
fn registered(value: &Value) -> core::result::Result<Vec<library::Function>, String> {
    let none = || "ERR No functions registered".to_owned();
    let Value::Table(all) = value else {
        return Err(none());
    };
    let mut functions = Vec::new();
    for made in all.sequence_values::<Table>() {
        let made = made.map_err(|_| none())?;
        let flags = made.raw_get::<Option<Table>>("flags").ok().flatten();
        let has = |bit: usize| flags.as_ref().is_some_and(|flags| flags.raw_get(bit).unwrap_or(false));
        functions.push(library::Function {
            name: text_in(&made, "function_name").unwrap_or_default(),
            description: text_in(&made, "description"),
            flags: (0..FUNCTION_FLAGS.len()).fold(0, |flags, bit| flags | u8::from(has(bit)) << bit),
        });
    }
    match functions.is_empty() {
        true => Err(none()),
        false => Ok(functions),
    }
}
