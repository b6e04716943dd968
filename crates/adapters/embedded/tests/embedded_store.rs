//! The embedded store: the suite of all stores, and what only a file can do.

use paritas_control::store::{Change, Expected, Store, StoreError};
use paritas_embedded::EmbeddedStore;
use std::path::Path;
use std::process::{Command, Output};

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
        matches!(&refused, Err(StoreError::Medium(why)) if why.contains("letter.txt") && why.contains("--adopt")),
        "{refused:?}"
    );
    assert_eq!(
        std::fs::read(&path).unwrap(),
        b"not a database, and longer than a few bytes"
    );
}

/// A copy of a store of several commits. `is_closed`: its process ended in good order.
fn store_in(directory: &Path, is_closed: bool) -> Vec<u8> {
    let path = directory.join("coordinator.redb");
    let mut store = EmbeddedStore::open(&path).unwrap();
    for n in 0..20u8 {
        let changes: Vec<Change> = (0..10).map(|i| put(&format!("list/{n}/{i}"), &[n; 300])).collect();
        store.commit(&absent("nothing"), &changes).unwrap();
    }
    store.commit(&absent("nothing"), &[put("newest", b"one")]).unwrap();
    if is_closed {
        drop(store);
        return std::fs::read(&path).unwrap();
    }
    std::fs::read(&path).unwrap()
}

const STORE: &str = "PARITAS_TEST_STORE";

/// Not a test of its own: the process that opens a damaged store, as a coordinator does when it starts.
#[test]
fn reads_the_store_that_the_environment_names() {
    let Ok(path) = std::env::var(STORE) else { return };
    match EmbeddedStore::open(Path::new(&path)).and_then(|store| store.list("")) {
        Ok(records) => {
            let is_whole = records.iter().all(|(key, value)| match key.split('/').nth(1) {
                Some(n) => *value == [n.parse().unwrap(); 300],
                None => value == b"one",
            });
            assert!(is_whole, "other values");
            println!("has {} records", records.len());
        }
        Err(error) => {
            eprintln!("refused: {error}");
            std::process::exit(1);
        }
    }
}

fn open_in_another_process(path: &Path) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "reads_the_store_that_the_environment_names", "--nocapture"]);
    command.env(STORE, path).env("RUST_BACKTRACE", "0").output().unwrap()
}

#[test]
fn a_flipped_bit_is_harmless_or_an_error_that_says_what_to_do() {
    let flips: usize = std::env::var("FLIPS").ok().and_then(|n| n.parse().ok()).unwrap_or(80);
    let mut counts = std::collections::BTreeMap::<&str, u32>::new();
    for is_closed in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let sound = store_in(directory.path(), is_closed);
        let path = directory.path().join("flipped.redb");
        // Half of them in the header, the others in bytes that are used.
        let used: Vec<usize> = (320..sound.len()).filter(|at| sound[*at] != 0).collect();
        let header = (0..320).step_by((640 / flips).max(1));
        let places = header.chain(used.iter().copied().step_by((2 * used.len() / flips).max(1)));
        for (n, at) in places.enumerate() {
            let mut bytes = sound.clone();
            bytes[at] ^= 1 << (n % 8);
            std::fs::write(&path, &bytes).unwrap();
            let done = open_in_another_process(&path);
            let (says, errs) = (
                String::from_utf8_lossy(&done.stdout),
                String::from_utf8_lossy(&done.stderr),
            );
            let kind = match done.status.code() {
                Some(0) if says.contains("has 201 records") => "harmless",
                Some(0) if says.contains("has 200 records") => "as before the newest commit",
                Some(1) if errs.contains("flipped.redb") && errs.contains("--adopt") => "refused",
                _ => panic!("closed: {is_closed}, byte {at}: {:?}: {says} {errs}", done.status),
            };
            *counts.entry(kind).or_default() += 1;
        }
    }
    println!("{counts:?}");
}

#[test]
fn a_file_that_takes_the_place_of_an_open_store_is_seen_by_the_next_commit() {
    let directory = tempfile::tempdir().unwrap();
    let (path, other) = (directory.path().join("a.redb"), directory.path().join("b.redb"));
    let mut copy = EmbeddedStore::open(&other).unwrap();
    copy.commit(&absent("head"), &[put("head", b"old")]).unwrap();
    drop(copy);
    let mut store = EmbeddedStore::open(&path).unwrap();
    store.commit(&absent("head"), &[put("head", b"new")]).unwrap();
    std::fs::rename(&other, &path).unwrap();
    let expected = Expected {
        key: "head".into(),
        value: Some(b"new".to_vec()),
    };
    let refused = store.commit(&expected, &[put("head", b"newer")]);
    assert_eq!(refused, Err(StoreError::Conflict));
    assert_eq!(store.get("head").unwrap(), Some(b"old".to_vec()));
}
