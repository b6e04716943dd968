//! The coordinator of an ungoverned run. It obeys P10 (compare and swap on the epoch, the decodability rule,
//! removal of all crashed incarnations). Within these rules it behaves as badly as possible: late detection, false
//! suspicion, unusual successors.

use crate::client::{CROWD, FILLER, LARGE};
use crate::events::SimEvent;
use crate::marks::Seen;
use crate::world::World;
use paritas_base::configuration::{Assignment, Configuration, PositionState, Tenure};
use paritas_base::hash_slots::{HandOff, check_whole};
use paritas_base::{Epoch, Incarnation, ListId, NodeId, Position, SLOT_COUNT, Span, StreamId};
use paritas_protocol::Proposal;
use std::collections::BTreeSet;

impl World {
    /// Numbers of data and parity positions that are not Live: vacant, Filling, or held by an incarnation that has
    /// ended.
    fn lost(&self, configuration: &Configuration) -> (usize, usize) {
        let mut lost = (0, 0);
        for (i, position) in configuration.positions.iter().enumerate() {
            let live = position.as_ref().is_some_and(|a| {
                let process = self.fleet.processes[usize::from(a.tenure.node.0)].as_ref();
                let runs = process.is_some_and(|p| p.incarnation == a.tenure.incarnation);
                a.state.is_live() && runs
            });
            if !live {
                if configuration.is_data(Position(i as u8)) {
                    lost.0 += 1
                } else {
                    lost.1 += 1
                }
            }
        }
        lost
    }

    /// Rule P10.3: whether a list with these losses can still be decoded.
    fn is_decodable(&self, (data, parity): (usize, usize)) -> bool {
        let (m, a) = (usize::from(self.swarm.parity), usize::from(self.swarm.ack_quorum));
        data == 0 || (parity < a && data + parity <= m)
    }

    /// Whether a list may lose this many data and parity positions: the ack quorum and P10.3 allow it.
    pub(crate) fn bears(&self, data: usize, parity: usize) -> bool {
        data + parity <= usize::from(self.swarm.parity) && self.is_decodable((data, parity))
    }

    pub(crate) fn lost_with_flips(&self, list: ListId) -> (usize, usize) {
        let (lost, flipped) = (
            self.lost(self.committed.configuration(list)),
            self.oracle.flipped_chunks(&self.fleet, list),
        );
        (lost.0 + flipped.0, lost.1 + flipped.1)
    }

    /// Whether the redundancy allows one more wrong chunk.
    pub(crate) fn may_flip(&self, list: ListId, of_data: bool) -> bool {
        let (data, parity) = self.lost_with_flips(list);
        self.bears(data + usize::from(of_data), parity + usize::from(!of_data))
    }

    /// Numbers of Live data and parity positions of a list that a process holds.
    pub(crate) fn live_positions_of(&self, list: ListId, node: NodeId) -> (usize, usize) {
        let mut count = (0, 0);
        let Some(process) = self.fleet.processes[usize::from(node.0)].as_ref() else {
            return count;
        };
        let configuration = self.committed.configuration(list);
        for (position, a) in configuration.held_by(node, process.incarnation) {
            if a.state.is_live() {
                if configuration.is_data(position) {
                    count.0 += 1
                } else {
                    count.1 += 1
                }
            }
        }
        count
    }

    /// Whether the cluster may lose this process now.
    pub(crate) fn may_lose(&self, at: usize) -> bool {
        // Without parity a crash loses data in any case, and the position begins empty again (P10.6).
        self.fleet.processes[at].is_some() && (self.swarm.parity == 0 || self.may_lose_all(&[at]))
    }

    /// Whether every list may lose all these processes together, and those that may end at any moment too.
    pub(crate) fn may_lose_all(&self, dead: &[usize]) -> bool {
        let mut all = self.leavers();
        all.extend(dead);
        self.bear_all(&all)
    }

    /// Whether every list may lose all these processes together.
    pub(crate) fn bear_all(&self, dead: &BTreeSet<usize>) -> bool {
        self.committed.lists().all(|list| {
            let (mut data, mut parity) = self.lost_with_flips(list);
            for at in dead {
                let (d, p) = self.live_positions_of(list, NodeId(*at as u16));
                (data, parity) = (data + d, parity + p);
            }
            self.bears(data, parity)
        })
    }

    /// Commits the next configuration (I11) and sends it to all nodes, with various delays.
    fn commit(&mut self, list: ListId, change: impl FnOnce(&mut Configuration, Epoch)) {
        let mut next = self.committed.configuration(list).clone();
        next.epoch = Epoch(next.epoch.0 + 1);
        let epoch = next.epoch;
        change(&mut next, epoch);
        if next.parity == 0 && next.positions.iter().flatten().any(|a| a.tenure.since == epoch) {
            self.oracle.marks.see(Seen::BornAgain);
            next.born = epoch;
        }
        next.seal(Some(self.committed.configuration(list)));
        self.oracle.counts.commits += 1;
        if let Err(what) = paritas_control::check_transition(Some(self.committed.configuration(list)), &next) {
            self.violate(format!("I11: {what}"));
        }
        self.schedule.log(|| format!("committed {}", describe(&next)));
        let filling = |p: &Position| next.at(*p).is_none_or(|a| a.state == PositionState::Filling);
        let data = next.data_positions().filter(filling).count();
        if data > 1 {
            self.oracle.marks.see(Seen::TwoTakeovers);
        }
        if data > 0 && next.members().any(|(_, a)| a.state == PositionState::Filling) {
            self.oracle.marks.see(Seen::RefillBesideTakeover);
        }
        let twice = |a: &Assignment| next.of_node(a.tenure.node).count() > 1;
        if next.positions.iter().flatten().any(twice) {
            self.oracle.marks.see(Seen::StandIn);
        }
        self.committed.ids[usize::from(list.0)].push(next.id);
        self.committed.configurations[usize::from(list.0)] = next;
        for at in 0..self.fleet.processes.len() {
            if self.schedule.healing || !self.schedule.random.chance(self.swarm.push_drop) {
                let delay = Span(self.schedule.random.below(5_000_000));
                let configuration = Box::new(self.committed.configuration(list).clone());
                self.schedule.push(delay, SimEvent::Push { at, configuration });
            }
        }
    }

    fn successor(&mut self, configuration: &Configuration, position: Position) -> Option<Assignment> {
        let mut free = self.fleet.free(configuration);
        if free.is_empty() && self.schedule.random.chance(500_000) {
            free = self.fleet.stand_ins(configuration, position);
        }
        if free.is_empty() {
            return None;
        }
        let epoch = Epoch(configuration.epoch.0 + 1);
        let at = *self.schedule.random.pick(&free);
        let incarnation = self.fleet.records[at].incarnation;
        let tenure = Tenure {
            node: NodeId(at as u16),
            incarnation,
            since: epoch,
        };
        Some(Assignment {
            tenure,
            state: if self.swarm.parity == 0 {
                PositionState::Born
            } else {
                PositionState::Filling
            },
        })
    }

    /// The end of an incarnation is noticed. Its positions are given to other nodes (P10.4).
    pub(crate) fn detect(&mut self, at: usize, incarnation: Incarnation, certified: bool) {
        for list in self.committed.lists() {
            self.remove(list, at, incarnation, certified);
        }
    }

    fn remove(&mut self, list: ListId, at: usize, incarnation: Incarnation, certified: bool) {
        let node = NodeId(at as u16);
        let mut after = self.committed.configuration(list).clone();
        let held: Vec<Position> = after.held_by(node, incarnation).map(|(p, _)| p).collect();
        let known = after.is_gone(node, incarnation);
        if held.is_empty() && (!certified || known) {
            return;
        }
        for position in held {
            after.positions[position.index()] = if self.schedule.random.chance(800_000) {
                self.successor(&after, position)
            } else {
                None
            };
        }
        self.commit(list, |next, _| {
            next.positions = after.positions;
            if certified && !known {
                next.gone.push((node, incarnation));
            }
        });
    }

    /// Replaces a running process as if it were dead. Sometimes the position then moves back and forth.
    pub(crate) fn suspect(&mut self) {
        let list = self.committed.any_list(&mut self.schedule.random);
        let position = Position(
            self.schedule
                .random
                .below(self.committed.configuration(list).positions.len() as u64) as u8,
        );
        self.replace(list, position, None);
        if self.schedule.random.chance(200_000) {
            let mut after = 0;
            for _ in 0..self.schedule.random.between(1, 4) {
                after += self.schedule.random.between(2_000_000, 30_000_000);
                self.schedule.push(Span(after), SimEvent::Replace(list, position));
            }
        }
    }

    /// Gives the position back to the node that held it last, or to another one.
    pub(crate) fn replace_again(&mut self, list: ListId, position: Position) {
        let before = self.committed.previous.get(&(list, position)).copied();
        self.replace(list, position, before);
    }

    pub(crate) fn replace(&mut self, list: ListId, position: Position, wanted: Option<NodeId>) {
        let Some(a) = self.committed.configuration(list).at(position).copied() else {
            return;
        };
        let mut lost = self.lost_with_flips(list);
        if a.state.is_live() {
            let alive = self.fleet.processes[usize::from(a.tenure.node.0)]
                .as_ref()
                .is_some_and(|p| p.incarnation == a.tenure.incarnation);
            if !alive {
                return;
            }
            if self.committed.configuration(list).is_data(position) {
                lost.0 += 1
            } else {
                lost.1 += 1
            }
        }
        if !self.bears(lost.0, lost.1) {
            return;
        }
        self.oracle.counts.suspicions += 1;
        let now = self.committed.configuration(list).clone();
        let epoch = Epoch(now.epoch.0 + 1);
        let free = self.fleet.free(&now);
        let mut successor = match wanted.filter(|n| free.contains(&usize::from(n.0))) {
            Some(node) => {
                let incarnation = self.fleet.records[usize::from(node.0)].incarnation;
                let tenure = Tenure {
                    node,
                    incarnation,
                    since: epoch,
                };
                Some(Assignment {
                    tenure,
                    state: PositionState::Filling,
                })
            }
            None if self.schedule.random.chance(700_000) => self.successor(&now, position),
            None => None,
        };
        self.committed.previous.insert((list, position), a.tenure.node);
        if successor.is_none() && self.schedule.random.chance(200_000) {
            // The same incarnation under a new tenure. It must not mistake the new tenure for the old one (H7).
            let tenure = Tenure {
                since: epoch,
                ..a.tenure
            };
            successor = Some(Assignment {
                tenure,
                state: PositionState::Filling,
            });
        }
        self.commit(list, |next, _| next.positions[position.index()] = successor);
    }

    /// Gives vacant positions to free nodes.
    pub(crate) fn fill_vacancies(&mut self, list: ListId) {
        for i in 0..self.committed.configuration(list).positions.len() {
            let dead = self.committed.configuration(list).positions[i].is_some_and(|a| {
                self.schedule.healing
                    && self.fleet.processes[usize::from(a.tenure.node.0)].is_some()
                    && self.fleet.records[usize::from(a.tenure.node.0)].incarnation != a.tenure.incarnation
            });
            if dead || self.committed.configuration(list).positions[i].is_none() {
                let now = self.committed.configuration(list).clone();
                if let Some(successor) = self.successor(&now, Position(i as u8)) {
                    self.commit(list, |next, _| next.positions[i] = Some(successor));
                }
            }
        }
        // Gives positions of stand-ins to free nodes (P10.5). This must happen: the stand-in may lack the memory.
        let now = self.committed.configuration(list);
        let count = now.positions.len() as u8;
        let may_go = |p: &Position| now.may_lack_memory(*p);
        let positions: Vec<Position> = (0..count).map(Position).filter(may_go).collect();
        let free = self.fleet.free(now);
        if let (false, Some(free)) = (positions.is_empty(), free.first())
            && self.schedule.random.chance(300_000)
        {
            // Any of them: one alone may be a position whose move the redundancy does not allow.
            let position = *self.schedule.random.pick(&positions);
            self.replace(list, position, Some(NodeId(*free as u16)));
        }
    }

    /// Hands off some slots, with a key of the clients among them, to another stream; or cancels the hand-off under
    /// way.
    pub(crate) fn hand_off(&mut self) {
        if let Some(under_way) = self.committed.hand_off() {
            if self.schedule.random.chance(100_000) {
                self.end_hand_off(&under_way, None);
            }
            return;
        }
        let key = match self.schedule.random.below(10) {
            0..2 => format!("{{g{}}}", self.schedule.random.below(2)),
            2..4 => format!("{FILLER}{}", self.schedule.random.below(40)),
            _ if self.swarm.crowds > 0 && self.schedule.random.chance(300_000) => CROWD.into(),
            _ if self.swarm.larges > 0 && self.schedule.random.chance(500_000) => {
                format!("{LARGE}{}", self.schedule.random.below(self.swarm.larges))
            }
            _ => format!("k{}", self.schedule.random.below(self.swarm.keys)),
        };
        let database = u8::from(self.swarm.one_slot && self.schedule.random.chance(300_000));
        let slot = self.swarm.slot_of(database, &key);
        let held: Vec<_> = self
            .committed
            .configurations
            .iter()
            .flat_map(|c| self.committed.held(c))
            .collect();
        let Some((list, range)) = held.into_iter().find(|(_, r)| (r.first..=r.last).contains(&slot)) else {
            return self.violate(format!("10.8: slot {slot} has no stream"));
        };
        let from = StreamId { list, x: range.x };
        let streams = |list| (0..self.swarm.data).map(move |x| StreamId { list, x: Position(x) });
        let others: Vec<StreamId> = self
            .committed
            .lists()
            .flat_map(streams)
            .filter(|to| *to != from)
            .collect();
        let to = *self.schedule.random.pick(&others);
        let reach = self.schedule.random.below(u64::from(SLOT_COUNT)) as u16;
        let newest = self.committed.configurations.iter().map(|c| c.slots.version).max();
        let hand_off = HandOff {
            version: newest.unwrap_or(0) + 1,
            first: range.first.max(slot.saturating_sub(reach)),
            last: range.last.min(slot.saturating_add(reach)),
            from,
            to,
        };
        for list in lists_of(&hand_off) {
            self.commit(list, |next, _| next.slots = next.slots.during(hand_off));
        }
    }

    /// Its slots up to there have changed hands; or none have.
    fn end_hand_off(&mut self, what: &HandOff, last: Option<u16>) {
        let cluster = self.committed.cluster.clone();
        for list in lists_of(what) {
            self.commit(list, |next, _| {
                next.slots = match last {
                    Some(last) => next.slots.after(list, &cluster, what, last),
                    None => next.slots.given_up(list, &cluster, what),
                };
            });
        }
        if last.is_some() && what.from.list != what.to.list {
            self.oracle.marks.see(Seen::SlotsBetweenLists);
        }
        if let Err(why) = check_whole(
            self.committed
                .configurations
                .iter()
                .flat_map(|c| self.committed.held(c)),
        ) {
            self.violate(format!("10.8: {why}"));
        }
    }

    /// P10.8: the map changes only for the two tenures that have agreed on the hand-off.
    fn on_hand_off_proposal(&mut self, proposal: &Proposal) {
        let Proposal::HandOff {
            version,
            last,
            from,
            to,
        } = *proposal
        else {
            return;
        };
        let Some(what) = self.committed.hand_off().filter(|h| h.version == version) else {
            return;
        };
        let tenure = |stream: StreamId| self.committed.configuration(stream.list).tenure(stream.x);
        let agreed = tenure(what.from) == Some(from) && tenure(what.to) == Some(to);
        if !agreed {
            self.oracle.marks.see(Seen::HandOffVoid);
        }
        if !self.swarm.parameters.rules.may_hand_off(agreed) {
            return;
        }
        if let Some(last) = last.filter(|last| !what.contains(*last)) {
            return self.violate(format!("10.8: slot {last} is not in {what:?}"));
        }
        self.end_hand_off(&what, last);
    }

    /// Handles a proposal of a node.
    pub(crate) fn on_proposal(&mut self, at: usize, proposal: Proposal) {
        if self.network.is_cut_off(self.schedule.now, at) {
            return;
        }
        if let Proposal::GetConfiguration { list, .. } = proposal {
            // The history in its reply reaches back to any epoch that the node may have.
            let mut configuration = Box::new(self.committed.configuration(list).clone());
            let before = self.committed.ids[usize::from(list.0)].iter().rev().skip(1);
            configuration.trail = before.copied().take(Configuration::HISTORY_MAX).collect();
            let delay = Span(self.schedule.random.below(5_000_000));
            self.schedule.push(delay, SimEvent::Push { at, configuration });
        }
        if let Proposal::Drained { list, position, tenure } = proposal {
            let delay = Span(self.schedule.random.below(5_000_000));
            self.schedule.push(delay, SimEvent::Drained { list, position, tenure });
        }
        // A position that begins empty serves at once and stays Born. Only the real coordinator makes it Live.
        let is_born = |list, position: Position| {
            let held = self.committed.configuration(list).at(position);
            held.is_some_and(|a| a.state == PositionState::Born)
        };
        let asks = match proposal {
            Proposal::HandOff { .. } => true,
            Proposal::AskLive { list, position, .. } => !is_born(list, position),
            _ => false,
        };
        if asks {
            // The agent between node and coordinator is not simulated. Its delay is.
            let late = self
                .schedule
                .random
                .chance(300_000)
                .then(|| self.schedule.random.below(60_000_000));
            match late {
                Some(after) if !self.exhaustive => {
                    self.schedule.push(Span(after), SimEvent::Proposed(Box::new(proposal)))
                }
                _ => self.take_proposal(&proposal, false),
            }
        }
    }

    /// A proposal has arrived at the coordinator.
    pub(crate) fn take_proposal(&mut self, proposal: &Proposal, late: bool) {
        match *proposal {
            Proposal::HandOff { .. } => self.on_hand_off_proposal(proposal),
            Proposal::AskLive { list, position, tenure } if self.schedule.healing || !self.exhaustive => {
                self.on_ask_live(list, position, tenure, late);
            }
            _ => {}
        }
    }

    /// P5.6, P6.5: the position becomes Live whatever the state of the others, if its tenure is unchanged.
    fn on_ask_live(&mut self, list: ListId, position: Position, tenure: Tenure, late: bool) {
        let asks = |a: &Assignment| a.tenure == tenure && a.state == PositionState::Filling;
        if !self.committed.configuration(list).at(position).is_some_and(asks) {
            return;
        }
        if late {
            self.oracle.marks.see(Seen::AskedLiveLate);
        }
        if !self.schedule.healing && self.schedule.random.chance(self.swarm.split_at_ask) {
            self.split_beside(list, position);
        }
        self.commit(list, |next, _| {
            if let Some(a) = &mut next.positions[position.index()] {
                a.state = PositionState::Live;
            }
        });
    }
}

/// The lists whose configurations name this hand-off.
fn lists_of(what: &HandOff) -> impl Iterator<Item = ListId> + use<> {
    let (from, to) = (what.from.list, what.to.list);
    [Some(from), (to != from).then_some(to)].into_iter().flatten()
}

/// A configuration as one line of text.
pub(crate) fn describe(c: &Configuration) -> String {
    let positions: Vec<String> = c
        .positions
        .iter()
        .map(|p| match p {
            None => "-".into(),
            Some(a) => {
                let state = if a.state.is_live() { "" } else { "?" };
                format!("{}@{}{state}", a.tenure.node, a.tenure.since.0)
            }
        })
        .collect();
    format!(
        "configuration {} of list {} [{}] gone {}",
        c.epoch.0,
        c.list.0,
        positions.join(" "),
        c.gone.len()
    )
}
