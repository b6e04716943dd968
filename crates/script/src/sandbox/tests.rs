use super::*;
use crate::source::sha_of;
use std::collections::BTreeMap;

/// GET and SET on a table, and an error for all else.
#[derive(Default)]
struct Strings {
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    ends: bool,
}

impl Host for Strings {
    fn call(&mut self, command: &[u8], _: Proto, reply: &mut Vec<u8>) -> core::result::Result<(), Ended> {
        if self.ends {
            return Err(Ended::ByHost);
        }
        let mut args = paritas_wire::resp::Args::new();
        paritas_wire::resp::decode(command, &paritas_wire::resp::Limits::DEFAULT, &mut args).unwrap();
        let args = args.list(command);
        match (args.arg(0), args.len()) {
            (b"get", 2) => match self.values.get(args.arg(1)) {
                Some(value) => encode::bulk(reply, value),
                None => encode::null(reply, Proto::Resp2),
            },
            (b"set", 3) => {
                self.values.insert(args.arg(1).to_vec(), args.arg(2).to_vec());
                encode::ok(reply);
            }
            (b"del", count) => encode::integer(reply, count as i64 - 1),
            _ => encode::error(reply, "ERR unknown"),
        }
        Ok(())
    }
}

const LIMITS: Limits = Limits {
    weight: Weight::Light,
    work_ns: 20_000_000,
    until_ns: u64::MAX >> 1,
};

fn run_with(sandbox: &mut Sandbox, source: &str, limits: Limits, host: &mut dyn Host) -> (Option<Ended>, String) {
    let sha = sha_of(source.as_bytes());
    let run = Run {
        sha: &sha,
        source: source.as_bytes(),
        keys: &[b"k"],
        args: &[b"a", b"b"],
        proto: Proto::Resp2,
        limits,
        seed: 7,
        function: None,
    };
    let mut out = Vec::new();
    let ran = sandbox.run(&run, host, &mut out);
    (ran.ended, String::from_utf8_lossy(&out).replace("\r\n", "|"))
}

fn reply_of(source: &str) -> String {
    let mut sandbox = Sandbox::new(|| 0).unwrap();
    let (ended, reply) = run_with(&mut sandbox, source, LIMITS, &mut Strings::default());
    assert_eq!(ended, None, "{source}");
    reply
}

#[test]
fn values_become_replies() {
    for (source, reply) in [
        ("return 1", ":1|"),
        ("return 3.99", ":3|"),
        ("return 'x'", "$1|x|"),
        ("return true", ":1|"),
        ("return false", "$-1|"),
        ("return nil", "$-1|"),
        ("return {1, 'a', {2}, nil, 3}", "*3|:1|$1|a|*1|:2|"),
        ("return {ok='fine'}", "+fine|"),
        ("return redis.error_reply('MINE x')", "-MINE x|"),
        ("return {KEYS[1], ARGV[1], ARGV[2]}", "*3|$1|k|$1|a|$1|b|"),
        ("return redis.call('set', KEYS[1], 5)", "+OK|"),
        ("return redis.pcall('nope').err", "$11|ERR unknown|"),
        (
            "return redis.sha1hex('')",
            "$40|da39a3ee5e6b4b0d3255bfef95601890afd80709|",
        ),
    ] {
        assert_eq!(reply_of(source), reply, "{source}");
    }
}

#[test]
fn errors_say_where() {
    let sha = |source: &str| String::from_utf8(sha_of(source.as_bytes()).to_vec()).unwrap();
    for (source, text, line) in [
        ("local r = redis.call('nope') return r", "ERR unknown", 1),
        (
            "\nlocal x = y",
            "ERR user_script:2: Script attempted to access nonexistent global variable 'y'",
            2,
        ),
        ("x = 1", "ERR user_script:1: Attempt to modify a readonly table", 1),
        ("error('mine')", "ERR user_script:1: mine", 1),
        ("error({err='MINE'})", "MINE", 1),
        (
            "local r = redis.call() return r",
            "ERR Please specify at least one argument for this redis lib call",
            1,
        ),
        ("return string.rep()", "", 1),
    ] {
        let reply = reply_of(source);
        let end = format!(" script: {}, on @user_script:{line}.|", sha(source));
        assert!(
            reply.starts_with(&format!("-{text}")) && reply.ends_with(&end),
            "{source}: {reply}"
        );
    }
}

#[test]
fn libraries_do_what_scripts_expect() {
    for (source, reply) in [
        ("return cjson.encode({a=1})", "$7|{\"a\":1}|"),
        ("return cjson.encode({1,2,{x='y/'}})", "$17|[1,2,{\"x\":\"y\\/\"}]|"),
        ("return cjson.decode('{\"a\":[1,null,\"x\\\\u00e9\"]}').a[3]", "$3|xé|"),
        ("return cmsgpack.unpack(cmsgpack.pack({1,2,'x'}))[3]", "$1|x|"),
        ("return struct.unpack('>I2', struct.pack('>I2', 258))", ":258|"),
        ("return bit.tohex(bit.bor(0xf0, 0x0f))", "$8|000000ff|"),
        ("return ('a,b'):gsub(',', '%0%0')", "$4|a,,b|"),
        (
            "return (('hello'):gsub('l', function(c) return c:upper() end))",
            "$5|heLLo|",
        ),
        ("return (('abc'):gsub('%w*', 'x'))", "$2|xx|"),
        (
            "local r={} for w in ('one two'):gmatch('%a+') do r[#r+1]=w end return r",
            "*2|$3|one|$3|two|",
        ),
        ("return {('a.b'):find('.', 1, true)}", "*2|:2|:2|"),
        (
            "local t={5,3,9,1,7,2,8,6,4,0,11,10} table.sort(t) return table.concat(t, ' ')",
            "$25|0 1 2 3 4 5 6 7 8 9 10 11|",
        ),
        (
            "local t={1,2,3} table.insert(t, 2, 9) table.remove(t, 1) return t",
            "*3|:9|:2|:3|",
        ),
        (
            "local ok, e = pcall(function() error('x', 0) end) return {tostring(ok), e}",
            "*2|$5|false|$1|x|",
        ),
        (
            "local co = coroutine.wrap(function() coroutine.yield(1) end) return co()",
            ":1|",
        ),
        ("return loadstring('return 7')()", ":7|"),
        ("return {pcall(loadstring('error({err=\"E\"})'))}", "*1|"),
        (
            "return math.random(1000000)",
            reply_of("return math.random(1000000)").as_str(),
        ),
    ] {
        let got = reply_of(source);
        if source.contains("pcall(loadstring") {
            assert!(got.starts_with("*"), "{got}");
        } else {
            assert_eq!(got, reply, "{source}");
        }
    }
}

#[test]
fn nothing_that_a_script_does_stays() {
    let mut sandbox = Sandbox::new(|| 0).unwrap();
    for source in [
        "rawset(_G, 'left', 1)",
        "string.left = 1",
        "redis.left = 1",
        "getmetatable('').__index = nil",
        "setmetatable(_G, nil)",
        "setmetatable(string, {})",
        "table.insert(redis, 1)",
        "rawset(string, 'left', 1)",
        "getmetatable(_G).__index = nil",
    ] {
        let (_, reply) = run_with(&mut sandbox, source, LIMITS, &mut Strings::default());
        assert!(reply.starts_with('-'), "{source}: {reply}");
    }
    for source in [
        "return dofile",
        "return print",
        "return io",
        "return os",
        "return debug",
        "return newproxy",
        "return setfenv",
    ] {
        let (_, reply) = run_with(&mut sandbox, source, LIMITS, &mut Strings::default());
        assert!(reply.contains("nonexistent global"), "{source}: {reply}");
    }
}

#[test]
fn a_script_ends_with_its_work_or_memory_whatever_it_does() {
    let mut sandbox = Sandbox::new(|| 0).unwrap();
    for (source, ended) in [
        ("while true do end", Ended::Work),
        ("while true do pcall(function() while true do end end) end", Ended::Work),
        ("while true do pcall(error, 'x') end", Ended::Work),
        (
            "while true do xpcall(function() while true do end end, function() while true do end end) end",
            Ended::Work,
        ),
        (
            "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
            Ended::Work,
        ),
        (
            "local f f = function() coroutine.wrap(f)() end while true do pcall(f) end",
            Ended::Work,
        ),
        (
            "return string.find(('a'):rep(30), ('a?'):rep(30) .. ('a'):rep(30))",
            Ended::Work,
        ),
        ("return ('x'):rep(100000):find('(.-)(.-)(.-)(.-)y')", Ended::Work),
        ("for i = 1, 1e9 do string.rep('', 1e9) end", Ended::Work),
        ("table.insert({}, -1e9, 0)", Ended::Work),
        ("local t = {} for i = 1, 1e9 do t[i] = i end", Ended::Memory),
        ("local s = 'x' while true do s = s .. s end", Ended::Memory),
        ("while true do pcall(string.rep, 'x', 1e9) end", Ended::Memory),
        (
            "while true do pcall(function() local s = 'x' while true do s = s .. s end end) end",
            Ended::Memory,
        ),
        (
            "return table.concat({('x'):rep(500000), ('x'):rep(500001), ('x'):rep(500002)})",
            Ended::Memory,
        ),
        (
            "local t = {} for i = 1, 7000 do t[i] = ('x'):rep(10000) end return cjson.encode(t)",
            Ended::Work,
        ),
        ("while true do cjson.decode('[[[[[[[[]]]]]]]]') end", Ended::Work),
        ("while true do loadstring('return 1') end", Ended::Work),
    ] {
        let (why, reply) = run_with(&mut sandbox, source, LIMITS, &mut Strings::default());
        assert!(
            why == Some(ended) || why == Some(Ended::Memory),
            "{source}: {why:?} {reply}"
        );
        assert_eq!(reply, "", "{source}");
        while !sandbox.is_ready() {}
        let after = run_with(&mut sandbox, "return 'fine'", LIMITS, &mut Strings::default());
        assert_eq!(after, (None, "$4|fine|".to_owned()), "after {source}");
    }
}

#[test]
fn as_many_arguments_as_unpack_gives_are_taken() {
    let many = "local t = {} for i = 1, 7600 do t[i] = 'key' .. i end return redis.call('del', unpack(t))";
    assert_eq!(reply_of(many), ":7600|");
    let more = "local t = {} for i = 1, 7601 do t[i] = 'key' .. i end return redis.call('del', unpack(t))";
    assert!(reply_of(more).contains("too many results to unpack"));
    let besides = "local t = {} for i = 1, 7600 do t[i] = 'key' .. i end \
        return #cmsgpack.pack('a','b','c','d','e','f','g','h','i','j','k','l','m','n','o','p', unpack(t)) > 1";
    assert_eq!(reply_of(besides), ":1|");
    let deep = "local t = {} for i = 1, 999 do t = {t} end return #cjson.encode(t)";
    assert_eq!(reply_of(deep), ":2000|");
    let deeper = "local t = {} for i = 1, 5000 do t = {t} end return cjson.encode(t)";
    assert!(reply_of(deeper).contains("excessive depth"));
}

#[test]
fn what_is_light_no_more_can_run_as_heavy() {
    let source = "local t = {} for i = 1, 200 do t[i] = ('x'):rep(10000 + i) end return #table.concat(t)";
    let mut sandbox = Sandbox::new(|| 0).unwrap();
    let light = run_with(&mut sandbox, source, LIMITS, &mut Strings::default());
    assert_eq!(light.0, Some(Ended::Memory));
    let limits = Limits {
        weight: Weight::Heavy,
        ..LIMITS
    };
    let heavy = run_with(&mut sandbox, source, limits, &mut Strings::default());
    assert_eq!(heavy, (None, ":2020100|".to_owned()));
}

#[test]
fn a_host_ends_a_script_that_catches_errors() {
    let mut sandbox = Sandbox::new(|| 0).unwrap();
    let mut host = Strings {
        ends: true,
        ..Strings::default()
    };
    let source = "while true do redis.pcall('get', 'x') pcall(redis.call, 'get', 'x') end";
    assert_eq!(run_with(&mut sandbox, source, LIMITS, &mut host).0, Some(Ended::ByHost));
}

#[test]
fn garbage_does_not_pile_up() {
    let mut sandbox = Sandbox::new(|| 0).unwrap();
    let source = "local t = {} for i = 1, 100 do t[i] = 'value' .. i .. ARGV[1] end return #t";
    for _ in 0..3000 {
        while !sandbox.is_ready() {}
        assert_eq!(run_with(&mut sandbox, source, LIMITS, &mut Strings::default()).0, None);
    }
    assert!(sandbox.held_bytes() < 4 << 20, "{}", sandbox.held_bytes());
    for number in 0..2000 {
        let source = format!("return {number}");
        assert_eq!(run_with(&mut sandbox, &source, LIMITS, &mut Strings::default()).0, None);
    }
    assert!(sandbox.compiled.len() <= COMPILED_MAX);
}

#[test]
fn no_script_takes_more_slots_or_memory_than_there_are() {
    let mut sandbox = Sandbox::new(|| 0).unwrap();
    let many = "local t = {} for i = 1, 7600 do t[i] = 'k' .. i end ";
    for source in [
        "local function g(...) return redis.call('del', 'a', 'b', ...) end return g('c', unpack(t))",
        "local function g(n, ...) if n == 0 then return redis.pcall('del', ...) end \
         return g(n - 1, 'x', 'y', 'z', ...) end return g(300, unpack(t))",
        "local function g(...) return cmsgpack.pack('a', ...) end return #g(unpack(t))",
        "local function g(...) return struct.pack('s', 'a', ...) end return #g('b', unpack(t))",
        "local function g(...) return bit.bor(1, ...) end return g('b', unpack(t))",
        "local function g(...) return redis.sha1hex('a', ...) end return g('b', unpack(t))",
        "local function g(...) return math.random('a', ...) end return g('b', unpack(t))",
        "local function g(...) return cjson.encode('a', ...) end return g('b', unpack(t))",
        "local function g(...) return ('x').find('a', 'b', ...) end return g('b', unpack(t))",
    ] {
        let (_, reply) = run_with(&mut sandbox, &[many, source].concat(), LIMITS, &mut Strings::default());
        assert!(!reply.is_empty(), "{source}");
    }
    // Near the end of its memory, results must not need more.
    for room in [0, 5_000, 20_000, 30_000, 60_000] {
        let fill = format!(
            "local start = collectgarbage('count') local t = {{}} local n = 0 \
             while collectgarbage('count') - start < (1048576 - {room}) / 1024 - 40 do \
             n = n + 1 t[n] = 'some' .. n end "
        );
        for end in [
            "return #{cmsgpack.unpack(('\\161a'):rep(4000))}",
            "return coroutine.wrap(function() return #{cmsgpack.unpack(('\\161a'):rep(4000))} end)()",
            "return coroutine.wrap(function() return #{('abcdefghij'):match(('(.)'):rep(10))} end)()",
            "return #{struct.unpack(('B'):rep(3000), ('x'):rep(3000))}",
        ] {
            for _ in 0..4 {
                run_with(&mut sandbox, &[&fill, end].concat(), LIMITS, &mut Strings::default());
                while !sandbox.is_ready() {}
            }
            let after = run_with(
                &mut sandbox,
                "return {('a-b'):match('(.)-(.)')}",
                LIMITS,
                &mut Strings::default(),
            );
            assert_eq!(after, (None, "*2|$1|a|$1|b|".to_owned()), "{end}");
        }
    }
}

#[test]
fn what_shares_tables_and_strings_is_counted_as_often_as_it_is_written() {
    let mut sandbox = Sandbox::new(|| 0).unwrap();
    for source in [
        "local t = {} for i = 1, 50 do t = {a = t, b = t} end return cjson.encode(t)",
        "local t = {} for i = 1, 50 do t = {t, t} end return cjson.encode(t)",
        "local t = {} for i = 1, 15 do t = {t, t, t, t, t, t} end return cmsgpack.pack(t)",
        "local t = {} for i = 1, 60 do t = {t, t} end return t",
        "local s = ('\\1'):rep(400000) local t = {} for i = 1, 9000 do t[i] = s end return cjson.encode(t)",
        "local s = ('x'):rep(400000) local t = {} for i = 1, 9000 do t[i] = s end return cmsgpack.pack(t)",
        "local s = ('x'):rep(400000) local t = {} for i = 1, 9000 do t[i] = s end return t",
        "return ('x'):rep(300000):gsub('.+', ('%0'):rep(100000))",
    ] {
        let (ended, reply) = run_with(&mut sandbox, source, LIMITS, &mut Strings::default());
        assert!(ended.is_some(), "{source}: {} bytes", reply.len());
        while !sandbox.is_ready() {}
    }
}

#[test]
fn sources_that_compile_slowly_are_refused() {
    let mut sandbox = Sandbox::new(|| 0).unwrap();
    let locals: String = (0..100).map(|n| format!("local a{n}, b{n} ")).collect();
    let functions = format!(
        "{}{}{}",
        format!("return function() {locals}").repeat(60),
        "x=x ".repeat(2000),
        "end ".repeat(60)
    );
    let branches = format!("if a then {} end", "elseif a then ".repeat(5000));
    for source in [functions, branches, "x=1 ".repeat(60_000)] {
        assert!(sandbox.check(&sha_of(source.as_bytes()), source.as_bytes()).is_err());
    }
    for n in 0..300 {
        let source = format!("return 1 + {n} -- {}", "x".repeat(100_000));
        assert!(sandbox.check(&sha_of(source.as_bytes()), source.as_bytes()).is_ok());
        let wrong = format!("return {n} ({}", "y".repeat(50_000));
        assert!(sandbox.check(&sha_of(wrong.as_bytes()), wrong.as_bytes()).is_err());
    }
    assert!(sandbox.held_bytes() < 30 << 20, "{}", sandbox.held_bytes());
}

#[test]
fn tables_of_the_sandbox_can_be_looked_at() {
    for (source, reply) in [
        ("return type(rawget(_G, 'redis'))", "$5|table|"),
        (
            "local n = 0 for k in pairs(string) do n = n + 1 end return n > 10",
            ":1|",
        ),
        (
            "local n = 0 for w in ('^a^a'):gmatch('^a') do n = n + 1 end return n",
            ":2|",
        ),
        ("return table.concat({1700000000123456})", "$19|1.7000000001235e+15|"),
    ] {
        assert_eq!(reply_of(source), reply, "{source}");
    }
}

/// The reply to the number of arguments and the length of the first.
fn lengths(sandbox: &mut Sandbox, args: &[&[u8]], weight: Weight) -> (Option<Ended>, String) {
    let source = b"return #ARGV[1] + #ARGV";
    let run = Run {
        sha: &sha_of(source),
        source,
        keys: &[],
        args,
        proto: Proto::Resp2,
        limits: Limits { weight, ..LIMITS },
        seed: 7,
        function: None,
    };
    let mut out = Vec::new();
    let ran = sandbox.run(&run, &mut Strings::default(), &mut out);
    (ran.ended, String::from_utf8(out).unwrap())
}

#[test]
fn what_a_script_is_given_counts_for_its_memory() {
    let sandbox = &mut Sandbox::new(|| 0).unwrap();
    let long = vec![b'x'; 600_000];
    let (one, two, all) = ([&long[..]], [&long[..]; 2], [&long[..]; 30]);
    let many = [&b"x"[..]; 30_000];
    assert_eq!(lengths(sandbox, &one, Weight::Light), (None, ":600001\r\n".to_owned()));
    for args in [&two[..], &many] {
        assert_eq!(
            lengths(sandbox, args, Weight::Light),
            (Some(Ended::Memory), String::new())
        );
        let expected = format!(":{}\r\n", args[0].len() + args.len());
        assert_eq!(lengths(sandbox, args, Weight::Heavy), (None, expected));
    }
    assert_eq!(
        lengths(sandbox, &all, Weight::Heavy),
        (Some(Ended::Memory), String::new())
    );
}

#[test]
fn errors_that_are_caught_are_work() {
    let mut sandbox = Sandbox::new(|| 0).unwrap();
    for (call, few, many) in [
        ("pcall(cjson.decode, 'x')", 500, 1100),
        ("redis.pcall('unknown')", 500, 1100),
        ("pcall(error, 'x')", 4000, 11_000),
    ] {
        for (count, expected) in [(few, None), (many, Some(Ended::Work))] {
            let source = format!("for i = 1, {count} do {call} end return 1");
            let limits = Limits {
                weight: Weight::Heavy,
                ..LIMITS
            };
            let (ended, _) = run_with(&mut sandbox, &source, limits, &mut Strings::default());
            assert_eq!(ended, expected, "{source}");
        }
    }
}

fn call(sandbox: &mut Sandbox, library: &str, function: &str) -> (Option<Ended>, String) {
    let run = Run {
        sha: &sha_of(library.as_bytes()),
        source: library.as_bytes(),
        keys: &[b"k"],
        args: &[b"a", b"b"],
        proto: Proto::Resp2,
        limits: LIMITS,
        seed: 7,
        function: Some(function.as_bytes()),
    };
    let mut out = Vec::new();
    let ran = sandbox.run(&run, &mut Strings::default(), &mut out);
    (ran.ended, String::from_utf8_lossy(&out).replace("\r\n", "|"))
}

fn load(sandbox: &mut Sandbox, library: &str, weight: Weight) -> core::result::Result<Vec<String>, LoadError> {
    let limits = Limits { weight, ..LIMITS };
    let (_, loaded) = sandbox.load(&sha_of(library.as_bytes()), library.as_bytes(), limits, 7);
    loaded.map(|functions| {
        let name = |function: library::Function| String::from_utf8(function.name).unwrap();
        functions.into_iter().map(name).collect()
    })
}

#[test]
fn a_library_registers_its_functions_and_each_call_begins_anew() {
    let sandbox = &mut Sandbox::new(|| 0).unwrap();
    let library = "#!lua name=a\nlocal n = 0\nlocal function next_n() n = n + 1 return n end\n\
                   redis.register_function('one', next_n)\nredis.register_function('Two', function(keys, args)\n\
                   return {next_n(), keys[1], #args, redis.call('set', keys[1], 'x')} end)\nn = 5";
    let names = ["one", "Two"].map(str::to_owned).to_vec();
    assert_eq!(load(sandbox, library, Weight::Light), Ok(names));
    for _ in 0..3 {
        assert_eq!(call(sandbox, library, "one"), (None, ":6|".to_owned()));
        assert_eq!(call(sandbox, library, "two"), (None, "*4|:6|$1|k|:2|+OK|".to_owned()));
        assert_eq!(
            call(sandbox, library, "three"),
            (None, "-ERR Function not found|".to_owned())
        );
        // A script between them sees nothing of them, nor they of it.
        let (_, reply) = run_with(sandbox, "return {KEYS[1], n}", LIMITS, &mut Strings::default());
        assert!(reply.contains("nonexistent global variable 'n'"), "{reply}");
    }
}

#[test]
fn a_function_sees_nothing_of_what_a_script_was_given_and_keeps_nothing() {
    let sandbox = &mut Sandbox::new(|| 0).unwrap();
    run_with(sandbox, "return KEYS[1]", LIMITS, &mut Strings::default());
    for body in [
        "return KEYS",
        "return loadstring('return KEYS')()",
        "kept = 1",
        "rawset(_G, 'kept', 1)",
        "redis.call = nil",
        "string.rep = nil",
        "return redis.register_function('x', function() end)",
    ] {
        let library = format!("#!lua name=a\nredis.register_function('f', function() {body} end)");
        let (ended, reply) = call(sandbox, &library, "f");
        assert!(ended.is_none() && reply.starts_with("-ERR "), "{body}: {reply}");
    }
    // What it has of the time at which it was loaded does not do more than then.
    let library = "#!lua name=a\nlocal r = redis\nredis.register_function('f', function() \
                   local ok, problem = pcall(function() return r.register_function('g', function() end) end)\n\
                   return {tostring(ok), problem, type(rawget(r, 'call'))} end)";
    let expected = "*3|$5|false|$71|ERR redis.register_function can only be called on FUNCTION LOAD command|$3|nil|";
    let (_, reply) = call(sandbox, library, "f");
    assert_eq!(reply, expected);
}

#[test]
fn a_library_that_does_too_much_is_ended_and_the_next_one_is_not() {
    let sandbox = &mut Sandbox::new(|| 0).unwrap();
    let good = "#!lua name=a\nredis.register_function('f', function() return 'good' end)";
    for (body, ended) in [
        ("while true do end", Ended::Work),
        ("local s = 'x' while true do s = s .. s end", Ended::Memory),
        ("local t = {} for i = 1, 1000000 do t[i] = {} end", Ended::Memory),
    ] {
        let bad = format!("#!lua name=a\n{body}");
        let loaded = load(sandbox, &bad, Weight::Light);
        assert_eq!(loaded, Err(LoadError::Ended(ended)), "{body}");
        assert_eq!(call(sandbox, &bad, "f"), (Some(ended), String::new()), "{body}");
        // Within a function, too.
        let slow = format!("#!lua name=a\nredis.register_function('f', function() {body} end)");
        let (found, reply) = call(sandbox, &slow, "f");
        let is_refused = reply.contains("nil value");
        assert!(found == Some(ended) || is_refused, "{body}: {found:?} {reply}");
        assert_eq!(call(sandbox, good, "f"), (None, "$4|good|".to_owned()));
        assert!(load(sandbox, good, Weight::Light).is_ok());
    }
    let limit = "ERR Error registering functions: ERR a library may have 4096 functions, and 1048576 bytes of their \
                 names and descriptions";
    for body in [
        "for i = 1, 4097 do redis.register_function('f' .. i, function() end) end",
        "local d = ('x'):rep(600000) for i = 1, 2 do redis.register_function{function_name='f' .. i, description=d, \
         callback=function() end} end",
    ] {
        let loaded = load(sandbox, &format!("#!lua name=a\n{body}"), Weight::Heavy);
        assert_eq!(loaded, Err(LoadError::Refused(limit.to_owned())), "{body}");
    }
    let most = "#!lua name=a\nfor i = 1, 4096 do redis.register_function('f' .. i, function() end) end";
    assert_eq!(load(sandbox, most, Weight::Heavy).map(|names| names.len()), Ok(4096));
    let none = load(sandbox, "#!lua name=a\nlocal x = 1", Weight::Light);
    assert_eq!(none, Err(LoadError::Refused("ERR No functions registered".to_owned())));
    let wrong = load(sandbox, "#!lua name=a\nlocal x = ", Weight::Light);
    let text = "ERR Error compiling function: user_function:2: unexpected symbol near '<eof>'".to_owned();
    assert_eq!(wrong, Err(LoadError::Refused(text)));
}
