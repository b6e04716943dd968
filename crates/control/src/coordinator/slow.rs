//! Slow nodes (P10.2a): a node that answers but is slow loses its positions for a time, and is then tried again. Off by
//! default.
//!
//! Every node reports the delay of its peers' acks. A reporter finds a peer slow if that delay is at least the setting,
//! and at least four times the median of its other peers. A node is slow while most of its reporters, and at least two,
//! find it slow. It is excluded, as if it were shunned, after five suspicion times without interruption. At most one
//! node at a time is excluded. The first exclusion lasts one minute. If the next exclusion begins soon after the last
//! one has ended, within the length of the last one, it is twice as long, up to one hour. So the positions of a
//! permanently slow node move less and less often.

use super::Coordinator;
use crate::record::StoredNode;
use crate::store::Store;
use paritas_base::configuration::Duty;
use paritas_base::{NodeId, Span, Time};
use std::collections::BTreeMap;

/// A node must be slow for this number of suspicion times before it is excluded.
const SUSPICIONS: u64 = 5;
/// A slow node's ack delay is at least this multiple of the median of the other peers.
const RATIO: u64 = 4;
/// Length of the first exclusion, and the limit.
const LEFT_OUT_MIN: Span = Span::from_secs(60);
const LEFT_OUT_MAX: Span = Span::from_secs(3600);

/// State of the search for slow nodes. Not durable; an exclusion itself is in the node's record.
#[derive(Clone, Debug, Default)]
pub(super) struct SlowNodes {
    /// Smallest ack delay of a slow node. `None`: no node is excluded.
    threshold: Option<Span>,
    /// Nodes that are slow now, and since when.
    since: BTreeMap<NodeId, Time>,
    /// For each excluded node the end and the length of its last exclusion.
    left_out: BTreeMap<NodeId, (Time, Span)>,
}

impl SlowNodes {
    /// Updates which nodes are slow. Called at the begin of each decision.
    pub(super) fn note(&mut self, now: Time, slow: Vec<NodeId>) {
        self.since.retain(|node, _| slow.contains(node));
        for node in slow {
            self.since.entry(node).or_insert(now);
        }
    }

    /// A node that has been slow for long enough.
    fn ripe(&self, now: Time, suspicion: Span) -> Option<NodeId> {
        let timeout = Span(suspicion.0 * SUSPICIONS);
        let mut ripe = self.since.iter().filter(|(_, since)| now - **since >= timeout);
        ripe.next().map(|(node, _)| *node)
    }

    fn leave_out(&mut self, now: Time, node: NodeId) {
        let before = self.left_out.get(&node);
        let again = before.filter(|(until, span)| now - *until <= *span);
        let span = again.map_or(LEFT_OUT_MIN, |(_, span)| Span(span.0 * 2).min(LEFT_OUT_MAX));
        self.left_out.insert(node, (now + span, span));
    }

    /// Whether the exclusion of the node has lasted long enough.
    fn may_return(&mut self, now: Time, node: NodeId) -> bool {
        // A new coordinator does not know when the exclusion began.
        let begins = (now + LEFT_OUT_MIN, LEFT_OUT_MIN);
        let (until, _) = *self.left_out.entry(node).or_insert(begins);
        now >= until || self.threshold.is_none()
    }
}

impl<S: Store> Coordinator<S> {
    /// Excludes nodes whose ack delay is at least this threshold and much larger than that of others (P10.2a). `None`,
    /// the default, excludes no node.
    pub fn set_slow_removal(&mut self, threshold: Option<Span>) {
        self.slow.threshold = threshold;
    }

    /// Nodes that most of their reporters, and at least two, find slow.
    pub(super) fn slow_now(&self, now: Time) -> Vec<NodeId> {
        let Some(threshold) = self.slow.threshold else {
            return Vec::new();
        };
        let mut votes: BTreeMap<NodeId, (usize, usize)> = BTreeMap::new();
        for (id, presence) in self.registry.presences() {
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

    /// Excludes a node that has been slow for long enough, and ends exclusions that have lasted long enough.
    pub(super) fn judge_slow(&mut self, now: Time, nodes: &mut BTreeMap<NodeId, StoredNode>) {
        let any_leaves = nodes.values().any(|n| n.duty.leaves());
        let ripe = self.slow.ripe(now, self.records.plan.suspicion());
        if let Some(node) = ripe.filter(|node| !any_leaves && self.refuses(*node, Duty::Slow).is_none())
            && let Some(stored) = nodes.get_mut(&node)
        {
            self.slow.leave_out(now, node);
            stored.duty = Duty::Slow;
        }
        for (id, stored) in nodes.iter_mut().filter(|(_, n)| n.duty == Duty::Slow) {
            if self.slow.may_return(now, *id) {
                stored.duty = Duty::Returning;
            }
        }
    }
}
