//! What the coordinator decides and everyone else obeys: the cluster, its nodes, and each list's configuration
//! (PROTOCOL 1.2, SEAMS §3). Plain data; the rules that make it are in `control`.

use crate::slots::ListSlots;
use crate::{ClusterId, Epoch, Incarnation, ListId, NodeId, Position, SLOT_COUNT, Stream, Term, Version};
use core::hash::Hasher;
use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher24;

/// One assignment of a position: by node, life *and* beginning, so that a node which is removed and later named
/// again cannot take the second assignment for the first (PROTOCOL 1.2, 2.3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Tenure {
    /// The node.
    pub node: NodeId,
    /// Its life.
    pub incarnation: Incarnation,
    /// The epoch at which this assignment began. For a data position, its owner's term.
    pub since: Epoch,
}

impl Tenure {
    /// `since` as a term (data positions).
    pub fn term(&self) -> Term {
        self.since.0
    }
}

/// Whether a position holds all its data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum PositionState {
    /// Complete.
    Live,
    /// Being rebuilt.
    Filling,
    /// Complete since it is empty: the list begins, or begins again, and the holder has not said yet that it has begun.
    /// Only under this state may a process make an empty role (PROTOCOL 10.15).
    Born,
}

impl PositionState {
    /// Whether the position counts as one that holds all its data.
    pub fn is_live(self) -> bool {
        self != Self::Filling
    }
}

/// Who holds a position.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Assignment {
    /// Who, and since when.
    pub tenure: Tenure,
    /// Whether it is complete.
    pub state: PositionState,
}

/// The configuration of one list at one epoch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Configuration {
    /// Which list.
    pub list: ListId,
    /// Grows by one with every change.
    pub epoch: Epoch,
    /// The epoch at which the list began empty, at first or by a reset. An assignment with `since == born` holds an
    /// empty position and takes nothing over; every later one does.
    pub born: Epoch,
    /// Data positions.
    pub data: u8,
    /// Parity positions.
    pub parity: u8,
    /// How many members must hold a write before it is acknowledged: 1 to `parity`, 0 without parity (PROTOCOL 1.2).
    pub ack_quorum: u8,
    /// `data + parity` places; `None` while nobody holds one.
    pub positions: Vec<Option<Assignment>>,
    /// Lives certified ended when this was committed (PROTOCOL 10.4).
    pub gone: Vec<(NodeId, Incarnation)>,
    /// More positions were lost than the scheme covers, by crashes: nothing here can be rebuilt (PROTOCOL 10.6).
    pub lost: bool,
    /// Which slots its streams hold.
    pub slots: ListSlots,
    /// Names this configuration and all before it: a hash of the id before and of everything else here but the trail
    /// (PROTOCOL 10.14). Made by [`Configuration::seal`].
    pub id: u64,
    /// The ids of the epochs before this one, the latest first: [`Configuration::TRAIL_MAX`] of them, or as many as a
    /// node asked for.
    pub trail: Vec<u64>,
}

/// How two configurations of a list stand to each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lineage {
    /// One history: the later one may be installed over the earlier one.
    Follows,
    /// Two histories: one of them was decided from a store that went back in time.
    Foreign,
    /// The trail of the later one does not reach back to the earlier one.
    Unknown,
}

impl Configuration {
    /// Earlier ids that a configuration carries.
    pub const TRAIL_MAX: usize = 16;
    /// Earlier ids that the coordinator keeps of a list, and that a configuration carries at most.
    pub const HISTORY_MAX: usize = 1024;

    /// Gives the configuration its place in the history of its list: after `before`, or first.
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
        // Plain data: postcard refuses only sequences of unknown length, and there are none.
        hasher.write(&postcard::to_allocvec(&body).unwrap_or_default());
        self.id = hasher.finish();
    }

    /// Whether this configuration comes after the one with that epoch and id, or is that one (PROTOCOL 10.14).
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

    /// Positions of a list that one node may hold: its own, and one more as a stand-in (PROTOCOL 10.5).
    pub const POSITIONS_OF_A_NODE_MAX: usize = 2;

    /// Whether no node holds more of the list than it may.
    pub fn is_within_limits(&self) -> bool {
        let positions = self.positions.iter().enumerate();
        let mut held = positions.filter_map(|(i, a)| Some((Position(i as u8), a.as_ref()?)));
        held.all(|(position, a)| self.may_hold(a.tenure.node, position))
    }

    /// Whether the node may hold this position beside what else it holds: two positions, one of them a parity at most.
    /// Messages within a list name a stream and not a position, so that two members on one node could not be told
    /// apart.
    pub fn may_hold(&self, node: NodeId, position: Position) -> bool {
        let others = || self.of_node(node).filter(|(p, _)| *p != position);
        others().count() < Self::POSITIONS_OF_A_NODE_MAX
            && (self.is_data(position) || others().all(|(p, _)| self.is_data(p)))
    }

    /// Whether any node holds more than one position.
    pub fn has_stand_ins(&self) -> bool {
        let mut nodes: Vec<NodeId> = self.positions.iter().flatten().map(|a| a.tenure.node).collect();
        nodes.sort_unstable();
        nodes.windows(2).any(|pair| pair[0] == pair[1])
    }

    /// Whether who holds the position does so for want of another node: it holds an older one too (PROTOCOL 10.5).
    pub fn is_stand_in(&self, position: Position) -> bool {
        let Some(held) = self.tenure(position) else {
            return false;
        };
        let age = |position: Position, a: &Assignment| (a.tenure.since, position);
        let mine = (held.since, position);
        self.of_node(held.node).any(|(p, a)| age(p, a) < mine)
    }

    /// Whether the memory of who holds the position was not planned for it: of two positions of a node that is the
    /// younger one, and the older one too until it is whole. A younger parity may be whole first, and have taken what
    /// there was.
    pub fn may_lack_memory(&self, position: Position) -> bool {
        let filling = |a: &Assignment| a.state == PositionState::Filling && self.of_node(a.tenure.node).count() > 1;
        self.is_stand_in(position) || self.at(position).is_some_and(filling)
    }

    /// Every position that `node` holds, in whatever life.
    pub fn of_node(&self, node: NodeId) -> impl Iterator<Item = (Position, &Assignment)> {
        self.positions.iter().enumerate().filter_map(move |(i, a)| {
            let a = a.as_ref()?;
            (a.tenure.node == node).then_some((Position(i as u8), a))
        })
    }

    /// Who holds a position.
    pub fn at(&self, position: Position) -> Option<&Assignment> {
        self.positions.get(position.index())?.as_ref()
    }

    /// The tenure at a position.
    pub fn tenure(&self, position: Position) -> Option<Tenure> {
        self.at(position).map(|a| a.tenure)
    }

    /// The parity positions that somebody holds, in order.
    pub fn members(&self) -> impl Iterator<Item = (Position, &Assignment)> {
        let first = usize::from(self.data);
        (first..self.positions.len()).filter_map(|i| Some((Position(i as u8), self.positions[i].as_ref()?)))
    }

    /// The data positions, in order.
    pub fn data_positions(&self) -> impl Iterator<Item = Position> + use<> {
        (0..self.data).map(Position)
    }

    /// The streams of this list.
    pub fn streams(&self) -> impl Iterator<Item = Stream> + use<> {
        let list = self.list;
        self.data_positions().map(move |x| Stream { list, x })
    }

    /// Whether the position is a data position.
    pub fn is_data(&self, position: Position) -> bool {
        position.0 < self.data
    }

    /// Whether this life was certified ended.
    pub fn is_gone(&self, node: NodeId, incarnation: Incarnation) -> bool {
        self.gone.contains(&(node, incarnation))
    }

    /// Whether this assignment began empty, in whatever state it is now: with the list, or, where there is no parity to
    /// rebuild anything from, at any time since (10.6). There `born` is the latest of several such beginnings, and
    /// a node may hear of a later one first.
    pub fn is_born(&self, tenure: &Tenure) -> bool {
        self.parity == 0 || tenure.since == self.born
    }

    /// Whether the numbers fit each other and the format: what holds of every configuration, wherever it comes from.
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

    /// Every position that `node` in this life holds.
    pub fn held_by(&self, node: NodeId, incarnation: Incarnation) -> impl Iterator<Item = (Position, &Assignment)> {
        self.of_node(node)
            .filter(move |(_, a)| a.tenure.incarnation == incarnation)
    }
}

/// What is fixed, or nearly so, for a cluster's life (SEAMS §3).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClusterRecord {
    /// Which cluster.
    pub id: ClusterId,
    /// The format of records and chunks.
    pub format: u16,
    /// Data positions of every list.
    pub data: u8,
    /// Parity positions of every list.
    pub parity: u8,
    /// How many of them must hold a write before it is acknowledged (PROTOCOL 1.2).
    pub ack_quorum: u8,
    /// Bytes in a chunk: a power of two, 4 KiB to 64 KiB (less in simulation).
    pub chunk_bytes: u32,
    /// The keyed hash's key: every node must compute the same page for a key.
    pub hash_key: [u64; 2],
    /// Lease length L in ms (PROTOCOL 4.3).
    pub lease_ms: u32,
    /// Silence after which a node is suspected, in ms (PROTOCOL 10.2).
    pub suspicion_ms: u32,
    /// Fewest Live parity members with which writes are taken (PROTOCOL 3.1).
    pub min_redundancy: u8,
    /// How the lists began: the last slot of each stream, in slot order; stream `i` has slots from the end of `i-1` to
    /// its own. What hand-offs have changed since is in the lists' configurations ([`Configuration::slots`]).
    pub slots: Vec<(u16, Stream)>,
    /// How many parity positions of a list, the last ones, lie on log nodes. Fewer than `parity`, or 0.
    pub logged: u8,
}

impl ClusterRecord {
    /// Whether the position is one that a log node holds, if one is free.
    pub fn is_logged(&self, position: Position) -> bool {
        let width = u16::from(self.data) + u16::from(self.parity);
        let in_memory = width - u16::from(self.logged).min(width);
        (in_memory..width).contains(&u16::from(position.0))
    }

    /// Whether the slot map covers every slot, in order, once.
    pub fn slots_are_whole(&self) -> bool {
        self.slots.windows(2).all(|w| w[0].0 < w[1].0) && self.slots.last().is_some_and(|l| l.0 == SLOT_COUNT - 1)
    }
}

/// What a node is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum NodeRole {
    /// Named by lists.
    Member,
    /// Waits to replace another.
    Spare,
    /// Holds logged parity positions, on disk, and nothing else.
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

/// What is wanted of a node, by the operator, or by the coordinator of one that is slow (PROTOCOL 5.12, 10.2a). Nodes
/// are not told: it only has a part in where positions go.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Duty {
    /// To hold whatever falls to it.
    Full,
    /// That too, and what it holds by plan comes back to it.
    Returning,
    /// To give up all positions, one list after the other.
    Draining,
    /// To give up all positions, as soon as the redundancy bears it.
    Shunned,
    /// As `Shunned`, for a while, since its acknowledgements come late.
    Slow,
}

impl Duty {
    /// Whether it is to hold nothing.
    pub fn leaves(self) -> bool {
        matches!(self, Self::Draining | Self::Shunned | Self::Slow)
    }
}

/// A node as the coordinator knows it (SEAMS §3).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Which node.
    pub id: NodeId,
    /// Its present life.
    pub incarnation: Incarnation,
    /// Counts its lives from 1: of two records the one with the later life is the newer (PROTOCOL 10.16).
    pub ordinal: u32,
    /// Its failure domain; its own id unless told otherwise.
    pub domain: String,
    /// What it is for.
    pub role: NodeRole,
    /// Whether it answers.
    pub state: NodeState,
    /// Its process, for people.
    pub pid: u32,
    /// Where clients ask for any key, `host:port`.
    pub client_address: String,
    /// Where cluster-aware clients ask.
    pub cluster_address: String,
    /// Where peers connect.
    pub peer_address: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_parity_positions_are_the_logged_ones() {
        let record = |logged| ClusterRecord {
            id: ClusterId(1),
            format: 1,
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
        };
        // Another position began anew at epoch 4, after this tenure had.
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
            };
            list.seal(before);
            list
        };
        let first = list(1, false, None);
        let (second, other) = (list(2, false, Some(&first)), list(2, true, Some(&first)));
        assert_ne!(second.id, other.id);
        // The same contents behind another past.
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
        assert_eq!(latest.lineage(Epoch(1), first.id), Lineage::Unknown, "too long ago");
        let oldest = latest.trail.last().copied().unwrap();
        assert_eq!(latest.lineage(Epoch(39 - 16), oldest), Lineage::Follows);
    }
}
