//! Where the coordinator keeps what must outlive it: a small ordered map of records, changed by compare-and-swap
//! over several keys at once (P10.1). The embedded store, an etcd and [`MemoryStore`] have this one shape
//! and pass one suite (`store_suite`).

use core::fmt;
use std::collections::BTreeMap;

/// A change of the store as a whole; a record's revision is that of the transaction that last wrote it. Never 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Revision(pub u64);

/// A record as it lies in the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its bytes.
    pub value: Vec<u8>,
    /// The transaction that wrote them.
    pub revision: Revision,
}

/// What a transaction does to one record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Only compare.
    Check,
    /// Write these bytes.
    Put(Vec<u8>),
    /// Remove the record.
    Delete,
}

/// One record's part in a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// Which record. Each key at most once in a transaction.
    pub key: String,
    /// The revision that it must have; `None`: it must not exist.
    pub expect: Option<Revision>,
    /// What to do then.
    pub action: Action,
}

/// Why the store did not do as asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreError {
    /// This record is not as expected. Nothing was changed.
    Conflict {
        /// The first such key, in key order.
        key: String,
    },
    /// The transaction breaks a limit or names a key twice. Nothing was changed.
    Invalid(String),
    /// The medium failed. Whether a transaction took effect is unknown: read before you go on.
    Medium(String),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict { key } => write!(f, "record {key} was changed by somebody else"),
            Self::Invalid(why) => write!(f, "the transaction is not allowed: {why}"),
            Self::Medium(why) => write!(f, "the configuration store failed: {why}"),
        }
    }
}

impl core::error::Error for StoreError {}

/// A configuration store. Calls return when the work is done: a commit is durable by then, as far as the store is.
pub trait Store {
    /// One record.
    ///
    /// # Errors
    /// If the medium fails.
    fn get(&self, key: &str) -> Result<Option<Entry>, StoreError>;

    /// All records whose key starts with `prefix`, in key order.
    ///
    /// # Errors
    /// If the medium fails.
    fn list(&self, prefix: &str) -> Result<Vec<(String, Entry)>, StoreError>;

    /// Makes all changes or none, and gives every record that was put the returned revision, which is greater than
    /// any before.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn commit(&mut self, changes: &[Change]) -> Result<Revision, StoreError>;
}

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 128;
/// Longest record, in bytes. etcd takes 1.5 MiB in a transaction by default.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

/// The limits that hold for every store.
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

/// A store in memory, for the simulator and for clusters that need not outlive their coordinator.
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

    /// Makes the next `count` commits fail without effect, as a full disk does.
    pub fn fail_commits(&mut self, count: u32) {
        self.failures = count;
    }

    /// Makes the next `count` good commits take effect and report a failure all the same.
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
            return Err(StoreError::Medium("told to fail".into()));
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
            return Err(StoreError::Medium("told to lose the answer".into()));
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
