//! The losses of an adoption, and its report to the operator.

use super::Adoption;
use super::gather::{Chains, holders};
use super::waits::Awaited;
use crate::check::is_decodable;
use crate::coordinator::trouble::{lists, names};
use crate::record::Adopted;
use crate::store::Store;
use paritas_base::configuration::{Assignment, Configuration};
use paritas_base::{ListId, NodeId};

/// Lists that cannot be rebuilt if these holders have ended.
fn lost<'a>(of: impl Iterator<Item = &'a Configuration>, is_over: impl Fn(&Assignment) -> bool) -> Vec<ListId> {
    let missing = |of: &[Option<Assignment>]| {
        let is_whole = |a: &Assignment| a.state.is_live() && !is_over(a);
        of.iter().filter(|a| !a.as_ref().is_some_and(is_whole)).count()
    };
    let cannot_be_rebuilt = |c: &&Configuration| {
        let (data, parity) = c.positions.split_at(c.data.into());
        !c.lost && !is_decodable(missing(data), missing(parity), c.parity.into(), c.ack_quorum.into())
    };
    of.filter(cannot_be_rebuilt).map(|c| c.list).collect()
}

impl<S: Store> Adoption<S> {
    /// Lists that are lost if these nodes do not come.
    pub(super) fn lost_without(&self, chains: &Chains, nodes: &[NodeId]) -> Vec<ListId> {
        lost(chains.values().map(|chain| &chain.newest), |a| {
            let (node, incarnation) = (a.tenure.node, a.tenure.incarnation);
            nodes.contains(&node) && !self.has_reported(node, incarnation)
        })
    }

    /// The consequences of what the operator attests. `None` if nothing follows from it.
    pub(super) fn losses(&self, chains: &Chains, adopted: &Adopted) -> Option<Vec<String>> {
        let is_over = |a: &Assignment| {
            let node = adopted.nodes.iter().find(|n| n.record.id == a.tenure.node);
            node.is_some_and(|n| n.is_over(a.tenure.incarnation))
        };
        let held = |id: NodeId| {
            let held = adopted.lists.iter().flat_map(|(c, _)| c.positions.iter().flatten());
            held.filter(|a| a.tenure.node == id && is_over(a)).count()
        };
        let excused = self.excused(chains);
        if excused.is_empty() {
            return None;
        }
        let mut words: Vec<String> = excused
            .iter()
            .map(|(id, told)| match told.is_empty() {
                true => format!(
                    "{id} counts as ended, and the {} positions that it holds go to others",
                    held(*id)
                ),
                false => format!(
                    "the silent process of {id} counts as ended, and the {} positions that it holds go to the new one \
                     or to others",
                    held(*id)
                ),
            })
            .collect();
        let gone = lost(adopted.lists.iter().map(|(c, _)| c), is_over);
        words.push(match gone.is_empty() {
            true => "no list is lost by it: the other nodes can rebuild all data of these nodes".into(),
            false if adopted.plan.parity == 0 => format!(
                "lists {} have no redundancy: their data on these nodes is lost",
                lists(&gone)
            ),
            false => format!(
                "lists {} would be lost: more positions end than the scheme covers. If one of these machines can go on \
                 with its process still in memory, as after a pause, do that instead",
                lists(&gone)
            ),
        });
        words.push(
            "a decision that only they know would not be found, and what was written under it would be lost".into(),
        );
        words.push(
            "nothing is written yet. If those processes have ended or their machines are without power, and what is \
             said here may be lost, stop this coordinator and start it once more with --yes too"
                .into(),
        );
        Some(words)
    }

    /// Nodes that would be awaited if the operator had not named them.
    fn excused(&self, chains: &Chains) -> Awaited {
        let mut awaited = self.awaited(chains);
        awaited.retain(|node, _| self.without.contains(node));
        awaited
    }

    /// The report of a completed adoption.
    pub(super) fn words(&self, chains: &Chains, adopted: &Adopted) -> Vec<String> {
        let reported: Vec<NodeId> = self
            .complete()
            .filter(|(_, w)| !w.lists.is_empty())
            .map(|((node, _), _)| *node)
            .collect();
        let mut words = vec![format!(
            "{} lists are as {} have reported",
            adopted.lists.len(),
            names(&reported)
        )];
        let off: Vec<NodeId> = adopted
            .nodes
            .iter()
            .filter(|n| n.has_ended())
            .map(|n| n.record.id)
            .collect();
        if !off.is_empty() {
            words.push(format!("the processes of {} count as ended", names(&off)));
        }
        let mut new: Vec<NodeId> = holders(chains)
            .into_iter()
            .filter(|(node, incarnation)| {
                let present = adopted.nodes.iter().find(|n| n.record.id == *node);
                present.is_some_and(|n| n.record.incarnation != *incarnation)
            })
            .map(|(node, _)| node)
            .collect();
        new.dedup();
        if !new.is_empty() {
            words.push(format!(
                "{} run as new processes: configurations that only the former processes knew are lost",
                names(&new)
            ));
        }
        let excused: Vec<NodeId> = self.excused(chains).into_keys().collect();
        if !excused.is_empty() {
            words.push(format!(
                "what only silent processes of {} knew is lost",
                names(&excused)
            ));
        }
        if self.found.is_none() {
            words.push(
                "lost_policy is stop: what it was set to is not known, and `paritas set` changes it; drains and shuns \
                 are forgotten: give them again; a move of slots that was under way is given up"
                    .into(),
            );
        }
        words
    }
}
