//! Changes that wait in memory until a flush writes them: whole chunks and deltas, folded where the layout allows it.

use super::ParityLog;
use super::chain::{Chain, Entry};
use super::gather::{Gathering, Why};
use crate::extents::Extents;
use crate::record::{Content, Key};
use paritas_base::{Position, Version, map};
use std::collections::VecDeque;

/// A change of one data chunk that a parity chunk covers.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// The data position.
    pub x: usize,
    /// The new version of its chunk.
    pub version: Version,
    /// The new sum of its chunk.
    pub sum: u32,
}

impl Change {
    fn apply(&self, content: &mut Content) {
        if let (Some(version), Some(sum)) = (content.versions.get_mut(self.x), content.sums.get_mut(self.x)) {
            (*version, *sum) = (self.version, self.sum);
        }
    }
}

impl ParityLog {
    /// Stores a whole chunk. It need not exist yet.
    pub fn put(&mut self, key: Key, position: Position, content: Content, bytes: Vec<u8>) {
        debug_assert_eq!(bytes.len(), self.settings.chunk_bytes);
        self.put_extents(key, position, content, Extents::whole(bytes));
    }

    /// As `put`, for a chunk that is zero except for these extents.
    pub fn put_extents(&mut self, key: Key, position: Position, content: Content, extents: Extents) {
        debug_assert!(extents.end() <= self.settings.chunk_bytes);
        if self.chains.get(&key).is_some_and(|chain| chain.position != position) {
            self.remove(key);
        }
        let born = self.next_number;
        self.next_number += 1;
        let chain = self.chains.entry(key).or_insert_with(|| Chain {
            born,
            position,
            content: content.clone(),
            last: 0,
            slot: None,
            logged: VecDeque::new(),
            busy: false,
        });
        chain.content = content.clone();
        let entry = Entry {
            key,
            born: chain.born,
            position,
            whole: true,
            content,
            extents,
        };
        self.enter(entry);
    }

    /// Adds a delta, already multiplied by its coefficient, to an existing chunk. Returns false if there is no such
    /// chunk.
    pub fn fold(&mut self, key: Key, content: Content, extents: Extents) -> bool {
        let fits = extents.end() <= self.settings.chunk_bytes;
        let Some(chain) = self.chains.get_mut(&key).filter(|_| fits) else {
            return false;
        };
        chain.content = content.clone();
        let entry = Entry {
            key,
            born: chain.born,
            position: chain.position,
            whole: false,
            content,
            extents,
        };
        self.enter(entry);
        true
    }

    /// As `fold`, for a delta of one data chunk that is not yet multiplied. Where deltas are folded, this is done in
    /// place.
    pub fn fold_data(&mut self, key: Key, change: Change, coefficient: u8, offset: usize, xor: &[u8]) -> bool {
        let fits = offset + xor.len() <= self.settings.chunk_bytes;
        let Some(chain) = self.chains.get_mut(&key).filter(|_| fits) else {
            return false;
        };
        change.apply(&mut chain.content);
        let is_read = self.asked.contains_key(&key);
        let folds = self.settings.layout.folds_in_memory();
        // One delta must be one record in every layout: a part of it must not count as the whole.
        if !is_read
            && let Some(at) = self.newest.get(&key)
            && let Some(waiting) = self.waiting.get_mut(*at).filter(|e| e.born == chain.born)
            && (folds || waiting.content.versions.get(change.x) == Some(&change.version))
        {
            let before = waiting.bytes();
            change.apply(&mut waiting.content);
            waiting.extents.fold_times(coefficient, offset, xor);
            self.waiting_bytes = self.waiting_bytes + waiting.bytes() - before;
            self.counters.folded += 1;
            return true;
        }
        let mut extents = Extents::default();
        extents.fold_times(coefficient, offset, xor);
        let entry = Entry {
            key,
            born: chain.born,
            position: chain.position,
            whole: false,
            content: chain.content.clone(),
            extents,
        };
        self.enter(entry);
        true
    }

    fn enter(&mut self, entry: Entry) {
        if self.asked.contains_key(&entry.key) {
            self.show(&entry);
        }
        self.wait(entry);
    }

    /// Applies an entry to the reads under way, so that a reader gets the chunk as of its answer.
    fn show(&mut self, entry: &Entry) {
        let asked = |found: &&mut Gathering| {
            matches!(found.why, Why::Asked(_)) && (found.key, found.chain.born) == (entry.key, entry.born)
        };
        for found in self.gatherings.values_mut().filter(asked) {
            match &mut found.above {
                Some(above) => above.fold(entry),
                None => found.above = Some(entry.clone()),
            }
        }
    }

    fn wait(&mut self, entry: Entry) {
        let folds = self.settings.layout.folds_in_memory();
        if let Some(at) = self.newest.get(&entry.key)
            && let Some(waiting) = self.waiting.get_mut(*at).filter(|e| e.born == entry.born)
            && (folds || waiting.content.versions == entry.content.versions)
        {
            let before = waiting.bytes();
            waiting.fold(&entry);
            self.waiting_bytes = self.waiting_bytes + waiting.bytes() - before;
            self.counters.folded += 1;
            return;
        }
        self.waiting_bytes += entry.bytes();
        self.newest.insert(entry.key, self.waiting.len());
        self.waiting.push(entry);
    }

    /// Puts entries back in front of the waiting ones.
    pub(super) fn wait_again(&mut self, mut entries: Vec<Entry>) {
        entries.append(&mut self.waiting);
        (self.waiting_bytes, self.newest) = (0, map());
        for entry in entries {
            self.wait(entry);
        }
    }

    /// The waiting changes that are to be applied to what is on the disk.
    pub(super) fn above(&self, key: Key) -> Option<Entry> {
        let born = self.chains.get(&key)?.born;
        let under_way = self.flushing.iter().map(|w| &w.entry);
        let entries = under_way.chain(&self.waiting);
        let mut above: Option<Entry> = None;
        for entry in entries.filter(|e| e.key == key && e.born == born) {
            match &mut above {
                Some(above) => above.fold(entry),
                None => above = Some(entry.clone()),
            }
        }
        above
    }
}
