//! A parity position: the log of each stream, and the parity chunks that the logs are folded into
//! (P3.3–P3.10, P4.3, P5.2, P5.5, P5.7a, P8.2).
//!
//! Per stream: `Unknown` –Sync→ `Known(term, recv)`. Per stripe: `Invalid` –fetch→ `Fetching` –P6.3→ `Valid`; the
//! fetching is in [`Refill`].

use crate::context::{Context, Shared};
use crate::disk_log::Wanted;
use crate::interface::{Channel, Out};
use crate::mark::Mark;
use crate::parity_table::{FoldError, ParityTable, State, There};
use crate::refill::Refill;
use crate::ring::Ring;
use crate::rules::Fault;
use paritas_base::configuration::{Configuration, Tenure};
use paritas_base::{Incarnation, ListId, NodeId, Position, Span, StreamId, Stripe, Term, Time, Version};
use paritas_paritylog::Key;
use paritas_store::Arena;
use paritas_store::delta::extents;
use paritas_wire::peer::{self, Deltas, Header, LeaseEntry, LeaseRecord, Message, Parity, Versions};

/// One stream's log at a member.
#[derive(Debug)]
pub struct Log {
    /// Whether this member has heard of the stream (P3.10).
    pub known: bool,
    /// The owner's term that the log belongs to.
    pub term: Term,
    /// All deltas up to here are in the log or folded.
    pub recv: u64,
    /// No delta up to here can be undone any more.
    pub stable: u64,
    /// Raw deltas above `stable`.
    pub ring: Ring,
    leases: Vec<Grant>,
    credit_data: u32,
    credit_index: u32,
    /// What was asked for and not granted, in which term.
    credit_wish: Option<(Term, (u32, u32))>,
    ack_due: bool,
    /// The last delta that was acknowledged: below `recv` while the disk is behind (P11.2).
    acked: u64,
    lease_due: Time,
    /// P6.6, P6.7: which stripes the owner has is known, as of a seq in a term.
    pub(crate) alloc: Option<Alloc>,
}

#[derive(Debug)]
pub(crate) struct Alloc {
    pub(crate) term: Term,
    pub(crate) as_of: u64,
    /// In the order of stripes.
    pub(crate) entries: Vec<(Stripe, Version)>,
}

#[derive(Debug)]
struct Grant {
    holder: Tenure,
    until: Time,
}

/// Where the bytes of a parity chunk are.
pub(crate) enum ParityBytes<'a> {
    InMemory,
    /// The disk was asked; `None` if it does not give them.
    Read(Option<&'a [u8]>),
}

impl Log {
    fn new(known: bool, term: Term) -> Self {
        Self {
            known,
            term,
            recv: 0,
            stable: 0,
            ring: Ring::default(),
            leases: Vec::new(),
            credit_data: 0,
            credit_index: 0,
            credit_wish: None,
            ack_due: false,
            acked: 0,
            lease_due: Time(0),
            alloc: None,
        }
    }

    /// The term in which delta `seq` was issued, if it is still in the ring.
    fn term_at(&self, seq: u64) -> Option<Term> {
        self.ring.get(seq).map(|r| r.term)
    }
}

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

    /// Which of the parities.
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

    /// A parity chunk with the version of each data chunk it stands for; `None` while it is not valid. Not of one that
    /// is on disk: see [`Self::disk_key`].
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

    /// Frees everything: it is not to be trusted.
    pub(crate) fn drop_role<O: Out>(&mut self, cx: &mut Context<'_, O>) {
        self.table.clear(cx.shared);
        if let (true, Some(disk)) = (self.table.is_on_disk(), &mut cx.shared.disk) {
            disk.drop_list(self.list);
        }
    }

    /// P3.3.
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
        grant(log, cx.mono(), cx.shared.parameters.lease, *owner);
        log.lease_due = sent;
        self.on_stable(cx, x, term, stable);
    }

    /// P3.8.
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
        }
    }

    /// The disk has caught up: acks that were held back leave with the turn.
    pub(crate) fn owe_acks(&mut self) {
        for log in self.logs.iter_mut().filter(|log| log.acked < log.recv) {
            log.ack_due = true;
        }
    }

    /// Until when nothing is to be done if nobody takes it to change; `None`: something may be in each turn.
    pub(crate) fn rests_until(&self) -> Option<Time> {
        let rests = !self.refill.is_filling() && !self.refill.has_more() && self.logs.iter().all(|log| !log.ack_due);
        rests.then_some(Time(u64::MAX))
    }

    /// The stream is idle, for its owner says so alone that all is stable.
    pub(crate) fn give_back(&mut self, x: Position) {
        if let Some(log) = self.logs.get_mut(x.index()) {
            log.ring.give_back();
        }
    }

    /// Takes the next delta into the log and folds it.
    fn accept<O: Out>(&mut self, cx: &mut Context<'_, O>, x: Position, term: Term, seq: u64, bytes: &[u8]) {
        self.fold(cx, x, Version::new(term, seq), bytes);
        if let Some(log) = self.logs.get_mut(x.index()) {
            log.ring.push(cx.mono(), term, seq, bytes);
            log.recv = seq;
        }
    }

    fn fold<O: Out>(&mut self, cx: &mut Context<'_, O>, x: Position, version: Version, bytes: &[u8]) {
        let chunk_bytes = cx.shared.arena.chunk_bytes();
        for extent in extents(bytes, chunk_bytes).flatten() {
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
        let all: Vec<_> = extents(bytes, chunk_bytes).flatten().collect();
        for extent in all.iter().rev() {
            if let State::Valid(_) | State::Lost = self.table.state(extent.stripe) {
                let to = extent.base.or(Some(version));
                let result = self.table.fold(cx.shared, x.index(), extent, to, false);
                self.check(cx, x, version, &extent.stripe, result);
            }
        }
    }

    /// P3.9, P3.10. Whether the log now reaches at least `top`.
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
                // Every member had those deltas, and owners have answered for them: whoever would undo them here has a
                // log that does not hold what it must (P5.3).
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
            // The older owner's clock says nothing to the new one.
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
        // Where the owner's log begins is stable (P3.9): without this a member that heard of it late held more than W.
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

    /// P5.2. The owner that asks is the one of the installed configuration.
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
            grant(log, cx.mono(), cx.shared.parameters.lease, *owner);
        }
        fits
    }

    /// P8.2: memory for stripes below these ends, shared by all streams of the list.
    pub(crate) fn on_credit_request<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        stream: StreamId,
        term: Term,
        data_end: u32,
        index_end: u32,
    ) {
        let Some(owner) = configuration.tenure(stream.x) else {
            return;
        };
        let wanted = (data_end, index_end);
        let there = self.there(configuration, stream.x, wanted);
        let granted = self.table.grant(cx.shared, wanted, there);
        let Some(log) = self.logs.get_mut(stream.x.index()) else {
            return;
        };
        log.credit_data = log.credit_data.max(granted.0.min(wanted.0));
        log.credit_index = log.credit_index.max(granted.1.min(wanted.1));
        let is_less = log.credit_data < wanted.0 || log.credit_index < wanted.1;
        log.credit_wish = is_less.then_some((term, wanted));
        if is_less {
            cx.out.mark(Mark::CreditRefused);
        }
        let window_bytes = cx.shared.parameters.window_bytes;
        let (data_end, index_end) = (log.credit_data, log.credit_index);
        let reply = Message::Credit {
            term,
            data_end,
            index_end,
            window_bytes,
        };
        cx.send(&owner, Channel::Main, stream, configuration.epoch, &reply);
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

    /// Chunks still to be refilled that nothing is set aside for, as far as it knows.
    pub fn slots_owed(&self) -> u32 {
        self.table.slots_owed()
    }

    /// What is known of the stripes that are there, now that this owner asks for so much.
    fn there(&self, configuration: &Configuration, asks: Position, wanted: (u32, u32)) -> There {
        if let Some(owed) = self.refill.owed(&self.table) {
            return There::Known { owed };
        }
        let (mut wished, mut all) = (wanted, true);
        // Nobody asks for a position that nobody has, and writes to the others do not wait for somebody.
        let held = |x: &Position| configuration.tenure(*x).is_some();
        for x in configuration.data_positions().filter(|x| *x != asks && held(x)) {
            let log = &self.logs[x.index()];
            let (data, index) = log.credit_wish.map_or((0, 0), |(_, wish)| wish);
            let of_it = (data.max(log.credit_data), index.max(log.credit_index));
            all &= of_it != (0, 0);
            wished = (wished.0.max(of_it.0), wished.1.max(of_it.1));
        }
        There::Unknown { wished, all }
    }

    /// More may be granted now to whoever was granted less than it asked for.
    pub(crate) fn grant_more<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        for x in configuration.data_positions() {
            let log = self.logs.get_mut(x.index());
            if let Some((term, (data_end, index_end))) = log.and_then(|log| log.credit_wish.take()) {
                let stream = StreamId { list: self.list, x };
                self.on_credit_request(cx, configuration, stream, term, data_end, index_end);
            }
        }
    }

    /// P5.5: which stripes of the stream exist. Only from a Live member whose log is the successor's and long enough.
    pub(crate) fn on_read_directory<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        stream: StreamId,
        term: Term,
        at_least: u64,
    ) {
        let live = configuration.at(self.position).is_some_and(|a| a.state.is_live());
        let (Some(owner), Some(log)) = (configuration.tenure(stream.x), self.logs.get(stream.x.index())) else {
            return;
        };
        let complete = cx.rules().is_complete_for(log.recv, at_least);
        if !live || !log.known || log.term != term || !complete {
            return;
        }
        let x = stream.x.index();
        let mut entries = Vec::new();
        for (stripe, _) in self.table.stripes() {
            let version = self.table.version(stripe, x);
            if version != Version::ZERO {
                Message::push_directory_entry(&mut entries, stripe, version);
            }
        }
        let reply = Message::Directory {
            term,
            complete_for: log.recv,
            entries: &entries,
        };
        cx.send(&owner, Channel::Bulk, stream, configuration.epoch, &reply);
    }

    /// P5.7a.
    pub(crate) fn on_read_parity<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        (stream, to): (StreamId, (NodeId, Incarnation)),
        id: u64,
        stripe: Stripe,
    ) {
        if let (Some(key), Some(disk)) = (self.table.disk_key(stripe), &mut cx.shared.disk) {
            let wanted = Wanted::Parity {
                list: self.list,
                x: stream.x,
                to,
                epoch: configuration.epoch,
                id,
                stripe,
            };
            if !disk.read(key, wanted) {
                self.answer_parity(cx, configuration, (stream, to), (id, stripe), ParityBytes::Read(None));
            }
            return;
        }
        self.answer_parity(cx, configuration, (stream, to), (id, stripe), ParityBytes::InMemory);
    }

    /// With the bytes as they are now.
    pub(crate) fn answer_parity<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        (stream, to): (StreamId, (NodeId, Incarnation)),
        (id, stripe): (u64, Stripe),
        bytes: ParityBytes<'_>,
    ) {
        let Some(log) = self.logs.get(stream.x.index()) else {
            return;
        };
        let mut versions = Vec::new();
        for version in self.table.versions(stripe) {
            Versions::push(&mut versions, version);
        }
        let (epoch, sent) = (configuration.epoch, cx.mono());
        let Some((frames, arena)) = cx.frames_to(to.0, to.1, Channel::Bulk) else {
            return;
        };
        let bytes = match bytes {
            ParityBytes::InMemory => Some(self.table.bytes(arena, stripe).unwrap_or_default()),
            ParityBytes::Read(bytes) => bytes,
        };
        let parity = bytes.filter(|_| self.table.is_valid(stripe)).map(|bytes| Parity {
            recv: log.recv,
            term: log.term,
            versions: Versions::new(&versions),
            sum: self.table.sum(stripe, stream.x.index()),
            bytes,
        });
        let reply = Message::ParityValue { id, stripe, parity };
        peer::encode(frames, &Header { stream, epoch, sent }, &reply);
    }

    /// P6.6, P6.7.
    pub(crate) fn on_alloc<O: Out>(
        &mut self,
        cx: &Context<'_, O>,
        configuration: &Configuration,
        x: Position,
        term: Term,
        as_of: u64,
        entries: &[u8],
    ) {
        let current = configuration.tenure(x).map(|t| t.term()) == Some(term);
        if let Some(log) = self.logs.get_mut(x.index())
            && current
            && !self.table.is_complete()
        {
            let mut entries: Vec<_> = Message::directory_entries(entries).collect();
            if !entries.iter().all(|(stripe, _)| cx.shared.can_exist(*stripe)) {
                return;
            }
            entries.sort_unstable_by_key(|(stripe, _)| *stripe);
            log.alloc = Some(Alloc { term, as_of, entries });
        }
    }

    /// The owners' lists of stripes are learnt, and are large.
    pub(crate) fn forget_stripe_lists(&mut self) {
        for log in &mut self.logs {
            log.alloc = None;
        }
    }

    /// Sends what the turn made due.
    pub(crate) fn on_turn_end<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
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
        self.fill(cx, configuration);
    }
}

/// Whether every extent lies within a chunk that can exist.
fn are_sound(bytes: &[u8], shared: &Shared) -> bool {
    extents(bytes, shared.arena.chunk_bytes()).all(|e| e.is_ok_and(|e| shared.can_exist(e.stripe)))
}

/// A grant never overwrites another tenure's that still runs (P4.3). The tenth more than L is the drift guard.
fn grant(log: &mut Log, now: Time, lease: Span, holder: Tenure) {
    let until = now + Span(lease.0 + lease.0 / 10);
    match log.leases.iter_mut().find(|g| g.holder == holder) {
        Some(grant) => grant.until = grant.until.max(until),
        None => {
            log.leases.retain(|g| g.until > now);
            log.leases.push(Grant { holder, until });
        }
    }
}
