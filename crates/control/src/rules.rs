//! The rules for one list (P10.2–P10.6): they compute the list's next configuration from facts about the nodes.
//!
//! The result depends on the present state, not on the order of events: the same facts give the same configuration, and
//! a second evaluation changes nothing. So a lost, repeated or late event does no harm, and a new coordinator decides
//! as its predecessor would have.

mod moves;
mod stand_in;

use crate::fence::{Cause, Fence, Hold};
use crate::plan::{ClusterPlan, LostPolicy};
pub(crate) use moves::Obstacle;
use paritas_base::configuration::{Assignment, Configuration, Duty, PositionState, Tenure};
use paritas_base::{Epoch, Incarnation, ListId, NodeId, Position, Sections, Time, Version};
use std::collections::{BTreeMap, BTreeSet};

/// Limit of certified incarnations that one configuration names. The oldest are dropped first; they only shorten waits.
const GONE_MAX: usize = 64;

/// Facts about a node.
#[derive(Clone, Debug)]
pub(crate) struct NodeFacts {
    /// Its newest incarnation.
    pub(crate) incarnation: Incarnation,
    pub(crate) domain: String,
    /// The newest incarnation has registered with this coordinator, is heard, and has not ended.
    pub(crate) available: bool,
    /// The newest incarnation was told that it may end, and has not ended yet as far as is known (P10.20).
    pub(crate) leaves: bool,
    /// The coordinator does not hear the newest incarnation. It may or may not have ended.
    pub(crate) silent: bool,
    /// A time after which the newest incarnation certainly ran: by its answer to a `Ping`, or by a peer's word.
    pub(crate) proof: Option<Time>,
    /// The newest incarnation has ended: its supervisor certified it, or an operator attested it.
    pub(crate) ended: bool,
    /// Its supervisor certified the end.
    pub(crate) certified: bool,
    /// Its next incarnation may register soon: it ended a short time ago.
    pub(crate) waiting: bool,
    /// Another process waits for its place (P10.13).
    pub(crate) has_second: bool,
    /// Earlier incarnations, and whether their end is certified.
    pub(crate) past: Vec<(Incarnation, bool)>,
    /// It failed repeatedly in the recent past: it gets a position only where no other node is free (P10.7).
    pub(crate) flapping: bool,
    /// Its duty.
    pub(crate) duty: Duty,
    /// Number of positions that it holds.
    pub(crate) load: usize,
    /// It is a log node.
    pub(crate) log: bool,
}

impl NodeFacts {
    /// Whether positions wait for its next process. For a node that fails repeatedly, or that is to leave, they do not.
    fn may_return(&self) -> bool {
        !self.flapping && !self.duty.leaves()
    }
}

/// Two nodes that hear the coordinator but not each other (P10.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BrokenLink {
    pub(crate) a: NodeId,
    /// How many peers report `a`.
    pub(crate) a_reports: usize,
    pub(crate) b: NodeId,
    pub(crate) b_reports: usize,
    /// The link has been broken for so long that it counts as permanent.
    pub(crate) lasting: bool,
}

/// The removal of a node that has not ended from a list with this epoch.
pub(crate) type Removal = (ListId, Epoch, NodeId);

/// The input of the rules, and some results.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) nodes: BTreeMap<NodeId, NodeFacts>,
    /// The planned node of every position.
    pub(crate) homes: Vec<Vec<NodeId>>,
    pub(crate) per_domain_max: usize,
    /// Number of positions of a list, the last ones, that belong on log nodes.
    pub(crate) logged: usize,
    pub(crate) min_redundancy: usize,
    pub(crate) lost_policy: LostPolicy,
    /// Lost lists that an operator has ordered to begin again empty.
    pub(crate) resets: BTreeSet<ListId>,
    /// Positions whose holders ask to be Live.
    pub(crate) whole: Vec<(ListId, Position, Tenure)>,
    pub(crate) broken: Vec<BrokenLink>,
    /// Silent nodes whose peers do not hear them either (P10.10).
    pub(crate) suspects: BTreeSet<NodeId>,
    /// Removals that earlier evaluations wanted, and the time that the proofs must be newer than. A removal is done
    /// once all other holders are proven to run (P10.10).
    pub(crate) wanted: BTreeMap<Removal, Time>,
    /// Result: the removals that this evaluation wants, new ones included.
    pub(crate) wants: BTreeSet<Removal>,
    /// Silent nodes that a peer hears.
    pub(crate) isolated: BTreeSet<NodeId>,
    /// Why no node is removed for silence now (P10.11).
    pub(crate) hold: Option<Hold>,
    /// Just after the coordinator's start: a position that is Filling may be complete, if its holder has not had time
    /// to report that again.
    pub(crate) may_be_whole: bool,
    /// Just after the coordinator's start: nodes that were up and have not registered yet (P10.12).
    pub(crate) awaited: BTreeSet<NodeId>,
    /// Nodes that get no position of a list for some time.
    pub(crate) avoided: BTreeSet<(ListId, NodeId)>,
    /// The last holder of each vacant position.
    pub(crate) vacated: BTreeMap<(ListId, Position), NodeId>,
    /// Roles that broke an invariant (P3.5). For that position their incarnations count as ended, and they get no other
    /// position of the list. The process itself continues.
    pub(crate) halted: BTreeSet<(ListId, Position, NodeId, Incarnation)>,
    /// Incarnations removed a short while ago without a certificate.
    pub(crate) recent: BTreeSet<(ListId, NodeId, Incarnation)>,
    /// `recent` may be incomplete: an earlier coordinator, or a commit whose outcome was unknown, may have removed
    /// others.
    pub(crate) recent_is_partial: bool,
    /// Whether a member of a list may hold a second position of it (P10.5).
    pub(crate) stand_in: bool,
    /// Positions that have long been Filling at nodes that hold another one of the list.
    pub(crate) stuck: BTreeSet<(ListId, Position, Tenure)>,
    /// Positions whose owners have drained: they may be moved (P5.12).
    pub(crate) drained: BTreeSet<(ListId, Position, Tenure)>,
    /// Number of lists of which a position may still be moved, if the move is not urgent.
    pub(crate) moves_left: usize,
    /// Result: positions to be moved once their owners have drained.
    pub(crate) to_drain: BTreeSet<(ListId, Position, Tenure)>,
    /// Result: for each node that is to leave or to return, a position that cannot be moved now, and why.
    pub(crate) obstacles: BTreeMap<NodeId, (ListId, Position, Obstacle)>,
}

impl Facts {
    /// Whether the incarnation has registered with this coordinator and is heard.
    pub(crate) fn answers(&self, node: NodeId, incarnation: Incarnation) -> bool {
        self.node(node)
            .is_some_and(|n| n.incarnation == incarnation && n.available)
    }

    fn node(&self, node: NodeId) -> Option<&NodeFacts> {
        self.nodes.get(&node)
    }

    /// Whether the incarnation is over: certified, or a later one has registered (P10.4).
    pub(crate) fn is_ended(&self, node: NodeId, incarnation: Incarnation) -> bool {
        self.node(node).is_some_and(|n| n.incarnation != incarnation || n.ended)
    }

    /// Whether the end of the incarnation is certified.
    fn is_certified(&self, node: NodeId, incarnation: Incarnation) -> bool {
        self.node(node)
            .is_some_and(|n| (n.incarnation == incarnation && n.certified) || n.past.contains(&(incarnation, true)))
    }

    /// Whether a role of that incarnation in the list broke an invariant.
    fn has_halted(&self, list: ListId, node: NodeId, incarnation: Incarnation) -> bool {
        let mut halted = self.halted.iter();
        halted.any(|(l, _, n, i)| (*l, *n, *i) == (list, node, incarnation))
    }

    pub(crate) fn is_silent(&self, node: NodeId) -> bool {
        self.node(node).is_none_or(|n| n.silent)
    }

    /// Whether the incarnation may end at any moment (P10.20).
    pub(crate) fn leaves(&self, node: NodeId, incarnation: Incarnation) -> bool {
        self.node(node)
            .is_some_and(|n| n.incarnation == incarnation && n.leaves)
    }

    /// The latest time at which the node's newest incarnation is known to have run.
    pub(crate) fn proof(&self, node: NodeId) -> Option<Time> {
        self.node(node).and_then(|n| n.proof)
    }

    /// Whether the node's next incarnation is awaited.
    fn is_waiting(&self, node: NodeId) -> bool {
        self.node(node).is_some_and(|n| n.waiting && n.may_return())
    }

    /// Whether another process waits for the node's place, and may get positions there.
    fn has_second(&self, node: NodeId) -> bool {
        self.node(node).is_some_and(|n| n.has_second && n.may_return())
    }
}

/// A list's next configuration.
#[derive(Clone, Debug)]
pub(crate) struct Next {
    pub(crate) configuration: Configuration,
    /// Nodes fenced because of broken links. They get no position of the list for some time.
    pub(crate) cut: Vec<NodeId>,
}

/// The first configuration of a list: every position is Live and empty. All of `nodes` are available.
pub(crate) fn first(list: ListId, homes: &[NodeId], plan: &ClusterPlan, facts: &mut Facts) -> Configuration {
    let epoch = Epoch(1);
    let mut positions = Vec::with_capacity(homes.len());
    for node in homes {
        positions.push(facts.nodes.get_mut(node).map(|n| {
            n.load += 1;
            let tenure = Tenure {
                node: *node,
                incarnation: n.incarnation,
                since: epoch,
            };
            Assignment {
                tenure,
                state: PositionState::Born,
            }
        }));
    }
    let gone = Vec::new();
    Configuration {
        list,
        epoch,
        born: epoch,
        data: plan.data,
        parity: plan.parity,
        ack_quorum: plan.ack_quorum,
        positions,
        gone,
        lost: false,
        slots: Default::default(),
        id: 0,
        trail: Vec::new(),
        more: Sections::none(),
    }
}

/// The list's next configuration. `None`: it does not change.
pub(crate) fn next(old: &Configuration, facts: &mut Facts) -> Option<Next> {
    // The protocol packs terms in 20 bits; the coordinator has alarmed long before.
    if old.epoch.0 >= Version::TERM_MAX {
        return None;
    }
    let mut new = old.clone();
    new.epoch = Epoch(old.epoch.0 + 1);
    let mut change = Change {
        fence: Fence::new(old, new, facts),
        cut: Vec::new(),
    };
    change.grant();
    let is_decided = change.bury();
    let begins_again =
        change.fence.facts.lost_policy == LostPolicy::Reset || change.fence.facts.resets.contains(&old.list);
    if is_decided && change.next().lost && begins_again {
        change.reset();
    } else if is_decided && !change.next().lost {
        change.succeed();
        change.suspect();
        change.fill();
        change.relieve();
        change.relocate();
    }
    change.certify();
    let Change { fence, cut } = change;
    let new = fence.into_next();
    let gone_grew = new.gone.iter().any(|incarnation| !old.gone.contains(incarnation));
    let changed = new.positions != old.positions || new.lost != old.lost || gone_grew;
    changed.then_some(Next {
        configuration: new,
        cut,
    })
}

struct Change<'a> {
    fence: Fence<'a>,
    cut: Vec<NodeId>,
}

impl Change<'_> {
    /// The next configuration, as computed so far.
    fn next(&self) -> &Configuration {
        self.fence.next()
    }

    /// Live parities that answer, `i` and `suspects` left out.
    fn parities_beside(&self, i: usize, suspects: &[usize]) -> usize {
        let others = (usize::from(self.next().data)..self.next().positions.len()).filter(|o| *o != i);
        let well = |o: &usize| self.fence.is_live(*o) && !self.fence.is_ended(*o) && !self.fence.is_silent(*o);
        others.filter(|o| well(o) && !suspects.contains(o)).count()
    }

    /// P5.6, P6.5: positions whose holders have all their data become Live.
    fn grant(&mut self) {
        let list = self.next().list;
        let whole: Vec<(Position, Tenure)> = self
            .fence
            .facts
            .whole
            .iter()
            .filter(|w| w.0 == list)
            .map(|w| (w.1, w.2))
            .collect();
        for (position, tenure) in whole {
            self.fence.grant(position, tenure);
        }
    }

    /// P10.6: more positions have ended than P10.3 covers. The remaining positions stay and can be read. The ended ones
    /// get no successors, since nothing could be rebuilt. Without parity a position never can be rebuilt, so there it
    /// begins again empty.
    ///
    /// False: it cannot be decided yet whether the list is lost. A holder that is Filling may have reported to the
    /// previous coordinator that it is complete, and has not had time to report it again.
    fn bury(&mut self) -> bool {
        let any_ended = (0..self.next().positions.len()).any(|i| self.fence.is_ended(i));
        if !any_ended || self.next().parity == 0 {
            return true;
        }
        if !self.fence.decodable_without(|i| self.fence.is_ended(i)) {
            if !self.next().lost && self.fence.facts.may_be_whole && self.fence.is_any_filling() {
                return false;
            }
            self.fence.set_lost();
        }
        if self.next().lost {
            for i in 0..self.next().positions.len() {
                if let Some(permit) = self.fence.remove(i, Cause::Ended) {
                    self.fence.vacate(permit);
                }
            }
        }
        true
    }

    /// P10.6: a lost list begins again with empty positions. Every position must have a holder, and no earlier owner
    /// may still serve: an owner that was removed without a certificate may serve until its leases end. So a silent
    /// holder is removed first, and the list begins again when its leases have ended.
    fn reset(&mut self) {
        let list = self.next().list;
        let mut recent = self.fence.facts.recent.iter();
        let may_serve = |(of, node, incarnation): &(ListId, NodeId, Incarnation)| {
            *of == list && !self.fence.facts.is_certified(*node, *incarnation)
        };
        if self.fence.facts.recent_is_partial || recent.any(may_serve) {
            return;
        }
        let before = (self.next().positions.clone(), self.fence.facts.nodes.clone());
        let mut is_whole = true;
        for i in 0..self.next().positions.len() {
            let held = self.fence.tenure(i).map(|t| t.node);
            let is_there = |node: NodeId| self.fence.facts.node(node).is_some_and(|n| n.available && !n.leaves);
            let stays = |node: &NodeId| !self.fence.is_ended(i) && is_there(*node);
            let last = self.fence.facts.vacated.get(&(list, Position(i as u8))).copied();
            let free = || self.candidate(i, last).or_else(|| self.substitute(i));
            let node = held.filter(stays).or_else(free);
            match (node, self.fence.remove(i, Cause::Reset)) {
                (Some(node), Some(permit)) => self.fence.assign(permit, node),
                _ => is_whole = false,
            }
        }
        let incarnation = |held: Option<Assignment>| held.map(|a| (a.tenure.node, a.tenure.incarnation));
        let removed: Vec<usize> = (0..self.next().positions.len())
            .filter(|i| {
                let (old, new) = (
                    incarnation(self.fence.old.positions[*i]),
                    incarnation(self.next().positions[*i]),
                );
                old != new && old.is_some_and(|(node, incarnation)| !self.fence.facts.is_certified(node, incarnation))
            })
            .collect();
        if !is_whole || !removed.is_empty() {
            self.fence.undo_holders(before.0);
            self.fence.facts.nodes = before.1;
            for i in removed.into_iter().filter(|_| is_whole) {
                if let Some(permit) = self.fence.remove(i, Cause::Reset).filter(|_| self.fence.is_unheard(i)) {
                    self.fence.vacate(permit);
                }
            }
            return;
        }
        self.fence.begin_again();
    }

    /// P10.4, P10.5: incarnations that ended are replaced. P10.3 does not limit this.
    ///
    /// While the node's next incarnation is awaited, a data position keeps its ended holder: a vacancy would not serve
    /// its keys sooner, and would cost one more epoch. A parity position is vacated at once if enough other parities
    /// are Live, since every write of the list waits for its acks, and a takeover of another position waits for its
    /// part of the push. With too few others a vacancy would refuse writes instead of delaying them, so it keeps its
    /// holder.
    fn succeed(&mut self) {
        for i in 0..self.next().positions.len() {
            let Some(dead) = self.fence.tenure(i).filter(|_| self.fence.is_ended(i)) else {
                continue;
            };
            let waiting = self.fence.facts.is_waiting(dead.node) || self.knows_too_few();
            let writes_go_on =
                self.fence.is_parity(i) && self.parities_beside(i, &[]) >= self.fence.facts.min_redundancy.max(1);
            let successor = self.candidate(i, Some(dead.node));
            let Some(permit) = self.fence.remove(i, Cause::Ended) else {
                continue;
            };
            if let Some(node) = successor.filter(|node| *node == dead.node || !waiting) {
                self.fence.assign(permit, node);
            } else if !waiting || writes_go_on {
                self.fence.vacate(permit);
            }
        }
    }

    /// P10.12: just after the coordinator's start a running node may not have registered yet. It may be the best
    /// successor.
    fn knows_too_few(&self) -> bool {
        let mut held = self.next().positions.iter().flatten();
        held.any(|a| self.fence.facts.awaited.contains(&a.tenure.node))
    }

    /// P10.2, P10.3: suspect members, and one end of each link that peers report broken.
    ///
    /// All that leave count as missing together. If the list could not be rebuilt without them, no Live one is removed:
    /// fencing some of them would restore nothing, and all of them may run behind a network partition. Holders that
    /// have not proven since the removal was first wanted that they run count as missing too: they may have died just
    /// before.
    ///
    /// A removal must also improve the list. A data position goes only to a successor, since its owner may still serve.
    /// A parity position goes to a successor, or becomes vacant if enough parities remain for writes. If no data is
    /// missing, the last parities may leave too: reads then need no leases and continue, but writes stop (P4.5).
    ///
    /// If another process of the node waits for its place (P10.13), and no other node is free, the position becomes
    /// vacant: that process is taken in once the node holds nothing.
    fn suspect(&mut self) {
        let cut = self.cut_positions();
        let leaves = |i: &usize| !self.fence.is_ended(*i) && (self.fence.is_suspect(*i) || cut.contains(i));
        let leaving: BTreeSet<usize> = (0..self.next().positions.len()).filter(leaves).collect();
        let gone = |i: usize| leaving.contains(&i) || self.fence.is_ended(i);
        let data_whole = (0..usize::from(self.next().data)).all(|i| self.fence.is_live(i) && !gone(i));
        let suspects: Vec<usize> = leaving.iter().copied().collect();
        self.fence.set_leaving(leaving);
        self.fence.want_leaving();
        for i in suspects.iter().copied() {
            let (Some(suspect), Some(permit)) = (self.fence.tenure(i), self.fence.remove(i, Cause::Suspect)) else {
                continue;
            };
            let writes_go_on = self.parities_beside(i, &suspects) >= self.fence.facts.min_redundancy;
            let may_be_vacant = self.fence.is_parity(i) && (data_whole || writes_go_on);
            let successor = self.candidate(i, None).or_else(|| self.stand_in(i));
            if let Some(node) = successor {
                self.fence.assign(permit, node);
            } else if may_be_vacant || self.fence.facts.has_second(suspect.node) {
                self.fence.vacate(permit);
            } else {
                continue;
            }
            if cut.contains(&i) {
                self.cut.push(suspect.node);
            }
        }
    }

    /// P10.2: of two nodes that do not hear each other, the one that more peers report is removed. With equal reports
    /// it is the parity end. Only links between an owner and a parity member matter.
    ///
    /// Both nodes still have their data, and a removal costs redundancy until the position is refilled. So it waits
    /// while another position of the list is missing.
    fn cut_positions(&self) -> BTreeSet<usize> {
        if self.fence.facts.hold.is_some() {
            return BTreeSet::new();
        }
        let is_missing = |i: usize| !self.fence.is_live(i) || self.fence.is_ended(i) || self.fence.is_silent(i);
        let any_missing = (0..self.next().positions.len()).any(is_missing);
        let mut cut = BTreeSet::new();
        for link in self
            .fence
            .facts
            .broken
            .iter()
            .filter(|link| link.lasting || !any_missing)
        {
            for (a, _) in self.next().of_node(link.a) {
                for (b, _) in self.next().of_node(link.b) {
                    if self.next().is_data(a) == self.next().is_data(b) {
                        continue;
                    }
                    cut.insert(match link.a_reports.cmp(&link.b_reports) {
                        core::cmp::Ordering::Greater => a.index(),
                        core::cmp::Ordering::Less => b.index(),
                        core::cmp::Ordering::Equal => a.max(b).index(),
                    });
                }
            }
        }
        cut
    }

    /// P10.5: a vacant position goes to a free node, else to a member of the list. It waits if its last holder's next
    /// incarnation is awaited.
    fn fill(&mut self) {
        for i in 0..self.next().positions.len() {
            let Some(permit) = self.fence.remove(i, Cause::Vacant) else {
                continue;
            };
            let last = self
                .fence
                .facts
                .vacated
                .get(&(self.next().list, Position(i as u8)))
                .copied();
            let Some(node) = self.candidate(i, last).or_else(|| self.stand_in(i)) else {
                continue;
            };
            let waits = last.is_some_and(|last| self.fence.facts.is_waiting(last)) || self.knows_too_few();
            if Some(node) == last || !waits {
                self.fence.assign(permit, node);
            }
        }
    }

    /// The best node for a position, by these criteria in order: the last holder; the planned node; a node that spreads
    /// parities over failure domains; the node with the fewest positions, which prefers spares. Nodes that are to leave
    /// or fail repeatedly come last. A logged position goes only to log nodes, any other only to nodes in memory.
    fn candidate(&self, i: usize, last: Option<NodeId>) -> Option<NodeId> {
        self.best(i, last, self.is_logged(i))
    }

    /// The best node to hold a logged position in memory while no log node is free.
    fn substitute(&self, i: usize) -> Option<NodeId> {
        let may = self.fence.facts.stand_in && self.is_logged(i);
        may.then(|| self.best(i, None, false)).flatten()
    }

    /// Whether the position belongs on a log node.
    fn is_logged(&self, i: usize) -> bool {
        i + self.fence.facts.logged >= self.next().positions.len()
    }

    /// Whether a logged position is held in memory.
    fn is_misplaced(&self, i: usize) -> bool {
        let holder = self.fence.tenure(i).filter(|_| self.is_logged(i));
        holder.is_some_and(|t| self.fence.facts.node(t.node).is_some_and(|n| !n.log))
    }

    fn best(&self, i: usize, last: Option<NodeId>, log: bool) -> Option<NodeId> {
        let home = self.home(i);
        let mut best = None;
        for (node, facts) in self.fence.facts.nodes.iter().filter(|(_, facts)| facts.log == log) {
            let named = self.next().of_node(*node).any(|(p, _)| p.index() != i);
            if named || !self.may_take(i, *node, facts) {
                continue;
            }
            // Without parity, failure domains do not matter: no position protects another.
            let crowded = self.in_domain(i, &facts.domain) + 1 > self.fence.facts.per_domain_max;
            if self.next().parity > 0 && crowded && Some(*node) != last {
                continue;
            }
            let rank = (
                facts.duty.leaves(),
                facts.flapping,
                Some(*node) != last,
                Some(*node) != home,
                self.parity_beside(i, &facts.domain),
                facts.load,
                *node,
            );
            if best.is_none_or(|b| rank < b) {
                best = Some(rank);
            }
        }
        best.map(|(.., node)| node)
    }

    /// The planned node of the position.
    fn home(&self, i: usize) -> Option<NodeId> {
        let homes = self.fence.facts.homes.get(usize::from(self.next().list.0))?;
        homes.get(i).copied()
    }

    /// Whether a node may get the position, apart from other positions of the list that it holds.
    fn may_take(&self, i: usize, node: NodeId, facts: &NodeFacts) -> bool {
        let list = self.next().list;
        let cut = self.fence.facts.avoided.contains(&(list, node)) || self.cut.contains(&node);
        // An incarnation that leaves the position cannot succeed itself.
        let leaves = self
            .fence
            .tenure(i)
            .is_some_and(|t| (t.node, t.incarnation) == (node, facts.incarnation));
        facts.available
            && !facts.leaves
            && !cut
            && !leaves
            && !self.fence.facts.has_halted(list, node, facts.incarnation)
    }

    /// Number of other positions of the list in a failure domain.
    fn others_in(&self, i: usize, domain: &str) -> impl Iterator<Item = usize> {
        let in_domain = move |o: &usize| {
            let node = self.fence.tenure(*o).and_then(|t| self.fence.facts.node(t.node));
            *o != i && node.is_some_and(|n| n.domain == domain)
        };
        (0..self.next().positions.len()).filter(in_domain)
    }

    fn in_domain(&self, i: usize, domain: &str) -> usize {
        self.others_in(i, domain).count()
    }

    /// Whether the failure domain would hold two parities of the list.
    fn parity_beside(&self, i: usize, domain: &str) -> bool {
        self.fence.is_parity(i) && self.others_in(i, domain).any(|o| self.fence.is_parity(o))
    }

    /// P10.4, P5.5: certified incarnations join `gone` if this change removes them, or if they were removed a short
    /// time before the certificate arrived. They stay while an owner may wait for their leases; a Live owner does not.
    fn certify(&mut self) {
        let owners_wait = |c: &Configuration| {
            c.data_positions()
                .any(|x| c.at(x).is_none_or(|a| a.state == PositionState::Filling))
        };
        let mut gone = if owners_wait(self.fence.old) {
            self.fence.old.gone.clone()
        } else {
            Vec::new()
        };
        let removed = self
            .fence
            .old
            .positions
            .iter()
            .flatten()
            .map(|a| (a.tenure.node, a.tenure.incarnation));
        let mut incarnations: Vec<_> = removed.collect();
        if owners_wait(self.next()) {
            let recent = self.fence.facts.recent.iter().filter(|r| r.0 == self.next().list);
            incarnations.extend(recent.map(|(_, node, incarnation)| (*node, *incarnation)));
        }
        for (node, incarnation) in incarnations {
            let named = self.next().held_by(node, incarnation).next().is_some();
            if !named && self.fence.facts.is_certified(node, incarnation) && !gone.contains(&(node, incarnation)) {
                gone.push((node, incarnation));
            }
        }
        gone.drain(..gone.len().saturating_sub(GONE_MAX));
        self.fence.set_gone(gone);
    }
}
