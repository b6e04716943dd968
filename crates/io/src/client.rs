//! Connections of clients: input that is not yet consumed, replies that are not yet written, and when to read again.

use crate::backlog::Backlog;
use crate::byte_queue::ByteQueue;
use crate::id_table::IdTable;
use mio::net::TcpStream;
use paritas_base::{Span, Time};
use paritas_protocol::{ClientLimits, Port, ReplyBuf};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::Shutdown;

/// Buffers up to this size in bytes are kept between bursts.
const KEEP_BYTES: usize = 4 << 10;
/// Unused capacity of a client's buffers, in bytes, from which moving its data into smaller buffers is worth the work.
const SPARE_BYTES_MIN: usize = 64 << 10;
/// Most bytes moved into smaller buffers between two sweeps. The limit bounds repeated moving of buffers that grow
/// again.
const MOVED_BYTES_MAX: usize = 64 << 20;

/// The state of a connection after a flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flushed {
    Open,
    /// The machine has closed it, and the last reply is written. The client may still send.
    Leave,
    End,
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    pub(crate) reply: ReplyBuf,
    pub(crate) backlog: Backlog,
    /// Input that is not consumed; it starts with the first byte of a command.
    pub(crate) input: ByteQueue,
    /// The socket may have more to read. It must be remembered, because edge-triggered epoll reports it only once.
    pub(crate) readable: bool,
    /// The client will send no more. Reading continues until it reports the end of the stream.
    pub(crate) ending: bool,
    /// When the end of the stream was read, if the client still waits for replies.
    pub(crate) ended_at: Option<Time>,
    /// When the socket last took a byte of a reply, or when none waited.
    moved_at: Time,
    /// When a sweep first found the client closing, with replies that it does not read; or when it began to leave.
    pub(crate) closing_at: Option<Time>,
    /// The machine has closed the client, and all replies are written. What still arrives is thrown away until the
    /// client closes too: the system would answer it with a reset, and a reset takes replies away that the client has
    /// not yet read.
    pub(crate) leaving: bool,
    /// There is input that the machine could not yet process.
    pub(crate) hungry: bool,
    /// The socket accepts no more bytes for now.
    pub(crate) blocked: bool,
    /// Bytes held for the client when it was last weighed, here and in the machine.
    weight_bytes: usize,
    touched: bool,
    queued: bool,
}

impl Client {
    fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            reply: ReplyBuf::default(),
            backlog: Backlog::default(),
            input: ByteQueue::default(),
            readable: true,
            ending: false,
            ended_at: None,
            moved_at: Time(0),
            closing_at: None,
            leaving: false,
            hungry: false,
            blocked: false,
            weight_bytes: 0,
            touched: false,
            queued: false,
        }
    }

    pub(crate) fn unwritten_bytes(&self) -> usize {
        self.reply.bytes.len() + self.backlog.len()
    }

    /// Whether the machine may be given input: it has not stalled this client, and the client reads its replies fast
    /// enough.
    pub(crate) fn may_feed(&self, reply_soft_max: usize) -> bool {
        !self.reply.stalled && !self.reply.close && self.unwritten_bytes() < reply_soft_max
    }

    /// Writes once what may be written. Returns the new state of the connection.
    ///
    /// `now` is the fresh clock of P4.2. After the deadline, replies released in this turn must not leave. The
    /// backlog has passed its test in its own turn.
    pub(crate) fn flush(&mut self, now: Time) -> Flushed {
        if self.reply.deadline.take().is_some_and(|deadline| now >= deadline) {
            // Even with a backlog the connection ends at once: the machine will release further replies, and none may
            // leave after a gap.
            return Flushed::End;
        }
        let ready = std::mem::take(&mut self.reply.released);
        let waited_bytes = self.backlog.len();
        if self.blocked {
            self.backlog.hold(&mut self.reply.bytes, ready);
        } else if ready > 0 || !self.backlog.is_empty() {
            match self.backlog.write_once(&mut self.stream, &mut self.reply.bytes, ready) {
                Ok(done) => self.blocked = !done,
                Err(_) => return Flushed::End,
            }
        }
        if waited_bytes == 0 || self.backlog.len() < waited_bytes + ready {
            self.moved_at = now;
        }
        self.reply.waiting = self.backlog.len();
        let owes = self.reply.owes || self.reply.stalled;
        let answered = self.reply.bytes.is_empty() && !owes && !self.hungry;
        match self.ended_at {
            _ if !self.backlog.is_empty() => Flushed::Open,
            Some(_) if self.reply.close || answered => Flushed::End,
            None if self.reply.close => Flushed::Leave,
            _ => Flushed::Open,
        }
    }

    /// Writes replies to a socket that was full. The system reports room only when much of its buffer is free: a client
    /// that reads slowly has taken bytes long before. Returns whether it took some.
    pub(crate) fn write_again(&mut self, now: Time) -> io::Result<bool> {
        if !self.blocked {
            return Ok(false);
        }
        let waited_bytes = self.backlog.len();
        self.blocked = !self.backlog.write_once(&mut self.stream, &mut Vec::new(), 0)?;
        self.reply.waiting = self.backlog.len();
        let moves = self.backlog.len() < waited_bytes;
        if moves {
            self.moved_at = now;
        }
        Ok(moves)
    }

    /// Tells the client that no more replies come. Frees its buffers.
    fn leave(&mut self, now: Time) {
        // If this fails, reading finds the end.
        let _ = self.stream.shutdown(Shutdown::Write);
        self.leaving = true;
        self.closing_at.get_or_insert(now);
        self.reply = ReplyBuf::default();
        self.backlog = Backlog::default();
        self.input = ByteQueue::default();
        self.hungry = false;
        // Edge-triggered epoll may already have reported what waits.
        self.readable = true;
    }

    /// Whether a connection that ends has waited longer than `linger`: for replies to be produced, or for a closed
    /// client to read them and to close too.
    pub(crate) fn is_overdue(&mut self, now: Time, linger: Span) -> bool {
        if self.reply.close {
            self.closing_at.get_or_insert(now);
        }
        let over = |since: Option<Time>| since.is_some_and(|since| now - since > linger);
        // While replies wait for the client, `is_unread` says how long it may take.
        (self.backlog.is_empty() && over(self.ended_at.map(|at| at.max(self.moved_at)))) || over(self.closing_at)
    }

    /// Whether replies wait for it, and it has taken no byte of them for this time.
    pub(crate) fn is_unread(&self, now: Time, unread_max: Span) -> bool {
        !self.backlog.is_empty() && now - self.moved_at > unread_max
    }

    /// Bytes of memory of the client and its buffers.
    pub(crate) fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.input.capacity() + self.reply.bytes.capacity() + self.backlog.capacity()
    }

    /// Frees memory that only a burst needed. If the shard is idle, frees all of it.
    pub(crate) fn shrink(&mut self, busy: bool) {
        let keep_bytes = if busy { KEEP_BYTES } else { 0 };
        if self.input.is_empty() && self.input.capacity() > 0 {
            self.input = ByteQueue::default();
        }
        if self.reply.bytes.is_empty() && self.reply.bytes.capacity() > keep_bytes {
            self.reply.bytes = Vec::new();
        }
        if self.backlog.is_empty() && self.backlog.capacity() > 0 {
            self.backlog.shrink();
        }
    }

    /// Unused capacity of its buffers in bytes. A buffer that grows may take twice what it needs.
    fn spare_bytes(&self) -> usize {
        let replies = self.reply.bytes.capacity() - self.reply.bytes.len();
        replies + self.input.spare_bytes() + self.backlog.spare_bytes()
    }

    /// Frees that unused capacity.
    fn fit(&mut self) {
        self.input.fit();
        self.reply.bytes.shrink_to_fit();
        self.backlog.fit();
    }
}

/// The next thing to do for a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Give the machine what was read before.
    Feed,
    /// Read, and give it to the machine.
    Read,
    /// Read at most this number of bytes, and keep them. The client does not read its replies. Most clients begin to
    /// read when they have sent all their commands: a node that stopped reading would wait for them for ever.
    ReadAhead(usize),
}

#[derive(Debug)]
pub(crate) struct Clients {
    slots: IdTable<Client>,
    limits: ClientLimits,
    /// Unwritten reply bytes of a client above which none of its commands is started.
    reply_soft_max: usize,
    /// Ids of clients with something to read or to feed, in turn.
    ready: VecDeque<u64>,
    /// Ids of clients whose replies the machine may have changed since the last flush.
    touched: Vec<u64>,
    /// Bytes held for all clients, as last weighed.
    weight_bytes: usize,
    /// Bytes moved into smaller buffers since the last sweep.
    moved_bytes: usize,
    /// Ids of leaving clients, in the order in which they began to leave. Some may have ended since the last sweep.
    leaving: VecDeque<u64>,
}

impl Clients {
    pub(crate) fn new(limits: ClientLimits, reply_soft_max: usize) -> Self {
        Self {
            slots: IdTable::new(),
            limits,
            reply_soft_max,
            ready: VecDeque::new(),
            touched: Vec::new(),
            weight_bytes: 0,
            moved_bytes: 0,
            leaving: VecDeque::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Adds a connection. `register` makes epoll watch it.
    pub(crate) fn add(
        &mut self,
        mut stream: TcpStream,
        register: impl FnOnce(&mut TcpStream, u64) -> io::Result<()>,
    ) -> Option<u64> {
        let id = self
            .slots
            .insert_with(|id| {
                register(&mut stream, id)?;
                Ok::<_, io::Error>(Client::new(stream))
            })?
            .ok()?;
        self.enqueue(id);
        Some(id)
    }

    pub(crate) fn find(&mut self, id: u64) -> Option<&mut Client> {
        self.slots.find_mut(id)
    }

    /// Removes a connection. Returns whether the machine must be told: it was told of a leaving client before.
    pub(crate) fn remove(&mut self, id: u64) -> bool {
        let removed = self.slots.remove(id);
        self.weight_bytes -= removed.as_ref().map_or(0, |client| client.weight_bytes);
        removed.is_some_and(|client| !client.leaving)
    }

    /// Keeps only the socket of a client, to throw away what it still sends.
    pub(crate) fn leave(&mut self, id: u64, now: Time) {
        if let Some(client) = self.slots.find_mut(id) {
            client.leave(now);
            self.leaving.push_back(id);
        }
        self.weigh(id);
        self.enqueue(id);
    }

    /// Ends the client that began to leave first, so that a new client gets its place. Returns false if none leaves.
    pub(crate) fn end_leaving(&mut self) -> bool {
        while let Some(id) = self.leaving.pop_front() {
            if self.slots.find(id).is_some() {
                self.remove(id);
                return true;
            }
        }
        false
    }

    /// Updates the number of bytes held for a client.
    pub(crate) fn weigh(&mut self, id: u64) {
        if let Some(client) = self.slots.find_mut(id) {
            self.weight_bytes -= client.weight_bytes;
            client.weight_bytes = client.held_bytes() + client.reply.elsewhere_bytes;
            self.weight_bytes += client.weight_bytes;
        }
    }

    /// Resets the limit on bytes moved into smaller buffers, and forgets leaving clients that have ended.
    pub(crate) fn on_sweep(&mut self, limits: ClientLimits) {
        self.limits = limits;
        self.moved_bytes = 0;
        let slots = &self.slots;
        self.leaving.retain(|id| slots.find(*id).is_some());
    }

    /// Bytes held for all clients.
    pub(crate) fn weight_bytes(&self) -> usize {
        self.weight_bytes
    }

    /// Frees buffers kept for the next burst. If more than `bytes_max` bytes are still held, also frees unused
    /// capacity, beginning with the client that has most.
    pub(crate) fn shrink(&mut self, bytes_max: usize) {
        let mut shrinkable = Vec::new();
        for id in self.ids() {
            if let Some(client) = self.slots.find_mut(id) {
                client.shrink(false);
                let spare_bytes = client.spare_bytes();
                if spare_bytes >= SPARE_BYTES_MIN {
                    shrinkable.push((spare_bytes, id));
                }
            }
            self.weigh(id);
        }
        shrinkable.sort_unstable();
        while self.weight_bytes > bytes_max
            && self.moved_bytes < MOVED_BYTES_MAX
            && let Some((_, id)) = shrinkable.pop()
        {
            if let Some(client) = self.slots.find_mut(id) {
                client.fit();
                self.moved_bytes += client.held_bytes();
            }
            self.weigh(id);
        }
    }

    /// The client for which most bytes are held, and their number. Clients that asked not to be closed are left out.
    pub(crate) fn heaviest(&mut self) -> Option<(u64, usize)> {
        let ids = self.ids().into_iter();
        let weights = ids.filter_map(|id| {
            let client = self.slots.find_mut(id).filter(|client| !client.reply.no_evict)?;
            Some((id, client.weight_bytes))
        });
        weights.max_by_key(|(_, bytes)| *bytes)
    }

    pub(crate) fn ids(&self) -> Vec<u64> {
        self.slots.ids().collect()
    }

    /// A client's replies; the client is marked as changed. A leaving client gets no more.
    pub(crate) fn touch(&mut self, id: u64) -> Option<&mut ReplyBuf> {
        let client = self.slots.find_mut(id).filter(|client| !client.leaving)?;
        if !client.touched {
            client.touched = true;
            self.touched.push(id);
        }
        Some(&mut client.reply)
    }

    /// The `at`-th client touched since the last flush. More may be added while the caller iterates.
    pub(crate) fn touched(&self, at: usize) -> Option<u64> {
        self.touched.get(at).copied()
    }

    /// Starts a new list of touched clients and returns the old one. The caller returns it later, so that its memory is
    /// reused.
    pub(crate) fn take_touched(&mut self) -> Vec<u64> {
        let touched = std::mem::take(&mut self.touched);
        for id in &touched {
            if let Some(client) = self.slots.find_mut(*id) {
                client.touched = false;
            }
        }
        touched
    }

    pub(crate) fn give_back(&mut self, mut list: Vec<u64>) {
        if self.touched.is_empty() {
            list.clear();
            self.touched = list;
        }
    }

    pub(crate) fn enqueue(&mut self, id: u64) {
        if let Some(client) = self.slots.find_mut(id)
            && !client.queued
        {
            client.queued = true;
            self.ready.push_back(id);
        }
    }

    /// What may be done for a client now.
    pub(crate) fn next_step(&self, id: u64) -> Option<Step> {
        let client = self.slots.find(id)?;
        let may_read = client.readable && client.ended_at.is_none();
        if client.may_feed(self.reply_soft_max) {
            return match client.hungry {
                true => Some(Step::Feed),
                false => may_read.then_some(Step::Read),
            };
        }
        // Unless its socket is full, it goes on without being read: its replies are still to come.
        let room = self.room_ahead(client);
        (may_read && client.blocked && !client.reply.close && room > 0).then_some(Step::ReadAhead(room))
    }

    /// Bytes that may be read ahead of a client's replies. What is read so takes at most half of the memory for all
    /// clients, so that no client is closed for it (P8.3).
    fn room_ahead(&self, client: &Client) -> usize {
        let ClientLimits {
            query_bytes_max,
            bytes_max,
            alone_bytes,
            ..
        } = self.limits;
        let held_bytes = self.weight_bytes - client.weight_bytes.min(alone_bytes);
        let growth_bytes = client.input.len() / 8;
        let of_all = (bytes_max / 2).saturating_sub(held_bytes + growth_bytes);
        query_bytes_max.saturating_sub(client.input.len()).min(of_all)
    }

    /// Queues a client for which something may be done.
    pub(crate) fn enqueue_if_able(&mut self, id: u64) {
        if self.next_step(id).is_some() {
            self.enqueue(id);
        }
    }

    pub(crate) fn ready_len(&self) -> usize {
        self.ready.len()
    }

    pub(crate) fn next_ready(&mut self) -> Option<u64> {
        let id = self.ready.pop_front()?;
        if let Some(client) = self.slots.find_mut(id) {
            client.queued = false;
        }
        Some(id)
    }
}

/// Tells a client that the limit of connections is reached, as Redis and memcached do. The text may be lost; the
/// connection is closed.
pub(crate) fn refuse(mut stream: TcpStream, port: Port) {
    let text = match port {
        Port::Any | Port::Cluster => "-ERR max number of clients reached\r\n",
        Port::Memcached => "ERROR Too many open connections\r\n",
    };
    let _ = stream.write(text.as_bytes());
}
