//! The meta commands: `mg`, `ms`, `md`, `ma` and `me`. Behind the key come flags: a letter each, some with a token.

use super::words::{exptime, number, signed, words};
use super::{BAD_LINE, DATA_BYTES_MAX, KEY_BYTES_MAX, Refusal};

/// Longest token of an `O`, in bytes.
const OPAQUE_BYTES_MAX: usize = 31;

const BAD_TOKEN: &str = "CLIENT_ERROR bad token in command line format";
const BAD_FLAG: &str = "CLIENT_ERROR invalid flag";
const TWICE: &str = "CLIENT_ERROR duplicate flag";
/// All of these, for `md` and `ma`.
const BAD_FLAG_OR_TWICE: &str = "CLIENT_ERROR invalid or duplicate flag";
const BAD_KEY: &str = "CLIENT_ERROR error decoding key";
const BAD_LINE_TEXT: &str = "CLIENT_ERROR bad command line format";

/// Which meta command it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// `mg`
    Get,
    /// `ms`
    Set,
    /// `md`
    Delete,
    /// `ma`
    Count,
    /// `me`
    Debug,
}

impl Verb {
    pub(super) fn of(word: &[u8]) -> Option<Self> {
        Some(match word {
            b"mg" => Self::Get,
            b"ms" => Self::Set,
            b"md" => Self::Delete,
            b"ma" => Self::Count,
            b"me" => Self::Debug,
            _ => return None,
        })
    }

    fn flags(self) -> &'static [u8] {
        match self {
            Self::Get => b"bcfhklOqstuvNRT",
            Self::Set => b"bcCFIkMNOqsStT",
            Self::Delete => b"bCIkOqT",
            Self::Count => b"bcCDJkMNOqtTv",
            Self::Debug => b"b",
        }
    }
}

/// How `ms` and `ma` do it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// `ms`: whatever is there. `ma`: up.
    Usual,
    /// If nothing is there.
    Add,
    /// If something is there.
    Replace,
    /// Behind what is there.
    Append,
    /// Before what is there.
    Prepend,
    /// Down.
    Down,
}

/// A meta command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meta<'a> {
    /// Which.
    pub verb: Verb,
    /// The key as it is in the line: in base64 if the flag `b` is there.
    pub key: &'a [u8],
    /// The flags, as they are in the line.
    pub words: &'a [u8],
    /// A bit for each letter of them.
    letters: u64,
    /// Length of the data of `ms` in bytes.
    pub data_bytes: usize,
    /// `T`: the expiry.
    pub exptime: Option<i64>,
    /// `N` of `mg` and `ma`, and of `ms` that appends or prepends: the expiry of an item that is made.
    pub vivify: Option<i64>,
    /// `R`: an item that has less time left than that shall be made anew.
    pub recache: Option<i64>,
    /// `C`: only if the item has this number.
    pub cas: Option<u64>,
    /// `F`: the client's own flags.
    pub flags: u32,
    /// `M`.
    pub mode: Mode,
    /// `D`: by how much it counts.
    pub by: u64,
    /// `J`: what a new item has.
    pub initial: u64,
}

fn bit(letter: u8) -> u64 {
    1 << (letter & 63)
}

impl<'a> Meta<'a> {
    /// Whether it has this flag.
    pub fn has(&self, letter: u8) -> bool {
        self.letters & bit(letter) != 0
    }

    /// The flags with their tokens, in order.
    pub fn tokens(&self) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
        words(self.words).filter_map(|word| word.split_first().map(|(letter, token)| (*letter, token)))
    }

    pub(super) fn parse(verb: Verb, line: &'a [u8]) -> Result<Self, Refusal> {
        let (_, rest) = cut_word(line);
        let (key, mut rest) = cut_word(rest);
        if key.is_empty() {
            return Err(if verb == Verb::Debug {
                BAD_LINE
            } else {
                Refusal::NoCommand
            });
        }
        if key.len() > KEY_BYTES_MAX {
            return Err(BAD_LINE);
        }
        let mut data_bytes = 0;
        if verb == Verb::Set {
            let (word, after) = cut_word(rest);
            rest = after;
            let bytes = signed(word).and_then(|bytes| u64::try_from(bytes).ok());
            data_bytes = bytes.filter(|bytes| *bytes <= DATA_BYTES_MAX).ok_or(BAD_LINE)? as usize;
        }
        let mut meta = Self {
            verb,
            key,
            words: rest,
            letters: 0,
            data_bytes,
            exptime: None,
            vivify: None,
            recache: None,
            cas: None,
            flags: 0,
            mode: Mode::Usual,
            by: 1,
            initial: 0,
        };
        match meta.take_flags() {
            Ok(()) => Ok(meta),
            // The data still come.
            Err(text) if verb == Verb::Set => Err(Refusal::WrongBeforeData { text, data_bytes }),
            Err(text) => Err(Refusal::Wrong(text)),
        }
    }

    fn take_flags(&mut self) -> Result<(), &'static str> {
        let is_strict = matches!(self.verb, Verb::Delete | Verb::Count);
        let or_any = |text: &'static str| if is_strict { BAD_FLAG_OR_TWICE } else { text };
        let allowed = self.verb.flags();
        for (letter, token) in self.tokens() {
            if !allowed.contains(&letter) {
                return Err(match self.verb {
                    Verb::Debug => BAD_LINE_TEXT,
                    _ => or_any(BAD_FLAG),
                });
            }
            if self.has(letter) {
                return Err(or_any(TWICE));
            }
            self.letters |= bit(letter);
            let bad = or_any(BAD_TOKEN);
            match letter {
                b'T' => self.exptime = Some(exptime(token).ok_or(bad)?),
                b'N' => self.vivify = Some(exptime(token).ok_or(bad)?),
                b'R' => self.recache = Some(exptime(token).ok_or(bad)?),
                b'C' => self.cas = Some(number(token).ok_or(bad)?),
                // memcached takes the low bits too.
                b'F' => self.flags = number(token).ok_or(BAD_LINE_TEXT)? as u32,
                b'D' => self.by = number(token).ok_or(bad)?,
                b'J' => self.initial = number(token).ok_or(bad)?,
                b'M' => {
                    self.mode = self
                        .mode_of(token)
                        .map_err(|text| or_any_but_mode(is_strict, token, text))?
                }
                b'O' if token.len() > OPAQUE_BYTES_MAX => return Err("CLIENT_ERROR opaque token too long"),
                _ => {}
            }
        }
        if self.has(b'b') && decode(self.key).is_none() {
            return Err(if self.verb == Verb::Debug {
                BAD_LINE_TEXT
            } else {
                BAD_KEY
            });
        }
        Ok(())
    }

    fn mode_of(&self, token: &[u8]) -> Result<Mode, &'static str> {
        let [letter] = token else {
            return Err("CLIENT_ERROR incorrect length for M token");
        };
        match (self.verb, *letter) {
            (Verb::Set, b'S') => Ok(Mode::Usual),
            (Verb::Set, b'E') => Ok(Mode::Add),
            (Verb::Set, b'R') => Ok(Mode::Replace),
            (Verb::Set, b'A') => Ok(Mode::Append),
            (Verb::Set, b'P') => Ok(Mode::Prepend),
            (Verb::Set, _) => Err("CLIENT_ERROR invalid mode for ms M token"),
            (_, b'I' | b'+') => Ok(Mode::Usual),
            (_, b'D' | b'-') => Ok(Mode::Down),
            _ => Err("CLIENT_ERROR invalid mode for ma M token"),
        }
    }
}

/// `ma` has words of its own for a mode that is unknown, but not for a token of another length.
fn or_any_but_mode(is_strict: bool, token: &[u8], text: &'static str) -> &'static str {
    if is_strict && token.len() != 1 {
        BAD_FLAG_OR_TWICE
    } else {
        text
    }
}

/// The first word, and what is behind it.
fn cut_word(line: &[u8]) -> (&[u8], &[u8]) {
    let start = line.iter().position(|byte| *byte != b' ').unwrap_or(line.len());
    let line = line.get(start..).unwrap_or_default();
    line.split_at(line.iter().position(|byte| *byte == b' ').unwrap_or(line.len()))
}

/// The bytes that base64 stands for. `None`: it is no base64, or stands for nothing.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let (groups, rest) = text.as_chunks::<4>();
    if groups.is_empty() || !rest.is_empty() {
        return None;
    }
    let mut out = Vec::with_capacity(groups.len() * 3);
    for (at, group) in groups.iter().enumerate() {
        let padding = group.iter().rev().take_while(|byte| **byte == b'=').count();
        if padding > 2 || (padding > 0 && at + 1 < groups.len()) {
            return None;
        }
        let bits = group.iter().take(4 - padding).try_fold(0u32, |bits, byte| {
            let digit = match byte {
                b'A'..=b'Z' => byte - b'A',
                b'a'..=b'z' => byte - b'a' + 26,
                b'0'..=b'9' => byte - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            Some(bits << 6 | u32::from(digit))
        })?;
        let bytes = (bits << (6 * padding)).to_be_bytes();
        out.extend_from_slice(bytes.get(1..4 - padding)?);
    }
    Some(out)
}
