//! Events that the coordinator reports to the operator.

use crate::message::{MessageError, Settings};
use crate::status::HaltedRole;
use paritas_base::configuration::{Duty, NodeState};
use paritas_base::{Incarnation, ListId, NodeId, Position};

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
    /// A supervisor certified that an incarnation has ended.
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
