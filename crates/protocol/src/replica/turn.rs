//! The end of a turn, in the phases that a front end calls one after the other.

use super::{EXCHANGES_MAX, Replica};
use crate::context::Context;
use crate::interface::Out;
use crate::lists::{List, Role};
use crate::parameters::Reads;
use crate::rules::Fault;
use crate::stream_owner::{Phase, StreamOwner};
use paritas_base::configuration::Configuration;
use paritas_base::hash_slots::HandOff;
use paritas_base::{Clock, StreamId};

/// Most free chunks whose memory is given back to the operating system in one turn: some 100 µs.
const GIVEN_BACK_MAX: u32 = 16;

impl Replica {
    /// Counts the memory (`front_bytes`: what the front end holds), tells the coordinator of silent peers, and sets the
    /// pace of rebuilds. Before: events were handled. After: limits and pace are those that hold for this turn.
    #[inline]
    pub fn measure(&mut self, now: Clock, front_bytes: impl FnOnce() -> u64, out: &mut impl Out) {
        self.shared.arena.give_back(GIVEN_BACK_MAX);
        self.account(now.mono, front_bytes);
        self.watch(now.mono, out);
        let (mut under_way, mut absent, mut unfilled, mut unfilled_on_disk) = (0, 0u32, 0, 0);
        // A list with chunks to rebuild does not rest.
        let mut learns = false;
        let awake = self.lists.awake(now.mono);
        for (list, role) in awake.flat_map(|list| list.roles.iter().map(move |role| (list, role))) {
            match role {
                Role::Owner(owner) => {
                    under_way += owner.reconstructor().under_way();
                    absent = absent.saturating_add(owner.store().chunks().absent_count());
                }
                Role::Member(member) => {
                    under_way += member.refill.under_way();
                    if member.table.is_on_disk() {
                        let backlog = member.refill.backlog(&member.table);
                        unfilled_on_disk += backlog.unwrap_or(0);
                        learns |= backlog.is_none() && list.has_all_data();
                    } else {
                        unfilled += member.refill.left();
                    }
                }
                Role::Halted(_) => {}
            }
        }
        self.shared.pace.turn_ends(now.mono, under_way);
        if let Some(disk) = &mut self.shared.disk {
            disk.set_backlog(unfilled_on_disk, learns);
        }
        self.shared.arena.set_backlog(absent);
        self.shared.arena.set_expected(absent.saturating_add(unfilled));
    }

    /// P10.8: owners go on with the hash slots that they hand off or take in; the two streams may be of two lists.
    /// After: the slot map is that of the configurations and owners here.
    #[inline]
    pub fn move_slots(&mut self, now: Clock, out: &mut impl Out) {
        let work = |(configuration, owner): (&Configuration, &mut StreamOwner)| {
            Some((owner.stream(), owner.slot_work(configuration)?))
        };
        let work: Vec<(StreamId, Option<HandOff>)> = self.lists.awake_owners_mut(now.mono).filter_map(work).collect();
        for (stream, hand_off) in work {
            let to = hand_off.and_then(|hand_off| {
                let there = &self.lists.get(hand_off.to.list)?.configuration;
                let known = there.slots.hand_off == Some(hand_off);
                Some((there.tenure(hand_off.to.x).filter(|_| known)?, there.epoch))
            });
            let mut cx = Context {
                now,
                out,
                shared: &mut self.shared,
            };
            if let Some((configuration, owner)) = self.lists.owner_mut(stream) {
                owner.hand_off_slots(&mut cx, configuration, to);
            }
        }
        self.renew_slots();
    }

    /// Every role sends what is due, and roles of this node answer each other. After: no delta is open, except for an
    /// own frame that the round limit left unread; every delta of the turn is in a peer's buffer or acknowledged by a
    /// member here. True if the round limit was reached.
    #[inline]
    pub fn exchange(&mut self, now: Clock, out: &mut impl Out) -> bool {
        if !self.shared.readers.is_empty() {
            self.tend_readers(now, out);
        }
        self.end_roles_turns(now, out);
        // An owner's delta to a member beside it is acked in this turn too.
        for _ in 0..EXCHANGES_MAX {
            if self.shared.own_frames.is_empty() {
                return false;
            }
            self.read_own_frames(now, out);
            self.end_roles_turns(now, out);
        }
        !self.shared.own_frames.is_empty()
    }

    /// Closes the deltas of commands that ran after [`Self::exchange`]: they leave in this turn too. True if there were
    /// any: replies may wait for them.
    #[inline]
    pub fn close_late_deltas(&mut self, now: Clock, out: &mut impl Out) -> bool {
        let mut cx = Context {
            now,
            out,
            shared: &mut self.shared,
        };
        let mut late = false;
        for (configuration, owner) in self.lists.awake_owners_mut(now.mono) {
            if owner.open_bytes() > 0 {
                owner.close_delta(&mut cx, configuration);
                late = true;
            }
        }
        late
    }

    /// Whether no owner has an open delta: so at the end of each turn.
    pub fn has_no_open_delta(&self) -> bool {
        self.lists
            .iter()
            .flat_map(List::owners)
            .all(|owner| owner.open_bytes() == 0)
    }

    /// Asks for leases where replies need confirmed ones and a command has read after [`Self::exchange`]. Before:
    /// replies were released. After: a lease request of this turn covers every read of it.
    #[inline]
    pub fn confirm(&mut self, now: Clock, out: &mut impl Out) {
        let unasked =
            |(_, owner): (&Configuration, &mut StreamOwner)| owner.wake.lease_wanted && owner.phase() == Phase::Serve;
        if self.shared.parameters.reads == Reads::Confirmed && self.lists.awake_owners_mut(now.mono).any(unasked) {
            self.renew_leases(now, out);
        }
    }

    /// Dials the peers that are without a link, each at its time. Before: frames of the turn are in buffers. After:
    /// none of those dials is overdue.
    #[inline]
    pub fn dial(&mut self, now: Clock, out: &mut impl Out) {
        self.shared.sessions.on_timer(now.mono, out);
    }

    /// The log of a log node begins the writes that are due. Before: all deltas of the turn are folded. After: the end
    /// of the event hands the work to the driver.
    #[inline]
    pub fn flush_disk(&mut self, now: Clock) {
        if let Some(disk) = &mut self.shared.disk {
            disk.on_turn_end(now.mono, self.shared.parameters.log_flush);
        }
    }

    /// Lists with nothing left to do rest. Before: every phase has run. After: the next turn visits only the others,
    /// until a rest ends or an event changes a list.
    #[inline]
    pub fn rest(&mut self, now: Clock) {
        self.lists.rest(now.mono, List::rests_until);
    }

    fn tend_readers(&mut self, now: Clock, out: &mut impl Out) {
        let mut readers = core::mem::take(&mut self.shared.readers);
        let mut cx = Context {
            now,
            out,
            shared: &mut self.shared,
        };
        readers.on_turn_end(&mut cx, &mut self.lists);
        self.shared.readers = readers;
    }

    /// Every role sends what is due.
    #[inline]
    fn end_roles_turns(&mut self, now: Clock, out: &mut impl Out) {
        let mut cx = Context {
            now,
            out,
            shared: &mut self.shared,
        };
        for list in self.lists.awake_mut(now.mono) {
            let List {
                configuration,
                roles,
                parts,
            } = list;
            for role in roles {
                if let Role::Owner(owner) = role {
                    owner.read_own_units(&mut cx, configuration, parts);
                }
                let mut held = parts.iter_mut().find(|held| held.position() == role.position());
                // A halted role has no parts.
                let needs_no_parts = held.is_none() || cx.rules().fault(Fault::LiveWithoutParts);
                let was_whole = needs_no_parts || held.as_ref().is_some_and(|held| held.was_whole());
                let is_whole = was_whole || held.as_mut().is_some_and(|held| held.is_whole(configuration));
                match role {
                    Role::Halted(_) => {}
                    Role::Owner(owner) => {
                        if is_whole && !was_whole {
                            owner.on_parts_whole(now.mono);
                        }
                        let has_none = held.is_some_and(|held| held.has_none_of(owner.stream().x));
                        owner.on_turn_end(&mut cx, configuration, is_whole, has_none);
                    }
                    Role::Member(member) => {
                        if is_whole && !was_whole {
                            member.refill.on_parts_whole(now.mono);
                        }
                        member.on_turn_end(&mut cx, configuration, is_whole);
                    }
                }
            }
            for held in parts {
                held.on_turn_end(&mut cx, configuration);
            }
        }
        // Halted roles end before leases are asked for and replies are released.
        self.end_halted(now, out);
        self.renew_leases(now, out);
    }
}
