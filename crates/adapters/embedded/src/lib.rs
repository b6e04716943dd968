//! The embedded configuration store: the records of a coordinator in one redb file, for clusters with a single
//! coordinator process (P10.1). Every commit is on disk when it returns.
//!
//! A file with wrong bytes is refused when it is opened: all of it is read then, and compared with its checksums.

mod damage;

use damage::Guard;
use paritas_control::store::{Change, Expected, Store, StoreError, check_limits};
use redb::{Database, ReadOnlyTable, ReadableDatabase, ReadableTable, TableDefinition, TableError};
use std::cell::RefCell;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The records: key → bytes.
const RECORDS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("records");

/// Device and number of a file. Another file at the same path has another one.
type FileId = (u64, u64);

fn file_id(path: &Path) -> Option<FileId> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// The database, once all its bytes were compared with their checksums. If only bytes of the newest commit are wrong,
/// it goes back to the commit before: it is an old copy then, which the coordinator learns from the nodes (P10.16).
fn checked(mut database: Database) -> Result<Database, redb::Error> {
    database.check_integrity()?;
    Ok(database)
}

/// `None`: another program has put a file there that has no records.
fn records(database: &Database) -> Result<Option<ReadOnlyTable<&'static str, &'static [u8]>>, redb::Error> {
    match database.begin_read()?.open_table(RECORDS) {
        Ok(table) => Ok(Some(table)),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A store in one file. The file is locked: a second process that opens it is refused.
#[derive(Debug)]
pub struct EmbeddedStore {
    path: PathBuf,
    /// With the number of the file. `None` after an error of the medium. After one failure, redb serves nothing from a
    /// file until it is opened again. The next call opens it, because a full disk may have space again.
    database: RefCell<Option<(Database, Option<FileId>)>>,
}

impl EmbeddedStore {
    /// Opens the store in `path`. If the file does not exist, an empty store is created.
    ///
    /// # Errors
    /// If the file cannot be created or read, is not such a store, is damaged, or is open in another process.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let _guard = Guard::begin(path);
        let failed = |error: redb::Error| StoreError::Medium(damage::describe(path, &error));
        let database = Database::create(path).map_err(|error| failed(error.into()))?;
        let database = checked(database).map_err(failed)?;
        Self::make_tables(&database).map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            database: RefCell::new(Some((database, file_id(path)))),
        })
    }

    /// Runs `run` on the file, which is opened first if it is not open. It is not created then: an empty file would be
    /// in the way of one that is put back.
    fn with<T>(&self, run: impl FnOnce(&Database) -> Result<T, redb::Error>) -> Result<T, StoreError> {
        // The last to be dropped: redb also writes when it closes the file.
        let _guard = Guard::begin(&self.path);
        let failed = |error: redb::Error| StoreError::Medium(damage::describe(&self.path, &error));
        let mut open = self.database.borrow_mut();
        let now = file_id(&self.path);
        let (database, file) = match open.take() {
            // A file that was removed is still this process's.
            Some((database, file)) if now.is_none() || now == file => (database, file),
            // Another file is in its place. The coordinator learns from its head whether it is newer or older.
            other => {
                drop(other);
                let database = Database::open(&self.path).map_err(|error| failed(error.into()))?;
                (checked(database).map_err(failed)?, file_id(&self.path))
            }
        };
        let outcome = run(&database).map_err(failed)?;
        *open = Some((database, file));
        Ok(outcome)
    }

    fn make_tables(database: &Database) -> Result<(), redb::Error> {
        let transaction = database.begin_write()?;
        transaction.open_table(RECORDS)?;
        transaction.commit()?;
        Ok(())
    }

    fn read(database: &Database, key: &str) -> Result<Option<Vec<u8>>, redb::Error> {
        let Some(table) = records(database)? else {
            return Ok(None);
        };
        Ok(table.get(key)?.map(|found| found.value().to_vec()))
    }

    fn read_from(database: &Database, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, redb::Error> {
        let mut found_records = Vec::new();
        let Some(table) = records(database)? else {
            return Ok(found_records);
        };
        for found in table.range(prefix..)? {
            let (key, value) = found?;
            if !key.value().starts_with(prefix) {
                break;
            }
            found_records.push((key.value().to_owned(), value.value().to_vec()));
        }
        Ok(found_records)
    }

    /// Makes all changes if the expected record is as expected, else none: dropping the transaction undoes it. Returns
    /// whether it was.
    fn write(database: &Database, expected: &Expected, changes: &[Change]) -> Result<bool, redb::Error> {
        let transaction = database.begin_write()?;
        {
            let mut records = transaction.open_table(RECORDS)?;
            let found = records.get(expected.key.as_str())?.map(|found| found.value().to_vec());
            if found != expected.value {
                return Ok(false);
            }
            for change in changes {
                match &change.value {
                    Some(value) => records.insert(change.key.as_str(), value.as_slice())?,
                    None => records.remove(change.key.as_str())?,
                };
            }
        }
        transaction.commit()?;
        Ok(true)
    }
}

impl Store for EmbeddedStore {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.with(|database| Self::read(database, key))
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.with(|database| Self::read_from(database, prefix))
    }

    fn commit(&mut self, expected: &Expected, changes: &[Change]) -> Result<(), StoreError> {
        check_limits(changes)?;
        match self.with(|database| Self::write(database, expected, changes))? {
            true => Ok(()),
            false => Err(StoreError::Conflict),
        }
    }
}
