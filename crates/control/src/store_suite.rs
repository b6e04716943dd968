//! Tests of the behaviour that every configuration store must have. The store in memory and each adapter run them.

use crate::store::{Change, Expected, KEY_BYTES_MAX, Store, StoreError, VALUE_BYTES_MAX};

/// Runs every case, each on an empty store from `make`.
///
/// # Panics
/// If the store violates its contract.
pub fn run<S: Store>(mut make: impl FnMut() -> S) {
    an_empty_store_has_nothing(make());
    a_record_is_read_back(make());
    a_record_is_made_once(make());
    other_bytes_than_expected_are_refused(make());
    a_transaction_is_all_or_nothing(make());
    bytes_that_came_back_are_as_expected(make());
    deleted_is_absent(make());
    a_prefix_lists_in_order(make());
    limits_hold(make());
}

fn expect(key: &str, value: Option<&[u8]>) -> Expected {
    Expected {
        key: key.into(),
        value: value.map(<[u8]>::to_vec),
    }
}

fn put(key: &str, value: &[u8]) -> Change {
    Change {
        key: key.into(),
        value: Some(value.to_vec()),
    }
}

fn read<S: Store>(store: &S, key: &str) -> Option<Vec<u8>> {
    store.get(key).expect("a readable store")
}

fn an_empty_store_has_nothing<S: Store>(store: S) {
    assert_eq!(read(&store, "a"), None);
    assert_eq!(store.list("").expect("a readable store"), []);
}

fn a_record_is_read_back<S: Store>(mut store: S) {
    let changes = [put("a", b"one"), put("b", b"")];
    store.commit(&expect("a", None), &changes).expect("new records");
    assert_eq!(read(&store, "a"), Some(b"one".to_vec()));
    assert_eq!(read(&store, "b"), Some(vec![]));
}

fn a_record_is_made_once<S: Store>(mut store: S) {
    store
        .commit(&expect("a", None), &[put("a", b"one")])
        .expect("a new record");
    let again = store.commit(&expect("a", None), &[put("a", b"two")]);
    assert_eq!(again, Err(StoreError::Conflict));
    assert_eq!(read(&store, "a"), Some(b"one".to_vec()));
}

fn other_bytes_than_expected_are_refused<S: Store>(mut store: S) {
    let absent = store.commit(&expect("head", Some(b"")), &[put("a", b"x")]);
    assert_eq!(
        absent,
        Err(StoreError::Conflict),
        "an absent record is not an empty one"
    );
    store
        .commit(&expect("head", None), &[put("head", b"1")])
        .expect("a new record");
    let changes = [put("head", b"2"), put("a", b"x")];
    store
        .commit(&expect("head", Some(b"1")), &changes)
        .expect("the right bytes");
    let late = store.commit(&expect("head", Some(b"1")), &[put("head", b"3"), put("a", b"y")]);
    assert_eq!(late, Err(StoreError::Conflict));
    assert_eq!(
        (read(&store, "head"), read(&store, "a")),
        (Some(b"2".to_vec()), Some(b"x".to_vec()))
    );
}

fn a_transaction_is_all_or_nothing<S: Store>(mut store: S) {
    store
        .commit(&expect("b", None), &[put("b", b"one")])
        .expect("a new record");
    let changes = [put("a", b"x"), put("b", b"y"), put("c", b"z")];
    assert_eq!(store.commit(&expect("b", None), &changes), Err(StoreError::Conflict));
    assert_eq!((read(&store, "a"), read(&store, "c")), (None, None));
    assert_eq!(read(&store, "b"), Some(b"one".to_vec()));
}

fn bytes_that_came_back_are_as_expected<S: Store>(mut store: S) {
    for value in [b"1", b"2", b"1"] {
        let now = read(&store, "a");
        store
            .commit(&expect("a", now.as_deref()), &[put("a", value)])
            .expect("the bytes that were read");
    }
    store
        .commit(&expect("a", Some(b"1")), &[put("b", b"x")])
        .expect("bytes are compared, not the transaction that wrote them");
}

fn deleted_is_absent<S: Store>(mut store: S) {
    store
        .commit(&expect("a", None), &[put("a", b"one")])
        .expect("a new record");
    let delete = Change {
        key: "a".into(),
        value: None,
    };
    store
        .commit(&expect("a", Some(b"one")), core::slice::from_ref(&delete))
        .expect("the right bytes");
    assert_eq!(read(&store, "a"), None);
    let again = store.commit(&expect("a", Some(b"one")), &[delete]);
    assert_eq!(again, Err(StoreError::Conflict));
    store
        .commit(&expect("a", None), &[put("a", b"two")])
        .expect("absent again");
}

fn a_prefix_lists_in_order<S: Store>(mut store: S) {
    for key in ["list/2", "list", "node/1", "list/10", "lisu", "list/1"] {
        store
            .commit(&expect(key, None), &[put(key, key.as_bytes())])
            .expect("a new record");
    }
    let keys = |prefix: &str| -> Vec<String> {
        let records = store.list(prefix).expect("a readable store");
        assert!(records.iter().all(|(key, value)| value == key.as_bytes()));
        records.into_iter().map(|(key, _)| key).collect()
    };
    assert_eq!(keys("list/"), ["list/1", "list/10", "list/2"]);
    assert_eq!(keys("").len(), 6);
    assert!(keys("z").is_empty());
}

fn limits_hold<S: Store>(mut store: S) {
    let any = expect("head", None);
    let refused = |outcome: Result<(), StoreError>| assert!(matches!(outcome, Err(StoreError::Invalid(_))));
    refused(store.commit(&any, &[]));
    refused(store.commit(&any, &[put("", b"x")]));
    refused(store.commit(&any, &[put(&"k".repeat(KEY_BYTES_MAX + 1), b"x")]));
    refused(store.commit(&any, &[put("a", b"x"), put("a", b"y")]));
    refused(store.commit(&any, &[put("a", &vec![0; VALUE_BYTES_MAX + 1])]));
    assert_eq!(store.list("").expect("a readable store"), []);
    store
        .commit(&any, &[put(&"k".repeat(KEY_BYTES_MAX), &vec![7; VALUE_BYTES_MAX])])
        .expect("the largest allowed key and value");
}
