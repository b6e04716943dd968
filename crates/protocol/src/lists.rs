//! The stripe lists of this node: each list's installed configuration, and the roles that it gives this node.

use crate::parity_member::ParityMember;
use crate::parts::PositionParts;
use crate::stream_owner::StreamOwner;
use paritas_base::configuration::Configuration;
use paritas_base::{ListId, Position, StreamId, Time};
use paritas_store::Arena;

/// The rest of a list that does not rest.
const AWAKE: Time = Time(0);

/// The role of this node at a position of a list.
#[derive(Debug)]
pub enum Role {
    /// It holds a data position.
    Owner(Box<StreamOwner>),
    /// It holds a parity position.
    Member(Box<ParityMember>),
    /// It broke an invariant, and does nothing at this position for the rest of this incarnation (P3.5).
    Halted(Box<Halted>),
}

impl Role {
    /// Its position.
    pub fn position(&self) -> Position {
        match self {
            Self::Owner(owner) => owner.stream().x,
            Self::Member(member) => member.position(),
            Self::Halted(halted) => halted.position,
        }
    }
}

/// A role that has stopped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Halted {
    /// Its list.
    pub list: ListId,
    /// Its position when it stopped.
    pub position: Position,
    /// The broken invariant.
    pub reason: String,
}

/// One list.
#[derive(Debug)]
pub struct List {
    /// The newest configuration this node has installed.
    pub configuration: Configuration,
    /// The node's roles in it, at most [`Configuration::POSITIONS_OF_A_NODE_MAX`]: one, and one more if the node is a
    /// stand-in (P10.5). At most one is at a parity position, so that a message finds its role by kind and stream.
    pub roles: Vec<Role>,
    /// Parts of large values at the positions of these roles (P14).
    pub parts: Vec<PositionParts>,
}

impl List {
    /// The time until which the list has nothing to do, unless an event changes it. `None`: it may have work in
    /// each turn.
    pub(crate) fn rests_until(&self) -> Option<Time> {
        let mut until = Time(u64::MAX);
        for role in &self.roles {
            until = until.min(match role {
                Role::Halted(_) => continue,
                Role::Owner(owner) => owner.rests_until(&self.configuration)?,
                Role::Member(member) => member.rests_until()?,
            });
        }
        for parts in &self.parts {
            until = until.min(parts.rests_until(&self.configuration));
        }
        Some(until)
    }

    /// Whether no data position is vacant.
    pub(crate) fn has_all_data(&self) -> bool {
        let configuration = &self.configuration;
        configuration
            .data_positions()
            .all(|x| configuration.tenure(x).is_some())
    }

    /// Its roles at data positions.
    pub fn owners(&self) -> impl Iterator<Item = &StreamOwner> {
        self.roles.iter().filter_map(|role| match role {
            Role::Owner(owner) => Some(&**owner),
            _ => None,
        })
    }

    /// Its role at a data position.
    pub fn owner(&self, x: Position) -> Option<&StreamOwner> {
        self.owners().find(|owner| owner.stream().x == x)
    }

    /// Its role at a parity position.
    pub fn member(&self) -> Option<&ParityMember> {
        self.roles.iter().find_map(|role| match role {
            Role::Member(member) => Some(&**member),
            _ => None,
        })
    }

    /// As [`Self::member`], with the configuration.
    pub(crate) fn member_mut(&mut self) -> Option<(&Configuration, &mut ParityMember)> {
        let Self {
            configuration, roles, ..
        } = self;
        let member = roles.iter_mut().find_map(|role| match role {
            Role::Member(member) => Some(&mut **member),
            _ => None,
        });
        Some((configuration, member?))
    }
}

/// All lists, by id.
///
/// A list *rests* until some time if no event has changed it since the end of a turn and it has nothing to do before
/// that time. With wide schemes a node is in many lists, and most turns concern one of them. Borrowing a list mutably
/// wakes it.
#[derive(Debug, Default)]
pub struct Lists {
    lists: Vec<Option<List>>,
    /// Until when each rests; `AWAKE`: it does not rest.
    rests: Vec<Time>,
}

impl Lists {
    /// One list.
    pub fn get(&self, id: ListId) -> Option<&List> {
        self.lists.get(usize::from(id.0))?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: ListId) -> Option<&mut List> {
        let at = usize::from(id.0);
        *self.rests.get_mut(at)? = AWAKE;
        self.lists.get_mut(at)?.as_mut()
    }

    /// The parts of large values at a position.
    pub(crate) fn parts_mut(&mut self, list: ListId, position: Position) -> Option<&mut PositionParts> {
        let parts = &mut self.get_mut(list)?.parts;
        parts.iter_mut().find(|parts| parts.position() == position)
    }

    /// The entry of a list, created if there is none.
    pub(crate) fn entry(&mut self, id: ListId) -> &mut Option<List> {
        let at = usize::from(id.0);
        if at >= self.lists.len() {
            self.lists.resize_with(at + 1, || None);
            self.rests.resize(at + 1, AWAKE);
        }
        self.rests[at] = AWAKE;
        &mut self.lists[at]
    }

    /// All lists with an installed configuration, by id.
    pub fn iter(&self) -> impl Iterator<Item = &List> {
        self.lists.iter().flatten()
    }

    /// Lists that do not rest.
    pub(crate) fn awake(&self, now: Time) -> impl Iterator<Item = &List> {
        let all = self.lists.iter().zip(&self.rests);
        // The times stand side by side, so a list that rests is not looked at.
        all.filter_map(move |(list, rests)| if *rests <= now { list.as_ref() } else { None })
    }

    pub(crate) fn awake_mut(&mut self, now: Time) -> impl Iterator<Item = &mut List> {
        let all = self.lists.iter_mut().zip(&self.rests);
        all.filter_map(move |(list, rests)| if *rests <= now { list.as_mut() } else { None })
    }

    /// Wakes all lists.
    pub(crate) fn wake(&mut self) {
        self.rests.fill(AWAKE);
    }

    /// Ends a turn: each awake list rests until the time that `until` gives, if it gives one.
    pub(crate) fn rest(&mut self, now: Time, until: impl Fn(&List) -> Option<Time>) {
        for (list, rests) in self.lists.iter().zip(&mut self.rests) {
            if *rests <= now {
                *rests = list.as_ref().map_or(Some(Time(u64::MAX)), &until).unwrap_or(AWAKE);
            }
        }
    }

    /// The earliest end of a rest.
    pub(crate) fn first_rests_until(&self) -> Option<Time> {
        let asleep = |until: &Time| *until != AWAKE && *until != Time(u64::MAX);
        self.rests.iter().copied().filter(asleep).min()
    }

    /// Every list.
    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut List> {
        self.wake();
        self.awake_mut(AWAKE)
    }

    /// Every role, with the configuration of its list.
    pub(crate) fn roles_mut(&mut self) -> impl Iterator<Item = (&Configuration, &mut Role)> {
        self.wake();
        self.awake_roles_mut(AWAKE)
    }

    /// As [`Self::roles_mut`], of lists that do not rest.
    pub(crate) fn awake_roles_mut(&mut self, now: Time) -> impl Iterator<Item = (&Configuration, &mut Role)> {
        self.awake_mut(now).flat_map(
            |List {
                 configuration, roles, ..
             }| {
                let configuration = &*configuration;
                roles.iter_mut().map(move |role| (configuration, role))
            },
        )
    }

    /// Memory that parity uses or has reserved, in bytes.
    pub fn parity_bytes(&self, arena: &Arena) -> u64 {
        let members = self.roles().filter_map(|role| match role {
            Role::Member(member) => Some(u64::from(member.table.memory_slots_granted())),
            _ => None,
        });
        members.sum::<u64>() * arena.chunk_bytes() as u64
    }

    /// Every role.
    pub fn roles(&self) -> impl Iterator<Item = &Role> {
        self.iter().flat_map(|list| &list.roles)
    }

    /// Every owner of this node, with the configuration of its list.
    pub fn owners_mut(&mut self) -> impl Iterator<Item = (&Configuration, &mut StreamOwner)> {
        self.wake();
        self.awake_owners_mut(AWAKE)
    }

    /// As [`Self::owners_mut`], of lists that do not rest.
    pub fn awake_owners_mut(&mut self, now: Time) -> impl Iterator<Item = (&Configuration, &mut StreamOwner)> {
        self.awake_roles_mut(now)
            .filter_map(|(configuration, role)| match role {
                Role::Owner(owner) => Some((configuration, &mut **owner)),
                _ => None,
            })
    }

    /// This node's role as owner of a stream, with the configuration of its list.
    pub fn owner_mut(&mut self, stream: StreamId) -> Option<(&Configuration, &mut StreamOwner)> {
        let List {
            configuration, roles, ..
        } = self.get_mut(stream.list)?;
        roles.iter_mut().find_map(|role| match role {
            Role::Owner(owner) if owner.stream() == stream => Some((&*configuration, &mut **owner)),
            _ => None,
        })
    }

    /// As [`Self::owner_mut`], without waking the list.
    pub fn owner(&self, stream: StreamId) -> Option<(&Configuration, &StreamOwner)> {
        let list = self.get(stream.list)?;
        Some((&list.configuration, list.owner(stream.x)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paritas_base::Epoch;

    fn lists(count: u16) -> Lists {
        let mut lists = Lists::default();
        for list in (0..count).map(ListId) {
            let configuration = Configuration {
                list,
                epoch: Epoch(1),
                born: Epoch(1),
                data: 1,
                parity: 0,
                ack_quorum: 0,
                positions: vec![None],
                gone: Vec::new(),
                lost: false,
                slots: Default::default(),
                id: 0,
                trail: Vec::new(),
                more: Default::default(),
            };
            let roles = Vec::new();
            *lists.entry(list) = Some(List {
                configuration,
                roles,
                parts: Vec::new(),
            });
        }
        lists
    }

    fn awake(lists: &Lists, now: u64) -> Vec<u16> {
        lists.awake(Time(now)).map(|list| list.configuration.list.0).collect()
    }

    #[test]
    fn a_list_rests_until_its_time_or_until_somebody_takes_it_to_change() {
        let mut lists = lists(4);
        assert_eq!(awake(&lists, 10), [0, 1, 2, 3]);
        // The third list has nothing to rest until.
        let until = |list: &List| (list.configuration.list.0 != 2).then_some(Time(20));
        lists.rest(Time(10), until);
        assert_eq!(awake(&lists, 19), [2]);
        assert_eq!(lists.first_rests_until(), Some(Time(20)));
        lists.get_mut(ListId(1)).unwrap();
        assert_eq!(awake(&lists, 19), [1, 2]);
        assert_eq!(awake(&lists, 20), [0, 1, 2, 3]);
        // A list that rests for ever has no deadline.
        lists.rest(Time(20), |_| Some(Time(u64::MAX)));
        assert_eq!((awake(&lists, 1000), lists.first_rests_until()), (vec![], None));
        assert_eq!(lists.roles_mut().count(), 0);
        assert_eq!(
            awake(&lists, 1000),
            [0, 1, 2, 3],
            "a borrow of all lists may change any"
        );
    }
}
