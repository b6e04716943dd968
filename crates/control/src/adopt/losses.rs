//! The losses of an adoption, and its report to the operator.

use super::Adoption;
use super::gather::{Chains, holders};
use crate::check::is_decodable;
use crate::coordinator::trouble::{lists, names};
use crate::record::{Adopted, End};
use crate::store::Store;
use paritas_base::configuration::{Assignment, Configuration};
use paritas_base::{ListId, NodeId};

impl<S: Store> Adoption<S> {
    /// The consequences if the processes that the operator calls ended have ended. `None` if there are none of them.
    pub(super) fn losses(&self, adopted: &Adopted) -> Option<Vec<String>> {
        let is_over = |a: &Assignment| {
            let node = adopted.nodes.iter().find(|n| n.record.id == a.tenure.node);
            node.is_some_and(|n| n.is_over(a.tenure.incarnation))
        };
        let held = |id: NodeId| {
            let held = adopted.lists.iter().flat_map(|(c, _)| c.positions.iter().flatten());
            held.filter(|a| a.tenure.node == id && is_over(a)).count()
        };
        let named = adopted.nodes.iter().filter(|n| self.without.contains(&n.record.id));
        let mut words: Vec<String> = named
            .filter_map(|n| {
                let (id, count) = (n.record.id, held(n.record.id));
                let others = if n.end == End::Attested {
                    format!("{id} counts as ended, and the {count} positions that it holds go to others")
                } else if count > 0 {
                    format!(
                        "the former process of {id} counts as ended, and the {count} positions that it holds go to the \
                         new one or to others"
                    )
                } else {
                    return None;
                };
                Some(others)
            })
            .collect();
        if words.is_empty() {
            return None;
        }
        let missing = |of: &[Option<Assignment>]| {
            let is_whole = |a: &Assignment| a.state.is_live() && !is_over(a);
            of.iter().filter(|a| !a.as_ref().is_some_and(is_whole)).count()
        };
        let cannot_be_rebuilt = |c: &&Configuration| {
            let (data, parity) = c.positions.split_at(c.data.into());
            !c.lost && !is_decodable(missing(data), missing(parity), c.parity.into(), c.ack_quorum.into())
        };
        let gone = adopted.lists.iter().map(|(c, _)| c).filter(cannot_be_rebuilt);
        let gone: Vec<ListId> = gone.map(|c| c.list).collect();
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
            "nothing is written yet. If those processes have ended or their machines are without power, and what is \
             said here may be lost, stop this coordinator and start it once more with --yes too"
                .into(),
        );
        Some(words)
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
        let unheard: Vec<NodeId> = self.unheard().into_iter().collect();
        if !unheard.is_empty() {
            words.push(format!(
                "the latest processes of {} have not reported, and hold no position by the reports of the others: what \
                 only they knew is lost",
                names(&unheard)
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
