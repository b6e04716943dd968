//! Compares the coordinator's decisions with the processes that really run: invariants D1, D3, D4 and D6 (P10.9 to
//! P10.16).
//!
//! The faults of a run end only as many processes as the redundancy covers. But the coordinator may also take a
//! position from a process that runs (a false suspicion), and the data of that process no longer counts. So a list may
//! be lost only if false suspicions and ends together exceed the redundancy. Such a run stops there and counts as
//! excused. What clients have seen until then is checked (I9).

use super::store::SharedStore;
use super::trouble::Trouble;
use super::{Control, Host};
use crate::coordinator::describe;
use crate::marks::Seen;
use crate::report::Excuse;
use crate::world::World;
use paritas_base::configuration::{Configuration, NodeState};
use paritas_base::{Epoch, Incarnation, ListId, NodeId, Position, Span, Time};
use paritas_control::{Coordinator, Note, is_decodable};
use paritas_protocol::LinkId;
use std::collections::{BTreeMap, BTreeSet};

/// The least grace time of a coordinator that starts (P10.11).
const GRACE_MIN: Span = Span::from_secs(4);

/// What is known beyond the committed configurations.
#[derive(Default, Debug)]
pub(crate) struct Truth {
    /// Positions that were taken from processes that live, until an heir is Live.
    fenced: BTreeSet<(ListId, Position)>,
    /// Every configuration of each list, in order. The epochs count from 1.
    chains: Vec<Vec<Configuration>>,
    /// The ids of configurations that were committed and do not count: no process had them when an older store was
    /// used. With the id of the one before.
    given_up: BTreeMap<u64, Option<u64>>,
    /// The ids of configurations that are in an old store because a commit took effect there late. A coordinator that
    /// finds them has not decided them.
    landed: BTreeSet<u64>,
    /// For a receiver and a sender: since when frames arrive without a long gap, in their present incarnations.
    heard: BTreeMap<(usize, usize), Streak>,
    /// When frames of agents came to each coordinator: by node and host.
    beats: BTreeMap<(usize, usize), Streak>,
    /// Processes that a coordinator has told that they may end, and by which connection.
    pub(super) permitted: BTreeSet<(usize, Incarnation, LinkId)>,
    /// When each process that has ended did so.
    ends: BTreeMap<Incarnation, Time>,
    /// Second processes that count as their nodes.
    taken_in: BTreeSet<Incarnation>,
    /// A commit has failed, and may have taken effect: what it decided is seen later.
    is_late: bool,
    /// The store was just made anew: each list has an epoch more, whether or not anything changes (P10.18).
    pub(super) is_adopted: bool,
}

impl Truth {
    /// A second process counts as its node.
    pub(super) fn take_in(&mut self, second: Incarnation) {
        self.taken_in.insert(second);
    }

    pub(super) fn note_end(&mut self, now: Time, incarnation: Incarnation) {
        self.ends.insert(incarnation, now);
    }

    /// When a process ended.
    pub(super) fn ended_at(&self, incarnation: Incarnation) -> Option<Time> {
        self.ends.get(&incarnation).copied()
    }

    pub(super) fn has_taken_in(&self, second: Incarnation) -> bool {
        self.taken_in.contains(&second)
    }
}

/// Frames that come one after the other, without a long gap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Streak {
    /// Of which incarnation or connection.
    of: (u64, u64),
    first: Time,
    last: Time,
}

impl Streak {
    fn add(found: Option<&Self>, of: (u64, u64), now: Time, gap_max: Span) -> Self {
        let goes_on = found.filter(|s| s.of == of && now - s.last <= gap_max);
        let first = goes_on.map_or(now, |s| s.first);
        Self { of, first, last: now }
    }
}

impl World {
    fn suspicion(&self) -> Span {
        Span::from_ms(self.committed.cluster.suspicion_ms.into())
    }

    /// A frame of one process comes to another one. Only those of a session count (P10.9).
    pub(crate) fn note_frame(&mut self, link: LinkId, at: usize) {
        if self.governed.is_none() || self.fleet.is_paused(at, self.schedule.now) {
            return;
        }
        let process = self.fleet.processes[at].as_ref();
        if !process.is_some_and(|process| process.out.is_bound(link)) {
            return;
        }
        let (now, gap_max) = (self.schedule.now, Span(self.suspicion().0 / 2));
        let Some((from, from_incarnation)) = self.network.other_end(link, at) else {
            return;
        };
        let own_incarnation = self.fleet.records[at].incarnation;
        // Not those to or from a process that was superseded.
        if self.fleet.incarnation(at) != Some(own_incarnation)
            || self.fleet.records[from].incarnation != from_incarnation
        {
            return;
        }
        if let Some(governed) = self.governed.as_mut() {
            let of = (own_incarnation.0, from_incarnation.0);
            let heard = governed.truth.heard.entry((at, from));
            heard
                .and_modify(|streak| *streak = Streak::add(Some(streak), of, now, gap_max))
                .or_insert_with(|| Streak::add(None, of, now, gap_max));
        }
    }

    /// A frame of an agent comes to the coordinator.
    pub(super) fn note_beat(&mut self, link: LinkId, host: usize) {
        let (now, gap_max) = (self.schedule.now, self.suspicion());
        let sender = self.governed.as_ref().and_then(|g| g.lines.agent_of(link));
        let Some((place, incarnation)) = sender else { return };
        let at = usize::from(self.node_at(place).0);
        // None of a process that does not count as the node.
        if self.fleet.records[at].incarnation != incarnation {
            return;
        }
        if let Some(governed) = self.governed.as_mut() {
            let beats = &mut governed.truth.beats;
            let key = (at, host);
            beats.insert(key, Streak::add(beats.get(&key), (incarnation.0, link.0), now, gap_max));
        }
    }

    pub(super) fn see_note(&mut self, host: usize, note: &Note) {
        self.schedule.log(|| format!("coordinator {host}: {note:?}"));
        match note {
            Note::Behind { .. } => {
                self.oracle.marks.see(Seen::StoreFoundOld);
                if self.governed.as_ref().is_some_and(|g| !g.troubles.store_is_old()) {
                    self.violate("D6: the newest store is taken for an old one".into());
                }
            }
            Note::StoreFailed(_) => {
                if let Some(governed) = self.governed.as_mut() {
                    governed.truth.is_late = true;
                }
            }
            // D11: also by a process that was told that it may end. Until its shard has stopped it may answer clients.
            Note::Ended { node, incarnation } if self.is_alive(*node, *incarnation) => {
                self.violate(format!("D11: {node} is certified as ended, and its shard runs"));
            }
            Note::Deposed => self.oracle.marks.see(Seen::Deposed),
            Note::StoreWentBack => {
                self.oracle.marks.see(Seen::StoreWentBack);
                // An old store that was put under this coordinator may count as the newest by now.
                let is_replaced = self.governed.as_ref().is_some_and(|g| {
                    let opened_at = g.hosts[host].opened_at;
                    g.troubles.replaced_at.is_some_and(|at| at >= opened_at)
                });
                if !is_replaced {
                    self.violate("D6: the newest store is taken for an older one than was committed".into());
                }
                // A supervisor starts the process again.
                self.push_control(Span::from_ms(100), Control::Trouble(Trouble::Start { host }));
            }
            _ => {}
        }
    }

    /// Configurations of a coordinator that are not in the history of the run.
    pub(super) fn unseen(&self, coordinator: &Coordinator<SharedStore>) -> Vec<Configuration> {
        let is_known = |c: &Configuration| {
            let ids = self.committed.ids.get(usize::from(c.list.0));
            ids.is_some_and(|ids| ids.get(c.epoch.0 as usize - 1) == Some(&c.id))
        };
        let unseen: Vec<&Configuration> = coordinator.configurations().filter(|c| !is_known(c)).collect();
        // They count once no process has anything that this store lacks.
        let has_landed = |c: &Configuration| self.governed.as_ref().is_some_and(|g| g.truth.landed.contains(&c.id));
        let lacks = |c: &Configuration| (0..self.fleet.processes.len()).any(|at| self.has_other(at, c));
        let counts = !unseen.iter().any(|c| has_landed(c)) || !coordinator.configurations().any(lacks);
        let unseen = unseen.into_iter().filter(|c| counts || !has_landed(c));
        unseen.cloned().collect()
    }

    /// Whether a node's process has a later configuration, or another one of the same epoch.
    fn has_other(&self, at: usize, than: &Configuration) -> bool {
        let is_other = |(epoch, id)| epoch > than.epoch || (epoch == than.epoch && id != than.id);
        self.installed(at, than.list).any(is_other)
    }

    /// Late commits have taken effect in an old store.
    pub(super) fn see_landed_on_old(&mut self) {
        let Some(reader) = self.store_reader() else { return };
        let ids: Vec<u64> = self.unseen(&reader).iter().map(|c| c.id).collect();
        if let Some(governed) = self.governed.as_mut() {
            governed.truth.landed.extend(ids);
        }
    }

    /// An old copy of the store is of a history that was given up for another old copy. What follows is not looked at.
    pub(super) fn excuse_given_up(&mut self, coordinator: &Coordinator<SharedStore>) {
        if coordinator.configurations().any(|c| self.is_given_up(c)) {
            self.oracle.excused = Some(Excuse::OtherHistory);
        }
    }

    /// Whether a configuration follows one that was given up, and no process has what was committed in its place: then
    /// a store of the history that was given up is all that is known of the list. A coordinator has begun with a copy
    /// of it, or it ran when its own store was put back, or an adoption has found it.
    fn goes_on_from_given_up(&self, new: &Configuration) -> bool {
        let Some(truth) = self.governed.as_ref().map(|g| &g.truth) else {
            return false;
        };
        let Some(mut id) = new.trail.first().filter(|id| truth.given_up.contains_key(id)) else {
            return false;
        };
        // The first epoch on which another decision counts.
        let mut since = new.epoch.0 - 1;
        while let Some(Some(before)) = truth.given_up.get(id)
            && truth.given_up.contains_key(before)
        {
            (id, since) = (before, since - 1);
        }
        let counts = |(epoch, id): (Epoch, u64)| {
            let ids = self.committed.ids.get(usize::from(new.list.0));
            epoch.0 >= since && ids.and_then(|ids| ids.get(epoch.0 as usize - 1)) == Some(&id)
        };
        let knows = |at: &usize| self.installed(*at, new.list).any(counts);
        !self.have_a_say((0..self.fleet.processes.len()).filter(knows))
    }

    /// Whether a coordinator hears one of these nodes before it decides. Without parity only the holder's vote counts.
    /// An old store may not have the process that knows: not at all, as ended, or behind a second process of its node.
    /// Then the coordinator does not wait for it (H58).
    fn have_a_say(&self, mut nodes: impl Iterator<Item = usize>) -> bool {
        let store = self.store_reader();
        let is_recorded = |at: usize, incarnation: Incarnation| {
            let mut nodes = store.iter().flat_map(Coordinator::nodes);
            nodes.any(|n| usize::from(n.id.0) == at && n.incarnation == incarnation && n.state == NodeState::Up)
        };
        nodes.any(|at| {
            let mut processes = self.fleet.of_node(at);
            self.swarm.parity > 0 || processes.any(|p| is_recorded(at, p.incarnation))
        })
    }

    /// Whether a configuration is of a history that was given up for an old copy of the store.
    pub(super) fn is_given_up(&self, configuration: &Configuration) -> bool {
        let governed = self.governed.as_ref();
        governed.is_some_and(|g| g.truth.given_up.contains_key(&configuration.id))
    }

    /// What a coordinator has that was given up. If it had that before an event, it did not commit it in that event: it
    /// does not know yet that another coordinator has gone on with an older store.
    pub(super) fn given_up_in(&self, coordinator: &Coordinator<SharedStore>) -> Vec<u64> {
        let given_up = coordinator.configurations().filter(|c| self.is_given_up(c));
        given_up.map(|c| c.id).collect()
    }

    /// Configurations as they are in the store now.
    pub(super) fn see_all_committed(&mut self, committed: Vec<Configuration>) {
        // What follows is of a history that the run does not know.
        if self.oracle.excused.is_some() {
            return;
        }
        if committed.iter().any(|c| self.goes_on_from_given_up(c)) {
            self.oracle.excused = Some(Excuse::OtherHistory);
            return;
        }
        let is_any = !committed.is_empty();
        let was_old = self.governed.as_ref().is_some_and(|g| g.troubles.store_is_old());
        for configuration in committed {
            self.see_adopted_before(&configuration);
            self.see_committed(configuration);
        }
        if was_old && is_any {
            self.fork_others();
        }
        if let Some(governed) = self.governed.as_mut().filter(|_| is_any) {
            (governed.truth.is_late, governed.truth.is_adopted) = (false, false);
        }
    }

    /// The outcome of an adoption was unknown, and it was done again: one epoch more without a change.
    fn see_adopted_before(&mut self, new: &Configuration) {
        let is_adopted = self.governed.as_ref().is_some_and(|g| g.truth.is_adopted);
        while let Some(old) = self.committed.configurations.get(usize::from(new.list.0)).cloned()
            && is_adopted
            && old.epoch.0 + 1 < new.epoch.0
            && self.oracle.violation.is_none()
        {
            let mut between = old.clone();
            between.epoch = Epoch(old.epoch.0 + 1);
            between.seal(Some(&old));
            self.see_committed(between);
        }
    }

    /// Records a configuration of the store.
    fn see_committed(&mut self, new: Configuration) {
        let at = usize::from(new.list.0);
        if self.committed.configurations.get(at).is_none() {
            self.committed.ids.push(vec![new.id]);
            self.committed.configurations.push(new.clone());
            if let Some(governed) = self.governed.as_mut() {
                governed.truth.chains.push(vec![new]);
            }
            return;
        }
        if new.epoch.0 <= self.committed.configurations[at].epoch.0 && !self.fork(&new) {
            return;
        }
        let old = self.committed.configurations[at].clone();
        self.oracle.counts.commits += 1;
        self.schedule.log(|| format!("committed {}", describe(&new)));
        if new.epoch.0 != old.epoch.0 + 1 {
            self.violate(format!(
                "D6: list {at} goes from epoch {} to {}",
                old.epoch.0, new.epoch.0
            ));
        }
        let is_adopted = self.governed.as_ref().is_some_and(|g| g.truth.is_adopted);
        if let Err(what) = paritas_control::check_transition(Some(&old), &new)
            && !(is_adopted && what.contains("nothing has changed"))
        {
            self.violate(format!("I11: {what}"));
        }
        for (i, (before, after)) in old.positions.iter().zip(&new.positions).enumerate() {
            let key = (new.list, Position(i as u8));
            let was = before.filter(|a| a.state.is_live()).map(|a| a.tenure);
            let is_taken = was.is_some() && after.map(|a| a.tenure) != was;
            let fenced = was.filter(|t| is_taken && self.is_alive(t.node, t.incarnation));
            if let Some(tenure) = fenced {
                self.oracle.counts.suspicions += 1;
                self.check_suspicion(&old, key.1, usize::from(tenure.node.0));
            }
            if let Some(governed) = self.governed.as_mut() {
                if fenced.is_some() {
                    governed.truth.fenced.insert(key);
                } else if after.is_some_and(|a| a.state.is_live()) {
                    governed.truth.fenced.remove(&key);
                }
            }
        }
        if new.lost && !old.lost {
            self.see_lost(&old);
        }
        if let Some(governed) = self.governed.as_mut() {
            // The store of this coordinator has the same configurations, or no process has the others. So this store
            // is the newest.
            governed.troubles.forget_newest();
            // The same may be decided again.
            governed.truth.given_up.remove(&new.id);
            governed.truth.chains[at].push(new.clone());
        }
        self.committed.ids[at].push(new.id);
        self.committed.configurations[at] = new;
    }

    /// D6: a coordinator with an old store decides on an epoch again. It may do so only if no process has the earlier
    /// decisions: then these do not count. Returns whether it was allowed.
    fn fork(&mut self, new: &Configuration) -> bool {
        let (at, epoch) = (usize::from(new.list.0), new.epoch.0);
        let has_newer = |at: &usize| self.installed(*at, new.list).any(|(e, _)| e.0 >= epoch);
        let known: Vec<usize> = (0..self.fleet.processes.len()).filter(has_newer).collect();
        // An adoption waits for each process that any record names, whether the store has it or not (P10.18).
        let is_adopted = self.governed.as_ref().is_some_and(|g| g.truth.is_adopted);
        if !known.is_empty() && !is_adopted && !self.have_a_say(known.iter().copied()) {
            self.oracle.excused = Some(Excuse::OtherHistory);
            return false;
        }
        if !known.is_empty() {
            self.violate(format!(
                "D6: the coordinator decides on epoch {epoch} of list {at} again, and {known:?} have it or a newer one"
            ));
            return false;
        }
        self.schedule
            .log(|| format!("list {at} forks at {epoch}: no process has the earlier decisions"));
        self.oracle.marks.see(Seen::Forked);
        let Some(governed) = self.governed.as_mut() else {
            return false;
        };
        let before = (epoch as usize).checked_sub(2);
        if before.is_none_or(|before| self.committed.ids[at].get(before) != new.trail.first()) {
            // Either the list begins again, because the store is from before the list. Or the new configuration follows
            // one that was given up: two old stores were used one after the other.
            self.oracle.excused = Some(Excuse::OtherHistory);
            return false;
        }
        let ids = &self.committed.ids[at];
        let given_up = ids.iter().enumerate().skip(epoch as usize - 1);
        let with_parent = given_up.map(|(i, id)| (*id, i.checked_sub(1).map(|before| ids[before])));
        governed.truth.given_up.extend(with_parent);
        governed.truth.chains[at].truncate(epoch as usize - 1);
        let Some(parent) = governed.truth.chains[at].last().cloned() else {
            self.violate(format!("D6: list {at} begins again"));
            return false;
        };
        self.committed.ids[at].truncate(epoch as usize - 1);
        self.committed.configurations[at] = parent;
        self.oracle.ghosts[at].forget_from(new.epoch);
        true
    }

    /// An old store is the newest one from now on. Decisions on other lists that it lacks do not count any more. No
    /// process may have such a decision (D6).
    pub(super) fn fork_others(&mut self) {
        if self.oracle.excused.is_some() {
            return;
        }
        let Some(reader) = self.store_reader() else { return };
        for stored in reader.configurations() {
            let at = usize::from(stored.list.0);
            let is_ahead = self
                .committed
                .configurations
                .get(at)
                .is_some_and(|c| c.epoch > stored.epoch);
            if !is_ahead {
                continue;
            }
            let mut next = stored.clone();
            next.epoch = Epoch(stored.epoch.0 + 1);
            next.seal(Some(stored));
            self.fork(&next);
        }
    }

    pub(super) fn is_alive(&self, node: NodeId, incarnation: Incarnation) -> bool {
        self.fleet.runs(usize::from(node.0), incarnation)
    }

    /// D3: a node is not removed for silence if a peer hears it that the coordinator hears, nor soon after the start of
    /// the coordinator.
    fn check_suspicion(&mut self, old: &Configuration, position: Position, node: usize) {
        // An excused run is not checked any further.
        if self.oracle.excused.is_some() {
            return;
        }
        let (now, suspicion) = (self.schedule.now, self.suspicion());
        let Some(truth) = self.governed.as_ref().map(|g| &g.truth) else {
            return;
        };
        let beats = |at: usize| {
            let of_node = truth.beats.range((at, 0)..(at + 1, 0)).map(|(_, streak)| streak);
            let incarnation = self.fleet.records[at].incarnation;
            of_node.filter(|s| s.of.0 == incarnation.0).max_by_key(|s| s.last)
        };
        // If the coordinator hears the node, it removed it by a planned move or for a broken link. That may also be so
        // if the coordinator hears no node.
        let stood_still = truth.is_late
            || self
                .governed
                .iter()
                .flat_map(|g| &g.hosts)
                .any(|host| now - host.stopped_until < suspicion);
        if stood_still || beats(node).is_some_and(|s| now - s.last < suspicion) {
            return;
        }
        // What a stand-in holds besides is moved without regard to silence (P10.5).
        if old.of_node(NodeId(node as u16)).count() > 1 {
            return;
        }
        self.oracle.marks.see(Seen::FalselySuspected);
        let running = || {
            let hosts = self.governed.iter().flat_map(|g| &g.hosts);
            hosts.filter(|host| host.coordinator.is_some())
        };
        let is_young = |host: &Host| host.found_lists && now - host.opened_at < GRACE_MIN;
        if running().next().is_some() && running().all(is_young) {
            return self.violate(format!(
                "D3: n{node} is removed for silence just after the start of the coordinator"
            ));
        }
        // Nodes of which the coordinator has not heard for so long that it must count them as silent.
        let is_silent = |at: usize| {
            let of_incarnation = |incarnation| {
                self.committed
                    .configurations
                    .iter()
                    .any(|c| c.held_by(NodeId(at as u16), incarnation).next().is_some())
            };
            let holds = self.fleet.processes[at]
                .as_ref()
                .is_some_and(|p| of_incarnation(p.incarnation));
            holds && beats(at).is_some_and(|s| now - s.last > suspicion + Span::from_ms(1))
        };
        let holders: BTreeSet<NodeId> = self
            .committed
            .configurations
            .iter()
            .flat_map(|c| c.positions.iter().flatten())
            .map(|a| a.tenure.node)
            .collect();
        let silent: Vec<usize> = (0..self.fleet.processes.len()).filter(|at| is_silent(*at)).collect();
        if silent.len() > usize::from(old.parity).max(holders.len() / 4) {
            return self.violate(format!(
                "D3: n{node} is removed for silence while {silent:?} are silent at once"
            ));
        }
        let lasts =
            |s: &Streak| now - s.first >= suspicion + Span::from_ms(250) && now - s.last <= Span(suspicion.0 / 2);
        let peer = |at: usize| {
            let incarnation = self.fleet.processes[at]
                .as_ref()
                .map(|p| (p.incarnation, p.paused_until));
            let (incarnation, paused_until) = incarnation?;
            let of_other_kind = |(p, _): (Position, _)| old.is_data(p) != old.is_data(position);
            let is_peer = old.held_by(NodeId(at as u16), incarnation).any(of_other_kind);
            let of = (incarnation.0, self.fleet.records[node].incarnation.0);
            let hears = truth.heard.get(&(at, node)).is_some_and(|s| s.of == of && lasts(s));
            let is_awake = paused_until == Time(0) || now - paused_until > suspicion + suspicion;
            (at != node && is_peer && hears && is_awake && beats(at).is_some_and(lasts)).then_some(at)
        };
        if let Some(peer) = (0..self.fleet.processes.len()).find_map(peer) {
            self.violate(format!(
                "D3: n{node} is removed from list {} for silence, and n{peer} hears it",
                old.list.0
            ));
        }
    }

    /// D1: kills stay within what the committed configuration covers. So a lost list must be one that would not be lost
    /// without the false suspicions.
    fn see_lost(&mut self, old: &Configuration) {
        // An excused run is not checked any further.
        if self.oracle.excused.is_some() {
            return;
        }
        let missing = |parity: bool, also_fenced: bool| {
            let positions = (0..old.positions.len()).filter(|i| (*i >= usize::from(old.data)) == parity);
            let is_missing = |i: &usize| {
                let key = (old.list, Position(*i as u8));
                let is_fenced = self.governed.as_ref().is_some_and(|g| g.truth.fenced.contains(&key));
                let incarnations = old.positions[*i]
                    .is_some_and(|a| a.state.is_live() && self.is_alive(a.tenure.node, a.tenure.incarnation));
                !incarnations && (also_fenced || !is_fenced)
            };
            positions.filter(is_missing).count()
        };
        let decodable = |also_fenced: bool| {
            is_decodable(
                missing(false, also_fenced),
                missing(true, also_fenced),
                old.parity.into(),
                old.ack_quorum.into(),
            )
        };
        if decodable(true) || !decodable(false) {
            self.violate(format!(
                "D1: list {} is called lost: it was {}",
                old.list.0,
                describe(old)
            ));
        } else {
            self.oracle.excused = Some(Excuse::Lost);
        }
    }

    /// An incarnation that is told that it is over holds nothing that counts.
    pub(super) fn check_may_end(&mut self, at: usize, incarnation: Incarnation) {
        let node = NodeId(at as u16);
        let holds = |c: &Configuration| c.held_by(node, incarnation).any(|(_, a)| a.state.is_live());
        let counts = self.swarm.parity > 0;
        if counts && self.committed.configurations.iter().any(holds) {
            self.violate(format!(
                "D1: n{at} is told that its incarnation is over, and holds a Live position"
            ));
        }
    }

    /// D4: what a process installs is of the one history of its list.
    pub(crate) fn check_installed(&mut self, at: usize) {
        self.check_version(at);
        let Some(process) = self.fleet.processes[at].as_ref().filter(|_| self.governed.is_some()) else {
            return;
        };
        let strange = process.node.replica().lists().find(|list| {
            let c = &list.configuration;
            let ids = self.committed.ids.get(usize::from(c.list.0));
            ids.and_then(|ids| ids.get(c.epoch.0 as usize - 1)) != Some(&c.id)
        });
        if let Some(list) = strange {
            let what = format!("D4: n{at} has {} of another history", describe(&list.configuration));
            self.violate(what);
        }
    }
}
