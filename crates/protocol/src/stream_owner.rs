//! A data position: the owner of one stream, who alone decides the order of operations on its keys
//! (PROTOCOL §3, 4, 5; the phases are the table of 5a).
//!
//! `takeover` has the way from a new tenure to `Serve`, [`Materialiser`] brings absent chunks back.

mod takeover;

use crate::context::Context;
use crate::interface::{Channel, Out, Proposal};
use crate::mark::Mark;
use crate::materialiser::Materialiser;
use crate::parameters::Mutant;
use crate::ring::Ring;
use paritas_base::configuration::{Configuration, PositionState, Tenure};
use paritas_base::{Position, Span, Stream, Stripe, Term, Time, Version};
use paritas_code::sum;
use paritas_store::delta::{DELTA_BYTES_MAX, extents};
use paritas_store::{Arena, Delta, Presence};
use paritas_wire::peer::{ChunkStatus, Deltas, Message, Stripes};
use takeover::{SealAnswer, Takeover};

/// How far an owner has come (PROTOCOL 5a).
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
    /// Live, not Filling.
    pub live: bool,
    /// It has answered in this term (3.7).
    pub started: bool,
    /// Its log reaches at least here.
    pub matched: u64,
    /// Its lease holds until.
    pub lease_until: Time,
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
}

/// Whether reads may be answered (4.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReadLease {
    /// No member, no lease needed (4.5).
    Unlimited,
    /// Until then.
    Until(Time),
    /// Not now.
    None,
}

/// Whether a write may begin (3.1).
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
    stream: Stream,
    tenure: Tenure,
    phase: Phase,
    seq: u64,
    acked: u64,
    stable: u64,
    cut: u64,
    ring: Ring,
    /// What the next turn's delta is built in.
    spare: Vec<u8>,
    pub(crate) store: paritas_store::Stream,
    open: Option<Delta>,
    members: Vec<Member>,
    takeover: Takeover,
    pub(crate) materialiser: Materialiser,
    directory_at: Time,
    directory_tries: usize,
    ask_live_at: Time,
    stable_at: Time,
    stable_sent: u64,
    credit_at: Time,
    credit_wish: (u32, u32),
    /// A member has less memory left than was asked for.
    credit_denied: bool,
    hold_until: Time,
    /// Since when stripe credit is short, and when that was seen last.
    credit_short: (Time, Time),
    /// Something that a stalled command may wait for has changed.
    pub(crate) progress: bool,
    /// `acked` or a lease has changed: replies may be released.
    pub(crate) releasable: bool,
    /// Leases are wanted at once.
    pub(crate) lease_wanted: bool,
    /// The seq of the last delta on keys that fall in each bucket (4.1): exact enough, and bounded.
    touched: Vec<u64>,
}

const TOUCHED_BUCKETS: usize = 512;

impl StreamOwner {
    /// For a new tenure. One that began with the list serves at once, empty; any other takes over.
    pub(crate) fn new<O: Out>(
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        stream: Stream,
        tenure: Tenure,
    ) -> Self {
        let born = configuration.is_born(&tenure);
        let cluster = &cx.shared.cluster;
        let mut settings = paritas_store::Settings::new(cluster.chunk_bytes as usize, cluster.hash_key);
        settings.credit_batch = cx.shared.parameters.credit_batch;
        let store = if born {
            paritas_store::Stream::new(settings)
        } else {
            paritas_store::Stream::taken_over(settings)
        };
        let mut store = store;
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
            takeover: Takeover::default(),
            materialiser: Materialiser::default(),
            directory_at: Time(0),
            directory_tries: 0,
            ask_live_at: Time(0),
            stable_at: Time(0),
            stable_sent: 0,
            credit_at: Time(0),
            credit_wish: (0, 0),
            credit_denied: false,
            hold_until: Time(0),
            credit_short: (Time(0), Time(0)),
            progress: true,
            releasable: true,
            lease_wanted: born,
            touched: vec![0; TOUCHED_BUCKETS],
        };
        owner.rebuild_members(cx, configuration);
        owner
    }

    /// The stream.
    pub fn stream(&self) -> Stream {
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
    /// Objects and chunks.
    pub fn store(&self) -> &paritas_store::Stream {
        &self.store
    }
    /// Bytes of the side tables that hold no objects.
    pub fn ring_bytes(&self) -> u64 {
        let turn = self.spare.capacity() + self.open.as_ref().map_or(0, Delta::held_bytes);
        self.ring.held_bytes() + turn as u64
    }

    /// Memory of what it knows beside its chunks.
    pub fn table_bytes(&self) -> u64 {
        self.store.tables_bytes() + (self.touched.capacity() * size_of::<u64>()) as u64
    }

    pub(crate) fn term(&self) -> Term {
        self.tenure.term()
    }

    /// C: where this tenure's log begins (5.3).
    pub fn cut(&self) -> u64 {
        self.cut
    }

    // --- configurations ------------------------------------------------------------------------------------------

    /// A newer configuration under which the tenure is the same (3.9, 5.1).
    pub(crate) fn on_configuration<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        self.rebuild_members(cx, configuration);
        self.materialiser.restart(cx.mono());
        self.progress = true;
        match self.phase {
            Phase::Seal => cx.out.mark(Mark::SealedAgain),
            Phase::Push | Phase::Wait => cx.out.mark(Mark::PushedAgain),
            Phase::Serve => {}
        }
        if self.phase == Phase::Seal || (cx.breaks(Mutant::SecondCutInOneTerm) && self.phase != Phase::Serve) {
            self.phase = Phase::Seal;
        }
        if self.phase == Phase::Serve {
            self.advance(cx, configuration);
        }
    }

    /// Members of the same tenure keep what is known of them, except answers to `Seal`, which were from another epoch.
    fn rebuild_members<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        let mut before = core::mem::take(&mut self.members);
        let born = configuration.is_born(&self.tenure);
        for (position, assignment) in configuration.members() {
            let same = |m: &Member| m.position == position && m.tenure == assignment.tenure;
            let mut member = match before.iter().position(same) {
                Some(at) => before.swap_remove(at),
                None => Member {
                    position,
                    tenure: assignment.tenure,
                    live: false,
                    started: born && configuration.is_born(&assignment.tenure),
                    matched: 0,
                    lease_until: Time(0),
                    sent: 0,
                    resend_at: Time(0),
                    resend_wait: Span(0),
                    owes_since: None,
                    reported_at: Time(0),
                    credit_data: 0,
                    credit_index: 0,
                    window_bytes: u64::MAX,
                    seal: None,
                },
            };
            member.live = assignment.state == PositionState::Live;
            member.seal = None;
            // What was sent under the older epoch may have been refused: send it again at once.
            member.sent = member.matched;
            member.resend_at = cx.mono();
            member.resend_wait = cx.shared.parameters.resend;
            self.members.push(member);
        }
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
        self.materialiser.restart(now);
        self.lease_wanted = true;
    }

    // --- writes --------------------------------------------------------------------------------------------------

    /// 3.1.
    pub(crate) fn admit_write<O: Out>(&self, cx: &mut Context<'_, O>) -> Admission {
        let wanted = usize::from(cx.shared.cluster.min_redundancy).min(usize::from(cx.shared.cluster.parity));
        if self.members.iter().filter(|m| m.live).count() < wanted {
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
    pub(crate) fn delta(&mut self) -> (&mut paritas_store::Stream, &mut Delta) {
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

    /// Evicts keys until so many bytes have died; gives how many (8.1). Whoever finds one gone waits for the delta.
    pub(crate) fn evict(&mut self, arena: &mut Arena, bytes: u64) -> u32 {
        let seq = self.seq + 1;
        self.delta();
        let (store, touched) = (&mut self.store, &mut self.touched);
        let Some(delta) = &mut self.open else { return 0 };
        let gone = |hash: u64| touched[hash as usize % TOUCHED_BUCKETS] = seq;
        store.evict(arena, delta, bytes, gone).unwrap_or(0)
    }

    /// For a write without stripe credit: whether eviction gives it chunks to write to. Not while more credit may
    /// come, nor if there are free chunks that a new member has not granted yet.
    pub(crate) fn eviction_helps(&self) -> bool {
        self.credit_denied && self.store.gauges().free_chunks < 2
    }

    /// A write finds no stripe credit: whether that is so for too long to wait for more (8.2).
    pub(crate) fn credit_refused<O: Out>(&mut self, cx: &Context<'_, O>) -> bool {
        let (now, resend) = (cx.mono(), cx.shared.parameters.resend);
        let (since, seen) = &mut self.credit_short;
        if now - *seen > Span(8 * resend.0) {
            *since = now;
        }
        *seen = now;
        now - *since > Span(2 * resend.0)
    }

    /// 4.1: what a read of this key must wait for.
    pub(crate) fn need(&self, hash: u64) -> u64 {
        self.touched[hash as usize % TOUCHED_BUCKETS]
    }

    /// Closes the turn's delta: numbers it, keeps it, and sends it to every member (3.2).
    pub(crate) fn close_delta<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        let Some(delta) = self.open.take_if(|d| !d.is_empty()) else {
            return;
        };
        self.seq += 1;
        let chunk_bytes = cx.shared.arena.chunk_bytes();
        let chunks = self.store.chunks_mut();
        for extent in extents(delta.bytes(), chunk_bytes).flatten() {
            chunks.add_sum(extent.stripe, sum::of_extent(chunk_bytes, extent.offset, extent.xor));
        }
        let bytes = delta.into_bytes();
        self.ring.push(cx.mono(), self.tenure.term(), self.seq, &bytes);
        if bytes.capacity() <= SPARE_BYTES_MAX {
            self.spare = bytes;
        }
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

    /// 3.3: a member's cumulative ack.
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
            self.advance(cx, configuration);
        }
        let at = self.members.iter().position(|m| m.tenure == from);
        if let Some(at) = at
            && self.members[at].sent < self.seq
        {
            self.send_deltas(cx, configuration, at, RESEND_BYTES_MAX);
        }
    }

    /// 3.7, 3.8.
    fn advance<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        if self.phase != Phase::Serve {
            return;
        }
        let quorum = usize::from(configuration.ack_quorum).min(self.members.len());
        let local = cx.breaks(Mutant::OwnerJudgesWhoIsAlive);
        let ignore_filling = cx.breaks(Mutant::AcksIgnoreFillingMembers);
        let matched = self
            .members
            .iter()
            .filter(|m| m.started && (m.live || !ignore_filling))
            .filter(|m| !local || m.lease_until > cx.now.mono)
            .map(|m| m.matched);
        let reached = if self.members.is_empty() {
            Some(self.seq)
        } else if local || ignore_filling {
            matched.min()
        } else {
            nth_largest(matched, quorum)
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
        let live = |x| configuration.at(x).is_some_and(|a| a.state == PositionState::Live);
        let whole = configuration.data_positions().all(live);
        if cx.breaks(Mutant::RawDeltasNotKept) {
            self.ring.trim(self.seq);
        } else if self.members.is_empty() || whole {
            self.ring.trim(self.stable);
        } else {
            self.ring
                .trim_history(self.stable, p.history_bytes, cx.now.mono, p.history);
        }
    }

    // --- reads ---------------------------------------------------------------------------------------------------

    /// 4.2.
    pub(crate) fn read_lease<O: Out>(&self, cx: &Context<'_, O>, configuration: &Configuration) -> ReadLease {
        if self.members.is_empty() {
            return ReadLease::Unlimited;
        }
        let quorum = usize::from(configuration.ack_quorum).min(self.members.len());
        let live_only = cx.breaks(Mutant::LeaseFromLiveMembersOnly);
        let leases = self
            .members
            .iter()
            .filter(|m| m.started && (m.live || !live_only))
            .map(|m| m.lease_until);
        let reached = if live_only {
            leases.min()
        } else {
            nth_largest(leases, quorum)
        };
        match reached {
            Some(until) if until > cx.now.mono => ReadLease::Until(until),
            _ => ReadLease::None,
        }
    }

    /// Whether a write that is acked may be answered (3.7).
    pub(crate) fn may_answer_writes<O: Out>(&self, cx: &Context<'_, O>) -> bool {
        let wanted = usize::from(cx.shared.cluster.min_redundancy).min(usize::from(cx.shared.cluster.parity));
        self.members.iter().filter(|m| m.live).count() >= wanted
    }

    /// 4.3: a member's answer to a lease request that was sent at `sent` by this node's clock.
    pub(crate) fn on_lease<O: Out>(&mut self, cx: &Context<'_, O>, from: Tenure, term: Term, sent: Time) {
        if self.phase != Phase::Serve || term != self.term() {
            return;
        }
        if let Some(member) = self.members.iter_mut().find(|m| m.tenure == from)
            && sent <= cx.now.mono
        {
            member.lease_until = member.lease_until.max(sent + cx.shared.parameters.lease);
            self.releasable = true;
        }
    }

    // --- chunks for others ---------------------------------------------------------------------------------------

    /// 5.7b, 6.3: a chunk at a version, or the latest.
    pub(crate) fn on_read_chunk<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        to: (paritas_base::NodeId, paritas_base::Incarnation),
        id: u64,
        stripe: Stripe,
        want: Option<Version>,
    ) {
        // What is read must be what deltas with a number made.
        self.close_delta(cx, configuration);
        let found = if self.phase == Phase::Serve {
            self.chunk_at(cx, stripe, want)
        } else {
            None
        };
        if found.is_none() && want.is_none() && self.phase == Phase::Serve {
            self.materialiser.want(cx.now.mono, stripe);
        }
        let (status, version, sum, bytes) = match &found {
            Some((version, sum, bytes)) => (ChunkStatus::Here, *version, *sum, bytes.as_slice()),
            None => (ChunkStatus::None, Version::ZERO, 0, &[][..]),
        };
        let (as_of, term) = (self.seq, self.term());
        let value = Message::ChunkValue {
            id,
            stripe,
            status,
            version,
            sum,
            as_of,
            term,
            bytes,
        };
        cx.send_to(to.0, to.1, Channel::Bulk, self.stream, configuration.epoch, &value);
    }

    /// The chunk's bytes at a version that the ring can still undo to; empty for zeros.
    fn chunk_at<O: Out>(
        &self,
        cx: &mut Context<'_, O>,
        stripe: Stripe,
        want: Option<Version>,
    ) -> Option<(Version, u32, Vec<u8>)> {
        let chunks = self.store.chunks();
        let bytes = chunks.bytes(&cx.shared.arena, stripe).ok()?;
        let (mut version, mut sum) = (chunks.version(stripe), chunks.sum(stripe));
        let want = want.unwrap_or(version);
        let mut copy = bytes.map(<[u8]>::to_vec);
        if want == version || cx.breaks(Mutant::NoVersionMatch) {
            return Some((want, sum, copy.unwrap_or_default()));
        }
        let chunk_bytes = cx.shared.arena.chunk_bytes();
        for record in self.ring.iter().rev() {
            if want != Version::ZERO && record.version() <= want {
                return None;
            }
            let mut touched = false;
            let all: Vec<_> = extents(record.extents, chunk_bytes)
                .flatten()
                .filter(|e| e.stripe == stripe)
                .collect();
            for extent in all.iter().rev() {
                let copy = copy.get_or_insert_with(|| vec![0; chunk_bytes]);
                paritas_code::xor(extent.xor, &mut copy[extent.offset..extent.offset + extent.xor.len()]);
                sum ^= sum::of_extent(chunk_bytes, extent.offset, extent.xor);
                if let Some(base) = extent.base {
                    version = base;
                }
                touched = true;
            }
            if touched && version == want {
                cx.out.mark(Mark::Undone);
                return Some((version, sum, copy.unwrap_or_default()));
            }
        }
        None
    }

    /// 6.6, for a member that fills: which stripes exist.
    pub(crate) fn on_read_alloc<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        to: (paritas_base::NodeId, paritas_base::Incarnation),
    ) {
        self.close_delta(cx, configuration);
        if self.phase != Phase::Serve || !self.store.chunks().directory_known() {
            return;
        }
        let mut stripes = Vec::new();
        for (stripe, version) in self.store.chunks().stripes() {
            if version != Version::ZERO {
                Stripes::push(&mut stripes, stripe);
            }
        }
        let alloc = Message::Alloc {
            term: self.term(),
            as_of: self.seq,
            stripes: Stripes::new(&stripes),
        };
        cx.send_to(to.0, to.1, Channel::Bulk, self.stream, configuration.epoch, &alloc);
    }

    /// 5.8.
    pub(crate) fn on_hold<O: Out>(&mut self, cx: &mut Context<'_, O>) {
        cx.out.mark(Mark::Held);
        self.hold_until = self.hold_until.max(cx.mono() + cx.shared.parameters.hold_max);
    }

    // --- credit --------------------------------------------------------------------------------------------------

    /// 8.2.
    pub(crate) fn on_credit<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        from: Tenure,
        term: Term,
        data_end: u32,
        index_end: u32,
        window_bytes: u64,
    ) {
        if term != self.term() {
            return;
        }
        if let Some(member) = self.members.iter_mut().find(|m| m.tenure == from) {
            if data_end > member.credit_data || index_end > member.credit_index {
                self.credit_short = (Time(0), Time(0));
            }
            member.credit_data = member.credit_data.max(data_end);
            member.credit_index = member.credit_index.max(index_end);
            member.window_bytes = window_bytes.max(cx.shared.parameters.window_bytes.min(4096));
            self.credit_denied = data_end < self.credit_wish.0 || index_end < self.credit_wish.1;
            self.apply_credit();
            self.progress = true;
        }
    }

    fn apply_credit(&mut self) {
        let data = self
            .members
            .iter()
            .map(|m| m.credit_data)
            .min()
            .unwrap_or(Stripe::NUMBER_MAX);
        let index = self
            .members
            .iter()
            .map(|m| m.credit_index)
            .min()
            .unwrap_or(Stripe::NUMBER_MAX);
        self.store.set_credit(data, index);
    }

    /// Asks every member that has granted less for what the store wants.
    fn ask_credit<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        let now = cx.mono();
        if let Some((data_end, index_end)) = self.store.wants_credit() {
            let wish = (data_end.max(self.credit_wish.0), index_end.max(self.credit_wish.1));
            if wish != self.credit_wish {
                self.credit_wish = wish;
                self.credit_at = now;
            }
        }
        if now < self.credit_at {
            return;
        }
        let (data_end, index_end) = self.credit_wish;
        let message = Message::CreditRequest {
            term: self.term(),
            data_end,
            index_end,
        };
        let lacking = |m: &&Member| m.credit_data < data_end || m.credit_index < index_end;
        for member in self.members.iter().filter(lacking) {
            cx.send(
                &member.tenure,
                Channel::Main,
                self.stream,
                configuration.epoch,
                &message,
            );
        }
        let any = self.members.iter().any(|m| lacking(&m));
        self.credit_at = if any {
            cx.after(cx.shared.parameters.resend)
        } else {
            Time(u64::MAX)
        };
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
        }
        if self.store.chunks().directory_known() {
            self.ask_credit(cx, configuration);
        }
        self.rebuild(cx, configuration);
        if self.hold_until != Time(0) && now >= self.hold_until {
            self.hold_until = Time(0);
            self.progress = true;
        }
        if self.ring.first().is_some_and(|first| first <= self.stable) {
            self.trim(cx, configuration);
        }
    }

    fn resend<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration, at: usize) {
        let now = cx.mono();
        let (wait_max, report) = (cx.shared.parameters.resend_max, cx.shared.parameters.silence_report);
        let (stable, seq, term) = (self.stable, self.seq, self.term());
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

    /// While Filling: the directory, then every absent chunk, then `AskLive` (5.5, 5.6).
    fn rebuild<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        let now = cx.mono();
        let me = configuration.at(self.stream.x).filter(|a| a.tenure == self.tenure);
        let filling = me.is_some_and(|a| a.state == PositionState::Filling);
        if !self.store.chunks().directory_known() {
            if now >= self.directory_at {
                self.directory_at = cx.after(cx.shared.parameters.retry);
                let message = Message::ReadDirectory {
                    term: self.term(),
                    at_least: self.cut,
                };
                // Another one each time: one that cannot be reached must not be all that is asked.
                self.directory_tries += 1;
                let live: Vec<&Member> = self.members.iter().filter(|m| m.live).collect();
                for member in live.iter().cycle().skip(self.directory_tries).take(live.len()) {
                    if cx.send(
                        &member.tenure,
                        Channel::Bulk,
                        self.stream,
                        configuration.epoch,
                        &message,
                    ) {
                        break;
                    }
                }
            }
            return;
        }
        self.materialise(cx, configuration);
        if filling && self.store.chunks().absent_count() == 0 && now >= self.ask_live_at {
            self.ask_live_at = cx.after(cx.shared.parameters.retry);
            let (list, position, tenure) = (self.stream.list, self.stream.x, self.tenure);
            cx.propose(Proposal::AskLive { list, position, tenure });
        }
    }

    /// 5.5: which stripes exist.
    pub(crate) fn on_directory<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        from: Tenure,
        term: Term,
        complete_for: u64,
        entries: &[u8],
    ) {
        let live = self.members.iter().any(|m| m.tenure == from && m.live);
        let wanted = self.phase == Phase::Serve && term == self.term() && !self.store.chunks().directory_known();
        if !wanted || !live || complete_for < self.cut {
            return;
        }
        self.store
            .set_directory(&cx.shared.arena, Message::directory_entries(entries));
        self.materialiser.restart(cx.mono());
        self.progress = true;
        self.rebuild(cx, configuration);
    }

    /// Whether all of the stream's chunks are here.
    pub fn is_whole(&self) -> bool {
        self.phase == Phase::Serve && self.store.chunks().directory_known() && self.store.chunks().absent_count() == 0
    }

    /// Whether a stripe's chunk must be read back before it can be used.
    pub(crate) fn is_absent(&self, stripe: Stripe) -> bool {
        self.store.chunks().presence(stripe) == Some(Presence::Absent)
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
                    next = next.min(self.materialiser.next_at());
                    if self.store.chunks().absent_count() == 0 && self.materialiser.filling {
                        next = next.min(self.ask_live_at);
                    }
                }
                if self.hold_until != Time(0) {
                    next = next.min(self.hold_until);
                }
            }
            phase => next = self.takeover.next_at(phase),
        }
        (next != Time(u64::MAX)).then_some(next)
    }
}

/// The `n`-th largest, from 1 on; `None` if there are fewer. Members are few, and this runs for every ack: no list.
fn nth_largest<T: Ord + Copy>(values: impl Iterator<Item = T> + Clone, n: usize) -> Option<T> {
    let reached_by = |value: T| values.clone().filter(|other| *other >= value).count();
    values.clone().filter(|value| n > 0 && reached_by(*value) >= n).max()
}
