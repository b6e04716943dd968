//! A data position: the owner of one stream, who alone decides the order of operations on its keys
//! (P3, P4, P5; the phases are the table of P5a).
//!
//! This file admits writes and ends turns. `replication` numbers deltas, sends them and takes acks. `takeover` leads
//! from a new tenure to `Serve`, and `rebuild` from there to `Live`: its [`Reconstructor`] reconstructs absent chunks.
//! `repair` finds chunks with wrong bytes. `lease` says until when replies may be sent. `credit` asks members for
//! memory. `sources` gives chunks to nodes that rebuild.

mod access;
mod credit;
mod draft;
mod hand_off;
mod hold;
mod import;
mod lease;
mod log;
mod members;
mod probe;
mod rebuild;
mod reconstructor;
mod records;
mod repair;
mod replication;
mod sources;
mod space;
mod takeover;

use crate::context::Context;
use crate::interface::Out;
use crate::mark::Mark;
use crate::ring::Ring;
use crate::rules::Fault;
pub use access::{
    Access, Effect, FUNCTIONS_KEY, KEY_STEPS, Located, NotByClient, RandomKey, Stop, Uploaded, WriteRefusal,
};
use credit::Credit;
pub use draft::Draft;
use hold::Hold;
pub use lease::ReadLease;
use log::StreamLog;
pub use members::Member;
use members::Members;
use paritas_base::configuration::{Assignment, Configuration, Tenure};
use paritas_base::{NodeId, Span, StreamId, Term, Time, Version};
use paritas_store::{Arena, Delta, ObjectStore, Policy, Stash};
use rebuild::Rebuild;
use reconstructor::Reconstructor;
pub(crate) use reconstructor::SpaceWanted;
pub use records::{LARGE_VALUE_BYTES_MAX, Piece, StagedSoFar, Ticket, body_bytes, class_of};
use records::{Made, Records, class_of_new};
pub use space::fits_one_delta;
pub(crate) use space::housekeep;
use takeover::Takeover;

/// The phase of an owner (P5a).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Asks the members for their logs.
    Seal,
    /// Sends every member the log up to the cut.
    Push,
    /// Waits until no other owner can have a lease in force.
    Wait,
    /// Serves.
    Serve,
}

/// Whether a write may begin (P3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    /// The write may begin.
    Admitted,
    /// The window is full, or a successor asked to hold: wait.
    Wait,
    /// Fewer Live members than the least redundancy.
    TooFewMembers,
}

/// The configuration that is installed, and the tenure in it: what messages of an owner are sent under.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Installed<'c> {
    pub(crate) configuration: &'c Configuration,
    pub(crate) stream: StreamId,
    pub(crate) term: Term,
}

/// Flags that handlers set. For each one, a single phase of the turn's end reads and clears it.
#[derive(Debug)]
pub(crate) struct Wake {
    /// Something that a stalled command may wait for has changed.
    pub(crate) progress: bool,
    /// `acked` or a lease has changed: replies may be released.
    pub(crate) releasable: bool,
    /// Leases are wanted at once.
    pub(crate) lease_wanted: bool,
}

impl Wake {
    fn is_set(&self) -> bool {
        self.progress || self.releasable || self.lease_wanted
    }
}

/// The role of a node at a data position.
#[derive(Debug)]
pub struct StreamOwner {
    stream: StreamId,
    tenure: Tenure,
    phase: Phase,
    /// The list lost more than its scheme covers. Only chunks that are here can be read, and writes are refused
    /// (P10.6).
    lost: bool,
    pub(crate) store: ObjectStore,
    log: StreamLog,
    members: Members,
    credit: Credit,
    takeover: Takeover,
    rebuild: Rebuild,
    hold: Hold,
    hand_offs: hand_off::HandOffs,
    records: Records,
    pub(crate) wake: Wake,
}

impl StreamOwner {
    /// Begins a tenure. If it began with the list, the stream is empty and serves at once; otherwise it is taken over.
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
            ObjectStore::new(settings)
        } else {
            ObjectStore::taken_over(settings)
        };
        store.set_policy(cx.shared.parameters.policy);
        let mut owner = Self {
            stream,
            tenure,
            phase: if born { Phase::Serve } else { Phase::Seal },
            lost: false,
            store,
            log: StreamLog::new(),
            members: Members::default(),
            credit: Credit::default(),
            takeover: Takeover::new(cx.mono()),
            rebuild: Rebuild::new(born),
            hold: Hold::default(),
            hand_offs: hand_off::HandOffs::default(),
            records: Records::new(stream, tenure.term(), born),
            wake: Wake {
                progress: true,
                releasable: true,
                lease_wanted: born,
            },
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
        self.log.seq()
    }
    /// Every delta up to here is acknowledged by a quorum.
    pub fn acked(&self) -> u64 {
        self.log.acked()
    }
    /// Every member has everything up to here.
    pub fn stable(&self) -> u64 {
        self.log.stable()
    }
    /// The kept deltas.
    pub fn ring(&self) -> &Ring {
        self.log.ring()
    }
    /// The members of the installed configuration.
    pub fn members(&self) -> &[Member] {
        self.members.as_slice()
    }
    /// Changes which keys are evicted for new ones.
    pub fn set_policy(&mut self, policy: Policy) {
        self.store.set_policy(policy);
        self.wake.progress = true;
    }
    /// Whether something has changed that a stalled command may wait for.
    pub fn has_progress(&self) -> bool {
        self.wake.progress || self.records.has_progress()
    }
    /// As [`Self::has_progress`], and clears it.
    pub fn take_progress(&mut self) -> bool {
        self.records.take_progress() | core::mem::take(&mut self.wake.progress)
    }
    /// Whether `acked` or a lease has changed since the last call, so that replies may be released.
    pub fn take_releasable(&mut self) -> bool {
        core::mem::take(&mut self.wake.releasable)
    }
    /// Objects and chunks.
    #[inline]
    pub fn store(&self) -> &ObjectStore {
        &self.store
    }
    /// Whether the stream was whole once in this tenure, and the coordinator was told.
    pub fn has_asked_live(&self) -> bool {
        self.rebuild.has_asked_live()
    }
    /// Memory of deltas and of hash slots in transfer, in bytes.
    pub fn ring_bytes(&self) -> u64 {
        self.log.held_bytes() + self.hand_off_bytes() as u64
    }

    /// Memory of tables beside the chunks, in bytes.
    pub fn table_bytes(&self) -> u64 {
        let tables = self.log.table_bytes() + self.rebuild.reconstructor.table_bytes();
        self.store.tables_bytes() + tables as u64
    }

    /// Memory of bodies of large values that are read, in bytes.
    pub fn bodies_bytes(&self) -> u64 {
        self.records.held_bytes() as u64
    }

    pub(crate) fn term(&self) -> Term {
        self.tenure.term()
    }

    fn installed<'c>(&self, configuration: &'c Configuration) -> Installed<'c> {
        Installed {
            configuration,
            stream: self.stream,
            term: self.tenure.term(),
        }
    }

    /// C: where this tenure's log begins (P5.3).
    pub fn cut(&self) -> u64 {
        self.log.cut()
    }

    // --- configurations ------------------------------------------------------------------------------------------

    /// A newer configuration under which the tenure is the same (P3.9, P5.1).
    pub(crate) fn on_configuration<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        self.rebuild_members(cx, configuration);
        self.rebuild.reconstructor.restart(cx.mono());
        self.records.hurry(cx.mono());
        self.wake.progress = true;
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
        let born = configuration.is_born(&self.tenure);
        self.members.install(cx, configuration, born);
        self.credit.at = cx.mono();
        self.apply_credit();
    }

    /// A session with a member begins. Messages that the previous one may have lost are sent again.
    pub(crate) fn on_session_up<O: Out>(&mut self, cx: &mut Context<'_, O>, node: NodeId) {
        let (now, wait) = (cx.mono(), cx.shared.parameters.resend);
        self.members.on_session_up(now, wait, node);
        self.credit.at = now;
        self.rebuild.on_session_up(now);
        self.takeover.on_session_up(now);
        self.records.hurry(now);
        self.wake.lease_wanted = true;
    }

    /// The members in the order in which they are asked for parity. Those that are behind come last, so that they delay
    /// nothing while others answer.
    pub(crate) fn members_by_use(&self) -> impl Iterator<Item = &Member> {
        self.members.by_use(self.log.cut())
    }

    /// The delay of each member's acks, as measured recently (P10.2a).
    pub(crate) fn ack_delays(&self, now: Time) -> impl Iterator<Item = (NodeId, Span)> {
        self.members.ack_delays(now)
    }

    /// The reconstruction of absent chunks.
    pub(crate) fn reconstructor(&self) -> &Reconstructor {
        &self.rebuild.reconstructor
    }

    // --- writes --------------------------------------------------------------------------------------------------

    /// P3.1: whether a write may begin.
    pub(crate) fn admit_write<O: Out>(&self, cx: &mut Context<'_, O>) -> Admission {
        let wanted = usize::from(cx.shared.cluster.min_redundancy).min(usize::from(cx.shared.cluster.parity));
        if self.lost || self.members.live_count() < wanted {
            return Admission::TooFewMembers;
        }
        self.admit_removal(cx)
    }

    /// Whether a change may begin that removes what is lost: it waits for space in the logs of members, not for
    /// redundancy (P14.11).
    fn admit_removal<O: Out>(&self, cx: &mut Context<'_, O>) -> Admission {
        let unstable = self.log.ring().unstable_bytes() + self.log.open_bytes() as u64;
        let window = self.members.window_bytes().min(cx.shared.parameters.window_bytes);
        let full = !self.members.is_empty() && unstable > window;
        if full {
            cx.out.mark(Mark::WindowFull);
        }
        if full || self.hold.is_held(cx.mono()) {
            return Admission::Wait;
        }
        Admission::Admitted
    }

    /// The delta of this turn, and the store it is recorded from.
    #[inline]
    pub(crate) fn delta(&mut self) -> (&mut ObjectStore, &mut Delta) {
        (&mut self.store, self.log.delta(self.tenure.term()))
    }

    /// Bytes of the open delta, 0 after the end of the turn.
    #[inline]
    pub fn open_bytes(&self) -> usize {
        self.log.open_bytes()
    }

    /// Evicts keys until `bytes` bytes have died, and returns how many keys (P8.1). A read that finds one of them gone
    /// waits for the delta.
    pub(crate) fn evict(&mut self, arena: &mut Arena, bytes: u64) -> u32 {
        let (delta, gone) = self.log.delta_and_touch(self.tenure.term());
        self.store.evict(arena, delta, bytes, gone).unwrap_or(0)
    }

    /// One step of active expiry. A read that finds one of the deleted keys gone waits for this delta (P8.4).
    pub(crate) fn expire_step(&mut self, arena: &mut Arena, now_ms: u64, lines: u32) -> usize {
        let (delta, gone) = self.log.delta_and_touch(self.tenure.term());
        self.store.expire_step(arena, delta, now_ms, lines, gone)
    }

    /// Free chunks are no longer kept for a write that found too few. A write that still waits asks for them again.
    pub(crate) fn forget_wanted(&mut self) {
        self.store.forget_wanted();
    }

    /// The tenure ends. Its chunks are kept as a stash, for this node or for the next holder of the position (P2.4).
    pub(crate) fn end<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        self.end_change(cx);
        self.drop_bodies(cx);
        let newest = Version::new(self.term(), self.log.seq());
        let (list, x, until) = (self.stream.list, self.stream.x, cx.mono() + cx.shared.parameters.stash);
        let arena = &mut cx.shared.arena;
        let stash = Stash::of_data(core::mem::take(self.store.chunks_mut()), arena, newest);
        // Without parity the next holder begins without data (P10.6).
        if configuration.parity == 0 || cx.shared.parameters.stash == Span(0) {
            stash.clear(arena);
        } else {
            cx.shared.stashes.keep(arena, list, x, until, stash);
        }
    }

    // --- time ----------------------------------------------------------------------------------------------------

    /// The end of a turn: the delta is sent, and due work is done. `parts_whole`: the position has every part of large
    /// values that it must have. `has_none`: no other holder has such parts of this stream (P14.9).
    pub(crate) fn on_turn_end<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        parts_whole: bool,
        has_none: bool,
    ) {
        self.close_delta(cx, configuration);
        self.settle_records(cx, configuration, has_none);
        match self.phase {
            Phase::Seal | Phase::Push | Phase::Wait => self.take_over(cx, configuration),
            Phase::Serve => self.serve(cx, configuration, parts_whole),
        }
    }

    fn serve<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration, parts_whole: bool) {
        self.tend_large(cx, configuration);
        self.resend(cx, configuration);
        if self.store.chunks().directory_known() {
            self.ask_credit(cx, configuration);
        }
        self.rebuild(cx, configuration, parts_whole);
        self.report_drained(cx);
        if self.hold.end(cx.mono()) {
            self.wake.progress = true;
        }
        if self.log.has_stable_deltas() {
            self.log.trim(cx, configuration, !self.members.is_empty());
        }
    }

    /// The time until which the owner has nothing to do, unless an event changes it. `None`: it may have work in each
    /// turn, since it may wait for other roles of the node.
    pub(crate) fn rests_until(&self, configuration: &Configuration) -> Option<Time> {
        let is_idle = !self.wake.is_set()
            && !self.records.has_progress()
            && self.open_bytes() == 0
            && !self.store.has_record_events();
        let is_whole = self.is_whole() && self.rebuild.reconstructor.is_at_rest() && !self.hold.is_drain_asked();
        // While a data position of the list is not Live, stable deltas are kept for a time (P3.8). `trim` then drops
        // them.
        let live = |a: &Option<Assignment>| a.as_ref().is_some_and(|a| a.state.is_live());
        let rests = is_idle
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
                let seq = self.log.seq();
                for member in self.members.iter().filter(|m| !m.started || m.matched < seq) {
                    next = next.min(member.resend.at);
                }
                let (stable, hold) = (self.log.stable_due_at(), self.hold.ends_at());
                for at in [stable, hold].into_iter().flatten() {
                    next = next.min(at);
                }
                next = next.min(self.rebuild.next_at(self.store.chunks()));
                next = next.min(self.records.next_at().unwrap_or(next));
                if self.store.chunks().directory_known() {
                    next = next.min(self.credit.at).min(self.next_slot_work());
                }
            }
            phase => next = self.takeover.next_at(phase),
        }
        (next != Time(u64::MAX)).then_some(next)
    }
}
