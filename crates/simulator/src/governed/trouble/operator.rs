//! The operator after the faults: reads `status`, and does what it says.

use super::{READS_STATUS_EVERY, Trouble};
use crate::governed::lines::Lines;
use crate::governed::{Control, Leader};
use crate::marks::Seen;
use crate::world::World;
use paritas_base::NodeId;
use paritas_base::configuration::NodeRecord;
use paritas_control::CoordinatorEvent;
use paritas_control::message::{Order, TO_COORDINATOR_BYTES_MAX, ToCoordinator, encode};
use paritas_control::rights::Speaker;

impl World {
    /// Nodes know of decisions that are not in the store, and too few others register. The newest store is in use, so
    /// the way out that is left is to adopt. If a process waits for the place of one that has ended, the operator says
    /// that.
    pub(super) fn read_status(&mut self) {
        let now = self.schedule.now;
        let hosts = self.governed.iter().flat_map(|g| &g.hosts);
        let mut running = hosts.filter_map(|host| match &host.coordinator {
            Some(Leader::Coordinator(coordinator)) => Some(coordinator),
            _ => None,
        });
        if running.any(|coordinator| !coordinator.status(now).trouble.doubts.is_empty()) {
            self.schedule
                .log(|| "the operator adopts: nodes know of decisions that are not in the store".into());
            self.end_coordinators();
            // What an operator said of an earlier adoption is not said again.
            if let Some(troubles) = self.troubles() {
                troubles.attested.clear();
            }
            self.begin_adoption();
        } else {
            self.attest_ends();
        }
        self.push_control(READS_STATUS_EVERY, Control::Trouble(Trouble::ReadStatus));
    }

    /// P10.13: a process waits for the place of another one, and its node's process has ended without a certificate.
    fn attest_ends(&mut self) {
        let now = self.schedule.now;
        let hosts = self.governed.iter().flat_map(|g| &g.hosts).enumerate();
        let mut running = hosts.filter_map(|(host, place)| match &place.coordinator {
            Some(Leader::Coordinator(coordinator)) => Some((host, coordinator)),
            _ => None,
        });
        let Some((host, coordinator)) = running.next() else {
            return;
        };
        let words = coordinator.status(now).coordinator;
        let waits = |node: &NodeRecord| {
            let said = format!("does not take in a second process of {} ", node.id);
            words.iter().any(|line| line.starts_with(&said))
        };
        let records = coordinator.nodes().filter(|n| waits(n));
        let ended = records.filter(|n| !self.runs(n.id, n.incarnation)).map(|n| n.id);
        let nodes: Vec<NodeId> = ended.collect();
        if nodes.is_empty() {
            return;
        }
        self.schedule
            .log(|| format!("the operator says that the former processes of {nodes:?} have ended"));
        self.oracle.marks.see(Seen::EndAttested);
        // All together: the coordinator may wait for each of them. Then one at a time: an order is refused as a whole
        // if a peer has not been told that it should hear one of them.
        self.order_fence(host, nodes.clone());
        for node in nodes {
            self.order_fence(host, vec![node]);
        }
    }

    fn order_fence(&mut self, host: usize, nodes: Vec<NodeId>) {
        let Some(link) = self.lines().map(Lines::fresh) else {
            return;
        };
        let (order, confirmed) = (Order::Fence { nodes }, true);
        let Ok(frame) = encode(
            &ToCoordinator::Order { n: 1, order, confirmed },
            TO_COORDINATOR_BYTES_MAX,
        ) else {
            return;
        };
        self.coordinator_has(host, CoordinatorEvent::Connected { link });
        let (by, bytes) = (Speaker::Operator, frame.as_slice());
        self.coordinator_has(host, CoordinatorEvent::Message { link, by, bytes });
        self.coordinator_has(host, CoordinatorEvent::Disconnected { link });
    }
}
