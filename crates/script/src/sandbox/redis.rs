//! Functions that Redis gives scripts in the table `redis`.

use super::Host;
use super::errors::raise;
use super::work::Work;
use crate::source::sha_of;
use crate::values::{append_argument, from_reply};
use core::cell::Cell;
use mlua::{Lua, MultiValue, Result, Table, Value};
use paritas_wire::command;
use paritas_wire::resp::{Proto, encode};
use std::rc::Rc;

/// The version of Redis whose libraries scripts find.
const REDIS_VERSION: &str = "7.0.15";
const REDIS_VERSION_NUMBER: u32 = 0x0007_000f;

/// `redis.call`.
pub(super) fn call(
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
pub(super) fn redis_table(lua: &Lua, work: &Rc<Work>, is_resp3: &Rc<Cell<bool>>) -> Result<Table> {
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
