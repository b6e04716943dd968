//! One simulated process: a node, its buffers, and its clock. It calls the machine in the same way as `io`.

use crate::disks::Disk;
use crate::marks::Marks;
use paritas_base::{Clock, ConnId, Incarnation, ListId, Map, NodeId, Position, Span, StreamId, Time};
use paritas_frontend::Node;
use paritas_protocol::paritylog::Io;
use paritas_protocol::{Channel, Event, FrameBuf, HaltReason, LinkId, List, Mark, Out, Proposal, ReplyBuf, Role};
use std::collections::BTreeMap;

/// Requests and output of a machine.
#[derive(Default, Debug)]
pub(crate) struct Outbox {
    /// Outgoing frames of every open link. Only what `touched` names can have any.
    links: BTreeMap<LinkId, FrameBuf>,
    /// Links whose buffer the machine has asked for since they were flushed. Some are named twice, or have ended.
    touched: Vec<LinkId>,
    bound: Map<(NodeId, Channel), LinkId>,
    /// Outgoing replies of every client.
    pub(crate) clients: BTreeMap<ConnId, ReplyBuf>,
    /// Dials to make.
    pub(crate) dials: Vec<(NodeId, Channel)>,
    /// Links to close.
    pub(crate) closed: Vec<LinkId>,
    /// Proposals to the coordinator.
    pub(crate) proposals: Vec<Proposal>,
    /// Reads and writes for the disk.
    pub(crate) ios: Vec<Io>,
    /// The text of the invariant that was broken, if a role has halted.
    pub(crate) halted: Option<String>,
    /// Rare situations that occurred.
    pub(crate) marks: Marks,
}

impl Outbox {
    /// A link is open.
    pub(crate) fn open(&mut self, link: LinkId) {
        self.links.entry(link).or_default();
    }

    pub(crate) fn is_open(&self, link: LinkId) -> bool {
        self.links.contains_key(&link)
    }

    /// The links with something to send, or with a deadline, in order. They count as flushed.
    pub(crate) fn take_ready_links(&mut self) -> Vec<LinkId> {
        let mut ready = core::mem::take(&mut self.touched);
        let is_ready = |buffer: &FrameBuf| !buffer.bytes.is_empty() || buffer.deadline.is_some();
        ready.retain(|link| self.links.get(link).is_some_and(is_ready));
        ready.sort_unstable();
        ready.dedup();
        ready
    }

    /// The buffer of an open link that is being flushed.
    pub(crate) fn ready(&mut self, link: LinkId) -> Option<&mut FrameBuf> {
        self.links.get_mut(&link)
    }

    /// Keeps the memory of a list of links for the next flush.
    pub(crate) fn recycle(&mut self, mut links: Vec<LinkId>) {
        if self.touched.is_empty() {
            links.clear();
            self.touched = links;
        }
    }

    /// Whether a session uses the link.
    pub(crate) fn is_bound(&self, link: LinkId) -> bool {
        self.bound.values().any(|bound| *bound == link)
    }

    /// Removes a link that has ended.
    pub(crate) fn forget(&mut self, link: LinkId) {
        self.links.remove(&link);
        self.bound.retain(|_, l| *l != link);
    }
}

impl Out for Outbox {
    fn peer(&mut self, node: NodeId, channel: Channel) -> Option<&mut FrameBuf> {
        let link = *self.bound.get(&(node, channel))?;
        self.link(link)
    }
    fn link(&mut self, link: LinkId) -> Option<&mut FrameBuf> {
        let buffer = self.links.get_mut(&link)?;
        if self.touched.last() != Some(&link) {
            self.touched.push(link);
        }
        Some(buffer)
    }
    fn dial(&mut self, node: NodeId, channel: Channel) {
        self.dials.push((node, channel));
    }
    fn bind(&mut self, link: LinkId, node: NodeId, channel: Channel) {
        self.bound.insert((node, channel), link);
    }
    fn close(&mut self, link: LinkId) {
        self.forget(link);
        self.closed.push(link);
    }
    fn client(&mut self, conn: ConnId) -> Option<&mut ReplyBuf> {
        self.clients.get_mut(&conn)
    }
    fn propose(&mut self, proposal: Proposal) {
        self.proposals.push(proposal);
    }
    fn disk(&mut self, io: Io) {
        self.ios.push(io);
    }
    fn halt(&mut self, reason: HaltReason) {
        self.halted = Some(reason.0);
    }
    fn mark(&mut self, mark: Mark) {
        self.marks.reach(mark);
    }
}

/// A process.
#[derive(Debug)]
pub(crate) struct Process {
    /// The node's id.
    pub(crate) id: NodeId,
    /// Its incarnation.
    pub(crate) incarnation: Incarnation,
    /// The machine. It gets its events by [`Process::on`].
    pub(crate) node: Node,
    /// The streams that it has owner roles for, and whether the latest event is counted in.
    owned: (Streams, bool),
    /// Requests and output of the machine.
    pub(crate) out: Outbox,
    /// Its disk, if it is a log node.
    pub(crate) disk: Option<Disk>,
    /// Client input that is not consumed.
    pub(crate) inputs: BTreeMap<ConnId, Vec<u8>>,
    /// The process is stopped until this time (SIGSTOP).
    pub(crate) paused_until: Time,
    /// If the process was stopped after it read its clock for clients and before it read their input: that time. It
    /// continues with the input under the old clock (P4.2, H12).
    pub(crate) stopped_at: Option<Time>,
    /// When it handled an event last.
    pub(crate) ran_at: Time,
    /// The output of the last turn is still to be written.
    pub(crate) unflushed: bool,
    /// Events were handled in this turn, and its end is still to come.
    pub(crate) turn_open: bool,
    /// Time of the timer event that is queued.
    pub(crate) timer_at: Option<Time>,
    /// Start of the present millisecond of timer events, and their number in it.
    pub(crate) spins: (Time, u32),
    offset: u64,
    rate_ppm: u64,
    /// Time by which its wall clock is ahead, in ms.
    wall_ms: u64,
}

const MILLION: u64 = 1_000_000;

impl Process {
    /// A process of a new incarnation.
    pub(crate) fn new(node: Node, rate_ppm: u64, offset: u64, wall_ms: u64) -> Self {
        Self {
            id: node.replica().id(),
            incarnation: node.replica().incarnation(),
            node,
            owned: Default::default(),
            out: Outbox::default(),
            disk: None,
            inputs: BTreeMap::new(),
            paused_until: Time(0),
            stopped_at: None,
            ran_at: Time(0),
            unflushed: false,
            turn_open: false,
            timer_at: None,
            spins: (Time(0), 0),
            offset,
            rate_ppm,
            wall_ms,
        }
    }

    /// Gives the machine an event.
    pub(crate) fn on(&mut self, clock: Clock, event: Event<'_>) {
        self.owned.1 = false;
        self.node.on(clock, event, &mut self.out);
    }

    /// The streams that it has owner roles for.
    pub(crate) fn owned(&mut self, data: u8) -> &Streams {
        let (owned, is_known) = &mut self.owned;
        if !*is_known {
            *is_known = true;
            owned.0.clear();
            for owner in self.node.replica().lists().flat_map(List::owners) {
                owned.insert(owner.stream(), data);
            }
        }
        owned
    }

    /// Clients with input that the machine may process, in order.
    pub(crate) fn ready_inputs(&self) -> Vec<ConnId> {
        let may = |conn: &ConnId| self.out.clients.get(conn).is_some_and(|c| !c.stalled && !c.close);
        let waiting = self
            .inputs
            .iter()
            .filter(|(conn, input)| !input.is_empty() && may(conn));
        waiting.map(|(conn, _)| *conn).collect()
    }

    /// Its roles in all lists.
    pub(crate) fn roles(&self) -> impl Iterator<Item = (ListId, &Role)> {
        let lists = self.node.replica().lists();
        lists.flat_map(|list| list.roles.iter().map(|role| (list.configuration.list, role)))
    }

    /// When it handles events that arrived while it was stopped. Client input comes first if it was about to read that.
    pub(crate) fn resumes_at(&self) -> Time {
        self.paused_until + Span(u64::from(self.stopped_at.is_some()))
    }

    /// Sets its wall clock, forwards or backwards.
    pub(crate) fn set_wall(&mut self, wall_ms: u64) {
        self.wall_ms = wall_ms;
    }

    /// Its monotonic clock as read at one time, with the wall clock of another. The expiry of keys during a stop is not
    /// tested.
    pub(crate) fn clock_of(&self, read_at: Time, now: Time) -> Clock {
        Clock {
            mono: self.clock(read_at).mono,
            ..self.clock(now)
        }
    }

    /// Its clock at a true time.
    pub(crate) fn clock(&self, now: Time) -> Clock {
        let mono = self.offset + scaled(now.0, self.rate_ppm, MILLION);
        Clock {
            mono: Time(mono),
            wall_ms: 1_000_000 + self.wall_ms + now.0 / MILLION,
        }
    }

    /// The true time at which its clock shows `local`, or just after.
    pub(crate) fn true_time(&self, local: Time) -> Time {
        let since = local.0.saturating_sub(self.offset);
        Time(scaled(since, MILLION, self.rate_ppm) + 1)
    }
}

/// `n · by / of`. Most products fit 64 bits, where a division costs a tenth.
fn scaled(n: u64, by: u64, of: u64) -> u64 {
    match n.checked_mul(by) {
        Some(product) => product / of,
        None => (u128::from(n) * u128::from(by) / u128::from(of)) as u64,
    }
}

/// A set of streams.
#[derive(Clone, Default, Debug)]
pub(crate) struct Streams(Vec<u64>);

impl Streams {
    fn insert(&mut self, stream: StreamId, data: u8) {
        let n = usize::from(stream.list.0) * usize::from(data) + usize::from(stream.x.0);
        if n / 64 >= self.0.len() {
            self.0.resize(n / 64 + 1, 0);
        }
        self.0[n / 64] |= 1 << (n % 64);
    }

    /// Adds those of another set that this one has too to `both`.
    pub(crate) fn add_common(&self, other: &Self, both: &mut Self) {
        for (i, (mine, theirs)) in self.0.iter().zip(&other.0).enumerate() {
            if mine & theirs != 0 {
                if i >= both.0.len() {
                    both.0.resize(i + 1, 0);
                }
                both.0[i] |= mine & theirs;
            }
        }
    }

    /// All of them, in order.
    pub(crate) fn iter(&self, data: u8) -> impl Iterator<Item = StreamId> {
        let in_word = |(i, word): (usize, &u64)| {
            let word = *word;
            (0..64)
                .filter(move |bit| word >> bit & 1 == 1)
                .map(move |bit| 64 * i + bit)
        };
        self.0.iter().enumerate().flat_map(in_word).map(move |n| StreamId {
            list: ListId((n / usize::from(data)) as u16),
            x: Position((n % usize::from(data)) as u8),
        })
    }
}
