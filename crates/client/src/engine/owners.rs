//! Commands go to the owners of their keys: which connection is taken, what teaches an owner, and what ends its use.

use super::{Engine, MOVES_MAX, State, is_moved};
use crate::command::Kind;
use crate::connection::Awaited;
use crate::interface::{LinkId, OpId, Out};
use crate::owners::moved_to;
use paritas_base::Time;
use paritas_wire::command::slot;
use paritas_wire::resp::Reply;

impl Engine {
    /// The address of the owner of a key, if it is known and takes connections.
    pub(super) fn owner_of(&self, now: Time, key: &[u8]) -> Option<&str> {
        let owner = self.owners.of(slot(key));
        owner.filter(|address| !self.is_barred(now, address))
    }

    /// The connection to the owner of the key of a GET or SET. `None` until the node has told that it is the one that
    /// home means: so an owner that cannot be reached costs no command any time, and none goes to another cluster at
    /// that address.
    pub(super) fn owner_link(&mut self, now: Time, id: OpId, out: &mut impl Out) -> Option<LinkId> {
        let op = self.ops.get(&id)?;
        if op.command.kind == Kind::Other || op.moves >= MOVES_MAX {
            return None;
        }
        let address = self.owner_of(now, op.command.key.as_ref()?)?.to_owned();
        let link = self.link_to(now, &address, out);
        let connection = self.connections.get(&link)?;
        if !connection.is_known {
            if !connection.awaited.iter().any(|it| matches!(it, Awaited::Name)) {
                let words = ["CLUSTER", "MYID"].map(|word| word.as_bytes().to_vec());
                self.send(now, link, &words, Awaited::Name, out);
            }
            return None;
        }
        if connection
            .silent_since()
            .is_some_and(|since| now >= since + self.settings.retry)
        {
            self.leave_owner(now, &address);
            return None;
        }
        Some(link)
    }

    /// Asks a node for the owners of all slots, if it is time.
    pub(super) fn ask_for_owners(&mut self, now: Time, link: LinkId, out: &mut impl Out) {
        if self.owners.may_ask(now) {
            let words = ["CLUSTER", "SLOTS"].map(|word| word.as_bytes().to_vec());
            self.send(now, link, &words, Awaited::Owners, out);
        }
    }

    /// A node has told its name.
    pub(super) fn on_name(&mut self, now: Time, link: LinkId, reply: &Reply<'_>) {
        let Some(connection) = self.connections.get_mut(&link) else {
            return;
        };
        let address = connection.address.clone();
        connection.is_known = reply.bytes().is_some_and(|name| self.owners.is_named(&address, name));
        if !connection.is_known {
            self.leave_owner(now, &address);
        }
    }

    /// A node has refused a command with this text. It may be that another one owns the key.
    pub(super) fn on_moved(&mut self, link: LinkId, key: &[u8], text: &[u8]) {
        if let Some(connection) = self.connections.get(&link).filter(|_| is_moved(text)) {
            self.owners.on_moved(slot(key), &connection.address, moved_to(text));
        }
    }

    /// An owner is silent, or another node than home means. It is not asked for a while, and longer each time.
    fn leave_owner(&mut self, now: Time, address: &str) {
        if self.owners.forget(address) {
            self.bar(now, address);
        }
    }

    /// A node is silent: what is sent from now on does not go there.
    pub(super) fn leave_silent(&mut self, now: Time, link: LinkId) {
        let asked = self.connections.get(&link);
        let address = asked.map(|it| it.address.clone()).unwrap_or_default();
        self.leave_home(&address);
        self.leave_owner(now, &address);
    }

    /// Another node may have what this one does not answer: all that it was asked to read.
    pub(super) fn ask_elsewhere(&mut self, now: Time, link: LinkId, out: &mut impl Out) {
        self.leave_silent(now, link);
        let heard_at = self.connections.get(&link).map_or(Time(0), |it| it.heard_at);
        let is_asked = |state: &State| matches!(state, State::Asked(_, asked) if *asked == link);
        let reads = self.ops.iter_mut().filter(|(_, op)| op.command.kind == Kind::Get);
        let reads = reads.filter(|(_, op)| is_asked(&op.state)).map(|(id, op)| {
            (op.state, op.moved_at) = (State::Waits(now), op.moved_at.max(heard_at));
            *id
        });
        for id in reads.collect::<Vec<OpId>>() {
            self.go_on(now, id, out);
        }
    }
}

#[cfg(test)]
mod tests;
