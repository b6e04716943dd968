//! Payloads of RESTORE and FUNCTION RESTORE, which clients bring.

use paritas_base::Reader;
use paritas_protocol::{Parameters, Port};
use paritas_testbed::{Client, Cluster};
use paritas_wire::rdb;
use paritas_wire::resp::{ReplyDecoder, Value};

/// Memory of the node.
pub(crate) const NODE_BYTES: u64 = 8 << 20;
/// The longest string that is taken from a payload, as for a library.
const STRING_BYTES_MAX: usize = 1 << 20;

/// A payload with its sum, or any bytes. As a value and as libraries it must be refused, or be the same after it was
/// told and restored again.
pub(crate) fn payloads(bytes: &[u8]) {
    let Some((how, body)) = bytes.split_first() else {
        return;
    };
    let payload = match how & 3 {
        // Few inputs would find a right sum.
        0..=2 => rdb::seal(body.to_vec()),
        _ => body.to_vec(),
    };
    strings(body);
    assert!(
        how & 3 == 3 || rdb::open(&payload) == Some(body),
        "the payload does not open"
    );
    let mut cluster = Cluster::with(1, NODE_BYTES, Parameters::default());
    let client = cluster.connect(0, Port::Any);
    if how & 4 == 0 {
        values(&mut cluster, client, &payload);
    } else {
        let policies: [&[u8]; 4] = [b"", b"APPEND", b"REPLACE", b"FLUSH"];
        let policy = policies[usize::from(how >> 3 & 3)];
        libraries(&mut cluster, client, &payload, policy);
    }
}

/// Each string that is read is the same after it was written.
fn strings(body: &[u8]) {
    let mut rest = Reader(body.get(1..).unwrap_or_default());
    while let Some(string) = rdb::take_string(&mut rest, STRING_BYTES_MAX) {
        let (mut as_string, mut as_value) = (Vec::new(), Vec::new());
        rdb::push_string(&mut as_string, &string);
        rdb::push_value(&mut as_value, &string);
        assert_eq!(rdb::length_of_string(Reader(&as_string)), Some(string.len()));
        for written in [as_string, as_value] {
            let mut again = Reader(&written);
            assert_eq!(rdb::take_string(&mut again, STRING_BYTES_MAX).as_ref(), Some(&string));
            assert!(again.0.is_empty());
        }
    }
}

fn values(cluster: &mut Cluster, client: Client, payload: &[u8]) {
    if !restores(cluster, client, &[b"RESTORE", b"a", b"0", payload]) {
        assert_eq!(ask(cluster, client, &[b"EXISTS", b"a"]), Value::Integer(0));
        return;
    }
    let value = ask(cluster, client, &[b"GET", b"a"]);
    let told = bulk(ask(cluster, client, &[b"DUMP", b"a"]));
    assert!(restores(cluster, client, &[b"RESTORE", b"b", b"0", &told]));
    assert_eq!(ask(cluster, client, &[b"GET", b"b"]), value);
}

fn libraries(cluster: &mut Cluster, client: Client, payload: &[u8], policy: &[u8]) {
    let words: [&[u8]; 4] = [b"FUNCTION", b"RESTORE", payload, policy];
    let words = if policy.is_empty() { &words[..3] } else { &words[..] };
    let is_restored = restores(cluster, client, words);
    let told = bulk(ask(cluster, client, &[b"FUNCTION", b"DUMP"]));
    let nothing = rdb::seal(Vec::new());
    assert!(is_restored || told == nothing, "refused libraries are there");
    // A library that draws random numbers may load only once.
    if restores(cluster, client, &[b"FUNCTION", b"RESTORE", &told, b"FLUSH"]) {
        assert_eq!(bulk(ask(cluster, client, &[b"FUNCTION", b"DUMP"])), told);
    }
    let list = ask(cluster, client, &[b"FUNCTION", b"LIST", b"WITHCODE"]);
    assert!(
        matches!(&list, Value::Array(all) if all.is_empty() == (told == nothing)),
        "{list:?}"
    );
}

/// Whether such a command succeeds. Else its answer is an error.
fn restores(cluster: &mut Cluster, client: Client, words: &[&[u8]]) -> bool {
    match ask(cluster, client, words) {
        Value::Simple(ok) => ok == "OK",
        Value::Error(_) => false,
        other => panic!("{other:?}"),
    }
}

fn bulk(value: Value) -> Vec<u8> {
    match value {
        Value::Bulk(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

/// The one answer to a command.
fn ask(cluster: &mut Cluster, client: Client, words: &[&[u8]]) -> Value {
    let mut command = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        command.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        command.extend_from_slice(word);
        command.extend_from_slice(b"\r\n");
    }
    cluster.feed(client, &command);
    cluster.pump();
    let mut answer = cluster.take(client);
    // Libraries are loaded some in each turn.
    for _ in 0..100 {
        if !answer.is_empty() {
            break;
        }
        cluster.advance(10);
        answer = cluster.take(client);
    }
    match ReplyDecoder::new().decode(&answer) {
        Ok(Some((reply, consumed))) if consumed == answer.len() => reply.to_value(),
        other => panic!("{other:?}: {}", answer.escape_ascii()),
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let library = |source: &[u8]| {
        let mut body = Vec::new();
        rdb::push_library(&mut body, source);
        body
    };
    let one = b"#!lua name=one\nredis.register_function('f', function() return 1 end)";
    let other = b"#!lua name=two\n\
        redis.register_function{function_name='g', description='x', flags={'no-writes'}, callback=function() end}";
    let bodies: [Vec<u8>; 18] = [
        vec![],
        b"\x00\x05value".to_vec(),
        b"\x00\x00".to_vec(),
        b"\x00\xC0\xFF".to_vec(),
        b"\x00\xC1\x39\x30".to_vec(),
        b"\x00\xC2\x15\xCD\x5B\x07".to_vec(),
        b"\x00\xC3\x05\x14a\0a\xE0\x0A\x00".to_vec(),
        b"\x00\xC3\x05\x14\0a\xE0\x0A\x00".to_vec(),
        b"\x00\x40\x02ab".to_vec(),
        b"\x00\x80\0\0\0\x02ab".to_vec(),
        b"\x00\x81\0\0\0\0\0\0\0\x02ab".to_vec(),
        b"\x00\x80\x7F\xFF\xFF\xFF".to_vec(),
        b"\x04\x01\x01a\x01b".to_vec(),
        library(one),
        [library(one), library(other)].concat(),
        [library(one), library(one)].concat(),
        library(b"#!lua name=bad\nerror('no')"),
        b"\xF6\x01a".to_vec(),
    ];
    bodies
        .iter()
        .flat_map(|body| [0, 3, 4, 20, 28].map(|how| [&[how], &body[..]].concat()))
        .collect()
}
