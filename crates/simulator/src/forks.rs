//! I8: acknowledged data survives every loss that P10.3 covers.
//!
//! At random instants of a run, every set of processes that the redundancy can lose is killed at once, each set in a
//! run of its own. The other faults end. All must come to rest with every invariant held and every key read. A fork of
//! the state is the same run repeated up to that event: a run is deterministic, and the digest verifies this.

use crate::driver::Process;
use crate::world::World;
use core::fmt;
use core::str::FromStr;
use paritas_base::{Prng, Time};

/// A fork of a run: after this many events, these processes die.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fork {
    events: u64,
    /// One bit for each process that dies.
    dead: u32,
}

/// A state at which runs fork.
#[derive(Clone, Debug)]
pub(crate) struct Instant {
    digest: u64,
    /// All sets of processes that may be lost there.
    pub(crate) forks: Vec<Fork>,
}

/// Times of the instants in the run of a seed, in order.
pub(crate) fn instants(seed: u64, count: u64, chaos: Time) -> Vec<Time> {
    let mut random = Prng::new(seed ^ 0x666f_726b);
    let mut instants: Vec<Time> = (0..count).map(|_| Time(random.below(chaos.0))).collect();
    instants.sort();
    instants
}

impl World {
    /// All sets of processes with positions that may be lost now. Without parity there are none.
    pub(crate) fn instant(&self) -> Instant {
        let holds = |at: &usize| {
            let process = self.fleet.processes[*at].as_ref();
            let held = |p: &Process| {
                self.committed
                    .configurations
                    .iter()
                    .any(|c| c.held_by(p.id, p.incarnation).next().is_some())
            };
            process.is_some_and(|p| held(p))
        };
        let holders = (0..self.fleet.processes.len())
            .filter(holds)
            .fold(0u32, |all, at| all | 1 << at);
        let sets = (1..=holders).filter(|dead| dead & !holders == 0 && self.swarm.parity > 0);
        let forks = sets.filter(|dead| self.may_lose_all(&members(*dead))).map(|dead| Fork {
            events: self.oracle.counts.events,
            dead,
        });
        Instant {
            digest: self.schedule.digest(),
            forks: forks.collect(),
        }
    }

    /// Runs to the fork and continues from there. With `from`, the state before the fork must equal that instant.
    pub(crate) fn run_fork(&mut self, fork: Fork, from: Option<&Instant>) -> Option<String> {
        while self.oracle.violation.is_none() && self.oracle.counts.events < fork.events && self.step() {}
        if let Some(from) = from.filter(|from| from.digest != self.schedule.digest()) {
            self.violate(format!(
                "two runs differ: {:x} and {:x}",
                from.digest,
                self.schedule.digest()
            ));
        }
        let dead = members(fork.dead);
        self.schedule.log(|| format!("{dead:?} die at once"));
        // In this order, so that the processes that die now restart later by their own delay.
        self.heal();
        for at in dead {
            self.kill(at);
        }
        self.settle()
    }
}

fn members(set: u32) -> Vec<usize> {
    (0..32).filter(|at| set >> at & 1 == 1).collect()
}

/// In the form `EVENTS:PROCESS,PROCESS`, as `--fork` takes it.
impl fmt::Display for Fork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dead: Vec<String> = members(self.dead).iter().map(usize::to_string).collect();
        write!(f, "{}:{}", self.events, dead.join(","))
    }
}

impl FromStr for Fork {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not EVENTS:PROCESS,PROCESS");
        let (events, dead) = text.split_once(':').ok_or_else(bad)?;
        let mut fork = Self {
            events: events.parse().map_err(|_| bad())?,
            dead: 0,
        };
        for at in dead.split(',') {
            let at = at.parse().ok().filter(|at: &u32| *at < 32).ok_or_else(bad)?;
            fork.dead |= 1u32 << at;
        }
        Ok(fork)
    }
}
