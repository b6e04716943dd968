//! Frames between nodes. Layout: `docs/formats/peer.md`.
//!
//! ```text
//!  0        4        8    9   10       12       16                24
//!  | length | crc32c | kind | x | list   | epoch  | sent            | body ...
//! ```
//! Little endian. `length` counts the whole frame; the CRC covers all bytes after itself. `x`, `list` and `epoch` name
//! the stream or position, its list, and the configuration that the frame refers to. `sent` is the sender's monotonic
//! clock in ns; leases are counted from it (P2.2, P2.5, P4.3).

mod crc;
mod decode;
pub mod dialect;
mod encode;
pub mod kind;
mod message;
mod parts;
mod read;

pub use message::{ChunkStatus, Hello, ImportStatus, Message, Parity, PartState, StageState};
pub use parts::{
    AliveGroups, DeltaRecord, Deltas, Groups, LeaseEntry, LeaseRecord, Leases, ObjectRecord, Objects, PartName,
    Versions,
};

use paritas_base::{Epoch, ListId, Position, StreamId, Time};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a frame's header.
pub const HEADER_BYTES: usize = size_of::<RawHeader>();
/// Most bytes of a frame that is accepted.
pub const FRAME_BYTES_MAX: usize = 32 << 20;
const COVERED_FROM: usize = 8;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
struct RawHeader {
    length: U32,
    crc: U32,
    kind: u8,
    x: u8,
    list: U16,
    epoch: U32,
    sent: U64,
}

const _: () = assert!(size_of::<RawHeader>() == 24);

/// The fields that every frame has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The list and the position in it. Zero in a frame that refers to no list.
    pub stream: StreamId,
    /// The epoch of the sender's configuration of that list.
    pub epoch: Epoch,
    /// The sender's monotonic clock when the frame was encoded.
    pub sent: Time,
}

impl Header {
    /// A header for frames that refer to no list.
    pub fn bare(sent: Time) -> Self {
        Self {
            stream: StreamId {
                list: ListId(0),
                x: Position(0),
            },
            epoch: Epoch(0),
            sent,
        }
    }
}

/// Why bytes are not a valid frame. The link must be closed, because the following bytes cannot be trusted either.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadFrame {
    /// Shorter than a header, or longer than [`FRAME_BYTES_MAX`].
    Length(u32),
    /// The CRC does not match.
    Crc,
    /// There is no such kind of frame.
    Kind(u8),
    /// The body does not fit its kind.
    Body(u8),
}

impl core::fmt::Display for BadFrame {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Length(n) => write!(f, "frame length {n} is out of bounds"),
            Self::Crc => write!(f, "frame CRC does not match"),
            Self::Kind(n) => write!(f, "unknown frame kind {n}"),
            Self::Body(n) => write!(f, "malformed body of a frame of kind {n}"),
        }
    }
}

impl core::error::Error for BadFrame {}

/// The length of the first frame in `input`, once it is complete and its CRC is right. `None` while bytes are missing.
pub fn split(input: &[u8]) -> Result<Option<usize>, BadFrame> {
    let Some(length) = input.first_chunk::<4>() else {
        return Ok(None);
    };
    let length = u32::from_le_bytes(*length);
    let bytes = length as usize;
    if !(HEADER_BYTES..=FRAME_BYTES_MAX).contains(&bytes) {
        return Err(BadFrame::Length(length));
    }
    let Some(frame) = input.get(..bytes) else {
        return Ok(None);
    };
    let Ok((header, _)) = RawHeader::ref_from_prefix(frame) else {
        return Err(BadFrame::Length(length));
    };
    if crc32c::crc32c(frame.get(COVERED_FROM..).unwrap_or_default()) != header.crc.get() {
        return Err(BadFrame::Crc);
    }
    Ok(Some(bytes))
}

/// Decodes a frame that [`split`] has found to be complete.
pub fn decode(frame: &[u8]) -> Result<(Header, Message<'_>), BadFrame> {
    let Ok((raw, body)) = RawHeader::ref_from_prefix(frame) else {
        return Err(BadFrame::Length(frame.len() as u32));
    };
    let header = Header {
        stream: StreamId {
            list: ListId(raw.list.get()),
            x: Position(raw.x),
        },
        epoch: Epoch(raw.epoch.get()),
        sent: Time(raw.sent.get()),
    };
    let mut message = Message::decode(raw.kind, body)?;
    if let Message::ChunkValue { bytes, found, .. } = &mut message {
        let before = frame.len() - bytes.len();
        let prefix = crc32c::crc32c(frame.get(COVERED_FROM..before).unwrap_or_default());
        *found = Some(crc::sum_of_chunk(raw.crc.get(), prefix, bytes.len()));
    }
    Ok((header, message))
}

/// The number of a frame's kind, without decoding the frame.
pub fn kind_of(frame: &[u8]) -> Option<u8> {
    RawHeader::ref_from_prefix(frame).ok().map(|(raw, _)| raw.kind)
}

/// Appends one frame.
pub fn encode(to: &mut Vec<u8>, header: &Header, message: &Message<'_>) {
    let start = to.len();
    to.extend_from_slice(&[0; HEADER_BYTES]);
    message.encode(to);
    let raw = RawHeader {
        length: U32::new((to.len() - start) as u32),
        crc: U32::ZERO,
        kind: message.kind(),
        x: header.stream.x.0,
        list: U16::new(header.stream.list.0),
        epoch: U32::new(header.epoch.0),
        sent: U64::new(header.sent.0),
    };
    let frame = to.get_mut(start..).unwrap_or_default();
    debug_assert!(frame.len() <= FRAME_BYTES_MAX);
    if let Some(head) = frame.get_mut(..HEADER_BYTES) {
        head.copy_from_slice(raw.as_bytes());
    }
    let covered = frame.get(COVERED_FROM..).unwrap_or_default();
    let crc = match message {
        Message::ChunkValue {
            bytes,
            found: Some(sum),
            ..
        } => {
            let before = covered.len() - bytes.len();
            let prefix = crc32c::crc32c(covered.get(..before).unwrap_or_default());
            crc::with_chunk(prefix, *sum, bytes.len())
        }
        _ => crc32c::crc32c(covered),
    };
    debug_assert_eq!(crc, crc32c::crc32c(covered), "`found` is not the chunk's sum");
    if let Some(place) = frame.get_mut(4..8) {
        place.copy_from_slice(&crc.to_le_bytes());
    }
}

#[cfg(test)]
mod tests;
