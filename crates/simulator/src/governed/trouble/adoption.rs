//! The newest store is lost: a coordinator makes a store from the nodes' reports, and an operator helps it.

use super::Trouble;
use crate::governed::seats::pid_of;
use crate::governed::{Control, Leader};
use crate::marks::Seen;
use crate::report::Excuse;
use crate::world::World;
use paritas_base::configuration::Configuration;
use paritas_base::formats::Versions;
use paritas_base::{ListId, NodeId, Prng, Span};
use paritas_control::store::MemoryStore;
use paritas_control::{Adoption, CoordinatorEvent, Progress};
use std::collections::BTreeSet;

/// How often an operator looks at what an adoption waits for.
const LOOK_EVERY: Span = Span::from_ms(1_000);

impl World {
    /// The newest store is lost. A new one is made in place of an old copy or of nothing.
    pub(super) fn adopt(&mut self) {
        if self.is_adopting() || self.troubles().is_none_or(|t| t.newest.is_none()) {
            return;
        }
        self.end_coordinators();
        self.begin_adoption();
    }

    pub(super) fn begin_adoption(&mut self) {
        self.see_store();
        let Some(governed) = self.governed.as_mut() else { return };
        let without = governed.troubles.attested.clone();
        let versions = Versions::up_to(governed.upgrade.coordinators);
        let without_them = without.iter().copied();
        match Adoption::begin_as(governed.store.clone(), &governed.plan, without_them, versions) {
            Ok(mut adoption) => {
                if !without.is_empty() {
                    adoption.confirm();
                }
                #[cfg(feature = "mutants")]
                adoption.break_rule(self.swarm.control_mutant);
                let place = &mut governed.hosts[0];
                place.reign += 1;
                let reign = place.reign;
                (place.coordinator, place.timer_at) = (Some(Leader::Adoption(Box::new(adoption))), None);
                self.schedule
                    .log(|| "a coordinator asks the nodes for what its store lacks".into());
                self.coordinator_has(0, CoordinatorEvent::Timer);
                self.push_control(LOOK_EVERY, Control::Trouble(Trouble::LookAtAdoption { reign }));
            }
            Err(error) => self.violate(format!("D0: the store is not adopted: {error:?}")),
        }
    }

    /// At times a node runs twice while the store is made anew, and only its second process can reach the coordinator.
    pub(super) fn run_one_twice(&mut self) {
        // Numbers of their own: without this trouble the run is the same as ever.
        let mut random = Prng::new(self.schedule.now.0 ^ 0x0054_5749_4345);
        if !self.is_adopting() || self.schedule.healing || !random.chance(300_000) {
            return;
        }
        let node = random.below(self.fleet.processes.len() as u64) as usize;
        let lasts = Span::from_ms(random.between(6_000, 15_000));
        let until = self.schedule.now + lasts;
        self.schedule
            .log(|| format!("n{node} cannot reach the coordinator until {} ms", until.0 / 1_000_000));
        if let Some(troubles) = self.troubles() {
            troubles.one_way = (1 << node, 0, until);
        }
        self.start_stray_of(node, lasts);
    }

    /// The adoption may wait for processes that have ended without a certificate. The operator looks for them, and says
    /// that they have ended if so.
    pub(super) fn look_at_adoption(&mut self, reign: u64) {
        let host = self.governed.iter().flat_map(|g| &g.hosts).next();
        let progress = host.and_then(|host| match &host.coordinator {
            Some(Leader::Adoption(adoption)) if host.reign == reign => Some(adoption.progress().clone()),
            _ => None,
        });
        let Some(Progress::Waits(words)) = progress else {
            return;
        };
        self.schedule.log(|| format!("the adoption waits: {words:?}"));
        if words.iter().any(|line| line.contains("nothing is left")) && !self.is_any_installed() {
            self.oracle.excused = Some(Excuse::NothingLeft);
            return;
        }
        let awaited: Vec<(NodeId, Vec<u32>)> = words.iter().filter_map(|line| awaited(line)).collect();
        let runs = |(node, told): &&(NodeId, Vec<u32>)| {
            let mut running = self.fleet.of_node(usize::from(node.0));
            running.any(|p| !told.contains(&pid_of(p.incarnation)))
        };
        let ended = awaited.iter().filter(|one| !runs(one)).map(|(node, _)| *node);
        let ended: BTreeSet<NodeId> = ended.collect();
        if awaited.len() > ended.len() {
            self.oracle.marks.see(Seen::FormerAwaited);
        }
        if ended.is_empty() {
            return self.push_control(LOOK_EVERY, Control::Trouble(Trouble::LookAtAdoption { reign }));
        }
        self.schedule
            .log(|| format!("the operator says that the silent processes of {ended:?} have ended"));
        self.oracle.marks.see(Seen::EndAttested);
        self.end_coordinators();
        if let Some(troubles) = self.troubles() {
            troubles.attested.extend(ended);
        }
        self.begin_adoption();
    }

    /// The newest configuration of a list that a running process has. A newer one was lost with its store.
    fn newest_installed(&self, list: ListId) -> Option<&Configuration> {
        let running = self.fleet.processes.iter().flatten();
        let installed = running.filter_map(|p| Some(&p.node.replica().list(list)?.configuration));
        installed.max_by_key(|c| c.epoch)
    }

    fn is_any_installed(&self) -> bool {
        let mut nodes = 0..self.fleet.processes.len();
        nodes.any(|at| {
            self.committed
                .lists()
                .any(|list| self.installed(at, list).next().is_some())
        })
    }

    /// The store that an adoption has made is the newest from now on. Its epochs may be ones that an earlier adoption
    /// has made, with the same contents and so with the same ids: what was committed after those is given up.
    fn see_adopted(&mut self) {
        if let Some(governed) = self.governed.as_mut() {
            governed.troubles.forget_newest();
            governed.truth.is_adopted = true;
            governed.upgrade.is_adopted = true;
        }
        let Some(reader) = self.store_reader() else { return };
        let unseen = self.unseen(&reader);
        self.see_all_committed(unseen);
        self.fork_others();
    }

    /// What was committed last may be seen only now: its outcome was unknown. A copy of a history that was given up is
    /// no commit: the adoption must refuse it.
    fn see_store(&mut self) {
        if let Some(reader) = self.store_reader() {
            let mut unseen = self.unseen(&reader);
            unseen.retain(|c| !self.is_given_up(c));
            self.see_all_committed(unseen);
        }
    }

    /// The nodes have told all, or cannot.
    pub(in crate::governed) fn see_adoption(&mut self, host: usize, progress: Progress) {
        self.schedule.log(|| format!("the store is made anew: {progress:?}"));
        match progress {
            Progress::Waits(_) => {}
            Progress::Done(_) => {
                self.oracle.marks.see(Seen::Adopted);
                self.see_adopted();
                self.push_control(Span::from_ms(1), Control::Trouble(Trouble::Start { host }));
            }
            // An operator tries again. What an earlier try wrote may have taken effect meanwhile.
            Progress::Failed(why)
                if why.contains("the configuration store failed") || why.contains("has changed the store") =>
            {
                if let Some(governed) = self.governed.as_mut() {
                    governed.truth.is_adopted = true;
                }
                self.push_control(Span::from_ms(100), Control::Trouble(Trouble::Adopt));
            }
            // The operator does what it says.
            Progress::Failed(why) if why.contains("Move the store's file away") => {
                if let Some(governed) = self.governed.as_ref() {
                    governed.store.put_back(MemoryStore::new());
                }
                self.push_control(Span::from_ms(100), Control::Trouble(Trouble::Adopt));
            }
            // A process stood still for so long that nobody can tell its history.
            Progress::Failed(why) if why.contains("stop that process and start again") => self.stop_apart(&why),
            Progress::Failed(why) => self.violate(format!("D7: the store cannot be made anew: {why}")),
        }
    }

    /// The operator stops the process that this message is about, since it holds nothing any more, and adopts again.
    fn stop_apart(&mut self, why: &str) {
        let named = why.strip_prefix('n').and_then(|rest| rest.split_once(' '));
        let node = named.and_then(|(number, _)| number.parse().ok()).map(NodeId);
        let holds = |node: NodeId, incarnation| {
            let mut newest = self.committed.lists().filter_map(|list| self.newest_installed(list));
            newest.any(|c| c.held_by(node, incarnation).next().is_some())
        };
        let is_idle = |node: &NodeId| {
            let running: Vec<_> = self.fleet.of_node(usize::from(node.0)).collect();
            running.len() == 1 && !running.iter().any(|p| holds(*node, p.incarnation))
        };
        let Some(node) = node.filter(is_idle) else {
            return self.violate(format!("D7: the store cannot be made anew: {why}"));
        };
        self.oracle.marks.see(Seen::AdoptedAgain);
        self.kill(usize::from(node.0));
        self.push_control(Span::from_ms(100), Control::Trouble(Trouble::Adopt));
    }
}

/// The node of which a silent process is awaited, and those of its processes that have told what they know.
fn awaited(line: &str) -> Option<(NodeId, Vec<u32>)> {
    let (node, rest) = line
        .strip_prefix("waits for a silent process of n")?
        .split_once(": process ")?;
    let (told, _) = rest.split_once(" has registered")?;
    let told = told.split(" and ").filter_map(|pid| pid.parse().ok());
    Some((NodeId(node.parse().ok()?), told.collect()))
}
