//! Values in the notation of settings.

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

/// A number of bytes: `4096`, `16kb`, `256mb`, `2gb`. The units are binary, as in Redis.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ByteCount(pub u64);

impl FromStr for ByteCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a size: write it as 4096, 16kb, 256mb or 2gb");
        let lower = text.trim().to_ascii_lowercase();
        let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = match &lower[digits.len()..] {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            _ => return Err(wrong()),
        };
        let count: u64 = digits.parse().map_err(|_| wrong())?;
        count.checked_mul(1 << unit).map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        match self.0 {
            0..=1023 => write!(f, "{} B", self.0),
            1_024..=1_048_575 => write!(f, "{:.1} KB", bytes / 1024.0),
            1_048_576..=1_073_741_823 => write!(f, "{:.1} MB", bytes / 1_048_576.0),
            _ => write!(f, "{:.2} GB", bytes / 1_073_741_824.0),
        }
    }
}

impl<'de> Deserialize<'de> for ByteCount {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = ByteCount;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as 4096 or \"256mb\"")
            }
            fn visit_i64<E: Error>(self, bytes: i64) -> Result<ByteCount, E> {
                u64::try_from(bytes)
                    .map(ByteCount)
                    .map_err(|_| E::custom(format!("a size cannot be {bytes}")))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<ByteCount, E> {
                text.parse().map_err(E::custom)
            }
        }
        from.deserialize_any(Either)
    }
}

/// A value that is a string in a file and plain in a flag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Text<T>(pub T);

impl<T: FromStr> FromStr for Text<T> {
    type Err = T::Err;
    fn from_str(text: &str) -> Result<Self, T::Err> {
        text.parse().map(Self)
    }
}

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct AsText<T>(PhantomData<T>);
        impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for AsText<T> {
            type Value = Text<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Text<T>, E> {
                text.parse().map_err(E::custom)
            }
        }
        from.deserialize_str(AsText(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("16kb", 16 << 10),
            ("256MB", 256 << 20),
            ("2g", 2 << 30),
            ("1 ", 1),
        ] {
            assert_eq!(text.parse(), Ok(ByteCount(bytes)), "{text}");
        }
        for text in ["", "mb", "-1", "1.5gb", "10tb", "99999999999gb", "1 mb"] {
            let why = text.parse::<ByteCount>().unwrap_err();
            assert!(why.contains(&format!("`{text}`")), "{why}");
        }
    }
}
