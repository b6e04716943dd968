//! What the coordinator hears of a node in its present incarnation: not durable, since it is only about now.

use crate::fence::Opinion;
use crate::message::{OPINIONS_MAX, Opinions};
use crate::status::{ACKS_MAX, HALTED_MAX, HaltedRole, KINDS_MAX, SHARDS_MAX, ShardProgress};
use paritas_base::{Incarnation, ListId, NodeId, Span, Time};
use paritas_protocol::LinkId;
use std::collections::{BTreeMap, BTreeSet};

/// How long a rebuild's rate is measured at least.
const RATE_SPAN: Span = Span::from_ms(500);

/// A registered incarnation.
#[derive(Clone, Debug)]
pub(crate) struct Presence {
    pub(crate) incarnation: Incarnation,
    /// The link that it registered by; heartbeats by others don't count.
    pub(crate) link: LinkId,
    heard: Time,
    /// Which peers it hears, as it has said in this registration.
    opinions: Option<Opinions>,
    /// Stripe lists whose newest configuration it had not when it registered, and has not been sent since.
    pub(crate) lacks: BTreeSet<ListId>,
    shards: BTreeMap<u16, Shard>,
    rate: Rate,
}

#[derive(Clone, Debug)]
struct Shard {
    progress: ShardProgress,
    /// When its turns were last seen to grow.
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
            opinions: None,
            lacks: BTreeSet::new(),
            shards: BTreeMap::new(),
            rate,
        }
    }

    /// The last time at which all of the process was well: a shard that turns no more is as good as silent.
    pub(crate) fn well_at(&self) -> Time {
        self.shards.values().map(|s| s.moved).fold(self.heard, Time::min)
    }

    /// Whether the node hears other peers than before.
    pub(crate) fn vote(&mut self, mut opinions: Opinions) -> bool {
        opinions.unheard.truncate(OPINIONS_MAX);
        opinions.unsure.truncate(OPINIONS_MAX);
        let before = self.opinions.replace(opinions);
        before != self.opinions
    }

    pub(crate) fn hear(&mut self, now: Time, shards: Vec<ShardProgress>) {
        self.heard = now;
        for mut progress in shards.into_iter().take(SHARDS_MAX) {
            progress.by_kind.truncate(KINDS_MAX);
            progress.halted.truncate(HALTED_MAX);
            progress.ack_us.truncate(ACKS_MAX);
            let turns = progress.turns;
            let room = self.shards.len() < SHARDS_MAX;
            match self.shards.get_mut(&progress.shard) {
                Some(shard) => {
                    if shard.progress.turns != turns {
                        shard.moved = now;
                    }
                    shard.progress = progress;
                }
                None if room => {
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
            // Less than before: another rebuild has begun.
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

    /// The latest heartbeat.
    pub(crate) fn heard_at(&self) -> Time {
        self.heard
    }

    /// What this node says of another's incarnation (P10.9).
    pub(crate) fn opinion(&self, node: NodeId, incarnation: Incarnation) -> Opinion {
        match &self.opinions {
            Some(told) if told.unheard.contains(&(node, incarnation)) => Opinion::Unheard,
            Some(told) if !told.unsure.contains(&(node, incarnation)) => Opinion::Hears,
            _ => Opinion::Unsure,
        }
    }

    /// Roles of this incarnation that have halted.
    pub(crate) fn halted(&self) -> impl Iterator<Item = &HaltedRole> {
        self.progress().flat_map(|p| &p.halted)
    }

    /// How late acks of each peer come to this node, in microseconds.
    pub(crate) fn acks(&self) -> impl Iterator<Item = (NodeId, u64)> {
        self.progress().flat_map(|p| p.ack_us.iter().copied())
    }

    pub(crate) fn rebuild_rate(&self) -> u64 {
        self.rate.bytes_per_second
    }
}
