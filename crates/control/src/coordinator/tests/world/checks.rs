//! Invariants that hold after every event.

use super::*;
use crate::is_decodable;
use paritas_base::configuration::Assignment;

impl World {
    /// Asserts that every list that is not marked lost can be rebuilt without the ended incarnations.
    pub(super) fn assert_rebuildable(&self) {
        // The coordinator decides whether a list is lost only after holders had the time to report complete positions.
        if self.now < self.coordinator.suspicion.settled_from() + Span::from_secs(1) {
            return;
        }
        let nodes = &self.coordinator.records.nodes;
        for c in self.coordinator.configurations().filter(|c| c.parity > 0 && !c.lost) {
            let over = |t: &Tenure| nodes[&t.node].is_over(t.incarnation);
            let whole = |a: &Assignment| a.state.is_live() && !over(&a.tenure);
            let (data, parity) = c.positions.split_at(c.data.into());
            let missing = |of: &[Option<Assignment>]| of.iter().filter(|a| !a.as_ref().is_some_and(whole)).count();
            let decodable = is_decodable(missing(data), missing(parity), c.parity.into(), c.ack_quorum.into());
            assert!(decodable, "the list cannot be rebuilt, and is not marked lost: {c:?}");
        }
    }

    /// Asserts that log nodes hold only logged positions.
    pub(super) fn assert_data_in_memory(&self) {
        let nodes = &self.coordinator.records.nodes;
        for c in self.coordinator.configurations() {
            for (i, held) in c.positions.iter().enumerate() {
                let Some(held) = held else { continue };
                let record = &nodes[&held.tenure.node].record;
                let is_log = record.role == NodeRole::Log && record.incarnation == held.tenure.incarnation;
                let logged = self.coordinator.cluster().is_logged(Position(i as u8));
                assert!(logged || !is_log, "a log node holds position {i}: {c:?}");
            }
        }
    }
}
