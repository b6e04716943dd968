//! Connections: they are made, proved, read and closed. What came is given to the operation that waits for it.

use super::{AGAIN, BARRED, Engine, State, TOO_MANY_CONNECTIONS};
use crate::command::Kind;
use crate::connection::{Awaited, Connection, Phase};
use crate::interface::{Failure, LinkId, OpId, Out, text_of};
use crate::owners::MAP_BYTES_MAX;
use paritas_base::{Span, Time};
use paritas_wire::resp::{Reply, encode};

impl Engine {
    /// When a connection is closed, if nothing comes until then.
    pub(super) fn closed_at(&self, connection: &Connection) -> Option<Time> {
        let is_open = connection.phase == Phase::Open;
        let patience = if is_open {
            self.settings.deadline
        } else {
            self.settings.retry
        };
        Some(connection.silent_since()? + patience)
    }

    /// When a node counts as silent that was asked at this time.
    pub(super) fn silent_at(&self, asked_at: Time, link: LinkId) -> Time {
        let heard_at = self
            .connections
            .get(&link)
            .map_or(Time(0), |connection| connection.heard_at);
        asked_at.max(heard_at) + self.settings.retry
    }

    pub(super) fn on_connected(&mut self, now: Time, link: LinkId, out: &mut impl Out) {
        let Some(connection) = self.connections.get_mut(&link) else {
            return;
        };
        connection.heard_at = now;
        let Some((user, password)) = &self.settings.password else {
            return Self::open(connection, out);
        };
        let user = user.iter().map(String::as_bytes);
        let words: Vec<&[u8]> = core::iter::once(&b"AUTH"[..])
            .chain(user)
            .chain([password.as_bytes()])
            .collect();
        let mut bytes = Vec::new();
        encode::request(&mut bytes, &words);
        out.write(link, &bytes);
        connection.phase = Phase::Proving;
        connection.awaited.push_front(Awaited::Auth);
    }

    fn open(connection: &mut Connection, out: &mut impl Out) {
        connection.phase = Phase::Open;
        for bytes in core::mem::take(&mut connection.unsent) {
            out.write_owned(connection.link, bytes);
        }
    }

    /// Whether a command may be given to the node that commands go to: it may be dialled, or is.
    pub(super) fn may_go_home(&self, now: Time) -> bool {
        let address = &self.seeds[self.home];
        now >= self.dial_at || self.connections.values().any(|it| it.address == *address)
    }

    /// Commands go to the next seed from now on, if they go to this address. Whether they did.
    pub(super) fn leave_home(&mut self, address: &str) -> bool {
        let is_home = self.seeds[self.home] == address;
        if is_home {
            self.home = (self.home + 1) % self.seeds.len();
        }
        is_home
    }

    /// `refused`: the node has refused the password, with this text.
    pub(super) fn on_closed(&mut self, now: Time, link: LinkId, refused: Option<&str>, out: &mut impl Out) {
        let Some(connection) = self.connections.remove(&link) else {
            return;
        };
        let mut again_at = now;
        if self.leave_home(&connection.address) {
            again_at = now + AGAIN;
            self.dial_at = again_at;
        }
        if connection.phase != Phase::Open || !connection.has_answered {
            self.bar(now, &connection.address);
        }
        for awaited in connection.awaited {
            match awaited {
                Awaited::Auth | Awaited::Owners | Awaited::Name | Awaited::Nothing => {}
                Awaited::Command { op, attempt } => {
                    let Some(it) = self.ops.get_mut(&op).filter(|it| it.attempt == attempt) else {
                        continue;
                    };
                    it.is_sent &= connection.phase == Phase::Open;
                    it.moved_at = it.moved_at.max(connection.heard_at);
                    match (it.is_sent, refused) {
                        (true, _) => self.end(now, op, Err(Failure::Uncertain), out),
                        (false, Some(text)) => self.end(now, op, Err(Failure::Refused(text.to_owned())), out),
                        (false, None) => it.state = State::Waits(again_at),
                    }
                }
                Awaited::Units(units) => self.on_units(now, units, None, out),
                Awaited::Stage(asked) => {
                    let is_waited_for = self.ops.get(&asked.op).is_some_and(|it| it.attempt == asked.attempt);
                    match refused {
                        _ if !is_waited_for => {}
                        Some(text) => self.end(now, asked.op, Err(Failure::Refused(text.to_owned())), out),
                        None => self.write_by_node(now, asked.op, out),
                    }
                }
                Awaited::Put(put) => self.on_put(now, put, None, out),
            }
        }
        self.on_owner_closed(now, link, &connection.address, out);
    }

    pub(super) fn on_bytes(&mut self, now: Time, link: LinkId, bytes: &[u8], out: &mut impl Out) {
        let Some(connection) = self.connections.get_mut(&link) else {
            return;
        };
        connection.heard_at = now;
        // It is taken from the connection while its replies are read.
        let mut input = core::mem::take(&mut connection.input);
        let mut decoder = connection.decoder.clone();
        input.extend_from_slice(bytes);
        let mut used = 0;
        let (mut is_wrong, mut refused) = (false, None);
        while used < input.len() && !is_wrong {
            let rest = input.get(used..).unwrap_or_default();
            let (reply, length) = match decoder.decode(rest) {
                Ok(Some(found)) => found,
                Ok(None) => break,
                Err(_) => {
                    is_wrong = true;
                    break;
                }
            };
            used += length;
            let Some(connection) = self.connections.get_mut(&link) else {
                return;
            };
            let is_first = !core::mem::replace(&mut connection.has_answered, true);
            if is_first && matches!(&reply, Reply::Error(text) if text.starts_with(TOO_MANY_CONNECTIONS)) {
                // The node has not read anything, and closes the connection.
                connection.phase = Phase::Dialled;
                is_wrong = true;
                break;
            }
            let awaited = connection.awaited.pop_front();
            let is_refused = matches!((&awaited, &reply), (Some(Awaited::Auth), Reply::Error(_)));
            if is_first && !is_refused {
                self.barred.remove(&connection.address);
            }
            match awaited {
                Some(Awaited::Auth) => match &reply {
                    Reply::Error(text) => {
                        is_wrong = true;
                        refused = Some(text_of(text));
                    }
                    _ => Self::open(connection, out),
                },
                Some(Awaited::Command { op, attempt }) => self.on_reply(now, op, attempt, &reply, out),
                Some(Awaited::Units(units)) => {
                    let bytes = match &reply {
                        Reply::Bulk(bytes) => Some(*bytes),
                        _ => None,
                    };
                    if bytes.is_some() {
                        self.latency.add(now - units.at);
                    }
                    self.on_units(now, units, bytes, out);
                }
                Some(Awaited::Stage(asked)) => self.on_staged(now, asked, &reply, out),
                Some(Awaited::Put(put)) => self.on_put(now, put, Some(&reply), out),
                Some(Awaited::Owners) => self.owners.on_map(now, &reply),
                Some(Awaited::Name) => self.on_name(now, link, &reply),
                Some(Awaited::Nothing) => {}
                None => is_wrong = true,
            }
        }
        let awaited = self.connections.get(&link).and_then(|it| it.awaited.front());
        let bytes_max = match awaited {
            Some(Awaited::Owners) => MAP_BYTES_MAX as u64,
            _ => self.settings.reply_bytes_max,
        };
        let is_long = (input.len() - used) as u64 > bytes_max;
        if is_wrong || is_long {
            let long_for = awaited.cloned();
            out.close(link);
            self.on_closed(now, link, refused.as_deref(), out);
            match long_for.filter(|_| is_long) {
                Some(Awaited::Command { op, attempt }) => self.refuse_long_reply(now, op, attempt, out),
                Some(Awaited::Owners) => self.owners.rest(now),
                _ => {}
            }
            return;
        }
        if let Some(connection) = self.connections.get_mut(&link) {
            input.drain(..used);
            (connection.input, connection.decoder) = (input, decoder);
        }
    }

    /// The reply to an operation is longer than this client takes. Its connection is closed.
    fn refuse_long_reply(&mut self, now: Time, op: OpId, attempt: u32, out: &mut impl Out) {
        let it = self.ops.get(&op).filter(|it| it.attempt == attempt);
        if it.is_some_and(|it| it.command.kind == Kind::Get) {
            let bytes_max = self.settings.reply_bytes_max;
            let text = format!("the value is longer than reply_bytes_max, {bytes_max} B");
            self.end(now, op, Err(Failure::Refused(text)), out);
        }
    }

    pub(super) fn send(&mut self, now: Time, link: LinkId, words: &[Vec<u8>], awaited: Awaited, out: &mut impl Out) {
        let mut bytes = Vec::new();
        encode::request(&mut bytes, words);
        self.send_bytes(now, link, bytes, awaited, out);
    }

    /// Sends a whole command.
    pub(super) fn send_bytes(&mut self, now: Time, link: LinkId, bytes: Vec<u8>, awaited: Awaited, out: &mut impl Out) {
        let Some(connection) = self.connections.get_mut(&link) else {
            return;
        };
        connection.await_reply(now, awaited);
        match connection.phase {
            Phase::Open => out.write_owned(link, bytes),
            Phase::Dialled | Phase::Proving => connection.unsent.push(bytes),
        }
    }

    /// The connection to an address, which is made if there is none.
    pub(super) fn link_to(&mut self, now: Time, address: &str, out: &mut impl Out) -> LinkId {
        let mut connections = self.connections.values();
        if let Some(connection) = connections.find(|connection| connection.address == address) {
            return connection.link;
        }
        let link = LinkId(self.next_link);
        self.next_link += 1;
        self.connections.insert(link, Connection::new(now, link, address));
        out.dial(link, address);
        link
    }

    pub(super) fn is_barred(&self, now: Time, address: &str) -> bool {
        self.barred.get(address).is_some_and(|(until, _)| now < *until)
    }

    /// An address takes no connection, or answers nothing: nobody may route there. It is not asked for a while, and
    /// longer each time.
    pub(super) fn bar(&mut self, now: Time, address: &str) {
        self.barred.retain(|_, (until, wait)| now < *until + *wait);
        let wait = self
            .barred
            .get(address)
            .map_or(BARRED.0, |(_, wait)| Span(2 * wait.0).min(BARRED.1));
        self.barred.insert(address.to_owned(), (now + wait, wait));
    }
}
