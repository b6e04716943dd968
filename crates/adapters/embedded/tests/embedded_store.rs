//! The embedded store: the suite of all stores, and what only a file can do.

use paritas_control::store::{Change, Expected, Store, StoreError};
use paritas_embedded::EmbeddedStore;

fn put(key: &str, value: &[u8]) -> Change {
    Change {
        key: key.into(),
        value: Some(value.to_vec()),
    }
}

/// A condition that holds: the record of this key is not there.
fn absent(key: &str) -> Expected {
    Expected {
        key: key.into(),
        value: None,
    }
}

#[test]
fn passes_the_suite_of_all_stores() {
    let directory = tempfile::tempdir().unwrap();
    let mut count = 0;
    paritas_control::store_suite::run(|| {
        count += 1;
        EmbeddedStore::open(&directory.path().join(format!("{count}.redb"))).unwrap()
    });
}

#[test]
fn records_outlive_the_process() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("coordinator.redb");
    let mut store = EmbeddedStore::open(&path).unwrap();
    store.commit(&absent("a"), &[put("a", b"one")]).unwrap();
    drop(store);
    let mut store = EmbeddedStore::open(&path).unwrap();
    assert_eq!(store.get("a").unwrap(), Some(b"one".to_vec()));
    assert_eq!(
        store.commit(&absent("a"), &[put("b", b"two")]),
        Err(StoreError::Conflict)
    );
}

#[test]
fn a_store_that_is_open_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("coordinator.redb");
    let _open = EmbeddedStore::open(&path).unwrap();
    assert!(matches!(EmbeddedStore::open(&path), Err(StoreError::Medium(_))));
}

#[test]
fn a_file_that_is_no_store_is_refused_and_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("letter.txt");
    std::fs::write(&path, b"not a database, and longer than a few bytes").unwrap();
    let refused = EmbeddedStore::open(&path).map(|_| ());
    assert!(
        matches!(&refused, Err(StoreError::Medium(why)) if why.contains("letter.txt")),
        "{refused:?}"
    );
    assert_eq!(
        std::fs::read(&path).unwrap(),
        b"not a database, and longer than a few bytes"
    );
}
