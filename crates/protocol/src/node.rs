//! The machine of one node: configurations, the epoch fence, and who gets which event.

mod account;
mod disk;
mod dispatch;
mod leases;
mod opinions;
pub(crate) mod scrub;

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
use crate::router::Router;
use crate::scrub::Scrub;
use crate::session::{Greeting, Sessions};
use crate::slot_map::SlotMap;
use crate::stash::Stashes;
use crate::stream_owner::{Phase, StreamOwner};
use crate::takeovers::Takeovers;

pub use account::Figures;
use account::SLOTS_MAX;
use dispatch::{on_member, on_owner, tenure_of};
pub use opinions::Opinions;
use paritas_base::configuration::{ClusterRecord, Configuration, Lineage, PositionState, Tenure};
use paritas_base::slots::HandOff;
use paritas_base::{Clock, Incarnation, ListId, NodeId, Position, Prng, Span, Stream, Time};
use paritas_code::{Code, Scheme};
use paritas_store::{Arena, HugeRange, Old};
use paritas_wire::peer::{self, BadFrame, Header, Message, kind};

/// Releases in one turn: each may run commands that come back to this node, and few do so twice.
const RELEASES_MAX: usize = 64;

/// Exchanges between roles of this node in one turn, a question and its answer being two: what is left goes on in the
/// next turn, so that a rebuild from its own chunks holds nobody up.
const EXCHANGES_MAX: usize = 16;

/// One node: every role it holds, and the router before them.
#[derive(Debug)]
pub struct Node {
    shared: Shared,
    lists: Lists,
    router: Router,
    renew_at: Time,
    account_at: Time,
    watch: opinions::Watch,
}

impl Node {
    /// An empty node.
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
            changed: Vec::new(),
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
            router: Router::default(),
            renew_at: Time(0),
            account_at: Time(0),
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

    /// Handles one event.
    pub fn on(&mut self, now: Clock, event: Event<'_>, out: &mut impl Out) {
        self.shared.pace.happens(now.mono);
        self.watch.happens(now.mono, self.suspicion());
        let turn_ends = matches!(event, Event::TurnEnd);
        self.handle(now, event, out);
        self.end_disk_event(now, out);
        self.end_halted(now, out);
        self.renew_slots(now, out);
        // What the end of a turn leaves unread begins the next one, and has an end of turn after it.
        if !turn_ends {
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

    fn handle(&mut self, now: Clock, event: Event<'_>, out: &mut impl Out) {
        let mut cx = Context {
            now,
            out,
            shared: &mut self.shared,
        };
        match event {
            Event::Timer => {}
            Event::TurnEnd => self.on_turn_end(now, out),
            Event::LinkUp { link, dialed } => {
                let Context { out, shared, .. } = cx;
                shared.sessions.on_link_up(now.mono, link, dialed, out);
            }
            Event::DialFailed { node, channel } => self.shared.sessions.on_dial_failed(now.mono, node, channel),
            Event::LinkDown { link } => {
                if let Some((node, incarnation, Channel::Main)) = self.shared.sessions.on_link_down(now.mono, link) {
                    let mut cx = Context {
                        now,
                        out,
                        shared: &mut self.shared,
                    };
                    self.router.on_session_down(&mut cx, node, incarnation);
                }
            }
            Event::Frame { link, bytes } => self.on_frame(now, link, bytes, out),
            Event::Configuration(configuration) => {
                self.install(now, configuration, out);
            }
            Event::Suspicion { ms } => self.shared.cluster.suspicion_ms = ms,
            Event::Drain { list, position, tenure } => {
                let stream = Stream { list, x: position };
                if let Some((_, owner)) = self.lists.owner_mut(stream) {
                    owner.on_drain(&cx, tenure);
                }
            }
            Event::Nodes(nodes) => {
                self.router.on_nodes(&mut cx, &self.lists, nodes);
                let Context { out, shared, .. } = cx;
                shared.sessions.on_nodes(now.mono, nodes, out);
            }
            Event::ClientUp { conn, port, ends } => self.router.on_client_up(&mut cx, conn, port, ends),
            Event::Client { conn, bytes } => self.router.on_client(&mut cx, &mut self.lists, conn, bytes),
            Event::ClientDown { conn } => self.router.on_client_down(conn),
            Event::Answer { conn, n, text } => self.router.on_answer(&mut cx, conn, n, text),
            Event::Disk { id, outcome } => self.on_disk(id, outcome),
        }
    }

    /// The next part of the arena that can be made a huge page, on another thread.
    pub fn next_huge(&mut self) -> Option<HugeRange> {
        self.shared.arena.next_huge()
    }

    /// Frames that will come next: asks for the memory that deltas and forwarded commands will touch, so that their
    /// waits overlap. Nothing else happens, whatever the frames say.
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
        self.router.look_ahead(arena, &self.lists, frames);
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
        let renew = (owns && self.shared.cluster.parity > 0).then_some(self.renew_at);
        let watch = self.lists.roles().next().is_some().then_some(self.watch.look_at);
        roles
            .chain(self.lists.first_rests_until())
            .chain(self.shared.sessions.next_deadline())
            .chain(self.router.next_deadline())
            .chain(self.shared.stashes.next_deadline().map(|at| at.max(self.account_at)))
            .chain(renew)
            .chain(watch)
            .chain(scrub)
            .chain(own_frames)
            .chain(self.shared.disk.as_ref().and_then(DiskLog::next_deadline))
            .min()
    }

    /// The driver writes next: deltas, acks and whatever is due leave now.
    fn on_turn_end(&mut self, now: Clock, out: &mut impl Out) {
        self.account(now.mono);
        self.watch(now.mono, out);
        let (mut under_way, mut absent, mut unfilled, mut unfilled_on_disk) = (0, 0u32, 0, 0);
        // Whoever has anything to bring back does not rest.
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
            disk.set_backlog(unfilled_on_disk, learns);
        }
        self.shared.arena.set_backlog(absent);
        self.shared.arena.set_expected(absent.saturating_add(unfilled));
        self.hand_off_slots(now, out);
        let mut cx = Context {
            now,
            out,
            shared: &mut self.shared,
        };
        self.router.retry_stalled(&mut cx, &mut self.lists);
        self.scrub(now, out);
        self.free_held_acks();
        self.end_roles_turns(now, out);
        // An owner's delta to a member beside it is acked in this turn too.
        for _ in 0..EXCHANGES_MAX {
            if self.shared.own_frames.is_empty() {
                break;
            }
            self.read_own_frames(now, out);
            self.end_roles_turns(now, out);
        }
        let mut cx = Context {
            now,
            out,
            shared: &mut self.shared,
        };
        // A command that comes back to this node runs within a release: its delta leaves in this turn too.
        for _ in 0..RELEASES_MAX {
            self.router.release(&mut cx, &mut self.lists);
            let mut late = false;
            for (configuration, owner) in self.lists.awake_owners_mut(now.mono) {
                if owner.open_bytes() > 0 {
                    owner.close_delta(&mut cx, configuration);
                    late = true;
                }
            }
            if !late {
                break;
            }
        }
        // Such a command may have read, too.
        let unasked =
            |(_, owner): (&Configuration, &mut StreamOwner)| owner.lease_wanted && owner.phase() == Phase::Serve;
        if self.shared.parameters.reads == Reads::Confirmed && self.lists.awake_owners_mut(now.mono).any(unasked) {
            self.renew_leases(now, out);
        }
        self.shared.sessions.on_timer(now.mono, out);
        if let Some(disk) = &mut self.shared.disk {
            disk.on_turn_end(now.mono, self.shared.parameters.log_flush);
        }
        self.lists.rest(now.mono, List::rests_until);
    }

    /// 10.8: owners go on with what they hand off or take in. The two streams may be of two lists.
    fn hand_off_slots(&mut self, now: Clock, out: &mut impl Out) {
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
        self.renew_slots(now, out);
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
            self.router.on_configuration(&mut cx, &mut self.lists, id);
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
        self.router.on_configuration(&mut cx, &mut self.lists, new.list);
        true
    }

    /// The slot map follows what has changed: configurations, and what owners here are handing off (10.8).
    fn renew_slots(&mut self, now: Clock, out: &mut impl Out) {
        if self.shared.renew_slots(&self.lists) {
            let mut cx = Context {
                now,
                out,
                shared: &mut self.shared,
            };
            self.router.on_slots(&mut cx);
        }
    }

    // --- frames --------------------------------------------------------------------------------------------------

    fn on_frame(&mut self, now: Clock, link: LinkId, bytes: &[u8], out: &mut impl Out) {
        let (header, message) = match peer::decode(bytes) {
            Ok(decoded) => decoded,
            Err(BadFrame::Length(_) | BadFrame::Crc | BadFrame::Kind(_) | BadFrame::Body(_)) => {
                out.close(link);
                return;
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
                    self.router.on_session_down(&mut cx, node, incarnation);
                }
                for (_, role) in self.lists.roles_mut() {
                    match role {
                        Role::Halted(_) => {}
                        Role::Owner(owner) => owner.on_session_up(&mut cx, node),
                        Role::Member(member) => member.filler.on_session_up(now.mono),
                    }
                }
                self.router.on_session_up();
            }
            return;
        }
        let Some((node, incarnation, _)) = self.shared.sessions.on_frame(now.mono, link) else {
            // Not greeted, or replaced by a newer link: nothing it says counts.
            out.close(link);
            return;
        };
        self.on_message(now, (node, incarnation), &header, message, out);
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
            Message::Forward {
                conn,
                n,
                resp3,
                command,
            } => {
                let from = (node, incarnation);
                self.router.on_forward(
                    &mut cx,
                    &mut self.lists,
                    from,
                    conn,
                    n,
                    resp3,
                    command,
                    header.stream,
                    header.epoch,
                );
            }
            Message::Reply { conn, n, bytes } => self.router.on_reply(&mut cx, &mut self.lists, node, conn, n, bytes),
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
