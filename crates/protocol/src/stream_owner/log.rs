//! The log of one stream at its owner: the numbers of its deltas, the deltas that are kept, and the one that is open.

use crate::context::Context;
use crate::interface::Out;
use crate::ring::Ring;
use paritas_base::configuration::Configuration;
use paritas_base::{Term, Time, Version};
use paritas_store::delta::DELTA_BYTES_MAX;
use paritas_store::{DATABASE_BITS, Delta};

/// A buffer with more capacity than this, in bytes, is not kept for the next turn's delta.
const SPARE_BYTES_MAX: usize = 16 << 10;

const TOUCHED_BUCKETS: usize = 512;

/// Sequence numbers of a stream, its kept deltas, and the open delta.
#[derive(Debug)]
pub(super) struct StreamLog {
    /// The newest delta that has a number.
    seq: u64,
    /// Every delta up to here is acknowledged by a quorum (P3.7).
    acked: u64,
    /// Every member has every delta up to here (P3.8).
    stable: u64,
    /// C: the newest delta of earlier tenures that this one continues from (P5.3).
    cut: u64,
    /// The kept deltas.
    ring: Ring,
    /// The delta of this turn, which has no number yet.
    open: Option<Delta>,
    /// An empty buffer for the next turn's delta.
    spare: Vec<u8>,
    /// By bucket of key hashes: the newest delta on a key of it (P4.1). A read may wait for another key of its bucket.
    /// Above that, in the bits that a number of a delta never has: the objects put since that were there already.
    touched: Vec<u64>,
    /// When `stable` is sent in a message of its own, unless a delta has carried it by then.
    stable_at: Time,
    /// The value of `stable` that was sent last.
    stable_sent: u64,
}

impl StreamLog {
    pub(super) fn new() -> Self {
        Self {
            seq: 0,
            acked: 0,
            stable: 0,
            cut: 0,
            ring: Ring::default(),
            open: None,
            spare: Vec::new(),
            touched: vec![0; TOUCHED_BUCKETS],
            stable_at: Time(0),
            stable_sent: 0,
        }
    }

    // --- what is known ---------------------------------------------------------------------------------------------

    #[inline]
    pub(super) fn seq(&self) -> u64 {
        self.seq
    }

    #[inline]
    pub(super) fn acked(&self) -> u64 {
        self.acked
    }

    #[inline]
    pub(super) fn stable(&self) -> u64 {
        self.stable
    }

    pub(super) fn cut(&self) -> u64 {
        self.cut
    }

    pub(super) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Bytes of the open delta.
    #[inline]
    pub(super) fn open_bytes(&self) -> usize {
        self.open.as_ref().map_or(0, |d| d.bytes().len())
    }

    /// Memory of the ring and of the open delta, in bytes.
    pub(super) fn held_bytes(&self) -> u64 {
        let turn = self.spare.capacity() + self.open.as_ref().map_or(0, Delta::held_bytes);
        self.ring.held_bytes() + turn as u64
    }

    /// Memory of the table of touched keys, in bytes.
    pub(super) fn table_bytes(&self) -> usize {
        self.touched.capacity() * size_of::<u64>()
    }

    /// The newest delta, the open one included.
    #[inline]
    pub(super) fn newest_seq(&self) -> u64 {
        if self.open_bytes() > 0 {
            self.next_seq()
        } else {
            self.seq
        }
    }

    /// The number that the open delta will have.
    #[inline]
    pub(super) fn next_seq(&self) -> u64 {
        self.seq + 1
    }

    // --- the open delta --------------------------------------------------------------------------------------------

    /// The delta of this turn.
    #[inline]
    pub(super) fn delta(&mut self, term: Term) -> &mut Delta {
        let version = Version::new(term, self.next_seq());
        open_delta(&mut self.open, &mut self.spare, version)
    }

    /// The delta of this turn, and what notes that it touches a key, by the key's hash.
    pub(super) fn delta_and_touch(&mut self, term: Term) -> (&mut Delta, impl FnMut(u64)) {
        let seq = self.next_seq();
        let delta = open_delta(&mut self.open, &mut self.spare, Version::new(term, seq));
        let touched = &mut self.touched;
        (delta, move |hash| touched[bucket(hash)] = seq)
    }

    /// Notes that the open delta touches this key.
    #[inline]
    pub(super) fn touch(&mut self, hash: u64) {
        self.touched[bucket(hash)] = self.seq + 1;
    }

    /// An object of this key was put. If the open delta does not touch the bucket, the object was there already.
    #[inline]
    pub(super) fn note_put(&mut self, hash: u64) {
        let touched = &mut self.touched[bucket(hash)];
        if *touched & Version::SEQ_MAX != self.seq + 1 {
            *touched = touched.wrapping_add(Version::SEQ_MAX + 1);
        }
    }

    /// Another number after each write of a key of this bucket, also of one that changed nothing.
    pub(super) fn writes(&self, hash: u64) -> u64 {
        self.touched[bucket(hash)]
    }

    /// Notes that the open delta may touch any key.
    pub(super) fn touch_all(&mut self) {
        self.touched.fill(self.seq + 1);
    }

    /// The delta that a read of this key must wait for (P4.1).
    #[inline]
    pub(super) fn need(&self, hash: u64) -> u64 {
        self.touched[bucket(hash)] & Version::SEQ_MAX
    }

    /// Takes the open delta, if it is not empty.
    pub(super) fn take_open(&mut self) -> Option<Delta> {
        self.open.take_if(|d| !d.is_empty())
    }

    // --- numbered deltas -------------------------------------------------------------------------------------------

    /// Gives a closed delta the next number and keeps it (P3.2).
    pub(super) fn append(&mut self, now: Time, term: Term, delta: Delta) {
        self.seq += 1;
        let bytes = delta.into_bytes();
        self.ring.push(now, term, self.seq, &bytes);
        if bytes.capacity() <= SPARE_BYTES_MAX {
            self.spare = bytes;
        }
    }

    /// A quorum has everything up to `reached`. True if that is news.
    pub(super) fn raise_acked(&mut self, reached: u64) -> bool {
        let news = reached > self.acked;
        if news {
            self.acked = reached.min(self.seq);
        }
        news
    }

    /// Every member has everything up to `stable`. True if that is news; then members are told of it by `told_by`.
    pub(super) fn raise_stable(&mut self, stable: u64, told_by: Time) -> bool {
        let news = stable > self.stable;
        if news {
            self.stable = stable;
            self.ring.mark_stable(stable);
            self.stable_at = told_by;
        }
        news
    }

    /// While the owner serves: stable ≤ acked ≤ seq, and the ring has every delta that is to be kept, up to `seq`.
    #[inline]
    pub(super) fn is_sound<O: Out>(&self, cx: &Context<'_, O>) -> bool {
        let in_order = self.stable <= self.acked && self.acked <= self.seq;
        let kept_from = cx.rules().kept_from(self.stable, self.acked, self.seq);
        let kept = match self.ring.first() {
            Some(first) => first <= kept_from + 1 && self.ring.newest() == self.seq,
            None => kept_from == self.seq,
        };
        in_order && kept
    }

    /// Drops deltas that no member needs any more. Stable ones are kept only while a data position is being rebuilt:
    /// for that, the position may ask for a chunk as it was before them.
    pub(super) fn trim<O: Out>(&mut self, cx: &Context<'_, O>, configuration: &Configuration, has_members: bool) {
        let p = &cx.shared.parameters;
        let live = |x| configuration.at(x).is_some_and(|a| a.state.is_live());
        let whole = configuration.data_positions().all(live);
        let kept_from = cx.rules().kept_from(self.stable, self.acked, self.seq);
        if !has_members || whole || kept_from != self.stable {
            self.ring.trim(kept_from);
        } else {
            self.ring
                .trim_history(self.stable, p.history_bytes, cx.now.mono, p.history);
        }
    }

    /// Whether the ring has deltas that every member has.
    pub(super) fn has_stable_deltas(&self) -> bool {
        self.ring.first().is_some_and(|first| first <= self.stable)
    }

    /// Members know of `stable`.
    pub(super) fn note_stable_sent(&mut self) {
        self.stable_sent = self.stable;
    }

    /// When members must be told of `stable`; `None` if they know.
    pub(super) fn stable_due_at(&self) -> Option<Time> {
        (self.stable_sent != self.stable).then_some(self.stable_at)
    }

    /// The stream is idle: gives empty buffers back. `next` is the earliest time at which `stable` is sent again.
    pub(super) fn rest(&mut self, next: Time) {
        self.stable_at = next;
        self.ring.give_back();
        self.spare = Vec::new();
    }

    // --- takeover --------------------------------------------------------------------------------------------------

    /// Begins with the log of a member, which ends at `recv`: the cut (P5.3).
    pub(super) fn adopt(&mut self, now: Time, recv: u64, deltas: Vec<(Term, u64, Vec<u8>)>) {
        self.ring.clear();
        self.stable = recv - deltas.len() as u64;
        self.ring.mark_stable(self.stable);
        for (term, seq, extents) in deltas {
            self.ring.push(now, term, seq, &extents);
        }
        (self.seq, self.cut) = (recv, recv);
    }

    /// A quorum has everything up to the cut (P5.5).
    pub(super) fn begin_serving(&mut self) {
        self.acked = self.seq;
        self.stable_sent = self.stable;
    }
}

#[inline]
fn bucket(hash: u64) -> usize {
    (hash >> DATABASE_BITS) as usize % TOUCHED_BUCKETS
}

#[inline]
fn open_delta<'a>(open: &'a mut Option<Delta>, spare: &mut Vec<u8>, version: Version) -> &'a mut Delta {
    let delta = open.get_or_insert_with(|| Delta::new(version, core::mem::take(spare)));
    delta.set_bytes_max(DELTA_BYTES_MAX);
    delta
}
