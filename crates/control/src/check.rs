//! Invariant I11 as a function: it checks every committed change of a configuration (P13).

use paritas_base::configuration::{Assignment, Configuration, PositionState};
use paritas_base::hash_slots;
use paritas_base::{Epoch, NodeId};
use std::collections::BTreeSet;

/// The decodability rule (P10.3): whether a list can still be rebuilt. `data_missing` and `parity_missing` count the
/// positions that are not Live.
pub fn is_decodable(data_missing: usize, parity_missing: usize, parity: usize, ack_quorum: usize) -> bool {
    data_missing == 0 || (parity_missing < ack_quorum && data_missing + parity_missing <= parity)
}

/// The number of further nodes that the list can lose, whichever they are. The loss of a stand-in loses all its
/// positions (P10.5).
pub(crate) fn survives(list: &Configuration) -> usize {
    let live = |a: &Assignment| a.state.is_live();
    let mut lost = list.positions.iter().filter(|a| !a.as_ref().is_some_and(live)).count();
    let nodes: BTreeSet<NodeId> = list.positions.iter().flatten().map(|a| a.tenure.node).collect();
    let of_node = |node: NodeId| list.of_node(node).filter(|(_, a)| live(a)).count();
    let mut held: Vec<usize> = nodes.into_iter().map(of_node).collect();
    held.sort_unstable();
    let mut nodes = 0;
    while let Some(next) = held.pop() {
        lost += next;
        if next == 0 || lost > usize::from(list.ack_quorum) {
            break;
        }
        nodes += 1;
    }
    nodes
}

/// Checks one step of a list's history; `old` is `None` for its first configuration.
///
/// # Errors
/// The violated condition.
pub fn check_transition(old: Option<&Configuration>, new: &Configuration) -> Result<(), String> {
    let fail = |why: String| Err(format!("list {} epoch {}: {why}", new.list.0, new.epoch.0));
    if let Err(why) = check_alone(new) {
        return fail(why);
    }
    let Some(old) = old else {
        let first = Epoch(1);
        let born = new
            .positions
            .iter()
            .flatten()
            .all(|a| a.tenure.since == first && a.state == PositionState::Born);
        let whole = new.epoch == first && new.born == first && new.positions.iter().all(Option::is_some);
        return if born && whole && !new.has_stand_ins() && !new.lost {
            Ok(())
        } else {
            fail(
                "the first configuration of a list has epoch 1, and every position is Born on a node of its own".into(),
            )
        };
    };
    if (old.list, old.data, old.parity, old.ack_quorum) != (new.list, new.data, new.parity, new.ack_quorum) {
        return fail("a fixed field has changed".into());
    }
    if new.epoch.0 != old.epoch.0 + 1 {
        return fail(format!("the epoch before is {}", old.epoch.0));
    }
    if new.born != old.born && new.born != new.epoch {
        return fail("`born` is neither the old value nor this epoch".into());
    }
    if old.lost && !new.lost && new.born != new.epoch {
        return fail("a lost list is no longer lost without a reset".into());
    }
    for (i, (before, after)) in old.positions.iter().zip(&new.positions).enumerate() {
        let Some(after) = after else { continue };
        let same_tenure = before.is_some_and(|b| b.tenure == after.tenure);
        if same_tenure {
            let state = before.map(|b| b.state);
            let changes = state != Some(after.state);
            if changes && after.state != PositionState::Live {
                return fail(format!("position {i} became {:?} in the same tenure", after.state));
            }
        } else if after.tenure.since != new.epoch {
            return fail(format!(
                "position {i}: a new tenure begins at epoch {}",
                after.tenure.since.0
            ));
        } else if (after.state == PositionState::Born) != (new.born == new.epoch) || after.state == PositionState::Live
        {
            return fail(format!(
                "position {i}: a new tenure is Born if it begins empty, else Filling"
            ));
        }
    }
    if let Err(why) = check_slots(old, new) {
        return fail(why);
    }
    let same = Configuration {
        epoch: old.epoch,
        id: old.id,
        trail: old.trail.clone(),
        ..new.clone()
    };
    if same == *old {
        return fail("nothing has changed".into());
    }
    let mut sealed = new.clone();
    sealed.seal(Some(old));
    if (sealed.id, &sealed.trail) != (new.id, &new.trail) {
        return fail("its id does not follow from its history".into());
    }
    Ok(())
}

/// P10.8: slots change their stream only by a hand-off that the old configuration names.
fn check_slots(old: &Configuration, new: &Configuration) -> Result<(), String> {
    if new.slots.version == old.slots.version {
        if new.slots.ranges != old.slots.ranges {
            return Err("slots have moved without a new version of the map".into());
        }
        return match (old.slots.hand_off, new.slots.hand_off) {
            (Some(before), Some(after)) if before != after => Err("a hand-off was replaced by another".into()),
            _ => Ok(()),
        };
    }
    let done = old.slots.hand_off.filter(|h| h.version == new.slots.version);
    let Some(done) = done.filter(|_| new.slots.hand_off.is_none()) else {
        return Err("slots have moved without a hand-off".into());
    };
    // The hand-off was given up, or done up to some slot. At version 0 the old ranges are those of the cluster record,
    // and are not checked.
    let same = old.slots.version == 0 || new.slots.ranges == old.slots.ranges;
    let reached = |last: u16| hash_slots::after(old.slots.ranges.clone(), new.list, &done, last) == new.slots.ranges;
    // At the last slot that has moved, some range ends or begins, in the old or the new configuration.
    let ranges = old.slots.ranges.iter().chain(&new.slots.ranges);
    let mut ends = ranges.flat_map(|range| [range.first.wrapping_sub(1), range.last]);
    if same || ends.any(|last| (done.first..=done.last).contains(&last) && reached(last)) {
        Ok(())
    } else {
        Err("other slots have moved than the hand-off names".into())
    }
}

fn check_alone(new: &Configuration) -> Result<(), String> {
    let (data, parity) = (usize::from(new.data), usize::from(new.parity));
    if new.positions.len() != data + parity {
        return Err(format!("{} positions for {data}+{parity}", new.positions.len()));
    }
    if new.born > new.epoch {
        return Err("`born` is later than the epoch".into());
    }
    for (i, a) in new.positions.iter().enumerate() {
        let Some(a) = a else { continue };
        if a.tenure.since > new.epoch || a.tenure.since < Epoch(1) {
            return Err(format!("position {i}: its tenure begins at epoch {}", a.tenure.since.0));
        }
        if new.is_gone(a.tenure.node, a.tenure.incarnation) {
            return Err(format!("position {i} is held by {}, which is gone", a.tenure.node));
        }
    }
    if !new.slots.is_well_formed(new.list, new.data) {
        return Err("its ranges of slots are invalid".into());
    }
    if !new.is_within_limits() {
        return Err("a node holds more than two positions, or two parities".into());
    }
    let missing = |range: core::ops::Range<usize>| {
        let whole = |i: &usize| new.positions[*i].is_some_and(|a| a.state.is_live());
        range.filter(|i| !whole(i)).count()
    };
    let (d, p) = (missing(0..data), missing(data..data + parity));
    if parity > 0 && !new.lost && !is_decodable(d, p, parity, usize::from(new.ack_quorum)) {
        return Err(format!(
            "{d} data and {p} parity positions are not Live, and the list is not marked lost"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use paritas_base::configuration::Tenure;
    use paritas_base::hash_slots::{HandOff, SlotRange};
    use paritas_base::{Incarnation, ListId, Position, StreamId};

    #[test]
    fn any_a_losses_are_survived_and_up_to_m_if_fewer_than_a_are_parity() {
        for parity in 1..6 {
            for a in 1..=parity {
                for d in 0..8 {
                    for p in 0..=parity {
                        let covered = d == 0 || d + p <= a || (d + p <= parity && p < a);
                        assert_eq!(is_decodable(d, p, parity, a), covered, "m={parity} a={a} d={d} p={p}");
                    }
                }
            }
        }
    }

    #[test]
    fn slots_change_hands_as_far_as_any_slot_and_not_otherwise() {
        const SLOTS: u16 = 7;
        let stream = |list, x| StreamId {
            list: ListId(list),
            x: Position(x),
        };
        let (here, others) = ([stream(0, 0), stream(0, 1)], stream(1, 0));
        let is_held = |slot: u16, by: u32| by / 3u32.pow(u32::from(slot)) % 3;
        let ranges = |by: u32| {
            let rows = (0..SLOTS).filter_map(|slot| Some((slot, is_held(slot, by).checked_sub(1)?)));
            let mut ranges: Vec<SlotRange> = Vec::new();
            for (slot, x) in rows {
                match ranges.last_mut() {
                    Some(range) if range.last + 1 == slot && range.x.0 == x as u8 => range.last = slot,
                    _ => ranges.push(SlotRange {
                        first: slot,
                        last: slot,
                        x: Position(x as u8),
                    }),
                }
            }
            ranges
        };
        // `by` encodes the holder of each slot, in base 3: another list, position 0, or position 1. The inner loops
        // choose the slots that move and their destination.
        let all = 3u32.pow(u32::from(SLOTS));
        let mut changes = 0;
        for by in 0..all {
            for first in 0..SLOTS {
                let from = [others, here[0], here[1]][is_held(first, by) as usize];
                let alike = (first..SLOTS).take_while(|slot| is_held(*slot, by) == is_held(first, by));
                let last = first + alike.count() as u16 - 1;
                for to in [others, here[0], here[1]].into_iter().filter(|to| *to != from) {
                    let (mut old, mut new) = (list(1), list(2));
                    let version = 2;
                    let hand_off = HandOff {
                        version,
                        first,
                        last,
                        from,
                        to,
                    };
                    (old.slots.version, old.slots.ranges, old.slots.hand_off) = (1, ranges(by), Some(hand_off));
                    let possible: Vec<_> = (first..=last)
                        .map(|last| hash_slots::after(old.slots.ranges.clone(), ListId(0), &hand_off, last))
                        .collect();
                    new.slots.version = version;
                    for ranges in possible.iter().cloned().chain([ranges((by * 7 + 5) % all)]) {
                        let may = possible.contains(&ranges) || ranges == old.slots.ranges;
                        new.slots.ranges = ranges;
                        assert_eq!(check_slots(&old, &new).is_ok(), may, "{old:?}\n{new:?}");
                        changes += 1;
                    }
                }
            }
        }
        assert!(changes > 50_000, "{changes}");
    }

    fn held(node: u16, since: u32, state: PositionState) -> Option<Assignment> {
        let incarnation = Incarnation(u64::from(node) * 100 + u64::from(since));
        let tenure = Tenure {
            node: NodeId(node),
            incarnation,
            since: Epoch(since),
        };
        Some(Assignment { tenure, state })
    }

    fn list(epoch: u32) -> Configuration {
        let state = if epoch == 1 {
            PositionState::Born
        } else {
            PositionState::Live
        };
        let mut list = Configuration {
            list: ListId(0),
            epoch: Epoch(epoch),
            born: Epoch(1),
            data: 2,
            parity: 1,
            ack_quorum: 1,
            positions: (0..3).map(|n| held(n, 1, state)).collect(),
            gone: vec![],
            lost: false,
            slots: Default::default(),
            id: 0,
            trail: vec![],
            more: Default::default(),
        };
        list.seal(None);
        list
    }

    /// The next epoch without any change.
    fn unchanged() -> Configuration {
        Configuration {
            epoch: Epoch(2),
            ..list(1)
        }
    }

    #[test]
    fn every_broken_step_is_named() {
        let step = |change: fn(&mut Configuration)| {
            let mut new = list(2);
            change(&mut new);
            if new.id == list(2).id {
                new.seal(Some(&list(1)));
            }
            check_transition(Some(&list(1)), &new)
        };
        let filling = |c: &mut Configuration| c.positions[0] = held(7, 2, PositionState::Filling);
        assert_eq!(step(filling), Ok(()));
        assert_eq!(step(|c| c.positions[2] = None), Ok(()));
        type Case = (fn(&mut Configuration), &'static str);
        let broken: [Case; 12] = [
            (|c| *c = unchanged(), "nothing has changed"),
            (|c| c.id = 7, "does not follow"),
            (|c| c.epoch = Epoch(3), "the epoch before is 1"),
            (
                |c| c.positions[0] = held(7, 1, PositionState::Filling),
                "a new tenure begins at epoch 1",
            ),
            (
                |c| c.positions[0] = held(7, 3, PositionState::Filling),
                "begins at epoch 3",
            ),
            (
                |c| c.positions[0] = held(7, 2, PositionState::Live),
                "is Born if it begins empty",
            ),
            (
                |c| c.positions[0] = held(0, 1, PositionState::Filling),
                "became Filling in the same tenure",
            ),
            (
                |c| {
                    c.positions[0] = held(1, 2, PositionState::Filling);
                    c.positions[2] = held(1, 2, PositionState::Filling);
                },
                "more than two positions",
            ),
            (|c| (c.positions[0], c.positions[2]) = (None, None), "not marked lost"),
            (|c| c.gone = vec![(NodeId(1), Incarnation(101))], "which is gone"),
            (|c| c.ack_quorum = 0, "a fixed field"),
            (|c| c.positions.truncate(2), "2 positions for 2+1"),
        ];
        for (change, why) in broken {
            let error = step(change).unwrap_err();
            assert!(error.contains(why), "{error}, not {why}");
        }
        assert!(
            check_transition(None, &list(2))
                .unwrap_err()
                .contains("the first configuration")
        );
        assert_eq!(check_transition(None, &list(1)), Ok(()));
        // A stand-in may hold two positions.
        assert_eq!(step(|c| c.positions[0] = held(1, 2, PositionState::Filling)), Ok(()));
    }
}
