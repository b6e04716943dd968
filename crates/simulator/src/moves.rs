//! Planned moves (P5.12): an owner is asked to drain, and when it reports that it has, its position moves to
//! another node. Anything may interfere: the question is lost, the answer is late, another fault comes first.

use crate::events::SimEvent;
use crate::marks::Seen;
use crate::world::World;
use paritas_base::configuration::Tenure;
use paritas_base::{ListId, NodeId, Position, Span};
use paritas_protocol::Event;

impl World {
    pub(crate) fn plan_move(&mut self) {
        let list = self.committed.any_list(&mut self.schedule.random);
        let position = Position(self.schedule.random.below(u64::from(self.swarm.data)) as u8);
        let live = self
            .committed
            .configuration(list)
            .at(position)
            .filter(|a| a.state.is_live());
        let Some(tenure) = live.map(|a| a.tenure) else { return };
        // A coordinator repeats the question while it wants the move.
        for _ in 0..self.schedule.random.between(1, 3) {
            let after = Span(self.schedule.random.below(2 * self.swarm.parameters.drain_max.0));
            self.schedule.push(after, SimEvent::Drain { list, position, tenure });
        }
    }

    pub(crate) fn ask_to_drain(&mut self, list: ListId, position: Position, tenure: Tenure) {
        let at = usize::from(tenure.node.0);
        if self.network.is_cut_off(self.schedule.now, at) || self.fleet.alive(at, tenure.incarnation).is_none() {
            return;
        }
        let again = || SimEvent::Drain { list, position, tenure };
        self.turn(at, tenure.incarnation, Event::Drain { list, position, tenure }, again);
    }

    pub(crate) fn on_drained(&mut self, list: ListId, position: Position, tenure: Tenure) {
        if self.schedule.healing || self.committed.configuration(list).tenure(position) != Some(tenure) {
            return;
        }
        let free = self.fleet.free(self.committed.configuration(list));
        if !free.is_empty() {
            let node = NodeId(*self.schedule.random.pick(&free) as u16);
            self.replace(list, position, Some(node));
            if self
                .committed
                .configuration(list)
                .tenure(position)
                .is_some_and(|t| t.node == node)
            {
                self.oracle.marks.see(Seen::PlannedMove);
            }
        }
    }
}
