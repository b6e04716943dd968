//! The driver's side of the interface: the destination of a machine's bytes and requests.

use crate::client::Clients;
use crate::clock;
use crate::disk::Disk;
use crate::door::Door;
use crate::link::Links;
use crate::mailbox::AgentPort;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use paritas_base::{ConnId, NodeId, Time};
use paritas_paritylog::Io;
use paritas_protocol::{Channel, FrameBuf, HaltReason, LinkId, Out, Proposal, ReplyBuf};
use std::collections::VecDeque;
use std::io;

pub(crate) const WAKER: Token = Token(0);
pub(crate) const ANY: Token = Token(1);
pub(crate) const CLUSTER: Token = Token(2);
pub(crate) const PEER: Token = Token(3);
pub(crate) const MEMCACHED: Token = Token(4);

/// The connection that a token stands for. Ids start far above the fixed tokens.
pub(crate) enum Named {
    Client(u64),
    Link(u64),
}

pub(crate) fn named(token: Token) -> Named {
    let id = token.0 as u64 >> 1;
    if token.0 & 1 == 0 {
        Named::Client(id)
    } else {
        Named::Link(id)
    }
}

/// Watches a stream edge-triggered and for both directions. It is registered once and never changed.
pub(crate) fn watch(registry: &Registry, stream: &mut TcpStream, token: Token) -> io::Result<()> {
    registry.register(stream, token, Interest::READABLE | Interest::WRITABLE)
}

pub(crate) fn client_token(id: u64) -> Token {
    Token((id << 1) as usize)
}

pub(crate) fn link_token(id: u64) -> Token {
    Token((id << 1 | 1) as usize)
}

/// The end of a connection. The machine may have caused it in this turn, so it is told in the next one.
#[derive(Debug)]
pub(crate) enum Ended {
    Link(LinkId),
    Dial(NodeId, Channel),
    Client(ConnId),
}

#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) registry: Registry,
    pub(crate) clients: Clients,
    pub(crate) links: Links,
    pub(crate) agent_port: AgentPort,
    /// What this process says of itself to peers.
    pub(crate) door: Door,
    pub(crate) ended: VecDeque<Ended>,
    /// The disk of a log node; `None` on other nodes.
    pub(crate) disk: Option<Disk>,
}

impl Driver {
    pub(crate) fn end_link(&mut self, id: u64) {
        if let Some(link) = self.links.remove(id) {
            // The machine knows nothing of a connection that was accepted and did not prove who it is.
            self.ended.extend(match link.dialed {
                _ if link.up => Some(Ended::Link(LinkId(id))),
                Some((node, channel)) => Some(Ended::Dial(node, channel)),
                None => None,
            });
        }
    }

    pub(crate) fn end_client(&mut self, id: u64) {
        if self.clients.remove(id) {
            self.ended.push_back(Ended::Client(ConnId(id)));
        }
    }

    /// Ends a client for the machine. The socket stays until the client has closed it too.
    pub(crate) fn leave_client(&mut self, id: u64, now: Time) {
        self.clients.leave(id, now);
        self.ended.push_back(Ended::Client(ConnId(id)));
    }

    fn try_dial(&mut self, node: NodeId, channel: Channel, now: Time) -> Option<u64> {
        let address = self.links.address(node)?;
        let stream = TcpStream::connect(address).ok()?;
        let registry = &self.registry;
        self.links
            .add(stream, Some(address), Some((node, channel)), now, |stream, id| {
                watch(registry, stream, link_token(id))
            })
    }
}

impl Out for Driver {
    fn peer(&mut self, node: NodeId, channel: Channel) -> Option<&mut FrameBuf> {
        let id = self.links.bound(node, channel)?;
        self.links.touch(id)
    }

    fn link(&mut self, link: LinkId) -> Option<&mut FrameBuf> {
        self.links.touch(link.0)
    }

    fn dial(&mut self, node: NodeId, channel: Channel) {
        if self.links.is_dialing(node, channel) {
            return;
        }
        if self.try_dial(node, channel, clock::mono()).is_none() {
            self.ended.push_back(Ended::Dial(node, channel));
        }
    }

    fn bind(&mut self, link: LinkId, node: NodeId, channel: Channel) {
        if let Some(before) = self.links.bound(node, channel)
            && before != link.0
        {
            self.end_link(before);
        }
        self.links.bind(link.0, node, channel);
    }

    fn close(&mut self, link: LinkId) {
        self.end_link(link.0);
    }

    fn refuse(&mut self, link: LinkId, why: &'static str) {
        let address = self.links.find(link.0).and_then(|link| link.address);
        self.door.refusals.note(address, &why);
        self.end_link(link.0);
    }

    fn client(&mut self, conn: ConnId) -> Option<&mut ReplyBuf> {
        self.clients.touch(conn.0)
    }

    fn propose(&mut self, proposal: Proposal) {
        self.agent_port.propose(proposal);
    }

    fn disk(&mut self, io: Io) {
        // A machine that has a log also has a disk.
        if let Some(disk) = &self.disk {
            disk.submit(io);
        }
    }

    fn halt(&mut self, reason: HaltReason) {
        tracing::error!(
            "HALTED a role: going on could spread a wrong state: {}. Please report this. The cluster rebuilds from \
             the other nodes what this role held",
            reason.0
        );
    }
}
