//! A decision is lost together with its store, right after it was made (P10.16). Most holders hear nothing from the
//! coordinator meanwhile, and those that have heard of the decision cannot reach the next coordinator. Random troubles
//! bring all of this together too rarely.

use super::Control;
use super::trouble::Trouble;
use crate::swarm::Swarm;
use crate::world::World;
use paritas_base::{Prng, Span};

/// Runs that are made for this, per million.
const RUNS: u32 = 70_000;
/// Until the next coordinator has waited out its grace and decided.
const CHAOS: Span = Span::from_secs(15);

/// Makes some runs for this trouble alone. The number is drawn apart, so that all other runs are as without it.
pub(super) fn draw(swarm: &mut Swarm, seed: u64) {
    let (members, parity) = (
        usize::from(u16::from(swarm.data + swarm.parity) + swarm.beyond),
        usize::from(swarm.parity),
    );
    // More than one process must have to know a decision before it is sent.
    let is_apt = parity > 0 && (members / 2 + 1).min(members - parity) >= 2;
    swarm.loses_decision = is_apt && Prng::new(seed ^ 0x4c41_5445_5354).chance(RUNS);
    if swarm.loses_decision {
        swarm.chaos = CHAOS;
        (swarm.crash_every, swarm.pause_every, swarm.partition_every) = (Span(0), Span(0), Span(0));
        swarm.certified = 1_000_000;
    }
}

impl World {
    pub(super) fn plan_decision(&mut self) {
        if self.swarm.loses_decision {
            let after = Span::from_ms(self.schedule.random.between(500, 2_000));
            self.push_control(after, Control::Trouble(Trouble::Decide));
        }
    }

    /// A holder's process ends. Its next process takes its place, and the other holders are not told: nothing comes to
    /// them from the coordinator for longer than an agent waits, so what was sent to them is lost.
    pub(super) fn cause_decision(&mut self) {
        let holders: Vec<usize> = (0..self.fleet.processes.len())
            .filter(|at| {
                let process = self.fleet.processes[*at].as_ref();
                process.is_some_and(|p| {
                    let mut lists = self.committed.configurations.iter();
                    lists.any(|c| c.held_by(self.fleet.records[*at].id, p.incarnation).next().is_some())
                })
            })
            .collect();
        let victims: Vec<usize> = holders.iter().copied().filter(|at| self.may_lose(*at)).collect();
        if self.schedule.healing || victims.is_empty() {
            return;
        }
        let victim = *self.schedule.random.pick(&victims);
        let others = holders.iter().filter(|at| **at != victim);
        let nodes = others.fold(0, |nodes, at| nodes | 1 << at);
        let until = self.schedule.now + Span::from_ms(self.schedule.random.between(3_500, 4_500));
        self.schedule
            .log(|| format!("nodes {nodes:b} hear nothing from the coordinator, and n{victim} ends"));
        self.close_one_way(nodes, 1, until);
        if let Some(governed) = self.governed.as_mut() {
            governed.troubles.before = Some(governed.store.copy());
        }
        self.kill(victim);
        let after = Span::from_ms(self.schedule.random.between(700, 1_800));
        self.push_control(after, Control::Trouble(Trouble::LoseDecision { victim }));
    }

    /// The store of before the decision is in use from now on.
    pub(super) fn lose_decision(&mut self, victim: usize) {
        let Some(before) = self
            .troubles()
            .and_then(|t| t.before.take())
            .filter(|_| !self.schedule.healing)
        else {
            return;
        };
        // The whole machine of the coordinator is gone.
        let hosts = self.governed.as_ref().map_or(0, |g| g.hosts.len());
        for host in 0..hosts {
            self.end_coordinator(host, true);
        }
        self.replace_store(before);
        let mut nodes = 1_u64 << victim;
        if let Some(reader) = self.store_reader() {
            for at in 0..self.fleet.processes.len() {
                let is_ahead = reader.configurations().any(|stored| {
                    let mut installed = self.installed(at, stored.list);
                    installed.any(|(epoch, _)| epoch > stored.epoch)
                });
                nodes |= u64::from(is_ahead) << at;
            }
        }
        let until = self.schedule.now + CHAOS;
        self.schedule
            .log(|| format!("nodes {nodes:b} cannot reach a coordinator"));
        if let Some(troubles) = self.troubles() {
            troubles.unreachable = (nodes, until);
        }
        let after = Span::from_ms(self.schedule.random.between(20, 300));
        self.push_control(after, Control::Trouble(Trouble::Start { host: 0 }));
    }
}
