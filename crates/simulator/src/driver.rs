//! One simulated process: a node, its buffers, and its clock. It calls the machine in the same way as `io`.

use crate::disks::Disk;
use crate::marks::Marks;
use paritas_base::{Clock, ConnId, Incarnation, ListId, Map, NodeId, Span, Time};
use paritas_frontend::Node;
use paritas_protocol::paritylog::Io;
use paritas_protocol::{Channel, FrameBuf, HaltReason, LinkId, Mark, Out, Proposal, ReplyBuf, Role};
use std::collections::BTreeMap;

/// Requests and output of a machine.
#[derive(Default, Debug)]
pub(crate) struct Outbox {
    /// Outgoing frames of every open link.
    pub(crate) links: BTreeMap<LinkId, FrameBuf>,
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
    /// Removes a link that has ended.
    pub(crate) fn forget(&mut self, link: LinkId) {
        self.links.remove(&link);
        self.bound.retain(|_, l| *l != link);
    }
}

impl Out for Outbox {
    fn peer(&mut self, node: NodeId, channel: Channel) -> Option<&mut FrameBuf> {
        self.links.get_mut(self.bound.get(&(node, channel))?)
    }
    fn link(&mut self, link: LinkId) -> Option<&mut FrameBuf> {
        self.links.get_mut(&link)
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
    /// The machine.
    pub(crate) node: Node,
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
            out: Outbox::default(),
            disk: None,
            inputs: BTreeMap::new(),
            paused_until: Time(0),
            stopped_at: None,
            unflushed: false,
            turn_open: false,
            timer_at: None,
            spins: (Time(0), 0),
            offset,
            rate_ppm,
            wall_ms,
        }
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
        let mono = self.offset + (u128::from(now.0) * u128::from(self.rate_ppm) / u128::from(MILLION)) as u64;
        Clock {
            mono: Time(mono),
            wall_ms: 1_000_000 + self.wall_ms + now.0 / MILLION,
        }
    }

    /// The true time at which its clock shows `local`, or just after.
    pub(crate) fn true_time(&self, local: Time) -> Time {
        let since = local.0.saturating_sub(self.offset);
        Time((u128::from(since) * u128::from(MILLION) / u128::from(self.rate_ppm)) as u64 + 1)
    }
}
