//! Reads a chunk: its records from all their places, and the waiting changes in memory.

use super::{Chain, Entry, InSlot, Io, ParityLog, Task, To, Written};
use crate::Space;
use crate::extents::Extents;
use crate::record::{Content, Key, Record};

/// The reads of one chunk's records, and the changes to be applied afterwards.
#[derive(Debug)]
pub(super) struct Gathering {
    pub(super) key: Key,
    pub(super) why: Why,
    /// The chain as it was when the reads began. The records read must match it exactly.
    pub(super) chain: Chain,
    pub(super) parts: Vec<Part>,
    pub(super) above: Option<Entry>,
}

/// Records that are contiguous on the disk.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) space: Space,
    pub(super) at: u64,
    pub(super) length: usize,
    pub(super) bytes: Option<Vec<u8>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Why {
    /// A request with this number.
    Asked(u64),
    /// The reserved space is full. The new record gets the number of the last record that it includes.
    Compact { number: u64, drains: bool },
    /// The chunk is in a part of the log area that is to be written again.
    Rewrite,
}

impl ParityLog {
    /// Reads a chunk's records. `above` is applied on top of them.
    pub(super) fn gather(&mut self, key: Key, why: Why, above: Option<Entry>, out: &mut Vec<Io>) {
        let Some(chain) = self.chains.get(&key).cloned() else {
            return;
        };
        let parts = self.parts(&chain, why, above.as_ref());
        let id = self.next_id;
        self.next_id += 1;
        let reads: Vec<_> = parts.iter().map(|part| (part.space, part.at, part.length)).collect();
        let gathering = Gathering {
            key,
            why,
            chain,
            parts,
            above,
        };
        self.gatherings.insert(id, gathering);
        if reads.is_empty() {
            self.on_gathered(id, out);
        }
        for (n, (space, at, length)) in reads.into_iter().enumerate() {
            self.begin_read(Task::Gather(id, n), space, self.on_disk(space, at), length, out);
        }
    }

    /// The places of a chunk's records, without those that are applied on top.
    pub(super) fn parts(&self, chain: &Chain, why: Why, above: Option<&Entry>) -> Vec<Part> {
        // A record at the beginning of the log area is adjacent to the one before by its address only.
        let begins = |space, at: u64| space == Space::Log && at.is_multiple_of(self.settings.log_bytes);
        let mut parts: Vec<Part> = Vec::new();
        let mut part = |space, at, length| match parts.last_mut() {
            Some(last) if last.space == space && last.at + last.length as u64 == at && !begins(space, at) => {
                last.length += length;
            }
            _ => parts.push(Part {
                space,
                at,
                length,
                bytes: None,
            }),
        };
        if !above.is_some_and(|above| above.whole) {
            if let Some(InSlot { slot, used, .. }) = chain.slot {
                part(Space::Slots, self.slot_at(slot), used);
            }
            if !matches!(why, Why::Compact { .. }) {
                for piece in &chain.logged {
                    part(Space::Log, piece.at, piece.length);
                }
            }
        }
        parts
    }

    /// The places of a chunk's records on the disk: space, address and length. For tests.
    pub fn places(&self, key: Key) -> Vec<(Space, u64, usize)> {
        let parts = self
            .chains
            .get(&key)
            .map_or(Vec::new(), |chain| self.parts(chain, Why::Rewrite, None));
        let place = |part: &Part| (part.space, self.on_disk(part.space, part.at), part.length);
        parts.iter().map(place).collect()
    }

    /// Maps an address of the log area, which only grows, to its place on the disk.
    pub(super) fn on_disk(&self, space: Space, at: u64) -> u64 {
        match space {
            Space::Slots => at,
            Space::Log => at % self.settings.log_bytes,
        }
    }

    /// All of a chunk's records were read.
    pub(super) fn on_gathered(&mut self, id: u64, out: &mut Vec<Io>) {
        let Some(found) = self.gatherings.remove(&id) else {
            return;
        };
        let Gathering { key, why, chain, .. } = &found;
        if matches!(why, Why::Asked(_))
            && let Some(count) = self.asked.get_mut(key)
        {
            *count -= 1;
            if *count == 0 {
                self.asked.remove(key);
            }
        }
        let compacts = matches!(why, Why::Compact { .. });
        let drains = matches!(why, Why::Compact { drains: true, .. });
        self.rewriting -= usize::from(*why == Why::Rewrite);
        let now = self.chains.get(key).filter(|now| now.born == chain.born);
        let whole = found.chunk(self.log, self.settings.chunk_bytes, self.settings.block_bytes);
        // Its records may have moved while they were read.
        let moved = now.is_none_or(|now| now.slot != chain.slot || now.logged.front() != chain.logged.front());
        match (why, whole) {
            (Why::Asked(number), Some(answer)) if now.is_some() => self.answers.push((*number, Some(answer))),
            (Why::Asked(number), None) if now.is_some() && moved => self.read(*key, *number, out),
            (Why::Asked(number), _) => {
                let is_there = now.is_some();
                self.answers.push((*number, None));
                if is_there {
                    self.lose(*key);
                }
            }
            (Why::Compact { number, .. }, Some((content, bytes))) if now.is_some() => {
                let entry = found.entry(content, bytes);
                let Some(slot) = self.take_slot(0) else {
                    // Tried again later, when a slot is free.
                    self.compacting -= 1;
                    self.end_drain_step(drains);
                    self.rest(*key, chain.born);
                    return;
                };
                self.counters.compacted += 1;
                let end = self.settings.in_blocks(entry.bytes());
                let written = Written {
                    entry,
                    number: *number,
                    to: To::Slot { slot, end },
                };
                self.settle_at(written, 0, 0, (drains, true), out);
                // The changes in memory stay there until they are written.
            }
            (Why::Rewrite, Some((content, bytes))) if now.is_some() => {
                self.counters.compacted += 1;
                self.rest(*key, chain.born);
                let entry = found.entry(content, bytes);
                self.wait_again(vec![entry]);
            }
            (_, whole) => {
                self.compacting -= usize::from(compacts);
                self.end_drain_step(drains);
                if whole.is_none() && !moved {
                    self.lose(*key);
                } else {
                    self.rest(*key, chain.born);
                }
            }
        }
    }

    pub(super) fn rest(&mut self, key: Key, born: u64) {
        if let Some(chain) = self.chains.get_mut(&key).filter(|chain| chain.born == born) {
            chain.busy = false;
        }
    }

    /// Drops a chunk whose records are damaged.
    pub(super) fn lose(&mut self, key: Key) {
        self.remove(key);
        self.bad.push(key);
    }
}

impl Gathering {
    /// The chunk as an entry to be written whole.
    fn entry(&self, content: Content, bytes: Vec<u8>) -> Entry {
        Entry {
            key: self.key,
            born: self.chain.born,
            position: self.chain.position,
            whole: true,
            content,
            extents: Extents::whole(bytes),
        }
    }

    /// The chunk that the records make and what it stands for, if all are there.
    pub(super) fn chunk(&self, log: u32, chunk_bytes: usize, block_bytes: usize) -> Option<(Content, Vec<u8>)> {
        let mut made: Option<(Content, Vec<u8>)> = None;
        let mut last = 0;
        let mut apply = |record: Record| {
            let place = record.place;
            let follows = record.whole || (made.is_some() && place.before == last);
            if record.key != self.key || record.position != self.chain.position || place.log != log || !follows {
                return None;
            }
            last = place.number;
            let mut bytes = match made.take() {
                Some((_, bytes)) if !record.whole => bytes,
                _ => vec![0; chunk_bytes],
            };
            record.extents.apply(&mut bytes).then_some(())?;
            made = Some((record.content, bytes));
            Some(place.number)
        };
        let mut logged = self.chain.logged.iter();
        // A whole chunk that arrived meanwhile replaces everything on the disk.
        let is_over = self.above.as_ref().is_some_and(|above| above.whole);
        for part in self.parts.iter().filter(|_| !is_over) {
            let bytes = part.bytes.as_deref()?.get(..part.length)?;
            let mut at = 0;
            let mut newest = 0;
            while at < part.length {
                let (record, length) = Record::parse(bytes.get(at..)?, chunk_bytes)?;
                newest = apply(record)?;
                if part.space == Space::Log && logged.next()?.number != newest {
                    return None;
                }
                at += if part.space == Space::Slots {
                    length.next_multiple_of(block_bytes)
                } else {
                    length
                };
            }
            if part.space == Space::Slots && self.chain.slot?.last != newest {
                return None;
            }
        }
        if let Some(above) = &self.above {
            let mut bytes = match made.take() {
                Some((_, bytes)) if !above.whole => bytes,
                None if !above.whole => return None,
                _ => vec![0; chunk_bytes],
            };
            above.extents.apply(&mut bytes).then_some(())?;
            made = Some((above.content.clone(), bytes));
        }
        made
    }
}
