//! Nodes that answer but are slow (P10.2a): left out for a while, then tried again. Off unless asked for.
//!
//! Every node tells how late its peers' acks come. A node is slow to another if its acks take longer than the
//! setting and four times as long as those of the other's other peers; it is slow if most of those that say
//! anything of it have said so for five suspicion times without a break. One at a time is left out, as if shunned:
//! for a minute, and twice as long each time that it is slow again within as long, so that one which never recovers
//! is moved ever more rarely.

use super::Coordinator;
use crate::record::StoredNode;
use crate::store::Store;
use paritas_base::configuration::Duty;
use paritas_base::{NodeId, Span, Time};
use std::collections::BTreeMap;

/// Suspicion times for which a node must be slow.
const SUSPICIONS: u64 = 5;
/// Slower than others by so much.
const RATIO: u64 = 4;
/// How long it is left out the first time, and at most.
const LEFT_OUT_MIN: Span = Span::from_secs(60);
const LEFT_OUT_MAX: Span = Span::from_secs(3600);

/// What is known of slow nodes. Not durable, but that one is left out is in its record.
#[derive(Clone, Debug, Default)]
pub(super) struct SlowNodes {
    /// Acks that take longer may be slow; `None`: nobody is left out.
    pub(super) threshold: Option<Span>,
    /// Since when they have been slow.
    since: BTreeMap<NodeId, Time>,
    /// Those that have been left out: until when, and for how long.
    left_out: BTreeMap<NodeId, (Time, Span)>,
}

impl<S: Store> Coordinator<S> {
    /// Leaves out nodes whose acks come later than that, and much later than others' (P10.2a); by default none.
    pub fn set_slow_removal(&mut self, threshold: Option<Span>) {
        self.slow.threshold = threshold;
    }

    /// Looks at what has been heard. Called before anything is decided.
    pub(super) fn notice_slow(&mut self, now: Time) {
        let Some(threshold) = self.slow.threshold else {
            self.slow.since.clear();
            return;
        };
        let slow = self.slow_now(now, threshold);
        self.slow.since.retain(|node, _| slow.contains(node));
        for node in slow {
            self.slow.since.entry(node).or_insert(now);
        }
    }

    /// Nodes that are slow to most of those that say anything of them, two at least.
    fn slow_now(&self, now: Time, threshold: Span) -> Vec<NodeId> {
        let mut votes: BTreeMap<NodeId, (usize, usize)> = BTreeMap::new();
        for (id, presence) in &self.presences {
            if !self.records.nodes.get(id).is_some_and(|n| self.is_available(now, n)) {
                continue;
            }
            let acks: Vec<(NodeId, u64)> = presence.acks().collect();
            for (node, us) in &acks {
                let mut others: Vec<u64> = acks.iter().filter(|(n, _)| n != node).map(|(_, us)| *us).collect();
                others.sort_unstable();
                let Some(usual) = others.get(others.len() / 2) else {
                    continue;
                };
                let (of, all) = votes.entry(*node).or_default();
                *all += 1;
                *of += usize::from(*us >= threshold.as_us() && *us >= usual.saturating_mul(RATIO));
            }
        }
        let most = votes.into_iter().filter(|(_, (of, all))| *of >= 2 && of * 2 > *all);
        most.map(|(node, _)| node).collect()
    }

    /// The duties of nodes that have been slow for long enough, or left out for long enough.
    pub(super) fn judge_slow(&mut self, now: Time, nodes: &mut BTreeMap<NodeId, StoredNode>) {
        let anybody = nodes.values().any(|n| n.duty.leaves());
        let timeout = Span(self.suspicion().0 * SUSPICIONS);
        let ripe = self
            .slow
            .since
            .iter()
            .find(|(_, since)| now - **since >= timeout)
            .map(|(node, _)| *node);
        if let Some(node) = ripe.filter(|node| !anybody && self.refuses(*node, Duty::Slow).is_none())
            && let Some(stored) = nodes.get_mut(&node)
        {
            let before = self.slow.left_out.get(&node);
            let again = before.filter(|(until, span)| now - *until <= *span);
            let span = again.map_or(LEFT_OUT_MIN, |(_, span)| Span(span.0 * 2).min(LEFT_OUT_MAX));
            self.slow.left_out.insert(node, (now + span, span));
            stored.duty = Duty::Slow;
        }
        for (id, stored) in nodes.iter_mut().filter(|(_, n)| n.duty == Duty::Slow) {
            // A coordinator that has just started does not know since when.
            let (until, _) = *self
                .slow
                .left_out
                .entry(*id)
                .or_insert((now + LEFT_OUT_MIN, LEFT_OUT_MIN));
            if now >= until || self.slow.threshold.is_none() {
                stored.duty = Duty::Returning;
            }
        }
    }
}
