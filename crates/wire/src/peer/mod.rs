//! Frames between nodes. Layout: `docs/formats/peer.md`.
//!
//! ```text
//! | length | crc32c u32 | kind u8 | list | x u8 | epoch | body ...
//! ```
//! Length, list and epoch are numbers of variable length ([`paritas_base::varint`]); other integers are little endian.
//! `length` counts the bytes after the CRC, which covers them. `list`, `x` and `epoch` name the stream or position, its
//! list, and the configuration that the frame refers to (P2.2).

mod crc;
pub mod dialect;
mod field;
mod message;
mod parts;
mod types;

pub use message::{Kind, Message};
pub use parts::{
    AliveGroups, DeltaRecord, Deltas, Groups, LeaseEntry, LeaseRecord, Leases, ObjectRecord, Objects, Versions,
};
pub use types::{Behind, ChunkStatus, Hello, ImportStatus, Parity, PartName, StageState};

use field::{Field, Num, fields};
use paritas_base::sections::BadSections;
use paritas_base::{Epoch, ListId, Position, Reader, StreamId, varint};

/// Most bytes of a frame that is accepted.
pub const FRAME_BYTES_MAX: usize = 32 << 20;
/// Most bytes of a frame before the kind: its length, of variable length, and the CRC.
const ENVELOPE_BYTES_MAX: usize = LENGTH_BYTES_MAX + CRC_BYTES;
/// Lengths up to [`FRAME_BYTES_MAX`] need no more.
const LENGTH_BYTES_MAX: usize = 4;
const CRC_BYTES: usize = 4;

/// The section of a forwarded command that has the database of its client, if that is not 0.
const FORWARD_DATABASE: u8 = 128;
/// The section of a part that is opened for a client. It is empty.
const OPEN_FOR_CLIENT: u8 = 128;
/// The section of the state of a part that has the part's fingerprint.
const PART_FINGERPRINT: u8 = 128;

/// The section of a value that is sent ahead with the class that its command gives it.
const STAGE_CLASS: u8 = 1;

/// Bytes of the fingerprint of a part of a large value.
pub const FINGERPRINT_BYTES: usize = 256;

/// The fields that every frame has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The list and the position in it. Zero in a frame that refers to no list.
    pub stream: StreamId,
    /// The epoch of the sender's configuration of that list.
    pub epoch: Epoch,
}

impl Header {
    /// A header for frames that refer to no list.
    pub fn bare() -> Self {
        Self {
            stream: StreamId {
                list: ListId(0),
                x: Position(0),
            },
            epoch: Epoch(0),
        }
    }
}

fields!(Header { stream, epoch as Num });

/// Why bytes are not a valid frame. The link must be closed, because the following bytes cannot be trusted either.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadFrame {
    /// Nothing after the CRC, or longer than [`FRAME_BYTES_MAX`].
    Length(u32),
    /// The CRC does not match.
    Crc,
    /// There is no such kind of frame.
    Kind(u8),
    /// The body does not fit its kind.
    Body(Kind),
    /// After the body of this kind there are sections that are malformed, or that must be known and are not.
    Section(Kind, BadSections),
    /// An object with these bits of its kind, which this version does not know.
    Object(u8),
}

impl core::fmt::Display for BadFrame {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Length(n) => write!(f, "frame length {n} is out of bounds"),
            Self::Crc => write!(f, "frame CRC does not match"),
            Self::Kind(n) => write!(f, "unknown frame kind {n}"),
            Self::Body(kind) => write!(f, "malformed body of a frame of kind {}", *kind as u8),
            Self::Section(kind, bad) => write!(f, "a frame of kind {}: {bad}", *kind as u8),
            Self::Object(bits) => write!(f, "an object with kind bits {bits}, which this version does not know"),
        }
    }
}

impl core::error::Error for BadFrame {}

/// The length and the CRC of the frame that `input` begins with, and how many bytes both have. `None` while bytes are
/// missing.
fn envelope(input: &[u8]) -> Result<Option<(usize, u32, usize)>, BadFrame> {
    let Some((length, bytes)) = varint::read(input.get(..LENGTH_BYTES_MAX).unwrap_or(input)) else {
        let ends = input.iter().take(LENGTH_BYTES_MAX).any(|byte| *byte < 0x80);
        return match ends || input.len() >= LENGTH_BYTES_MAX {
            // Longer than it must be, or than it may be.
            true => Err(BadFrame::Length(u32::MAX)),
            false => Ok(None),
        };
    };
    if length == 0 || length > (FRAME_BYTES_MAX - ENVELOPE_BYTES_MAX) as u64 {
        return Err(BadFrame::Length(length as u32));
    }
    let Some(crc) = input.get(bytes..).and_then(|rest| rest.first_chunk()) else {
        return Ok(None);
    };
    Ok(Some((length as usize, u32::from_le_bytes(*crc), bytes + CRC_BYTES)))
}

/// The length of the first frame in `input`, once it is complete and its CRC is right. `None` while bytes are missing.
pub fn split(input: &[u8]) -> Result<Option<usize>, BadFrame> {
    let Some((length, crc, from)) = envelope(input)? else {
        return Ok(None);
    };
    let Some(covered) = input.get(from..from + length) else {
        return Ok(None);
    };
    if crc32c::crc32c(covered) != crc {
        return Err(BadFrame::Crc);
    }
    Ok(Some(from + length))
}

/// The part of a frame that its CRC covers, from the kind on, and the CRC.
fn covered(frame: &[u8]) -> Result<(&[u8], u32), BadFrame> {
    match envelope(frame)? {
        Some((length, crc, from)) if frame.len() == from + length => Ok((frame.get(from..).unwrap_or_default(), crc)),
        _ => Err(BadFrame::Length(frame.len() as u32)),
    }
}

/// Decodes a frame that [`split`] has found to be complete.
pub fn decode(frame: &[u8]) -> Result<(Header, Message<'_>), BadFrame> {
    let (covered, whole) = covered(frame)?;
    let mut r = Reader(covered);
    let number = r.u8().ok_or(BadFrame::Length(0))?;
    let kind = Kind::new(number).ok_or(BadFrame::Kind(number))?;
    let header = Header::read(&mut r).ok_or(BadFrame::Body(kind))?;
    let mut message = Message::decode(kind, r.0)?;
    if let Message::ChunkValue { bytes, found, .. } = &mut message {
        let before = covered.len() - bytes.len();
        let prefix = crc32c::crc32c(covered.get(..before).unwrap_or_default());
        *found = Some(crc::sum_of_chunk(whole, prefix, bytes.len()));
    }
    Ok((header, message))
}

/// The kind of a frame, without decoding the frame.
pub fn kind_of(frame: &[u8]) -> Option<Kind> {
    Kind::new(*covered(frame).ok()?.0.first()?)
}

/// Appends one frame.
pub fn encode(to: &mut Vec<u8>, header: &Header, message: &Message<'_>) {
    let start = to.len();
    // Most lengths have one byte or two. A longer one moves the frame, which is large and rare.
    const ROOM: usize = 2 + CRC_BYTES;
    to.extend_from_slice(&[0; ROOM]);
    to.push(message.kind() as u8);
    header.write(to);
    message.encode(to);
    let covered = to.get(start + ROOM..).unwrap_or_default();
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
    let length = covered.len();
    debug_assert!(length <= FRAME_BYTES_MAX - ENVELOPE_BYTES_MAX);
    let mut before = [0; ENVELOPE_BYTES_MAX];
    let bytes = varint::bytes(length as u64).min(LENGTH_BYTES_MAX);
    for (at, byte) in before.iter_mut().enumerate().take(bytes) {
        let more = if at + 1 < bytes { 0x80 } else { 0 };
        *byte = (length >> (7 * at)) as u8 & 0x7f | more;
    }
    for (place, byte) in before.iter_mut().skip(bytes).zip(crc.to_le_bytes()) {
        *place = byte;
    }
    let before = before.get(..bytes + CRC_BYTES).unwrap_or_default();
    match to.get_mut(start..start + ROOM) {
        Some(room) if before.len() == ROOM => room.copy_from_slice(before),
        _ => drop(to.splice(start..start + ROOM, before.iter().copied())),
    }
}

#[cfg(test)]
mod tests;
