//! Planned moves (P5.12, P10.2a): positions of nodes that are to leave, and those that come back to a node
//! by plan. Failures come first: what is moved is chosen after everything else in a pass, and only where the list bears
//! it.

use super::Change;
use crate::check::survives;
use crate::fence::Cause;
use core::fmt;
use paritas_base::configuration::Duty;
use paritas_base::{NodeId, Position};

/// Why a position cannot be moved now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Obstacle {
    NobodyFree,
    NoLogNode,
    NotWhole,
    Redundancy,
    Writes,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NobodyFree => {
                "no other node can take it: one that stays, holds nothing of the list, and fits by its domain"
            }
            Self::NoLogNode => {
                "no other log node can take it: one that stays, holds nothing of the list, and fits by its domain"
            }
            Self::NotWhole => "another position of the list is lost or being rebuilt",
            Self::Redundancy => "the loss of one more node would not be survived meanwhile",
            Self::Writes => "with min_redundancy as it is writes would be refused meanwhile",
        })
    }
}

/// A position is wanted elsewhere.
struct Wish {
    /// By whom that has it, if it is to leave; else by the node whose it is by plan.
    leaves: Option<(NodeId, Duty)>,
    /// Where it would go.
    to: Option<NodeId>,
}

impl Change<'_> {
    /// Everybody is Live and answers.
    pub(super) fn is_quiet(&self) -> bool {
        (0..self.next().positions.len())
            .all(|i| self.fence.is_live(i) && !self.fence.is_ended(i) && !self.fence.is_silent(i))
    }

    pub(super) fn writes_go_on_without(&self, i: usize) -> bool {
        !self.fence.is_parity(i) || self.parities_beside(i, &[]) >= self.fence.facts.min_redundancy
    }

    /// The best node for a position that has a holder: none that is to leave.
    pub(super) fn staying_candidate(&self, i: usize) -> Option<NodeId> {
        self.candidate(i, None).filter(|node| self.stays(*node))
    }

    /// The same for a logged position that is held in memory anyway.
    pub(super) fn staying_substitute(&self, i: usize) -> Option<NodeId> {
        let node = self.substitute(i).filter(|_| self.is_misplaced(i));
        node.filter(|node| self.stays(*node))
    }

    fn stays(&self, node: NodeId) -> bool {
        self.fence.facts.node(node).is_some_and(|n| !n.duty.leaves())
    }

    /// A drained node, and one that comes back, moves few lists at a time, one position each, and only where the list
    /// survives the loss of a further node meanwhile, if it is to survive more than one at all. A node that is shunned
    /// does harm where it is: all it holds goes as soon as P10.3 bears it.
    ///
    /// A data position goes when its owner has drained (P5.12), so that no client notices more than a wait.
    pub(super) fn relocate(&mut self) {
        if self.next().parity == 0 {
            return;
        }
        let mut begun = self.next().positions != self.fence.old.positions;
        for i in 0..self.next().positions.len() {
            let Some(Wish { leaves, to }) = self.wish(i) else {
                continue;
            };
            // What is still Filling has nothing to lose.
            let filling = !self.fence.is_live(i);
            let urgent = filling || leaves.is_some_and(|(_, duty)| duty != Duty::Draining);
            let obstacle = match to {
                None if self.is_logged(i) => Some(Obstacle::NoLogNode),
                None => Some(Obstacle::NobodyFree),
                Some(_) if urgent => self.obstacle_at_once(i),
                Some(_) => self.obstacle(i),
            };
            if let Some(obstacle) = obstacle {
                if let Some((holder, _)) = leaves {
                    let place = (self.next().list, Position(i as u8), obstacle);
                    self.fence.facts.obstacles.entry(holder).or_insert(place);
                }
                continue;
            }
            let (Some(node), Some(tenure)) = (to, self.fence.tenure(i)) else {
                continue;
            };
            if !urgent {
                if begun || self.fence.facts.moves_left == 0 {
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

    /// Whether somebody wants the position elsewhere.
    fn wish(&self, i: usize) -> Option<Wish> {
        let holder = self
            .fence
            .tenure(i)
            .filter(|_| !self.fence.is_ended(i) && !self.fence.is_silent(i))?;
        let duty = self.fence.facts.node(holder.node)?.duty;
        if duty.leaves() {
            let to = self.staying_candidate(i).or_else(|| self.staying_substitute(i));
            let leaves = Some((holder.node, duty));
            return Some(Wish { leaves, to });
        }
        let home = self.home(i).filter(|home| *home != holder.node)?;
        let returns = self.fence.facts.node(home)?.duty == Duty::Returning;
        let to = self.candidate(i, None).filter(|node| *node == home);
        (returns && self.fence.is_live(i) && to.is_some()).then_some(Wish { leaves: None, to })
    }

    fn obstacle_at_once(&self, i: usize) -> Option<Obstacle> {
        let to_drain = |o: usize| {
            let (list, position) = (self.next().list, Position(o as u8));
            self.fence
                .tenure(o)
                .is_some_and(|t| self.fence.facts.to_drain.contains(&(list, position, t)))
        };
        // Incarnations that ended stay named while their next ones are awaited.
        let goes = |o: usize| o == i || to_drain(o) || self.fence.is_ended(o) || self.fence.is_silent(o);
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
