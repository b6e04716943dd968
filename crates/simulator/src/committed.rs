//! What the coordinator has committed: the cluster's record and the configuration of each stripe list.

use paritas_base::configuration::{ClusterRecord, Configuration};
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
}
