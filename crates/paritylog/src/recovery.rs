//! What an earlier life left on the disk (PROTOCOL 11.3): of each chunk the records that follow one another without a
//! gap. Whether they are still what data nodes hold, their owners' versions say; nothing here is trusted before.

use crate::Settings;
use crate::log::{Chain, InSlot, Logged};
use crate::record::{Content, Key, Record};
use paritas_base::{Map, Position, map};
use std::collections::{BTreeMap, VecDeque};

/// A chunk that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Which parity of its list.
    pub position: Position,
    /// What it stands for.
    pub content: Content,
}

/// Reads a log that is not being written.
#[derive(Debug)]
pub struct Recovery {
    settings: Settings,
    log: u32,
    chains: Map<Key, Chain>,
    /// By number, of each chunk, what lies in the log area.
    logged: Map<Key, BTreeMap<u64, (Seen, Logged)>>,
}

#[derive(Debug)]
struct Seen {
    position: Position,
    content: Content,
    before: u64,
    whole: bool,
}

impl Recovery {
    /// Of the log that had this number.
    pub fn new(settings: Settings, log: u32) -> Self {
        Self {
            settings,
            log,
            chains: map(),
            logged: map(),
        }
    }

    /// Takes in what was read from one slot, whole.
    pub fn slot(&mut self, slot: u32, bytes: &[u8]) {
        let mut at = 0;
        let mut chain: Option<(Key, Chain)> = None;
        while let Some((record, length)) = bytes.get(at..).and_then(|rest| self.parse(rest)) {
            let place = record.place;
            let follows = match &chain {
                None => record.whole,
                Some((key, chain)) => {
                    !record.whole
                        && *key == record.key
                        && record.position == chain.position
                        && place.before == chain.last
                }
            };
            if !follows {
                break;
            }
            at += self.settings.in_blocks(length);
            let mut now = chain.map_or_else(|| new_chain(record.position), |(_, chain)| chain);
            (now.content, now.last) = (record.content, place.number);
            now.slot = Some(InSlot {
                slot,
                used: at,
                last: place.number,
            });
            chain = Some((record.key, now));
        }
        let Some((key, chain)) = chain else { return };
        // A chunk that was written anew lies in two slots: the newer one counts.
        if self.chains.get(&key).is_none_or(|other| other.last < chain.last) {
            self.chains.insert(key, chain);
        }
    }

    /// Takes in what was read from the log area at an address that is a multiple of a block.
    pub fn log(&mut self, from: u64, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            let Some((record, length)) = bytes.get(at..).and_then(|rest| self.parse(rest)) else {
                // Behind a write's last record, or a record that is torn: another may begin with any block.
                at = (at + 1).next_multiple_of(self.settings.block_bytes);
                continue;
            };
            let number = record.place.number;
            let piece = Logged {
                at: from + at as u64,
                length,
                number,
            };
            at += length;
            let seen = Seen {
                position: record.position,
                content: record.content,
                before: record.place.before,
                whole: record.whole,
            };
            self.logged
                .entry(record.key)
                .or_insert_with(BTreeMap::new)
                .insert(number, (seen, piece));
        }
    }

    fn parse(&self, bytes: &[u8]) -> Option<(Record, usize)> {
        Record::parse(bytes, self.settings.chunk_bytes).filter(|(record, _)| record.place.log == self.log)
    }

    /// The chunks whose records follow one another.
    pub fn finish(mut self) -> Map<Key, Found> {
        for (key, pieces) in self.logged.drain() {
            for (seen, piece) in pieces.into_values() {
                if seen.whole {
                    let mut chain = new_chain(seen.position);
                    chain.last = 0;
                    let old = self.chains.insert(key, chain);
                    if let Some(old) = old.filter(|old| old.last > piece.number) {
                        self.chains.insert(key, old);
                        continue;
                    }
                }
                let Some(chain) = self.chains.get_mut(&key) else {
                    continue;
                };
                let follows = seen.whole || (chain.last == seen.before && chain.position == seen.position);
                if !follows || piece.number <= chain.last {
                    continue;
                }
                (chain.content, chain.last) = (seen.content, piece.number);
                chain.logged.push_back(piece);
            }
        }
        let mut found = map();
        for (key, chain) in &self.chains {
            let (position, content) = (chain.position, chain.content.clone());
            found.insert(*key, Found { position, content });
        }
        found
    }
}

fn new_chain(position: Position) -> Chain {
    Chain {
        born: 0,
        position,
        content: Content::default(),
        last: 0,
        slot: None,
        logged: VecDeque::new(),
        busy: false,
    }
}
