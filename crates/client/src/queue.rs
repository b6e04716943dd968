//! `Queue`: operations on one key begin in the order of their submission. Reads run beside reads.

use crate::interface::OpId;
use paritas_base::{Map, map};
use std::collections::VecDeque;

/// The operations of each key that have not ended.
#[derive(Debug)]
pub(crate) struct Queue {
    keys: Map<Vec<u8>, VecDeque<Entry>>,
}

#[derive(Debug)]
struct Entry {
    op: OpId,
    is_read: bool,
    has_begun: bool,
}

impl Queue {
    pub(crate) fn new() -> Self {
        Self { keys: map() }
    }

    /// An operation is submitted. Whether it may begin now.
    pub(crate) fn enter(&mut self, key: &[u8], op: OpId, is_read: bool) -> bool {
        let entries = self.keys.entry(key.to_vec()).or_default();
        let has_begun = entries.iter().all(|before| is_read && before.is_read);
        entries.push_back(Entry { op, is_read, has_begun });
        has_begun
    }

    /// An operation has ended. Those that may begin now.
    pub(crate) fn leave(&mut self, key: &[u8], op: OpId) -> Vec<OpId> {
        let Some(entries) = self.keys.get_mut(key) else {
            return Vec::new();
        };
        entries.retain(|entry| entry.op != op);
        let mut begun = Vec::new();
        let mut only_reads = true;
        for (at, entry) in entries.iter_mut().enumerate() {
            if at > 0 && !(only_reads && entry.is_read) {
                break;
            }
            only_reads &= entry.is_read;
            if !core::mem::replace(&mut entry.has_begun, true) {
                begun.push(entry.op);
            }
        }
        if entries.is_empty() {
            self.keys.remove(key);
        }
        begun
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_run_beside_reads_and_a_write_waits_for_all_before_it() {
        let mut queue = Queue::new();
        let op = OpId;
        assert!(queue.enter(b"k", op(1), true));
        assert!(queue.enter(b"k", op(2), true));
        assert!(!queue.enter(b"k", op(3), false));
        assert!(!queue.enter(b"k", op(4), true), "a read behind a write waits");
        assert!(!queue.enter(b"k", op(5), true));
        assert!(queue.enter(b"other", op(6), false));
        assert_eq!(queue.leave(b"k", op(1)), []);
        assert_eq!(queue.leave(b"k", op(2)), [op(3)]);
        assert_eq!(queue.leave(b"k", op(3)), [op(4), op(5)]);
        assert_eq!(queue.leave(b"k", op(5)), []);
        assert_eq!(queue.leave(b"k", op(4)), []);
        assert!(queue.enter(b"k", op(7), false), "nothing is left of the key");
    }
}
