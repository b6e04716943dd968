//! `Keeper`: the parts of large values that one position of a stripe list holds, in one tenure of its holder.
//!
//! It does no I/O. The host hands it the messages of owners, sends its answers, and gives it memory. Parts never change
//! once they are whole, so a keeper needs no order between streams: it takes parts of every stream of its list.
//!
//! A part is *open* while its writer sends its units in order. It is *kept* once it has all of them. It is *made* if
//! its units are computed from other parts: the holder is new, or the writer's units have not all arrived. It is
//! *repaired* if units have wrong bytes: it is kept meanwhile.

mod client;
mod lists;
mod make;
mod repair;

use crate::fingerprint::{Fingerprint, FingerprintKey, Folding};
use crate::{GroupId, Part, PartName, Placement, Record};
pub use client::Put;
use lists::Listing;
pub use make::Fetch;
use make::Maker;
use paritas_base::{PartState, Position, Term};
use paritas_code::{crc32c_append, sum};
use repair::{Repair, Scrub};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Stands for a whole part in place of a unit's number: asks whether the part is kept and, as far as is known, has no
/// wrong bytes.
pub const WHOLE_PART: u32 = u32::MAX;
/// Limit of parts that are made at a time. If a command waits for a part, the limit is twice that. Further parts are
/// only recorded.
const MAKERS_MAX: usize = 64;

/// Memory for units, at the host. A unit has at most the bytes of a chunk.
pub trait Units {
    /// One unit in memory.
    type Unit: core::fmt::Debug;
    /// Bytes of a full unit.
    fn unit_bytes(&self) -> u32;
    /// Units that still fit in memory.
    fn room(&self) -> u64;
    /// Stores these bytes. `None` if there is no memory.
    fn store(&mut self, bytes: &[u8]) -> Option<Self::Unit>;
    /// What is known of a unit without I/O; its bytes are `length` of them.
    fn stored<'a>(&'a self, unit: &'a Self::Unit, length: u32) -> Stored<'a>;
    /// Replaces the bytes of a unit by as many others.
    fn overwrite(&mut self, unit: &mut Self::Unit, bytes: &[u8]);
    /// Gives the memory of a unit back.
    fn free(&mut self, unit: Self::Unit);
}

/// Where the bytes of a unit are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stored<'a> {
    /// In memory.
    Here(&'a [u8]),
    /// On a disk, as far as is known. They must be read first.
    OnDisk,
    /// Nowhere: the disk has lost them.
    Lost,
}

impl Stored<'_> {
    /// Whether the bytes have this sum, as far as is known.
    fn has(self, sum: u32, unit_bytes: u32) -> bool {
        match self {
            Stored::Here(bytes) => sum_of(bytes, unit_bytes) == sum,
            Stored::OnDisk => true,
            Stored::Lost => false,
        }
    }
}

/// The name of a part in its list: a stream, and a name in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PartId {
    /// The data position of the stream.
    pub x: Position,
    /// The part's name in the stream.
    pub name: PartName,
}

/// One part.
#[derive(Debug)]
struct Held<U> {
    record: Arc<Record>,
    part: Part,
    units: Vec<U>,
    sums: Vec<u32>,
    state: State,
    /// Of a part whose units a client has sent, until an object names its group.
    fingerprint: Option<Box<Fingerprint>>,
}

#[derive(Debug)]
enum State {
    /// The owner's term when it was opened. And what folds the units, if they come from a client.
    Open(Term, Option<Box<Folding>>),
    Making(Box<Maker>),
    Kept,
    /// It is kept, and at least one unit has wrong bytes.
    Wrong(Box<Repair>),
}

/// The parts of one position.
#[derive(Debug)]
pub struct Keeper<U> {
    position: u8,
    /// Positions of the list in memory.
    positions: u8,
    parts: BTreeMap<PartId, Held<U>>,
    /// Those of them that are open, being made or repaired: few, even if there are many parts.
    unfinished: BTreeSet<PartId>,
    /// Parts that were declined, or that a list names and there was no memory for.
    owed: BTreeMap<PartId, Option<Arc<Record>>>,
    lists: BTreeMap<Position, Listing>,
    /// It may still decline: it is Filling and has not asked to become Live.
    may_decline: bool,
    /// Parts that it has begun to make or to repair.
    makers: u64,
    scrub: Scrub,
    repaired: u64,
}

impl<U: core::fmt::Debug> Keeper<U> {
    /// A keeper without parts, for `position` of a list with `positions` positions in memory. Those on log nodes follow
    /// them. `is_born`: the list begins, so there are no parts to look for.
    pub fn new(position: u8, positions: u8, is_born: bool) -> Self {
        Self {
            position,
            positions,
            parts: BTreeMap::new(),
            unfinished: BTreeSet::new(),
            owed: BTreeMap::new(),
            lists: BTreeMap::new(),
            may_decline: !is_born,
            makers: 0,
            scrub: Scrub::default(),
            repaired: 0,
        }
    }

    // --- writing ---------------------------------------------------------------------------------------------------

    /// An owner opens a part for a writer: for its own units, or for those of a client, which are folded under this key
    /// (P14.20).
    pub fn on_open<M: Units<Unit = U>>(
        &mut self,
        memory: &M,
        id: PartId,
        record: &Arc<Record>,
        owner_term: Term,
        by_client: Option<FingerprintKey>,
    ) -> PartState {
        if let Some(held) = self.parts.get(&id) {
            return held.answer();
        }
        // Its owner may have the first answer by now, and writes without this part.
        if self.owed.contains_key(&id) {
            return PartState::Declined;
        }
        match self.room_for(memory, id, record) {
            // Its owner gives the value up (P14.18): nothing is owed.
            Err(answer) if by_client.is_some() => answer,
            Err(answer) => self.owe(id, answer),
            Ok(part) => {
                let folding = by_client.map(|key| Box::new(Folding::new(key)));
                self.insert(id, Held::new(record.clone(), part, State::Open(owner_term, folding)));
                PartState::Open(0)
            }
        }
    }

    /// An owner sends the next unit of a part that it has opened for its own units.
    ///
    /// `None`: no such part is open, or the unit is not the next one. Nothing is changed.
    pub fn on_put<M: Units<Unit = U>>(
        &mut self,
        memory: &mut M,
        id: PartId,
        unit: u32,
        bytes: &[u8],
    ) -> Option<PartState> {
        let held = self.parts.get(&id)?;
        let is_next = matches!(held.state, State::Open(_, None)) && held.units.len() == unit as usize;
        if !is_next || held.length_of(unit, memory.unit_bytes()) != Some(bytes.len() as u32) {
            return None;
        }
        Some(self.take(memory, &id, bytes))
    }

    /// Takes the next unit of an open part. Says whether the part is whole now, or broken and dropped.
    fn take<M: Units<Unit = U>>(&mut self, memory: &mut M, id: &PartId, bytes: &[u8]) -> PartState {
        let Some(held) = self.parts.get_mut(id) else {
            return PartState::Unknown;
        };
        let is_whole = held.add(memory, bytes).then(|| held.is_full(memory.unit_bytes()));
        match is_whole {
            Some(false) => PartState::Taken(held.units.len() as u32),
            Some(true) if !held.has_lost(memory) => {
                held.state = State::Kept;
                self.unfinished.remove(id);
                PartState::Kept(held.check())
            }
            _ => {
                self.drop_part(memory, id);
                PartState::Broken
            }
        }
    }

    /// A sender asks how many units of a part are here. Unlike its owner, it opens nothing.
    pub fn on_ask(&self, id: &PartId) -> PartState {
        self.parts.get(id).map_or(PartState::Unknown, Held::answer)
    }

    /// An owner wants a part made from the others: a command waits for it. `record` has the checks of the value.
    pub fn on_make<M: Units<Unit = U>>(&mut self, memory: &mut M, id: PartId, record: &Arc<Record>) -> PartState {
        if matches!(self.parts.get(&id), Some(held) if matches!(held.state, State::Open(..))) {
            self.drop_part(memory, &id);
        }
        let answer = match self.parts.contains_key(&id) {
            true => PartState::Making,
            false => self.make(memory, id, record, 2 * MAKERS_MAX),
        };
        let Some(held) = self.parts.get_mut(&id) else {
            return answer;
        };
        if let State::Making(maker) = &mut held.state {
            maker.is_waited_for = true;
        }
        held.answer()
    }

    fn make<M: Units<Unit = U>>(
        &mut self,
        memory: &M,
        id: PartId,
        record: &Arc<Record>,
        makers_max: usize,
    ) -> PartState {
        if self.making_count() >= makers_max {
            // It is made when others are done.
            self.owed.insert(id, Some(record.clone()));
            return PartState::Making;
        }
        match self.room_for(memory, id, record) {
            Err(answer) => self.owe(id, answer),
            Ok(part) => {
                self.makers += 1;
                let Some(maker) = Maker::new(record, part, self.positions, memory.unit_bytes(), self.makers) else {
                    return PartState::Unknown;
                };
                self.owed.remove(&id);
                let state = State::Making(Box::new(maker));
                self.insert(id, Held::new(record.clone(), part, state));
                PartState::Making
            }
        }
    }

    /// The part, if the record places it at this position and there is memory for it.
    fn room_for<M: Units<Unit = U>>(&self, memory: &M, id: PartId, record: &Arc<Record>) -> Result<Part, PartState> {
        let found = Placement::at(record.class, record.first, self.positions, record.logged).ok();
        let mut parts = found.into_iter().flat_map(Placement::parts);
        let part = parts.find(|part| part.position == self.position && record.name_of(part) == id.name);
        let layout = record.layout(memory.unit_bytes());
        let (Some(part), Some(layout)) = (part, layout) else {
            return Err(PartState::Unknown);
        };
        let reserved: u64 = self
            .unfinished()
            .map(|(_, held)| held.missing(memory.unit_bytes()))
            .sum();
        if memory.room() >= reserved + u64::from(part.content.units(&layout)) {
            return Ok(part);
        }
        if self.may_decline {
            return Err(PartState::Declined);
        }
        Err(PartState::NoRoom)
    }

    /// A part that it declines is owed.
    fn owe(&mut self, id: PartId, answer: PartState) -> PartState {
        if answer == PartState::Declined {
            self.owed.entry(id).or_insert(None);
        }
        answer
    }

    fn insert(&mut self, id: PartId, held: Held<U>) {
        self.unfinished.insert(id);
        self.parts.insert(id, held);
    }

    /// Parts that are open, being made or repaired.
    fn unfinished(&self) -> impl Iterator<Item = (&PartId, &Held<U>)> {
        self.unfinished.iter().filter_map(|id| Some((id, self.parts.get(id)?)))
    }

    fn making_count(&self) -> usize {
        let making = |(_, held): &(&PartId, &Held<U>)| matches!(held.state, State::Making(_));
        self.unfinished().filter(making).count()
    }

    /// Begins to make parts that it owes, as many as it may make at a time.
    fn begin_owed<M: Units<Unit = U>>(&mut self, memory: &M) {
        let count = MAKERS_MAX.saturating_sub(self.making_count());
        let known = self.owed.iter().filter_map(|(id, record)| Some((*id, record.clone()?)));
        let owed: Vec<(PartId, Arc<Record>)> = known.take(count).collect();
        for (id, record) in owed {
            self.make(memory, id, &record, MAKERS_MAX);
        }
    }

    // --- making and reading ----------------------------------------------------------------------------------------

    /// The next unit to fetch from another position; `has` tells whether a position may have parts now. Parts for which
    /// commands wait come first. `all`: others too.
    pub fn next_fetch(&mut self, has: impl Fn(u8) -> bool, all: bool) -> Option<(PartId, Fetch)> {
        let Self { unfinished, parts, .. } = self;
        let mut next = |is_waited_for| {
            unfinished.iter().find_map(|id| {
                let maker = parts.get_mut(id)?.maker_mut()?;
                let fetch = (maker.is_waited_for == is_waited_for).then(|| maker.next_fetch(&has));
                Some((*id, fetch.flatten()?))
            })
        };
        next(true).or_else(|| all.then(|| next(false)).flatten())
    }

    /// Whether it makes or repairs parts for which no command waits, and that are not stuck.
    pub fn makes_in_background(&self) -> bool {
        let is_so = |maker: &Maker| !maker.is_waited_for && !maker.is_stuck();
        self.unfinished().any(|(_, held)| held.maker().is_some_and(is_so))
    }

    /// Tries again to make the parts that there was no memory for, or too few sources. Called by a timer.
    pub fn retry<M: Units<Unit = U>>(&mut self, memory: &M) {
        for id in &self.unfinished {
            if let Some(maker) = self.parts.get_mut(id).and_then(Held::maker_mut) {
                maker.retry();
            }
        }
        self.begin_owed(memory);
    }

    /// The answer to a fetch for this part: the unit, or `None` if the other holder does not have it. Returns the check
    /// if the part is whole now.
    pub fn on_fetched<M: Units<Unit = U>>(
        &mut self,
        memory: &mut M,
        id: PartId,
        fetch: &Fetch,
        bytes: Option<&[u8]>,
    ) -> Option<u32> {
        let unit_bytes = memory.unit_bytes();
        let held = self.parts.get_mut(&id)?;
        let maker = match &mut held.state {
            State::Making(maker) => maker,
            State::Wrong(_) => {
                self.on_made_again(memory, id, fetch, bytes);
                return None;
            }
            State::Open(..) | State::Kept => return None,
        };
        let mut made = Vec::new();
        maker.on_fetched(fetch, bytes, |unit| made.push(unit.to_vec()));
        for unit in made {
            if !held.add(memory, &unit) {
                // It goes on when there is memory.
                let record = held.record.clone();
                self.drop_part(memory, &id);
                self.owed.insert(id, Some(record));
                return None;
            }
        }
        if !held.is_full(unit_bytes) {
            return None;
        }
        let check = held.check();
        let is_sealed = held.record.checks.iter().any(|check| *check != 0);
        if (is_sealed && check != held.record.check_of(&held.part)) || held.has_lost(memory) {
            // A source had wrong bytes, or the disk has lost units. It is made again from the beginning.
            let record = held.record.clone();
            self.drop_part(memory, &id);
            self.owed.insert(id, Some(record));
            return None;
        }
        held.state = State::Kept;
        self.unfinished.remove(&id);
        self.begin_owed(memory);
        Some(check)
    }

    /// Begins again what waits for a source that is gone.
    pub fn on_source_lost(&mut self, position: u8) {
        for id in &self.unfinished {
            if let Some(maker) = self.parts.get_mut(id).and_then(Held::maker_mut) {
                maker.on_lost(position);
            }
        }
    }

    /// A unit of a part that is kept in memory, with its sum. `None` if the part is not here, the bytes are not in
    /// memory, or they do not have their sum.
    pub fn read<'a, M: Units<Unit = U>>(&'a self, memory: &'a M, id: &PartId, unit: u32) -> Option<(u32, &'a [u8])> {
        let (stored, length, sum) = self.stored(memory.unit_bytes(), id, unit)?;
        let stored = memory.stored(stored, length);
        match stored {
            Stored::Here(bytes) if stored.has(sum, memory.unit_bytes()) => Some((sum, bytes)),
            _ => None,
        }
    }

    /// Whether a part is kept here.
    pub fn is_kept(&self, id: &PartId) -> bool {
        self.parts.get(id).is_some_and(Held::is_kept)
    }

    /// Whether it has no part, and owes none.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.owed.is_empty()
    }

    /// Whether it has parts to make or to repair, or such as there was no memory for.
    pub fn is_busy(&self) -> bool {
        self.owed.values().any(Option::is_some) || self.unfinished().any(|(_, held)| held.maker().is_some())
    }

    /// Positions of the list in memory.
    pub fn positions(&self) -> u8 {
        self.positions
    }

    /// Number of units of all parts, kept or not.
    pub fn unit_count(&self) -> usize {
        self.parts.values().map(|held| held.units.len()).sum()
    }

    /// Bytes of its tables, beside the units themselves.
    pub fn table_bytes(&self) -> usize {
        let part = |held: &Held<U>| {
            let fingerprint = held.fingerprint.as_ref().map_or(0, |_| size_of::<Fingerprint>());
            let units = held.units.capacity() * size_of::<U>() + held.sums.capacity() * size_of::<u32>();
            units + fingerprint
        };
        let parts: usize = self.parts.values().map(part).sum();
        let folding = |(_, held): (&PartId, &Held<U>)| match &held.state {
            State::Open(_, Some(folding)) => folding.held_bytes(),
            _ => 0,
        };
        let foldings: usize = self.unfinished().map(folding).sum();
        parts + foldings + self.parts.len() * size_of::<(PartId, Held<U>)>()
    }

    /// Whether there are parts of a stream here, kept or not.
    pub fn has_parts_of(&self, x: Position) -> bool {
        let name = PartName {
            group: GroupId::limit(0),
            number: 0,
        };
        let mut from_here = self.parts.range(PartId { x, name }..);
        from_here.next().is_some_and(|(id, _)| id.x == x)
    }

    /// All parts that are here, kept or not.
    pub fn parts(&self) -> impl Iterator<Item = PartId> + '_ {
        self.parts.keys().copied()
    }

    /// Gives the memory of all parts back: the tenure has ended.
    pub fn clear<M: Units<Unit = U>>(&mut self, memory: &mut M) {
        self.free_where(memory, |_| true);
    }

    fn free_where<M: Units<Unit = U>>(&mut self, memory: &mut M, goes: impl Fn(&PartId) -> bool) {
        let gone: Vec<PartId> = self.parts.keys().copied().filter(|id| goes(id)).collect();
        for id in gone {
            self.drop_part(memory, &id);
        }
        self.owed.retain(|id, _| !goes(id));
    }

    fn drop_part<M: Units<Unit = U>>(&mut self, memory: &mut M, id: &PartId) {
        self.unfinished.remove(id);
        for unit in self.parts.remove(id).into_iter().flat_map(|held| held.units) {
            memory.free(unit);
        }
    }
}

impl<U> Held<U> {
    fn new(record: Arc<Record>, part: Part, state: State) -> Self {
        Self {
            record,
            part,
            units: Vec::new(),
            sums: Vec::new(),
            state,
            fingerprint: None,
        }
    }

    fn is_kept(&self) -> bool {
        matches!(self.state, State::Kept | State::Wrong(_))
    }

    fn maker(&self) -> Option<&Maker> {
        match &self.state {
            State::Making(maker) => Some(maker),
            State::Wrong(repair) => Some(&repair.maker),
            State::Open(..) | State::Kept => None,
        }
    }

    fn maker_mut(&mut self) -> Option<&mut Maker> {
        match &mut self.state {
            State::Making(maker) => Some(maker),
            State::Wrong(repair) => Some(&mut repair.maker),
            State::Open(..) | State::Kept => None,
        }
    }

    fn answer(&self) -> PartState {
        match self.state {
            State::Open(..) => PartState::Open(self.units.len() as u32),
            State::Making(_) => PartState::Making,
            State::Kept | State::Wrong(_) => PartState::Kept(self.check()),
        }
    }

    /// Length of a unit of the part in bytes; `None` if it has no such unit.
    fn length_of(&self, unit: u32, unit_bytes: u32) -> Option<u32> {
        let layout = self.record.layout(unit_bytes)?;
        (unit < self.part.content.units(&layout)).then(|| self.part.content.unit_bytes(&layout, unit))
    }

    fn missing(&self, unit_bytes: u32) -> u64 {
        let units = self
            .record
            .layout(unit_bytes)
            .map_or(0, |layout| self.part.content.units(&layout));
        u64::from(units).saturating_sub(self.units.len() as u64)
    }

    fn is_full(&self, unit_bytes: u32) -> bool {
        self.missing(unit_bytes) == 0
    }

    fn add<M: Units<Unit = U>>(&mut self, memory: &mut M, bytes: &[u8]) -> bool {
        let Some(unit) = memory.store(bytes) else { return false };
        self.units.push(unit);
        self.sums.push(sum_of(bytes, memory.unit_bytes()));
        true
    }

    /// Whether the disk has lost a unit.
    fn has_lost<M: Units<Unit = U>>(&self, memory: &M) -> bool {
        let is_lost = |unit| memory.stored(unit, 0) == Stored::Lost;
        self.units.iter().any(is_lost)
    }

    /// CRC32C of the sums of its units: the check that the value's record has.
    fn check(&self) -> u32 {
        self.sums
            .iter()
            .fold(0, |check, sum| crc32c_append(check, &sum.to_le_bytes()))
    }
}

fn sum_of(bytes: &[u8], unit_bytes: u32) -> u32 {
    sum::of_extent(unit_bytes as usize, 0, bytes)
}
