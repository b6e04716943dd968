//! The interface of the configuration store, which holds the records that must survive a coordinator. It is a small
//! ordered map. A transaction changes several records, if one record has the expected bytes (P10.1). Every
//! implementation must pass one test suite (`store_suite`).

use core::fmt;
use std::collections::BTreeMap;

/// The condition of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expected {
    /// The key of a record.
    pub key: String,
    /// The bytes that it must have. `None`: it must not exist.
    pub value: Option<Vec<u8>>,
}

/// One record's part in a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The record's key. A transaction may name each key only once.
    pub key: String,
    /// Its new bytes. `None`: it is removed.
    pub value: Option<Vec<u8>>,
}

/// Why the store failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreError {
    /// The condition did not hold. Nothing was changed.
    Conflict,
    /// The transaction breaks a limit or names a key twice. Nothing was changed.
    Invalid(String),
    /// The medium failed. The transaction may have taken effect, may do so later, or never: read the store before the
    /// next commit.
    Medium(String),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict => write!(f, "another process has changed the store"),
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
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Reads all records whose key starts with `prefix`, in key order.
    ///
    /// # Errors
    /// If the medium fails.
    fn list(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError>;

    /// Makes all changes if the expected record is as expected, else none.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn commit(&mut self, expected: &Expected, changes: &[Change]) -> Result<(), StoreError>;
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
        if let Some(value) = &change.value
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
    records: BTreeMap<String, Vec<u8>>,
    failures: u32,
    lost_answers: u32,
    delays: u32,
    /// Transactions that have not taken effect yet.
    late: Vec<(Expected, Vec<Change>)>,
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

    /// Makes the next `count` commits report a failure, and take effect at [`Self::land_late`] if their condition holds
    /// then.
    pub fn delay_commits(&mut self, count: u32) {
        self.delays = count;
    }

    /// Commits that were delayed take effect now, each if its condition holds. Returns how many did.
    pub fn land_late(&mut self) -> usize {
        let late = core::mem::take(&mut self.late);
        late.iter()
            .filter(|(expected, changes)| self.apply(expected, changes))
            .count()
    }

    /// Takes the records of another store. Delayed commits are on their way to whatever is here when they arrive.
    pub fn put_back(&mut self, copy: Self) {
        self.records = copy.records;
    }

    fn apply(&mut self, expected: &Expected, changes: &[Change]) -> bool {
        if self.records.get(&expected.key) != expected.value.as_ref() {
            return false;
        }
        for change in changes {
            match &change.value {
                Some(value) => self.records.insert(change.key.clone(), value.clone()),
                None => self.records.remove(&change.key),
            };
        }
        true
    }
}

impl Store for MemoryStore {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.records.get(key).cloned())
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let from = self
            .records
            .range::<str, _>((core::ops::Bound::Included(prefix), core::ops::Bound::Unbounded));
        Ok(from
            .take_while(|(key, _)| key.starts_with(prefix))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect())
    }

    fn commit(&mut self, expected: &Expected, changes: &[Change]) -> Result<(), StoreError> {
        check_limits(changes)?;
        if self.failures > 0 {
            self.failures -= 1;
            return Err(StoreError::Medium("simulated failure without effect".into()));
        }
        if self.delays > 0 {
            self.delays -= 1;
            self.late.push((expected.clone(), changes.to_vec()));
            return Err(StoreError::Medium("simulated failure before the commit".into()));
        }
        if !self.apply(expected, changes) {
            return Err(StoreError::Conflict);
        }
        if self.lost_answers > 0 {
            self.lost_answers -= 1;
            return Err(StoreError::Medium("simulated failure after the commit".into()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn absent(key: &str) -> Expected {
        Expected {
            key: key.into(),
            value: None,
        }
    }

    fn put(key: &str, value: u8) -> Change {
        Change {
            key: key.into(),
            value: Some(vec![value]),
        }
    }

    #[test]
    fn memory_store_passes_the_suite() {
        crate::store_suite::run(MemoryStore::new);
    }

    #[test]
    fn a_failed_commit_changes_nothing() {
        let mut store = MemoryStore::new();
        store.fail_commits(1);
        let refused = store.commit(&absent("a"), &[put("a", 1)]);
        assert!(matches!(refused, Err(StoreError::Medium(_))));
        assert_eq!(store.get("a").unwrap(), None);
        store.commit(&absent("a"), &[put("a", 1)]).unwrap();
    }

    #[test]
    fn a_late_commit_takes_effect_if_its_condition_still_holds() {
        for is_overtaken in [false, true] {
            let mut store = MemoryStore::new();
            store.delay_commits(1);
            let refused = store.commit(&absent("a"), &[put("a", 1)]);
            assert!(matches!(refused, Err(StoreError::Medium(_))));
            assert_eq!(store.get("a").unwrap(), None);
            if is_overtaken {
                store.commit(&absent("a"), &[put("a", 2)]).unwrap();
            }
            assert_eq!(store.land_late(), usize::from(!is_overtaken));
            assert_eq!(store.get("a").unwrap(), Some(vec![if is_overtaken { 2 } else { 1 }]));
        }
    }
}
