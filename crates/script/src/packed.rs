//! The library `struct`: values of Lua as C lays them out.

use crate::sandbox::{Work, problem};
use mlua::{Lua, Result, Table, Value, Variadic};
use std::rc::Rc;

/// The most bytes of an integer, and the alignment of `!` alone.
const INTEGER_BYTES_MAX: usize = 32;
const ALIGNMENT_BYTES: usize = 8;
/// The most bytes that a format may pack or skip.
const PACKED_BYTES_MAX: usize = 1 << 20;
/// Nanoseconds of a byte, about.
const BYTE_NS: u64 = 4;

pub(crate) fn library(lua: &Lua, work: &Rc<Work>) -> Result<Table> {
    let table = lua.create_table()?;
    let of = Rc::clone(work);
    let pack = move |lua: &Lua, (format, values): (mlua::String, Variadic<Value>)| pack(lua, &of, &format, &values);
    table.raw_set("pack", lua.create_function(pack)?)?;
    let of = Rc::clone(work);
    let unpack = move |lua: &Lua, (format, data, from): (mlua::String, mlua::String, Option<i64>)| {
        unpack(lua, &of, &format, &data, from)
    };
    table.raw_set("unpack", lua.create_function(unpack)?)?;
    let of = Rc::clone(work);
    let size = move |lua: &Lua, format: mlua::String| size(lua, &of, &format);
    table.raw_set("size", lua.create_function(size)?)?;
    Ok(table)
}

/// One item of a format.
#[derive(Clone, Copy)]
enum Item {
    Integer {
        bytes: usize,
        is_signed: bool,
    },
    Float,
    Double,
    /// A string that ends with a zero byte.
    Text,
    /// `c0`: its length was given by the value before it.
    Counted(usize),
    Pad,
}

struct Format<'f> {
    lua: &'f Lua,
    /// The function that reads it.
    name: &'static str,
    rest: &'f [u8],
    is_little: bool,
    align_bytes: usize,
}

impl<'f> Format<'f> {
    const fn new(lua: &'f Lua, name: &'static str, format: &'f [u8]) -> Self {
        Self {
            lua,
            name,
            rest: format,
            is_little: cfg!(target_endian = "little"),
            align_bytes: 1,
        }
    }

    fn number(&mut self) -> Result<Option<usize>> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = self.rest.split_at(digits);
        if number.is_empty() {
            return Ok(None);
        }
        self.rest = rest;
        let number = core::str::from_utf8(number).ok().and_then(|text| text.parse().ok());
        match number.filter(|number| *number <= PACKED_BYTES_MAX) {
            Some(number) => Ok(Some(number)),
            None => Err(problem(self.lua, "integral size overflow")),
        }
    }

    /// The next item, and the bytes of padding before it at this offset.
    fn next(&mut self, at: usize) -> Result<Option<(Item, usize)>> {
        while let [option, rest @ ..] = self.rest {
            self.rest = rest;
            let of = |bytes, is_signed| Item::Integer { bytes, is_signed };
            let item = match option {
                b'b' => of(1, true),
                b'B' => of(1, false),
                b'h' => of(2, true),
                b'H' => of(2, false),
                b'l' => of(8, true),
                b'L' | b'T' => of(8, false),
                b'i' | b'I' => {
                    let bytes = self.number()?.unwrap_or(4);
                    if !(1..=INTEGER_BYTES_MAX).contains(&bytes) {
                        let text = format!("integral size {bytes} is larger than limit of {INTEGER_BYTES_MAX}");
                        return Err(problem(self.lua, &text));
                    }
                    of(bytes, *option == b'i')
                }
                b'f' => Item::Float,
                b'd' | b'n' => Item::Double,
                b's' => Item::Text,
                b'x' => Item::Pad,
                b'c' => Item::Counted(self.number()?.unwrap_or(1)),
                b' ' => continue,
                b'<' | b'>' => {
                    self.is_little = *option == b'<';
                    continue;
                }
                b'=' => {
                    self.is_little = cfg!(target_endian = "little");
                    continue;
                }
                b'!' => {
                    self.align_bytes = self.number()?.unwrap_or(ALIGNMENT_BYTES);
                    if !self.align_bytes.is_power_of_two() {
                        return Err(problem(self.lua, "alignment is not a power of 2"));
                    }
                    continue;
                }
                other => {
                    let text = format!(
                        "bad argument #1 to '{}' (invalid format option '{}')",
                        self.name,
                        char::from(*other)
                    );
                    return Err(problem(self.lua, &text));
                }
            };
            let natural = match item {
                Item::Integer { bytes, .. } => bytes,
                Item::Float => 4,
                Item::Double => 8,
                _ => 1,
            };
            let to = natural.min(self.align_bytes).max(1);
            let padding = match to.is_power_of_two() {
                true => at.next_multiple_of(to) - at,
                false => 0,
            };
            return Ok(Some((item, padding)));
        }
        Ok(None)
    }
}

fn number_of(lua: &Lua, value: Option<&Value>, at: usize, name: &str) -> Result<f64> {
    let number = match value {
        Some(Value::Integer(number)) => Some(*number as f64),
        Some(Value::Number(number)) => Some(*number),
        Some(Value::String(text)) => text.to_str().ok().and_then(|text| text.trim().parse().ok()),
        _ => None,
    };
    number.ok_or_else(|| {
        let got = value.map_or("no value", Value::type_name);
        problem(
            lua,
            &format!("bad argument #{at} to '{name}' (number expected, got {got})"),
        )
    })
}

/// The low bytes of an integer in two's complement.
fn append_integer(out: &mut Vec<u8>, number: f64, bytes: usize, is_little: bool) {
    let bits = if number < 0.0 {
        number as i64 as u64
    } else {
        number as u64
    };
    let fill = if number < 0.0 { 0xff } else { 0 };
    let start = out.len();
    let byte = |at: usize| bits.to_le_bytes().get(at).copied().unwrap_or(fill);
    out.extend((0..bytes).map(byte));
    if !is_little {
        out[start..].reverse();
    }
}

fn pack(lua: &Lua, work: &Work, format: &mlua::String, values: &[Value]) -> Result<mlua::String> {
    let format = format.as_bytes();
    work.spend(format.len() as u64 * BYTE_NS)?;
    let mut format = Format::new(lua, "pack", &format);
    let (mut out, mut at) = (Vec::new(), 0);
    while let Some((item, padding)) = format.next(out.len())? {
        out.resize(out.len() + padding, 0);
        if out.len() > PACKED_BYTES_MAX {
            return Err(problem(lua, "the packed value is too long"));
        }
        if matches!(item, Item::Pad) {
            out.push(0);
            continue;
        }
        let value = values.get(at);
        at += 1;
        match item {
            Item::Integer { bytes, .. } => {
                append_integer(
                    &mut out,
                    number_of(lua, value, at + 1, "pack")?,
                    bytes,
                    format.is_little,
                );
            }
            Item::Float => {
                let number = number_of(lua, value, at + 1, "pack")? as f32;
                let bytes = if format.is_little {
                    number.to_le_bytes()
                } else {
                    number.to_be_bytes()
                };
                out.extend_from_slice(&bytes);
            }
            Item::Double => {
                let number = number_of(lua, value, at + 1, "pack")?;
                let bytes = if format.is_little {
                    number.to_le_bytes()
                } else {
                    number.to_be_bytes()
                };
                out.extend_from_slice(&bytes);
            }
            Item::Text | Item::Counted(_) => {
                let text = value.and_then(|value| lua.coerce_string(value.clone()).ok().flatten());
                let Some(text) = text else {
                    let got = value.map_or("no value", Value::type_name);
                    let text = format!("bad argument #{} to 'pack' (string expected, got {got})", at + 1);
                    return Err(problem(lua, &text));
                };
                let text = text.as_bytes();
                match item {
                    Item::Counted(count) if count > 0 => match text.get(..count) {
                        Some(bytes) => out.extend_from_slice(bytes),
                        None => {
                            let text = format!("bad argument #{} to 'pack' (string too short)", at + 1);
                            return Err(problem(lua, &text));
                        }
                    },
                    _ => out.extend_from_slice(&text),
                }
                if matches!(item, Item::Text) {
                    out.push(0);
                }
            }
            Item::Pad => {}
        }
    }
    lua.create_string(out)
}

/// The values, and their number.
fn unpack(
    lua: &Lua,
    work: &Work,
    format: &mlua::String,
    data: &mlua::String,
    from: Option<i64>,
) -> Result<(Table, usize)> {
    let (format, data) = (format.as_bytes(), data.as_bytes());
    work.spend((format.len() + data.len()) as u64 * BYTE_NS)?;
    let mut format = Format::new(lua, "unpack", &format);
    let mut at = match usize::try_from(from.unwrap_or(1))
        .ok()
        .and_then(|from| from.checked_sub(1))
    {
        Some(at) if at <= data.len() => at,
        _ => return Err(problem(lua, "offset out of range")),
    };
    let (values, mut count) = (lua.create_table()?, 0usize);
    let short = || problem(lua, "bad argument #2 to 'unpack' (data string too short)");
    while let Some((item, padding)) = format.next(at)? {
        at += padding;
        if count == 4000 {
            return Err(problem(lua, "too many results to unpack"));
        }
        let rest = data.get(at..).ok_or_else(short)?;
        let is_little = format.is_little;
        let (value, bytes) = match item {
            Item::Pad if rest.is_empty() => return Err(short()),
            Item::Pad => {
                at += 1;
                continue;
            }
            Item::Integer { bytes, is_signed } => {
                let taken = rest.get(..bytes).ok_or_else(short)?;
                (Value::Number(integer_of(taken, is_little, is_signed)), bytes)
            }
            Item::Float => {
                let taken = *rest.first_chunk::<4>().ok_or_else(short)?;
                let number = if is_little {
                    f32::from_le_bytes(taken)
                } else {
                    f32::from_be_bytes(taken)
                };
                (Value::Number(f64::from(number)), 4)
            }
            Item::Double => {
                let taken = *rest.first_chunk::<8>().ok_or_else(short)?;
                let number = if is_little {
                    f64::from_le_bytes(taken)
                } else {
                    f64::from_be_bytes(taken)
                };
                (Value::Number(number), 8)
            }
            Item::Text => {
                let length = rest.iter().position(|byte| *byte == 0);
                let length = length.ok_or_else(|| problem(lua, "unfinished string in data"))?;
                let text = lua.create_string(rest.get(..length).unwrap_or_default())?;
                (Value::String(text), length + 1)
            }
            Item::Counted(bytes) => {
                let length = match bytes {
                    0 => {
                        let before = values.raw_get::<Option<f64>>(count).ok().flatten();
                        let Some(before) = before.filter(|length| *length >= 0.0) else {
                            return Err(problem(lua, "format 'c0' needs a previous size"));
                        };
                        count -= 1;
                        before as usize
                    }
                    length => length,
                };
                let text = lua.create_string(rest.get(..length).ok_or_else(short)?)?;
                (Value::String(text), length)
            }
        };
        count += 1;
        values.raw_set(count, value)?;
        at += bytes;
    }
    values.raw_set(count + 1, (at + 1) as f64)?;
    Ok((values, count + 1))
}

/// An integer of these bytes. Of more than eight, the low ones count.
fn integer_of(bytes: &[u8], is_little: bool, is_signed: bool) -> f64 {
    let from_high: Vec<u8> = match is_little {
        true => bytes.iter().rev().copied().collect(),
        false => bytes.to_vec(),
    };
    let bits = from_high.iter().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
    if !is_signed {
        return bits as f64;
    }
    let unused = 64 - 8 * bytes.len().min(8);
    ((bits << unused) as i64 >> unused) as f64
}

fn size(lua: &Lua, work: &Work, format: &mlua::String) -> Result<f64> {
    let format = format.as_bytes();
    work.spend(format.len() as u64 * BYTE_NS)?;
    let mut format = Format::new(lua, "size", &format);
    let mut at = 0;
    while let Some((item, padding)) = format.next(at)? {
        at += padding
            + match item {
                Item::Integer { bytes, .. } => bytes,
                Item::Float => 4,
                Item::Double => 8,
                Item::Pad => 1,
                Item::Counted(count) if count > 0 => count,
                Item::Text => return Err(problem(lua, "variable-size format in 'size'")),
                Item::Counted(_) => return Err(problem(lua, "variable-length format in 'size'")),
            };
    }
    Ok(at as f64)
}
