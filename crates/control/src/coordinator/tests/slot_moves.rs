//! Tests of moves of slots between streams (P10.8).

use super::world::{World, plan};
use super::*;
use crate::status::SlotMoveState;
use paritas_base::hash_slots::{HandOff, SlotOrder, SlotTarget};
use paritas_base::{Position, StreamId};

impl World {
    /// Gives an operator's order. Returns why it is refused.
    pub(super) fn order_slots(&mut self, order: SlotOrder) -> Option<String> {
        let link = self.connect();
        self.say(link, &ToCoordinator::MoveSlots { n: 6, order });
        match self.received(link).pop() {
            Some(ToAgent::Ordered { n: 6, refused }) => refused,
            // The store has failed: the coordinator will try again.
            None => None,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn hand_off(&self) -> Option<HandOff> {
        self.coordinator.configurations().find_map(|c| c.slots.hand_off)
    }

    fn owner(&self, stream: StreamId) -> Option<Tenure> {
        let mut lists = self.coordinator.configurations();
        lists.find(|c| c.list == stream.list)?.tenure(stream.x)
    }

    /// The source of the present hand-off, if it runs, reports that this number of slots has arrived, or gives it up.
    pub(super) fn offer_slots(&mut self, count: Option<u16>) {
        let Some(hand_off) = self.hand_off() else { return };
        let (Some(from), Some(to)) = (self.owner(hand_off.from), self.owner(hand_off.to)) else {
            return;
        };
        let last = count.map(|count| hand_off.last.min(hand_off.first + count.max(1) - 1));
        self.offer_between(hand_off.version, last, from, to);
    }

    fn offer_between(&mut self, version: u64, last: Option<u16>, from: Tenure, to: Tenure) {
        let node = &self.nodes[&from.node.0];
        if node.alive && node.incarnation == from.incarnation {
            let message = ToCoordinator::HandOff {
                version,
                last,
                from,
                to,
            };
            self.say_as(from.node.0, &message);
        }
    }

    pub(super) fn slots_of(&self, stream: StreamId) -> u32 {
        let cluster = self.coordinator.cluster();
        let list = self.coordinator.configurations().find(|c| c.list == stream.list);
        let held = list.unwrap().slots.held(stream.list, cluster);
        let own = held.iter().filter(|r| r.x == stream.x);
        own.map(|r| u32::from(r.last - r.first) + 1).sum()
    }
}

fn stream(list: u16, x: u8) -> StreamId {
    StreamId {
        list: ListId(list),
        x: Position(x),
    }
}

fn order(first: u16, last: u16, to: StreamId) -> SlotOrder {
    let to = SlotTarget::StreamId(to);
    SlotOrder::Move { first, last, to }
}

#[test]
fn slots_move_a_few_at_a_time_until_all_have_moved() {
    let mut world = World::started(plan(2, 1, 4, 0));
    let to = stream(1, 1);
    let before = world.slots_of(to);
    assert_eq!(world.order_slots(order(0, 199, to)), None);
    let mut steps = 0;
    while let Some(hand_off) = world.hand_off() {
        assert!(hand_off.last - hand_off.first < 64 && hand_off.to == to, "{hand_off:?}");
        // A source may move fewer slots than the hand-off names.
        world.offer_slots(Some(if steps == 0 { 10 } else { 64 }));
        steps += 1;
        assert!(steps < 10);
        world.pass(1);
    }
    assert_eq!(steps, 4, "10, 64, 64, 62");
    assert_eq!(world.slots_of(to), before + 200);
    let slots = world.coordinator.slot_move().unwrap();
    assert_eq!((slots.state, slots.moved_slots), (SlotMoveState::Done, 200));
}

#[test]
fn a_proposal_counts_only_between_the_two_tenures_and_for_this_hand_off() {
    let mut world = World::started(plan(2, 1, 4, 1));
    world.start(4);
    let (from, to) = (stream(0, 0), stream(0, 1));
    let range = world.coordinator.configurations().next().unwrap().slots.clone();
    let held = range.held(ListId(0), world.coordinator.cluster());
    let first = held.iter().find(|r| r.x == from.x).unwrap().first;
    assert_eq!(world.order_slots(order(first, first + 9, to)), None);
    let hand_off = world.hand_off().unwrap();
    assert_eq!((hand_off.from, hand_off.first, hand_off.last), (from, first, first + 9));
    let (owner, other) = (world.owner(from).unwrap(), world.owner(to).unwrap());
    world.offer_between(hand_off.version + 1, Some(hand_off.last), owner, other);
    world.offer_between(hand_off.version - 1, Some(hand_off.last), owner, other);
    let elsewhere = Tenure {
        incarnation: Incarnation(77),
        ..other
    };
    world.offer_between(hand_off.version, Some(hand_off.last), owner, elsewhere);
    // Sent by another node than the source.
    let message = ToCoordinator::HandOff {
        version: hand_off.version,
        last: Some(hand_off.last),
        from: owner,
        to: other,
    };
    world.say_as(other.node.0, &message);
    assert_eq!(world.hand_off(), Some(hand_off));
    // The destination's node ends: the slots that it received do not count.
    world.certify(other.node.0);
    world.pass(900);
    let successor = world.owner(to).unwrap();
    assert_ne!(successor, other);
    assert_eq!(
        world.hand_off(),
        Some(hand_off),
        "the hand-off continues after a change of owner"
    );
    world.offer_between(hand_off.version, Some(hand_off.last), owner, other);
    assert_eq!(world.hand_off(), Some(hand_off));
    world.offer_between(hand_off.version, Some(hand_off.last), owner, successor);
    assert_eq!(world.hand_off(), None);
    world.pass(1);
    assert_eq!(world.coordinator.slot_move().unwrap().state, SlotMoveState::Done);
}

#[test]
fn a_move_without_space_is_given_up_and_an_operator_may_stop_one() {
    let mut world = World::started(plan(2, 1, 4, 0));
    let to = SlotTarget::Node(NodeId(1));
    let (first, last) = (0, 16_383);
    assert_eq!(world.order_slots(SlotOrder::Move { first, last, to }), None);
    let refused = world.order_slots(order(0, 9, stream(0, 0))).unwrap();
    assert!(refused.contains("are being moved"), "{refused}");
    world.offer_slots(Some(64));
    world.pass(1);
    world.offer_slots(None);
    let slots = world.coordinator.slot_move().unwrap();
    assert_eq!(slots.state, SlotMoveState::GivenUp);
    assert!(
        slots.reason.contains("no free memory") && slots.moved_slots >= 64,
        "{slots:?}"
    );
    assert_eq!(world.hand_off(), None);
    assert_eq!(world.order_slots(order(0, 9, stream(0, 0))), None);
    assert!(world.hand_off().is_some());
    assert_eq!(world.order_slots(SlotOrder::GiveUp), None);
    assert_eq!(world.hand_off(), None);
    let reason = world.coordinator.slot_move().unwrap().reason;
    assert!(reason.contains("operator"), "{reason}");
    let refused = world.order_slots(SlotOrder::GiveUp).unwrap();
    assert!(refused.contains("no slots are being moved"), "{refused}");
}

#[test]
fn impossible_orders_are_refused() {
    let mut world = World::started(plan(2, 1, 4, 1));
    world.start(4);
    let node = |node| SlotOrder::Move {
        first: 0,
        last: 1,
        to: SlotTarget::Node(NodeId(node)),
    };
    for (order, why) in [
        (order(5, 4, stream(0, 0)), "slots are 0 to 16383"),
        (order(0, 16_384, stream(0, 0)), "slots are 0 to 16383"),
        (order(0, 1, stream(99, 0)), "no data position"),
        (order(0, 1, stream(0, 2)), "no data position"),
        (node(4), "holds no data position"),
        (node(99), "holds no data position"),
    ] {
        let said = world.order_slots(order).unwrap();
        assert!(said.contains(why), "{said}");
    }
    let cluster = world.coordinator.cluster().clone();
    let (last, owner) = cluster.slots[0];
    let said = world.order_slots(order(0, last, owner)).unwrap();
    assert!(said.contains("they are all of position"), "{said}");
    let holder = world.coordinator.records.lists[&owner.list]
        .tenure(owner.x)
        .unwrap()
        .node;
    let to_holder = SlotOrder::Move {
        first: 0,
        last,
        to: SlotTarget::Node(holder),
    };
    let said = world.order_slots(to_holder).unwrap();
    assert_eq!(said, format!("they are all of streams of {holder} already"));
}

#[test]
fn a_coordinator_that_starts_again_goes_on() {
    let mut world = World::started(plan(2, 1, 4, 0));
    let to = stream(1, 1);
    let before = world.slots_of(to);
    assert_eq!(world.order_slots(order(0, 99, to)), None);
    world.offer_slots(Some(64));
    world.reopen();
    (0..4).for_each(|node| world.register_again(node));
    for _ in 0..3 {
        world.pass(300);
        world.offer_slots(Some(64));
    }
    assert_eq!(world.slots_of(to), before + 100);
}
