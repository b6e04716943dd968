//! The roles of one node: configurations, the epoch fence, and which role gets which event.
//!
//! A front end stands before it: it has the clients, and runs their commands on the owners here. It calls the replica
//! for each event, and phase by phase at the end of a turn. What a front end must know of comes back as [`Notice`]s.

mod disk;
mod dispatch;
mod frames;
mod housekeep;
mod install;
mod leases;
mod memory;
mod opinions;
mod scrub;
mod turn;

use crate::asked::Asked;
use crate::context::{Context, Shared};
use crate::disk_log::DiskLog;
use crate::interface::{Channel, Event, Identity, Out};
use crate::lists::{Halted, List, Lists, Role};
use crate::log_assist::Suppliers;
use crate::pace::Pace;
use crate::parameters::Parameters;
use crate::rules::Fault;
use crate::scrub::Scrub;
use crate::session::Sessions;
use crate::slot_map::SlotMap;
use crate::stash::Stashes;
use crate::stream_owner::Phase;
use crate::takeovers::Takeovers;

pub use memory::Figures;
use memory::SLOTS_MAX;
pub use opinions::Opinions;
use paritas_base::configuration::ClusterRecord;
use paritas_base::{Clock, ConnId, Epoch, Incarnation, ListId, NodeId, Position, Prng, Span, StreamId, Time};
use paritas_code::{Code, Scheme};
use paritas_store::{Arena, HugeRange, Old};
use paritas_wire::peer::{self, Message, kind};
pub use scrub::flip_bit;

/// Rounds of exchange between roles of this node in one event, a question and its answer being two. What is left goes
/// on in the next turn, so that a rebuild from chunks of this node delays no other work.
const EXCHANGES_MAX: usize = 16;

/// What has changed here that a front end's commands may wait for, or may have to do without.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// The configuration of a list is new, or a role of it has halted.
    Configuration(ListId),
    /// Hash slots are another stream's, or are served again.
    Slots,
    /// A session is up: what could not be sent may be sent now.
    SessionUp,
    /// A peer's incarnation is gone, or its link: it answers nothing that was asked on it.
    SessionDown(NodeId, Incarnation),
}

/// What a peer's front end sends to this node's.
#[derive(Clone, Copy, Debug)]
pub enum FrontMessage<'a> {
    /// A command of a client of the peer.
    Command {
        /// The peer.
        from: (NodeId, Incarnation),
        /// The client, as the peer names it.
        conn: ConnId,
        /// The command's number, which its reply repeats.
        n: u64,
        /// The protocol that the client speaks, as a byte that only front ends read.
        dialect: u8,
        /// The command's bytes.
        command: &'a [u8],
        /// The stream that it is for, of which the peer takes this node for the owner.
        stream: StreamId,
        /// The epoch of the configuration by which the peer does.
        epoch: Epoch,
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
}

/// The roles of one node, and what they share.
#[derive(Debug)]
pub struct Replica {
    shared: Shared,
    lists: Lists,
    notices: Vec<Notice>,
    renew_at: Time,
    account_at: Time,
    /// When the streams here are housekept though nothing happens; zero: not.
    housekeep_at: Time,
    watch: opinions::Watch,
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
        let sessions = Sessions::new(cluster.id, node, incarnation, redial, redial_max);
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
            sockets_bytes: 0,
            buffers_bytes: 0,
            memory_peak_bytes: 0,
            slots: SlotMap::new(&cluster),
            cluster,
            parameters,
            sessions,
            prng: Prng::new(seed),
            halting: Vec::new(),
            own_frames: Vec::new(),
            pace: Pace::default(),
            suppliers: Suppliers::default(),
            request_id: 0,
            room_wanted: None,
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
        }
    }

    /// Which node.
    pub fn id(&self) -> NodeId {
        self.shared.node
    }
    /// Which incarnation of it.
    pub fn incarnation(&self) -> Incarnation {
        self.shared.incarnation
    }
    /// The cluster it belongs to.
    pub fn cluster(&self) -> &ClusterRecord {
        &self.shared.cluster
    }
    /// Every list it has a configuration of.
    pub fn lists(&self) -> impl Iterator<Item = &List> {
        self.lists.iter()
    }
    /// One list.
    pub fn list(&self, id: ListId) -> Option<&List> {
        self.lists.get(id)
    }
    /// Its chunks' memory.
    pub fn arena(&self) -> &Arena {
        &self.shared.arena
    }
    /// Chunks of positions that it lost, with the list and position they were of.
    pub fn stashed(&self) -> impl Iterator<Item = (ListId, Position, Old<'_>)> {
        self.shared.stashes.iter(&self.shared.arena)
    }
    /// How late acks of each peer come, the worst that any stream here sees of it (P10.2a); those of which
    /// something was measured of late.
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

    /// What clients may make the driver hold, as it is now.
    pub fn client_limits(&self) -> crate::ClientLimits {
        self.shared.parameters.client_limits
    }

    /// The driver's own buffers: they come out of the same memory (P8.3).
    pub fn set_sockets_bytes(&mut self, bytes: u64) {
        self.shared.sockets_bytes = bytes;
    }

    /// What all roles share, and the lists: for commands on the owners here.
    pub fn parts(&mut self) -> (&mut Shared, &mut Lists) {
        (&mut self.shared, &mut self.lists)
    }

    /// As [`Self::parts`], to look at.
    pub fn view(&self) -> (&Shared, &Lists) {
        (&self.shared, &self.lists)
    }

    /// Whether there is anything that the front end must know of.
    #[inline]
    pub fn has_notices(&self) -> bool {
        !self.notices.is_empty()
    }

    /// Takes what the front end must know of, in the order in which it came about.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        core::mem::take(&mut self.notices)
    }

    // --- one event -----------------------------------------------------------------------------------------------

    /// An event begins: called before anything else of it.
    #[inline]
    pub fn begin_event(&mut self, now: Time) {
        self.shared.pace.happens(now);
        self.watch.happens(now, self.suspicion());
    }

    /// Handles an event that is not of clients, nor the end of a turn: of those, nothing happens here. Gives what a
    /// peer has sent to the front end.
    pub fn on<'e>(&mut self, now: Clock, event: Event<'e>, out: &mut impl Out) -> Option<FrontMessage<'e>> {
        let shared = &mut self.shared;
        match event {
            Event::LinkUp { link, dialed } => shared.sessions.on_link_up(now.mono, link, dialed, out),
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

    /// An event ends: disk work leaves, roles that broke an invariant stop, and the slot map follows. `reads`: frames
    /// between roles of this node are read too. The end of a turn reads none: what it leaves begins the next turn, and
    /// has an end of turn after it.
    #[inline]
    pub fn end_event(&mut self, now: Clock, out: &mut impl Out, reads: bool) {
        self.end_disk_event(now, out);
        self.end_halted(now, out);
        self.renew_slots();
        if reads {
            self.read_own_frames(now, out);
        }
    }

    /// What roles of this node have said to each other, read like any frame; their answers too.
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
                    // A role that has just stopped says and hears nothing more.
                    self.end_halted(now, out);
                }
            }
        }
    }

    /// The next part of the arena that can be made a huge page, on another thread.
    pub fn next_huge(&mut self) -> Option<HugeRange> {
        self.shared.arena.next_huge()
    }

    /// Asks for the memory that the deltas among these frames, which come next, will touch, so that their waits
    /// overlap. Nothing else happens, whatever the frames hold.
    pub fn look_ahead(&self, frames: &[&[u8]]) {
        let arena = &self.shared.arena;
        for frame in frames {
            if peer::kind_of(frame) == Some(kind::DELTA)
                && let Ok((header, Message::Delta { extents, .. })) = peer::decode(frame)
                && let Some(member) = self.lists.get(header.stream.list).and_then(List::member)
            {
                member.table.prefetch(arena, extents);
            }
        }
    }

    /// When to call with [`Event::Timer`] at the latest.
    pub fn next_deadline(&self) -> Option<Time> {
        let awake = self.lists.awake(Time(0)).flat_map(|list| &list.roles);
        let roles = awake.filter_map(|role| match role {
            Role::Halted(_) => None,
            Role::Owner(owner) => owner.next_deadline(),
            Role::Member(member) => member.refill.next_deadline(),
        });
        let owns = self.lists.roles().any(|role| matches!(role, Role::Owner(_)));
        // What roles of this node still have to say to each other waits for nothing.
        let own_frames = (!self.shared.own_frames.is_empty()).then_some(Time(0));
        let scrubs = self.shared.parameters.scrub_rate.is_some() || self.shared.scrub.repairs;
        let scrub = (scrubs && self.lists.roles().next().is_some()).then_some(self.shared.scrub.next_at);
        let housekeep = (self.housekeep_at != Time(0)).then_some(self.housekeep_at);
        let renew = (owns && self.shared.cluster.parity > 0).then_some(self.renew_at);
        let watch = self.lists.roles().next().is_some().then_some(self.watch.look_at);
        roles
            .chain(self.lists.first_rests_until())
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

    /// P3.5: roles that broke an invariant stop here. What they held is not to be trusted, and given up; who waits for
    /// them is told what a lost tenure tells. This incarnation begins nothing in such a list any more, whatever a
    /// configuration says: the coordinator learns it from the heartbeat, and names another.
    fn end_halted(&mut self, now: Clock, out: &mut impl Out) {
        for (id, position, reason) in core::mem::take(&mut self.shared.halting) {
            let mut cx = Context {
                now,
                out,
                shared: &mut self.shared,
            };
            let roles = self.lists.get_mut(id).into_iter().flat_map(|list| &mut list.roles);
            let Some(role) = roles.into_iter().find(|role| role.position() == position) else {
                continue;
            };
            match role {
                Role::Halted(_) => continue,
                Role::Owner(owner) => owner.store.chunks_mut().clear(&mut cx.shared.arena),
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

    /// The slot map follows what has changed: configurations, and what owners here are handing off (P10.8).
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
