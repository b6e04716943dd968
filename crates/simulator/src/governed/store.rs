//! The store of a run: coordinators that follow each other, and two that overlap, have the same one.

use paritas_control::store::{Change, Entry, MemoryStore, Revision, Store, StoreError};
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

    /// Puts a copy in its place. No coordinator has it open then.
    pub(super) fn put_back(&self, copy: MemoryStore) {
        *self.0.borrow_mut() = copy;
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
    fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        self.0.borrow().get(key)
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, Entry)>, StoreError> {
        self.0.borrow().list(prefix)
    }

    fn commit(&mut self, changes: &[Change]) -> Result<Revision, StoreError> {
        self.0.borrow_mut().commit(changes)
    }
}
