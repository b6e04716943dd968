//! Values of Lua and replies of Redis: <https://redis.io/docs/latest/develop/interact/programmability/lua-api/>, "Data
//! type conversion".

use crate::sandbox::{Ended, Work};
use mlua::{Lua, Result, Table, Value};
use paritas_wire::resp::{Proto, encode, parse_integer};

/// The deepest nesting of a reply.
const DEPTH_MAX: usize = 200;
/// Nanoseconds of an element and of a table, about.
const ELEMENT_NS: u64 = 100;
const TABLE_NS: u64 = 1000;

/// An error of Redis, as a script catches and returns it.
pub(crate) fn error_table(lua: &Lua, text: &[u8]) -> Result<Table> {
    let table = lua.create_table_with_capacity(0, 4)?;
    table.raw_set("err", lua.create_string(text)?)?;
    Ok(table)
}

/// The value of a reply, which is the first of `rest`; it is taken from there. An error is a table with `err`.
pub(crate) fn from_reply(lua: &Lua, rest: &mut &[u8]) -> Result<Value> {
    let (kind, line) = line(rest);
    let number = || parse_integer(line);
    let count = number().and_then(|count| usize::try_from(count).ok());
    Ok(match kind {
        b':' => Value::Number(number().unwrap_or_default() as f64),
        b'$' => match count {
            Some(length) => Value::String(lua.create_string(take(rest, length))?),
            None => Value::Boolean(false),
        },
        b'+' => {
            let table = lua.create_table_with_capacity(0, 1)?;
            table.raw_set("ok", lua.create_string(line)?)?;
            Value::Table(table)
        }
        b'-' => Value::Table(error_table(lua, line)?),
        b'*' | b'>' => match count {
            Some(count) => Value::Table(array(lua, rest, count)?),
            None => Value::Boolean(false),
        },
        b'_' => Value::Nil,
        b'#' => Value::Boolean(line == b"t"),
        b',' => {
            let number = core::str::from_utf8(line)
                .ok()
                .and_then(|text| text.parse::<f64>().ok());
            named(lua, "double", Value::Number(number.unwrap_or_default()))?
        }
        b'(' => named(lua, "big_number", Value::String(lua.create_string(line)?))?,
        b'=' => {
            let text = take(rest, count.unwrap_or_default());
            let table = lua.create_table()?;
            table.raw_set("format", lua.create_string(text.get(..3).unwrap_or_default())?)?;
            table.raw_set("string", lua.create_string(text.get(4..).unwrap_or_default())?)?;
            named(lua, "verbatim_string", Value::Table(table))?
        }
        b'%' => {
            let table = lua.create_table()?;
            for _ in 0..count.unwrap_or_default() {
                let (key, value) = (from_reply(lua, rest)?, from_reply(lua, rest)?);
                table.raw_set(key, value)?;
            }
            named(lua, "map", Value::Table(table))?
        }
        b'~' => {
            let table = lua.create_table()?;
            for _ in 0..count.unwrap_or_default() {
                table.raw_set(from_reply(lua, rest)?, true)?;
            }
            named(lua, "set", Value::Table(table))?
        }
        _ => Value::Boolean(false),
    })
}

fn named(lua: &Lua, name: &str, value: Value) -> Result<Value> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(name, value)?;
    Ok(Value::Table(table))
}

fn array(lua: &Lua, rest: &mut &[u8], count: usize) -> Result<Table> {
    let table = lua.create_table_with_capacity(count, 0)?;
    for at in 1..=count {
        table.raw_set(at, from_reply(lua, rest)?)?;
    }
    Ok(table)
}

/// Takes a reply's first line: its type, and the rest of the line.
fn line<'r>(rest: &mut &'r [u8]) -> (u8, &'r [u8]) {
    let end = rest
        .iter()
        .position(|byte| *byte == b'\n')
        .map_or(rest.len(), |at| at + 1);
    let (line, after) = rest.split_at(end);
    *rest = after;
    match line {
        [kind, line @ ..] => (*kind, line.strip_suffix(b"\r\n").unwrap_or(line)),
        [] => (b'_', &[]),
    }
}

fn take<'r>(rest: &mut &'r [u8], length: usize) -> &'r [u8] {
    let (bytes, after) = rest.split_at(length.min(rest.len()));
    *rest = after.get(2..).unwrap_or_default();
    bytes
}

/// Appends the reply that a script's result makes. `is_resp3`: the script has asked for version 3 of the protocol.
///
/// # Errors
/// The end of the script, which has no work left.
pub(crate) fn append_reply(
    work: &Work,
    value: &Value,
    proto: Proto,
    is_resp3: bool,
    out: &mut Vec<u8>,
) -> core::result::Result<(), Ended> {
    append(work, value, proto, is_resp3, 0, out)
}

fn append(
    work: &Work,
    value: &Value,
    proto: Proto,
    is_resp3: bool,
    depth: usize,
    out: &mut Vec<u8>,
) -> core::result::Result<(), Ended> {
    work.take(ELEMENT_NS)?;
    if depth > DEPTH_MAX {
        encode::error(out, "ERR reached lua stack limit");
        return Ok(());
    }
    match value {
        Value::Integer(number) => encode::integer(out, *number),
        Value::Number(number) => encode::integer(out, *number as i64),
        Value::String(text) => {
            let text = text.as_bytes();
            work.take(text.len() as u64 / 4)?;
            work.check_reply(out.len() + text.len())?;
            encode::bulk(out, &text);
        }
        Value::Boolean(is_true) if is_resp3 => encode::boolean(out, proto, *is_true),
        Value::Boolean(true) => encode::integer(out, 1),
        Value::Table(table) => append_table(work, table, proto, is_resp3, depth, out)?,
        _ => encode::null(out, proto),
    }
    Ok(())
}

fn append_table(
    work: &Work,
    table: &Table,
    proto: Proto,
    is_resp3: bool,
    depth: usize,
    out: &mut Vec<u8>,
) -> core::result::Result<(), Ended> {
    work.take(TABLE_NS)?;
    work.check_reply(out.len())?;
    let field = |name: &str| table.raw_get::<Value>(name).unwrap_or(Value::Nil);
    if let Value::String(text) = field("err") {
        append_line(b'-', &text.as_bytes(), out);
        return Ok(());
    }
    if let Value::String(text) = field("ok") {
        append_line(b'+', &text.as_bytes(), out);
        return Ok(());
    }
    match field("double") {
        Value::Number(number) => {
            encode::double(out, proto, number);
            return Ok(());
        }
        Value::Integer(number) => {
            encode::double(out, proto, number as f64);
            return Ok(());
        }
        _ => {}
    }
    if let Value::Table(map) = field("map") {
        let (mut body, mut count) = (Vec::new(), 0);
        for (key, value) in map.pairs::<Value, Value>().flatten() {
            append(work, &key, proto, is_resp3, depth + 1, &mut body)?;
            append(work, &value, proto, is_resp3, depth + 1, &mut body)?;
            count += 1;
        }
        encode::map_header(out, proto, count);
        out.extend_from_slice(&body);
        return Ok(());
    }
    if let Value::Table(set) = field("set") {
        let (mut body, mut count) = (Vec::new(), 0);
        for (key, _) in set.pairs::<Value, Value>().flatten() {
            append(work, &key, proto, is_resp3, depth + 1, &mut body)?;
            count += 1;
        }
        encode::set_header(out, proto, count);
        out.extend_from_slice(&body);
        return Ok(());
    }
    if let Value::String(number) = field("big_number") {
        match proto {
            Proto::Resp3 => append_line(b'(', &number.as_bytes(), out),
            Proto::Resp2 => encode::bulk(out, &number.as_bytes()),
        }
        return Ok(());
    }
    if let Value::Table(verbatim) = field("verbatim_string")
        && let (Ok(format), Ok(text)) = (
            verbatim.raw_get::<mlua::String>("format"),
            verbatim.raw_get::<mlua::String>("string"),
        )
    {
        let format = *format.as_bytes().first_chunk::<3>().unwrap_or(b"txt");
        encode::verbatim(out, proto, &format, &text.as_bytes());
        return Ok(());
    }
    // An array ends before its first nil.
    let (mut body, mut count) = (Vec::new(), 0);
    loop {
        let value = table.raw_get::<Value>(count + 1).unwrap_or(Value::Nil);
        if matches!(value, Value::Nil) {
            break;
        }
        append(work, &value, proto, is_resp3, depth + 1, &mut body)?;
        count += 1;
    }
    work.take(body.len() as u64 / 4)?;
    encode::array_header(out, count);
    out.extend_from_slice(&body);
    Ok(())
}

/// Appends a reply of one line. Line ends in the text become spaces.
pub(crate) fn append_line(kind: u8, text: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    out.extend(
        text.iter()
            .map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }),
    );
    out.extend_from_slice(b"\r\n");
}

/// Appends an argument of a command. False: the value is neither string nor number.
pub(crate) fn append_argument(value: &Value, out: &mut Vec<u8>) -> bool {
    match value {
        Value::String(text) => encode::bulk(out, &text.as_bytes()),
        Value::Integer(number) => encode::bulk_integer(out, *number),
        Value::Number(number) => encode::bulk(out, crate::json::general(*number, 17).as_bytes()),
        _ => return false,
    }
    true
}
