//! How the replies of a gathered command's parts become one reply.

use super::walk::Find;
use super::{CURSOR_BITS, Gather, How, PartStep, Progress};
use crate::dialect::Refusal;
use crate::redis::parts;
use crate::redis::refusals::{is_error, is_uncertain};
use crate::redis::transactions::Watched;
use crate::router::client::Wait;
use crate::router::functions::Functions;
use crate::router::one_by_one::OneByOne;
use crate::router::replies::{Verdict, earliest};
use crate::router::stuck::Stuck;
use crate::router::transact::{self, Piece};
use paritas_protocol::{Context, Lists, Out};
use paritas_wire::resp::Args;
use std::sync::Arc;

impl Gather {
    /// The database of the connection once this EXEC is done, if it changes that.
    pub(crate) const fn selects(&self) -> Option<u8> {
        match self.how {
            How::Transaction { selects, .. } => selects,
            _ => None,
        }
    }

    /// What this node had when it asked for the libraries of functions, if this is such a question.
    pub(crate) const fn asks_functions(&self) -> Option<&Arc<Functions>> {
        match &self.how {
            How::Functions(known) => Some(known),
            _ => None,
        }
    }

    /// Counts the reply of part `at`, which has arrived, and returns its length in bytes. If the replies of an MGET
    /// together are too long for one reply, an error replaces this one.
    pub(crate) fn add(&mut self, at: usize) -> usize {
        let Some(part) = self.parts.get_mut(at) else { return 0 };
        // A part of a transaction may have written: its reply must not be replaced.
        let is_read = matches!(&part.wait, Wait::Forwarded(forwarded) if !forwarded.write);
        let is_bounded = match self.how {
            How::InOrder { .. } => true,
            How::Transaction { .. } => is_read,
            _ => false,
        };
        if is_bounded && self.reply_bytes + part.reply.len() > self.reply_bytes_max {
            part.reply = Vec::new();
            let bytes_max = self.reply_bytes_max;
            self.dialect
                .refuse(&mut part.reply, Refusal::ReplyTooLarge { bytes_max });
        }
        self.reply_bytes += part.reply.len();
        part.reply.len()
    }

    /// Bytes of the whole command, if it is kept. They are charged until the reply is released.
    pub(crate) fn command_bytes(&self) -> usize {
        match &self.how {
            How::InOrder { command, .. } => command.capacity(),
            How::Transaction { pieces, .. } => pieces.iter().map(Piece::held_bytes).sum(),
            How::Versions(keys) => keys.iter().map(Vec::capacity).sum(),
            _ => 0,
        }
    }

    /// The same command with its values read one by one, if it is an MGET.
    pub(crate) fn one_by_one(&self, args: &mut Args) -> Option<Box<OneByOne>> {
        match &self.how {
            How::InOrder { command, .. } => OneByOne::of_command(self.database, command, args),
            _ => None,
        }
    }

    /// The watched keys with their versions, if it is a WATCH; none if that was refused.
    pub(crate) fn versions(&self) -> Option<Vec<Watched>> {
        let How::Versions(keys) = &self.how else { return None };
        let reply = self.parts.first().map_or(&[][..], |part| part.reply.as_slice());
        let mut rest = match reply.first() {
            Some(b'*') => parts::head(reply).1,
            _ => return Some(Vec::new()),
        };
        let mut versions = Vec::with_capacity(keys.len());
        for key in keys {
            let (element, after) = rest.split_at(parts::element_bytes(rest));
            let version = parts::head(element).1.trim_ascii_end();
            versions.push(Watched {
                database: self.database,
                key: key.clone(),
                version: version.to_vec(),
            });
            rest = after;
        }
        Some(versions)
    }

    /// Bytes of memory that it occupies.
    pub(crate) fn held_bytes(&self) -> usize {
        let parts = self.parts.iter();
        let parts = parts.map(|part| size_of_val(part) + part.reply.capacity() + part.wait.held_bytes());
        let how = match &self.how {
            How::InOrder { part_of, command } => part_of.capacity() * size_of::<u32>() + command.capacity(),
            How::Walked(walk) => walk.held_bytes(),
            How::Renamed(rename) => rename.held_bytes(),
            How::Transaction { pieces, .. } => pieces.iter().map(Piece::held_bytes).sum(),
            How::Versions(keys) => keys.iter().map(Vec::capacity).sum(),
            _ => 0,
        };
        size_of::<Self>() + parts.sum::<usize>() + how
    }

    /// Checks which parts are complete, and returns the combined reply or the next steps.
    pub(crate) fn go_on<O: Out>(&mut self, cx: &Context<'_, O>, lists: &Lists, stuck: &mut Stuck) -> Progress {
        let mut progress = Progress::default();
        let mut whole = true;
        for (at, part) in self.parts.iter_mut().enumerate() {
            match stuck.judge(cx, lists, &part.wait) {
                Verdict::Hold => {
                    whole = false;
                    continue;
                }
                Verdict::Ready(until) => {
                    progress.deadline = earliest(progress.deadline, until);
                    // A step was valid while the command ran. It is not checked again later.
                    if until.is_none() || matches!(self.how, How::Walked(_) | How::Renamed(_)) {
                        part.wait = Wait::Ready;
                    }
                }
                Verdict::Instead(refusal) => {
                    part.reply.clear();
                    self.dialect.refuse(&mut part.reply, refusal);
                    part.wait = Wait::Ready;
                }
            }
            match &mut self.how {
                How::Walked(walk) => {
                    if let Some((stream, command)) = walk.take(at, &mut part.reply) {
                        progress.steps.push(PartStep {
                            part: at,
                            spec: walk.find.spec(),
                            database: self.database,
                            stream,
                            command,
                        });
                    }
                }
                How::Renamed(rename) => {
                    if let Some(next) = rename.take(self.dialect, &core::mem::take(&mut part.reply)) {
                        progress.steps.push(PartStep {
                            part: at,
                            spec: next.spec,
                            database: next.database,
                            stream: cx.shared.slots.stream_of_key(next.database, &next.key),
                            command: next.command,
                        });
                    }
                }
                _ => {}
            }
        }
        let kept_bytes = match &self.how {
            How::Walked(walk) => Some(walk.found.len()),
            How::Renamed(_) => Some(0),
            _ => None,
        };
        if let Some(kept_bytes) = kept_bytes {
            let held_bytes = kept_bytes + self.parts.iter().map(|part| part.reply.len()).sum::<usize>();
            progress.freed_bytes = self.reply_bytes.saturating_sub(held_bytes);
            self.reply_bytes -= progress.freed_bytes;
        }
        let mut reply = Vec::new();
        let errors = || self.parts.iter().map(|p| &p.reply).filter(|reply| is_error(reply));
        // If the result of one part is unknown, the client must learn that. Other errors only say that a part was
        // refused.
        let uncertain = errors().find(|reply| is_uncertain(reply));
        if let How::Transaction { .. } = self.how {
            // Each command has a reply of its own.
        } else if let Some(error) = uncertain.or_else(|| errors().next()) {
            reply.extend_from_slice(error);
        } else if let How::Walked(walk) = &self.how
            && let Some(refusal) = walk.refusal(cx)
        {
            self.dialect.refuse(&mut reply, refusal);
        }
        let enough = match &self.how {
            How::Walked(walk) => matches!(walk.find, Find::UpTo(most) if walk.count >= most),
            _ => {
                progress.deadline = progress.deadline.filter(|_| whole);
                false
            }
        };
        if enough || !reply.is_empty() {
            progress.steps.clear();
        }
        if whole && progress.steps.is_empty() {
            if reply.is_empty() {
                self.combine(&mut reply);
            }
            progress.reply = Some(reply);
        }
        progress
    }

    /// Appends the reply that combines the replies of all parts.
    pub(super) fn combine(&self, out: &mut Vec<u8>) {
        let replies = || self.parts.iter().map(|part| part.reply.as_slice());
        match &self.how {
            How::AllOk => self.dialect.done(out),
            How::AllOne => self.dialect.number(out, 1),
            How::Sum => self
                .dialect
                .number(out, replies().map(|reply| parts::head(reply).0).sum()),
            How::Walked(walk) => walk.combine(self.dialect, out),
            How::Transaction { pieces, .. } => transact::combine(pieces, replies(), out),
            How::Versions(_) => self.dialect.done(out),
            How::Renamed(rename) => out.extend_from_slice(rename.reply()),
            How::Only | How::Functions(_) => out.extend_from_slice(replies().next().unwrap_or_default()),
            How::Any { pick } => {
                let some: Vec<&[u8]> = replies().filter(|reply| !parts::is_nothing(reply)).collect();
                match some.get(*pick as usize % some.len().max(1)) {
                    Some(reply) => out.extend_from_slice(reply),
                    None => self.dialect.nothing(out),
                }
            }
            How::InOrder { part_of, .. } => {
                self.dialect.values(out, part_of.len());
                let mut rests: Vec<&[u8]> = replies().map(|reply| parts::head(reply).1).collect();
                for part in part_of {
                    if let Some(rest) = rests.get_mut(*part as usize) {
                        let (element, after) = rest.split_at(parts::element_bytes(rest));
                        out.extend_from_slice(element);
                        *rest = after;
                    }
                }
            }
            How::Cursor { stream, next } => {
                let (own, keys) = parts::scanned(replies().next().unwrap_or_default());
                let cursor = match (own, next) {
                    (0, None) => 0,
                    (0, Some(next)) => (*next as u64) << CURSOR_BITS,
                    (own, _) => (*stream as u64) << CURSOR_BITS | own,
                };
                parts::append_scanned(out, cursor, keys);
            }
        }
    }
}
