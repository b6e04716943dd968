//! Numbers of INCRBYFLOAT.
//!
//! Redis adds in the platform's `long double` and prints 17 decimal places. Here sums below 1.7e21 are exact to 17
//! places, so that 0.1 + 0.2 is 0.3 on every machine. Larger sums are those of a 64-bit float.

use std::fmt;

/// Digits after the decimal point.
const PLACES: i32 = 17;
const ONE: i128 = 100_000_000_000_000_000;
/// The longest text of a number that Redis accepts, in bytes.
const TEXT_BYTES_MAX: usize = 5 * 1024;
/// The most digits that always fit in an `i128`. A number with more digits is not exact anyway.
const DIGITS_MAX: usize = 38;

/// A number.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Decimal {
    /// In units of 1e-17.
    Exact(i128),
    /// Too large for `Exact`; may be infinite.
    Float(f64),
}

impl Decimal {
    pub(crate) const ZERO: Self = Self::Exact(0);

    fn float(self) -> f64 {
        match self {
            Self::Exact(units) => units as f64 / ONE as f64,
            Self::Float(float) => float,
        }
    }

    /// The sum; `None` if it is not finite.
    pub(crate) fn plus(self, other: Self) -> Option<Self> {
        if let (Self::Exact(a), Self::Exact(b)) = (self, other)
            && let Some(sum) = a.checked_add(b)
        {
            return Some(Self::Exact(sum));
        }
        let sum = self.float() + other.float();
        sum.is_finite().then_some(Self::Float(sum))
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = match self {
            Self::Exact(units) => units,
            Self::Float(float) => return write!(f, "{float}"),
        };
        if *units < 0 {
            f.write_str("-")?;
        }
        let (whole, part) = (units.unsigned_abs() / ONE as u128, units.unsigned_abs() % ONE as u128);
        write!(f, "{whole}")?;
        if part != 0 {
            let digits = format!("{part:017}");
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
        Ok(())
    }
}

/// Parses a number as `strtold` does, but without blanks and hexadecimal numbers. `None` if the text is not a number.
pub(crate) fn parse_decimal(text: &[u8]) -> Option<Decimal> {
    if text.is_empty() || text.len() >= TEXT_BYTES_MAX {
        return None;
    }
    let text = str::from_utf8(text).ok()?;
    let (negative, rest) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    if rest.eq_ignore_ascii_case("inf") || rest.eq_ignore_ascii_case("infinity") {
        return Some(Decimal::Float(if negative { f64::NEG_INFINITY } else { f64::INFINITY }));
    }
    let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (rest, 0),
    };
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = || whole.bytes().chain(part.bytes());
    if digits().next().is_none() || !digits().all(|d| d.is_ascii_digit()) {
        return None;
    }
    exact(digits(), part.len(), exponent, negative).or_else(|| {
        let float: f64 = text.parse().ok()?;
        // As in strtold, a number out of range is an error; the text `inf` is not.
        float.is_finite().then_some(Decimal::Float(float))
    })
}

fn exact(digits: impl Iterator<Item = u8>, places: usize, exponent: i32, negative: bool) -> Option<Decimal> {
    let mut units: i128 = 0;
    let mut shift = i64::from(exponent) - places as i64 + i64::from(PLACES);
    let mut taken = 0;
    for digit in digits.map(|d| i128::from(d - b'0')) {
        if taken == DIGITS_MAX {
            // The digit is beyond the exact range: drop it, and count the factor of ten.
            shift += 1;
            continue;
        }
        taken += usize::from(units != 0 || digit != 0);
        units = units.checked_mul(10)?.checked_add(digit)?;
    }
    while shift > 0 && units != 0 {
        units = units.checked_mul(10)?;
        shift -= 1;
    }
    if shift < 0 {
        let power = u32::try_from(-shift).ok().and_then(|n| 10i128.checked_pow(n));
        units = power.map_or(0, |power| {
            let (quotient, rest) = (units / power, units % power);
            quotient + i128::from(rest >= power - power / 2)
        });
    }
    Some(Decimal::Exact(if negative { -units } else { units }))
}

#[cfg(test)]
mod tests {
    use super::{Decimal, parse_decimal};

    fn sum(a: &str, b: &str) -> Option<String> {
        let sum = parse_decimal(a.as_bytes())?.plus(parse_decimal(b.as_bytes())?)?;
        Some(sum.to_string())
    }

    #[test]
    fn sums_are_those_that_people_expect() {
        for (a, b, expected) in [
            ("0", "10.5", "10.5"),
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("0.1", "0.2", "0.3"),
            ("3", "-3.5", "-0.5"),
            ("-0", "0", "0"),
            ("1000.1", "0.1", "1000.2"),
            (".5", "5.", "5.5"),
            ("+1", "1", "2"),
            ("1e-17", "0", "0.00000000000000001"),
            ("1e-18", "0", "0"),
            ("1e-400", "1", "1"),
            ("1e22", "1e22", "20000000000000000000000"),
            ("99999999999999999999", "1", "100000000000000000000"),
        ] {
            assert_eq!(sum(a, b).as_deref(), Some(expected), "{a} + {b}");
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in [
            "", " 1", "1 ", "abc", "1e", "e1", ".", "-", "1.2.3", "nan", "1e5000", "0x10", "1e1.5", "--1",
        ] {
            assert_eq!(parse_decimal(text.as_bytes()), None, "{text:?}");
        }
        let infinite = parse_decimal(b"inf").unwrap();
        assert_eq!(infinite.plus(Decimal::ZERO), None);
        assert_eq!(sum("1.7e308", "1.7e308"), None);
    }
}
