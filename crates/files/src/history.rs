//! What is known of past accesses: how often, how recently, and which nodes hold the file's units.
//!
//! Files without cached parity count too (Algorithm 1, line 14). So the history has a limit of its own: the file that
//! was not accessed for the longest time is forgotten first.

use crate::{File, Node};
use paritas_base::{Map, map};
use std::collections::BTreeMap;

/// Past accesses of a file.
#[derive(Clone, Debug)]
pub(crate) struct Past {
    /// Number of accesses.
    pub(crate) count: u64,
    /// Order of the last access among all accesses.
    stamp: u64,
    /// Parity blocks that the file needs.
    pub(crate) blocks: u64,
    /// Nodes with units of the file, at the last access.
    pub(crate) nodes: Box<[Node]>,
}

#[derive(Clone, Debug)]
pub(crate) struct History {
    files: Map<File, Past>,
    by_recency: BTreeMap<u64, File>,
    next_stamp: u64,
    /// Number of nodes over all files.
    nodes_count: usize,
    files_max: usize,
    nodes_max: usize,
}

impl History {
    /// A history of at most `files_max` files, which together name at most `nodes_max` nodes.
    pub(crate) fn new(files_max: usize, nodes_max: usize) -> Self {
        Self {
            files: map(),
            by_recency: BTreeMap::new(),
            next_stamp: 0,
            nodes_count: 0,
            files_max,
            nodes_max,
        }
    }

    /// Records an access. Returns how many there were of this file, this one included.
    pub(crate) fn record(&mut self, file: File, nodes: &[Node], blocks: u64) -> u64 {
        let stamp = self.next_stamp;
        self.next_stamp += 1;
        let count = 1 + self.forget(file).map_or(0, |past| past.count);
        self.nodes_count += nodes.len();
        self.by_recency.insert(stamp, file);
        let nodes = nodes.into();
        self.files.insert(
            file,
            Past {
                count,
                stamp,
                blocks,
                nodes,
            },
        );
        while self.files.len() > self.files_max || self.nodes_count > self.nodes_max {
            let Some((_, oldest)) = self.by_recency.pop_first() else {
                break;
            };
            self.forget(oldest);
        }
        count
    }

    /// Halves all numbers of accesses.
    pub(crate) fn age(&mut self) {
        for past in self.files.values_mut() {
            past.count /= 2;
        }
    }

    /// What is known of a file.
    pub(crate) fn past(&self, file: File) -> Option<&Past> {
        self.files.get(&file)
    }

    /// Forgets a file.
    pub(crate) fn forget(&mut self, file: File) -> Option<Past> {
        let past = self.files.remove(&file)?;
        self.by_recency.remove(&past.stamp);
        self.nodes_count -= past.nodes.len();
        Some(past)
    }

    /// All files, the last accessed first.
    pub(crate) fn recent(&self) -> impl Iterator<Item = (File, &Past)> {
        let files = self.by_recency.values().rev();
        files.filter_map(|file| Some((*file, self.files.get(file)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_not_accessed_for_longest_is_forgotten() {
        let mut history = History::new(2, 100);
        for file in [1, 2, 1, 3] {
            history.record(file, &[7], 1);
        }
        let files: Vec<_> = history.recent().map(|(file, past)| (file, past.count)).collect();
        assert_eq!(files, [(3, 1), (1, 2)]);
        assert_eq!(history.record(2, &[], 1), 1, "its count begins again");
    }

    #[test]
    fn nodes_of_all_files_have_a_limit() {
        let mut history = History::new(100, 10);
        for file in 0..20 {
            history.record(file, &[1, 2, 3, 4], 1);
            assert!(history.nodes_count <= 10);
        }
        assert_eq!(history.recent().count(), 2);
        history.record(20, &[0; 11], 1);
        assert_eq!(
            history.recent().count(),
            0,
            "a file with more than the limit is not kept"
        );
        assert_eq!(history.nodes_count, 0);
    }
}
