//! The interface of the configuration store, which holds the records that must survive a coordinator. It is a small
//! ordered map, changed by compare-and-swap over several keys at once (P10.1). Every implementation must pass one test
//! suite (`store_suite`).

use core::fmt;
use std::collections::BTreeMap;

/// The number of a transaction. The revision of a record is that of the last transaction that wrote it. Never 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Revision(pub u64);

/// A record in the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its bytes.
    pub value: Vec<u8>,
    /// The transaction that wrote it.
    pub revision: Revision,
}

/// The action of a transaction on one record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Only compare the revision.
    Check,
    /// Write these bytes.
    Put(Vec<u8>),
    /// Remove the record.
    Delete,
}

/// One record's part in a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The record's key. A transaction may name each key only once.
    pub key: String,
    /// The revision that the record must have. `None`: it must not exist.
    pub expect: Option<Revision>,
    /// The action if the revision matches.
    pub action: Action,
}

/// Why the store failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreError {
    /// This record has another revision than expected. Nothing was changed.
    Conflict {
        /// The first such key, in key order.
        key: String,
    },
    /// The transaction breaks a limit or names a key twice. Nothing was changed.
    Invalid(String),
    /// The medium failed. It is unknown whether the transaction took effect: read the store before the next commit.
    Medium(String),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict { key } => write!(f, "another process has changed record {key}"),
            Self::Invalid(why) => write!(f, "the transaction is not allowed: {why}"),
            Self::Medium(why) => write!(f, "the configuration store failed: {why}"),
        }
    }
}

impl core::error::Error for StoreError {}

/// A configuration store. All calls block. A commit that has returned is as durable as the store can make it.
pub trait Store {
    /// Reads one record.
    ///
    /// # Errors
    /// If the medium fails.
    fn get(&self, key: &str) -> Result<Option<Entry>, StoreError>;

    /// Reads all records whose key starts with `prefix`, in key order.
    ///
    /// # Errors
    /// If the medium fails.
    fn list(&self, prefix: &str) -> Result<Vec<(String, Entry)>, StoreError>;

    /// Makes all changes or none. Every written record gets the returned revision, which is greater than all earlier
    /// ones.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn commit(&mut self, changes: &[Change]) -> Result<Revision, StoreError>;
}

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 128;
/// Longest record, in bytes. For comparison: etcd limits a transaction to 1.5 MiB by default.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

/// Checks the limits of every store.
///
/// # Errors
/// [`StoreError::Invalid`], with the reason.
pub fn check_limits(changes: &[Change]) -> Result<(), StoreError> {
    let invalid = |why: String| Err(StoreError::Invalid(why));
    if changes.is_empty() {
        return invalid("it is empty".into());
    }
    let mut keys: Vec<&str> = changes.iter().map(|c| c.key.as_str()).collect();
    keys.sort_unstable();
    if let Some(twice) = keys.windows(2).find(|w| w[0] == w[1]) {
        return invalid(format!("key {} occurs twice", twice[0]));
    }
    for change in changes {
        if change.key.is_empty() || change.key.len() > KEY_BYTES_MAX {
            return invalid(format!("a key has {} bytes", change.key.len()));
        }
        if let Action::Put(value) = &change.action
            && value.len() > VALUE_BYTES_MAX
        {
            return invalid(format!("record {} has {} bytes", change.key, value.len()));
        }
    }
    Ok(())
}

/// A store in memory, for the simulator, for tests, and for clusters that may be lost with their coordinator.
#[derive(Clone, Default, Debug)]
pub struct MemoryStore {
    records: BTreeMap<String, Entry>,
    last: u64,
    failures: u32,
    lost_answers: u32,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the next `count` commits fail without effect, like a full disk.
    pub fn fail_commits(&mut self, count: u32) {
        self.failures = count;
    }

    /// Makes the next `count` valid commits take effect but report a failure.
    pub fn lose_answers(&mut self, count: u32) {
        self.lost_answers = count;
    }
}

impl Store for MemoryStore {
    fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        Ok(self.records.get(key).cloned())
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, Entry)>, StoreError> {
        let from = self
            .records
            .range::<str, _>((core::ops::Bound::Included(prefix), core::ops::Bound::Unbounded));
        Ok(from
            .take_while(|(key, _)| key.starts_with(prefix))
            .map(|(k, e)| (k.clone(), e.clone()))
            .collect())
    }

    fn commit(&mut self, changes: &[Change]) -> Result<Revision, StoreError> {
        check_limits(changes)?;
        if self.failures > 0 {
            self.failures -= 1;
            return Err(StoreError::Medium("simulated failure without effect".into()));
        }
        let stale = |c: &&Change| self.records.get(&c.key).map(|e| e.revision) != c.expect;
        if let Some(key) = changes.iter().filter(stale).map(|c| &c.key).min() {
            return Err(StoreError::Conflict { key: key.clone() });
        }
        self.last += 1;
        let revision = Revision(self.last);
        for change in changes {
            match &change.action {
                Action::Check => {}
                Action::Put(value) => {
                    self.records.insert(
                        change.key.clone(),
                        Entry {
                            value: value.clone(),
                            revision,
                        },
                    );
                }
                Action::Delete => {
                    self.records.remove(&change.key);
                }
            }
        }
        if self.lost_answers > 0 {
            self.lost_answers -= 1;
            return Err(StoreError::Medium("simulated failure after the commit".into()));
        }
        Ok(revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_store_passes_the_suite() {
        crate::store_suite::run(MemoryStore::new);
    }

    #[test]
    fn a_failed_commit_changes_nothing() {
        let mut store = MemoryStore::new();
        store.fail_commits(1);
        let put = [Change {
            key: "a".into(),
            expect: None,
            action: Action::Put(vec![1]),
        }];
        assert!(matches!(store.commit(&put), Err(StoreError::Medium(_))));
        assert_eq!(store.get("a").unwrap(), None);
        store.commit(&put).unwrap();
    }
}
