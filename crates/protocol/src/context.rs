//! What a role borrows while it handles one event.

use crate::asked::Asked;
use crate::bodies::SpareMemory;
use crate::disk_log::DiskLog;
use crate::interface::{Channel, HaltReason, Out, ProcessFigures, Proposal};
use crate::log_assist::Suppliers;
use crate::pace::Pace;
use crate::parameters::Parameters;
use crate::readers::Readers;
use crate::rules::Rules;
use crate::scrub::{Scrub, ScrubCounts};
use crate::session::Sessions;
use crate::slot_map::SlotMap;
use crate::stash::Stashes;
use crate::stream_owner::SpaceWanted;
use crate::takeovers::Takeovers;
use paritas_base::configuration::{ClusterRecord, Tenure};
use paritas_base::formats::TOMORROW;
use paritas_base::{
    Clock, Epoch, Incarnation, ListId, NodeId, Position, Prng, Span, StreamId, Stripe, Time, TurnBudget,
};
use paritas_code::Code;
use paritas_store::{Arena, Limits};
use paritas_wire::peer::{self, ChunkStatus, Header, Message};

/// Stripe numbers below this can exist even if this node has little memory: other nodes may have more.
const STRIPES_ALWAYS: u32 = 1 << 16;

/// What all roles of a node share.
#[derive(Debug)]
pub struct Shared {
    /// This node.
    pub node: NodeId,
    /// Its present incarnation.
    pub incarnation: Incarnation,
    /// The cluster, as registered.
    pub cluster: ClusterRecord,
    /// The stream of each hash slot.
    pub slots: SlotMap,
    /// Times, limits and rates.
    pub parameters: Parameters,
    /// The code of the cluster's scheme.
    pub code: Code,
    /// The memory of all chunks here.
    pub arena: Arena,
    pub(crate) stashes: Stashes,
    /// The parity chunks of a log node.
    pub(crate) disk: Option<DiskLog>,
    /// The configured memory for everything, in bytes.
    pub maxmemory_bytes: u64,
    /// The largest value it may be set to while the node runs: the address space is laid out once.
    pub maxmemory_bytes_max: u64,
    /// Keys that this node has evicted.
    pub evicted_keys: u64,
    /// Keys whose time was over, and that this node has deleted.
    pub expired_keys: u64,
    /// Lookups of commands that read which found the key.
    pub keyspace_hits: u64,
    /// Those that did not.
    pub keyspace_misses: u64,
    /// Writes that were refused because memory is short.
    pub refused_writes: u64,
    /// Values whose parts a client has sent, and which do not belong together (P14.20).
    pub forged_values: u64,
    /// Keys whose large value lost more parts than its class bears.
    pub lost_values: u64,
    /// Values that got the class of hot values because they were read often.
    pub to_hot_values: u64,
    /// Values that lost it.
    pub to_cold_values: u64,
    /// The stream whose owner changes the class of a value by how often it is read, and until when it may: one at a
    /// time on a node.
    pub(crate) changing: Option<(StreamId, Time)>,
    /// When the next such change may begin.
    pub(crate) change_at: Time,
    /// What the driver has measured last.
    pub process: ProcessFigures,
    /// The most memory that the process has ever had.
    pub resident_peak_bytes: u64,
    /// Bytes that the process has had beyond those, for a moment. They count less and less.
    pub(crate) burst_bytes: u64,
    /// Memory of all buffers, in bytes, as last counted.
    pub buffers_bytes: u64,
    /// The largest memory use counted so far, in bytes; it is counted ten times a second.
    pub memory_peak_bytes: u64,
    pub(crate) sessions: Sessions,
    pub(crate) pace: Pace,
    pub(crate) suppliers: Suppliers,
    /// What commands may still do in this turn.
    pub turn_budget: TurnBudget,
    /// Random numbers, for jitter and random choices.
    pub prng: Prng,
    /// Roles that broke an invariant during this event; they end with it.
    pub(crate) halting: Vec<(ListId, Position, String)>,
    /// Frames between roles of this node. They are read before the turn ends, or in the next turn if the round limit
    /// was reached.
    pub(crate) own_frames: Vec<u8>,
    /// The id of the newest request to a peer. Ids are not reused.
    pub(crate) request_id: u64,
    /// A position that is not whole needs more chunks in memory for commands or peers that wait.
    pub(crate) space_wanted: Option<SpaceWanted>,
    /// Large values that clients of this node read.
    pub readers: Readers,
    /// Bytes of bodies of large values that are held here for owners and readers, or will be.
    pub(crate) bodies_bytes: u64,
    pub(crate) spare_bodies: SpareMemory,
    /// Chunks whose sum did not match when they were read or decoded.
    pub(crate) bad_sums: u64,
    pub(crate) scrub: Scrub,
    pub(crate) takeovers: Takeovers,
    pub(crate) asked: Asked,
}

impl Shared {
    /// Sets the counts of keys and of lookups to zero.
    pub const fn reset_counts(&mut self) {
        self.forged_values = 0;
        (self.evicted_keys, self.expired_keys, self.refused_writes) = (0, 0, 0);
        (self.keyspace_hits, self.keyspace_misses) = (0, 0);
    }

    /// Whether a chunk can have this number. Tables grow with stripe numbers, and frames must not make them grow
    /// without limit. An owner has no more chunks than its memory takes, and may have more memory than this node. Other
    /// bits are those of no stripe.
    pub(crate) fn can_exist(&self, stripe: Stripe) -> bool {
        let on_disk = self.disk.as_ref().map_or(0, |disk| disk.log.chunks_max());
        let has_flags = stripe.0 & !(Stripe::INDEX_BIT | Stripe::NUMBER_MAX) != 0;
        !has_flags
            && stripe.number()
                < self
                    .arena
                    .slots_max()
                    .max(on_disk)
                    .saturating_mul(4)
                    .max(STRIPES_ALWAYS)
    }

    /// Chunks of memory that neither writers nor background work may take ([`paritas_store::Budget::set_headroom`]).
    pub(crate) fn headroom(&self) -> u32 {
        self.arena.budget().headroom()
    }

    /// When the last frame of that incarnation was received; before the first one, when the incarnation became known.
    /// `None`: it is not the node's present one.
    pub fn heard_at(&self, node: NodeId, incarnation: Incarnation) -> Option<Time> {
        self.sessions.heard_at(node, incarnation)
    }

    /// The longest value in bytes that lies in stripes with others. A longer one is large (P14).
    pub fn small_bytes_max(&self) -> usize {
        let object_max = Limits::of(self.arena.chunk_bytes()).value_bytes;
        self.parameters.large_from.min(object_max)
    }

    /// Changes the rate of rebuilds in the background, in bytes a second; `None`: unlimited.
    pub fn set_rebuild_rate(&mut self, rate: Option<u64>) {
        self.parameters.rebuild_rate = rate;
        self.pace.set_anew();
    }

    /// Changes the rate of the scrub, in bytes a second; `None`: none.
    pub fn set_scrub_rate(&mut self, rate: Option<u64>) {
        self.parameters.scrub_rate = rate;
        self.scrub.next_at = Time(0);
    }

    /// The takeovers of this incarnation.
    pub fn takeovers(&self) -> &Takeovers {
        &self.takeovers
    }

    /// Chunks rebuilt with a parity of a log node in place of a chunk in memory.
    pub fn assisted_chunks(&self) -> u64 {
        self.suppliers.assisted
    }

    /// Chunks whose sum did not match when they were read or decoded (P9.1).
    pub fn bad_sums(&self) -> u64 {
        self.bad_sums
    }

    /// What the scrub has counted.
    pub fn scrub_counts(&self) -> ScrubCounts {
        self.scrub.counts()
    }
}

/// See [`Context::is_backed_up`].
const LINK_BYTES_SOFT_MAX: usize = 1 << 20;

/// What a role or a command may use while one event is handled.
pub struct Context<'a, O: Out> {
    /// The time of the event.
    pub now: Clock,
    /// The driver.
    pub out: &'a mut O,
    /// What all roles of the node share.
    pub shared: &'a mut Shared,
}

impl<O: Out> Context<'_, O> {
    /// The monotonic clock of the event.
    pub fn mono(&self) -> Time {
        self.now.mono
    }

    /// The rules of the protocol.
    pub fn rules(&self) -> Rules {
        self.shared.parameters.rules
    }

    /// Appends a frame for exactly that incarnation of that node, which may be this one. False if no session with it is
    /// open: the sender sends it again by timer if it must arrive.
    pub fn send(
        &mut self,
        to: &Tenure,
        channel: Channel,
        stream: StreamId,
        epoch: Epoch,
        message: &Message<'_>,
    ) -> bool {
        self.send_to(to.node, to.incarnation, channel, stream, epoch, message)
    }

    /// As [`Self::send`], by node and incarnation.
    pub fn send_to(
        &mut self,
        node: NodeId,
        incarnation: Incarnation,
        channel: Channel,
        stream: StreamId,
        epoch: Epoch,
        message: &Message<'_>,
    ) -> bool {
        let Some((frames, _)) = self.frames_to(node, incarnation, channel) else {
            return false;
        };
        peer::encode(frames, &Header { stream, epoch }, message);
        true
    }

    /// Asks a peer for its configuration of the list, which is newer than that of this node (P2.2): of epoch `wanted`.
    /// False if there is no session to ask by.
    pub fn ask_configuration(
        &mut self,
        (node, incarnation): (NodeId, Incarnation),
        stream: StreamId,
        installed: Epoch,
        wanted: Epoch,
    ) -> bool {
        // A session loses no message: one question for an epoch is enough.
        let (now, wait) = (self.mono(), self.shared.parameters.resend);
        if !self.shared.asked.is_due(stream.list, node, wanted, now, wait) {
            return true;
        }
        let tomorrow = self.shared.sessions.versions().has(TOMORROW);
        let message = Message::GetConfiguration { tomorrow };
        let sent = self.send_to(node, incarnation, Channel::Main, stream, installed, &message);
        if sent {
            self.shared.asked.note(stream.list, node, wanted, now);
        }
        sent
    }

    /// Whether a frame for it could be sent now.
    pub fn reaches(&self, to: &Tenure, channel: Channel) -> bool {
        let shared = &*self.shared;
        (to.node, to.incarnation) == (shared.node, shared.incarnation)
            || shared.sessions.incarnation_of(to.node, channel) == Some(to.incarnation)
    }

    /// Whether more than 1 MiB waits to be sent to a peer. Nothing long is sent to it then: acks, heartbeats and short
    /// commands wait behind one long message at most.
    pub fn is_backed_up(&mut self, to: NodeId, channel: Channel) -> bool {
        let buffer = self.out.peer(to, channel);
        buffer.is_some_and(|buffer| buffer.bytes.len() + buffer.waiting > LINK_BYTES_SOFT_MAX)
    }

    /// The buffer for frames to that incarnation of that node, if they can be sent. And the arena: frames may hold
    /// chunks.
    pub(crate) fn frames_to(
        &mut self,
        node: NodeId,
        incarnation: Incarnation,
        channel: Channel,
    ) -> Option<(&mut Vec<u8>, &Arena)> {
        let shared = &mut *self.shared;
        if (node, incarnation) == (shared.node, shared.incarnation) {
            // An owner and a member of a list on one node, or two owners (P10.5).
            return Some((&mut shared.own_frames, &shared.arena));
        }
        if shared.sessions.incarnation_of(node, channel) != Some(incarnation) {
            return None;
        }
        Some((&mut self.out.peer(node, channel)?.bytes, &shared.arena))
    }

    /// Measures how a node answers: once a message, before any role handles it. The role that asked may no longer wait.
    pub(crate) fn note_answer(&mut self, from: NodeId, message: &Message<'_>) {
        let (id, given) = match message {
            Message::ChunkValue { id, status, .. } => (*id, *status == ChunkStatus::Here),
            Message::ParityValue { id, parity, .. } => (*id, parity.is_some()),
            _ => return,
        };
        let Shared {
            suppliers, parameters, ..
        } = &mut *self.shared;
        let refused = (!given).then_some(parameters.resend);
        suppliers.answered(from, id, self.now.mono, refused);
    }

    /// Asks the coordinator, or the process. May be lost.
    pub fn propose(&mut self, proposal: Proposal) {
        self.out.propose(proposal);
    }

    /// A broken invariant: the role at this position ends with this event (P3.5). Only the first one is reported: later
    /// ones may follow from it.
    pub(crate) fn halt(&mut self, list: ListId, position: Position, reason: String) {
        if !self.is_halting(list, position) {
            self.out.halt(HaltReason(reason.clone()));
            self.shared.halting.push((list, position, reason));
        }
    }

    /// Halts the role at this position if an invariant is broken (P3.5). `text` names it, and is made only then.
    #[inline]
    pub(crate) fn ensure(&mut self, list: ListId, position: Position, holds: bool, text: impl FnOnce() -> String) {
        if !holds {
            self.halt(list, position, text());
        }
    }

    /// Whether the role at this position has broken an invariant in this event: it sends nothing.
    pub(crate) fn is_halting(&self, list: ListId, position: Position) -> bool {
        let mut halting = self.shared.halting.iter();
        halting.any(|(l, p, _)| (*l, *p) == (list, position))
    }

    /// Whether a role that is rebuilding `busy_with` chunks may begin one more in the background. `busy_with` includes
    /// chunks that were asked for again, which the pace leaves out.
    pub(crate) fn may_rebuild(&self, busy_with: usize) -> bool {
        let parameters = &self.shared.parameters;
        busy_with < parameters.fetch_max && self.shared.pace.allows(parameters, self.now.mono)
    }

    pub(crate) fn rebuild_begins(&mut self) {
        let Shared {
            pace,
            parameters,
            arena,
            ..
        } = self.shared;
        pace.begins(parameters, self.now.mono, arena.chunk_bytes());
    }

    /// A unit has come. `bytes`: the bytes of a part that it rebuilds.
    pub(crate) fn unit_came(&mut self, bytes: usize) {
        let Shared { pace, parameters, .. } = self.shared;
        pace.charges(parameters, self.now.mono, bytes);
    }

    pub(crate) fn next_request_id(&mut self) -> u64 {
        self.shared.request_id += 1;
        self.shared.request_id
    }

    /// The end of a wait of `span` and up to half as much again, at random: nodes with the same waits must not act at
    /// the same times.
    pub(crate) fn after(&mut self, span: Span) -> Time {
        self.now.mono + Span(span.0 + self.shared.prng.below(span.0 / 2 + 1))
    }
}
