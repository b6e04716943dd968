//! The roles of one node: installs configurations, applies the epoch fence, and passes events to roles.
//!
//! A front end uses it: it serves clients, and runs their commands on the owners of this node. It calls the replica for
//! each event, and for each phase at the end of a turn. The replica reports changes to it as [`Notice`]s.

mod disk;
mod dispatch;
mod frames;
mod housekeep;
mod install;
mod large;
mod leases;
mod memory;
mod opinions;
mod scrub;
mod turn;

use crate::asked::Asked;
use crate::bodies::SpareMemory;
use crate::context::{Context, Shared};
use crate::disk_log::DiskLog;
use crate::interface::{Channel, Event, Identity, Out, ProcessFigures};
use crate::lists::{Halted, List, Lists, Role};
use crate::log_assist::Suppliers;
use crate::pace::Pace;
use crate::parameters::Parameters;
use crate::readers::{Readers, ValueRange};
use crate::rules::Fault;
use crate::scrub::Scrub;
use crate::session::Sessions;
use crate::slot_map::SlotMap;
use crate::stash::Stashes;
use crate::stream_owner::Phase;
use crate::takeovers::Takeovers;

use memory::{BURST_DECAY, SLOTS_MAX};
pub use memory::{Figures, Fill};
pub use opinions::Opinions;
use paritas_base::configuration::ClusterRecord;
use paritas_base::formats::Versions;
use paritas_base::{
    Clock, ConnId, Epoch, Incarnation, ListId, NodeId, Position, Prng, Span, StreamId, Time, TurnBudget,
};
use paritas_code::{Code, Scheme};
use paritas_store::{Arena, HugeRange, Old};
use paritas_wire::peer::{self, Kind, Message, StageState};
pub use scrub::{flip_bit, flip_bit_of_unit};
use std::borrow::Cow;

/// The most rounds of exchange between roles of this node in one event; a question and its answer are two. The rest is
/// left to the next turn, so that a rebuild from chunks of this node does not delay other work.
const EXCHANGES_MAX: usize = 16;

/// A change that commands of the front end may wait for, or may fail by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// The configuration of a list is new, or a role of it has halted.
    Configuration(ListId),
    /// Hash slots have moved to another stream, or are served again.
    Slots,
    /// A session is up: messages that could not be sent may be sent now.
    SessionUp,
    /// A peer's incarnation or its link has ended: questions sent on the link are not answered.
    SessionDown(NodeId, Incarnation),
}

/// A message of a peer's front end to the front end of this node.
#[derive(Clone, Debug)]
pub enum FrontMessage<'a> {
    /// A command of a client of the peer.
    Command {
        /// The peer.
        from: (NodeId, Incarnation),
        /// The client, as the peer names it.
        conn: ConnId,
        /// The command.
        command: PeerCommand<'a>,
    },
    /// The answer to a command that this node has forwarded.
    Reply {
        /// The peer.
        from: NodeId,
        /// The client of this node.
        conn: ConnId,
        /// The command's number.
        n: u64,
        /// The reply.
        bytes: &'a [u8],
    },
    /// How far a value is that this node sends to its owner ahead of the command (P14.13).
    Staged {
        /// The peer.
        from: NodeId,
        /// The client of this node.
        conn: ConnId,
        /// The command's number.
        n: u64,
        /// Bytes that are taken.
        taken: u64,
        /// Whether more are wanted.
        state: StageState,
    },
    /// The answer to a forwarded command is a range of a large value, which this node reads.
    ReplyBody(ReplyBody),
}

/// A command that a peer forwards for a client.
#[derive(Clone, Debug)]
pub struct PeerCommand<'a> {
    /// Its number, which its reply repeats.
    pub n: u64,
    /// The protocol that the client speaks, as a byte that only front ends read.
    pub dialect: u8,
    /// The client's database.
    pub database: u8,
    /// Its stream. By the peer's configuration, this node owns it.
    pub stream: StreamId,
    /// The epoch of that configuration.
    pub epoch: Epoch,
    /// Its bytes.
    pub bytes: Cow<'a, [u8]>,
}

/// The answer to a forwarded command: its reply is a range of a large value.
#[derive(Clone, Debug)]
pub struct ReplyBody {
    /// The peer.
    pub from: (NodeId, Incarnation),
    /// The stream, and the first epoch of the owner's tenure.
    pub owner: (StreamId, Epoch),
    /// The client of this node.
    pub conn: ConnId,
    /// The command's number.
    pub n: u64,
    /// The value, and the range.
    pub value: ValueRange,
}

/// The roles of one node, and what they share.
#[derive(Debug)]
pub struct Replica {
    shared: Shared,
    lists: Lists,
    notices: Vec<Notice>,
    renew_at: Time,
    account_at: Time,
    /// When the next step of housekeeping is due without writes; zero: none is.
    housekeep_at: Time,
    watch: opinions::Watch,
    tomorrows: u64,
}

impl Replica {
    /// A node without roles.
    ///
    /// # Panics
    /// If the cluster record holds a scheme that no coordinator makes.
    pub fn new(identity: Identity, parameters: Parameters) -> Self {
        let Identity {
            node,
            incarnation,
            cluster,
            seed,
            maxmemory_bytes,
        } = identity;
        let scheme = Scheme::with_logged(cluster.data, cluster.parity, cluster.logged)
            .unwrap_or_else(|e| panic!("cluster record: {e}"));
        let slots = (maxmemory_bytes / u64::from(cluster.chunk_bytes)).clamp(1, SLOTS_MAX) as u32;
        let (redial, redial_max) = (parameters.redial, parameters.redial_max);
        let versions = (Versions::up_to(parameters.version_max), cluster.active_version);
        let sessions = Sessions::new(cluster.id, node, incarnation, versions, redial, redial_max);
        let mut arena = Arena::new(cluster.chunk_bytes as usize, slots);
        arena.set_headroom(parameters.kept_chunks);
        let shared = Shared {
            node,
            incarnation,
            code: Code::new(scheme),
            arena,
            stashes: Stashes::default(),
            disk: None,
            maxmemory_bytes,
            maxmemory_bytes_max: maxmemory_bytes,
            evicted_keys: 0,
            expired_keys: 0,
            keyspace_hits: 0,
            keyspace_misses: 0,
            refused_writes: 0,
            forged_values: 0,
            lost_values: 0,
            to_hot_values: 0,
            to_cold_values: 0,
            changing: None,
            change_at: Time(0),
            process: ProcessFigures::default(),
            resident_peak_bytes: 0,
            burst_bytes: 0,
            buffers_bytes: 0,
            memory_peak_bytes: 0,
            slots: SlotMap::new(&cluster),
            cluster,
            turn_budget: TurnBudget::new(parameters.turn_steps),
            parameters,
            sessions,
            prng: Prng::new(seed),
            halting: Vec::new(),
            own_frames: Vec::new(),
            pace: Pace::default(),
            suppliers: Suppliers::default(),
            request_id: 0,
            space_wanted: None,
            readers: Readers::default(),
            bodies_bytes: 0,
            spare_bodies: SpareMemory::default(),
            bad_sums: 0,
            scrub: Scrub::default(),
            takeovers: Takeovers::default(),
            asked: Asked::default(),
        };
        Self {
            shared,
            lists: Lists::default(),
            notices: Vec::new(),
            renew_at: Time(0),
            account_at: Time(0),
            housekeep_at: Time(0),
            watch: opinions::Watch::default(),
            tomorrows: 0,
        }
    }

    /// The id of the node.
    pub fn id(&self) -> NodeId {
        self.shared.node
    }
    /// Its incarnation.
    pub fn incarnation(&self) -> Incarnation {
        self.shared.incarnation
    }
    /// The cluster it belongs to.
    pub fn cluster(&self) -> &ClusterRecord {
        &self.shared.cluster
    }
    /// The cluster's active version of formats, as far as it knows.
    pub fn active_version(&self) -> u16 {
        self.shared.sessions.active()
    }
    /// Messages and sections of the version of tomorrow that it has acted on.
    pub fn tomorrows(&self) -> u64 {
        self.tomorrows
    }
    /// Every list it has a configuration of.
    pub fn lists(&self) -> impl Iterator<Item = &List> {
        self.lists.iter()
    }
    /// One list.
    pub fn list(&self, id: ListId) -> Option<&List> {
        self.lists.get(id)
    }
    /// The memory of its chunks.
    pub fn arena(&self) -> &Arena {
        &self.shared.arena
    }
    /// Cached chunks of lost positions, each with its list and position.
    pub fn stashed(&self) -> impl Iterator<Item = (ListId, Position, Old<'_>)> {
        self.shared.stashes.iter(&self.shared.arena)
    }
    /// The delay of acks of each peer: the worst that any stream of this node has measured recently (P10.2a). Peers
    /// without a recent measurement are left out.
    pub fn ack_delays(&self, now: Time) -> Vec<(NodeId, Span)> {
        let mut worst: Vec<(NodeId, Span)> = Vec::new();
        for role in self.lists.roles() {
            let Role::Owner(owner) = role else { continue };
            for (node, delay) in owner.ack_delays(now).filter(|(node, _)| *node != self.shared.node) {
                match worst.iter_mut().find(|(known, _)| *known == node) {
                    Some((_, known)) => *known = delay.max(*known),
                    None => worst.push((node, delay)),
                }
            }
        }
        worst
    }

    /// Chunks whose sum did not match when they were read or decoded (P9.1).
    pub fn bad_sums(&self) -> u64 {
        self.shared.bad_sums
    }
    /// Whether this node may answer reads of a stream at `now` (invariant I3).
    pub fn serves(&mut self, now: Clock, stream: StreamId, out: &mut impl Out) -> bool {
        let cx = Context {
            now,
            out,
            shared: &mut self.shared,
        };
        self.lists.owner(stream).is_some_and(|(configuration, owner)| {
            owner.phase() == Phase::Serve
                && owner.read_lease(&cx, configuration, cx.mono()) != crate::stream_owner::ReadLease::None
        })
    }

    /// The present limits of memory for clients in the driver.
    pub fn client_limits(&self) -> crate::ClientLimits {
        self.shared.parameters.client_limits
    }

    /// Takes what the driver has measured. Its own buffers are part of the same memory (P8.3).
    pub fn set_process(&mut self, figures: ProcessFigures) {
        let burst = figures.peak_bytes.saturating_sub(figures.resident_bytes);
        self.shared.burst_bytes = burst.max(self.shared.burst_bytes - self.shared.burst_bytes / BURST_DECAY);
        self.shared.resident_peak_bytes = self.shared.resident_peak_bytes.max(figures.peak_bytes);
        self.shared.process = figures;
    }

    /// The shared state of all roles, and the lists: for commands on the owners of this node.
    pub fn parts(&mut self) -> (&mut Shared, &mut Lists) {
        (&mut self.shared, &mut self.lists)
    }

    /// As [`Self::parts`], read-only.
    pub fn view(&self) -> (&Shared, &Lists) {
        (&self.shared, &self.lists)
    }

    /// Whether there are notices for the front end.
    #[inline]
    pub fn has_notices(&self) -> bool {
        !self.notices.is_empty()
    }

    /// Takes the notices for the front end, in the order of the changes.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        core::mem::take(&mut self.notices)
    }

    // --- one event -----------------------------------------------------------------------------------------------

    /// An event begins. Called before all other work of the event.
    #[inline]
    pub fn begin_event(&mut self, now: Time) {
        self.shared.pace.happens(now);
        self.watch.happens(now, self.suspicion());
    }

    /// Handles an event. Events of clients and the end of a turn do nothing here. Returns a message of a peer to the
    /// front end, if the event has one.
    pub fn on<'e>(&mut self, now: Clock, event: Event<'e>, out: &mut impl Out) -> Option<FrontMessage<'e>> {
        let shared = &mut self.shared;
        match event {
            Event::LinkUp { link, from, dialed } => shared.sessions.on_link_up(link, from, dialed, out),
            Event::DialFailed { node, channel } => shared.sessions.on_dial_failed(now.mono, node, channel),
            Event::LinkDown { link } => {
                if let Some((node, incarnation, Channel::Main)) = shared.sessions.on_link_down(now.mono, link) {
                    self.notices.push(Notice::SessionDown(node, incarnation));
                }
            }
            Event::Frame { link, bytes } => return self.on_frame(now, link, bytes, out),
            Event::Configuration(configuration) => {
                self.install(now, configuration, out);
            }
            Event::Suspicion { ms } => shared.cluster.suspicion_ms = ms,
            Event::ActiveVersion(version) => self.on_active(version, out),
            Event::Drain { list, position, tenure } => {
                let stream = StreamId { list, x: position };
                if let Some((_, owner)) = self.lists.owner_mut(stream) {
                    owner.on_drain(&Context { now, out, shared }, tenure);
                }
            }
            Event::Nodes(nodes) => shared.sessions.on_nodes(now.mono, nodes, out),
            Event::Disk { id, outcome } => self.on_disk(id, outcome),
            Event::Timer
            | Event::TurnEnd
            | Event::ClientUp { .. }
            | Event::Client { .. }
            | Event::ClientDown { .. }
            | Event::Answer { .. } => {}
        }
        None
    }

    /// An event ends: the driver gets disk I/O, roles that broke an invariant stop, and the slot map is renewed.
    /// `reads`: frames between roles of this node are read too. The end of a turn reads none: the frames that it leaves
    /// are read in the next turn, which has an end of its own.
    #[inline]
    pub fn end_event(&mut self, now: Clock, out: &mut impl Out, reads: bool) {
        self.end_disk_event(now, out);
        self.end_halted(now, out);
        self.renew_slots();
        if reads {
            self.read_own_frames(now, out);
        }
    }

    /// Reads frames that roles of this node have sent to each other, as those of peers; then their answers.
    fn read_own_frames(&mut self, now: Clock, out: &mut impl Out) {
        let me = (self.shared.node, self.shared.incarnation);
        for _ in 0..EXCHANGES_MAX {
            if self.shared.own_frames.is_empty() {
                return;
            }
            let frames = core::mem::take(&mut self.shared.own_frames);
            let mut rest = frames.as_slice();
            while let Ok(Some(length)) = peer::split(rest) {
                let (frame, after) = rest.split_at(length);
                rest = after;
                if let Ok((header, message)) = peer::decode(frame) {
                    self.on_message(now, me, &header, message, out);
                    // A role that has just halted handles no further frame.
                    self.end_halted(now, out);
                }
            }
        }
    }

    /// The next part of the arena that another thread can turn into a huge page.
    pub fn next_huge(&mut self) -> Option<HugeRange> {
        self.shared.arena.next_huge()
    }

    /// Prefetches the memory that the deltas among these frames will touch, so that cache misses overlap. The frames
    /// are handled next. Their contents have no other effect here.
    pub fn look_ahead(&self, frames: &[&[u8]]) {
        let arena = &self.shared.arena;
        for frame in frames {
            if peer::kind_of(frame) == Some(Kind::Delta)
                && let Ok((header, Message::Delta { extents, .. })) = peer::decode(frame)
                && let Some(member) = self.lists.get(header.stream.list).and_then(List::member)
            {
                member.table.prefetch(arena, extents);
            }
        }
    }

    /// The latest time for the next [`Event::Timer`].
    pub fn next_deadline(&self) -> Option<Time> {
        let awake = self.lists.awake(Time(0)).flat_map(|list| &list.roles);
        let awake_lists = self.lists.awake(Time(0));
        let parts = awake_lists.flat_map(|list| list.parts.iter().map(|parts| parts.rests_until(&list.configuration)));
        let parts = parts.filter(|at| *at != Time(u64::MAX));
        let roles = awake.filter_map(|role| match role {
            Role::Halted(_) => None,
            Role::Owner(owner) => owner.next_deadline(),
            Role::Member(member) => member.refill.next_deadline(),
        });
        let owns = self.lists.roles().any(|role| matches!(role, Role::Owner(_)));
        // Unread frames between roles of this node, and memory to be given back, are due at once.
        let is_unfinished = !self.shared.own_frames.is_empty() || self.shared.arena.surplus() > 0;
        let own_frames = is_unfinished.then_some(Time(0));
        let scrubs = self.shared.parameters.scrub_rate.is_some() || self.shared.scrub.repairs;
        let scrub = (scrubs && self.lists.roles().next().is_some()).then_some(self.shared.scrub.next_at);
        let housekeep = (self.housekeep_at != Time(0)).then_some(self.housekeep_at);
        let renew = (owns && self.shared.cluster.parity > 0).then_some(self.renew_at);
        let watch = self.lists.roles().next().is_some().then_some(self.watch.look_at);
        roles
            .chain(parts)
            .chain(self.lists.first_rests_until())
            .chain(self.shared.readers.next_at())
            .chain(self.shared.sessions.next_deadline())
            .chain(self.shared.stashes.next_deadline().map(|at| at.max(self.account_at)))
            .chain(renew)
            .chain(housekeep)
            .chain(watch)
            .chain(scrub)
            .chain(own_frames)
            .chain(self.shared.disk.as_ref().and_then(DiskLog::next_deadline))
            .min()
    }

    /// P3.5: ends roles that broke an invariant. Their chunks may be wrong and are freed. Commands that wait for them
    /// end as after a lost tenure. This incarnation begins no role in such a list again, whatever a configuration says:
    /// the coordinator learns of it by the heartbeat, and chooses another node.
    fn end_halted(&mut self, now: Clock, out: &mut impl Out) {
        for (id, position, reason) in core::mem::take(&mut self.shared.halting) {
            let mut cx = Context {
                now,
                out,
                shared: &mut self.shared,
            };
            let Some(list) = self.lists.get_mut(id) else { continue };
            let Some(role) = list.roles.iter_mut().find(|role| role.position() == position) else {
                continue;
            };
            if let Some(at) = list.parts.iter().position(|parts| parts.position() == position) {
                list.parts.remove(at).end(&mut cx);
            }
            match role {
                Role::Halted(_) => continue,
                Role::Owner(owner) => {
                    owner.drop_bodies(&mut cx);
                    owner.store.chunks_mut().clear(&mut cx.shared.arena);
                }
                Role::Member(member) => member.drop_role(&mut cx),
            }
            cx.shared.stashes.drop_list(&mut cx.shared.arena, id);
            *role = Role::Halted(Box::new(Halted {
                list: id,
                position,
                reason,
            }));
            self.notices.push(Notice::Configuration(id));
        }
    }

    /// Roles that broke an invariant in this incarnation.
    pub fn halted(&self) -> impl Iterator<Item = &Halted> {
        self.lists.roles().filter_map(|role| match role {
            Role::Halted(halted) => Some(&**halted),
            _ => None,
        })
    }

    /// Renews the slot map after changes of configurations and of hand-offs by owners of this node (P10.8).
    #[inline]
    fn renew_slots(&mut self) {
        let Shared {
            slots,
            cluster,
            parameters,
            ..
        } = &mut self.shared;
        let freeze = !parameters.rules.fault(Fault::FrozenSlotsServed);
        if slots.renew(cluster, &self.lists, freeze) {
            self.notices.push(Notice::Slots);
        }
    }
}
