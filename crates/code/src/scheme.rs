//! `Scheme`: how many data and parity positions a stripe has, as a value.

use core::fmt;
use core::str::FromStr;

/// Most data positions of a scheme.
pub const DATA_MAX: u8 = 128;

/// Most positions of a scheme, data and parity together: the code's field has 256 elements.
pub const WIDTH_MAX: u8 = 255;

/// `k` data and `m` parity positions, written `k+m`. `1+2` is three-way replication, `1+0` no redundancy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Scheme {
    data: u8,
    parity: u8,
}

impl Scheme {
    /// Checks 1 ≤ data ≤ 128 and data + parity ≤ 255.
    pub fn new(data: u8, parity: u8) -> Result<Self, SchemeError> {
        Self::checked(u64::from(data), u64::from(parity))
    }

    fn checked(data: u64, parity: u64) -> Result<Self, SchemeError> {
        if data == 0 {
            return Err(SchemeError::NoData);
        }
        if data > u64::from(DATA_MAX) {
            return Err(SchemeError::TooMuchData { data });
        }
        if data + parity > u64::from(WIDTH_MAX) {
            return Err(SchemeError::TooWide { data, parity });
        }
        Ok(Self {
            data: data as u8,
            parity: parity as u8,
        })
    }

    /// Data positions, `k`.
    pub const fn data(self) -> u8 {
        self.data
    }

    /// Parity positions, `m`.
    pub const fn parity(self) -> u8 {
        self.parity
    }

    /// All positions, `k + m`.
    pub const fn width(self) -> u8 {
        self.data + self.parity
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.data, self.parity)
    }
}

impl FromStr for Scheme {
    type Err = SchemeError;

    fn from_str(text: &str) -> Result<Self, SchemeError> {
        let malformed = || SchemeError::Malformed {
            text: text.chars().take(40).collect(),
        };
        // Only the digits 0-9: `u64::from_str` would take a sign, too. Four are enough to tell what is wrong.
        let number = |digits: &str| {
            let plain = (1..=4).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
            plain
                .then(|| digits.parse::<u64>().ok())
                .flatten()
                .ok_or_else(malformed)
        };
        let (data, parity) = text.split_once('+').ok_or_else(malformed)?;
        if let Some((parity, logged)) = parity.split_once('/') {
            let (data, parity, logged) = (number(data)?, number(parity)?, number(logged)?);
            return Err(SchemeError::LoggedParity { data, parity, logged });
        }
        Self::checked(number(data)?, number(parity)?)
    }
}

/// Why something is not a scheme.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SchemeError {
    /// No data position.
    NoData,
    /// More than [`DATA_MAX`] data positions.
    TooMuchData {
        /// As asked.
        data: u64,
    },
    /// More than [`WIDTH_MAX`] positions.
    TooWide {
        /// As asked.
        data: u64,
        /// As asked.
        parity: u64,
    },
    /// Logged parity, which this version does not have.
    LoggedParity {
        /// As asked.
        data: u64,
        /// As asked.
        parity: u64,
        /// As asked.
        logged: u64,
    },
    /// Not two numbers with a plus between them.
    Malformed {
        /// The text, cut if it is long.
        text: String,
    },
}

impl fmt::Display for SchemeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoData => write!(f, "a scheme needs at least one data position"),
            Self::TooMuchData { data } => {
                write!(f, "{data} data positions: a scheme has at most {DATA_MAX}")
            }
            Self::TooWide { data, parity } => write!(
                f,
                "{data}+{parity} is {} positions: a scheme has at most {WIDTH_MAX}, data and parity together",
                data + parity
            ),
            Self::LoggedParity { data, parity, logged } => {
                write!(
                    f,
                    "{data}+{parity}/{logged}: logged parity is not supported yet, only schemes such as 4+2"
                )
            }
            Self::Malformed { text } => write!(f, "{text:?} is not a scheme: expected DATA+PARITY, such as 4+2"),
        }
    }
}

impl core::error::Error for SchemeError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_value_agree() {
        for text in ["4+2", "1+0", "1+2", "128+127", "8+2"] {
            let scheme: Scheme = text.parse().expect("a valid scheme");
            assert_eq!(scheme.to_string(), text);
            assert_eq!(
                scheme,
                Scheme::new(scheme.data(), scheme.parity()).expect("the same numbers")
            );
            assert_eq!(
                usize::from(scheme.width()),
                usize::from(scheme.data()) + usize::from(scheme.parity())
            );
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, says) in [
            ("0+2", "at least one data position"),
            ("129+2", "129 data positions"),
            ("128+128", "128+128 is 256 positions"),
            ("200+100", "200 data positions"),
            ("6+3/2", "6+3/2: logged parity is not supported yet"),
            ("4", "\"4\" is not a scheme"),
            ("", "is not a scheme"),
            ("4+", "is not a scheme"),
            ("+2", "is not a scheme"),
            ("4++2", "is not a scheme"),
            ("4+-1", "is not a scheme"),
            (" 4+2", "is not a scheme"),
            ("4+2+1", "is not a scheme"),
            ("99999999999999999999+2", "is not a scheme"),
            ("6+3/", "is not a scheme"),
        ] {
            let error = text.parse::<Scheme>().expect_err(text).to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
