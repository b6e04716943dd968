//! I10: the gauges of a node agree with what its memory holds, and memory stays within what was granted.

use crate::driver::Process;
use crate::swarm::Swarm;
use paritas_base::Position;
use paritas_protocol::{Ring, Role};

/// Checks that every chunk in use belongs to a role, and that a stream's raw deltas that are not stable stay within its
/// window.
pub(crate) fn check(process: &Process, swarm: &Swarm) -> Result<(), String> {
    let node = &process.node;
    let (figures, arena) = (node.figures(), node.replica().arena());
    let chunks = figures.data_bytes + figures.index_bytes + figures.parity_bytes + figures.part_bytes;
    let used = u64::from(arena.used()) * arena.chunk_bytes() as u64;
    if chunks != used {
        return Err(format!(
            "I10: {} holds {used} B of chunks, but reports {figures:?}",
            process.id
        ));
    }
    if chunks + figures.stash_bytes + figures.free_bytes != arena.resident_bytes() {
        let resident = arena.resident_bytes();
        return Err(format!(
            "I10: {} has {resident} B resident, but reports {figures:?}",
            process.id
        ));
    }
    budgets(process)?;
    let (window, history) = (swarm.parameters.window_bytes, swarm.parameters.history_bytes);
    for (_, role) in process.roles() {
        let checked = match role {
            Role::Owner(owner) if owner.members().is_empty() => Ok(()),
            Role::Owner(owner) => within(owner.ring(), owner.stable(), window, history),
            Role::Member(member) => (0..swarm.data)
                .filter_map(|x| member.log(Position(x)))
                .try_for_each(|log| within(&log.ring, log.stable, window, history)),
            Role::Halted(_) => Ok(()),
        };
        checked.map_err(|what| format!("I10: {} at {}: {what}", process.id, role.position().0))?;
    }
    Ok(())
}

/// Used and reserved chunks of memory and of the disk are the sums over all roles.
fn budgets(process: &Process) -> Result<(), String> {
    let node = &process.node;
    let memory = node.replica().arena().budget();
    let (mut in_memory, mut on_disk) = ((0, 0), (0, 0));
    for (_, role) in process.roles() {
        match role {
            Role::Owner(owner) => {
                let (index, data) = owner.store().chunks().held_counts();
                in_memory.0 += index + data;
            }
            Role::Member(member) => {
                let sums = if member.is_on_disk() {
                    &mut on_disk
                } else {
                    &mut in_memory
                };
                let (used, reserved) = member.budgeted();
                *sums = (sums.0 + used, sums.1 + reserved);
            }
            Role::Halted(_) => {}
        }
    }
    for parts in node.replica().lists().flat_map(|list| &list.parts) {
        let sums = match node.replica().parity_log() {
            Some(_) => &mut on_disk,
            None => &mut in_memory,
        };
        sums.0 += parts.chunk_count();
    }
    for (budget, found) in [(Some(memory), in_memory), (node.replica().disk_budget(), on_disk)] {
        if let Some(budget) = budget
            && (budget.used(), budget.reserved()) != found
        {
            return Err(format!("I10: {} has {budget:?}, and its roles {found:?}", process.id));
        }
    }
    Ok(())
}

/// A write begins while the window has space, and may then exceed it. So all deltas but the newest must be within the
/// window, and the history before them within its own limit.
fn within(ring: &Ring, stable: u64, window: u64, history: u64) -> Result<(), String> {
    let mut unstable = ring.after(stable).rev().map(|r| r.extents.len() as u64);
    let newest = unstable.next().unwrap_or(0);
    let before: u64 = unstable.sum();
    if before > window {
        return Err(format!(
            "{before} B not stable before the newest {newest} B, in a window of {window} B"
        ));
    }
    let newest = ring.iter().next_back().map_or(0, |r| r.extents.len() as u64);
    if ring.bytes() - newest > window + history {
        return Err(format!(
            "{} B in a ring of window {window} B and history {history} B",
            ring.bytes()
        ));
    }
    Ok(())
}
