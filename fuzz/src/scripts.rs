//! Scripts of clients: text as it is, or text made of the words of Lua and Redis' libraries, by EVAL into a machine.

use crate::script::{Script, random};
use paritas_protocol::{Parameters, Port};
use paritas_testbed::Cluster;
use paritas_wire::resp::{ReplyDecoder, encode};

/// Memory of the node.
const NODE_BYTES: u64 = 16 << 20;
/// The largest allocation: the reply of a script while it is made, and what it may hold.
pub(crate) const SCRIPT_BYTES: usize = 34 << 20;
/// Statements in one another, and expressions.
const DEPTH_MAX: usize = 4;
const STATEMENTS_MAX: usize = 8;

const NAMES: &[&str] = &[
    "a", "b", "c", "i", "KEYS", "ARGV", "KEYS[1]", "KEYS[2]", "ARGV[1]", "ARGV[2]", "_G",
];
const VARIABLES: &[&str] = &["a", "b", "c", "a.x", "b[1]", "c[a]", "KEYS[1]", "x"];
const VALUES: &[&str] = &[
    "nil",
    "true",
    "false",
    "0",
    "1",
    "-1",
    "2",
    "0.5",
    "16",
    "100",
    "7000",
    "2^53",
    "1/0",
    "-1/0",
    "0/0",
    "''",
    "'a'",
    "'x=1'",
    "'%d'",
    "'%s%5.2f'",
    "'%q'",
    "'%a+'",
    "'(.-)%s*$'",
    "'('",
    "'%'",
    "'[a-z'",
    "'%b()'",
    "'%f[%w]'",
    "'\\0'",
    "'{\"a\":[1,null,{}]}'",
    "'[[[['",
    "'\\x81\\xa1a\\x01'",
    "'>I2s'",
    "'<b4 !8 i c0'",
    "'get'",
    "'set'",
    "'PX'",
    "'err'",
    "'ok'",
    "{}",
    "{1, 2, 3}",
    "{err = 'E x'}",
    "{ok = 'fine'}",
    "{double = 1.5}",
    "{map = {a = 1}}",
    "{set = {a = true}}",
    "...",
    "redis.error_reply('x')",
    "redis.status_reply('x')",
];
const FUNCTIONS: &[&str] = &[
    "redis.call",
    "redis.pcall",
    "redis.setresp",
    "redis.sha1hex",
    "redis.error_reply",
    "redis.log",
    "redis.acl_check_cmd",
    "string.rep",
    "string.format",
    "string.find",
    "string.match",
    "string.gmatch",
    "string.gsub",
    "string.byte",
    "string.char",
    "string.sub",
    "string.reverse",
    "string.len",
    "string.upper",
    "table.concat",
    "table.insert",
    "table.remove",
    "table.sort",
    "table.maxn",
    "unpack",
    "select",
    "tostring",
    "tonumber",
    "type",
    "next",
    "pairs",
    "ipairs",
    "rawget",
    "rawset",
    "rawequal",
    "setmetatable",
    "getmetatable",
    "error",
    "assert",
    "pcall",
    "xpcall",
    "loadstring",
    "load",
    "collectgarbage",
    "coroutine.create",
    "coroutine.resume",
    "coroutine.wrap",
    "coroutine.yield",
    "coroutine.status",
    "math.floor",
    "math.random",
    "math.randomseed",
    "math.fmod",
    "math.huge",
    "bit.band",
    "bit.tohex",
    "bit.lshift",
    "cjson.encode",
    "cjson.decode",
    "cmsgpack.pack",
    "cmsgpack.unpack",
    "cmsgpack.unpack_one",
    "struct.pack",
    "struct.unpack",
    "struct.size",
    "a",
    "b",
];
const COMMANDS: &[&str] = &[
    "get", "set", "incrby", "append", "setrange", "del", "mget", "expire", "type", "eval", "x",
];
const OPERATORS: &[&str] = &["..", "+", "-", "*", "/", "%", "^", "==", "~=", "<", ">=", "and", "or"];

fn expression(script: &mut Script<'_>, depth: usize, out: &mut String) {
    if depth == 0 || script.is_over() {
        return out.push_str(script.pick(VALUES));
    }
    let depth = depth - 1;
    match script.below(11) {
        0 | 1 => out.push_str(script.pick(VALUES)),
        2 => out.push_str(script.pick(NAMES)),
        3 | 4 => call(script, depth, out),
        5 | 6 => {
            out.push('(');
            expression(script, depth, out);
            let operator = script.pick(OPERATORS);
            out.push_str(&format!(" {operator} "));
            expression(script, depth, out);
            out.push(')');
        }
        7 => {
            out.push_str("{[");
            expression(script, depth, out);
            out.push_str("] = ");
            expression(script, depth, out);
            out.push('}');
        }
        8 => {
            out.push_str("function(...) ");
            block(script, depth, out);
            out.push_str("end");
        }
        9 => {
            let operator = script.pick(&["#", "not ", "-"]);
            out.push_str(operator);
            expression(script, depth, out);
        }
        _ => {
            // A command, its arguments, and what follows them.
            out.push_str("redis.pcall('");
            out.push_str(script.pick(COMMANDS));
            out.push_str("', KEYS[1], ");
            expression(script, depth, out);
            out.push(')');
        }
    }
}

fn call(script: &mut Script<'_>, depth: usize, out: &mut String) {
    out.push_str(script.pick(FUNCTIONS));
    out.push('(');
    for at in 0..script.below(4) {
        if at > 0 {
            out.push_str(", ");
        }
        expression(script, depth, out);
    }
    out.push(')');
}

fn block(script: &mut Script<'_>, depth: usize, out: &mut String) {
    for _ in 0..script.below(STATEMENTS_MAX) {
        if script.is_over() {
            break;
        }
        statement(script, depth, out);
    }
}

fn statement(script: &mut Script<'_>, depth: usize, out: &mut String) {
    let inner = depth.saturating_sub(1);
    match script.below(if depth == 0 { 4 } else { 10 }) {
        0 | 1 => {
            out.push_str(script.pick(VARIABLES));
            out.push_str(" = ");
            expression(script, inner, out);
        }
        2 | 3 => call(script, inner, out),
        4 => {
            out.push_str("for i = 1, ");
            expression(script, inner, out);
            out.push_str(" do ");
            block(script, inner, out);
            out.push_str("end");
        }
        5 => {
            out.push_str("while ");
            expression(script, inner, out);
            out.push_str(" do ");
            block(script, inner, out);
            out.push_str("end");
        }
        6 => {
            out.push_str("if ");
            expression(script, inner, out);
            out.push_str(" then ");
            block(script, inner, out);
            out.push_str("else ");
            block(script, inner, out);
            out.push_str("end");
        }
        7 => {
            out.push_str("for a, b in ");
            expression(script, inner, out);
            out.push_str(" do ");
            block(script, inner, out);
            out.push_str("end");
        }
        8 => {
            out.push_str("pcall(function() ");
            block(script, inner, out);
            out.push_str("end)");
        }
        _ => {
            // Code behind a plain `return` would not compile.
            out.push_str("do return ");
            expression(script, inner, out);
            out.push_str(" end");
        }
    }
    out.push_str("; ");
}

/// The source that these bytes say.
fn source(bytes: &[u8]) -> Vec<u8> {
    match bytes.split_first() {
        Some((0, text)) => text.to_vec(),
        Some((_, rest)) => {
            let script = &mut Script::new(rest);
            let mut out = "local a, b, c, x = KEYS, {}, 'c', 1; ".to_owned();
            while !script.is_over() && out.len() < 4096 {
                statement(script, DEPTH_MAX, &mut out);
            }
            out.push_str("return {a, b, c, x}");
            out.into_bytes()
        }
        None => Vec::new(),
    }
}

const KEYS: [&[u8]; 2] = [b"{k}1", b"{k}2"];

fn ask(cluster: &mut Cluster, words: &[&[u8]]) -> Vec<u8> {
    let client = cluster.connect(0, Port::Any);
    let mut request = Vec::new();
    encode::array_header(&mut request, words.len());
    words.iter().for_each(|word| encode::bulk(&mut request, word));
    cluster.feed(client, &request);
    cluster.advance(50);
    cluster.take(client)
}

/// A script has one whole reply, and leaves nothing in the sandbox. If it was ended, it has changed nothing.
pub(crate) fn scripts(bytes: &[u8]) {
    let source = source(bytes);
    let cluster = &mut Cluster::with(1, NODE_BYTES, Parameters::default());
    let all: [&[u8]; 3] = [b"MGET", KEYS[0], KEYS[1]];
    assert_eq!(ask(cluster, &[b"SET", KEYS[0], b"value"]), b"+OK\r\n");
    let before = ask(cluster, &all);
    let control: [&[u8]; 3] = [
        b"EVAL",
        b"local n = 0 for _ in pairs(_G) do n = n + 1 end \
          return {n, #KEYS, redis.sha1hex(''), string.rep('x', 3), tostring(getmetatable('')), _VERSION}",
        b"0",
    ];
    let expected = ask(cluster, &control);
    let reply = ask(
        cluster,
        &[b"EVAL", &source, b"2", KEYS[0], KEYS[1], b"16", b"%d [a-z]*"],
    );
    let mut decoder = ReplyDecoder::new();
    let decoded = decoder.decode(&reply);
    assert!(
        matches!(&decoded, Ok(Some((_, bytes))) if *bytes == reply.len()),
        "not one whole reply to {}: {} {decoded:?}",
        source.escape_ascii(),
        reply.escape_ascii()
    );
    let is_ended = ["-ERR the script does more work", "-ERR the script needs more than"]
        .iter()
        .any(|start| reply.starts_with(start.as_bytes()));
    if is_ended {
        assert_eq!(
            ask(cluster, &all).escape_ascii().to_string(),
            before.escape_ascii().to_string(),
            "it was ended, and has changed something: {}",
            source.escape_ascii()
        );
    }
    assert_eq!(
        ask(cluster, &control).escape_ascii().to_string(),
        expected.escape_ascii().to_string(),
        "it has changed the sandbox: {}",
        source.escape_ascii()
    );
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
        "#!lua flags=no-writes\nreturn redis.call('set', KEYS[1], 'x')",
        "while true do pcall(function() while true do end end) end",
        "redis.call('set', KEYS[1], 'during') while true do end",
        "redis.call('set', KEYS[1], 'during') local t = {} for i = 1, 1e7 do t[i] = {} end",
        "local f f = function() return 1 + f() end return f()",
        "return string.find(('a'):rep(24), ('a?'):rep(24) .. ('a'):rep(24))",
        "local t = {} for i = 1, 3000 do t[i] = i % 7 end table.sort(t) return table.concat(t, ',')",
        "local co = coroutine.wrap(function(...) while true do coroutine.yield(...) end end) return co(1, 2)",
        "return cjson.encode(cjson.decode('{\"a\":[1,2.5,null,\"\\\\u00e9\"]}'))",
        "return cmsgpack.unpack(cmsgpack.pack({1, 'a', {b = true}}))",
        "return struct.unpack('>I2hs', struct.pack('>I2hs', 1, -2, 'abc'))",
        "return {1, 2, {3, 'four', false, nil, 5}, {err = 'MY text'}}",
        "setmetatable(_G, {}) rawset(string, 'rep', nil) string.rep = nil",
        "getmetatable('').__index = function() return 1 end return ('x').y",
        "return loadstring('return ' .. ('('):rep(300) .. '1' .. (')'):rep(300))",
        "local s = 'x' for i = 1, 40 do s = s .. s end return #s",
        "error({err = 'E x'}) return",
        "error(setmetatable({}, {__tostring = function() while true do end end}))",
        "return {unpack({}, 1, 7000)}",
        "redis.setresp(3) return redis.call('mget', KEYS[1], 'other')",
        "return (",
    ];
    let texts = texts.iter().map(|text| [&[0], text.as_bytes()].concat());
    let made = random(200, 96)
        .into_iter()
        .map(|bytes| [&[1], bytes.as_slice()].concat());
    texts.chain(made).collect()
}
