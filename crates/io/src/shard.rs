//! The event loop. A turn: wait; serve links, messages, timer and clients; then read a fresh clock and `write` once to
//! each connection.

use crate::client::{Clients, Flushed};
use crate::disk::{Disk, LogDirectory};
use crate::door::{Door, Late, PROVE_WITHIN};
use crate::driver::{ANY, CLUSTER, Driver, Ended, MEMCACHED, Named, PEER, WAKER, named};
use crate::link::Links;
use crate::listeners::Listeners;
use crate::mailbox::{AgentPort, Gauges, Mail, Mailbox, Progress, Proposals, waker};
use crate::{clock, usage};
use mio::{Events, Interest, Poll};
use paritas_base::{Clock, Span, Time};
use paritas_frontend::Node;
use paritas_protocol::{ClientLimits, Event, HugeRange, Out, ProcessFigures};
use std::collections::VecDeque;
use std::io;
use std::sync::mpsc;
use std::time::Duration;

/// Bytes by which the memory of all clients grows before they are searched again for one that must be closed.
const LET_PASS_BYTES: usize = 256 << 10;

/// The machine that a shard drives: `paritas_frontend::Node`, or a small one in tests of the loop itself.
pub trait Machine {
    /// Handles one event.
    fn on(&mut self, now: Clock, event: Event<'_>, out: &mut impl Out);
    /// The latest time at which to call with [`Event::Timer`].
    fn next_deadline(&self) -> Option<Time>;
    /// The complete frames that will follow as one event each. The machine may prefetch the memory that they use.
    fn look_ahead(&mut self, frames: &[&[u8]]) {
        let _ = frames;
    }
    /// The next part of its memory that another thread can make a huge page.
    fn next_huge(&mut self) -> Option<HugeRange> {
        None
    }
    /// The limits on what clients may make the loop hold, if the machine sets them.
    fn client_limits(&self) -> Option<ClientLimits> {
        None
    }
    /// Tells it what the process uses, a few times a second.
    fn set_process(&mut self, now: Time, figures: ProcessFigures) {
        let _ = (now, figures);
    }
    /// Its gauges, asked for a few times a second.
    fn gauges(&self) -> Gauges {
        Gauges::default()
    }
}

impl Machine for Node {
    fn on(&mut self, now: Clock, event: Event<'_>, out: &mut impl Out) {
        Self::on(self, now, event, out);
    }

    fn next_deadline(&self) -> Option<Time> {
        Self::next_deadline(self)
    }

    fn look_ahead(&mut self, frames: &[&[u8]]) {
        Self::look_ahead(self, frames);
    }

    fn next_huge(&mut self) -> Option<HugeRange> {
        self.replica_mut().next_huge()
    }

    fn client_limits(&self) -> Option<ClientLimits> {
        Some(self.replica().client_limits())
    }

    fn set_process(&mut self, now: Time, figures: ProcessFigures) {
        Self::set_process(self, now, figures);
    }

    fn gauges(&self) -> Gauges {
        let figures = self.figures();
        Gauges {
            objects: figures.objects,
            user_bytes: figures.user_bytes,
            memory: vec![
                ("data", figures.data_bytes),
                ("index", figures.index_bytes),
                ("parity", figures.parity_bytes),
                ("parts", figures.part_bytes),
                ("rings", figures.ring_bytes),
                ("tables", figures.table_bytes),
                ("bodies", figures.bodies_bytes),
                ("buffers", figures.buffer_bytes),
                ("stash", figures.stash_bytes),
                ("log", figures.log_bytes),
                ("free", figures.free_bytes),
            ],
            rebuild_done_bytes: figures.rebuild_done_bytes,
            rebuild_total_bytes: figures.rebuild_done_bytes + figures.rebuild_todo_bytes,
            scrub: [figures.scrub_checked, figures.scrub_bad, figures.scrub_repaired],
            halted: self.replica().halted().cloned().collect(),
            ack_us: self
                .replica()
                .ack_delays(clock::mono())
                .into_iter()
                .map(|(node, delay)| (node, delay.as_us()))
                .collect(),
            silenced_errors: self.silenced_errors(),
            fill: figures.fill,
            log_chunks: self
                .replica()
                .parity_log()
                .map(|log| (log.chunks() as u32, log.chunks_max())),
        }
    }
}

/// Limits on what clients and peers can make a shard hold.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Limits for clients. Those of the machine take precedence.
    pub clients: ClientLimits,
    /// Most connections of clients and peers together. Some are reserved for peers, because without a descriptor for a
    /// peer no write would be acknowledged.
    pub sockets_max: usize,
    /// Unwritten reply bytes of a client above which none of its commands is started.
    pub reply_soft_max: usize,
    /// Unwritten bytes of a link above which it is closed.
    pub link_bytes_max: usize,
    /// Time without an acknowledgement of the peer's system after which a link is closed.
    pub link_silence: Span,
    /// Most bytes read from one connection in a turn. A single long command may exceed it.
    pub read_bytes: usize,
    /// Most bytes read in a turn from one bulk link. Many chunks arrive on it at once while a node rebuilds.
    pub bulk_read_bytes: usize,
    /// Most bytes read from all clients in a turn. It bounds the delay of acks.
    pub turn_bytes: usize,
    /// Longest time of a dial, a greeting and a handshake together.
    pub handshake: Span,
    /// Longest time that a client which has stopped sending may wait for replies, or take none of them, and that a
    /// closed client may take to close too.
    pub linger: Span,
    /// A client that takes no byte of the replies that wait for it is closed after this time.
    pub unread_max: Span,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            clients: ClientLimits::default(),
            sockets_max: usize::MAX,
            reply_soft_max: 1 << 20,
            link_bytes_max: 256 << 20,
            link_silence: Span::from_secs(3),
            read_bytes: 64 << 10,
            bulk_read_bytes: 256 << 10,
            turn_bytes: 1 << 20,
            handshake: PROVE_WITHIN,
            linger: Span::from_secs(10),
            unread_max: Span::from_secs(60),
        }
    }
}

/// Why a shard's loop has ended.
#[derive(Debug)]
pub enum Stop {
    /// Another thread posted [`Mail::Stop`].
    Asked,
    /// Waiting for events failed.
    Failed(io::Error),
}

/// Interval of turns of an idle loop, so that heartbeats show that it is not stuck (P10.2b).
const SWEEP: Span = Span::from_ms(250);

/// Bytes read between two sweeps up to which a shard counts as idle.
const IDLE_BYTES_MAX: usize = 64 << 10;

/// One event loop, its machine and its sockets.
#[derive(Debug)]
pub struct Shard<M> {
    pub(crate) machine: M,
    pub(crate) driver: Driver,
    pub(crate) listeners: Listeners,
    pub(crate) limits: Limits,
    /// The buffer of `read`, as long as the longest recent read. Idle connections have no buffer of their own.
    pub(crate) scratch: Vec<u8>,
    /// Whether connections may wait at each listener: any key, cluster, peer, memcached.
    pub(crate) arrivals: [bool; 4],
    /// Connections refused since the last sweep.
    pub(crate) refused_count: u64,
    /// Connections of clients refused since the start.
    pub(crate) refused_clients: u64,
    /// The limit on clients that was last logged, when it was below the configured one.
    said_clients_max: usize,
    /// Up to this number of bytes held for all clients, none is closed until the next sweep: the last search found none
    /// that may be.
    let_pass_bytes: usize,
    pub(crate) poll: Poll,
    progress: Progress,
    sweep_at: Time,
    /// When the latest turn began. The loop never sleeps for longer than until the next sweep.
    pub(crate) awake_at: Time,
    /// Bytes read since the last sweep. They show whether there was a burst.
    pub(crate) moved_bytes: usize,
    /// Queue of the thread that makes huge pages, once there is one to make.
    huge: Option<mpsc::Sender<HugeRange>>,
    /// A burst has passed, and the allocator still holds the memory that it took.
    unreturned: bool,
    asked_to_stop: bool,
}

/// Most bytes of a single read. Reads grow up to it with an incomplete command, so that a long command is parsed only a
/// few times.
pub(crate) const READ_MAX: usize = 1 << 20;
pub(crate) const EVENTS: usize = 1_024;

impl<M: Machine> Shard<M> {
    /// A shard on bound sockets, with the queues through which other threads reach it.
    pub fn new(
        machine: M,
        mut listeners: Listeners,
        mut limits: Limits,
        door: Door,
    ) -> io::Result<(Self, Mailbox, Proposals, Progress)> {
        let poll = Poll::new()?;
        let registry = poll.registry();
        for (listener, token) in [
            (&mut listeners.any, ANY),
            (&mut listeners.cluster, CLUSTER),
            (&mut listeners.peer, PEER),
        ] {
            registry.register(listener, token, Interest::READABLE)?;
        }
        if let Some(listener) = &mut listeners.memcached {
            registry.register(listener, MEMCACHED, Interest::READABLE)?;
        }
        limits.clients = machine.client_limits().unwrap_or(limits.clients);
        let (agent_port, mailbox, proposals) = AgentPort::new(waker(&poll, WAKER)?);
        let progress = Progress::default();
        let driver = Driver {
            registry: registry.try_clone()?,
            clients: Clients::new(limits.clients, limits.reply_soft_max),
            links: Links::new(),
            agent_port,
            door,
            ended: VecDeque::new(),
            disk: None,
        };
        let shard = Self {
            machine,
            driver,
            listeners,
            limits,
            scratch: Vec::new(),
            arrivals: [true; 4],
            refused_count: 0,
            refused_clients: 0,
            said_clients_max: usize::MAX,
            let_pass_bytes: 0,
            poll,
            progress: progress.clone(),
            sweep_at: clock::mono() + SWEEP,
            awake_at: clock::mono(),
            moved_bytes: 0,
            huge: None,
            unreturned: false,
            asked_to_stop: false,
        };
        Ok((shard, mailbox, proposals, progress))
    }

    /// Starts the disk of a log node. The machine must have a log.
    pub fn start_disk(&mut self, directory: LogDirectory, mailbox: &Mailbox) -> io::Result<()> {
        let mailbox = mailbox.clone();
        self.driver.disk = Some(Disk::start(directory, move || mailbox.wake())?);
        Ok(())
    }

    /// Runs until told to stop. Then it has written its last byte.
    pub fn run(&mut self) -> Stop {
        let mut events = Events::with_capacity(EVENTS);
        loop {
            if let Err(error) = self.poll.poll(&mut events, self.timeout())
                && error.kind() != io::ErrorKind::Interrupted
            {
                return Stop::Failed(error);
            }
            self.note(&events);
            self.end_clients_of_stall(&mut events, clock::mono());
            self.turn();
            if self.asked_to_stop {
                return Stop::Asked;
            }
        }
    }

    /// The longest time to wait for sockets.
    fn timeout(&self) -> Option<Duration> {
        let driver = &self.driver;
        let busy = driver.clients.ready_len() + driver.links.ready_len() + driver.ended.len() > 0
            || self.arrivals.contains(&true);
        if busy {
            return Some(Duration::ZERO);
        }
        let next = self
            .machine
            .next_deadline()
            .map_or(self.sweep_at, |deadline| deadline.min(self.sweep_at));
        Some(Duration::from_nanos((next - clock::mono()).0))
    }

    /// Records which sockets are ready.
    pub(crate) fn note(&mut self, events: &Events) {
        for event in events {
            let token = event.token();
            if token == WAKER {
                continue;
            }
            if token.0 <= MEMCACHED.0 {
                self.arrivals[token.0 - ANY.0] = true;
                continue;
            }
            // Reading finds the error and its kind.
            let ending = event.is_read_closed() || event.is_write_closed() || event.is_error();
            match named(token) {
                Named::Client(id) => {
                    let Some(client) = self.driver.clients.find(id) else {
                        continue;
                    };
                    // If both sides have closed a leaving client, there may still be something to read.
                    if event.is_error() || (event.is_write_closed() && !client.leaving) {
                        self.driver.end_client(id);
                        continue;
                    }
                    client.readable |= event.is_readable();
                    client.ending |= ending;
                    let unblocked = event.is_writable() && std::mem::take(&mut client.blocked);
                    self.driver.clients.enqueue_if_able(id);
                    if unblocked {
                        self.driver.clients.touch(id);
                    }
                }
                Named::Link(id) => {
                    let Some(link) = self.driver.links.find(id) else {
                        continue;
                    };
                    link.readable |= event.is_readable() || ending;
                    link.ending |= ending;
                    let unblocked = event.is_writable() && std::mem::take(&mut link.blocked);
                    self.driver.links.enqueue(id);
                    if unblocked {
                        self.driver.links.touch(id);
                    }
                }
            }
        }
    }

    fn turn(&mut self) {
        self.progress.step();
        self.make_huge();
        let steps: [fn(&mut Self); 9] = [
            Self::tell_ends,
            Self::accept_all,
            Self::serve_links,
            Self::open_messages,
            Self::hear_disk,
            Self::ring,
            Self::serve_clients,
            Self::resume_clients,
            Self::end_turn,
        ];
        for step in steps {
            step(self);
        }
        self.flush();
        let now = clock::mono();
        if now >= self.sweep_at {
            self.sweep_at = now + SWEEP;
            self.sweep(now);
        }
    }

    pub(crate) fn tell(&mut self, event: Event<'_>) {
        self.machine.on(clock::now(), event, &mut self.driver);
    }

    /// Reports the ends of earlier turns only. Ends that the machine causes now are reported in the next turn.
    fn tell_ends(&mut self) {
        for _ in 0..self.driver.ended.len() {
            match self.driver.ended.pop_front() {
                Some(Ended::Link(link)) => self.tell(Event::LinkDown { link }),
                Some(Ended::Dial(node, channel)) => self.tell(Event::DialFailed { node, channel }),
                Some(Ended::Client(conn)) => self.tell(Event::ClientDown { conn }),
                None => return,
            }
        }
    }

    fn open_messages(&mut self) {
        while let Some(message) = self.driver.agent_port.next() {
            match message {
                Mail::Configuration(configuration) => {
                    self.tell(Event::Configuration(&configuration));
                }
                Mail::Drain { list, position, tenure } => {
                    self.tell(Event::Drain { list, position, tenure });
                }
                Mail::Nodes { records, peers } => {
                    self.driver.links.learn(peers, &records);
                    self.tell(Event::Nodes(&records));
                }
                Mail::Suspicion(ms) => self.tell(Event::Suspicion { ms }),
                Mail::ActiveVersion(version) => self.tell(Event::ActiveVersion(version)),
                Mail::Answer { conn, n, answer } => {
                    self.tell(Event::Answer {
                        conn,
                        n,
                        answer: &answer,
                    });
                }
                Mail::Stop => self.asked_to_stop = true,
            }
        }
    }

    fn hear_disk(&mut self) {
        while let Some((id, outcome)) = self.driver.disk.as_ref().and_then(Disk::next_done) {
            // Written data leaves memory to be freed, even if nothing more arrives on the sockets.
            self.moved_bytes = self.moved_bytes.max(IDLE_BYTES_MAX + 1);
            self.tell(Event::Disk { id, outcome });
        }
    }

    fn ring(&mut self) {
        if let Some(deadline) = self.machine.next_deadline()
            && clock::mono() >= deadline
        {
            self.tell(Event::Timer);
        }
    }

    /// A command of this turn may have changed the limits: they hold before its reply leaves.
    fn end_turn(&mut self) {
        self.tell(Event::TurnEnd);
        self.limits.clients = self.machine.client_limits().unwrap_or(self.limits.clients);
    }

    /// The last step of a turn, and the only one that writes. A reply that leaves was still true just before (P4.2).
    fn flush(&mut self) {
        let now = clock::mono();
        let links = self.driver.links.take_touched();
        for id in &links {
            let Some(link) = self.driver.links.find(*id) else {
                continue;
            };
            if link.is_connected() && (!link.flush(Some(now)) || link.unwritten_bytes() > self.limits.link_bytes_max) {
                self.driver.end_link(*id);
            }
        }
        self.driver.links.give_back(links);

        let clients = self.driver.clients.take_touched();
        for id in &clients {
            let Some(client) = self.driver.clients.find(*id) else {
                continue;
            };
            let flushed = client.flush(now);
            if flushed == Flushed::End || client.unwritten_bytes() > self.limits.clients.reply_bytes_max {
                self.driver.end_client(*id);
                continue;
            }
            if flushed == Flushed::Leave {
                self.driver.leave_client(*id, now);
                continue;
            }
            self.driver.clients.weigh(*id);
            self.driver.clients.enqueue_if_able(*id);
        }
        self.driver.clients.give_back(clients);
        let bytes_max = self.limits.clients.bytes_max.max(self.let_pass_bytes);
        if self.driver.clients.weight_bytes() > bytes_max {
            self.end_heaviest();
        }
    }

    /// All clients together hold more than allowed (P8.3): closes those that hold most.
    fn end_heaviest(&mut self) {
        let ClientLimits {
            bytes_max, alone_bytes, ..
        } = self.limits.clients;
        // Shrink buffers first; disconnect clients only if that frees too little.
        self.driver.clients.shrink(bytes_max);
        while self.driver.clients.weight_bytes() > bytes_max {
            let all = self.driver.clients.weight_bytes();
            let Some((id, bytes)) = self.driver.clients.heaviest() else {
                // None may be closed.
                self.let_pass_bytes = usize::MAX;
                return;
            };
            if all - bytes.min(alone_bytes) <= bytes_max {
                self.let_pass_bytes = all + LET_PASS_BYTES;
                return;
            }
            tracing::warn!(
                "client closed: {bytes} bytes are held for it, {all} for all clients, and {bytes_max} are allowed \
                 (`clients_memory`, CONFIG SET maxmemory-clients)"
            );
            self.driver.end_client(id);
        }
    }

    /// Number of clients that are accepted: the configured limit, or fewer if descriptors must be left for peers.
    pub(crate) fn clients_max(&self) -> usize {
        let room = self.limits.sockets_max.saturating_sub(self.driver.links.reserved());
        self.limits.clients.clients_max.min(room)
    }

    /// Logs the limit on clients once the peers are known, and again only if it gets lower.
    fn say_clients_max(&mut self) {
        let (allowed, taken) = (self.limits.clients.clients_max, self.clients_max());
        if taken < allowed.min(self.said_clients_max) && self.driver.links.knows_peers() {
            tracing::warn!(
                "accepts {taken} clients instead of {allowed}: the other nodes need descriptors too. Allow this \
                 process {} more (`ulimit -n`, or LimitNOFILE= in systemd), or set clients_max = {taken}",
                allowed - taken
            );
            self.said_clients_max = taken;
        }
    }

    /// Runs a few times a second: gauges, memory after bursts, and connections that wait too long.
    fn sweep(&mut self, now: Time) {
        self.let_pass_bytes = 0;
        self.limits.clients = self.machine.client_limits().unwrap_or(self.limits.clients);
        self.driver.clients.on_sweep(self.limits.clients);
        let mut buffers = self.scratch.capacity();
        let busy = core::mem::take(&mut self.moved_bytes) > IDLE_BYTES_MAX;
        for id in self.driver.links.ids() {
            let Some(link) = self.driver.links.find(id) else {
                continue;
            };
            link.shrink(busy);
            buffers += link.held_bytes();
            if link.bound.is_none() && now - link.since > self.limits.handshake {
                let stranger = link.address.filter(|_| !link.up && link.dialed.is_none());
                if let Some(address) = stranger {
                    self.driver.door.refusals.note(Some(address), &Late::Overdue);
                }
                self.driver.end_link(id);
            }
        }
        for id in self.driver.clients.ids() {
            let Some(client) = self.driver.clients.find(id) else {
                continue;
            };
            client.shrink(busy);
            buffers += client.held_bytes();
            let is_unread = client.is_unread(now, self.limits.unread_max);
            if is_unread {
                tracing::warn!(
                    client = client.stream.peer_addr().ok().map(tracing::field::display),
                    replies_bytes = client.unwritten_bytes(),
                    commands_bytes = client.input.len(),
                    "client closed: it has taken no byte of its replies for {} s. A client that sends this much must \
                     read while it sends",
                    self.limits.unread_max.as_ms() / 1000
                );
            }
            let written = client.write_again(now);
            if is_unread || client.is_overdue(now, self.limits.linger) || written.is_err() {
                self.driver.end_client(id);
                continue;
            }
            if matches!(written, Ok(true)) {
                self.driver.clients.touch(id);
            }
            self.driver.clients.weigh(id);
            // Others may have freed memory for what it sends.
            self.driver.clients.enqueue_if_able(id);
        }
        self.give_memory_back(busy);
        self.say_clients_max();
        let mut gauges = self.machine.gauges();
        gauges.memory.push(("sockets", buffers as u64));
        let counted_bytes: u64 = gauges.memory.iter().map(|(_, bytes)| bytes).sum();
        let usage = usage::measure();
        let figures = ProcessFigures {
            sockets_bytes: buffers as u64,
            beside_bytes: usage.resident_bytes.saturating_sub(counted_bytes),
            refused_clients: self.refused_clients,
            ..usage
        };
        self.machine.set_process(now, figures);
        self.progress.publish(gauges);
        // Connections that waited for descriptors are accepted now if possible.
        self.arrivals = [true; 4];
        if self.refused_count > 0 {
            tracing::warn!(count = self.refused_count, "connections refused: limit reached");
            self.refused_count = 0;
        }
    }

    /// Makes parts of the arena huge pages, on another thread: each takes milliseconds.
    fn make_huge(&mut self) {
        while let Some(range) = self.machine.next_huge() {
            let thread = self.huge.get_or_insert_with(|| {
                let (sender, ranges) = mpsc::channel::<HugeRange>();
                let make = move || ranges.into_iter().for_each(HugeRange::make);
                // Without the thread, pages stay small.
                let _ = std::thread::Builder::new().name("huge-pages".to_owned()).spawn(make);
                sender
            });
            if thread.send(range).is_err() {
                return;
            }
        }
    }

    /// Returns memory to the system once a burst is over; the allocator would keep it (P1.3, "Ring memory is
    /// returned when stable").
    fn give_memory_back(&mut self, busy: bool) {
        if busy {
            self.unreturned = true;
        } else if core::mem::take(&mut self.unreturned) {
            self.scratch = Vec::new();
            #[cfg(target_env = "gnu")]
            // SAFETY: malloc_trim may be called at any time and touches no live allocation.
            #[allow(unsafe_code)]
            unsafe {
                libc::malloc_trim(0);
            }
        }
    }
}
