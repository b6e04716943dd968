//! What the coordinator has committed: the cluster's record and the configuration of each stripe list.

use crate::driver::Process;
use paritas_base::configuration::{ClusterRecord, Configuration, PositionState};
use paritas_base::hash_slots::{HandOff, SlotRange};
use paritas_base::{ListId, Map, NodeId, Position, Prng, map};

pub(crate) struct Committed {
    pub(crate) cluster: ClusterRecord,
    /// The configuration of each stripe list, in their order.
    pub(crate) configurations: Vec<Configuration>,
    /// The ids of all configurations of each list, in order.
    pub(crate) ids: Vec<Vec<u64>>,
    /// The former holder of each position.
    pub(crate) previous: Map<(ListId, Position), NodeId>,
}

impl Committed {
    pub(crate) fn new(cluster: ClusterRecord, configurations: Vec<Configuration>) -> Self {
        Self {
            cluster,
            ids: configurations.iter().map(|c| vec![c.id]).collect(),
            configurations,
            previous: map(),
        }
    }

    /// Forgets all lists. In a governed run they begin when the coordinator makes them.
    pub(crate) fn clear(&mut self) {
        (self.configurations, self.ids) = (Vec::new(), Vec::new());
    }

    pub(crate) fn lists(&self) -> impl Iterator<Item = ListId> + use<> {
        (0..self.configurations.len() as u16).map(ListId)
    }

    pub(crate) fn configuration(&self, list: ListId) -> &Configuration {
        &self.configurations[usize::from(list.0)]
    }

    /// A random list.
    pub(crate) fn any_list(&self, random: &mut Prng) -> ListId {
        match self.configurations.len() {
            1 => ListId(0),
            count => ListId(random.below(count as u64) as u16),
        }
    }

    /// Whether the process has the latest configuration of every list that it knows.
    pub(crate) fn is_known_to(&self, process: &Process) -> bool {
        let mut installed = process.node.replica().lists().map(|list| &list.configuration);
        installed.all(|c| c.epoch == self.configuration(c.list).epoch)
    }

    /// The sum of all epochs. It grows with each change.
    pub(crate) fn epochs(&self) -> u64 {
        self.configurations.iter().map(|c| u64::from(c.epoch.0)).sum()
    }

    /// What the streams of a list hold.
    pub(crate) fn held(&self, configuration: &Configuration) -> Vec<(ListId, SlotRange)> {
        let list = configuration.list;
        let held = configuration.slots.held(list, &self.cluster);
        held.into_iter().map(|range| (list, range)).collect()
    }

    /// The hand-off of slots that is under way.
    pub(crate) fn hand_off(&self) -> Option<HandOff> {
        self.configurations.iter().find_map(|c| c.slots.hand_off)
    }

    /// Nodes that hold a Filling position: a data or a parity position, as asked.
    pub(crate) fn filling(&self, of_data: bool) -> impl Iterator<Item = usize> {
        let positions = self.configurations.iter().flat_map(move |c| {
            let of_kind = (0..)
                .map(Position)
                .zip(&c.positions)
                .filter(move |(x, _)| c.is_data(*x) == of_data);
            of_kind.filter_map(|(_, a)| a.filter(|a| a.state == PositionState::Filling))
        });
        positions.map(|a| usize::from(a.tenure.node.0))
    }
}
