//! Encoded replies are read back, by this decoder and by another library, in both protocols and in any pieces.

use paritas_wire::resp::encode::*;
use paritas_wire::resp::{Args, Proto, Reply, ReplyDecoder, Value, decode, errors};
use proptest::prelude::*;
use redis_protocol::resp3;

fn read(input: &[u8]) -> Reply<'_> {
    let (reply, used) = ReplyDecoder::new().decode(input).unwrap().expect("whole");
    assert_eq!(used, input.len());
    reply
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn each_kind_is_written_as_its_protocol_has_it() {
    use Proto::{Resp2, Resp3};
    assert_eq!(written(ok), "+OK\r\n");
    assert_eq!(written(|o| simple(o, "a\r\nb")), "+a  b\r\n");
    assert_eq!(written(|o| error(o, errors::SYNTAX)), "-ERR syntax error\r\n");
    assert_eq!(written(|o| bulk(o, b"")), "$0\r\n\r\n");
    assert_eq!(written(|o| bulk(o, &[b'x'; 12])), "$12\r\nxxxxxxxxxxxx\r\n");
    assert_eq!(written(|o| null(o, Resp2)), "$-1\r\n");
    assert_eq!(written(|o| null(o, Resp3)), "_\r\n");
    assert_eq!(written(|o| null_array(o, Resp2)), "*-1\r\n");
    assert_eq!(written(|o| null_array(o, Resp3)), "_\r\n");
    assert_eq!(written(|o| map_header(o, Resp2, 60)), "*120\r\n");
    assert_eq!(written(|o| map_header(o, Resp3, 60)), "%60\r\n");
    assert_eq!(written(|o| set_header(o, Resp2, 3)), "*3\r\n");
    assert_eq!(written(|o| set_header(o, Resp3, 3)), "~3\r\n");
    assert_eq!(written(|o| push_header(o, Resp3, 3)), ">3\r\n");
    assert_eq!(written(|o| boolean(o, Resp2, true)), ":1\r\n");
    assert_eq!(written(|o| boolean(o, Resp3, false)), "#f\r\n");
    assert_eq!(written(|o| double(o, Resp2, 1.5)), "$3\r\n1.5\r\n");
    assert_eq!(written(|o| double(o, Resp3, -0.25)), ",-0.25\r\n");
    assert_eq!(written(|o| double(o, Resp3, f64::NEG_INFINITY)), ",-inf\r\n");
    assert_eq!(written(|o| double(o, Resp3, 1e300)), ",1e300\r\n");
    assert_eq!(written(|o| verbatim(o, Resp2, b"txt", b"hi")), "$2\r\nhi\r\n");
    assert_eq!(written(|o| verbatim(o, Resp3, b"txt", b"hi")), "=6\r\ntxt:hi\r\n");
}

#[test]
fn integers_of_every_length_are_written_right() {
    let edges = (0..64).flat_map(|bit| {
        let n = 1i64 << bit;
        [n, n.wrapping_sub(1), n.wrapping_neg()]
    });
    let tens = (0..19).flat_map(|power| [10i64.pow(power), 10i64.pow(power) - 1]);
    for n in edges.chain(tens).chain([i64::MIN, i64::MAX]) {
        assert_eq!(written(|o| integer(o, n)), format!(":{n}\r\n"));
        let text = n.to_string();
        assert_eq!(
            written(|o| bulk_integer(o, n)),
            format!("${}\r\n{text}\r\n", text.len())
        );
        assert_eq!(paritas_wire::resp::parse_integer(text.as_bytes()), Some(n));
    }
    for wrong in [
        "",
        "-",
        "+1",
        "01",
        "-0",
        "-01",
        " 1",
        "1 ",
        "1a",
        "9223372036854775808",
    ] {
        assert_eq!(paritas_wire::resp::parse_integer(wrong.as_bytes()), None, "{wrong}");
    }
    assert_eq!(paritas_wire::resp::parse_integer(b"-9223372036854775809"), None);
}

#[test]
fn error_texts_are_those_of_redis() {
    let args_of = |line: &str| {
        let line = format!("{line}\r\n");
        let mut args = Args::new();
        decode(line.as_bytes(), &Default::default(), &mut args).unwrap();
        written(|o| errors::unknown_command(o, args.list(line.as_bytes())))
    };
    assert_eq!(
        args_of(r#"foo "a\r\nb" c"#),
        "-ERR unknown command 'foo', with args beginning with: 'a  b' 'c' \r\n"
    );
    assert_eq!(
        args_of("foo"),
        "-ERR unknown command 'foo', with args beginning with: \r\n"
    );
    let long = args_of(&format!("{} {} z", "f".repeat(200), "a".repeat(200)));
    let cut = |c: &str| c.repeat(128);
    let expected = format!(
        "-ERR unknown command '{}', with args beginning with: '{}' \r\n",
        cut("f"),
        cut("a")
    );
    assert_eq!(long, expected);
    assert_eq!(
        written(|o| errors::unknown_subcommand(o, "client", b"nope")),
        "-ERR unknown subcommand 'nope'. Try CLIENT HELP.\r\n"
    );
    assert_eq!(
        written(|o| errors::wrong_arity(o, "config|get")),
        "-ERR wrong number of arguments for 'config|get' command\r\n"
    );
    assert_eq!(
        written(|o| errors::invalid_expire_time(o, "set")),
        "-ERR invalid expire time in 'set' command\r\n"
    );
    assert_eq!(
        written(|o| errors::moved(o, 12_182, "127.0.0.1:7001")),
        "-MOVED 12182 127.0.0.1:7001\r\n"
    );
}

#[test]
fn what_is_no_reply_is_refused() {
    for input in [
        &b"x\r\n"[..],
        b":1a\r\n",
        b"$-2\r\n",
        b"$3\r\nabcd\r\n",
        b"*-2\r\n",
        b"#x\r\n",
        b",x\r\n",
        b"+a\rb\r\n",
        b"=2\r\nab\r\n",
        b"%-1\r\n",
    ] {
        assert!(ReplyDecoder::new().decode(input).is_err(), "{}", input.escape_ascii());
    }
    let deep = b"*1\r\n".repeat(1000);
    assert_eq!(ReplyDecoder::new().decode(&deep).unwrap(), None);
    assert!(ReplyDecoder::new().decode(&[&deep[..], b":1\r\n"].concat()).is_err());
}

#[test]
fn counts_that_nothing_fills_take_no_memory() {
    for input in [
        "*9223372036854775807\r\n",
        "%9223372036854775807\r\n%9223372036854775807\r\n",
    ] {
        assert_eq!(ReplyDecoder::new().decode(input.as_bytes()).unwrap(), None);
    }
}

#[test]
fn attributes_are_passed_over() {
    assert_eq!(
        read(b"|1\r\n+ttl\r\n:3\r\n*1\r\n|1\r\n+a\r\n+b\r\n:7\r\n"),
        Reply::Array(vec![Reply::Integer(7)])
    );
}

#[test]
fn a_value_outlives_its_input() {
    let value = read(b"%1\r\n+a\r\n*2\r\n$1\r\nb\r\n_\r\n").to_value();
    let inner = Value::Array(vec![Value::Bulk(b"b".to_vec()), Value::Null]);
    assert_eq!(value, Value::Map(vec![(Value::Simple("a".into()), inner)]));
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        "[ -~]{0,20}".prop_map(Value::Simple),
        "[A-Z]{3} [ -~]{0,20}".prop_map(Value::Error),
        any::<i64>().prop_map(Value::Integer),
        prop::collection::vec(any::<u8>(), 0..200).prop_map(Value::Bulk),
        Just(Value::Null),
        any::<bool>().prop_map(Value::Boolean),
        prop::num::f64::NORMAL.prop_map(Value::Double),
    ];
    // Keys are strings, because redis-protocol accepts no others.
    let key = prop::collection::vec(any::<u8>(), 0..9).prop_map(Value::Bulk);
    leaf.prop_recursive(4, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            prop::collection::vec((key.clone(), inner), 0..4).prop_map(Value::Map),
        ]
    })
}

fn write(out: &mut Vec<u8>, value: &Value) {
    let proto = Proto::Resp3;
    match value {
        Value::Simple(s) => simple(out, s),
        Value::Error(s) => error(out, s),
        Value::Integer(n) => integer(out, *n),
        Value::Bulk(b) => bulk(out, b),
        Value::Null => null(out, proto),
        Value::Boolean(b) => boolean(out, proto, *b),
        Value::Double(d) => double(out, proto, *d),
        Value::Array(items) | Value::Push(items) => {
            array_header(out, items.len());
            items.iter().for_each(|item| write(out, item));
        }
        Value::Map(pairs) => {
            map_header(out, proto, pairs.len());
            for (key, value) in pairs {
                write(out, key);
                write(out, value);
            }
        }
    }
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
    fn replies_come_back_whole_and_in_pieces(value in value()) {
        let mut input = Vec::new();
        write(&mut input, &value);
        prop_assert_eq!(read(&input).to_value(), value.clone());

        // One decoder sees every prefix, as if from a slow peer.
        let mut decoder = ReplyDecoder::new();
        for end in 0..input.len() {
            prop_assert_eq!(decoder.decode(&input[..end]).unwrap(), None);
        }
        input.extend_from_slice(b"+next");
        let (reply, used) = decoder.decode(&input).unwrap().unwrap();
        prop_assert_eq!((reply.to_value(), used), (value, input.len() - 5));
        prop_assert_eq!(decoder.decode(&input[used..]).unwrap(), None);
    }

    #[test]
    fn redis_protocol_reads_as_long_a_reply(value in value()) {
        let mut input = Vec::new();
        write(&mut input, &value);
        let read = resp3::decode::complete::decode_range(&input).unwrap();
        prop_assert_eq!(read.map(|(_, used)| used), Some(input.len()));
    }

    #[test]
    fn garbage_is_a_reply_or_not_but_never_a_panic(
        pieces in prop::collection::vec(prop_oneof![
            prop::collection::vec(any::<u8>(), 0..6),
            prop::collection::vec(prop::sample::select(&b"+-:$*%~>|_#,(!=\r\n0123t"[..]), 0..8),
            Just(b"*2\r\n".to_vec()),
            Just(b"|1\r\n".to_vec()),
            Just(b"$1\r\na\r\n".to_vec()),
        ], 0..10),
    ) {
        let input = pieces.concat();
        let mut decoder = ReplyDecoder::new();
        let piecewise = (0..input.len())
            .map(|end| decoder.decode(&input[..end]))
            .find(|r| !matches!(r, Ok(None)));
        let whole = ReplyDecoder::new().decode(&input);
        if let Some(found) = piecewise {
            prop_assert_eq!(found.is_ok(), whole.is_ok());
        }
    }
}
