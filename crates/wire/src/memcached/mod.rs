//! The text protocol of memcached: a line of words, and behind some lines a block of data. The words of refusals are
//! those of memcached 1.6; clients match them.
//!
//! A line is parsed where it is read, which needs its key and the length of its data, and again by the owner of the
//! key, which needs all of it. So between nodes the line itself is sent.

mod meta;
mod words;

pub use meta::{Meta, Mode, Verb, decode};

use words::{exptime, number, signed, words};

/// Longest key in bytes.
pub const KEY_BYTES_MAX: usize = 250;
/// Longest line in bytes. A client that sends a longer one is no client of memcached.
pub const LINE_BYTES_MAX: usize = 2048;
/// The same for a line that asks for many keys.
pub const KEYS_LINE_BYTES_MAX: usize = 1 << 20;
/// Longest data in bytes that a line may announce.
const DATA_BYTES_MAX: u64 = i32::MAX as u64 - 2;
/// An expiry up to this number of seconds, 30 days, counts from now; a later one from 1970.
pub const RELATIVE_MAX: i64 = 60 * 60 * 24 * 30;

/// Why a line is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It is no command, or has too few or too many words. `noreply` does not silence it.
    NoCommand,
    /// Another mistake, with its words.
    Wrong(&'static str),
    /// The same, and data come behind the line, which are thrown away.
    WrongBeforeData {
        /// The words.
        text: &'static str,
        /// Length of the data in bytes.
        data_bytes: usize,
    },
}

/// A mistake that has no words of its own.
pub const BAD_LINE: Refusal = Refusal::Wrong("CLIENT_ERROR bad command line format");
const BAD_EXPTIME: Refusal = Refusal::Wrong("CLIENT_ERROR invalid exptime argument");
const BAD_DELTA: Refusal = Refusal::Wrong("CLIENT_ERROR invalid numeric delta argument");
const BAD_DELETE: Refusal = Refusal::Wrong("CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]");

impl Refusal {
    /// What the client is told, without the line end.
    pub const fn text(self) -> &'static str {
        match self {
            Self::NoCommand => "ERROR",
            Self::Wrong(text) | Self::WrongBeforeData { text, .. } => text,
        }
    }
}

/// How a value is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// Whatever is there.
    Set,
    /// If nothing is there.
    Add,
    /// If something is there.
    Replace,
    /// Behind what is there.
    Append,
    /// Before what is there.
    Prepend,
}

/// A line that brings data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Store<'a> {
    /// What is done with the data.
    pub how: How,
    /// The key.
    pub key: &'a [u8],
    /// The client's own flags.
    pub flags: u32,
    /// When it expires, as the client says it.
    pub exptime: i64,
    /// Length of the data in bytes.
    pub data_bytes: usize,
    /// Only if the item has this number.
    pub cas: Option<u64>,
}

/// A line that asks for items.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Get<'a> {
    /// Whether the answer has the number for `cas`.
    pub has_cas: bool,
    /// The items get this expiry.
    pub exptime: Option<i64>,
    /// The keys, with spaces between and around them.
    pub keys: &'a [u8],
}

/// What a line asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// Items.
    Get(Get<'a>),
    /// To store what follows.
    Store(Store<'a>),
    /// To remove an item.
    Delete {
        /// Its key.
        key: &'a [u8],
    },
    /// To count up or down.
    Count {
        /// The key.
        key: &'a [u8],
        /// By how much.
        by: u64,
        /// Down instead of up.
        is_down: bool,
    },
    /// To set the expiry of an item.
    Touch {
        /// Its key.
        key: &'a [u8],
        /// As the client says it.
        exptime: i64,
    },
    /// A meta command.
    Meta(Meta<'a>),
    /// `mn`: an answer, to see where the others end.
    MetaNoop,
    /// To remove all items, after so many seconds.
    FlushAll {
        /// 0 or less: now.
        delay: i64,
    },
    /// Figures.
    Stats {
        /// Which; empty for the general ones.
        what: &'a [u8],
    },
    /// The version.
    Version,
    /// To log more or less; it changes nothing.
    Verbosity,
    /// To end the connection.
    Quit,
}

/// The key of a line, if it is not too long.
fn key(word: &[u8]) -> Result<&[u8], Refusal> {
    match word.len() {
        1..=KEY_BYTES_MAX => Ok(word),
        _ => Err(BAD_LINE),
    }
}

/// Whether the last word of a line is `noreply`.
pub fn is_silent(line: &[u8]) -> bool {
    line.trim_ascii_end().ends_with(b" noreply")
}

/// Parses a line, without its end.
///
/// # Errors
/// Why memcached would refuse it.
pub fn parse(line: &[u8]) -> Result<Request<'_>, Refusal> {
    let mut rest = words(line);
    let verb = rest.next().unwrap_or_default();
    match verb {
        b"get" | b"gets" | b"gat" | b"gats" => {
            let get = get(line)?;
            let mut keys = words(get.keys).peekable();
            if get.exptime.is_none() && keys.peek().is_none() {
                return Err(Refusal::NoCommand);
            }
            keys.try_for_each(|word| key(word).map(|_| ()))?;
            Ok(Request::Get(get))
        }
        b"set" => store(How::Set, false, line),
        b"add" => store(How::Add, false, line),
        b"replace" => store(How::Replace, false, line),
        b"append" => store(How::Append, false, line),
        b"prepend" => store(How::Prepend, false, line),
        b"cas" => store(How::Set, true, line),
        b"delete" => match fixed::<4>(line) {
            Some((words, 2)) => Ok(Request::Delete { key: key(words[1])? }),
            Some((words, count @ (3 | 4))) => {
                let is_silent = words[count - 1] == b"noreply";
                let is_zero = words[2] == b"0";
                let is_usage = (count == 3 && (is_silent || is_zero)) || (count == 4 && is_silent && is_zero);
                match is_usage {
                    true => Ok(Request::Delete { key: key(words[1])? }),
                    false => Err(BAD_DELETE),
                }
            }
            _ => Err(Refusal::NoCommand),
        },
        b"incr" | b"decr" => match fixed::<4>(line) {
            Some((words, 3 | 4)) => Ok(Request::Count {
                key: key(words[1])?,
                by: number(words[2]).ok_or(BAD_DELTA)?,
                is_down: verb == b"decr",
            }),
            _ => Err(Refusal::NoCommand),
        },
        b"touch" => match fixed::<4>(line) {
            Some((words, 3 | 4)) => Ok(Request::Touch {
                key: key(words[1])?,
                exptime: exptime(words[2]).ok_or(BAD_EXPTIME)?,
            }),
            _ => Err(Refusal::NoCommand),
        },
        b"flush_all" => match fixed::<3>(line) {
            Some((_, 1)) => Ok(Request::FlushAll { delay: 0 }),
            Some((words, 2)) if words[1] == b"noreply" => Ok(Request::FlushAll { delay: 0 }),
            Some((words, _)) => Ok(Request::FlushAll {
                delay: exptime(words[1]).ok_or(BAD_EXPTIME)?,
            }),
            None => Err(Refusal::NoCommand),
        },
        b"verbosity" => match fixed::<4>(line) {
            None | Some((_, 1)) => Err(Refusal::NoCommand),
            Some((words, _)) => number(words[1]).map(|_| Request::Verbosity).ok_or(BAD_LINE),
        },
        b"stats" => Ok(Request::Stats {
            what: rest.next().unwrap_or_default(),
        }),
        b"version" => Ok(Request::Version),
        b"quit" => Ok(Request::Quit),
        b"mn" => Ok(Request::MetaNoop),
        verb => match Verb::of(verb) {
            Some(verb) => Meta::parse(verb, line).map(Request::Meta),
            None => Err(Refusal::NoCommand),
        },
    }
}

/// The number in the data of an item that counts. It ends at the first space.
pub fn counter(data: &[u8]) -> Option<u64> {
    let data = data.trim_ascii_start();
    let end = data.iter().position(u8::is_ascii_whitespace).unwrap_or(data.len());
    number(data.get(..end)?)
}

/// The beginning of a line that asks for items. Its keys may be missing.
///
/// # Errors
/// Why memcached would refuse it.
pub fn get(line: &[u8]) -> Result<Get<'_>, Refusal> {
    let line = line.trim_ascii_start();
    let end = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
    let (verb, keys) = line.split_at(end);
    let (has_cas, is_touched) = match verb {
        b"get" => (false, false),
        b"gets" => (true, false),
        b"gat" => (false, true),
        b"gats" => (true, true),
        _ => return Err(Refusal::NoCommand),
    };
    if !is_touched {
        return Ok(Get {
            has_cas,
            exptime: None,
            keys,
        });
    }
    let keys = keys.trim_ascii_start();
    let end = keys.iter().position(|byte| *byte == b' ').unwrap_or(keys.len());
    let (word, keys) = keys.split_at(end);
    if word.is_empty() {
        return Err(Refusal::NoCommand);
    }
    Ok(Get {
        has_cas,
        exptime: Some(exptime(word).ok_or(BAD_EXPTIME)?),
        keys,
    })
}

fn store(how: How, has_cas: bool, line: &[u8]) -> Result<Request<'_>, Refusal> {
    let extra = usize::from(has_cas);
    let Some((words, count)) = fixed::<7>(line) else {
        return Err(Refusal::NoCommand);
    };
    if count != 5 + extra && count != 6 + extra {
        return Err(Refusal::NoCommand);
    }
    let key = key(words[1])?;
    let flags = number(words[2]).ok_or(BAD_LINE)?;
    let exptime = exptime(words[3]).ok_or(BAD_LINE)?;
    let data_bytes = signed(words[4]).and_then(|bytes| u64::try_from(bytes).ok());
    let data_bytes = data_bytes.filter(|bytes| *bytes <= DATA_BYTES_MAX).ok_or(BAD_LINE)?;
    let cas = match has_cas {
        true => Some(number(words[5]).ok_or(BAD_LINE)?),
        false => None,
    };
    Ok(Request::Store(Store {
        how,
        key,
        // memcached takes the low bits too.
        flags: flags as u32,
        exptime,
        data_bytes: data_bytes as usize,
        cas,
    }))
}

/// The words of a line, and how many there are; `None` if there are more than `N`.
fn fixed<const N: usize>(line: &[u8]) -> Option<([&[u8]; N], usize)> {
    let mut all = [&[][..]; N];
    let mut count = 0;
    for word in words(line) {
        *all.get_mut(count)? = word;
        count += 1;
    }
    Some((all, count))
}

#[cfg(test)]
mod tests;
