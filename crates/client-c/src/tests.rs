//! The header says what the library does. The functions themselves are tested from C, in tests/test_client_faces.py.

use crate::reply::Type;
use crate::status::{Problem, Status};
use crate::{border, command, settings};
use paritas_client_io::{Command, Decode, Encode};

const HEADER: &str = include_str!("../include/paritas.h");
const BORDER: &str = include_str!("border.rs");

#[test]
fn the_header_has_the_version_and_the_numbers_of_the_library() {
    assert!(HEADER.contains(&format!("#define PARITAS_VERSION {}u\n", border::version())));
    let names =
        |text: &str| HEADER.contains(&format!("\n    {text}\n")) || HEADER.contains(&format!("\n    {text},\n"));
    for (status, name) in Status::ALL {
        let line = format!("{} = {}", name.to_str().unwrap(), status as i32);
        assert!(names(&line), "{line}");
    }
    let types = [
        Type::Null,
        Type::String,
        Type::Text,
        Type::Integer,
        Type::Array,
        Type::Error,
    ];
    for kind in types {
        let line = format!("PARITAS_{} = {}", format!("{kind:?}").to_uppercase(), kind as i32);
        assert!(names(&line), "{line}");
    }
}

#[test]
fn the_header_has_all_functions_of_the_library_and_no_others() {
    let mut exported: Vec<&str> = BORDER
        .split("extern \"C\" fn ")
        .skip(1)
        .filter_map(|rest| rest.split('(').next())
        .collect();
    let mut declared: Vec<&str> = HEADER
        .lines()
        .filter(|line| !line.starts_with([' ', '/', '#']) && line.contains('('))
        .filter_map(|line| line.split('(').next()?.rsplit([' ', '*']).next())
        .collect();
    exported.sort_unstable();
    declared.sort_unstable();
    assert_eq!(exported, declared);
    assert!(exported.len() > 20, "{exported:?}");
}

#[test]
fn settings_are_read_and_what_is_wrong_is_named() {
    let read = settings::read(&[
        ("decode", "client"),
        ("encode", "server"),
        ("deadline_ms", "250"),
        ("password", "p"),
        ("ops_max", "3"),
        ("encode_bytes_min", "16385"),
    ]);
    let read = read.unwrap();
    assert_eq!(
        (read.decode, read.encode, read.ops_max, read.encode_bytes_min),
        (Decode::Client, Encode::Server, 3, 16_385)
    );
    assert_eq!(read.deadline, paritas_client_io::Span::from_ms(250));
    assert_eq!(read.password, Some((None, "p".to_owned())));
    let wrong = |pairs: &[(&str, &str)]| settings::read(pairs).map(drop).unwrap_err().text;
    assert!(wrong(&[("decod", "client")]).contains("the settings are decode, encode, user"));
    assert!(wrong(&[("decode", "both")]).contains("server, client or auto, not \"both\""));
    assert!(wrong(&[("encode", "")]).contains("encode is server, client or auto"));
    assert!(wrong(&[("deadline_ms", "0")]).contains("from 1 to 3600000"));
    assert!(wrong(&[("user", "me")]).contains("password"));
    assert!(settings::addresses("a:1, b:2").is_ok_and(|all| all == ["a:1", "b:2"]));
    for address in ["", "a", "a:", ":1", "a:0", "a:1,", "a:70000"] {
        assert!(settings::addresses(address).is_err(), "{address:?}");
    }
}

#[test]
fn a_command_that_changes_the_connection_is_refused() {
    let of = |words: &[&str], key| command::of_words(words.iter().map(|word| word.as_bytes().to_vec()).collect(), key);
    for words in [
        &["multi"][..],
        &["SELECT", "1"],
        &["client", "reply", "off"],
        &["Hello", "3"],
    ] {
        assert!(
            of(words, 0).is_err_and(|problem: Problem| problem.text.contains("share")),
            "{words:?}"
        );
    }
    assert!(of(&[], 0).is_err());
    assert!(of(&["GET", "k"], 2).is_err());
    assert_eq!(of(&["get", "k"], 1).unwrap(), Command::get(b"k"));
    assert!(of(&["CLIENT", "INFO"], 0).is_ok());
}
