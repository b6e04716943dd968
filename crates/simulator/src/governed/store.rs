//! The store of a run: coordinators that follow each other, and two that overlap, have the same one.

use paritas_control::store::{Change, Expected, MemoryStore, Store, StoreError};
use std::cell::RefCell;
use std::rc::Rc;

/// A store that several coordinators have open.
#[derive(Clone, Default, Debug)]
pub(super) struct SharedStore(Rc<RefCell<MemoryStore>>);

impl SharedStore {
    /// A copy of what is in it now, as a backup of its file.
    pub(super) fn copy(&self) -> MemoryStore {
        self.0.borrow().clone()
    }

    /// Puts a copy in its place. Coordinators that have it open go on with the copy.
    pub(super) fn put_back(&self, copy: MemoryStore) {
        self.0.borrow_mut().put_back(copy);
    }

    /// The next commits seem to fail, and take effect later.
    pub(super) fn delay(&self, count: u32) {
        self.0.borrow_mut().delay_commits(count);
    }

    /// They take effect now, if the store is as they expect. Returns how many did.
    pub(super) fn land_late(&self) -> usize {
        self.0.borrow_mut().land_late()
    }

    /// The next commits fail, without effect or with it.
    pub(super) fn fail(&self, count: u32, with_effect: bool) {
        let mut store = self.0.borrow_mut();
        if with_effect {
            store.lose_answers(count);
        } else {
            store.fail_commits(count);
        }
    }
}

impl Store for SharedStore {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.0.borrow().get(key)
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.0.borrow().list(prefix)
    }

    fn commit(&mut self, expected: &Expected, changes: &[Change]) -> Result<(), StoreError> {
        self.0.borrow_mut().commit(expected, changes)
    }
}
