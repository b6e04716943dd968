//! Events that the coordinator reports to the operator.

use crate::message::{MessageError, Settings};
use crate::rights::Speaker;
use crate::status::HaltedRole;
use core::fmt;
use paritas_base::configuration::{Duty, NodeState};
use paritas_base::{Incarnation, ListId, NodeId, Position};
use paritas_protocol::LinkId;

/// An event for the operator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Note {
    /// Every planned node has registered, and the lists have their first configurations.
    Bootstrapped,
    /// An incarnation of a node registered.
    Registered {
        /// The node.
        node: NodeId,
        /// Its incarnation.
        incarnation: Incarnation,
    },
    /// A node became available or unavailable.
    State {
        /// The node.
        node: NodeId,
        /// Its new state.
        state: NodeState,
    },
    /// A process may end: what remains has all data (P10.20).
    MayLeave {
        /// The node.
        node: NodeId,
    },
    /// It is certified that an incarnation has ended.
    Ended {
        /// The node.
        node: NodeId,
        /// Its incarnation.
        incarnation: Incarnation,
    },
    /// A role of a node broke an invariant and has stopped; another node takes its position (P3.5).
    Halted {
        /// The node.
        node: NodeId,
        /// Its role.
        role: HaltedRole,
    },
    /// A position has another holder.
    Moved {
        /// The list.
        list: ListId,
        /// The position.
        position: Position,
        /// The previous holder.
        from: Option<NodeId>,
        /// The present holder.
        to: Option<NodeId>,
    },
    /// A node has another duty (P5.12, P10.2a).
    Duty {
        /// The node.
        node: NodeId,
        /// Its new duty.
        duty: Duty,
    },
    /// A list lost more than its scheme covers (P10.6).
    Lost {
        /// The list.
        list: ListId,
    },
    /// An operator attested that an incarnation has ended.
    Attested {
        /// The node.
        node: NodeId,
        /// Its incarnation.
        incarnation: Incarnation,
    },
    /// An operator has changed settings.
    Set(Settings),
    /// A list begins again empty: by policy, by order, or because it has no parity.
    Reset {
        /// The list.
        list: ListId,
    },
    /// A list has almost reached the largest epoch of the format.
    EpochsRunOut {
        /// The list.
        list: ListId,
    },
    /// A certificate was ignored: its sender had not announced that it supervises that incarnation.
    Unvouched {
        /// The node.
        node: NodeId,
        /// The incarnation.
        incarnation: Incarnation,
    },
    /// Who is at the other end of a link may not say this. It had no effect.
    Forbidden {
        /// The link.
        link: LinkId,
        /// The process at the other end of the link.
        by: Speaker,
        /// The name of the message.
        what: &'static str,
    },
    /// A message could not be decoded. Its link is closed.
    BadMessage(MessageError),
    /// A message was too long and was not sent.
    Unsent(MessageError),
    /// The store failed. The coordinator will try the change again.
    StoreFailed(String),
    /// Another coordinator has opened the store. This one stops.
    Deposed,
    /// An older store is in the place of this coordinator's. This coordinator stops.
    StoreWentBack,
    /// A node has a configuration that is not in the history of the store, so the store is an old copy. The
    /// coordinator decides nothing more.
    Behind {
        /// The node.
        node: NodeId,
        /// The list.
        list: ListId,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bootstrapped => f.write_str("every planned node has registered: the lists begin"),
            Self::Registered { node, incarnation } => write!(f, "{node} has registered, incarnation {incarnation}"),
            Self::State { node, state } => match state {
                NodeState::Up => write!(f, "{node} is up"),
                NodeState::Down => write!(f, "{node} is down: it is silent, or its process has ended"),
            },
            Self::MayLeave { node } => write!(f, "{node} was asked to end, and may: the others have all data"),
            Self::Ended { node, incarnation } => {
                write!(f, "the process of {node} has ended: incarnation {incarnation}")
            }
            Self::Halted { node, role } => write!(
                f,
                "{node} has stopped its role at position {} of list {}, and another node takes the position: {}",
                role.position.0, role.list.0, role.reason
            ),
            Self::Moved {
                list,
                position,
                from,
                to,
            } => {
                let name = |node: &Option<NodeId>| node.map_or("no node".to_owned(), |node| node.to_string());
                let (list, position) = (list.0, position.0);
                write!(
                    f,
                    "list {list}: position {position} moves from {} to {}",
                    name(from),
                    name(to)
                )
            }
            Self::Duty { node, duty } => match duty {
                Duty::Full => write!(f, "{node} may hold any position"),
                Duty::Returning => write!(f, "{node} gets its planned positions back"),
                Duty::Draining => write!(f, "{node} is drained"),
                Duty::Shunned => write!(f, "{node} is shunned"),
                Duty::Slow => write!(f, "{node} is slow, and is left out for a while"),
            },
            Self::Lost { list } => write!(f, "list {} has lost more than its scheme covers", list.0),
            Self::Attested { node, incarnation } => {
                write!(
                    f,
                    "the process of {node} has ended, says an operator: incarnation {incarnation}"
                )
            }
            Self::Set(settings) => {
                f.write_str("an operator has changed settings:")?;
                if let Some(ms) = settings.suspicion_ms {
                    write!(f, " suspicion_ms = {ms}")?;
                }
                match settings.lost_policy {
                    Some(policy) => write!(f, " lost_policy = {policy}"),
                    None => Ok(()),
                }
            }
            Self::Reset { list } => write!(f, "list {} begins again empty", list.0),
            Self::EpochsRunOut { list } => write!(
                f,
                "list {} has almost no epochs left: make a new cluster, and restore a snapshot",
                list.0
            ),
            Self::Forbidden { by, what, .. } => write!(f, "`{what}` from {by}, who may not say it; it had no effect"),
            Self::Unvouched { node, incarnation } => write!(
                f,
                "ignored that the process of {node} has ended, incarnation {incarnation}: the sender has not announced \
                 that it supervises it"
            ),
            Self::BadMessage(error) => write!(f, "a connection is closed, because it sent {error}"),
            Self::Unsent(error) => write!(f, "not sent, because it is too long: {error}"),
            Self::StoreFailed(why) => write!(f, "the store cannot be written: {why}. The change is tried again"),
            Self::Deposed => f.write_str("another coordinator has opened the store: this one ends"),
            Self::StoreWentBack => {
                f.write_str("an older store is in the place of the one that was written: this coordinator ends")
            }
            Self::Behind { node, list } => write!(
                f,
                "the store is an old copy, and nothing is changed: {node} has a configuration of list {} that is not \
                 in its history",
                list.0
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_sentences_and_an_incarnation_has_its_one_form() {
        let (node, incarnation) = (NodeId(3), Incarnation(0x1f));
        let ended = Note::Ended { node, incarnation };
        assert_eq!(
            ended.to_string(),
            "the process of n3 has ended: incarnation 000000000000001f"
        );
        assert_eq!(format!("{incarnation:?}"), incarnation.to_string());
        let moved = Note::Moved {
            list: ListId(4),
            position: Position(1),
            from: Some(node),
            to: None,
        };
        assert_eq!(moved.to_string(), "list 4: position 1 moves from n3 to no node");
    }
}
