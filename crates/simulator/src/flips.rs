//! Memory errors (P9, P14.12): one bit at a time flips in a chunk of data, of the index or of parity, or in a unit of a
//! large value.
//!
//! A flipped bit counts as the loss of that chunk until it is repaired, so that other faults leave the redundancy that
//! the repair needs. The effects of wrong bytes that are read or overwritten at an owner before a scrub are known
//! (P9.3). So here an owner's chunk is checked at once, while a parity chunk
//! waits for its turn in the scrub.

use crate::committed::Committed;
use crate::driver::Process;
use crate::fleet::Fleet;
use crate::marks::Seen;
use crate::oracle::Oracle;
use crate::world::World;
use paritas_base::{Incarnation, ListId, Position, StreamId, Stripe};
use paritas_protocol::PartId;
use paritas_protocol::paritylog::Key;
use paritas_protocol::{List, ParityMember, Phase, Role};

/// The latest flip.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flip {
    at: usize,
    incarnation: Incarnation,
    list: ListId,
    position: Position,
    place: Place,
    /// Whether it is in an owner's chunk; else in a member's.
    of_data: bool,
    /// Number of chunks that the process had repaired before.
    repaired: u64,
}

/// What holds the bit.
#[derive(Clone, Copy, Debug)]
enum Place {
    Chunk(Stripe),
    Unit(PartId, u32),
}

impl World {
    /// Flips one more bit, if the redundancy allows it.
    pub(crate) fn flip(&mut self) {
        let at = self.schedule.random.below(self.fleet.processes.len() as u64) as usize;
        let (which, bit) = (self.schedule.random.next_u64(), self.schedule.random.next_u64());
        if self.oracle.unrepaired(&self.fleet).is_some() {
            return;
        }
        let Some(process) = self.fleet.processes[at].as_ref().filter(|p| !p.unflushed) else {
            return;
        };
        if process.paused_until > self.schedule.now {
            return;
        }
        if which & 3 != 0 && self.flip_unit(at, which, bit as usize) {
            return;
        }
        let Some(process) = self.fleet.processes[at].as_ref() else {
            return;
        };
        let roles: Vec<(ListId, &Role)> = process.roles().collect();
        let Some((list, role)) = roles.get((which >> 32) as usize % roles.len().max(1)).copied() else {
            return;
        };
        let (stripes, stream): (Vec<Stripe>, Option<StreamId>) = match role {
            Role::Owner(owner) if owner.phase() == Phase::Serve => {
                let chunks = owner.store().chunks();
                let here = |stripe: &Stripe| {
                    chunks
                        .bytes(process.node.replica().arena(), *stripe)
                        .is_ok_and(|b| b.is_some())
                };
                (
                    chunks.stripes().map(|(s, _)| s).filter(here).collect(),
                    Some(owner.stream()),
                )
            }
            Role::Member(member) => {
                let here = |stripe: &Stripe| {
                    process
                        .parity(member, *stripe)
                        .is_some_and(|(_, bytes)| bytes.is_some())
                };
                (member.valid_stripes().filter(here).collect(), None)
            }
            _ => return,
        };
        if stripes.is_empty() || !self.may_flip(list, stream.is_some()) {
            return;
        }
        let position = role.position();
        let on_disk =
            matches!(role, Role::Member(member) if member.valid_stripes().any(|s| member.disk_key(s).is_some()));
        let stripe = stripes[(which % stripes.len() as u64) as usize];
        let bit = (bit % (8 * u64::from(self.swarm.chunk_bytes))) as usize;
        let now = self.schedule.now;
        let Some(process) = self.fleet.processes[at].as_mut() else {
            return;
        };
        let (incarnation, clock) = (process.incarnation, process.clock(now));
        let repaired = process.node.figures().scrub_repaired;
        if let Some(stream) = stream {
            // The bytes of the open delta are not in the sum yet. This check closes it, and finds nothing wrong.
            process
                .node
                .replica_mut()
                .scrub_now(clock, stream, stripe, &mut process.out);
        }
        let flipped = if on_disk {
            process.flip_on_disk(list, stripe, which ^ bit as u64)
        } else {
            process.node.replica_mut().flip_bit((list, position), stripe, bit)
        };
        if !flipped {
            return;
        }
        if let Some(stream) = stream {
            process
                .node
                .replica_mut()
                .scrub_now(clock, stream, stripe, &mut process.out);
        }
        let turn_open = process.turn_open;
        self.oracle.counts.flips += 1;
        self.oracle.marks.see(match stream {
            None if on_disk => Seen::DiskFlipped,
            None => Seen::ParityFlipped,
            Some(_) if stripe.is_index() => Seen::IndexFlipped,
            Some(_) => Seen::DataFlipped,
        });
        self.schedule.log(|| format!("n{at} bit {bit} of {stripe} flips"));
        self.oracle.flipped = Some(Flip {
            at,
            incarnation,
            list,
            position,
            place: Place::Chunk(stripe),
            of_data: stream.is_some(),
            repaired,
        });
        if !turn_open {
            self.end_turn(at, incarnation);
        }
    }

    /// Flips a bit in a unit of a large value that a process keeps. False if there is none, or the redundancy does not
    /// allow it.
    fn flip_unit(&mut self, at: usize, which: u64, bit: usize) -> bool {
        let Some(process) = self.fleet.processes[at].as_ref() else {
            return false;
        };
        let lists = process.node.replica().lists();
        let parts = lists.flat_map(|list| list.parts.iter().map(|parts| (list.configuration.list, parts)));
        let mut units = Vec::new();
        for (list, parts) in parts {
            let kept = parts.keeper().kept_units();
            units.extend(kept.map(|(id, unit)| (list, parts.position(), id, unit)));
        }
        let Some((list, position, id, unit)) = units.get((which >> 32) as usize % units.len().max(1)).copied() else {
            return false;
        };
        let of_data = self.committed.configuration(list).is_data(position);
        if !self.may_flip(list, of_data) {
            return false;
        }
        let Some(process) = self.fleet.processes[at].as_mut() else {
            return false;
        };
        let repaired = process.node.figures().scrub_repaired;
        let flipped = match process.unit_on_disk(list, position, &id, unit) {
            Some(key) => process.flip_record(key, which),
            None => process
                .node
                .replica_mut()
                .flip_bit_of_unit((list, position), &id, unit, bit),
        };
        if !flipped {
            return false;
        }
        self.oracle.flipped = Some(Flip {
            at,
            incarnation: process.incarnation,
            list,
            position,
            place: Place::Unit(id, unit),
            of_data,
            repaired,
        });
        self.oracle.counts.flips += 1;
        self.oracle.marks.see(Seen::UnitFlipped);
        self.schedule
            .log(|| format!("n{at} bit {bit} of unit {unit} of {id:?} flips"));
        true
    }
}

impl Oracle {
    /// The flip, if it is in a unit of a large value, not repaired, and the value must not be lost (P14.11).
    pub(crate) fn wrong_unit(&self, fleet: &Fleet, parity: u8) -> Option<String> {
        let flip = self.unrepaired(fleet)?;
        let Place::Unit(id, unit) = flip.place else { return None };
        let list = fleet.processes[flip.at].as_ref()?.node.replica().list(flip.list)?;
        let parts = list.parts.iter().find(|parts| parts.position() == flip.position)?;
        let class = parts.keeper().record_of(&id)?.class;
        let must_be_right = usize::from(class.tolerance()) >= usize::from(parity);
        must_be_right.then(|| format!("n{} keeps unit {unit} of {id:?} with wrong bytes", flip.at))
    }

    /// The flip, if it is not repaired and its chunk still exists.
    pub(crate) fn unrepaired(&self, fleet: &Fleet) -> Option<Flip> {
        let flip = self.flipped?;
        if let Place::Unit(id, unit) = flip.place {
            let process = fleet.processes[flip.at].as_ref()?;
            let list = process
                .node
                .replica()
                .list(flip.list)
                .filter(|_| process.incarnation == flip.incarnation)?;
            let parts = list.parts.iter().find(|parts| parts.position() == flip.position)?;
            let key = process.unit_on_disk(flip.list, flip.position, &id, unit);
            let is_unreadable = key.is_some_and(|key| process.chunk_on_disk(key).is_none());
            let is_wrong = parts.is_wrong(process.node.replica().arena(), &id, unit);
            return (is_wrong || is_unreadable).then_some(flip);
        }
        let Place::Chunk(stripe) = flip.place else { return None };
        let process = fleet.processes[flip.at].as_ref()?;
        if process.incarnation != flip.incarnation || process.node.figures().scrub_repaired > flip.repaired {
            return None;
        }
        let mut stashed = process.node.replica().stashed();
        if stashed.any(|(list, position, old)| (list, position, old.stripe) == (flip.list, flip.position, stripe)) {
            // The chunk may be reconstructed with the same wrong bit.
            return Some(flip);
        }
        let key = Key {
            list: flip.list,
            stripe,
        };
        if let (Some(log), false) = (process.node.replica().parity_log(), flip.of_data)
            && log.position(key) == Some(flip.position)
            && process.chunk_on_disk(key).is_none()
        {
            // It is not noticed yet, or the chunk may be reconstructed with the same wrong bit.
            return Some(flip);
        }
        let mut roles = process.node.replica().list(flip.list)?.roles.iter();
        let there = match roles.find(|role| role.position() == flip.position)? {
            Role::Owner(owner) => owner.store().chunks().slot(stripe).is_err(),
            Role::Member(member) => {
                let chunk = member.chunk(process.node.replica().arena(), stripe);
                let in_memory = chunk.is_some_and(|(_, bytes)| bytes.is_some());
                in_memory || member.lost_stripe() == Some(stripe)
            }
            Role::Halted(_) => false,
        };
        there.then_some(flip)
    }

    /// Forgets a flip whose chunk has been dropped, although another chunk of its stripe may follow.
    pub(crate) fn forget_flip(&mut self, fleet: &Fleet, at: usize) {
        if self.flipped.is_some_and(|flip| flip.at == at) && self.unrepaired(fleet).is_none() {
            self.flipped = None;
        }
    }

    /// Numbers of data and parity chunks that are wrong at present, to be counted like positions that are not Live.
    pub(crate) fn flipped_chunks(&self, fleet: &Fleet, list: ListId) -> (usize, usize) {
        match self.unrepaired(fleet).filter(|flip| flip.list == list) {
            None => (0, 0),
            Some(flip) if flip.of_data => (1, 0),
            Some(_) => (0, 1),
        }
    }

    /// The parity chunk that is wrong at this process, and is allowed to be.
    pub(crate) fn wrong_parity(&self, fleet: &Fleet, at: usize) -> Option<(ListId, Stripe)> {
        let flip = self.unrepaired(fleet).filter(|f| f.at == at && !f.of_data)?;
        match flip.place {
            Place::Chunk(stripe) => Some((flip.list, stripe)),
            Place::Unit(..) => None,
        }
    }

    /// After the faults, every process scrubs all its chunks once, beginning when it knows the final configurations. A
    /// chunk from a stash may bring back a bit that flipped earlier.
    pub(crate) fn note_passes(&mut self, fleet: &Fleet, committed: &Committed) {
        let epochs = committed.epochs();
        for process in fleet.processes.iter().flatten() {
            let knows_all = committed.is_known_to(process);
            let mut noted = self.passes.iter();
            if knows_all && !noted.any(|(incarnation, of, _)| (*incarnation, *of) == (process.incarnation, epochs)) {
                let passes = process.node.figures().scrub_passes;
                self.passes.push((process.incarnation, epochs, passes));
            }
        }
    }

    /// A process whose scrub is not complete, if bits have flipped. The pass that was under way when the faults ended
    /// does not count. A pass over no chunks does not count either: the process may have received chunks to repair
    /// since.
    pub(crate) fn pass_under_way(&self, fleet: &Fleet, committed: &Committed) -> Option<usize> {
        let done = |process: &Process| {
            let now = (process.incarnation, committed.epochs());
            let began = self
                .passes
                .iter()
                .find(|(incarnation, epochs, _)| (*incarnation, *epochs) == now);
            let members = process.node.replica().lists().filter_map(List::member);
            began.is_some_and(|(_, _, passes)| process.node.figures().scrub_passes >= passes + 2)
                && members.map(ParityMember::lost_stripe).all(|lost| lost.is_none())
        };
        let mut processes = fleet.processes.iter().flatten();
        (self.counts.flips > 0)
            .then(|| processes.position(|p| !done(p)))
            .flatten()
    }
}
