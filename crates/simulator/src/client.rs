//! A simulated client. It sends commands as bytes, reads replies as bytes, and records what it saw.

use crate::linear::{Action, Outcome, appended};
use paritas_base::{ConnId, Incarnation, NodeId, Time};
use paritas_protocol::Port;
use std::borrow::Cow;
use std::collections::VecDeque;

/// Keys of a group. A group's keys are only written together, so that reading them together must always give one value.
/// Names of groups begin with `{`. Most groups have these keys.
const GROUP: [&str; 3] = ["a", "b", "c"];
/// Names of crowds begin so: groups of keys whose hashes are neighbours.
pub(crate) const CROWD: &str = "{crowd}";

/// Stands for all keys.
pub(crate) const ALL: &str = "*";

/// Names of keys that are written once begin so. Their values are padded with leading zeros to a given length.
pub(crate) const FILLER: &str = "filler:";

/// Names of keys with large values begin so. Such a value repeats its number up to a length that the number gives. What
/// is appended begins with `|`.
pub(crate) const LARGE: &str = "large:";

/// A name that is no key: the library of functions. SET loads one whose function tells the value, GET calls it.
pub(crate) const LIBRARY: &str = "=library";

/// A key of a hash slot with which the function is called.
const CALLED_WITH: &str = "k0";

/// Names of groups begin so of which some values are large: those of the keys `a` and `b`.
pub(crate) const LARGE_GROUP: &str = "{large}";

/// Lengths of values in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lengths {
    /// Those of keys that are written once.
    pub(crate) filler_bytes: usize,
    /// The shortest and the longest of large keys.
    pub(crate) large_bytes: (usize, usize),
    /// Data blocks and parities of the scheme, and positions of a list in memory.
    pub(crate) shape: (u8, u8, u8),
}

impl Lengths {
    /// The `n`-th of the classes that a large value may have: their parts fit the list. The first three survive as many
    /// losses as the scheme, the others fewer.
    pub(crate) fn class(self, n: u8) -> String {
        let (data, parity, positions) = self.shape;
        // All parities but the first may be on log nodes. Copies are in memory only.
        let (blocks_max, copies_max) = (data.min(positions - 1), positions);
        match n {
            // Cut as by the scheme: a value that was coded keeps its data blocks.
            0 if parity <= blocks_max => format!("eor:{},{}", parity + 1, blocks_max),
            1 => format!("ec:{data},{parity}"),
            4 if parity <= copies_max => format!("rep:{parity}"),
            5 if parity > 1 => format!("ec:{blocks_max},{}", parity - 1),
            3..=5 => "none".into(),
            _ if parity < copies_max => format!("rep:{}", parity + 1),
            _ => format!("ec:{},{parity}", data.max(2) - 1),
        }
    }
}

/// A large value of this length.
fn large(n: i64, bytes: usize) -> String {
    let mut text = format!("{n};").repeat(bytes / 2 + 1);
    text.truncate(bytes);
    text
}

/// The number that a value says. `None` if a large value, or a part that was appended to it, is not whole.
pub(crate) fn number_of(text: &str) -> Option<i64> {
    let mut parts = text.split('|');
    let first = parts.next()?;
    // A key that did not exist has only what was appended.
    let mut value = match first.is_empty() && text.len() > 1 {
        true => None,
        false => Some(number_of_part(first)?),
    };
    for part in parts {
        value = Some(appended(value, number_of_part(part)?));
    }
    value
}

fn number_of_part(text: &str) -> Option<i64> {
    let Some((number, _)) = text.split_once(';') else {
        return text.parse().ok();
    };
    let n = number.parse().ok()?;
    (large(n, text.len()) == text).then_some(n)
}

/// How a client sends a command.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Form {
    /// As one command.
    #[default]
    One,
    /// A command for each key, between MULTI and EXEC.
    Transaction,
    /// WATCH and GET of the key, then the command between MULTI and EXEC.
    Watched,
    /// By a script, which reads its first key before.
    Scripted,
    /// By PARITAS.SET, with the n-th class.
    Classed(u8),
}

/// How a client comes to the database of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Select {
    /// It has it.
    #[default]
    None,
    /// By a command before.
    Before,
    /// By the first command of the transaction. If that is not done, the connection has the database of before, if it
    /// is known.
    Inside(Option<u8>),
}

/// What ends the name of a key of database 1. Keys of equal names are in both databases.
const ELSEWHERE: &str = "@1";

/// The name of a key as a node knows it, and its database.
pub(crate) fn in_database(name: &str) -> (&str, u8) {
    name.strip_suffix(ELSEWHERE).map_or((name, 0), |name| (name, 1))
}

/// The key of the same name in database 1.
pub(crate) fn elsewhere(name: &str) -> String {
    format!("{name}{ELSEWHERE}")
}

/// What a script does with a command.
const SCRIPT: &str = "redis.pcall('GET', KEYS[1]) return redis.call(unpack(ARGV))";

/// The answer to EXEC after a watched key has changed.
pub(crate) const ABORTED: &str = "-ABORTED";

/// A command without a reply yet.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    /// Its keys: several for MSET, none for FLUSHALL, [`ALL`] for KEYS. A name that begins with `{` is a group.
    pub(crate) keys: Vec<String>,
    /// The operation on each key.
    pub(crate) action: Action,
    pub(crate) form: Form,
    pub(crate) select: Select,
    /// When it was sent.
    pub(crate) begin: Time,
    /// When the last of its bytes are sent.
    pub(crate) sent: Time,
    /// The connection, and the number of the command on it.
    pub(crate) place: (u64, u64),
}

impl Pending {
    /// Whether it is a transaction that changes its database.
    pub(crate) fn selects_inside(&self) -> bool {
        matches!(self.select, Select::Inside(_))
    }
}

/// One client.
#[derive(Debug)]
pub(crate) struct Client {
    /// Its connection, if any.
    pub(crate) conn: Option<(NodeId, Incarnation, ConnId)>,
    /// The port that it connected to.
    pub(crate) port: Port,
    /// The node that a `-MOVED` reply named.
    pub(crate) moved: Option<usize>,
    /// The database of its connection, as far as it knows.
    pub(crate) database: Option<u8>,
    /// Replies in a row that refused a command. A client waits longer after each, as real ones do.
    pub(crate) refused_in_row: u32,
    /// Whether the node has accepted the connection.
    pub(crate) up: bool,
    /// Commands without a reply, oldest first.
    pub(crate) pending: VecDeque<Pending>,
    /// Bytes that a paused node has not read yet, as they were sent.
    pub(crate) held: VecDeque<Vec<u8>>,
    /// Bytes received that are not yet a complete reply.
    pub(crate) received: Vec<u8>,
    /// When the last bytes on the way arrive. A connection keeps the order of bytes.
    pub(crate) last: Time,
}

impl Client {
    pub(crate) fn new() -> Self {
        Self {
            conn: None,
            port: Port::Any,
            moved: None,
            database: Some(0),
            refused_in_row: 0,
            up: false,
            pending: VecDeque::new(),
            held: VecDeque::new(),
            received: Vec::new(),
            last: Time(0),
        }
    }
}

/// The address of a node's cluster port.
pub(crate) fn address(at: usize) -> String {
    format!("node-{at}:7000")
}

/// The node that a `-MOVED` reply names.
pub(crate) fn moved_to(error: &str) -> Option<usize> {
    let address = error.strip_prefix("-MOVED ")?.split_once(' ')?.1;
    address.strip_prefix("node-")?.strip_suffix(":7000")?.parse().ok()
}

/// Whether a refusal says that the stream of the key does not serve (P5.13).
pub(crate) fn says_stuck(error: &str) -> bool {
    let texts = [
        "-TRYAGAIN The owner of this key is being replaced",
        "-CLUSTERDOWN The cluster is down",
    ];
    texts.iter().any(|text| error.starts_with(text))
}

/// A reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// A result, as the history records it.
    Outcome(Outcome),
    /// The existing keys.
    Keys(Vec<String>),
    /// The results for each of several keys.
    Each(Vec<Outcome>),
    /// An error: the command was not done.
    Refused(String),
    /// The command may or may not have been done.
    Uncertain,
}

/// Groups of keys that a growing index puts into the same page, so that this page gets more keys than others.
#[derive(Default, Debug)]
pub(crate) struct Crowds(Vec<Vec<String>>);

impl Crowds {
    /// `count` crowds of `keys` keys each: of many keys, those that come first in the order of their hashes, as from
    /// SCAN.
    pub(crate) fn new(count: usize, keys: usize, hash: impl Fn(&str) -> u64) -> Self {
        let mut names: Vec<String> = (0..16 * count * keys).map(|n| format!("{CROWD}{n}")).collect();
        names.sort_by_cached_key(|name| hash(name));
        names.truncate(count * keys);
        Self(names.chunks(keys.max(1)).map(<[String]>::to_vec).collect())
    }

    /// The keys that a name stands for, as nodes know them: those of a group, or the name itself.
    pub(crate) fn keys(&self, name: &str) -> Vec<String> {
        let (name, _) = in_database(name);
        let crowd = name.strip_prefix(CROWD).and_then(|nth| nth.parse::<usize>().ok());
        match crowd.and_then(|nth| self.0.get(nth)) {
            Some(keys) => keys.clone(),
            None if name.starts_with('{') => GROUP.iter().map(|part| format!("{name}{part}")).collect(),
            None => vec![name.to_string()],
        }
    }
}

/// Encodes a command on keys and groups in a form, as a client sends it. Returns the bytes, and those of them that it
/// may send first and wait before it sends the others.
pub(crate) fn encode_as(
    (form, select): (Form, Select),
    crowds: &Crowds,
    keys: &[String],
    action: Action,
    lengths: Lengths,
) -> (Vec<u8>, usize) {
    let database = keys.first().map_or(0, |key| in_database(key).1).to_string();
    let selection = words(&["SELECT", &database]);
    if select == Select::Before {
        let (bytes, first) = encode_as((form, Select::None), crowds, keys, action, lengths);
        let first = if first > 0 { first + selection.len() } else { 0 };
        return ([selection, bytes].concat(), first);
    }
    let names: Vec<String> = keys.iter().flat_map(|key| crowds.keys(key)).collect();
    let (multi, exec) = (["MULTI"], ["EXEC"]);
    match form {
        Form::One => (encode_names(names, action, lengths), 0),
        Form::Classed(n) => {
            let set = words_of(names, action, lengths);
            let class = lengths.class(n);
            let all = ["PARITAS.SET", &class]
                .into_iter()
                .chain(set.iter().skip(1).map(String::as_str));
            (words(&all.collect::<Vec<_>>()), 0)
        }
        Form::Transaction => {
            let mut bytes = words(&multi);
            if matches!(select, Select::Inside(_)) {
                bytes.extend(&selection);
            }
            for name in names {
                bytes.extend(encode_names(vec![name], action, lengths));
            }
            bytes.extend(words(&exec));
            (bytes, 0)
        }
        Form::Watched => {
            let mut bytes = Vec::new();
            for name in &names {
                bytes.extend(words(&["WATCH", name]));
                bytes.extend(words(&["GET", name]));
            }
            let first = bytes.len();
            bytes.extend(words(&multi));
            bytes.extend(encode_names(names, action, lengths));
            bytes.extend(words(&exec));
            (bytes, first)
        }
        Form::Scripted => {
            let (count, command) = (names.len().to_string(), words_of(names.clone(), action, lengths));
            let head = ["EVAL", SCRIPT, &count].into_iter();
            let all = head.chain(names.iter().chain(&command).map(String::as_str));
            (words(&all.collect::<Vec<_>>()), 0)
        }
    }
}

/// A command of these words.
fn words(args: &[&str]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", args.len());
    for arg in args {
        out.push_str(&format!("${}\r\n{arg}\r\n", arg.len()));
    }
    out.into_bytes()
}

/// Encodes a command on keys and groups.
pub(crate) fn encode(crowds: &Crowds, keys: &[String], action: Action, lengths: Lengths) -> Vec<u8> {
    encode_as((Form::One, Select::None), crowds, keys, action, lengths).0
}

fn encode_names(names: Vec<String>, action: Action, lengths: Lengths) -> Vec<u8> {
    let args = words_of(names, action, lengths);
    words(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The value of a key that says this number.
pub(crate) fn text_of(name: &str, n: i64, lengths: Lengths) -> String {
    if name.starts_with(LARGE) || (name.starts_with(LARGE_GROUP) && !name.ends_with('c')) {
        let (shortest, longest) = lengths.large_bytes;
        // Numbers are multiples of 1,000.
        let more = (n as usize / 1000).wrapping_mul(7919) % (longest - shortest + 1);
        return large(n, shortest + more);
    }
    let width = if name.starts_with(FILLER) {
        lengths.filler_bytes
    } else {
        0
    };
    format!("{n:0width$}")
}

/// The words of a command.
fn words_of(names: Vec<String>, action: Action, lengths: Lengths) -> Vec<String> {
    if names.first().is_some_and(|name| name == LIBRARY) {
        return words_of_library(action);
    }
    let several = names.len() > 1;
    let mut args: Vec<String> = Vec::new();
    let text = |name: &str, n: i64| text_of(name, n, lengths);
    // Short ones too, which come with their command.
    let more = |name: &str, n: i64| match n / 1000 % 3 {
        0 => format!("|{n};"),
        _ => format!("|{}", text(name, n)),
    };
    let pairs = |n: i64| names.iter().flat_map(move |name| [name.clone(), text(name, n)]);
    match action {
        Action::GetEach => args.push("MGET".into()),
        Action::Get => args.push(if several { "MGET" } else { "GET" }.into()),
        Action::Set(_) => args.push(if several { "MSET" } else { "SET" }.into()),
        Action::SetFor(..) | Action::Exchange(_) => args.push("SET".into()),
        Action::Take => args.push("GETDEL".into()),
        Action::Append(_) => args.push("APPEND".into()),
        Action::Delete => args.push("DEL".into()),
        Action::Increment => args.push("INCR".into()),
        Action::Flush => args.push("FLUSHALL".into()),
        Action::List => args.push("KEYS".into()),
        Action::Class(_) => args.push("PARITAS.REDUNDANCY".into()),
    }
    match action {
        Action::Set(n) => args.extend(pairs(n)),
        Action::Exchange(n) => args.extend(pairs(n).chain(["GET".into()])),
        Action::SetFor(n, lasts) => args.extend(pairs(n).chain(["PX".into(), lasts.as_ms().to_string()])),
        Action::Append(n) => args.extend(names.iter().flat_map(|name| [name.clone(), more(name, n)])),
        Action::Class(n) => args.extend(names.into_iter().chain([lengths.class(n)])),
        _ => args.extend(names),
    }
    args
}

/// Those of a command on the library. Its name is a number, as the reply to loading it.
fn words_of_library(action: Action) -> Vec<String> {
    let words = match action {
        Action::Set(n) => {
            let source = format!("#!lua name=7\nredis.register_function('tell', function() return '{n}' end)");
            return ["FUNCTION", "LOAD", "REPLACE", &source].map(str::to_owned).to_vec();
        }
        _ => ["FCALL", "tell", "1", CALLED_WITH],
    };
    words.map(str::to_owned).to_vec()
}

/// Takes the replies to a command in its form.
pub(crate) fn take_answer_to(received: &mut Vec<u8>, to: Option<(&Pending, usize)>) -> Result<Option<Answer>, String> {
    let mut selected_bytes = 0;
    if to.is_some_and(|(pending, _)| pending.select == Select::Before) {
        match parse(received)? {
            None => return Ok(None),
            Some((Parsed::One(Answer::Outcome(Outcome::Done(None))), used)) => selected_bytes = used,
            Some((other, _)) => return Err(format!("I14: SELECT was answered {other:?}")),
        }
    }
    let mut rest = received.split_off(selected_bytes);
    let answer = take_rest(&mut rest, to);
    if !matches!(answer, Ok(Some(_))) {
        received.append(&mut rest);
    } else {
        *received = rest;
    }
    answer
}

fn take_rest(received: &mut Vec<u8>, to: Option<(&Pending, usize)>) -> Result<Option<Answer>, String> {
    match to {
        Some((pending, names)) if matches!(pending.form, Form::Transaction | Form::Watched) => {
            take_transaction(received, pending, names)
        }
        other => take_answer(received, other.map(|(pending, _)| pending.action)),
    }
}

/// Takes all replies to a transaction on this number of names.
fn take_transaction(received: &mut Vec<u8>, pending: &Pending, names: usize) -> Result<Option<Answer>, String> {
    let mut used = 0;
    let mut next = |rest: &[u8]| -> Result<Option<Parsed>, String> {
        let parsed = parse(rest.get(used..).unwrap_or_default())?;
        Ok(parsed.map(|(parsed, bytes)| {
            used += bytes;
            parsed
        }))
    };
    // The value that was read while the key was watched.
    let mut seen = None;
    let mut refused = None;
    let before = match pending.form {
        Form::Watched => 4,
        _ => 1 + names + usize::from(pending.selects_inside()),
    };
    for nth in 0..before {
        match next(received)? {
            None => return Ok(None),
            Some(Parsed::One(Answer::Outcome(Outcome::Done(value)))) => {
                if pending.form == Form::Watched && nth == 1 {
                    seen = Some(value);
                }
            }
            Some(Parsed::One(Answer::Refused(text))) => {
                refused.get_or_insert(text);
            }
            Some(other) => {
                let bytes = String::from_utf8_lossy(received);
                return Err(format!(
                    "I14: a client got {other:?} before EXEC, {pending:?}: {bytes:?}"
                ));
            }
        }
    }
    // A key that is not watched may change.
    if refused.is_some() {
        seen = None;
    }
    let mut results = Vec::new();
    let answer = match next(received)? {
        None => return Ok(None),
        Some(Parsed::One(Answer::Refused(text))) => match refused {
            Some(first) if text.starts_with("-EXECABORT") => Answer::Refused(first),
            _ => Answer::Refused(text),
        },
        Some(Parsed::One(answer)) => answer,
        Some(Parsed::Absent) if pending.form == Form::Watched => Answer::Refused(ABORTED.to_owned()),
        Some(Parsed::Absent) => return Err("I14: an unwatched transaction was stopped".to_owned()),
        Some(Parsed::Array(count)) => {
            for _ in 0..count {
                match next(received)? {
                    None => return Ok(None),
                    Some(Parsed::One(Answer::Outcome(Outcome::Done(value)))) => results.push(value),
                    Some(other) => return Err(format!("I14: a client got {other:?} in a transaction")),
                }
            }
            let selects = usize::from(pending.selects_inside());
            let results = results.get(selects..).unwrap_or_default();
            Answer::Outcome(Outcome::Done(match (pending.action, results) {
                (Action::Delete, some) => Some(some.iter().flatten().sum()),
                (_, [first, rest @ ..]) if rest.iter().all(|value| value == first) => *first,
                (_, some) => return Err(format!("I9: keys that are only written together have values {some:?}")),
            }))
        }
    };
    if let (Some(seen), [Some(new)], Action::Increment) = (seen, results.as_slice(), pending.action)
        && *new != seen.unwrap_or(0) + 1
    {
        return Err(format!(
            "I9: a watched key was {seen:?}, and a transaction that was not stopped made it {new}"
        ));
    }
    received.drain(..used);
    Ok(Some(answer))
}

/// Takes the first complete reply from `received`, which answers command `to`. An error if the bytes are not a reply,
/// or if a group's keys have different values.
pub(crate) fn take_answer(received: &mut Vec<u8>, to: Option<Action>) -> Result<Option<Answer>, String> {
    let Some((answer, mut used)) = parse(received)? else {
        return Ok(None);
    };
    let answer = match answer {
        Parsed::One(answer) => answer,
        Parsed::Absent => return Err("I14: a client got no array".to_owned()),
        Parsed::Array(count) if to == Some(Action::List) => {
            let mut names = Vec::new();
            for _ in 0..count {
                let Some((name, bytes)) = parse_name(&received[used..])? else {
                    return Ok(None);
                };
                names.push(name);
                used += bytes;
            }
            Answer::Keys(names)
        }
        Parsed::Array(count) => {
            let mut values = Vec::new();
            for _ in 0..count {
                match parse(&received[used..])? {
                    None => return Ok(None),
                    Some((Parsed::One(Answer::Outcome(Outcome::Done(value))), bytes)) => {
                        values.push(value);
                        used += bytes;
                    }
                    Some((other, _)) => return Err(format!("I14: a client got {other:?} in an array")),
                }
            }
            match values.as_slice() {
                _ if to == Some(Action::GetEach) => Answer::Each(values.into_iter().map(Outcome::Done).collect()),
                [first, rest @ ..] if rest.iter().all(|v| v == first) => Answer::Outcome(Outcome::Done(*first)),
                _ => {
                    return Err(format!(
                        "I9: keys that are only written together have values {values:?}"
                    ));
                }
            }
        }
    };
    received.drain(..used);
    Ok(Some(answer))
}

#[derive(Debug)]
enum Parsed {
    One(Answer),
    /// The header of an array of this many replies.
    Array(usize),
    /// No array.
    Absent,
}

/// Parses a bulk string at the start of the bytes. Returns the string and its length with its header.
fn parse_name(received: &[u8]) -> Result<Option<(String, usize)>, String> {
    let Some(line_end) = received.windows(2).position(|w| w == b"\r\n") else {
        return Ok(None);
    };
    let line = String::from_utf8_lossy(&received[..line_end]);
    let length = line.strip_prefix('$').and_then(|length| length.parse::<usize>().ok());
    let length = length.ok_or_else(|| format!("I14: a client got {line:?} as a key"))?;
    let end = line_end + 2 + length;
    let name = received.get(line_end + 2..end);
    let whole = received.len() >= end + 2;
    Ok(name
        .filter(|_| whole)
        .map(|name| (String::from_utf8_lossy(name).into_owned(), end + 2)))
}

/// The text of a reply. Most are text, for which the search of [`String::from_utf8_lossy`] costs far more.
pub(crate) fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    core::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

/// Parses the first reply, or the header of an array. Returns it and its length.
fn parse(received: &[u8]) -> Result<Option<(Parsed, usize)>, String> {
    let Some(line_end) = received.windows(2).position(|w| w == b"\r\n") else {
        return Ok(None);
    };
    let line = lossy(&received[..line_end]);
    let mut used = line_end + 2;
    let bad = || format!("I14: a client got {line:?}, which is not a reply");
    let number = |text: &str| text.parse::<i64>().map_err(|_| bad());
    let answer = match line.as_bytes().first() {
        Some(b'+') => Answer::Outcome(Outcome::Done(None)),
        Some(b':') => Answer::Outcome(Outcome::Done(Some(number(&line[1..])?))),
        Some(b'-') if line.starts_with("-UNCERTAIN") => Answer::Uncertain,
        // There is no library yet.
        Some(b'-') if line == "-ERR Function not found" => Answer::Outcome(Outcome::Done(None)),
        Some(b'-') => Answer::Refused(line.clone().into_owned()),
        Some(b'*') if line == "*-1" => return Ok(Some((Parsed::Absent, used))),
        Some(b'*') => return Ok(Some((Parsed::Array(number(&line[1..])?.max(0) as usize), used))),
        Some(b'$') => {
            let length = number(&line[1..])?;
            if length < 0 {
                Answer::Outcome(Outcome::Done(None))
            } else {
                let length = length as usize;
                if received.len() < used + length + 2 {
                    return Ok(None);
                }
                let text = lossy(&received[used..used + length]);
                used += length + 2;
                Answer::Outcome(Outcome::Done(Some(number_of(&text).ok_or_else(|| {
                    format!(
                        "B6: a client got a value of {} bytes that nobody wrote: {:?}",
                        text.len(),
                        &text[..text.len().min(64)]
                    )
                })?)))
            }
        }
        _ => return Err(bad()),
    };
    Ok(Some((Parsed::One(answer), used)))
}
