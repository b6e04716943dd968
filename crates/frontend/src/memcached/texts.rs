//! Replies in the words of memcached. Clients match them.

use crate::dialect::Refusal;
use crate::redis::refusals;
use paritas_protocol::WriteRefusal;

/// Before every error that is not the client's.
const OURS: &[u8] = b"SERVER_ERROR ";
/// Before every error of the client.
const THEIRS: &[u8] = b"CLIENT_ERROR ";

pub(crate) const TOO_LARGE: &str = "SERVER_ERROR object too large for cache";
pub(crate) const NO_NUMBER: &str = "CLIENT_ERROR cannot increment or decrement non-numeric value";
pub(crate) const NO_DELAY: &str = "CLIENT_ERROR flush_all takes no delay here: send it when the items shall go";
pub(crate) const BAD_DATA: &str = "CLIENT_ERROR bad data chunk";

const NO_BINARY: &str = "memcached's binary protocol is not there: set the client to its text or meta protocol";

/// Refuses a request in the form of memcached's binary protocol, so that its client shows the text. `request`: the
/// header, with the operation in byte 1 and what the response repeats in bytes 12 to 15.
pub(crate) fn no_binary(out: &mut Vec<u8>, request: &[u8; 24]) {
    // A response, status 0x83 (not supported), with nothing but a text.
    let mut header = [0; 24];
    header[..8].copy_from_slice(&[0x81, request[1], 0, 0, 0, 0, 0, 0x83]);
    header[8..12].copy_from_slice(&(NO_BINARY.len() as u32).to_be_bytes());
    header[12..16].copy_from_slice(&request[12..16]);
    out.extend_from_slice(&header);
    out.extend_from_slice(NO_BINARY.as_bytes());
}

/// Appends a line.
pub(crate) fn line(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends a refusal.
pub(crate) fn append(out: &mut Vec<u8>, refusal: Refusal) {
    match refusal {
        // The node that forwarded reads this one.
        Refusal::NotOwner => refusals::append(out, refusal),
        Refusal::Write(WriteRefusal::NoMemory) => line(out, "SERVER_ERROR out of memory storing object"),
        Refusal::Write(WriteRefusal::ValueTooLong { .. } | WriteRefusal::TooLarge) => line(out, TOO_LARGE),
        _ => {
            let start = out.len();
            refusals::append(out, refusal);
            out.splice(start..start + 1, OURS.iter().copied());
        }
    }
}

/// Appends an error, which is given in the form of Redis.
pub(crate) fn error(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(OURS);
    line(out, text);
}

/// Whether a reply that begins with a capital letter is an error.
#[cold]
pub(crate) fn is_error(reply: &[u8]) -> bool {
    reply.starts_with(OURS) || reply.starts_with(THEIRS) || reply == b"ERROR\r\n"
}

/// Whether a reply says that a change may or may not have happened.
pub(crate) fn is_uncertain(reply: &[u8]) -> bool {
    reply
        .strip_prefix(OURS)
        .is_some_and(|text| text.starts_with(b"UNCERTAIN"))
}
