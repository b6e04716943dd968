//! The lists as this node has them: each list's installed configuration, and the role it gives this node.

use crate::parity_member::ParityMember;
use crate::stream_owner::StreamOwner;
use paritas_base::configuration::Configuration;
use paritas_base::{ListId, Position, Stream};

/// What this node is in a list.
#[derive(Debug)]
pub enum Role {
    /// It holds no position.
    None,
    /// It holds a data position.
    Owner(Box<StreamOwner>),
    /// It holds a parity position.
    Member(Box<ParityMember>),
    /// It broke an invariant, and takes no part in the list for the rest of this life (PROTOCOL 3.5).
    Halted(Box<Halted>),
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
    /// Its part in it.
    pub role: Role,
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

    /// This node's role as owner of a stream, with the configuration that made it so.
    pub(crate) fn owner_mut(&mut self, stream: Stream) -> Option<(&Configuration, &mut StreamOwner)> {
        let List { configuration, role } = self.get_mut(stream.list)?;
        match role {
            Role::Owner(owner) if owner.stream() == stream => Some((configuration, owner)),
            _ => None,
        }
    }

    /// As above, to look at.
    pub(crate) fn owner(&self, stream: Stream) -> Option<(&Configuration, &StreamOwner)> {
        let List { configuration, role } = self.get(stream.list)?;
        match role {
            Role::Owner(owner) if owner.stream() == stream => Some((configuration, owner)),
            _ => None,
        }
    }
}
