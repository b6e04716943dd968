//! One sandbox: the state of Lua, its limits, and how a script runs in it.

use crate::library::{
    self, BAD_NAME, FUNCTION_FLAGS, FUNCTIONS_MAX, REGISTERED_BYTES_MAX, is_library_name, library_header,
};
use crate::numbers::Random;
use crate::source::{SOURCE_BYTES_MAX, Sha, header, is_cheap_to_compile, sha_of};
use crate::values::{append_argument, append_line, append_reply, error_table, from_reply};
use crate::{json, msgpack, numbers, packed, strings};
use core::cell::{Cell, RefCell};
use core::fmt;
use mlua::{Error, Function, HookTriggers, Lua, LuaOptions, MultiValue, Result, StdLib, Table, Value, VmState};
use paritas_base::Map;
use paritas_wire::command;
use paritas_wire::resp::{Proto, encode};
use std::rc::Rc;

/// The version of Redis whose libraries scripts find.
const REDIS_VERSION: &str = "7.0.15";
const REDIS_VERSION_NUMBER: u32 = 0x0007_000f;
/// Nanoseconds of an instruction of Lua, about, and of a byte that is compiled.
const INSTRUCTION_NS: u64 = 10;
const COMPILED_BYTE_NS: u64 = 50;
/// Nanoseconds, about, for a function that a library has registered, beside one for each byte of its texts.
const REGISTERED_NS: u64 = 500;
/// Compiled scripts that are kept, and bytes of their sources.
const COMPILED_MAX: usize = 512;
const COMPILED_BYTES_MAX: usize = 2 << 20;
/// Nanoseconds of an error that is caught, about: of one that Lua has raised, and of one of our own functions, which
/// brings the text of all calls that it went through.
const CAUGHT_NS: u64 = 2000;
const CAUGHT_OF_RUST_NS: u64 = 20_000;
/// Memory of a string beside its bytes, and of its place in a table.
const WORD_BYTES: usize = 48;
/// Work after which the clock is looked at.
const LOOK_NS: u64 = 5000;
/// The longest reply in bytes, while it is made.
const REPLY_BYTES_MAX: usize = 33 << 20;
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

/// How much a script may do between two looks at the time.
///
/// An instruction of Lua may join two strings of megabytes. It costs a thousand times an ordinary one, and where the
/// result exists already, not even memory. So a script begins with little memory, which keeps its strings short, and
/// with few interruptions. If it needs more, all of it runs again, with many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weight {
    /// 1 MiB.
    Light,
    /// 16 MiB.
    Heavy,
}

impl Weight {
    const fn memory_bytes(self) -> usize {
        match self {
            Self::Light => 1 << 20,
            Self::Heavy => 16 << 20,
        }
    }

    /// Instructions between two looks.
    const fn instructions(self) -> u32 {
        match self {
            Self::Light => 200,
            Self::Heavy => 4,
        }
    }
}

/// What ends a script before its own end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// It has done as much work as a script may do.
    Work,
    /// It needs more memory than its weight has.
    Memory,
    /// Its reply is too long.
    Reply,
    /// Its host has ended it.
    ByHost,
}

/// What a script may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Memory, and how often it is interrupted.
    pub weight: Weight,
    /// Work in nanoseconds, as it is counted.
    pub work_ns: u64,
    /// When it ends at the latest, by the sandbox's clock, in nanoseconds.
    pub until_ns: u64,
}

/// What runs the commands of a script.
pub trait Host {
    /// Runs a command, which is an array of strings, and appends its reply in this version of Redis' protocol.
    ///
    /// # Errors
    /// [`Ended::ByHost`] if the script must end without a reply.
    fn call(&mut self, command: &[u8], proto: Proto, reply: &mut Vec<u8>) -> core::result::Result<(), Ended>;
}

/// A run of a script.
#[derive(Clone, Copy, Debug)]
pub struct Run<'r> {
    /// The name of the script.
    pub sha: &'r Sha,
    /// Its source, which is compiled if it is not known.
    pub source: &'r [u8],
    /// `KEYS`.
    pub keys: &'r [&'r [u8]],
    /// `ARGV`.
    pub args: &'r [&'r [u8]],
    /// The version of Redis' protocol of the reply.
    pub proto: Proto,
    /// What it may use.
    pub limits: Limits,
    /// Makes its random numbers.
    pub seed: u64,
    /// The source is a library, and this function of it is called. Then `keys` and `args` are its arguments.
    pub function: Option<&'r [u8]>,
}

/// What is called of a source.
#[derive(Clone, Copy, Debug)]
enum Entry<'r> {
    /// It is a script.
    Script,
    /// It is a library: what does it register?
    Load,
    /// It is a library, and this function of it is called.
    Function(&'r [u8]),
}

/// A library could not be loaded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LoadError {
    /// The text of an error for the client.
    Refused(String),
    /// It was ended before its own end.
    Ended(Ended),
}

/// Runs no commands: a library finds none while it is loaded.
struct NoCommands;

impl Host for NoCommands {
    fn call(&mut self, _: &[u8], _: Proto, _: &mut Vec<u8>) -> core::result::Result<(), Ended> {
        Err(Ended::ByHost)
    }
}

/// How a script has run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ran {
    /// Work that it has done, in nanoseconds as counted.
    pub work_ns: u64,
    /// What has ended it; `None`: its reply is appended.
    pub ended: Option<Ended>,
}

/// The work that a script may still do. All that runs for it takes from this.
pub(crate) struct Work {
    clock: fn() -> u64,
    until_ns: Cell<u64>,
    left_ns: Cell<u64>,
    /// Work since the last look at the clock.
    unlooked_ns: Cell<u64>,
    memory_max: Cell<usize>,
    ended: Cell<Option<Ended>>,
}

impl Work {
    fn begin(&self, limits: &Limits) {
        self.until_ns.set(limits.until_ns);
        self.left_ns.set(limits.work_ns);
        self.memory_max.set(limits.weight.memory_bytes());
        self.ended.set(None);
    }

    /// Takes work that was done, or is about to be done.
    pub(crate) fn take(&self, ns: u64) -> core::result::Result<(), Ended> {
        if let Some(ended) = self.ended.get() {
            return Err(ended);
        }
        let left = self.left_ns.get();
        self.left_ns.set(left.saturating_sub(ns));
        if left <= ns {
            self.ended.set(Some(Ended::Work));
            return Err(Ended::Work);
        }
        let unlooked = self.unlooked_ns.get().saturating_add(ns);
        self.unlooked_ns.set(unlooked);
        if unlooked >= LOOK_NS { self.look() } else { Ok(()) }
    }

    /// Looks at the clock.
    fn look(&self) -> core::result::Result<(), Ended> {
        self.unlooked_ns.set(0);
        if (self.clock)() > self.until_ns.get() {
            self.ended.set(Some(Ended::Work));
            return Err(Ended::Work);
        }
        Ok(())
    }

    /// Checks the length of what a function makes outside of Lua's memory.
    pub(crate) fn check_length(&self, bytes: usize) -> Result<()> {
        match bytes > self.memory_max.get() {
            true => Err(self.end_for_memory()),
            false => Ok(()),
        }
    }

    /// Checks the words that a script is given.
    fn check_words(&self, words: &[&[u8]]) -> core::result::Result<(), Ended> {
        let bytes = words.iter().map(|word| word.len() + WORD_BYTES).sum::<usize>();
        if bytes > self.memory_max.get() {
            self.ended.set(Some(Ended::Memory));
            return Err(Ended::Memory);
        }
        Ok(())
    }

    /// Checks the length of a reply while it is made.
    pub(crate) fn check_reply(&self, bytes: usize) -> core::result::Result<(), Ended> {
        if bytes > REPLY_BYTES_MAX {
            self.ended.set(Some(Ended::Reply));
            return Err(Ended::Reply);
        }
        Ok(())
    }

    /// The same, for functions that Lua calls.
    pub(crate) fn spend(&self, ns: u64) -> Result<()> {
        self.take(ns).map_err(|_| self.end_error())
    }

    /// Instructions of Lua have run.
    fn on_instructions(&self, count: u32) -> Result<()> {
        self.spend(u64::from(count) * INSTRUCTION_NS)?;
        self.look().map_err(|_| self.end_error())
    }

    fn end_for_memory(&self) -> Error {
        self.ended.set(self.ended.get().or(Some(Ended::Memory)));
        self.end_error()
    }

    /// What Lua raises to end the script.
    pub(crate) fn end_error(&self) -> Error {
        Error::external(End)
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work")
            .field("ended", &self.ended.get())
            .finish_non_exhaustive()
    }
}

/// The end of a script, as an error of Lua.
#[derive(Debug)]
struct End;

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the script has ended")
    }
}

impl core::error::Error for End {}

/// An error of a command, as an error of Lua.
#[derive(Debug)]
struct Raised {
    text: Vec<u8>,
    place: Option<Place>,
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.text))
    }
}

impl core::error::Error for Raised {}

/// A line of a script.
#[derive(Clone, Debug)]
struct Place {
    source: String,
    line: usize,
}

/// The line of the script that runs now.
fn place(lua: &Lua) -> Option<Place> {
    for level in 1..20 {
        let of = lua.inspect_stack(level, |debug| {
            let source = debug.source().source.unwrap_or_default();
            let short: String = source.chars().take(NAME_BYTES_MAX).collect();
            (short, debug.current_line())
        });
        match of? {
            (source, Some(line)) if source != PRELUDE => return Some(Place { source, line }),
            _ => {}
        }
    }
    None
}

/// An error of a function that a script has called. As in Lua, its text begins with the place of the call.
pub(crate) fn problem(lua: &Lua, text: &str) -> Error {
    match place(lua) {
        Some(Place { source, line }) => {
            let name = source.strip_prefix(['@', '=']).unwrap_or(&source);
            Error::runtime(format!("{name}:{line}: {text}"))
        }
        None => Error::runtime(text),
    }
}

/// The value that a script catches for an error: a table for one of a command, else a text.
fn caught(lua: &Lua, work: &Work, value: Value) -> Result<Value> {
    if work.ended.get().is_some() {
        return Err(work.end_error());
    }
    work.spend(match value {
        Value::Error(_) => CAUGHT_OF_RUST_NS,
        _ => CAUGHT_NS,
    })?;
    let error = match value {
        Value::Error(error) => error,
        // The text of Lua itself, when no memory is left.
        Value::String(text) if *text.as_bytes() == *b"not enough memory" => return Err(work.end_for_memory()),
        // The place of an error in the prelude is of no use to a script.
        Value::String(text) if text.as_bytes().starts_with(b"prelude:") => {
            let text = text.as_bytes().to_vec();
            let start = text.windows(2).position(|two| two == b": ").map_or(0, |at| at + 2);
            return Ok(Value::String(lua.create_string(text.get(start..).unwrap_or_default())?));
        }
        value => return Ok(value),
    };
    let mut error: &Error = &error;
    while let Error::CallbackError { cause, .. } | Error::BadArgument { cause, .. } = error {
        error = cause;
    }
    match error {
        Error::MemoryError(_) => Err(work.end_for_memory()),
        Error::ExternalError(inner) => match inner.downcast_ref::<Raised>() {
            Some(raised) => {
                let table = error_table(lua, &raised.text)?;
                if let Some(place) = &raised.place {
                    set_place(&table, place)?;
                }
                Ok(Value::Table(table))
            }
            None => Err(work.end_error()),
        },
        Error::RuntimeError(text) => {
            let text = text.split("\nstack traceback:").next().unwrap_or_default();
            Ok(Value::String(lua.create_string(text)?))
        }
        other => {
            let text = other.to_string();
            let text = text.split("\nstack traceback:").next().unwrap_or_default();
            Ok(Value::String(lua.create_string(text)?))
        }
    }
}

fn set_place(table: &Table, place: &Place) -> Result<()> {
    table.raw_set("source", place.source.as_str())?;
    table.raw_set("line", place.line as f64)
}

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

fn compile(lua: &Lua, source: &[u8], name: &str, globals: &Table) -> Result<Function> {
    if source.len() > SOURCE_BYTES_MAX {
        return Err(Error::runtime(format!("a chunk may have {SOURCE_BYTES_MAX} bytes")));
    }
    if !is_cheap_to_compile(source) {
        let text = "the chunk has too many local names or branches to be compiled in one turn: make it shorter";
        return Err(Error::runtime(text));
    }
    let name: String = name.chars().take(NAME_BYTES_MAX).collect();
    let chunk = lua.load(source).set_name(name).set_mode(mlua::ChunkMode::Text);
    chunk.set_environment(globals.clone()).into_function()
}

fn syntax_text(error: &Error) -> String {
    match error {
        Error::SyntaxError { message, .. } | Error::RuntimeError(message) => message.clone(),
        other => other.to_string(),
    }
}

/// Adds to an error where it was raised. It ends as a table.
fn at_error(lua: &Lua, work: &Work, value: Value) -> Result<Value> {
    if work.ended.get().is_some() {
        return Ok(Value::Nil);
    }
    let Ok(value) = caught(lua, work, value) else {
        return Ok(Value::Nil);
    };
    let table = match value {
        Value::Table(table) => table,
        value => {
            let text = match lua.coerce_string(value.clone())? {
                Some(text) => [b"ERR ", &*text.as_bytes()].concat(),
                None => format!("ERR {}", value.type_name()).into_bytes(),
            };
            error_table(lua, &text)?
        }
    };
    if matches!(table.raw_get::<Value>("line")?, Value::Nil)
        && let Some(place) = place(lua)
    {
        set_place(&table, &place)?;
    }
    Ok(Value::Table(table))
}

/// An error of Redis, which a script catches as a table.
fn raise(lua: &Lua, text: &[u8]) -> Error {
    let (text, place) = (text.to_vec(), place(lua));
    Error::external(Raised { text, place })
}

/// `redis.call`.
fn call(
    lua: &Lua,
    work: &Work,
    host: &mut dyn Host,
    args: MultiValue,
    proto: Proto,
    command: &mut Vec<u8>,
    reply: &mut Vec<u8>,
) -> Result<Value> {
    if args.is_empty() {
        return Err(raise(
            lua,
            b"ERR Please specify at least one argument for this redis lib call",
        ));
    }
    command.clear();
    encode::array_header(command, args.len());
    for arg in &args {
        if !append_argument(arg, command) {
            return Err(raise(
                lua,
                b"ERR Lua redis lib command arguments must be strings or integers",
            ));
        }
        work.check_length(command.len())?;
    }
    drop(args);
    work.spend(200 + command.len() as u64 / 4)?;
    reply.clear();
    if let Err(ended) = host.call(command, proto, reply) {
        work.ended.set(Some(ended));
        return Err(work.end_error());
    }
    work.spend(reply.len() as u64 / 2)?;
    if let [b'-', line @ ..] = reply.as_slice() {
        return Err(raise(lua, line.strip_suffix(b"\r\n").unwrap_or(line)));
    }
    from_reply(lua, &mut reply.as_slice())
}

/// Redis' own functions, as far as they are not made in the prelude.
fn redis_table(lua: &Lua, work: &Rc<Work>, is_resp3: &Rc<Cell<bool>>) -> Result<Table> {
    let redis = lua.create_table()?;
    redis.raw_set("REDIS_VERSION", REDIS_VERSION)?;
    redis.raw_set("REDIS_VERSION_NUM", REDIS_VERSION_NUMBER)?;
    let of = Rc::clone(work);
    let sha1hex = move |lua: &Lua, values: mlua::Variadic<Value>| {
        let [value] = values.as_slice() else {
            return Err(raise(lua, b"ERR wrong number of arguments"));
        };
        let text = lua.coerce_string(value.clone())?;
        let bytes = text.map(|text| text.as_bytes().to_vec()).unwrap_or_default();
        of.spend(bytes.len() as u64 * 4)?;
        lua.create_string(sha_of(&bytes))
    };
    redis.raw_set("sha1hex", lua.create_function(sha1hex)?)?;
    let flag = Rc::clone(is_resp3);
    let setresp = move |lua: &Lua, versions: mlua::Variadic<f64>| match versions.as_slice() {
        [version] if [2.0, 3.0].contains(version) => {
            flag.set(*version == 3.0);
            Ok(())
        }
        [_] => Err(raise(lua, b"ERR RESP version must be 2 or 3.")),
        _ => Err(raise(lua, b"ERR redis.setresp() requires one argument.")),
    };
    redis.raw_set("setresp", lua.create_function(setresp)?)?;
    let is_allowed = |lua: &Lua, words: mlua::Variadic<mlua::String>| {
        let Some(name) = words.first() else {
            return Err(raise(
                lua,
                b"ERR Please specify at least one argument for this redis.acl_check_cmd() call",
            ));
        };
        match command::find(&name.as_bytes()) {
            Some(_) => Ok(true),
            None => Err(raise(lua, b"ERR Invalid command passed to redis.acl_check_cmd()")),
        }
    };
    let log = |lua: &Lua, values: mlua::Variadic<Value>| match values.as_slice() {
        [_] | [] => Err(raise(lua, b"ERR redis.log() requires two arguments or more.")),
        [level, ..] => match lua.coerce_number(level.clone())? {
            Some(level) if (0.0..=3.0).contains(&level) => Ok(()),
            Some(_) => Err(raise(lua, b"ERR Invalid debug level.")),
            None => Err(raise(lua, b"ERR First argument must be a number (log level).")),
        },
    };
    redis.raw_set("log", lua.create_function(log)?)?;
    let set_repl = |lua: &Lua, values: mlua::Variadic<Value>| match values.len() {
        1 => Ok(()),
        _ => Err(raise(lua, b"ERR redis.set_repl() requires two arguments.")),
    };
    redis.raw_set("set_repl", lua.create_function(set_repl)?)?;
    redis.raw_set("acl_check_cmd", lua.create_function(is_allowed)?)?;
    Ok(redis)
}

#[cfg(test)]
mod tests;
