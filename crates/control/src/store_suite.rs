//! Tests of the behaviour that every configuration store must have. The store in memory and each adapter run them.

use crate::store::{Action, Change, Entry, KEY_BYTES_MAX, Revision, Store, StoreError, VALUE_BYTES_MAX};

/// Runs every case, each on an empty store from `make`.
///
/// # Panics
/// If the store violates its contract.
pub fn run<S: Store>(mut make: impl FnMut() -> S) {
    an_empty_store_has_nothing(make());
    a_record_is_read_back(make());
    a_record_is_made_once(make());
    an_old_revision_is_refused(make());
    a_transaction_is_all_or_nothing(make());
    a_check_guards_others(make());
    deleted_is_absent(make());
    revisions_grow(make());
    a_prefix_lists_in_order(make());
    limits_hold(make());
}

fn put(key: &str, expect: Option<Revision>, value: &[u8]) -> Change {
    Change {
        key: key.into(),
        expect,
        action: Action::Put(value.to_vec()),
    }
}

fn read<S: Store>(store: &S, key: &str) -> Option<Entry> {
    store.get(key).expect("a readable store")
}

fn an_empty_store_has_nothing<S: Store>(store: S) {
    assert_eq!(read(&store, "a"), None);
    assert_eq!(store.list("").expect("a readable store"), []);
}

fn a_record_is_read_back<S: Store>(mut store: S) {
    let revision = store
        .commit(&[put("a", None, b"one"), put("b", None, b"")])
        .expect("new records");
    assert_ne!(revision, Revision(0));
    assert_eq!(
        read(&store, "a"),
        Some(Entry {
            value: b"one".to_vec(),
            revision
        })
    );
    assert_eq!(
        read(&store, "b"),
        Some(Entry {
            value: vec![],
            revision
        })
    );
}

fn a_record_is_made_once<S: Store>(mut store: S) {
    store.commit(&[put("a", None, b"one")]).expect("a new record");
    let again = store.commit(&[put("a", None, b"two")]);
    assert_eq!(again, Err(StoreError::Conflict { key: "a".into() }));
    assert_eq!(read(&store, "a").map(|e| e.value), Some(b"one".to_vec()));
}

fn an_old_revision_is_refused<S: Store>(mut store: S) {
    let first = store.commit(&[put("a", None, b"one")]).expect("a new record");
    let second = store
        .commit(&[put("a", Some(first), b"two")])
        .expect("the right revision");
    let late = store.commit(&[put("a", Some(first), b"three")]);
    assert_eq!(late, Err(StoreError::Conflict { key: "a".into() }));
    assert_eq!(
        read(&store, "a"),
        Some(Entry {
            value: b"two".to_vec(),
            revision: second
        })
    );
    let absent = store.commit(&[put("b", Some(second), b"x")]);
    assert_eq!(absent, Err(StoreError::Conflict { key: "b".into() }));
}

fn a_transaction_is_all_or_nothing<S: Store>(mut store: S) {
    let first = store.commit(&[put("b", None, b"one")]).expect("a new record");
    let changes = [put("a", None, b"x"), put("b", None, b"y"), put("c", None, b"z")];
    assert_eq!(store.commit(&changes), Err(StoreError::Conflict { key: "b".into() }));
    assert_eq!(read(&store, "a"), None);
    assert_eq!(read(&store, "c"), None);
    assert_eq!(
        read(&store, "b"),
        Some(Entry {
            value: b"one".to_vec(),
            revision: first
        })
    );
}

fn a_check_guards_others<S: Store>(mut store: S) {
    let first = store.commit(&[put("leader", None, b"1")]).expect("a new record");
    let check = |expect| Change {
        key: "leader".into(),
        expect,
        action: Action::Check,
    };
    store
        .commit(&[check(Some(first)), put("a", None, b"x")])
        .expect("the leader is the same");
    let after = read(&store, "leader").expect("a check does not remove the record");
    assert_eq!(after.revision, first, "a check must not change the revision");
    store
        .commit(&[put("leader", Some(first), b"2")])
        .expect("another leader");
    let stale = store.commit(&[check(Some(first)), put("b", None, b"x")]);
    assert_eq!(stale, Err(StoreError::Conflict { key: "leader".into() }));
    assert_eq!(read(&store, "b"), None);
}

fn deleted_is_absent<S: Store>(mut store: S) {
    let first = store.commit(&[put("a", None, b"one")]).expect("a new record");
    let delete = Change {
        key: "a".into(),
        expect: Some(first),
        action: Action::Delete,
    };
    store
        .commit(core::slice::from_ref(&delete))
        .expect("the right revision");
    assert_eq!(read(&store, "a"), None);
    assert_eq!(store.commit(&[delete]), Err(StoreError::Conflict { key: "a".into() }));
    let again = store.commit(&[put("a", None, b"two")]).expect("absent again");
    assert!(again > first, "revisions must grow");
}

fn revisions_grow<S: Store>(mut store: S) {
    let mut last = Revision(0);
    for n in 0..20 {
        let revision = store
            .commit(&[put(&format!("k{n}"), None, b"v")])
            .expect("a new record");
        assert!(revision > last);
        last = revision;
    }
}

fn a_prefix_lists_in_order<S: Store>(mut store: S) {
    for key in ["list/2", "list", "node/1", "list/10", "lisu", "list/1"] {
        store.commit(&[put(key, None, key.as_bytes())]).expect("a new record");
    }
    let keys = |prefix: &str| -> Vec<String> {
        let records = store.list(prefix).expect("a readable store");
        assert!(records.iter().all(|(key, entry)| entry.value == key.as_bytes()));
        records.into_iter().map(|(key, _)| key).collect()
    };
    assert_eq!(keys("list/"), ["list/1", "list/10", "list/2"]);
    assert_eq!(keys("").len(), 6);
    assert!(keys("z").is_empty());
}

fn limits_hold<S: Store>(mut store: S) {
    let refused = |outcome: Result<Revision, StoreError>| assert!(matches!(outcome, Err(StoreError::Invalid(_))));
    refused(store.commit(&[]));
    refused(store.commit(&[put("", None, b"x")]));
    refused(store.commit(&[put(&"k".repeat(KEY_BYTES_MAX + 1), None, b"x")]));
    refused(store.commit(&[put("a", None, b"x"), put("a", None, b"y")]));
    refused(store.commit(&[put("a", None, &vec![0; VALUE_BYTES_MAX + 1])]));
    assert_eq!(store.list("").expect("a readable store"), []);
    store
        .commit(&[put(&"k".repeat(KEY_BYTES_MAX), None, &vec![7; VALUE_BYTES_MAX])])
        .expect("the largest allowed key and value");
}
