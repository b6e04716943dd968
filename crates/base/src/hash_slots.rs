//! The hash slots that the streams of a list hold, and the hand-off of slots between streams (P10.8).
//!
//! Slots are part of the list's configuration. So the record that gives a node a position also says which slots it
//! serves, and the epoch fences nodes that know neither (H45).

use crate::configuration::ClusterRecord;
use crate::{ListId, NodeId, Position, SLOT_COUNT, StreamId};
use serde::{Deserialize, Serialize};

/// A range of consecutive hash slots of one stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct SlotRange {
    /// The first slot.
    pub first: u16,
    /// The last slot, inclusive.
    pub last: u16,
    /// The stream's data position within the list.
    pub x: Position,
}

/// A hand-off of slots from one stream to another. The configurations of both lists name it. Until it is done, the
/// slots belong to the source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HandOff {
    /// Version of the slot map once the hand-off is done. Every hand-off has a different one.
    pub version: u64,
    /// The first slot that is handed off.
    pub first: u16,
    /// The last slot that may be handed off. The source may hand off fewer at once.
    pub last: u16,
    /// The stream that hands the slots off.
    pub from: StreamId,
    /// The stream that receives them.
    pub to: StreamId,
}

impl HandOff {
    /// Whether the hand-off may include this slot.
    pub fn contains(&self, slot: u16) -> bool {
        (self.first..=self.last).contains(&slot)
    }
}

/// Where an operator wants slots to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SlotTarget {
    /// This stream.
    StreamId(StreamId),
    /// Any stream that this node owns.
    Node(NodeId),
}

/// An operator's order about slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SlotOrder {
    /// Move these slots, whichever streams hold them.
    Move {
        /// The first slot.
        first: u16,
        /// The last slot, inclusive.
        last: u16,
        /// The destination.
        to: SlotTarget,
    },
    /// Cancel all hand-offs that are under way.
    GiveUp,
}

/// The hash slots of a list's streams.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ListSlots {
    /// The version of the cluster's slot map at which this list's part last changed. 0: unchanged since the cluster
    /// record.
    pub version: u64,
    /// The ranges in slot order. Empty while `version` is 0.
    pub ranges: Vec<SlotRange>,
    /// The hand-off under way, if any.
    pub hand_off: Option<HandOff>,
}

impl ListSlots {
    /// The slots that the list's streams hold, in slot order.
    pub fn held(&self, list: ListId, cluster: &ClusterRecord) -> Vec<SlotRange> {
        if self.version > 0 {
            return self.ranges.clone();
        }
        let mut held = Vec::new();
        let mut first = 0;
        for (last, stream) in &cluster.slots {
            if stream.list == list {
                let (last, x) = (*last, stream.x);
                held.push(SlotRange { first, last, x });
            }
            first = last.saturating_add(1);
        }
        held
    }

    /// These slots with the given hand-off under way.
    pub fn during(&self, hand_off: HandOff) -> Self {
        Self {
            hand_off: Some(hand_off),
            ..self.clone()
        }
    }

    /// These slots after a hand-off was cancelled. The ranges are the same; the new version shows that a hand-off was
    /// begun.
    pub fn given_up(&self, list: ListId, cluster: &ClusterRecord, what: &HandOff) -> Self {
        Self {
            version: what.version,
            ranges: self.held(list, cluster),
            hand_off: None,
        }
    }

    /// These slots after the hand-off of slots up to `last` is done.
    pub fn after(&self, list: ListId, cluster: &ClusterRecord, done: &HandOff, last: u16) -> Self {
        Self {
            version: done.version,
            ranges: after(self.held(list, cluster), list, done, last),
            hand_off: None,
        }
    }

    /// Whether this can be the slots of that list with `data` streams: ranges and hand-off are in order and within
    /// limits.
    pub fn is_well_formed(&self, list: ListId, data: u8) -> bool {
        let inside = |r: &SlotRange| r.first <= r.last && r.last < SLOT_COUNT && r.x.0 < data;
        let in_order = self.ranges.windows(2).all(|w| w[0].last < w[1].first);
        let of_it = |s: StreamId| s.list != list || s.x.0 < data;
        let hand_off = self.hand_off.is_none_or(|h| {
            h.first <= h.last
                && h.last < SLOT_COUNT
                && h.version > self.version
                && h.from != h.to
                && (h.from.list == list || h.to.list == list)
                && of_it(h.from)
                && of_it(h.to)
        });
        (self.version > 0 || self.ranges.is_empty()) && self.ranges.iter().all(inside) && in_order && hand_off
    }
}

/// The slots of a list that held `held`, after the hand-off of slots up to `last` is done.
pub fn after(held: Vec<SlotRange>, list: ListId, done: &HandOff, last: u16) -> Vec<SlotRange> {
    let mut ranges: Vec<SlotRange> = Vec::new();
    for range in held {
        // The parts of this range before and after the slots that were handed off.
        if range.first < done.first {
            let last = range.last.min(done.first - 1);
            ranges.push(SlotRange { last, ..range });
        }
        if range.last > last {
            let first = range.first.max(last + 1);
            ranges.push(SlotRange { first, ..range });
        }
    }
    if done.to.list == list {
        let (first, x) = (done.first, done.to.x);
        ranges.push(SlotRange { first, last, x });
    }
    ranges.sort_unstable();
    ranges.dedup_by(|next, range| {
        let joins = range.x == next.x && range.last + 1 == next.first;
        if joins {
            range.last = next.last;
        }
        joins
    });
    ranges
}

/// Checks that every hash slot is held exactly once. `held` must come from configurations of one moment.
///
/// # Errors
/// Names the first slot that is held twice or not at all.
pub fn check_whole(held: impl Iterator<Item = (ListId, SlotRange)>) -> Result<(), String> {
    let mut all: Vec<(SlotRange, ListId)> = held.map(|(list, range)| (range, list)).collect();
    all.sort_unstable_by_key(|(range, _)| range.first);
    let mut next = 0;
    for (range, list) in all {
        if range.first != next {
            let what = if range.first < next { "held twice" } else { "not held" };
            return Err(format!("slot {} is {what} (list {})", range.first.min(next), list.0));
        }
        next = range.last + 1;
    }
    if next < SLOT_COUNT {
        return Err(format!("slot {next} is not held"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(list: u16, x: u8) -> StreamId {
        StreamId {
            list: ListId(list),
            x: Position(x),
        }
    }

    fn cluster() -> ClusterRecord {
        ClusterRecord {
            id: crate::ClusterId(1),
            active_version: crate::formats::HIGHEST,
            data: 2,
            parity: 1,
            ack_quorum: 1,
            chunk_bytes: 4096,
            hash_key: [1, 2],
            lease_ms: 1,
            suspicion_ms: 1,
            min_redundancy: 1,
            slots: vec![
                (3999, stream(0, 0)),
                (7999, stream(1, 0)),
                (11_999, stream(0, 1)),
                (16_383, stream(1, 1)),
            ],
            logged: 0,
            more: Default::default(),
        }
    }

    fn range(first: u16, last: u16, x: u8) -> SlotRange {
        let x = Position(x);
        SlotRange { first, last, x }
    }

    fn done(version: u64, first: u16, last: u16, from: StreamId, to: StreamId) -> HandOff {
        HandOff {
            version,
            first,
            last,
            from,
            to,
        }
    }

    #[test]
    fn slots_go_over_and_neighbours_are_one_range() {
        let cluster = cluster();
        let mut lists = [ListSlots::default(), ListSlots::default()];
        let check = |lists: &[ListSlots; 2]| {
            let held = |n: u16| lists[usize::from(n)].held(ListId(n), &cluster).into_iter();
            let all = (0..2).flat_map(|n| held(n).map(move |r| (ListId(n), r)));
            check_whole(all).unwrap();
            (0..2).for_each(|n| assert!(lists[usize::from(n)].is_well_formed(ListId(n), 2)));
        };
        check(&lists);
        // From the middle of one stream to a stream of another list.
        let first = done(1, 1000, 1999, stream(0, 0), stream(1, 0));
        lists = [0, 1].map(|n| lists[usize::from(n)].after(ListId(n), &cluster, &first, 1999));
        check(&lists);
        assert_eq!(
            lists[0].ranges,
            [range(0, 999, 0), range(2000, 3999, 0), range(8000, 11_999, 1)]
        );
        assert_eq!(
            lists[1].ranges,
            [range(1000, 1999, 0), range(4000, 7999, 0), range(12_000, 16_383, 1)]
        );
        // The rest of that stream's range: it joins its neighbours into one range.
        let second = done(2, 2000, 3999, stream(0, 0), stream(1, 0));
        lists = [0, 1].map(|n| lists[usize::from(n)].after(ListId(n), &cluster, &second, 3999));
        check(&lists);
        assert_eq!(lists[1].ranges[0], range(1000, 7999, 0));
        // Within one list. Fewer slots go than the hand-off names.
        let third = done(3, 8000, 9000, stream(0, 1), stream(0, 0));
        lists[0] = lists[0].after(ListId(0), &cluster, &third, 8000);
        check(&lists);
        assert_eq!(
            lists[0].ranges,
            [range(0, 999, 0), range(8000, 8000, 0), range(8001, 11_999, 1)]
        );
        assert_eq!(lists[0].version, 3);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let slots = |ranges: Vec<SlotRange>, hand_off| ListSlots {
            version: 5,
            ranges,
            hand_off,
        };
        assert!(slots(vec![range(0, 5, 0), range(6, 6, 1)], None).is_well_formed(ListId(0), 2));
        for ranges in [
            vec![range(5, 0, 0)],
            vec![range(0, 5, 0), range(5, 6, 1)],
            vec![range(0, 5, 2)],
            vec![range(0, SLOT_COUNT, 0)],
        ] {
            assert!(!slots(ranges, None).is_well_formed(ListId(0), 2));
        }
        let hand_off = |version, from, to| slots(vec![], Some(done(version, 1, 2, from, to)));
        assert!(hand_off(6, stream(0, 0), stream(1, 9)).is_well_formed(ListId(0), 2));
        assert!(!hand_off(5, stream(0, 0), stream(1, 0)).is_well_formed(ListId(0), 2));
        assert!(!hand_off(6, stream(0, 0), stream(0, 0)).is_well_formed(ListId(0), 2));
        assert!(!hand_off(6, stream(2, 0), stream(1, 0)).is_well_formed(ListId(0), 2));
        assert!(!hand_off(6, stream(0, 0), stream(0, 2)).is_well_formed(ListId(0), 2));
        let twice = [(ListId(0), range(0, 9, 0)), (ListId(1), range(9, 16_383, 0))];
        assert!(
            check_whole(twice.into_iter())
                .unwrap_err()
                .contains("slot 9 is held twice")
        );
        assert!(check_whole([].into_iter()).unwrap_err().contains("slot 0 is not held"));
    }
}
