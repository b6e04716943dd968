//! Bytes from a peer: splitting them into frames, and decoding the frames.

use paritas_base::configuration::Configuration;
use paritas_base::{Version, varint};
use paritas_store::delta::extents;
use paritas_wire::peer::{self, LeaseRecord, Message};

const PAGE: &str = include_str!("../../docs/formats/peer-golden.md");
const CHUNK_BYTES: usize = 16 << 10;

/// Takes any bytes: as a byte stream, and as the body of a frame with the right CRC.
pub(crate) fn frames(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Some(length)) = peer::split(rest) {
        assert!((1..=rest.len()).contains(&length));
        one(&rest[..length]);
        rest = &rest[length..];
    }
    if let Some(frame) = sealed(bytes) {
        assert_eq!(peer::split(&frame), Ok(Some(frame.len())));
        one(&frame);
        for end in [0, 4, frame.len() - 1] {
            assert_eq!(peer::split(&frame[..end]), Ok(None), "an incomplete frame was accepted");
        }
    }
}

/// Makes a frame from its kind, the rest of its header and its body. Length and CRC are set to match.
pub(crate) fn sealed(covered: &[u8]) -> Option<Vec<u8>> {
    if covered.is_empty() {
        return None;
    }
    let mut frame = Vec::new();
    varint::push(&mut frame, covered.len() as u64);
    frame.extend_from_slice(&crc32c(covered).to_le_bytes());
    frame.extend_from_slice(covered);
    Some(frame)
}

/// The part of a frame that its CRC covers, from the kind on.
pub(crate) fn covered(frame: &[u8]) -> &[u8] {
    let length = varint::read(frame).map_or(0, |(_, bytes)| bytes);
    frame.get(length + 4..).unwrap_or_default()
}

fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
    }
    !crc
}

fn one(frame: &[u8]) {
    let Ok((header, message)) = peer::decode(frame) else {
        return;
    };
    walk(&message);
    // A frame has one encoding, so a frame that is decoded and encoded again must be the same. Sections of later
    // versions are left out, and configurations are encoded by postcard, whose numbers have several encodings. For
    // such frames the decoded values must be the same.
    let mut again = Vec::new();
    peer::encode(&mut again, &header, &message);
    if matches!(message, Message::Stale { .. }) || again.len() < frame.len() {
        assert_eq!(peer::decode(&again), Ok((header, message)));
    } else {
        assert_eq!(again, frame, "{message:?}");
    }
}

/// Reads every sequence within a message.
fn walk(message: &Message<'_>) {
    match message {
        Message::Delta { extents: bytes, .. } => walk_extents(bytes),
        Message::Sync { deltas, .. } => deltas.iter().for_each(|d| walk_extents(d.extents)),
        Message::SealReply { leases, deltas, .. } => {
            deltas.iter().for_each(|d| walk_extents(d.extents));
            assert_eq!(LeaseRecord::read(leases).count() * 22, leases.len());
        }
        Message::Directory { entries, .. } | Message::Alloc { entries, .. } => {
            assert!(Message::directory_entries(entries).all(|(s, _)| s.is_valid()));
        }
        Message::LeaseRequest { streams, .. } | Message::Lease { streams, .. } => {
            let _ = streams.iter().count();
        }
        Message::ParityValue { parity: Some(p), .. } => assert_eq!(p.versions.iter().count(), p.versions.count()),
        Message::Stale { configuration } => {
            let c: &Configuration = configuration;
            let _ = (c.members().count(), c.streams().count());
        }
        _ => {}
    }
}

fn walk_extents(bytes: &[u8]) {
    for extent in extents(Version::ZERO, bytes, CHUNK_BYTES).flatten() {
        assert!(extent.stripe.is_valid() && extent.offset + extent.xor.len() <= CHUNK_BYTES);
    }
}

/// The frames in the document of golden bytes, without length and CRC.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    let (_, bodies) = PAGE.split_once("## Bodies").unwrap_or_default();
    for line in bodies.lines() {
        if let Some(field) = line.strip_prefix("    ") {
            let hex = field.split(' ').next().unwrap_or_default();
            if let Some(seed) = seeds.last_mut() {
                seed.extend((0..hex.len() / 2).filter_map(|i| u8::from_str_radix(hex.get(2 * i..2 * i + 2)?, 16).ok()));
            }
        } else if let Some(kind) = line.split(' ').next().and_then(|word| word.parse::<u8>().ok()) {
            // Kind, list, x, epoch.
            seeds.push(vec![kind, 0, 0, 0]);
        }
    }
    let whole: Vec<Vec<u8>> = seeds.iter().filter_map(|seed| sealed(seed)).collect();
    seeds.extend(whole);
    seeds
}
