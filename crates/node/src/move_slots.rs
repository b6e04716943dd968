//! Moves hash slots, with their keys, to another stream or node: the order, and its progress (P10.8).

use crate::Failure;
use crate::connection::Login;
use crate::duty::NodeNumber;
use crate::status::{command, watch};
use paritas_control::status::{SlotMove, SlotMoveState};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A range of hash slots as an operator writes it: `5`, or `0-682`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slots {
    /// The first slot.
    pub first: u16,
    /// The last slot, inclusive.
    pub last: u16,
}

impl FromStr for Slots {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) if first <= last => Ok(Self { first, last }),
            _ => Err(format!(
                "`{text}` is not a range of slots: write FIRST-LAST, such as 0-682"
            )),
        }
    }
}

/// Where slots go: `3/1` is position 1 of list 3; `n4` or `4` is any stream of that node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target(String);

impl FromStr for Target {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(NodeNumber(node)) = text.parse() {
            return Ok(Self(node.0.to_string()));
        }
        let stream = text.split_once('/').filter(|(list, position)| {
            let numbers = (list.parse::<u16>(), position.parse::<u8>());
            matches!(numbers, (Ok(_), Ok(_)))
        });
        match stream {
            Some(_) => Ok(Self(text.into())),
            None => Err(format!(
                "`{text}` is neither a stream nor a node: write LIST/POSITION, such as 3/1, or a node's number"
            )),
        }
    }
}

/// An order about slots.
#[derive(Clone, Debug)]
pub struct Order {
    /// The slots and their destination. `None` cancels the move under way.
    pub what: Option<(Slots, Target)>,
    /// Whether progress is printed as JSON.
    pub json: bool,
}

impl Order {
    /// Gives the order to the coordinator, by way of any node.
    ///
    /// # Errors
    /// If it is refused; the text says why.
    pub fn give(&self, whom: &Login, timeout: Duration) -> Result<(), Failure> {
        match &self.what {
            Some((slots, to)) => {
                let (first, last) = (slots.first.to_string(), slots.last.to_string());
                command(whom, &["PARITAS.SLOTS", &first, &last, &to.0], timeout).map(drop)
            }
            None => command(whom, &["PARITAS.SLOTS", "stop"], timeout).map(drop),
        }
    }

    /// Prints the progress until the order is done.
    ///
    /// # Errors
    /// If no node answers, or the move was cancelled.
    pub fn watch(&self, whom: &Login, timeout: Duration) -> Result<(), Failure> {
        watch(whom, timeout, |status| {
            let Some(slots) = &status.slots else {
                return Err(Failure("the coordinator does not know this order".into()));
            };
            let line = match self.json {
                true => serde_json::to_string(slots).unwrap_or_default(),
                false => Shown(slots).to_string(),
            };
            let end = match slots.state {
                SlotMoveState::Moving => None,
                SlotMoveState::GivenUp if self.what.is_some() => {
                    Some(Err(Failure(format!("given up: {}", slots.reason))))
                }
                SlotMoveState::Done | SlotMoveState::GivenUp => Some(Ok(())),
            };
            Ok((line, end))
        })
    }
}

/// A move as text for operators.
pub(crate) struct Shown<'a>(pub(crate) &'a SlotMove);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SlotMove {
            first,
            last,
            list,
            position,
            moved_slots,
            total_slots,
            state,
            reason,
        } = self.0;
        write!(
            f,
            "slots {first}-{last} to position {} of list {}: {moved_slots} of {total_slots} moved",
            position.0, list.0
        )?;
        match state {
            SlotMoveState::Moving => f.write_str(", still moving"),
            SlotMoveState::Done => Ok(()),
            SlotMoveState::GivenUp => write!(f, ", given up: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_and_where_they_go_are_read() {
        assert_eq!("5".parse(), Ok(Slots { first: 5, last: 5 }));
        assert_eq!("0-682".parse(), Ok(Slots { first: 0, last: 682 }));
        for wrong in ["", "-", "7-3", "a-b", "1-2-3", "0-65536"] {
            assert!(wrong.parse::<Slots>().unwrap_err().contains("FIRST-LAST"), "{wrong}");
        }
        assert_eq!("3/1".parse(), Ok(Target("3/1".into())));
        assert_eq!("n4".parse(), Ok(Target("4".into())));
        for wrong in ["", "3/", "/1", "3/256", "a/1", "3/1/2"] {
            assert!(
                wrong.parse::<Target>().unwrap_err().contains("LIST/POSITION"),
                "{wrong}"
            );
        }
    }
}
