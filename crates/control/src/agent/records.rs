//! Records that a coordinator sends: which are of this process's cluster and history, and so go on to the shard.

use super::driver::AgentOut;
use super::{Agent, send};
use crate::message::{Refusal, ToAgent, ToCoordinator};
use crate::mutant::Mutant;
use crate::plan::{NODES_MAX, POSITIONS_MAX, PlanError, check_record};
use paritas_base::Time;
use paritas_base::configuration::{ClusterRecord, Configuration, Lineage, NodeRecord};

impl Agent {
    /// Keeps what has changed since the offer. False if there is none, or if a coordinator sends too much.
    pub(super) fn add_to_offer(&mut self, message: ToAgent) -> bool {
        let Some(offer) = &mut self.offer else { return false };
        match message {
            ToAgent::Cluster(cluster) => offer.cluster = cluster,
            ToAgent::Nodes(nodes) => offer.nodes.extend(nodes),
            ToAgent::Configurations(configurations) => offer.configurations.extend(configurations),
            _ => return false,
        }
        offer.nodes.len() <= 2 * NODES_MAX && offer.configurations.len() <= 2 * POSITIONS_MAX
    }

    /// Why a cluster's record is refused: it is not of this process's cluster, or is invalid.
    pub(super) fn refuses(&self, cluster: &ClusterRecord) -> Option<Refusal> {
        let other = |c: &ClusterRecord| (c.id, c.hash_key) != (cluster.id, cluster.hash_key);
        match check_record(cluster, self.versions) {
            Ok(()) if self.cluster.as_ref().is_some_and(other) => Some(Refusal::WrongCluster { here: cluster.id }),
            Ok(()) => None,
            Err(PlanError(why)) => Some(Refusal::Limit(why)),
        }
    }

    pub(super) fn take_cluster(&mut self, mut cluster: ClusterRecord, out: &mut impl AgentOut) {
        if let Some(known) = &self.cluster {
            // The active version never falls: a coordinator with an old store does not know the newest yet.
            cluster.active_version = cluster.active_version.max(known.active_version);
        }
        match &self.cluster {
            None => {
                self.registration.cluster = Some(cluster.id);
                out.cluster(&cluster);
            }
            Some(known) if *known != cluster => out.cluster_changed(&cluster),
            Some(_) => return,
        }
        self.cluster = Some(cluster);
    }

    /// A coordinator with an old store may send records of incarnations that are over. The newer known records stay
    /// (P10.16).
    pub(super) fn deliver_nodes(&mut self, nodes: Vec<NodeRecord>, out: &mut impl AgentOut) {
        for node in nodes {
            let known = self.nodes.get(&node.id);
            let any = self.broken.is(Mutant::OldLivesBack);
            if any || known.is_none_or(|known| known.ordinal <= node.ordinal) {
                self.nodes.insert(node.id, node);
            }
        }
        let all: Vec<NodeRecord> = self.nodes.values().cloned().collect();
        out.nodes(&all);
    }

    /// P10.14: a configuration replaces only one of its own history.
    pub(super) fn deliver(&mut self, now: Time, configurations: &[Configuration], out: &mut impl AgentOut) {
        for configuration in configurations {
            let (list, epoch, id) = (configuration.list, configuration.epoch, configuration.id);
            let installed = self.installed.get(&list).map(|own| (own.epoch, own.id));
            let lineage = match installed {
                None => Lineage::Follows,
                // A shard may already have it from a peer.
                Some(own) if epoch < own.0 || (epoch, id) == own => continue,
                Some(_) if self.broken.is(Mutant::EpochForId) => Lineage::Follows,
                Some((own, own_id)) => configuration.lineage(own, own_id),
            };
            match lineage {
                Lineage::Follows => {
                    self.installed.insert(list, configuration.clone());
                    out.configuration(configuration);
                }
                Lineage::Unknown if configuration.trail.len() <= Configuration::TRAIL_MAX => {
                    send(out, &ToCoordinator::GetConfiguration { list, installed });
                }
                // When this process registers again, the coordinator sees the configuration here and decides nothing.
                Lineage::Foreign | Lineage::Unknown => {
                    self.on_refused(now, &Refusal::StoreIsBehind { list }, out);
                    return;
                }
            }
        }
    }
}
