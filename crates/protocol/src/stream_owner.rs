//! A data position: the owner of one stream, who alone decides the order of operations on its keys
//! (P3, P4, P5; the phases are the table of P5a).
//!
//! Here is the way of a write: admitted, recorded, numbered and sent, acknowledged, stable. `takeover` has the way from
//! a new tenure to `Serve` and `rebuild` the one from there to `Live`, for which [`Reconstructor`] brings absent chunks
//! back; `repair` finds wrong ones among those here; `lease` says when may be answered, `credit` asks for memory,
//! `sources` gives chunks to others who rebuild.

mod access;
mod credit;
mod drain;
mod hand_off;
mod import;
mod lease;
mod probe;
mod rebuild;
mod repair;
mod sources;
mod space;
mod takeover;

use crate::context::Context;
use crate::interface::{Channel, Out, Proposal};
use crate::mark::Mark;
use crate::reconstructor::Reconstructor;
use crate::ring::Ring;
use crate::rules::{Fault, Started};
pub use access::{Access, Effect, RandomKey, Stop, WriteRefusal};
use core::cmp::Reverse;
pub use lease::ReadLease;
use paritas_base::configuration::{Assignment, Configuration, Tenure};
use paritas_base::{Position, Span, StreamId, Term, Time, Version};
use paritas_code::sum;
use paritas_store::delta::{DELTA_BYTES_MAX, extents};
use paritas_store::{Arena, Delta, Policy, Stash};
use paritas_wire::peer::{Deltas, Message};
pub use space::fits_one_delta;
pub(crate) use space::housekeep;
use takeover::{SealAnswer, Takeover};

/// How far an owner has come (P5a).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Asks the members for their logs.
    Seal,
    /// Brings every member to the cut.
    Push,
    /// Waits until nobody else can hold a lease.
    Wait,
    /// Serves.
    Serve,
}

/// One parity member as the owner sees it.
#[derive(Debug)]
pub struct Member {
    /// Its position.
    pub position: Position,
    /// Its tenure.
    pub tenure: Tenure,
    /// Its parity is on a disk: the last to be asked for it.
    pub logged: bool,
    /// Live, not Filling.
    pub live: bool,
    /// It has answered in this term (P3.7).
    pub started: bool,
    /// Its log reaches at least here.
    pub matched: u64,
    /// Its lease holds until.
    pub lease_until: Time,
    /// When what it has confirmed was asked (P4.6).
    confirmed: Time,
    /// The newest delta sent on the present session.
    sent: u64,
    resend_at: Time,
    resend_wait: Span,
    owes_since: Option<Time>,
    reported_at: Time,
    credit_data: u32,
    credit_index: u32,
    window_bytes: u64,
    seal: Option<SealAnswer>,
    delay: probe::Delay,
}

/// Whether a write may begin (P3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    /// Go on.
    Admitted,
    /// The window is full, or a successor asked to hold: wait.
    Wait,
    /// Too few live parities.
    TooFewMembers,
}

/// The most bytes of deltas sent again at once.
const RESEND_BYTES_MAX: usize = 1 << 20;

/// A larger buffer is not kept for the next turn's delta.
const SPARE_BYTES_MAX: usize = 16 << 10;

/// The role of a node at a data position.
#[derive(Debug)]
pub struct StreamOwner {
    stream: StreamId,
    tenure: Tenure,
    phase: Phase,
    seq: u64,
    acked: u64,
    stable: u64,
    cut: u64,
    ring: Ring,
    /// What the next turn's delta is built in.
    spare: Vec<u8>,
    pub(crate) store: paritas_store::ObjectStore,
    open: Option<Delta>,
    members: Vec<Member>,
    probe: Option<probe::Probe>,
    /// The list lost more than its scheme covers: what is here can be read, and no more (P10.6).
    lost: bool,
    hand_offs: hand_off::HandOffs,
    takeover: Takeover,
    pub(crate) reconstructor: Reconstructor,
    pub(crate) repair: repair::Repair,
    directory_at: Time,
    directory_tries: usize,
    ask_live_at: Time,
    /// The coordinator may count on this position being whole (P5.10).
    asked_live: bool,
    stable_at: Time,
    stable_sent: u64,
    credit_at: Time,
    credit_wish: (u32, u32),
    /// A member has less memory left than was asked for.
    credit_denied: bool,
    hold_until: Time,
    /// Asked to go, and has not yet said that it is drained.
    drain_asked: bool,
    /// Since when stripe credit is short, and when that was seen last.
    credit_short: Option<(Time, Time)>,
    /// Something that a stalled command may wait for has changed.
    pub(crate) progress: bool,
    /// `acked` or a lease has changed: replies may be released.
    pub(crate) releasable: bool,
    /// Leases are wanted at once.
    pub(crate) lease_wanted: bool,
    /// The seq of the last delta on keys that fall in each bucket (P4.1): exact enough, and bounded.
    touched: Vec<u64>,
}

const TOUCHED_BUCKETS: usize = 512;

impl StreamOwner {
    /// For a new tenure. One that began with the list serves at once, empty; any other takes over.
    pub(crate) fn new<O: Out>(
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        stream: StreamId,
        tenure: Tenure,
    ) -> Self {
        let born = configuration.is_born(&tenure);
        let cluster = &cx.shared.cluster;
        let mut settings = paritas_store::Settings::new(cluster.chunk_bytes as usize, cluster.hash_key);
        settings.credit_batch = cx.shared.parameters.credit_batch;
        let mut store = if born {
            paritas_store::ObjectStore::new(settings)
        } else {
            paritas_store::ObjectStore::taken_over(settings)
        };
        store.set_policy(cx.shared.parameters.policy);
        let mut owner = Self {
            stream,
            tenure,
            phase: if born { Phase::Serve } else { Phase::Seal },
            seq: 0,
            acked: 0,
            stable: 0,
            cut: 0,
            ring: Ring::default(),
            spare: Vec::new(),
            store,
            open: None,
            members: Vec::new(),
            probe: None,
            lost: false,
            hand_offs: hand_off::HandOffs::default(),
            takeover: Takeover::new(cx.mono()),
            reconstructor: Reconstructor::default(),
            repair: repair::Repair::default(),
            directory_at: Time(0),
            directory_tries: 0,
            ask_live_at: Time(0),
            asked_live: born,
            stable_at: Time(0),
            stable_sent: 0,
            credit_at: Time(0),
            credit_wish: (0, 0),
            credit_denied: false,
            hold_until: Time(0),
            drain_asked: false,
            credit_short: None,
            progress: true,
            releasable: true,
            lease_wanted: born,
            touched: vec![0; TOUCHED_BUCKETS],
        };
        owner.rebuild_members(cx, configuration);
        owner
    }

    /// The stream.
    pub fn stream(&self) -> StreamId {
        self.stream
    }
    /// This tenure.
    pub fn tenure(&self) -> Tenure {
        self.tenure
    }
    /// The phase.
    pub fn phase(&self) -> Phase {
        self.phase
    }
    /// The newest delta issued.
    pub fn seq(&self) -> u64 {
        self.seq
    }
    /// Everything up to here is safe.
    pub fn acked(&self) -> u64 {
        self.acked
    }
    /// Every member has everything up to here.
    pub fn stable(&self) -> u64 {
        self.stable
    }
    /// The raw deltas kept.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }
    /// The members of the installed configuration.
    pub fn members(&self) -> &[Member] {
        &self.members
    }
    /// Changes which keys are evicted for new ones.
    pub fn set_policy(&mut self, policy: Policy) {
        self.store.set_policy(policy);
        self.progress = true;
    }
    /// Whether something has changed that a stalled command may wait for.
    pub fn has_progress(&self) -> bool {
        self.progress
    }
    /// As above, and forgets it.
    pub fn take_progress(&mut self) -> bool {
        core::mem::take(&mut self.progress)
    }
    /// Whether `acked` or a lease has changed since the last call, so that replies may be released.
    pub fn take_releasable(&mut self) -> bool {
        core::mem::take(&mut self.releasable)
    }
    /// Objects and chunks.
    #[inline]
    pub fn store(&self) -> &paritas_store::ObjectStore {
        &self.store
    }
    /// Whether all of it was here once in this tenure, and it has said so.
    pub fn has_asked_live(&self) -> bool {
        self.asked_live
    }
    /// Bytes of the side tables that hold no objects.
    pub fn ring_bytes(&self) -> u64 {
        let turn = self.spare.capacity() + self.open.as_ref().map_or(0, Delta::held_bytes);
        self.ring.held_bytes() + (turn + self.hand_off_bytes()) as u64
    }

    /// Memory of what it knows beside its chunks.
    pub fn table_bytes(&self) -> u64 {
        let touched = self.touched.capacity() * size_of::<u64>();
        self.store.tables_bytes() + (touched + self.reconstructor.table_bytes()) as u64
    }

    pub(crate) fn term(&self) -> Term {
        self.tenure.term()
    }

    /// C: where this tenure's log begins (P5.3).
    pub fn cut(&self) -> u64 {
        self.cut
    }

    // --- configurations ------------------------------------------------------------------------------------------

    /// A newer configuration under which the tenure is the same (P3.9, P5.1).
    pub(crate) fn on_configuration<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        self.rebuild_members(cx, configuration);
        self.reconstructor.restart(cx.mono());
        self.progress = true;
        match self.phase {
            Phase::Seal => cx.out.mark(Mark::SealedAgain),
            Phase::Push | Phase::Wait => cx.out.mark(Mark::PushedAgain),
            Phase::Serve => {}
        }
        if self.phase != Phase::Serve && cx.rules().fault(Fault::SecondCut) {
            self.phase = Phase::Seal;
        }
        if self.phase == Phase::Serve {
            self.advance(cx, configuration);
        }
    }

    /// Members of the same tenure keep what is known of them, except answers to `Seal`, which were from another epoch.
    fn rebuild_members<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        self.lost = configuration.lost;
        self.note_slots(cx, configuration);
        let mut before = core::mem::take(&mut self.members);
        let born = configuration.is_born(&self.tenure);
        for (position, assignment) in configuration.members() {
            let same = |m: &Member| m.position == position && m.tenure == assignment.tenure;
            let mut member = match before.iter().position(same) {
                Some(at) => before.swap_remove(at),
                None => Member {
                    position,
                    tenure: assignment.tenure,
                    logged: cx.shared.cluster.is_logged(position),
                    live: false,
                    started: born && configuration.is_born(&assignment.tenure),
                    matched: 0,
                    lease_until: Time(0),
                    confirmed: Time(0),
                    sent: 0,
                    resend_at: Time(0),
                    resend_wait: Span(0),
                    owes_since: None,
                    reported_at: Time(0),
                    credit_data: 0,
                    credit_index: 0,
                    window_bytes: u64::MAX,
                    seal: None,
                    delay: probe::Delay::default(),
                },
            };
            member.live = assignment.state.is_live();
            member.seal = None;
            // What was sent under the older epoch may have been refused: send it again at once.
            member.sent = member.matched;
            member.resend_at = cx.mono();
            member.resend_wait = cx.shared.parameters.resend;
            self.members.push(member);
        }
        self.probe = None;
        self.credit_at = cx.mono();
        self.apply_credit();
    }

    /// A session with a member is new: what the old one may have lost goes again.
    pub(crate) fn on_session_up<O: Out>(&mut self, cx: &mut Context<'_, O>, node: paritas_base::NodeId) {
        let (now, wait) = (cx.mono(), cx.shared.parameters.resend);
        for member in self.members.iter_mut().filter(|m| m.tenure.node == node) {
            member.sent = member.matched;
            (member.resend_at, member.resend_wait) = (now, wait);
        }
        self.credit_at = now;
        self.directory_at = now;
        self.ask_live_at = now;
        self.takeover.on_session_up(now);
        self.reconstructor.restart(now);
        self.lease_wanted = true;
    }

    /// The members, those first that can best be read from: Live, with a log that reaches the cut, and least behind.
    /// A slow one holds nobody up while others answer (17a).
    pub(crate) fn members_by_use(&self) -> impl Iterator<Item = &Member> {
        let mut members: Vec<&Member> = self.members.iter().collect();
        members.sort_by_key(|m| {
            (
                !m.live,
                !m.started || m.matched < self.cut,
                m.logged,
                Reverse(m.matched),
            )
        });
        members.into_iter()
    }

    // --- writes --------------------------------------------------------------------------------------------------

    /// P3.1.
    pub(crate) fn admit_write<O: Out>(&self, cx: &mut Context<'_, O>) -> Admission {
        let wanted = usize::from(cx.shared.cluster.min_redundancy).min(usize::from(cx.shared.cluster.parity));
        if self.lost || self.members.iter().filter(|m| m.live).count() < wanted {
            return Admission::TooFewMembers;
        }
        let window = self.members.iter().map(|m| m.window_bytes).min().unwrap_or(u64::MAX);
        let open = self.open.as_ref().map_or(0, |d| d.bytes().len() as u64);
        let full = !self.members.is_empty()
            && self.ring.unstable_bytes() + open > window.min(cx.shared.parameters.window_bytes);
        if full {
            cx.out.mark(Mark::WindowFull);
        }
        if full || cx.mono() < self.hold_until {
            return Admission::Wait;
        }
        Admission::Admitted
    }

    /// The delta of this turn, and the store it is recorded from.
    pub(crate) fn delta(&mut self) -> (&mut paritas_store::ObjectStore, &mut Delta) {
        let version = Version::new(self.tenure.term(), self.seq + 1);
        let spare = &mut self.spare;
        let open = self
            .open
            .get_or_insert_with(|| Delta::new(version, core::mem::take(spare)));
        open.set_bytes_max(DELTA_BYTES_MAX);
        (&mut self.store, open)
    }

    /// Bytes of the turn's delta so far: none once the turn has ended.
    pub fn open_bytes(&self) -> usize {
        self.open.as_ref().map_or(0, |d| d.bytes().len())
    }

    /// The newest delta, the open one among them.
    pub(crate) fn newest_seq(&self) -> u64 {
        if self.open_bytes() > 0 {
            self.next_seq()
        } else {
            self.seq
        }
    }

    /// The seq that the open delta will have.
    pub(crate) fn next_seq(&self) -> u64 {
        self.seq + 1
    }

    /// Notes that the open delta touches this key.
    pub(crate) fn touch(&mut self, hash: u64) {
        self.touched[hash as usize % TOUCHED_BUCKETS] = self.seq + 1;
    }

    /// Notes that the open delta may touch any key.
    pub(crate) fn touch_all(&mut self) {
        self.touched.fill(self.seq + 1);
    }

    /// Evicts keys until so many bytes have died; gives how many (P8.1). Whoever finds one gone waits for the delta.
    pub(crate) fn evict(&mut self, arena: &mut Arena, bytes: u64) -> u32 {
        let seq = self.seq + 1;
        self.delta();
        let (store, touched) = (&mut self.store, &mut self.touched);
        let Some(delta) = &mut self.open else { return 0 };
        let gone = |hash: u64| touched[hash as usize % TOUCHED_BUCKETS] = seq;
        store.evict(arena, delta, bytes, gone).unwrap_or(0)
    }

    /// Free chunks are no longer kept for a write that found too few. One that still waits says so again.
    pub(crate) fn forget_wanted(&mut self) {
        self.store.forget_wanted();
    }

    /// P4.1: what a read of this key must wait for.
    pub(crate) fn need(&self, hash: u64) -> u64 {
        self.touched[hash as usize % TOUCHED_BUCKETS]
    }

    /// Closes the turn's delta: numbers it, keeps it, and sends it to every member (P3.2).
    pub fn close_delta<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        let Some(delta) = self.open.take_if(|d| !d.is_empty()) else {
            return;
        };
        self.seq += 1;
        let chunk_bytes = cx.shared.arena.chunk_bytes();
        let chunks = self.store.chunks_mut();
        for extent in extents(delta.bytes(), chunk_bytes).flatten() {
            chunks.add_sum(extent.stripe, sum::of_extent(chunk_bytes, extent.offset, extent.xor));
            let left = chunks.sum(extent.stripe);
            if extent.free && left != 0 {
                // What was freed was wrong. It is zeros here; the members find the difference in their parity (P9.3).
                cx.shared.scrub.bad += 1;
                chunks.add_sum(extent.stripe, left);
            }
        }
        let bytes = delta.into_bytes();
        self.ring.push(cx.mono(), self.tenure.term(), self.seq, &bytes);
        if bytes.capacity() <= SPARE_BYTES_MAX {
            self.spare = bytes;
        }
        self.begin_probe(cx.now.mono);
        for at in 0..self.members.len() {
            let member = &self.members[at];
            if member.started && member.sent + 1 == self.seq {
                self.send_deltas(cx, configuration, at, RESEND_BYTES_MAX);
            }
        }
        self.advance(cx, configuration);
    }

    /// Sends a member every delta after `sent`, as far as the cap goes.
    fn send_deltas<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        at: usize,
        bytes_max: usize,
    ) {
        let (now, wait) = (cx.mono(), cx.shared.parameters.resend);
        let member = &mut self.members[at];
        let mut bytes = 0;
        for record in self.ring.after(member.sent) {
            if record.seq != member.sent + 1 {
                cx.halt(
                    self.stream.list,
                    self.stream.x,
                    format!(
                        "I5: {} no longer has delta {} for position {}",
                        self.stream,
                        member.sent + 1,
                        member.position.0
                    ),
                );
                return;
            }
            let delta = Message::Delta {
                term: self.tenure.term(),
                seq: record.seq,
                acked: self.acked,
                stable: self.stable,
                extents: record.extents,
            };
            if !cx.send(&member.tenure, Channel::Main, self.stream, configuration.epoch, &delta) {
                return;
            }
            member.sent = record.seq;
            if member.owes_since.is_none() {
                member.owes_since = Some(now);
                (member.resend_at, member.resend_wait) = (now + wait, wait);
            }
            bytes += record.extents.len();
            if bytes > bytes_max {
                break;
            }
        }
        self.stable_sent = self.stable;
    }

    /// P3.3: a member's cumulative ack.
    pub(crate) fn on_ack<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        from: Tenure,
        term: Term,
        recv: u64,
        lease_sent: Time,
    ) {
        if self.phase != Phase::Serve || term != self.term() {
            return;
        }
        let (now, wait, lease) = (cx.mono(), cx.shared.parameters.resend, cx.shared.parameters.lease);
        let seq = self.seq;
        let Some(member) = self.members.iter_mut().find(|m| m.tenure == from) else {
            return;
        };
        if recv > seq {
            cx.halt(
                self.stream.list,
                self.stream.x,
                format!(
                    "I6: position {} acks {recv} of {}, which ends at {seq}",
                    member.position.0, self.stream
                ),
            );
            return;
        }
        if !member.started && recv < self.stable {
            return;
        }
        member.started = true;
        if lease_sent > Time(0) && lease_sent <= now {
            member.lease_until = member.lease_until.max(lease_sent + lease);
            self.releasable = true;
        }
        if recv > member.matched {
            member.matched = recv;
            member.sent = member.sent.max(recv);
            (member.resend_at, member.resend_wait) = (now + wait, wait);
            member.owes_since = (recv < seq).then_some(now);
            self.note_probe(now, from, recv);
            self.advance(cx, configuration);
        }
        let at = self.members.iter().position(|m| m.tenure == from);
        if let Some(at) = at
            && self.members[at].sent < self.seq
        {
            self.send_deltas(cx, configuration, at, RESEND_BYTES_MAX);
        }
    }

    /// P3.7, P3.8.
    fn advance<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        if self.phase != Phase::Serve {
            return;
        }
        let quorum = usize::from(configuration.ack_quorum).min(self.members.len());
        let started = self.members.iter().filter(|m| m.started).map(|m| Started {
            live: m.live,
            leased: m.lease_until > cx.now.mono,
            matched: m.matched,
        });
        let reached = if self.members.is_empty() {
            Some(self.seq)
        } else {
            cx.rules().acked(started, quorum)
        };
        if let Some(reached) = reached
            && reached > self.acked
        {
            self.acked = reached.min(self.seq);
            self.releasable = true;
        }
        let stable = if self.members.is_empty() {
            self.acked
        } else if self.members.iter().all(|m| m.started) {
            self.members.iter().map(|m| m.matched).min().unwrap_or(self.stable)
        } else {
            self.stable
        };
        if stable > self.stable {
            self.stable = stable;
            self.ring.mark_stable(stable);
            self.progress = true;
            self.stable_at = cx.mono() + cx.shared.parameters.stable_flush;
        }
        self.trim(cx, configuration);
    }

    /// Stable deltas are kept only while somebody may want a chunk undone: while a data position is being rebuilt.
    fn trim<O: Out>(&mut self, cx: &Context<'_, O>, configuration: &Configuration) {
        let p = &cx.shared.parameters;
        let live = |x| configuration.at(x).is_some_and(|a| a.state.is_live());
        let whole = configuration.data_positions().all(live);
        let kept_from = cx.rules().kept_from(self.stable, self.acked, self.seq);
        if self.members.is_empty() || whole || kept_from != self.stable {
            self.ring.trim(kept_from);
        } else {
            self.ring
                .trim_history(self.stable, p.history_bytes, cx.now.mono, p.history);
        }
    }

    /// The tenure is over. What is here may be wanted again, by this node or by whoever has the position now (P2.4).
    pub(crate) fn end<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        let newest = Version::new(self.term(), self.seq);
        let (list, x, until) = (self.stream.list, self.stream.x, cx.mono() + cx.shared.parameters.stash);
        let arena = &mut cx.shared.arena;
        let stash = Stash::of_data(core::mem::take(self.store.chunks_mut()), arena, newest);
        // Without parity the position begins again empty wherever it goes (P10.6).
        if configuration.parity == 0 || cx.shared.parameters.stash == Span(0) {
            stash.clear(arena);
        } else {
            cx.shared.stashes.keep(arena, list, x, until, stash);
        }
    }

    // --- time ----------------------------------------------------------------------------------------------------

    /// Closes the turn: the delta leaves, and what is due is done.
    pub(crate) fn on_turn_end<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        self.close_delta(cx, configuration);
        match self.phase {
            Phase::Seal | Phase::Push | Phase::Wait => self.take_over(cx, configuration),
            Phase::Serve => self.serve(cx, configuration),
        }
    }

    fn serve<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        let now = cx.mono();
        for at in 0..self.members.len() {
            self.resend(cx, configuration, at);
        }
        if now >= self.stable_at && self.stable_sent != self.stable {
            self.stable_sent = self.stable;
            self.stable_at = now + cx.shared.parameters.stable_flush;
            let message = Message::Stable {
                term: self.term(),
                acked: self.acked,
                stable: self.stable,
            };
            for member in &self.members {
                cx.send(
                    &member.tenure,
                    Channel::Main,
                    self.stream,
                    configuration.epoch,
                    &message,
                );
            }
            self.ring.give_back();
            self.spare = Vec::new();
        }
        if self.store.chunks().directory_known() {
            self.ask_credit(cx, configuration);
        }
        self.rebuild(cx, configuration);
        self.tell_drained(cx);
        if self.hold_until != Time(0) && now >= self.hold_until {
            self.hold_until = Time(0);
            self.drain_asked = false;
            self.progress = true;
        }
        if self.ring.first().is_some_and(|first| first <= self.stable) {
            self.trim(cx, configuration);
        }
    }

    fn resend<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration, at: usize) {
        let now = cx.mono();
        let (wait_max, report) = (cx.shared.parameters.resend_max, cx.shared.parameters.silence_report);
        let stable = cx.rules().sync_base(self.stable, self.acked);
        let (seq, term) = (self.seq, self.term());
        let member = &mut self.members[at];
        let behind = !member.started || member.matched < seq;
        if !behind || now < member.resend_at {
            return;
        }
        member.resend_at = now + member.resend_wait;
        member.resend_wait = Span((member.resend_wait.0 * 2).min(wait_max.0));
        let since = *member.owes_since.get_or_insert(now);
        if now - since > report && now - member.reported_at > report {
            member.reported_at = now;
            cx.propose(Proposal::ReportSilent {
                node: member.tenure.node,
                incarnation: member.tenure.incarnation,
            });
        }
        if member.started {
            // One delta, as a question: its answer says what else must go again. Links seldom lose anything.
            member.sent = member.matched;
            self.send_deltas(cx, configuration, at, 0);
        } else {
            let mut deltas = Vec::new();
            for record in self.ring.after(stable) {
                Deltas::push(&mut deltas, record.term, record.seq, record.extents);
            }
            let message = Message::Sync {
                term,
                base: stable,
                top: seq,
                deltas: Deltas::new(&deltas),
            };
            cx.send(
                &member.tenure,
                Channel::Main,
                self.stream,
                configuration.epoch,
                &message,
            );
        }
    }

    /// Until when nothing is to be done if nobody takes it to change; `None`: something may be in each turn, for what
    /// it waits for depends on other roles of the node too.
    pub(crate) fn rests_until(&self, configuration: &Configuration) -> Option<Time> {
        let has_said = !self.progress && !self.releasable && !self.lease_wanted && self.open_bytes() == 0;
        let is_whole = self.is_whole() && self.reconstructor.is_at_rest() && !self.drain_asked;
        // What has gone from a list that is not whole is kept for a time (P3.8), and then dropped (`trim`).
        let live = |a: &Option<Assignment>| a.as_ref().is_some_and(|a| a.state.is_live());
        let rests = has_said
            && is_whole
            && self.slot_work(configuration).is_none()
            && !configuration.is_stand_in(self.stream.x)
            && configuration.positions.iter().all(live);
        rests.then(|| self.next_deadline().unwrap_or(Time(u64::MAX)))
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let mut next = Time(u64::MAX);
        match self.phase {
            Phase::Serve => {
                for member in self.members.iter().filter(|m| !m.started || m.matched < self.seq) {
                    next = next.min(member.resend_at);
                }
                if self.stable_sent != self.stable {
                    next = next.min(self.stable_at);
                }
                if !self.store.chunks().directory_known() {
                    next = next.min(self.directory_at);
                } else {
                    next = next.min(self.credit_at);
                    next = next.min(self.reconstructor.next_at());
                    if self.store.chunks().absent_count() == 0 && self.reconstructor.filling {
                        next = next.min(self.ask_live_at);
                    }
                }
                if self.hold_until != Time(0) {
                    next = next.min(self.hold_until);
                }
                if self.store.chunks().directory_known() {
                    next = next.min(self.next_slot_work());
                }
            }
            phase => next = self.takeover.next_at(phase),
        }
        (next != Time(u64::MAX)).then_some(next)
    }
}
