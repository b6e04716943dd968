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

/// The indexes of the keys of a command. None, if they should follow their number and do not.
#[inline]
pub fn keys(spec: &CommandSpec, args: ArgList<'_>) -> KeyIndexes {
    if spec.is(flag::KEY_COUNT) {
        return counted(spec, args);
    }
    let (first, count) = (usize::try_from(spec.first_key).unwrap_or_default(), args.len());
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

/// Whether its keys should follow their number, and do not.
#[inline]
pub fn lacks_keys(spec: &CommandSpec, args: ArgList<'_>) -> bool {
    spec.is(flag::KEY_COUNT) && keys(spec, args).len() == 0
}

#[cold]
fn counted(spec: &CommandSpec, args: ArgList<'_>) -> KeyIndexes {
    let (at, step) = (
        usize::from(spec.first_key.unsigned_abs()),
        usize::from(spec.step.unsigned_abs()).max(1),
    );
    let count = parse_integer(args.arg(at)).and_then(|count| usize::try_from(count).ok());
    let end = count.and_then(|count| count.checked_mul(step)?.checked_add(at + 1));
    KeyIndexes {
        next: at + 1,
        end: end.filter(|end| *end <= args.len()).unwrap_or(0),
        step,
    }
}

/// The indexes of a command's keys. A script names how many it has.
pub fn keys_of(spec: &CommandSpec, args: ArgList<'_>) -> KeyIndexes {
    if !spec.is(flag::SCRIPT) {
        return keys(spec, args);
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
    use crate::resp::Args;

    fn of(command: Command, words: &[&str]) -> Vec<usize> {
        let mut args = Args::new();
        let words: Vec<&[u8]> = [b"name".as_slice()]
            .into_iter()
            .chain(words.iter().map(|word| word.as_bytes()))
            .collect();
        args.keep(&words);
        let indexes = keys(command.spec(), args.list(&[]));
        assert_eq!(indexes.len(), indexes.clone().count());
        indexes.collect()
    }

    #[test]
    fn keys_follow_the_table() {
        assert_eq!(of(Command::Get, &["k"]), [1]);
        assert_eq!(of(Command::Mget, &["a", "b", "c"]), [1, 2, 3]);
        assert_eq!(of(Command::Mset, &["a", "1", "b", "2"]), [1, 3]);
        assert_eq!(of(Command::Mset, &["a", "1", "b"]), [1, 3]);
        assert_eq!(of(Command::Rename, &["a", "b"]), [1, 2]);
        assert_eq!(of(Command::ObjectEncoding, &["encoding", "a"]), [2]);
        assert_eq!(of(Command::Ping, &["a"]), []);
        // With too few arguments, no index is past the end.
        assert_eq!(of(Command::Rename, &["a"]), [1]);
        assert_eq!(of(Command::Get, &[]), []);
    }

    #[test]
    fn keys_may_follow_their_number() {
        assert_eq!(of(Command::Msetex, &["2", "a", "1", "b", "2"]), [2, 4]);
        assert_eq!(of(Command::Msetex, &["1", "a", "1", "EX", "2"]), [2]);
        for wrong in ["0", "-1", "3", "x", "9223372036854775807", "4611686018427387904"] {
            assert_eq!(of(Command::Msetex, &[wrong, "a", "1", "b", "2"]), [], "{wrong}");
        }
    }
}
