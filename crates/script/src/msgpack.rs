//! The library `cmsgpack`: values of Lua in the format of MessagePack, with the choices of Redis' library.

use crate::sandbox::{Work, problem};
use mlua::{Lua, Result, Table, Value, Variadic};
use std::rc::Rc;

/// The deepest nesting that is packed; deeper tables become nil.
const DEPTH_MAX: usize = 16;
/// The deepest nesting that is unpacked.
const UNPACK_DEPTH_MAX: usize = 200;
/// Nanoseconds of a byte and of a value, about.
const BYTE_NS: u64 = 10;
const VALUE_NS: u64 = 300;

pub(crate) fn library(lua: &Lua, work: &Rc<Work>) -> Result<Table> {
    let table = lua.create_table()?;
    let of_pack = Rc::clone(work);
    let pack = lua.create_function(move |lua, values: Variadic<Value>| {
        if values.is_empty() {
            return Err(problem(
                lua,
                "bad argument #0 to 'pack' (MessagePack pack needs input.)",
            ));
        }
        let mut out = Vec::new();
        for value in values.iter() {
            append(&of_pack, value, 0, &mut out)?;
        }
        of_pack.spend(out.len() as u64 * BYTE_NS)?;
        lua.create_string(out)
    })?;
    table.raw_set("pack", pack)?;
    let of_all = Rc::clone(work);
    let unpack = lua.create_function(move |lua, text: mlua::String| {
        let (values, _) = unpack_some(lua, &of_all, &text, usize::MAX, 0)?;
        Ok(values)
    })?;
    table.raw_set("unpack", unpack)?;
    let of_one = Rc::clone(work);
    let unpack_one = lua.create_function(move |lua, (text, from): (mlua::String, Option<i64>)| {
        unpack_from(lua, &of_one, &text, 1, from)
    })?;
    table.raw_set("unpack_one", unpack_one)?;
    let of_some = Rc::clone(work);
    let unpack_limit = lua.create_function(move |lua, (text, most, from): (mlua::String, i64, Option<i64>)| {
        unpack_from(lua, &of_some, &text, usize::try_from(most).unwrap_or_default(), from)
    })?;
    table.raw_set("unpack_limit", unpack_limit)?;
    table.raw_set("_NAME", "cmsgpack")?;
    table.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    Ok(table)
}

/// The offset behind the last value, or -1 at the end; then the values.
fn unpack_from(lua: &Lua, work: &Work, text: &mlua::String, most: usize, from: Option<i64>) -> Result<(Table, usize)> {
    let from = usize::try_from(from.unwrap_or(0))
        .ok()
        .filter(|from| *from <= text.as_bytes().len());
    let Some(from) = from else {
        return Err(problem(lua, "Start offset greater than input length."));
    };
    let ((values, count), end) = unpack_some(lua, work, text, most, from)?;
    let next = if end == text.as_bytes().len() { -1 } else { end as i64 };
    // The offset comes first.
    for at in (1..=count).rev() {
        values.raw_set(at + 1, values.raw_get::<Value>(at)?)?;
    }
    values.raw_set(1, next as f64)?;
    Ok((values, count + 1))
}

fn unpack_some(
    lua: &Lua,
    work: &Work,
    text: &mlua::String,
    most: usize,
    from: usize,
) -> Result<((Table, usize), usize)> {
    let text = text.as_bytes();
    work.spend((text.len() - from) as u64 * BYTE_NS)?;
    let mut reader = Reader {
        text: &text,
        at: from,
        lua,
        work,
    };
    let (values, mut count) = (lua.create_table()?, 0);
    while reader.at < text.len() && count < most {
        if count == 4000 {
            return Err(problem(lua, "too many values to unpack: give a limit"));
        }
        count += 1;
        values.raw_set(count, reader.value(0)?)?;
    }
    Ok(((values, count), reader.at))
}

fn append(work: &Work, value: &Value, depth: usize, out: &mut Vec<u8>) -> Result<()> {
    let length = match value {
        Value::String(text) => text.as_bytes().len(),
        _ => 0,
    };
    work.check_length(out.len() + length)?;
    work.spend(VALUE_NS + length as u64)?;
    match value {
        Value::Boolean(is_true) => out.push(0xc2 + u8::from(*is_true)),
        Value::Integer(number) => append_number(*number as f64, out),
        Value::Number(number) => append_number(*number, out),
        Value::String(text) => {
            let text = text.as_bytes();
            match text.len() {
                length @ ..32 => out.push(0xa0 | length as u8),
                length => append_length(length, [Some(0xd9), Some(0xda), Some(0xdb)], out),
            }
            out.extend_from_slice(&text);
        }
        Value::Table(table) if depth < DEPTH_MAX => append_table(work, table, depth + 1, out)?,
        _ => out.push(0xc0),
    }
    Ok(())
}

/// Appends a length behind its tag of 8, 16 or 32 bits.
fn append_length(length: usize, tags: [Option<u8>; 3], out: &mut Vec<u8>) {
    let [of_8, of_16, of_32] = tags;
    if let (Ok(length), Some(tag)) = (u8::try_from(length), of_8) {
        out.extend_from_slice(&[tag, length]);
    } else if let (Ok(length), Some(tag)) = (u16::try_from(length), of_16) {
        out.push(tag);
        out.extend_from_slice(&length.to_be_bytes());
    } else if let Some(tag) = of_32 {
        out.push(tag);
        out.extend_from_slice(&(length as u32).to_be_bytes());
    }
}

fn append_number(number: f64, out: &mut Vec<u8>) {
    // The bounds of i64 themselves are no integers of f64 that fit.
    if number.fract() != 0.0 || number.abs() >= 9.2e18 {
        let short = number as f32;
        if f64::from(short) == number {
            out.push(0xca);
            out.extend_from_slice(&short.to_be_bytes());
        } else {
            out.push(0xcb);
            out.extend_from_slice(&number.to_be_bytes());
        }
        return;
    }
    let number = number as i64;
    match number {
        0..=127 => out.push(number as u8),
        128..=0xff => out.extend_from_slice(&[0xcc, number as u8]),
        0x100..=0xffff => {
            out.push(0xcd);
            out.extend_from_slice(&(number as u16).to_be_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            out.push(0xce);
            out.extend_from_slice(&(number as u32).to_be_bytes());
        }
        0x1_0000_0000.. => {
            out.push(0xcf);
            out.extend_from_slice(&(number as u64).to_be_bytes());
        }
        -32..0 => out.push(number as i8 as u8),
        -128..-32 => out.extend_from_slice(&[0xd0, number as i8 as u8]),
        -32_768..-128 => {
            out.push(0xd1);
            out.extend_from_slice(&(number as i16).to_be_bytes());
        }
        -2_147_483_648..-32_768 => {
            out.push(0xd2);
            out.extend_from_slice(&(number as i32).to_be_bytes());
        }
        _ => {
            out.push(0xd3);
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
}

fn append_table(work: &Work, table: &Table, depth: usize, out: &mut Vec<u8>) -> Result<()> {
    let (mut count, mut most, mut is_array) = (0usize, 0.0f64, true);
    for pair in table.pairs::<Value, Value>() {
        count += 1;
        work.spend(VALUE_NS)?;
        match pair?.0 {
            Value::Integer(key) if key > 0 => most = most.max(key as f64),
            Value::Number(key) if key > 0.0 && key.fract() == 0.0 => most = most.max(key),
            _ => is_array = false,
        }
    }

    if is_array && most == count as f64 {
        match count {
            ..16 => out.push(0x90 | count as u8),
            _ => append_length(count, [None, Some(0xdc), Some(0xdd)], out),
        }
        for at in 1..=count {
            append(work, &table.raw_get(at)?, depth, out)?;
        }
        return Ok(());
    }
    match count {
        ..16 => out.push(0x80 | count as u8),
        _ => append_length(count, [None, Some(0xde), Some(0xdf)], out),
    }
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        append(work, &key, depth, out)?;
        append(work, &value, depth, out)?;
    }
    Ok(())
}

struct Reader<'t> {
    text: &'t [u8],
    at: usize,
    lua: &'t Lua,
    work: &'t Work,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.text.get(self.at..).and_then(|rest| rest.first_chunk::<N>());
        let bytes = *bytes.ok_or_else(|| problem(self.lua, "Missing bytes in input."))?;
        self.at += N;
        Ok(bytes)
    }

    fn length(&mut self, bytes: u8) -> Result<usize> {
        Ok(match bytes {
            1 => usize::from(self.take::<1>()?[0]),
            2 => usize::from(u16::from_be_bytes(self.take()?)),
            _ => u32::from_be_bytes(self.take()?) as usize,
        })
    }

    fn string(&mut self, length: usize) -> Result<Value> {
        let end = self.at.saturating_add(length);
        let Some(bytes) = self.text.get(self.at..end) else {
            return Err(problem(self.lua, "Missing bytes in input."));
        };
        self.at = end;
        Ok(Value::String(self.lua.create_string(bytes)?))
    }

    fn array(&mut self, count: usize, depth: usize) -> Result<Value> {
        let table = self.lua.create_table()?;
        for at in 1..=count {
            let value = self.value(depth + 1)?;
            table.raw_set(at, value)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, count: usize, depth: usize) -> Result<Value> {
        let table = self.lua.create_table()?;
        for _ in 0..count {
            let key = self.value(depth + 1)?;
            let value = self.value(depth + 1)?;
            if matches!(key, Value::Nil) || matches!(key, Value::Number(key) if key.is_nan()) {
                return Err(problem(self.lua, "Bad data format in input."));
            }
            table.raw_set(key, value)?;
        }
        Ok(Value::Table(table))
    }

    fn value(&mut self, depth: usize) -> Result<Value> {
        if depth > UNPACK_DEPTH_MAX {
            return Err(problem(self.lua, "Bad data format in input: it is nested too deeply."));
        }
        self.work.spend(VALUE_NS)?;
        let tag = self.take::<1>()?[0];
        let number = |number: f64| Ok(Value::Number(number));
        match tag {
            0..0x80 => number(f64::from(tag)),
            0x80..0x90 => self.map(usize::from(tag & 15), depth),
            0x90..0xa0 => self.array(usize::from(tag & 15), depth),
            0xa0..0xc0 => self.string(usize::from(tag & 31)),
            0xc0 => Ok(Value::Nil),
            0xc2 | 0xc3 => Ok(Value::Boolean(tag == 0xc3)),
            0xca => number(f64::from(f32::from_be_bytes(self.take()?))),
            0xcb => number(f64::from_be_bytes(self.take()?)),
            0xcc => number(f64::from(self.take::<1>()?[0])),
            0xcd => number(f64::from(u16::from_be_bytes(self.take()?))),
            0xce => number(f64::from(u32::from_be_bytes(self.take()?))),
            0xcf => number(u64::from_be_bytes(self.take()?) as f64),
            0xd0 => number(f64::from(i8::from_be_bytes(self.take()?))),
            0xd1 => number(f64::from(i16::from_be_bytes(self.take()?))),
            0xd2 => number(f64::from(i32::from_be_bytes(self.take()?))),
            0xd3 => number(i64::from_be_bytes(self.take()?) as f64),
            0xc4 | 0xd9 => self.length(1).and_then(|length| self.string(length)),
            0xc5 | 0xda => self.length(2).and_then(|length| self.string(length)),
            0xc6 | 0xdb => self.length(4).and_then(|length| self.string(length)),
            0xdc => self.length(2).and_then(|count| self.array(count, depth)),
            0xdd => self.length(4).and_then(|count| self.array(count, depth)),
            0xde => self.length(2).and_then(|count| self.map(count, depth)),
            0xdf => self.length(4).and_then(|count| self.map(count, depth)),
            0xe0.. => number(f64::from(tag as i8)),
            _ => Err(problem(self.lua, "Bad data format in input.")),
        }
    }
}
