//! The roles of one node: configurations, the epoch fence, and which role gets which event.
//!
//! A front end stands before it: it has the clients, and runs their commands on the owners here. It calls the replica
//! for each event, and phase by phase at the end of a turn. What a front end must know of comes back as [`Notice`]s.

mod disk;
mod dispatch;
mod housekeep;
mod leases;
mod memory;
mod opinions;
mod scrub;

use crate::asked::Asked;
use crate::context::{Context, Shared};
use crate::disk_log::DiskLog;
use crate::interface::{Channel, Event, HaltReason, Identity, LinkId, Out, Proposal};
use crate::lists::{Halted, List, Lists, Role};
use crate::log_assist::Suppliers;
use crate::mark::Mark;
use crate::pace::Pace;
use crate::parameters::{Mutant, Parameters, Reads};
use crate::parity_member::ParityMember;
use crate::scrub::Scrub;
use crate::session::{Greeting, Sessions};
use crate::slot_map::SlotMap;
use crate::stash::Stashes;
use crate::stream_owner::{Phase, StreamOwner};
use crate::takeovers::Takeovers;

use dispatch::{on_member, on_owner, tenure_of};
pub use memory::Figures;
use memory::SLOTS_MAX;
pub use opinions::Opinions;
use paritas_base::configuration::{ClusterRecord, Configuration, Lineage, PositionState, Tenure};
use paritas_base::slots::HandOff;
use paritas_base::{Clock, ConnId, Epoch, Incarnation, ListId, NodeId, Position, Prng, Span, Stream, Time};
use paritas_code::{Code, Scheme};
use paritas_store::{Arena, HugeRange, Old};
use paritas_wire::peer::{self, BadFrame, Header, Message, kind};
pub use scrub::flip_bit;

/// Rounds of exchange between roles of this node in one event, a question and its answer being two. What is left goes on
/// in the next turn, so that a rebuild from chunks of this node delays no other work.
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
        /// The client speaks RESP3, not RESP2.
        resp3: bool,
        /// The command's bytes.
        command: &'a [u8],
        /// The stream that it is for, of which the peer takes this node for the owner.
        stream: Stream,
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
        let shared = Shared {
            node,
            incarnation,
            code: Code::new(scheme),
            arena: Arena::new(cluster.chunk_bytes as usize, slots),
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
    /// Which life of it.
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
    /// How late acks of each peer come, the worst that any stream here sees of it (PROTOCOL 10.2a); those of which
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

    /// Chunks whose sum did not match when they were read or decoded (PROTOCOL 9.1).
    pub fn bad_sums(&self) -> u64 {
        self.shared.bad_sums
    }
    /// Whether this node may answer reads of a stream at `now` (invariant I3).
    pub fn serves(&mut self, now: Clock, stream: Stream, out: &mut impl Out) -> bool {
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

    /// The driver's own buffers: they come out of the same memory (8.3).
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

    /// Takes what the front end must know of, in the order in which it came about.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        core::mem::take(&mut self.notices)
    }

    // --- one event -----------------------------------------------------------------------------------------------

    /// An event begins: called before anything else of it.
    pub fn begin_event(&mut self, now: Time) {
        self.shared.pace.happens(now);
        self.watch.happens(now, self.suspicion());
    }

    /// Handles an event that is not of clients, nor the end of a turn: of those, nothing happens here. Gives what a peer
    /// has sent to the front end.
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
                let stream = Stream { list, x: position };
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

    /// Asks for the memory that the deltas among these frames, which come next, will touch, so that their waits overlap.
    /// Nothing else happens, whatever the frames hold.
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
            Role::Member(member) => member.filler.next_deadline(),
        });
        let owns = self.lists.roles().any(|role| matches!(role, Role::Owner(_)));
        // What roles of this node still have to say to each other waits for nothing.
        let own_frames = (!self.shared.own_frames.is_empty()).then_some(Time(0));
        let scrubs = self.shared.parameters.scrub_rate.is_some() || self.shared.scrub.mends;
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

    // --- phases of a turn's end ----------------------------------------------------------------------------------

    /// Counts the memory (`front_bytes`: what the front end holds), tells the coordinator of silent peers, and sets the
    /// pace of rebuilds. Before: events were handled. After: limits and pace are those that hold for this turn.
    pub fn measure(&mut self, now: Clock, front_bytes: impl FnOnce() -> u64, out: &mut impl Out) {
        self.account(now.mono, front_bytes);
        self.watch(now.mono, out);
        let (mut under_way, mut absent, mut unfilled, mut unfilled_on_disk) = (0, 0u32, 0, 0);
        // A list with anything to bring back does not rest.
        let mut learns = false;
        let awake = self.lists.awake(now.mono);
        for (list, role) in awake.flat_map(|list| list.roles.iter().map(move |role| (list, role))) {
            match role {
                Role::Owner(owner) => {
                    under_way += owner.materialiser.under_way();
                    absent = absent.saturating_add(owner.store().chunks().absent_count());
                }
                Role::Member(member) => {
                    under_way += member.filler.under_way();
                    if member.table.is_on_disk() {
                        let owed = member.filler.owed(&member.table);
                        unfilled_on_disk += owed.unwrap_or(0);
                        learns |= owed.is_none() && list.has_all_data();
                    } else {
                        unfilled += member.filler.left();
                    }
                }
                Role::Halted(_) => {}
            }
        }
        self.shared.pace.turn_ends(now.mono, under_way);
        if let Some(disk) = &mut self.shared.disk {
            disk.set_owed(unfilled_on_disk, learns);
        }
        self.shared.arena.set_owed(absent);
        self.shared.arena.set_expected(absent.saturating_add(unfilled));
    }

    /// 10.8: owners go on with the hash slots that they hand off or take in; the two streams may be of two lists. After:
    /// the slot map is that of the configurations and owners here.
    pub fn move_slots(&mut self, now: Clock, out: &mut impl Out) {
        let work = |(configuration, owner): (&Configuration, &mut StreamOwner)| {
            Some((owner.stream(), owner.slot_work(configuration)?))
        };
        let work: Vec<(Stream, Option<HandOff>)> = self.lists.awake_owners_mut(now.mono).filter_map(work).collect();
        for (stream, hand_off) in work {
            let to = hand_off.and_then(|hand_off| {
                let there = &self.lists.get(hand_off.to.list)?.configuration;
                let known = there.slots.hand_off == Some(hand_off);
                Some((there.tenure(hand_off.to.x).filter(|_| known)?, there.epoch))
            });
            let mut cx = Context {
                now,
                out,
                shared: &mut self.shared,
            };
            if let Some((configuration, owner)) = self.lists.owner_mut(stream) {
                owner.hand_off_slots(&mut cx, configuration, to);
            }
        }
        self.renew_slots();
    }

    /// Every role sends what is due, and roles of this node answer each other. After: no delta is open, except for an own
    /// frame that the round limit left unread; every delta of the turn is in a peer's buffer or acknowledged by a member
    /// here. True if the round limit was reached.
    pub fn exchange(&mut self, now: Clock, out: &mut impl Out) -> bool {
        self.end_roles_turns(now, out);
        // An owner's delta to a member beside it is acked in this turn too.
        for _ in 0..EXCHANGES_MAX {
            if self.shared.own_frames.is_empty() {
                return false;
            }
            self.read_own_frames(now, out);
            self.end_roles_turns(now, out);
        }
        !self.shared.own_frames.is_empty()
    }

    /// Closes the deltas of commands that ran after [`Self::exchange`]: they leave in this turn too. True if there were
    /// any: replies may wait for them.
    pub fn close_late_deltas(&mut self, now: Clock, out: &mut impl Out) -> bool {
        let mut cx = Context {
            now,
            out,
            shared: &mut self.shared,
        };
        let mut late = false;
        for (configuration, owner) in self.lists.awake_owners_mut(now.mono) {
            if owner.open_bytes() > 0 {
                owner.close_delta(&mut cx, configuration);
                late = true;
            }
        }
        late
    }

    /// Whether no owner has an open delta: so at the end of each turn.
    pub fn has_no_open_delta(&self) -> bool {
        self.lists
            .iter()
            .flat_map(List::owners)
            .all(|owner| owner.open_bytes() == 0)
    }

    /// Asks for leases where replies need confirmed ones and a command has read after [`Self::exchange`].
    pub fn confirm(&mut self, now: Clock, out: &mut impl Out) {
        let unasked =
            |(_, owner): (&Configuration, &mut StreamOwner)| owner.lease_wanted && owner.phase() == Phase::Serve;
        if self.shared.parameters.reads == Reads::Confirmed && self.lists.awake_owners_mut(now.mono).any(unasked) {
            self.renew_leases(now, out);
        }
    }

    /// Dials the peers whose links are due.
    pub fn dial(&mut self, now: Clock, out: &mut impl Out) {
        self.shared.sessions.on_timer(now.mono, out);
    }

    /// Gives the disk's log what is due to be written. The event's end hands the work to the driver.
    pub fn flush_disk(&mut self, now: Clock) {
        if let Some(disk) = &mut self.shared.disk {
            disk.on_turn_end(now.mono, self.shared.parameters.log_flush);
        }
    }

    /// Lists in which nothing is left to do rest from now on.
    pub fn rest(&mut self, now: Clock) {
        self.lists.rest(now.mono, List::rests_until);
    }

    /// Every role sends what is due.
    fn end_roles_turns(&mut self, now: Clock, out: &mut impl Out) {
        let mut cx = Context {
            now,
            out,
            shared: &mut self.shared,
        };
        for (configuration, role) in self.lists.awake_roles_mut(now.mono) {
            match role {
                Role::Halted(_) => {}
                Role::Owner(owner) => owner.on_turn_end(&mut cx, configuration),
                Role::Member(member) => member.on_turn_end(&mut cx, configuration),
            }
        }
        // Before leases are asked for and replies released on its word.
        self.end_halted(now, out);
        self.renew_leases(now, out);
    }

    /// 3.5: roles that broke an invariant stop here. What they held is not to be trusted, and given up; who waits for
    /// them is told what a lost tenure tells. This life begins nothing in such a list any more, whatever a
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

    /// Roles that broke an invariant in this life.
    pub fn halted(&self) -> impl Iterator<Item = &Halted> {
        self.lists.roles().filter_map(|role| match role {
            Role::Halted(halted) => Some(&**halted),
            _ => None,
        })
    }

    // --- configurations ------------------------------------------------------------------------------------------

    /// 2.3. A role is kept iff its tenure is unchanged. Gives whether the configuration is installed now and was not
    /// before.
    fn install(&mut self, now: Clock, new: &Configuration, out: &mut impl Out) -> bool {
        let mut cx = Context {
            now,
            out,
            shared: &mut self.shared,
        };
        let shape = (new.data, new.parity) == (cx.shared.cluster.data, cx.shared.cluster.parity)
            && new.ack_quorum == cx.shared.cluster.ack_quorum
            && new.is_well_formed()
            // Of every node: who has installed it must meet no peer that never will, or each asks the other for ever.
            && new.is_within_limits()
            && cx.shared.cluster.slots.iter().any(|(_, s)| s.list == new.list);
        if !shape {
            return false;
        }
        let (node, incarnation) = (cx.shared.node, cx.shared.incarnation);
        let entry = self.lists.entry(new.list);
        if let Some(List { configuration: own, .. }) = entry {
            if own.epoch >= new.epoch {
                return false;
            }
            match new.lineage(own.epoch, own.id) {
                Lineage::Follows => {}
                _ if cx.breaks(Mutant::EpochForId) => {}
                // Its coordinator decided without what is installed here (10.14).
                Lineage::Foreign => return false,
                Lineage::Unknown => {
                    let installed = Some((own.epoch, own.id));
                    let list = new.list;
                    cx.propose(Proposal::GetConfiguration { list, installed });
                    return false;
                }
            }
        }
        if entry
            .as_ref()
            .is_some_and(|list| list.configuration.epoch.0 + 1 < new.epoch.0)
        {
            cx.out.mark(Mark::EpochJump);
        }
        let mut mine: Vec<(Position, Tenure)> = new
            .held_by(node, incarnation)
            .map(|(position, a)| (position, a.tenure))
            .collect();
        let slots = entry.as_ref().map(|list| &list.configuration.slots);
        if slots != Some(&new.slots) || new.slots.hand_off.is_some() {
            cx.shared.slots.is_stale();
        }
        let before = entry.take();
        if before.as_ref().is_some_and(|list| list.configuration.born != new.born) {
            cx.shared.stashes.drop_list(&mut cx.shared.arena, new.list);
            if let Some(disk) = &mut cx.shared.disk {
                disk.drop_list(new.list);
            }
        }
        let before = before.map_or(Vec::new(), |list| list.roles);
        let by_node = cx.breaks(Mutant::TenureByNode);
        let same = |a: Tenure, b: Tenure| a == b || (by_node && a.node == b.node && a.incarnation == b.incarnation);
        let mut roles = Vec::new();
        for mut role in before {
            let tenure = match &role {
                Role::Owner(owner) => owner.tenure(),
                Role::Member(member) => member.tenure(),
                Role::Halted(_) => {
                    roles.push(role);
                    continue;
                }
            };
            let kept = mine.iter().position(|m| m.0 == role.position() && same(tenure, m.1));
            if let Some(at) = kept {
                mine.remove(at);
                match &mut role {
                    Role::Owner(owner) => {
                        owner.close_delta(&mut cx, new);
                        owner.on_configuration(&mut cx, new);
                    }
                    Role::Member(member) => member.on_configuration(&mut cx, new),
                    Role::Halted(_) => {}
                }
                roles.push(role);
                continue;
            }
            match role {
                Role::Halted(_) => {}
                Role::Owner(mut owner) => {
                    let yielded = Message::Yielded { tenure: owner.tenure() };
                    if let Some(successor) = new.tenure(owner.stream().x) {
                        cx.send(&successor, Channel::Main, owner.stream(), new.epoch, &yielded);
                    }
                    owner.end(&mut cx, new);
                }
                Role::Member(mut member) => member.end(&mut cx),
            }
        }
        if roles.iter().any(|role| matches!(role, Role::Halted(_))) {
            mine.clear();
        }
        for (position, tenure) in mine {
            let state = new.at(position).map(|a| a.state);
            if state == Some(PositionState::Live) {
                // 10.15. Only what the holder has told makes a position Live: it is not there any more.
                let reason = format!(
                    "list {} names position {} of this node Live, and it has no such role",
                    new.list.0, position.0
                );
                cx.out.halt(HaltReason(reason.clone()));
                let list = new.list;
                roles.push(Role::Halted(Box::new(Halted { list, position, reason })));
                continue;
            }
            roles.push(if new.is_data(position) {
                let stream = Stream {
                    list: new.list,
                    x: position,
                };
                Role::Owner(Box::new(StreamOwner::new(&mut cx, new, stream, tenure)))
            } else {
                let parity = position.0 - new.data;
                let coefficients = (0..new.data).map(|x| cx.shared.code.coefficient(x, parity)).collect();
                let on_disk = cx.shared.disk.is_some();
                if let Some(disk) = &mut cx.shared.disk {
                    disk.begin(new.list, new.is_born(&tenure));
                }
                Role::Member(Box::new(ParityMember::new(
                    new,
                    position,
                    tenure,
                    coefficients,
                    on_disk,
                )))
            });
        }
        roles.sort_by_key(Role::position);
        *entry = Some(List {
            configuration: new.clone(),
            roles,
        });
        self.notices.push(Notice::Configuration(new.list));
        true
    }

    /// The slot map follows what has changed: configurations, and what owners here are handing off (10.8).
    fn renew_slots(&mut self) {
        if self.shared.renew_slots(&self.lists) {
            self.notices.push(Notice::Slots);
        }
    }

    // --- frames --------------------------------------------------------------------------------------------------

    fn on_frame<'f>(
        &mut self,
        now: Clock,
        link: LinkId,
        bytes: &'f [u8],
        out: &mut impl Out,
    ) -> Option<FrontMessage<'f>> {
        let (header, message) = match peer::decode(bytes) {
            Ok(decoded) => decoded,
            Err(BadFrame::Length(_) | BadFrame::Crc | BadFrame::Kind(_) | BadFrame::Body(_)) => {
                out.close(link);
                return None;
            }
        };
        if let Message::Hello(hello) = &message {
            let before = self.shared.sessions.incarnation_of(hello.node, Channel::Main);
            let greeting = self.shared.sessions.on_hello(now.mono, link, hello, out);
            if let Greeting::Bound(node, _, channel) = greeting {
                self.shared.asked.on_session_up(node);
                let mut cx = Context {
                    now,
                    out,
                    shared: &mut self.shared,
                };
                if let (Some(incarnation), Channel::Main) = (before, channel) {
                    // The end of the link before is told later, when it is nobody's.
                    self.notices.push(Notice::SessionDown(node, incarnation));
                }
                for (_, role) in self.lists.roles_mut() {
                    match role {
                        Role::Halted(_) => {}
                        Role::Owner(owner) => owner.on_session_up(&mut cx, node),
                        Role::Member(member) => member.filler.on_session_up(now.mono),
                    }
                }
                self.notices.push(Notice::SessionUp);
            }
            return None;
        }
        let Some((node, incarnation, _)) = self.shared.sessions.on_frame(now.mono, link) else {
            // Not greeted, or replaced by a newer link: nothing it says counts.
            out.close(link);
            return None;
        };
        match message {
            Message::Forward {
                conn,
                n,
                resp3,
                command,
            } => Some(FrontMessage::Command {
                from: (node, incarnation),
                conn,
                n,
                resp3,
                command,
                stream: header.stream,
                epoch: header.epoch,
            }),
            Message::Reply { conn, n, bytes } => Some(FrontMessage::Reply {
                from: node,
                conn,
                n,
                bytes,
            }),
            message => {
                self.on_message(now, (node, incarnation), &header, message, out);
                None
            }
        }
    }

    /// A message of a peer in that life, or of a role of this node.
    fn on_message(
        &mut self,
        now: Clock,
        (node, incarnation): (NodeId, Incarnation),
        header: &Header,
        message: Message<'_>,
        out: &mut impl Out,
    ) {
        let mut cx = Context {
            now,
            out,
            shared: &mut self.shared,
        };
        match message {
            // Of front ends: never between roles of one node.
            Message::Forward { .. } | Message::Reply { .. } => {}
            Message::Stale { configuration } => {
                if self.install(now, &configuration, out) {
                    out.propose(Proposal::Installed(configuration));
                }
            }
            Message::GetConfiguration => {
                if let Some(list) = self.lists.get_mut(header.stream.list) {
                    let configuration = Box::new(list.configuration.clone());
                    let (stale, epoch) = (Message::Stale { configuration }, list.configuration.epoch);
                    // What made it ask was dropped: it goes again behind the answer, on either channel.
                    for channel in [Channel::Main, Channel::Bulk] {
                        cx.send_to(node, incarnation, channel, header.stream, epoch, &stale);
                    }
                    for role in &mut list.roles {
                        match role {
                            Role::Halted(_) => {}
                            Role::Owner(owner) => owner.on_session_up(&mut cx, node),
                            Role::Member(member) => member.filler.on_session_up(now.mono),
                        }
                    }
                }
            }
            Message::Yielded { tenure } => {
                let own = (tenure.node, tenure.incarnation) == (node, incarnation);
                if let Some((_, owner)) = self.lists.owner_mut(header.stream).filter(|_| own) {
                    owner.on_yielded(&cx, tenure);
                }
            }
            Message::Imported {
                version,
                term,
                round,
                n,
                status,
            } => {
                if let Some((_, owner)) = self.lists.owner_mut(header.stream) {
                    owner.on_imported(&mut cx, (node, incarnation), version, term, round, n, status);
                }
            }
            Message::LeaseRequest { streams } => self.on_lease_request(now, (node, incarnation), header, streams, out),
            Message::Lease { sent, streams } => {
                for entry in streams.iter() {
                    if let Some((configuration, owner)) = self.lists.owner_mut(entry.stream)
                        && configuration.epoch == entry.epoch
                        && let Some(from) = tenure_of(configuration, node, incarnation)
                    {
                        owner.on_lease(&cx, from, entry.term, sent);
                    }
                }
            }
            message => self.on_list_message(now, (node, incarnation), header, &message, out),
        }
    }

    /// 2.2: acted on only under the same epoch; the older side is told.
    fn on_list_message(
        &mut self,
        now: Clock,
        from: (NodeId, Incarnation),
        header: &Header,
        message: &Message<'_>,
        out: &mut impl Out,
    ) {
        let mut cx = Context {
            now,
            out,
            shared: &mut self.shared,
        };
        cx.note_answer(from.0, message);
        let Some(list) = self.lists.get_mut(header.stream.list) else {
            cx.ask_configuration(from, header.stream, header.epoch, header.epoch);
            return;
        };
        let installed = list.configuration.epoch;
        if let Message::YieldQuery { tenure } = message
            && cx.breaks(Mutant::OwnerYieldsWhenAsked)
            && (tenure.node, tenure.incarnation) == (cx.shared.node, cx.shared.incarnation)
        {
            let yielded = Message::Yielded { tenure: *tenure };
            cx.send_to(from.0, from.1, Channel::Main, header.stream, installed, &yielded);
            return;
        }
        if header.epoch > installed {
            if !cx.ask_configuration(from, header.stream, installed, header.epoch) {
                cx.propose(Proposal::GetConfiguration {
                    list: header.stream.list,
                    installed: Some((installed, list.configuration.id)),
                });
            }
            return;
        }
        if header.epoch < installed && !cx.breaks(Mutant::NoEpochFence) {
            let stale = Message::Stale {
                configuration: Box::new(list.configuration.clone()),
            };
            cx.send_to(from.0, from.1, Channel::Main, header.stream, installed, &stale);
            return;
        }
        let List { configuration, roles } = list;
        if let Message::YieldQuery { tenure } = message {
            let mine = (tenure.node, tenure.incarnation) == (cx.shared.node, cx.shared.incarnation);
            let holds_as =
                |role: &Role| matches!(role, Role::Owner(o) if o.tenure() == *tenure && o.stream() == header.stream);
            let holds = roles.iter().any(holds_as);
            if mine && !holds {
                let yielded = Message::Yielded { tenure: *tenure };
                cx.send_to(from.0, from.1, Channel::Main, header.stream, installed, &yielded);
            }
            return;
        }
        if let Message::ReadChunk { id, stripe, want } = *message
            && let Some(want) = want
            && !roles
                .iter()
                .any(|r| matches!(r, Role::Owner(o) if o.stream() == header.stream))
        {
            cx.answer_from_stash(configuration, header.stream, from, (id, stripe, want));
            return;
        }
        // Each takes what is addressed to it, and leaves the rest.
        for role in roles {
            match role {
                Role::Halted(_) => {}
                Role::Owner(owner) => on_owner(&mut cx, configuration, owner, from, header, message),
                Role::Member(member) => on_member(&mut cx, configuration, member, from, header, message),
            }
        }
    }
}
