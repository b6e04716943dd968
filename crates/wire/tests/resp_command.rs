//! The command table, and what clients see of it.

use paritas_wire::command::{Command, find, flag, lookup, public, reply, resolve};
use paritas_wire::resp::{Args, Limits, Proto, ReplyDecoder, Value, decode};

/// The decoded reply that `answer` writes for a command line.
fn ask(line: &str, answer: impl FnOnce(&mut Vec<u8>, paritas_wire::resp::ArgList<'_>)) -> Value {
    let input = format!("{line}\r\n").into_bytes();
    let (mut args, mut out) = (Args::new(), Vec::new());
    decode(&input, &Limits::DEFAULT, &mut args).unwrap();
    answer(&mut out, args.list(&input));
    let (reply, used) = ReplyDecoder::new().decode(&out).unwrap().expect("a whole reply");
    assert_eq!(used, out.len(), "{line}: one reply and no more");
    reply.to_value()
}

fn texts(value: &Value) -> Vec<String> {
    let Value::Array(items) = value else {
        panic!("no array: {value:?}")
    };
    items.iter().map(text).collect()
}

fn text(value: &Value) -> String {
    match value {
        Value::Simple(s) | Value::Error(s) => s.clone(),
        Value::Bulk(b) => String::from_utf8(b.clone()).unwrap(),
        other => panic!("no text: {other:?}"),
    }
}

#[test]
fn the_table_is_consistent() {
    for spec in public().flat_map(|s| std::iter::once(s).chain(s.subcommands)) {
        let name = spec.name;
        assert!(name == name.to_ascii_lowercase() && !spec.summary.is_empty(), "{name}");
        assert_ne!(spec.arity, 0, "{name}");
        assert_eq!(spec.has_keys(), !spec.access.is_empty(), "{name}");
        assert_eq!(spec.has_keys(), spec.step > 0, "{name}");
        assert!(!(spec.is(flag::WRITE) && spec.is(flag::READONLY)), "{name}");
        // Commands refused when memory is full are writes. Commands with keys read, write or watch.
        assert!(!spec.is(flag::DENYOOM) || spec.is(flag::WRITE), "{name}");
        let uses_keys = flag::WRITE | flag::READONLY | flag::TRANSACTION;
        assert!(!spec.has_keys() || spec.is(uses_keys), "{name}");
        // Enough arguments always include the first key.
        assert!(i16::from(spec.first_key) < spec.arity.abs(), "{name}");
    }
}

#[test]
fn resolve_finds_the_leaf_and_refuses_as_redis_does() {
    let refused = |line: &str| {
        text(&ask(line, |out, args| {
            resolve(args).expect_err("refused").append_to(out, args)
        }))
    };
    let resolved = |line: &str| {
        let input = format!("{line}\r\n");
        let mut args = Args::new();
        decode(input.as_bytes(), &Limits::DEFAULT, &mut args).unwrap();
        resolve(args.list(input.as_bytes())).expect("resolved").id
    };
    assert_eq!(resolved("GeT k"), Command::Get);
    assert_eq!(resolved("client ID"), Command::ClientId);
    assert_eq!(resolved("COMMAND"), Command::Command);
    assert_eq!(resolved("command docs"), Command::CommandDocs);
    assert_eq!(resolved("PARITAS.status"), Command::ParitasStatus);
    assert_eq!(refused("get"), "ERR wrong number of arguments for 'get' command");
    assert_eq!(refused("get a b"), "ERR wrong number of arguments for 'get' command");
    assert_eq!(refused("client"), "ERR wrong number of arguments for 'client' command");
    assert_eq!(
        refused("config get"),
        "ERR wrong number of arguments for 'config|get' command"
    );
    assert_eq!(
        refused("CLIENT nope"),
        "ERR unknown subcommand 'nope'. Try CLIENT HELP."
    );
    assert_eq!(
        refused("lpush k v"),
        "ERR unknown command 'lpush', with args beginning with: 'k' 'v' "
    );
}

#[test]
fn command_info_has_the_ten_parts_of_redis_7() {
    let info = |line: &str, proto| ask(line, |out, args| reply::info(out, proto, args));
    let Value::Array(items) = info("COMMAND INFO mset nosuch", Proto::Resp3) else {
        panic!()
    };
    let [Value::Array(mset), Value::Null] = &items[..] else {
        panic!("{items:?}")
    };
    assert_eq!(text(&mset[0]), "mset");
    let numbers = [&mset[1], &mset[3], &mset[4], &mset[5]];
    assert_eq!(numbers, [-3, 1, -1, 2].map(Value::Integer).each_ref());
    assert_eq!(texts(&mset[2]), ["write", "denyoom"]);
    assert_eq!(texts(&mset[6]), ["@write", "@slow", "@string"]);
    assert_eq!(
        texts(&mset[7]),
        ["request_policy:multi_shard", "response_policy:all_succeeded"]
    );
    let Value::Array(key_specs) = &mset[8] else { panic!() };
    assert_eq!((key_specs.len(), mset.len()), (1, 10));
    assert_eq!(mset[9], Value::Array(vec![]));

    // The whole table is given in both protocols. RESP2 has no maps.
    for proto in [Proto::Resp2, Proto::Resp3] {
        let Value::Array(all) = ask("COMMAND", |out, _| reply::all(out, proto)) else {
            panic!()
        };
        assert_eq!(all.len(), public().count());
        let shown = format!("{all:?}");
        assert_eq!(shown.contains("Map("), proto == Proto::Resp3);
        assert_eq!(info("COMMAND INFO", proto), Value::Array(all));
    }
    let count = ask("COMMAND COUNT", |out, _| reply::count(out));
    assert_eq!(count, Value::Integer(public().count() as i64));
}

#[test]
fn command_docs_is_a_map_by_name() {
    let docs = |line: &str, proto| ask(line, |out, args| reply::docs(out, proto, args));
    let Value::Map(found) = docs("COMMAND DOCS get nosuch memory", Proto::Resp3) else {
        panic!()
    };
    assert_eq!(
        found.iter().map(|(name, _)| text(name)).collect::<Vec<_>>(),
        ["get", "memory"]
    );
    let Value::Map(get) = &found[0].1 else { panic!() };
    let fields: Vec<_> = get.iter().map(|(k, v)| (text(k), text(v))).collect();
    assert_eq!(
        fields[1..],
        [("since", "1.0.0"), ("group", "string")].map(|(k, v)| (k.into(), v.into()))
    );
    let Value::Map(memory) = &found[1].1 else { panic!() };
    assert_eq!(text(&memory[3].0), "subcommands");
    assert_eq!(docs("COMMAND DOCS nosuch", Proto::Resp2), Value::Array(vec![]));
    let Value::Map(all) = docs("COMMAND DOCS", Proto::Resp3) else {
        panic!()
    };
    assert_eq!(all.len(), public().count());
}

#[test]
fn command_list_filters() {
    let list = |line: &str| ask(line, reply::list);
    assert_eq!(texts(&list("COMMAND LIST")).len(), public().count());
    let by_pattern = texts(&list("COMMAND LIST FILTERBY PATTERN GET*"));
    assert_eq!(by_pattern, ["get", "getset", "getdel", "getex", "getrange", "getbit"]);
    assert!(texts(&list("command list filterby pattern c*|i*")).contains(&"client|id".into()));
    assert!(texts(&list("COMMAND LIST FILTERBY ACLCAT Dangerous")).contains(&"flushall".into()));
    assert_eq!(list("COMMAND LIST FILTERBY MODULE m"), Value::Array(vec![]));
    for wrong in [
        "COMMAND LIST x",
        "COMMAND LIST FILTERBY PATTERN",
        "COMMAND LIST FILTERBY x y",
    ] {
        assert_eq!(list(wrong), Value::Error("ERR syntax error".into()));
    }
}

#[test]
fn command_getkeys_names_the_keys() {
    let keys = |line: &str| ask(line, reply::getkeys);
    assert_eq!(texts(&keys("COMMAND GETKEYS MSET a 1 b 2")), ["a", "b"]);
    assert_eq!(texts(&keys("COMMAND GETKEYS object encoding a")), ["a"]);
    assert_eq!(texts(&keys("COMMAND GETKEYS rename a b")), ["a", "b"]);
    for (line, expected) in [
        ("COMMAND GETKEYS nosuch a", "ERR Invalid command specified"),
        ("COMMAND GETKEYS object nosuch a", "ERR Invalid command specified"),
        ("COMMAND GETKEYS object|encoding x a", "ERR Invalid command specified"),
        ("COMMAND GETKEYS ping a", "ERR The command has no key arguments"),
        (
            "COMMAND GETKEYS get a b",
            "ERR Invalid number of arguments specified for command",
        ),
    ] {
        assert_eq!(keys(line), Value::Error(expected.into()), "{line}");
    }
}

#[test]
fn names_are_found_whole_only() {
    assert!(lookup(b"config|get").is_none());
    assert_eq!(find(b"CONFIG|GET").map(|s| s.id), Some(Command::ConfigGet));
    assert_eq!(Command::ALL.len(), Command::COUNT);
}
