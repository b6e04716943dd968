//! The embedded configuration store: the records of a coordinator in one redb file, for clusters with a single
//! coordinator process (PROTOCOL 10.1). Every commit is on disk when it returns.

use paritas_control::store::{Action, Change, Entry, Revision, Store, StoreError, check_limits};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use std::path::Path;

/// key → (revision, bytes).
const RECORDS: TableDefinition<'_, &str, (u64, &[u8])> = TableDefinition::new("records");
/// One entry, `revision`: the last one given out, so that a deleted record's is not used again.
const COUNTERS: TableDefinition<'_, &str, u64> = TableDefinition::new("counters");
const REVISION: &str = "revision";

/// A store in one file. The file is locked: a second process that opens it is refused.
#[derive(Debug)]
pub struct EmbeddedStore {
    database: Database,
}

impl EmbeddedStore {
    /// Opens the store in `path`, made empty if there is no such file.
    ///
    /// # Errors
    /// If the file cannot be made or read, is not such a store, or is open elsewhere.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let at = |e: String| StoreError::Medium(format!("{}: {e}", path.display()));
        let database = Database::create(path).map_err(|e| at(e.to_string()))?;
        let store = Self { database };
        store.make_tables().map_err(|e| at(e.to_string()))?;
        Ok(store)
    }

    fn make_tables(&self) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        transaction.open_table(RECORDS)?;
        transaction.open_table(COUNTERS)?;
        transaction.commit()?;
        Ok(())
    }

    fn read(&self, key: &str) -> Result<Option<Entry>, redb::Error> {
        let table = self.database.begin_read()?.open_table(RECORDS)?;
        Ok(table.get(key)?.map(|found| entry(found.value())))
    }

    fn read_from(&self, prefix: &str) -> Result<Vec<(String, Entry)>, redb::Error> {
        let table = self.database.begin_read()?.open_table(RECORDS)?;
        let mut records = Vec::new();
        for found in table.range(prefix..)? {
            let (key, value) = found?;
            if !key.value().starts_with(prefix) {
                break;
            }
            records.push((key.value().to_owned(), entry(value.value())));
        }
        Ok(records)
    }

    /// `Ok(Err(key))` if that record is not as expected; dropping the transaction undoes it.
    fn write(&self, changes: &[Change]) -> Result<Result<Revision, String>, redb::Error> {
        let transaction = self.database.begin_write()?;
        let revision;
        {
            let mut records = transaction.open_table(RECORDS)?;
            let mut counters = transaction.open_table(COUNTERS)?;
            let mut stale: Option<&str> = None;
            for change in changes {
                let found = records.get(change.key.as_str())?.map(|e| Revision(e.value().0));
                if found != change.expect && stale.is_none_or(|key| change.key.as_str() < key) {
                    stale = Some(&change.key);
                }
            }
            if let Some(key) = stale {
                return Ok(Err(key.to_owned()));
            }
            revision = counters.get(REVISION)?.map_or(0, |n| n.value()) + 1;
            counters.insert(REVISION, revision)?;
            for change in changes {
                match &change.action {
                    Action::Check => {}
                    Action::Put(value) => {
                        records.insert(change.key.as_str(), (revision, value.as_slice()))?;
                    }
                    Action::Delete => {
                        records.remove(change.key.as_str())?;
                    }
                }
            }
        }
        transaction.commit()?;
        Ok(Ok(Revision(revision)))
    }
}

fn entry((revision, value): (u64, &[u8])) -> Entry {
    Entry {
        value: value.to_vec(),
        revision: Revision(revision),
    }
}

fn medium(error: redb::Error) -> StoreError {
    StoreError::Medium(error.to_string())
}

impl Store for EmbeddedStore {
    fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        self.read(key).map_err(medium)
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, Entry)>, StoreError> {
        self.read_from(prefix).map_err(medium)
    }

    fn commit(&mut self, changes: &[Change]) -> Result<Revision, StoreError> {
        check_limits(changes)?;
        match self.write(changes) {
            Ok(Ok(revision)) => Ok(revision),
            Ok(Err(key)) => Err(StoreError::Conflict { key }),
            Err(error) => Err(medium(error)),
        }
    }
}
