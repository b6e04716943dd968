//! Input: new connections, frames, commands. Each connection is read at most once in a turn.

use crate::client::{Step, refuse};
use crate::clock;
use crate::driver::{client_token, watch};
use crate::listeners::{Accepted, accept};
use crate::shard::{Machine, READ_MAX, Shard};
use crate::silence::end_when_gone;
use mio::net::TcpStream;
use paritas_base::{Clock, ConnId};
use paritas_protocol::{Channel, Ends, Event, LinkId, Port};
use paritas_wire::peer;
use std::io::{ErrorKind, Read};

/// Most frames that the machine sees ahead of the one it handles.
const FRAMES_AHEAD: usize = 16;

/// A client whose input is at least this long is read into it. Others are read into a buffer that all share, and what
/// their commands leave of it is copied.
const LONG_BYTES: usize = 32 << 10;

/// Most connections accepted from one listener in a turn.
const ACCEPT_MAX: usize = 128;

/// The result of one read.
enum Got {
    Bytes(usize),
    Nothing,
    /// The end of the stream, or an error.
    End,
}

fn read_once(stream: &mut TcpStream, to: &mut [u8]) -> Got {
    loop {
        return match stream.read(to) {
            Ok(0) => Got::End,
            Ok(count) => Got::Bytes(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Got::Nothing,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => Got::End,
        };
    }
}

impl<M: Machine> Shard<M> {
    pub(crate) fn accept_all(&mut self) {
        for at in 0..self.arrivals.len() {
            for _ in 0..ACCEPT_MAX {
                if !self.arrivals[at] || (at == 2 && !self.has_room()) {
                    break;
                }
                let listener = match at {
                    0 => &self.listeners.any,
                    1 => &self.listeners.cluster,
                    2 => &self.listeners.peer,
                    _ => match &self.listeners.memcached {
                        Some(listener) => listener,
                        None => {
                            self.arrivals[at] = false;
                            break;
                        }
                    },
                };
                match accept(listener) {
                    Accepted::One(stream) => match at {
                        0 => self.admit_client(stream, Port::Any),
                        1 => self.admit_client(stream, Port::Cluster),
                        3 => self.admit_client(stream, Port::Memcached),
                        _ => self.admit_link(stream),
                    },
                    Accepted::Empty => self.arrivals[at] = false,
                    Accepted::Exhausted(error) => {
                        tracing::warn!(%error, "cannot accept");
                        // The next sweep tries again.
                        self.arrivals[at] = false;
                    }
                }
            }
        }
    }

    fn admit_client(&mut self, stream: TcpStream, port: Port) {
        if self.driver.clients.len() >= self.clients_max() && !self.driver.clients.end_leaving() {
            self.refused_count += 1;
            self.refused_clients += 1;
            refuse(stream, port);
            return;
        }
        // A connection that was closed in the meantime has no address.
        let (Ok(client), Ok(server)) = (stream.peer_addr(), stream.local_addr()) else {
            return;
        };
        // If this fails, a vanished client is noticed later, when something is written to it.
        let _ = end_when_gone(&stream);
        let registry = &self.driver.registry;
        let id = self
            .driver
            .clients
            .add(stream, |stream, id| watch(registry, stream, client_token(id)));
        if let Some(id) = id {
            let conn = ConnId(id);
            let ends = Ends { client, server };
            self.tell(Event::ClientUp { conn, port, ends });
        }
    }

    /// Links are served before clients: an ack that has arrived allows replies to leave in this turn.
    pub(crate) fn serve_links(&mut self) {
        for _ in 0..self.driver.links.ready_len() {
            let Some(id) = self.driver.links.next_ready() else {
                return;
            };
            if self.is_connected(id) {
                self.serve_link(id);
            }
        }
    }

    fn serve_link(&mut self, id: u64) {
        let Some(link) = self.driver.links.find(id) else {
            return;
        };
        if !link.readable {
            return;
        }
        let usual = match link.bound {
            Some((_, Channel::Bulk)) => self.limits.bulk_read_bytes,
            _ => self.limits.read_bytes,
        };
        let room = read_room(usual, link.input.len());
        // A short beginning of a frame is copied before the new bytes. A long one stays where it is, and the new bytes
        // are appended.
        let kept = if link.input.len() <= usual { link.input.len() } else { 0 };
        let scratch = long_enough(&mut self.scratch, kept + room);
        let got = read_once(&mut link.stream, &mut scratch[kept..]);
        // The clock is read after the bytes, so that what they report happened before it. With an older clock, a lease
        // that they grant or a wait that they begin would end too early (P4.3, P5.5).
        let now = clock::now();
        match got {
            Got::Bytes(count) => {
                self.moved_bytes += count;
                link.readable = count == room || link.ending;
                let again = link.readable;
                let mut input = std::mem::take(&mut link.input);
                let mut scratch = std::mem::take(&mut self.scratch);
                let used = if kept == input.len() {
                    scratch[..kept].copy_from_slice(&input);
                    input.clear();
                    let whole = &scratch[..kept + count];
                    self.deliver(id, now, whole)
                        .map(|used| input.extend_from_slice(&whole[used..]))
                } else {
                    input.extend_from_slice(&scratch[..count]);
                    self.deliver(id, now, &input).map(|used| {
                        input.drain(..used);
                    })
                };
                self.scratch = scratch;
                match (used, self.driver.links.find(id)) {
                    (Ok(()), Some(link)) => {
                        link.input = input;
                        if again {
                            self.driver.links.enqueue(id);
                        }
                    }
                    (Err(error), Some(link)) => {
                        tracing::warn!(%error, peer = ?link.bound, "link closed: bad frame");
                        self.driver.end_link(id);
                    }
                    (_, None) => {}
                }
            }
            Got::Nothing => {
                link.readable = false;
                if link.ending {
                    self.driver.end_link(id);
                }
            }
            Got::End => self.driver.end_link(id),
        }
    }

    /// Gives complete frames to the machine. Returns their number of bytes.
    fn deliver(&mut self, id: u64, now: Clock, input: &[u8]) -> Result<usize, peer::BadFrame> {
        let (mut at, knows) = self.greet(id, input);
        if !knows {
            return Ok(at);
        }
        loop {
            // Frames come in small groups: the machine sees a whole group before it handles its first frame.
            let mut frames = [&input[..0]; FRAMES_AHEAD];
            let mut count = 0;
            let mut end = at;
            let mut bad = None;
            while count < FRAMES_AHEAD {
                match peer::split(&input[end..]) {
                    Ok(Some(length)) => frames[count] = &input[end..end + length],
                    Ok(None) => break,
                    Err(error) => {
                        bad = Some(error);
                        break;
                    }
                }
                end += frames[count].len();
                count += 1;
            }
            if count > 1 {
                self.machine.look_ahead(&frames[..count]);
            }
            for bytes in &frames[..count] {
                at += bytes.len();
                let link = LinkId(id);
                self.machine.on(now, Event::Frame { link, bytes }, &mut self.driver);
                // The machine may close the link at any frame. The following frames are then ignored.
                if !self.driver.links.is_up(id) {
                    if let Err(error) = peer::decode(bytes) {
                        tracing::warn!(%error, "link closed: a frame that this version does not take");
                    }
                    return Ok(at);
                }
            }
            if let Some(error) = bad {
                return Err(error);
            }
            if count < FRAMES_AHEAD {
                return Ok(at);
            }
        }
    }

    /// Serves clients in the queue, up to the turn's limit in bytes. The others are served in the next turn, in order.
    pub(crate) fn serve_clients(&mut self) {
        // One clock serves all clients: replies are tested with a fresh clock before they leave (P4.2).
        let now = clock::now();
        let mut turn_bytes = 0;
        for _ in 0..self.driver.clients.ready_len() {
            if turn_bytes >= self.limits.turn_bytes {
                return;
            }
            let Some(id) = self.driver.clients.next_ready() else {
                return;
            };
            turn_bytes += self.serve_client(id, now);
        }
    }

    /// Reads once and calls the machine once, as far as the client may be read and fed. Returns the number of bytes
    /// read or consumed.
    fn serve_client(&mut self, id: u64, now: Clock) -> usize {
        let Some(step) = self.driver.clients.next_step(id) else {
            return 0;
        };
        let ahead_max = match step {
            Step::Feed => {
                let fed = self.feed(id, 0, now);
                self.driver.clients.enqueue_if_able(id);
                return fed;
            }
            Step::Read => usize::MAX,
            Step::ReadAhead(room) => room,
        };
        let Some(client) = self.driver.clients.find(id) else {
            return 0;
        };
        let waiting = client.input.len();
        let room = read_room(self.limits.read_bytes, waiting).min(ahead_max);
        // A long command is read to where it will be used. A short one has no large buffer of its own.
        let is_long = step == Step::Read && waiting >= LONG_BYTES;
        let to = if is_long {
            client.input.room(room)
        } else {
            long_enough(&mut self.scratch, room)
        };
        match read_once(&mut client.stream, to) {
            Got::Bytes(count) if client.leaving => {
                client.readable = count == room || client.ending;
                self.driver.clients.enqueue_if_able(id);
                count
            }
            Got::Bytes(count) => {
                self.moved_bytes += count;
                client.readable = count == room || client.ending;
                let done = match step {
                    Step::Read if is_long => {
                        client.input.add(count);
                        self.feed(id, 0, now).max(count)
                    }
                    Step::Read => self.feed(id, count, now),
                    _ => {
                        client.input.push_to_long(&self.scratch[..count]);
                        client.hungry = true;
                        self.driver.clients.weigh(id);
                        count
                    }
                };
                self.driver.clients.enqueue_if_able(id);
                done
            }
            Got::Nothing => {
                client.readable = false;
                0
            }
            Got::End if client.leaving => {
                self.driver.end_client(id);
                0
            }
            Got::End => {
                // Replies that are still to come may leave. The flush closes the connection when there are none.
                client.readable = false;
                client.ended_at = Some(clock::mono());
                self.driver.clients.touch(id);
                0
            }
        }
    }

    /// Gives the machine a client's input, followed by `fresh` bytes of the scratch buffer. Returns the number of bytes
    /// that are fresh or consumed, whichever is more.
    fn feed(&mut self, id: u64, fresh: usize, now: Clock) -> usize {
        let Some(client) = self.driver.clients.find(id) else {
            return 0;
        };
        let conn = ConnId(id);
        let mut input = std::mem::take(&mut client.input);
        let scratch = std::mem::take(&mut self.scratch);
        let direct = input.is_empty();
        if !direct {
            input.push(&scratch[..fresh]);
        }
        let bytes = if direct { &scratch[..fresh] } else { input.as_slice() };
        let fed = bytes.len();
        let mut consumed = 0;
        self.machine.on(now, Event::Client { conn, bytes }, &mut self.driver);
        // The client still exists: the machine has no way to remove it.
        if let Some(client) = self.driver.clients.find(id) {
            consumed = std::mem::take(&mut client.reply.consumed).min(fed);
            if direct {
                input.push(&scratch[consumed..fresh]);
            } else {
                input.take_front(consumed);
            }
            client.input = input;
            // The rest is either an incomplete command or a complete one that could not start.
            let able = client.may_feed(self.limits.reply_soft_max);
            client.hungry = !able && !client.input.is_empty();
            if able && client.input.len() > self.limits.clients.query_bytes_max {
                tracing::warn!(
                    bytes = client.input.len(),
                    "client closed: its query exceeds the limit of a query buffer"
                );
                self.driver.end_client(id);
            }
        }
        self.scratch = scratch;
        consumed.max(fresh)
    }

    /// Gives clients their input at once when the machine has cleared their stall. Their next command may already be
    /// here, and its reply can leave in this turn's write.
    pub(crate) fn resume_clients(&mut self) {
        let now = clock::now();
        let mut at = 0;
        let mut turn_bytes = 0;
        while let Some(id) = self.driver.clients.touched(at) {
            at += 1;
            if turn_bytes >= self.limits.turn_bytes {
                // The flush queues the other clients for the next turn.
                return;
            }
            let soft_max = self.limits.reply_soft_max;
            if let Some(client) = self.driver.clients.find(id)
                && client.hungry
                && client.may_feed(soft_max)
            {
                turn_bytes += self.feed(id, 0, now);
            }
        }
    }
}

/// The first `room` bytes of a buffer, which grows if it is shorter.
fn long_enough(scratch: &mut Vec<u8>, room: usize) -> &mut [u8] {
    if scratch.len() < room {
        scratch.resize(room, 0);
    }
    &mut scratch[..room]
}

/// A link without the option works, but a vanished peer is noticed later.
pub(crate) fn note_failure(set: std::io::Result<()>) {
    if let Err(error) = set {
        tracing::warn!(%error, "a peer link uses the system's timeouts: setting its own failed");
    }
}

/// Number of bytes to read after those that already wait.
fn read_room(usual: usize, waiting: usize) -> usize {
    waiting.clamp(usual.min(READ_MAX), READ_MAX)
}
