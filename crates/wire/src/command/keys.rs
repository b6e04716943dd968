//! Positions of a command's keys among its arguments.

use super::{CommandSpec, flag};
use crate::resp::{ArgList, parse_integer};

/// Indexes of the arguments that are keys.
#[derive(Clone, Debug)]
pub struct KeyIndexes {
    next: usize,
    end: usize,
    step: usize,
}

impl KeyIndexes {
    /// Those of EVAL and its kin, with this number of keys.
    const fn of_script(count: usize) -> Self {
        Self {
            next: 3,
            end: 3 + count,
            step: 1,
        }
    }
}

/// The indexes of the keys of a command with `count` arguments, including its name.
#[inline]
pub fn keys(spec: &CommandSpec, count: usize) -> KeyIndexes {
    let first = usize::try_from(spec.first_key).unwrap_or_default();
    let end = if first == 0 {
        0
    } else if spec.last_key < 0 {
        (count + 1).saturating_sub(usize::from(spec.last_key.unsigned_abs()))
    } else {
        (usize::from(spec.last_key.unsigned_abs()) + 1).min(count)
    };
    KeyIndexes {
        next: first,
        end,
        step: usize::from(spec.step.unsigned_abs()).max(1),
    }
}

/// The indexes of a command's keys. A script names how many it has.
pub fn keys_of(spec: &CommandSpec, args: ArgList<'_>) -> KeyIndexes {
    if !spec.is(flag::SCRIPT) {
        return keys(spec, args.len());
    }
    let count = parse_integer(args.arg(2)).and_then(|count| usize::try_from(count).ok());
    let count = count
        .filter(|count| *count <= args.len().saturating_sub(3))
        .unwrap_or_default();
    KeyIndexes::of_script(count)
}

impl Iterator for KeyIndexes {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let index = self.next;
        if index >= self.end {
            return None;
        }
        self.next += self.step;
        Some(index)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.end.saturating_sub(self.next).div_ceil(self.step);
        (left, Some(left))
    }
}

impl ExactSizeIterator for KeyIndexes {}

#[cfg(test)]
mod tests {
    use super::super::Command;
    use super::keys;

    #[test]
    fn keys_follow_the_table() {
        let of = |command: Command, count| keys(command.spec(), count).collect::<Vec<_>>();
        assert_eq!(of(Command::Get, 2), [1]);
        assert_eq!(of(Command::Mget, 4), [1, 2, 3]);
        assert_eq!(of(Command::Mset, 5), [1, 3]);
        assert_eq!(of(Command::Mset, 4), [1, 3]);
        assert_eq!(of(Command::Rename, 3), [1, 2]);
        assert_eq!(of(Command::ObjectEncoding, 3), [2]);
        assert_eq!(of(Command::Ping, 2), []);
        // With too few arguments, no index is past the end.
        assert_eq!(of(Command::Rename, 2), [1]);
        assert_eq!(of(Command::Get, 0), []);
        assert_eq!(keys(Command::Mset.spec(), 5).len(), 2);
    }
}
