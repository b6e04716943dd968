//! `Scheme`: the numbers of data and parity positions of a stripe, as a value.

use core::fmt;
use core::str::FromStr;

/// Most data positions of a scheme.
pub const DATA_MAX: u8 = 128;

/// Most positions of a scheme, data and parity together. The code's field has 256 elements.
pub const WIDTH_MAX: u8 = 255;

/// `k` data and `m` parity positions, written `k+m`. `1+2` is three-way replication, `1+0` has no redundancy. With
/// `k+m/l` the last `l` parity positions are *logged*: they are on the disks of log nodes, not in memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Scheme {
    data: u8,
    parity: u8,
    logged: u8,
}

impl Scheme {
    /// A scheme with all parity in memory. Requires 1 ≤ data ≤ 128 and data + parity ≤ 255.
    pub fn new(data: u8, parity: u8) -> Result<Self, SchemeError> {
        Self::with_logged(data, parity, 0)
    }

    /// A scheme with the last `logged` parities on disk. The first parity, the XOR of the data, must stay in memory:
    /// single losses are repaired from it alone.
    pub fn with_logged(data: u8, parity: u8, logged: u8) -> Result<Self, SchemeError> {
        Self::checked(u64::from(data), u64::from(parity), u64::from(logged))
    }

    fn checked(data: u64, parity: u64, logged: u64) -> Result<Self, SchemeError> {
        if data == 0 {
            return Err(SchemeError::NoData);
        }
        if data > u64::from(DATA_MAX) {
            return Err(SchemeError::TooMuchData { data });
        }
        if data + parity > u64::from(WIDTH_MAX) {
            return Err(SchemeError::TooWide { data, parity });
        }
        if logged > 0 && logged >= parity {
            return Err(SchemeError::TooMuchLogged { data, parity, logged });
        }
        Ok(Self {
            data: data as u8,
            parity: parity as u8,
            logged: logged as u8,
        })
    }

    /// Number of data positions, `k`.
    pub const fn data(self) -> u8 {
        self.data
    }

    /// Number of parity positions, `m`.
    pub const fn parity(self) -> u8 {
        self.parity
    }

    /// Number of logged parity positions, `l`; they are the last ones.
    pub const fn logged(self) -> u8 {
        self.logged
    }

    /// Number of all positions, `k + m`.
    pub const fn width(self) -> u8 {
        self.data + self.parity
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.data, self.parity)?;
        match self.logged {
            0 => Ok(()),
            logged => write!(f, "/{logged}"),
        }
    }
}

impl FromStr for Scheme {
    type Err = SchemeError;

    fn from_str(text: &str) -> Result<Self, SchemeError> {
        let malformed = || SchemeError::Malformed {
            text: text.chars().take(40).collect(),
        };
        // Accepts the digits 0-9 only; `u64::from_str` would accept a sign. Four digits are enough for an error that
        // names the number.
        let number = |digits: &str| {
            let plain = (1..=4).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
            plain
                .then(|| digits.parse::<u64>().ok())
                .flatten()
                .ok_or_else(malformed)
        };
        let (data, parity) = text.split_once('+').ok_or_else(malformed)?;
        let (parity, logged) = parity.split_once('/').unwrap_or((parity, "0"));
        Self::checked(number(data)?, number(parity)?, number(logged)?)
    }
}

/// Why something is not a scheme.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SchemeError {
    /// There is no data position.
    NoData,
    /// There are more than [`DATA_MAX`] data positions.
    TooMuchData {
        /// The number requested.
        data: u64,
    },
    /// There are more than [`WIDTH_MAX`] positions.
    TooWide {
        /// The number of data positions requested.
        data: u64,
        /// The number of parity positions requested.
        parity: u64,
    },
    /// No parity is left for memory.
    TooMuchLogged {
        /// The number of data positions requested.
        data: u64,
        /// The number of parity positions requested.
        parity: u64,
        /// The number of logged positions requested.
        logged: u64,
    },
    /// The text is not two numbers with a plus sign between them.
    Malformed {
        /// The text, shortened if it is long.
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
            Self::TooMuchLogged {
                data,
                parity: 0,
                logged,
            } => {
                write!(f, "{data}+0/{logged}: without parity there is none to log")
            }
            Self::TooMuchLogged { data, parity, logged } => {
                write!(
                    f,
                    "{data}+{parity}/{logged}: at most {} of {parity} parities can be logged, the first is in memory",
                    parity - 1
                )
            }
            Self::Malformed { text } => write!(
                f,
                "{text:?} is not a scheme: expected DATA+PARITY, such as 4+2, or DATA+PARITY/LOGGED"
            ),
        }
    }
}

impl core::error::Error for SchemeError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_value_agree() {
        for text in ["4+2", "1+0", "1+2", "128+127", "8+2", "6+3/2", "4+2/1", "128+127/126"] {
            let scheme: Scheme = text.parse().expect("a valid scheme");
            assert_eq!(scheme.to_string(), text);
            assert_eq!(
                scheme,
                Scheme::with_logged(scheme.data(), scheme.parity(), scheme.logged()).expect("the same numbers")
            );
            assert_eq!(
                usize::from(scheme.width()),
                usize::from(scheme.data()) + usize::from(scheme.parity())
            );
        }
    }

    #[test]
    fn without_logged_parity_nothing_is_said_of_it() {
        let scheme: Scheme = "6+3/0".parse().expect("a valid scheme");
        assert_eq!(scheme, Scheme::new(6, 3).expect("a valid scheme"));
        assert_eq!(scheme.to_string(), "6+3");
        let logged: Scheme = "6+3/2".parse().expect("a valid scheme");
        assert_eq!((logged.data(), logged.parity(), logged.logged()), (6, 3, 2));
        assert_ne!(scheme, logged);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, says) in [
            ("0+2", "at least one data position"),
            ("129+2", "129 data positions"),
            ("128+128", "128+128 is 256 positions"),
            ("200+100", "200 data positions"),
            ("6+3/3", "6+3/3: at most 2 of 3 parities can be logged"),
            ("4+1/1", "4+1/1: at most 0 of 1 parities"),
            ("4+0/1", "4+0/1: without parity"),
            ("6+3/9999", "6+3/9999: at most 2"),
            ("6/2+3", "is not a scheme"),
            ("6+3/1/1", "is not a scheme"),
            ("6+3/-1", "is not a scheme"),
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
