//! Planned moves (P5.12, P10.2a): positions leave a node that is to leave, or return to their planned node. Failures
//! come first: a move is chosen after all other rules, and only if the list keeps enough redundancy.

use super::Change;
use crate::check::survives;
use crate::fence::Cause;
use core::fmt;
use paritas_base::configuration::Duty;
use paritas_base::{NodeId, Position};

/// Why a position cannot be moved now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Obstacle {
    NoFreeNode,
    NoLogNode,
    NotWhole,
    Redundancy,
    Writes,
    Away(NodeId),
    Halted(NodeId),
    Flapping(NodeId),
    OtherNode,
    Busy,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Away(node) => {
                return write!(
                    f,
                    "the coordinator does not hear {node}, or its process has ended: start it"
                );
            }
            Self::Halted(node) => {
                return write!(
                    f,
                    "a role of {node} in the list broke an invariant: restart its process"
                );
            }
            Self::Flapping(node) => {
                return write!(
                    f,
                    "{node} has failed several times just now, and must run for up to a minute"
                );
            }
            Self::NoFreeNode => {
                "no other node can take it: one that stays, holds nothing of the list, and fits by its domain"
            }
            Self::NoLogNode => {
                "no other log node can take it: one that stays, holds nothing of the list, and fits by its domain"
            }
            Self::NotWhole => "another position of the list is lost or being rebuilt",
            Self::Redundancy => "during the move the list would not survive the loss of one more node",
            Self::Writes => "with this min_redundancy writes would be refused during the move",
            Self::OtherNode => {
                "another node fits better for a short time: the planned one had a broken link, or its domain holds as \
                 many positions of the list as it may"
            }
            Self::Busy => "positions of other lists are being moved or rebuilt",
        })
    }
}

/// The reason for a move.
struct Wish {
    /// Who waits for it: the present holder, if it is to leave; else the planned node, to which the position returns.
    of: NodeId,
    /// The duty of the present holder, if it is to leave.
    leaves: Option<Duty>,
    /// The new holder.
    to: Option<NodeId>,
}

impl Change<'_> {
    /// Whether every position is Live and its holder answers.
    pub(super) fn is_quiet(&self) -> bool {
        (0..self.next().positions.len())
            .all(|i| self.fence.is_live(i) && !self.fence.may_end(i) && !self.fence.is_silent(i))
    }

    pub(super) fn writes_go_on_without(&self, i: usize) -> bool {
        !self.fence.is_parity(i) || self.parities_beside(i, &[]) >= self.fence.facts.min_redundancy
    }

    /// The best new node for a position that has a holder. A node that is to leave is not considered.
    pub(super) fn staying_candidate(&self, i: usize) -> Option<NodeId> {
        self.candidate(i, None).filter(|node| self.stays(*node))
    }

    /// The same for a logged position that is held in memory.
    pub(super) fn staying_substitute(&self, i: usize) -> Option<NodeId> {
        let node = self.substitute(i).filter(|_| self.is_misplaced(i));
        node.filter(|node| self.stays(*node))
    }

    fn stays(&self, node: NodeId) -> bool {
        self.fence.facts.node(node).is_some_and(|n| !n.duty.leaves())
    }

    /// For a draining or returning node, few lists move at a time and one position of each. During the move the list
    /// must survive the loss of one more node, if its scheme survives more than one. A shunned node does harm: all its
    /// positions move as soon as P10.3 allows it.
    ///
    /// A data position moves after its owner has drained (P5.12), so that clients only see a short wait.
    pub(super) fn relocate(&mut self) {
        if self.next().parity == 0 {
            return;
        }
        let mut begun = self.next().positions != self.fence.old.positions;
        for i in 0..self.next().positions.len() {
            let Some(Wish { of, leaves, to }) = self.wish(i) else {
                continue;
            };
            // A position that is Filling holds no redundancy that a move could lose.
            let filling = !self.fence.is_live(i);
            let urgent = leaves.is_some_and(|duty| filling || duty != Duty::Draining);
            let obstacle = match to {
                None if leaves.is_none() => Some(self.keeps_away(of)),
                None if self.is_logged(i) => Some(Obstacle::NoLogNode),
                None => Some(Obstacle::NoFreeNode),
                Some(_) if urgent => self.obstacle_at_once(i),
                Some(_) => self.obstacle(i),
            };
            let is_busy = !urgent && (begun || self.fence.facts.moves_left == 0);
            // A node that leaves is told what somebody must mend, not that it has its turn later.
            let turn = (is_busy && leaves.is_none()).then_some(Obstacle::Busy);
            if let Some(obstacle) = obstacle.or(turn) {
                let place = (self.next().list, Position(i as u8), obstacle);
                self.fence.facts.obstacles.entry(of).or_insert(place);
                continue;
            }
            let (Some(node), Some(tenure)) = (to, self.fence.tenure(i)) else {
                continue;
            };
            if !urgent {
                if is_busy {
                    continue;
                }
                self.fence.facts.moves_left -= 1;
                begun = true;
            }
            let place = (self.next().list, Position(i as u8), tenure);
            if filling || self.fence.is_parity(i) || self.fence.facts.drained.contains(&place) {
                if let Some(permit) = self.fence.remove(i, Cause::Planned) {
                    self.fence.assign(permit, node);
                }
            } else {
                self.fence.facts.to_drain.insert(place);
            }
        }
    }

    /// Whether the position is to be moved, and to which node.
    fn wish(&self, i: usize) -> Option<Wish> {
        let holder = self.fence.tenure(i)?;
        let duty = self.fence.facts.node(holder.node)?.duty;
        if duty.leaves() {
            if self.fence.is_ended(i) || self.fence.is_silent(i) {
                return None;
            }
            let to = self.staying_candidate(i).or_else(|| self.staying_substitute(i));
            let (of, leaves) = (holder.node, Some(duty));
            return Some(Wish { of, leaves, to });
        }
        let home = self.home(i).filter(|home| *home != holder.node)?;
        let returns = self.fence.facts.node(home)?.duty == Duty::Returning;
        let is_away = self.next().of_node(home).next().is_none();
        let to = self.candidate(i, None).filter(|node| *node == home);
        (returns && is_away).then_some(Wish {
            of: home,
            leaves: None,
            to,
        })
    }

    /// Why the planned node of a position, which is to return, cannot get it.
    fn keeps_away(&self, home: NodeId) -> Obstacle {
        let list = self.next().list;
        match self.fence.facts.node(home) {
            Some(node) if self.fence.facts.has_halted(list, home, node.incarnation) => Obstacle::Halted(home),
            Some(node) if node.available && node.flapping => Obstacle::Flapping(home),
            Some(node) if node.available => Obstacle::OtherNode,
            _ => Obstacle::Away(home),
        }
    }

    fn obstacle_at_once(&self, i: usize) -> Option<Obstacle> {
        let to_drain = |o: usize| {
            let (list, position) = (self.next().list, Position(o as u8));
            self.fence
                .tenure(o)
                .is_some_and(|t| self.fence.facts.to_drain.contains(&(list, position, t)))
        };
        // A position may still name an ended incarnation while the next one is awaited.
        let goes = |o: usize| o == i || to_drain(o) || self.fence.may_end(o) || self.fence.is_silent(o);
        if self.fence.is_live(i) && !self.fence.decodable_without(goes) {
            Some(Obstacle::NotWhole)
        } else if self.fence.is_live(i) && !self.writes_go_on_without(i) {
            Some(Obstacle::Writes)
        } else {
            None
        }
    }

    fn obstacle(&self, i: usize) -> Option<Obstacle> {
        if !self.is_quiet() {
            Some(Obstacle::NotWhole)
        } else if !self.fence.decodable_without(|o| o == i)
            || (survives(self.next()) > 1 && self.fence.survives_without(i) == 0)
        {
            Some(Obstacle::Redundancy)
        } else if !self.writes_go_on_without(i) {
            Some(Obstacle::Writes)
        } else {
            None
        }
    }
}
