//! A simulated client: sends commands as bytes, reads replies as bytes, and remembers what it saw.

use crate::linear::{Action, Outcome};
use paritas_base::{ConnId, Incarnation, NodeId, Time};
use paritas_protocol::Port;
use std::collections::VecDeque;

/// Keys that are written together and read together must always have one value: groups, whose names begin with `{`.
/// Most have these keys.
const GROUP: [&str; 3] = ["a", "b", "c"];
/// How the names of those begin whose keys' hashes are neighbours: crowds.
pub(crate) const CROWD: &str = "{crowd}";

/// What stands for all keys.
pub(crate) const ALL: &str = "*";

/// How keys begin that are written once. Their values have leading zeros, up to a length.
pub(crate) const FILLER: &str = "filler:";

/// A command under way.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    /// Its key; several for MSET, none for FLUSHALL, [`ALL`] for KEYS. One that begins with `{` is a group.
    pub(crate) keys: Vec<String>,
    /// What it asks of each.
    pub(crate) action: Action,
    /// When it was sent.
    pub(crate) begin: Time,
}

/// One client.
#[derive(Debug)]
pub(crate) struct Client {
    /// Its connection.
    pub(crate) conn: Option<(NodeId, Incarnation, ConnId)>,
    /// The port it came by.
    pub(crate) port: Port,
    /// Where it was told to go.
    pub(crate) moved: Option<usize>,
    /// The node has taken the connection.
    pub(crate) up: bool,
    /// Commands without a reply, oldest first.
    pub(crate) pending: VecDeque<Pending>,
    /// Bytes received that are no whole reply yet.
    pub(crate) received: Vec<u8>,
    /// When the last bytes for it arrive: a connection keeps their order.
    pub(crate) last: Time,
}

impl Client {
    pub(crate) fn new() -> Self {
        Self {
            conn: None,
            port: Port::Any,
            moved: None,
            up: false,
            pending: VecDeque::new(),
            received: Vec::new(),
            last: Time(0),
        }
    }
}

/// The address of a node's strict port.
pub(crate) fn address(at: usize) -> String {
    format!("node-{at}:7000")
}

/// Where a `-MOVED` points.
pub(crate) fn moved_to(error: &str) -> Option<usize> {
    let address = error.strip_prefix("-MOVED ")?.split_once(' ')?.1;
    address.strip_prefix("node-")?.strip_suffix(":7000")?.parse().ok()
}

/// One reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// As the history records it.
    Outcome(Outcome),
    /// The keys that there are.
    Keys(Vec<String>),
    /// It did not happen.
    Refused(String),
    /// It may have happened.
    Uncertain,
}

/// Keys of which a growing index has more in a page than in others.
#[derive(Default, Debug)]
pub(crate) struct Crowds(Vec<Vec<String>>);

impl Crowds {
    /// So many crowds of so many keys: those of many that come first in the order of their hashes, as from SCAN.
    pub(crate) fn new(count: usize, keys: usize, hash: impl Fn(&str) -> u64) -> Self {
        let mut names: Vec<String> = (0..16 * count * keys).map(|n| format!("{CROWD}{n}")).collect();
        names.sort_by_cached_key(|name| hash(name));
        names.truncate(count * keys);
        Self(names.chunks(keys.max(1)).map(<[String]>::to_vec).collect())
    }

    /// The keys of what a client names: of a group, or itself.
    pub(crate) fn keys(&self, name: &str) -> Vec<String> {
        let crowd = name.strip_prefix(CROWD).and_then(|nth| nth.parse::<usize>().ok());
        match crowd.and_then(|nth| self.0.get(nth)) {
            Some(keys) => keys.clone(),
            None if name.starts_with('{') => GROUP.iter().map(|part| format!("{name}{part}")).collect(),
            None => vec![name.to_string()],
        }
    }
}

/// A command as a client sends it, on keys and groups.
pub(crate) fn encode(crowds: &Crowds, keys: &[String], action: Action, filler_bytes: usize) -> Vec<u8> {
    let names: Vec<String> = keys.iter().flat_map(|key| crowds.keys(key)).collect();
    let several = names.len() > 1;
    let mut args: Vec<String> = Vec::new();
    let text = |name: &str, n: i64| {
        let width = if name.starts_with(FILLER) { filler_bytes } else { 0 };
        format!("{n:0width$}")
    };
    let pairs = |n: i64| names.iter().flat_map(move |name| [name.clone(), text(name, n)]);
    match action {
        Action::Get => args.push(if several { "MGET" } else { "GET" }.into()),
        Action::Set(_) => args.push(if several { "MSET" } else { "SET" }.into()),
        Action::SetFor(..) => args.push("SET".into()),
        Action::Delete => args.push("DEL".into()),
        Action::Increment => args.push("INCR".into()),
        Action::Flush => args.push("FLUSHALL".into()),
        Action::List => args.push("KEYS".into()),
    }
    match action {
        Action::Set(n) => args.extend(pairs(n)),
        Action::SetFor(n, lasts) => args.extend(pairs(n).chain(["PX".into(), lasts.as_ms().to_string()])),
        _ => args.extend(names),
    }
    let mut out = format!("*{}\r\n", args.len());
    for arg in args {
        out.push_str(&format!("${}\r\n{arg}\r\n", arg.len()));
    }
    out.into_bytes()
}

/// Takes the first whole reply off `received`, to this command. An error if the bytes are no reply at all, or a group's
/// keys have not one value.
pub(crate) fn take_answer(received: &mut Vec<u8>, to: Option<Action>) -> Result<Option<Answer>, String> {
    let Some((answer, mut used)) = parse(received)? else {
        return Ok(None);
    };
    let answer = match answer {
        Parsed::One(answer) => answer,
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
                    Some((Parsed::One(Answer::Outcome(value)), bytes)) => {
                        values.push(value);
                        used += bytes;
                    }
                    Some((other, _)) => return Err(format!("I14: a client got {other:?} in an array")),
                }
            }
            match values.as_slice() {
                [first, rest @ ..] if rest.iter().all(|v| v == first) => Answer::Outcome(*first),
                _ => return Err(format!("I9: keys that are only written together are {values:?}")),
            }
        }
    };
    received.drain(..used);
    Ok(Some(answer))
}

#[derive(Debug)]
enum Parsed {
    One(Answer),
    /// So many replies follow.
    Array(usize),
}

/// The string that some bytes begin with, and how long it is with its head.
fn parse_name(received: &[u8]) -> Result<Option<(String, usize)>, String> {
    let Some(line_end) = received.windows(2).position(|w| w == b"\r\n") else {
        return Ok(None);
    };
    let line = String::from_utf8_lossy(&received[..line_end]);
    let length = line.strip_prefix('$').and_then(|length| length.parse::<usize>().ok());
    let length = length.ok_or_else(|| format!("I14: a client got {line:?} for a key"))?;
    let end = line_end + 2 + length;
    let name = received.get(line_end + 2..end);
    let whole = received.len() >= end + 2;
    Ok(name
        .filter(|_| whole)
        .map(|name| (String::from_utf8_lossy(name).into_owned(), end + 2)))
}

/// The first reply in some bytes, or the head of an array, and how long it is.
fn parse(received: &[u8]) -> Result<Option<(Parsed, usize)>, String> {
    let Some(line_end) = received.windows(2).position(|w| w == b"\r\n") else {
        return Ok(None);
    };
    let line = String::from_utf8_lossy(&received[..line_end]).into_owned();
    let mut used = line_end + 2;
    let bad = || format!("I14: a client got {line:?}, which is no reply");
    let number = |text: &str| text.parse::<i64>().map_err(|_| bad());
    let answer = match line.as_bytes().first() {
        Some(b'+') => Answer::Outcome(Outcome::Done(None)),
        Some(b':') => Answer::Outcome(Outcome::Done(Some(number(&line[1..])?))),
        Some(b'-') if line.starts_with("-UNCERTAIN") => Answer::Uncertain,
        Some(b'-') => Answer::Refused(line.clone()),
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
                let text = String::from_utf8_lossy(&received[used..used + length]).into_owned();
                used += length + 2;
                Answer::Outcome(Outcome::Done(Some(number(&text)?)))
            }
        }
        _ => return Err(bad()),
    };
    Ok(Some((Parsed::One(answer), used)))
}
