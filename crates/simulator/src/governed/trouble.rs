//! What happens to coordinators, to their store, and to the paths to them.

mod adoption;
mod operator;

use super::store::SharedStore;
use super::{Control, Leader};
use crate::marks::Seen;
use crate::world::World;
use paritas_base::formats::{TOMORROW, Versions};
use paritas_base::{Incarnation, NodeId, Prng, Span, Time};
use paritas_control::store::MemoryStore;
use paritas_control::{Coordinator, CoordinatorEvent, OpenError};
use std::collections::BTreeSet;

/// How many copies of the store are kept. The oldest goes first.
const COPIES_MAX: usize = 8;

/// How often the operator looks at `status` after the faults. The nodes have registered by then if they can.
const READS_STATUS_EVERY: Span = Span::from_secs(15);

/// One trouble, or its end.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The next one begins, whatever it is.
    Next,
    /// A coordinator starts.
    Start { host: usize },
    /// The newest store comes back in place of an older one.
    NewestStore,
    /// A copy of the store is made.
    Copy,
    /// The newest store is lost: a coordinator makes a store from the nodes' reports.
    Adopt,
    /// An operator looks at what that coordinator waits for.
    LookAtAdoption { reign: u64 },
    /// The operator reads `status` after the faults, and does what it says.
    ReadStatus,
    /// A holder's process ends, so that something is decided, which few nodes are told.
    Decide,
    /// The store of before that decision takes the place of the newest one.
    LoseDecision { victim: usize },
    /// A process is asked to end (P10.20).
    Stop { every: Span },
    /// A second process of a node begins, and the first one stands still.
    RunTwice { every: Span },
    /// A process ends whose heartbeats are still on their way, and another one is asked to end.
    DieUnseen { victim: usize, leaver: usize },
    /// Commits that seemed to fail take effect.
    LandLate,
    /// The same, on a copy of the store from before, which takes the place of the newest one at this moment.
    LandLateOnCopy,
    /// The next step of an upgrade, or back.
    Upgrade,
    /// A process below the active version was refused.
    ReplaceRefused { at: usize, incarnation: Incarnation },
}

/// What a run has of it.
#[derive(Debug)]
pub(super) struct Troubles {
    every: Span,
    host_count: usize,
    copies: Vec<MemoryStore>,
    /// The newest store, while an older one is in its place.
    newest: Option<MemoryStore>,
    /// When a store was last put in the place of another.
    pub(super) replaced_at: Option<Time>,
    /// Nodes whose former processes have ended, as an operator has seen while the store is made anew.
    attested: BTreeSet<NodeId>,
    /// Nodes as bits, a direction, and a time until which their frames in that direction are delayed. 0: to the
    /// coordinator, 1: from it.
    one_way: (u64, usize, Time),
    /// These nodes, by bits, cannot reach the coordinator until then.
    pub(super) unreachable: (u64, Time),
    /// The store as it was before the decision that will be lost.
    pub(super) before: Option<MemoryStore>,
    /// The store as it was before commits that take effect late.
    before_late: Option<MemoryStore>,
}

impl Troubles {
    /// A quarter of the runs has none, and those that have another trouble.
    pub(super) fn draw(random: &mut Prng, any: bool) -> Self {
        let every = match random.chance(250_000) || !any {
            true => Span(0),
            false => Span::from_ms(random.between(300, 3_000)),
        };
        Self {
            every,
            host_count: if random.chance(300_000) { 2 } else { 1 },
            copies: Vec::new(),
            newest: None,
            replaced_at: None,
            attested: BTreeSet::new(),
            one_way: (0, 0, Time(0)),
            unreachable: (0, Time(0)),
            before: None,
            before_late: None,
        }
    }

    pub(super) fn host_count(&self) -> usize {
        self.host_count
    }

    /// Whether an older store is in the place of the newest.
    pub(super) fn store_is_old(&self) -> bool {
        self.newest.is_some()
    }

    /// An old copy of the store is the newest from now on.
    pub(super) fn forget_newest(&mut self) {
        self.newest = None;
    }
}

impl World {
    pub(super) fn troubles(&mut self) -> Option<&mut Troubles> {
        Some(&mut self.governed.as_mut()?.troubles)
    }

    /// Which way between a node and the coordinator is closed, and until when.
    pub(super) fn one_way(&self, at: usize) -> Option<(usize, Time)> {
        let troubles = &self.governed.as_ref()?.troubles;
        let ((nodes, way, until), (unreachable, reached_from)) = (troubles.one_way, troubles.unreachable);
        let closed = [(nodes, way, until), (unreachable, 0, reached_from)];
        let is_closed = |(nodes, _, until): &(u64, usize, Time)| nodes >> at & 1 == 1 && self.schedule.now < *until;
        closed.into_iter().find(is_closed).map(|(_, way, until)| (way, until))
    }

    pub(super) fn plan_trouble(&mut self) {
        let Some(every) = self.troubles().map(|t| t.every).filter(|every| every.0 > 0) else {
            return;
        };
        let after = Span(self.schedule.random.below(2 * every.0));
        self.push_control(after, Control::Trouble(Trouble::Next));
        let after = Span(self.schedule.random.below(2 * every.0));
        self.push_control(after, Control::Trouble(Trouble::Copy));
    }

    pub(super) fn on_trouble(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::Next if self.schedule.healing => {}
            Trouble::Next => {
                self.begin_trouble();
                let every = self.troubles().map_or(0, |t| t.every.0);
                let after = Span(self.schedule.random.below(2 * every.max(1)));
                self.push_control(after, Control::Trouble(Trouble::Next));
            }
            // Afterwards there is one coordinator.
            Trouble::Start { .. } if self.schedule.healing && self.coordinators_count() > 0 => {}
            Trouble::Start { .. } if self.is_adopting() => {}
            Trouble::Start { host } => self.start_coordinator(host),
            Trouble::NewestStore => self.put_newest_back(),
            Trouble::Adopt => {
                self.adopt();
                self.run_one_twice();
            }
            Trouble::LookAtAdoption { reign } => self.look_at_adoption(reign),
            Trouble::ReadStatus => self.read_status(),
            Trouble::Decide => self.cause_decision(),
            Trouble::LoseDecision { victim } => self.lose_decision(victim),
            Trouble::Stop { every } => self.ask_to_end(every),
            Trouble::RunTwice { every } => self.run_twice(every),
            Trouble::DieUnseen { victim, leaver } => self.die_unseen(victim, leaver),
            Trouble::LandLate => self.land_late(),
            Trouble::LandLateOnCopy => self.land_late_on_copy(),
            Trouble::Upgrade => self.go_on_with_upgrade(),
            Trouble::ReplaceRefused { at, incarnation } => self.replace_refused(at, incarnation),
            Trouble::Copy => {
                if let Some(governed) = self.governed.as_mut().filter(|g| !g.troubles.store_is_old()) {
                    governed.troubles.copies.push(governed.store.copy());
                    if governed.troubles.copies.len() > COPIES_MAX {
                        governed.troubles.copies.remove(0);
                    }
                }
                if !self.schedule.healing {
                    let every = self.troubles().map_or(0, |t| t.every.0);
                    let after = Span(self.schedule.random.below(2 * every.max(1)));
                    self.push_control(after, Control::Trouble(Trouble::Copy));
                }
            }
        }
    }

    pub(super) fn is_adopting(&self) -> bool {
        let mut hosts = self.governed.iter().flat_map(|g| &g.hosts);
        hosts.any(|host| matches!(host.coordinator, Some(Leader::Adoption(_))))
    }

    pub(super) fn coordinators_count(&self) -> usize {
        let hosts = self.governed.iter().flat_map(|g| &g.hosts);
        hosts.filter(|host| host.coordinator.is_some()).count()
    }

    fn begin_trouble(&mut self) {
        // An operator does not start another coordinator beside it, or put another store in its place.
        if self.is_adopting() {
            return;
        }
        let hosts = self.governed.as_ref().map_or(1, |g| g.hosts.len());
        let host = self.schedule.random.below(hosts as u64) as usize;
        match self.schedule.random.below(11) {
            10 if self.schedule.random.chance(600_000) => {}
            10 => {
                let lasts = self.outage();
                self.start_stray(lasts);
            }
            0..3 => {
                let machine = self.schedule.random.chance(300_000);
                let after = self.outage();
                self.end_coordinator(host, machine);
                self.push_control(after, Control::Trouble(Trouble::Start { host }));
                self.oracle.marks.see(Seen::CoordinatorAway);
            }
            3..5 => {
                let pause = self.outage();
                let until = self.schedule.now + pause;
                self.schedule
                    .log(|| format!("coordinator {host} stands still for {} ms", pause.as_ms()));
                if let Some(place) = self.governed.as_mut().and_then(|g| g.hosts.get_mut(host)) {
                    place.stopped_until = place.stopped_until.max(until);
                }
                self.oracle.marks.see(Seen::CoordinatorStopped);
            }
            5 => {
                let (count, with_effect) = (
                    self.schedule.random.between(1, 4) as u32,
                    self.schedule.random.chance(500_000),
                );
                self.oracle.marks.see(Seen::CommitFailed);
                if self.delay_commits(count) {
                    return;
                }
                self.schedule
                    .log(|| format!("{count} commits fail, with effect: {with_effect}"));
                if let Some(governed) = self.governed.as_ref() {
                    governed.store.fail(count, with_effect);
                }
            }
            6 | 7 => self.use_old_store(),
            8 => {
                // Another one takes the store over. The first finds out when it commits.
                if self.coordinators_count() == 1 && hosts == 2 {
                    self.oracle.marks.see(Seen::TwoCoordinators);
                }
                self.start_coordinator(host);
            }
            _ => {
                let (nodes, way) = (self.schedule.random.next_u64(), self.schedule.random.below(2) as usize);
                let until = self.schedule.now + self.outage();
                self.schedule.log(|| {
                    format!(
                        "way {way} of nodes {nodes:b} is closed until {} ms",
                        until.0 / 1_000_000
                    )
                });
                self.close_one_way(nodes, way, until);
            }
        }
    }

    pub(super) fn close_one_way(&mut self, nodes: u64, way: usize, until: Time) {
        if let Some(troubles) = self.troubles().filter(|t| t.one_way.2 < until) {
            troubles.one_way = (nodes, way, until);
        }
        self.oracle.marks.see(Seen::OneWayClosed);
    }

    /// Length of an outage: 20 ms to at most 10 s. The upper limit is drawn from five values first, so that short
    /// outages are frequent.
    fn outage(&mut self) -> Span {
        let most = *self.schedule.random.pick(&[100, 500, 1_500, 4_000, 10_000]);
        Span::from_ms(self.schedule.random.between(20, most))
    }

    /// The store is lost, and a copy of it takes its place; or an empty one does, which no coordinator begins with.
    fn use_old_store(&mut self) {
        let Some(governed) = self.governed.as_mut() else { return };
        let count = governed.troubles.copies.len() as u64;
        if count == 0 || governed.troubles.store_is_old() {
            return;
        }
        let hosts = governed.hosts.len();
        // Numbers of their own, as in `run_one_twice`. A running coordinator must notice that its store went back.
        let is_under = Prng::new(self.schedule.now.0 ^ 0x0055_4e44_4552).chance(400_000);
        if !is_under {
            self.end_coordinators();
        }
        let is_empty = self.schedule.random.chance(200_000);
        let which = self.schedule.random.below(count) as usize;
        let Some(governed) = self.governed.as_ref() else { return };
        let copy = match is_empty {
            true => MemoryStore::new(),
            false => governed.troubles.copies[which].clone(),
        };
        self.replace_store(copy);
        let host = self.schedule.random.below(hosts as u64) as usize;
        let (start, back) = (self.outage(), self.outage() + self.outage());
        self.push_control(start, Control::Trouble(Trouble::Start { host }));
        let end = match self.schedule.random.chance(400_000) {
            true => Trouble::Adopt,
            false => Trouble::NewestStore,
        };
        self.push_control(back, Control::Trouble(end));
    }

    /// At times the next commits seem to fail and take effect later, if nothing else was committed meanwhile.
    fn delay_commits(&mut self, count: u32) -> bool {
        let mut random = Prng::new(self.schedule.now.0 ^ 0x004c_4154_4552);
        if !random.chance(400_000) {
            return false;
        }
        self.schedule
            .log(|| format!("{count} commits take effect after they seem to fail"));
        if let Some(governed) = self.governed.as_ref() {
            governed.store.delay(count);
        }
        if random.chance(300_000) {
            if let Some(governed) = self.governed.as_mut() {
                governed.troubles.before_late = Some(governed.store.copy());
            }
            let after = Span::from_ms(random.between(200, 3_000));
            self.push_control(after, Control::Trouble(Trouble::LandLateOnCopy));
            return true;
        }
        for _ in 0..2 * count {
            let after = Span::from_ms(random.between(1, 4_000));
            self.push_control(after, Control::Trouble(Trouble::LandLate));
        }
        true
    }

    /// A coordinator whose attempts had the numbers of others would take this store for its own.
    fn land_late_on_copy(&mut self) {
        let is_busy = self.schedule.healing || self.is_adopting();
        let troubles = self.troubles().filter(|t| !is_busy && !t.store_is_old());
        let Some(copy) = troubles.and_then(|t| t.before_late.take()) else {
            return;
        };
        self.replace_store(copy);
        self.land_late();
        let back = self.outage() + self.outage();
        self.push_control(back, Control::Trouble(Trouble::NewestStore));
    }

    fn land_late(&mut self) {
        let count = self.governed.as_ref().map_or(0, |g| g.store.land_late());
        if count > 0 {
            self.schedule.log(|| format!("{count} late commits take effect"));
            self.oracle.marks.see(Seen::CommitLandedLate);
            if self.troubles().is_some_and(|t| t.store_is_old()) {
                self.see_landed_on_old();
            }
        }
    }

    /// A copy of the store takes the place of the newest one.
    pub(super) fn replace_store(&mut self, copy: MemoryStore) {
        let Some(governed) = self.governed.as_mut() else { return };
        governed.troubles.newest = Some(governed.store.copy());
        governed.troubles.replaced_at = Some(self.schedule.now);
        governed.troubles.attested.clear();
        governed.store.put_back(copy);
        self.schedule.log(|| "the store is an old copy".into());
        self.oracle.marks.see(Seen::StoreIsOld);
    }

    /// A coordinator that has just opened a copy of the store, to look at what is in it.
    pub(super) fn store_reader(&self) -> Option<Coordinator<SharedStore>> {
        let governed = self.governed.as_ref()?;
        let copy = SharedStore::default();
        copy.put_back(governed.store.copy());
        copy.fail(0, false);
        copy.fail(0, true);
        Coordinator::open_as(copy, &governed.plan, 0, Versions::up_to(TOMORROW)).ok()
    }

    /// What the coordinators say of their state, for who reads the log.
    pub(crate) fn log_status(&mut self) {
        let hosts = self.governed.iter().flat_map(|g| &g.hosts);
        let running = hosts.filter_map(|host| match &host.coordinator {
            Some(Leader::Coordinator(coordinator)) => Some(coordinator.status(self.schedule.now)),
            _ => None,
        });
        let said: Vec<_> = running.collect();
        for status in said {
            self.schedule.log(|| {
                format!(
                    "status: {:?} {:?} {:?}",
                    status.coordinator, status.trouble, status.nodes
                )
            });
        }
    }

    fn put_newest_back(&mut self) {
        if self.troubles().is_some_and(|t| t.newest.is_some()) {
            self.end_old_coordinators();
            self.start_coordinator(0);
        }
    }

    pub(super) fn end_coordinators(&mut self) {
        let hosts = self.governed.as_ref().map_or(0, |g| g.hosts.len());
        for host in 0..hosts {
            self.end_coordinator(host, false);
        }
    }

    /// All coordinators end, and the newest store is there again.
    fn end_old_coordinators(&mut self) {
        self.end_coordinators();
        let Some(governed) = self.governed.as_mut() else { return };
        if let Some(newest) = governed.troubles.newest.take() {
            governed.store.put_back(newest);
            self.schedule.log(|| "the newest store is back".into());
        }
    }

    /// A coordinator starts with the present store. Another coordinator may still run elsewhere.
    pub(super) fn start_coordinator(&mut self, host: usize) {
        let seed = self.schedule.random.next_u64();
        let Some(governed) = self.governed.as_mut() else { return };
        if governed.hosts[host].coordinator.is_some() {
            return;
        }
        let versions = Versions::up_to(governed.upgrade.coordinators);
        let opened = Coordinator::open_as(governed.store.clone(), &governed.plan, seed, versions);
        match opened {
            Ok(coordinator) => {
                self.excuse_given_up(&coordinator);
                let Some(governed) = self.governed.as_mut() else { return };
                self.committed.cluster = coordinator.cluster().clone();
                #[cfg(feature = "mutants")]
                let coordinator = {
                    let mut coordinator = coordinator;
                    coordinator.break_rule(self.swarm.control_mutant);
                    coordinator
                };
                let leader = Leader::Coordinator(Box::new(coordinator));
                let place = &mut governed.hosts[host];
                place.reign += 1;
                (place.coordinator, place.timer_at) = (Some(leader), None);
                place.opened_at = self.schedule.now;
                place.found_lists = !self.committed.configurations.is_empty();
                self.schedule.log(|| format!("coordinator {host} starts"));
                self.coordinator_has(host, CoordinatorEvent::Timer);
            }
            Err(OpenError::NoCluster) if governed.troubles.store_is_old() => {}
            // A store that fails is tried again, as by a supervisor.
            Err(OpenError::Store(_)) => {
                self.push_control(Span::from_ms(100), Control::Trouble(Trouble::Start { host }));
            }
            Err(error) => self.violate(format!("D0: the store is refused: {error:?}")),
        }
    }

    /// A coordinator's process ends.
    pub(super) fn end_coordinator(&mut self, host: usize, machine: bool) {
        let Some(place) = self.governed.as_mut().and_then(|g| g.hosts.get_mut(host)) else {
            return;
        };
        if place.coordinator.take().is_none() {
            return;
        }
        place.reign += 1;
        (place.timer_at, place.stopped_until) = (None, Time(0));
        self.schedule.log(|| format!("coordinator {host} ends"));
        self.end_lines_of(host, machine);
    }

    /// Ends all troubles: the newest store is in use, and one coordinator runs. If two run, the one that started first
    /// is deposed, and does not know it while it has nothing to commit.
    pub(crate) fn heal_control(&mut self) {
        let Some(governed) = self.governed.as_mut() else { return };
        governed.store.fail(0, false);
        governed.store.fail(0, true);
        governed.store.delay(0);
        governed.troubles.one_way.2 = self.schedule.now;
        governed.troubles.unreachable.1 = self.schedule.now;
        self.push_control(READS_STATUS_EVERY, Control::Trouble(Trouble::ReadStatus));
        if self.is_adopting() {
            return;
        }
        self.end_old_coordinators();
        self.start_coordinator(0);
    }
}
