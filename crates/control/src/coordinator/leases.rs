//! Leases of removed incarnations that may still be valid (P5.5). Not durable.

use super::release::Releases;
use paritas_base::configuration::Tenure;
use paritas_base::{Incarnation, ListId, NodeId, Span, Time};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct Leases {
    /// Incarnations removed from a list without a certificate, and when. Their leases may still be valid.
    recent: BTreeMap<(ListId, NodeId, Incarnation), Time>,
    /// `recent` lacks removals before this time: an earlier coordinator made them, or a commit whose outcome was
    /// unknown.
    recent_from: Option<Time>,
}

impl Leases {
    /// The coordinator starts. An earlier one may have removed an incarnation from an existing list just before.
    pub(super) fn begin(&mut self, now: Time, has_lists: bool) {
        self.recent_from = has_lists.then_some(now);
    }

    /// A commit whose outcome was unknown may have removed incarnations.
    pub(super) fn on_unknown_commit(&mut self, now: Time) {
        self.recent_from = Some(now);
    }

    /// An incarnation was removed from a list without a certificate.
    pub(super) fn on_removed(&mut self, now: Time, list: ListId, tenure: Tenure) {
        self.recent.insert((list, tenure.node, tenure.incarnation), now);
    }

    /// The configurations of these lists are sent now. A removed node may have held leases until it received them.
    /// `found`: until now a configuration was withheld that was read from the store.
    pub(super) fn on_sent(&mut self, now: Time, lists: &[ListId], found: bool) {
        for ((list, ..), at) in &mut self.recent {
            if lists.contains(list) {
                *at = now;
            }
        }
        if found {
            self.recent_from = self.recent_from.map(|_| now);
        }
    }

    pub(super) fn forget_old(&mut self, now: Time, leases_end_after: Span, releases: &Releases) {
        self.recent
            .retain(|(list, ..), at| releases.withholds(*list) || now - *at <= leases_end_after);
    }

    /// Incarnations whose leases may still be valid.
    pub(super) fn removed(&self) -> impl Iterator<Item = (ListId, NodeId, Incarnation)> {
        self.recent.keys().copied()
    }

    /// Whether leases of other incarnations may be valid too.
    pub(super) fn is_partial(&self, now: Time, leases_end_after: Span, releases: &Releases) -> bool {
        self.recent_from
            .is_some_and(|from| releases.withholds_found() || now - from <= leases_end_after)
    }
}
