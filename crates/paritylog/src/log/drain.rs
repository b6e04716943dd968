//! Frees space. Appended deltas are folded and written after their chunks (LogECMem §5.2). Chunks whose reserved space
//! is full are rewritten.

use super::{DRAIN_BYTES_MAX, Entry, InSlot, Io, ParityLog, Task, To, Why, Written};
use crate::record::{Key, Record};
use crate::{SPARE_SLOTS, Space};
use core::ops::Range;
use paritas_base::{Map, map};

impl ParityLog {
    /// Rewrites chunks whose slots are full, once nothing else of them is under way.
    pub(super) fn compact(&mut self, out: &mut Vec<Io>) {
        while self.flush_left == 0 && !self.failed && self.compacting < SPARE_SLOTS as usize {
            let Some(key) = self.full.pop_front() else { return };
            // The chunk may have been removed and put again.
            let chain = self
                .chains
                .get_mut(&key)
                .filter(|chain| !chain.busy && chain.slot.is_some());
            let Some(chain) = chain else { continue };
            chain.busy = true;
            let number = chain.last;
            self.compacting += 1;
            self.gather(key, Why::Compact { number, drains: false }, None, out);
        }
    }

    /// Frees space in the log area. The oldest part is folded and goes to the slots, or, without slots, to the end of
    /// the area.
    pub fn drain(&mut self, out: &mut Vec<Io>) {
        let Some((&first, _)) = self.logged.first_key_value() else {
            return;
        };
        if self.draining || self.no_slot || self.failed {
            return;
        }
        let log_bytes = self.settings.log_bytes;
        let end = (first - first % log_bytes + log_bytes).min(first + DRAIN_BYTES_MAX.min(log_bytes / 2));
        if self.settings.layout.has_slots() {
            // Takes whole records only: those that begin before the end.
            let last = self.logged.range(first..end).next_back();
            let upto = last.and_then(|(at, key)| {
                let chain = self.chains.get(key)?;
                let piece = chain.logged.iter().find(|piece| piece.at == *at)?;
                Some(at + piece.length as u64)
            });
            let end = upto.unwrap_or(end);
            self.draining = true;
            let at = first % log_bytes;
            self.begin_read(Task::Drain(first), Space::Log, at, (end - first) as usize, out);
        } else if self.flush_left == 0 {
            self.rewrite(first..end, out);
        }
    }

    /// Begins to read chunks that are to be appended whole, those with the oldest records first. It takes as many as
    /// fit in the buffer beside the waiting bytes, and at least one.
    fn rewrite(&mut self, range: Range<u64>, out: &mut Vec<Io>) {
        let chunk = self.settings.chunk_record_bytes();
        let most = (self.settings.buffer_max_bytes / 2).saturating_sub(self.buffered_bytes()) / chunk;
        let most = most.max(1);
        if self.rewriting >= most {
            return;
        }
        // Chunks that were already read and wait to be written are not read again.
        let mut next_is_whole: Map<Key, bool> = map();
        for entry in self.waiting.iter().filter(|entry| self.chain_of(entry).is_some()) {
            next_is_whole.entry(entry.key).or_insert(entry.whole);
        }
        let keys: Vec<Key> = self.logged.range(range).map(|(_, key)| *key).collect();
        for key in keys.into_iter().filter(|key| next_is_whole.get(key) != Some(&true)) {
            if self.rewriting >= most {
                return;
            }
            if let Some(chain) = self.chains.get_mut(&key).filter(|chain| !chain.busy) {
                chain.busy = true;
                self.rewriting += 1;
                self.gather(key, Why::Rewrite, None, out);
            }
        }
    }

    /// The oldest part of the log area was read. The deltas of each chunk are folded into one, which is written after
    /// the chunk.
    pub(super) fn on_drained(&mut self, first: u64, bytes: &[u8], out: &mut Vec<Io>) {
        let end = first + bytes.len() as u64;
        let pieces: Vec<(u64, Key)> = self.logged.range(first..end).map(|(at, key)| (*at, *key)).collect();
        let (mut merged, mut at_of): (Vec<(Entry, u64)>, Map<Key, usize>) = (Vec::new(), map());
        for (at, key) in pieces {
            let Some(chain) = self.chains.get(&key) else { continue };
            let Some(piece) = chain.logged.iter().find(|piece| piece.at == at) else {
                continue;
            };
            let from = (at - first) as usize;
            let record = bytes
                .get(from..)
                .and_then(|bytes| Record::parse(bytes, self.settings.chunk_bytes));
            let record =
                record.filter(|(r, _)| r.key == key && r.place.number == piece.number && r.place.log == self.log);
            let Some((record, _)) = record else {
                self.lose(key);
                continue;
            };
            let entry = Entry {
                key,
                born: chain.born,
                position: record.position,
                whole: record.whole,
                content: record.content,
                extents: record.extents,
            };
            match at_of.get(&key).and_then(|at| merged.get_mut(*at)) {
                Some((all, number)) => {
                    all.fold(&entry);
                    *number = record.place.number;
                    self.counters.folded += 1;
                }
                None => {
                    at_of.insert(key, merged.len());
                    merged.push((entry, record.place.number));
                }
            }
        }
        self.drain_left = 0;
        for (entry, number) in merged {
            self.settle(entry, number, out);
        }
        self.draining = self.drain_left > 0;
    }

    /// Writes one record to a chunk's slot that replaces all its records in the log area up to a number. Without space
    /// in the slot, those records stay where they are.
    pub(super) fn settle(&mut self, entry: Entry, number: u64, out: &mut Vec<Io>) {
        let Some(chain) = self.chains.get(&entry.key) else {
            return;
        };
        let length = self.settings.in_blocks(entry.bytes());
        let before = chain.slot.map_or(0, |slot| slot.last);
        let place = match chain.slot {
            _ if entry.whole => self.take_slot(SPARE_SLOTS).map(|slot| (slot, 0)),
            Some(InSlot { slot, used, .. }) if used + length <= self.settings.slot_bytes() => Some((slot, used)),
            _ => None,
        };
        if let Some((slot, used)) = place {
            let to = To::Slot {
                slot,
                end: used + length,
            };
            let written = Written { entry, number, to };
            self.drain_left += 1;
            self.settle_at(written, before, used, (true, false), out);
        } else if !entry.whole && self.compacting < self.settings.compacting_max() {
            self.drain_left += 1;
            self.compacting += 1;
            self.gather(entry.key, Why::Compact { number, drains: true }, Some(entry), out);
        }
    }

    pub(super) fn settle_at(
        &mut self,
        written: Written,
        before: u64,
        from: usize,
        (drains, compacts): (bool, bool),
        out: &mut Vec<Io>,
    ) {
        let Some(slot) = written.to.slot() else { return };
        let mut bytes = Vec::new();
        self.record(&written.entry, written.number, before).encode(&mut bytes);
        bytes.resize(self.settings.in_blocks(bytes.len()), 0);
        *self.writing.entry(slot).or_insert(0) += 1;
        let task = Task::Settle {
            written,
            drains,
            compacts,
        };
        self.write(task, Space::Slots, self.slot_at(slot) + from as u64, bytes, out);
    }

    pub(super) fn on_settled(&mut self, written: Written, drains: bool, compacts: bool) {
        self.compacting -= usize::from(compacts);
        self.end_drain_step(drains);
        let To::Slot { slot, end } = written.to else { return };
        let key = written.entry.key;
        let whole = written.entry.whole;
        let chain = self.chains.get_mut(&key).filter(|chain| {
            let same = chain.slot.is_some_and(|now| now.slot == slot);
            chain.born == written.entry.born && (whole || same)
        });
        let Some(chain) = chain else {
            if whole {
                self.give_up_slot(slot);
            }
            return;
        };
        let last = written.number;
        let old = chain.slot.replace(InSlot { slot, used: end, last });
        chain.last = chain.last.max(last);
        chain.busy &= !compacts;
        while let Some(piece) = chain.logged.front().filter(|piece| piece.number <= last) {
            self.logged.remove(&piece.at);
            chain.logged.pop_front();
        }
        if let Some(old) = old.filter(|old| old.slot != slot) {
            self.give_up_slot(old.slot);
        }
    }

    pub(super) fn end_drain_step(&mut self, drains: bool) {
        self.drain_left -= usize::from(drains);
        self.draining &= self.drain_left > 0 || !drains;
    }
}
