//! What the coordinator knows of a node's present incarnation from its heartbeats. Not durable.

use crate::fence::Opinion;
use crate::message::{OPINIONS_MAX, Opinions};
use crate::status::{ACKS_MAX, HALTED_MAX, HaltedRole, KINDS_MAX, SHARDS_MAX, ShardProgress};
use paritas_base::{Incarnation, ListId, NodeId, Span, Time};
use paritas_protocol::LinkId;
use std::collections::{BTreeMap, BTreeSet};

/// Shortest interval over which the rate of a rebuild is measured.
const RATE_SPAN: Span = Span::from_ms(500);

/// A registered incarnation.
#[derive(Clone, Debug)]
pub(crate) struct Presence {
    pub(crate) incarnation: Incarnation,
    /// The link on which it registered. Heartbeats on other links are refused.
    pub(crate) link: LinkId,
    /// When the latest heartbeat arrived.
    heard: Time,
    /// When the newest `Ping` was sent to it, and the newest that it has answered: it ran after that.
    pinged: Time,
    proven: Time,
    /// What `proven` was when its latest heartbeat arrived: that heartbeat was sent after this time.
    reported_after: Time,
    /// It was silent at this time, when the coordinator then stood still (P10.7).
    silent_at: Option<Time>,
    /// Its newest report of which peers it hears. `None`: no report since it registered.
    opinions: Option<Opinions>,
    /// Stripe lists whose newest configuration it did not have when it registered, and was not sent since.
    pub(crate) lacks: BTreeSet<ListId>,
    shards: BTreeMap<u16, Shard>,
    rate: Rate,
}

#[derive(Clone, Debug)]
struct Shard {
    progress: ShardProgress,
    /// When the shard's count of turns last changed.
    moved: Time,
}

#[derive(Clone, Copy, Debug)]
struct Rate {
    since: Time,
    done_bytes: u64,
    bytes_per_second: u64,
}

impl Presence {
    pub(crate) fn new(now: Time, incarnation: Incarnation, link: LinkId) -> Self {
        let rate = Rate {
            since: now,
            done_bytes: 0,
            bytes_per_second: 0,
        };
        Self {
            incarnation,
            link,
            heard: now,
            pinged: Time(0),
            proven: Time(0),
            reported_after: Time(0),
            silent_at: None,
            opinions: None,
            lacks: BTreeSet::new(),
            shards: BTreeMap::new(),
            rate,
        }
    }

    /// The last time at which the process and all its shards made progress. A stuck shard counts as silence.
    pub(crate) fn well_at(&self) -> Time {
        self.shards.values().map(|s| s.moved).fold(self.heard, Time::min)
    }

    /// It has answered a `Ping` of this time. True if that proves more than before.
    pub(crate) fn prove(&mut self, at: Time) -> bool {
        let before = self.proven;
        self.proven = self.proven.max(at.min(self.pinged));
        self.proven > before
    }

    /// A time after which its process certainly ran. A heartbeat alone does not tell one: the network may have held it
    /// up. One that shows that its shards do not move says the opposite. `any_frame`: as if each heartbeat told one
    /// ([`Mutant::LateFrameProves`](crate::mutant::Mutant::LateFrameProves)).
    pub(crate) fn proven_at(&self, any_frame: bool) -> Time {
        match any_frame {
            true => self.well_at(),
            false => self.well_at().min(self.proven),
        }
    }

    /// A time after which it certainly sent its latest report. The report is of a look that its shard took up to a
    /// quarter of a suspicion time before; if the shard does not move, longer before. `any_frame`: as above.
    pub(crate) fn reported_after(&self, any_frame: bool) -> Time {
        match any_frame {
            true => self.heard,
            false => self.well_at().min(self.reported_after),
        }
    }

    /// Whether it has to be asked for a proof that it ran after `since`.
    pub(crate) fn needs_ping(&self, since: Time) -> bool {
        self.pinged < since
    }

    pub(crate) fn note_ping(&mut self, now: Time) {
        self.pinged = now;
    }

    /// The process is silent at `now`, and the coordinator stands still from then on.
    pub(crate) fn note_silent(&mut self, now: Time) {
        self.silent_at = Some(now);
    }

    /// Whether it was silent before the coordinator stood still, and is silent since.
    pub(crate) fn stays_silent(&self) -> bool {
        self.silent_at.is_some_and(|at| self.well_at() <= at)
    }

    /// Records which peers the node hears. True if that has changed.
    pub(crate) fn vote(&mut self, mut opinions: Opinions) -> bool {
        opinions.unheard.truncate(OPINIONS_MAX);
        opinions.unsure.truncate(OPINIONS_MAX);
        let before = self.opinions.replace(opinions);
        before != self.opinions
    }

    pub(crate) fn hear(&mut self, now: Time, shards: Vec<ShardProgress>) {
        self.heard = now;
        self.reported_after = self.proven;
        for mut progress in shards.into_iter().take(SHARDS_MAX) {
            progress.by_kind.truncate(KINDS_MAX);
            progress.halted.truncate(HALTED_MAX);
            progress.ack_us.truncate(ACKS_MAX);
            let turns = progress.turns;
            let has_room = self.shards.len() < SHARDS_MAX;
            match self.shards.get_mut(&progress.shard) {
                Some(shard) => {
                    if shard.progress.turns != turns {
                        shard.moved = now;
                    }
                    shard.progress = progress;
                }
                None if has_room => {
                    self.shards.insert(progress.shard, Shard { progress, moved: now });
                }
                None => {}
            }
        }
        let span = now - self.rate.since;
        if span >= RATE_SPAN {
            let done_bytes: u64 = self
                .progress()
                .map(|p| p.rebuild_done_bytes)
                .fold(0, u64::saturating_add);
            // Fewer bytes than before: a new rebuild has begun.
            let grown = u128::from(done_bytes.saturating_sub(self.rate.done_bytes));
            let bytes_per_second = (grown * 1_000_000_000 / u128::from(span.0)) as u64;
            self.rate = Rate {
                since: now,
                done_bytes,
                bytes_per_second,
            };
        }
    }

    pub(crate) fn progress(&self) -> impl Iterator<Item = &ShardProgress> {
        self.shards.values().map(|s| &s.progress)
    }

    /// When the latest heartbeat arrived.
    pub(crate) fn heard_at(&self) -> Time {
        self.heard
    }

    /// This node's report on another node's incarnation (P10.9).
    pub(crate) fn opinion(&self, node: NodeId, incarnation: Incarnation) -> Opinion {
        match &self.opinions {
            Some(report) if report.unheard.contains(&(node, incarnation)) => Opinion::Unheard,
            Some(report) if !report.unsure.contains(&(node, incarnation)) => Opinion::Hears,
            _ => Opinion::Unsure,
        }
    }

    /// Roles of this incarnation that have halted.
    pub(crate) fn halted(&self) -> impl Iterator<Item = &HaltedRole> {
        self.progress().flat_map(|p| &p.halted)
    }

    /// The delay of each peer's acks at this node, in microseconds.
    pub(crate) fn acks(&self) -> impl Iterator<Item = (NodeId, u64)> {
        self.progress().flat_map(|p| p.ack_us.iter().copied())
    }

    /// Bytes per second rebuilt in the last interval.
    pub(crate) fn rebuild_rate(&self) -> u64 {
        self.rate.bytes_per_second
    }
}
