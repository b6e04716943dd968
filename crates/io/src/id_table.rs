//! A table whose ids are never reused: an old id finds nothing, not the entry that took its place.

const SLOT_BITS: u32 = 20;
const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;

/// Entries with ids of 44 bits serial number and 20 bits place.
#[derive(Debug)]
pub(crate) struct IdTable<T> {
    entries: Vec<Option<(u64, T)>>,
    free: Vec<u32>,
    serial: u64,
}

impl<T> IdTable<T> {
    pub(crate) fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            serial: 1,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Adds the entry that `make` returns for its new id. `None` if the table is full. An error of `make` adds nothing.
    pub(crate) fn insert_with<E>(&mut self, make: impl FnOnce(u64) -> Result<T, E>) -> Option<Result<u64, E>> {
        let slot = match self.free.last() {
            Some(slot) => *slot,
            None if (self.entries.len() as u64) <= SLOT_MASK => self.entries.len() as u32,
            None => return None,
        };
        let id = (self.serial << SLOT_BITS) | u64::from(slot);
        let entry = match make(id) {
            Ok(entry) => entry,
            Err(error) => return Some(Err(error)),
        };
        self.serial += 1;
        if self.free.pop().is_none() {
            self.entries.push(None);
        }
        self.entries[slot as usize] = Some((id, entry));
        Some(Ok(id))
    }

    pub(crate) fn find(&self, id: u64) -> Option<&T> {
        match self.entries.get((id & SLOT_MASK) as usize)? {
            Some((own, entry)) if *own == id => Some(entry),
            _ => None,
        }
    }

    pub(crate) fn find_mut(&mut self, id: u64) -> Option<&mut T> {
        match self.entries.get_mut((id & SLOT_MASK) as usize)? {
            Some((own, entry)) if *own == id => Some(entry),
            _ => None,
        }
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<T> {
        self.find(id)?;
        let slot = (id & SLOT_MASK) as usize;
        self.free.push(slot as u32);
        self.entries[slot].take().map(|(_, entry)| entry)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = u64> {
        self.entries.iter().flatten().map(|(id, _)| *id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(slots: &mut IdTable<u8>, entry: u8) -> u64 {
        slots.insert_with(|_| Ok::<_, ()>(entry)).unwrap().unwrap()
    }

    #[test]
    fn an_old_id_does_not_find_the_next_tenant_of_its_place() {
        let mut slots = IdTable::new();
        let first = insert(&mut slots, 1);
        assert_eq!(slots.remove(first), Some(1));
        let second = insert(&mut slots, 2);
        assert_eq!(slots.find(first), None);
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.find(second), Some(&2));
        assert_eq!(slots.len(), 1);
    }

    #[test]
    fn a_failed_insert_leaves_no_trace() {
        let mut slots: IdTable<u8> = IdTable::new();
        assert_eq!(slots.insert_with(|_| Err("no")), Some(Err("no")));
        assert_eq!(slots.len(), 0);
        assert_eq!(slots.ids().count(), 0);
    }
}
