use super::*;

fn store_of(line: &[u8]) -> Store<'_> {
    match parse(line) {
        Ok(Request::Store(store)) => store,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_line_that_stores_says_how_much_comes() {
    let store = store_of(b"set  key 7 -1 300 noreply");
    assert_eq!((store.key, store.flags, store.exptime), (&b"key"[..], 7, -1));
    assert_eq!((store.data_bytes, store.cas, store.how), (300, None, How::Set));
    assert_eq!(store_of(b"cas k 0 0 1 18446744073709551615").cas, Some(u64::MAX));
    for wrong in [
        &b"set k 0 0 -1"[..],
        b"set k x 0 1",
        b"set k 0 0 2147483646",
        b"cas k 0 0 1 x",
    ] {
        assert_eq!(parse(wrong), Err(BAD_LINE), "{wrong:?}");
    }
    for no_command in [
        &b"set k 0 0"[..],
        b"cas k 0 0 1",
        b"set k 0 0 1 a b",
        b"SET k 0 0 1",
        b"",
        b" ",
    ] {
        assert_eq!(parse(no_command), Err(Refusal::NoCommand), "{no_command:?}");
    }
}

#[test]
fn keys_of_a_line_are_checked_before_the_first_is_read() {
    let longest = vec![b'k'; KEY_BYTES_MAX];
    assert!(parse(&[b"get a ", &longest[..]].concat()).is_ok());
    assert_eq!(parse(&[b"get a ", &longest[..], b"k"].concat()), Err(BAD_LINE));
    assert_eq!(parse(b"get  "), Err(Refusal::NoCommand));
    assert_eq!(
        get(b"gats 5 a b").map(|get| (get.has_cas, get.exptime, get.keys)),
        Ok((true, Some(5), &b" a b"[..]))
    );
    assert_eq!(get(b"get").map(|get| get.keys), Ok(&b""[..]));
}

#[test]
fn a_number_ends_at_a_space_and_nowhere_else() {
    assert_eq!(counter(b"98 "), Some(98));
    assert_eq!(counter(b"0  5"), Some(0));
    assert_eq!(counter(b"18446744073709551615"), Some(u64::MAX));
    for no_number in [&b""[..], b" ", b"18446744073709551616", b"-1", b"1x", b"x"] {
        assert_eq!(counter(no_number), None, "{no_number:?}");
    }
}
