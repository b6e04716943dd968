//! Reports what prevents the coordinator from acting and what it waits for: as text with advice, and for scripts.

use super::Coordinator;
use crate::fence::{Hold, Opinion, Silence};
use crate::status::{SilentNode, Trouble, Verdict};
use crate::store::Store;
use paritas_base::{Incarnation, ListId, NodeId, Time};

impl<S: Store> Coordinator<S> {
    /// The reasons why the coordinator waits, in words and for scripts.
    pub(super) fn trouble(&self, now: Time) -> (Vec<String>, Trouble) {
        let mut words: Vec<String> = self.obstacle().into_iter().collect();
        let silence = self.judge_silence(now);
        let witnesses_missing = self.missing_witnesses();
        let waits_for_witnesses = !witnesses_missing.is_empty();
        let awaited = self.records.nodes.values().filter(|n| self.is_awaited(now, n));
        let mut trouble = Trouble {
            behind: self.witnesses.behind().map(|(node, _)| node),
            doubts: match waits_for_witnesses {
                true => self.witnesses.doubts().iter().copied().collect(),
                false => Vec::new(),
            },
            witnesses_missing,
            withheld: self.waits_to_release().map_or(0, |(lists, _)| lists.len()),
            silent: silence
                .said
                .iter()
                .map(|(node, said)| silent_node(&silence, *node, said))
                .collect(),
            next_incarnations: self
                .suspicion
                .waits()
                .iter()
                .filter(|(_, at)| now < **at)
                .map(|(node, _)| *node)
                .collect(),
            awaited: awaited.map(|n| n.record.id).collect(),
            lost: self.records.lists.values().filter(|c| c.lost).map(|c| c.list).collect(),
            ..Trouble::default()
        };
        let lacks_links = self.lacks_links(now);
        match silence.hold {
            Some(Hold::Wait { until }) if lacks_links.is_some() => {
                let (wanted, away) = lacks_links.unwrap_or_default();
                words.push(format!(
                    "replaces no silent node: fewer than {wanted} of the nodes that hold positions are linked to it, \
                     so the coordinator itself may be cut off. Not linked: {}. Repair the network, and start the nodes \
                     that are down. If machines are off for good, `paritas fence` with their node numbers shows \
                     what would be lost, and with --yes counts them as ended",
                    names(&away)
                ));
                trouble.unlinked = away;
                trouble.grace_ms = Some((until - now).as_ms());
            }
            Some(Hold::Wait { until }) => {
                let left = (until - now).as_ms();
                trouble.grace_ms = Some(left);
                words.push(format!(
                    "replaces no silent node for {left} ms more, so that every running node can register; a node whose \
                     end is certified is replaced at once"
                ));
            }
            Some(Hold::Many { silent, most }) => {
                trouble.silent_domains = Some(silent);
                words.push(format!(
                    "replaces no silent node: {silent} failure domains are silent at once, and more than {most} \
                     indicate a broken network. It continues when they are heard again. If machines are off for good, \
                     `paritas fence` with the numbers of their nodes shows what would be lost, and with --yes counts \
                     them as ended"
                ));
            }
            None => {}
        }
        if let Some((waiting, lacks)) = self
            .waits_to_release()
            .filter(|(_, lacks)| *lacks > 0 && words.is_empty())
        {
            words.push(format!(
                "has decided changes of lists {} and sends them once {lacks} more of the nodes that hold \
                 positions know of them. Start the nodes that are down, or repair the network",
                lists(&waiting)
            ));
        }
        words.extend(trouble.silent.iter().map(silence_in_words));
        if !trouble.awaited.is_empty() && !waits_for_witnesses {
            words.push(format!(
                "replaces no node that has ended until {} have registered or {} ms have passed",
                names(&trouble.awaited),
                (self.suspicion.settled_from() - now).as_ms()
            ));
        }
        if !trouble.next_incarnations.is_empty() {
            words.push(format!(
                "waits for the next process of {}, at most {} ms",
                names(&trouble.next_incarnations),
                self.records.plan.restart_wait_ms
            ));
        }
        words.extend(
            self.seconds(now)
                .map(|(node, incarnation)| second_in_words(node, incarnation)),
        );
        let resets: Vec<ListId> = self.orders.resets().iter().copied().collect();
        if !resets.is_empty() {
            words.push(format!(
                "begins lists {} again empty, as ordered, once every position of theirs has a node and no lease of an \
                 earlier process can be valid. Start the nodes that are down. After a restart of the coordinator, give \
                 the order again",
                lists(&resets)
            ));
        }
        let stopped: Vec<ListId> = trouble
            .lost
            .iter()
            .filter(|list| !resets.contains(list))
            .copied()
            .collect();
        if !stopped.is_empty() {
            words.push(format!(
                "has given up lists {}, which are lost. Their remaining data can be read, not written. `paritas \
                 reset-list --lost` shows what would be deleted, and with --yes the lists begin again empty. Then \
                 `paritas restore` a snapshot",
                lists(&stopped)
            ));
        }
        (words, trouble)
    }
}

fn silent_node(silence: &Silence, node: NodeId, said: &[(NodeId, Opinion)]) -> SilentNode {
    let who = |opinion| {
        let peers = said.iter().filter(|(_, said)| *said == opinion);
        peers.map(|(peer, _)| *peer).collect()
    };
    let verdict = if silence.isolated.contains(&node) {
        Verdict::Isolated
    } else if silence.suspects.contains(&node) {
        Verdict::Suspect
    } else {
        Verdict::Undecided
    };
    SilentNode {
        node,
        verdict,
        heard_by: who(Opinion::Hears),
        unheard_by: who(Opinion::Unheard),
        unsure: who(Opinion::Unsure),
    }
}

fn silence_in_words(silent: &SilentNode) -> String {
    let SilentNode {
        node,
        verdict,
        heard_by,
        unheard_by,
        unsure,
    } = silent;
    let number = node.0;
    match verdict {
        Verdict::Isolated => format!(
            "does not hear {node}, and {} of its peers do ({}): it keeps its positions. Repair the network between it \
             and the coordinator",
            heard_by.len(),
            names(heard_by)
        ),
        Verdict::Suspect => format!(
            "does not hear {node}, and its peers do not either ({}): it is replaced in lists that can be rebuilt \
             without it; the other lists wait for it. Start it again; if its machine is off for good, `paritas fence \
             {number}` shows what would be lost",
            names(unheard_by)
        ),
        Verdict::Undecided => format!(
            "does not hear {node}; not heard by {} of its peers ({}), unsure are {} ({}). It keeps its positions for \
             now. Start it again; if its machine is off for good, `paritas fence {number}` shows what would be lost",
            unheard_by.len(),
            names(unheard_by),
            unsure.len(),
            names(unsure)
        ),
    }
}

fn second_in_words(node: NodeId, incarnation: Incarnation) -> String {
    let number = node.0;
    format!(
        "does not take in a second process of {node} (incarnation {incarnation}), which waits: the present one may \
         run. If that is silent, its positions are taken from it where the lists can do without it, and then the \
         second process is taken in. If it has ended, `paritas fence {number}` shows what would be lost, and with \
         --yes counts it as ended. If both should run, give the second one its own id"
    )
}

/// The names of nodes, separated by commas.
pub(crate) fn names(nodes: &[NodeId]) -> String {
    if nodes.is_empty() {
        return "none".into();
    }
    let names: Vec<String> = nodes.iter().map(NodeId::to_string).collect();
    names.join(", ")
}

/// The numbers of lists, separated by commas.
pub(crate) fn lists(lists: &[ListId]) -> String {
    let numbers: Vec<String> = lists.iter().map(|list| list.0.to_string()).collect();
    numbers.join(", ")
}
