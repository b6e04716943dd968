//! What a keeper learns from owners: who they are, which groups are alive, and which are dead (P14.3 to P14.6). And
//! whether it has all parts that it must have (P14.9).

use super::{Held, Keeper, MAKERS_MAX, Maker, PartId, State, Units};
use crate::ledger::{Alive, Page};
use crate::{GroupId, PartName, Placement};
use core::ops::Bound;
use paritas_base::{PartState, Position, Term};
use std::collections::BTreeSet;

/// What a holder knows of the list of one stream.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Everything up to here has been compared, in the pages that answer this tenure's question.
    after: Option<GroupId>,
    /// Its end was reached once in this tenure.
    is_whole: bool,
    /// Its end was reached since the stream has its present owner, or since the last scrub.
    is_current: bool,
    /// The term of the stream's owner by the installed configuration.
    term: Term,
}

impl<U: core::fmt::Debug> Keeper<U> {
    /// Who owns a stream by the installed configuration. Called for every stream before any message of that owner.
    ///
    /// If that is news, what the former one opened is given up, and its list is asked for again.
    pub fn on_owner<M: Units<Unit = U>>(&mut self, memory: &mut M, x: Position, term: Term) {
        let listing = self.lists.entry(x).or_default();
        if listing.term == term {
            return;
        }
        listing.term = term;
        let torn: Vec<PartId> = self.torn(x, term).collect();
        for id in torn {
            self.drop_part(memory, &id);
        }
        // One whole list in a tenure is enough for parts: what was staged before is in it, and what came later
        // required this holder. It is asked for again to free what the former owner could not.
        self.ask_list(x);
    }

    /// The list of a stream is asked for again: a scrub compares what is here with what should be.
    pub fn ask_list(&mut self, x: Position) {
        if let Some(listing) = self.lists.get_mut(&x) {
            (listing.after, listing.is_current) = (None, false);
        }
    }

    /// Which page of a stream's list to ask for next.
    pub fn next_page(&self, x: Position) -> Option<GroupId> {
        self.lists.get(&x).and_then(|listing| listing.after)
    }

    /// A page of a stream's list. `answers`: it answers a question of this tenure.
    ///
    /// Returns whether the list is whole.
    pub fn on_page<M: Units<Unit = U>>(&mut self, memory: &mut M, x: Position, page: &Page, answers: bool) -> bool {
        self.free_others(memory, x, page);
        let listing = self.lists.entry(x).or_default();
        // A group that a former owner reports as dead stays dead. A group that it reports as alive may have died since.
        if listing.term != page.term {
            return listing.is_whole;
        }
        for alive in &page.alive {
            self.want(memory, x, alive);
        }
        let listing = self.lists.entry(x).or_default();
        if answers && listing.after == page.after {
            listing.after = (!page.is_end).then_some(page.last);
            listing.is_whole |= page.is_end;
            listing.is_current = page.is_end;
        }
        listing.is_whole
    }

    /// Frees the parts of groups that a page covers and does not name.
    fn free_others<M: Units<Unit = U>>(&mut self, memory: &mut M, x: Position, page: &Page) {
        if page.after.is_some_and(|after| after >= page.last) {
            return;
        }
        let alive: BTreeSet<GroupId> = page.alive.iter().map(|alive| alive.group).collect();
        let end = |group, number| PartId {
            x,
            name: PartName { group, number },
        };
        let from = match page.after {
            Some(after) => Bound::Excluded(end(after, u8::MAX)),
            None => Bound::Included(end(GroupId::limit(0), 0)),
        };
        let covered = (from, Bound::Included(end(page.last, u8::MAX)));
        let goes = |id: &PartId| !alive.contains(&id.name.group);
        let parts = self.parts.range(covered).map(|(id, _)| *id);
        let gone: Vec<PartId> = parts.filter(&goes).collect();
        for id in gone {
            self.drop_part(memory, &id);
        }
        let owed: Vec<PartId> = self.owed.range(covered).map(|(id, _)| *id).filter(goes).collect();
        for id in owed {
            self.owed.remove(&id);
        }
    }

    /// Makes the parts of a group that this position should have and lacks. Parts of a value that is being staged are
    /// made when its owner says so.
    fn want<M: Units<Unit = U>>(&mut self, memory: &mut M, x: Position, alive: &Alive) {
        let record = &alive.record;
        let Ok(placement) = Placement::at(record.class, record.first, self.positions, record.logged) else {
            return;
        };
        let position = self.position;
        for part in placement.parts().filter(|part| part.position == position) {
            let name = record.name_of(&part);
            let id = PartId { x, name };
            if name.group != alive.group || alive.is_staging {
                continue;
            }
            if let Some(held) = self.parts.get_mut(&id) {
                held.fingerprint = None;
            }
            match self.parts.get(&id).map(|held| &held.state) {
                Some(State::Kept) => {
                    self.owed.remove(&id);
                    continue;
                }
                Some(State::Making(maker)) if maker.is_of(record) => {
                    self.owed.remove(&id);
                    continue;
                }
                Some(State::Wrong(repair)) => {
                    self.owed.remove(&id);
                    if !repair.maker.is_of(record) {
                        let wrong = repair.wrong;
                        self.repair(memory.unit_bytes(), id, record, wrong);
                    }
                    continue;
                }
                // An object names the group: its writer sends nothing more. Or the value got another class, and with it
                // other sources.
                Some(_) => self.drop_part(memory, &id),
                None => {}
            }
            if self.make(memory, id, record, MAKERS_MAX) != PartState::Making {
                self.owed.insert(id, Some(record.clone()));
            }
        }
    }

    /// These groups are dead.
    pub fn on_free<M: Units<Unit = U>>(&mut self, memory: &mut M, x: Position, groups: &BTreeSet<GroupId>) {
        for group in groups {
            let name = |number| PartName { group: *group, number };
            let all = PartId { x, name: name(0) }..=PartId { x, name: name(u8::MAX) };
            let gone: Vec<PartId> = self.parts.range(all.clone()).map(|(id, _)| *id).collect();
            for id in gone {
                self.drop_part(memory, &id);
            }
            self.owed.retain(|id, _| !all.contains(id));
        }
    }

    /// Whether a stream's list must be asked for: it was not compared to its end, a part was declined since, or one
    /// cannot be made, perhaps since its group is dead.
    pub fn needs_list(&self, x: Position) -> bool {
        let is_stuck = |(id, held): (&PartId, &Held<U>)| id.x == x && held.maker().is_some_and(Maker::is_stuck);
        let is_listed = self.lists.get(&x).is_some_and(|listing| listing.is_current);
        !is_listed || self.owes(x) || self.unfinished().any(is_stuck)
    }

    /// Whether this position has every part that it must have of these streams, so that it may become Live. From the
    /// first time that this is true, it declines nothing.
    pub fn is_whole(&mut self, mut streams: impl Iterator<Item = Position>) -> bool {
        let is_making = |held: &Held<U>| matches!(held.state, State::Making(_));
        let listed = streams.all(|x| self.lists.get(&x).is_some_and(|listing| listing.is_whole));
        let is_whole = !self.may_decline
            || (listed && self.owed.is_empty() && !self.unfinished().any(|(_, held)| is_making(held)));
        self.may_decline &= !is_whole;
        is_whole
    }

    /// Whether the list of a stream was compared to its end since it was asked for last.
    pub fn is_compared(&self, x: Position) -> bool {
        self.lists.get(&x).is_some_and(|listing| listing.is_current)
    }

    /// Whether it has declined a part of this stream, or had no memory for one, and no list has settled that.
    pub fn owes(&self, x: Position) -> bool {
        self.owed.keys().any(|id| id.x == x)
    }

    /// Parts of a stream that an owner with another term has opened. After [`Self::on_owner`] there are none.
    pub fn torn(&self, x: Position, term: Term) -> impl Iterator<Item = PartId> + '_ {
        let is_torn = move |id: &PartId, held: &Held<U>| {
            id.x == x && matches!(held.state, State::Open(opened, _) if opened != term)
        };
        self.unfinished()
            .filter(move |(id, held)| is_torn(id, held))
            .map(|(id, _)| *id)
    }
}
