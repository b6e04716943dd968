//! A simulated client: sends commands as bytes, reads replies as bytes, and remembers what it saw.

use crate::linear::{Action, Outcome};
use paritas_base::{ConnId, Incarnation, NodeId, Time};
use std::collections::VecDeque;

/// A command under way.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    /// Its key.
    pub(crate) key: String,
    /// What it asks.
    pub(crate) action: Action,
    /// When it was sent.
    pub(crate) begin: Time,
}

/// One client.
#[derive(Debug, Default)]
pub(crate) struct Client {
    /// Its connection.
    pub(crate) conn: Option<(NodeId, Incarnation, ConnId)>,
    /// The node has taken the connection.
    pub(crate) up: bool,
    /// Commands without a reply, oldest first.
    pub(crate) pending: VecDeque<Pending>,
    /// Bytes received that are no whole reply yet.
    pub(crate) received: Vec<u8>,
    /// When the last bytes for it arrive: a connection keeps their order.
    pub(crate) last: Time,
}

/// One reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// As the history records it.
    Outcome(Outcome),
    /// It did not happen.
    Refused(String),
    /// It may have happened.
    Uncertain,
}

/// A command as a client sends it.
pub(crate) fn encode(key: &str, action: Action) -> Vec<u8> {
    let value;
    let args: Vec<&str> = match action {
        Action::Get => vec!["GET", key],
        Action::Set(n) => {
            value = n.to_string();
            vec!["SET", key, &value]
        }
        Action::Delete => vec!["DEL", key],
        Action::Increment => vec!["INCR", key],
    };
    let mut out = format!("*{}\r\n", args.len());
    for arg in args {
        out.push_str(&format!("${}\r\n{arg}\r\n", arg.len()));
    }
    out.into_bytes()
}

/// Takes the first whole reply off `received`. An error if the bytes are no reply at all.
pub(crate) fn take_answer(received: &mut Vec<u8>) -> Result<Option<Answer>, String> {
    let Some(line_end) = received.windows(2).position(|w| w == b"\r\n") else {
        return Ok(None);
    };
    let line = String::from_utf8_lossy(&received[..line_end]).into_owned();
    let mut used = line_end + 2;
    let bad = || format!("a client got {line:?}, which is no reply");
    let number = |text: &str| text.parse::<i64>().map_err(|_| bad());
    let answer = match line.as_bytes().first() {
        Some(b'+') => Answer::Outcome(Outcome::Done(None)),
        Some(b':') => Answer::Outcome(Outcome::Done(Some(number(&line[1..])?))),
        Some(b'-') if line.starts_with("-UNCERTAIN") => Answer::Uncertain,
        Some(b'-') => Answer::Refused(line.clone()),
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
    received.drain(..used);
    Ok(Some(answer))
}
