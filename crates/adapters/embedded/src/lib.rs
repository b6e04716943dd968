//! The embedded configuration store: the records of a coordinator in one redb file, for clusters with a single
//! coordinator process (P10.1). Every commit is on disk when it returns.
//!
//! A file with wrong bytes is refused when it is opened: all of it is read then, and compared with its checksums.

mod damage;

use damage::Guard;
use paritas_control::store::{Action, Change, Entry, Revision, Store, StoreError, check_limits};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use std::cell::RefCell;
use std::path::{Path, PathBuf};

/// The records: key → (revision, bytes).
const RECORDS: TableDefinition<'_, &str, (u64, &[u8])> = TableDefinition::new("records");
/// One entry, `revision`: the newest revision of any record. It is kept so that the revision of a deleted record is not
/// used again.
const COUNTERS: TableDefinition<'_, &str, u64> = TableDefinition::new("counters");
const REVISION: &str = "revision";

/// A store in one file. The file is locked: a second process that opens it is refused.
#[derive(Debug)]
pub struct EmbeddedStore {
    path: PathBuf,
    /// `None` after an error of the medium. After one failure, redb serves nothing from a file until it is opened
    /// again. The next call opens it, because a full disk may have space again.
    database: RefCell<Option<Database>>,
}

impl EmbeddedStore {
    /// Opens the store in `path`. If the file does not exist, an empty store is created.
    ///
    /// # Errors
    /// If the file cannot be created or read, is not such a store, is damaged, or is open in another process.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let store = Self {
            path: path.to_owned(),
            database: RefCell::new(None),
        };
        store.with(Self::make_tables)?;
        Ok(store)
    }

    /// Runs `run` on the file, which is opened first if it is not open.
    fn with<T>(&self, run: impl FnOnce(&Database) -> Result<T, redb::Error>) -> Result<T, StoreError> {
        // The last to be dropped: redb also writes when it closes the file.
        let _guard = Guard::begin(&self.path);
        let failed = |error: redb::Error| StoreError::Medium(damage::describe(&self.path, &error));
        let mut open = self.database.borrow_mut();
        let database = match open.take() {
            Some(database) => database,
            None => self.open_file().map_err(failed)?,
        };
        let outcome = run(&database).map_err(failed)?;
        *open = Some(database);
        Ok(outcome)
    }

    fn open_file(&self) -> Result<Database, redb::Error> {
        let mut database = Database::create(&self.path)?;
        // If only bytes of the newest commit are wrong, this takes the store back to the commit before: it is an old
        // copy then, which the coordinator learns from the nodes (P10.16).
        database.check_integrity()?;
        Ok(database)
    }

    fn make_tables(database: &Database) -> Result<(), redb::Error> {
        let transaction = database.begin_write()?;
        transaction.open_table(RECORDS)?;
        transaction.open_table(COUNTERS)?;
        transaction.commit()?;
        Ok(())
    }

    fn read(database: &Database, key: &str) -> Result<Option<Entry>, redb::Error> {
        let table = database.begin_read()?.open_table(RECORDS)?;
        Ok(table.get(key)?.map(|found| entry(found.value())))
    }

    fn read_from(database: &Database, prefix: &str) -> Result<Vec<(String, Entry)>, redb::Error> {
        let table = database.begin_read()?.open_table(RECORDS)?;
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

    /// Makes all changes or none. `Ok(Err(key))`: the record of `key` does not have the expected revision. Dropping the
    /// transaction undoes it.
    fn write(database: &Database, changes: &[Change]) -> Result<Result<Revision, String>, redb::Error> {
        let transaction = database.begin_write()?;
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

impl Store for EmbeddedStore {
    fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        self.with(|database| Self::read(database, key))
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, Entry)>, StoreError> {
        self.with(|database| Self::read_from(database, prefix))
    }

    fn commit(&mut self, changes: &[Change]) -> Result<Revision, StoreError> {
        check_limits(changes)?;
        let outcome = self.with(|database| Self::write(database, changes))?;
        outcome.map_err(|key| StoreError::Conflict { key })
    }
}
