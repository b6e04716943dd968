//! The library `cjson`, as scripts of Redis know it.

use crate::sandbox::{Work, problem};
use mlua::{Lua, Result, Table, Value};
use std::rc::Rc;

/// The deepest nesting.
const DEPTH_MAX: usize = 1000;
/// A table with a key above this, and above twice the number of its keys, is no array.
const SPARSE_ABOVE: f64 = 10.0;
const SPARSE_RATIO: f64 = 2.0;
/// Nanoseconds of a byte and of a value, about.
const BYTE_NS: u64 = 10;
const VALUE_NS: u64 = 300;

pub(crate) fn library(lua: &Lua, work: &Rc<Work>) -> Result<Table> {
    let table = lua.create_table()?;
    let of_encode = Rc::clone(work);
    let encode = lua.create_function(move |lua, value: Value| {
        let mut out = Vec::new();
        append(&of_encode, &value, 0, &mut out).map_err(|why| problem(lua, &why))?;
        of_encode.spend(out.len() as u64 * BYTE_NS)?;
        lua.create_string(out)
    })?;
    table.raw_set("encode", encode)?;
    let of_decode = Rc::clone(work);
    let decode = lua.create_function(move |lua, text: mlua::String| {
        let text = text.as_bytes();
        of_decode.spend(text.len() as u64 * BYTE_NS)?;
        Reader {
            text: &text,
            at: 0,
            lua,
            work: &of_decode,
        }
        .whole()
    })?;
    table.raw_set("decode", decode)?;
    table.raw_set("null", Value::NULL)?;
    table.raw_set("_NAME", "cjson")?;
    table.raw_set("_VERSION", "2.1.0")?;
    // Settings would outlive the script: they are taken only as they are.
    for (name, count) in [
        ("encode_sparse_array", 3),
        ("encode_max_depth", 1),
        ("decode_max_depth", 1),
        ("encode_number_precision", 1),
        ("encode_keep_buffer", 1),
        ("encode_invalid_numbers", 1),
        ("decode_invalid_numbers", 1),
    ] {
        let setting = lua.create_function(move |lua, given: mlua::Variadic<Value>| {
            if !given.is_empty() && given.len() <= count {
                return Err(problem(lua, &format!("cjson.{name} cannot be changed here")));
            }
            let defaults: &[f64] = match name {
                "encode_sparse_array" => &[0.0, SPARSE_RATIO, SPARSE_ABOVE],
                "encode_max_depth" | "decode_max_depth" => &[DEPTH_MAX as f64],
                "encode_number_precision" => &[14.0],
                _ => &[1.0],
            };
            Ok(defaults.iter().copied().collect::<mlua::Variadic<f64>>())
        })?;
        table.raw_set(name, setting)?;
    }
    Ok(table)
}

/// Why a value cannot be encoded.
type Failed = String;

fn append(work: &Work, value: &Value, depth: usize, out: &mut Vec<u8>) -> core::result::Result<(), Failed> {
    let length = match value {
        Value::String(text) => text.as_bytes().len(),
        _ => 0,
    };
    // A byte may become six.
    let room = work.check_length(out.len() + 6 * length);
    room.and_then(|()| work.spend(VALUE_NS + length as u64 * BYTE_NS))
        .map_err(|end| end.to_string())?;
    match value {
        Value::Nil => out.extend_from_slice(b"null"),
        Value::LightUserData(pointer) if pointer.0.is_null() => out.extend_from_slice(b"null"),
        Value::Boolean(true) => out.extend_from_slice(b"true"),
        Value::Boolean(false) => out.extend_from_slice(b"false"),
        Value::Integer(number) => append_number(*number as f64, out)?,
        Value::Number(number) => append_number(*number, out)?,
        Value::String(text) => append_text(&text.as_bytes(), out),
        Value::Table(table) => append_table(work, table, depth + 1, out)?,
        other => return Err(format!("Cannot serialise {}: type not supported", other.type_name())),
    }
    Ok(())
}

fn append_number(number: f64, out: &mut Vec<u8>) -> core::result::Result<(), Failed> {
    if !number.is_finite() {
        return Err("Cannot serialise number: must not be NaN or Inf".to_owned());
    }
    out.extend_from_slice(general(number, 14).as_bytes());
    Ok(())
}

/// A number in C's format `%.{digits}g`.
pub(crate) fn general(number: f64, digits: usize) -> String {
    if number == 0.0 {
        return if number.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    if !number.is_finite() {
        return if number.is_nan() {
            "nan"
        } else if number > 0.0 {
            "inf"
        } else {
            "-inf"
        }
        .to_owned();
    }
    let text = format!("{number:.*e}", digits - 1);
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let without_zeros = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.unsigned_abs());
    }
    let decimals = (digits as i32 - 1 - exponent).max(0) as usize;
    without_zeros(&format!("{number:.decimals$}"))
}

fn append_text(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in text {
        match byte {
            b'"' | b'\\' | b'/' => out.extend_from_slice(&[b'\\', byte]),
            8 => out.extend_from_slice(b"\\b"),
            12 => out.extend_from_slice(b"\\f"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..32 | 127 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

fn append_table(work: &Work, table: &Table, depth: usize, out: &mut Vec<u8>) -> core::result::Result<(), Failed> {
    if depth > DEPTH_MAX {
        return Err(format!("Cannot serialise, excessive depth ({depth})"));
    }
    let text = |problem: mlua::Error| problem.to_string();
    match array_length(work, table)? {
        Some(length) => {
            out.push(b'[');
            for at in 1..=length {
                if at > 1 {
                    out.push(b',');
                }
                append(work, &table.raw_get(at).map_err(text)?, depth, out)?;
            }
            out.push(b']');
        }
        None => {
            out.push(b'{');
            let mut is_first = true;
            for pair in table.pairs::<Value, Value>() {
                let (key, value) = pair.map_err(text)?;
                work.spend(VALUE_NS).map_err(text)?;
                if !core::mem::take(&mut is_first) {
                    out.push(b',');
                }
                match key {
                    Value::String(key) => {
                        let bytes = key.as_bytes();
                        work.check_length(out.len() + 6 * bytes.len()).map_err(text)?;
                        work.spend(bytes.len() as u64 * BYTE_NS).map_err(text)?;
                        append_text(&bytes, out);
                    }
                    Value::Integer(_) | Value::Number(_) => {
                        out.push(b'"');
                        append(work, &key, depth, out)?;
                        out.push(b'"');
                    }
                    key => {
                        return Err(format!(
                            "Cannot serialise {}: table key must be a number or string",
                            key.type_name()
                        ));
                    }
                }
                out.push(b':');
                append(work, &value, depth, out)?;
            }
            out.push(b'}');
        }
    }
    Ok(())
}

/// The length of a table that is an array; `None` for others, and for empty ones.
fn array_length(work: &Work, table: &Table) -> core::result::Result<Option<usize>, Failed> {
    let (mut most, mut count) = (0.0f64, 0.0f64);
    for pair in table.pairs::<Value, Value>() {
        work.spend(VALUE_NS).map_err(|problem| problem.to_string())?;
        let key = match pair.map_err(|problem| problem.to_string())?.0 {
            Value::Integer(key) => key as f64,
            Value::Number(key) => key,
            _ => return Ok(None),
        };
        if key < 1.0 || key.fract() != 0.0 {
            return Ok(None);
        }
        (most, count) = (most.max(key), count + 1.0);
    }

    if most > count * SPARSE_RATIO && most > SPARSE_ABOVE {
        return Err("Cannot serialise table: excessively sparse array".to_owned());
    }
    Ok((count > 0.0).then_some(most as usize))
}

struct Reader<'t> {
    text: &'t [u8],
    at: usize,
    lua: &'t Lua,
    work: &'t Work,
}

impl Reader<'_> {
    fn whole(mut self) -> Result<Value> {
        let value = self.value(1)?;
        self.skip_blanks();
        match self.peek() {
            None => Ok(value),
            Some(_) => Err(self.expected("the end")),
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn expected(&self, what: &str) -> mlua::Error {
        let found = match self.peek() {
            None => "T_END",
            Some(b'{') => "T_OBJ_BEGIN",
            Some(b'}') => "T_OBJ_END",
            Some(b'[') => "T_ARR_BEGIN",
            Some(b']') => "T_ARR_END",
            Some(b'"') => "T_STRING",
            Some(b':') => "T_COLON",
            Some(b',') => "T_COMMA",
            Some(b'-' | b'0'..=b'9') => "T_NUMBER",
            Some(_) => "invalid token",
        };
        let at = self.at + 1;
        problem(
            self.lua,
            &format!("Expected {what} but found {found} at character {at}"),
        )
    }

    fn value(&mut self, depth: usize) -> Result<Value> {
        if depth > DEPTH_MAX + 1 {
            let text = format!("Found too many nested data structures ({})", depth - 1);
            return Err(problem(self.lua, &text));
        }
        self.work.spend(VALUE_NS)?;
        self.skip_blanks();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => Ok(Value::String(self.lua.create_string(self.string()?)?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => self.word(),
        }
    }

    fn word(&mut self) -> Result<Value> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        for (word, value) in [
            (&b"true"[..], Value::Boolean(true)),
            (b"false", Value::Boolean(false)),
            (b"null", Value::NULL),
            (b"NaN", Value::Number(f64::NAN)),
            (b"nan", Value::Number(f64::NAN)),
            (b"Infinity", Value::Number(f64::INFINITY)),
            (b"inf", Value::Number(f64::INFINITY)),
        ] {
            if rest.starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.expected("value"))
    }

    fn number(&mut self) -> Result<Value> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        if rest.starts_with(b"-inf") {
            self.at += if rest.starts_with(b"-infinity") { 9 } else { 4 };
            return Ok(Value::Number(f64::NEG_INFINITY));
        }
        let is_part = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E');
        let length = rest.iter().take_while(|byte| is_part(byte)).count();
        let text = rest.get(..length).and_then(|digits| core::str::from_utf8(digits).ok());
        match text.and_then(|text| text.parse().ok()) {
            Some(number) => {
                self.at += length;
                Ok(Value::Number(number))
            }
            None => Err(self.expected("value")),
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value> {
        let table = self.lua.create_table()?;
        self.at += 1;
        self.skip_blanks();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::Table(table));
        }
        loop {
            let value = self.value(depth + 1)?;
            table.raw_push(value)?;
            self.skip_blanks();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                _ => return Err(self.expected("comma or array end")),
            }
        }
        self.at += 1;
        Ok(Value::Table(table))
    }

    fn object(&mut self, depth: usize) -> Result<Value> {
        let table = self.lua.create_table()?;
        self.at += 1;
        self.skip_blanks();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Table(table));
        }
        loop {
            self.skip_blanks();
            if self.peek() != Some(b'"') {
                return Err(self.expected("object key string"));
            }
            let key = self.lua.create_string(self.string()?)?;
            self.skip_blanks();
            if self.peek() != Some(b':') {
                return Err(self.expected("colon"));
            }
            self.at += 1;
            let value = self.value(depth + 1)?;
            table.raw_set(key, value)?;
            self.skip_blanks();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return Err(self.expected("comma or object end")),
            }
        }
        self.at += 1;
        Ok(Value::Table(table))
    }

    fn string(&mut self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        self.at += 1;
        loop {
            let Some(byte) = self.peek() else {
                let text = format!(
                    "Expected value but found unexpected end of string at character {}",
                    self.at + 1
                );
                return Err(problem(self.lua, &text));
            };
            self.at += 1;
            match byte {
                b'"' => return Ok(out),
                b'\\' => self.escape(&mut out)?,
                _ => out.push(byte),
            }
        }
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let byte = self.peek().unwrap_or_default();
        self.at += 1;
        out.push(match byte {
            b'"' | b'\\' | b'/' => byte,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let mut code = self.four_digits()?;
                if (0xd800..0xdc00).contains(&code)
                    && self.text.get(self.at..).is_some_and(|rest| rest.starts_with(b"\\u"))
                {
                    self.at += 2;
                    let low = self.four_digits()?;
                    if !(0xdc00..0xe000).contains(&low) {
                        return Err(self.bad_escape("unicode escape code"));
                    }
                    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
                }
                let Some(letter) = char::from_u32(code) else {
                    return Err(self.bad_escape("unicode escape code"));
                };
                out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => return Err(self.bad_escape("escape code")),
        });
        Ok(())
    }

    fn bad_escape(&self, what: &str) -> mlua::Error {
        let text = format!("Expected value but found invalid {what} at character {}", self.at);
        problem(self.lua, &text)
    }

    fn four_digits(&mut self) -> Result<u32> {
        let digits = self.text.get(self.at..self.at + 4).unwrap_or_default();
        let digits = core::str::from_utf8(digits)
            .ok()
            .filter(|text| text.len() == 4 && !text.starts_with('+'));
        match digits.and_then(|text| u32::from_str_radix(text, 16).ok()) {
            Some(code) => {
                self.at += 4;
                Ok(code)
            }
            None => Err(self.bad_escape("unicode escape code")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::general;

    #[test]
    fn numbers_are_written_as_c_does() {
        for (number, text) in [
            (1.0, "1"),
            (0.1, "0.1"),
            (-2.5, "-2.5"),
            (1e14, "1e+14"),
            (99_999_999_999_999.0, "99999999999999"),
            (123_456_789_012_345_678.0, "1.2345678901235e+17"),
            (0.0001, "0.0001"),
            (0.000_01, "1e-05"),
            (1.0 / 3.0, "0.33333333333333"),
        ] {
            assert_eq!(general(number, 14), text);
        }
        assert_eq!(general(3.3, 17), "3.2999999999999998");
    }
}
