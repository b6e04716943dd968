//! The protocol that the client of a forwarded command speaks, as one byte of the frame. Only front ends act on it. A
//! number is never reused for another protocol.

/// RESP2.
pub const RESP2: u8 = 0;
/// RESP3.
pub const RESP3: u8 = 1;

/// memcached, as text.
pub const MEMCACHED: u8 = 2;

/// Added to one of these: the value of the command is not in it, but was sent ahead (`Stage`).
pub const STAGED: u8 = 1 << 7;

pub(super) fn is_known(dialect: u8) -> bool {
    dialect & !STAGED <= MEMCACHED
}
