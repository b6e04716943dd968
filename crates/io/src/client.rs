//! Clients' connections: input not consumed yet, replies not written yet, and when to read on.

use crate::backlog::Backlog;
use crate::slots::Slots;
use mio::net::TcpStream;
use paritas_base::{Span, Time};
use paritas_protocol::ReplyBuf;
use std::collections::VecDeque;
use std::io::{self, Write};

/// Buffers up to this size are kept between bursts.
const KEEP_BYTES: usize = 4 << 10;
/// Room that nothing is in, from which on it is worth to move a client's bytes into smaller buffers.
const SPARE_BYTES_MIN: usize = 64 << 10;
/// Bytes moved so at most between two sweeps: they are moved again as more comes.
const MOVED_BYTES_MAX: usize = 64 << 20;

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    pub(crate) reply: ReplyBuf,
    pub(crate) backlog: Backlog,
    /// Unconsumed input, from the first byte of a command on.
    pub(crate) input: Vec<u8>,
    /// The socket may have more to read (epoll tells us only once).
    pub(crate) readable: bool,
    /// The client will send no more; reads go on until they say so too.
    pub(crate) ending: bool,
    /// When the last byte was read, for a client that stopped sending but waits for replies.
    pub(crate) ended_at: Option<Time>,
    /// When a sweep first saw it closing, with replies that it does not read.
    pub(crate) closing_at: Option<Time>,
    /// Input is left that the machine has not been able to look at.
    pub(crate) hungry: bool,
    /// The socket takes no more for now.
    pub(crate) blocked: bool,
    /// What was held for it when it was weighed last, here and in the machine.
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
            input: Vec::new(),
            readable: true,
            ending: false,
            ended_at: None,
            closing_at: None,
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

    /// Whether the machine may be given input: it has not stalled this client, and replies are read fast enough.
    pub(crate) fn may_feed(&self, reply_soft_max: usize) -> bool {
        !self.reply.stalled && !self.reply.close && self.unwritten_bytes() < reply_soft_max
    }

    fn has_work(&self) -> bool {
        (self.readable && self.ended_at.is_none()) || self.hungry
    }

    /// Writes what may be written, once. False if the connection is at its end.
    ///
    /// `now` is the fresh clock of PROTOCOL 4.2: past the deadline, what was released this turn must not leave; the
    /// backlog passed its test in its own turn.
    pub(crate) fn flush(&mut self, now: Option<Time>) -> bool {
        let late = match (self.reply.deadline.take(), now) {
            (Some(deadline), Some(now)) => now >= deadline,
            _ => false,
        };
        if late {
            // At once, also with a backlog: the machine goes on to release what it holds, and no reply may leave
            // behind a gap.
            return false;
        }
        let ready = std::mem::take(&mut self.reply.released);
        if self.blocked {
            self.backlog.hold(&mut self.reply.bytes, ready);
        } else if ready > 0 || !self.backlog.is_empty() {
            match self.backlog.write_once(&mut self.stream, &mut self.reply.bytes, ready) {
                Ok(done) => self.blocked = !done,
                Err(_) => return false,
            }
        }
        let owes = self.reply.owes || self.reply.stalled;
        let answered = self.reply.bytes.is_empty() && !owes && !self.hungry;
        let done = self.reply.close || (self.ended_at.is_some() && answered);
        !(done && self.backlog.is_empty())
    }

    /// Whether it has waited for longer than `linger` for replies to be made, or to be read.
    pub(crate) fn is_overdue(&mut self, now: Time, linger: Span) -> bool {
        if self.reply.close {
            self.closing_at.get_or_insert(now);
        }
        let over = |since: Option<Time>| since.is_some_and(|since| now - since > linger);
        over(self.ended_at) || over(self.closing_at)
    }

    /// Memory of it and its buffers.
    pub(crate) fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.input.capacity() + self.reply.bytes.capacity() + self.backlog.capacity()
    }

    /// Gives memory back that only a burst needed; of an idle shard, all of it.
    pub(crate) fn shrink(&mut self, busy: bool) {
        let keep_bytes = if busy { KEEP_BYTES } else { 0 };
        if self.input.is_empty() && self.input.capacity() > 0 {
            self.input = Vec::new();
        }
        if self.reply.bytes.is_empty() && self.reply.bytes.capacity() > keep_bytes {
            self.reply.bytes = Vec::new();
        }
        if self.backlog.is_empty() && self.backlog.capacity() > 0 {
            self.backlog.shrink();
        }
    }

    /// Room in its buffers that nothing is in: one that grows may take twice what it needs.
    fn spare_bytes(&self) -> usize {
        let here = self.input.capacity() - self.input.len() + self.reply.bytes.capacity() - self.reply.bytes.len();
        here + self.backlog.capacity() - self.backlog.len()
    }

    /// Gives that room back.
    fn fit(&mut self) {
        self.input.shrink_to_fit();
        self.reply.bytes.shrink_to_fit();
        self.backlog.fit();
    }
}

#[derive(Debug)]
pub(crate) struct Clients {
    slots: Slots<Client>,
    /// Those with something to read or to feed, in turn.
    ready: VecDeque<u64>,
    /// Those whose replies the machine may have changed since the last flush.
    touched: Vec<u64>,
    /// What is held for all of them, as they were weighed.
    weight_bytes: usize,
    /// Moved into smaller buffers since the last sweep.
    moved_bytes: usize,
}

impl Clients {
    pub(crate) fn new() -> Self {
        Self {
            slots: Slots::new(),
            ready: VecDeque::new(),
            touched: Vec::new(),
            weight_bytes: 0,
            moved_bytes: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Adds a connection once `register` has made epoll watch it.
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

    pub(crate) fn remove(&mut self, id: u64) -> bool {
        let removed = self.slots.remove(id);
        self.weight_bytes -= removed.as_ref().map_or(0, |client| client.weight_bytes);
        removed.is_some()
    }

    /// Counts anew what is held for a client.
    pub(crate) fn weigh(&mut self, id: u64) {
        if let Some(client) = self.slots.find_mut(id) {
            self.weight_bytes -= client.weight_bytes;
            client.weight_bytes = client.held_bytes() + client.reply.elsewhere_bytes;
            self.weight_bytes += client.weight_bytes;
        }
    }

    /// Buffers may be made smaller again.
    pub(crate) fn on_sweep(&mut self) {
        self.moved_bytes = 0;
    }

    /// Bytes held for all clients.
    pub(crate) fn weight_bytes(&self) -> usize {
        self.weight_bytes
    }

    /// Gives back what buffers keep for the next burst, and if more than `bytes_max` are held then, the room in them
    /// that nothing is in, the largest first.
    pub(crate) fn shrink(&mut self, bytes_max: usize) {
        let mut roomy = Vec::new();
        for id in self.ids() {
            if let Some(client) = self.slots.find_mut(id) {
                client.shrink(false);
                let spare_bytes = client.spare_bytes();
                if spare_bytes >= SPARE_BYTES_MIN {
                    roomy.push((spare_bytes, id));
                }
            }
            self.weigh(id);
        }
        roomy.sort_unstable();
        while self.weight_bytes > bytes_max
            && self.moved_bytes < MOVED_BYTES_MAX
            && let Some((_, id)) = roomy.pop()
        {
            if let Some(client) = self.slots.find_mut(id) {
                client.fit();
                self.moved_bytes += client.held_bytes();
            }
            self.weigh(id);
        }
    }

    /// The client that most is held for, and how much, of those that may be closed for it.
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

    /// The replies, noted as changed.
    pub(crate) fn touch(&mut self, id: u64) -> Option<&mut ReplyBuf> {
        let client = self.slots.find_mut(id)?;
        if !client.touched {
            client.touched = true;
            self.touched.push(id);
        }
        Some(&mut client.reply)
    }

    /// The `at`-th client touched since the last flush; more may be added while they are walked.
    pub(crate) fn touched(&self, at: usize) -> Option<u64> {
        self.touched.get(at).copied()
    }

    /// Starts a new list of touched clients; the old one goes to the caller, who gives it back for its memory.
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

    /// Queues a client that may be fed and has something.
    pub(crate) fn enqueue_if_able(&mut self, id: u64, reply_soft_max: usize) {
        if let Some(client) = self.slots.find_mut(id)
            && client.may_feed(reply_soft_max)
            && client.has_work()
        {
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

/// Tells a client that there is no room for it, as Redis does. It may not arrive; the close does.
pub(crate) fn refuse(mut stream: TcpStream) {
    let _ = stream.write(b"-ERR max number of clients reached\r\n");
}
