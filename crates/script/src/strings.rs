//! Functions on strings that match patterns or make long results: Lua's own run in C, and no hook ends them.

use crate::pattern::{Capture, Failure, Match, find as find_pattern};
use crate::sandbox::{Work, problem};
use mlua::{Lua, Result, String as Text, Table, Value};
use std::rc::Rc;

/// Bytes of a result that cost a nanosecond.
const BYTES_OF_NS: u64 = 4;
/// A coroutine counts its own instructions, and is not asked before its 200th.
const NEW_COROUTINE_NS: u64 = 5000;
const SPECIALS: &[u8] = b"^$*+?.([%-";

fn failed(lua: &Lua, work: &Work, failure: Failure) -> mlua::Error {
    match failure {
        Failure::Malformed(why) => problem(lua, why),
        Failure::OutOfSteps => work.end_error(),
    }
}

/// The offset of Lua's position, from 1, or from the end if it is negative.
fn offset(position: i64, length: usize) -> usize {
    let length = length as i64;
    let at = if position < 0 {
        (length + position).max(0)
    } else {
        (position - 1).max(0)
    };
    at as usize
}

fn captured(lua: &Lua, text: &[u8], found: &Match, at: usize) -> Result<Value> {
    match found.captures.get(at) {
        Some(Capture::Position(at)) => Ok(Value::Number((at + 1) as f64)),
        Some(Capture::Text { start, end }) => Ok(Value::String(
            lua.create_string(text.get(*start..*end).unwrap_or_default())?,
        )),
        None => Ok(Value::String(
            lua.create_string(text.get(found.start..found.end).unwrap_or_default())?,
        )),
    }
}

/// The number of captures, and the only one, or a table of them. The whole match is one if the pattern has none.
fn captures(lua: &Lua, text: &[u8], found: &Match, and_whole: bool) -> Result<(usize, Value)> {
    let count = match found.captures.len() {
        0 if and_whole => 1,
        count => count,
    };
    let value = match count {
        0 => Value::Nil,
        1 => captured(lua, text, found, 0)?,
        _ => {
            let table = lua.create_table_with_capacity(count, 0)?;
            for at in 0..count {
                table.raw_set(at + 1, captured(lua, text, found, at)?)?;
            }
            Value::Table(table)
        }
    };
    Ok((count, value))
}

fn find_plain(work: &Work, text: &[u8], what: &[u8], from: usize) -> Result<Option<usize>> {
    let [first, rest @ ..] = what else {
        return Ok(Some(from));
    };
    let mut at = from;
    loop {
        let Some(tail) = text.get(at..) else { return Ok(None) };
        let skip = tail.iter().position(|byte| byte == first);
        let Some(skip) = skip else {
            work.spend(tail.len() as u64)?;
            return Ok(None);
        };
        at += skip;
        let same = text
            .get(at + 1..)
            .unwrap_or_default()
            .iter()
            .zip(rest)
            .take_while(|(a, b)| a == b)
            .count();
        work.spend((skip + same) as u64 + 1)?;
        if same == rest.len() {
            return Ok(Some(at));
        }
        at += 1;
    }
}

/// Puts the functions into the table that the prelude is given.
pub(crate) fn add(lua: &Lua, work: &Rc<Work>, natives: &Table) -> Result<()> {
    // First and last position, captures.
    let of = Rc::clone(work);
    let find = move |lua: &Lua, (text, pattern, from, plain): (Text, Text, Option<i64>, Value)| {
        let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
        let from = offset(from.unwrap_or(1), text.len()).min(text.len());
        let is_plain = !matches!(plain, Value::Nil | Value::Boolean(false));
        if is_plain || !pattern.iter().any(|byte| SPECIALS.contains(byte)) {
            let found = find_plain(&of, &text, &pattern, from)?;
            return Ok(found.map_or((None, 0, 0, Value::Nil), |at| {
                (Some(at + 1), at + pattern.len(), 0, Value::Nil)
            }));
        }
        let found = find_pattern(&text, &pattern, from, true, &|ns| of.take(ns).is_ok());
        let Some(found) = found.map_err(|why| failed(lua, &of, why))? else {
            return Ok((None, 0, 0, Value::Nil));
        };
        let (count, value) = captures(lua, &text, &found, false)?;
        Ok((Some(found.start + 1), found.end, count, value))
    };
    natives.raw_set("find", lua.create_function(find)?)?;

    let of = Rc::clone(work);
    let matches = move |lua: &Lua, (text, pattern, from): (Text, Text, Option<i64>)| {
        let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
        let from = offset(from.unwrap_or(1), text.len()).min(text.len());
        let found = find_pattern(&text, &pattern, from, true, &|ns| of.take(ns).is_ok());
        match found.map_err(|why| failed(lua, &of, why))? {
            Some(found) => captures(lua, &text, &found, true),
            None => Ok((0, Value::Nil)),
        }
    };
    natives.raw_set("match", lua.create_function(matches)?)?;

    // One step of gmatch, from an offset: the next offset, and the captures. As in Lua 5.1, `^` is no anchor there.
    let of = Rc::clone(work);
    let gmatch = move |lua: &Lua, (text, pattern, at): (Text, Text, usize)| {
        let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
        let found = match at > text.len() {
            true => None,
            false => find_pattern(&text, &pattern, at, false, &|ns| of.take(ns).is_ok())
                .map_err(|why| failed(lua, &of, why))?,
        };
        let Some(found) = found else {
            return Ok((text.len() + 1, 0, Value::Nil));
        };
        let next = if found.end == found.start {
            found.end + 1
        } else {
            found.end
        };
        let (count, value) = captures(lua, &text, &found, true)?;
        Ok((next, count, value))
    };
    natives.raw_set("gmatch", lua.create_function(gmatch)?)?;

    // One step of gsub with a function or table: first position, position behind, the whole match, captures.
    let of = Rc::clone(work);
    let gsub_step = move |lua: &Lua, (text, pattern, at): (Text, Text, usize)| {
        let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
        let found = find_pattern(&text, &pattern, at, true, &|ns| of.take(ns).is_ok());
        let Some(found) = found.map_err(|why| failed(lua, &of, why))? else {
            return Ok((None, 0, Value::Nil, 0, Value::Nil));
        };
        let whole = text.get(found.start..found.end).unwrap_or_default();
        let whole = Value::String(lua.create_string(whole)?);
        let (count, value) = captures(lua, &text, &found, true)?;
        Ok((Some(found.start + 1), found.end + 1, whole, count, value))
    };
    natives.raw_set("gsub_step", lua.create_function(gsub_step)?)?;

    let of = Rc::clone(work);
    let gsub = move |lua: &Lua, (text, pattern, with, most): (Text, Text, Text, Option<i64>)| {
        let (text, pattern, with) = (text.as_bytes(), pattern.as_bytes(), with.as_bytes());
        let most = most.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(0));
        let is_anchored = pattern.first() == Some(&b'^');
        let (mut out, mut at, mut count) = (Vec::new(), 0, 0usize);
        while count < most && at <= text.len() {
            let found = find_pattern(&text, &pattern, at, true, &|ns| of.take(ns).is_ok())
                .map_err(|why| failed(lua, &of, why))?;
            let Some(found) = found else { break };
            out.extend_from_slice(text.get(at..found.start).unwrap_or_default());
            replace(lua, &of, &text, &found, &with, &mut out)?;
            of.spend(with.len() as u64 / BYTES_OF_NS + 1)?;
            count += 1;
            at = found.end;
            if found.end == found.start {
                out.extend(text.get(at));
                at += 1;
            }
            if is_anchored {
                break;
            }
        }
        out.extend_from_slice(text.get(at..).unwrap_or_default());
        of.spend(out.len() as u64 / BYTES_OF_NS)?;
        Ok((lua.create_string(out)?, count as f64))
    };
    natives.raw_set("gsub", lua.create_function(gsub)?)?;

    let of = Rc::clone(work);
    let rep = move |lua: &Lua, (text, count): (Text, f64)| {
        let text = text.as_bytes();
        let count = if count >= 1.0 { count as usize } else { 0 };
        let bytes = text.len().saturating_mul(count);
        of.check_length(bytes)?;
        of.spend(bytes as u64 / BYTES_OF_NS)?;
        lua.create_string(if bytes == 0 { Vec::new() } else { text.repeat(count) })
    };
    natives.raw_set("rep", lua.create_function(rep)?)?;

    type Change = fn(&mut Vec<u8>);
    let changes: [(&str, Change); 3] = [
        ("lower", |text| text.make_ascii_lowercase()),
        ("upper", |text| text.make_ascii_uppercase()),
        ("reverse", |text| text.reverse()),
    ];
    for (name, change) in changes {
        let of = Rc::clone(work);
        let changed = move |lua: &Lua, text: Text| {
            let mut bytes = text.as_bytes().to_vec();
            of.spend(bytes.len() as u64)?;
            change(&mut bytes);
            lua.create_string(bytes)
        };
        natives.raw_set(name, lua.create_function(changed)?)?;
    }

    let of = Rc::clone(work);
    let on_coroutine = move |_: &Lua, ()| of.spend(NEW_COROUTINE_NS);
    natives.raw_set("on_coroutine", lua.create_function(on_coroutine)?)?;

    let of = Rc::clone(work);
    let concat = move |lua: &Lua, (list, separator, first, last): (Value, Option<Text>, Option<f64>, Option<f64>)| {
        let Value::Table(list) = list else {
            let got = list.type_name();
            let text = format!("bad argument #1 to 'concat' (table expected, got {got})");
            return Err(problem(lua, &text));
        };
        let separator = separator.map(|text| text.as_bytes().to_vec()).unwrap_or_default();
        let last = last.unwrap_or_else(|| list.raw_len() as f64);
        let (mut out, mut at) = (Vec::new(), first.unwrap_or(1.0));
        while at <= last {
            match list.raw_get::<Value>(at)? {
                Value::String(text) => out.extend_from_slice(&text.as_bytes()),
                Value::Integer(number) => out.extend_from_slice(crate::json::general(number as f64, 14).as_bytes()),
                Value::Number(number) => out.extend_from_slice(crate::json::general(number, 14).as_bytes()),
                other => {
                    let text = format!(
                        "invalid value ({}) at index {at} in table for 'concat'",
                        other.type_name()
                    );
                    return Err(problem(lua, &text));
                }
            }
            if at < last {
                out.extend_from_slice(&separator);
            }
            at += 1.0;
            of.spend(40)?;
            of.check_length(out.len())?;
        }
        of.spend(out.len() as u64 / BYTES_OF_NS)?;
        lua.create_string(out)
    };
    natives.raw_set("concat", lua.create_function(concat)?)?;

    let text = |lua: &Lua, (value, name): (Value, Text)| {
        let got = value.type_name();
        match lua.coerce_string(value)? {
            Some(text) => Ok(text),
            None => {
                let name = name.to_string_lossy();
                let text = format!("bad argument to '{name}' (string expected, got {got})");
                Err(problem(lua, &text))
            }
        }
    };
    natives.raw_set("text", lua.create_function(text)?)?;

    let integer = |lua: &Lua, (value, at, name): (Value, i64, Text)| {
        let got = value.type_name();
        match lua.coerce_number(value)? {
            Some(number) => Ok(number.trunc()),
            None => {
                let name = name.to_string_lossy();
                let text = format!("bad argument #{at} to '{name}' (number expected, got {got})");
                Err(problem(lua, &text))
            }
        }
    };
    natives.raw_set("integer", lua.create_function(integer)?)?;
    Ok(())
}

/// Appends a replacement: `%1` to `%9` are captures, `%0` is the whole match.
fn replace(lua: &Lua, work: &Work, text: &[u8], found: &Match, with: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let mut bytes = with.iter();
    while let Some(&byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digit = bytes.next().copied().unwrap_or_default();
        if !digit.is_ascii_digit() {
            out.push(digit);
            continue;
        }
        let whole = Capture::Text {
            start: found.start,
            end: found.end,
        };
        let capture = match digit {
            b'0' => whole,
            b'1' if found.captures.is_empty() => whole,
            _ => match found.captures.get(usize::from(digit - b'1')) {
                Some(capture) => *capture,
                None => return Err(problem(lua, "invalid capture index")),
            },
        };
        match capture {
            Capture::Text { start, end } => {
                work.spend((end - start) as u64 / BYTES_OF_NS + 1)?;
                out.extend_from_slice(text.get(start..end).unwrap_or_default());
            }
            Capture::Position(at) => out.extend_from_slice((at + 1).to_string().as_bytes()),
        }
        work.check_length(out.len())?;
    }
    Ok(())
}
