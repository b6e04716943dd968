//! Values that are encoded here: their owner is asked where the parts are to be, the holders get them, and the owner
//! runs the command (P14.18). Whatever fails before it does, a node encodes the value: the command is sent with it.

use super::{AGAIN_WITHOUT, Engine, MOVES_MAX, State};
use crate::choice::Way;
use crate::connection::{AskedStage, Awaited, SentPut};
use crate::interface::{LinkId, OpId, Out};
use crate::owners::moved_to;
use crate::staged::Staged;
use crate::write::Write;
use paritas_base::Time;
use paritas_wire::resp::{Reply, encode};

/// Commands with units that one holder has not answered, of all values.
const PUTS_MAX: usize = 8;

/// A value on its way to its holders.
#[derive(Debug)]
pub(super) struct Writing {
    write: Write,
    /// The connection on which its number is known.
    owner: LinkId,
    /// The connections to its holders.
    links: Vec<LinkId>,
}

impl Engine {
    /// Asks for the place of a value: its owner if that is known, else the node that commands go to.
    pub(super) fn stage(&mut self, now: Time, id: OpId, out: &mut impl Out) {
        let Some(op) = self.ops.get(&id) else { return };
        let owner = self.owner_of(now, op.command.written_key()).map(str::to_owned);
        if owner.is_none() && !self.may_go_home(now) {
            return;
        }
        let is_home = owner.is_none();
        let address = owner.unwrap_or_else(|| self.seeds[self.home].clone());
        self.stage_at(now, id, &address, 0, out);
        if is_home {
            let link = self.link_to(now, &address, out);
            self.ask_for_owners(now, link, out);
        }
    }

    fn stage_at(&mut self, now: Time, id: OpId, address: &str, moves: u32, out: &mut impl Out) {
        let link = self.link_to(now, address, out);
        let Some(op) = self.ops.get_mut(&id) else { return };
        op.attempt += 1;
        (op.state, op.moved_at) = (State::Stages(now, link, moves), now);
        if op.written_at.is_none() {
            op.written_at = Some(out.clock());
        }
        let bytes = op.command.value().map_or(0, <[u8]>::len).to_string();
        let words = [b"PARITAS.STAGE", op.command.written_key(), bytes.as_bytes()];
        let mut bytes = Vec::new();
        encode::request(&mut bytes, &words);
        let attempt = op.attempt;
        let asked = AskedStage { op: id, attempt, link };
        self.send_bytes(now, link, bytes, Awaited::Stage(asked), out);
    }

    pub(super) fn on_staged(&mut self, now: Time, asked: AskedStage, reply: &Reply<'_>, out: &mut impl Out) {
        let op = self.ops.get(&asked.op).filter(|op| op.attempt == asked.attempt);
        let current = op.and_then(|op| match op.state {
            State::Stages(_, _, moves) => Some((moves, op.command.value().map_or(0, <[u8]>::len) as u64)),
            _ => None,
        });
        if let Reply::Array(items) = reply {
            let staged = current.and_then(|(_, bytes)| Staged::of_reply(items, bytes));
            if let (None, Some(number)) = (&staged, Staged::number_of(items)) {
                self.unstage(now, asked.link, number, out);
            }
            if let (Some(staged), Some(op)) = (staged, self.ops.get_mut(&asked.op)) {
                let writing = Writing {
                    write: Write::new(staged),
                    owner: asked.link,
                    links: Vec::new(),
                };
                (op.state, op.moved_at) = (State::Writes(Box::new(writing)), now);
                return self.write_on(now, asked.op, out);
            }
        }
        let Some((moves, _)) = current else { return };
        if let Reply::Error(text) = reply {
            let key = self.ops.get(&asked.op).map(|op| op.command.written_key().to_vec());
            self.on_moved(asked.link, &key.unwrap_or_default(), text);
            let to = moved_to(text).filter(|to| moves < MOVES_MAX && !self.is_barred(now, to));
            if let Some(to) = to {
                return self.stage_at(now, asked.op, to, moves + 1, out);
            }
            if is_not_offered(text) {
                self.stages_at = now + AGAIN_WITHOUT;
            }
        }
        self.write_by_node(now, asked.op, out);
    }

    /// Sends what may be sent of a value. When its holders have all of it, the owner is to run the command.
    fn write_on(&mut self, now: Time, id: OpId, out: &mut impl Out) {
        loop {
            let Some(State::Writes(writing)) = self.ops.get(&id).map(|op| &op.state) else {
                return;
            };
            if writing.write.is_done() {
                return self.commit(now, id, out);
            }
            if !writing.write.may_step() {
                return;
            }
            let holders: Vec<String> = writing.write.holders().map(str::to_owned).collect();
            if holders.iter().any(|holder| self.is_barred(now, holder)) {
                return self.write_by_node(now, id, out);
            }
            let links: Vec<LinkId> = holders.iter().map(|holder| self.link_to(now, holder, out)).collect();
            let puts = |link: &LinkId| self.connections.get(link).map_or(0, |connection| connection.puts());
            let has_room = links.iter().all(|link| puts(link) < PUTS_MAX);
            let Some(op) = self.ops.get_mut(&id) else { return };
            let State::Writes(writing) = &mut op.state else { return };
            writing.links.clone_from(&links);
            if !has_room {
                return;
            }
            let before = out.clock();
            let puts = writing.write.step(op.command.value().unwrap_or_default());
            op.coding = op.coding + (out.clock() - before);
            let attempt = op.attempt;
            for (put, link) in puts.into_iter().zip(links) {
                let sent = SentPut {
                    op: id,
                    attempt,
                    part: put.part,
                    end: put.end,
                    bytes: put.bytes.len(),
                };
                self.send_bytes(now, link, put.bytes, Awaited::Put(sent), out);
            }
        }
    }

    /// `reply`: none if the connection has ended.
    pub(super) fn on_put(&mut self, now: Time, put: SentPut, reply: Option<&Reply<'_>>, out: &mut impl Out) {
        let op = self.ops.get_mut(&put.op).filter(|op| op.attempt == put.attempt);
        if let Some(op) = op
            && let State::Writes(writing) = &mut op.state
        {
            let is_taken = match reply {
                Some(Reply::Integer(units)) => writing.write.on_taken(put.part, *units, put.end),
                _ => false,
            };
            op.moved_at = now;
            if is_taken {
                self.stats.put_bytes += put.bytes as u64;
            } else {
                self.write_by_node(now, put.op, out);
            }
        }
        self.write_all_on(now, out);
    }

    /// A holder has room for further units, or is another connection.
    pub(super) fn write_all_on(&mut self, now: Time, out: &mut impl Out) {
        let writes = self.ops.iter().filter(|(_, op)| matches!(op.state, State::Writes(_)));
        let writes: Vec<OpId> = writes.map(|(id, _)| *id).collect();
        for id in writes {
            self.write_on(now, id, out);
        }
    }

    /// All holders have their parts: the command, without its value.
    fn commit(&mut self, now: Time, id: OpId, out: &mut impl Out) {
        let Some(op) = self.ops.get_mut(&id) else { return };
        let (State::Writes(writing), Some(at)) = (&op.state, op.command.value_at()) else {
            return;
        };
        let Staged { number, place } = writing.write.staged();
        let (number, checks) = (number.to_string(), writing.write.checks());
        let tail = op.command.args[at]
            .get(place.record.body_bytes as usize..)
            .unwrap_or_default();
        let mut words: Vec<&[u8]> = vec![b"PARITAS.COMMIT", number.as_bytes(), &checks, tail];
        let first = words.len();
        words.extend(op.command.args.iter().map(Vec::as_slice));
        words[first + at] = b"";
        let mut bytes = Vec::new();
        encode::request(&mut bytes, &words);
        let (link, attempt) = (writing.owner, op.attempt);
        op.committed = Some((link, writing.write.staged().number));
        (op.state, op.moved_at, op.is_sent) = (State::Asked(now, link), now, true);
        self.send_bytes(now, link, bytes, Awaited::Command { op: id, attempt }, out);
    }

    /// A value cannot be written in parts, or not by this client, and nothing has happened: a node gets all of it.
    pub(super) fn write_by_node(&mut self, now: Time, id: OpId, out: &mut impl Out) {
        let Some(op) = self.ops.get_mut(&id) else { return };
        let state = core::mem::replace(&mut op.state, State::Waits(now));
        let committed = op.committed.take();
        // What is still answered is of no use.
        op.attempt += 1;
        (op.way, op.is_by_node, op.is_sent, op.moved_at) = (Way::Server, true, false, now);
        let bytes = op.command.value().map_or(0, <[u8]>::len) as u64;
        self.stats.encoded_by_node += 1;
        if now >= self.stages_at {
            self.writes.on_failure(now, bytes);
        }
        let staged = match &state {
            State::Writes(writing) => Some((writing.owner, writing.write.staged().number)),
            // It may have been refused before its owner has looked at it.
            _ => committed,
        };
        if let Some((owner, number)) = staged {
            self.unstage(now, owner, number, out);
        }
        self.go_on(now, id, out);
    }

    fn unstage(&mut self, now: Time, link: LinkId, number: i64, out: &mut impl Out) {
        let words = [b"PARITAS.UNSTAGE".to_vec(), number.to_string().into_bytes()];
        self.send(now, link, &words, Awaited::Nothing, out);
    }

    /// The connection to an owner has ended: what was staged there is given up.
    pub(super) fn on_owner_closed(&mut self, now: Time, link: LinkId, address: &str, out: &mut impl Out) {
        self.owners.forget(address);
        let is_staged = |state: &State| matches!(state, State::Writes(writing) if writing.owner == link);
        let staged = self.ops.iter().filter(|(_, op)| is_staged(&op.state));
        let staged: Vec<OpId> = staged.map(|(id, _)| *id).collect();
        for id in staged {
            self.write_by_node(now, id, out);
        }
        self.write_all_on(now, out);
    }

    /// When one of the holders of a value counts as silent.
    pub(super) fn holder_silent_at(&self, writing: &Writing) -> Time {
        let connections = writing.links.iter().filter_map(|link| self.connections.get(link));
        let silent_since = connections.filter_map(|connection| connection.silent_since()).min();
        silent_since.map_or(Time(u64::MAX), |since| since + self.settings.retry)
    }
}

/// Whether a node does not know PARITAS.STAGE, or it is switched off there: it refuses it for every key.
fn is_not_offered(text: &[u8]) -> bool {
    text.starts_with(b"ERR unknown command") || text.starts_with(b"ERR client_coding")
}

#[cfg(test)]
mod tests;
