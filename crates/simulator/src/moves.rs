//! Planned moves (PROTOCOL 5.12): an owner is asked to drain, and when it says that it has, its position goes to
//! another node. Everything may come between: the question is lost, the answer late, another fault quicker.

use crate::events::Happening;
use crate::marks::Seen;
use crate::world::World;
use paritas_base::configuration::{PositionState, Tenure};
use paritas_base::{NodeId, Position, Span};
use paritas_protocol::Event;

impl World {
    pub(crate) fn plan_move(&mut self) {
        let position = Position(self.random.below(u64::from(self.configuration.data)) as u8);
        let live = self
            .configuration
            .at(position)
            .filter(|a| a.state == PositionState::Live);
        let Some(tenure) = live.map(|a| a.tenure) else { return };
        // A coordinator asks again while it wants it.
        for _ in 0..self.random.between(1, 3) {
            let after = Span(self.random.below(2 * self.swarm.parameters.drain_max.0));
            self.push(after, Happening::Drain { position, tenure });
        }
    }

    pub(crate) fn ask_to_drain(&mut self, position: Position, tenure: Tenure) {
        let (at, list) = (usize::from(tenure.node.0), self.configuration.list);
        if self.is_cut_off(at) || self.alive(at, tenure.incarnation).is_none() {
            return;
        }
        let again = || Happening::Drain { position, tenure };
        self.turn(at, tenure.incarnation, Event::Drain { list, position, tenure }, again);
    }

    pub(crate) fn on_drained(&mut self, position: Position, tenure: Tenure) {
        if self.healing || self.configuration.tenure(position) != Some(tenure) {
            return;
        }
        let free = self.free(&self.configuration);
        if !free.is_empty() {
            let node = NodeId(*self.random.pick(&free) as u16);
            self.replace(position, Some(node));
            if self.configuration.tenure(position).is_some_and(|t| t.node == node) {
                self.marks.see(Seen::PlannedMove);
            }
        }
    }
}
