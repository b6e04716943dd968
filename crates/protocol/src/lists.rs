//! The lists as this node has them: each list's installed configuration, and the roles it gives this node.

use crate::parity_member::ParityMember;
use crate::stream_owner::StreamOwner;
use paritas_base::configuration::Configuration;
use paritas_base::{ListId, Position, Stream};

/// What this node is at a position of a list.
#[derive(Debug)]
pub enum Role {
    /// It holds a data position.
    Owner(Box<StreamOwner>),
    /// It holds a parity position.
    Member(Box<ParityMember>),
    /// It broke an invariant, and does nothing at this position for the rest of this life (PROTOCOL 3.5).
    Halted(Box<Halted>),
}

impl Role {
    /// The position it is about.
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
    /// In which list.
    pub list: ListId,
    /// The position it held when it stopped.
    pub position: Position,
    /// What was broken.
    pub reason: String,
}

/// One list.
#[derive(Debug)]
pub struct List {
    /// The newest configuration this node has installed.
    pub configuration: Configuration,
    /// Its parts in it, at most [`Configuration::POSITIONS_OF_A_NODE_MAX`]: one, or one more as a stand-in (10.5). At
    /// most one of them is a parity position, so that a message finds its role by kind and stream.
    pub roles: Vec<Role>,
}

impl List {
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

    /// As above, with the configuration.
    pub(crate) fn member_mut(&mut self) -> Option<(&Configuration, &mut ParityMember)> {
        let Self { configuration, roles } = self;
        let member = roles.iter_mut().find_map(|role| match role {
            Role::Member(member) => Some(&mut **member),
            _ => None,
        });
        Some((configuration, member?))
    }
}

/// All lists, by id.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    lists: Vec<Option<List>>,
}

impl Lists {
    pub(crate) fn get(&self, id: ListId) -> Option<&List> {
        self.lists.get(usize::from(id.0))?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: ListId) -> Option<&mut List> {
        self.lists.get_mut(usize::from(id.0))?.as_mut()
    }

    /// The place of a list, made if need be.
    pub(crate) fn entry(&mut self, id: ListId) -> &mut Option<List> {
        let at = usize::from(id.0);
        if at >= self.lists.len() {
            self.lists.resize_with(at + 1, || None);
        }
        &mut self.lists[at]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &List> {
        self.lists.iter().flatten()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut List> {
        self.lists.iter_mut().flatten()
    }

    /// Every role, with the configuration of its list.
    pub(crate) fn roles_mut(&mut self) -> impl Iterator<Item = (&Configuration, &mut Role)> {
        self.iter_mut().flat_map(|List { configuration, roles }| {
            let configuration = &*configuration;
            roles.iter_mut().map(move |role| (configuration, role))
        })
    }

    /// Every role, to look at.
    pub(crate) fn roles(&self) -> impl Iterator<Item = &Role> {
        self.iter().flat_map(|list| &list.roles)
    }

    /// Every stream this node owns, with the configuration that made it so.
    pub(crate) fn owners_mut(&mut self) -> impl Iterator<Item = (&Configuration, &mut StreamOwner)> {
        self.roles_mut().filter_map(|(configuration, role)| match role {
            Role::Owner(owner) => Some((configuration, &mut **owner)),
            _ => None,
        })
    }

    /// This node's role as owner of a stream, with the configuration that made it so.
    pub(crate) fn owner_mut(&mut self, stream: Stream) -> Option<(&Configuration, &mut StreamOwner)> {
        let List { configuration, roles } = self.get_mut(stream.list)?;
        roles.iter_mut().find_map(|role| match role {
            Role::Owner(owner) if owner.stream() == stream => Some((&*configuration, &mut **owner)),
            _ => None,
        })
    }

    /// As above, to look at.
    pub(crate) fn owner(&self, stream: Stream) -> Option<(&Configuration, &StreamOwner)> {
        let list = self.get(stream.list)?;
        Some((&list.configuration, list.owner(stream.x)?))
    }
}
