//! Two versions of formats in one cluster (P10.21). The version of *tomorrow* has one more message and one more section
//! than this build's. Each process is told whether it may speak it. An operator replaces nodes and then coordinators by
//! newer programs, one at a time, goes back meanwhile, and makes the newer version active, at times too early.

use super::store::SharedStore;
use super::trouble::Trouble;
use super::{Control, ControlMessage, Leader};
use crate::marks::Seen;
use crate::world::World;
use paritas_base::configuration::NodeRecord;
use paritas_base::formats::{HIGHEST, TOMORROW, TOMORROW_SECTION};
use paritas_base::{Incarnation, Prng, Sections, Span};
use paritas_control::Coordinator;
use paritas_control::message::Refusal;
use std::collections::BTreeMap;

/// Runs with both versions, per million.
const RUNS: u32 = 500_000;
/// Programs that are of tomorrow from the beginning, per million.
const NEWER: u32 = 250_000;
/// An operator reads why a process is refused, and starts another one, after this time.
const READS_REFUSAL_AFTER: Span = Span::from_ms(200);

/// What a run has of it.
#[derive(Debug)]
pub(super) struct Upgrade {
    /// Between two steps of the operator. Zero: there is one version.
    every: Span,
    random: Prng,
    /// The highest version of the program on each node's machine.
    installed: Vec<u16>,
    /// The same of the machines of coordinators.
    pub(super) coordinators: u16,
    /// The highest version that each process may speak.
    processes: BTreeMap<Incarnation, u16>,
    /// The highest version that was ever active.
    active: u16,
    /// What each process takes for active.
    taken: BTreeMap<Incarnation, u16>,
    /// The newer version was to become active, so nobody goes back.
    is_ordered: bool,
    goes_back: bool,
    /// The store was made anew: its records may lack what registrations said.
    pub(super) is_adopted: bool,
}

impl Upgrade {
    /// Drawn apart, so that runs with one version are as without this.
    pub(super) fn draw(seed: u64, nodes: usize, may_mix: bool) -> Self {
        let mut random = Prng::new(seed ^ 0x5550_4752_4144);
        let mixes = random.chance(RUNS) && may_mix;
        let every = Span::from_ms(random.between(100, 700));
        let mut program = || match mixes && random.chance(NEWER) {
            true => TOMORROW,
            false => HIGHEST,
        };
        Self {
            every: if mixes { every } else { Span(0) },
            installed: (0..nodes).map(|_| program()).collect(),
            coordinators: program(),
            random,
            processes: BTreeMap::new(),
            active: HIGHEST,
            taken: BTreeMap::new(),
            is_ordered: false,
            goes_back: false,
            is_adopted: false,
        }
    }

    fn version_of(&self, incarnation: Incarnation) -> u16 {
        self.processes.get(&incarnation).copied().unwrap_or(HIGHEST)
    }

    fn wanted(&self) -> u16 {
        if self.goes_back { HIGHEST } else { TOMORROW }
    }
}

/// What a process of tomorrow adds to its registration.
pub(super) fn add_section(version: u16, incarnation: Incarnation, more: &mut Sections) {
    if version >= TOMORROW {
        more.put(TOMORROW_SECTION, &incarnation.0.to_le_bytes());
    }
}

impl World {
    fn upgrade(&mut self) -> Option<&mut Upgrade> {
        Some(&mut self.governed.as_mut()?.upgrade)
    }

    pub(super) fn plan_upgrade(&mut self) {
        if let Some(upgrade) = self.upgrade().filter(|upgrade| upgrade.every.0 > 0) {
            let after = Span(upgrade.random.below(2 * upgrade.every.0));
            self.push_control(after, Control::Trouble(Trouble::Upgrade));
        }
    }

    /// The highest version that this process of a node may speak: that of the program with which it begins.
    pub(crate) fn may_speak(&mut self, at: usize, incarnation: Incarnation) -> u16 {
        let Some(upgrade) = self.upgrade().filter(|upgrade| upgrade.every.0 > 0) else {
            return HIGHEST;
        };
        let installed = upgrade.installed[at];
        *upgrade.processes.entry(incarnation).or_insert(installed)
    }

    // --- the operator --------------------------------------------------------------------------------------------

    pub(super) fn go_on_with_upgrade(&mut self) {
        if self.schedule.healing {
            return;
        }
        self.plan_upgrade();
        let Some(upgrade) = self.upgrade() else { return };
        match upgrade.random.below(12) {
            0 => self.order_activation(),
            1 if !upgrade.is_ordered => {
                upgrade.goes_back = !upgrade.goes_back && upgrade.random.chance(500_000);
                if upgrade.goes_back {
                    self.oracle.marks.see(Seen::UpgradeTakenBack);
                }
            }
            1 if upgrade.active == TOMORROW => self.start_older_program(),
            _ => self.replace_program(),
        }
    }

    /// By mistake, when the newer version is active: the process is refused.
    fn start_older_program(&mut self) {
        let Some(upgrade) = self.upgrade() else { return };
        let at = upgrade.random.below(upgrade.installed.len() as u64) as usize;
        if self.may_lose(at)
            && let Some(upgrade) = self.upgrade()
        {
            upgrade.installed[at] = HIGHEST;
            self.kill(at);
        }
    }

    /// The next node gets the wanted program; when all have it the coordinators do; then the version becomes active.
    fn replace_program(&mut self) {
        let Some(governed) = self.governed.as_mut() else { return };
        let upgrade = &mut governed.upgrade;
        let wanted = upgrade.wanted();
        let is_other = |at: &usize| match self.fleet.incarnation(*at) {
            Some(incarnation) => upgrade.version_of(incarnation) != wanted,
            None => upgrade.installed[*at] != wanted,
        };
        let others: Vec<usize> = (0..upgrade.installed.len()).filter(is_other).collect();
        if others.is_empty() && upgrade.coordinators == wanted {
            return if upgrade.goes_back {
                upgrade.goes_back = false;
            } else {
                self.order_activation();
            };
        }
        if others.is_empty() {
            return self.replace_coordinators(wanted);
        }
        let at = *upgrade.random.pick(&others);
        let runs = self.fleet.incarnation(at).is_some();
        if runs && !self.may_lose(at) {
            return;
        }
        if let Some(upgrade) = self.upgrade() {
            upgrade.installed[at] = wanted;
        }
        self.schedule
            .log(|| format!("n{at} gets a program that speaks up to {wanted}"));
        self.oracle.marks.see(Seen::TwoVersions);
        self.kill(at);
    }

    fn replace_coordinators(&mut self, wanted: u16) {
        if self.is_adopting() {
            return;
        }
        self.schedule
            .log(|| format!("coordinators get a program that speaks up to {wanted}"));
        self.end_coordinators();
        if let Some(upgrade) = self.upgrade() {
            upgrade.coordinators = wanted;
            let after = Span::from_ms(upgrade.random.between(5, 300));
            self.push_control(after, Control::Trouble(Trouble::Start { host: 0 }));
        }
    }

    /// Only if every process may speak it, it becomes active.
    fn order_activation(&mut self) {
        let now = self.schedule.now;
        let hosts = self.governed.iter().flat_map(|g| &g.hosts).enumerate();
        let runs = |leader: &Option<Leader>| matches!(leader, Some(Leader::Coordinator(_)));
        let mut running = hosts.filter(|(_, place)| place.stopped_until <= now && runs(&place.coordinator));
        let Some((host, _)) = running.next() else { return };
        let mut said = None;
        self.coordinator_does(host, |leader, clock, asked| {
            if let Leader::Coordinator(coordinator) = leader {
                said = Some(coordinator.finish_upgrade(clock, asked));
            }
        });
        self.schedule
            .log(|| format!("the newer version is to be active: {said:?}"));
        let Some(upgrade) = self.upgrade() else { return };
        match said {
            Some(Ok(TOMORROW)) => upgrade.is_ordered = true,
            Some(Err(why)) if why.contains("It is not known") => upgrade.is_ordered = true,
            Some(Err(why)) if why.contains("speaks versions") => self.oracle.marks.see(Seen::ActivationRefused),
            _ => {}
        }
    }

    /// D12: only a process below the active version is refused for that, and the words say so. The operator gives it
    /// the newer program.
    pub(super) fn see_refusal(&mut self, place: usize, incarnation: Incarnation, refusal: &Refusal) {
        let Refusal::Limit(why) = refusal else { return };
        let at = usize::from(self.node_at(place).0);
        let Some(upgrade) = self.upgrade().filter(|_| why.contains("active version")) else {
            return;
        };
        let version = upgrade.version_of(incarnation);
        if version >= upgrade.active {
            return self.violate(format!("D12: n{at} speaks up to {version}, and is refused: {why}"));
        }
        self.oracle.marks.see(Seen::BelowActive);
        if place == at {
            self.push_control(
                READS_REFUSAL_AFTER,
                Control::Trouble(Trouble::ReplaceRefused { at, incarnation }),
            );
        }
    }

    pub(super) fn replace_refused(&mut self, at: usize, incarnation: Incarnation) {
        if let Some(upgrade) = self.upgrade() {
            upgrade.installed[at] = TOMORROW;
        }
        if self.fleet.incarnation(at) == Some(incarnation) && self.may_lose(at) {
            self.kill(at);
        }
    }

    // --- checks --------------------------------------------------------------------------------------------------

    /// D12: a version becomes active only if every process that counts as a node may speak it.
    pub(super) fn see_active(&mut self, coordinator: &Coordinator<SharedStore>) {
        let active = coordinator.cluster().active_version;
        let Some(upgrade) = self.governed.as_ref().map(|g| &g.upgrade) else {
            return;
        };
        if active <= upgrade.active {
            return;
        }
        let mut records = coordinator.nodes();
        let unable = records.find(|n| {
            let runs = self.fleet.runs(usize::from(n.id.0), n.incarnation);
            runs && upgrade.version_of(n.incarnation) < active
        });
        if let Some(id) = unable.map(|n| n.id) {
            self.violate(format!(
                "D12: version {active} is active, and the process of {id} cannot speak it"
            ));
        }
        self.schedule.log(|| format!("version {active} is active"));
        self.oracle.marks.see(Seen::Activated);
        self.network.active_version = active;
        if let Some(upgrade) = self.upgrade() {
            upgrade.active = active;
        }
    }

    /// D12: the active version does not fall in what a coordinator commits. One that finds another store in place of
    /// its own ends.
    pub(super) fn see_fallen(&mut self, before: u16, coordinator: &Coordinator<SharedStore>) {
        let after = coordinator.cluster().active_version;
        if after < before && coordinator.ending().is_none() {
            self.violate(format!("D12: version {before} was active, and {after} is"));
        }
    }

    /// D12: at the end of a run in which a version has become active, the coordinator and all processes know it that
    /// hold a position. Others wait for the place of their node, or were refused.
    pub(crate) fn check_versions_at_end(&self) -> Result<(), String> {
        let Some(governed) = self.governed.as_ref() else {
            return Ok(());
        };
        let leaders = governed.hosts.iter().filter_map(|place| place.coordinator.as_ref());
        let coordinators = leaders.filter_map(|leader| match leader {
            Leader::Coordinator(coordinator) => Some(coordinator),
            Leader::Adoption(_) => None,
        });
        let Some(newest) = coordinators.max_by_key(|coordinator| coordinator.cluster().active_version) else {
            return Ok(());
        };
        let active = newest.cluster().active_version;
        let holds = |node: &NodeRecord| {
            let mut lists = self.committed.configurations.iter();
            lists.any(|list| list.held_by(node.id, node.incarnation).next().is_some())
        };
        for node in newest.nodes().filter(|node| holds(node)) {
            let process = self.fleet.process(usize::from(node.id.0), node.incarnation);
            let taken = process.map(|process| process.node.replica().active_version());
            if let Some(taken) = taken.filter(|taken| *taken != active) {
                return Err(format!(
                    "D12: at the end {} takes version {taken} for active, and the coordinator {active}",
                    node.id
                ));
            }
        }
        Ok(())
    }

    /// D13: no process takes a version for active, or acts on what it has, that is not, or that the process does not
    /// speak.
    pub(super) fn check_version(&mut self, at: usize) {
        let Some(process) = self.fleet.processes[at].as_ref() else {
            return;
        };
        let Some(upgrade) = self.governed.as_ref().map(|g| &g.upgrade) else {
            return;
        };
        let (replica, may) = (process.node.replica(), upgrade.version_of(process.incarnation));
        let taken = replica.active_version();
        let before = upgrade.taken.get(&process.incarnation).copied();
        if before.is_some_and(|before| taken < before) {
            self.violate(format!(
                "D12: n{at} took version {before:?} for active, and now {taken}"
            ));
        } else if taken > upgrade.active.min(may) {
            let active = upgrade.active;
            self.violate(format!(
                "D13: n{at} takes version {taken} for active; {active} is, and it speaks {may}"
            ));
        } else if replica.tomorrows() > 0 && taken < TOMORROW {
            self.violate(format!(
                "D13: n{at} acts on version {TOMORROW}, and takes {taken} for active"
            ));
        } else if before != Some(taken) {
            let incarnation = process.incarnation;
            if let Some(upgrade) = self.upgrade() {
                upgrade.taken.insert(incarnation, taken);
            }
        }
    }

    /// D13: what a process of tomorrow adds to its registration comes to all others as it was, by coordinators of both
    /// versions.
    pub(super) fn check_sections(&mut self, message: &ControlMessage) {
        let (ControlMessage::Nodes(nodes), Some(upgrade)) = (message, self.governed.as_ref().map(|g| &g.upgrade))
        else {
            return;
        };
        let is_other = |incarnation: Incarnation, more: &Sections| {
            let mut said = Sections::none();
            add_section(upgrade.version_of(incarnation), incarnation, &mut said);
            let is_unsaid = more.bytes().is_empty() && upgrade.is_adopted;
            !is_unsaid && more.find(TOMORROW_SECTION) != said.find(TOMORROW_SECTION)
        };
        let other = nodes.iter().find(|n| is_other(n.incarnation, &n.more)).map(|n| n.id);
        if let Some(id) = other {
            self.violate(format!(
                "D13: the record of {id} has other sections than its process has sent"
            ));
        }
    }
}
