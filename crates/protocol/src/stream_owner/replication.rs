//! The way of a delta: closed, numbered, sent, acknowledged by a quorum, stable at every member (P3).

use super::members::{SEND_BYTES_MAX, Sender};
use super::{Phase, StreamOwner};
use crate::context::Context;
use crate::interface::Out;
use paritas_base::configuration::{Configuration, Tenure};
use paritas_base::{Term, Time};
use paritas_code::sum;
use paritas_store::delta::extents;
use paritas_store::{Delta, ObjectStore};
use paritas_wire::peer::Message;

impl StreamOwner {
    pub(super) fn sender(&self, configuration: &Configuration) -> Sender {
        Sender {
            stream: self.stream,
            term: self.tenure.term(),
            epoch: configuration.epoch,
        }
    }

    /// Closes the turn's delta: numbers it, keeps it, and sends it to every member (P3.2).
    pub fn close_delta<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        let Some(delta) = self.log.take_open() else {
            return;
        };
        add_sums(cx, &mut self.store, &delta);
        self.log.append(cx.mono(), self.tenure.term(), delta);
        let seq = self.log.seq();
        self.members.begin_probe(cx.now.mono, seq);
        for at in 0..self.members.len() {
            let member = &self.members.as_slice()[at];
            if member.started && member.sent + 1 == seq {
                self.send_deltas(cx, configuration, at);
            }
        }
        self.advance(cx, configuration);
    }

    /// Sends a member every delta after those sent to it, up to a limit of bytes.
    fn send_deltas<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration, at: usize) {
        let sender = self.sender(configuration);
        if self.members.send_deltas(cx, &self.log, sender, at, SEND_BYTES_MAX) {
            self.log.note_stable_sent();
        }
    }

    /// Sends the member with this tenure the deltas that have not been sent to it.
    pub(super) fn catch_up<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration, tenure: Tenure) {
        if let Some(at) = self.members.index_of(tenure)
            && self.members.as_slice()[at].sent < self.log.seq()
        {
            self.send_deltas(cx, configuration, at);
        }
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
        let seq = self.log.seq();
        let Some(member) = self.members.find_mut(from) else {
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
        if !member.started && recv < self.log.stable() {
            return;
        }
        member.started = true;
        if lease_sent > Time(0) && lease_sent <= now {
            member.lease_until = member.lease_until.max(lease_sent + lease);
            self.wake.releasable = true;
        }
        if recv > member.matched {
            member.matched = recv;
            member.sent = member.sent.max(recv);
            member.resend.schedule(now + wait, wait);
            member.resend.owes_since = (recv < seq).then_some(now);
            self.members.note_probe(now, from, recv);
            self.advance(cx, configuration);
        }
        self.catch_up(cx, configuration, from);
        self.ensure_member(cx, from);
    }

    /// A member that has answered has every stable delta, and none beyond the newest; its lease ends within L.
    #[inline]
    pub(super) fn ensure_member<O: Out>(&self, cx: &mut Context<'_, O>, tenure: Tenure) {
        let Some(member) = self.members.iter().find(|m| m.tenure == tenure) else {
            return;
        };
        let (stable, seq) = (self.log.stable(), self.log.seq());
        let fits = !member.started || (stable..=seq).contains(&member.matched);
        let leased = member.lease_until <= cx.mono() + cx.shared.parameters.lease;
        cx.ensure(self.stream.list, self.stream.x, fits && leased, || {
            let (position, matched, until) = (member.position.0, member.matched, member.lease_until);
            format!(
                "I6: position {position} has {matched} of stable {stable} to seq {seq}, its lease ends at {until:?}"
            )
        });
    }

    /// P3.7, P3.8.
    pub(super) fn advance<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        if self.phase != Phase::Serve {
            return;
        }
        let acked = self.members.acked(cx, configuration, &self.log);
        if acked.is_some_and(|acked| self.log.raise_acked(acked)) {
            self.wake.releasable = true;
        }
        let told_by = cx.mono() + cx.shared.parameters.stable_flush;
        if self.log.raise_stable(self.members.stable(&self.log), told_by) {
            self.wake.progress = true;
        }
        self.log.trim(cx, configuration, !self.members.is_empty());
        let (log, stream) = (&self.log, self.stream);
        cx.ensure(stream.list, stream.x, log.is_sound(cx), || {
            let (first, newest) = (log.ring().first(), log.ring().newest());
            let (stable, acked, seq) = (log.stable(), log.acked(), log.seq());
            format!("I5: {stream} has stable {stable}, acked {acked}, seq {seq}, and deltas from {first:?} to {newest}")
        });
    }

    /// Sends deltas again that were not answered in time. Sends `stable` by itself if no delta has carried it.
    pub(super) fn resend<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        let sender = self.sender(configuration);
        for at in 0..self.members.len() {
            if self.members.resend(cx, &self.log, sender, at) {
                self.log.note_stable_sent();
            }
        }
        let now = cx.mono();
        if self.log.stable_due_at().is_some_and(|at| now >= at) {
            self.log.note_stable_sent();
            let message = Message::Stable {
                term: sender.term,
                stable: self.log.stable(),
            };
            self.members.send_all(cx, sender, &message);
            self.log.rest(now + cx.shared.parameters.stable_flush);
        }
    }
}

/// Updates the sums of the chunks that a closed delta changes (P9.1).
fn add_sums<O: Out>(cx: &mut Context<'_, O>, store: &mut ObjectStore, delta: &Delta) {
    let chunk_bytes = cx.shared.arena.chunk_bytes();
    let chunks = store.chunks_mut();
    for extent in extents(delta.version(), delta.bytes(), chunk_bytes).flatten() {
        chunks.add_sum(extent.stripe, sum::of_extent(chunk_bytes, extent.offset, extent.xor));
        let left = chunks.sum(extent.stripe);
        if extent.free && left != 0 {
            // The freed chunk had wrong bytes. It is zeros here; the members find the difference in their parity
            // (P9.3).
            cx.shared.scrub.bad += 1;
            chunks.add_sum(extent.stripe, left);
        }
    }
}
