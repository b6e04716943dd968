//! Replies as RESP2 (`docs/formats/files.md`).

use paritas_files::record::hex;
use paritas_files::steward::{Granted, Reply};
use paritas_wire::resp::{Proto, encode};

/// Appends a reply.
pub(crate) fn append(out: &mut Vec<u8>, reply: &Reply) {
    match reply {
        Reply::Opened(opened) => {
            encode::array_header(out, 6);
            encode::bulk(out, opened.answer.word().as_bytes());
            grant(out, &opened.grant);
            encode::array_header(out, opened.slow.len());
            for node in &opened.slow {
                encode::bulk(out, node.as_bytes());
            }
        }
        Reply::Next(Some(file)) => encode::bulk(out, file.to_string().as_bytes()),
        Reply::Next(None) => encode::null(out, Proto::Resp2),
        Reply::Room(blocks, granted) => {
            encode::array_header(out, 5);
            encode::integer(out, *blocks as i64);
            grant(out, granted);
        }
        Reply::Renewed(known) => {
            encode::array_header(out, known.len());
            for pin in known {
                encode::integer(out, i64::from(*pin));
            }
        }
        Reply::Credit(bytes) => encode::integer(out, *bytes as i64),
        Reply::Done => encode::ok(out),
        Reply::Status(json) => encode::bulk(out, json.as_bytes()),
        Reply::Error(text) => encode::error(out, &format!("ERR {text}")),
    }
}

/// Pin, token, m, bytes of a subblock.
fn grant(out: &mut Vec<u8>, granted: &Granted) {
    encode::integer(out, granted.pin as i64);
    encode::bulk(out, granted.token.map(hex).unwrap_or_default().as_bytes());
    encode::integer(out, i64::from(granted.m));
    encode::integer(out, granted.sub_bytes as i64);
}

/// Appends a command of every client library that is not about files. Returns whether it was one.
pub(crate) fn common(out: &mut Vec<u8>, words: &[&[u8]]) -> bool {
    let name = words.first().map(|word| word.to_ascii_uppercase()).unwrap_or_default();
    match name.as_slice() {
        b"PING" => match words.get(1) {
            Some(word) => encode::bulk(out, word),
            None => out.extend_from_slice(encode::PONG),
        },
        // Libraries tell their names when they connect.
        b"CLIENT" => encode::ok(out),
        // Only protocol 2 is spoken, which this error tells.
        b"HELLO" if words.len() > 1 && words.get(1) != Some(&b"2".as_slice()) => {
            encode::error(out, "NOPROTO unsupported protocol version: use 2");
        }
        b"HELLO" => {
            encode::map_header(out, Proto::Resp2, 2);
            for (key, value) in [
                ("server", "paritas files steward"),
                ("version", env!("CARGO_PKG_VERSION")),
            ] {
                encode::bulk(out, key.as_bytes());
                encode::bulk(out, value.as_bytes());
            }
        }
        _ => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use paritas_files::steward::{Answer, Opened};

    #[test]
    fn replies_are_those_of_the_page() {
        let opened = Reply::Opened(Opened {
            answer: Answer::Cached,
            grant: Granted {
                pin: 7,
                token: Some(0xab),
                m: 1,
                sub_bytes: 1 << 20,
            },
            slow: vec!["a:1".to_owned()],
        });
        let mut out = Vec::new();
        append(&mut out, &opened);
        let expected = "*6\r\n$6\r\ncached\r\n:7\r\n$16\r\n00000000000000ab\r\n:1\r\n:1048576\r\n*1\r\n$3\r\na:1\r\n";
        assert_eq!(str::from_utf8(&out), Ok(expected));
        out.clear();
        append(&mut out, &Reply::Renewed(vec![true, false]));
        assert_eq!(out, b"*2\r\n:1\r\n:0\r\n");
        out.clear();
        append(&mut out, &Reply::Error("a\r\nb".to_owned()));
        assert_eq!(out, b"-ERR a  b\r\n");
    }
}
