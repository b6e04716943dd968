//! Moves of slots between streams (P10.8). An operator's task is carried out as a sequence of hand-offs. The task is
//! recorded, so it continues after the operator's command or this coordinator has ended.

use super::{Coordinator, CoordinatorOut, send};
use crate::message::ToAgent;
use crate::record::StoredSlots;
use crate::status::{SlotMove, SlotMoveState};
use crate::store::Store;
use paritas_base::configuration::{ClusterRecord, Configuration, NodeRole, Tenure};
use paritas_base::hash_slots::{HandOff, SlotOrder, SlotTarget};
use paritas_base::{Epoch, ListId, NodeId, SLOT_COUNT, StreamId, Version};
use paritas_protocol::LinkId;
use serde::{Deserialize, Serialize};

/// Limit of slots in one hand-off. The source moves fewer if their data is large.
const STEP_SLOTS: u16 = 64;
/// Limit of proposals that wait for a decision.
const OFFERS_MAX: usize = 16;

/// An operator's task: move the slots from `first` to `last` to a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct SlotTask {
    pub(crate) first: u16,
    pub(crate) last: u16,
    pub(crate) to: StreamId,
}

/// A source's proposal to commit a hand-off.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    pub(super) version: u64,
    pub(super) last: Option<u16>,
    pub(super) from: Tenure,
    pub(super) to: Tenure,
}

/// Orders and proposals that are not committed yet.
#[derive(Clone, Debug, Default)]
pub(super) struct SlotOrders {
    /// The task (`None` cancels the present one), the link of the command, and the request's number.
    order: Option<(Option<SlotTask>, LinkId, u64)>,
    offers: Vec<Offer>,
}

/// The changed configurations, and the committed ones for the other lists.
struct Lists<'a, 'b> {
    changed: &'a mut Vec<Configuration>,
    all: &'b std::collections::BTreeMap<ListId, Configuration>,
    cluster: &'b ClusterRecord,
}

impl Lists<'_, '_> {
    fn get(&self, list: ListId) -> Option<&Configuration> {
        let changed = self.changed.iter().find(|c| c.list == list);
        changed.or_else(|| self.all.get(&list))
    }

    fn change(&mut self, list: ListId, change: impl FnOnce(&mut Configuration, &ClusterRecord)) {
        if !self.changed.iter().any(|c| c.list == list)
            && let Some(old) = self.all.get(&list)
        {
            let epoch = Epoch(old.epoch.0 + 1);
            self.changed.push(Configuration { epoch, ..old.clone() });
        }
        if let Some(list) = self.changed.iter_mut().find(|c| c.list == list) {
            change(list, self.cluster);
        }
    }

    /// Changes both lists of a hand-off, or the one list if both streams are in it.
    fn change_both(&mut self, what: HandOff, change: impl Fn(&mut Configuration, &ClusterRecord)) {
        self.change(what.from.list, &change);
        if what.to.list != what.from.list {
            self.change(what.to.list, &change);
        }
    }

    fn tenure(&self, stream: StreamId) -> Option<Tenure> {
        self.get(stream.list)?.tenure(stream.x)
    }

    /// Whether the stream's list is neither lost nor out of epochs.
    fn is_usable(&self, stream: StreamId) -> bool {
        self.get(stream.list)
            .is_some_and(|c| !c.lost && c.epoch.0 < Version::TERM_MAX)
    }
}

/// The stream that holds a slot, and the last slot of the contiguous range of that stream around it.
fn holder<'a>(
    mut lists: impl Iterator<Item = &'a Configuration>,
    cluster: &ClusterRecord,
    slot: u16,
) -> Option<(StreamId, u16)> {
    lists.find_map(|c| {
        let held = c.slots.held(c.list, cluster);
        let range = held.iter().find(|r| (r.first..=r.last).contains(&slot))?;
        let stream = StreamId {
            list: c.list,
            x: range.x,
        };
        Some((stream, range.last))
    })
}

impl<S: Store> Coordinator<S> {
    /// True if a decision is needed. The order is answered after the commit.
    pub(super) fn on_slot_order(
        &mut self,
        link: LinkId,
        n: u64,
        order: SlotOrder,
        out: &mut impl CoordinatorOut,
    ) -> bool {
        let refuse = |out: &mut _, why: String| send(out, link, &ToAgent::Ordered { n, refused: Some(why) });
        if let Some(why) = self.refuses_orders() {
            refuse(out, why);
            return false;
        }
        let task = match order {
            SlotOrder::GiveUp if self.records.slots.task.is_none() => {
                refuse(out, "no slots are being moved".into());
                return false;
            }
            SlotOrder::GiveUp => None,
            SlotOrder::Move { first, last, to } => match self.slot_task(first, last, to) {
                Ok(task) => Some(task),
                Err(why) => {
                    refuse(out, why);
                    return false;
                }
            },
        };
        if self.orders.slots.order.is_some() {
            refuse(out, "another order comes first".into());
            return false;
        }
        self.orders.slots.order = Some((task, link, n));
        true
    }

    fn slot_task(&self, first: u16, last: u16, to: SlotTarget) -> Result<SlotTask, String> {
        let lists = &self.records.lists;
        if first > last || last >= SLOT_COUNT {
            return Err(format!("slots are 0 to {}, the first one first", SLOT_COUNT - 1));
        }
        if let Some(task) = self.records.slots.task {
            return Err(format!(
                "slots {}-{} are being moved: wait for it, or give it up first",
                task.first, task.last
            ));
        }
        let holds = |node: NodeId, slot: u16| {
            let of = holder(lists.values(), &self.records.cluster, slot).map(|(stream, _)| stream);
            let tenure = of.and_then(|stream| lists.get(&stream.list)?.tenure(stream.x));
            tenure.is_some_and(|tenure| tenure.node == node)
        };
        if let SlotTarget::Node(node) = to
            && (first..=last).all(|slot| holds(node, slot))
        {
            return Err(format!("they are all of streams of {node} already"));
        }
        let to = match to {
            SlotTarget::StreamId(to) => lists
                .get(&to.list)
                .filter(|c| c.is_data(to.x))
                .map(|_| to)
                .ok_or_else(|| format!("there is no data position {} in list {}", to.x.0, to.list.0))?,
            SlotTarget::Node(node) => self
                .emptiest(node)
                .ok_or_else(|| format!("{node} {}holds no data position", self.if_log_node(node)))?,
        };
        let mut slots = first..=last;
        let usable = |stream: StreamId| lists.get(&stream.list).is_some_and(|c| !c.lost);
        let whose = |slot: u16| holder(lists.values(), &self.records.cluster, slot).map(|(stream, _)| stream);
        if !usable(to) {
            return Err(format!("list {} is lost", to.list.0));
        }
        if let Some(from) = slots.clone().filter_map(whose).find(|from| !usable(*from)) {
            return Err(format!(
                "list {} is lost, and some of the slots are its own",
                from.list.0
            ));
        }
        if slots.all(|slot| whose(slot) == Some(to)) {
            return Err(format!("they are all of position {} of list {}", to.x.0, to.list.0));
        }
        Ok(SlotTask { first, last, to })
    }

    fn if_log_node(&self, node: NodeId) -> &'static str {
        match self.records.nodes.get(&node).map(|n| n.record.role) {
            Some(NodeRole::Log) => "is a log node, which ",
            _ => "",
        }
    }

    /// The stream with the fewest slots among those that a node owns.
    fn emptiest(&self, node: NodeId) -> Option<StreamId> {
        let owned = self.records.lists.values().flat_map(|c| {
            let held = c.slots.held(c.list, &self.records.cluster);
            let data = c.of_node(node).filter(|(p, _)| c.is_data(*p));
            data.map(move |(x, _)| {
                let slots = held
                    .iter()
                    .filter(|r| r.x == x)
                    .map(|r| u32::from(r.last - r.first) + 1);
                (slots.sum::<u32>(), StreamId { list: c.list, x })
            })
            .collect::<Vec<_>>()
        });
        owned.min().map(|(_, stream)| stream)
    }

    /// True if a decision is needed.
    pub(super) fn on_offer(&mut self, link: LinkId, offer: Offer) -> bool {
        let wanted = self.registry.is_holder(link, &offer.from) && self.orders.slots.offers.len() < OFFERS_MAX;
        if wanted {
            self.orders.slots.offers.push(offer);
        }
        wanted
    }

    /// The new record of slot moves. Also changes the configurations of the lists that take part.
    pub(super) fn next_slots(&self, changed: &mut Vec<Configuration>) -> Option<StoredSlots> {
        if self.records.lists.is_empty() {
            return None;
        }
        let mut slots = self.records.slots.clone();
        let mut lists = Lists {
            changed,
            all: &self.records.lists,
            cluster: &self.records.cluster,
        };
        if let Some((task, ..)) = self.orders.slots.order {
            let reason = if task.is_none() { "given up by the operator" } else { "" };
            slots = StoredSlots {
                task,
                latest: task.or(slots.task),
                reason: reason.into(),
                ..slots
            };
        }
        if let Some(what) = self.records.lists.values().find_map(|c| c.slots.hand_off) {
            self.end_hand_off(what, &mut slots, &mut lists);
        } else if let Some(task) = slots.task {
            self.next_hand_off(task, &mut slots, &mut lists);
        }
        (slots != self.records.slots).then_some(slots)
    }

    /// Completes, gives up or continues the present hand-off.
    fn end_hand_off(&self, what: HandOff, slots: &mut StoredSlots, lists: &mut Lists<'_, '_>) {
        // A proposal counts only if both tenures still hold after the other changes of this decision.
        let (from, to) = (lists.tenure(what.from), lists.tenure(what.to));
        let agreed = |o: &&Offer| o.version == what.version && Some(o.from) == from && Some(o.to) == to;
        let offer = self.orders.slots.offers.iter().find(agreed);
        let usable = lists.is_usable(what.from) && lists.is_usable(what.to);
        let done = match (usable, slots.task, offer) {
            (true, Some(_), None) => return,
            (true, Some(_), Some(offer)) => {
                if offer.last.is_none() {
                    slots.give_up(
                        "no free memory at the destination, or it is too slow, or large values change too often",
                    );
                }
                offer.last.filter(|last| what.contains(*last))
            }
            (true, None, _) => None,
            (false, ..) => {
                slots.give_up("a list is lost");
                None
            }
        };
        lists.change_both(what, |c, cluster| {
            c.slots = match done {
                Some(last) => c.slots.after(c.list, cluster, &what, last),
                None => c.slots.given_up(c.list, cluster, &what),
            };
        });
    }

    /// Begins a hand-off of the next slots of a task.
    fn next_hand_off(&self, task: SlotTask, slots: &mut StoredSlots, lists: &mut Lists<'_, '_>) {
        let find = |slot: u16| {
            let now = lists.all.keys().filter_map(|list| lists.get(*list));
            holder(now, lists.cluster, slot)
        };
        let mut slot = task.first;
        let (from, row_ends) = loop {
            match find(slot).filter(|_| slot <= task.last) {
                Some((stream, last)) if stream == task.to && last < task.last => slot = last + 1,
                Some((stream, _)) if stream == task.to => {
                    slots.task = None;
                    return;
                }
                Some(found) => break found,
                None => {
                    slots.task = None;
                    return;
                }
            }
        };
        if !lists.is_usable(from) || !lists.is_usable(task.to) {
            slots.give_up("a list is lost");
            return;
        }
        slots.version += 1;
        let what = HandOff {
            version: slots.version,
            first: slot,
            last: row_ends.min(task.last).min(slot.saturating_add(STEP_SLOTS - 1)),
            from,
            to: task.to,
        };
        lists.change_both(what, |c, _| c.slots = c.slots.during(what));
    }

    /// Answers the waiting order after a commit, or when nothing needed a commit. True if the next hand-off may begin.
    pub(super) fn answer_slot_order(&mut self, out: &mut impl CoordinatorOut) -> bool {
        self.orders.slots.offers.clear();
        if let Some((_, link, n)) = self.orders.slots.order.take() {
            send(out, link, &ToAgent::Ordered { n, refused: None });
        }
        let idle = self.records.lists.values().all(|c| c.slots.hand_off.is_none());
        idle && self.records.slots.task.is_some()
    }

    /// The progress of the present task, or of the last one.
    pub(super) fn slot_move(&self) -> Option<SlotMove> {
        let slots = &self.records.slots;
        let task = slots.task.or(slots.latest)?;
        let whose = |slot: &u16| holder(self.records.lists.values(), &self.records.cluster, *slot).map(|(s, _)| s);
        let there = (task.first..=task.last).filter(|slot| whose(slot) == Some(task.to));
        Some(SlotMove {
            first: task.first,
            last: task.last,
            list: task.to.list,
            position: task.to.x,
            moved_slots: there.count(),
            total_slots: usize::from(task.last - task.first) + 1,
            state: match (slots.task, slots.reason.is_empty()) {
                (Some(_), _) => SlotMoveState::Moving,
                (None, true) => SlotMoveState::Done,
                (None, false) => SlotMoveState::GivenUp,
            },
            reason: slots.reason.clone(),
        })
    }
}
