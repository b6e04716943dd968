//! The kinds of frames, as numbers in the header. A number is never reused for another kind.
#![allow(missing_docs)] // Each stands for the `Message` of the same name.

pub const HELLO: u8 = 1;
pub const DELTA: u8 = 10;
pub const ACK: u8 = 11;
pub const STABLE: u8 = 12;
pub const SYNC: u8 = 13;
pub const SYNC_ACK: u8 = 14;
pub const ALLOC: u8 = 15;
pub const LEASE_REQUEST: u8 = 16;
pub const LEASE: u8 = 17;
pub const SEAL: u8 = 18;
pub const SEAL_REPLY: u8 = 19;
pub const YIELD_QUERY: u8 = 20;
pub const YIELDED: u8 = 21;
pub const READ_DIRECTORY: u8 = 22;
pub const DIRECTORY: u8 = 23;
pub const READ_PARITY: u8 = 24;
pub const PARITY_VALUE: u8 = 25;
pub const READ_CHUNK: u8 = 26;
pub const CHUNK_VALUE: u8 = 27;
pub const HOLD: u8 = 28;
pub const CREDIT_REQUEST: u8 = 29;
pub const CREDIT: u8 = 30;
pub const GET_CONFIGURATION: u8 = 31;
pub const STALE: u8 = 32;
pub const FORWARD: u8 = 33;
pub const REPLY: u8 = 34;
pub const IMPORT: u8 = 35;
pub const IMPORTED: u8 = 36;
pub const OPEN_PART: u8 = 37;
pub const MAKE_PART: u8 = 38;
pub const PUT_UNIT: u8 = 39;
pub const PART_STATE: u8 = 40;
pub const FREE_GROUPS: u8 = 41;
pub const READ_GROUPS: u8 = 42;
pub const ALIVE_GROUPS: u8 = 43;
pub const READ_UNIT: u8 = 44;
pub const UNIT_VALUE: u8 = 45;
pub const FIND_PARTS: u8 = 46;
pub const FOUND_PARTS: u8 = 47;
pub const IMPORT_BODY: u8 = 48;
pub const STAGE: u8 = 49;
pub const STAGE_BYTES: u8 = 50;
pub const STAGED: u8 = 51;
pub const LONG_REPLY: u8 = 52;
pub const READ_REPLY: u8 = 53;
pub const REPLY_BYTES: u8 = 54;
pub const GIVE_UP: u8 = 55;

/// Whether sections may follow the body (`docs/formats/sections.md`). The others end with a run of bytes or of records
/// that fills the frame.
pub(super) fn takes_sections(kind: u8) -> bool {
    let runs = [
        DELTA,
        SYNC,
        ALLOC,
        LEASE_REQUEST,
        LEASE,
        SEAL_REPLY,
        DIRECTORY,
        PARITY_VALUE,
        CHUNK_VALUE,
        STALE,
        REPLY,
        IMPORT,
        IMPORT_BODY,
        STAGE_BYTES,
        REPLY_BYTES,
        PUT_UNIT,
        FREE_GROUPS,
        ALIVE_GROUPS,
        UNIT_VALUE,
    ];
    kind != HELLO && !runs.contains(&kind)
}

pub(super) fn is_known(kind: u8) -> bool {
    kind == HELLO || (DELTA..=GIVE_UP).contains(&kind)
}
