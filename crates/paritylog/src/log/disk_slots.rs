//! The free slots.

use super::ParityLog;

impl ParityLog {
    pub(super) fn slot_at(&self, slot: u32) -> u64 {
        u64::from(slot) * self.settings.slot_bytes() as u64
    }

    /// Takes a free slot, if more than `kept` are left.
    pub(super) fn take_slot(&mut self, kept: u32) -> Option<u32> {
        let free = self.free_slots.len() as u32 + (self.settings.slots_max - self.next_slot);
        if free <= kept {
            self.no_slot = true;
            return None;
        }
        self.free_slots.pop().or_else(|| {
            self.next_slot += 1;
            Some(self.next_slot - 1)
        })
    }

    /// Gives up a slot. It becomes free once nothing is being written to it.
    pub(super) fn give_up_slot(&mut self, slot: u32) {
        if self.writing.contains_key(&slot) {
            self.given_up.insert(slot);
        } else {
            self.no_slot = false;
            self.free_slots.push(slot);
        }
    }

    pub(super) fn slot_written(&mut self, slot: u32) {
        let Some(count) = self.writing.get_mut(&slot) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            self.writing.remove(&slot);
            if self.given_up.remove(&slot) {
                self.no_slot = false;
                self.free_slots.push(slot);
            }
        }
    }
}
