//! The request decoder accepts what Redis accepts, and refuses what Redis refuses in the same words. Neither depends on
//! how the bytes arrive.

use paritas_wire::resp::{Args, Decoded, Limits, ProtocolError, argument, decode, decode_more, encode};
use proptest::prelude::*;
use redis_protocol::resp2::types::Resp2Frame;

type Commands = Vec<Vec<Vec<u8>>>;

/// Small limits, so that random input reaches them.
const TIGHT: Limits = Limits {
    bulk_bytes_max: 64,
    whole_bytes_max: 48,
    args_max: 8,
    inline_bytes_max: 48,
    request_bytes_max: 256,
    authenticated: true,
};

/// What is known of a command whose next argument is long: the arguments before it, and the line with its length.
fn beginning(args: &Args, input: &[u8], line: usize, start: usize, bytes: usize) -> Vec<Vec<u8>> {
    assert!(
        bytes > TIGHT.whole_bytes_max,
        "an argument of {bytes} bytes is not long"
    );
    let known = args.list(input).iter().map(<[u8]>::to_vec);
    known.chain([input[line..start].to_vec()]).collect()
}

/// All commands of a byte stream, and the error that ends it, if any.
fn whole(mut input: &[u8], limits: &Limits) -> (Commands, Option<ProtocolError>) {
    let (mut args, mut commands) = (Args::new(), Vec::new());
    loop {
        match decode(input, limits, &mut args) {
            Ok(Decoded::Complete { consumed }) => {
                commands.push(args.list(input).iter().map(<[u8]>::to_vec).collect());
                input = &input[consumed..];
            }
            Ok(Decoded::Long { line, start, bytes }) => {
                commands.push(beginning(&args, input, line, start, bytes));
                return (commands, None);
            }
            Ok(Decoded::Incomplete { needed }) => {
                assert!(needed > input.len(), "`needed` is not more than the input has");
                return (commands, None);
            }
            Err(error) => return (commands, Some(error)),
        }
    }
}

/// The same for a byte stream in pieces that end at `cuts`, by `decode_more`.
fn in_pieces(input: &[u8], cuts: impl Iterator<Item = usize>, limits: &Limits) -> (Commands, Option<ProtocolError>) {
    let (mut args, mut commands) = (Args::new(), Vec::new());
    let (mut from, mut going_on, mut needed) = (0, false, 0);
    for to in cuts.chain([input.len()]) {
        loop {
            let here = &input[from..to];
            if going_on && here.len() < needed {
                break;
            }
            let result = if going_on {
                decode_more(here, limits, &mut args)
            } else {
                decode(here, limits, &mut args)
            };
            match result {
                Ok(Decoded::Complete { consumed }) => {
                    commands.push(args.list(here).iter().map(<[u8]>::to_vec).collect());
                    (from, going_on) = (from + consumed, false);
                }
                Ok(Decoded::Long { line, start, bytes }) => {
                    commands.push(beginning(&args, here, line, start, bytes));
                    return (commands, None);
                }
                Ok(Decoded::Incomplete { needed: n }) => {
                    (going_on, needed) = (true, n);
                    break;
                }
                Err(error) => return (commands, Some(error)),
            }
        }
    }
    (commands, None)
}

fn one(input: &[u8]) -> Vec<Vec<u8>> {
    let (mut commands, error) = whole(input, &Limits::DEFAULT);
    assert_eq!((commands.len(), error), (1, None), "{}", input.escape_ascii());
    commands.remove(0)
}

fn refusal(input: &[u8]) -> String {
    let (_, error) = whole(input, &Limits::DEFAULT);
    let mut reply = Vec::new();
    error
        .unwrap_or_else(|| panic!("accepted: {}", input.escape_ascii()))
        .append_to(&mut reply);
    String::from_utf8(reply).unwrap()
}

#[test]
fn a_command_is_an_array_of_bulk_strings() {
    let input = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$12\r\nvalue\r\nvalue\r\n";
    assert_eq!(one(input), [&b"SET"[..], b"k", b"value\r\nvalue"]);
    assert_eq!(one(b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n"), [&b"GET"[..], b""]);
}

#[test]
fn nothing_to_execute_is_a_command_of_no_arguments() {
    for input in [&b"*0\r\n"[..], b"*-1\r\n", b"*-10\r\n", b"\r\n", b"\n", b"   \r\n"] {
        assert_eq!(one(input), Vec::<Vec<u8>>::new());
    }
}

#[test]
fn inline_commands_are_quoted_as_in_redis() {
    for (line, expected) in [
        ("PING\r\n", vec!["PING"]),
        ("  set  k\tv \n", vec!["set", "k", "v"]),
        (
            r#"set k "a b\n\x41\"" 'it\'s \n'"#,
            vec!["set", "k", "a b\nA\"", r"it's \n"],
        ),
        (r#"set "" ''"#, vec!["set", "", ""]),
        (r#"a"b c""#, vec!["ab c"]),
        (r#""\xZZ\q""#, vec!["xZZq"]),
    ] {
        assert_eq!(
            one(format!("{}\n", line.trim_end()).as_bytes()),
            expected_bytes(&expected)
        );
    }
    assert_eq!(one(b"echo \"\\xff\\x00\"\r\n"), [&b"echo"[..], b"\xff\0"]);
}

fn expected_bytes(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|w| w.as_bytes().to_vec()).collect()
}

#[test]
fn refusals_have_the_words_of_redis() {
    let long = vec![b'0'; 65_537];
    let prefixed = |prefix: &[u8]| [prefix, &long].concat();
    for (input, text) in [
        (b"*3000000000\r\n".to_vec(), "invalid multibulk length"),
        (b"*1048577\r\n".to_vec(), "invalid multibulk length"),
        (b"*x\r\n".to_vec(), "invalid multibulk length"),
        (b"*\r\n".to_vec(), "invalid multibulk length"),
        (b"*+1\r\n".to_vec(), "invalid multibulk length"),
        (b"*01\r\n".to_vec(), "invalid multibulk length"),
        (b"*1\r\nfoo\r\n".to_vec(), "expected '$', got 'f'"),
        (
            b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\nfooz\r\n".to_vec(),
            "expected '$', got 'f'",
        ),
        (b"*1\r\n\r\n".to_vec(), "expected '$', got ' '"),
        (b"*1\r\n$-10\r\n".to_vec(), "invalid bulk length"),
        (b"*1\r\n$-1\r\n".to_vec(), "invalid bulk length"),
        (b"*1\r\n$2000000000\r\n".to_vec(), "invalid bulk length"),
        (b"*1\r\n$99999999999999999999\r\n".to_vec(), "invalid bulk length"),
        (b"*1\r\n$blabla\r\n".to_vec(), "invalid bulk length"),
        (b"*1\r\n$3\r\nGETX\r\n".to_vec(), "invalid bulk length"),
        (b"set \"\"\"k\"\"\" v\r\n".to_vec(), "unbalanced quotes in request"),
        (b"set 'k\r\n".to_vec(), "unbalanced quotes in request"),
        (b"echo a\0b\r\n".to_vec(), "NUL in inline request"),
        (prefixed(b""), "too big inline request"),
        (prefixed(b"*"), "too big mbulk count string"),
        (prefixed(b"*1\r\n$"), "too big bulk count string"),
        (b"POST / HTTP/1.1\r\n".to_vec(), "HTTP request"),
    ] {
        let expected = format!("-ERR Protocol error: {text}\r\n");
        assert_eq!(refusal(&input), expected, "{}", input.escape_ascii());
    }
}

#[test]
fn before_auth_lengths_are_short_and_the_refusal_says_so() {
    for (input, text) in [
        (&b"*11\r\n"[..], "unauthenticated multibulk length"),
        (b"*1\r\n$16385\r\n", "unauthenticated bulk length"),
    ] {
        let (_, error) = whole(input, &Limits::UNAUTHENTICATED);
        assert_eq!(error.unwrap().to_string(), format!("ERR Protocol error: {text}"));
    }
}

#[test]
fn limits_are_inclusive() {
    let line = |bytes| [vec![b'x'; bytes], b"\n".to_vec()].concat();
    assert_eq!(whole(&line(48), &TIGHT).1, None);
    assert_eq!(whole(&line(49), &TIGHT).1, Some(ProtocolError::TooBigInline));
    let argument = |bytes| format!("*1\r\n${bytes}\r\n{}\r\n", "x".repeat(bytes)).into_bytes();
    assert_eq!(whole(&argument(64), &TIGHT).1, None);
    assert_eq!(whole(&argument(65), &TIGHT).1, Some(ProtocolError::InvalidBulkLength));
    let arguments = |count| format!("*{count}\r\n{}", "$0\r\n\r\n".repeat(count)).into_bytes();
    assert_eq!(whole(&arguments(8), &TIGHT), (vec![vec![vec![]; 8]], None));
    assert_eq!(
        whole(&arguments(9), &TIGHT).1,
        Some(ProtocolError::InvalidMultibulkLength)
    );
}

#[test]
fn a_long_command_is_refused_before_it_is_held() {
    let mut input = b"*8\r\n".to_vec();
    for _ in 0..4 {
        encode::bulk(&mut input, &[b'x'; 48]);
    }
    input.extend_from_slice(b"$48\r\n");
    assert_eq!(whole(&input, &TIGHT).1, Some(ProtocolError::TooBigRequest));
}

#[test]
fn the_hint_spares_useless_looks_at_a_large_value() {
    let input = b"*2\r\n$3\r\nGET\r\n$1000\r\nabc";
    let mut args = Args::new();
    let expected = Decoded::Incomplete {
        needed: input.len() - 3 + 1000 + 2,
    };
    assert_eq!(decode(input, &Limits::DEFAULT, &mut args), Ok(expected));
}

#[test]
fn a_command_of_very_many_arguments_works_and_its_buffer_is_given_back() {
    let words = vec!["k"; 1 << 20];
    let mut input = Vec::new();
    encode::request(&mut input, &words);
    let mut args = Args::new();
    let consumed = Decoded::Complete { consumed: input.len() };
    assert_eq!(decode(&input, &Limits::DEFAULT, &mut args), Ok(consumed));
    assert_eq!(args.len(), 1 << 20);
    assert_eq!(args.list(&input).get((1 << 20) - 1), Some(&b"k"[..]));
    assert_eq!(args.list(&input).get(1 << 20), None);
    assert_eq!(args.list(&input).arg(1 << 20), b"");
    decode(b"PING\r\n", &Limits::DEFAULT, &mut args).unwrap();
    assert_eq!(args.len(), 1);
}

fn command() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let argument = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..12),
        1 => prop::collection::vec(any::<u8>(), 0..300),
    ];
    prop::collection::vec(argument, 1..6)
}

/// Bytes that resemble a request more often than random bytes do.
fn nearly() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"*2\r\n".to_vec()),
        Just(b"*1\r\n$4\r\nPING\r\n".to_vec()),
        Just(b"$3\r\n".to_vec()),
        Just(b"$64\r\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"GET\r\n".to_vec()),
        Just(b"set \"a b\" 'c'\r\n".to_vec()),
        Just(b"$-1\r\n*-1\r\n".to_vec()),
        Just(vec![b'x'; 70]),
        Just(vec![b'$'; 30]),
        prop::collection::vec(any::<u8>(), 0..6),
        prop::collection::vec(prop::sample::select(&b"*$\r\n 0123456789-\"'\\x\0"[..]), 0..8),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

fn config() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        cases: 512,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn valid_commands_are_read_as_redis_protocol_reads_them(commands in prop::collection::vec(command(), 1..5)) {
        let mut input = Vec::new();
        for args in &commands {
            encode::request(&mut input, args);
        }
        let (ours, error) = whole(&input, &Limits::DEFAULT);
        prop_assert_eq!(error, None);
        prop_assert_eq!(&ours, &commands);

        let (mut theirs, mut at) = (Vec::new(), 0);
        while let Some((frame, used)) = redis_protocol::resp2::decode::decode(&input[at..]).unwrap() {
            let redis_protocol::resp2::types::OwnedFrame::Array(items) = frame else { panic!("no array") };
            theirs.push(items.iter().map(|i| i.as_bytes().unwrap().to_vec()).collect::<Vec<_>>());
            at += used;
        }
        prop_assert_eq!(ours, theirs);
    }

    #[test]
    fn every_cut_of_a_command_gives_the_same(args in command()) {
        let mut input = Vec::new();
        encode::request(&mut input, &args);
        for cut in 0..input.len() {
            let got = in_pieces(&input, [cut].into_iter(), &Limits::DEFAULT);
            prop_assert_eq!(got, (vec![args.clone()], None));
        }
    }

    #[test]
    fn pieces_never_change_what_is_read_or_refused(
        input in nearly(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let expected = whole(&input, &TIGHT);
        let bytewise = in_pieces(&input, 0..input.len(), &TIGHT);
        prop_assert_eq!(&bytewise, &expected);
        let mut cuts: Vec<usize> = cuts.iter().map(|c| c.index(input.len() + 1)).collect();
        cuts.sort_unstable();
        prop_assert_eq!(in_pieces(&input, cuts.into_iter(), &TIGHT), expected);
    }

    #[test]
    fn garbage_is_read_or_refused_within_the_limits(input in prop::collection::vec(any::<u8>(), 0..200)) {
        for limits in [Limits::DEFAULT, TIGHT] {
            let (commands, error) = whole(&input, &limits);
            prop_assert!(commands.iter().all(|c| c.len() <= limits.args_max.max(input.len())));
            if let Some(error) = error {
                let mut reply = Vec::new();
                error.append_to(&mut reply);
                prop_assert!(reply.starts_with(b"-ERR Protocol error: ") && reply.ends_with(b"\r\n"));
                prop_assert!(!reply[..reply.len() - 2].contains(&b'\n'));
            }
        }
    }
}

#[test]
fn an_argument_is_found_alone() {
    let command = b"*3\r\n$3\r\nSET\r\n$5\r\nk\r\ney\r\n$0\r\n\r\n";
    let found: Vec<_> = (0..4).map(|nth| argument(command, nth)).collect();
    assert_eq!(found, [Some(&b"SET"[..]), Some(b"k\r\ney"), Some(b""), None]);
    for end in 0..command.len() {
        // On a command cut anywhere, the result is never wrong.
        let key = argument(&command[..end], 1);
        assert!(key.is_none() || key == Some(b"k\r\ney"));
    }
    assert_eq!(argument(b"GET key\r\n", 1), None);
    assert_eq!(argument(b"*1\r\n$99999999999999999999\r\n", 0), None);
    assert_eq!(argument(b"*1\r\n$-1\r\n", 0), None);
}
