//! Parts of large values at one position of this node (P14): joins the machine that keeps them to messages, memory and
//! time.
//!
//! A holder that is not Live must have every part that its position should have before it asks to become Live. For
//! each stream of the list it knows that in one of two ways: it has compared the owner's list of groups to its end, or
//! no other holder has any part of the stream.

mod by_client;
mod disk;
mod fetch;
mod lists;

mod memory;
mod units;

use crate::context::Context;
use crate::interface::{Channel, Out};
use crate::scrub::Step;
use crate::stream_owner::StreamOwner;
use crate::unit_requests::UnitRequests;
use paritas_base::configuration::{Configuration, Tenure};
use paritas_base::{Incarnation, ListId, NodeId, PartState, Position, Span, StreamId, Term, Time};
use paritas_code::sum;
use paritas_large::{
    Class, Fetch, Fingerprint, GroupId, Keeper, PartId, PartName, Placement, PlacementError, Record, WHOLE_PART,
};
use paritas_store::Arena;
use paritas_wire::peer::{self, Groups, Header, Message};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) use disk::Answered;
pub use memory::UnitRef;
use memory::{making, writing};
pub use units::StoredUnits;

/// The longest body of a large value, in bytes. Records of others are refused.
pub(crate) const BODY_BYTES_MAX: u64 = 512 << 20;
/// Time until a list that was compared is asked for again, in resends.
const LIST_AGAIN_RESENDS: u64 = 10;

/// What is known of the parts of one stream.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Every other holder has said that it has none.
    has_none: bool,
    /// Holders that have said so under the installed configuration.
    none_at: BTreeSet<NodeId>,
    /// When the owner is asked for its list next, and other holders for their parts.
    ask_at: Time,
    /// When a list that was compared is asked for again: the news that a group is dead may be lost.
    compare_at: Time,
}

/// The parts at one position, in one tenure of this node.
#[derive(Debug)]
pub struct PositionParts {
    at: (ListId, Position),
    tenure: Tenure,
    keeper: Keeper<UnitRef>,
    /// By data position.
    known: Vec<Known>,
    fetches: UnitRequests<(PartId, Fetch)>,
    retry_at: Time,
    /// Until when parts wait that the pace of the node holds back (P6.8).
    held_until: Option<Time>,
    /// Whether it was whole once in this tenure.
    was_whole: bool,
    /// Answers to writers that wait for the disk: the newest one of each part.
    held_answers: BTreeMap<PartId, ((NodeId, Incarnation), Said)>,
}

/// What a holder says of a part.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) state: PartState,
    /// Of a part that is kept and was opened for a client (P14.20).
    pub(crate) fingerprint: Option<Box<Fingerprint>>,
}

impl From<PartState> for Said {
    fn from(state: PartState) -> Self {
        Self {
            state,
            fingerprint: None,
        }
    }
}

/// Positions of a list whose holders keep their chunks in memory. Those on log nodes follow them.
pub(crate) fn positions_in_memory<O: Out>(cx: &Context<'_, O>, configuration: &Configuration) -> u8 {
    configuration.data + configuration.parity - cx.shared.cluster.logged
}

/// Where the parts of a new value of this class are, in the stream at data position `x`. All parities that the list has
/// on log nodes are there; copies and data blocks are in memory.
///
/// # Errors
/// If the list has too few positions, or the class is none.
pub(crate) fn placement_of<O: Out>(
    cx: &Context<'_, O>,
    configuration: &Configuration,
    class: Class,
    x: Position,
) -> Result<Placement, PlacementError> {
    let positions = positions_in_memory(cx, configuration);
    Placement::new(class, x.0, positions, cx.shared.cluster.logged)
}

/// A part's name as it is on the wire.
pub(crate) fn to_wire(name: PartName) -> peer::PartName {
    peer::PartName {
        group: name.group.bits(),
        number: name.number,
    }
}

/// A part's name from the wire; `None` if it names no group.
pub(crate) fn from_wire(name: peer::PartName) -> Option<PartName> {
    Some(PartName {
        group: GroupId::from_bits(name.group)?,
        number: name.number,
    })
}

/// A record from the wire; `None` if these bytes are none, or its body is too long.
pub(crate) fn record_of(bytes: &[u8]) -> Option<Arc<Record>> {
    let (record, used) = Record::decode(bytes)?;
    (used == bytes.len() && record.body_bytes <= BODY_BYTES_MAX).then(|| Arc::new(record))
}

impl PositionParts {
    /// For a new tenure of a position.
    pub(crate) fn new<O: Out>(
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        position: Position,
        tenure: Tenure,
    ) -> Self {
        let is_born = configuration.is_born(&tenure);
        let positions = positions_in_memory(cx, configuration);
        Self {
            at: (configuration.list, position),
            tenure,
            keeper: Keeper::new(position.0, positions, is_born),
            known: vec![Known::default(); usize::from(configuration.data)],
            fetches: UnitRequests::default(),
            retry_at: cx.mono(),
            held_until: None,
            was_whole: is_born,
            held_answers: BTreeMap::new(),
        }
    }

    /// Its position.
    pub fn position(&self) -> Position {
        self.at.1
    }

    /// The tenure under which it holds the parts.
    pub fn tenure(&self) -> Tenure {
        self.tenure
    }

    /// What it keeps.
    pub fn keeper(&self) -> &Keeper<UnitRef> {
        &self.keeper
    }

    /// Whether every other holder has said that it has no part of this stream (P14.9).
    pub(crate) fn has_none_of(&self, x: Position) -> bool {
        self.known.get(x.index()).is_some_and(|known| known.has_none)
    }

    /// A newer configuration. Called before any message of an owner that it names.
    pub(crate) fn on_configuration<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        for x in configuration.data_positions() {
            if let Some(owner) = configuration.tenure(x) {
                self.keeper.on_owner(&mut writing(cx, self.at), x, owner.term());
            }
        }
        for known in &mut self.known {
            // Others may be Live now, or other nodes hold the positions.
            known.none_at.clear();
            known.ask_at = cx.now.mono;
        }
        self.drop_fetches(cx, |(node, incarnation), _| {
            configuration.held_by(node, incarnation).next().is_none()
        });
    }

    /// A session with a peer is new: what the old one may have lost is asked for again.
    pub(crate) fn on_session_up<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        configuration: &Configuration,
        node: NodeId,
    ) {
        self.drop_fetches(cx, |from, _| from.0 == node);
        for x in configuration.data_positions() {
            if configuration.tenure(x).is_some_and(|owner| owner.node == node) {
                // It may have said that groups are dead, and that was lost.
                self.keeper.ask_list(x);
                self.known[x.index()].ask_at = cx.now.mono;
            }
        }
    }

    /// The tenure is over.
    pub(crate) fn end<O: Out>(&mut self, cx: &mut Context<'_, O>) {
        self.keeper.clear(&mut writing(cx, self.at));
    }

    /// Whether [`Self::is_whole`] was true once in this tenure.
    pub(crate) fn was_whole(&self) -> bool {
        self.was_whole
    }

    /// Whether it has every part that the position must have (P14.9). From the first time on it declines nothing.
    pub(crate) fn is_whole(&mut self, configuration: &Configuration) -> bool {
        let known = &self.known;
        let listed = |x: &Position| known.get(x.index()).is_some_and(|known| !known.has_none);
        self.was_whole |= self.keeper.is_whole(configuration.data_positions().filter(listed));
        self.was_whole
    }

    // --- messages of owners ----------------------------------------------------------------------------------------

    /// The owner of the stream opens a part: for its own units, or for those of a client (P14.18).
    pub(crate) fn on_open<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        x: Position,
        term: Term,
        name: PartName,
        record: &Arc<Record>,
        by_client: bool,
    ) -> Said {
        let id = PartId { x, name };
        let key = by_client.then(|| self.fingerprint_key(cx, x, record));
        let memory = &writing(cx, self.at);
        let state = self.keeper.on_open(memory, id, record, term, key);
        Said {
            state,
            fingerprint: self.keeper.fingerprint(&id).copied().map(Box::new),
        }
    }

    /// The owner of the stream wants a part to be made.
    pub(crate) fn on_make<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        x: Position,
        name: PartName,
        record: &Arc<Record>,
    ) -> PartState {
        let id = PartId { x, name };
        self.keeper.on_make(&mut making(cx, self.at), id, record)
    }

    /// The next unit of an open part.
    pub(crate) fn on_put<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        x: Position,
        name: PartName,
        unit: u32,
        bytes: &[u8],
    ) -> Option<PartState> {
        let id = PartId { x, name };
        self.keeper.on_put(&mut writing(cx, self.at), id, unit, bytes)
    }

    /// Groups of a stream are dead.
    pub(crate) fn on_free<O: Out>(&mut self, cx: &mut Context<'_, O>, x: Position, groups: Groups<'_>) {
        let groups: BTreeSet<GroupId> = groups.iter().filter_map(GroupId::from_bits).collect();
        self.keeper.on_free(&mut writing(cx, self.at), x, &groups);
    }

    // --- units -------------------------------------------------------------------------------------------------------

    /// Sum and bytes of a unit that is kept here. The question for [`WHOLE_PART`] is answered without bytes, and only
    /// if the part is whole and right. `None` if this position does not have the unit. `from`: who asks, and the number
    /// of the question.
    pub(crate) fn read<O: Out>(
        &mut self,
        cx: &mut Context<'_, O>,
        x: Position,
        name: PartName,
        unit: u32,
        from: (NodeId, Incarnation, u64),
    ) -> Option<Answered> {
        let id = PartId { x, name };
        if unit == WHOLE_PART {
            let sum = sum::of_extent(cx.shared.arena.chunk_bytes(), 0, &[]);
            return self.keeper.is_sound(&id).then_some(Answered::Now(sum, Vec::new()));
        }
        // Without space for another read there is no answer, and the reader asks again.
        if self.read_disk(cx, id, unit, Some(from)).is_some() {
            return Some(Answered::Later);
        }
        let memory = writing(cx, self.at);
        if let Some((sum, bytes)) = self.keeper.read(&memory, &id, unit) {
            return Some(Answered::Now(sum, bytes.to_vec()));
        }
        self.check(cx, id, unit);
        None
    }

    /// Answers the question `id` for a unit from where it lies in memory. False if this position does not keep it
    /// there, or its bytes do not have their sum.
    pub(crate) fn send_stored<O: Out>(
        &self,
        cx: &mut Context<'_, O>,
        under: &Header,
        (node, incarnation, id): (NodeId, Incarnation, u64),
        (part, unit): (PartId, u32),
    ) -> bool {
        let chunk_bytes = cx.shared.arena.chunk_bytes();
        let stored = self.stored(&cx.shared.arena, &part, unit);
        if !stored.is_some_and(|(sum, bytes)| is_sound(chunk_bytes, sum, bytes)) {
            return false;
        }
        // Without a session nobody waits for it.
        if let Some((frames, arena)) = cx.frames_to(node, incarnation, Channel::Bulk) {
            let unit = self.stored(arena, &part, unit);
            peer::encode(frames, under, &Message::UnitValue { id, unit });
        }
        true
    }

    /// Sum and bytes of a unit that this position keeps in memory. They were not compared.
    pub(crate) fn stored<'a>(&self, arena: &'a Arena, id: &PartId, unit: u32) -> Option<(u32, &'a [u8])> {
        match self.keeper.stored(arena.chunk_bytes() as u32, id, unit)? {
            (UnitRef::Memory(chunk), length, sum) => Some((sum, arena.bytes(*chunk).get(..length as usize)?)),
            _ => None,
        }
    }

    /// Compares the next unit with its sum (P14.12).
    pub(crate) fn scrub<O: Out>(&mut self, cx: &mut Context<'_, O>) -> Step {
        if !cx.rules().compares_units() {
            return Step::Ended;
        }
        let Some((id, unit)) = self.keeper.next_to_check() else {
            return Step::Ended;
        };
        match self.read_disk(cx, id, unit, None) {
            Some(true) => {}
            // It is left to the next pass.
            Some(false) => cx.shared.scrub.partial = true,
            None => self.check(cx, id, unit),
        }
        Step::Checked
    }

    /// Whether a unit has its sum. If not, its repair begins (P14.12).
    pub(crate) fn check<O: Out>(&mut self, cx: &mut Context<'_, O>, id: PartId, unit: u32) {
        let is_right = self.keeper.check(&making(cx, self.at), id, unit);
        cx.shared.scrub.bad += u64::from(!is_right);
    }

    // --- time --------------------------------------------------------------------------------------------------------

    /// Asks what is to be asked, and goes on with the parts that are being made.
    pub(crate) fn on_turn_end<O: Out>(&mut self, cx: &mut Context<'_, O>, configuration: &Configuration) {
        self.send_held_answers(cx, configuration);
        let now = cx.mono();
        if self.is_at_rest() {
            return;
        }
        self.drop_fetches(cx, |_, until| until <= now);
        if now >= self.retry_at {
            self.retry_at = cx.after(cx.shared.parameters.retry);
            self.keeper.retry(&making(cx, self.at));
        }
        for x in configuration.data_positions() {
            if self.compares_at(x).is_some_and(|at| now >= at) {
                self.keeper.ask_list(x);
                self.known[x.index()].ask_at = now;
            }
            if now >= self.known[x.index()].ask_at && self.must_ask(configuration, x) {
                // A list that was compared is asked for again only for parts that cannot be made.
                let again = match self.keeper.is_compared(x) {
                    true => Span(cx.shared.parameters.resend.0 * LIST_AGAIN_RESENDS),
                    false => cx.shared.parameters.retry,
                };
                self.known[x.index()].ask_at = cx.after(again);
                self.ask(cx, configuration, x);
            }
        }
        self.fetch(cx, configuration);
    }

    /// Whether it has nothing to do until a message comes: so in a cluster without large values.
    fn is_at_rest(&self) -> bool {
        self.was_whole && self.keeper.is_empty() && self.fetches.is_empty()
    }

    /// The time until which it has nothing to do, unless an event changes it.
    pub(crate) fn rests_until(&self, configuration: &Configuration) -> Time {
        if self.is_at_rest() {
            return Time(u64::MAX);
        }
        let asks = configuration
            .data_positions()
            .filter(|x| self.must_ask(configuration, *x));
        let ask_at = asks.map(|x| self.known[x.index()].ask_at).min();
        let fetch_at = self.fetches.next_until();
        let retry_at = self.keeper.is_busy().then_some(self.retry_at);
        let compare_at = configuration.data_positions().filter_map(|x| self.compares_at(x)).min();
        let times = [ask_at, compare_at, fetch_at, retry_at, self.held_until];
        times.into_iter().flatten().min().unwrap_or(Time(u64::MAX))
    }

    /// B2: a part that the position should keep and does not. It is of a group that objects of this owner name, or of a
    /// value that the owner has pinned for a reader (P14.21). Values that may be lost, and are removed in that case
    /// (P14.11), are left out.
    pub fn missing_part(&self, configuration: &Configuration, owner: &StreamOwner) -> Option<String> {
        let page = owner.ledger().page(None, usize::MAX - 1)?;
        let x = owner.stream().x;
        let sealed = page.alive.iter().filter(|alive| !alive.is_staging);
        let named = sealed.map(|alive| (alive.group, &alive.record));
        let pinned = owner
            .pinned()
            .flat_map(|record| record.groups().map(move |group| (group, record)));
        let mut must_be = named
            .chain(pinned)
            .filter(|(_, record)| !owner.may_be_lost(configuration, record));
        must_be.find_map(|(of, record)| {
            let placement = record.placement(self.keeper.positions()).ok()?;
            let mine = |part: &paritas_large::Part| part.position == self.position().0 && record.group_of(part) == of;
            let name = |part| record.name_of(&part);
            let names = placement.parts().filter(mine).map(name);
            let mut lacking = names.filter(|name| !self.keeper.is_kept(&PartId { x, name: *name }));
            lacking
                .next()
                .map(|name| format!("part {} of group {:x}", name.number, name.group.bits()))
        })
    }

    /// Bytes of its tables, beside the units themselves.
    pub(crate) fn table_bytes(&self) -> u64 {
        self.keeper.table_bytes() as u64
    }

    /// Chunks that it uses, of the memory or of the disk.
    pub fn chunk_count(&self) -> u32 {
        self.keeper.unit_count() as u32
    }
}

/// Whether the bytes of a unit have their sum.
pub(crate) fn is_sound(chunk_bytes: usize, sum: u32, bytes: &[u8]) -> bool {
    bytes.len() <= chunk_bytes && sum::of_extent(chunk_bytes, 0, bytes) == sum
}

/// Answers an owner. `question`: the number of its question, 0 if it is about a unit or comes unasked.
pub(crate) fn send_state<O: Out>(
    cx: &mut Context<'_, O>,
    configuration: &Configuration,
    stream: StreamId,
    to: (NodeId, Incarnation),
    name: PartName,
    question: u32,
    said: &Said,
) {
    let message = Message::PartState {
        name: to_wire(name),
        question,
        state: said.state,
        fingerprint: said.fingerprint.as_deref().map(|print| &print.0),
    };
    cx.send_to(to.0, to.1, Channel::Bulk, stream, configuration.epoch, &message);
}
