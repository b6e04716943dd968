//! The libraries `bit` and `math.random`: numbers only.

use mlua::{Function, Lua, Result, Table, Variadic};
use std::cell::Cell;
use std::rc::Rc;

/// A number as LuaBitOp takes it: its low 32 bits.
fn bits(number: f64) -> i32 {
    // Adding 2^52 + 2^51 leaves the integer, rounded to even, in the low bits of the mantissa.
    (number + 6_755_399_441_055_744.0).to_bits() as u32 as i32
}

/// The library `bit` of LuaBitOp.
pub(crate) fn bit(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    let unary = |f: fn(i32) -> i32| lua.create_function(move |_, x: f64| Ok(f64::from(f(bits(x)))));
    table.raw_set("tobit", unary(|x| x)?)?;
    table.raw_set("bnot", unary(|x| !x)?)?;
    table.raw_set("bswap", unary(i32::swap_bytes)?)?;
    let shift = |f: fn(i32, u32) -> i32| {
        lua.create_function(move |_, (x, n): (f64, f64)| Ok(f64::from(f(bits(x), bits(n) as u32 & 31))))
    };
    table.raw_set("lshift", shift(|x, n| x << n)?)?;
    table.raw_set("rshift", shift(|x, n| (x as u32 >> n) as i32)?)?;
    table.raw_set("arshift", shift(|x, n| x >> n)?)?;
    table.raw_set("rol", shift(|x, n| x.rotate_left(n))?)?;
    table.raw_set("ror", shift(|x, n| x.rotate_right(n))?)?;
    let fold = |f: fn(i32, i32) -> i32| {
        lua.create_function(move |_, (first, rest): (f64, Variadic<f64>)| {
            Ok(f64::from(rest.iter().fold(bits(first), |all, x| f(all, bits(*x)))))
        })
    };
    table.raw_set("band", fold(|a, b| a & b)?)?;
    table.raw_set("bor", fold(|a, b| a | b)?)?;
    table.raw_set("bxor", fold(|a, b| a ^ b)?)?;
    let tohex = lua.create_function(|lua, (x, digits): (f64, Option<f64>)| {
        let digits = digits.map_or(8, bits);
        let count = digits.unsigned_abs().min(8) as usize;
        let text = match digits < 0 {
            true => format!("{:08X}", bits(x)),
            false => format!("{:08x}", bits(x)),
        };
        lua.create_string(text.get(8 - count..).unwrap_or_default())
    })?;
    table.raw_set("tohex", tohex)?;
    Ok(table)
}

/// What `math.random` draws from: the 48-bit generator of POSIX `lrand48`, as in Redis.
#[derive(Debug, Default)]
pub(crate) struct Random(Cell<u64>);

const RANDOM_BITS: u64 = (1 << 48) - 1;

impl Random {
    /// Begins a script, with its own random numbers.
    pub(crate) fn begin(&self, seed: u64) {
        self.0.set(seed & RANDOM_BITS);
    }

    fn seed(&self, seed: i32) {
        self.0.set(u64::from(seed as u32) << 16 | 0x330e);
    }

    /// The next number, of 31 bits.
    fn next(&self) -> u32 {
        let next = self.0.get().wrapping_mul(0x5_deec_e66d).wrapping_add(0xb) & RANDOM_BITS;
        self.0.set(next);
        (next >> 17) as u32
    }
}

pub(crate) fn random(lua: &Lua, random: &Rc<Random>) -> Result<Function> {
    let random = Rc::clone(random);
    lua.create_function(move |_, range: Variadic<f64>| {
        let fraction = f64::from(random.next() % 0x7fff_ffff) / f64::from(0x7fff_ffff_u32);
        let empty = |at: u32| mlua::Error::runtime(format!("bad argument #{at} to 'random' (interval is empty)"));
        match range.as_slice() {
            [] => Ok(fraction),
            [high] if *high < 1.0 => Err(empty(1)),
            [high] => Ok((fraction * high.trunc()).floor() + 1.0),
            [low, high] if low > high => Err(empty(2)),
            [low, high] => Ok((fraction * (high.trunc() - low.trunc() + 1.0)).floor() + low.trunc()),
            _ => Err(mlua::Error::runtime("wrong number of arguments")),
        }
    })
}

pub(crate) fn randomseed(lua: &Lua, random: &Rc<Random>) -> Result<Function> {
    let random = Rc::clone(random);
    lua.create_function(move |_, seed: f64| {
        random.seed(seed as i64 as i32);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_taken_modulo_2_to_the_32() {
        for (number, of) in [
            (4_294_967_295.0, -1),
            (2_147_483_648.0, i32::MIN),
            (-1.0, -1),
            (1.5, 2),
            (0.0, 0),
        ] {
            assert_eq!(bits(number), of, "{number}");
        }
    }
}
