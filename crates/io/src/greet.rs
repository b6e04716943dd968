//! Links whose ends do not know each other yet: new ones, their greetings, and the places of those that do not prove
//! who they are. The machine hears of a link once both ends have proven it.

use crate::door::{Late, gives_way, has_room, is_own_machine};
use crate::driver::{link_token, watch};
use crate::intake::note_failure;
use crate::link::GreetingState;
use crate::shard::{Machine, Shard};
use crate::{clock, silence::end_when_silent};
use mio::net::TcpStream;
use paritas_base::{Incarnation, NodeId};
use paritas_protocol::{Channel, Event, LinkId};
use paritas_wire::greeting::{Called, Caller, Greeting, Process, Reason, Refused, Role, split};
use std::io::ErrorKind;

/// The number of a channel in a greeting.
fn number(channel: Channel) -> u8 {
    match channel {
        Channel::Main => 0,
        Channel::Bulk => 1,
    }
}

/// What a step of the greeting gives: bytes to send, and the other end once it has proven who it is.
type Step = (Vec<u8>, GreetingState, Option<Process>);

impl<M: Machine> Shard<M> {
    /// Whether one more peer may be accepted. If not, the next sweep looks again, or the next link that is proven.
    pub(crate) fn has_room(&mut self) -> bool {
        let has_room = has_room(&self.driver.links.unproven(), clock::mono());
        self.arrivals[2] &= has_room;
        has_room
    }

    pub(crate) fn admit_link(&mut self, stream: TcpStream) {
        // A connection that was closed in the meantime has no address.
        let (Ok(address), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else {
            return;
        };
        let unproven = self.driver.links.unproven();
        let sockets = self.driver.links.len() + self.driver.clients.len();
        let leaves = if sockets >= self.limits.sockets_max {
            let oldest = unproven.iter().min_by_key(|link| link.since).map(|link| link.key);
            if oldest.is_none() {
                self.refused_count += 1;
                return;
            }
            oldest
        } else {
            gives_way(&unproven, address.ip(), is_own_machine(address, local))
        };
        if let Some(leaves) = leaves {
            let of = self.driver.links.find(leaves).and_then(|link| link.address);
            self.driver.door.refusals.note(of, &Late::Crowded);
            self.driver.end_link(leaves);
        }
        note_failure(end_when_silent(&stream, self.limits.link_silence));
        let registry = &self.driver.registry;
        let now = clock::mono();
        let id = self.driver.links.add(stream, Some(address), None, now, |stream, id| {
            watch(registry, stream, link_token(id))
        });
        if let Some(id) = id {
            self.driver.links.enqueue(id);
        }
    }

    /// Calls the peer once a dial has succeeded. Returns false while there is no connection.
    pub(crate) fn is_connected(&mut self, id: u64) -> bool {
        let Some(link) = self.driver.links.find(id) else {
            return false;
        };
        if link.is_connected() {
            return true;
        }
        if let Ok(Some(_)) | Err(_) = link.stream.take_error() {
            self.driver.end_link(id);
            return false;
        }
        match link.stream.peer_addr() {
            Ok(_) => {
                let _ = link.stream.set_nodelay(true);
                note_failure(end_when_silent(&link.stream, self.limits.link_silence));
                link.readable = true;
                let dialed = link.dialed;
                self.call(id, dialed);
                true
            }
            Err(error) if error.kind() == ErrorKind::NotConnected => false,
            Err(_) => {
                self.driver.end_link(id);
                false
            }
        }
    }

    fn call(&mut self, id: u64, dialed: Option<(NodeId, Channel)>) {
        let Some((node, channel)) = dialed else { return };
        let to = Process {
            node,
            incarnation: self.driver.links.incarnation(node).unwrap_or(Incarnation(0)),
        };
        let door = &self.driver.door;
        let Ok(greeting) = door.greeting(to, number(channel), id) else {
            return self.driver.end_link(id);
        };
        let (caller, call) = Caller::new(greeting, &door.secrets.now());
        self.step(id, (call, GreetingState::Calling(Box::new(caller)), None));
    }

    /// Takes what the input has of the greeting. Returns the bytes used, and whether the greeting is done.
    pub(crate) fn greet(&mut self, id: u64, input: &[u8]) -> (usize, bool) {
        let mut used = 0;
        loop {
            let Some(link) = self.driver.links.find(id) else {
                return (used, false);
            };
            if matches!(link.greeting, GreetingState::Done) {
                return (used, true);
            }
            let rest = &input[used..];
            let step = match split(rest) {
                Ok(None) => return (used, false),
                Ok(Some(length)) => {
                    used += length;
                    self.hear(id, &rest[..length])
                }
                Err(bad) => Err(Reason::from(bad).into()),
            };
            match step {
                Ok(step) => self.step(id, step),
                Err(refused) => self.turn_away(id, refused),
            }
        }
    }

    fn hear(&mut self, id: u64, packet: &[u8]) -> Result<Step, Refused> {
        let door = &self.driver.door;
        let Some(link) = self.driver.links.find(id) else {
            return Err(Reason::Process.into());
        };
        let dialed = link.dialed;
        match core::mem::replace(&mut link.greeting, GreetingState::Listening) {
            GreetingState::Calling(caller) => {
                let (theirs, proof) = caller.on_answer(packet)?;
                let called = dialed.map(|(node, _)| node);
                let expected = called.and_then(|node| self.driver.links.incarnation(node));
                let is_it = called == Some(theirs.from.node)
                    && expected.is_none_or(|incarnation| incarnation == theirs.from.incarnation);
                if !is_it || theirs.role != Role::Node {
                    return Err(Reason::Process.into());
                }
                Ok((proof, GreetingState::Done, Some(theirs.from)))
            }
            GreetingState::Listening => {
                // The system gives no random numbers.
                let own = door.greeting(Process::NONE, 0, 0).map_err(|_| Reason::Process)?;
                let me = door.from;
                let check = |greeting: &Greeting| match greeting.role {
                    Role::Node if greeting.channel > 1 => Err(Reason::Role),
                    Role::Node if greeting.to.node != me.node => Err(Reason::Process),
                    Role::Node if ![Incarnation(0), me.incarnation].contains(&greeting.to.incarnation) => {
                        Err(Reason::Process)
                    }
                    Role::Node => Ok(()),
                    Role::Supervisor | Role::Operator | Role::Coordinator => Err(Reason::Role),
                };
                let (called, answer) = Called::on_call(packet, &door.secrets.now(), own, check)?;
                Ok((answer, GreetingState::Answered(Box::new(called)), None))
            }
            GreetingState::Answered(called) => {
                let greeting = called.on_proof(packet)?;
                Ok((Vec::new(), GreetingState::Done, Some(greeting.from)))
            }
            GreetingState::Dialing | GreetingState::Done => Err(Reason::Process.into()),
        }
    }

    fn step(&mut self, id: u64, (sent, state, proven): Step) {
        if let Some(out) = self.driver.links.touch(id) {
            out.bytes.extend_from_slice(&sent);
        }
        let Some(link) = self.driver.links.find(id) else { return };
        link.greeting = state;
        let dialed = link.dialed;
        if let Some(Process { node, incarnation }) = proven {
            link.up = true;
            // Its place is free for one that waits.
            self.arrivals[2] = true;
            self.tell(Event::LinkUp {
                link: LinkId(id),
                from: (node, incarnation),
                dialed,
            });
        }
    }

    /// Ends a link whose ends do not know each other. The other end is told why, if the socket takes it at once.
    fn turn_away(&mut self, id: u64, Refused { reason, packet }: Refused) {
        if let Some(link) = self.driver.links.find(id) {
            let address = link.address;
            link.out.bytes.extend(packet.unwrap_or_default());
            let _ = link.flush(None);
            self.driver.door.refusals.note(address, &reason);
            self.driver.end_link(id);
        }
    }
}
