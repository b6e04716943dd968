use super::{Gather, How, Part, Wait};
use crate::dialect::Dialect;

fn combined_for(dialect: Dialect, how: How, replies: &[&str]) -> String {
    let part = |reply: &&str| Part {
        reply: reply.as_bytes().to_vec(),
        wait: Wait::Ready,
    };
    let gather = Gather {
        database: 0,
        how,
        dialect,
        parts: replies.iter().map(part).collect(),
        reply_bytes: 0,
        reply_bytes_max: 1024,
    };
    let mut out = Vec::new();
    gather.combine(&mut out);
    String::from_utf8(out).unwrap()
}

fn combined(how: How, replies: &[&str]) -> String {
    combined_for(Dialect::Resp2, how, replies)
}

#[test]
fn parts_become_one_reply() {
    assert_eq!(combined(How::Sum, &[":1\r\n", ":41\r\n"]), ":42\r\n");
    assert_eq!(combined(How::AllOk, &["+OK\r\n", "+OK\r\n"]), "+OK\r\n");
    let values = ["*2\r\n$1\r\na\r\n$-1\r\n", "*1\r\n$2\r\n\r\n\r\n"];
    let how = How::InOrder {
        part_of: vec![0, 1, 0],
        command: Vec::new(),
    };
    let in_order = combined(how, &values);
    assert_eq!(in_order, "*3\r\n$1\r\na\r\n$2\r\n\r\n\r\n$-1\r\n");
    let any = |pick, dialect, replies: &[&str]| combined_for(dialect, How::Any { pick }, replies);
    assert_eq!(any(7, Dialect::Resp2, &["$-1\r\n", "$1\r\na\r\n"]), "$1\r\na\r\n");
    assert_eq!(any(7, Dialect::Resp3, &["_\r\n", "_\r\n"]), "_\r\n");
}

#[test]
fn a_cursor_goes_on_to_the_next_stream() {
    let step = |next, own: &str| {
        let reply = format!("*2\r\n${}\r\n{own}\r\n*0\r\n", own.len());
        combined(How::Cursor { stream: 2, next }, &[&reply])
    };
    let cursor = |n: u64| format!("*2\r\n${}\r\n{n}\r\n*0\r\n", n.to_string().len());
    assert_eq!(step(Some(3), "5"), cursor((2 << 39) | 5));
    assert_eq!(step(Some(5), "0"), cursor(5 << 39));
    assert_eq!(step(None, "0"), cursor(0));
}
