//! Checks one role after the other for wrong bytes (P9.2).

use super::Replica;
use crate::context::Context;
use crate::interface::Out;
use crate::lists::{Lists, Role};
use crate::parts::UnitRef;
use crate::scrub::{Scrub, Step};
use crate::stream_owner::Phase;
use paritas_base::configuration::Configuration;
use paritas_base::{Clock, ListId, Position, StreamId, Stripe};
use paritas_large::PartId;
use paritas_store::Arena;

/// The most chunks checked in one turn.
const TURN_CHUNKS_MAX: usize = 4;

/// A fault hook for tests: changes one bit of a chunk of this node at a position of a list, as bad memory does. False
/// if the node does not have the chunk.
pub fn flip_bit(
    arena: &mut Arena,
    lists: &Lists,
    (list, position): (ListId, Position),
    stripe: Stripe,
    bit: usize,
) -> bool {
    let roles = lists.get(list).map(|list| &list.roles);
    let slot = match roles.and_then(|roles| roles.iter().find(|role| role.position() == position)) {
        Some(Role::Owner(owner)) => owner.store().chunks().slot(stripe).ok().flatten(),
        Some(Role::Member(member)) => member.table.slot(stripe),
        _ => None,
    };
    let byte = slot.and_then(|slot| arena.bytes_mut(slot).get_mut(bit / 8));
    byte.map(|byte| *byte ^= 1 << (bit % 8)).is_some()
}

/// As [`flip_bit`], of a unit of a large value that a position of this node keeps in memory.
pub fn flip_bit_of_unit(
    arena: &mut Arena,
    lists: &Lists,
    (list, position): (ListId, Position),
    part: &PartId,
    unit: u32,
    bit: usize,
) -> bool {
    let mut parts = lists.get(list).into_iter().flat_map(|list| &list.parts);
    let parts = parts.find(|parts| parts.position() == position);
    let stored = parts.and_then(|parts| parts.keeper().stored(arena.chunk_bytes() as u32, part, unit));
    let Some((UnitRef::Memory(slot), length, _)) = stored else {
        return false;
    };
    let byte = arena.bytes_mut(*slot).get_mut(bit / 8 % (length as usize).max(1));
    byte.map(|byte| *byte ^= 1 << (bit % 8)).is_some()
}

impl Replica {
    /// [`flip_bit_of_unit`].
    pub fn flip_bit_of_unit(&mut self, at: (ListId, Position), part: &PartId, unit: u32, bit: usize) -> bool {
        flip_bit_of_unit(&mut self.shared.arena, &self.lists, at, part, unit, bit)
    }

    /// [`flip_bit`].
    pub fn flip_bit(&mut self, at: (ListId, Position), stripe: Stripe, bit: usize) -> bool {
        flip_bit(&mut self.shared.arena, &self.lists, at, stripe, bit)
    }

    /// Checks an owner's chunk at once: for tests, which choose the moment.
    pub fn scrub_now(&mut self, now: Clock, stream: StreamId, stripe: Stripe, out: &mut impl Out) {
        let mut cx = Context {
            now,
            out,
            shared: &mut self.shared,
        };
        if let Some((configuration, owner)) = self.lists.owner_mut(stream)
            && owner.phase() == Phase::Serve
        {
            owner.close_delta(&mut cx, configuration);
            owner.checked(&mut cx, stripe);
        }
    }

    /// Checks some chunks for wrong bytes, if the rate allows it. Before: commands of the turn have run. After: a wrong
    /// chunk is absent, and will be rebuilt.
    pub fn scrub(&mut self, now: Clock, out: &mut impl Out) {
        let lost = |role: &Role| matches!(role, Role::Member(m) if m.lost_stripe().is_some());
        if core::mem::take(&mut self.shared.scrub.repairs) {
            self.shared.scrub.repairs = self.lists.roles().any(lost);
        }
        if self.shared.parameters.scrub_rate.is_none() && !self.shared.scrub.repairs {
            return;
        }
        for _ in 0..TURN_CHUNKS_MAX {
            let scrub = &mut self.shared.scrub;
            if !scrub.waits && now.mono < scrub.next_at {
                return;
            }
            let mut cx = Context {
                now,
                out,
                shared: &mut self.shared,
            };
            if !cx.may_rebuild(0) {
                let again = now.mono + cx.shared.parameters.retry;
                cx.shared.scrub.next_at = cx.shared.scrub.next_at.max(again);
                return;
            }
            let place = |configuration: &Configuration, role: &Role| (configuration.list, role.position());
            let (turn, repairs) = (cx.shared.scrub.turn, cx.shared.scrub.repairs);
            let has_turn = |(c, role): &(&Configuration, &mut Role)| place(c, role) >= turn && (!repairs || lost(role));
            let roles = self.lists.roles_mut().filter(has_turn);
            let Some((configuration, role)) = roles.min_by_key(|(c, role)| place(c, role)) else {
                let pause = cx.shared.parameters.scrub_pause;
                let scrub = &mut cx.shared.scrub;
                scrub.turn = Scrub::START;
                scrub.passes += u64::from(!core::mem::take(&mut scrub.partial));
                scrub.next_at = scrub.next_at.max(now.mono + pause);
                return;
            };
            let (list, position) = place(configuration, role);
            cx.shared.scrub.of_parts &= turn == (list, position);
            cx.shared.scrub.turn = (list, position);
            let step = match role {
                _ if cx.shared.scrub.of_parts => self
                    .lists
                    .parts_mut(list, position)
                    .map_or(Step::Ended, |parts| parts.scrub(&mut cx)),
                Role::Halted(_) => Step::Ended,
                Role::Owner(owner) => owner.scrub(&mut cx, configuration),
                Role::Member(member) => member.scrub(&mut cx, configuration),
            };
            let chunk_bytes = cx.shared.arena.chunk_bytes();
            let scrub = &mut cx.shared.scrub;
            scrub.waits = matches!(step, Step::Waits(_));
            match step {
                Step::Checked => scrub.spend(&cx.shared.parameters, now.mono, chunk_bytes),
                Step::Waits(until) => {
                    scrub.next_at = until;
                    return;
                }
                Step::Ended if !scrub.of_parts && !repairs => scrub.of_parts = true,
                Step::Ended => {
                    scrub.of_parts = false;
                    scrub.turn = (list, Position(position.0.saturating_add(1)));
                }
            }
        }
    }
}
