//! A takeover, from a new tenure to the phase Serve (P5.1–P5.5): seal the members, choose the cut, push the log to the
//! members, wait for leases.

use super::members::Member;
use super::{Phase, StreamOwner};
use crate::context::Context;
use crate::interface::{Channel, Out};
use crate::mark::Mark;
use crate::rules::Fault;
use paritas_base::configuration::{Configuration, Tenure};
use paritas_base::{Span, Term, Time, Version};
use paritas_store::delta::extents;
use paritas_wire::peer::{Deltas, LeaseRecord, Message};

/// Most leases accepted from one reply. A stream has far fewer owners within the time of one lease.
const LEASES_MAX: usize = 256;
/// A log must end at least this far below the largest sequence number.
const SEQ_MARGIN: u64 = 1 << 20;

/// A member's answer to `Seal`.
#[derive(Debug)]
pub(super) struct SealAnswer {
    known: bool,
    term: Term,
    recv: u64,
    deltas: Vec<(Term, u64, Vec<u8>)>,
}

/// A lease that another tenure may still hold.
#[derive(Debug)]
struct Wait {
    holder: Tenure,
    until: Time,
    cleared: bool,
}

/// The state of a takeover.
#[derive(Debug, Default)]
pub(super) struct Takeover {
    began: Time,
    waits: Vec<Wait>,
    /// Tenures whose holders said that they will never serve again under them (P5.12a). Such a fact stays true.
    yielded: Vec<Tenure>,
    resend_at: Time,
    query_at: Time,
}

impl Takeover {
    pub(super) fn new(now: Time) -> Self {
        Self {
            began: now,
            ..Self::default()
        }
    }

    /// Resends all messages after a session was renewed, because the old session may have lost them.
    pub(super) fn on_session_up(&mut self, now: Time) {
        (self.resend_at, self.query_at) = (now, now);
    }

    /// The next time at which `take_over` has work. The ends of leases count only in the phase Wait.
    pub(super) fn next_at(&self, phase: Phase) -> Time {
        let open = self.waits.iter().filter(|w| !w.cleared);
        let wait = if phase == Phase::Wait {
            open.clone().map(|w| w.until).min()
        } else {
            None
        };
        let query = open.map(|_| self.query_at).next();
        [wait, query]
            .into_iter()
            .flatten()
            .min()
            .map_or(self.resend_at, |t| t.min(self.resend_at))
    }
}

impl StreamOwner {
    /// Sends the messages of the current phase, repeats them by timer, and moves to the next phase when possible.
    pub(super) fn take_over<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        self.try_cut(cx, configuration);
        self.try_wait(cx, configuration);
        self.try_serve(cx, configuration);
        if self.phase == Phase::Serve {
            self.serve(cx, configuration, false);
            return;
        }
        let now = cx.mono();
        if now >= self.takeover.query_at {
            self.takeover.query_at = cx.after(cx.shared.parameters.retry);
            self.query_holders(cx, configuration);
        }
        match self.phase {
            Phase::Seal => {
                for member in self
                    .members
                    .iter_mut()
                    .filter(|m| m.seal.is_none() && m.resend.at <= now)
                {
                    member.resend.at = now + member.resend.wait;
                    cx.send(
                        &member.tenure,
                        Channel::Main,
                        self.stream,
                        configuration.epoch,
                        &Message::Seal,
                    );
                }
            }
            Phase::Push | Phase::Wait => {
                let mut deltas = Vec::new();
                for record in self.log.ring().iter() {
                    Deltas::push(&mut deltas, record.term, record.seq, record.extents);
                }
                let (term, base, top) = (self.tenure.term(), self.log.stable(), self.log.seq());
                let sync = Message::Sync {
                    term,
                    base,
                    top,
                    deltas: Deltas::new(&deltas),
                };
                for member in self.members.iter_mut().filter(|m| !m.started && m.resend.at <= now) {
                    member.resend.at = now + member.resend.wait;
                    cx.send(&member.tenure, Channel::Main, self.stream, configuration.epoch, &sync);
                }
            }
            Phase::Serve => {}
        }
        let phase = self.phase;
        let lacking = |m: &&Member| {
            if phase == Phase::Seal {
                m.seal.is_none()
            } else {
                !m.started
            }
        };
        let next = self.members.iter().filter(lacking).map(|m| m.resend.at).min();
        self.takeover.resend_at = next.unwrap_or(Time(u64::MAX));
    }

    /// P5.12a: asks every holder of a lease whether it has yielded.
    fn query_holders<O: Out>(&self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        for wait in self.takeover.waits.iter().filter(|w| !w.cleared) {
            let query = Message::YieldQuery { tenure: wait.holder };
            cx.send(&wait.holder, Channel::Main, self.stream, configuration.epoch, &query);
        }
    }

    /// P5.2. Handles a reply to Seal. The leases in a reply that arrives after the cut still count.
    #[allow(clippy::too_many_arguments)] // The fields of one frame.
    pub(crate) fn on_seal_reply<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        from: Tenure,
        known: bool,
        term: Term,
        recv: u64,
        leases: &[u8],
        deltas: Deltas<'_>,
    ) {
        if self.phase == Phase::Serve {
            return;
        }
        if !self.is_sound(cx, known, term, recv, deltas) {
            return;
        }
        let now = cx.mono();
        let Some(member) = self.members.find_mut(from) else {
            return;
        };
        for lease in LeaseRecord::read(leases).take(LEASES_MAX) {
            let until = now + Span(lease.remaining_ns);
            match self.takeover.waits.iter_mut().find(|w| w.holder == lease.holder) {
                Some(wait) if until > wait.until => (wait.until, wait.cleared) = (until, false),
                Some(_) => {}
                None => {
                    let cleared = false;
                    self.takeover.query_at = now;
                    self.takeover.waits.push(Wait {
                        holder: lease.holder,
                        until,
                        cleared,
                    });
                }
            }
        }
        if self.phase == Phase::Seal && member.seal.is_none() {
            let deltas = deltas.iter().map(|d| (d.term, d.seq, d.extents.to_vec())).collect();
            member.seal = Some(SealAnswer {
                known,
                term,
                recv,
                deltas,
            });
        }
        self.takeover.resend_at = now;
    }

    /// Whether a member can have such a log: it is consecutive up to `recv`, and of terms before this one.
    fn is_sound<O: Out>(&self, cx: &Context<'_, O>, known: bool, term: Term, recv: u64, deltas: Deltas<'_>) -> bool {
        let count = deltas.iter().count() as u64;
        let own = self.tenure.term();
        let arena = &cx.shared.arena;
        !known
            || (recv < Version::SEQ_MAX - SEQ_MARGIN
                && count <= recv
                && term <= own
                && deltas
                    .iter()
                    .zip(recv - count + 1..)
                    .all(|(d, seq)| d.seq == seq && d.term <= term)
                && deltas
                    .iter()
                    .all(|d| extents(Version::ZERO, d.extents, arena.chunk_bytes()).all(|e| e.is_ok())))
    }

    /// P5.3: chooses the cut once, when enough Live members have answered.
    fn try_cut<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        if self.phase != Phase::Seal {
            return;
        }
        let rules = cx.rules();
        let wanted = rules.seal_quorum(configuration.parity, configuration.ack_quorum);
        let answered = self
            .members
            .iter()
            .filter(|m| m.live && m.seal.as_ref().is_some_and(|s| s.known))
            .count();
        if configuration.parity == 0 || answered < wanted {
            return;
        }
        self.mark_cut(cx);
        let logs = self.members.iter_mut().filter_map(|m| {
            let known = m.seal.as_ref().filter(|s| s.known)?;
            let log = (known.term, known.recv);
            Some((&mut m.seal, log))
        });
        let Some(mut answer) = rules.newest_log(logs).and_then(Option::take) else {
            return;
        };
        if rules.fault(Fault::UnionOfRings) {
            self.unite_rings(&mut answer);
        }
        let now = cx.mono();
        self.log.adopt(now, answer.recv, answer.deltas);
        self.phase = Phase::Push;
        for member in self.members.iter_mut() {
            (member.started, member.matched) = (false, 0);
            member.resend.at = now;
        }
        if rules.fault(Fault::ServeBeforePush) {
            self.skip_push();
        }
    }

    /// [`Fault::ServeBeforePush`].
    fn skip_push(&mut self) {
        self.phase = Phase::Wait;
        for member in self.members.iter_mut() {
            (member.started, member.matched) = (true, self.log.cut());
        }
    }

    /// [`Fault::UnionOfRings`].
    fn unite_rings(&self, best: &mut SealAnswer) {
        let others = self.members.iter().filter_map(|m| m.seal.as_ref());
        for theirs in others.flat_map(|s| &s.deltas) {
            if let Some(ours) = best.deltas.iter_mut().find(|(_, seq, _)| *seq == theirs.1) {
                ours.clone_from(theirs);
            }
        }
    }

    /// Marks rare properties of the cut, for the coverage report of the simulator.
    fn mark_cut<O: Out>(&self, cx: &mut Context<'_, O>) {
        let known = || self.members.iter().filter(|m| m.seal.as_ref().is_some_and(|s| s.known));
        let length = |m: &Member| m.seal.as_ref().map(|s| (s.term, s.recv));
        let longest = |live: bool| known().filter(|m| m.live || !live).filter_map(length).max();
        let best = longest(false);
        if known().any(|m| length(m) != best) {
            cx.out.mark(Mark::MembersDiffer);
        }
        if self.members.len() == 1 && cx.shared.cluster.parity > 1 {
            cx.out.mark(Mark::OneSurvivor);
        }
        if longest(true) < best {
            cx.out.mark(Mark::FillingMemberNewest);
        }
        // A growth step of the index rewrites several pages in one delta.
        let chunk_bytes = cx.shared.arena.chunk_bytes();
        let pages = |bytes: &[u8]| {
            let stripes = extents(Version::ZERO, bytes, chunk_bytes).flatten().map(|e| e.stripe);
            let mut pages: Vec<_> = stripes.filter(|s| s.is_index()).collect();
            pages.dedup();
            pages.len()
        };
        let grows = |m: &Member| m.seal.iter().any(|s| s.deltas.iter().any(|(_, _, d)| pages(d) > 1));
        if known().any(grows) {
            cx.out.mark(Mark::CutThroughGrowth);
        }
    }

    /// P5.4: handles a member's answer to Sync.
    pub(crate) fn on_sync_ack<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        from: Tenure,
        term: Term,
        recv: u64,
    ) {
        if self.phase == Phase::Seal || term != self.term() {
            return;
        }
        let seq = self.log.seq();
        let Some(member) = self.members.find_mut(from) else {
            return;
        };
        if recv > seq {
            cx.halt(
                self.stream.list,
                self.stream.x,
                format!(
                    "I6: position {} answers Sync with {recv}, beyond {seq}",
                    member.position.0
                ),
            );
            return;
        }
        if !member.started && recv < self.log.stable() {
            return;
        }
        member.started = true;
        member.matched = member.matched.max(recv);
        member.sent = member.sent.max(member.matched);
        member.resend.owes_since = None;
        if self.phase == Phase::Serve {
            self.wake.lease_wanted = true;
            self.advance(cx, configuration);
            self.catch_up(cx, configuration, from);
        }
        self.takeover.resend_at = cx.mono();
    }

    fn try_wait<O: Out>(&mut self, _cx: &mut Context<'_, O>, configuration: &Configuration) {
        if self.phase != Phase::Push {
            return;
        }
        let wanted = self.members.ack_quorum(configuration);
        let pushed = self
            .members
            .iter()
            .filter(|m| m.started && m.matched >= self.log.cut())
            .count();
        if pushed >= wanted && wanted > 0 {
            self.phase = Phase::Wait;
        }
    }

    /// P5.12a: records that the holder of a tenure has yielded. This is permanent.
    pub(crate) fn on_yielded<O: Out>(&mut self, cx: &Context<'_, O>, tenure: Tenure) {
        self.rebuild.reconstructor.offer(tenure);
        let wanted = self.phase != Phase::Serve && self.takeover.yielded.len() < LEASES_MAX;
        if wanted && !self.takeover.yielded.contains(&tenure) {
            self.takeover.yielded.push(tenure);
            self.takeover.resend_at = cx.mono();
        }
    }

    /// P5.5: begins to serve once no lease of another tenure is left.
    fn try_serve<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        if self.phase != Phase::Wait {
            return;
        }
        let now = cx.mono();
        let rules = cx.rules();
        for at in 0..self.takeover.waits.len() {
            let holder = self.takeover.waits[at].holder;
            let holders = self.takeover.waits.iter().map(|w| w.holder);
            let gone = rules.is_certified(configuration, &holder, holders);
            // A lease of this same incarnation under an older tenure is over: the incarnation serves only under the new
            // tenure.
            let mine = (holder.node, holder.incarnation) == (self.tenure.node, self.tenure.incarnation);
            let yielded = mine || rules.has_yielded(&holder, &self.takeover.yielded);
            let wait = &mut self.takeover.waits[at];
            if !wait.cleared {
                if gone {
                    cx.out.mark(Mark::CertificateCleared);
                } else if yielded && !mine {
                    cx.out.mark(Mark::YieldedCleared);
                } else if now >= wait.until {
                    cx.out.mark(Mark::LeaseRanOut);
                }
            }
            wait.cleared |= rules.wait_is_over(now, wait.until, gone, yielded);
        }
        if !self.takeover.waits.iter().all(|w| w.cleared) {
            return;
        }
        self.phase = Phase::Serve;
        cx.shared.takeovers.note(now - self.takeover.began);
        self.log.begin_serving();
        self.wake.lease_wanted = true;
        self.wake.progress = true;
        self.rebuild.directory_at = now;
        self.takeover = Takeover::default();
        for member in self.members.iter_mut() {
            member.sent = member.matched;
            (member.resend.at, member.resend.owes_since) = (now, None);
        }
        self.advance(cx, configuration);
    }
}
