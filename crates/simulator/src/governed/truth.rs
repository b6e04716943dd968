//! What truly lives, and what the coordinator made of it: a list may be lost only where more positions are lost than it
//! bears, and never by what the coordinator believed.

use crate::coordinator::describe;
use crate::world::World;
use paritas_base::configuration::Configuration;
use paritas_base::{Incarnation, ListId, NodeId, Position};
use std::collections::BTreeSet;

/// What is known beyond the committed configurations.
#[derive(Default, Debug)]
pub(crate) struct Truth {
    /// Positions that were taken from processes that live, until an heir is Live.
    fenced: BTreeSet<(ListId, Position)>,
}

impl World {
    /// A configuration as it is in the store.
    pub(super) fn see_committed(&mut self, new: Configuration) {
        let at = usize::from(new.list.0);
        let Some(old) = self.configurations.get(at).cloned() else {
            self.ids.push(vec![new.id]);
            return self.configurations.push(new);
        };
        if (old.epoch, old.id) == (new.epoch, new.id) {
            return;
        }
        self.counts.commits += 1;
        self.log(|| format!("committed {}", describe(&new)));
        if new.epoch.0 != old.epoch.0 + 1 {
            self.violate(format!(
                "D6: list {at} goes from epoch {} to {}",
                old.epoch.0, new.epoch.0
            ));
        }
        if let Err(what) = paritas_control::check_transition(Some(&old), &new) {
            self.violate(format!("I11: {what}"));
        }
        for (i, (before, after)) in old.positions.iter().zip(&new.positions).enumerate() {
            let key = (new.list, Position(i as u8));
            let was = before.filter(|a| a.state.is_live()).map(|a| a.tenure);
            let is_taken = was.is_some() && after.map(|a| a.tenure) != was;
            let lives = was.is_some_and(|t| self.is_alive(t.node, t.incarnation));
            if is_taken && lives {
                self.counts.suspicions += 1;
            }
            if let Some(governed) = self.governed.as_mut() {
                if is_taken && lives {
                    governed.truth.fenced.insert(key);
                } else if after.is_some_and(|a| a.state.is_live()) {
                    governed.truth.fenced.remove(&key);
                }
            }
        }
        if new.lost && !old.lost {
            self.see_lost(&old);
        }
        self.ids[at].push(new.id);
        self.configurations[at] = new;
    }

    fn is_alive(&self, node: NodeId, life: Incarnation) -> bool {
        let process = self.processes[usize::from(node.0)].as_ref();
        process.is_some_and(|p| p.incarnation == life)
    }

    /// D1: kills keep within what the committed configuration bears, so a list that is lost has lost positions that
    /// were taken from processes that live (a false suspicion, then a kill). Those runs are counted.
    fn see_lost(&mut self, old: &Configuration) {
        let fenced = self.governed.as_ref().is_some_and(|g| {
            let mut of_list = g.truth.fenced.iter();
            of_list.any(|(list, _)| *list == old.list)
        });
        if fenced {
            self.excused = true;
        } else {
            self.violate(format!(
                "D1: list {} is called lost: it was {}",
                old.list.0,
                describe(old)
            ));
        }
    }

    /// A life that is told that it is over holds nothing that counts.
    pub(super) fn check_may_end(&mut self, at: usize, incarnation: Incarnation) {
        let node = NodeId(at as u16);
        let holds = |c: &Configuration| c.held_by(node, incarnation).any(|(_, a)| a.state.is_live());
        if self.swarm.parity > 0 && self.configurations.iter().any(holds) {
            self.violate(format!(
                "D1: n{at} is told that its life is over, and holds a Live position"
            ));
        }
    }
}
