//! Deltas at a parity member: it accepts, folds and undoes them, makes its log agree with the owner's, and sends the
//! log to a successor (P3.3–P3.10, P5.2).

use super::ParityMember;
use super::table::{FoldError, State};
use crate::context::{Context, Shared};
use crate::interface::{Channel, Out};
use crate::mark::Mark;
use crate::rules::Fault;
use paritas_base::configuration::{Configuration, Tenure};
use paritas_base::{Position, StreamId, Stripe, Term, Time, Version};
use paritas_store::delta::extents;
use paritas_wire::peer::{Deltas, LeaseRecord, Message};

impl ParityMember {
    /// P3.3: takes a delta if it comes from the present owner and is the next one, and gives the owner a lease.
    #[allow(clippy::too_many_arguments)] // The fields of one frame.
    pub(crate) fn on_delta<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        x: Position,
        owner: &Tenure,
        sent: Time,
        term: Term,
        seq: u64,
        stable: u64,
        bytes: &[u8],
    ) {
        let rules = cx.rules();
        let Some(log) = self.logs.get_mut(x.index()) else {
            return;
        };
        if !log.known || !rules.same_term(term, log.term) || !rules.same_term(term, owner.term()) {
            return;
        }
        log.ack_due = true;
        if !rules.follows(seq, log.recv) || !are_sound(bytes, cx.shared) {
            return;
        }
        if seq > log.recv {
            self.table.prefetch(&cx.shared.arena, bytes);
            if rules.fault(Fault::GapAccepted) && seq > log.recv + 1 {
                log.ring.clear();
            }
            self.accept(cx, x, term, seq, bytes);
        }
        let Some(log) = self.logs.get_mut(x.index()) else {
            return;
        };
        log.give_lease(cx.mono(), cx.shared.parameters.lease, *owner);
        log.lease_due = sent;
        self.on_stable(cx, x, term, stable);
    }

    /// P3.8: all members have the deltas up to `stable`, so the log drops them.
    pub(crate) fn on_stable<O: Out>(&mut self, cx: &mut Context<'_, O>, x: Position, term: Term, stable: u64) {
        let Some(log) = self.logs.get_mut(x.index()) else {
            return;
        };
        if !log.known || !cx.rules().same_term(term, log.term) {
            return;
        }
        let stable = cx.rules().kept_from_at_member(stable, log.recv);
        if stable > log.stable {
            log.stable = stable;
            log.ring.trim(stable);
            let sound = log.is_sound() || cx.rules().fault(Fault::GapAccepted);
            let (first, recv) = (log.ring.first(), log.recv);
            cx.ensure(self.list, self.position, sound, || {
                format!(
                    "I6: the log of stream {} has {first:?} to {recv}, stable is {stable}",
                    x.0
                )
            });
        }
    }

    /// Takes the next delta into the log and folds it.
    fn accept<O: Out>(&mut self, cx: &mut Context<'_, O>, x: Position, term: Term, seq: u64, bytes: &[u8]) {
        self.fold(cx, x, Version::new(term, seq), bytes);
        if let Some(log) = self.logs.get_mut(x.index()) {
            let (recv, follows) = (log.recv, seq == log.recv + 1);
            log.ring.push(cx.mono(), term, seq, bytes);
            log.recv = seq;
            let follows = follows || cx.rules().fault(Fault::GapAccepted);
            cx.ensure(self.list, self.position, follows, || {
                format!("I6: the log of stream {} ends at {recv}, delta {seq} comes next", x.0)
            });
        }
    }

    /// Folds a delta into the parity chunks. The part for a stripe that is being fetched is buffered.
    fn fold<O: Out>(&mut self, cx: &mut Context<'_, O>, x: Position, version: Version, bytes: &[u8]) {
        let chunk_bytes = cx.shared.arena.chunk_bytes();
        for extent in extents(version, bytes, chunk_bytes).flatten() {
            match self.table.state(extent.stripe) {
                State::Fetching => self.refill.buffer(cx, x, version, &extent),
                State::Untouched if !self.table.is_complete() => {
                    self.table.mark(cx.shared, extent.stripe, State::Invalid);
                }
                State::Invalid => {}
                state @ (State::Untouched | State::Valid(_) | State::Lost) => {
                    if self.refill.checks(extent.stripe) {
                        self.refill.buffer(cx, x, version, &extent);
                    }
                    if matches!(state, State::Untouched) && self.refill.is_filling() {
                        cx.out.mark(Mark::BornWhileFilling);
                    }
                    let to = if extent.free { Version::ZERO } else { version };
                    let result = self.table.fold(cx.shared, x.index(), &extent, Some(to), true);
                    self.check(cx, x, version, &extent.stripe, result);
                }
            }
        }
    }

    fn check<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        x: Position,
        version: Version,
        stripe: &Stripe,
        result: Result<(), FoldError>,
    ) {
        if let Err(error) = result {
            let list = self.tenure;
            cx.halt(
                self.list,
                self.position,
                format!(
                    "I4: parity {} of {list:?} cannot fold delta {version} of position {} into {stripe}: {error:?}",
                    self.position.0, x.0
                ),
            );
        }
    }

    /// P3.10, undo: XOR again, newest first.
    fn undo<O: Out>(&mut self, cx: &mut Context<'_, O>, x: Position, version: Version, bytes: &[u8]) {
        if cx.rules().fault(Fault::DroppedWithoutUndo) {
            return;
        }
        let chunk_bytes = cx.shared.arena.chunk_bytes();
        let all: Vec<_> = extents(version, bytes, chunk_bytes).flatten().collect();
        for extent in all.iter().rev() {
            if let State::Valid(_) | State::Lost = self.table.state(extent.stripe) {
                let to = extent.base.or(Some(version));
                let result = self.table.fold(cx.shared, x.index(), extent, to, false);
                self.check(cx, x, version, &extent.stripe, result);
            }
        }
    }

    /// P3.9, P3.10: takes the owner's deltas after `base` and undoes those that the owner does not have. Returns
    /// whether the log now reaches at least `top`.
    #[allow(clippy::too_many_arguments)] // The fields of one frame.
    pub(crate) fn on_sync<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        x: Position,
        owner: &Tenure,
        term: Term,
        base: u64,
        top: u64,
        deltas: Deltas<'_>,
    ) -> bool {
        let Some(log) = self.logs.get_mut(x.index()) else {
            return false;
        };
        if base > top || top > Version::SEQ_MAX {
            return false;
        }
        let whole =
            deltas.iter().zip(base + 1..).all(|(d, seq)| d.seq == seq) && deltas.iter().count() as u64 == top - base;
        let sound = deltas.iter().all(|d| d.term <= term && are_sound(d.extents, cx.shared));
        if term != owner.term() || !whole || !sound || (log.known && log.term > term) {
            return false;
        }
        if !log.known {
            log.known = true;
            (log.term, log.recv, log.stable) = (term, base, base);
            if top > base {
                cx.out.mark(Mark::SyncToNewcomer);
            }
            if cx.rules().fault(Fault::NewcomerKeepsNoDeltas) {
                return self.fold_without_keeping(cx, x, top, deltas);
            }
        } else if log.term < term {
            let ring_base = log.ring.first().map_or(log.recv, |first| first - 1);
            let terms: Vec<Term> = deltas.iter().map(|d| d.term).collect();
            let same_term = |seq: u64| log.term_at(seq) == terms.get((seq - base - 1) as usize).copied();
            let agreed = cx.rules().agreed(log.recv, top, ring_base.max(base), same_term);
            if log.recv < base {
                let (recv, position) = (log.recv, self.position.0);
                cx.halt(
                    self.list,
                    self.position,
                    format!(
                        "I5: position {position} has {recv} of stream {}, Sync begins after {base}",
                        x.0
                    ),
                );
                return false;
            }
            if agreed < log.stable {
                // All members had those deltas, and clients may have their replies. An owner that would undo them lacks
                // deltas that its log must have (P5.3).
                let (stable, position) = (log.stable, self.position.0);
                cx.halt(
                    self.list,
                    self.position,
                    format!(
                        "I5: position {position} has stream {} stable up to {stable}, Sync would undo all after \
                         {agreed}",
                        x.0
                    ),
                );
                return false;
            }
            log.term = term;
            // The time is of the previous owner's clock and means nothing to the new owner.
            log.lease_due = Time(0);
            let agreed = cx.rules().undone_after(agreed, log.recv);
            while let Some(log) = self.logs.get_mut(x.index())
                && log.recv > agreed
            {
                let newest = log.ring.pop_newest();
                log.recv -= 1;
                if let Some((version, extents)) = newest {
                    cx.out.mark(Mark::VoidTailUndone);
                    self.undo(cx, x, version, &extents);
                }
            }
        }
        for delta in deltas.iter() {
            let recv = self.logs.get(x.index()).map_or(0, |l| l.recv);
            if delta.seq == recv + 1 {
                self.accept(cx, x, delta.term, delta.seq, delta.extents);
            }
        }
        // Deltas before the owner's log are stable (P3.9). A member that learnt this later would keep more than W
        // bytes.
        self.on_stable(cx, x, term, base);
        !cx.is_halting(self.list, self.position)
    }

    /// [`Fault::NewcomerKeepsNoDeltas`].
    fn fold_without_keeping<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        x: Position,
        top: u64,
        deltas: Deltas<'_>,
    ) -> bool {
        for delta in deltas.iter() {
            self.fold(cx, x, Version::new(delta.term, delta.seq), delta.extents);
        }
        if let Some(log) = self.logs.get_mut(x.index()) {
            (log.recv, log.stable) = (top, top);
        }
        true
    }

    /// P5.2: sends this log, and the leases of other holders, to the owner of the installed configuration.
    pub(crate) fn on_seal<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration, stream: StreamId) {
        let Some(owner) = configuration.tenure(stream.x) else {
            return;
        };
        let now = cx.mono();
        let Some(log) = self.logs.get_mut(stream.x.index()) else {
            return;
        };
        log.leases.retain(|g| g.until > now);
        let mut leases = Vec::new();
        for grant in log.leases.iter().filter(|g| g.holder != owner) {
            LeaseRecord {
                holder: grant.holder,
                remaining_ns: (grant.until - now).0,
            }
            .push(&mut leases);
        }
        let mut deltas = Vec::new();
        for record in log.ring.iter() {
            Deltas::push(&mut deltas, record.term, record.seq, record.extents);
        }
        let reply = Message::SealReply {
            known: log.known,
            term: log.term,
            recv: log.recv,
            leases: &leases,
            deltas: Deltas::new(&deltas),
        };
        cx.send(&owner, Channel::Main, stream, configuration.epoch, &reply);
    }
}

/// Whether every extent lies within a chunk that can exist.
fn are_sound(bytes: &[u8], shared: &Shared) -> bool {
    extents(Version::ZERO, bytes, shared.arena.chunk_bytes()).all(|e| e.is_ok_and(|e| shared.can_exist(e.stripe)))
}
