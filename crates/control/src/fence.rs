//! Who may be fenced (P10.9 to P10.12). This file alone takes positions from their holders.
//!
//! A process has *ended* when its supervisor certified that, or when a later incarnation of its node was accepted. In
//! every other case it is *silent*. An end costs redundancy at once. Silence only costs time: a silent holder is
//! removed only if its peers do not hear it either.

mod silence;

use crate::check::{is_decodable, survives};
use crate::rules::{Facts, Removal};
use paritas_base::configuration::{Assignment, Configuration, PositionState, Tenure};
use paritas_base::{NodeId, Position};
use std::collections::BTreeSet;

pub(crate) use silence::{DIAL_MAX, Hold, Holder, LINK_TIMEOUT, Opinion, REDIAL_MAX, Silence, grace, witnesses};

/// Why a position gets another holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// It is vacant.
    Vacant,
    /// The holder's incarnation has ended, or its role has halted.
    Ended,
    /// The holder is suspect, or the rules remove it because of a broken link (P10.2).
    Suspect,
    /// A planned move (P5.12, P10.2a, P10.5).
    Planned,
    /// The list is lost and begins again empty (P10.6).
    Reset,
}

/// The right to give one position another holder. Only [`Fence::remove`] makes one.
#[derive(Debug)]
pub(crate) struct Permit {
    position: usize,
}

/// A list's next configuration while the rules compute it.
pub(crate) struct Fence<'a> {
    pub(crate) old: &'a Configuration,
    new: Configuration,
    pub(crate) facts: &'a mut Facts,
    /// Positions that leave because of silence or a broken link. They count as missing together (P10.3).
    leaving: BTreeSet<usize>,
}

impl<'a> Fence<'a> {
    /// Begins with `new` as the next configuration.
    pub(crate) fn new(old: &'a Configuration, new: Configuration, facts: &'a mut Facts) -> Self {
        Self {
            old,
            new,
            facts,
            leaving: BTreeSet::new(),
        }
    }

    /// The next configuration, as computed so far.
    pub(crate) fn next(&self) -> &Configuration {
        &self.new
    }

    /// The result.
    pub(crate) fn into_next(self) -> Configuration {
        self.new
    }

    pub(crate) fn tenure(&self, i: usize) -> Option<Tenure> {
        self.new.positions[i].map(|a| a.tenure)
    }

    pub(crate) fn is_parity(&self, i: usize) -> bool {
        i >= usize::from(self.new.data)
    }

    pub(crate) fn is_live(&self, i: usize) -> bool {
        self.new.positions[i].is_some_and(|a| a.state.is_live())
    }

    /// Whether the holder's data is lost: its incarnation has ended, or its role has halted.
    pub(crate) fn is_ended(&self, i: usize) -> bool {
        self.tenure(i).is_some_and(|t| {
            let halted = (self.new.list, Position(i as u8), t.node, t.incarnation);
            self.facts.is_ended(t.node, t.incarnation) || self.facts.halted.contains(&halted)
        })
    }

    /// Whether the holder has ended, or was told that it may end (P10.20).
    pub(crate) fn may_end(&self, i: usize) -> bool {
        let leaves = |t: Tenure| self.facts.leaves(t.node, t.incarnation);
        self.is_ended(i) || self.tenure(i).is_some_and(leaves)
    }

    pub(crate) fn is_silent(&self, i: usize) -> bool {
        self.tenure(i).is_some_and(|t| self.facts.is_silent(t.node))
    }

    /// Whether the peers of the holder do not hear it either, so that it may be removed.
    pub(crate) fn is_suspect(&self, i: usize) -> bool {
        self.tenure(i).is_some_and(|t| self.facts.suspects.contains(&t.node))
    }

    /// Whether the holder is known to have run after the removal of the leaving positions was wanted. A holder that
    /// died just before that is not silent yet, but gives no redundancy. If it runs, it answers a `Ping`.
    fn is_proven(&self, i: usize) -> bool {
        let Some(proof) = self.tenure(i).and_then(|t| self.facts.proof(t.node)) else {
            return false;
        };
        let since = |removal: Removal| self.facts.wanted.get(&removal).copied();
        self.removals()
            .all(|removal| since(removal).is_some_and(|since| proof >= since))
    }

    /// The removals of those that leave. Some positions may have their successors already.
    fn removals(&self) -> impl Iterator<Item = Removal> {
        let leaving = self.leaving.iter().filter_map(|o| self.old.positions[*o]);
        leaving.map(|held| (self.old.list, self.old.epoch, held.tenure.node))
    }

    /// Whether the holder is silent, and no peer hears it. A lost list may have no peer left to vote, and it has
    /// no redundancy to spend.
    pub(crate) fn is_unheard(&self, i: usize) -> bool {
        let isolated = |t: Tenure| self.facts.isolated.contains(&t.node);
        self.is_silent(i) && self.facts.hold.is_none() && !self.tenure(i).is_some_and(isolated)
    }

    /// Whether the list could be rebuilt without the positions that are not Live and those that `without` names.
    pub(crate) fn decodable_without(&self, without: impl Fn(usize) -> bool) -> bool {
        let missing = |parity: bool| {
            let positions = (0..self.new.positions.len()).filter(|i| self.is_parity(*i) == parity);
            positions.filter(|i| !self.is_live(*i) || without(*i)).count()
        };
        is_decodable(
            missing(false),
            missing(true),
            self.new.parity.into(),
            self.new.ack_quorum.into(),
        )
    }

    /// Whether a process that has not ended fills a position.
    pub(crate) fn is_any_filling(&self) -> bool {
        let mut positions = 0..self.new.positions.len();
        positions.any(|i| self.tenure(i).is_some() && !self.is_live(i) && !self.is_ended(i))
    }

    /// How many further losses the list survives while the position is vacant.
    pub(crate) fn survives_without(&self, i: usize) -> usize {
        let mut meanwhile = self.new.clone();
        meanwhile.positions[i] = None;
        survives(&meanwhile)
    }

    /// Names the positions that leave because of silence or a broken link.
    pub(crate) fn set_leaving(&mut self, leaving: BTreeSet<usize>) {
        self.leaving = leaving;
    }

    /// Notes their removal as wanted if the list could be rebuilt without them from the holders that may run.
    pub(crate) fn want_leaving(&mut self) {
        if self.decodable_without(|o| self.leaving.contains(&o) || self.may_end(o)) {
            let wants: Vec<Removal> = self.removals().collect();
            self.facts.wants.extend(wants);
        }
    }

    /// Asks for the right to give a position another holder. `None`: the present one stays.
    ///
    /// P10.3 holds for every holder that has not ended: the list can be rebuilt without it, without all others that
    /// leave in the same commit, and without those that have ended or were told that they may. If it leaves because of
    /// silence or a broken link, also without those that may have died before that was wanted.
    pub(crate) fn remove(&self, i: usize, cause: Cause) -> Option<Permit> {
        let may = match cause {
            Cause::Vacant => self.new.positions[i].is_none(),
            Cause::Ended => self.is_ended(i),
            Cause::Suspect => {
                let gone = |o: usize| self.leaving.contains(&o) || self.may_end(o) || !self.is_proven(o);
                let borne = !self.is_live(i) || self.decodable_without(gone);
                self.new.parity > 0 && self.leaving.contains(&i) && borne
            }
            Cause::Planned => {
                let gone = |o: usize| o == i || self.may_end(o) || self.is_silent(o);
                let borne = !self.is_live(i) || self.decodable_without(gone);
                self.new.parity > 0 && self.facts.hold.is_none() && borne
            }
            Cause::Reset => {
                let is_over = self.tenure(i).is_none() || self.is_ended(i) || self.is_unheard(i);
                // A holder that answers begins again itself: it installs the reset and drops what it had.
                let answers = self
                    .tenure(i)
                    .is_some_and(|t| self.facts.answers(t.node, t.incarnation));
                self.new.lost && (is_over || answers)
            }
        };
        may.then_some(Permit { position: i })
    }

    /// Gives the position to a node in its present incarnation.
    pub(crate) fn assign(&mut self, permit: Permit, node: NodeId) {
        let i = permit.position;
        self.unload(i);
        let Some(facts) = self.facts.nodes.get_mut(&node) else {
            return;
        };
        facts.load += 1;
        let tenure = Tenure {
            node,
            incarnation: facts.incarnation,
            since: self.new.epoch,
        };
        // Without parity there is nothing to rebuild a position from: it begins empty.
        let state = if self.new.parity == 0 {
            self.new.born = self.new.epoch;
            PositionState::Born
        } else {
            PositionState::Filling
        };
        self.new.positions[i] = Some(Assignment { tenure, state });
    }

    /// Makes the position vacant.
    pub(crate) fn vacate(&mut self, permit: Permit) {
        let i = permit.position;
        if let Some(tenure) = self.tenure(i) {
            let key = (self.new.list, Position(i as u8));
            self.facts.vacated.insert(key, tenure.node);
        }
        self.unload(i);
        self.new.positions[i] = None;
    }

    fn unload(&mut self, i: usize) {
        if let Some(held) = self.tenure(i).and_then(|t| self.facts.nodes.get_mut(&t.node)) {
            held.load = held.load.saturating_sub(1);
        }
    }

    /// The holder of a position has all its data (P5.6, P6.5): compare-and-swap on the tenure.
    pub(crate) fn grant(&mut self, position: Position, tenure: Tenure) {
        let ended = self.is_ended(position.index());
        let lost = self.new.lost;
        if let Some(Some(held)) = self.new.positions.get_mut(position.index())
            && held.tenure == tenure
            && !ended
            && !lost
        {
            held.state = PositionState::Live;
        }
    }

    /// The list has lost more than its scheme covers (P10.6).
    pub(crate) fn set_lost(&mut self) {
        self.new.lost = true;
    }

    /// Every position begins again empty (P10.6).
    pub(crate) fn begin_again(&mut self) {
        self.new.lost = false;
        self.new.born = self.new.epoch;
        for held in self.new.positions.iter_mut().flatten() {
            held.state = PositionState::Born;
        }
    }

    /// Reverts all changes of holders since the old configuration.
    pub(crate) fn undo_holders(&mut self, before: Vec<Option<Assignment>>) {
        self.new.positions = before;
    }

    /// Incarnations certified ended that owners may wait for (P5.5).
    pub(crate) fn set_gone(&mut self, gone: Vec<(NodeId, paritas_base::Incarnation)>) {
        self.new.gone = gone;
    }
}
