//! Source of a script or a library becomes a function.

use super::NAME_BYTES_MAX;
use crate::source::{SOURCE_BYTES_MAX, is_cheap_to_compile};
use mlua::{Error, Function, Lua, Result, Table};

/// A function of this source, with these globals. `name`: for errors.
pub(super) fn compile(lua: &Lua, source: &[u8], name: &str, globals: &Table) -> Result<Function> {
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

/// The text of an error of compiling.
pub(super) fn syntax_text(error: &Error) -> String {
    match error {
        Error::SyntaxError { message, .. } | Error::RuntimeError(message) => message.clone(),
        other => other.to_string(),
    }
}
