//! The work table of ElasticMem (§4.3.2): requests of one client for the same object at the same time.
//!
//! A client of the paper does without locks at the servers: it alone orders what its callers want. A row of the table
//! is a request under way. A read that finds a write takes the value that is written, without a message. A read that
//! finds a read waits for the same value. A write that finds a read waits until the read has ended. A write that finds
//! a write fails, and so does a change of redundancy that finds a write, or a write that finds a change (§4.3.3).

use super::ElasticMem;
use paritas_base::{Map, map};
use paritas_large::Class;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

type Value = Arc<Vec<u8>>;

/// A value that is on its way. `None`: it has not come. An error text: it will not come.
#[derive(Debug, Default)]
struct Future {
    value: Mutex<Option<Result<Value, String>>>,
    comes: Condvar,
}

/// A row: the request under way, and its data.
#[derive(Clone, Debug)]
enum Row {
    Get(Arc<Future>),
    Set(Value),
    Change(Arc<Future>),
}

/// A client that many threads share.
#[derive(Debug)]
pub struct WorkTable {
    rows: Mutex<Map<u32, Row>>,
    store: Mutex<ElasticMem>,
    /// Requests that have found or made their row.
    begun: AtomicU64,
}

impl WorkTable {
    /// A client. It must be the only one that uses its objects.
    pub fn new(store: ElasticMem) -> Self {
        Self {
            rows: Mutex::new(map()),
            store: Mutex::new(store),
            begun: AtomicU64::new(0),
        }
    }

    /// Requests so far that have found or made their row: they come before each later request.
    pub fn begun(&self) -> u64 {
        self.begun.load(Ordering::Acquire)
    }

    fn begins(&self, rows: MutexGuard<'_, Map<u32, Row>>) {
        drop(rows);
        self.begun.fetch_add(1, Ordering::Release);
    }

    /// Reads an object.
    pub fn get(&self, object: u32) -> io::Result<Value> {
        let mut rows = lock(&self.rows);
        match rows.get(&object).cloned() {
            Some(Row::Set(value)) => {
                self.begins(rows);
                Ok(value)
            }
            Some(Row::Get(future) | Row::Change(future)) => {
                self.begins(rows);
                future.wait()
            }
            None => {
                let future = Arc::new(Future::default());
                rows.insert(object, Row::Get(future.clone()));
                self.begins(rows);
                let read = lock(&self.store).get(object, &[]).map(Arc::new);
                future.set(&read);
                let mut rows = lock(&self.rows);
                // A write may have taken the row.
                if matches!(rows.get(&object), Some(Row::Get(own)) if Arc::ptr_eq(own, &future)) {
                    rows.remove(&object);
                }
                read
            }
        }
    }

    /// Writes an object. An error if another write or a change of it is under way.
    pub fn set(&self, object: u32, class: Class, value: Value) -> io::Result<()> {
        self.take_row(object, Row::Set(value.clone()))?;
        let written = lock(&self.store).set(object, class, &value);
        lock(&self.rows).remove(&object);
        written
    }

    /// Gives an object another redundancy. An error if a write or another change of it is under way.
    pub fn change(&self, object: u32, class: Class) -> io::Result<()> {
        let future = Arc::new(Future::default());
        self.take_row(object, Row::Change(future.clone()))?;
        let mut store = lock(&self.store);
        // Reads that come from here on have the value from the future.
        let read = store.get(object, &[]).map(Arc::new);
        future.set(&read);
        let changed = read.and_then(|value| store.change_from(object, class, &value));
        drop(store);
        lock(&self.rows).remove(&object);
        changed
    }

    /// Makes the row of a write or a change. If a read is under way, waits for its end: its messages and the new ones
    /// must not be mixed.
    fn take_row(&self, object: u32, row: Row) -> io::Result<()> {
        let mut rows = lock(&self.rows);
        let before = rows.get(&object).cloned();
        if matches!(before, Some(Row::Set(_) | Row::Change(_))) {
            self.begins(rows);
            return Err(io::Error::other("another write of the object is under way"));
        }
        rows.insert(object, row);
        self.begins(rows);
        if let Some(Row::Get(read)) = before {
            drop(read.wait());
        }
        Ok(())
    }

    /// The client below.
    pub fn store(&mut self) -> &mut ElasticMem {
        self.store.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Future {
    fn wait(&self) -> io::Result<Value> {
        let mut value = lock(&self.value);
        loop {
            match &*value {
                Some(Ok(value)) => return Ok(value.clone()),
                Some(Err(why)) => return Err(io::Error::other(why.clone())),
                None => value = self.comes.wait(value).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn set(&self, read: &io::Result<Value>) {
        let result = read.as_ref().map(Clone::clone).map_err(ToString::to_string);
        *lock(&self.value) = Some(result);
        self.comes.notify_all();
    }
}

/// A caller that has panicked leaves no half change: each change is one insertion or removal.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
