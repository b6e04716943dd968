//! What decides, beside the records, which node gets a position: the plan's layout, requests of holders, moves in
//! progress, and nodes that a list avoids. Not durable.

use crate::layout::Layout;
use crate::rules::{Facts, Obstacle};
use paritas_base::configuration::{Configuration, PositionState, Tenure};
use paritas_base::{ListId, NodeId, Position, Span, Time};
use std::collections::{BTreeMap, BTreeSet};

/// After a node was fenced for a broken link, it gets no position of that list for this time.
const AVOID_SPAN: Span = Span::from_secs(10);
/// A node that holds two positions of a list may fill one of them for this time. Then the position goes to a free node.
const STUCK_SPAN: Span = Span::from_secs(30);

/// A position in one tenure.
pub(super) type Seat = (ListId, Position, Tenure);

/// An owner that was asked to drain.
#[derive(Clone, Copy, Debug)]
struct Drain {
    since: Time,
    done: bool,
}

#[derive(Debug)]
pub(super) struct Placement {
    layout: Layout,
    /// A member of a list may hold a second position of it (P10.5).
    stand_in: bool,
    /// Positions whose holders have asked to become Live since the last decision.
    whole: Vec<Seat>,
    /// Nodes that get no position of a list until the given time, since a broken link was found there.
    avoided: BTreeMap<(ListId, NodeId), Time>,
    /// The last holder of each vacant position.
    vacated: BTreeMap<(ListId, Position), NodeId>,
    /// Positions that are Filling at a node with a second position of the list, and since when.
    doubled: BTreeMap<Seat, Time>,
    /// A new coordinator asks the owners to drain again.
    drains: BTreeMap<Seat, Drain>,
    /// For each node that is to leave or to return, one position that cannot be moved now, and why.
    obstacles: BTreeMap<NodeId, (ListId, Position, Obstacle)>,
}

impl Placement {
    pub(super) fn new(layout: Layout) -> Self {
        Self {
            layout,
            stand_in: true,
            whole: Vec::new(),
            avoided: BTreeMap::new(),
            vacated: BTreeMap::new(),
            doubled: BTreeMap::new(),
            drains: BTreeMap::new(),
            obstacles: BTreeMap::new(),
        }
    }

    pub(super) fn set_stand_in(&mut self, may: bool) {
        self.stand_in = may;
    }

    /// For each list the planned node of every position.
    pub(super) fn homes(&self) -> &[Vec<NodeId>] {
        &self.layout.lists
    }

    /// The facts that follow from this state alone.
    pub(super) fn facts(&self, now: Time) -> Facts {
        let stuck = self.doubled.iter().filter(|(_, since)| now - **since >= STUCK_SPAN);
        Facts {
            homes: self.layout.lists.clone(),
            per_domain_max: self.layout.per_domain_max,
            whole: self.whole.clone(),
            avoided: self.avoided.keys().copied().collect(),
            vacated: self.vacated.clone(),
            stand_in: self.stand_in,
            stuck: stuck.map(|(seat, _)| *seat).collect(),
            ..Facts::default()
        }
    }

    /// A holder asks to become Live.
    pub(super) fn ask_live(&mut self, seat: Seat) {
        self.whole.push(seat);
    }

    /// The requests of holders are answered, or cannot be. Holders repeat them.
    pub(super) fn forget_requests(&mut self) {
        self.whole.clear();
    }

    /// Positions have new holders. `cut`: nodes removed from a list because of a broken link.
    pub(super) fn on_commit(
        &mut self,
        now: Time,
        vacated: BTreeMap<(ListId, Position), NodeId>,
        cut: Vec<(ListId, NodeId)>,
    ) {
        self.vacated = vacated;
        self.avoided.extend(cut.into_iter().map(|key| (key, now + AVOID_SPAN)));
    }

    /// Forgets what is over, and notices positions that are Filling at a node with a second position of the list.
    pub(super) fn forget_old(&mut self, now: Time, lists: &BTreeMap<ListId, Configuration>) {
        self.avoided.retain(|_, until| now < *until);
        let lists = lists.values().filter(|list| list.has_stand_ins());
        let doubled = lists.flat_map(|list| {
            let positions = (0..).map(Position).zip(&list.positions);
            positions.filter_map(|(position, held)| {
                let held = held.filter(|a| a.state == PositionState::Filling && list.may_lack_memory(position))?;
                Some((list.list, position, held.tenure))
            })
        });
        self.doubled = doubled
            .map(|seat| (seat, self.doubled.get(&seat).copied().unwrap_or(now)))
            .collect();
    }

    // --- moves ---------------------------------------------------------------------------------------------------

    /// Owners are asked to drain these positions, and only these.
    pub(super) fn begin_drains(
        &mut self,
        now: Time,
        to_drain: &BTreeSet<Seat>,
        obstacles: BTreeMap<NodeId, (ListId, Position, Obstacle)>,
    ) {
        self.obstacles = obstacles;
        self.drains.retain(|seat, _| to_drain.contains(seat));
        for seat in to_drain {
            let drain = Drain {
                since: now,
                done: false,
            };
            self.drains.entry(*seat).or_insert(drain);
        }
    }

    /// Records that the position has drained. True if it was not known.
    pub(super) fn note_drained(&mut self, seat: Seat) -> bool {
        let drain = self.drains.get_mut(&seat).filter(|drain| !drain.done);
        drain.map(|drain| drain.done = true).is_some()
    }

    /// Positions that may be moved: all owners that were asked to drain have done so, or one suspicion time has passed.
    /// All together, so that the positions of one node move in one commit.
    pub(super) fn drained(&self, now: Time, suspicion: Span) -> BTreeSet<Seat> {
        let over = |drain: &Drain| drain.done || now - drain.since >= suspicion;
        if self.drains.values().all(over) {
            self.drains.keys().copied().collect()
        } else {
            BTreeSet::new()
        }
    }

    /// Why a node that is to leave still has positions, or one that is to return still lacks some, in words. Empty if
    /// nothing prevents the moves.
    pub(super) fn waits_for(&self, node: NodeId) -> String {
        let obstacle = self.obstacles.get(&node);
        obstacle.map_or(String::new(), |(list, position, why)| {
            format!("position {} of list {}: {why}", position.0, list.0)
        })
    }
}
