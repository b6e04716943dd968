//! Parity refill (P6.1–P6.6): the parity chunks of a new member become valid while writes continue.
//!
//! First every owner reports which stripes exist ([`Message::Alloc`], requested by `ReadDirectory`). Then each of these
//! stripes, and each stripe that a delta has touched meanwhile, is fetched: deltas are buffered, the `k` data chunks
//! are read and encoded, and the buffered deltas newer than the chunks are folded in. The scrub of a parity chunk is
//! the same fetch with a comparison at its end (`check`).

mod check;
mod fetch;
mod substitute;

use super::ParityMember;
use super::table::{ParityTable, State};
use crate::context::{Context, Shared};
use crate::interface::{Channel, Out, Proposal};
use crate::mark::Mark;
use crate::rules::Fault;
use crate::source_chunk::SourceChunk;
use fetch::{Buffered, Chunk, Fetch};
use paritas_base::configuration::{Configuration, PositionState};
use paritas_base::{Map, Position, Span, StreamId, Stripe, Term, Time, Version, map};
use paritas_code::{mul_add, sum};
use paritas_paritylog::Key;
use paritas_store::delta::Extent;
use paritas_wire::peer::Message;
use std::collections::VecDeque;

/// The most stripes examined to find one for which there is memory.
const SOUGHT_MAX: usize = 64;

/// Interval at which a stripe is fetched although memory is short.
const TRY_EVERY: Span = Span::from_ms(250);

/// Version and checksum of each data chunk, and the parity of these chunks.
type Encoded = (Vec<(Version, u32)>, Vec<u8>);

/// The refill of one parity position.
#[derive(Debug)]
pub(crate) struct Refill {
    /// Stripes still to fetch; `None` until P6.6 has told which exist.
    queue: Option<VecDeque<Stripe>>,
    fetches: Map<Stripe, Fetch>,
    next_at: Time,
    /// No fetch begins before this time, because memory was short.
    blocked_until: Time,
    /// When the next stripe is fetched although memory is short: its parity may be all zeros and need no chunk.
    try_at: Time,
    /// Whether the position is not Live yet.
    filling: bool,
    /// The valid stripe that the scrub compares with its data (P9.2).
    check: Option<check::Check>,
    /// The stripe at which the scrub continues.
    checked: Stripe,
    pub(crate) done: u32,
    pub(crate) total: u32,
}

impl Refill {
    /// The refill of a new role. `born`: the position was created empty, so there is nothing to fetch.
    pub(crate) fn new(born: bool) -> Self {
        Self {
            queue: born.then(VecDeque::new),
            fetches: map(),
            next_at: Time(0),
            blocked_until: Time(0),
            try_at: Time(0),
            filling: !born,
            check: None,
            checked: Stripe::index_page(0),
            done: 0,
            total: 0,
        }
    }

    /// Keeps a delta's extent for a stripe that is being fetched (P6.2).
    pub(crate) fn buffer<O: Out>(&mut self, cx: &Context<'_, O>, x: Position, version: Version, extent: &Extent<'_>) {
        if cx.rules().fault(Fault::NotBuffered) {
            return;
        }
        if let Some(fetch) = self.fetch_mut(extent.stripe) {
            fetch.buffered_bytes += extent.xor.len() + size_of::<Buffered>();
            let (free, base, offset) = (extent.free, extent.base, extent.offset);
            fetch.buffer.push(Buffered {
                x,
                version,
                free,
                base,
                offset,
                xor: extent.xor.to_vec(),
            });
        }
    }

    fn fetch_mut(&mut self, stripe: Stripe) -> Option<&mut Fetch> {
        match &mut self.check {
            Some(check) if check.stripe == stripe => Some(&mut check.fetch),
            _ => self.fetches.get_mut(&stripe),
        }
    }

    /// P6.4: ends every fetch, because the epoch has changed. Valid stripes stay valid.
    pub(crate) fn abort<O: Out>(&mut self, cx: &mut Context<'_, O>, table: &mut ParityTable) {
        cx.shared.scrub.partial |= self.check.take().is_some();
        let mut stripes: Vec<Stripe> = self.fetches.drain().map(|(s, _)| s).collect();
        stripes.sort();
        for stripe in stripes {
            table.mark(cx.shared, stripe, State::Invalid);
            if let Some(queue) = &mut self.queue {
                queue.push_back(stripe);
            }
        }
        self.next_at = Time(0);
    }

    /// Asks again after a session was renewed, because the old session may have lost questions or answers.
    pub(crate) fn on_session_up(&mut self, now: Time) {
        self.next_at = now;
        for fetch in self
            .fetches
            .values_mut()
            .chain(self.check.iter_mut().map(|c| &mut c.fetch))
        {
            fetch.retry_at = now;
        }
    }

    /// Handles a requested chunk, for the parity with this index. `None`: its owner cannot give it now. The chunk is
    /// added to the parity directly from the frame. A chunk that is received twice counts once.
    pub(crate) fn on_chunk<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        (x, parity): (Position, u8),
        id: u64,
        stripe: Stripe,
        value: Option<(SourceChunk<'_>, u64, Term)>,
    ) {
        let chunk_bytes = cx.shared.arena.chunk_bytes();
        let Some(fetch) = self.fetch_mut(stripe).filter(|f| f.id == id) else {
            return;
        };
        if value.is_none() {
            // Its owner does not have it yet: it is asked again at the next retry.
            fetch.retry_at = Time(0);
        }
        let (Some(slot @ None), Some((source, as_of, term))) = (fetch.replies.get_mut(x.index()), value) else {
            return;
        };
        if !source.has_its_sum() {
            // Its owner's memory is wrong, and the parity must not become wrong too (P9.1). The timer asks again.
            cx.shared.bad_sums += 1;
            return;
        }
        if !source.bytes.is_empty() {
            if source.bytes.len() != chunk_bytes {
                return;
            }
            fetch.parity.resize(chunk_bytes, 0);
            let coefficient = cx.shared.code.coefficient(x.0, parity);
            mul_add(coefficient, source.bytes, &mut fetch.parity);
            if let Some(substitute) = &mut fetch.substitute {
                substitute.add(cx.shared, x, source.bytes);
            }
        }
        let as_of = cx.rules().folded_after(as_of, source.version);
        *slot = Some(Chunk {
            version: source.version,
            sum: source.sum,
            as_of,
            term,
        });
    }

    /// Number of stripes that wait for their first answers. Stripes that have all answers do not count: they end in
    /// this turn, and others may begin in their place.
    pub(crate) fn under_way(&self) -> usize {
        let waits = |f: &&Fetch| !f.asked_again && f.replies.iter().any(Option::is_none);
        self.fetches.values().filter(waits).count()
    }

    /// Whether stripes are being fetched or are still to be fetched.
    pub(crate) fn has_more(&self) -> bool {
        !self.fetches.is_empty() || self.queue.as_ref().is_some_and(|queue| !queue.is_empty())
    }

    /// Number of stripes still to fetch, of those that had to be fetched when they became known.
    pub(crate) fn left(&self) -> u32 {
        self.total.saturating_sub(self.done)
    }

    /// Number of these stripes without a reserved chunk; `None` until it is known which stripes exist.
    pub(crate) fn backlog(&self, table: &ParityTable) -> Option<u32> {
        self.queue.as_ref()?;
        Some(if self.filling {
            self.left().saturating_sub(table.reserved())
        } else {
            0
        })
    }

    /// Whether the position is not Live yet.
    pub(crate) fn is_filling(&self) -> bool {
        self.filling
    }

    /// P14.9: the position has every part of large values that it must have.
    pub(crate) fn on_parts_whole(&mut self, now: Time) {
        self.next_at = now;
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.filling.then_some(self.next_at)
    }
}

impl ParityMember {
    /// Continues the refill: asks for chunks, encodes complete stripes, begins further ones, and asks to become Live
    /// when all stripes are valid.
    pub(crate) fn fill<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration, parts_whole: bool) {
        let me = configuration.at(self.position()).filter(|a| a.tenure == self.tenure());
        self.refill.filling = me.is_some_and(|a| a.state == PositionState::Filling);
        if !self.refill.filling {
            return;
        }
        if self.refill.queue.is_none() {
            self.learn_stripes(cx, configuration);
        }
        self.drop_overfull(cx);
        self.finish_fetches(cx, configuration);
        if cx.mono() >= self.refill.next_at {
            let retry = cx.shared.parameters.retry;
            self.refill.next_at = cx.after(retry);
            self.ask_again(cx, configuration, parts_whole);
        }
        self.begin_fetches(cx, configuration);
    }

    /// P6.6: builds the queue of stripes to fetch, once all owners of the current terms have reported their stripes.
    fn learn_stripes<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        for x in configuration.data_positions() {
            let term = configuration.tenure(x).map(|t| t.term());
            let log = &self.logs()[x.index()];
            let ready = log.known
                && Some(log.term) == term
                && log
                    .alloc
                    .as_ref()
                    .is_some_and(|a| a.term == log.term && log.recv >= a.as_of);
            if !ready {
                return;
            }
        }
        let touched: Vec<Stripe> = self.table.stripes().map(|(s, _)| s).collect();
        let mut wanted = touched.clone();
        if cx.rules().fault(Fault::TouchedNotFetched) {
            wanted.clear();
        }
        for log in self.logs() {
            wanted.extend(log.alloc.iter().flat_map(|a| a.entries.iter().map(|(s, _)| *s)));
        }
        wanted.sort();
        wanted.dedup();
        for stripe in touched {
            let state = match wanted.binary_search(&stripe) {
                Ok(_) => State::Invalid,
                Err(_) => State::Valid(None),
            };
            self.table.mark(cx.shared, stripe, state);
        }
        let mut queue = VecDeque::new();
        let mut seen = vec![0; self.logs().len()];
        for stripe in wanted {
            let versions: Vec<Version> = (self.logs().iter().zip(&mut seen))
                .map(|(log, at)| {
                    let entries = log.alloc.as_ref().map_or(&[][..], |a| &a.entries);
                    let entry = entries.get(*at).filter(|(s, _)| *s == stripe);
                    *at += usize::from(entry.is_some());
                    entry.map_or(Version::ZERO, |(_, version)| *version)
                })
                .collect();
            if !self.reuse(cx, configuration, stripe, &versions) {
                self.table.mark(cx.shared, stripe, State::Invalid);
                queue.push_back(stripe);
            }
        }
        self.table.set_complete();
        self.forget_stripe_lists();
        cx.out.mark(Mark::StripesLearnt);
        self.refill.total = queue.len() as u32;
        self.refill.queue = Some(queue);
        self.grant_more(cx, configuration);
        // The remaining chunks of the stash cannot be used by the refill.
        let shared = &mut *cx.shared;
        shared.stashes.drop_at(&mut shared.arena, self.list(), self.position());
        if let (true, Some(disk)) = (self.table.is_on_disk(), &mut shared.disk) {
            for key in disk.chunks_of(self.list()) {
                if self.table.disk_key(key.stripe).is_none() {
                    disk.log.remove(key);
                }
            }
        }
    }

    /// P6.7: reuses an old parity chunk of this node if it stands for exactly the current versions of the owners. It is
    /// valid if no delta on the stripe was received since this tenure began (P6.6): all later ones will be folded into
    /// it. A log node has such chunks on its disk, also from an earlier incarnation (P11.3). False if there is none.
    fn reuse<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        stripe: Stripe,
        versions: &[Version],
    ) -> bool {
        let rules = cx.rules();
        let shared = &mut *cx.shared;
        if let (true, Some(disk)) = (self.table.is_on_disk(), &shared.disk) {
            let key = Key {
                list: self.list(),
                stripe,
            };
            let untouched = self.table.state(stripe) == State::Untouched;
            let here = disk.log.position(key) == Some(self.position()) && untouched;
            let Some(content) = disk.log.content(key).filter(|_| here) else {
                return false;
            };
            let sums = content.sums.clone();
            let reused = rules.may_reuse_on_disk(&content.versions, versions)
                && (self.table).adopt_on_disk(shared, stripe, versions.iter().copied().zip(sums));
            if reused {
                cx.out.mark(Mark::LoggedParityReused);
            }
            return reused;
        }
        let Some(stash) = shared.stashes.of(self.list(), self.position()) else {
            return false;
        };
        let Some(old) = stash.get(&shared.arena, stripe) else {
            return false;
        };
        let untouched = self.table.state(stripe) == State::Untouched;
        // The same memory limits as for an owner that stands in (`reconstruct`).
        let stands_in = configuration.is_stand_in(self.position());
        let full = !self.table.may_refill(shared, stripe, 0, stands_in);
        if !untouched || full || !rules.may_reuse(old.versions, versions) {
            return false;
        }
        let values: Vec<(Version, u32)> = versions.iter().copied().zip(old.sums.iter().copied()).collect();
        let reused = self.table.adopt(&mut shared.arena, stash, stripe, values.into_iter());
        if reused {
            cx.out.mark(Mark::ParityReused);
        }
        reused
    }

    fn begin_fetches<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        // While a data position is vacant, no fetch can end, and each would only buffer deltas.
        let vacant = configuration
            .data_positions()
            .any(|x| configuration.tenure(x).is_none());
        let disk_behind = self.table.is_on_disk() && cx.shared.disk.as_ref().is_some_and(|disk| disk.log.is_full());
        if vacant || disk_behind || cx.mono() < self.refill.blocked_until {
            return;
        }
        let stands_in = configuration.is_stand_in(self.position());
        while self.refill.queue.as_ref().is_some_and(|queue| !queue.is_empty()) {
            // The same memory limits as for an owner that stands in (`reconstruct`).
            let under_way = cx.shared.pace.under_way();
            if !self.seek_refillable(cx.shared, under_way, stands_in) {
                if cx.mono() < self.refill.try_at {
                    break;
                }
                self.refill.try_at = cx.mono() + TRY_EVERY;
            }
            if !cx.may_rebuild(self.refill.fetches.len()) {
                self.refill.next_at = self.refill.next_at.min(cx.shared.pace.ask_at(cx.now.mono));
                break;
            }
            let Some(stripe) = self.refill.queue.as_mut().and_then(VecDeque::pop_front) else {
                break;
            };
            cx.rebuild_begins();
            self.table.mark(cx.shared, stripe, State::Fetching);
            let mut fetch = Fetch::new(cx, configuration);
            fetch.substitute = self.borrow(cx, configuration, stripe, fetch.id);
            self.ask_chunks(cx, configuration, stripe, &fetch);
            self.refill.fetches.insert(stripe, fetch);
        }
    }

    /// Moves a stripe for which there is memory to the front of the queue. False if none was found.
    fn seek_refillable(&mut self, shared: &Shared, under_way: usize, stands_in: bool) -> bool {
        let Some(queue) = &mut self.refill.queue else {
            return false;
        };
        for _ in 0..queue.len().min(SOUGHT_MAX) {
            let front = queue.front().copied();
            if front.is_some_and(|stripe| self.table.may_refill(shared, stripe, under_way, stands_in)) {
                return true;
            }
            queue.rotate_left(1);
        }
        false
    }

    fn ask_chunks<O: Out>(
        &self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        stripe: Stripe,
        fetch: &Fetch,
    ) {
        for x in configuration.data_positions() {
            if let Some(substitute) = fetch.substitute.as_ref().filter(|substitute| substitute.spares(x)) {
                substitute.ask(cx, configuration, fetch.id, stripe);
            } else if fetch.replies[x.index()].is_none()
                && let Some(owner) = configuration.tenure(x)
            {
                let stream = StreamId {
                    list: configuration.list,
                    x,
                };
                let message = Message::ReadChunk {
                    id: fetch.id,
                    stripe,
                    want: None,
                };
                cx.send(&owner, Channel::Bulk, stream, configuration.epoch, &message);
            }
        }
    }

    /// Repeats unanswered questions. If all stripes are valid, asks to become Live.
    fn ask_again<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration, parts_whole: bool) {
        let list = configuration.list;
        if self.refill.queue.is_none() {
            for x in configuration.data_positions() {
                let log = &self.logs()[x.index()];
                if let (None, Some(owner)) = (&log.alloc, configuration.tenure(x)) {
                    let message = Message::ReadDirectory {
                        term: owner.term(),
                        at_least: 0,
                    };
                    cx.send(
                        &owner,
                        Channel::Bulk,
                        StreamId { list, x },
                        configuration.epoch,
                        &message,
                    );
                }
            }
            return;
        }
        let now = cx.mono();
        let mut late: Vec<Stripe> = self
            .refill
            .fetches
            .iter()
            .filter(|(_, f)| f.retry_at <= now)
            .map(|(s, _)| *s)
            .collect();
        late.sort();
        for stripe in late {
            let retry_at = cx.after(cx.shared.parameters.resend);
            if let Some(mut fetch) = self.refill.fetches.remove(&stripe) {
                if fetch.substitute.is_some() {
                    fetch = Fetch::new(cx, configuration);
                }
                fetch.retry_at = retry_at;
                fetch.asked_again = true;
                self.ask_chunks(cx, configuration, stripe, &fetch);
                self.refill.fetches.insert(stripe, fetch);
            }
        }
        let all_known = configuration.data_positions().all(|x| {
            let log = &self.logs()[x.index()];
            log.known && configuration.tenure(x).map(|t| t.term()) == Some(log.term)
        });
        let idle = self.refill.fetches.is_empty() && self.refill.queue.as_ref().is_some_and(|q| q.is_empty());
        if idle && all_known && parts_whole {
            cx.propose(Proposal::AskLive {
                list,
                position: self.position(),
                tenure: self.tenure(),
            });
        }
    }

    /// Gives up fetches that have buffered too many deltas. Their stripes are fetched again later.
    fn drop_overfull<O: Out>(&mut self, cx: &mut Context<'_, O>) {
        let chunk_bytes = cx.shared.arena.chunk_bytes();
        let mut stripes: Vec<Stripe> = self
            .refill
            .fetches
            .iter()
            .filter(|(_, f)| f.is_overfull(chunk_bytes))
            .map(|(s, _)| *s)
            .collect();
        stripes.sort();
        for stripe in stripes {
            cx.out.mark(Mark::FetchGivenUp);
            self.refill.fetches.remove(&stripe);
            self.table.mark(cx.shared, stripe, State::Invalid);
            self.refill.queue.get_or_insert_default().push_back(stripe);
        }
    }

    /// P6.3: encodes the stripes that have all answers, and folds in their buffered deltas.
    fn finish_fetches<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        let mut ready: Vec<Stripe> = self
            .refill
            .fetches
            .iter()
            .filter(|(_, f)| self.is_complete(cx, f))
            .map(|(s, _)| *s)
            .collect();
        ready.sort();
        for stripe in ready {
            let Some(mut fetch) = self.refill.fetches.remove(&stripe) else {
                continue;
            };
            if !self.settle_substitute(cx, &mut fetch) {
                self.ask_owners(cx, configuration, stripe);
                continue;
            }
            let encoded = self.encode(cx, stripe, &mut fetch);
            let stands_in = configuration.is_stand_in(self.position());
            let install = |(values, bytes): (Vec<(Version, u32)>, Vec<u8>)| {
                let zeros = values.iter().all(|(version, _)| *version == Version::ZERO);
                let fits = zeros || self.table.may_refill(cx.shared, stripe, 0, stands_in);
                fits && self.table.install(cx.shared, stripe, &values, &bytes)
            };
            if encoded.is_some_and(install) {
                self.refill.done += 1;
            } else if let Some(queue) = &mut self.refill.queue {
                self.table.mark(cx.shared, stripe, State::Invalid);
                queue.push_back(stripe);
                self.refill.blocked_until = cx.mono() + cx.shared.parameters.resend;
                return;
            }
        }
    }

    fn is_complete<O: Out>(&self, cx: &Context<'_, O>, fetch: &Fetch) -> bool {
        let rules = cx.rules();
        fetch.replies.iter().zip(self.logs()).all(|(reply, log)| {
            let log = (log.known.then_some(log.term), log.recv);
            reply.as_ref().is_some_and(|r| rules.may_encode(log, (r.term, r.as_of)))
        })
    }

    /// Takes the parity chunk out of the fetch, with the version and checksum of each data chunk that it stands for.
    fn encode<O: Out>(&self, cx: &mut Context<'_, O>, stripe: Stripe, fetch: &mut Fetch) -> Option<Encoded> {
        let (chunk_bytes, parity) = (cx.shared.arena.chunk_bytes(), self.parity());
        let value = |chunk: &Option<Chunk>| chunk.as_ref().map(|chunk| (chunk.version, chunk.sum));
        let mut values: Vec<(Version, u32)> = fetch.replies.iter().map(value).collect::<Option<_>>()?;
        let mut bytes = core::mem::take(&mut fetch.parity);
        bytes.resize(chunk_bytes, 0);
        for buffered in &fetch.buffer {
            let x = buffered.x.index();
            let as_of = fetch.replies[x].as_ref().map_or(0, |c| c.as_of);
            if buffered.version.seq() <= as_of {
                cx.out.mark(Mark::BufferSkipped);
                continue;
            }
            cx.out.mark(Mark::BufferFolded);
            if let Some(base) = buffered.base
                && base != values[x].0
            {
                let found = values[x].0;
                cx.halt(
                    self.list(),
                    self.position(),
                    format!(
                        "I4: buffered delta {} of {stripe} is based on {base}, not {found}",
                        buffered.version
                    ),
                );
                return None;
            }
            let target = &mut bytes[buffered.offset..buffered.offset + buffered.xor.len()];
            mul_add(cx.shared.code.coefficient(x as u8, parity), &buffered.xor, target);
            values[x].0 = if buffered.free { Version::ZERO } else { buffered.version };
            values[x].1 ^= sum::of_extent(chunk_bytes, buffered.offset, &buffered.xor);
        }
        Some((values, bytes))
    }
}
