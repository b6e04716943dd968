//! Memory that goes bad (PROTOCOL §9): a bit flips in a chunk of data, of the index or of parity, one at a time.
//!
//! A flipped bit counts as the loss of that chunk until it is repaired, so that the rest of the faults leave it the
//! redundancy that repairing takes. What an owner's bytes would do to those who read them or write over them before a
//! pass comes is no mystery (docs/protocol.md, "What the scrub cannot do"): here the pass comes at once. A parity chunk
//! waits for its turn.

use crate::driver::Process;
use crate::marks::Seen;
use crate::world::World;
use paritas_base::{Incarnation, ListId, Position, Stream, Stripe};
use paritas_protocol::paritylog::Key;
use paritas_protocol::{List, ParityMember, Phase, Role};

/// The newest flip.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flip {
    at: usize,
    incarnation: Incarnation,
    list: ListId,
    position: Position,
    stripe: Stripe,
    /// In an owner's chunk, else in a member's.
    of_data: bool,
    /// Chunks that the process had repaired before.
    repaired: u64,
}

impl World {
    /// One more bit flips, if the redundancy bears it.
    pub(crate) fn flip(&mut self) {
        let at = self.random.below(self.processes.len() as u64) as usize;
        let (which, bit) = (self.random.next_u64(), self.random.next_u64());
        if self.unrepaired().is_some() {
            return;
        }
        let Some(process) = self.processes[at].as_ref().filter(|p| !p.unflushed) else {
            return;
        };
        if process.paused_until > self.now {
            return;
        }
        let roles: Vec<(ListId, &Role)> = process.roles().collect();
        let Some((list, role)) = roles.get((which >> 32) as usize % roles.len().max(1)).copied() else {
            return;
        };
        let (stripes, stream): (Vec<Stripe>, Option<Stream>) = match role {
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
        let now = self.now;
        let Some(process) = self.processes[at].as_mut() else {
            return;
        };
        let (incarnation, clock) = (process.incarnation, process.clock(now));
        let repaired = process.node.figures().scrub_repaired;
        if let Some(stream) = stream {
            // The open delta's bytes are not in the sum yet: it is closed, and nothing is wrong.
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
        self.counts.flips += 1;
        self.marks.see(match stream {
            None if on_disk => Seen::DiskFlipped,
            None => Seen::ParityFlipped,
            Some(_) if stripe.is_index() => Seen::IndexFlipped,
            Some(_) => Seen::DataFlipped,
        });
        self.log(|| format!("n{at} bit {bit} of {stripe} flips"));
        self.flipped = Some(Flip {
            at,
            incarnation,
            list,
            position,
            stripe,
            of_data: stream.is_some(),
            repaired,
        });
        if !turn_open {
            self.end_turn(at, incarnation);
        }
    }

    /// The flip that is not repaired, and whose chunk is still there.
    pub(crate) fn unrepaired(&self) -> Option<Flip> {
        let flip = self.flipped?;
        let process = self.processes[flip.at].as_ref()?;
        if process.incarnation != flip.incarnation || process.node.figures().scrub_repaired > flip.repaired {
            return None;
        }
        let mut stashed = process.node.replica().stashed();
        if stashed.any(|(list, position, old)| (list, position, old.stripe) == (flip.list, flip.position, flip.stripe))
        {
            // It may come back as it is.
            return Some(flip);
        }
        let key = Key {
            list: flip.list,
            stripe: flip.stripe,
        };
        if let (Some(log), false) = (process.node.replica().parity_log(), flip.of_data)
            && log.position(key) == Some(flip.position)
            && process.chunk_on_disk(key).is_none()
        {
            // It is not seen yet; or it may come back as it is.
            return Some(flip);
        }
        let mut roles = process.node.replica().list(flip.list)?.roles.iter();
        let there = match roles.find(|role| role.position() == flip.position)? {
            Role::Owner(owner) => owner.store().chunks().slot(flip.stripe).is_err(),
            Role::Member(member) => {
                let chunk = member.chunk(process.node.replica().arena(), flip.stripe);
                let in_memory = chunk.is_some_and(|(_, bytes)| bytes.is_some());
                in_memory || member.lost_stripe() == Some(flip.stripe)
            }
            Role::Halted(_) => false,
        };
        there.then_some(flip)
    }

    /// A chunk that has gone takes its wrong bit along, though another of its stripe may come.
    pub(crate) fn forget_flip(&mut self, at: usize) {
        if self.flipped.is_some_and(|flip| flip.at == at) && self.unrepaired().is_none() {
            self.flipped = None;
        }
    }

    /// As [`lost`](Self::lost): data and parity chunks that a flip takes at present.
    pub(crate) fn flipped_chunks(&self, list: ListId) -> (usize, usize) {
        match self.unrepaired().filter(|flip| flip.list == list) {
            None => (0, 0),
            Some(flip) if flip.of_data => (1, 0),
            Some(_) => (0, 1),
        }
    }

    /// The parity chunk that is wrong at this process, and may be.
    pub(crate) fn wrong_parity(&self, at: usize) -> Option<(ListId, Stripe)> {
        let flip = self.unrepaired().filter(|f| f.at == at && !f.of_data)?;
        Some((flip.list, flip.stripe))
    }

    /// After the faults every process goes through all its chunks once: from when it knows the configurations that
    /// stay. What a node had set aside may come back with it, and a bit that flipped before.
    pub(crate) fn note_passes(&mut self) {
        let epochs = self.epochs();
        for process in self.processes.iter().flatten() {
            let knows_all = self.knows_all(process);
            let mut noted = self.passes.iter();
            if knows_all && !noted.any(|(life, of, _)| (*life, *of) == (process.incarnation, epochs)) {
                let passes = process.node.figures().scrub_passes;
                self.passes.push((process.incarnation, epochs, passes));
            }
        }
    }

    /// Whether it has the newest configuration of every list that it knows.
    pub(crate) fn knows_all(&self, process: &Process) -> bool {
        let mut installed = process.node.replica().lists().map(|list| &list.configuration);
        installed.all(|c| c.epoch == self.configuration(c.list).epoch)
    }

    /// Of all configurations together: more with each change.
    fn epochs(&self) -> u64 {
        self.configurations.iter().map(|c| u64::from(c.epoch.0)).sum()
    }

    /// Whose pass is not over yet, if bits have flipped. The one under way when the faults ended was not whole. A node
    /// may have gone through nothing, for it held nothing, and have found since what it has to mend.
    pub(crate) fn pass_under_way(&self) -> Option<usize> {
        let done = |process: &Process| {
            let now = (process.incarnation, self.epochs());
            let began = self.passes.iter().find(|(life, epochs, _)| (*life, *epochs) == now);
            let members = process.node.replica().lists().filter_map(List::member);
            began.is_some_and(|(_, _, passes)| process.node.figures().scrub_passes >= passes + 2)
                && members.map(ParityMember::lost_stripe).all(|lost| lost.is_none())
        };
        let mut processes = self.processes.iter().flatten();
        (self.counts.flips > 0)
            .then(|| processes.position(|p| !done(p)))
            .flatten()
    }
}
