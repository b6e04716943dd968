//! Errors of a script: of Lua, of commands, and of our own functions.

use super::work::Work;
use super::{NAME_BYTES_MAX, PRELUDE};
use crate::values::error_table;
use core::fmt;
use mlua::{Error, Lua, Result, Table, Value};

/// Nanoseconds of an error that is caught, about: of one that Lua has raised, and of one of our own functions, which
/// brings the text of all calls that it went through.
const CAUGHT_NS: u64 = 2000;
const CAUGHT_OF_RUST_NS: u64 = 20_000;

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
pub(super) fn caught(lua: &Lua, work: &Work, value: Value) -> Result<Value> {
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

/// Adds to an error where it was raised. It ends as a table.
pub(super) fn at_error(lua: &Lua, work: &Work, value: Value) -> Result<Value> {
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
pub(super) fn raise(lua: &Lua, text: &[u8]) -> Error {
    let (text, place) = (text.to_vec(), place(lua));
    Error::external(Raised { text, place })
}
