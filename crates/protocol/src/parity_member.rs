//! A parity position: the log of each stream, and the parity chunks that the logs are folded into
//! (P3.3–P3.10, P4.3, P5.2, P5.5, P5.7a, P8.2).
//!
//! Per stream: `Unknown` –Sync→ `Known(term, recv)`. Per stripe: `Invalid` –fetch→ `Fetching` –P6.3→ `Valid`; the
//! fetching is in [`Refill`].

mod answers;
mod credit;
mod log;
mod refill;
mod sync;
mod table;

use crate::context::{Context, Shared};
use crate::interface::{Channel, Out};
use crate::mark::Mark;
pub(crate) use answers::ParityBytes;
pub use log::Log;
use paritas_base::configuration::{Configuration, Tenure};
use paritas_base::{ListId, Position, Span, StreamId, Stripe, Time, Version};
use paritas_paritylog::Key;
use paritas_store::Arena;
use paritas_wire::peer::{LeaseEntry, Message};
use refill::Refill;
use table::ParityTable;

/// The role of a node at a parity position.
#[derive(Debug)]
pub struct ParityMember {
    list: ListId,
    position: Position,
    tenure: Tenure,
    logs: Vec<Log>,
    pub(crate) table: ParityTable,
    pub(crate) refill: Refill,
}

impl ParityMember {
    /// For a new tenure. One that began with the list knows every stream, empty.
    pub(crate) fn new(
        configuration: &Configuration,
        position: Position,
        tenure: Tenure,
        coefficients: Vec<u8>,
        on_disk: bool,
    ) -> Self {
        let born = configuration.is_born(&tenure);
        let logs = configuration
            .data_positions()
            .map(|_| Log::new(born, configuration.born.0))
            .collect();
        Self {
            list: configuration.list,
            position,
            tenure,
            logs,
            table: ParityTable::new(coefficients, born, on_disk.then_some((configuration.list, position))),
            refill: Refill::new(born),
        }
    }

    /// This tenure.
    pub fn tenure(&self) -> Tenure {
        self.tenure
    }

    /// Which position.
    pub fn position(&self) -> Position {
        self.position
    }

    /// A stream's log.
    pub fn log(&self, x: Position) -> Option<&Log> {
        self.logs.get(x.index())
    }

    /// The index of the parity among those of the list.
    pub(crate) fn parity(&self) -> u8 {
        self.position.0 - self.logs.len() as u8
    }

    pub(crate) fn list(&self) -> ListId {
        self.list
    }

    /// Memory of what it knows beside the chunks, in bytes.
    pub fn table_bytes(&self) -> u64 {
        self.table.table_bytes()
    }

    /// Memory of raw deltas, in bytes.
    pub fn ring_bytes(&self) -> u64 {
        self.logs().iter().map(|log| log.ring.held_bytes()).sum()
    }

    pub(crate) fn logs(&self) -> &[Log] {
        &self.logs
    }

    /// A parity chunk with the version of each data chunk that it stands for; `None` while it is not valid. The bytes
    /// are `None` if the chunk is all zeros or on disk ([`Self::disk_key`] tells which).
    pub fn chunk<'a>(&'a self, arena: &'a Arena, stripe: Stripe) -> Option<(Vec<Version>, Option<&'a [u8]>)> {
        self.table
            .is_valid(stripe)
            .then(|| (self.table.versions(stripe).collect(), self.table.bytes(arena, stripe)))
    }

    /// The name of a parity chunk in the node's log, if it is there.
    pub fn disk_key(&self, stripe: Stripe) -> Option<Key> {
        self.table.disk_key(stripe)
    }

    /// A stripe whose bytes the disk has lost, and which is not repaired yet.
    pub fn lost_stripe(&self) -> Option<Stripe> {
        self.table.next_lost()
    }

    /// Every stripe heard of that is valid.
    pub fn valid_stripes(&self) -> impl Iterator<Item = Stripe> + '_ {
        self.table
            .stripes()
            .filter(|(s, _)| self.table.is_valid(*s))
            .map(|(s, _)| s)
    }

    /// A newer configuration under which the tenure is the same.
    pub(crate) fn on_configuration<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        self.refill.abort(cx, &mut self.table);
        let table = &self.table;
        cx.ensure(self.list, self.position, table.is_sound(), || {
            let (used, reserved) = table.budgeted();
            format!("I10: {used} chunks used and {reserved} reserved are not those of the table")
        });
        for x in configuration.data_positions() {
            let log = &mut self.logs[x.index()];
            // A lease asked for under the older epoch is not granted under this one.
            log.lease_due = Time(0);
            // An incarnation that is certainly over uses no lease (P5.5). Forgotten here too, so that a later takeover,
            // whose configuration may name that incarnation no more, does not wait for it.
            log.leases
                .retain(|g| !configuration.is_gone(g.holder.node, g.holder.incarnation));
            // What an owner of another term said of its stripes counts for nothing (P6.6).
            let term = configuration.tenure(x).map(|t| t.term());
            if log.alloc.as_ref().is_some_and(|a| Some(a.term) != term) {
                log.alloc = None;
            }
        }
    }

    /// The tenure is over. What is valid here may be so again when the position comes back (P2.4, P6.7).
    pub(crate) fn end<O: Out>(&mut self, cx: &mut Context<'_, O>) {
        let until = cx.now.mono + cx.shared.parameters.stash;
        if self.table.is_on_disk() || cx.shared.parameters.stash == Span(0) {
            self.table.clear(cx.shared);
            if let (true, Some(disk)) = (self.table.is_on_disk(), &mut cx.shared.disk) {
                disk.keep(self.list, until);
            }
            return;
        }
        let Shared { arena, stashes, .. } = &mut *cx.shared;
        let stash = self.table.stash(arena);
        stashes.keep(arena, self.list, self.position, until, stash);
    }

    /// Frees everything: the role broke an invariant.
    pub(crate) fn drop_role<O: Out>(&mut self, cx: &mut Context<'_, O>) {
        self.table.clear(cx.shared);
        if let (true, Some(disk)) = (self.table.is_on_disk(), &mut cx.shared.disk) {
            disk.drop_list(self.list);
        }
    }

    /// The disk has caught up: acks that were held back leave with the turn.
    pub(crate) fn owe_acks(&mut self) {
        for log in self.logs.iter_mut().filter(|log| log.acked < log.recv) {
            log.ack_due = true;
        }
    }

    /// The time until which the role has nothing to do, unless an event changes it. `None`: it may have work in
    /// each turn.
    pub(crate) fn rests_until(&self) -> Option<Time> {
        let rests = !self.refill.is_filling() && !self.refill.has_more() && self.logs.iter().all(|log| !log.ack_due);
        rests.then_some(Time(u64::MAX))
    }

    /// Gives back the buffers of the stream's empty ring. The owner has sent `Stable` alone, so the stream is idle.
    pub(crate) fn give_back(&mut self, x: Position) {
        if let Some(log) = self.logs.get_mut(x.index()) {
            log.ring.give_back();
        }
    }

    /// P4.3. Whether the lease is granted.
    pub(crate) fn on_lease_request<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        owner: &Tenure,
        entry: &LeaseEntry,
    ) -> bool {
        let Some(log) = self.logs.get_mut(entry.stream.x.index()) else {
            return false;
        };
        let fits = log.known && log.term == entry.term && owner.term() == entry.term;
        if fits {
            log.give_lease(cx.mono(), cx.shared.parameters.lease, *owner);
        }
        fits
    }

    /// Chunks of memory that it has or has set aside for what it has granted.
    pub fn slots_granted(&self) -> u32 {
        self.table.memory_slots_granted()
    }

    /// Chunks of memory, or of the disk, that it uses, and those reserved for it.
    pub fn budgeted(&self) -> (u32, u32) {
        self.table.budgeted()
    }

    /// Whether its chunks are on the node's disk.
    pub fn is_on_disk(&self) -> bool {
        self.table.is_on_disk()
    }

    /// Chunks still to be refilled that have no reserved chunk, as far as it knows.
    pub fn refill_backlog(&self) -> u32 {
        self.table.refill_backlog()
    }

    /// Frees the owners' lists of stripes, which are large and were read.
    pub(crate) fn forget_stripe_lists(&mut self) {
        for log in &mut self.logs {
            log.alloc = None;
        }
    }

    /// Sends what the turn made due.
    /// `parts_whole`: the position has every part of large values that it must have (P14.9).
    pub(crate) fn on_turn_end<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        parts_whole: bool,
    ) {
        // P11.2: what waits for the disk is bounded by windows that no ack moves on. Leases go on.
        let held = match &mut cx.shared.disk {
            Some(disk) if self.table.is_on_disk() => disk.holds_acks(),
            _ => false,
        };
        for x in configuration.data_positions() {
            let log = &mut self.logs[x.index()];
            if !log.ack_due {
                continue;
            }
            log.ack_due = false;
            if !held {
                log.acked = log.recv;
            } else if log.acked < log.recv {
                cx.out.mark(Mark::AckHeldBack);
            }
            let Some(owner) = configuration.tenure(x) else { continue };
            let lease_sent = core::mem::take(&mut log.lease_due);
            let ack = Message::Ack {
                term: log.term,
                recv: log.acked.min(log.recv),
                lease_sent,
            };
            let stream = StreamId {
                list: configuration.list,
                x,
            };
            cx.send(&owner, Channel::Main, stream, configuration.epoch, &ack);
        }
        self.fill(cx, configuration, parts_whole);
    }
}
