//! The active version of all formats (P10.21). It is raised when every process that has not ended may speak the next
//! one, and it never falls.

use super::{Coordinator, CoordinatorOut, send};
use crate::message::{Registration, ToAgent};
use crate::mutant::Mutant;
use crate::store::{Store, StoreError};
use paritas_base::formats::Versions;
use paritas_base::{Clock, NodeId, Time};

impl<S: Store> Coordinator<S> {
    /// Makes the highest version that this process may speak the active one. Until then a node's process may be
    /// replaced by one that speaks less.
    ///
    /// # Errors
    /// If another version than the active one is not possible yet, or the store fails: in words. In the latter case
    /// the change may take effect later.
    pub fn finish_upgrade(&mut self, now: Clock, out: &mut impl CoordinatorOut) -> Result<u16, String> {
        let version = self.records.versions.high;
        if version == self.records.cluster.active_version {
            return Ok(version);
        }
        let ending = self.ending.map(|ending| ending.to_string());
        if let Some(why) = ending.or_else(|| self.refuses_orders()) {
            return Err(why);
        }
        let unable = self.said().find(|(_, versions, _)| !versions.has(version));
        if let Some((node, versions, _)) = unable.filter(|_| !self.broken.is(Mutant::ActivatedTooEarly)) {
            return Err(format!(
                "{node} speaks versions {versions}, and not {version}: start it with another paritas. If it has \
                 ended, `paritas fence` says so"
            ));
        }
        match self.activate(now.mono, version, out) {
            Ok(()) => Ok(version),
            Err(error) => Err(format!("{error}. It is not known whether version {version} is active")),
        }
    }

    /// What the process of each node that has not ended says of versions. A process that is about to be taken in counts
    /// in place of the one before.
    fn said(&self) -> impl Iterator<Item = (NodeId, Versions, u16)> {
        let claims = self.registry.claims();
        let stored = self.records.nodes.values().filter(|n| !n.has_ended());
        let stored = stored.filter(|n| !claims.contains_key(&n.record.id));
        let stored = stored.map(|n| (n.record.id, &n.record.more));
        let all = stored.chain(claims.values().map(|claim| (claim.node, &claim.more)));
        all.map(|(node, more)| {
            let (versions, active) = Versions::said(more);
            (node, versions, active)
        })
    }

    fn activate(&mut self, now: Time, version: u16, out: &mut impl CoordinatorOut) -> Result<(), StoreError> {
        let (plan, mut cluster) = (self.records.plan.clone(), self.records.cluster.clone());
        cluster.active_version = version;
        let committed = self.records.commit_settings(&mut self.store, plan, cluster.clone());
        if let Err(error) = committed {
            self.on_failed_commit(now, &error, out);
            return Err(error);
        }
        for link in self.registry.subscribed() {
            send(out, link, &ToAgent::Cluster(cluster.clone()));
        }
        Ok(())
    }

    /// A process knows a higher active version: this store is an old copy, and that version was active before. So no
    /// process that cannot speak it is taken in. False if nothing may be decided now: the store has failed.
    pub(super) fn learn_active(&mut self, now: Time, out: &mut impl CoordinatorOut) -> bool {
        let known = self.said().map(|(.., active)| active).max().unwrap_or(0);
        if known <= self.records.cluster.active_version || !self.records.versions.has(known) {
            return true;
        }
        if self.activate(now, known, out).is_err() {
            // The next decision brings it again.
            return false;
        }
        self.registry
            .drop_claims(|claim| !Versions::said(&claim.more).0.has(known));
        true
    }

    /// Why a process cannot be in this cluster: it does not speak the active version, or knows of one that this
    /// process does not speak.
    pub(super) fn cannot_speak(&self, registration: &Registration) -> Option<String> {
        let (versions, known) = Versions::said(&registration.more);
        let (active, own) = (self.records.cluster.active_version, self.records.versions);
        if !versions.has(active) {
            Some(format!(
                "the cluster's active version is {active}, and {} speaks {versions}: use another paritas there",
                registration.node
            ))
        } else if known > own.high {
            Some(format!(
                "the cluster's active version is {known}, and this coordinator speaks {own}: use another paritas there"
            ))
        } else {
            None
        }
    }
}
