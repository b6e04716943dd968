//! Finds what an earlier process left on the disk (P11.3): for each chunk, the records that follow each other
//! without a gap. The owners' versions decide whether a chunk is still current; it is not used before that.

use crate::log::{Chain, InSlot, Logged};
use crate::record::{Content, Key, Record};
use crate::{ParityLog, Settings};
use paritas_base::{Map, Position, map};
use std::collections::{BTreeMap, VecDeque};

/// Reads a log that is not being written.
#[derive(Debug)]
pub struct Recovery {
    settings: Settings,
    log: u32,
    chains: Map<Key, Chain>,
    /// For each chunk, its records in the log area by number.
    logged: Map<Key, Found>,
    /// The number of the last record of all, and the place of the last record in the log area.
    newest: u64,
    newest_logged: (u64, u64),
    slots_end: u32,
}

/// The records of one chunk in the log area.
#[derive(Default, Debug)]
struct Found {
    pieces: BTreeMap<u64, (Seen, Logged)>,
    /// Number of the latest whole chunk.
    whole: u64,
    /// What the chunk stands for after the latest record.
    content: Content,
}

#[derive(Debug)]
struct Seen {
    position: Position,
    before: u64,
    whole: bool,
}

impl Recovery {
    /// For the log with this number.
    pub fn new(settings: Settings, log: u32) -> Self {
        Self {
            settings,
            log,
            chains: map(),
            logged: map(),
            newest: 0,
            newest_logged: (0, 0),
            slots_end: 0,
        }
    }

    /// Takes the bytes of one whole slot.
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
            self.newest = self.newest.max(place.number);
            self.slots_end = self.slots_end.max(slot + 1);
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
        // A chunk that was rewritten may be in two slots: the newer one counts.
        if self.chains.get(&key).is_none_or(|other| other.last < chain.last) {
            self.chains.insert(key, chain);
        }
    }

    /// Takes bytes of the log area from an address that is a multiple of a block.
    pub fn log(&mut self, from: u64, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            let Some((record, length)) = bytes.get(at..).and_then(|rest| self.parse(rest)) else {
                // After the last record of a write, or after a torn record, the next record may begin with any block.
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
            self.newest = self.newest.max(number);
            self.newest_logged = self.newest_logged.max((number, from + at as u64));
            let seen = Seen {
                position: record.position,
                before: record.place.before,
                whole: record.whole,
            };
            self.see(record, seen, piece);
        }
    }

    /// Adds a record found in the log area. Records older than the latest whole chunk are dropped: they are not yet
    /// overwritten, and make up most of a full area.
    fn see(&mut self, record: Record, seen: Seen, piece: Logged) {
        let number = piece.number;
        let found = self.logged.entry(record.key).or_default();
        if number < found.whole {
            return;
        }
        if seen.whole {
            found.whole = number;
            found.pieces = found.pieces.split_off(&number);
        }
        found.pieces.insert(number, (seen, piece));
        if found.pieces.last_key_value().is_some_and(|(last, _)| *last == number) {
            found.content = record.content;
        }
    }

    fn parse(&self, bytes: &[u8]) -> Option<(Record, usize)> {
        Record::parse(bytes, self.settings.chunk_bytes).filter(|(record, _)| record.place.log == self.log)
    }

    /// Makes a log from the consecutive records of each chunk. `incarnation` must be drawn anew for each process.
    pub fn resume(mut self, incarnation: u16) -> ParityLog {
        // Addresses only grow, so records after the newest one belong to the round before.
        let log_bytes = self.settings.log_bytes;
        let tail = log_bytes + self.settings.in_blocks(self.newest_logged.1 as usize) as u64;
        for (key, found) in self.logged.drain() {
            let newest = found.pieces.last_key_value().map_or(0, |(number, _)| *number);
            let mut chain = self.chains.remove(&key);
            let mut last = 0;
            for (seen, mut piece) in found.pieces.into_values() {
                if piece.at < self.newest_logged.1 {
                    piece.at += log_bytes;
                }
                let is_newer = chain.as_ref().is_none_or(|slot| slot.last < piece.number);
                if seen.whole && is_newer {
                    chain = Some(new_chain(seen.position));
                }
                let Some(now) = &mut chain else { continue };
                let follows = seen.whole || (now.last == seen.before && now.position == seen.position);
                if !follows || !is_newer {
                    continue;
                }
                if now.logged.back().is_some_and(|before| before.at >= piece.at) {
                    // A record of an earlier round that a later write should have replaced. Records between them are
                    // missing.
                    chain = None;
                    continue;
                }
                (now.last, last) = (piece.number, piece.number);
                now.logged.push_back(piece);
            }
            // Without slots most of the area would be kept for records that may be useless, and nothing could be
            // written.
            let oldest = if self.settings.layout.has_slots() {
                0
            } else {
                tail - log_bytes / 4 * 3
            };
            let in_reach = |chain: &Chain| chain.logged.front().is_none_or(|piece| piece.at >= oldest);
            // If a record in the middle is missing, the state before the later ones is unknown.
            if let Some(mut chain) = chain.filter(|chain| (last == newest || last == 0) && in_reach(chain)) {
                if last > 0 {
                    chain.content = found.content;
                }
                self.chains.insert(key, chain);
            }
        }
        ParityLog::resumed(
            self.settings,
            self.log,
            self.chains,
            (self.newest, tail, self.slots_end),
            incarnation,
        )
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
