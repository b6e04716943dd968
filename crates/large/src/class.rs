//! `Class`: the redundancy of one large value, as a value and as text.

use core::fmt;
use core::str::FromStr;
use paritas_code::Scheme;

/// Most different blocks of a value: the length of a record is one byte.
pub const BLOCKS_MAX: u8 = 57;

/// How one large value is kept. ElasticMem §2.2, §2.3, §4.2.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// Whole copies. One copy is no redundancy.
    Rep {
        /// Number of copies.
        copies: u8,
    },
    /// Erasure coding: data blocks and parity blocks.
    Ec {
        /// Number of data blocks, k.
        data: u8,
        /// Number of parity blocks, m.
        parity: u8,
    },
    /// EC-oriented replication: one whole copy, where parity 0 of `ec` would be, and `copies - 1` replicas cut into the
    /// data blocks of `ec`. Becoming `ec` writes parity only.
    Eor {
        /// Number of copies, r, the whole one included.
        copies: u8,
        /// Number of data blocks of a cut replica, k.
        data: u8,
    },
}

impl Class {
    /// The class of a value for which none was chosen: the scheme of its stripe list, with fewer data blocks where
    /// the value has fewer units than the scheme has data positions.
    ///
    /// `None` if the value is shorter than a unit, or the scheme has more parities than a value can have.
    pub fn of_scheme(scheme: Scheme, value_bytes: u64, unit_bytes: u32) -> Option<Self> {
        let units = value_bytes / u64::from(unit_bytes);
        let data_max = scheme.data().min(BLOCKS_MAX.saturating_sub(scheme.parity()));
        let data = units.min(u64::from(data_max)) as u8;
        match (data, scheme.parity()) {
            (0, _) => None,
            (_, 0) => Some(Self::Rep { copies: 1 }),
            (data, parity) => Some(Self::Ec { data, parity }),
        }
    }

    /// Number of data blocks that the body is cut into. Whole copies are not cut.
    pub fn data(self) -> u8 {
        match self {
            Self::Rep { .. } => 1,
            Self::Ec { data, .. } | Self::Eor { data, .. } => data,
        }
    }

    /// Number of parity blocks.
    pub fn parity(self) -> u8 {
        match self {
            Self::Ec { parity, .. } => parity,
            Self::Rep { .. } | Self::Eor { .. } => 0,
        }
    }

    /// Bytes that a body of `body_bytes` bytes takes on all nodes together.
    pub fn stored_bytes(self, body_bytes: u64) -> u64 {
        match self {
            Self::Rep { copies } | Self::Eor { copies, .. } => body_bytes * u64::from(copies),
            Self::Ec { data, parity } => (body_bytes * (u64::from(data) + u64::from(parity))).div_ceil(u64::from(data)),
        }
    }

    /// Number of nodes whose loss the value survives.
    pub fn tolerance(self) -> u8 {
        match self {
            Self::Rep { copies } | Self::Eor { copies, .. } => copies - 1,
            Self::Ec { parity, .. } => parity,
        }
    }

    /// Whether the numbers are possible at all, whatever the cluster.
    pub fn check(self) -> Result<(), ClassError> {
        let wrong = |why| Err(ClassError { class: self, why });
        match self {
            Self::Rep { copies: 0 } | Self::Eor { copies: 0, .. } => wrong("there must be at least one copy"),
            Self::Ec { data: 0, .. } | Self::Eor { data: 0, .. } => wrong("there must be at least one data block"),
            Self::Ec { parity: 0, .. } => wrong("without parity choose `none`"),
            Self::Ec { data, parity: more } | Self::Eor { data, copies: more }
                if u16::from(data) + u16::from(more) > u16::from(BLOCKS_MAX) =>
            {
                wrong("the two numbers may be at most 57 together")
            }
            Self::Eor { copies: 1, .. } => wrong("with one copy choose `none`"),
            Self::Eor { copies, data } if copies - 1 > data => {
                wrong("there can be at most one cut replica for each data block: copies - 1 must not exceed data")
            }
            Self::Eor { copies, data } if u16::from(copies - 2) * u16::from(data) > 254 => {
                wrong("the blocks of all cut replicas but the first may be at most 254")
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rep { copies: 1 } => f.write_str("none"),
            Self::Rep { copies } => write!(f, "rep:{copies}"),
            Self::Ec { data, parity } => write!(f, "ec:{data},{parity}"),
            Self::Eor { copies, data } => write!(f, "eor:{copies},{data}"),
        }
    }
}

impl FromStr for Class {
    type Err = String;

    /// Parses `none`, `rep:COPIES`, `ec:DATA,PARITY` or `eor:COPIES,DATA`, and checks the numbers.
    fn from_str(text: &str) -> Result<Self, String> {
        let malformed = || {
            let shown: String = text.chars().take(40).collect();
            format!("{shown:?} is not a redundancy class: expected none, rep:COPIES, ec:DATA,PARITY or eor:COPIES,DATA")
        };
        let number = |digits: &str| {
            let plain = (1..=3).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
            plain.then(|| digits.parse().ok()).flatten().ok_or_else(malformed)
        };
        let two = |numbers: &str| -> Result<(u8, u8), String> {
            let (one, other) = numbers.split_once(',').ok_or_else(malformed)?;
            Ok((number(one)?, number(other)?))
        };
        let class = match text.split_once(':') {
            None if text == "none" => Self::Rep { copies: 1 },
            Some(("rep", copies)) => Self::Rep {
                copies: number(copies)?,
            },
            Some(("ec", numbers)) => {
                let (data, parity) = two(numbers)?;
                Self::Ec { data, parity }
            }
            Some(("eor", numbers)) => {
                let (copies, data) = two(numbers)?;
                Self::Eor { copies, data }
            }
            _ => return Err(malformed()),
        };
        class.check().map_err(|error| error.to_string())?;
        Ok(class)
    }
}

/// Why the numbers of a class are impossible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassError {
    /// The class.
    pub class: Class,
    /// What is wrong.
    pub why: &'static str,
}

impl fmt::Display for ClassError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class, self.why)
    }
}

impl core::error::Error for ClassError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_value_agree() {
        for text in ["none", "rep:3", "ec:4,2", "eor:3,4", "eor:2,1", "ec:50,7"] {
            let class: Class = text.parse().expect("a class");
            assert_eq!(class.to_string(), text);
        }
        assert_eq!("rep:1".parse(), Ok(Class::Rep { copies: 1 }));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, says) in [
            ("", "is not a redundancy class"),
            ("ec", "is not a redundancy class"),
            ("ec:4", "is not a redundancy class"),
            ("ec:4,2,1", "is not a redundancy class"),
            ("ec:4,-2", "is not a redundancy class"),
            ("ec:999,2", "is not a redundancy class"),
            ("raid:5", "is not a redundancy class"),
            ("none:1", "is not a redundancy class"),
            ("rep:0", "at least one copy"),
            ("ec:0,2", "at least one data block"),
            ("ec:4,0", "choose `none`"),
            ("ec:50,8", "at most 57"),
            ("ec:200,100", "at most 57"),
            ("eor:18,20", "at most 254"),
            ("eor:1,4", "choose `none`"),
            ("eor:4,2", "must not exceed data"),
            ("eor:0,2", "at least one copy"),
            ("eor:2,0", "at least one data block"),
        ] {
            let error = text.parse::<Class>().expect_err(text);
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn a_short_value_has_fewer_blocks() {
        let scheme = Scheme::new(4, 2).expect("a scheme");
        let of = |bytes| Class::of_scheme(scheme, bytes, 16 << 10);
        assert_eq!(of(10), None);
        assert_eq!(of(40 << 10), Some(Class::Ec { data: 2, parity: 2 }));
        assert_eq!(of(1 << 20), Some(Class::Ec { data: 4, parity: 2 }));
        let alone = Scheme::new(4, 0).expect("a scheme");
        assert_eq!(
            Class::of_scheme(alone, 1 << 20, 16 << 10),
            Some(Class::Rep { copies: 1 })
        );
    }
}
