//! `Links`: the sockets, as the engine's `Out`.

use mio::event::Event;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use paritas_base::Time;
use paritas_client::{LinkId, OpId, Out, Outcome};
use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, IoSlice, Read as _};
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Instant;

/// Bytes that are read at once.
pub(crate) const READ_BYTES: usize = 256 << 10;

/// Short commands are put together in pieces of this length, in bytes.
const PIECE_BYTES: usize = 32 << 10;
/// Pieces that are sent at once.
const PIECES_MAX: usize = 16;

struct Link {
    stream: TcpStream,
    /// Further addresses of the host, to be tried if this one takes no connection.
    others: Vec<SocketAddr>,
    is_up: bool,
    unsent: Unsent,
}

/// Bytes that are to be sent. Long pieces are not copied, and each is freed when it was sent.
#[derive(Default)]
struct Unsent {
    pieces: VecDeque<Vec<u8>>,
    /// Bytes of the first piece that were sent.
    sent: usize,
}

impl Unsent {
    fn push(&mut self, bytes: &[u8]) {
        match self.pieces.back_mut() {
            Some(last) if last.len() + bytes.len() <= PIECE_BYTES => last.extend_from_slice(bytes),
            _ => self.pieces.push_back(bytes.to_vec()),
        }
    }

    fn push_owned(&mut self, bytes: Vec<u8>) {
        if bytes.len() < PIECE_BYTES {
            self.push(&bytes);
        } else {
            self.pieces.push_back(bytes);
        }
    }

    /// Sends what `to` takes at once. The number of bytes that it took.
    fn send(&mut self, to: &mut impl std::io::Write) -> std::io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); PIECES_MAX];
        let mut from = self.sent;
        let mut count = 0;
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            *slice = IoSlice::new(piece.get(from..).unwrap_or_default());
            (from, count) = (0, count + 1);
        }
        let taken = to.write_vectored(&slices[..count])?;
        self.sent += taken;
        while let Some(length) = self.pieces.front().map(Vec::len).filter(|length| self.sent >= *length) {
            self.sent -= length;
            self.pieces.pop_front();
        }
        Ok(taken)
    }
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
            while !link.unsent.pieces.is_empty() {
                match link.unsent.send(&mut link.stream) {
                    Ok(_) => {
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
            unsent: Unsent::default(),
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
            link.unsent.push(bytes);
        }
    }

    fn write_owned(&mut self, link: LinkId, bytes: Vec<u8>) {
        if let Some(link) = self.links.get_mut(&link) {
            link.unsent.push_owned(bytes);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes at most so many bytes of one call.
    struct Taker(Vec<u8>, usize);

    impl std::io::Write for Taker {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let count = bytes.len().min(self.1);
            self.0.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> std::io::Result<usize> {
            let all: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            self.write(&all)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn bytes_leave_in_their_order_and_are_freed() {
        for at_once in [1_000, PIECE_BYTES, 3 * PIECE_BYTES + 1] {
            let (mut unsent, mut wanted) = (Unsent::default(), Vec::new());
            for n in 0..100 {
                let bytes = vec![n as u8; [1, 10, PIECE_BYTES, 0, 4 * PIECE_BYTES + 7][n % 5]];
                wanted.extend_from_slice(&bytes);
                if n % 2 == 0 {
                    unsent.push(&bytes);
                } else {
                    unsent.push_owned(bytes);
                }
            }
            let mut taker = Taker(Vec::new(), at_once);
            while !unsent.pieces.is_empty() {
                assert!(unsent.send(&mut taker).is_ok_and(|taken| taken > 0));
            }
            assert!(taker.0 == wanted && unsent.sent == 0);
        }
    }
}
