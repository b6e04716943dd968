//! Who may say what to the coordinator: one table (P10.19). A test compares it with that of `docs/protocol-control.md`.

use crate::message::ToCoordinator;
use core::fmt;
use paritas_base::{Incarnation, NodeId};

/// Who is at the other end of a link. The driver has seen the proof, or has none to ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Speaker {
    /// A process of a node.
    Node(NodeId, Incarnation),
    /// A process that starts nodes and waits for their ends.
    Supervisor,
    /// An operator who has the secret, or is on the coordinator's own machine: a process there could as well stop it.
    Operator,
    /// An operator without a secret on another machine, at a coordinator that asks for none.
    Guest,
}

impl fmt::Display for Speaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node, incarnation) => write!(f, "{node}, incarnation {incarnation}"),
            Self::Supervisor => f.write_str("a supervisor"),
            Self::Operator => f.write_str("an operator"),
            Self::Guest => f.write_str("an operator without a secret on another machine"),
        }
    }
}

/// What a message is about, as far as it matters who says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum About {
    /// The sender itself, a node.
    Itself,
    /// That the end of a process will be certified by the sender.
    Watch,
    /// The end of a process of a node.
    End,
    /// An order that loses nothing. Nodes pass on those of clients who have given the password.
    Order,
    /// An order that can lose data.
    Danger,
    /// A question, whose answer changes nothing.
    Question,
}

impl About {
    /// All, in the order of the table.
    pub const ALL: [Self; 6] = [
        Self::Itself,
        Self::Watch,
        Self::End,
        Self::Order,
        Self::Danger,
        Self::Question,
    ];

    /// The names of the messages about it.
    pub fn messages(self) -> &'static [&'static str] {
        match self {
            Self::Itself => &[
                "Register",
                "Heartbeat",
                "AskLive",
                "GetConfiguration",
                "Drained",
                "HandOff",
                "Testimony",
                "Witnessed",
                "Leave",
                "Pong",
            ],
            Self::Watch => &["Supervise"],
            Self::End => &["Exited"],
            Self::Order => &["SetDuty", "MoveSlots"],
            Self::Danger => &["Order"],
            Self::Question => &["Status"],
        }
    }

    /// Who may say it.
    pub fn speakers(self) -> &'static str {
        match self {
            Self::Itself => "a node, of itself",
            Self::Watch => "a supervisor",
            Self::End => "a supervisor; a node, of its own processes",
            Self::Order => "a node; an operator",
            Self::Danger => "an operator",
            Self::Question => "all",
        }
    }

    /// Whether it may be said. `process`: the one that the message is about, if it names it.
    fn may_say(self, speaker: Speaker, process: Option<(NodeId, Incarnation)>) -> bool {
        match (self, speaker) {
            (Self::Question, _) | (Self::Watch | Self::End, Speaker::Supervisor) => true,
            // The next process says it of an earlier one, and a process that is about to end says it of itself.
            (Self::End, Speaker::Node(node, _)) => process.is_some_and(|(of, _)| of == node),
            (Self::Itself, Speaker::Node(node, incarnation)) => process.is_none_or(|of| of == (node, incarnation)),
            (Self::Order, Speaker::Node(..) | Speaker::Operator) | (Self::Danger, Speaker::Operator) => true,
            _ => false,
        }
    }
}

/// A message's name, what it is about, and the process that it is about if it must be one of the speaker's.
fn read(message: &ToCoordinator) -> (&'static str, About, Option<(NodeId, Incarnation)>) {
    use ToCoordinator as M;
    match message {
        M::Register(registration) => {
            let process = (registration.node, registration.incarnation);
            ("Register", About::Itself, Some(process))
        }
        // What these are about is checked against the registration of their link.
        M::Heartbeat { .. } => ("Heartbeat", About::Itself, None),
        M::AskLive { .. } => ("AskLive", About::Itself, None),
        M::GetConfiguration { .. } => ("GetConfiguration", About::Itself, None),
        M::Drained { .. } => ("Drained", About::Itself, None),
        M::HandOff { .. } => ("HandOff", About::Itself, None),
        M::Testimony(_) => ("Testimony", About::Itself, None),
        M::Witnessed { .. } => ("Witnessed", About::Itself, None),
        M::Leave { .. } => ("Leave", About::Itself, None),
        M::Pong { .. } => ("Pong", About::Itself, None),
        M::Supervise { .. } => ("Supervise", About::Watch, None),
        M::Exited { node, incarnation } => ("Exited", About::End, Some((*node, *incarnation))),
        M::SetDuty { .. } => ("SetDuty", About::Order, None),
        M::MoveSlots { .. } => ("MoveSlots", About::Order, None),
        M::Order { .. } => ("Order", About::Danger, None),
        M::Status { .. } => ("Status", About::Question, None),
    }
}

/// Whether the speaker may say this. If not, the name of the message.
pub fn forbids(speaker: Speaker, message: &ToCoordinator) -> Option<&'static str> {
    let (name, about, process) = read(message);
    debug_assert!(about.messages().contains(&name));
    (!about.may_say(speaker, process)).then_some(name)
}

/// Somebody who may say this.
#[cfg(test)]
pub(crate) fn fitting(message: &ToCoordinator) -> Speaker {
    match message {
        ToCoordinator::Register(registration) => Speaker::Node(registration.node, registration.incarnation),
        ToCoordinator::Supervise { .. } | ToCoordinator::Exited { .. } => Speaker::Supervisor,
        ToCoordinator::SetDuty { .. } | ToCoordinator::MoveSlots { .. } => Speaker::Operator,
        ToCoordinator::Order { .. } | ToCoordinator::Status { .. } => Speaker::Operator,
        _ => Speaker::Node(NodeId(0), Incarnation(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paritas_base::configuration::Duty;

    #[test]
    fn the_table_of_the_protocol_is_that_of_the_code() {
        let text = include_str!("../../../docs/protocol-control.md");
        for about in About::ALL {
            let names: Vec<String> = about.messages().iter().map(|name| format!("`{name}`")).collect();
            let row = format!("| {} | {} |", names.join(", "), about.speakers());
            assert!(text.contains(&row), "docs/protocol-control.md lacks this row:\n{row}");
        }
    }

    #[test]
    fn ends_are_said_by_a_supervisor_and_by_processes_of_the_same_node() {
        let (node, incarnation) = (NodeId(3), Incarnation(30));
        let next = Speaker::Node(node, Incarnation(31));
        let others = [Speaker::Node(NodeId(4), incarnation), Speaker::Operator, Speaker::Guest];
        let announced = ToCoordinator::Supervise { node, incarnation };
        let ended = ToCoordinator::Exited { node, incarnation };
        for (message, by_next) in [(announced, false), (ended, true)] {
            let may = |speaker| forbids(speaker, &message).is_none();
            assert!(may(Speaker::Supervisor));
            assert_eq!(may(next), by_next);
            assert_eq!(may(Speaker::Node(node, incarnation)), by_next);
            assert!(!others.into_iter().any(may));
        }
    }

    #[test]
    fn orders_are_given_by_operators_and_a_guest_only_asks() {
        let duty = ToCoordinator::SetDuty {
            n: 1,
            node: NodeId(3),
            duty: Duty::Draining,
        };
        let order = ToCoordinator::Order {
            n: 1,
            order: crate::message::Order::Fence { nodes: Vec::new() },
            confirmed: true,
        };
        let node = Speaker::Node(NodeId(0), Incarnation(1));
        let may = |message| {
            [node, Speaker::Supervisor, Speaker::Operator, Speaker::Guest].map(|s| forbids(s, message).is_none())
        };
        assert_eq!(may(&duty), [true, false, true, false]);
        assert_eq!(may(&order), [false, false, true, false]);
        assert_eq!(may(&ToCoordinator::Status { n: 1 }), [true; 4]);
    }
}
