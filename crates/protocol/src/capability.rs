//! Capabilities: what a client must show a holder that gives it units of a group, or takes some from it (P14.19).
//! Holders keep nothing for them: they compute them anew.

use core::fmt;
use core::hash::Hasher;
use paritas_base::StreamId;
use siphasher::sip::SipHasher24;

/// What is hashed under the cluster's key for each half of the key of capabilities.
const HALVES: [&[u8]; 2] = [b"paritas capability 0", b"paritas capability 1"];
/// The right to read, and the right to write.
const READ: u8 = b'r';
const WRITE: u8 = b'w';

/// The right to read the units of one group, or to write them.
#[derive(Clone, Copy)]
pub struct Capability(u64);

impl Capability {
    /// The right to read a group of this stream. `hash_key`: the cluster's.
    pub fn to_read(hash_key: [u64; 2], stream: StreamId, group: u64) -> Self {
        Self::of(hash_key, stream, group, READ)
    }

    /// The right to write it.
    pub fn to_write(hash_key: [u64; 2], stream: StreamId, group: u64) -> Self {
        Self::of(hash_key, stream, group, WRITE)
    }

    fn of(hash_key: [u64; 2], stream: StreamId, group: u64, right: u8) -> Self {
        // Who knew this key would not know that of the cluster, which places keys in the index.
        let [first, second] = HALVES.map(|half| sip(hash_key, half));
        let mut named = [0; 12];
        named[..2].copy_from_slice(&stream.list.0.to_le_bytes());
        named[2] = stream.x.0;
        named[3..11].copy_from_slice(&group.to_le_bytes());
        named[11] = right;
        Self(sip([first, second], &named))
    }

    /// Its bytes.
    pub fn bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    /// Whether these are its bytes. They are compared as one number, so the time does not depend on them.
    pub fn is(self, bytes: [u8; 8]) -> bool {
        core::hint::black_box(self.0 ^ u64::from_le_bytes(bytes)) == 0
    }
}

// It stands in no log.
impl fmt::Debug for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Capability")
    }
}

fn sip(key: [u64; 2], bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher24::new_with_keys(key[0], key[1]);
    hasher.write(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use paritas_base::{ListId, Position};

    #[test]
    fn each_group_of_each_stream_of_each_cluster_has_another() {
        let stream = |list, x| StreamId {
            list: ListId(list),
            x: Position(x),
        };
        let of = |key, stream, group| Capability::to_read(key, stream, group).bytes();
        let all = [
            of([1, 2], stream(0, 0), 7),
            of([2, 1], stream(0, 0), 7),
            of([1, 2], stream(1, 0), 7),
            of([1, 2], stream(0, 1), 7),
            of([1, 2], stream(0, 0), 8),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(all.iter().skip(at + 1).all(|other| other != one), "{at}");
            assert_eq!(Capability::to_read([1, 2], stream(0, 0), 7).is(*one), at == 0);
        }
    }

    #[test]
    fn the_right_to_write_is_another_than_that_to_read() {
        let stream = StreamId {
            list: ListId(0),
            x: Position(0),
        };
        let (read, write) = (
            Capability::to_read([1, 2], stream, 7),
            Capability::to_write([1, 2], stream, 7),
        );
        assert!(write.is(write.bytes()) && !write.is(read.bytes()) && !read.is(write.bytes()));
    }

    #[test]
    fn bytes_are_those_of_another_implementation() {
        let stream = StreamId {
            list: ListId(3),
            x: Position(2),
        };
        let one = Capability::to_read([1, 2], stream, 0x0000_7000_0000_0009);
        assert_eq!(one.bytes(), [237, 124, 64, 33, 169, 148, 217, 46]);
    }
}
