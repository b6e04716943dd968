//! CLIENT REPLY, CLIENT PAUSE and CLIENT TRACKING: their arguments, and what a client has chosen by them.

use crate::memcached::Shown;
use crate::redis::connection::is_word;
use crate::router::client::Client;
use paritas_base::Span;
use paritas_wire::resp::{ArgList, Proto, encode, errors, parse_integer};

/// Which replies a client gets (CLIENT REPLY).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Replies {
    #[default]
    On,
    Off,
    /// All, but not that to the next command.
    SkipNext,
    /// Not that to the command that runs now.
    Skip,
}

impl Client {
    /// CLIENT REPLY ON | OFF | SKIP. Only ON has a reply.
    pub(crate) fn choose_replies(&mut self, out: &mut Vec<u8>, args: ArgList<'_>) {
        let is = |word| is_word(args, 2, word);
        if is("on") {
            self.set_replies(Replies::On);
            encode::ok(out);
        } else if is("off") {
            self.set_replies(Replies::Off);
        } else if !is("skip") {
            encode::error(out, errors::SYNTAX);
        } else if self.replies != Replies::Off {
            self.replies = Replies::SkipNext;
        }
    }

    /// Begins with the next reply that is written.
    pub(crate) fn set_replies(&mut self, replies: Replies) {
        self.replies = replies;
        self.dialog.shown = match replies {
            Replies::On | Replies::SkipNext => Shown::All,
            Replies::Off | Replies::Skip => Shown::Nothing,
        };
    }

    /// A command of it has run.
    pub(crate) fn end_command(&mut self) {
        self.stalled_since = None;
        match self.replies {
            Replies::On | Replies::Off => {}
            Replies::SkipNext => self.set_replies(Replies::Skip),
            Replies::Skip => self.set_replies(Replies::On),
        }
    }
}

/// CLIENT PAUSE ms [WRITE | ALL]: for how long, and whether commands that only read are held too.
///
/// # Errors
/// The text of the error for the client.
pub(crate) fn pause(args: ArgList<'_>, wall_ms: u64) -> Result<(Span, bool), String> {
    if args.len() > 4 {
        return Err(errors::unknown_or_wrong("PAUSE", "CLIENT"));
    }
    let is_all = !is_word(args, 3, "write");
    if args.len() == 4 && is_all && !is_word(args, 3, "all") {
        return Err("ERR CLIENT PAUSE mode must be WRITE or ALL".to_owned());
    }
    let ms = parse_integer(args.arg(2)).ok_or("ERR timeout is not an integer or out of range")?;
    let ms = u64::try_from(ms).map_err(|_| "ERR timeout is negative")?;
    if ms > i64::MAX as u64 - wall_ms {
        return Err("ERR timeout is out of range".to_owned());
    }
    Ok((Span(ms.saturating_mul(1_000_000)), is_all))
}

/// CLIENT TRACKING ON | OFF [option …].
pub(crate) fn tracking(out: &mut Vec<u8>, args: ArgList<'_>) {
    let mut at = 3;
    while at < args.len() {
        let has_value = ["redirect", "prefix"].iter().any(|word| is_word(args, at, word));
        let is_known = has_value
            || ["bcast", "optin", "optout", "noloop"]
                .iter()
                .any(|word| is_word(args, at, word));
        at += 1 + usize::from(has_value);
        if !is_known || at > args.len() {
            return encode::error(out, errors::SYNTAX);
        }
    }
    if is_word(args, 2, "off") {
        encode::ok(out);
    } else if is_word(args, 2, "on") {
        encode::error(out, errors::NO_TRACKING);
    } else {
        encode::error(out, errors::SYNTAX);
    }
}

/// Reply of CLIENT TRACKINGINFO.
pub(crate) fn tracking_info(out: &mut Vec<u8>, proto: Proto) {
    encode::map_header(out, proto, 3);
    encode::bulk(out, b"flags");
    encode::set_header(out, proto, 1);
    encode::bulk(out, b"off");
    encode::bulk(out, b"redirect");
    encode::integer(out, -1);
    encode::bulk(out, b"prefixes");
    encode::array_header(out, 0);
}
