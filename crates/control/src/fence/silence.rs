//! Silence and what follows from it (P10.9 to P10.11).
//!
//! The coordinator alone cannot distinguish a dead process from one that it cannot reach. So it asks the peers of a
//! silent node, which exchange frames with that node all the time. And it does not act on silence while the fault may
//! be its own: just after its start, or when many nodes are silent together.

use paritas_base::configuration::Configuration;
use paritas_base::{Incarnation, NodeId, Span, Time};
use std::collections::{BTreeMap, BTreeSet};

/// An agent that hears nothing from its coordinator for this time tries another one (P).
pub(crate) const LINK_TIMEOUT: Span = Span::from_secs(2);
/// Longest wait between two dials of an agent, its jitter counted (R).
pub(crate) const REDIAL_MAX: Span = Span::from_ms(750);
/// How long a dial and the coordinator's first answer may take (D).
pub(crate) const DIAL_MAX: Span = Span::from_secs(1);
/// Allowance for inexact timers of an agent.
const SLACK: Span = Span::from_ms(250);
/// The part of the failure domains, in percent, that may be silent together before the coordinator holds.
const HOLD_PERCENT: usize = 25;
/// Number of peers that must report a node as unheard before it is removed, if it has that many.
const VOTES: usize = 2;

/// For how long a new coordinator fences no node for silence. In this time every running node can notice that the old
/// link is dead and dial all `addresses`, and then be silent for `suspicion`.
pub(crate) fn grace(suspicion: Span, addresses: u8) -> Span {
    let rounds = u64::from(addresses.max(1)) * (REDIAL_MAX.0 + DIAL_MAX.0);
    Span(LINK_TIMEOUT.0 + rounds + SLACK.0 + suspicion.0)
}

/// How many of `count` nodes must be linked to the coordinator before it acts on silence: a majority, but never more
/// than remain after `parity` losses.
pub(crate) fn witnesses(count: usize, parity: usize) -> usize {
    (count / 2 + 1).min(count.saturating_sub(parity)).max(1)
}

/// Why no node is fenced for silence now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Hold {
    /// The coordinator has just started, was paused, lost most of its links, or has just heard many silent nodes again.
    Wait {
        /// When the wait ends.
        until: Time,
    },
    /// Too many failure domains are silent at once.
    Many {
        /// Silent failure domains.
        silent: usize,
        /// How many may be silent.
        most: usize,
    },
}

/// A peer's report on a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Opinion {
    /// A frame of the node arrived within the suspicion time.
    Hears,
    /// No frame arrived within the suspicion time.
    Unheard,
    /// The peer cannot tell.
    Unsure,
}

/// Facts about a node that holds a position in its present incarnation.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    pub(crate) incarnation: Incarnation,
    pub(crate) domain: String,
    /// Registered, heard, not ended.
    pub(crate) available: bool,
    /// Not heard by the coordinator for the suspicion time, and not known to have ended.
    pub(crate) silent: bool,
}

/// The silent nodes, and which of them may be removed.
#[derive(Clone, Default, Debug)]
pub(crate) struct Silence {
    /// Silent nodes that may be removed: their peers do not hear them either.
    pub(crate) suspects: BTreeSet<NodeId>,
    /// Silent nodes that a peer hears. They keep their positions.
    pub(crate) isolated: BTreeSet<NodeId>,
    /// Why no node is a suspect.
    pub(crate) hold: Option<Hold>,
    /// The reports of the available peers on each silent node.
    pub(crate) said: BTreeMap<NodeId, Vec<(NodeId, Opinion)>>,
}

impl Silence {
    /// P10.10, P10.11. `opinion` is the report of the first node on that incarnation of the second.
    pub(crate) fn judge<'a>(
        holders: &BTreeMap<NodeId, Holder>,
        lists: impl Iterator<Item = &'a Configuration>,
        wait_until: Option<Time>,
        parity: usize,
        opinion: impl Fn(NodeId, NodeId, Incarnation) -> Opinion,
    ) -> Self {
        let peers = peers_of_silent(holders, lists);
        let mut judged = Self::default();
        for (node, peers) in &peers {
            let incarnation = holders[node].incarnation;
            let said: Vec<(NodeId, Opinion)> = peers
                .iter()
                .map(|peer| (*peer, opinion(*peer, *node, incarnation)))
                .collect();
            let voters: Vec<(&str, Opinion)> = said
                .iter()
                .map(|(peer, said)| (holders[peer].domain.as_str(), *said))
                .collect();
            if voters.iter().any(|(_, said)| *said == Opinion::Hears) {
                judged.isolated.insert(*node);
            } else if is_outvoted(&voters) {
                judged.suspects.insert(*node);
            }
            judged.said.insert(*node, said);
        }
        let domains = |silent: bool| -> BTreeSet<&str> {
            let counted = holders.values().filter(|h| !silent || h.silent);
            counted.map(|h| h.domain.as_str()).collect()
        };
        let (silent, most) = (
            domains(true).len(),
            parity.max(domains(false).len() * HOLD_PERCENT / 100),
        );
        // The wait that follows such a time has begun with its first decision, and must not hide it.
        judged.hold = match wait_until {
            _ if silent > most => Some(Hold::Many { silent, most }),
            Some(until) => Some(Hold::Wait { until }),
            None => None,
        };
        if judged.hold.is_some() {
            judged.suspects.clear();
        }
        judged
    }
}

/// Whether enough peers report that they do not hear the node: two of two failure domains, or all if there are fewer.
fn is_outvoted(voters: &[(&str, Opinion)]) -> bool {
    let votes = voters.iter().filter(|(_, said)| *said == Opinion::Unheard);
    let domains = |voters: &mut dyn Iterator<Item = &(&str, Opinion)>| -> usize {
        voters.map(|(domain, _)| *domain).collect::<BTreeSet<&str>>().len()
    };
    let (wanted, wanted_domains) = (voters.len().min(VOTES), domains(&mut voters.iter()).min(VOTES));
    wanted > 0 && votes.clone().count() >= wanted && domains(&mut votes.clone()) >= wanted_domains
}

/// The available peers of every silent holder. A peer exchanges frames with it: one of the two owns a stream, and the
/// other holds parity of the same list.
fn peers_of_silent<'a>(
    holders: &BTreeMap<NodeId, Holder>,
    lists: impl Iterator<Item = &'a Configuration>,
) -> BTreeMap<NodeId, BTreeSet<NodeId>> {
    let silent = holders.iter().filter(|(_, h)| h.silent);
    let mut peers: BTreeMap<NodeId, BTreeSet<NodeId>> = silent.map(|(id, _)| (*id, BTreeSet::new())).collect();
    if peers.is_empty() {
        return peers;
    }
    for list in lists {
        let held = list
            .positions
            .iter()
            .enumerate()
            .filter_map(|(i, a)| Some((i, a.as_ref()?.tenure)));
        let present: Vec<(bool, NodeId)> = held
            .filter(|(_, t)| holders.get(&t.node).is_some_and(|h| h.incarnation == t.incarnation))
            .map(|(i, t)| (i < usize::from(list.data), t.node))
            .collect();
        for (is_data, node) in &present {
            let Some(peers) = peers.get_mut(node) else { continue };
            let others = present.iter().filter(|(other_is_data, _)| other_is_data != is_data);
            peers.extend(
                others
                    .map(|(_, other)| *other)
                    .filter(|other| other != node && holders[other].available),
            );
        }
    }
    peers
}

#[cfg(test)]
mod tests;
