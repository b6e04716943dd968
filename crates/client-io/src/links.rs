//! `Links`: the sockets, as the engine's `Out`.

use mio::event::Event;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use paritas_base::Time;
use paritas_client::{LinkId, OpId, Out, Outcome};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Instant;

/// Bytes that are read at once.
pub(crate) const READ_BYTES: usize = 256 << 10;

/// Bytes that were sent and may still be in memory.
const SENT_BYTES_KEPT: usize = 1 << 20;

struct Link {
    stream: TcpStream,
    /// Further addresses of the host, to be tried if this one takes no connection.
    others: Vec<SocketAddr>,
    is_up: bool,
    unsent: Vec<u8>,
    sent: usize,
}

/// All sockets, and what the engine wants besides.
pub(crate) struct Links {
    registry: Registry,
    links: BTreeMap<LinkId, Link>,
    began: Instant,
    /// Connections that were made to names of several addresses.
    dials: usize,
    /// Connections that could not be made.
    pub(crate) failed: Vec<LinkId>,
    /// Connections whose bytes were taken.
    pub(crate) taken: Vec<LinkId>,
    /// Operations that have ended.
    pub(crate) done: Vec<(OpId, Outcome)>,
}

impl Links {
    pub(crate) fn new(registry: Registry) -> Self {
        Self {
            registry,
            links: BTreeMap::new(),
            began: Instant::now(),
            dials: 0,
            taken: Vec::new(),
            failed: Vec::new(),
            done: Vec::new(),
        }
    }

    pub(crate) fn now(&self) -> Time {
        Time(self.began.elapsed().as_nanos() as u64)
    }

    /// A link has become ready. Whether it has come up now.
    pub(crate) fn on_ready(&mut self, event: &Event) -> (LinkId, bool) {
        let id = LinkId(event.token().0 as u64);
        let Some(link) = self.links.get_mut(&id) else {
            return (id, false);
        };
        if link.is_up || !event.is_writable() && !event.is_error() {
            return (id, false);
        }
        match (link.stream.take_error(), link.stream.peer_addr()) {
            (Ok(None), Ok(_)) => {
                link.is_up = true;
                // A request is often shorter than a segment, and its answer is awaited.
                let _ = link.stream.set_nodelay(true);
                (id, true)
            }
            (Ok(None), Err(error)) if error.kind() == ErrorKind::NotConnected => (id, false),
            _ => {
                let (others, unsent) = (core::mem::take(&mut link.others), core::mem::take(&mut link.unsent));
                self.drop_link(id);
                match self.connect(id, others) {
                    Ok(link) => link.unsent = unsent,
                    Err(_) => self.failed.push(id),
                }
                (id, false)
            }
        }
    }

    /// The next bytes of a link: `None` if there are none now. A link that has ended is among the failed ones.
    pub(crate) fn read<'b>(&mut self, id: LinkId, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        let link = self.links.get_mut(&id).filter(|link| link.is_up)?;
        loop {
            match link.stream.read(buffer) {
                Ok(count) if count > 0 => return buffer.get(..count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Ok(_) | Err(_) => {
                    self.drop_link(id);
                    self.failed.push(id);
                    return None;
                }
            }
        }
    }

    /// Sends what can be sent.
    pub(crate) fn flush(&mut self) {
        let mut ended = Vec::new();
        for (id, link) in self.links.iter_mut().filter(|(_, link)| link.is_up) {
            while let Some(rest) = link.unsent.get(link.sent..).filter(|rest| !rest.is_empty()) {
                match link.stream.write(rest) {
                    Ok(count) => {
                        link.sent += count;
                        if self.taken.last() != Some(id) {
                            self.taken.push(*id);
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(_) => {
                        ended.push(*id);
                        break;
                    }
                }
            }
            if link.sent == link.unsent.len() && link.sent > 0 {
                (link.unsent, link.sent) = (Vec::new(), 0);
            } else if link.sent > SENT_BYTES_KEPT && link.sent >= link.unsent.len() / 2 {
                link.unsent.drain(..link.sent);
                link.sent = 0;
            }
        }
        for id in ended {
            self.drop_link(id);
            self.failed.push(id);
        }
    }

    fn drop_link(&mut self, id: LinkId) {
        if let Some(mut link) = self.links.remove(&id) {
            let _ = self.registry.deregister(&mut link.stream);
        }
    }

    /// Connects to one of these addresses, the last one first.
    fn connect(&mut self, id: LinkId, mut others: Vec<SocketAddr>) -> std::io::Result<&mut Link> {
        let mut stream = loop {
            let next = others.pop().ok_or(ErrorKind::NotFound)?;
            if let Ok(stream) = TcpStream::connect(next) {
                break stream;
            }
        };
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.registry.register(&mut stream, Token(id.0 as usize), interest)?;
        let link = Link {
            stream,
            others,
            is_up: false,
            unsent: Vec::new(),
            sent: 0,
        };
        self.links.remove(&id);
        Ok(self.links.entry(id).or_insert(link))
    }
}

impl Out for Links {
    fn dial(&mut self, link: LinkId, address: &str) {
        // A name is looked up here, which may take time. Its addresses take turns: one of them may be silent.
        let addresses = address.to_socket_addrs().map(|found| found.collect::<Vec<_>>());
        let mut addresses = addresses.unwrap_or_default();
        addresses.reverse();
        let turns = self.dials % addresses.len().max(1);
        addresses.rotate_right(turns);
        self.dials += usize::from(addresses.len() > 1);
        if self.connect(link, addresses).is_err() {
            self.failed.push(link);
        }
    }

    fn write(&mut self, link: LinkId, bytes: &[u8]) {
        if let Some(link) = self.links.get_mut(&link) {
            link.unsent.extend_from_slice(bytes);
        }
    }

    fn close(&mut self, link: LinkId) {
        self.drop_link(link);
    }

    fn done(&mut self, op: OpId, outcome: Outcome) {
        self.done.push((op, outcome));
    }

    fn clock(&mut self) -> Time {
        self.now()
    }
}
