//! Records that the coordinator writes and all nodes obey: the cluster, its nodes, and the configuration of each stripe
//! list (P1.2). Plain data. The rules that change them are in `control`.

use crate::hash_slots::ListSlots;
use crate::{ClusterId, Epoch, Incarnation, ListId, NodeId, Position, SLOT_COUNT, Sections, StreamId, Term, Version};
use core::hash::Hasher;
use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher24;

/// One assignment of a position: node, incarnation *and* first epoch. A node may be removed and later named again in
/// the same incarnation; the epoch tells the two assignments apart (P1.2, P2.3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Tenure {
    /// The node that holds the position.
    pub node: NodeId,
    /// The incarnation of the node's process.
    pub incarnation: Incarnation,
    /// The epoch at which this assignment began. For a data position it is the term of its owner.
    pub since: Epoch,
}

impl Tenure {
    /// `since` as a term. Meaningful for data positions only.
    pub fn term(&self) -> Term {
        self.since.0
    }
}

/// Whether a position holds all its data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum PositionState {
    /// It holds all its data.
    Live,
    /// It is being rebuilt.
    Filling,
    /// Complete because it is empty: its list has just begun or been reset, and the holder has not yet reported that it
    /// has started. A process may create an empty role only in this state (P10.15).
    Born,
}

impl PositionState {
    /// Whether the position counts as one that holds all its data.
    pub fn is_live(self) -> bool {
        self != Self::Filling
    }
}

/// The holder of a position, and the state of the position.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Assignment {
    /// The node, its incarnation, and the epoch at which it became the holder.
    pub tenure: Tenure,
    /// Whether the position holds all its data.
    pub state: PositionState,
}

/// The configuration of one stripe list at one epoch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Configuration {
    /// The stripe list.
    pub list: ListId,
    /// Number of this configuration. It grows by one with every change.
    pub epoch: Epoch,
    /// The epoch at which the list began empty: its creation or its latest reset. An assignment with `since == born`
    /// started with an empty position. Every later assignment takes over from an earlier one.
    pub born: Epoch,
    /// Number of data positions.
    pub data: u8,
    /// Number of parity positions.
    pub parity: u8,
    /// Number of members that must hold a write before it is acknowledged: 1 to `parity`, or 0 without parity (P1.2).
    pub ack_quorum: u8,
    /// The `data + parity` positions in order; `None` for a vacant one.
    pub positions: Vec<Option<Assignment>>,
    /// Incarnations that were certified as ended when this configuration was committed (P10.4).
    pub gone: Vec<(NodeId, Incarnation)>,
    /// Crashes took more positions than the scheme tolerates, so no chunk of this list can be rebuilt (P10.6).
    pub lost: bool,
    /// The hash slots that the streams of this list hold.
    pub slots: ListSlots,
    /// Identifies this configuration and its whole history: a hash over the previous id and all fields here except `id`
    /// and `trail` (P10.14). [`Configuration::seal`] computes it.
    pub id: u64,
    /// The ids of the preceding epochs, latest first: up to [`Configuration::TRAIL_MAX`], or more if a node asked for
    /// more.
    pub trail: Vec<u64>,
    /// What a later version has added.
    pub more: Sections,
}

/// How a later configuration of a list relates to an earlier one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lineage {
    /// Same history: the later one may be installed over the earlier one.
    Follows,
    /// Different histories: one of the two was decided from a coordinator's store that had gone back in time.
    Foreign,
    /// Not known: the trail of the later one does not reach back to the earlier one.
    Unknown,
}

impl Configuration {
    /// Number of earlier ids that a configuration carries by default.
    pub const TRAIL_MAX: usize = 16;
    /// Number of earlier ids that the coordinator keeps for each list. A configuration carries no more than this.
    pub const HISTORY_MAX: usize = 1024;

    /// Sets `trail` and `id`. `before` is the preceding configuration of the list, or `None` for the first.
    pub fn seal(&mut self, before: Option<&Self>) {
        self.trail = before.map_or(Vec::new(), |before| {
            let earlier = before.trail.iter().copied();
            core::iter::once(before.id)
                .chain(earlier)
                .take(Self::TRAIL_MAX)
                .collect()
        });
        let body = Self {
            id: 0,
            trail: Vec::new(),
            ..self.clone()
        };
        let mut hasher = SipHasher24::new_with_keys(before.map_or(0, |before| before.id), self.epoch.0.into());
        // Cannot fail: postcard refuses only sequences of unknown length, and plain data has none.
        hasher.write(&postcard::to_allocvec(&body).unwrap_or_default());
        self.id = hasher.finish();
    }

    /// How this configuration relates to the one with the given epoch and id (P10.14). The same configuration
    /// counts as following itself.
    pub fn lineage(&self, epoch: Epoch, id: u64) -> Lineage {
        let found = match self.epoch.0.checked_sub(epoch.0) {
            None => return Lineage::Foreign,
            Some(0) => Some(self.id),
            Some(back) => self.trail.get(back as usize - 1).copied(),
        };
        match found {
            Some(found) if found == id => Lineage::Follows,
            Some(_) => Lineage::Foreign,
            None => Lineage::Unknown,
        }
    }

    /// Number of positions of a list that one node may hold: its own, and one more as a stand-in (P10.5).
    pub const POSITIONS_OF_A_NODE_MAX: usize = 2;

    /// Whether every node holds only positions that it may hold together ([`Configuration::may_hold`]).
    pub fn is_within_limits(&self) -> bool {
        let positions = self.positions.iter().enumerate();
        let mut held = positions.filter_map(|(i, a)| Some((Position(i as u8), a.as_ref()?)));
        held.all(|(position, a)| self.may_hold(a.tenure.node, position))
    }

    /// Whether the node may hold this position beside its other ones. The limit is two positions, at most one of them a
    /// parity position. Messages within a list name a stream and not a position, so two parity members on one node
    /// could not be told apart.
    pub fn may_hold(&self, node: NodeId, position: Position) -> bool {
        let others = || self.of_node(node).filter(|(p, _)| *p != position);
        others().count() < Self::POSITIONS_OF_A_NODE_MAX
            && (self.is_data(position) || others().all(|(p, _)| self.is_data(p)))
    }

    /// Whether any node holds more than one position of the list.
    pub fn has_stand_ins(&self) -> bool {
        let mut nodes: Vec<NodeId> = self.positions.iter().flatten().map(|a| a.tenure.node).collect();
        nodes.sort_unstable();
        nodes.windows(2).any(|pair| pair[0] == pair[1])
    }

    /// Whether the holder of the position is a stand-in: the node also holds an older position of the list (P10.5).
    pub fn is_stand_in(&self, position: Position) -> bool {
        let Some(held) = self.tenure(position) else {
            return false;
        };
        let age = |position: Position, a: &Assignment| (a.tenure.since, position);
        let mine = (held.since, position);
        self.of_node(held.node).any(|(p, a)| age(p, a) < mine)
    }

    /// Whether the memory of the position's holder was not planned for it. On a node with two positions this is true
    /// for the younger one, and for the older one too until it is complete: a younger parity may have been completed
    /// first and have used the memory of the older position.
    pub fn may_lack_memory(&self, position: Position) -> bool {
        let filling = |a: &Assignment| a.state == PositionState::Filling && self.of_node(a.tenure.node).count() > 1;
        self.is_stand_in(position) || self.at(position).is_some_and(filling)
    }

    /// Every position that `node` holds, in any incarnation.
    pub fn of_node(&self, node: NodeId) -> impl Iterator<Item = (Position, &Assignment)> {
        self.positions.iter().enumerate().filter_map(move |(i, a)| {
            let a = a.as_ref()?;
            (a.tenure.node == node).then_some((Position(i as u8), a))
        })
    }

    /// The assignment of a position; `None` if it is vacant.
    pub fn at(&self, position: Position) -> Option<&Assignment> {
        self.positions.get(position.index())?.as_ref()
    }

    /// The tenure of a position; `None` if it is vacant.
    pub fn tenure(&self, position: Position) -> Option<Tenure> {
        self.at(position).map(|a| a.tenure)
    }

    /// The parity positions that have a holder, in order.
    pub fn members(&self) -> impl Iterator<Item = (Position, &Assignment)> {
        let first = usize::from(self.data);
        (first..self.positions.len()).filter_map(|i| Some((Position(i as u8), self.positions[i].as_ref()?)))
    }

    /// The data positions, in order.
    pub fn data_positions(&self) -> impl Iterator<Item = Position> + use<> {
        (0..self.data).map(Position)
    }

    /// The streams of this list: one for each data position.
    pub fn streams(&self) -> impl Iterator<Item = StreamId> + use<> {
        let list = self.list;
        self.data_positions().map(move |x| StreamId { list, x })
    }

    /// Whether the position is a data position.
    pub fn is_data(&self, position: Position) -> bool {
        position.0 < self.data
    }

    /// Whether this incarnation was certified as ended.
    pub fn is_gone(&self, node: NodeId, incarnation: Incarnation) -> bool {
        self.gone.contains(&(node, incarnation))
    }

    /// Whether this assignment began empty, whatever its state is now. With parity, only an assignment from the list's
    /// beginning did. Without parity there is nothing to rebuild from, so every assignment begins empty (P10.6). `born`
    /// is then the latest of several beginnings, and a node may learn of a later one first.
    pub fn is_born(&self, tenure: &Tenure) -> bool {
        self.parity == 0 || tenure.since == self.born
    }

    /// Whether the fields are consistent with each other and within the limits of the format. This holds for every
    /// configuration, whatever its origin.
    pub fn is_well_formed(&self) -> bool {
        self.data > 0
            && self.positions.len() == usize::from(self.data) + usize::from(self.parity)
            && self.ack_quorum <= self.parity
            && self.epoch.0 <= Version::TERM_MAX
            && self.born <= self.epoch
            && self.positions.iter().flatten().all(|a| a.tenure.since <= self.epoch)
            && self.slots.is_well_formed(self.list, self.data)
            && self.trail.len() <= Self::HISTORY_MAX
    }

    /// Every position that `node` holds in this incarnation.
    pub fn held_by(&self, node: NodeId, incarnation: Incarnation) -> impl Iterator<Item = (Position, &Assignment)> {
        self.of_node(node)
            .filter(move |(_, a)| a.tenure.incarnation == incarnation)
    }
}

/// Properties of a cluster that are fixed, or nearly so, from its creation (docs/formats/control.md).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClusterRecord {
    /// The cluster.
    pub id: ClusterId,
    /// The version of formats that all speak ([`crate::formats`]).
    pub active_version: u16,
    /// Number of data positions of every list.
    pub data: u8,
    /// Number of parity positions of every list.
    pub parity: u8,
    /// Number of parity members that must hold a write before it is acknowledged (P1.2).
    pub ack_quorum: u8,
    /// Bytes in a chunk: a power of two, 4 KiB to 64 KiB; smaller in simulation.
    pub chunk_bytes: u32,
    /// Key of the keyed hash. It is the same on every node, so that all compute the same index page for a key.
    pub hash_key: [u64; 2],
    /// Lease length L in milliseconds (P4.3).
    pub lease_ms: u32,
    /// Time without a heartbeat after which a node is suspected, in milliseconds (P10.2).
    pub suspicion_ms: u32,
    /// Number of Live parity members below which writes are refused (P3.1).
    pub min_redundancy: u8,
    /// Hash slots at the cluster's creation: the last slot of each stream, in slot order. Entry `i` covers the slots
    /// after the end of entry `i - 1` up to its own. Later hand-offs are recorded in the lists' configurations
    /// ([`Configuration::slots`]).
    pub slots: Vec<(u16, StreamId)>,
    /// Number of parity positions of each list, counted from the last, that lie on log nodes. Fewer than `parity`, or
    /// 0.
    pub logged: u8,
    /// What a later version has added.
    pub more: Sections,
}

impl ClusterRecord {
    /// Whether the position belongs on a log node. Another node may hold it while no log node is free.
    pub fn is_logged(&self, position: Position) -> bool {
        let width = u16::from(self.data) + u16::from(self.parity);
        let in_memory = width - u16::from(self.logged).min(width);
        (in_memory..width).contains(&u16::from(position.0))
    }

    /// Whether the slot map covers every hash slot once, in order.
    pub fn slots_are_whole(&self) -> bool {
        self.slots.windows(2).all(|w| w[0].0 < w[1].0) && self.slots.last().is_some_and(|l| l.0 == SLOT_COUNT - 1)
    }
}

/// What a node is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum NodeRole {
    /// Holds positions of stripe lists from the start.
    Member,
    /// Holds nothing until it replaces another node.
    Spare,
    /// Holds only logged parity positions, on disk.
    Log,
}

/// Whether the coordinator hears from a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum NodeState {
    /// Registered and answering.
    Up,
    /// Silent, or certified ended.
    Down,
}

/// Which positions a node is wanted to hold. The operator sets it; for a slow node the coordinator does (P5.12,
/// P10.2a). Nodes are not told: it only influences where positions are placed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Duty {
    /// Holds any position assigned to it.
    Full,
    /// As `Full`, and the positions that it holds by plan are moved back to it.
    Returning,
    /// Gives up all positions, one list after the other.
    Draining,
    /// Gives up all positions, as soon as redundancy permits.
    Shunned,
    /// As `Shunned`, for a limited time, because its acknowledgements come late.
    Slow,
}

impl Duty {
    /// Whether the node is to hold no position.
    pub fn leaves(self) -> bool {
        matches!(self, Self::Draining | Self::Shunned | Self::Slow)
    }
}

/// A node as the coordinator knows it (docs/formats/control.md).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeRecord {
    /// The node's id.
    pub id: NodeId,
    /// Its present incarnation.
    pub incarnation: Incarnation,
    /// Counts the node's incarnations from 1. Of two records of a node, the one with the higher number is newer
    /// (P10.16).
    pub ordinal: u32,
    /// Its failure domain. The default is its own id.
    pub domain: String,
    /// Which kind of node it is.
    pub role: NodeRole,
    /// Whether the coordinator hears from it.
    pub state: NodeState,
    /// Process id, shown to operators.
    pub pid: u32,
    /// Address, as `host:port`, where clients may send commands for any key.
    pub client_address: String,
    /// Address for cluster-aware clients.
    pub cluster_address: String,
    /// Address where peers connect.
    pub peer_address: String,
    /// What a later version has added.
    pub more: Sections,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_parity_positions_are_the_logged_ones() {
        let record = |logged| ClusterRecord {
            id: ClusterId(1),
            active_version: crate::formats::HIGHEST,
            data: 4,
            parity: 3,
            ack_quorum: 3,
            chunk_bytes: 4096,
            hash_key: [0, 0],
            lease_ms: 1,
            suspicion_ms: 1,
            min_redundancy: 1,
            slots: Vec::new(),
            logged,
            more: Default::default(),
        };
        let logged =
            |record: ClusterRecord| -> Vec<u8> { (0..=7).filter(|p| record.is_logged(Position(*p))).collect() };
        assert_eq!(logged(record(0)), []);
        assert_eq!(logged(record(2)), [5, 6]);
    }

    #[test]
    fn without_parity_every_tenure_begins_empty() {
        let tenure = |since| Tenure {
            node: NodeId(1),
            incarnation: Incarnation(1),
            since: Epoch(since),
        };
        let list = |parity| Configuration {
            list: ListId(0),
            epoch: Epoch(5),
            born: Epoch(4),
            data: 1,
            parity,
            ack_quorum: parity,
            positions: vec![None; 1 + usize::from(parity)],
            gone: Vec::new(),
            lost: false,
            slots: ListSlots::default(),
            id: 0,
            trail: Vec::new(),
            more: Default::default(),
        };
        // Another position began empty at epoch 4, after this tenure began.
        assert!(list(0).is_born(&tenure(3)));
        assert!(!list(1).is_born(&tenure(3)) && list(1).is_born(&tenure(4)));
    }

    #[test]
    fn an_id_names_the_whole_history() {
        let list = |epoch: u32, lost: bool, before: Option<&Configuration>| {
            let mut list = Configuration {
                list: ListId(0),
                epoch: Epoch(epoch),
                born: Epoch(1),
                data: 1,
                parity: 0,
                ack_quorum: 0,
                positions: vec![None],
                gone: Vec::new(),
                lost,
                slots: ListSlots::default(),
                id: 0,
                trail: Vec::new(),
                more: Default::default(),
            };
            list.seal(before);
            list
        };
        let first = list(1, false, None);
        let (second, other) = (list(2, false, Some(&first)), list(2, true, Some(&first)));
        assert_ne!(second.id, other.id);
        // The same contents after a different history have a different id.
        let (third, after_other) = (list(3, false, Some(&second)), list(3, false, Some(&other)));
        assert_ne!(third.id, after_other.id);
        for (earlier, expected) in [
            (&third, Lineage::Follows),
            (&second, Lineage::Follows),
            (&first, Lineage::Follows),
            (&other, Lineage::Foreign),
            (&after_other, Lineage::Foreign),
            (&list(4, false, Some(&third)), Lineage::Foreign),
        ] {
            assert_eq!(third.lineage(earlier.epoch, earlier.id), expected, "{earlier:?}");
        }
        let mut latest = third;
        for epoch in 4..40 {
            latest = list(epoch, false, Some(&latest));
        }
        assert_eq!(latest.trail.len(), Configuration::TRAIL_MAX);
        assert_eq!(
            latest.lineage(Epoch(1), first.id),
            Lineage::Unknown,
            "the trail does not reach that far back"
        );
        let oldest = latest.trail.last().copied().unwrap();
        assert_eq!(latest.lineage(Epoch(39 - 16), oldest), Lineage::Follows);
    }
}
