//! The bytes in `docs/formats/peer-golden.md` are those that the code writes and reads.

use super::samples::{at, n, with_each};
use super::*;

const PAGE: &str = include_str!("../../../../../docs/formats/peer-golden.md");

/// A frame given in the document.
#[derive(Debug)]
struct Drawn {
    kind: u8,
    name: String,
    bytes: Vec<u8>,
}

fn hex(text: &str) -> Vec<u8> {
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap_or_else(|_| panic!("{text}")))
        .collect()
}

/// The frames in the first code block after a heading.
fn drawn(heading: &str) -> Vec<Drawn> {
    let (_, rest) = PAGE.split_once(heading).unwrap();
    let (_, rest) = rest.split_once("```text\n").unwrap();
    let (block, _) = rest.split_once("```").unwrap();
    let mut frames: Vec<Drawn> = Vec::new();
    for line in block.lines().filter(|line| !line.is_empty()) {
        if let Some(field) = line.strip_prefix("    ") {
            let (bytes, _) = field.split_once(' ').unwrap();
            frames.last_mut().unwrap().bytes.extend(hex(bytes));
        } else {
            let (kind, name) = line.split_once(' ').unwrap();
            frames.push(Drawn {
                kind: kind.parse().unwrap(),
                name: name.to_owned(),
                bytes: Vec::new(),
            });
        }
    }
    frames
}

#[test]
fn golden_bytes_of_this_version() {
    let drawn = drawn("## Bodies");
    let mut at = 0;
    with_each(|message| {
        let frame = drawn.get(at).expect("the document has every sample");
        at += 1;
        let mut bytes = Vec::new();
        encode(&mut bytes, &header(), message);
        assert_eq!(message.kind() as u8, frame.kind, "{}", frame.name);
        let (covered, _) = covered(&bytes).unwrap();
        // Kind, list, x, epoch: a byte each.
        assert_eq!(covered[4..], frame.bytes, "{}", frame.name);
        assert_eq!(
            decode(&bytes).map(|(_, read)| read),
            Ok(message.clone()),
            "{}",
            frame.name
        );
        let name = format!("{message:?}");
        let name = name.split(' ').next().unwrap();
        assert_eq!(frame.name.split(',').next(), Some(name));
    });
    assert_eq!(at, drawn.len(), "the document has a frame that is not a sample");
    let missing: Vec<u8> = (0..=u8::MAX)
        .filter(|kind| Kind::new(*kind).is_some() && drawn.iter().all(|frame| frame.kind != *kind))
        .collect();
    assert!(missing.is_empty(), "kinds missing in the document: {missing:?}");
}

#[test]
fn golden_bytes_of_a_whole_frame() {
    let [frame] = &drawn("## A whole frame")[..] else {
        panic!("the document must have one frame here");
    };
    let header = Header {
        stream: StreamId {
            list: ListId(n(3) as u16),
            x: Position(2),
        },
        epoch: Epoch(n(4) as u32),
    };
    let message = Message::Ack {
        term: n(1) as u32,
        recv: n(2),
        lease_sent: at(3),
    };
    let mut bytes = Vec::new();
    encode(&mut bytes, &header, &message);
    assert_eq!(bytes, frame.bytes);
    assert_eq!(split(&frame.bytes), Ok(Some(frame.bytes.len())));
    assert_eq!(decode(&frame.bytes), Ok((header, message)));
}
