//! Writes waiting entries: all at once to the log area, or each to the space after its chunk.

use super::{Chain, Entry, InSlot, Io, Logged, ParityLog, Task, To, Written};
use crate::record::{DiskLocation, Key, Record};
use crate::{SPARE_SLOTS, Space};
use paritas_base::{Map, map};

impl ParityLog {
    /// Writes waiting entries, unless a flush is under way.
    pub fn flush(&mut self, out: &mut Vec<Io>) {
        if self.flush_left > 0 || self.failed || self.waiting.is_empty() {
            return;
        }
        let entries = core::mem::take(&mut self.waiting);
        (self.waiting_bytes, self.newest) = (0, map());
        let kept = if self.settings.layout.appends() {
            self.append(entries, out)
        } else {
            self.write_to_slots(entries, out)
        };
        self.wait_again(kept);
        self.flushing_bytes = self.flushing.iter().map(|w| w.entry.bytes()).sum();
        self.flush_left = if self.settings.layout.appends() {
            usize::from(!self.flushing.is_empty())
        } else {
            self.flushing.len()
        };
    }

    /// The chain of an entry, unless the chunk was removed.
    pub(super) fn chain_of(&self, entry: &Entry) -> Option<&Chain> {
        self.chains.get(&entry.key).filter(|chain| chain.born == entry.born)
    }

    /// Writes entries to the log area in one write. Returns those that must wait.
    pub(super) fn append(&mut self, entries: Vec<Entry>, out: &mut Vec<Io>) -> Vec<Entry> {
        let log_bytes = self.settings.log_bytes;
        let most = log_bytes / 4;
        let mut kept = Vec::new();
        let (mut bytes, mut last) = (Vec::new(), map());
        // The last quarter of the area is reserved for whole chunks that replace old records. Each chunk is written so
        // once in a round, and all of them fit in a quarter.
        let is_short = self.is_short();
        let old = self.tail.saturating_sub(log_bytes / 2);
        let is_crowded = self.records() >= self.settings.records_max();
        let may = |chain: &Chain, entry: &Entry| match chain.logged.front() {
            _ if !is_short && !is_crowded => true,
            Some(oldest) => entry.whole && (oldest.at < old || !is_short),
            None => false,
        };
        let sizes = entries.iter().filter_map(|entry| {
            let chain = self.chain_of(entry)?;
            may(chain, entry).then(|| entry.bytes() as u64)
        });
        let length = sizes.sum::<u64>().min(most) as usize;
        let length = self.settings.in_blocks(length) as u64;
        // A write does not extend over the end of the area.
        let rest = log_bytes - self.tail % log_bytes;
        let shortest = self.settings.in_blocks(self.settings.chunk_record_bytes()) as u64;
        let skipped = if rest < length.min(shortest) { rest } else { 0 };
        // The oldest record may begin in the middle of a block.
        let space = log_bytes.saturating_sub(self.in_use() + skipped);
        let space = space - space % self.settings.block_bytes as u64;
        let length = length.min(space).min(if skipped > 0 { log_bytes } else { rest });
        if space == 0 {
            return entries;
        }
        self.tail += skipped;
        for entry in entries {
            let Some(chain) = self.chain_of(&entry) else {
                continue;
            };
            let fits = bytes.len() + entry.bytes() <= length as usize && may(chain, &entry);
            if chain.busy || !fits || last.contains_key(&(entry.key, true)) {
                // No later entry of a chunk may overtake the one that was held back.
                last.insert((entry.key, true), 0);
                kept.push(entry);
                continue;
            }
            let before = *last.get(&(entry.key, false)).unwrap_or(&chain.last);
            let number = self.next_number;
            self.next_number += 1;
            last.insert((entry.key, false), number);
            let at = self.tail + bytes.len() as u64;
            self.record(&entry, number, before).encode(&mut bytes);
            let length = entry.bytes();
            let to = To::Log { at, length };
            self.flushing.push(Written { entry, number, to });
        }
        if !self.flushing.is_empty() {
            bytes.resize(self.settings.in_blocks(bytes.len()), 0);
            let at = self.tail;
            self.tail += bytes.len() as u64;
            self.write(Task::Flush, Space::Log, at % log_bytes, bytes, out);
        }
        kept
    }

    /// Writes each entry to its chunk's slot, with one write for each. Returns those that must wait.
    pub(super) fn write_to_slots(&mut self, entries: Vec<Entry>, out: &mut Vec<Io>) -> Vec<Entry> {
        let mut kept = Vec::new();
        // For each chunk, the end of its records after these writes; `None` if its entries must wait.
        let mut planned: Map<Key, Option<InSlot>> = map();
        for entry in entries {
            let Some(chain) = self.chain_of(&entry) else {
                continue;
            };
            let now = chain.slot.filter(|_| !chain.busy);
            let place = match planned.get(&entry.key) {
                Some(place) => *place,
                None if chain.busy => None,
                None if entry.whole => Some(InSlot {
                    slot: 0,
                    used: 0,
                    last: 0,
                }),
                None => now,
            };
            let next = place.and_then(|place| self.write_to_slot(&entry, place, out));
            if next.is_none() {
                let is_full = place.is_some() && !entry.whole && !planned.get(&entry.key).is_some_and(Option::is_none);
                if is_full && !self.full.contains(&entry.key) {
                    self.full.push_back(entry.key);
                }
                planned.insert(entry.key, None);
                kept.push(entry);
                continue;
            }
            planned.insert(entry.key, next);
        }
        kept
    }

    /// Begins one write of a flush to a slot. Returns the end of the chunk's records after it; `None` if there is no
    /// space.
    pub(super) fn write_to_slot(&mut self, entry: &Entry, place: InSlot, out: &mut Vec<Io>) -> Option<InSlot> {
        let InSlot {
            mut slot,
            mut used,
            last: mut before,
        } = place;
        let length = self.settings.in_blocks(entry.bytes());
        if entry.whole {
            slot = self.take_slot(SPARE_SLOTS)?;
            (used, before) = (0, 0);
        } else if used + length > self.settings.slot_bytes() {
            return None;
        }
        let number = self.next_number;
        self.next_number += 1;
        let end = used + length;
        let written = Written {
            entry: entry.clone(),
            number,
            to: To::Slot { slot, end },
        };
        let mut bytes = Vec::new();
        self.record(&written.entry, written.number, before).encode(&mut bytes);
        bytes.resize(length, 0);
        *self.writing.entry(slot).or_insert(0) += 1;
        self.write(Task::Flush, Space::Slots, self.slot_at(slot) + used as u64, bytes, out);
        self.flushing.push(written);
        Some(InSlot {
            slot,
            used: end,
            last: number,
        })
    }

    pub(super) fn record(&self, entry: &Entry, number: u64, before: u64) -> Record {
        Record {
            key: entry.key,
            position: entry.position,
            place: DiskLocation {
                log: self.log,
                number,
                before: if entry.whole { 0 } else { before },
            },
            whole: entry.whole,
            content: entry.content.clone(),
            extents: entry.extents.clone(),
        }
    }

    /// The flush is complete: its records are now part of their chains.
    pub(super) fn on_flushed(&mut self) {
        self.flushing_bytes = 0;
        for Written { entry, number, to } in core::mem::take(&mut self.flushing) {
            if let To::Slot { slot, .. } = to {
                self.slot_written(slot);
            }
            let Some(chain) = self.chains.get_mut(&entry.key).filter(|chain| chain.born == entry.born) else {
                if let (To::Slot { slot, .. }, true) = (to, entry.whole) {
                    self.give_up_slot(slot);
                }
                continue;
            };
            chain.last = number;
            let old = entry.whole.then(|| chain.slot.take()).flatten();
            if entry.whole {
                for piece in chain.logged.drain(..) {
                    self.logged.remove(&piece.at);
                }
            }
            match to {
                To::Slot { slot, end } => {
                    chain.slot = Some(InSlot {
                        slot,
                        used: end,
                        last: number,
                    });
                }
                To::Log { at, length } => {
                    chain.logged.push_back(Logged { at, length, number });
                    self.logged.insert(at, entry.key);
                }
            }
            if let Some(old) = old {
                self.give_up_slot(old.slot);
            }
        }
    }

    /// Bytes of the log area from the first record that is still needed to the end.
    pub(super) fn in_use(&self) -> u64 {
        let written = self.flushing.iter().find_map(|w| match w.to {
            To::Log { at, .. } => Some(at),
            To::Slot { .. } => None,
        });
        let first = self.logged.first_key_value().map(|(at, _)| *at);
        let head = first.into_iter().chain(written).min().unwrap_or(self.tail);
        self.tail - head
    }
}
