//! How an owner reconstructs an absent chunk (P5.7, P5.8): it reads a parity chunk, then the other data chunks at the
//! versions that this parity covers, and decodes. It takes no locks: a writer can only delay it.

mod at_once;
mod decode;
mod donor;
mod space;
mod task;

use decode::decode_checked;
use donor::Donor;
use space::SPACE_RETRIES;
pub(crate) use space::SpaceWanted;
use task::{Answer, ParityCopy, Task};

use crate::context::{Context, Shared};
use crate::interface::{Channel, Out};
use crate::mark::Mark;
use crate::source_chunk::SourceChunk;
use crate::stream_owner::{Phase, StreamOwner};
use paritas_base::configuration::{Configuration, PositionState, Tenure};
use paritas_base::{Map, Position, Span, StreamId, Stripe, Time, Version, map};
use paritas_wire::peer::{Message, Parity};
use std::collections::VecDeque;

/// The reconstruction of the absent chunks of one stream.
#[derive(Debug)]
pub(crate) struct Reconstructor {
    tasks: Map<Stripe, Task>,
    /// Stripes that a command or a peer waits for, first come first served.
    urgent: Vec<Stripe>,
    /// Where the background sweep goes on: index pages first, then data.
    sweep: Option<Stripe>,
    /// Reconstructed chunks may be dropped again if memory is short: until the position asks to be Live, no other node
    /// relies on them (P5.10).
    may_drop: bool,
    /// May also drop chunks for other positions: k Live positions can restore them.
    may_give: bool,
    /// Chunks that were reconstructed and may still be resident, the oldest first.
    resident: VecDeque<Stripe>,
    /// The node had another position of the list before this one.
    stands_in: bool,
    /// The node holds two positions of the list and may lack memory for this one (`Configuration::may_lack_memory`).
    is_doubled: bool,
    /// The time since which `drops` counts dropped chunks.
    drops_since: Time,
    drops: u32,
    next_at: Time,
    /// The position is not Live yet.
    pub(crate) filling: bool,
    /// More chunks are absent, and the pace of the node allowed no further task (P6.8).
    held_back: bool,
    /// The live node that had the position before: it may still have chunks at the wanted versions (P5.12).
    donor: Option<Donor>,
    /// Chunks reconstructed since this tenure began to serve.
    pub(crate) done: u32,
}

/// The most chunks taken from the stash in a turn: each is summed and copied while clients wait.
const STASHED_A_TURN_MAX: u32 = 32;

impl Default for Reconstructor {
    fn default() -> Self {
        Self {
            tasks: map(),
            urgent: Vec::new(),
            sweep: None,
            may_drop: false,
            may_give: false,
            resident: VecDeque::new(),
            stands_in: false,
            is_doubled: false,
            drops_since: Time(0),
            drops: 0,
            next_at: Time(u64::MAX),
            filling: false,
            held_back: false,
            donor: None,
            done: 0,
        }
    }
}

impl Reconstructor {
    /// A command or a peer waits for this stripe.
    pub(crate) fn want(&mut self, now: Time, stripe: Stripe) {
        if !self.tasks.contains_key(&stripe) && !self.urgent.contains(&stripe) {
            self.urgent.push(stripe);
        }
        self.next_at = now;
    }

    /// A configuration or the directory is new: requests of the old one are sent again.
    pub(crate) fn restart(&mut self, now: Time) {
        let mut stripes: Vec<Stripe> = self.tasks.drain().map(|(s, _)| s).collect();
        stripes.sort();
        self.urgent.splice(0..0, stripes);
        self.sweep = None;
        self.next_at = now;
    }

    /// The holder of this earlier tenure has given it up and still runs, so it may have chunks.
    pub(crate) fn offer(&mut self, tenure: Tenure) {
        if self.donor.as_ref().is_none_or(|d| d.tenure.since < tenure.since) {
            self.donor = Some(Donor { tenure, misses: 0 });
        }
    }

    pub(crate) fn next_at(&self) -> Time {
        self.next_at
    }

    fn insert(&mut self, stripe: Stripe, task: Task) {
        self.next_at = self.next_at.min(task.retry_at);
        self.tasks.insert(stripe, task);
    }

    /// Whether no chunk is to be reconstructed.
    pub(crate) fn is_at_rest(&self) -> bool {
        !self.filling && !self.held_back && self.tasks.is_empty()
    }

    /// Chunks that are being reconstructed at the first try.
    pub(crate) fn under_way(&self) -> usize {
        self.tasks.values().filter(|t| t.mismatches == 0).count()
    }
}

impl StreamOwner {
    /// Begins tasks, and repeats those whose time is up.
    pub(crate) fn reconstruct<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        let now = cx.mono();
        self.note_configuration(cx, configuration);
        if now < self.rebuild.reconstructor.next_at
            && !(self.rebuild.reconstructor.held_back && cx.may_rebuild(self.rebuild.reconstructor.tasks.len()))
        {
            return;
        }
        let mut late: Vec<Stripe> = self
            .rebuild
            .reconstructor
            .tasks
            .iter()
            .filter(|(_, t)| t.retry_at <= now)
            .map(|(s, _)| *s)
            .collect();
        late.sort();
        for stripe in late {
            let before = self.rebuild.reconstructor.tasks.remove(&stripe);
            if before.as_ref().is_some_and(|t| t.of_donor) {
                self.rebuild.reconstructor.donor = None;
            }
            let (mismatches, ask_all) = before.map_or((0, false), |t| (t.mismatches + 1, t.ask_all));
            self.begin(
                cx,
                configuration,
                stripe,
                false,
                (mismatches, ask_all || mismatches > 2),
            );
        }
        let mut urgent = core::mem::take(&mut self.rebuild.reconstructor.urgent).into_iter();
        while !self.rebuild.reconstructor.drops_too_many(now)
            && let Some(stripe) = urgent.next()
        {
            let wanted = self.is_absent(stripe) && !self.rebuild.reconstructor.tasks.contains_key(&stripe);
            if wanted && !self.take_stashed(cx, stripe) {
                cx.rebuild_begins();
                self.begin(cx, configuration, stripe, false, (0, false));
            }
        }
        self.rebuild.reconstructor.urgent.extend(urgent);
        // A stand-in holds more than its memory was planned for (P10.5). In the background it uses only the chunks that
        // writers may use, until memory is free or another node takes the position. Urgent chunks are not limited so.
        let full = |owner: &Self, shared: &Shared| owner.is_full(shared, shared.pace.under_way());
        let mut stashed = 0;
        while self.rebuild.reconstructor.filling
            && cx.may_rebuild(self.rebuild.reconstructor.tasks.len())
            && !full(self, cx.shared)
        {
            let Some(stripe) = self.next_absent() else { break };
            if self.take_stashed(cx, stripe) {
                stashed += 1;
                if stashed == STASHED_A_TURN_MAX {
                    break;
                }
                continue;
            }
            cx.rebuild_begins();
            self.begin(cx, configuration, stripe, true, (0, false));
        }
        let absent = self.store.chunks().absent_count() as usize;
        self.rebuild.reconstructor.held_back =
            self.rebuild.reconstructor.filling && absent > self.rebuild.reconstructor.tasks.len();
        self.rebuild.reconstructor.next_at = self
            .rebuild
            .reconstructor
            .tasks
            .values()
            .map(|t| t.retry_at)
            .min()
            .unwrap_or(Time(u64::MAX));
        if self.rebuild.reconstructor.held_back && full(self, cx.shared) {
            self.rebuild.reconstructor.held_back = false;
            let retry_at = cx.after(cx.shared.parameters.resend);
            self.rebuild.reconstructor.next_at = self.rebuild.reconstructor.next_at.min(retry_at);
        } else if self.rebuild.reconstructor.held_back {
            self.rebuild.reconstructor.next_at = self.rebuild.reconstructor.next_at.min(cx.shared.pace.ask_at(now));
        }
        if stashed == STASHED_A_TURN_MAX {
            self.rebuild.reconstructor.next_at = now;
        }
        if !self.rebuild.reconstructor.urgent.is_empty() {
            let allowed_at = self.rebuild.reconstructor.may_drop_again_at();
            self.rebuild.reconstructor.next_at = self.rebuild.reconstructor.next_at.min(allowed_at);
        }
    }

    /// P5.7f: an absent chunk of this node's stash, if it has the version that is wanted.
    pub(crate) fn take_stashed<O: Out>(&mut self, cx: &mut Context<'_, O>, stripe: Stripe) -> bool {
        let (stream, want) = (self.stream(), self.store.chunks().version(stripe));
        let Some((sum, bytes)) = cx.stashed(stream, stripe, want) else {
            return false;
        };
        self.install(cx, stripe, want, sum, &bytes);
        let taken = !self.is_absent(stripe);
        if taken {
            cx.out.mark(Mark::StashUsed);
            let shared = &mut *cx.shared;
            if let Some(stash) = shared.stashes.of(stream.list, stream.x) {
                stash.forget(&mut shared.arena, stripe);
            }
        }
        taken
    }

    /// The next absent chunk that no task is for: index pages first, so that counts are soon known.
    fn next_absent(&mut self) -> Option<Stripe> {
        if self.store.chunks().absent_count() as usize <= self.rebuild.reconstructor.tasks.len() {
            return None;
        }
        let mut at = self
            .rebuild
            .reconstructor
            .sweep
            .unwrap_or_else(|| Stripe::index_page(0));
        loop {
            let end = self.store.chunks().end(at.is_index());
            if at.number() >= end {
                if !at.is_index() {
                    self.rebuild.reconstructor.sweep = None;
                    return None;
                }
                at = Stripe::data(0);
                continue;
            }
            let this = at;
            at = if at.is_index() {
                Stripe::index_page(at.number() + 1)
            } else {
                Stripe::data(at.number() + 1)
            };
            if self.is_absent(this) && !self.rebuild.reconstructor.tasks.contains_key(&this) {
                self.rebuild.reconstructor.sweep = Some(at);
                return Some(this);
            }
        }
    }

    fn begin<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        stripe: Stripe,
        background: bool,
        (mismatches, ask_all): (u32, bool),
    ) {
        if mismatches > 0 {
            cx.out.mark(Mark::MaterialiseRetried);
        }
        let first = mismatches == 0 && !ask_all;
        let asked = first
            && (self.ask_donor(cx, configuration, stripe) || self.ask_at_once(cx, configuration, stripe, background));
        if !asked {
            self.ask_parities(cx, configuration, stripe, mismatches, ask_all);
        }
    }

    /// P5.7a, b, one after the other.
    fn ask_parities<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        stripe: Stripe,
        mismatches: u32,
        ask_all: bool,
    ) {
        let x = self.stream().x;
        let id = cx.next_request_id();
        let missing = configuration
            .data_positions()
            .filter(|y| *y != x && configuration.at(*y).is_none_or(|a| a.state == PositionState::Filling))
            .count();
        let wanted = if ask_all { usize::MAX } else { 1 + missing };
        let mut asked = Vec::new();
        for member in self.members_by_use() {
            if asked.len() < wanted {
                let message = Message::ReadParity { id, stripe };
                let (stream, epoch) = (self.stream(), configuration.epoch);
                if cx.send(&member.tenure, Channel::Bulk, stream, epoch, &message) {
                    asked.push(member.position);
                }
            }
        }
        // The timeout doubles with each try, so that two round trips fit even if the only source left is far away.
        let p = &cx.shared.parameters;
        let timeout = Span((p.resend.0 << mismatches.min(8)).min(p.resend_max.0.max(p.resend.0)));
        let retry_at = cx.after(timeout);
        let task = Task {
            asked,
            chunks: configuration.data_positions().map(|_| None).collect(),
            mismatches,
            ask_all,
            ..Task::new(id, retry_at)
        };
        self.rebuild.reconstructor.insert(stripe, task);
    }

    /// P5.7a: a member's parity chunk.
    pub(crate) fn on_parity_value<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        from: Tenure,
        id: u64,
        stripe: Stripe,
        parity: Option<Parity<'_>>,
    ) {
        let (term, cut) = (self.term(), self.cut());
        let rules = cx.rules();
        let me = self.stream().x;
        let position = self.members().iter().find(|m| m.tenure == from).map(|m| m.position);
        let asked = |task: &&mut Task| task.id == id && !task.of_donor;
        let Some(task) = self.rebuild.reconstructor.tasks.get_mut(&stripe).filter(asked) else {
            return;
        };
        let chunk_bytes = cx.shared.arena.chunk_bytes();
        // If the chunk was set aside, the parity must include all deltas of this owner to it.
        let version = self.store.chunks().version(stripe);
        let usable = |p: &Parity<'_>| {
            rules.parity_fits((p.term, p.recv), (term, cut))
                && rules.repair_fits(version, term, p.versions.iter().nth(me.index()))
                && p.versions.count() == usize::from(configuration.data)
                && (p.bytes.is_empty() || p.bytes.len() == chunk_bytes)
        };
        let Some(position) = position else { return };
        let parity = parity.filter(usable);
        if task.at_once.is_some() {
            return self.on_parity_at_once(cx, configuration, (position, id), stripe, parity);
        }
        let Some(parity) = parity else {
            // The member's chunk is not valid, or not yet.
            task.refused += 1;
            self.wait_for_more(cx, configuration, stripe);
            return;
        };
        if task.parities.iter().any(|p| p.position == position) {
            return;
        }
        let versions = parity.versions.iter().collect();
        task.parities.push(ParityCopy {
            position,
            versions,
            sum: parity.sum,
            bytes: parity.bytes.to_vec(),
        });
        self.ask_sources(cx, configuration, stripe);
        self.try_decode(cx, configuration, stripe);
    }

    /// P5.7b: asks the other owners for their chunks at the first parity's versions.
    fn ask_sources<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration, stripe: Stripe) {
        let me = self.stream().x;
        let Some(task) = self.rebuild.reconstructor.tasks.get_mut(&stripe) else {
            return;
        };
        let [first] = task.parities.as_slice() else { return };
        for y in configuration.data_positions().filter(|y| *y != me) {
            let want = first.versions[y.index()];
            let stream = StreamId {
                list: configuration.list,
                x: y,
            };
            let answer = match configuration.tenure(y) {
                _ if want == Version::ZERO => Answer::Here(Vec::new()),
                None => Answer::None,
                Some(owner) => {
                    let message = Message::ReadChunk {
                        id: task.id,
                        stripe,
                        want: Some(want),
                    };
                    if cx.send(&owner, Channel::Bulk, stream, configuration.epoch, &message) {
                        Answer::Asked(want)
                    } else {
                        Answer::None
                    }
                }
            };
            task.chunks[y.index()] = Some(answer);
        }
    }

    /// Another owner's answer.
    pub(crate) fn on_source_chunk<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        y: Position,
        id: u64,
        stripe: Stripe,
        value: Option<SourceChunk<'_>>,
    ) {
        let chunk_bytes = cx.shared.arena.chunk_bytes();
        if self.rebuild.reconstructor.is_at_once(stripe, id) {
            return self.on_source_at_once(cx, configuration, (y, id), stripe, value);
        }
        let Some(task) = self.rebuild.reconstructor.tasks.get_mut(&stripe).filter(|t| t.id == id) else {
            return;
        };
        let Some(Some(answer)) = task.chunks.get_mut(y.index()) else {
            return;
        };
        let Answer::Asked(want) = *answer else { return };
        *answer = match value {
            Some(source)
                if source.version == want && (source.bytes.is_empty() || source.bytes.len() == chunk_bytes) =>
            {
                if cx.rules().may_use(source.has_its_sum()) {
                    Answer::Here(source.bytes.to_vec())
                } else {
                    // The bytes do not have their sum, so the chunk counts as missing.
                    cx.shared.bad_sums += 1;
                    Answer::None
                }
            }
            _ => Answer::None,
        };
        self.try_decode(cx, configuration, stripe);
    }

    /// P5.7c–e. Parities are used together only if they stand for the same versions throughout.
    fn try_decode<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration, stripe: Stripe) {
        let me = self.stream().x;
        let chunk_bytes = cx.shared.arena.chunk_bytes();
        let rules = cx.rules();
        let Some(task) = self.rebuild.reconstructor.tasks.get_mut(&stripe) else {
            return;
        };
        let Some(first) = task.parities.first() else { return };
        let version = first.versions[me.index()];
        if version == Version::ZERO {
            self.install(cx, stripe, version, 0, &[]);
            return;
        }
        let mut missing = 1;
        for y in configuration.data_positions().filter(|y| *y != me) {
            match &task.chunks[y.index()] {
                Some(Answer::Here(..)) => {}
                Some(Answer::None) => missing += 1,
                Some(Answer::Asked(_)) | None => return,
            }
        }
        let agreeing: Vec<&ParityCopy> = task
            .parities
            .iter()
            .filter(|p| rules.parities_fit(p.versions.iter().copied(), first.versions.iter().copied()))
            .collect();
        if agreeing.len() < missing {
            self.wait_for_more(cx, configuration, stripe);
            return;
        }
        let zeros = vec![0; chunk_bytes];
        let or_zeros = |bytes| {
            if <[u8]>::is_empty(bytes) {
                zeros.as_slice()
            } else {
                bytes
            }
        };
        let mut sources: Vec<(u8, &[u8])> = Vec::with_capacity(task.chunks.len() + agreeing.len());
        for (y, chunk) in task.chunks.iter().enumerate() {
            if let Some(Answer::Here(bytes)) = chunk {
                sources.push((y as u8, or_zeros(bytes.as_slice())));
            }
        }
        for parity in &agreeing {
            sources.push((parity.position.0, or_zeros(parity.bytes.as_slice())));
        }
        // Members report the chunk's sum as computed from deltas, not from the bytes that are decoded here.
        let reported = |sum: u32| rules.is_reported_sum(sum, agreeing.iter().map(|p| p.sum));
        if let Some((bytes, sum)) = decode_checked(&cx.shared.code, &sources, me, chunk_bytes, reported) {
            if missing > 1 {
                cx.out.mark(Mark::TwoUnknowns);
            }
            self.install(cx, stripe, version, sum, &bytes);
        } else if !core::mem::replace(&mut task.suspect, true) {
            // P5.9: with other sources the sum may be right.
            cx.shared.bad_sums += 1;
            self.ask_others(cx, configuration, stripe);
        }
    }

    /// The received answers are not enough. Waits for outstanding ones; without any, asks other members; without those,
    /// asks all again soon, after a random time, and after every few mismatches with a hold (P5.8).
    fn wait_for_more<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration, stripe: Stripe) {
        let Some(task) = self.rebuild.reconstructor.tasks.get_mut(&stripe) else {
            return;
        };
        let outstanding = task.parities.len() + task.refused < task.asked.len();
        if outstanding || self.ask_others(cx, configuration, stripe) {
            return;
        }
        let Some(task) = self.rebuild.reconstructor.tasks.get_mut(&stripe) else {
            return;
        };
        let every = cx.shared.parameters.mismatches_before_hold.max(1);
        let ask_hold = task.mismatches > 0 && task.mismatches.is_multiple_of(every);
        // The stripe is read again well before the hold ends.
        let hold = Span(cx.shared.parameters.hold_max.0 / 4);
        let wait = if ask_hold { hold } else { cx.shared.parameters.retry };
        let retry_at = cx.now.mono + Span(wait.0 + cx.shared.prng.below(wait.0 + 1));
        task.retry_at = task.retry_at.min(retry_at);
        self.rebuild.reconstructor.next_at = self.rebuild.reconstructor.next_at.min(retry_at);
        if ask_hold {
            self.ask_hold(cx, configuration, stripe);
        }
    }

    /// Asks members that were not asked yet for their parity. Returns whether there was one.
    fn ask_others<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration, stripe: Stripe) -> bool {
        let (stream, epoch) = (self.stream(), configuration.epoch);
        let Some(task) = self.rebuild.reconstructor.tasks.get_mut(&stripe) else {
            return false;
        };
        task.ask_all = true;
        let before = task.asked.len();
        for (position, member) in configuration.members() {
            let message = Message::ReadParity { id: task.id, stripe };
            if !task.asked.contains(&position) && cx.send(&member.tenure, Channel::Bulk, stream, epoch, &message) {
                task.asked.push(position);
            }
        }
        task.asked.len() > before
    }

    /// P5.8: asks the other owners to hold their writes to the stripe.
    fn ask_hold<O: Out>(&self, cx: &mut Context<'_, O>, configuration: &Configuration, stripe: Stripe) {
        for y in configuration.data_positions().filter(|y| *y != self.stream().x) {
            if let Some(owner) = configuration.tenure(y) {
                let stream = StreamId {
                    list: configuration.list,
                    x: y,
                };
                cx.send(
                    &owner,
                    Channel::Main,
                    stream,
                    configuration.epoch,
                    &Message::Hold { stripe },
                );
            }
        }
    }

    fn install<O: Out>(&mut self, cx: &mut Context<'_, O>, stripe: Stripe, version: Version, sum: u32, bytes: &[u8]) {
        debug_assert!(self.phase() == Phase::Serve);
        self.make_space_for_chunk(cx);
        if self.store.install(&mut cx.shared.arena, stripe, version, sum, bytes) {
            self.rebuild.reconstructor.done += 1;
            if self.rebuild.reconstructor.filling {
                self.rebuild.reconstructor.resident.push_back(stripe);
            }
            self.note_space(cx.shared);
            self.repaired(cx, stripe);
        } else if self.is_absent(stripe) {
            // Memory is short. The task is tried again soon, before others take the chunks that are dropped for it.
            self.want_space(cx);
            let retry_at = cx.after(Span(SPACE_RETRIES * cx.shared.parameters.retry.0));
            if let Some(task) = self.rebuild.reconstructor.tasks.get_mut(&stripe) {
                task.retry_at = task.retry_at.min(retry_at);
            }
            self.rebuild.reconstructor.next_at = self.rebuild.reconstructor.next_at.min(retry_at);
            return;
        }
        self.rebuild.reconstructor.tasks.remove(&stripe);
        self.wake.progress = true;
        self.rebuild.reconstructor.next_at = cx.now.mono;
    }
}
